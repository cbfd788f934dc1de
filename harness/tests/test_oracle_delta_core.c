/* SPDX-License-Identifier: Apache-2.0
 * GDN and KDA in the oracle against other people's float64 results (golden cores, token by token
 * through the interface of a layer). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "harness/safetensors.h"
#include "harness/tests/oracle_delta_model.h"

static void assert_close(double got, double want, double scale, double tol) {
    if (!(fabs(got - want) <= tol * (scale + fabs(want)))) {
        fail_msg("got %.17g, want %.17g, scale %g", got, want, scale);
    }
}

struct core {
    struct hb_st_file file;
    const struct hb_st_tensor *q, *k, *v, *g, *beta, *init, *y, *final;
    struct delta_model m;
};

static void open_core(struct core *c, const char *name, int32_t is_kda, int32_t l2norm) {
    char path[256];
    struct hb_error err = {.struct_size = sizeof err};
    (void)snprintf(path, sizeof path, "%s/golden/%s.safetensors", HB_SOURCE_DIR, name);
    assert_int_equal(hb_st_read(path, &c->file, &err), HB_OK);
    const struct {
        const char *name;
        const struct hb_st_tensor **to;
    } parts[] = {{"in.q", &c->q},       {"in.k", &c->k},
                 {"in.v", &c->v},       {"in.g", &c->g},
                 {"in.beta", &c->beta}, {"init.state", &c->init},
                 {"exp64.y", &c->y},    {"exp64.final_state", &c->final}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].to = hb_st_find(&c->file, parts[i].name);
        assert_non_null(*parts[i].to);
    }
    struct delta_model *m = &c->m;
    m->is_kda = is_kda;
    m->config = (struct hb_config){.n_layers = 1,
                                   .layer_kind = {is_kda ? HB_LAYER_KDA : HB_LAYER_GDN},
                                   .n_heads = (int32_t)c->v->shape[1],
                                   .head_dim = (int32_t)c->v->shape[2],
                                   .n_groups = (int32_t)c->q->shape[1],
                                   .state_size = (int32_t)c->q->shape[2],
                                   .conv_width = 2,
                                   .conv_act = HB_CONV_NONE,
                                   .chunk_size = 16,
                                   .l2norm = l2norm,
                                   .beta_form = HB_BETA_RAW,
                                   .gate_norm = HB_GATE_NORM_NONE};
    delta_sizes(m);
    assert_true(m->dim <= MAX_DIM && m->gates <= MAX_GATES);
    for (int32_t i = 0; i < m->dim; i++) {
        m->conv_weight[2 * i + 1] = 1.0F;
    }
    for (int32_t h = 0; h < MAX_HEADS; h++) {
        m->a[h] = -1.0F; /* with no softplus, the log decay is minus the raw gate */
    }
    m->params.conv_weight = m->conv_weight;
    m->params.a = m->a;
}

static void close_core(struct core *c) {
    hb_st_free(&c->file);
    free(c);
}

/* One token in the order of the layer's inputs. */
static void core_token(const struct core *c, int64_t t, float *qkv, float *ab) {
    const struct delta_model *m = &c->m;
    const int64_t keys = (int64_t)m->config.n_groups * m->config.state_size;
    const int64_t decays = m->gates - m->config.n_heads;
    hb_st_floats(c->q, t * keys, keys, qkv);
    hb_st_floats(c->k, t * keys, keys, qkv + keys);
    hb_st_floats(c->v, t * m->inner, m->inner, qkv + 2 * keys);
    hb_st_floats(c->g, t * decays, decays, ab);
    for (int64_t i = 0; i < decays; i++) {
        ab[i] = -ab[i];
    }
    hb_st_floats(c->beta, t * m->config.n_heads, m->config.n_heads, ab + decays);
}

/* Element of a stored [H, K, V] state that is element i of [H, V, K]. */
static double stored(const struct core *c, const struct hb_st_tensor *t, int64_t sequence,
                     int64_t i) {
    const struct hb_config *f = &c->m.config;
    const int64_t k = i % f->state_size, v = i / f->state_size % f->head_dim;
    const int64_t h = i / f->state_size / f->head_dim, size = (int64_t)c->m.inner * f->state_size;
    return hb_st_get(t, sequence * size + (h * f->state_size + k) * f->head_dim + v);
}

/* Token by token, so that the rig's buffers do not limit the length. */
static void play_core(const char *name, int32_t is_kda, int32_t l2norm, const int32_t *lengths) {
    struct core *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    open_core(c, name, is_kda, l2norm);
    const struct hb_config *f = &c->m.config;
    const int64_t inner = c->m.inner, n_state = inner * f->state_size;
    const struct hb_profile p = plain_profile();
    float *ssm = calloc((size_t)n_state, sizeof *ssm);
    double *out = calloc((size_t)(3 * inner), sizeof *out);
    struct hb_ref_state *s = hb_ref_state_new(f);
    assert_true(ssm != NULL && out != NULL && s != NULL);
    int64_t t = 0;
    for (int64_t sequence = 0; lengths[sequence] > 0; sequence++) {
        for (int64_t i = 0; i < n_state; i++) {
            ssm[i] = (float)stored(c, c->init, sequence, i);
        }
        hb_ref_state_set(f, s, NULL, ssm);
        for (int32_t end = lengths[sequence]; end > 0; end--, t++) {
            core_token(c, t, c->m.qkv, c->m.ab);
            assert_int_equal(hb_ref_linear(f, 0, &c->m.params, &p, HB_PATH_PREFILL, 1, c->m.z,
                                           c->m.qkv, c->m.ab, s, out, out + inner, out + 2 * inner,
                                           NULL, 0),
                             0);
            for (int64_t i = 0; i < inner; i++) {
                assert_close(out[i], hb_st_get(c->y, t * inner + i), out[2 * inner + i], 1e-12);
            }
        }
        for (int64_t i = 0; i < n_state; i++) {
            assert_close(s->h[i], stored(c, c->final, sequence, i), s->m[i], 1e-12);
        }
    }
    assert_int_equal(t, c->v->shape[0]);
    hb_ref_state_free(s);
    free(ssm);
    free(out);
    close_core(c);
}

static void golden_core_of_gdn_with_shared_keys(void **unused) {
    static const int32_t lengths[] = {1, 2, 3, 63, 17, 0};
    (void)unused;
    play_core("gdn_core_gva_varlen", 0, HB_L2_ADD_EPS, lengths);
}

static void golden_core_of_gdn_without_norm(void **unused) {
    static const int32_t lengths[] = {128, 0};
    (void)unused;
    play_core("gdn_core_128", 0, HB_L2_OFF, lengths);
}

static void golden_core_of_kda(void **unused) {
    static const int32_t lengths[] = {1, 2, 3, 64, 17, 0};
    (void)unused;
    play_core("kda_core_varlen", 1, HB_L2_ADD_EPS, lengths);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_core_of_gdn_with_shared_keys),
        cmocka_unit_test(golden_core_of_gdn_without_norm),
        cmocka_unit_test(golden_core_of_kda),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
