/* SPDX-License-Identifier: Apache-2.0
 * Application of recipes: finds a step that meets the needs and resolves rows and values there. */
#include "harness/gen_recipes.h"

#include <limits.h>
#include <string.h>

#include "backend/adapter.h"

/* --- what a place offers
 * --------------------------------------------------------------------------- */

static int32_t first_token(const struct hb_case_step *s, int32_t row) {
    int32_t n = 0;
    for (int32_t r = 0; r < row; r++) {
        n += s->row[r].length;
    }
    return n;
}

/* Index in req_to_token of the entry of position `pos` of row r's request. */
static int32_t map_index(const struct hb_spot *p, int32_t r, int32_t pos) {
    return hb_case_req_index(p->c, p->s->row[r].request) * p->config.max_context + pos;
}

static int32_t row_position(const struct hb_spot *p, int32_t r) {
    return hb_history_position(&p->h, p->s->row[r].request);
}

static int32_t slot_of(const struct hb_spot *p, int32_t request) {
    const int32_t t = p->h.request_take[request];
    return t >= 0 ? p->h.take[t].id : 0;
}

static int has_layer(const struct hb_spot *p, int32_t kind) {
    for (int32_t l = 0; l < p->config.n_layers; l++) {
        if (p->config.layer_kind[l] == kind) {
            return 1;
        }
    }
    return 0;
}

static int32_t find_outsider(const struct hb_spot *p) {
    for (int32_t q = 0; q < HB_MAX_REQS; q++) {
        int in_batch = 0;
        for (int32_t r = 0; r < p->s->n_rows; r++) {
            in_batch |= p->s->row[r].request == q;
        }
        if (!in_batch && hb_history_is_live(&p->h, q)) {
            return q;
        }
    }
    return -1;
}

/* Id of a track slot that is no checkpoint of the cache, 0 none. */
static int32_t live_track_slot(const struct hb_spot *p) {
    for (int32_t k = 0; k < p->h.n_tracks; k++) {
        if (!p->h.take[p->h.track[k]].is_free) {
            return p->h.take[p->h.track[k]].id;
        }
    }
    for (int32_t q = 0; q < HB_MAX_REQS; q++) {
        if (p->h.ping_pong[q].slot[0] > 0) {
            return p->h.ping_pong[q].slot[0];
        }
    }
    return 0;
}

/* A row behind the first with two tokens or more: an entry 1 before it is no padding. */
static int has_later_tokens(const struct hb_spot *p) {
    for (int32_t r = 1; r < p->s->n_rows; r++) {
        if (hb_history_seq_len(&p->h, p->s, r) > 1) {
            return 1;
        }
    }
    return 0;
}

/* A replay of what has been captured as the step needs it. */
static int is_good_replay(const struct hb_spot *p) {
    const int32_t bs = p->s->n_rows + p->s->pad_rows;
    return p->s->replay && bs <= HB_MAX_CAPTURE && p->h.captured[bs].is_captured &&
           p->h.captured[bs].mode == p->s->mode;
}

/* What the step itself offers, as need bits. */
static uint64_t offers_of_step(const struct hb_spot *p) {
    const struct hb_case_step *s = p->s;
    const int is_extend = hb_mode_is_extend(s->mode);
    const int32_t n_extend = is_extend ? s->n_rows - s->n_decode : 0;
    const int32_t longest_sum = n_extend > 0 ? first_token(s, n_extend) : 0;
    uint64_t o = 0;
    o |= n_extend > 0 ? HB_NEED_EXTEND : 0;
    o |= s->mode == HB_MODE_DECODE && s->n_rows > 0 ? HB_NEED_DECODE : 0;
    o |= s->mode == HB_MODE_MIXED && s->n_decode > 0 ? HB_NEED_M2 : 0;
    o |= p->track >= 0 ? HB_NEED_TRACK | HB_NEED_MASK : HB_NEED_NO_TRACK;
    o |= p->track2 >= 0 ? HB_NEED_TWO_TRACKS : 0;
    o |= s->mode != HB_MODE_IDLE && s->n_rows > 0 ? HB_NEED_ROW : 0;
    o |= s->mode != HB_MODE_IDLE && s->n_rows > 1 ? HB_NEED_TWO_ROWS : 0;
    o |= s->pad_rows > 0 ? HB_NEED_PADDING | HB_NEED_ORIGINAL : 0;
    o |= s->optional & 1 ? HB_NEED_START_LOC : 0;
    o |= s->optional & 2 ? HB_NEED_LENS_CPU : 0;
    o |= (s->optional & 3) == 0 ? HB_NEED_NO_EXTRAS : 0;
    o |= s->optional & 4 ? HB_NEED_ORIGINAL : 0;
    o |= s->optional & 8 ? HB_NEED_MASK : 0;
    o |= (o & HB_NEED_MASK) ? 0 : HB_NEED_NO_MASK;
    o |= longest_sum > 1 ? HB_NEED_LONG_ROW : 0;
    o |= p->outsider >= 0 ? HB_NEED_OUTSIDER : 0;
    o |= s->replay ? 0 : HB_NEED_EAGER;
    o |= is_good_replay(p) ? HB_NEED_REPLAY : 0;
    const int reads_cpu = s->mode == HB_MODE_DECODE || s->mode == HB_MODE_TARGET_VERIFY;
    o |= reads_cpu && (s->optional & 32) ? HB_NEED_CPU : HB_NEED_NO_CPU;
    o |= has_later_tokens(p) ? HB_NEED_LATER_TOKENS : 0;
    return o;
}

/* Rows of a commit that count. */
static int32_t commit_rows(const struct hb_spot *p) {
    return p->s->n_rows < p->h.drafted.n_rows ? p->s->n_rows : p->h.drafted.n_rows;
}

static uint64_t offers_of_commit(const struct hb_spot *p) {
    uint64_t o = HB_NEED_VERIFY;
    o |= p->track >= 0 ? HB_NEED_TRACK : 0;
    o |= p->track2 >= 0 ? HB_NEED_TWO_TRACKS : 0;
    return o;
}

static int32_t longest_row(const struct hb_case_step *s) {
    int32_t longest = 0;
    for (int32_t r = 0; r < s->n_rows; r++) {
        longest = s->row[r].length > longest ? s->row[r].length : longest;
    }
    return longest;
}

static uint64_t offers_of_verify(const struct hb_spot *p) {
    const struct hb_case_step *s = p->s;
    if (!hb_step_is_verify(s)) {
        return HB_NEED_NO_VERIFY;
    }
    uint64_t o = s->n_rows > 0 ? HB_NEED_VERIFY : 0;
    o |= s->tree != HB_TREE_CHAIN && longest_row(s) >= 3 ? HB_NEED_TREE : 0;
    o |= s->tree == HB_TREE_CHAIN && longest_row(s) >= 2 ? HB_NEED_NO_LINKS : 0;
    o |= s->ragged ? HB_NEED_RAGGED : HB_NEED_UNIFORM;
    return o;
}

/* Slots that lazy ping-pong may still take right before the step's call: the first of the free list. */
static int32_t lazy_slots(const struct hb_spot *p) {
    int32_t n = 0;
    for (int32_t q = 0; q < HB_MAX_REQS; q++) {
        const struct hb_ping_pong_table *t = &p->h.ping_pong[q];
        n += t->mode == HB_PING_PONG_LAZY && (t->slot[0] == 0 || t->slot[1] == 0);
    }
    return n;
}

/* Of the graphs, and of the history up to the step. */
static uint64_t offers_of_history(const struct hb_spot *p) {
    uint64_t o = p->h.graph_rows > 0 ? HB_NEED_GRAPHS : HB_NEED_NO_GRAPHS;
    for (int32_t bs = 1; bs <= p->h.graph_rows && bs <= HB_MAX_CAPTURE; bs++) {
        o |= p->h.captured[bs].is_captured ? HB_NEED_CAPTURED : 0;
    }
    for (int32_t q = 0; q < HB_MAX_REQS; q++) {
        o |= hb_history_is_live(&p->h, q) ? HB_NEED_LIVE : 0;
    }
    o |= hb_recipe_pending(&p->h) >= 0 ? HB_NEED_PENDING : 0;
    o |= p->h.n_free > lazy_slots(p) ? HB_NEED_FREE_SLOT : 0;
    o |= live_track_slot(p) > 0 ? HB_NEED_TRACK_SLOT : 0;
    return o;
}

static uint64_t offers_of_mixer(const struct hb_spot *p) {
    const int32_t mixer = p->c->config.mixer;
    if (!has_layer(p, hb_case_linear_kind(&p->c->config))) {
        return HB_NEED_REFUSAL; /* as a Mamba2 child does */
    }
    uint64_t o = HB_NEED_MAMBA;
    o |= mixer != HB_MIXER_MAMBA2 ? HB_NEED_OTHER_MIXER : HB_NEED_MAMBA2;
    o |= mixer == HB_MIXER_KDA ? HB_NEED_KDA : 0;
    o |= mixer == HB_MIXER_SHORT_CONV ? HB_NEED_SHORT_CONV : 0;
    o |= mixer == HB_MIXER_MAMBA2 || mixer == HB_MIXER_MAMBA1 ? HB_NEED_REFUSAL : 0;
    for (int32_t l = 1; l < p->config.n_layers; l++) {
        o |= p->config.layer_kind[l] != HB_LAYER_ATTENTION ? HB_NEED_LATER_LINEAR : 0;
    }
    return o;
}

static uint64_t offers_of_config(const struct hb_spot *p) {
    const struct hb_config *g = &p->config;
    uint64_t o = g->spec_rows - p->c->config.spare_rows > 1 ? HB_NEED_SPEC_ROWS : 0;
    o |= has_layer(p, HB_LAYER_ATTENTION) ? HB_NEED_ATTENTION : 0;
    o |= offers_of_mixer(p);
    o |= p->c->config.dt_clamp != HB_CLAMP_NONE ? HB_NEED_CLAMP : 0;
    o |= g->chunk_size >= 8 ? HB_NEED_CHUNK_8 : 0;
    o |= g->ring_length > 0 ? HB_NEED_RING : 0;
    o |= g->n_virtual > 0 ? HB_NEED_VIRTUAL : HB_NEED_STATIC;
    o |= g->n_virtual <= g->n_slots ? HB_NEED_FEW_IDS : 0;
    o |= g->n_slots >= 2 ? HB_NEED_TWO_SLOTS : 0;
    for (int32_t i = 0; i < p->c->n_steps && g->window_layout == HB_WINDOWS_DENSE; i++) {
        const struct hb_case_step *s = &p->c->step[i];
        o |= hb_step_is_verify(s) && s->kind == HB_STEP_FORWARD && !s->replay && s->n_rows > 0 &&
                     s->tree != HB_TREE_CHAIN
                 ? HB_NEED_TREE_STEP
                 : 0;
    }
    return o;
}

static uint64_t offers(const struct hb_spot *p) {
    uint64_t o = offers_of_history(p) | offers_of_config(p);
    if (!p->s) {
        o |= p->h.drafted.is_valid && p->h.drafted.n_rows > 0 ? HB_NEED_VERIFY : 0;
    } else if (p->s->kind == HB_STEP_COMMIT) {
        o |= offers_of_commit(p);
    } else if (p->s->kind == HB_STEP_FORWARD) {
        o |= offers_of_step(p) | offers_of_verify(p);
    } else if (p->s->kind == HB_STEP_CAPTURE) {
        o |= p->s->mode == HB_MODE_TARGET_VERIFY ? HB_NEED_VERIFY : 0;
        o |= p->s->optional & 128 ? 0 : HB_NEED_NO_LINKS;
    } else {
        o |= p->s->bs > 1 ? HB_NEED_TWO_GRAPH_ROWS : 0;
    }
    o |= p->c->n_steps < HB_MAX_STEPS ? HB_NEED_ROOM : 0;
    return o;
}

/* Chooses rows; a row with tokens before it where the recipe needs one. */
static uint64_t choose_rows(struct hb_spot *p, uint64_t needs) {
    const struct hb_case_step *s = p->s;
    const int32_t n_extend = s->n_rows - s->n_decode;
    const int32_t n = (needs & HB_NEED_EXTEND) ? n_extend : s->n_rows;
    p->row = hb_rng_below(p->rng, n);
    p->row2 = n > 1 ? (p->row + 1 + hb_rng_below(p->rng, n - 1)) % n : p->row;
    if (s->n_rows > 1 && p->row2 == p->row) {
        p->row2 = (p->row + 1) % s->n_rows;
    }
    p->track = p->track2 = -1;
    for (int32_t r = 0; r < s->n_rows; r++) {
        if (s->row[r].track) {
            p->track2 = p->track >= 0 ? r : -1;
            p->track = p->track >= 0 ? p->track : r;
        }
    }
    p->outsider = find_outsider(p);
    for (int32_t r = 0; r < s->n_rows && (needs & HB_NEED_TREE); r++) {
        p->row = s->row[r].length >= 3 ? r : p->row;
    }
    if (!(needs & HB_NEED_PREFIX)) {
        return 0;
    }
    for (int32_t r = 0; r < s->n_rows; r++) {
        if (row_position(p, r) > 0 && s->mode != HB_MODE_IDLE) {
            p->row = r;
            return HB_NEED_PREFIX;
        }
    }
    return 0;
}

/* --- rows and values
 * -------------------------------------------------------------------------------------------- */

static int32_t row_of(const struct hb_spot *p, enum at at) {
    switch (at) {
    case AT_0:
        return 0;
    case AT_1:
        return 1;
    case AT_ROW:
        return p->row;
    case AT_ROW2:
        return p->row2;
    case AT_PAD:
        return p->s->n_rows + hb_rng_below(p->rng, p->s->pad_rows);
    case AT_LAST:
        return p->s->n_rows - 1;
    case AT_TRACK:
        return p->track;
    case AT_TRACK2:
        return p->track2;
    case AT_REQUEST:
        return p->s->row[p->row].request;
    case AT_ANY:
        return hb_rng_below(p->rng, 4);
    case AT_TOKEN:
        return first_token(p->s, p->row);
    case AT_TOKEN2:
        return first_token(p->s, p->row2);
    case AT_MAP_NEW:
        return map_index(p, p->row, row_position(p, p->row));
    case AT_MAP_NEW2:
        return map_index(p, p->row2, row_position(p, p->row2));
    case AT_MAP_OLD:
        return map_index(p, p->row, hb_rng_below(p->rng, row_position(p, p->row)));
    case AT_LAYOUT_END:
        return p->s->n_rows + p->s->pad_rows;
    case AT_ROOT:
        return p->row * hb_case_draft(p->s);
    case AT_NODE:
        return p->row * hb_case_draft(p->s) + 1;
    case AT_VARIANT:
        return hb_rng_below(p->rng, 23);
    case AT_LAYER_KIND:
        return 7;
    case AT_WINDOWS:
        return 8;
    case AT_GATE_FORM:
        return 14;
    case AT_OWNER:
        return 22;
    default:
        return 0;
    }
}

#define ONE_OF(rng, ...)                                                                           \
    one_of(rng, (const int64_t[]){__VA_ARGS__},                                                    \
           (int32_t)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)))

static int64_t one_of(struct hb_rng *rng, const int64_t *values, int32_t n) {
    return values[hb_rng_below(rng, n)];
}

/* A linear kind that is not the mixer's. */
static int32_t other_kind(struct hb_rng *rng, int32_t mixer) {
    const struct hb_case_config other = {.mixer = (mixer + hb_rng_range(rng, 1, HB_N_MIXERS - 1)) % HB_N_MIXERS};
    return hb_case_linear_kind(&other);
}

/* Values that are wrong whatever the batch. */
static int64_t wrong_value(const struct hb_spot *p, enum base base) {
    const struct hb_config *g = &p->config;
    const int32_t n_ids = g->n_virtual > 0 ? g->n_virtual : g->n_slots;
    switch (base) {
    case B_MODE:
        return ONE_OF(p->rng, 7, 0, 10, -1, INT_MAX, INT_MIN);
    case B_BAD_LAYER:
        return ONE_OF(p->rng, -1, g->n_layers, HB_MAX_LAYERS, INT_MAX, INT_MIN);
    case B_BAD_REQUEST:
        return ONE_OF(p->rng, -1, g->req_pool_size, INT_MAX, INT_MIN);
    case B_BAD_SLOT:
        return ONE_OF(p->rng, -1, 0, n_ids + 1, -2, INT_MAX, INT_MIN);
    case B_BAD_TRACK:
        return ONE_OF(p->rng, -1, 0, n_ids + 1, INT64_MAX, INT64_MIN, INT64_C(1) << 32);
    case B_BAD_LOC:
        return ONE_OF(p->rng, 0, -1, g->n_kv, INT_MAX);
    case B_BAD_KIND:
        return ONE_OF(p->rng, 0, -1, 9, INT_MAX);
    case B_BAD_VARIANT:
        return ONE_OF(p->rng, 99, -1, HB_N_LAYER_KINDS);
    case B_SIGN:
        return ONE_OF(p->rng, -1, 1);
    case B_BAD_LINK:
        return ONE_OF(p->rng, -2, 0, p->s->row[p->row].length, INT_MAX, INT_MIN);
    case B_BAD_GRAPH_MODE:
        return ONE_OF(p->rng, 7, 0, 1, 3, 6, 8, 9, 10, -1, INT_MAX, INT_MIN);
    case B_BAD_SIZE:
        return ONE_OF(p->rng, 0, -1, INT_MIN);
    case B_BAD_RING:
        return ONE_OF(p->rng, -1, HB_MAX_RING + 1, INT_MAX, INT_MIN);
    case B_BAD_PAD:
        return ONE_OF(p->rng, -1, HB_MAX_POOL_PAD + 1, INT_MAX, INT_MIN);
    case B_BAD_VIRTUAL:
        return ONE_OF(p->rng, -1, g->n_slots - 1, 1, INT_MIN);
    case B_BAD_PADDING:
        return ONE_OF(p->rng, -1, p->s->n_rows + p->s->pad_rows + 1, INT_MAX, INT_MIN);
    case B_OTHER_KIND: /* one of the five others */
        return other_kind(p->rng, p->c->config.mixer);
    case B_NODES:
        return ONE_OF(p->rng, p->h.drafted.nodes[p->row], INT_MAX);
    default:
        return 0;
    }
}

static int64_t live_id(const struct hb_spot *p) {
    for (int32_t q = 0; q < HB_MAX_REQS; q++) {
        if (hb_history_is_live(&p->h, q)) {
            return slot_of(p, q);
        }
    }
    return 0;
}

/* T of a replay or capture. */
static int64_t step_tokens(const struct hb_spot *p) {
    const struct hb_case_step *s = p->s;
    if (s->kind == HB_STEP_CAPTURE) {
        return (int64_t)s->bs * s->nodes;
    }
    return (int64_t)first_token(s, s->n_rows) + (int64_t)s->pad_rows * (hb_step_is_verify(s) ? hb_case_draft(s) : 1);
}

static int64_t value_of(const struct hb_spot *p, enum base base) {
    const struct hb_case_step *s = p->s;
    const struct hb_config *g = &p->config;
    switch (base) {
    case B_NUMBER:
        return 0;
    case B_LAYER: { /* a layer that the forward runs, too */
        int32_t l = hb_rng_below(p->rng, g->n_layers);
        for (int32_t i = 0; i < g->n_layers && (s->layer_mask >> l & 1); i++) {
            l = (l + 1) % g->n_layers; /* all are left out: any */
        }
        return l;
    }
    case B_BATCH:
        return s->n_rows + s->pad_rows;
    case B_EXTEND_ROWS:
        return s->n_rows - s->n_decode;
    case B_REAL:
        return first_token(s, s->n_rows);
    case B_SUM_LESS_ROW:
        return first_token(s, s->n_rows - s->n_decode) - s->row[p->row].length;
    case B_FREE_SLOT:
        return p->h.free_list[hb_rng_range(p->rng, lazy_slots(p), p->h.n_free_ids - 1)];
    case B_TRACK_SLOT:
        return live_track_slot(p);
    case B_ROW_SLOT:
        return slot_of(p, s->row[p->row].request);
    case B_ROW2_SLOT:
        return slot_of(p, s->row[p->row2].request);
    case B_OUTSIDE_SLOT:
        return slot_of(p, p->outsider);
    case B_CONTEXT:
        return g->max_context;
    case B_MAX_BATCH:
        return g->max_batch;
    case B_HEADS:
        return g->n_heads;
    case B_Q_HEADS:
        return g->n_q_heads;
    case B_CHUNK:
        return g->chunk_size;
    case B_NS:
        return g->n_slots;
    case B_TRACK_ROW:
        return p->track;
    case B_ROW2_TOKEN:
        return first_token(s, p->row2);
    case B_MAP_NEW:
        return map_index(p, p->row2, row_position(p, p->row2));
    case B_VERIFY_BATCH:
        return p->h.drafted.batch_size;
    case B_LINKS:
        return ((int64_t)s->n_rows + s->pad_rows) * hb_case_draft(s);
    case B_LESS_DRAFT:
        return longest_row(s) - 1;
    case B_MAX_DRAFT:
        return g->max_draft;
    case B_SPEC_ROWS:
        return (int64_t)g->spec_rows - p->c->config.spare_rows;
    case B_COMMIT_ROWS:
        return s->n_rows;
    case B_LIVE_ID:
        return live_id(p);
    case B_TOKENS:
        return step_tokens(p);
    case B_OTHER_MODE:
        return s->mode == HB_MODE_DECODE ? ONE_OF(p->rng, HB_MODE_IDLE, HB_MODE_TARGET_VERIFY)
               : s->mode == HB_MODE_IDLE ? ONE_OF(p->rng, HB_MODE_DECODE, HB_MODE_TARGET_VERIFY)
                                         : ONE_OF(p->rng, HB_MODE_DECODE, HB_MODE_IDLE);
    case B_GRAPH_TOKENS:
        return (int64_t)s->bs * s->nodes;
    case B_FREE_COUNT:
        return p->h.n_free;
    case B_LIVE_SLOT:
        return p->h.take[p->h.drafted.take[p->row]].id;
    default:
        return wrong_value(p, base);
    }
}

static void add_breaks(const struct hb_spot *p, const struct hb_recipe *r, int32_t step,
                       struct hb_case *c) {
    for (int32_t i = 0; i < r->n_breaks; i++) {
        const struct hb_break_recipe *b = &r->brk[i];
        struct hb_case_break *out = &c->brk[c->n_breaks++];
        out->step = step;
        out->field = b->field;
        out->operation = b->operation;
        out->row = row_of(p, b->at);
        out->value = value_of(p, b->base) + b->plus;
    }
}

/* --- application
 * ------------------------------------------------------------------------------------------------
 */

/* Rows of a commit that the history before it allows, with a row that counts; 0 if it does not. */
static int choose_commit_rows(struct hb_spot *p, uint64_t needs) {
    if (!p->h.drafted.is_valid || commit_rows(p) == 0) {
        return 0;
    }
    p->row = hb_rng_below(p->rng, commit_rows(p));
    p->track = p->track2 = -1;
    for (int32_t k = 0; k < commit_rows(p); k++) {
        if (p->s->row[k].track) {
            p->track2 = p->track >= 0 ? k : -1;
            p->track = p->track >= 0 ? p->track : k;
        }
    }
    p->row = (needs & HB_NEED_TRACK && p->track >= 0) ? p->track : p->row;
    return 1;
}

/* On a step of the history that meets the needs. */
static int apply_on_step(struct hb_case *c, const struct hb_recipe *r, struct hb_spot *p) {
    static const int32_t kinds[] = {[ON_FORWARD] = HB_STEP_FORWARD,
                                    [ON_COMMIT] = HB_STEP_COMMIT,
                                    [ON_GRAPH_INIT] = HB_STEP_GRAPH_INIT,
                                    [ON_CAPTURE] = HB_STEP_CAPTURE};
    const int32_t start = hb_rng_below(p->rng, c->n_steps);
    for (int32_t i = 0; i < c->n_steps; i++) {
        p->step = (start + i) % c->n_steps;
        p->s = &c->step[p->step];
        if (p->s->kind != kinds[r->on]) {
            continue;
        }
        uint64_t found = 0;
        hb_history_replay(&p->h, c, p->step);
        if (r->on == ON_FORWARD) {
            found = choose_rows(p, r->needs);
        } else if (r->on == ON_COMMIT && !choose_commit_rows(p, r->needs)) {
            continue;
        }
        if ((r->needs & ~(found | offers(p))) == 0) {
            add_breaks(p, r, p->step, c);
            return 1;
        }
    }
    return 0;
}

int hb_recipe_apply(struct hb_case *c, int index, struct hb_rng *rng) {
    const struct hb_recipe *table;
    if (index < 0 || index >= hb_recipe_table(&table)) {
        return 0;
    }
    const struct hb_recipe *r = &table[index];
    if (r->unreachable || c->n_breaks + r->n_breaks > HB_MAX_BREAKS) {
        return 0;
    }
    struct hb_spot p;
    memset(&p, 0, sizeof p);
    p.c = c;
    p.rng = rng;
    hb_case_backend_config(c, &p.config);
    if (r->on != ON_CONFIG && r->on < NEW_TAKE) {
        return apply_on_step(c, r, &p);
    }
    hb_history_replay(&p.h, c, c->n_steps);
    if (r->needs & ~offers(&p)) {
        return 0;
    }
    if (r->on == ON_CONFIG) {
        add_breaks(&p, r, -1, c);
        return 1;
    }
    if (!hb_recipe_steps(c, &p, r->on)) {
        return 0;
    }
    hb_case_backend_config(c, &p.config); /* one slot more, if the step is a TAKE */
    add_breaks(&p, r, c->n_steps - 1, c);
    return 1;
}
