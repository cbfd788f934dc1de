/* SPDX-License-Identifier: Apache-2.0
 * Forward metadata (metadata.md, tracking.md section 4): a pure function of a validated batch, the
 * mapping table and the configuration. The arrays are carved from one block of int32 words; the
 * first device_words of it are what kernels need and go to the device in one upload, the same
 * offsets there. A guard word (INT32_MIN) follows each array, so that an index one past an array is
 * not a plausible value. */
#ifndef HB_BACKEND_METADATA_H
#define HB_BACKEND_METADATA_H

#include <stdint.h>

#include "backend/batch.h"
#include "backend/caps.h"
#include "backend/validate.h"

struct hb_metadata {
    int32_t mode;
    int32_t n_rows;   /* B */
    int32_t n_live;   /* R */
    int32_t n_tokens; /* T */
    int32_t n_real;   /* real tokens: the first of the token axis */
    int32_t num_prefills, num_prefill_tokens, num_decodes;
    int32_t prep_initial_states; /* any of has_initial_states */
    int32_t n_update_rows; /* rows of the one-token kernels: DECODE all B, padding included, else
                              num_decodes */
    int32_t n_verify_rows; /* TARGET_VERIFY: all B, padding included; else 0 */
    int32_t is_tree;       /* TARGET_VERIFY with links: parents is there */
    int32_t n_tracked;     /* extend rows with track_conv_len > 0 */
    int32_t n_copies;      /* DECODE: masked rows */
    /* of a captured forward: counts are those of the graph, all of its rows and tokens; which rows are
     * live is for the kernels to see, at the replay: those with cache_indices >= 0 (graph.c) */
    int32_t is_graph;
    int32_t parent_stride; /* of parents */
    int32_t n_chunks;      /* logical chunks; 0 unless prep_initial_states */
    int32_t table_cols;    /* longest sequence of a live row, with the nodes of a verify */
    int64_t device_words;
    int64_t words;

    int32_t *block;
    /* DECODE, IDLE: [B+1]. Extend family: the prefill rows' [np+1], continued over the decode rows
     * of MIXED: [R+1]. TARGET_VERIFY: node counts summed, [B+1]. */
    int32_t *query_start_loc;
    int32_t *cache_indices;       /* [B], HB_PAD_SLOT on padding */
    int32_t *has_initial_states;  /* [num_prefills] */
    int32_t *track_conv_len;      /* [num_prefills] a of tracking.md section 4, 0: not tracked */
    int32_t *track_ssm_len;       /* the same value (a planted defect makes it differ) */
    int32_t *track_dst;           /* [num_prefills] */
    int32_t *copy_src, *copy_dst; /* [n_copies] slots */
    int32_t *copy_mask;           /* [n_copies], 0: no copy; null: all */
    /* DECODE with a replay ring, else null: the cursor that a row starts from, and whether it folds
     * before the ring is full; padding rows and slot 0: 0 */
    int32_t *replay_write_pos, *force_flush; /* [B] */
    /* TARGET_VERIFY with a ring that commits own: position of the oldest record, and the two arrays
     * above; else null */
    int32_t *ring_base; /* [B] */
    int32_t *parents; /* [n_verify_rows, parent_stride] parent of each node of the live rows' trees,
                         else 0 */
    /* with attention layers: */
    int32_t *seq_lens;      /* [R] after this forward, with all nodes of a verify */
    int32_t *out_cache_loc; /* [n_real] */
    int32_t *req_to_token;  /* [R, table_cols] the live rows' part of the caller's table, -1 beyond
                               their length */
    /* not uploaded */
    int32_t *seq_idx;       /* [num_prefill_tokens] */
    int32_t *chunk_indices; /* [n_chunks], null when absent */
    int32_t *chunk_offsets; /* [n_chunks], null when absent */
};

/* Words that any batch within the configuration's limits fits in; INT64_MAX when that overflows. */
int64_t hb_metadata_capacity(const struct hb_config *config, int32_t has_attention);
/* block [capacity]; the batch must have passed hb_validate_batch. Cannot fail. */
void hb_metadata_derive(const struct hb_validate_env *env, const struct hb_batch *batch,
                        int32_t *block, struct hb_metadata *out);
/* Slot of a track destination that is an id, -1 where there is none. */
int32_t hb_metadata_track_slot(const struct hb_validate_env *env, int64_t id);
/* Cursor and force_flush of rows 0..n_rows-1, of which the first n_live have slots (speculative.md
 * section 7). */
void hb_metadata_fill_ring(const struct hb_validate_env *env, const struct hb_batch *batch,
                           int32_t n_rows, int32_t n_live, const int32_t *slots,
                           int32_t *write_pos, int32_t *force);
/* The same for a verify whose ring commits own. */
void hb_metadata_fill_commit_ring(const struct hb_validate_env *env, int32_t n_rows, int32_t n_live,
                                  const int32_t *slots, int32_t *write_pos, int32_t *fold,
                                  int32_t *base);

#endif
