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
    {AT(layer_kind[2]), HB_N_LAYER_KINDS, HB_RULE_CFG_VARIANT, 7, HB_N_LAYER_KINDS, 0},
    {AT(act_dtype), HB_INT32, HB_RULE_CFG_DTYPE, 0, HB_INT32, 0},
    {AT(state_dtype), HB_FP16, HB_RULE_CFG_DTYPE, 1, HB_FP16, 0},
    {AT(state_dtype), -1, HB_RULE_CFG_DTYPE, 1, -1, 0},
    {AT(spec_rows), -1, HB_RULE_CFG_SPEC, -1, -1, 7},
    {AT(spec_rows), 0, HB_RULE_CFG_SPEC, -1, 0, 7},
    {AT(max_draft), INT_MIN, HB_RULE_CFG_SPEC, -1, 6, INT_MIN},
    {AT(max_draft), 0, HB_RULE_CFG_SPEC, -1, 6, 0},
    {AT(window_layout), 2, HB_RULE_CFG_VARIANT, 8, 2, 0},
    {AT(track_by_layer), -1, HB_RULE_CFG_VARIANT, 9, -1, 0},
    {AT(head_map), 2, HB_RULE_CFG_VARIANT, 10, 2, 0},
    {AT(state_layout), 2, HB_RULE_CFG_VARIANT, 11, 2, 0},
    {AT(l2norm), 3, HB_RULE_CFG_VARIANT, 12, 3, 0},
    {AT(beta_form), 3, HB_RULE_CFG_VARIANT, 13, 3, 0},
    {AT(gate_form), 2, HB_RULE_CFG_VARIANT, 14, 2, 0},
    {AT(out_gate), 2, HB_RULE_CFG_VARIANT, 15, 2, 0},
    {AT(slope_kind), 5, HB_RULE_CFG_VARIANT, 16, 5, 0},
    {AT(layer_factor), 4, HB_RULE_CFG_VARIANT, 17, 4, 0},
    {AT(qkv_act), -1, HB_RULE_CFG_VARIANT, 18, -1, 0},
    {AT(conv_state_len), 2, HB_RULE_CFG_VARIANT, 19, 2, 0},
    {AT(window_rule), INT_MIN, HB_RULE_CFG_VARIANT, 20, INT_MIN, 0},
    {AT(pad_policy), 1, HB_RULE_CFG_VARIANT, 21, 1, 0},
    {AT(ring_owner), 2, HB_RULE_CFG_VARIANT, 22, 2, 0},
    {AT(ring_owner), -1, HB_RULE_CFG_VARIANT, 22, -1, 0},
    {AT(layer_kind[2]), HB_LAYER_KDA, HB_RULE_CFG_LINEAR_KINDS, 2, HB_LAYER_KDA, HB_LAYER_MAMBA2},
    {AT(attn_window), -1, HB_RULE_CFG_ATTENTION, 0, -1, 0},
    {AT(track_interval), 3, HB_RULE_CFG_TRACK_INTERVAL, -1, 3, 4},
    {AT(track_interval), INT_MIN, HB_RULE_CFG_TRACK_INTERVAL, -1, INT_MIN, 4},
    {AT(ring_length), -1, HB_RULE_CFG_RING, -1, -1, 64},
    {AT(ring_length), 65, HB_RULE_CFG_RING, -1, 65, 64},
    {AT(n_virtual), SLOTS - 1, HB_RULE_CFG_VIRTUAL, -1, SLOTS - 1, SLOTS},
    {AT(n_virtual), -1, HB_RULE_CFG_VIRTUAL, -1, -1, SLOTS},
    {AT(n_virtual), HB_MAX_VIRTUAL + 1, HB_RULE_CFG_VIRTUAL, -1, HB_MAX_VIRTUAL + 1, HB_MAX_VIRTUAL},
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
    c.n_virtual = HB_MAX_VIRTUAL;
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

static void config_rules_of_kinds_and_attention(void **state) {
    (void)state;
    struct hb_config c;
    struct hb_error err;
    for (int32_t kind = 0; kind < HB_N_LAYER_KINDS; kind++) {
        fixture_config(&c);
        c.layer_kind[0] = c.layer_kind[2] = kind;
        assert_int_equal(hb_config_check(&c, NULL), HB_OK);
        c.ring_length = 4;
        hb_error_clear(&err);
        const int32_t has_ring = kind == HB_LAYER_MAMBA2 || kind == HB_LAYER_ATTENTION;
        assert_int_equal(hb_config_check(&c, &err), has_ring ? HB_OK : HB_ERR_UNSUPPORTED);
        if (!has_ring) {
            assert_true(err.rule == HB_RULE_CFG_MIXER_FEATURE && err.row == 0);
            assert_true(err.value == kind && err.limit == 0);
        }
        c.ring_length = 0;
        c.gate_form = HB_GATE_LOWER_BOUND;
        hb_error_clear(&err);
        assert_int_equal(hb_config_check(&c, &err), kind == HB_LAYER_KDA ? HB_ERR_SHAPE : HB_OK);
        assert_int_equal(err.rule, kind == HB_LAYER_KDA ? HB_RULE_CFG_GATE_BOUND : 0);
        c.gate_bound = -5.0F;
        assert_int_equal(hb_config_check(&c, NULL), HB_OK);
        c.gate_bound = NAN;
        assert_int_equal(hb_config_check(&c, NULL), kind == HB_LAYER_KDA ? HB_ERR_SHAPE : HB_OK);
    }
    fixture_config(&c);
    c.layer_kind[2] = HB_LAYER_ATTENTION;
    c.layer_kind[0] = HB_LAYER_ATTENTION; /* the first linear layer is not layer 0 */
    c.layer_kind[1] = HB_LAYER_GDN;
    assert_int_equal(hb_config_check(&c, NULL), HB_OK);
    c.layer_kind[2] = HB_LAYER_MAMBA2;
    hb_error_clear(&err);
    assert_int_equal(hb_config_check(&c, &err), HB_ERR_UNSUPPORTED);
    assert_true(err.row == 2 && err.value == HB_LAYER_MAMBA2 && err.limit == HB_LAYER_GDN);
    const float caps[] = {-1.0F, NAN, 0.0F, 30.0F};
    for (int32_t i = 0; i < 4; i++) {
        fixture_config(&c);
        c.attn_softcap = caps[i];
        hb_error_clear(&err);
        assert_int_equal(hb_config_check(&c, &err), i < 2 ? HB_ERR_SHAPE : HB_OK);
        if (i < 2) {
            assert_true(err.rule == HB_RULE_CFG_ATTENTION && err.row == 1 && err.value == 0);
        }
    }
    fixture_config(&c);
    c.act_dtype = HB_FP16;
    c.attn_window = INT_MAX;
    assert_int_equal(hb_config_check(&c, NULL), HB_OK);
}

/* Rule 230, each condition with all later ones broken too. */
static void config_rules_of_a_ring_that_commits_own(void **state) {
    static const struct {
        int32_t length, max_draft, spec_rows, state_dtype;
        int32_t row;
        int64_t value, limit;
    } cases[] = {{12, 7, 6, HB_BF16, 0, 12, 0},      {63, 7, 6, HB_FP32, 0, 63, 0},
                 {8, 7, 6, HB_BF16, 1, 8, 14},       {1, 1, 1, HB_FP32, 1, 1, 2},
                 {4, 0, 0, HB_BF16, 2, 0, 1},        {16, 7, 6, HB_BF16, 3, HB_BF16, 0},
                 {16, 7, 6, HB_FP32, -1, 0, 0},      {16, 8, 6, HB_FP32, -1, 0, 0},
                 {64, 32, 1, HB_FP32, -1, 0, 0},     {2, 1, 1, HB_FP32, -1, 0, 0},
                 {0, 0, 0, HB_BF16, -1, 0, 0},       {0, 7, 6, HB_BF16, -1, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hb_config c;
        struct hb_error err;
        fixture_config(&c);
        hb_error_clear(&err);
        c.ring_length = cases[i].length;
        c.ring_owner = HB_RING_COMMIT;
        c.max_draft = cases[i].max_draft;
        c.spec_rows = cases[i].spec_rows;
        c.state_dtype = cases[i].state_dtype;
        assert_int_equal(hb_config_ring_commits(&c), cases[i].length > 0);
        const int32_t status = hb_config_check(&c, &err);
        assert_int_equal(status, cases[i].row < 0 ? HB_OK : HB_ERR_SHAPE);
        assert_int_equal(err.rule, cases[i].row < 0 ? 0 : HB_RULE_CFG_RING_COMMIT);
        assert_int_equal(err.row, cases[i].row);
        assert_true(err.value == cases[i].value && err.limit == cases[i].limit);
        c.ring_owner = HB_RING_DECODE; /* the other ring has none of the conditions */
        assert_int_equal(hb_config_check(&c, NULL), HB_OK);
    }
    /* rules before it */
    struct hb_config c;
    struct hb_error err;
    fixture_config(&c);
    hb_error_clear(&err);
    c.ring_length = 12;
    c.ring_owner = HB_RING_COMMIT;
    c.layer_kind[0] = c.layer_kind[2] = HB_LAYER_GDN;
    (void)hb_config_check(&c, &err);
    assert_int_equal(err.rule, HB_RULE_CFG_MIXER_FEATURE);
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

/* Widths of the buffers, conv channels, temporal elements and parameters of each kind; H 4, P 2, N 3,
 * G 2, K 4. */
static void config_sizes_of_each_kind(void **state) {
    static const struct {
        int32_t width[4], channels, elements;
        int32_t param[HB_N_PARAMS]; /* counts */
    } want[HB_N_LAYER_KINDS] = {
        [HB_LAYER_MAMBA2] = {{8, 20, 4, 8}, 20, 24, {80, 20, 4, 4, 4, 8}},
        [HB_LAYER_ATTENTION] = {{8, 4, 4, 8}, 0, 0, {0}},
        [HB_LAYER_GDN] = {{8, 20, 8, 8}, 20, 24, {80, 20, 4, 4, 0, 8}},
        [HB_LAYER_KDA] = {{8, 20, 16, 8}, 20, 24, {80, 20, 4, 12, 0, 8}},
        [HB_LAYER_LIGHTNING] = {{8, 20, 0, 8}, 0, 24, {0, 0, 4, 0, 0, 8}},
        [HB_LAYER_SHORT_CONV] = {{0, 24, 0, 8}, 8, 0, {32, 8, 0, 0, 0, 0}},
        [HB_LAYER_MAMBA1] = {{8, 8, 14, 8}, 8, 24, {32, 8, 24, 8, 8, 8}},
    };
    (void)state;
    for (int32_t kind = 0; kind < HB_N_LAYER_KINDS; kind++) {
        struct hb_config c;
        struct hb_dims d;
        fixture_config(&c);
        c.layer_kind[0] = c.layer_kind[2] = kind;
        for (int32_t i = 0; i < 4; i++) {
            assert_int_equal(hb_config_io_width(&c, kind, i), want[kind].width[i]);
        }
        for (int32_t i = 0; i < HB_N_PARAMS; i++) {
            assert_int_equal(hb_config_param_count(&c, kind, i), want[kind].param[i]);
            assert_true(want[kind].param[i] > 0 || !hb_config_param_needed(&c, kind, i));
        }
        hb_config_dims(&c, &d);
        if (kind != HB_LAYER_ATTENTION) {
            assert_int_equal(d.linear_kind, kind);
            assert_int_equal(d.dim, want[kind].channels);
            assert_int_equal(d.temporal_slot_bytes, want[kind].elements * 4);
            assert_int_equal(d.conv_slot_bytes, want[kind].channels * 3 * 4);
        } else {
            assert_int_equal(d.linear_kind, -1);
        }
        c.conv_state_len = HB_CONV_STATE_FULL;
        hb_config_dims(&c, &d);
        assert_int_equal(d.window, 4);
    }
}

static void config_parameters_that_are_needed(void **state) {
    (void)state;
    struct hb_config c;
    fixture_config(&c);
    assert_true(hb_config_param_needed(&c, HB_LAYER_MAMBA2, HB_PARAM_A));
    assert_true(hb_config_param_needed(&c, HB_LAYER_SHORT_CONV, HB_PARAM_CONV_WEIGHT));
    assert_false(hb_config_param_needed(&c, HB_LAYER_SHORT_CONV, HB_PARAM_CONV_BIAS));
    assert_true(hb_config_param_needed(&c, HB_LAYER_LIGHTNING, HB_PARAM_A));
    c.slope_kind = HB_SLOPE_ALIBI;
    assert_false(hb_config_param_needed(&c, HB_LAYER_LIGHTNING, HB_PARAM_A));
    assert_true(hb_config_param_needed(&c, HB_LAYER_KDA, HB_PARAM_NORM_WEIGHT));
    c.gate_norm = HB_GATE_ONLY;
    assert_false(hb_config_param_needed(&c, HB_LAYER_KDA, HB_PARAM_NORM_WEIGHT));
    c.slope_kind = HB_SLOPE_TOKEN;
    assert_int_equal(hb_config_io_width(&c, HB_LAYER_LIGHTNING, 2), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_each_rule_fires),
        cmocka_unit_test(config_lower_rule_and_row_win_in_every_pair),
        cmocka_unit_test(config_conv_width_and_dt_limits),
        cmocka_unit_test(config_without_speculation_and_large_intermediate_states),
        cmocka_unit_test(config_features_up_to_their_limits),
        cmocka_unit_test(config_rules_of_kinds_and_attention),
        cmocka_unit_test(config_sizes_of_each_kind),
        cmocka_unit_test(config_parameters_that_are_needed),
        cmocka_unit_test(config_rules_of_a_ring_that_commits_own),
        cmocka_unit_test(config_texts_of_what_upstream_refuses),
        cmocka_unit_test(config_window_and_page_limits_are_inclusive),
        cmocka_unit_test(config_products_saturate),
        cmocka_unit_test(config_dims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
