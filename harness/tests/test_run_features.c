/* SPDX-License-Identifier: Apache-2.0
 * The executor on graphs, the replay ring, virtual ids, the prefix cache, ping-pong tables, strips
 * and pads: right backends pass, and each check fires on a fault of its own. */
#include "harness/tests/fault_rig.h"
#include "harness/tests/graph_cases.h"

/* --- right backends --------------------------------------------------------------------------- */

static const struct right right[] = {RIGHT(decode_replayed),
                                     RIGHT(replays_by_turns),
                                     RIGHT(replay_tracked),
                                     RIGHT(idle_graph),
                                     RIGHT(verify_graph),
                                     RIGHT(graphs_refused),
                                     RIGHT(layer_in_a_replay),
                                     RIGHT(part_of_the_layers),
                                     RIGHT(ring_decodes),
                                     RIGHT(ring_tracked),
                                     RIGHT(ring_refused),
                                     RIGHT(ring_unfinished),
                                     RIGHT(ring_replayed),
                                     RIGHT(ring_graph_without_a_layer),
                                     RIGHT(virtual_ids),
                                     RIGHT(moved_ring),
                                     RIGHT(moved_before_the_commit),
                                     RIGHT(cannot_move),
                                     RIGHT(published),
                                     RIGHT(published_blank),
                                     RIGHT(freed_twice),
                                     RIGHT(ping_pong_one),
                                     RIGHT(ping_pong_two),
                                     RIGHT(ping_pong_lazy),
                                     RIGHT(ping_pong_commit),
                                     RIGHT(strip),
                                     RIGHT(padded_pool)};
enum { N_RIGHT = sizeof right / sizeof *right };

static void every_history_passes(void **state) {
    (void)state;
    for (size_t i = 0; i < N_RIGHT; i++) {
        for (int k = 0; k < 8; k++) {
            struct hb_case c;
            make(right[i].build, &c);
            c.config.kernel_form = k & 1;
            c.config.act_dtype = k >> 1 & 1;
            c.config.state_dtype = k >> 2 & 1;
            assert_right_on_both(&right[i], &c);
        }
    }
}

/* --- predictions ------------------------------------------------------------------------------ */

static void histories_break_the_rules_that_they_are_about(void **state) {
    (void)state;
    assert_rules(decode_replayed, 0, NULL);
    assert_rules(verify_graph, 0, NULL);
    assert_rules(ring_tracked, 0, NULL);
    assert_rules(ring_replayed, 0, NULL);
    assert_rules(ping_pong_two, 0, NULL);
    assert_rules(moved_before_the_commit, 0, NULL);
    ASSERT_RULES(graphs_refused, HB_RULE_GRAPH_NO_INIT, HB_RULE_GRAPH_TWICE,
                 HB_RULE_GRAPH_MODE_INVALID, HB_RULE_GRAPH_CAPACITY, HB_RULE_GRAPH_NOT_CAPTURED,
                 HB_RULE_GRAPH_TWICE, HB_RULE_GRAPH_MODE, HB_RULE_REQ_TO_TOKEN_NEW);
    ASSERT_RULES(layer_in_a_replay, HB_RULE_NO_METADATA);
    ASSERT_RULES(ring_refused, HB_RULE_RING_PENDING, HB_RULE_COPY_RING);
    ASSERT_RULES(ring_unfinished, HB_RULE_RING_LAYERS);
    ASSERT_RULES(ring_graph_without_a_layer, HB_RULE_RING_LAYERS, HB_RULE_GRAPH_NOT_CAPTURED);
    ASSERT_RULES(virtual_ids, HB_RULE_SLOT_FREED);
    ASSERT_RULES(cannot_move, HB_RULE_MOVE_STATIC);
    ASSERT_RULES(published, HB_RULE_PUBLISH_KIND, HB_RULE_TRACK_ALIAS_SLOT);
    ASSERT_RULES(freed_twice, HB_RULE_OP_SLOT_DUPLICATE, HB_RULE_OP_SLOT_FREED, HB_RULE_SLOT_FREED);
    ASSERT_RULES(strip, HB_RULE_STRIP_TREE);
}

static void one_ring_entry(struct hb_case *c) {
    ring_pending(c);
    c->config.ring_length = 1;
}

/* --- checks ----------------------------------------------------------------------------------- */

/* clang-format off */
static const struct fault faults[] = {
    {46, 0, decode_replayed, "graph.refresh", "DECODE replay graph_state_indices", HB_OFF_STATE},
    {46, 1, decode_replayed, "graph.refresh", "DECODE replay graph_state_indices", HB_OFF_STATE},
    {48, 0, decode_replayed, "graph.capture", "DECODE capture conv", 0},
    {MISCHIEF_INIT, 0, decode_replayed, "graph.init", "graph_init graph_query_start_loc", HB_OFF_STATE},
    {MISCHIEF_OUTPUT, 0, decode_graph, "numeric.mamba2", "EXTEND mamba2.y", HB_OFF_NUMERIC},
    {45, 0, decode_replayed, "numeric.mamba2", "DECODE replay mamba2.y", HB_OFF_NUMERIC},
    {MISCHIEF_REPLAY_NEIGHBOUR, 0, decode_replayed, "state.neighbour", "DECODE replay temporal", HB_OFF_STATE},
    {MISCHIEF_REPLAY_PADDING, 0, decode_replayed, "output.padding", "DECODE replay", HB_OFF_STATE},
    {MISCHIEF_NO_LAUNCH, 0, decode_replayed, "output.padding", "DECODE replay", 0},
    {MISCHIEF_CURSOR, 0, ring_pending, "state.neighbour", "DECODE write_pos", HB_OFF_STATE},
    {MISCHIEF_RECORD, 0, ring_pending, "ring.record", "DECODE ring_x", HB_OFF_STATE},
    {MISCHIEF_RING_NEIGHBOUR, 0, ring_pending, "state.neighbour", "DECODE ring_g", HB_OFF_STATE},
    {MISCHIEF_TEMPORAL_DECODE, 0, ring_pending, "ring.temporal", "DECODE temporal", HB_OFF_STATE},
    {MISCHIEF_TEMPORAL_DECODE, 0, one_ring_entry, "state.temporal", "DECODE mamba2.state", HB_OFF_STATE},
    {MISCHIEF_PAD_BYTE, 0, padded_pool, "state.neighbour", "EXTEND conv_pad", HB_OFF_STATE},
    {MISCHIEF_PUBLISH, 0, published, "slot.publish", "publish slot_kind", 0},
    {MISCHIEF_MOVE, 0, virtual_ids, "slot.move", "move conv", 0},
    {MISCHIEF_MOVE_ID, 0, virtual_ids, "slot.move", "move conv", 0},
    {MISCHIEF_STRIP, 0, strip, "verify.intermediate", "TARGET_VERIFY intermediate_conv", 0},
    {MISCHIEF_STRIP, 1, strip, "verify.intermediate", "TARGET_VERIFY intermediate_conv", 0},
    {MISCHIEF_TABLES, 0, extend, "create.tables", "create slot_kind", 0},
};
/* clang-format on */

static void each_check_fires_on_its_fault_and_not_when_it_is_off(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        (void)assert_noticed(&faults[i]);
    }
}

static void what_a_backend_does_not_declare_is_skipped_with_the_reason(void **state) {
    (void)state;
    struct hb_case c;
    struct mischief m;
    make(ring_pending, &c);
    struct hb_verdict v = run(mischief_init(&m, MISCHIEF_NO_RING, 0), &c, 0, 0);
    assert_int_equal(v.kind, HB_VERDICT_SKIP);
    assert_string_equal(v.check, "feature");
    assert_non_null(strstr(v.text, "lacks feature 1"));
    make(extend, &c);
    v = run(&m.table, &c, 0, 0);
    assert_pass(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_history_passes),
        cmocka_unit_test(histories_break_the_rules_that_they_are_about),
        cmocka_unit_test(each_check_fires_on_its_fault_and_not_when_it_is_off),
        cmocka_unit_test(what_a_backend_does_not_declare_is_skipped_with_the_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
