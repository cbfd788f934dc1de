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
        for (int32_t k = 0; k < 40; k++) {
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

int main(int argc, char **argv) {
    model_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_hold_for_every_class_of_gdn),
        cmocka_unit_test(bounds_hold_for_every_class_of_kda),
        cmocka_unit_test(bounds_hold_over_calls_that_are_not_anchored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
