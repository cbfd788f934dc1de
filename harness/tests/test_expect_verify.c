/* SPDX-License-Identifier: Apache-2.0
 * The prediction of begin for verify and DRAFT_EXTEND_V2: each rule alone in every shape, the laws
 * of speculative.md by hand, and the parent tables of draft trees. */
#include "harness/tests/expect_verify_fixture.h"
#include "harness/tree.h"

static void begin_is(const struct fixture *f, int32_t rule, int32_t row, int64_t value,
                     int64_t limit) {
    struct hb_error e;
    call(f, &e);
    check(&e, rule, row, value, limit);
}

static void valid_batches_are_ok_in_every_shape(void **state) {
    static struct fixture f;
    (void)state;
    for (int shape = U; shape <= H; shape *= 2) {
        verify_init(&f, shape);
        begin_is(&f, 0, -1, 0, 0);
    }
}

static void each_rule_alone_reports_row_value_and_limit(void **state) {
    static struct fixture f;
    struct hb_error e;
    (void)state;
    for (int i = 0; i < N_VERIFY_RECIPES; i++) {
        const struct verify_recipe *r = &VERIFY_RECIPES[i];
        int first = 1;
        for (int shape = U; shape <= H; shape *= 2) {
            if ((r->shapes & shape) == 0) {
                continue;
            }
            verify_init(&f, shape);
            r->apply(&f);
            call(&f, &e);
            if (first) {
                check(&e, r->rule, r->row, r->value, r->limit);
            }
            if (e.rule != r->rule) {
                fail_msg("recipe %d, shape %d: want rule %d, got %d (%s)", i, shape, r->rule,
                         e.rule, e.text);
            }
            first = 0;
        }
    }
}

static void every_verify_rule_of_the_table_has_a_recipe(void **state) {
    static const int32_t rules[] = {30, 60, 61,  62,  63,  64,  72, 73,
                                    98, 99, 100, 101, 102, 103, 141, 142};
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        int found = 0;
        for (int j = 0; j < N_VERIFY_RECIPES; j++) {
            found |= VERIFY_RECIPES[j].rule == rules[i];
        }
        assert_true(found);
    }
}

/* Extend fields, track indices and seqlens are not read; surplus locations neither. */
static void what_a_verify_does_not_read_may_be_anything(void **state) {
    static struct fixture f;
    (void)state;
    for (int shape = U; shape <= H; shape *= 2) {
        verify_init(&f, shape);
        f.b.n_extend = -7;
        f.b.has_extend_num_tokens = 1;
        f.b.extend_num_tokens = INT64_MIN;
        f.b.extend_seq_lens = (struct hb_i32s){f.ext, 3};
        f.b.extend_start_loc = (struct hb_i32s){f.start, 0};
        f.b.extend_prefix_lens = (struct hb_i32s){NULL, 9};
        f.b.mamba_track_indices = (struct hb_i64s){NULL, 5};
        f.b.mamba_track_seqlens = (struct hb_i64s){f.point, 1};
        f.loc[f.b.n_tokens - 1] = -5; /* the padding row's */
        f.loc[shape & RAGGED ? 9 : 12] = f.loc[0];
        f.seq[3] = INT32_MIN;
        f.b.mamba_track_mask = (struct hb_u8s){NULL, 1};
        begin_is(&f, 0, -1, 0, 0);
    }
}

static void a_padding_row_may_have_no_node_or_as_many_as_a_live_one(void **state) {
    static struct fixture f;
    (void)state;
    for (int shape = G; shape <= H; shape += H - G) {
        for (int32_t nodes = 0; nodes <= NODES; nodes += NODES) {
            verify_init(&f, shape);
            verify_padding(&f, nodes);
            begin_is(&f, 0, -1, 0, 0);
        }
    }
}

static void other_modes_do_not_read_the_draft_fields(void **state) {
    static struct fixture f;
    (void)state;
    for (size_t m = 0; m < sizeof BASE_MODES / sizeof BASE_MODES[0]; m++) {
        fixture_init(&f, BASE_MODES[m]);
        f.b.draft_token_num = -3;
        f.b.retrieve_next_token = (struct hb_i32s){f.next, 1};
        f.b.ragged_verify_layout = (struct hb_i32s){f.layout, 0};
        begin_is(&f, 0, -1, 0, 0);
    }
}

static void without_intermediate_caches_only_an_empty_verify_is_ok(void **state) {
    static struct fixture f;
    (void)state;
    verify_init(&f, C);
    way_no_caches(&f);
    begin_is(&f, 73, -1, 4, 0);
    f.b = (struct hb_batch){.struct_size = sizeof f.b, .forward_mode = HB_MODE_TARGET_VERIFY};
    f.b.draft_token_num = 3;
    begin_is(&f, 0, -1, 0, 0);
    f.b.n_tokens = 3;
    f.b.out_cache_loc = (struct hb_i32s){f.loc, 3};
    begin_is(&f, 60, -1, 3, 0);
    f.b.n_tokens = 0;
    f.b.out_cache_loc = (struct hb_i32s){NULL, 0};
    f.b.draft_token_num = 0;
    begin_is(&f, 98, -1, 0, 1);
    f.config.spec_rows = 1;
    f.config.max_draft = 2;
    f.b.draft_token_num = 3;
    begin_is(&f, 72, -1, 3, 2);
}

static void products_of_rows_and_draft_are_64_bit(void **state) {
    static struct fixture f;
    (void)state;
    verify_init(&f, C);
    f.b.draft_token_num = 1 << 30; /* times 4 is 0 in 32 bits */
    f.b.n_tokens = 0;
    f.b.out_cache_loc = (struct hb_i32s){NULL, 0};
    begin_is(&f, 60, -1, 0, INT64_C(1) << 32);
    f.b.draft_token_num = INT32_MIN;
    begin_is(&f, 60, -1, 0, INT64_C(4) * INT32_MIN);
    verify_init(&f, H);
    f.b.draft_token_num = INT32_MIN;
    begin_is(&f, 98, -1, INT32_MIN, 1);
    verify_init(&f, C);
    f.seq[0] = INT32_MAX;
    begin_is(&f, 94, 0, INT64_C(4) + INT32_MAX, CONTEXT);
}

/* speculative.md section 3: the table of validity. */
static void link_violations_have_the_statuses_of_the_table(void **state) {
    static struct fixture f;
    (void)state;
    verify_init(&f, U); /* its example of a child before its parent */
    memcpy(f.next, (const int32_t[]){1, 3, -1, -1}, 4 * sizeof *f.next);
    memcpy(f.sibling, (const int32_t[]){-1, -1, -1, 2}, 4 * sizeof *f.sibling);
    begin_is(&f, 101, 0, 2, 3);
    memcpy(f.sibling, (const int32_t[]){-1, -1, 3, -1}, 4 * sizeof *f.sibling); /* 2 unreached */
    memcpy(f.next, (const int32_t[]){1, -1, -1, -1}, 4 * sizeof *f.next);
    begin_is(&f, 102, 0, 2, 0);
    memset(f.next, 0xff, 4 * sizeof *f.next); /* a root alone, three unused nodes */
    memset(f.sibling, 0xff, 4 * sizeof *f.sibling);
    begin_is(&f, 0, -1, 0, 0);
    f.next[1] = 3; /* an unused node that links makes a later node reached */
    begin_is(&f, 102, 0, 1, 0);
    f.next[0] = INT32_MIN;
    begin_is(&f, 100, 0, INT32_MIN, 3);
    f.next[0] = f.next[1] = f.next[2] = 3; /* reached by three */
    begin_is(&f, 102, 0, 1, 0);
    f.next[0] = f.sibling[1] = 1;
    begin_is(&f, 101, 0, 1, 1);
}

static void a_dummy_verify_may_share_the_reserved_slot(void **state) {
    static struct fixture f;
    (void)state;
    verify_init(&f, U);
    f.table[1] = f.table[2] = 0;
    begin_is(&f, 83, 0, 0, NS);
    f.b.is_dummy = 1;
    begin_is(&f, 0, -1, 0, 0);
}

/* Records that are not folded are the verify's own business if commits own the ring; then decode
 * steps and extends wait for a fold. */
static void pending_records_are_refused_by_the_modes_that_do_not_own_the_ring(void **state) {
    static struct fixture f;
    static const int32_t modes[] = {HB_MODE_DECODE, HB_MODE_EXTEND, HB_MODE_MIXED,
                                    HB_MODE_TARGET_VERIFY};
    (void)state;
    for (int32_t owner = HB_RING_DECODE; owner < HB_N_RING_OWNERS; owner++) {
        for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
            const int is_verify = modes[i] == HB_MODE_TARGET_VERIFY;
            const int is_owner = owner == HB_RING_COMMIT ? is_verify : modes[i] == HB_MODE_DECODE;
            if (is_verify) {
                verify_init(&f, C);
            } else {
                fixture_init(&f, modes[i]);
            }
            f.config.ring_length = 16;
            f.config.ring_owner = owner;
            begin_is(&f, 0, -1, 0, 0);
            break_114(&f);
            begin_is(&f, is_owner ? 0 : 114, is_owner ? -1 : 1, is_owner ? 0 : 2, is_owner ? 0 : 3);
        }
    }
}

static void cache_rules_need_an_attention_layer(void **state) {
    static struct fixture f;
    (void)state;
    for (int shape = U; shape <= H; shape *= 2) {
        verify_init(&f, shape);
        f.config.layer_kind[1] = HB_LAYER_MAMBA2;
        f.b.out_cache_loc = f.b.req_to_token = (struct hb_i32s){NULL, 0};
        f.b.req_to_token_rows = 0;
        f.seq[0] = f.mirror[0] = INT32_MAX; /* max_context is a size of req_to_token */
        begin_is(&f, 0, -1, 0, 0);
    }
}

static void draft_extend_validates_counts_only(void **state) {
    static struct fixture f;
    (void)state;
    verify_init(&f, U);
    f.b.forward_mode = HB_MODE_DRAFT_EXTEND_V2;
    begin_is(&f, 0, -1, 0, 0);
    f.b = (struct hb_batch){.struct_size = sizeof f.b,
                            .forward_mode = HB_MODE_DRAFT_EXTEND_V2,
                            .batch_size = 6,
                            .n_tokens = 40,
                            .n_extend = -4,
                            .has_original_batch_size = 1,
                            .original_batch_size = 99,
                            .draft_token_num = -1};
    begin_is(&f, 0, -1, 0, 0);
    f.b.n_tokens = 41;
    begin_is(&f, 71, -1, 41, 40);
    f.b.batch_size = 7;
    begin_is(&f, 70, -1, 7, 6);
    f.b.n_tokens = -1;
    begin_is(&f, 41, -1, -1, 0);
    f.b.batch_size = -1;
    begin_is(&f, 40, -1, -1, 0);
    f.caps.modes &= ~(1U << HB_MODE_DRAFT_EXTEND_V2);
    begin_is(&f, 11, -1, HB_MODE_DRAFT_EXTEND_V2, 0);
}

/* ---- parent tables ---- */

static void parents_follow_the_worked_examples(void **state) {
    int32_t parent[8];
    int32_t path[8];
    (void)state;
    assert_int_equal(hb_tree_parents((const int32_t[]){1, 3, 4, -1, -1},
                                     (const int32_t[]){-1, 2, -1, -1, -1}, 5, parent),
                     0);
    assert_memory_equal(parent, ((const int32_t[]){0, 0, 0, 1, 2}), 5 * sizeof *parent);
    assert_int_equal(hb_tree_path(parent, 4, path), 3);
    assert_memory_equal(path, ((const int32_t[]){0, 2, 4}), 3 * sizeof *path);
    assert_int_equal(hb_tree_path(parent, 0, NULL), 1);
    assert_int_equal(hb_tree_parents((const int32_t[]){1, 2, 3, -1},
                                     (const int32_t[]){-1, -1, -1, -1}, 4, parent),
                     0);
    assert_memory_equal(parent, ((const int32_t[]){0, 0, 1, 2}), 4 * sizeof *parent);
    assert_int_equal(hb_tree_parents(NULL, NULL, 4, parent), 0);
    assert_memory_equal(parent, ((const int32_t[]){0, 0, 1, 2}), 4 * sizeof *parent);
    assert_int_equal(hb_tree_parents((const int32_t[]){1, -1, -1}, (const int32_t[]){-1, -1, -1}, 3,
                                     parent), /* a trailing orphan */
                     0);
    assert_memory_equal(parent, ((const int32_t[]){0, 0, 0}), 3 * sizeof *parent);
    assert_int_equal(hb_tree_parents((const int32_t[]){-1}, (const int32_t[]){-1}, 1, parent), 0);
    assert_int_equal(hb_tree_parents(NULL, NULL, 0, parent), 0);
}

/* All links of three nodes with values -2..3: valid exactly where begin accepts them, and the table
 * always usable. */
static void parents_are_refused_exactly_where_begin_refuses_the_links(void **state) {
    static struct fixture f;
    int valid = 0;
    (void)state;
    verify_init(&f, U);
    verify_draft(&f, 3);
    verify_map(&f);
    memset(f.next, 0xff, sizeof f.next);
    memset(f.sibling, 0xff, sizeof f.sibling);
    for (int code = 0; code < 6 * 6 * 6 * 6 * 6 * 6; code++) {
        struct hb_error e;
        int32_t parent[3];
        for (int i = 0, left = code; i < 6; i++, left /= 6) {
            (i < 3 ? f.next : f.sibling)[i % 3] = left % 6 - 2;
        }
        int status = hb_tree_parents(f.next, f.sibling, 3, parent);
        hb_expect_begin(&f.config, &f.caps, &f.slots, &f.b, &e);
        assert_true(e.rule == 0 || (e.rule >= 100 && e.rule <= 102));
        assert_int_equal(status, e.rule == 0 ? 0 : -1);
        assert_true(parent[0] == 0 && parent[1] == 0 && parent[2] >= 0 && parent[2] < 2);
        valid += status == 0;
    }
    assert_int_equal(valid, 4); /* root alone, one child, chain of three, two children */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_batches_are_ok_in_every_shape),
        cmocka_unit_test(each_rule_alone_reports_row_value_and_limit),
        cmocka_unit_test(every_verify_rule_of_the_table_has_a_recipe),
        cmocka_unit_test(what_a_verify_does_not_read_may_be_anything),
        cmocka_unit_test(a_padding_row_may_have_no_node_or_as_many_as_a_live_one),
        cmocka_unit_test(other_modes_do_not_read_the_draft_fields),
        cmocka_unit_test(without_intermediate_caches_only_an_empty_verify_is_ok),
        cmocka_unit_test(products_of_rows_and_draft_are_64_bit),
        cmocka_unit_test(link_violations_have_the_statuses_of_the_table),
        cmocka_unit_test(a_dummy_verify_may_share_the_reserved_slot),
        cmocka_unit_test(pending_records_are_refused_by_the_modes_that_do_not_own_the_ring),
        cmocka_unit_test(cache_rules_need_an_attention_layer),
        cmocka_unit_test(draft_extend_validates_counts_only),
        cmocka_unit_test(parents_follow_the_worked_examples),
        cmocka_unit_test(parents_are_refused_exactly_where_begin_refuses_the_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
