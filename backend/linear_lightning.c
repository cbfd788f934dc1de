/* SPDX-License-Identifier: Apache-2.0
 * Lightning attention and simple GLA (ops-delta.md section 3): q, k and v come as they are, there is
 * no conv. */
#include <math.h>
#include <stddef.h>

#include "backend/linear.h"
#include "backend/memory.h"
#include "backend/slopes.h"

/* Without tracking. */
static struct hb_k_decay decay_args(const struct hb_linear_call *call) {
    const struct hb_config *c = call->run->config;
    const int32_t is_token = c->slope_kind == HB_SLOPE_TOKEN;
    return (struct hb_k_decay){
        .rows = call->rows,
        .n_heads = c->n_heads,
        .head_dim = c->head_dim,
        .state_size = c->state_size,
        .n_groups = c->n_groups,
        .chunk_size = c->chunk_size,
        .act_dtype = c->act_dtype,
        .state_dtype = c->state_dtype,
        .head_map = c->head_map,
        .state_layout = c->state_layout,
        .qkv_act = c->qkv_act,
        .qk_scale = c->qk_scale != 0.0f ? c->qk_scale : (float)(1.0 / sqrt(c->state_size)),
        .form = c->kernel_form,
        .defect = c->defect,
        .qkv = call->io->in[1],
        .log_decay = is_token ? NULL : call->weights->param[HB_PARAM_A],
        .token_decay = call->io->in[2],
        .y = call->run->ssm_out,
        .pool = call->pool->temporal[call->pool_layer],
        .pool_pad = c->pool_pad};
}

static int32_t prefill(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    struct hb_k_decay args = decay_args(call);
    args.after = call->after;
    args.dst = call->dst;
    return hb_device_check(k, k->decay_prefill(&args), err);
}

static int32_t update(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    const struct hb_k_decay args = decay_args(call);
    return hb_device_check(k, k->decay_update(&args), err);
}

static int32_t verify(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    const struct hb_k_decay_verify args = {.decay = decay_args(call),
                                           .max_draft = call->run->config->max_draft,
                                           .parent_stride = call->parent_stride,
                                           .parent = call->parent,
                                           .states = call->spec->states};
    return hb_device_check(k, k->decay_verify(&args), err);
}

const struct hb_linear_kind hb_linear_lightning = {
    .has_norm = 1, .prefill = prefill, .update = update, .verify = verify, .fill_a = hb_slopes_fill};
