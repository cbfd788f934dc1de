/* SPDX-License-Identifier: Apache-2.0
 * Transformations of the relations of tracking that need another history (invariants.md 39, 41 to
 * 43). */
#include "harness/relations_internal.h"

static int32_t cache_chunk(const struct hb_case_config *g) {
    return g->chunk_size * (g->page_chunks > 1 ? g->page_chunks : 1);
}

/* Tokens of a tracked extend row after which its checkpoint holds (tracking.md section 1). */
static int32_t tracked_after(const struct hb_case_config *g, const struct hb_case_row *row) {
    const int32_t cc = cache_chunk(g);
    const int32_t points = row->length / cc;
    const int32_t point = row->track_point;
    return (point == 0 || point > points ? points : point) * cc;
}

static int32_t extend_rows(const struct hb_case_step *s) {
    const int32_t n_decode = s->mode == HB_MODE_MIXED ? s->n_decode : 0;
    return n_decode < s->n_rows ? s->n_rows - n_decode : 0;
}

/* --- 39 --------------------------------------------------------------------------------------- */

static int is_freed(const struct hb_case *c, int32_t name) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (s->kind == HB_STEP_FREE && (s->slot == name || s->slot2 == name)) {
            return 1;
        }
    }
    return 0;
}

/* A request number that no step mentions, -1 if there is none. */
static int32_t unused_request(const struct hb_case *c) {
    uint32_t used = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        used |= 1u << (s->request & (HB_MAX_REQS - 1));
        for (int32_t k = 0; k < s->n_rows; k++) {
            used |= 1u << (s->row[k].request & (HB_MAX_REQS - 1));
        }
    }
    for (int32_t q = 0; q < HB_MAX_REQS; q++) {
        if (!(used >> q & 1)) {
            return q;
        }
    }
    return -1;
}

/* 1 if a request can start again from a checkpoint of the end and be told by stream and position.
 * */
static int may_restart(const struct hb_case *c) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        const int has_layers_left_out = hb_relation_is_forward(s) && s->layer_mask != 0;
        if (hb_step_is_verify(s) || has_layers_left_out || s->replay ||
            s->kind == HB_STEP_ENTRY || /* runs one layer */
            s->kind == HB_STEP_PUBLISH || (s->kind == HB_STEP_TAKE && s->match >= 0)) {
            return 0;
        }
    }
    return hb_relation_is_plain(c) && c->config.ping_pong == HB_PING_PONG_OFF &&
           c->n_steps + 2 <= HB_MAX_STEPS;
}

/* At the end a new request starts from a checkpoint and extends up to where the original stands. */
static int restart(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    const struct hb_capture *base = twist->base;
    const int32_t request = unused_request(c);
    int32_t n_takes = 0;
    int32_t n_tracks = 0;
    int32_t tracks_before[HB_MAX_NAMES] = {0};
    for (int32_t i = 0; i < c->n_steps; i++) {
        if (c->step[i].kind == HB_STEP_TAKE && n_takes < HB_MAX_NAMES) {
            tracks_before[n_takes++] = n_tracks;
            n_tracks += c->step[i].slot_kind != 0;
        }
    }
    if (request < 0 || !may_restart(c)) {
        return 0;
    }
    for (int32_t pair = 0; pair < n_takes * n_takes; pair++) {
        const int32_t k = (pair + c->config.relation_arg) % (n_takes * n_takes);
        const int32_t from = k / n_takes;
        const int32_t to = k % n_takes;
        const int64_t n = base->slot[to].pos - base->slot[from].pos;
        if (base->slot[from].stream < 0 || base->slot[from].stream != base->slot[to].stream ||
            !base->slot[from].is_track || base->slot[to].is_track || n < 1 ||
            n > HB_CASE_MAX_TOKENS || is_freed(c, from) || is_freed(c, to)) {
            continue;
        }
        struct hb_case blank;
        hb_case_init(&blank);
        struct hb_case_step take = blank.step[0];
        struct hb_case_step extend = blank.step[0];
        take.kind = HB_STEP_TAKE;
        take.request = request;
        take.from = tracks_before[from];
        take.match = -1;
        take.prefix = 0;
        extend.kind = HB_STEP_FORWARD;
        extend.mode = HB_MODE_EXTEND;
        extend.n_rows = 1;
        extend.row[0].request = request;
        extend.row[0].length = (int32_t)n;
        twist->is_clone = 1;
        twist->clone = request;
        twist->clone_of = to;
        twist->clone_name = n_takes;
        return hb_relation_append(out, &take) && hb_relation_append(out, &extend);
    }
    return 0;
}

/* --- 41 --------------------------------------------------------------------------------------- */

/* The first tracked one of the extend rows, -1 if there is none. */
static int32_t first_tracked(const struct hb_case_step *s) {
    const int32_t n = extend_rows(s);
    for (int32_t k = 0; k < n; k++) {
        if (s->row[k].track) {
            return k;
        }
    }
    return -1;
}

static void move_row(struct hb_case_step *s, int32_t from, int32_t to) {
    const struct hb_case_row row = s->row[from];
    for (int32_t k = from; k < to; k++) {
        s->row[k] = s->row[k + 1];
    }
    for (int32_t k = from; k > to; k--) {
        s->row[k] = s->row[k - 1];
    }
    s->row[to] = row;
}

/* A tracked row becomes the first or the last one of its forward, or has a forward of its own
 * before the others. */
static int other_neighbours(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    out->n_steps = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step s = c->step[i];
        const int32_t n = hb_relation_is_extend(&s) ? extend_rows(&s) : 0;
        const int32_t at = n > 1 ? first_tracked(&s) : -1;
        const int32_t last = n - 1;
        if (at >= 0 && c->config.relation_arg % 3 == 2 &&
            HB_MAX_STEPS - out->n_steps - (c->n_steps - i) > 0) {
            struct hb_case_step alone = s;
            alone.n_rows = 1;
            alone.n_decode = 0;
            alone.row[0] = s.row[at];
            move_row(&s, at, s.n_rows - 1);
            s.n_rows--;
            any |= hb_relation_append(out, &alone);
        } else if (at >= 0) {
            const int32_t to = c->config.relation_arg % 3 == 0 ? last : 0;
            move_row(&s, at, to == at ? last - at : to); /* if it is there, to the other end */
            any = 1;
        }
        if (!hb_relation_append(out, &s)) {
            return 0;
        }
    }
    return any && hb_relation_is_plain(c);
}

/* --- 42, 43 ----------------------------------------------------------------------------------- */

/* The same tracked points on the grid of other pages; 0 if one of them is not on it. */
static int page_grid(const struct hb_case *c, struct hb_case *out, int32_t page_chunks) {
    int any = 0;
    out->config.page_chunks = page_chunks;
    const int32_t cc = cache_chunk(&out->config);
    for (int32_t i = 0; i < c->n_steps; i++) {
        if (!hb_relation_is_extend(&c->step[i])) {
            continue;
        }
        const int32_t n = extend_rows(&c->step[i]);
        for (int32_t k = 0; k < n; k++) {
            if (!c->step[i].row[k].track) {
                continue;
            }
            const int32_t after = tracked_after(&c->config, &c->step[i].row[k]);
            if (after % cc != 0 || after == 0) {
                return 0;
            }
            out->step[i].row[k].track_point = after / cc;
            any = 1;
        }
    }
    return any;
}

static int other_pages(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    static const int32_t pages[] = {4, 2, 1, 0};
    enum { N_PAGES = sizeof pages / sizeof *pages };
    (void)twist;
    for (int32_t same_grid = 0; same_grid < 2 && hb_relation_is_plain(c); same_grid++) {
        for (int32_t k = 0; k < N_PAGES; k++) {
            const int32_t page = pages[(c->config.relation_arg + k) % N_PAGES];
            const int is_same =
                (page > 1 ? page : 1) == cache_chunk(&c->config) / c->config.chunk_size;
            if (page != c->config.page_chunks && is_same == same_grid && page_grid(c, out, page)) {
                return 1;
            }
        }
    }
    return 0;
}

static int by_layer(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        any |= hb_relation_is_forward(s) && s->mode == HB_MODE_DECODE && hb_relation_has_track(s);
    }
    out->config.track_by_layer = !c->config.track_by_layer;
    return any && twist->caps->track_by_layer && hb_relation_is_plain(c);
}

static const struct hb_transform transforms[] = {
    {39, HB_BOTH(HB_BOUNDED), .apply = restart,
     .flags = HB_REL_MOVES_KV | HB_REL_SUBSET | HB_REL_ONE_FORMULA},
    {41, HB_BOTH(HB_EXACT_BATCH), .apply = other_neighbours,
     .flags = HB_REL_MOVES_KV | HB_REL_TRACKED_ONLY},
    {42, HB_BOTH(HB_EXACT_SCAN), .apply = other_pages},
    {43, .apply = by_layer},
};

const struct hb_transforms hb_transforms_track = HB_TRANSFORMS(transforms);
