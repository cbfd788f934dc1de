/* SPDX-License-Identifier: Apache-2.0
 * A stand-in for a backend: the mixer in plain fp32 loops, as recurrence or in chunks, with the
 * roundings to 16 bits that a profile declares. Written from ops-mamba2.md for the tests of the
 * bounds; included by test programs only. */
#ifndef HB_HARNESS_TESTS_ORACLE_SIM_H
#define HB_HARNESS_TESTS_ORACLE_SIM_H

#include "harness/tests/oracle_model.h"
#include "harness/values.h"

enum { SIM_MAX_CHUNK = 16 };

struct sim {
    const struct model *m;
    int32_t chunked, act_bf16, op_bf16, state_bf16, naive_softplus, two_roundings, reversed;
    int32_t sums; /* enum hb_cumsum */
    int32_t fp16; /* act_bf16 and op_bf16 mean fp16 */
    float conv[MAX_DIM * 3], ssm[MAX_STATE];
    float c[MAX_LEN * MAX_DIM]; /* convolution output of the call */
    float y[MAX_LEN * MAX_INNER], out[MAX_LEN * MAX_INNER];
    float step[MAX_LEN * MAX_HEADS];
};

static inline float sim_round(const struct sim *s, float x) {
    return s->fp16 ? hb_fp16_to_float(hb_fp16_from_float(x)) : round_bf16(x);
}

static inline float sim_act(const struct sim *s, float x) {
    return s->act_bf16 ? sim_round(s, x) : x;
}

static inline float sim_op(const struct sim *s, float x) {
    return s->op_bf16 ? sim_round(s, x) : x;
}

static inline float sim_silu(float x) {
    return x / (1.0F + expf(-x));
}

static inline void sim_start(struct sim *s) {
    memcpy(s->conv, s->m->conv0, sizeof(s->conv));
    memcpy(s->ssm, s->m->ssm0, sizeof(s->ssm));
}

static inline void sim_conv(struct sim *s, int32_t from, int32_t n) {
    const struct model *m = s->m;
    const int32_t width = m->config.conv_width;
    for (int32_t c = 0; c < m->dim; c++) {
        float x[MAX_LEN + 3] = {0};
        for (int32_t j = 0; j < m->window; j++) {
            x[j] = s->conv[c * m->window + j];
        }
        for (int32_t t = 0; t < n; t++) {
            x[m->window + t] = m->xbc[(from + t) * m->dim + c];
            float acc = m->params.conv_bias ? m->conv_bias[c] : 0.0F;
            for (int32_t j = 0; j < width; j++) {
                const int32_t k = s->reversed ? width - 1 - j : j;
                acc += m->conv_weight[c * width + k] * x[t + k];
            }
            s->c[t * m->dim + c] =
                sim_act(s, m->config.conv_act == HB_CONV_SILU ? sim_silu(acc) : acc);
        }
        for (int32_t j = 0; j < m->window; j++) {
            s->conv[c * m->window + j] = x[n + j];
        }
    }
}

static inline void sim_steps(struct sim *s, int32_t path, int32_t from, int32_t n) {
    const struct model *m = s->m;
    const struct hb_config *c = &m->config;
    const int32_t clamp = path == HB_PATH_DECODE ? c->dt_clamp_decode : c->dt_clamp_prefill;
    for (int32_t i = 0; i < n * c->n_heads; i++) {
        float a =
            m->dt[from * c->n_heads + i] + (m->params.dt_bias ? m->dt_bias[i % c->n_heads] : 0.0F);
        if (c->dt_softplus && a <= 20.0F) {
            a = s->naive_softplus ? logf(1.0F + expf(a)) : log1pf(expf(a));
        }
        a = clamp != HB_DT_CLAMP_NONE ? fmaxf(a, c->dt_lo) : a;
        s->step[i] = clamp == HB_DT_CLAMP_LIMIT ? fminf(a, c->dt_hi) : a;
    }
}

/* x[p], B[n] and C[n] of token t for head h. */
struct sim_token {
    const float *x, *b, *c;
    float dt;
};

static inline struct sim_token sim_token(const struct sim *s, int32_t t, int32_t head) {
    const struct hb_config *c = &s->m->config;
    const int32_t group = head / (c->n_heads / c->n_groups);
    const float *row = s->c + t * s->m->dim;
    const struct sim_token k = {row + head * c->head_dim, row + s->m->inner + group * c->state_size,
                                row + s->m->inner + (c->n_groups + group) * c->state_size,
                                s->step[t * c->n_heads + head]};
    return k;
}

static inline float sim_dot(const struct sim *s, const float *a, const float *b, int32_t round_b) {
    const int32_t n = s->m->config.state_size;
    float sum = 0.0F;
    for (int32_t i = 0; i < n; i++) {
        const int32_t k = s->reversed ? n - 1 - i : i;
        sum += a[k] * (round_b ? sim_op(s, b[k]) : b[k]);
    }
    return sum;
}

static inline void sim_recurrence(struct sim *s, int32_t n, int32_t head) {
    const struct hb_config *c = &s->m->config;
    const float d = s->m->params.d ? s->m->d[head] : 0.0F;
    for (int32_t t = 0; t < n; t++) {
        const struct sim_token k = sim_token(s, t, head);
        const float decay = expf(k.dt * s->m->a[head]);
        for (int32_t p = 0; p < c->head_dim; p++) {
            float *h = s->ssm + (head * c->head_dim + p) * c->state_size;
            for (int32_t i = 0; i < c->state_size; i++) {
                h[i] =
                    decay * h[i] + (s->reversed ? k.dt * k.b[i] * k.x[p] : k.dt * k.x[p] * k.b[i]);
            }
            s->y[t * s->m->inner + head * c->head_dim + p] = sim_dot(s, k.c, h, 0) + d * k.x[p];
        }
    }
}

/* Outputs of one chunk of len tokens from t0, ops-mamba2.md 4 and 4.2; sum are the cumulative log
 * decays. */
static inline void sim_chunk_outputs(struct sim *s, int32_t t0, int32_t len, int32_t head,
                                     const float *sum) {
    const struct hb_config *c = &s->m->config;
    const float d = s->m->params.d ? s->m->d[head] : 0.0F;
    for (int32_t i = 0; i < len; i++) {
        const struct sim_token ki = sim_token(s, t0 + i, head);
        float w[SIM_MAX_CHUNK] = {0};
        for (int32_t j = 0; j <= i; j++) {
            const struct sim_token kj = sim_token(s, t0 + j, head);
            w[j] =
                sim_op(s, sim_dot(s, ki.c, kj.b, 0) * expf(fminf(sum[i] - sum[j], 0.0F)) * kj.dt);
        }
        for (int32_t p = 0; p < c->head_dim; p++) {
            const float *h = s->ssm + (head * c->head_dim + p) * c->state_size;
            float y = 0.0F;
            for (int32_t j = 0; j <= i; j++) {
                y += w[j] * sim_token(s, t0 + j, head).x[p];
            }
            y += expf(sum[i]) * sim_dot(s, ki.c, h, 1);
            s->y[(t0 + i) * s->m->inner + head * c->head_dim + p] = y + d * ki.x[p];
        }
    }
}

static inline void sim_chunk_state(struct sim *s, int32_t t0, int32_t len, int32_t head,
                                   const float *sum) {
    const struct hb_config *c = &s->m->config;
    for (int32_t p = 0; p < c->head_dim; p++) {
        float *h = s->ssm + (head * c->head_dim + p) * c->state_size;
        for (int32_t i = 0; i < c->state_size; i++) {
            float local = 0.0F;
            for (int32_t j = 0; j < len; j++) {
                const struct sim_token k = sim_token(s, t0 + j, head);
                const float weight = expf(fminf(sum[len - 1] - sum[j], 0.0F)) * k.dt;
                local += k.x[p] * sim_op(s, k.b[i] * weight);
            }
            h[i] = expf(sum[len - 1]) * h[i] + local;
        }
    }
}

/* Cumulative sums of len terms in place: in sequence, as a scan of doubling steps, or each from its
 * last term back. */
static inline void sim_cumsum(int32_t kind, int32_t len, float *sum) {
    float next[SIM_MAX_CHUNK] = {0};
    if (kind == HB_CS_SEQUENTIAL) {
        for (int32_t i = 1; i < len; i++) {
            sum[i] += sum[i - 1];
        }
    }
    for (int32_t gap = 1; gap < len && kind == HB_CS_TREE; gap *= 2) {
        for (int32_t i = 0; i < len; i++) {
            next[i] = i >= gap ? sum[i] + sum[i - gap] : sum[i];
        }
        memcpy(sum, next, (size_t)len * sizeof(float));
    }
    for (int32_t i = len - 1; i >= 0 && kind == HB_CS_ANY; i--) {
        for (int32_t j = i - 1; j >= 0; j--) {
            sum[i] += sum[j];
        }
    }
}

static inline void sim_chunks(struct sim *s, int32_t n, int32_t head) {
    const int32_t q = s->m->config.chunk_size;
    for (int32_t t0 = 0; t0 < n; t0 += q) {
        const int32_t len = n - t0 < q ? n - t0 : q;
        float sum[SIM_MAX_CHUNK] = {0};
        for (int32_t i = 0; i < len; i++) {
            sum[i] = s->step[(t0 + i) * s->m->config.n_heads + head] * s->m->a[head];
        }
        sim_cumsum(s->sums, len, sum);
        sim_chunk_outputs(s, t0, len, head, sum);
        sim_chunk_state(s, t0, len, head, sum);
    }
}

static inline float sim_root(const struct sim *s, const float *v, int32_t from) {
    const int32_t n = s->m->config.norm_group;
    float sum = 0.0F;
    for (int32_t i = from; i < from + n; i++) {
        sum += v[i] * v[i];
    }
    return 1.0F / sqrtf(sum / (float)n + s->m->config.norm_eps);
}

static inline void sim_gate_norm(struct sim *s, int32_t from, int32_t t) {
    const struct model *m = s->m;
    const int32_t g = m->config.gate_norm;
    const float *z = m->z + (from + t) * m->inner;
    float v[MAX_INNER] = {0};
    for (int32_t i = 0; i < m->inner; i++) {
        const float y = sim_act(s, s->y[t * m->inner + i]);
        v[i] = g == HB_GATE_NORM_AFTER || g == HB_GATE_ONLY ? y * sim_silu(z[i]) : y;
    }
    for (int32_t i = 0; i < m->inner; i++) {
        float o = v[i];
        if (g != HB_GATE_ONLY && g != HB_GATE_NORM_NONE) {
            o *= sim_root(s, v, i - i % m->config.norm_group);
            o = (s->two_roundings ? sim_act(s, o) : o) * m->norm_weight[i];
        }
        o = g == HB_GATE_NORM_BEFORE ? o * sim_silu(z[i]) : o;
        s->out[t * m->inner + i] = sim_act(s, o);
    }
}

/* Tokens from..from+n-1 of the model in one call; out [n, inner] starts at 0. */
static inline void sim_call(struct sim *s, int32_t path, int32_t from, int32_t n) {
    const int32_t heads = s->m->config.n_heads;
    sim_conv(s, from, n);
    sim_steps(s, path, from, n);
    for (int32_t h = 0; h < heads; h++) {
        if (s->chunked && path == HB_PATH_PREFILL) {
            sim_chunks(s, n, h);
        } else {
            sim_recurrence(s, n, h);
        }
    }
    for (int32_t t = 0; t < n; t++) {
        sim_gate_norm(s, from, t);
    }
    for (int32_t i = 0; i < s->m->n_state && s->state_bf16; i++) {
        s->ssm[i] = round_bf16(s->ssm[i]);
    }
}

#endif
