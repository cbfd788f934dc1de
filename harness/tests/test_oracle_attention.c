/* SPDX-License-Identifier: Apache-2.0
 * Attention of the float64 oracle: values against direct sums, windows and soft cap included, and
 * the bound against an online softmax in fp32 and with the roundings of a 16-bit kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "harness/tests/oracle_model.h"
#include "harness/tests/oracle_tally.h"
#include "harness/values.h"

static void assert_close(double got, double want, double scale, double tol) {
    if (!(fabs(got - want) <= tol * (scale + fabs(want)))) {
        fail_msg("got %.17g, want %.17g, scale %g", got, want, scale);
    }
}

static void attention_equals_direct_sums(void **unused) {
    (void)unused;
    enum { D = 5, HQ = 4, HKV = 2, CTX = 300 };
    static float q[HQ * D], keys[CTX * HKV * D], values[CTX * HKV * D];
    double out[HQ * D], bound[HQ * D], mag[HQ * D];
    const struct hb_profile p = plain_profile();
    struct hb_config c = {.n_q_heads = HQ, .n_kv_heads = HKV, .attn_dim = D};
    static const int32_t lengths[5] = {1, 2, 17, 256, CTX};
    for (int32_t k = 0; k < 10; k++) {
        const int32_t n = lengths[k % 5];
        c.sm_scale = k < 5 ? 0.0F : 0.7F;
        const double scale = k < 5 ? pow(D, -0.5) : (double)0.7F;
        fill_uniform(q, HQ * D, -3.0F, 3.0F);
        fill_uniform(keys, n * HKV * D, -3.0F, 3.0F);
        fill_uniform(values, n * HKV * D, -3.0F, 3.0F);
        hb_ref_attention(&c, &p, n, q, keys, values, out, bound, mag);
        for (int32_t i = 0; i < HQ * D; i++) {
            const int32_t kv = i / D / (HQ / HKV);
            double num = 0.0, den = 0.0;
            for (int32_t j = n - 1; j >= 0; j--) {
                double l = 0.0;
                for (int32_t e = 0; e < D; e++) {
                    l += (double)q[i / D * D + e] * (double)keys[(j * HKV + kv) * D + e];
                }
                num += exp(scale * l) * (double)values[(j * HKV + kv) * D + i % D];
                den += exp(scale * l);
            }
            assert_close(out[i], num / den, mag[i], 1e-13);
            assert_true(bound[i] > 0.0 && bound[i] < 1e-3 * mag[i]);
        }
    }
}

static void attention_over_nothing_is_exactly_zero(void **unused) {
    (void)unused;
    double out[4] = {1, 1, 1, 1}, bound[4] = {1, 1, 1, 1}, mag[4] = {1, 1, 1, 1};
    const float q[4] = {1, 2, 3, 4};
    const struct hb_profile p = plain_profile();
    const struct hb_config c = {.n_q_heads = 2, .n_kv_heads = 1, .attn_dim = 2};
    hb_ref_attention(&c, &p, 0, q, NULL, NULL, out, bound, mag);
    for (int32_t i = 0; i < 4; i++) {
        assert_true(out[i] == 0.0 && bound[i] == 0.0 && mag[i] == 0.0);
    }
}

static void attention_with_a_nan_key_is_not_judged(void **unused) {
    (void)unused;
    double out[4], bound[4], mag[4];
    const float q[4] = {1, 2, 3, 4}, v[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    float keys[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const struct hb_profile p = plain_profile();
    const struct hb_config c = {.n_q_heads = 2, .n_kv_heads = 2, .attn_dim = 2};
    keys[2 * 2 + 1] = NAN; /* second key of the first KV head */
    hb_ref_attention(&c, &p, 2, q, keys, v, out, bound, mag);
    assert_true(isinf(bound[0]) && isinf(bound[1]) && isinf(mag[0]));
    assert_true(isfinite(bound[2]) && isfinite(bound[3]) && isfinite(out[2]));
}

/* o of query head h by the definition: keys j of position p = n - 1 with p - j < w, or p - j <= w.
 */
static void direct_head(const struct hb_config *c, int32_t n, const float *q, const float *keys,
                        const float *values, int32_t h, double *out) {
    const int32_t dim = c->attn_dim, kv = h / (c->n_q_heads / c->n_kv_heads);
    const double scale = c->sm_scale != 0.0F ? (double)c->sm_scale : pow(dim, -0.5);
    const double cap = (double)c->attn_softcap;
    double den = 0.0;
    memset(out, 0, (size_t)dim * sizeof *out);
    for (int32_t j = 0; j < n; j++) {
        const int32_t gap = n - 1 - j, w = c->attn_window;
        const float *key = keys + (j * c->n_kv_heads + kv) * dim;
        const float *value = values + (j * c->n_kv_heads + kv) * dim;
        double l = 0.0;
        if (w > 0 && !(c->window_rule == HB_WINDOW_INCLUSIVE ? gap <= w : gap < w)) {
            continue;
        }
        for (int32_t i = 0; i < dim; i++) {
            l += scale * (double)q[h * dim + i] * (double)key[i];
        }
        l = cap > 0.0 ? cap * tanh(l / cap) : l;
        for (int32_t i = 0; i < dim; i++) {
            out[i] += exp(l) * (double)value[i];
        }
        den += exp(l);
    }
    for (int32_t i = 0; i < dim; i++) {
        out[i] /= den;
    }
}

static void windows_and_soft_cap_equal_direct_sums(void **unused) {
    (void)unused;
    enum { D = 3, HQ = 4, HKV = 2, CTX = 290 };
    static float q[HQ * D], keys[CTX * HKV * D], values[CTX * HKV * D];
    static const int32_t windows[] = {0, 1, 2, 31, 288, 289, 290, 291, 1000};
    double out[HQ * D], bound[HQ * D], mag[HQ * D], want[D];
    const struct hb_profile p = plain_profile();
    fill_uniform(q, HQ * D, -3.0F, 3.0F);
    fill_uniform(keys, CTX * HKV * D, -3.0F, 3.0F);
    fill_uniform(values, CTX * HKV * D, -3.0F, 3.0F);
    for (int32_t k = 0; k < 9 * 4; k++) {
        const struct hb_config c = {.n_q_heads = HQ,
                                    .n_kv_heads = HKV,
                                    .attn_dim = D,
                                    .attn_window = windows[k / 4],
                                    .window_rule = k % 2,
                                    .attn_softcap = k & 2 ? 1.5F : 0.0F};
        hb_ref_attention(&c, &p, CTX, q, keys, values, out, bound, mag);
        for (int32_t h = 0; h < HQ; h++) {
            direct_head(&c, CTX, q, keys, values, h, want);
            for (int32_t i = 0; i < D; i++) {
                assert_close(out[h * D + i], want[i], mag[h * D + i], 1e-13);
                assert_true(bound[h * D + i] < 1e-3 * mag[h * D + i]);
            }
        }
    }
}

static void keys_before_the_window_are_not_read(void **unused) {
    (void)unused;
    double out[2][2], bound[2], mag[2];
    const float q[2] = {1, 2}, v[6] = {NAN, NAN, 3, 4, 5, 6};
    const float keys[6] = {NAN, INFINITY, 1, -1, 2, 0.5F};
    const struct hb_profile p = plain_profile();
    struct hb_config c = {.n_q_heads = 1, .n_kv_heads = 1, .attn_dim = 2, .attn_window = 2};
    hb_ref_attention(&c, &p, 3, q, keys, v, out[0], bound, mag);
    assert_true(isfinite(out[0][0]) && isfinite(bound[0]));
    c.attn_window = 1;
    c.window_rule = HB_WINDOW_INCLUSIVE; /* the same two keys */
    hb_ref_attention(&c, &p, 3, q, keys, v, out[1], bound, mag);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    c.attn_window = 2;
    hb_ref_attention(&c, &p, 3, q, keys, v, out[1], bound, mag);
    assert_true(isinf(bound[0]));
}

/* Attention in fp32 with the online softmax in blocks of block keys, counted from the start of the
 * context; weights rounded to the activation type where the profile says so. */
struct attention_case {
    struct hb_config config;
    int32_t n_ctx, block, act, rounds;
    float q[64], keys[64 * 128], values[64 * 128];
    float out[64];
};

/* Logit as a kernel forms it; -inf outside the window. */
static float sim_logit(const struct attention_case *a, int32_t h, int32_t j, int32_t stride) {
    const struct hb_config *c = &a->config;
    const int32_t dim = c->attn_dim, kv = h / (c->n_q_heads / c->n_kv_heads);
    const float scale = c->sm_scale != 0.0F ? c->sm_scale : 1.0F / sqrtf((float)dim);
    const int32_t gap = a->n_ctx - 1 - j - (c->window_rule == HB_WINDOW_INCLUSIVE ? 1 : 0);
    float dot = 0.0F;
    if (c->attn_window > 0 && gap >= c->attn_window) {
        return -INFINITY;
    }
    for (int32_t i = 0; i < dim; i++) {
        dot += a->q[h * dim + i] * a->keys[j * stride + kv * dim + i];
    }
    dot *= scale;
    return c->attn_softcap > 0.0F ? c->attn_softcap * tanhf(dot / c->attn_softcap) : dot;
}

static float sim_round(const struct attention_case *a, float x) {
    return a->act == HB_FP16   ? hb_fp16_to_float(hb_fp16_from_float(x))
           : a->act == HB_BF16 ? round_bf16(x)
                               : x;
}

static void sim_attention_head(struct attention_case *a, int32_t h) {
    const struct hb_config *c = &a->config;
    const int32_t dim = c->attn_dim, kv = h / (c->n_q_heads / c->n_kv_heads),
                  stride = c->n_kv_heads * dim;
    float top = -INFINITY, sum = 0.0F, acc[64] = {0};
    for (int32_t j0 = 0; j0 < a->n_ctx; j0 += a->block) {
        const int32_t j1 = j0 + a->block < a->n_ctx ? j0 + a->block : a->n_ctx;
        float l[128], next = top;
        for (int32_t j = j0; j < j1; j++) {
            l[j - j0] = sim_logit(a, h, j, stride);
            next = fmaxf(next, l[j - j0]);
        }
        if (isinf(next)) { /* nothing but keys outside the window so far */
            continue;
        }
        const float shrink = expf(top - next);
        sum *= shrink;
        for (int32_t i = 0; i < dim; i++) {
            acc[i] *= shrink;
        }
        for (int32_t j = j0; j < j1; j++) {
            const float w = expf(l[j - j0] - next);
            sum += w;
            for (int32_t i = 0; i < dim; i++) {
                acc[i] += (a->rounds ? sim_round(a, w) : w) * a->values[j * stride + kv * dim + i];
            }
        }
        top = next;
    }
    for (int32_t i = 0; i < dim; i++) {
        a->out[h * dim + i] = sim_round(a, acc[i] / sum);
    }
}

static void draw_attention(struct attention_case *a, int32_t k) {
    static const int32_t heads[3][2] = {{1, 1}, {4, 2}, {4, 4}};
    const float width = k % 3 == 0   ? 0.5F
                        : k % 3 == 1 ? 3.0F
                                     : 12.0F; /* flat, peaked, one key takes all */
    a->config.n_q_heads = heads[k % 3][0];
    a->config.n_kv_heads = heads[k % 3][1];
    a->config.attn_dim = draw_int(1, 16);
    a->config.sm_scale = draw_int(0, 1) ? 0.3F : 0.0F;
    a->n_ctx = draw_int(1, 128);
    a->act = draw_int(0, 2);
    a->rounds = a->act != HB_FP32 && draw_int(0, 1);
    a->config.act_dtype = a->act;
    a->config.attn_window = draw_int(0, 1) ? draw_int(1, a->n_ctx + 1) : 0;
    a->config.window_rule = draw_int(0, 1);
    a->config.attn_softcap = draw_int(0, 1) ? 2.5F * (float)draw_int(1, 8) : 0.0F;
    a->block = draw_int(1, 128);
    fill_uniform(a->q, 64, -width, width);
    fill_uniform(a->keys, 64 * 128, -width, width);
    fill_uniform(a->values, 64 * 128, -1.0F, 1.0F);
    for (int32_t i = 0; i < 64 * 128 && draw_int(0, 3) == 0; i++) {
        a->values[i] = i % 2 ? 1.0F : -0.99F; /* cancelling */
    }
    for (int32_t i = 0; i < 64 * 128; i++) {
        a->keys[i] = sim_round(a, a->keys[i]);
        a->values[i] = sim_round(a, a->values[i]);
        a->q[i % 64] = sim_round(a, a->q[i % 64]);
    }
}

static struct hb_profile profile_of(const struct attention_case *a) {
    static const double u_io[HB_N_FLOAT_DTYPES] = {0.0, 0x1p-8, 0x1p-11};
    struct hb_profile p = plain_profile();
    p.attn_block = a->block;
    p.u_io = u_io[a->act];
    p.u_op = a->rounds ? p.u_io : 0.0;
    p.io_floor = a->act == HB_FP16 ? 0x1p-25 : 0x1p-126;
    return p;
}

static void attention_stays_inside(void **unused) {
    (void)unused;
    struct attention_case *a = calloc(1, sizeof(*a));
    double out[64], bound[64], mag[64];
    struct tally t = {0}, late = {0};
    t.ratio = malloc(MAX_RATIOS * sizeof(double));
    assert_non_null(a);
    assert_non_null(t.ratio);
    for (int32_t k = 0; k < 1200; k++) {
        draw_attention(a, k);
        const struct hb_profile p = profile_of(a);
        hb_ref_attention(&a->config, &p, a->n_ctx, a->q, a->keys, a->values, out, bound, mag);
        for (int32_t h = 0; h < a->config.n_q_heads; h++) {
            sim_attention_head(a, h);
        }
        const int32_t n = a->config.n_q_heads * a->config.attn_dim;
        for (int32_t i = 0; i < n; i++) {
            judge(&t, (double)a->out[i], out[i], bound[i], mag[i]);
        }
        if (a->act == HB_FP32 && k % 3 == 0 && a->config.attn_window == 0 &&
            a->n_ctx > 1) { /* control: the last of many even keys forgotten */
            hb_ref_attention(&a->config, &p, a->n_ctx - 1, a->q, a->keys, a->values, out, bound,
                             mag);
            for (int32_t i = 0; i < n; i++) {
                judge(&late, (double)a->out[i], out[i], bound[i], mag[i]);
            }
        }
    }
    print_message("attention: worst err/B %.3f, median B/err %.0f, vacuous %.2f%%; last key "
                  "forgotten: %.0f%% outside\n",
                  t.worst, quantile(&t, 0.5), 100.0 * (double)t.vacuous / (double)t.n,
                  100.0 * (double)late.outside / (double)late.n);
    assert_int_equal(t.outside, 0);
    assert_true((double)late.outside > 0.5 * (double)late.n);
    free(t.ratio);
    free(a);
}

/* The other rule of the window, a window one wider or narrower, and a soft cap that is not there
 * differ by more than both bounds. */
static void variants_are_told_apart(void **unused) {
    (void)unused;
    struct attention_case *a = calloc(1, sizeof(*a));
    double out[64], bound[64], mag[64];
    assert_non_null(a);
    for (int32_t k = 0; k < 4; k++) {
        int64_t apart = 0, n_all = 0;
        for (int32_t i = 0; i < 200; i++) {
            draw_attention(a, 3 * i);
            a->act = i % 3;
            a->rounds = 0;
            a->n_ctx = draw_int(8, 100);
            a->config.act_dtype = a->act;
            a->config.attn_window = draw_int(2, 6);
            a->config.attn_softcap = 0.05F;
            fill_uniform(a->values, 64 * 128, -1.0F, 1.0F);
            for (int32_t h = 0; h < a->config.n_q_heads; h++) {
                sim_attention_head(a, h);
            }
            struct hb_config c = a->config;
            c.window_rule = k == 0 ? !c.window_rule : c.window_rule;
            c.attn_window += k == 1 ? 1 : k == 2 ? -1 : 0;
            c.attn_softcap = k == 3 ? 0.0F : c.attn_softcap;
            const struct hb_profile p = profile_of(a);
            hb_ref_attention(&c, &p, a->n_ctx, a->q, a->keys, a->values, out, bound, mag);
            for (int32_t j = 0; j < c.n_q_heads * c.attn_dim; j++) {
                n_all++;
                apart += fabs((double)a->out[j] - out[j]) > 2.0 * bound[j];
            }
        }
        assert_true((double)apart > (k < 3 ? 0.8 : 0.3) * (double)n_all);
    }
    free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_equals_direct_sums),
        cmocka_unit_test(attention_over_nothing_is_exactly_zero),
        cmocka_unit_test(attention_with_a_nan_key_is_not_judged),
        cmocka_unit_test(windows_and_soft_cap_equal_direct_sums),
        cmocka_unit_test(keys_before_the_window_are_not_read),
        cmocka_unit_test(variants_are_told_apart),
        cmocka_unit_test(attention_stays_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
