/* SPDX-License-Identifier: Apache-2.0
 * A stand-in for a backend with the delta rule: plain fp32 loops, as recurrence or in chunks (with
 * the inverse of the triangular system or by substitution), in several orders and with the
 * roundings that a profile declares. Written from ops-delta.md for the tests of the bounds. */
#ifndef HB_HARNESS_TESTS_ORACLE_DELTA_SIM_H
#define HB_HARNESS_TESTS_ORACLE_DELTA_SIM_H

#include "harness/tests/oracle_delta_model.h"
#include "harness/tests/oracle_sim.h"

enum { DSIM_CHUNK = 16, DSIM_N = 16 };

struct dsim {
    const struct delta_model *m;
    int32_t chunked, act, op_bf16, state_bf16, reversed; /* act: enum hb_dtype */
    int32_t sums;                                        /* enum hb_cumsum */
    int32_t late_decay; /* recurrence: decay after the prediction's sum; scale of q after the sum */
    int32_t direct;     /* chunks: substitution for each column instead of the inverse */
    int32_t grid;       /* tokens of a chunk, at most the chunk size */
    int32_t first;      /* tokens of the first chunk, 0: grid */
    float conv[MAX_DIM * 4], ssm[MAX_STATE]; /* ssm [H, P, N] */
    float c[DELTA_LEN * MAX_DIM];
    float y[DELTA_LEN * MAX_INNER], out[DELTA_LEN * MAX_INNER];
    float g[DELTA_LEN * MAX_HEADS * DSIM_N], beta[DELTA_LEN * MAX_HEADS];
};

/* Nearest of 11 significand bits, subnormal below 2^-14; no overflow. */
static inline float round_fp16(float x) {
    if (x == 0.0F || !isfinite(x)) {
        return x;
    }
    int e = 0;
    (void)frexpf(x, &e);
    const int shift = e < -13 ? 24 : 11 - e;
    return ldexpf(rintf(ldexpf(x, shift)), -shift);
}

static inline float dsim_act(const struct dsim *s, float x) {
    return s->act == HB_BF16 ? round_bf16(x) : s->act == HB_FP16 ? round_fp16(x) : x;
}

static inline float dsim_op(const struct dsim *s, float x) {
    return s->op_bf16 ? round_bf16(x) : x;
}

static inline float dsim_sigmoid(float x) {
    return 1.0F / (1.0F + expf(-x));
}

static inline void dsim_start(struct dsim *s) {
    memcpy(s->conv, s->m->conv0, sizeof(s->conv));
    memcpy(s->ssm, s->m->ssm0, sizeof(s->ssm));
}

static inline void dsim_conv(struct dsim *s, int32_t from, int32_t n) {
    const struct delta_model *m = s->m;
    const int32_t width = m->config.conv_width, skip = m->window - (width - 1);
    for (int32_t c = 0; c < m->dim; c++) {
        float x[DELTA_LEN + 4] = {0};
        for (int32_t j = 0; j < m->window; j++) {
            x[j] = s->conv[c * m->window + j];
        }
        for (int32_t t = 0; t < n; t++) {
            x[m->window + t] = m->qkv[(from + t) * m->dim + c];
            float acc = m->params.conv_bias ? m->conv_bias[c] : 0.0F;
            for (int32_t j = 0; j < width; j++) {
                const int32_t k = s->reversed ? width - 1 - j : j;
                acc += m->conv_weight[c * width + k] * x[skip + t + k];
            }
            acc = m->config.conv_act == HB_CONV_SILU ? acc * dsim_sigmoid(acc) : acc;
            s->c[t * m->dim + c] = dsim_act(s, acc);
        }
        for (int32_t j = 0; j < m->window; j++) {
            s->conv[c * m->window + j] = x[n + j];
        }
    }
}

static inline void dsim_gates(struct dsim *s, int32_t from, int32_t n) {
    const struct delta_model *m = s->m;
    const struct hb_config *c = &m->config;
    const int32_t decays = m->gates - c->n_heads, each = m->is_kda ? c->state_size : 1;
    for (int32_t t = 0; t < n; t++) {
        const float *row = m->ab + (from + t) * m->gates;
        for (int32_t i = 0; i < decays; i++) {
            const float x = row[i] + (m->params.dt_bias ? m->dt_bias[i] : 0.0F);
            const float rate = m->a[i / each];
            float g = rate * (!c->dt_softplus || x > 20.0F ? x : log1pf(expf(x)));
            if (m->is_kda && c->gate_form == HB_GATE_LOWER_BOUND) {
                g = c->gate_bound * dsim_sigmoid(-rate * x);
            }
            s->g[t * decays + i] = g;
        }
        for (int32_t h = 0; h < c->n_heads; h++) {
            const float b = row[decays + h];
            const float factor = c->beta_form == HB_BETA_DOUBLE ? 2.0F : 1.0F;
            s->beta[t * c->n_heads + h] =
                c->beta_form == HB_BETA_RAW ? b : factor * dsim_sigmoid(b);
        }
    }
}

static inline float dsim_dot(const struct dsim *s, const float *a, const float *b) {
    const int32_t n = s->m->config.state_size;
    float sum = 0.0F;
    for (int32_t i = 0; i < n; i++) {
        const int32_t k = s->reversed ? n - 1 - i : i;
        sum += a[k] * b[k];
    }
    return sum;
}

/* q (0) or k (1) of a token and head, normalised, and rounded as operands are. */
static inline void dsim_vector(const struct dsim *s, int32_t t, int32_t head, int32_t which,
                               float *out) {
    const struct hb_config *c = &s->m->config;
    const int32_t group =
        c->head_map == HB_HEADS_TILE ? head % c->n_groups : head / (c->n_heads / c->n_groups);
    const float *x = s->c + t * s->m->dim + (which * c->n_groups + group) * c->state_size;
    const float sum = dsim_dot(s, x, x);
    float r = 1.0F;
    r = c->l2norm == HB_L2_ADD_EPS ? 1.0F / sqrtf(sum + 1e-6F) : r;
    r = c->l2norm == HB_L2_MAX_EPS ? 1.0F / fmaxf(sqrtf(sum), 1e-6F) : r;
    for (int32_t i = 0; i < c->state_size; i++) {
        out[i] = s->chunked ? dsim_op(s, x[i] * r) : x[i] * r;
    }
}

static inline float dsim_scale(const struct dsim *s) {
    const struct hb_config *c = &s->m->config;
    return c->qk_scale != 0.0F ? c->qk_scale : 1.0F / sqrtf((float)c->state_size);
}

/* Log decay of channel i of a head at a token. */
static inline float dsim_g(const struct dsim *s, int32_t t, int32_t head, int32_t i) {
    const struct hb_config *c = &s->m->config;
    return s->m->is_kda ? s->g[(t * c->n_heads + head) * c->state_size + i]
                        : s->g[t * c->n_heads + head];
}

static inline const float *dsim_v(const struct dsim *s, int32_t t, int32_t head) {
    const struct hb_config *c = &s->m->config;
    return s->c + t * s->m->dim + 2 * c->n_groups * c->state_size + head * c->head_dim;
}

static inline void dsim_recurrence(struct dsim *s, int32_t n, int32_t head) {
    const struct hb_config *c = &s->m->config;
    const int32_t size = c->state_size;
    for (int32_t t = 0; t < n; t++) {
        float q[DSIM_N], k[DSIM_N], a[DSIM_N], ak[DSIM_N];
        const float beta = s->beta[t * c->n_heads + head], scale = dsim_scale(s);
        dsim_vector(s, t, head, 0, q);
        dsim_vector(s, t, head, 1, k);
        for (int32_t i = 0; i < size; i++) {
            a[i] = expf(dsim_g(s, t, head, i));
            ak[i] = k[i] * a[i];
            q[i] *= s->late_decay ? 1.0F : scale;
        }
        for (int32_t p = 0; p < c->head_dim; p++) {
            float *h = s->ssm + (head * c->head_dim + p) * size;
            const float late = dsim_dot(s, ak, h);
            for (int32_t i = 0; i < size; i++) {
                h[i] *= a[i];
            }
            const float seen = s->late_decay ? late : dsim_dot(s, k, h);
            const float d = beta * (dsim_v(s, t, head)[p] - seen);
            for (int32_t i = 0; i < size; i++) {
                h[i] += k[i] * d;
            }
            s->y[t * s->m->inner + head * c->head_dim + p] =
                dsim_dot(s, q, h) * (s->late_decay ? scale : 1.0F);
        }
    }
}

/* One chunk of a head: everything per local token. */
struct dchunk {
    int32_t len;
    float q[DSIM_CHUNK][DSIM_N], k[DSIM_CHUNK][DSIM_N], sum[DSIM_CHUNK][DSIM_N];
    float beta[DSIM_CHUNK], a[DSIM_CHUNK][DSIM_CHUNK], t[DSIM_CHUNK][DSIM_CHUNK];
    float w[DSIM_CHUNK][DSIM_N], score[DSIM_CHUNK][DSIM_CHUNK];
};

/* sum over channels of x_i y_j exp(G_i - G_j) */
static inline float dsim_pair(const struct dsim *s, const struct dchunk *c, int32_t i, int32_t j,
                              const float *x) {
    const int32_t n = s->m->config.state_size;
    float sum = 0.0F;
    for (int32_t l = 0; l < n; l++) {
        const int32_t at = s->reversed ? n - 1 - l : l;
        const float decay = s->m->is_kda ? expf(c->sum[i][at] - c->sum[j][at]) : 1.0F;
        sum += x[at] * c->k[j][at] * decay;
    }
    return s->m->is_kda ? sum : sum * expf(c->sum[i][0] - c->sum[j][0]);
}

static inline void dsim_sums(const struct dsim *s, struct dchunk *c) {
    for (int32_t l = 0; l < s->m->config.state_size; l++) {
        float column[SIM_MAX_CHUNK] = {0};
        for (int32_t i = 0; i < c->len; i++) {
            column[i] = c->sum[i][l];
        }
        sim_cumsum(s->sums, c->len, column);
        for (int32_t i = 0; i < c->len; i++) {
            c->sum[i][l] = column[i];
        }
    }
}

static inline void dsim_chunk_load(const struct dsim *s, int32_t t0, int32_t head,
                                   struct dchunk *c) {
    const struct hb_config *cfg = &s->m->config;
    for (int32_t i = 0; i < c->len; i++) {
        dsim_vector(s, t0 + i, head, 0, c->q[i]);
        dsim_vector(s, t0 + i, head, 1, c->k[i]);
        c->beta[i] = s->beta[(t0 + i) * cfg->n_heads + head];
        for (int32_t l = 0; l < cfg->state_size; l++) {
            c->sum[i][l] = dsim_g(s, t0 + i, head, l);
        }
    }
    dsim_sums(s, c);
    for (int32_t i = 0; i < c->len; i++) {
        for (int32_t j = 0; j <= i; j++) {
            c->a[i][j] = j < i ? c->beta[i] * dsim_pair(s, c, i, j, c->k[i]) : 0.0F;
            c->score[i][j] = dsim_op(s, dsim_pair(s, c, i, j, c->q[i]));
        }
    }
    for (int32_t i = 0; i < c->len; i++) { /* T, and w = T (beta e^G k) */
        for (int32_t j = 0; j <= i; j++) {
            float sum = j == i ? 1.0F : 0.0F;
            for (int32_t l = j; l < i; l++) {
                sum -= c->a[i][l] * c->t[l][j];
            }
            c->t[i][j] = sum;
        }
    }
    for (int32_t i = 0; i < c->len; i++) {
        for (int32_t l = 0; l < cfg->state_size; l++) {
            float sum = 0.0F;
            for (int32_t j = 0; j <= i; j++) {
                sum += dsim_op(s, c->t[i][j]) *
                       dsim_op(s, c->beta[j] * expf(c->sum[j][l]) * c->k[j][l]);
            }
            c->w[i][l] = dsim_op(s, sum);
        }
    }
}

/* d of one column, by the inverse or by substitution. */
static inline void dsim_solve(const struct dsim *s, const struct dchunk *c, const float *v,
                              const float *h, float *d) {
    float rounded[DSIM_N] = {0};
    for (int32_t l = 0; l < s->m->config.state_size; l++) {
        rounded[l] = dsim_op(s, h[l]);
    }
    for (int32_t i = 0; i < c->len; i++) {
        float sum = 0.0F;
        if (s->direct) {
            float kg[DSIM_N] = {0};
            for (int32_t l = 0; l < s->m->config.state_size; l++) {
                kg[l] = expf(c->sum[i][l]) * c->k[i][l];
            }
            sum = c->beta[i] * (v[i] - dsim_dot(s, kg, h));
            for (int32_t j = 0; j < i; j++) {
                sum -= c->a[i][j] * d[j];
            }
        } else {
            for (int32_t j = 0; j <= i; j++) {
                sum += dsim_op(s, c->t[i][j]) * dsim_op(s, c->beta[j] * v[j]);
            }
            sum = dsim_op(s, sum) - dsim_dot(s, c->w[i], rounded);
        }
        d[i] = sum;
    }
}

static inline void dsim_chunk_column(struct dsim *s, const struct dchunk *c, int32_t t0,
                                     int32_t head, int32_t p) {
    const struct hb_config *cfg = &s->m->config;
    float *h = s->ssm + (head * cfg->head_dim + p) * cfg->state_size;
    float v[DSIM_CHUNK] = {0}, d[DSIM_CHUNK] = {0};
    for (int32_t i = 0; i < c->len; i++) {
        v[i] = dsim_v(s, t0 + i, head)[p];
    }
    dsim_solve(s, c, v, h, d);
    for (int32_t i = 0; i < c->len; i++) {
        float qg[DSIM_N] = {0}, rounded[DSIM_N] = {0};
        for (int32_t l = 0; l < cfg->state_size; l++) {
            qg[l] = expf(c->sum[i][l]) * c->q[i][l];
            rounded[l] = dsim_op(s, h[l]);
        }
        float o = dsim_dot(s, qg, rounded);
        for (int32_t j = 0; j <= i; j++) {
            o += c->score[i][j] * dsim_op(s, d[j]);
        }
        s->y[(t0 + i) * s->m->inner + head * cfg->head_dim + p] = o * dsim_scale(s);
    }
    const float *last = c->sum[c->len - 1];
    for (int32_t l = 0; l < cfg->state_size; l++) {
        float local = s->reversed ? 0.0F : expf(last[l]) * h[l];
        for (int32_t j = 0; j < c->len; j++) {
            local += c->k[j][l] * dsim_op(s, d[j] * expf(last[l] - c->sum[j][l]));
        }
        h[l] = s->reversed ? local + expf(last[l]) * h[l] : local;
    }
}

static inline void dsim_chunks(struct dsim *s, int32_t n, int32_t head) {
    int32_t len = s->first > 0 ? s->first : s->grid;
    for (int32_t t0 = 0; t0 < n;) {
        struct dchunk c = {.len = n - t0 < len ? n - t0 : len};
        dsim_chunk_load(s, t0, head, &c);
        for (int32_t p = 0; p < s->m->config.head_dim; p++) {
            dsim_chunk_column(s, &c, t0, head, p);
        }
        t0 += c.len;
        len = s->grid;
    }
}

static inline void dsim_gate_norm(struct dsim *s, int32_t from, int32_t t) {
    const struct delta_model *m = s->m;
    const int32_t kind = m->config.gate_norm, group = m->config.norm_group;
    float v[MAX_INNER] = {0}, gate[MAX_INNER] = {0};
    for (int32_t i = 0; i < m->inner; i++) {
        const float z = m->z[(from + t) * m->inner + i];
        gate[i] = dsim_sigmoid(z) * (m->config.out_gate == HB_OUT_SIGMOID ? 1.0F : z);
        v[i] = dsim_act(s, s->y[t * m->inner + i]);
        v[i] *= kind == HB_GATE_NORM_AFTER || kind == HB_GATE_ONLY ? gate[i] : 1.0F;
    }
    for (int32_t i = 0; i < m->inner; i++) {
        float o = v[i];
        if (kind != HB_GATE_ONLY && kind != HB_GATE_NORM_NONE) {
            float sum = 0.0F;
            for (int32_t j = i - i % group; j < i - i % group + group; j++) {
                sum += v[j] * v[j];
            }
            o *= 1.0F / sqrtf(sum / (float)group + m->config.norm_eps) * m->norm_weight[i];
        }
        o *= kind == HB_GATE_NORM_BEFORE ? gate[i] : 1.0F;
        s->out[t * m->inner + i] = dsim_act(s, o);
    }
}

static inline void dsim_call(struct dsim *s, int32_t path, int32_t from, int32_t n) {
    const int32_t chunked = s->chunked;
    s->chunked = chunked && path == HB_PATH_PREFILL;
    dsim_conv(s, from, n);
    dsim_gates(s, from, n);
    for (int32_t h = 0; h < s->m->config.n_heads; h++) {
        if (s->chunked) {
            dsim_chunks(s, n, h);
        } else {
            dsim_recurrence(s, n, h);
        }
    }
    for (int32_t t = 0; t < n; t++) {
        dsim_gate_norm(s, from, t);
    }
    for (int32_t i = 0; i < s->m->n_state && s->state_bf16; i++) {
        s->ssm[i] = round_bf16(s->ssm[i]);
    }
    s->chunked = chunked;
}

#endif
