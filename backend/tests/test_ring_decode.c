/* SPDX-License-Identifier: Apache-2.0
 * The replay ring through the adapter (speculative.md section 7): the worked example, folds by mask
 * and by length, cursors, the rules 114, 116 and 159. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "backend/tests/spec_world.h"

enum { RING = 4, INTERVAL = 6 };

static int32_t track_by_layer;
static int32_t other_layouts; /* states [H, N, P], heads of the groups in turn, windows of K columns */

static void ring_config(struct hb_config *c) {
    c->track_by_layer = track_by_layer;
    c->ring_length = RING;
    c->track_interval = INTERVAL;
    c->pool_pad = 5;
    c->state_layout = c->head_map = c->conv_state_len = other_layouts;
}

static void open_ring(int32_t act_dtype, int32_t form, int32_t order, int32_t defect) {
    world_config = ring_config;
    open_requests(act_dtype, form, order, defect);
}

static int32_t cursor(int32_t req) {
    return table_at("write_pos", w.slot[req]);
}

static size_t dump_temporal(uint8_t *out) {
    return dump_named("temporal", out);
}

/* A decode whose padding rows have the length 1 in the mirror. */
static int32_t decode(int32_t n, const struct row *rows, int32_t pad, int32_t has_cpu) {
    make_batch(HB_MODE_DECODE, n, rows, pad, pad);
    for (int32_t r = n; r < n + pad; r++) {
        w.f.seq[r] = 1;
    }
    if (has_cpu) {
        w.f.batch.seq_lens_cpu = (struct hb_i32s){w.f.seq, n + pad};
    }
    return run_batch(n, rows);
}

static void ring_worked_example(void **state) {
    static const int32_t want[] = {0, 1, 2, 0, 1, 2, 3, 0, 1};
    static const int32_t flushes[] = {0, 0, 1, 0, 0, 0, 1, 0, 1}; /* after 12, 16, 18 */
    static const struct row row = {R0, 0, 0, 0};
    (void)state;
    for (int32_t i = 0; i < 2 * HB_N_FORMS * HB_N_ORDERS; i++) {
        other_layouts = i / 4 % 2;
        open_ring(i % HB_N_FLOAT_DTYPES, i / 2 % 2, i / 4, 0);
        other_layouts = 0;
        assert_int_equal(forward(HB_MODE_EXTEND, 1, (const struct row[]){{R0, 4, 0, 0}}, 0, 0), 0);
        assert_int_equal(w.pos[R0], 9);
        for (int32_t seq_len = 10; seq_len <= 18; seq_len++) {
            const int32_t k = seq_len - 10;
            const size_t n = dump_temporal(dump_a);
            assert_int_equal(cursor(R0), want[k]);
            assert_int_equal(decode(1, &row, k % 3, 1), 0);
            assert_int_equal(w.pos[R0], seq_len);
            assert_int_equal(dump_temporal(dump_b), n);
            assert_int_equal(memcmp(dump_a, dump_b, n) != 0, flushes[k]);
            assert_int_equal(state_is(w.slot[R0], R0, seq_len), flushes[k]);
        }
        assert_int_equal(cursor(R0), 0);
        assert_int_equal(cursor(R1), 0);
        close_world();
    }
}

static void ring_without_lengths_folds_when_full(void **state) {
    static const struct row rows[] = {{R1, 0, 0, 0}, {R0, 0, 0, 0}};
    (void)state;
    open_ring(HB_BF16, HB_FORM_FAST, HB_ORDER_RANDOM, 0);
    for (int32_t k = 0; k < 3 * RING; k++) {
        assert_int_equal(cursor(R0), k % RING);
        assert_int_equal(cursor(R1), k % RING);
        assert_int_equal(decode(2, rows, k % 2, 0), 0);
        assert_int_equal(state_is(w.slot[R0], R0, w.pos[R0]), k % RING == RING - 1);
    }
    close_world();
}

static void ring_mask_folds_and_tracks(void **state) {
    (void)state;
    for (track_by_layer = 0; track_by_layer < 2; track_by_layer++) {
        open_ring(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
        const int32_t dst = take_track();
        const struct row plain[] = {{R0, 0, 0, 0}, {R1, 0, 0, 0}};
        const struct row tracked[] = {{R0, 0, dst, 0}, {R1, 0, 0, 0}};
        assert_int_equal(decode(2, plain, 0, 0), 0);
        assert_int_equal(decode(2, tracked, 1, 0), 0);
        assert_true(state_is(dst, R0, w.pos[R0]));
        assert_true(state_is(w.slot[R0], R0, w.pos[R0]));
        assert_false(state_is(w.slot[R1], R1, w.pos[R1]));
        assert_int_equal(cursor(R0), 0);
        assert_int_equal(cursor(R1), 2);
        assert_int_equal(table_at("write_pos", dst), 0);
        close_world();
    }
    track_by_layer = 0;
}

static void ring_begin_moves_no_cursor(void **state) {
    static const struct row row = {R0, 0, 0, 0};
    (void)state;
    open_ring(HB_FP32, HB_FORM_FAST, HB_ORDER_ASCENDING, 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    make_batch(HB_MODE_DECODE, 1, &row, 2, 2);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    assert_int_equal(decode(1, &row, 0, 0), 0);
    assert_int_equal(cursor(R0), 1);
    close_world();
}

static void ring_dummy_rows_never_advance(void **state) {
    static const struct row rows[] = {{R0, 0, 0, 0}, {R1, 0, 0, 0}};
    (void)state;
    open_ring(HB_FP32, HB_FORM_V0, HB_ORDER_DESCENDING, 0);
    for (int32_t r = 0; r < 2; r++) {
        assert_int_equal(w.a->table_set(w.h, R0 - r, 0, &w.err), HB_OK);
    }
    for (int32_t k = 0; k < 2; k++) {
        make_batch(HB_MODE_DECODE, 2, rows, 0, 0);
        w.f.batch.is_dummy = 1;
        (void)run_batch(2, rows);
        for (int32_t slot = 0; slot <= SLOTS; slot++) {
            assert_int_equal(table_at("write_pos", slot), 0);
        }
    }
    close_world();
}

static void ring_other_modes_need_a_folded_ring(void **state) {
    static const struct row row = {R0, 0, 0, 0};
    static const struct row extend[] = {{R1, 2, 0, 0}, {R0, 3, 0, 0}};
    static const struct row mixed[] = {{R1, 2, 0, 0}, {R0, 0, 0, 0}};
    (void)state;
    open_ring(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    assert_int_equal(decode(1, &row, 0, 0), 0);
    assert_int_equal(decode(1, &row, 0, 0), 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    for (int32_t i = 0; i < 3; i++) {
        if (i < 2) {
            make_batch(i == 0 ? HB_MODE_EXTEND : HB_MODE_MIXED, 2, i == 0 ? extend : mixed, 0, 0);
        } else {
            make_chains(DRAFT, NULL, 0);
        }
        check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_RING_PENDING, i < 2);
        assert_true(w.err.value == w.slot[R0] && w.err.limit == 2);
    }
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    assert_int_equal(decode(1, &row, 0, 0), 0);
    assert_int_equal(decode(1, &row, 0, 0), 0); /* full: folded */
    assert_int_equal(forward(HB_MODE_MIXED, 2, mixed, 0, 0), 0);
    assert_int_equal(forward(HB_MODE_EXTEND, 2, extend, 0, 0), 0);
    make_chains(DRAFT, NULL, 0);
    assert_int_equal(verify(), 0);
    commit_ok(plan_of(2, 1, 1, 0), 0);
    assert_int_equal(cursor(R0), 0);
    close_world();
}

static void ring_needs_every_linear_layer(void **state) {
    static const struct row row = {R0, 0, 0, 0};
    (void)state;
    open_ring(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    struct io io;
    make_batch(HB_MODE_DECODE, 1, &row, 0, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    check_error(w.a->finish(w.h, &w.err), HB_RULE_RING_LAYERS, -1);
    assert_int_equal(w.err.value, 0);
    make_io(&io, 0, 1, &row);
    assert_int_equal(w.a->layer(w.h, 0, &io.io, &w.err), HB_OK);
    const size_t n = dump(dump_a, sizeof(dump_a));
    check_error(w.a->finish(w.h, &w.err), HB_RULE_RING_LAYERS, -1);
    assert_int_equal(w.err.value, 2);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    assert_int_equal(w.a->layer(w.h, 2, &io.io, &w.err), HB_OK); /* attention may stay out */
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    assert_int_equal(cursor(R0), 1);
    free_io(&io);
    /* other modes may leave layers out */
    make_batch(HB_MODE_EXTEND, 1, (const struct row[]){{R1, 2, 0, 0}}, 0, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    close_world();
}

static void ring_copies_need_a_folded_source(void **state) {
    static const struct row row = {R0, 0, 0, 0};
    (void)state;
    open_ring(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    assert_int_equal(decode(1, &row, 0, 0), 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    check_error(w.a->slot_copy(w.h, w.slot[R0], w.slot[R1], &w.err), HB_RULE_COPY_RING, -1);
    assert_int_equal(w.err.value, 1);
    assert_string_equal(w.err.text, "copy_from requires a fully-flushed ReplaySSM source "
                                    "(write_pos==0), got 1");
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    assert_int_equal(w.a->slot_copy(w.h, w.slot[R1], w.slot[R0], &w.err), HB_OK);
    assert_int_equal(cursor(R0), 0);
    assert_true(state_is(w.slot[R0], R1, 2));
    close_world();
}

static void ring_of_a_new_owner_starts_empty(void **state) {
    static const struct row row = {R0, 0, 0, 0};
    (void)state;
    open_ring(HB_FP32, HB_FORM_FAST, HB_ORDER_ASCENDING, 0);
    const int32_t slot = w.slot[R0];
    for (int32_t k = 0; k < 3; k++) {
        assert_int_equal(decode(1, &row, 0, 0), 0);
    }
    assert_int_equal(w.a->slot_free(w.h, 1, &slot, &w.err), HB_OK);
    assert_int_equal(table_at("write_pos", slot), 3); /* bytes stay */
    do {
        take(R0);
    } while (w.slot[R0] != slot);
    assert_int_equal(cursor(R0), 0);
    for (int32_t l = 0; l < LAYERS; l += 2) { /* stale records are not read */
        fill_region("ring_x", l, 0xff);
        fill_region("ring_b", l, 0xff);
        fill_region("ring_g", l, 0xff);
    }
    for (int32_t k = 0; k < 2 * RING; k++) {
        assert_int_equal(decode(1, &row, 0, 0), 0);
    }
    assert_true(state_is(slot, R0, 2 * RING));
    close_world();
}

static void ring_regions(void **state) {
    (void)state;
    open_ring(HB_BF16, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    const struct {
        const char *name;
        int64_t shape[4];
    } want[] = {{"ring_x", {SLOTS + 1, H, RING, P}},
                {"ring_b", {SLOTS + 1, G, RING, N}},
                {"ring_g", {SLOTS + 1, H, RING, 0}}};
    for (int32_t i = 0; i < 3; i++) {
        struct hb_region info = {0};
        int32_t at = 0;
        region_at(want[i].name, 2, &at, &info);
        assert_int_equal(info.dtype, HB_FP32);
        assert_int_equal(info.kind, HB_REGION_CURSOR);
        assert_memory_equal(info.shape, want[i].shape, (size_t)info.n_dims * sizeof(int64_t));
    }
    close_world();
}

#ifdef HB_DEFECTS
static void ring_no_force_defect_is_seen(void **state) {
    (void)state;
    open_ring(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, HB_DEFECT_RING_NO_FORCE);
    const int32_t dst = take_track();
    assert_int_equal(decode(1, (const struct row[]){{R0, 0, dst, 0}}, 0, 0), 0);
    assert_false(state_is(dst, R0, w.pos[R0]));
    assert_int_equal(cursor(R0), 1);
    close_world();
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_worked_example),
        cmocka_unit_test(ring_without_lengths_folds_when_full),
        cmocka_unit_test(ring_mask_folds_and_tracks),
        cmocka_unit_test(ring_begin_moves_no_cursor),
        cmocka_unit_test(ring_dummy_rows_never_advance),
        cmocka_unit_test(ring_other_modes_need_a_folded_ring),
        cmocka_unit_test(ring_needs_every_linear_layer),
        cmocka_unit_test(ring_copies_need_a_folded_source),
        cmocka_unit_test(ring_of_a_new_owner_starts_empty),
        cmocka_unit_test(ring_regions),
#ifdef HB_DEFECTS
        cmocka_unit_test(ring_no_force_defect_is_seen),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
