/* SPDX-License-Identifier: Apache-2.0
 * The relations of the scan alone, as in test_relations.c: each fires on a backend that breaks it
 * and is silent on the right one, in every kind of linear layer; and what they say nothing about. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/defects.h"
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

/* --- every kind ------------------------------------------------------------------------------- */

/* Without a decode: after it a state that the prompt left wrong would show in outputs first. */
static void prompts(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 10);
    hand_row(s, 1, 19);
}

static void tracked_prompts(struct hb_case *c) {
    prompts(c);
    hand_track(&c->step[c->n_steps - 1].row[0], 0, 0);
}

#define MIXER(name) (1u << HB_MIXER_##name)
enum {
    EVERY = (1 << HB_N_MIXERS) - 1,
    WITH_STATE = EVERY & ~MIXER(SHORT_CONV),
    WITH_STEP = WITH_STATE & ~MIXER(LIGHTNING),
    WITH_GROUPS = WITH_STATE & ~MIXER(MAMBA1),
    DELTA = MIXER(GDN) | MIXER(KDA)
};

/* What a relation must notice of each kind; of the kinds that a row leaves out it says nothing. */
struct kind_control {
    int32_t number, arg, wrong; /* wrong: variant of the mischief, or planted defect */
    uint32_t mixers;
    const char *check, *place;
};
/* clang-format off */
static const struct kind_control of_kinds[] = {
    {62, 0, 0, EVERY, "scan.scale", "output"},
    {62, 1, 1, WITH_STATE, "scan.scale", "temporal state"},
    {63, 0, 0, EVERY, "scan.superposition", "output"},
    {63, 0, 1, WITH_STATE, "scan.superposition", "temporal state"},
    {64, 0, 0, WITH_STEP, "scan.step_limits", "output"},           /* y = c.S0 + D x */
    {64, 0, 1, WITH_STATE, "scan.step_limits", "temporal state"},  /* S = S0; lightning as below */
    {64, 1, 1, WITH_STATE, "scan.step_limits", "temporal state"},  /* S = w x b */
    {65, 0, 0, WITH_STATE, "scan.growth", "temporal state"},
    {66, 0, 0, WITH_GROUPS, "scan.groups", "output"},
    {66, 0, 1, WITH_GROUPS, "scan.groups", "temporal state"},
};
/* No planted defect makes a layer nonlinear: 62 and 63 have none. */
static const struct kind_control of_defects[] = {
    {64, 0, HB_DEFECT_INIT_STATE_MASK, WITH_STEP, "scan.step_limits", "output"},
    {64, 0, HB_DEFECT_MAMBA2_ZERO_STEP, MIXER(MAMBA2), "scan.step_limits", "output"},
    {64, 0, HB_DEFECT_MAMBA1_ZERO_STEP, MIXER(MAMBA1), "scan.step_limits", "output"},
    {64, 1, HB_DEFECT_MAMBA2_DECAY_SIGN, MIXER(MAMBA2), "scan.step_limits", "temporal state"},
    {64, 1, HB_DEFECT_MAMBA1_DECAY_SIGN, MIXER(MAMBA1), "scan.step_limits", "temporal state"},
    {64, 1, HB_DEFECT_DELTA_PREDICTION, DELTA, "scan.step_limits", "temporal state"},
    {64, 1, HB_DEFECT_DELTA_DECAY_SIGN, DELTA, "scan.step_limits", "temporal state"},
    {65, 0, HB_DEFECT_DELTA_DECAY_SIGN, DELTA, "scan.growth", "temporal state"},
    {65, 0, HB_DEFECT_DECAY_SIGN, MIXER(LIGHTNING), "scan.growth", "temporal state"},
    {65, 0, HB_DEFECT_MAMBA2_DECAY_SIGN, MIXER(MAMBA2), "scan.growth", "temporal state"},
    {65, 0, HB_DEFECT_MAMBA1_DECAY_SIGN, MIXER(MAMBA1), "scan.growth", "temporal state"},
    {66, 0, HB_DEFECT_DECAY_HEAD_MAP, MIXER(LIGHTNING), "scan.groups", "output"},
    {66, 0, HB_DEFECT_GROUP_MODULO, MIXER(MAMBA2), "scan.groups", "output"},
    {66, 0, HB_DEFECT_DELTA_HEAD_MAP, DELTA, "scan.groups", "output"},
};
/* clang-format on */

/* Two value heads, or heads, per group, by either map; conv states of either length. */
static void make_of_kind(const struct kind_control *t, int32_t mixer, int32_t is_other,
                         void (*build)(struct hb_case *c), struct hb_case *c) {
    hand_init(c);
    c->config.heads = 4;
    c->config.groups = 2;
    c->config.mixer = mixer;
    c->config.head_map = is_other;
    c->config.conv_state_len = is_other;
    c->config.state_layout = is_other;
    c->config.relation = t->number;
    c->config.relation_arg = t->arg;
    build(c);
    hb_case_normalize(c);
}

static void assert_noticed(const struct kind_control *t, int32_t mixer, const char *check,
                           const struct hb_verdict *v) {
    const char *place = check[0] ? t->place : "";
    if (strcmp(v->check, check) != 0 || strcmp(v->place, place) != 0) {
        fail_msg("relation %d of mixer %d: '%s %s' instead of '%s %s': %s", t->number, mixer,
                 v->check, v->place, check, place, v->text);
    }
}

static void every_kind_has_a_control(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof of_kinds / sizeof *of_kinds; i++) {
        for (int32_t k = 0; k < 2 * HB_N_MIXERS; k++) {
            const struct kind_control *t = &of_kinds[i];
            const int32_t mixer = k >> 1;
            struct hb_case c;
            struct mischief m;
            struct hb_verdict v;
            struct hb_run_options o = {.tamper_element = -1,
                                       .check_off = HB_OFF_NUMERIC | HB_OFF_STATE};
            make_of_kind(t, mixer, k & 1, prompts, &c);
            c.config.kernel_form = k & 1;
            const struct hb_adapter *wrong = mischief_init(&m, t->number, t->wrong);
            assert_int_equal(hb_run_case(wrong, &c, &o, &v, NULL), 0);
            assert_noticed(t, mixer, t->mixers >> mixer & 1 ? t->check : "", &v);
            o.check_off |= HB_OFF_RELATION;
            assert_int_equal(hb_run_case(wrong, &c, &o, &v, NULL), 0);
            assert_noticed(t, mixer, "", &v);
        }
    }
}

static void planted_defects_of_the_kinds_break_relations(void **state) {
    (void)state;
    struct hb_caps caps = {.struct_size = sizeof caps};
    assert_int_equal(hb_adapter_emu()->describe(hb_adapter_emu()->ctx, &caps, NULL), HB_OK);
    if (!caps.has_defects) {
        skip();
    }
    for (size_t i = 0; i < sizeof of_defects / sizeof *of_defects; i++) {
        for (int32_t k = 0; k < 2 * HB_N_MIXERS; k++) {
            const struct kind_control *t = &of_defects[i];
            const int32_t mixer = k >> 1;
            /* by the other map groups are found modulo G, defect or not */
            const int is_same = t->wrong == HB_DEFECT_GROUP_MODULO && (k & 1);
            const char *check = t->mixers >> mixer & 1 && !is_same ? t->check : "";
            struct hb_case c;
            struct hb_verdict v;
            const struct hb_run_options o = {.tamper_element = -1,
                                             .check_off = HB_OFF_NUMERIC | HB_OFF_STATE,
                                             .defect = t->wrong};
            make_of_kind(t, mixer, k & 1, tracked_prompts, &c);
            assert_int_equal(hb_run_case(hb_adapter_emu(), &c, &o, &v, NULL), 0);
            assert_noticed(t, mixer, check, &v);
        }
    }
}

/* Cases of the controls on the right backend; and where a relation says something there are second
 * runs, in which it could have fired. */
static void every_kind_is_silent(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof of_kinds / sizeof *of_kinds; i++) {
        for (int32_t k = 0; k < 4 * HB_N_MIXERS; k++) {
            const struct kind_control *t = &of_kinds[i];
            const int32_t mixer = k >> 2;
            struct hb_case c;
            struct hb_verdict v;
            struct hb_run_stats stats = {0};
            make_of_kind(t, mixer, k & 1, tracked_prompts, &c);
            c.config.kernel_form = k >> 1 & 1;
            c.config.act_dtype = (k + (int32_t)i) % HB_N_FLOAT_DTYPES;
            c.config.state_dtype = (int32_t)(i & 1);
            assert_int_equal(hb_run_case(hb_adapter_emu(), &c, NULL, &v, &stats), 0);
            assert_noticed(t, mixer, "", &v);
            /* 64 of lightning is of its states */
            const int says = t->mixers >> mixer & 1 || (t->number == 64 && t->wrong == 0 &&
                                                        mixer == HB_MIXER_LIGHTNING);
            const int has_state = mixer != HB_MIXER_SHORT_CONV;
            assert_int_equal(stats.second_runs > 0, says || (!has_state && t->number < 64));
        }
    }
}

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
        cmocka_unit_test(every_kind_has_a_control),
        cmocka_unit_test(planted_defects_of_the_kinds_break_relations),
        cmocka_unit_test(every_kind_is_silent),
        cmocka_unit_test(every_argument_is_silent),
        cmocka_unit_test(generated_cases_are_silent),
    };
    return cmocka_run_group_tests_name("relations of the scan", tests, NULL, NULL);
}
