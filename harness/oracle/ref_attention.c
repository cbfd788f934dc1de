/* SPDX-License-Identifier: Apache-2.0
 * Attention of one query token in float64, two-pass softmax (ops-attention.md 3), sliding window
 * and soft cap included, with the bound of tolerance.md 3.5. Nothing is allocated: logits beyond a
 * fixed number are computed again in each pass. */
#include "harness/oracle/ref_internal.h"

enum { KEPT = 256 };

/* A pair per key: (logit, its error) before the maximum is known, (e^(l-m), that times rho)
 * afterwards. */
struct pair {
    double first, second;
};

struct rates {
    double per_abs; /* error of a logit per |scale| sum |q||k| */
    double e_exp, per_v, c, u_io, io_floor;
    double nothing; /* least magnitude of a result */
    double w_floor; /* underflow of a weight that is rounded to the type of the values */
};

/* One query head against the keys of its KV head. */
struct head {
    const float *q, *keys, *values;
    int64_t stride; /* HKV * D */
    int32_t n_ctx, dim;
    double scale, cap, top;
    const struct rates *rates;
    int32_t in_range; /* no logit can exceed the range of fp32 */
    double sum, sum_rho;
    struct pair kept[KEPT];
};

/* l = cap tanh(x / cap): the slope of tanh is largest at the end of the interval that is nearer to
 * zero, and the quotient, tanh and the product lose 6u. */
static struct pair capped(const struct head *a, struct pair x) {
    const double size = fabs(x.first);
    const double near = size > x.second ? tanh((size - x.second) / a->cap) : 0.0;
    const double l = a->cap * tanh(x.first / a->cap);
    const double moved = x.second * (1.0 - near) * (1.0 + near);
    const double own = 6.0 * HB_REF_U32 * fabs(l) + HB_REF_TINY;
    const struct pair c = {l, moved + own};
    return c;
}

/* The error is infinite where the sum may overflow. */
static struct pair compute_logit(const struct head *a, int32_t j) {
    const float *key = a->keys + j * a->stride;
    double dot = 0.0, abs = 0.0;
    for (int32_t i = 0; i < a->dim; i++) {
        const double p = (double)a->q[i] * (double)key[i];
        dot += p;
        abs += fabs(p);
    }
    const double sum = fabs(a->scale) * abs, logit = a->scale * dot;
    const double error = a->rates->per_abs * sum + 2.0 * HB_REF_U32 * fabs(logit) + HB_REF_TINY;
    const struct pair l = {logit, sum <= (double)FLT_MAX ? error : (double)INFINITY};
    return a->cap > 0.0 ? capped(a, l) : l;
}

static struct pair weigh(const struct head *a, struct pair l) {
    const double u = HB_REF_U32;
    const double e = exp(l.first - a->top);
    const double shift = 2.0 * u * fabs(l.first - a->top) + 2.0 * u * fabs(a->top);
    const double rho = expm1(l.second + shift) + a->rates->e_exp;
    const struct pair w = {e, e * rho};
    return w;
}

static struct pair weight_of(const struct head *a, int32_t j) {
    return j < KEPT ? a->kept[j] : weigh(a, compute_logit(a, j));
}

/* The maximum is only a reference point: it cancels, so a NaN may be passed over here and still
 * reaches the sums. */
static void prepare(struct head *a) {
    a->top = -(double)INFINITY;
    a->in_range = 1;
    for (int32_t j = 0; j < a->n_ctx; j++) {
        const struct pair l = compute_logit(a, j);
        if (j < KEPT) {
            a->kept[j] = l;
        }
        a->top = l.first > a->top ? l.first : a->top;
        a->in_range = a->in_range && l.second <= (double)FLT_MAX;
    }
    a->sum = 0.0;
    a->sum_rho = 0.0;
    for (int32_t j = 0; j < a->n_ctx; j++) {
        const struct pair w = weigh(a, j < KEPT ? a->kept[j] : compute_logit(a, j));
        if (j < KEPT) {
            a->kept[j] = w;
        }
        a->sum += w.first;
        a->sum_rho += w.second;
    }
    a->sum_rho /= a->sum;
}

/* is_cut: the window begins inside the context, so that it may share its first block with keys that
 * it leaves out. Blocks of such keys alone add exact zeros. */
static struct rates rates_of(const struct hb_profile *p, int32_t n_ctx, int32_t is_cut,
                             int32_t dim) {
    const int32_t block = p->attn_block > 0 && p->attn_block < n_ctx ? p->attn_block : n_ctx;
    const double n_blocks = ceil((double)n_ctx / block) + (is_cut && p->attn_block > 0 ? 1.0 : 0.0);
    struct rates k;
    k.per_abs = hb_ref_gam(dim + 2.0, p->u_acc) + 2.0 * p->k_in * p->u_op * (1.0 + p->u_op);
    k.e_exp = p->e_exp;
    k.c = hb_ref_gam(2.0 * n_blocks + block + 8.0, hb_ref_max(p->u_acc, HB_REF_U32)) +
          n_blocks * p->e_exp;
    k.per_v = p->u_op * (1.0 + p->k_in) + k.c;
    k.u_io = p->u_io;
    k.io_floor = p->io_floor;
    k.w_floor = p->u_op > 0.0 ? hb_ref_max(p->io_floor, HB_REF_TINY) : HB_REF_TINY;
    return k;
}

static void weigh_values(const struct head *a, double *out, double *mag) {
    for (int32_t i = 0; i < a->dim; i++) {
        out[i] = 0.0;
        mag[i] = 0.0;
    }
    for (int32_t j = 0; j < a->n_ctx; j++) {
        const double p = weight_of(a, j).first / a->sum;
        const float *v = a->values + j * a->stride;
        for (int32_t i = 0; i < a->dim; i++) {
            const double t = p * (double)v[i];
            out[i] += t;
            mag[i] += fabs(t);
        }
    }
}

/* First term of 3.5 into bound [D]: sum of w rho |v - o|, with what a weight or a product loses
 * when it underflows (the weights as numerators e^(l-m), so over their sum). In an ill-conditioned
 * row the result is still an average of values. */
static void bound_spread(const struct head *a, const double *out, double *bound) {
    const int ill = !(a->sum_rho <= 0.5);
    const double lost = a->rates->w_floor / a->sum;
    for (int32_t i = 0; i < a->dim; i++) {
        bound[i] = 0.0;
    }
    for (int32_t j = 0; j < a->n_ctx; j++) {
        const double p = weight_of(a, j).second / a->sum * (1.0 + 2.0 * a->sum_rho);
        const float *v = a->values + j * a->stride;
        for (int32_t i = 0; i < a->dim; i++) {
            const double x = (double)v[i];
            bound[i] = ill ? hb_ref_max(bound[i], 2.0 * fabs(x))
                           : bound[i] + p * fabs(x - out[i]) + HB_REF_TINY + lost * fabs(x);
        }
    }
}

static void finish_head(const struct head *a, const double *out, double *bound, double *mag) {
    const struct rates *k = a->rates;
    for (int32_t i = 0; i < a->dim; i++) {
        const double e = bound[i] + k->per_v * mag[i] + k->c * fabs(out[i]);
        const double b = hb_ref_rounded(out[i], e, k->u_io, k->io_floor);
        const double size = hb_ref_max(hb_ref_max(mag[i], fabs(out[i])), k->nothing);
        const int value_ok = hb_ref_is_finite(out[i]);
        bound[i] = a->in_range && value_ok && hb_ref_is_finite(b) ? b : (double)INFINITY;
        mag[i] = value_ok && hb_ref_is_finite(size) ? size : (double)INFINITY;
    }
}

/* Keys before the sliding window of the last of n_ctx positions: p - j < w or <= w leaves the last
 * w or w + 1. */
static int32_t left_out(const struct hb_config *config, int32_t n_ctx) {
    const int64_t seen =
        (int64_t)config->attn_window + (config->window_rule == HB_WINDOW_INCLUSIVE ? 1 : 0);
    return config->attn_window > 0 && seen < n_ctx ? n_ctx - (int32_t)seen : 0;
}

void hb_ref_attention(const struct hb_config *config, const struct hb_profile *profile,
                      int32_t n_ctx, const float *q, const float *keys, const float *values,
                      double *out, double *bound, double *mag) {
    const int32_t dim = config->attn_dim;
    const int64_t total = (int64_t)config->n_q_heads * dim;
    if (n_ctx <= 0) { /* empty valid set: exactly zero */
        for (int64_t i = 0; i < total; i++) {
            out[i] = bound[i] = mag[i] = 0.0;
        }
        return;
    }
    const int32_t shared = config->n_q_heads / config->n_kv_heads;
    const int32_t first = left_out(config, n_ctx);
    struct rates k = rates_of(profile, n_ctx - first, first > 0, dim);
    struct head a;
    k.nothing = hb_ref_nothing_of(config);
    a.rates = &k;
    a.n_ctx = n_ctx - first;
    a.dim = dim;
    a.stride = (int64_t)config->n_kv_heads * dim;
    a.scale = config->sm_scale != 0.0F ? (double)config->sm_scale : 1.0 / sqrt((double)dim);
    a.cap = (double)config->attn_softcap;
    for (int32_t h = 0; h < config->n_q_heads; h++) {
        const int64_t at = (int64_t)h * dim;
        const int64_t from = first * a.stride + (int64_t)(h / shared) * dim;
        a.q = q + at;
        a.keys = keys + from;
        a.values = values + from;
        prepare(&a);
        weigh_values(&a, out + at, mag + at);
        bound_spread(&a, out + at, bound + at);
        finish_head(&a, out + at, bound + at, mag + at);
    }
}
