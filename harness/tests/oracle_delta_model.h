/* SPDX-License-Identifier: Apache-2.0
 * Random small GDN and KDA layers for the tests of the oracle: configuration, parameters and inputs
 * of one request. Included by test programs only. */
#ifndef HB_HARNESS_TESTS_ORACLE_DELTA_MODEL_H
#define HB_HARNESS_TESTS_ORACLE_DELTA_MODEL_H

#include "harness/tests/oracle_model.h"

enum { MAX_GATES = MAX_HEADS * 17, DELTA_LEN = 48 };

/* Same keys: one key over and over, with little decay. Opposed keys: the same with the sign in
 * turn. Small norms: around the epsilon of the norm. */
enum delta_class {
    DELTA_ORDINARY,
    DELTA_LARGE_DECAY,
    DELTA_TINY_DECAY,
    DELTA_SAME_KEYS,
    DELTA_OPPOSED_KEYS,
    DELTA_SMALL_NORMS,
    DELTA_WIDE,
    DELTA_ZEROS,
    N_DELTA_CLASSES
};

struct delta_model {
    struct hb_config config;
    struct hb_layer_params params;
    int32_t is_kda, inner, dim, gates, n_state, window, value_class;
    float conv_weight[MAX_DIM * 4], conv_bias[MAX_DIM];
    float a[MAX_HEADS], dt_bias[MAX_GATES], norm_weight[MAX_INNER];
    float z[DELTA_LEN * MAX_INNER], qkv[DELTA_LEN * MAX_DIM], ab[DELTA_LEN * MAX_GATES];
    float conv0[MAX_DIM * 4], ssm0[MAX_STATE];
};

static inline void delta_sizes(struct delta_model *m) {
    const struct hb_config *c = &m->config;
    m->inner = c->n_heads * c->head_dim;
    m->dim = m->inner + 2 * c->n_groups * c->state_size;
    m->gates = c->n_heads * (m->is_kda ? c->state_size + 1 : 2);
    m->n_state = m->inner * c->state_size;
    m->window = c->conv_width - (c->conv_state_len == HB_CONV_STATE_FULL ? 0 : 1);
}

static inline void delta_variants(struct delta_model *m, int32_t plain) {
    struct hb_config *c = &m->config;
    c->dt_softplus = 1;
    c->gate_norm = HB_GATE_NORM_BEFORE;
    c->norm_group = c->head_dim;
    c->gate_bound = -5.0F;
    if (plain) {
        return;
    }
    c->conv_act = draw_int(0, HB_N_CONV_ACTS - 1);
    c->gate_norm = draw_int(0, HB_N_GATE_NORMS - 1);
    c->dt_softplus = draw_int(0, 3) != 0;
    c->head_map = draw_int(0, HB_N_HEAD_MAPS - 1);
    c->l2norm = draw_int(0, 2) ? draw_int(0, 1) : HB_L2_OFF;
    c->beta_form = draw_int(0, HB_N_BETA_FORMS - 1);
    c->gate_form = draw_int(0, HB_N_GATE_FORMS - 1);
    c->out_gate = draw_int(0, HB_N_OUT_GATES - 1);
    c->conv_state_len = draw_int(0, HB_N_CONV_STATE_LENS - 1);
    c->qk_scale = draw_int(0, 1) ? 0.0F : 0.3F;
}

static inline float delta_value(const struct delta_model *m, int32_t i) {
    struct model as = {.value_class = CLASS_ORDINARY};
    switch (m->value_class) {
    case DELTA_WIDE:
        as.value_class = CLASS_WIDE;
        break;
    case DELTA_ZEROS:
        as.value_class = CLASS_ZEROS;
        break;
    default:
        break;
    }
    return draw_value(&as, i);
}

/* Range of the raw gates: what softplus makes of them is the decay. */
static inline void delta_gates(struct delta_model *m) {
    static const float range[N_DELTA_CLASSES][2] = {
        {-2.0F, 2.0F},  {-1.0F, 30.0F}, {-14.0F, -8.0F}, {-10.0F, -5.0F},
        {-8.0F, -4.0F}, {-3.0F, 1.0F},  {-8.0F, 8.0F},   {-2.0F, 2.0F}};
    const int32_t decays = m->gates - m->config.n_heads;
    for (int32_t t = 0; t < DELTA_LEN; t++) {
        float *g = m->ab + t * m->gates;
        fill_uniform(g, decays, range[m->value_class][0], range[m->value_class][1]);
        for (int32_t i = 0; i < decays && !m->config.dt_softplus; i++) {
            g[i] = fabsf(g[i]) * 0.25F + 1.0F; /* a decay, no growth, whatever the bias */
        }
        fill_uniform(g + decays, m->config.n_heads, -3.0F, 3.0F);
        for (int32_t h = 0; h < m->config.n_heads && m->config.beta_form == HB_BETA_RAW; h++) {
            g[decays + h] = draw_uniform(0.0F, 1.0F);
        }
    }
    fill_uniform(m->dt_bias, MAX_GATES, -1.0F, 1.0F);
    fill_uniform(m->a, MAX_HEADS, -1.5F, -0.1F);
    for (int32_t h = 0; h < MAX_HEADS; h++) {
        m->a[h] *= 1.0F + 0x1.1p-11F;
        m->dt_bias[h] *= 1.0F + 0x1.3p-10F;
    }
}

/* q, k and v before the convolution. Unnormalised keys are kept near the unit ball. */
static inline void delta_inputs(struct delta_model *m) {
    const int32_t qk = 2 * m->config.n_groups * m->config.state_size;
    const float shrink = m->config.l2norm == HB_L2_OFF ? 1.0F / 16.0F : 1.0F;
    for (int32_t i = 0; i < DELTA_LEN * m->dim; i++) {
        const int32_t c = i % m->dim, t = i / m->dim;
        m->qkv[i] = delta_value(m, i) * (c < qk ? shrink : 1.0F);
        const int same = m->value_class == DELTA_SAME_KEYS || m->value_class == DELTA_OPPOSED_KEYS;
        if (same && t > 0 && c < qk) {
            m->qkv[i] = m->qkv[i - m->dim] * (m->value_class == DELTA_SAME_KEYS ? 1.0F : -1.0F);
        }
        if (m->value_class == DELTA_SMALL_NORMS && c < qk) {
            m->qkv[i] = ldexpf(m->qkv[i], draw_int(-24, -8));
        }
    }
}

static inline void draw_delta_model(struct delta_model *m, int32_t is_kda, int32_t value_class,
                                    int32_t plain) {
    memset(m, 0, sizeof(*m));
    struct hb_config *c = &m->config;
    draw_sizes(c);
    c->n_layers = 1;
    c->layer_kind[0] = is_kda ? HB_LAYER_KDA : HB_LAYER_GDN;
    m->is_kda = is_kda;
    m->value_class = value_class;
    delta_variants(m, plain);
    delta_sizes(m);
    const float spread = value_class == DELTA_SMALL_NORMS ? 0.05F : 1.0F;
    const int32_t has_bias = value_class != DELTA_SMALL_NORMS && draw_int(0, 1);
    fill_uniform(m->conv_weight, m->dim * c->conv_width, -1.0F, 1.0F);
    fill_uniform(m->conv_bias, m->dim, -0.5F, 0.5F);
    fill_uniform(m->norm_weight, m->inner, -2.0F, 2.0F);
    delta_gates(m);
    delta_inputs(m);
    for (int32_t i = 0; i < DELTA_LEN * m->inner; i++) {
        m->z[i] = delta_value(m, i);
    }
    for (int32_t i = 0; i < m->dim * m->window; i++) {
        m->conv0[i] = delta_value(m, i) * spread;
    }
    for (int32_t i = 0; i < m->n_state; i++) {
        m->ssm0[i] = delta_value(m, i) * spread;
    }
    m->params.conv_weight = m->conv_weight;
    m->params.conv_bias = has_bias ? m->conv_bias : NULL;
    m->params.a = m->a;
    m->params.dt_bias = plain || draw_int(0, 2) ? m->dt_bias : NULL;
    m->params.norm_weight = m->norm_weight;
}

/* A copy whose parameters are its own. */
static inline void copy_delta_model(struct delta_model *dst, const struct delta_model *src) {
    *dst = *src;
    dst->params.conv_weight = dst->conv_weight;
    dst->params.conv_bias = src->params.conv_bias ? dst->conv_bias : NULL;
    dst->params.a = dst->a;
    dst->params.dt_bias = src->params.dt_bias ? dst->dt_bias : NULL;
    dst->params.norm_weight = dst->norm_weight;
}

#endif
