/* SPDX-License-Identifier: Apache-2.0
 * Values of GDN and KDA in the oracle: the identities of ops-delta.md 6, and a second
 * implementation with dense matrices for every variant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "harness/tests/oracle_delta_model.h"

enum { MAX_OUT = DELTA_LEN * MAX_INNER, MOST_N = 16 };

static void assert_close(double got, double want, double scale, double tol) {
    if (!(fabs(got - want) <= tol * (scale + fabs(want)))) {
        fail_msg("got %.17g, want %.17g, scale %g", got, want, scale);
    }
}

/* One request with the results of its calls so far. */
struct request {
    struct hb_ref_state *state, *at;
    double out[MAX_OUT], bound[MAX_OUT], mag[MAX_OUT];
};

static struct request *new_request(const struct delta_model *m) {
    struct request *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    r->state = hb_ref_state_new(&m->config);
    r->at = hb_ref_state_new(&m->config);
    assert_true(r->state != NULL && r->at != NULL);
    hb_ref_state_set(&m->config, r->state, m->conv0, m->ssm0);
    return r;
}

static void free_request(struct request *r) {
    hb_ref_state_free(r->state);
    hb_ref_state_free(r->at);
    free(r);
}

static void call_with(const struct delta_model *m, struct request *r, const struct hb_profile *p,
                      int32_t path, int32_t from, int32_t n, int32_t at_tokens) {
    const int64_t o = (int64_t)from * m->inner;
    assert_int_equal(hb_ref_linear(&m->config, 0, &m->params, p, path, n, m->z + o,
                                   m->qkv + (int64_t)from * m->dim,
                                   m->ab + (int64_t)from * m->gates, r->state, r->out + o,
                                   r->bound + o, r->mag + o, r->at, at_tokens),
                     0);
}

static void call(const struct delta_model *m, struct request *r, int32_t from, int32_t n) {
    const struct hb_profile p = plain_profile();
    call_with(m, r, &p, HB_PATH_PREFILL, from, n, 0);
}

/* ---- a second implementation: S = (I - beta k k^T) diag(e^g) S + beta k v^T ---- */

static double logistic(double x) {
    return 1.0 / (1.0 + exp(-x));
}

/* Input t of channel c after the convolution; tokens before the first are those of the state. */
static double dense_conv(const struct delta_model *m, int32_t t, int32_t c) {
    const int32_t width = m->config.conv_width;
    double sum = m->params.conv_bias ? (double)m->conv_bias[c] : 0.0;
    for (int32_t j = 0; j < width; j++) {
        const int32_t from = t - (width - 1) + j;
        const float x =
            from >= 0 ? m->qkv[from * m->dim + c] : m->conv0[c * m->window + m->window + from];
        sum += (double)m->conv_weight[c * width + j] * (double)x;
    }
    return m->config.conv_act == HB_CONV_SILU ? sum * logistic(sum) : sum;
}

static void dense_vector(const struct delta_model *m, int32_t t, int32_t head, int32_t which,
                         double *x) {
    const struct hb_config *c = &m->config;
    const int32_t group =
        c->head_map == HB_HEADS_TILE ? head % c->n_groups : head / (c->n_heads / c->n_groups);
    double sum = 0.0;
    for (int32_t i = 0; i < c->state_size; i++) {
        x[i] = dense_conv(m, t, (which * c->n_groups + group) * c->state_size + i);
        sum += x[i] * x[i];
    }
    const double by[HB_N_L2NORMS] = {sqrt(sum + 1e-6), fmax(sqrt(sum), 1e-6), 1.0};
    for (int32_t i = 0; i < c->state_size; i++) {
        x[i] /= by[c->l2norm];
    }
}

static double dense_decay(const struct delta_model *m, int32_t t, int32_t head, int32_t channel) {
    const struct hb_config *c = &m->config;
    const int32_t i = m->is_kda ? head * c->state_size + channel : head;
    const double bias = m->params.dt_bias ? (double)m->dt_bias[i] : 0.0;
    const double x = (double)m->ab[t * m->gates + i] + bias, a = (double)m->a[head];
    if (m->is_kda && c->gate_form == HB_GATE_LOWER_BOUND) {
        return (double)c->gate_bound * logistic(-a * x);
    }
    return a * (c->dt_softplus ? log1p(exp(x)) : x);
}

static double dense_beta(const struct delta_model *m, int32_t t, int32_t head) {
    const double b = (double)m->ab[t * m->gates + m->gates - m->config.n_heads + head];
    const double by[HB_N_BETA_FORMS] = {logistic(b), 2.0 * logistic(b), b};
    return by[m->config.beta_form];
}

/* One step of one head: state [N][P]; y [P]. */
static void dense_step(const struct delta_model *m, int32_t t, int32_t head, double *state,
                       double *y) {
    const struct hb_config *c = &m->config;
    const int32_t n = c->state_size, p = c->head_dim;
    const double beta = dense_beta(m, t, head);
    const double scale = c->qk_scale != 0.0F ? (double)c->qk_scale : pow((double)n, -0.5);
    double q[MOST_N], k[MOST_N], next[MOST_N * 8];
    dense_vector(m, t, head, 0, q);
    dense_vector(m, t, head, 1, k);
    for (int32_t v = 0; v < p; v++) {
        const double value = dense_conv(m, t, 2 * c->n_groups * n + head * p + v);
        y[v] = 0.0;
        for (int32_t i = 0; i < n; i++) {
            next[i * p + v] = beta * k[i] * value;
            for (int32_t j = 0; j < n; j++) {
                const double entry = (i == j ? 1.0 : 0.0) - beta * k[i] * k[j];
                next[i * p + v] += entry * exp(dense_decay(m, t, head, j)) * state[j * p + v];
            }
            y[v] += q[i] * next[i * p + v] * scale;
        }
    }
    memcpy(state, next, (size_t)(n * p) * sizeof *state);
}

static void compare_dense(const struct delta_model *m, int32_t n) {
    const struct hb_config *c = &m->config;
    struct request *r = new_request(m);
    const struct hb_profile plain = plain_profile();
    call_with(m, r, &plain, HB_PATH_PREFILL, 0, n, 0);
    for (int32_t head = 0; head < c->n_heads; head++) {
        const int32_t size = c->state_size * c->head_dim;
        double state[MOST_N * 8], y[8];
        for (int32_t i = 0; i < size; i++) { /* [P][N] to [N][P] */
            state[i] =
                (double)m->ssm0[head * size + i % c->head_dim * c->state_size + i / c->head_dim];
        }
        for (int32_t t = 0; t < n; t++) {
            dense_step(m, t, head, state, y);
            for (int32_t p = 0; p < c->head_dim; p++) {
                const int32_t i = t * m->inner + head * c->head_dim + p;
                const double z = (double)m->z[i];
                const double gate = logistic(z) * (c->out_gate == HB_OUT_SIGMOID ? 1.0 : z);
                assert_close(r->out[i], y[p] * gate, r->mag[i], 1e-11);
            }
        }
        for (int32_t i = 0; i < size; i++) {
            const int32_t at = head * size + i % c->head_dim * c->state_size + i / c->head_dim;
            assert_close(r->state->h[at], state[i], r->state->m[at], 1e-11);
        }
    }
    free_request(r);
}

static void every_variant_agrees_with_dense_matrices(void **unused) {
    (void)unused;
    struct delta_model *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    for (int32_t i = 0; i < 200; i++) {
        static const int32_t classes[] = {DELTA_ORDINARY, DELTA_SMALL_NORMS, DELTA_TINY_DECAY};
        draw_delta_model(m, i & 1, classes[i % 3], 0);
        m->config.gate_norm = HB_GATE_ONLY;
        compare_dense(m, 12);
    }
    free(m);
}

/* ---- identities ---- */

static struct delta_model *plain_model(int32_t is_kda) {
    struct delta_model *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    do {
        draw_delta_model(m, is_kda, DELTA_ORDINARY, 1);
    } while (m->config.n_groups < 2 || m->config.state_size < 4 || m->config.head_dim < 2);
    return m;
}

/* The convolution passes its input on; no gate, no norm; decay and beta are given. */
static void make_core(struct delta_model *m) {
    m->config.conv_act = HB_CONV_NONE;
    m->config.gate_norm = HB_GATE_NORM_NONE;
    m->config.beta_form = HB_BETA_RAW;
    m->config.dt_softplus = 0;
    m->config.qk_scale = 1.0F;
    m->params.conv_bias = NULL;
    m->params.dt_bias = NULL;
    for (int32_t c = 0; c < m->dim * m->config.conv_width; c++) {
        m->conv_weight[c] = (c + 1) % m->config.conv_width == 0 ? 1.0F : 0.0F;
    }
}

static void set_gates(struct delta_model *m, float decay, float beta) {
    for (int32_t i = 0; i < DELTA_LEN * m->gates; i++) {
        m->ab[i] = i % m->gates < m->gates - m->config.n_heads ? decay : beta;
    }
}

/* Keys of token t: unit vector t mod N in every group. */
static void set_unit_keys(struct delta_model *m) {
    const int32_t n = m->config.state_size, keys = m->config.n_groups * n;
    for (int32_t t = 0; t < DELTA_LEN; t++) {
        for (int32_t i = 0; i < keys; i++) {
            m->qkv[t * m->dim + keys + i] = i % n == t % n ? 1.0F : 0.0F;
        }
    }
    m->config.l2norm = HB_L2_OFF;
}

static void values_do_not_depend_on_cuts_or_on_the_profile(void **unused) {
    (void)unused;
    for (int32_t is_kda = 0; is_kda < 2; is_kda++) {
        struct delta_model *m = plain_model(is_kda);
        struct request *whole = new_request(m), *cut = new_request(m);
        struct hb_profile chunks = plain_profile(), plain = plain_profile();
        chunks.chunked = 1;
        call_with(m, whole, &chunks, HB_PATH_PREFILL, 0, 20, 7);
        call_with(m, cut, &plain, HB_PATH_PREFILL, 0, 7, 0);
        assert_memory_equal(whole->at->h, cut->state->h, (size_t)m->n_state * sizeof(double));
        assert_memory_equal(whole->at->conv, cut->state->conv,
                            (size_t)(m->dim * m->window) * sizeof(double));
        for (int32_t t = 7; t < 20; t++) {
            call_with(m, cut, &plain, HB_PATH_DECODE, t, 1, 0);
        }
        assert_memory_equal(whole->out, cut->out, (size_t)(20 * m->inner) * sizeof(double));
        assert_memory_equal(whole->state->h, cut->state->h, (size_t)m->n_state * sizeof(double));
        free_request(whole);
        free_request(cut);
        free(m);
    }
}

static void without_beta_the_state_only_decays(void **unused) {
    (void)unused;
    struct delta_model *m = plain_model(0);
    make_core(m);
    set_gates(m, 0.25F, 0.0F);
    struct request *r = new_request(m);
    call(m, r, 0, 9);
    for (int32_t i = 0; i < m->n_state; i++) {
        const double a = (double)m->a[i / (m->config.head_dim * m->config.state_size)];
        assert_close(r->state->h[i], (double)m->ssm0[i] * exp(a * 0.25 * 9.0), 0.0, 1e-14);
    }
    free_request(r);
    free(m);
}

static void orthonormal_keys_are_read_back_and_repeats_change_nothing(void **unused) {
    (void)unused;
    for (int32_t is_kda = 0; is_kda < 2; is_kda++) {
        struct delta_model *m = plain_model(is_kda);
        const int32_t n = m->config.state_size, keys = m->config.n_groups * n;
        make_core(m);
        set_gates(m, 0.0F, 1.0F);
        set_unit_keys(m);
        memcpy(m->qkv + n * m->dim, m->qkv, (size_t)(n * m->dim) * sizeof(float)); /* again */
        struct request *r = new_request(m), *twice = new_request(m);
        call(m, r, 0, n);
        for (int32_t i = 0; i < m->n_state; i++) { /* S^T k_j = v_j: row j of the state */
            assert_true(r->state->h[i] == (double)m->qkv[i % n * m->dim + 2 * keys + i / n]);
        }
        call(m, twice, 0, 2 * n);
        assert_memory_equal(r->state->h, twice->state->h, (size_t)m->n_state * sizeof(double));
        free_request(r);
        free_request(twice);
        free(m);
    }
}

static void kda_with_one_decay_is_gdn(void **unused) {
    (void)unused;
    struct delta_model *kda = plain_model(1);
    struct delta_model *gdn = calloc(1, sizeof(*gdn));
    assert_non_null(gdn);
    copy_delta_model(gdn, kda);
    kda->params.dt_bias = gdn->params.dt_bias = NULL;
    gdn->is_kda = 0;
    gdn->config.layer_kind[0] = HB_LAYER_GDN;
    delta_sizes(gdn);
    const int32_t heads = gdn->config.n_heads, n = gdn->config.state_size;
    for (int32_t t = 0; t < DELTA_LEN; t++) {
        for (int32_t i = 0; i < heads * n; i++) {
            kda->ab[t * kda->gates + i] = kda->ab[t * kda->gates + i / n * n];
        }
        for (int32_t h = 0; h < heads; h++) {
            gdn->ab[t * gdn->gates + h] = kda->ab[t * kda->gates + h * n];
            gdn->ab[t * gdn->gates + heads + h] = kda->ab[t * kda->gates + heads * n + h];
        }
    }
    struct request *a = new_request(kda), *b = new_request(gdn);
    call(kda, a, 0, 20);
    call(gdn, b, 0, 20);
    assert_memory_equal(a->out, b->out, (size_t)(20 * gdn->inner) * sizeof(double));
    assert_memory_equal(a->state->h, b->state->h, (size_t)gdn->n_state * sizeof(double));
    free_request(a);
    free_request(b);
    free(kda);
    free(gdn);
}

/* Orthogonal keys and an empty state: nothing is predicted, and beta v is what simple GLA adds. */
static void without_a_prediction_it_is_simple_gla(void **unused) {
    (void)unused;
    struct delta_model *m = plain_model(0);
    const int32_t n = m->config.state_size, keys = 2 * m->config.n_groups * n;
    make_core(m);
    set_gates(m, 0.25F, 0.5F);
    set_unit_keys(m);
    memset(m->ssm0, 0, sizeof m->ssm0);
    struct request *r = new_request(m);
    call(m, r, 0, n);
    struct hb_config gla = m->config;
    float decay[DELTA_LEN * MAX_HEADS];
    gla.layer_kind[0] = HB_LAYER_LIGHTNING;
    gla.slope_kind = HB_SLOPE_TOKEN;
    for (int32_t i = 0; i < DELTA_LEN * gla.n_heads; i++) {
        decay[i] = m->a[i % gla.n_heads] * 0.25F;
    }
    for (int32_t i = 0; i < DELTA_LEN * m->dim; i++) {
        m->qkv[i] *= i % m->dim >= keys ? 0.5F : 1.0F;
    }
    struct hb_ref_state *s = hb_ref_state_new(&gla);
    double *out = calloc(MAX_OUT, sizeof *out);
    const struct hb_profile p = plain_profile();
    assert_true(s != NULL && out != NULL);
    assert_int_equal(hb_ref_linear(&gla, 0, &m->params, &p, HB_PATH_PREFILL, n, m->z, m->qkv, decay,
                                   s, out, NULL, NULL, NULL, 0),
                     0);
    for (int32_t i = 0; i < n * m->inner; i++) {
        assert_close(out[i], r->out[i], r->mag[i], 1e-14);
    }
    free(out);
    hb_ref_state_free(s);
    free_request(r);
    free(m);
}

static void scaling_values_and_state_scales_outputs_bit_by_bit(void **unused) {
    (void)unused;
    struct delta_model *m = plain_model(1);
    const int32_t keys = 2 * m->config.n_groups * m->config.state_size;
    make_core(m);
    m->config.l2norm = HB_L2_ADD_EPS;
    struct request *one = new_request(m);
    call(m, one, 0, 20);
    for (int32_t i = 0; i < DELTA_LEN * m->dim; i++) {
        m->qkv[i] *= i % m->dim >= keys ? 8.0F : 1.0F;
    }
    for (int32_t i = 0; i < m->n_state; i++) {
        m->ssm0[i] *= 8.0F;
    }
    struct request *eight = new_request(m);
    call(m, eight, 0, 20);
    for (int32_t i = 0; i < 20 * m->inner; i++) {
        assert_true(eight->out[i] == 8.0 * one->out[i]);
    }
    free_request(one);
    free_request(eight);
    free(m);
}

static void out_of_range_is_not_judged(void **unused) {
    (void)unused;
    struct delta_model *m = plain_model(0);
    struct request *r = new_request(m);
    m->ssm0[0] = 3e38F;
    m->ab[0] = -40.0F; /* no decay */
    m->qkv[2 * m->config.n_groups * m->config.state_size] = 3e38F;
    hb_ref_state_set(&m->config, r->state, m->conv0, m->ssm0);
    call(m, r, 0, 4);
    const struct hb_profile p = plain_profile();
    const double b = hb_ref_state_bound(&m->config, &p, r->state, 0, 0);
    assert_true(isinf(b) && isinf(r->bound[3 * m->inner]));
    assert_true(isfinite(r->bound[3 * m->inner + m->inner - 1])); /* another head */
    free_request(r);
    free(m);
}

int main(int argc, char **argv) {
    model_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_agrees_with_dense_matrices),
        cmocka_unit_test(values_do_not_depend_on_cuts_or_on_the_profile),
        cmocka_unit_test(without_beta_the_state_only_decays),
        cmocka_unit_test(orthonormal_keys_are_read_back_and_repeats_change_nothing),
        cmocka_unit_test(kda_with_one_decay_is_gdn),
        cmocka_unit_test(without_a_prediction_it_is_simple_gla),
        cmocka_unit_test(scaling_values_and_state_scales_outputs_bit_by_bit),
        cmocka_unit_test(out_of_range_is_not_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
