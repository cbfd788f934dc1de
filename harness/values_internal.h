/* SPDX-License-Identifier: Apache-2.0
 * Between the files of the values: how the values of a tensor are distributed, part by part of its channels. */
#ifndef HB_HARNESS_VALUES_INTERNAL_H
#define HB_HARNESS_VALUES_INTERNAL_H

#include "harness/values.h"

enum hb_shape_kind {
    HB_SHAPE_NORMAL, /* b + a * sum of four uniform bytes, standardised: about N(b, a^2), |.| <= b + 3.5 a */
    HB_SHAPE_UNIFORM,  /* [a, b) */
    HB_SHAPE_GATE,     /* the same, but the special value in one of eight draws */
    HB_SHAPE_INTEGER,  /* a..b */
    HB_SHAPE_POWER,    /* +-2^e, e in a..b */
    HB_SHAPE_CANCEL_X, /* alternating in sign by position, equal in magnitude to about 1 % */
    HB_SHAPE_CANCEL_C  /* alternating in sign by channel, the same for all positions to about 1 % */
};

struct hb_shape {
    enum hb_shape_kind kind;
    float a, b, special;
    float scale; /* a power of two that every value is multiplied by */
};

enum hb_value_fill { HB_FILL_SHAPE = 0, HB_FILL_UNIT = 1, HB_FILL_TAP = 2 };

/* Consecutive values of a tensor. The last part of a tensor goes on to its end. */
struct hb_value_part {
    int32_t n;
    int32_t fill; /* enum hb_value_fill */
    struct hb_shape shape;
    int32_t is_positive;     /* signs are taken away */
    int32_t vector, columns; /* UNIT: channels of a vector; UNIT, TAP: values of a channel */
};

enum { HB_MAX_VALUE_PARTS = 3 };
/* Parts of a tensor; at least one. */
int32_t hb_value_parts(const struct hb_case_config *g, int32_t tensor,
                       struct hb_value_part out[HB_MAX_VALUE_PARTS]);

#endif
