/* SPDX-License-Identifier: Apache-2.0
 * Case step to forward batch: exact-size index arrays on the host, from the case and the harness's own model of what each
 * slot holds. Breaks are applied after derivation. */
#ifndef HB_HARNESS_MATERIALIZE_H
#define HB_HARNESS_MATERIALIZE_H

#include "backend/batch.h"
#include "harness/case.h"
#include "harness/expect.h"

/* What one row of a forward is about, by the case's intention (before breaks). */
struct hb_row_plan {
    int32_t request;
    int32_t slot;       /* id bound to the request (virtual or slot), 0 if none */
    int32_t stream;     /* value stream of the slot's content */
    int64_t prefix;     /* tokens before this forward */
    int32_t length;     /* new tokens; verify: draft nodes */
    int32_t first;      /* first batch token of the row */
    int32_t is_decode;  /* one-token decode row (mode DECODE or native decode row of MIXED) */
    int32_t track_dst;  /* id, 0: not tracked */
    int32_t track_after; /* tokens of this call after which the tracked state holds */
    const int32_t *prefix_loc; /* KV token slots of positions 0..prefix-1 */
};

struct hb_plan {
    int32_t n_rows;
    struct hb_row_plan row[HB_MAX_ROWS];
    int32_t mode;     /* as the case says, before breaks */
    int32_t n_tokens; /* T */
    int32_t n_real;   /* tokens of live rows */
};

/* A batch that owns its arrays (each a heap block of exactly its size), and a second copy to see writes. */
struct hb_owned_batch {
    struct hb_batch b;
    int32_t is_null; /* the call gets a null pointer */
    struct hb_batch before;
    void *copies; /* of the arrays, one after the other */
};

/* A commit that owns its arrays. */
struct hb_owned_commit {
    struct hb_commit c;
    int32_t is_null;
};

/* Allocator of KV token slots 1..n_kv-1: of single slots in a seeded, scattered order, or of pages in the case's order. Page
 * 0, which has the reserved slot, is never given out; nothing is given back. */
enum { HB_MAX_KV_PAGES = 1024 };
struct hb_kv_alloc {
    int32_t n_kv, stride, offset, next;
    int32_t page, order;                /* token slots of a page; enum hb_page_order */
    uint8_t filled[HB_MAX_KV_PAGES];    /* of each page: offset behind its last token */
};
void hb_kv_alloc_init(struct hb_kv_alloc *a, const struct hb_case *c, int32_t n_kv);
/* A slot for a request's token at `position`, the one before which is in slot `previous` (0: there is none, or elsewhere).
 * With pages it is at offset position % page, in the page of `previous` where that goes on. */
int32_t hb_kv_alloc_take(struct hb_kv_alloc *a, int64_t position, int32_t previous);

/* Derives the batch of `step` (forward or entry). plan->row[] holds request, slot, stream, prefix, prefix_loc and track_dst
 * on entry; length, first, is_decode, track_after and the totals are filled. Returns 0 or -1 (no memory). */
int hb_materialize_batch(const struct hb_case *c, const struct hb_case_step *step,
                         const struct hb_config *config, struct hb_kv_alloc *kv,
                         struct hb_plan *plan, struct hb_owned_batch *out);
/* The batch of a CAPTURE step. Returns 0 or -1. */
int hb_materialize_capture(const struct hb_case *c, const struct hb_case_step *step,
                           const struct hb_config *config, struct hb_owned_batch *out);
/* Arguments of graph_init at step index `step`, breaks applied. */
void hb_materialize_graph_init(const struct hb_case *c, int32_t step, int32_t *max_bs,
                               int32_t *max_tokens);
/* Derives the commit of `step`; tracks: ids of the case's track TAKEs so far; row_dst [n_rows]: destination of each tracked
 * row instead of tracks (ping-pong), or null. Returns 0 or -1. */
int hb_materialize_commit(const struct hb_case_step *step, const int32_t *tracks, int32_t n_tracks,
                          const int32_t *row_dst, struct hb_owned_commit *out);
int hb_materialize_commit_breaks(const struct hb_case *c, int32_t step, struct hb_owned_commit *commit);
void hb_commit_destroy(struct hb_owned_commit *commit);
/* Applies the batch breaks of step index `step`. Returns 0 or -1. */
int hb_materialize_breaks(const struct hb_case *c, int32_t step, struct hb_owned_batch *batch);
/* Remembers the bytes of the batch and its arrays; later 1 if any byte changed. Returns 0 or -1. */
int hb_batch_remember(struct hb_owned_batch *batch);
int hb_batch_changed(const struct hb_owned_batch *batch);
void hb_batch_destroy(struct hb_owned_batch *batch);
/* Applies the breaks at step -1 to the configuration. */
void hb_materialize_config_breaks(const struct hb_case *c, struct hb_config *config);

#endif
