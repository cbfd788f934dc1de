/* SPDX-License-Identifier: Apache-2.0
 * Generation of draft verification: verify steps of requests that have tokens, and the commits
 * after them. */
#include <string.h>

#include "backend/adapter.h"
#include "harness/gen_history.h"

/* --- the model -------------------------------------------------------------------------------- */

/* backend/README.md "Replay ring": records are folded where there might be no room for the nodes of
 * another verify; links are refused. */
static void verify_ring(struct hb_history *h, const struct hb_case *c, const struct hb_case_step *s,
                        int32_t r) {
    struct hb_drafted *d = &h->drafted;
    if (!hb_case_ring_has_mode(c, HB_MODE_TARGET_VERIFY) || d->take[r] < 0) {
        return;
    }
    struct hb_taken *t = &h->take[d->take[r]];
    d->is_valid &= s->tree == HB_TREE_CHAIN;
    t->cursor = t->is_full && d->is_valid ? 0 : t->cursor;
    t->is_full = t->is_full && !d->is_valid;
    d->left[r] = t->cursor;
}

static void commit_ring(struct hb_history *h, const struct hb_case *c, int32_t r, int32_t n) {
    struct hb_taken *t = &h->take[h->drafted.take[r]];
    if (hb_case_ring_has_mode(c, HB_MODE_TARGET_VERIFY)) {
        t->cursor = h->drafted.left[r] + n;
        t->is_full = t->cursor + 2 * c->config.max_draft > c->config.ring_length;
    }
}

void hb_history_verify(struct hb_history *h, const struct hb_case *c,
                       const struct hb_case_step *s) {
    struct hb_drafted *d = &h->drafted;
    memset(d, 0, sizeof *d);
    d->is_valid = c->config.max_draft > 0;
    d->batch_size = s->n_rows + s->pad_rows;
    d->n_rows = s->n_rows;
    for (int32_t r = 0; r < s->n_rows; r++) {
        int32_t parent[HB_MAX_DRAFT];
        const int32_t n = s->row[r].length < HB_MAX_DRAFT ? s->row[r].length : HB_MAX_DRAFT;
        d->is_valid &= hb_history_is_live(h, s->row[r].request);
        d->take[r] = h->request_take[s->row[r].request];
        d->position[r] = hb_history_position(h, s->row[r].request);
        d->nodes[r] = n;
        verify_ring(h, c, s, r);
        hb_case_tree(c, s, r, n, parent);
        for (int32_t t = 1; t < n; t++) {
            d->depth[r][t] = d->depth[r][parent[t]] + 1;
        }
    }
}

void hb_history_commit(struct hb_history *h, const struct hb_case *c,
                       const struct hb_case_step *s) {
    const struct hb_drafted *d = &h->drafted;
    for (int32_t r = 0; r < s->n_rows && r < d->n_rows && d->is_valid; r++) {
        const struct hb_case_row *row = &s->row[r];
        if (row->accept >= d->nodes[r] || (row->track && row->track_accept >= d->nodes[r])) {
            return; /* refused */
        }
    }
    for (int32_t r = 0; r < s->n_rows && r < d->n_rows && d->is_valid; r++) {
        const struct hb_case_row *row = &s->row[r];
        if (row->accept >= 0) {
            h->take[d->take[r]].position = d->position[r] + d->depth[r][row->accept] + 1;
            commit_ring(h, c, r, row->accept + 1);
        }
        if (row->track) {
            const struct hb_taken *t = &h->take[d->take[r]];
            hb_history_track(h, row, t->request, t->stream,
                             d->position[r] + d->depth[r][row->track_accept] + 1);
        }
    }
}

/* --- the builder ------------------------------------------------------------------------------ */

int32_t hb_gen_drafted(struct hb_gen_state *g, int32_t out[HB_MAX_REQS]) {
    int32_t n = 0;
    for (int32_t r = 0; r < HB_MAX_REQS; r++) {
        const int is_ready = g->has.ring_commits || hb_history_cursor(&g->h, r) == 0;
        if (hb_history_is_live(&g->h, r) && hb_history_position(&g->h, r) > 0 && is_ready) {
            out[n++] = r;
        }
    }
    hb_rng_shuffle(&g->rng, out, n);
    return n;
}

static void pick_shape(struct hb_gen_state *g, struct hb_case_step *s) {
    const int32_t most = g->c->config.max_draft;
    s->ragged = hb_rng_one_in(&g->rng, 3) || (g->needs & HB_NEED_RAGGED);
    s->tree = hb_rng_one_in(&g->rng, 2)   ? HB_TREE_CHAIN
              : hb_rng_one_in(&g->rng, 6) ? HB_TREE_LINKED_CHAIN
                                          : hb_rng_range(&g->rng, HB_TREE_RANDOM, HB_TREE_MAX);
    if (g->needs & (HB_NEED_TREE | HB_NEED_TREE_STEP)) {
        s->tree = hb_rng_range(&g->rng, HB_TREE_RANDOM, HB_TREE_MAX);
    }
    s->ragged = (g->needs & HB_NEED_UNIFORM) ? 0 : s->ragged;
    const int is_plain = (g->needs & HB_NEED_NO_LINKS) || g->relation == 54 || g->has.strip;
    s->tree = is_plain || g->has.ring_commits ? HB_TREE_CHAIN : s->tree;
    s->ragged = g->relation == 58 ? 1 : s->ragged;
    int32_t longest = hb_rng_one_in(&g->rng, 4) ? 1 : 1 + hb_rng_below(&g->rng, most);
    const int32_t least = (g->needs & HB_NEED_TREE) ? 3 : (g->needs & HB_NEED_NO_LINKS) ? 2 : 1;
    longest = longest < least && least <= most ? least : longest;
    for (int32_t r = 0; r < s->n_rows; r++) {
        s->row[r].length = s->ragged && r > 0 ? 1 + hb_rng_below(&g->rng, longest) : longest;
    }
    if (s->ragged && hb_rng_one_in(&g->rng, 3)) {
        s->draft = hb_rng_range(&g->rng, longest, most); /* nodes that no row has */
    }
    if ((g->needs & HB_NEED_PADDING) || hb_rng_one_in(&g->rng, g->is_near ? 2 : 4)) {
        s->pad_rows = hb_rng_range(&g->rng, 1, 2);
        s->pad_tokens = s->ragged ? hb_rng_below(&g->rng, s->pad_rows * longest + 1) : 0;
    }
}

int hb_gen_add_verify(struct hb_gen_state *g) {
    struct hb_case_step s;
    int32_t live[HB_MAX_REQS];
    const int32_t n_live = hb_gen_drafted(g, live);
    const uint64_t pairs = HB_NEED_TWO_ROWS | HB_NEED_TWO_TRACKS | HB_NEED_LATER_TOKENS;
    int32_t n = 1 + hb_rng_below(&g->rng, n_live);
    n = ((g->needs & pairs) || g->relation == 58) && n < 2 ? 2 : n;
    n = n > g->max_requests ? g->max_requests : n;
    n = n > n_live ? n_live : n;
    if (n == 0) {
        return 0;
    }
    hb_gen_step_init(&s, HB_STEP_FORWARD);
    s.mode = HB_MODE_TARGET_VERIFY;
    s.n_rows = n;
    for (int32_t r = 0; r < n; r++) {
        s.row[r].request = live[r];
    }
    pick_shape(g, &s);
    s.optional = (g->needs & HB_NEED_MASK) || hb_rng_one_in(&g->rng, 4) ? 8 : 0;
    s.optional |= (g->needs & HB_NEED_ORIGINAL) || hb_rng_one_in(&g->rng, 4) ? 4 : 0;
    s.optional |= hb_rng_one_in(&g->rng, 8) ? 16 : 0;
    s.optional |= (g->needs & HB_NEED_CPU) || hb_rng_one_in(&g->rng, 4) ? 32 : 0;
    s.optional &= (g->needs & HB_NEED_NO_MASK) ? ~8 : ~0;
    if (g->c->config.n_layers > 1 && hb_rng_one_in(&g->rng, 24)) {
        s.layer_mask = 1 << hb_rng_below(&g->rng, g->c->config.n_layers);
        s.layer_mask &= g->has.ring_commits ? g->c->config.attn_mask : ~0; /* a ring needs every Mamba2 layer */
    }
    return hb_gen_push(g, &s);
}

/* Track slots that exist, each one once; with ping-pong each request has its own. */
static void pick_commit_tracks(struct hb_gen_state *g, struct hb_case_step *s) {
    int32_t usable[HB_MAX_STEPS];
    int32_t n = hb_gen_usable_tracks(g, usable);
    const int has_own = g->c->config.ping_pong != HB_PING_PONG_OFF;
    const int is_forced = (g->needs & (HB_NEED_TRACK | HB_NEED_TWO_TRACKS)) != 0;
    for (int32_t r = 0; r < s->n_rows && r < g->h.drafted.n_rows; r++) {
        const struct hb_taken *t = &g->h.take[g->h.drafted.take[r]];
        const int can = has_own ? hb_ping_pong_target(&g->h.ping_pong[t->request]) > 0 : n > 0;
        if (!can || (!is_forced && hb_rng_one_in(&g->rng, 2))) {
            continue;
        }
        s->row[r].track = 1;
        s->row[r].track_slot = has_own ? 0 : usable[--n];
        s->row[r].track_accept = g->is_compact && s->row[r].accept >= 0
                                     ? s->row[r].accept /* 51: decode steps pass it */
                                     : hb_rng_below(&g->rng, g->h.drafted.nodes[r]);
    }
}

static int add_commit(struct hb_gen_state *g) {
    struct hb_case_step s;
    const struct hb_drafted *d = &g->h.drafted;
    hb_gen_step_init(&s, HB_STEP_COMMIT);
    s.n_rows = hb_rng_one_in(&g->rng, 4) ? hb_rng_range(&g->rng, g->needs ? 1 : 0, d->batch_size)
                                         : d->n_rows;
    s.n_rows = (g->needs & HB_NEED_TWO_TRACKS) && s.n_rows < d->n_rows ? d->n_rows : s.n_rows;
    s.n_rows = s.n_rows > HB_MAX_ROWS ? HB_MAX_ROWS : s.n_rows;
    for (int32_t r = 0; r < s.n_rows; r++) {
        const int32_t nodes = r < d->n_rows ? d->nodes[r] : HB_MAX_DRAFT; /* padding: any step */
        s.row[r].accept = hb_rng_one_in(&g->rng, 8)   ? -1
                          : hb_rng_one_in(&g->rng, 3) ? nodes - 1
                                                      : hb_rng_below(&g->rng, nodes);
    }
    pick_commit_tracks(g, &s);
    return hb_gen_push(g, &s);
}

static int add_empty_commit(struct hb_gen_state *g) {
    struct hb_case_step s;
    hb_gen_step_init(&s, HB_STEP_COMMIT);
    s.n_rows = g->h.drafted.n_rows;
    for (int32_t r = 0; r < s.n_rows; r++) {
        s.row[r].accept = -1;
    }
    return hb_gen_push(g, &s);
}

/* The last commit once more, or another one of the same verify. */
static void add_commit_again(struct hb_gen_state *g) {
    if (hb_rng_one_in(&g->rng, 2)) {
        (void)add_commit(g);
    } else {
        const struct hb_case_step s = g->c->step[g->c->n_steps - 1];
        (void)hb_gen_push(g, &s);
    }
}

static int can_commit(const struct hb_gen_state *g) {
    int ok = g->h.drafted.is_valid;
    for (int32_t r = 0; r < g->h.drafted.n_rows && ok; r++) {
        ok = !g->h.take[g->h.drafted.take[r]].is_free;
    }
    return ok;
}

void hb_gen_add_commits(struct hb_gen_state *g) {
    if (!can_commit(g) || (hb_rng_one_in(&g->rng, 8) && !g->needs && !g->is_compact)) {
        return; /* all drafts are dropped */
    }
    if (g->is_compact) {
        (void)add_commit(g);
        return;
    }
    if (hb_rng_one_in(&g->rng, 8)) {
        (void)add_empty_commit(g);
    }
    if (g->h.drafted.n_rows > 0) { /* a commit finds the rows where they are then */
        hb_gen_add_move(g, g->h.drafted.take[hb_rng_below(&g->rng, g->h.drafted.n_rows)]);
    }
    if (add_commit(g) && hb_rng_one_in(&g->rng, 6)) {
        add_commit_again(g);
    }
}

void hb_gen_add_round(struct hb_gen_state *g) {
    if (!hb_gen_add_verify(g)) {
        (void)hb_gen_add_forward(g); /* a forward gives the requests tokens */
        return;
    }
    if (hb_rng_one_in(&g->rng, 8) && !g->is_compact) { /* the same drafts or others */
        const struct hb_case_step s = g->c->step[g->c->n_steps - 1];
        (void)(hb_rng_one_in(&g->rng, 2) ? hb_gen_push(g, &s) : hb_gen_add_verify(g));
    }
    hb_gen_add_commits(g);
}
