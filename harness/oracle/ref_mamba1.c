/* SPDX-License-Identifier: Apache-2.0
 * Mamba1 between the projections: the recurrence of ops-mamba2.md 3 with one step per channel and
 * one decay per channel and state, h = exp(dt A) h + dt x B. B and C are inputs, shared by all
 * channels; only x passes the convolution. */
#include "harness/oracle/ref_scan.h"

struct mamba1 {
    struct hb_ref_scan scan;
    struct hb_ref_window window;
    const double *zeros; /* [N] errors of B and C: none */
    int32_t clamp;
};

/* Rings [d_inner, C], then N zeros. */
double hb_ref_mamba1_work(const struct hb_config *c) {
    const double chunk = c->chunk_size > 0 ? c->chunk_size : 1;
    return (double)c->n_heads * c->head_dim * chunk + c->state_size;
}

static void load_token(struct mamba1 *k, int32_t t) {
    const struct hb_ref_dims *d = &k->scan.d;
    const struct hb_ref_call *call = k->scan.call;
    struct hb_ref_box *box = k->scan.box;
    const float *z = call->in[0] ? call->in[0] + t * d->d_inner : NULL;
    hb_ref_scan_widen(z, d->d_inner, box->z);
    hb_ref_scan_widen(call->in[1] + t * d->dim, d->dim, hb_ref_window_push(d, &k->window));
    hb_ref_scan_widen(call->in[2] + t * d->gates, d->gates, box->dt);
    hb_ref_conv_token(call->config, &k->scan.rates, &k->window, box);
}

/* Step of channel i. */
static struct hb_ref_step step_of(const struct mamba1 *k, int64_t i) {
    const struct hb_ref_call *call = k->scan.call;
    const struct hb_ref_gate gate = {.rate = 0.0, /* A comes in per element */
                                     .bias =
                                         call->params->dt_bias ? call->params->dt_bias + i : NULL,
                                     .softplus = call->config->dt_softplus,
                                     .clamp = k->clamp,
                                     .lo = (double)call->config->dt_lo,
                                     .hi = (double)call->config->dt_hi};
    return hb_ref_step_of(&gate, &k->scan.rates, k->scan.box->dt[i]);
}

/* Decays of channel i: th = -dt A with the error of 3.1. The window of each state is |A| times that
 * of the steps. */
static void decays_of(struct mamba1 *k, int64_t i, const struct hb_ref_step *step,
                      struct hb_ref_decay *decay) {
    const double u = HB_REF_U32;
    const int32_t n_state = k->scan.d.state_size;
    const float *rates = k->scan.call->params->a + i * n_state;
    const double window = hb_ref_scan_window(&k->scan, i, fabs(step->dt) + step->ddt);
    for (int32_t n = 0; n < n_state; n++) {
        const double rate = (double)rates[n], th = -(step->dt * rate);
        const double eta = fabs(rate) * step->ddt + u * fabs(th) + HB_REF_TINY;
        decay[n] = hb_ref_scan_decay(&k->scan.rates, th, eta,
                                     fabs(rate) * window * (1.0 + 2.0 * u) + HB_REF_TINY);
    }
}

static void advance_token(struct mamba1 *k, struct hb_ref_decay *decay) {
    const struct hb_ref_dims *d = &k->scan.d;
    const struct hb_ref_box *box = k->scan.box;
    const float *skip = k->scan.call->params->d;
    struct hb_ref_pair pair = {.b = box->dt + d->d_inner,
                               .db = k->zeros,
                               .c = box->dt + d->d_inner + d->state_size,
                               .dc = k->zeros};
    hb_ref_scan_tops(&k->scan, &pair);
    for (int64_t i = 0; i < d->d_inner; i++) {
        const struct hb_ref_step step = step_of(k, i);
        const struct hb_ref_feed feed = {.i = i,
                                         .dt = step.dt,
                                         .ddt = step.ddt,
                                         .x = box->c[i],
                                         .dx = box->dc[i],
                                         .skip = skip ? (double)skip[i] : 0.0};
        decays_of(k, i, &step, decay);
        hb_ref_scan_row(&k->scan, &feed, decay, &pair);
    }
}

int hb_ref_mamba1_run(const struct hb_ref_call *call) {
    if (call->n <= 0) {
        return 0;
    }
    struct hb_ref_decay decay[HB_MAX_STATE_SIZE];
    struct hb_ref_box *box = hb_ref_box_of(call->state);
    struct mamba1 k = {.scan = hb_ref_scan_begin(call, box->work)};
    double *zeros = box->work + k.scan.d.d_inner * k.scan.d.chunk;
    for (int32_t n = 0; n < k.scan.d.state_size; n++) {
        zeros[n] = 0.0;
    }
    k.zeros = zeros;
    k.clamp = call->path == HB_PATH_DECODE ? call->config->dt_clamp_decode
                                           : call->config->dt_clamp_prefill;
    k.window = hb_ref_window_load(&k.scan.d, call->params, box);
    for (int32_t t = 0; t < call->n; t++) {
        load_token(&k, t);
        advance_token(&k, decay);
        hb_ref_scan_token(&k.scan, t, &k.window);
    }
    hb_ref_scan_end(&k.scan, &k.window);
    return 0;
}
