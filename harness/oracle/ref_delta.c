/* SPDX-License-Identifier: Apache-2.0
 * Gated DeltaNet and KDA, token by token in float64 (ops-delta.md 1 and 2), with the error of each
 * value column of the state bounded in the 2-norm (tolerance.md 3.3). README.md, "Delta rule",
 * derives the terms. */
#include "harness/oracle/ref_delta.h"

#include <string.h>

#define L2_EPS 1e-6
/* Products of two vectors with smaller norms are within the range of fp32. */
#define MOST_NORM 0x1p60

/* Doubles of both forms: qk, dqk, norms, th, eta, a, rel, ew. */
static double common_work(const struct hb_ref_dims *d) {
    return 4.0 * d->groups * d->state_size + 4.0 * d->groups + 5.0 * d->state_size;
}

double hb_ref_delta_work(const struct hb_config *config) {
    /* the sizes alone: hb_ref_dims_of would ask for the work again */
    const struct hb_ref_dims d = hb_ref_dims_of(config);
    return common_work(&d) + hb_ref_delta_chunk_work(&d);
}

static double *take(double **at, int64_t n) {
    double *p = *at;
    *at += n;
    return p;
}

static double square(double x) {
    return x * x;
}

/* --- vectors of the token
 * ------------------------------------------------------------------------- */

/* x / s of one vector [n], s by the variant; own: relative rounding of s and of the quotient. No
 * element of a normalised vector exceeds one. The norm of the error is at most |dx| / s:
 * normalising moves two points together (README). */
static void normalise(const struct hb_ref_delta *k, const double *x, const double *dx, double *y,
                      double *dy, double *norms) {
    const int32_t n = k->d.state_size, kind = k->config->l2norm;
    double sum = 0.0, moved = n * HB_REF_TINY, far = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
        moved += dx[i] * (2.0 * fabs(x[i]) + dx[i]);
        far += dx[i] * dx[i];
    }
    const double left = hb_ref_max(sum - moved, 0.0);
    double s = 1.0, low = 1.0, own = k->own.operand;
    if (kind == HB_L2_ADD_EPS) {
        s = sqrt(sum + L2_EPS);
        low = sqrt(left + L2_EPS);
    } else if (kind == HB_L2_MAX_EPS) {
        s = hb_ref_max(sqrt(sum), L2_EPS);
        low = hb_ref_max(sqrt(left), L2_EPS);
    }
    if (kind != HB_L2_OFF) {
        own += hb_ref_gam(n / 2.0 + 6.0, HB_REF_U32);
        own = sum + moved <= (double)FLT_MAX ? own : (double)INFINITY;
    }
    const double shift = 1.0 / low - 1.0 / s;
    double squares = 0.0, by_element = 0.0;
    for (int32_t i = 0; i < n; i++) {
        y[i] = x[i] / s;
        double e = dx[i] / s + (fabs(x[i]) + dx[i]) * shift;
        e = kind != HB_L2_OFF && e > fabs(y[i]) + 1.0 ? fabs(y[i]) + 1.0 : e;
        dy[i] = e + own * (fabs(y[i]) + e) + HB_REF_TINY;
        squares += y[i] * y[i];
        by_element += dy[i] * dy[i];
    }
    const double whole = sqrt(far) / low;
    norms[0] = sqrt(squares);
    norms[1] = whole + own * (norms[0] + whole) + HB_REF_TINY * n;
    norms[1] = norms[1] < sqrt(by_element) ? norms[1] : sqrt(by_element);
}

static void normalise_all(const struct hb_ref_delta *k) {
    for (int64_t i = 0; i < 2 * (int64_t)k->d.groups; i++) {
        const int64_t at = i * k->d.state_size;
        normalise(k, k->box->c + at, k->box->dc + at, k->qk + at, k->dqk + at, k->norms + 2 * i);
    }
}

static struct hb_ref_vec vec_of(const struct hb_ref_delta *k, int64_t i) {
    const int64_t at = i * k->d.state_size;
    const struct hb_ref_vec v = {k->qk + at, k->dqk + at, k->norms[2 * i], k->norms[2 * i + 1]};
    return v;
}

/* --- gates
 * ----------------------------------------------------------------------------------------- */

/* Log decay -th of one channel: A softplus(a + bias) as in 3.1, or L sigmoid(-A (a + bias)). */
static struct hb_ref_step decay_of(const struct hb_ref_delta *k, double rate, const float *bias,
                                   double raw) {
    const double u = HB_REF_U32;
    if (!k->is_kda || k->config->gate_form != HB_GATE_LOWER_BOUND) {
        const struct hb_ref_gate gate = {.rate = rate,
                                         .bias = bias,
                                         .softplus = k->config->dt_softplus,
                                         .clamp = HB_DT_CLAMP_NONE};
        return hb_ref_step_of(&gate, &k->rates, raw);
    }
    const double c = -rate * (raw + (bias ? (double)*bias : 0.0));
    const double bound = fabs((double)k->config->gate_bound);
    const struct hb_ref_silu g = hb_ref_sigmoid(c, 2.0 * u * fabs(c) + HB_REF_TINY, k->rates.e_exp);
    struct hb_ref_step s = {0};
    s.th = -(double)k->config->gate_bound * g.value;
    s.eta = bound * g.error + u * (fabs(s.th) + bound * g.error) + HB_REF_TINY;
    return s;
}

/* th, eta and a [N] of one head. */
static void load_decays(const struct hb_ref_delta *k, int32_t head) {
    const struct hb_layer_params *p = k->call->params;
    const int32_t n = k->d.state_size;
    const double rate = p->a ? (double)p->a[head] : -1.0;
    struct hb_ref_step s = {0};
    for (int32_t c = 0; c < n; c++) {
        if (c == 0 || k->is_kda) {
            const int64_t i = k->is_kda ? (int64_t)head * n + c : head;
            s = decay_of(k, rate, p->dt_bias ? p->dt_bias + i : NULL, k->box->dt[i]);
        }
        k->th[c] = s.th;
        k->eta[c] = s.eta;
        k->a[c] = exp(-s.th);
    }
}

static void load_beta(const struct hb_ref_delta *k, int32_t head, struct hb_ref_delta_head *s) {
    const int64_t decays = k->is_kda ? (int64_t)k->d.heads * k->d.state_size : k->d.heads;
    const double raw = k->box->dt[decays + head];
    s->beta = raw;
    s->dbeta = 0.0;
    if (k->config->beta_form != HB_BETA_RAW) {
        const double factor = k->config->beta_form == HB_BETA_DOUBLE ? 2.0 : 1.0;
        const struct hb_ref_silu g = hb_ref_sigmoid(raw, 0.0, k->rates.e_exp);
        s->beta = factor * g.value;
        s->dbeta = factor * g.error;
    }
    s->rho = hb_ref_max(1.0, fabs(1.0 - s->beta * square(s->k.norm)));
}

/* exp(-th) with its error as one factor per token. */
static void recurrence_head(const struct hb_ref_delta *k, struct hb_ref_delta_head *s) {
    const double u = HB_REF_U32;
    for (int32_t c = 0; c < k->d.state_size; c++) {
        const double e = k->eta[c] + k->rates.e_exp + 3.0 * u + u * fabs(k->th[c]);
        k->rel[c] = expm1(e < 300.0 ? e : 300.0);
        s->rel_max = hb_ref_max(s->rel_max, k->rel[c]);
        s->a_max = hb_ref_max(s->a_max, k->a[c]);
    }
}

/* --- one column
 * ------------------------------------------------------------------------------------ */

double hb_ref_delta_correct(const struct hb_ref_delta *k, const struct hb_ref_delta_head *s,
                            const struct hb_ref_delta_sums *t, struct hb_ref_delta_col *c) {
    const double u = HB_REF_U32, beta = fabs(s->beta);
    const double n_k = s->k.norm + s->k.dnorm;
    const double input = t->dks < s->k.dnorm * t->norm ? t->dks : s->k.dnorm * t->norm;
    const double seen = input + s->k.dnorm * t->moved; /* of k S, beyond k E */
    const double gap = fabs(c->v - t->ks), sizes = fabs(c->v) + c->dv + t->kabs + n_k * t->moved;
    const double rounded = k->own.gam_k * (t->kabs + n_k * t->moved) + 2.0 * u * sizes;
    double local = beta * (seen + c->dv + rounded);
    local += (s->dbeta + 2.0 * u * beta) * (gap + c->dv + seen + n_k * t->moved + rounded);
    local += t->extra + 4.0 * HB_REF_TINY * (1.0 + sizes);
    const double d = s->beta * (c->v - t->ks);
    c->d_size = fabs(d) + beta * s->k.norm * t->moved + local;
    c->e = s->rho * t->moved + s->k.norm * local + s->k.dnorm * c->d_size;
    c->top = hb_ref_max(sizes, c->d_size * (1.0 + n_k));
    return d;
}

static void recurrence_column(const struct hb_ref_delta *k, const struct hb_ref_delta_head *s,
                              struct hb_ref_delta_col *c) {
    const double u = HB_REF_U32;
    const int32_t n = k->d.state_size;
    const double *kx = s->k.x, *kdx = s->k.dx, *qx = s->q.x, *qdx = s->q.dx;
    struct hb_ref_delta_sums t = {0};
    double lost = 0.0, squares = 0.0;
    for (int32_t i = 0; i < n; i++) {
        const double x = s->a[i] * c->h[i], size = fabs(x);
        c->h[i] = x;
        t.ks += kx[i] * x;
        t.kabs += (fabs(kx[i]) + kdx[i]) * size;
        t.dks += kdx[i] * size;
        squares += x * x;
        lost += square(s->rel[i] * x);
    }
    t.norm = sqrt(squares);
    t.moved = s->a_max * c->e * (1.0 + s->rel_max) + sqrt(lost) + n * HB_REF_TINY;
    const double d = hb_ref_delta_correct(k, s, &t, c);
    double dq = 0.0;
    squares = 0.0;
    for (int32_t i = 0; i < n; i++) {
        const double x = c->h[i] + kx[i] * d, size = fabs(x);
        c->h[i] = x;
        c->o += qx[i] * x;
        c->mo += (fabs(qx[i]) + qdx[i]) * size;
        dq += qdx[i] * size;
        squares += x * x;
    }
    const double norm = sqrt(squares);
    c->e += u * (s->k.norm + s->k.dnorm) * c->d_size + u * (norm + c->e) + n * HB_REF_TINY;
    dq = dq < s->q.dnorm * norm ? dq : s->q.dnorm * norm;
    const double reach = (s->q.norm + s->q.dnorm) * c->e;
    c->eo = reach + dq + k->own.gam_q * (c->mo + reach) + n * HB_REF_TINY;
    c->top = hb_ref_max(c->top, norm + c->e);
}

/* --- one token
 * ------------------------------------------------------------------------------------- */

static int32_t group_of(const struct hb_ref_delta *k, int32_t head) {
    return k->config->head_map == HB_HEADS_TILE ? head % k->d.groups
                                                : head / (k->d.heads / k->d.groups);
}

static void finish_column(const struct hb_ref_delta *k, int64_t i, const struct hb_ref_delta_col *c,
                          double state_error) {
    const double scale = fabs(k->scale);
    double e = scale * (c->eo + 6.0 * HB_REF_U32 * (c->mo + c->eo)) + HB_REF_TINY;
    if (!(state_error <= DBL_MAX && c->mo + c->eo <= (double)FLT_MAX)) {
        e = (double)INFINITY;
    }
    k->box->y[i] = k->scale * c->o;
    k->box->my[i] = scale * c->mo;
    k->box->dy[i] = hb_ref_stored(&k->rates, k->box->y[i], e);
}

static void advance_head(struct hb_ref_delta *k, int32_t head) {
    const int32_t group = group_of(k, head);
    const int64_t at_v = 2 * (int64_t)k->d.groups * k->d.state_size;
    struct hb_ref_delta_head s = {.a = k->a, .rel = k->rel, .ew = k->ew};
    s.q = vec_of(k, group);
    s.k = vec_of(k, k->d.groups + group);
    s.in_range = s.q.norm + s.q.dnorm < MOST_NORM && s.k.norm + s.k.dnorm < MOST_NORM;
    load_decays(k, head);
    load_beta(k, head, &s);
    recurrence_head(k, &s);
    if (k->rates.chunked) {
        hb_ref_delta_chunk_head(k, head, &s);
    }
    for (int32_t p = 0; p < k->d.head_dim; p++) {
        const int64_t i = (int64_t)head * k->d.head_dim + p;
        double *e = k->box->state.f + i * k->d.state_size;
        struct hb_ref_delta_col c = {.v = k->box->c[at_v + i],
                                     .dv = k->box->dc[at_v + i],
                                     .h = k->box->state.h + i * k->d.state_size,
                                     .e = *e};
        if (k->rates.chunked) {
            hb_ref_delta_chunk_column(k, head, p, &s, &c);
        } else {
            recurrence_column(k, &s, &c);
        }
        /* what overflows once may stay in the state, and as inf or NaN in what is made of it */
        *e = c.top <= (double)FLT_MAX && s.in_range ? c.e : (double)INFINITY;
        finish_column(k, i, &c, *e);
    }
}

static void widen(const float *src, int64_t n, double *dst) {
    for (int64_t i = 0; i < n; i++) {
        dst[i] = (double)src[i];
    }
}

static void advance_token(struct hb_ref_delta *k, int64_t t) {
    const struct hb_ref_call *call = k->call;
    widen(call->in[0] + t * k->d.d_inner, k->d.d_inner, k->box->z);
    widen(call->in[1] + t * k->d.dim, k->d.dim, hb_ref_window_push(&k->d, &k->window));
    widen(call->in[2] + t * k->d.gates, k->d.gates, k->box->dt);
    hb_ref_conv_token(k->config, &k->rates, &k->window, k->box);
    normalise_all(k);
    for (int32_t head = 0; head < k->d.heads; head++) {
        advance_head(k, head);
    }
    if (k->rates.chunked) {
        hb_ref_delta_chunk_next(k);
    }
}

/* --- one call
 * -------------------------------------------------------------------------------------- */

/* Bounds of the elements from those of the columns; stored: the state goes to memory in its type.
 */
static void settle(const struct hb_ref_delta *k, struct hb_ref_state *state, int32_t stored) {
    const int32_t n = k->d.state_size;
    const double u_st = stored ? k->rates.u_st : 0.0;
    for (int64_t i = 0; i < k->d.d_inner; i++) {
        const double *h = state->h + i * n;
        const double e = state->f[i * n];
        double squares = 0.0;
        for (int32_t c = 0; c < n; c++) {
            squares += h[c] * h[c];
        }
        const double norm = sqrt(squares);
        for (int32_t c = 0; c < n; c++) {
            state->r[i * n + c] = hb_ref_rounded(h[c], e, u_st, u_st * HB_REF_TINY);
            state->m[i * n + c] = norm;
        }
        state->f[i * n] = e + u_st * (norm + e + n * HB_REF_TINY);
    }
}

static void set_rates(struct hb_ref_delta *k) {
    const struct hb_profile *p = k->call->profile;
    const double n = k->d.state_size;
    k->rates = hb_ref_rates_of(k->config, p, k->call->n);
    k->own.gam_k = hb_ref_gam(n + 6.0, p->u_acc);
    k->own.gam_q = hb_ref_gam(n + 6.0, p->u_acc);
    k->own.operand = p->chunked ? p->u_op : 0.0;
}

static void begin(struct hb_ref_delta *k) {
    double *at = k->box->work;
    const int64_t vectors = 2 * (int64_t)k->d.groups;
    const int32_t n = k->d.state_size;
    k->qk = take(&at, vectors * n);
    k->dqk = take(&at, vectors * n);
    k->norms = take(&at, 2 * vectors);
    k->th = take(&at, n);
    k->eta = take(&at, n);
    k->a = take(&at, n);
    k->rel = take(&at, n);
    k->ew = take(&at, n);
    if (k->rates.chunked) {
        hb_ref_delta_chunk_begin(k, &at);
    }
    k->window = hb_ref_window_load(&k->d, k->call->params, k->box);
}

int hb_ref_delta_run(const struct hb_ref_call *call) {
    struct hb_ref_delta k = {
        .call = call, .config = call->config, .box = hb_ref_box_of(call->state)};
    k.d = hb_ref_dims_of(call->config);
    k.is_kda = hb_ref_kind_of(call->config) == HB_LAYER_KDA;
    k.scale = call->config->qk_scale != 0.0F ? (double)call->config->qk_scale
                                             : 1.0 / sqrt((double)k.d.state_size);
    if (call->n <= 0) {
        return 0;
    }
    set_rates(&k);
    begin(&k);
    for (int64_t t = 0; t < call->n; t++) {
        const int64_t at = t * k.d.d_inner;
        advance_token(&k, t);
        hb_ref_gate_norm(call->config, &k.rates, call->params->norm_weight,
                         (double)call->config->norm_eps, k.box, call->out + at,
                         call->bound ? call->bound + at : k.box->sink,
                         call->mag ? call->mag + at : k.box->sink + k.d.d_inner);
        if (call->at != NULL && t + 1 == call->at_tokens) {
            hb_ref_state_copy(call->config, call->at, call->state);
            hb_ref_window_store(&k.d, &k.window, call->at->conv);
            settle(&k, call->at, 0);
        }
    }
    hb_ref_window_store(&k.d, &k.window, call->state->conv);
    settle(&k, call->state, 1);
    return 0;
}
