/* SPDX-License-Identifier: Apache-2.0
 * Virtual ids (state-pool.md section 3), publish and move: forwards, checkpoints and commits over
 * ids that are not slots, freed and moved ids, the rules of the operations. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <limits.h>
#include <string.h>

#include "backend/tests/spec_world.h"

enum { IDS = 20, RING = 4 };

static int32_t ring_length;

static void virtual_config(struct hb_config *c) {
    c->n_virtual = IDS;
    c->ring_length = ring_length;
}

static int32_t slot_of(int32_t id) {
    return table_at("v2p", id);
}

static int32_t kind_of(int32_t id) {
    return table_at("slot_kind", slot_of(id));
}

/* Ids 13.. are given out first, on slots 1... */
static void open_ids(int32_t form, int32_t defect) {
    int32_t ids[SLOTS];
    world_config = virtual_config;
    open_world(HB_FP32, form, HB_ORDER_ASCENDING, defect);
    assert_int_equal(w.a->slot_take(w.h, SLOTS, HB_SLOT_LIVE, ids, &w.err), HB_OK);
    assert_int_equal(w.a->slot_free(w.h, SLOTS, ids, &w.err), HB_OK);
    take(R0);
    take(R1);
    assert_int_equal(w.slot[R0], SLOTS + 1);
    assert_int_equal(slot_of(w.slot[R0]), 1);
}

static void check_unchanged(size_t n) {
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
}

static void ids_come_and_go_in_order(void **state) {
    (void)state;
    int32_t ids[4];
    world_config = virtual_config;
    open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    for (int32_t id = 0; id <= IDS; id++) {
        assert_int_equal(slot_of(id), id == 0 ? 0 : -1);
    }
    assert_int_equal(w.a->slot_take(w.h, 3, HB_SLOT_TRACK, ids, &w.err), HB_OK);
    assert_true(ids[0] == 1 && ids[1] == 2 && ids[2] == 3);
    const int32_t back[] = {3, 1};
    assert_int_equal(w.a->slot_free(w.h, 2, back, &w.err), HB_OK);
    assert_true(slot_of(1) == -1 && slot_of(2) == 2 && slot_of(3) == -1);
    assert_true(table_at("free_ids", IDS - 3) == 3 && table_at("free_ids", IDS - 2) == 1);
    assert_true(table_at("free_list", SLOTS - 3) == 3 && table_at("free_list", SLOTS - 2) == 1);
    assert_int_equal(table_at("free_id_count", 0), IDS - 1);
    int32_t all[SLOTS];
    assert_int_equal(w.a->slot_take(w.h, SLOTS - 1, HB_SLOT_LIVE, all, &w.err), HB_OK);
    assert_int_equal(all[0], 4);
    assert_int_equal(slot_of(all[0]), 4);
    assert_int_equal(all[SLOTS - 2], 14);
    assert_int_equal(slot_of(14), 1);
    check_error(w.a->slot_take(w.h, 1, HB_SLOT_LIVE, ids, &w.err), HB_RULE_TAKE_EXHAUSTED, -1);
    close_world();
}

static void ids_are_translated_in_every_mode(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        open_ids(form, 0);
        const int32_t a = take_track();
        const int32_t b = take_track();
        assert_int_equal(forward(HB_MODE_EXTEND, 2,
                                 (const struct row[]){{R0, 9, a, 9}, {R1, 6, b, 6}}, 1, 2),
                         0);
        assert_true(state_is(slot_of(w.slot[R0]), R0, 9));
        assert_true(state_is(slot_of(a), R0, 8));
        assert_true(state_is(slot_of(b), R1, 4));
        assert_int_equal(forward(HB_MODE_MIXED, 2,
                                 (const struct row[]){{R0, 5, b, 4}, {R1, 0, 0, 0}}, 0, 0),
                         0);
        assert_true(state_is(slot_of(b), R0, 13));
        assert_int_equal(forward(HB_MODE_DECODE, 2,
                                 (const struct row[]){{R1, 0, a, 0}, {R0, 0, 0, 0}}, 1, 1),
                         0);
        assert_true(state_is(slot_of(a), R1, 8));
        memset(w.f.mask, 0, sizeof(w.f.mask));
        make_chains(DRAFT, NULL, 1);
        assert_int_equal(verify(), 0);
        struct plan p = plan_of(2, 3, 0, 0);
        p.track_step[0] = 1;
        p.track[0] = b;
        commit_ok(p, 1);
        assert_true(state_is(slot_of(w.slot[R0]), R0, 19));
        assert_true(state_is(slot_of(w.slot[R1]), R1, 9));
        assert_true(state_is(slot_of(b), R0, 17));
        assert_int_equal(w.a->slot_copy(w.h, b, w.slot[R1], &w.err), HB_OK);
        assert_true(state_is(slot_of(w.slot[R1]), R0, 17));
        close_world();
    }
}

static void ids_out_of_range_and_free(void **state) {
    static const struct row row = {R0, 4, 0, 0};
    (void)state;
    open_ids(HB_FORM_V0, 0);
    const int32_t dst = take_track();
    assert_int_equal(w.a->table_set(w.h, R0, IDS + 1, &w.err), HB_OK);
    make_batch(HB_MODE_EXTEND, 1, &row, 0, 0);
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_SLOT_RANGE, 0);
    assert_true(w.err.value == IDS + 1 && w.err.limit == IDS);
    assert_int_equal(w.a->table_set(w.h, R0, 5, &w.err), HB_OK);
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_SLOT_FREED, 0);
    assert_int_equal(w.a->table_set(w.h, R0, w.slot[R0], &w.err), HB_OK);
    fixture_track(&w.f, 0, IDS + 1, 4);
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_TRACK_SLOT_RANGE, 0);
    assert_int_equal(w.err.limit, IDS);
    fixture_track(&w.f, 0, IDS, 4);
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_TRACK_SLOT_FREED, 0);
    fixture_track(&w.f, 0, dst, 4);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(w.a->slot_free(w.h, 1, &dst, &w.err), HB_OK);
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_TRACK_SLOT_FREED, 0);
    const int32_t high = IDS + 1;
    check_error(w.a->slot_free(w.h, 1, &high, &w.err), HB_RULE_OP_SLOT_RANGE, 0);
    assert_int_equal(w.err.limit, IDS);
    check_error(w.a->slot_free(w.h, 1, &dst, &w.err), HB_RULE_OP_SLOT_FREED, 0);
    check_error(w.a->slot_copy(w.h, w.slot[R0], dst, &w.err), HB_RULE_OP_SLOT_FREED, 1);
    const int32_t twice[] = {w.slot[R0], w.slot[R1], w.slot[R0]};
    check_error(w.a->slot_free(w.h, 3, twice, &w.err), HB_RULE_OP_SLOT_DUPLICATE, 2);
    close_world();
}

static void move_takes_the_state_along(void **state) {
    static const struct row rows[] = {{R0, 0, 0, 0}, {R1, 0, 0, 0}};
    (void)state;
    for (ring_length = 0; ring_length <= RING; ring_length += RING) {
        open_ids(HB_FORM_FAST, 0);
        (void)forward(HB_MODE_EXTEND, 1, (const struct row[]){{R0, 5, 0, 0}}, 0, 0);
        for (int32_t k = 0; k < 3 * RING; k++) {
            const int32_t from = slot_of(w.slot[R0]);
            const int32_t to = table_at("free_list", 0);
            const int32_t n_free = table_at("free_count", 0);
            const int32_t cursor = ring_length > 0 ? table_at("write_pos", from) : 0;
            assert_int_equal(w.a->slot_move(w.h, w.slot[R0], &w.err), HB_OK);
            assert_int_equal(slot_of(w.slot[R0]), to);
            assert_int_equal(table_at("slot_kind", to), HB_SLOT_LIVE);
            assert_int_equal(table_at("slot_kind", from), HB_SLOT_FREE);
            assert_int_equal(table_at("free_count", 0), n_free);
            assert_int_equal(table_at("free_list", n_free - 1), from);
            if (ring_length > 0) {
                assert_int_equal(table_at("write_pos", to), cursor);
            }
            assert_int_equal(forward(HB_MODE_DECODE, 2, rows, 0, 0), 0);
        }
        assert_true(state_is(slot_of(w.slot[R0]), R0, 5 + 3 * RING));
        close_world();
    }
    ring_length = 0;
}

static void move_rules(void **state) {
    (void)state;
    open_ids(HB_FORM_V0, 0);
    size_t n = dump(dump_a, sizeof(dump_a));
    check_error(w.a->slot_move(w.h, 0, &w.err), HB_RULE_OP_SLOT_RANGE, 0);
    check_error(w.a->slot_move(w.h, IDS + 1, &w.err), HB_RULE_OP_SLOT_RANGE, 0);
    check_error(w.a->slot_move(w.h, 1, &w.err), HB_RULE_OP_SLOT_FREED, 0);
    check_unchanged(n);
    int32_t ids[SLOTS];
    assert_int_equal(w.a->slot_take(w.h, SLOTS - 2, HB_SLOT_LIVE, ids, &w.err), HB_OK);
    n = dump(dump_a, sizeof(dump_a));
    check_error(w.a->slot_move(w.h, w.slot[R0], &w.err), HB_RULE_MOVE_EXHAUSTED, -1);
    assert_int_equal(w.err.value, w.slot[R0]);
    check_unchanged(n);
    close_world();
    world_config = NULL;
    open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    check_error(w.a->slot_move(w.h, 99, &w.err), HB_RULE_MOVE_STATIC, -1);
    assert_int_equal(w.err.value, 99);
    assert_int_equal(w.a->slot_move(NULL, 1, &w.err), HB_ERR_NULL);
    close_world();
}

static void publish_and_its_rules(void **state) {
    (void)state;
    for (int32_t is_virtual = 0; is_virtual < 2; is_virtual++) {
        world_config = is_virtual ? virtual_config : NULL;
        open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
        take(R0);
        const int32_t id = take_track();
        (void)forward(HB_MODE_EXTEND, 1, (const struct row[]){{R0, 4, id, 4}}, 0, 0);
        const size_t n = dump(dump_a, sizeof(dump_a));
        check_error(w.a->slot_publish(w.h, 0, &w.err), HB_RULE_OP_SLOT_RANGE, 0);
        check_error(w.a->slot_publish(w.h, (is_virtual ? IDS : SLOTS) + 1, &w.err),
                    HB_RULE_OP_SLOT_RANGE, 0);
        check_error(w.a->slot_publish(w.h, 9, &w.err), HB_RULE_OP_SLOT_FREED, 0);
        check_error(w.a->slot_publish(w.h, w.slot[R0], &w.err), HB_RULE_PUBLISH_KIND, -1);
        check_unchanged(n);
        assert_int_equal(w.a->slot_publish(w.h, id, &w.err), HB_OK);
        assert_int_equal(is_virtual ? kind_of(id) : table_at("slot_kind", id), HB_SLOT_TREE);
        check_error(w.a->slot_publish(w.h, id, &w.err), HB_RULE_PUBLISH_KIND, -1);
        assert_int_equal(w.err.value, id);
        /* a node of the cache is read by copies only */
        make_batch(HB_MODE_EXTEND, 1, (const struct row[]){{R0, 4, id, 4}}, 0, 0);
        check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_TRACK_ALIAS_SLOT, 0);
        assert_int_equal(w.a->table_set(w.h, R0, id, &w.err), HB_OK);
        make_batch(HB_MODE_EXTEND, 1, (const struct row[]){{R0, 4, 0, 0}}, 0, 0);
        check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_SLOT_NOT_LIVE, 0);
        take(R1);
        assert_int_equal(w.a->slot_copy(w.h, id, w.slot[R1], &w.err), HB_OK);
        assert_int_equal(w.a->slot_free(w.h, 1, &id, &w.err), HB_OK);
        assert_int_equal(w.a->slot_publish(NULL, 1, &w.err), HB_ERR_NULL);
        close_world();
    }
}

/* A finished verify of two rows over ids. */
static struct plan open_verify(int32_t defect) {
    open_ids(HB_FORM_FAST, defect);
    (void)forward(HB_MODE_EXTEND, 2, (const struct row[]){{R0, 5, 0, 0}, {R1, 2, 0, 0}}, 0, 0);
    make_chains(DRAFT, NULL, 0);
    assert_int_equal(verify(), 0);
    return plan_of(2, 4, 1, 0);
}

static void commit_finds_ids_where_they_are_now(void **state) {
    (void)state;
    struct plan p = open_verify(0);
    const int32_t dst = take_track();
    p.track_step[1] = 2;
    p.track[1] = dst;
    const int32_t old = slot_of(w.slot[R0]);
    assert_int_equal(w.a->slot_move(w.h, w.slot[R0], &w.err), HB_OK);
    assert_int_equal(w.a->slot_move(w.h, dst, &w.err), HB_OK);
    commit_ok(p, 1);
    assert_true(state_is(slot_of(w.slot[R0]), R0, 10));
    assert_true(state_is(slot_of(w.slot[R1]), R1, 4));
    assert_true(state_is(slot_of(dst), R1, 5));
    assert_true(state_is(old, R0, 5)); /* what was left behind keeps its bytes */
    close_world();
}

static void commit_rules_over_ids(void **state) {
    (void)state;
    struct plan p = open_verify(0);
    const int32_t dst = take_track();
    p.track_step[0] = 0;
    p.track[0] = IDS + 1;
    check_error(commit(&p, 1), HB_RULE_COMMIT_TRACK_SLOT, 0);
    assert_int_equal(w.err.limit, IDS);
    p.track[0] = IDS;
    check_error(commit(&p, 1), HB_RULE_COMMIT_TRACK_FREED, 0);
    p.track[0] = w.slot[R1];
    check_error(commit(&p, 1), HB_RULE_COMMIT_TRACK_ALIAS, 0);
    assert_int_equal(w.a->slot_publish(w.h, dst, &w.err), HB_OK);
    p.track[0] = dst;
    check_error(commit(&p, 1), HB_RULE_COMMIT_TRACK_ALIAS, 0);
    assert_int_equal(w.a->slot_free(w.h, 1, &w.slot[R1], &w.err), HB_OK);
    p.track_step[0] = -1;
    check_error(commit(&p, 1), HB_RULE_COMMIT_SLOT_FREED, 1);
    assert_int_equal(w.err.value, w.slot[R1]);
    int32_t id = 0;
    while (id != w.slot[R1]) { /* ids come back after all others */
        if (id != 0) {
            assert_int_equal(w.a->slot_free(w.h, 1, &id, &w.err), HB_OK);
        }
        id = take_track();
    }
    const size_t n = dump(dump_a, sizeof(dump_a));
    check_error(commit(&p, 1), HB_RULE_COMMIT_SLOT_STALE, 1);
    check_unchanged(n);
    p.step[1] = -1;
    commit_ok(p, 1);
    close_world();
}

static void ids_survive_raw_writes(void **state) {
    static const int32_t values[] = {INT_MAX, INT_MIN, 0, -1, SLOTS + 1};
    static const char *const names[] = {"v2p", "free_ids", "free_id_count", "free_list",
                                        "write_pos"};
    (void)state;
    ring_length = RING;
    for (size_t i = 0; i < 5 * 5; i++) {
        open_ids(HB_FORM_V0, 0);
        struct hb_region info = {0};
        int32_t region = 0;
        region_at(names[i / 5], -1, &region, &info);
        for (uint64_t at = 0; at < info.bytes; at += sizeof(int32_t)) {
            assert_int_equal(w.a->region_write(w.h, region, at, &values[i % 5], 4, &w.err), HB_OK);
        }
        int32_t id = 0;
        (void)w.a->slot_move(w.h, w.slot[R0], &w.err);
        (void)w.a->slot_copy(w.h, w.slot[R0], w.slot[R1], &w.err);
        (void)w.a->slot_publish(w.h, w.slot[R0], &w.err);
        (void)w.a->slot_take(w.h, 1, HB_SLOT_TRACK, &id, &w.err);
        (void)w.a->slot_free(w.h, 1, &w.slot[R0], &w.err);
        static const struct row row = {R1, 0, 0, 0};
        make_batch(HB_MODE_DECODE, 1, &row, 0, 0);
        if (w.a->begin(w.h, &w.f.batch, &w.err) == HB_OK) {
            struct io io;
            for (int32_t l = 0; l < LAYERS; l += 2) {
                make_io(&io, l, 1, &row);
                (void)w.a->layer(w.h, l, &io.io, &w.err);
                free_io(&io);
            }
            (void)w.a->finish(w.h, &w.err);
        }
        close_world();
    }
    ring_length = 0;
}

#ifdef HB_DEFECTS
static void defects_of_ids_are_seen(void **state) {
    (void)state;
    open_ids(HB_FORM_V0, HB_DEFECT_TRACK_VIRTUAL);
    int32_t dst = SLOTS + 1;
    while (dst > SLOTS) { /* an id that is a slot, too, but not its own */
        dst = take_track();
    }
    assert_int_not_equal(slot_of(dst), dst);
    (void)forward(HB_MODE_EXTEND, 1, (const struct row[]){{R0, 4, dst, 4}}, 0, 0);
    assert_false(state_is(slot_of(dst), R0, 4));
    close_world();

    struct plan p = open_verify(HB_DEFECT_MOVE_STALE);
    assert_int_equal(w.a->slot_move(w.h, w.slot[R0], &w.err), HB_OK);
    commit_ok(p, 0);
    assert_false(state_is(slot_of(w.slot[R0]), R0, 10));
    close_world();

    p = open_verify(HB_DEFECT_FREED_SLOT_COMMIT);
    assert_int_equal(w.a->slot_free(w.h, 1, &w.slot[R1], &w.err), HB_OK);
    commit_ok(p, 0); /* and not refused */
    close_world();
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_come_and_go_in_order),
        cmocka_unit_test(ids_are_translated_in_every_mode),
        cmocka_unit_test(ids_out_of_range_and_free),
        cmocka_unit_test(move_takes_the_state_along),
        cmocka_unit_test(move_rules),
        cmocka_unit_test(publish_and_its_rules),
        cmocka_unit_test(commit_finds_ids_where_they_are_now),
        cmocka_unit_test(commit_rules_over_ids),
        cmocka_unit_test(ids_survive_raw_writes),
#ifdef HB_DEFECTS
        cmocka_unit_test(defects_of_ids_are_seen),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
