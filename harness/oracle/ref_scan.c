/* SPDX-License-Identifier: Apache-2.0
 * Rows of a state that decays (ops-mamba2.md 3, ops-delta.md 3) in float64 with h, M, R and F of
 * tolerance.md 3.2 per element. README.md lists where a term differs from the formulas there. */
#include "harness/oracle/ref_scan.h"

void hb_ref_scan_widen(const float *src, int64_t n, double *dst) {
    for (int64_t i = 0; i < n; i++) {
        dst[i] = src != NULL ? (double)src[i] : 0.0;
    }
}

struct hb_ref_scan hb_ref_scan_begin(const struct hb_ref_call *call, double *rings) {
    struct hb_ref_scan s = {.call = call, .box = hb_ref_box_of(call->state), .rings = rings};
    s.d = hb_ref_dims_of(call->config);
    s.rates = hb_ref_rates_of(call->config, call->profile, call->n);
    struct hb_ref_state *state = &s.box->state;
    for (int64_t i = 0; i < s.d.d_inner; i++) {
        double top = 0.0;
        for (int64_t j = i * s.d.state_size; j < (i + 1) * s.d.state_size; j++) {
            top = hb_ref_max(top, state->m[j]);
            state->f[j] = 0.0;  /* the stored state is the start of every sum */
            s.box->m0[j] = 0.0; /* mass that the call adds */
        }
        s.box->reach[i] = 1.0 + top;
    }
    state->ring_pos = 0;
    state->n_tokens = 0;
    s.rates.ky = hb_ref_ky(call->config, &s.rates, 0);
    return s;
}

double hb_ref_scan_window(struct hb_ref_scan *s, int64_t k, double newest) {
    if (s->rates.gq <= 0.0 && s->rates.step_q <= 0.0) {
        return 0.0;
    }
    const struct hb_ref_state *state = &s->box->state;
    const int64_t q = s->d.chunk;
    const int64_t held = state->n_tokens + 1 < q ? state->n_tokens + 1 : q;
    double *ring = s->rings + k * q;
    double sum = 0.0;
    ring[state->ring_pos] = newest;
    for (int64_t i = 0; i < held; i++) { /* anew each time, so that nothing cancels */
        sum += ring[i];
    }
    return sum;
}

struct hb_ref_decay hb_ref_scan_decay(const struct hb_ref_rates *rates, double th, double eta,
                                      double window) {
    const double u = HB_REF_U32, size = fabs(th);
    double e = eta + rates->e_exp + 3.0 * u + u * size;
    struct hb_ref_decay d = {.a = exp(-th)};
    if (rates->gq > 0.0) {
        const double shift = 2.0 * rates->gq * window;
        /* beyond 300 every bound is past the range of fp32 until real decay brings the term back */
        d.ew = expm1(shift < 300.0 ? shift : 300.0);
        e += 2.0 * rates->gq * size;
    } else if (rates->step_q > 0.0) {
        e += rates->step_q * window + u * size;
    }
    /* without overflow of a factor where the other makes up for it */
    d.ar = e < 1.0 ? d.a * expm1(e) : exp(e - th) - d.a;
    return d;
}

static double fill_top(const double *x, const double *dx, int32_t n, double *top) {
    double largest = 0.0;
    for (int32_t i = 0; i < n; i++) {
        top[i] = fabs(x[i]) + dx[i];
        largest = hb_ref_max(largest, top[i]);
    }
    return largest;
}

void hb_ref_scan_tops(const struct hb_ref_scan *s, struct hb_ref_pair *pair) {
    const int32_t n = s->d.state_size;
    pair->b_top = s->box->tops;
    pair->c_top = s->box->tops + n;
    pair->b_max = fill_top(pair->b, pair->db, n, pair->b_top);
    pair->c_max = fill_top(pair->c, pair->dc, n, pair->c_top);
}

/* Sums over n of one row: C.h, and of (|C|+dC) R, (|C|+dC) M, dC |h|. */
struct sums {
    double y, r, m, h;
};

static struct sums advance(const struct hb_ref_scan *s, const struct hb_ref_feed *feed,
                           const struct hb_ref_decay *decay, const struct hb_ref_pair *pair) {
    const double u = HB_REF_U32;
    const int64_t n = s->d.state_size, at = feed->i * n;
    const struct hb_ref_state *state = &s->box->state;
    double *h = state->h + at, *m = state->m + at, *r = state->r + at, *f = state->f + at;
    double *mass = s->box->m0 + at;
    const double dt = fabs(feed->dt), ax = fabs(feed->x), dx = feed->dx;
    const double k1 = dt * 4.0 * u + feed->ddt * (1.0 + 4.0 * u); /* per U */
    const double k2 = dt + feed->ddt;                             /* per dU */
    const double err_b = (ax + dx) * k1 + dx * k2, err_db = ax * k2;
    const double lost = 4.0 * s->rates.op_floor * s->box->reach[feed->i];
    struct sums t = {0};
    for (int64_t j = 0; j < n; j++) {
        const struct hb_ref_decay *d = &decay[j];
        const double bt = pair->b_top[j], um = dt * (ax + dx) * bt;
        r[j] = (d->a + d->ar) * r[j] + d->a * f[j] + d->ar * m[j] + err_b * bt +
               err_db * pair->db[j] + lost;
        m[j] = d->a * m[j] + um;
        h[j] = d->a * h[j] + feed->dt * feed->x * pair->b[j];
        f[j] = um * d->ew;
        mass[j] = d->a * mass[j] + um;
        t.y += pair->c[j] * h[j];
        t.r += pair->c_top[j] * r[j];
        t.m += pair->c_top[j] * m[j];
        t.h += pair->dc[j] * fabs(h[j]);
    }
    return t;
}

void hb_ref_scan_row(const struct hb_ref_scan *s, const struct hb_ref_feed *feed,
                     const struct hb_ref_decay *decay, const struct hb_ref_pair *pair) {
    const double u = HB_REF_U32, ky = s->rates.ky, skip = feed->skip;
    struct hb_ref_box *box = s->box;
    const double x_top = fabs(feed->x) + feed->dx;
    double *reach = &box->reach[feed->i];
    *reach += (1.0 + fabs(feed->dt)) * (1.0 + x_top) * (1.0 + pair->b_max);
    *reach = *reach <= (double)FLT_MAX ? *reach : (double)INFINITY;
    const struct sums t = advance(s, feed, decay, pair);
    const double skip_m = fabs(skip) * x_top;
    double e = (1.0 + ky) * t.r + (ky + u) * t.m + t.h + 4.0 * u * skip_m + fabs(skip) * feed->dx;
    e += u * e + (s->d.state_size + 4.0) * s->rates.op_floor * (1.0 + pair->c_max) * *reach;
    if (!(t.m + skip_m + e <= (double)FLT_MAX)) {
        e = (double)INFINITY;
    }
    box->y[feed->i] = t.y + skip * feed->x;
    box->my[feed->i] = t.m + skip_m;
    box->dy[feed->i] = hb_ref_stored(&s->rates, box->y[feed->i], e);
}

/* The chunk form sums the terms of this call in another order; each is rounded once by kstate, when
 * the state leaves the call. */
static void fold_sums(const struct hb_ref_scan *s, struct hb_ref_state *state) {
    const double ks = s->rates.kstate;
    for (int64_t i = 0; i < s->d.n_state && ks > 0.0; i++) {
        state->r[i] += ks * (s->box->m0[i] + state->r[i]);
    }
}

void hb_ref_scan_token(struct hb_ref_scan *s, int32_t t, const struct hb_ref_window *window) {
    const struct hb_ref_call *call = s->call;
    const int64_t inner = s->d.d_inner, at = t * inner;
    struct hb_ref_state *state = &s->box->state;
    hb_ref_gate_norm(call->config, &s->rates, call->params->norm_weight,
                     (double)call->config->norm_eps, s->box, call->out + at,
                     call->bound ? call->bound + at : s->box->sink,
                     call->mag ? call->mag + at : s->box->sink + inner);
    state->ring_pos = state->ring_pos + 1 < s->d.chunk ? state->ring_pos + 1 : 0;
    state->n_tokens++;
    s->rates.ky = hb_ref_ky(call->config, &s->rates, state->n_tokens);
    if (call->at != NULL && t + 1 == call->at_tokens) {
        hb_ref_state_copy(call->config, call->at, state);
        fold_sums(s, call->at);
        if (window != NULL) {
            hb_ref_window_store(&s->d, window, call->at->conv);
        }
    }
}

void hb_ref_scan_end(const struct hb_ref_scan *s, const struct hb_ref_window *window) {
    struct hb_ref_state *state = &s->box->state;
    if (window != NULL) {
        hb_ref_window_store(&s->d, window, state->conv);
    }
    fold_sums(s, state);
    for (int64_t i = 0; i < s->d.n_state && s->rates.u_st > 0.0; i++) {
        state->r[i] = hb_ref_rounded(state->h[i], state->r[i] + HB_REF_TINY, s->rates.u_st, 0.0);
    }
}
