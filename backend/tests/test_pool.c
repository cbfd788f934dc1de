/* SPDX-License-Identifier: Apache-2.0
 * Slot life cycle (state-pool.md section 2) on the emulated device. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <limits.h>
#include <string.h>

#include "backend/adapter.h"
#include "backend/memory.h"
#include "backend/pool.h"
#include "backend/tests/fixture.h"

static struct hb_pool pool;
static struct hb_dims dims;
static struct hb_error err;

enum { MAX_BYTES = 1 << 16 };

static int setup(void **state) {
    struct hb_config c;
    (void)state;
    fixture_config(&c);
    hb_config_dims(&c, &dims);
    hb_error_clear(&err);
    assert_int_equal(hb_kernels_emu()->open(), HB_OK);
    return hb_pool_init(&pool, hb_kernels_emu(), &c, &dims, &err);
}

static int teardown(void **state) {
    (void)state;
    hb_pool_destroy(&pool);
    return hb_alloc_live() == 0 ? 0 : -1;
}

/* Everything persistent, in one block. */
static size_t dump(uint8_t *out) {
    size_t n = 0;
    const size_t slots = (size_t)pool.n_slots + 1;
    for (int32_t i = 0; i < pool.n_layers; i++) {
        (void)pool.kernels->to_host(out + n, pool.conv[i], slots * pool.conv_slot_bytes);
        n += slots * pool.conv_slot_bytes;
        (void)pool.kernels->to_host(out + n, pool.temporal[i], slots * pool.temporal_slot_bytes);
        n += slots * pool.temporal_slot_bytes;
    }
    memcpy(out + n, pool.slot_kind, slots * sizeof(int32_t));
    n += slots * sizeof(int32_t);
    memcpy(out + n, pool.free_list, (slots - 1) * sizeof(int32_t));
    n += (slots - 1) * sizeof(int32_t);
    memcpy(out + n, pool.n_free, sizeof(int32_t));
    n += sizeof(int32_t);
    memcpy(out + n, pool.req_to_slot, (size_t)pool.req_pool_size * sizeof(int32_t));
    return n + (size_t)pool.req_pool_size * sizeof(int32_t);
}

static uint8_t before[MAX_BYTES], after[MAX_BYTES];

static void check_refused(int32_t status, int32_t rule, int32_t row, int64_t value, int64_t limit) {
    assert_int_equal(status, hb_rule_status(rule));
    assert_int_equal(err.rule, rule);
    assert_int_equal(err.row, row);
    assert_true(err.value == value && err.limit == limit);
    const size_t n = dump(after);
    assert_memory_equal(before, after, n);
    hb_error_clear(&err);
}

/* Fills slot of layer i with a byte pattern. */
static void paint(int32_t i, int32_t slot, uint8_t byte) {
    const uint64_t s = (uint64_t)slot;
    (void)pool.kernels->fill((char *)pool.conv[i] + s * pool.conv_slot_bytes, byte,
                             pool.conv_slot_bytes);
    (void)pool.kernels->fill((char *)pool.temporal[i] + s * pool.temporal_slot_bytes, byte,
                             pool.temporal_slot_bytes);
}

static void check_paint(int32_t i, int32_t slot, uint8_t byte) {
    uint8_t bytes[4096];
    const uint64_t s = (uint64_t)slot;
    (void)pool.kernels->to_host(bytes, (char *)pool.conv[i] + s * pool.conv_slot_bytes,
                                pool.conv_slot_bytes);
    for (uint64_t b = 0; b < pool.conv_slot_bytes; b++) {
        assert_int_equal(bytes[b], byte);
    }
    (void)pool.kernels->to_host(bytes, (char *)pool.temporal[i] + s * pool.temporal_slot_bytes,
                                pool.temporal_slot_bytes);
    for (uint64_t b = 0; b < pool.temporal_slot_bytes; b++) {
        assert_int_equal(bytes[b], byte);
    }
}

static void pool_starts_free_and_zero(void **state) {
    (void)state;
    assert_int_equal(pool.n_layers, 2);
    assert_int_equal(*pool.n_free, SLOTS);
    assert_int_equal(pool.slot_kind[0], HB_SLOT_RESERVED);
    for (int32_t s = 0; s <= SLOTS; s++) {
        check_paint(0, s, 0);
        check_paint(1, s, 0);
    }
    for (int32_t i = 0; i < SLOTS; i++) {
        assert_int_equal(pool.free_list[i], i + 1);
        assert_int_equal(pool.slot_kind[i + 1], HB_SLOT_FREE);
    }
}

static void pool_takes_in_order_and_frees_to_the_end(void **state) {
    (void)state;
    int32_t ids[SLOTS] = {0};
    assert_int_equal(hb_pool_take(&pool, 3, HB_SLOT_LIVE, ids, &err), HB_OK);
    assert_true(ids[0] == 1 && ids[1] == 2 && ids[2] == 3);
    const int32_t back[] = {3, 1};
    assert_int_equal(hb_pool_free(&pool, 2, back, &err), HB_OK);
    assert_int_equal(*pool.n_free, SLOTS - 1);
    assert_int_equal(hb_pool_take(&pool, SLOTS - 1, HB_SLOT_TRACK, ids, &err), HB_OK);
    assert_int_equal(ids[0], 4);
    assert_int_equal(ids[SLOTS - 3], 3);
    assert_int_equal(ids[SLOTS - 2], 1);
    assert_int_equal(pool.slot_kind[2], HB_SLOT_LIVE);
    assert_int_equal(pool.slot_kind[1], HB_SLOT_TRACK);
    assert_int_equal(*pool.n_free, 0);
    for (int32_t i = 0; i < SLOTS; i++) {
        assert_int_equal(pool.free_list[i], 0); /* unused entries */
    }
}

static void pool_take_zeroes_every_layer_and_only_the_taken(void **state) {
    (void)state;
    int32_t ids[2];
    for (int32_t s = 0; s <= SLOTS; s++) {
        paint(0, s, 0xa5);
        paint(1, s, 0x5a);
    }
    assert_int_equal(hb_pool_take(&pool, 2, HB_SLOT_LIVE, ids, &err), HB_OK);
    for (int32_t s = 0; s <= SLOTS; s++) {
        const int taken = s == 1 || s == 2;
        check_paint(0, s, taken ? 0 : 0xa5);
        check_paint(1, s, taken ? 0 : 0x5a);
    }
    assert_int_equal(hb_pool_free(&pool, 1, ids, &err), HB_OK); /* bytes untouched */
    check_paint(0, 1, 0);
}

static void pool_take_rules(void **state) {
    (void)state;
    int32_t ids[SLOTS] = {-9};
    dump(before);
    check_refused(hb_pool_take(&pool, -1, 99, ids, &err), HB_RULE_TAKE_NEGATIVE, -1, -1, 0);
    check_refused(hb_pool_take(&pool, INT_MIN, 1, ids, &err), HB_RULE_TAKE_NEGATIVE, -1, INT_MIN,
                  0);
    check_refused(hb_pool_take(&pool, SLOTS + 1, 99, ids, &err), HB_RULE_TAKE_EXHAUSTED, -1,
                  SLOTS + 1, SLOTS);
    const int32_t kinds[] = {HB_SLOT_FREE, HB_SLOT_TREE, HB_SLOT_RESERVED, -1, 5};
    for (size_t i = 0; i < 5; i++) {
        check_refused(hb_pool_take(&pool, 0, kinds[i], ids, &err), HB_RULE_TAKE_KIND, -1, kinds[i],
                      0);
    }
    assert_int_equal(ids[0], -9);
    assert_int_equal(hb_pool_take(&pool, 1, HB_SLOT_LIVE, NULL, &err), HB_ERR_NULL);
    hb_error_clear(&err);
    assert_int_equal(hb_pool_take(&pool, 0, HB_SLOT_LIVE, NULL, &err), HB_OK);
}

static void pool_free_rules(void **state) {
    (void)state;
    int32_t ids[3];
    assert_int_equal(hb_pool_take(&pool, 3, HB_SLOT_LIVE, ids, &err), HB_OK);
    dump(before);
    check_refused(hb_pool_free(&pool, 3, (const int32_t[]){1, 0, 9}, &err), HB_RULE_OP_SLOT_RANGE,
                  1, 0, SLOTS);
    check_refused(hb_pool_free(&pool, 3, (const int32_t[]){9, 1, INT_MAX}, &err),
                  HB_RULE_OP_SLOT_RANGE, 2, INT_MAX, SLOTS);
    check_refused(hb_pool_free(&pool, 3, (const int32_t[]){1, 1, 9}, &err), HB_RULE_OP_SLOT_FREED,
                  2, 9, 0);
    check_refused(hb_pool_free(&pool, 3, (const int32_t[]){1, 2, 1}, &err),
                  HB_RULE_OP_SLOT_DUPLICATE, 2, 1, 0);
    assert_int_equal(hb_pool_free(&pool, 0, NULL, &err), HB_OK);
    assert_int_equal(hb_pool_free(&pool, -4, NULL, &err), HB_OK);
    assert_int_equal(hb_pool_free(&pool, 1, NULL, &err), HB_ERR_NULL);
    hb_error_clear(&err);
    assert_int_equal(hb_pool_free(&pool, 3, ids, &err), HB_OK);
    dump(before);
    check_refused(hb_pool_free(&pool, 1, ids, &err), HB_RULE_OP_SLOT_FREED, 0, 1,
                  0); /* double free */
}

static void pool_free_of_more_ids_than_slots_is_a_duplicate(void **state) {
    (void)state;
    int32_t ids[SLOTS + 4];
    assert_int_equal(hb_pool_take(&pool, SLOTS, HB_SLOT_LIVE, ids, &err), HB_OK);
    for (int32_t i = 0; i < 4; i++) {
        ids[SLOTS + i] = 7;
    }
    dump(before);
    check_refused(hb_pool_free(&pool, SLOTS + 4, ids, &err), HB_RULE_OP_SLOT_DUPLICATE, SLOTS, 7,
                  0);
}

static void pool_copy_and_its_rules(void **state) {
    (void)state;
    int32_t ids[2];
    assert_int_equal(hb_pool_take(&pool, 2, HB_SLOT_LIVE, ids, &err), HB_OK);
    paint(0, 1, 0x11);
    paint(1, 1, 0x22);
    paint(0, 3, 0x77);
    assert_int_equal(hb_pool_copy(&pool, 1, 2, &err), HB_OK);
    check_paint(0, 2, 0x11);
    check_paint(1, 2, 0x22);
    check_paint(0, 1, 0x11);
    check_paint(0, 3, 0x77);
    check_paint(0, 0, 0);
    dump(before);
    check_refused(hb_pool_copy(&pool, 0, 99, &err), HB_RULE_OP_SLOT_RANGE, 0, 0, SLOTS);
    check_refused(hb_pool_copy(&pool, 5, -1, &err), HB_RULE_OP_SLOT_RANGE, 1, -1, SLOTS);
    check_refused(hb_pool_copy(&pool, 5, 6, &err), HB_RULE_OP_SLOT_FREED, 0, 5, 0);
    check_refused(hb_pool_copy(&pool, 1, 6, &err), HB_RULE_OP_SLOT_FREED, 1, 6, 0);
    check_refused(hb_pool_copy(&pool, 5, 5, &err), HB_RULE_OP_SLOT_FREED, 0, 5, 0);
    check_refused(hb_pool_copy(&pool, 2, 2, &err), HB_RULE_COPY_ALIAS, -1, 2, 0);
}

static void pool_table_takes_any_value(void **state) {
    (void)state;
    assert_int_equal(hb_pool_table_set(&pool, REQS - 1, INT_MIN, &err), HB_OK);
    assert_int_equal(pool.req_to_slot[REQS - 1], INT_MIN);
    dump(before);
    check_refused(hb_pool_table_set(&pool, REQS, 1, &err), HB_RULE_TABLE_RANGE, -1, REQS, REQS - 1);
    check_refused(hb_pool_table_set(&pool, -1, 1, &err), HB_RULE_TABLE_RANGE, -1, -1, REQS - 1);
}

static void pool_survives_raw_writes_to_its_tables(void **state) {
    (void)state;
    int32_t ids[SLOTS];
    pool.free_list[0] = 1 << 20;
    assert_int_equal(hb_pool_take(&pool, 1, HB_SLOT_LIVE, ids, &err), HB_ERR_STATE);
    hb_error_clear(&err);
    pool.free_list[0] = 1;
    *pool.n_free = INT_MAX;
    assert_int_equal(hb_pool_take(&pool, SLOTS + 1, HB_SLOT_LIVE, ids, &err), HB_ERR_CAPACITY);
    hb_error_clear(&err);
    pool.slot_kind[4] = HB_SLOT_LIVE;
    assert_int_equal(hb_pool_free(&pool, 1, (const int32_t[]){4}, &err), HB_ERR_STATE);
    hb_error_clear(&err);
    *pool.n_free = -7;
    assert_int_equal(hb_pool_take(&pool, 1, HB_SLOT_LIVE, ids, &err), HB_ERR_CAPACITY);
}

static void pool_sequences_keep_free_and_used_disjoint(void **state) {
    (void)state;
    uint32_t seed = 7;
    for (int step = 0; step < 400; step++) {
        seed = seed * 1664525U + 1013904223U;
        int32_t ids[4];
        const int32_t n = (int32_t)(seed >> 28) % 4 + 1;
        if ((seed >> 20) % 2 == 0) {
            (void)hb_pool_take(&pool, n, HB_SLOT_LIVE + (int32_t)(seed >> 16) % 2, ids, &err);
        } else {
            ids[0] = (int32_t)(seed >> 8) % SLOTS + 1;
            (void)hb_pool_free(&pool, 1, ids, &err);
        }
        hb_error_clear(&err);
        int32_t seen[SLOTS + 1] = {0};
        for (int32_t i = 0; i < *pool.n_free; i++) {
            seen[pool.free_list[i]]++;
        }
        for (int32_t s = 1; s <= SLOTS; s++) {
            assert_int_equal(seen[s], pool.slot_kind[s] == HB_SLOT_FREE);
        }
    }
}

int main(void) {
#define POOL_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        POOL_TEST(pool_starts_free_and_zero),
        POOL_TEST(pool_takes_in_order_and_frees_to_the_end),
        POOL_TEST(pool_take_zeroes_every_layer_and_only_the_taken),
        POOL_TEST(pool_take_rules),
        POOL_TEST(pool_free_rules),
        POOL_TEST(pool_free_of_more_ids_than_slots_is_a_duplicate),
        POOL_TEST(pool_copy_and_its_rules),
        POOL_TEST(pool_table_takes_any_value),
        POOL_TEST(pool_survives_raw_writes_to_its_tables),
        POOL_TEST(pool_sequences_keep_free_and_used_disjoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
