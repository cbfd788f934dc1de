/* SPDX-License-Identifier: Apache-2.0
 * Gate and group RMS norm of one token in all five forms (ops-mamba2.md 2.2) with the composed bound of tolerance.md
 * 3.6 and 3.7. The stages are v (what is normalised), o = v * w / s, and the gate that follows in the BEFORE form. */
#include "harness/oracle/ref_internal.h"

/* A value on its way to the output. */
struct stage {
    double v, dv, mag;
};

static int has_norm(int32_t kind)
{
    return kind == HB_GATE_NORM_AFTER || kind == HB_GATE_NORM_BEFORE || kind == HB_NORM_ONLY;
}

static struct stage times_gate(struct stage in, double gate, double dgate)
{
    const double g = fabs(gate);
    struct stage out;
    out.v = in.v * gate;
    out.mag = in.mag * g;
    out.dv = in.dv * g + (fabs(in.v) + in.dv) * (dgate + HB_REF_U32 * (g + dgate)) + HB_REF_TINY;
    return out;
}

/* Applies the stores that end the stage and writes the element; whatever is not finite is not judged. */
static void finish(const struct hb_ref_rates *k, struct stage s, double inner_scale, double *out, double *bound,
                   double *mag)
{
    if (k->norm_roundings > 1) {
        s.dv = hb_ref_rounded(s.v, s.dv, k->u_io, k->io_floor * inner_scale);
    }
    s.dv = hb_ref_rounded(s.v, s.dv, k->u_io, k->io_floor);
    const double size = hb_ref_max(s.mag, fabs(s.v));
    const int value_ok = hb_ref_is_finite(s.v);
    *out = s.v;
    *bound = value_ok && hb_ref_is_finite(s.dv) ? s.dv : (double)INFINITY;
    *mag = value_ok && hb_ref_is_finite(size) ? size : (double)INFINITY;
}

/* v of channel i: y, or y * silu(z) where the gate comes first. */
static struct stage first_stage(int32_t kind, const struct hb_ref_box *box, int64_t i)
{
    const struct stage y = {box->y[i], box->dy[i], box->my[i]};
    return kind == HB_GATE_NORM_AFTER || kind == HB_GATE_ONLY ? times_gate(y, box->gate[i], box->dgate[i]) : y;
}

/* The root of one group: s, the relative error q/(1-q) it inherits from v, and its own relative error. */
struct root {
    double s, q, own;
};

static struct root group_root(int32_t kind, double eps, const struct hb_ref_box *box, int64_t from, int64_t n)
{
    double sum = 0.0, err = 0.0, top = 0.0;
    for (int64_t i = from; i < from + n; i++) {
        const struct stage v = first_stage(kind, box, i);
        const double most = fabs(v.v) + v.dv;
        sum += v.v * v.v;
        err += v.dv * v.dv;
        top += most * most;
    }
    const double count = (double)n;
    struct root r;
    r.s = sqrt(sum / count + eps);
    r.q = sqrt(err / count) / r.s;
    r.own = hb_ref_gam(count / 2.0 + 6.0, HB_REF_U32) + 4.0 * HB_REF_U32 + HB_REF_TINY / (r.s * r.s);
    if (!(r.q < 0.5) || !(top <= (double)FLT_MAX)) {
        r.q = (double)INFINITY; /* vacuous, or the sum of squares may overflow */
    }
    return r;
}

static struct stage normalised(struct stage v, const struct root *r, double weight)
{
    const double w = fabs(weight) / r->s;
    struct stage o;
    o.v = v.v / r->s * weight;
    o.mag = v.mag * w;
    if (!hb_ref_is_finite(r->q)) {
        o.dv = (double)INFINITY;
        return o;
    }
    o.dv = w * (v.dv + fabs(v.v) * r->q) / (1.0 - r->q);
    o.dv += (fabs(o.v) + o.dv) * r->own + HB_REF_TINY * (1.0 + fabs(weight));
    return o;
}

void hb_ref_gate_norm(const struct hb_config *config, const struct hb_ref_rates *rates, const float *weight,
                      double eps, const struct hb_ref_box *box, double *out, double *bound, double *mag)
{
    const int32_t kind = config->gate_norm;
    const int64_t n = (int64_t)config->n_heads * config->head_dim;
    if (kind == HB_GATE_NORM_NONE) {
        for (int64_t i = 0; i < n; i++) { /* y as stored: no further rounding */
            const struct hb_ref_rates none = {0};
            finish(&none, first_stage(kind, box, i), 0.0, out + i, bound + i, mag + i);
        }
        return;
    }
    for (int64_t i = 0; i < n && kind != HB_NORM_ONLY; i++) {
        box->gate[i] = hb_ref_silu(box->z[i]);
        box->dgate[i] = hb_ref_silu_error(box->z[i], box->gate[i], rates->e_exp);
    }
    if (!has_norm(kind)) {
        for (int64_t i = 0; i < n; i++) {
            finish(rates, first_stage(kind, box, i), fabs(box->y[i]) + box->dy[i], out + i, bound + i, mag + i);
        }
        return;
    }
    const int64_t group = config->norm_group > 0 ? config->norm_group : n;
    for (int64_t from = 0; from < n; from += group) {
        const int64_t size = group < n - from ? group : n - from;
        const struct root r = group_root(kind, eps, box, from, size);
        for (int64_t i = from; i < from + size; i++) {
            const double w = weight ? (double)weight[i] : 1.0;
            double scale = fabs(w);
            struct stage o = normalised(first_stage(kind, box, i), &r, w);
            if (kind == HB_GATE_NORM_BEFORE) {
                o = times_gate(o, box->gate[i], box->dgate[i]);
                scale *= fabs(box->gate[i]) + box->dgate[i];
            }
            finish(rates, o, scale, out + i, bound + i, mag + i);
        }
    }
}
