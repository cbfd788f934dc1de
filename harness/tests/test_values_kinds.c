/* SPDX-License-Identifier: Apache-2.0
 * Values of the linear kinds' inputs: what each part of in[1] and in[2] must be for the kind's recurrence to stay bounded, to
 * be exact, or to reach its edges. Parts as backend/adapter.h lists them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "backend/adapter.h"
#include "harness/values.h"

enum { H = 4, P = 3, NS = 5, G = 2, K = 4, INNER = H * P, PAIRS = G * NS, MAX = 256, TOKENS = 64 };
enum { Q_AT = 0, K_AT = PAIRS, V_AT = 2 * PAIRS, DIM = 2 * PAIRS + INNER };

static struct hb_case made(int32_t mixer, int32_t value_class) {
    struct hb_case c;
    hb_case_init(&c);
    c.config.mixer = mixer;
    c.config.value_class = value_class;
    c.config.heads = H;
    c.config.head_dim = P;
    c.config.state_size = NS;
    c.config.groups = G;
    c.config.conv_width = K;
    hb_case_normalize(&c);
    return c;
}

static void fill(const struct hb_case *c, int32_t tensor, int32_t n, int64_t position, float *out) {
    const struct hb_value_key key = {.tensor = tensor, .stream = 1, .layer = 0, .position = position};
    hb_values_fill(c, &key, n, out);
}

/* Smallest and largest value of channels from..to-1 over the tokens, and how many are `special`. */
struct range {
    float lo, hi;
    int special, n;
};

static struct range range_of(const struct hb_case *c, int32_t tensor, int32_t from, int32_t to, float special) {
    struct range r = {INFINITY, -INFINITY, 0, 0};
    for (int64_t t = 0; t < TOKENS; t++) {
        float x[MAX];
        fill(c, tensor, to, t, x);
        for (int32_t i = from; i < to; i++) {
            r.n++;
            if (x[i] == special) {
                r.special++;
                continue;
            }
            r.lo = x[i] < r.lo ? x[i] : r.lo;
            r.hi = x[i] > r.hi ? x[i] : r.hi;
        }
    }
    return r;
}

static void in_range(struct range r, float lo, float hi) {
    if (!(r.lo >= lo && r.hi <= hi)) {
        fail_msg("%g..%g is not in %g..%g", (double)r.lo, (double)r.hi, (double)lo, (double)hi);
    }
}

/* Whatever the class: finite, and of both 16-bit types where they are in force. */
static void all_values_are_finite_and_stored_exactly(void **state) {
    (void)state;
    for (int32_t mixer = 0; mixer < HB_N_MIXERS; mixer++) {
        for (int32_t k = 0; k < HB_N_VALUE_CLASSES; k++) {
            for (int32_t tensor = 0; tensor <= HB_TENSOR_NOISE; tensor++) {
                struct hb_case c = made(mixer, k);
                float x[MAX];
                for (int64_t t = 0; t < 8; t++) {
                    fill(&c, tensor, MAX, t, x);
                    for (int i = 0; i < MAX; i++) {
                        assert_true(isfinite(x[i]));
                        assert_true(hb_bf16_to_float(hb_bf16_from_float(x[i])) == x[i]);
                    }
                    c.config.act_dtype = HB_FP16;
                    fill(&c, tensor, MAX, t, x);
                    for (int i = 0; i < MAX && tensor <= HB_TENSOR_INIT_CONV; i++) {
                        assert_true(hb_fp16_to_float(hb_fp16_from_float(x[i])) == x[i]);
                    }
                    c.config.act_dtype = HB_FP32;
                }
            }
        }
    }
}

/* No value depends on how many are asked for, whatever the parts. */
static void parts_do_not_depend_on_the_length(void **state) {
    (void)state;
    for (int32_t mixer = 0; mixer < HB_N_MIXERS; mixer++) {
        for (int32_t k = 0; k < HB_N_VALUE_CLASSES; k++) {
            const struct hb_case c = made(mixer, k);
            for (int32_t tensor = 0; tensor <= HB_TENSOR_NORM_WEIGHT; tensor++) {
                float all[MAX];
                fill(&c, tensor, MAX, 3, all);
                for (int32_t n = 1; n < 70; n += 3) {
                    float part[MAX] = {0};
                    fill(&c, tensor, n, 3, part);
                    assert_memory_equal(part, all, (size_t)n * sizeof *part);
                }
            }
        }
    }
}

/* --- gates ------------------------------------------------------------------------------------ */

static float softplus(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}

static float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

/* The special draw is a log decay of exactly 0, and a beta of exactly 0, in the arithmetic of fp32. */
static void one_gate_of_eight_is_exactly_zero(void **state) {
    (void)state;
    assert_true(softplus(-120.0f) == 0.0f && softplus(-120.0f + 0.5f) == 0.0f);
    assert_true(sigmoid(-120.0f) == 0.0f);
    static const int32_t mixers[] = {HB_MIXER_GDN, HB_MIXER_KDA};
    for (int i = 0; i < 2; i++) {
        struct hb_case c = made(mixers[i], HB_VALUES_ORDINARY);
        const int32_t n_a = mixers[i] == HB_MIXER_GDN ? H : H * NS;
        struct range a = range_of(&c, HB_TENSOR_DT, 0, n_a, -120.0f);
        struct range b = range_of(&c, HB_TENSOR_DT, n_a, n_a + H, -120.0f);
        in_range(a, -4.0f, 0.5f);
        in_range(b, -4.0f, 4.0f);
        assert_in_range(a.special, a.n / 14, a.n / 5);
        assert_in_range(b.special, b.n / 14, b.n / 5);
        c.config.beta_form = HB_BETA_RAW;
        b = range_of(&c, HB_TENSOR_DT, n_a, n_a + H, 0.0f);
        in_range(b, 0.0f, 1.0f);
        assert_true(b.special > 0);
        c.config.dt_softplus = 0;
        a = range_of(&c, HB_TENSOR_DT, 0, n_a, 0.0f);
        in_range(a, 0.01f, 1.0f); /* A is negative: the log decay is */
        assert_true(a.special > 0);
    }
}

/* The logs of a chunk's decays sum up to what no exponential takes with the wrong sign. */
static void strong_decay_is_beyond_the_range_of_exp(void **state) {
    (void)state;
    enum { CHUNK = 16 };
    struct hb_case c = made(HB_MIXER_GDN, HB_VALUES_LARGE_DT);
    double sum = 0;
    for (int64_t t = 0; t < CHUNK; t++) {
        float a[H];
        float slope[H];
        fill(&c, HB_TENSOR_DT, H, t, a);
        fill(&c, HB_TENSOR_A, H, 0, slope);
        sum += (double)(slope[0] * softplus(a[0]));
    }
    assert_true(sum < -89.0); /* exp(89) is infinite in fp32 */
}

static void log_decays_of_lightning_are_never_positive(void **state) {
    (void)state;
    static const struct {
        int32_t value_class;
        float lo, hi;
    } want[] = {{HB_VALUES_ORDINARY, -1.0f, 0.0f},  {HB_VALUES_LARGE_DT, -40.0f, 0.0f},
                {HB_VALUES_TINY_DT, -2e-6f, 0.0f},  {HB_VALUES_ONE_SIGN, -1.0f, 0.0f},
                {HB_VALUES_WIDE, -1.0f, 0.0f},      {HB_VALUES_CANCEL, -1.0f, 0.0f}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct hb_case c = made(HB_MIXER_LIGHTNING, want[i].value_class);
        const struct range token = range_of(&c, HB_TENSOR_DT, 0, H, 0.0f);
        in_range(token, want[i].lo, want[i].hi);
        assert_true(token.special > 0);
        in_range(range_of(&c, HB_TENSOR_A, 0, H, 0.0f), want[i].lo, want[i].hi);
    }
}

static void mamba1_has_steps_and_then_b_and_c(void **state) {
    (void)state;
    struct hb_case c = made(HB_MIXER_MAMBA1, HB_VALUES_ORDINARY);
    in_range(range_of(&c, HB_TENSOR_DT, 0, INNER, 99.0f), -4.0f, 0.5f);
    const struct range bc = range_of(&c, HB_TENSOR_DT, INNER, INNER + 2 * NS, 99.0f);
    assert_true(bc.lo < -1.5f && bc.hi > 1.5f);
    c = made(HB_MIXER_MAMBA1, HB_VALUES_ONE_SIGN);
    in_range(range_of(&c, HB_TENSOR_DT, INNER, INNER + 2 * NS, 99.0f), 0.0f, 4.0f);
    assert_true(range_of(&c, HB_TENSOR_DT, 0, INNER, 99.0f).lo < 0.0f); /* steps keep their sign */
}

/* --- keys ------------------------------------------------------------------------------------- */

/* Squared norm of group g's key after the convolution (without activation) at token t >= K - 1. */
static double key_norm(const struct hb_case *c, int64_t t, int32_t g) {
    float weight[DIM * K];
    float bias[DIM];
    double sum = 0;
    fill(c, HB_TENSOR_CONV_WEIGHT, DIM * K, 0, weight);
    fill(c, HB_TENSOR_CONV_BIAS, DIM, 0, bias);
    for (int32_t n = 0; n < NS; n++) {
        const int32_t channel = K_AT + g * NS + n;
        double k = (double)bias[channel];
        for (int32_t j = 0; j < K; j++) {
            float x[DIM];
            fill(c, HB_TENSOR_XBC, DIM, t - (K - 1) + j, x);
            k += (double)weight[channel * K + j] * (double)x[channel];
        }
        sum += k * k;
    }
    return sum;
}

/* Without normalisation |I - beta k k^T| <= 1 needs beta |k|^2 <= 2; a rare key above it does not hurt. */
static void keys_that_are_not_normalised_are_short(void **state) {
    (void)state;
    for (int32_t k = 0; k < HB_N_VALUE_CLASSES; k++) {
        for (int32_t seed = 1; seed <= 5; seed++) {
            struct hb_case c = made(HB_MIXER_GDN, k);
            const double n = TOKENS - K;
            double sum = 0;
            int above = 0;
            c.config.seed = seed;
            c.config.l2norm = HB_L2_OFF;
            for (int64_t t = K; t < TOKENS; t++) {
                const double norm = key_norm(&c, t, 1);
                sum += norm;
                above += norm > 2.0;
            }
            if (sum > 1.5 * n || above > TOKENS / 8) {
                fail_msg("class %d, seed %d: mean %g, %d above 2", (int)k, (int)seed, sum / n, above);
            }
        }
    }
}

/* Class TINY_DT: norms where eps 1e-6 under the root counts, and neither drowns the other. */
static void normalised_keys_may_be_small(void **state) {
    (void)state;
    const struct hb_case c = made(HB_MIXER_KDA, HB_VALUES_TINY_DT);
    const double n = TOKENS - K;
    double sum = 0;
    for (int64_t t = K; t < TOKENS; t++) {
        sum += key_norm(&c, t, 0);
    }
    assert_true(sum / n > 1e-7 && sum / n < 1e-4);
    const struct hb_case large = made(HB_MIXER_KDA, HB_VALUES_ORDINARY);
    assert_true(key_norm(&large, K, 0) > 1e-2);
}

/* Exact class: keys of at most one entry, 1 or -1, from inputs, windows and weights together. */
static void exact_keys_have_one_entry(void **state) {
    (void)state;
    static const int32_t lengths[] = {HB_CONV_STATE_SHORT, HB_CONV_STATE_FULL};
    for (int i = 0; i < 2; i++) {
        struct hb_case c = made(i ? HB_MIXER_KDA : HB_MIXER_GDN, HB_VALUES_EXACT);
        int ones = 0;
        c.config.conv_state_len = lengths[i];
        for (int64_t t = K; t < TOKENS; t++) {
            const double norm = key_norm(&c, t, 0);
            assert_true(norm == 0.0 || norm == 1.0);
            ones += norm == 1.0;
        }
        assert_true(ones > TOKENS / 2 && ones < TOKENS);
        const int32_t w = K - 1 + lengths[i];
        float window[DIM * K];
        fill(&c, HB_TENSOR_INIT_CONV, DIM * w, 0, window);
        for (int32_t j = 0; j < w; j++) {
            for (int32_t g = 0; g < G; g++) {
                double sum = 0;
                for (int32_t n = 0; n < NS; n++) {
                    const double x = (double)window[(K_AT + g * NS + n) * w + j];
                    sum += x * x;
                }
                assert_true(sum == 0.0 || sum == 1.0);
            }
        }
    }
}

/* 300 tokens of the exact class by the definition, in fp32 and in double: the same bits. */
static void the_exact_delta_rule_is_exact(void **state) {
    (void)state;
    const struct hb_case c = made(HB_MIXER_GDN, HB_VALUES_EXACT);
    float weight[DIM * K];
    float s[NS * P];
    float largest = 0;
    fill(&c, HB_TENSOR_CONV_WEIGHT, DIM * K, 0, weight);
    fill(&c, HB_TENSOR_INIT_SSM, NS * P, 0, s);
    for (int64_t t = K; t < 300; t++) {
        float x[DIM] = {0};
        float ab[2 * H];
        fill(&c, HB_TENSOR_DT, 2 * H, t, ab);
        for (int32_t j = 0; j < K; j++) {
            float u[DIM];
            fill(&c, HB_TENSOR_XBC, DIM, t - (K - 1) + j, u);
            for (int32_t i = 0; i < DIM; i++) {
                x[i] += weight[i * K + j] * u[i];
            }
        }
        for (int32_t p = 0; p < P; p++) { /* head 0 */
            float d = x[V_AT + p];
            for (int32_t n = 0; n < NS; n++) {
                d -= s[n * P + p] * x[K_AT + n];
            }
            for (int32_t n = 0; n < NS; n++) {
                s[n * P + p] += x[K_AT + n] * (ab[H] * d);
                largest = fabsf(s[n * P + p]) > largest ? fabsf(s[n * P + p]) : largest;
                assert_true(s[n * P + p] == floorf(s[n * P + p]));
            }
        }
    }
    assert_true(largest >= 1.0f && largest <= 16.0f); /* nothing grows: within 8 bits of bf16 too */
}

/* --- cancellation ------------------------------------------------------------------------------- */

/* What reads the state alternates by channel, what is stored by position. */
static void readouts_alternate_by_channel(void **state) {
    (void)state;
    static const struct {
        int32_t mixer, tensor, from, to;
    } readouts[] = {{HB_MIXER_MAMBA2, HB_TENSOR_XBC, INNER + PAIRS, INNER + 2 * PAIRS},
                    {HB_MIXER_GDN, HB_TENSOR_XBC, Q_AT, K_AT},
                    {HB_MIXER_LIGHTNING, HB_TENSOR_XBC, Q_AT, K_AT},
                    {HB_MIXER_SHORT_CONV, HB_TENSOR_XBC, INNER, 2 * INNER},
                    {HB_MIXER_MAMBA1, HB_TENSOR_DT, INNER + NS, INNER + 2 * NS}};
    for (size_t i = 0; i < sizeof readouts / sizeof *readouts; i++) {
        const struct hb_case c = made(readouts[i].mixer, HB_VALUES_CANCEL);
        float x[MAX];
        fill(&c, readouts[i].tensor, readouts[i].to, 7, x);
        for (int32_t k = readouts[i].from; k < readouts[i].to; k++) {
            assert_true(fabsf(x[k]) >= 1.0f && fabsf(x[k]) <= 1.02f);
            assert_true((x[k] < 0.0f) == (k % 2 == 1));
        }
    }
    const struct hb_case c = made(HB_MIXER_GDN, HB_VALUES_CANCEL);
    float even[DIM];
    float odd[DIM];
    fill(&c, HB_TENSOR_XBC, DIM, 6, even);
    fill(&c, HB_TENSOR_XBC, DIM, 7, odd);
    for (int32_t k = K_AT; k < DIM; k++) {
        assert_true(even[k] > 0.0f && odd[k] < 0.0f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_values_are_finite_and_stored_exactly),
        cmocka_unit_test(parts_do_not_depend_on_the_length),
        cmocka_unit_test(one_gate_of_eight_is_exactly_zero),
        cmocka_unit_test(strong_decay_is_beyond_the_range_of_exp),
        cmocka_unit_test(log_decays_of_lightning_are_never_positive),
        cmocka_unit_test(mamba1_has_steps_and_then_b_and_c),
        cmocka_unit_test(keys_that_are_not_normalised_are_short),
        cmocka_unit_test(normalised_keys_may_be_small),
        cmocka_unit_test(exact_keys_have_one_entry),
        cmocka_unit_test(the_exact_delta_rule_is_exact),
        cmocka_unit_test(readouts_alternate_by_channel),
    };
    return cmocka_run_group_tests_name("values_kinds", tests, NULL, NULL);
}
