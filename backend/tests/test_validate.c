/* SPDX-License-Identifier: Apache-2.0
 * Batch rules: each fires on a batch with one fault, is silent on the valid batch, and for any two
 * faults the rule with the lower number wins. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <limits.h>
#include <string.h>

#include "backend/defects.h"
#include "backend/tests/batch_faults.h"

static void validate_accepts_the_bases(void **state) {
    (void)state;
    for (int32_t base = E; base <= LAST_BASE; base++) {
        struct hb_error err;
        make_base(base);
        assert_int_equal(validate(&err), HB_OK);
        assert_string_equal(err.text, "");
    }
}

static void validate_each_rule_fires(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FAULTS; i++) {
        const struct fault *x = &faults[i];
        struct hb_error err;
        make_base(x->base);
        x->apply();
        (void)validate(&err);
        if (err.rule != x->rule || err.row != x->row || err.value != x->value ||
            err.limit != x->limit) {
            fail_msg("fault %zu, rule %d %s: got %d row %d value %lld limit %lld: %s", i, x->rule,
                     hb_rule_name(x->rule), err.rule, err.row, (long long)err.value,
                     (long long)err.limit, err.text);
        }
        assert_int_equal(err.status, hb_rule_status(x->rule));
    }
}

static void validate_every_batch_rule_has_a_fault(void **state) {
    (void)state;
    const int32_t *numbers;
    const int n = hb_rule_list(&numbers);
    for (int i = 0; i < n; i++) {
        int covered = numbers[i] < 9 || numbers[i] > 141;
        /* of backends that lack a mode; this one has all */
        covered |= numbers[i] == HB_RULE_MODE_UNSUPPORTED;
        /* rules of commits: test_spec_verify.c */
        covered |= numbers[i] == HB_RULE_NO_VERIFY || numbers[i] == HB_RULE_COMMIT_NULL;
        covered |= hb_rule_name(numbers[i]) != NULL &&
                   strncmp(hb_rule_name(numbers[i]), "COMMIT_", 7) == 0;
        /* rules of layer calls: test_hybrid.c */
        covered |= numbers[i] == HB_RULE_NO_METADATA || numbers[i] == HB_RULE_LAYER_TWICE;
        covered |= numbers[i] == HB_RULE_IO_NULL || numbers[i] == HB_RULE_IO_BYTES;
        covered |= numbers[i] == HB_RULE_LAYER_RANGE || numbers[i] == HB_RULE_RING_LAYERS;
        for (size_t k = 0; k < N_FAULTS && !covered; k++) {
            covered = faults[k].rule == numbers[i];
        }
        if (!covered) {
            fail_msg("no fault for rule %d", numbers[i]);
        }
    }
}

/* Pairs in which the second fault takes the first one away: {first, second, what is left}. */
static const int32_t hidden[][4] = {
    {D, HB_RULE_REQ_NULL, HB_RULE_BATCH_NEGATIVE, HB_RULE_BATCH_NEGATIVE},
    {V, HB_RULE_REQ_NULL, HB_RULE_BATCH_NEGATIVE, HB_RULE_BATCH_NEGATIVE},
    {D, HB_RULE_REQ_TO_TOKEN_NULL, HB_RULE_BATCH_NEGATIVE, HB_RULE_BATCH_NEGATIVE},
    {E, HB_RULE_CACHE_LOC_NULL, HB_RULE_TOKENS_NEGATIVE, HB_RULE_TOKENS_NEGATIVE},
    {D, HB_RULE_TOKENS_SHORT, HB_RULE_ORIGINAL_RANGE,
     HB_RULE_CACHE_LOC_LENGTH}, /* -3 real rows need no token */
    {D, HB_RULE_TRACK_SLOT_FREED, HB_RULE_TRACK_ALIAS_ROW,
     HB_RULE_TRACK_ALIAS_ROW}, /* another destination */
    /* a batch size that no graph can have was neither captured nor not */
    {CD, HB_RULE_GRAPH_TWICE, HB_RULE_BATCH_NEGATIVE, HB_RULE_BATCH_NEGATIVE},
    {CD, HB_RULE_GRAPH_TWICE, HB_RULE_GRAPH_CAPACITY, HB_RULE_GRAPH_CAPACITY},
    {RD, HB_RULE_GRAPH_NOT_CAPTURED, HB_RULE_BATCH_NEGATIVE, HB_RULE_BATCH_NEGATIVE},
    {RD, HB_RULE_GRAPH_NOT_CAPTURED, HB_RULE_GRAPH_CAPACITY, HB_RULE_GRAPH_CAPACITY},
    {RD, HB_RULE_GRAPH_MODE, HB_RULE_BATCH_NEGATIVE, HB_RULE_BATCH_NEGATIVE},
    {RD, HB_RULE_GRAPH_MODE, HB_RULE_GRAPH_CAPACITY, HB_RULE_GRAPH_CAPACITY},
    {RI, HB_RULE_GRAPH_NOT_CAPTURED, HB_RULE_BATCH_NEGATIVE, HB_RULE_BATCH_NEGATIVE},
    {RI, HB_RULE_GRAPH_NOT_CAPTURED, HB_RULE_GRAPH_CAPACITY, HB_RULE_GRAPH_CAPACITY},
    {RI, HB_RULE_GRAPH_MODE, HB_RULE_BATCH_NEGATIVE, HB_RULE_BATCH_NEGATIVE},
    {RI, HB_RULE_GRAPH_MODE, HB_RULE_GRAPH_CAPACITY, HB_RULE_GRAPH_CAPACITY},
    {RD, HB_RULE_REQ_NULL, HB_RULE_BATCH_NEGATIVE, HB_RULE_BATCH_NEGATIVE},
    {RD, HB_RULE_REQ_TO_TOKEN_NULL, HB_RULE_BATCH_NEGATIVE, HB_RULE_BATCH_NEGATIVE},
    {RD, HB_RULE_TRACK_SLOT_FREED, HB_RULE_TRACK_ALIAS_ROW, HB_RULE_TRACK_ALIAS_ROW},
};

static int32_t rule_of_pair(const struct fault *a, const struct fault *b) {
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        if (hidden[i][0] == a->base && hidden[i][1] == a->rule && hidden[i][2] == b->rule) {
            return hidden[i][3];
        }
    }
    return a->apply == prefix_null && b->apply == n_extend_negative ? b->rule : a->rule;
}

/* Two faults of one base: the lower number wins. */
static void validate_lower_rule_wins_in_every_pair(void **state) {
    (void)state;
    int n_pairs = 0;
    for (size_t i = 0; i < N_FAULTS; i++) {
        for (size_t k = 0; k < N_FAULTS; k++) {
            const struct fault *a = &faults[i];
            const struct fault *b = &faults[k];
            struct hb_error err;
            if (a->base != b->base || a->rule >= b->rule) {
                continue;
            }
            make_base(a->base);
            b->apply();
            a->apply();
            (void)validate(&err);
            n_pairs++;
            if (err.rule != rule_of_pair(a, b)) {
                fail_msg("base %d, rules %d and %d: got %d", a->base, a->rule, b->rule, err.rule);
            }
        }
    }
    assert_true(n_pairs > 1000);
}

static void validate_modes_by_number(void **state) {
    (void)state;
    const int32_t invalid[] = {0, 7, 10, -1, INT_MAX, INT_MIN, 11, 255, 258};
    struct hb_error err;
    for (size_t i = 0; i < sizeof(invalid) / sizeof(invalid[0]); i++) {
        memset(&f.batch, 0xff,
               sizeof(f.batch)); /* wins over every other fault, wild pointers included */
        f.batch.forward_mode = invalid[i];
        hb_error_clear(&err);
        assert_int_equal(hb_validate_batch(&f.env, &f.batch, &err), HB_ERR_INVALID_MODE);
        assert_int_equal(err.rule, HB_RULE_MODE_INVALID);
        assert_true(err.value == invalid[i]);
        assert_int_equal(strncmp(err.text, "Invalid forward mode: forward_batch.forward_mode=", 49),
                         0);
    }
    assert_int_equal(hb_validate_batch(&f.env, NULL, NULL), HB_ERR_NULL);
}

static void validate_extend_family_is_one(void **state) {
    (void)state;
    const int32_t modes[] = {HB_MODE_EXTEND, HB_MODE_MIXED, HB_MODE_SPLIT_PREFILL,
                             HB_MODE_DLLM_EXTEND};
    for (size_t i = 0; i < 4; i++) {
        struct hb_error err;
        make_base(E);
        f.batch.forward_mode = modes[i];
        assert_int_equal(validate(&err), HB_OK);
    }
}

/* An address that faults when it is read. */
static const void *wild(void) {
    return (const void *)(uintptr_t)8; // NOLINT(performance-no-int-to-ptr): the number is the point
}

static void validate_idle_reads_no_array(void **state) {
    (void)state;
    struct hb_error err;
    make_base(I);
    f.batch.n_extend = -5;
    f.batch.req_pool_indices = (struct hb_i32s){wild(), 77};
    f.batch.seq_lens = f.batch.req_pool_indices;
    f.batch.out_cache_loc = f.batch.req_pool_indices;
    f.batch.req_to_token = f.batch.req_pool_indices;
    f.batch.mamba_track_mask = (struct hb_u8s){wild(), 77};
    assert_int_equal(validate(&err), HB_OK);
}

static void validate_draft_extend_reads_no_array(void **state) {
    (void)state;
    struct hb_error err;
    make_base(I);
    f.batch.forward_mode = HB_MODE_DRAFT_EXTEND_V2;
    f.batch.n_extend = -5;
    f.batch.original_batch_size = 99;
    f.batch.req_pool_indices = (struct hb_i32s){wild(), 77};
    f.batch.seq_lens = f.batch.req_pool_indices;
    f.batch.out_cache_loc = f.batch.req_pool_indices;
    f.batch.extend_seq_lens = f.batch.req_pool_indices;
    f.batch.ragged_verify_layout = f.batch.req_pool_indices;
    f.batch.mamba_track_mask = (struct hb_u8s){wild(), 77};
    assert_int_equal(validate(&err), HB_OK);
    f.config.max_tokens = 1;
    (void)validate(&err);
    assert_int_equal(err.rule, HB_RULE_TOKENS_CAPACITY);
    f.config.max_batch = 2;
    (void)validate(&err);
    assert_int_equal(err.rule, HB_RULE_BATCH_CAPACITY);
    f.batch.n_tokens = -1;
    (void)validate(&err);
    assert_int_equal(err.rule, HB_RULE_TOKENS_NEGATIVE);
    f.batch.batch_size = -1;
    (void)validate(&err);
    assert_int_equal(err.rule, HB_RULE_BATCH_NEGATIVE);
}

static void validate_verify_ignores_extend_and_track_fields(void **state) {
    (void)state;
    struct hb_error err;
    const struct hb_i32s unread = {wild(), 77};
    make_base(T);
    f.batch.n_extend = 99;
    f.batch.has_extend_num_tokens = 1;
    f.batch.extend_num_tokens = INT64_MIN;
    f.batch.extend_seq_lens = unread;
    f.batch.extend_seq_lens_cpu = unread;
    f.batch.extend_prefix_lens = unread;
    f.batch.extend_start_loc = unread;
    f.batch.mamba_track_seqlens = (struct hb_i64s){wild(), 77};
    f.batch.mamba_track_indices = (struct hb_i64s){wild(), 77};
    assert_int_equal(validate(&err), HB_OK);
    memset(&f.batch.mamba_track_mask, 0, sizeof(struct hb_u8s));
    memset(&f.batch.mamba_track_indices, 0, sizeof(struct hb_i64s));
    assert_int_equal(validate(&err), HB_OK);
}

static void validate_verify_accepts(void **state) {
    (void)state;
    const int32_t seq[] = {6, 9, 3};
    const int32_t nodes[] = {1, 2, 5};
    struct hb_error err;
    make_base(
        G); /* links of padding rows, and of nodes that a row has not, are not read as links */
    f.next[5 + 3] = f.sibling[5 + 4] = f.next[10] = f.sibling[14] = 99;
    assert_int_equal(validate(&err), HB_OK);
    make_base(T); /* trailing orphans, all siblings */
    memset(f.next, 0xff, sizeof(f.next));
    memset(f.sibling, 0xff, sizeof(f.sibling));
    assert_int_equal(validate(&err), HB_OK);
    f.next[0] = 1;
    f.sibling[1] = 2;
    f.sibling[2] = 3;
    assert_int_equal(validate(&err), HB_OK);
    fixture_tables(&f); /* no padding, limits reached */
    fixture_verify(&f, 5, 3, seq, nodes, 0);
    fixture_tree(&f);
    f.config.max_draft = 5;
    f.config.spec_rows = f.config.max_batch = 3;
    f.config.max_tokens = 8;
    assert_int_equal(validate(&err), HB_OK);
    make_base(G); /* padding rows without nodes, or with as many as allowed */
    f.layout[3] = f.batch.n_tokens = 8;
    f.batch.out_cache_loc.len = 8;
    assert_int_equal(validate(&err), HB_OK);
    make_base(V); /* without caches: nothing to do is no error */
    no_spec();
    f.batch.batch_size = f.batch.original_batch_size = f.batch.n_tokens = 0;
    memset(&f.batch.req_pool_indices, 0, sizeof(struct hb_i32s));
    memset(&f.batch.seq_lens, 0, sizeof(struct hb_i32s));
    memset(&f.batch.mamba_track_mask, 0, sizeof(struct hb_u8s));
    memset(&f.batch.out_cache_loc, 0, sizeof(struct hb_i32s));
    assert_int_equal(validate(&err), HB_OK);
    f.batch.draft_token_num = INT_MIN;
    (void)validate(&err);
    assert_int_equal(err.rule, HB_RULE_DRAFT_RANGE);
}

static void validate_verify_link_order_inside_a_row(void **state) {
    (void)state;
    struct hb_error err;
    make_base(T); /* next_token of all nodes before next_sibling */
    f.sibling[0] = -5;
    f.next[4] = 9;
    (void)validate(&err);
    assert_true(err.rule == HB_RULE_LINK_RANGE && err.value == 9);
    make_base(T);
    f.sibling[0] = 3;
    f.next[4] = 2;
    (void)validate(&err);
    assert_true(err.rule == HB_RULE_LINK_ORDER && err.value == 2 && err.limit == 4);
}

static void validate_verify_dummy_rows_share_slot_zero(void **state) {
    (void)state;
    struct hb_error err;
    make_base(V);
    f.req_to_slot[7] = f.req_to_slot[6] = 0;
    f.batch.is_dummy = 1;
    assert_int_equal(validate(&err), HB_OK);
}

static void validate_decode_ignores_extend_fields(void **state) {
    (void)state;
    struct hb_error err;
    const struct hb_i32s unread = {wild(), 77};
    make_base(D);
    f.batch.n_extend = 99;
    f.batch.has_extend_num_tokens = 1;
    f.batch.extend_num_tokens = INT64_MIN;
    f.batch.extend_seq_lens = unread;
    f.batch.extend_seq_lens_cpu = unread;
    f.batch.extend_prefix_lens = unread;
    f.batch.extend_start_loc = unread;
    f.batch.mamba_track_seqlens = (struct hb_i64s){wild(), 77};
    assert_int_equal(validate(&err), HB_OK);
}

static void validate_optional_arrays_may_be_absent(void **state) {
    (void)state;
    struct hb_error err;
    make_base(E);
    f.mask[0] = 0;
    memset(&f.batch.extend_seq_lens_cpu, 0, sizeof(struct hb_i32s));
    memset(&f.batch.extend_start_loc, 0, sizeof(struct hb_i32s));
    memset(&f.batch.mamba_track_indices, 0, sizeof(struct hb_i64s));
    memset(&f.batch.mamba_track_seqlens, 0, sizeof(struct hb_i64s));
    assert_int_equal(validate(&err), HB_OK);
    f.batch.mamba_track_mask.len = 2;
    assert_int_equal(validate(&err), HB_ERR_SHAPE);
    memset(&f.batch.mamba_track_mask, 0, sizeof(struct hb_u8s));
    assert_int_equal(validate(&err), HB_OK);
    f.env.has_attention = 0;
    memset(&f.batch.out_cache_loc, 0, sizeof(struct hb_i32s));
    memset(&f.batch.req_to_token, 0, sizeof(struct hb_i32s));
    assert_int_equal(validate(&err), HB_OK);
}

static void validate_empty_batches(void **state) {
    (void)state;
    const int32_t modes[] = {1, 2, 3, 4, 5, 8, 9};
    for (size_t i = 0; i < 7; i++) {
        struct hb_error err;
        fixture_tables(&f);
        f.batch.forward_mode = modes[i];
        f.batch.has_extend_num_tokens = 1;
        f.batch.draft_token_num = 1;
        assert_int_equal(validate(&err), HB_OK);
        f.batch.req_pool_indices = (struct hb_i32s){f.req, 2};
        assert_int_equal(validate(&err), modes[i] == 4 ? HB_OK : HB_ERR_SHAPE);
    }
}

static void validate_dummy_calls_share_slot_zero(void **state) {
    (void)state;
    struct hb_error err;
    make_base(D);
    f.mask[1] = 0;
    f.req_to_slot[7] = f.req_to_slot[6] = 0;
    assert_int_equal(validate(&err), HB_ERR_RANGE);
    f.batch.is_dummy = 1;
    assert_int_equal(validate(&err), HB_OK);
    f.req_to_slot[7] = f.req_to_slot[6] = 3;
    assert_int_equal(validate(&err), HB_ERR_DUPLICATE);
    f.req_to_slot[7] = -1;
    assert_int_equal(validate(&err), HB_ERR_RANGE);
}

/* Lengths whose 32-bit sums wrap: rows of 2^31-1 tokens sum to what a 32-bit sum would call -2. */
static void validate_sums_are_wide(void **state) {
    (void)state;
    struct hb_error err;
    make_base(E);
    memset(&f.batch.extend_start_loc, 0, sizeof(struct hb_i32s));
    f.ext[0] = f.ext[1] = f.cpu[0] = f.cpu[1] = INT_MAX;
    f.batch.extend_num_tokens = -2;
    assert_int_equal(validate(&err), HB_ERR_SHAPE);
    assert_int_equal(err.rule, HB_RULE_EXTEND_NUM_VALUE);
    assert_true(err.limit == 2 * (int64_t)INT_MAX);
    f.batch.extend_num_tokens = 2 * (int64_t)INT_MAX;
    (void)validate(&err);
    assert_int_equal(err.rule, HB_RULE_TOKENS_SHORT);
    assert_true(err.limit == 2 * (int64_t)INT_MAX);
}

static void validate_negative_real_rows_are_range(void **state) {
    (void)state;
    struct hb_error err;
    make_base(E);
    f.mask[0] = 0;
    f.batch.original_batch_size = f.batch.n_extend = -5;
    f.batch.extend_num_tokens = 0;
    memset(&f.batch.extend_seq_lens, 0, sizeof(struct hb_i32s));
    memset(&f.batch.extend_seq_lens_cpu, 0, sizeof(struct hb_i32s));
    memset(&f.batch.extend_prefix_lens, 0, sizeof(struct hb_i32s));
    memset(&f.batch.extend_start_loc, 0, sizeof(struct hb_i32s));
    (void)validate(&err);
    assert_int_equal(err.rule, HB_RULE_ORIGINAL_RANGE);
    assert_int_equal(err.value, -5);
}

static void validate_lowest_row_wins(void **state) {
    (void)state;
    struct hb_error err;
    make_base(D);
    f.req_to_slot[5] = f.req_to_slot[6] = 99;
    (void)validate(&err);
    assert_int_equal(err.row, 1);
    make_base(D);
    f.slot_kind[4] = f.slot_kind[3] = HB_SLOT_FREE;
    (void)validate(&err);
    assert_int_equal(err.row, 1);
}

static void validate_limits_are_inclusive(void **state) {
    (void)state;
    struct hb_error err;
    make_base(E);
    f.config.max_batch = f.batch.batch_size;
    f.config.max_tokens = f.batch.n_tokens;
    assert_int_equal(validate(&err), HB_OK);
    f.track_seqlens[0] = 8; /* prefix + CC */
    assert_int_equal(validate(&err), HB_OK);
    make_base(D);
    f.config.max_context = f.batch.req_to_token_cols = 64;
    f.req_to_slot[7] = SLOTS;
    f.slot_kind[SLOTS] = HB_SLOT_LIVE;
    assert_int_equal(validate(&err), HB_OK);
}

/* graph.md section 3. */
static void validate_replay_counts_padding(void **state) {
    (void)state;
    struct hb_error err;
    make_base(RD); /* 6, 9, 3, 1 */
    assert_int_equal(validate(&err), HB_OK);
    assert_int_equal(n_live_found, 3);
    f.cpu_lens[2] = 1;
    assert_int_equal(validate(&err), HB_OK);
    assert_int_equal(n_live_found, 2);
    f.mask[1] = 0;
    f.cpu_lens[0] = f.cpu_lens[1] = 1;
    assert_int_equal(validate(&err), HB_OK);
    assert_int_equal(n_live_found, 0);
    make_base(RD); /* the number that is given wins: a live row may have one token */
    f.batch.has_num_padding = f.batch.num_padding = 1;
    f.seq[2] = f.cpu_lens[2] = 1;
    f.loc[2] = *entry_of(2, 0);
    assert_int_equal(validate(&err), HB_OK);
    assert_int_equal(n_live_found, 3);
    make_base(RD); /* nothing is given */
    memset(&f.batch.seq_lens_cpu, 0, sizeof(struct hb_i32s));
    f.req[3] = 4;
    f.seq[3] = 2;
    f.loc[3] = *entry_of(3, 1);
    assert_int_equal(validate(&err), HB_OK);
    assert_int_equal(n_live_found, 4);
    make_base(RV);
    assert_int_equal(validate(&err), HB_OK);
    assert_int_equal(n_live_found, 2);
    make_base(RI);
    assert_int_equal(validate(&err), HB_OK);
    assert_int_equal(n_live_found, 0);
}

/* graph.md section 5: destinations of all rows are copied, mask or not; more of them are no fault.
 */
static void validate_replay_track_indices(void **state) {
    (void)state;
    struct hb_error err;
    make_base(RD);
    f.batch.mamba_track_indices.len = ROWS;
    assert_int_equal(validate(&err), HB_OK);
    f.mask[1] = 0;
    f.track_indices[1] = INT64_MIN; /* of no row that is tracked */
    assert_int_equal(validate(&err), HB_OK);
    f.batch.mamba_track_indices.len = 3;
    (void)validate(&err);
    assert_int_equal(err.rule, HB_RULE_TRACK_INDICES_LENGTH);
    memset(&f.batch.mamba_track_indices, 0, sizeof(struct hb_i64s));
    assert_int_equal(validate(&err), HB_OK);
}

#ifdef HB_DEFECTS
static void validate_defect_of_the_padding_count(void **state) {
    (void)state;
    struct hb_error err;
    make_base(RD);
    f.seq[0] = f.cpu_lens[0] = 1;
    f.loc[0] = *entry_of(0, 0);
    assert_int_equal(validate(&err), HB_ERR_RANGE);
    f.config.defect = HB_DEFECT_PAD_COUNT_MIDDLE;
    assert_int_equal(validate(&err), HB_OK);
    assert_int_equal(n_live_found, 2);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(validate_accepts_the_bases),
        cmocka_unit_test(validate_each_rule_fires),
        cmocka_unit_test(validate_every_batch_rule_has_a_fault),
        cmocka_unit_test(validate_lower_rule_wins_in_every_pair),
        cmocka_unit_test(validate_modes_by_number),
        cmocka_unit_test(validate_extend_family_is_one),
        cmocka_unit_test(validate_idle_reads_no_array),
        cmocka_unit_test(validate_draft_extend_reads_no_array),
        cmocka_unit_test(validate_verify_ignores_extend_and_track_fields),
        cmocka_unit_test(validate_verify_accepts),
        cmocka_unit_test(validate_verify_link_order_inside_a_row),
        cmocka_unit_test(validate_verify_dummy_rows_share_slot_zero),
        cmocka_unit_test(validate_decode_ignores_extend_fields),
        cmocka_unit_test(validate_optional_arrays_may_be_absent),
        cmocka_unit_test(validate_empty_batches),
        cmocka_unit_test(validate_dummy_calls_share_slot_zero),
        cmocka_unit_test(validate_sums_are_wide),
        cmocka_unit_test(validate_negative_real_rows_are_range),
        cmocka_unit_test(validate_lowest_row_wins),
        cmocka_unit_test(validate_limits_are_inclusive),
        cmocka_unit_test(validate_replay_counts_padding),
        cmocka_unit_test(validate_replay_track_indices),
#ifdef HB_DEFECTS
        cmocka_unit_test(validate_defect_of_the_padding_count),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
