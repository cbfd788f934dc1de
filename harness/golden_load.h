/* SPDX-License-Identifier: Apache-2.0
 * What the importers of golden operations share. */
#ifndef HB_HARNESS_GOLDEN_LOAD_H
#define HB_HARNESS_GOLDEN_LOAD_H

#include <stdio.h>

#include "harness/golden_internal.h"

/* A tensor of that shape as floats owned by p; null and err filled otherwise. */
float *hb_golden_floats(struct hb_golden_problem *p, const char *name, int32_t n_dims,
                        const int64_t *shape, struct hb_error *err);
/* Sizes {H, P, N, G, K, C} and defaults of the configuration of a model of that kind. */
int32_t hb_golden_shape(struct hb_golden_problem *p, int32_t kind, const int32_t size[6],
                        struct hb_error *err);
/* Widths of the layer's inputs, once kind, sizes and slope kind are set. */
void hb_golden_widths(struct hb_golden_problem *p);
/* A model of n_layers layers, all of the kind of the first. */
void hb_golden_set_layers(struct hb_golden_problem *p, int32_t n_layers);
/* The factor of q: 0 (N^-0.5) or itself where one of them is exact, else rounded. */
void hb_golden_set_scale(struct hb_golden_problem *p, double scale);
/* Zeroed layer inputs for p->n_tokens. */
int32_t hb_golden_inputs(struct hb_golden_problem *p, struct hb_error *err);
/* Conv weights (0, .., 0, 1) for the first n channels, 0 for the rest; given weights are copied
 * instead. */
int32_t hb_golden_set_conv(struct hb_golden_problem *p, int32_t n, const float *given,
                           struct hb_error *err);
/* A = -1 and D = 1 for each head. */
int32_t hb_golden_set_pass_through(struct hb_golden_problem *p, struct hb_error *err);
/* Initial states: conv [n_seq, channels, K-1] of the first channels or null, ssm (in the order of
 * the stored states) or null. */
int32_t hb_golden_set_initial(struct hb_golden_problem *p, const float *conv, int32_t channels,
                              const float *ssm, struct hb_error *err);
/* Copies tensor [T, width] into channels first.. of the layer input `to` [T, stride]. */
int32_t hb_golden_put_input(const struct hb_golden_problem *p, const char *name, int32_t n_dims,
                            const int64_t *shape, double *to, int32_t stride, int32_t first,
                            struct hb_error *err);
/* Outputs ("exp64.y" + suffix, ..) and the types of core cases, whose inputs are exact in both. */
int32_t hb_golden_set_expected(struct hb_golden_problem *p, const char *suffix, int32_t n_dims,
                               const int64_t *shape, struct hb_error *err);
/* Final states of all sequences, [n_seq, ..] or null, and states inside sequence 0, which is cut
 * there into segments, [.., ..] after the token counts of `mid_state_after_tokens`. */
int32_t hb_golden_set_states(const struct hb_golden_source *s, struct hb_golden_problem *p,
                             const int64_t shape[3]);

/* ---- whole layers (golden_project.c) ---- */

/* A projection: rows of w [.., hidden] times rows of x [T, hidden] times in_scale, plus bias, times
 * scale. */
struct hb_golden_projection {
    const double *x;
    const float *w, *bias, *scale; /* bias, scale may be null */
    double in_scale;
    int32_t hidden;
};
/* n rows of the projection, from `row` on, into channels first.. of `to` [T, stride]; the sums of
 * absolute terms into mag, likewise, which may be null. */
struct hb_golden_channels {
    double *to, *mag;
    int32_t stride, first;
};
void hb_golden_project(const struct hb_golden_problem *p, const struct hb_golden_projection *j,
                       int32_t row, int32_t n, const struct hb_golden_channels *out);
/* A tensor of that shape in float64, owned by p; null and err filled otherwise. */
double *hb_golden_doubles(struct hb_golden_problem *p, const char *name, int32_t n_dims,
                          const int64_t *shape, struct hb_error *err);
/* p->a and params.a from a tensor of logarithms: A = -e^(A_log). */
int32_t hb_golden_set_decay(struct hb_golden_problem *p, const char *name, int32_t n_dims,
                            const int64_t *shape, struct hb_error *err);
/* The output projection of that name and the stored outputs of a layer. */
int32_t hb_golden_set_output(struct hb_golden_problem *p, const char *projection, int32_t hidden,
                             struct hb_error *err);
/* states[i] = {index, sequence, after_token, ..} of a layer: rows of exp64.ssm_state, and of
 * exp64.conv_state where the layer has a convolution. */
int32_t hb_golden_set_layer_states(const struct hb_golden_source *s, struct hb_golden_problem *p);

#endif
