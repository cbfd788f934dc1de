/* SPDX-License-Identifier: Apache-2.0
 * Prediction of every status from the interface headers alone; shares the table of words with the backend, no condition. */
#ifndef HB_HARNESS_EXPECT_H
#define HB_HARNESS_EXPECT_H

#include "backend/adapter.h"

/* The harness's own model of slots and mapping table. */
struct hb_slot_model {
    int32_t n_slots;       /* NS */
    int32_t *kind;         /* [NS+1] enum hb_slot_kind by slot; kind[0] = HB_SLOT_RESERVED */
    int32_t *free_list;    /* [NS] slots, first in first out */
    int32_t n_free;
    /* Virtual ids (n_virtual > 0); else an id is its slot and both arrays are null. */
    int32_t n_virtual;     /* NV */
    int32_t *v2p;          /* [NV+1] slot of an id, -1: free; v2p[0] = 0 */
    int32_t *free_ids;     /* [NV] ids, first in first out; its first n_free_ids are free, the rest 0 */
    int32_t n_free_ids;
    int64_t *generation;   /* [NI+1] times that the id was given out or copied over, NI = NV or NS */
    int32_t ring_length;   /* L, 0: no ring */
    int32_t *write_pos;    /* [NS+1] cursor of the replay ring: records that are not folded */
    int32_t commits;       /* 1: verifies and commits own the ring; base, flush and max_draft count then only */
    int32_t *ring_base;    /* [NS+1] position of the first of these records */
    int32_t *ring_flush;   /* [NS+1] 1: the next verify folds them */
    int32_t max_draft;
    int32_t req_pool_size;
    int32_t *table;        /* [req_pool_size] */
};
int32_t hb_slot_model_init(struct hb_slot_model *m, const struct hb_config *config);
void hb_slot_model_destroy(struct hb_slot_model *m);
/* dst is zeroed or initialised; its memory is reused when the sizes agree. */
int32_t hb_slot_model_copy(struct hb_slot_model *dst, const struct hb_slot_model *src);
/* What a successful slot_take and slot_free do; the caller has asked hb_expect_take / hb_expect_free. ids of take may be
 * null. free_list entries from n_free on are 0. */
void hb_slot_model_take(struct hb_slot_model *m, int32_t n, int32_t kind, int32_t *ids);
void hb_slot_model_release(struct hb_slot_model *m, int32_t n, const int32_t *ids);
void hb_slot_model_move(struct hb_slot_model *m, int32_t id);
/* 1 if verifies and commits own a replay ring of this configuration. */
int hb_ring_commits(const struct hb_config *config);
/* The mode whose forwards append to the ring, if there is one; and whether this one's do. */
int32_t hb_ring_mode(const struct hb_config *config);
int hb_ring_has_mode(const struct hb_config *config, int32_t mode);
/* The id's slot holds another state now, a whole one: no record is left, and no verify of the id can be committed. */
void hb_slot_model_copied(struct hb_slot_model *m, int32_t id);
/* A verify of the slot ends: what it folded has left the ring. */
void hb_slot_model_ring_verified(struct hb_slot_model *m, int32_t slot);
/* A commit of n tokens after `left` records, those that the verify left. */
void hb_slot_model_ring_commit(struct hb_slot_model *m, int32_t slot, int32_t left, int32_t n);
/* Slot of an id: -1 for a free virtual id and for ids that do not exist. */
int32_t hb_slot_model_slot(const struct hb_slot_model *m, int32_t id);

/* Each fills *e with what the call must return (status HB_OK included) and changes nothing. */
void hb_expect_create(const struct hb_config *config, const struct hb_caps *caps, struct hb_error *e);
void hb_expect_begin(const struct hb_config *config, const struct hb_caps *caps, const struct hb_slot_model *slots,
                     const struct hb_batch *batch, struct hb_error *e);
/* graph.md section 5. What has been captured. */
struct hb_graph_phase {
    int32_t max_bs, draft; /* of graph_init, 0: not called; draft = D_graph */
    struct {
        int32_t is_captured, mode, has_links;
    } set[HB_MAX_GRAPH_ROWS + 1]; /* by batch size */
};
void hb_expect_graph_init(const struct hb_config *config, const struct hb_graph_phase *graphs, int32_t max_bs,
                          int32_t max_tokens, struct hb_error *e);
void hb_expect_capture(const struct hb_config *config, const struct hb_caps *caps, const struct hb_slot_model *slots,
                       const struct hb_graph_phase *graphs, const struct hb_batch *batch, struct hb_error *e);
void hb_expect_replay(const struct hb_config *config, const struct hb_caps *caps, const struct hb_slot_model *slots,
                      const struct hb_graph_phase *graphs, const struct hb_batch *batch, struct hb_error *e);
/* R of an accepted batch: original_batch_size or B; in a replay B - p, 0 in IDLE (graph.md section 3). */
int32_t hb_expect_real_rows(const struct hb_batch *batch, int32_t is_replay);
/* phase: has_metadata, mode and n_tokens of the begun batch, and which layers have run (bits). */
struct hb_forward_phase {
    int32_t has_metadata, mode, n_tokens;
    int32_t is_replay; /* layer and entry see no metadata */
    int32_t has_ring;  /* its mode appends to the ring, eager or a capture: finish needs every Mamba2 layer */
    uint32_t layers_run;
};
void hb_expect_layer(const struct hb_config *config, const struct hb_forward_phase *phase, int32_t layer_id,
                     const struct hb_layer_io *io, struct hb_error *e);
void hb_expect_finish(const struct hb_config *config, const struct hb_forward_phase *phase, struct hb_error *e);
void hb_expect_entry(const struct hb_config *config, const struct hb_forward_phase *phase, int32_t has_handle,
                     int32_t target, int32_t direction, int32_t layer_id, const struct hb_layer_io *io,
                     struct hb_error *e);
/* After an OK begin with DRAFT_EXTEND_V2 there is no metadata (speculative.md section 6): the caller clears has_metadata. */
/* The finished verify that a commit stands on; has_verify 0: none, the rest is not looked at. An OK begin ends it. */
struct hb_verify_phase {
    int32_t has_verify, batch_size, real_rows; /* B, R */
    const int32_t *slots;                      /* [R] ids (virtual or slots) at the verify */
    const int64_t *generations;                /* [R] of these ids at the verify */
    const int32_t *nodes;                      /* [R] node counts */
};
/* commit may be null. Rows from R on are ignored whatever they hold. A row is tracked when track_indices is given and its
 * track step is not negative. */
void hb_expect_commit(const struct hb_config *config, const struct hb_verify_phase *verify,
                      const struct hb_slot_model *slots, const struct hb_commit *commit, struct hb_error *e);
void hb_expect_take(const struct hb_slot_model *slots, int32_t n, int32_t kind, struct hb_error *e);
void hb_expect_free(const struct hb_slot_model *slots, int32_t n, const int32_t *ids, struct hb_error *e);
void hb_expect_copy(const struct hb_slot_model *slots, int32_t src, int32_t dst, struct hb_error *e);
void hb_expect_publish(const struct hb_slot_model *slots, int32_t id, struct hb_error *e);
void hb_expect_move(const struct hb_slot_model *slots, int32_t id, struct hb_error *e);
void hb_expect_table(const struct hb_slot_model *slots, int32_t req, struct hb_error *e);

#endif
