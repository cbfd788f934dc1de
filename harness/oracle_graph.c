/* SPDX-License-Identifier: Apache-2.0
 * Graphs of the float64 oracle (graph.md): a capture remembers the buffers of its layers, a replay
 * runs them on what these then hold. The static buffers are kept up for their bytes alone: layers
 * read the metadata of the batch. */
#include "harness/oracle_adapter.h"

#include <string.h>

int32_t hb_oracle_graph_init(void *handle, int32_t max_bs, int32_t max_tokens,
                             struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_graph_init(&o->config, &o->graphs, max_bs, max_tokens, &e);
    if (e.status == HB_OK) {
        o->graphs.max_bs = max_bs;
        o->graphs.draft = max_tokens / max_bs;
    }
    return hb_oracle_pass(err, &e);
}

/* A dummy forward: all of its rows are padding. */
int32_t hb_oracle_capture(void *handle, const struct hb_batch *batch, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_oracle_forward f = {.is_capture = 1};
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_capture(&o->config, &o->caps, &o->slots, &o->graphs, batch, &e);
    if (e.status != HB_OK) {
        return hb_oracle_pass(err, &e);
    }
    f.has_links =
        batch->forward_mode == HB_MODE_TARGET_VERIFY && batch->retrieve_next_token.data != NULL;
    f.phase.has_ring = hb_ring_has_mode(&o->config, batch->forward_mode);
    if (hb_oracle_forward_make(o, batch, 0, &f) != HB_OK) {
        return hb_oracle_no_memory(err, "metadata of the batch");
    }
    hb_oracle_forward_open(o, &f);
    o->graph[0].n_layers = 0;
    return HB_OK;
}

void hb_oracle_graph_keep(struct hb_oracle *o) {
    int32_t bs = o->forward.batch_size;
    o->graph[bs] = o->graph[0];
    o->graphs.set[bs].is_captured = 1;
    o->graphs.set[bs].mode = o->forward.phase.mode;
    o->graphs.set[bs].has_links = o->forward.has_links;
}

/* ---- refresh ---- */

/* Set of a batch size in one static buffer. */
static int32_t *set_of(const struct hb_oracle *o, int32_t which, int32_t bs) {
    int64_t rows = o->config.graph_rows;
    int64_t width = rows;
    if (which == HB_STATIC_QUERY_START) {
        width = rows + 1;
    } else if (which >= HB_STATIC_NEXT && which <= HB_STATIC_PARENTS) {
        width = rows * o->config.graph_draft;
    }
    return o->statics[which] + (bs - 1) * width;
}

static void refresh_rows(const struct hb_oracle *o, const struct hb_oracle_forward *f) {
    int32_t bs = f->batch_size;
    int32_t step = f->phase.mode == HB_MODE_TARGET_VERIFY ? o->graphs.draft : 1;
    int32_t *slots = set_of(o, HB_STATIC_STATE_INDICES, bs);
    int32_t *start = set_of(o, HB_STATIC_QUERY_START, bs);
    start[0] = 0;
    for (int32_t r = 0; r < bs; r++) {
        slots[r] = r < f->n_rows ? f->rows[r].slot : HB_PAD_SLOT;
        start[r + 1] = step * (r + 1 < f->n_rows ? r + 1 : f->n_rows);
    }
}

/* An id that does not exist, or is free, has no slot. */
static int32_t translate(const struct hb_oracle *o, int64_t id) {
    return id >= 0 && id <= INT32_MAX ? hb_slot_model_slot(&o->slots, (int32_t)id) : -1;
}

static void refresh_tracks(const struct hb_oracle *o, const struct hb_batch *b) {
    for (int32_t r = 0; r < b->batch_size; r++) {
        const uint8_t *mask = b->mamba_track_mask.data;
        if (b->mamba_track_indices.data != NULL) {
            o->statics[HB_STATIC_TRACK_INDICES][r] = translate(o, b->mamba_track_indices.data[r]);
        }
        o->statics[HB_STATIC_TRACK_MASK][r] = mask != NULL && mask[r] != 0;
    }
}

static void refresh_ring(const struct hb_oracle *o, const struct hb_oracle_forward *f) {
    int32_t *cursor = set_of(o, HB_STATIC_WRITE_POS, f->batch_size);
    int32_t *forced = set_of(o, HB_STATIC_FORCE_FLUSH, f->batch_size);
    for (int32_t r = 0; r < f->batch_size; r++) {
        cursor[r] = r < f->n_rows ? f->rows[r].w : 0;
        forced[r] = r < f->n_rows && f->rows[r].forced;
        if (o->slots.commits) {
            set_of(o, HB_STATIC_RING_BASE, f->batch_size)[r] = r < f->n_rows ? f->rows[r].base : 0;
        }
    }
}

/* Nodes of a tree; rows beyond the live ones keep their old links, which nothing reads. */
static void refresh_links(const struct hb_oracle *o, const struct hb_oracle_forward *f,
                          const struct hb_batch *b) {
    const int64_t draft = b->draft_token_num, pitch = o->config.graph_draft;
    const size_t bytes = (size_t)draft * sizeof(int32_t);
    for (int64_t r = 0; r < f->batch_size; r++) {
        int32_t *parents = set_of(o, HB_STATIC_PARENTS, f->batch_size) + r * pitch;
        memset(parents, 0, bytes);
        if (r < f->n_rows) {
            memcpy(set_of(o, HB_STATIC_NEXT, f->batch_size) + r * pitch,
                   b->retrieve_next_token.data + r * draft, bytes);
            memcpy(set_of(o, HB_STATIC_SIBLING, f->batch_size) + r * pitch,
                   b->retrieve_next_sibling.data + r * draft, bytes);
            memcpy(parents, f->rows[r].parent, bytes);
        }
    }
}

static void refresh(const struct hb_oracle *o, const struct hb_oracle_forward *f,
                    const struct hb_batch *b) {
    refresh_rows(o, f);
    if (b->forward_mode == HB_MODE_DECODE) {
        refresh_tracks(o, b);
    }
    if (hb_ring_has_mode(&o->config, b->forward_mode)) {
        refresh_ring(o, f);
    }
    if (b->forward_mode == HB_MODE_TARGET_VERIFY && b->retrieve_next_token.data != NULL) {
        refresh_links(o, f, b);
    }
}

int32_t hb_oracle_replay(void *handle, const struct hb_batch *batch, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_oracle_forward f = {0};
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_replay(&o->config, &o->caps, &o->slots, &o->graphs, batch, &e);
    if (e.status != HB_OK) {
        return hb_oracle_pass(err, &e);
    }
    f.phase.is_replay = 1;
    if (hb_oracle_forward_make(o, batch, hb_expect_real_rows(batch, 1), &f) != HB_OK) {
        return hb_oracle_no_memory(err, "metadata of the batch");
    }
    refresh(o, &f, batch);
    hb_oracle_forward_open(o, &f);
    return HB_OK;
}

/* In the order of the capture: a buffer may be the output of one layer and the input of another.
 * All memory is there before the first layer runs, so that a lack of it changes nothing. */
int32_t hb_oracle_graph_launch(struct hb_oracle *o) {
    const struct hb_oracle_graph *graph = &o->graph[o->forward.batch_size];
    struct hb_oracle_work work[HB_MAX_LAYERS];
    int done = 1;
    memset(work, 0, sizeof work);
    for (int32_t i = 0; i < graph->n_layers && done; i++) {
        done = hb_oracle_work_make(o, graph->order[i], &work[i]);
    }
    for (int32_t i = 0; i < graph->n_layers; i++) {
        int32_t l = graph->order[i];
        if (done) {
            hb_oracle_run(o, l, &graph->io[l], &work[i]);
            o->forward.phase.layers_run |= 1U << l;
        }
        hb_oracle_work_free(&work[i]);
    }
    return done ? HB_OK : HB_ERR_MEMORY;
}
