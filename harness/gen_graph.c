/* SPDX-License-Identifier: Apache-2.0
 * Generation of graphs: sizes that are captured, and replays of them with any number of padding rows. */
#include "backend/adapter.h"
#include "harness/gen_history.h"

/* A batch size of the graphs that is not captured yet, 0 if all are. */
static int32_t fresh_size(struct hb_gen_state *g) {
    const int32_t start = hb_rng_below(&g->rng, g->h.graph_rows);
    for (int32_t i = 0; i < g->h.graph_rows; i++) {
        const int32_t bs = 1 + (start + i) % g->h.graph_rows;
        if (!g->h.captured[bs].is_captured) {
            return bs;
        }
    }
    return 0;
}

static int32_t captured_mode(struct hb_gen_state *g) {
    const int can_verify = g->has.spec && g->h.graph_draft <= g->c->config.max_draft;
    if (can_verify && ((g->needs & HB_NEED_VERIFY) || hb_rng_one_in(&g->rng, 2)) &&
        !(g->needs & HB_NEED_DECODE)) {
        return HB_MODE_TARGET_VERIFY;
    }
    return hb_rng_one_in(&g->rng, 10) && !g->needs && g->o->mode == 0 ? HB_MODE_IDLE : HB_MODE_DECODE;
}

static int add_capture(struct hb_gen_state *g, int32_t bs) {
    struct hb_case_step s;
    const struct hb_case_config *cfg = &g->c->config;
    hb_gen_step_init(&s, HB_STEP_CAPTURE);
    s.bs = bs;
    s.mode = captured_mode(g);
    if (s.mode == HB_MODE_TARGET_VERIFY) {
        const int takes_links = cfg->window_layout == HB_WINDOWS_DENSE && !(g->needs & HB_NEED_NO_LINKS) &&
                                !g->has.ring_commits;
        s.nodes = g->h.graph_draft;
        s.optional = takes_links && ((g->needs & HB_NEED_TREE) || hb_rng_one_in(&g->rng, 2)) ? 128 : 0;
    }
    /* the ring needs every Mamba2 layer */
    const int needs_all = hb_case_ring_has_mode(g->c, s.mode);
    if (cfg->n_layers > 1 && hb_rng_one_in(&g->rng, 16)) {
        s.layer_mask = 1 << hb_rng_below(&g->rng, cfg->n_layers);
        s.layer_mask &= needs_all ? cfg->attn_mask : ~0;
    }
    return hb_gen_push(g, &s);
}

void hb_gen_add_graphs(struct hb_gen_state *g) {
    struct hb_case_step s;
    const struct hb_case_config *cfg = &g->c->config;
    hb_gen_step_init(&s, HB_STEP_GRAPH_INIT);
    s.bs = hb_rng_one_in(&g->rng, 2) ? cfg->graph_rows : hb_rng_range(&g->rng, 1, cfg->graph_rows);
    s.bs = (g->needs & HB_NEED_TWO_GRAPH_ROWS) && s.bs < 2 ? 2 : s.bs;
    s.nodes = hb_rng_one_in(&g->rng, 2) || (g->needs & (HB_NEED_TREE | HB_NEED_NO_LINKS))
                  ? cfg->graph_draft
                  : hb_rng_range(&g->rng, 1, cfg->graph_draft);
    if (!hb_gen_push(g, &s)) {
        return;
    }
    /* small sizes and the largest one: the first fits few live rows, the last is mostly padding */
    const int32_t n = hb_rng_range(&g->rng, 1, g->o->target == HB_TARGET_GRAPH ? 3 : 2);
    for (int32_t i = 0; i < n; i++) {
        const int32_t small = g->h.graph_rows < 5 ? g->h.graph_rows : 5;
        int32_t bs = i == 1 ? g->h.graph_rows : hb_rng_range(&g->rng, 1, small);
        bs = g->h.captured[bs].is_captured ? fresh_size(g) : bs;
        if (bs > 0) {
            (void)add_capture(g, bs);
        }
    }
}

static void pick_rows(struct hb_gen_state *g, int32_t bs, struct hb_case_step *s) {
    int32_t live[HB_MAX_REQS];
    const int is_verify = s->mode == HB_MODE_TARGET_VERIFY;
    int32_t n_live = is_verify ? hb_gen_drafted(g, live) : hb_gen_live(g, g->has.ring_commits, live);
    n_live = n_live < bs ? n_live : bs;
    n_live = n_live < g->max_requests ? n_live : g->max_requests;
    const int32_t least = bs > HB_MAX_ROWS ? bs - HB_MAX_ROWS : 0; /* a step has so many padding rows at most */
    int32_t n = hb_rng_one_in(&g->rng, 8) && !g->needs ? 0 : n_live - hb_rng_below(&g->rng, 2);
    n = (g->needs & (HB_NEED_TWO_ROWS | HB_NEED_TWO_TRACKS | HB_NEED_LATER_TOKENS)) ? n_live : n;
    n = (g->needs & HB_NEED_PADDING) && n == bs ? bs - 1 : n;
    n = n < least ? least : n;
    n = n > n_live ? n_live : n;
    n = n == 0 && n_live > 0 && g->needs ? 1 : n;
    s->n_rows = n;
    s->pad_rows = bs - n;
    for (int32_t r = 0; r < n; r++) {
        s->row[r].request = live[r];
        s->row[r].length = is_verify ? g->h.graph_draft : 1;
    }
}

/* num_padding may be left out where the ones of seq_lens_cpu are those of the padding rows. */
static void pick_padding(struct hb_gen_state *g, struct hb_case_step *s) {
    int can_count = 1;
    for (int32_t r = 0; r < s->n_rows; r++) {
        can_count &= hb_history_seq_len(&g->h, s, r) > 1;
    }
    const int wants = (g->needs & HB_NEED_CPU) != 0;
    s->optional |= wants || hb_rng_one_in(&g->rng, 2) ? 32 : 0;
    if (s->optional & 32) {
        s->optional |= can_count && hb_rng_one_in(&g->rng, 2) ? 64 : 0;
    } else {
        s->optional |= s->pad_rows == 0 && hb_rng_one_in(&g->rng, 3) ? 64 : 0;
    }
}

static int add_replay_of(struct hb_gen_state *g, int32_t bs) {
    struct hb_case_step s;
    const struct hb_captured *cap = &g->h.captured[bs];
    hb_gen_step_init(&s, HB_STEP_FORWARD);
    s.replay = 1;
    s.mode = cap->mode;
    pick_rows(g, bs, &s);
    if (s.pad_rows > HB_MAX_ROWS) {
        return 0; /* too few live requests for so large a graph */
    }
    if (s.mode == HB_MODE_TARGET_VERIFY) {
        s.draft = g->h.graph_draft;
        s.tree = !cap->has_links               ? HB_TREE_CHAIN
                 : hb_rng_one_in(&g->rng, 5) ? HB_TREE_LINKED_CHAIN
                                             : hb_rng_range(&g->rng, HB_TREE_RANDOM, HB_TREE_MAX);
        s.tree = cap->has_links && (g->needs & HB_NEED_TREE) && s.tree < HB_TREE_RANDOM ? HB_TREE_RANDOM : s.tree;
    } else if (s.mode == HB_MODE_DECODE && !(g->needs & HB_NEED_NO_TRACK)) {
        hb_gen_pick_tracks(g, &s);
    }
    s.optional = hb_rng_below(&g->rng, 4) == 0 ? 4 : 0;
    s.optional |= ((g->needs & HB_NEED_MASK) || hb_rng_one_in(&g->rng, 4)) && !(g->needs & HB_NEED_NO_MASK) ? 8 : 0;
    s.optional |= hb_rng_one_in(&g->rng, 8) ? 16 : 0;
    pick_padding(g, &s);
    if (!hb_gen_push(g, &s)) {
        return 0;
    }
    if (s.mode == HB_MODE_TARGET_VERIFY && s.n_rows > 0) {
        hb_gen_add_commits(g);
    }
    return 1;
}

int hb_gen_add_replay(struct hb_gen_state *g) {
    if (g->h.graph_rows == 0) {
        return 0;
    }
    if (hb_rng_one_in(&g->rng, 10) && g->c->n_steps < HB_MAX_STEPS - 3 && g->relation == 0) {
        const int32_t bs = fresh_size(g);
        (void)(bs > 0 && add_capture(g, bs));
    }
    const int32_t start = hb_rng_below(&g->rng, g->h.graph_rows);
    for (int32_t i = 0; i < g->h.graph_rows; i++) {
        const int32_t bs = 1 + (start + i) % g->h.graph_rows;
        if (g->h.captured[bs].is_captured && add_replay_of(g, bs)) {
            return 1;
        }
    }
    return 0;
}
