/* SPDX-License-Identifier: Apache-2.0
 * Generation of slot operations: what is taken at first, and what happens between forwards. */
#include "backend/adapter.h"
#include "harness/gen_history.h"

int hb_gen_add_take(struct hb_gen_state *g, int32_t request, int32_t slot_kind, int32_t prefix,
                    int32_t from) {
    struct hb_case_step s;
    hb_gen_step_init(&s, HB_STEP_TAKE);
    s.request = slot_kind == 1 ? 0 : request;
    s.slot_kind = slot_kind;
    s.prefix = prefix;
    s.from = from;
    return hb_gen_push(g, &s);
}

static int add_slot_op(struct hb_gen_state *g, int32_t kind, int32_t slot, int32_t slot2) {
    struct hb_case_step s;
    hb_gen_step_init(&s, kind);
    s.slot = slot;
    s.slot2 = slot2;
    return hb_gen_push(g, &s);
}

int32_t hb_gen_pick_prefix(struct hb_gen_state *g) {
    const int32_t rarely = g->has.spec ? 8 : 2; /* a verify needs tokens */
    const uint64_t tokens = HB_NEED_PREFIX | HB_NEED_LATER_TOKENS;
    const int may_be_none = g->o->mode != HB_MODE_TARGET_VERIFY && !(g->needs & tokens);
    if (g->relation == 14 || (may_be_none && hb_rng_one_in(&g->rng, rarely))) {
        return 0;
    }
    return hb_rng_one_in(&g->rng, 2) ? hb_gen_edge_length(g) : 1 + hb_rng_below(&g->rng, g->max_tokens);
}

/* Takes of all requests and track slots in random order, with some slots taken and given back in
 * between, so that the slots of the batch are neither 1..B nor in row order. */
void hb_gen_add_takes(struct hb_gen_state *g, int32_t n_requests, int32_t n_tracks) {
    enum { TRACK = 100, SPARE = 101 };
    int32_t order[HB_MAX_STEPS];
    int32_t requests[HB_MAX_REQS];
    int32_t n = 0;
    for (int32_t r = 0; r < HB_MAX_REQS; r++) {
        requests[r] = r;
    }
    if (g->o->size != HB_SIZE_SMALL) {
        hb_rng_shuffle(&g->rng, requests, HB_MAX_REQS);
    }
    for (int32_t i = 0; i < n_requests; i++) {
        order[n++] = requests[i];
    }
    for (int32_t i = 0; i < n_tracks; i++) {
        order[n++] = TRACK;
    }
    if (hb_rng_one_in(&g->rng, 2) && !g->is_compact) {
        order[n++] = SPARE;
    }
    hb_rng_shuffle(&g->rng, order, n);
    int32_t spare = -1;
    for (int32_t i = 0; i < n; i++) {
        spare = order[i] == SPARE ? g->h.n_takes : spare;
        if (order[i] >= TRACK) {
            (void)hb_gen_add_take(g, 0, 1, 0, -1);
        } else {
            (void)hb_gen_add_take(g, order[i], 0, hb_gen_pick_prefix(g), -1);
        }
    }
    if (spare >= 0 && g->c->n_steps < HB_MAX_STEPS - 3) {
        (void)add_slot_op(g, HB_STEP_FREE, spare, -1);
    }
}

/* A request that has no live slot, -1 if all have one. */
static int32_t idle_request(const struct hb_gen_state *g) {
    for (int32_t r = 0; r < HB_MAX_REQS; r++) {
        if (!hb_history_is_live(&g->h, r)) {
            return r;
        }
    }
    return -1;
}

/* Restart of a request from a checkpoint, if there is one. */
static void add_restart(struct hb_gen_state *g) {
    const int32_t request = idle_request(g);
    const int32_t start = hb_rng_below(&g->rng, g->h.n_tracks);
    for (int32_t i = 0; i < g->h.n_tracks; i++) {
        const int32_t k = (start + i) % g->h.n_tracks;
        const struct hb_taken *t = &g->h.take[g->h.track[k]];
        if (t->is_known && !t->is_free && request >= 0) {
            (void)hb_gen_add_take(g, request, 0, 0, k);
            return;
        }
    }
}

/* The TAKE of a live request with a checkpoint of its own (ping-pong), else a track slot that was written and not published
 * yet; -1 none. */
static int32_t publishable(struct hb_gen_state *g) {
    int32_t found[HB_MAX_STEPS];
    int32_t n = 0;
    for (int32_t t = 0; t < g->h.n_takes; t++) {
        const struct hb_taken *k = &g->h.take[t];
        if (g->c->config.ping_pong == HB_PING_PONG_OFF) {
            if (k->is_track && k->is_known && !k->is_free && !k->is_tree) {
                found[n++] = t;
            }
        } else if (k->request >= 0 && !k->is_free &&
                   hb_ping_pong_newest(&g->h.ping_pong[k->request]) > 0) {
            found[n++] = t;
        }
    }
    return n > 0 ? found[hb_rng_below(&g->rng, n)] : -1;
}

/* A published slot that a TAKE names, -1 none. */
static int32_t published_take(const struct hb_gen_state *g) {
    for (int32_t t = 0; t < g->h.n_takes; t++) {
        if (g->h.take[t].is_tree && !g->h.take[t].is_free) {
            return t;
        }
    }
    return -1;
}

/* A request that has its first tokens in common with one that published a state: the prefix is the state's depth, more, or
 * less. */
static void add_match(struct hb_gen_state *g) {
    const int32_t request = idle_request(g);
    if (request < 0 || g->h.n_published == 0) {
        return;
    }
    const struct hb_kept *k = &g->h.published[hb_rng_below(&g->rng, g->h.n_published)];
    for (int32_t r = 0; r < HB_MAX_REQS; r++) {
        if (g->h.request_stream[r] == k->stream) {
            struct hb_case_step s;
            hb_gen_step_init(&s, HB_STEP_TAKE);
            s.request = request;
            s.match = r;
            s.prefix = k->position + (hb_rng_one_in(&g->rng, 2) ? 0 : hb_rng_range(&g->rng, -2, 3));
            s.prefix = s.prefix < 0 ? 0 : s.prefix > 200 ? 200 : s.prefix;
            (void)hb_gen_push(g, &s);
            return;
        }
    }
}

static int has_room(const struct hb_gen_state *g, int32_t n) {
    return g->c->n_steps + n < HB_MAX_STEPS;
}

static void add_cache_ops(struct hb_gen_state *g) {
    const int32_t t = publishable(g);
    if (t >= 0 && has_room(g, 2) && hb_rng_below(&g->rng, 3) > 0) {
        (void)add_slot_op(g, HB_STEP_PUBLISH, t, -1);
    }
    if (has_room(g, 2) && hb_rng_below(&g->rng, 3) > 0) {
        add_match(g);
    }
    const int32_t evicted = published_take(g);
    if (evicted >= 0 && has_room(g, 2) && hb_rng_one_in(&g->rng, 4)) {
        (void)add_slot_op(g, HB_STEP_FREE, evicted, -1);
    }
}

/* A copy of the first of n requests into the second one's slot, or into a track slot. */
static void add_copies(struct hb_gen_state *g, const int32_t *live, int32_t n) {
    if (n > 1 && hb_rng_one_in(&g->rng, 5)) {
        (void)add_slot_op(g, HB_STEP_COPY, g->h.request_take[live[0]], g->h.request_take[live[1]]);
    }
    if (g->h.n_tracks > 0 && n > 0 && hb_rng_one_in(&g->rng, 8)) {
        const int32_t dst = g->h.track[hb_rng_below(&g->rng, g->h.n_tracks)];
        if (!g->h.take[dst].is_free && !g->h.take[dst].is_tree) {
            (void)add_slot_op(g, HB_STEP_COPY, g->h.request_take[live[0]], dst);
        }
    }
}

/* A request gives its slot back, one or two slots at a time, and starts afresh. */
static void add_reuse(struct hb_gen_state *g) {
    int32_t live[HB_MAX_REQS];
    const int32_t n = hb_gen_live(g, 0, live);
    if (n == 0 || !has_room(g, 2) || !hb_rng_one_in(&g->rng, g->has.slot_ops ? 2 : 4)) {
        return;
    }
    const int is_pair = n > 2 && hb_rng_one_in(&g->rng, 4);
    (void)add_slot_op(g, HB_STEP_FREE, g->h.request_take[live[0]],
                      is_pair ? g->h.request_take[live[1]] : -1);
    (void)hb_gen_add_take(g, live[0], 0, hb_gen_pick_prefix(g), -1);
}

void hb_gen_add_move(struct hb_gen_state *g, int32_t t) {
    const int is_enough = g->c->config.spare_slots > 0; /* the model's pool is larger than the case's */
    if (g->c->config.virtual_ids > 0 && is_enough && !g->h.take[t].is_free && has_room(g, 2) &&
        hb_rng_one_in(&g->rng, 2)) {
        (void)add_slot_op(g, HB_STEP_MOVE, t, -1);
    }
}

static void add_move(struct hb_gen_state *g) {
    hb_gen_add_move(g, hb_rng_below(&g->rng, g->h.n_takes));
}

void hb_gen_add_slot_ops(struct hb_gen_state *g) {
    int32_t folded[HB_MAX_REQS];
    if (g->h.n_tracks > 0 && !hb_rng_one_in(&g->rng, g->has.cache || g->has.graphs ? 2 : 4)) {
        add_restart(g);
    }
    if (g->has.cache) {
        add_cache_ops(g);
    }
    add_copies(g, folded, hb_gen_live(g, 1, folded));
    add_reuse(g);
    add_move(g);
    if (g->has.slot_ops && has_room(g, 3) && hb_rng_one_in(&g->rng, 2)) {
        add_copies(g, folded, hb_gen_live(g, 1, folded));
        add_move(g);
        add_cache_ops(g);
    }
}
