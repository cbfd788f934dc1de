/* SPDX-License-Identifier: Apache-2.0
 * Cases of draft verification by hand. Include after cmocka.h and hand_case.h. */
#ifndef HB_HARNESS_TESTS_SPEC_CASES_H
#define HB_HARNESS_TESTS_SPEC_CASES_H

#include "harness/tests/hand_case.h"

/* Requests 1 and 2, of 5 and 3 tokens, slots 2 and 5. */
static inline struct hb_case_step *verify(struct hb_case *c, int32_t tree, int32_t nodes,
                                          int32_t nodes2) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_TARGET_VERIFY);
    c->config.max_draft = 5;
    s->tree = tree;
    s->ragged = nodes != nodes2;
    hand_row(s, 1, nodes);
    hand_row(s, 2, nodes2);
    return s;
}

static inline struct hb_case_step *commit(struct hb_case *c, int32_t accept, int32_t accept2) {
    struct hb_case_step *s = hand_step(c, HB_STEP_COMMIT);
    s->n_rows = 2;
    s->row[0].accept = accept;
    s->row[1].accept = accept2;
    return s;
}

static inline void decode_both(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 2, 1);
    hand_row(s, 1, 1);
}

static inline void chain(struct hb_case *c) {
    hand_take(c, 2, 3);
    (void)verify(c, HB_TREE_CHAIN, 3, 3);
    (void)commit(c, 1, 2);
}

/* The first shape in which a node of row 0 hangs on the root, beside node 1, and a later node on
 * it. */
static inline void forked_tree(struct hb_case *c) {
    int32_t parent[HB_MAX_DRAFT] = {0};
    hand_take(c, 2, 3);
    struct hb_case_step *s = verify(c, HB_TREE_RANDOM, 5, 5);
    while (s->tree < HB_TREE_MAX && !(parent[2] == 0 && parent[4] == 2)) {
        s->tree++;
        hb_case_tree(c, s, 0, 5, parent);
    }
    (void)commit(c, 4, 3);
}

/* Row 0 stays where it is. */
static inline void committed_in_part(struct hb_case *c) {
    chain(c);
    c->step[c->n_steps - 1].row[0].accept = -1;
}

#endif
