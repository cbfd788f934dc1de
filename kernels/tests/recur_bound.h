/* SPDX-License-Identifier: Apache-2.0
 * The recurrence whose state elements each obey h' = e^-th h + in, y = scale sum_n out h' + skip,
 * in double arithmetic with the bound of tolerance.md 3.2. A kind's term says what th, in and out
 * are, with their errors. */
#ifndef HB_KERNELS_TESTS_RECUR_BOUND_H
#define HB_KERNELS_TESTS_RECUR_BOUND_H

#include "kernels/tests/recur_rig.h"

/* Step size of a raw one (its bias added) and its error, tolerance.md 3.1. */
static inline double step_size(double raw, int32_t softplus, int32_t clamp, float lo, float hi,
                               double *error) {
    double dt = raw;
    *error = U32 * fabs(raw);
    if (softplus) {
        dt = (raw > 0 ? raw : 0) + log1p(exp(-fabs(raw)));
        *error = *error / (1 + exp(-raw)) * (1 + 1.0 / 1024) + 4 * U32 * dt +
                 (raw >= 19.9 ? exp(-raw) : 0);
    }
    if (clamp != HB_DT_CLAMP_NONE && dt < (double)lo) {
        dt = (double)lo;
    }
    if (clamp == HB_DT_CLAMP_LIMIT && dt > (double)hi) {
        dt = (double)hi;
    }
    return dt;
}

struct element {
    double h, m, r, f;
};

/* The factors of a step: they change with th and the window only. */
struct factors {
    double th, eta, window;
    double decay, growth, window_error;
};

static inline struct term term_at(const struct recur_case *c, int32_t row, int32_t t, int32_t head,
                                  int32_t p, int32_t n) {
    return c->term(c, (size_t)(c->qsl[row] + t), head, p, n);
}

/* th summed over the last C tokens that end at t; chunked kinds have one for all p and n */
static inline double window_sum(const struct recur_case *c, int32_t row, int32_t t, int32_t head) {
    double sum = 0;
    for (int32_t k = t; k >= 0 && k > t - c->s.chunk && c->is_chunked; k--) {
        sum += fabs(term_at(c, row, k, head, 0, 0).th);
    }
    return sum;
}

static inline void set_factors(const struct recur_case *c, struct factors *f,
                               const struct term *x) {
    if (f->th != x->th || f->eta != x->eta) {
        const double gq = c->is_chunked ? gam(c->s.chunk, U32) : 0;
        f->th = x->th;
        f->eta = x->eta;
        f->decay = exp(-x->th);
        f->growth = expm1(x->eta + 2 * gq * fabs(x->th) + E_EXP + 3 * U32);
        f->window_error = expm1(2 * gq * f->window);
    }
}

static inline void step_element(struct element *e, const struct term *x, const struct factors *f) {
    const double u = fabs(x->in);
    const double a = f->decay;
    e->r = a * (e->r + e->f + f->growth * (e->m + e->r)) + u * 4 * U32 + x->din +
           FLOOR * (e->m + u + 1);
    e->m = a * e->m + u;
    e->f = u * f->window_error;
    e->h = a * e->h + x->in;
}

static inline double sum_constant(const struct recur_case *c) {
    return c->is_chunked ? gam(c->s.n + 2 * c->s.chunk + 8, U32) : gam(c->s.n + 2, U32);
}

static inline void expect_state(struct recur_case *c, const struct element *e, int32_t slot,
                                int32_t head, int32_t p) {
    const double ky = sum_constant(c);
    for (int32_t n = 0; n < c->s.n; n++) {
        const size_t at = state_index(c, slot, head, p, n);
        const double r = (1 + ky) * e[n].r + ky * e[n].m + FLOOR;
        c->want_pool[at] = e[n].h;
        c->bound_pool[at] = r + u_of(c->s.state_dtype) * (fabs(e[n].h) + r);
    }
}

/* One token: advances the elements and sets want and bound of y. */
static inline void expect_token(struct recur_case *c, struct element *e, int32_t row, int32_t t,
                                int32_t head, int32_t p) {
    struct factors f = {.th = NAN, .window = window_sum(c, row, t, head)};
    double y = 0, mag = 0, err = 0;
    for (int32_t n = 0; n < c->s.n; n++) {
        const struct term x = term_at(c, row, t, head, p, n);
        set_factors(c, &f, &x);
        step_element(&e[n], &x, &f);
        y += x.out * e[n].h;
        mag += fabs(x.out) * e[n].m;
        err += fabs(x.out) * e[n].r + x.dout * (fabs(e[n].h) + e[n].r);
    }
    const double ky = sum_constant(c);
    const double scaling = c->scale == 1 ? 0 : 2 * U32; /* the scale and its product */
    const size_t token = (size_t)(c->qsl[row] + t);
    const size_t at = (token * (size_t)c->s.heads + (size_t)head) * (size_t)c->s.p + (size_t)p;
    const double skip = c->skip ? c->skip[at] : 0;
    err = fabs(c->scale) * ((1 + ky) * err + (ky + scaling) * mag) + 3 * U32 * fabs(skip) +
          U32 * (fabs(c->scale) * mag + fabs(skip));
    c->want[at] = c->scale * y + skip;
    c->bound[at] =
        err + u_of(c->s.act_dtype) * (fabs(c->want[at]) + err) + floor_of(c->s.act_dtype);
}

static inline void expect_row(struct recur_case *c, int32_t row, int32_t head, int32_t p) {
    const int32_t len = c->qsl[row + 1] - c->qsl[row];
    struct element e[HB_MAX_STATE_SIZE] = {{0}};
    for (int32_t n = 0; n < c->s.n && c->has_init[row]; n++) {
        e[n].h = c->pool.wide[state_index(c, c->slots[row], head, p, n)];
        e[n].m = fabs(e[n].h);
    }
    for (int32_t t = 0; t < len; t++) {
        expect_token(c, e, row, t, head, p);
        if (c->after[row] == t + 1) {
            expect_state(c, e, c->dst[row], head, p);
        }
    }
    expect_state(c, e, c->slots[row], head, p);
}

static inline void expect_elements(struct recur_case *c) {
    expect_unchanged(c);
    for (int32_t i = 0; i < N_ROWS * c->s.heads * c->s.p; i++) {
        const int32_t row = i / (c->s.heads * c->s.p);
        if (c->slots[row] >= 0 && c->qsl[row + 1] > c->qsl[row]) {
            expect_row(c, row, i / c->s.p % c->s.heads, i % c->s.p);
        }
    }
}

#endif
