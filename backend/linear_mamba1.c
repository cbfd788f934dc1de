/* SPDX-License-Identifier: Apache-2.0
 * Mamba1: a conv over x alone, and a selective scan with a step size per channel. B and C come with
 * the step sizes, they are not convolved. Prefill rows use the clamp of the prefill path, one-token
 * rows and nodes that of the decode path. */
#include <stddef.h>

#include "backend/linear.h"
#include "backend/memory.h"

/* Without tracking. */
static struct hb_k_selective scan_args(const struct hb_linear_call *call, int32_t dt_clamp) {
    const struct hb_config *c = call->run->config;
    const struct hb_linear_weights *w = call->weights;
    return (struct hb_k_selective){.rows = call->rows,
                                   .n_heads = c->n_heads,
                                   .head_dim = c->head_dim,
                                   .state_size = c->state_size,
                                   .act_dtype = c->act_dtype,
                                   .state_dtype = c->state_dtype,
                                   .state_layout = c->state_layout,
                                   .dt_softplus = c->dt_softplus,
                                   .dt_clamp = dt_clamp,
                                   .dt_lo = c->dt_lo,
                                   .dt_hi = c->dt_hi,
                                   .form = c->kernel_form,
                                   .defect = c->defect,
                                   .x = call->run->conv_out,
                                   .dbc = call->io->in[2],
                                   .a = w->param[HB_PARAM_A],
                                   .dt_bias = w->param[HB_PARAM_DT_BIAS],
                                   .d = w->param[HB_PARAM_D],
                                   .y = call->run->ssm_out,
                                   .pool = call->pool->temporal[call->pool_layer],
                                   .pool_pad = c->pool_pad};
}

static int32_t prefill(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    struct hb_k_selective args = scan_args(call, call->run->config->dt_clamp_prefill);
    args.after = call->after;
    args.dst = call->dst;
    return hb_device_check(k, k->selective_prefill(&args), err);
}

static int32_t update(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    const struct hb_k_selective args = scan_args(call, call->run->config->dt_clamp_decode);
    return hb_device_check(k, k->selective_update(&args), err);
}

static int32_t verify(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    const struct hb_k_selective_verify args = {
        .scan = scan_args(call, call->run->config->dt_clamp_decode),
        .max_draft = call->run->config->max_draft,
        .parent_stride = call->parent_stride,
        .parent = call->parent,
        .states = call->spec->states};
    return hb_device_check(k, k->selective_verify(&args), err);
}

const struct hb_linear_kind hb_linear_mamba1 = {
    .has_conv = 1,
    .has_norm = 1,
    .entry_rule = {HB_RULE_ENTRY_REFUSED, HB_RULE_ENTRY_REFUSED},
    .prefill = prefill,
    .update = update,
    .verify = verify};
