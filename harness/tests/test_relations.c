/* SPDX-License-Identifier: Apache-2.0
 * Every relation of the table fires on a backend that breaks it and nothing else, is silent on the
 * right backend, and is silent on the wrong one when its detector is off. Detectors that would
 * notice earlier are off where the relation itself is to be seen. */
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

static void padded_extends(struct hb_case *c) {
    two_extends(c);
    c->step[c->n_steps - 1].pad_rows = 1;
}

static void fresh_extend(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 10);
}

/* The forward after which both requests have tokens, then one decode step. */
static void extend_and_decode(struct hb_case *c) {
    two_extends(c);
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 0, 1);
    hand_row(s, 1, 1);
}

static void three_decodes(struct hb_case *c) {
    hand_take(c, 2, 3);
    hand_take(c, 3, 9);
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 1, 1);
    hand_row(s, 2, 1);
    hand_row(s, 3, 1);
}

static void invalid_mode(struct hb_case *c) {
    two_extends(c);
    c->step[c->n_steps - 1].mode = 10;
}

static void invalid_mode_and_shape(struct hb_case *c) {
    invalid_mode(c);
    hand_break(c, HB_FIELD_BATCH_SIZE, 0, HB_BREAK_SET, -1);
}

static void child_entry(struct hb_case *c) {
    struct hb_case_step *s = hand_step(c, HB_STEP_ENTRY);
    s->n_rows = 0;
    s->target = HB_ENTRY_CHILD;
    s->null_args = 1;
}

static void refused_batch(struct hb_case *c) {
    two_extends(c);
    hand_break(c, HB_FIELD_SEQ_LENS, 1, HB_BREAK_ADD, 1);
}

static void idle(struct hb_case *c) {
    two_extends(c);
    struct hb_case_step *s = hand_forward(c, HB_MODE_IDLE);
    hand_row(s, 0, 1);
    hand_row(s, 1, 1);
}

static void mixed_native(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_MIXED);
    hand_row(s, 0, 10);
    hand_row(s, 1, 1);
    s->n_decode = 1;
}

/* Shape M1: the decode row is an extend row of length 1. */
static void mixed_extend_rows(struct hb_case *c) {
    mixed_native(c);
    c->step[c->n_steps - 1].n_decode = 0;
}

static void bf16_extends(struct hb_case *c) {
    c->config.act_dtype = HB_BF16;
    fresh_extend(c);
}

/* Row 1 tracked at the last aligned point, token 16 of 19. */
static void tracked_inside(struct hb_case *c) {
    two_extends(c);
    hand_track(&c->step[c->n_steps - 1].row[1], 0, 0);
}

static void tracked_end(struct hb_case *c) {
    tracked_inside(c);
    c->step[c->n_steps - 1].row[1].length = 16;
}

static void tracked_both(struct hb_case *c) {
    tracked_inside(c);
    hand_track(&c->step[c->n_steps - 1].row[0], 1, 0);
}

static void tracked_decode(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_DECODE);
    hand_track(hand_row(s, 1, 1), 0, 0);
}

/* Slots of hand_init: requests 0 and 1 hold 1 and 2, the track slots are 3 and 4, 5 and 6 are free.
 */
enum { SLOT_ROW_0 = 1, SLOT_TRACK = 3, SLOT_FREE = 5, SLOT_BEYOND = 7 };

static void map_row_1(struct hb_case *c, int64_t slot) {
    two_extends(c);
    hand_break(c, HB_FIELD_TABLE, 1, HB_BREAK_SET, slot);
}

static void row_shares_slot(struct hb_case *c) {
    map_row_1(c, SLOT_ROW_0);
}
static void row_slot_beyond(struct hb_case *c) {
    map_row_1(c, SLOT_BEYOND);
}
static void row_slot_reserved(struct hb_case *c) {
    map_row_1(c, 0);
}
static void row_slot_padding(struct hb_case *c) {
    map_row_1(c, -1);
}
static void row_slot_negative(struct hb_case *c) {
    map_row_1(c, -2);
}
static void row_slot_free(struct hb_case *c) {
    map_row_1(c, SLOT_FREE);
}

static void break_track(struct hb_case *c, int32_t field, int32_t operation, int64_t value) {
    tracked_inside(c);
    hand_break(c, field, 1, operation, value);
}

static void no_indices(struct hb_case *c) {
    break_track(c, HB_FIELD_TRACK_INDICES, HB_BREAK_ABSENT, 0);
}
static void no_track_lens(struct hb_case *c) {
    break_track(c, HB_FIELD_TRACK_SEQLENS, HB_BREAK_ABSENT, 0);
}
static void short_of_a_chunk(struct hb_case *c) {
    break_track(c, HB_FIELD_TRACK_SEQLENS, HB_BREAK_SET, 5 + 7);
}
static void beyond_the_row(struct hb_case *c) {
    break_track(c, HB_FIELD_TRACK_SEQLENS, HB_BREAK_SET, 5 + 20);
}
static void to_slot_minus_1(struct hb_case *c) {
    break_track(c, HB_FIELD_TRACK_INDICES, HB_BREAK_SET, -1);
}
static void to_slot_0(struct hb_case *c) {
    break_track(c, HB_FIELD_TRACK_INDICES, HB_BREAK_SET, 0);
}
static void to_slot_beyond(struct hb_case *c) {
    break_track(c, HB_FIELD_TRACK_INDICES, HB_BREAK_SET, SLOT_BEYOND);
}
static void to_free_slot(struct hb_case *c) {
    break_track(c, HB_FIELD_TRACK_INDICES, HB_BREAK_SET, SLOT_FREE);
}
static void to_row_of_batch(struct hb_case *c) {
    break_track(c, HB_FIELD_TRACK_INDICES, HB_BREAK_SET, SLOT_ROW_0);
}
static void to_other_live_slot(struct hb_case *c) {
    hand_take(c, 2, 0); /* slot 5 */
    break_track(c, HB_FIELD_TRACK_INDICES, HB_BREAK_SET, 5);
}
static void two_rows_one_destination(struct hb_case *c) {
    tracked_both(c);
    hand_break(c, HB_FIELD_TRACK_INDICES, 1, HB_BREAK_COPY, 0);
}
static void mask_on_padding_row(struct hb_case *c) {
    tracked_inside(c);
    c->step[c->n_steps - 1].pad_rows = 1;
    hand_break(c, HB_FIELD_TRACK_MASK, 2, HB_BREAK_SET, 1);
}
static void mask_on_native_decode(struct hb_case *c) {
    mixed_native(c);
    hand_track(&c->step[c->n_steps - 1].row[0], 0, 0);
    hand_break(c, HB_FIELD_TRACK_MASK, 1, HB_BREAK_SET, 1);
}

/* --- table ------------------------------------------------------------------------------------ */

/* clang-format off */
static const struct control controls[] = {
    {1, 0, invalid_mode, 0, REFUSAL, "begin other want-rule-10", STATUS_IS("INVALID_MODE", "SHAPE")},
    {3, 0, child_entry, 0, REFUSAL, "entry child bare want-rule-1", "predicted HB_ERR_NOT_IMPLEMENTED", "got HB_OK"},
    {4, 0, refused_batch, 0, HB_VERDICT_PURITY, "error.purity", "EXTEND conv", "conv of layer 0 changed at slot 0 element 0", "step 4"},
    {5, 0, invalid_mode_and_shape, 0, REFUSAL, "begin other want-rule-10", STATUS_IS("INVALID_MODE", "SHAPE")},
    {7, 0, padded_extends, 0, HB_VERDICT_PURITY, "batch.written", "EXTEND", "step 4: begin wrote into the batch", ""},
    {8, 0, extend_and_decode, NUMERIC_OFF, "error.no_trace", "output", "relation 8: output of layer 0 position 0 element 0", ""},
    {10, 0, two_extends, 0, REFUSAL, "layer EXTEND want-rule-0", "predicted HB_OK", "second run of relation 10, error.value_free"},
    {11, 0, two_extends, NUMERIC_OFF, "state.neighbour", "output", "relation 11: output of layer 0 position 0 element 0", "nan"},
    {12, 0, two_extends, NUMERIC_OFF, "batch.padding_rows", "output", "relation 12: output of layer 0 position 0 element 0", ""},
    {13, 0, idle, 0, HB_VERDICT_STATE, "state.neighbour", "IDLE conv", "step 5: conv of layer 0 changed at slot 1 element 0", ""},
    {14, 0, two_extends, NUMERIC_OFF, "state.fresh_row", "output", "relation 14: output of layer 0 position 0 element 0", "nan"},
    {17, 0, two_extends, NUMERIC_OFF, "layer.independent", "output", "relation 17: output of layer 1 position 0 element 0", ""},
    {19, 0, row_shares_slot, 0, REFUSAL, "begin EXTEND want-rule-120", STATUS_IS("DUPLICATE", "FREED")},
    {19, 0, row_slot_beyond, 0, REFUSAL, "begin EXTEND want-rule-83", STATUS_IS("RANGE", "DUPLICATE")},
    {19, 0, row_slot_reserved, 0, REFUSAL, "begin EXTEND want-rule-83", STATUS_IS("RANGE", "DUPLICATE")},
    {19, 0, row_slot_padding, 0, REFUSAL, "begin EXTEND want-rule-83", STATUS_IS("RANGE", "DUPLICATE")},
    {19, 0, row_slot_negative, 0, REFUSAL, "begin EXTEND want-rule-83", STATUS_IS("RANGE", "DUPLICATE")},
    {19, 0, row_slot_free, 0, REFUSAL, "begin EXTEND want-rule-110", STATUS_IS("FREED", "RANGE")},
    {22, 0, three_decodes, NUMERIC_OFF, "decode.permutation", "output", "relation 22: output of layer 0 position 5 element 0", ""},
    {23, 0, three_decodes, NUMERIC_OFF, "decode.one_by_one", "output", "relation 23: output of layer 0 position 5 element 0", ""},
    {26, 0, fresh_extend, NUMERIC_OFF, "extend.split", "output", "relation 26: output of layer 0 position", ""},
    {27, 0, bf16_extends, HB_OFF_STATE, HB_VERDICT_RELATION, "extend.split_conv", "conv state", "relation 27: conv state of layer 0 position 10 element 0", "allowed 0"},
    {30, 0, mixed_native, NUMERIC_OFF, "mixed.separate", "output", "relation 30: output of layer 0 position 0 element 0", ""},
    {30, 0, mixed_extend_rows, NUMERIC_OFF, "mixed.separate", "output", "relation 30: output of layer 0 position 0 element 0", ""},
    {37, 0, tracked_inside, NUMERIC_OFF, "track.invisible", "output", "relation 37: output of layer 0 position 0 element 0", ""},
    {37, 0, tracked_decode, NUMERIC_OFF, "track.invisible", "output", "relation 37: output of layer 0 position 5 element 0", ""},
    {38, 0, tracked_inside, 0, HB_VERDICT_STATE, "state.track", "EXTEND conv", "conv of layer 0 changed at slot 3 element 0", "step 4"},
    {38, 1, tracked_inside, 0, HB_VERDICT_STATE, "state.track", "EXTEND mamba2.track", "step 4 layer 0 row 1", "head 0 element 0"},
    {38, 0, tracked_end, 0, HB_VERDICT_STATE, "state.track", "EXTEND conv", "conv of layer 0 changed at slot 3 element 0", "step 4"},
    {38, 1, tracked_end, 0, HB_VERDICT_STATE, "state.track", "EXTEND temporal", "temporal of layer 0 changed at slot 3 element 0", "step 4"},
    {38, 0, tracked_decode, 0, HB_VERDICT_STATE, "state.track", "DECODE conv", "conv of layer 0 changed at slot 3 element 0", "step 4"},
    {38, 1, tracked_decode, 0, HB_VERDICT_STATE, "state.track", "DECODE temporal", "temporal of layer 0 changed at slot 3 element 0", "step 4"},
    {40, 0, two_extends, NUMERIC_OFF, "track.mask_bits", "output", "relation 40: output of layer 0 position 0 element 0", ""},
    {40, 1, tracked_both, NUMERIC_OFF, "track.mask_bits", "output", "relation 40: output of layer 0 position 0 element 0", ""},
    {44, 0, no_indices, 0, REFUSAL, "begin EXTEND want-rule-25", STATUS_IS("NULL", "SHAPE")},
    {44, 0, no_track_lens, 0, REFUSAL, "begin EXTEND want-rule-26", STATUS_IS("NULL", "SHAPE")},
    {44, 0, short_of_a_chunk, 0, REFUSAL, "begin EXTEND want-rule-91", STATUS_IS("RANGE", "DUPLICATE")},
    {44, 0, beyond_the_row, 0, REFUSAL, "begin EXTEND want-rule-92", STATUS_IS("RANGE", "DUPLICATE")},
    {44, 0, two_rows_one_destination, 0, REFUSAL, "begin EXTEND want-rule-121", STATUS_IS("DUPLICATE", "FREED")},
    {44, 0, to_row_of_batch, 0, REFUSAL, "begin EXTEND want-rule-131", STATUS_IS("ALIAS", "RANGE")},
    {44, 0, to_other_live_slot, 0, REFUSAL, "begin EXTEND want-rule-132", STATUS_IS("ALIAS", "RANGE")},
    {44, 0, to_slot_minus_1, 0, REFUSAL, "begin EXTEND want-rule-90", STATUS_IS("RANGE", "DUPLICATE")},
    {44, 0, to_slot_0, 0, REFUSAL, "begin EXTEND want-rule-90", STATUS_IS("RANGE", "DUPLICATE")},
    {44, 0, to_slot_beyond, 0, REFUSAL, "begin EXTEND want-rule-90", STATUS_IS("RANGE", "DUPLICATE")},
    {44, 0, to_free_slot, 0, REFUSAL, "begin EXTEND want-rule-111", STATUS_IS("FREED", "RANGE")},
    {44, 0, mask_on_padding_row, 0, REFUSAL, "begin EXTEND want-rule-88", STATUS_IS("RANGE", "DUPLICATE")},
    {44, 0, mask_on_native_decode, 0, REFUSAL, "begin MIXED want-rule-89", STATUS_IS("RANGE", "DUPLICATE")},
    {44, 1, to_row_of_batch, 0, HB_VERDICT_PURITY, "error.purity", "EXTEND conv", "conv of layer 0 changed at slot 0 element 0", "step 4"},
};
/* clang-format on */
enum { N_CONTROLS = sizeof controls / sizeof *controls };

/* --- tests ------------------------------------------------------------------------------------ */

#define RELATIONS(X)                                                                               \
    X(1)                                                                                           \
    X(3) X(4) X(5) X(7) X(8) X(10) X(11) X(12) X(13) X(14) X(17) X(19) X(22) X(23) X(26) X(27)     \
        X(30) X(37) X(38) X(40) X(44)

RELATIONS(HB_RELATION_TESTS)

/* Those with a second run. */
#define SECOND_RUNS(X) X(8) X(10) X(11) X(12) X(14) X(17) X(22) X(23) X(26) X(27) X(30) X(37) X(40)
SECOND_RUNS(HB_RELATION_GENERATED)

/* The conv part of relation 26 is exact and reported as 27. */
static void a_split_compares_conv_states_exactly(void **state) {
    (void)state;
    struct hb_case c;
    struct mischief m;
    struct hb_verdict v;
    hand_init(&c);
    bf16_extends(&c);
    c.config.relation = 26;
    hb_case_normalize(&c);
    const struct hb_run_options o = {.tamper_element = -1, .check_off = HB_OFF_STATE};
    assert_int_equal(hb_run_case(mischief_init(&m, 27, 0), &c, &o, &v, NULL), 0);
    assert_string_equal(v.check, "extend.split_conv");
    assert_part(v.text, "conv state of layer 0");
}

/* A layer that a forward leaves out keeps what the slot held: NaN there would be no fault of the
 * backend. */
static void a_layer_left_out_keeps_its_state(void **state) {
    (void)state;
    struct hb_case c;
    hand_init(&c);
    two_extends(&c);
    c.step[c.n_steps - 1].layer_mask = 2;
    two_extends(&c);
    c.config.relation = 14;
    hb_case_normalize(&c);
    passes(&c);
}

static int transformed(struct hb_case *c, int32_t relation) {
    struct hb_verdict v;
    struct hb_run_stats one = {0};
    struct hb_run_stats two = {0};
    c->config.relation = 0;
    hb_case_normalize(c);
    assert_int_equal(hb_run_case(hb_adapter_emu(), c, NULL, &v, &one), 0);
    assert_string_equal(v.text, "");
    c->config.relation = relation;
    assert_int_equal(hb_run_case(hb_adapter_emu(), c, NULL, &v, &two), 0);
    assert_string_equal(v.text, "");
    return two.calls > one.calls;
}

/* An attention layer that was left out has no KV entries; what lies in their place moves with the
 * KV slots. */
static void nothing_is_claimed_of_entries_never_written(void **state) {
    (void)state;
    static const int32_t numbers[] = {12, 22, 23};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        for (int32_t left_out = 0; left_out < 2; left_out++) {
            struct hb_case c;
            hand_init(&c);
            two_extends(&c);
            c.step[c.n_steps - 1].layer_mask = left_out ? 4 : 0;
            extend_and_decode(&c);
            assert_int_equal(transformed(&c, numbers[i]), !left_out);
        }
    }
}

/* Tracked slots that are copied or restarted from carry the difference into live slots. */
static void nothing_is_claimed_of_tracking_when_checkpoints_are_used(void **state) {
    (void)state;
    static const int32_t numbers[] = {37, 40};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        for (int32_t use = 0; use < 3; use++) {
            struct hb_case c;
            hand_init(&c);
            tracked_inside(&c);
            c.config.relation_arg = 1;
            if (use == 1) {
                struct hb_case_step *s = hand_step(&c, HB_STEP_COPY);
                s->slot = 2;
                s->slot2 = 0;
            } else if (use == 2) {
                hand_take(&c, 2, 0);
                c.step[c.n_steps - 1].from = 0;
            }
            assert_int_equal(transformed(&c, numbers[i]), use == 0);
        }
    }
}

/* A call that is refused leaves a request behind that a transformed history would move on. */
static void nothing_is_claimed_where_calls_are_refused(void **state) {
    (void)state;
    struct hb_case c;
    hand_init(&c);
    extend_and_decode(&c);
    hand_row(&c.step[c.n_steps - 1], 0, 1); /* one request twice */
    assert_false(transformed(&c, 23));
    assert_true(transformed(&c, 8));
}

/* Two requests at one position of one stream, one of them restarted from a checkpoint, are told
 * apart. */
static void a_restarted_request_is_matched_with_itself(void **state) {
    (void)state;
    static const int32_t numbers[] = {12, 22, 23};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct hb_case c;
        hand_init(&c);
        c.config.kernel_form = HB_FORM_FAST;
        c.config.state_dtype = HB_BF16;
        tracked_inside(&c);
        hand_take(&c, 2, 0);
        c.step[c.n_steps - 1].from = 0;
        struct hb_case_step *s = hand_forward(&c, HB_MODE_EXTEND);
        hand_row(s, 2, 3); /* request 2 now stands where request 1 is: 24 tokens */
        s = hand_forward(&c, HB_MODE_DECODE);
        hand_row(s, 1, 1);
        hand_row(s, 2, 1);
        hand_row(s, 0, 1);
        assert_true(transformed(&c, numbers[i]));
    }
}

static void every_record_names_a_control_of_this_program(void **state) {
    (void)state;
#define NAME(number) "test_relations: relation_" #number "_fires",
    static const char *const names[] = {RELATIONS(NAME)};
    const struct hb_relation *list;
    int n = hb_relations(&list);
    int n_here = 0;
    for (int i = 0; i < n; i++) {
        int found = strncmp(list[i].control, "test_relations: ", 16) != 0;
        n_here += !found;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            found |= strcmp(names[k], list[i].control) == 0;
        }
        if (!found) {
            fail_msg("relation %d: no test '%s'", list[i].number, list[i].control);
        }
        assert_non_null(strchr(list[i].name, '.'));
        assert_true(list[i].kind[0] != '\0');
        for (int k = 0; k < i; k++) {
            assert_true(list[k].number < list[i].number);
        }
    }
    assert_int_equal(n_here, (int)(sizeof names / sizeof *names));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RELATIONS(HB_RELATION_UNITS) SECOND_RUNS(HB_RELATION_GENERATED_UNITS) cmocka_unit_test(every_record_names_a_control_of_this_program),
        cmocka_unit_test(a_split_compares_conv_states_exactly),
        cmocka_unit_test(a_layer_left_out_keeps_its_state),
        cmocka_unit_test(nothing_is_claimed_of_entries_never_written),
        cmocka_unit_test(nothing_is_claimed_of_tracking_when_checkpoints_are_used),
        cmocka_unit_test(nothing_is_claimed_where_calls_are_refused),
        cmocka_unit_test(a_restarted_request_is_matched_with_itself),
    };
    return cmocka_run_group_tests_name("relations", tests, NULL, NULL);
}
