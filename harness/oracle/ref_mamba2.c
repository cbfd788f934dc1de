/* SPDX-License-Identifier: Apache-2.0
 * The Mamba2 mixer between the projections, token by token in float64 (ops-mamba2.md 1-3), with h,
 * M, R and F of tolerance.md 3.2 carried per state element and composed as in 3.7. README.md lists
 * where a term differs from the formulas there and why. */
#include "harness/oracle/ref_internal.h"

#include <string.h>

enum input { INPUT_Z, INPUT_XBC, INPUT_DT, N_INPUTS };

/* Inputs of a call, in one of two precisions. */
struct feed {
    int32_t is_wide;
    const float *narrow[N_INPUTS];
    const double *wide[N_INPUTS];
};

/* One call: everything that stays the same over its tokens. */
struct call {
    const struct hb_config *config;
    const struct hb_layer_params *params;
    struct hb_ref_dims d;
    struct hb_ref_rates rates;
    struct hb_ref_box *box;
    int32_t clamp;                 /* enum hb_dt_clamp of the path */
    struct hb_ref_numbers numbers; /* of the configuration, or given in float64 */
    struct hb_ref_window window;
};

/* Factors of one head at one token; th and dt with their errors in g. */
struct head_step {
    struct hb_ref_step g;
    double a;  /* exp(-th) */
    double ar; /* a * r, r the relative error of one decay step */
    double ew; /* expm1(2 gq W_t), 0 for sequential sums */
};

/* B and C of one group [N] with their errors; b_top and c_top are |.| + error, b_max and c_max
 * their maxima. */
struct group_rows {
    const double *b, *db, *b_top;
    const double *c, *dc, *c_top;
    double b_max, c_max;
};

/* A window of log decays starts: with each call, and with the first token after a fold. */
static void begin_window(const struct call *k) {
    const struct hb_ref_dims *d = &k->d;
    struct hb_ref_box *box = k->box;
    memcpy(box->m0, box->state.m, (size_t)d->n_state * sizeof(double));
    for (int32_t h = 0; h < d->heads; h++) {
        box->decay[h] = 0.0;
    }
    for (int64_t i = 0; i < d->d_inner; i++) {
        double top = 0.0;
        for (int32_t n = 0; n < d->state_size; n++) {
            top = hb_ref_max(top, box->state.m[i * d->state_size + n]);
        }
        box->reach[i] = 1.0 + top;
    }
    /* a decay error between cumulative sums of two calls does not exist: the stored state is the
     * start of the sum */
    for (int64_t i = 0; i < d->n_state; i++) {
        box->state.f[i] = 0.0;
    }
    box->state.ring_pos = 0;
    box->state.n_tokens = 0;
}

/* Row t of a [n, width] input, widened into dst [width]. */
static void load_row(const struct feed *in, enum input which, int64_t t, int64_t width,
                     double *dst) {
    if (in->is_wide) {
        memcpy(dst, in->wide[which] + t * width, (size_t)width * sizeof(double));
        return;
    }
    const float *src = in->narrow[which] + t * width;
    for (int64_t i = 0; i < width; i++) {
        dst[i] = (double)src[i];
    }
}

/* Shifts the window by one token, and reads the inputs of token t. */
static void push_token(struct call *k, const struct feed *in, int64_t t) {
    load_row(in, INPUT_XBC, t, k->d.dim, hb_ref_window_push(&k->d, &k->window));
    load_row(in, INPUT_Z, t, k->d.d_inner, k->box->z);
    load_row(in, INPUT_DT, t, k->d.heads, k->box->dt);
}

/* W_t of 3.2: log decays of the last Q tokens of this call, summed anew each time so that nothing
 * cancels. */
static double window_sum(struct call *k, int32_t head, double th) {
    const struct hb_ref_state *s = &k->box->state;
    const int64_t q = k->d.chunk;
    double *ring = s->th_ring + head * q;
    ring[s->ring_pos] = th;
    const int64_t held = s->n_tokens + 1 < q ? s->n_tokens + 1 : q;
    double sum = 0.0;
    for (int64_t i = 0; i < held; i++) {
        sum += ring[i];
    }
    return sum;
}

/* exp(-th) * expm1(e) without overflow of the second factor where the first makes up for it. */
static double decayed_error(double th, double a, double e) {
    return e < 1.0 ? a * expm1(e) : exp(e - th) - a;
}

static struct head_step make_head_step(struct call *k, int32_t head, double dt_raw) {
    const double u = HB_REF_U32;
    const struct hb_ref_rates *rates = &k->rates;
    const struct hb_layer_params *p = k->params;
    const struct hb_ref_gate gate = {.rate = k->numbers.a ? k->numbers.a[head] : (double)p->a[head],
                                     .bias = p->dt_bias ? p->dt_bias + head : NULL,
                                     .softplus = k->config->dt_softplus,
                                     .clamp = k->clamp,
                                     .lo = k->numbers.dt_lo,
                                     .hi = k->numbers.dt_hi};
    struct head_step s = {.g = hb_ref_step_of(&gate, rates, dt_raw)};
    const double th = fabs(s.g.th);
    double e = s.g.eta + rates->e_exp + 3.0 * u + u * th;
    if (rates->gq > 0.0) {
        const double shift = 2.0 * rates->gq * window_sum(k, head, th + s.g.eta);
        /* beyond 300 every bound is past the range of fp32 until real decay brings the term back */
        s.ew = expm1(shift < 300.0 ? shift : 300.0);
        e += 2.0 * rates->gq * th;
    } else if (rates->step_q > 0.0) {
        e += rates->step_q * window_sum(k, head, th + s.g.eta) + u * th;
    }
    s.a = exp(-s.g.th);
    s.ar = decayed_error(s.g.th, s.a, e);
    k->box->decay[head] += s.g.th;
    return s;
}

static double fill_top(const double *x, const double *dx, int32_t n, double *top) {
    double largest = 0.0;
    for (int32_t i = 0; i < n; i++) {
        top[i] = fabs(x[i]) + dx[i];
        largest = hb_ref_max(largest, top[i]);
    }
    return largest;
}

static struct group_rows make_group_rows(const struct call *k, int64_t group) {
    const int32_t n = k->d.state_size;
    const int64_t at_b = k->d.d_inner + group * n;
    const int64_t at_c = at_b + (int64_t)k->d.groups * n;
    const struct hb_ref_box *box = k->box;
    struct group_rows g = {.b = box->c + at_b,
                           .db = box->dc + at_b,
                           .b_top = box->tops,
                           .c = box->c + at_c,
                           .dc = box->dc + at_c,
                           .c_top = box->tops + n};
    g.b_max = fill_top(g.b, g.db, n, box->tops);
    g.c_max = fill_top(g.c, g.dc, n, box->tops + n);
    return g;
}

/* One (head, p): its N elements of the state, and what the token brings to them. */
struct row_view {
    double *h, *m, *r, *f;
    const struct group_rows *g;
    int64_t n;
    double a, keep, ar, ew; /* keep = a (1 + r) */
    double x;               /* dt x: times B the new term */
    double x_top;           /* |dt| (|x|+dx): times |B|+dB its magnitude */
    double err_b, err_db;   /* error per |B|+dB and per dB */
    double floor_r;
};

/* Sums over n of one row: C.h, and of (|C|+dC) R, (|C|+dC) M, dC |h|. */
struct sums {
    double y, r, m, h;
};

/* Two elements at a time in the vector extension of GCC and Clang: the sums then need no reordering
 * by the compiler. */
typedef double vec __attribute__((vector_size(16)));
typedef int64_t bits __attribute__((vector_size(16)));
enum { LANES = 2 };

static inline vec load_vec(const double *p) {
    vec x;
    memcpy(&x, p, sizeof(x));
    return x;
}

static inline void store_vec(double *p, vec x) {
    memcpy(p, &x, sizeof(x));
}

static inline vec abs_vec(vec x) {
    const bits mask = {INT64_MAX, INT64_MAX};
    return (vec)((bits)x & mask);
}

/* The elements i, i+1 of the row for i = from, from + 2, .. < to; adds to the sums. */
static void advance_pairs(const struct row_view *v, int64_t from, int64_t to, struct sums *out) {
    const struct group_rows g = *v->g;
    const double a = v->a, keep = v->keep, ar = v->ar, ew = v->ew, x = v->x, x_top = v->x_top;
    const double err_b = v->err_b, err_db = v->err_db, floor_r = v->floor_r;
    double *h = v->h, *m = v->m, *r = v->r, *f = v->f;
    vec sy = {0}, sr = {0}, sm = {0}, sh = {0};
    for (int64_t i = from; i < to; i += LANES) {
        const vec bt = load_vec(g.b_top + i), ct = load_vec(g.c_top + i);
        const vec m0 = load_vec(m + i), um = x_top * bt;
        const vec added = err_b * bt + err_db * load_vec(g.db + i) + floor_r;
        const vec rn = keep * load_vec(r + i) + a * load_vec(f + i) + ar * m0 + added;
        const vec mn = a * m0 + um;
        const vec hn = a * load_vec(h + i) + x * load_vec(g.b + i);
        store_vec(r + i, rn);
        store_vec(m + i, mn);
        store_vec(h + i, hn);
        store_vec(f + i, um * ew);
        sy += load_vec(g.c + i) * hn;
        sr += ct * rn;
        sm += ct * mn;
        sh += load_vec(g.dc + i) * abs_vec(hn);
    }
    out->y += sy[0] + sy[1];
    out->r += sr[0] + sr[1];
    out->m += sm[0] + sm[1];
    out->h += sh[0] + sh[1];
}

/* The last element of a row of odd length: the same code on a copy whose second lane is zero. */
static void advance_last(const struct row_view *v, struct sums *out) {
    const int64_t i = v->n - 1;
    const struct group_rows *g = v->g;
    double s[4][LANES] = {{v->h[i]}, {v->m[i]}, {v->r[i]}, {v->f[i]}};
    const double b[LANES] = {g->b[i]}, db[LANES] = {g->db[i]}, bt[LANES] = {g->b_top[i]};
    const double c[LANES] = {g->c[i]}, dc[LANES] = {g->dc[i]}, ct[LANES] = {g->c_top[i]};
    const struct group_rows copy = {.b = b, .db = db, .b_top = bt, .c = c, .dc = dc, .c_top = ct};
    struct row_view one = *v;
    one.g = &copy;
    one.h = s[0];
    one.m = s[1];
    one.r = s[2];
    one.f = s[3];
    advance_pairs(&one, 0, LANES, out);
    v->h[i] = s[0][0];
    v->m[i] = s[1][0];
    v->r[i] = s[2][0];
    v->f[i] = s[3][0];
}

static struct sums advance_row(const struct row_view *v) {
    struct sums out = {0};
    advance_pairs(v, 0, v->n - v->n % LANES, &out);
    if (v->n % LANES != 0) {
        advance_last(v, &out);
    }
    return out;
}

static struct row_view make_row(const struct call *k, const struct head_step *s,
                                const struct group_rows *g, int64_t i, double reach) {
    const double u = HB_REF_U32;
    const struct hb_ref_box *box = k->box;
    const int64_t at = i * k->d.state_size;
    const double x = box->c[i], ax = fabs(x), dx = box->dc[i];
    const double dt = fabs(s->g.dt);
    const double k1 = dt * 4.0 * u + s->g.ddt * (1.0 + 4.0 * u); /* per U */
    const double k2 = dt + s->g.ddt;                             /* per dU */
    const struct row_view v = {.h = box->state.h + at,
                               .m = box->state.m + at,
                               .r = box->state.r + at,
                               .f = box->state.f + at,
                               .g = g,
                               .n = k->d.state_size,
                               .a = s->a,
                               .keep = s->a + s->ar,
                               .ar = s->ar,
                               .ew = s->ew,
                               .x = s->g.dt * x,
                               .x_top = dt * (ax + dx),
                               .err_b = (ax + dx) * k1 + dx * k2,
                               .err_db = ax * k2,
                               .floor_r = 4.0 * k->rates.op_floor * reach};
    return v;
}

/* All rows of one head: state, and y with its bound as it is stored for the norm. */
static void advance_head(const struct call *k, int32_t head, const struct head_step *s,
                         const struct group_rows *g) {
    const double u = HB_REF_U32, ky = k->rates.ky;
    const struct hb_ref_dims *d = &k->d;
    struct hb_ref_box *box = k->box;
    const double skip = k->params->d ? (double)k->params->d[head] : 0.0;
    const double terms = d->state_size + 4.0;
    for (int32_t p = 0; p < d->head_dim; p++) {
        const int64_t i = (int64_t)head * d->head_dim + p;
        const double x = box->c[i], dx = box->dc[i];
        box->reach[i] += (1.0 + fabs(s->g.dt)) * (1.0 + fabs(x) + dx) * (1.0 + g->b_max);
        const double reach = box->reach[i] <= (double)FLT_MAX ? box->reach[i] : (double)INFINITY;
        const struct row_view row = make_row(k, s, g, i, reach);
        const struct sums t = advance_row(&row);
        const double skip_m = fabs(skip) * (fabs(x) + dx);
        double e = (1.0 + ky) * t.r + (ky + u) * t.m + t.h + 4.0 * u * skip_m + fabs(skip) * dx;
        e += u * e + terms * k->rates.op_floor * (1.0 + g->c_max) * reach;
        if (!(t.m + skip_m + e <= (double)FLT_MAX)) {
            e = (double)INFINITY;
        }
        box->y[i] = t.y + skip * x;
        box->my[i] = t.m + skip_m;
        box->dy[i] = hb_ref_stored(&k->rates, box->y[i], e);
    }
}

static void advance_token(struct call *k) {
    const int32_t per_group = k->d.heads / k->d.groups;
    struct group_rows g = {0};
    k->rates.ky = hb_ref_ky(k->config, &k->rates, k->box->state.n_tokens);
    hb_ref_conv_token(k->config, &k->rates, &k->window, k->box);
    const int is_tile = k->config->head_map == HB_HEADS_TILE;
    int32_t made = -1;
    for (int32_t head = 0; head < k->d.heads; head++) {
        const int32_t group = is_tile ? head % k->d.groups : head / per_group;
        if (group != made) {
            g = make_group_rows(k, group);
            made = group;
        }
        const struct head_step s = make_head_step(k, head, k->box->dt[head]);
        const double step[4] = {s.g.dt, s.g.th, s.g.ddt, s.g.eta};
        memcpy(k->box->steps + (int64_t)4 * head, step, sizeof step);
        advance_head(k, head, &s, &g);
    }
    struct hb_ref_state *state = &k->box->state;
    state->ring_pos = state->ring_pos + 1 < k->d.chunk ? state->ring_pos + 1 : 0;
    state->n_tokens++;
}

/* The chunk form sums the terms of this call in another order: each was rounded once by kstate.
 * Charged when the state leaves the call, on the mass that the call added; from then on it decays
 * with the rest of R. */
static void fold_sums(const struct call *k, struct hb_ref_state *state) {
    const double ks = k->rates.kstate;
    const int64_t per_head = (int64_t)k->d.head_dim * k->d.state_size;
    for (int32_t head = 0; head < k->d.heads && ks > 0.0; head++) {
        const double kept = exp(-k->box->decay[head]);
        for (int64_t i = head * per_head; i < (head + 1) * per_head; i++) {
            const double added = hb_ref_max(state->m[i] - kept * k->box->m0[i], 0.0);
            state->r[i] += ks * (added + state->r[i]);
        }
    }
}

static void end_call(const struct call *k) {
    struct hb_ref_state *state = &k->box->state;
    hb_ref_window_store(&k->d, &k->window, state->conv);
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

static int run_call(struct call *k, int32_t n, const struct feed *in, const struct results *to) {
    if (n <= 0) {
        return 0;
    }
    struct hb_ref_state *state = &k->box->state;
    const int64_t inner = k->d.d_inner;
    begin_window(k);
    k->window = hb_ref_window_load(&k->d, k->params, k->box);
    for (int32_t t = 0; t < n; t++) {
        push_token(k, in, t);
        advance_token(k);
        hb_ref_gate_norm(k->config, &k->rates, k->params->norm_weight, k->numbers.norm_eps, k->box,
                         to->out + t * inner, to->bound ? to->bound + t * inner : k->box->sink,
                         to->mag ? to->mag + t * inner : k->box->sink + inner);
        if (to->at != NULL && t + 1 == to->at_tokens) {
            hb_ref_state_copy(k->config, to->at, state);
            hb_ref_window_store(&k->d, &k->window, to->at->conv);
            fold_sums(k, to->at);
        }
    }
    end_call(k);
    return 0;
}

static struct call make_call(const struct hb_config *config, const struct hb_layer_params *params,
                             const struct hb_profile *profile, int32_t path, int32_t n,
                             struct hb_ref_state *state) {
    struct call k = {.config = config, .params = params, .box = hb_ref_box_of(state)};
    k.d = hb_ref_dims_of(config);
    k.rates = hb_ref_rates_of(config, profile, n);
    k.clamp = path == HB_PATH_DECODE ? config->dt_clamp_decode : config->dt_clamp_prefill;
    k.numbers.norm_eps = (double)config->norm_eps;
    k.numbers.dt_lo = (double)config->dt_lo;
    k.numbers.dt_hi = (double)config->dt_hi;
    return k;
}

int hb_ref_mamba2(const struct hb_config *config, const struct hb_layer_params *params,
                  const struct hb_profile *profile, int32_t path, int32_t n, const float *z,
                  const float *xbc, const float *dt, struct hb_ref_state *state, double *out,
                  double *bound, double *mag, struct hb_ref_state *at, int32_t at_tokens) {
    struct call k = make_call(config, params, profile, path, n, state);
    const struct feed in = {.narrow = {z, xbc, dt}};
    const struct results to = {out, bound, mag, at, at_tokens};
    return run_call(&k, n, &in, &to);
}

int hb_ref_mamba2_f64(const struct hb_config *config, const struct hb_ref_numbers *numbers,
                      const struct hb_layer_params *params, const struct hb_profile *profile,
                      int32_t path, int32_t n, const double *z, const double *xbc, const double *dt,
                      struct hb_ref_state *state, double *out, double *bound, double *mag) {
    struct call k = make_call(config, params, profile, path, n, state);
    const struct feed in = {.is_wide = 1, .wide = {z, xbc, dt}};
    const struct results to = {out, bound, mag, NULL, 0};
    k.numbers = *numbers;
    return run_call(&k, n, &in, &to);
}

int hb_ref_mamba2_ring(const struct hb_config *config, const struct hb_layer_params *params,
                       const struct hb_profile *profile, int32_t w, int32_t folds, const float *z,
                       const float *xbc, const float *dt, struct hb_ref_state *state, double *out,
                       double *bound, double *mag, const struct hb_ref_record *record) {
    if (w < 0 || w >= config->ring_length) {
        return -1;
    }
    struct call k = make_call(config, params, profile, HB_PATH_DECODE, 1, state);
    const struct feed in = {.narrow = {z, xbc, dt}};
    k.rates = hb_ref_ring_rates(config, profile, w);
    k.d.chunk = config->ring_length;
    if (w == 0) {
        begin_window(&k);
    }
    k.window = hb_ref_window_load(&k.d, k.params, k.box);
    push_token(&k, &in, 0);
    advance_token(&k);
    hb_ref_gate_norm(config, &k.rates, params->norm_weight, k.numbers.norm_eps, k.box, out,
                     bound ? bound : k.box->sink, mag ? mag : k.box->sink + k.d.d_inner);
    hb_ref_window_store(&k.d, &k.window, state->conv);
    if (record != NULL) {
        hb_ref_ring_record(&k.d, k.box, record);
    }
    if (folds) {
        hb_ref_ring_fold(&k.d, &k.rates, state);
    }
    return 0;
}
