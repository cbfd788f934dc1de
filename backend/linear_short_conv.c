/* SPDX-License-Identifier: Apache-2.0
 * Short convolution mixer (ops-delta.md section 4): the kernels gate, convolve, keep and track the
 * windows themselves; there is no temporal state, no norm, and the output is the layer's. */
#include <stddef.h>

#include "backend/linear.h"
#include "backend/memory.h"

/* Without tracking. */
static struct hb_k_short_conv short_conv_args(const struct hb_linear_call *call) {
    const struct hb_config *c = call->run->config;
    const struct hb_linear_weights *w = call->weights;
    return (struct hb_k_short_conv){.rows = call->rows,
                                    .dim = call->run->dims->dim,
                                    .width = c->conv_width,
                                    .columns = call->run->dims->window,
                                    .act_dtype = c->act_dtype,
                                    .form = c->kernel_form,
                                    .defect = c->defect,
                                    .bcx = call->io->in[1],
                                    .weight = w->param[HB_PARAM_CONV_WEIGHT],
                                    .bias = w->param[HB_PARAM_CONV_BIAS],
                                    .y = call->io->out,
                                    .pool = call->pool->conv[call->pool_layer],
                                    .pool_pad = c->pool_pad};
}

static int32_t prefill(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    struct hb_k_short_conv args = short_conv_args(call);
    args.after = call->conv_after;
    args.dst = call->dst;
    return hb_device_check(k, k->short_conv_prefill(&args), err);
}

static int32_t update(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    const struct hb_k_short_conv args = short_conv_args(call);
    return hb_device_check(k, k->short_conv_update(&args), err);
}

static int32_t verify(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    const struct hb_k_short_conv_verify args = {.conv = short_conv_args(call),
                                                .max_draft = call->run->config->max_draft,
                                                .parent_stride = call->parent_stride,
                                                .parent = call->parent,
                                                .windows = call->spec->windows,
                                                .window_layout = call->run->config->window_layout};
    return hb_device_check(k, k->short_conv_verify(&args), err);
}

const struct hb_linear_kind hb_linear_short_conv = {
    .entry_rule = {HB_RULE_SHORT_CONV_DECODE, HB_RULE_SHORT_CONV_EXTEND},
    .prefill = prefill,
    .update = update,
    .verify = verify};
