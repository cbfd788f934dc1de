/* SPDX-License-Identifier: Apache-2.0
 * Whole forwards through the adapter against the reference of world.h: outputs, states,
 * checkpoints, untouched bytes. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "backend/tests/world.h"

/* A history over all modes; returns wrong outputs plus wrong states. */
static int32_t history(void) {
    int32_t wrong = 0;
    for (int32_t req = 1; req <= 4; req++) {
        take(req);
    }
    const int32_t track = take_track();
    const int32_t track2 = take_track();
    wrong += forward(HB_MODE_EXTEND, 3,
                     (const struct row[]){{2, 11, track, 9}, {1, 2, 0, 0}, {3, 5, 0, 0}}, 2, 3);
    wrong += !state_is(track, 2, 8);
    wrong += !state_is(w.slot[2], 2, 11);
    wrong += !state_is(w.slot[1], 1, 2);
    /* short continuation, mask present but false for it */
    wrong += forward(HB_MODE_SPLIT_PREFILL, 2, (const struct row[]){{1, 1, 0, 0}, {2, 9, track, 8}},
                     0, 0);
    wrong += !state_is(track, 2, 19);
    wrong += forward(HB_MODE_MIXED, 3,
                     (const struct row[]){{4, 6, 0, 0}, {3, 0, 0, 0}, {1, 0, 0, 0}}, 1, 1);
    wrong += forward(HB_MODE_DECODE, 3,
                     (const struct row[]){{3, 0, 0, 0}, {2, 0, track2, 0}, {1, 0, 0, 0}}, 2, 4);
    wrong += !state_is(track2, 2, 21);
    wrong += !state_is(track, 2, 19);
    wrong += forward(HB_MODE_DLLM_EXTEND, 1, (const struct row[]){{4, 8, track, 8}}, 0, 0);
    wrong += !state_is(track, 4, 14);
    for (int32_t req = 1; req <= 4; req++) {
        wrong += !state_is(w.slot[req], req, w.pos[req]);
    }
    /* restart request 2 from its checkpoint at 21, on a new slot */
    const int32_t old = w.slot[2];
    take(2);
    assert_int_not_equal(old, w.slot[2]);
    assert_int_equal(w.a->slot_copy(w.h, track2, w.slot[2], &w.err), HB_OK);
    w.pos[2] = 21;
    wrong += forward(HB_MODE_EXTEND, 1, (const struct row[]){{2, 5, 0, 0}}, 0, 0);
    wrong += !state_is(w.slot[2], 2, 26);
    return wrong;
}

static void hybrid_history_is_exact_in_every_build(void **state) {
    (void)state;
    for (int32_t dtype = 0; dtype < HB_N_FLOAT_DTYPES; dtype++) {
        for (int32_t form = 0; form < HB_N_FORMS; form++) {
            for (int32_t order = 0; order < HB_N_ORDERS; order++) {
                open_world(dtype, form, order, 0);
                assert_int_equal(history(), 0);
                assert_true(w.a->launches(w.h) > 0);
                close_world();
            }
        }
    }
}

static void inclusive_window(struct hb_config *c) {
    c->attn_window = 3;
    c->window_rule = HB_WINDOW_INCLUSIVE;
}

static void exclusive_window(struct hb_config *c) {
    c->attn_window = 3;
    c->window_rule = HB_WINDOW_EXCLUSIVE;
    c->attn_softcap = 2.0F; /* scores are zero here */
}

/* Prefill, decode and mixed rows see the last keys of their request only. */
static void hybrid_history_with_sliding_windows(void **state) {
    (void)state;
    void (*const variants[])(struct hb_config *) = {inclusive_window, exclusive_window};
    for (int32_t i = 0; i < 2; i++) {
        world_config = variants[i];
        for (int32_t dtype = 0; dtype < HB_N_FLOAT_DTYPES; dtype++) {
            open_world(dtype, dtype % 2, HB_ORDER_RANDOM, 0);
            assert_int_equal(history(), 0);
            close_world();
        }
    }
    world_config = NULL;
}

static void hybrid_host_defects_are_seen(void **state) {
    (void)state;
    const int32_t defects[] = {HB_DEFECT_INIT_STATE_MASK, HB_DEFECT_TRACK_POSITION};
    for (size_t i = 0; i < 2; i++) {
        open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, defects[i]);
        const int32_t wrong = history();
        assert_int_equal(wrong > 0, HB_DEFECT(defects[i], INIT_STATE_MASK) ||
                                        HB_DEFECT(defects[i], TRACK_POSITION));
        close_world();
    }
}

static void hybrid_other_slots_keep_their_bytes(void **state) {
    (void)state;
    open_world(HB_FP32, HB_FORM_FAST, HB_ORDER_RANDOM, 0);
    take(1);
    take(3);
    struct hb_region info;
    int32_t i = 0;
    region_at("temporal", 0, &i, &info);
    enum { STATE_BYTES = sizeof(float) * H * P * N };
    uint8_t pool_before[(SLOTS + 1) * STATE_BYTES], pool_after[(SLOTS + 1) * STATE_BYTES];
    (void)forward(HB_MODE_EXTEND, 1, (const struct row[]){{3, 9, 0, 0}}, 0, 0);
    assert_int_equal(w.a->region_read(w.h, i, 0, pool_before, sizeof(pool_before), &w.err), HB_OK);
    (void)forward(HB_MODE_EXTEND, 1, (const struct row[]){{1, 9, 0, 0}}, 2, 2);
    assert_int_equal(w.a->region_read(w.h, i, 0, pool_after, sizeof(pool_after), &w.err), HB_OK);
    for (int32_t s = 0; s <= SLOTS; s++) {
        const int same = memcmp(pool_before + (size_t)s * STATE_BYTES,
                                pool_after + (size_t)s * STATE_BYTES, STATE_BYTES) == 0;
        assert_int_equal(same, s != w.slot[1]);
    }
    close_world();
}

static void hybrid_idle_writes_zero_and_no_state(void **state) {
    (void)state;
    open_world(HB_BF16, HB_FORM_FAST, HB_ORDER_ASCENDING, 0);
    take(1);
    (void)forward(HB_MODE_EXTEND, 1, (const struct row[]){{1, 5, 0, 0}}, 0, 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    assert_int_equal(forward(HB_MODE_IDLE, 0, NULL, 3, 4), 0);
    assert_int_equal(forward(HB_MODE_IDLE, 0, NULL, 0, 0), 0);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    close_world();
}

static void hybrid_begin_twice_is_begin_once(void **state) {
    (void)state;
    open_world(HB_FP32, HB_FORM_FAST, HB_ORDER_ASCENDING, 0);
    take(1);
    const int32_t track = take_track();
    const struct row rows[] = {{1, 9, track, 8}};
    make_batch(HB_MODE_EXTEND, 1, rows, 0, 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    assert_int_equal(forward(HB_MODE_EXTEND, 1, rows, 0, 0), 0);
    assert_true(state_is(track, 1, 8));
    close_world();
}

/* Only layers that ran are copied by decode tracking. */
static void hybrid_decode_tracking_copies_layers_that_ran(void **state) {
    (void)state;
    struct io io;
    float before[H * P * N], after[H * P * N];
    open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    take(1);
    const int32_t track = take_track();
    (void)forward(HB_MODE_EXTEND, 1, (const struct row[]){{1, 5, 0, 0}}, 0, 0);
    const struct row rows[] = {{1, 0, track, 0}};
    make_batch(HB_MODE_DECODE, 1, rows, 0, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    make_io(&io, 2, 1, rows);
    assert_int_equal(w.a->layer(w.h, 2, &io.io, &w.err), HB_OK);
    free_io(&io);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    for (int32_t l = 0; l < LAYERS; l += 2) {
        struct hb_region info;
        int32_t i = 0;
        region_at("temporal", l, &i, &info);
        (void)w.a->region_read(w.h, i, (uint64_t)w.slot[1] * sizeof(before), before, sizeof(before),
                               &w.err);
        (void)w.a->region_read(w.h, i, (uint64_t)track * sizeof(after), after, sizeof(after),
                               &w.err);
        const struct ref zero = {0};
        assert_memory_equal(after, l == 2 ? before : (const float *)zero.state, sizeof(after));
    }
    close_world();
}

static void hybrid_dummy_rows_share_slot_zero(void **state) {
    (void)state;
    open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    const struct row rows[] = {{5, 0, 0, 0}, {6, 0, 0, 0}};
    take(1);
    (void)forward(HB_MODE_EXTEND, 1, (const struct row[]){{1, 5, 0, 0}}, 0, 0);
    make_batch(HB_MODE_DECODE, 2, rows, 0, 0);
    w.f.batch.is_dummy = 1;
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    struct io io;
    make_io(&io, 0, 2, rows);
    assert_int_equal(w.a->layer(w.h, 0, &io.io, &w.err), HB_OK);
    free_io(&io);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    assert_true(state_is(w.slot[1], 1, 5));
    close_world();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hybrid_history_is_exact_in_every_build),
        cmocka_unit_test(hybrid_history_with_sliding_windows),
        cmocka_unit_test(hybrid_host_defects_are_seen),
        cmocka_unit_test(hybrid_other_slots_keep_their_bytes),
        cmocka_unit_test(hybrid_idle_writes_zero_and_no_state),
        cmocka_unit_test(hybrid_begin_twice_is_begin_once),
        cmocka_unit_test(hybrid_decode_tracking_copies_layers_that_ran),
        cmocka_unit_test(hybrid_dummy_rows_share_slot_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
