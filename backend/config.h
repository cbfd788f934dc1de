/* SPDX-License-Identifier: Apache-2.0
 * Configuration: rules 200.. and the sizes derived from an accepted configuration. */
#ifndef HB_BACKEND_CONFIG_H
#define HB_BACKEND_CONFIG_H

#include <stdint.h>

#include "backend/caps.h"
#include "backend/status.h"

/* Parameters of a layer, in the order of struct hb_layer_params. */
enum hb_param {
    HB_PARAM_CONV_WEIGHT,
    HB_PARAM_CONV_BIAS,
    HB_PARAM_A,
    HB_PARAM_DT_BIAS,
    HB_PARAM_D,
    HB_PARAM_NORM_WEIGHT,
    HB_N_PARAMS
};

/* Sizes that follow from the configuration; letters as in caps.h. Those of linear layers are the
 * model's linear kind's (Mamba2's where there is no linear layer, and nothing has them). */
struct hb_dims {
    int32_t linear_kind; /* of the first linear layer; -1: none */
    int32_t d_inner;     /* H*P */
    int32_t dim;         /* conv channels, 0: no conv and no conv state */
    int32_t window;      /* W, columns of the conv state: K-1, or K */
    int32_t cache_chunk; /* CC = max(C, page_size) */
    int32_t act_bytes, state_bytes;
    int32_t has_attention;
    int64_t n_nodes;             /* SR*D: entries of one layer's intermediate caches */
    int32_t track_interval;      /* I, resolved */
    int64_t windows_bytes;       /* intermediate_conv of one layer: windows or strips */
    int64_t conv_slot_bytes;     /* dim*W activations */
    int64_t temporal_slot_bytes; /* H*P*N state elements, 0: no temporal state */
    int64_t kv_bytes;            /* n_kv*HKV*D activations */
};

/* Lowest rule number, then lowest row; writes nothing but err. The rows are listed in
 * backend/README.md. */
int32_t hb_config_check(const struct hb_config *config, struct hb_error *err);
/* Of a configuration that passed hb_config_check. */
void hb_config_dims(const struct hb_config *config, struct hb_dims *dims);
int32_t hb_config_dtype_bytes(int32_t dtype);
/* Elements of a parameter (enum hb_param) of a layer kind, 0: the kind has none; and whether a layer
 * cannot do without. */
int64_t hb_config_param_count(const struct hb_config *config, int32_t layer_kind, int32_t i);
int32_t hb_config_param_needed(const struct hb_config *config, int32_t layer_kind, int32_t i);
/* Elements per token of layer buffer i (0..2 inputs, 3 output) for a layer kind, 0: not read. */
int64_t hb_config_io_width(const struct hb_config *config, int32_t layer_kind, int32_t i);
/* 1 if verifies and commits own the replay ring (speculative.md section 7). */
static inline int32_t hb_config_ring_commits(const struct hb_config *config) {
    return config->ring_length > 0 && config->ring_owner == HB_RING_COMMIT;
}
/* a*b*c, INT64_MAX on overflow; a, b, c >= 0. */
int64_t hb_mul_saturate(int64_t a, int64_t b, int64_t c);

#endif
