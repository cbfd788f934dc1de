/* SPDX-License-Identifier: Apache-2.0
 * Selective scan kernels (Mamba1) against the recurrence in double arithmetic: both forms of the
 * prefill, one-token rows, tracking, layouts, clamps, absent parameters, orders, planted defects.
 */
#include "kernels/tests/recur_bound.h"

enum { X, DBC, A, BIAS, D };
enum { USUAL, ZERO_STEPS }; /* zero now and then */

/* Step size with its error, of a token's channel. */
struct step {
    double dt, ddt;
};

static struct step scan_step(const struct recur_case *c, size_t token, size_t channel) {
    const struct hb_k_selective *args = &c->args.scan;
    const size_t width = inner_of(&c->s) + 2 * (size_t)c->s.n;
    const double bias = args->dt_bias ? c->input[BIAS].wide[channel] : 0;
    const double raw = c->input[DBC].wide[token * width + channel] + bias;
    struct step s;
    s.dt = step_size(raw, args->dt_softplus, args->dt_clamp, args->dt_lo, args->dt_hi, &s.ddt);
    return s;
}

static struct term scan_term(const struct recur_case *c, size_t token, int32_t head, int32_t p,
                             int32_t n) {
    const size_t inner = inner_of(&c->s);
    const size_t channel = (size_t)(head * c->s.p + p);
    const double *bc = c->input[DBC].wide + token * (inner + 2 * (size_t)c->s.n) + inner;
    const double xb = c->input[X].wide[token * inner + channel] * bc[n];
    const double a = c->input[A].wide[channel * (size_t)c->s.n + (size_t)n];
    const struct step s = ((const struct step *)c->own)[token * inner + channel];
    return (struct term){.th = -s.dt * a,
                         .eta = fabs(a) * s.ddt + fabs(s.dt * a) * U32,
                         .in = s.dt * xb,
                         .din = s.ddt * fabs(xb) * (1 + 4 * U32),
                         .out = bc[c->s.n + n]};
}

static void expect_scan(struct recur_case *c) {
    const size_t inner = inner_of(&c->s);
    const size_t n = tokens_of(c) * inner;
    struct step *steps = calloc(n + 1, sizeof *steps);
    assert_non_null(steps);
    c->skip = doubles(n);
    for (size_t i = 0; i < n; i++) {
        steps[i] = scan_step(c, i / inner, i % inner);
        c->skip[i] = c->args.scan.d ? c->input[D].wide[i % inner] * c->input[X].wide[i] : 0;
    }
    c->own = steps;
    c->is_chunked = 0; /* in neither form */
    expect_elements(c);
}

/* The variant is the layout. */
static void make_scan(struct recur_case *c, const struct run *run) {
    const struct shape *s = run->shape;
    struct rig *rig = &c->rig;
    make_rows(c, run, run->variant, PAD, 1.0f);
    const size_t inner = inner_of(s);
    const size_t n = (size_t)s->n;
    const size_t n_tokens = tokens_of(c);
    c->term = scan_term;
    (void)give(c, X, array_random(rig, n_tokens * inner, s->act_dtype, 1.0f));
    (void)give(c, DBC, array_random(rig, n_tokens * (inner + 2 * n), s->act_dtype, 1.0f));
    (void)give(c, A, array_range(rig, inner * n, HB_FP32, -3.0f, -0.1f));
    (void)give(c, BIAS, array_random(rig, inner, HB_FP32, 1.0f));
    (void)give(c, D, array_random(rig, inner, HB_FP32, 1.0f));
    c->args.scan = (struct hb_k_selective){RECUR_ARGS(c, run),
                                           .dt_softplus = run->values == USUAL,
                                           .dt_clamp = run->values == USUAL ? HB_DT_CLAMP_NONE
                                                                            : HB_DT_CLAMP_LIMIT,
                                           .dt_hi = 1.0f,
                                           .x = c->device_input[X],
                                           .dbc = c->device_input[DBC],
                                           .a = c->device_input[A],
                                           .dt_bias = c->device_input[BIAS],
                                           .d = c->device_input[D]};
}

static int32_t launch_scan(struct recur_case *c, enum call call) {
    return call == CALL_UPDATE ? c->rig.k->selective_update(&c->args.scan)
                               : c->rig.k->selective_prefill(&c->args.scan);
}

static const struct recur_kind kind = {make_scan, expect_scan, launch_scan, 2};

static void prefill_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES_OF_ALL * N_LENS * HB_N_FORMS; i++) {
        const int k = i / 2 / N_SHAPES_OF_ALL;
        const struct run run = {.shape = &shapes_of_all[i / 2 % N_SHAPES_OF_ALL],
                                .lens = lens_of[k % N_LENS],
                                .form = k / N_LENS,
                                .variant = (i / 2 + k) % 2};
        check_run(&kind, &run, i & 1, (uint32_t)i);
    }
}

static void update_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES_OF_ALL * 2; i++) {
        const struct run run = {.shape = &shapes_of_all[i / 2 % N_SHAPES_OF_ALL],
                                .lens = ones,
                                .form = HB_FORM_FAST,
                                .variant = i / 2 / N_SHAPES_OF_ALL,
                                .call = CALL_UPDATE};
        check_run(&kind, &run, i & 1, (uint32_t)i);
    }
}

static void largest_sizes_fit(void **state) {
    (void)state;
    const struct shape large = {1, 9, 256, 1, 256, HB_BF16, HB_FP32, 0};
    const int32_t lens[N_ROWS] = {33, 0, 0, 3, 0};
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        const struct run run = {.shape = &large, .lens = lens, .form = form};
        struct recur_case c;
        check_run(&kind, &run, 0, 5);
        assert_true(open_run(&kind, &c, &run, 0, 5));
        c.args.scan.state_size = HB_MAX_STATE_SIZE + 1;
        check_too_large(&kind, &c, CALL_PREFILL);
        drop_case(&c);
    }
}

static void clamps_and_absent_parameters(void **state) {
    (void)state;
    for (int i = 0; i < 2 * HB_N_DT_CLAMPS * 2 * 2; i++) {
        const enum call call = i & 1 ? CALL_UPDATE : CALL_PREFILL;
        const struct run run = {.shape = &shapes_of_all[0],
                                .lens = call == CALL_UPDATE ? ones : lens_of[1],
                                .form = HB_FORM_FAST};
        struct recur_case c;
        assert_true(open_run(&kind, &c, &run, 0, (uint32_t)i));
        c.args.scan.dt_clamp = i / 2 % HB_N_DT_CLAMPS;
        c.args.scan.dt_lo = 0.5f;
        c.args.scan.dt_hi = 0.7f;
        if (i / 2 / HB_N_DT_CLAMPS & 1) {
            c.args.scan.d = NULL;
            c.args.scan.dt_bias = NULL;
        }
        c.args.scan.dt_softplus = i / 4 / HB_N_DT_CLAMPS;
        const struct result r = run_case(&kind, &c, call);
        assert_true(r.outputs && r.pool);
        drop_case(&c);
    }
}

static void both_forms_agree_bit_for_bit(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES_OF_ALL; i++) {
        const struct run run = {
            .shape = &shapes_of_all[i / 2], .lens = lens_of[1], .variant = HB_STATE_KV};
        check_forms(&kind, &run, i & 1, 9);
    }
}

static void prefill_of_one_token_equals_a_decode_step_bit_for_bit(void **state) {
    (void)state;
    const struct run run = {.shape = &shapes_of_all[0], .form = HB_FORM_FAST};
    check_one_token(&kind, &run);
}

static void results_do_not_depend_on_the_order(void **state) {
    (void)state;
    const struct run run = {.shape = &shapes_of_all[2], .lens = lens_of[2], .form = HB_FORM_FAST};
    check_orders(&kind, &run);
}

static void rows_do_not_leak_into_each_other(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        const struct run run = {.shape = &shapes_of_all[0], .lens = lens_of[1], .form = form};
        check_no_leak(&kind, &run);
    }
}

#ifdef HB_DEFECTS
static void planted_defects_are_noticed(void **state) {
    (void)state;
    const struct shape *shape = &shapes_of_all[0];
    const int32_t *lens = lens_of[1];
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        const struct planted planted[] = {
            {{shape, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_DT_BIAS_PER_HEAD, 0}, 0, 0},
            {{shape, ones, form, 0, USUAL, CALL_UPDATE, HB_DEFECT_DT_BIAS_PER_HEAD, 0}, 0, 0},
            {{shape, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_MAMBA1_DECAY_SIGN, 0}, 0, 0},
            {{shape, ones, form, 0, USUAL, CALL_UPDATE, HB_DEFECT_MAMBA1_DECAY_SIGN, 0}, 0, 0},
            {{shape, lens, form, 0, ZERO_STEPS, CALL_PREFILL, HB_DEFECT_MAMBA1_ZERO_STEP, 0}, 0, 1},
            {{shape, ones, form, 0, ZERO_STEPS, CALL_UPDATE, HB_DEFECT_MAMBA1_ZERO_STEP, 0}, 0, 1},
            /* no step is zero */
            {{shape, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_MAMBA1_ZERO_STEP, 0}, 1, 1},
            {{&square, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_MAMBA1_LAYOUT, 0}, 0, 0},
            {{&square, ones, form, HB_STATE_KV, USUAL, CALL_UPDATE, HB_DEFECT_MAMBA1_LAYOUT, 0},
             0,
             0},
            {{shape, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_MAMBA1_LAYOUT, 0}, 1, 1},
        };
        check_planted(&kind, planted, sizeof planted / sizeof *planted);
    }
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_matches_the_recurrence),
        cmocka_unit_test(update_matches_the_recurrence),
        cmocka_unit_test(largest_sizes_fit),
        cmocka_unit_test(clamps_and_absent_parameters),
        cmocka_unit_test(both_forms_agree_bit_for_bit),
        cmocka_unit_test(prefill_of_one_token_equals_a_decode_step_bit_for_bit),
        cmocka_unit_test(results_do_not_depend_on_the_order),
        cmocka_unit_test(rows_do_not_leak_into_each_other),
#ifdef HB_DEFECTS
        cmocka_unit_test(planted_defects_are_noticed),
#endif
    };
    return cmocka_run_group_tests_name("selective", tests, NULL, NULL);
}
