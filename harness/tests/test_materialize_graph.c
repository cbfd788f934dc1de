/* SPDX-License-Identifier: Apache-2.0
 * Batches of replays and captures, the mirror of the lengths, sizes of graph_init (graph.md sections 1 and 3). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "harness/tests/batch_rig.h"

/* --- seq_lens_cpu ------------------------------------------------------------------------------------------------ */

static void the_mirror_of_the_lengths_is_given_when_asked_for(void **state) {
    (void)state;
    for (int32_t given = 0; given < 2; given++) {
        struct rig g;
        struct hb_case_step *s = rig_start(&g, HB_MODE_DECODE);
        hand_row(s, 2, 1);
        hand_row(s, 0, 1);
        s->pad_rows = 2;
        s->optional = given ? 32 : 0;
        RIG_DERIVE(&g, 4, 9);
        const struct hb_batch *b = &g.batch.b;
        ASSERT_ARRAY(b->seq_lens, 5, 10, 1, 1);
        if (given) {
            ASSERT_ARRAY(b->seq_lens_cpu, 5, 10, 1, 1);
            assert_ptr_not_equal(b->seq_lens_cpu.data, b->seq_lens.data);
        } else {
            assert_null(b->seq_lens_cpu.data);
        }
        assert_false(b->has_num_padding);
        assert_int_equal(b->original_batch_size, 2);
        hb_batch_destroy(&g.batch);
    }
}

static void a_verify_mirrors_the_tokens_before_it(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = rig_start(&g, HB_MODE_TARGET_VERIFY);
    hand_row(s, 1, 3);
    s->pad_rows = 1;
    s->optional = 32;
    RIG_DERIVE(&g, 7);
    ASSERT_ARRAY(g.batch.b.seq_lens_cpu, 7, 1);
    hb_batch_destroy(&g.batch);
}

/* --- replays ------------------------------------------------------------------------------------------------------ */

static void a_replay_says_its_padding_unless_told_not_to(void **state) {
    (void)state;
    for (int32_t absent = 0; absent < 2; absent++) {
        struct rig g;
        struct hb_case_step *s = rig_start(&g, HB_MODE_DECODE);
        hand_row(s, 2, 1);
        s->pad_rows = 3;
        s->replay = 1;
        s->optional = absent ? 64 : 0;
        RIG_DERIVE(&g, 5);
        const struct hb_batch *b = &g.batch.b;
        assert_int_equal(b->has_num_padding, !absent);
        assert_int_equal(b->num_padding, absent ? 0 : 3);
        assert_true(b->batch_size == 4 && b->n_tokens == 4);
        hb_batch_destroy(&g.batch);
    }
}

/* What a replay must not read is nonsense: the requests of its padding rows, the original batch size. */
static void a_replay_has_nonsense_where_it_must_not_read(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = rig_start(&g, HB_MODE_DECODE);
    hand_row(s, 2, 1);
    s->pad_rows = 2;
    s->replay = 1;
    RIG_DERIVE(&g, 5);
    const struct hb_batch *b = &g.batch.b;
    assert_int_equal(b->req_pool_indices.data[0], hb_case_req_index(&g.c, 2));
    for (int32_t r = 1; r < 3; r++) {
        assert_false(b->req_pool_indices.data[r] >= 0 &&
                     b->req_pool_indices.data[r] < g.config.req_pool_size);
        assert_int_equal(b->seq_lens.data[r], 1);
    }
    assert_true(b->has_original_batch_size);
    assert_false(b->original_batch_size >= 0 && b->original_batch_size <= b->batch_size);
    hb_batch_destroy(&g.batch);
}

/* Rule 68: a graph of IDLE has a token per row, an eager IDLE the tokens that the case says. */
static void a_replayed_idle_has_a_token_per_row(void **state) {
    (void)state;
    for (int32_t replay = 0; replay < 2; replay++) {
        struct rig g;
        struct hb_case_step *s = rig_start(&g, HB_MODE_IDLE);
        hand_row(s, 2, 1);
        s->pad_rows = 3;
        s->replay = replay;
        RIG_DERIVE(&g, 5);
        assert_int_equal(g.batch.b.n_tokens, replay ? 4 : 1);
        hb_batch_destroy(&g.batch);
    }
}

static void a_replayed_verify_is_uniform(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = rig_start(&g, HB_MODE_TARGET_VERIFY);
    hand_row(s, 2, 3);
    hand_row(s, 4, 3);
    s->draft = 3;
    s->pad_rows = 2;
    s->replay = 1;
    s->tree = HB_TREE_LINKED_CHAIN;
    hb_case_normalize(&g.c);
    RIG_DERIVE(&g, 5, 6);
    const struct hb_batch *b = &g.batch.b;
    assert_true(b->draft_token_num == 3 && b->n_tokens == 12);
    assert_null(b->ragged_verify_layout.data);
    assert_int_equal(b->retrieve_next_token.len, 12);
    assert_int_equal(b->num_padding, 2);
    hb_batch_destroy(&g.batch);
}

/* --- captures ----------------------------------------------------------------------------------------------------- */

static struct hb_owned_batch capture(int32_t mode, int32_t bs, int32_t nodes, int32_t optional) {
    struct hb_case c;
    struct hb_config config;
    struct hb_owned_batch out;
    hb_case_init(&c);
    struct hb_case_step *s = hand_step(&c, HB_STEP_CAPTURE);
    s->mode = mode;
    s->bs = bs;
    s->nodes = nodes;
    s->optional = optional;
    hb_case_normalize(&c);
    hb_case_backend_config(&c, &config);
    assert_int_equal(hb_materialize_capture(&c, &c.step[0], &config, &out), 0);
    return out;
}

static void a_capture_has_its_sizes_and_nothing_else(void **state) {
    (void)state;
    struct hb_owned_batch o = capture(HB_MODE_DECODE, 5, 3, 0);
    assert_true(o.b.forward_mode == HB_MODE_DECODE && o.b.batch_size == 5 && o.b.n_tokens == 5);
    assert_null(o.b.req_pool_indices.data);
    assert_null(o.b.seq_lens.data);
    assert_null(o.b.retrieve_next_token.data);
    assert_int_equal(o.b.struct_size, sizeof o.b);
    hb_batch_destroy(&o);
}

static void a_captured_verify_has_its_nodes_and_links_when_asked_for(void **state) {
    (void)state;
    struct hb_owned_batch o = capture(HB_MODE_TARGET_VERIFY, 2, 3, 0);
    assert_true(o.b.n_tokens == 6 && o.b.draft_token_num == 3);
    assert_null(o.b.retrieve_next_token.data);
    hb_batch_destroy(&o);
    o = capture(HB_MODE_TARGET_VERIFY, 2, 3, 128);
    assert_int_equal(o.b.retrieve_next_token.len, 6);
    assert_int_equal(o.b.retrieve_next_sibling.len, 6);
    /* their entries are no links of any tree: only whether they are there counts */
    assert_false(o.b.retrieve_next_token.data[0] >= -1 && o.b.retrieve_next_token.data[0] < 3);
    hb_batch_destroy(&o);
    o = capture(HB_MODE_DECODE, 2, 3, 128);
    assert_null(o.b.retrieve_next_token.data);
    hb_batch_destroy(&o);
}

/* --- graph_init, breaks, commits ------------------------------------------------------------------------------- */

static void graph_init_multiplies_rows_and_nodes(void **state) {
    (void)state;
    struct hb_case c;
    int32_t max_bs = 0;
    int32_t max_tokens = 0;
    hb_case_init(&c);
    struct hb_case_step *s = hand_step(&c, HB_STEP_GRAPH_INIT);
    s->bs = 4;
    s->nodes = 3;
    hb_materialize_graph_init(&c, 0, &max_bs, &max_tokens);
    assert_true(max_bs == 4 && max_tokens == 12);
    hand_break(&c, HB_FIELD_GRAPH_MAX_TOKENS, 0, HB_BREAK_ADD, 1);
    hb_materialize_graph_init(&c, 0, &max_bs, &max_tokens);
    assert_true(max_bs == 4 && max_tokens == 13);
    hand_break(&c, HB_FIELD_GRAPH_MAX_BS, 0, HB_BREAK_SET, -1);
    hb_materialize_graph_init(&c, 0, &max_bs, &max_tokens);
    assert_true(max_bs == -1 && max_tokens == 13);
    c.brk[0].step = c.brk[1].step = 1; /* of another step */
    hb_materialize_graph_init(&c, 0, &max_bs, &max_tokens);
    assert_true(max_bs == 4 && max_tokens == 12);
}

static void breaks_reach_the_padding_and_the_mirror(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = rig_start(&g, HB_MODE_DECODE);
    hand_row(s, 2, 1);
    s->pad_rows = 1;
    s->replay = 1;
    s->optional = 32;
    RIG_DERIVE(&g, 5);
    hand_break(&g.c, HB_FIELD_NUM_PADDING, 0, HB_BREAK_SET, INT_MIN);
    hand_break(&g.c, HB_FIELD_SEQ_LENS_CPU, 0, HB_BREAK_ADD, 3);
    assert_int_equal(hb_materialize_breaks(&g.c, 0, &g.batch), 0);
    assert_true(g.batch.b.has_num_padding && g.batch.b.num_padding == INT_MIN);
    ASSERT_ARRAY(g.batch.b.seq_lens_cpu, 9, 1);
    ASSERT_ARRAY(g.batch.b.seq_lens, 6, 1);
    g.c.n_breaks = 0;
    hand_break(&g.c, HB_FIELD_NUM_PADDING, 0, HB_BREAK_ABSENT, 0);
    hand_break(&g.c, HB_FIELD_SEQ_LENS_CPU, 0, HB_BREAK_LENGTH, 3);
    assert_int_equal(hb_materialize_breaks(&g.c, 0, &g.batch), 0);
    assert_false(g.batch.b.has_num_padding);
    ASSERT_ARRAY(g.batch.b.seq_lens_cpu, 9, 1, 0);
    assert_int_equal(hb_batch_remember(&g.batch), 0);
    assert_false(hb_batch_changed(&g.batch));
    g.batch.b.seq_lens_cpu.len--; /* the entry that the break added */
    assert_true(hb_batch_changed(&g.batch));
    g.batch.b.seq_lens_cpu.len++;
    hb_batch_destroy(&g.batch);
}

/* With ping-pong each row has its own destination. */
static void a_commit_takes_the_destinations_of_its_rows(void **state) {
    (void)state;
    const int32_t tracks[] = {9, 8};
    const int32_t own[] = {21, 22, 0};
    struct hb_case c;
    struct hb_owned_commit m;
    hb_case_init(&c);
    struct hb_case_step *s = hand_step(&c, HB_STEP_COMMIT);
    s->n_rows = 3;
    s->row[0].track = s->row[1].track = 1;
    s->row[1].track_slot = 1;
    assert_int_equal(hb_materialize_commit(s, tracks, 2, own, &m), 0);
    ASSERT_ARRAY(m.c.track_indices, 21, 22, -1);
    hb_commit_destroy(&m);
    assert_int_equal(hb_materialize_commit(s, tracks, 2, NULL, &m), 0);
    ASSERT_ARRAY(m.c.track_indices, 9, 8, -1);
    hb_commit_destroy(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mirror_of_the_lengths_is_given_when_asked_for),
        cmocka_unit_test(a_verify_mirrors_the_tokens_before_it),
        cmocka_unit_test(a_replay_says_its_padding_unless_told_not_to),
        cmocka_unit_test(a_replay_has_nonsense_where_it_must_not_read),
        cmocka_unit_test(a_replayed_idle_has_a_token_per_row),
        cmocka_unit_test(a_replayed_verify_is_uniform),
        cmocka_unit_test(a_capture_has_its_sizes_and_nothing_else),
        cmocka_unit_test(a_captured_verify_has_its_nodes_and_links_when_asked_for),
        cmocka_unit_test(graph_init_multiplies_rows_and_nodes),
        cmocka_unit_test(breaks_reach_the_padding_and_the_mirror),
        cmocka_unit_test(a_commit_takes_the_destinations_of_its_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
