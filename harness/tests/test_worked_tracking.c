/* SPDX-License-Identifier: Apache-2.0
 * The worked examples of tracking.md with their numbers, through the adapter table alone, and
 * publishing of state-pool.md section 2. */
#include "harness/tests/worked_check.h"

/* The checkpoint of a row: a state of `req` after `prefix` + `a` tokens, of which the last call had
 * `n` of its own and one before it `prefix`. */
static void check_checkpoint(struct rig *g, int32_t slot, int32_t req, int32_t prefix, int32_t n,
                             int32_t a) {
    struct hb_ref_state *s = ref_new(g);
    struct hb_ref_state *at = ref_new(g);
    if (prefix > 0) {
        ref_call(g, HB_PATH_PREFILL, req, 0, prefix, s, NULL, NULL, NULL, 0);
    }
    ref_call(g, HB_PATH_PREFILL, req, prefix, n, s, NULL, NULL, at, a);
    check_window(g, slot, req, prefix + a - WINDOW);
    check_temporal(g, slot, HB_PATH_PREFILL, at, 1);
    hb_ref_state_free(s);
    hb_ref_state_free(at);
}

/* Live slots 1..3 of requests 1..3, track slots 4..6. */
static void tracking_rig(struct rig *g, int32_t chunk) {
    rig_config(g, chunk, 6);
    rig_open(g);
    take(g, 3, HB_SLOT_LIVE, 1);
    take(g, 3, HB_SLOT_TRACK, 4);
    for (int32_t r = 1; r <= 3; r++) {
        map(g, r, r);
    }
}

/* lens 40, 30, 64 after 0, 16, 0 tokens; T = 40, 46, 64. */
static void tracking_4_checkpoints_before_the_end_off_the_grid_and_final(void **state) {
    struct rig g;
    (void)state;
    tracking_rig(&g, 16);
    prefill(&g, 2, 0, 16);
    batch(&g, HB_MODE_EXTEND);
    mark(&g, row(&g, 1, 0, 40), 4, 40);
    mark(&g, row(&g, 2, 16, 30), 5, 46);
    mark(&g, row(&g, 3, 0, 64), 6, 64);
    /* flat positions 29 30 31, 53 54 55, 131 132 133 */
    static const int32_t flat[3][2] = {{29, 1}, {53, 2}, {131, 3}};
    static const int32_t first[3] = {29, 29, 61};
    for (int32_t r = 0; r < 3; r++) {
        for (int32_t j = 0; j < WINDOW; j++) {
            assert_int_equal(g.token_req[flat[r][0] + j], flat[r][1]);
            assert_int_equal(g.token_at[flat[r][0] + j], first[r] + j);
        }
    }
    forward(&g);
    check_checkpoint(&g, 4, 1, 0, 40, 32);
    check_checkpoint(&g, 5, 2, 16, 30, 16);
    check_checkpoint(&g, 6, 3, 0, 64, 64);
    same_state(&g, 6, &g, 3);
    check_window(&g, 1, 1, 37);
    check_window(&g, 2, 2, 43);
    rig_close(&g);
}

/* lens 16, 30 after 0, 16 tokens: final, and on the grid. */
static void tracking_4_second_final_and_on_the_grid(void **state) {
    struct rig g;
    (void)state;
    tracking_rig(&g, 16);
    prefill(&g, 2, 0, 16);
    batch(&g, HB_MODE_EXTEND);
    mark(&g, row(&g, 1, 0, 16), 4, 16);
    mark(&g, row(&g, 2, 16, 30), 5, 46);
    forward(&g);
    check_checkpoint(&g, 4, 1, 0, 16, 16);
    same_state(&g, 4, &g, 1);
    check_checkpoint(&g, 5, 2, 16, 30, 16);
    rig_close(&g);
}

/* Prefix 0, 40 tokens, wanted N = 16: T = 17, conv 13 14 15. */
static void tracking_4_branching_point(void **state) {
    struct rig g;
    (void)state;
    tracking_rig(&g, 16);
    batch(&g, HB_MODE_EXTEND);
    mark(&g, row(&g, 1, 0, 40), 4, 17);
    forward(&g);
    check_window(&g, 4, 1, 13);
    check_checkpoint(&g, 4, 1, 0, 40, 16);
    rig_close(&g);
}

/* I = 64: seq_lens 64, 65, 128, slots 3, 5, 7, destinations 11, 12, 13. */
static void tracking_5_decode_copies_masked_rows(void **state) {
    static const int32_t lens[3] = {64, 65, 128};
    unsigned char x[512], y[512];
    (void)state;
    for (int32_t by_layer = 0; by_layer < 2; by_layer++) {
        struct rig g;
        rig_config(&g, 64, 13);
        g.config.track_interval = 64;
        g.config.track_by_layer = by_layer;
        rig_open(&g);
        take(&g, 10, HB_SLOT_LIVE, 1);
        take(&g, 3, HB_SLOT_TRACK, 11);
        for (int32_t r = 0; r < 3; r++) {
            map(&g, r + 1, 3 + 2 * r);
            prefill(&g, r + 1, 0, lens[r] - 1);
        }
        uint64_t n = read_entry(&g, "temporal", 12, x, 0);
        batch(&g, HB_MODE_DECODE);
        for (int32_t r = 0; r < 3; r++) {
            (void)row(&g, r + 1, lens[r] - 1, 0);
            g.track[r] = 11 + r;
            g.mask[r] = lens[r] % 64 == 0;
        }
        forward(&g);
        same_state(&g, 11, &g, 3);
        same_state(&g, 13, &g, 7);
        check_window(&g, 11, 1, 61);
        check_window(&g, 13, 3, 125);
        assert_int_equal(read_entry(&g, "temporal", 12, y, 0), n);
        assert_memory_equal(x, y, n);
        rig_close(&g);
    }
}

/* Row 1 of lens 40, 10: nothing to track; T beyond the row. */
static void tracking_6_lengths_outside_the_row_are_refused(void **state) {
    struct rig g;
    size_t size = 0;
    (void)state;
    tracking_rig(&g, 16);
    batch(&g, HB_MODE_EXTEND);
    mark(&g, row(&g, 1, 0, 40), 4, 40);
    mark(&g, row(&g, 2, 0, 10), 5, 10);
    unsigned char *before = snapshot(&g, &size);
    refused(&g, table->begin(g.h, wired(&g), &g.e), HB_RULE_TRACK_LEN_SHORT, 1, 10, 16);
    g.mask[1] = 0;
    g.point[0] = 41;
    refused(&g, table->begin(g.h, wired(&g), &g.e), HB_RULE_TRACK_LEN_LONG, 0, 41, 40);
    unchanged(&g, before, size);
    rig_close(&g);
}

/* C = 64, page = 128, 200 tokens: both parts at 128. */
static void tracking_7_2_one_position_for_both_parts(void **state) {
    struct rig g;
    (void)state;
    rig_config(&g, 64, 2);
    g.config.page_size = 128;
    rig_open(&g);
    take(&g, 1, HB_SLOT_LIVE, 1);
    take(&g, 1, HB_SLOT_TRACK, 2);
    map(&g, 1, 1);
    batch(&g, HB_MODE_EXTEND);
    mark(&g, row(&g, 1, 0, 200), 2, 200);
    forward(&g);
    check_checkpoint(&g, 2, 1, 0, 200, 128);
    rig_close(&g);
}

/* The extend row of a MIXED batch is tracked, its decode rows are not. */
static void tracking_7_4_mixed_keeps_the_track_of_its_extend_rows(void **state) {
    struct rig g;
    (void)state;
    tracking_rig(&g, 16);
    prefill(&g, 2, 0, 5);
    batch(&g, HB_MODE_MIXED);
    mark(&g, row(&g, 1, 0, 20), 4, 20);
    (void)row(&g, 2, 5, 0);
    g.track[1] = -1;
    g.point[1] = -1;
    forward(&g);
    check_checkpoint(&g, 4, 1, 0, 20, 16);
    check_window(&g, 2, 2, 3);
    rig_close(&g);
}

/* The checkpoint moves to the prefix cache: TRACK -> TREE, no other byte. */
static void state_pool_2_publish(void **state) {
    struct rig g;
    (void)state;
    tracking_rig(&g, 4);
    ok(&g, table->slot_publish(g.h, 4, &g.e));
    CHECK_LIST(&g, "slot_kind", HB_SLOT_RESERVED, HB_SLOT_LIVE, HB_SLOT_LIVE, HB_SLOT_LIVE,
               HB_SLOT_TREE, HB_SLOT_TRACK, HB_SLOT_TRACK);
    refused(&g, table->slot_publish(g.h, 4, &g.e), HB_RULE_PUBLISH_KIND, -1, 4, 0);
    batch(&g, HB_MODE_DECODE);
    mark(&g, row(&g, 1, 3, 0), 4, 0); /* a node's state is immutable */
    refused(&g, table->begin(g.h, wired(&g), &g.e), HB_RULE_TRACK_ALIAS_SLOT, 0, 4, 0);
    ok(&g, table->slot_free(g.h, 1, (const int32_t[]){4}, &g.e));
    rig_close(&g);
}

#define TEST(name) cmocka_unit_test(name)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(tracking_4_checkpoints_before_the_end_off_the_grid_and_final),
        TEST(tracking_4_second_final_and_on_the_grid),
        TEST(tracking_4_branching_point),
        TEST(tracking_5_decode_copies_masked_rows),
        TEST(tracking_6_lengths_outside_the_row_are_refused),
        TEST(tracking_7_2_one_position_for_both_parts),
        TEST(tracking_7_4_mixed_keeps_the_track_of_its_extend_rows),
        TEST(state_pool_2_publish),
    };
    return RUN_ON_BOTH(tests);
}
