/* SPDX-License-Identifier: Apache-2.0
 * What the static buffers of the graphs hold (backend/README.md "Graphs", graph.md sections 2 and
 * 4): set of batch size bs is row bs-1 of each region; the track buffers are shared. */
#include <string.h>

#include "harness/run_forward.h"
#include "harness/tree.h"

enum static_kind {
    STATE_INDICES,
    QUERY_START_LOC,
    TRACK_INDICES,
    TRACK_MASK,
    NEXT_TOKEN,
    NEXT_SIBLING,
    PARENTS,
    WRITE_POS,
    FORCE_FLUSH,
    RING_BASE,
    N_STATICS
};

/* Entries of one set: rows + more, times nodes (graph_draft) where by_node; shared: one set for all
 * batch sizes. */
static const struct {
    const char *name;
    int32_t initial, more, by_node, is_shared;
} statics[N_STATICS] = {
    [STATE_INDICES] = {"graph_state_indices", -1, 0, 0, 0},
    [QUERY_START_LOC] = {"graph_query_start_loc", 0, 1, 0, 0},
    [TRACK_INDICES] = {"graph_track_indices", 0, 0, 0, 1},
    [TRACK_MASK] = {"graph_track_mask", 0, 0, 0, 1},
    [NEXT_TOKEN] = {"graph_next_token", 0, 0, 1, 0},
    [NEXT_SIBLING] = {"graph_next_sibling", 0, 0, 1, 0},
    [PARENTS] = {"graph_parents", 0, 0, 1, 0},
    [WRITE_POS] = {"graph_write_pos", 0, 0, 0, 0},
    [FORCE_FLUSH] = {"graph_force_flush", 0, 0, 0, 0},
    [RING_BASE] = {"graph_ring_base", 0, 0, 0, 0},
};

static int32_t kind_of(const struct hb_region *region) {
    int32_t k = region->kind == HB_REGION_STATIC && region->layer < 0 ? 0 : N_STATICS;
    while (k < N_STATICS && strcmp(region->name, statics[k].name) != 0) {
        k++;
    }
    return k;
}

/* First entry of the set of bs, and the entries of row `row` on from there. */
static int64_t entry_at(const struct hb_run *r, int32_t kind, int32_t bs, int32_t row,
                        int32_t node) {
    const int64_t rows = r->config.graph_rows;
    const int64_t nodes = statics[kind].by_node ? r->config.graph_draft : 1;
    const int64_t set =
        statics[kind].is_shared ? 0 : (int64_t)(bs - 1) * (rows + statics[kind].more);
    return (set + row) * nodes + node;
}

static int fits(const struct hb_run *r, int32_t region, int64_t entry) {
    return region >= 0 && (uint64_t)(entry + 1) * sizeof(int32_t) <= r->region[region].bytes;
}

static void put(struct hb_run *r, int32_t region, int64_t entry, int32_t value) {
    if (fits(r, region, entry)) {
        memcpy(r->want[region] + (size_t)entry * sizeof value, &value, sizeof value);
    }
}

static int32_t actual(const struct hb_run *r, int32_t region, int64_t entry) {
    int32_t value = 0;
    if (fits(r, region, entry)) {
        memcpy(&value, r->actual[region] + (size_t)entry * sizeof value, sizeof value);
    }
    return value;
}

/* Regions of the backend's own may change whenever the set of a batch size may. */
static int is_own(const struct hb_run *r, int32_t region) {
    return r->region[region].kind == HB_REGION_STATIC && kind_of(&r->region[region]) == N_STATICS;
}

void hb_run_want_static_initial(struct hb_run *r) {
    for (int32_t i = 0; i < r->n_regions; i++) {
        const int32_t kind = kind_of(&r->region[i]);
        if (kind < N_STATICS) {
            memset(r->want[i], statics[kind].initial, (size_t)r->region[i].bytes); /* 0 or -1 */
        } else if (is_own(r, i)) {
            hb_run_allow(r, i, 0, r->region[i].bytes);
        }
    }
}

/* Calls f on the part of each region that belongs to the set of bs. */
static void each_part(struct hb_run *r, int32_t bs,
                      void (*f)(struct hb_run *r, int32_t region, uint64_t at, uint64_t bytes)) {
    for (int32_t i = 0; i < r->n_regions; i++) {
        const int32_t kind = kind_of(&r->region[i]);
        if (kind == N_STATICS) {
            if (is_own(r, i)) {
                f(r, i, 0, r->region[i].bytes);
            }
            continue;
        }
        const int32_t rows =
            statics[kind].is_shared ? bs : r->config.graph_rows + statics[kind].more;
        const uint64_t at = (uint64_t)entry_at(r, kind, bs, 0, 0) * sizeof(int32_t);
        const uint64_t end = (uint64_t)entry_at(r, kind, bs, rows, 0) * sizeof(int32_t);
        if (end <= r->region[i].bytes) {
            f(r, i, at, end - at);
        }
    }
}

void hb_run_want_static_capture(struct hb_run *r, int32_t bs) {
    each_part(r, bs, hb_run_allow);
}

static void poison(struct hb_run *r, int32_t region, uint64_t at, uint64_t bytes) {
    struct hb_error e = {.struct_size = sizeof e};
    if (is_own(r, region)) {
        return; /* what a backend's own buffers hold between replays is its own affair */
    }
    uint8_t *mirror = hb_run_mirror(r, region) + at;
    memset(mirror, 0x7f, (size_t)bytes);
    if (r->backend->region_write(r->handle, region, at, mirror, bytes, &e) != HB_OK) {
        hb_verdict_set(r->v, HB_VERDICT_DEVICE, "region_write", "replay", HB_OK, e.status,
                       "step %d: region_write failed: %s", r->step, e.text);
    }
}

void hb_run_poison_static(struct hb_run *r, int32_t bs) {
    if (bs >= 1 && bs <= r->config.graph_rows) {
        each_part(r, bs, poison);
    }
}

/* --- refresh ----------------------------------------------------------------------------------- */

static void want_rows(struct hb_run *r, const struct hb_forward *f, const int32_t *region,
                      int32_t bs, int32_t nodes) {
    for (int32_t i = 0; i < bs; i++) {
        put(r, region[STATE_INDICES], entry_at(r, STATE_INDICES, bs, i, 0),
            i < f->n_live ? f->live[i].slot : -1);
    }
    for (int32_t i = 0; i <= bs; i++) {
        const int32_t rows = i < f->n_live ? i : f->n_live;
        put(r, region[QUERY_START_LOC], entry_at(r, QUERY_START_LOC, bs, i, 0), nodes * rows);
    }
}

/* Destinations of all bs rows, tracked or not. Where ids are slots, whether a free one is a slot or
 * none is left open. */
static void want_track(struct hb_run *r, const struct hb_forward *f, const int32_t *region,
                       int32_t bs) {
    const struct hb_batch *b = &f->batch.b;
    for (int32_t i = 0; i < bs; i++) {
        const int64_t entry = entry_at(r, TRACK_INDICES, bs, i, 0);
        const uint8_t *mask = b->mamba_track_mask.data;
        put(r, region[TRACK_MASK], entry, mask && mask[i]);
        if (!b->mamba_track_indices.data) {
            continue;
        }
        const int64_t id = b->mamba_track_indices.data[i];
        const int32_t slot =
            id < 0 || id > INT32_MAX ? -1 : hb_slot_model_slot(&r->slots, (int32_t)id);
        const int is_open = slot > 0 && r->slots.kind[slot] == HB_SLOT_FREE;
        put(r, region[TRACK_INDICES], entry,
            is_open && actual(r, region[TRACK_INDICES], entry) == -1 ? -1 : slot);
    }
}

static void want_links(struct hb_run *r, const struct hb_forward *f, const int32_t *region,
                       int32_t bs, int32_t nodes) {
    const struct hb_batch *b = &f->batch.b;
    int32_t parents[HB_MAX_DRAFT];
    for (int32_t i = 0; i < bs; i++) {
        const int32_t *next = b->retrieve_next_token.data + (int64_t)i * nodes;
        const int32_t *sibling = b->retrieve_next_sibling.data + (int64_t)i * nodes;
        memset(parents, 0, sizeof parents);
        if (i < f->n_live) {
            (void)hb_tree_parents(next, sibling, nodes, parents);
        }
        for (int32_t t = 0; t < nodes; t++) {
            put(r, region[PARENTS], entry_at(r, PARENTS, bs, i, t), parents[t]);
            if (i < f->n_live) {
                put(r, region[NEXT_TOKEN], entry_at(r, NEXT_TOKEN, bs, i, t), next[t]);
                put(r, region[NEXT_SIBLING], entry_at(r, NEXT_SIBLING, bs, i, t), sibling[t]);
            }
        }
    }
}

/* A decode is forced by the mask, or by the mirror of the lengths; a ring that is full folds by
 * itself. A verify finds in the slot whether it folds. */
static void want_cursors(struct hb_run *r, const struct hb_forward *f, const int32_t *region,
                         int32_t bs) {
    const struct hb_batch *b = &f->batch.b;
    const int32_t interval =
        r->config.track_interval > 0 ? r->config.track_interval : r->config.chunk_size;
    for (int32_t i = 0; i < bs; i++) {
        const struct hb_live_row *row = i < f->n_live ? &f->live[i] : NULL;
        const int is_forced =
            row &&
            (row->dst_id > 0 || (b->seq_lens_cpu.data && b->seq_lens_cpu.data[i] % interval == 0));
        const int is_folded = row && row->folds;
        put(r, region[WRITE_POS], entry_at(r, WRITE_POS, bs, i, 0), row ? row->w : 0);
        put(r, region[FORCE_FLUSH], entry_at(r, FORCE_FLUSH, bs, i, 0),
            r->slots.commits ? is_folded : is_forced);
        put(r, region[RING_BASE], entry_at(r, RING_BASE, bs, i, 0), row ? row->base : 0);
    }
}

void hb_run_want_static_refresh(struct hb_run *r, const struct hb_forward *f) {
    const struct hb_batch *b = &f->batch.b;
    const int is_verify = f->mode == HB_MODE_TARGET_VERIFY;
    const int32_t nodes = is_verify ? r->graphs.draft : 1;
    int32_t region[N_STATICS];
    for (int32_t k = 0; k < N_STATICS; k++) {
        region[k] = -1;
    }
    for (int32_t i = 0; i < r->n_regions; i++) {
        const int32_t kind = kind_of(&r->region[i]);
        if (kind < N_STATICS) {
            region[kind] = i;
        } else if (is_own(r, i)) {
            hb_run_allow(r, i, 0, r->region[i].bytes);
        }
    }
    want_rows(r, f, region, b->batch_size, nodes);
    if (f->mode == HB_MODE_DECODE) {
        want_track(r, f, region, b->batch_size);
    }
    if (hb_ring_has_mode(&r->config, f->mode)) {
        want_cursors(r, f, region, b->batch_size);
    }
    if (is_verify && b->retrieve_next_token.data && nodes <= HB_MAX_DRAFT) {
        want_links(r, f, region, b->batch_size, nodes);
    }
}
