/* SPDX-License-Identifier: Apache-2.0
 * The executor on draft verification: right backends pass, each check of a verify and of a commit
 * fires on a fault of its own, and what a commit stands on is the last finished verify. */
#include "harness/tests/fault_rig.h"
#include "harness/tests/spec_cases.h"

/* --- cases ------------------------------------------------------------------------------------ */

static void chain_and_decode(struct hb_case *c) {
    chain(c);
    decode_both(c);
}

static void trees_and_extend(struct hb_case *c) {
    hand_take(c, 2, 3);
    for (int32_t i = 0; i < 3; i++) {
        verify(c, HB_TREE_RANDOM + i, 5, i == 1 ? 3 : 5)->pad_rows = i;
        (void)commit(c, 4 - i, i);
    }
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 1, 10);
}

static void padded_ragged(struct hb_case *c) {
    hand_take(c, 2, 3);
    struct hb_case_step *s = verify(c, HB_TREE_LINKED_CHAIN, 2, 4);
    s->draft = 5;
    s->pad_rows = 2;
    s->pad_tokens = 7;
    s->optional = 8;
    c->config.unread = HB_UNREAD_NAN;
    (void)commit(c, 1, 3);
    decode_both(c);
}

static void tracked_and_restarted(struct hb_case *c) {
    chain(c);
    struct hb_case_row *row = &c->step[c->n_steps - 1].row[0];
    hand_track(row, 0, 0);
    row->track_accept = 2;
    hand_take(c, 3, 0);
    c->step[c->n_steps - 1].from = 0;
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 3, 4);
    hand_row(s, 1, 2);
}

static void twice_and_less(struct hb_case *c) {
    chain(c);
    (void)commit(c, 2, -1);
    commit(c, 0, 1)->n_rows = 1;
    (void)commit(c, -1, -1);
    decode_both(c);
}

static void layers_left_out(struct hb_case *c) {
    chain(c);
    c->step[c->n_steps - 2].layer_mask = 1;
    decode_both(c);
}

/* Everything of a verify that nobody commits is gone with the next forward. */
static void dropped(struct hb_case *c) {
    hand_take(c, 2, 3);
    (void)verify(c, HB_TREE_RANDOM, 4, 4);
    decode_both(c);
    (void)verify(c, HB_TREE_RANDOM, 4, 4);
    decode_both(c);
    (void)commit(c, 0, 0); /* refused */
}

/* The slot of row 0 is given back and taken by another request before the commit. */
static void slot_changes_hands(struct hb_case *c) {
    hand_take(c, 2, 3);
    c->config.spare_slots = 0;
    (void)verify(c, HB_TREE_CHAIN, 3, 3);
    struct hb_case_step *s = hand_step(c, HB_STEP_FREE);
    s->slot = 1;
    (void)commit(c, -1, 2); /* its slot is free: only the other row can move */
    hand_take(c, 4, 0);
    (void)commit(c, 1, 2);
    s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 4, 1);
    hand_row(s, 2, 1);
}

static void freed_slot(struct hb_case *c) {
    chain(c);
    struct hb_case_step *s = hand_step(c, HB_STEP_FREE);
    s->slot = 4;
    (void)commit(c, 1, 2);
}

static void draft_extend(struct hb_case *c) {
    hand_take(c, 2, 3);
    (void)verify(c, HB_TREE_CHAIN, 3, 3);
    struct hb_case_step *s = hand_forward(c, HB_MODE_DRAFT_EXTEND_V2);
    hand_row(s, 1, 2);
    (void)commit(c, 1, 2); /* refused: the begin has ended the verify */
    decode_both(c);
}

static void wrapper_entry(struct hb_case *c) {
    hand_take(c, 2, 3);
    struct hb_case_step *s = verify(c, HB_TREE_RANDOM, 4, 4);
    s->kind = HB_STEP_ENTRY;
    s->target = HB_ENTRY_WRAPPER;
    s->layer = 2;
    (void)commit(c, 1, 2);
}

static void no_speculation(struct hb_case *c) {
    chain(c);
    c->config.max_draft = 0;
}

static const struct right right[] = {
    RIGHT(chain), RIGHT(chain_and_decode), RIGHT(trees_and_extend), RIGHT(padded_ragged),
    RIGHT(tracked_and_restarted), RIGHT(twice_and_less), RIGHT(layers_left_out), RIGHT(dropped),
    RIGHT(slot_changes_hands), RIGHT(freed_slot), RIGHT(draft_extend), RIGHT(wrapper_entry),
    RIGHT(no_speculation),
};
enum { N_RIGHT = sizeof right / sizeof *right };

/* --- right backends --------------------------------------------------------------------------- */

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

static void a_commit_stands_on_the_last_finished_verify(void **state) {
    (void)state;
    struct calls k = predicted(twice_and_less, "commit");
    assert_int_equal(k.n, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(k.rule[i], HB_RULE_NONE);
    }
    k = predicted(dropped, "commit");
    assert_true(k.n == 1 && k.rule[0] == HB_RULE_NO_VERIFY);
    k = predicted(slot_changes_hands, "commit");
    assert_true(k.n == 2 && k.rule[0] == HB_RULE_NONE && k.rule[1] == HB_RULE_COMMIT_SLOT_STALE);
    k = predicted(freed_slot, "commit");
    assert_true(k.n == 2 && k.rule[0] == HB_RULE_NONE && k.rule[1] == HB_RULE_COMMIT_SLOT_FREED);
}

static void without_caches_a_verify_is_refused(void **state) {
    (void)state;
    struct calls k = predicted(no_speculation, "commit");
    assert_int_equal(k.n, 2);
    assert_string_equal(k.name[0], "begin");
    assert_string_equal(k.name[1], "commit");
    assert_int_equal(k.rule[1], HB_RULE_NO_VERIFY);
}

/* Layers, finish and commit after a begin that leaves no metadata. */
static void draft_extend_leaves_no_metadata(void **state) {
    (void)state;
    struct calls k = predicted(draft_extend, "commit");
    assert_int_equal(k.n, 5);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(k.name[i], i < 3 ? "layer" : "finish");
        assert_int_equal(k.rule[i], HB_RULE_NO_METADATA);
    }
    assert_int_equal(k.rule[4], HB_RULE_NO_VERIFY);
}

/* A refused begin between verify and commit changes nothing. */
static void a_refused_begin_keeps_the_verify(void **state) {
    (void)state;
    struct hb_case c;
    make(tracked_and_restarted, &c);
    c.config.relation = 8;
    struct hb_run_stats stats = {0};
    struct hb_verdict v;
    assert_int_equal(hb_run_case(hb_adapter_emu(), &c, NULL, &v, &stats), 0);
    assert_pass(&v);
    assert_int_equal(stats.rule_broken[HB_RULE_MODE_INVALID], 3); /* two forwards and a commit */
}

/* --- faults ----------------------------------------------------------------------------------- */

/* clang-format off */
static const struct told faults[] = {
    {{MISCHIEF_OUTPUT, 0, chain, "numeric.mamba2", "TARGET_VERIFY mamba2.y", HB_OFF_NUMERIC}, HB_VERDICT_NUMERIC, "step 5 layer 0 row 0 token 0 head 1 element 7"},
    {{MISCHIEF_COMMIT, 0, chain, "state.commit", "commit conv", HB_OFF_STATE}, HB_VERDICT_STATE, "step 6: conv of layer 0 changed at slot 2 element 0"},
    {{MISCHIEF_FREE_SLOT, 0, chain, "verify.pool", "TARGET_VERIFY temporal", HB_OFF_STATE}, HB_VERDICT_STATE, "temporal of layer 0 changed at slot 7 element 0"},
    {{MISCHIEF_PADDING, 0, padded_ragged, "output.padding", "TARGET_VERIFY", HB_OFF_STATE}, HB_VERDICT_STATE, "output of padding token 6 channel 0 is 1, want 0"},
    {{4, 0, dropped, "error.purity", "commit conv", HB_OFF_PURITY}, HB_VERDICT_PURITY, "conv of layer 0 changed at slot 0 element 0"},
    {{7, 1, chain, "batch.written", "commit", 0}, HB_VERDICT_PURITY, "commit wrote into its arguments"},
    {{19, 0, freed_slot, "status", "commit commit want-rule-112", HB_OFF_STATUS}, HB_VERDICT_STATUS, "predicted HB_ERR_FREED"},
};
/* clang-format on */

static void each_check_fires_on_its_fault_and_not_when_it_is_off(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        assert_told(&faults[i]);
    }
}

/* One element of a window, of a state and of an output, made wrong in the comparison itself. */
static void small_errors_of_nodes_are_noticed(void **state) {
    (void)state;
    static const char *const checks[] = {"numeric.mamba2", "verify.intermediate",
                                         "verify.intermediate"};
    struct hb_case c;
    make(chain, &c);
    c.config.value_class = HB_VALUES_ONE_SIGN;
    c.config.gate_norm = HB_GATE_NORM_NONE;
    for (int32_t kind = 0; kind < 3; kind++) {
        const struct hb_run_options o = {
            .tamper_element = 7, .tamper_factor = 1.0 + 0x1p-10, .tamper_kind = kind};
        struct hb_verdict v;
        assert_int_equal(hb_run_case(hb_adapter_emu(), &c, &o, &v, NULL), 0);
        assert_string_equal(v.text[0] ? v.check : "nothing was noticed", checks[kind]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_history_passes),
        cmocka_unit_test(a_commit_stands_on_the_last_finished_verify),
        cmocka_unit_test(without_caches_a_verify_is_refused),
        cmocka_unit_test(draft_extend_leaves_no_metadata),
        cmocka_unit_test(a_refused_begin_keeps_the_verify),
        cmocka_unit_test(each_check_fires_on_its_fault_and_not_when_it_is_off),
        cmocka_unit_test(small_errors_of_nodes_are_noticed),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
