/* SPDX-License-Identifier: Apache-2.0
 * The Mamba2 mixer between the projections, token by token in float64 (ops-mamba2.md 1-3), with h, M, R and F of
 * tolerance.md 3.2 carried per state element and composed as in 3.7. README.md lists where a term differs from the
 * formulas there and why. */
#include "harness/oracle/ref_internal.h"

#include <string.h>

/* Coefficient rows over n; the last four depend on the group only. */
enum row {
    ROW_BV,  /* dt*B */
    ROW_BM,  /* |dt| (|B|+dB) */
    ROW_BX,  /* error per |x| */
    ROW_BDX, /* error per dx */
    ROW_C,   /* C */
    ROW_CR,  /* (1+ky)(|C|+dC): error of the output per R */
    ROW_CM,  /* (ky+u)(|C|+dC): per M */
    ROW_CH,  /* dC: per |h| */
    ROW_CA,  /* |C|: magnitude per M */
    N_ROWS
};
_Static_assert((int)N_ROWS == (int)HB_REF_N_COEF, "coefficient rows");

/* Inputs of a call, in one of two precisions. */
struct feed {
    const float *z, *xbc, *dt;
    const double *z64, *xbc64, *dt64;
};

/* One call: everything that stays the same over its tokens. */
struct call {
    const struct hb_config *config;
    const struct hb_layer_params *params;
    struct hb_ref_dims d;
    struct hb_ref_rates rates;
    struct hb_ref_box *box;
    int32_t clamp;                   /* enum hb_dt_clamp of the path */
    struct hb_ref_numbers numbers;   /* of the configuration, or given in float64 */
    double *rows[HB_MAX_CONV_WIDTH]; /* inputs of the convolution, oldest first */
};

/* Factors of one head at one token. */
struct head_step {
    double a;    /* exp(-th) */
    double ar;   /* a * r, r the relative error of one decay step */
    double ew;   /* expm1(2 gq W_t) */
    double dt_m; /* |dt| */
    double b_max, c_max;
};

static double *coef_row(const struct call *k, enum row r)
{
    return k->box->coef + (int64_t)r * k->d.state_size;
}

static void begin_call(struct call *k)
{
    const struct hb_ref_dims *d = &k->d;
    struct hb_ref_box *box = k->box;
    const int32_t width = d->conv_width;
    const int32_t window = width - 1;
    const struct hb_layer_params *p = k->params;
    for (int32_t j = 0; j < width; j++) {
        k->rows[j] = box->rows + j * d->dim;
        for (int64_t c = 0; c < d->dim; c++) {
            box->taps[j * d->dim + c] = (double)p->conv_weight[c * width + j];
        }
    }
    for (int64_t c = 0; c < d->dim; c++) {
        box->taps[width * d->dim + c] = p->conv_bias ? (double)p->conv_bias[c] : 0.0;
        for (int32_t j = 0; j < window; j++) {
            k->rows[j + 1][c] = box->state.conv[c * window + j];
        }
    }
    memcpy(box->m0, box->state.m, (size_t)d->n_state * sizeof(double));
    for (int32_t h = 0; h < d->heads; h++) {
        box->decay[h] = 0.0;
    }
    for (int64_t i = 0; i < d->d_inner; i++) {
        double top = 0.0;
        for (int32_t n = 0; n < d->state_size; n++) {
            top = fmax(top, box->state.m[i * d->state_size + n]);
        }
        box->reach[i] = 1.0 + top;
    }
    /* a decay error between cumulative sums of two calls does not exist: the stored state is the start of the sum */
    for (int64_t i = 0; i < d->n_state; i++) {
        box->state.f[i] = 0.0;
    }
    box->state.ring_pos = 0;
    box->state.n_tokens = 0;
}

/* Row t of a [n, width] input, widened into dst [width]. */
static void load_row(const float *src, const double *src64, int64_t t, int64_t width, double *dst)
{
    for (int64_t i = 0; i < width; i++) {
        dst[i] = src64 ? src64[t * width + i] : (double)src[t * width + i];
    }
}

/* Shifts the window by one token, appends the inputs of token t and widens its gate. */
static void push_token(struct call *k, const struct feed *in, int64_t t)
{
    double *oldest = k->rows[0];
    for (int32_t j = 0; j + 1 < k->d.conv_width; j++) {
        k->rows[j] = k->rows[j + 1];
    }
    k->rows[k->d.conv_width - 1] = oldest;
    load_row(in->xbc, in->xbc64, t, k->d.dim, oldest);
    load_row(in->z, in->z64, t, k->d.d_inner, k->box->z);
}

static void store_window(const struct call *k, double *conv)
{
    const int32_t window = k->d.conv_width - 1;
    for (int32_t j = 0; j < window; j++) {
        for (int64_t c = 0; c < k->d.dim; c++) {
            conv[c * window + j] = k->rows[j + 1][c];
        }
    }
}

/* W_t of 3.2: log decays of the last Q tokens of this call, summed anew each time so that nothing cancels. */
static double window_sum(struct call *k, int32_t head, double th)
{
    const struct hb_ref_state *s = &k->box->state;
    const int64_t q = k->d.chunk;
    double *ring = s->th_ring + head * q;
    ring[s->ring_pos] = fabs(th);
    const int64_t held = s->n_tokens + 1 < q ? s->n_tokens + 1 : q;
    double sum = 0.0;
    for (int64_t i = 0; i < held; i++) {
        sum += ring[i];
    }
    return sum;
}

/* exp(-th) * expm1(e) without overflow of the second factor where the first makes up for it. */
static double decayed_error(double th, double a, double e)
{
    return e < 1.0 ? a * expm1(e) : exp(e - th) - a;
}

static struct head_step make_head_step(struct call *k, int32_t head, double dt_raw)
{
    const double u = HB_REF_U32;
    const struct hb_ref_rates *rates = &k->rates;
    const int32_t n_state = k->d.state_size;
    const int64_t group = head / (k->d.heads / k->d.groups);
    const double *b = k->box->c + k->d.d_inner + group * n_state;
    const double *db = k->box->dc + k->d.d_inner + group * n_state;
    const struct hb_layer_params *p = k->params;
    const struct hb_ref_gate gate = {.rate = k->numbers.a ? k->numbers.a[head] : (double)p->a[head],
                                     .bias = p->dt_bias ? p->dt_bias + head : NULL,
                                     .softplus = k->config->dt_softplus,
                                     .clamp = k->clamp,
                                     .lo = k->numbers.dt_lo,
                                     .hi = k->numbers.dt_hi};
    const struct hb_ref_step g = hb_ref_step_of(&gate, rates, dt_raw);
    struct head_step s = {0};
    s.a = exp(-g.th);
    s.dt_m = fabs(g.dt);
    k->box->decay[head] += g.th;
    const double th = fabs(g.th);
    s.ar = decayed_error(g.th, s.a, g.eta + 2.0 * rates->gq * th + rates->e_exp + 3.0 * u + u * th);
    if (rates->gq > 0.0) {
        /* beyond 300 every bound is past the range of fp32 until real decay brings the term back */
        s.ew = expm1(fmin(2.0 * rates->gq * window_sum(k, head, g.th), 300.0));
    }
    const double k1 = s.dt_m * 4.0 * u + g.ddt * (1.0 + 4.0 * u);
    const double k2 = s.dt_m + g.ddt;
    double *bv = coef_row(k, ROW_BV), *bm = coef_row(k, ROW_BM);
    double *bx = coef_row(k, ROW_BX), *bdx = coef_row(k, ROW_BDX);
    for (int32_t n = 0; n < n_state; n++) {
        const double most = fabs(b[n]) + db[n];
        bv[n] = g.dt * b[n];
        bm[n] = s.dt_m * most;
        bx[n] = most * k1 + db[n] * k2;
        bdx[n] = most * (k1 + k2);
        s.b_max = fmax(s.b_max, most);
    }
    return s;
}

/* Rows of C of a group; returns the largest |C|+dC. */
static double make_group_rows(const struct call *k, int64_t group)
{
    const struct hb_ref_dims *d = &k->d;
    const int64_t at = d->d_inner + (d->groups + group) * d->state_size;
    const double *c = k->box->c + at;
    const double *dc = k->box->dc + at;
    const double ky = k->rates.ky;
    double top = 0.0;
    for (int32_t n = 0; n < d->state_size; n++) {
        const double most = fabs(c[n]) + dc[n];
        coef_row(k, ROW_C)[n] = c[n];
        coef_row(k, ROW_CR)[n] = (1.0 + ky) * most;
        coef_row(k, ROW_CM)[n] = (ky + HB_REF_U32) * most;
        coef_row(k, ROW_CH)[n] = dc[n];
        coef_row(k, ROW_CA)[n] = fabs(c[n]);
        top = fmax(top, most);
    }
    return top;
}

struct sums {
    double y, e, mag;
};

/* Advances the N elements of one (head, p) and returns C.h, its error and its magnitude. Four partial sums each, so
 * that the additions do not wait for one another. */
static struct sums advance_row(const struct call *k, const struct head_step *s, double xv, double dx, double floor_r,
                               int64_t at)
{
    enum { LANES = 4 };
    const int64_t n_state = k->d.state_size;
    double *restrict h = k->box->state.h + at;
    double *restrict m = k->box->state.m + at;
    double *restrict r = k->box->state.r + at;
    double *restrict f = k->box->state.f + at;
    const double *restrict bv = k->box->coef;
    const double ax = fabs(xv), a = s->a, keep = s->a + s->ar, ar = s->ar, ew = s->ew;
    double y[LANES] = {0}, e[LANES] = {0}, g[LANES] = {0};
    for (int64_t n = 0; n < n_state; n += LANES) {
        const int64_t lanes = n_state - n < LANES ? n_state - n : LANES;
        for (int64_t l = 0; l < lanes; l++) {
            const int64_t i = n + l;
            const double *q = bv + i;
            const double um = (ax + dx) * q[ROW_BM * n_state];
            const double rn = keep * r[i] + a * f[i] + ar * m[i] +
                              (ax * q[ROW_BX * n_state] + dx * q[ROW_BDX * n_state] + floor_r);
            const double mn = a * m[i] + um;
            const double hn = a * h[i] + xv * q[ROW_BV * n_state];
            r[i] = rn;
            m[i] = mn;
            h[i] = hn;
            f[i] = um * ew;
            y[l] += q[ROW_C * n_state] * hn;
            e[l] += q[ROW_CR * n_state] * rn + q[ROW_CM * n_state] * mn + q[ROW_CH * n_state] * fabs(hn);
            g[l] += q[ROW_CA * n_state] * mn;
        }
    }
    const struct sums out = {(y[0] + y[1]) + (y[2] + y[3]), (e[0] + e[1]) + (e[2] + e[3]),
                             (g[0] + g[1]) + (g[2] + g[3])};
    return out;
}

/* All rows of one head: state, and y with its bound as it is stored for the norm. */
static void advance_head(const struct call *k, int32_t head, const struct head_step *s)
{
    const double u = HB_REF_U32;
    const struct hb_ref_dims *d = &k->d;
    struct hb_ref_box *box = k->box;
    const double skip = k->params->d ? (double)k->params->d[head] : 0.0;
    const double terms = d->state_size + 4.0;
    for (int32_t p = 0; p < d->head_dim; p++) {
        const int64_t i = (int64_t)head * d->head_dim + p;
        const double x = box->c[i], dx = box->dc[i];
        const double xm = fabs(x) + dx;
        box->reach[i] += (1.0 + s->dt_m) * (1.0 + xm) * (1.0 + s->b_max);
        const double reach = box->reach[i] <= (double)FLT_MAX ? box->reach[i] : (double)INFINITY;
        const struct sums t = advance_row(k, s, x, dx, 4.0 * HB_REF_TINY * reach, i * d->state_size);
        const double skip_m = fabs(skip) * xm;
        double e = t.e + 4.0 * u * skip_m + fabs(skip) * dx + terms * HB_REF_TINY * (1.0 + s->c_max) * reach;
        e += u * e;
        if (!(t.mag + skip_m + e <= (double)FLT_MAX)) {
            e = (double)INFINITY;
        }
        box->y[i] = t.y + skip * x;
        box->my[i] = t.mag + fabs(skip) * fabs(x);
        box->dy[i] = hb_ref_rounded(box->y[i], e, k->rates.u_io, k->rates.io_floor);
    }
}

static void advance_token(struct call *k, const struct feed *in, int64_t t)
{
    const double *rows[HB_MAX_CONV_WIDTH] = {k->rows[0], k->rows[1], k->rows[2], k->rows[3]};
    const int32_t per_group = k->d.heads / k->d.groups;
    double c_max = 0.0;
    hb_ref_conv_token(k->config, &k->rates, rows, k->box);
    for (int32_t head = 0; head < k->d.heads; head++) {
        if (head % per_group == 0) {
            c_max = make_group_rows(k, head / per_group);
        }
        const int64_t at = t * k->d.heads + head;
        struct head_step s = make_head_step(k, head, in->dt64 ? in->dt64[at] : (double)in->dt[at]);
        s.c_max = c_max;
        advance_head(k, head, &s);
    }
    struct hb_ref_state *state = &k->box->state;
    state->ring_pos = state->ring_pos + 1 < k->d.chunk ? state->ring_pos + 1 : 0;
    state->n_tokens++;
}

/* The chunk form sums the terms of this call in another order: each was rounded once by kstate. Charged when the state
 * leaves the call, on the mass that the call added; from then on it decays with the rest of R. */
static void fold_sums(const struct call *k, struct hb_ref_state *state)
{
    const double ks = k->rates.kstate;
    const int64_t per_head = (int64_t)k->d.head_dim * k->d.state_size;
    for (int32_t head = 0; head < k->d.heads && ks > 0.0; head++) {
        const double kept = exp(-k->box->decay[head]);
        for (int64_t i = head * per_head; i < (head + 1) * per_head; i++) {
            const double added = fmax(state->m[i] - kept * k->box->m0[i], 0.0);
            state->r[i] += ks * (added + state->r[i]);
        }
    }
}

static void end_call(const struct call *k)
{
    struct hb_ref_state *state = &k->box->state;
    store_window(k, state->conv);
    fold_sums(k, state);
    const double u_st = k->rates.u_st;
    for (int64_t i = 0; i < k->d.n_state && u_st > 0.0; i++) {
        state->r[i] = hb_ref_rounded(state->h[i], state->r[i] + HB_REF_TINY, u_st, 0.0);
    }
}

/* Where the results of a call go; bound, mag and at may be null. */
struct results {
    double *out, *bound, *mag;
    struct hb_ref_state *at;
    int32_t at_tokens;
};

static int run_call(struct call *k, int32_t n, const struct feed *in, const struct results *to)
{
    if (n <= 0) {
        return 0;
    }
    struct hb_ref_state *state = &k->box->state;
    const int64_t inner = k->d.d_inner;
    begin_call(k);
    for (int32_t t = 0; t < n; t++) {
        push_token(k, in, t);
        advance_token(k, in, t);
        hb_ref_gate_norm(k->config, &k->rates, k->params->norm_weight, k->numbers.norm_eps, k->box,
                         to->out + t * inner, to->bound ? to->bound + t * inner : k->box->sink,
                         to->mag ? to->mag + t * inner : k->box->sink + inner);
        if (to->at != NULL && t + 1 == to->at_tokens) {
            hb_ref_state_copy(k->config, to->at, state);
            store_window(k, to->at->conv);
            fold_sums(k, to->at);
        }
    }
    end_call(k);
    return 0;
}

static struct call make_call(const struct hb_config *config, const struct hb_layer_params *params,
                             const struct hb_profile *profile, int32_t path, struct hb_ref_state *state)
{
    struct call k = {.config = config, .params = params, .box = hb_ref_box_of(state)};
    k.d = hb_ref_dims_of(config);
    k.rates = hb_ref_rates_of(config, profile);
    k.clamp = path == HB_PATH_DECODE ? config->dt_clamp_decode : config->dt_clamp_prefill;
    k.numbers.norm_eps = (double)config->norm_eps;
    k.numbers.dt_lo = (double)config->dt_lo;
    k.numbers.dt_hi = (double)config->dt_hi;
    return k;
}

int hb_ref_mamba2(const struct hb_config *config, const struct hb_layer_params *params, const struct hb_profile *profile,
                  int32_t path, int32_t n, const float *z, const float *xbc, const float *dt, struct hb_ref_state *state,
                  double *out, double *bound, double *mag, struct hb_ref_state *at, int32_t at_tokens)
{
    struct call k = make_call(config, params, profile, path, state);
    const struct feed in = {.z = z, .xbc = xbc, .dt = dt};
    const struct results to = {out, bound, mag, at, at_tokens};
    return run_call(&k, n, &in, &to);
}

int hb_ref_mamba2_f64(const struct hb_config *config, const struct hb_ref_numbers *numbers,
                      const struct hb_layer_params *params, const struct hb_profile *profile, int32_t path, int32_t n,
                      const double *z, const double *xbc, const double *dt, struct hb_ref_state *state, double *out,
                      double *bound, double *mag)
{
    struct call k = make_call(config, params, profile, path, state);
    const struct feed in = {.z64 = z, .xbc64 = xbc, .dt64 = dt};
    const struct results to = {out, bound, mag, NULL, 0};
    k.numbers = *numbers;
    return run_call(&k, n, &in, &to);
}
