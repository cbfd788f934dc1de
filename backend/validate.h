/* SPDX-License-Identifier: Apache-2.0
 * All checks of a forward batch (forward-batch.md sections 3 and 4): the rule with the lowest
 * number wins, inside a rule the lowest row. The batch, the tables and every persistent byte are
 * only read. */
#ifndef HB_BACKEND_VALIDATE_H
#define HB_BACKEND_VALIDATE_H

#include <stddef.h>
#include <stdint.h>

#include "backend/batch.h"
#include "backend/caps.h"
#include "backend/status.h"

/* The call that a batch came with. */
enum hb_call { HB_CALL_BEGIN, HB_CALL_CAPTURE, HB_CALL_REPLAY };

/* What graph_init and the captures so far have fixed. */
struct hb_graph_facts {
    int32_t is_ready;      /* graph_init has succeeded */
    int32_t max_bs, draft; /* draft: D_graph */
    struct {
        int32_t is_captured, mode, has_links;
    } set[HB_MAX_GRAPH_ROWS]; /* of batch size bs: entry bs-1 */
};

/* What the checks need beside the batch. The two scratch arrays are all zero before and after each
 * call. */
struct hb_validate_env {
    const struct hb_config *config;
    int32_t has_attention;
    const int32_t *req_to_slot; /* [req_pool_size] ids */
    const int32_t *slot_kind;   /* [NS+1] */
    const int32_t *v2p;         /* [NV+1] slot of an id, -1: free; null: ids are slots */
    const int32_t *write_pos;   /* [NS+1] cursors of the replay ring; null: no ring */
    const int32_t *ring_base, *ring_flush; /* [NS+1]; null unless commits own the ring */
    int32_t *slot_seen;         /* scratch [NI+1], NI = hb_env_n_ids */
    int32_t *kv_seen;           /* scratch [n_kv]; may be null without attention layers */
    const struct hb_graph_facts *graphs; /* read by captures and replays only */
};

/* NI: ids are 1..NI. */
static inline int32_t hb_env_n_ids(const struct hb_validate_env *env) {
    return env->v2p != NULL ? env->config->n_virtual : env->config->n_slots;
}

/* Slot of an id in 0..NI, -1 where the id is free and virtual. The table is open to raw writes
 * through its region: what is no slot is a free id. */
static inline int32_t hb_env_slot(const struct hb_validate_env *env, int32_t id) {
    if (env->v2p == NULL || id == 0) {
        return id;
    }
    const int32_t slot = env->v2p[id];
    return slot >= 1 && slot <= env->config->n_slots ? slot : -1;
}

/* Facts of a batch that several checks share; meaningful as far as the checks have come. */
struct hb_batch_view {
    const struct hb_validate_env *env;
    const struct hb_batch *batch;
    struct hb_error *err;
    int32_t call;   /* enum hb_call */
    int64_t n_rows; /* B */
    int64_t n_live; /* R as given; of a replay: counted by rules 78, 79 */
    int64_t n_extend;
    int64_t extend_sum; /* sum of extend_seq_lens as given */
    int64_t n_real;     /* real tokens */
    int64_t first_mask; /* first set entry of the track mask, -1: none */
    int32_t is_idle, is_extend, is_mixed, is_verify;
    int32_t has_cpu_lens; /* seq_lens_cpu is present and read */
    int32_t has_attention;
};

/* TARGET_VERIFY: draft nodes of row r. The layout must have passed its shape rules; graphs have none.
 */
static inline int64_t hb_view_nodes(const struct hb_batch_view *v, int64_t r) {
    const int32_t *layout = v->batch->ragged_verify_layout.data;
    return layout != NULL && v->call == HB_CALL_BEGIN ? (int64_t)layout[r + 1] - layout[r] : v->batch->draft_token_num;
}

/* batch may be null. */
int32_t hb_validate_batch(const struct hb_validate_env *env, const struct hb_batch *batch,
                          struct hb_error *err);
/* The same for capture and replay; *n_live := R of the rows of a replay, 0 of a capture. */
int32_t hb_validate_graph_batch(const struct hb_validate_env *env, enum hb_call call,
                                const struct hb_batch *batch, int32_t *n_live,
                                struct hb_error *err);
/* Rules 15..19, 68 and 69, 74, 78 and 79 of captures and replays, in validate_graph.c. The last sets
 * n_live. */
int32_t hb_validate_graph_state(const struct hb_batch_view *v);
int32_t hb_validate_graph_shape(const struct hb_batch_view *v);
int32_t hb_validate_graph_capacity(const struct hb_batch_view *v);
int32_t hb_validate_graph_padding(struct hb_batch_view *v);
/* Rules 140, 141, in validate_graph.c. */
int32_t hb_validate_unsupported(const struct hb_batch_view *v);
/* Rules 60..64, 72, 73 and 98..103 of TARGET_VERIFY, in validate_verify.c. */
int32_t hb_validate_verify_shape(const struct hb_batch_view *v);
int32_t hb_validate_verify_capacity(const struct hb_batch_view *v);
int32_t hb_validate_verify_range(const struct hb_batch_view *v);
/* Rules 80..107, in validate_range.c; called after the shapes were found right. */
int32_t hb_validate_range(const struct hb_batch_view *v);
/* Rules 110..132, in validate_slots.c; called after the ranges were found right. */
int32_t hb_validate_slots(const struct hb_batch_view *v);

#endif
