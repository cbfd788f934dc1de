/* SPDX-License-Identifier: Apache-2.0
 * Commit: when there is a verify to commit, its rules, each of which changes no byte, and slots
 * that changed since the verify. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <limits.h>
#include <string.h>

#include "backend/tests/spec_world.h"

/* A commit of nothing, and one that is repeated. */
static void commit_may_do_nothing_and_may_be_repeated(void **state) {
    (void)state;
    open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    make_chains(DRAFT, NULL, 0);
    assert_int_equal(verify(), 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    const struct hb_commit none = {.struct_size = sizeof(none)};
    assert_int_equal(w.a->commit(w.h, &none, &w.err), HB_OK);
    commit_ok(plan_of(0, 0, 0, 0), 1);
    commit_ok(plan_of(2, -1, INT_MIN, 0), 0);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    commit_ok(plan_of(2, 1, 2, 0), 0);
    (void)dump(dump_a, sizeof(dump_a));
    commit_ok(plan_of(2, 1, 2, 0), 0);
    (void)dump(dump_b, sizeof(dump_b));
    assert_memory_equal(dump_a, dump_b, n);
    close_world();
}

static void commit_concerns_layers_that_ran(void **state) {
    (void)state;
    open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    make_chains(DRAFT, NULL, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(run_layers(4), 0);
    const size_t n = dump_named("temporal", dump_a);
    commit_ok(plan_of(2, 1, 2, 0), 0);
    (void)dump_named("temporal", dump_b);
    assert_memory_equal(dump_a, dump_b, n / 2);
    assert_int_not_equal(memcmp(dump_a + n / 2, dump_b + n / 2, n / 2), 0);
    close_world();
}

static void commit_needs_a_finished_verify(void **state) {
    (void)state;
    struct plan p = plan_of(2, 1, 2, 0);
    open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    check_error(w.a->commit(NULL, NULL, &w.err), HB_RULE_HANDLE_NULL, -1);
    check_error(w.a->commit(w.h, NULL, &w.err), HB_RULE_NO_VERIFY, -1);
    make_chains(DRAFT, NULL, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1); /* not finished */
    assert_int_equal(run_layers(7), 0);
    check_error(w.a->finish(w.h, &w.err), HB_RULE_NO_METADATA, -1); /* changes nothing */
    w.f.batch.draft_token_num = 0;
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_VERIFY_TOKENS, -1);
    assert_int_equal(commit(&p, 0), HB_OK); /* a refused begin leaves it */
    assert_true(state_is(w.slot[R0], R0, 7));
    make_batch(HB_MODE_IDLE, 0, NULL, 1, 1);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1);
    close_world();
}

static void draft_extend_ends_metadata_and_verify(void **state) {
    (void)state;
    struct io io;
    struct plan p = plan_of(2, 1, 2, 0);
    open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    make_chains(DRAFT, NULL, 0);
    assert_int_equal(verify(), 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    const struct hb_batch batch = {.struct_size = sizeof(batch),
                                   .forward_mode = HB_MODE_DRAFT_EXTEND_V2,
                                   .batch_size = 2,
                                   .n_tokens = 4};
    struct hb_batch bad = batch;
    bad.n_tokens = TOKENS + 1;
    check_error(w.a->begin(w.h, &bad, &w.err), HB_RULE_TOKENS_CAPACITY, -1);
    assert_int_equal(commit(&p, 0), HB_OK);
    assert_int_equal(w.a->begin(w.h, &batch, &w.err), HB_OK);
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1);
    const struct row rows[] = {{R0, 0, 0, 0}};
    w.pos[R0] = 7;
    make_batch(HB_MODE_DECODE, 1, rows, 0, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    make_io(&io, 1, 1, rows);
    (void)dump(dump_a, sizeof(dump_a));
    assert_int_equal(w.a->begin(w.h, &batch, &w.err), HB_OK);
    check_error(w.a->layer(w.h, 0, &io.io, &w.err), HB_RULE_NO_METADATA, -1);
    check_error(w.a->layer(w.h, 1, &io.io, &w.err), HB_RULE_NO_METADATA, -1);
    check_error(w.a->entry(w.h, HB_ENTRY_WRAPPER, 0, 1, &io.io, &w.err), HB_RULE_NO_METADATA, -1);
    check_error(w.a->entry(w.h, HB_ENTRY_WRAPPER, 0, 0, &io.io, &w.err), HB_RULE_ENTRY_REFUSED, -1);
    check_error(w.a->finish(w.h, &w.err), HB_RULE_NO_METADATA, -1);
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    free_io(&io);
    close_world();
}

/* Faults of a commit of two live rows with checkpoints, one padding row in the verify. */
struct fault {
    int32_t rule, row;
    int64_t value, limit;
    void (*apply)(struct plan *p);
};

static int32_t track_a, track_b;

/* Row 1's slot, freed and given out again as a checkpoint. */
static void take_again(void) {
    assert_int_equal(w.a->slot_free(w.h, 1, &w.slot[R1], &w.err), HB_OK);
    while (take_track() != w.slot[R1]) {
    }
}

#define FAULT(name, code)                                                                          \
    static void name(struct plan *p) {                                                             \
        code;                                                                                      \
    }

FAULT(step_null, p->c.step.data = NULL)
FAULT(track_steps_null, p->c.track_steps.data = NULL)
FAULT(rows_negative, p->c.n_rows = -1)
FAULT(rows_many, p->c.n_rows = 4)
FAULT(step_len, p->c.step.len = 1)
FAULT(track_len, p->c.track_indices.len = 9)
FAULT(track_steps_len, p->c.track_steps.len = 0)
FAULT(step_high, p->step[1] = 3)
FAULT(track_zero, p->track[0] = 0)
FAULT(track_high, p->track[1] = INT64_MAX)
FAULT(track_after_last, p->track[1] = SLOTS + 1)
FAULT(track_step_high, p->track_step[1] = INT_MAX)
FAULT(slot_free, (void)p; assert_int_equal(w.a->slot_free(w.h, 1, &w.slot[R1], &w.err), HB_OK))
FAULT(track_free, (void)p; assert_int_equal(w.a->slot_free(w.h, 1, &track_a, &w.err), HB_OK))
FAULT(slot_stale, (void)p; take_again())
FAULT(track_twice, p->track[1] = p->track[0])
FAULT(track_live, p->track[1] = w.slot[R0])

static const struct fault faults[] = {
    {HB_RULE_COMMIT_STEP_NULL, -1, 0, 2, step_null},
    {HB_RULE_COMMIT_TRACK_STEPS_NULL, -1, 0, 0, track_steps_null},
    {HB_RULE_COMMIT_ROWS, -1, -1, 3, rows_negative},
    {HB_RULE_COMMIT_ROWS, -1, 4, 3, rows_many},
    {HB_RULE_COMMIT_LENGTH, 0, 1, 2, step_len},
    {HB_RULE_COMMIT_LENGTH, 1, 9, 2, track_len},
    {HB_RULE_COMMIT_LENGTH, 2, 0, 2, track_steps_len},
    {HB_RULE_COMMIT_STEP_RANGE, 1, 3, 2, step_high},
    {HB_RULE_COMMIT_TRACK_SLOT, 0, 0, SLOTS, track_zero},
    {HB_RULE_COMMIT_TRACK_SLOT, 1, INT64_MAX, SLOTS, track_high},
    {HB_RULE_COMMIT_TRACK_SLOT, 1, SLOTS + 1, SLOTS, track_after_last},
    {HB_RULE_COMMIT_TRACK_STEP, 1, INT_MAX, 2, track_step_high},
    {HB_RULE_COMMIT_SLOT_FREED, 1, 2, 0, slot_free},
    {HB_RULE_COMMIT_TRACK_FREED, 0, 3, 0, track_free},
    {HB_RULE_COMMIT_SLOT_STALE, 1, 2, 0, slot_stale},
    {HB_RULE_COMMIT_TRACK_DUPLICATE, 1, 3, 0, track_twice},
    {HB_RULE_COMMIT_TRACK_ALIAS, 1, 1, 0, track_live},
};

enum { N_FAULTS = sizeof(faults) / sizeof(faults[0]) };

/* A verify and a valid commit of it: slots 1 and 2, checkpoints 3 and 4. */
static struct plan open_commit(void) {
    static const int32_t nodes[] = {5, 3};
    open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    track_a = take_track();
    track_b = take_track();
    make_chains(DRAFT, nodes, 1);
    assert_int_equal(verify(), 0);
    struct plan p = plan_of(2, 4, -1, 0);
    p.track_step[0] = 0;
    p.track_step[1] = 2;
    p.track[0] = track_a;
    p.track[1] = track_b;
    return p;
}

static void point_at(struct plan *p) {
    p->c.step = (struct hb_i32s){p->step, 2};
    p->c.track_indices = (struct hb_i64s){p->track, 2};
    p->c.track_steps = (struct hb_i32s){p->track_step, 2};
}

static void commit_each_rule_fires_and_changes_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FAULTS; i++) {
        const struct fault *x = &faults[i];
        struct plan p = open_commit();
        point_at(&p);
        if (i == 0) {
            assert_int_equal(w.a->commit(w.h, &p.c, &w.err), HB_OK);
            assert_int_equal(w.a->commit(w.h, &p.c, &w.err), HB_OK);
            check_error(w.a->commit(w.h, NULL, &w.err), HB_RULE_COMMIT_NULL, -1);
        }
        x->apply(&p);
        const size_t n = dump(dump_a, sizeof(dump_a));
        check_error(w.a->commit(w.h, &p.c, &w.err), x->rule, x->row);
        assert_true(w.err.value == x->value && w.err.limit == x->limit);
        assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
        assert_memory_equal(dump_a, dump_b, n);
        /* the verify is still there; no fault left a trace in the scratch */
        if (x->apply == track_twice) {
            p.track[1] = track_b;
            assert_int_equal(w.a->commit(w.h, &p.c, &w.err), HB_OK);
        }
        p = plan_of(1, 4, 0, 0);
        commit_ok(p, 0);
        assert_true(state_is(w.slot[R0], R0, 10));
        close_world();
    }
}

static void commit_lower_rule_wins_in_every_pair(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FAULTS; i++) {
        for (size_t k = i + 1; k < N_FAULTS; k++) {
            const struct fault *a = &faults[i];
            const struct fault *b = &faults[k];
            /* another checkpoint slot, or two shares of one */
            const int32_t hides = (a->apply == track_twice && b->apply == track_live) ||
                                  (a->apply == step_null && b->apply == rows_negative);
            if (a->rule == b->rule || hides) {
                continue;
            }
            struct plan p = open_commit();
            point_at(&p);
            b->apply(&p);
            a->apply(&p);
            (void)w.a->commit(w.h, &p.c, &w.err);
            if (w.err.rule != a->rule) {
                fail_msg("rules %d and %d: got %d", a->rule, b->rule, w.err.rule);
            }
            close_world();
        }
    }
}

static void commit_to_a_slot_that_changed_since(void **state) {
    (void)state;
    struct plan p = open_commit();
    /* freed: fine for a row that is left alone */
    assert_int_equal(w.a->slot_free(w.h, 1, &w.slot[R1], &w.err), HB_OK);
    p.track_step[1] = -1;
    commit_ok(p, 1);
    assert_true(state_is(w.slot[R0], R0, 10));
    assert_true(state_is(track_a, R0, 6));
    /* given out again: still fine for that row, and a commit never writes what is not its own */
    while (take_track() != w.slot[R1]) {
    }
    commit_ok(p, 1);
    p.step[1] = 0;
    check_error(commit(&p, 1), HB_RULE_COMMIT_SLOT_STALE, 1);
    p.step[1] = -1;
    p.track_step[1] = 0;
    check_error(commit(&p, 1), HB_RULE_COMMIT_SLOT_STALE, 1);
    close_world();
    /* copied over: what the verify read is gone; the source of a copy is as it was */
    p = open_commit();
    assert_int_equal(w.a->slot_copy(w.h, w.slot[R0], w.slot[R1], &w.err), HB_OK);
    const size_t n = dump(dump_a, sizeof(dump_a));
    p.track_step[1] = -1;
    p.step[1] = 0;
    check_error(commit(&p, 1), HB_RULE_COMMIT_SLOT_STALE, 1);
    assert_int_equal(w.err.value, w.slot[R1]);
    p.step[1] = -1;
    p.track_step[1] = 0;
    check_error(commit(&p, 1), HB_RULE_COMMIT_SLOT_STALE, 1);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    p.track_step[1] = -1;
    commit_ok(p, 1);
    close_world();
}

static void commit_of_dummy_rows_writes_slot_zero(void **state) {
    (void)state;
    open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    make_chains(DRAFT, NULL, 0);
    for (int32_t r = 0; r < 2; r++) {
        assert_int_equal(w.a->table_set(w.h, R0 - r, 0, &w.err), HB_OK);
    }
    w.f.batch.is_dummy = 1;
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    (void)run_layers(7);
    commit_ok(plan_of(2, 1, 2, 0), 0);
    assert_true(state_is(w.slot[R0], R0, 5));
    assert_true(state_is(w.slot[R1], R1, 2));
    close_world();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commit_may_do_nothing_and_may_be_repeated),
        cmocka_unit_test(commit_concerns_layers_that_ran),
        cmocka_unit_test(commit_needs_a_finished_verify),
        cmocka_unit_test(draft_extend_ends_metadata_and_verify),
        cmocka_unit_test(commit_each_rule_fires_and_changes_nothing),
        cmocka_unit_test(commit_lower_rule_wins_in_every_pair),
        cmocka_unit_test(commit_to_a_slot_that_changed_since),
        cmocka_unit_test(commit_of_dummy_rows_writes_slot_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
