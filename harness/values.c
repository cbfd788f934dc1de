/* SPDX-License-Identifier: Apache-2.0
 * Tensor values by Philox4x32-10: key = (seed, tensor and layer), counter = (position, stream,
 * block of four channels). Also the conversions of 16-bit types. */
#include "harness/values.h"

#include <string.h>

#include <Random123/philox.h>

#include "backend/adapter.h"

/* --- 16-bit types
 * -------------------------------------------------------------------------------------------------------
 */

static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

uint16_t hb_bf16_from_float(float x) {
    const uint32_t u = bits_of(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fff;
    }
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

float hb_bf16_to_float(uint16_t x) {
    return float_of((uint32_t)x << 16);
}

/* Integer code. A step of fp16 is 2^13 in the bits of a float; below 2^-14 (exponent field 113) the
 * steps are all 2^-24, so the significand moves right by what the exponent lacks. */
uint16_t hb_fp16_from_float(float x) {
    const uint32_t u = bits_of(x);
    const uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    const uint32_t size = u & 0x7fffffffu;
    if (size > 0x7f800000u) {
        return 0x7fff;
    }
    if (size >= 0x477ff000u) { /* 65520, half a step beyond the largest: rounds to infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    uint32_t digits = size - (112u << 23);
    uint32_t shift = 13;
    if (size < 113u << 23) {
        const uint32_t lack = 113u - (size >> 23);
        digits = (size & 0x7fffffu) | 0x800000u;
        shift = lack < 12u ? 13u + lack : 25u; /* 25: below half of the least step */
        digits = lack < 12u ? digits : 0u;
    }
    const uint32_t half = (1u << (shift - 1u)) - 1u;
    return (uint16_t)(sign | ((digits + half + ((digits >> shift) & 1u)) >> shift));
}

float hb_fp16_to_float(uint16_t x) {
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
    const uint32_t exponent = (x >> 10) & 31u, digits = x & 0x3ffu;
    if (exponent == 31u) {
        return float_of(sign | 0x7f800000u | digits << 13);
    }
    if (exponent == 0u) { /* digits * 2^-24: exact */
        const float size = (float)digits * 0x1p-24f;
        return sign != 0 ? -size : size;
    }
    return float_of(sign | (exponent + 112u) << 23 | digits << 13);
}

int32_t hb_dtype_bytes(int32_t dtype) {
    switch (dtype) {
    case HB_FP32:
    case HB_INT32:
        return 4;
    case HB_BF16:
    case HB_FP16:
        return 2;
    default:
        return 0;
    }
}

void hb_pack(int32_t dtype, const float *src, int64_t n, void *dst) {
    if (dtype == HB_BF16 || dtype == HB_FP16) {
        unsigned char *out = dst;
        for (int64_t i = 0; i < n; i++) {
            const uint16_t v =
                dtype == HB_BF16 ? hb_bf16_from_float(src[i]) : hb_fp16_from_float(src[i]);
            memcpy(out + 2 * i, &v, sizeof v);
        }
    } else if (n > 0) {
        memcpy(dst, src, (size_t)n * sizeof *src);
    }
}

void hb_unpack(int32_t dtype, const void *src, int64_t n, float *dst) {
    if (dtype == HB_BF16 || dtype == HB_FP16) {
        const unsigned char *in = src;
        for (int64_t i = 0; i < n; i++) {
            uint16_t v;
            memcpy(&v, in + 2 * i, sizeof v);
            dst[i] = dtype == HB_BF16 ? hb_bf16_to_float(v) : hb_fp16_to_float(v);
        }
    } else if (n > 0) {
        memcpy(dst, src, (size_t)n * sizeof *dst);
    }
}

/* --- shapes of values
 * ------------------------------------------------------------------------------------------- */

enum shape_kind {
    NORMAL, /* b + a * sum of four uniform bytes, standardised: about N(b, a^2), |.| <= b + 3.5 a */
    UNIFORM,  /* [a, b) */
    INTEGER,  /* a..b */
    POWER,    /* +-2^e, e in a..b */
    CANCEL_X, /* alternating in sign by position, equal in magnitude to about 1 % */
    CANCEL_C  /* alternating in sign by channel, the same for all positions to about 1 % */
};

struct shape {
    enum shape_kind kind;
    float a, b;
};

/* Standard deviation of the sum of four uniform bytes: sqrt(4 (256^2 - 1) / 12). */
static const float byte_sum_mean = 510.0f;
static const float byte_sum_scale = 1.0f / 147.8f;

/* 0..n-1 for a whole number n up to 255: 24 random bits times n fit into 32. */
static int32_t scaled(uint32_t w, float n) {
    return (int32_t)(((w >> 8) * (uint32_t)n) >> 24);
}

static float signed_by(int64_t is_odd, float x) {
    return is_odd & 1 ? -x : x;
}

/* Finite values only. */
static float round_bf16(float x) {
    const uint32_t u = bits_of(x);
    return float_of((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);
}

/* Random words to values; one loop per kind, so that the compiler can take several at a time. */
static void shape_words(struct shape s, const uint32_t *w, int32_t n, int32_t channel,
                        int64_t position, float *out) {
    const float width = s.b - s.a;
    switch (s.kind) {
    case NORMAL:
        for (int32_t i = 0; i < n; i++) {
            const uint32_t pairs = (w[i] & 0x00ff00ffu) + ((w[i] >> 8) & 0x00ff00ffu);
            const float sum = (float)(int32_t)((pairs & 0xffffu) + (pairs >> 16));
            out[i] = round_bf16(s.b + s.a * ((sum - byte_sum_mean) * byte_sum_scale));
        }
        break;
    case UNIFORM:
        for (int32_t i = 0; i < n; i++) {
            out[i] = round_bf16(s.a + (float)(int32_t)(w[i] >> 8) * 0x1p-24f * width);
        }
        break;
    case INTEGER:
        for (int32_t i = 0; i < n; i++) {
            out[i] = s.a + (float)scaled(w[i], width + 1.0f);
        }
        break;
    case POWER:
        for (int32_t i = 0; i < n; i++) {
            const int32_t e = (int32_t)s.a + scaled(w[i], width + 1.0f);
            out[i] = float_of((w[i] & 1u) << 31 | (uint32_t)(127 + e) << 23);
        }
        break;
    case CANCEL_X:
    case CANCEL_C:
        for (int32_t i = 0; i < n; i++) {
            const float x = round_bf16(s.a + (float)(int32_t)(w[i] >> 8) * 0x1p-24f * width);
            out[i] = signed_by(s.kind == CANCEL_X ? position : channel + i, x);
        }
        break;
    default:
        break;
    }
}

/* Time steps. With softplus 0.018..0.97, without it the same range directly (dt must not be
 * negative). */
static struct shape dt_shape(const struct hb_case_config *g) {
    switch (g->value_class) {
    case HB_VALUES_EXACT:
        return (struct shape){INTEGER, 0.0f, 1.0f};
    case HB_VALUES_LARGE_DT: /* decays exp(A dt) that underflow, increments up to 40 */
        return (struct shape){UNIFORM, 0.0f, 40.0f};
    case HB_VALUES_TINY_DT: /* softplus(-15) = 3e-7 */
        return g->dt_softplus ? (struct shape){UNIFORM, -16.0f, -14.0f}
                              : (struct shape){UNIFORM, 1e-7f, 1e-6f};
    default:
        return g->dt_softplus ? (struct shape){UNIFORM, -4.0f, 0.5f}
                              : (struct shape){UNIFORM, 0.02f, 1.0f};
    }
}

/* Small integers. A = 0, so nothing decays and S only adds; root mean squares: convolution 3.4, S
 * after 200 tokens 120, y over 128 state columns 5000 and the sum of its absolute terms 30000, far
 * below the 2^24 up to which fp32 is exact in any order. The bf16 type rounds stored results once,
 * as every backend must. */
static struct shape exact_shape(int32_t tensor) {
    switch (tensor) {
    case HB_TENSOR_A:
    case HB_TENSOR_DT_BIAS:
        return (struct shape){INTEGER, 0.0f, 0.0f};
    case HB_TENSOR_CONV_WEIGHT:
    case HB_TENSOR_CONV_BIAS:
        return (struct shape){INTEGER, -1.0f, 1.0f};
    case HB_TENSOR_D:
        return (struct shape){INTEGER, -2.0f, 2.0f};
    case HB_TENSOR_NORM_WEIGHT:
        return (struct shape){INTEGER, 1.0f, 1.0f};
    default:
        return (struct shape){INTEGER, -3.0f, 3.0f};
    }
}

/* Parameters of the classes that are not exact. */
static struct shape parameter_shape(const struct hb_case_config *g, int32_t tensor) {
    const int has_tiny_bias = !g->dt_softplus; /* dt = dt_raw + bias must stay positive */
    switch (tensor) {
    case HB_TENSOR_CONV_WEIGHT: /* about 1 / sqrt(K) */
        return (struct shape){NORMAL, 0.55f, 0.0f};
    case HB_TENSOR_CONV_BIAS:
        return (struct shape){NORMAL, 0.2f, 0.0f};
    case HB_TENSOR_A:
        return (struct shape){UNIFORM, -4.0f, -0.1f};
    case HB_TENSOR_DT_BIAS:
        return has_tiny_bias ? (struct shape){UNIFORM, 0.0f, 1e-6f}
                             : (struct shape){UNIFORM, -0.5f, 0.5f};
    case HB_TENSOR_D:
        return (struct shape){NORMAL, 0.5f, 0.5f};
    default: /* norm weight */
        return (struct shape){NORMAL, 0.15f, 1.0f};
    }
}

static int is_parameter(int32_t tensor) {
    return tensor >= HB_TENSOR_CONV_WEIGHT && tensor <= HB_TENSOR_NORM_WEIGHT;
}

static struct shape shape_of(const struct hb_case_config *g, int32_t tensor) {
    if (tensor == HB_TENSOR_NOISE) {
        return (struct shape){NORMAL, 3.0f, 0.5f};
    }
    if (tensor == HB_TENSOR_DT) {
        return dt_shape(g);
    }
    if (g->value_class == HB_VALUES_EXACT) {
        return exact_shape(tensor);
    }
    if (is_parameter(tensor)) {
        return parameter_shape(g, tensor);
    }
    if (g->value_class == HB_VALUES_WIDE) {
        /* scores of attention stay where a softmax has more than one non-zero weight */
        return tensor == HB_TENSOR_Q || tensor == HB_TENSOR_K
                   ? (struct shape){POWER, -6.0f, 1.0f}
                   : (struct shape){POWER, -10.0f, 10.0f};
    }
    const int is_stream = tensor == HB_TENSOR_XBC || tensor == HB_TENSOR_INIT_CONV;
    if (g->value_class == HB_VALUES_CANCEL && (is_stream || tensor == HB_TENSOR_V)) {
        return (struct shape){CANCEL_X, 1.0f, 1.01f};
    }
    /* scores beyond +-100: a softmax that does not subtract its largest score overflows */
    if (g->value_class == HB_VALUES_LARGE_DT &&
        (tensor == HB_TENSOR_Q || tensor == HB_TENSOR_K)) {
        return (struct shape){NORMAL, 8.0f, 0.0f};
    }
    return (struct shape){NORMAL, 1.0f, 0.0f};
}

/* --- fill
 * -------------------------------------------------------------------------------------------------------
 */

/* Channels from..to-1 (from is a multiple of 4) of one key. */
static void fill_range(const struct hb_case *c, const struct hb_value_key *key, struct shape s,
                       int32_t from, int32_t to, float *out) {
    enum { BATCH = 64 };
    uint32_t words[BATCH];
    const philox4x32_key_t k = {
        {(uint32_t)c->config.seed, (uint32_t)key->tensor | (uint32_t)key->layer << 8}};
    const uint64_t position = (uint64_t)key->position;
    for (int32_t i = from; i < to; i += BATCH) {
        const int32_t n = to - i < BATCH ? to - i : BATCH;
        for (int32_t j = 0; j < n; j += 4) {
            const philox4x32_ctr_t at = {{(uint32_t)position, (uint32_t)(position >> 32),
                                          (uint32_t)key->stream, (uint32_t)(i + j) / 4}};
            const philox4x32_ctr_t block = philox4x32(at, k);
            memcpy(words + j, block.v, sizeof block.v);
        }
        shape_words(s, words, n, i, key->position, out + i);
    }
}

/* In class CANCEL the channels of C (the last G N of xBC) alternate by channel, so that y = sum_n S
 * C cancels too. */
static void cancel_c(const struct hb_case *c, const struct hb_value_key *key, int32_t n,
                     float *out) {
    const struct hb_case_config *g = &c->config;
    const int32_t from = g->heads * g->head_dim + g->groups * g->state_size;
    const struct shape s = {CANCEL_C, 1.0f, 1.01f};
    if (from >= n) {
        return;
    }
    const int32_t first = from / 4 * 4; /* blocks of four: the channels before C are put back */
    const size_t n_keep = (size_t)(from - first);
    float keep[4] = {0};
    memcpy(keep, out + first, n_keep * sizeof *keep);
    fill_range(c, key, s, first, n, out);
    memcpy(out + first, keep, n_keep * sizeof *keep);
}

void hb_values_fill(const struct hb_case *c, const struct hb_value_key *key, int32_t n,
                    float *out) {
    fill_range(c, key, shape_of(&c->config, key->tensor), 0, n, out);
    if (c->config.value_class == HB_VALUES_CANCEL && key->tensor == HB_TENSOR_XBC) {
        cancel_c(c, key, n, out);
    }
    const int has_sign = key->tensor == HB_TENSOR_A || key->tensor == HB_TENSOR_DT ||
                         key->tensor == HB_TENSOR_DT_BIAS;
    for (int32_t i = 0; c->config.value_class == HB_VALUES_ONE_SIGN && !has_sign && i < n; i++) {
        out[i] = out[i] < 0.0f ? -out[i] : out[i];
    }
}

void hb_values_unread(const struct hb_case *c, const struct hb_value_key *key, int32_t n,
                      float *out) {
    if (c->config.unread == HB_UNREAD_RANDOM) {
        struct hb_value_key noise = *key;
        noise.tensor = HB_TENSOR_NOISE;
        noise.stream = key->stream ^ (key->tensor << 16); /* own values for each tensor */
        hb_values_fill(c, &noise, n, out);
        return;
    }
    const float inf = float_of(0x7f800000u);
    const float nan = float_of(0x7fc00000u);
    for (int32_t i = 0; i < n; i++) {
        out[i] = c->config.unread == HB_UNREAD_NAN ? nan : i & 1 ? -inf : inf;
    }
}
