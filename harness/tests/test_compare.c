/* SPDX-License-Identifier: Apache-2.0
 * Two backends on one case: right ones agree within the sum of both bounds, a wrong one is noticed,
 * and what is not rounded must agree bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "harness/compare.h"
#include "harness/gen.h"
#include "harness/tests/hand_case.h"
#include "harness/tests/mischief.h"

static void make(struct hb_case *c, int32_t value_class) {
    hand_init(c);
    c->config.value_class = value_class;
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 10);
    hand_track(hand_row(s, 1, 19), 0, 0);
    s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 0, 1);
    hand_row(s, 1, 1);
    hb_case_normalize(c);
}

static struct hb_pair_result compare(const struct hb_adapter *a, const struct hb_adapter *b,
                                     const struct hb_case *c, int32_t check_off) {
    const struct hb_run_options o = {.tamper_element = -1, .check_off = check_off};
    struct hb_pair_result r;
    assert_int_equal(hb_compare_case(a, b, c, &o, &r, NULL, NULL), 0);
    return r;
}

/* The same through the executor: first backend emu, second `other`. */
static struct hb_verdict run_with(const struct hb_adapter *other, const struct hb_case *c,
                                  int32_t check_off, struct hb_run_stats *stats) {
    const struct hb_run_options o = {.tamper_element = -1, .check_off = check_off, .other = other};
    struct hb_verdict v;
    assert_int_equal(hb_run_case(hb_adapter_emu(), c, &o, &v, stats), 0);
    return v;
}

static void emulator_and_oracle_agree(void **state) {
    (void)state;
    for (int k = 0; k < 8 * HB_N_VALUE_CLASSES; k++) {
        struct hb_case c;
        make(&c, k / 8);
        c.config.kernel_form = k & 1;
        c.config.act_dtype = k >> 1 & 1;
        c.config.state_dtype = k >> 2 & 1;
        hb_case_normalize(&c);
        struct hb_pair_result r = compare(hb_adapter_emu(), hb_adapter_oracle(), &c, 0);
        assert_string_equal(r.a.text, "");
        assert_string_equal(r.b.text, "");
        assert_string_equal(r.text, "");
        assert_true(r.same_verdict && !r.differs && r.elements > 1000 && r.bit_equal > 0);
        assert_true(r.max_ratio <= 1.0);
    }
}

static void a_backend_agrees_with_itself_bit_for_bit(void **state) {
    (void)state;
    struct hb_case c;
    make(&c, HB_VALUES_ORDINARY);
    struct hb_pair_result r = compare(hb_adapter_emu(), hb_adapter_emu(), &c, 0);
    assert_true(r.same_verdict && !r.differs && r.bit_equal == r.elements);
    assert_true(r.max_ratio == 0.0);
    struct hb_pair_result q = compare(hb_adapter_emu(), hb_adapter_oracle(), &c, 0);
    assert_true(q.elements == r.elements && q.bit_equal < q.elements);
}

static void generated_cases_agree(void **state) {
    (void)state;
    struct hb_gen_options g;
    struct hb_run_stats s = {0};
    hb_gen_options_init(&g);
    for (uint64_t i = 0; i < 300; i++) {
        struct hb_case c;
        hb_gen_case(&g, 21, i, &c);
        struct hb_verdict v = run_with(hb_adapter_oracle(), &c, 0, &s);
        if (v.kind != HB_VERDICT_PASS) {
            fail_msg("case %d: %s %s", (int)i, v.check, v.text);
        }
    }
    assert_int_equal(s.pair_cases, 300);
    assert_true(s.pair_elements > 10000 && s.pair_bit_equal < s.pair_elements);
    assert_true(s.pair_max_ratio > 0 && s.pair_max_ratio <= 1.0);
}

static const struct {
    int32_t number, off;
    const char *text; /* part of what the comparison says */
    int32_t layer;
    int64_t position, element;
} numeric[] = {
    {MISCHIEF_OUTPUT, HB_OFF_NUMERIC, "output of layer 0 position 0 element 7", 0, 0, 7},
    {MISCHIEF_TEMPORAL, HB_OFF_STATE, "temporal state of layer 0 position 10 element 0", 0, 10, 0},
    {MISCHIEF_CONV, HB_OFF_STATE, "conv state of layer 0 position 10 element 0", 0, 10, 0},
};

static void a_wrong_number_is_noticed_and_its_place_named(void **state) {
    (void)state;
    struct hb_case c;
    make(&c, HB_VALUES_ORDINARY);
    c.n_steps--; /* without the decode step, whose outputs would show a wrong state first */
    hb_case_normalize(&c);
    for (size_t i = 0; i < sizeof numeric / sizeof *numeric; i++) {
        struct mischief m;
        const struct hb_adapter *wrong = mischief_init(&m, numeric[i].number, 0);
        for (int swap = 0; swap < 2; swap++) {
            struct hb_pair_result r = compare(swap ? wrong : hb_adapter_emu(),
                                              swap ? hb_adapter_emu() : wrong, &c, numeric[i].off);
            assert_true(r.same_verdict && r.differs);
            assert_non_null(strstr(r.text, numeric[i].text));
            assert_true(r.at.layer == numeric[i].layer && r.at.token == numeric[i].position &&
                        r.at.element == numeric[i].element && r.at.ulp > 0);
            assert_true(fabs(r.at.got - r.at.want) > r.at.bound);
        }
        struct hb_verdict v = run_with(wrong, &c, numeric[i].off, NULL);
        assert_int_equal(v.kind, HB_VERDICT_RELATION);
        assert_string_equal(v.check, "compare.numeric");
        assert_non_null(strstr(v.text, numeric[i].text));
        assert_true(v.at.layer == numeric[i].layer && v.at.element == numeric[i].element);
        v = run_with(hb_adapter_emu(), &c, 0, NULL);
        assert_string_equal(v.text, "");
    }
}

static void another_verdict_is_noticed(void **state) {
    (void)state;
    struct hb_case c;
    struct mischief m;
    make(&c, HB_VALUES_ORDINARY);
    static const int32_t numbers[] = {MISCHIEF_REFUSES, MISCHIEF_OUTPUT, MISCHIEF_FREE_SLOT};
    static const char *const texts[] = {"second: status", "second: numeric", "second: state"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct hb_adapter *wrong = mischief_init(&m, numbers[i], 0);
        struct hb_pair_result r = compare(hb_adapter_emu(), wrong, &c, 0);
        assert_false(r.same_verdict);
        assert_false(r.differs); /* only where both pass */
        struct hb_verdict v = run_with(wrong, &c, 0, NULL);
        assert_int_equal(v.kind, HB_VERDICT_RELATION);
        assert_string_equal(v.check, "compare.verdict");
        assert_non_null(strstr(v.text, "first: pass"));
        assert_non_null(strstr(v.text, texts[i]));
    }
    /* two backends that are wrong in one way: the finding is that of the first */
    const struct hb_adapter *wrong = mischief_init(&m, MISCHIEF_FREE_SLOT, 0);
    const struct hb_run_options o = {.tamper_element = -1, .other = wrong};
    struct hb_verdict v;
    assert_int_equal(hb_run_case(wrong, &c, &o, &v, NULL), 0);
    assert_string_equal(v.check, "state.neighbour");
}

/* The last bit of one output is far below any bound, but sums of small integers are not rounded. */
static void exact_values_must_agree_bit_for_bit(void **state) {
    (void)state;
    struct mischief m;
    const struct hb_adapter *wrong = mischief_init(&m, MISCHIEF_LAST_BIT, 0);
    for (int32_t dtype = 0; dtype < HB_N_FLOAT_DTYPES; dtype++) {
        for (int32_t form = 0; form < HB_N_FORMS; form++) {
            struct hb_case c;
            make(&c, HB_VALUES_ORDINARY);
            c.config.act_dtype = dtype;
            c.config.kernel_form = form;
            struct hb_pair_result r = compare(hb_adapter_emu(), wrong, &c, HB_OFF_NUMERIC);
            assert_false(r.differs);
            assert_true(r.bit_equal < r.elements);
            make(&c, HB_VALUES_EXACT);
            c.config.act_dtype = dtype;
            c.config.kernel_form = form;
            r = compare(hb_adapter_emu(), hb_adapter_oracle(), &c, 0);
            assert_string_equal(r.text, "");
            r = compare(hb_adapter_emu(), wrong, &c, HB_OFF_NUMERIC);
            assert_true(r.differs);
            assert_true(r.at.layer == 0 && r.at.ulp == 1 && r.at.bound == 0);
        }
    }
}

/* Attention has an exponential: its last bit is free even there. */
static void attention_is_rounded_in_the_exact_class_too(void **state) {
    (void)state;
    struct hb_case c;
    struct mischief m;
    make(&c, HB_VALUES_EXACT);
    c.config.n_layers = 1;
    c.config.attn_mask = 1;
    hb_case_normalize(&c);
    struct hb_pair_result r =
        compare(hb_adapter_emu(), mischief_init(&m, MISCHIEF_LAST_BIT, 0), &c, HB_OFF_NUMERIC);
    assert_string_equal(r.text, "");
    assert_true(!r.differs && r.bit_equal < r.elements);
}

static void statistics_of_both_runs_are_kept_apart(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_pair_result r;
    struct hb_run_stats a = {0};
    struct hb_run_stats b = {0};
    const struct hb_run_options o = {.tamper_element = -1};
    make(&c, HB_VALUES_ORDINARY);
    assert_int_equal(hb_compare_case(hb_adapter_emu(), hb_adapter_oracle(), &c, &o, &r, &a, &b), 0);
    assert_int_equal(a.forwards, 2);
    assert_int_equal(b.forwards, 2);
    assert_true(a.max_ratio[HB_OP_MAMBA2_OUT][HB_FORM_V0][HB_FP32] > b.max_ratio[HB_OP_MAMBA2_OUT][HB_FORM_V0][HB_FP32]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(emulator_and_oracle_agree),
        cmocka_unit_test(a_backend_agrees_with_itself_bit_for_bit),
        cmocka_unit_test(generated_cases_agree),
        cmocka_unit_test(a_wrong_number_is_noticed_and_its_place_named),
        cmocka_unit_test(another_verdict_is_noticed),
        cmocka_unit_test(exact_values_must_agree_bit_for_bit),
        cmocka_unit_test(attention_is_rounded_in_the_exact_class_too),
        cmocka_unit_test(statistics_of_both_runs_are_kept_apart),
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
