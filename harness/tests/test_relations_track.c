/* SPDX-License-Identifier: Apache-2.0
 * The relations of tracking that need another history, as in test_relations.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "harness/tests/relation_rig.h"

/* --- cases ------------------------------------------------------------------------------------ */

/* Request 0 from zero, tracked at token 16 of 19. */
static void tracked_alone(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_track(hand_row(s, 0, 19), 0, 0);
}

/* And decoded further. */
static void tracked_then_decoded(struct hb_case *c) {
    tracked_alone(c);
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 1, 1);
    hand_row(s, 0, 1);
}

/* A row off the grid stands before the tracked one. */
static void tracked_second(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 10);
    hand_track(hand_row(s, 1, 19), 1, 0);
}

static void tracked_first(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_track(hand_row(s, 1, 19), 1, 0);
    hand_row(s, 0, 10);
}

static void tracked_in_pages(struct hb_case *c) {
    tracked_second(c);
    c->config.page_chunks = 2;
}

static void tracked_decode(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_track(hand_row(s, 1, 1), 0, 0);
}

static void tracked_decode_by_layer(struct hb_case *c) {
    tracked_decode(c);
    c->config.track_by_layer = 1;
}

/* --- table ------------------------------------------------------------------------------------ */

#define RELATION_OFF HB_OFF_STATE, HB_VERDICT_RELATION
/* clang-format off */
static const struct control controls[] = {
    {39, 0, tracked_alone, NUMERIC_OFF, "track.restart", "output", "relation 39: output of layer 0 position 16 element 0", ""},
    {39, 0, tracked_then_decoded, NUMERIC_OFF, "track.restart", "output", "relation 39: output of layer 0 position 16 element 0", ""},
    {41, 0, tracked_second, RELATION_OFF, "track.neighbours", "conv state", "relation 41: conv state of layer 0 position 21 element 0", "allowed 0"},
    {41, 0, tracked_first, RELATION_OFF, "track.neighbours", "conv state", "relation 41: conv state of layer 0 position 21 element 0", "allowed 0"},
    {42, 0, tracked_second, RELATION_OFF, "track.page_size", "temporal state", "relation 42: temporal state of layer 0 position 21 element 0", ""},
    {42, 0, tracked_in_pages, RELATION_OFF, "track.page_size", "temporal state", "relation 42: temporal state of layer 0 position 21 element 0", ""},
    {43, 0, tracked_decode, RELATION_OFF, "track.by_layer", "conv state", "relation 43: conv state of layer 0 position 6 element 0", "allowed 0"},
    {43, 0, tracked_decode_by_layer, RELATION_OFF, "track.by_layer", "conv state", "relation 43: conv state of layer 0 position 6 element 0", "allowed 0"},
};
/* clang-format on */
enum { N_CONTROLS = sizeof controls / sizeof *controls };

#define RELATIONS(X) X(39) X(41) X(42) X(43)
RELATIONS(HB_RELATION_TESTS)
RELATIONS(HB_RELATION_GENERATED)

/* --- what is not claimed ---------------------------------------------------------------------- */

/* A layer that a forward leaves out does not stand where the others do. */
static void no_request_restarts_where_layers_are_left_out(void **state) {
    (void)state;
    for (int32_t left_out = 0; left_out < 2; left_out++) {
        struct hb_case c;
        hand_init(&c);
        tracked_then_decoded(&c);
        c.step[c.n_steps - 1].layer_mask = left_out;
        assert_int_equal(says_something(&c, 39), !left_out);
    }
}

static void no_request_restarts_from_a_slot_that_was_freed(void **state) {
    (void)state;
    struct hb_case c;
    hand_init(&c);
    tracked_alone(&c);
    struct hb_case_step *s = hand_step(&c, HB_STEP_FREE);
    s->slot = 2; /* the first track slot */
    s->slot2 = -1;
    assert_false(says_something(&c, 39));
}

static void a_tracked_row_alone_has_no_neighbours(void **state) {
    (void)state;
    struct hb_case c;
    hand_init(&c);
    tracked_alone(&c);
    assert_false(says_something(&c, 41));
}

/* All three ways of other neighbours: last, first, alone. */
static void neighbours_change_in_three_ways(void **state) {
    (void)state;
    for (int32_t way = 0; way < 3; way++) {
        for (int32_t first = 0; first < 2; first++) {
            struct hb_case c;
            hand_init(&c);
            (first ? tracked_first : tracked_second)(&c);
            c.config.relation_arg = way;
            assert_true(says_something(&c, 41));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RELATIONS(HB_RELATION_UNITS) RELATIONS(HB_RELATION_GENERATED_UNITS)
        cmocka_unit_test(no_request_restarts_where_layers_are_left_out),
        cmocka_unit_test(no_request_restarts_from_a_slot_that_was_freed),
        cmocka_unit_test(a_tracked_row_alone_has_no_neighbours),
        cmocka_unit_test(neighbours_change_in_three_ways),
    };
    return cmocka_run_group_tests_name("relations of tracking", tests, NULL, NULL);
}
