/* SPDX-License-Identifier: Apache-2.0
 * Configuration rules: each fires, the lowest number wins, the limits are what they say. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <limits.h>
#include <math.h>
#include <string.h>

#include "backend/config.h"
#include "backend/memory.h"
#include "backend/tests/fixture.h"

struct fault {
    size_t offset;
    int32_t set;
    int32_t rule, row;
    int64_t value, limit;
};

#define AT(field) offsetof(struct hb_config, field)

static const struct fault faults[] = {
    {AT(n_layers), 0, HB_RULE_CFG_LAYERS, -1, 0, HB_MAX_LAYERS},
    {AT(n_layers), 9, HB_RULE_CFG_LAYERS, -1, 9, HB_MAX_LAYERS},
    {AT(n_heads), 0, HB_RULE_CFG_DIM, 0, 0, 1},
    {AT(head_dim), -1, HB_RULE_CFG_DIM, 1, -1, 1},
    {AT(state_size), 0, HB_RULE_CFG_DIM, 2, 0, 1},
    {AT(n_groups), INT_MIN, HB_RULE_CFG_DIM, 3, INT_MIN, 1},
    {AT(conv_width), 1, HB_RULE_CFG_DIM, 4, 1, 2},
    {AT(chunk_size), 0, HB_RULE_CFG_DIM, 5, 0, 1},
    {AT(page_size), 0, HB_RULE_CFG_DIM, 6, 0, 1},
    {AT(norm_group), 0, HB_RULE_CFG_DIM, 7, 0, 1},
    {AT(norm_group), 3, HB_RULE_CFG_DIM, 7, 3, 8},
    {AT(n_q_heads), 0, HB_RULE_CFG_DIM, 8, 0, 1},
    {AT(n_kv_heads), 0, HB_RULE_CFG_DIM, 9, 0, 1},
    {AT(attn_dim), 0, HB_RULE_CFG_DIM, 10, 0, 1},
    {AT(n_slots), 0, HB_RULE_CFG_DIM, 11, 0, 1},
    {AT(req_pool_size), 0, HB_RULE_CFG_DIM, 12, 0, 1},
    {AT(max_context), 0, HB_RULE_CFG_DIM, 13, 0, 1},
    {AT(n_kv), 1, HB_RULE_CFG_DIM, 14, 1, 2},
    {AT(max_batch), 0, HB_RULE_CFG_DIM, 15, 0, 1},
    {AT(max_tokens), 0, HB_RULE_CFG_DIM, 16, 0, 1},
    {AT(n_slots), INT_MAX, HB_RULE_CFG_DIM, 17, (int64_t)20 * 3 << 31, INT_MAX},
    {AT(conv_width), INT_MAX, HB_RULE_CFG_DIM, 17, (int64_t)13 * 20 * (INT_MAX - 1), INT_MAX},
    {AT(n_kv), INT_MAX, HB_RULE_CFG_DIM, 19, (int64_t)INT_MAX * 4, INT_MAX},
    {AT(spec_rows), INT_MAX, HB_RULE_CFG_DIM, 20, (int64_t)INT_MAX * 7 * 20 * 3, INT_MAX},
    {AT(max_draft), INT_MAX / 360 + 1, HB_RULE_CFG_DIM, 20, (int64_t)360 * (INT_MAX / 360 + 1),
     INT_MAX},
    {AT(n_groups), 3, HB_RULE_CFG_GROUPS, -1, 4, 3},
    {AT(chunk_size), 12, HB_RULE_CFG_CHUNK, -1, 12, 0},
    {AT(chunk_size), 2, HB_RULE_CFG_WINDOW, -1, 3, 2},
    {AT(conv_width), 5, HB_RULE_CFG_WINDOW, -1, 4, 4},
    {AT(page_size), 6, HB_RULE_CFG_PAGE, -1, 6, 4},
    {AT(page_size), 3, HB_RULE_CFG_PAGE, -1, 3, 4},
    {AT(n_kv_heads), 3, HB_RULE_CFG_KV_HEADS, -1, 2, 3},
    {AT(conv_act), 2, HB_RULE_CFG_VARIANT, 0, 2, 0},
    {AT(gate_norm), -1, HB_RULE_CFG_VARIANT, 1, -1, 0},
    {AT(dt_clamp_prefill), 3, HB_RULE_CFG_VARIANT, 2, 3, 0},
    {AT(dt_clamp_decode), INT_MAX, HB_RULE_CFG_VARIANT, 3, INT_MAX, 0},
    {AT(kernel_form), 2, HB_RULE_CFG_VARIANT, 4, 2, 0},
    {AT(thread_order), 3, HB_RULE_CFG_VARIANT, 5, 3, 0},
    {AT(block_order), -1, HB_RULE_CFG_VARIANT, 6, -1, 0},
    {AT(layer_kind[2]), 2, HB_RULE_CFG_VARIANT, 7, 2, 0},
    {AT(act_dtype), 2, HB_RULE_CFG_DTYPE, 0, 2, 0},
    {AT(state_dtype), -1, HB_RULE_CFG_DTYPE, 1, -1, 0},
    {AT(spec_rows), -1, HB_RULE_CFG_SPEC, -1, -1, 7},
    {AT(spec_rows), 0, HB_RULE_CFG_SPEC, -1, 0, 7},
    {AT(max_draft), INT_MIN, HB_RULE_CFG_SPEC, -1, 6, INT_MIN},
    {AT(max_draft), 0, HB_RULE_CFG_SPEC, -1, 6, 0},
    {AT(window_layout), 2, HB_RULE_CFG_VARIANT, 8, 2, 0},
    {AT(track_by_layer), -1, HB_RULE_CFG_VARIANT, 9, -1, 0},
    {AT(track_interval), 3, HB_RULE_CFG_TRACK_INTERVAL, -1, 3, 4},
    {AT(track_interval), INT_MIN, HB_RULE_CFG_TRACK_INTERVAL, -1, INT_MIN, 4},
    {AT(ring_length), -1, HB_RULE_CFG_RING, -1, -1, 64},
    {AT(ring_length), 65, HB_RULE_CFG_RING, -1, 65, 64},
    {AT(n_virtual), SLOTS - 1, HB_RULE_CFG_VIRTUAL, -1, SLOTS - 1, SLOTS},
    {AT(n_virtual), -1, HB_RULE_CFG_VIRTUAL, -1, -1, SLOTS},
    {AT(graph_rows), -1, HB_RULE_CFG_GRAPH, 0, -1, ROWS},
    {AT(graph_rows), ROWS + 1, HB_RULE_CFG_GRAPH, 0, ROWS + 1, ROWS},
    {AT(pool_pad), -1, HB_RULE_CFG_POOL_PAD, -1, -1, 64},
    {AT(pool_pad), 65, HB_RULE_CFG_POOL_PAD, -1, 65, 64},
    {AT(multi_item_scoring), 1, HB_RULE_CFG_SCORING, -1, 1, 0},
    {AT(stochastic_rounding), -1, HB_RULE_CFG_ROUNDING, -1, HB_FP32, 0},
};

enum { N_FAULTS = sizeof(faults) / sizeof(faults[0]) };

static void apply(struct hb_config *c, const struct fault *x) {
    memcpy((char *)c + x->offset, &x->set, sizeof x->set);
}

static void config_each_rule_fires(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FAULTS; i++) {
        struct hb_config c;
        struct hb_error err;
        fixture_config(&c);
        hb_error_clear(&err);
        assert_int_equal(hb_config_check(&c, &err), HB_OK);
        apply(&c, &faults[i]);
        (void)hb_config_check(&c, &err);
        if (err.rule != faults[i].rule || err.row != faults[i].row ||
            err.value != faults[i].value || err.limit != faults[i].limit) {
            fail_msg("fault %zu: rule %d row %d value %lld limit %lld: %s", i, err.rule, err.row,
                     (long long)err.value, (long long)err.limit, err.text);
        }
    }
}

static void config_lower_rule_and_row_win_in_every_pair(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FAULTS; i++) {
        for (size_t k = i + 1; k < N_FAULTS; k++) {
            const struct fault *a = &faults[i];
            const struct fault *b = &faults[k];
            struct hb_config c;
            struct hb_error err;
            if (a->offset == b->offset) {
                continue;
            }
            fixture_config(&c);
            hb_error_clear(&err);
            apply(&c, b);
            apply(&c, a);
            (void)hb_config_check(&c, &err);
            const int is_fault_a = err.rule == a->rule && err.row == a->row;
            /* sizes interact: 3 groups and chunk 2 are other faults with another size; never a
             * later one than b */
            assert_true(is_fault_a || err.rule < b->rule ||
                        (err.rule == b->rule && err.row <= b->row));
        }
    }
}

static void config_conv_width_and_dt_limits(void **state) {
    (void)state;
    struct hb_config c;
    struct hb_error err;
    fixture_config(&c);
    hb_error_clear(&err);
    c.chunk_size = 8;
    c.conv_width = 5;
    assert_int_equal(hb_config_check(&c, &err), HB_ERR_UNSUPPORTED);
    assert_int_equal(err.rule, HB_RULE_CFG_CONV_WIDTH);
    fixture_config(&c);
    c.dt_lo = 2.0F;
    c.dt_hi = 1.0F;
    hb_error_clear(&err);
    assert_int_equal(hb_config_check(&c, &err), HB_ERR_SHAPE);
    assert_int_equal(err.rule, HB_RULE_CFG_DT_LIMIT);
    c.dt_hi = 2.0F;
    assert_int_equal(hb_config_check(&c, NULL), HB_OK);
}

static void config_without_speculation_and_large_intermediate_states(void **state) {
    (void)state;
    struct hb_config c;
    struct hb_error err;
    struct hb_dims d;
    fixture_config(&c);
    c.spec_rows = c.max_draft = 0;
    assert_int_equal(hb_config_check(&c, NULL), HB_OK);
    hb_config_dims(&c, &d);
    assert_true(d.n_nodes == 0);
    c.spec_rows = c.max_draft = -1;
    assert_int_equal(hb_config_check(&c, NULL), HB_ERR_SHAPE);
    /* states larger than windows: row 21 */
    fixture_config(&c);
    c.n_heads = 4;
    c.head_dim = 64;
    c.state_size = 256;
    c.conv_width = 2;
    c.spec_rows = 1 << 10;
    c.max_draft = 1 << 5;
    hb_error_clear(&err);
    assert_int_equal(hb_config_check(&c, &err), HB_ERR_SHAPE);
    assert_int_equal(err.rule, HB_RULE_CFG_DIM);
    assert_int_equal(err.row, 21);
    assert_true(err.value == (int64_t)1 << 31 && err.limit == INT_MAX);
    c.spec_rows--;
    assert_int_equal(hb_config_check(&c, NULL), HB_OK);
}

static void config_features_up_to_their_limits(void **state) {
    (void)state;
    struct hb_config c;
    struct hb_error err;
    fixture_config(&c);
    c.track_interval = c.chunk_size;
    c.ring_length = 64;
    c.n_virtual = SLOTS;
    c.pool_pad = 64;
    c.window_layout = HB_WINDOWS_STRIP;
    c.track_by_layer = 1;
    c.graph_rows = ROWS;
    c.graph_draft = TOKENS / ROWS;
    assert_int_equal(hb_config_check(&c, NULL), HB_OK);
    c.n_virtual = INT_MAX;
    assert_int_equal(hb_config_check(&c, NULL), HB_OK);
    c.graph_draft++;
    hb_error_clear(&err);
    assert_int_equal(hb_config_check(&c, &err), HB_ERR_SHAPE);
    assert_true(err.rule == HB_RULE_CFG_GRAPH && err.row == 2);
    assert_true(err.value == (int64_t)ROWS * (TOKENS / ROWS + 1) && err.limit == TOKENS);
    c.graph_draft = 0;
    hb_error_clear(&err);
    assert_int_equal(hb_config_check(&c, &err), HB_ERR_SHAPE);
    assert_true(err.row == 1 && err.value == 0 && err.limit == 1);
    c.graph_rows = 0; /* without graphs the nodes do not matter */
    assert_int_equal(hb_config_check(&c, NULL), HB_OK);
    c.max_batch = 1 << 20; /* graphs have 64 rows at most */
    c.graph_rows = 65;
    c.graph_draft = 1;
    hb_error_clear(&err);
    assert_int_equal(hb_config_check(&c, &err), HB_ERR_SHAPE);
    assert_true(err.row == 0 && err.limit == 64);
}

static void config_texts_of_what_upstream_refuses(void **state) {
    (void)state;
    struct hb_config c;
    struct hb_error err;
    fixture_config(&c);
    c.track_interval = 2;
    hb_error_clear(&err);
    assert_int_equal(hb_config_check(&c, &err), HB_ERR_SHAPE);
    assert_string_equal(err.text, "mamba_track_interval (2) must be >= mamba_chunk_size (4)");
    fixture_config(&c);
    c.multi_item_scoring = 1;
    hb_error_clear(&err);
    assert_int_equal(hb_config_check(&c, &err), HB_ERR_UNSUPPORTED);
    assert_memory_equal(err.text, "hybrid backend does not support multi-item scoring", 50);
}

static void config_window_and_page_limits_are_inclusive(void **state) {
    (void)state;
    struct hb_config c;
    fixture_config(&c);
    c.page_size = 16;
    assert_int_equal(hb_config_check(&c, NULL), HB_OK);
    c.page_size = 2;
    assert_int_equal(hb_config_check(&c, NULL), HB_OK);
    c.chunk_size = 2;
    c.conv_width = 2;
    assert_int_equal(hb_config_check(&c, NULL), HB_OK);
    c.chunk_size = 1; /* W = 1 is not below C = 1 */
    assert_int_equal(hb_config_check(&c, NULL), HB_ERR_SHAPE);
}

static void config_products_saturate(void **state) {
    (void)state;
    struct hb_config c;
    struct hb_error err;
    fixture_config(&c);
    hb_error_clear(&err);
    c.n_heads = c.head_dim = c.state_size = c.n_groups = c.n_slots = INT_MAX;
    c.norm_group = 1;
    assert_int_equal(hb_config_check(&c, &err), HB_ERR_SHAPE);
    assert_int_equal(err.row, 17);
    assert_true(err.value == INT64_MAX);
    assert_true(hb_mul_saturate(INT64_MAX, 2, 0) == 0);
    assert_true(hb_mul_saturate(INT64_MAX, 1, 1) == INT64_MAX);
    int64_t out = 5;
    assert_false(hb_mul_i64(-1, 2, &out));
    assert_false(hb_mul_i64(INT64_MAX, 2, &out));
    assert_int_equal(out, 5);
    assert_true(hb_mul_i64(0, INT64_MAX, &out) && out == 0);
}

static void config_dims(void **state) {
    (void)state;
    struct hb_config c;
    struct hb_dims d;
    fixture_config(&c);
    c.act_dtype = HB_BF16;
    hb_config_dims(&c, &d);
    assert_int_equal(d.d_inner, 8);
    assert_int_equal(d.dim, 20);
    assert_int_equal(d.window, 3);
    assert_int_equal(d.cache_chunk, 4);
    assert_int_equal(d.n_nodes, SPEC_ROWS * MAX_DRAFT);
    assert_int_equal(d.conv_slot_bytes, 20 * 3 * 2);
    assert_int_equal(d.windows_bytes, SPEC_ROWS * MAX_DRAFT * 20 * 3 * 2);
    assert_int_equal(d.track_interval, 4); /* 0 stands for C */
    assert_int_equal(d.temporal_slot_bytes, 8 * 3 * 4);
    assert_int_equal(d.kv_bytes, (int64_t)KV * 4 * 2);
    assert_true(d.has_attention);
    assert_int_equal(hb_config_io_width(&c, HB_LAYER_MAMBA2, 1), 20);
    assert_int_equal(hb_config_io_width(&c, HB_LAYER_MAMBA2, 2), 4);
    assert_int_equal(hb_config_io_width(&c, HB_LAYER_ATTENTION, 0), 8);
    assert_int_equal(hb_config_io_width(&c, HB_LAYER_ATTENTION, 2), 4);
    c.window_layout = HB_WINDOWS_STRIP;
    c.track_interval = 9;
    hb_config_dims(&c, &d);
    assert_int_equal(d.windows_bytes, SPEC_ROWS * 20 * (MAX_DRAFT + 2) * 2);
    assert_int_equal(d.track_interval, 9);
    c.spec_rows = c.max_draft = 0;
    hb_config_dims(&c, &d);
    assert_int_equal(d.windows_bytes, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_each_rule_fires),
        cmocka_unit_test(config_lower_rule_and_row_win_in_every_pair),
        cmocka_unit_test(config_conv_width_and_dt_limits),
        cmocka_unit_test(config_without_speculation_and_large_intermediate_states),
        cmocka_unit_test(config_features_up_to_their_limits),
        cmocka_unit_test(config_texts_of_what_upstream_refuses),
        cmocka_unit_test(config_window_and_page_limits_are_inclusive),
        cmocka_unit_test(config_products_saturate),
        cmocka_unit_test(config_dims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
