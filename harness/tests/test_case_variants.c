/* SPDX-License-Identifier: Apache-2.0
 * Linear kinds and variants in the normal form of a case, and the backend configuration that follows from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "backend/adapter.h"
#include "harness/case.h"
#include "harness/rng.h"

enum { N_RANDOM = 3000 };

static struct hb_case made(int32_t mixer) {
    struct hb_case c;
    hb_case_init(&c);
    c.config.mixer = mixer;
    return c;
}

/* Every field of the configuration at a random value of its range. */
static struct hb_case scrambled(struct hb_rng *r) {
    struct hb_case c;
    const struct hb_case_field *f;
    hb_case_init(&c);
    const int n = hb_case_group_fields(HB_GROUP_CONFIG, &f);
    for (int i = 0; i < n; i++) {
        const uint64_t span = (uint64_t)(f[i].hi - f[i].lo) + 1;
        hb_case_field_set(&f[i], &c.config, f[i].lo + (int64_t)(hb_rng_next(r) % span));
    }
    return c;
}

static void the_normal_form_is_kept_and_survives_both_forms(void **state) {
    (void)state;
    struct hb_rng r = hb_rng_make(1, 2);
    for (int i = 0; i < N_RANDOM; i++) {
        struct hb_case a = scrambled(&r);
        struct hb_case b;
        uint8_t bytes[HB_CASE_MAX_BYTES];
        struct hb_error err = {.struct_size = sizeof err};
        hb_case_normalize(&a);
        memcpy(&b, &a, sizeof b);
        hb_case_normalize(&b);
        assert_memory_equal(&a, &b, sizeof a);
        const size_t size = hb_case_encode(&a, bytes, sizeof bytes);
        hb_case_decode(bytes, size, &b);
        assert_memory_equal(&a, &b, sizeof a);
        char *text = hb_case_to_json(&a, NULL);
        assert_non_null(text);
        if (hb_case_from_json(text, strlen(text), &b, &err) != HB_OK) {
            fail_msg("%s", err.text);
        }
        assert_memory_equal(&a, &b, sizeof a);
        free(text);
    }
}

#define BIT(name) (1u << HB_MIXER_##name)
#define STATES (BIT(MAMBA2) | BIT(GDN) | BIT(KDA) | BIT(LIGHTNING) | BIT(MAMBA1))
/* By the documented inputs of each kind. */
static const struct {
    const char *name;
    uint32_t readers;
} readers[] = {
    {"head_map", STATES & ~BIT(MAMBA1)},
    {"state_layout", STATES},
    {"out_gate", STATES},
    {"conv_state_len", ~BIT(LIGHTNING)},
    {"l2norm", BIT(GDN) | BIT(KDA)},
    {"beta_form", BIT(GDN) | BIT(KDA)},
    {"gate_form", BIT(KDA)},
    {"gate_bound", BIT(KDA)},
    {"qk_scale", BIT(GDN) | BIT(KDA) | BIT(LIGHTNING)},
    {"slope_kind", BIT(LIGHTNING)},
    {"layer_factor", BIT(LIGHTNING)},
    {"qkv_act", BIT(LIGHTNING)},
    {"ring_length", BIT(MAMBA2)},
};

static const struct hb_case_field *field(const char *name) {
    const struct hb_case_field *f;
    const int n = hb_case_group_fields(HB_GROUP_CONFIG, &f);
    for (int i = 0; i < n; i++) {
        if (strcmp(f[i].name, name) == 0) {
            return &f[i];
        }
    }
    fail_msg("no field %s", name);
    return NULL;
}

static void what_a_mixer_does_not_read_is_at_its_default(void **state) {
    (void)state;
    struct hb_rng r = hb_rng_make(3, 4);
    uint32_t seen[sizeof readers / sizeof *readers] = {0};
    for (int i = 0; i < N_RANDOM; i++) {
        struct hb_case c = scrambled(&r);
        hb_case_normalize(&c);
        for (size_t k = 0; k < sizeof readers / sizeof *readers; k++) {
            const int64_t v = hb_case_field_get(field(readers[k].name), &c.config);
            seen[k] |= v != 0 ? 1u << c.config.mixer : 0;
            if (v != 0 && !(readers[k].readers >> c.config.mixer & 1u)) {
                fail_msg("%s is %lld for %s", readers[k].name, (long long)v, hb_mixer_name(c.config.mixer));
            }
        }
    }
    for (size_t k = 0; k < sizeof readers / sizeof *readers; k++) {
        const uint32_t all = readers[k].readers & ((1u << HB_N_MIXERS) - 1);
        if (seen[k] != all) {
            fail_msg("%s occurs for mixers %x, not %x", readers[k].name, seen[k], all);
        }
    }
}

static void the_exact_class_has_no_transcendental_functions(void **state) {
    (void)state;
    struct hb_rng r = hb_rng_make(5, 6);
    for (int i = 0; i < N_RANDOM; i++) {
        struct hb_case c = scrambled(&r);
        c.config.value_class = HB_VALUES_EXACT;
        hb_case_normalize(&c);
        const struct hb_case_config *g = &c.config;
        const int is_delta = g->mixer == HB_MIXER_GDN || g->mixer == HB_MIXER_KDA;
        const int has_scale = is_delta || g->mixer == HB_MIXER_LIGHTNING;
        struct hb_config config;
        hb_case_backend_config(&c, &config);
        assert_int_equal(g->conv_act, HB_CONV_NONE);
        assert_int_equal(g->gate_norm, HB_GATE_NORM_NONE);
        assert_int_equal(g->qkv_act, HB_QKV_NONE);
        assert_true(!is_delta || (g->l2norm == HB_L2_OFF && g->beta_form == HB_BETA_RAW));
        assert_int_equal(g->gate_form, HB_GATE_STANDARD);
        assert_true(g->slope_kind == HB_SLOPE_PARAM || g->slope_kind == HB_SLOPE_TOKEN);
        assert_true(!has_scale || config.qk_scale == 1.0f);
    }
}

static void numbers_that_nothing_reads_are_at_their_default(void **state) {
    (void)state;
    struct hb_case c = made(HB_MIXER_LIGHTNING);
    c.config.layer_factor = HB_FACTOR_LING;
    c.config.slope_kind = HB_SLOPE_FLA;
    c.config.window_rule = HB_WINDOW_INCLUSIVE;
    c.config.page_order = HB_PAGES_DESCENDING;
    hb_case_normalize(&c);
    assert_int_equal(c.config.layer_factor, HB_FACTOR_NONE);
    assert_int_equal(c.config.window_rule, HB_WINDOW_EXCLUSIVE);
    assert_int_equal(c.config.page_order, HB_PAGES_SHUFFLED);
    c.config.slope_kind = HB_SLOPE_ALIBI;
    c.config.layer_factor = HB_FACTOR_LING;
    c.config.attn_window = 3;
    c.config.window_rule = HB_WINDOW_INCLUSIVE;
    c.config.kv_page = HB_KV_PAGE_16;
    c.config.page_order = HB_PAGES_DESCENDING;
    struct hb_case before = c;
    hb_case_normalize(&c);
    assert_memory_equal(&c, &before, sizeof c);
    c = made(HB_MIXER_KDA);
    c.config.gate_bound = 2;
    hb_case_normalize(&c);
    assert_int_equal(c.config.gate_bound, 0);
}

static void large_sizes_are_those_of_real_size(void **state) {
    (void)state;
    struct hb_case c = made(HB_MIXER_GDN);
    c.config.heads = 32;
    c.config.groups = 16;
    c.config.head_dim = 128;
    c.config.state_size = 128;
    c.config.attn_dim = 256;
    c.config.chunk_size = 256;
    c.config.attn_window = 4096;
    struct hb_case real = c;
    real.config.real_size = 1;
    struct hb_case before = real;
    hb_case_normalize(&c);
    hb_case_normalize(&real);
    assert_memory_equal(&real, &before, sizeof real);
    assert_int_equal(c.config.heads, 8);
    assert_int_equal(c.config.groups, 8);
    assert_int_equal(c.config.head_dim, 80);
    assert_int_equal(c.config.attn_dim, 32);
    assert_int_equal(c.config.chunk_size, 64);
    assert_int_equal(c.config.attn_window, 255);
}

/* Bytes without the magic are somebody's random input: no work that takes minutes, and sizes spread over their range. */
static void random_bytes_are_cases_of_ordinary_size(void **state) {
    (void)state;
    struct hb_rng r = hb_rng_make(7, 8);
    int heads[9] = {0};
    for (int i = 0; i < N_RANDOM; i++) {
        uint8_t bytes[400];
        struct hb_case c;
        for (size_t k = 0; k < sizeof bytes; k++) {
            bytes[k] = (uint8_t)hb_rng_next(&r);
        }
        hb_case_decode(bytes, sizeof bytes, &c);
        assert_int_equal(c.config.real_size, 0);
        assert_in_range(c.config.heads, 1, 8);
        heads[c.config.heads]++;
    }
    for (int h = 1; h <= 3; h++) {
        assert_true(heads[h] > N_RANDOM / 30);
    }
    assert_true(heads[8] < N_RANDOM / 3);
}

static void the_backend_gets_every_variant(void **state) {
    (void)state;
    static const int32_t kinds[HB_N_MIXERS] = {HB_LAYER_MAMBA2,    HB_LAYER_GDN,        HB_LAYER_KDA,
                                               HB_LAYER_LIGHTNING, HB_LAYER_SHORT_CONV, HB_LAYER_MAMBA1};
    for (int32_t mixer = 0; mixer < HB_N_MIXERS; mixer++) {
        struct hb_case c = made(mixer);
        struct hb_config g;
        hb_case_backend_config(&c, &g);
        assert_int_equal(g.layer_kind[0], kinds[mixer]);
        assert_int_equal(g.layer_kind[2], HB_LAYER_ATTENTION);
        assert_true(g.gate_bound < 0 && g.qk_scale == 0.0f && g.attn_softcap == 0.0f);
    }
    struct hb_case c = made(HB_MIXER_KDA);
    struct hb_config g;
    c.config = (struct hb_case_config){
        .n_layers = 1,   .heads = 4,      .head_dim = 3,      .state_size = 5,   .groups = 2,   .conv_width = 3,
        .chunk_size = 8, .act_dtype = HB_FP16, .mixer = HB_MIXER_KDA, .head_map = HB_HEADS_TILE,
        .state_layout = HB_STATE_KV, .out_gate = HB_OUT_SIGMOID, .conv_state_len = HB_CONV_STATE_FULL,
        .l2norm = HB_L2_MAX_EPS, .beta_form = HB_BETA_DOUBLE, .gate_form = HB_GATE_LOWER_BOUND, .gate_bound = 1,
        .qk_scale = 2, .q_heads = 1, .kv_heads = 1, .attn_dim = 2, .attn_window = 9,
        .window_rule = HB_WINDOW_INCLUSIVE, .attn_softcap = 2, .kv_page = HB_KV_PAGE_16, .norm_group = HB_NORM_HEAD,
        .track_chunks = 1, .graph_draft = 1};
    hb_case_backend_config(&c, &g);
    assert_true(g.act_dtype == HB_FP16 && g.head_map == HB_HEADS_TILE && g.state_layout == HB_STATE_KV);
    assert_true(g.out_gate == HB_OUT_SIGMOID && g.conv_state_len == HB_CONV_STATE_FULL);
    assert_true(g.l2norm == HB_L2_MAX_EPS && g.beta_form == HB_BETA_DOUBLE);
    assert_true(g.gate_form == HB_GATE_LOWER_BOUND && g.gate_bound == -1.0f && g.qk_scale == 0.5f);
    assert_true(g.attn_window == 9 && g.window_rule == HB_WINDOW_INCLUSIVE && g.attn_softcap == 30.0f);
    assert_int_equal(g.norm_group, 3);
    assert_int_equal(g.n_kv % 16, 0);
    c.config.mixer = HB_MIXER_LIGHTNING;
    c.config.slope_kind = HB_SLOPE_MINIMAX;
    c.config.layer_factor = HB_FACTOR_LING;
    c.config.qkv_act = HB_QKV_SILU;
    hb_case_backend_config(&c, &g);
    assert_true(g.slope_kind == HB_SLOPE_MINIMAX && g.layer_factor == HB_FACTOR_LING && g.qkv_act == HB_QKV_SILU);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_normal_form_is_kept_and_survives_both_forms),
        cmocka_unit_test(what_a_mixer_does_not_read_is_at_its_default),
        cmocka_unit_test(the_exact_class_has_no_transcendental_functions),
        cmocka_unit_test(numbers_that_nothing_reads_are_at_their_default),
        cmocka_unit_test(large_sizes_are_those_of_real_size),
        cmocka_unit_test(random_bytes_are_cases_of_ordinary_size),
        cmocka_unit_test(the_backend_gets_every_variant),
    };
    return cmocka_run_group_tests_name("case_variants", tests, NULL, NULL);
}
