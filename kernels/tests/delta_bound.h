/* SPDX-License-Identifier: Apache-2.0
 * The recurrence of the delta rule in double arithmetic with the bounds of
 * tolerance.md 3.3 (by tokens) and 3.4 (in chunks, for a substitution that solves for n itself):
 * per value column the error of a state is held in the 2-norm. */
#ifndef HB_KERNELS_TESTS_DELTA_BOUND_H
#define HB_KERNELS_TESTS_DELTA_BOUND_H

#include "kernels/tests/recur_rig.h"

enum { MAX_N = 256, MAX_P = 16, MAX_Q = 64 };
enum { QKV, GATES, RATES, BIAS };

/* One token of one head: normalised q and k, log decays of the channels, with their errors. */
struct token {
    double q[MAX_N], k[MAX_N], g[MAX_N], eta[MAX_N], v[MAX_P];
    double beta, dbeta, nq, nk;
};

/* State of one head: columns p, and a bound of each column's error in the 2-norm. */
struct columns {
    double h[MAX_N][MAX_P], e[MAX_P];
};

static inline size_t delta_dim(const struct shape *s) {
    return 2 * (size_t)(s->groups * s->n) + (size_t)(s->heads * s->p);
}

static inline size_t gates_width(const struct shape *s) {
    return (size_t)s->heads * (s->is_kda ? (size_t)s->n + 1 : 2);
}

static inline double sigmoid64(double x) {
    return 1 / (1 + exp(-x));
}

static inline double error_of_norm(const struct recur_case *c) {
    return c->args.delta.l2norm == HB_L2_OFF ? 0 : gam(c->s.n / 2.0 + 4, U32);
}

/* Normalises x [n] in place (ops-delta.md 5); returns the norm after that. */
static inline double normalise(const struct recur_case *c, double *x) {
    double sum = 0;
    for (int32_t i = 0; i < c->s.n; i++) {
        sum += x[i] * x[i];
    }
    double norm = 1;
    if (c->args.delta.l2norm == HB_L2_ADD_EPS) {
        norm = sqrt(sum + 1e-6);
    } else if (c->args.delta.l2norm == HB_L2_MAX_EPS) {
        norm = sqrt(sum) > 1e-6 ? sqrt(sum) : 1e-6;
    }
    for (int32_t i = 0; i < c->s.n; i++) {
        x[i] /= norm;
    }
    return sqrt(sum) / norm;
}

/* Log decay of a channel and its error, tolerance.md 3.1. */
static inline void open_gate(const struct recur_case *c, double a, double rate, double *g,
                             double *eta) {
    const double da = U32 * fabs(a);
    if (c->args.delta.gate_form == HB_GATE_LOWER_BOUND) {
        const double bound = (double)c->args.delta.gate_bound;
        *g = bound * sigmoid64(-rate * a);
        *eta = fabs(bound) / 4 * fabs(rate * a) * (E_EXP + 3 * U32) + 6 * U32 * fabs(*g);
        return;
    }
    double x = a;
    double dx = da;
    if (c->args.delta.gate_softplus) {
        x = (a > 0 ? a : 0) + log1p(exp(-fabs(a)));
        dx = da * sigmoid64(a) * (1 + 1.0 / 1024) + 4 * U32 * x + (a >= 19.9 ? exp(-a) : 0);
    }
    *g = rate * x;
    *eta = fabs(rate) * dx + fabs(*g) * U32;
}

static inline void open_token(const struct recur_case *c, size_t token, int32_t head,
                              struct token *t) {
    const struct shape *s = &c->s;
    const int32_t group =
        c->args.delta.head_map == HB_HEADS_TILE ? head % s->groups : head / (s->heads / s->groups);
    const double *q = c->input[QKV].wide + token * delta_dim(s) + group * s->n;
    const double *v =
        c->input[QKV].wide + token * delta_dim(s) + 2 * s->groups * s->n + head * s->p;
    const double *gates = c->input[GATES].wide + token * gates_width(s);
    for (int32_t n = 0; n < s->n; n++) {
        const int32_t at = s->is_kda ? head * s->n + n : head;
        const double bias = c->args.delta.dt_bias ? c->input[BIAS].wide[at] : 0;
        t->q[n] = q[n];
        t->k[n] = q[s->groups * s->n + n];
        open_gate(c, gates[at] + bias, c->input[RATES].wide[head], &t->g[n], &t->eta[n]);
    }
    for (int32_t p = 0; p < s->p; p++) {
        t->v[p] = v[p];
    }
    const double b = gates[(s->is_kda ? s->heads * s->n : s->heads) + head];
    t->beta = c->args.delta.beta_form == HB_BETA_RAW ? b : sigmoid64(b);
    t->beta *= c->args.delta.beta_form == HB_BETA_DOUBLE ? 2 : 1;
    t->dbeta = c->args.delta.beta_form == HB_BETA_RAW ? 0 : 6 * U32 * t->beta;
    t->nq = normalise(c, t->q);
    t->nk = normalise(c, t->k);
}

/* Largest decay and largest error of a log decay over the channels; growth of an error by the
 * update. */
static inline void amplification(const struct recur_case *c, const struct token *t, double *decay,
                                 double *eta, double *rho) {
    *decay = *eta = 0;
    for (int32_t n = 0; n < c->s.n; n++) {
        *decay = fmax(*decay, exp(t->g[n]));
        *eta = fmax(*eta, t->eta[n]);
    }
    *rho = fmax(1, fabs(1 - t->beta * t->nk * t->nk));
}

static inline void expect_state(struct recur_case *c, const struct columns *st, int32_t slot,
                                int32_t head) {
    for (int32_t i = 0; i < c->s.n * c->s.p; i++) {
        const int32_t n = i / c->s.p;
        const int32_t p = i % c->s.p;
        const size_t at = state_index(c, slot, head, p, n);
        c->want_pool[at] = st->h[n][p];
        c->bound_pool[at] =
            st->e[p] + u_of(c->s.state_dtype) * (fabs(st->h[n][p]) + st->e[p]) + FLOOR;
    }
}

static inline void expect_y(struct recur_case *c, size_t token, int32_t head, int32_t p,
                            double value, double error) {
    const size_t at = (token * (size_t)c->s.heads + (size_t)head) * (size_t)c->s.p + (size_t)p;
    c->want[at] = value;
    c->bound[at] = error + u_of(c->s.act_dtype) * (fabs(value) + error) + floor_of(c->s.act_dtype);
}

/* tolerance.md 3.3, one column of one token. */
static inline void step_column(struct recur_case *c, const struct token *t, struct columns *st,
                               size_t token, int32_t head, int32_t p) {
    const int32_t n_n = c->s.n;
    const double en = error_of_norm(c);
    const double sums = gam(n_n + 4, U32);
    const double scale = (double)c->args.delta.qk_scale;
    double decay, eta, rho;
    double norm = 0, prediction = 0, size = 0, norm_new = 0, y = 0, mag = 0;
    amplification(c, t, &decay, &eta, &rho);
    for (int32_t n = 0; n < n_n; n++) {
        norm += st->h[n][p] * st->h[n][p];
        st->h[n][p] *= exp(t->g[n]);
        prediction += t->k[n] * st->h[n][p];
        size += fabs(t->k[n] * st->h[n][p]);
    }
    const double ra = expm1(eta + E_EXP + U32);
    const double e = decay * (st->e[p] + ra * (sqrt(norm) + st->e[p])) + FLOOR;
    const double rest = t->v[p] - prediction;
    const double d = t->beta * rest;
    const double terms = (sums + en) * size + 2 * U32 * (fabs(t->v[p]) + fabs(prediction));
    const double dl = fabs(t->beta) * terms + (t->dbeta + 2 * U32 * fabs(t->beta)) * fabs(rest);
    for (int32_t n = 0; n < n_n; n++) {
        st->h[n][p] += t->k[n] * d;
        norm_new += st->h[n][p] * st->h[n][p];
        y += t->q[n] * st->h[n][p];
        mag += fabs(t->q[n] * st->h[n][p]);
    }
    st->e[p] = rho * e + t->nk * (dl + fabs(d) * (en + 2 * U32)) + U32 * sqrt(norm_new);
    const double error = t->nq * st->e[p] * (1 + sums) + (sums + en + 3 * U32) * mag;
    expect_y(c, token, head, p, scale * y, fabs(scale) * error);
}

/* ---- chunks ---- */

struct chunk_case {
    struct token t[MAX_Q];
    double sum[MAX_Q][MAX_N], eta[MAX_Q][MAX_N]; /* from the chunk's start */
    double w[MAX_Q][MAX_Q], dw[MAX_Q][MAX_Q];    /* W of ops-delta.md 1.4 without beta */
    double pairs[MAX_Q][MAX_Q], dpairs[MAX_Q][MAX_Q];
    double inverse[MAX_Q][MAX_Q]; /* |(I + A)^-1| */
    double grow[MAX_Q + 1];       /* of an error at the start, before token i */
};

/* Relative error of exp(G_i - G_j); j < 0: of exp(G_i). */
static inline double decay_error(const struct recur_case *c, const struct chunk_case *k, int32_t i,
                                 int32_t j, int32_t n) {
    const double before = j < 0 ? 0 : k->sum[j][n];
    const double eta = k->eta[i][n] - (j < 0 ? 0 : k->eta[j][n]);
    if (i == j) {
        return 0;
    }
    return expm1(eta + gam(c->s.chunk, U32) * (fabs(k->sum[i][n]) + fabs(before)) +
                 U32 * fabs(k->sum[i][n] - before) + E_EXP);
}

/* |(I + A)^-1| by columns. */
static inline void invert(struct chunk_case *k, int32_t len) {
    for (int32_t j = 0; j < len; j++) {
        for (int32_t i = j; i < len; i++) {
            double sum = i == j ? 1 : 0;
            for (int32_t r = j; r < i; r++) {
                sum -= k->t[i].beta * k->w[i][r] * k->inverse[r][j];
            }
            k->inverse[i][j] = sum;
        }
    }
    for (int32_t i = 0; i < len; i++) {
        for (int32_t j = 0; j <= i; j++) {
            k->inverse[i][j] = fabs(k->inverse[i][j]);
        }
    }
}

static inline void open_chunk(const struct recur_case *c, struct chunk_case *k, size_t first,
                              int32_t len, int32_t head) {
    const double own = gam(c->s.n + 4, U32) + 2 * error_of_norm(c) + 8 * U32;
    k->grow[0] = 1;
    for (int32_t i = 0; i < len; i++) {
        double decay, eta, rho;
        open_token(c, first + (size_t)i, head, &k->t[i]);
        amplification(c, &k->t[i], &decay, &eta, &rho);
        k->grow[i + 1] = k->grow[i] * decay * rho;
        for (int32_t n = 0; n < c->s.n; n++) {
            k->sum[i][n] = k->t[i].g[n] + (i > 0 ? k->sum[i - 1][n] : 0);
            k->eta[i][n] = k->t[i].eta[n] + (i > 0 ? k->eta[i - 1][n] : 0);
        }
        for (int32_t j = 0; j <= i; j++) {
            k->w[i][j] = k->dw[i][j] = k->pairs[i][j] = k->dpairs[i][j] = 0;
            for (int32_t n = 0; n < c->s.n; n++) {
                const double decayed = k->t[j].k[n] * exp(k->sum[i][n] - k->sum[j][n]);
                const double error = decay_error(c, k, i, j, n) + own;
                k->w[i][j] += k->t[i].k[n] * decayed;
                k->dw[i][j] += fabs(k->t[i].k[n] * decayed) * error;
                k->pairs[i][j] += k->t[i].q[n] * decayed;
                k->dpairs[i][j] += fabs(k->t[i].q[n] * decayed) * error;
            }
        }
    }
    invert(k, len);
}

/* n of one column and a bound of its error: residuals of the rows, through |(I + A)^-1|. */
static inline void solve_column(const struct recur_case *c, const struct chunk_case *k,
                                const struct columns *st, int32_t len, int32_t p, double *n_of,
                                double *dn) {
    double residual[MAX_Q];
    const double own = gam(c->s.n + 4, U32) + error_of_norm(c) + 2 * U32;
    const double solving = gam(c->s.chunk + 6, U32);
    for (int32_t i = 0; i < len; i++) {
        const struct token *t = &k->t[i];
        double rest = t->v[p];
        double size = fabs(t->v[p]);
        residual[i] = 4 * U32 * size;
        for (int32_t n = 0; n < c->s.n; n++) {
            const double term = st->h[n][p] * t->k[n] * exp(k->sum[i][n]);
            rest -= term;
            size += fabs(term);
            residual[i] += fabs(term) * (own + decay_error(c, k, i, -1, n) + 4 * U32);
        }
        for (int32_t j = 0; j < i; j++) {
            rest -= k->w[i][j] * n_of[j];
            size += fabs(k->w[i][j] * n_of[j]);
            residual[i] += (k->dw[i][j] + solving * fabs(k->w[i][j])) * fabs(n_of[j]);
        }
        n_of[i] = t->beta * rest;
        residual[i] = fabs(t->beta) * (residual[i] + solving * size) +
                      (t->dbeta + 2 * U32 * fabs(t->beta)) * fabs(rest);
    }
    for (int32_t i = 0; i < len; i++) {
        double amplified = 0;
        dn[i] = 0;
        for (int32_t j = 0; j <= i; j++) {
            dn[i] += 1.02 * k->inverse[i][j] * residual[j];
            for (int32_t r = 0; r < j; r++) {
                amplified += k->inverse[i][j] * fabs(k->t[j].beta) *
                             (k->dw[j][r] + solving * fabs(k->w[j][r]));
            }
        }
        assert_true(amplified < 0.01); /* the second order is in the 1.02 */
    }
}

static inline void expect_outputs(struct recur_case *c, const struct chunk_case *k,
                                  const struct columns *st, size_t first, int32_t len, int32_t head,
                                  int32_t p, const double *n_of, const double *dn) {
    const double own = gam(c->s.n + 4, U32) + error_of_norm(c) + 2 * U32;
    const double sums = gam(c->s.chunk + 6, U32);
    const double scale = (double)c->args.delta.qk_scale;
    for (int32_t i = 0; i < len; i++) {
        double y = 0, size = 0;
        double error = k->t[i].nq * k->grow[i + 1] * st->e[p];
        for (int32_t n = 0; n < c->s.n; n++) {
            const double term = st->h[n][p] * k->t[i].q[n] * exp(k->sum[i][n]);
            y += term;
            size += fabs(term);
            error += 1.01 * fabs(term) * (own + decay_error(c, k, i, -1, n));
        }
        for (int32_t j = 0; j <= i; j++) {
            y += k->pairs[i][j] * n_of[j];
            size += fabs(k->pairs[i][j] * n_of[j]);
            error += 1.01 * (k->dpairs[i][j] * fabs(n_of[j]) + fabs(k->pairs[i][j]) * dn[j]);
        }
        error = fabs(scale) * (error + (sums + 3 * U32) * size);
        expect_y(c, first + (size_t)i, head, p, scale * y, error);
    }
}

static inline void advance_column(const struct recur_case *c, const struct chunk_case *k,
                                  struct columns *st, int32_t len, int32_t p, const double *n_of,
                                  const double *dn) {
    const int32_t last = len - 1;
    const double own = error_of_norm(c) + gam(c->s.chunk + 8, U32);
    double squares = 0; /* of the errors of the elements, each summed over its terms */
    for (int32_t n = 0; n < c->s.n; n++) {
        double h = st->h[n][p] * exp(k->sum[last][n]);
        double error = fabs(h) * (decay_error(c, k, last, -1, n) + own);
        for (int32_t j = 0; j < len; j++) {
            const double key = k->t[j].k[n] * exp(k->sum[last][n] - k->sum[j][n]);
            h += key * n_of[j];
            error += fabs(key) *
                     (dn[j] + (fabs(n_of[j]) + dn[j]) * (own + decay_error(c, k, last, j, n)));
        }
        st->h[n][p] = h;
        squares += error * error;
    }
    st->e[p] = k->grow[len] * st->e[p] + sqrt(squares) + FLOOR;
}

static inline void expect_chunk(struct recur_case *c, struct columns *st, size_t first, int32_t len,
                                int32_t head) {
    static struct chunk_case k;
    double n_of[MAX_Q], dn[MAX_Q];
    open_chunk(c, &k, first, len, head);
    for (int32_t p = 0; p < c->s.p; p++) {
        solve_column(c, &k, st, len, p, n_of, dn);
        expect_outputs(c, &k, st, first, len, head, p, n_of, dn);
        advance_column(c, &k, st, len, p, n_of, dn);
    }
}

/* ---- rows ---- */

static inline void open_state(const struct recur_case *c, struct columns *st, int32_t row,
                              int32_t head) {
    memset(st, 0, sizeof *st);
    for (int32_t i = 0; i < c->s.n * c->s.p && c->has_init[row]; i++) {
        st->h[i / c->s.p][i % c->s.p] =
            c->pool.wide[state_index(c, c->slots[row], head, i % c->s.p, i / c->s.p)];
    }
}

static inline void expect_row(struct recur_case *c, int32_t row, int32_t head) {
    static struct columns st;
    static struct token t;
    const int32_t len = c->qsl[row + 1] - c->qsl[row];
    const int32_t step = c->is_chunked ? c->s.chunk : 1;
    open_state(c, &st, row, head);
    for (int32_t t0 = 0; t0 < len; t0 += step) {
        const size_t first = (size_t)(c->qsl[row] + t0);
        const int32_t n = len - t0 < step ? len - t0 : step;
        if (c->is_chunked) {
            expect_chunk(c, &st, first, n, head);
        } else {
            open_token(c, first, head, &t);
            for (int32_t p = 0; p < c->s.p; p++) {
                step_column(c, &t, &st, first, head, p);
            }
        }
        if (c->after[row] == t0 + n) {
            expect_state(c, &st, c->dst[row], head);
        }
    }
    expect_state(c, &st, c->slots[row], head);
}

static inline void expect_delta(struct recur_case *c) {
    expect_unchanged(c);
    for (int32_t row = 0; row < N_ROWS; row++) {
        for (int32_t head = 0; head < c->s.heads && c->slots[row] >= 0; head++) {
            if (c->qsl[row + 1] > c->qsl[row]) {
                expect_row(c, row, head);
            }
        }
    }
}

#endif
