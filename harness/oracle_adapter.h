/* SPDX-License-Identifier: Apache-2.0
 * Private to the float64 oracle behind the adapter table: its handle and the forward it is in. */
#ifndef HB_HARNESS_ORACLE_ADAPTER_H
#define HB_HARNESS_ORACLE_ADAPTER_H

#include "harness/expect.h"
#include "harness/oracle/oracle.h"

#include <stddef.h>

/* More memory than this in one block is refused as out of memory. */
#define HB_ORACLE_MOST_BYTES (UINT64_C(1) << 32)

/* Blocks of persistent bytes of one layer: of a linear layer, where its kind and the configuration ask for them, or of an
 * attention layer. The first two of either have the same places. */
enum hb_oracle_pool {
    HB_POOL_CONV,
    HB_POOL_TEMPORAL,
    HB_POOL_CACHE_CONV, /* intermediate caches, by batch row */
    HB_POOL_CACHE_SSM,
    HB_POOL_CONV_PAD,
    HB_POOL_TEMPORAL_PAD,
    HB_POOL_RING_X,
    HB_POOL_RING_B,
    HB_POOL_RING_G,
    HB_N_POOLS
};
enum { HB_POOL_KEYS = HB_POOL_CONV, HB_POOL_VALUES = HB_POOL_TEMPORAL };
/* Static buffers of the graphs (README of backend/, "Graphs"); int32. */
enum hb_oracle_static {
    HB_STATIC_STATE_INDICES,
    HB_STATIC_QUERY_START,
    HB_STATIC_TRACK_INDICES,
    HB_STATIC_TRACK_MASK,
    HB_STATIC_NEXT,
    HB_STATIC_SIBLING,
    HB_STATIC_PARENTS,
    HB_STATIC_WRITE_POS,
    HB_STATIC_FORCE_FLUSH,
    HB_STATIC_RING_BASE,
    HB_N_STATICS
};
enum { HB_ORACLE_TABLES = 8, HB_ORACLE_REGIONS = HB_MAX_LAYERS * HB_N_POOLS + HB_ORACLE_TABLES + HB_N_STATICS };

struct hb_oracle_region {
    struct hb_region info;
    void *at;
    int32_t is_owned; /* allocated for this region, else part of the slot model */
};

struct hb_oracle_layer {
    int32_t id;
    unsigned char *pool[HB_N_POOLS]; /* null where there is none */
    uint64_t entry[HB_N_POOLS];      /* bytes of one slot, batch row or token */
    struct hb_layer_params params;   /* points into `numbers` */
    float *numbers;
};

/* One real row of the begun batch. */
struct hb_oracle_row {
    int32_t id, slot, req;
    int32_t n;      /* new tokens */
    int32_t prefix; /* tokens before this forward */
    int32_t path;   /* enum hb_path */
    int32_t dst;    /* slot of the checkpoint, 0: none */
    int32_t at;     /* prefill: the checkpoint holds the state after this many of the new tokens */
    int32_t w;      /* cursor of the replay ring at begin; -1: this row has no ring */
    int32_t base;   /* ring: position of its first record */
    int32_t forced; /* ring: a decode row folds whatever w, a row of a verify folds */
    int64_t token;  /* first token in the flattened axis */
    int32_t *map;   /* [prefix + n] cache slots of the request; null without attention layers */
    const int32_t *parent; /* [n] of the draft nodes; null outside a verify */
};

/* Ids, generations and node counts of a verify, for its commit; and the parents of its nodes. */
struct hb_oracle_draft {
    int64_t *generations; /* [n_rows]; the block that the others point into */
    int32_t *ids, *nodes; /* [n_rows] */
    int32_t *left;        /* [n_rows] records of the replay ring that finish left */
    int32_t *parents;     /* [n_real] */
};

/* Forward metadata: a copy of everything that layers need, so that the batch may go away. */
struct hb_oracle_forward {
    struct hb_forward_phase phase;
    int32_t is_capture, has_links; /* has_links: of a capture */
    int32_t batch_size;         /* B */
    int32_t n_rows;
    int64_t n_real;             /* real tokens */
    struct hb_oracle_row *rows; /* [n_rows] */
    int32_t *maps;              /* storage of the rows' maps */
    struct hb_oracle_draft draft; /* verify */
};

/* The finished verify that a commit stands on. */
struct hb_oracle_verify {
    struct hb_verify_phase phase; /* points into `draft` */
    uint32_t layers_run;
    struct hb_oracle_draft draft;
};

/* What a captured graph launches. */
struct hb_oracle_graph {
    int32_t n_layers, order[HB_MAX_LAYERS]; /* ids, as they were called */
    struct hb_layer_io io[HB_MAX_LAYERS];
};

struct hb_oracle {
    struct hb_config config;
    struct hb_caps caps;
    struct hb_slot_model slots;
    struct hb_oracle_layer layer[HB_MAX_LAYERS];
    struct hb_oracle_region region[HB_ORACLE_REGIONS];
    int32_t n_regions;
    int32_t *statics[HB_N_STATICS]; /* null where there is none */
    struct hb_graph_phase graphs;
    struct hb_oracle_graph graph[HB_MAX_GRAPH_ROWS + 1]; /* by batch size; entry 0: of the open capture */
    struct hb_oracle_forward forward;
    struct hb_oracle_verify verify;
    struct hb_ref_state *state, *at; /* scratch; null without linear layers */
    uint64_t launches;
};

/* Memory of one layer call. Inputs are widened, results kept aside until all are there. */
struct hb_oracle_work {
    struct hb_ref_sizes size;
    float *in[3];          /* [n_real, width] */
    double *out;           /* [most new tokens of a row, width[3]] */
    float *row_out;        /* [width[3]] */
    unsigned char *result; /* [T, width[3]] in the activation type: zero where no real token is */
    float *conv, *ssm;     /* one slot, widened */
    float *turned;         /* a temporal state in the order of a slot, where that is [H, N, P] */
    unsigned char *staged; /* linear: [n_rows, 2] slots: the row's own, then its checkpoint;
                              in a verify [n_real] draft nodes */
    unsigned char *folded; /* linear: one slot, for hb_oracle_fold */
    float *records;        /* ring: [n_rows] records of a layer, in a verify [n_real]: dt x, B, A dt */
    double *record;        /* ring: one record */
    int32_t *path;         /* attention: [most new tokens of a row] */
    float *keys, *values;  /* attention: [longest context, width[1]] */
    double *bound, *mag;   /* attention: [width[3]] */
};

/* Widths of one token in the four buffers of a layer, and the sizes of a linear layer's state. */
void hb_oracle_sizes(const struct hb_config *config, int32_t kind, struct hb_ref_sizes *out);
/* oracle_params.c: a copy of the parameters that a linear layer of this kind has; HB_OK, or HB_ERR_NULL or HB_ERR_MEMORY. */
int32_t hb_oracle_params_keep(const struct hb_config *config, int32_t kind, const struct hb_layer_params *src,
                              struct hb_oracle_layer *layer, struct hb_error *err);
/* *dst = *src where dst is not null and holds no failure yet; returns src->status. */
int32_t hb_oracle_pass(struct hb_error *dst, const struct hb_error *src);
int32_t hb_oracle_no_memory(struct hb_error *err, const char *what);

/* oracle_forward.c */
void hb_oracle_forward_drop(struct hb_oracle_forward *forward);
/* Metadata of an accepted batch of `n_rows` real rows into *f, which is zero but for what the caller has set; 0 or
 * HB_ERR_MEMORY. */
int32_t hb_oracle_forward_make(const struct hb_oracle *o, const struct hb_batch *batch, int32_t n_rows,
                               struct hb_oracle_forward *f);
/* Ends what was open, and any finished verify; f is then the forward that is open. */
void hb_oracle_forward_open(struct hb_oracle *o, const struct hb_oracle_forward *f);
int32_t hb_oracle_begin(void *handle, const struct hb_batch *batch, struct hb_error *err);
int32_t hb_oracle_layer(void *handle, int32_t layer_id, const struct hb_layer_io *io, struct hb_error *err);
int32_t hb_oracle_finish(void *handle, struct hb_error *err);
int32_t hb_oracle_entry(void *handle, int32_t target, int32_t direction, int32_t layer_id, const struct hb_layer_io *io,
                        struct hb_error *err);

/* oracle_layer.c. All memory of a layer call, which alone can fail (0: none left), before it runs. */
int hb_oracle_work_make(const struct hb_oracle *o, int32_t layer_id, struct hb_oracle_work *w);
void hb_oracle_run(struct hb_oracle *o, int32_t layer_id, const struct hb_layer_io *io, struct hb_oracle_work *w);
void hb_oracle_work_free(struct hb_oracle_work *w);
/* Memory for hb_oracle_fold alone. */
int hb_oracle_fold_make(const struct hb_oracle *o, int32_t layer_id, struct hb_oracle_work *w);
/* temporal of slot dst := that of slot src with its n records from position base on. */
void hb_oracle_fold(const struct hb_oracle *o, struct hb_oracle_layer *layer, struct hb_oracle_work *w, int32_t src,
                    int32_t base, int32_t n, int32_t dst);
/* Checkpoints of the rows of a decode: exact copies of whole slots in one layer. */
void hb_oracle_track(struct hb_oracle *o, int32_t layer_id);

/* oracle_ring.c */
/* Floats of one record of a layer. */
int64_t hb_oracle_record_items(const struct hb_config *config);
/* Adds n records of a slot, from position base on, to a state. */
void hb_oracle_ring_load(const struct hb_config *config, const struct hb_oracle_layer *layer, int32_t slot,
                         int32_t base, int32_t n, struct hb_ref_state *state);
/* at: position, modulo L. */
void hb_oracle_ring_store(const struct hb_config *config, struct hb_oracle_layer *layer, int32_t slot, int32_t at,
                          const float *record);
/* Of a decode row. */
int hb_oracle_row_folds(const struct hb_config *config, const struct hb_oracle_row *row);

/* oracle_graph.c */
int32_t hb_oracle_graph_init(void *handle, int32_t max_bs, int32_t max_tokens, struct hb_error *err);
int32_t hb_oracle_capture(void *handle, const struct hb_batch *batch, struct hb_error *err);
int32_t hb_oracle_replay(void *handle, const struct hb_batch *batch, struct hb_error *err);
/* The open capture becomes a graph. */
void hb_oracle_graph_keep(struct hb_oracle *o);
/* Runs the captured layers of the open replay; 0 or HB_ERR_MEMORY, which changes nothing. */
int32_t hb_oracle_graph_launch(struct hb_oracle *o);

/* oracle_verify.c */
/* Node counts, parents, ids and generations of a valid verify batch; 0 or HB_ERR_MEMORY. */
int32_t hb_oracle_verify_rows(const struct hb_oracle *o, struct hb_oracle_forward *forward, const struct hb_batch *batch);
/* Tokens 0..n-1 of a row that token t attends to besides the prefix; [t + 1] is enough. Returns
 * their count. */
int32_t hb_oracle_ancestors(const struct hb_oracle_row *row, int32_t t, int32_t *path);
/* Stores a node, conv then temporal, into the intermediate caches. */
void hb_oracle_node_store(const struct hb_config *config, struct hb_oracle_layer *layer, int32_t r, int32_t t,
                          const unsigned char *bytes);
/* Takes over what a commit needs from a verify that ends. */
void hb_oracle_verify_end(struct hb_oracle *o);
void hb_oracle_verify_drop(struct hb_oracle_verify *verify);
int32_t hb_oracle_commit(void *handle, const struct hb_commit *commit, struct hb_error *err);

/* oracle_slots.c */
int32_t hb_oracle_slot_take(void *handle, int32_t n, int32_t kind, int32_t *ids, struct hb_error *err);
int32_t hb_oracle_slot_free(void *handle, int32_t n, const int32_t *ids, struct hb_error *err);
int32_t hb_oracle_slot_copy(void *handle, int32_t src, int32_t dst, struct hb_error *err);
int32_t hb_oracle_slot_publish(void *handle, int32_t id, struct hb_error *err);
int32_t hb_oracle_slot_move(void *handle, int32_t id, struct hb_error *err);
int32_t hb_oracle_table_set(void *handle, int32_t req, int32_t slot, struct hb_error *err);
/* What one linear layer holds of a slot. */
void hb_oracle_state_copy(struct hb_oracle_layer *layer, int32_t src, int32_t dst);

/* oracle_regions.c */
/* Allocates the pools of all layers and the static buffers, and lists all regions; 0 or HB_ERR_MEMORY with what was
 * allocated left to hb_oracle_regions_free. */
int32_t hb_oracle_regions_make(struct hb_oracle *o);
void hb_oracle_regions_free(struct hb_oracle *o);
int32_t hb_oracle_n_regions(void *handle, int32_t *n, struct hb_error *err);
int32_t hb_oracle_region(void *handle, int32_t i, struct hb_region *out, struct hb_error *err);
int32_t hb_oracle_region_read(void *handle, int32_t i, uint64_t offset, void *dst, uint64_t bytes,
                              struct hb_error *err);
int32_t hb_oracle_region_write(void *handle, int32_t i, uint64_t offset, const void *src,
                               uint64_t bytes, struct hb_error *err);

#endif
