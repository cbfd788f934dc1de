/* SPDX-License-Identifier: Apache-2.0
 * Elements of a read .safetensors file: types, look-up, conversion. */
#include <math.h>
#include <string.h>

#include "harness/safetensors_internal.h"

static const char *const dtype_name[HB_N_ST_DTYPES] = {"F64", "F32", "BF16", "F16",
                                                       "I64", "I32", "U8",   "BOOL"};
static const uint32_t dtype_size[HB_N_ST_DTYPES] = {8, 4, 2, 2, 8, 4, 1, 1};

const char *hb_st_dtype_name(int32_t dtype) {
    return dtype >= 0 && dtype < HB_N_ST_DTYPES ? dtype_name[dtype] : NULL;
}

uint32_t hb_st_dtype_size(int32_t dtype) {
    return dtype >= 0 && dtype < HB_N_ST_DTYPES ? dtype_size[dtype] : 0;
}

const struct hb_st_tensor *hb_st_find(const struct hb_st_file *f, const char *name) {
    for (int32_t i = 0; i < f->n_tensors; i++) {
        if (strcmp(f->tensor[i].name, name) == 0) {
            return &f->tensor[i];
        }
    }
    return NULL;
}

/* IEEE binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. */
static double half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    double v = 0.0;
    if (exponent == 31) {
        v = fraction != 0 ? (double)NAN : (double)INFINITY;
    } else if (exponent == 0) {
        v = ldexp(fraction, -24);
    } else {
        v = ldexp(1024 + fraction, exponent - 25);
    }
    return (bits & 0x8000) != 0 ? -v : v;
}

static float bf16_value(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float v = 0.0F;
    memcpy(&v, &wide, sizeof v);
    return v;
}

double hb_st_get(const struct hb_st_tensor *t, int64_t i) {
    const uint8_t *at = (const uint8_t *)t->data + (size_t)i * dtype_size[t->dtype];
    union {
        double f64;
        float f32;
        int64_t i64;
        int32_t i32;
        uint16_t u16;
    } v;
    memset(&v, 0, sizeof v);
    memcpy(&v, at, dtype_size[t->dtype]);
    switch (t->dtype) {
    case HB_ST_F64:
        return v.f64;
    case HB_ST_F32:
        return (double)v.f32;
    case HB_ST_BF16:
        return (double)bf16_value(v.u16);
    case HB_ST_F16:
        return half_value(v.u16);
    case HB_ST_I64:
        return (double)v.i64;
    case HB_ST_I32:
        return (double)v.i32;
    default:
        return (double)*at;
    }
}

void hb_st_floats(const struct hb_st_tensor *t, int64_t first, int64_t n, float *out) {
    if (t->dtype == HB_ST_F32) {
        memcpy(out, (const uint8_t *)t->data + (size_t)first * sizeof *out,
               (size_t)n * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = (float)hb_st_get(t, first + i);
    }
}
