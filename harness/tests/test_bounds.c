/* SPDX-License-Identifier: Apache-2.0
 * The error bounds of the oracle: a correct fp32 or bf16 computation stays inside in every element,
 * whatever the form and the values; a planted relative error of 2^-16 and wrong formulas do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "harness/tests/oracle_sim.h"
#include "harness/tests/oracle_tally.h"

enum { MAX_OUT = MAX_LEN * MAX_INNER };

struct run {
    struct model m;
    struct sim sim;
    struct hb_profile prefill, decode;
    double out[MAX_OUT], bound[MAX_OUT], mag[MAX_OUT];
    struct hb_ref_state *state, *at;
};

/* Profiles as a backend would declare them. */
static void declare(struct run *r, int32_t kind) {
    struct hb_profile p = plain_profile();
    struct sim *s = &r->sim;
    s->m = &r->m;
    s->act_bf16 = kind & 1;
    s->fp16 = (kind & 17) == 17;
    r->m.config.act_dtype = s->fp16 ? HB_FP16 : s->act_bf16 ? HB_BF16 : HB_FP32;
    s->op_bf16 = (kind & 1) && (kind & 2);
    s->chunked = (kind & 2) != 0;
    s->state_bf16 = (kind & 4) != 0;
    s->naive_softplus = (kind & 8) != 0;
    s->reversed = draw_int(0, 1);
    s->sums = draw_int(0, 2);
    p.cs_tree = s->sums;
    s->two_roundings = s->act_bf16 && draw_int(0, 1) && r->m.config.gate_norm != HB_GATE_ONLY;
    p.u_io = s->fp16 ? 0x1p-11 : s->act_bf16 ? 0x1p-8 : 0.0;
    p.io_floor = s->fp16 ? 0x1p-25 : 0x1p-126;
    p.sp_abs = s->naive_softplus ? 0x1p-22 : 0.0;
    p.norm_roundings = s->two_roundings ? 2 : 1;
    r->m.config.state_dtype = s->state_bf16 ? HB_BF16 : HB_FP32;
    r->decode = p;
    p.chunked = s->chunked;
    p.u_op = s->op_bf16 ? p.u_io : 0.0;
    r->prefill = p;
}

/* Activations of a model as numbers of the type. */
static void round_inputs(struct run *r) {
    struct model *m = &r->m;
    for (int32_t i = 0; i < MAX_LEN * m->dim; i++) {
        m->xbc[i] = sim_act(&r->sim, m->xbc[i]);
    }
    for (int32_t i = 0; i < MAX_LEN * m->inner; i++) {
        m->z[i] = sim_act(&r->sim, m->z[i]);
    }
    for (int32_t i = 0; i < m->dim * m->window; i++) {
        m->conv0[i] = sim_act(&r->sim, m->conv0[i]);
    }
    for (int32_t i = 0; i < MAX_LEN * m->config.n_heads; i++) {
        m->dt[i] = sim_act(&r->sim, m->dt[i]);
    }
}

static void start(struct run *r) {
    r->state = hb_ref_state_new(&r->m.config);
    r->at = hb_ref_state_new(&r->m.config);
    assert_non_null(r->state);
    assert_non_null(r->at);
    hb_ref_state_set(&r->m.config, r->state, r->m.conv0, r->m.ssm0);
    sim_start(&r->sim);
}

static void stop(struct run *r) {
    hb_ref_state_free(r->state);
    hb_ref_state_free(r->at);
}

static void judge_state(const struct run *r, const struct hb_ref_state *state,
                        const struct hb_profile *p, int32_t stores, struct tally *t) {
    for (int32_t i = 0; i < r->m.n_state; i++) {
        const double b = hb_ref_state_bound(&r->m.config, p, state, i, stores);
        judge(t, (double)r->sim.ssm[i], state->h[i], b, fabs(state->m[i]));
    }
    for (int32_t i = 0; i < r->m.dim * r->m.window; i++) {
        assert_true((double)r->sim.conv[i] == state->conv[i]);
    }
}

/* One call on both sides; with tracked > 0 the state after that many tokens is compared too. */
static void step(struct run *r, int32_t path, int32_t from, int32_t n, int32_t tracked,
                 struct tally *out, struct tally *state) {
    const struct model *m = &r->m;
    const struct hb_profile *p = path == HB_PATH_DECODE ? &r->decode : &r->prefill;
    const int32_t n_out = n * m->inner;
    assert_int_equal(hb_ref_mamba2(&m->config, &m->params, p, path, n, m->z + from * m->inner,
                                   m->xbc + from * m->dim, m->dt + from * m->config.n_heads,
                                   r->state, r->out, r->bound, r->mag, r->at, tracked),
                     0);
    if (tracked > 0) {
        struct sim *whole = malloc(sizeof(*whole));
        assert_non_null(whole);
        *whole = r->sim;
        sim_call(&r->sim, path, from, tracked);
        judge_state(r, r->at, p, 1, state);
        r->sim = *whole;
        free(whole);
    }
    sim_call(&r->sim, path, from, n);
    for (int32_t i = 0; i < n_out; i++) {
        judge(out, (double)r->sim.out[i], r->out[i], r->bound[i], r->mag[i]);
    }
    judge_state(r, r->state, p, 0, state);
}

/* A random history: prefill, decodes, another prefill, decodes. */
static void play(struct run *r, struct tally *out, struct tally *state) {
    const int32_t first = draw_int(1, 20), decodes = draw_int(0, 3), second = draw_int(1, 20);
    start(r);
    step(r, HB_PATH_PREFILL, 0, first, draw_int(0, first), out, state);
    int32_t at = first;
    for (int32_t k = 0; k < decodes; k++) {
        step(r, HB_PATH_DECODE, at++, 1, 0, out, state);
    }
    step(r, HB_PATH_PREFILL, at, second, draw_int(0, second), out, state);
    at += second;
    step(r, HB_PATH_DECODE, at, 1, 0, out, state);
    stop(r);
}

static const char *const class_names[N_CLASSES] = {"same sign", "ordinary", "large dt", "tiny dt",
                                                   "cancel",    "wide",     "zeros"};

static void correct_results_stay_inside(int32_t value_class) {
    struct run *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    for (int32_t kind = 0; kind < 32; kind++) { /* fp16: 17, 19, .. */
        if (kind >= 16 && (!(kind & 1) || value_class == CLASS_WIDE)) {
            continue; /* wide values leave the range of fp16 */
        }
        struct tally out = {0}, state = {0};
        out.ratio = malloc(MAX_RATIOS * sizeof(double));
        assert_non_null(out.ratio);
        for (int32_t k = 0; k < 40; k++) {
            draw_model(&r->m, value_class, 0);
            declare(r, kind);
            round_inputs(r);
            play(r, &out, &state);
        }
        print_message("%-9s act %s %-5s state %s: worst err/B out %.3f state %.3f, median B/err "
                      "%.0f, vacuous %.2f%%\n",
                      class_names[value_class],
                      kind & 16  ? "fp16"
                      : kind & 1 ? "bf16"
                                 : "fp32",
                      kind & 2 ? "chunk" : "rec", kind & 4 ? "bf16" : "fp32", out.worst,
                      state.worst, quantile(&out, 0.5),
                      100.0 * (double)out.vacuous / (double)out.n);
        free(out.ratio);
        assert_int_equal(out.outside, 0);
        assert_int_equal(state.outside, 0);
    }
    free(r);
}

static void bounds_hold_without_cancellation(void **unused) {
    (void)unused;
    correct_results_stay_inside(CLASS_SAME_SIGN);
}

static void bounds_hold_on_ordinary_values(void **unused) {
    (void)unused;
    correct_results_stay_inside(CLASS_ORDINARY);
}

static void bounds_hold_on_large_steps(void **unused) {
    (void)unused;
    correct_results_stay_inside(CLASS_LARGE_DT);
}

static void bounds_hold_on_tiny_steps(void **unused) {
    (void)unused;
    correct_results_stay_inside(CLASS_TINY_DT);
}

static void bounds_hold_on_cancelling_values(void **unused) {
    (void)unused;
    correct_results_stay_inside(CLASS_CANCEL);
}

static void bounds_hold_on_wide_values(void **unused) {
    (void)unused;
    correct_results_stay_inside(CLASS_WIDE);
}

static void bounds_hold_on_zeros(void **unused) {
    (void)unused;
    correct_results_stay_inside(CLASS_ZEROS);
}

/* The sensitivity that a bound must leave: an fp32 result off by a factor 1 + 2^-16 is outside in
 * 95 of 100 places when the values are ordinary in the sense that sums do not cancel. */
static void planted_error_of_2_to_minus_16_is_outside(void **unused) {
    (void)unused;
    struct run *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    for (int32_t chunked = 0; chunked < 2; chunked++) {
        struct tally out = {0}, state = {0};
        for (int32_t k = 0; k < 200; k++) {
            draw_model(&r->m, CLASS_SAME_SIGN, 0);
            declare(r, chunked ? 2 : 0);
            r->sim.sums = r->prefill.cs_tree = HB_CS_SEQUENTIAL;
            play(r, &out, &state);
        }
        const double seen = (double)out.planted_seen / (double)out.planted;
        const double seen_state = (double)state.planted_seen / (double)state.planted;
        print_message("planted 2^-16, %s: outside in %.2f%% of outputs, %.2f%% of state elements\n",
                      chunked ? "chunks" : "recurrence", 100.0 * seen, 100.0 * seen_state);
        assert_true(seen >= 0.95);
        assert_true(seen_state >= 0.95);
        assert_int_equal(out.outside + state.outside, 0);
    }
    free(r);
}

/* Wrong formulas on the side of the oracle; each must put some element outside, in recurrence and
 * chunks, fp32. */
static void no_change(struct model *m) {
    (void)m;
}

static void wrong_rate(struct model *m) {
    m->a[0] *= 1.0F + 0x1p-7F;
}

static void lost_bias(struct model *m) {
    m->params.dt_bias = NULL;
}

static void lost_skip(struct model *m) {
    m->params.d = NULL;
}

static void lost_clamp(struct model *m) {
    m->config.dt_clamp_prefill = HB_DT_CLAMP_NONE;
}

static void clamp_from_below_only(struct model *m) {
    m->config.dt_clamp_prefill = HB_DT_CLAMP_MIN_ONLY;
}

static void reversed_taps(struct model *m) {
    for (int32_t c = 0; c < m->dim; c++) {
        float *w = m->conv_weight + c * m->config.conv_width;
        const float first = w[0];
        w[0] = w[m->window];
        w[m->window] = first;
    }
}

static void lost_history(struct model *m) {
    memset(m->conv0, 0, sizeof(m->conv0));
}

static void lost_state(struct model *m) {
    memset(m->ssm0, 0, sizeof(m->ssm0));
}

static void other_groups(struct model *m) {
    float *b = m->xbc + m->inner;
    for (int32_t t = 0; t < MAX_LEN; t++, b += m->dim) { /* B of the first two groups exchanged */
        for (int32_t n = 0; n < m->config.state_size; n++) {
            const float keep = b[n];
            b[n] = b[m->config.state_size + n];
            b[m->config.state_size + n] = keep;
        }
    }
}

static void gate_on_the_other_side(struct model *m) {
    m->config.gate_norm = HB_GATE_NORM_BEFORE;
}

static void one_norm_group(struct model *m) {
    m->config.norm_group = m->inner;
}

static void other_eps(struct model *m) {
    m->config.norm_eps = 1e-3F;
}

static void no_activation(struct model *m) {
    m->config.conv_act = HB_CONV_NONE;
}

static void no_softplus(struct model *m) {
    m->config.dt_softplus = 0;
}

static void late_token(struct model *m) {
    m->xbc[2 * m->dim] = m->xbc[m->dim];
}

struct mutation {
    const char *name;
    void (*apply)(struct model *m);
    int32_t fires;
};

static const struct mutation mutations[] = {
    {"none", no_change, 0},
    {"rate off by 2^-7", wrong_rate, 1},
    {"bias of the step lost", lost_bias, 1},
    {"skip lost", lost_skip, 1},
    {"clamp lost", lost_clamp, 1},
    {"clamp from below only", clamp_from_below_only, 1},
    {"taps exchanged", reversed_taps, 1},
    {"conv history lost", lost_history, 1},
    {"initial state lost", lost_state, 1},
    {"groups exchanged", other_groups, 1},
    {"norm before the gate", gate_on_the_other_side, 1},
    {"norm group", one_norm_group, 1},
    {"eps 1e-3", other_eps, 1},
    {"no activation", no_activation, 1},
    {"no softplus", no_softplus, 1},
    {"one input repeated", late_token, 1},
};

/* Fixed sizes in which every mutation matters. */
static void draw_mutable(struct model *m) {
    do {
        draw_model(m, CLASS_ORDINARY, 1);
    } while (m->config.n_groups < 2 || m->config.head_dim < 2 || m->config.state_size < 4);
    m->config.norm_group = m->config.head_dim;
    m->config.dt_clamp_prefill = HB_DT_CLAMP_LIMIT;
    m->config.dt_lo = 0.25F;
    m->config.dt_hi = 1.25F;
}

/* One prefill of n tokens: the simulated backend follows right, the oracle follows wrong. */
static void compare_models(struct run *r, const struct model *right, int32_t n, struct tally *out) {
    r->sim.m = right;
    sim_start(&r->sim);
    sim_call(&r->sim, HB_PATH_PREFILL, 0, n);
    struct hb_ref_state *state = hb_ref_state_new(&r->m.config);
    assert_non_null(state);
    hb_ref_state_set(&r->m.config, state, r->m.conv0, r->m.ssm0);
    assert_int_equal(hb_ref_mamba2(&r->m.config, &r->m.params, &r->prefill, HB_PATH_PREFILL, n,
                                   r->m.z, r->m.xbc, r->m.dt, state, r->out, r->bound, r->mag, NULL,
                                   0),
                     0);
    for (int32_t i = 0; i < n * r->m.inner; i++) {
        judge(out, (double)r->sim.out[i], r->out[i], r->bound[i], r->mag[i]);
    }
    hb_ref_state_free(state);
}

static void wrong_formulas_are_outside(void **unused) {
    (void)unused;
    struct run *r = calloc(1, sizeof(*r));
    struct model *right = calloc(1, sizeof(*right));
    assert_non_null(r);
    assert_non_null(right);
    for (size_t k = 0; k < sizeof(mutations) / sizeof(mutations[0]); k++) {
        for (int32_t kind = 0; kind < 4; kind++) { /* fp32 and bf16, recurrence and chunks */
            struct tally out = {0};
            draw_mutable(right);
            copy_model(&r->m, right);
            declare(r, kind);
            mutations[k].apply(&r->m);
            compare_models(r, right, 12, &out);
            const int must = mutations[k].fires && !(kind & 1);
            if ((must && out.outside == 0) || (!mutations[k].fires && out.outside > 0)) {
                fail_msg("%s: %ld of %ld outside", mutations[k].name, (long)out.outside,
                         (long)out.n);
            }
        }
    }
    free(right);
    free(r);
}

int main(int argc, char **argv) {
    model_seed =
        argc > 1 ? strtoull(argv[1], NULL, 10) : 1; /* another seed plays other histories */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_hold_without_cancellation),
        cmocka_unit_test(bounds_hold_on_ordinary_values),
        cmocka_unit_test(bounds_hold_on_large_steps),
        cmocka_unit_test(bounds_hold_on_tiny_steps),
        cmocka_unit_test(bounds_hold_on_cancelling_values),
        cmocka_unit_test(bounds_hold_on_wide_values),
        cmocka_unit_test(bounds_hold_on_zeros),
        cmocka_unit_test(planted_error_of_2_to_minus_16_is_outside),
        cmocka_unit_test(wrong_formulas_are_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
