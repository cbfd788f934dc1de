/* SPDX-License-Identifier: Apache-2.0
 * The worked examples of graph.md with their numbers, through the adapter table alone. */
#include "harness/tests/worked_check.h"

static void graph_1_sizes_and_a_second_init(void **state) {
    struct rig g;
    (void)state;
    graph_config(&g, 4, 2, 4, 3);
    rig_open(&g);
    int32_t status = table->graph_init(g.h, 4, 10, &g.e);
    assert_string_equal(g.e.text, "max_num_tokens=10 must be divisible by max_bs=4");
    refused(&g, status, HB_RULE_GRAPH_SIZES, -1, 10, 4);
    ok(&g, table->graph_init(g.h, 4, 12, &g.e));
    refused(&g, table->graph_init(g.h, 4, 12, &g.e), HB_RULE_GRAPH_TWICE, -1, 0, 0);
    rig_close(&g);
}

static void graph_2_initial_values(void **state) {
    struct rig g;
    int32_t got[64];
    (void)state;
    graph_config(&g, 4, 2, 3, 4);
    g.config.ring_length = 2;
    rig_open(&g);
    for (int32_t bs = 1; bs <= 3; bs++) {
        CHECK_INTS(&g, "graph_state_indices", bs - 1, -1, -1, -1);
        CHECK_INTS(&g, "graph_query_start_loc", bs - 1, 0, 0, 0, 0);
        CHECK_INTS(&g, "graph_write_pos", bs - 1, 0, 0, 0);
        CHECK_INTS(&g, "graph_force_flush", bs - 1, 0, 0, 0);
    }
    CHECK_LIST(&g, "graph_track_indices", 0, 0, 0);
    CHECK_LIST(&g, "graph_track_mask", 0, 0, 0);
    static const char *const links[3] = {"graph_next_token", "graph_next_sibling", "graph_parents"};
    for (int i = 0; i < 3; i++) {
        uint64_t n = read_entry(&g, links[i], 2, got, 0);
        assert_int_equal(n, 3 * 4 * sizeof(int32_t));
        for (uint64_t k = 0; k < n / sizeof(int32_t); k++) {
            assert_int_equal(got[k], 0);
        }
    }
    rig_close(&g);
}

/* [5,1,1]: two padding rows; [1,5]: refused. */
static void graph_3_padding_is_counted_from_trailing_ones(void **state) {
    struct rig g;
    struct hb_layer_io three, two;
    size_t size = 0;
    (void)state;
    graph_config(&g, 4, 7, 3, 1);
    rig_open(&g);
    take(&g, 7, HB_SLOT_LIVE, 1);
    map(&g, 1, 7);
    map(&g, 2, 6);
    ok(&g, table->graph_init(g.h, 3, 3, &g.e));
    capture(&g, HB_MODE_DECODE, 3, 0, 0, &three);
    capture(&g, HB_MODE_DECODE, 2, 0, 0, &two);
    prefill(&g, 1, 0, 4);
    batch(&g, HB_MODE_DECODE);
    (void)row(&g, 1, 4, 0);
    pad(&g, 2, 1);
    g.b.has_original_batch_size = 0;
    g.b.seq_lens_cpu = (struct hb_i32s){g.cpu, 3};
    assert_true(g.cpu[0] == 5 && g.cpu[1] == 1 && g.cpu[2] == 1);
    replay(&g, &three);
    CHECK_INTS(&g, "graph_state_indices", 2, 7, -1, -1);
    check_zero(g.out + D_INNER, 2 * D_INNER);
    batch(&g, HB_MODE_DECODE);
    (void)row(&g, 2, 0, 0);
    (void)row(&g, 1, 4, 0);
    g.b.seq_lens_cpu = (struct hb_i32s){g.cpu, 2};
    assert_true(g.cpu[0] == 1 && g.cpu[1] == 5);
    unsigned char *before = snapshot(&g, &size);
    refused(&g, table->replay(g.h, wired(&g), &g.e), HB_RULE_PADDING_COUNT, 0, 1, 1);
    unchanged(&g, before, size);
    g.b.has_num_padding = 1; /* the explicit count is preferred */
    replay(&g, &two);
    CHECK_INTS(&g, "graph_state_indices", 1, 6, 7);
    close_io(&g, &three);
    close_io(&g, &two);
    rig_close(&g);
}

/* bs 4, requests 2 1, mapping 1:2 2:9, p = 2, track input 40 41 0 0; then requests 1 2 5, mapping
 * 5:6, p = 1. */
static void graph_4_refresh_of_two_steps(void **state) {
    static const int32_t padded[4] = {2, 1, 0, 0};
    static const int32_t pool[2] = {39, 2};
    struct rig g;
    struct hb_layer_io io;
    (void)state;
    graph_config(&g, 4, 41, 4, 1);
    rig_open(&g);
    take(&g, pool[0], HB_SLOT_LIVE, 1);
    take(&g, pool[1], HB_SLOT_TRACK, 40);
    map(&g, 1, 2);
    map(&g, 2, 9);
    map(&g, 5, 6);
    ok(&g, table->graph_init(g.h, 4, 4, &g.e));
    capture(&g, HB_MODE_DECODE, 4, 0, 0, &io);
    batch(&g, HB_MODE_DECODE);
    (void)row(&g, 2, 3, 0);
    (void)row(&g, 1, 3, 0);
    pad(&g, 2, 1);
    g.b.has_num_padding = 1;
    g.b.num_padding = 2;
    g.track[0] = 40;
    g.track[1] = 41;
    replay(&g, &io);
    CHECK_INTS(&g, "graph_state_indices", 3, 9, 2, -1, -1);
    CHECK_INTS(&g, "graph_query_start_loc", 3, 0, 1, 2, 2, 2);
    CHECK_LIST(&g, "graph_track_indices", 40, 41, 0, 0);
    assert_memory_equal(g.req, padded, sizeof padded); /* the caller's array is not written */
    batch(&g, HB_MODE_DECODE);
    (void)row(&g, 1, 4, 0);
    (void)row(&g, 2, 4, 0);
    (void)row(&g, 5, 4, 0);
    pad(&g, 1, 1);
    g.b.has_num_padding = 1;
    g.b.num_padding = 1;
    replay(&g, &io);
    CHECK_INTS(&g, "graph_state_indices", 3, 2, 9, 6, -1);
    CHECK_INTS(&g, "graph_query_start_loc", 3, 0, 1, 2, 3, 3);
    close_io(&g, &io);
    rig_close(&g);
}

/* Replayed rows equal the eager forward of the same rows, and so do the states. */
static void graph_4_replay_is_the_eager_forward(void **state) {
    struct rig g[2];
    struct hb_layer_io io;
    (void)state;
    for (int k = 0; k < 2; k++) {
        graph_config(&g[k], 4, 5, 4, 1);
        rig_open(&g[k]);
        take(&g[k], 4, HB_SLOT_LIVE, 1);
        take(&g[k], 1, HB_SLOT_TRACK, 5);
        map(&g[k], 1, 1);
        map(&g[k], 2, 2);
        prefill(&g[k], 1, 0, 7);
        prefill(&g[k], 2, 0, 4);
    }
    ok(&g[0], table->graph_init(g[0].h, 4, 4, &g[0].e));
    capture(&g[0], HB_MODE_DECODE, 4, 0, 0, &io);
    for (int k = 0; k < 2; k++) {
        batch(&g[k], HB_MODE_DECODE);
        mark(&g[k], row(&g[k], 1, 7, 0), 5, 0);
        (void)row(&g[k], 2, 4, 0);
        pad(&g[k], 2, 1);
        g[k].b.has_num_padding = k == 0;
        g[k].b.num_padding = 2;
        g[k].b.has_original_batch_size = k == 1;
    }
    replay(&g[0], &io);
    forward(&g[1]);
    assert_true((g[0].caps.replay_exact & 1U) != 0);
    assert_true(same_bits(g[0].out, g[1].out, 4 * D_INNER));
    for (int32_t slot = 1; slot <= 5; slot++) {
        same_state(&g[0], slot, &g[1], slot);
    }
    same_state(&g[0], 5, &g[0], 1);
    CHECK_LIST(&g[0], "graph_track_mask", 1, 0, 0, 0);
    close_io(&g[0], &io);
    rig_close(&g[0]);
    rig_close(&g[1]);
}

/* A replay that is refused: rule, value, limit; no byte changes. */
static void no_replay(struct rig *g, int32_t rule, int32_t row_, int64_t value_, int64_t limit) {
    size_t size = 0;
    unsigned char *before = snapshot(g, &size);
    refused(g, table->replay(g->h, &g->b, &g->e), rule, row_, value_, limit);
    unchanged(g, before, size);
}

static void graph_5_refusals(void **state) {
    struct rig g;
    struct hb_layer_io two, verify;
    (void)state;
    graph_config(&g, 4, 4, 4, 3);
    rig_open(&g);
    take(&g, 2, HB_SLOT_LIVE, 1);
    map(&g, 1, 1);
    map(&g, 2, 2);
    ok(&g, table->graph_init(g.h, 4, 12, &g.e));
    capture(&g, HB_MODE_DECODE, 2, 0, 0, &two);
    capture(&g, HB_MODE_TARGET_VERIFY, 3, 3, 0, &verify);
    batch(&g, HB_MODE_EXTEND);
    (void)row(&g, 1, 0, 4);
    (void)wired(&g);
    refused(&g, table->capture(g.h, &g.b, &g.e), HB_RULE_GRAPH_MODE_INVALID, -1, HB_MODE_EXTEND, 0);
    no_replay(&g, HB_RULE_GRAPH_MODE_INVALID, -1, HB_MODE_EXTEND, 0);
    g.b.forward_mode = HB_MODE_DRAFT_EXTEND_V2;
    no_replay(&g, HB_RULE_GRAPH_MODE_INVALID, -1, HB_MODE_DRAFT_EXTEND_V2, 0);
    batch(&g, HB_MODE_DECODE);
    (void)row(&g, 1, 4, 0);
    (void)row(&g, 2, 4, 0);
    (void)wired(&g);
    g.b.mamba_track_indices.len = 1; /* len(track_indices) < bs */
    no_replay(&g, HB_RULE_TRACK_INDICES_LENGTH, -1, 1, 2);
    g.b.mamba_track_indices.len = 2;
    g.b.batch_size = 4; /* not captured */
    no_replay(&g, HB_RULE_GRAPH_NOT_CAPTURED, -1, 4, 0);
    g.b.batch_size = 3; /* captured with another mode */
    no_replay(&g, HB_RULE_GRAPH_MODE, -1, HB_MODE_DECODE, HB_MODE_TARGET_VERIFY);
    batch(&g, HB_MODE_DECODE);
    for (int32_t r = 0; r < 5; r++) { /* bs > max_bs */
        (void)row(&g, 1, 4, 0);
    }
    (void)wired(&g);
    no_replay(&g, HB_RULE_GRAPH_CAPACITY, -1, 5, 4);
    batch(&g, HB_MODE_TARGET_VERIFY);
    for (int32_t r = 0; r < 2; r++) {
        (void)draft(&g, 1 + r, 4, 3);
    }
    pad(&g, 1, 3);
    (void)wired(&g);
    g.b.draft_token_num = 2; /* D != D_graph */
    no_replay(&g, HB_RULE_GRAPH_DRAFT, -1, 2, 3);
    close_io(&g, &two);
    close_io(&g, &verify);
    rig_close(&g);
}

/* Captured batch sizes 2 and 4: destinations are the first entries of the one buffer, and a small
 * step after a large one leaves nothing stale. */
static void graph_6_track_destinations_are_the_head_of_the_buffer(void **state) {
    struct rig g;
    struct hb_layer_io two, four;
    (void)state;
    graph_config(&g, 4, 8, 4, 1);
    rig_open(&g);
    take(&g, 4, HB_SLOT_LIVE, 1);
    take(&g, 4, HB_SLOT_TRACK, 5);
    for (int32_t r = 1; r <= 4; r++) {
        map(&g, r, r);
    }
    ok(&g, table->graph_init(g.h, 4, 4, &g.e));
    capture(&g, HB_MODE_DECODE, 4, 0, 0, &four);
    capture(&g, HB_MODE_DECODE, 2, 0, 0, &two);
    batch(&g, HB_MODE_DECODE);
    for (int32_t r = 0; r < 4; r++) {
        mark(&g, row(&g, r + 1, 3, 0), 8 - r, 0);
    }
    replay(&g, &four);
    CHECK_LIST(&g, "graph_track_indices", 8, 7, 6, 5);
    unsigned char kept[2][512];
    uint64_t n = read_entry(&g, "conv", 6, kept[0], 0);
    batch(&g, HB_MODE_DECODE);
    (void)row(&g, 1, 4, 0);
    mark(&g, row(&g, 2, 4, 0), 8, 0);
    g.track[0] = 7;
    replay(&g, &two);
    CHECK_LIST(&g, "graph_track_indices", 7, 8, 6, 5);
    CHECK_LIST(&g, "graph_track_mask", 0, 1, 1, 1);
    same_state(&g, 8, &g, 2);
    assert_int_equal(read_entry(&g, "conv", 6, kept[1], 0), n);
    assert_memory_equal(kept[0], kept[1], n);
    batch(&g, HB_MODE_DECODE);
    for (int32_t r = 0; r < 2; r++) {
        (void)row(&g, r + 1, 5, 0);
    }
    pad(&g, 2, 1);
    g.b.has_num_padding = 1;
    g.b.num_padding = 2;
    replay(&g, &four);
    CHECK_INTS(&g, "graph_state_indices", 3, 1, 2, -1, -1);
    CHECK_LIST(&g, "graph_track_mask", 0, 0, 0, 0);
    close_io(&g, &two);
    close_io(&g, &four);
    rig_close(&g);
}

/* state-pool.md section 3: ids are translated from the live table, on replay too. */
static void graph_4_ids_are_translated_at_every_replay(void **state) {
    struct rig g;
    struct hb_layer_io io;
    (void)state;
    graph_config(&g, 4, 5, 2, 1);
    g.config.n_virtual = 9;
    rig_open(&g);
    take(&g, 2, HB_SLOT_LIVE, 1);
    take(&g, 1, HB_SLOT_TRACK, 3);
    map(&g, 1, 1);
    map(&g, 2, 2);
    ok(&g, table->graph_init(g.h, 2, 2, &g.e));
    capture(&g, HB_MODE_DECODE, 2, 0, 0, &io);
    for (int32_t step = 0; step < 2; step++) {
        batch(&g, HB_MODE_DECODE);
        (void)row(&g, 2, 3 + step, 0);
        mark(&g, row(&g, 1, 3 + step, 0), 3, 0);
        g.track[0] = 9; /* a free id */
        replay(&g, &io);
        if (step == 0) {
            CHECK_INTS(&g, "graph_state_indices", 1, 2, 1);
            CHECK_LIST(&g, "graph_track_indices", -1, 3);
            ok(&g, table->slot_move(g.h, 2, &g.e)); /* slot 2 -> 4 */
            ok(&g, table->slot_move(g.h, 3, &g.e)); /* slot 3 -> 5 */
        }
    }
    CHECK_INTS(&g, "graph_state_indices", 1, 4, 1);
    CHECK_LIST(&g, "graph_track_indices", -1, 5);
    CHECK_LIST(&g, "v2p", 0, 1, 4, 5, -1);
    same_state(&g, 5, &g, 1);
    close_io(&g, &io);
    rig_close(&g);
}

#define TEST(name) cmocka_unit_test(name)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(graph_1_sizes_and_a_second_init),
        TEST(graph_2_initial_values),
        TEST(graph_3_padding_is_counted_from_trailing_ones),
        TEST(graph_4_refresh_of_two_steps),
        TEST(graph_4_replay_is_the_eager_forward),
        TEST(graph_4_ids_are_translated_at_every_replay),
        TEST(graph_5_refusals),
        TEST(graph_6_track_destinations_are_the_head_of_the_buffer),
    };
    return RUN_ON_BOTH(tests);
}
