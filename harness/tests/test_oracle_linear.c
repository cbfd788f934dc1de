/* SPDX-License-Identifier: Apache-2.0
 * Every linear kind through the oracle behind the adapter table: regions, outputs and states of
 * prefill, decode, tracking, verify and commit, in all types, state layouts and conv states. */
#include "harness/tests/oracle_kinds_rig.h"
#include "harness/oracle/ref_internal.h"
#include "harness/values.h"

static const int32_t KINDS[] = {HB_LAYER_MAMBA2,    HB_LAYER_GDN,        HB_LAYER_KDA,
                                HB_LAYER_LIGHTNING, HB_LAYER_SHORT_CONV, HB_LAYER_MAMBA1};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS, N_VARIANTS = 64 };

/* Calls `body` for every kind, activation type and a selection of variants. */
static void for_all(void (*body)(struct kit *k)) {
    struct kit *k = malloc(sizeof *k);
    assert_non_null(k);
    for (int32_t i = 0; i < N_KINDS; i++) {
        for (int32_t variant = 0; variant < N_VARIANTS; variant++) {
            memset(k, 0, sizeof *k);
            kit_config(k, KINDS[i], (variant + variant / 3 + i) % HB_N_FLOAT_DTYPES, variant);
            kit_open(k);
            body(k);
            kit_close(k);
        }
    }
    free(k);
}

static void assert_region(struct kit *k, const char *name, int is_there, const int64_t *shape,
                          int32_t n_dims) {
    struct hb_region r;
    const int found = kit_region(k, name, &r) >= 0;
    if (found != is_there) {
        fail_msg("kind %d: region %s %s", k->config.layer_kind[0], name,
                 is_there ? "is not there" : "should not be there");
    }
    if (found) {
        assert_int_equal(r.n_dims, n_dims);
        assert_memory_equal(r.shape, shape, (size_t)n_dims * sizeof *shape);
    }
}

static void check_regions(struct kit *k) {
    const struct hb_config *c = &k->config;
    const int32_t kind = c->layer_kind[0];
    const int has_conv = kind != HB_LAYER_LIGHTNING, has_state = kind != HB_LAYER_SHORT_CONV;
    const int64_t channels = kind == HB_LAYER_SHORT_CONV || kind == HB_LAYER_MAMBA1 ? 8 : 20;
    const int64_t columns = c->conv_state_len == HB_CONV_STATE_FULL ? 3 : 2;
    const int is_kv = c->state_layout == HB_STATE_KV;
    const int64_t p = is_kv ? 3 : 2, n = is_kv ? 2 : 3;
    const int64_t dense[4] = {KIT_ROWS, KIT_DRAFT, channels, columns};
    const int64_t strip[3] = {KIT_ROWS, channels, KIT_DRAFT + columns - 1};
    const int is_strip = c->window_layout == HB_WINDOWS_STRIP;
    assert_region(k, "conv", has_conv, (int64_t[]){KIT_SLOTS + 1, channels, columns}, 3);
    assert_region(k, "temporal", has_state, (int64_t[]){KIT_SLOTS + 1, 4, p, n}, 4);
    assert_region(k, "intermediate_conv", has_conv, is_strip ? strip : dense, is_strip ? 3 : 4);
    assert_region(k, "intermediate_ssm", has_state, (int64_t[]){KIT_ROWS, KIT_DRAFT, 4 * p, n}, 4);
    assert_region(k, "conv_pad", has_conv, (int64_t[]){KIT_SLOTS + 1, 2}, 2);
    assert_region(k, "temporal_pad", has_state, (int64_t[]){KIT_SLOTS + 1, 2}, 2);
    assert_region(k, "ring_x", 0, NULL, 0);
    assert_region(k, "kv_k", 0, NULL, 0);
}

static void a_kind_has_the_regions_of_its_states(void **state) {
    (void)state;
    for_all(check_regions);
}

/* ---- against the reference itself ---- */

static float stored(int32_t dtype, double x) {
    unsigned char bytes[4];
    float y = (float)x;
    hb_pack(dtype, &y, 1, bytes);
    hb_unpack(dtype, bytes, 1, &y);
    return y;
}

/* Slot against a state of the reference, element by element in the order of the layout. */
static void assert_slot(struct kit *k, int32_t slot, const struct hb_ref_state *s) {
    const struct hb_config *c = &k->config;
    float got[KIT_STATE * 8] = {0};
    if (s == NULL) {
        fail_msg("out of memory");
        return;
    }
    const int64_t n_conv = kit_read(k, "conv", slot, got);
    assert_int_equal(n_conv, k->size.channels * k->size.window);
    for (int64_t i = 0; i < n_conv; i++) {
        assert_true(got[i] == stored(c->act_dtype, s->conv[i]));
    }
    const int64_t n_state = kit_read(k, "temporal", slot, got);
    assert_int_equal(n_state, k->size.n_state);
    for (int64_t i = 0; i < n_state; i++) {
        const int64_t h = i / 6, p = i / 3 % 2, n = i % 3;
        const int64_t at = c->state_layout == HB_STATE_KV ? h * 6 + n * 2 + p : i;
        assert_true(got[at] == stored(c->state_dtype, s->h[i]));
    }
}

/* The reference from a stored slot; empty: from nothing. */
static void set_from_slot(struct kit *k, int32_t slot, struct hb_ref_state *s) {
    float conv[KIT_STATE * 8] = {0}, ssm[KIT_STATE] = {0}, turned[KIT_STATE] = {0};
    (void)kit_read(k, "conv", slot, conv);
    (void)kit_read(k, "temporal", slot, ssm);
    for (int64_t i = 0; i < k->size.n_state; i++) {
        const int64_t h = i / 6, p = i / 3 % 2, n = i % 3;
        turned[i] = ssm[k->config.state_layout == HB_STATE_KV ? h * 6 + n * 2 + p : i];
    }
    hb_ref_state_set(&k->config, s, conv, turned);
}

/* Tokens first..first+n-1 of the last forward again, through the reference. */
static void assert_outputs(struct kit *k, int32_t path, int64_t first, int32_t n,
                           struct hb_ref_state *s, struct hb_ref_state *at, int32_t at_tokens) {
    struct hb_caps caps;
    double want[KIT_TOKENS * KIT_WIDTH];
    const int64_t *w = k->size.width;
    assert_int_equal(k->table->describe(k->table->ctx, &caps, &k->e), HB_OK);
    assert_int_equal(hb_ref_linear(&k->config, 0, &k->params,
                                   &caps.profile[0][path][k->config.act_dtype], path, n,
                                   k->in[0] + first * w[0], k->in[1] + first * w[1],
                                   k->in[2] + first * w[2], s, want, NULL, NULL, at, at_tokens),
                     0);
    for (int64_t i = 0; i < n * w[3]; i++) {
        assert_true(k->out[first * w[3] + i] == stored(k->config.act_dtype, want[i]));
    }
}

static void check_forwards(struct kit *k) {
    struct hb_ref_state *s[2], *at = hb_ref_state_new(&k->config);
    kit_batch(k, HB_MODE_EXTEND);
    const int32_t tracked = kit_row(k, 1, 0, 6);
    (void)kit_row(k, 2, 0, 1); /* shorter than the convolution */
    k->mask[tracked] = 1;
    k->track[tracked] = 5;
    k->point[tracked] = 5; /* after 4 tokens */
    kit_forward(k);
    for (int32_t r = 0; r < 2; r++) {
        s[r] = hb_ref_state_new(&k->config);
        assert_true(s[r] != NULL && at != NULL);
        assert_outputs(k, HB_PATH_PREFILL, r == 0 ? 0 : 6, k->count[r], s[r], r == 0 ? at : NULL,
                       r == 0 ? 4 : 0);
        assert_slot(k, r + 1, s[r]);
        set_from_slot(k, r + 1, s[r]);
    }
    assert_slot(k, 5, at);
    kit_batch(k, HB_MODE_DECODE);
    (void)kit_row(k, 1, 6, 1);
    (void)kit_row(k, 2, 1, 1);
    k->mask[1] = 1;
    k->track[1] = 4;
    kit_forward(k);
    for (int32_t r = 0; r < 2; r++) {
        assert_outputs(k, HB_PATH_DECODE, r, 1, s[r], NULL, 0);
        assert_slot(k, r + 1, s[r]);
        hb_ref_state_free(s[r]);
    }
    kit_assert_slots(k, 4, k, 2);
    hb_ref_state_free(at);
}

static void outputs_and_states_are_those_of_the_reference(void **state) {
    (void)state;
    for_all(check_forwards);
}

/* ---- verify and commit against decodes of the accepted path ---- */

static const int32_t NEXT[KIT_DRAFT] = {1, 3, 4, -1, -1};
static const int32_t SIBLING[KIT_DRAFT] = {-1, 2, -1, -1, -1};
static const int32_t PATHS[KIT_DRAFT][4] = {
    {0, -1}, {0, 1, -1}, {0, 2, -1}, {0, 1, 3, -1}, {0, 2, 4, -1}};

static void verify(struct kit *k, int linked) {
    kit_batch(k, HB_MODE_TARGET_VERIFY);
    (void)kit_row(k, 1, 5, KIT_DRAFT);
    (void)kit_row(k, 2, 3, KIT_DRAFT);
    k->b.draft_token_num = KIT_DRAFT;
    for (int i = 0; i < 2 * KIT_DRAFT; i++) {
        k->next[i] = NEXT[i % KIT_DRAFT];
        k->sibling[i] = SIBLING[i % KIT_DRAFT];
    }
    if (linked) {
        k->b.retrieve_next_token = (struct hb_i32s){k->next, INT64_C(2) * KIT_DRAFT};
        k->b.retrieve_next_sibling = (struct hb_i32s){k->sibling, INT64_C(2) * KIT_DRAFT};
    }
    kit_forward(k);
}

static void prefill(struct kit *k) {
    kit_batch(k, HB_MODE_EXTEND);
    (void)kit_row(k, 1, 0, 5);
    (void)kit_row(k, 2, 0, 3);
    kit_forward(k);
}

/* A handle of its own that decodes the tokens of one node's path. */
static struct kit *decoded(const struct kit *like, int32_t req, int32_t prefix, int32_t node,
                           int linked) {
    struct kit *d = calloc(1, sizeof *d);
    assert_non_null(d);
    kit_config(d, like->config.layer_kind[0], like->config.act_dtype, 0);
    d->config = like->config;
    kit_open(d);
    prefill(d);
    for (int32_t i = 0; linked ? PATHS[node][i] >= 0 : i <= node; i++) {
        const int32_t t = linked ? PATHS[node][i] : i;
        kit_decode(d, req, prefix + i, prefix + t);
    }
    return d;
}

static void check_verify(struct kit *k) {
    const int linked = k->config.window_layout != HB_WINDOWS_STRIP;
    float before[2][KIT_STATE * 8], after[2][KIT_STATE * 8];
    prefill(k);
    const int64_t n[2] = {kit_read(k, "conv", 1, before[0]), kit_read(k, "temporal", 1, before[1])};
    verify(k, linked);
    (void)kit_read(k, "conv", 1, after[0]);
    (void)kit_read(k, "temporal", 1, after[1]);
    for (int i = 0; i < 2; i++) { /* nothing before the commit */
        assert_memory_equal(before[i], after[i], (size_t)n[i] * sizeof(float));
    }
    const size_t bytes = (size_t)k->size.width[3] * sizeof(float); /* two nodes do differ */
    assert_memory_not_equal(k->out, k->out + k->size.width[3], bytes);
    for (int32_t node = 0; node < KIT_DRAFT; node++) {
        const int64_t w = k->size.width[3], token = KIT_DRAFT + node;
        struct kit *d = decoded(k, 2, 3, node, linked);
        assert_memory_equal(k->out + token * w, d->out, (size_t)w * sizeof(float));
        const int32_t step[2] = {-1, node}, saved[2] = {node, -1};
        const int64_t dst[2] = {4, 5};
        const struct hb_commit c = {.struct_size = sizeof c,
                                    .n_rows = 2,
                                    .step = {step, 2},
                                    .track_indices = {dst, 2},
                                    .track_steps = {saved, 2}};
        assert_int_equal(k->table->commit(k->h, &c, &k->e), HB_OK);
        kit_assert_slots(k, 2, d, 2);
        kit_close(d);
        free(d);
        d = decoded(k, 1, 5, node, linked);
        kit_assert_slots(k, 4, d, 1);
        kit_close(d);
        free(d);
    }
}

static void verify_and_commit_are_decodes_of_the_path(void **state) {
    (void)state;
    for_all(check_verify);
}

/* ---- entries ---- */

/* Kinds that have no kernel of their own path refuse the entry; the others run the layer. */
static void check_entries(struct kit *k) {
    const int32_t kind = k->config.layer_kind[0];
    const int64_t n = INT64_C(3) * k->size.width[3];
    float by_layer[KIT_TOKENS * KIT_WIDTH];
    for (int32_t i = 0; i < 5; i++) { /* each target and direction, then the layer itself */
        const int32_t target = i / 2 % 2, direction = i % 2;
        struct kit *d = calloc(1, sizeof *d);
        assert_non_null(d);
        kit_config(d, kind, HB_FP32, 0);
        d->entry = i < 4 ? 1 + 2 * target + direction : 0;
        kit_open(d);
        kit_batch(d, HB_MODE_EXTEND);
        (void)kit_row(d, 1, 0, 3);
        const int32_t short_conv_rule = direction == HB_ENTRY_DECODE ? 4 : 5;
        const int32_t rule = kind == HB_LAYER_SHORT_CONV                          ? short_conv_rule
                             : kind == HB_LAYER_MAMBA2 || kind == HB_LAYER_MAMBA1 ? 1
                                                                                  : 0;
        d->entry_rule = i < 4 ? rule : 0;
        kit_forward(d);
        if (rule == 0 && i > 0) {
            assert_memory_equal(by_layer, d->out, (size_t)n * sizeof(float));
        }
        memcpy(by_layer, d->out, sizeof by_layer);
        kit_close(d);
        free(d);
    }
}

static void entries_refuse_or_run_the_layer(void **state) {
    (void)state;
    struct kit *k = calloc(1, sizeof *k);
    assert_non_null(k);
    for (int32_t i = 0; i < N_KINDS; i++) {
        kit_config(k, KINDS[i], HB_FP32, 0);
        hb_ref_linear_sizes(&k->config, KINDS[i], &k->size);
        check_entries(k);
    }
    free(k);
}

/* ---- slots ---- */

static void check_slots(struct kit *k) {
    int32_t ids[1];
    float x[KIT_STATE * 8];
    prefill(k);
    assert_int_equal(k->table->slot_copy(k->h, 1, 4, &k->e), HB_OK);
    kit_assert_slots(k, 1, k, 4);
    ids[0] = 1;
    assert_int_equal(k->table->slot_free(k->h, 1, ids, &k->e), HB_OK);
    for (int i = 0; i < 2; i++) { /* 6, then the one freed: zeroed */
        assert_int_equal(k->table->slot_take(k->h, 1, HB_SLOT_LIVE, ids, &k->e), HB_OK);
    }
    assert_int_equal(ids[0], 1);
    for (int i = 0; i < 2; i++) {
        const int64_t n = kit_read(k, i == 0 ? "conv" : "temporal", 1, x);
        for (int64_t j = 0; j < n; j++) {
            assert_true(x[j] == 0.0F);
        }
    }
}

static void slots_are_copied_and_zeroed_whole(void **state) {
    (void)state;
    for_all(check_slots);
}

/* ---- parameters, types ---- */

static void a_parameter_that_the_kind_needs_must_be_there(void **state) {
    (void)state;
    static const struct {
        int32_t kind, slope, missing, status; /* missing: 0 conv weight, 1 a, 2 norm weight */
    } rows[] = {
        {HB_LAYER_GDN, 0, 0, HB_ERR_NULL},
        {HB_LAYER_GDN, 0, 1, HB_ERR_NULL},
        {HB_LAYER_KDA, 0, 2, HB_ERR_NULL},
        {HB_LAYER_LIGHTNING, HB_SLOPE_PARAM, 0, HB_OK},
        {HB_LAYER_LIGHTNING, HB_SLOPE_PARAM, 1, HB_ERR_NULL},
        {HB_LAYER_LIGHTNING, HB_SLOPE_ALIBI, 1, HB_OK},
        {HB_LAYER_LIGHTNING, HB_SLOPE_TOKEN, 1, HB_OK},
        {HB_LAYER_LIGHTNING, HB_SLOPE_TOKEN, 2, HB_ERR_NULL},
        {HB_LAYER_SHORT_CONV, 0, 0, HB_ERR_NULL},
        {HB_LAYER_SHORT_CONV, 0, 1, HB_OK},
        {HB_LAYER_SHORT_CONV, 0, 2, HB_OK},
        {HB_LAYER_MAMBA1, 0, 0, HB_ERR_NULL},
        {HB_LAYER_MAMBA1, 0, 1, HB_ERR_NULL},
        {HB_LAYER_MAMBA1, 0, 2, HB_ERR_NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct kit *k = calloc(1, sizeof *k);
        assert_non_null(k);
        kit_config(k, rows[i].kind, HB_FP32, 0);
        k->config.slope_kind = rows[i].slope;
        const float **const parts[3] = {&k->params.conv_weight, &k->params.a,
                                        &k->params.norm_weight};
        *parts[rows[i].missing] = NULL;
        const struct hb_adapter *t = hb_adapter_oracle();
        assert_int_equal(t->create(t->ctx, &k->config, &k->params, &k->h, &k->e), rows[i].status);
        if (rows[i].status == HB_OK) {
            t->destroy(k->h);
        }
        free(k);
    }
}

static void every_slope_of_lightning_runs(void **state) {
    (void)state;
    for (int32_t slope = 0; slope < HB_N_SLOPE_KINDS; slope++) {
        struct kit *k = calloc(1, sizeof *k);
        assert_non_null(k);
        kit_config(k, HB_LAYER_LIGHTNING, HB_FP16, 0);
        k->config.slope_kind = slope;
        kit_open(k);
        check_forwards(k);
        kit_close(k);
        free(k);
    }
}

/* What a store may lose, against stores of numbers around and below the least one: never more than the number itself. */
static void a_store_loses_no_more_than_its_number(void **state) {
    (void)state;
    const double u = 0x1p-11, eta = 0x1p-25;
    double largest = 0.0;
    for (int i = 0; i < 4000; i++) {
        const double v = (double)(float)ldexp(1.0 + (double)(i % 97) / 97.0, -30 + i / 97);
        const double lost = fabs((double)hb_fp16_to_float(hb_fp16_from_float((float)v)) - v);
        const double bound = hb_ref_rounded(v, 0.0, u, eta);
        assert_true(lost <= bound);
        assert_true(bound <= v && bound <= u * v + eta);
        largest = lost / bound > largest ? lost / bound : largest;
    }
    assert_true(largest > 0.9); /* no bound of a quarter or more would pass */
    assert_true(hb_ref_rounded(0.0, 0.0, u, eta) == 0.0);
    assert_true(hb_ref_rounded(0.0, 0x1p-124, u, eta) == 0x1p-123);
    assert_true(hb_ref_rounded(1.0, 0.0, u, eta) == u + eta);
    assert_true(isinf(hb_ref_rounded((double)INFINITY, 0.0, u, eta)));
}

static void fp16_is_no_type_of_a_state(void **state) {
    (void)state;
    struct kit *k = calloc(1, sizeof *k);
    struct hb_caps caps;
    const struct hb_adapter *t = hb_adapter_oracle();
    assert_non_null(k);
    kit_config(k, HB_LAYER_GDN, HB_FP16, 0);
    k->config.state_dtype = HB_FP16;
    assert_int_equal(t->create(t->ctx, &k->config, &k->params, &k->h, &k->e), HB_ERR_UNSUPPORTED);
    assert_int_equal(t->describe(t->ctx, &caps, &k->e), HB_OK);
    assert_int_equal(caps.state_dtypes >> HB_FP16 & 1U, 0);
    assert_int_equal(caps.act_dtypes >> HB_FP16 & 1U, 1);
    assert_true(caps.profile[0][HB_PATH_DECODE][HB_FP16].u_io == 0x1p-11);
    assert_true(caps.profile[0][HB_PATH_DECODE][HB_FP16].io_floor == 0x1p-25);
    free(k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kind_has_the_regions_of_its_states),
        cmocka_unit_test(outputs_and_states_are_those_of_the_reference),
        cmocka_unit_test(verify_and_commit_are_decodes_of_the_path),
        cmocka_unit_test(entries_refuse_or_run_the_layer),
        cmocka_unit_test(slots_are_copied_and_zeroed_whole),
        cmocka_unit_test(a_parameter_that_the_kind_needs_must_be_there),
        cmocka_unit_test(every_slope_of_lightning_runs),
        cmocka_unit_test(a_store_loses_no_more_than_its_number),
        cmocka_unit_test(fp16_is_no_type_of_a_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
