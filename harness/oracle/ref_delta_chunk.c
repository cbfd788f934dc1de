/* SPDX-License-Identifier: Apache-2.0
 * What a chunked evaluation of the delta rule (ops-delta.md 1.4) may add to the error of the
 * recurrence, for any grid of chunks of at most Q tokens. README.md, "Delta rule", derives it: the
 * triangular system is a residual of d, decay errors follow direct sums, nothing is fed back. */
#include "harness/oracle/ref_delta.h"

/* keys and th [H, Q, N], inverse [H, Q, Q], a [Q], x and rhs [H, Q, P], five of [H, P, N]. */
double hb_ref_delta_chunk_work(const struct hb_ref_dims *d) {
    const double q = d->chunk, h = d->heads;
    return h * q * (2.0 * d->state_size + q + 2.0 * d->head_dim) + q + 5.0 * (double)d->n_state;
}

static double *take(double **at, int64_t n) {
    double *p = *at;
    *at += n;
    return p;
}

void hb_ref_delta_chunk_begin(struct hb_ref_delta *k, double **at) {
    struct hb_ref_delta_chunk *c = &k->chunk;
    const struct hb_ref_dims *d = &k->d;
    const int64_t rows = (int64_t)d->heads * d->chunk;
    c->ring = d->chunk;
    c->at = 0;
    c->held = 1;
    c->token = 0;
    c->keys = take(at, rows * d->state_size);
    c->th = take(at, rows * d->state_size);
    c->inverse = take(at, rows * d->chunk);
    c->a = take(at, d->chunk);
    c->x = take(at, rows * d->head_dim);
    c->rhs = take(at, rows * d->head_dim);
    for (int32_t i = 0; i < 2; i++) {
        c->mass[i] = take(at, d->n_state);
        c->loss[i] = take(at, d->n_state);
    }
    c->fresh = take(at, d->n_state);
    for (int64_t i = 0; i < d->n_state; i++) {
        c->fresh[i] = 0.0;
    }
    for (int64_t i = 0; i < d->d_inner; i++) {
        double top = 0.0;
        for (int32_t n = 0; n < d->state_size; n++) {
            top = hb_ref_max(top, fabs(k->box->state.h[i * d->state_size + n]));
        }
        k->box->reach[i] = 1.0 + top;
    }
}

/* The token that was `back` tokens ago. */
static int32_t place(const struct hb_ref_delta_chunk *c, int32_t back) {
    const int32_t i = c->at - back;
    return i < 0 ? i + c->ring : i;
}

/* Rounding of the sums behind this token: `met` terms of a chunk. */
static void set_rates(struct hb_ref_delta *k) {
    const struct hb_profile *p = k->call->profile;
    const double n = k->d.state_size, met = k->chunk.held, one = p->u_op * (1.0 + p->k_in);
    k->own.gam_k = hb_ref_gam(n + met + 12.0, p->u_acc) + 2.0 * one;
    k->own.gam_q = hb_ref_gam(n + met + 12.0, p->u_acc) + 3.0 * one;
    k->own.solve = hb_ref_gam(n + 2.0 * met + 16.0, p->u_acc) + 4.0 * one;
    k->own.term = hb_ref_gam(met + 8.0, p->u_acc) + 2.0 * one;
}

/* Relative errors of the decays: per token, as in 3.2, with a second exponential where a decay per
 * channel is split around the middle of a block. */
static void head_decays(struct hb_ref_delta *k, int32_t head, struct hb_ref_delta_head *s) {
    struct hb_ref_delta_chunk *c = &k->chunk;
    const double u = HB_REF_U32, parts = k->is_kda ? 2.0 : 1.0;
    const int32_t n = k->d.state_size;
    double *ring = c->th + (int64_t)head * c->ring * n;
    s->rel_max = 0.0;
    for (int32_t i = 0; i < n; i++) {
        const double th = fabs(k->th[i]);
        double sum = th + k->eta[i];
        ring[(int64_t)c->at * n + i] = sum;
        for (int32_t back = 1; back < c->held; back++) {
            sum += ring[(int64_t)place(c, back) * n + i];
        }
        double e = k->eta[i] + parts * (k->rates.e_exp + 3.0 * u + u * th);
        k->ew[i] = 0.0;
        if (k->rates.gq > 0.0) {
            const double shift = 2.0 * k->rates.gq * sum;
            k->ew[i] = expm1(shift < 300.0 ? shift : 300.0);
            e += 2.0 * k->rates.gq * th;
        } else {
            e += k->rates.step_q * sum + u * th;
        }
        k->rel[i] = expm1(e < 300.0 ? e : 300.0);
        s->rel_max = hb_ref_max(s->rel_max, k->rel[i]);
    }
}

/* Row of A: beta k_i k_j D_ij for the tokens of the ring, and of T = (I + A)^-1, of which entry
 * (i, j) depends on the tokens j..i only, wherever the chunk starts. */
static void head_rows(struct hb_ref_delta *k, int32_t head, struct hb_ref_delta_head *s) {
    struct hb_ref_delta_chunk *c = &k->chunk;
    const int32_t n = k->d.state_size;
    double *keys = c->keys + (int64_t)head * c->ring * n;
    double *inverse = c->inverse + (int64_t)head * c->ring * c->ring;
    double *row = inverse + (int64_t)c->at * c->ring;
    for (int32_t back = 1; back < c->held; back++) {
        double *key = keys + (int64_t)place(c, back) * n;
        double sum = 0.0;
        for (int32_t i = 0; i < n; i++) {
            key[i] *= s->a[i];
            sum += s->k.x[i] * key[i];
        }
        c->a[place(c, back)] = s->beta * sum;
    }
    for (int32_t i = 0; i < n; i++) {
        keys[(int64_t)c->at * n + i] = s->k.x[i];
    }
    for (int32_t back = c->held - 1; back > 0; back--) {
        const int32_t j = place(c, back);
        double sum = 0.0;
        for (int32_t l = back; l > 0; l--) {
            sum -= c->a[place(c, l)] * inverse[(int64_t)place(c, l) * c->ring + j];
        }
        row[j] = sum;
        s->in_range = s->in_range && fabs(sum) < 0x1p60;
    }
    row[c->at] = 1.0;
}

void hb_ref_delta_chunk_head(struct hb_ref_delta *k, int32_t head, struct hb_ref_delta_head *s) {
    set_rates(k);
    head_decays(k, head, s);
    head_rows(k, head, s);
}

/* |I + A| |T| rhs of this token: what a relative rounding of the system is applied to. */
static double system_size(struct hb_ref_delta *k, int32_t head, int32_t p, double rhs) {
    struct hb_ref_delta_chunk *c = &k->chunk;
    const int64_t first = (int64_t)head * c->ring, width = k->d.head_dim;
    const double *row = c->inverse + (first + c->at) * c->ring;
    double x = rhs, sum = 0.0;
    for (int32_t back = 1; back < c->held; back++) {
        const int32_t j = place(c, back);
        x += fabs(row[j]) * c->rhs[(first + j) * width + p];
        sum += fabs(c->a[j]) * c->x[(first + j) * width + p];
    }
    c->rhs[(first + c->at) * width + p] = rhs;
    c->x[(first + c->at) * width + p] = x;
    return sum + x;
}

/* The arrays of direct sums that this token uses: the older restarted at least Q - 1 tokens ago, or
 * with the call; the other, if there is one, waits to become the older. */
struct sides {
    int32_t old, young; /* young: -1 if there is none */
};

static struct sides sides_of(const struct hb_ref_delta_chunk *c) {
    const int64_t turn = c->token / c->ring;
    const int32_t now = (int32_t)(turn & 1);
    const struct sides s = {turn == 0 ? 0 : 1 - now, turn == 0 ? -1 : now};
    return s;
}

static void restart(const struct hb_ref_delta *k, int64_t at, const double *h) {
    const struct hb_ref_delta_chunk *c = &k->chunk;
    const int32_t which = (int32_t)(c->token / c->ring & 1);
    if (c->token % c->ring != 0) {
        return;
    }
    for (int32_t i = 0; i < k->d.state_size; i++) {
        c->mass[which][at + i] = fabs(h[i]);
        c->loss[which][at + i] = 0.0;
    }
}

static void decay_young(const struct hb_ref_delta *k, const struct hb_ref_delta_head *s,
                        int32_t side, int64_t at) {
    const struct hb_ref_delta_chunk *c = &k->chunk;
    double *mass = c->mass[side] + at, *loss = c->loss[side] + at;
    for (int32_t i = 0; i < k->d.state_size; i++) {
        loss[i] = s->a[i] * (loss[i] + c->fresh[at + i] + s->rel[i] * (mass[i] + loss[i]));
        mass[i] *= s->a[i];
    }
}

/* What the decay of the direct sums gives. */
struct decayed {
    struct hb_ref_delta_sums t;
    double loss; /* sum of (|k|+dk) loss */
    double grow; /* norm of what the loss gained */
};

static struct decayed decay_column(const struct hb_ref_delta *k, const struct hb_ref_delta_head *s,
                                   double *h, double *mass, double *loss, const double *fresh) {
    struct decayed r = {0};
    double squares = 0.0, gained = 0.0;
    for (int32_t i = 0; i < k->d.state_size; i++) {
        const double x = s->a[i] * h[i], m = s->a[i] * mass[i], kt = fabs(s->k.x[i]) + s->k.dx[i];
        const double gain = s->a[i] * (fresh[i] + s->rel[i] * (mass[i] + loss[i]));
        h[i] = x;
        mass[i] = m;
        loss[i] = s->a[i] * loss[i] + gain;
        r.t.ks += s->k.x[i] * x;
        r.t.kabs += kt * m;
        r.t.dks += s->k.dx[i] * fabs(x);
        r.loss += kt * loss[i];
        squares += x * x;
        gained += gain * gain;
    }
    r.t.norm = sqrt(squares);
    r.grow = sqrt(gained);
    return r;
}

/* The new term in the state and in the direct sums, and the output. */
static void add_term(const struct hb_ref_delta *k, const struct hb_ref_delta_head *s, int64_t at,
                     double d, struct hb_ref_delta_col *c) {
    const struct hb_ref_delta_chunk *w = &k->chunk;
    const struct sides side = sides_of(w);
    double *mass = w->mass[side.old] + at, *loss = w->loss[side.old] + at;
    double *young = side.young >= 0 ? w->mass[side.young] + at : NULL;
    double squares = 0.0, dq = 0.0, lost = 0.0, sums = 0.0;
    for (int32_t i = 0; i < k->d.state_size; i++) {
        const double x = c->h[i] + s->k.x[i] * d, qt = fabs(s->q.x[i]) + s->q.dx[i];
        const double term = (fabs(s->k.x[i]) + s->k.dx[i]) * c->d_size;
        c->h[i] = x;
        mass[i] += term;
        w->fresh[at + i] = term * s->ew[i];
        if (young != NULL) {
            young[i] += term;
        }
        c->o += s->q.x[i] * x;
        c->mo += qt * fabs(x);
        dq += s->q.dx[i] * fabs(x);
        lost += qt * loss[i];
        sums += qt * mass[i];
        squares += x * x;
    }
    const double norm = sqrt(squares), tiny = HB_REF_TINY * (k->d.state_size + 8.0);
    const double floor_e = tiny * k->box->reach[at / k->d.state_size];
    c->e += k->own.term * (s->k.norm + s->k.dnorm) * c->d_size + 3.0 * HB_REF_U32 * (norm + c->e);
    c->e += floor_e;
    dq = dq < s->q.dnorm * norm ? dq : s->q.dnorm * norm;
    const double reach = (s->q.norm + s->q.dnorm) * c->e;
    c->eo = reach + dq + lost + k->own.gam_q * (sums + reach) + floor_e * (1.0 + s->q.norm);
    c->top = hb_ref_max(hb_ref_max(c->top, norm + c->e), sums);
}

void hb_ref_delta_chunk_column(struct hb_ref_delta *k, int32_t head, int32_t p,
                               const struct hb_ref_delta_head *s, struct hb_ref_delta_col *c) {
    struct hb_ref_delta_chunk *w = &k->chunk;
    const int64_t column = (int64_t)head * k->d.head_dim + p, at = column * k->d.state_size;
    const struct sides side = sides_of(w);
    restart(k, at, c->h);
    if (side.young >= 0) {
        decay_young(k, s, side.young, at);
    }
    struct decayed r =
        decay_column(k, s, c->h, w->mass[side.old] + at, w->loss[side.old] + at, w->fresh + at);
    const double beta = fabs(s->beta);
    const double size = system_size(k, head, p, beta * (fabs(c->v) + c->dv + r.t.kabs));
    r.t.moved = s->a_max * c->e * (1.0 + s->rel_max) + r.grow;
    r.t.extra = beta * r.loss + k->own.solve * size;
    const double d = hb_ref_delta_correct(k, s, &r.t, c);
    c->top = hb_ref_max(c->top, size);
    k->box->reach[column] += (1.0 + c->d_size) * (1.0 + s->k.norm);
    add_term(k, s, at, d, c);
}

void hb_ref_delta_chunk_next(struct hb_ref_delta *k) {
    struct hb_ref_delta_chunk *c = &k->chunk;
    c->token++;
    c->at = c->at + 1 < c->ring ? c->at + 1 : 0;
    c->held = c->held < c->ring ? c->held + 1 : c->ring;
}
