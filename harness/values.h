/* SPDX-License-Identifier: Apache-2.0
 * Tensor values as a function of (seed, tensor, stream, position, layer, channel) from a counter-based generator
 * (Random123 Philox4x32-10): no value depends on the shape of the case, so shrinking leaves the others as they were.
 * Every value is representable in bf16 (so both activation types see the same numbers). */
#ifndef HB_HARNESS_VALUES_H
#define HB_HARNESS_VALUES_H

#include <stdint.h>

#include "backend/caps.h"
#include "harness/case.h"

enum hb_tensor {
    HB_TENSOR_Z, HB_TENSOR_XBC, HB_TENSOR_DT, HB_TENSOR_Q, HB_TENSOR_K, HB_TENSOR_V, /* activations: by position */
    HB_TENSOR_INIT_CONV, HB_TENSOR_INIT_SSM,                                         /* initial states: position 0 */
    HB_TENSOR_CONV_WEIGHT, HB_TENSOR_CONV_BIAS, HB_TENSOR_A, HB_TENSOR_DT_BIAS, HB_TENSOR_D, HB_TENSOR_NORM_WEIGHT,
    HB_TENSOR_NOISE /* pool pre-fill, padding, surplus */
};

struct hb_value_key {
    int32_t tensor, stream, layer;
    int64_t position;
};

/* Fills out[n] with the values of channels 0..n-1. Sizes in config shape some classes (1/sqrt fan-in, ...). */
void hb_values_fill(const struct hb_case *c, const struct hb_value_key *key, int32_t n, float *out);
/* Memory that must not be read: random, NaN or inf by c->config.unread. */
void hb_values_unread(const struct hb_case *c, const struct hb_value_key *key, int32_t n, float *out);

/* Where activations, initial states and parameters of a run come from. The default is hb_values_fill. */
struct hb_value_source {
    void *ctx;
    void (*fill)(void *ctx, const struct hb_case *c, const struct hb_value_key *key, int32_t n, float *out);
};

/* bf16 round to nearest even (NaN -> 0x7fff), and the exact widening. */
uint16_t hb_bf16_from_float(float x);
float hb_bf16_to_float(uint16_t x);
/* The same for fp16, subnormal numbers included; 65520 and more become infinite. */
uint16_t hb_fp16_from_float(float x);
float hb_fp16_to_float(uint16_t x);
/* n elements of a float type to and from float. */
void hb_pack(int32_t dtype, const float *src, int64_t n, void *dst);
void hb_unpack(int32_t dtype, const void *src, int64_t n, float *dst);
int32_t hb_dtype_bytes(int32_t dtype);

#endif
