/* SPDX-License-Identifier: Apache-2.0
 * The prediction of the slot operations, and the slot model: ids that are slots, virtual ids,
 * cursors and generations (state-pool.md sections 2 and 5). */
#include "harness/tests/expect_common.h"

#include <string.h>

enum { SLOTS = 4, IDS = 6 };

static void model_init(struct hb_slot_model *m, int32_t n_virtual) {
    const struct hb_config c = {
        .n_slots = SLOTS, .req_pool_size = 3, .n_virtual = n_virtual, .ring_length = 5};
    assert_int_equal(hb_slot_model_init(m, &c), HB_OK);
}

static void free_is(const struct hb_slot_model *m, int32_t n, const int32_t *ids, int32_t rule,
                    int32_t row, int64_t value, int64_t limit) {
    struct hb_error e;
    hb_expect_free(m, n, ids, &e);
    check(&e, rule, row, value, limit);
}

static void copy_is(const struct hb_slot_model *m, int32_t src, int32_t dst, int32_t rule,
                    int32_t row, int64_t value, int64_t limit) {
    struct hb_error e;
    hb_expect_copy(m, src, dst, &e);
    check(&e, rule, row, value, limit);
}

static void publish_is(const struct hb_slot_model *m, int32_t id, int32_t rule, int32_t row,
                       int64_t value, int64_t limit) {
    struct hb_error e;
    hb_expect_publish(m, id, &e);
    check(&e, rule, row, value, limit);
}

static void move_is(const struct hb_slot_model *m, int32_t id, int32_t rule, int32_t row,
                    int64_t value, int64_t limit) {
    struct hb_error e;
    hb_expect_move(m, id, &e);
    check(&e, rule, row, value, limit);
}

/* The same calls with ids 1..4 that are slots and with ids 1..6 that are not. */
static void slot_operations_check_counts_kinds_and_ids(void **state) {
    static const int32_t n_virtual[2] = {0, IDS};
    (void)state;
    for (int k = 0; k < 2; k++) {
        const int32_t most = k == 0 ? SLOTS : IDS;
        struct hb_slot_model m;
        struct hb_error e;
        int32_t ids[SLOTS];
        model_init(&m, n_virtual[k]);
        hb_expect_take(&m, -1, 99, &e);
        check(&e, 150, -1, -1, 0);
        hb_expect_take(&m, 5, 99, &e);
        check(&e, 151, -1, 5, 4);
        hb_expect_take(&m, 4, HB_SLOT_TREE, &e);
        check(&e, 152, -1, HB_SLOT_TREE, 0);
        hb_expect_take(&m, 4, HB_SLOT_TRACK, &e);
        check(&e, 0, -1, 0, 0);
        hb_slot_model_take(&m, 3, HB_SLOT_LIVE, ids);
        assert_true(ids[0] == 1 && ids[1] == 2 && ids[2] == 3 && m.n_free == 1);
        free_is(&m, 3, (const int32_t[]){2, 4, most + 1}, 153, 2, most + 1, most);
        free_is(&m, 3, (const int32_t[]){2, 2, 4}, 154, 2, 4, 0);
        free_is(&m, 3, (const int32_t[]){2, 1, 2}, 155, 2, 2, 0);
        free_is(&m, 2, (const int32_t[]){3, 1}, 0, -1, 0, 0);
        free_is(&m, -7, NULL, 0, -1, 0, 0);
        copy_is(&m, most + 1, 0, 153, 0, most + 1, most);
        copy_is(&m, 4, 0, 153, 1, 0, most);
        copy_is(&m, 4, 4, 154, 0, 4, 0);
        copy_is(&m, 1, 4, 154, 1, 4, 0);
        copy_is(&m, 1, 1, 156, -1, 1, 0);
        copy_is(&m, 1, 2, 0, -1, 0, 0);
        hb_expect_table(&m, 3, &e);
        check(&e, 157, -1, 3, 2);
        hb_expect_table(&m, -1, &e);
        check(&e, 157, -1, -1, 2);
        hb_expect_table(&m, 2, &e);
        check(&e, 0, -1, 0, 0);
        hb_slot_model_destroy(&m);
    }
}

static void a_copy_needs_a_folded_source(void **state) {
    static const int32_t n_virtual[2] = {0, IDS};
    struct hb_slot_model m;
    (void)state;
    for (int k = 0; k < 2; k++) {
        model_init(&m, n_virtual[k]);
        hb_slot_model_take(&m, 2, HB_SLOT_LIVE, NULL);
        m.write_pos[hb_slot_model_slot(&m, 1)] = 3;
        copy_is(&m, 1, 2, 159, -1, 3, 0);
        copy_is(&m, 1, 1, 156, -1, 1, 0); /* the lower number first */
        copy_is(&m, 1, 3, 154, 1, 3, 0);
        copy_is(&m, 2, 1, 0, -1, 0, 0); /* the destination's records go */
        hb_slot_model_destroy(&m);
    }
}

static void a_copy_ends_what_a_verify_read(void **state) {
    static const int32_t n_virtual[2] = {0, IDS};
    struct hb_slot_model m;
    (void)state;
    for (int k = 0; k < 2; k++) {
        model_init(&m, n_virtual[k]);
        hb_slot_model_take(&m, 2, HB_SLOT_LIVE, NULL);
        m.write_pos[hb_slot_model_slot(&m, 1)] = 3;
        m.write_pos[hb_slot_model_slot(&m, 2)] = 2;
        hb_slot_model_copied(&m, 1);
        assert_int_equal(m.write_pos[hb_slot_model_slot(&m, 1)], 0);
        assert_int_equal(m.write_pos[hb_slot_model_slot(&m, 2)], 2);
        assert_int_equal(m.generation[1], 2);
        assert_int_equal(m.generation[2], 1);
        hb_slot_model_destroy(&m);
    }
}

static void only_a_checkpoint_is_published(void **state) {
    static const int32_t n_virtual[2] = {0, IDS};
    struct hb_slot_model m;
    (void)state;
    for (int k = 0; k < 2; k++) {
        const int32_t most = k == 0 ? SLOTS : IDS;
        model_init(&m, n_virtual[k]);
        hb_slot_model_take(&m, 1, HB_SLOT_LIVE, NULL);
        hb_slot_model_take(&m, 1, HB_SLOT_TRACK, NULL);
        publish_is(&m, 2, 0, -1, 0, 0);
        publish_is(&m, 1, 163, -1, 1, 0);
        publish_is(&m, 3, 154, 0, 3, 0);
        publish_is(&m, 0, 153, 0, 0, most);
        publish_is(&m, most + 1, 153, 0, most + 1, most);
        m.kind[hb_slot_model_slot(&m, 2)] = HB_SLOT_TREE; /* twice */
        publish_is(&m, 2, 163, -1, 2, 0);
        hb_slot_model_destroy(&m);
    }
}

static void only_virtual_ids_move_and_only_to_a_free_slot(void **state) {
    struct hb_slot_model m;
    (void)state;
    model_init(&m, 0);
    hb_slot_model_take(&m, 1, HB_SLOT_LIVE, NULL);
    move_is(&m, 1, 164, -1, 1, 0);
    move_is(&m, -9, 164, -1, -9, 0); /* before range and freedom */
    hb_slot_model_destroy(&m);
    model_init(&m, IDS);
    hb_slot_model_take(&m, 3, HB_SLOT_LIVE, NULL);
    move_is(&m, 3, 0, -1, 0, 0);
    move_is(&m, 4, 154, 0, 4, 0);
    move_is(&m, 7, 153, 0, 7, 6);
    move_is(&m, 0, 153, 0, 0, 6);
    hb_slot_model_take(&m, 1, HB_SLOT_TRACK, NULL);
    move_is(&m, 3, 165, -1, 3, 0);
    move_is(&m, 5, 154, 0, 5, 0);
    hb_slot_model_destroy(&m);
}

/* ---- the model ---- */

static void freed_slots_come_back_last(void **state) {
    struct hb_slot_model m;
    struct hb_slot_model copy = {0};
    int32_t ids[4];
    (void)state;
    model_init(&m, 0);
    hb_slot_model_take(&m, 3, HB_SLOT_LIVE, ids);
    hb_slot_model_release(&m, 2, (const int32_t[]){3, 1});
    assert_int_equal(hb_slot_model_copy(&copy, &m), HB_OK);
    hb_slot_model_take(&m, 3, HB_SLOT_TRACK, ids);
    assert_true(ids[0] == 4 && ids[1] == 3 && ids[2] == 1 && m.n_free == 0 &&
                m.kind[3] == HB_SLOT_TRACK);
    assert_true(copy.n_free == 3 && copy.kind[3] == HB_SLOT_FREE && copy.free_list[0] == 4);
    assert_int_equal(hb_slot_model_copy(&copy, &m), HB_OK);
    assert_memory_equal(copy.kind, m.kind, 5 * sizeof *m.kind);
    hb_slot_model_destroy(&copy);
    hb_slot_model_destroy(&m);
    const struct hb_config bad[] = {{.n_slots = -1}, {.n_virtual = -1}, {.req_pool_size = -1}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hb_slot_model_init(&m, &bad[i]), HB_ERR_SHAPE);
    }
}

static void virtual_ids_and_slots_have_lists_of_their_own(void **state) {
    struct hb_slot_model m;
    int32_t ids[4];
    (void)state;
    model_init(&m, IDS);
    hb_slot_model_take(&m, 3, HB_SLOT_LIVE, ids);
    assert_memory_equal(ids, ((const int32_t[]){1, 2, 3}), 3 * sizeof *ids);
    hb_slot_model_release(&m, 2, (const int32_t[]){3, 1});
    assert_memory_equal(m.free_list, ((const int32_t[]){4, 3, 1, 0}), 4 * sizeof *ids);
    assert_memory_equal(m.free_ids, ((const int32_t[]){4, 5, 6, 3, 1, 0}), 6 * sizeof *ids);
    hb_slot_model_take(&m, 3, HB_SLOT_TRACK, ids);
    assert_memory_equal(ids, ((const int32_t[]){4, 5, 6}), 3 * sizeof *ids);
    assert_memory_equal(m.v2p, ((const int32_t[]){0, -1, 2, -1, 4, 3, 1}), 7 * sizeof *ids);
    assert_memory_equal(m.free_ids, ((const int32_t[]){3, 1, 0, 0, 0, 0}), 6 * sizeof *ids);
    assert_true(m.n_free == 0 && m.n_free_ids == 2 && m.kind[2] == HB_SLOT_LIVE &&
                m.kind[1] == HB_SLOT_TRACK);
    assert_int_equal(hb_slot_model_slot(&m, 5), 3);
    assert_int_equal(hb_slot_model_slot(&m, 0), 0);
    assert_int_equal(hb_slot_model_slot(&m, 1), -1);
    assert_int_equal(hb_slot_model_slot(&m, 7), -1);
    assert_int_equal(hb_slot_model_slot(&m, -1), -1);
    hb_slot_model_destroy(&m);
    model_init(&m, 0);
    assert_int_equal(hb_slot_model_slot(&m, 4), 4); /* free or not */
    assert_int_equal(hb_slot_model_slot(&m, 5), -1);
    hb_slot_model_destroy(&m);
}

static void a_move_keeps_the_id_its_cursor_and_its_generation(void **state) {
    struct hb_slot_model m;
    (void)state;
    model_init(&m, IDS);
    hb_slot_model_take(&m, 2, HB_SLOT_TRACK, NULL);
    m.write_pos[1] = 4;
    hb_slot_model_move(&m, 1);
    assert_memory_equal(m.v2p, ((const int32_t[]){0, 3, 2, -1, -1, -1, -1}), 7 * sizeof *m.v2p);
    assert_memory_equal(m.free_list, ((const int32_t[]){4, 1, 0, 0}), 4 * sizeof *m.free_list);
    assert_true(m.n_free == 2 && m.n_free_ids == 4 && m.free_ids[0] == 3);
    assert_true(m.kind[3] == HB_SLOT_TRACK && m.kind[1] == HB_SLOT_FREE && m.write_pos[3] == 4);
    assert_int_equal(m.generation[1], 1);
    hb_slot_model_move(&m, 1);
    hb_slot_model_move(&m, 1); /* and back to where it began */
    assert_int_equal(m.v2p[1], 1);
    assert_memory_equal(m.free_list, ((const int32_t[]){3, 4, 0, 0}), 4 * sizeof *m.free_list);
    hb_slot_model_destroy(&m);
}

/* L = 16, four nodes at most: a verify folds as soon as its nodes and the next one's might not fit. */
static void verifies_and_commits_move_the_ring(void **state) {
    const struct hb_config c = {.n_slots = SLOTS,
                                .req_pool_size = 3,
                                .n_virtual = IDS,
                                .ring_length = 16,
                                .ring_owner = HB_RING_COMMIT,
                                .max_draft = 4};
    struct hb_slot_model m;
    (void)state;
    assert_int_equal(hb_slot_model_init(&m, &c), HB_OK);
    hb_slot_model_take(&m, 2, HB_SLOT_LIVE, NULL);
    for (int32_t round = 0; round < 2; round++) {
        hb_slot_model_ring_verified(&m, 1); /* nothing is folded */
        assert_true(m.write_pos[1] == 4 * round && m.ring_base[1] == 0);
        hb_slot_model_ring_commit(&m, 1, m.write_pos[1], 4);
        assert_true(m.write_pos[1] == 4 + 4 * round && m.ring_flush[1] == 0);
    }
    hb_slot_model_ring_commit(&m, 1, 8, 1); /* 9 + 8 > 16 */
    assert_true(m.write_pos[1] == 9 && m.ring_flush[1] == 1);
    hb_slot_model_ring_commit(&m, 1, 4, 4); /* another commit of the verify takes that back */
    assert_true(m.write_pos[1] == 8 && m.ring_flush[1] == 0);
    hb_slot_model_ring_commit(&m, 1, 8, 3);
    hb_slot_model_ring_verified(&m, 1);
    assert_true(m.write_pos[1] == 0 && m.ring_flush[1] == 0 && m.ring_base[1] == 11);
    hb_slot_model_ring_commit(&m, 1, 0, 4);
    hb_slot_model_ring_commit(&m, 1, 4, 4);
    hb_slot_model_ring_commit(&m, 1, 8, 2);
    hb_slot_model_move(&m, 1); /* 1 -> 3 */
    assert_true(m.write_pos[3] == 10 && m.ring_flush[3] == 1 && m.ring_base[3] == 11);
    hb_slot_model_ring_verified(&m, 3);
    assert_int_equal(m.ring_base[3], 5); /* around the end */
    struct hb_slot_model copy = {0};
    m.ring_flush[3] = 1;
    assert_int_equal(hb_slot_model_copy(&copy, &m), HB_OK);
    assert_true(copy.ring_base[3] == 5 && copy.ring_flush[3] == 1 && copy.commits == 1);
    hb_slot_model_copied(&copy, 1); /* whose slot is 3 */
    assert_true(copy.ring_base[3] == 0 && copy.ring_flush[3] == 0 && copy.write_pos[3] == 0);
    hb_slot_model_ring_commit(&m, 0, 0, 4); /* the reserved slot never changes */
    m.ring_flush[0] = 1;
    hb_slot_model_ring_verified(&m, 0);
    assert_true(m.write_pos[0] == 0 && m.ring_base[0] == 0);
    hb_slot_model_destroy(&copy);
    hb_slot_model_release(&m, 1, (const int32_t[]){1});
    hb_slot_model_take(&m, 3, HB_SLOT_LIVE, NULL);
    assert_true(m.ring_base[3] == 0 && m.ring_flush[3] == 0);
    hb_slot_model_destroy(&m);
}

static void a_taken_slot_has_no_records_and_a_new_generation(void **state) {
    struct hb_slot_model m;
    int32_t ids[4];
    (void)state;
    model_init(&m, 0);
    hb_slot_model_take(&m, 4, HB_SLOT_LIVE, NULL);
    m.write_pos[2] = 3;
    hb_slot_model_release(&m, 1, (const int32_t[]){2});
    assert_int_equal(m.generation[2], 1); /* not yet somebody else's */
    hb_slot_model_take(&m, 1, HB_SLOT_LIVE, ids);
    assert_true(ids[0] == 2 && m.generation[2] == 2 && m.generation[1] == 1);
    assert_int_equal(m.write_pos[2], 0);
    hb_slot_model_destroy(&m);
}

static void a_copied_model_is_whole_and_independent(void **state) {
    struct hb_slot_model m;
    struct hb_slot_model copy = {0};
    (void)state;
    model_init(&m, 0);
    assert_int_equal(hb_slot_model_copy(&copy, &m), HB_OK);
    hb_slot_model_destroy(&m);
    model_init(&m, IDS); /* other sizes: the copy's memory is replaced */
    hb_slot_model_take(&m, 3, HB_SLOT_LIVE, NULL);
    m.write_pos[2] = 5;
    m.table[1] = 2;
    assert_int_equal(hb_slot_model_copy(&copy, &m), HB_OK);
    assert_int_equal(hb_slot_model_copy(&copy, &copy), HB_OK);
    hb_slot_model_release(&m, 1, (const int32_t[]){2});
    assert_true(copy.n_free == 1 && copy.n_free_ids == 3 && copy.ring_length == 5);
    assert_true(copy.v2p[2] == 2 && copy.free_ids[0] == 4 && copy.write_pos[2] == 5);
    assert_true(copy.generation[3] == 1 && copy.table[1] == 2 && copy.kind[2] == HB_SLOT_LIVE);
    hb_slot_model_destroy(&copy);
    hb_slot_model_destroy(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slot_operations_check_counts_kinds_and_ids),
        cmocka_unit_test(a_copy_needs_a_folded_source),
        cmocka_unit_test(a_copy_ends_what_a_verify_read),
        cmocka_unit_test(only_a_checkpoint_is_published),
        cmocka_unit_test(only_virtual_ids_move_and_only_to_a_free_slot),
        cmocka_unit_test(freed_slots_come_back_last),
        cmocka_unit_test(virtual_ids_and_slots_have_lists_of_their_own),
        cmocka_unit_test(a_move_keeps_the_id_its_cursor_and_its_generation),
        cmocka_unit_test(verifies_and_commits_move_the_ring),
        cmocka_unit_test(a_taken_slot_has_no_records_and_a_new_generation),
        cmocka_unit_test(a_copied_model_is_whole_and_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
