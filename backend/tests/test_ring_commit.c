/* SPDX-License-Identifier: Apache-2.0
 * The replay ring that commits own, through the adapter (speculative.md section 7,
 * backend/README.md "Replay ring"): cursors, what a verify and a commit write, rules 114, 116, 142
 * and 159, owners of slots, replays. Histories are in test_ring_history.c. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "backend/tests/ring_world.h"

/* exact worlds: small integers */

static void open_ring(int32_t form, int32_t defect) {
    world_config = ring_config;
    open_requests(HB_FP32, form, HB_ORDER_RANDOM, defect);
    world_config = NULL;
}

static void accept(int32_t n0, int32_t n1) {
    w.pos[R0] += n0;
    w.pos[R1] += n1;
}

/* L = 8, at most 4 nodes: 5 tokens accepted of two verifies, and the fold of the third. */
static void ring_worked_example(void **state) {
    (void)state;
    for (int32_t i = 0; i < 4; i++) {
        ring_length = i < 2 ? 8 : 16;
        const int32_t late = i >= 2; /* the longer ring folds later */
        open_ring(i % 2, 0);
        const int32_t s0 = w.slot[R0];
        const int32_t s1 = w.slot[R1];
        make_chains(D4, NULL, 1);
        assert_int_equal(verify(), 0);
        check_cursors(s0, 0, 0, 0);
        commit_ok(plan_of(2, 1, -1, 0), 0);
        accept(2, 0);
        check_cursors(s0, 0, 2, !late);
        check_cursors(s1, 0, 0, 0);
        assert_false(state_is(s0, R0, 7));
        make_chains(D4, NULL, 0);
        assert_int_equal(verify(), 0);
        check_cursors(s0, late ? 0 : 2, late ? 2 : 0, 0);
        commit_ok(plan_of(2, 3, 3, 0), 0);
        accept(4, 4);
        check_cursors(s0, late ? 0 : 2, late ? 6 : 4, !late);
        make_chains(D4, NULL, 0);
        assert_int_equal(verify(), 0);
        commit_ok(plan_of(2, 3, 3, 0), 0);
        accept(4, 4);
        check_cursors(s0, late ? 0 : 6, late ? 10 : 4, 1);
        make_chains(D4, NULL, 0);
        assert_int_equal(verify(), 0);
        check_cursors(s0, late ? 10 : 2, 0, 0);
        commit_ok(plan_of(2, -1, 0, 0), 0);
        check_cursors(s0, late ? 10 : 2, 0, 0); /* the fold stays, nothing was accepted */
        close_world();
    }
    ring_length = 8;
}

/* A verify that does not fold writes the ring alone; one that does, temporal of its rows too. */
static void verify_and_commit_write_what_the_readme_says(void **state) {
    static const char *const kept_names[] = {"conv", "temporal"};
    static uint8_t before[2][sizeof(dump_a)];
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        open_ring(form, 0);
        for (int32_t round = 0; round < 6; round++) {
            size_t n[2];
            make_chains(D4, NULL, 1);
            for (int32_t k = 0; k < 2; k++) {
                n[k] = dump_named(kept_names[k], before[k]);
            }
            const int32_t folds = flush_of(w.slot[R0]) || flush_of(w.slot[R1]);
            assert_int_equal(folds, round > 0);
            assert_int_equal(verify(), 0);
            for (int32_t k = 0; k < 2; k++) {
                (void)dump_named(kept_names[k], dump_a);
                assert_int_equal(memcmp(before[k], dump_a, n[k]) != 0, k == 1 && folds);
            }
            n[1] = dump_named("temporal", before[1]);
            commit_ok(plan_of(2, 1, 2, 0), 0);
            (void)dump_named("temporal", dump_a);
            assert_memory_equal(before[1], dump_a, n[1]); /* no checkpoint: conv and cursors */
            (void)dump_named("conv", dump_a);
            assert_int_not_equal(memcmp(before[0], dump_a, n[0]), 0);
            accept(2, 3);
        }
        close_world();
    }
}

static void verify_and_commit_may_be_repeated(void **state) {
    (void)state;
    open_ring(HB_FORM_FAST, 0);
    const int32_t dst = take_track();
    for (int32_t round = 0; round < 6; round++) {
        make_chains(D4, NULL, round % 2);
        assert_int_equal(verify(), 0);
        const size_t n = dump(dump_a, sizeof(dump_a));
        assert_int_equal(verify(), 0);
        assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
        assert_memory_equal(dump_a, dump_b, n);
        struct plan p = plan_of(2, 3, 0, 0);
        p.track[0] = dst;
        p.track_step[0] = 2;
        commit_ok(p, 1);
        assert_true(state_is(dst, R0, w.pos[R0] + 3));
        check_cursors(dst, 0, 0, 0);
        p.step[0] = 1; /* other steps than before */
        p.track_step[0] = 0;
        commit_ok(p, 1);
        assert_true(state_is(dst, R0, w.pos[R0] + 1));
        (void)dump(dump_a, sizeof(dump_a));
        commit_ok(p, 1);
        (void)dump(dump_b, sizeof(dump_b));
        assert_memory_equal(dump_a, dump_b, n);
        accept(2, 1);
    }
    close_world();
}

static void other_modes_need_a_folded_ring(void **state) {
    static const struct row extend[] = {{R1, 2, 0, 0}, {R0, 3, 0, 0}};
    static const struct row mixed[] = {{R1, 2, 0, 0}, {R0, 0, 0, 0}};
    static const struct row decode[] = {{R1, 0, 0, 0}, {R0, 0, 0, 0}};
    static const struct {
        int32_t mode;
        const struct row *rows;
    } other[] = {{HB_MODE_EXTEND, extend}, {HB_MODE_MIXED, mixed}, {HB_MODE_DECODE, decode}};
    (void)state;
    open_ring(HB_FORM_V0, 0);
    const int32_t slot = w.slot[R0];
    make_chains(D4, NULL, 0);
    assert_int_equal(verify(), 0);
    commit_ok(plan_of(2, 2, -1, 0), 0);
    accept(3, 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    for (int32_t i = 0; i < 3; i++) {
        make_batch(other[i].mode, 2, other[i].rows, 0, 0);
        check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_RING_PENDING, 1);
        assert_true(w.err.value == slot && w.err.limit == 3);
    }
    check_error(w.a->slot_copy(w.h, slot, w.slot[R1], &w.err), HB_RULE_COPY_RING, -1);
    assert_int_equal(w.err.value, 3);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    make_batch(HB_MODE_IDLE, 0, NULL, 1, 1);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    make_chains(D4, NULL, 0); /* folds; nothing is accepted: temporal is the state */
    assert_int_equal(verify(), 0);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(forward(other[i].mode, 2, other[i].rows, 1, 1), 0);
    }
    check_cursors(slot, 3, 0, 0);
    assert_int_equal(w.a->slot_copy(w.h, slot, w.slot[R1], &w.err), HB_OK);
    make_chains(D4, NULL, 0);
    check_cursors(w.slot[R1], 0, 0, 0);
    assert_true(state_is(w.slot[R1], R0, w.pos[R0]));
    close_world();
}

static void links_are_refused(void **state) {
    (void)state;
    open_ring(HB_FORM_V0, 0);
    assert_int_equal(w.a->graph_init(w.h, GRAPH_ROWS, GRAPH_ROWS * D4, &w.err), HB_OK);
    const size_t n = dump(dump_a, sizeof(dump_a));
    make_chains(D4, NULL, 0);
    fixture_tree(&w.f);
    w.f.batch.retrieve_next_token.len = w.f.batch.retrieve_next_sibling.len = 2 * D4;
    memset(w.f.next, 0xff, sizeof(w.f.next));
    memset(w.f.sibling, 0xff, sizeof(w.f.sibling));
    for (int32_t i = 0; i < 2 * D4; i++) { /* a chain, told by links */
        w.f.next[i] = i % D4 < D4 - 1 ? i % D4 + 1 : -1;
    }
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_RING_TREE, -1);
    make_capture(HB_MODE_TARGET_VERIFY, 2, D4, 1);
    check_error(w.a->capture(w.h, &w.f.batch, &w.err), HB_RULE_RING_TREE, -1);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    close_world();
}

static void verify_needs_every_linear_layer(void **state) {
    struct io io;
    (void)state;
    open_ring(HB_FORM_V0, 0);
    make_chains(D4, NULL, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    fill_io(&io, 0);
    assert_int_equal(w.a->layer(w.h, 0, &io.io, &w.err), HB_OK);
    free_io(&io);
    const size_t n = dump(dump_a, sizeof(dump_a));
    check_error(w.a->finish(w.h, &w.err), HB_RULE_RING_LAYERS, -1);
    assert_int_equal(w.err.value, 2);
    struct plan p = plan_of(2, 0, 0, 0);
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    assert_int_equal(run_layers(4), 0); /* attention may stay out */
    assert_int_equal(commit(&p, 0), HB_OK);
    check_cursors(w.slot[R0], 0, 1, 1);
    /* other modes may leave layers out */
    take(OTHER);
    make_batch(HB_MODE_EXTEND, 1, (const struct row[]){{OTHER, 2, 0, 0}}, 0, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    /* so must a capture */
    assert_int_equal(w.a->graph_init(w.h, GRAPH_ROWS, GRAPH_ROWS * D4, &w.err), HB_OK);
    make_capture(HB_MODE_TARGET_VERIFY, 2, D4, 0);
    assert_int_equal(w.a->capture(w.h, &w.f.batch, &w.err), HB_OK);
    check_error(w.a->finish(w.h, &w.err), HB_RULE_RING_LAYERS, -1);
    assert_int_equal(w.err.value, 0);
    close_world();
}

static void ring_of_a_new_owner_starts_empty(void **state) {
    (void)state;
    open_ring(HB_FORM_FAST, 0);
    const int32_t slot = w.slot[R0];
    for (int32_t k = 0; k < 2; k++) {
        make_chains(D4, NULL, 0);
        assert_int_equal(verify(), 0);
        commit_ok(plan_of(2, 2, 0, 0), 0);
        accept(3, 1);
    }
    check_cursors(slot, 3, 3, 1);
    assert_int_equal(w.a->slot_free(w.h, 1, &slot, &w.err), HB_OK);
    check_cursors(slot, 3, 3, 1); /* bytes stay */
    do {
        take(R0);
    } while (w.slot[R0] != slot);
    check_cursors(slot, 0, 0, 0);
    for (int32_t l = 0; l < LAYERS; l += 2) { /* stale records are not read */
        fill_region("ring_x", l, 0xff);
        fill_region("ring_b", l, 0xff);
        fill_region("ring_g", l, 0xff);
    }
    assert_int_equal(forward(HB_MODE_EXTEND, 1, (const struct row[]){{R0, 4, 0, 0}}, 0, 0), 0);
    assert_int_equal(w.a->slot_copy(w.h, slot, w.slot[R1], &w.err), HB_OK);
    const int32_t seq = w.pos[R0];
    fixture_verify(&w.f, D4, 1, &seq, NULL, 1);
    for (int32_t t = 0; t < 2 * D4; t++) {
        tokens[t] = (struct token){t < D4 ? R0 : -1, seq + t, t < D4};
    }
    assert_int_equal(verify(), 0);
    close_world();
}

/* Dummy rows share slot 0, whose cursors never move. */
static void dummy_rows_never_advance(void **state) {
    (void)state;
    open_ring(HB_FORM_V0, 0);
    for (int32_t r = 0; r < 2; r++) {
        assert_int_equal(w.a->table_set(w.h, R0 - r, 0, &w.err), HB_OK);
    }
    for (int32_t k = 0; k < 3; k++) {
        make_chains(D4, NULL, 0);
        w.f.batch.is_dummy = 1;
        (void)verify();
        commit_ok(plan_of(2, 3, 1, 0), 0);
        for (int32_t slot = 0; slot <= SLOTS; slot++) {
            check_cursors(slot, 0, 0, 0);
        }
    }
    close_world();
}

/* Cursors written raw through their regions lead nowhere outside. */
static void cursors_out_of_range_are_harmless(void **state) {
    (void)state;
    open_ring(HB_FORM_FAST, 0);
    for (int32_t k = 0; k < 4; k++) {
        static const uint8_t bytes[] = {0xff, 0x7f, 0x80, 0x07};
        fill_region("write_pos", -1, bytes[k]);
        fill_region("ring_base", -1, bytes[k]);
        fill_region("ring_flush", -1, k % 2 ? 0xff : 0);
        make_chains(D4, NULL, 0);
        (void)verify();
        commit_ok(plan_of(2, 3, 3, 0), 0);
        assert_int_equal(cursor(w.slot[R0]), 4);
    }
    close_world();
}

static void ring_regions(void **state) {
    (void)state;
    open_ring(HB_FORM_V0, 0);
    static const char *const names[] = {"write_pos", "ring_base", "ring_flush"};
    for (int32_t i = 0; i < 3; i++) {
        struct hb_region info = {0};
        int32_t at = 0;
        region_at(names[i], -1, &at, &info);
        assert_int_equal(info.kind, HB_REGION_CURSOR);
        assert_int_equal(info.dtype, HB_INT32);
        assert_int_equal(info.shape[0], SLOTS + 1);
    }
    struct hb_region info = {0};
    int32_t n = 0;
    assert_int_equal(w.a->n_regions(w.h, &n, &w.err), HB_OK);
    for (int32_t i = 0; i < n; i++) { /* there are windows, and no states, of nodes */
        assert_int_equal(w.a->region(w.h, i, &info, &w.err), HB_OK);
        assert_string_not_equal(info.name, "intermediate_ssm");
    }
    close_world();
}

/* replays */

/* Verifies of chains, 2 and 4 rows, and a decode; a cursor that a decode would refuse goes. */
static void replay_equals_eager(void **state) {
    (void)state;
    for (int32_t i = 0; i < 4; i++) {
        ring_length = i < 2 ? 8 : 16;
        world_config = i % 2 ? virtual_config : ring_config;
        random_state = 5U + (uint32_t)i;
        open_graph_world(i % HB_N_FLOAT_DTYPES, i % 2, i % HB_N_ORDERS, 0);
        world_config = NULL;
        assert_int_equal(w.a->graph_init(w.h, GRAPH_ROWS, GRAPH_ROWS * D4, &w.err), HB_OK);
        capture(HB_MODE_IDLE, 1, 1, 0, 7);
        capture(HB_MODE_TARGET_VERIFY, 2, D4, 0, 7);
        capture(HB_MODE_DECODE, 3, 1, 0, 7);
        capture(HB_MODE_TARGET_VERIFY, 4, D4, 0, 7);
        capture(HB_MODE_TARGET_VERIFY, 5, D4, 0, 7);
        int32_t n_folds = 0;
        for (int32_t k = 0; k < 50; k++) {
            const int32_t bs = 1 + pick(GRAPH_ROWS);
            for (int32_t q = FIRST_REQ; q < FIRST_REQ + LIVE_REQS; q++) {
                w.pos[q] = w.pos[q] > CONTEXT - 8 ? 6 : w.pos[q];
                n_folds += flush_of(slot_of_id(w.slot[q]));
            }
            if (bs == 3 && k % 4 != 0) {
                continue;
            }
            if (bs == 3) {
                fill_region("write_pos", -1, 0);
            }
            if (i % 2) {
                assert_int_equal(w.a->slot_move(w.h, w.slot[FIRST_REQ + pick(5)], &w.err), HB_OK);
            }
            assert_int_equal(count_differences(bs, k % 3 == 0 ? bs : pick(bs + 1), pick(3)), 0);
        }
        assert_in_range(n_folds, 6, INT32_MAX);
        close_world();
    }
    ring_length = 8;
}

#ifdef HB_DEFECTS
/* A row whose virtual id was freed is committed all the same: its checkpoint is folded from no slot, so it stays as it was. */
static void freed_id_is_no_slot(void **state) {
    (void)state;
    world_config = virtual_config;
    open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, HB_DEFECT_FREED_SLOT_COMMIT);
    world_config = NULL;
    const int32_t dst = take_track();
    make_chains(D4, NULL, 0);
    (void)verify();
    struct plan p = plan_of(2, 1, 2, 0);
    p.track[0] = dst;
    p.track_step[0] = 1;
    const size_t n = dump_named("temporal", dump_a);
    assert_int_equal(w.a->slot_free(w.h, 1, &w.slot[R0], &w.err), HB_OK);
    commit_ok(p, 1); /* and not refused */
    assert_int_equal(dump_named("temporal", dump_b), n);
    assert_memory_equal(dump_a, dump_b, n);
    close_world();
}

/* All of 4 nodes accepted where 2 are; records written over live ones. */
static void planted_defects_are_seen(void **state) {
    static const int32_t defects[] = {0, HB_DEFECT_RING_ACCEPT_ALL, HB_DEFECT_RING_FOLD_LATE};
    (void)state;
    for (int32_t i = 0; i < 6; i++) {
        const int32_t defect = defects[i / 2];
        int32_t wrong = 0;
        open_ring(i % 2, defect);
        for (int32_t round = 0; round < 5; round++) {
            make_chains(D4, NULL, 0);
            wrong += verify();
            commit_ok(plan_of(2, 1, 2, 0), 0);
            accept(2, 3);
            wrong += cursor(w.slot[R0]) != 2;
        }
        if ((wrong > 0) != (defect != 0)) {
            fail_msg("defect %d, %d differences", defect, wrong);
        }
        close_world();
    }
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_worked_example),
        cmocka_unit_test(verify_and_commit_write_what_the_readme_says),
        cmocka_unit_test(verify_and_commit_may_be_repeated),
        cmocka_unit_test(other_modes_need_a_folded_ring),
        cmocka_unit_test(links_are_refused),
        cmocka_unit_test(verify_needs_every_linear_layer),
        cmocka_unit_test(ring_of_a_new_owner_starts_empty),
        cmocka_unit_test(dummy_rows_never_advance),
        cmocka_unit_test(cursors_out_of_range_are_harmless),
        cmocka_unit_test(ring_regions),
        cmocka_unit_test(replay_equals_eager),
#ifdef HB_DEFECTS
        cmocka_unit_test(planted_defects_are_seen),
        cmocka_unit_test(freed_id_is_no_slot),
#endif
    };
    return cmocka_run_group_tests_name("ring_commit", tests, NULL, NULL);
}
