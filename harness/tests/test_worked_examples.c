/* SPDX-License-Identifier: Apache-2.0
 * The worked examples of metadata.md, tracking.md, graph.md and speculative.md with their numbers,
 * through the adapter table alone: once on the float64 oracle, once on the emulated backend. What
 * the table does not show (chunk tables, seq_idx) is in backend/tests/test_metadata.c. */
#include "harness/tests/worked_rig.h"

#include "harness/run.h"

static int same_bits(const float *a, const float *b, int32_t n) {
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static void check_zero(const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        assert_true(x[i] == 0.0F);
    }
}

/* Outputs of n tokens from `first` on, against the reference. */
static void check_outputs(const struct rig *g, int32_t first, int32_t n, const double *want,
                          const double *bound) {
    for (int32_t i = 0; i < n * D_INNER; i++) {
        assert_true(fabs((double)g->out[first * D_INNER + i] - want[i]) <= bound[i]);
    }
}

/* ---- metadata.md ---- */

/* With graphs of up to `rows` rows of `nodes` nodes, and intermediate caches where nodes > 1. */
static void graph_config(struct rig *g, int32_t chunk, int32_t n_slots, int32_t rows,
                         int32_t nodes) {
    rig_config(g, chunk, n_slots);
    g->config.graph_rows = rows;
    g->config.graph_draft = nodes;
    g->config.spec_rows = nodes > 1 ? rows : 0;
    g->config.max_draft = nodes > 1 ? nodes : 0;
}

static void metadata_2_slots_are_gathered_then_poisoned(void **state) {
    struct rig g;
    struct hb_layer_io io;
    unsigned char before[512], after[512];
    (void)state;
    graph_config(&g, 4, 9, 4, 1);
    rig_open(&g);
    take(&g, 9, HB_SLOT_LIVE, 1);
    map(&g, 0, 4);
    map(&g, 1, 2);
    map(&g, 2, 9);
    ok(&g, table->graph_init(g.h, 4, 4, &g.e));
    capture(&g, HB_MODE_DECODE, 4, 0, 0, &io);
    batch(&g, HB_MODE_DECODE);
    (void)row(&g, 2, 0, 0);
    (void)row(&g, 1, 0, 0);
    pad(&g, 2, 1);
    g.b.has_num_padding = 1;
    g.b.num_padding = 2;
    uint64_t n = read_entry(&g, "conv", 4, before, 0);
    replay(&g, &io);
    CHECK_INTS(&g, "graph_state_indices", 3, 9, 2, -1, -1);
    assert_int_equal(read_entry(&g, "conv", 4, after, 0), n);
    assert_memory_equal(before, after, n);
    check_window(&g, 9, 2, -2);
    check_window(&g, 2, 1, -2);
    close_io(&g, &io);
    rig_close(&g);
}

static void metadata_3_query_start_of_replays(void **state) {
    struct rig g;
    struct hb_layer_io decodes, verifies, idle;
    (void)state;
    graph_config(&g, 4, 4, 4, 3);
    rig_open(&g);
    take(&g, 4, HB_SLOT_LIVE, 1);
    for (int32_t r = 1; r <= 4; r++) {
        map(&g, r, r);
    }
    ok(&g, table->graph_init(g.h, 4, 12, &g.e));
    capture(&g, HB_MODE_DECODE, 4, 0, 0, &decodes);
    capture(&g, HB_MODE_TARGET_VERIFY, 3, 3, 0, &verifies);
    capture(&g, HB_MODE_IDLE, 2, 0, 0, &idle);
    batch(&g, HB_MODE_DECODE);
    (void)row(&g, 1, 0, 0);
    (void)row(&g, 2, 0, 0);
    pad(&g, 2, 1);
    g.b.has_num_padding = 1;
    g.b.num_padding = 2;
    replay(&g, &decodes);
    CHECK_INTS(&g, "graph_query_start_loc", 3, 0, 1, 2, 2, 2);
    batch(&g, HB_MODE_TARGET_VERIFY);
    (void)draft(&g, 1, 1, 3);
    (void)draft(&g, 2, 1, 3);
    pad(&g, 1, 3);
    g.b.has_num_padding = 1;
    g.b.num_padding = 1;
    replay(&g, &verifies);
    CHECK_INTS(&g, "graph_query_start_loc", 2, 0, 3, 6, 6);
    check_zero(g.out + 6 * D_INNER, 3 * D_INNER);
    batch(&g, HB_MODE_IDLE);
    pad(&g, 2, 1);
    replay(&g, &idle);
    CHECK_INTS(&g, "graph_query_start_loc", 1, 0, 0, 0);
    CHECK_INTS(&g, "graph_state_indices", 1, -1, -1);
    check_zero(g.out, 2 * D_INNER);
    close_io(&g, &decodes);
    close_io(&g, &verifies);
    close_io(&g, &idle);
    rig_close(&g);
}

/* M2: prefill lens 5 and 3, two decodes: T = 10, decode tokens 8 and 9. */
static void metadata_4_native_split_of_mixed(void **state) {
    struct rig g;
    double want[5 * D_INNER], bound[5 * D_INNER];
    (void)state;
    rig_config(&g, 4, 4);
    rig_open(&g);
    take(&g, 4, HB_SLOT_LIVE, 1);
    for (int32_t r = 1; r <= 4; r++) {
        map(&g, r, r);
    }
    prefill(&g, 3, 0, 6);
    prefill(&g, 4, 0, 3);
    batch(&g, HB_MODE_MIXED);
    (void)row(&g, 1, 0, 5);
    (void)row(&g, 2, 0, 3);
    (void)row(&g, 3, 6, 0);
    (void)row(&g, 4, 3, 0);
    assert_int_equal(g.b.n_tokens, 10);
    forward(&g);
    check_window(&g, 1, 1, 2);
    check_window(&g, 2, 2, 0);
    check_window(&g, 3, 3, 4);
    check_window(&g, 4, 4, 1);
    struct hb_ref_state *s = ref_new(&g);
    ref_call(&g, HB_PATH_PREFILL, 1, 0, 5, s, want, bound, NULL, 0);
    check_outputs(&g, 0, 5, want, bound);
    for (int32_t k = 0; k < 2; k++) {
        int32_t prefix = k == 0 ? 6 : 3;
        hb_ref_state_zero(&g.config, s);
        ref_call(&g, HB_PATH_PREFILL, 3 + k, 0, prefix, s, NULL, NULL, NULL, 0);
        ref_call(&g, HB_PATH_DECODE, 3 + k, prefix, 1, s, want, bound, NULL, 0);
        check_outputs(&g, 8 + k, 1, want, bound);
        check_temporal(&g, 3 + k, HB_PATH_DECODE, s, 0);
    }
    hb_ref_state_free(s);
    rig_close(&g);
}

/* The empty row of [0,7,7,20] is refused, the batch without it runs. */
static void metadata_4_3_empty_row_is_refused(void **state) {
    struct rig g;
    size_t size = 0;
    (void)state;
    rig_config(&g, 8, 3);
    rig_open(&g);
    take(&g, 3, HB_SLOT_LIVE, 1);
    for (int32_t r = 1; r <= 3; r++) {
        map(&g, r, r);
    }
    batch(&g, HB_MODE_EXTEND);
    (void)row(&g, 1, 0, 7);
    (void)row(&g, 2, 0, 7);
    (void)row(&g, 3, 0, 13);
    g.ext[1] = 0;
    g.seq[1] = 0;
    g.b.extend_num_tokens = g.b.n_tokens = 20;
    unsigned char *before = snapshot(&g, &size);
    refused(&g, table->begin(g.h, wired(&g), &g.e), HB_RULE_EXTEND_LEN_RANGE, 1, 0, 1);
    unchanged(&g, before, size);
    batch(&g, HB_MODE_EXTEND);
    (void)row(&g, 1, 0, 7);
    (void)row(&g, 3, 0, 13);
    forward(&g);
    rig_close(&g);
}

static void metadata_5_idle_with_rows_changes_nothing(void **state) {
    struct rig g;
    size_t size = 0;
    (void)state;
    rig_config(&g, 4, 2);
    rig_open(&g);
    take(&g, 2, HB_SLOT_LIVE, 1);
    map(&g, 0, 1);
    prefill(&g, 0, 0, 4);
    unsigned char *before = snapshot(&g, &size);
    batch(&g, HB_MODE_IDLE);
    pad(&g, 3, 1);
    forward(&g);
    check_zero(g.out, 3 * D_INNER);
    batch(&g, HB_MODE_IDLE);
    forward(&g);
    unchanged(&g, before, size);
    rig_close(&g);
}

static void metadata_6_padding_rows_are_skipped(void **state) {
    struct rig g;
    float conv[2][DIM * WINDOW];
    (void)state;
    graph_config(&g, 4, 2, 3, 2);
    rig_open(&g);
    take(&g, 2, HB_SLOT_LIVE, 1);
    map(&g, 0, 2); /* what a padding row names */
    map(&g, 1, 1);
    prefill(&g, 0, 0, 4);
    prefill(&g, 1, 0, 4);
    (void)read_entry(&g, "conv", 2, conv[0], sizeof conv[0]);
    batch(&g, HB_MODE_DECODE);
    (void)row(&g, 1, 4, 0);
    pad(&g, 2, 1);
    forward(&g);
    check_zero(g.out + D_INNER, 2 * D_INNER);
    (void)read_entry(&g, "conv", 2, conv[1], sizeof conv[1]);
    assert_true(same_bits(conv[0], conv[1], DIM * WINDOW));
    batch(&g, HB_MODE_TARGET_VERIFY);
    (void)draft(&g, 1, 5, 2);
    pad(&g, 1, 2);
    float cache[2][2 * N_SSM];
    (void)read_entry(&g, "intermediate_ssm", 1, cache[0], sizeof cache[0]);
    forward(&g);
    (void)read_entry(&g, "intermediate_ssm", 1, cache[1], sizeof cache[1]);
    assert_true(same_bits(cache[0], cache[1], 2 * N_SSM));
    rig_close(&g);
}

/* ---- tracking.md ---- */

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

/* ---- graph.md ---- */

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

/* ---- speculative.md ---- */

/* Requests 1, 2 on slots 1, 2; slot 3 is a track slot. */
static void spec_rig(struct rig *g, int32_t chunk, int32_t rows, int32_t nodes, int32_t layout) {
    graph_config(g, chunk, 3, rows, nodes);
    g->config.window_layout = layout;
    rig_open(g);
    take(g, 2, HB_SLOT_LIVE, 1);
    take(g, 1, HB_SLOT_TRACK, 3);
    map(g, 1, 1);
    map(g, 2, 2);
}

/* The state of node t of row r in `g` is the state of slot 1 in `other`. */
static void same_node(struct rig *g, int32_t r, int32_t t, struct rig *other) {
    float window[DIM * WINDOW], ssm[N_SSM], cached[8 * DIM * WINDOW];
    float states[8 * N_SSM];
    (void)read_entry(other, "conv", 1, window, sizeof window);
    (void)read_entry(other, "temporal", 1, ssm, sizeof ssm);
    (void)read_entry(g, "intermediate_conv", r, cached, 0);
    (void)read_entry(g, "intermediate_ssm", r, states, 0);
    assert_true((g->caps.verify_exact & 1U) != 0);
    assert_true(same_bits(states + t * N_SSM, ssm, N_SSM));
    assert_true(same_bits(cached + t * DIM * WINDOW, window, DIM * WINDOW));
}

/* next 1 3 4 -1 -1, sibling -1 2 -1 -1 -1: parents 0 0 0 1 2. */
static void speculative_3_parents_of_a_tree(void **state) {
    static const int32_t next[5] = {1, 3, 4, -1, -1}, sibling[5] = {-1, 2, -1, -1, -1};
    static const int32_t parent[5] = {0, 0, 0, 1, 2};
    struct rig g, plain;
    struct hb_layer_io io;
    (void)state;
    spec_rig(&g, 4, 2, 5, HB_WINDOWS_DENSE);
    ok(&g, table->graph_init(g.h, 2, 10, &g.e));
    capture(&g, HB_MODE_TARGET_VERIFY, 2, 5, 1, &io);
    prefill(&g, 1, 0, 6);
    batch(&g, HB_MODE_TARGET_VERIFY);
    (void)draft(&g, 1, 6, 5);
    pad(&g, 1, 5);
    memcpy(g.next, next, sizeof next);
    memcpy(g.sibling, sibling, sizeof sibling);
    memset(g.next + 5, 0xff, 5 * sizeof *g.next);
    memset(g.sibling + 5, 0xff, 5 * sizeof *g.sibling);
    g.b.retrieve_next_token = (struct hb_i32s){g.next, 10};
    g.b.retrieve_next_sibling = (struct hb_i32s){g.sibling, 10};
    g.b.has_num_padding = 1;
    g.b.num_padding = 1;
    replay(&g, &io);
    CHECK_INTS(&g, "graph_parents", 1, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0);
    CHECK_INTS(&g, "graph_next_token", 1, 1, 3, 4, -1, -1);
    CHECK_INTS(&g, "graph_next_sibling", 1, -1, 2, -1, -1, -1);
    for (int32_t t = 0; t < 5; t++) {
        int32_t path[5], n = 0;
        for (int32_t k = t; k > 0; k = parent[k]) {
            path[n++] = k;
        }
        spec_rig(&plain, 4, 2, 5, HB_WINDOWS_DENSE);
        prefill(&plain, 1, 0, 6);
        decode(&plain, 1, 6);
        while (n-- > 0) {
            decode(&plain, 1, 6 + path[n]);
        }
        same_node(&g, 0, t, &plain);
        rig_close(&plain);
    }
    close_io(&g, &io);
    rig_close(&g);
}

/* Chain of 4: next 1 2 3 -1, parents 0 0 1 2. */
static void speculative_3_parents_of_a_chain(void **state) {
    static const int32_t next[4] = {1, 2, 3, -1};
    struct rig g;
    struct hb_layer_io io;
    (void)state;
    spec_rig(&g, 4, 1, 4, HB_WINDOWS_DENSE);
    ok(&g, table->graph_init(g.h, 1, 4, &g.e));
    capture(&g, HB_MODE_TARGET_VERIFY, 1, 4, 1, &io);
    batch(&g, HB_MODE_TARGET_VERIFY);
    (void)draft(&g, 1, 6, 4);
    memcpy(g.next, next, sizeof next);
    memset(g.sibling, 0xff, 4 * sizeof *g.sibling);
    g.b.retrieve_next_token = (struct hb_i32s){g.next, 4};
    g.b.retrieve_next_sibling = (struct hb_i32s){g.sibling, 4};
    replay(&g, &io);
    CHECK_INTS(&g, "graph_parents", 0, 0, 0, 1, 2);
    close_io(&g, &io);
    rig_close(&g);
}

/* next 1 3 -1 -1, sibling -1 -1 -1 2: a later sibling with a smaller index. */
static void speculative_3_backward_sibling_is_refused(void **state) {
    static const int32_t next[4] = {1, 3, -1, -1}, sibling[4] = {-1, -1, -1, 2};
    struct rig g;
    size_t size = 0;
    (void)state;
    spec_rig(&g, 4, 1, 4, HB_WINDOWS_DENSE);
    batch(&g, HB_MODE_TARGET_VERIFY);
    (void)draft(&g, 1, 6, 4);
    memcpy(g.next, next, sizeof next);
    memcpy(g.sibling, sibling, sizeof sibling);
    g.b.retrieve_next_token = (struct hb_i32s){g.next, 4};
    g.b.retrieve_next_sibling = (struct hb_i32s){g.sibling, 4};
    unsigned char *before = snapshot(&g, &size);
    refused(&g, table->begin(g.h, wired(&g), &g.e), HB_RULE_LINK_ORDER, 0, 2, 3);
    unchanged(&g, before, size);
    rig_close(&g);
}

/* metadata.md section 3: lens 3, 1, 2; entries beyond a row's nodes are not written. */
static void speculative_2_ragged_rows(void **state) {
    static const int32_t nodes[2] = {3, 1};
    struct rig g;
    float before[3][3 * N_SSM], after[3][3 * N_SSM];
    (void)state;
    spec_rig(&g, 4, 3, 3, HB_WINDOWS_DENSE);
    prefill(&g, 1, 0, 5);
    prefill(&g, 2, 0, 4);
    batch(&g, HB_MODE_TARGET_VERIFY);
    (void)draft(&g, 1, 5, nodes[0]);
    (void)draft(&g, 2, 4, nodes[1]);
    pad(&g, 1, 2);
    g.b.draft_token_num = 3;
    g.b.ragged_verify_layout = (struct hb_i32s){g.layout, 4};
    assert_true(g.layout[1] == 3 && g.layout[2] == 4 && g.layout[3] == 6);
    for (int32_t r = 0; r < 3; r++) {
        (void)read_entry(&g, "intermediate_ssm", r, before[r], sizeof before[r]);
    }
    forward(&g);
    check_zero(g.out + 4 * D_INNER, 2 * D_INNER);
    for (int32_t r = 0; r < 3; r++) {
        (void)read_entry(&g, "intermediate_ssm", r, after[r], sizeof after[r]);
        for (int32_t t = 0; t < 3; t++) {
            int written = r < 2 && t < nodes[r];
            assert_int_equal(same_bits(before[r] + t * N_SSM, after[r] + t * N_SSM, N_SSM),
                             !written);
        }
    }
    rig_close(&g);
}

/* A row of the table of section 5. */
struct commit_row {
    int32_t interval, before, accepted, step, point, track_step;
};

static const struct commit_row COMMITS[5] = {{64, 62, 3, 2, 64, 1},
                                             {64, 63, 1, 0, 64, 0},
                                             {64, 64, 3, 2, 0, -1},
                                             {64, 60, 4, 3, 64, 3},
                                             {64, 126, 5, 4, 128, 1}};

/* The formula above the table, for a chain. */
static int32_t track_step_of(const struct commit_row *c, int32_t *point) {
    int32_t after = c->before + c->accepted;
    *point = 0;
    if (c->before / c->interval == after / c->interval) {
        return -1;
    }
    *point = after / c->interval * c->interval;
    return *point - c->before - 1 > 0 ? *point - c->before - 1 : 0;
}

/* The row's slot holds the state after all accepted tokens, the checkpoint that after N. */
static void commit_and_compare(const struct commit_row *c, int32_t layout) {
    struct rig g, plain;
    int32_t point = 0;
    int32_t track = track_step_of(c, &point);
    const int64_t dst = 3;
    unsigned char before[512], after[512];
    assert_int_equal(track, c->track_step);
    assert_int_equal(point, c->point);
    assert_int_equal(c->accepted - 1, c->step);
    spec_rig(&g, 64, 1, 5, layout);
    spec_rig(&plain, 64, 1, 5, HB_WINDOWS_DENSE);
    prefill(&g, 1, 0, c->before);
    prefill(&plain, 1, 0, c->before);
    batch(&g, HB_MODE_TARGET_VERIFY);
    (void)draft(&g, 1, c->before, 5);
    forward(&g);
    uint64_t n = read_entry(&g, "temporal", 3, before, 0);
    ok(&g, commit(&g, 1, &c->step, &dst, &track));
    for (int32_t t = 0; t < c->accepted; t++) {
        decode(&plain, 1, c->before + t);
        if (c->before + t + 1 == point) {
            same_state(&g, 3, &plain, 1);
        }
    }
    same_state(&g, 1, &plain, 1);
    if (track < 0) {
        assert_int_equal(read_entry(&g, "temporal", 3, after, 0), n);
        assert_memory_equal(before, after, n);
    }
    rig_close(&plain);
    rig_close(&g);
}

static void speculative_5_table_of_commits(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        commit_and_compare(&COMMITS[i], HB_WINDOWS_DENSE);
    }
}

/* state-pool.md section 4: the same commits from strips of windows. */
static void speculative_5_table_of_commits_from_strips(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        commit_and_compare(&COMMITS[i], HB_WINDOWS_STRIP);
    }
}

/* state-pool.md section 4: [s_1 .. s_(K-2), u_0 .. u_(D-1)]. */
static void speculative_1_strip_holds_old_and_new_inputs(void **state) {
    enum { NODES = 5, COLUMNS = NODES + WIDTH - 2 };
    struct rig g;
    float strip[DIM * COLUMNS];
    (void)state;
    spec_rig(&g, 4, 1, NODES, HB_WINDOWS_STRIP);
    prefill(&g, 1, 0, 9);
    batch(&g, HB_MODE_TARGET_VERIFY);
    (void)draft(&g, 1, 9, NODES);
    forward(&g);
    assert_int_equal(read_entry(&g, "intermediate_conv", 0, strip, 0), sizeof strip);
    for (int32_t c = 0; c < DIM; c++) {
        for (int32_t i = 0; i < COLUMNS; i++) {
            assert_true(strip[c * COLUMNS + i] == value(1, 9 - (WIDTH - 2) + i, 1, c));
        }
    }
    rig_close(&g);
}

static void speculative_6_draft_extend_ends_the_metadata(void **state) {
    struct rig g;
    (void)state;
    spec_rig(&g, 4, 1, 2, HB_WINDOWS_DENSE);
    batch(&g, HB_MODE_DECODE);
    (void)row(&g, 1, 3, 0);
    ok(&g, table->begin(g.h, wired(&g), &g.e));
    batch(&g, HB_MODE_DRAFT_EXTEND_V2);
    ok(&g, table->begin(g.h, &g.b, &g.e));
    refused(&g, table->layer(g.h, 0, &g.io, &g.e), HB_RULE_NO_METADATA, -1, 0, 0);
    rig_close(&g);
}

/* ---- speculative.md section 7 ---- */

/* L = 4, I = 6, seq_len 10..18: cursors and folds. */
enum { RING_STEPS = 9 };
static const int32_t CURSORS[RING_STEPS] = {0, 1, 2, 0, 1, 2, 3, 0, 1};

static int32_t folds_after(int32_t seq_len) {
    return seq_len == 12 || seq_len == 16 || seq_len == 18;
}

static void ring_rig(struct rig *g) {
    graph_config(g, 4, 4, 2, 1);
    g->config.ring_length = 4;
    g->config.track_interval = 6;
    rig_open(g);
    take(g, 2, HB_SLOT_LIVE, 1);
    take(g, 1, HB_SLOT_TRACK, 3);
    map(g, 1, 2);
    prefill(g, 1, 0, 9);
}

/* One token of request 1 in the reference, at the cursor of the example. */
static void ref_ring(const struct rig *g, int32_t step, struct hb_ref_state *s, double *out,
                     double *bound) {
    float in[3][DIM];
    for (int32_t i = 0; i < 3; i++) {
        for (int32_t c = 0; c < width_of(i); c++) {
            in[i][c] = value(1, 9 + step, i, c);
        }
    }
    assert_int_equal(hb_ref_mamba2_ring(&g->config, &g->params,
                                        &g->caps.profile[0][HB_PATH_DECODE][HB_FP32], CURSORS[step],
                                        folds_after(10 + step), in[0], in[1], in[2], s, out, bound,
                                        NULL, NULL),
                     0);
}

static void check_ring_step(struct rig *g, int32_t step, const unsigned char *before,
                            struct hb_ref_state *s) {
    double want[D_INNER], bound[D_INNER];
    unsigned char after[512];
    uint64_t n = read_entry(g, "temporal", 2, after, 0);
    ref_ring(g, step, s, want, bound);
    check_outputs(g, 0, 1, want, bound);
    check_window(g, 2, 1, 9 + step - 2);
    int32_t folds = folds_after(10 + step);
    assert_int_equal(memcmp(before, after, n) != 0, folds);
    if (folds) {
        check_temporal(g, 2, HB_PATH_DECODE, s, 0);
    }
    CHECK_LIST(g, "write_pos", 0, 0, folds ? 0 : CURSORS[step] + 1, 0);
}

static void speculative_7_cursors_and_folds(void **state) {
    struct rig g;
    unsigned char before[512];
    (void)state;
    ring_rig(&g);
    struct hb_ref_state *s = ref_new(&g);
    ref_call(&g, HB_PATH_PREFILL, 1, 0, 9, s, NULL, NULL, NULL, 0);
    for (int32_t step = 0; step < RING_STEPS; step++) {
        CHECK_LIST(&g, "write_pos", 0, 0, CURSORS[step], 0);
        (void)read_entry(&g, "temporal", 2, before, 0);
        batch(&g, HB_MODE_DECODE);
        (void)row(&g, 1, 9 + step, 0);
        g.b.seq_lens_cpu = (struct hb_i32s){g.cpu, 1};
        forward(&g);
        check_ring_step(&g, step, before, s);
    }
    hb_ref_state_free(s);
    rig_close(&g);
}

/* The same steps replayed: static cursor and force of each row, padding 0. */
static void speculative_7_cursors_and_folds_in_a_graph(void **state) {
    struct rig g;
    struct hb_layer_io io;
    unsigned char before[512];
    (void)state;
    ring_rig(&g);
    ok(&g, table->graph_init(g.h, 2, 2, &g.e));
    capture(&g, HB_MODE_DECODE, 2, 0, 0, &io);
    CHECK_LIST(&g, "write_pos", 0, 0, 0, 0);
    struct hb_ref_state *s = ref_new(&g);
    ref_call(&g, HB_PATH_PREFILL, 1, 0, 9, s, NULL, NULL, NULL, 0);
    for (int32_t step = 0; step < RING_STEPS; step++) {
        (void)read_entry(&g, "temporal", 2, before, 0);
        batch(&g, HB_MODE_DECODE);
        (void)row(&g, 1, 9 + step, 0);
        pad(&g, 1, 1);
        g.b.has_original_batch_size = 0;
        g.b.seq_lens_cpu = (struct hb_i32s){g.cpu, 2};
        replay(&g, &io);
        CHECK_INTS(&g, "graph_write_pos", 1, CURSORS[step], 0);
        CHECK_INTS(&g, "graph_force_flush", 1, (10 + step) % 6 == 0, 0);
        check_ring_step(&g, step, before, s);
    }
    hb_ref_state_free(s);
    close_io(&g, &io);
    rig_close(&g);
}

/* Without seq_lens_cpu only a full ring or a mask folds; a tracked step leaves the ring empty. */
static void speculative_7_mask_folds(void **state) {
    struct rig g;
    unsigned char before[512], after[512];
    (void)state;
    ring_rig(&g);
    decode(&g, 1, 9);
    decode(&g, 1, 10);
    (void)read_entry(&g, "temporal", 2, before, 0);
    decode(&g, 1, 11); /* seq_len 12, which nobody says */
    uint64_t n = read_entry(&g, "temporal", 2, after, 0);
    assert_memory_equal(before, after, n);
    CHECK_LIST(&g, "write_pos", 0, 0, 3, 0);
    batch(&g, HB_MODE_EXTEND); /* other modes need an empty ring */
    (void)row(&g, 1, 12, 2);
    refused(&g, table->begin(g.h, wired(&g), &g.e), HB_RULE_RING_PENDING, 0, 2, 3);
    refused(&g, table->slot_copy(g.h, 2, 1, &g.e), HB_RULE_COPY_RING, -1, 3, 0);
    batch(&g, HB_MODE_DECODE);
    mark(&g, row(&g, 1, 12, 0), 3, 0);
    forward(&g);
    same_state(&g, 3, &g, 2);
    CHECK_LIST(&g, "write_pos", 0, 0, 0, 0);
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
        TEST(metadata_2_slots_are_gathered_then_poisoned),
        TEST(metadata_3_query_start_of_replays),
        TEST(metadata_4_native_split_of_mixed),
        TEST(metadata_4_3_empty_row_is_refused),
        TEST(metadata_5_idle_with_rows_changes_nothing),
        TEST(metadata_6_padding_rows_are_skipped),
        TEST(tracking_4_checkpoints_before_the_end_off_the_grid_and_final),
        TEST(tracking_4_second_final_and_on_the_grid),
        TEST(tracking_4_branching_point),
        TEST(tracking_5_decode_copies_masked_rows),
        TEST(tracking_6_lengths_outside_the_row_are_refused),
        TEST(tracking_7_2_one_position_for_both_parts),
        TEST(tracking_7_4_mixed_keeps_the_track_of_its_extend_rows),
        TEST(graph_1_sizes_and_a_second_init),
        TEST(graph_2_initial_values),
        TEST(graph_3_padding_is_counted_from_trailing_ones),
        TEST(graph_4_refresh_of_two_steps),
        TEST(graph_4_replay_is_the_eager_forward),
        TEST(graph_4_ids_are_translated_at_every_replay),
        TEST(graph_5_refusals),
        TEST(graph_6_track_destinations_are_the_head_of_the_buffer),
        TEST(speculative_1_strip_holds_old_and_new_inputs),
        TEST(speculative_2_ragged_rows),
        TEST(speculative_3_parents_of_a_tree),
        TEST(speculative_3_parents_of_a_chain),
        TEST(speculative_3_backward_sibling_is_refused),
        TEST(speculative_5_table_of_commits),
        TEST(speculative_5_table_of_commits_from_strips),
        TEST(speculative_6_draft_extend_ends_the_metadata),
        TEST(speculative_7_cursors_and_folds),
        TEST(speculative_7_cursors_and_folds_in_a_graph),
        TEST(speculative_7_mask_folds),
        TEST(state_pool_2_publish),
    };
    table = hb_adapter_oracle();
    int failed = cmocka_run_group_tests_name("oracle", tests, NULL, NULL);
    table = hb_adapter_emu();
    failed += cmocka_run_group_tests_name("emu", tests, NULL, NULL);
    return failed;
}
