/* SPDX-License-Identifier: Apache-2.0
 * Mischief in captures and replays; part of mischief.h. */
#ifndef HB_HARNESS_TESTS_MISCHIEF_GRAPH_H
#define HB_HARNESS_TESTS_MISCHIEF_GRAPH_H

#include "harness/tests/mischief_forward.h"

/* Index of an entry in a region of one row per batch size. */
static inline uint64_t mischief_set_entry(const struct hb_config *config, int32_t bs, int32_t width,
                                          int32_t i) {
    return (uint64_t)(bs - 1) * (uint64_t)(config->graph_rows + width) + (uint64_t)i;
}

static inline int32_t mischief_graph_init(void *handle, int32_t max_bs, int32_t max_tokens,
                                          struct hb_error *err) {
    const struct mischief_handle *m = handle;
    const int32_t status = m->inner->graph_init(m->handle, max_bs, max_tokens, err);
    if (status == HB_OK && m->number == MISCHIEF_INIT) {
        (void)mischief_add_int(m->inner, m->handle, "graph_query_start_loc", 1, 1);
    }
    return status;
}

static inline int32_t mischief_capture(void *handle, const struct hb_batch *batch,
                                       struct hb_error *err) {
    struct mischief_handle *m = handle;
    int32_t status = m->inner->capture(m->handle, batch, err);
    if (status == HB_ERR_INVALID_MODE && m->number == 2) {
        return mischief_fail(err, HB_RULE_BATCH_NEGATIVE);
    }
    if (status == HB_OK) {
        m->graphs.is_capture = 1;
        m->graphs.is_replay = 0;
        m->graphs.bs = batch->batch_size;
        m->graphs.layers[batch->batch_size] = 0;
        m->graphs.tokens[batch->batch_size] = batch->n_tokens;
    }
    return status;
}

/* The part of a batch that a replay reads, as begin would see it. */
static inline void mischief_note_replay(struct mischief_handle *m, const struct hb_batch *batch) {
    struct mischief_graphs *g = &m->graphs;
    struct hb_batch b = *batch;
    b.has_original_batch_size = 1;
    b.original_batch_size = batch->batch_size - (batch->has_num_padding ? batch->num_padding : 0);
    for (int64_t i = 0; i < batch->seq_lens_cpu.len && !batch->has_num_padding; i++) {
        b.original_batch_size -= batch->seq_lens_cpu.data[i] == 1;
    }
    g->follows_empty = g->last_bs > 0 && g->last_bs != batch->batch_size && g->last_live == 0;
    g->last_bs = g->bs = batch->batch_size;
    g->last_live = b.original_batch_size;
    g->counts_padding = !batch->has_num_padding;
    g->is_replay = 1;
    g->is_capture = 0;
    mischief_note_batch(m, &b);
}

static inline int32_t mischief_replay(void *handle, const struct hb_batch *batch,
                                      struct hb_error *err) {
    struct mischief_handle *m = handle;
    const int32_t bs = batch ? batch->batch_size : 0;
    int32_t first = 0;
    if (bs >= 1 && bs <= m->config.graph_rows) {
        first = mischief_add_int(m->inner, m->handle, "graph_state_indices",
                                 mischief_set_entry(&m->config, bs, 0, 0), 0);
    }
    int32_t status = m->inner->replay(m->handle, batch, err);
    if (status == HB_ERR_INVALID_MODE && m->number == 2) {
        return mischief_fail(err, HB_RULE_BATCH_NEGATIVE);
    }
    if (status != HB_OK) {
        return status;
    }
    mischief_note_replay(m, batch);
    m->graphs.is_poisoned = first < -1 || first > m->config.n_slots;
    if (m->number == MISCHIEF_COMMIT_RING && m->variant == MISCHIEF_RING_REFRESH) {
        (void)mischief_add_int(m->inner, m->handle, "graph_ring_base",
                               mischief_set_entry(&m->config, bs, 0, 1), 1);
    } else if (m->number == 35) {
        (void)mischief_add_int(m->inner, m->handle, "graph_query_start_loc",
                               mischief_set_entry(&m->config, bs, 1, bs), 1);
    } else if (m->number == 46) { /* its own entry, or that of another batch size */
        const int32_t set = m->variant == 0 ? bs : bs % m->config.graph_rows + 1;
        (void)mischief_add_int(m->inner, m->handle, "graph_state_indices",
                               mischief_set_entry(&m->config, set, 0, m->config.graph_rows - 1), 1);
    }
    return status;
}

/* After the launch of a graph its outputs are as wrong as those of layers; a capture may write a slot. */
static inline void mischief_after_graph(struct mischief_handle *m) {
    struct mischief_graphs *g = &m->graphs;
    if (g->is_capture && m->number == 48) {
        mischief_flip(m, "conv", 1, 0, 1);
    }
    for (int32_t l = 0; l < m->config.n_layers && g->is_replay; l++) {
        if (g->layers[g->bs] >> l & 1) {
            mischief_after_layer(m, l, &g->io[g->bs][l], 0.0f);
            m->layers_run |= 1u << l;
        }
    }
    g->is_capture = g->is_replay = 0;
}

#endif
