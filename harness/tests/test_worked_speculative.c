/* SPDX-License-Identifier: Apache-2.0
 * The worked examples of speculative.md and of strips in state-pool.md with their numbers, through
 * the adapter table alone. */
#include "harness/tests/worked_check.h"

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

#define TEST(name) cmocka_unit_test(name)
int main(void) {
    const struct CMUnitTest tests[] = {
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
    };
    return RUN_ON_BOTH(tests);
}
