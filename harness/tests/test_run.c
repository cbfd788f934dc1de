/* SPDX-License-Identifier: Apache-2.0
 * The executor: each of its checks fires on a fault that is its own and on no other; planted defects are found; small
 * errors of outputs are noticed; predicted statuses have their texts; other right backends and generated cases pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "backend/defects.h"
#include "harness/gen.h"
#include "harness/run.h"
#include "harness/tests/hand_case.h"
#include "harness/tests/mischief.h"

/* --- cases ------------------------------------------------------------------------------------------------------ */

static void extend(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 10);
    hand_row(s, 1, 19);
}

static void decode(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 0, 1);
    hand_row(s, 1, 1);
}

static void one_decode(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 0, 1); /* slot 1: the neighbour is slot 0 */
}

static void extend_and_decode(struct hb_case *c) {
    extend(c);
    decode(c);
}

static void padded_decode(struct hb_case *c) {
    extend(c);
    decode(c);
    c->step[c->n_steps - 1].pad_rows = 2;
}

static void padded_tokens(struct hb_case *c) {
    extend(c);
    c->step[c->n_steps - 1].pad_tokens = 3;
}

/* Row 0 tracked, row 1 continues from a state without being tracked. */
static void one_row_tracked(struct hb_case *c) {
    extend(c);
    hand_track(&c->step[c->n_steps - 1].row[0], 0, 0);
}

static void tracked_late(struct hb_case *c) {
    extend(c);
    hand_track(&c->step[c->n_steps - 1].row[1], 0, 0);
}

static void short_prompt(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 1, 1);
}

static void two_groups(struct hb_case *c) {
    c->config.heads = 4;
    c->config.groups = 2;
    extend(c);
}

static void fast_form(struct hb_case *c) {
    c->config.kernel_form = HB_FORM_FAST;
    extend(c);
}

static void fast_form_backwards(struct hb_case *c) {
    fast_form(c);
    c->config.thread_order = HB_ORDER_DESCENDING;
}

static void refused(struct hb_case *c) {
    extend(c);
    hand_break(c, HB_FIELD_SEQ_LENS, 1, HB_BREAK_ADD, 1);
}

static void copy_slot(struct hb_case *c) {
    extend(c);
    struct hb_case_step *s = hand_step(c, HB_STEP_COPY);
    s->slot = 1;
    s->slot2 = 0;
    decode(c);
}

static void free_slot(struct hb_case *c) {
    extend(c);
    struct hb_case_step *s = hand_step(c, HB_STEP_FREE);
    s->slot = 0;
    hand_take(c, 2, 0);
}

static void idle(struct hb_case *c) {
    extend(c);
    struct hb_case_step *s = hand_forward(c, HB_MODE_IDLE);
    hand_row(s, 0, 1);
}

static void mixed(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_MIXED);
    hand_row(s, 0, 10);
    hand_row(s, 1, 1);
    s->n_decode = 1;
    s->pad_rows = 1;
    s->pad_tokens = 2;
    s->optional = 15;
    decode(c);
}

static void restart(struct hb_case *c) {
    tracked_late(c);
    hand_take(c, 2, 0);
    c->step[c->n_steps - 1].from = 0;
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 2, 5);
    s = hand_forward(c, HB_MODE_DECODE);
    hand_track(hand_row(s, 1, 1), 1, 0);
    hand_row(s, 2, 1);
}

static void free_track_slot(struct hb_case *c) {
    tracked_late(c);
    struct hb_case_step *s = hand_step(c, HB_STEP_FREE);
    s->slot = 2;
    hand_take(c, 2, 0);
    c->step[c->n_steps - 1].from = 0;
    s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 2, 3);
}

/* The freed track slot is the only free one: the new slot would be a copy of itself. */
static void restart_from_itself(struct hb_case *c) {
    c->config.spare_slots = 0;
    free_track_slot(c);
}

static void wrapper_entries(struct hb_case *c) {
    for (int32_t layer = 0; layer < 4; layer++) { /* Mamba2, Mamba2, attention, none */
        struct hb_case_step *s = hand_step(c, HB_STEP_ENTRY);
        s->mode = HB_MODE_EXTEND;
        s->n_rows = 0;
        hand_row(s, 1, 2);
        s->target = HB_ENTRY_WRAPPER;
        s->direction = layer & 1;
        s->layer = layer;
    }
    decode(c);
}

static void table_named_twice(struct hb_case *c) {
    extend(c);
    hand_break(c, HB_FIELD_TABLE, 1, HB_BREAK_SET, 99);
    hand_break(c, HB_FIELD_TABLE, 1, HB_BREAK_SET, 77);
    extend(c);
}

static void odd_takes(struct hb_case *c) {
    static const int64_t counts[] = {0, -1, 3, 100};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        hand_take(c, (int32_t)i + 2, 0);
        hand_break(c, HB_FIELD_SLOT_COUNT, 0, HB_BREAK_SET, counts[i]);
    }
    extend(c);
}

static void odd_layer(struct hb_case *c) {
    extend(c);
    hand_break(c, HB_FIELD_LAYER_ID, 0, HB_BREAK_SET, 1);
    hand_break(c, HB_FIELD_LAYER_ID, 0, HB_BREAK_SET, -1);
    hand_break(c, HB_FIELD_IO_BYTES, 1, HB_BREAK_ADD, -4);
}

static void absent_buffer(struct hb_case *c) {
    extend(c);
    hand_break(c, HB_FIELD_IO_POINTER, 3, HB_BREAK_ABSENT, 0);
    extend(c);
}

static void null_batch(struct hb_case *c) {
    extend(c);
    hand_break(c, HB_FIELD_BATCH_POINTER, 0, HB_BREAK_ABSENT, 0);
    decode(c);
}

static void bad_config(struct hb_case *c) {
    extend(c);
    hand_break(c, HB_FIELD_CFG_CHUNK_SIZE, 0, HB_BREAK_SET, 7);
}

static void make(void (*build)(struct hb_case *c), struct hb_case *c) {
    hand_init(c);
    build(c);
    hb_case_normalize(c);
}

static struct hb_verdict run(const struct hb_adapter *backend, const struct hb_case *c, int32_t check_off,
                             int32_t defect) {
    const struct hb_run_options o = {
        .tamper_element = -1, .check_off = check_off, .defect = defect};
    struct hb_verdict v;
    assert_int_equal(hb_run_case(backend, c, &o, &v, NULL), 0);
    return v;
}

static void assert_pass(const struct hb_verdict *v) {
    assert_string_equal(v->text, "");
    assert_int_equal(v->kind, HB_VERDICT_PASS);
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

struct fault {
    int32_t number;
    void (*build)(struct hb_case *c);
    int32_t kind;
    const char *check, *place, *text;
    int32_t off; /* with these off nothing is noticed; 0: the run cannot go on */
};
/* clang-format off */
static const struct fault faults[] = {
    {MISCHIEF_OUTPUT, extend, HB_VERDICT_NUMERIC, "numeric.mamba2", "EXTEND mamba2.y", "step 4 layer 0 row 0 token 0 head 1 element 7", HB_OFF_NUMERIC},
    {MISCHIEF_TEMPORAL, decode, HB_VERDICT_STATE, "state.temporal", "DECODE mamba2.state", "step 4 layer 0 row 0", HB_OFF_STATE},
    {MISCHIEF_CONV, extend, HB_VERDICT_STATE, "state.conv", "EXTEND conv", "conv of layer 0 changed at slot 1 element 0", HB_OFF_STATE},
    {MISCHIEF_FREE_SLOT, extend, HB_VERDICT_STATE, "state.neighbour", "EXTEND temporal", "temporal of layer 0 changed at slot 6 element 0", HB_OFF_STATE},
    {MISCHIEF_PADDING, padded_tokens, HB_VERDICT_STATE, "output.padding", "EXTEND", "output of padding token 29 channel 0 is 1, want 0", HB_OFF_STATE},
    {MISCHIEF_OVERRUN, extend, HB_VERDICT_STATE, "guard.output", "EXTEND", "guard byte 0 beside the output was written", 0},
    {MISCHIEF_REFUSES, extend, HB_VERDICT_STATUS, "status", "begin EXTEND want-rule-0", "predicted HB_OK", HB_OFF_STATUS},
    {MISCHIEF_RULE, refused, HB_VERDICT_STATUS, "status.text", "begin EXTEND want-rule-87", "got HB_ERR_RANGE (rule 88", HB_OFF_STATUS},
    {MISCHIEF_TEXT, refused, HB_VERDICT_STATUS, "status.text", "begin EXTEND want-rule-87", "prefix + extend of row 1 is 24", HB_OFF_STATUS},
    {MISCHIEF_TAKE, extend, HB_VERDICT_STATE, "slot.take", "take", "slot_take returned slot 1, which was not free", 0},
    {MISCHIEF_DIRTY, extend, HB_VERDICT_STATE, "slot.take", "take temporal", "temporal of layer 0 changed at slot 1 element 1", 0},
    {MISCHIEF_COPY, copy_slot, HB_VERDICT_STATE, "slot.copy", "copy conv", "step 5: conv of layer 0 changed at slot 1 element 2", 0},
    {MISCHIEF_COPY, restart, HB_VERDICT_STATE, "slot.copy", "restart conv", "step 5: conv of layer 0 changed at slot 5 element 2", 0},
    {MISCHIEF_FREE, free_slot, HB_VERDICT_STATE, "slot.free", "free conv", "step 5: conv of layer 0 changed at slot 1 element 1", HB_OFF_STATE},
    {MISCHIEF_NO_DESCRIBE, extend, HB_VERDICT_SKIP, "describe", "describe", "no device here", 0},
    {MISCHIEF_NO_BUFFER, extend, HB_VERDICT_DEVICE, "buffer", "EXTEND", "cannot get a buffer of", 0},
    {MISCHIEF_NO_OUTPUT, extend, HB_VERDICT_DEVICE, "buffer", "EXTEND", "cannot read the output: copy failed", 0},
    {MISCHIEF_NO_READ, extend, HB_VERDICT_DEVICE, "region_read", NULL, "cannot read region", 0},
    {MISCHIEF_NO_WRITE, extend, HB_VERDICT_STATUS, "region_write", "take", "step 1: region_write failed: copy failed", 0},
    {MISCHIEF_NO_START, extend, HB_VERDICT_DEVICE, "regions", NULL, "before the first step", 0},
};
/* clang-format on */

static void each_check_fires_on_its_fault_and_not_when_it_is_off(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const struct fault *f = &faults[i];
        struct hb_case c;
        struct mischief m;
        make(f->build, &c);
        const struct hb_adapter *wrong = mischief_init(&m, f->number, 0);
        struct hb_verdict v = run(wrong, &c, 0, 0);
        assert_string_equal(v.text[0] ? v.check : "nothing was noticed", f->check);
        assert_int_equal(v.kind, f->kind);
        if (f->place) {
            assert_string_equal(v.place, f->place);
        }
        if (!strstr(v.text, f->text)) {
            fail_msg("'%s' does not say '%s'", v.text, f->text);
        }
        if (f->off) {
            v = run(wrong, &c, f->off, 0);
            assert_pass(&v);
        }
        v = run(hb_adapter_emu(), &c, 0, 0);
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

/* --- planted defects ---------------------------------------------------------------------------------------------- */

struct planted {
    int32_t defect;
    void (*build)(struct hb_case *c);
    const char *check;
    int32_t off; /* detectors; with them off nothing is noticed */
};
/* clang-format off */
static const struct planted planted[] = {
    {HB_DEFECT_INIT_STATE_MASK, one_row_tracked, "numeric.mamba2", HB_OFF_NUMERIC | HB_OFF_STATE},
    {HB_DEFECT_CHUNK_OFF_BY_ONE, fast_form, "numeric.mamba2", HB_OFF_NUMERIC},
    {HB_DEFECT_CONV_SHORT_PROMPT, short_prompt, "state.conv", HB_OFF_STATE},
    {HB_DEFECT_PAD_ROW_WRITTEN, padded_decode, "state.neighbour", HB_OFF_STATE},
    {HB_DEFECT_TRACK_POSITION, tracked_late, "state.track", HB_OFF_STATE},
    {HB_DEFECT_GROUP_MODULO, two_groups, "numeric.mamba2", HB_OFF_NUMERIC},
    {HB_DEFECT_MISSING_BARRIER, fast_form_backwards, "numeric.mamba2", HB_OFF_NUMERIC},
    {HB_DEFECT_MISSING_BARRIER, fast_form_backwards, "numeric.mamba2", HB_OFF_ORDER},
    {HB_DEFECT_UNINIT_SHARED, fast_form, "numeric.mamba2", HB_OFF_NUMERIC},
    {HB_DEFECT_NEIGHBOUR_SLOT, one_decode, "state.neighbour", HB_OFF_STATE},
    {HB_DEFECT_IMPURE_ERROR, refused, "error.purity", HB_OFF_PURITY},
};
/* clang-format on */

static void each_planted_defect_is_found_by_its_detector_alone(void **state) {
    (void)state;
    struct hb_caps caps = {.struct_size = sizeof caps};
    assert_int_equal(hb_adapter_emu()->describe(hb_adapter_emu()->ctx, &caps, NULL), HB_OK);
    if (!caps.has_defects) {
        skip();
    }
    uint32_t seen = 0;
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        struct hb_case c;
        make(planted[i].build, &c);
        struct hb_verdict v = run(hb_adapter_emu(), &c, 0, planted[i].defect);
        assert_string_equal(v.text[0] ? v.check : "nothing was noticed", planted[i].check);
        v = run(hb_adapter_emu(), &c, planted[i].off, planted[i].defect);
        assert_pass(&v);
        v = run(hb_adapter_emu(), &c, 0, HB_DEFECT_NONE);
        assert_pass(&v);
        seen |= 1u << planted[i].defect;
    }
#define DEFECT_BIT(number, name, what, detector) assert_true(seen >> (number) & 1);
    HB_DEFECTS_TABLE(DEFECT_BIT)
#undef DEFECT_BIT
}

/* --- small errors --------------------------------------------------------------------------------------------------- */

/* The case's values without their signs, but for A and the time steps: no sum cancels, so magnitude and value agree. */
static void fill_without_cancellation(void *ctx, const struct hb_case *c, const struct hb_value_key *key,
                                      int32_t n, float *out) {
    (void)ctx;
    hb_values_fill(c, key, n, out);
    int signs = key->tensor == HB_TENSOR_A || key->tensor == HB_TENSOR_DT || key->tensor == HB_TENSOR_DT_BIAS;
    for (int32_t i = 0; i < n && !signs; i++) {
        out[i] = fabsf(out[i]);
    }
}

static const struct hb_value_source no_cancellation = {NULL, fill_without_cancellation};

/* Share of the compared elements at which a factor of 1 + error on one of them is noticed (fp32). */
static double share_noticed(int32_t form, int32_t kind, const struct hb_value_source *values, double error) {
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
    int64_t n = kind == 2 ? (int64_t)s.elements[HB_OP_MAMBA2_STATE][HB_FP32]
                          : (int64_t)(s.elements[HB_OP_MAMBA2_OUT][HB_FP32] +
                                      s.elements[HB_OP_ATTENTION][HB_FP32]);
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
                  kind ? "temporal state" : "outputs", values ? "no cancellation" : "ordinary values",
                  ilogb(error), 100.0 * (double)noticed / (double)n, (long long)n);
    return (double)noticed / (double)n;
}

/* contracts.md section 6. An error is noticed where the bound is smaller. The bound of a mixer is 60 to 250 u times the sum
 * of absolute terms, and on values of either sign that sum exceeds the value tenfold in one element of ten: there 2^-16 of
 * the value is within what rounding may do, and the share of 95 % is reached with 2^-12. */
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
    for (int64_t i = 0; i < 192; i += 7) { /* 2 rows, 2 layers, 24 channels of 3 inputs: 288 elements */
        const struct hb_run_options o = {
            .tamper_element = i, .tamper_factor = 1.0, .tamper_kind = 1};
        assert_int_equal(hb_run_case(hb_adapter_emu(), &c, &o, &v, NULL), 0);
        assert_string_equal(v.check, "state.conv");
    }
}

/* --- statuses --------------------------------------------------------------------------------------------------------- */

struct refusals {
    int32_t n, step;
    struct hb_error last;
    char call[16];
};

static void note(void *ctx, int32_t step, const char *call, const struct hb_error *want) {
    struct refusals *r = ctx;
    if (want->status != HB_OK) {
        r->n++;
        r->step = step;
        r->last = *want;
        snprintf(r->call, sizeof r->call, "%s", call);
    }
}

/* Runs c, which must pass, and gives the refusals that were predicted. */
static struct refusals refusals_of(const struct hb_adapter *backend, const struct hb_case *c) {
    struct refusals r = {0};
    struct hb_verdict v;
    const struct hb_run_options o = {
        .tamper_element = -1, .predicted = note, .predicted_ctx = &r};
    assert_int_equal(hb_run_case(backend, c, &o, &v, NULL), 0);
    assert_pass(&v);
    return r;
}

static const struct hb_adapter *right_backend(int i) {
    return i ? hb_adapter_oracle() : hb_adapter_emu();
}

static void invalid_modes_are_refused_first_and_with_their_text(void **state) {
    (void)state;
    static const struct {
        int32_t mode;
        const char *text;
    } modes[] = {
        {0, "Invalid forward mode: forward_batch.forward_mode=0"},
        {7, "Invalid forward mode: forward_batch.forward_mode=<ForwardMode.PREBUILT: 7>"},
        {10, "Invalid forward mode: forward_batch.forward_mode=10"},
        {-1, "Invalid forward mode: forward_batch.forward_mode=-1"},
        {INT32_MAX, "Invalid forward mode: forward_batch.forward_mode=2147483647"},
        {INT32_MIN, "Invalid forward mode: forward_batch.forward_mode=-2147483648"},
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        for (int k = 0; k < 4; k++) {
            struct hb_case c;
            hand_init(&c);
            extend(&c);
            if (k & 1) { /* NULL, SHAPE, CAPACITY, RANGE and DUPLICATE beside it */
                hand_row(&c.step[c.n_steps - 1], 0, 3);
                hand_break(&c, HB_FIELD_SEQ_LENS, 0, HB_BREAK_ABSENT, 0);
                hand_break(&c, HB_FIELD_BATCH_SIZE, 0, HB_BREAK_SET, -3);
                hand_break(&c, HB_FIELD_N_TOKENS, 0, HB_BREAK_SET, INT32_MAX);
                hand_break(&c, HB_FIELD_TABLE, 1, HB_BREAK_SET, -9);
            }
            c.step[c.n_steps - 1].mode = modes[i].mode;
            decode(&c);
            hb_case_normalize(&c);
            struct refusals r = refusals_of(right_backend(k >> 1), &c);
            assert_int_equal(r.n, 1);
            assert_string_equal(r.call, "begin");
            assert_int_equal(r.last.status, HB_ERR_INVALID_MODE);
            assert_string_equal(r.last.text, modes[i].text);
        }
    }
}

static void child_entries_are_refused_whatever_the_arguments(void **state) {
    (void)state;
    for (int k = 0; k < 16; k++) {
        struct hb_case c;
        hand_init(&c);
        struct hb_case_step *s = hand_step(&c, HB_STEP_ENTRY);
        s->mode = HB_MODE_EXTEND;
        s->n_rows = 0;
        if (k & 1) { /* inside a forward */
            hand_row(s, 0, 4);
        }
        s->target = HB_ENTRY_CHILD;
        s->null_args = k >> 1 & 1;
        s->direction = k >> 2 & 1;
        s->layer = (k & 4) ? -1 : 2;
        hb_case_normalize(&c);
        struct refusals r = refusals_of(right_backend(k >> 3), &c);
        assert_int_equal(r.n, 1);
        assert_string_equal(r.call, "entry");
        assert_int_equal(r.last.status, HB_ERR_NOT_IMPLEMENTED);
        assert_string_equal(
            r.last.text,
            "Mamba2AttnBackend's forward is called directly instead of through "
            "HybridLinearAttnBackend, as it supports mixed prefill and decode");
    }
}

/* Steps that are refused: how many calls, and the rule of the last. The case must pass: nothing changed, the rest runs. */
static const struct {
    void (*build)(struct hb_case *c);
    int32_t n, rule;
} odd_cases[] = {
    {refused, 1, HB_RULE_PREFIX_SUM},
    {free_track_slot, 1, HB_RULE_OP_SLOT_FREED},
    {restart_from_itself, 1, HB_RULE_COPY_ALIAS},
    {wrapper_entries, 3, HB_RULE_LAYER_RANGE},
    {table_named_twice, 1, HB_RULE_SLOT_RANGE},
    {odd_takes, 2, HB_RULE_TAKE_EXHAUSTED},
    {odd_layer, 5, HB_RULE_IO_BYTES},
    {absent_buffer, 3, HB_RULE_IO_NULL},
    {null_batch, 1, HB_RULE_BATCH_NULL},
    {bad_config, 1, HB_RULE_CFG_CHUNK},
};

static void refused_steps_leave_the_rest_of_the_case_valid(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof odd_cases / sizeof *odd_cases; i++) {
        for (int k = 0; k < 2; k++) {
            struct hb_case c;
            make(odd_cases[i].build, &c);
            struct refusals r = refusals_of(right_backend(k), &c);
            assert_int_equal(r.n, odd_cases[i].n);
            assert_int_equal(r.last.rule, odd_cases[i].rule);
        }
    }
}

/* --- other right backends and generated cases -------------------------------------------------------------------- */

static void right_backends_pass_the_cases_by_hand(void **state) {
    (void)state;
    static void (*const builds[])(struct hb_case *c) = {
        extend,     extend_and_decode, padded_decode, padded_tokens, one_row_tracked, tracked_late, short_prompt,
        two_groups, fast_form,         copy_slot,     free_slot,     idle,            mixed,        restart};
    for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
        for (int k = 0; k < 16; k++) {
            struct hb_case c;
            hand_init(&c);
            builds[i](&c);
            c.config.act_dtype = k & 1;
            c.config.state_dtype = k >> 1 & 1;
            c.config.kernel_form = k >> 2 & 1;
            hb_case_normalize(&c);
            struct hb_verdict v = run(right_backend(k >> 3), &c, 0, 0);
            assert_pass(&v);
        }
    }
}

static void pass_generated(const struct hb_adapter *backend, int64_t n, struct hb_run_stats *s) {
    struct hb_gen_options g;
    hb_gen_options_init(&g);
    for (int64_t i = 0; i < n; i++) {
        struct hb_case c;
        struct hb_verdict v;
        hb_gen_case(&g, 11, (uint64_t)i, &c);
        assert_int_equal(hb_run_case(backend, &c, NULL, &v, s), 0);
        if (v.kind != HB_VERDICT_PASS) {
            fail_msg("case %lld: %s %s: %s", (long long)i, v.check, v.place, v.text);
        }
    }
    assert_int_equal(s->cases, n);
    assert_int_equal(s->verdicts[HB_VERDICT_PASS], n);
}

static void generated_cases_pass_and_few_bounds_are_vacuous(void **state) {
    (void)state;
    struct hb_run_stats s = {0};
    uint64_t elements = 0;
    uint64_t vacuous = 0;
    pass_generated(hb_adapter_emu(), 2000, &s);
    for (int op = 0; op < HB_N_OPS; op++) {
        for (int d = 0; d < HB_N_FLOAT_DTYPES; d++) {
            elements += s.elements[op][d];
            vacuous += s.vacuous[op][d];
            assert_true(s.elements[op][d] > 0 && s.max_ratio[op][d] <= 1.0);
        }
    }
    print_message("%llu elements, %.3f %% vacuous\n", (unsigned long long)elements,
                  100.0 * (double)vacuous / (double)elements);
    assert_true((double)vacuous < 0.01 * (double)elements);
    assert_true(s.status_seen[HB_OK] > 0 && s.status_seen[HB_ERR_RANGE] > 0);
}

static void generated_cases_pass_on_the_oracle(void **state) {
    (void)state;
    struct hb_run_stats s = {0};
    pass_generated(hb_adapter_oracle(), 300, &s);
}

/* --- what a run tells --------------------------------------------------------------------------------------------- */

struct seen {
    int32_t outputs, conv, temporal;
    int64_t last;
};

static void observe(void *ctx, int32_t kind, int32_t request, int32_t layer, int64_t position, int32_t n,
                    const float *got, const double *want, const double *bound) {
    struct seen *s = ctx;
    (void)request;
    assert_true(layer >= 0 && layer < 3 && n > 0 && got && want);
    s->outputs += kind == 0;
    s->conv += kind == 1;
    s->temporal += kind == 2;
    s->last = position;
    for (int32_t i = 0; i < n && bound; i++) {
        assert_true(fabs((double)got[i] - want[i]) <= bound[i]);
    }
}

static void an_observer_sees_every_output_row_and_state(void **state) {
    (void)state;
    struct hb_case c;
    struct seen s = {0};
    struct hb_verdict v;
    struct hb_run_stats stats = {0};
    const struct hb_observer observer = {.ctx = &s, .see = observe};
    const struct hb_run_options o = {.tamper_element = -1, .observer = &observer};
    make(extend_and_decode, &c);
    assert_int_equal(hb_run_case(hb_adapter_emu(), &c, &o, &v, &stats), 0);
    assert_pass(&v);
    assert_int_equal(s.outputs, 3 * (10 + 19 + 2));
    assert_int_equal(s.temporal, 2 * 2 * 2); /* forwards, layers, rows */
    assert_int_equal(s.conv, 2 * 2 * 2);
    assert_int_equal(s.last, 25);
    assert_int_equal(stats.forwards, 2);
    assert_int_equal(stats.tokens, 31);
    assert_int_equal(stats.cases, 1);
    assert_true(stats.launches > 0 && stats.exact_bytes > 0);
}

static void statistics_add_up(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_verdict v;
    struct hb_run_stats one = {0};
    struct hb_run_stats two = {0};
    make(extend_and_decode, &c);
    assert_int_equal(hb_run_case(hb_adapter_emu(), &c, NULL, &v, &one), 0);
    assert_int_equal(hb_run_case(hb_adapter_emu(), &c, NULL, &v, &two), 0);
    hb_run_stats_add(&two, &one);
    assert_int_equal(two.cases, 2);
    assert_int_equal(two.calls, 2 * one.calls);
    assert_int_equal(two.elements[HB_OP_ATTENTION][HB_FP32], 2 * one.elements[HB_OP_ATTENTION][HB_FP32]);
    double median = hb_run_stats_median(&two, HB_OP_MAMBA2_OUT, HB_FP32);
    assert_true(median > 0 && median <= 1.0);
    assert_true(median == hb_run_stats_median(&one, HB_OP_MAMBA2_OUT, HB_FP32));
    assert_true(hb_run_stats_median(&one, HB_OP_MAMBA2_OUT, HB_BF16) == 0.0);
}

static void a_run_is_repeatable(void **state) {
    (void)state;
    struct hb_gen_options g;
    hb_gen_options_init(&g);
    for (uint64_t i = 0; i < 20; i++) {
        struct hb_case c;
        struct hb_verdict v;
        struct hb_run_stats one, two;
        memset(&one, 0, sizeof one);
        memset(&two, 0, sizeof two);
        hb_gen_case(&g, 3, i, &c);
        assert_int_equal(hb_run_case(hb_adapter_emu(), &c, NULL, &v, &one), 0);
        assert_int_equal(hb_run_case(hb_adapter_emu(), &c, NULL, &v, &two), 0);
        assert_memory_equal(&one, &two, sizeof one);
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
        cmocka_unit_test(invalid_modes_are_refused_first_and_with_their_text),
        cmocka_unit_test(child_entries_are_refused_whatever_the_arguments),
        cmocka_unit_test(refused_steps_leave_the_rest_of_the_case_valid),
        cmocka_unit_test(right_backends_pass_the_cases_by_hand),
        cmocka_unit_test(generated_cases_pass_and_few_bounds_are_vacuous),
        cmocka_unit_test(generated_cases_pass_on_the_oracle),
        cmocka_unit_test(an_observer_sees_every_output_row_and_state),
        cmocka_unit_test(statistics_add_up),
        cmocka_unit_test(a_run_is_repeatable),
    };
    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
