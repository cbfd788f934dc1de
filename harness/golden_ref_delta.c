/* SPDX-License-Identifier: Apache-2.0
 * Result O of the golden check for the delta rule and for scalar decay: ops-delta.md sections 1.2,
 * 2, 3 and 5 in float64, one head and token at a time. Kept apart from the oracle, as golden_ref.c. */
#include <math.h>

#include "harness/golden_internal.h"

static double sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

/* ---- log decays ---- */

/* ALiBi: the list of the next lower power of two, then every other entry of that of twice it. */
static double alibi(int32_t head, int32_t heads) {
    int32_t power = 1;
    while (2 * power <= heads) {
        power *= 2;
    }
    return head < power ? exp2(-8.0 * (head + 1) / power)
                        : exp2(-4.0 * (2 * (head - power) + 1) / power);
}

static double layer_factor(const struct hb_config *c, double layer) {
    const double last = c->n_layers - 1;
    const double factor[HB_N_LAYER_FACTORS] = {
        [HB_FACTOR_NONE] = 1.0,
        [HB_FACTOR_MINIMAX] = 1.0 - layer / (last + 1e-5) + 1e-5,
        [HB_FACTOR_LING] = 1.0 - (last > 0 ? layer / last : 0.0) + 1e-5,
        [HB_FACTOR_LING_OFF] = 1.0 - (last > 0 ? (layer - 1) / last : 0.0) + 1e-5};
    return factor[c->layer_factor];
}

double hb_golden_ref_slope(const struct hb_golden_problem *p, int32_t head) {
    const struct hb_config *c = &p->config;
    if (c->slope_kind == HB_SLOPE_FLA) {
        return 8.0 / c->n_heads * (1.0 - (double)p->layer / c->n_layers) * head;
    }
    const double base = c->slope_kind == HB_SLOPE_ALIBI ? alibi(head, c->n_heads)
                                                        : exp2(-8.0 * (head + 1) / c->n_heads);
    return base * layer_factor(c, p->layer);
}

/* Log decay of key channel n: a is in[2] of the token; one a for the head, or one for each channel.
 * params.a of lightning are log decays themselves. */
static double log_decay(const struct hb_golden_problem *p, const double *a, int32_t head,
                        int32_t n) {
    const struct hb_config *c = &p->config;
    const int32_t kind = c->layer_kind[0];
    if (kind == HB_LAYER_LIGHTNING && c->slope_kind == HB_SLOPE_TOKEN) {
        return a[head];
    }
    if (kind == HB_LAYER_LIGHTNING) {
        return c->slope_kind == HB_SLOPE_PARAM ? (double)p->params.a[head]
                                               : -hb_golden_ref_slope(p, head);
    }
    const int32_t at = kind == HB_LAYER_KDA ? head * c->state_size + n : head;
    const double x = a[at] + (p->params.dt_bias != NULL ? (double)p->params.dt_bias[at] : 0.0);
    if (c->gate_form == HB_GATE_LOWER_BOUND) {
        return (double)c->gate_bound * sigmoid(-p->a[head] * x);
    }
    return p->a[head] * (c->dt_softplus ? hb_golden_ref_softplus(x) : x);
}

/* ---- inputs of the recurrence ---- */

static double write_strength(const struct hb_golden_problem *p, const double *gates, int32_t head) {
    const struct hb_config *c = &p->config;
    const int32_t decays =
        c->layer_kind[0] == HB_LAYER_KDA ? c->n_heads * c->state_size : c->n_heads;
    const double b = gates[decays + head];
    const double beta[HB_N_BETA_FORMS] = {sigmoid(b), 2.0 * sigmoid(b), b};
    return beta[c->beta_form];
}

static void load_vector(const struct hb_golden_problem *p, const double *from, double factor,
                        double *to) {
    const struct hb_config *c = &p->config;
    double square = 0.0;
    for (int32_t n = 0; n < c->state_size; n++) {
        square += from[n] * from[n];
    }
    const double size[HB_N_L2NORMS] = {sqrt(square + 1e-6), fmax(sqrt(square), 1e-6), 1.0};
    for (int32_t n = 0; n < c->state_size; n++) {
        const int is_silu =
            c->layer_kind[0] == HB_LAYER_LIGHTNING && c->qkv_act == HB_QKV_SILU;
        const double x = is_silu ? from[n] * sigmoid(from[n]) : from[n];
        const double divisor = c->layer_kind[0] == HB_LAYER_LIGHTNING ? 1.0 : size[c->l2norm];
        to[n] = x / divisor * factor;
    }
}

/* ---- the recurrence ---- */

/* One row [N] of the state: decay, what k predicts, the write, what q reads. */
static double advance_row(const struct hb_golden_problem *p, const double *decay, const double *k,
                          const double *q, double v, double beta, double *row) {
    const int32_t size = p->config.state_size;
    const int has_delta = p->config.layer_kind[0] != HB_LAYER_LIGHTNING;
    double seen = 0.0;
    double y = 0.0;
    for (int32_t n = 0; n < size; n++) {
        row[n] *= decay[n];
        seen += row[n] * k[n];
    }
    const double d = has_delta ? beta * (v - seen) : v;
    for (int32_t n = 0; n < size; n++) {
        row[n] += k[n] * d;
        y += row[n] * q[n];
    }
    return y;
}

void hb_golden_ref_delta(const struct hb_golden_problem *p, int64_t token, int32_t head,
                         const double *c, double *h, double *y) {
    const struct hb_config *f = &p->config;
    const int32_t size = f->state_size;
    const int32_t keys = f->n_groups * size;
    const int32_t group = f->head_map == HB_HEADS_TILE ? head % f->n_groups
                                                       : head / (f->n_heads / f->n_groups);
    const int is_lightning = f->layer_kind[0] == HB_LAYER_LIGHTNING;
    const double *gates = p->dt + token * p->gates;
    double q[HB_MAX_STATE_SIZE];
    double k[HB_MAX_STATE_SIZE];
    double decay[HB_MAX_STATE_SIZE];
    load_vector(p, c + group * size, p->scale, q);
    load_vector(p, c + keys + group * size, 1.0, k);
    for (int32_t n = 0; n < size; n++) {
        decay[n] = exp(log_decay(p, gates, head, n));
    }
    const double beta = is_lightning ? 1.0 : write_strength(p, gates, head);
    for (int32_t i = head * f->head_dim; i < (head + 1) * f->head_dim; i++) {
        const int is_silu = is_lightning && f->qkv_act == HB_QKV_SILU;
        const double v = c[2 * keys + i];
        y[i] = advance_row(p, decay, k, q, is_silu ? v * sigmoid(v) : v, beta,
                           h + (int64_t)i * size);
    }
}
