/* SPDX-License-Identifier: Apache-2.0
 * The relations of calls, slots, graphs, pools and the replay ring, as in test_relations.c: each
 * fires on a backend that breaks it and is silent on the right one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/gen.h"
#include "harness/tests/relation_rig.h"
#include "harness/tests/spec_cases.h"

/* --- cases ------------------------------------------------------------------------------------ */

static void extend(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 10);
}

static struct hb_case_step *decode(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 1, 1);
    return s;
}

static void capture(struct hb_case *c, int32_t mode, int32_t bs) {
    struct hb_case_step *s = hand_step(c, HB_STEP_CAPTURE);
    s->mode = mode;
    s->bs = bs;
    s->nodes = c->config.graph_draft;
}

/* Graphs of 2 and 4 rows. */
static void graphs(struct hb_case *c, int32_t mode) {
    c->config.graph_rows = 4;
    c->config.graph_draft = mode == HB_MODE_TARGET_VERIFY ? 3 : 1;
    struct hb_case_step *s = hand_step(c, HB_STEP_GRAPH_INIT);
    s->bs = 4;
    s->nodes = c->config.graph_draft;
    capture(c, mode, 2);
    capture(c, mode, 4);
}

static void captured_extend(struct hb_case *c) {
    graphs(c, HB_MODE_DECODE);
    capture(c, HB_MODE_EXTEND, 3);
}

static void captured(struct hb_case *c) {
    graphs(c, HB_MODE_DECODE);
    (void)decode(c);
}

/* One live row in the graph of two, then of four. */
static void replayed(struct hb_case *c) {
    graphs(c, HB_MODE_DECODE);
    for (int32_t i = 0; i < 2; i++) {
        struct hb_case_step *s = decode(c);
        s->replay = 1;
        s->pad_rows = i == 0 ? 1 : 3;
    }
}

static void replayed_tracked(struct hb_case *c) {
    replayed(c);
    hand_track(&c->step[c->n_steps - 1].row[0], 0, 0);
}

static void replayed_verify(struct hb_case *c) {
    hand_take(c, 2, 3);
    c->config.max_draft = 3;
    graphs(c, HB_MODE_TARGET_VERIFY);
    struct hb_case_step *s = verify(c, HB_TREE_CHAIN, 3, 3);
    c->config.max_draft = 3;
    s->replay = 1;
    s->pad_rows = 2;
    (void)commit(c, 1, 2);
}

static void draft_extend(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_DRAFT_EXTEND_V2);
    hand_row(s, 1, 1);
}

static void freed_twice(struct hb_case *c) {
    for (int32_t i = 0; i < 2; i++) {
        struct hb_case_step *s = hand_step(c, HB_STEP_FREE);
        s->slot = 0;
        s->slot2 = -1;
    }
}

static void copied(struct hb_case *c) {
    struct hb_case_step *s = hand_step(c, HB_STEP_COPY);
    s->slot = 1;
    s->slot2 = 0;
}

static void three_decodes(struct hb_case *c) {
    for (int32_t i = 0; i < 3; i++) {
        (void)decode(c);
    }
}

static void ring(struct hb_case *c) {
    c->config.ring_length = 2;
    extend(c);
    three_decodes(c);
}

static void ring_pending_copied(struct hb_case *c) {
    c->config.ring_length = 4;
    (void)decode(c);
    copied(c);
}

static void ring_tracked(struct hb_case *c) {
    c->config.ring_length = 4;
    (void)decode(c);
    hand_track(&decode(c)->row[0], 0, 0);
}

static void padded_pool(struct hb_case *c) {
    c->config.pool_pad = 3;
    extend(c);
    (void)decode(c);
}

static void dense_pool(struct hb_case *c) {
    extend(c);
    (void)decode(c);
}

static void strip_chain(struct hb_case *c) {
    c->config.window_layout = HB_WINDOWS_STRIP;
    chain(c);
}

/* --- table ------------------------------------------------------------------------------------ */

#define STATE_OFF HB_OFF_STATE, HB_VERDICT_RELATION
/* clang-format off */
static const struct control controls[] = {
    {2, 0, captured_extend, 0, REFUSAL, "capture other capture want-rule-9", STATUS_IS("INVALID_MODE", "SHAPE")},
    {6, 0, dense_pool, NUMERIC_OFF, "begin.repeat", "output", "relation 6: output of layer 0 position 0 element 0", ""},
    {6, 0, ring, NUMERIC_OFF, "begin.repeat", "output", "relation 6: output of layer 0 position 0 element 0", ""},
    {9, 0, draft_extend, 0, REFUSAL, "layer DRAFT_EXTEND_V2 want-rule-12", "predicted HB_ERR_STATE", "got HB_OK"},
    {18, 0, padded_pool, NUMERIC_OFF, "pool.stride", "output", "relation 18: output of layer 0 position 0 element 0", ""},
    {18, 0, dense_pool, NUMERIC_OFF, "pool.stride", "output", "relation 18: output of layer 0 position 0 element 0", ""},
    {20, 1, extend, 0, HB_VERDICT_STATE, "slot.take", "take temporal", "temporal of layer 0 changed at slot 1", ""},
    {20, 2, freed_twice, 0, REFUSAL, "slot_free free want-rule-154", "predicted HB_ERR_FREED", "got HB_OK"},
    {21, 0, copied, 0, HB_VERDICT_STATE, "slot.copy", "copy conv", "conv of layer 0 changed at slot 1", ""},
    {21, 1, ring_pending_copied, 0, REFUSAL, "slot_copy copy want-rule-159", "predicted HB_ERR_STATE", "got HB_OK"},
    {35, 0, replayed, 0, HB_VERDICT_STATE, "graph.refresh", "DECODE replay graph_query_start_loc", "graph_query_start_loc", ""},
    {45, 0, replayed, NUMERIC_OFF, "graph.eager", "output", "relation 45: output of layer 0 position 5 element 0", ""},
    {45, 0, replayed_tracked, NUMERIC_OFF, "graph.eager", "output", "relation 45: output of layer 0 position 5 element 0", ""},
    {45, 0, replayed_verify, NUMERIC_OFF, "graph.eager", "output", "relation 45: output of layer 0 position 5 element 0", ""},
    {46, 0, replayed, 0, HB_VERDICT_STATE, "graph.refresh", "DECODE replay graph_state_indices", "graph_state_indices", ""},
    {46, 1, replayed, 0, HB_VERDICT_STATE, "graph.refresh", "DECODE replay graph_state_indices", "graph_state_indices", ""},
    {47, 0, replayed, NUMERIC_OFF, "graph.history", "output", "relation 47: output of layer 0 position 5 element 0", ""},
    {47, 1, replayed, NUMERIC_OFF, "graph.history", "output", "relation 47: output of layer 0 position 5 element 0", ""},
    {47, 0, replayed_verify, NUMERIC_OFF, "graph.history", "output", "relation 47: output of layer 0 position 5 element 0", ""},
    {48, 0, captured, 0, HB_VERDICT_STATE, "graph.capture", "DECODE capture conv", "conv of layer 0 changed at slot 1", ""},
    {49, 0, replayed, NUMERIC_OFF, "graph.padding_count", "output", "relation 49: output of layer 0 position 5 element 0", ""},
    {49, 0, replayed_verify, NUMERIC_OFF, "graph.padding_count", "output", "relation 49: output of layer 0 position 5 element 0", ""},
    {59, 0, chain, STATE_OFF, "commit.window_layout", "conv state", "relation 59: conv state of layer 0 position 7 element 0", "allowed 0"},
    {59, 0, strip_chain, STATE_OFF, "commit.window_layout", "conv state", "relation 59: conv state of layer 0 position 7 element 0", "allowed 0"},
    {60, 0, ring, NUMERIC_OFF, "ring.plain", "output", "relation 60: output of layer 0 position 5 element 0", ""},
    {60, 0, three_decodes, NUMERIC_OFF, "ring.plain", "output", "relation 60: output of layer 0 position 5 element 0", ""},
    {61, 0, ring_tracked, 0, HB_VERDICT_STATE, "state.track", "DECODE temporal", "temporal of layer 0 changed at slot 3", ""},
    {61, 1, ring_tracked, 0, HB_VERDICT_STATE, "state.neighbour", "DECODE write_pos", "write_pos", ""},
};
/* clang-format on */
enum { N_CONTROLS = sizeof controls / sizeof *controls };

#define RELATIONS(X)                                                                               \
    X(2) X(6) X(9) X(18) X(20) X(21) X(35) X(45) X(46) X(47) X(48) X(49) X(59) X(60) X(61)
RELATIONS(HB_RELATION_TESTS)

/* --- more ------------------------------------------------------------------------------------- */

/* Nothing can go on after a slot was given out twice. */
static void relation_20_fires_on_a_slot_in_use(void **state) {
    (void)state;
    struct hb_case c;
    struct mischief m;
    struct hb_verdict v;
    hand_init(&c);
    hb_case_normalize(&c);
    assert_int_equal(hb_run_case(mischief_init(&m, 20, 0), &c, NULL, &v, NULL), 0);
    assert_string_equal(v.check, "slot.take");
    assert_part(v.text, "slot_take returned slot 1");
}

/* A live row of one token looks like padding in seq_lens_cpu: nothing is claimed of its count. */
static void a_row_of_one_token_is_not_counted(void **state) {
    (void)state;
    for (int32_t request = 0; request < 2; request++) {
        struct hb_case c;
        hand_init(&c);
        replayed(&c);
        c.n_steps--;
        c.step[c.n_steps - 1].row[0].request = request; /* 0 has no token yet */
        assert_int_equal(says_something(&c, 49), request);
    }
}

/* A strip has no place for trees. */
static void links_keep_the_dense_windows(void **state) {
    (void)state;
    struct hb_case c;
    hand_init(&c);
    forked_tree(&c);
    assert_false(says_something(&c, 59));
}

/* An extend after decodes would find records that are not folded. */
static void a_ring_is_not_put_under_every_history(void **state) {
    (void)state;
    for (int32_t request = 0; request < 2; request++) {
        struct hb_case c;
        hand_init(&c);
        (void)decode(&c);
        struct hb_case_step *s = hand_forward(&c, HB_MODE_EXTEND);
        hand_row(s, request, 3); /* request 1 has decoded */
        assert_int_equal(says_something(&c, 60), request == 0);
    }
}

static void generated_cases_are_silent(void **state) {
    (void)state;
    enum { N = 40 };
    static const struct {
        int32_t number, target;
    } rows[] = {{6, HB_TARGET_FORWARD}, {18, HB_TARGET_FORWARD}, {45, HB_TARGET_GRAPH},
                {47, HB_TARGET_GRAPH},  {49, HB_TARGET_GRAPH},   {59, HB_TARGET_VERIFY},
                {60, HB_TARGET_FORWARD}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct hb_gen_options o;
        struct hb_run_stats stats = {0};
        hb_gen_options_init(&o);
        o.gen_class = HB_GEN_VALID;
        o.relation = rows[k].number;
        o.target = rows[k].target;
        for (uint64_t i = 0; i < N; i++) {
            struct hb_case c;
            struct hb_verdict v;
            hb_gen_case(&o, 45, i, &c);
            assert_int_equal(hb_run_case(hb_adapter_emu(), &c, NULL, &v, &stats), 0);
            assert_string_equal(v.text, "");
        }
        if (stats.second_runs < N / 20) {
            fail_msg("relation %d says nothing: %d", rows[k].number, (int)stats.second_runs);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RELATIONS(HB_RELATION_UNITS) cmocka_unit_test(relation_20_fires_on_a_slot_in_use),
        cmocka_unit_test(a_row_of_one_token_is_not_counted),
        cmocka_unit_test(links_keep_the_dense_windows),
        cmocka_unit_test(a_ring_is_not_put_under_every_history),
        cmocka_unit_test(generated_cases_are_silent),
    };
    return cmocka_run_group_tests_name("relations of graphs and storage", tests, NULL, NULL);
}
