/* SPDX-License-Identifier: Apache-2.0
 * Layouts and variants that change no value: strips of windows against dense windows (state-pool.md
 * section 4), pads between slots (section 1), tracking by layer (tracking.md section 5). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "backend/tests/spec_world.h"

enum { PAD_ELEMENTS = 3, PAD_BYTE = 0x5a };

static struct {
    int32_t layout, pad, by_layer;
    int32_t state_layout, head_map, conv_state_len;
} variant;

static void variant_config(struct hb_config *c) {
    c->window_layout = variant.layout;
    c->pool_pad = variant.pad;
    c->track_by_layer = variant.by_layer;
    c->state_layout = variant.state_layout;
    c->head_map = variant.head_map;
    c->conv_state_len = variant.conv_state_len;
}

static void open_variant(int32_t layout, int32_t pad, int32_t by_layer, int32_t i) {
    variant.layout = layout;
    variant.pad = pad;
    variant.by_layer = by_layer;
    world_config = variant_config;
    open_requests(i % 2, i / 2 % 2, i / 4 % 3, 0);
    for (int32_t l = 0; l < LAYERS && pad > 0; l += 2) {
        fill_region("conv_pad", l, PAD_BYTE);
        fill_region("temporal_pad", l, PAD_BYTE);
    }
}

static void check_pads(void) {
    static uint8_t bytes[MAX_REGION];
    const char *const names[] = {"conv_pad", "temporal_pad"};
    for (int32_t i = 0; i < 4; i++) {
        struct hb_region info = {0};
        int32_t at = 0;
        region_at(names[i % 2], i / 2 * 2, &at, &info);
        assert_int_equal(info.shape[0], SLOTS + 1);
        assert_int_equal(info.shape[1], PAD_ELEMENTS);
        assert_int_equal(w.a->region_read(w.h, at, 0, bytes, info.bytes, &w.err), HB_OK);
        for (uint64_t b = 0; b < info.bytes; b++) {
            assert_int_equal(bytes[b], PAD_BYTE);
        }
    }
}

static uint32_t seed;

static int32_t draw(int32_t n) {
    seed = seed * 1664525U + 1013904223U;
    return (int32_t)((seed >> 8) % (uint32_t)n);
}

/* Forwards, verifies and commits drawn from the seed; the same ones for each variant. */
static void run_history(uint32_t from) {
    seed = from;
    const int32_t dst = take_track();
    for (int32_t round = 0; round < 3; round++) {
        const int32_t nodes[] = {1 + draw(DRAFT), 1 + draw(DRAFT)};
        const int32_t is_ragged = draw(2);
        memset(w.f.mask, 0, sizeof(w.f.mask));
        make_chains(DRAFT, is_ragged ? nodes : NULL, draw(2));
        assert_int_equal(verify(), 0);
        struct plan p = plan_of(2, 0, 0, 0);
        for (int32_t r = 0; r < 2; r++) {
            p.step[r] = draw((is_ragged ? nodes[r] : DRAFT) + 1) - 1;
        }
        p.track_step[1] = draw(is_ragged ? nodes[1] : DRAFT);
        p.track[1] = dst;
        commit_ok(p, 1);
        for (int32_t r = 0; r < 2; r++) {
            w.pos[R0 - r] += p.step[r] + 1;
            assert_true(state_is(w.slot[R0 - r], R0 - r, w.pos[R0 - r]));
        }
        const int32_t pos = w.pos[R0];
        assert_int_equal(forward(HB_MODE_DECODE, 2,
                                 (const struct row[]){{R0, 0, dst, 0}, {R1, 0, 0, 0}}, draw(2), 0),
                         0);
        assert_true(state_is(dst, R0, pos + 1));
        assert_int_equal(forward(HB_MODE_MIXED, 2,
                                 (const struct row[]){{R1, 5, dst, 4 + draw(2)}, {R0, 0, 0, 0}},
                                 1, draw(2)),
                         0);
        assert_true(state_is(dst, R1, w.pos[R1] - 1));
    }
    assert_int_equal(w.a->slot_copy(w.h, w.slot[R0], w.slot[R1], &w.err), HB_OK);
}

static void variants_change_no_byte(void **state) {
    (void)state;
    for (int32_t i = 0; i < 12; i++) {
        open_variant(HB_WINDOWS_DENSE, 0, 0, i);
        run_history(77U + (uint32_t)i);
        const size_t n = dump_named("conv", dump_a);
        const size_t m = n + dump_named("temporal", dump_a + n);
        close_world();
        for (int32_t k = 1; k < 8; k++) {
            open_variant(k % 2, k / 2 % 2 * PAD_ELEMENTS, k / 4, i);
            run_history(77U + (uint32_t)i);
            assert_int_equal(dump_named("conv", dump_b), n);
            assert_int_equal(n + dump_named("temporal", dump_b + n), m);
            assert_memory_equal(dump_a, dump_b, m);
            if (variant.pad > 0) {
                check_pads();
            }
            close_world();
        }
    }
}

/* States of the other order, windows of K columns, heads of the other groups: the same history ends
 * in the states of the reference, read in their layout. */
static void other_layouts_hold_the_states_of_the_reference(void **state) {
    (void)state;
    for (int32_t i = 0; i < 12; i++) {
        for (int32_t k = 1; k < 8; k++) {
            variant.state_layout = k % 2;
            variant.head_map = k / 2 % 2;
            variant.conv_state_len = k / 4;
            open_variant(i % 3 == 1, i % 3 == 2 ? PAD_ELEMENTS : 0, i % 2, i);
            run_history(5U + (uint32_t)i);
            if (variant.pad > 0) {
                check_pads();
            }
            close_world();
        }
    }
    variant.state_layout = variant.head_map = variant.conv_state_len = 0;
}

/* Shapes of the regions follow. */
static void other_layouts_have_other_shapes(void **state) {
    (void)state;
    struct hb_region info = {0};
    int32_t at = 0;
    variant.state_layout = HB_STATE_KV;
    variant.conv_state_len = HB_CONV_STATE_FULL;
    open_variant(HB_WINDOWS_STRIP, 0, 0, 0);
    variant.state_layout = variant.conv_state_len = 0;
    region_at("conv", 0, &at, &info);
    assert_true(info.shape[1] == DIM && info.shape[2] == K);
    region_at("temporal", 0, &at, &info);
    assert_true(info.shape[1] == H && info.shape[2] == N && info.shape[3] == P);
    region_at("intermediate_conv", 0, &at, &info);
    assert_true(info.shape[1] == DIM && info.shape[2] == MAX_DRAFT + K - 1);
    region_at("intermediate_ssm", 0, &at, &info);
    assert_true(info.shape[2] == H * N && info.shape[3] == P);
    close_world();
}

/* Column windows of the strip are the dense windows; columns of nodes that a row lacks stay. */
static void strip_region_holds_overlapping_windows(void **state) {
    static const int32_t nodes[] = {5, 2};
    static float strip[SPEC_ROWS * DIM * (MAX_DRAFT + W - 1)];
    (void)state;
    open_variant(HB_WINDOWS_STRIP, 0, 0, 0);
    fill_region("intermediate_conv", 0, 0xff);
    make_chains(DRAFT, nodes, 1);
    assert_int_equal(verify(), 0);
    struct hb_region info = {0};
    int32_t at = 0;
    region_at("intermediate_conv", 0, &at, &info);
    assert_int_equal(info.n_dims, 3);
    assert_true(info.shape[0] == SPEC_ROWS && info.shape[1] == DIM);
    assert_int_equal(info.shape[2], MAX_DRAFT + W - 1);
    assert_int_equal(info.bytes, sizeof(strip));
    assert_int_equal(w.a->region_read(w.h, at, 0, strip, sizeof(strip), &w.err), HB_OK);
    for (int32_t r = 0; r < SPEC_ROWS; r++) {
        const int32_t n = r < 2 ? nodes[r] + W - 1 : 0;
        for (int32_t c = 0; c < DIM * (MAX_DRAFT + W - 1); c++) {
            const float x = strip[r * DIM * (MAX_DRAFT + W - 1) + c];
            assert_int_equal(!isnan(x), c % (MAX_DRAFT + W - 1) < n);
        }
        for (int32_t t = 0; r < 2 && t < nodes[r]; t++) {
            const struct ref ref = reference(R0 - r, 0, w.pos[R0 - r] + t + 1);
            for (int32_t c = 0; c < DIM; c++) {
                const float *window = strip + (r * DIM + c) * (MAX_DRAFT + W - 1) + t;
                assert_memory_equal(window, ref.conv[c], W * sizeof(float));
            }
        }
    }
    close_world();
}

static void strip_refuses_links(void **state) {
    (void)state;
    open_variant(HB_WINDOWS_STRIP, 0, 0, 0);
    make_trees();
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_STRIP_TREE, -1);
    close_world();
    open_variant(HB_WINDOWS_DENSE, 0, 0, 0);
    make_trees();
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    close_world();
}

/* Any piece of a padded pool's region, across slots, is that of the dense view. */
static void regions_of_padded_pools_are_dense(void **state) {
    uint8_t piece[512];
    (void)state;
    open_variant(HB_WINDOWS_DENSE, PAD_ELEMENTS, 0, 1);
    struct hb_region info = {0};
    int32_t at = 0;
    region_at("conv", 2, &at, &info);
    assert_int_equal(w.a->region_read(w.h, at, 0, dump_a, info.bytes, &w.err), HB_OK);
    seed = 3;
    for (int32_t i = 0; i < 50; i++) {
        const uint64_t n = (uint64_t)draw(sizeof(piece));
        const uint64_t first = (uint64_t)draw((int32_t)(info.bytes - n) + 1);
        for (uint64_t b = 0; b < n; b++) {
            dump_a[first + b] = piece[b] = (uint8_t)draw(256);
        }
        assert_int_equal(w.a->region_write(w.h, at, first, piece, n, &w.err), HB_OK);
        assert_int_equal(w.a->region_read(w.h, at, 0, dump_b, info.bytes, &w.err), HB_OK);
        assert_memory_equal(dump_a, dump_b, info.bytes);
        assert_int_equal(w.a->region_read(w.h, at, first, piece, n, &w.err), HB_OK);
        assert_memory_equal(dump_a + first, piece, n);
    }
    check_pads();
    assert_int_equal(w.a->region_read(w.h, at, info.bytes - 1, piece, 2, &w.err), HB_ERR_RANGE);
    close_world();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_change_no_byte),
        cmocka_unit_test(other_layouts_hold_the_states_of_the_reference),
        cmocka_unit_test(other_layouts_have_other_shapes),
        cmocka_unit_test(strip_region_holds_overlapping_windows),
        cmocka_unit_test(strip_refuses_links),
        cmocka_unit_test(regions_of_padded_pools_are_dense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
