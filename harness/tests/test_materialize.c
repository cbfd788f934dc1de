/* SPDX-License-Identifier: Apache-2.0
 * From case step to batch: the arrays of each mode, padding, the encoding of tracking points
 * (tracking.md section 3), KV slots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "harness/tests/batch_rig.h"

static int64_t req(const struct rig *g, int32_t request) {
    return hb_case_req_index(&g->c, request);
}

/* --- modes ------------------------------------------------------------------------------------ */

static void an_extend_batch_has_its_arrays(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = rig_start(&g, HB_MODE_EXTEND);
    hand_row(s, 3, 4);
    hand_row(s, 1, 2);
    RIG_DERIVE(&g, 0, 16);
    const struct hb_batch *b = &g.batch.b;
    assert_int_equal(b->struct_size, sizeof *b);
    assert_int_equal(b->forward_mode, HB_MODE_EXTEND);
    assert_true(b->batch_size == 2 && b->n_extend == 2 && b->n_tokens == 6 && !b->is_dummy);
    assert_true(!b->has_original_batch_size && b->has_extend_num_tokens &&
                b->extend_num_tokens == 6);
    ASSERT_ARRAY(b->req_pool_indices, req(&g, 3), req(&g, 1));
    ASSERT_ARRAY(b->seq_lens, 4, 18);
    ASSERT_ARRAY(b->extend_seq_lens, 4, 2);
    ASSERT_ARRAY(b->extend_prefix_lens, 0, 16);
    assert_null(b->extend_start_loc.data);
    assert_null(b->extend_seq_lens_cpu.data);
    assert_null(b->mamba_track_mask.data);
    assert_int_equal(b->out_cache_loc.len, 6);
    assert_true(b->req_to_token_rows == g.config.req_pool_size && b->req_to_token_cols == 128);
    assert_int_equal(b->req_to_token.len, (int64_t)g.config.req_pool_size * 128);
    const int32_t *line = b->req_to_token.data + req(&g, 1) * 128;
    assert_memory_equal(line, prefix_slots, sizeof prefix_slots);
    assert_true(line[16] == b->out_cache_loc.data[4] && line[17] == b->out_cache_loc.data[5]);
    assert_int_equal(line[18], 0);
    hb_batch_destroy(&g.batch);
}

static void optional_fields_are_there_when_asked_for(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = rig_start(&g, HB_MODE_EXTEND);
    hand_row(s, 0, 4);
    hand_row(s, 1, 2);
    hand_row(s, 2, 7);
    s->optional = 15;
    RIG_DERIVE(&g, 0, 0, 0);
    const struct hb_batch *b = &g.batch.b;
    ASSERT_ARRAY(b->extend_start_loc, 0, 4, 6);
    ASSERT_ARRAY(b->extend_seq_lens_cpu, 4, 2, 7);
    assert_true(b->has_original_batch_size && b->original_batch_size == 3);
    ASSERT_ARRAY(b->mamba_track_mask, 0, 0, 0);
    assert_null(b->mamba_track_indices.data);
    hb_batch_destroy(&g.batch);
}

static void a_decode_batch_has_no_extend_arrays(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = rig_start(&g, HB_MODE_DECODE);
    hand_row(s, 2, 9);
    hand_row(s, 0, 9);
    RIG_DERIVE(&g, 7, 3);
    const struct hb_batch *b = &g.batch.b;
    assert_true(b->batch_size == 2 && b->n_extend == 0 && b->n_tokens == 2);
    assert_true(!b->has_extend_num_tokens && !b->extend_seq_lens.data &&
                !b->extend_prefix_lens.data);
    ASSERT_ARRAY(b->seq_lens, 8, 4);
    assert_true(g.plan.row[0].is_decode && g.plan.row[1].length == 1 && g.plan.row[1].first == 1);
    hb_batch_destroy(&g.batch);
}

/* forward-batch.md: MIXED with decode rows as extend rows of length 1 (M1), or as native decode
 * rows at the end (M2). */
static void both_shapes_of_mixed(void **state) {
    (void)state;
    for (int32_t native = 0; native < 2; native++) {
        struct rig g;
        struct hb_case_step *s = rig_start(&g, HB_MODE_MIXED);
        hand_row(s, 0, 10);
        hand_row(s, 1, 1);
        hand_row(s, 2, 1);
        s->n_decode = native ? 2 : 0;
        RIG_DERIVE(&g, 0, 5, 9);
        const struct hb_batch *b = &g.batch.b;
        assert_true(b->batch_size == 3 && b->n_tokens == 12 && g.plan.n_real == 12);
        ASSERT_ARRAY(b->seq_lens, 10, 6, 10);
        assert_true(b->has_extend_num_tokens);
        if (native) {
            assert_int_equal(b->n_extend, 1);
            ASSERT_ARRAY(b->extend_seq_lens, 10);
            ASSERT_ARRAY(b->extend_prefix_lens, 0);
            assert_int_equal(b->extend_num_tokens, 10);
        } else {
            assert_int_equal(b->n_extend, 3);
            ASSERT_ARRAY(b->extend_seq_lens, 10, 1, 1);
            ASSERT_ARRAY(b->extend_prefix_lens, 0, 5, 9);
            assert_int_equal(b->extend_num_tokens, 12);
        }
        assert_int_equal(g.plan.row[2].is_decode, native);
        assert_int_equal(g.plan.row[2].first, 11);
        hb_batch_destroy(&g.batch);
    }
}

static void padding_rows_and_tokens_follow_the_live_ones(void **state) {
    (void)state;
    static const int32_t modes[] = {HB_MODE_EXTEND, HB_MODE_DECODE};
    for (int k = 0; k < 2; k++) {
        struct rig g;
        struct hb_case_step *s = rig_start(&g, modes[k]);
        hand_row(s, 4, 1);
        s->pad_rows = 2;
        s->pad_tokens = 3;
        RIG_DERIVE(&g, 6);
        const struct hb_batch *b = &g.batch.b;
        assert_true(b->batch_size == 3 && b->has_original_batch_size &&
                    b->original_batch_size == 1);
        ASSERT_ARRAY(b->req_pool_indices, req(&g, 4), 0, 0);
        ASSERT_ARRAY(b->seq_lens, 7, 1, 1);
        /* a padding row of a decode batch has a token of its own */
        assert_int_equal(b->n_tokens, k ? 1 + 3 + 2 : 1 + 3);
        assert_int_equal(b->out_cache_loc.len, b->n_tokens);
        assert_true(b->out_cache_loc.data[0] > 0 && b->out_cache_loc.data[1] == 0);
        hb_batch_destroy(&g.batch);
    }
}

static void a_model_without_attention_has_no_cache_arrays(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = rig_start(&g, HB_MODE_EXTEND);
    g.c.config.attn_mask = 0;
    hand_row(s, 0, 4);
    RIG_DERIVE(&g, 0);
    assert_null(g.batch.b.out_cache_loc.data);
    assert_null(g.batch.b.req_to_token.data);
    assert_int_equal(g.batch.b.req_to_token_cols, 0);
    hb_batch_destroy(&g.batch);
}

/* --- tracking --------------------------------------------------------------------------------- */

/* The worked examples of tracking.md section 4: C = 16. */
static void tracking_points_are_encoded_as_the_scheduler_does(void **state) {
    (void)state;
    static const struct {
        int32_t length, point, page_chunks;
        int64_t prefix, want_after, want_len;
    } rows[] = {
        {40, 0, 0, 0, 32, 40},  /* last aligned point: the end of the row is passed */
        {30, 0, 0, 16, 16, 46}, /* N = 32 */
        {64, 0, 0, 0, 64, 64},  /* aligned end: final state */
        {16, 0, 0, 0, 16, 16},
        {40, 1, 0, 0, 16, 17}, /* branching point N = 16: N + 1 */
        {40, 2, 0, 0, 32, 33},
        {64, 4, 0, 0, 64, 64}, /* the branching point is the end */
        {64, 3, 0, 5, 48, 54},
        {40, 9, 0, 0, 32, 33},   /* clamped to the last aligned point */
        {100, 0, 2, 0, 96, 100}, /* page_size 32: CC = 32 */
        {100, 1, 2, 7, 32, 40},
        {15, 0, 0, 3, 0, 18}, /* shorter than a chunk: nothing to store, begin must refuse it */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig g;
        struct hb_case_step *s = rig_start(&g, HB_MODE_EXTEND);
        g.c.config.chunk_size = 16;
        g.c.config.page_chunks = rows[i].page_chunks;
        hand_row(s, 0, 3);
        hand_track(hand_row(s, 1, rows[i].length), 0, rows[i].point);
        s->pad_rows = 1;
        RIG_DERIVE(&g, 0, rows[i].prefix);
        assert_int_equal(g.plan.row[1].track_after, rows[i].want_after);
        ASSERT_ARRAY(g.batch.b.mamba_track_mask, 0, 1, 0);
        ASSERT_ARRAY(g.batch.b.mamba_track_indices, -1, 12, -1);
        ASSERT_ARRAY(g.batch.b.mamba_track_seqlens, -1, rows[i].want_len, -1);
        hb_batch_destroy(&g.batch);
    }
}

static void a_tracked_decode_row_stores_the_state_after_its_token(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = rig_start(&g, HB_MODE_DECODE);
    hand_track(hand_row(s, 0, 1), 0, 0);
    RIG_DERIVE(&g, 63);
    ASSERT_ARRAY(g.batch.b.mamba_track_mask, 1);
    ASSERT_ARRAY(g.batch.b.mamba_track_indices, 11);
    ASSERT_ARRAY(g.batch.b.mamba_track_seqlens, 64);
    assert_int_equal(g.plan.row[0].track_after, 1);
    hb_batch_destroy(&g.batch);
}

/* --- KV slots --------------------------------------------------------------------------------- */

static void kv_slots_are_distinct_until_all_are_used(void **state) {
    (void)state;
    for (int32_t n_kv = 2; n_kv < 120; n_kv++) {
        for (uint32_t seed = 0; seed < 8; seed++) {
            struct hb_kv_alloc a;
            unsigned char used[128] = {0};
            int32_t steps_of_one = 0;
            int32_t last = 0;
            struct hb_case c;
            hb_case_init(&c);
            c.config.seed = (int32_t)(seed * 77777u);
            hb_kv_alloc_init(&a, &c, n_kv);
            for (int32_t i = 1; i < n_kv; i++) {
                int32_t slot = hb_kv_alloc_take(&a, i, last);
                assert_true(slot >= 1 && slot < n_kv && !used[slot]);
                used[slot] = 1;
                steps_of_one += slot == last + 1;
                last = slot;
            }
            if (n_kv > 20 && (n_kv - 1) % 2 && (n_kv - 1) % 3) {
                assert_true(steps_of_one < n_kv / 2); /* scattered */
            }
        }
    }
}

/* Three requests that take turns, of which the last begins at a position inside a page. */
static void tokens_of_a_page_stand_together(void **state) {
    (void)state;
    enum { REQUESTS = 3, TOKENS = 150, N_KV = 64 * (3 * 12 + 2) };
    for (int32_t page = HB_KV_PAGE_16; page < HB_N_KV_PAGES; page++) {
        for (int32_t order = 0; order < HB_N_PAGE_ORDERS; order++) {
            struct hb_case c;
            struct hb_kv_alloc a;
            unsigned char used[N_KV] = {0};
            int32_t last[REQUESTS] = {0};
            int32_t first_page[2] = {0};
            hb_case_init(&c);
            c.config.kv_page = page;
            c.config.page_order = order;
            hb_kv_alloc_init(&a, &c, N_KV);
            const int32_t size = hb_case_kv_page(&c.config);
            for (int32_t i = 0; i < TOKENS * REQUESTS; i++) {
                const int32_t r = i % REQUESTS;
                const int32_t position = i / REQUESTS + (r == 2 ? 5 : 0);
                const int32_t slot = hb_kv_alloc_take(&a, position, last[r]);
                assert_true(slot >= size && slot < N_KV && !used[slot]);
                assert_int_equal(slot % size, position % size);
                if (position % size != 0 && last[r] != 0) {
                    assert_int_equal(slot, last[r] + 1);
                }
                if (i < 2) {
                    first_page[i] = slot / size;
                }
                used[slot] = 1;
                last[r] = slot;
            }
            const int32_t step = first_page[1] - first_page[0];
            assert_true(order == HB_PAGES_SHUFFLED || step == (order == HB_PAGES_DESCENDING ? -1 : 1));
        }
    }
}

/* Two requests that go on from the same prefix, and drafts after each other at the same positions. */
static void a_page_that_someone_has_filled_on_is_left(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_kv_alloc a;
    hb_case_init(&c);
    c.config.kv_page = HB_KV_PAGE_16;
    hb_kv_alloc_init(&a, &c, 16 * 6);
    const int32_t shared = hb_kv_alloc_take(&a, 0, 0);
    const int32_t one = hb_kv_alloc_take(&a, 1, shared);
    const int32_t other = hb_kv_alloc_take(&a, 1, shared);
    assert_int_equal(one, shared + 1);
    assert_int_not_equal(other / 16, one / 16);
    assert_int_equal(other % 16, 1);
    assert_int_equal(hb_kv_alloc_take(&a, 2, other), other + 1);
    assert_int_equal(hb_kv_alloc_take(&a, 2, one), one + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_extend_batch_has_its_arrays),
        cmocka_unit_test(optional_fields_are_there_when_asked_for),
        cmocka_unit_test(a_decode_batch_has_no_extend_arrays),
        cmocka_unit_test(both_shapes_of_mixed),
        cmocka_unit_test(padding_rows_and_tokens_follow_the_live_ones),
        cmocka_unit_test(a_model_without_attention_has_no_cache_arrays),
        cmocka_unit_test(tracking_points_are_encoded_as_the_scheduler_does),
        cmocka_unit_test(a_tracked_decode_row_stores_the_state_after_its_token),
        cmocka_unit_test(kv_slots_are_distinct_until_all_are_used),
        cmocka_unit_test(tokens_of_a_page_stand_together),
        cmocka_unit_test(a_page_that_someone_has_filled_on_is_left),
    };
    return cmocka_run_group_tests_name("materialize", tests, NULL, NULL);
}
