/* SPDX-License-Identifier: Apache-2.0
 * Cases by hand for the tests of the executor, and short ways to run them. Include after cmocka.h.
 */
#ifndef HB_HARNESS_TESTS_RUN_CASES_H
#define HB_HARNESS_TESTS_RUN_CASES_H

#include "harness/run.h"
#include "harness/tests/hand_case.h"

/* --- cases ------------------------------------------------------------------------------------ */

static inline void extend(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 10);
    hand_row(s, 1, 19);
}

static inline void decode(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 0, 1);
    hand_row(s, 1, 1);
}

static inline void one_decode(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 0, 1); /* slot 1: the neighbour is slot 0 */
}

static inline void extend_and_decode(struct hb_case *c) {
    extend(c);
    decode(c);
}

static inline void padded_decode(struct hb_case *c) {
    extend(c);
    decode(c);
    c->step[c->n_steps - 1].pad_rows = 2;
}

static inline void padded_tokens(struct hb_case *c) {
    extend(c);
    c->step[c->n_steps - 1].pad_tokens = 3;
}

/* Row 0 tracked, row 1 continues from a state without being tracked. */
static inline void one_row_tracked(struct hb_case *c) {
    extend(c);
    hand_track(&c->step[c->n_steps - 1].row[0], 0, 0);
}

static inline void tracked_late(struct hb_case *c) {
    extend(c);
    hand_track(&c->step[c->n_steps - 1].row[1], 0, 0);
}

static inline void short_prompt(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 1, 1);
}

static inline void two_groups(struct hb_case *c) {
    c->config.heads = 4;
    c->config.groups = 2;
    extend(c);
}

static inline void fast_form(struct hb_case *c) {
    c->config.kernel_form = HB_FORM_FAST;
    extend(c);
}

static inline void fast_form_backwards(struct hb_case *c) {
    fast_form(c);
    c->config.thread_order = HB_ORDER_DESCENDING;
}

static inline void refused(struct hb_case *c) {
    extend(c);
    hand_break(c, HB_FIELD_SEQ_LENS, 1, HB_BREAK_ADD, 1);
}

static inline void copy_slot(struct hb_case *c) {
    extend(c);
    struct hb_case_step *s = hand_step(c, HB_STEP_COPY);
    s->slot = 1;
    s->slot2 = 0;
    decode(c);
}

static inline void free_slot(struct hb_case *c) {
    extend(c);
    struct hb_case_step *s = hand_step(c, HB_STEP_FREE);
    s->slot = 0;
    hand_take(c, 2, 0);
}

static inline void idle(struct hb_case *c) {
    extend(c);
    struct hb_case_step *s = hand_forward(c, HB_MODE_IDLE);
    hand_row(s, 0, 1);
}

static inline void mixed(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_MIXED);
    hand_row(s, 0, 10);
    hand_row(s, 1, 1);
    s->n_decode = 1;
    s->pad_rows = 1;
    s->pad_tokens = 2;
    s->optional = 15;
    decode(c);
}

static inline void restart(struct hb_case *c) {
    tracked_late(c);
    hand_take(c, 2, 0);
    c->step[c->n_steps - 1].from = 0;
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 2, 5);
    s = hand_forward(c, HB_MODE_DECODE);
    hand_track(hand_row(s, 1, 1), 1, 0);
    hand_row(s, 2, 1);
}

static inline void free_track_slot(struct hb_case *c) {
    tracked_late(c);
    struct hb_case_step *s = hand_step(c, HB_STEP_FREE);
    s->slot = 2;
    hand_take(c, 2, 0);
    c->step[c->n_steps - 1].from = 0;
    s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 2, 3);
}

/* The freed track slot is the only free one: the new slot would be a copy of itself. */
static inline void restart_from_itself(struct hb_case *c) {
    c->config.spare_slots = 0;
    free_track_slot(c);
}

static inline void wrapper_entries(struct hb_case *c) {
    for (int32_t layer = 0; layer < 4; layer++) { /* Mamba2, Mamba2, attention, none */
        struct hb_case_step *s = hand_step(c, HB_STEP_ENTRY);
        s->mode = HB_MODE_EXTEND;
        s->n_rows = 0;
        hand_row(s, 1, 2);
        s->target = HB_ENTRY_WRAPPER;
        s->direction = layer & 1;
        s->layer = layer;
    }
    decode(c);
}

static inline void table_named_twice(struct hb_case *c) {
    extend(c);
    hand_break(c, HB_FIELD_TABLE, 1, HB_BREAK_SET, 99);
    hand_break(c, HB_FIELD_TABLE, 1, HB_BREAK_SET, 77);
    extend(c);
}

static inline void odd_takes(struct hb_case *c) {
    static const int64_t counts[] = {0, -1, 3, 100};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        hand_take(c, (int32_t)i + 2, 0);
        hand_break(c, HB_FIELD_SLOT_COUNT, 0, HB_BREAK_SET, counts[i]);
    }
    extend(c);
}

static inline void odd_layer(struct hb_case *c) {
    extend(c);
    hand_break(c, HB_FIELD_LAYER_ID, 0, HB_BREAK_SET, 1);
    hand_break(c, HB_FIELD_LAYER_ID, 0, HB_BREAK_SET, -1);
    hand_break(c, HB_FIELD_IO_BYTES, 1, HB_BREAK_ADD, -4);
}

static inline void absent_buffer(struct hb_case *c) {
    extend(c);
    hand_break(c, HB_FIELD_IO_POINTER, 3, HB_BREAK_ABSENT, 0);
    extend(c);
}

static inline void null_batch(struct hb_case *c) {
    extend(c);
    hand_break(c, HB_FIELD_BATCH_POINTER, 0, HB_BREAK_ABSENT, 0);
    decode(c);
}

static inline void bad_config(struct hb_case *c) {
    extend(c);
    hand_break(c, HB_FIELD_CFG_CHUNK_SIZE, 0, HB_BREAK_SET, 7);
}

static inline void make(void (*build)(struct hb_case *c), struct hb_case *c) {
    hand_init(c);
    build(c);
    hb_case_normalize(c);
}

static inline struct hb_verdict run(const struct hb_adapter *backend, const struct hb_case *c,
                                    int32_t check_off, int32_t defect) {
    const struct hb_run_options o = {
        .tamper_element = -1, .check_off = check_off, .defect = defect};
    struct hb_verdict v;
    assert_int_equal(hb_run_case(backend, c, &o, &v, NULL), 0);
    return v;
}

static inline void assert_pass(const struct hb_verdict *v) {
    assert_string_equal(v->text, "");
    assert_int_equal(v->kind, HB_VERDICT_PASS);
}

#endif
