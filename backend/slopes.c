/* SPDX-License-Identifier: Apache-2.0
 * Slopes of lightning attention: s_h = base_h * factor, in double, rounded once to fp32. */
#include "backend/slopes.h"

#include <math.h>

#include "backend/defects.h"

static const double FACTOR_EPS = 1e-5;

/* base of head i of n: 2^(-8 (i + 1) / n). */
static double power_base(int32_t n, int32_t i) {
    return exp2(-8.0 * (i + 1) / n);
}

/* The list for n heads where n is a power of two; else the list for the power p below n, then the
 * entries 0, 2, 4, .. of the list for 2p. */
static double alibi_base(int32_t n, int32_t i) {
    int32_t p = 1;
    while (p <= n / 2) {
        p *= 2;
    }
    return i < p ? power_base(p, i) : power_base(2 * p, 2 * (i - p));
}

/* layer counts from 0 among all n_layers layers; of a single one, layer / (n_layers - 1) is 0. */
static double factor_of(int32_t layer_factor, int32_t layer, int32_t n_layers) {
    const double last = (double)n_layers - 1.0;
    switch (layer_factor) {
    case HB_FACTOR_MINIMAX:
        return 1.0 - layer / (last + FACTOR_EPS) + FACTOR_EPS;
    case HB_FACTOR_LING:
        return 1.0 - (n_layers > 1 ? layer / last : 0.0) + FACTOR_EPS;
    case HB_FACTOR_LING_OFF:
        return 1.0 - (n_layers > 1 ? (layer - 1) / last : 0.0) + FACTOR_EPS;
    default:
        return 1.0;
    }
}

static double slope_of(const struct hb_config *config, int32_t layer, int32_t head) {
    const int32_t n = config->n_heads;
    const double factor = factor_of(config->layer_factor, layer, config->n_layers);
    switch (config->slope_kind) {
    case HB_SLOPE_ALIBI:
        return factor * alibi_base(n, head);
    case HB_SLOPE_MINIMAX:
        return factor * power_base(n, head);
    default: /* HB_SLOPE_FLA */
        return 8.0 / n * (1.0 - (double)layer / config->n_layers) * head;
    }
}

int32_t hb_slopes_fill(const struct hb_config *config, int32_t layer_id, float *log_decay) {
    const int32_t layer = layer_id + (HB_DEFECT(config->defect, LAYER_FACTOR) ? 1 : 0);
    if (config->slope_kind == HB_SLOPE_PARAM || config->slope_kind == HB_SLOPE_TOKEN) {
        return 0;
    }
    for (int32_t h = 0; h < config->n_heads; h++) {
        log_decay[h] = (float)-slope_of(config, layer, h);
    }
    return 1;
}
