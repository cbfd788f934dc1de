/* SPDX-License-Identifier: Apache-2.0
 * Valid histories: a model of slots and requests, and the builder that keeps every step legal. */
#include "harness/gen_history.h"

#include <string.h>

#include "backend/adapter.h"

/* --- the model
 * --------------------------------------------------------------------------------------------------
 */

int32_t hb_case_cache_chunk(const struct hb_case *c) {
    const int32_t pages = c->config.page_chunks;
    return c->config.chunk_size * (pages > 1 ? pages : 1);
}

int hb_mode_is_extend(int32_t mode) {
    return mode == HB_MODE_EXTEND || mode == HB_MODE_MIXED || mode == HB_MODE_SPLIT_PREFILL ||
           mode == HB_MODE_DLLM_EXTEND;
}

void hb_history_init(struct hb_history *h, int32_t n_slots) {
    memset(h, 0, sizeof *h);
    const int32_t room = (int32_t)(sizeof h->free_list / sizeof *h->free_list) - HB_MAX_STEPS;
    h->n_slots = n_slots < room ? n_slots : room;
    for (int32_t i = 0; i < h->n_slots; i++) {
        h->free_list[h->n_free++] = i + 1;
    }
    for (int32_t r = 0; r < HB_MAX_REQS; r++) {
        h->request_take[r] = -1;
    }
}

int hb_history_is_live(const struct hb_history *h, int32_t request) {
    const int32_t t = h->request_take[request];
    return t >= 0 && !h->take[t].is_free;
}

int32_t hb_history_position(const struct hb_history *h, int32_t request) {
    const int32_t t = h->request_take[request];
    return t >= 0 ? h->take[t].position : 0;
}

static void apply_take(struct hb_history *h, const struct hb_case_step *s) {
    struct hb_taken *t = &h->take[h->n_takes];
    memset(t, 0, sizeof *t);
    t->is_track = s->slot_kind == 1;
    t->is_free = h->n_free == 0;
    if (h->n_free > 0) {
        t->id = h->free_list[0];
        h->n_free--;
        memmove(h->free_list, h->free_list + 1, (size_t)h->n_free * sizeof *h->free_list);
    }
    if (t->is_track) {
        h->track[h->n_tracks++] = h->n_takes;
    } else {
        t->is_known = 1;
        t->position = s->prefix;
        if (s->from >= 0 && h->n_tracks > 0) {
            t->position = h->take[h->track[s->from % h->n_tracks]].position;
        }
        h->request_take[s->request] = h->n_takes;
    }
    h->n_takes++;
}

static void apply_forward(struct hb_history *h, const struct hb_case *c,
                          const struct hb_case_step *s) {
    const int is_decode = s->mode == HB_MODE_DECODE;
    h->drafted.is_valid = 0;
    if (s->mode == HB_MODE_TARGET_VERIFY) {
        hb_history_verify(h, c, s);
        return;
    }
    if (!is_decode && !hb_mode_is_extend(s->mode)) {
        return;
    }
    const int32_t cc = hb_case_cache_chunk(c);
    for (int32_t r = 0; r < s->n_rows; r++) {
        const struct hb_case_row *row = &s->row[r];
        if (!hb_history_is_live(h, row->request)) {
            continue;
        }
        struct hb_taken *t = &h->take[h->request_take[row->request]];
        if (row->track && h->n_tracks > 0) {
            struct hb_taken *dst = &h->take[h->track[row->track_slot % h->n_tracks]];
            const int32_t points = row->length / cc;
            int32_t point = row->track_point;
            point = point == 0 || point > points ? points : point;
            dst->is_known = 1;
            dst->position = t->position + (is_decode ? 1 : point * cc);
        }
        t->position += row->length;
    }
}

void hb_history_apply(struct hb_history *h, const struct hb_case *c, const struct hb_case_step *s) {
    if (s->kind == HB_STEP_TAKE) {
        if (h->n_takes < HB_MAX_STEPS) {
            apply_take(h, s);
        }
    } else if (s->kind == HB_STEP_FORWARD) {
        apply_forward(h, c, s);
    } else if (s->kind == HB_STEP_ENTRY && s->n_rows > 0) {
        h->drafted.is_valid = 0;
    } else if (s->kind == HB_STEP_COMMIT) {
        hb_history_commit(h, s);
    } else if (s->kind == HB_STEP_FREE && s->slot < h->n_takes && !h->take[s->slot].is_free) {
        h->take[s->slot].is_free = 1;
        h->free_list[h->n_free++] = h->take[s->slot].id;
    } else if (s->kind == HB_STEP_COPY && s->slot < h->n_takes && s->slot2 < h->n_takes) {
        const struct hb_taken *src = &h->take[s->slot];
        struct hb_taken *dst = &h->take[s->slot2];
        if (!src->is_free && !dst->is_free) {
            dst->is_known = src->is_known;
            dst->position = src->position;
        }
    }
}

void hb_history_replay(struct hb_history *h, const struct hb_case *c, int32_t step) {
    struct hb_config config;
    hb_case_backend_config(c, &config);
    hb_history_init(h, config.n_slots);
    for (int32_t i = 0; i < step && i < c->n_steps; i++) {
        hb_history_apply(h, c, &c->step[i]);
    }
}

/* --- the builder
 * ------------------------------------------------------------------------------------------------
 */

void hb_gen_step_init(struct hb_case_step *s, int32_t kind) {
    struct hb_case blank;
    hb_case_init(&blank);
    *s = blank.step[0];
    s->kind = kind;
}

int hb_gen_push(struct hb_gen_state *g, const struct hb_case_step *s) {
    if (g->c->n_steps >= HB_MAX_STEPS) {
        return 0;
    }
    g->c->step[g->c->n_steps++] = *s;
    hb_history_apply(&g->h, g->c, s);
    return 1;
}

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

/* Lengths at which kernels and metadata change their way. */
static int32_t edge_length(struct hb_gen_state *g) {
    const int32_t w = g->c->config.conv_width - 1;
    const int32_t chunk = g->c->config.chunk_size;
    const int32_t edges[] = {1, w - 1, w, w + 1, chunk - 1, chunk, chunk + 1, 2 * chunk};
    const int32_t n = edges[hb_rng_below(&g->rng, (int32_t)(sizeof edges / sizeof *edges))];
    return n < 1 ? 1 : n;
}

static int32_t pick_prefix(struct hb_gen_state *g) {
    const int32_t rarely = g->is_spec ? 8 : 2; /* a verify needs tokens */
    if (g->o->relation == 14 || (g->o->mode != HB_MODE_TARGET_VERIFY && !(g->needs & HB_NEED_PREFIX) && hb_rng_one_in(&g->rng, rarely))) {
        return 0;
    }
    return hb_rng_one_in(&g->rng, 2) ? edge_length(g) : 1 + hb_rng_below(&g->rng, g->max_tokens);
}

/* Live requests in random order; returns their number. */
static int32_t live_requests(struct hb_gen_state *g, int32_t out[HB_MAX_REQS]) {
    int32_t n = 0;
    for (int32_t r = 0; r < HB_MAX_REQS; r++) {
        if (hb_history_is_live(&g->h, r)) {
            out[n++] = r;
        }
    }
    hb_rng_shuffle(&g->rng, out, n);
    return n;
}

static int32_t pick_mode(struct hb_gen_state *g) {
    static const int32_t weighted[] = {
        HB_MODE_EXTEND,      HB_MODE_EXTEND,      HB_MODE_EXTEND,        HB_MODE_EXTEND,
        HB_MODE_EXTEND,      HB_MODE_DECODE,      HB_MODE_DECODE,        HB_MODE_DECODE,
        HB_MODE_DECODE,      HB_MODE_MIXED,       HB_MODE_MIXED,         HB_MODE_MIXED,
        HB_MODE_MIXED,       HB_MODE_MIXED,       HB_MODE_SPLIT_PREFILL, HB_MODE_SPLIT_PREFILL,
        HB_MODE_DLLM_EXTEND, HB_MODE_DLLM_EXTEND, HB_MODE_IDLE};
    if (g->o->mode != 0) {
        return g->o->mode;
    }
    if (g->needs & HB_NEED_M2) {
        return HB_MODE_MIXED;
    }
    if (g->needs & HB_NEED_DECODE) {
        return HB_MODE_DECODE;
    }
    const int32_t n = (int32_t)(sizeof weighted / sizeof *weighted);
    int32_t mode = weighted[hb_rng_below(&g->rng, n)];
    while ((g->needs & HB_NEED_EXTEND) && !hb_mode_is_extend(mode)) {
        mode = weighted[hb_rng_below(&g->rng, n)];
    }
    switch (g->o->relation) { /* relations that speak of one mode */
    case 22:
    case 23:
        return HB_MODE_DECODE;
    case 26:
    case 27:
        return HB_MODE_EXTEND;
    case 30:
        return HB_MODE_MIXED;
    default:
        return mode;
    }
}

static int32_t row_length(struct hb_gen_state *g, int32_t budget) {
    if (budget <= 1) {
        return 1;
    }
    int32_t n = hb_rng_below(&g->rng, 3) < (g->is_near ? 2 : 1) ? edge_length(g)
                                                                : 1 + hb_rng_below(&g->rng, budget);
    const int32_t cc = hb_case_cache_chunk(g->c);
    if ((g->needs & (HB_NEED_TRACK | HB_NEED_TWO_TRACKS)) && n < cc) {
        n = cc + hb_rng_below(&g->rng, cc);
        return n; /* tracking needs a whole cache chunk, whatever the budget says */
    }
    return n < budget ? n : budget;
}

static void pick_lengths(struct hb_gen_state *g, struct hb_case_step *s) {
    const int32_t least = g->max_tokens < 6 ? 2 : 6;
    int32_t budget = hb_rng_range(&g->rng, least, g->max_tokens) - s->n_decode;
    const int32_t n_extend = s->n_rows - s->n_decode;
    const int is_m1 = s->mode == HB_MODE_MIXED && s->n_decode == 0;
    for (int32_t r = 0; r < n_extend; r++) {
        struct hb_case_row *row = &s->row[r];
        const int32_t fair = budget - (n_extend - r - 1);
        /* M1: running requests are extend rows of length 1 */
        const int is_running = is_m1 && hb_history_position(&g->h, row->request) > 0;
        row->length = is_running && hb_rng_below(&g->rng, 3) > 0 ? 1 : row_length(g, fair);
        if (r == n_extend - 1 && !is_running && !g->is_near && hb_rng_one_in(&g->rng, 3)) {
            row->length = fair > row->length ? fair : row->length;
        }
        budget -= row->length;
    }
}

/* Legal tracking only: track slots that exist, each one once, extend rows of a cache chunk or more.
 */
static void pick_tracks(struct hb_gen_state *g, struct hb_case_step *s) {
    int32_t usable[HB_MAX_STEPS];
    int32_t n = 0;
    for (int32_t k = 0; k < g->h.n_tracks; k++) {
        if (!g->h.take[g->h.track[k]].is_free) {
            usable[n++] = k;
        }
    }
    hb_rng_shuffle(&g->rng, usable, n);
    const int32_t cc = hb_case_cache_chunk(g->c);
    const int is_forced = (g->needs & (HB_NEED_TRACK | HB_NEED_TWO_TRACKS)) != 0;
    for (int32_t r = 0; r < s->n_rows && n > 0; r++) {
        struct hb_case_row *row = &s->row[r];
        const int is_decode_row = s->mode == HB_MODE_DECODE;
        const int is_extend_row = hb_mode_is_extend(s->mode) && r < s->n_rows - s->n_decode;
        if ((!is_decode_row && !(is_extend_row && row->length >= cc)) ||
            (!is_forced && hb_rng_below(&g->rng, 3) == 0)) {
            continue;
        }
        row->track = 1;
        row->track_slot = usable[--n];
        row->track_point = is_decode_row || hb_rng_one_in(&g->rng, 2)
                               ? 0
                               : 1 + hb_rng_below(&g->rng, row->length / cc);
    }
}

static void pick_extras(struct hb_gen_state *g, struct hb_case_step *s) {
    const int32_t rarely = g->is_near ? 2 : 5;
    if ((g->needs & HB_NEED_PADDING) || hb_rng_one_in(&g->rng, rarely)) {
        s->pad_rows = hb_rng_range(&g->rng, 1, 3);
    }
    if (hb_rng_one_in(&g->rng, rarely)) {
        s->pad_tokens = hb_rng_range(&g->rng, 1, 6);
    }
    s->optional = hb_rng_one_in(&g->rng, 3) ? 0 : hb_rng_below(&g->rng, 32);
    s->optional |= g->needs & HB_NEED_START_LOC ? 1 : 0;
    s->optional |= g->needs & HB_NEED_LENS_CPU ? 2 : 0;
    s->optional |= g->needs & HB_NEED_ORIGINAL ? 4 : 0;
    s->optional |= g->needs & HB_NEED_MASK ? 8 : 0;
    s->optional &= g->needs & HB_NEED_NO_EXTRAS ? ~3 : ~0;
    s->optional &= g->needs & HB_NEED_NO_MASK ? ~8 : ~0;
    if (g->c->config.n_layers > 1 && hb_rng_one_in(&g->rng, 24)) {
        s->layer_mask = 1 << hb_rng_below(&g->rng, g->c->config.n_layers);
    }
}

int hb_gen_add_forward(struct hb_gen_state *g) {
    struct hb_case_step s;
    int32_t live[HB_MAX_REQS];
    if (g->o->mode == HB_MODE_TARGET_VERIFY && g->is_spec && hb_gen_add_verify(g)) {
        return 1;
    }
    hb_gen_step_init(&s, HB_STEP_FORWARD);
    s.mode = pick_mode(g);
    const int32_t n_live = live_requests(g, live);
    int32_t n = 1 + hb_rng_below(&g->rng, n_live);
    const uint32_t pairs = HB_NEED_TWO_ROWS | HB_NEED_TWO_TRACKS | HB_NEED_M2 | HB_NEED_LONG_ROW;
    n = (g->needs & pairs) && n < 2 ? 2 : n;
    n = (g->needs & HB_NEED_OUTSIDER) ? n_live - 1 : n;
    if (s.mode == HB_MODE_IDLE && !hb_rng_one_in(&g->rng, 4)) {
        n = 0;
    }
    /* restarts add requests; the batch keeps its size */
    n = n > g->max_requests ? g->max_requests : n;
    s.n_rows = n > n_live ? n_live : n;
    for (int32_t r = 0; r < s.n_rows; r++) {
        s.row[r].request = live[r];
    }
    if (s.mode == HB_MODE_MIXED && s.n_rows >= 2 &&
        ((g->needs & HB_NEED_M2) || hb_rng_one_in(&g->rng, 2))) {
        s.n_decode = 1 + hb_rng_below(&g->rng, s.n_rows - 1);
    }
    if (s.mode != HB_MODE_DECODE && s.mode != HB_MODE_IDLE) {
        pick_lengths(g, &s);
    }
    if (!(g->needs & HB_NEED_NO_TRACK)) {
        pick_tracks(g, &s);
    }
    pick_extras(g, &s);
    return hb_gen_push(g, &s);
}

int hb_gen_add_entry(struct hb_gen_state *g) {
    struct hb_case_step s;
    int32_t live[HB_MAX_REQS];
    hb_gen_step_init(&s, HB_STEP_ENTRY);
    s.target = hb_rng_below(&g->rng, 2);
    s.direction = hb_rng_below(&g->rng, 2);
    s.layer = hb_rng_one_in(&g->rng, 6) ? hb_rng_range(&g->rng, -1, HB_MAX_LAYERS)
                                        : hb_rng_below(&g->rng, g->c->config.n_layers);
    s.null_args = hb_rng_one_in(&g->rng, 6);
    const int32_t n_live = live_requests(g, live);
    if (n_live > 0 && hb_rng_below(&g->rng, 4) > 0) {
        s.mode = s.direction == HB_ENTRY_DECODE ? HB_MODE_DECODE : HB_MODE_EXTEND;
        s.mode = hb_rng_one_in(&g->rng, 6) ? HB_MODE_IDLE : s.mode;
        s.n_rows = 1;
        s.row[0].request = live[0];
        s.row[0].length = s.mode == HB_MODE_EXTEND ? row_length(g, 6) : 1;
    }
    return hb_gen_push(g, &s);
}

/* Takes of all requests and track slots in random order, with some slots taken and given back in
 * between, so that the slots of the batch are neither 1..B nor in row order. */
static void add_takes(struct hb_gen_state *g, int32_t n_requests, int32_t n_tracks) {
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
            (void)hb_gen_add_take(g, order[i], 0, pick_prefix(g), -1);
        }
    }
    if (spare >= 0 && g->c->n_steps < HB_MAX_STEPS - 3) {
        (void)add_slot_op(g, HB_STEP_FREE, spare, 0);
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

/* Between two forwards: free and reuse a slot, copy a live slot, restart. */
static void add_slot_ops(struct hb_gen_state *g) {
    int32_t live[HB_MAX_REQS];
    const int32_t n_live = live_requests(g, live);
    if (g->h.n_tracks > 0 && !hb_rng_one_in(&g->rng, 4)) {
        add_restart(g);
    }
    if (n_live > 1 && hb_rng_one_in(&g->rng, 5)) {
        (void)add_slot_op(g, HB_STEP_COPY, g->h.request_take[live[0]], g->h.request_take[live[1]]);
    }
    if (g->h.n_tracks > 0 && n_live > 0 && hb_rng_one_in(&g->rng, 8)) {
        const int32_t dst = g->h.track[hb_rng_below(&g->rng, g->h.n_tracks)];
        if (!g->h.take[dst].is_free) {
            (void)add_slot_op(g, HB_STEP_COPY, g->h.request_take[live[0]], dst);
        }
    }
    if (n_live > 0 && g->c->n_steps < HB_MAX_STEPS - 2 && hb_rng_one_in(&g->rng, 4)) {
        const int32_t request = live[n_live - 1];
        (void)add_slot_op(g, HB_STEP_FREE, g->h.request_take[request], 0);
        (void)hb_gen_add_take(g, request, 0, pick_prefix(g), -1);
    }
}

void hb_gen_history(struct hb_gen_state *g) {
    struct hb_rng *rng = &g->rng;
    hb_history_init(&g->h, 2 * HB_MAX_STEPS);
    int32_t n_requests = 1 + hb_rng_below(rng, g->max_requests);
    int32_t n_tracks = hb_rng_one_in(rng, 3) ? 0 : hb_rng_range(rng, 1, 2);
    const uint32_t pairs =
        HB_NEED_TWO_ROWS | HB_NEED_TWO_TRACKS | HB_NEED_M2 | HB_NEED_OUTSIDER | HB_NEED_LONG_ROW;
    const int32_t most = g->is_compact ? 2 : 3; /* leaves steps for commits */
    n_requests = g->is_spec && n_requests > most ? most : n_requests;
    n_requests = (g->needs & pairs) && n_requests < 2 ? 2 : n_requests;
    if (g->o->relation == 22 || g->o->relation == 23 || g->o->relation == 30 ||
        g->o->relation == 58) {
        n_requests = n_requests < 2 ? 2 : n_requests;
    }
    const uint32_t tracks = HB_NEED_TRACK | HB_NEED_TRACK_SLOT;
    const int is_tracking = g->o->relation >= 37 && g->o->relation <= 44;
    n_tracks = ((g->needs & tracks) || is_tracking) && n_tracks < 1 ? 1 : n_tracks;
    n_tracks = g->needs & HB_NEED_TWO_TRACKS ? 2 : n_tracks;
    n_tracks = g->is_compact && n_tracks > 1 ? 1 : n_tracks;
    add_takes(g, n_requests, n_tracks);
    int32_t n_forwards = 1 + hb_rng_below(rng, 3) + (g->is_spec && hb_rng_one_in(rng, 2));
    n_forwards = g->is_compact && n_forwards > 2 ? 2 : n_forwards;
    for (int32_t i = 0; i < n_forwards; i++) {
        if (i > 0 && !g->is_compact) {
            add_slot_ops(g);
        }
        if (g->is_spec && (i == 0 || hb_rng_one_in(rng, 2))) {
            hb_gen_add_round(g);
        } else if (!hb_gen_add_forward(g)) {
            return;
        }
    }
    if (hb_rng_one_in(rng, 12) && !g->is_compact) {
        (void)hb_gen_add_entry(g);
    }
}
