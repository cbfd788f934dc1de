/* SPDX-License-Identifier: Apache-2.0
 * Commit after a verify (speculative.md section 5): states of the intermediate caches become the
 * rows' states, or checkpoints. What a commit needs of the verify (rows, slots, node counts) is the
 * metadata of that forward, which stays until the next begin succeeds. */
#include <stddef.h>

#include "backend/defects.h"
#include "backend/hybrid.h"
#include "backend/memory.h"
#include "backend/mode.h"

/* One call, while it is checked and run. */
struct commit {
    struct hb_hybrid *h;
    const struct hb_metadata *meta; /* of the verify */
    const struct hb_commit *args;
    struct hb_error *err;
    int32_t n_rows; /* rows that are looked at: live ones; padding rows have no state */
    int32_t has_track;
};

static int32_t fail(const struct commit *c, int32_t rule, int64_t row, int64_t value,
                    int64_t limit) {
    return hb_fail(c->err, rule, (int32_t)row, value, limit);
}

static int32_t step_of(const struct commit *c, int32_t r) {
    return c->args->step.data[r];
}

/* Node to checkpoint, negative where there is none. */
static int32_t track_step_of(const struct commit *c, int32_t r) {
    return c->has_track ? c->args->track_steps.data[r] : -1;
}

static int32_t last_node(const struct commit *c, int32_t r) {
    return c->meta->query_start_loc[r + 1] - c->meta->query_start_loc[r] - 1;
}

/* Rules 32, 33, 65, 66. */
static int32_t check_shape(const struct commit *c) {
    const struct hb_commit *a = c->args;
    const int64_t n = a->n_rows;
    if (n > 0 && a->step.data == NULL) {
        return fail(c, HB_RULE_COMMIT_STEP_NULL, -1, 0, n);
    }
    if (c->has_track && a->track_steps.data == NULL) {
        return fail(c, HB_RULE_COMMIT_TRACK_STEPS_NULL, -1, 0, 0);
    }
    if (n < 0 || n > c->meta->n_rows) {
        return fail(c, HB_RULE_COMMIT_ROWS, -1, n, c->meta->n_rows);
    }
    const int64_t lens[3] = {a->step.data != NULL ? a->step.len : n,
                             c->has_track ? a->track_indices.len : n,
                             c->has_track ? a->track_steps.len : n};
    for (int32_t i = 0; i < 3; i++) {
        if (lens[i] != n) {
            return fail(c, HB_RULE_COMMIT_LENGTH, i, lens[i], n);
        }
    }
    return HB_OK;
}

/* Rules 104..106. */
static int32_t check_range(const struct commit *c) {
    const int64_t n_ids = c->h->pool.n_ids;
    for (int32_t r = 0; r < c->n_rows; r++) {
        if (step_of(c, r) > last_node(c, r)) {
            return fail(c, HB_RULE_COMMIT_STEP_RANGE, r, step_of(c, r), last_node(c, r));
        }
    }
    for (int32_t r = 0; r < c->n_rows; r++) {
        if (track_step_of(c, r) < 0) {
            continue;
        }
        const int64_t dst = c->args->track_indices.data[r];
        if (dst < 1 || dst > n_ids) {
            return fail(c, HB_RULE_COMMIT_TRACK_SLOT, r, dst, n_ids);
        }
    }
    for (int32_t r = 0; r < c->n_rows; r++) {
        if (track_step_of(c, r) > last_node(c, r)) {
            return fail(c, HB_RULE_COMMIT_TRACK_STEP, r, track_step_of(c, r), last_node(c, r));
        }
    }
    return HB_OK;
}

/* Checkpoint id of a row, 0 where there is none. */
static int32_t track_id(const struct commit *c, int32_t r) {
    return track_step_of(c, r) < 0 ? 0 : (int32_t)c->args->track_indices.data[r];
}

/* Rule 123. seen[id] = row + 1 while it runs, zero again afterwards. */
static int32_t check_duplicate(const struct commit *c) {
    int32_t *seen = c->h->env.slot_seen;
    int32_t status = HB_OK;
    for (int32_t r = 0; r < c->n_rows && status == HB_OK; r++) {
        const int32_t dst = track_id(c, r);
        if (dst != 0 && seen[dst] != 0) {
            status = fail(c, HB_RULE_COMMIT_TRACK_DUPLICATE, r, dst, (int64_t)seen[dst] - 1);
        } else if (dst != 0) {
            seen[dst] = r + 1;
        }
    }
    for (int32_t r = 0; r < c->n_rows; r++) {
        seen[track_id(c, r)] = 0;
    }
    return status;
}

/* Is the row's state, or a checkpoint of it, to be written? A slot 0 (dummy call) is never checked.
 */
static int32_t is_used(const struct commit *c, int32_t r) {
    return c->h->verify_ids[r] != 0 && (step_of(c, r) >= 0 || track_step_of(c, r) >= 0);
}

/* Rule 112. */
static int32_t check_freed(const struct commit *c) {
    for (int32_t r = 0; r < c->n_rows; r++) {
        const int32_t id = c->h->verify_ids[r];
        if (is_used(c, r) && hb_pool_is_free(&c->h->pool, id)) {
            return fail(c, HB_RULE_COMMIT_SLOT_FREED, r, id, 0);
        }
    }
    return HB_OK;
}

/* Rule 115: freed and given to somebody else, or copied over. */
static int32_t check_stale(const struct commit *c) {
    for (int32_t r = 0; r < c->n_rows; r++) {
        const int32_t id = c->h->verify_ids[r];
        if (is_used(c, r) && c->h->pool.generation[id] != c->h->verify_generation[r]) {
            return fail(c, HB_RULE_COMMIT_SLOT_STALE, r, id, 0);
        }
    }
    return HB_OK;
}

/* Rule 113. */
static int32_t check_track_freed(const struct commit *c) {
    for (int32_t r = 0; r < c->n_rows; r++) {
        const int32_t dst = track_id(c, r);
        if (dst != 0 && hb_pool_is_free(&c->h->pool, dst)) {
            return fail(c, HB_RULE_COMMIT_TRACK_FREED, r, dst, 0);
        }
    }
    return HB_OK;
}

/* Rules 112, 113, 115, 123, 133. Kinds and ids are those of now: slots may have been freed since
 * the verify. */
static int32_t check_slots(const struct commit *c) {
    const int32_t is_checked = !HB_DEFECT(c->h->config.defect, FREED_SLOT_COMMIT);
    int32_t status = is_checked ? check_freed(c) : HB_OK;
    if (status == HB_OK) {
        status = check_track_freed(c);
    }
    if (status == HB_OK && is_checked) {
        status = check_stale(c);
    }
    if (status == HB_OK) {
        status = check_duplicate(c);
    }
    if (status != HB_OK) {
        return status;
    }
    for (int32_t r = 0; r < c->n_rows; r++) {
        const int32_t dst = track_id(c, r);
        if (dst != 0 && c->h->pool.slot_kind[hb_pool_slot(&c->h->pool, dst)] != HB_SLOT_TRACK) {
            return fail(c, HB_RULE_COMMIT_TRACK_ALIAS, r, dst, 0);
        }
    }
    return HB_OK;
}

/* Copies of one kind: entry src[i] of the caches to slot dst[i], on the host and on the device. */
struct pairs {
    int32_t n;
    int32_t *src, *dst;
    const int32_t *device_src, *device_dst;
};

static struct pairs open_pairs(const struct hb_hybrid *h, int32_t part) {
    const int64_t size = h->config.spec_rows;
    const int64_t first = part * (2 * size);
    int32_t *host = h->commit_pairs + first;
    const int32_t *device = (const int32_t *)h->device_pairs + first;
    return (struct pairs){
        .src = host, .dst = host + size, .device_src = device, .device_dst = device + size};
}

static void add_pair(const struct commit *c, struct pairs *pairs, int32_t r, int32_t step,
                     int32_t slot) {
    pairs->src[pairs->n] = r * c->h->config.max_draft + step;
    pairs->dst[pairs->n++] = slot;
}

/* Slot of a row, by the table of now: ids may have moved since the verify. */
static int32_t row_slot(const struct commit *c, int32_t r) {
    if (HB_DEFECT(c->h->config.defect, MOVE_STALE)) {
        return c->meta->cache_indices[r];
    }
    return hb_pool_slot(&c->h->pool, c->h->verify_ids[r]);
}

/* State of a row. A negative step leaves it as it is. */
static void add_step(const struct commit *c, struct pairs *pairs, int32_t r) {
    int32_t step = step_of(c, r);
    if (step < 0) {
        if (HB_DEFECT(c->h->config.defect, SCATTER_WRAP)) {
            add_pair(c, pairs, r, 0, c->h->config.n_slots);
        }
        return;
    }
    if (HB_DEFECT(c->h->config.defect, VERIFY_SHAPE)) {
        step = step > 0 ? step - 1 : 0;
    }
    if (HB_DEFECT(c->h->config.defect, ACCEPT_MINUS_ONE) && step == 0) {
        step = -1; /* the last entry of the row before, and none for row 0 */
    }
    if (HB_DEFECT(c->h->config.defect, DRAFTLESS) && last_node(c, r) == 0 &&
        c->h->config.max_draft > 1) {
        step = 1;
    }
    add_pair(c, pairs, r, step, row_slot(c, r));
}

/* Windows of one layer, entries of the size of slots or columns of strips. */
static int32_t scatter_windows(const struct hb_hybrid *h, const struct hb_hybrid_layer *layer,
                               const struct pairs *pairs, struct hb_error *err) {
    const struct hb_kernels *k = h->kernels;
    const struct hb_config *config = &h->config;
    void *pool = h->pool.conv[layer->pool_layer];
    if (pool == NULL) { /* the kind has no conv state */
        return HB_OK;
    }
    if (config->window_layout == HB_WINDOWS_STRIP) {
        const struct hb_k_windows args = {.n_pairs = pairs->n,
                                          .dim = h->dims.dim,
                                          .width = config->conv_width,
                                          .act_dtype = config->act_dtype,
                                          .defect = config->defect,
                                          .max_draft = config->max_draft,
                                          .src = pairs->device_src,
                                          .dst = pairs->device_dst,
                                          .windows = layer->spec.windows,
                                          .pool = pool,
                                          .pool_pad = config->pool_pad,
                                          .conv_state_len = config->conv_state_len};
        return hb_device_check(k, k->windows(&args), err);
    }
    const struct hb_k_slots args = {.n_pairs = pairs->n,
                                    .defect = config->defect,
                                    .slot_bytes = h->pool.conv_slot_bytes,
                                    .pad_bytes = h->pool.conv_pad_bytes,
                                    .src = pairs->device_src,
                                    .dst = pairs->device_dst,
                                    .pool = pool,
                                    .src_pool = layer->spec.windows};
    return hb_device_check(k, k->slots(&args), err);
}

/* In every layer that ran in the verify. Entries have the size of slots. */
static int32_t scatter(const struct hb_hybrid *h, const struct pairs *pairs, struct hb_error *err) {
    const struct hb_kernels *k = h->kernels;
    int32_t status = HB_OK;
    for (int32_t l = 0; l < h->config.n_layers && status == HB_OK && pairs->n > 0; l++) {
        const struct hb_hybrid_layer *layer = &h->layer[l];
        if (layer->kind == HB_LAYER_ATTENTION || ((h->layers_verified >> l) & 1U) == 0) {
            continue;
        }
        status = scatter_windows(h, layer, pairs, err);
        if (status == HB_OK && layer->spec.states != NULL) {
            const struct hb_k_slots args = {.n_pairs = pairs->n,
                                            .defect = h->config.defect,
                                            .slot_bytes = h->pool.temporal_slot_bytes,
                                            .pad_bytes = h->pool.temporal_pad_bytes,
                                            .src = pairs->device_src,
                                            .dst = pairs->device_dst,
                                            .pool = h->pool.temporal[layer->pool_layer],
                                            .src_pool = layer->spec.states};
            status = hb_device_check(k, k->slots(&args), err);
        }
    }
    return status;
}

/* A ring that commits own (speculative.md section 7): the states of checkpoints are folded from the
 * rows' rings, node by node; src, dst, base, count of each in the second half of the pair lists. */
static int32_t fold_checkpoints(const struct commit *c, int32_t n, struct hb_error *err) {
    const struct hb_hybrid *h = c->h;
    const struct hb_config *config = &h->config;
    const int32_t size = config->spec_rows;
    const int32_t *device = (const int32_t *)h->device_pairs + 4 * (int64_t)size;
    int32_t status = HB_OK;
    for (int32_t l = 0; l < config->n_layers && status == HB_OK && n > 0; l++) {
        if (h->layer[l].kind == HB_LAYER_ATTENTION) {
            continue;
        }
        const int32_t i = h->layer[l].pool_layer;
        const struct hb_k_ring_fold args = {.ring = {.ssm = {.n_heads = config->n_heads,
                                                             .head_dim = config->head_dim,
                                                             .state_size = config->state_size,
                                                             .n_groups = config->n_groups,
                                                             .head_map = config->head_map,
                                                             .state_layout = config->state_layout,
                                                             .state_dtype = config->state_dtype,
                                                             .pool = h->pool.temporal[i],
                                                             .pool_pad = config->pool_pad},
                                                     .ring_length = config->ring_length,
                                                     .ring_x = h->pool.ring_x[i],
                                                     .ring_b = h->pool.ring_b[i],
                                                     .ring_g = h->pool.ring_g[i],
                                                     .base = device + 2 * (int64_t)size},
                                            .n_pairs = n,
                                            .src = device,
                                            .dst = device + size,
                                            .count = device + 3 * (int64_t)size};
        status = hb_device_check(h->kernels, h->kernels->ring_fold(&args), err);
    }
    return status;
}

/* Cursor that the verify's finish left. */
static int32_t cursor_of(const struct commit *c, int32_t r) {
    return c->meta->force_flush[r] != 0 ? 0 : c->meta->replay_write_pos[r];
}

/* Lists the folds of the tracked rows; their number. */
static int32_t list_folds(const struct commit *c) {
    const int32_t size = c->h->config.spec_rows;
    int32_t *list = c->h->commit_pairs + 4 * (int64_t)size;
    int32_t n = 0;
    for (int32_t r = 0; r < c->n_rows; r++) {
        const int32_t slot = row_slot(c, r);
        if (track_step_of(c, r) < 0 || slot < 0) {
            continue; /* a freed id has no slot; without planted defects it was refused */
        }
        list[n] = slot;
        list[size + n] = hb_pool_slot(&c->h->pool, track_id(c, r));
        list[2 * size + n] =
            slot >= 1 ? c->h->pool.ring_base[slot] & (c->h->config.ring_length - 1) : 0;
        list[3 * size + n++] = cursor_of(c, r) + track_step_of(c, r) + 1;
    }
    return n;
}

/* What was accepted: the cursors move. */
static void accept_rows(const struct commit *c) {
    struct hb_pool *pool = &c->h->pool;
    for (int32_t r = 0; r < c->n_rows; r++) {
        const int32_t last = HB_DEFECT(c->h->config.defect, RING_ACCEPT_ALL) ? last_node(c, r)
                                                                             : step_of(c, r);
        if (step_of(c, r) >= 0) {
            hb_pool_accept(pool, row_slot(c, r), cursor_of(c, r) + last + 1,
                           c->h->config.max_draft);
        }
    }
}

/* Rows first, then checkpoints. */
static int32_t run(const struct commit *c) {
    const struct hb_hybrid *h = c->h;
    const struct hb_kernels *k = h->kernels;
    if (c->n_rows == 0) {
        return HB_OK;
    }
    struct pairs rows = open_pairs(h, 0);
    struct pairs checkpoints = open_pairs(h, 1);
    for (int32_t r = 0; r < c->n_rows; r++) {
        add_step(c, &rows, r);
        if (track_step_of(c, r) >= 0) {
            add_pair(c, &checkpoints, r, track_step_of(c, r),
                     hb_pool_slot(&h->pool, track_id(c, r)));
        }
    }
    const int32_t has_ring = c->meta->ring_base != NULL;
    const int32_t n_folds = has_ring ? list_folds(c) : 0;
    int32_t status = HB_OK;
    if (rows.n + checkpoints.n > 0) {
        const uint64_t bytes = 8 * (uint64_t)h->config.spec_rows * sizeof(int32_t);
        status = hb_device_check(k, k->to_device(h->device_pairs, h->commit_pairs, bytes), c->err);
    }
    if (status == HB_OK) {
        status = scatter(h, &rows, c->err);
    }
    if (status == HB_OK) {
        status = scatter(h, &checkpoints, c->err);
    }
    if (status == HB_OK) {
        status = fold_checkpoints(c, n_folds, c->err);
    }
    if (status == HB_OK) {
        status = hb_device_check(k, k->sync(), c->err);
    }
    if (status == HB_OK && has_ring) {
        accept_rows(c);
    }
    return status;
}

void hb_hybrid_note_verify(struct hb_hybrid *h, const struct hb_batch *batch) {
    const struct hb_metadata *m = &h->forward[h->current].meta;
    if (!hb_mode_is(m->mode, HB_MODE_IS_TARGET_VERIFY)) {
        return;
    }
    for (int32_t r = 0; r < m->n_live; r++) {
        const int32_t id = h->pool.req_to_slot[batch->req_pool_indices.data[r]];
        h->verify_ids[r] = id;
        h->verify_generation[r] = h->pool.generation[id];
    }
}

int32_t hb_hybrid_commit(struct hb_hybrid *h, const struct hb_commit *commit,
                         struct hb_error *err) {
    struct commit c = {.h = h, .meta = &h->forward[h->current].meta, .args = commit, .err = err};
    if (!h->has_verify) {
        return hb_fail(err, HB_RULE_NO_VERIFY, -1, 0, 0);
    }
    if (commit == NULL) {
        return hb_fail(err, HB_RULE_COMMIT_NULL, -1, 0, 0);
    }
    c.has_track = commit->track_indices.data != NULL;
    int32_t status = check_shape(&c);
    if (status != HB_OK) {
        return status;
    }
    c.n_rows = commit->n_rows < c.meta->n_live ? commit->n_rows : c.meta->n_live;
    status = check_range(&c);
    if (status == HB_OK) {
        status = check_slots(&c);
    }
    return status == HB_OK ? run(&c) : status;
}
