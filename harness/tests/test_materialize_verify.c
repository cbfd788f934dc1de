/* SPDX-License-Identifier: Apache-2.0
 * Drafts and commits from a case: node counts, layout, links by the canonical builder
 * (speculative.md section 3), KV slots, steps and checkpoints, and their breaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "harness/tests/batch_rig.h"
#include "harness/tree.h"

static int64_t req(const struct rig *g, int32_t request) {
    return hb_case_req_index(&g->c, request);
}

/* --- drafts ----------------------------------------------------------------------------------- */

static void a_uniform_verify_has_nodes_and_no_extend_arrays(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = rig_start(&g, HB_MODE_TARGET_VERIFY);
    hand_row(s, 2, 3);
    hand_row(s, 0, 3);
    s->pad_rows = 1;
    RIG_DERIVE(&g, 7, 3);
    const struct hb_batch *b = &g.batch.b;
    assert_true(b->batch_size == 3 && b->original_batch_size == 2 && b->draft_token_num == 3);
    assert_true(b->n_tokens == 9 && g.plan.n_real == 6);
    assert_true(!b->extend_seq_lens.data && !b->has_extend_num_tokens && b->n_extend == 0);
    assert_true(!b->retrieve_next_token.data && !b->retrieve_next_sibling.data);
    assert_null(b->ragged_verify_layout.data);
    ASSERT_ARRAY(b->seq_lens, 7, 3, 1); /* tokens before the verify; 1 fills padding */
    assert_int_equal(b->out_cache_loc.len, 9);
    const int32_t *line = b->req_to_token.data + req(&g, 0) * 128;
    for (int32_t j = 0; j < 3; j++) {
        assert_int_equal(line[3 + j], b->out_cache_loc.data[3 + j]);
    }
    assert_true(line[2] == prefix_slots[2] && line[6] == 0);
    hb_batch_destroy(&g.batch);
}

static void ragged_rows_have_a_layout(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = rig_start(&g, HB_MODE_TARGET_VERIFY);
    hand_row(s, 2, 1);
    hand_row(s, 0, 4);
    s->ragged = 1;
    s->pad_rows = 3;
    s->pad_tokens = 5;
    RIG_DERIVE(&g, 7, 3);
    const struct hb_batch *b = &g.batch.b;
    assert_true(b->draft_token_num == 4 && b->n_tokens == 10 && g.plan.n_real == 5);
    ASSERT_ARRAY(b->ragged_verify_layout, 0, 1, 5, 7, 9, 10); /* 5 over three rows */
    assert_int_equal(b->req_to_token.data[req(&g, 0) * 128 + 3], b->out_cache_loc.data[1]);
    hb_batch_destroy(&g.batch);
}

static void a_linked_chain_names_each_next_node(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = rig_start(&g, HB_MODE_TARGET_VERIFY);
    hand_row(s, 2, 2);
    hand_row(s, 0, 3);
    s->ragged = 1;
    s->tree = HB_TREE_LINKED_CHAIN;
    RIG_DERIVE(&g, 7, 3);
    ASSERT_ARRAY(g.batch.b.retrieve_next_token, 1, -1, -1, 1, 2, -1);
    ASSERT_ARRAY(g.batch.b.retrieve_next_sibling, -1, -1, -1, -1, -1, -1);
    hb_batch_destroy(&g.batch);
}

/* Links of every random tree are valid, and the parent table read from them is the tree. */
static void links_and_trees_agree(void **state) {
    (void)state;
    int n_jumps = 0;
    for (int32_t tree = HB_TREE_RANDOM; tree <= HB_TREE_MAX; tree++) {
        struct rig g;
        struct hb_case_step *s = rig_start(&g, HB_MODE_TARGET_VERIFY);
        hand_row(s, 2, HB_MAX_DRAFT);
        hand_row(s, 0, 5);
        s->ragged = 1;
        s->tree = tree;
        RIG_DERIVE(&g, 7, 3);
        const struct hb_batch *b = &g.batch.b;
        for (int32_t r = 0; r < 2; r++) {
            int32_t want[HB_MAX_DRAFT];
            int32_t got[HB_MAX_DRAFT];
            const int32_t n = s->row[r].length;
            hb_case_tree(&g.c, s, r, n, want);
            assert_int_equal(hb_tree_parents(b->retrieve_next_token.data + r * HB_MAX_DRAFT,
                                             b->retrieve_next_sibling.data + r * HB_MAX_DRAFT, n,
                                             got),
                             0);
            assert_memory_equal(got, want, (size_t)n * sizeof *want);
            for (int32_t t = 1; t < n; t++) {
                assert_true(want[t] >= 0 && want[t] < t);
                n_jumps += want[t] != t - 1;
            }
        }
        hb_batch_destroy(&g.batch);
    }
    assert_true(n_jumps > 500);
}

/* So that a ragged row is the beginning of the uniform one (invariant 58). */
static void the_first_nodes_of_a_tree_do_not_depend_on_their_number(void **state) {
    (void)state;
    struct hb_case c;
    hb_case_init(&c);
    for (int32_t tree = 0; tree <= HB_TREE_MAX; tree++) {
        int32_t all[HB_MAX_DRAFT];
        c.step[0].tree = tree;
        hb_case_tree(&c, &c.step[0], tree % 5, HB_MAX_DRAFT, all);
        for (int32_t n = 1; n < HB_MAX_DRAFT; n++) {
            int32_t some[HB_MAX_DRAFT];
            hb_case_tree(&c, &c.step[0], tree % 5, n, some);
            assert_memory_equal(some, all, (size_t)n * sizeof *all);
        }
    }
}

/* --- the case --------------------------------------------------------------------------------- */

static void normal_form_of_a_verify(void **state) {
    (void)state;
    struct hb_case c;
    hand_init(&c);
    struct hb_case_step *s = hand_forward(&c, HB_MODE_TARGET_VERIFY);
    hand_row(s, 0, 3);
    hand_row(s, 1, 50);
    hand_track(&s->row[0], 1, 0);
    s->pad_rows = 1;
    s->pad_tokens = 4;
    c.config.max_draft = 3;
    hb_case_normalize(&c);
    assert_true(s->row[0].length == HB_MAX_DRAFT && s->row[1].length == HB_MAX_DRAFT);
    assert_true(hb_case_draft(s) == HB_MAX_DRAFT && s->pad_tokens == 0 && !s->row[0].track);
    s->ragged = 1;
    s->draft = 4;
    s->row[0].length = 2;
    s->pad_tokens = 9;
    hb_case_normalize(&c);
    assert_true(s->row[0].length == 2 && s->row[1].length == 4 && s->pad_tokens == 4);
    struct hb_config config;
    hb_case_backend_config(&c, &config);
    assert_true(config.max_draft == 3 && config.spec_rows == 3);
    c.config.spare_rows = 2;
    hb_case_backend_config(&c, &config);
    assert_int_equal(config.spec_rows, 5);
    c.config.spare_rows = 0;
    s->mode = HB_MODE_EXTEND;
    hb_case_normalize(&c);
    assert_true(s->draft == 0 && !s->ragged);
    hb_case_backend_config(&c, &config);
    assert_int_equal(config.spec_rows, 1);
    c.config.max_draft = 0;
    hb_case_backend_config(&c, &config);
    assert_int_equal(config.spec_rows, 0);
}

/* --- commits ---------------------------------------------------------------------------------- */

static const int32_t tracks[] = {13, 14};

static void derive_commit(struct hb_case *c, struct hb_owned_commit *out) {
    hb_case_init(c);
    struct hb_case_step *s = hand_step(c, HB_STEP_COMMIT);
    s->n_rows = 3;
    s->row[0].accept = 2;
    s->row[1].accept = -1;
    s->row[2].accept = 0;
    hand_track(&s->row[1], 1, 0);
    s->row[1].track_accept = 3;
    hb_case_normalize(c);
    assert_int_equal(hb_materialize_commit(s, tracks, 2, NULL, out), 0);
}

static void a_commit_has_steps_and_checkpoints(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_owned_commit m;
    derive_commit(&c, &m);
    assert_true(m.c.n_rows == 3 && m.c.struct_size == sizeof m.c && !m.is_null);
    ASSERT_ARRAY(m.c.step, 2, -1, 0);
    ASSERT_ARRAY(m.c.track_indices, -1, 14, -1);
    ASSERT_ARRAY(m.c.track_steps, -1, 3, -1);
    hb_commit_destroy(&m);
    c.step[0].row[1].track = 0;
    assert_int_equal(hb_materialize_commit(&c.step[0], tracks, 2, NULL, &m), 0);
    assert_true(!m.c.track_indices.data && !m.c.track_steps.data && m.c.step.len == 3);
    hb_commit_destroy(&m);
}

static void breaks_of_a_commit(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_owned_commit m;
    derive_commit(&c, &m);
    hand_break(&c, HB_FIELD_COMMIT_STEP, 1, HB_BREAK_SET, 7);
    hand_break(&c, HB_FIELD_COMMIT_TRACK_INDICES, 0, HB_BREAK_COPY, 1);
    hand_break(&c, HB_FIELD_COMMIT_TRACK_STEPS, 0, HB_BREAK_LENGTH, 4);
    hand_break(&c, HB_FIELD_COMMIT_ROWS, 0, HB_BREAK_ADD, -5);
    assert_int_equal(hb_materialize_commit_breaks(&c, 0, &m), 0);
    ASSERT_ARRAY(m.c.step, 2, 7, 0);
    ASSERT_ARRAY(m.c.track_indices, 14, 14, -1);
    ASSERT_ARRAY(m.c.track_steps, -1, 3, -1, 0);
    assert_true(m.c.n_rows == -2 && !m.is_null);
    c.n_breaks = 0;
    hand_break(&c, HB_FIELD_COMMIT_POINTER, 0, HB_BREAK_ABSENT, 0);
    hand_break(&c, HB_FIELD_COMMIT_STEP, 0, HB_BREAK_ABSENT, 0);
    assert_int_equal(hb_materialize_commit_breaks(&c, 0, &m), 0);
    assert_true(m.is_null && !m.c.step.data);
    hb_commit_destroy(&m);
}

static void breaks_of_drafts(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = rig_start(&g, HB_MODE_TARGET_VERIFY);
    hand_row(s, 2, 2);
    hand_row(s, 0, 3);
    s->ragged = 1;
    s->tree = HB_TREE_LINKED_CHAIN;
    RIG_DERIVE(&g, 7, 3);
    hand_break(&g.c, HB_FIELD_DRAFT_TOKEN_NUM, 0, HB_BREAK_ADD, 2);
    hand_break(&g.c, HB_FIELD_NEXT_TOKEN, 3, HB_BREAK_SET, 9);
    hand_break(&g.c, HB_FIELD_NEXT_SIBLING, 0, HB_BREAK_ABSENT, 0);
    hand_break(&g.c, HB_FIELD_RAGGED_LAYOUT, 2, HB_BREAK_ADD, 1);
    assert_int_equal(hb_materialize_breaks(&g.c, 0, &g.batch), 0);
    const struct hb_batch *b = &g.batch.b;
    assert_int_equal(b->draft_token_num, 5);
    ASSERT_ARRAY(b->retrieve_next_token, 1, -1, -1, 9, 2, -1);
    assert_null(b->retrieve_next_sibling.data);
    ASSERT_ARRAY(b->ragged_verify_layout, 0, 2, 6);
    hb_batch_destroy(&g.batch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_uniform_verify_has_nodes_and_no_extend_arrays),
        cmocka_unit_test(ragged_rows_have_a_layout),
        cmocka_unit_test(a_linked_chain_names_each_next_node),
        cmocka_unit_test(links_and_trees_agree),
        cmocka_unit_test(the_first_nodes_of_a_tree_do_not_depend_on_their_number),
        cmocka_unit_test(normal_form_of_a_verify),
        cmocka_unit_test(a_commit_has_steps_and_checkpoints),
        cmocka_unit_test(breaks_of_a_commit),
        cmocka_unit_test(breaks_of_drafts),
    };
    return cmocka_run_group_tests_name("materialize verify", tests, NULL, NULL);
}
