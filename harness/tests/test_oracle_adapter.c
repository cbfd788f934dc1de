/* SPDX-License-Identifier: Apache-2.0
 * The float64 oracle behind the adapter table keeps the promises of adapter.h: statuses, purity of
 * errors, free list, state in and out of slots, tracking, zero-filled padding, and numbers within
 * the bounds of its own profile. */
#include "harness/tests/oracle_rig.h"

static void it_declares_what_it_is(void **state) {
    struct hb_caps caps;
    struct hb_error e = {0};
    (void)state;
    assert_int_equal(table->describe(table->ctx, &caps, &e), HB_OK);
    assert_true(caps.modes == 0x37e && caps.error_level == 2 && caps.has_regions &&
                caps.exact_guards && caps.tree_verify && caps.ragged_verify);
    assert_true(caps.graphs && caps.ring && caps.virtual_slots && caps.pool_pad &&
                caps.track_by_layer && caps.window_layouts == 3 && caps.replay_exact == 3 &&
                caps.verify_exact == 3);
    assert_true(caps.profile[0][0][HB_BF16].u_io > 0.0 && caps.profile[0][0][HB_FP32].u_io == 0.0);
    assert_int_equal(table->describe(table->ctx, NULL, &e), HB_ERR_NULL);
}

static void create_refuses_bad_configurations_and_missing_parameters(void **state) {
    struct rig g;
    struct hb_error e = {0};
    void *h = &g;
    (void)state;
    rig_config(&g, HB_FP32, HB_FP32);
    g.params[1] = (struct hb_layer_params){0};
    g.config.n_groups = 3;
    assert_int_equal(table->create(table->ctx, &g.config, g.params, &h, &e), HB_ERR_SHAPE);
    assert_int_equal(e.rule, HB_RULE_CFG_GROUPS);
    g.config.n_groups = 1;
    g.params[0].norm_weight = NULL;
    hb_error_clear(&e);
    assert_int_equal(table->create(table->ctx, &g.config, g.params, &h, &e), HB_ERR_NULL);
    g.config.n_heads = 1 << 30;
    g.config.head_dim = 1 << 30;
    g.config.norm_group = 1;
    hb_error_clear(&e);
    assert_int_equal(table->create(table->ctx, &g.config, g.params, &h, &e), HB_ERR_SHAPE);
    assert_int_equal(e.rule, HB_RULE_CFG_DIM);
    assert_int_equal(e.row, 17); /* elements of the conv pool */
    assert_ptr_equal(h, &g);
}

static void slots_are_taken_first_in_first_out_and_read_as_zero(void **state) {
    struct rig g;
    struct hb_error e = {0};
    unsigned char bytes[512];
    uint64_t n = 0;
    int32_t ids[2];
    (void)state;
    rig_init(&g, HB_FP32, HB_FP32);
    batch(&g, HB_MODE_EXTEND);
    row(&g, 1, 0, 5);
    forward(&g, 0, NULL, NULL);
    read_slot(&g, TEMPORAL, 1, bytes, &n);
    assert_memory_not_equal(bytes, (unsigned char[512]){0}, n);
    assert_int_equal(table->slot_free(g.h, 1, (const int32_t[]){1}, &e), HB_OK);
    read_slot(&g, TEMPORAL, 1, bytes, &n);
    assert_memory_not_equal(bytes, (unsigned char[512]){0}, n); /* untouched by free */
    assert_int_equal(table->slot_take(g.h, 2, HB_SLOT_TRACK, ids, &e), HB_OK);
    assert_true(ids[0] == 5 && ids[1] == 1);
    for (int32_t region = CONV; region <= TEMPORAL; region++) {
        read_slot(&g, region, 1, bytes, &n);
        assert_memory_equal(bytes, (unsigned char[512]){0}, n);
    }
    rig_end(&g);
}

/* Outputs and states against the reference itself, at each type. */
static void outputs_and_states_lie_within_the_bounds_of_the_profile(void **state) {
    static const int32_t types[3][2] = {{HB_FP32, HB_FP32}, {HB_BF16, HB_FP32}, {HB_BF16, HB_BF16}};
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct rig g;
        struct hb_caps caps;
        struct hb_error e = {0};
        float out[MOST_TOKENS * D_INNER];
        float attended[MOST_TOKENS * D_INNER];
        double mag[D_INNER];
        double want[11 * D_INNER];
        double bound[11 * D_INNER];
        float got[D_INNER * 2];
        unsigned char bytes[512];
        uint64_t n = 0;
        rig_init(&g, types[k][0], types[k][1]);
        assert_int_equal(table->describe(table->ctx, &caps, &e), HB_OK);
        batch(&g, HB_MODE_EXTEND);
        row(&g, 2, 0, 11);
        forward(&g, 0, out, attended);
        struct hb_ref_state *s = hb_ref_state_new(&g.config);
        assert_non_null(s);
        const struct hb_profile *p = &caps.profile[0][HB_PATH_PREFILL][types[k][0]];
        assert_int_equal(hb_ref_mamba2(&g.config, g.params, p, HB_PATH_PREFILL, 11, g.in[0][0],
                                       g.in[0][1], g.in[0][2], s, want, bound, NULL, NULL, 0),
                         0);
        for (int i = 0; i < 11 * D_INNER; i++) {
            assert_true(fabs((double)out[i] - want[i]) <= bound[i]);
        }
        for (int t = 0; t < 11; t++) {
            double *w = want + (ptrdiff_t)t * D_INNER;
            double *b = bound + (ptrdiff_t)t * D_INNER;
            hb_ref_attention(&g.config, p, t + 1, g.in[1][0] + (ptrdiff_t)t * 8, g.in[1][1],
                             g.in[1][2], w, b, mag);
            for (int i = 0; i < D_INNER; i++) {
                assert_true(fabs((double)attended[t * D_INNER + i] - w[i]) <= b[i]);
            }
        }
        read_slot(&g, TEMPORAL, 2, bytes, &n);
        hb_unpack(types[k][1], bytes, INT64_C(2) * D_INNER, got);
        for (int i = 0; i < D_INNER * 2; i++) {
            assert_true(fabs((double)got[i] - s->h[i]) <=
                        hb_ref_state_bound(&g.config, p, s, i, 0));
        }
        hb_ref_state_free(s);
        rig_end(&g);
    }
}

static void a_split_request_ends_as_the_whole_one_up_to_rounding(void **state) {
    struct rig whole;
    struct rig split;
    float out[2][MOST_TOKENS * D_INNER];
    float last[2][MOST_TOKENS * D_INNER];
    (void)state;
    rig_init(&whole, HB_FP32, HB_FP32);
    rig_init(&split, HB_FP32, HB_FP32);
    batch(&whole, HB_MODE_EXTEND);
    row(&whole, 1, 0, 8);
    forward(&whole, 0, out[0], out[1]);
    batch(&split, HB_MODE_EXTEND);
    row(&split, 1, 0, 1);
    forward(&split, 0, NULL, NULL);
    batch(&split, HB_MODE_MIXED);
    row(&split, 1, 1, 6);
    forward(&split, 0, NULL, NULL);
    batch(&split, HB_MODE_DECODE);
    row(&split, 1, 7, 0);
    forward(&split, 0, last[0], last[1]);
    assert_true(same_slot(&whole, CONV, 1, &split, 1));
    struct hb_caps caps;
    double want[8 * D_INNER];
    double bound[8 * D_INNER];
    assert_int_equal(table->describe(table->ctx, &caps, NULL), HB_OK);
    struct hb_ref_state *s = hb_ref_state_new(&whole.config);
    assert_non_null(s);
    assert_int_equal(hb_ref_mamba2(&whole.config, whole.params,
                                   &caps.profile[0][HB_PATH_PREFILL][HB_FP32], HB_PATH_PREFILL, 8,
                                   whole.in[0][0], whole.in[0][1], whole.in[0][2], s, want, bound,
                                   NULL, NULL, 0),
                     0);
    hb_ref_state_free(s);
    for (int i = 0; i < D_INNER; i++) {
        int at = 7 * D_INNER + i;
        assert_true(fabs((double)out[0][at] - want[at]) <= bound[at]);
        assert_true(fabs((double)last[0][i] - want[at]) <= bound[at]);
        assert_true(out[1][at] == last[1][i]); /* the cache is exact */
    }
    rig_end(&whole);
    rig_end(&split);
}

static void rows_do_not_disturb_each_other_and_surplus_is_zero(void **state) {
    struct rig g;
    struct rig alone;
    float out[2][MOST_TOKENS * D_INNER];
    float single[2][MOST_TOKENS * D_INNER];
    (void)state;
    rig_init(&g, HB_BF16, HB_FP32);
    rig_init(&alone, HB_BF16, HB_FP32);
    batch(&g, HB_MODE_EXTEND);
    row(&g, 1, 0, 4);
    row(&g, 3, 0, 6);
    row(&g, 0, 0, 0); /* padding */
    g.b.n_tokens -= 1;
    g.b.has_original_batch_size = 1;
    g.b.original_batch_size = 2;
    forward(&g, 3, out[0], out[1]);
    batch(&alone, HB_MODE_EXTEND);
    row(&alone, 3, 0, 6);
    forward(&alone, 0, single[0], single[1]);
    for (int l = 0; l < 2; l++) {
        assert_memory_equal(out[l] + (ptrdiff_t)4 * D_INNER, single[l],
                            (size_t)6 * D_INNER * sizeof(float));
        for (int i = 10 * D_INNER; i < 13 * D_INNER; i++) {
            assert_true(out[l][i] == 0.0F && !signbit(out[l][i]));
        }
    }
    assert_true(same_slot(&g, TEMPORAL, 3, &alone, 3) && same_slot(&g, TEMPORAL, 2, &alone, 2));
    assert_true(same_slot(&g, TEMPORAL, 0, &alone, 0));
    rig_end(&g);
    rig_end(&alone);
}

static void a_row_without_prefix_ignores_the_old_bytes_of_its_slot(void **state) {
    struct rig g;
    struct rig dirty;
    struct hb_error e = {0};
    unsigned char nan_bytes[512];
    (void)state;
    rig_init(&g, HB_FP32, HB_FP32);
    rig_init(&dirty, HB_FP32, HB_FP32);
    memset(nan_bytes, 0xff, sizeof nan_bytes);
    assert_int_equal(table->region_write(dirty.h, CONV, CONV_BYTES, nan_bytes, CONV_BYTES, &e),
                     HB_OK);
    assert_int_equal(table->region_write(dirty.h, TEMPORAL, SSM_BYTES, nan_bytes, SSM_BYTES, &e),
                     HB_OK);
    struct rig *both[2] = {&g, &dirty};
    for (int i = 0; i < 2; i++) {
        batch(both[i], HB_MODE_EXTEND);
        row(both[i], 1, 0, 1);
        forward(both[i], 0, NULL, NULL);
    }
    assert_true(same_slot(&g, CONV, 1, &dirty, 1) && same_slot(&g, TEMPORAL, 1, &dirty, 1));
    batch(&dirty, HB_MODE_EXTEND); /* with a prefix they count */
    assert_int_equal(table->region_write(dirty.h, TEMPORAL, SSM_BYTES, nan_bytes, SSM_BYTES, &e),
                     HB_OK);
    row(&dirty, 1, 1, 1);
    row(&g, 1, 1, 1);
    forward(&dirty, 0, NULL, NULL);
    assert_false(same_slot(&g, TEMPORAL, 1, &dirty, 1));
    rig_end(&g);
    rig_end(&dirty);
}

static void an_extend_checkpoint_is_the_state_after_its_tokens(void **state) {
    struct rig g;
    struct rig shorter;
    (void)state;
    rig_init(&g, HB_BF16, HB_BF16);
    rig_init(&shorter, HB_BF16, HB_BF16);
    batch(&g, HB_MODE_EXTEND);
    row(&g, 2, 0, 11);
    g.mask[0] = 1;
    g.track[0] = 4;
    g.point[0] = 10; /* last multiple of 4: 8 */
    forward(&g, 1, NULL, NULL);
    batch(&shorter, HB_MODE_EXTEND);
    row(&shorter, 2, 0, 8);
    forward(&shorter, 0, NULL, NULL);
    assert_true(same_slot(&g, CONV, 4, &shorter, 2) && same_slot(&g, TEMPORAL, 4, &shorter, 2));
    assert_false(same_slot(&g, CONV, 4, &g, 2));
    rig_end(&g);
    rig_end(&shorter);
}

static void a_decode_checkpoint_appears_in_finish(void **state) {
    struct rig g;
    struct hb_error e = {0};
    (void)state;
    rig_init(&g, HB_FP32, HB_BF16);
    batch(&g, HB_MODE_EXTEND);
    row(&g, 1, 0, 3);
    row(&g, 2, 0, 3);
    forward(&g, 0, NULL, NULL);
    batch(&g, HB_MODE_DECODE);
    row(&g, 1, 3, 0);
    row(&g, 2, 3, 0);
    g.mask[1] = 1;
    g.track[1] = 4;
    assert_int_equal(begin(&g, 0, &e), HB_OK);
    assert_int_equal(layer(&g, 0, NULL, &e), HB_OK);
    assert_int_equal(table->finish(g.h, &e), HB_OK);
    assert_true(same_slot(&g, CONV, 4, &g, 2) && same_slot(&g, TEMPORAL, 4, &g, 2));
    assert_false(same_slot(&g, TEMPORAL, 4, &g, 1));
    assert_int_equal(table->finish(g.h, &e), HB_ERR_STATE);
    rig_end(&g);
}

static void errors_change_no_byte_and_keep_the_metadata(void **state) {
    struct rig g;
    struct hb_error e = {0};
    size_t size = 0;
    (void)state;
    rig_init(&g, HB_FP32, HB_FP32);
    batch(&g, HB_MODE_EXTEND);
    row(&g, 1, 0, 5);
    assert_int_equal(begin(&g, 0, &e), HB_OK);
    unsigned char *before = snapshot(&g, &size);
    struct hb_batch bad = g.b;
    bad.forward_mode = 7;
    assert_int_equal(table->begin(g.h, &bad, NULL), HB_ERR_INVALID_MODE);
    assert_int_equal(table->begin(g.h, NULL, NULL), HB_ERR_NULL);
    struct hb_layer_io io = g.io[0];
    io.out.bytes = UINT64_C(5) * D_INNER * 4 - 1;
    assert_int_equal(table->layer(g.h, 0, &io, NULL), HB_ERR_SHAPE);
    assert_int_equal(table->layer(g.h, 0, NULL, NULL), HB_ERR_NULL);
    assert_int_equal(table->layer(g.h, 2, &g.io[0], NULL), HB_ERR_RANGE);
    assert_int_equal(table->slot_take(g.h, 9, HB_SLOT_LIVE, NULL, NULL), HB_ERR_CAPACITY);
    assert_int_equal(table->slot_free(g.h, 2, (const int32_t[]){1, 5}, NULL), HB_ERR_FREED);
    assert_int_equal(table->slot_copy(g.h, 1, 1, NULL), HB_ERR_ALIAS);
    assert_int_equal(table->table_set(g.h, REQS, 1, NULL), HB_ERR_RANGE);
    assert_int_equal(table->entry(g.h, HB_ENTRY_CHILD, 0, 1, &g.io[1], NULL),
                     HB_ERR_NOT_IMPLEMENTED);
    assert_int_equal(table->entry(g.h, HB_ENTRY_WRAPPER, 0, 0, &g.io[0], NULL),
                     HB_ERR_NOT_IMPLEMENTED);
    assert_int_equal(table->region_write(g.h, CONV, 1, before, CONV_BYTES * (NS + 1), NULL),
                     HB_ERR_RANGE);
    assert_int_equal(table->region_write(g.h, N_REGIONS, 0, before, 1, NULL), HB_ERR_RANGE);
    assert_int_equal(table->buf_write(g.h, io.out, before, io.out.bytes + 1, NULL), HB_ERR_RANGE);
    size_t after_size = 0;
    unsigned char *after = snapshot(&g, &after_size);
    assert_int_equal(size, after_size);
    assert_memory_equal(before, after, size);
    assert_int_equal(layer(&g, 0, NULL, &e), HB_OK); /* the first begin still stands */
    assert_int_equal(layer(&g, 0, NULL, &e), HB_ERR_STATE);
    assert_int_equal(e.rule, HB_RULE_LAYER_TWICE);
    assert_int_equal(table->launches(g.h), 1);
    free(before);
    free(after);
    rig_end(&g);
}

static void a_null_handle_is_refused_everywhere(void **state) {
    struct hb_buf buf = {0};
    struct hb_region r;
    int32_t n = 0;
    (void)state;
    assert_int_equal(table->buf_alloc(NULL, 1, &buf, NULL), HB_ERR_NULL);
    assert_int_equal(table->buf_write(NULL, buf, &n, 1, NULL), HB_ERR_NULL);
    assert_int_equal(table->buf_read(NULL, buf, &n, 1, NULL), HB_ERR_NULL);
    assert_int_equal(table->slot_take(NULL, 1, 1, &n, NULL), HB_ERR_NULL);
    assert_int_equal(table->slot_free(NULL, 1, &n, NULL), HB_ERR_NULL);
    assert_int_equal(table->slot_copy(NULL, 1, 2, NULL), HB_ERR_NULL);
    assert_int_equal(table->slot_publish(NULL, 1, NULL), HB_ERR_NULL);
    assert_int_equal(table->slot_move(NULL, 1, NULL), HB_ERR_NULL);
    assert_int_equal(table->table_set(NULL, 1, 2, NULL), HB_ERR_NULL);
    assert_int_equal(table->graph_init(NULL, 1, 1, NULL), HB_ERR_NULL);
    assert_int_equal(table->capture(NULL, NULL, NULL), HB_ERR_NULL);
    assert_int_equal(table->replay(NULL, NULL, NULL), HB_ERR_NULL);
    assert_int_equal(table->commit(NULL, NULL, NULL), HB_ERR_NULL);
    assert_int_equal(table->begin(NULL, NULL, NULL), HB_ERR_NULL);
    assert_int_equal(table->layer(NULL, 0, NULL, NULL), HB_ERR_NULL);
    assert_int_equal(table->finish(NULL, NULL), HB_ERR_NULL);
    assert_int_equal(table->entry(NULL, HB_ENTRY_WRAPPER, 0, 0, NULL, NULL), HB_ERR_NULL);
    assert_int_equal(table->entry(NULL, HB_ENTRY_CHILD, 0, 0, NULL, NULL), HB_ERR_NOT_IMPLEMENTED);
    assert_int_equal(table->n_regions(NULL, &n, NULL), HB_ERR_NULL);
    assert_int_equal(table->region(NULL, 0, &r, NULL), HB_ERR_NULL);
    assert_int_equal(table->region_read(NULL, 0, 0, &n, 1, NULL), HB_ERR_NULL);
    assert_int_equal(table->region_write(NULL, 0, 0, &n, 1, NULL), HB_ERR_NULL);
    assert_int_equal(table->launches(NULL), 0);
    table->buf_free(NULL, buf);
    table->destroy(NULL);
}

static void an_idle_forward_zero_fills_and_changes_nothing(void **state) {
    struct rig g;
    struct hb_error e = {0};
    float out[MOST_TOKENS * D_INNER];
    size_t size = 0;
    (void)state;
    rig_init(&g, HB_FP32, HB_FP32);
    batch(&g, HB_MODE_EXTEND);
    row(&g, 1, 0, 5);
    forward(&g, 0, NULL, NULL);
    unsigned char *before = snapshot(&g, &size);
    batch(&g, HB_MODE_IDLE);
    assert_int_equal(begin(&g, 4, &e), HB_OK);
    for (int32_t l = 0; l < 2; l++) {
        assert_int_equal(table->entry(g.h, HB_ENTRY_WRAPPER, HB_ENTRY_EXTEND, l, &g.io[l], &e),
                         HB_OK);
        assert_int_equal(table->buf_read(g.h, g.io[l].out, out, UINT64_C(4) * D_INNER * 4, &e),
                         HB_OK);
        for (int i = 0; i < 4 * D_INNER; i++) {
            assert_true(out[i] == 0.0F);
        }
    }
    assert_int_equal(table->finish(g.h, &e), HB_OK);
    unsigned char *after = snapshot(&g, &size);
    assert_memory_equal(before, after, size);
    free(before);
    free(after);
    rig_end(&g);
}

static void regions_have_the_names_and_shapes_of_the_contract(void **state) {
    static const char *const names[N_REGIONS] = {"conv",        "temporal",  "kv_k",     "kv_v",
                                                 "req_to_slot", "slot_kind", "free_list"};
    static const int64_t shapes[N_REGIONS][4] = {{NS + 1, DIM, 2},
                                                 {NS + 1, HEADS, 4, 2},
                                                 {N_KV, 1, 4},
                                                 {N_KV, 1, 4},
                                                 {REQS},
                                                 {NS + 1},
                                                 {NS}};
    struct rig g;
    struct hb_error e = {0};
    int32_t words[NS + 1];
    (void)state;
    rig_init(&g, HB_BF16, HB_FP32);
    for (int32_t i = 0; i < N_REGIONS; i++) {
        struct hb_region r;
        assert_int_equal(table->region(g.h, i, &r, &e), HB_OK);
        assert_string_equal(r.name, names[i]);
        assert_memory_equal(r.shape, shapes[i], sizeof r.shape);
        assert_int_equal(r.layer, i < 2 ? 0 : i < 4 ? 1 : -1);
        assert_int_equal(r.dtype, i == TEMPORAL ? HB_FP32 : i >= TABLE ? HB_INT32 : HB_BF16);
        assert_int_equal(r.kind, i >= TABLE ? HB_REGION_TABLE : HB_REGION_STATE);
    }
    assert_int_equal(table->region_read(g.h, KIND, 0, words, sizeof words, &e), HB_OK);
    assert_memory_equal(words, ((const int32_t[]){HB_SLOT_RESERVED, 1, 1, 1, 2, 0}), sizeof words);
    assert_int_equal(table->region_read(g.h, TABLE, 0, words, UINT64_C(4) * REQS, &e), HB_OK);
    assert_memory_equal(words, ((const int32_t[]){0, 1, 2, 3}), UINT64_C(4) * REQS);
    assert_int_equal(table->region_read(g.h, FREE_LIST, 0, words, UINT64_C(4) * NS, &e), HB_OK);
    assert_memory_equal(words, ((const int32_t[]){5, 0, 0, 0, 0}), UINT64_C(4) * NS);
    words[1] = 2; /* a written free list counts as it stands */
    assert_int_equal(table->region_write(g.h, FREE_LIST, 0, words, UINT64_C(4) * NS, &e), HB_OK);
    assert_int_equal(table->slot_take(g.h, 2, HB_SLOT_LIVE, words, &e), HB_OK);
    assert_true(words[0] == 5 && words[1] == 2);
    rig_end(&g);
}

/* What a configuration with every feature adds to the regions, in this order. */
static void features_add_regions_of_the_contract(void **state) {
    enum { L = 3, PAD = 5, NV = 9, GR = 2, GD = 4 };
    static const struct {
        const char *name;
        int32_t layer, dtype, kind;
        int64_t shape[4];
    } want[] = {
        {"intermediate_conv", 0, HB_BF16, HB_REGION_STATE, {2, DIM, GD + 1}},
        {"intermediate_ssm", 0, HB_FP32, HB_REGION_STATE, {2, GD, D_INNER, 2}},
        {"conv_pad", 0, HB_BF16, HB_REGION_STATE, {NS + 1, PAD}},
        {"temporal_pad", 0, HB_FP32, HB_REGION_STATE, {NS + 1, PAD}},
        {"ring_x", 0, HB_FP32, HB_REGION_CURSOR, {NS + 1, HEADS, L, 4}},
        {"ring_b", 0, HB_FP32, HB_REGION_CURSOR, {NS + 1, 1, L, 2}},
        {"ring_g", 0, HB_FP32, HB_REGION_CURSOR, {NS + 1, HEADS, L}},
        {"v2p", -1, HB_INT32, HB_REGION_TABLE, {NV + 1}},
        {"free_ids", -1, HB_INT32, HB_REGION_TABLE, {NV}},
        {"write_pos", -1, HB_INT32, HB_REGION_CURSOR, {NS + 1}},
        {"graph_state_indices", -1, HB_INT32, HB_REGION_STATIC, {GR, GR}},
        {"graph_query_start_loc", -1, HB_INT32, HB_REGION_STATIC, {GR, GR + 1}},
        {"graph_track_indices", -1, HB_INT32, HB_REGION_STATIC, {GR}},
        {"graph_track_mask", -1, HB_INT32, HB_REGION_STATIC, {GR}},
        {"graph_next_token", -1, HB_INT32, HB_REGION_STATIC, {GR, GR, GD}},
        {"graph_next_sibling", -1, HB_INT32, HB_REGION_STATIC, {GR, GR, GD}},
        {"graph_parents", -1, HB_INT32, HB_REGION_STATIC, {GR, GR, GD}},
        {"graph_write_pos", -1, HB_INT32, HB_REGION_STATIC, {GR, GR}},
        {"graph_force_flush", -1, HB_INT32, HB_REGION_STATIC, {GR, GR}},
    };
    const int32_t n_want = (int32_t)(sizeof want / sizeof *want);
    struct rig g;
    struct hb_error e = {0};
    int32_t n = 0;
    (void)state;
    memset(&g, 0, sizeof g);
    rig_config(&g, HB_BF16, HB_FP32);
    g.config.spec_rows = 2;
    g.config.max_draft = GD;
    g.config.window_layout = HB_WINDOWS_STRIP;
    g.config.pool_pad = PAD;
    g.config.ring_length = L;
    g.config.n_virtual = NV;
    g.config.graph_rows = GR;
    g.config.graph_draft = GD;
    assert_int_equal(table->create(table->ctx, &g.config, g.params, &g.h, &e), HB_OK);
    assert_int_equal(table->n_regions(g.h, &n, &e), HB_OK);
    assert_int_equal(n, N_REGIONS + n_want);
    for (int32_t i = 0; i < n_want; i++) {
        struct hb_region r;
        uint64_t bytes = want[i].dtype == HB_BF16 ? 2 : 4;
        assert_int_equal(table->region(g.h, N_REGIONS + i, &r, &e), HB_OK);
        assert_string_equal(r.name, want[i].name);
        assert_memory_equal(r.shape, want[i].shape, sizeof r.shape);
        assert_true(r.layer == want[i].layer && r.dtype == want[i].dtype && r.kind == want[i].kind);
        for (int32_t k = 0; k < r.n_dims; k++) {
            bytes *= (uint64_t)r.shape[k];
        }
        assert_true(r.bytes == bytes && (r.n_dims == 4 || r.shape[r.n_dims] == 0));
    }
    table->destroy(g.h);
}

static void slot_copy_copies_every_mamba2_layer(void **state) {
    struct rig g;
    struct hb_error e = {0};
    (void)state;
    rig_init(&g, HB_FP32, HB_FP32);
    batch(&g, HB_MODE_SPLIT_PREFILL);
    row(&g, 1, 0, 5);
    forward(&g, 0, NULL, NULL);
    assert_false(same_slot(&g, CONV, 1, &g, 3));
    assert_int_equal(table->slot_copy(g.h, 1, 3, &e), HB_OK);
    assert_true(same_slot(&g, CONV, 1, &g, 3) && same_slot(&g, TEMPORAL, 1, &g, 3));
    rig_end(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_declares_what_it_is),
        cmocka_unit_test(create_refuses_bad_configurations_and_missing_parameters),
        cmocka_unit_test(slots_are_taken_first_in_first_out_and_read_as_zero),
        cmocka_unit_test(outputs_and_states_lie_within_the_bounds_of_the_profile),
        cmocka_unit_test(a_split_request_ends_as_the_whole_one_up_to_rounding),
        cmocka_unit_test(rows_do_not_disturb_each_other_and_surplus_is_zero),
        cmocka_unit_test(a_row_without_prefix_ignores_the_old_bytes_of_its_slot),
        cmocka_unit_test(an_extend_checkpoint_is_the_state_after_its_tokens),
        cmocka_unit_test(a_decode_checkpoint_appears_in_finish),
        cmocka_unit_test(errors_change_no_byte_and_keep_the_metadata),
        cmocka_unit_test(a_null_handle_is_refused_everywhere),
        cmocka_unit_test(an_idle_forward_zero_fills_and_changes_nothing),
        cmocka_unit_test(regions_have_the_names_and_shapes_of_the_contract),
        cmocka_unit_test(features_add_regions_of_the_contract),
        cmocka_unit_test(slot_copy_copies_every_mamba2_layer),
    };
    table = hb_adapter_oracle();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
