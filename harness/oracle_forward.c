/* SPDX-License-Identifier: Apache-2.0
 * Forwards of the float64 oracle behind the adapter table: metadata, the calls of layers, tracking.
 * The layers themselves are in oracle_layer.c. */
#include "harness/oracle_adapter.h"

#include <stdlib.h>
#include <string.h>

/* ---- metadata ---- */

void hb_oracle_forward_drop(struct hb_oracle_forward *forward) {
    free(forward->rows);
    free(forward->maps);
    free(forward->draft.generations);
    memset(forward, 0, sizeof *forward);
}

static int is_extend_family(int32_t mode) {
    return mode == HB_MODE_EXTEND || mode == HB_MODE_MIXED || mode == HB_MODE_SPLIT_PREFILL ||
           mode == HB_MODE_DLLM_EXTEND;
}

static int is_masked(const struct hb_batch *b, int32_t r) {
    return b->mamba_track_mask.data != NULL && b->mamba_track_mask.data[r] != 0;
}

/* The cursor that a row appends at, and whether it folds before the ring is full (speculative.md
 * section 7); in a verify, whether it folds what is there. Slot 0 never advances. */
static void set_ring(const struct hb_oracle *o, const struct hb_batch *b, int32_t r,
                     struct hb_oracle_row *row) {
    const struct hb_config *c = &o->config;
    int32_t interval = c->track_interval > 0 ? c->track_interval : c->chunk_size;
    row->w = -1;
    if (!hb_ring_has_mode(c, b->forward_mode)) {
        return;
    }
    row->w = row->slot > 0 ? o->slots.write_pos[row->slot] : 0;
    if (o->slots.commits) {
        row->base = row->slot > 0 ? o->slots.ring_base[row->slot] : 0;
        row->forced = row->slot > 0 && o->slots.ring_flush[row->slot] != 0;
    } else {
        row->forced = is_masked(b, r) ||
                      (b->seq_lens_cpu.data != NULL && b->seq_lens_cpu.data[r] % interval == 0);
    }
}

/* Row r of a valid batch; the checkpoint lies at the last multiple of CC (relative to the prefix)
 * up to the given length (tracking.md section 1). */
static void make_row(const struct hb_oracle *o, const struct hb_batch *b, int32_t r,
                     struct hb_oracle_row *row) {
    int extends = is_extend_family(b->forward_mode) && r < b->n_extend;
    row->req = b->req_pool_indices.data[r];
    row->id = o->slots.table[row->req];
    row->slot = hb_slot_model_slot(&o->slots, row->id);
    row->path = extends ? HB_PATH_PREFILL : HB_PATH_DECODE;
    row->n = extends ? b->extend_seq_lens.data[r] : 1;
    row->prefix = extends ? b->extend_prefix_lens.data[r] : b->seq_lens.data[r] - 1;
    set_ring(o, b, r, row);
    if (is_masked(b, r)) {
        row->dst = hb_slot_model_slot(&o->slots, (int32_t)b->mamba_track_indices.data[r]);
        row->at = row->n;
        if (extends) {
            int64_t chunk = o->config.page_size > o->config.chunk_size ? o->config.page_size
                                                                       : o->config.chunk_size;
            row->at = (int32_t)((b->mamba_track_seqlens.data[r] - row->prefix) / chunk * chunk);
        }
    }
}

static int has_kind(const struct hb_config *config, int32_t kind) {
    for (int32_t i = 0; i < config->n_layers; i++) {
        if (config->layer_kind[i] == kind) {
            return 1;
        }
    }
    return 0;
}

/* Copies the cache slots of every row's context. */
static int32_t copy_maps(struct hb_oracle_forward *f, const struct hb_batch *b) {
    size_t total = 0;
    size_t used = 0;
    for (int32_t r = 0; r < f->n_rows; r++) {
        total += (size_t)f->rows[r].prefix + (size_t)f->rows[r].n;
    }
    f->maps = calloc(total + 1, sizeof *f->maps);
    if (f->maps == NULL) {
        return HB_ERR_MEMORY;
    }
    for (int32_t r = 0; r < f->n_rows; r++) {
        struct hb_oracle_row *row = &f->rows[r];
        size_t n = (size_t)row->prefix + (size_t)row->n;
        row->map = f->maps + used;
        memcpy(row->map, b->req_to_token.data + (int64_t)row->req * b->req_to_token_cols,
               n * sizeof *row->map);
        used += n;
    }
    return HB_OK;
}

static int32_t make_rows(const struct hb_oracle *o, const struct hb_batch *b,
                         struct hb_oracle_forward *f) {
    f->rows = calloc((size_t)f->n_rows + 1, sizeof *f->rows);
    if (f->rows == NULL) {
        return HB_ERR_MEMORY;
    }
    for (int32_t r = 0; r < f->n_rows; r++) {
        make_row(o, b, r, &f->rows[r]);
    }
    if (b->forward_mode == HB_MODE_TARGET_VERIFY && hb_oracle_verify_rows(o, f, b) != HB_OK) {
        return HB_ERR_MEMORY;
    }
    for (int32_t r = 0; r < f->n_rows; r++) {
        f->rows[r].token = f->n_real;
        f->n_real += f->rows[r].n;
    }
    return has_kind(&o->config, HB_LAYER_ATTENTION) && f->n_rows > 0 ? copy_maps(f, b) : HB_OK;
}

int32_t hb_oracle_forward_make(const struct hb_oracle *o, const struct hb_batch *b, int32_t n_rows,
                               struct hb_oracle_forward *f) {
    f->phase.has_metadata = 1;
    f->phase.mode = b->forward_mode;
    f->phase.n_tokens = b->n_tokens;
    f->batch_size = b->batch_size;
    f->n_rows = n_rows;
    int32_t status = make_rows(o, b, f);
    if (status != HB_OK) {
        hb_oracle_forward_drop(f);
    }
    return status;
}

void hb_oracle_forward_open(struct hb_oracle *o, const struct hb_oracle_forward *f) {
    hb_oracle_forward_drop(&o->forward);
    hb_oracle_verify_drop(&o->verify);
    o->forward = *f;
}

int32_t hb_oracle_begin(void *handle, const struct hb_batch *batch, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_oracle_forward f = {0};
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_begin(&o->config, &o->caps, &o->slots, batch, &e);
    if (e.status != HB_OK) {
        return hb_oracle_pass(err, &e);
    }
    if (batch->forward_mode == HB_MODE_DRAFT_EXTEND_V2) { /* of the other child: no metadata here */
        hb_oracle_forward_open(o, &f);
        return HB_OK;
    }
    int32_t live = batch->forward_mode == HB_MODE_IDLE ? 0 : hb_expect_real_rows(batch, 0);
    f.phase.has_ring = hb_ring_has_mode(&o->config, batch->forward_mode);
    if (hb_oracle_forward_make(o, batch, live, &f) != HB_OK) {
        return hb_oracle_no_memory(err, "metadata of the batch");
    }
    hb_oracle_forward_open(o, &f);
    return HB_OK;
}

/* ---- layers ---- */

/* A layer whose call has been checked. */
static int32_t run_layer(struct hb_oracle *o, int32_t layer_id, const struct hb_layer_io *io,
                         struct hb_error *err) {
    struct hb_oracle_work w = {0};
    int done = hb_oracle_work_make(o, layer_id, &w);
    if (done) {
        hb_oracle_run(o, layer_id, io, &w);
    }
    hb_oracle_work_free(&w);
    return done ? HB_OK : hb_oracle_no_memory(err, "layer");
}

/* The layer counts as run, and belongs to the graph that is being captured. */
static void mark_run(struct hb_oracle *o, int32_t layer_id, const struct hb_layer_io *io) {
    o->forward.phase.layers_run |= 1U << layer_id;
    if (o->forward.is_capture) {
        struct hb_oracle_graph *graph = &o->graph[0];
        graph->io[layer_id] = *io;
        graph->order[graph->n_layers++] = layer_id;
    }
}

int32_t hb_oracle_layer(void *handle, int32_t layer_id, const struct hb_layer_io *io,
                        struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_layer(&o->config, &o->forward.phase, layer_id, io, &e);
    if (e.status != HB_OK) {
        return hb_oracle_pass(err, &e);
    }
    int32_t status = run_layer(o, layer_id, io, err);
    if (status == HB_OK) {
        mark_run(o, layer_id, io);
    }
    return status;
}

int32_t hb_oracle_entry(void *handle, int32_t target, int32_t direction, int32_t layer_id,
                        const struct hb_layer_io *io, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    hb_expect_entry(o != NULL ? &o->config : NULL, o != NULL ? &o->forward.phase : NULL, o != NULL,
                    target, direction, layer_id, io, &e);
    if (e.status != HB_OK || o == NULL) {
        return hb_oracle_pass(err, &e);
    }
    int32_t status = run_layer(o, layer_id, io, err);
    if (status == HB_OK && o->forward.phase.mode != HB_MODE_IDLE) { /* an idle entry runs nothing */
        mark_run(o, layer_id, io);
    }
    return status;
}

/* ---- finish ---- */

static int ran_linear(const struct hb_oracle *o, int32_t layer_id) {
    return o->config.layer_kind[layer_id] != HB_LAYER_ATTENTION &&
           ((o->forward.phase.layers_run >> layer_id) & 1U) != 0;
}

/* Decode checkpoints are bit-exact copies of whole slots, in the layers that ran (tracking.md
 * section 5). */
static void track_all(struct hb_oracle *o) {
    for (int32_t l = 0; l < o->config.n_layers; l++) {
        if (ran_linear(o, l)) {
            hb_oracle_track(o, l);
        }
    }
}

/* Cursors after the forward: 0 after a fold, else one further; a verify leaves that to its commit.
 */
static void advance_cursors(struct hb_oracle *o) {
    for (int32_t r = 0; r < o->forward.n_rows; r++) {
        const struct hb_oracle_row *row = &o->forward.rows[r];
        if (row->w >= 0 && o->slots.commits) {
            hb_slot_model_ring_verified(&o->slots, row->slot);
            o->forward.draft.left[r] = o->slots.write_pos[row->slot];
        } else if (row->w >= 0 && row->slot > 0) {
            o->slots.write_pos[row->slot] = hb_oracle_row_folds(&o->config, row) ? 0 : row->w + 1;
        }
    }
}

int32_t hb_oracle_finish(void *handle, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_finish(&o->config, &o->forward.phase, &e);
    if (e.status != HB_OK) {
        return hb_oracle_pass(err, &e);
    }
    if (o->forward.phase.is_replay && hb_oracle_graph_launch(o) != HB_OK) {
        return hb_oracle_no_memory(err, "layers of a graph");
    }
    if (!o->config.track_by_layer) {
        track_all(o);
    }
    advance_cursors(o);
    if (o->forward.is_capture) {
        hb_oracle_graph_keep(o);
    } else if (o->forward.phase.mode == HB_MODE_TARGET_VERIFY) {
        hb_oracle_verify_end(o);
    }
    hb_oracle_forward_drop(&o->forward);
    return HB_OK;
}
