/* SPDX-License-Identifier: Apache-2.0
 * Capture, refresh and replay (graph.md sections 1 to 4). */
#include "backend/graph.h"

#include <stddef.h>
#include <string.h>

#include "backend/defects.h"
#include "backend/hybrid.h"
#include "backend/memory.h"
#include "backend/mode.h"

static const char *const names[HB_N_GRAPH_ARRAYS] = {
#define HB_GRAPH_NAME(name, region) region,
    HB_GRAPH_ARRAYS(HB_GRAPH_NAME)
#undef HB_GRAPH_NAME
};

/* Shape of static array i; n_dims 0 where the configuration has none. */
static int32_t shape_of(const struct hb_hybrid *h, int32_t i, int64_t shape[4]) {
    const int64_t rows = h->config.graph_rows;
    const int64_t draft = h->config.graph_draft;
    const int32_t has_spec = h->config.spec_rows > 0;
    const int32_t has_ring = h->config.ring_length > 0;
    const int32_t has_attention = h->dims.has_attention;
    const struct {
        int32_t is_there, n_dims;
        int64_t shape[3];
    } all[HB_N_GRAPH_ARRAYS] = {
        [HB_GRAPH_STATE_INDICES] = {1, 2, {rows, rows}},
        [HB_GRAPH_QUERY_START] = {1, 2, {rows, rows + 1}},
        [HB_GRAPH_TRACK_INDICES] = {1, 1, {rows}},
        [HB_GRAPH_TRACK_MASK] = {1, 1, {rows}},
        [HB_GRAPH_NEXT_TOKEN] = {has_spec, 3, {rows, rows, draft}},
        [HB_GRAPH_NEXT_SIBLING] = {has_spec, 3, {rows, rows, draft}},
        [HB_GRAPH_PARENTS] = {has_spec, 3, {rows, rows, draft}},
        [HB_GRAPH_WRITE_POS] = {has_ring, 2, {rows, rows}},
        [HB_GRAPH_FORCE_FLUSH] = {has_ring, 2, {rows, rows}},
        [HB_GRAPH_RING_BASE] = {hb_config_ring_commits(&h->config), 2, {rows, rows}},
        [HB_GRAPH_SEQ_LENS] = {has_attention, 1, {rows}},
        [HB_GRAPH_OUT_CACHE_LOC] = {has_attention, 2, {rows, draft}},
        [HB_GRAPH_REQ_TO_TOKEN] = {has_attention, 2, {rows, h->config.max_context}},
    };
    memset(shape, 0, 4 * sizeof(shape[0]));
    memcpy(shape, all[i].shape, sizeof(all[i].shape));
    return rows > 0 && all[i].is_there ? all[i].n_dims : 0;
}

/* Start of static array i on the host. */
static int32_t *host_array(const struct hb_graphs *g, int32_t i) {
    return g->host + g->first[i];
}

/* Row bs-1 of a static array with one row per batch size. */
static int32_t *host_set(const struct hb_graphs *g, int32_t i, int32_t bs, int32_t graph_rows) {
    return host_array(g, i) + (bs - 1) * (g->words[i] / graph_rows);
}

/* Puts n words of a static array on the device. */
static int32_t upload(const struct hb_hybrid *h, const int32_t *host, int64_t n,
                      struct hb_error *err) {
    int32_t *device = (int32_t *)h->graphs.device + (host - h->graphs.host);
    if (n == 0) {
        return HB_OK;
    }
    return hb_device_check(h->kernels,
                           h->kernels->to_device(device, host, (uint64_t)n * sizeof(int32_t)), err);
}

int32_t hb_graph_create(struct hb_hybrid *h, struct hb_error *err) {
    struct hb_graphs *g = &h->graphs;
    int64_t n = 0;
    void *ptr;
    if (h->config.graph_rows == 0) {
        return HB_OK;
    }
    for (int32_t i = 0; i < HB_N_GRAPH_ARRAYS; i++) {
        int64_t shape[4];
        const int32_t n_dims = shape_of(h, i, shape);
        g->words[i] = n_dims > 0 ? 1 : 0;
        for (int32_t d = 0; d < n_dims; d++) {
            g->words[i] = hb_mul_saturate(g->words[i], shape[d], 1);
        }
        g->first[i] = n;
        /* a guard word after each */
        n = n > INT64_MAX - 1 - g->words[i] ? INT64_MAX : n + g->words[i] + 1;
    }
    const int64_t bytes = hb_mul_saturate(n, (int64_t)sizeof(int32_t), 1);
    if (bytes == INT64_MAX) {
        return hb_fail_text(err, HB_ERR_MEMORY,
                            "graph_rows %d and max_context %d are too large together",
                            h->config.graph_rows, h->config.max_context);
    }
    int32_t status = hb_host_alloc(n, sizeof(int32_t), &ptr, err);
    if (status != HB_OK) {
        return status;
    }
    g->host = ptr;
    for (int32_t i = 0; i < HB_N_GRAPH_ARRAYS; i++) {
        host_array(g, i)[g->words[i]] = INT32_MIN;
    }
    memset(host_array(g, HB_GRAPH_STATE_INDICES), 0xff,
           (size_t)g->words[HB_GRAPH_STATE_INDICES] * sizeof(int32_t));
    status = hb_device_alloc(h->kernels, bytes, 0, &g->device, err);
    return status == HB_OK ? upload(h, g->host, n, err) : status;
}

void hb_graph_destroy(struct hb_hybrid *h) {
    struct hb_graphs *g = &h->graphs;
    for (int32_t i = 0; i < HB_MAX_GRAPH_ROWS; i++) {
        h->kernels->graph_free(g->set[i].graph);
    }
    hb_device_free(h->kernels, g->device);
    hb_host_free(g->host);
}

int32_t hb_graph_region(const struct hb_hybrid *h, int32_t i, const char **name, int32_t *n_dims,
                        int64_t shape[4], void **ptr) {
    *n_dims = shape_of(h, i, shape);
    *name = names[i];
    *ptr = (int32_t *)h->graphs.device + h->graphs.first[i];
    return *n_dims > 0;
}

int32_t hb_graph_init(struct hb_hybrid *h, int32_t max_bs, int32_t max_tokens,
                      struct hb_error *err) {
    struct hb_graph_facts *facts = &h->graphs.facts;
    if (facts->is_ready) {
        return hb_fail(err, HB_RULE_GRAPH_TWICE, -1, 0, 0);
    }
    if (max_bs >= 1 && max_tokens % max_bs != 0) {
        return hb_fail(err, HB_RULE_GRAPH_SIZES, -1, max_tokens, max_bs);
    }
    if (max_bs < 1 || max_bs > h->config.graph_rows) {
        return hb_fail(err, HB_RULE_GRAPH_ROWS, -1, max_bs, h->config.graph_rows);
    }
    const int32_t draft = max_tokens / max_bs;
    if (draft < 1 || draft > h->config.graph_draft) {
        return hb_fail(err, HB_RULE_GRAPH_NODES, -1, draft, h->config.graph_draft);
    }
    facts->max_bs = max_bs;
    facts->draft = draft;
    facts->is_ready = 1;
    return HB_OK;
}

/* Metadata of a capture: every count is the largest that a replay can have, every array is static.
 */
static void make_meta(const struct hb_hybrid *h, const struct hb_batch *batch,
                      struct hb_metadata *out) {
    const struct hb_graphs *g = &h->graphs;
    const int32_t bs = batch->batch_size;
    const int32_t rows = h->config.graph_rows;
    const int32_t is_idle = hb_mode_is(batch->forward_mode, HB_MODE_IS_IDLE);
    const int32_t is_verify = hb_mode_is(batch->forward_mode, HB_MODE_IS_TARGET_VERIFY);
    const int32_t is_decode = hb_mode_is(batch->forward_mode, HB_MODE_IS_DECODE);
    struct hb_metadata m = {.mode = batch->forward_mode,
                            .n_rows = bs,
                            .n_live = is_idle ? 0 : bs,
                            .n_tokens = batch->n_tokens,
                            .n_real = is_idle ? 0 : batch->n_tokens,
                            .num_decodes = bs,
                            .n_update_rows = is_verify ? 0 : bs,
                            .n_verify_rows = is_verify ? bs : 0,
                            .is_tree = is_verify && batch->retrieve_next_token.data != NULL,
                            .is_graph = 1,
                            .n_copies = is_decode ? bs : 0,
                            .parent_stride = h->config.graph_draft,
                            .table_cols = h->config.max_context,
                            .block = g->host};
    /* no prefill rows: arrays without entries */
    m.has_initial_states = m.track_conv_len = m.track_ssm_len = m.track_dst = g->host;
    m.query_start_loc = host_set(g, HB_GRAPH_QUERY_START, bs, rows);
    m.cache_indices = m.copy_src = host_set(g, HB_GRAPH_STATE_INDICES, bs, rows);
    /* the first bs entries of the buffer of all batch sizes, not the last (graph.md section 6) */
    m.copy_dst = host_array(g, HB_GRAPH_TRACK_INDICES);
    if (HB_DEFECT(h->config.defect, GRAPH_TRACK_TAIL)) {
        m.copy_dst += g->facts.max_bs - bs;
    }
    m.copy_mask = host_array(g, HB_GRAPH_TRACK_MASK);
    if (HB_DEFECT(h->config.defect, GRAPH_WARMUP_LISTS)) {
        m.n_copies = 0; /* the pairs of the warm-up, in which no row was masked */
    }
    m.parents = host_set(g, HB_GRAPH_PARENTS, bs, rows);
    const int32_t commits = hb_config_ring_commits(&h->config);
    if (is_verify && commits) {
        m.ring_base = host_set(g, HB_GRAPH_RING_BASE, bs, rows);
    }
    if (m.ring_base != NULL || (is_decode && !commits && h->config.ring_length > 0)) {
        m.replay_write_pos = host_set(g, HB_GRAPH_WRITE_POS, bs, rows);
        m.force_flush = host_set(g, HB_GRAPH_FORCE_FLUSH, bs, rows);
    }
    m.seq_lens = host_array(g, HB_GRAPH_SEQ_LENS);
    m.out_cache_loc = host_array(g, HB_GRAPH_OUT_CACHE_LOC);
    m.req_to_token = host_array(g, HB_GRAPH_REQ_TO_TOKEN);
    *out = m;
}

/* One refresh: the static metadata of the graph, and that of the batch (null for a capture, whose
 * rows are all padding). */
struct refresh {
    const struct hb_hybrid *h;
    const struct hb_metadata *graph, *live;
    const struct hb_batch *batch;
    int32_t bs, n_live, draft; /* draft: nodes of a row, 1 in DECODE */
    /* planted defects: -1 becomes slot 0, links of a larger step stay */
    int32_t is_clamped, is_stale;
    struct hb_error *err;
};

/* metadata.md sections 2 and 3. */
static int32_t refresh_rows(const struct refresh *f) {
    const struct hb_metadata *m = f->graph;
    for (int32_t r = 0; r < f->bs; r++) {
        const int32_t padding = f->is_clamped ? 0 : HB_PAD_SLOT;
        m->cache_indices[r] = r < f->n_live ? f->live->cache_indices[r] : padding;
    }
    for (int32_t r = 0; r <= f->bs; r++) {
        m->query_start_loc[r] = f->draft * (r < f->n_live ? r : f->n_live);
    }
    const int32_t status = upload(f->h, m->cache_indices, f->bs, f->err);
    return status == HB_OK ? upload(f->h, m->query_start_loc, (int64_t)f->bs + 1, f->err) : status;
}

/* tracking.md section 5: pairs of a graph are all its rows, and a mask. */
static int32_t refresh_track(const struct refresh *f) {
    const struct hb_batch *b = f->batch;
    const struct hb_graphs *g = &f->h->graphs;
    int32_t *dst = host_array(g, HB_GRAPH_TRACK_INDICES);
    int32_t *mask = host_array(g, HB_GRAPH_TRACK_MASK);
    int32_t status = HB_OK;
    if (f->live == NULL || !hb_mode_is(b->forward_mode, HB_MODE_IS_DECODE)) {
        return HB_OK;
    }
    for (int32_t r = 0; r < f->bs; r++) {
        mask[r] = b->mamba_track_mask.data != NULL && b->mamba_track_mask.data[r] != 0;
    }
    if (b->mamba_track_indices.data != NULL) {
        for (int32_t r = 0; r < f->bs; r++) {
            const int64_t id = b->mamba_track_indices.data[r];
            dst[r] = id == 0 ? 0 : hb_metadata_track_slot(&f->h->env, id);
        }
        status = upload(f->h, dst, f->bs, f->err);
    }
    return status == HB_OK ? upload(f->h, mask, f->bs, f->err) : status;
}

/* Row r of a link array: the first draft of graph_draft entries. */
static int32_t refresh_link_row(const struct refresh *f, int32_t array, int32_t r,
                                const int32_t *src) {
    const struct hb_config *c = &f->h->config;
    int32_t *dst =
        host_set(&f->h->graphs, array, f->bs, c->graph_rows) + (int64_t)r * c->graph_draft;
    if (src != NULL) {
        memcpy(dst, src, (size_t)f->draft * sizeof(int32_t));
    } else {
        memset(dst, 0, (size_t)f->draft * sizeof(int32_t));
    }
    return upload(f->h, dst, f->draft, f->err);
}

/* speculative.md section 3: links of live rows, parents of all rows. */
static int32_t refresh_links(const struct refresh *f) {
    const struct hb_batch *b = f->batch;
    int32_t status = HB_OK;
    if (f->live == NULL || !f->live->is_tree || f->is_stale) {
        return HB_OK;
    }
    for (int32_t r = 0; r < f->bs && status == HB_OK; r++) {
        const int64_t first = (int64_t)r * f->draft;
        const int32_t is_live = r < f->n_live;
        const int32_t *parents = f->live->parents + (int64_t)r * f->live->parent_stride;
        if (is_live) {
            status =
                refresh_link_row(f, HB_GRAPH_NEXT_TOKEN, r, b->retrieve_next_token.data + first);
        }
        if (is_live && status == HB_OK) {
            status = refresh_link_row(f, HB_GRAPH_NEXT_SIBLING, r,
                                      b->retrieve_next_sibling.data + first);
        }
        if (status == HB_OK) {
            status = refresh_link_row(f, HB_GRAPH_PARENTS, r, is_live ? parents : NULL);
        }
    }
    return status;
}

/* speculative.md section 7. */
static int32_t refresh_ring(const struct refresh *f) {
    const struct hb_metadata *m = f->graph;
    if (m->replay_write_pos == NULL) {
        return HB_OK;
    }
    for (int32_t r = 0; r < f->bs; r++) {
        m->replay_write_pos[r] = r < f->n_live ? f->live->replay_write_pos[r] : 0;
        m->force_flush[r] = r < f->n_live ? f->live->force_flush[r] : 0;
    }
    if (m->ring_base != NULL) {
        for (int32_t r = 0; r < f->bs; r++) {
            m->ring_base[r] = r < f->n_live ? f->live->ring_base[r] : 0;
        }
        const int32_t uploaded = upload(f->h, m->ring_base, f->bs, f->err);
        if (uploaded != HB_OK) {
            return uploaded;
        }
    }
    const int32_t status = upload(f->h, m->replay_write_pos, f->bs, f->err);
    return status == HB_OK ? upload(f->h, m->force_flush, f->bs, f->err) : status;
}

/* What attention reads; tokens of padding rows are stored nowhere. */
static int32_t refresh_attention(const struct refresh *f) {
    const struct hb_metadata *m = f->graph;
    const struct hb_metadata *live = f->live;
    const int64_t cols = m->table_cols;
    int32_t status = HB_OK;
    if (!f->h->dims.has_attention || m->n_real == 0) {
        return HB_OK;
    }
    for (int32_t t = 0; t < m->n_tokens; t++) {
        m->out_cache_loc[t] = t < f->n_live * f->draft ? live->out_cache_loc[t] : -1;
    }
    status = upload(f->h, m->out_cache_loc, m->n_tokens, f->err);
    for (int32_t r = 0; r < f->bs; r++) {
        m->seq_lens[r] = r < f->n_live ? live->seq_lens[r] : 0;
    }
    if (status == HB_OK) {
        status = upload(f->h, m->seq_lens, f->bs, f->err);
    }
    for (int32_t r = 0; r < f->n_live && status == HB_OK; r++) {
        int32_t *row = m->req_to_token + r * cols;
        memset(row, 0xff, (size_t)cols * sizeof(int32_t));
        memcpy(row, live->req_to_token + (int64_t)r * live->table_cols,
               (size_t)live->table_cols * sizeof(int32_t));
    }
    return status == HB_OK ? upload(f->h, m->req_to_token, f->n_live * cols, f->err) : status;
}

static int32_t refresh(const struct refresh *f) {
    typedef int32_t (*refresh_fn)(const struct refresh *f);
    static const refresh_fn parts[] = {refresh_rows, refresh_track, refresh_links, refresh_ring,
                                       refresh_attention};
    int32_t status = HB_OK;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && status == HB_OK; i++) {
        status = parts[i](f);
    }
    return status;
}

static int32_t nodes_of(const struct hb_hybrid *h, const struct hb_batch *batch) {
    return hb_mode_is(batch->forward_mode, HB_MODE_IS_TARGET_VERIFY) ? h->graphs.facts.draft : 1;
}

int32_t hb_graph_capture(struct hb_hybrid *h, const struct hb_batch *batch, struct hb_error *err) {
    struct hb_graphs *g = &h->graphs;
    struct hb_metadata meta;
    int32_t n_live = 0;
    int32_t status = hb_validate_graph_batch(&h->env, HB_CALL_CAPTURE, batch, &n_live, err);
    if (status != HB_OK) {
        return status;
    }
    make_meta(h, batch, &meta);
    const struct refresh f = {.h = h,
                              .graph = &meta,
                              .batch = batch,
                              .bs = batch->batch_size,
                              .draft = nodes_of(h, batch),
                              .err = err};
    status = refresh(&f);
    if (status != HB_OK) {
        return status;
    }
    struct hb_graph_set *set = &g->set[batch->batch_size - 1];
    hb_hybrid_close(h);
    *set = (struct hb_graph_set){.meta = meta};
    g->open = HB_GRAPH_CAPTURING;
    g->bs = batch->batch_size;
    h->has_metadata = 1;
    return HB_OK;
}

void hb_graph_add_step(struct hb_hybrid *h, int32_t layer_id, const struct hb_layer_buffers *io) {
    struct hb_graph_set *set = &h->graphs.set[h->graphs.bs - 1];
    set->layer_id[set->n_steps] = layer_id;
    set->io[set->n_steps++] = *io;
}

int32_t hb_graph_record(struct hb_hybrid *h, struct hb_error *err) {
    struct hb_graphs *g = &h->graphs;
    struct hb_graph_set *set = &g->set[g->bs - 1];
    const struct hb_kernels *k = h->kernels;
    void *graph = NULL;
    int32_t status = hb_device_check(k, k->graph_begin(), err);
    if (status != HB_OK) {
        return status;
    }
    for (int32_t i = 0; i < set->n_steps && status == HB_OK; i++) {
        status = hb_hybrid_launch_layer(h, set->layer_id[i], &set->io[i], err);
    }
    if (status == HB_OK) {
        status = hb_hybrid_launch_tracking(h, err);
    }
    /* the recording ends, whatever happened in it; the first error stays */
    const int32_t ended = hb_device_check(k, k->graph_end(&graph), err);
    if (status != HB_OK || ended != HB_OK) {
        k->graph_free(graph);
        return status != HB_OK ? status : ended;
    }
    set->graph = graph;
    set->layers = h->layers_run;
    g->facts.set[g->bs - 1].is_captured = 1;
    g->facts.set[g->bs - 1].mode = set->meta.mode;
    g->facts.set[g->bs - 1].has_links = set->meta.is_tree;
    return HB_OK;
}

int32_t hb_graph_replay(struct hb_hybrid *h, const struct hb_batch *batch, struct hb_error *err) {
    struct hb_graphs *g = &h->graphs;
    struct hb_batch padded;
    struct hb_metadata live;
    int32_t n_live = 0;
    int32_t status = hb_validate_graph_batch(&h->env, HB_CALL_REPLAY, batch, &n_live, err);
    if (status != HB_OK) {
        return status;
    }
    /* what begin would make of the batch with so many live rows (graph.md section 4) */
    padded = *batch;
    padded.has_original_batch_size = 1;
    padded.original_batch_size = n_live;
    const int32_t next = 1 - h->current;
    hb_metadata_derive(&h->env, &padded, h->forward[next].host_block, &live);
    struct hb_graph_set *set = &g->set[batch->batch_size - 1];
    const struct refresh f = {.h = h,
                              .graph = &set->meta,
                              .live = &live,
                              .batch = batch,
                              .bs = batch->batch_size,
                              .n_live = n_live,
                              .draft = nodes_of(h, batch),
                              .is_clamped = HB_DEFECT(h->config.defect, PAD_CLAMPED),
                              .is_stale = HB_DEFECT(h->config.defect, GRAPH_STALE_ROWS) &&
                                          n_live < set->last_live,
                              .err = err};
    status = refresh(&f);
    if (status != HB_OK) {
        return status;
    }
    hb_hybrid_close(h);
    h->forward[next].meta = live;
    h->current = next;
    hb_hybrid_note_verify(h, &padded);
    set->last_live = n_live;
    g->open = HB_GRAPH_REPLAYING;
    g->bs = batch->batch_size;
    return HB_OK;
}

int32_t hb_graph_launch(struct hb_hybrid *h, struct hb_error *err) {
    const struct hb_graph_set *set = &h->graphs.set[h->graphs.bs - 1];
    const int32_t status = hb_device_check(h->kernels, h->kernels->graph_launch(set->graph), err);
    if (status == HB_OK) {
        h->layers_run = set->layers;
    }
    return status;
}
