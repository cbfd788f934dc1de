/* SPDX-License-Identifier: Apache-2.0
 * The forward batch and its modes: structs only (forward-batch.md sections 1 and 4).
 * Index arrays are host memory owned by the caller; nobody writes them. */
#ifndef HB_BACKEND_BATCH_H
#define HB_BACKEND_BATCH_H

#include <stdint.h>

/* X(number, NAME): numbers of the upstream enum, first member 1. */
#define HB_MODES(X)                                                                                \
    X(1, EXTEND)                                                                                   \
    X(2, DECODE)                                                                                   \
    X(3, MIXED)                                                                                    \
    X(4, IDLE)                                                                                     \
    X(5, TARGET_VERIFY)                                                                            \
    X(6, DRAFT_EXTEND_V2)                                                                          \
    X(7, PREBUILT)                                                                                 \
    X(8, SPLIT_PREFILL)                                                                            \
    X(9, DLLM_EXTEND)

enum hb_mode {
#define HB_MODE_ENUM(number, name) HB_MODE_##name = number,
    HB_MODES(HB_MODE_ENUM)
#undef HB_MODE_ENUM
};

enum { HB_PAD_SLOT = -1, HB_PAD_SEQ_LEN = 1 };

/* An array and its length. data == NULL: absent. len counts entries that really exist. */
struct hb_i32s {
    const int32_t *data;
    int64_t len;
};
struct hb_i64s {
    const int64_t *data;
    int64_t len;
};
struct hb_u8s {
    const uint8_t *data;
    int64_t len;
};

/* Rows are [extend rows | decode rows | padding rows], tokens are [extend tokens | decode tokens | surplus].
 * B = batch_size, R = real rows, np = n_extend, T = n_tokens. */
struct hb_batch {
    uint32_t struct_size;
    int32_t forward_mode; /* any 32-bit value may arrive */
    int32_t batch_size;   /* B, padding rows included */
    int32_t has_original_batch_size;
    int32_t original_batch_size; /* R if present, else R = B */
    int32_t n_tokens;            /* T, padding tokens included */
    int32_t n_extend;            /* np: rows covered by the extend arrays (extend family only) */
    int32_t is_dummy;            /* warm-up call: live rows may share the reserved slot 0 */
    int32_t has_extend_num_tokens;
    int64_t extend_num_tokens;
    struct hb_i32s req_pool_indices;    /* [B] */
    struct hb_i32s seq_lens;            /* [B] tokens of the request after this forward */
    struct hb_i32s seq_lens_cpu;        /* [B] or absent: mirror of seq_lens on live rows, 1 on padding rows (DECODE, verify) */
    int32_t has_num_padding;            /* replay only: absent is counted from seq_lens_cpu (graph.md section 3) */
    int32_t num_padding;                /* p: the last p rows are padding */
    struct hb_i32s extend_seq_lens;     /* [np] */
    struct hb_i32s extend_seq_lens_cpu; /* [np] or absent */
    struct hb_i32s extend_prefix_lens;  /* [np] */
    struct hb_i32s extend_start_loc;    /* [np] or absent */
    struct hb_u8s mamba_track_mask;     /* [B] or absent; non-zero is true */
    struct hb_i64s mamba_track_indices; /* [B] or absent */
    struct hb_i64s mamba_track_seqlens; /* [B] or absent */
    struct hb_i32s out_cache_loc;       /* [T], needed with attention layers */
    struct hb_i32s req_to_token;        /* [req_to_token_rows, req_to_token_cols], len = rows * cols */
    int32_t req_to_token_rows;
    int32_t req_to_token_cols;
    /* TARGET_VERIFY (speculative.md section 1): row i has draft nodes, node 0 the root, flattened row-major. seq_lens[i] is the
     * number of tokens before the verify. Uniform: D nodes each, T = B * D. Ragged: v_i = layout[i+1] - layout[i] nodes. */
    int32_t draft_token_num;             /* D */
    struct hb_i32s retrieve_next_token;   /* [B, D] first child of each node, -1 none; absent: chain */
    struct hb_i32s retrieve_next_sibling; /* [B, D] next child of the node's parent, -1 none; absent: chain */
    struct hb_i32s ragged_verify_layout;  /* [B + 1] prefix sums of the node counts; absent: uniform */
};

/* Commit after a verify (speculative.md section 5). Row r of the verify batch. */
struct hb_commit {
    uint32_t struct_size;
    int32_t n_rows;               /* r, at most the verify batch's B */
    struct hb_i32s step;          /* [r] node whose state becomes the row's state; negative: row untouched */
    struct hb_i64s track_indices; /* [r] or absent: checkpoint slots */
    struct hb_i32s track_steps;   /* [r], needed with track_indices: node to checkpoint, negative: none */
};

#endif
