/* SPDX-License-Identifier: Apache-2.0
 * Shared by the files of the delta rule (GDN, KDA) of the oracle only. The derivation of every term
 * is in README.md, "Delta rule". State arrays: h value; f[(h, p), 0] the bound e of the error of
 * column p in the 2-norm; at the end of a call r [H, P, N] bounds of the elements and m the norm of
 * the column. */
#ifndef HB_HARNESS_ORACLE_REF_DELTA_H
#define HB_HARNESS_ORACLE_REF_DELTA_H

#include "harness/oracle/ref_internal.h"

/* A vector [N] with the bound of its error by element, and norms of both. */
struct hb_ref_vec {
    const double *x, *dx;
    double norm, dnorm;
};

/* One head at one token. Decay of channel c: a[c] = exp(-th[c]), with the relative error
 * expm1(rel[c]). */
struct hb_ref_delta_head {
    struct hb_ref_vec q, k;
    const double *a;   /* [N] */
    const double *rel; /* [N] */
    const double *ew;  /* [N] chunk form: expm1(2 gq W), what a new term costs once it decays */
    double a_max, rel_max;
    double beta, dbeta;
    double rho;       /* norm of I - beta k k^T */
    int32_t in_range; /* no product of vectors, and no entry of the system, can overflow */
};

/* One value column at one token. */
struct hb_ref_delta_col {
    double v, dv;
    double *h;     /* [N] */
    double e;      /* in: before the token, out: after it */
    double o, eo;  /* sum over q of the new state and its bound, before the scale */
    double mo;     /* sum of (|q|+dq) |h| */
    double d_size; /* |d| + its error */
    double top;    /* largest magnitude met */
};

struct hb_ref_delta_rates {
    double gam_k, gam_q; /* sums over k S and q S */
    double solve;        /* sums of the triangular system and of what it is applied to */
    double term;         /* rounding of one k d in the sum that becomes the state */
    double operand;      /* of normalised vectors */
};

/* Scratch of the chunk form of one call, README.md. Rings hold the last `ring` tokens, newest at
 * `at`. */
struct hb_ref_delta_chunk {
    int32_t ring;
    int32_t at, held;
    int64_t token;   /* of the call */
    double *keys;    /* [H, ring, N] k decayed up to the token */
    double *th;      /* [H, ring, N] log decays */
    double *inverse; /* [H, ring, ring] rows of T, by place of the column in the ring */
    double *a;       /* [ring] |row of A| of the head at hand, by place */
    double *x;       /* [H, ring, P] |T| times the right-hand side */
    double *rhs;     /* [H, ring, P] */
    double *mass[2],
        *loss[2];  /* [H, P, N] magnitude and decay error of the direct sums, restarted in turn */
    double *fresh; /* [H, P, N] what the newest term loses when it decays */
};

struct hb_ref_delta {
    const struct hb_ref_call *call;
    const struct hb_config *config;
    struct hb_ref_dims d;
    struct hb_ref_rates rates;
    struct hb_ref_delta_rates own;
    struct hb_ref_box *box;
    struct hb_ref_window window;
    int32_t is_kda;
    double scale;
    double *qk, *dqk; /* [2, G, N] normalised, and errors */
    double *norms;    /* [2, G, 2] */
    double *th, *eta; /* [N] of the head at hand */
    double *a, *rel;  /* [N] */
    double *ew;       /* [N] */
    struct hb_ref_delta_chunk chunk;
};

/* Doubles of the chunk form. */
double hb_ref_delta_chunk_work(const struct hb_ref_dims *d);
/* Places it at *at and starts the call. */
void hb_ref_delta_chunk_begin(struct hb_ref_delta *k, double **at);
/* Before the columns of a head: th, eta, a are set; sets rel, ew and the rows of A and T. */
void hb_ref_delta_chunk_head(struct hb_ref_delta *k, int32_t head, struct hb_ref_delta_head *s);
void hb_ref_delta_chunk_column(struct hb_ref_delta *k, int32_t head, int32_t p,
                               const struct hb_ref_delta_head *s, struct hb_ref_delta_col *c);
/* After the last head. */
void hb_ref_delta_chunk_next(struct hb_ref_delta *k);

/* What the rule adds to the error of a column; shared by both forms. moved: bound after the decay;
 * ks, kabs, dks: sums of k, |k|+dk and dk over the decayed state; extra: what the chunk form adds
 * to the error of d. */
struct hb_ref_delta_sums {
    double ks, kabs, dks, norm, moved, extra;
};
/* Returns d; sets e (without the rounding of the sum) and d_size. */
double hb_ref_delta_correct(const struct hb_ref_delta *k, const struct hb_ref_delta_head *s,
                            const struct hb_ref_delta_sums *t, struct hb_ref_delta_col *c);

#endif
