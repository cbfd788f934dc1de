/* SPDX-License-Identifier: Apache-2.0
 * Metadata against the worked examples of metadata.md and tracking.md section 4. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>

#include "backend/defects.h"
#include "backend/metadata.h"
#include "backend/tests/fixture.h"

static struct fixture f;
static struct hb_metadata m;
static int32_t *block;

static int derive(int32_t has_attention) {
    const int64_t capacity = hb_metadata_capacity(&f.config, has_attention);
    free(block); /* exact size: a write past the capacity is an address error */
    block = malloc((size_t)capacity * sizeof(int32_t));
    assert_non_null(block);
    f.env.has_attention = has_attention;
    hb_metadata_derive(&f.env, &f.batch, block, &m);
    assert_true(m.words <= capacity && m.device_words <= m.words);
    return 0;
}

static void setup(int32_t mode, int32_t np, const int32_t *prefix, const int32_t *len, int32_t nd,
                  const int32_t *seq, int32_t pad) {
    fixture_tables(&f);
    fixture_batch(&f, mode, np, prefix, len, nd, seq, pad, pad);
}

static void check_array(const int32_t *got, const int32_t *want, size_t n) {
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(got[i], want[i]);
    }
}

#define CHECK_ARRAY(got, ...)                                                                      \
    do {                                                                                           \
        const int32_t want_[] = {__VA_ARGS__};                                                     \
        check_array(got, want_, sizeof(want_) / sizeof(want_[0]));                                 \
    } while (0)

static const int32_t zeros[ROWS] = {0};

static void metadata_cache_indices_poison_padding_after_the_gather(void **state) {
    (void)state;
    const int32_t seq[] = {3, 4};
    setup(HB_MODE_DECODE, 0, NULL, NULL, 2, seq, 2);
    f.req_to_slot[0] = 4;
    f.req_to_slot[1] = 2;
    f.req_to_slot[2] = 9;
    f.req[0] = 2;
    f.req[1] = 1;
    derive(0);
    CHECK_ARRAY(m.cache_indices, 9, 2, -1, -1);
    CHECK_ARRAY(m.query_start_loc, 0, 1, 2, 3, 4);
    assert_int_equal(m.num_decodes, 2);
    assert_int_equal(m.n_update_rows, 4);
    assert_int_equal(m.n_real, 2);
    assert_int_equal(m.num_prefills, 0);
}

static void metadata_idle_reads_no_array(void **state) {
    (void)state;
    setup(HB_MODE_IDLE, 0, NULL, NULL, 0, NULL, 3);
    f.batch.original_batch_size = 2;
    f.batch.req_pool_indices.data = NULL;
    f.batch.seq_lens.data = NULL;
    f.batch.req_to_token.data = NULL;
    f.batch.out_cache_loc.data = NULL;
    f.batch.mamba_track_mask.data = NULL;
    derive(1);
    CHECK_ARRAY(m.cache_indices, -1, -1, -1);
    CHECK_ARRAY(m.query_start_loc, 0, 1, 2, 3);
    assert_int_equal(m.n_real, 0);
    assert_int_equal(m.n_live, 0);
    setup(HB_MODE_IDLE, 0, NULL, NULL, 0, NULL, 0);
    derive(1);
    CHECK_ARRAY(m.query_start_loc, 0);
}

static void metadata_extend_query_start(void **state) {
    (void)state;
    const int32_t len[] = {5, 5, 16};
    setup(HB_MODE_EXTEND, 3, zeros, len, 0, NULL, 1);
    f.batch.extend_start_loc.data = NULL;
    derive(1);
    CHECK_ARRAY(m.query_start_loc, 0, 5, 10, 26);
    assert_int_equal(m.num_prefills, 3);
    assert_int_equal(m.num_prefill_tokens, 26);
    assert_int_equal(m.num_decodes, 0);
    assert_int_equal(m.n_real, 26);
    assert_int_equal(m.n_tokens, 27);
    CHECK_ARRAY(m.cache_indices, 2, 3, 4, -1);
    assert_null(m.chunk_indices);
}

static void metadata_mixed_native_split(void **state) {
    (void)state;
    const int32_t len[] = {5, 3};
    const int32_t seq[] = {7, 1};
    setup(HB_MODE_MIXED, 2, zeros, len, 2, seq, 1);
    derive(1);
    assert_int_equal(m.num_prefills, 2);
    assert_int_equal(m.num_prefill_tokens, 8);
    assert_int_equal(m.num_decodes, 2);
    assert_int_equal(m.n_update_rows, 2);
    assert_int_equal(m.n_real, 10);
    CHECK_ARRAY(m.query_start_loc, 0, 5, 8, 9, 10);
    CHECK_ARRAY(m.seq_lens, 5, 3, 7, 1);
}

static void metadata_mixed_with_one_prefill_row(void **state) {
    (void)state;
    const int32_t len[] = {6};
    const int32_t seq[] = {2, 3, 4};
    setup(HB_MODE_MIXED, 1, zeros, len, 3, seq, 0);
    derive(1);
    CHECK_ARRAY(m.query_start_loc, 0, 6, 7, 8, 9);
    assert_int_equal(m.num_decodes, 3);
}

static void metadata_initial_states_are_the_sign_of_the_prefix(void **state) {
    (void)state;
    const int32_t prefix[] = {0, 1, 7};
    const int32_t len[] = {8, 3, 2};
    setup(HB_MODE_EXTEND, 3, prefix, len, 0, NULL, 0);
    fixture_track(&f, 0, TRACK_SLOT, 8);
    derive(1);
    CHECK_ARRAY(m.has_initial_states, 0, 1, 1);
    assert_int_equal(m.prep_initial_states, 1);
    setup(HB_MODE_EXTEND, 3, zeros, len, 0, NULL, 0);
    derive(1);
    assert_int_equal(m.prep_initial_states, 0);
}

static void metadata_seq_idx(void **state) {
    (void)state;
    const int32_t len[] = {2, 3};
    setup(HB_MODE_EXTEND, 2, zeros, len, 0, NULL, 0);
    derive(0);
    CHECK_ARRAY(m.seq_idx, 0, 0, 1, 1, 1);
}

static void check_chunks(int32_t n, const int32_t *len, int32_t chunk, int32_t n_chunks,
                         const int32_t *indices, const int32_t *offsets) {
    int32_t prefix[ROWS] = {1};
    setup(HB_MODE_EXTEND, n, prefix, len, 0, NULL, 0);
    f.config.chunk_size = chunk;
    derive(0);
    assert_int_equal(m.n_chunks, n_chunks);
    check_array(m.chunk_indices, indices, (size_t)n_chunks);
    check_array(m.chunk_offsets, offsets, (size_t)n_chunks);
}

#define INTS(...)                                                                                  \
    (const int32_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }

static void metadata_chunk_tables(void **state) {
    (void)state;
    check_chunks(2, INTS(5, 5), 8, 3, INTS(0, 0, 1), INTS(0, 5, 0));
    check_chunks(3, INTS(5, 5, 16), 8, 6, INTS(0, 0, 1, 1, 2, 3), INTS(0, 5, 0, 2, 0, 0));
    check_chunks(2, INTS(8, 8), 8, 2, INTS(0, 1), INTS(0, 0));
    check_chunks(3, INTS(3, 1, 1), 8, 3, INTS(0, 0, 0), INTS(0, 3, 4));
    check_chunks(2, INTS(7, 13), 8, 4, INTS(0, 0, 1, 2), INTS(0, 7, 0, 0));
    check_chunks(4, INTS(1, 1, 1, 1), 2, 4, INTS(0, 0, 1, 1), INTS(0, 1, 0, 1));
}

static void metadata_chunk_tables_fit_when_every_token_is_a_chunk(void **state) {
    (void)state;
    const int32_t prefix[] = {1};
    const int32_t len[] = {TOKENS};
    setup(HB_MODE_EXTEND, 0, NULL, NULL, 0, NULL, 0);
    f.config.chunk_size = 1;
    f.config.max_context = TOKENS + 1;
    f.batch.batch_size = f.batch.original_batch_size = f.batch.n_extend = 1;
    f.batch.extend_num_tokens = f.batch.n_tokens = TOKENS;
    f.ext[0] = len[0];
    f.prefix[0] = prefix[0];
    derive(0);
    assert_int_equal(m.n_chunks, TOKENS);
}

/* tracking.md section 4, first worked example: C = CC = 16. */
static void metadata_track_lengths(void **state) {
    (void)state;
    const int32_t prefix[] = {0, 16, 0};
    const int32_t len[] = {40, 30, 64};
    setup(HB_MODE_EXTEND, 3, prefix, len, 0, NULL, 0);
    f.config.chunk_size = 16;
    fixture_track(&f, 0, 9, 40);
    fixture_track(&f, 1, 10, 46);
    fixture_track(&f, 2, 11, 64);
    derive(1);
    CHECK_ARRAY(m.track_conv_len, 32, 16, 64);
    CHECK_ARRAY(m.track_ssm_len, 32, 16, 64);
    CHECK_ARRAY(m.track_dst, 9, 10, 11);
    assert_int_equal(m.n_tracked, 3);
    assert_int_equal(m.n_copies, 0);
}

/* tracking.md section 4, second: final, and on the grid. */
static void metadata_track_lengths_on_the_grid(void **state) {
    (void)state;
    const int32_t prefix[] = {0, 16};
    const int32_t len[] = {16, 30};
    setup(HB_MODE_EXTEND, 2, prefix, len, 0, NULL, 0);
    f.config.chunk_size = 16;
    fixture_track(&f, 0, 9, 16);
    fixture_track(&f, 1, 10, 46);
    derive(1);
    CHECK_ARRAY(m.track_conv_len, 16, 16);
    CHECK_ARRAY(m.track_ssm_len, 16, 16);
    CHECK_ARRAY(m.track_dst, 9, 10);
}

/* metadata.md section 3, first and second row. */
static void metadata_query_start_of_decode_and_uniform_verify(void **state) {
    (void)state;
    const int32_t seq[] = {3, 4, 5};
    setup(HB_MODE_DECODE, 0, NULL, NULL, 3, seq, 0);
    derive(0);
    CHECK_ARRAY(m.query_start_loc, 0, 1, 2, 3, INT32_MIN);
    fixture_tables(&f);
    fixture_verify(&f, 3, 2, seq, NULL, 0);
    derive(0);
    CHECK_ARRAY(m.query_start_loc, 0, 3, 6, INT32_MIN);
}

static void metadata_track_branching_point_and_untracked_rows(void **state) {
    (void)state;
    const int32_t len[] = {16, 40};
    setup(HB_MODE_EXTEND, 2, zeros, len, 0, NULL, 0);
    f.config.chunk_size = 16;
    fixture_track(&f, 1, TRACK_SLOT, 17);
    derive(1);
    CHECK_ARRAY(m.track_conv_len, 0, 16);
    CHECK_ARRAY(m.track_dst, -1, TRACK_SLOT);
}

/* tracking.md section 7.2: one grid of max(C, page) for both halves. */
static void metadata_track_uses_the_cache_chunk(void **state) {
    (void)state;
    const int32_t len[] = {50};
    setup(HB_MODE_EXTEND, 1, zeros, len, 0, NULL, 0);
    f.config.chunk_size = 16;
    f.config.page_size = 32;
    fixture_track(&f, 0, TRACK_SLOT, 50);
    derive(1);
    CHECK_ARRAY(m.track_conv_len, 32);
    CHECK_ARRAY(m.track_ssm_len, 32);
}

/* tracking.md section 5, example. */
static void metadata_decode_copies_masked_rows(void **state) {
    (void)state;
    const int32_t seq[] = {64, 65, 128};
    setup(HB_MODE_DECODE, 0, NULL, NULL, 3, seq, 1);
    f.config.max_context = 128;
    f.req_to_slot[7] = 3;
    f.req_to_slot[6] = 5;
    f.req_to_slot[5] = 7;
    fixture_track(&f, 0, 11, -1);
    fixture_track(&f, 2, 12, -1);
    f.batch.mamba_track_seqlens.data = NULL;
    derive(0);
    assert_int_equal(m.n_copies, 2);
    CHECK_ARRAY(m.copy_src, 3, 7);
    CHECK_ARRAY(m.copy_dst, 11, 12);
    assert_int_equal(m.n_tracked, 0);
}

static void metadata_attention_table_is_the_live_part(void **state) {
    (void)state;
    const int32_t seq[] = {3, 1};
    setup(HB_MODE_DECODE, 0, NULL, NULL, 2, seq, 1);
    derive(1);
    assert_int_equal(m.table_cols, 3);
    const int32_t first = 7 * CONTEXT + 1;
    CHECK_ARRAY(m.req_to_token, first, first + 1, first + 2, 6 * CONTEXT + 1, -1, -1);
    CHECK_ARRAY(m.out_cache_loc, first + 2, 6 * CONTEXT + 1);
}

static void metadata_arrays_end_in_a_guard_word(void **state) {
    (void)state;
    const int32_t seq[] = {3, 1};
    setup(HB_MODE_DECODE, 0, NULL, NULL, 2, seq, 0);
    derive(1);
    assert_int_equal(m.cache_indices[2], INT32_MIN);
    assert_int_equal(m.query_start_loc[3], INT32_MIN);
    assert_int_equal(m.req_to_token[6], INT32_MIN);
}

static void metadata_verify_uniform(void **state) {
    (void)state;
    const int32_t seq[] = {4, 9};
    fixture_tables(&f);
    fixture_verify(&f, 3, 2, seq, NULL, 1);
    derive(1);
    CHECK_ARRAY(m.query_start_loc, 0, 3, 6, 9);
    CHECK_ARRAY(m.cache_indices, 2, 3, -1);
    CHECK_ARRAY(m.seq_lens, 7, 12);
    assert_int_equal(m.table_cols, 12);
    CHECK_ARRAY(m.out_cache_loc, 7 * CONTEXT + 5, 7 * CONTEXT + 6, 7 * CONTEXT + 7);
    assert_int_equal(m.req_to_token[6], 7 * CONTEXT + 7);
    assert_int_equal(m.req_to_token[7], -1);
    assert_int_equal(m.n_verify_rows, 3);
    assert_int_equal(m.num_decodes, 2);
    assert_int_equal(m.n_update_rows, 0);
    assert_int_equal(m.num_prefills, 0);
    assert_int_equal(m.n_real, 6);
    assert_false(m.is_tree);
    assert_int_equal(m.parents[0], INT32_MIN);
}

/* metadata.md section 3: lens 3, 1, 2. */
static void metadata_verify_ragged(void **state) {
    (void)state;
    const int32_t seq[] = {4, 9, 1};
    const int32_t nodes[] = {3, 1, 2};
    fixture_tables(&f);
    fixture_verify(&f, 3, 3, seq, nodes, 0);
    derive(1);
    CHECK_ARRAY(m.query_start_loc, 0, 3, 4, 6);
    CHECK_ARRAY(m.seq_lens, 7, 10, 3);
    assert_int_equal(m.n_real, 6);
    fixture_verify(&f, 3, 2, seq, nodes, 1); /* a padding row owns tokens too */
    derive(0);
    CHECK_ARRAY(m.query_start_loc, 0, 3, 4, 7);
    assert_int_equal(m.n_real, 4);
    f.batch.batch_size = f.batch.original_batch_size = 0;
    derive(0);
    CHECK_ARRAY(m.query_start_loc, 0, INT32_MIN);
}

/* The examples of speculative.md section 3; a trailing unused node's parent is 0. */
static void metadata_verify_parents(void **state) {
    (void)state;
    const int32_t seq[] = {4, 9};
    const int32_t nodes[] = {6, 3};
    const int32_t chain[] = {1, 2, 3, -1};
    for (int32_t defect = 0; defect <= HB_DEFECT_VERIFY_CONV_STORED; defect++) {
        fixture_tables(&f);
        f.config.defect = defect;
        fixture_verify(&f, 6, 2, seq, nodes, 1);
        fixture_tree(&f);
        derive(0);
        assert_true(m.is_tree);
        const int32_t two = HB_DEFECT(defect, VERIFY_SIBLING) ? 1 : 0;
        CHECK_ARRAY(m.parents, 0, 0, two, 1, 2, 0, 0, 0, 0, two, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                    INT32_MIN);
    }
    fixture_tables(&f);
    fixture_verify(&f, 4, 1, seq, NULL, 0);
    fixture_tree(&f);
    memcpy(f.next, chain, sizeof(chain));
    memset(f.sibling, 0xff, sizeof(f.sibling));
    derive(0);
    CHECK_ARRAY(m.parents, 0, 0, 1, 2, 0, 0, 0, INT32_MIN);
}

static void metadata_verify_fits_at_its_largest(void **state) {
    (void)state;
    const int32_t seq[] = {57, 57, 57, 57, 57, 57};
    fixture_tables(&f);
    f.config.max_tokens = SPEC_ROWS * MAX_DRAFT;
    f.config.max_batch = SPEC_ROWS;
    fixture_verify(&f, MAX_DRAFT, SPEC_ROWS, seq, NULL, 0);
    fixture_tree(&f);
    derive(1);
    assert_int_equal(m.table_cols, CONTEXT);
    f.config.max_tokens = SPEC_ROWS; /* rows of one node in caches of many */
    f.config.max_draft = 50;
    fixture_verify(&f, 1, SPEC_ROWS, seq, NULL, 0);
    fixture_tree(&f);
    derive(0);
    CHECK_ARRAY(m.parents + SPEC_ROWS * 50, INT32_MIN);
}

static void metadata_capacity_saturates(void **state) {
    (void)state;
    fixture_tables(&f);
    f.config.max_batch = INT32_MAX;
    f.config.max_context = INT32_MAX;
    assert_true(hb_metadata_capacity(&f.config, 1) > INT64_MAX / 4);
    assert_true(hb_metadata_capacity(&f.config, 0) > 0);
}

static void metadata_defects_fire_only_when_picked(void **state) {
    (void)state;
    const int32_t prefix[] = {0, 4};
    const int32_t len[] = {12, 8};
    for (int32_t defect = 0; defect <= HB_DEFECT_VERIFY_CONV_STORED; defect++) {
        setup(HB_MODE_EXTEND, 2, prefix, len, 0, NULL, 0);
        f.config.defect = defect;
        fixture_track(&f, 0, TRACK_SLOT, 9);
        derive(1);
        const int fires = HB_DEFECT(defect, TRACK_POSITION);
        CHECK_ARRAY(m.track_conv_len, 8, 0);
        CHECK_ARRAY(m.track_ssm_len, fires ? 4 : 8, 0);
        assert_int_equal(m.has_initial_states[1], !HB_DEFECT(defect, INIT_STATE_MASK));
    }
}

static int free_block(void **state) {
    (void)state;
    free(block);
    block = NULL;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metadata_cache_indices_poison_padding_after_the_gather),
        cmocka_unit_test(metadata_idle_reads_no_array),
        cmocka_unit_test(metadata_extend_query_start),
        cmocka_unit_test(metadata_mixed_native_split),
        cmocka_unit_test(metadata_mixed_with_one_prefill_row),
        cmocka_unit_test(metadata_initial_states_are_the_sign_of_the_prefix),
        cmocka_unit_test(metadata_seq_idx),
        cmocka_unit_test(metadata_chunk_tables),
        cmocka_unit_test(metadata_chunk_tables_fit_when_every_token_is_a_chunk),
        cmocka_unit_test(metadata_track_lengths),
        cmocka_unit_test(metadata_track_lengths_on_the_grid),
        cmocka_unit_test(metadata_query_start_of_decode_and_uniform_verify),
        cmocka_unit_test(metadata_track_branching_point_and_untracked_rows),
        cmocka_unit_test(metadata_track_uses_the_cache_chunk),
        cmocka_unit_test(metadata_decode_copies_masked_rows),
        cmocka_unit_test(metadata_attention_table_is_the_live_part),
        cmocka_unit_test(metadata_arrays_end_in_a_guard_word),
        cmocka_unit_test(metadata_verify_uniform),
        cmocka_unit_test(metadata_verify_ragged),
        cmocka_unit_test(metadata_verify_parents),
        cmocka_unit_test(metadata_verify_fits_at_its_largest),
        cmocka_unit_test(metadata_capacity_saturates),
        cmocka_unit_test(metadata_defects_fire_only_when_picked),
    };
    return cmocka_run_group_tests(tests, NULL, free_block);
}
