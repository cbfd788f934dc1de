/* SPDX-License-Identifier: Apache-2.0
 * Forward modes: names and predicates (forward-batch.md section 1). Any 32-bit value may be asked
 * about; values outside 1..9 have no name and satisfy no predicate. Pure functions. */
#ifndef HB_BACKEND_MODE_H
#define HB_BACKEND_MODE_H

#include <stdint.h>

#include "backend/batch.h"

/* X(NAME): the predicates of the table in forward-batch.md section 1. "_V2" is the form with
 * include_draft_extend_v2 set. EAGER_VALID: eager metadata init does not answer "Invalid forward
 * mode". SUPPORTED: this backend runs it. GRAPH_INIT_VALID: capture and replay metadata init accept
 * it (graph.md section 1; the graph predicate alone says more).
 */
#define HB_MODE_PREDICATES(X)                                                                      \
    X(IS_EXTEND)                                                                                   \
    X(IS_EXTEND_V2)                                                                                \
    X(IS_EXTEND_WITHOUT_SPECULATIVE)                                                               \
    X(IS_CONTEXT_PARALLEL_EXTEND)                                                                  \
    X(IS_CONTEXT_PARALLEL_EXTEND_V2)                                                               \
    X(IS_EXTEND_OR_DRAFT_EXTEND_OR_MIXED)                                                          \
    X(IS_EXTEND_OR_DRAFT_EXTEND_OR_MIXED_V2)                                                       \
    X(IS_DECODE)                                                                                   \
    X(IS_IDLE)                                                                                     \
    X(IS_MIXED)                                                                                    \
    X(IS_DECODE_OR_IDLE)                                                                           \
    X(IS_TARGET_VERIFY)                                                                            \
    X(IS_DRAFT_EXTEND_V2)                                                                          \
    X(IS_PREBUILT)                                                                                 \
    X(IS_SPLIT_PREFILL)                                                                            \
    X(IS_DLLM_EXTEND)                                                                              \
    X(IS_CUDA_GRAPH)                                                                               \
    X(IS_CPU_GRAPH)                                                                                \
    X(EAGER_VALID)                                                                                 \
    X(GRAPH_INIT_VALID)                                                                            \
    X(SUPPORTED)

enum hb_mode_predicate {
#define HB_MODE_PREDICATE_ENUM(name) HB_MODE_##name,
    HB_MODE_PREDICATES(HB_MODE_PREDICATE_ENUM)
#undef HB_MODE_PREDICATE_ENUM
        HB_N_MODE_PREDICATES
};

enum { HB_MODE_MIN = 1, HB_MODE_MAX = 9 };

/* 1 or 0. */
int32_t hb_mode_is(int32_t mode, enum hb_mode_predicate predicate);
/* "EXTEND", ...; null for values without a name. */
const char *hb_mode_name(int32_t mode);
/* Bit m: mode m is supported. */
uint32_t hb_mode_supported_mask(void);

#endif
