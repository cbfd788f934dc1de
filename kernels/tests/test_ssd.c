/* SPDX-License-Identifier: Apache-2.0
 * State-space kernels (prefill in two forms, decode in two forms) against the recurrence in double
 * arithmetic, with the bound of tolerance.md 3.1 and 3.2; tracking, padding, clamps, orders, forms,
 * planted defects. */
#include "kernels/tests/recur_bound.h"

enum { XBC, DT, A, BIAS, D };
enum { USUAL, INTEGERS }; /* integers: A = 0, dt a small integer, so every form is exact */

/* Step size and decay of one token with their errors, tolerance.md 3.1. */
struct gate {
    double dt, ddt, th, eta;
};

static size_t width_of(const struct shape *s) {
    return inner_of(s) + 2 * (size_t)(s->groups * s->n);
}

static struct gate gate_of(const struct recur_case *c, size_t token, size_t head) {
    const struct hb_k_ssm *args = &c->args.ssm;
    const double a = c->input[A].wide[head];
    const double raw = c->input[DT].wide[token * (size_t)c->s.heads + head] +
                       (args->dt_bias ? c->input[BIAS].wide[head] : 0);
    struct gate g;
    g.dt = step_size(raw, args->dt_softplus, args->dt_clamp, args->dt_lo, args->dt_hi, &g.ddt);
    g.th = -g.dt * a;
    g.eta = -a * g.ddt + fabs(g.th) * U32;
    return g;
}

static struct term ssm_term(const struct recur_case *c, size_t token, int32_t head, int32_t p,
                            int32_t n) {
    const struct shape *s = &c->s;
    const double *x = c->input[XBC].wide + token * width_of(s);
    const double *b = x + s->heads * s->p + head / (s->heads / s->groups) * s->n;
    const double xb = x[head * s->p + p] * b[n];
    const struct gate g = ((const struct gate *)c->own)[token * (size_t)s->heads + (size_t)head];
    return (struct term){.th = g.th,
                         .eta = g.eta,
                         .in = g.dt * xb,
                         .din = g.ddt * fabs(xb) * (1 + 4 * U32),
                         .out = b[s->groups * s->n + n]};
}

static void expect_ssm(struct recur_case *c) {
    const struct shape *s = &c->s;
    const size_t heads = (size_t)s->heads;
    const size_t n_gates = tokens_of(c) * heads;
    const size_t n_y = tokens_of(c) * inner_of(s);
    struct gate *gates = calloc(n_gates + 1, sizeof *gates);
    assert_non_null(gates);
    for (size_t i = 0; i < n_gates; i++) {
        gates[i] = gate_of(c, i / heads, i % heads);
    }
    c->own = gates;
    c->skip = doubles(n_y);
    for (size_t i = 0; c->args.ssm.d && i < n_y; i++) {
        const size_t channel = i % inner_of(s);
        const double x = c->input[XBC].wide[i / inner_of(s) * width_of(s) + channel];
        c->skip[i] = c->input[D].wide[channel / (size_t)s->p] * x;
    }
    expect_elements(c);
}

/* bits of a case's variant */
enum { PADDED = 1, KV_LAYOUT = 2, N_VARIANTS = 4 };

static void make_ssm(struct recur_case *c, const struct run *run) {
    const struct shape *s = run->shape;
    struct rig *rig = &c->rig;
    const int integers = run->values == INTEGERS;
    const float range = integers ? -2.0f : 1.0f;
    const size_t heads = (size_t)s->heads;
    make_rows(c, run, run->variant & KV_LAYOUT ? HB_STATE_KV : HB_STATE_VK,
              run->variant & PADDED ? PAD : 0, range);
    const size_t n_tokens = tokens_of(c);
    c->term = ssm_term;
    (void)give(c, XBC, array_random(rig, n_tokens * width_of(s), s->act_dtype, range));
    (void)give(c, DT, array_random(rig, n_tokens * heads, s->act_dtype, range));
    (void)give(c, A,
               integers ? array_make(heads, HB_FP32)
                        : array_range(rig, heads, HB_FP32, -3.0f, -0.1f));
    (void)give(c, BIAS, array_random(rig, heads, HB_FP32, range));
    (void)give(c, D, array_random(rig, heads, HB_FP32, range));
    c->args.ssm = (struct hb_k_ssm){RECUR_ARGS(c, run),          .n_groups = s->groups,
                                    .chunk_size = s->chunk,      .dt_softplus = !integers,
                                    .xbc = c->device_input[XBC], .dt = c->device_input[DT],
                                    .a = c->device_input[A],     .dt_bias = c->device_input[BIAS],
                                    .d = c->device_input[D]};
}

static int32_t launch_ssm(struct recur_case *c, enum call call) {
    if (call == CALL_UPDATE) {
        c->args.ssm.after = NULL;
        c->args.ssm.dst = NULL;
        return c->rig.k->ssm_update(&c->args.ssm);
    }
    return c->rig.k->ssd_prefill(&c->args.ssm);
}

static const struct recur_kind kind = {make_ssm, expect_ssm, launch_ssm, 2};

static const struct shape shapes[] = {
    {4, 8, 16, 2, 8, HB_FP32, HB_FP32, 0},    {4, 3, 5, 1, 4, HB_BF16, HB_FP32, 0},
    {2, 11, 33, 2, 16, HB_BF16, HB_BF16, 0},  {1, 1, 1, 1, 1, HB_FP32, HB_BF16, 0},
    {6, 17, 128, 3, 64, HB_FP32, HB_FP32, 0},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void prefill_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES * N_LENS * HB_N_FORMS; i++) {
        const int k = i / 2 / N_SHAPES;
        const struct run run = {.shape = &shapes[i / 2 % N_SHAPES],
                                .lens = lens_of[k % N_LENS],
                                .form = k / N_LENS,
                                .variant = i / 2 % N_VARIANTS};
        check_run(&kind, &run, i & 1, (uint32_t)i);
    }
}

static void update_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES * HB_N_FORMS; i++) {
        const struct run run = {.shape = &shapes[i / 2 % N_SHAPES],
                                .lens = ones,
                                .form = i / 2 / N_SHAPES,
                                .variant = i / 2 % N_VARIANTS,
                                .call = CALL_UPDATE};
        check_run(&kind, &run, i & 1, (uint32_t)i);
    }
}

static void largest_sizes_fit(void **state) {
    (void)state;
    const struct shape large = {1, 9, 256, 1, 256, HB_BF16, HB_FP32, 0};
    const int32_t lens[N_ROWS] = {257, 0, 0, 3, 0};
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        const struct run run = {.shape = &large, .lens = lens, .form = form};
        check_run(&kind, &run, 0, 5);
    }
}

static void state_that_v0_cannot_hold_is_refused(void **state) {
    (void)state;
    const struct run run = {.shape = &shapes[0], .lens = ones, .form = HB_FORM_V0};
    struct recur_case c;
    check_run(&kind, &run, 0, 5);
    assert_true(open_run(&kind, &c, &run, 0, 5));
    c.args.ssm.state_size = 257;
    check_too_large(&kind, &c, CALL_PREFILL);
    drop_case(&c);
}

static void clamps_and_absent_parameters(void **state) {
    (void)state;
    for (int i = 0; i < 2 * HB_N_DT_CLAMPS * HB_N_FORMS * 2; i++) {
        const enum call call = i & 1 ? CALL_UPDATE : CALL_PREFILL;
        const struct run run = {.shape = &shapes[0],
                                .lens = call == CALL_UPDATE ? ones : lens_of[1],
                                .form = i / 2 % HB_N_FORMS};
        struct recur_case c;
        assert_true(open_run(&kind, &c, &run, 0, (uint32_t)i));
        c.args.ssm.dt_clamp = i / 2 / HB_N_FORMS % HB_N_DT_CLAMPS;
        c.args.ssm.dt_lo = 0.5f;
        c.args.ssm.dt_hi = 0.7f;
        if (i >= 2 * HB_N_DT_CLAMPS * HB_N_FORMS) {
            c.args.ssm.d = NULL;
            c.args.ssm.dt_bias = NULL;
        }
        const struct result r = run_case(&kind, &c, call);
        assert_true(r.outputs && r.pool);
        drop_case(&c);
    }
}

static void both_forms_agree_bit_for_bit_on_integers(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct run run = {.shape = &shapes[0], .lens = lens_of[1], .values = INTEGERS};
        if (i / 2) {
            run.call = CALL_UPDATE;
            run.lens = ones;
        }
        check_forms(&kind, &run, i & 1, 9);
    }
}

static void prefill_of_one_token_equals_a_decode_step_bit_for_bit(void **state) {
    (void)state;
    const struct run run = {.shape = &shapes[0], .form = HB_FORM_V0};
    check_one_token(&kind, &run);
}

static void results_do_not_depend_on_the_order(void **state) {
    (void)state;
    struct run run = {.shape = &shapes[2], .lens = lens_of[2], .form = HB_FORM_FAST};
    check_orders(&kind, &run);
    run.call = CALL_UPDATE;
    run.lens = ones;
    check_orders(&kind, &run);
}

static void rows_do_not_leak_into_each_other(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        const struct run run = {.shape = &shapes[0], .lens = lens_of[1], .form = form};
        check_no_leak(&kind, &run);
    }
}

#ifdef HB_DEFECTS
static const int32_t short_lens[N_ROWS] = {7, 1, 2, 3, 5};

/* Declared by the emulator; the poison is its setting, not the table's. */
void hb_emu_set_poison(int32_t is_on);

static void planted_defects_are_noticed(void **state) {
    (void)state;
    const struct shape *shape = &shapes[0];
    const int32_t *lens = lens_of[1];
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        const struct planted planted[] = {
            {{shape, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_GROUP_MODULO, 0}, 0, 0},
            {{shape, ones, form, 0, USUAL, CALL_UPDATE, HB_DEFECT_GROUP_MODULO, 0}, 0, 0},
            {{shape, ones, form, 0, USUAL, CALL_UPDATE, HB_DEFECT_PAD_ROW_WRITTEN, 0}, 1, 0},
            {{shape, ones, form, 0, USUAL, CALL_UPDATE, HB_DEFECT_NEIGHBOUR_SLOT, 0}, 1, 0},
            {{shape, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_MAMBA2_DECAY_SIGN, 0}, 0, 0},
            {{shape, ones, form, 0, USUAL, CALL_UPDATE, HB_DEFECT_MAMBA2_DECAY_SIGN, 0}, 0, 0},
            {{shape, lens, form, 0, INTEGERS, CALL_PREFILL, HB_DEFECT_MAMBA2_ZERO_STEP, 0}, 0, 1},
            {{shape, ones, form, 0, INTEGERS, CALL_UPDATE, HB_DEFECT_MAMBA2_ZERO_STEP, 0}, 0, 1},
            /* no step is zero */
            {{shape, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_MAMBA2_ZERO_STEP, 0}, 1, 1},
            {{&square, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_MAMBA2_LAYOUT, 0}, 0, 0},
            {{&square, ones, form, 0, USUAL, CALL_UPDATE, HB_DEFECT_MAMBA2_LAYOUT, 0}, 0, 0},
            {{shape, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_MAMBA2_LAYOUT, 0}, 1, 1},
        };
        check_planted(&kind, planted, sizeof planted / sizeof *planted);
    }
    const int32_t fast = HB_FORM_FAST;
    const struct planted chunks[] = {
        {{shape, lens, fast, 0, USUAL, CALL_PREFILL, HB_DEFECT_CHUNK_OFF_BY_ONE, 0}, 0, 0},
        /* no row fills a chunk */
        {{shape, short_lens, fast, 0, USUAL, CALL_PREFILL, HB_DEFECT_CHUNK_OFF_BY_ONE, 0}, 1, 1},
    };
    check_planted(&kind, chunks, sizeof chunks / sizeof *chunks);
}

static void missing_barrier_is_noticed_when_the_order_varies(void **state) {
    (void)state;
    const struct run run = {.shape = &shapes[0],
                            .lens = lens_of[1],
                            .form = HB_FORM_FAST,
                            .defect = HB_DEFECT_MISSING_BARRIER};
    struct result r = run_once(&kind, &run, HB_ORDER_ASCENDING);
    assert_true(r.outputs && r.pool); /* the detector is off */
    r = run_once(&kind, &run, HB_ORDER_DESCENDING);
    assert_true(!r.outputs);
    r = run_once(&kind, &run, HB_ORDER_RANDOM);
    assert_true(!r.outputs);
}

static void unset_shared_memory_is_noticed_by_poison(void **state) {
    (void)state;
    const struct run run = {.shape = &shapes[0],
                            .lens = lens_of[1],
                            .form = HB_FORM_FAST,
                            .defect = HB_DEFECT_UNINIT_SHARED};
    struct result r = run_once(&kind, &run, HB_ORDER_ASCENDING);
    assert_true(!r.outputs && !r.pool);
    hb_emu_set_poison(0);
    r = run_once(&kind, &run, HB_ORDER_ASCENDING);
    hb_emu_set_poison(1);
    assert_true(r.outputs && r.pool); /* the detector is off */
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_matches_the_recurrence),
        cmocka_unit_test(update_matches_the_recurrence),
        cmocka_unit_test(largest_sizes_fit),
        cmocka_unit_test(state_that_v0_cannot_hold_is_refused),
        cmocka_unit_test(clamps_and_absent_parameters),
        cmocka_unit_test(both_forms_agree_bit_for_bit_on_integers),
        cmocka_unit_test(prefill_of_one_token_equals_a_decode_step_bit_for_bit),
        cmocka_unit_test(results_do_not_depend_on_the_order),
        cmocka_unit_test(rows_do_not_leak_into_each_other),
#ifdef HB_DEFECTS
        cmocka_unit_test(planted_defects_are_noticed),
        cmocka_unit_test(missing_barrier_is_noticed_when_the_order_varies),
        cmocka_unit_test(unset_shared_memory_is_noticed_by_poison),
#endif
    };
    return cmocka_run_group_tests_name("ssd", tests, NULL, NULL);
}
