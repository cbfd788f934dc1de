/* SPDX-License-Identifier: Apache-2.0
 * Identities of the specification on a backend: one request in a model of one layer, whose values a
 * test bends, a prompt and two decode steps; what went in, what came out, and what the oracle says
 * of it. Include after cmocka.h. */
#ifndef HB_HARNESS_TESTS_IDENTITY_RIG_H
#define HB_HARNESS_TESTS_IDENTITY_RIG_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/batch.h"
#include "harness/oracle/oracle.h"
#include "harness/run.h"
#include "harness/tests/hand_case.h"

enum {
    ID_PREFIX = 4,
    ID_PROMPT = 20,
    ID_TOKENS = ID_PREFIX + ID_PROMPT + 2,
    ID_WIDTH = 64,
    ID_STATE = 256
};

struct identity {
    struct hb_case c;
    /* After the values of the case; may be null. */
    void (*bend)(struct identity *x, const struct hb_value_key *key, int32_t n, float *out);
    int32_t arg;                             /* of bend */
    int32_t defect;                          /* planted */
    float in[3][ID_TOKENS][ID_WIDTH];        /* by position, as handed over */
    float init[ID_STATE], a[ID_STATE];       /* initial state [H, P, N]; parameter A */
    float out[ID_TOKENS][ID_WIDTH];          /* of the backend; as the next two by position */
    double want[ID_TOKENS][ID_WIDTH];        /* of the oracle */
    double bound[ID_TOKENS][ID_WIDTH];       /* how far they may lie apart */
    float state[ID_STATE];                   /* after the last token */
    double state_want[ID_STATE], state_bound[ID_STATE];
    int32_t first, n_tokens, width, n_state; /* first: position of the first new token */
    int32_t n_filled[3];                     /* calls for each input, with the prefix */
};

static inline void identity_fill(void *ctx, const struct hb_case *c, const struct hb_value_key *key,
                                 int32_t n, float *out) {
    struct identity *x = ctx;
    const int32_t base = x->c.config.attn_mask ? HB_TENSOR_Q : HB_TENSOR_Z;
    const int32_t which = key->tensor - base;
    hb_values_fill(c, key, n, out);
    if (x->bend) {
        x->bend(x, key, n, out);
    }
    if (which >= 0 && which < 3) {
        x->n_filled[which]++;
    }
    float *to = NULL;
    if (which >= 0 && which < 3 && key->position >= 0 && key->position < ID_TOKENS) {
        assert_in_range(n, 0, ID_WIDTH);
        to = x->in[which][key->position];
    } else if (key->tensor == HB_TENSOR_INIT_SSM || key->tensor == HB_TENSOR_A) {
        assert_in_range(n, 0, ID_STATE);
        to = key->tensor == HB_TENSOR_A ? x->a : x->init;
    }
    if (to) {
        memcpy(to, out, (size_t)n * sizeof *to);
    }
}

static inline void identity_see(void *ctx, int32_t kind, int32_t request, int32_t layer,
                                int64_t position, int32_t n, const float *got, const double *want,
                                const double *bound) {
    struct identity *x = ctx;
    (void)request, (void)layer;
    const size_t size = (size_t)n;
    if (kind == 0) { /* tokens come in their order, nodes of a draft by number */
        const int32_t at = x->first + x->n_tokens;
        assert_in_range(at, position, ID_TOKENS - 1);
        assert_in_range(n, 1, ID_WIDTH);
        memcpy(x->out[at], got, size * sizeof *got);
        memcpy(x->want[at], want, size * sizeof *want);
        memcpy(x->bound[at], bound, size * sizeof *bound);
        x->width = n;
        x->n_tokens++;
    } else if (kind == 2) {
        assert_in_range(n, 1, ID_STATE);
        memcpy(x->state, got, size * sizeof *got);
        memcpy(x->state_want, want, size * sizeof *want);
        memcpy(x->state_bound, bound, size * sizeof *bound);
        x->n_state = n;
    }
}

/* One layer of a mixer; four heads in two groups; every variant at its default. */
static inline void identity_case(struct identity *x, int32_t mixer, int32_t prefix) {
    memset(x, 0, sizeof *x);
    hb_case_init(&x->c);
    struct hb_case_config *g = &x->c.config;
    g->n_layers = 1;
    g->attn_mask = 0;
    g->mixer = mixer;
    g->heads = 4;
    g->groups = 2;
    g->head_dim = 3;
    g->state_size = 8;
    g->chunk_size = 8;
    g->seed = 11;
    g->norm_group = HB_NORM_HEAD;
    hand_take(&x->c, 0, prefix);
    x->first = prefix;
}

static inline void identity_steps(struct identity *x, int32_t prompt, int32_t decodes) {
    hand_row(hand_forward(&x->c, HB_MODE_EXTEND), 0, prompt);
    for (int32_t i = 0; i < decodes; i++) {
        hand_row(hand_forward(&x->c, HB_MODE_DECODE), 0, 1);
    }
}

/* The layer is its recurrence: a convolution that hands on the current token (identity_pass), no
 * activation, gate, norm, bias, skip or scale; steps, decays and beta as they are given. */
static inline void identity_core(struct identity *x) {
    struct hb_case_config *g = &x->c.config;
    g->conv_act = HB_CONV_NONE;
    g->conv_bias = 0;
    g->gate_norm = HB_GATE_NORM_NONE;
    g->qkv_act = HB_QKV_NONE;
    g->dt_softplus = 0;
    g->dt_bias = 0;
    g->dt_clamp = HB_CLAMP_NONE;
    g->skip_d = 1;
    g->qk_scale = 1; /* a factor of 1 */
    g->l2norm = HB_L2_OFF;
    g->beta_form = HB_BETA_RAW;
    g->gate_form = HB_GATE_STANDARD;
    g->slope_kind = HB_SLOPE_TOKEN;
    g->layer_factor = HB_FACTOR_NONE;
}

static inline void identity_pass(const struct identity *x, const struct hb_value_key *key,
                                 int32_t n, float *out) {
    const int32_t taps = x->c.config.conv_width;
    for (int32_t i = 0; i < n && key->tensor == HB_TENSOR_CONV_WEIGHT; i++) {
        out[i] = i % taps == taps - 1 ? 1.0F : 0.0F;
    }
}

/* Kernel form, activation and state type by the bits of k, 0..IDENTITY_FORMS - 1. */
enum { IDENTITY_FORMS = 8 };
static inline void identity_form(struct identity *x, int32_t k) {
    x->c.config.kernel_form = k & 1;
    x->c.config.act_dtype = k >> 1 & 1 ? HB_BF16 : HB_FP32;
    x->c.config.state_dtype = k >> 2 & 1 ? HB_BF16 : HB_FP32;
}

/* Runs it; nothing but the identity is judged, so that a wrong backend comes through. */
static inline void identity_run(struct identity *x, const struct hb_adapter *backend) {
    const struct hb_value_source values = {.ctx = x, .fill = identity_fill};
    const struct hb_observer observer = {.ctx = x, .see = identity_see};
    const struct hb_run_options o = {.tamper_element = -1,
                                     .values = &values,
                                     .observer = &observer,
                                     .defect = x->defect,
                                     .check_off = HB_OFF_NUMERIC | HB_OFF_STATE};
    struct hb_verdict v;
    hb_case_normalize(&x->c);
    x->n_tokens = 0;
    memset(x->n_filled, 0, sizeof x->n_filled);
    assert_int_equal(hb_run_case(backend, &x->c, &o, &v, NULL), 0);
    assert_string_equal(v.text, "");
    assert_int_equal(v.kind, HB_VERDICT_PASS);
    assert_true(x->n_tokens > 0);
}

static inline int identity_has_defects(void) {
    struct hb_caps caps = {.struct_size = sizeof caps};
    assert_int_equal(hb_adapter_emu()->describe(hb_adapter_emu()->ctx, &caps, NULL), HB_OK);
    return caps.has_defects;
}

static inline int32_t identity_group(const struct identity *x, int32_t head) {
    const struct hb_case_config *g = &x->c.config;
    return g->head_map == HB_HEADS_TILE ? head % g->groups : head / (g->heads / g->groups);
}

/* 1 if a value of the backend and the oracle's are not what an identity says. scale: of the terms
 * that were summed. */
static inline int64_t is_apart(double got, double want, double bound, double value, double scale) {
    const double exact = 1e-12 * (scale + fabs(value));
    return !(fabs(got - value) <= bound + exact) || !(fabs(want - value) <= exact);
}

/* Elements in which two runs lie further apart than both bounds, or their oracles at all. */
static inline int64_t runs_apart(const struct identity *a, const struct identity *b) {
    int64_t n = a->n_tokens != b->n_tokens || a->width != b->width || a->n_state != b->n_state;
    for (int32_t t = a->first; t < a->first + a->n_tokens && n == 0; t++) {
        for (int32_t i = 0; i < a->width; i++) {
            const double bound = a->bound[t][i] + b->bound[t][i];
            n += is_apart((double)a->out[t][i] - (double)b->out[t][i],
                          a->want[t][i] - b->want[t][i], bound, 0.0, fabs(a->want[t][i]));
        }
    }
    for (int32_t i = 0; i < a->n_state && n == 0; i++) {
        n += is_apart((double)a->state[i] - (double)b->state[i],
                      a->state_want[i] - b->state_want[i], a->state_bound[i] + b->state_bound[i],
                      0.0, fabs(a->state_want[i]));
    }
    return n;
}

#endif
