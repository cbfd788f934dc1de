/* SPDX-License-Identifier: Apache-2.0
 * Shared by the kinds whose state has a decay but no delta: h = a h + dt x B, y = C h + D x, with
 * the bounds of tolerance.md 3.2 where each element may have its own decay; and the calls of all
 * kinds that are not in ref_internal.h. */
#ifndef HB_HARNESS_ORACLE_REF_SCAN_H
#define HB_HARNESS_ORACLE_REF_SCAN_H

#include "harness/oracle/ref_internal.h"

/* One call: what stays the same over its tokens. */
struct hb_ref_scan {
    const struct hb_ref_call *call;
    struct hb_ref_dims d;
    struct hb_ref_rates rates;
    struct hb_ref_box *box;
    double *rings; /* [n, C] log decays of the window W_t, one ring per head or channel */
};

/* Decay of one step: a, a times its relative error, and expm1(2 gq W_t) for what the token adds. */
struct hb_ref_decay {
    double a, ar, ew;
};

/* B and C of one row [N] with their errors; tops are |.| + error, with their maxima. */
struct hb_ref_pair {
    const double *b, *db, *c, *dc;
    double *b_top, *c_top;
    double b_max, c_max;
};

/* What a token brings to row i of [H * P]: step, x and the factor of the skip. */
struct hb_ref_feed {
    int64_t i;
    double dt, ddt, x, dx, skip;
};

/* n inputs, or zeros where src is null. */
void hb_ref_scan_widen(const float *src, int64_t n, double *dst);
/* Starts a call from the state that call->state holds. */
struct hb_ref_scan hb_ref_scan_begin(const struct hb_ref_call *call, double *rings);
/* W_t of ring k with `newest` as the last token's, 0 where the form needs none. */
double hb_ref_scan_window(struct hb_ref_scan *s, int64_t k, double newest);
/* th: minus the log decay, eta its error. */
struct hb_ref_decay hb_ref_scan_decay(const struct hb_ref_rates *rates, double th, double eta,
                                      double window);
void hb_ref_scan_tops(const struct hb_ref_scan *s, struct hb_ref_pair *pair);
/* One row of the state, and its y, dy and my: decay [N]. */
void hb_ref_scan_row(const struct hb_ref_scan *s, const struct hb_ref_feed *feed,
                     const struct hb_ref_decay *decay, const struct hb_ref_pair *pair);
/* After the last row of token t: gate, norm, the tracked state. window: of the convolution, or
 * null. */
void hb_ref_scan_token(struct hb_ref_scan *s, int32_t t, const struct hb_ref_window *window);
void hb_ref_scan_end(const struct hb_ref_scan *s, const struct hb_ref_window *window);

int hb_ref_decay_run(const struct hb_ref_call *call); /* ref_decay.c: lightning, simple GLA */
int hb_ref_mamba1_run(const struct hb_ref_call *call);
double hb_ref_mamba1_work(const struct hb_config *config);
int hb_ref_short_conv_run(const struct hb_ref_call *call);

#endif
