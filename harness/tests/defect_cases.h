/* SPDX-License-Identifier: Apache-2.0
 * Cases by hand in which a planted defect of graphs, drafts, ids, tracking or the ring shows.
 * Include after cmocka.h. */
#ifndef HB_HARNESS_TESTS_DEFECT_CASES_H
#define HB_HARNESS_TESTS_DEFECT_CASES_H

#include "harness/tests/graph_cases.h"

/* A live row whose length is that of padding, before one that is longer. */
static inline void one_in_the_middle(struct hb_case *c) {
    decode_graph(c);
    hand_take(c, 3, 0);
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    s->replay = 1;
    s->pad_rows = 2;
    s->optional = 32 | 64;
    hand_row(s, 3, 1);
    hand_row(s, 1, 1);
}

/* The graph is smaller than the largest: its destinations are the first of the buffer. */
static inline void small_graph_tracked(struct hb_case *c) {
    extend(c);
    graph_init(c, 4, 1);
    (void)capture(c, HB_MODE_DECODE, 2, 1);
    struct hb_case_step *s = replay_decode(c, 2, 0);
    hand_track(&s->row[0], 0, 0);
}

static inline void smaller_tree_replayed(struct hb_case *c) {
    hand_take(c, 2, 3);
    c->config.spare_rows = 2;
    graph_init(c, 2, 4);
    capture(c, HB_MODE_TARGET_VERIFY, 2, 4)->optional = 128;
    (void)replay_verify(c, HB_TREE_LINKED_CHAIN, 4, 0);
    struct hb_case_step *s = replay_verify(c, HB_TREE_RANDOM + 3, 4, 1);
    s->n_rows = 1;
}

static inline void root_committed(struct hb_case *c) {
    chain(c);
    c->step[c->n_steps - 1].row[0].accept = 0;
    c->step[c->n_steps - 1].row[1].accept = 0;
}

/* Without attention: it would be wrong first. */
static inline void one_node_each(struct hb_case *c) {
    c->config.attn_mask = 0;
    hand_take(c, 2, 3);
    (void)verify(c, HB_TREE_CHAIN, 1, 1);
    (void)commit(c, 0, 0);
}

/* After a longer verify: its entries stand beside those of this one. */
static inline void no_drafts_after_drafts(struct hb_case *c) {
    chain(c);
    (void)verify(c, HB_TREE_CHAIN, 1, 1);
    (void)commit(c, 0, 0);
}

static inline void freed_before_the_commit(struct hb_case *c) {
    chain(c);
    (void)slot_step(c, HB_STEP_FREE, 4);
    (void)commit(c, 1, 2);
}

/* Ids and slots part: the destination's id is another slot's number. */
static inline void tracked_after_a_move(struct hb_case *c) {
    c->config.virtual_ids = 1;
    extend(c);
    (void)slot_step(c, HB_STEP_MOVE, 2);
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_track(hand_row(s, 0, 1), 0, 0);
    hand_row(s, 1, 1);
}

static inline void mixed_tracked(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_MIXED);
    hand_track(hand_row(s, 0, 10), 0, 0);
    hand_row(s, 1, 1);
    s->n_decode = 1;
}

/* Rows after the first start off the grid of chunks. */
static inline void tracked_off_the_grid(struct hb_case *c) {
    c->config.kernel_form = HB_FORM_FAST;
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 11);
    hand_track(hand_row(s, 1, 19), 0, 0);
}

static inline void large_pages_tracked(struct hb_case *c) {
    c->config.page_chunks = 2;
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_track(hand_row(s, 0, 27), 0, 0);
    hand_row(s, 1, 3);
}

/* The first shape in which two siblings follow node 1 beneath the root. */
static inline void three_siblings(struct hb_case *c) {
    int32_t parent[HB_MAX_DRAFT] = {0, 1}; /* none yet */
    hand_take(c, 2, 3);
    struct hb_case_step *s = verify(c, HB_TREE_RANDOM, 5, 5);
    while (s->tree < HB_TREE_MAX && !(parent[1] == 0 && parent[2] == 0 && parent[3] == 0)) {
        s->tree++;
        hb_case_tree(c, s, 0, 5, parent);
    }
    (void)commit(c, 3, 3);
}

#endif
