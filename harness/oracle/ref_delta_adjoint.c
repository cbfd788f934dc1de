/* SPDX-License-Identifier: Apache-2.0
 * Errors of the delta rule followed backwards: what a linear function of the state (an output, a
 * prediction, an element) still sees of the rounding of each earlier token. Tighter than the norm
 * of a column where channels decay at different speeds; README.md, "Delta rule". */
#include "harness/oracle/ref_delta.h"

enum { LENGTH = 64, WEIGHTS = 5 };

/* k, dk, a [H, LENGTH, N], beta [H, LENGTH], five of [H, LENGTH, P], two lists of weights, p, z. */
double hb_ref_delta_trail_work(const struct hb_ref_dims *d) {
    const double length = (double)LENGTH, rows = d->heads * length;
    return rows * (3.0 * d->state_size + 1.0 + 5.0 * d->head_dim) + 2.0 * length * (double)WEIGHTS +
           d->state_size + (double)d->d_inner;
}

static double *take(double **at, int64_t n) {
    double *p = *at;
    *at += n;
    return p;
}

void hb_ref_delta_trail_begin(struct hb_ref_delta *k, double **at) {
    struct hb_ref_delta_trail *t = &k->trail;
    const int64_t rows = (int64_t)k->d.heads * LENGTH;
    const int64_t n = k->d.state_size, p = k->d.head_dim;
    t->at = 0;
    t->held = 0;
    t->k = take(at, rows * n);
    t->dk = take(at, rows * n);
    t->a = take(at, rows * n);
    t->beta = take(at, rows);
    t->local = take(at, rows * p);
    t->size = take(at, rows * p);
    t->round = take(at, rows * p);
    t->lost = take(at, rows * p);
    t->before = take(at, rows * p);
    t->to_key = take(at, (int64_t)LENGTH * WEIGHTS);
    t->to_query = take(at, (int64_t)LENGTH * WEIGHTS);
    t->p = take(at, n);
    t->z = take(at, k->d.d_inner);
    for (int64_t i = 0; i < k->d.d_inner; i++) {
        t->z[i] = 0.0;
    }
}

/* Row of the token `back` tokens before place `at`. */
static int64_t row_of(const struct hb_ref_delta_trail *t, int32_t head, int32_t back) {
    const int32_t i = t->at - back;
    return (int64_t)head * LENGTH + (i < 0 ? i + LENGTH : i);
}

static double norm_of(const double *x, int32_t n) {
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    return sqrt(sum);
}

/* From p over the state after the token at `first`, back to the oldest held: per token the weights
 * of an error of d, of one of k (per |d|), of the sum, of the decay, and of the error before the
 * token. E_t = (I - beta k k^T) diag(a) E_(t-1) + ..., so p becomes a (p - beta (p k) k). */
static int32_t go_back(const struct hb_ref_delta *k, int32_t head, int32_t first, int32_t last,
                       double *w) {
    const struct hb_ref_delta_trail *t = &k->trail;
    const int32_t n = k->d.state_size;
    double *p = t->p;
    int32_t count = 0;
    double size = norm_of(p, n);
    const double enough = size * 0x1p-60;
    for (int32_t back = first; back <= last && size > enough; back++, count++, w += WEIGHTS) {
        const int64_t row = row_of(t, head, back);
        const double *key = t->k + row * n, *dk = t->dk + row * n, *a = t->a + row * n;
        double pk = 0.0, pd = 0.0, rest = 0.0;
        for (int32_t i = 0; i < n; i++) {
            pk += p[i] * key[i];
            pd += fabs(p[i]) * dk[i];
        }
        const double factor = t->beta[row] * pk;
        w[0] = fabs(pk);
        w[1] = pd;
        w[2] = size;
        for (int32_t i = 0; i < n; i++) {
            const double r = p[i] - factor * key[i];
            rest += r * r;
            p[i] = r * a[i];
        }
        size = norm_of(p, n);
        w[3] = sqrt(rest);
        w[4] = size;
    }
    return count;
}

/* Least bound over the tokens at which the way back may end in the norm of what was before. */
static double weigh(const struct hb_ref_delta_trail *t, int32_t head, int32_t first, int32_t count,
                    const double *w, int32_t width, int32_t p, double limit, double extra) {
    double sum = extra, best = limit;
    for (int32_t i = 0; i < count && sum < best; i++, w += WEIGHTS) {
        const int64_t at = row_of(t, head, first + i) * width + p;
        sum += w[0] * t->local[at] + w[1] * t->size[at] + w[2] * t->round[at] + w[3] * t->lost[at];
        const double all = sum + w[4] * t->before[at];
        best = all < best ? all : best;
    }
    return best;
}

void hb_ref_delta_trail_head(struct hb_ref_delta *k, int32_t head,
                             const struct hb_ref_delta_head *s) {
    struct hb_ref_delta_trail *t = &k->trail;
    const int32_t n = k->d.state_size;
    const int32_t last = t->held < LENGTH - 1 ? t->held : LENGTH - 1;
    const int64_t row = row_of(t, head, 0);
    for (int32_t i = 0; i < n; i++) {
        t->k[row * n + i] = s->k.x[i];
        t->dk[row * n + i] = s->k.dx[i];
        t->a[row * n + i] = s->a[i];
        t->p[i] = s->k.x[i] * s->a[i];
    }
    t->beta[row] = s->beta;
    t->n_key = go_back(k, head, 1, last, t->to_key);
    for (int32_t i = 0; i < n; i++) {
        t->p[i] = s->q.x[i];
    }
    t->n_query = go_back(k, head, 0, last, t->to_query);
}

double hb_ref_delta_trail_key(const struct hb_ref_delta *k, const struct hb_ref_delta_head *s,
                              const struct hb_ref_delta_col *c, double moved) {
    const struct hb_ref_delta_trail *t = &k->trail;
    const double extra = s->k.norm * (c->lost + c->z_moved);
    return weigh(t, c->head, 1, t->n_key, t->to_key, k->d.head_dim, c->p, s->k.norm * moved, extra);
}

double hb_ref_delta_trail_query(struct hb_ref_delta *k, const struct hb_ref_delta_head *s,
                                const struct hb_ref_delta_col *c) {
    struct hb_ref_delta_trail *t = &k->trail;
    const int64_t at = row_of(t, c->head, 0) * k->d.head_dim + c->p;
    t->local[at] = c->local;
    t->size[at] = c->d_size;
    t->round[at] = c->round;
    t->lost[at] = c->lost;
    t->before[at] = c->before;
    t->z[(int64_t)c->head * k->d.head_dim + c->p] = c->z;
    return weigh(t, c->head, 0, t->n_query, t->to_query, k->d.head_dim, c->p, s->q.norm * c->e,
                 s->q.norm * c->z);
}

void hb_ref_delta_trail_spoil(struct hb_ref_delta *k, const struct hb_ref_delta_col *c) {
    struct hb_ref_delta_trail *t = &k->trail;
    t->local[row_of(t, c->head, 0) * k->d.head_dim + c->p] = (double)INFINITY;
}

void hb_ref_delta_trail_next(struct hb_ref_delta *k) {
    struct hb_ref_delta_trail *t = &k->trail;
    t->at = t->at + 1 < LENGTH ? t->at + 1 : 0;
    t->held = t->held < LENGTH ? t->held + 1 : LENGTH;
}

void hb_ref_delta_trail_state(struct hb_ref_delta *k, const double *norms, double *bounds) {
    struct hb_ref_delta_trail *t = &k->trail;
    const int32_t n = k->d.state_size, width = k->d.head_dim;
    for (int32_t head = 0; head < k->d.heads; head++) {
        for (int32_t c = 0; c < n; c++) {
            for (int32_t i = 0; i < n; i++) {
                t->p[i] = i == c ? 1.0 : 0.0;
            }
            const int32_t count = go_back(k, head, 1, t->held, t->to_key);
            for (int32_t p = 0; p < width; p++) {
                const int64_t i = (int64_t)head * width + p;
                bounds[i * n + c] =
                    weigh(t, head, 1, count, t->to_key, width, p, norms[i * n], t->z[i]);
            }
        }
    }
}
