/* SPDX-License-Identifier: Apache-2.0
 * The relations of draft verification, as in test_relations.c: each fires on a backend that breaks
 * it and is silent on the right one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "harness/tests/relation_rig.h"
#include "harness/tests/spec_cases.h"

/* --- cases ------------------------------------------------------------------------------------ */

static void linked_chain(struct hb_case *c) {
    chain(c);
    c->step[c->n_steps - 2].tree = HB_TREE_LINKED_CHAIN;
}

static void ragged(struct hb_case *c) {
    hand_take(c, 2, 3);
    (void)verify(c, HB_TREE_CHAIN, 3, 1);
    (void)commit(c, 1, 0);
}

static void ragged_tree(struct hb_case *c) {
    hand_take(c, 2, 3);
    (void)verify(c, HB_TREE_RANDOM + 2, 4, 2);
    (void)commit(c, 1, 0);
}

static void tracked(struct hb_case *c) {
    chain(c);
    hand_track(&c->step[c->n_steps - 1].row[0], 0, 0);
    c->step[c->n_steps - 1].row[0].track_accept = 1;
}

static void decoded_after(struct hb_case *c) {
    chain(c);
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 1, 1);
    hand_row(s, 2, 1);
}

/* --- table ------------------------------------------------------------------------------------ */

#define RELATION_OFF HB_OFF_STATE, HB_VERDICT_RELATION
/* clang-format off */
static const struct control controls[] = {
    {50, 0, chain, 0, HB_VERDICT_STATE, "verify.pool", "TARGET_VERIFY conv", "conv of layer 0 changed at slot 2 element 0", "step 5"},
    {50, 1, chain, NUMERIC_OFF, "verify.repeat", "output", "relation 50: output of layer 0 position 5 element 0", ""},
    {50, 1, decoded_after, NUMERIC_OFF, "verify.repeat", "output", "relation 50: output of layer 0 position 5 element 0", ""},
    {51, 0, chain, NUMERIC_OFF, "verify.decode", "output", "relation 51: output of layer 0 position 5 element 0", ""},
    {51, 0, forked_tree, NUMERIC_OFF, "verify.decode", "output", "relation 51: output of layer 0 position 5 element 0", ""},
    {51, 0, tracked, NUMERIC_OFF, "verify.decode", "output", "relation 51: output of layer 0 position 5 element 0", ""},
    {52, 0, chain, 0, HB_VERDICT_STATE, "verify.intermediate", "TARGET_VERIFY intermediate_conv", "intermediate_conv of layer 0 changed at slot 0", "step 5"},
    {52, 1, chain, 0, HB_VERDICT_STATE, "verify.intermediate", "TARGET_VERIFY mamba2.node", "step 5 layer 0 row 0 token 1 head 0 element 0", ""},
    {52, 1, forked_tree, 0, HB_VERDICT_STATE, "verify.intermediate", "TARGET_VERIFY mamba2.node", "step 5 layer 0 row 0 token 1 head 0 element 0", ""},
    {53, 0, forked_tree, 0, HB_VERDICT_NUMERIC, "numeric.mamba2", "TARGET_VERIFY mamba2.y", "step 5 layer 0 row 0", ""},
    {54, 0, chain, NUMERIC_OFF, "verify.linked_chain", "output", "relation 54: output of layer 0 position 5 element 0", ""},
    {54, 0, linked_chain, NUMERIC_OFF, "verify.linked_chain", "output", "relation 54: output of layer 0 position 5 element 0", ""},
    {55, 0, chain, RELATION_OFF, "verify.rejected", "conv state", "relation 55: conv state of layer 0 position 7 element 0", "allowed 0"},
    {55, 0, forked_tree, RELATION_OFF, "verify.rejected", "conv state", "relation 55: conv state of layer 0", "allowed 0"},
    {56, 0, chain, RELATION_OFF, "commit.repeat", "conv state", "relation 56: conv state of layer 0 position 7 element 0", "allowed 0"},
    {56, 1, committed_in_part, 0, HB_VERDICT_STATE, "state.neighbour", "commit conv", "conv of layer 0 changed at slot 2 element 0", "step 6"},
    {57, 0, tracked, 0, HB_VERDICT_STATE, "state.track", "commit track conv", "conv of layer 0 changed at slot 3 element 0", "step 6"},
    {57, 1, tracked, 0, HB_VERDICT_STATE, "state.track", "commit track temporal", "temporal of layer 0 changed at slot 3 element 0", "step 6"},
    {58, 0, ragged, NUMERIC_OFF, "verify.ragged", "output", "relation 58: output of layer 0 position 5 element 0", ""},
    {58, 0, ragged_tree, NUMERIC_OFF, "verify.ragged", "output", "relation 58: output of layer 0 position 5 element 0", ""},
};
/* clang-format on */
enum { N_CONTROLS = sizeof controls / sizeof *controls };

#define RELATIONS(X) X(50) X(51) X(52) X(53) X(54) X(55) X(56) X(57) X(58)
RELATIONS(HB_RELATION_TESTS)

/* Those with a second run. */
#define SECOND_RUNS(X) X(50) X(51) X(54) X(55) X(56) X(58)
SECOND_RUNS(HB_RELATION_GENERATED)

static void every_record_names_a_control_of_this_program(void **state) {
    (void)state;
#define NAME(number) "test_relations_spec: relation_" #number "_fires",
    static const char *const names[] = {RELATIONS(NAME)};
    const struct hb_relation *list;
    const int n = hb_relations(&list);
    int found = 0;
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            found += strcmp(names[k], list[i].control) == 0;
        }
    }
    assert_int_equal(found, (int)(sizeof names / sizeof *names));
}

/* Decode steps pass the committed nodes only, and know no way back behind a commit. */
static void nothing_is_claimed_of_what_decode_cannot_do(void **state) {
    (void)state;
    for (int32_t k = 0; k < 4; k++) {
        struct hb_case c;
        struct hb_verdict v;
        struct hb_run_stats one = {0};
        struct hb_run_stats two = {0};
        hand_init(&c);
        tracked(&c);
        if (k == 1) {
            c.step[c.n_steps - 1].row[0].track_accept = 2; /* beyond the accepted one */
        } else if (k == 2) {
            (void)commit(&c, 0, 0);
        } else if (k == 3) {
            c.n_steps--; /* never committed */
        }
        hb_case_normalize(&c);
        assert_int_equal(hb_run_case(hb_adapter_emu(), &c, NULL, &v, &one), 0);
        assert_string_equal(v.text, "");
        c.config.relation = 51;
        assert_int_equal(hb_run_case(hb_adapter_emu(), &c, NULL, &v, &two), 0);
        assert_string_equal(v.text, "");
        assert_int_equal(two.calls > one.calls, k == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RELATIONS(HB_RELATION_UNITS) SECOND_RUNS(HB_RELATION_GENERATED_UNITS) cmocka_unit_test(every_record_names_a_control_of_this_program),
        cmocka_unit_test(nothing_is_claimed_of_what_decode_cannot_do),
    };
    return cmocka_run_group_tests_name("relations of verify", tests, NULL, NULL);
}
