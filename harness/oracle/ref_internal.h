/* SPDX-License-Identifier: Apache-2.0
 * Shared by the files of the oracle only: sizes, constants of the error bounds, the stages that
 * the linear kinds share, and the table of kinds. Letters as in backend/caps.h; the names of the
 * error terms are those of tolerance.md 3. */
#ifndef HB_HARNESS_ORACLE_REF_INTERNAL_H
#define HB_HARNESS_ORACLE_REF_INTERNAL_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/oracle/oracle.h"

#define HB_REF_U32 0x1p-24   /* u: unit roundoff of fp32 */
#define HB_REF_TINY 0x1p-126 /* smallest normal fp32: what a flush to zero may lose */
/* Magnitudes below this are not told apart from zero: the bound is then an absolute one and never
 * vacuous. */
#define HB_REF_NOTHING 0x1p-64
/* The same for results in fp16, whose steps below its smallest normal number are all equal. */
#define HB_REF_NOTHING_FP16 0x1p-14

struct hb_ref_dims {
    int32_t heads, head_dim, state_size, groups, conv_width;
    int32_t chunk;  /* tokens of the window W_t: C, or the length of the replay ring */
    int32_t window; /* room for it in th_ring: the larger of both */
    int64_t d_inner;
    int64_t dim;      /* width of in[1]: what enters the first stage */
    int64_t gates;    /* width of in[2], whether it is read or not */
    int64_t channels; /* of the convolution and its state, 0: none */
    int64_t columns;  /* of the conv state: K-1, or K of which the oldest is never read */
    int64_t n_state;  /* H * P * N, 0: none */
};

/* The profile and the state format, turned into the constants that the formulas use. */
struct hb_ref_rates {
    double u_io, io_floor, e_exp, sp_abs, sp_rel;
    double nothing; /* least magnitude of a result */
    double io_max; /* largest finite value of the activation type */
    double u_st;   /* rounding of the stored temporal state */
    double ky;     /* rounding of the sums behind one output of the token at hand */
    double kop;    /* of the operands of these sums */
    double op_floor; /* what an operand or product may lose when it is flushed to zero */
    double u_acc;
    int32_t chunked;
    int32_t most_met; /* tokens that a term may meet in sums on its way to an output */
    double kstate;    /* chunk form: rounding of the sum behind the state handed on, else 0 */
    double
        gq; /* rounding of a cumulative sum relative to the sum of |terms|; 0 for the recurrence */
    double step_q; /* sequential sums: rounding of one step relative to the sum so far; else 0 */
    int32_t norm_roundings;
};

/* A state as allocated: the public part first, then scratch that calls reuse. */
struct hb_ref_box {
    struct hb_ref_state state;
    size_t capacity; /* doubles behind the box */
    double *m0;      /* [H, P, N] M at the start of the call */
    double *decay;   /* [H] log decay since the start of the call */
    double *reach;   /* [H, P] growth of the underflow term, see README */
    double *rows;    /* [K, dim] inputs of the convolution, a ring of tokens */
    double *taps;    /* [K+1, dim] transposed convolution weights, then the bias */
    double *c, *dc;  /* [dim] convolution output and its bound */
    double *tops;    /* [2, N] |B|+dB and |C|+dC of the group at hand */
    double *y;       /* [d_inner] output of the recurrence */
    double *dy, *my; /* [d_inner] its bound and magnitude */
    double *z;       /* [d_inner] gate input */
    double *dt;      /* [gates] in[2]: raw step and the like */
    double *steps;   /* [H, 4] of the token: dt, log decay, and their bounds */
    double *gate;    /* [d_inner] silu(z) */
    double *dgate;   /* [d_inner] its bound */
    double *sink;    /* [2, d_inner] bound and magnitude nobody asked for */
    double *work;    /* as long as the kind's row in the table asks for */
};

static inline struct hb_ref_box *hb_ref_box_of(struct hb_ref_state *state) {
    return (struct hb_ref_box *)state;
}

/* gam(n, v) = n v / (1 - n v), Higham 2002 section 3.1. */
static inline double hb_ref_gam(double n, double v) {
    const double nv = n * v;
    return nv < 1.0 ? nv / (1.0 - nv) : (double)INFINITY;
}

static inline int hb_ref_is_finite(double x) {
    return fabs(x) <= DBL_MAX;
}

/* fmax without the library call; a NaN in a is passed over. */
static inline double hb_ref_max(double a, double b) {
    return a > b ? a : b;
}

/* Bound of a computed value that is then stored with unit roundoff u and underflow error eta. Zero can be stored, so what
 * rounds to nearest, truncates or flushes is never off by more than the number itself. */
static inline double hb_ref_rounded(double value, double bound, double u, double eta) {
    const double largest = fabs(value) + bound;
    const double own = u * largest + eta;
    return bound + (own < largest ? own : largest);
}

/* The same for a result between two stages, stored as an activation: beyond the range of the type
 * nothing is known of what follows. */
static inline double hb_ref_stored(const struct hb_ref_rates *k, double value, double bound) {
    const double b = hb_ref_rounded(value, bound, k->u_io, k->io_floor);
    return fabs(value) + b <= k->io_max ? b : (double)INFINITY;
}

/* silu of an exact or inexact argument. At -inf the value is NaN as in the formula: such a call is
 * not judged. */
struct hb_ref_silu {
    double value;
    double error; /* of an fp32 evaluation on an argument that is off by at most da */
};

/* Bound of |silu'| on [a-da, a+da]: the value at a plus half of da, since |silu''| <= 1/2; (1-t)
 * e^t at the right end t of an interval of negative numbers; 1.1 everywhere (3.6). */
static inline double hb_ref_silu_slope(double a, double da, double sigmoid, double rest) {
    const double at_a = fabs(sigmoid * (1.0 + a * rest));
    const double t = a + da;
    double slope = at_a + 0.5 * da;
    if (t < 0.0 && at_a < da) {
        const double tail = (1.0 - t) * exp(t);
        slope = tail < slope ? tail : slope;
    }
    return slope < 1.1 ? slope : 1.1;
}

/* a/(1+e^-a): an error of e^-a enters with the weight 1 - sigmoid(a), then come a sum, a quotient
 * or product and its rounding (3u, 3.6). Where e^-a overflows or the sigmoid is below the normal
 * range the result may be zero. */
static inline struct hb_ref_silu hb_ref_silu(double a, double da, double e_exp) {
    const double u = HB_REF_U32;
    const double e = exp(-a);
    const double sigmoid = 1.0 / (1.0 + e);
    const double rest = e < 1e300 ? e * sigmoid : 1.0; /* 1 - sigmoid, without cancellation */
    struct hb_ref_silu s;
    s.value = a / (1.0 + e);
    const double moved = hb_ref_silu_slope(a, da, sigmoid, rest) * da;
    const double size = fabs(s.value) + moved;
    s.error = moved + size * ((e_exp + u * fabs(a)) * rest + 3.0 * u) + (a < -87.0 ? size : 0.0) +
              HB_REF_TINY;
    return s;
}

/* 1/(1+e^-a) of an argument that is off by at most da (beta and output gates): |sigmoid'| <= 1/4,
 * and sigmoid (1 - sigmoid) e^da on the interval; the rest as in silu. */
static inline struct hb_ref_silu hb_ref_sigmoid(double a, double da, double e_exp) {
    const double u = HB_REF_U32;
    const double e = exp(-fabs(a));
    const double small = e / (1.0 + e), large = 1.0 / (1.0 + e);
    const double slope = small * large * exp(da < 4.0 ? da : 4.0);
    struct hb_ref_silu s;
    s.value = a < 0.0 ? small : large;
    const double moved = (slope < 0.25 ? slope : 0.25) * da;
    const double size = s.value + moved;
    s.error = moved + size * ((e_exp + u * fabs(a)) * (a < 0.0 ? large : small) + 3.0 * u) +
              (a < -87.0 ? size : 0.0) + HB_REF_TINY;
    return s;
}

/* Sizes of the configuration's linear kind (Mamba2 where it has no linear layer). */
int32_t hb_ref_kind_of(const struct hb_config *config);
static inline double hb_ref_nothing_of(const struct hb_config *config) {
    return config->act_dtype == HB_FP16 ? HB_REF_NOTHING_FP16 : HB_REF_NOTHING;
}

struct hb_ref_dims hb_ref_dims_of(const struct hb_config *config);
/* n_tokens: length of the call; no chunk of it is longer. */
struct hb_ref_rates hb_ref_rates_of(const struct hb_config *config,
                                    const struct hb_profile *profile, int32_t n_tokens);

/* Of a decode token at position w of the replay ring: sums over the w + 1 records since the last
 * fold, in any order. */
struct hb_ref_rates hb_ref_ring_rates(const struct hb_config *config,
                                      const struct hb_profile *profile, int32_t w);

/* ky of token t (counted from the start of the call, or from the last fold). */
double hb_ref_ky(const struct hb_config *config, const struct hb_ref_rates *rates, int64_t t);

/* Step size and log decay of one token of one head with their errors (3.1). */
struct hb_ref_step {
    double dt, ddt; /* dt and |error| */
    double th, eta; /* -dt*A and |error| */
};
/* What one head contributes: A, the bias of the step or null, and the clamp of the path (enum
 * hb_dt_clamp). */
struct hb_ref_gate {
    double rate;
    const float *bias;
    int32_t softplus, clamp;
    double lo, hi;
};
struct hb_ref_step hb_ref_step_of(const struct hb_ref_gate *gate, const struct hb_ref_rates *rates,
                                  double raw);

/* Inputs of the convolution, oldest first: a window of K rows of `dim` doubles each, of which
 * `channels` are used. */
struct hb_ref_window {
    double *rows[HB_MAX_CONV_WIDTH];
};
/* Weights and conv state into the box: at the start of a call. */
struct hb_ref_window hb_ref_window_load(const struct hb_ref_dims *d,
                                        const struct hb_layer_params *params,
                                        struct hb_ref_box *box);
/* Shifts by one token; returns the row [channels] of the newest, to be filled. */
double *hb_ref_window_push(const struct hb_ref_dims *d, struct hb_ref_window *window);
/* The newest columns to conv [channels, columns]. */
void hb_ref_window_store(const struct hb_ref_dims *d, const struct hb_ref_window *window,
                         double *conv);

/* One token of the convolution: writes box->c and box->dc [channels]. */
void hb_ref_conv_token(const struct hb_config *config, const struct hb_ref_rates *rates,
                       const struct hb_ref_window *window, const struct hb_ref_box *box);

/* One token of the gate and norm: box->y, dy, my and z [d_inner] to out, bound, mag [d_inner]. */
void hb_ref_gate_norm(const struct hb_config *config, const struct hb_ref_rates *rates,
                      const float *weight, double eps, const struct hb_ref_box *box, double *out,
                      double *bound, double *mag);

/* The arguments of hb_ref_linear. */
struct hb_ref_call {
    const struct hb_config *config;
    const struct hb_layer_params *params;
    const struct hb_profile *profile;
    int32_t layer, path, n;
    const float *in[3];
    struct hb_ref_state *state;
    double *out, *bound, *mag; /* bound and mag may be null */
    struct hb_ref_state *at;
    int32_t at_tokens;
};
/* One row of the table of kinds (ref_linear.c): a call, and the doubles of box->work (may be null).
 */
struct hb_ref_kind {
    int (*run)(const struct hb_ref_call *call);
    double (*work)(const struct hb_config *config); /* a whole number */
    void (*sizes)(const struct hb_config *config, struct hb_ref_sizes *out);
};
double hb_ref_work_of(const struct hb_config *config);

int hb_ref_delta_run(const struct hb_ref_call *call); /* ref_delta.c: GDN and KDA */
double hb_ref_delta_work(const struct hb_config *config);

/* ref_ring.c. The records become part of the stored state: rounding of their sum, then of the
 * state's type. */
void hb_ref_ring_fold(const struct hb_ref_dims *d, const struct hb_ref_rates *rates,
                      struct hb_ref_state *state);
/* What the token of the last call appends to the ring. */
void hb_ref_ring_record(const struct hb_ref_dims *d, const struct hb_ref_box *box,
                        const struct hb_ref_record *record);

#endif
