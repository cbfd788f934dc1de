/* SPDX-License-Identifier: Apache-2.0
 * Parameters of a linear layer of the float64 oracle behind the adapter table: which a kind has
 * (backend/caps.h, struct hb_layer_params), and a copy of them. One row per kind. */
#include "harness/oracle_adapter.h"

#include <stdlib.h>
#include <string.h>

/* How many numbers a parameter has. */
enum count { NONE, PER_HEAD, PER_HEAD_STATE, PER_CHANNEL, PER_CHANNEL_STATE, N_COUNTS };

static const struct kind_row {
    enum count a, dt_bias, d;
    int32_t has_norm;
} KINDS[HB_N_LAYER_KINDS] = {
    [HB_LAYER_MAMBA2] = {PER_HEAD, PER_HEAD, PER_HEAD, 1},
    [HB_LAYER_GDN] = {PER_HEAD, PER_HEAD, NONE, 1},
    [HB_LAYER_KDA] = {PER_HEAD, PER_HEAD_STATE, NONE, 1},
    [HB_LAYER_LIGHTNING] = {PER_HEAD, NONE, NONE, 1}, /* a: slope PARAM only */
    [HB_LAYER_SHORT_CONV] = {NONE, NONE, NONE, 0},
    [HB_LAYER_MAMBA1] = {PER_CHANNEL_STATE, PER_CHANNEL, PER_CHANNEL, 1},
};

static int64_t count_of(const struct hb_config *c, enum count count) {
    const int64_t heads = c->n_heads, channels = heads * c->head_dim;
    const int64_t counts[N_COUNTS] = {[NONE] = 0,
                                      [PER_HEAD] = heads,
                                      [PER_HEAD_STATE] = heads * c->state_size,
                                      [PER_CHANNEL] = channels,
                                      [PER_CHANNEL_STATE] = channels * c->state_size};
    return counts[count];
}

/* The parameters of one layer, each with its length (0: the layer has none) and whether the layer
 * needs it. */
enum { N_PARAMS = 6 };
struct part {
    const float *src;
    const float **dst;
    int64_t n;
    int32_t is_needed;
};

static void list_parts(const struct hb_config *c, int32_t kind, const struct hb_layer_params *src,
                       struct hb_layer_params *dst, struct part parts[N_PARAMS]) {
    const struct kind_row *row = &KINDS[kind];
    const int has_norm =
        row->has_norm && (c->gate_norm == HB_GATE_NORM_AFTER ||
                          c->gate_norm == HB_GATE_NORM_BEFORE || c->gate_norm == HB_NORM_ONLY);
    const int has_a = kind != HB_LAYER_LIGHTNING || c->slope_kind == HB_SLOPE_PARAM;
    struct hb_ref_sizes s;
    hb_ref_linear_sizes(c, kind, &s);
    const struct part all[N_PARAMS] = {
        {src->conv_weight, &dst->conv_weight, s.channels * c->conv_width, 1},
        {src->conv_bias, &dst->conv_bias, s.channels, 0},
        {src->a, &dst->a, has_a ? count_of(c, row->a) : 0, 1},
        {src->dt_bias, &dst->dt_bias, count_of(c, row->dt_bias), 0},
        {src->d, &dst->d, count_of(c, row->d), 0},
        {src->norm_weight, &dst->norm_weight, has_norm ? s.width[3] : 0, 1},
    };
    memcpy(parts, all, sizeof all);
}

int32_t hb_oracle_params_keep(const struct hb_config *c, int32_t kind,
                              const struct hb_layer_params *src, struct hb_oracle_layer *layer,
                              struct hb_error *err) {
    struct part parts[N_PARAMS];
    int64_t total = 0;
    list_parts(c, kind, src, &layer->params, parts);
    for (int i = 0; i < N_PARAMS; i++) {
        if (parts[i].src == NULL && parts[i].is_needed && parts[i].n > 0) {
            return hb_fail_text(err, HB_ERR_NULL, "a parameter that the layer needs is null");
        }
        total += parts[i].n;
    }
    layer->numbers = malloc((size_t)(total + 1) * sizeof *layer->numbers);
    if (layer->numbers == NULL) {
        return hb_oracle_no_memory(err, "parameters");
    }
    float *at = layer->numbers;
    for (int i = 0; i < N_PARAMS; i++) {
        const int is_there = parts[i].src != NULL && parts[i].n > 0;
        *parts[i].dst = is_there ? at : NULL;
        if (is_there) {
            memcpy(at, parts[i].src, (size_t)parts[i].n * sizeof *at);
            at += parts[i].n;
        }
    }
    return HB_OK;
}
