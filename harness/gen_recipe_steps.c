/* SPDX-License-Identifier: Apache-2.0
 * Recipes that append steps: calls that are wrong because of what came before them. */
#include <string.h>

#include "backend/adapter.h"
#include "harness/gen_recipes.h"

static struct hb_case_step *append(struct hb_case *c, int32_t kind) {
    struct hb_case_step *s = &c->step[c->n_steps++];
    hb_gen_step_init(s, kind);
    return s;
}

static int has_room(const struct hb_case *c, int32_t n) {
    return c->n_steps + n <= HB_MAX_STEPS;
}

int32_t hb_recipe_pending(const struct hb_history *h) {
    for (int32_t q = 0; q < HB_MAX_REQS; q++) {
        if (hb_history_is_live(h, q) && hb_history_cursor(h, q) > 0) {
            return q;
        }
    }
    return -1;
}

static int32_t any_live(const struct hb_history *h) {
    for (int32_t q = 0; q < HB_MAX_REQS; q++) {
        if (hb_history_is_live(h, q)) {
            return q;
        }
    }
    return -1;
}

/* A TAKE whose slot nobody has given back, -1 none. */
static int32_t held_take(const struct hb_history *h) {
    for (int32_t t = h->n_takes - 1; t >= 0; t--) {
        if (!h->take[t].is_free) {
            return t;
        }
    }
    return -1;
}

/* --- slots ---------------------------------------------------------------------------------------------------------- */

static int slot_step(struct hb_case *c, int32_t kind, int32_t slot, int32_t slot2) {
    if (slot < 0) {
        return 0;
    }
    struct hb_case_step *s = append(c, kind);
    s->slot = slot;
    s->slot2 = slot2;
    return 1;
}

static int new_take(struct hb_case *c, struct hb_spot *p) {
    (void)p;
    append(c, HB_STEP_TAKE)->slot_kind = 1;
    return 1;
}

static int new_free(struct hb_case *c, struct hb_spot *p) {
    return slot_step(c, HB_STEP_FREE, hb_rng_below(p->rng, p->h.n_takes), -1);
}

/* 1 if nobody holds the slot of a TAKE: it was given back and not taken again. */
static int is_given_back(const struct hb_history *h, int32_t take) {
    for (int32_t i = 0; i < h->n_free_ids; i++) {
        if (h->free_list[i] == h->take[take].id) {
            return 1;
        }
    }
    return 0;
}

/* A slot that is given back twice: the first time in a step of its own, unless the history has one. */
static int new_free_twice(struct hb_case *c, struct hb_spot *p) {
    for (int32_t t = 0; t < p->h.n_takes; t++) {
        if (is_given_back(&p->h, t)) {
            return slot_step(c, HB_STEP_FREE, t, -1);
        }
    }
    const int32_t t = held_take(&p->h);
    return t >= 0 && has_room(c, 2) && slot_step(c, HB_STEP_FREE, t, -1) &&
           slot_step(c, HB_STEP_FREE, t, -1);
}

static int new_free_pair(struct hb_case *c, struct hb_spot *p) {
    const int32_t t = held_take(&p->h);
    return slot_step(c, HB_STEP_FREE, t, t);
}

static int new_copy_self(struct hb_case *c, struct hb_spot *p) {
    const int32_t t = held_take(&p->h);
    return slot_step(c, HB_STEP_COPY, t, t);
}

static int new_copy_pending(struct hb_case *c, struct hb_spot *p) {
    const int32_t from = p->h.request_take[hb_recipe_pending(&p->h)];
    for (int32_t t = 0; t < p->h.n_takes; t++) {
        if (!p->h.take[t].is_free && p->h.take[t].id != p->h.take[from].id) {
            return slot_step(c, HB_STEP_COPY, from, t);
        }
    }
    struct hb_case_step *s = append(c, HB_STEP_TAKE); /* there is no other slot: a new one */
    s->slot_kind = 1;
    return has_room(c, 1) && slot_step(c, HB_STEP_COPY, from, p->h.n_takes);
}

/* The break names the slot. */
static int new_publish(struct hb_case *c, struct hb_spot *p) {
    return slot_step(c, HB_STEP_PUBLISH, held_take(&p->h), -1);
}

static int new_move(struct hb_case *c, struct hb_spot *p) {
    return slot_step(c, HB_STEP_MOVE, held_take(&p->h), -1);
}

/* All free slots are taken first. */
static int new_move_full(struct hb_case *c, struct hb_spot *p) {
    const int32_t t = held_take(&p->h);
    if (t < 0 || c->n_breaks == HB_MAX_BREAKS || !has_room(c, 2)) {
        return 0;
    }
    struct hb_case_step *s = append(c, HB_STEP_TAKE);
    s->slot_kind = 1;
    c->brk[c->n_breaks++] = (struct hb_case_break){.step = c->n_steps - 1,
                                                   .field = HB_FIELD_SLOT_COUNT,
                                                   .operation = HB_BREAK_SET};
    struct hb_config config;
    struct hb_history h;
    hb_case_backend_config(c, &config);
    hb_history_replay(&h, c, c->n_steps - 1);
    c->brk[c->n_breaks - 1].value = h.n_free;
    return slot_step(c, HB_STEP_MOVE, t, -1);
}

/* --- forwards, entries, commits --------------------------------------------------------------------------------- */

static int new_forward(struct hb_case *c, struct hb_spot *p, int32_t mode, int32_t request) {
    (void)p;
    if (request < 0) {
        return 0;
    }
    struct hb_case_step *s = append(c, HB_STEP_FORWARD);
    s->mode = mode;
    s->n_rows = 1;
    s->row[0].request = request;
    return 1;
}

static int new_extend_pending(struct hb_case *c, struct hb_spot *p) {
    return new_forward(c, p, HB_MODE_EXTEND, hb_recipe_pending(&p->h));
}

/* A live request with tokens, -1 none: what a verify needs. */
static int32_t any_drafted(const struct hb_history *h) {
    for (int32_t q = 0; q < HB_MAX_REQS; q++) {
        if (hb_history_is_live(h, q) && hb_history_position(h, q) > 0) {
            return q;
        }
    }
    return -1;
}

static int new_ring_some(struct hb_case *c, struct hb_spot *p) {
    const int32_t mode = hb_case_ring_mode(c);
    const int32_t request = mode == HB_MODE_DECODE ? any_live(&p->h) : any_drafted(&p->h);
    if (!new_forward(c, p, mode, request)) {
        return 0;
    }
    const int32_t all = (1 << c->config.n_layers) - 1;
    c->step[c->n_steps - 1].layer_mask = hb_rng_one_in(p->rng, 2) ? all : all & ~c->config.attn_mask;
    return 1;
}

static int new_entry(struct hb_case *c, struct hb_spot *p, int32_t target, int32_t null_args) {
    struct hb_case_step *s = append(c, HB_STEP_ENTRY);
    s->direction = hb_rng_below(p->rng, 2);
    s->target = target;
    s->null_args = null_args;
    /* the entry of an attention layer exists */
    while (target == HB_ENTRY_WRAPPER && s->layer < p->config.n_layers - 1 &&
           p->config.layer_kind[s->layer] != HB_LAYER_ATTENTION) {
        s->layer++;
    }
    return 1;
}

static int new_child(struct hb_case *c, struct hb_spot *p) {
    return new_entry(c, p, HB_ENTRY_CHILD, hb_rng_below(p->rng, 2));
}

static int new_child_decode(struct hb_case *c, struct hb_spot *p) {
    (void)new_entry(c, p, HB_ENTRY_CHILD, 0);
    c->step[c->n_steps - 1].direction = HB_ENTRY_DECODE;
    return 1;
}

static int new_child_extend(struct hb_case *c, struct hb_spot *p) {
    (void)new_entry(c, p, HB_ENTRY_CHILD, 0);
    c->step[c->n_steps - 1].direction = HB_ENTRY_EXTEND;
    return 1;
}

static int new_null(struct hb_case *c, struct hb_spot *p) {
    return new_entry(c, p, HB_ENTRY_WRAPPER, 1);
}

static int new_bare(struct hb_case *c, struct hb_spot *p) {
    return new_entry(c, p, HB_ENTRY_WRAPPER, 0);
}

static int new_commit(struct hb_case *c, struct hb_spot *p) {
    if (p->h.drafted.is_valid) {
        return 0;
    }
    append(c, HB_STEP_COMMIT)->n_rows = hb_rng_below(p->rng, 3);
    return 1;
}

/* A commit of a row whose slot was given back after the verify. */
static int new_commit_freed(struct hb_case *c, struct hb_spot *p) {
    const struct hb_drafted *d = &p->h.drafted;
    if (!d->is_valid || d->n_rows == 0 || !has_room(c, 2) || p->h.take[d->take[0]].is_free) {
        return 0;
    }
    (void)slot_step(c, HB_STEP_FREE, d->take[0], -1);
    append(c, HB_STEP_COMMIT)->n_rows = 1;
    return 1;
}

/* The slot is given back and, with all others that are free, taken again. */
static int new_commit_stale(struct hb_case *c, struct hb_spot *p) {
    if (!has_room(c, 3) || c->n_breaks == HB_MAX_BREAKS || !new_commit_freed(c, p)) {
        return 0;
    }
    c->n_steps--; /* the commit comes later */
    struct hb_case_step *s = append(c, HB_STEP_TAKE);
    s->slot_kind = 1;
    struct hb_history h;
    hb_history_replay(&h, c, c->n_steps - 1);
    c->brk[c->n_breaks++] = (struct hb_case_break){.step = c->n_steps - 1,
                                                   .field = HB_FIELD_SLOT_COUNT,
                                                   .operation = HB_BREAK_SET,
                                                   .value = h.n_free};
    append(c, HB_STEP_COMMIT)->n_rows = 1;
    return 1;
}

/* Another slot, a fresh one, is copied onto the row's. */
static int new_commit_over(struct hb_case *c, struct hb_spot *p) {
    const struct hb_drafted *d = &p->h.drafted;
    if (!d->is_valid || d->n_rows == 0 || !has_room(c, 3) || p->h.n_free == 0 ||
        p->h.take[d->take[0]].is_free) {
        return 0;
    }
    append(c, HB_STEP_TAKE)->slot_kind = 1;
    (void)slot_step(c, HB_STEP_COPY, p->h.n_takes, d->take[0]);
    append(c, HB_STEP_COMMIT)->n_rows = 1;
    return 1;
}

/* --- graphs --------------------------------------------------------------------------------------------------------- */

static int new_graph_init(struct hb_case *c, struct hb_spot *p) {
    (void)p;
    append(c, HB_STEP_GRAPH_INIT);
    return 1;
}

static int32_t batch_size(const struct hb_spot *p, int32_t is_captured) {
    for (int32_t bs = 1; bs <= p->h.graph_rows && bs <= HB_MAX_CAPTURE; bs++) {
        if (p->h.captured[bs].is_captured == is_captured) {
            return bs;
        }
    }
    return 0;
}

/* Of a size that was captured, if there is one. */
static int new_capture(struct hb_case *c, struct hb_spot *p) {
    struct hb_case_step *s = append(c, HB_STEP_CAPTURE);
    s->mode = HB_MODE_DECODE;
    s->bs = batch_size(p, 1);
    s->bs = s->bs > 0 ? s->bs : 1;
    return 1;
}

static int new_capture_outside(struct hb_case *c, struct hb_spot *p) {
    struct hb_case_step *s = append(c, HB_STEP_CAPTURE);
    s->mode = HB_MODE_DECODE;
    s->bs = p->h.graph_rows < HB_MAX_CAPTURE && hb_rng_one_in(p->rng, 2) ? p->h.graph_rows + 1 : 0;
    return 1;
}

static int new_replay(struct hb_case *c, struct hb_spot *p) {
    const int32_t bs = batch_size(p, 0);
    if (bs < 1 || bs > 2 * HB_MAX_ROWS - 1) {
        return 0;
    }
    struct hb_case_step *s = append(c, HB_STEP_FORWARD);
    s->mode = HB_MODE_DECODE;
    s->replay = 1;
    s->n_rows = any_live(&p->h) >= 0 ? 1 : 0;
    s->row[0].request = s->n_rows ? any_live(&p->h) : 0;
    s->pad_rows = bs - s->n_rows;
    if (s->pad_rows > HB_MAX_ROWS) {
        c->n_steps--;
        return 0;
    }
    return 1;
}

int hb_recipe_steps(struct hb_case *c, struct hb_spot *p, enum on_step on) {
    static int (*const appenders[])(struct hb_case *, struct hb_spot *) = {
        [NEW_TAKE] = new_take,
        [NEW_FREE] = new_free,
        [NEW_FREE_TWICE] = new_free_twice,
        [NEW_COPY_SELF] = new_copy_self,
        [NEW_CHILD] = new_child,
        [NEW_CHILD_DECODE] = new_child_decode,
        [NEW_CHILD_EXTEND] = new_child_extend,
        [NEW_NULL] = new_null,
        [NEW_BARE] = new_bare,
        [NEW_COMMIT] = new_commit,
        [NEW_COMMIT_FREED] = new_commit_freed,
        [NEW_COMMIT_STALE] = new_commit_stale,
        [NEW_COMMIT_OVER] = new_commit_over,
        [NEW_FREE_PAIR] = new_free_pair,
        [NEW_COPY_PENDING] = new_copy_pending,
        [NEW_EXTEND_PENDING] = new_extend_pending,
        [NEW_RING_SOME] = new_ring_some,
        [NEW_GRAPH_INIT] = new_graph_init,
        [NEW_CAPTURE] = new_capture,
        [NEW_CAPTURE_OUTSIDE] = new_capture_outside,
        [NEW_REPLAY] = new_replay,
        [NEW_PUBLISH] = new_publish,
        [NEW_MOVE] = new_move,
        [NEW_MOVE_FULL] = new_move_full,
    };
    const struct hb_case before = *c;
    if (!has_room(c, 1) || !appenders[on](c, p)) {
        *c = before;
        return 0;
    }
    return 1;
}
