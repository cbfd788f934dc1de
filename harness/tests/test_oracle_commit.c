/* SPDX-License-Identifier: Apache-2.0
 * Commit of the float64 oracle behind the adapter table, and when one is possible: speculative.md
 * sections 5 and 6, invariants.md 51 and 55-57, bit for bit. */
#include "harness/tests/oracle_verify_rig.h"

/* ---- what a commit writes ---- */

/* invariants.md 51, 56: of a chain k nodes, of a tree a path; then decoding goes on. */
static void verify_and_commit_are_decode_steps(void **state) {
    (void)state;
    for (int k = 0; k < 6; k++) {
        struct rig g;
        struct rig stepwise;
        struct hb_error e = {0};
        int linked = k >= 3;
        static const int32_t paths[2][3] = {{0, 1, 2}, {0, 2, 4}};
        int32_t step = paths[linked][2];
        rig_start(&g, k % 3, 3);
        rig_start(&stepwise, k % 3, 3);
        batch(&g, HB_MODE_TARGET_VERIFY);
        draft_row(&g, 3, PREFIX, 6);
        draft_row(&g, 1, PREFIX, 6);
        verify(&g, 6, linked, 0, NULL, NULL);
        for (int32_t i = 0; i < 3; i++) {
            decode(&stepwise, 1, PREFIX + i, PREFIX + paths[linked][i], NULL, NULL);
        }
        for (int i = 0; i < 2; i++) { /* idempotent */
            assert_int_equal(commit_rows(&g, 2, (const int32_t[]){-1, step}, NULL, NULL, &e),
                             HB_OK);
            assert_true(same_region(&g, &stepwise, CONV) && same_region(&g, &stepwise, TEMPORAL));
        }
        assert_int_equal(commit_rows(&g, 0, NULL, NULL, NULL, &e), HB_OK);
        assert_true(same_region(&g, &stepwise, CONV) && same_region(&g, &stepwise, TEMPORAL));
        for (int32_t i = TABLE; i < N_REGIONS; i++) {
            assert_true(same_region(&g, &stepwise, i));
        }
        if (!linked) { /* the keys of a chain lie where decoding puts them */
            float last[2][2][MOST_TOKENS * D_INNER];
            decode(&g, 1, PREFIX + 3, PREFIX + 3, last[0][0], last[0][1]);
            decode(&stepwise, 1, PREFIX + 3, PREFIX + 3, last[1][0], last[1][1]);
            assert_memory_equal(last[0][0], last[1][0], D_INNER * sizeof(float));
            assert_memory_equal(last[0][1], last[1][1], D_INNER * sizeof(float));
        }
        rig_end(&g);
        rig_end(&stepwise);
    }
}

/* invariants.md 57, and a checkpoint without a step. */
static void a_tracked_node_is_copied_to_its_destination(void **state) {
    struct rig g;
    struct rig other;
    struct hb_error e = {0};
    (void)state;
    rig_start(&g, 2, 2);
    rig_start(&other, 2, 2);
    batch(&g, HB_MODE_TARGET_VERIFY);
    draft_row(&g, 1, PREFIX, 4);
    draft_row(&g, 2, PREFIX, 4);
    verify(&g, 4, 0, 0, NULL, NULL);
    decode(&other, 2, PREFIX, PREFIX, NULL, NULL);
    assert_int_equal(commit_rows(&g, 2, (const int32_t[]){3, -1}, (const int64_t[]){-8, 4},
                                 (const int32_t[]){-1, 0}, &e),
                     HB_OK);
    assert_true(same_slot(&g, CONV, 4, &other, 2) && same_slot(&g, TEMPORAL, 4, &other, 2));
    assert_true(entry_is_slot(&g, 0, 3, &g, 1));
    rig_end(&other);
    rig_start(&other, 2, 2); /* row 1 itself is as it was */
    assert_true(same_slot(&g, CONV, 2, &other, 2) && same_slot(&g, TEMPORAL, 2, &other, 2));
    assert_int_equal(commit_rows(&g, 2, (const int32_t[]){-1, 2}, (const int64_t[]){4, 9},
                                 (const int32_t[]){1, -1}, &e),
                     HB_OK);
    assert_true(entry_is_slot(&g, 0, 1, &g, 4) && entry_is_slot(&g, 1, 2, &g, 2));
    assert_true(entry_is_slot(&g, 0, 3, &g, 1));
    rig_end(&g);
    rig_end(&other);
}

static void padding_rows_commit_nothing(void **state) {
    struct rig g;
    struct rig other;
    struct hb_error e = {0};
    (void)state;
    rig_start(&g, 0, 2);
    rig_start(&other, 0, 2);
    batch(&g, HB_MODE_TARGET_VERIFY);
    draft_row(&g, 1, PREFIX, 3);
    draft_row(&g, 0, 0, 3);
    g.b.has_original_batch_size = 1;
    g.b.original_batch_size = 1;
    verify(&g, 3, 0, 0, NULL, NULL);
    assert_int_equal(commit_rows(&g, 2, (const int32_t[]){-1, 77}, (const int64_t[]){4, 4},
                                 (const int32_t[]){-1, 2}, &e),
                     HB_OK);
    assert_true(same_region(&g, &other, CONV) && same_region(&g, &other, TEMPORAL));
    rig_end(&g);
    rig_end(&other);
}

static void only_layers_that_ran_are_committed(void **state) {
    struct rig g;
    struct rig other;
    struct hb_error e = {0};
    (void)state;
    rig_start(&g, 0, 1);
    rig_start(&other, 0, 1);
    batch(&g, HB_MODE_TARGET_VERIFY);
    draft_row(&g, 1, PREFIX, 3);
    g.b.draft_token_num = 3;
    assert_int_equal(begin(&g, 0, &e), HB_OK);
    assert_int_equal(layer(&g, 1, NULL, &e), HB_OK);
    assert_int_equal(table->finish(g.h, &e), HB_OK);
    assert_int_equal(commit_rows(&g, 1, (const int32_t[]){2}, NULL, NULL, &e), HB_OK);
    assert_true(same_region(&g, &other, CONV) && same_region(&g, &other, TEMPORAL));
    rig_end(&g);
    rig_end(&other);
}

static void a_refused_commit_changes_nothing(void **state) {
    struct rig g;
    struct hb_error e = {0};
    size_t size = 0;
    (void)state;
    rig_start(&g, 0, 2);
    batch(&g, HB_MODE_TARGET_VERIFY);
    draft_row(&g, 1, PREFIX, 3);
    draft_row(&g, 2, PREFIX, 3);
    verify(&g, 3, 0, 0, NULL, NULL);
    unsigned char *before = snapshot(&g, &size);
    const int64_t dst[2] = {4, 2};
    assert_int_equal(commit_rows(&g, 2, (const int32_t[]){0, 3}, NULL, NULL, &e), HB_ERR_RANGE);
    assert_int_equal(e.rule, HB_RULE_COMMIT_STEP_RANGE);
    assert_int_equal(commit_rows(&g, 2, (const int32_t[]){0, 1}, dst, (const int32_t[]){0, 0}, &e),
                     HB_ERR_ALIAS);
    assert_int_equal(commit_rows(&g, 3, (const int32_t[]){0, 0, 0}, NULL, NULL, &e), HB_ERR_SHAPE);
    hb_error_clear(&e);
    assert_int_equal(table->commit(g.h, NULL, &e), HB_ERR_NULL);
    assert_int_equal(e.rule, HB_RULE_COMMIT_NULL);
    assert_int_equal(table->commit(NULL, NULL, NULL), HB_ERR_NULL);
    size_t after_size = 0;
    unsigned char *after = snapshot(&g, &after_size);
    assert_int_equal(size, after_size);
    assert_memory_equal(before, after, size);
    free(before);
    free(after);
    assert_int_equal(table->slot_free(g.h, 1, (const int32_t[]){1}, &e), HB_OK);
    assert_int_equal(commit_rows(&g, 2, (const int32_t[]){0, 1}, NULL, NULL, &e), HB_ERR_FREED);
    assert_int_equal(commit_rows(&g, 2, (const int32_t[]){-1, 1}, NULL, NULL, &e), HB_OK);
    rig_end(&g);
}

/* ---- when a commit is possible ---- */

static void start_verify(struct rig *g, int finished) {
    struct hb_error e = {0};
    batch(g, HB_MODE_TARGET_VERIFY);
    draft_row(g, 1, PREFIX, 3);
    if (finished) {
        verify(g, 3, 0, 0, NULL, NULL);
        return;
    }
    g->b.draft_token_num = 3;
    assert_int_equal(begin(g, 0, &e), HB_OK);
    assert_int_equal(layer(g, 0, NULL, &e), HB_OK);
}

static void commit_needs_a_finished_verify_that_no_begin_follows(void **state) {
    struct rig g;
    struct hb_error e = {0};
    const int32_t step[1] = {1};
    const struct hb_commit none = {.struct_size = sizeof none};
    (void)state;
    rig_start(&g, 0, 1);
    assert_int_equal(table->commit(g.h, &none, NULL), HB_ERR_STATE); /* before any verify */
    start_verify(&g, 0);
    assert_int_equal(commit_rows(&g, 1, step, NULL, NULL, &e), HB_ERR_STATE); /* unfinished */
    assert_int_equal(e.rule, HB_RULE_NO_VERIFY);
    assert_int_equal(table->finish(g.h, NULL), HB_OK);
    assert_int_equal(commit_rows(&g, 1, step, NULL, NULL, &e), HB_OK);
    struct hb_batch bad = g.b;
    bad.forward_mode = 7;
    assert_int_equal(table->begin(g.h, &bad, NULL), HB_ERR_INVALID_MODE);
    bad.forward_mode = HB_MODE_TARGET_VERIFY;
    bad.draft_token_num = 7;
    assert_int_equal(table->begin(g.h, &bad, NULL), HB_ERR_SHAPE);
    assert_int_equal(table->finish(g.h, NULL), HB_ERR_STATE);
    assert_int_equal(commit_rows(&g, 1, step, NULL, NULL, &e), HB_OK); /* a failed begin is none */
    for (int i = 0; i < 3; i++) {
        static const int32_t modes[3] = {HB_MODE_IDLE, HB_MODE_TARGET_VERIFY,
                                         HB_MODE_DRAFT_EXTEND_V2};
        start_verify(&g, 1);
        assert_int_equal(commit_rows(&g, 1, step, NULL, NULL, &e), HB_OK);
        batch(&g, modes[i]);
        g.b.draft_token_num = 1;
        assert_int_equal(begin(&g, 0, &e), HB_OK);
        assert_int_equal(commit_rows(&g, 1, step, NULL, NULL, &e), HB_ERR_STATE);
    }
    batch(&g, HB_MODE_TARGET_VERIFY); /* an empty verify is one */
    g.b.draft_token_num = 1;
    assert_int_equal(begin(&g, 0, &e), HB_OK);
    assert_int_equal(table->finish(g.h, &e), HB_OK);
    assert_int_equal(table->commit(g.h, &none, &e), HB_OK);
    rig_end(&g);
}

static void draft_extend_ends_the_metadata(void **state) {
    struct rig g;
    struct hb_error e = {0};
    (void)state;
    rig_start(&g, 0, 1);
    start_verify(&g, 0);
    struct hb_batch draft = {.struct_size = sizeof draft,
                             .forward_mode = HB_MODE_DRAFT_EXTEND_V2,
                             .batch_size = 3,
                             .n_tokens = 7};
    assert_int_equal(table->begin(g.h, &draft, &e), HB_OK);
    for (int32_t l = 0; l < 2; l++) {
        hb_error_clear(&e);
        assert_int_equal(table->layer(g.h, l, &g.io[l], &e), HB_ERR_STATE);
        assert_int_equal(e.rule, HB_RULE_NO_METADATA);
        assert_int_equal(table->entry(g.h, HB_ENTRY_WRAPPER, HB_ENTRY_EXTEND, l, &g.io[l], NULL),
                         l == 0 ? HB_ERR_NOT_IMPLEMENTED : HB_ERR_STATE);
    }
    assert_int_equal(table->finish(g.h, NULL), HB_ERR_STATE);
    start_verify(&g, 0);
    draft.batch_size = -1; /* refused: the metadata stands */
    assert_int_equal(table->begin(g.h, &draft, NULL), HB_ERR_SHAPE);
    assert_int_equal(table->finish(g.h, NULL), HB_OK);
    rig_end(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verify_and_commit_are_decode_steps),
        cmocka_unit_test(a_tracked_node_is_copied_to_its_destination),
        cmocka_unit_test(padding_rows_commit_nothing),
        cmocka_unit_test(only_layers_that_ran_are_committed),
        cmocka_unit_test(a_refused_commit_changes_nothing),
        cmocka_unit_test(commit_needs_a_finished_verify_that_no_begin_follows),
        cmocka_unit_test(draft_extend_ends_the_metadata),
    };
    table = hb_adapter_oracle();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
