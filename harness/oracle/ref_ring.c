/* SPDX-License-Identifier: Apache-2.0
 * What a decode with the replay ring (speculative.md section 7) adds to the recurrence: the records
 * of a token, and their fold into the stored state. */
#include "harness/oracle/ref_internal.h"

/* Every term of the sum, the state of the last fold included, meets the others once. */
void hb_ref_ring_fold(const struct hb_ref_dims *d, const struct hb_ref_rates *rates,
                      struct hb_ref_state *state) {
    for (int64_t i = 0; i < d->n_state; i++) {
        state->r[i] += rates->kstate * (state->m[i] + state->r[i]);
        if (rates->u_st > 0.0) {
            state->r[i] = hb_ref_rounded(state->h[i], state->r[i] + HB_REF_TINY, rates->u_st, 0.0);
        }
    }
}

void hb_ref_mamba2_fold(const struct hb_config *config, const struct hb_profile *profile, int32_t n,
                        struct hb_ref_state *state) {
    if (n > 0) {
        const struct hb_ref_dims d = hb_ref_dims_of(config);
        const struct hb_ref_rates rates = hb_ref_ring_rates(config, profile, n - 1);
        hb_ref_ring_fold(&d, &rates, state);
    }
}

static void put(double *value, double *bound, int64_t i, double v, double b) {
    if (value != NULL) {
        value[i] = v;
    }
    if (bound != NULL) {
        bound[i] = b;
    }
}

void hb_ref_ring_record(const struct hb_ref_dims *d, const struct hb_ref_box *box,
                        const struct hb_ref_record *record) {
    const int64_t n_b = (int64_t)d->groups * d->state_size;
    for (int32_t head = 0; head < d->heads; head++) {
        const double *s = box->steps + (int64_t)4 * head; /* dt, th, bound of dt, bound of th */
        put(record->g, record->g_bound, head, -s[1], s[3]);
        for (int32_t p = 0; p < d->head_dim; p++) {
            const int64_t i = (int64_t)head * d->head_dim + p;
            const double v = s[0] * box->c[i];
            const double e = fabs(s[0]) * box->dc[i] + s[2] * (fabs(box->c[i]) + box->dc[i]);
            put(record->x, record->x_bound, i, v, hb_ref_rounded(v, e, HB_REF_U32, HB_REF_TINY));
        }
    }
    for (int64_t i = 0; i < n_b; i++) {
        put(record->b, record->b_bound, i, box->c[d->d_inner + i], box->dc[d->d_inner + i]);
    }
}
