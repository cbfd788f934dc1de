/* SPDX-License-Identifier: Apache-2.0
 * Shared by the files of the oracle only: sizes, constants of the error bounds, and the stages of the Mamba2 mixer.
 * Letters as in backend/caps.h; the names of the error terms are those of tolerance.md 3. */
#ifndef HB_HARNESS_ORACLE_REF_INTERNAL_H
#define HB_HARNESS_ORACLE_REF_INTERNAL_H

#include <float.h>
#include <math.h>
#include <stdint.h>

#include "harness/oracle/oracle.h"

#define HB_REF_U32 0x1p-24   /* u: unit roundoff of fp32 */
#define HB_REF_TINY 0x1p-126 /* smallest normal fp32: what a flush to zero may lose */

struct hb_ref_dims {
    int32_t heads, head_dim, state_size, groups, conv_width, chunk;
    int64_t d_inner, dim;
    int64_t n_state; /* H * P * N */
};

/* The profile and the state format, turned into the constants that the formulas use. */
struct hb_ref_rates {
    double u_io, io_floor, e_exp, sp_abs, sp_rel;
    double u_st;   /* rounding of the stored temporal state */
    double ky;     /* rounding of the sums behind one output */
    double kstate; /* chunk form: rounding of the sum behind the state handed on, else 0 */
    double gq;     /* rounding of a cumulative sum relative to the sum of |terms|; 0 for the recurrence */
    int32_t norm_roundings;
};

/* A state as allocated: the public part first, then scratch that calls reuse. */
struct hb_ref_box {
    struct hb_ref_state state;
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
    double *gate;    /* [d_inner] silu(z) */
    double *dgate;   /* [d_inner] its bound */
    double *sink;    /* [2, d_inner] bound and magnitude nobody asked for */
};

static inline struct hb_ref_box *hb_ref_box_of(struct hb_ref_state *state)
{
    return (struct hb_ref_box *)(void *)state;
}

/* gam(n, v) = n v / (1 - n v), Higham 2002 section 3.1. */
static inline double hb_ref_gam(double n, double v)
{
    const double nv = n * v;
    return nv < 1.0 ? nv / (1.0 - nv) : (double)INFINITY;
}

static inline int hb_ref_is_finite(double x)
{
    return fabs(x) <= DBL_MAX;
}

/* fmax without the library call; a NaN in a is passed over. */
static inline double hb_ref_max(double a, double b)
{
    return a > b ? a : b;
}

/* Bound of a computed value that is then stored with unit roundoff u and underflow error eta. */
static inline double hb_ref_rounded(double value, double bound, double u, double eta)
{
    return bound + u * (fabs(value) + bound) + eta;
}

/* silu in float64; the limit at -inf is NaN as in the formula, a call with such an input is not judged. */
static inline double hb_ref_silu(double a)
{
    return a / (1.0 + exp(-a));
}

/* Error of silu evaluated in fp32 on an exact argument: 3.6, plus the region in which e^-a overflows or the sigmoid
 * is below the normal range, where the result may be zero. */
static inline double hb_ref_silu_error(double a, double silu, double e_exp)
{
    const double s = fabs(silu);
    const double lost = a < -87.0 ? s : 0.0;
    return s * (e_exp + 3.0 * HB_REF_U32 + HB_REF_U32 * fabs(a)) + lost + HB_REF_TINY;
}

struct hb_ref_dims hb_ref_dims_of(const struct hb_config *config);
struct hb_ref_rates hb_ref_rates_of(const struct hb_config *config, const struct hb_profile *profile);

/* Step size and log decay of one token of one head with their errors (3.1). */
struct hb_ref_step {
    double dt, ddt; /* dt and |error| */
    double th, eta; /* -dt*A and |error| */
};
/* What one head contributes: A, the bias of the step or null, and the clamp of the path (enum hb_dt_clamp). */
struct hb_ref_gate {
    double rate;
    const float *bias;
    int32_t softplus, clamp;
    double lo, hi;
};
struct hb_ref_step hb_ref_step_of(const struct hb_ref_gate *gate, const struct hb_ref_rates *rates, double raw);

/* One token of the convolution: rows[j] [dim] are the K inputs, oldest first; writes box->c and box->dc. */
void hb_ref_conv_token(const struct hb_config *config, const struct hb_ref_rates *rates,
                       const double *const rows[HB_MAX_CONV_WIDTH], const struct hb_ref_box *box);

/* One token of the gate and norm: box->y, dy, my and z [d_inner] to out, bound, mag [d_inner]. */
void hb_ref_gate_norm(const struct hb_config *config, const struct hb_ref_rates *rates, const float *weight,
                      double eps, const struct hb_ref_box *box, double *out, double *bound, double *mag);

#endif
