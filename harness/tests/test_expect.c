/* SPDX-License-Identifier: Apache-2.0
 * The prediction of begin: each rule alone with its row, value and limit, and the violation tables
 * of forward-batch.md section 4 and tracking.md section 6 by hand. */
#include "harness/tests/expect_fixture.h"

static void valid_batches_are_ok_in_every_family(void **state) {
    static struct fixture f;
    struct hb_error e;
    (void)state;
    for (size_t m = 0; m < sizeof BASE_MODES / sizeof BASE_MODES[0]; m++) {
        fixture_init(&f, BASE_MODES[m]);
        call(&f, &e);
        assert_int_equal(e.status, HB_OK);
        assert_int_equal(e.rule, 0);
    }
}

static void each_rule_of_begin_alone_reports_row_value_and_limit(void **state) {
    static const int32_t modes[] = {HB_MODE_EXTEND, HB_MODE_DECODE, HB_MODE_MIXED, HB_MODE_IDLE};
    static struct fixture f;
    struct hb_error e;
    int called = 0;
    (void)state;
    for (int i = 0; i < N_RECIPES; i++) {
        const struct recipe *r = &RECIPES[i];
        int first = 1;
        for (int m = 0; m < 4; m++) {
            if ((r->families & family_of(modes[m])) == 0) {
                continue;
            }
            fixture_init(&f, modes[m]);
            r->apply(&f);
            call(&f, &e);
            if (first) {
                check(&e, r->rule, r->row, r->value, r->limit);
            }
            assert_int_equal(e.rule, r->rule);
            first = 0;
            called++;
        }
    }
    assert_true(called > 120);
}

static void every_begin_rule_of_the_table_has_a_recipe(void **state) {
    const int32_t *numbers = NULL;
    int n = hb_rule_list(&numbers);
    (void)state;
    for (int i = 0; i < n; i++) {
        int32_t rule = numbers[i];
        /* test_expect_verify.c, test_expect_commit.c */
        int of_verify = (rule >= 30 && rule <= 33) || (rule >= 60 && rule <= 66) || rule == 72 ||
                        rule == 73 || (rule >= 98 && rule <= 106) || rule == 112 || rule == 113 ||
                        rule == 115 || rule == 123 || rule == 133 || rule == 141 ||
                        rule == 142;
        /* test_expect_graph.c; 116 is of finish */
        int of_graphs = rule == 68 || rule == 69 || rule == 74 || rule == 78 || rule == 79 ||
                        rule == 116 || rule == 140;
        int of_begin = rule == 3 || rule == 10 || rule == 11 ||
                       (rule >= 20 && rule < 150 && !of_verify && !of_graphs);
        int found =
            rule == HB_RULE_IO_NULL || rule == HB_RULE_IO_BYTES || rule == HB_RULE_LAYER_RANGE;
        for (int j = 0; j < N_RECIPES; j++) {
            found |= RECIPES[j].rule == rule;
        }
        assert_true(found || !of_begin);
    }
}

static void begin_status(struct fixture *f, int32_t status, int32_t rule) {
    struct hb_error e;
    call(f, &e);
    assert_int_equal(e.rule, rule);
    assert_int_equal(e.status, status);
}

/* tracking.md section 6, row by row. */
static void tracking_violations_have_the_statuses_of_the_table(void **state) {
    static struct fixture f;
    (void)state;
    fixture_init(&f,
                 HB_MODE_DECODE); /* indices absent, any mode; seqlens absent is fine in decode */
    f.b.mamba_track_indices.data = NULL;
    begin_status(&f, HB_ERR_NULL, 25);
    fixture_init(&f, HB_MODE_EXTEND);
    f.b.mamba_track_seqlens = (struct hb_i64s){NULL, 0};
    begin_status(&f, HB_ERR_NULL, 26);
    fixture_init(&f, HB_MODE_EXTEND); /* len < CC */
    f.point[2] = f.prefix[2] + CC - 1;
    begin_status(&f, HB_ERR_RANGE, 91);
    fixture_init(&f, HB_MODE_EXTEND); /* T_i > prefix + extend */
    f.point[0] = INT64_MAX;
    begin_status(&f, HB_ERR_RANGE, 92);
    fixture_init(&f, HB_MODE_EXTEND); /* aligned but before the end */
    f.point[0] = 4;
    begin_status(&f, HB_OK, 0);
    fixture_init(&f, HB_MODE_EXTEND); /* two rows, one dst */
    f.track[2] = f.track[0];
    begin_status(&f, HB_ERR_DUPLICATE, 121);
    fixture_init(&f, HB_MODE_DECODE); /* dst is a live slot of the batch, its own */
    f.track[0] = 1;
    begin_status(&f, HB_ERR_ALIAS, 131);
    fixture_init(&f, HB_MODE_DECODE); /* dst -1, out of pool, 0 */
    f.track[0] = -1;
    begin_status(&f, HB_ERR_RANGE, 90);
    f.track[0] = NS + 1;
    begin_status(&f, HB_ERR_RANGE, 90);
    f.track[0] = 0;
    begin_status(&f, HB_ERR_RANGE, 90);
    f.track[0] = (INT64_C(1) << 32) + 6; /* 64-bit: no wrap into the pool */
    begin_status(&f, HB_ERR_RANGE, 90);
    f.track[0] = 8; /* free */
    begin_status(&f, HB_ERR_FREED, 111);
    f.track[0] = 4; /* live outside the batch */
    begin_status(&f, HB_ERR_ALIAS, 132);
    f.track[0] = 5; /* tree */
    begin_status(&f, HB_ERR_ALIAS, 132);
    fixture_init(&f, HB_MODE_EXTEND); /* padding row, decode row of MIXED */
    f.mask[3] = 1;
    begin_status(&f, HB_ERR_RANGE, 88);
    fixture_init(&f, HB_MODE_MIXED);
    f.mask[2] = 1;
    begin_status(&f, HB_ERR_RANGE, 89);
    fixture_init(&f, HB_MODE_EXTEND); /* live row mapped to -1 */
    f.table[1] = -1;
    begin_status(&f, HB_ERR_RANGE, 83);
    fixture_init(&f, HB_MODE_EXTEND); /* all false: as absent, but its length still counts */
    memset(f.mask, 0, sizeof f.mask);
    f.b.mamba_track_indices = (struct hb_i64s){NULL, 0};
    f.b.mamba_track_seqlens.len = 1;
    begin_status(&f, HB_OK, 0);
    f.b.mamba_track_mask.len = 3;
    begin_status(&f, HB_ERR_SHAPE, 53);
}

static void idle_reads_no_array(void **state) {
    static struct fixture f;
    (void)state;
    fixture_init(&f, HB_MODE_IDLE);
    f.b.req_pool_indices = (struct hb_i32s){NULL, 7};
    f.b.seq_lens = (struct hb_i32s){NULL, -1};
    f.b.mamba_track_mask = (struct hb_u8s){NULL, 9};
    f.b.req_to_token_rows = -5;
    f.b.n_extend = 77;
    begin_status(&f, HB_OK, 0);
    f.b.batch_size = 0;
    begin_status(&f, HB_OK, 0);
    f.b.batch_size = 7;
    begin_status(&f, HB_ERR_CAPACITY, 70);
}

static void decode_reads_no_extend_field(void **state) {
    static struct fixture f;
    (void)state;
    fixture_init(&f, HB_MODE_DECODE);
    f.b.n_extend = -3;
    f.b.has_extend_num_tokens = 1;
    f.b.extend_num_tokens = 99;
    f.b.extend_seq_lens = (struct hb_i32s){f.ext, 60};
    f.b.extend_start_loc = (struct hb_i32s){f.start, 2};
    f.b.mamba_track_seqlens = (struct hb_i64s){f.point, 1};
    begin_status(&f, HB_OK, 0);
}

static void a_dummy_call_may_share_the_reserved_slot(void **state) {
    static struct fixture f;
    (void)state;
    fixture_init(&f, HB_MODE_DECODE);
    memset(f.mask, 0, sizeof f.mask);
    f.table[1] = f.table[2] = 0;
    begin_status(&f, HB_ERR_RANGE, 83);
    f.b.is_dummy = 1;
    begin_status(&f, HB_OK, 0);
    f.table[1] = f.table[3]; /* other slots are still owned by one row */
    begin_status(&f, HB_ERR_DUPLICATE, 120);
    f.table[1] = -1;
    begin_status(&f, HB_ERR_RANGE, 83);
}

static void cache_rules_need_an_attention_layer(void **state) {
    static struct fixture f;
    (void)state;
    fixture_init(&f, HB_MODE_EXTEND);
    f.config.layer_kind[1] = HB_LAYER_MAMBA2;
    f.b.out_cache_loc = (struct hb_i32s){NULL, 0};
    f.b.req_to_token = (struct hb_i32s){NULL, 0};
    f.b.req_to_token_rows = 0;
    begin_status(&f, HB_OK, 0);
}

static void surplus_locations_are_not_looked_at(void **state) {
    static struct fixture f;
    (void)state;
    fixture_init(&f, HB_MODE_EXTEND);
    f.loc[17] = -7;
    f.loc[18] = 1;
    begin_status(&f, HB_OK, 0);
    f.loc[16] = -7;
    begin_status(&f, HB_ERR_RANGE, 93);
}

static void sums_are_64_bit_and_a_negative_length_is_a_range_error(void **state) {
    static struct fixture f;
    struct hb_error e;
    (void)state;
    fixture_init(&f, HB_MODE_EXTEND);
    f.ext[0] = f.ext[1] = f.ext[2] = INT32_MAX;
    f.b.extend_seq_lens_cpu = (struct hb_i32s){NULL, 0};
    f.b.extend_start_loc = (struct hb_i32s){NULL, 0};
    f.b.extend_num_tokens = INT32_MAX;
    call(&f, &e);
    check(&e, 51, -1, INT32_MAX, INT64_C(3) * INT32_MAX);
    fixture_init(&f, HB_MODE_EXTEND);
    f.ext[0] = f.cpu[0] = -3;
    f.start[1] = -3;
    f.start[2] = 5;
    f.b.extend_num_tokens = 9;
    call(&f, &e);
    check(&e, 85, 0, -3, 1);
    f.ext[0] = f.cpu[0] = f.start[1] = 5;
    f.start[2] = 13;
    f.b.extend_num_tokens = 17;
    f.prefix[0] = INT32_MAX;
    call(&f, &e);
    check(&e, 87, 0, INT64_C(5) + INT32_MAX, 5);
}

static void a_short_mapping_reports_its_length(void **state) {
    static struct fixture f;
    struct hb_error e;
    (void)state;
    fixture_init(&f, HB_MODE_EXTEND);
    f.b.req_to_token.len = (int64_t)REQS * CONTEXT - 1;
    call(&f, &e);
    check(&e, 58, -1, 31, 32);
}

static void duplicates_far_apart_in_the_cache_are_found(void **state) {
    static struct fixture f;
    struct hb_error e;
    (void)state;
    fixture_init(&f, HB_MODE_EXTEND);
    f.config.n_kv = 20000;
    for (int32_t i = 0; i < 17; i++) { /* tokens 0..16 in several windows of 4096 */
        f.loc[i] = 19999 - 1100 * i;
    }
    for (int32_t r = 0; r < 3; r++) {
        fixture_tokens(&f, r, f.prefix[r], f.ext[r], f.start[r]);
    }
    call(&f, &e);
    assert_int_equal(e.status, HB_OK);
    f.loc[16] = f.loc[0];
    f.loc[9] = f.loc[7];
    for (int32_t r = 0; r < 3; r++) {
        fixture_tokens(&f, r, f.prefix[r], f.ext[r], f.start[r]);
    }
    call(&f, &e);
    check(&e, 122, 9, f.loc[9], 7);
}

static void empty_batches_are_ok(void **state) {
    static const int32_t modes[] = {1, 2, 3, 4, 8, 9};
    static struct fixture f;
    (void)state;
    for (int i = 0; i < 6; i++) {
        fixture_init(&f, HB_MODE_DECODE);
        f.b = (struct hb_batch){
            .struct_size = sizeof f.b, .forward_mode = modes[i], .has_extend_num_tokens = 1};
        begin_status(&f, HB_OK, 0);
    }
}

static void unknown_modes_are_invalid_whatever_else_is_wrong(void **state) {
    static const int32_t modes[] = {0, 7, 10, -1, INT32_MAX, INT32_MIN};
    static struct fixture f;
    (void)state;
    for (int i = 0; i < 6; i++) {
        fixture_init(&f, HB_MODE_EXTEND);
        f.b.forward_mode = modes[i];
        f.b.batch_size = -1;
        f.b.seq_lens.data = NULL;
        begin_status(&f, HB_ERR_INVALID_MODE, 10);
    }
    fixture_init(&f, HB_MODE_EXTEND);
    f.b.forward_mode = HB_MODE_TARGET_VERIFY;
    begin_status(&f, HB_ERR_UNSUPPORTED, 11);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_batches_are_ok_in_every_family),
        cmocka_unit_test(each_rule_of_begin_alone_reports_row_value_and_limit),
        cmocka_unit_test(every_begin_rule_of_the_table_has_a_recipe),
        cmocka_unit_test(tracking_violations_have_the_statuses_of_the_table),
        cmocka_unit_test(idle_reads_no_array),
        cmocka_unit_test(decode_reads_no_extend_field),
        cmocka_unit_test(a_dummy_call_may_share_the_reserved_slot),
        cmocka_unit_test(cache_rules_need_an_attention_layer),
        cmocka_unit_test(surplus_locations_are_not_looked_at),
        cmocka_unit_test(sums_are_64_bit_and_a_negative_length_is_a_range_error),
        cmocka_unit_test(a_short_mapping_reports_its_length),
        cmocka_unit_test(duplicates_far_apart_in_the_cache_are_found),
        cmocka_unit_test(empty_batches_are_ok),
        cmocka_unit_test(unknown_modes_are_invalid_whatever_else_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
