/* SPDX-License-Identifier: Apache-2.0
 * Lightning attention and simple GLA (ops-delta.md section 3): S = lambda S + k v^T, o = c S^T q,
 * that is the recurrence of tolerance.md 3.2 with dt = 1, x = v, B = k and C = c q (3.6, last
 * line). */
#include "harness/oracle/ref_scan.h"

/* Entry i of the list of n slopes: powers of 2^(-8/n) for n a power of two, else the list of the
 * next lower power p, then every other entry of that of 2p. */
static double alibi_slope(int32_t i, int32_t n) {
    int32_t p = 1;
    while (2 * (int64_t)p <= n) {
        p *= 2;
    }
    return i < p ? exp2(-8.0 * (i + 1.0) / p) : exp2(-8.0 * (2.0 * (i - p) + 1.0) / (2.0 * p));
}

/* l: number of the layer among all L, from 0. */
static double factor_of(int32_t kind, double l, double n_layers) {
    const double gaps = n_layers - 1.0;
    switch (kind) {
    case HB_FACTOR_MINIMAX:
        return 1.0 - l / (gaps + 1e-5) + 1e-5;
    case HB_FACTOR_LING:
        return gaps > 0.0 ? 1.0 - l / gaps + 1e-5 : 1.0 + 1e-5;
    case HB_FACTOR_LING_OFF:
        return gaps > 0.0 ? 1.0 - (l - 1.0) / gaps + 1e-5 : 1.0 + 1e-5;
    default:
        return 1.0;
    }
}

/* Slope of head h where it follows from the configuration. */
static double slope_of(const struct hb_config *c, int32_t layer, int32_t h) {
    const double factor = factor_of(c->layer_factor, layer, c->n_layers);
    switch (c->slope_kind) {
    case HB_SLOPE_ALIBI:
        return alibi_slope(h, c->n_heads) * factor;
    case HB_SLOPE_MINIMAX:
        return exp2(-8.0 * (h + 1.0) / c->n_heads) * factor;
    default: /* FLA */
        return 8.0 / c->n_heads * (1.0 - (double)layer / c->n_layers) * h;
    }
}

/* Minus the log decay of head h at token t, and its error: a slope computed in double and rounded
 * to fp32 on its way, 3.6; numbers handed over are exact. */
struct slope {
    double th, eta;
};

static struct slope slope_at(const struct hb_ref_call *call, int32_t t, int32_t h) {
    const struct hb_config *c = call->config;
    struct slope s = {0};
    if (c->slope_kind == HB_SLOPE_PARAM) {
        s.th = -(double)call->params->a[h];
    } else if (c->slope_kind == HB_SLOPE_TOKEN) {
        s.th = -(double)call->in[2][(int64_t)t * c->n_heads + h];
    } else {
        s.th = slope_of(c, call->layer, h);
        s.eta = 3.0 * HB_REF_U32 * fabs(s.th);
    }
    return s;
}

/* n inputs [..] of q, k or v through the activation; what a backend keeps of them may have been
 * rounded to the activation type. */
static void load(const struct hb_ref_scan *s, const float *src, int64_t n, double *x, double *dx) {
    const int is_silu = s->call->config->qkv_act == HB_QKV_SILU;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (double)src[i];
        dx[i] = 0.0;
        if (is_silu) {
            const struct hb_ref_silu a = hb_ref_silu(x[i], 0.0, s->rates.e_exp);
            x[i] = a.value;
            dx[i] = hb_ref_stored(&s->rates, a.value, a.error);
        }
    }
}

/* c q: one product, and two more roundings of a factor that is a root. The product may as well come
 * after the sum over n, where it costs the same. */
static void scale_queries(const struct hb_config *c, int64_t n, double *q, double *dq) {
    const int is_given = c->qk_scale != 0.0F;
    const double scale = is_given ? (double)c->qk_scale : 1.0 / sqrt((double)c->state_size);
    const double own = (is_given ? 2.0 : 5.0) * HB_REF_U32, size = fabs(scale);
    for (int64_t i = 0; i < n; i++) {
        dq[i] = size * (dq[i] + (fabs(q[i]) + dq[i]) * own) + HB_REF_TINY;
        q[i] *= scale;
    }
}

/* Token t into the box: x | B | C of the general form, which are v | k | q, and the gate. */
static void load_token(const struct hb_ref_scan *s, int32_t t) {
    const struct hb_ref_dims *d = &s->d;
    struct hb_ref_box *box = s->box;
    const int64_t keys = (int64_t)d->groups * d->state_size;
    const float *row = s->call->in[1] + t * d->dim;
    load(s, row + 2 * keys, d->d_inner, box->c, box->dc);
    load(s, row + keys, keys, box->c + d->d_inner, box->dc + d->d_inner);
    load(s, row, keys, box->c + d->d_inner + keys, box->dc + d->d_inner + keys);
    scale_queries(s->call->config, keys, box->c + d->d_inner + keys, box->dc + d->d_inner + keys);
    const float *z = s->call->in[0] ? s->call->in[0] + t * d->d_inner : NULL;
    hb_ref_scan_widen(z, d->d_inner, box->z);
}

static struct hb_ref_pair pair_of(const struct hb_ref_scan *s, int32_t group) {
    const struct hb_ref_dims *d = &s->d;
    const int64_t b = d->d_inner + (int64_t)group * d->state_size;
    const int64_t c = b + (int64_t)d->groups * d->state_size;
    struct hb_ref_pair pair = {
        .b = s->box->c + b, .db = s->box->dc + b, .c = s->box->c + c, .dc = s->box->dc + c};
    hb_ref_scan_tops(s, &pair);
    return pair;
}

static void advance_head(struct hb_ref_scan *s, int32_t t, int32_t h, struct hb_ref_decay *decay) {
    const struct hb_ref_dims *d = &s->d;
    const int is_tile = s->call->config->head_map == HB_HEADS_TILE;
    const struct hb_ref_pair pair =
        pair_of(s, is_tile ? h % d->groups : h / (d->heads / d->groups));
    const struct slope slope = slope_at(s->call, t, h);
    const double window = hb_ref_scan_window(s, h, fabs(slope.th) + slope.eta);
    const struct hb_ref_decay all = hb_ref_scan_decay(&s->rates, slope.th, slope.eta, window);
    for (int32_t n = 0; n < d->state_size; n++) {
        decay[n] = all;
    }
    for (int32_t p = 0; p < d->head_dim; p++) {
        const int64_t i = (int64_t)h * d->head_dim + p;
        const struct hb_ref_feed feed = {.i = i, .dt = 1.0, .x = s->box->c[i], .dx = s->box->dc[i]};
        hb_ref_scan_row(s, &feed, decay, &pair);
    }
}

int hb_ref_decay_run(const struct hb_ref_call *call) {
    if (call->n <= 0) {
        return 0;
    }
    struct hb_ref_decay decay[HB_MAX_STATE_SIZE];
    struct hb_ref_scan s = hb_ref_scan_begin(call, call->state->th_ring);
    for (int32_t t = 0; t < call->n; t++) {
        load_token(&s, t);
        for (int32_t h = 0; h < s.d.heads; h++) {
            advance_head(&s, t, h, decay);
        }
        hb_ref_scan_token(&s, t, NULL);
    }
    hb_ref_scan_end(&s, NULL);
    return 0;
}
