/* SPDX-License-Identifier: Apache-2.0
 * The mode table (forward-batch.md section 1): for each predicate, the set of modes for which it is
 * true. */
#include "backend/mode.h"

#include <stddef.h>

#define M(mode) (1U << HB_MODE_##mode)

static const char *const names[HB_MODE_MAX + 1] = {
#define HB_MODE_NAME(number, name) [number] = #name,
    HB_MODES(HB_MODE_NAME)
#undef HB_MODE_NAME
};

static const uint32_t true_for[HB_N_MODE_PREDICATES] = {
    [HB_MODE_IS_EXTEND] =
        M(EXTEND) | M(MIXED) | M(TARGET_VERIFY) | M(SPLIT_PREFILL) | M(DLLM_EXTEND),
    [HB_MODE_IS_EXTEND_V2] = M(EXTEND) | M(MIXED) | M(TARGET_VERIFY) | M(DRAFT_EXTEND_V2) |
                             M(SPLIT_PREFILL) | M(DLLM_EXTEND),
    [HB_MODE_IS_EXTEND_WITHOUT_SPECULATIVE] =
        M(EXTEND) | M(MIXED) | M(SPLIT_PREFILL) | M(DLLM_EXTEND),
    [HB_MODE_IS_CONTEXT_PARALLEL_EXTEND] = M(EXTEND) | M(MIXED),
    [HB_MODE_IS_CONTEXT_PARALLEL_EXTEND_V2] = M(EXTEND) | M(MIXED) | M(DRAFT_EXTEND_V2),
    [HB_MODE_IS_EXTEND_OR_DRAFT_EXTEND_OR_MIXED] = M(EXTEND) | M(MIXED) | M(SPLIT_PREFILL),
    [HB_MODE_IS_EXTEND_OR_DRAFT_EXTEND_OR_MIXED_V2] =
        M(EXTEND) | M(MIXED) | M(DRAFT_EXTEND_V2) | M(SPLIT_PREFILL),
    [HB_MODE_IS_DECODE] = M(DECODE),
    [HB_MODE_IS_IDLE] = M(IDLE),
    [HB_MODE_IS_MIXED] = M(MIXED),
    [HB_MODE_IS_DECODE_OR_IDLE] = M(DECODE) | M(IDLE),
    [HB_MODE_IS_TARGET_VERIFY] = M(TARGET_VERIFY),
    [HB_MODE_IS_DRAFT_EXTEND_V2] = M(DRAFT_EXTEND_V2),
    [HB_MODE_IS_PREBUILT] = M(PREBUILT),
    [HB_MODE_IS_SPLIT_PREFILL] = M(SPLIT_PREFILL),
    [HB_MODE_IS_DLLM_EXTEND] = M(DLLM_EXTEND),
    [HB_MODE_IS_CUDA_GRAPH] = M(DECODE) | M(IDLE) | M(TARGET_VERIFY) | M(DLLM_EXTEND),
    [HB_MODE_IS_CPU_GRAPH] = M(DECODE),
    [HB_MODE_EAGER_VALID] = M(EXTEND) | M(DECODE) | M(MIXED) | M(IDLE) | M(TARGET_VERIFY) |
                            M(DRAFT_EXTEND_V2) | M(SPLIT_PREFILL) | M(DLLM_EXTEND),
    [HB_MODE_GRAPH_INIT_VALID] = M(DECODE) | M(IDLE) | M(TARGET_VERIFY),
    [HB_MODE_SUPPORTED] = M(EXTEND) | M(DECODE) | M(MIXED) | M(IDLE) | M(TARGET_VERIFY) |
                          M(DRAFT_EXTEND_V2) | M(SPLIT_PREFILL) | M(DLLM_EXTEND),
};

int32_t hb_mode_is(int32_t mode, enum hb_mode_predicate predicate) {
    if (mode < HB_MODE_MIN || mode > HB_MODE_MAX || (uint32_t)predicate >= HB_N_MODE_PREDICATES) {
        return 0;
    }
    return (int32_t)((true_for[predicate] >> mode) & 1U);
}

const char *hb_mode_name(int32_t mode) {
    return mode < HB_MODE_MIN || mode > HB_MODE_MAX ? NULL : names[mode];
}

uint32_t hb_mode_supported_mask(void) {
    return true_for[HB_MODE_SUPPORTED];
}
