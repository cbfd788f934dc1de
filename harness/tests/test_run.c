/* SPDX-License-Identifier: Apache-2.0
 * The executor: predicted statuses have their texts, right backends and generated cases pass, and
 * what a run tells of itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include <math.h>
#include <string.h>

#include "harness/gen.h"
#include "harness/tests/run_cases.h"

/* --- statuses --------------------------------------------------------------------------------- */

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
        (void)snprintf(r->call, sizeof r->call, "%s", call);
    }
}

/* Runs c, which must pass, and gives the refusals that were predicted. */
static struct refusals refusals_of(const struct hb_adapter *backend, const struct hb_case *c) {
    struct refusals r = {0};
    struct hb_verdict v;
    const struct hb_run_options o = {.tamper_element = -1, .predicted = note, .predicted_ctx = &r};
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
        assert_string_equal(r.last.text,
                            "Mamba2AttnBackend's forward is called directly instead of through "
                            "HybridLinearAttnBackend, as it supports mixed prefill and decode");
    }
}

/* Steps that are refused: how many calls, and the rule of the last. The case must pass: nothing
 * changed, the rest runs. */
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

/* --- other right backends and generated cases ------------------------------------------------- */

static void right_backends_pass_the_cases_by_hand(void **state) {
    (void)state;
    static void (*const builds[])(struct hb_case * c) = {extend,          extend_and_decode,
                                                         padded_decode,   padded_tokens,
                                                         one_row_tracked, tracked_late,
                                                         short_prompt,    two_groups,
                                                         fast_form,       copy_slot,
                                                         free_slot,       idle,
                                                         mixed,           restart};
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
        for (int k = 0; k < (int)HB_N_FORMS * (int)HB_N_FLOAT_DTYPES; k++) {
            const int form = k / HB_N_FLOAT_DTYPES, d = k % HB_N_FLOAT_DTYPES;
            elements += s.elements[op][form][d];
            vacuous += s.vacuous[op][form][d];
            assert_true(s.max_ratio[op][form][d] <= 1.0);
            assert_true(op > HB_OP_ATTENTION || d == HB_FP16 || s.elements[op][form][d] > 0);
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

/* --- what a run tells ------------------------------------------------------------------------- */

struct seen {
    int32_t outputs, conv, temporal;
    int64_t last;
};

static void observe(void *ctx, int32_t kind, int32_t request, int32_t layer, int64_t position,
                    int32_t n, const float *got, const double *want, const double *bound) {
    struct seen *s = ctx;
    (void)request;
    assert_true(layer >= 0 && layer < 3 && n > 0 && got && want);
    s->outputs += kind == 0;
    s->conv += kind == 1;
    s->temporal += kind == 2;
    s->last = position;
    for (int32_t i = 0; i < n && got && want && bound; i++) {
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
    assert_int_equal(two.elements[HB_OP_ATTENTION][HB_FORM_V0][HB_FP32],
                     2 * one.elements[HB_OP_ATTENTION][HB_FORM_V0][HB_FP32]);
    double median = hb_run_stats_median(&two, HB_OP_MAMBA2_OUT, HB_FORM_V0, HB_FP32);
    assert_true(median > 0 && median <= 1.0);
    assert_true(median == hb_run_stats_median(&one, HB_OP_MAMBA2_OUT, HB_FORM_V0, HB_FP32));
    assert_true(hb_run_stats_median(&one, HB_OP_MAMBA2_OUT, HB_FORM_V0, HB_BF16) == 0.0);
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
