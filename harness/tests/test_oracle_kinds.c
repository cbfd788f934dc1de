/* SPDX-License-Identifier: Apache-2.0
 * Lightning attention, Mamba1 and the short convolution in the oracle: closed forms, splits of a
 * call, identities with Mamba2, conv states of either length, the range of fp16. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "harness/tests/oracle_mixer.h"

static void assert_close(double got, double want, double scale, double tol) {
    if (!(fabs(got - want) <= tol * (scale + fabs(want)))) {
        fail_msg("got %.17g, want %.17g, scale %g", got, want, scale);
    }
}

static struct hb_ref_state *new_state(const struct hb_config *c) {
    struct hb_ref_state *s = hb_ref_state_new(c);
    assert_non_null(s);
    return s;
}

struct twin {
    struct mixer m;
    double out[2][MIX_LEN * MIX_INNER], mag[MIX_LEN * MIX_INNER];
    struct hb_ref_state *state[2];
};

static struct twin *new_twin(int32_t kind) {
    struct twin *w = calloc(1, sizeof *w);
    assert_non_null(w);
    draw_mixer(&w->m, kind, CLASS_ORDINARY, HB_FP32, 0);
    return w;
}

static void start_twin(struct twin *w) {
    for (int i = 0; i < 2; i++) {
        w->state[i] = new_state(&w->m.config);
        hb_ref_state_set(&w->m.config, w->state[i], w->m.conv0, w->m.ssm0);
    }
}

static void free_twin(struct twin *w) {
    hb_ref_state_free(w->state[0]);
    hb_ref_state_free(w->state[1]);
    free(w);
}

static void assert_same_states(const struct twin *w) {
    for (int64_t i = 0; i < w->m.size.n_state; i++) {
        assert_true(w->state[0]->h[i] == w->state[1]->h[i]);
    }
    for (int64_t i = 0; i < w->m.size.channels * w->m.size.window; i++) {
        assert_true(w->state[0]->conv[i] == w->state[1]->conv[i]);
    }
}

/* Any split of a prefill, decode steps included, gives the same numbers; a tracked state is that of
 * the shorter call. */
static void splits_and_tracking_give_the_same_numbers(void **unused) {
    (void)unused;
    static const int32_t kinds[3] = {HB_LAYER_LIGHTNING, HB_LAYER_MAMBA1, HB_LAYER_SHORT_CONV};
    const struct hb_profile p = plain_profile();
    for (int32_t k = 0; k < 60; k++) {
        struct twin *w = new_twin(kinds[k % 3]);
        const struct mixer *m = &w->m;
        const int32_t n = draw_int(2, 20), cut = draw_int(1, n - 1);
        const int64_t inner = m->size.width[3];
        start_twin(w);
        struct hb_ref_state *at = new_state(&m->config);
        assert_int_equal(hb_ref_linear(&m->config, m->layer, &m->params, &p, HB_PATH_PREFILL, n,
                                       m->in[0], m->in[1], m->in[2], w->state[0], w->out[0], NULL,
                                       NULL, at, cut),
                         0);
        assert_int_equal(
            mixer_call(m, &p, HB_PATH_PREFILL, 0, cut, w->state[1], w->out[1], NULL, NULL), 0);
        for (int64_t i = 0; i < m->size.n_state; i++) {
            assert_true(at->h[i] == w->state[1]->h[i]);
        }
        for (int64_t i = 0; i < m->size.channels * m->size.window; i++) {
            assert_true(at->conv[i] == w->state[1]->conv[i]);
        }
        for (int32_t t = cut; t < n; t++) {
            assert_int_equal(mixer_call(m, &p, HB_PATH_DECODE, t, 1, w->state[1],
                                        w->out[1] + t * inner, NULL, NULL),
                             0);
        }
        assert_same_states(w);
        for (int64_t i = 0; i < n * inner; i++) {
            assert_true(w->out[0][i] == w->out[1][i]);
        }
        hb_ref_state_free(at);
        free_twin(w);
    }
}

/* The Mamba2 layer with a step of 1, an identity convolution and A = -slope. */
static void lightning_is_mamba2_with_unit_steps(void **unused) {
    (void)unused;
    const struct hb_profile p = plain_profile();
    for (int32_t k = 0; k < 30; k++) {
        struct twin *w = new_twin(HB_LAYER_LIGHTNING);
        struct mixer *m = &w->m;
        struct hb_config *c = &m->config;
        static float taps[MIX_WIDE * 4], ones[MIX_LEN * 4], rows[MIX_LEN * MIX_WIDE];
        c->slope_kind = HB_SLOPE_PARAM;
        c->qkv_act = HB_QKV_NONE;
        c->qk_scale = 1.0F;
        point_mixer(m, 1, 1);
        hb_ref_linear_sizes(c, HB_LAYER_LIGHTNING, &m->size);
        start_twin(w);
        assert_int_equal(
            mixer_call(m, &p, HB_PATH_PREFILL, 0, 12, w->state[0], w->out[0], NULL, w->mag), 0);
        struct hb_config plain = *c;
        plain.layer_kind[0] = HB_LAYER_MAMBA2;
        plain.conv_act = HB_CONV_NONE;
        plain.dt_softplus = 0;
        const int64_t keys = (int64_t)c->n_groups * c->state_size, inner = m->size.width[3];
        const int64_t width = inner + 2 * keys;
        for (int64_t i = 0; i < width * c->conv_width; i++) {
            taps[i] = i % c->conv_width == c->conv_width - 1 ? 1.0F : 0.0F;
        }
        for (int32_t i = 0; i < MIX_LEN * 4; i++) {
            ones[i] = 1.0F;
        }
        for (int64_t i = 0; i < 12 * width; i++) { /* x | B | C = v | k | q */
            const int64_t t = i / width, j = i % width;
            const int64_t from = j < inner          ? 2 * keys + j
                                 : j < inner + keys ? j - inner + keys
                                                    : j - inner - keys;
            rows[i] = m->in[1][t * width + from];
        }
        const struct hb_layer_params params = {
            .conv_weight = taps, .a = m->a, .norm_weight = m->norm_weight};
        struct hb_ref_state *s = new_state(&plain);
        hb_ref_state_set(&plain, s, NULL, m->ssm0);
        assert_int_equal(hb_ref_mamba2(&plain, &params, &p, HB_PATH_PREFILL, 12, m->in[0], rows,
                                       ones, s, w->out[1], NULL, NULL, NULL, 0),
                         0);
        for (int64_t i = 0; i < 12 * inner; i++) {
            assert_close(w->out[0][i], w->out[1][i], w->mag[i], 1e-13);
        }
        for (int64_t i = 0; i < m->size.n_state; i++) {
            assert_close(s->h[i], w->state[0]->h[i], w->state[0]->m[i], 1e-14);
        }
        hb_ref_state_free(s);
        free_twin(w);
    }
}

/* State of Mamba1 from its definition: sum of what each token brought, decayed since. */
static void mamba1_equals_the_unrolled_sum(void **unused) {
    (void)unused;
    const struct hb_profile p = plain_profile();
    for (int32_t k = 0; k < 20; k++) {
        struct twin *w = new_twin(HB_LAYER_MAMBA1);
        struct mixer *m = &w->m;
        struct hb_config *c = &m->config;
        c->gate_norm = HB_GATE_NORM_NONE;
        c->conv_act = HB_CONV_NONE;
        const int64_t inner = m->size.width[3], size = c->state_size, gates = m->size.width[2];
        start_twin(w);
        memset(m->conv0, 0, sizeof m->conv0);
        hb_ref_state_set(c, w->state[0], m->conv0, m->ssm0);
        enum { N = 9 };
        assert_int_equal(
            mixer_call(m, &p, HB_PATH_PREFILL, 0, N, w->state[0], w->out[0], NULL, w->mag), 0);
        for (int64_t i = 0; i < inner; i++) {
            double x[N] = {0}, dt[N], y = 0.0;
            for (int t = 0; t < N; t++) {
                const double a = (double)m->in[2][t * gates + i] +
                                 (m->params.dt_bias ? (double)m->dt_bias[i] : 0.0);
                dt[t] = c->dt_softplus ? log(1.0 + exp(a)) : a;
                x[t] = m->params.conv_bias ? (double)m->conv_bias[i] : 0.0;
                for (int j = 0; j < c->conv_width && j <= t; j++) {
                    x[t] += (double)m->conv_weight[i * c->conv_width + c->conv_width - 1 - j] *
                            (double)m->in[1][(t - j) * inner + i];
                }
            }
            for (int64_t n = 0; n < size; n++) {
                const double a = (double)m->a[i * size + n];
                double sum = 0.0, h = 0.0;
                for (int t = N - 1; t >= 0; t--) {
                    h += exp(a * sum) * dt[t] * x[t] * (double)m->in[2][t * gates + inner + n];
                    sum += dt[t];
                }
                h += exp(a * sum) * (double)m->ssm0[i * size + n];
                assert_close(w->state[0]->h[i * size + n], h, w->state[0]->m[i * size + n], 1e-12);
                y += h * (double)m->in[2][(N - 1) * gates + inner + size + n];
            }
            y += m->params.d ? (double)m->d[i] * x[N - 1] : 0.0;
            assert_close(w->out[0][(N - 1) * inner + i], y, w->mag[(N - 1) * inner + i], 1e-12);
        }
        free_twin(w);
    }
}

/* Prompts shorter than the width, then decode: y[t] = C[t] sum_j w_j (B x)[t - (K-1) + j]. */
static void short_conv_equals_the_direct_sum(void **unused) {
    (void)unused;
    const struct hb_profile p = plain_profile();
    for (int32_t k = 0; k < 40; k++) {
        struct twin *w = new_twin(HB_LAYER_SHORT_CONV);
        const struct mixer *m = &w->m;
        const struct hb_config *c = &m->config;
        const int64_t inner = m->size.width[3];
        const int32_t width = c->conv_width, n = 6, first = draw_int(1, 3);
        start_twin(w);
        hb_ref_state_zero(c, w->state[0]);
        assert_int_equal(
            mixer_call(m, &p, HB_PATH_PREFILL, 0, first, w->state[0], w->out[0], NULL, w->mag), 0);
        for (int32_t t = first; t < n; t++) {
            assert_int_equal(mixer_call(m, &p, HB_PATH_DECODE, t, 1, w->state[0],
                                        w->out[0] + t * inner, NULL, w->mag + t * inner),
                             0);
        }
        for (int64_t i = 0; i < n * inner; i++) {
            const int64_t t = i / inner, ch = i % inner;
            double sum = m->params.conv_bias ? (double)m->conv_bias[ch] : 0.0;
            for (int32_t j = 0; j < width && j <= t; j++) {
                const float *row = m->in[1] + (t - j) * 3 * inner;
                sum += (double)m->conv_weight[ch * width + width - 1 - j] *
                       (double)(row[ch] * row[2 * inner + ch]);
            }
            const double want = sum * (double)m->in[1][t * 3 * inner + inner + ch];
            assert_close(w->out[0][i], want, w->mag[i], 1e-14);
        }
        for (int64_t ch = 0; ch < inner; ch++) { /* the state: the newest last */
            const float *row = m->in[1] + (n - 1) * 3 * inner;
            assert_true(w->state[0]->conv[(ch + 1) * m->size.window - 1] ==
                        (double)(row[ch] * row[2 * inner + ch]));
        }
        free_twin(w);
    }
}

/* B x is rounded to the type before anything is done with it: the state holds numbers of the type,
 * ties go to the even one, and what leaves the range is infinite. */
static void short_conv_rounds_the_product(void **unused) {
    (void)unused;
    static const struct {
        int32_t act;
        float b, x;
        double want;
    } rows[] = {
        {HB_FP32, 3.0F, 1.25F, 3.75},
        {HB_BF16, 1.0078125F, 1.0078125F, 1.015625}, /* 1.01568603515625 */
        {HB_BF16, 1.5F, 1.0078125F, 1.515625},       /* 1.51171875: a tie, to even */
        {HB_BF16, -1.5F, 1.0078125F, -1.515625},
        {HB_FP16, 1.0009765625F, 1.5F, 1.501953125}, /* 1.50146484375: a tie, to even */
        {HB_FP16, 256.0F, 256.0F, INFINITY},         /* 65536 */
        {HB_FP16, -256.0F, 255.9375F, -INFINITY},    /* 65520: half a step beyond 65504 */
        {HB_FP16, 256.0F, 255.875F, 65504.0},
        {HB_FP16, 0x1p-12F, 0x1.8p-12F, 0x1p-23}, /* 1.5 least steps: to even, 2 */
        {HB_FP16, 0x1p-12F, 0x1p-13F, 0.0},       /* half of the least step */
        {HB_BF16, 0.0F, -2.0F, -0.0},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const struct hb_config c = {.n_layers = 1,
                                    .layer_kind = {HB_LAYER_SHORT_CONV},
                                    .n_heads = 1,
                                    .head_dim = 1,
                                    .n_groups = 1,
                                    .state_size = 1,
                                    .conv_width = 2,
                                    .chunk_size = 4,
                                    .act_dtype = rows[k].act};
        const float weight[2] = {0.0F, 1.0F}, in[3] = {rows[k].b, 1.0F, rows[k].x};
        const struct hb_layer_params params = {.conv_weight = weight};
        const struct hb_profile p = plain_profile();
        double out = 0.0, bound = 0.0;
        struct hb_ref_state *s = new_state(&c);
        assert_int_equal(hb_ref_linear(&c, 0, &params, &p, HB_PATH_DECODE, 1, NULL, in, NULL, s,
                                       &out, &bound, NULL, NULL, 0),
                         0);
        assert_true(s->conv[0] == rows[k].want);
        assert_true(isinf(rows[k].want) || out == rows[k].want);
        assert_int_equal(isinf(bound) != 0, fabs(rows[k].want) > 65000.0);
        hb_ref_state_free(s);
    }
}

/* With K columns the oldest is kept, and never read. */
static void a_full_conv_state_holds_one_more_input(void **unused) {
    (void)unused;
    const struct hb_profile p = plain_profile();
    for (int32_t k = 0; k < 20; k++) {
        struct twin *w = new_twin(k % 2 ? HB_LAYER_SHORT_CONV : HB_LAYER_MAMBA1);
        struct mixer *m = &w->m;
        m->config.conv_state_len = HB_CONV_STATE_FULL;
        hb_ref_linear_sizes(&m->config, m->kind, &m->size);
        const int64_t columns = m->size.window, n = draw_int(1, 5);
        assert_int_equal(columns, m->config.conv_width);
        start_twin(w);
        for (int64_t ch = 0; ch < m->size.channels; ch++) {
            w->state[1]->conv[ch * columns] = 1e3; /* the oldest */
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(mixer_call(m, &p, HB_PATH_PREFILL, 0, (int32_t)n, w->state[i],
                                        w->out[i], NULL, NULL),
                             0);
        }
        for (int64_t i = 0; i < n * m->size.width[3]; i++) {
            assert_true(w->out[0][i] == w->out[1][i]);
        }
        for (int64_t i = 0; i < m->size.channels * columns; i++) {
            assert_true(w->state[0]->conv[i] == w->state[1]->conv[i]);
            const int64_t old = i % columns + n; /* where an input of the start is now */
            if (old < columns) {
                assert_true(w->state[0]->conv[i] == (double)m->conv0[i / columns * columns + old]);
            }
        }
        free_twin(w);
    }
}

/* What leaves the range of fp16 between two stages is not judged. */
static void an_overflow_of_fp16_is_not_judged(void **unused) {
    (void)unused;
    for (int32_t k = 0; k < 2; k++) {
        const struct hb_config c = {.n_layers = 1,
                                    .layer_kind = {HB_LAYER_LIGHTNING},
                                    .n_heads = 1,
                                    .head_dim = 1,
                                    .n_groups = 1,
                                    .state_size = 1,
                                    .chunk_size = 4,
                                    .act_dtype = k ? HB_FP16 : HB_FP32,
                                    .gate_norm = HB_GATE_ONLY,
                                    .slope_kind = HB_SLOPE_TOKEN,
                                    .qk_scale = 1.0F};
        const struct hb_profile p = plain_profile();
        const struct hb_layer_params params = {0};
        const float qkv[3] = {300.0F, 300.0F, 1.0F}, gate = -10.0F, decay = 0.0F;
        double out, bound, mag;
        struct hb_ref_state *s = new_state(&c);
        assert_int_equal(hb_ref_linear(&c, 0, &params, &p, HB_PATH_DECODE, 1, &gate, qkv, &decay, s,
                                       &out, &bound, &mag, NULL, 0),
                         0);
        assert_true(isfinite(out)); /* 9e4 silu(-10) */
        assert_int_equal(isinf(bound) != 0, k);
        hb_ref_state_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_and_tracking_give_the_same_numbers),
        cmocka_unit_test(lightning_is_mamba2_with_unit_steps),
        cmocka_unit_test(mamba1_equals_the_unrolled_sum),
        cmocka_unit_test(short_conv_equals_the_direct_sum),
        cmocka_unit_test(short_conv_rounds_the_product),
        cmocka_unit_test(a_full_conv_state_holds_one_more_input),
        cmocka_unit_test(an_overflow_of_fp16_is_not_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
