/* SPDX-License-Identifier: Apache-2.0
 * What the importers of golden operations share. */
#ifndef HB_HARNESS_GOLDEN_LOAD_H
#define HB_HARNESS_GOLDEN_LOAD_H

#include <stdio.h>

#include "harness/golden_internal.h"

/* config.name is true. */
int hb_golden_flag(const cJSON *config, const char *name);
/* A tensor of that shape as floats owned by p; null and err filled otherwise. */
float *hb_golden_floats(struct hb_golden_problem *p, const char *name, int32_t n_dims, const int64_t *shape,
                        struct hb_error *err);
/* Sizes {H, P, N, G, K, C} and defaults of the configuration. */
int32_t hb_golden_shape(struct hb_golden_problem *p, const int32_t size[6], struct hb_error *err);
/* Zeroed layer inputs for p->n_tokens. */
int32_t hb_golden_inputs(struct hb_golden_problem *p, struct hb_error *err);

#endif
