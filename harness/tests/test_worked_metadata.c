/* SPDX-License-Identifier: Apache-2.0
 * The worked examples of metadata.md with their numbers, through the adapter table alone. What the
 * table does not show (chunk tables, seq_idx) is in backend/tests/test_metadata.c. */
#include "harness/tests/worked_check.h"

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

#define TEST(name) cmocka_unit_test(name)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(metadata_2_slots_are_gathered_then_poisoned),
        TEST(metadata_3_query_start_of_replays),
        TEST(metadata_4_native_split_of_mixed),
        TEST(metadata_4_3_empty_row_is_refused),
        TEST(metadata_5_idle_with_rows_changes_nothing),
        TEST(metadata_6_padding_rows_are_skipped),
    };
    return RUN_ON_BOTH(tests);
}
