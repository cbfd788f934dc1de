/* SPDX-License-Identifier: Apache-2.0
 * The linear child: Mamba2 mixer from conv to gated norm (ops-mamba2.md sections 1 to 3), prefill
 * and decode rows in one forward. Prefill rows use the clamp of the prefill path, one-token rows
 * that of the decode path. */
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

static int32_t run_conv(const struct hb_layer_run *run, const struct hb_linear_weights *w,
                        void *pool, const void *xbc, struct hb_error *err) {
    const struct hb_kernels *k = run->kernels;
    struct hb_k_conv args = {.rows = prefill_rows(run),
                             .dim = run->dims->dim,
                             .width = run->config->conv_width,
                             .act_dtype = run->config->act_dtype,
                             .conv_act = run->config->conv_act,
                             .form = run->config->kernel_form,
                             .defect = run->config->defect,
                             .x = xbc,
                             .weight = w->param[HB_PARAM_CONV_WEIGHT],
                             .bias = w->param[HB_PARAM_CONV_BIAS],
                             .y = run->conv_out,
                             .pool = pool};
    int32_t status = HB_OK;
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
                                         .pool = pool};
    if (m->n_tracked == 0) {
        return HB_OK;
    }
    return hb_device_check(run->kernels, run->kernels->conv_track(&args), err);
}

static int32_t run_ssm(const struct hb_layer_run *run, const struct hb_linear_weights *w,
                       void *pool, const void *dt, struct hb_error *err) {
    const struct hb_kernels *k = run->kernels;
    const struct hb_config *c = run->config;
    const struct hb_metadata *m = run->meta;
    struct hb_k_ssm args = {.rows = prefill_rows(run),
                            .n_heads = c->n_heads,
                            .head_dim = c->head_dim,
                            .state_size = c->state_size,
                            .n_groups = c->n_groups,
                            .chunk_size = c->chunk_size,
                            .act_dtype = c->act_dtype,
                            .state_dtype = c->state_dtype,
                            .dt_softplus = c->dt_softplus,
                            .dt_clamp = c->dt_clamp_prefill,
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
                            .after =
                                m->n_tracked > 0 ? hb_layer_array(run, m->track_ssm_len) : NULL,
                            .dst = m->n_tracked > 0 ? hb_layer_array(run, m->track_dst) : NULL};
    int32_t status = HB_OK;
    if (args.rows.n_rows > 0) {
        status = hb_device_check(k, k->ssd_prefill(&args), err);
    }
    args.rows = update_rows(run);
    args.dt_clamp = c->dt_clamp_decode;
    args.after = NULL;
    args.dst = NULL;
    if (status == HB_OK && args.rows.n_rows > 0) {
        status = hb_device_check(k, k->ssm_update(&args), err);
    }
    return status;
}

static int32_t run_norm(const struct hb_layer_run *run, const struct hb_linear_weights *w,
                        const void *z, void *out, struct hb_error *err) {
    const struct hb_config *c = run->config;
    const struct hb_k_norm args = {.n_tokens = run->meta->n_real,
                                   .d_inner = run->dims->d_inner,
                                   .norm_group = c->norm_group,
                                   .gate_norm = c->gate_norm,
                                   .act_dtype = c->act_dtype,
                                   .defect = c->defect,
                                   .eps = c->norm_eps,
                                   .y = run->ssm_out,
                                   .z = z,
                                   .weight = w->param[HB_PARAM_NORM_WEIGHT],
                                   .out = out};
    return hb_device_check(run->kernels, run->kernels->gated_norm(&args), err);
}

int32_t hb_linear_forward(const struct hb_layer_run *run, const struct hb_linear_weights *weights,
                          const struct hb_pool *pool, int32_t pool_layer,
                          const struct hb_layer_buffers *io, struct hb_error *err) {
    if (run->meta->n_real == 0) {
        return HB_OK;
    }
    int32_t status = run_conv_track(run, pool->conv[pool_layer], io->in[1], err);
    if (status == HB_OK) {
        status = run_conv(run, weights, pool->conv[pool_layer], io->in[1], err);
    }
    if (status == HB_OK) {
        status = run_ssm(run, weights, pool->temporal[pool_layer], io->in[2], err);
    }
    return status == HB_OK ? run_norm(run, weights, io->in[0], io->out, err) : status;
}
