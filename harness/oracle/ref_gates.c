/* SPDX-License-Identifier: Apache-2.0
 * Constants of the bounds, step size and decay (ops-mamba2.md 2.1, tolerance.md 3.1). */
#include "harness/oracle/ref_internal.h"

/* Cumulative sums over a chunk that holds len tokens (adding zeros rounds nothing). In sequence,
 * s_i = s_(i-1) + th_i, an exponent s_i - s_j carries only the roundings of the steps between j and
 * i, each at most u |s|: charged as step_q W_t per token of decay. Otherwise both sums carry all of
 * theirs, 3.2: depth of the tree, or len in any order. */
static void set_sum_rates(struct hb_ref_rates *k, int32_t kind, int32_t chunk, int32_t len) {
    if (kind == HB_CS_SEQUENTIAL) {
        k->step_q = HB_REF_U32 * (1.0 + hb_ref_gam(len, HB_REF_U32));
        return;
    }
    int32_t depth = 0;
    while (depth < 30 && ((int32_t)1 << depth) < chunk) {
        depth++;
    }
    const int32_t tree = depth + 1 < len ? depth + 1 : len;
    k->gq = hb_ref_gam(kind == HB_CS_TREE ? tree : len, HB_REF_U32);
}

/* What both forms of a state share. */
static struct hb_ref_rates common_rates(const struct hb_config *config,
                                        const struct hb_profile *profile) {
    struct hb_ref_rates k = {0};
    k.u_io = profile->u_io;
    k.io_floor = profile->io_floor;
    k.io_max = config->act_dtype == HB_FP16 ? 65504.0 : (double)FLT_MAX;
    k.nothing = hb_ref_nothing_of(config);
    k.e_exp = profile->e_exp;
    k.sp_abs = profile->sp_abs;
    k.sp_rel = profile->sp_rel;
    k.u_st = config->state_dtype == HB_BF16 ? 0x1p-8 : 0.0;
    k.norm_roundings = profile->norm_roundings;
    k.u_acc = profile->u_acc;
    k.op_floor = profile->u_op > 0.0 ? hb_ref_max(k.io_floor, HB_REF_TINY) : HB_REF_TINY;
    return k;
}

/* Operands of the sums behind an output, and rounding of the sum of `met` terms behind a state. */
static void set_operand_rates(struct hb_ref_rates *k, const struct hb_profile *profile,
                              double met) {
    const double both = profile->u_op * (2.0 + 2.0 * profile->k_in);
    const double one = profile->u_op * (1.0 + 2.0 * profile->k_in);
    k->chunked = 1;
    k->kop = both * (1.0 + both);
    k->kstate = (1.0 + one * (1.0 + one)) * (1.0 + hb_ref_gam(met + 8.0, profile->u_acc)) - 1.0;
}

struct hb_ref_rates hb_ref_rates_of(const struct hb_config *config,
                                    const struct hb_profile *profile, int32_t n_tokens) {
    const int32_t chunk = n_tokens < config->chunk_size ? n_tokens : config->chunk_size;
    struct hb_ref_rates k = common_rates(config, profile);
    if (!profile->chunked) {
        return k;
    }
    set_operand_rates(&k, profile, chunk);
    k.most_met = 2 * config->chunk_size;
    set_sum_rates(&k, profile->cs_tree, config->chunk_size, chunk);
    return k;
}

/* The records of a ring are one chunk of `ring_length` tokens that goes on over calls (README). No
 * profile says how a backend adds up their log decays, so any order is allowed. */
struct hb_ref_rates hb_ref_ring_rates(const struct hb_config *config,
                                      const struct hb_profile *profile, int32_t w) {
    struct hb_ref_rates k = common_rates(config, profile);
    set_operand_rates(&k, profile, w + 1.0);
    k.most_met = config->ring_length;
    set_sum_rates(&k, HB_CS_ANY, config->ring_length, config->ring_length);
    return k;
}

/* 3.2 with the tokens counted: on its way to the output a term meets the other terms of its own
 * chunk and those of the chunk of the output, at most 2Q tokens and never more than the t+1 tokens
 * that the call has had. */
double hb_ref_ky(const struct hb_config *config, const struct hb_ref_rates *rates, int64_t t) {
    const double n = config->state_size;
    if (!rates->chunked) {
        return hb_ref_gam(n + 2.0, rates->u_acc);
    }
    const double met = (double)(t + 1 < rates->most_met ? t + 1 : rates->most_met);
    return (1.0 + rates->kop) * (1.0 + hb_ref_gam(n + met + 8.0, rates->u_acc)) - 1.0;
}

/* Comparisons are written so that a NaN stays. */
static double clamp_step(const struct hb_ref_gate *gate, double sp) {
    double dt = sp;
    if (gate->clamp != HB_DT_CLAMP_NONE && dt < gate->lo) {
        dt = gate->lo;
    }
    if (gate->clamp == HB_DT_CLAMP_LIMIT && dt > gate->hi) {
        dt = gate->hi;
    }
    return dt;
}

struct hb_ref_step hb_ref_step_of(const struct hb_ref_gate *gate, const struct hb_ref_rates *rates,
                                  double raw) {
    const double u = HB_REF_U32;
    const double a = raw + (gate->bias ? (double)*gate->bias : 0.0);
    const double da = gate->bias ? u * fabs(a) + HB_REF_TINY : 0.0;
    struct hb_ref_step s;
    s.dt = a;
    s.ddt = da;
    if (gate->softplus) {
        const double e = exp(-fabs(a));
        const double sp = a > 0.0 ? a + log1p(e) : log1p(e);
        const double sigmoid = (a >= 0.0 ? 1.0 : e) / (1.0 + e);
        s.dt = sp;
        s.ddt = sigmoid * da * (1.0 + 0x1p-10) + rates->sp_abs + rates->sp_rel * sp + HB_REF_TINY;
        s.ddt += a >= 19.9 ? exp(-a) : 0.0;
    }
    s.dt = clamp_step(gate, s.dt);
    s.th = -(s.dt * gate->rate);
    s.eta = fabs(gate->rate) * s.ddt + u * fabs(s.th) + HB_REF_TINY;
    return s;
}
