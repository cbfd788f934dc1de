/* SPDX-License-Identifier: Apache-2.0
 * Mamba2 (ops-mamba2.md sections 2 and 3): prefill rows use the clamp of the prefill path, one-token
 * rows and nodes that of the decode path. */
#include <stddef.h>

#include "backend/linear.h"
#include "backend/memory.h"

/* Without tracking. */
static struct hb_k_ssm ssm_args(const struct hb_linear_call *call, int32_t dt_clamp) {
    const struct hb_config *c = call->run->config;
    const struct hb_linear_weights *w = call->weights;
    return (struct hb_k_ssm){.rows = call->rows,
                             .n_heads = c->n_heads,
                             .head_dim = c->head_dim,
                             .state_size = c->state_size,
                             .n_groups = c->n_groups,
                             .chunk_size = c->chunk_size,
                             .act_dtype = c->act_dtype,
                             .state_dtype = c->state_dtype,
                             .dt_softplus = c->dt_softplus,
                             .dt_clamp = dt_clamp,
                             .dt_lo = c->dt_lo,
                             .dt_hi = c->dt_hi,
                             .form = c->kernel_form,
                             .defect = c->defect,
                             .xbc = call->run->conv_out,
                             .dt = call->io->in[2],
                             .a = w->param[HB_PARAM_A],
                             .dt_bias = w->param[HB_PARAM_DT_BIAS],
                             .d = w->param[HB_PARAM_D],
                             .y = call->run->ssm_out,
                             .pool = call->pool->temporal[call->pool_layer],
                             .pool_pad = c->pool_pad,
                             .head_map = c->head_map,
                             .state_layout = c->state_layout};
}

static int32_t prefill(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    struct hb_k_ssm args = ssm_args(call, call->run->config->dt_clamp_prefill);
    args.after = call->after;
    args.dst = call->dst;
    return hb_device_check(k, k->ssd_prefill(&args), err);
}

/* speculative.md section 7: of decode steps, or of a verify. */
static int32_t run_ring(const struct hb_linear_call *call, const struct hb_k_ssm *ssm,
                        struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    const struct hb_metadata *m = call->run->meta;
    const struct hb_pool *pool = call->pool;
    struct hb_k_ssm_ring args = {.ssm = *ssm,
                                 .ring_length = pool->ring_length,
                                 .write_pos = hb_layer_array(call->run, m->replay_write_pos),
                                 .fold = hb_layer_array(call->run, m->force_flush),
                                 .ring_x = pool->ring_x[call->pool_layer],
                                 .ring_b = pool->ring_b[call->pool_layer],
                                 .ring_g = pool->ring_g[call->pool_layer]};
    if (m->ring_base == NULL) {
        return hb_device_check(k, k->ssm_ring(&args), err);
    }
    args.base = hb_layer_array(call->run, m->ring_base);
    return hb_device_check(k, k->ssm_ring_verify(&args), err);
}

static int32_t update(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    const struct hb_k_ssm args = ssm_args(call, call->run->config->dt_clamp_decode);
    if (call->run->meta->replay_write_pos != NULL) {
        return run_ring(call, &args, err);
    }
    return hb_device_check(k, k->ssm_update(&args), err);
}

static int32_t verify(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_kernels *k = call->run->kernels;
    const struct hb_k_ssm_verify args = {.ssm =
                                             ssm_args(call, call->run->config->dt_clamp_decode),
                                         .max_draft = call->run->config->max_draft,
                                         .parent_stride = call->parent_stride,
                                         .parent = call->parent,
                                         .states = call->spec->states};
    if (call->run->meta->ring_base != NULL) {
        return run_ring(call, &args.ssm, err);
    }
    return hb_device_check(k, k->ssm_verify(&args), err);
}

const struct hb_linear_kind hb_linear_mamba2 = {
    .has_conv = 1,
    .has_norm = 1,
    .entry_rule = {HB_RULE_ENTRY_REFUSED, HB_RULE_ENTRY_REFUSED},
    .prefill = prefill,
    .update = update,
    .verify = verify};
