/* SPDX-License-Identifier: Apache-2.0
 * What a generated case has besides its forwards: graphs, ring, virtual ids, prefix cache, layouts, drafts. Each target is a
 * row of weights; needs of a recipe or of a relation come before them. */
#include <string.h>

#include "backend/adapter.h"
#include "harness/gen_history.h"

/* In percent of the cases. strip: of those with drafts. */
struct mix {
    int32_t spec, graphs, ring, virtual_ids, ping_pong, cache, strip, pool_pad, by_layer, tracks, slot_ops;
};

static const struct mix mixes[HB_N_TARGETS] = {
    /*                      spec graphs ring virt pp cache strip pad layer tracks ops */
    [HB_TARGET_FORWARD] = {17, 12, 10, 12, 10, 10, 30, 12, 20, 66, 0},
    [HB_TARGET_DISPATCH] = {0, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0},
    [HB_TARGET_VERIFY] = {94, 20, 8, 15, 10, 8, 30, 10, 20, 66, 0},
    [HB_TARGET_METADATA] = {30, 35, 20, 25, 10, 10, 30, 10, 20, 80, 20},
    [HB_TARGET_TRACK] = {20, 20, 20, 15, 45, 45, 20, 10, 40, 100, 0},
    [HB_TARGET_GRAPH] = {35, 100, 30, 20, 15, 8, 25, 8, 20, 66, 0},
    [HB_TARGET_SLOTS] = {15, 6, 15, 50, 30, 50, 20, 15, 20, 90, 100},
    [HB_TARGET_ATTENTION] = {45, 25, 5, 10, 10, 15, 10, 5, 20, 40, 0},
};

/* --- relations ------------------------------------------------------------------------------------------------------ */

/* Relations that need a transformed second run (invariants.md numbers), and what their cases must have for the relation to
 * say something. is_spec: of draft verification, on a case of few steps. */
static const struct {
    int32_t number, is_spec;
    uint64_t needs;
} relations[] = {
    {6, 0, 0},
    {8, 0, 0},
    {10, 0, 0},
    {11, 0, 0},
    {12, 0, 0},
    {14, 0, 0},
    {15, 0, 0},
    {16, 0, 0},
    {17, 0, 0},
    {18, 0, 0},
    {22, 0, HB_NEED_DECODE | HB_NEED_TWO_ROWS},
    {23, 0, HB_NEED_DECODE | HB_NEED_TWO_ROWS},
    {24, 0, HB_NEED_EXTEND | HB_NEED_TWO_ROWS},
    {25, 0, HB_NEED_EXTEND | HB_NEED_TWO_ROWS},
    {26, 0, HB_NEED_EXTEND},
    {27, 0, HB_NEED_EXTEND},
    {28, 0, HB_NEED_DECODE | HB_NEED_NO_TRACK},
    {29, 0, HB_NEED_EXTEND | HB_NEED_NO_TRACK},
    {30, 0, HB_NEED_M2},
    {31, 0, HB_NEED_EXTEND | HB_NEED_PREFIX | HB_NEED_NO_TRACK},
    {32, 0, HB_NEED_EXTEND},
    {33, 0, HB_NEED_DECODE | HB_NEED_NO_TRACK},
    {34, 0, HB_NEED_EXTEND},
    {36, 0, 0},
    {37, 0, HB_NEED_TRACK},
    {39, 0, HB_NEED_TRACK | HB_NEED_EXTEND},
    {40, 0, HB_NEED_TRACK},
    {41, 0, HB_NEED_TRACK | HB_NEED_EXTEND | HB_NEED_TWO_ROWS},
    {42, 0, HB_NEED_TRACK | HB_NEED_EXTEND},
    {43, 0, HB_NEED_TRACK | HB_NEED_DECODE},
    {45, 0, HB_NEED_REPLAY},
    {47, 0, HB_NEED_REPLAY},
    {49, 0, HB_NEED_REPLAY | HB_NEED_PADDING},
    {50, 1, 0},
    {51, 1, 0},
    {54, 1, 0},
    {55, 1, 0},
    {56, 1, 0},
    {58, 1, 0},
    {59, 1, 0},
    {60, 0, HB_NEED_RING | HB_NEED_DECODE},
    {62, 0, HB_NEED_MAMBA},
    {63, 0, HB_NEED_MAMBA},
    {64, 0, HB_NEED_MAMBA},
    {65, 0, HB_NEED_MAMBA},
    {66, 0, HB_NEED_MAMBA},
};
enum { N_RELATIONS = sizeof relations / sizeof relations[0], SHARE_OF_RELATIONS = 8 };

static int find_relation(int32_t number) {
    for (int i = 0; i < N_RELATIONS; i++) {
        if (relations[i].number == number) {
            return i;
        }
    }
    return -1;
}

uint64_t hb_gen_relation_needs(int32_t relation) {
    const int i = find_relation(relation);
    return i < 0 ? 0 : relations[i].needs;
}

static int is_spec_relation(int32_t relation) {
    const int i = find_relation(relation);
    return i >= 0 && relations[i].is_spec;
}

/* One case in eight, and a sixth of the cases with drafts, whose second runs need the room of a short history. */
void hb_gen_pick_relation(struct hb_gen_state *g) {
    if (g->o->relation >= 0) {
        g->relation = g->o->relation;
    } else if (g->may_relate && g->o->mode == 0 && hb_rng_one_in(&g->rng, SHARE_OF_RELATIONS)) {
        int i = hb_rng_below(&g->rng, N_RELATIONS);
        while (relations[i].is_spec) { /* these come with the cases that have drafts */
            i = (i + 1) % N_RELATIONS;
        }
        g->relation = relations[i].number;
    }
}

/* --- features ------------------------------------------------------------------------------------------------------- */

static int32_t percent(struct hb_gen_state *g, int32_t p) {
    return hb_rng_below(&g->rng, 100) < p;
}

/* Whether the case verifies drafts: by what is asked for, else by the target's share. */
static int32_t pick_spec(struct hb_gen_state *g, const struct mix *m) {
    const uint64_t verify = HB_NEED_VERIFY | HB_NEED_TREE | HB_NEED_UNIFORM | HB_NEED_RAGGED |
                            HB_NEED_NO_LINKS | HB_NEED_SPEC_ROWS | HB_NEED_TREE_STEP;
    const uint64_t other = HB_NEED_EXTEND | HB_NEED_DECODE | HB_NEED_M2 | HB_NEED_TRACK |
                           HB_NEED_TWO_TRACKS | HB_NEED_LONG_ROW;
    if (g->o->target == HB_TARGET_DISPATCH || (g->needs & HB_NEED_NO_VERIFY) ||
        (g->o->mode != 0 && g->o->mode != HB_MODE_TARGET_VERIFY)) {
        return 0;
    }
    if ((g->needs & verify) || g->o->mode == HB_MODE_TARGET_VERIFY || is_spec_relation(g->relation)) {
        return 1;
    }
    return !(g->needs & other) && g->o->relation <= 0 && percent(g, m->spec);
}

/* A relation of drafts for a sixth of the cases that have some and no relation yet. */
static void pick_spec_relation(struct hb_gen_state *g) {
    const int is_free = g->has.spec && g->may_relate && g->needs == 0 && g->o->relation < 0;
    g->is_compact = is_spec_relation(g->relation) && g->needs == 0;
    if (is_free && g->relation == 0 && hb_rng_one_in(&g->rng, 6)) {
        int i = hb_rng_below(&g->rng, N_RELATIONS);
        while (!relations[i].is_spec) {
            i = (i + 1) % N_RELATIONS;
        }
        g->relation = relations[i].number;
        g->is_compact = 1;
    }
}

/* Commits own the ring of some cases with drafts that are chains, and need nothing of other forwards: those wait for a fold
 * that seldom comes. */
static void pick_ring_owner(struct hb_gen_state *g, const struct mix *m) {
    struct hb_gen_features *has = &g->has;
    const uint64_t other = HB_NEED_TREE | HB_NEED_TREE_STEP | HB_NEED_EXTEND | HB_NEED_DECODE | HB_NEED_M2 |
                           HB_NEED_LONG_ROW | HB_NEED_PREFIX;
    const int can = has->spec && !(g->needs & other) && g->relation != 54 &&
                    g->o->state_dtype != HB_BF16 && g->mixer == HB_MIXER_MAMBA2;
    const int is_asked = (g->needs & HB_NEED_RING) && (g->needs & HB_NEED_VERIFY);
    const int wants = has->ring ? hb_rng_below(&g->rng, 3) > 0 : percent(g, m->ring) && (g->needs == 0 || g->is_compact);
    if (can && (is_asked || wants)) {
        has->ring = 1;
        has->ring_commits = 1;
    }
}

/* A ring is one of verifies as well as of decodes. */
static void pick_ring_relation(struct hb_gen_state *g) {
    const int can = g->relation == 60 && g->o->mode == 0 && g->o->target != HB_TARGET_DISPATCH;
    if (can && hb_rng_one_in(&g->rng, 2)) {
        g->needs = (g->needs & ~HB_NEED_DECODE) | HB_NEED_VERIFY;
    }
}

void hb_gen_pick_features(struct hb_gen_state *g) {
    const struct mix *m = &mixes[g->o->target];
    const uint64_t graphs = HB_NEED_REPLAY | HB_NEED_GRAPHS | HB_NEED_CAPTURED | HB_NEED_TWO_GRAPH_ROWS;
    struct hb_gen_features *has = &g->has;
    hb_gen_pick_relation(g);
    g->needs |= hb_gen_relation_needs(g->relation);
    hb_gen_pick_mixer(g);
    pick_ring_relation(g);
    has->spec = pick_spec(g, m);
    pick_spec_relation(g);
    /* short histories have no room, and other needs no use for what takes forwards away */
    const int is_plain = g->is_compact || g->relation > 0 || (g->o->mode != 0 && g->o->mode != HB_MODE_DECODE);
    const int is_bent = is_plain || (g->needs & (HB_NEED_M2 | HB_NEED_RAGGED | HB_NEED_TWO_TRACKS));
    has->graphs = (g->needs & graphs) || (percent(g, m->graphs) && !is_plain && !(g->needs & HB_NEED_NO_GRAPHS));
    has->ring = (g->needs & (HB_NEED_RING | HB_NEED_PENDING)) || (percent(g, m->ring) && !is_bent);
    has->ring = has->ring && g->mixer == HB_MIXER_MAMBA2;
    pick_ring_owner(g, m);
    has->ping_pong = percent(g, m->ping_pong) && !is_plain;
    has->cache = percent(g, m->cache) && !is_plain;
    has->strip = percent(g, m->strip) && !(g->needs & (HB_NEED_TREE | HB_NEED_TREE_STEP)) &&
                 g->relation != 54;
    has->tracks = percent(g, m->tracks) || has->cache;
    has->slot_ops = percent(g, m->slot_ops) && !is_plain;
}

static void configure_graphs(struct hb_gen_state *g) {
    struct hb_case_config *cfg = &g->c->config;
    if (!g->has.graphs) {
        return;
    }
    cfg->graph_rows = hb_rng_range(&g->rng, 2, HB_MAX_ROWS + 2);
    const int32_t most = g->has.spec ? cfg->max_draft : 3;
    const int32_t least = (g->needs & (HB_NEED_TREE | HB_NEED_NO_LINKS)) && most >= 3 ? 3 : 1;
    cfg->graph_draft = hb_rng_range(&g->rng, least, most);
}

void hb_gen_configure_features(struct hb_gen_state *g) {
    static const int32_t lengths[] = {1, 2, 2, 3, 3, 4, 4, 5, 8, 16, 64};
    static const int32_t pads[] = {1, 2, 3, 4, 7, 16, 64};
    struct hb_case_config *cfg = &g->c->config;
    struct hb_rng *r = &g->rng;
    const struct mix *m = &mixes[g->o->target];
    const int32_t least = (g->needs & (HB_NEED_TREE | HB_NEED_NO_LINKS | HB_NEED_TREE_STEP)) ? 3 : 1;
    if (g->has.spec) {
        cfg->max_draft = g->is_compact ? hb_rng_range(r, 2, 4) : 1 + hb_rng_below(r, hb_rng_one_in(r, 2) ? 4 : HB_MAX_DRAFT);
        cfg->max_draft = cfg->max_draft < least ? least : cfg->max_draft;
        cfg->spare_rows = hb_rng_one_in(r, 3) ? hb_rng_below(r, 3) : 0;
        cfg->window_layout = g->has.strip ? HB_WINDOWS_STRIP : HB_WINDOWS_DENSE;
    }
    configure_graphs(g);
    cfg->track_chunks = hb_rng_one_in(r, 3) ? hb_rng_range(r, 1, 4) : 1;
    if (g->has.ring) {
        cfg->ring_length = lengths[hb_rng_below(r, (int32_t)(sizeof lengths / sizeof *lengths))];
        cfg->ring_length = (g->needs & HB_NEED_PENDING) && cfg->ring_length < 2 ? 4 : cfg->ring_length;
    }
    if (g->has.ring_commits) { /* small: it folds often, and wraps */
        static const int32_t verifies[] = {2, 2, 2, 3, 4, 8};
        const int32_t room = cfg->max_draft * verifies[hb_rng_below(r, (int32_t)(sizeof verifies / sizeof *verifies))];
        cfg->ring_owner = HB_RING_COMMIT;
        cfg->state_dtype = HB_FP32;
        cfg->ring_length = 1;
        while (cfg->ring_length < room) { /* at most 8 * 8 */
            cfg->ring_length *= 2;
        }
    }
    const int wants_virtual = (g->needs & HB_NEED_VIRTUAL) != 0;
    if (wants_virtual || (percent(g, m->virtual_ids) && !(g->needs & HB_NEED_STATIC))) {
        cfg->virtual_ids = (g->needs & HB_NEED_FEW_IDS) ? 1 : 1 + hb_rng_below(r, 6);
    }
    cfg->ping_pong = g->has.ping_pong ? hb_rng_range(r, HB_PING_PONG_ONE, HB_PING_PONG_LAZY) : HB_PING_PONG_OFF;
    cfg->pool_pad = percent(g, m->pool_pad) ? pads[hb_rng_below(r, (int32_t)(sizeof pads / sizeof *pads))] : 0;
    cfg->track_by_layer = percent(g, m->by_layer);
    if (g->o->target == HB_TARGET_TRACK && hb_rng_one_in(r, 3)) {
        cfg->page_chunks = cfg->chunk_size <= 8 && hb_rng_one_in(r, 2) ? 4 : 2;
    }
}
