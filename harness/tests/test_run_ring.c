/* SPDX-License-Identifier: Apache-2.0
 * The executor on a replay ring that commits own: right backends pass, predictions are those of
 * backend/README.md, each check fires on a fault of its own, and relations hold. */
#include "harness/tests/fault_rig.h"
#include "harness/tests/graph_cases.h"

static const struct right right[] = {
    RIGHT(ring_commit), RIGHT(ring_commits), RIGHT(ring_commit_folds), RIGHT(ring_commits_again),
    RIGHT(ring_commit_tracked), RIGHT(ring_commit_refused), RIGHT(ring_commit_unfinished),
    RIGHT(ring_commit_copied), RIGHT(ring_commit_moved), RIGHT(ring_commit_replayed),
};

static void every_history_passes(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        for (int k = 0; k < 12; k++) {
            struct hb_case c;
            make(right[i].build, &c);
            c.config.kernel_form = k & 1;
            c.config.act_dtype = k >> 2;
            c.config.state_layout = k >> 1 & 1;
            assert_right_on_both(&right[i], &c);
        }
    }
}

/* --- predictions ------------------------------------------------------------------------------ */

static void histories_break_the_rules_that_they_are_about(void **state) {
    (void)state;
    assert_rules(ring_commits, 0, NULL);
    assert_rules(ring_commits_again, 0, NULL);
    assert_rules(ring_commit_tracked, 0, NULL);
    assert_rules(ring_commit_moved, 0, NULL);
    assert_rules(ring_commit_replayed, 0, NULL);
    ASSERT_RULES(ring_commit_refused, HB_RULE_RING_TREE, HB_RULE_RING_PENDING, HB_RULE_COPY_RING,
                 HB_RULE_RING_PENDING);
    ASSERT_RULES(ring_commit_unfinished, HB_RULE_RING_LAYERS);
    ASSERT_RULES(ring_commit_copied, HB_RULE_COMMIT_SLOT_STALE);
}

/* --- faults ----------------------------------------------------------------------------------- */

#define FAULT(variant) MISCHIEF_COMMIT_RING, MISCHIEF_RING_##variant
/* clang-format off */
static const struct fault faults[] = {
    {FAULT(POS), ring_commit, "state.neighbour", "commit write_pos", HB_OFF_STATE},
    {FAULT(FLUSH), ring_commit, "state.neighbour", "commit ring_flush", HB_OFF_STATE},
    {FAULT(TEMPORAL), ring_commit, "state.neighbour", "commit temporal", HB_OFF_STATE},
    {FAULT(BASE), ring_commit, "state.neighbour", "TARGET_VERIFY ring_base", HB_OFF_STATE},
    {FAULT(NODE), ring_commit, "ring.record", "TARGET_VERIFY ring_x", HB_OFF_STATE},
    {FAULT(OLD), ring_commits, "state.neighbour", "TARGET_VERIFY ring_x", 0},
    {FAULT(FOLD), ring_commit, "verify.pool", "TARGET_VERIFY temporal", HB_OFF_STATE},
    {FAULT(REFRESH), ring_commit_replayed, "graph.refresh", "TARGET_VERIFY replay graph_ring_base", 0},
    {57, 1, ring_commit_tracked, "state.track", "commit track mamba2.track", 0},
    {57, 0, ring_commit_tracked, "state.track", "commit track conv", 0},
    {MISCHIEF_COMMIT, 0, ring_commit, "state.commit", "commit conv", HB_OFF_STATE},
    {MISCHIEF_OUTPUT, 0, ring_commit, "numeric.mamba2", "TARGET_VERIFY mamba2.y", HB_OFF_NUMERIC},
};
/* clang-format on */

static void each_check_fires_on_its_fault_and_not_when_it_is_off(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        (void)assert_noticed(&faults[i]);
    }
}

/* An element of the first fold is made wrong in the comparison: until then no temporal state is
 * compared. */
static void a_wrong_fold_is_noticed(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_run_options o = {.tamper_element = 0, .tamper_factor = 1.5, .tamper_kind = 2};
    struct hb_verdict v;
    make(ring_commit_folds, &c);
    assert_int_equal(hb_run_case(hb_adapter_emu(), &c, &o, &v, NULL), 0);
    assert_string_equal(v.check, "ring.fold");
    assert_string_equal(v.place, "TARGET_VERIFY mamba2.fold");
    o.check_off = HB_OFF_STATE;
    assert_int_equal(hb_run_case(hb_adapter_emu(), &c, &o, &v, NULL), 0);
    assert_pass(&v);
}

static void what_a_backend_does_not_declare_is_skipped_with_the_reason(void **state) {
    (void)state;
    struct hb_case c;
    struct mischief m;
    make(ring_commit, &c);
    struct hb_verdict v = run(mischief_init(&m, MISCHIEF_NO_RING, 1), &c, 0, 0);
    assert_int_equal(v.kind, HB_VERDICT_SKIP);
    assert_non_null(strstr(v.text, "lacks feature 6"));
}

/* --- relations -------------------------------------------------------------------------------- */

/* Whether the relation says something about the case; it must not fail. */
static int says(const struct hb_case *c, int32_t number) {
    struct hb_case asked = *c;
    struct hb_run_stats stats = {0};
    struct hb_verdict v;
    asked.config.relation = number;
    assert_int_equal(hb_run_case(hb_adapter_emu(), &asked, NULL, &v, &stats), 0);
    assert_pass(&v);
    assert_int_equal(hb_run_case(hb_adapter_oracle(), &asked, NULL, &v, NULL), 0);
    assert_pass(&v);
    return stats.second_runs > 0;
}

static void relations_of_verifies_hold(void **state) {
    (void)state;
    static const int32_t numbers[] = {50, 51, 55, 56, 59, 60};
    struct hb_case c;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        make(ring_commit, &c);
        assert_true(says(&c, numbers[i]));
        make(ring_commit_folds, &c);
        (void)says(&c, numbers[i]);
    }
    make(ring_commits, &c);
    assert_true(says(&c, 55) && says(&c, 60));
    make(ring_commit_replayed, &c);
    assert_true(says(&c, 45) && says(&c, 47) && says(&c, 60));
}

/* Outputs of verifies that are wrong with the ring alone: with numbers off only the relation sees. */
static void relation_60_fires_for_both_ways(void **state) {
    (void)state;
    static void (*const builds[])(struct hb_case *c) = {ring_commit, chain};
    for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
        struct hb_case c;
        struct mischief m;
        make(builds[i], &c);
        c.config.relation = 60;
        const struct hb_adapter *wrong = mischief_init(&m, 60, 0);
        struct hb_verdict v = run(wrong, &c, HB_OFF_NUMERIC, 0);
        assert_int_equal(v.kind, HB_VERDICT_RELATION);
        assert_string_equal(v.check, "ring.plain");
        assert_string_equal(v.place, "output");
        v = run(wrong, &c, HB_OFF_NUMERIC | HB_OFF_RELATION, 0);
        assert_pass(&v);
    }
}

/* A ring is put under chains whose requests do nothing else after a commit. */
static void a_ring_is_put_under_histories_of_verifies(void **state) {
    (void)state;
    for (int32_t request = 0; request < 2; request++) {
        struct hb_case c;
        make(chain, &c);
        assert_true(says(&c, 60));
        struct hb_case_step *s = hand_forward(&c, HB_MODE_EXTEND);
        hand_row(s, request, 3); /* request 1 has committed */
        assert_int_equal(says(&c, 60), request == 0);
    }
    struct hb_case c;
    make(forked_tree, &c);
    assert_false(says(&c, 60));
    make(chain, &c);
    c.config.state_dtype = HB_BF16;
    assert_false(says(&c, 60));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_history_passes),
        cmocka_unit_test(histories_break_the_rules_that_they_are_about),
        cmocka_unit_test(each_check_fires_on_its_fault_and_not_when_it_is_off),
        cmocka_unit_test(a_wrong_fold_is_noticed),
        cmocka_unit_test(what_a_backend_does_not_declare_is_skipped_with_the_reason),
        cmocka_unit_test(relations_of_verifies_hold),
        cmocka_unit_test(relation_60_fires_for_both_ways),
        cmocka_unit_test(a_ring_is_put_under_histories_of_verifies),
    };
    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
