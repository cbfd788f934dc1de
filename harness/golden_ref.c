/* SPDX-License-Identifier: Apache-2.0
 * Result O of the golden check: the mixer of ops-mamba2.md sections 1 to 3 in float64, token by
 * token, on float64 layer inputs. Written from the definition and kept apart from the oracle, whose
 * inputs are the rounded values. The recurrences of the other kinds: golden_ref_delta.c. */
#include <math.h>
#include <string.h>

#include "harness/golden_internal.h"

static double silu(double x) {
    return x / (1.0 + exp(-x));
}

double hb_golden_ref_input(const struct hb_golden_problem *p, int32_t seq, int32_t pos, int32_t c) {
    const int32_t w = p->config.conv_width - 1;
    if (pos >= 0) {
        return p->xbc[((int64_t)p->first[seq] + pos) * p->dim + c];
    }
    if (p->init_conv == NULL || pos < -w) {
        return 0.0;
    }
    return (double)p->init_conv[((int64_t)seq * p->channels + c) * w + w + pos];
}

static double conv(const struct hb_golden_problem *p, int32_t seq, int32_t t, int32_t c) {
    const int32_t k = p->config.conv_width;
    double acc = p->params.conv_bias != NULL ? (double)p->params.conv_bias[c] : 0.0;
    for (int32_t j = 0; j < k; j++) {
        acc += (double)p->params.conv_weight[(int64_t)c * k + j] *
               hb_golden_ref_input(p, seq, t - (k - 1) + j, c);
    }
    return p->config.conv_act == HB_CONV_SILU ? silu(acc) : acc;
}

double hb_golden_ref_softplus(double x) {
    return x <= 20.0 ? fmax(x, 0.0) + log1p(exp(-fabs(x))) : x;
}

/* Section 2.1. */
static double step_size(const struct hb_golden_problem *p, int64_t token, int32_t head,
                        int32_t path) {
    const int32_t clamp =
        path == HB_PATH_DECODE ? p->config.dt_clamp_decode : p->config.dt_clamp_prefill;
    double a = p->dt[token * p->config.n_heads + head];
    a += p->params.dt_bias != NULL ? (double)p->params.dt_bias[head] : 0.0;
    double dt = p->config.dt_softplus ? hb_golden_ref_softplus(a) : a;
    if (clamp != HB_DT_CLAMP_NONE) {
        dt = fmax(dt, p->dt_lo);
    }
    return clamp == HB_DT_CLAMP_LIMIT ? fmin(dt, p->dt_hi) : dt;
}

/* Section 3 for one head; c is the token's conv output. */
static void scan_head(const struct hb_golden_problem *p, int32_t head, double dt, const double *c,
                      double *h, double *y) {
    const int32_t n_state = p->config.state_size;
    const int32_t group = p->config.head_map == HB_HEADS_TILE
                              ? head % p->config.n_groups
                              : head / (p->config.n_heads / p->config.n_groups);
    const double *b_in = c + p->d_inner + (int64_t)group * n_state;
    const double *c_in = b_in + (int64_t)p->config.n_groups * n_state;
    const double decay = exp(dt * p->a[head]);
    const double skip = p->params.d != NULL ? (double)p->params.d[head] : 0.0;
    for (int32_t i = 0; i < p->config.head_dim; i++) {
        const int32_t channel = head * p->config.head_dim + i;
        double *row = h + (int64_t)channel * n_state;
        double sum = 0.0;
        for (int32_t n = 0; n < n_state; n++) {
            row[n] = decay * row[n] + dt * b_in[n] * c[channel];
            sum += c_in[n] * row[n];
        }
        y[channel] = sum + skip * c[channel];
    }
}

static double out_gate(const struct hb_golden_problem *p, double z) {
    return p->config.out_gate == HB_OUT_SIGMOID ? 1.0 / (1.0 + exp(-z)) : silu(z);
}

/* Section 2.2: out holds y and becomes the result. */
static void gate_and_norm(const struct hb_golden_problem *p, const double *z, double *out) {
    const int32_t kind = p->config.gate_norm;
    const int gate_first = kind == HB_GATE_NORM_AFTER || kind == HB_GATE_ONLY;
    const int has_norm =
        kind == HB_GATE_NORM_AFTER || kind == HB_GATE_NORM_BEFORE || kind == HB_NORM_ONLY;
    const int32_t size = has_norm ? p->config.norm_group : p->d_inner;
    for (int32_t first = 0; first < p->d_inner; first += size) {
        double square = 0.0;
        for (int32_t i = first; i < first + size; i++) {
            out[i] *= gate_first ? out_gate(p, z[i]) : 1.0;
            square += out[i] * out[i];
        }
        const double scale = has_norm ? 1.0 / sqrt(square / size + p->eps) : 1.0;
        for (int32_t i = first; i < first + size; i++) {
            out[i] *= has_norm ? scale * (double)p->params.norm_weight[i] : 1.0;
            out[i] *= kind == HB_GATE_NORM_BEFORE ? out_gate(p, z[i]) : 1.0;
        }
    }
}

void hb_golden_ref_token(const struct hb_golden_problem *p, int32_t seq, int32_t t, int32_t path,
                         double *h, double *scratch, double *out) {
    const int64_t token = (int64_t)p->first[seq] + t;
    for (int32_t c = 0; c < p->dim; c++) {
        scratch[c] = p->channels > 0 ? conv(p, seq, t, c) : hb_golden_ref_input(p, seq, t, c);
    }
    for (int32_t head = 0; head < p->config.n_heads; head++) {
        if (p->config.layer_kind[0] == HB_LAYER_MAMBA2) {
            scan_head(p, head, step_size(p, token, head, path), scratch, h, out);
        } else {
            hb_golden_ref_delta(p, token, head, scratch, h, out);
        }
    }
    gate_and_norm(p, p->z + token * p->d_inner, out);
}
