/* SPDX-License-Identifier: Apache-2.0
 * The full-attention child: write the new keys and values, then read (ops-attention.md sections 1
 * to 3). The draft nodes of a verify are the last tokens of their row; in a tree they see their
 * ancestors only. */
#include "backend/layers.h"

#include <math.h>
#include <stddef.h>

#include "backend/memory.h"

static int32_t write_kv(const struct hb_layer_run *run, void *kv_k, void *kv_v,
                        const struct hb_layer_buffers *io, struct hb_error *err) {
    const struct hb_k_kv_write args = {.n_tokens = run->meta->n_real,
                                       .row_elems = run->config->n_kv_heads * run->config->attn_dim,
                                       .act_dtype = run->config->act_dtype,
                                       .defect = run->config->defect,
                                       .loc = hb_layer_array(run, run->meta->out_cache_loc),
                                       .k = io->in[1],
                                       .v = io->in[2],
                                       .k_buf = kv_k,
                                       .v_buf = kv_v};
    return hb_device_check(run->kernels, run->kernels->kv_write(&args), err);
}

static int32_t attend(const struct hb_layer_run *run, const void *kv_k, const void *kv_v,
                      const struct hb_layer_buffers *io, struct hb_error *err) {
    const struct hb_config *c = run->config;
    const struct hb_metadata *m = run->meta;
    const float scale =
        c->sm_scale != 0.0F ? c->sm_scale : (float)(1.0 / sqrt((double)c->attn_dim));
    const struct hb_k_attention args = {.rows = {.n_rows = m->n_live,
                                                 .qsl = hb_layer_array(run, m->query_start_loc),
                                                 .slots = hb_layer_array(run, m->cache_indices),
                                                 .has_init = NULL},
                                        .n_q_heads = c->n_q_heads,
                                        .n_kv_heads = c->n_kv_heads,
                                        .attn_dim = c->attn_dim,
                                        .act_dtype = c->act_dtype,
                                        .defect = c->defect,
                                        .sm_scale = scale,
                                        .window = c->attn_window,
                                        .window_rule = c->window_rule,
                                        .softcap = c->attn_softcap,
                                        .reqs = NULL, /* the table's rows are those of the batch */
                                        .seq_lens = hb_layer_array(run, m->seq_lens),
                                        .req_to_token = hb_layer_array(run, m->req_to_token),
                                        .max_context = m->table_cols,
                                        .q = io->in[0],
                                        .k_buf = kv_k,
                                        .v_buf = kv_v,
                                        .out = io->out,
                                        .parent =
                                            m->is_tree ? hb_layer_array(run, m->parents) : NULL,
                                        .parent_stride = m->parent_stride};
    return hb_device_check(run->kernels, run->kernels->attention(&args), err);
}

int32_t hb_full_attn_forward(const struct hb_layer_run *run, void *kv_k, void *kv_v,
                             const struct hb_layer_buffers *io, struct hb_error *err) {
    if (run->meta->n_real == 0) {
        return HB_OK;
    }
    const int32_t status = write_kv(run, kv_k, kv_v, io, err);
    return status == HB_OK ? attend(run, kv_k, kv_v, io, err) : status;
}
