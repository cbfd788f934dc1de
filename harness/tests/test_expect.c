/* SPDX-License-Identifier: Apache-2.0
 * The prediction: each rule alone with its row, value and limit; the violation tables of forward-batch.md section 4 and
 * tracking.md section 6 by hand; construction, layers, entries and slot operations. */
#include "harness/tests/expect_fixture.h"

static void check(const struct hb_error *e, int32_t rule, int32_t row, int64_t value, int64_t limit) {
    if (e->rule != rule || e->row != row || e->value != value || e->limit != limit ||
        e->status != (rule == 0 ? HB_OK : hb_rule_status(rule))) {
        fail_msg("want rule %d row %d value %lld limit %lld, got rule %d row %d value %lld limit %lld status %d (%s)", rule,
                 row, (long long)value, (long long)limit, e->rule, e->row, (long long)e->value, (long long)e->limit,
                 e->status, e->text);
    }
}

/* ---- begin ---- */

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
        int of_begin = rule == 3 || rule == 10 || rule == 11 || (rule >= 20 && rule < 150);
        int found = rule == HB_RULE_IO_NULL || rule == HB_RULE_IO_BYTES || rule == HB_RULE_LAYER_RANGE;
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
    fixture_init(&f, HB_MODE_DECODE); /* indices absent, any mode; seqlens absent is fine in decode */
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
        f.b = (struct hb_batch){.struct_size = sizeof f.b, .forward_mode = modes[i], .has_extend_num_tokens = 1};
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

/* ---- create ---- */

static void create_is(const struct hb_config *c, int32_t rule, int32_t row, int64_t value, int64_t limit) {
    struct hb_config ignored;
    struct hb_caps caps;
    struct hb_error e;
    fixture_config(&ignored, &caps);
    hb_expect_create(c, &caps, &e);
    check(&e, rule, row, value, limit);
}

static void create_checks_counts_and_sizes(void **state) {
    struct hb_config base;
    struct hb_config c;
    struct hb_caps caps;
    (void)state;
    fixture_config(&base, &caps);
    create_is(&base, 0, -1, 0, 0);
    c = base, c.n_layers = 0, create_is(&c, 200, -1, 0, 8);
    c = base, c.n_layers = 9, create_is(&c, 200, -1, 9, 8);
    int32_t *const fields[] = {&c.n_heads, &c.head_dim, &c.state_size, &c.n_groups, &c.conv_width, &c.chunk_size,
                               &c.page_size, &c.norm_group, &c.n_q_heads, &c.n_kv_heads, &c.attn_dim, &c.n_slots,
                               &c.req_pool_size, &c.max_context, &c.n_kv, &c.max_batch, &c.max_tokens};
    for (int32_t row = 0; row < 17; row++) {
        int32_t least = row == 4 || row == 14 ? 2 : 1;
        c = base;
        *fields[row] = least - 1;
        create_is(&c, 201, row, least - 1, least);
        *fields[row] = INT32_MIN;
        create_is(&c, 201, row, INT32_MIN, least);
    }
    c = base, c.norm_group = 3, create_is(&c, 201, 7, 3, 4);
    c.n_q_heads = 0; /* row 7 comes before row 8 */
    create_is(&c, 201, 7, 3, 4);
    c = base, c.n_heads = INT32_MAX, c.head_dim = INT32_MAX, c.norm_group = 2;
    create_is(&c, 201, 7, 2, (int64_t)INT32_MAX * INT32_MAX);
}

static void create_checks_relations_variants_and_types(void **state) {
    struct hb_config base;
    struct hb_config c;
    struct hb_caps caps;
    (void)state;
    fixture_config(&base, &caps);
    c = base, c.n_groups = 4, create_is(&c, 202, -1, 2, 4);
    c = base, c.chunk_size = 12, create_is(&c, 203, -1, 12, 0);
    c = base, c.chunk_size = 2, create_is(&c, 204, -1, 3, 2);
    c = base, c.conv_width = 5, create_is(&c, 204, -1, 4, 4);
    c = base, c.page_size = 6, create_is(&c, 205, -1, 6, 4);
    c = base, c.page_size = 3, create_is(&c, 205, -1, 3, 4);
    c = base, c.page_size = 2, create_is(&c, 0, -1, 0, 0);
    c = base, c.n_kv_heads = 3, create_is(&c, 206, -1, 2, 3);
    c = base, c.conv_width = 5, c.chunk_size = 8, c.page_size = 8, create_is(&c, 207, -1, 5, 4);
    int32_t *const fields[] = {&c.conv_act, &c.gate_norm, &c.dt_clamp_prefill, &c.dt_clamp_decode, &c.kernel_form,
                               &c.thread_order, &c.block_order, &c.layer_kind[1]};
    static const int32_t counts[] = {2, 5, 3, 3, 2, 3, 3, 2};
    for (int32_t row = 0; row < 8; row++) {
        c = base;
        *fields[row] = counts[row] - 1;
        create_is(&c, 0, -1, 0, 0);
        *fields[row] = counts[row];
        create_is(&c, 208, row, counts[row], 0);
        *fields[row] = -1;
        create_is(&c, 208, row, -1, 0);
    }
    c = base, c.layer_kind[7] = 9, create_is(&c, 0, -1, 0, 0);
    c = base, c.act_dtype = HB_INT32, create_is(&c, 209, 0, 2, 0);
    c = base, c.state_dtype = -1, create_is(&c, 209, 1, -1, 0);
    c = base, c.dt_lo = 1.5F, create_is(&c, 210, -1, 0, 0);
}

/* ---- layer, finish, entry ---- */

static struct hb_layer_io whole_io(void) {
    struct hb_layer_io io = {.struct_size = sizeof io};
    for (int i = 0; i < 3; i++) {
        io.in[i] = (struct hb_buf){1U + (unsigned)i, 0, 4096};
    }
    io.out = (struct hb_buf){9, 0, 4096};
    return io;
}

static void layers_check_metadata_repeats_buffers_and_id(void **state) {
    struct hb_config c;
    struct hb_caps caps;
    struct hb_error e;
    struct hb_forward_phase phase = {1, HB_MODE_EXTEND, 5, 0};
    struct hb_layer_io io = whole_io();
    (void)state;
    fixture_config(&c, &caps);
    hb_expect_layer(&c, &phase, 0, &io, &e);
    check(&e, 0, -1, 0, 0);
    phase.layers_run = 2;
    hb_expect_layer(&c, &phase, 1, NULL, &e);
    check(&e, 13, -1, 1, 0);
    hb_expect_layer(&c, &phase, 0, NULL, &e);
    check(&e, 29, 0, 0, 0);
    hb_expect_layer(&c, &phase, 33, &io, &e); /* no shift by 33 */
    check(&e, 97, -1, 33, 1);
    hb_expect_layer(&c, &phase, -1, &io, &e);
    check(&e, 97, -1, -1, 1);
    io.in[1].bytes = 5 * 8 * 4 - 1; /* dim = 4 + 2*1*2 */
    io.out.id = 0;
    hb_expect_layer(&c, &phase, 0, &io, &e);
    check(&e, 29, 3, 0, 0);
    hb_expect_layer(&c, &phase, 99, &io, &e); /* the null buffer is seen before the layer id */
    check(&e, 29, 3, 0, 0);
    io.out.id = 9;
    hb_expect_layer(&c, &phase, 0, &io, &e);
    check(&e, 59, 1, 159, 160);
    hb_expect_layer(&c, &phase, 99, &io, &e);
    check(&e, 97, -1, 99, 1);
    phase.n_tokens = 0;
    hb_expect_layer(&c, &phase, 0, NULL, &e);
    check(&e, 0, -1, 0, 0);
    phase.has_metadata = 0;
    hb_expect_layer(&c, &phase, 99, NULL, &e);
    check(&e, 12, -1, 0, 0);
    hb_expect_finish(&phase, &e);
    check(&e, 12, -1, 0, 0);
    phase.has_metadata = 1;
    hb_expect_finish(&phase, &e);
    check(&e, 0, -1, 0, 0);
}

static void every_buffer_needs_exactly_its_bytes(void **state) {
    static const uint64_t widths[2][4] = {{4, 8, 2, 4}, {4, 2, 2, 4}};
    struct hb_config c;
    struct hb_caps caps;
    struct hb_error e;
    const struct hb_forward_phase phase = {1, HB_MODE_DECODE, 7, 0};
    (void)state;
    fixture_config(&c, &caps);
    for (int dtype = 0; dtype < 2; dtype++) {
        c.act_dtype = dtype;
        for (int layer = 0; layer < 2; layer++) {
            for (int i = 0; i < 4; i++) {
                struct hb_layer_io io = whole_io();
                uint64_t need = 7 * widths[layer][i] * (dtype == HB_BF16 ? 2U : 4U);
                struct hb_buf *buf = i < 3 ? &io.in[i] : &io.out;
                buf->bytes = need;
                hb_expect_layer(&c, &phase, layer, &io, &e);
                check(&e, 0, -1, 0, 0);
                buf->bytes = need - 1;
                hb_expect_layer(&c, &phase, layer, &io, &e);
                check(&e, 59, i, (int64_t)need - 1, (int64_t)need);
            }
        }
    }
}

static void entries_follow_the_refusal_rules(void **state) {
    struct hb_config c;
    struct hb_caps caps;
    struct hb_error e;
    struct hb_forward_phase phase = {1, HB_MODE_EXTEND, 2, 0};
    struct hb_layer_io io = whole_io();
    (void)state;
    fixture_config(&c, &caps);
    hb_expect_entry(NULL, NULL, 0, HB_ENTRY_CHILD, HB_ENTRY_DECODE, 0, NULL, &e);
    check(&e, 1, -1, 0, 0);
    assert_string_equal(e.text, HB_SEED_A_TEXT);
    hb_expect_entry(&c, &phase, 1, HB_ENTRY_CHILD, HB_ENTRY_EXTEND, 1, &io, &e);
    check(&e, 1, -1, 0, 0);
    hb_expect_entry(NULL, NULL, 0, HB_ENTRY_WRAPPER, HB_ENTRY_DECODE, 0, NULL, &e);
    check(&e, 2, -1, 0, 0);
    hb_expect_entry(NULL, NULL, 0, 77, HB_ENTRY_DECODE, 0, NULL, &e);
    check(&e, 2, -1, 0, 0);
    for (int32_t direction = -1; direction < 3; direction++) {
        hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, direction, 0, &io, &e);
        check(&e, 1, -1, 0, 0);
        hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, direction, 1, &io, &e);
        check(&e, 0, -1, 0, 0);
        hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, direction, 2, &io, &e);
        check(&e, 97, -1, 2, 1);
    }
    phase.has_metadata = 0;
    phase.mode = HB_MODE_IDLE; /* of an earlier forward */
    hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, 0, 0, &io, &e);
    check(&e, 1, -1, 0, 0);
    hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, 0, 1, &io, &e);
    check(&e, 12, -1, 0, 0);
    phase.has_metadata = 1;
    hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, 0, 0, &io, &e);
    check(&e, 0, -1, 0, 0);
    phase.layers_run = 1;
    hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, 0, 0, &io, &e);
    check(&e, 13, -1, 0, 0);
}

/* ---- slots ---- */

static void slot_operations_check_counts_kinds_and_ids(void **state) {
    struct hb_slot_model m;
    struct hb_error e;
    int32_t ids[4];
    (void)state;
    assert_int_equal(hb_slot_model_init(&m, 4, 3), HB_OK);
    hb_expect_take(&m, -1, 99, &e);
    check(&e, 150, -1, -1, 0);
    hb_expect_take(&m, 5, 99, &e);
    check(&e, 151, -1, 5, 4);
    hb_expect_take(&m, 4, HB_SLOT_TREE, &e);
    check(&e, 152, -1, HB_SLOT_TREE, 0);
    hb_expect_take(&m, 4, HB_SLOT_TRACK, &e);
    check(&e, 0, -1, 0, 0);
    hb_slot_model_take(&m, 3, HB_SLOT_LIVE, ids);
    assert_true(ids[0] == 1 && ids[1] == 2 && ids[2] == 3 && m.n_free == 1);
    hb_expect_free(&m, 3, (const int32_t[]){2, 4, 5}, &e);
    check(&e, 153, 2, 5, 4);
    hb_expect_free(&m, 3, (const int32_t[]){2, 2, 4}, &e);
    check(&e, 154, 2, 4, 0);
    hb_expect_free(&m, 3, (const int32_t[]){2, 1, 2}, &e);
    check(&e, 155, 2, 2, 0);
    hb_expect_free(&m, 2, (const int32_t[]){3, 1}, &e);
    check(&e, 0, -1, 0, 0);
    hb_expect_copy(&m, 5, 0, &e);
    check(&e, 153, 0, 5, 4);
    hb_expect_copy(&m, 4, 0, &e);
    check(&e, 153, 1, 0, 4);
    hb_expect_copy(&m, 4, 4, &e);
    check(&e, 154, 0, 4, 0);
    hb_expect_copy(&m, 1, 4, &e);
    check(&e, 154, 1, 4, 0);
    hb_expect_copy(&m, 1, 1, &e);
    check(&e, 156, -1, 1, 0);
    hb_expect_copy(&m, 1, 2, &e);
    check(&e, 0, -1, 0, 0);
    hb_expect_table(&m, 3, &e);
    check(&e, 157, -1, 3, 2);
    hb_expect_table(&m, -1, &e);
    check(&e, 157, -1, -1, 2);
    hb_expect_table(&m, 2, &e);
    check(&e, 0, -1, 0, 0);
    hb_slot_model_destroy(&m);
}

static void freed_slots_come_back_last(void **state) {
    struct hb_slot_model m;
    struct hb_slot_model copy = {0};
    int32_t ids[4];
    (void)state;
    assert_int_equal(hb_slot_model_init(&m, 4, 1), HB_OK);
    hb_slot_model_take(&m, 3, HB_SLOT_LIVE, ids);
    hb_slot_model_release(&m, 2, (const int32_t[]){3, 1});
    assert_int_equal(hb_slot_model_copy(&copy, &m), HB_OK);
    hb_slot_model_take(&m, 3, HB_SLOT_TRACK, ids);
    assert_true(ids[0] == 4 && ids[1] == 3 && ids[2] == 1 && m.n_free == 0 && m.kind[3] == HB_SLOT_TRACK);
    assert_true(copy.n_free == 3 && copy.kind[3] == HB_SLOT_FREE && copy.free_list[0] == 4);
    assert_int_equal(hb_slot_model_copy(&copy, &m), HB_OK);
    assert_memory_equal(copy.kind, m.kind, 5 * sizeof *m.kind);
    hb_slot_model_destroy(&copy);
    hb_slot_model_destroy(&m);
    assert_int_equal(hb_slot_model_init(&m, -1, 1), HB_ERR_SHAPE);
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
        cmocka_unit_test(create_checks_counts_and_sizes),
        cmocka_unit_test(create_checks_relations_variants_and_types),
        cmocka_unit_test(layers_check_metadata_repeats_buffers_and_id),
        cmocka_unit_test(every_buffer_needs_exactly_its_bytes),
        cmocka_unit_test(entries_follow_the_refusal_rules),
        cmocka_unit_test(slot_operations_check_counts_kinds_and_ids),
        cmocka_unit_test(freed_slots_come_back_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
