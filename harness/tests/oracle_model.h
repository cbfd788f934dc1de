/* SPDX-License-Identifier: Apache-2.0
 * Random small mixers for the tests of the oracle: configuration, parameters and inputs of one
 * request. Values are representable in bf16, as those of a case are. Included by test programs
 * only. */
#ifndef HB_HARNESS_TESTS_ORACLE_MODEL_H
#define HB_HARNESS_TESTS_ORACLE_MODEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "harness/oracle/oracle.h"

enum { MAX_INNER = 64, MAX_DIM = 192, MAX_HEADS = 4, MAX_STATE = 1024, MAX_LEN = 48 };

/* ordinary: of either sign, around one; same sign: nothing cancels, so that a bound is a statement
 * about rounding. */
enum value_class {
    CLASS_SAME_SIGN,
    CLASS_ORDINARY,
    CLASS_LARGE_DT,
    CLASS_TINY_DT,
    CLASS_CANCEL,
    CLASS_WIDE,
    CLASS_ZEROS,
    N_CLASSES
};

struct model {
    struct hb_config config;
    struct hb_layer_params params;
    int32_t inner, dim, n_state, window;
    int32_t value_class;
    float conv_weight[MAX_DIM * 4], conv_bias[MAX_DIM];
    float a[MAX_HEADS], dt_bias[MAX_HEADS], d[MAX_HEADS], norm_weight[MAX_INNER];
    float z[MAX_LEN * MAX_INNER], xbc[MAX_LEN * MAX_DIM], dt[MAX_LEN * MAX_HEADS];
    float conv0[MAX_DIM * 3], ssm0[MAX_STATE];
};

static uint64_t model_seed = 1;

static inline uint32_t draw_bits(void) {
    model_seed = model_seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(model_seed >> 33);
}

static inline int32_t draw_int(int32_t lo, int32_t hi) {
    return lo + (int32_t)(draw_bits() % (uint32_t)(hi - lo + 1));
}

/* Round to nearest even to 8 significand bits; the test's own, for values that do not overflow. */
static inline float round_bf16(float x) {
    uint32_t b;
    memcpy(&b, &x, sizeof(b));
    b += UINT32_C(0x7fff) + ((b >> 16) & 1U);
    b &= UINT32_C(0xffff0000);
    memcpy(&x, &b, sizeof(x));
    return x;
}

static inline float draw_uniform(float lo, float hi) {
    return round_bf16(lo + (hi - lo) * (float)draw_bits() * 0x1p-31F);
}

/* One activation of the class; i is its place in the tensor. */
static inline float draw_value(const struct model *m, int32_t i) {
    switch (m->value_class) {
    case CLASS_SAME_SIGN:
        return draw_uniform(0.5F, 1.5F);
    case CLASS_CANCEL: /* neighbours of opposite sign and nearly equal size */
        return (i % 2 ? -1.0F : 1.0F) * draw_uniform(0.96F, 1.0F);
    case CLASS_WIDE:
        return ldexpf(draw_uniform(-2.0F, 2.0F), draw_int(-20, 20));
    case CLASS_ZEROS:
        return draw_int(0, 2) ? 0.0F : draw_uniform(-2.0F, 2.0F);
    default:
        return draw_uniform(-1.0F, 1.0F);
    }
}

static inline void fill_uniform(float *p, int32_t n, float lo, float hi) {
    for (int32_t i = 0; i < n; i++) {
        p[i] = draw_uniform(lo, hi);
    }
}

static inline void draw_gates(struct model *m) {
    static const float dt_range[N_CLASSES][2] = {{-1.0F, 1.0F},   {-2.0F, 2.0F}, {-1.0F, 40.0F},
                                                 {-14.0F, -8.0F}, {-4.0F, 0.0F}, {-8.0F, 8.0F},
                                                 {-2.0F, 2.0F}};
    const int32_t c = m->value_class;
    fill_uniform(m->dt, MAX_LEN * MAX_HEADS, dt_range[c][0], dt_range[c][1]);
    fill_uniform(m->a, MAX_HEADS, c == CLASS_CANCEL ? -0.01F : -1.5F,
                 c == CLASS_CANCEL ? -0.001F : -0.1F);
    fill_uniform(m->dt_bias, MAX_HEADS, -1.0F, 1.0F);
    for (int32_t h = 0; h < MAX_HEADS;
         h++) { /* fp32 numbers that are not bf16 numbers, as in checkpoints */
        m->a[h] *= 1.0F + 0x1.1p-11F;
        m->dt_bias[h] *= 1.0F + 0x1.3p-10F;
        m->a[h] *= c == CLASS_LARGE_DT && draw_int(0, 1) ? 20.0F : 1.0F;
    }
    for (int32_t i = 0; i < MAX_LEN * MAX_HEADS && !m->config.dt_softplus; i++) {
        m->dt[i] = fabsf(m->dt[i]) + 1.0F; /* more than any bias: a step is not negative */
    }
}

static inline void draw_sizes(struct hb_config *c) {
    static const int32_t heads_of[4][2] = {{1, 1}, {2, 1}, {4, 2}, {4, 4}};
    const int32_t kind = draw_int(0, 3);
    c->n_heads = heads_of[kind][0];
    c->n_groups = heads_of[kind][1];
    c->head_dim = draw_int(1, 8);
    c->state_size = draw_int(1, 16);
    c->conv_width = draw_int(2, 4);
    c->chunk_size = 4 << draw_int(0, 2);
    c->norm_group = c->head_dim * (draw_int(0, 1) ? c->n_heads : 1);
    c->norm_eps = 1e-5F;
    c->dt_lo = 0.0F;
    c->dt_hi = INFINITY;
}

static inline void point_params(struct model *m, int32_t all) {
    const int32_t bits = all ? 7 : draw_int(0, 7);
    m->params.conv_weight = m->conv_weight;
    m->params.conv_bias = bits & 1 ? m->conv_bias : NULL;
    m->params.a = m->a;
    m->params.dt_bias = bits & 2 ? m->dt_bias : NULL;
    m->params.d = bits & 4 ? m->d : NULL;
    m->params.norm_weight = m->norm_weight;
}

/* A mixer with random sizes, parameters and inputs. plain: silu, norm after the gate, softplus, no
 * clamp, all parameters present; otherwise the variants are random too. */
static inline void draw_model(struct model *m, int32_t value_class, int32_t plain) {
    memset(m, 0, sizeof(*m));
    struct hb_config *c = &m->config;
    m->value_class = value_class;
    draw_sizes(c);
    c->conv_act = plain ? HB_CONV_SILU : draw_int(0, HB_N_CONV_ACTS - 1);
    c->gate_norm = plain ? HB_GATE_NORM_AFTER : draw_int(0, HB_N_GATE_NORMS - 1);
    c->dt_softplus = plain || draw_int(0, 3);
    c->dt_clamp_prefill = plain ? HB_DT_CLAMP_NONE : draw_int(0, HB_N_DT_CLAMPS - 1);
    c->dt_clamp_decode = plain ? HB_DT_CLAMP_NONE : draw_int(0, HB_N_DT_CLAMPS - 1);
    if (!plain && draw_int(0, 1)) {
        c->dt_lo = 0.05F;
        c->dt_hi = 1.3F;
    }
    m->inner = c->n_heads * c->head_dim;
    m->dim = m->inner + 2 * c->n_groups * c->state_size;
    m->n_state = m->inner * c->state_size;
    m->window = c->conv_width - 1;
    fill_uniform(m->conv_weight, m->dim * c->conv_width, -1.0F, 1.0F);
    fill_uniform(m->conv_bias, m->dim, -0.5F, 0.5F);
    fill_uniform(m->d, MAX_HEADS, -1.0F, 1.0F);
    fill_uniform(m->norm_weight, m->inner, -2.0F, 2.0F);
    for (int32_t i = 0; i < m->dim * c->conv_width && value_class == CLASS_SAME_SIGN; i++) {
        m->conv_weight[i] = fabsf(m->conv_weight[i]);
    }
    for (int32_t i = 0; i < m->dim && value_class == CLASS_SAME_SIGN; i++) {
        m->conv_bias[i] = fabsf(m->conv_bias[i]);
        m->d[i % MAX_HEADS] = fabsf(m->d[i % MAX_HEADS]);
    }
    draw_gates(m);
    for (int32_t i = 0; i < MAX_LEN * m->dim; i++) {
        m->xbc[i] = draw_value(m, i / m->dim);
    }
    for (int32_t i = 0; i < MAX_LEN * m->inner; i++) {
        m->z[i] = draw_value(m, i);
    }
    for (int32_t i = 0; i < m->dim * m->window; i++) {
        m->conv0[i] = draw_value(m, i);
    }
    for (int32_t i = 0; i < m->n_state; i++) {
        m->ssm0[i] = draw_value(m, i);
    }
    point_params(m, plain);
}

/* A copy whose parameters are its own. */
static inline void copy_model(struct model *dst, const struct model *src) {
    *dst = *src;
    dst->params.conv_weight = dst->conv_weight;
    dst->params.conv_bias = src->params.conv_bias ? dst->conv_bias : NULL;
    dst->params.a = dst->a;
    dst->params.dt_bias = src->params.dt_bias ? dst->dt_bias : NULL;
    dst->params.d = src->params.d ? dst->d : NULL;
    dst->params.norm_weight = dst->norm_weight;
}

static inline struct hb_profile plain_profile(void) {
    const struct hb_profile p = {.io_floor = 0x1p-126,
                                 .u_acc = 0x1p-24,
                                 .e_exp = 0x1p-23,
                                 .sp_rel = 0x1p-22,
                                 .restart = 1,
                                 .norm_roundings = 1};
    return p;
}

#endif
