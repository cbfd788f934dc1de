/* SPDX-License-Identifier: Apache-2.0
 * The linear child: one forward for all kinds, from conv to gated norm, prefill and decode rows in
 * one, or the draft nodes of a verify. What differs between the kinds is a row of a table. */
#include "backend/linear.h"

#include <stddef.h>

#include "backend/adapter.h"
#include "backend/memory.h"

static const struct hb_linear_kind *const kinds[HB_N_LAYER_KINDS] = {
    [HB_LAYER_MAMBA2] = &hb_linear_mamba2,
    [HB_LAYER_LIGHTNING] = &hb_linear_lightning,
    [HB_LAYER_SHORT_CONV] = &hb_linear_short_conv,
    [HB_LAYER_MAMBA1] = &hb_linear_mamba1,
    [HB_LAYER_GDN] = &hb_linear_delta,
    [HB_LAYER_KDA] = &hb_linear_delta,
};

const struct hb_linear_kind *hb_linear_kind(int32_t layer_kind) {
    return layer_kind >= 0 && layer_kind < HB_N_LAYER_KINDS ? kinds[layer_kind] : NULL;
}

uint32_t hb_linear_kind_mask(void) {
    uint32_t mask = 0;
    for (int32_t i = 0; i < HB_N_LAYER_KINDS; i++) {
        mask |= kinds[i] != NULL ? 1U << (uint32_t)i : 0U;
    }
    return mask;
}

int32_t hb_linear_entry_rule(int32_t layer_kind, int32_t direction) {
    const struct hb_linear_kind *kind = hb_linear_kind(layer_kind);
    if (kind == NULL) {
        return HB_RULE_ENTRY_REFUSED;
    }
    return kind->entry_rule[direction == HB_ENTRY_DECODE ? HB_ENTRY_DECODE : HB_ENTRY_EXTEND];
}

int32_t hb_linear_fill_a(const struct hb_config *config, int32_t layer_id, float *a) {
    const struct hb_linear_kind *kind = hb_linear_kind(config->layer_kind[layer_id]);
    return kind != NULL && kind->fill_a != NULL && kind->fill_a(config, layer_id, a);
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

static struct hb_k_conv conv_args(const struct hb_linear_call *call) {
    const struct hb_layer_run *run = call->run;
    const struct hb_linear_weights *w = call->weights;
    return (struct hb_k_conv){.rows = call->rows,
                              .dim = run->dims->dim,
                              .width = run->config->conv_width,
                              .act_dtype = run->config->act_dtype,
                              .conv_act = run->config->conv_act,
                              .form = run->config->kernel_form,
                              .defect = run->config->defect,
                              .x = call->io->in[1],
                              .weight = w->param[HB_PARAM_CONV_WEIGHT],
                              .bias = w->param[HB_PARAM_CONV_BIAS],
                              .y = run->conv_out,
                              .pool = call->pool->conv[call->pool_layer],
                              .pool_pad = run->config->pool_pad,
                              .conv_state_len = run->config->conv_state_len};
}

/* tracking.md section 4: pre-conv inputs, so the order relative to the conv kernel does not matter.
 */
static int32_t run_conv_track(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_layer_run *run = call->run;
    const struct hb_k_conv_track args = {.rows = call->rows,
                                         .dim = run->dims->dim,
                                         .width = run->config->conv_width,
                                         .act_dtype = run->config->act_dtype,
                                         .defect = run->config->defect,
                                         .after = call->conv_after,
                                         .dst = call->dst,
                                         .x = call->io->in[1],
                                         .pool = call->pool->conv[call->pool_layer],
                                         .pool_pad = run->config->pool_pad,
                                         .conv_state_len = run->config->conv_state_len};
    if (call->conv_after == NULL) {
        return HB_OK;
    }
    return hb_device_check(run->kernels, run->kernels->conv_track(&args), err);
}

static int32_t run_prefill(const struct hb_linear_kind *kind, struct hb_linear_call *call,
                           struct hb_error *err) {
    const struct hb_layer_run *run = call->run;
    const struct hb_metadata *m = run->meta;
    int32_t status = HB_OK;
    call->rows = prefill_rows(run);
    if (call->rows.n_rows == 0) {
        return HB_OK;
    }
    if (m->n_tracked > 0) {
        call->after = hb_layer_array(run, m->track_ssm_len);
        call->conv_after = hb_layer_array(run, m->track_conv_len);
        call->dst = hb_layer_array(run, m->track_dst);
    }
    if (kind->has_conv) {
        const struct hb_k_conv args = conv_args(call);
        status = run_conv_track(call, err);
        if (status == HB_OK) {
            status = hb_device_check(run->kernels, run->kernels->conv_prefill(&args), err);
        }
    }
    if (status == HB_OK) {
        status = kind->prefill(call, err);
    }
    call->after = call->conv_after = call->dst = NULL;
    return status;
}

static int32_t run_update(const struct hb_linear_kind *kind, struct hb_linear_call *call,
                          struct hb_error *err) {
    const struct hb_layer_run *run = call->run;
    int32_t status = HB_OK;
    call->rows = update_rows(run);
    if (call->rows.n_rows == 0) {
        return HB_OK;
    }
    if (kind->has_conv) {
        const struct hb_k_conv args = conv_args(call);
        status = hb_device_check(run->kernels, run->kernels->conv_update(&args), err);
    }
    return status == HB_OK ? kind->update(call, err) : status;
}

/* speculative.md section 1: conv and recurrence over the nodes; the pools are only read. */
static int32_t run_verify(const struct hb_linear_kind *kind, struct hb_linear_call *call,
                          struct hb_error *err) {
    const struct hb_layer_run *run = call->run;
    const struct hb_metadata *m = run->meta;
    int32_t status = HB_OK;
    call->rows = verify_rows(run);
    call->parent = m->is_tree ? hb_layer_array(run, m->parents) : NULL;
    call->parent_stride = m->parent_stride;
    if (kind->has_conv) {
        const struct hb_k_conv_verify args = {.conv = conv_args(call),
                                              .max_draft = run->config->max_draft,
                                              .parent_stride = call->parent_stride,
                                              .parent = call->parent,
                                              .windows = call->spec->windows,
                                              .window_layout = run->config->window_layout};
        status = hb_device_check(run->kernels, run->kernels->conv_verify(&args), err);
    }
    return status == HB_OK ? kind->verify(call, err) : status;
}

static int32_t run_norm(const struct hb_linear_call *call, struct hb_error *err) {
    const struct hb_layer_run *run = call->run;
    const struct hb_config *c = run->config;
    const struct hb_metadata *m = run->meta;
    const struct hb_k_norm args = {.n_tokens = m->n_real,
                                   .d_inner = run->dims->d_inner,
                                   .norm_group = c->norm_group,
                                   .gate_norm = c->gate_norm,
                                   .act_dtype = c->act_dtype,
                                   .defect = c->defect,
                                   .out_gate = c->out_gate,
                                   .eps = c->norm_eps,
                                   .y = run->ssm_out,
                                   .z = call->io->in[0],
                                   .weight = call->weights->param[HB_PARAM_NORM_WEIGHT],
                                   .out = call->io->out,
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

/* Prefill rows, then one-token rows; then DECODE tracking, where each layer does its own. */
static int32_t run_rows(const struct hb_linear_kind *kind, struct hb_linear_call *call,
                        struct hb_error *err) {
    int32_t status = run_prefill(kind, call, err);
    if (status == HB_OK) {
        status = run_update(kind, call, err);
    }
    if (status == HB_OK && call->run->config->track_by_layer) {
        status = hb_linear_track(call->run, call->pool, call->pool_layer, err);
    }
    return status;
}

int32_t hb_linear_forward(const struct hb_layer_run *run, const struct hb_linear_weights *weights,
                          const struct hb_pool *pool, int32_t pool_layer,
                          const struct hb_spec_cache *spec, const struct hb_layer_buffers *io,
                          struct hb_error *err) {
    const struct hb_linear_kind *kind = hb_linear_kind(run->dims->linear_kind);
    struct hb_linear_call call = {.run = run,
                                  .weights = weights,
                                  .pool = pool,
                                  .pool_layer = pool_layer,
                                  .spec = spec,
                                  .io = io};
    if (run->meta->n_real == 0 || kind == NULL) {
        return HB_OK;
    }
    const int32_t status = run->meta->n_verify_rows > 0 ? run_verify(kind, &call, err)
                                                        : run_rows(kind, &call, err);
    return status == HB_OK && kind->has_norm ? run_norm(&call, err) : status;
}
