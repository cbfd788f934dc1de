/* SPDX-License-Identifier: Apache-2.0
 * The linear child: Mamba2 mixer from conv to gated norm (ops-mamba2.md sections 1 to 3), prefill
 * and decode rows in one forward, or the draft nodes of a verify. Prefill rows use the clamp of the
 * prefill path, one-token rows and nodes that of the decode path. */
#include "backend/layers.h"

#include <stddef.h>

#include "backend/memory.h"

int32_t hb_linear_entry(struct hb_error *err) {
    return hb_fail(err, HB_RULE_ENTRY_REFUSED, -1, 0, 0);
}

static struct hb_k_rows prefill_rows(const struct hb_layer_run *run) {
    const struct hb_metadata *m = run->meta;
    return (struct hb_k_rows){.n_rows = m->num_prefills,
                              .qsl = hb_layer_array(run, m->query_start_loc),
                              .slots = hb_layer_array(run, m->cache_indices),
                              .has_init = hb_layer_array(run, m->has_initial_states)};
}

static struct hb_k_rows update_rows(const struct hb_layer_run *run) {
    const struct hb_metadata *m = run->meta;
    return (struct hb_k_rows){.n_rows = m->n_update_rows,
                              .qsl = hb_layer_array(run, m->query_start_loc) + m->num_prefills,
                              .slots = hb_layer_array(run, m->cache_indices) + m->num_prefills,
                              .has_init = NULL};
}

static struct hb_k_rows verify_rows(const struct hb_layer_run *run) {
    const struct hb_metadata *m = run->meta;
    return (struct hb_k_rows){.n_rows = m->n_verify_rows,
                              .qsl = hb_layer_array(run, m->query_start_loc),
                              .slots = hb_layer_array(run, m->cache_indices),
                              .has_init = NULL};
}

/* Parents on the device; null for chains. */
static const int32_t *verify_parents(const struct hb_layer_run *run) {
    return run->meta->is_tree ? hb_layer_array(run, run->meta->parents) : NULL;
}

static struct hb_k_conv conv_args(const struct hb_layer_run *run, const struct hb_linear_weights *w,
                                  void *pool, const void *xbc) {
    return (struct hb_k_conv){.dim = run->dims->dim,
                              .width = run->config->conv_width,
                              .act_dtype = run->config->act_dtype,
                              .conv_act = run->config->conv_act,
                              .form = run->config->kernel_form,
                              .defect = run->config->defect,
                              .x = xbc,
                              .weight = w->param[HB_PARAM_CONV_WEIGHT],
                              .bias = w->param[HB_PARAM_CONV_BIAS],
                              .y = run->conv_out,
                              .pool = pool,
                              .pool_pad = run->config->pool_pad};
}

static int32_t run_conv(const struct hb_layer_run *run, const struct hb_linear_weights *w,
                        void *pool, const void *xbc, struct hb_error *err) {
    const struct hb_kernels *k = run->kernels;
    struct hb_k_conv args = conv_args(run, w, pool, xbc);
    int32_t status = HB_OK;
    args.rows = prefill_rows(run);
    if (args.rows.n_rows > 0) {
        status = hb_device_check(k, k->conv_prefill(&args), err);
    }
    args.rows = update_rows(run);
    if (status == HB_OK && args.rows.n_rows > 0) {
        status = hb_device_check(k, k->conv_update(&args), err);
    }
    return status;
}

/* tracking.md section 4: pre-conv inputs, so the order relative to the conv kernel does not matter.
 */
static int32_t run_conv_track(const struct hb_layer_run *run, void *pool, const void *xbc,
                              struct hb_error *err) {
    const struct hb_metadata *m = run->meta;
    const struct hb_k_conv_track args = {.rows = prefill_rows(run),
                                         .dim = run->dims->dim,
                                         .width = run->config->conv_width,
                                         .act_dtype = run->config->act_dtype,
                                         .defect = run->config->defect,
                                         .after = hb_layer_array(run, m->track_conv_len),
                                         .dst = hb_layer_array(run, m->track_dst),
                                         .x = xbc,
                                         .pool = pool,
                                         .pool_pad = run->config->pool_pad};
    if (m->n_tracked == 0) {
        return HB_OK;
    }
    return hb_device_check(run->kernels, run->kernels->conv_track(&args), err);
}

/* Without rows and tracking. */
static struct hb_k_ssm ssm_args(const struct hb_layer_run *run, const struct hb_linear_weights *w,
                                void *pool, const void *dt, int32_t dt_clamp) {
    const struct hb_config *c = run->config;
    return (struct hb_k_ssm){.n_heads = c->n_heads,
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
                             .xbc = run->conv_out,
                             .dt = dt,
                             .a = w->param[HB_PARAM_A],
                             .dt_bias = w->param[HB_PARAM_DT_BIAS],
                             .d = w->param[HB_PARAM_D],
                             .y = run->ssm_out,
                             .pool = pool,
                             .pool_pad = c->pool_pad};
}

/* speculative.md section 7. */
static int32_t run_ring(const struct hb_layer_run *run, const struct hb_k_ssm *ssm,
                        const struct hb_pool *pool, int32_t pool_layer, struct hb_error *err) {
    const struct hb_metadata *m = run->meta;
    const struct hb_k_ssm_ring args = {.ssm = *ssm,
                                       .ring_length = pool->ring_length,
                                       .write_pos = hb_layer_array(run, m->replay_write_pos),
                                       .fold = hb_layer_array(run, m->force_flush),
                                       .ring_x = pool->ring_x[pool_layer],
                                       .ring_b = pool->ring_b[pool_layer],
                                       .ring_g = pool->ring_g[pool_layer]};
    return hb_device_check(run->kernels, run->kernels->ssm_ring(&args), err);
}

static int32_t run_ssm(const struct hb_layer_run *run, const struct hb_linear_weights *w,
                       const struct hb_pool *pool, int32_t pool_layer, const void *dt,
                       struct hb_error *err) {
    const struct hb_kernels *k = run->kernels;
    const struct hb_config *c = run->config;
    const struct hb_metadata *m = run->meta;
    struct hb_k_ssm args =
        ssm_args(run, w, pool->temporal[pool_layer], dt, c->dt_clamp_prefill);
    int32_t status = HB_OK;
    args.rows = prefill_rows(run);
    if (m->n_tracked > 0) {
        args.after = hb_layer_array(run, m->track_ssm_len);
        args.dst = hb_layer_array(run, m->track_dst);
    }
    if (args.rows.n_rows > 0) {
        status = hb_device_check(k, k->ssd_prefill(&args), err);
    }
    args.rows = update_rows(run);
    args.dt_clamp = c->dt_clamp_decode;
    args.after = NULL;
    args.dst = NULL;
    if (status != HB_OK || args.rows.n_rows == 0) {
        return status;
    }
    if (m->replay_write_pos != NULL) {
        return run_ring(run, &args, pool, pool_layer, err);
    }
    return hb_device_check(k, k->ssm_update(&args), err);
}

/* speculative.md section 1: conv and SSM over the nodes; the pools are only read. */
static int32_t run_verify(const struct hb_layer_run *run, const struct hb_linear_weights *w,
                          const struct hb_pool *pool, int32_t pool_layer,
                          const struct hb_spec_cache *spec, const struct hb_layer_buffers *io,
                          struct hb_error *err) {
    const struct hb_kernels *k = run->kernels;
    const struct hb_config *c = run->config;
    struct hb_k_conv_verify conv = {.conv = conv_args(run, w, pool->conv[pool_layer], io->in[1]),
                                    .max_draft = c->max_draft,
                                    .parent_stride = run->meta->parent_stride,
                                    .parent = verify_parents(run),
                                    .windows = spec->windows,
                                    .window_layout = c->window_layout};
    struct hb_k_ssm_verify ssm = {
        .ssm = ssm_args(run, w, pool->temporal[pool_layer], io->in[2], c->dt_clamp_decode),
        .max_draft = c->max_draft,
        .parent_stride = run->meta->parent_stride,
        .parent = verify_parents(run),
        .states = spec->states};
    conv.conv.rows = ssm.ssm.rows = verify_rows(run);
    const int32_t status = hb_device_check(k, k->conv_verify(&conv), err);
    return status == HB_OK ? hb_device_check(k, k->ssm_verify(&ssm), err) : status;
}

static int32_t run_norm(const struct hb_layer_run *run, const struct hb_linear_weights *w,
                        const void *z, void *out, struct hb_error *err) {
    const struct hb_config *c = run->config;
    const struct hb_metadata *m = run->meta;
    const struct hb_k_norm args = {.n_tokens = m->n_real,
                                   .d_inner = run->dims->d_inner,
                                   .norm_group = c->norm_group,
                                   .gate_norm = c->gate_norm,
                                   .act_dtype = c->act_dtype,
                                   .defect = c->defect,
                                   .eps = c->norm_eps,
                                   .y = run->ssm_out,
                                   .z = z,
                                   .weight = w->param[HB_PARAM_NORM_WEIGHT],
                                   .out = out,
                                   .slots =
                                       m->is_graph ? hb_layer_array(run, m->cache_indices) : NULL,
                                   .row_tokens = m->is_graph ? m->n_tokens / m->n_rows : 1};
    return hb_device_check(run->kernels, run->kernels->gated_norm(&args), err);
}

int32_t hb_linear_track(const struct hb_layer_run *run, const struct hb_pool *pool,
                        int32_t pool_layer, struct hb_error *err) {
    const struct hb_metadata *m = run->meta;
    if (m->n_copies == 0) {
        return HB_OK;
    }
    return hb_pool_copy_layer(pool, pool_layer, m->n_copies, hb_layer_array(run, m->copy_src),
                              hb_layer_array(run, m->copy_dst),
                              m->copy_mask != NULL ? hb_layer_array(run, m->copy_mask) : NULL, err);
}

/* Prefill rows, then one-token rows, of conv and SSM; then DECODE tracking, where each layer does
 * its own. */
static int32_t run_rows(const struct hb_layer_run *run, const struct hb_linear_weights *w,
                        const struct hb_pool *pool, int32_t pool_layer,
                        const struct hb_layer_buffers *io, struct hb_error *err) {
    int32_t status = run_conv_track(run, pool->conv[pool_layer], io->in[1], err);
    if (status == HB_OK) {
        status = run_conv(run, w, pool->conv[pool_layer], io->in[1], err);
    }
    if (status == HB_OK) {
        status = run_ssm(run, w, pool, pool_layer, io->in[2], err);
    }
    if (status == HB_OK && run->config->track_by_layer) {
        status = hb_linear_track(run, pool, pool_layer, err);
    }
    return status;
}

int32_t hb_linear_forward(const struct hb_layer_run *run, const struct hb_linear_weights *weights,
                          const struct hb_pool *pool, int32_t pool_layer,
                          const struct hb_spec_cache *spec, const struct hb_layer_buffers *io,
                          struct hb_error *err) {
    if (run->meta->n_real == 0) {
        return HB_OK;
    }
    int32_t status;
    if (run->meta->n_verify_rows > 0) {
        status = run_verify(run, weights, pool, pool_layer, spec, io, err);
    } else {
        status = run_rows(run, weights, pool, pool_layer, io, err);
    }
    return status == HB_OK ? run_norm(run, weights, io->in[0], io->out, err) : status;
}
