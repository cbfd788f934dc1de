/* SPDX-License-Identifier: Apache-2.0
 * The relations of the scan alone, as in test_relations.c: each fires on a backend that breaks it
 * and is silent on the right one; and what they say nothing about. */
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

static void extend_and_decode(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 10);
    hand_row(s, 1, 19);
    s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 0, 1);
    hand_row(s, 1, 1);
}

static void two_heads(struct hb_case *c) {
    c->config.heads = 4;
    c->config.groups = 2;
    extend_and_decode(c);
}

static void one_decode(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 1, 1);
}

/* --- table ------------------------------------------------------------------------------------ */

#define STATE_OFF (HB_OFF_STATE | HB_OFF_NUMERIC), HB_VERDICT_RELATION
/* clang-format off */
static const struct control controls[] = {
    {62, 0, extend_and_decode, NUMERIC_OFF, "scan.scale", "output", "relation 62: output of layer 0 position 0 element 0", ""},
    {62, 0, chain, NUMERIC_OFF, "scan.scale", "output", "relation 62: output of layer 0 position 5 element 0", ""},
    {63, 0, extend_and_decode, NUMERIC_OFF, "scan.superposition", "output", "relation 63: output of layer 0 position 0 element 0", ""},
    {63, 0, chain, NUMERIC_OFF, "scan.superposition", "output", "relation 63: output of layer 0 position 5 element 0", ""},
    {64, 1, extend_and_decode, STATE_OFF, "scan.step_limits", "temporal state", "relation 64: temporal state of layer 0 position 11 element 0", ""},
    {64, 1, one_decode, STATE_OFF, "scan.step_limits", "temporal state", "relation 64: temporal state of layer 0 position 6 element 0", ""},
    {65, 0, extend_and_decode, STATE_OFF, "scan.growth", "temporal state", "relation 65: temporal state of layer 0 position 11 element 0", ""},
    {66, 0, two_heads, NUMERIC_OFF, "scan.groups", "output", "relation 66: output of layer 0 position 0 element 0", ""},
};
/* clang-format on */
enum { N_CONTROLS = sizeof controls / sizeof *controls };

#define RELATIONS(X) X(62) X(63) X(64) X(65) X(66)
RELATIONS(HB_RELATION_TESTS)

/* --- more ------------------------------------------------------------------------------------- */

/* dt -> 0: an output that is not C.S0 + D x, a state that is not S0. */
static void the_limit_of_no_step_fires(void **state) {
    (void)state;
    for (int32_t variant = 0; variant < 2; variant++) {
        struct hb_case c;
        struct mischief m;
        struct hb_verdict v;
        hand_init(&c);
        (variant == 0 ? extend_and_decode : one_decode)(&c);
        c.config.relation = 64;
        c.config.relation_arg = 2;
        hb_case_normalize(&c);
        const struct hb_run_options o = {.tamper_element = -1,
                                         .check_off = HB_OFF_NUMERIC | HB_OFF_STATE};
        assert_int_equal(hb_run_case(mischief_init(&m, 64, variant), &c, &o, &v, NULL), 0);
        assert_string_equal(v.check, "scan.step_limits");
        assert_string_equal(v.place, variant == 0 ? "output" : "temporal state");
    }
}

static void every_argument_is_silent(void **state) {
    (void)state;
    for (int32_t number = 62; number <= 66; number++) {
        for (int32_t arg = 0; arg < 12; arg++) {
            struct hb_case c;
            hand_init(&c);
            (arg % 3 == 2 ? chain : two_heads)(&c);
            c.config.groups = c.config.heads > 1 ? c.config.heads / 2 : 1;
            c.config.kernel_form = arg & 1;
            c.config.act_dtype = arg >> 1 & 1;
            c.config.state_dtype = arg >> 2 & 1;
            c.config.value_class = arg % HB_N_VALUE_CLASSES;
            c.config.dt_clamp = arg % HB_N_CLAMPS;
            c.config.dt_softplus = arg % 5 != 0;
            c.config.relation = number;
            c.config.relation_arg = arg;
            hb_case_normalize(&c);
            if (c.config.groups < c.config.heads || number != 66) {
                passes(&c);
            }
        }
    }
}

static void generated_cases_are_silent(void **state) {
    (void)state;
    enum { N = 40 };
    for (int32_t number = 62; number <= 66; number++) {
        struct hb_gen_options o;
        struct hb_run_stats stats = {0};
        hb_gen_options_init(&o);
        o.gen_class = HB_GEN_VALID;
        o.relation = number;
        for (uint64_t i = 0; i < N; i++) {
            struct hb_case c;
            struct hb_verdict v;
            hb_gen_case(&o, 62, i, &c);
            assert_int_equal(c.config.relation, number);
            assert_int_equal(hb_run_case(hb_adapter_emu(), &c, NULL, &v, &stats), 0);
            assert_string_equal(v.text, "");
        }
        assert_true(stats.second_runs >= N / 4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RELATIONS(HB_RELATION_UNITS) cmocka_unit_test(the_limit_of_no_step_fires),
        cmocka_unit_test(every_argument_is_silent),
        cmocka_unit_test(generated_cases_are_silent),
    };
    return cmocka_run_group_tests_name("relations of the scan", tests, NULL, NULL);
}
