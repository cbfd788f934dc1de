/* SPDX-License-Identifier: Apache-2.0
 * Structure-aware mutation and crossover: one to three small changes, then the normal form. */
#include <limits.h>
#include <string.h>

#include "backend/batch.h"
#include "harness/case_internal.h"
#include "harness/gen_history.h"

enum { MAX_RECIPES = 256 };

/* --- one field
 * --------------------------------------------------------------------------------------------------
 */

static int64_t edge_value(const struct hb_case_field *f, int64_t now, struct hb_rng *r) {
    static const int64_t wide[] = {0,         1,       -1,        2,    INT_MAX, INT_MIN, INT64_MAX,
                                   INT64_MIN, 1000000, 1LL << 32, 4096, 10,      7};
    const uint64_t span = (uint64_t)f->hi - (uint64_t)f->lo;
    int64_t v = now;
    switch (hb_rng_below(r, 7)) {
    case 0:
        v = f->lo;
        break;
    case 1:
        v = f->hi;
        break;
    case 2:
        v = f->initial;
        break;
    case 3:
        v = now < f->hi ? now + 1 : now;
        break;
    case 4:
        v = now > f->lo ? now - 1 : now;
        break;
    case 5:
        v = wide[hb_rng_below(r, (int32_t)(sizeof wide / sizeof *wide))];
        break;
    default:
        v = (int64_t)((uint64_t)f->lo +
                      (span == UINT64_MAX ? hb_rng_next(r) : hb_rng_next(r) % (span + 1)));
        break;
    }
    v = v < f->lo ? f->lo : v;
    return v > f->hi ? f->hi : v;
}

static void mutate_group(struct hb_rng *r, int32_t group, int32_t kind, void *at) {
    const struct hb_case_field *f;
    const int n = hb_case_group_fields(group, &f);
    const int start = hb_rng_below(r, n);
    for (int i = 0; i < n; i++) {
        const struct hb_case_field *one = &f[(start + i) % n];
        if (hb_case_field_used(one, kind)) {
            hb_case_field_set(one, at, edge_value(one, hb_case_field_get(one, at), r));
            return;
        }
    }
}

static void change_config(struct hb_case *c, struct hb_rng *r) {
    const int32_t real_size = c->config.real_size;
    mutate_group(r, HB_GROUP_CONFIG, HB_STEP_FORWARD, &c->config);
    c->config.real_size = real_size; /* never more work by itself */
    hb_case_limit_sizes(&c->config, 1);
}

static struct hb_case_step *any_step(struct hb_case *c, struct hb_rng *r) {
    return &c->step[hb_rng_below(r, c->n_steps)]; /* without steps: the default of step 0 */
}

static void change_step(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_step *s = any_step(c, r);
    mutate_group(r, HB_GROUP_STEP, s->kind, s);
}

static void change_row(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_step *s = any_step(c, r);
    if (s->n_rows > 0) {
        mutate_group(r, HB_GROUP_ROW, s->kind, &s->row[hb_rng_below(r, s->n_rows)]);
    }
}

static void change_break(struct hb_case *c, struct hb_rng *r) {
    if (c->n_breaks > 0) {
        mutate_group(r, HB_GROUP_BREAK, HB_STEP_FORWARD, &c->brk[hb_rng_below(r, c->n_breaks)]);
    }
}

static void change_mode(struct hb_case *c, struct hb_rng *r) {
    any_step(c, r)->mode = 1 + hb_rng_below(r, 9);
}

static void change_length(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_step *s = any_step(c, r);
    const int32_t w = c->config.conv_width - 1;
    const int32_t q = c->config.chunk_size;
    const int32_t edges[] = {1, w - 1, w, w + 1, q - 1, q, q + 1, 2 * q, 2 * q + 1, 4 * q};
    if (s->n_rows > 0) {
        s->row[hb_rng_below(r, s->n_rows)].length = edges[hb_rng_below(r, 10)];
    }
}

static void change_seed(struct hb_case *c, struct hb_rng *r) {
    c->config.seed = (int32_t)(uint32_t)hb_rng_next(r);
}

/* --- steps
 * ------------------------------------------------------------------------------------------------------
 */

/* Breaks follow their step. */
static void shift_breaks(struct hb_case *c, int32_t from, int32_t by) {
    for (int32_t b = 0; b < c->n_breaks; b++) {
        c->brk[b].step += c->brk[b].step >= from ? by : 0;
    }
}

static int32_t insert_step(struct hb_case *c, int32_t at, const struct hb_case_step *s) {
    if (c->n_steps == HB_MAX_STEPS) {
        return 0;
    }
    memmove(&c->step[at + 1], &c->step[at], (size_t)(c->n_steps - at) * sizeof *c->step);
    c->step[at] = *s;
    c->n_steps++;
    shift_breaks(c, at, 1);
    return 1;
}

static void add_step(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_step s;
    const int32_t at = hb_rng_below(r, c->n_steps + 1);
    struct hb_history h;
    hb_history_replay(&h, c, at);
    hb_gen_step_init(&s, hb_rng_one_in(r, 2) ? HB_STEP_FORWARD : hb_rng_below(r, HB_N_STEP_KINDS));
    s.mode = 1 + hb_rng_below(r, 9);
    s.request = hb_rng_below(r, HB_MAX_REQS);
    s.slot_kind = hb_rng_below(r, 2);
    s.slot = hb_rng_below(r, h.n_takes);
    s.slot2 = hb_rng_below(r, h.n_takes + 1) - 1;
    s.match = hb_rng_one_in(r, 4) ? hb_rng_below(r, HB_MAX_REQS) : -1;
    s.prefix = hb_rng_one_in(r, 3) ? hb_rng_below(r, 40) : 0;
    s.bs = 1 + hb_rng_below(r, HB_MAX_ROWS);
    s.nodes = 1 + hb_rng_below(r, 4);
    s.replay = h.graph_rows > 0 && hb_rng_one_in(r, 2);
    s.from = hb_rng_below(r, h.n_tracks + 1) - 1;
    s.layer = hb_rng_below(r, c->config.n_layers);
    for (int32_t q = 0; q < HB_MAX_REQS && hb_step_has_rows(s.kind); q++) {
        if (hb_history_is_live(&h, q) && hb_rng_below(r, 3) > 0) {
            s.row[s.n_rows].request = q;
            s.row[s.n_rows++].length = 1 + hb_rng_below(r, 12);
        }
    }
    (void)insert_step(c, at, &s);
}

/* A verify of all live requests, and the commit of what it drafts. */
static void add_round(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_step s;
    struct hb_history h;
    const int32_t at = hb_rng_below(r, c->n_steps + 1);
    hb_history_replay(&h, c, at);
    hb_gen_step_init(&s, HB_STEP_FORWARD);
    s.mode = HB_MODE_TARGET_VERIFY;
    s.ragged = hb_rng_below(r, 2);
    s.tree = hb_rng_below(r, HB_TREE_RANDOM + 8);
    for (int32_t q = 0; q < HB_MAX_REQS; q++) {
        if (hb_history_position(&h, q) > 0 && hb_rng_below(r, 4) > 0) {
            s.row[s.n_rows].request = q;
            s.row[s.n_rows++].length = 1 + hb_rng_below(r, HB_MAX_DRAFT);
        }
    }
    c->config.max_draft = c->config.max_draft > 0 ? c->config.max_draft : HB_MAX_DRAFT;
    if (!insert_step(c, at, &s)) {
        return;
    }
    const int32_t n = s.n_rows;
    hb_gen_step_init(&s, HB_STEP_COMMIT);
    s.n_rows = n;
    for (int32_t i = 0; i < n; i++) {
        s.row[i].accept = hb_rng_below(r, HB_MAX_DRAFT) - 1;
        s.row[i].track = hb_rng_one_in(r, 4);
    }
    (void)insert_step(c, at + 1, &s);
}

/* graph_init, unless there is one, the capture of a size, and a forward that is its replay. */
static void add_graph(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_step s;
    struct hb_history h;
    int32_t at = hb_rng_below(r, c->n_steps + 1);
    hb_history_replay(&h, c, c->n_steps);
    struct hb_case_config *g = &c->config;
    g->graph_rows = g->graph_rows > 0 ? g->graph_rows : HB_MAX_ROWS;
    if (h.graph_rows == 0) {
        hb_gen_step_init(&s, HB_STEP_GRAPH_INIT);
        s.bs = g->graph_rows;
        s.nodes = g->graph_draft;
        at += insert_step(c, 0, &s);
    }
    hb_gen_step_init(&s, HB_STEP_CAPTURE);
    s.bs = 1 + hb_rng_below(r, g->graph_rows);
    s.mode = hb_rng_one_in(r, 3) ? HB_MODE_TARGET_VERIFY : HB_MODE_DECODE;
    s.nodes = h.graph_rows == 0 ? g->graph_draft : h.graph_draft;
    s.optional = hb_rng_one_in(r, 2) ? 128 : 0;
    const int32_t bs = s.bs;
    const int32_t mode = s.mode;
    const int32_t nodes = s.nodes;
    if (!insert_step(c, at, &s)) {
        return;
    }
    hb_history_replay(&h, c, at);
    hb_gen_step_init(&s, HB_STEP_FORWARD);
    s.replay = 1;
    s.mode = mode;
    s.draft = mode == HB_MODE_TARGET_VERIFY ? nodes : 0;
    for (int32_t q = 0; q < HB_MAX_REQS && s.n_rows < bs; q++) {
        if (hb_history_is_live(&h, q) && hb_rng_below(r, 3) > 0) {
            s.row[s.n_rows++].request = q;
        }
    }
    s.pad_rows = bs - s.n_rows;
    (void)insert_step(c, at + 1, &s);
}

/* A forward becomes a replay of the size that its rows and padding have, or the other way round. */
static void change_replay(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_step *s = any_step(c, r);
    if (s->kind == HB_STEP_FORWARD) {
        s->replay ^= 1;
        s->pad_tokens = 0;
    }
}

/* Padding and live rows change places in number: the batch size, and with it the graph, stays. */
static void change_padding(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_step *s = any_step(c, r);
    if (s->n_rows > 1 && hb_step_has_rows(s->kind) && s->kind != HB_STEP_COMMIT) {
        s->n_rows--;
        s->pad_rows++;
    }
}

static void change_feature(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_config *g = &c->config;
    int32_t *const features[] = {&g->ring_length,   &g->virtual_ids, &g->ping_pong,      &g->track_chunks,
                                 &g->window_layout, &g->pool_pad,    &g->track_by_layer, &g->ring_owner};
    static const int32_t most[] = {8, 4, 3, 4, 1, 5, 1, 1};
    const int32_t i = hb_rng_below(r, (int32_t)(sizeof most / sizeof *most));
    *features[i] = hb_rng_below(r, most[i] + 1);
}

static void change_commit(struct hb_case *c, struct hb_rng *r) {
    const int32_t start = hb_rng_below(r, c->n_steps);
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step *s = &c->step[(start + i) % c->n_steps];
        if (s->kind == HB_STEP_COMMIT && s->n_rows > 0) {
            s->row[hb_rng_below(r, s->n_rows)].accept = hb_rng_below(r, 4) - 1;
            return;
        }
    }
}

static void remove_step(struct hb_case *c, struct hb_rng *r) {
    if (c->n_steps == 0) {
        return;
    }
    const int32_t at = hb_rng_below(r, c->n_steps);
    c->n_steps--;
    memmove(&c->step[at], &c->step[at + 1], (size_t)(c->n_steps - at) * sizeof *c->step);
    shift_breaks(c, at + 1, -1);
}

static void duplicate_step(struct hb_case *c, struct hb_rng *r) {
    if (c->n_steps > 0) {
        const int32_t at = hb_rng_below(r, c->n_steps);
        const struct hb_case_step s = c->step[at];
        (void)insert_step(c, at + 1, &s);
    }
}

static void swap_steps(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_step *a = any_step(c, r);
    struct hb_case_step *b = any_step(c, r);
    const struct hb_case_step t = *a;
    *a = *b;
    *b = t;
}

/* --- rows
 * -------------------------------------------------------------------------------------------------------
 */

static void add_row(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_step *s = any_step(c, r);
    if (hb_step_has_rows(s->kind) && s->n_rows < HB_MAX_ROWS) {
        struct hb_case_row *row = &s->row[s->n_rows++];
        row->request = hb_rng_below(r, HB_MAX_REQS);
        row->length = 1 + hb_rng_below(r, 20);
        row->track = hb_rng_one_in(r, 3);
        row->track_slot = hb_rng_below(r, 3);
    }
}

static void remove_row(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_step *s = any_step(c, r);
    if (s->n_rows > 0) {
        const int32_t at = hb_rng_below(r, s->n_rows);
        s->n_rows--;
        memmove(&s->row[at], &s->row[at + 1], (size_t)(s->n_rows - at) * sizeof *s->row);
    }
}

static void duplicate_row(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_step *s = any_step(c, r);
    if (s->n_rows > 0 && s->n_rows < HB_MAX_ROWS) {
        s->row[s->n_rows] = s->row[hb_rng_below(r, s->n_rows)];
        s->n_rows++;
    }
}

static void swap_rows(struct hb_case *c, struct hb_rng *r) {
    struct hb_case_step *s = any_step(c, r);
    if (s->n_rows > 1) {
        const int32_t i = hb_rng_below(r, s->n_rows);
        const int32_t j = hb_rng_below(r, s->n_rows);
        const struct hb_case_row t = s->row[i];
        s->row[i] = s->row[j];
        s->row[j] = t;
    }
}

/* --- breaks
 * -----------------------------------------------------------------------------------------------------
 */

static void add_break(struct hb_case *c, struct hb_rng *r) {
    if (c->n_breaks == HB_MAX_BREAKS) {
        return;
    }
    struct hb_case_break *b = &c->brk[c->n_breaks++];
    b->step = hb_rng_below(r, c->n_steps);
    b->field = hb_rng_below(r, HB_N_BREAK_FIELDS);
    b->row = hb_rng_below(r, 4);
    b->operation = hb_rng_below(r, HB_N_BREAK_OPS);
    b->value = hb_rng_range(r, -2, 9);
}

static void add_recipe(struct hb_case *c, struct hb_rng *r) {
    struct hb_recipe_info info[MAX_RECIPES];
    const int n = hb_recipes(info, MAX_RECIPES);
    hb_case_normalize(c);
    (void)hb_recipe_apply(c, hb_rng_below(r, n), r);
}

static void remove_break(struct hb_case *c, struct hb_rng *r) {
    if (c->n_breaks > 0) {
        const int32_t at = hb_rng_below(r, c->n_breaks);
        c->n_breaks--;
        memmove(&c->brk[at], &c->brk[at + 1], (size_t)(c->n_breaks - at) * sizeof *c->brk);
    }
}

/* --- entry points
 * -----------------------------------------------------------------------------------------------
 */

/* Drawn uniformly; what finds most stands more than once. */
static void (*const changes[])(struct hb_case *, struct hb_rng *) = {
    change_config, change_config, change_config, change_step,   change_step,    change_row,
    change_row,    change_row,    change_length, change_length, change_mode,    change_seed,
    change_break,  add_step,      add_step,      remove_step,   duplicate_step, swap_steps,
    add_row,       remove_row,    duplicate_row, swap_rows,     add_break,      add_recipe,
    remove_break,  remove_break,  add_round,     change_commit,  add_graph,
    add_graph,     change_replay, change_padding, change_feature};

void hb_mutate_case(struct hb_case *c, uint64_t seed) {
    enum { TRIES = 8 };
    struct hb_rng r = hb_rng_make(seed, 0x6d7574617465u);
    struct hb_case before;
    hb_case_normalize(c);
    memcpy(&before, c, sizeof before);
    const int32_t n = 1 + hb_rng_below(&r, 3);
    /* some changes find nothing to change, or the normal form takes them back */
    for (int32_t i = 0; i < n || (i < TRIES && memcmp(&before, c, sizeof before) == 0); i++) {
        changes[hb_rng_below(&r, (int32_t)(sizeof changes / sizeof *changes))](c, &r);
        hb_case_normalize(c);
    }
}

void hb_crossover_case(struct hb_case *a, const struct hb_case *b, uint64_t seed) {
    struct hb_rng r = hb_rng_make(seed, 0x63726f7373u);
    const struct hb_case other = *b; /* a and b may be one case */
    if (hb_rng_one_in(&r, 4)) {
        const int32_t target = a->config.target;
        a->config = other.config;
        a->config.target = target;
    }
    if (hb_rng_one_in(&r, 3) && a->n_steps > 0 && other.n_steps > 0) { /* rows of one step */
        struct hb_case_step *to = any_step(a, &r);
        const struct hb_case_step *from = &other.step[hb_rng_below(&r, other.n_steps)];
        for (int32_t i = 0; i < from->n_rows && to->n_rows < HB_MAX_ROWS; i++) {
            to->row[to->n_rows] = from->row[i];
            to->n_rows += hb_step_has_rows(to->kind);
        }
    } else { /* the head of one history, the tail of the other */
        const int32_t head = hb_rng_below(&r, a->n_steps + 1);
        const int32_t tail = hb_rng_below(&r, other.n_steps + 1);
        a->n_steps = head;
        for (int32_t i = tail; i < other.n_steps && a->n_steps < HB_MAX_STEPS; i++) {
            a->step[a->n_steps++] = other.step[i];
        }
    }
    if (other.n_breaks > 0 && a->n_breaks < HB_MAX_BREAKS && hb_rng_one_in(&r, 2)) {
        a->brk[a->n_breaks++] = other.brk[hb_rng_below(&r, other.n_breaks)];
    }
    hb_case_normalize(a);
}
