/* SPDX-License-Identifier: Apache-2.0
 * Tensor values by Philox4x32-10: key = (seed, tensor and layer), counter = (position, stream,
 * block of four channels). Also the conversions of 16-bit types. */
#include "harness/values.h"

#include <string.h>

#include <Random123/philox.h>

#include "backend/adapter.h"
#include "harness/values_internal.h"

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

/* --- random words to values ------------------------------------------------------------------- */

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

/* One loop per kind, so that the compiler can take several at a time. */
static void shape_words(struct hb_shape s, const uint32_t *w, int32_t n, int32_t channel,
                        int64_t position, float *out) {
    const float width = s.b - s.a;
    switch (s.kind) {
    case HB_SHAPE_NORMAL:
        for (int32_t i = 0; i < n; i++) {
            const uint32_t pairs = (w[i] & 0x00ff00ffu) + ((w[i] >> 8) & 0x00ff00ffu);
            const float sum = (float)(int32_t)((pairs & 0xffffu) + (pairs >> 16));
            out[i] = round_bf16(s.b + s.a * ((sum - byte_sum_mean) * byte_sum_scale));
        }
        break;
    case HB_SHAPE_UNIFORM:
        for (int32_t i = 0; i < n; i++) {
            out[i] = round_bf16(s.a + (float)(int32_t)(w[i] >> 8) * 0x1p-24f * width);
        }
        break;
    case HB_SHAPE_GATE:
        for (int32_t i = 0; i < n; i++) { /* the low bits have no part in the value */
            const float x = round_bf16(s.a + (float)(int32_t)(w[i] >> 8) * 0x1p-24f * width);
            out[i] = (w[i] & 7u) == 0 ? s.special : x;
        }
        break;
    case HB_SHAPE_INTEGER:
        for (int32_t i = 0; i < n; i++) {
            out[i] = s.a + (float)scaled(w[i], width + 1.0f);
        }
        break;
    case HB_SHAPE_POWER:
        for (int32_t i = 0; i < n; i++) {
            const int32_t e = (int32_t)s.a + scaled(w[i], width + 1.0f);
            out[i] = float_of((w[i] & 1u) << 31 | (uint32_t)(127 + e) << 23);
        }
        break;
    case HB_SHAPE_CANCEL_X:
    case HB_SHAPE_CANCEL_C:
        for (int32_t i = 0; i < n; i++) {
            const float x = round_bf16(s.a + (float)(int32_t)(w[i] >> 8) * 0x1p-24f * width);
            out[i] = signed_by(s.kind == HB_SHAPE_CANCEL_X ? position : channel + i, x);
        }
        break;
    default:
        break;
    }
}

/* --- fill ------------------------------------------------------------------------------------- */

enum { BLOCK = 4, BATCH = 64 };

/* Words of channels from..from+n-1 (from is a multiple of 4) of one key. */
static void draw_words(const struct hb_case *c, const struct hb_value_key *key, int32_t from, int32_t n,
                       uint32_t words[BATCH]) {
    const philox4x32_key_t k = {
        {(uint32_t)c->config.seed, (uint32_t)key->tensor | (uint32_t)key->layer << 8}};
    const uint64_t position = (uint64_t)key->position;
    for (int32_t j = 0; j < n; j += BLOCK) {
        const philox4x32_ctr_t at = {{(uint32_t)position, (uint32_t)(position >> 32),
                                      (uint32_t)key->stream, (uint32_t)(from + j) / BLOCK}};
        const philox4x32_ctr_t block = philox4x32(at, k);
        memcpy(words + j, block.v, sizeof block.v);
    }
}

/* Channels from..to-1 of one key. */
static void fill_range(const struct hb_case *c, const struct hb_value_key *key,
                       const struct hb_value_part *p, int32_t from, int32_t to, float *out) {
    uint32_t words[BATCH];
    for (int32_t i = from / BLOCK * BLOCK; i < to; i += BATCH) {
        const int32_t n = to - i < BATCH ? to - i : BATCH;
        const int32_t skip = from > i ? from - i : 0;
        draw_words(c, key, i, n, words);
        shape_words(p->shape, words + skip, n - skip, i + skip, key->position, out + i + skip);
    }
    const float scale = p->shape.scale;
    for (int32_t i = from; scale != 1.0f && i < to; i++) {
        out[i] *= scale; /* a power of two: stays exact */
    }
    for (int32_t i = from; p->is_positive && i < to; i++) {
        out[i] = out[i] < 0.0f ? -out[i] : out[i];
    }
}

/* Of each vector of p->vector channels at most one is not zero, and it is 1 or -1. Channels have `columns` values each,
 * which belong to that many vectors: those of a conv state. */
static void fill_unit(const struct hb_case *c, const struct hb_value_key *key,
                      const struct hb_value_part *p, int32_t from, int32_t to, float *out) {
    uint32_t words[BATCH];
    const int32_t stride = p->vector * p->columns;
    for (int32_t i = from; i < to; i++) {
        out[i] = 0.0f;
    }
    for (int32_t first = from; first < to; first += stride) {
        draw_words(c, key, first / BLOCK * BLOCK, BLOCK, words);
        for (int32_t j = 0; j < p->columns; j++) {
            const uint32_t w = words[first % BLOCK] * (2u * (uint32_t)j + 1u);
            const int32_t at = first + (int32_t)((w >> 4) % (uint32_t)p->vector) * p->columns + j;
            if (at < to && (w & 7u) != 0) {
                out[at] = signed_by(w >> 3, 1.0f);
            }
        }
    }
}

/* All channels take the same one of their `columns` taps, so that vectors with one entry stay such. */
static void fill_tap(const struct hb_case *c, const struct hb_value_key *key,
                     const struct hb_value_part *p, int32_t from, int32_t to, float *out) {
    uint32_t words[BATCH];
    draw_words(c, key, 0, BLOCK, words);
    const int32_t tap = (int32_t)((words[0] >> 8) % (uint32_t)p->columns);
    for (int32_t i = from; i < to; i++) {
        out[i] = (i - from) % p->columns == tap ? 1.0f : 0.0f;
    }
}

void hb_values_fill(const struct hb_case *c, const struct hb_value_key *key, int32_t n,
                    float *out) {
    struct hb_value_part part[HB_MAX_VALUE_PARTS];
    const int32_t n_parts = hb_value_parts(&c->config, key->tensor, part);
    int32_t from = 0;
    for (int32_t i = 0; i < n_parts && from < n; i++) {
        const int32_t most = n - from;
        const int32_t to = i == n_parts - 1 || part[i].n > most ? n : from + part[i].n;
        if (part[i].fill == HB_FILL_UNIT) {
            fill_unit(c, key, &part[i], from, to, out);
        } else if (part[i].fill == HB_FILL_TAP) {
            fill_tap(c, key, &part[i], from, to, out);
        } else {
            fill_range(c, key, &part[i], from, to, out);
        }
        from = to;
    }
    const int is_stored = key->tensor <= HB_TENSOR_INIT_CONV;
    for (int32_t i = 0; is_stored && c->config.act_dtype == HB_FP16 && i < n; i++) {
        out[i] = hb_fp16_to_float(hb_fp16_from_float(out[i]));
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
