/* SPDX-License-Identifier: Apache-2.0
 * Cases by hand of graphs, the replay ring, virtual ids and the prefix cache. Include after
 * cmocka.h, run_cases.h and spec_cases.h. */
#ifndef HB_HARNESS_TESTS_GRAPH_CASES_H
#define HB_HARNESS_TESTS_GRAPH_CASES_H

#include "harness/tests/run_cases.h"
#include "harness/tests/spec_cases.h"

/* --- graphs ----------------------------------------------------------------------------------- */

static inline void graph_init(struct hb_case *c, int32_t bs, int32_t nodes) {
    c->config.graph_rows = 4;
    c->config.graph_draft = nodes;
    struct hb_case_step *s = hand_step(c, HB_STEP_GRAPH_INIT);
    s->bs = bs;
    s->nodes = nodes;
}

static inline struct hb_case_step *capture(struct hb_case *c, int32_t mode, int32_t bs,
                                           int32_t nodes) {
    struct hb_case_step *s = hand_step(c, HB_STEP_CAPTURE);
    s->mode = mode;
    s->bs = bs;
    s->nodes = nodes;
    return s;
}

/* Of the graph of as many rows as there are, with padding. */
static inline struct hb_case_step *replay_decode(struct hb_case *c, int32_t rows, int32_t padding) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    s->replay = 1;
    s->pad_rows = padding;
    for (int32_t i = 0; i < rows; i++) {
        hand_row(s, 1 - i, 1);
    }
    return s;
}

static inline void decode_graph(struct hb_case *c) {
    extend(c);
    graph_init(c, 4, 1);
    (void)capture(c, HB_MODE_DECODE, 4, 1);
}

static inline void decode_replayed(struct hb_case *c) {
    decode_graph(c);
    (void)replay_decode(c, 2, 2);
}

/* Large and small batches by turns on one graph, every way to say the padding, begin and layers
 * between. */
static inline void replays_by_turns(struct hb_case *c) {
    decode_graph(c);
    (void)capture(c, HB_MODE_DECODE, 2, 1);
    replay_decode(c, 2, 2)->optional = 32;
    replay_decode(c, 1, 3)->optional = 32 | 64;
    replay_decode(c, 2, 0)->optional = 16;
    decode(c);
    replay_decode(c, 0, 4)->optional = 8;
    replay_decode(c, 1, 1)->optional = 32;
    replay_decode(c, 2, 2)->optional =
        64; /* no mirror, no count: a padding row is taken for a live one, refused */
}

static inline void replay_tracked(struct hb_case *c) {
    decode_graph(c);
    struct hb_case_step *s = replay_decode(c, 2, 2);
    hand_track(&s->row[1], 1, 0);
    hand_take(c, 3, 0);
    c->step[c->n_steps - 1].from = 1;
    s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 3, 1);
    hand_row(s, 0, 1);
}

static inline void idle_graph(struct hb_case *c) {
    decode_graph(c);
    (void)capture(c, HB_MODE_IDLE, 2, 1);
    struct hb_case_step *s = replay_decode(c, 2, 0);
    s->mode = HB_MODE_IDLE;
    (void)replay_decode(c, 2, 2);
}

static inline struct hb_case_step *replay_verify(struct hb_case *c, int32_t tree, int32_t nodes,
                                                 int32_t padding) {
    struct hb_case_step *s = verify(c, tree, nodes, nodes);
    s->draft = nodes;
    s->replay = 1;
    s->pad_rows = padding;
    return s;
}

static inline void verify_graph(struct hb_case *c) {
    hand_take(c, 2, 3);
    c->config.spare_rows = 2;
    graph_init(c, 3, 4);
    (void)capture(c, HB_MODE_TARGET_VERIFY, 3, 4);
    capture(c, HB_MODE_TARGET_VERIFY, 2, 4)->optional = 128;
    (void)replay_verify(c, HB_TREE_CHAIN, 4, 1);
    (void)commit(c, 2, 1);
    (void)replay_verify(c, HB_TREE_RANDOM, 4, 0);
    (void)commit(c, 3, 0);
    decode_both(c);
}

/* Everything that is refused, and the graph still right afterwards. */
static inline void graphs_refused(struct hb_case *c) {
    extend(c);
    (void)capture(c, HB_MODE_DECODE, 2, 1); /* before graph_init */
    graph_init(c, 3, 1);
    graph_init(c, 3, 1);
    (void)capture(c, HB_MODE_EXTEND, 2, 1);
    (void)capture(c, HB_MODE_DECODE, 4, 1);
    (void)replay_decode(c, 2, 0); /* not captured */
    (void)capture(c, HB_MODE_DECODE, 2, 1);
    (void)capture(c, HB_MODE_DECODE, 2, 1);
    replay_decode(c, 2, 0)->mode = HB_MODE_IDLE;
    (void)replay_decode(c, 2, 0);
    hand_break(c, HB_FIELD_SEQ_LENS, 1, HB_BREAK_ADD, 1);
    (void)replay_decode(c, 2, 0);
}

static inline void layer_in_a_replay(struct hb_case *c) {
    decode_replayed(c);
    hand_break(c, HB_FIELD_LAYER_ID, 0, HB_BREAK_SET, 1); /* sees no metadata */
    (void)replay_decode(c, 1, 3);
}

static inline void part_of_the_layers(struct hb_case *c) {
    decode_graph(c);
    c->step[c->n_steps - 1].layer_mask = 1;
    (void)replay_decode(c, 2, 2);
    decode(c);
}

/* --- ring ------------------------------------------------------------------------------------- */

static inline void ring(struct hb_case *c) {
    c->config.ring_length = 3;
    extend(c);
}

/* Request 0 of 10 tokens and request 1 of 24: the ring wraps; steps at multiples of 8 are forced.
 */
static inline void ring_decodes(struct hb_case *c) {
    ring(c);
    for (int32_t i = 0; i < 6; i++) {
        decode(c);
        c->step[c->n_steps - 1].optional = i & 1 ? 32 : 0;
    }
}

static inline void ring_pending(struct hb_case *c) {
    ring(c);
    decode(c);
}

static inline void ring_tracked(struct hb_case *c) {
    ring_pending(c);
    decode(c);
    hand_track(&c->step[c->n_steps - 1].row[0], 0, 0);
    decode(c);
    hand_take(c, 2, 0);
    c->step[c->n_steps - 1].from = 0;
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 2, 5);
}

/* Records that are not folded: no extend, no copy; both leave the ring as it was. */
static inline void ring_refused(struct hb_case *c) {
    ring_pending(c);
    extend(c);
    struct hb_case_step *s = hand_step(c, HB_STEP_COPY);
    s->slot = 0;
    s->slot2 = 1;
    decode(c);
    decode(c);
    extend(c);
}

/* A decode without one of its layers cannot be finished. What its rows hold then is nobody's
 * knowledge. */
static inline void ring_unfinished(struct hb_case *c) {
    ring(c);
    decode(c);
    c->step[c->n_steps - 1].layer_mask = 2;
    decode(c);
    decode(c);
    hand_take(c, 3, 4);
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 3, 1);
    hand_row(s, 0, 1);
}

static inline void ring_replayed(struct hb_case *c) {
    ring(c);
    graph_init(c, 3, 1);
    (void)capture(c, HB_MODE_DECODE, 3, 1);
    (void)replay_decode(c, 2, 1);
    replay_decode(c, 2, 1)->optional = 16;
    decode(c);
    struct hb_case_step *s = replay_decode(c, 2, 1);
    s->optional = 32;
    hand_track(&s->row[0], 0, 0);
    (void)replay_decode(c, 1, 2);
}

static inline void ring_graph_without_a_layer(struct hb_case *c) {
    ring(c);
    graph_init(c, 3, 1);
    capture(c, HB_MODE_DECODE, 3, 1)->layer_mask = 1; /* cannot be finished */
    (void)replay_decode(c, 2, 1);
    (void)capture(c, HB_MODE_DECODE, 3, 1);
    (void)replay_decode(c, 2, 1);
}

/* --- a ring that commits own -------------------------------------------------------------------- */

/* Requests 1 and 2 in slots 2 and 5; room for three verifies of five nodes. */
static inline void ring_of_commits(struct hb_case *c) {
    c->config.max_draft = 5;
    c->config.ring_length = 16;
    c->config.ring_owner = HB_RING_COMMIT;
    hand_take(c, 2, 3);
}

static inline void ring_commit(struct hb_case *c) {
    ring_of_commits(c);
    (void)verify(c, HB_TREE_CHAIN, 3, 3);
    (void)commit(c, 1, 2);
}

/* Cursors 8 and 6, so that slot 2 is to be folded; the fold is at 8, its next nodes go around the
 * end. */
static inline void ring_commits(struct hb_case *c) {
    ring_of_commits(c);
    (void)verify(c, HB_TREE_CHAIN, 3, 3);
    (void)commit(c, 2, 0);
    (void)verify(c, HB_TREE_CHAIN, 5, 5);
    (void)commit(c, 4, 4);
    (void)verify(c, HB_TREE_CHAIN, 4, 4); /* folds row 0 */
    (void)commit(c, 3, -1);
    (void)verify(c, HB_TREE_CHAIN, 5, 2);
    (void)commit(c, 4, 1);
    (void)verify(c, HB_TREE_CHAIN, 5, 5); /* folds both */
    (void)commit(c, 2, 1);
}

static inline void ring_commit_folds(struct hb_case *c) {
    ring_of_commits(c);
    (void)verify(c, HB_TREE_CHAIN, 3, 3);
    (void)commit(c, 2, 0);
    (void)verify(c, HB_TREE_CHAIN, 5, 5);
    (void)commit(c, 4, 4);
    (void)verify(c, HB_TREE_CHAIN, 4, 4);
}

/* A fold of which nothing is accepted, a verify twice, commits that differ, no commit at all. */
static inline void ring_commits_again(struct hb_case *c) {
    ring_commit_folds(c);
    (void)commit(c, -1, 0);
    (void)verify(c, HB_TREE_CHAIN, 4, 4);
    (void)verify(c, HB_TREE_CHAIN, 5, 3);
    (void)commit(c, 4, 2);
    (void)commit(c, 1, -1);
    (void)verify(c, HB_TREE_CHAIN, 2, 2);
}

/* Checkpoints of accepted and of rejected nodes, before and after a fold; one is started from. */
static inline void ring_commit_tracked(struct hb_case *c) {
    ring_commit(c);
    hand_track(&c->step[c->n_steps - 1].row[0], 0, 0);
    c->step[c->n_steps - 1].row[0].track_accept = 1;
    (void)verify(c, HB_TREE_CHAIN, 5, 5);
    struct hb_case_step *s = commit(c, 4, 4);
    hand_track(&s->row[1], 1, 0);
    s->row[1].track_accept = 2;
    (void)verify(c, HB_TREE_CHAIN, 4, 4);
    s = commit(c, 0, -1);
    hand_track(&s->row[0], 0, 0);
    s->row[0].track_accept = 3;
    hand_take(c, 3, 0);
    c->step[c->n_steps - 1].from = 0;
    s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 3, 4);
    s = hand_forward(c, HB_MODE_TARGET_VERIFY);
    hand_row(s, 3, 2);
    hand_row(s, 1, 2);
}

/* Other modes wait for a fold; links never come; a decode without records does. */
static inline void ring_commit_refused(struct hb_case *c) {
    ring_of_commits(c);
    decode_both(c);
    (void)verify(c, HB_TREE_LINKED_CHAIN, 3, 3);
    (void)verify(c, HB_TREE_CHAIN, 3, 3);
    (void)commit(c, 1, -1);
    decode_both(c);
    struct hb_case_step *s = hand_step(c, HB_STEP_COPY);
    s->slot = 1;
    s->slot2 = 4;
    s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 1, 3);
    s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 2, 1);
    (void)verify(c, HB_TREE_CHAIN, 2, 2);
    (void)commit(c, 1, 1);
}

/* Half of a verify: a row that was to be folded is lost, another one goes on. */
static inline void ring_commit_unfinished(struct hb_case *c) {
    ring_commit_folds(c);
    c->step[c->n_steps - 1].layer_mask = 2;
    (void)verify(c, HB_TREE_CHAIN, 2, 2);
    (void)commit(c, 1, 1);
    hand_take(c, 1, 4);
    (void)verify(c, HB_TREE_CHAIN, 3, 3);
    (void)commit(c, 2, 2);
}

/* Between verify and commit one row's slot is copied over: its records are of another state. */
static inline void ring_commit_copied(struct hb_case *c) {
    ring_of_commits(c);
    (void)verify(c, HB_TREE_CHAIN, 4, 4);
    struct hb_case_step *s = hand_step(c, HB_STEP_COPY);
    s->slot = 0;
    s->slot2 = 4;
    (void)commit(c, 3, 1);
}

/* Between verify and commit one row's slot moves. */
static inline void ring_commit_moved(struct hb_case *c) {
    c->config.virtual_ids = 4;
    ring_of_commits(c);
    (void)verify(c, HB_TREE_CHAIN, 4, 4);
    struct hb_case_step *s = hand_step(c, HB_STEP_MOVE);
    s->slot = 1;
    s->slot2 = -1;
    s = commit(c, 3, 1);
    hand_track(&s->row[0], 0, 0);
    hand_track(&s->row[1], 1, 0);
    (void)verify(c, HB_TREE_CHAIN, 5, 5);
    (void)commit(c, 4, 3);
    (void)verify(c, HB_TREE_CHAIN, 5, 5);
    s = hand_step(c, HB_STEP_MOVE);
    s->slot = 1;
    s->slot2 = -1;
    (void)commit(c, 2, 0);
}

static inline struct hb_case_step *replay_chain(struct hb_case *c) {
    struct hb_case_step *s = verify(c, HB_TREE_CHAIN, 4, 4);
    s->replay = 1;
    s->pad_rows = 1;
    return s;
}

static inline void ring_commit_replayed(struct hb_case *c) {
    ring_of_commits(c);
    graph_init(c, 3, 4);
    (void)capture(c, HB_MODE_TARGET_VERIFY, 3, 4);
    (void)replay_chain(c);
    (void)commit(c, 3, 3);
    (void)verify(c, HB_TREE_CHAIN, 5, 5);
    (void)commit(c, 4, 2);
    replay_chain(c)->optional = 16;
    (void)commit(c, 3, 3);
}

/* --- slots ------------------------------------------------------------------------------------ */

static inline struct hb_case_step *slot_step(struct hb_case *c, int32_t kind, int32_t name) {
    struct hb_case_step *s = hand_step(c, kind);
    s->slot = name;
    s->slot2 = -1;
    return s;
}

static inline void virtual_ids(struct hb_case *c) {
    c->config.virtual_ids = 3;
    extend(c);
    (void)slot_step(c, HB_STEP_MOVE, 1);
    decode(c);
    (void)slot_step(c, HB_STEP_FREE, 0);
    hand_take(c, 2, 4);
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_track(hand_row(s, 2, 9), 1, 0);
    hand_row(s, 1, 3);
    decode(c); /* the id of request 0 is free */
    (void)slot_step(c, HB_STEP_MOVE, 3);
    hand_take(c, 3, 0);
    c->step[c->n_steps - 1].from = 1;
    s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 3, 1);
    hand_row(s, 2, 1);
}

static inline void moved_ring(struct hb_case *c) {
    c->config.virtual_ids = 1;
    ring_pending(c);
    (void)slot_step(c, HB_STEP_MOVE, 0);
    decode(c);
    decode(c);
    (void)slot_step(c, HB_STEP_MOVE, 1);
    decode(c);
}

static inline void moved_before_the_commit(struct hb_case *c) {
    c->config.virtual_ids = 4;
    hand_take(c, 2, 3);
    (void)verify(c, HB_TREE_CHAIN, 3, 3);
    (void)slot_step(c, HB_STEP_MOVE, 1);
    hand_track(&commit(c, 1, 2)->row[0], 0, 0);
    (void)slot_step(c, HB_STEP_MOVE, 2);
    decode_both(c);
}

static inline void cannot_move(struct hb_case *c) {
    extend(c);
    (void)slot_step(c, HB_STEP_MOVE, 1);
    decode(c);
}

/* A checkpoint is published and found; a shorter match and another stream find nothing; evicted, it
 * is gone. */
static inline void published(struct hb_case *c) {
    tracked_late(c); /* request 1 after 5 + 16 tokens */
    (void)slot_step(c, HB_STEP_PUBLISH, 2);
    hand_take(c, 2, 23);
    c->step[c->n_steps - 1].match = 1;
    hand_take(c, 3, 20);
    c->step[c->n_steps - 1].match = 1;
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 2, 4);
    hand_row(s, 3, 3);
    (void)slot_step(c, HB_STEP_PUBLISH, 2); /* not a track slot any more */
    s = hand_forward(c, HB_MODE_DECODE);
    hand_track(hand_row(s, 1, 1), 0, 0); /* nobody writes what is published */
    (void)slot_step(c, HB_STEP_FREE, 2);
    hand_take(c, 4, 23);
    c->step[c->n_steps - 1].match = 1;
    s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 4, 2);
}

/* Published without having been written: it is under no label. */
static inline void published_blank(struct hb_case *c) {
    extend(c);
    (void)slot_step(c, HB_STEP_PUBLISH, 2);
    hand_take(c, 2, 30);
    c->step[c->n_steps - 1].match = 1;
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 2, 4);
}

static inline void freed_twice(struct hb_case *c) {
    extend(c);
    slot_step(c, HB_STEP_FREE, 2)->slot2 = 2; /* one call, twice the same */
    slot_step(c, HB_STEP_FREE, 2)->slot2 = 3;
    slot_step(c, HB_STEP_FREE, 0)->slot2 = 3; /* free already: nothing is freed */
    (void)slot_step(c, HB_STEP_FREE, 0);
    decode(c); /* use after free */
}

/* Tracked steps alternate between the request's slots; what is published is the newest. */
static inline void ping_pong(struct hb_case *c, int32_t mode) {
    c->config.ping_pong = mode;
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_track(hand_row(s, 0, 9), 0, 0);
    hand_track(hand_row(s, 1, 8), 0, 0);
    s = hand_forward(c, HB_MODE_DECODE);
    hand_track(hand_row(s, 0, 1), 0, 0);
    hand_row(s, 1, 1);
    (void)slot_step(c, HB_STEP_PUBLISH, 0);
    s = hand_forward(c, HB_MODE_DECODE);
    hand_track(hand_row(s, 0, 1), 0, 0);
    hand_track(hand_row(s, 1, 1), 0, 0);
    hand_take(c, 2, 10);
    c->step[c->n_steps - 1].match = 0;
    (void)slot_step(c, HB_STEP_PUBLISH, 1);
    s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 2, 1);
    hand_track(hand_row(s, 0, 1), 0, 0);
}

static inline void ping_pong_one(struct hb_case *c) {
    ping_pong(c, HB_PING_PONG_ONE);
}

static inline void ping_pong_two(struct hb_case *c) {
    ping_pong(c, HB_PING_PONG_TWO);
}

static inline void ping_pong_lazy(struct hb_case *c) {
    ping_pong(c, HB_PING_PONG_LAZY);
}

static inline void ping_pong_commit(struct hb_case *c) {
    c->config.ping_pong = HB_PING_PONG_TWO;
    chain(c);
    hand_track(&c->step[c->n_steps - 1].row[0], 0, 0);
    (void)slot_step(c, HB_STEP_PUBLISH, 1);
    decode_both(c);
}

/* --- strips, pads ----------------------------------------------------------------------------- */

static inline void strip(struct hb_case *c) {
    c->config.window_layout = HB_WINDOWS_STRIP;
    chain(c);
    (void)verify(c, HB_TREE_CHAIN, 2, 4);
    hand_track(&commit(c, 0, 3)->row[1], 1, 0);
    (void)verify(c, HB_TREE_LINKED_CHAIN, 3, 3); /* refused */
    decode_both(c);
}

static inline void padded_pool(struct hb_case *c) {
    c->config.pool_pad = 5;
    c->config.track_by_layer = 1;
    restart(c);
}

#endif
