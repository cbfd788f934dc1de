/* SPDX-License-Identifier: Apache-2.0
 * Tensor values and bf16 conversions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "backend/adapter.h"
#include "harness/values.h"

enum { N = 512, N_TENSORS = HB_TENSOR_NOISE + 1 };

static struct hb_case make_case(int32_t value_class) {
    struct hb_case c;
    hb_case_init(&c);
    c.config.value_class = value_class;
    hb_case_normalize(&c);
    return c;
}

static uint32_t bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static void bf16_widening_is_exact_and_inverse(void **state) {
    (void)state;
    for (uint32_t u = 0; u < 65536; u++) {
        const float x = hb_bf16_to_float((uint16_t)u);
        assert_int_equal(bits(x), u << 16);
        if (isnan(x)) {
            assert_int_equal(hb_bf16_from_float(x), 0x7fff);
        } else {
            assert_int_equal(hb_bf16_from_float(x), u);
        }
    }
}

/* Between two neighbours: the nearer one, the even one at the middle. In double, independent of the
 * integer code. */
static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    static const uint32_t tails[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t u = 0; u < 65536; u++) {
        for (size_t k = 0; k < sizeof tails / sizeof *tails; k++) {
            const float x = from_bits(u << 16 | tails[k]);
            const uint16_t got = hb_bf16_from_float(x);
            if (isnan(x)) {
                assert_int_equal(got, 0x7fff);
                continue;
            }
            const double lo = (double)from_bits(u << 16);
            uint16_t want = (uint16_t)u;
            if (!isinf(x)) {
                /* the neighbour away from zero; beyond the largest finite value it counts as 2^128
                 */
                const float up = from_bits((u + 1) << 16);
                const double hi = isinf(up) ? copysign(0x1p128, (double)up) : (double)up;
                const double below = fabs((double)x - lo);
                const double above = fabs(hi - (double)x);
                want = (uint16_t)(above < below || (above == below && (u & 1)) ? u + 1 : u);
            }
            assert_int_equal(got, want);
        }
    }
}

static void pack_and_unpack(void **state) {
    (void)state;
    static const float values[] = {0.0f,        -0.0f, 1.0f,   1.00390625f,
                                   1.01171875f, -3.5f, 1e-40f, 3e38f};
    enum { COUNT = sizeof values / sizeof *values };
    unsigned char raw[4 * COUNT + 1];
    float back[COUNT];
    hb_pack(HB_FP32, values, COUNT, raw + 1);
    hb_unpack(HB_FP32, raw + 1, COUNT, back);
    assert_memory_equal(values, back, sizeof back);
    hb_pack(HB_BF16, values, COUNT, raw + 1); /* any alignment */
    hb_unpack(HB_BF16, raw + 1, COUNT, back);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(bits(back[i]), (uint32_t)hb_bf16_from_float(values[i]) << 16);
    }
    hb_pack(HB_BF16, NULL, 0, raw);
    hb_unpack(HB_FP32, NULL, 0, back);
    assert_int_equal(hb_dtype_bytes(HB_FP32), 4);
    assert_int_equal(hb_dtype_bytes(HB_BF16), 2);
    assert_int_equal(hb_dtype_bytes(HB_INT32), 4);
    assert_int_equal(hb_dtype_bytes(99), 0);
}

static void every_value_is_bf16_and_finite(void **state) {
    (void)state;
    float out[N];
    for (int32_t k = 0; k < HB_N_VALUE_CLASSES; k++) {
        const struct hb_case c = make_case(k);
        for (int32_t t = 0; t < N_TENSORS; t++) {
            for (int64_t pos = 0; pos < 5; pos++) {
                const struct hb_value_key key = {t, 3, 1, pos};
                hb_values_fill(&c, &key, N, out);
                for (int i = 0; i < N; i++) {
                    assert_true(isfinite(out[i]));
                    assert_int_equal(bits(out[i]) & 0xffff, 0);
                }
            }
        }
    }
}

/* A prefix of the channels, and every other field of the case, leave a value alone. */
static void values_do_not_depend_on_the_shape(void **state) {
    (void)state;
    float all[N];
    float part[N];
    for (int32_t k = 0; k < HB_N_VALUE_CLASSES; k++) {
        struct hb_case c = make_case(k);
        for (int32_t t = 0; t < N_TENSORS; t++) {
            const struct hb_value_key key = {t, 2, 1, 77};
            hb_values_fill(&c, &key, N, all);
            for (int32_t n = 0; n < 40; n++) {
                part[n] = 12345.0f;
                hb_values_fill(&c, &key, n, part);
                assert_memory_equal(all, part, (size_t)n * sizeof *part);
                assert_true(part[n] == 12345.0f);
            }
            struct hb_case d = c;
            d.config.n_layers = 1;
            d.config.chunk_size = 16;
            d.config.act_dtype = HB_BF16;
            d.n_steps = 3;
            if (k != HB_VALUES_CANCEL) { /* needs to know which channels are C */
                d.config.heads = 8;
                d.config.state_size = 3;
            }
            hb_values_fill(&d, &key, N, part);
            assert_memory_equal(all, part, sizeof all);
        }
    }
}

static int same(const struct hb_case *c, struct hb_value_key a, struct hb_value_key b) {
    float x[64];
    float y[64];
    hb_values_fill(c, &a, 64, x);
    hb_values_fill(c, &b, 64, y);
    for (int i = 0; i < 64; i++) {
        if (bits(x[i]) != bits(y[i])) {
            return 0;
        }
    }
    return 1;
}

static void values_depend_on_every_part_of_the_key(void **state) {
    (void)state;
    struct hb_case c = make_case(HB_VALUES_ORDINARY);
    const struct hb_value_key key = {HB_TENSOR_XBC, 2, 1, 77};
    struct hb_value_key other = key;
    assert_true(same(&c, key, other));
    other.tensor = HB_TENSOR_Z;
    assert_false(same(&c, key, other));
    other = key;
    other.stream = 3;
    assert_false(same(&c, key, other));
    other = key;
    other.layer = 0;
    assert_false(same(&c, key, other));
    other = key;
    other.position = 78;
    assert_false(same(&c, key, other));
    other.position = 77 + (INT64_C(1) << 32);
    assert_false(same(&c, key, other));
    float x[8];
    float y[8];
    hb_values_fill(&c, &key, 8, x);
    c.config.seed++;
    hb_values_fill(&c, &key, 8, y);
    assert_memory_not_equal(x, y, sizeof x);
}

static void moments(int32_t value_class, int32_t tensor, double *mean, double *deviation,
                    double *lo, double *hi) {
    const struct hb_case c = make_case(value_class);
    float out[N];
    double sum = 0.0;
    double square = 0.0;
    *lo = INFINITY;
    *hi = -INFINITY;
    for (int64_t pos = 0; pos < 200; pos++) {
        const struct hb_value_key key = {tensor, 1, 0, pos};
        hb_values_fill(&c, &key, N, out);
        for (int i = 0; i < N; i++) {
            const double x = (double)out[i];
            sum += x;
            square += x * x;
            *lo = x < *lo ? x : *lo;
            *hi = x > *hi ? x : *hi;
        }
    }
    *mean = sum / (200 * N);
    *deviation = sqrt(square / (200 * N) - *mean * *mean);
}

static void ordinary_values_are_about_normal(void **state) {
    (void)state;
    static const int32_t tensors[] = {HB_TENSOR_Z,       HB_TENSOR_XBC, HB_TENSOR_Q,
                                      HB_TENSOR_K,       HB_TENSOR_V,   HB_TENSOR_INIT_CONV,
                                      HB_TENSOR_INIT_SSM};
    double mean;
    double dev;
    double lo;
    double hi;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        moments(HB_VALUES_ORDINARY, tensors[i], &mean, &dev, &lo, &hi);
        assert_true(fabs(mean) < 0.02 && fabs(dev - 1.0) < 0.02);
        assert_true(lo < -3.0 && lo > -4.0 && hi > 3.0 && hi < 4.0);
    }
    moments(HB_VALUES_ORDINARY, HB_TENSOR_A, &mean, &dev, &lo, &hi);
    assert_true(lo >= -4.0 && hi <= -0.0996);
    moments(HB_VALUES_ORDINARY, HB_TENSOR_NORM_WEIGHT, &mean, &dev, &lo, &hi);
    assert_true(fabs(mean - 1.0) < 0.02 && lo > 0.0);
    moments(HB_VALUES_ORDINARY, HB_TENSOR_DT, &mean, &dev, &lo, &hi);
    assert_true(log1p(exp(lo)) > 0.01 && log1p(exp(hi)) < 1.0);
}

static void exact_values_are_small_integers(void **state) {
    (void)state;
    double mean;
    double dev;
    double lo;
    double hi;
    static const struct {
        int32_t tensor;
        double lo, hi;
    } want[] = {{HB_TENSOR_XBC, -3, 3},         {HB_TENSOR_Z, -3, 3},
                {HB_TENSOR_DT, 0, 1},           {HB_TENSOR_A, 0, 0},
                {HB_TENSOR_DT_BIAS, 0, 0},      {HB_TENSOR_D, -2, 2},
                {HB_TENSOR_CONV_WEIGHT, -1, 1}, {HB_TENSOR_INIT_SSM, -3, 3}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        moments(HB_VALUES_EXACT, want[i].tensor, &mean, &dev, &lo, &hi);
        assert_true(lo == want[i].lo && hi == want[i].hi);
        float out[N];
        const struct hb_case c = make_case(HB_VALUES_EXACT);
        const struct hb_value_key key = {want[i].tensor, 0, 0, 4};
        hb_values_fill(&c, &key, N, out);
        for (int k = 0; k < N; k++) {
            assert_true(out[k] == floorf(out[k]));
        }
    }
}

/* The largest sum of absolute terms over many tokens and columns stays far below 2^24. */
static void exact_sums_are_exact(void **state) {
    (void)state;
    enum { TOKENS = 203, COLUMNS = 128, K = 4 };
    static float u[TOKENS][2 * COLUMNS + 1];
    static float w[(2 * COLUMNS + 1) * K];
    static double s[COLUMNS];
    const struct hb_case c = make_case(HB_VALUES_EXACT);
    double worst = 0.0;
    for (int32_t stream = 0; stream < 8; stream++) {
        for (int64_t t = 0; t < TOKENS; t++) {
            const struct hb_value_key key = {HB_TENSOR_XBC, stream, 0, t};
            hb_values_fill(&c, &key, 2 * COLUMNS + 1, u[t]);
        }
        const struct hb_value_key weights = {HB_TENSOR_CONV_WEIGHT, stream, 0, 0};
        hb_values_fill(&c, &weights, (2 * COLUMNS + 1) * K, w);
        memset(s, 0, sizeof s);
        for (int t = K - 1; t < TOKENS; t++) {
            double v[2 * COLUMNS + 1] = {0};
            for (int i = 0; i < 2 * COLUMNS + 1; i++) {
                for (int j = 0; j < K; j++) {
                    v[i] += (double)(w[i * K + j] * u[t - K + 1 + j][i]);
                }
            }
            double sum = 0.0;
            for (int n = 0; n < COLUMNS; n++) {
                s[n] += v[0] * v[1 + n]; /* dt = 1 always: larger than any case */
                sum += fabs(s[n] * v[1 + COLUMNS + n]);
            }
            worst = sum > worst ? sum : worst;
        }
    }
    assert_true(worst > 1000.0 && worst < 0x1p22);
}

static void dt_classes(void **state) {
    (void)state;
    double mean;
    double dev;
    double lo;
    double hi;
    moments(HB_VALUES_LARGE_DT, HB_TENSOR_DT, &mean, &dev, &lo, &hi);
    assert_true(lo >= 0.0 && hi > 39.0 && hi <= 40.0);
    moments(HB_VALUES_TINY_DT, HB_TENSOR_DT, &mean, &dev, &lo, &hi);
    assert_true(lo >= -16.0 && hi <= -13.9);
}

/* Without softplus dt = dt_raw + bias directly, so neither may be negative. */
static void dt_without_softplus_is_not_negative(void **state) {
    (void)state;
    for (int32_t k = 0; k < HB_N_VALUE_CLASSES; k++) {
        struct hb_case c = make_case(k);
        float dt[N];
        float bias[N];
        c.config.dt_softplus = 0;
        const struct hb_value_key a = {HB_TENSOR_DT, 0, 0, 9};
        const struct hb_value_key b = {HB_TENSOR_DT_BIAS, 0, 0, 0};
        hb_values_fill(&c, &a, N, dt);
        hb_values_fill(&c, &b, N, bias);
        for (int i = 0; i < N; i++) {
            assert_true(dt[i] >= 0.0f && bias[i] >= 0.0f);
        }
    }
}

static void cancelling_values_cancel(void **state) {
    (void)state;
    const struct hb_case c = make_case(HB_VALUES_CANCEL);
    float a[32];
    float b[32];
    const struct hb_value_key even = {HB_TENSOR_XBC, 0, 0, 4};
    const struct hb_value_key odd = {HB_TENSOR_XBC, 0, 0, 5};
    hb_values_fill(&c, &even, 32, a);
    hb_values_fill(&c, &odd, 32, b);
    const int32_t first_c =
        c.config.heads * c.config.head_dim + c.config.groups * c.config.state_size;
    for (int32_t i = 0; i < first_c; i++) {
        assert_true(a[i] > 0.9f && b[i] < -0.9f && fabsf(a[i] + b[i]) < 0.02f);
    }
    for (int32_t i = first_c; i + 1 < 24; i += 2) {
        assert_true(fabsf(a[i] + a[i + 1]) < 0.02f && fabsf(a[i] - b[i]) < 0.02f);
    }
}

static void wide_values_are_powers_of_two(void **state) {
    (void)state;
    const struct hb_case c = make_case(HB_VALUES_WIDE);
    float out[N];
    const struct hb_value_key key = {HB_TENSOR_XBC, 0, 0, 4};
    hb_values_fill(&c, &key, N, out);
    float lo = INFINITY;
    float hi = 0.0f;
    int negative = 0;
    for (int i = 0; i < N; i++) {
        int e;
        assert_true(frexpf(fabsf(out[i]), &e) == 0.5f);
        lo = fminf(lo, fabsf(out[i]));
        hi = fmaxf(hi, fabsf(out[i]));
        negative += out[i] < 0.0f;
    }
    assert_true(hi / lo == 0x1p20f);
    assert_true(negative > N / 4 && negative < 3 * N / 4);
}

static void unread_memory(void **state) {
    (void)state;
    struct hb_case c = make_case(HB_VALUES_ORDINARY);
    const struct hb_value_key key = {HB_TENSOR_Z, 0, 0, 4};
    const struct hb_value_key other = {HB_TENSOR_XBC, 0, 0, 4};
    float a[16];
    float b[16];
    c.config.unread = HB_UNREAD_RANDOM;
    hb_values_unread(&c, &key, 16, a);
    hb_values_unread(&c, &other, 16, b);
    assert_memory_not_equal(a, b, sizeof a);
    hb_values_fill(&c, &key, 16, b);
    assert_memory_not_equal(a, b, sizeof a);
    assert_true(isfinite(a[0]));
    c.config.unread = HB_UNREAD_NAN;
    hb_values_unread(&c, &key, 16, a);
    assert_true(isnan(a[0]) && isnan(a[15]));
    c.config.unread = HB_UNREAD_INF;
    hb_values_unread(&c, &key, 16, a);
    assert_true(isinf(a[0]) && a[0] > 0.0f && isinf(a[1]) && a[1] < 0.0f);
}

/* Pins the generator: a corpus must mean the same tensors for ever. */
static void values_are_pinned(void **state) {
    (void)state;
    const struct hb_case c = make_case(HB_VALUES_ORDINARY);
    const struct hb_value_key key = {HB_TENSOR_XBC, 5, 2, 1000};
    static const float want[8] = {-0x1.38p+0f, -0x1.22p-1f, -0x1.4cp-5f, 0x1.0ep-2f,
                                  0x1.aep-3f,  0x1.12p+0f,  -0x1.32p+0f, -0x1.22p-2f};
    float out[8];
    hb_values_fill(&c, &key, 8, out);
    for (int i = 0; i < 8; i++) {
        assert_true(out[i] == want[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_widening_is_exact_and_inverse),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(pack_and_unpack),
        cmocka_unit_test(every_value_is_bf16_and_finite),
        cmocka_unit_test(values_do_not_depend_on_the_shape),
        cmocka_unit_test(values_depend_on_every_part_of_the_key),
        cmocka_unit_test(ordinary_values_are_about_normal),
        cmocka_unit_test(exact_values_are_small_integers),
        cmocka_unit_test(exact_sums_are_exact),
        cmocka_unit_test(dt_classes),
        cmocka_unit_test(dt_without_softplus_is_not_negative),
        cmocka_unit_test(cancelling_values_cancel),
        cmocka_unit_test(wide_values_are_powers_of_two),
        cmocka_unit_test(unread_memory),
        cmocka_unit_test(values_are_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
