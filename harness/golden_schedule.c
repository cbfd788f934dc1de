/* SPDX-License-Identifier: Apache-2.0
 * Schedules of the golden check: in which forwards the tokens of a case's sequences are fed. Every
 * stored state is met by the end of a row or by tracking. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/batch.h"
#include "harness/golden_internal.h"
#include "harness/rng.h"

enum { MAX_PAD = 2 };

static void put_row(struct hb_golden_schedule *s, int32_t seq, int32_t n, int32_t decode,
                    int32_t track) {
    s->row[s->n_rows++] = (struct hb_golden_row){seq, n, decode, track};
    s->forward[s->n_forwards].n_rows++;
}

static void end_forward(struct hb_golden_schedule *s, int32_t mode) {
    s->forward[s->n_forwards++].mode = mode;
    s->forward[s->n_forwards].first_row = s->n_rows;
}

static void make_whole(const struct hb_golden_problem *p, struct hb_golden_schedule *s) {
    for (int32_t i = 0; i < p->n_seq; i++) {
        put_row(s, i, p->len[i], 0, 0);
    }
    end_forward(s, HB_MODE_EXTEND);
}

/* Segment k of every sequence in one forward; continuations of one token are decode rows. */
static void make_segments(const struct hb_golden_problem *p, struct hb_golden_schedule *s) {
    for (int32_t k = 0; s->n_rows < p->seg_first[p->n_seq]; k++) {
        int32_t count[2] = {0, 0};
        for (int32_t decode = 0; decode < 2; decode++) {
            for (int32_t i = 0; i < p->n_seq; i++) {
                const int32_t at = p->seg_first[i] + k;
                if (at < p->seg_first[i + 1] && (k > 0 && p->seg_len[at] == 1) == decode) {
                    put_row(s, i, p->seg_len[at], decode, 0);
                    count[decode]++;
                }
            }
        }
        const int32_t extend = count[1] > 0 ? HB_MODE_MIXED : HB_MODE_EXTEND;
        end_forward(s, count[0] > 0 ? extend : HB_MODE_DECODE);
    }
}

/* The first token count above pos at which a state of the sequence is stored, or the end. */
static int32_t next_stop(const struct hb_golden_problem *p, int32_t seq, int32_t pos) {
    int32_t stop = p->len[seq];
    for (int32_t i = 0; i < p->n_states; i++) {
        if (p->state[i].seq == seq && p->state[i].after > pos && p->state[i].after < stop) {
            stop = p->state[i].after;
        }
    }
    return stop;
}

/* Length of an extend row, which ends at or before the next stop, or tracks it on the way. The
 * tracked point must be a whole number of chunks behind the row's start (tracking.md section 1). */
static int32_t random_length(const struct hb_golden_problem *p, int32_t chunk, int32_t seq,
                             int32_t pos, struct hb_rng *rng, int32_t *track) {
    const int32_t stop = next_stop(p, seq, pos);
    const int32_t left = stop - pos;
    if (left >= chunk && left % chunk == 0 && hb_rng_one_in(rng, 2)) {
        *track = stop;
        return stop == p->len[seq] ? left : hb_rng_range(rng, left, next_stop(p, seq, stop) - pos);
    }
    if (left > chunk && left % chunk != 0 && hb_rng_one_in(rng, 2)) {
        return left % chunk; /* the rest is whole chunks */
    }
    const int32_t most[4] = {1, chunk - 1, 2 * chunk, left};
    const int32_t n = hb_rng_range(rng, 1, most[hb_rng_below(rng, 4)]);
    return n < left ? n : left;
}

enum { STYLE_EXTEND, STYLE_DECODE, STYLE_M1, STYLE_M2, N_STYLES };

/* Rows for the chosen sequences; pass 0 makes the extend rows, pass 1 the decode rows. Returns the
 * number made. */
static int32_t random_rows(const struct hb_golden_problem *p, const int32_t *chosen,
                           const int32_t *decode, int32_t n, int32_t pass, int32_t style,
                           struct hb_rng *rng, int32_t *pos, struct hb_golden_schedule *s) {
    int32_t made = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t seq = chosen[i];
        int32_t track = 0;
        int32_t len = 1;
        if (decode[i] != pass) {
            continue;
        }
        if (pass == 1) {
            track = style == STYLE_DECODE && hb_rng_one_in(rng, 3) ? pos[seq] + 1 : 0;
        } else if (style != STYLE_M1 || hb_rng_one_in(rng, 2)) {
            len = random_length(p, s->chunk_size, seq, pos[seq], rng, &track);
        }
        put_row(s, seq, len, pass, track);
        pos[seq] += len;
        made++;
    }
    return made;
}

/* One forward over a random set of sequences in random order. scratch [3 * n_seq]. */
static void random_forward(const struct hb_golden_problem *p, struct hb_rng *rng, int32_t *pos,
                           int32_t *scratch, struct hb_golden_schedule *s) {
    static const int32_t mode_of[N_STYLES] = {HB_MODE_EXTEND, HB_MODE_DECODE, HB_MODE_MIXED,
                                              HB_MODE_MIXED};
    int32_t *chosen = scratch;
    int32_t *decode = scratch + p->n_seq;
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_seq; i++) {
        if (pos[i] < p->len[i]) {
            chosen[n++] = i;
        }
    }
    hb_rng_shuffle(rng, chosen, n);
    n = hb_rng_range(rng, 1, n);
    int32_t style = hb_rng_below(rng, N_STYLES);
    int32_t kept = 0;
    for (int32_t i = 0; i < n && style == STYLE_DECODE; i++) {
        const int32_t seq = chosen[i];
        chosen[i] = chosen[kept];
        chosen[kept] = seq;
        kept += p->base + pos[seq] > 0; /* a decode row continues something */
    }
    style = style == STYLE_DECODE && kept == 0 ? STYLE_EXTEND : style;
    n = style == STYLE_DECODE ? kept : n;
    for (int32_t i = 0; i < n; i++) {
        const int native =
            style == STYLE_M2 && i > 0 && p->base + pos[chosen[i]] > 0 && hb_rng_one_in(rng, 2);
        decode[i] = style == STYLE_DECODE || native;
    }
    (void)random_rows(p, chosen, decode, n, 0, style, rng, pos, s);
    (void)random_rows(p, chosen, decode, n, 1, style, rng, pos, s);
    if (hb_rng_one_in(rng, 4)) {
        s->forward[s->n_forwards].pad_rows = hb_rng_range(rng, 0, MAX_PAD);
        s->forward[s->n_forwards].pad_tokens =
            hb_rng_range(rng, s->forward[s->n_forwards].pad_rows, MAX_PAD + 1);
    }
    end_forward(s, mode_of[style]);
}

static int32_t make_random(const struct hb_golden_problem *p, uint64_t seed,
                           struct hb_golden_schedule *s) {
    struct hb_rng rng = hb_rng_make(seed, (uint64_t)p->n_tokens);
    const int32_t sizes[4] = {p->config.chunk_size, 16, 8, 4};
    int32_t *memory = calloc((size_t)p->n_seq * 4, sizeof *memory);
    if (memory == NULL) {
        return HB_ERR_MEMORY;
    }
    s->chunk_size = sizes[hb_rng_below(&rng, 4)];
    s->thread_order = hb_rng_below(&rng, HB_N_ORDERS);
    s->block_order = hb_rng_below(&rng, HB_N_ORDERS);
    s->order_seed = (uint32_t)hb_rng_next(&rng);
    hb_rng_shuffle(&rng, s->order, p->n_seq);
    for (int32_t done = 0; done < p->n_tokens;) {
        const int32_t first = s->n_rows;
        random_forward(p, &rng, memory, memory + p->n_seq, s);
        for (int32_t i = first; i < s->n_rows; i++) {
            done += s->row[i].n;
        }
    }
    s->state_layout = hb_rng_below(&rng, HB_N_STATE_LAYOUTS);
    s->conv_state_len = hb_rng_below(&rng, HB_N_CONV_STATE_LENS);
    free(memory);
    return HB_OK;
}

int32_t hb_golden_schedule_make(const struct hb_golden_problem *p, int32_t kind, uint64_t seed,
                                struct hb_golden_schedule *s, struct hb_error *err) {
    static const char *const names[3] = {"whole", "segments", "random"};
    struct hb_golden_schedule made = {.chunk_size = p->config.chunk_size};
    /* no forward and no row is without a token */
    made.forward = calloc((size_t)p->n_tokens + 1, sizeof *made.forward);
    made.row = calloc((size_t)p->n_tokens, sizeof *made.row);
    made.order = calloc((size_t)p->n_seq, sizeof *made.order);
    int32_t status =
        made.forward != NULL && made.row != NULL && made.order != NULL ? HB_OK : HB_ERR_MEMORY;
    (void)snprintf(made.name, sizeof made.name, "%s", names[kind]);
    for (int32_t i = 0; i < p->n_seq && status == HB_OK; i++) {
        made.order[i] = i;
    }
    if (status == HB_OK && kind == HB_GOLDEN_WHOLE) {
        make_whole(p, &made);
    } else if (status == HB_OK && kind == HB_GOLDEN_SEGMENTS) {
        make_segments(p, &made);
    } else if (status == HB_OK) {
        status = make_random(p, seed, &made);
    }
    if (status != HB_OK) {
        hb_golden_schedule_free(&made);
        return hb_fail_text(err, status, "%s: out of memory for a schedule", p->name);
    }
    *s = made;
    return HB_OK;
}

void hb_golden_schedule_free(struct hb_golden_schedule *s) {
    free(s->forward);
    free(s->row);
    free(s->order);
    memset(s, 0, sizeof *s);
}
