/* SPDX-License-Identifier: Apache-2.0
 * State slots (state-pool.md): per-slot kind {FREE, LIVE, TRACK, TREE, RESERVED(0)}, the
 * first-in-first-out free list, the request table, and the conv and temporal pools of all linear
 * layers. Tables live on the host, pools on the device. A zeroed struct is valid and destroyable.
 */
#ifndef HB_BACKEND_POOL_H
#define HB_BACKEND_POOL_H

#include <stdint.h>

#include "backend/caps.h"
#include "backend/config.h"
#include "backend/status.h"
#include "kernels/kernels.h"

struct hb_pool {
    const struct hb_kernels *kernels;
    int32_t n_slots; /* NS */
    int32_t req_pool_size;
    int32_t n_layers; /* linear layers */
    int32_t defect;
    uint64_t conv_slot_bytes, temporal_slot_bytes;
    int32_t n_ids;       /* NI: NV where ids are virtual, else NS */
    int32_t ring_length; /* L, 0: no ring */
    /* bytes between the entries of two slots */
    uint64_t conv_pad_bytes, temporal_pad_bytes;
    /* host tables: one allocation, owned through slot_kind */
    int32_t *slot_kind;   /* [NS+1] */
    int32_t *free_list;   /* [NS], the first *n_free are free, the rest 0 */
    int32_t *n_free;      /* [1] */
    int32_t *req_to_slot; /* [req_pool_size] ids */
    int32_t *generation;  /* [NI+1] times that the id was given out or copied over, modulo 2^32 */
    int32_t *v2p;         /* [NV+1] slot of an id, -1: free, entry 0 is 0; null: ids are slots */
    int32_t *free_ids;    /* [NV] as free_list; null without v2p */
    int32_t *n_free_ids;  /* [1]; null without v2p */
    int32_t *write_pos;   /* [NS+1] cursors of the replay ring; null without a ring */
    /* [NS+1] position of the oldest record, and whether the next verify folds; null unless commits
     * own the ring */
    int32_t *ring_base, *ring_flush;
    int32_t *ids;         /* scratch [2*NS] */
    int32_t *seen;        /* scratch [NI+1] */
    /* device, zero-initialised: [NS+1] slots each; null where the linear kind has no such state */
    void *conv[HB_MAX_LAYERS];
    void *temporal[HB_MAX_LAYERS];
    float *ring_x[HB_MAX_LAYERS]; /* [NS+1, H, L, P] dt x; null without a ring, as the others */
    float *ring_b[HB_MAX_LAYERS]; /* [NS+1, G, L, N] B */
    float *ring_g[HB_MAX_LAYERS]; /* [NS+1, H, L] A dt */
    uint64_t ring_bytes[3];       /* of one slot: x, b, g */
    void *device_ids;             /* int32 [2*NS] */
};

/* Slot of an id: -1 for a free virtual id and for ids that do not exist; 0 for id 0. */
int32_t hb_pool_slot(const struct hb_pool *pool, int32_t id);
/* Whether an id in 1..NI is free. */
int32_t hb_pool_is_free(const struct hb_pool *pool, int32_t id);
/* End of a decode forward with the ring (speculative.md section 7): the cursor of each live row's
 * slot becomes 0 where it stood, when the forward began (from), at the last record or the row is
 * forced, else one more. The kernels went by the same values. Slots below 1 are passed over. */
void hb_pool_advance(struct hb_pool *pool, int32_t n_rows, const int32_t *slots, const int32_t *from,
                     const int32_t *force);

/* End of a verify whose ring commits own: where a row was to fold (fold), its records are gone. */
void hb_pool_end_verify(struct hb_pool *pool, int32_t n_rows, const int32_t *slots,
                        const int32_t *from, const int32_t *fold);
/* The cursor of a slot after a commit; max_draft nodes of the next verify must find room. */
void hb_pool_accept(struct hb_pool *pool, int32_t slot, int32_t write_pos, int32_t max_draft);

/* On failure the pool may be partly built: destroy it all the same. */
int32_t hb_pool_init(struct hb_pool *pool, const struct hb_kernels *kernels,
                     const struct hb_config *config, const struct hb_dims *dims,
                     struct hb_error *err);
void hb_pool_destroy(struct hb_pool *pool);
/* Rules 150..152. ids [n]; the slots read as zero in every layer. */
int32_t hb_pool_take(struct hb_pool *pool, int32_t n, int32_t kind, int32_t *ids,
                     struct hb_error *err);
/* Rules 153..155. n <= 0 frees nothing. Bytes stay. */
int32_t hb_pool_free(struct hb_pool *pool, int32_t n, const int32_t *ids, struct hb_error *err);
/* Rules 153, 154, 156, 159. Copies conv and temporal of every layer; the copy's cursor is 0. */
int32_t hb_pool_copy(struct hb_pool *pool, int32_t src, int32_t dst, struct hb_error *err);
/* Rules 153, 154, 163. TRACK -> TREE. */
int32_t hb_pool_publish(struct hb_pool *pool, int32_t id, struct hb_error *err);
/* Rules 164, 153, 154, 165. The state, ring and cursor included, moves to the first free slot. */
int32_t hb_pool_move(struct hb_pool *pool, int32_t id, struct hb_error *err);
/* Rule 157. The slot value is not checked. */
int32_t hb_pool_table_set(struct hb_pool *pool, int32_t req, int32_t slot, struct hb_error *err);
/* Launches the copies of device arrays src -> dst (src null: zero dst) in pool layer i. Pairs with a
 * negative end, or where the device array mask is 0, are skipped; mask may be null. */
int32_t hb_pool_copy_layer(const struct hb_pool *pool, int32_t i, int32_t n, const int32_t *src,
                           const int32_t *dst, const int32_t *mask, struct hb_error *err);

#endif
