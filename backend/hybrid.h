/* SPDX-License-Identifier: Apache-2.0
 * The hybrid wrapper: owns a configuration's pools, parameters, caches and metadata, validates each
 * forward once, and sends each layer to its child by layer id. One handle is used by one thread at
 * a time. Handles and struct pointers are never null here (adapter_native.c answers for null ones).
 * Functions fill err, which the caller has cleared. */
#ifndef HB_BACKEND_HYBRID_H
#define HB_BACKEND_HYBRID_H

#include <stdint.h>

#include "backend/adapter.h"
#include "backend/graph.h"
#include "backend/layers.h"
#include "backend/metadata.h"
#include "backend/pool.h"
#include "backend/validate.h"
#include "kernels/kernels.h"

enum { HB_MAX_REGIONS = 9 * HB_MAX_LAYERS + 12 + HB_N_GRAPH_ARRAYS };

/* Metadata of one begun forward, and its copy on the device. */
struct hb_forward {
    struct hb_metadata meta;
    int32_t *host_block;
    void *device_block;
};

struct hb_hybrid_layer {
    int32_t kind;
    int32_t pool_layer; /* linear: index in the pool */
    struct hb_linear_weights weights;
    struct hb_spec_cache spec; /* linear: intermediate caches, null without speculation */
    void *kv_k, *kv_v;         /* attention: act [n_kv, HKV, D] */
};

/* A buffer handed out by buf_alloc; ids are index + 1. */
struct hb_hybrid_buffer {
    void *ptr; /* null: free entry */
    uint64_t bytes;
};

/* The region's bytes are pieces of item_bytes, stride_bytes apart from ptr on (the pools and their
 * pads lie in each other); dense where both are the same. */
struct hb_hybrid_region {
    struct hb_region info;
    void *ptr;
    uint64_t item_bytes, stride_bytes;
    int32_t is_device;
};

struct hb_hybrid {
    const struct hb_kernels *kernels;
    struct hb_config config;
    struct hb_dims dims;
    struct hb_pool pool;
    struct hb_hybrid_layer layer[HB_MAX_LAYERS];
    struct hb_forward forward[2]; /* a failing begin must leave the earlier one whole */
    int32_t current;
    int32_t has_metadata; /* of a begun forward, or of an open capture */
    struct hb_graphs graphs;
    uint32_t layers_run; /* bit l */
    /* the last forward was a verify, and no begin has succeeded since: its metadata is still the
     * current one, layers_verified says which layers ran */
    int32_t has_verify;
    uint32_t layers_verified; /* bit l */
    int32_t *verify_ids;      /* [SR] ids of the verify's live rows, and how often each had been */
    int32_t *verify_generation; /* given out: a commit must find them as they were */
    int32_t *commit_pairs;    /* host [4*SR]: where a commit lists its copies */
    void *device_pairs;       /* the same on the device */
    struct hb_validate_env env;
    void *conv_out, *ssm_out; /* device scratch */
    struct hb_hybrid_buffer *buffers;
    int64_t n_buffers;
    int32_t n_regions;
    struct hb_hybrid_region region[HB_MAX_REGIONS];
    uint64_t launches;
};

/* Nothing is kept on failure. */
int32_t hb_hybrid_create(const struct hb_kernels *kernels, const struct hb_config *config,
                         const struct hb_layer_params *params, struct hb_hybrid **out,
                         struct hb_error *err);
void hb_hybrid_destroy(struct hb_hybrid *h);

int32_t hb_hybrid_begin(struct hb_hybrid *h, const struct hb_batch *batch, struct hb_error *err);
int32_t hb_hybrid_layer(struct hb_hybrid *h, int32_t layer_id, const struct hb_layer_io *io,
                        struct hb_error *err);
int32_t hb_hybrid_finish(struct hb_hybrid *h, struct hb_error *err);
/* Ends what is open, and what a verify has left: begin, capture or replay has succeeded. */
void hb_hybrid_close(struct hb_hybrid *h);
/* What a layer call, and what finish of a decode launches; a capture records the same. */
int32_t hb_hybrid_launch_layer(const struct hb_hybrid *h, int32_t layer_id,
                               const struct hb_layer_buffers *io, struct hb_error *err);
int32_t hb_hybrid_launch_tracking(const struct hb_hybrid *h, struct hb_error *err);
/* Copies states of the last verify to slots (spec_verify.c); commit may be null (rule 31). */
int32_t hb_hybrid_commit(struct hb_hybrid *h, const struct hb_commit *commit, struct hb_error *err);
/* The wrapper's decode and extend entries: both route by layer id alone, and differ in what refuses
 * them. */
int32_t hb_hybrid_entry(struct hb_hybrid *h, int32_t direction, int32_t layer_id,
                        const struct hb_layer_io *io, struct hb_error *err);

/* spec_verify.c: what a commit needs of the verify that has begun and metadata does not hold. Does
 * nothing in other modes. */
void hb_hybrid_note_verify(struct hb_hybrid *h, const struct hb_batch *batch);

/* hybrid_memory.c: buffers and regions. */
int32_t hb_hybrid_buf_alloc(struct hb_hybrid *h, uint64_t bytes, struct hb_buf *out,
                            struct hb_error *err);
void hb_hybrid_buf_free(struct hb_hybrid *h, struct hb_buf buf);
/* Address and usable bytes of a buffer; 0 bytes and null for an id that is not in use. */
void *hb_hybrid_buf_ptr(const struct hb_hybrid *h, struct hb_buf buf, uint64_t *bytes);

/* hybrid_regions.c. */
void hb_hybrid_list_regions(struct hb_hybrid *h);
/* Appends a dense region. */
void hb_hybrid_add_region(struct hb_hybrid *h, const char *name, int32_t layer, int32_t dtype,
                          int32_t kind, int32_t is_device, void *ptr, int32_t n_dims,
                          const int64_t *shape);
/* Region i, checked for offset and bytes (rule 158). */
int32_t hb_hybrid_region_at(const struct hb_hybrid *h, int32_t i, uint64_t offset, uint64_t bytes,
                            const struct hb_hybrid_region **out, struct hb_error *err);
/* Bytes of a region, checked as above. */
int32_t hb_hybrid_region_read(const struct hb_hybrid *h, int32_t i, uint64_t offset, void *dst,
                              uint64_t bytes, struct hb_error *err);
int32_t hb_hybrid_region_write(const struct hb_hybrid *h, int32_t i, uint64_t offset,
                               const void *src, uint64_t bytes, struct hb_error *err);

#endif
