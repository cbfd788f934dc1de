/* SPDX-License-Identifier: Apache-2.0
 * The model behind generation: what slots, requests, checkpoints and graphs hold if every step succeeds. */
#include <string.h>

#include "backend/adapter.h"
#include "harness/gen_history.h"

int32_t hb_case_cache_chunk(const struct hb_case *c) {
    const int32_t pages = c->config.page_chunks;
    return c->config.chunk_size * (pages > 1 ? pages : 1);
}

int hb_mode_is_extend(int32_t mode) {
    return mode == HB_MODE_EXTEND || mode == HB_MODE_MIXED || mode == HB_MODE_SPLIT_PREFILL ||
           mode == HB_MODE_DLLM_EXTEND;
}

static int32_t smaller(int32_t a, int32_t b) {
    return a < b ? a : b;
}

void hb_history_init(struct hb_history *h, int32_t n_slots, int32_t n_virtual) {
    memset(h, 0, sizeof *h);
    h->n_slots = smaller(n_slots, HB_MAX_HELD);
    h->n_free = h->n_slots;
    h->n_free_ids = n_virtual > 0 ? smaller(n_virtual, HB_MAX_HELD) : h->n_slots;
    for (int32_t i = 0; i < h->n_free_ids; i++) {
        h->free_list[i] = i + 1;
    }
    for (int32_t r = 0; r < HB_MAX_REQS; r++) {
        h->request_take[r] = -1;
        h->request_stream[r] = -1;
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

int32_t hb_history_cursor(const struct hb_history *h, int32_t request) {
    const int32_t t = h->request_take[request];
    return t >= 0 ? h->take[t].cursor : 0;
}

int32_t hb_case_ring_mode(const struct hb_case *c) {
    return c->config.ring_owner == HB_RING_COMMIT ? HB_MODE_TARGET_VERIFY : HB_MODE_DECODE;
}

int hb_case_ring_has_mode(const struct hb_case *c, int32_t mode) {
    return c->config.ring_length > 0 && mode == hb_case_ring_mode(c);
}

int32_t hb_history_seq_len(const struct hb_history *h, const struct hb_case_step *s, int32_t r) {
    const int32_t before = hb_history_position(h, s->row[r].request);
    return s->mode == HB_MODE_TARGET_VERIFY ? before : before + s->row[r].length;
}

/* --- ids ------------------------------------------------------------------------------------------------------------- */

/* 0 if no slot is free. */
static int32_t take_id(struct hb_history *h) {
    if (h->n_free == 0 || h->n_free_ids == 0) {
        return 0;
    }
    const int32_t id = h->free_list[0];
    h->n_free--;
    h->n_free_ids--;
    memmove(h->free_list, h->free_list + 1, (size_t)h->n_free_ids * sizeof *h->free_list);
    return id;
}

static void give_back(struct hb_history *h, int32_t id) {
    if (h->n_free_ids < HB_MAX_HELD) {
        h->free_list[h->n_free_ids++] = id;
        h->n_free++;
    }
    for (int32_t i = 0; i < h->n_published; i++) {
        if (h->published[i].id == id) { /* evicted */
            h->n_published--;
            memmove(&h->published[i], &h->published[i + 1],
                    (size_t)(h->n_published - i) * sizeof h->published[i]);
            return;
        }
    }
}

/* --- TAKE, FREE, COPY, PUBLISH ----------------------------------------------------------------------------------- */

const struct hb_kept *hb_history_match(const struct hb_history *h, int32_t match, int32_t prefix) {
    const struct hb_kept *best = NULL;
    for (int32_t i = 0; i < h->n_published; i++) {
        const struct hb_kept *k = &h->published[i];
        if (k->stream == h->request_stream[match] && k->position <= prefix &&
            (!best || k->position > best->position)) {
            best = k;
        }
    }
    return best;
}

static void start_request(struct hb_history *h, const struct hb_case *c, const struct hb_case_step *s,
                          struct hb_taken *t) {
    t->is_known = 1;
    t->position = s->prefix;
    t->stream = ++h->n_streams;
    if (s->match >= 0) {
        const struct hb_kept *found = hb_history_match(h, s->match, s->prefix);
        t->position = found ? found->position : 0;
        t->stream = h->request_stream[s->match] > 0 ? h->request_stream[s->match] : t->stream;
    } else if (s->from >= 0 && h->n_tracks > 0) {
        const struct hb_taken *from = &h->take[h->track[s->from % h->n_tracks]];
        t->position = from->position;
        t->stream = from->stream;
    }
    t->request = s->request;
    h->request_take[s->request] = h->n_takes;
    h->request_stream[s->request] = t->stream;
    struct hb_ping_pong_table *p = &h->ping_pong[s->request];
    hb_ping_pong_init(p, c->config.ping_pong);
    const int32_t n = hb_ping_pong_at_start(p);
    for (int32_t i = 0; i < n && h->n_free >= n - i; i++) {
        p->slot[i] = take_id(h);
    }
}

static void apply_take(struct hb_history *h, const struct hb_case *c, const struct hb_case_step *s) {
    struct hb_taken *t = &h->take[h->n_takes];
    memset(t, 0, sizeof *t);
    t->is_track = s->slot_kind == 1;
    t->id = take_id(h);
    t->is_free = t->id == 0;
    t->request = -1;
    if (t->is_track) {
        h->track[h->n_tracks++] = h->n_takes;
    } else {
        start_request(h, c, s, t);
    }
    h->n_takes++;
}

static void apply_free(struct hb_history *h, const struct hb_case_step *s) {
    const int32_t names[2] = {s->slot, s->slot2};
    const int32_t n = s->slot2 >= 0 ? 2 : 1;
    int ok = n == 1 || s->slot != s->slot2;
    for (int32_t i = 0; i < n; i++) {
        ok = ok && names[i] < h->n_takes && !h->take[names[i]].is_free;
    }
    for (int32_t i = 0; i < n && ok; i++) {
        h->take[names[i]].is_free = 1;
        give_back(h, h->take[names[i]].id);
    }
}

static void apply_copy(struct hb_history *h, const struct hb_case_step *s) {
    if (s->slot >= h->n_takes || s->slot2 < 0 || s->slot2 >= h->n_takes) {
        return;
    }
    const struct hb_taken *src = &h->take[s->slot];
    struct hb_taken *dst = &h->take[s->slot2];
    if (!src->is_free && !dst->is_free && src->cursor == 0) {
        dst->is_known = src->is_known;
        dst->position = src->position;
        dst->stream = src->stream;
        dst->cursor = 0;
        dst->is_full = 0;
    }
}

static void publish(struct hb_history *h, const struct hb_kept *k) {
    if (h->n_published < HB_MAX_STEPS) {
        h->published[h->n_published++] = *k;
    }
}

static void apply_publish(struct hb_history *h, const struct hb_case *c, const struct hb_case_step *s) {
    if (s->slot >= h->n_takes) {
        return;
    }
    struct hb_taken *t = &h->take[s->slot];
    if (c->config.ping_pong != HB_PING_PONG_OFF && t->request >= 0) {
        struct hb_ping_pong_table *p = &h->ping_pong[t->request];
        const int32_t id = hb_ping_pong_newest(p);
        if (id > 0) {
            publish(h, &h->checkpoint[t->request][p->keep]);
            hb_ping_pong_donated(p, take_id(h));
        }
    } else if (t->is_track && !t->is_tree && !t->is_free) {
        const struct hb_kept k = {t->id, t->stream, t->position};
        t->is_tree = 1;
        if (t->is_known) {
            publish(h, &k);
        }
    }
}

/* --- forwards ---------------------------------------------------------------------------------------------------- */

int32_t hb_history_track_id(const struct hb_history *h, const struct hb_case_step *s, int32_t r) {
    const struct hb_ping_pong_table *p = &h->ping_pong[s->row[r].request];
    if (p->mode != HB_PING_PONG_OFF) {
        return hb_ping_pong_target(p);
    }
    return h->n_tracks > 0 ? h->take[h->track[s->row[r].track_slot % h->n_tracks]].id : 0;
}

void hb_history_track(struct hb_history *h, const struct hb_case_row *row, int32_t request, int32_t stream,
                      int32_t position) {
    struct hb_ping_pong_table *p = &h->ping_pong[request];
    if (p->mode != HB_PING_PONG_OFF) {
        for (int32_t i = hb_ping_pong_missing(p); i >= 0 && h->n_free > 0; i = hb_ping_pong_missing(p)) {
            p->slot[i] = take_id(h);
        }
        h->checkpoint[request][p->next] = (struct hb_kept){hb_ping_pong_target(p), stream, position};
        hb_ping_pong_tracked(p);
    } else if (h->n_tracks > 0) {
        struct hb_taken *dst = &h->take[h->track[row->track_slot % h->n_tracks]];
        dst->is_known = 1;
        dst->stream = stream;
        dst->position = position;
        dst->cursor = 0;
    }
}

/* backend/README.md "Replay ring". */
static void advance_ring(const struct hb_case *c, const struct hb_case_step *s, int32_t is_tracked,
                         struct hb_taken *t) {
    const int32_t interval = c->config.track_chunks * c->config.chunk_size;
    const int is_forced = is_tracked || ((s->optional & 32) && t->position % interval == 0);
    if (hb_case_ring_has_mode(c, HB_MODE_DECODE)) {
        t->cursor = is_forced || t->cursor >= c->config.ring_length - 1 ? 0 : t->cursor + 1;
    }
}

static void apply_forward(struct hb_history *h, const struct hb_case *c,
                          const struct hb_case_step *s) {
    const int is_decode = s->mode == HB_MODE_DECODE;
    const int32_t rows = s->n_rows + s->pad_rows;
    if (s->replay && (rows > HB_MAX_CAPTURE || !h->captured[rows].is_captured ||
                      h->captured[rows].mode != s->mode)) {
        return;
    }
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
        if (row->track) {
            const int32_t points = row->length / cc;
            int32_t point = row->track_point;
            point = point == 0 || point > points ? points : point;
            hb_history_track(h, row, row->request, t->stream,
                             t->position + (is_decode ? 1 : point * cc));
        }
        t->position += row->length;
        if (is_decode) {
            advance_ring(c, s, row->track, t);
        }
    }
}

static void apply_graph_init(struct hb_history *h, const struct hb_case_step *s) {
    if (h->graph_rows == 0 && s->bs > 0 && s->nodes > 0) {
        h->graph_rows = s->bs;
        h->graph_draft = s->nodes;
    }
}

static void apply_capture(struct hb_history *h, const struct hb_case_step *s) {
    if (s->bs < 1 || s->bs > h->graph_rows || h->captured[s->bs].is_captured) {
        return;
    }
    h->drafted.is_valid = 0;
    h->captured[s->bs] = (struct hb_captured){
        1, s->mode, s->mode == HB_MODE_TARGET_VERIFY && (s->optional & 128), s->layer_mask};
}

void hb_history_apply(struct hb_history *h, const struct hb_case *c, const struct hb_case_step *s) {
    switch (s->kind) {
    case HB_STEP_FORWARD:
        apply_forward(h, c, s);
        break;
    case HB_STEP_TAKE:
        if (h->n_takes < HB_MAX_STEPS) {
            apply_take(h, c, s);
        }
        break;
    case HB_STEP_FREE:
        apply_free(h, s);
        break;
    case HB_STEP_COPY:
        apply_copy(h, s);
        break;
    case HB_STEP_ENTRY:
        h->drafted.is_valid = s->n_rows > 0 ? 0 : h->drafted.is_valid;
        break;
    case HB_STEP_COMMIT:
        hb_history_commit(h, c, s);
        break;
    case HB_STEP_GRAPH_INIT:
        apply_graph_init(h, s);
        break;
    case HB_STEP_CAPTURE:
        apply_capture(h, s);
        break;
    case HB_STEP_PUBLISH:
        apply_publish(h, c, s);
        break;
    default: /* a move changes no id, and who holds which slot is not kept */
        break;
    }
}

void hb_history_replay(struct hb_history *h, const struct hb_case *c, int32_t step) {
    struct hb_config config;
    hb_case_backend_config(c, &config);
    hb_history_init(h, config.n_slots, config.n_virtual);
    for (int32_t i = 0; i < step && i < c->n_steps; i++) {
        hb_history_apply(h, c, &c->step[i]);
    }
}
