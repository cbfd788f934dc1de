/* SPDX-License-Identifier: Apache-2.0
 * A commit after a verify: rows take over the state of a draft node, bit for bit (invariants 51,
 * 56, 57). Where commits own the replay ring, the row's records are that state and only cursors
 * move; a checkpoint is folded from them. */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "harness/run_forward.h"
#include "harness/tree.h"

/* One copy that an accepted commit makes: node of row to slot. */
struct move {
    int32_t row, node, slot, is_track;
    int32_t is_shared; /* another copy goes to the same slot: either may win */
};
enum { MAX_MOVES = 2 * HB_MAX_VERIFY_ROWS };

static const char *const places[] = {"commit", "commit track"};

static int32_t list_moves(const struct hb_run *r, const struct hb_commit *c, struct move *m) {
    const struct hb_verify_phase *v = &r->verified.phase;
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_rows && i < v->real_rows; i++) {
        if (c->step.data[i] >= 0) {
            const int32_t slot = hb_run_slot(r, v->slots[i]); /* as it is now */
            m[n++] = (struct move){i, c->step.data[i], slot, 0, 0};
        }
        if (c->track_indices.data && c->track_steps.data[i] >= 0) {
            const int32_t slot = hb_run_slot(r, (int32_t)c->track_indices.data[i]);
            m[n++] = (struct move){i, c->track_steps.data[i], slot, 1, 0};
        }
    }
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < n; k++) {
            m[i].is_shared |= i != k && m[i].slot == m[k].slot;
        }
    }
    return n;
}

/* want := the node's bytes in every linear layer that ran in the verify. */
static void want_move(struct hb_run *r, const struct move *m) {
    static const char *const names[][2] = {{"intermediate_conv", "conv"},
                                           {"intermediate_ssm", "temporal"}};
    for (int32_t l = 0; l < r->config.n_layers; l++) {
        for (int k = 0; k < 2 && (r->verified.layers_run >> l & 1); k++) {
            const int32_t from = hb_run_region(r, names[k][0], l);
            const int32_t to = hb_run_region(r, names[k][1], l);
            if (from < 0 || to < 0) {
                continue;
            }
            const struct hb_entry e = hb_run_slot_entry(r, to, m->slot);
            if (k == 1 && r->slots.commits) {
                continue; /* no node has a state of its own */
            }
            if (m->is_shared) {
                hb_run_allow(r, to, e.at, e.bytes);
                continue;
            }
            if (k == 0) {
                hb_run_copy_window(r, from, m->row, m->node, r->want[to] + e.at);
            } else {
                const struct hb_entry node = hb_run_node_entry(r, from, m->row, m->node);
                memcpy(r->want[to] + e.at, r->mirror[from] + node.at, e.bytes);
            }
            if (hb_run_compare_bytes(r, to, e.at, e.bytes,
                                     m->is_track ? "state.track" : "state.commit",
                                     places[m->is_track])) {
                return;
            }
        }
    }
}

/* --- commits that own the replay ring ---------------------------------------------------------- */

static int is_unknown(const struct hb_run *r, const struct move *m) {
    const struct hb_verified_row *row = &r->verified.row[m->row];
    return row->slot == 0 || m->is_shared;
}

/* The state after the move's node, as a fold of its row's records stores it. */
static void fold_node(const struct hb_run *r, const struct move *m, int32_t layer,
                      struct hb_ref_state *to) {
    const struct hb_verified_row *row = &r->verified.row[m->row];
    const struct hb_profile *p =
        &r->caps.profile[r->config.kernel_form][HB_PATH_DECODE][r->config.act_dtype];
    hb_ref_state_copy(&r->config, to, row->state[layer][m->node]);
    hb_ref_mamba2_fold(&r->config, p, row->left + m->node + 1, to);
}

/* A checkpoint's temporal in one layer. */
static void check_fold(struct hb_run *r, const struct move *m, int32_t layer) {
    const int32_t region = hb_run_region(r, "temporal", layer);
    const struct hb_verified_row *from = &r->verified.row[m->row];
    if (region < 0) {
        return;
    }
    const struct hb_entry e = hb_run_slot_entry(r, region, m->slot);
    if (is_unknown(r, m) || !from->is_known || !hb_run_has_numbers(r)) {
        hb_run_allow(r, region, e.at, e.bytes);
        return;
    }
    struct hb_ref_state *state = hb_run_state_new(r);
    struct hb_forward *f = hb_run_bytes(r, HB_MEMORY_FORWARD, sizeof *f);
    if (state && f) {
        const struct hb_live_row row = {.row = m->row,
                                        .request = hb_case_req_index(r->c, from->request),
                                        .stream = from->stream,
                                        .length = m->node + 1,
                                        .is_decode = 1,
                                        .is_verify = HB_DRAFT_CHAIN,
                                        .pos = from->pos};
        memset(f, 0, sizeof *f);
        f->place = places[1];
        fold_node(r, m, layer, state);
        hb_run_check_temporal(r, f, layer, &row, m->node, e, state, "state.track", "track");
    }
    hb_run_state_free(r, state);
}

/* want := cursors after the commit, and whatever a checkpoint's fold may have stored. */
static void want_ring(struct hb_run *r, const struct move *moves, int32_t n) {
    for (int32_t i = 0; i < n && r->slots.commits; i++) {
        const struct move *m = &moves[i];
        if (!m->is_track) {
            hb_slot_model_ring_commit(&r->slots, m->slot, r->verified.row[m->row].left,
                                      m->node + 1);
        }
        for (int32_t l = 0; l < r->config.n_layers && m->is_track && !hb_run_done(r); l++) {
            if (r->verified.layers_run >> l & 1) {
                check_fold(r, m, l);
            }
        }
    }
    hb_run_want_tables(r);
}

/* --- contents ---------------------------------------------------------------------------------- */

/* 1 if the state that a ring adds to is not known: then the sum is not, either. */
static int is_spoiling(const struct hb_run *r, const struct move *m) {
    return r->slots.commits && !m->is_track && is_unknown(r, m);
}

/* The slot's content is the node's: tokens before the verify, then the path. */
static void advance(struct hb_run *r, const struct move *m) {
    const struct hb_verified_row *row = &r->verified.row[m->row];
    struct hb_content *content = &r->content[m->slot];
    const int64_t pos = row->pos + row->depth[m->node] + 1;
    int32_t path[HB_MAX_DRAFT];
    (void)hb_tree_path(row->parent, m->node, path);
    int32_t *loc = row->loc ? malloc((size_t)pos * sizeof *loc) : NULL;
    if (m->slot == 0) {
        free(loc);
        return;
    }
    if (row->loc && !loc) {
        r->no_memory = 1;
        return;
    }
    for (int64_t p = 0; p < pos && loc; p++) {
        loc[p] = row->loc[p < row->pos ? p : row->pos + path[p - row->pos]];
    }
    const int unknown = is_unknown(r, m);
    if (unknown) {
        hb_run_anchor(r, m->slot, row->stream, pos, loc);
    } else if (!content->known && hb_content_zero(r, content, row->stream)) {
        free(loc);
        return;
    }
    content->is_spoiled = is_spoiling(r, m); /* else anchored, or the node's state */
    content->stream = row->stream;
    content->pos = pos;
    content->branch = row->branch[m->node];
    r->no_memory |= hb_run_set_loc(content, loc, pos) != 0;
    for (int32_t l = 0; l < r->config.n_layers && !unknown && row->is_known; l++) {
        const struct hb_ref_state *from = row->state[l][m->node];
        if ((r->verified.layers_run >> l & 1) && from && content->ref[l]) {
            if (r->slots.commits && m->is_track) {
                fold_node(r, m, l, content->ref[l]);
            } else {
                hb_ref_state_copy(&r->config, content->ref[l], from);
            }
            if (r->is_anchored) {
                hb_run_set_state(r, l, m->slot, content->ref[l]);
            }
        }
    }
    free(loc);
}

/* Invariant 8: a begin that is refused leaves the finished verify as it is. */
static void fail_before(struct hb_run *r) {
    struct hb_owned_batch refused;
    memset(&refused, 0, sizeof refused);
    refused.b.struct_size = sizeof refused.b;
    refused.b.forward_mode = HB_MODE_PREBUILT;
    if (hb_batch_remember(&refused)) {
        r->no_memory = 1;
    } else {
        (void)hb_run_begin(r, HB_CALL_BEGIN, &refused, &refused.b, places[0]);
    }
    hb_batch_destroy(&refused);
}

/* Of all bytes that the backend is handed: it may read them only (invariant 7). */
static uint64_t checksum(const struct hb_commit *c) {
    uint64_t sum = XXH64(c, sizeof *c, 0);
    sum = c->step.data ? XXH64(c->step.data, (size_t)c->step.len * sizeof *c->step.data, sum) : sum;
    if (c->track_indices.data) {
        const size_t bytes = (size_t)c->track_indices.len * sizeof *c->track_indices.data;
        sum = XXH64(c->track_indices.data, bytes, sum);
    }
    if (c->track_steps.data) {
        const size_t bytes = (size_t)c->track_steps.len * sizeof *c->track_steps.data;
        sum = XXH64(c->track_steps.data, bytes, sum);
    }
    return sum;
}

/* Destinations of tracked rows with ping-pong: row i of the commit is about the request of the
 * verify's row i. */
static void list_targets(struct hb_run *r, const struct hb_case_step *step, int32_t *row_dst) {
    const struct hb_verify_phase *v = &r->verified.phase;
    const int32_t rows = v->has_verify ? v->real_rows : 0;
    for (int32_t i = 0; i < rows && i < step->n_rows; i++) {
        if (step->row[i].track && !hb_run_done(r)) {
            row_dst[i] = hb_run_ping_pong(r, r->verified.row[i].request);
        }
    }
}

/* The checkpoints that an accepted commit has completed. */
static void note_tracked(struct hb_run *r, const struct hb_commit *c) {
    const struct hb_verify_phase *v = &r->verified.phase;
    for (int32_t i = 0; i < c->n_rows && i < v->real_rows; i++) {
        struct hb_ping_pong_table *p = &r->ping_pong[r->verified.row[i].request];
        if (c->track_indices.data && c->track_steps.data[i] >= 0 &&
            hb_ping_pong_target(p) == c->track_indices.data[i]) {
            hb_ping_pong_tracked(p);
        }
    }
}

static void call_commit(struct hb_run *r, const struct hb_owned_commit *owned) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    struct move moves[MAX_MOVES];
    const struct hb_commit *commit = owned->is_null ? NULL : &owned->c;
    hb_run_want_unchanged(r);
    hb_expect_commit(&r->config, &r->verified.phase, &r->slots, commit, &want);
    const uint64_t sum = checksum(&owned->c);
    const uint64_t t0 = hb_run_now(r);
    const int32_t status = r->backend->commit(r->handle, commit, &got);
    hb_run_phase(r, HB_PHASE_BACKEND, t0);
    const int ok = hb_run_judge(r, "commit", places[0], &want, status, &got);
    if (sum != checksum(&owned->c) && !(r->o->check_off & HB_OFF_PURITY)) {
        r->v->at.step = r->step;
        hb_verdict_set(r->v, HB_VERDICT_PURITY, "batch.written", places[0], want.status, status,
                       "step %d: commit wrote into its arguments", r->step);
    }
    if (hb_run_done(r) || hb_run_read_regions(r)) {
        return;
    }
    if (!ok || !commit) {
        hb_run_compare_regions(r, HB_VERDICT_PURITY, "error.purity", places[0]);
        return;
    }
    const int32_t n = list_moves(r, commit, moves);
    for (int32_t i = 0; i < n && !hb_run_done(r); i++) {
        want_move(r, &moves[i]);
    }
    if (hb_run_done(r)) {
        return;
    }
    want_ring(r, moves, n);
    if (hb_run_done(r)) {
        return;
    }
    hb_run_compare_regions(r, HB_VERDICT_STATE, "state.neighbour", places[0]);
    for (int32_t i = 0; i < n && !hb_run_done(r); i++) {
        advance(r, &moves[i]);
    }
    note_tracked(r, commit);
}

void hb_run_commit(struct hb_run *r, const struct hb_case_step *step) {
    int32_t tracks[HB_MAX_NAMES];
    int32_t row_dst[HB_MAX_ROWS] = {0};
    struct hb_owned_commit owned;
    if (!r->backend->commit) {
        return; /* a backend without speculation: it has refused the verify */
    }
    if (r->twist.insert_fail) {
        fail_before(r);
    }
    const int is_ping_pong = r->c->config.ping_pong != HB_PING_PONG_OFF;
    if (is_ping_pong) {
        list_targets(r, step, row_dst);
    }
    if (hb_materialize_commit(step, tracks, hb_run_tracks(r, tracks), is_ping_pong ? row_dst : NULL,
                              &owned) ||
        hb_materialize_commit_breaks(r->c, r->step, &owned)) {
        r->no_memory = 1;
    } else if (!hb_run_done(r)) {
        call_commit(r, &owned);
    }
    hb_commit_destroy(&owned);
}
