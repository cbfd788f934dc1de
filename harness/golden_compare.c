/* SPDX-License-Identifier: Apache-2.0
 * What the golden check compares with what: tolerance.md section 3.8. */
#include <math.h>

#include "harness/golden_run.h"

static const double FLOAT64_SHARE =
    0x1p-40; /* what two float64 evaluations may differ by, of mag + |S| */

/* One output element in the place where values are stored: after the output projection if the case
 * has one. */
struct mapped {
    double got, q, o, bound, q_to_o, mag, foreign, foreign_bound;
};

static struct mapped map_output(const struct hb_golden_run *r, int64_t row, int64_t j,
                                const float *got) {
    const int64_t n = r->p->d_inner;
    const int64_t first = row * n;
    if (r->p->w_out == NULL) {
        const double distance = fabs(r->q_out[first + j] - r->o_out[first + j]);
        return (struct mapped){(double)got[first + j],
                               r->q_out[first + j],
                               r->o_out[first + j],
                               r->q_bound[first + j],
                               distance,
                               r->q_mag[first + j],
                               r->foreign_out[first + j],
                               r->foreign_bound[first + j]};
    }
    const double *w = r->p->w_out + j * n;
    const double bias = r->p->b_out != NULL ? r->p->b_out[j] : 0.0;
    struct mapped m = {bias, bias, bias, 0.0, 0.0, fabs(bias), bias, 0.0};
    for (int64_t i = 0; i < n; i++) {
        m.got += w[i] * (double)got[first + i];
        m.q += w[i] * r->q_out[first + i];
        m.o += w[i] * r->o_out[first + i];
        m.bound += fabs(w[i]) * r->q_bound[first + i];
        m.q_to_o += fabs(w[i]) * fabs(r->q_out[first + i] - r->o_out[first + i]);
        m.mag += fabs(w[i]) * r->q_mag[first + i];
        m.foreign += w[i] * r->foreign_out[first + i];
        m.foreign_bound += fabs(w[i]) * r->foreign_bound[first + i];
    }
    m.foreign_bound += (double)(n + 1) * 0x1p-24 * m.mag; /* its own projection, in fp32 */
    return m;
}

/* The producer's own result as that of a foreign backend: |E - Q| <= B of its profile. */
static void judge_foreign(struct hb_golden_run *r, const struct mapped *m,
                          const struct hb_golden_place *at) {
    const double got = hb_st_get(r->foreign, at->index);
    const double error = fabs(got - m->foreign);
    double share = error <= 0.0 ? 0.0 : error / m->foreign_bound;
    if (!isfinite(got) || isnan(share)) {
        share = (double)INFINITY;
    }
    double *most = &r->judge.result->share_foreign;
    *most = share > *most ? share : *most;
    if (!isfinite(got) || !(error <= m->foreign_bound)) {
        hb_golden_judge_fail(&r->judge,
                             "%.20s, the producer's own result: sequence %d, token %d, channel %d: "
                             "got %.9g, want %.9g, bound %.3g",
                             r->foreign->name, at->seq, at->token, at->channel, got, m->foreign,
                             m->foreign_bound);
    }
}

void hb_golden_compare_output(struct hb_golden_run *r, const struct hb_golden_row *row,
                              const float *got) {
    const int64_t width = r->p->d_inner;
    struct hb_golden_place at = {HB_GOLDEN_Y, HB_GOLDEN_B, row->seq, 0, 0, 0};
    for (int64_t t = 0; t < row->n; t++) {
        const int64_t token = (int64_t)r->p->first[row->seq] + r->seq[row->seq].pos + t;
        at.token = r->seq[row->seq].pos + (int32_t)t;
        at.check = HB_GOLDEN_B;
        for (int64_t c = 0; c < width; c++) {
            at.channel = (int32_t)c;
            at.index = token * width + c;
            hb_golden_judge_element(&r->judge, &at, (double)got[t * width + c],
                                    r->q_out[t * width + c], r->q_bound[t * width + c]);
        }
        for (int64_t j = 0; j < r->p->y_width && r->y != NULL; j++) {
            const struct mapped m = map_output(r, t, j, got);
            at.channel = (int32_t)j;
            at.index = token * r->p->y_width + j;
            const double stored = hb_st_get(r->y, at.index);
            const double exact = FLOAT64_SHARE * (m.mag + fabs(stored));
            at.check = HB_GOLDEN_A;
            hb_golden_judge_element(&r->judge, &at, m.o, stored, exact);
            at.check = HB_GOLDEN_C;
            hb_golden_judge_element(&r->judge, &at, m.got, stored, m.bound + m.q_to_o + exact);
            if (r->foreign != NULL) {
                judge_foreign(r, &m, &at);
            }
        }
    }
}

/* The conv state is a copy of rounded inputs: bit for bit what was handed over, and within one unit
 * in the last place of what is stored. The stored window may have one column more than ours, which
 * only (a) looks at. */
static void compare_conv(struct hb_golden_run *r, const struct hb_golden_state *stored,
                         struct hb_golden_place at) {
    const struct hb_golden_problem *p = r->p;
    const int32_t w = r->window;
    const int32_t columns = stored != NULL && stored->conv != NULL ? p->conv_columns : w;
    const int32_t channels = stored != NULL && stored->conv != NULL ? p->conv_channels : p->channels;
    at.tensor = HB_GOLDEN_CONV;
    for (int32_t c = 0; c < p->channels; c++) {
        at.channel = c;
        for (int32_t k = 0; k < columns; k++) {
            const int32_t pos = at.token - columns + k;
            const int32_t ours = w - columns + k;
            const int has_stored = stored != NULL && stored->conv != NULL && c < channels;
            at.index = has_stored ? (stored->conv_row * channels + c) * columns + k : -1;
            const double got = ours >= 0 ? (double)r->state[(int64_t)c * w + ours] : 0.0;
            if (ours >= 0) {
                double want = hb_golden_ref_input(p, at.seq, pos, c);
                want = pos >= 0 ? (double)r->in[1][((int64_t)p->first[at.seq] + pos) * p->dim + c]
                                : want;
                if (pos < 0 && p->init_conv != NULL) {
                    want = (double)r->init_conv[((int64_t)at.seq * p->channels + c) * w + w + pos];
                }
                at.check = HB_GOLDEN_B;
                hb_golden_judge_element(&r->judge, &at, got, want, 0.0);
            }
            if (has_stored) {
                const double s = hb_st_get(stored->conv, at.index);
                const double mag = p->xbc_mag != NULL && pos >= 0
                                       ? p->xbc_mag[((int64_t)p->first[at.seq] + pos) * p->dim + c]
                                       : fabs(s);
                at.check = HB_GOLDEN_A;
                hb_golden_judge_element(&r->judge, &at, hb_golden_ref_input(p, at.seq, pos, c), s,
                                        FLOAT64_SHARE * (mag + fabs(s)));
                at.check = HB_GOLDEN_C;
                if (ours >= 0) {
                    hb_golden_judge_element(&r->judge, &at, got, s,
                                            hb_golden_ulp(r->config.act_dtype, s));
                }
            }
        }
    }
}

static void compare_ssm(struct hb_golden_run *r, const struct hb_golden_state *stored,
                        struct hb_golden_place at, int32_t path, const double *h,
                        const struct hb_ref_state *q) {
    const struct hb_profile *profile =
        &r->caps->profile[r->config.kernel_form][path][r->config.act_dtype];
    const int has_stored = stored != NULL && stored->ssm != NULL;
    at.tensor = HB_GOLDEN_SSM;
    for (int64_t i = 0; i < r->n_h; i++) {
        const double got = (double)r->state[r->n_conv + i];
        const double bound = hb_ref_state_bound(&r->config, profile, q, i, 0);
        const int64_t place = r->p->state_is_kv ? hb_golden_kv_place(&r->config, i) : i;
        at.channel = (int32_t)place;
        at.index = has_stored ? stored->ssm_row * r->n_h + place : -1;
        at.check = HB_GOLDEN_B;
        hb_golden_judge_element(&r->judge, &at, got, q->h[i], bound);
        if (has_stored) {
            const double s = hb_st_get(stored->ssm, at.index);
            const double exact = FLOAT64_SHARE * (q->m[i] + fabs(s));
            at.check = HB_GOLDEN_A;
            hb_golden_judge_element(&r->judge, &at, h[i], s, exact);
            at.check = HB_GOLDEN_C;
            hb_golden_judge_element(&r->judge, &at, got, s, bound + fabs(q->h[i] - h[i]) + exact);
        }
    }
}

void hb_golden_compare_state(struct hb_golden_run *r, int32_t seq, int32_t after, int32_t path,
                             const double *h, const struct hb_ref_state *q) {
    const struct hb_golden_state *stored = NULL;
    const struct hb_golden_place at = {HB_GOLDEN_SSM, HB_GOLDEN_B, seq, after, 0, 0};
    for (int32_t i = 0; i < r->p->n_states && r->has_states && stored == NULL; i++) {
        if (r->p->state[i].seq == seq && r->p->state[i].after == after) {
            stored = &r->p->state[i];
        }
    }
    compare_conv(r, stored, at);
    compare_ssm(r, stored, at, path, h, q);
}
