/* SPDX-License-Identifier: Apache-2.0
 * What differs between the kinds of linear layers: one row per kind, one file per row (or per
 * family of rows). linear.c owns what they share: conv, tracking, the order of launches, the gated
 * norm. backend/README.md "Adding a linear kind". */
#ifndef HB_BACKEND_LINEAR_H
#define HB_BACKEND_LINEAR_H

#include <stdint.h>

#include "backend/layers.h"

/* One launch of a kind: its rows, with device arrays, and what the layer has. */
struct hb_linear_call {
    const struct hb_layer_run *run;
    const struct hb_linear_weights *weights;
    const struct hb_pool *pool;
    int32_t pool_layer;
    const struct hb_spec_cache *spec; /* verify */
    const struct hb_layer_buffers *io;
    struct hb_k_rows rows; /* prefill, one-token or verify rows; at least one */
    /* prefill with tracked rows, else null: state (conv state) after the row's first after[r]
     * (conv_after[r]) tokens goes to slot dst[r]; 0: not tracked */
    const int32_t *after, *conv_after, *dst;
    const int32_t *parent; /* verify: device [n_rows, parent_stride], null for chains */
    int32_t parent_stride;
};

struct hb_linear_kind {
    /* 1: the shared conv runs first, from in[1] to run->conv_out, with dims->dim channels, their
     * windows and their tracking. 0: the launches see to all of that themselves */
    int32_t has_conv;
    /* 1: the launches write run->ssm_out, and the gated norm follows. 0: they write io->out */
    int32_t has_norm;
    /* rule that refuses the child's entry, by enum hb_entry_direction; 0: the entry runs the layer */
    int32_t entry_rule[2];
    /* Rows of a prompt; rows of one token each; the nodes of a verify, which only reads pools and
     * writes spec. All return a status with err filled. */
    int32_t (*prefill)(const struct hb_linear_call *call, struct hb_error *err);
    int32_t (*update)(const struct hb_linear_call *call, struct hb_error *err);
    int32_t (*verify)(const struct hb_linear_call *call, struct hb_error *err);
    /* Null, or: fills parameter a [H] of model layer layer_id and returns 1; returns 0 where it is
     * the caller's. */
    int32_t (*fill_a)(const struct hb_config *config, int32_t layer_id, float *a);
};

/* Row of a layer kind; null for attention and for kinds that this backend lacks. */
const struct hb_linear_kind *hb_linear_kind(int32_t layer_kind);

extern const struct hb_linear_kind hb_linear_mamba2;
extern const struct hb_linear_kind hb_linear_lightning;
extern const struct hb_linear_kind hb_linear_short_conv;
extern const struct hb_linear_kind hb_linear_mamba1;
extern const struct hb_linear_kind hb_linear_delta; /* GDN, KDA */

#endif
