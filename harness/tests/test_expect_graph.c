/* SPDX-License-Identifier: Apache-2.0
 * The prediction of graph_init, capture and replay: each rule alone with its row, value and limit,
 * and the laws of graph.md by hand. */
#include "harness/tests/expect_graph_fixture.h"

static void is(const struct fixture *f, int32_t rule, int32_t row, int64_t value, int64_t limit) {
    struct hb_error e;
    call(f, &e);
    check(&e, rule, row, value, limit);
}

static void text_is(const struct fixture *f, const char *text) {
    struct hb_error e;
    call(f, &e);
    assert_string_equal(e.text, text);
}

static void valid_batches_are_ok_in_every_shape(void **state) {
    static struct fixture f;
    (void)state;
    for (int by = 0; by < 2; by++) {
        for (int shape = GD; shape <= GI; shape *= 2) {
            GRAPH_CALLS[by].init(&f, shape);
            is(&f, 0, -1, 0, 0);
        }
    }
}

static void each_rule_alone_reports_row_value_and_limit(void **state) {
    static struct fixture f;
    struct hb_error e;
    (void)state;
    for (int by = 0; by < 2; by++) {
        for (int i = 0; i < GRAPH_CALLS[by].n; i++) {
            const struct graph_recipe *r = &GRAPH_CALLS[by].recipes[i];
            int first = 1;
            for (int shape = GD; shape <= GI; shape *= 2) {
                if ((r->shapes & shape) == 0) {
                    continue;
                }
                GRAPH_CALLS[by].init(&f, shape);
                r->apply(&f);
                call(&f, &e);
                if (first) {
                    check(&e, r->rule, r->row, r->value, r->limit);
                }
                if (e.rule != r->rule) {
                    fail_msg("call %d recipe %d shape %d: want rule %d, got %d (%s)", by, i, shape,
                             r->rule, e.rule, e.text);
                }
                first = 0;
            }
        }
    }
}

static void every_graph_rule_of_the_table_has_a_recipe(void **state) {
    static const int32_t rules[] = {9, 15, 16, 17, 18, 19, 68, 69, 74, 78, 79, 140};
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        int found = 0;
        for (int k = 0; k < GRAPH_CALLS[0].n + GRAPH_CALLS[1].n; k++) {
            const int by = k >= GRAPH_CALLS[0].n;
            found |= GRAPH_CALLS[by].recipes[by ? k - GRAPH_CALLS[0].n : k].rule == rules[i];
        }
        assert_true(found);
    }
}

static void refused_modes_are_named_with_their_number(void **state) {
    static struct fixture f;
    (void)state;
    for (int by = 0; by < 2; by++) {
        GRAPH_CALLS[by].init(&f, GD);
        f.b.forward_mode = HB_MODE_MIXED;
        f.b.batch_size = -1; /* whatever else is wrong */
        text_is(&f, "Invalid forward mode: forward_mode=<ForwardMode.MIXED: 3>");
        f.b.forward_mode = HB_MODE_DRAFT_EXTEND_V2;
        text_is(&f, "Invalid forward mode: forward_mode=<ForwardMode.DRAFT_EXTEND_V2: 6>");
        f.b.forward_mode = -17;
        text_is(&f, "Invalid forward mode: forward_mode=-17");
        f.b.forward_mode = 7;
        is(&f, 9, -1, 7, 0);
        f.by = BEGIN; /* the eager text has another name for the field */
        text_is(&f, "Invalid forward mode: forward_batch.forward_mode=<ForwardMode.PREBUILT: 7>");
    }
}

/* ---- graph_init ---- */

static void init_is(struct hb_config *c, const struct hb_graph_phase *graphs, int32_t max_bs,
                    int32_t max_tokens, const int64_t want[3]) {
    struct hb_error e;
    hb_expect_graph_init(c, graphs, max_bs, max_tokens, &e);
    check(&e, (int32_t)want[0], -1, want[1], want[2]);
}
#define WANT(...) ((const int64_t[3]){__VA_ARGS__})

static void graph_sizes_must_divide_and_fit(void **state) {
    struct hb_config c = {.graph_rows = 6, .graph_draft = 4};
    struct hb_graph_phase none = {0};
    struct hb_graph_phase done = {.max_bs = 1, .draft = 1};
    (void)state;
    init_is(&c, &none, 6, 24, WANT(0, 0, 0));
    init_is(&c, &none, 6, 6, WANT(0, 0, 0));
    init_is(&c, &none, 1, 4, WANT(0, 0, 0));
    init_is(&c, &done, 6, 24, WANT(16, 0, 0));
    init_is(&c, &done, 0, -1, WANT(16, 0, 0));
    init_is(&c, &none, 6, 23, WANT(160, 23, 6));
    init_is(&c, &none, 7, 6, WANT(160, 6, 7)); /* before its 161 */
    init_is(&c, &none, 7, 7, WANT(161, 7, 6));
    init_is(&c, &none, 0, 7, WANT(161, 0, 6)); /* no division by 0 */
    init_is(&c, &none, -1, INT32_MIN, WANT(161, -1, 6));
    init_is(&c, &none, 6, 30, WANT(162, 5, 4));
    init_is(&c, &none, 6, 0, WANT(162, 0, 4));
    init_is(&c, &none, 2, -4, WANT(162, -2, 4));
    c.graph_rows = 0;
    init_is(&c, &none, 1, 1, WANT(161, 1, 0));
}

/* ---- padding ---- */

/* graph.md section 3. */
static void padding_is_given_or_counted_from_trailing_ones(void **state) {
    static const struct {
        int32_t has, given;
        int has_mirror;
        int32_t mirror[4], real;
    } cases[] = {
        {1, 2, 1, {5, 9, 1, 1}, 2},  {1, 0, 1, {1, 1, 1, 1}, 4}, {1, 4, 0, {0, 0, 0, 0}, 0},
        {0, 0, 0, {1, 1, 1, 1}, 4},  {0, 2, 0, {1, 1, 1, 1}, 4}, {0, 0, 1, {5, 1, 1, 1}, 1},
        {0, 3, 1, {5, 9, 7, 12}, 4}, {0, 0, 1, {1, 1, 1, 1}, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hb_batch b = {.forward_mode = HB_MODE_DECODE,
                             .batch_size = 4,
                             .has_original_batch_size = 1,
                             .original_batch_size = 3,
                             .has_num_padding = cases[i].has,
                             .num_padding = cases[i].given,
                             .seq_lens_cpu = {cases[i].has_mirror ? cases[i].mirror : NULL, 4}};
        assert_int_equal(hb_expect_real_rows(&b, 1), cases[i].real);
        assert_int_equal(hb_expect_real_rows(&b, 0), 3);
        b.has_original_batch_size = 0;
        assert_int_equal(hb_expect_real_rows(&b, 0), 4);
        b.forward_mode = HB_MODE_IDLE;
        assert_int_equal(hb_expect_real_rows(&b, 1), 0);
    }
}

static void a_live_row_of_one_token_needs_a_given_count(void **state) {
    static struct fixture f;
    (void)state;
    replay_init(&f, GD);
    f.seq[2] = f.mirror[2] = 1; /* row 2 holds its first token */
    fixture_tokens(&f, 2, 0, 1, 2);
    is(&f, 0, -1, 0, 0);
    f.b.has_num_padding = 0; /* counted: rows 2 and 3 are padding now, row 2's mask is set */
    is(&f, 88, 2, 0, 0);
    f.mask[2] = 0;
    is(&f, 0, -1, 0, 0);
    f.seq[0] = f.mirror[0] = 1; /* [1, 12, 1, 1]: row 0 is live, but counts as padding */
    is(&f, 79, 0, 1, 1);
    f.mirror[0] = f.mirror[1] = 1;
    is(&f, 88, 0, 0, 0);
    f.b.seq_lens_cpu = (struct hb_i32s){NULL, 9}; /* absent: no padding at all */
    is(&f, 81, 3, 77, 5);
}

static void only_live_rows_of_a_replay_are_looked_at(void **state) {
    static struct fixture f;
    (void)state;
    for (int shape = GD; shape <= GC; shape *= 2) {
        replay_init(&f, shape);
        memset(f.mask, 0, sizeof f.mask);
        f.b.num_padding = 4;
        for (int r = 0; r < 4; r++) {
            f.req[r] = f.seq[r] = -7;
            f.mirror[r] = 1;
        }
        memset(f.loc, 0xff, sizeof f.loc);
        memset(f.next, 0x7f, sizeof f.next);
        is(&f, 0, -1, 0, 0);
        f.mirror[1] = 2;
        is(&f, 107, 1, 2, 1);
    }
}

/* ---- what was captured ---- */

static void idle_graphs_read_counts_only(void **state) {
    static struct fixture f;
    (void)state;
    for (int by = 0; by < 2; by++) {
        GRAPH_CALLS[by].init(&f, GI);
        f.b = (struct hb_batch){.struct_size = sizeof f.b,
                                .forward_mode = HB_MODE_IDLE,
                                .batch_size = ROWS,
                                .n_tokens = ROWS,
                                .has_num_padding = 1,
                                .num_padding = -1,
                                .has_original_batch_size = 1,
                                .original_batch_size = -1,
                                .ragged_verify_layout = {f.layout, 1},
                                .retrieve_next_token = {f.next, 1}};
        f.config.spec_rows = f.config.max_draft = 0;
        is(&f, 0, -1, 0, 0);
        f.b.n_tokens = 16; /* of a verify */
        is(&f, 68, -1, 16, 4);
    }
}

static void sizes_beyond_the_graphs_are_not_looked_up(void **state) {
    static const int32_t sizes[] = {0, 6, 65, INT32_MAX};
    static struct fixture f;
    (void)state;
    for (int by = 0; by < 2; by++) {
        for (int i = 0; i < 4; i++) {
            GRAPH_CALLS[by].init(&f, GI);
            f.config.max_batch = f.config.max_tokens = INT32_MAX;
            f.b.batch_size = f.b.n_tokens = sizes[i];
            is(&f, 74, -1, sizes[i], MAX_BS);
        }
    }
    replay_init(&f, GI); /* within the graphs: each size of its own */
    f.b.batch_size = 3;
    is(&f, 17, -1, 3, 0);
    f.b.batch_size = 1;
    is(&f, 18, -1, HB_MODE_IDLE, HB_MODE_DECODE);
}

static void a_replay_takes_destinations_beyond_its_rows(void **state) {
    static struct fixture f;
    (void)state;
    replay_init(&f, GD);
    f.b.mamba_track_indices.len = 5;
    is(&f, 0, -1, 0, 0);
    f.b.mamba_track_indices = (struct hb_i64s){NULL, 0}; /* none: fine without a mask */
    is(&f, 25, 0, 0, 0);
    memset(f.mask, 0, sizeof f.mask);
    is(&f, 0, -1, 0, 0);
    f.by = BEGIN;
    f.b.original_batch_size = 3;
    f.req[3] = 0;
    is(&f, 0, -1, 0, 0);
    f.mask[0] = 1;
    f.b.mamba_track_indices = (struct hb_i64s){f.track, 5};
    is(&f, 54, -1, 5, 4);
}

/* The capture fixed D and the links; a larger draft than the caches hold is refused there. */
static void a_replayed_verify_repeats_what_its_capture_checked(void **state) {
    static struct fixture f;
    (void)state;
    replay_init(&f, GU);
    f.config.max_draft = 1;
    is(&f, 0, -1, 0, 0);
    capture_init(&f, GU);
    f.config.max_draft = 1;
    is(&f, 72, -1, 4, 1);
    for (int by = 0; by < 2; by++) {
        GRAPH_CALLS[by].init(&f, GC);
        f.config.window_layout = HB_WINDOWS_STRIP; /* chains are what strips are for */
        is(&f, 0, -1, 0, 0);
        f.b.ragged_verify_layout = (struct hb_i32s){f.layout, 5};
        f.caps.ragged_verify = 0;
        is(&f, 11, -1, 5, 0);
    }
}

static void a_dummy_replay_may_share_the_reserved_slot(void **state) {
    static struct fixture f;
    (void)state;
    replay_init(&f, GC);
    f.table[1] = f.table[2] = 0;
    is(&f, 83, 0, 0, NS);
    f.b.is_dummy = 1;
    f.cursor[0] = 3; /* slot 0 has no ring of its own */
    is(&f, 0, -1, 0, 0);
}

static void products_of_graph_sizes_are_64_bit(void **state) {
    static struct fixture f;
    (void)state;
    capture_init(&f, GC);
    f.b.batch_size = 1 << 30;
    f.b.n_tokens = 0;
    is(&f, 68, -1, 0, INT64_C(1) << 32);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_batches_are_ok_in_every_shape),
        cmocka_unit_test(each_rule_alone_reports_row_value_and_limit),
        cmocka_unit_test(every_graph_rule_of_the_table_has_a_recipe),
        cmocka_unit_test(refused_modes_are_named_with_their_number),
        cmocka_unit_test(graph_sizes_must_divide_and_fit),
        cmocka_unit_test(padding_is_given_or_counted_from_trailing_ones),
        cmocka_unit_test(a_live_row_of_one_token_needs_a_given_count),
        cmocka_unit_test(only_live_rows_of_a_replay_are_looked_at),
        cmocka_unit_test(idle_graphs_read_counts_only),
        cmocka_unit_test(sizes_beyond_the_graphs_are_not_looked_up),
        cmocka_unit_test(a_replay_takes_destinations_beyond_its_rows),
        cmocka_unit_test(a_replayed_verify_repeats_what_its_capture_checked),
        cmocka_unit_test(a_dummy_replay_may_share_the_reserved_slot),
        cmocka_unit_test(products_of_graph_sizes_are_64_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
