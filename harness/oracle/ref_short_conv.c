/* SPDX-License-Identifier: Apache-2.0
 * The short convolution mixer (ops-delta.md section 4): y = C conv(B x) without activation. The
 * product B x is rounded to the activation type before it enters the convolution and its state, so
 * that rounding is part of the definition; the rest has the bound of tolerance.md 3.6. */
#include "harness/oracle/ref_scan.h"

/* Nearest number of an activation type, ties to even: `digits` significand bits, steps of at least
 * 2^least. */
static double nearest(double x, int digits, int least, double largest) {
    if (!hb_ref_is_finite(x) || x == 0.0) {
        return x;
    }
    const int place = ilogb(x) - digits + 1;
    const int step = place > least ? place : least;
    const double y = ldexp(nearbyint(ldexp(x, -step)), step);
    return fabs(y) <= largest ? y : copysign((double)INFINITY, x);
}

/* The product is formed in fp32; of two 16-bit numbers it is exact there. */
static double product_of(int32_t act_dtype, float b, float x) {
    const double p = (double)(float)((double)b * (double)x);
    switch (act_dtype) {
    case HB_BF16:
        return nearest(p, 8, -133, (double)FLT_MAX);
    case HB_FP16:
        return nearest(p, 11, -24, 65504.0);
    default:
        return p;
    }
}

/* A sum with the sum of its absolute terms. */
struct sum {
    double value, abs;
};

static struct sum convolve(const struct hb_ref_dims *d, const struct hb_ref_window *w,
                           const double *taps, int64_t c) {
    const double bias = taps[d->conv_width * d->dim + c];
    struct sum s = {bias, fabs(bias)};
    for (int32_t j = 0; j < d->conv_width; j++) {
        const double p = taps[j * d->dim + c] * w->rows[j][c];
        s.value += p;
        s.abs += fabs(p);
    }
    return s;
}

struct result {
    double out, bound, mag;
};

/* gate: C. A backend may round the sum to the activation type before the product. */
static struct result gated(const struct hb_ref_rates *k, int32_t width, struct sum s, double gate) {
    const double u = HB_REF_U32, g = fabs(gate);
    const double over = s.abs <= (double)FLT_MAX ? 0.0 : (double)INFINITY;
    const double own = hb_ref_gam(width + 1.0, u) * s.abs + width * HB_REF_TINY + over;
    const double ds = hb_ref_stored(k, s.value, own);
    const double out = s.value * gate;
    const double e = g * ds + u * (fabs(s.value) + ds) * g + HB_REF_TINY;
    const double bound = hb_ref_rounded(out, e, k->u_io, k->io_floor);
    const double mag = hb_ref_max(hb_ref_max(g * s.abs, fabs(out)), k->nothing);
    const int is_value = hb_ref_is_finite(out);
    const struct result r = {out, is_value && hb_ref_is_finite(bound) ? bound : (double)INFINITY,
                             is_value && hb_ref_is_finite(mag) ? mag : (double)INFINITY};
    return r;
}

static void run_token(const struct hb_ref_call *call, const struct hb_ref_dims *d,
                      const struct hb_ref_rates *rates, struct hb_ref_window *window, int32_t t) {
    const float *b = call->in[1] + t * d->dim, *c = b + d->d_inner, *x = c + d->d_inner;
    double *newest = hb_ref_window_push(d, window);
    for (int64_t i = 0; i < d->channels; i++) {
        newest[i] = product_of(call->config->act_dtype, b[i], x[i]);
        const struct sum s = convolve(d, window, hb_ref_box_of(call->state)->taps, i);
        const struct result r = gated(rates, d->conv_width, s, (double)c[i]);
        const int64_t at = t * d->d_inner + i;
        call->out[at] = r.out;
        if (call->bound != NULL) {
            call->bound[at] = r.bound;
        }
        if (call->mag != NULL) {
            call->mag[at] = r.mag;
        }
    }
}

int hb_ref_short_conv_run(const struct hb_ref_call *call) {
    if (call->n <= 0) {
        return 0;
    }
    const struct hb_ref_dims d = hb_ref_dims_of(call->config);
    const struct hb_ref_rates rates = hb_ref_rates_of(call->config, call->profile, call->n);
    struct hb_ref_box *box = hb_ref_box_of(call->state);
    struct hb_ref_window window = hb_ref_window_load(&d, call->params, box);
    for (int32_t t = 0; t < call->n; t++) {
        run_token(call, &d, &rates, &window, t);
        if (call->at != NULL && t + 1 == call->at_tokens) {
            hb_ref_state_copy(call->config, call->at, call->state);
            hb_ref_window_store(&d, &window, call->at->conv);
        }
    }
    hb_ref_window_store(&d, &window, call->state->conv);
    call->state->n_tokens = call->n;
    return 0;
}
