/* SPDX-License-Identifier: Apache-2.0
 * Attention of the float64 oracle: values against direct sums, and the bound against an online
 * softmax in fp32 and with the roundings of a bf16 kernel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "harness/tests/oracle_model.h"
#include "harness/tests/oracle_tally.h"

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

/* Attention in fp32 with the online softmax in blocks of block keys; weights rounded to bf16 where
 * the profile says so. */
struct attention_case {
    struct hb_config config;
    int32_t n_ctx, block, bf16;
    float q[64], keys[64 * 128], values[64 * 128];
    float out[64];
};

static void sim_attention_head(struct attention_case *a, int32_t h) {
    const struct hb_config *c = &a->config;
    const int32_t dim = c->attn_dim, kv = h / (c->n_q_heads / c->n_kv_heads),
                  stride = c->n_kv_heads * dim;
    const float scale = c->sm_scale != 0.0F ? c->sm_scale : 1.0F / sqrtf((float)dim);
    float top = -INFINITY, sum = 0.0F, acc[64] = {0};
    for (int32_t j0 = 0; j0 < a->n_ctx; j0 += a->block) {
        const int32_t j1 = j0 + a->block < a->n_ctx ? j0 + a->block : a->n_ctx;
        float l[128], next = top;
        for (int32_t j = j0; j < j1; j++) {
            float dot = 0.0F;
            for (int32_t i = 0; i < dim; i++) {
                dot += a->q[h * dim + i] * a->keys[j * stride + kv * dim + i];
            }
            l[j - j0] = dot * scale;
            next = fmaxf(next, l[j - j0]);
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
                acc[i] += (a->bf16 ? round_bf16(w) : w) * a->values[j * stride + kv * dim + i];
            }
        }
        top = next;
    }
    for (int32_t i = 0; i < dim; i++) {
        const float o = acc[i] / sum;
        a->out[h * dim + i] = a->bf16 ? round_bf16(o) : o;
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
    a->bf16 = draw_int(0, 1);
    a->block = draw_int(1, 128);
    fill_uniform(a->q, 64, -width, width);
    fill_uniform(a->keys, 64 * 128, -width, width);
    fill_uniform(a->values, 64 * 128, -1.0F, 1.0F);
    for (int32_t i = 0; i < 64 * 128 && draw_int(0, 3) == 0; i++) {
        a->values[i] = i % 2 ? 1.0F : -0.99F; /* cancelling */
    }
}

static void attention_stays_inside(void **unused) {
    (void)unused;
    struct attention_case *a = calloc(1, sizeof(*a));
    double out[64], bound[64], mag[64];
    struct tally t = {0}, late = {0};
    t.ratio = malloc(MAX_RATIOS * sizeof(double));
    assert_non_null(a);
    assert_non_null(t.ratio);
    for (int32_t k = 0; k < 600; k++) {
        draw_attention(a, k);
        struct hb_profile p = plain_profile();
        p.attn_block = a->block;
        p.u_op = p.u_io = a->bf16 ? 0x1p-8 : 0.0;
        hb_ref_attention(&a->config, &p, a->n_ctx, a->q, a->keys, a->values, out, bound, mag);
        for (int32_t h = 0; h < a->config.n_q_heads; h++) {
            sim_attention_head(a, h);
        }
        const int32_t n = a->config.n_q_heads * a->config.attn_dim;
        for (int32_t i = 0; i < n; i++) {
            judge(&t, (double)a->out[i], out[i], bound[i], mag[i]);
        }
        if (!a->bf16 && k % 3 == 0 &&
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_equals_direct_sums),
        cmocka_unit_test(attention_over_nothing_is_exactly_zero),
        cmocka_unit_test(attention_with_a_nan_key_is_not_judged),
        cmocka_unit_test(attention_stays_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
