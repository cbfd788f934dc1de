/* SPDX-License-Identifier: Apache-2.0
 * The one table through which a backend is reached. Every function returns an enum hb_status value as int32_t and fills
 * err (may be null) when it is not HB_OK. Any non-OK return leaves every persistent byte, and the batch, as they were.
 * One handle is used by one thread at a time. */
#ifndef HB_BACKEND_ADAPTER_H
#define HB_BACKEND_ADAPTER_H

#include "backend/batch.h"
#include "backend/caps.h"
#include "backend/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum hb_slot_kind { HB_SLOT_FREE = 0, HB_SLOT_LIVE = 1, HB_SLOT_TRACK = 2, HB_SLOT_TREE = 3, HB_SLOT_RESERVED = 4 };
enum hb_entry_target { HB_ENTRY_CHILD = 0, HB_ENTRY_WRAPPER = 1 };
enum hb_entry_direction { HB_ENTRY_DECODE = 0, HB_ENTRY_EXTEND = 1 };
enum hb_region_kind { HB_REGION_STATE = 0, HB_REGION_CURSOR = 1, HB_REGION_TABLE = 2, HB_REGION_STATIC = 3 };

/* Memory that layers accept; id is the backend's own. {0, 0, 0} is null. */
struct hb_buf {
    uint64_t id;
    uint64_t offset; /* bytes from the start of the allocation */
    uint64_t bytes;  /* usable from offset on */
};

/* Buffers of one layer call, activation dtype, row-major, T = batch n_tokens:
 * Mamba2:    in[0] z [T, d_inner], in[1] x [H,P] | B [G,N] | C [G,N] (before the conv), in[2] dt_raw [T, H]; out [T, d_inner].
 * GDN:       in[0] z, in[1] q [G,N] | k [G,N] | v [H,P] (before the conv), in[2] a [H] | b [H]; out [T, d_inner].
 * KDA:       as GDN, in[2] a [H,N] | b [H].
 * lightning: in[0] gate [T, d_inner], in[1] q [G,N] | k [G,N] | v [H,P] (no conv), in[2] log decay [T, H] (slope TOKEN, else
 *            not read); out [T, d_inner].
 * short conv: in[1] B | C | x [T, 3*d_inner] (B*x is rounded to the activation type, then the conv), in[0], in[2] not read;
 *            out [T, d_inner] = C * conv(B * x). No norm, no gate.
 * Mamba1:    in[0] z, in[1] x [T, d_inner] (before the conv), in[2] dt_raw [d_inner] | B [N] | C [N]; out [T, d_inner].
 * After the recurrence each kind but short conv applies gate_norm with out_gate, norm_group, norm_eps.
 * attention: in[0] q [T, HQ, D], in[1] k [T, HKV, D], in[2] v [T, HKV, D]; out [T, HQ, D].
 * Output rows of padding and surplus tokens are zero-filled. */
struct hb_layer_io {
    uint32_t struct_size;
    struct hb_buf in[3];
    struct hb_buf out;
};

/* One block of persistent bytes, dense row-major. Names and shapes every backend with regions uses:
 * "conv" [NS+1, channels, W] act dtype and "temporal" [NS+1, H, P, N] (layout KV: [NS+1, H, N, P]) state dtype, per linear
 * layer (oldest conv input first). channels: dim; short conv, Mamba1: d_inner; lightning: no conv region. W = K-1, or K (FULL).
 * Short conv: no temporal region. The intermediate caches and rings likewise; below, "Mamba2 layer" means linear layer.
 * "intermediate_conv" [SR, D, dim, W] act dtype and "intermediate_ssm" [SR, D, H*P, N] (KV: [SR, D, H*N, P]) state dtype, per
 * Mamba2 layer, where config spec_rows SR > 0, D = max_draft: window and state after each node along its path, by batch row;
 * window_layout STRIP: "intermediate_conv" [SR, dim, max_draft+W-1] instead, window after node t = columns t..t+W-1;
 * "kv_k", "kv_v" [n_kv, HKV, D] act dtype, per attention layer; "req_to_slot" [req_pool_size] int32 (layer -1);
 * "slot_kind" [NS+1] int32 (layer -1), by slot; further tables under names of the backend's own.
 * Where pool_pad > 0: "conv_pad", "temporal_pad" [NS+1, pool_pad], state, per Mamba2 layer: what no forward may write.
 * Where n_virtual > 0: "v2p" [NV+1] int32 (layer -1): slot of each id, -1 if the id is free; entry 0 is 0.
 * Where ring_length L > 0: "write_pos" [NS+1] int32, cursor, layer -1; per Mamba2 layer, cursor: "ring_x" [NS+1, H, L, P] dt*x,
 * "ring_b" [NS+1, G, L, N], "ring_g" [NS+1, H, L] A*dt, all fp32. ring_owner COMMIT: also "ring_base", "ring_flush" [NS+1]
 * int32, cursors, layer -1, and no "intermediate_ssm".
 * Where graph_rows GR > 0 (layer -1, static, int32; set of batch size bs = row bs-1, GD = graph_draft):
 * "graph_state_indices" [GR, GR], "graph_query_start_loc" [GR, GR+1], "graph_track_indices" [GR], "graph_track_mask" [GR];
 * with spec_rows > 0 also "graph_next_token", "graph_next_sibling", "graph_parents" [GR, GR, GD]; with a ring also
 * "graph_write_pos", "graph_force_flush" [GR, GR] (ring_owner COMMIT: and "graph_ring_base" [GR, GR]); further static regions under names of the backend's own. Before the first
 * capture graph_state_indices holds -1, the others 0. backend/README.md "Graphs" says what a refresh writes. */
struct hb_region {
    uint32_t struct_size;
    char name[24];
    int32_t layer; /* model layer id or -1 */
    int32_t dtype;
    int32_t kind;
    int32_t n_dims;
    int64_t shape[4];
    uint64_t bytes;
};

struct hb_adapter {
    uint32_t struct_size;
    void *ctx; /* passed to describe and create */
    int32_t (*describe)(void *ctx, struct hb_caps *caps, struct hb_error *err);
    /* params: [config->n_layers] */
    int32_t (*create)(void *ctx, const struct hb_config *config, const struct hb_layer_params *params, void **handle,
                      struct hb_error *err);
    void (*destroy)(void *handle);
    /* Fresh buffers hold poison, not zeros. */
    int32_t (*buf_alloc)(void *handle, uint64_t bytes, struct hb_buf *out, struct hb_error *err);
    void (*buf_free)(void *handle, struct hb_buf buf);
    int32_t (*buf_write)(void *handle, struct hb_buf buf, const void *src, uint64_t bytes, struct hb_error *err);
    int32_t (*buf_read)(void *handle, struct hb_buf buf, void *dst, uint64_t bytes, struct hb_error *err);
    /* state-pool.md section 2: takes the first n of the free list, zeroed; ids [n] */
    int32_t (*slot_take)(void *handle, int32_t n, int32_t kind, int32_t *ids, struct hb_error *err);
    int32_t (*slot_free)(void *handle, int32_t n, const int32_t *ids, struct hb_error *err);
    int32_t (*slot_copy)(void *handle, int32_t src, int32_t dst, struct hb_error *err);
    /* TRACK -> TREE: the checkpoint is donated to the prefix cache; only slot_free ends it */
    int32_t (*slot_publish)(void *handle, int32_t id, struct hb_error *err);
    /* Virtual ids only: the state moves to the first slot of the free list, the id stays, the old slot goes to the list's end. */
    int32_t (*slot_move)(void *handle, int32_t id, struct hb_error *err);
    /* req_to_slot[req] = slot; the slot value is not checked */
    int32_t (*table_set)(void *handle, int32_t req, int32_t slot, struct hb_error *err);
    /* init of forward metadata; all batch validation happens here. On failure earlier metadata stays valid. */
    int32_t (*begin)(void *handle, const struct hb_batch *batch, struct hb_error *err);
    /* Once, before capture: sizes of the graphs, D_graph = max_tokens / max_bs nodes per row of a verify (graph.md 1). */
    int32_t (*graph_init)(void *handle, int32_t max_bs, int32_t max_tokens, struct hb_error *err);
    /* Like begin, for a dummy forward of batch_size rows: reads forward_mode, batch_size, n_tokens, draft_token_num, and
     * whether links are given. The layers that follow run, and finish keeps them, with their buffers, as the graph of this
     * batch size. The buffers must live, and stay where they are, as long as the handle. */
    int32_t (*capture)(void *handle, const struct hb_batch *batch, struct hb_error *err);
    /* Like begin, for the graph of this batch size: refreshes its static buffers. No layer call follows; finish launches the
     * captured layers on what their buffers then hold. */
    int32_t (*replay)(void *handle, const struct hb_batch *batch, struct hb_error *err);
    /* each layer at most once per forward, any subset, any order */
    int32_t (*layer)(void *handle, int32_t layer_id, const struct hb_layer_io *io, struct hb_error *err);
    /* end of the forward: tracking is complete, metadata is invalid afterwards */
    int32_t (*finish)(void *handle, struct hb_error *err);
    /* forward-batch.md section 2; the Mamba2 child refuses whatever the arguments, null handle included */
    int32_t (*entry)(void *handle, int32_t target, int32_t direction, int32_t layer_id, const struct hb_layer_io *io,
                     struct hb_error *err);
    int32_t (*n_regions)(void *handle, int32_t *n, struct hb_error *err);
    int32_t (*region)(void *handle, int32_t i, struct hb_region *out, struct hb_error *err);
    int32_t (*region_read)(void *handle, int32_t i, uint64_t offset, void *dst, uint64_t bytes, struct hb_error *err);
    int32_t (*region_write)(void *handle, int32_t i, uint64_t offset, const void *src, uint64_t bytes,
                            struct hb_error *err);
    /* after a verify forward (begin with TARGET_VERIFY, layers, finish) and before the next begin; may be repeated */
    int32_t (*commit)(void *handle, const struct hb_commit *commit, struct hb_error *err);
    /* kernels launched since create; 0 where unknown */
    uint64_t (*launches)(void *handle);
};

/* The project's own backend on the emulator, and on the GPU (null in builds without CUDA). */
const struct hb_adapter *hb_adapter_emu(void);
const struct hb_adapter *hb_adapter_cuda(void);

#ifdef __cplusplus
}
#endif
#endif
