/* SPDX-License-Identifier: Apache-2.0
 * The relations of labels and batch composition, as in test_relations.c: each fires on a backend
 * that breaks it and is silent on the right one; and generated cases give each of them something to
 * say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "harness/tests/relation_rig.h"

/* --- cases ------------------------------------------------------------------------------------ */

static void two_extends(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 10);
    hand_row(s, 1, 19);
}

static void long_and_short(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 3);
    hand_row(s, 1, 40);
}

static void fresh_extend(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 10);
}

static void decode_both(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 1, 1);
    hand_row(s, 0, 1);
}

static void extend_and_decode(struct hb_case *c) {
    two_extends(c);
    decode_both(c);
}

static void decode_alone(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 1, 1);
}

static void mixed_extend_rows(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_MIXED);
    hand_row(s, 0, 10);
    hand_row(s, 1, 1);
}

/* Three extend rows and a native decode row. */
static void mixed_native(struct hb_case *c) {
    hand_take(c, 2, 3);
    hand_take(c, 3, 9);
    struct hb_case_step *s = hand_forward(c, HB_MODE_MIXED);
    hand_row(s, 0, 10);
    hand_row(s, 2, 4);
    hand_row(s, 1, 1);
    s->n_decode = 1;
}

/* --- table ------------------------------------------------------------------------------------ */

#define AT(number) "relation " #number ": output of layer "
/* clang-format off */
static const struct control controls[] = {
    {15, 0, two_extends, NUMERIC_OFF, "slot.relabelling", "output", AT(15) "0 position 0 element 0", ""},
    {16, 0, extend_and_decode, NUMERIC_OFF, "request.relabelling", "output", AT(16) "0 position 0 element 0", ""},
    {24, 0, two_extends, NUMERIC_OFF, "extend.permutation", "output", AT(24), ""},
    {24, 0, mixed_native, NUMERIC_OFF, "extend.permutation", "output", AT(24), ""},
    {25, 0, two_extends, NUMERIC_OFF, "extend.one_by_one", "output", AT(25) "0 position 0 element 0", ""},
    {28, 0, extend_and_decode, NUMERIC_OFF, "decode.as_extend", "output", AT(28) "0 position 24 element 0", ""},
    {29, 0, fresh_extend, NUMERIC_OFF, "extend.as_decode", "output", AT(29) "0 position 0 element 0", ""},
    {29, 0, long_and_short, NUMERIC_OFF, "extend.as_decode", "output", AT(29) "0 position 0 element 0", ""},
    {31, 0, two_extends, NUMERIC_OFF, "extend.prefix_value", "output", AT(31) "0 position 0 element 0", "allowed 0"},
    {32, 0, two_extends, NUMERIC_OFF, "mode.extend_family", "output", AT(32) "0 position 0 element 0", "allowed 0"},
    {32, 0, mixed_extend_rows, NUMERIC_OFF, "mode.extend_family", "output", AT(32) "0 position 0 element 0", "allowed 0"},
    {33, 0, decode_alone, NUMERIC_OFF, "decode.seq_lens_value", "output", AT(33) "0 position 5 element 0", "allowed 0"},
    {34, 0, two_extends, NUMERIC_OFF, "extend.chunk_size", "output", AT(34) "0 position 0 element 0", ""},
    {36, 0, fresh_extend, NUMERIC_OFF, "extend.causality", "output", AT(36) "0 position 0 element 0", ""},
    {36, 1, two_extends, NUMERIC_OFF, "extend.causality", "output", AT(36), ""},
};
/* clang-format on */
enum { N_CONTROLS = sizeof controls / sizeof *controls };

#define RELATIONS(X) X(15) X(16) X(24) X(25) X(28) X(29) X(31) X(32) X(33) X(34) X(36)
RELATIONS(HB_RELATION_TESTS)

/* --- what is not claimed ---------------------------------------------------------------------- */

/* The limits of the time step make a prefill and a decode two formulas when they hold on one path
 * only. */
static void paths_are_not_compared_where_their_formulas_differ(void **state) {
    (void)state;
    static const int32_t numbers[] = {28, 29};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        for (int32_t clamp = 0; clamp < HB_N_CLAMPS; clamp++) {
            struct hb_case c;
            hand_init(&c);
            fresh_extend(&c);
            decode_alone(&c);
            c.config.dt_clamp = clamp;
            assert_int_equal(says_something(&c, numbers[i]), clamp < HB_CLAMP_PREFILL);
        }
    }
}

/* A tracked row passes absolute lengths, so its forward keeps them. */
static void lengths_of_tracked_forwards_are_kept(void **state) {
    (void)state;
    for (int32_t tracked = 0; tracked < 2; tracked++) {
        struct hb_case c;
        hand_init(&c);
        two_extends(&c);
        c.step[c.n_steps - 1].row[1].track = tracked;
        assert_int_equal(says_something(&c, 31), !tracked);
        hand_init(&c);
        decode_alone(&c);
        c.step[c.n_steps - 1].row[0].track = tracked;
        assert_int_equal(says_something(&c, 33), !tracked);
    }
}

static void lengths_say_nothing_where_all_layers_are_attention(void **state) {
    (void)state;
    struct hb_case c;
    hand_init(&c);
    two_extends(&c);
    c.config.attn_mask = 7;
    assert_false(says_something(&c, 31));
}

static void a_first_token_alone_has_no_earlier_ones(void **state) {
    (void)state;
    struct hb_case c;
    hand_init(&c);
    hand_row(hand_forward(&c, HB_MODE_EXTEND), 0, 1);
    assert_false(says_something(&c, 36));
    hand_init(&c);
    two_extends(&c);
    assert_true(says_something(&c, 36));
}

/* Shapes of trees go by the seed, like the rows of requests. */
static void requests_of_drawn_trees_are_not_relabelled(void **state) {
    (void)state;
    for (int32_t tree = 0; tree < HB_TREE_RANDOM + 1; tree++) {
        struct hb_case c;
        hand_init(&c);
        c.config.max_draft = 4;
        struct hb_case_step *s = hand_forward(&c, HB_MODE_TARGET_VERIFY);
        s->tree = tree;
        hand_row(s, 1, 4);
        assert_int_equal(says_something(&c, 16), tree < HB_TREE_RANDOM);
    }
}

RELATIONS(HB_RELATION_GENERATED)

int main(void) {
    const struct CMUnitTest tests[] = {
        RELATIONS(HB_RELATION_UNITS) RELATIONS(HB_RELATION_GENERATED_UNITS)
        cmocka_unit_test(paths_are_not_compared_where_their_formulas_differ),
        cmocka_unit_test(lengths_of_tracked_forwards_are_kept),
        cmocka_unit_test(lengths_say_nothing_where_all_layers_are_attention),
        cmocka_unit_test(a_first_token_alone_has_no_earlier_ones),
        cmocka_unit_test(requests_of_drawn_trees_are_not_relabelled),
    };
    return cmocka_run_group_tests_name("relations of batches", tests, NULL, NULL);
}
