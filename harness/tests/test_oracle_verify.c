/* SPDX-License-Identifier: Apache-2.0
 * Verify of the float64 oracle behind the adapter table: the laws of speculative.md sections 1-3
 * and invariants.md 50, 52-54, 58, bit for bit. */
#include "harness/tests/oracle_verify_rig.h"
#include "harness/tree.h"

/* ---- outputs and entries ---- */

/* invariants.md 52, 53 and the outputs of both layers: node t is what decoding its path gives. */
static void nodes_are_what_decoding_their_path_gives(void **state) {
    (void)state;
    for (int k = 0; k < 6; k++) {
        struct rig g;
        float out[2][MOST_TOKENS * D_INNER];
        int linked = k >= 3;
        rig_start(&g, k % 3, 2);
        fill(&g, CACHE_CONV, CACHE_SSM, 0xff); /* NaN: old entries are never read */
        batch(&g, HB_MODE_TARGET_VERIFY);
        draft_row(&g, 2, PREFIX, 6);
        draft_row(&g, 1, PREFIX, 6);
        verify(&g, 6, linked, 0, out[0], out[1]);
        for (int32_t node = 0; node < 12; node++) {
            int32_t r = node / 6;
            int32_t t = node % 6;
            int32_t path[6] = {0, 1, 2, 3, 4, 5};
            int32_t n = linked ? hb_tree_path(TREE_PARENT, t, path) : t + 1;
            float last[2][D_INNER];
            struct rig alone;
            rig_start(&alone, k % 3, 2);
            for (int32_t i = 0; i < n; i++) {
                decode(&alone, 2 - r, PREFIX + i, PREFIX + path[i], last[0], last[1]);
            }
            assert_true(entry_is_slot(&g, r, t, &alone, 2 - r));
            for (int l = 0; l < 2; l++) {
                assert_memory_equal(out[l] + (ptrdiff_t)node * D_INNER, last[l], sizeof last[l]);
            }
            rig_end(&alone);
        }
        rig_end(&g);
    }
}

/* invariants.md 54 */
static void a_chain_of_links_is_a_chain(void **state) {
    struct rig g[2];
    float out[2][2][MOST_TOKENS * D_INNER];
    (void)state;
    for (int i = 0; i < 2; i++) {
        rig_start(&g[i], 2, 1);
        batch(&g[i], HB_MODE_TARGET_VERIFY);
        draft_row(&g[i], 1, PREFIX, 4);
        if (i == 1) {
            memcpy(g[i].next, (const int32_t[]){1, 2, 3, -1}, 4 * sizeof *g[i].next);
            memcpy(g[i].sibling, (const int32_t[]){-1, -1, -1, -1}, 4 * sizeof *g[i].sibling);
            g[i].b.retrieve_next_token = (struct hb_i32s){g[i].next, 4};
            g[i].b.retrieve_next_sibling = (struct hb_i32s){g[i].sibling, 4};
        }
        verify(&g[i], 4, 0, 0, out[i][0], out[i][1]);
    }
    assert_memory_equal(out[0][0], out[1][0], UINT64_C(4) * D_INNER * sizeof(float));
    assert_memory_equal(out[0][1], out[1][1], UINT64_C(4) * D_INNER * sizeof(float));
    assert_true(same_region(&g[0], &g[1], CACHE_CONV) && same_region(&g[0], &g[1], CACHE_SSM));
    rig_end(&g[0]);
    rig_end(&g[1]);
}

/* invariants.md 58, and the surplus of ragged padding: outputs zero, no entry. */
static void a_ragged_row_is_the_head_of_the_uniform_one(void **state) {
    struct rig g;
    struct rig whole;
    float out[2][MOST_TOKENS * D_INNER];
    float want[2][MOST_TOKENS * D_INNER];
    static const int32_t counts[4] = {3, 1, 5, 2};
    unsigned char x[512];
    unsigned char y[512];
    uint64_t n = 0;
    (void)state;
    rig_start(&g, 1, 3);
    rig_start(&whole, 1, 3);
    fill(&g, CACHE_CONV, CACHE_SSM, 0x55);
    batch(&g, HB_MODE_TARGET_VERIFY);
    for (int32_t r = 0; r < 4; r++) {
        draft_row(&g, r < 3 ? r + 1 : 0, r < 3 ? PREFIX : 0, counts[r]);
    }
    g.b.has_original_batch_size = 1;
    g.b.original_batch_size = 3;
    verify(&g, 5, 0, 1, out[0], out[1]);
    batch(&whole, HB_MODE_TARGET_VERIFY);
    for (int32_t r = 0; r < 3; r++) {
        draft_row(&whole, r + 1, PREFIX, 5);
    }
    verify(&whole, 5, 0, 0, want[0], want[1]);
    for (int32_t r = 0; r < SPEC_ROWS; r++) {
        for (int32_t t = 0; t < MAX_DRAFT; t++) {
            for (int32_t part = 0; part < 2; part++) {
                read_entry(&g, CACHE_CONV + part, r, t, x, &n);
                read_entry(&whole, CACHE_CONV + part, r, t, y, &n);
                if (r == 3 || t >= counts[r]) {
                    memset(y, 0x55, n);
                }
                assert_memory_equal(x, y, n);
            }
        }
        for (int l = 0; l < 2 && r < 3; l++) {
            assert_memory_equal(out[l] + (ptrdiff_t)g.layout[r] * D_INNER,
                                want[l] + (ptrdiff_t)r * 5 * D_INNER,
                                (size_t)counts[r] * D_INNER * sizeof(float));
        }
    }
    for (int i = 9 * D_INNER; i < 11 * D_INNER; i++) {
        assert_true(out[0][i] == 0.0F && out[1][i] == 0.0F && !signbit(out[0][i]));
    }
    rig_end(&g);
    rig_end(&whole);
}

/* Other branches do not matter, NaN in them included, nor links and inputs beyond the nodes. */
static void a_branch_sees_its_ancestors_only(void **state) {
    struct rig g[2];
    float out[2][2][MOST_TOKENS * D_INNER];
    static const int32_t on_path[3] = {0, 2, 4};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct hb_error e = {0};
        rig_start(&g[i], 0, 1);
        batch(&g[i], HB_MODE_TARGET_VERIFY);
        draft_row(&g[i], 1, PREFIX, 6);
        for (int l = 0; l < 2 && i == 1; l++) {
            static const int32_t others[3] = {1, 3, 5};
            for (int k = 0; k < 3; k++) {
                for (int b = 0; b < 3; b++) {
                    for (int64_t c = 0; c < width_of(l, b); c++) {
                        g[i].in[l][b][others[k] * width_of(l, b) + c] = NAN;
                    }
                }
            }
        }
        verify(&g[i], 6, 1, 0, out[i][0], out[i][1]);
        assert_int_equal(commit_rows(&g[i], 1, (const int32_t[]){4}, NULL, NULL, &e), HB_OK);
    }
    for (int l = 0; l < 2; l++) {
        for (int k = 0; k < 3; k++) {
            ptrdiff_t at = (ptrdiff_t)on_path[k] * D_INNER;
            assert_memory_equal(out[0][l] + at, out[1][l] + at, D_INNER * sizeof(float));
        }
    }
    assert_true(isnan(out[1][0][5 * D_INNER])); /* the others do see it */
    assert_true(same_region(&g[0], &g[1], CONV) && same_region(&g[0], &g[1], TEMPORAL));
    rig_end(&g[0]);
    rig_end(&g[1]);
}

/* ---- what a verify writes ---- */

/* invariants.md 50 */
static void a_verify_leaves_slots_alone_and_may_be_repeated(void **state) {
    struct rig g;
    struct rig other;
    float out[2][2][MOST_TOKENS * D_INNER];
    (void)state;
    rig_start(&g, 1, 2);
    rig_start(&other, 1, 2);
    for (int i = 0; i < 2; i++) {
        batch(&g, HB_MODE_TARGET_VERIFY);
        draft_row(&g, 2, PREFIX, 6);
        verify(&g, 6, 1, 0, out[i][0], out[i][1]);
    }
    assert_memory_equal(out[0], out[1], UINT64_C(6) * D_INNER * sizeof(float));
    for (int32_t i = 0; i < N_REGIONS; i++) {
        assert_int_equal(same_region(&g, &other, i), i != KEYS && i != VALUES);
    }
    struct hb_error e = {0};
    float keys[2]
              [N_KV * 4]; /* new keys lie at out_cache_loc, node by node; all else is as before */
    unsigned char bytes[2][N_KV * 4 * 2];
    assert_int_equal(table->region_read(g.h, KEYS, 0, bytes[0], sizeof bytes[0], &e), HB_OK);
    assert_int_equal(table->region_read(other.h, KEYS, 0, bytes[1], sizeof bytes[1], &e), HB_OK);
    hb_unpack(HB_BF16, bytes[0], INT64_C(4) * N_KV, keys[0]);
    hb_unpack(HB_BF16, bytes[1], INT64_C(4) * N_KV, keys[1]);
    for (int32_t t = 0; t < 6; t++) {
        memcpy(keys[1] + (ptrdiff_t)g.loc[t] * 4, g.in[1][1] + (ptrdiff_t)t * 4, 4 * sizeof(float));
    }
    assert_memory_equal(keys[0], keys[1], sizeof keys[0]);
    rig_end(&g);
    rig_end(&other);
}

static void entries_are_indexed_by_batch_row_not_by_slot(void **state) {
    struct rig g;
    struct rig other;
    (void)state;
    rig_start(&g, 0, 3);
    rig_start(&other, 0, 3);
    batch(&g, HB_MODE_TARGET_VERIFY);
    draft_row(&g, 3, PREFIX, 2);
    draft_row(&g, 1, PREFIX, 2);
    verify(&g, 2, 0, 0, NULL, NULL);
    decode(&other, 1, PREFIX, PREFIX, NULL, NULL);
    assert_true(entry_is_slot(&g, 1, 0, &other, 1));
    assert_false(entry_is_slot(&g, 0, 0, &other, 1));
    rig_end(&g);
    rig_end(&other);
}

/* ---- construction and regions ---- */

static void caches_are_regions_of_every_mamba2_layer(void **state) {
    static const char *const names[2] = {"intermediate_conv", "intermediate_ssm"};
    static const int64_t shapes[2][4] = {{SPEC_ROWS, MAX_DRAFT, DIM, 2},
                                         {SPEC_ROWS, MAX_DRAFT, D_INNER, 2}};
    struct rig g;
    struct hb_error e = {0};
    struct hb_layer_params params[3] = {{0}};
    void *h = NULL;
    int32_t n = 0;
    (void)state;
    rig_init_rows(&g, HB_BF16, HB_FP32, SPEC_ROWS);
    g.config.n_layers = 3;
    memcpy(g.config.layer_kind,
           (const int32_t[]){HB_LAYER_MAMBA2, HB_LAYER_ATTENTION, HB_LAYER_MAMBA2},
           3 * sizeof g.config.layer_kind[0]);
    params[0] = params[2] = g.params[0];
    assert_int_equal(table->create(table->ctx, &g.config, params, &h, &e), HB_OK);
    assert_int_equal(table->n_regions(h, &n, &e), HB_OK);
    assert_int_equal(n, 6 + 3 + 4);
    for (int32_t i = 9; i < n; i++) {
        struct hb_region r;
        int part = (i - 9) % 2;
        assert_int_equal(table->region(h, i, &r, &e), HB_OK);
        assert_string_equal(r.name, names[part]);
        assert_memory_equal(r.shape, shapes[part], sizeof r.shape);
        assert_true(r.n_dims == 4 && r.layer == (i < 11 ? 0 : 2));
        assert_int_equal(r.dtype, part == 0 ? HB_BF16 : HB_FP32);
        assert_int_equal(r.bytes, UINT64_C(24) * (part == 0 ? 24 * 2 : 16 * 4));
    }
    assert_int_equal(table->region_read(h, n, 0, &n, 1, NULL), HB_ERR_RANGE);
    table->destroy(h);
    rig_end(&g);
}

static void create_refuses_bad_sizes_of_the_caches(void **state) {
    struct rig g;
    struct hb_error e = {0};
    void *h = NULL;
    (void)state;
    rig_config(&g, HB_FP32, HB_FP32);
    g.config.spec_rows = 3;
    g.params[1] = (struct hb_layer_params){0};
    assert_int_equal(table->create(table->ctx, &g.config, g.params, &h, &e), HB_ERR_SHAPE);
    assert_int_equal(e.rule, HB_RULE_CFG_SPEC);
    g.config.max_draft = 1 << 28;
    hb_error_clear(&e);
    assert_int_equal(table->create(table->ctx, &g.config, g.params, &h, &e), HB_ERR_SHAPE);
    assert_int_equal(e.rule, HB_RULE_CFG_DIM);
    assert_int_equal(e.row, 20);
    g.config.max_draft = 1 << 24; /* fits 32 bits of elements, not the memory */
    g.config.spec_rows = 5;
    hb_error_clear(&e);
    assert_int_equal(table->create(table->ctx, &g.config, g.params, &h, &e), HB_ERR_MEMORY);
    assert_null(h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_what_decoding_their_path_gives),
        cmocka_unit_test(a_chain_of_links_is_a_chain),
        cmocka_unit_test(a_ragged_row_is_the_head_of_the_uniform_one),
        cmocka_unit_test(a_branch_sees_its_ancestors_only),
        cmocka_unit_test(a_verify_leaves_slots_alone_and_may_be_repeated),
        cmocka_unit_test(entries_are_indexed_by_batch_row_not_by_slot),
        cmocka_unit_test(caches_are_regions_of_every_mamba2_layer),
        cmocka_unit_test(create_refuses_bad_sizes_of_the_caches),
    };
    table = hb_adapter_oracle();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
