/* SPDX-License-Identifier: Apache-2.0
 * Private to the float64 oracle behind the adapter table: its handle and the forward it is in. */
#ifndef HB_HARNESS_ORACLE_ADAPTER_H
#define HB_HARNESS_ORACLE_ADAPTER_H

#include "harness/expect.h"
#include "harness/oracle/oracle.h"

#include <stddef.h>

/* Persistent bytes of one layer: conv and temporal and their intermediate caches (Mamba2; without
 * speculation the caches are null), or keys and values (attention). */
enum {
    HB_ORACLE_POOLS = 4,
    HB_ORACLE_CACHES = 2
}; /* all, and where the intermediate caches start */
struct hb_oracle_layer {
    unsigned char *pool[HB_ORACLE_POOLS];
    uint64_t bytes[HB_ORACLE_POOLS];
    struct hb_layer_params params; /* points into `numbers` */
    float *numbers;
};

/* One real row of the begun batch. */
struct hb_oracle_row {
    int32_t slot, req;
    int32_t n;      /* new tokens */
    int32_t prefix; /* tokens before this forward */
    int32_t path;   /* enum hb_path */
    int32_t dst;    /* slot of the checkpoint, 0: none */
    int32_t at;     /* prefill: the checkpoint holds the state after this many of the new tokens */
    int64_t token;  /* first token in the flattened axis */
    int32_t *map;   /* [prefix + n] cache slots of the request; null without attention layers */
    const int32_t *parent; /* [n] of the draft nodes; null outside a verify */
};

/* Forward metadata: a copy of everything that layers need, so that the batch may go away. */
struct hb_oracle_forward {
    struct hb_forward_phase phase;
    int32_t n_rows;
    int64_t n_real;             /* real tokens */
    struct hb_oracle_row *rows; /* [n_rows] */
    int32_t *maps;              /* storage of the rows' maps */
    int32_t batch_size;         /* B */
    int32_t *draft;             /* verify: slots [n_rows], node counts [n_rows], parents [n_real] */
};

/* The finished verify that a commit stands on. */
struct hb_oracle_verify {
    struct hb_verify_phase phase; /* points into `draft` */
    uint32_t layers_run;
    int32_t *draft;
};

struct hb_oracle {
    struct hb_config config;
    struct hb_caps caps;
    struct hb_slot_model slots;
    struct hb_oracle_layer layer[HB_MAX_LAYERS];
    struct hb_oracle_forward forward;
    struct hb_oracle_verify verify;
    struct hb_ref_state *state, *at; /* scratch; null without Mamba2 layers */
    uint64_t launches;
};

/* Widths of one token in the four buffers of a layer: z xBC dt out, or q k v out. */
void hb_oracle_widths(const struct hb_config *config, int32_t kind, int64_t width[4]);
/* Bytes of one slot, or of one draft node, in conv (0) or temporal (1). */
uint64_t hb_oracle_slot_bytes(const struct hb_config *config, int32_t part);
/* *dst = *src where dst is not null and holds no failure yet; returns src->status. */
int32_t hb_oracle_pass(struct hb_error *dst, const struct hb_error *src);

void hb_oracle_forward_drop(struct hb_oracle_forward *forward);
int32_t hb_oracle_begin(void *handle, const struct hb_batch *batch, struct hb_error *err);
int32_t hb_oracle_layer(void *handle, int32_t layer_id, const struct hb_layer_io *io,
                        struct hb_error *err);
int32_t hb_oracle_finish(void *handle, struct hb_error *err);
int32_t hb_oracle_entry(void *handle, int32_t target, int32_t direction, int32_t layer_id,
                        const struct hb_layer_io *io, struct hb_error *err);

/* oracle_verify.c */
/* Node counts, parents and slots of a valid verify batch; 0 or HB_ERR_MEMORY. */
int32_t hb_oracle_verify_rows(struct hb_oracle_forward *forward, const struct hb_batch *batch);
/* Tokens 0..n-1 of a row that token t attends to besides the prefix; [t + 1] is enough. Returns
 * their count. */
int32_t hb_oracle_ancestors(const struct hb_oracle_row *row, int32_t t, int32_t *path);
/* Takes over what a commit needs from a verify that ends. */
void hb_oracle_verify_end(struct hb_oracle *o);
void hb_oracle_verify_drop(struct hb_oracle_verify *verify);
int32_t hb_oracle_commit(void *handle, const struct hb_commit *commit, struct hb_error *err);

int32_t hb_oracle_n_regions(void *handle, int32_t *n, struct hb_error *err);
int32_t hb_oracle_region(void *handle, int32_t i, struct hb_region *out, struct hb_error *err);
int32_t hb_oracle_region_read(void *handle, int32_t i, uint64_t offset, void *dst, uint64_t bytes,
                              struct hb_error *err);
int32_t hb_oracle_region_write(void *handle, int32_t i, uint64_t offset, const void *src,
                               uint64_t bytes, struct hb_error *err);

#endif
