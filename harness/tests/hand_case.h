/* SPDX-License-Identifier: Apache-2.0
 * Cases written by hand, step by step. */
#ifndef HB_HARNESS_TESTS_HAND_CASE_H
#define HB_HARNESS_TESTS_HAND_CASE_H

#include "backend/adapter.h"
#include "harness/case.h"

static inline struct hb_case_step *hand_step(struct hb_case *c, int32_t kind) {
    struct hb_case_step *s = &c->step[c->n_steps++];
    s->kind = kind;
    return s;
}

static inline void hand_take(struct hb_case *c, int32_t request, int32_t prefix) {
    struct hb_case_step *s = hand_step(c, HB_STEP_TAKE);
    s->request = request;
    s->prefix = prefix;
    s->from = -1;
}

static inline void hand_take_track(struct hb_case *c) {
    struct hb_case_step *s = hand_step(c, HB_STEP_TAKE);
    s->slot_kind = 1;
    s->from = -1;
}

static inline struct hb_case_step *hand_forward(struct hb_case *c, int32_t mode) {
    struct hb_case_step *s = hand_step(c, HB_STEP_FORWARD);
    s->mode = mode;
    s->n_rows = 0;
    return s;
}

static inline struct hb_case_row *hand_row(struct hb_case_step *s, int32_t request, int32_t length) {
    struct hb_case_row *row = &s->row[s->n_rows++];
    row->request = request;
    row->length = length;
    row->track = 0;
    return row;
}

static inline void hand_track(struct hb_case_row *row, int32_t track_slot, int32_t track_point) {
    row->track = 1;
    row->track_slot = track_slot;
    row->track_point = track_point;
}

/* A break of the last step. */
static inline void hand_break(struct hb_case *c, int32_t field, int32_t row, int32_t operation,
                              int64_t value) {
    c->brk[c->n_breaks++] = (struct hb_case_break){.step = c->n_steps - 1,
                                                   .field = field,
                                                   .row = row,
                                                   .operation = operation,
                                                   .value = value};
}

/* Two requests, the second with 5 tokens already, and two track slots: slots 1, 2, 3 and 4; slots 5 and 6 are free. Three
 * layers, the last is attention; chunk size 8. */
static inline void hand_init(struct hb_case *c) {
    hb_case_init(c);
    c->config.seed = 5;
    c->config.n_layers = 3;
    c->config.attn_mask = 4;
    c->config.spare_slots = 2;
    hand_take(c, 0, 0);
    hand_take(c, 1, 5);
    hand_take_track(c);
    hand_take_track(c);
}

#endif
