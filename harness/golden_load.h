/* SPDX-License-Identifier: Apache-2.0
 * What the importers of golden operations share. */
#ifndef HB_HARNESS_GOLDEN_LOAD_H
#define HB_HARNESS_GOLDEN_LOAD_H

#include <stdio.h>

#include "harness/golden_internal.h"

/* A tensor of that shape as floats owned by p; null and err filled otherwise. */
float *hb_golden_floats(struct hb_golden_problem *p, const char *name, int32_t n_dims,
                        const int64_t *shape, struct hb_error *err);
/* Sizes {H, P, N, G, K, C} and defaults of the configuration. */
int32_t hb_golden_shape(struct hb_golden_problem *p, const int32_t size[6], struct hb_error *err);
/* Zeroed layer inputs for p->n_tokens. */
int32_t hb_golden_inputs(struct hb_golden_problem *p, struct hb_error *err);
/* Conv weights (0, .., 0, 1) for the first n channels, 0 for the rest; given weights are copied
 * instead. */
int32_t hb_golden_set_conv(struct hb_golden_problem *p, int32_t n, const float *given,
                           struct hb_error *err);
/* A = -1 and D = 1 for each head. */
int32_t hb_golden_set_pass_through(struct hb_golden_problem *p, struct hb_error *err);
/* Initial states: conv [n_seq, channels, W] of the first channels or null, ssm or null. */
int32_t hb_golden_set_initial(struct hb_golden_problem *p, const float *conv, int32_t channels,
                              const float *ssm, struct hb_error *err);
/* Copies tensor [T, width] into channels first.. of the layer input `to` [T, stride]. */
int32_t hb_golden_put_input(const struct hb_golden_problem *p, const char *name, int32_t n_dims,
                            const int64_t *shape, double *to, int32_t stride, int32_t first,
                            struct hb_error *err);
/* Outputs ("exp64.y" + suffix, ..) and the types of core cases, whose inputs are exact in both. */
int32_t hb_golden_set_expected(struct hb_golden_problem *p, const char *suffix, int32_t n_dims,
                               const int64_t *shape, struct hb_error *err);

#endif
