/* SPDX-License-Identifier: Apache-2.0
 * Captured forwards (graph.md): static buffers at fixed device addresses, one set per batch size,
 * and the recorded launches that read them. backend/README.md "Graphs" says what a refresh writes.
 *
 * A graph keeps pointers and numbers of its capture, so all that varies between replays stands in
 * these buffers: slots (-1: padding), token offsets, track pairs, links, cursors, and what attention
 * needs of the request table. */
#ifndef HB_BACKEND_GRAPH_H
#define HB_BACKEND_GRAPH_H

#include <stdint.h>

#include "backend/caps.h"
#include "backend/layers.h"
#include "backend/metadata.h"
#include "backend/validate.h"

/* X(NAME, region): static arrays; GR = graph_rows, GD = graph_draft. Sizes are in graph.c. */
#define HB_GRAPH_ARRAYS(X)                                                                         \
    X(STATE_INDICES, "graph_state_indices")     /* [GR, GR] */                                     \
    X(QUERY_START, "graph_query_start_loc")     /* [GR, GR+1] */                                   \
    X(TRACK_INDICES, "graph_track_indices")     /* [GR], of all batch sizes, as those below */     \
    X(TRACK_MASK, "graph_track_mask")           /* [GR] */                                         \
    X(NEXT_TOKEN, "graph_next_token")           /* [GR, GR, GD] */                                 \
    X(NEXT_SIBLING, "graph_next_sibling")       /* [GR, GR, GD] */                                 \
    X(PARENTS, "graph_parents")                 /* [GR, GR, GD] */                                 \
    X(WRITE_POS, "graph_write_pos")             /* [GR, GR] */                                     \
    X(FORCE_FLUSH, "graph_force_flush")         /* [GR, GR] */                                     \
    X(RING_BASE, "graph_ring_base")             /* [GR, GR] */                                     \
    X(SEQ_LENS, "graph_seq_lens")               /* [GR] */                                         \
    X(OUT_CACHE_LOC, "graph_out_cache_loc")     /* [GR*GD], -1 on padding */                       \
    X(REQ_TO_TOKEN, "graph_req_to_token")       /* [GR, max_context], -1 beyond a row's length */

enum hb_graph_array {
#define HB_GRAPH_ENUM(name, region) HB_GRAPH_##name,
    HB_GRAPH_ARRAYS(HB_GRAPH_ENUM)
#undef HB_GRAPH_ENUM
        HB_N_GRAPH_ARRAYS
};

enum hb_graph_open { HB_GRAPH_CLOSED, HB_GRAPH_CAPTURING, HB_GRAPH_REPLAYING };

/* The graph of one batch size. */
struct hb_graph_set {
    struct hb_metadata meta; /* its arrays are the static ones */
    void *graph;             /* of the kernel table; null until the capture is finished */
    int32_t n_steps;         /* layers that ran, in order */
    int32_t layer_id[HB_MAX_LAYERS];
    struct hb_layer_buffers io[HB_MAX_LAYERS];
    uint32_t layers; /* bit l: layer l is in the graph */
    int32_t last_live; /* R of the last refresh */
};

/* All zero without graphs. */
struct hb_graphs {
    struct hb_graph_facts facts;
    struct hb_graph_set set[HB_MAX_GRAPH_ROWS]; /* of batch size bs: entry bs-1 */
    int32_t open;                               /* enum hb_graph_open */
    int32_t bs;                                 /* of what is open */
    /* one block on the host, where a refresh is put together, and the same on the device */
    int32_t *host;
    void *device;
    int64_t first[HB_N_GRAPH_ARRAYS]; /* word of each array in the block */
    int64_t words[HB_N_GRAPH_ARRAYS]; /* its size, 0: the configuration has none */
};

struct hb_hybrid;

int32_t hb_graph_create(struct hb_hybrid *h, struct hb_error *err);
void hb_graph_destroy(struct hb_hybrid *h);
/* Name, shape and device address of static array i; 0 where the configuration has none. */
int32_t hb_graph_region(const struct hb_hybrid *h, int32_t i, const char **name, int32_t *n_dims,
                        int64_t shape[4], void **ptr);

/* Rules 16, 160..162. */
int32_t hb_graph_init(struct hb_hybrid *h, int32_t max_bs, int32_t max_tokens,
                      struct hb_error *err);
int32_t hb_graph_capture(struct hb_hybrid *h, const struct hb_batch *batch, struct hb_error *err);
int32_t hb_graph_replay(struct hb_hybrid *h, const struct hb_batch *batch, struct hb_error *err);
/* A layer of the open capture has run. */
void hb_graph_add_step(struct hb_hybrid *h, int32_t layer_id, const struct hb_layer_buffers *io);
/* The finish of an open capture: records what has run; of an open replay: launches it. */
int32_t hb_graph_record(struct hb_hybrid *h, struct hb_error *err);
int32_t hb_graph_launch(struct hb_hybrid *h, struct hb_error *err);

#endif
