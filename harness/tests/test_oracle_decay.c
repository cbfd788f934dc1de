/* SPDX-License-Identifier: Apache-2.0
 * Lightning attention and simple GLA in the oracle: other people's float64 results, and slopes
 * computed by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "harness/safetensors.h"
#include "harness/tests/oracle_mixer.h"

static void assert_close(double got, double want, double scale, double tol) {
    if (!(fabs(got - want) <= tol * (scale + fabs(want)))) {
        fail_msg("got %.17g, want %.17g, scale %g", got, want, scale);
    }
}

static struct hb_ref_state *new_state(const struct hb_config *c) {
    struct hb_ref_state *s = hb_ref_state_new(c);
    assert_non_null(s);
    return s;
}

/* ---- golden cores ---- */

struct core {
    struct hb_st_file file;
    struct hb_config config;
    const struct hb_st_tensor *q, *k, *v, *g, *init, *y, *final;
};

static void open_core(struct core *c, const char *name) {
    char path[256];
    struct hb_error err = {.struct_size = sizeof err};
    (void)snprintf(path, sizeof path, "%s/golden/%s.safetensors", HB_SOURCE_DIR, name);
    assert_int_equal(hb_st_read(path, &c->file, &err), HB_OK);
    const struct {
        const char *name;
        const struct hb_st_tensor **to;
    } parts[] = {{"in.q", &c->q},
                 {"in.k", &c->k},
                 {"in.v", &c->v},
                 {"in.g", &c->g},
                 {"init.state", &c->init},
                 {"exp64.y", &c->y},
                 {"exp64.final_state", &c->final}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].to = hb_st_find(&c->file, parts[i].name);
        assert_non_null(*parts[i].to);
    }
    c->config = (struct hb_config){.n_layers = 4,
                                   .layer_kind = {HB_LAYER_LIGHTNING, HB_LAYER_LIGHTNING,
                                                  HB_LAYER_LIGHTNING, HB_LAYER_LIGHTNING},
                                   .n_heads = (int32_t)c->v->shape[1],
                                   .head_dim = (int32_t)c->v->shape[2],
                                   .n_groups = (int32_t)c->q->shape[1],
                                   .state_size = (int32_t)c->q->shape[2],
                                   .chunk_size = 16,
                                   .gate_norm = HB_GATE_NORM_NONE,
                                   .slope_kind = HB_SLOPE_TOKEN};
}

/* Tokens from..from+n-1 of q | k | v. */
static float *joined(const struct core *c, int64_t from, int64_t n) {
    const int64_t keys = (int64_t)c->config.n_groups * c->config.state_size;
    const int64_t inner = (int64_t)c->config.n_heads * c->config.head_dim;
    const int64_t width = 2 * keys + inner;
    float *rows = calloc((size_t)(n * width), sizeof *rows);
    assert_non_null(rows);
    for (int64_t t = 0; t < n; t++) {
        float *row = rows + t * width;
        hb_st_floats(c->q, (from + t) * keys, keys, row);
        hb_st_floats(c->k, (from + t) * keys, keys, row + keys);
        hb_st_floats(c->v, (from + t) * inner, inner, row + 2 * keys);
    }
    return rows;
}

/* Stored states are [H, K, V]. */
static void load_initial(const struct core *c, int64_t sequence, float *ssm) {
    const struct hb_config *f = &c->config;
    const int64_t size = (int64_t)f->n_heads * f->state_size * f->head_dim;
    for (int64_t i = 0; i < size; i++) {
        const int64_t h = i / (f->state_size * f->head_dim), k = i / f->head_dim % f->state_size;
        const int64_t v = i % f->head_dim;
        ssm[(h * f->head_dim + v) * f->state_size + k] =
            (float)hb_st_get(c->init, sequence * size + i);
    }
}

static void judge_final(const struct core *c, int64_t sequence, const struct hb_ref_state *s) {
    const struct hb_config *f = &c->config;
    const int64_t size = (int64_t)f->n_heads * f->state_size * f->head_dim;
    for (int64_t i = 0; i < size; i++) {
        const int64_t h = i / (f->state_size * f->head_dim), k = i / f->head_dim % f->state_size;
        const int64_t at = (h * f->head_dim + i % f->head_dim) * f->state_size + k;
        assert_close(s->h[at], hb_st_get(c->final, sequence * size + i), s->m[at], 1e-12);
    }
}

static void play_core(const char *name, int32_t slope_kind, int32_t layer, const int32_t *lengths) {
    struct core c;
    open_core(&c, name);
    c.config.slope_kind = slope_kind;
    const struct hb_config *f = &c.config;
    const int64_t inner = (int64_t)f->n_heads * f->head_dim;
    const struct hb_profile p = plain_profile();
    const struct hb_layer_params params = {0};
    int64_t from = 0;
    float *ssm = calloc((size_t)(inner * f->state_size), sizeof *ssm);
    assert_non_null(ssm);
    for (int64_t sequence = 0; lengths[sequence] > 0; sequence++) {
        const int32_t n = lengths[sequence];
        struct hb_ref_state *s = new_state(f);
        float *rows = joined(&c, from, n);
        float *g = calloc((size_t)(n * f->n_heads), sizeof *g);
        double *out = calloc((size_t)(n * inner), 3 * sizeof *out);
        assert_true(g != NULL && out != NULL);
        hb_st_floats(c.g, from * f->n_heads, n * f->n_heads, g);
        load_initial(&c, sequence, ssm);
        hb_ref_state_set(f, s, NULL, ssm);
        assert_int_equal(hb_ref_linear(f, layer, &params, &p, HB_PATH_PREFILL, n, NULL, rows, g, s,
                                       out, out + n * inner, out + 2 * n * inner, NULL, 0),
                         0);
        for (int64_t i = 0; i < n * inner; i++) {
            assert_close(out[i], hb_st_get(c.y, from * inner + i), out[2 * n * inner + i], 1e-12);
        }
        judge_final(&c, sequence, s);
        from += n;
        free(g);
        free(out);
        free(rows);
        hb_ref_state_free(s);
    }
    assert_int_equal(from, c.v->shape[0]);
    free(ssm);
    hb_st_free(&c.file);
}

static void simple_gla_equals_the_golden_core(void **unused) {
    (void)unused;
    static const int32_t lengths[] = {1, 2, 63, 65, 0};
    play_core("simple_gla_core_varlen", HB_SLOPE_TOKEN, 0, lengths);
}

/* The case's decays are FLA's slopes of layer 1 of 4 for 4 heads: representable, so both ways agree
 * to the last digits. */
static void lightning_equals_the_golden_core(void **unused) {
    (void)unused;
    static const int32_t lengths[] = {1, 16, 65, 0};
    play_core("lightning_core_varlen", HB_SLOPE_TOKEN, 1, lengths);
    play_core("lightning_core_varlen", HB_SLOPE_FLA, 1, lengths);
}

/* ---- slopes ---- */

/* Minus the log of what one token leaves of a state, k = 0. */
static void measure_slopes(const struct hb_config *c, int32_t layer, const float *a, double *s) {
    const struct hb_profile p = plain_profile();
    const struct hb_layer_params params = {.a = a};
    float one[16], in[3 * 16] = {0};
    double out[16];
    struct hb_ref_state *state = new_state(c);
    for (int i = 0; i < 16; i++) {
        one[i] = 1.0F;
    }
    hb_ref_state_set(c, state, NULL, one);
    assert_int_equal(hb_ref_linear(c, layer, &params, &p, HB_PATH_DECODE, 1, NULL, in, NULL, state,
                                   out, NULL, NULL, NULL, 0),
                     0);
    for (int32_t h = 0; h < c->n_heads; h++) {
        s[h] = -log(state->h[h]);
    }
    hb_ref_state_free(state);
}

static struct hb_config slope_config(int32_t heads, int32_t layers) {
    struct hb_config c = {.n_layers = layers,
                          .n_heads = heads,
                          .head_dim = 1,
                          .n_groups = 1,
                          .state_size = 1,
                          .chunk_size = 4,
                          .gate_norm = HB_GATE_NORM_NONE};
    for (int32_t l = 0; l < layers; l++) {
        c.layer_kind[l] = HB_LAYER_LIGHTNING;
    }
    return c;
}

static void slopes_are_the_hand_computed_ones(void **unused) {
    (void)unused;
    static const struct {
        int32_t kind, heads;
        double want[8];
    } rows[] = {
        {HB_SLOPE_ALIBI, 1, {0x1p-8}},
        {HB_SLOPE_ALIBI, 2, {0x1p-4, 0x1p-8}},
        {HB_SLOPE_ALIBI, 8, {0x1p-1, 0x1p-2, 0x1p-3, 0x1p-4, 0x1p-5, 0x1p-6, 0x1p-7, 0x1p-8}},
        {HB_SLOPE_ALIBI, 3, {0x1p-4, 0x1p-8, 0x1p-2}}, /* of 2, then 0 of 4 */
        {HB_SLOPE_ALIBI, 6, {0x1p-2, 0x1p-4, 0x1p-6, 0x1p-8, 0x1p-1, 0x1p-3}}, /* 4; 0, 2 of 8 */
        {HB_SLOPE_MINIMAX, 4, {0x1p-2, 0x1p-4, 0x1p-6, 0x1p-8}},
        {HB_SLOPE_MINIMAX,
         3,
         {0.15749013123685915, 0.0248031414370031, 0.00390625}}, /* 2^(-8/3), 2^(-16/3), 2^-8 */
        {HB_SLOPE_FLA, 4, {0.0, 1.0, 2.0, 3.0}}, /* (8/4) (1 - 1/2) h at layer 1 of 2 */
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct hb_config c = slope_config(rows[k].heads, 2);
        double got[8];
        c.slope_kind = rows[k].kind;
        measure_slopes(&c, 1, NULL, got);
        for (int32_t h = 0; h < rows[k].heads; h++) {
            assert_close(got[h], rows[k].want[h], 0.0, 1e-14);
        }
    }
}

static void layer_factors_are_the_hand_computed_ones(void **unused) {
    (void)unused;
    static const struct {
        int32_t factor, layers, layer;
        double want;
    } rows[] = {
        {HB_FACTOR_NONE, 4, 3, 1.0},
        {HB_FACTOR_MINIMAX, 4, 0, 1.00001},
        {HB_FACTOR_MINIMAX, 5, 2, 0.500011249996875}, /* 1 - 2/4.00001 + 1e-5 */
        {HB_FACTOR_MINIMAX, 1, 0, 1.00001},
        {HB_FACTOR_LING, 5, 1, 0.75001},
        {HB_FACTOR_LING, 5, 4, 0.00001},
        {HB_FACTOR_LING, 1, 0, 1.00001},
        {HB_FACTOR_LING_OFF, 5, 0, 1.25001},
        {HB_FACTOR_LING_OFF, 5, 1, 1.00001},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct hb_config c = slope_config(1, rows[k].layers);
        double got;
        c.slope_kind = HB_SLOPE_MINIMAX; /* 2^-8 */
        c.layer_factor = rows[k].factor;
        measure_slopes(&c, rows[k].layer, NULL, &got);
        assert_close(got * 256.0, rows[k].want, 1.0, 1e-12);
    }
}

static void given_decays_have_no_factor(void **unused) {
    (void)unused;
    static const float a[2] = {-0.75F, 0.0F};
    struct hb_config c = slope_config(2, 4);
    double got[2];
    c.slope_kind = HB_SLOPE_PARAM;
    c.layer_factor = HB_FACTOR_MINIMAX;
    measure_slopes(&c, 2, a, got);
    assert_close(got[0], 0.75, 0.0, 1e-14);
    assert_true(got[1] == 0.0); /* a decay of exactly nothing */
    c.slope_kind = HB_SLOPE_FLA;
    measure_slopes(&c, 2, NULL, got);
    assert_close(got[1], 2.0, 0.0, 1e-14); /* 4 (1 - 2/4) 1 */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simple_gla_equals_the_golden_core),
        cmocka_unit_test(lightning_equals_the_golden_core),
        cmocka_unit_test(slopes_are_the_hand_computed_ones),
        cmocka_unit_test(layer_factors_are_the_hand_computed_ones),
        cmocka_unit_test(given_decays_have_no_factor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
