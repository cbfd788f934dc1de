/* SPDX-License-Identifier: Apache-2.0
 * What the kernel tests share: values, device copies, bounds. Tests run on every table that opens.
 */
#ifndef HB_KERNELS_TESTS_RIG_H
#define HB_KERNELS_TESTS_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/caps.h"
#include "backend/defects.h"
#include "backend/status.h"
#include "kernels/bf16.cuh"
#include "kernels/fp16.cuh"
#include "kernels/kernels.h"

/* u of fp32, bf16 and fp16 (tolerance.md 2), and the error of expf */
#define U32 (1.0 / 16777216.0)
#define U_BF16 (1.0 / 256.0)
#define U_FP16 (1.0 / 2048.0)
#define E_EXP (2.0 * U32)
#define FLOOR 1.1754943508222875e-38

enum { RIG_MAX_BUFFERS = 64 };

struct rig {
    const struct hb_kernels *k;
    void *buffers[RIG_MAX_BUFFERS];
    int n_buffers;
    uint32_t seed;
};

static inline double gam(double n, double u) {
    return n * u / (1.0 - n * u);
}

static inline double u_of(int32_t dtype) {
    return dtype == HB_BF16 ? U_BF16 : dtype == HB_FP16 ? U_FP16 : 0.0;
}

/* Half the distance between the smallest numbers of a type. */
static inline double floor_of(int32_t dtype) {
    return dtype == HB_FP16 ? 1.0 / 33554432.0 : FLOOR;
}

static inline size_t size_of(int32_t dtype) {
    return dtype == HB_FP32 ? 4 : 2;
}

static inline uint16_t half_from(float value, int32_t dtype) {
    return dtype == HB_BF16 ? hb_bf16_from_float(value) : hb_fp16_from_float(value);
}

static inline float half_to_float(uint16_t half, int32_t dtype) {
    return dtype == HB_BF16 ? hb_bf16_to_float(half) : hb_fp16_to_float(half);
}

/* Opens table i (0 emu, 1 cuda); 0 when there is none. */
static inline int rig_open(struct rig *rig, int i, uint32_t seed) {
    memset(rig, 0, sizeof *rig);
    rig->seed = seed;
    if (i == 0) {
        rig->k = hb_kernels_emu();
    }
#ifdef HB_HAVE_CUDA
    if (i == 1) {
        rig->k = hb_kernels_cuda();
    }
#endif
    if (!rig->k || rig->k->open() != HB_OK) {
        return 0;
    }
    rig->k->set_order(HB_ORDER_ASCENDING, HB_ORDER_ASCENDING, 1);
    return 1;
}

static inline void rig_close(struct rig *rig) {
    for (int i = 0; i < rig->n_buffers; i++) {
        rig->k->mem_free(rig->buffers[i]);
    }
    rig->n_buffers = 0;
}

/* Device copy of host bytes; null source: poisoned memory. */
static inline void *rig_device(struct rig *rig, const void *host, size_t bytes) {
    void *ptr = NULL;
    assert_true(rig->n_buffers < RIG_MAX_BUFFERS);
    assert_int_equal(rig->k->mem_alloc(bytes, &ptr), HB_OK);
    rig->buffers[rig->n_buffers++] = ptr;
    if (host) {
        assert_int_equal(rig->k->to_device(ptr, host, bytes), HB_OK);
    }
    return ptr;
}

/* Replaces device memory that a launch reads: its arguments are pointers to const. */
static inline void rig_rewrite(const struct rig *rig, const void *device, const void *host,
                               size_t bytes) {
    void *ptr;
    memcpy((void *)&ptr, (const void *)&device, sizeof ptr);
    assert_int_equal(rig->k->to_device(ptr, host, bytes), HB_OK);
}

static inline void *rig_host(struct rig *rig, const void *device, size_t bytes) {
    void *host = malloc(bytes ? bytes : 1);
    assert_non_null(host);
    assert_int_equal(rig->k->sync(), HB_OK);
    assert_int_equal(rig->k->to_host(host, device, bytes), HB_OK);
    return host;
}

/* Uniform in [low, high). */
static inline float rig_value(struct rig *rig, float low, float high) {
    rig->seed = rig->seed * 1664525U + 1013904223U;
    return low + (high - low) * (float)(rig->seed >> 8) / 16777216.0f;
}

/* Small integers, which every order of summation adds exactly. */
static inline float rig_integer(struct rig *rig, int range) {
    rig->seed = rig->seed * 1664525U + 1013904223U;
    return (float)((int)((rig->seed >> 8) % (uint32_t)(2 * range + 1)) - range);
}

/* Values in the memory format, and exactly widened. */
struct array {
    void *bytes;
    double *wide;
    size_t n;
    int32_t dtype;
};

static inline void array_set(struct array *a, size_t i, float value) {
    if (a->dtype != HB_FP32) {
        const uint16_t half = half_from(value, a->dtype);
        ((uint16_t *)a->bytes)[i] = half;
        a->wide[i] = (double)half_to_float(half, a->dtype);
    } else {
        ((float *)a->bytes)[i] = value;
        a->wide[i] = (double)value;
    }
}

static inline struct array array_make(size_t n, int32_t dtype) {
    struct array a = {calloc(n ? n : 1, 4), calloc(n ? n : 1, sizeof(double)), n, dtype};
    assert_non_null(a.bytes);
    assert_non_null(a.wide);
    return a;
}

/* range > 0: uniform in (-range, range); range < 0: integers up to -range. */
static inline struct array array_random(struct rig *rig, size_t n, int32_t dtype, float range) {
    struct array a = array_make(n, dtype);
    for (size_t i = 0; i < n; i++) {
        array_set(&a, i, range < 0 ? rig_integer(rig, (int)-range) : rig_value(rig, -range, range));
    }
    return a;
}

static inline void array_free(struct array *a) {
    free(a->bytes);
    free(a->wide);
}

static inline void *array_device(struct rig *rig, const struct array *a) {
    return rig_device(rig, a->bytes, a->n * size_of(a->dtype));
}

/* Reads n elements back. */
static inline struct array array_read(struct rig *rig, const void *device, size_t n,
                                      int32_t dtype) {
    struct array a = array_make(n, dtype);
    void *host = rig_host(rig, device, n * size_of(dtype));
    memcpy(a.bytes, host, n * size_of(dtype));
    free(host);
    for (size_t i = 0; i < n; i++) {
        a.wide[i] = dtype != HB_FP32 ? (double)half_to_float(((uint16_t *)a.bytes)[i], dtype)
                                     : (double)((float *)a.bytes)[i];
    }
    return a;
}

static inline int array_same(const struct array *a, const struct array *b) {
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n * size_of(a->dtype)) == 0;
}

static inline double silu64(double x) {
    return x / (1.0 + exp(-x));
}

/* 1 if value is finite and within bound of want. */
static inline int is_near(double value, double want, double bound) {
    return isfinite(value) && fabs(value - want) <= bound;
}

#endif
