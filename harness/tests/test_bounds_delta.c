/* SPDX-License-Identifier: Apache-2.0
 * The error bounds of GDN and KDA: a correct fp32, bf16 or fp16 computation stays inside in every
 * element, as recurrence or in chunks, whatever the order and the values; a planted relative error
 * of the state does not. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "harness/tests/oracle_delta_sim.h"
#include "harness/tests/oracle_tally.h"

enum { MAX_OUT = DELTA_LEN * MAX_INNER };

struct run {
    struct delta_model m;
    struct dsim sim;
    struct hb_profile prefill, decode;
    double out[MAX_OUT], bound[MAX_OUT], mag[MAX_OUT];
    struct hb_ref_state *state, *at;
};

/* How a backend computes, and the profiles it would declare. */
struct form {
    int32_t chunked, act, op_bf16, state_bf16;
};

static void declare(struct run *r, const struct form *f) {
    struct hb_profile p = plain_profile();
    struct dsim *s = &r->sim;
    static const double u_io[HB_N_FLOAT_DTYPES] = {[HB_BF16] = 0x1p-8, [HB_FP16] = 0x1p-11};
    s->m = &r->m;
    s->chunked = f->chunked;
    s->act = f->act;
    s->op_bf16 = f->op_bf16;
    s->state_bf16 = f->state_bf16;
    s->reversed = draw_int(0, 1);
    s->sums = p.cs_tree = draw_int(0, 2);
    s->late_decay = draw_int(0, 1);
    s->direct = !f->op_bf16 && draw_int(0, 1);
    s->grid = r->m.config.chunk_size >> draw_int(0, 1);
    s->first = draw_int(0, 1) ? draw_int(1, s->grid) : 0;
    p.u_io = u_io[f->act];
    p.io_floor = f->act == HB_FP16 ? 0x1p-25 : 0x1p-126;
    r->m.config.act_dtype = f->act;
    r->m.config.state_dtype = f->state_bf16 ? HB_BF16 : HB_FP32;
    r->decode = p;
    p.chunked = f->chunked;
    p.u_op = f->op_bf16 ? 0x1p-8 : 0.0;
    r->prefill = p;
}

static void start(struct run *r) {
    r->state = hb_ref_state_new(&r->m.config);
    r->at = hb_ref_state_new(&r->m.config);
    assert_non_null(r->state);
    assert_non_null(r->at);
    hb_ref_state_set(&r->m.config, r->state, r->m.conv0, r->m.ssm0);
    dsim_start(&r->sim);
}

static void stop(struct run *r) {
    hb_ref_state_free(r->state);
    hb_ref_state_free(r->at);
}

/* Beyond the range of fp32 nothing is promised: an infinite bound, or a value that the last product
 * takes out of it. */
static void judge_finite(struct tally *t, double got, double want, double bound, double mag) {
    if (fabs(want) + bound <= (double)FLT_MAX) {
        judge(t, got, want, bound, mag);
    }
}

static void judge_state(const struct run *r, const struct hb_ref_state *state,
                        const struct hb_profile *p, int32_t stores, struct tally *t) {
    for (int32_t i = 0; i < r->m.n_state; i++) {
        const double b = hb_ref_state_bound(&r->m.config, p, state, i, stores);
        judge_finite(t, (double)r->sim.ssm[i], state->h[i], b, state->m[i]);
    }
    for (int32_t i = 0; i < r->m.dim * r->m.window; i++) {
        assert_true((double)r->sim.conv[i] == state->conv[i]);
    }
}

/* One call on both sides; with tracked > 0 the state after that many tokens is compared too. */
static void step(struct run *r, int32_t path, int32_t from, int32_t n, int32_t tracked,
                 struct tally *out, struct tally *state) {
    const struct delta_model *m = &r->m;
    const struct hb_profile *p = path == HB_PATH_DECODE ? &r->decode : &r->prefill;
    assert_int_equal(hb_ref_linear(&m->config, 0, &m->params, p, path, n, m->z + from * m->inner,
                                   m->qkv + from * m->dim, m->ab + from * m->gates, r->state,
                                   r->out, r->bound, r->mag, r->at, tracked),
                     0);
    if (tracked > 0) {
        struct dsim *whole = malloc(sizeof(*whole));
        assert_non_null(whole);
        *whole = r->sim;
        dsim_call(&r->sim, path, from, tracked);
        judge_state(r, r->at, p, 1, state);
        r->sim = *whole;
        free(whole);
    }
    dsim_call(&r->sim, path, from, n);
    for (int32_t i = 0; i < n * m->inner; i++) {
        judge_finite(out, (double)r->sim.out[i], r->out[i], r->bound[i], r->mag[i]);
    }
    judge_state(r, r->state, p, 0, state);
}

/* The state that the backend stored is the start of the next call (tolerance.md 3.4). */
static void anchor(struct run *r) {
    hb_ref_state_set(&r->m.config, r->state, r->sim.conv, r->sim.ssm);
}

/* A random history: prefill, decodes, another prefill, a decode. */
static void play(struct run *r, int32_t anchored, struct tally *out, struct tally *state) {
    const int32_t first = draw_int(1, 20), decodes = draw_int(0, 3), second = draw_int(1, 20);
    int32_t at = 0;
    start(r);
    for (int32_t k = 0; k < decodes + 3; k++) {
        const int32_t is_prefill = k == 0 || k == decodes + 1;
        const int32_t n = k == 0 ? first : is_prefill ? second : 1;
        step(r, is_prefill ? HB_PATH_PREFILL : HB_PATH_DECODE, at, n,
             is_prefill ? draw_int(0, n) : 0, out, state);
        at += n;
        if (anchored) {
            anchor(r);
        }
    }
    stop(r);
}

static const char *const class_names[N_DELTA_CLASSES] = {"ordinary",  "large decay", "tiny decay",
                                                         "same keys", "opposed",     "small norms",
                                                         "wide",      "zeros"};

static const struct form forms[] = {
    {0, HB_FP32, 0, 0}, {1, HB_FP32, 0, 0}, {0, HB_BF16, 0, 0},
    {1, HB_BF16, 0, 0}, {1, HB_BF16, 1, 0}, {0, HB_FP16, 0, 0},
    {1, HB_FP16, 0, 0}, {0, HB_FP32, 0, 1}, {1, HB_BF16, 0, 1},
};

static void correct_results_stay_inside(int32_t is_kda, int32_t value_class, int32_t anchored) {
    struct run *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
        struct tally out = {0}, state = {0};
        out.ratio = malloc(MAX_RATIOS * sizeof(double));
        assert_non_null(out.ratio);
        for (int32_t k = 0; k < 12; k++) {
            draw_delta_model(&r->m, is_kda, value_class, 0);
            declare(r, &forms[f]);
            play(r, anchored, &out, &state);
        }
        print_message(
            "%s %-11s act %d op %d %-5s state %s: worst err/B out %.3f state %.3f, median "
            "B/err %.0f, vacuous out %.2f%% state %.2f%%\n",
            is_kda ? "kda" : "gdn", class_names[value_class], forms[f].act, forms[f].op_bf16,
            forms[f].chunked ? "chunk" : "rec", forms[f].state_bf16 ? "bf16" : "fp32", out.worst,
            state.worst, quantile(&out, 0.5), 100.0 * (double)out.vacuous / (double)out.n,
            100.0 * (double)state.vacuous / (double)state.n);
        free(out.ratio);
        assert_int_equal(out.outside, 0);
        assert_int_equal(state.outside, 0);
    }
    free(r);
}

static void bounds_hold_for_every_class_of_gdn(void **unused) {
    (void)unused;
    for (int32_t c = 0; c < N_DELTA_CLASSES; c++) {
        correct_results_stay_inside(0, c, 1);
    }
}

static void bounds_hold_for_every_class_of_kda(void **unused) {
    (void)unused;
    for (int32_t c = 0; c < N_DELTA_CLASSES; c++) {
        correct_results_stay_inside(1, c, 1);
    }
}

static void bounds_hold_over_calls_that_are_not_anchored(void **unused) {
    (void)unused;
    correct_results_stay_inside(0, DELTA_ORDINARY, 0);
    correct_results_stay_inside(1, DELTA_ORDINARY, 0);
}

/* The sensitivity that a bound must leave: an fp32 state off by the factor 1 + 2^-12 is outside in
 * most elements of ordinary values, in the stored state and in outputs that follow from it. */
static void planted_error_of_2_to_minus_12_in_the_state_is_outside(void **unused) {
    (void)unused;
    struct run *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    for (int32_t kind = 0; kind < 4; kind++) {
        int64_t elements = 0, seen = 0, runs = 0, runs_seen = 0, vacuous = 0, outputs = 0;
        const struct form f = {kind & 1, HB_FP32, 0, 0};
        for (int32_t k = 0; k < 60; k++) {
            struct tally out = {0}, state = {0};
            draw_delta_model(&r->m, kind >> 1, DELTA_ORDINARY, 1);
            declare(r, &f);
            r->sim.sums = r->prefill.cs_tree = HB_CS_SEQUENTIAL;
            start(r);
            step(r, HB_PATH_PREFILL, 0, draw_int(1, 2 * r->m.config.chunk_size), 0, &out, &state);
            for (int32_t i = 0; i < r->m.n_state; i++) {
                const double b = hb_ref_state_bound(&r->m.config, &r->prefill, r->state, i, 0);
                const double got = (double)r->sim.ssm[i] * (1.0 + 0x1p-12);
                elements++;
                seen += fabs(got - r->state->h[i]) > b;
                r->sim.ssm[i] = (float)got;
            }
            out.outside = 0;
            step(r, HB_PATH_DECODE, 40, 1, 0, &out, &state);
            runs++;
            runs_seen += out.outside + state.outside > 0;
            vacuous += out.vacuous;
            outputs += out.n;
            stop(r);
        }
        print_message(
            "%s %s, state off by 2^-12: outside in %.1f%% of elements, noticed by the next "
            "token in %.1f%% of runs; vacuous %.2f%%\n",
            kind >> 1 ? "kda" : "gdn", kind & 1 ? "chunks" : "recurrence",
            100.0 * (double)seen / (double)elements, 100.0 * (double)runs_seen / (double)runs,
            100.0 * (double)vacuous / (double)outputs);
        assert_true((double)seen >= 0.4 * (double)elements);
        assert_true((double)runs_seen >= 0.95 * (double)runs);
        assert_true((double)vacuous < 0.01 * (double)outputs);
    }
    free(r);
}

/* Wrong formulas on the side of the oracle; each must put some element outside. */
static void no_change(struct delta_model *m) {
    (void)m;
}

static void other_heads(struct delta_model *m) {
    m->config.head_map = HB_HEADS_TILE;
}

static void norm_without_sum(struct delta_model *m) {
    m->config.l2norm = HB_L2_MAX_EPS;
}

static void no_norm(struct delta_model *m) {
    m->config.l2norm = HB_L2_OFF;
}

static void double_beta(struct delta_model *m) {
    m->config.beta_form = HB_BETA_DOUBLE;
}

static void raw_beta(struct delta_model *m) {
    m->config.beta_form = HB_BETA_RAW;
}

static void bounded_gate(struct delta_model *m) {
    m->config.gate_form = HB_GATE_LOWER_BOUND;
}

static void sigmoid_gate(struct delta_model *m) {
    m->config.out_gate = HB_OUT_SIGMOID;
}

static void no_softplus(struct delta_model *m) {
    m->config.dt_softplus = 0;
}

static void no_scale(struct delta_model *m) {
    m->config.qk_scale = 1.0F;
}

static void lost_state(struct delta_model *m) {
    memset(m->ssm0, 0, sizeof m->ssm0);
}

static void swapped_q_and_k(struct delta_model *m) {
    const int32_t keys = m->config.n_groups * m->config.state_size;
    for (int32_t i = 0; i < DELTA_LEN * m->dim; i++) {
        if (i % m->dim < keys) {
            const float keep = m->qkv[i];
            m->qkv[i] = m->qkv[i + keys];
            m->qkv[i + keys] = keep;
        }
    }
}

static void lost_bias(struct delta_model *m) {
    m->params.dt_bias = NULL;
}

static void wrong_rate(struct delta_model *m) {
    m->a[0] *= 1.0F + 0x1p-7F;
}

static const struct mutation {
    const char *name;
    void (*apply)(struct delta_model *m);
    int32_t fires, value_class, kda_only;
} mutations[] = {
    {"none", no_change, 0, DELTA_ORDINARY, 0},
    {"head_map", other_heads, 1, DELTA_ORDINARY, 0},
    {"l2norm: largest of norm and epsilon", norm_without_sum, 1, DELTA_SMALL_NORMS, 0},
    {"l2norm off", no_norm, 1, DELTA_ORDINARY, 0},
    {"beta_form double", double_beta, 1, DELTA_ORDINARY, 0},
    {"beta_form raw", raw_beta, 1, DELTA_ORDINARY, 0},
    {"gate_form", bounded_gate, 1, DELTA_ORDINARY, 1},
    {"out_gate", sigmoid_gate, 1, DELTA_ORDINARY, 0},
    {"dt_softplus", no_softplus, 1, DELTA_ORDINARY, 0},
    {"qk_scale", no_scale, 1, DELTA_ORDINARY, 0},
    {"initial state lost", lost_state, 1, DELTA_ORDINARY, 0},
    {"q and k exchanged", swapped_q_and_k, 1, DELTA_ORDINARY, 0},
    {"bias lost", lost_bias, 1, DELTA_ORDINARY, 0},
    {"rate off by 2^-7", wrong_rate, 1, DELTA_ORDINARY, 0},
};

/* Sizes in which every mutation matters; no norm after the rule, which would hide the scale. */
static void draw_mutable(struct delta_model *m, int32_t is_kda, int32_t value_class) {
    do {
        draw_delta_model(m, is_kda, value_class, 1);
    } while (m->config.n_groups != 2 || m->config.head_dim < 2 || m->config.state_size < 4);
    m->config.gate_norm = HB_GATE_ONLY;
}

/* One prefill: the simulated backend follows right, the oracle the changed model. */
static int64_t outside_of(struct run *r, const struct delta_model *right) {
    struct tally out = {0};
    r->sim.m = right;
    dsim_start(&r->sim);
    dsim_call(&r->sim, HB_PATH_PREFILL, 0, 12);
    struct hb_ref_state *state = hb_ref_state_new(&r->m.config);
    assert_non_null(state);
    hb_ref_state_set(&r->m.config, state, r->m.conv0, r->m.ssm0);
    assert_int_equal(hb_ref_linear(&r->m.config, 0, &r->m.params, &r->prefill, HB_PATH_PREFILL, 12,
                                   r->m.z, r->m.qkv, r->m.ab, state, r->out, r->bound, r->mag, NULL,
                                   0),
                     0);
    for (int32_t i = 0; i < 12 * r->m.inner; i++) {
        judge_finite(&out, (double)r->sim.out[i], r->out[i], r->bound[i], r->mag[i]);
    }
    hb_ref_state_free(state);
    return out.outside;
}

static void wrong_formulas_are_outside(void **unused) {
    (void)unused;
    struct run *r = calloc(1, sizeof(*r));
    struct delta_model *right = calloc(1, sizeof(*right));
    assert_true(r != NULL && right != NULL);
    for (size_t k = 0; k < sizeof(mutations) / sizeof(mutations[0]); k++) {
        for (int32_t kind = mutations[k].kda_only ? 4 : 0; kind < 8; kind++) {
            const struct form f = {kind & 1, kind & 2 ? HB_BF16 : HB_FP32, 0, 0};
            draw_mutable(right, kind >> 2, mutations[k].value_class);
            copy_delta_model(&r->m, right);
            declare(r, &f);
            mutations[k].apply(&r->m);
            const int64_t outside = outside_of(r, right);
            const int must = mutations[k].fires && !(kind & 2);
            if ((must && outside == 0) || (!mutations[k].fires && outside > 0)) {
                fail_msg("%s, form %d: %ld outside", mutations[k].name, kind, (long)outside);
            }
        }
    }
    free(right);
    free(r);
}

int main(int argc, char **argv) {
    model_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_hold_for_every_class_of_gdn),
        cmocka_unit_test(bounds_hold_for_every_class_of_kda),
        cmocka_unit_test(bounds_hold_over_calls_that_are_not_anchored),
        cmocka_unit_test(planted_error_of_2_to_minus_12_in_the_state_is_outside),
        cmocka_unit_test(wrong_formulas_are_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
