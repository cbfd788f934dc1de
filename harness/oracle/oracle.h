/* SPDX-License-Identifier: Apache-2.0
 * The float64 oracle: token by token, one state per request, with the tier-1 error bounds of tolerance.md 3.1, 3.2, 3.5,
 * 3.6 and 3.7 carried along. Shares nothing with the backend but the interface headers.
 * "profile" is the arithmetic of the backend under test; it enters the bounds only, never the values. */
#ifndef HB_HARNESS_ORACLE_ORACLE_H
#define HB_HARNESS_ORACLE_ORACLE_H

#include <stdint.h>

#include "backend/caps.h"

/* State of one request in one Mamba2 layer. conv [dim, W] (exact values, oldest first), h/m/r/f [H, P, N]:
 * value, running sum of absolute values, error bound, cumulative-sum term (tolerance.md 3.2).
 * th_ring: log decays of the last Q tokens, or of those since the last fold of a replay ring, for W_t. All owned. */
struct hb_ref_state {
    double *conv;
    double *h, *m, *r, *f;
    double *th_ring; /* [H, chunk], with a replay ring [H, ring_length] where that is more */
    int32_t ring_pos;
    int64_t n_tokens; /* tokens seen in this call, or since the last fold: what the window W_t of tolerance.md 3.2 covers */
};

/* Allocates a zero state for config. Returns null when out of memory. */
struct hb_ref_state *hb_ref_state_new(const struct hb_config *config);
void hb_ref_state_free(struct hb_ref_state *state);
/* A zero state for config, in the memory of old where that is large enough. old (may be null) is used up either way. */
struct hb_ref_state *hb_ref_state_renew(struct hb_ref_state *old, const struct hb_config *config);
void hb_ref_state_copy(const struct hb_config *config, struct hb_ref_state *dst, const struct hb_ref_state *src);
/* Zero state (a request before its first token). */
void hb_ref_state_zero(const struct hb_config *config, struct hb_ref_state *state);
/* Sets exact stored values: conv [dim, W], ssm [H, P, N]; bounds become those of an exact input (m = |h|, r = f = 0). */
void hb_ref_state_set(const struct hb_config *config, struct hb_ref_state *state, const float *conv, const float *ssm);
/* Bound of the stored temporal state element i of [H, P, N]: B_h of tolerance.md 3.2; stores: number of roundings to the
 * state type beyond those already charged (1 for a tracked copy made from an unrounded state, else 0). */
double hb_ref_state_bound(const struct hb_config *config, const struct hb_profile *profile,
                          const struct hb_ref_state *state, int64_t i, int32_t stores);
/* The same for all elements of the state: bound [H, P, N]. */
void hb_ref_state_bounds(const struct hb_config *config, const struct hb_profile *profile,
                         const struct hb_ref_state *state, int32_t stores, double *bound);

/* One more rounding of the temporal state to its type: of a tracked copy that the call itself has not charged. What follows
 * from the state is then bounded as that of the copy. */
void hb_ref_state_store(const struct hb_config *config, const struct hb_profile *profile, struct hb_ref_state *state);

/* One call's worth of consecutive tokens of one request in one layer.
 * z [n, d_inner], xbc [n, dim], dt [n, H]: exactly the values handed to the backend (widened).
 * out, bound, mag [n, d_inner]: float64 result after the gated norm, its bound B, and the magnitude against which a bound
 * is vacuous (|value| scale: the larger of |out| and the sum of absolute terms). Any of bound, mag may be null.
 * at: if at_tokens > 0, *at receives a copy of the state after at_tokens tokens of this call (before any storage
 * rounding other than what the call itself does); at_tokens <= n. May be null.
 * Returns 0, or -1 when out of memory. The state advances by n tokens. */
int hb_ref_mamba2(const struct hb_config *config, const struct hb_layer_params *params, const struct hb_profile *profile,
                  int32_t path, int32_t n, const float *z, const float *xbc, const float *dt, struct hb_ref_state *state,
                  double *out, double *bound, double *mag, struct hb_ref_state *at, int32_t at_tokens);

/* What one decode token appends to the replay ring (speculative.md section 7), with its bounds: dt x [H, P], B [G, N] and
 * A dt [H]. Any pointer may be null. */
struct hb_ref_record {
    double *x, *x_bound;
    double *b, *b_bound;
    double *g, *g_bound;
};
/* One decode token of one request with the replay ring of config->ring_length entries. w: the slot's cursor at this token;
 * 0 starts from what `temporal` holds, and each later call must go on with the next w in the state that the call before
 * left (hb_ref_state_copy keeps it; hb_ref_state_set in between does not). folds: the records are folded into `temporal`
 * by this token: from then on hb_ref_state_bound is the bound of the stored state. Without a fold `temporal` stays as it
 * was, and no rounding to its type is charged. Bounds hold for any order in which log decays, records and channels are
 * summed. record may be null. Returns 0, or -1 when w is outside 0..ring_length-1. */
int hb_ref_mamba2_ring(const struct hb_config *config, const struct hb_layer_params *params,
                       const struct hb_profile *profile, int32_t w, int32_t folds, const float *z, const float *xbc,
                       const float *dt, struct hb_ref_state *state, double *out, double *bound, double *mag,
                       const struct hb_ref_record *record);

/* The n records that the calls since the last fold appended become part of `temporal`: a fold apart from any token. From
 * then on hb_ref_state_bound is the bound of the stored state, and the next token is at w = 0. */
void hb_ref_mamba2_fold(const struct hb_config *config, const struct hb_profile *profile, int32_t n,
                        struct hb_ref_state *state);

/* Numbers that a golden layer has in float64 and a configuration only in fp32. a: A [H], or null for params->a. */
struct hb_ref_numbers {
    const double *a;
    double norm_eps, dt_lo, dt_hi;
};
/* The same on inputs that are not representable in fp32: float64 projections of a golden layer (tolerance.md 3.8 a). */
int hb_ref_mamba2_f64(const struct hb_config *config, const struct hb_ref_numbers *numbers,
                      const struct hb_layer_params *params, const struct hb_profile *profile, int32_t path, int32_t n,
                      const double *z, const double *xbc, const double *dt, struct hb_ref_state *state, double *out,
                      double *bound, double *mag);

/* The same for a linear layer of any kind: layer is the model's layer id (its kind is config->layer_kind[layer]); in0, in1,
 * in2 are in[0..2] of adapter.h (widened; null where the kind does not read them). Mamba2 goes to hb_ref_mamba2. State of
 * the other kinds: conv [channels, W] with W as config->conv_state_len says (lightning: none), h, m, r, f [H, P, N] whatever
 * the state layout (short conv: none). Path and tracking as in hb_ref_mamba2. */
int hb_ref_linear(const struct hb_config *config, int32_t layer, const struct hb_layer_params *params,
                  const struct hb_profile *profile, int32_t path, int32_t n, const float *in0, const float *in1,
                  const float *in2, struct hb_ref_state *state, double *out, double *bound, double *mag,
                  struct hb_ref_state *at, int32_t at_tokens);
/* Widths of in[0..2] and of the output per token, 0 where the kind does not read the buffer; conv channels, columns of the
 * conv state and elements of the temporal state (0: the kind has none). Of an accepted configuration. */
struct hb_ref_sizes {
    int64_t width[4];
    int64_t channels, window, n_state;
};
void hb_ref_linear_sizes(const struct hb_config *config, int32_t kind, struct hb_ref_sizes *out);

/* Attention of one query token, the last of n_ctx positions: q [HQ, D]; keys, values [n_ctx, HKV, D] in position order, all of
 * them valid but for those before the sliding window (they are not read). out, bound, mag [HQ, D]. */
void hb_ref_attention(const struct hb_config *config, const struct hb_profile *profile, int32_t n_ctx, const float *q,
                      const float *keys, const float *values, double *out, double *bound, double *mag);

#endif
