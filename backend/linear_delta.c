/* SPDX-License-Identifier: Apache-2.0
 * Gated delta rule (ops-delta.md sections 1 and 2): GDN and KDA, which differ in the width of their
 * log decays. */
#include <math.h>
#include <stddef.h>

#include "backend/linear.h"
#include "backend/memory.h"

/* Without tracking. */
static struct hb_k_delta delta_args(const struct hb_linear_call *call) {
    const struct hb_config *c = call->run->config;
    const struct hb_linear_weights *w = call->weights;
    const int32_t is_kda = call->run->dims->linear_kind == HB_LAYER_KDA;
    return (struct hb_k_delta){
        .rows = call->rows,
        .n_heads = c->n_heads,
        .head_dim = c->head_dim,
        .state_size = c->state_size,
        .n_groups = c->n_groups,
        .chunk_size = c->chunk_size,
        .act_dtype = c->act_dtype,
        .state_dtype = c->state_dtype,
        .is_kda = is_kda,
        .head_map = c->head_map,
        .state_layout = c->state_layout,
        .l2norm = c->l2norm,
        .beta_form = c->beta_form,
        .gate_form = is_kda ? c->gate_form : HB_GATE_STANDARD,
        .gate_softplus = c->dt_softplus,
        .gate_bound = c->gate_bound,
        .qk_scale = c->qk_scale != 0.0F ? c->qk_scale : (float)(1.0 / sqrt((double)c->state_size)),
        .form = c->kernel_form,
        .defect = c->defect,
        .qkv = call->run->conv_out,
        .gates = call->io->in[2],
        .a = w->param[HB_PARAM_A],
        .dt_bias = w->param[HB_PARAM_DT_BIAS],
        .y = call->run->ssm_out,
        .pool = call->pool->temporal[call->pool_layer],
        .pool_pad = c->pool_pad};
}

static int32_t prefill(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    struct hb_k_delta args = delta_args(call);
    args.after = call->after;
    args.dst = call->dst;
    return hb_device_check(k, k->delta_prefill(&args), err);
}

static int32_t update(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    const struct hb_k_delta args = delta_args(call);
    return hb_device_check(k, k->delta_update(&args), err);
}

static int32_t verify(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    const struct hb_k_delta_verify args = {.delta = delta_args(call),
                                           .max_draft = call->run->config->max_draft,
                                           .parent_stride = call->parent_stride,
                                           .parent = call->parent,
                                           .states = call->spec->states};
    return hb_device_check(k, k->delta_verify(&args), err);
}

const struct hb_linear_kind hb_linear_delta = {
    .has_conv = 1, .has_norm = 1, .prefill = prefill, .update = update, .verify = verify};
