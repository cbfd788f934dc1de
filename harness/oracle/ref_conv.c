/* SPDX-License-Identifier: Apache-2.0
 * The causal convolution of one request and its state (ops-mamba2.md 1.1, tolerance.md 3.6 and
 * 3.7), for every kind that has one. */
#include "harness/oracle/ref_internal.h"

struct hb_ref_window hb_ref_window_load(const struct hb_ref_dims *d,
                                        const struct hb_layer_params *params,
                                        struct hb_ref_box *box) {
    struct hb_ref_window w;
    const int32_t width = d->conv_width;
    for (int32_t j = 0; j < HB_MAX_CONV_WIDTH; j++) { /* beyond K: unused */
        w.rows[j] = box->rows + (j < width ? j : 0) * d->dim;
    }
    for (int32_t j = 0; j < width; j++) {
        for (int64_t c = 0; c < d->channels; c++) {
            box->taps[j * d->dim + c] = (double)params->conv_weight[c * width + j];
        }
    }
    for (int64_t c = 0; c < d->channels; c++) {
        box->taps[width * d->dim + c] = params->conv_bias ? (double)params->conv_bias[c] : 0.0;
        for (int64_t j = 0; j < d->columns; j++) {
            w.rows[width - d->columns + j][c] = box->state.conv[c * d->columns + j];
        }
    }
    return w;
}

double *hb_ref_window_push(const struct hb_ref_dims *d, struct hb_ref_window *window) {
    double *oldest = window->rows[0];
    for (int32_t j = 0; j + 1 < d->conv_width; j++) {
        window->rows[j] = window->rows[j + 1];
    }
    window->rows[d->conv_width - 1] = oldest;
    return oldest;
}

void hb_ref_window_store(const struct hb_ref_dims *d, const struct hb_ref_window *window,
                         double *conv) {
    for (int64_t j = 0; j < d->columns; j++) {
        const double *row = window->rows[d->conv_width - d->columns + j];
        for (int64_t c = 0; c < d->channels; c++) {
            conv[c * d->columns + j] = row[c];
        }
    }
}

void hb_ref_conv_token(const struct hb_config *config, const struct hb_ref_rates *rates,
                       const struct hb_ref_window *window, const struct hb_ref_box *box) {
    const struct hb_ref_dims d = hb_ref_dims_of(config);
    const int64_t n = d.channels;
    const double gam = hb_ref_gam(d.conv_width + 1.0, HB_REF_U32);
    const double *restrict bias = box->taps + d.conv_width * d.dim;
    double *restrict c = box->c;
    double *restrict dc = box->dc;
    for (int64_t i = 0; i < n; i++) {
        c[i] = bias[i];
        dc[i] = fabs(bias[i]);
    }
    for (int32_t j = 0; j < d.conv_width; j++) {
        const double *restrict w = box->taps + j * d.dim;
        const double *restrict x = window->rows[j];
        for (int64_t i = 0; i < n; i++) {
            const double p = w[i] * x[i];
            c[i] += p;
            dc[i] += fabs(p);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        /* a sum that may overflow inside is not judged */
        const double over = dc[i] > (double)FLT_MAX ? (double)INFINITY : 0.0;
        double e = gam * dc[i] + d.conv_width * HB_REF_TINY + over;
        if (config->conv_act == HB_CONV_SILU) {
            const struct hb_ref_silu s = hb_ref_silu(c[i], e, rates->e_exp);
            c[i] = s.value;
            e = s.error;
        }
        dc[i] = hb_ref_stored(rates, c[i], e);
    }
}
