/* SPDX-License-Identifier: Apache-2.0
 * Random small layers of the kinds without delta rule (lightning, Mamba1, short convolution) for
 * the tests of the oracle, and a stand-in for a backend: plain fp32 loops with the roundings that a
 * profile declares. Written from ops-delta.md 3 and 4 and ops-mamba2.md 3; included by test
 * programs only. */
#ifndef HB_HARNESS_TESTS_ORACLE_MIXER_H
#define HB_HARNESS_TESTS_ORACLE_MIXER_H

#include <stdlib.h>

#include "harness/tests/oracle_model.h"
#include "harness/values.h"

enum {
    MIX_LEN = 40,
    MIX_INNER = 32,
    MIX_N = 16,
    MIX_WIDE = 3 * MIX_INNER + 4 * 2 * MIX_N, /* of any input */
    MIX_STATE = MIX_INNER * MIX_N,
    MIX_CHUNK = 16
};

struct mixer {
    struct hb_config config;
    struct hb_layer_params params;
    struct hb_ref_sizes size;
    int32_t kind, value_class, layer;
    float conv_weight[MIX_INNER * 4], conv_bias[MIX_INNER];
    float a[MIX_STATE], dt_bias[MIX_INNER], d[MIX_INNER], norm_weight[MIX_INNER];
    float in[3][MIX_LEN * MIX_WIDE];
    float conv0[MIX_INNER * 4], ssm0[MIX_STATE];
};

static inline float round_to(int32_t dtype, float x) {
    if (dtype == HB_FP16) {
        return hb_fp16_to_float(hb_fp16_from_float(x));
    }
    return dtype == HB_BF16 ? round_bf16(x) : x;
}

/* ---- layers ---- */

static inline void draw_mixer_sizes(struct mixer *m, int32_t kind) {
    static const int32_t heads_of[5][2] = {{1, 1}, {2, 1}, {4, 2}, {4, 4}, {3, 1}};
    const int32_t which = draw_int(0, 4);
    struct hb_config *c = &m->config;
    c->n_layers = draw_int(1, 4);
    m->layer = draw_int(0, c->n_layers - 1);
    for (int32_t l = 0; l < c->n_layers; l++) {
        c->layer_kind[l] = kind;
    }
    c->n_heads = heads_of[which][0];
    c->n_groups = heads_of[which][1];
    c->head_dim = draw_int(1, 8);
    c->state_size = draw_int(1, MIX_N);
    c->conv_width = draw_int(2, 4);
    c->chunk_size = 4 << draw_int(0, 2);
    c->norm_group = c->head_dim * (draw_int(0, 1) ? c->n_heads : 1);
    c->norm_eps = 1e-5F;
    c->dt_hi = INFINITY;
    c->dt_softplus = 1;
}

static inline void draw_mixer_variants(struct mixer *m) {
    struct hb_config *c = &m->config;
    c->head_map = draw_int(0, 1);
    c->out_gate = draw_int(0, 1);
    c->conv_state_len = draw_int(0, 1);
    c->conv_act = draw_int(0, 1);
    c->gate_norm = draw_int(0, HB_N_GATE_NORMS - 1);
    c->qkv_act = draw_int(0, 1);
    c->qk_scale = draw_int(0, 1) ? 0.7F : 0.0F;
    c->dt_softplus = draw_int(0, 3) > 0;
    c->slope_kind = draw_int(0, HB_N_SLOPE_KINDS - 1);
    c->layer_factor = draw_int(0, HB_N_LAYER_FACTORS - 1);
}

/* Log decays: at most 0; a large class where they underflow, one where nothing is forgotten. */
static inline void draw_decays(const struct mixer *m, float *p, int32_t n) {
    static const float least[N_CLASSES] = {-0.5F, -1.5F, -30.0F, -1e-4F, -0.01F, -2.0F, -1.0F};
    for (int32_t i = 0; i < n; i++) {
        p[i] = draw_uniform(least[m->value_class], 0.0F) * (1.0F + 0x1.1p-11F);
        p[i] = draw_int(0, 15) ? p[i] : 0.0F;
    }
}

static inline void draw_mixer_inputs(struct mixer *m) {
    const struct hb_config *c = &m->config;
    const struct model as = {.value_class = m->value_class};
    const int32_t inner = c->n_heads * c->head_dim, act = c->act_dtype;
    for (int32_t k = 0; k < 3; k++) {
        for (int32_t i = 0; i < MIX_LEN * m->size.width[k]; i++) {
            const int32_t place = k == 1 ? i / (int32_t)m->size.width[k] : i;
            m->in[k][i] = round_to(act, draw_value(&as, place));
        }
    }
    for (int32_t t = 0; t < MIX_LEN && m->kind == HB_LAYER_MAMBA1; t++) {
        float *dt = m->in[2] + t * m->size.width[2];
        const int large = m->value_class == CLASS_LARGE_DT;
        for (int32_t i = 0; i < inner; i++) {
            const float x = draw_uniform(-4.0F, large ? 30.0F : 1.0F);
            dt[i] = round_to(act, c->dt_softplus ? x : fabsf(x) + 1.0F);
        }
    }
    if (m->kind == HB_LAYER_LIGHTNING && c->slope_kind == HB_SLOPE_TOKEN) {
        draw_decays(m, m->in[2], MIX_LEN * c->n_heads);
        for (int32_t i = 0; i < MIX_LEN * c->n_heads; i++) {
            m->in[2][i] = round_to(act, m->in[2][i]);
        }
    }
    for (int32_t i = 0; i < m->size.channels * m->size.window; i++) {
        m->conv0[i] = round_to(act, draw_value(&as, i));
    }
    for (int32_t i = 0; i < m->size.n_state; i++) {
        m->ssm0[i] = draw_value(&as, i);
    }
}

static inline void point_mixer(struct mixer *m, int32_t has_bias, int32_t has_skip) {
    const int has_a = m->kind == HB_LAYER_MAMBA1 || m->config.slope_kind == HB_SLOPE_PARAM;
    const int is_mamba1 = m->kind == HB_LAYER_MAMBA1;
    m->params = (struct hb_layer_params){0};
    m->params.conv_weight = m->kind != HB_LAYER_LIGHTNING ? m->conv_weight : NULL;
    m->params.conv_bias = m->kind != HB_LAYER_LIGHTNING && has_bias ? m->conv_bias : NULL;
    m->params.a = m->kind != HB_LAYER_SHORT_CONV && has_a ? m->a : NULL;
    m->params.dt_bias = is_mamba1 && has_bias ? m->dt_bias : NULL;
    m->params.d = is_mamba1 && has_skip ? m->d : NULL;
    m->params.norm_weight = m->kind != HB_LAYER_SHORT_CONV ? m->norm_weight : NULL;
}

/* plain: no variant but the first of each. */
static inline void draw_mixer(struct mixer *m, int32_t kind, int32_t value_class, int32_t act,
                              int32_t plain) {
    memset(m, 0, sizeof *m);
    m->kind = kind;
    m->value_class = value_class;
    m->config.act_dtype = act;
    draw_mixer_sizes(m, kind);
    if (!plain) {
        draw_mixer_variants(m);
    }
    hb_ref_linear_sizes(&m->config, kind, &m->size);
    const int same = value_class == CLASS_SAME_SIGN;
    fill_uniform(m->conv_weight, MIX_INNER * 4, same ? 0.1F : -1.0F, 1.0F);
    fill_uniform(m->conv_bias, MIX_INNER, same ? 0.0F : -0.5F, 0.5F);
    fill_uniform(m->dt_bias, MIX_INNER, -1.0F, 1.0F);
    fill_uniform(m->d, MIX_INNER, same ? 0.0F : -1.0F, 1.0F);
    fill_uniform(m->norm_weight, MIX_INNER, -2.0F, 2.0F);
    draw_decays(m, m->a, MIX_STATE);
    draw_mixer_inputs(m);
    point_mixer(m, plain || draw_int(0, 1), plain || draw_int(0, 1));
}

/* A copy whose parameters are its own. */
static inline void copy_mixer(struct mixer *dst, const struct mixer *src) {
    *dst = *src;
    point_mixer(dst, 1, src->params.d != NULL);
    dst->params.conv_bias = src->params.conv_bias ? dst->conv_bias : NULL;
    dst->params.dt_bias = src->params.dt_bias ? dst->dt_bias : NULL;
}

static inline int mixer_call(const struct mixer *m, const struct hb_profile *p, int32_t path,
                             int32_t from, int32_t n, struct hb_ref_state *state, double *out,
                             double *bound, double *mag) {
    return hb_ref_linear(&m->config, m->layer, &m->params, p, path, n,
                         m->in[0] + from * m->size.width[0], m->in[1] + from * m->size.width[1],
                         m->in[2] + from * m->size.width[2], state, out, bound, mag, NULL, 0);
}

/* ---- the stand-in ---- */

struct mixer_sim {
    const struct mixer *m;
    int32_t chunked, op_dtype, naive_softplus, reversed, direct, rounds;
    int32_t sums; /* enum hb_cumsum */
    float conv[MIX_INNER * 4], ssm[MIX_STATE];
    float x[MIX_LEN][MIX_INNER], dt[MIX_LEN][MIX_INNER]; /* per row of the state */
    float b[MIX_LEN][4 * MIX_N], c[MIX_LEN][4 * MIX_N];  /* per group */
    float th[MIX_LEN][MIX_STATE];                        /* log decay of each element */
    float y[MIX_LEN][MIX_INNER], out[MIX_LEN * MIX_INNER];
};

static inline float mix_act(const struct mixer_sim *s, float x) {
    return round_to(s->m->config.act_dtype, x);
}

static inline float mix_op(const struct mixer_sim *s, float x) {
    return round_to(s->op_dtype, x);
}

static inline float mix_silu(float x) {
    return x / (1.0F + expf(-x));
}

static inline void mix_start(struct mixer_sim *s) {
    memcpy(s->conv, s->m->conv0, sizeof s->conv);
    memcpy(s->ssm, s->m->ssm0, sizeof s->ssm);
}

static inline int32_t mix_group(const struct hb_config *c, int32_t head) {
    return c->head_map == HB_HEADS_TILE ? head % c->n_groups : head / (c->n_heads / c->n_groups);
}

/* Convolution of the channels of `in` [n, channels] into `out`, and the new state; the sum is
 * stored as an activation where `stored` says so. */
static inline void mix_conv(struct mixer_sim *s, int32_t n, const float *in, int32_t stride,
                            int32_t act, float *out) {
    const struct mixer *m = s->m;
    const int32_t k = m->config.conv_width, w = (int32_t)m->size.window;
    for (int32_t ch = 0; ch < m->size.channels; ch++) {
        float x[MIX_LEN + 4] = {0};
        memcpy(x, s->conv + ch * w, (size_t)w * sizeof *x);
        for (int32_t t = 0; t < n; t++) {
            x[w + t] = in[t * stride + ch];
            float acc = m->params.conv_bias ? m->conv_bias[ch] : 0.0F;
            for (int32_t j = 0; j < k; j++) {
                const int32_t i = s->reversed ? k - 1 - j : j;
                acc += m->conv_weight[ch * k + i] * x[w + t - (k - 1) + i];
            }
            out[t * MIX_INNER + ch] = act == HB_CONV_SILU ? mix_silu(acc) : acc;
        }
        memcpy(s->conv + ch * w, x + n, (size_t)w * sizeof *x);
    }
}

static inline float mix_slope(const struct mixer *m, int32_t h) {
    const struct hb_config *c = &m->config;
    const double l = m->layer, all = c->n_layers, n = c->n_heads;
    if (c->slope_kind == HB_SLOPE_FLA) {
        return (float)(8.0 / n * (1.0 - l / all) * h);
    }
    double base = pow(2.0, -8.0 * (h + 1) / n);
    if (c->slope_kind == HB_SLOPE_ALIBI && c->n_heads == 3) { /* of 2, then the first of 4 */
        base = h == 0 ? pow(2.0, -4.0) : h == 1 ? pow(2.0, -8.0) : pow(2.0, -2.0);
    }
    double factor = 1.0;
    if (c->layer_factor == HB_FACTOR_MINIMAX) {
        factor = 1.0 - l / (all - 1.0 + 1e-5) + 1e-5;
    } else if (c->layer_factor == HB_FACTOR_LING && all > 1) {
        factor = 1.0 - l / (all - 1.0) + 1e-5;
    } else if (c->layer_factor == HB_FACTOR_LING_OFF && all > 1) {
        factor = 1.0 - (l - 1.0) / (all - 1.0) + 1e-5;
    } else if (c->layer_factor != HB_FACTOR_NONE) {
        factor = 1.0 + 1e-5;
    }
    return (float)(base * factor);
}

static inline float mix_qkv(const struct mixer_sim *s, float x) {
    if (s->m->config.qkv_act != HB_QKV_SILU) {
        return x;
    }
    return s->rounds ? mix_act(s, mix_silu(x)) : mix_silu(x);
}

static inline void mix_load_lightning(struct mixer_sim *s, int32_t from, int32_t n) {
    const struct hb_config *c = &s->m->config;
    const int32_t keys = c->n_groups * c->state_size, inner = c->n_heads * c->head_dim;
    const float scale = c->qk_scale != 0.0F ? c->qk_scale : 1.0F / sqrtf((float)c->state_size);
    for (int32_t t = 0; t < n; t++) {
        const float *row = s->m->in[1] + (from + t) * s->m->size.width[1];
        for (int32_t i = 0; i < keys; i++) {
            s->c[t][i] = mix_qkv(s, row[i]) * (s->reversed ? 1.0F : scale);
            s->b[t][i] = mix_qkv(s, row[keys + i]);
        }
        for (int32_t i = 0; i < inner; i++) {
            const int32_t h = i / c->head_dim;
            float th = c->slope_kind == HB_SLOPE_PARAM ? s->m->a[h] : -mix_slope(s->m, h);
            th = c->slope_kind == HB_SLOPE_TOKEN ? s->m->in[2][(from + t) * c->n_heads + h] : th;
            s->x[t][i] = mix_qkv(s, row[2 * keys + i]);
            s->dt[t][i] = 1.0F;
            for (int32_t j = 0; j < c->state_size; j++) {
                s->th[t][i * c->state_size + j] = th;
            }
        }
    }
}

static inline void mix_load_mamba1(struct mixer_sim *s, int32_t from, int32_t n) {
    const struct mixer *m = s->m;
    const struct hb_config *c = &m->config;
    const int32_t inner = c->n_heads * c->head_dim;
    mix_conv(s, n, m->in[1] + from * inner, inner, c->conv_act, &s->x[0][0]);
    for (int32_t t = 0; t < n; t++) {
        const float *row = m->in[2] + (from + t) * m->size.width[2];
        memcpy(s->b[t], row + inner, (size_t)c->state_size * sizeof(float));
        memcpy(s->c[t], row + inner + c->state_size, (size_t)c->state_size * sizeof(float));
        for (int32_t i = 0; i < inner; i++) {
            float a = row[i] + (m->params.dt_bias ? m->dt_bias[i] : 0.0F);
            if (c->dt_softplus && a <= 20.0F) {
                a = s->naive_softplus ? logf(1.0F + expf(a)) : log1pf(expf(a));
            }
            s->x[t][i] = mix_act(s, s->x[t][i]);
            s->dt[t][i] = a;
            for (int32_t j = 0; j < c->state_size; j++) {
                s->th[t][i * c->state_size + j] = a * m->a[i * c->state_size + j];
            }
        }
    }
}

/* Group of a row of the state, as an offset into b and c. */
static inline int32_t mix_keys(const struct mixer *m, int32_t i) {
    return m->kind == HB_LAYER_MAMBA1
               ? 0
               : mix_group(&m->config, i / m->config.head_dim) * m->config.state_size;
}

static inline void mix_recurrence(struct mixer_sim *s, int32_t n, int32_t i) {
    const int32_t size = s->m->config.state_size, at = mix_keys(s->m, i);
    for (int32_t t = 0; t < n; t++) {
        float y = 0.0F;
        for (int32_t j = 0; j < size; j++) {
            const int32_t k = s->reversed ? size - 1 - j : j;
            float *h = &s->ssm[i * size + k];
            const float b = s->b[t][at + k], dt = s->dt[t][i], x = s->x[t][i];
            *h = expf(s->th[t][i * size + k]) * *h + (s->reversed ? dt * b * x : dt * x * b);
            y += s->c[t][at + k] * *h;
        }
        s->y[t][i] = y;
    }
}

/* Sums of the log decays of one element, in the order that the profile declares. */
static inline void mix_cumsum(int32_t kind, int32_t len, float *sum) {
    float next[MIX_CHUNK] = {0};
    for (int32_t i = 1; i < len && kind == HB_CS_SEQUENTIAL; i++) {
        sum[i] += sum[i - 1];
    }
    for (int32_t gap = 1; gap < len && kind == HB_CS_TREE; gap *= 2) {
        for (int32_t i = 0; i < len; i++) {
            next[i] = i >= gap ? sum[i] + sum[i - gap] : sum[i];
        }
        memcpy(sum, next, (size_t)len * sizeof *sum);
    }
    for (int32_t i = len - 1; i >= 0 && kind == HB_CS_ANY; i--) {
        for (int32_t j = i - 1; j >= 0; j--) {
            sum[i] += sum[j];
        }
    }
}

/* exp of the decay from after token j of the chunk to token i: from sums, or of a constant slope by
 * its distance. */
static inline float mix_gap(const struct mixer_sim *s, const float *sum, int32_t i, int32_t j,
                            float slope) {
    if (s->direct) {
        return expf(slope * (float)(i - j));
    }
    return expf(fminf(sum[i] - (j >= 0 ? sum[j] : 0.0F), 0.0F));
}

/* One chunk of one element: what it adds to the outputs y [len], and its new state. */
static inline void mix_element(struct mixer_sim *s, int32_t t0, int32_t len, int32_t i, int32_t k,
                               float *y) {
    const int32_t size = s->m->config.state_size, at = mix_keys(s->m, i) + k;
    float sum[MIX_CHUNK] = {0};
    const float slope = s->th[t0][i * size + k];
    for (int32_t t = 0; t < len; t++) {
        sum[t] = s->th[t0 + t][i * size + k];
    }
    mix_cumsum(s->sums, len, sum);
    const float h = s->ssm[i * size + k];
    float last = 0.0F;
    for (int32_t t = 0; t < len; t++) {
        for (int32_t j = 0; j <= t; j++) {
            const float w = s->c[t0 + t][at] * s->b[t0 + j][at] * mix_gap(s, sum, t, j, slope);
            y[t] += mix_op(s, w * s->dt[t0 + j][i]) * s->x[t0 + j][i];
        }
        y[t] += s->c[t0 + t][at] * mix_op(s, h) * mix_gap(s, sum, t, -1, slope);
    }
    for (int32_t j = 0; j < len; j++) {
        const float w = mix_gap(s, sum, len - 1, j, slope) * s->dt[t0 + j][i];
        last += mix_op(s, s->b[t0 + j][at] * w) * s->x[t0 + j][i];
    }
    s->ssm[i * size + k] = mix_gap(s, sum, len - 1, -1, slope) * h + last;
}

static inline void mix_chunks(struct mixer_sim *s, int32_t n, int32_t i) {
    const int32_t q = s->m->config.chunk_size;
    for (int32_t t0 = 0; t0 < n; t0 += q) {
        const int32_t len = n - t0 < q ? n - t0 : q;
        float y[MIX_CHUNK] = {0};
        for (int32_t k = 0; k < s->m->config.state_size; k++) {
            mix_element(s, t0, len, i, k, y);
        }
        for (int32_t t = 0; t < len; t++) {
            s->y[t0 + t][i] = y[t];
        }
    }
}

static inline float mix_gate(const struct hb_config *c, float z) {
    return c->out_gate == HB_OUT_SIGMOID ? 1.0F / (1.0F + expf(-z)) : mix_silu(z);
}

static inline void mix_norm(struct mixer_sim *s, int32_t from, int32_t t) {
    const struct mixer *m = s->m;
    const struct hb_config *c = &m->config;
    const int32_t inner = c->n_heads * c->head_dim, g = c->gate_norm;
    const float *z = m->in[0] + (from + t) * inner;
    float v[MIX_INNER] = {0};
    for (int32_t i = 0; i < inner; i++) {
        const float y = mix_act(s, s->y[t][i]);
        v[i] = g == HB_GATE_NORM_AFTER || g == HB_GATE_ONLY ? y * mix_gate(c, z[i]) : y;
    }
    for (int32_t i = 0; i < inner; i++) {
        float o = v[i];
        if (g != HB_GATE_ONLY && g != HB_GATE_NORM_NONE) {
            const int32_t first = i - i % c->norm_group;
            float sum = 0.0F;
            for (int32_t k = first; k < first + c->norm_group; k++) {
                sum += v[k] * v[k];
            }
            o *= 1.0F / sqrtf(sum / (float)c->norm_group + c->norm_eps) * m->norm_weight[i];
        }
        o = g == HB_GATE_NORM_BEFORE ? o * mix_gate(c, z[i]) : o;
        s->out[t * inner + i] = mix_act(s, o);
    }
}

static inline void mix_short_conv(struct mixer_sim *s, int32_t from, int32_t n) {
    const struct mixer *m = s->m;
    const int32_t inner = m->config.n_heads * m->config.head_dim;
    const float *row = m->in[1] + from * 3 * inner;
    float *product = &s->b[0][0]; /* room for [MIX_LEN, MIX_INNER] */
    for (int32_t t = 0; t < n; t++) {
        for (int32_t i = 0; i < inner; i++) {
            product[t * MIX_INNER + i] =
                mix_act(s, row[t * 3 * inner + i] * row[t * 3 * inner + 2 * inner + i]);
        }
    }
    mix_conv(s, n, product, MIX_INNER, HB_CONV_NONE, &s->y[0][0]);
    for (int32_t t = 0; t < n; t++) {
        for (int32_t i = 0; i < inner; i++) {
            const float y = s->rounds ? mix_act(s, s->y[t][i]) : s->y[t][i];
            s->out[t * inner + i] = mix_act(s, row[t * 3 * inner + inner + i] * y);
        }
    }
}

/* Tokens from..from+n-1 in one call; out [n, inner] starts at 0. */
static inline void mix_call(struct mixer_sim *s, int32_t path, int32_t from, int32_t n) {
    const struct hb_config *c = &s->m->config;
    const int32_t inner = c->n_heads * c->head_dim;
    const float after = c->qk_scale != 0.0F ? c->qk_scale : 1.0F / sqrtf((float)c->state_size);
    if (s->m->kind == HB_LAYER_SHORT_CONV) {
        mix_short_conv(s, from, n);
        return;
    }
    if (s->m->kind == HB_LAYER_MAMBA1) {
        mix_load_mamba1(s, from, n);
    } else {
        mix_load_lightning(s, from, n);
    }
    for (int32_t i = 0; i < inner; i++) {
        if (s->chunked && path == HB_PATH_PREFILL) {
            mix_chunks(s, n, i);
        } else {
            mix_recurrence(s, n, i);
        }
        for (int32_t t = 0; t < n; t++) {
            s->y[t][i] *= s->m->kind == HB_LAYER_LIGHTNING && s->reversed ? after : 1.0F;
            s->y[t][i] += s->m->params.d ? s->m->d[i] * s->x[t][i] : 0.0F;
        }
    }
    for (int32_t t = 0; t < n; t++) {
        mix_norm(s, from, t);
    }
    for (int32_t i = 0; i < s->m->size.n_state && c->state_dtype == HB_BF16; i++) {
        s->ssm[i] = round_bf16(s->ssm[i]);
    }
}

#endif
