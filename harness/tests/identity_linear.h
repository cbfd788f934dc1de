/* SPDX-License-Identifier: Apache-2.0
 * What the inputs of a linear layer that is its recurrence (identity_core) say of each element of
 * its state. Include after cmocka.h. */
#ifndef HB_HARNESS_TESTS_IDENTITY_LINEAR_H
#define HB_HARNESS_TESTS_IDENTITY_LINEAR_H

#include "harness/tests/identity_rig.h"

static inline int is_delta(const struct identity *x) {
    return x->c.config.mixer == HB_MIXER_GDN || x->c.config.mixer == HB_MIXER_KDA;
}

struct sizes {
    int32_t heads, head_dim, state, inner, keys, n_state;
};

static inline struct sizes sizes_of(const struct identity *x) {
    const struct hb_case_config *g = &x->c.config;
    return (struct sizes){.heads = g->heads,
                          .head_dim = g->head_dim,
                          .state = g->state_size,
                          .inner = g->heads * g->head_dim,
                          .keys = g->groups * g->state_size,
                          .n_state = g->heads * g->head_dim * g->state_size};
}

/* Of element i = (h P + p) N + n of the state at position t: its log decay, */
static inline double log_decay(const struct identity *x, int32_t t, int32_t i) {
    const struct sizes s = sizes_of(x);
    const int32_t channel = i / s.state, head = channel / s.head_dim, n = i % s.state;
    const float *gate = x->in[2][t];
    switch (x->c.config.mixer) {
    case HB_MIXER_KDA:
        return (double)x->a[head] * (double)gate[head * s.state + n];
    case HB_MIXER_LIGHTNING:
        return (double)gate[head];
    case HB_MIXER_MAMBA1:
        return (double)x->a[i] * (double)gate[channel];
    default:
        return (double)x->a[head] * (double)gate[head];
    }
}

/* what is added to it without a delta rule, w x b, */
static inline double addend(const struct identity *x, int32_t t, int32_t i) {
    const struct sizes s = sizes_of(x);
    const int32_t channel = i / s.state, head = channel / s.head_dim, n = i % s.state;
    const int32_t at = identity_group(x, head) * s.state + n;
    const float *in = x->in[1][t], *gate = x->in[2][t];
    switch (x->c.config.mixer) {
    case HB_MIXER_MAMBA2:
        return (double)gate[head] * (double)in[channel] * (double)in[s.inner + at];
    case HB_MIXER_MAMBA1:
        return (double)gate[channel] * (double)in[channel] * (double)gate[s.inner + n];
    default:
        return (double)in[2 * s.keys + channel] * (double)in[s.keys + at];
    }
}

/* and what it is multiplied by in the output. */
static inline double reader(const struct identity *x, int32_t t, int32_t i) {
    const struct sizes s = sizes_of(x);
    const int32_t n = i % s.state;
    const int32_t at = identity_group(x, i / s.state / s.head_dim) * s.state + n;
    switch (x->c.config.mixer) {
    case HB_MIXER_MAMBA2:
        return (double)x->in[1][t][s.inner + s.keys + at];
    case HB_MIXER_MAMBA1:
        return (double)x->in[2][t][s.inner + s.state + n];
    default:
        return (double)x->in[1][t][at];
    }
}

#endif
