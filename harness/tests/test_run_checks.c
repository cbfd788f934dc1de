/* SPDX-License-Identifier: Apache-2.0
 * The executor's checks: each fires on a fault that is its own and on no other; planted defects are
 * found; small errors of outputs are noticed. */
#include "harness/tests/fault_rig.h"

#include "backend/defects.h"
#include "harness/tests/defect_cases.h"
#include "harness/tests/spec_cases.h"

/* --- checks ----------------------------------------------------------------------------------- */

/* clang-format off */
static const struct told faults[] = {
    {{MISCHIEF_OUTPUT, 0, extend, "numeric.mamba2", "EXTEND mamba2.y", HB_OFF_NUMERIC}, HB_VERDICT_NUMERIC, "step 4 layer 0 row 0 token 0 head 1 element 7"},
    {{MISCHIEF_TEMPORAL, 0, decode, "state.temporal", "DECODE mamba2.state", HB_OFF_STATE}, HB_VERDICT_STATE, "step 4 layer 0 row 0"},
    {{MISCHIEF_CONV, 0, extend, "state.conv", "EXTEND conv", HB_OFF_STATE}, HB_VERDICT_STATE, "conv of layer 0 changed at slot 1 element 0"},
    {{MISCHIEF_FREE_SLOT, 0, extend, "state.neighbour", "EXTEND temporal", HB_OFF_STATE}, HB_VERDICT_STATE, "temporal of layer 0 changed at slot 6 element 0"},
    {{MISCHIEF_PADDING, 0, padded_tokens, "output.padding", "EXTEND", HB_OFF_STATE}, HB_VERDICT_STATE, "output of padding token 29 channel 0 is 1, want 0"},
    {{MISCHIEF_OVERRUN, 0, extend, "guard.output", "EXTEND", 0}, HB_VERDICT_STATE, "guard byte 0 beside the output was written"},
    {{MISCHIEF_REFUSES, 0, extend, "status", "begin EXTEND want-rule-0", HB_OFF_STATUS}, HB_VERDICT_STATUS, "predicted HB_OK"},
    {{MISCHIEF_RULE, 0, refused, "status.text", "begin EXTEND want-rule-87", HB_OFF_STATUS}, HB_VERDICT_STATUS, "got HB_ERR_RANGE (rule 88"},
    {{MISCHIEF_TEXT, 0, refused, "status.text", "begin EXTEND want-rule-87", HB_OFF_STATUS}, HB_VERDICT_STATUS, "prefix + extend of row 1 is 24"},
    {{MISCHIEF_TAKE, 0, extend, "slot.take", "take", 0}, HB_VERDICT_STATE, "slot_take returned slot 1, the first that is free is 2"},
    {{MISCHIEF_DIRTY, 0, extend, "slot.take", "take temporal", 0}, HB_VERDICT_STATE, "temporal of layer 0 changed at slot 1 element 1"},
    {{MISCHIEF_COPY, 0, copy_slot, "slot.copy", "copy conv", 0}, HB_VERDICT_STATE, "step 5: conv of layer 0 changed at slot 1 element 2"},
    {{MISCHIEF_COPY, 0, restart, "slot.copy", "restart conv", 0}, HB_VERDICT_STATE, "step 5: conv of layer 0 changed at slot 5 element 2"},
    {{MISCHIEF_FREE, 0, free_slot, "slot.free", "free conv", HB_OFF_STATE}, HB_VERDICT_STATE, "step 5: conv of layer 0 changed at slot 1 element 1"},
    {{MISCHIEF_NO_DESCRIBE, 0, extend, "describe", "describe", 0}, HB_VERDICT_SKIP, "no device here"},
    {{MISCHIEF_NO_BUFFER, 0, extend, "buffer", "EXTEND", 0}, HB_VERDICT_DEVICE, "cannot get a buffer of"},
    {{MISCHIEF_NO_OUTPUT, 0, extend, "buffer", "EXTEND", 0}, HB_VERDICT_DEVICE, "cannot read the output: copy failed"},
    {{MISCHIEF_NO_READ, 0, extend, "region_read", NULL, 0}, HB_VERDICT_DEVICE, "cannot read region"},
    {{MISCHIEF_NO_WRITE, 0, extend, "region_write", "take", 0}, HB_VERDICT_STATUS, "step 1: region_write failed: copy failed"},
    {{MISCHIEF_NO_START, 0, extend, "regions", NULL, 0}, HB_VERDICT_DEVICE, "before the first step"},
};
/* clang-format on */

static void each_check_fires_on_its_fault_and_not_when_it_is_off(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct hb_case c;
        assert_told(&faults[i]);
        make(faults[i].fault.build, &c);
        const struct hb_verdict v = run(hb_adapter_emu(), &c, 0, 0);
        assert_pass(&v);
    }
}

static void only_statuses_are_compared_when_nothing_else_is_asked_for(void **state) {
    (void)state;
    struct hb_case c;
    struct mischief m;
    struct hb_verdict v;
    const struct hb_run_options o = {.tamper_element = -1, .status_only = 1};
    make(extend_and_decode, &c);
    assert_int_equal(hb_run_case(mischief_init(&m, MISCHIEF_OUTPUT, 0), &c, &o, &v, NULL), 0);
    assert_pass(&v);
    assert_int_equal(hb_run_case(mischief_init(&m, MISCHIEF_REFUSES, 0), &c, &o, &v, NULL), 0);
    assert_string_equal(v.check, "status");
    assert_int_equal(hb_run_case(mischief_init(&m, MISCHIEF_FREE_SLOT, 0), &c, &o, &v, NULL), 0);
    assert_string_equal(v.check, "state.neighbour");
}

/* The same fault at another size or value is the same finding. */
static void a_fingerprint_names_check_and_place_not_sizes(void **state) {
    (void)state;
    struct hb_case a, b;
    struct mischief m;
    make(extend, &a);
    make(extend, &b);
    b.config.heads = 4;
    b.config.seed = 77;
    b.step[4].row[1].length = 3;
    struct hb_verdict v = run(mischief_init(&m, MISCHIEF_OUTPUT, 0), &a, 0, 0);
    struct hb_verdict w = run(&m.table, &b, 0, 0);
    assert_int_equal(v.kind, HB_VERDICT_NUMERIC);
    assert_string_equal(v.fingerprint, w.fingerprint);
    w = run(mischief_init(&m, MISCHIEF_CONV, 0), &a, 0, 0);
    assert_string_not_equal(v.fingerprint, w.fingerprint);
}

/* --- planted defects -------------------------------------------------------------------------- */

struct planted {
    int32_t defect, off; /* off: detectors; with them off nothing is noticed */
    void (*build)(struct hb_case *c);
    const char *check;
};
/* clang-format off */
static const struct planted planted[] = {
    {HB_DEFECT_INIT_STATE_MASK, HB_OFF_NUMERIC | HB_OFF_STATE, one_row_tracked, "numeric.mamba2"},
    {HB_DEFECT_CHUNK_OFF_BY_ONE, HB_OFF_NUMERIC, fast_form, "numeric.mamba2"},
    {HB_DEFECT_CONV_SHORT_PROMPT, HB_OFF_STATE, short_prompt, "state.conv"},
    {HB_DEFECT_PAD_ROW_WRITTEN, HB_OFF_STATE, padded_decode, "state.neighbour"},
    {HB_DEFECT_TRACK_POSITION, HB_OFF_STATE, tracked_late, "state.track"},
    {HB_DEFECT_GROUP_MODULO, HB_OFF_NUMERIC, two_groups, "numeric.mamba2"},
    {HB_DEFECT_MISSING_BARRIER, HB_OFF_NUMERIC, fast_form_backwards, "numeric.mamba2"},
    {HB_DEFECT_MISSING_BARRIER, HB_OFF_ORDER, fast_form_backwards, "numeric.mamba2"},
    {HB_DEFECT_UNINIT_SHARED, HB_OFF_NUMERIC, fast_form, "numeric.mamba2"},
    {HB_DEFECT_NEIGHBOUR_SLOT, HB_OFF_STATE, one_decode, "state.neighbour"},
    {HB_DEFECT_IMPURE_ERROR, HB_OFF_PURITY, refused, "error.purity"},
    {HB_DEFECT_VERIFY_SHAPE, HB_OFF_STATE, chain, "state.commit"},
    {HB_DEFECT_VERIFY_SIBLING, HB_OFF_NUMERIC | HB_OFF_STATE, forked_tree, "numeric.mamba2"},
    {HB_DEFECT_SCATTER_WRAP, HB_OFF_STATE, committed_in_part, "state.neighbour"},
    {HB_DEFECT_VERIFY_CONV_STORED, HB_OFF_STATE, chain, "verify.pool"},
    {HB_DEFECT_PAD_COUNT_MIDDLE, HB_OFF_STATUS | HB_OFF_PURITY, one_in_the_middle, "status"},
    {HB_DEFECT_PAD_CLAMPED, HB_OFF_STATE, decode_replayed, "graph.refresh"},
    {HB_DEFECT_GRAPH_TRACK_TAIL, HB_OFF_STATE, small_graph_tracked, "state.track"},
    {HB_DEFECT_GRAPH_WARMUP_LISTS, HB_OFF_STATE, small_graph_tracked, "state.track"},
    {HB_DEFECT_GRAPH_STALE_ROWS, HB_OFF_STATE, smaller_tree_replayed, "graph.refresh"},
    {HB_DEFECT_ACCEPT_MINUS_ONE, HB_OFF_STATE, root_committed, "state.commit"},
    {HB_DEFECT_VERIFY_BY_SHAPE, HB_OFF_STATE, one_node_each, "verify.pool"},
    {HB_DEFECT_FREED_SLOT_COMMIT, HB_OFF_STATUS | HB_OFF_PURITY, freed_before_the_commit, "status"},
    {HB_DEFECT_TRACK_VIRTUAL, HB_OFF_STATE, tracked_after_a_move, "state.track"},
    {HB_DEFECT_MIXED_DROPS_TRACK, HB_OFF_STATE, mixed_tracked, "state.track"},
    {HB_DEFECT_H_INDEX_OFFSET, HB_OFF_STATE, tracked_off_the_grid, "state.track"},
    {HB_DEFECT_PAGE_CHUNK, HB_OFF_STATE, large_pages_tracked, "state.track"},
    {HB_DEFECT_LATER_SIBLING, HB_OFF_NUMERIC | HB_OFF_STATE, three_siblings, "numeric.mamba2"},
    {HB_DEFECT_RING_NO_FORCE, HB_OFF_NUMERIC | HB_OFF_STATE, ring_tracked, "state.temporal"},
    {HB_DEFECT_DRAFTLESS, HB_OFF_STATE, no_drafts_after_drafts, "state.commit"},
    {HB_DEFECT_MOVE_STALE, HB_OFF_NUMERIC | HB_OFF_STATE, moved_before_the_commit, "state.commit"},
};
/* clang-format on */

static void each_planted_defect_is_found_by_its_detector_alone(void **state) {
    (void)state;
    struct hb_caps caps = {.struct_size = sizeof caps};
    assert_int_equal(hb_adapter_emu()->describe(hb_adapter_emu()->ctx, &caps, NULL), HB_OK);
    if (!caps.has_defects) {
        skip();
    }
    uint64_t seen = 0;
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        struct hb_case c;
        make(planted[i].build, &c);
        struct hb_verdict v = run(hb_adapter_emu(), &c, 0, planted[i].defect);
        if (strcmp(v.check, planted[i].check) != 0) {
            fail_msg("defect %d: %s instead of %s: %s", planted[i].defect, v.check, planted[i].check, v.text);
        }
        v = run(hb_adapter_emu(), &c, planted[i].off, planted[i].defect);
        if (v.kind != HB_VERDICT_PASS) {
            fail_msg("defect %d with its detector off: %s: %s", planted[i].defect, v.check, v.text);
        }
        v = run(hb_adapter_emu(), &c, 0, HB_DEFECT_NONE);
        assert_pass(&v);
        seen |= UINT64_C(1) << planted[i].defect;
    }
    /* the later ones are of other kinds of layers: test_run_kinds.c */
#define DEFECT_BIT(number, name, what, detector)                                                   \
    assert_true((number) > HB_DEFECT_MOVE_STALE || seen >> ((number)&63) & 1);
    HB_DEFECTS_TABLE(DEFECT_BIT)
#undef DEFECT_BIT
}

/* --- small errors ----------------------------------------------------------------------------- */

/* The case's values without their signs, but for A and the time steps: no sum cancels, so magnitude
 * and value agree. */
static void fill_without_cancellation(void *ctx, const struct hb_case *c,
                                      const struct hb_value_key *key, int32_t n, float *out) {
    (void)ctx;
    hb_values_fill(c, key, n, out);
    int signs = key->tensor == HB_TENSOR_A || key->tensor == HB_TENSOR_DT ||
                key->tensor == HB_TENSOR_DT_BIAS;
    for (int32_t i = 0; i < n && !signs; i++) {
        out[i] = fabsf(out[i]);
    }
}

static const struct hb_value_source no_cancellation = {NULL, fill_without_cancellation};

/* Share of the compared elements at which a factor of 1 + error on one of them is noticed (fp32).
 */
static double share_noticed(int32_t form, int32_t kind, const struct hb_value_source *values,
                            double error) {
    struct hb_case c;
    struct hb_verdict v;
    struct hb_run_stats s = {0};
    struct hb_run_options o = {.tamper_element = -1, .values = values};
    hand_init(&c);
    c.config.kernel_form = form;
    extend_and_decode(&c);
    hb_case_normalize(&c);
    assert_int_equal(hb_run_case(hb_adapter_emu(), &c, &o, &v, &s), 0);
    assert_pass(&v);
    int64_t n = kind == 2 ? (int64_t)s.elements[HB_OP_MAMBA2_STATE][form][HB_FP32]
                          : (int64_t)(s.elements[HB_OP_MAMBA2_OUT][form][HB_FP32] +
                                      s.elements[HB_OP_ATTENTION][form][HB_FP32]);
    assert_true(n > 100);
    int64_t noticed = 0;
    for (int64_t i = 0; i < n; i++) {
        o.tamper_element = i;
        o.tamper_factor = 1.0 + error;
        o.tamper_kind = kind;
        assert_int_equal(hb_run_case(hb_adapter_emu(), &c, &o, &v, NULL), 0);
        noticed += v.kind == (kind == 2 ? HB_VERDICT_STATE : HB_VERDICT_NUMERIC);
    }
    print_message("form %d, %s, %s, error 2^%d: noticed in %.2f %% of %lld positions\n", form,
                  kind ? "temporal state" : "outputs",
                  values ? "no cancellation" : "ordinary values", ilogb(error),
                  100.0 * (double)noticed / (double)n, (long long)n);
    return (double)noticed / (double)n;
}

/* contracts.md section 6. An error is noticed where the bound is smaller. The bound of a mixer is
 * 60 to 250 u times the sum of absolute terms, and on values of either sign that sum exceeds the
 * value tenfold in one element of ten: there 2^-16 of the value is within what rounding may do, and
 * the share of 95 % is reached with 2^-12. */
static void a_small_error_is_noticed_in_nearly_all_positions(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        for (int32_t kind = 0; kind < 3; kind += 2) {
            assert_true(share_noticed(form, kind, &no_cancellation, 0x1p-16) >= 0.95);
            assert_true(share_noticed(form, kind, NULL, 0x1p-12) >= 0.95);
        }
    }
}

static void any_difference_of_a_conv_state_is_noticed(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_verdict v;
    make(extend, &c);
    for (int64_t i = 0; i < 192;
         i += 7) { /* 2 rows, 2 layers, 24 channels of 3 inputs: 288 elements */
        const struct hb_run_options o = {
            .tamper_element = i, .tamper_factor = 1.0, .tamper_kind = 1};
        assert_int_equal(hb_run_case(hb_adapter_emu(), &c, &o, &v, NULL), 0);
        assert_string_equal(v.check, "state.conv");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_check_fires_on_its_fault_and_not_when_it_is_off),
        cmocka_unit_test(only_statuses_are_compared_when_nothing_else_is_asked_for),
        cmocka_unit_test(a_fingerprint_names_check_and_place_not_sizes),
        cmocka_unit_test(each_planted_defect_is_found_by_its_detector_alone),
        cmocka_unit_test(a_small_error_is_noticed_in_nearly_all_positions),
        cmocka_unit_test(any_difference_of_a_conv_state_is_noticed),
    };
    return cmocka_run_group_tests_name("run_checks", tests, NULL, NULL);
}
