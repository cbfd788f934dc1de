/* SPDX-License-Identifier: Apache-2.0
 * Log decays of lightning attention that follow from the configuration (ops-delta.md section 3). */
#ifndef HB_BACKEND_SLOPES_H
#define HB_BACKEND_SLOPES_H

#include <stdint.h>

#include "backend/caps.h"

/* Fills log_decay [n_heads] of model layer layer_id with -slope and returns 1; returns 0, and fills
 * nothing, where the decays are a parameter or come with each token. */
int32_t hb_slopes_fill(const struct hb_config *config, int32_t layer_id, float *log_decay);

#endif
