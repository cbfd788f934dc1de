/* SPDX-License-Identifier: Apache-2.0
 * The launchers of one build, defined beside their kernels, collected by table.cu. Semantics:
 * kernels.h. */
#ifndef HB_KERNELS_LAUNCHERS_CUH
#define HB_KERNELS_LAUNCHERS_CUH

#include "kernels/port.cuh"

extern "C" {
int32_t HB_K(hb_k_conv_prefill)(const struct hb_k_conv *args);
int32_t HB_K(hb_k_conv_update)(const struct hb_k_conv *args);
int32_t HB_K(hb_k_conv_track)(const struct hb_k_conv_track *args);
int32_t HB_K(hb_k_ssd_prefill)(const struct hb_k_ssm *args);
int32_t HB_K(hb_k_ssm_update)(const struct hb_k_ssm *args);
int32_t HB_K(hb_k_ssm_ring)(const struct hb_k_ssm_ring *args);
int32_t HB_K(hb_k_ssm_ring_verify)(const struct hb_k_ssm_ring *args);
int32_t HB_K(hb_k_ring_fold)(const struct hb_k_ring_fold *args);
int32_t HB_K(hb_k_conv_verify)(const struct hb_k_conv_verify *args);
int32_t HB_K(hb_k_ssm_verify)(const struct hb_k_ssm_verify *args);
int32_t HB_K(hb_k_delta_prefill)(const struct hb_k_delta *args);
int32_t HB_K(hb_k_delta_chunks)(const struct hb_k_delta *args); /* the fast form of it */
int32_t HB_K(hb_k_delta_update)(const struct hb_k_delta *args);
int32_t HB_K(hb_k_delta_verify)(const struct hb_k_delta_verify *args);
int32_t HB_K(hb_k_delta_update_warp)(const struct hb_k_delta *args); /* likewise */
int32_t HB_K(hb_k_delta_verify_warp)(const struct hb_k_delta_verify *args);
int32_t HB_K(hb_k_decay_prefill)(const struct hb_k_decay *args);
int32_t HB_K(hb_k_decay_update)(const struct hb_k_decay *args);
int32_t HB_K(hb_k_decay_verify)(const struct hb_k_decay_verify *args);
int32_t HB_K(hb_k_selective_prefill)(const struct hb_k_selective *args);
int32_t HB_K(hb_k_selective_update)(const struct hb_k_selective *args);
int32_t HB_K(hb_k_selective_verify)(const struct hb_k_selective_verify *args);
int32_t HB_K(hb_k_short_conv_prefill)(const struct hb_k_short_conv *args);
int32_t HB_K(hb_k_short_conv_update)(const struct hb_k_short_conv *args);
int32_t HB_K(hb_k_short_conv_verify)(const struct hb_k_short_conv_verify *args);
int32_t HB_K(hb_k_gated_norm)(const struct hb_k_norm *args);
int32_t HB_K(hb_k_slots)(const struct hb_k_slots *args);
int32_t HB_K(hb_k_windows)(const struct hb_k_windows *args);
int32_t HB_K(hb_k_kv_write)(const struct hb_k_kv_write *args);
int32_t HB_K(hb_k_attention)(const struct hb_k_attention *args);
/* A size that a kernel cannot hold: sets the error text, returns HB_ERR_DEVICE. */
int32_t HB_K(hb_launch_refused)(const char *kernel, const char *field, int32_t value,
                                int32_t limit);
}

/* Blocks of n_threads that cover n work items. */
static inline int64_t hb_blocks_for(int64_t n, int64_t n_threads) {
    return (n + n_threads - 1) / n_threads;
}

/* Block of kernels without a barrier: one work item per thread. */
enum { HB_FLAT_THREADS = HB_SIZE(64, 32) };

#endif
