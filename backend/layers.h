/* SPDX-License-Identifier: Apache-2.0
 * The two children of the hybrid backend: linear layers and full-attention layers. Both
 * read metadata that was derived once per forward, and launch kernels; they check nothing and keep
 * nothing. */
#ifndef HB_BACKEND_LAYERS_H
#define HB_BACKEND_LAYERS_H

#include <stdint.h>

#include "backend/caps.h"
#include "backend/config.h"
#include "backend/metadata.h"
#include "backend/pool.h"
#include "backend/status.h"
#include "kernels/kernels.h"

/* On the device; null where the layer has none. One allocation each, so that reads past one are
 * seen. */
struct hb_linear_weights {
    void *param[HB_N_PARAMS];
};

/* Intermediate caches of one linear layer (speculative.md section 1), entries [SR, max_draft]; null
 * where the kind has no such state. */
struct hb_spec_cache {
    void *windows; /* act [SR, max_draft, dim, W], or strips [SR, dim, max_draft+W-1] */
    void *states;  /* st [SR, max_draft, H, P, N], or [.., H, N, P], as the pool */
};

/* What one layer call sees of the forward. */
struct hb_layer_run {
    const struct hb_kernels *kernels;
    const struct hb_config *config;
    const struct hb_dims *dims;
    const struct hb_metadata *meta;
    const int32_t *device_meta; /* device copy of meta->block */
    void *conv_out;             /* device scratch, act [max_tokens, dim] */
    void *ssm_out;              /* device scratch, act [max_tokens, d_inner] */
};

struct hb_layer_buffers {
    const void *in[3]; /* null only when n_tokens is 0 */
    void *out;
};

/* Device address of a metadata array. */
static inline const int32_t *hb_layer_array(const struct hb_layer_run *run, const int32_t *host) {
    return run->device_meta + (host - run->meta->block);
}

/* The linear child's one forward: prefill rows, then one-token rows, or the nodes of a verify; then
 * the gated norm of the real tokens. */
int32_t hb_linear_forward(const struct hb_layer_run *run, const struct hb_linear_weights *weights,
                          const struct hb_pool *pool, int32_t pool_layer,
                          const struct hb_spec_cache *spec, const struct hb_layer_buffers *io,
                          struct hb_error *err);
/* DECODE tracking of one layer (tracking.md section 5): slot -> destination of the masked rows. */
int32_t hb_linear_track(const struct hb_layer_run *run, const struct hb_pool *pool,
                        int32_t pool_layer, struct hb_error *err);
/* Rule with which the entries of a kind refuse (forward-batch.md section 2), 0: they run the layer.
 * Models without a linear layer (kind -1) refuse like Mamba2. */
int32_t hb_linear_entry_rule(int32_t layer_kind, int32_t direction);
/* Kinds that have a row: bit k. */
uint32_t hb_linear_kind_mask(void);
/* Parameter a [H] of a layer where it follows from the configuration: fills it and returns 1, else 0. */
int32_t hb_linear_fill_a(const struct hb_config *config, int32_t layer_id, float *a);
/* Stores keys and values of the real tokens, then attends over all live rows. */
int32_t hb_full_attn_forward(const struct hb_layer_run *run, void *kv_k, void *kv_v,
                             const struct hb_layer_buffers *io, struct hb_error *err);

#endif
