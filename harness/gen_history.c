/* SPDX-License-Identifier: Apache-2.0
 * The builder of valid histories: forwards, entries, and their order. Slots between them: gen_slots.c. */
#include "harness/gen_history.h"

#include <string.h>

#include "backend/adapter.h"

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

/* Lengths at which kernels and metadata change their way. */
int32_t hb_gen_edge_length(struct hb_gen_state *g) {
    const int32_t w = g->c->config.conv_width - 1;
    const int32_t chunk = g->c->config.chunk_size;
    const int32_t edges[] = {1, w - 1, w, w + 1, chunk - 1, chunk, chunk + 1, 2 * chunk};
    const int32_t n = edges[hb_rng_below(&g->rng, (int32_t)(sizeof edges / sizeof *edges))];
    return n < 1 ? 1 : n;
}

/* Live requests in random order; returns their number. */
int32_t hb_gen_live(struct hb_gen_state *g, int32_t is_folded, int32_t out[HB_MAX_REQS]) {
    int32_t n = 0;
    for (int32_t r = 0; r < HB_MAX_REQS; r++) {
        if (hb_history_is_live(&g->h, r) && !(is_folded && hb_history_cursor(&g->h, r) > 0)) {
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
    if (g->has.ring && !g->has.ring_commits && !(g->needs & HB_NEED_EXTEND) && hb_rng_below(&g->rng, 3) > 0) {
        return HB_MODE_DECODE; /* rings fill slowly */
    }
    if (g->needs & HB_NEED_DECODE) {
        return HB_MODE_DECODE;
    }
    const int32_t n = (int32_t)(sizeof weighted / sizeof *weighted);
    int32_t mode = weighted[hb_rng_below(&g->rng, n)];
    while ((g->needs & HB_NEED_EXTEND) && !hb_mode_is_extend(mode)) {
        mode = weighted[hb_rng_below(&g->rng, n)];
    }
    switch (g->relation) { /* relations that speak of one mode */
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
    int32_t n = hb_rng_below(&g->rng, 3) < (g->is_near ? 2 : 1) ? hb_gen_edge_length(g)
                                                                : 1 + hb_rng_below(&g->rng, budget);
    const int32_t cc = hb_case_cache_chunk(g->c);
    const int is_tracked = (g->needs & (HB_NEED_TRACK | HB_NEED_TWO_TRACKS)) != 0;
    const int is_often = g->o->target == HB_TARGET_TRACK && cc <= 32 && hb_rng_one_in(&g->rng, 3);
    if ((is_tracked && n < cc) || is_often) {
        /* tracking needs a whole cache chunk, whatever the budget says; the end is off the grid mostly */
        return cc + hb_rng_below(&g->rng, cc);
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

int32_t hb_gen_usable_tracks(struct hb_gen_state *g, int32_t out[HB_MAX_STEPS]) {
    int32_t n = 0;
    for (int32_t k = 0; k < g->h.n_tracks; k++) {
        const struct hb_taken *t = &g->h.take[g->h.track[k]];
        if (!t->is_free && !t->is_tree) {
            out[n++] = k;
        }
    }
    hb_rng_shuffle(&g->rng, out, n);
    return n;
}

/* Track slots that exist, each one once, extend rows of a cache chunk or more. With ping-pong each request has its own. */
void hb_gen_pick_tracks(struct hb_gen_state *g, struct hb_case_step *s) {
    int32_t usable[HB_MAX_STEPS];
    int32_t n = hb_gen_usable_tracks(g, usable);
    const int has_own = g->c->config.ping_pong != HB_PING_PONG_OFF;
    const int32_t cc = hb_case_cache_chunk(g->c);
    const int is_forced = (g->needs & (HB_NEED_TRACK | HB_NEED_TWO_TRACKS)) != 0;
    for (int32_t r = 0; r < s->n_rows; r++) {
        struct hb_case_row *row = &s->row[r];
        const int is_decode_row = s->mode == HB_MODE_DECODE;
        const int is_extend_row = hb_mode_is_extend(s->mode) && r < s->n_rows - s->n_decode;
        const int can = has_own ? hb_ping_pong_target(&g->h.ping_pong[row->request]) > 0 : n > 0;
        if (!can || (!is_decode_row && !(is_extend_row && row->length >= cc)) ||
            (!is_forced && hb_rng_below(&g->rng, 3) == 0)) {
            continue;
        }
        row->track = 1;
        row->track_slot = has_own ? 0 : usable[--n];
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
    s->optional = hb_rng_one_in(&g->rng, 3) ? 0 : hb_rng_below(&g->rng, 64);
    s->optional |= g->has.ring && hb_rng_one_in(&g->rng, 2) ? 32 : 0;
    s->optional |= (g->needs & HB_NEED_START_LOC) ? 1 : 0;
    s->optional |= (g->needs & HB_NEED_LENS_CPU) ? 2 : 0;
    s->optional |= (g->needs & HB_NEED_ORIGINAL) ? 4 : 0;
    s->optional |= (g->needs & HB_NEED_MASK) ? 8 : 0;
    s->optional |= (g->needs & HB_NEED_CPU) ? 32 : 0;
    s->optional &= (g->needs & HB_NEED_NO_CPU) ? ~32 : ~0;
    s->optional &= (g->needs & HB_NEED_NO_EXTRAS) ? ~3 : ~0;
    s->optional &= (g->needs & HB_NEED_NO_MASK) ? ~8 : ~0;
    if (g->c->config.n_layers > 1 && hb_rng_one_in(&g->rng, 24)) {
        s->layer_mask = 1 << hb_rng_below(&g->rng, g->c->config.n_layers);
    }
    if (hb_case_ring_has_mode(g->c, s->mode)) {
        s->layer_mask &= g->c->config.attn_mask; /* a ring needs every Mamba2 layer */
    }
}

int hb_gen_add_forward(struct hb_gen_state *g) {
    struct hb_case_step s;
    int32_t live[HB_MAX_REQS];
    if (g->o->mode == HB_MODE_TARGET_VERIFY && g->has.spec && hb_gen_add_verify(g)) {
        return 1;
    }
    hb_gen_step_init(&s, HB_STEP_FORWARD);
    s.mode = pick_mode(g);
    /* all modes but that of the ring start from what is folded */
    const int needs_folded = s.mode != HB_MODE_IDLE && s.mode != hb_case_ring_mode(g->c);
    int32_t n_live = hb_gen_live(g, needs_folded, live);
    if (needs_folded && n_live == 0 && g->has.ring_commits && hb_gen_add_verify(g)) {
        return 1;
    }
    if (needs_folded && n_live == 0 && g->o->mode == 0 && g->has.ring && !g->has.ring_commits) {
        s.mode = HB_MODE_DECODE;
        n_live = hb_gen_live(g, 0, live);
    }
    int32_t n = 1 + hb_rng_below(&g->rng, n_live);
    const uint64_t pairs = HB_NEED_TWO_ROWS | HB_NEED_TWO_TRACKS | HB_NEED_M2 | HB_NEED_LONG_ROW |
                           HB_NEED_LATER_TOKENS;
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
        hb_gen_pick_tracks(g, &s);
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
    const int32_t n_live = hb_gen_live(g, 1, live);
    if (n_live > 0 && hb_rng_below(&g->rng, 4) > 0) {
        s.mode = s.direction == HB_ENTRY_DECODE ? HB_MODE_DECODE : HB_MODE_EXTEND;
        s.mode = hb_rng_one_in(&g->rng, 6) ? HB_MODE_IDLE : s.mode;
        s.n_rows = 1;
        s.row[0].request = live[0];
        if (hb_case_ring_has_mode(g->c, s.mode)) {
            s.mode = HB_MODE_EXTEND; /* no layer but one runs */
        }
        s.row[0].length = s.mode == HB_MODE_EXTEND ? row_length(g, 6) : 1;
    }
    return hb_gen_push(g, &s);
}

/* Requests and track slots that a history begins with. */
static void pick_counts(struct hb_gen_state *g, int32_t *n_requests, int32_t *n_tracks) {
    struct hb_rng *rng = &g->rng;
    const uint64_t pairs = HB_NEED_TWO_ROWS | HB_NEED_TWO_TRACKS | HB_NEED_M2 | HB_NEED_OUTSIDER |
                           HB_NEED_LONG_ROW | HB_NEED_LATER_TOKENS;
    const int32_t most = g->is_compact ? 2 : 3; /* leaves steps for commits */
    int32_t n = 1 + hb_rng_below(rng, g->max_requests);
    n = (g->has.spec || g->has.graphs) && n > most ? most : n;
    n = ((g->needs & pairs) || g->relation == 58) && n < 2 ? 2 : n;
    int32_t t = g->has.tracks ? hb_rng_range(rng, 1, 2) : 0;
    const int is_tracking = g->relation >= 37 && g->relation <= 44;
    t = ((g->needs & (HB_NEED_TRACK | HB_NEED_TRACK_SLOT)) || is_tracking) && t < 1 ? 1 : t;
    t = (g->needs & HB_NEED_TWO_TRACKS) ? 2 : t;
    t = g->is_compact && t > 1 ? 1 : t;
    *n_requests = n;
    *n_tracks = g->c->config.ping_pong != HB_PING_PONG_OFF ? 0 : t;
}

/* One of: a replay, drafts, a forward. */
static int add_work(struct hb_gen_state *g, int32_t i) {
    const int is_asked = (g->needs & HB_NEED_REPLAY) != 0;
    const int is_often = g->o->target == HB_TARGET_GRAPH || is_asked;
    if (g->has.graphs && hb_rng_below(&g->rng, is_often ? 4 : 2) > 0 && hb_gen_add_replay(g)) {
        return 1;
    }
    if (g->has.spec && (i == 0 || hb_rng_one_in(&g->rng, 2) || (g->has.ring_commits && hb_rng_below(&g->rng, 4)))) {
        const int32_t n = g->c->n_steps;
        hb_gen_add_round(g);
        return g->c->n_steps > n;
    }
    return hb_gen_add_forward(g);
}

void hb_gen_history(struct hb_gen_state *g) {
    struct hb_rng *rng = &g->rng;
    hb_history_init(&g->h, HB_MAX_HELD, 0);
    int32_t n_requests = 0;
    int32_t n_tracks = 0;
    pick_counts(g, &n_requests, &n_tracks);
    const int is_late = hb_rng_one_in(rng, 3); /* graphs are captured while requests live, or before */
    if (g->has.graphs && !is_late) {
        hb_gen_add_graphs(g);
    }
    hb_gen_add_takes(g, n_requests, n_tracks);
    if (g->has.graphs && is_late) {
        hb_gen_add_graphs(g);
    }
    int32_t n_forwards = 1 + hb_rng_below(rng, 3) + (g->has.spec && hb_rng_one_in(rng, 2));
    n_forwards += g->has.ring || g->has.graphs ? hb_rng_range(rng, 2, 4) : 0;
    n_forwards += g->has.cache || g->has.ping_pong ? 1 : 0;
    n_forwards = g->is_compact && n_forwards > 2 ? 2 : n_forwards;
    for (int32_t i = 0; i < n_forwards; i++) {
        if (i > 0 && !g->is_compact) {
            hb_gen_add_slot_ops(g);
        }
        if (!add_work(g, i)) {
            return;
        }
    }
    if (hb_rng_one_in(rng, 12) && !g->is_compact) {
        (void)hb_gen_add_entry(g);
    }
}
