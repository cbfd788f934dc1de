/* SPDX-License-Identifier: Apache-2.0
 * Values of the float64 oracle: the identities of ops-mamba2.md 7, a second implementation in
 * closed form, declared variants, inputs that are not finite, and attention against direct sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "harness/tests/oracle_model.h"

enum { MAX_OUT = MAX_LEN * MAX_INNER };

/* One request in one layer with the results of its calls so far. */
struct request {
    struct hb_ref_state *state;
    double out[MAX_OUT], bound[MAX_OUT], mag[MAX_OUT];
};

static struct request *new_request(const struct model *m) {
    struct request *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    r->state = hb_ref_state_new(&m->config);
    assert_non_null(r->state);
    hb_ref_state_set(&m->config, r->state, m->conv0, m->ssm0);
    return r;
}

static void free_request(struct request *r) {
    hb_ref_state_free(r->state);
    free(r);
}

/* Tokens from..from+n-1 of the model in one call. */
static void call_at(const struct model *m, struct request *r, int32_t path, int32_t from, int32_t n,
                    struct hb_ref_state *at, int32_t at_tokens) {
    const struct hb_profile p = plain_profile();
    const int64_t o = (int64_t)from * m->inner;
    assert_int_equal(hb_ref_mamba2(&m->config, &m->params, &p, path, n, m->z + o,
                                   m->xbc + (int64_t)from * m->dim,
                                   m->dt + (int64_t)from * m->config.n_heads, r->state, r->out + o,
                                   r->bound + o, r->mag + o, at, at_tokens),
                     0);
}

static void call(const struct model *m, struct request *r, int32_t from, int32_t n) {
    call_at(m, r, HB_PATH_PREFILL, from, n, NULL, 0);
}

static void assert_close(double got, double want, double scale, double tol) {
    if (!(fabs(got - want) <= tol * (scale + fabs(want)))) {
        fail_msg("got %.17g, want %.17g, scale %g", got, want, scale);
    }
}

/* 2 and 3 of the identities: the oracle adds in the same order whatever the cut, so the values are
 * the same bits. */
static void split_calls_give_the_same_bits(void **unused) {
    (void)unused;
    struct model m;
    for (int32_t k = 0; k < 60; k++) {
        draw_model(&m, k % N_CLASSES, 0);
        m.config.dt_clamp_decode = m.config.dt_clamp_prefill;
        struct request *one = new_request(&m), *cut = new_request(&m);
        const int32_t n = draw_int(4, 20), first = draw_int(1, n - 2),
                      second = draw_int(first + 1, n - 1);
        call(&m, one, 0, n);
        call(&m, cut, 0, first);
        call(&m, cut, first, second - first);
        for (int32_t t = second; t < n; t++) {
            call_at(&m, cut, HB_PATH_DECODE, t, 1, NULL, 0);
        }
        assert_memory_equal(one->out, cut->out, (size_t)(n * m.inner) * sizeof(double));
        assert_memory_equal(one->state->h, cut->state->h, (size_t)m.n_state * sizeof(double));
        assert_memory_equal(one->state->conv, cut->state->conv,
                            (size_t)(m.dim * m.window) * sizeof(double));
        free_request(one);
        free_request(cut);
    }
}

static void tracked_copy_equals_a_shorter_call(void **unused) {
    (void)unused;
    struct model m;
    for (int32_t k = 0; k < 40; k++) {
        draw_model(&m, k % N_CLASSES, 0);
        struct request *all = new_request(&m), *part = new_request(&m);
        struct hb_ref_state *at = hb_ref_state_new(&m.config);
        const int32_t n = draw_int(1, 20), t = draw_int(1, n);
        call_at(&m, all, HB_PATH_PREFILL, 0, n, at, t);
        call(&m, part, 0, t);
        assert_memory_equal(at->h, part->state->h, (size_t)m.n_state * sizeof(double));
        assert_memory_equal(at->r, part->state->r, (size_t)m.n_state * sizeof(double));
        assert_memory_equal(at->conv, part->state->conv,
                            (size_t)(m.dim * m.window) * sizeof(double));
        hb_ref_state_free(at);
        free_request(all);
        free_request(part);
    }
}

static void conv_window_is_a_copy_of_the_last_inputs(void **unused) {
    (void)unused;
    struct model m;
    for (int32_t n = 1; n <= 5; n++) {
        draw_model(&m, CLASS_WIDE, 0);
        struct request *r = new_request(&m);
        call(&m, r, 0, n);
        for (int32_t c = 0; c < m.dim; c++) {
            for (int32_t j = 0; j < m.window; j++) {
                const int32_t t = n - m.window + j; /* negative: history moved left */
                const float want = t < 0 ? m.conv0[c * m.window + j + n] : m.xbc[t * m.dim + c];
                assert_true(r->state->conv[c * m.window + j] == (double)want);
            }
        }
        free_request(r);
    }
}

/* Makes the convolution the identity, so that x, B and C are the inputs, and the output y. */
static void make_core(struct model *m) {
    for (int32_t c = 0; c < m->dim; c++) {
        for (int32_t j = 0; j < m->config.conv_width; j++) {
            m->conv_weight[c * m->config.conv_width + j] = j == m->window ? 1.0F : 0.0F;
        }
    }
    m->params.conv_bias = NULL;
    m->config.conv_act = HB_CONV_NONE;
    m->config.gate_norm = HB_GATE_NORM_NONE;
}

static double step_of(const struct model *m, int32_t t, int32_t head) {
    const double bias = m->params.dt_bias ? (double)m->params.dt_bias[head] : 0.0;
    const double a = (double)m->dt[t * m->config.n_heads + head] + bias;
    return m->config.dt_softplus ? log1p(exp(a)) : a;
}

/* C(t) . s for row i of the state array s. */
static double dot_c(const struct model *m, int32_t t, int32_t i, const double *s) {
    const struct hb_config *c = &m->config;
    const int32_t group = i / c->head_dim / (c->n_heads / c->n_groups);
    const float *row = m->xbc + t * m->dim + m->inner + (c->n_groups + group) * c->state_size;
    double y = 0.0;
    for (int32_t n = 0; n < c->state_size; n++) {
        y += (double)row[n] * s[i * c->state_size + n];
    }
    return y;
}

/* 5: without inputs only the start decays. */
static void zero_x_leaves_the_decayed_start(void **unused) {
    (void)unused;
    static double want[MAX_STATE];
    struct model m;
    draw_model(&m, CLASS_ORDINARY, 1);
    make_core(&m);
    for (int32_t i = 0; i < MAX_LEN * m.dim; i++) {
        m.xbc[i] = i % m.dim < m.inner ? 0.0F : m.xbc[i];
    }
    struct request *r = new_request(&m);
    const int32_t n = 12, rows = m.config.head_dim * m.config.state_size;
    call(&m, r, 0, n);
    for (int32_t i = 0; i < m.n_state; i++) {
        double s = 0.0;
        for (int32_t t = 0; t < n; t++) {
            s += step_of(&m, t, i / rows) * (double)m.a[i / rows];
        }
        want[i] = exp(s) * (double)m.ssm0[i];
        assert_close(r->state->h[i], want[i], 0.0, 1e-13);
    }
    for (int32_t i = 0; i < m.inner; i++) {
        const int64_t at = (int64_t)(n - 1) * m.inner + i;
        assert_close(r->out[at], dot_c(&m, n - 1, i, want), r->mag[at], 1e-13);
    }
    free_request(r);
}

/* 6: A = 0 makes the state a plain sum. */
static void zero_rate_sums(void **unused) {
    (void)unused;
    struct model m;
    draw_model(&m, CLASS_ORDINARY, 1);
    make_core(&m);
    memset(m.a, 0, sizeof(m.a));
    struct request *r = new_request(&m);
    const struct hb_config *c = &m.config;
    call(&m, r, 0, 15);
    for (int32_t i = 0; i < m.n_state; i++) {
        const int32_t p = i / c->state_size, head = p / c->head_dim,
                      group = head / (c->n_heads / c->n_groups);
        double want = (double)m.ssm0[i];
        for (int32_t t = 0; t < 15; t++) {
            const float *row = m.xbc + t * m.dim;
            want += step_of(&m, t, head) * (double)row[p] *
                    (double)row[m.inner + group * c->state_size + i % c->state_size];
        }
        assert_close(r->state->h[i], want, r->state->m[i], 1e-13);
    }
    free_request(r);
}

/* 7: dt = 0 leaves the state alone. */
static void zero_step_keeps_the_state(void **unused) {
    (void)unused;
    static double start[MAX_STATE];
    struct model m;
    draw_model(&m, CLASS_ORDINARY, 1);
    make_core(&m);
    m.config.dt_softplus = 0;
    m.params.dt_bias = NULL;
    memset(m.dt, 0, sizeof(m.dt));
    struct request *r = new_request(&m);
    call(&m, r, 0, 7);
    for (int32_t i = 0; i < m.n_state; i++) {
        start[i] = (double)m.ssm0[i];
        assert_true(r->state->h[i] == start[i]);
    }
    for (int32_t i = 0; i < m.inner; i++) {
        const int32_t at = 6 * m.inner + i;
        const double x = (double)m.xbc[6 * m.dim + i];
        assert_close(r->out[at], dot_c(&m, 6, i, start) + (double)m.d[i / m.config.head_dim] * x,
                     r->mag[at], 1e-14);
    }
    free_request(r);
}

/* 8: scaling x and h0 by a power of two scales y and the state exactly; the control with another
 * factor does not. */
static void scaling_by_a_power_of_two_is_exact(void **unused) {
    (void)unused;
    static const float factor[2] = {0x1p7F, 3.1F};
    struct model m;
    draw_model(&m, CLASS_ORDINARY, 1);
    make_core(&m);
    struct request *r[3];
    r[0] = new_request(&m);
    call(&m, r[0], 0, 12);
    const struct model keep = m;
    for (int32_t k = 0; k < 2; k++) {
        m = keep;
        m.params = keep.params;
        m.params.conv_weight = m.conv_weight;
        for (int32_t i = 0; i < MAX_LEN * m.dim; i++) {
            m.xbc[i] *= i % m.dim < m.inner ? factor[k] : 1.0F;
        }
        for (int32_t i = 0; i < m.n_state; i++) {
            m.ssm0[i] *= factor[k];
        }
        r[k + 1] = new_request(&m);
        call(&m, r[k + 1], 0, 12);
    }
    int32_t same = 0;
    for (int32_t i = 0; i < m.n_state; i++) {
        assert_true(r[1]->state->h[i] == 0x1p7 * r[0]->state->h[i]);
        same += r[2]->state->h[i] == (double)factor[1] * r[0]->state->h[i];
    }
    for (int32_t i = 0; i < 12 * m.inner; i++) {
        assert_true(r[1]->out[i] == 0x1p7 * r[0]->out[i]);
    }
    assert_true(same < m.n_state);
    for (int32_t k = 0; k < 3; k++) {
        free_request(r[k]);
    }
}

/* Second implementation: every output from the definition as a sum over all earlier tokens, nothing
 * carried along. */
static double conv_value(const struct model *m, int32_t t, int32_t c) {
    const int32_t width = m->config.conv_width;
    double acc = m->params.conv_bias ? (double)m->conv_bias[c] : 0.0;
    for (int32_t j = 0; j < width; j++) {
        const int32_t src = t - m->window + j;
        acc += (double)m->conv_weight[c * width + j] *
               (double)(src < 0 ? m->conv0[c * m->window + src + m->window]
                                : m->xbc[src * m->dim + c]);
    }
    return m->config.conv_act == HB_CONV_SILU ? acc * (1.0 / (1.0 + exp(-acc))) : acc;
}

static double clamped_step(const struct model *m, int32_t t, int32_t head) {
    const int32_t kind = m->config.dt_clamp_prefill;
    double dt = step_of(m, t, head);
    dt = kind == HB_DT_CLAMP_NONE ? dt : fmax(dt, (double)m->config.dt_lo);
    return kind == HB_DT_CLAMP_LIMIT ? fmin(dt, (double)m->config.dt_hi) : dt;
}

static double closed_state(const struct model *m, int32_t t, int32_t i) {
    const struct hb_config *c = &m->config;
    const int32_t p = i / c->state_size, head = p / c->head_dim,
                  group = head / (c->n_heads / c->n_groups);
    double s = 0.0, h = 0.0;
    for (int32_t j = t; j >= 0; j--) {
        const double dt = clamped_step(m, j, head);
        h += exp(s) * dt * conv_value(m, j, p) *
             conv_value(m, j, m->inner + group * c->state_size + i % c->state_size);
        s += dt * (double)m->a[head];
    }
    return h + exp(s) * (double)m->ssm0[i];
}

static double closed_y(const struct model *m, int32_t t, int32_t p) {
    const struct hb_config *c = &m->config;
    const int32_t head = p / c->head_dim, group = head / (c->n_heads / c->n_groups);
    double y = m->params.d ? (double)m->d[head] * conv_value(m, t, p) : 0.0;
    for (int32_t n = 0; n < c->state_size; n++) {
        y += conv_value(m, t, m->inner + (c->n_groups + group) * c->state_size + n) *
             closed_state(m, t, p * c->state_size + n);
    }
    return y;
}

static void closed_out(const struct model *m, int32_t t, double *out) {
    const struct hb_config *c = &m->config;
    double y[MAX_INNER] = {0}, v[MAX_INNER] = {0}, silu[MAX_INNER] = {0};
    const int32_t g = c->gate_norm;
    for (int32_t i = 0; i < m->inner; i++) {
        const double z = (double)m->z[t * m->inner + i];
        silu[i] = z * (1.0 / (1.0 + exp(-z)));
        y[i] = closed_y(m, t, i);
        v[i] = g == HB_GATE_NORM_AFTER || g == HB_GATE_ONLY ? y[i] * silu[i] : y[i];
    }
    for (int32_t i = 0; i < m->inner; i++) {
        double sum = 0.0;
        const int32_t from = i - i % c->norm_group;
        for (int32_t j = from; j < from + c->norm_group; j++) {
            sum += v[j] * v[j];
        }
        const double o =
            v[i] * (double)m->norm_weight[i] / sqrt(sum / c->norm_group + (double)c->norm_eps);
        out[i] = g == HB_GATE_ONLY || g == HB_GATE_NORM_NONE ? v[i] : o;
        out[i] = g == HB_GATE_NORM_BEFORE ? o * silu[i] : out[i];
    }
}

static void closed_form_agrees(void **unused) {
    (void)unused;
    static const int32_t classes[3] = {CLASS_ORDINARY, CLASS_LARGE_DT, CLASS_ZEROS};
    struct model m;
    double want[MAX_INNER];
    for (int32_t k = 0; k < 45; k++) {
        draw_model(&m, classes[k % 3], 0);
        m.config.gate_norm = k / 3 % HB_N_GATE_NORMS;
        struct request *r = new_request(&m);
        const int32_t n = draw_int(1, 7);
        call(&m, r, 0, n);
        closed_out(&m, n - 1, want);
        for (int32_t i = 0; i < m.inner; i++) {
            const int32_t at = (n - 1) * m.inner + i;
            assert_close(r->out[at], want[i], r->mag[at], 1e-12);
        }
        for (int32_t i = 0; i < m.n_state; i++) {
            assert_close(r->state->h[i], closed_state(&m, n - 1, i), r->state->m[i], 1e-12);
        }
        free_request(r);
    }
}

/* The clamp belongs to the path: each kind on each path, seen through the state of a single step.
 */
static void clamp_follows_the_path(void **unused) {
    (void)unused;
    static const double step[3][3] = {/* kind x raw step 0.01, 0.5, 7 */
                                      {0.01, 0.5, 7.0},
                                      {0.1, 0.5, 2.0},
                                      {0.1, 0.5, 7.0}};
    static const float raw[3] = {0.01F, 0.5F, 7.0F};
    struct model m;
    for (int32_t k = 0; k < 18; k++) {
        draw_model(&m, CLASS_ORDINARY, 1);
        make_core(&m);
        const int32_t kind = k % 3, j = k / 3 % 3, path = k / 9;
        m.config.dt_softplus = 0;
        m.params.dt_bias = NULL;
        m.config.dt_lo = 0.1F;
        m.config.dt_hi = 2.0F;
        m.config.dt_clamp_prefill = path == HB_PATH_PREFILL ? kind : HB_DT_CLAMP_NONE;
        m.config.dt_clamp_decode = path == HB_PATH_DECODE ? kind : HB_DT_CLAMP_NONE;
        memset(m.ssm0, 0, sizeof(m.ssm0));
        m.dt[0] = raw[j];
        struct request *r = new_request(&m);
        call_at(&m, r, path, 0, 1, NULL, 0);
        const double want = step[kind][j] * (double)m.xbc[0] * (double)m.xbc[m.inner];
        assert_close(r->state->h[0], want, 0.0, 1e-7);
        free_request(r);
    }
}

static void float64_entry_equals_the_float_entry_on_the_same_numbers(void **unused) {
    (void)unused;
    static double z[MAX_OUT], xbc[MAX_LEN * MAX_DIM], dt[MAX_LEN * MAX_HEADS], out[MAX_OUT];
    struct model m;
    draw_model(&m, CLASS_ORDINARY, 1);
    struct request *r = new_request(&m), *wide = new_request(&m);
    const struct hb_profile p = plain_profile();
    double a[MAX_HEADS];
    for (int32_t i = 0; i < 9 * m.inner; i++) {
        z[i] = (double)m.z[i];
    }
    for (int32_t i = 0; i < 9 * m.dim; i++) {
        xbc[i] = (double)m.xbc[i];
    }
    for (int32_t i = 0; i < 9 * m.config.n_heads; i++) {
        dt[i] = (double)m.dt[i];
    }
    for (int32_t h = 0; h < m.config.n_heads; h++) {
        a[h] = (double)m.a[h];
    }
    struct hb_ref_numbers numbers = {a, (double)m.config.norm_eps, (double)m.config.dt_lo,
                                     (double)m.config.dt_hi};
    call(&m, r, 0, 9);
    for (int32_t k = 0; k < 2; k++) { /* the second time with another A: it must be used */
        hb_ref_state_set(&m.config, wide->state, m.conv0, m.ssm0);
        assert_int_equal(hb_ref_mamba2_f64(&m.config, &numbers, &m.params, &p, HB_PATH_PREFILL, 9,
                                           z, xbc, dt, wide->state, out, NULL, NULL),
                         0);
        assert_true((memcmp(out, r->out, (size_t)(9 * m.inner) * sizeof(double)) == 0) == (k == 0));
        a[0] *= 1.0 + 1e-9;
    }
    free_request(r);
    free_request(wide);
}

/* A NaN of x stays in its row of the state, reaches every output of its norm group, and is not
 * judged there. */
static void nan_input_is_not_judged_and_stays_in_its_row(void **unused) {
    (void)unused;
    struct model m;
    draw_model(&m, CLASS_ORDINARY, 1);
    m.config.norm_group = m.config.head_dim;
    m.xbc[2 * m.dim] = NAN;
    struct request *r = new_request(&m);
    const struct hb_profile p = plain_profile();
    call(&m, r, 0, 6);
    for (int32_t i = 0; i < 6 * m.inner; i++) {
        const int hit = i / m.inner >= 2 && i % m.inner < m.config.norm_group;
        assert_true(hit ? isinf(r->bound[i]) && isinf(r->mag[i])
                        : isfinite(r->bound[i]) && isfinite(r->out[i]));
    }
    for (int32_t i = 0; i < m.n_state; i++) {
        const double b = hb_ref_state_bound(&m.config, &p, r->state, i, 0);
        assert_true(i < m.config.state_size ? isinf(b) : isfinite(b));
    }
    free_request(r);
}

static void infinite_inputs_never_give_a_nan_bound(void **unused) {
    (void)unused;
    static const float bad[4] = {INFINITY, -INFINITY, NAN, 3e38F};
    struct model m;
    for (int32_t k = 0; k < 400; k++) {
        draw_model(&m, k % N_CLASSES, 0);
        for (int32_t j = 0; j < 3; j++) {
            float *where[5] = {m.z, m.xbc, m.dt, m.ssm0, m.conv0};
            where[draw_int(0, 4)][draw_int(0, 3)] = bad[draw_int(0, 3)];
        }
        struct request *r = new_request(&m);
        call(&m, r, 0, 4);
        for (int32_t i = 0; i < 4 * m.inner; i++) {
            assert_true(r->bound[i] >= 0.0 && r->mag[i] >= 0.0); /* neither is NaN */
            assert_true(isfinite(r->out[i]) || isinf(r->bound[i]));
        }
        free_request(r);
    }
}

static void no_tokens_changes_nothing(void **unused) {
    (void)unused;
    struct model m;
    draw_model(&m, CLASS_ORDINARY, 1);
    struct request *r = new_request(&m);
    struct hb_ref_state *before = hb_ref_state_new(&m.config);
    call(&m, r, 0, 3);
    hb_ref_state_copy(&m.config, before, r->state);
    call(&m, r, 3, 0);
    assert_memory_equal(before->r, r->state->r, (size_t)m.n_state * sizeof(double));
    assert_memory_equal(before->h, r->state->h, (size_t)m.n_state * sizeof(double));
    hb_ref_state_zero(&m.config, r->state);
    for (int32_t i = 0; i < m.n_state; i++) {
        assert_true(r->state->h[i] == 0.0 && r->state->m[i] == 0.0 && r->state->r[i] == 0.0);
    }
    hb_ref_state_free(before);
    free_request(r);
}

/* 16-bit state: one store per call, one more for a tracked copy; fp32: none. */
static void state_stores_are_charged_once_per_call(void **unused) {
    (void)unused;
    struct model m;
    const struct hb_profile p = plain_profile();
    for (int32_t dtype = HB_FP32; dtype < HB_N_FLOAT_DTYPES; dtype++) {
        model_seed = 77;
        draw_model(&m, CLASS_ORDINARY, 1);
        m.config.state_dtype = dtype;
        struct request *r = new_request(&m);
        struct hb_ref_state *at = hb_ref_state_new(&m.config);
        call_at(&m, r, HB_PATH_PREFILL, 0, 5, at, 5);
        for (int32_t i = 0; i < m.n_state; i++) {
            const double h = fabs(at->h[i]), u_st = dtype == HB_BF16 ? 0x1p-8 : 0.0;
            const double raw = hb_ref_state_bound(&m.config, &p, at, i, 0);
            const double copy = hb_ref_state_bound(&m.config, &p, at, i, 1);
            const double live = hb_ref_state_bound(&m.config, &p, r->state, i, 0);
            assert_true(copy == raw + u_st * (h + raw));
            assert_close(live, copy, 0.0, 1e-12);
        }
        hb_ref_state_free(at);
        free_request(r);
    }
}

static void sizes_beyond_memory_are_refused(void **unused) {
    (void)unused;
    struct model m;
    draw_model(&m, CLASS_ORDINARY, 1);
    m.config.n_heads = 1 << 30;
    m.config.head_dim = 1 << 30;
    assert_null(hb_ref_state_new(&m.config));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_calls_give_the_same_bits),
        cmocka_unit_test(tracked_copy_equals_a_shorter_call),
        cmocka_unit_test(conv_window_is_a_copy_of_the_last_inputs),
        cmocka_unit_test(zero_x_leaves_the_decayed_start),
        cmocka_unit_test(zero_rate_sums),
        cmocka_unit_test(zero_step_keeps_the_state),
        cmocka_unit_test(scaling_by_a_power_of_two_is_exact),
        cmocka_unit_test(closed_form_agrees),
        cmocka_unit_test(clamp_follows_the_path),
        cmocka_unit_test(float64_entry_equals_the_float_entry_on_the_same_numbers),
        cmocka_unit_test(nan_input_is_not_judged_and_stays_in_its_row),
        cmocka_unit_test(infinite_inputs_never_give_a_nan_bound),
        cmocka_unit_test(no_tokens_changes_nothing),
        cmocka_unit_test(sizes_beyond_memory_are_refused),
        cmocka_unit_test(state_stores_are_charged_once_per_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
