/* SPDX-License-Identifier: Apache-2.0
 * Gate (silu or sigmoid) and group RMS norm of one token in all five forms (ops-mamba2.md 2.2)
 * with the composed bound of tolerance.md 3.6 and 3.7. The stages are v (what is normalised),
 * o = v * w / s, and the gate that follows in the BEFORE form. */
#include "harness/oracle/ref_internal.h"

/* A value on its way to the output. */
struct stage {
    double v, dv, mag;
};

static int has_norm(int32_t kind) {
    return kind == HB_GATE_NORM_AFTER || kind == HB_GATE_NORM_BEFORE || kind == HB_NORM_ONLY;
}

static struct stage times_gate(struct stage in, double gate, double dgate) {
    const double g = fabs(gate);
    struct stage out;
    out.v = in.v * gate;
    out.mag = in.mag * g;
    out.dv = in.dv * g + (fabs(in.v) + in.dv) * (dgate + HB_REF_U32 * (g + dgate)) + HB_REF_TINY;
    return out;
}

/* Applies the stores that end the stage and writes the element; whatever is not finite is not
 * judged. */
static void finish(const struct hb_ref_rates *k, struct stage s, double inner_scale, double *out,
                   double *bound, double *mag) {
    if (k->norm_roundings > 1) {
        s.dv = hb_ref_rounded(s.v, s.dv, k->u_io, k->io_floor * inner_scale);
    }
    s.dv = hb_ref_rounded(s.v, s.dv, k->u_io, k->io_floor);
    const double size = hb_ref_max(hb_ref_max(s.mag, fabs(s.v)), k->nothing);
    const int value_ok = hb_ref_is_finite(s.v);
    *out = s.v;
    *bound = value_ok && hb_ref_is_finite(s.dv) ? s.dv : (double)INFINITY;
    *mag = value_ok && hb_ref_is_finite(size) ? size : (double)INFINITY;
}

/* v of channel i: y, or y * silu(z) where the gate comes first. */
static struct stage first_stage(int32_t kind, const struct hb_ref_box *box, int64_t i) {
    const struct stage y = {box->y[i], box->dy[i], box->my[i]};
    return kind == HB_GATE_NORM_AFTER || kind == HB_GATE_ONLY
               ? times_gate(y, box->gate[i], box->dgate[i])
               : y;
}

/* The root s of one group and what its error does to 1/s. No channel of a normalised group exceeds
 * sqrt(n), whatever v is: limit. */
struct root {
    double s;
    double shift; /* largest relative change of 1/s by dv, infinite if s may vanish */
    double own;   /* relative error of the root, the quotient and the products themselves */
    double limit;
    int32_t in_range; /* the sum of squares cannot overflow */
};

/* s^2 moves by at most rho s^2, rho = (2 mean |v| dv + mean dv^2) / s^2, hence 1/s by at most
 * (1-rho)^-1/2 - 1. */
static struct root group_root(int32_t kind, double eps, const struct hb_ref_box *box, int64_t from,
                              int64_t n) {
    double sum = 0.0, moved = 0.0;
    for (int64_t i = from; i < from + n; i++) {
        const struct stage v = first_stage(kind, box, i);
        sum += v.v * v.v;
        moved += v.dv * (2.0 * fabs(v.v) + v.dv);
    }
    const double count = (double)n;
    const double mean = sum / count + eps;
    const double rho = moved / count / mean;
    struct root r;
    r.s = sqrt(mean);
    r.shift = rho < 1.0 ? rho / (1.0 - rho + sqrt(1.0 - rho)) : (double)INFINITY;
    r.own = hb_ref_gam(count / 2.0 + 6.0, HB_REF_U32) + 4.0 * HB_REF_U32 + HB_REF_TINY / mean;
    r.limit = sqrt(count);
    r.in_range = sum + moved <= (double)FLT_MAX;
    return r;
}

static struct stage normalised(struct stage v, const struct root *r, double weight) {
    const double w = fabs(weight) / r->s;
    const double cap = fabs(weight) * (fabs(v.v) / r->s + r->limit);
    struct stage o;
    o.v = v.v / r->s * weight;
    o.mag = v.mag * w;
    o.dv = w * (v.dv + (fabs(v.v) + v.dv) * r->shift);
    o.dv = o.dv < cap ? o.dv : cap;
    o.dv += (fabs(o.v) + o.dv) * r->own + HB_REF_TINY * (1.0 + fabs(weight));
    o.dv = r->in_range ? o.dv : (double)INFINITY;
    return o;
}

void hb_ref_gate_norm(const struct hb_config *config, const struct hb_ref_rates *rates,
                      const float *weight, double eps, const struct hb_ref_box *box, double *out,
                      double *bound, double *mag) {
    const int32_t kind = config->gate_norm;
    const int64_t n = (int64_t)config->n_heads * config->head_dim;
    if (kind == HB_GATE_NORM_NONE) {
        for (int64_t i = 0; i < n; i++) { /* y as stored: no further rounding */
            const struct hb_ref_rates none = {.nothing = rates->nothing};
            finish(&none, first_stage(kind, box, i), 0.0, out + i, bound + i, mag + i);
        }
        return;
    }
    for (int64_t i = 0; i < n && kind != HB_NORM_ONLY; i++) {
        const struct hb_ref_silu s = config->out_gate == HB_OUT_SIGMOID
                                         ? hb_ref_sigmoid(box->z[i], 0.0, rates->e_exp)
                                         : hb_ref_silu(box->z[i], 0.0, rates->e_exp);
        box->gate[i] = s.value;
        box->dgate[i] = s.error;
    }
    if (!has_norm(kind)) {
        for (int64_t i = 0; i < n; i++) {
            finish(rates, first_stage(kind, box, i), fabs(box->y[i]) + box->dy[i], out + i,
                   bound + i, mag + i);
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
