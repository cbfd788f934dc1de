/* SPDX-License-Identifier: Apache-2.0
 * Forward life cycle and layer dispatch. Every check comes before the first launch, so a refused
 * call changes nothing. */
#include "backend/hybrid.h"

#include <stddef.h>
#include <string.h>

#include "backend/defects.h"
#include "backend/memory.h"
#include "backend/mode.h"

enum { N_IO = 4, POISON = 0xff };

/* Of the begun forward or of the open capture; of a replay, that of its batch. */
static const struct hb_metadata *current_meta(const struct hb_hybrid *h) {
    return h->graphs.open == HB_GRAPH_CAPTURING ? &h->graphs.set[h->graphs.bs - 1].meta
                                                : &h->forward[h->current].meta;
}

/* What kernels are told of the current forward. */
static struct hb_layer_run current_run(const struct hb_hybrid *h) {
    const struct hb_metadata *m = current_meta(h);
    return (struct hb_layer_run){.kernels = h->kernels,
                                 .config = &h->config,
                                 .dims = &h->dims,
                                 .meta = m,
                                 .device_meta = m->is_graph ? h->graphs.device
                                                            : h->forward[h->current].device_block,
                                 .conv_out = h->conv_out,
                                 .ssm_out = h->ssm_out};
}

static int32_t is_idle(const struct hb_hybrid *h) {
    return h->has_metadata && hb_mode_is(current_meta(h)->mode, HB_MODE_IS_IDLE);
}

static int32_t is_layer(const struct hb_hybrid *h, int32_t layer_id) {
    return layer_id >= 0 && layer_id < h->config.n_layers;
}

static int32_t is_linear(const struct hb_hybrid *h, int32_t layer_id) {
    return is_layer(h, layer_id) && h->layer[layer_id].kind != HB_LAYER_ATTENTION;
}

static int32_t has_run(const struct hb_hybrid *h, int32_t layer_id) {
    return is_layer(h, layer_id) && ((h->layers_run >> layer_id) & 1U) != 0;
}

void hb_hybrid_close(struct hb_hybrid *h) {
    h->has_metadata = h->has_verify = 0;
    h->layers_run = 0;
    h->graphs.open = HB_GRAPH_CLOSED;
}

int32_t hb_hybrid_begin(struct hb_hybrid *h, const struct hb_batch *batch, struct hb_error *err) {
    const int32_t next = 1 - h->current;
    struct hb_forward *f = &h->forward[next];
    struct hb_metadata meta;
    int32_t status = hb_validate_batch(&h->env, batch, err);
    if ((status == HB_ERR_RANGE || status == HB_ERR_SHAPE) &&
        HB_DEFECT(h->config.defect, IMPURE_ERROR)) {
        h->pool.req_to_slot[0] ^= 1;
    }
    if (status != HB_OK) {
        return status;
    }
    if (hb_mode_is(batch->forward_mode, HB_MODE_IS_DRAFT_EXTEND_V2)) {
        /* speculative.md section 6: no metadata of this mode, and none left from before */
        hb_hybrid_close(h);
        return HB_OK;
    }
    hb_metadata_derive(&h->env, batch, f->host_block, &meta);
    status = hb_device_check(h->kernels,
                             h->kernels->to_device(f->device_block, f->host_block,
                                                   (uint64_t)meta.device_words * sizeof(int32_t)),
                             err);
    if (status != HB_OK) {
        return status;
    }
    hb_hybrid_close(h);
    f->meta = meta;
    h->current = next;
    h->has_metadata = 1;
    hb_hybrid_note_verify(h, batch);
    return HB_OK;
}

/* Rules 29 and 97 around 59: absent buffers, then short ones, then the layer id. T = 0 needs no
 * buffer at all. */
static int32_t check_io(const struct hb_hybrid *h, int32_t layer_id, const struct hb_layer_io *io,
                        struct hb_layer_buffers *out, struct hb_error *err) {
    const int64_t n_tokens = current_meta(h)->n_tokens;
    void *ptr[N_IO];
    uint64_t bytes[N_IO];
    int64_t width[N_IO] = {1, 1, 1, 1}; /* of no layer: every buffer is wanted */
    if (io == NULL) {
        return hb_fail(err, HB_RULE_IO_NULL, 0, 0, 0);
    }
    for (int32_t i = 0; i < N_IO; i++) {
        ptr[i] = hb_hybrid_buf_ptr(h, i < 3 ? io->in[i] : io->out, &bytes[i]);
        if (is_layer(h, layer_id)) {
            width[i] = hb_config_io_width(&h->config, h->layer[layer_id].kind, i);
        }
        if (ptr[i] == NULL && n_tokens > 0 && width[i] > 0) {
            return hb_fail(err, HB_RULE_IO_NULL, i, 0, 0);
        }
    }
    for (int32_t i = 0; i < N_IO && is_layer(h, layer_id); i++) {
        const int64_t need = hb_mul_saturate(n_tokens, width[i], h->dims.act_bytes);
        if (bytes[i] < (uint64_t)need) {
            return hb_fail(err, HB_RULE_IO_BYTES, i, (int64_t)bytes[i], need);
        }
    }
    if (!is_layer(h, layer_id)) {
        return hb_fail(err, HB_RULE_LAYER_RANGE, -1, layer_id, (int64_t)h->config.n_layers - 1);
    }
    *out = (struct hb_layer_buffers){.in = {ptr[0], ptr[1], ptr[2]}, .out = ptr[3]};
    return HB_OK;
}

/* Output rows of tokens first .. T-1 := 0. */
static int32_t zero_output(const struct hb_hybrid *h, int32_t layer_id, int32_t first, void *out,
                           struct hb_error *err) {
    const int64_t row =
        hb_config_io_width(&h->config, h->layer[layer_id].kind, N_IO - 1) * h->dims.act_bytes;
    const int64_t n = current_meta(h)->n_tokens - first;
    if (n == 0 || out == NULL) {
        return HB_OK;
    }
    return hb_device_check(
        h->kernels, h->kernels->fill((char *)out + first * row, 0, (uint64_t)(n * row)), err);
}

/* On the host, scratch of the last layer must not look like a result of this one. */
static int32_t poison_scratch(const struct hb_hybrid *h, struct hb_error *err) {
    const uint64_t tokens = (uint64_t)current_meta(h)->n_real * (uint64_t)h->dims.act_bytes;
    const struct hb_kernels *k = h->kernels;
    if (k->is_device_code || tokens == 0) {
        return HB_OK;
    }
    int32_t status = HB_OK;
    if (h->dims.dim > 0) {
        status =
            hb_device_check(k, k->fill(h->conv_out, POISON, tokens * (uint64_t)h->dims.dim), err);
    }
    if (status != HB_OK) {
        return status;
    }
    return hb_device_check(k, k->fill(h->ssm_out, POISON, tokens * (uint64_t)h->dims.d_inner), err);
}

/* A graph does not know which of its rows will be live, so all output is cleared first; the kernels
 * leave the rows of padding alone. */
int32_t hb_hybrid_launch_layer(const struct hb_hybrid *h, int32_t layer_id,
                               const struct hb_layer_buffers *io, struct hb_error *err) {
    const struct hb_hybrid_layer *layer = &h->layer[layer_id];
    const struct hb_layer_run run = current_run(h);
    int32_t status = run.meta->is_graph ? zero_output(h, layer_id, 0, io->out, err) : HB_OK;
    if (status == HB_OK && !is_idle(h) && layer->kind == HB_LAYER_ATTENTION) {
        status = hb_full_attn_forward(&run, layer->kv_k, layer->kv_v, io, err);
    } else if (status == HB_OK && !is_idle(h)) {
        status = poison_scratch(h, err);
        if (status == HB_OK) {
            status = hb_linear_forward(&run, &layer->weights, &h->pool, layer->pool_layer,
                                       &layer->spec, io, err);
        }
    }
    if (status == HB_OK && !run.meta->is_graph) {
        status = zero_output(h, layer_id, run.meta->n_real, io->out, err);
    }
    return status;
}

static int32_t run_layer(struct hb_hybrid *h, int32_t layer_id, const struct hb_layer_buffers *io,
                         struct hb_error *err) {
    const int32_t status = hb_hybrid_launch_layer(h, layer_id, io, err);
    if (status == HB_OK) {
        h->layers_run |= 1U << (uint32_t)layer_id;
    }
    if (status == HB_OK && h->graphs.open == HB_GRAPH_CAPTURING) {
        hb_graph_add_step(h, layer_id, io);
    }
    return status;
}

int32_t hb_hybrid_layer(struct hb_hybrid *h, int32_t layer_id, const struct hb_layer_io *io,
                        struct hb_error *err) {
    struct hb_layer_buffers buffers = {0};
    if (!h->has_metadata) {
        return hb_fail(err, HB_RULE_NO_METADATA, -1, 0, 0);
    }
    if (has_run(h, layer_id)) {
        return hb_fail(err, HB_RULE_LAYER_TWICE, -1, layer_id, 0);
    }
    const int32_t status = check_io(h, layer_id, io, &buffers, err);
    return status == HB_OK ? run_layer(h, layer_id, &buffers, err) : status;
}

int32_t hb_hybrid_entry(struct hb_hybrid *h, int32_t direction, int32_t layer_id,
                        const struct hb_layer_io *io, struct hb_error *err) {
    struct hb_layer_buffers buffers = {0};
    const int32_t refusal = is_linear(h, layer_id)
                                ? hb_linear_entry_rule(h->layer[layer_id].kind, direction)
                                : HB_RULE_NONE;
    if (refusal != HB_RULE_NONE && !is_idle(h)) {
        return hb_fail(err, refusal, -1, 0, 0);
    }
    if (!h->has_metadata) {
        return hb_fail(err, HB_RULE_NO_METADATA, -1, 0, 0);
    }
    if (refusal == HB_RULE_NONE && has_run(h, layer_id)) {
        return hb_fail(err, HB_RULE_LAYER_TWICE, -1, layer_id, 0);
    }
    const int32_t status = check_io(h, layer_id, io, &buffers, err);
    if (status != HB_OK) {
        return status;
    }
    if (is_idle(h)) { /* a new zero output, nothing is run: the layer does not count as run */
        return zero_output(h, layer_id, 0, buffers.out, err);
    }
    return run_layer(h, layer_id, &buffers, err);
}

/* tracking.md section 5: once for all layers that ran, after the last of them, unless each layer
 * has done its own. */
int32_t hb_hybrid_launch_tracking(const struct hb_hybrid *h, struct hb_error *err) {
    const struct hb_layer_run run = current_run(h);
    int32_t status = HB_OK;
    for (int32_t l = 0; l < h->config.n_layers && status == HB_OK; l++) {
        const struct hb_hybrid_layer *layer = &h->layer[l];
        if (is_linear(h, l) && has_run(h, l) && !h->config.track_by_layer) {
            status = hb_linear_track(&run, &h->pool, layer->pool_layer, err);
        }
    }
    return status;
}

/* Rule 116: one cursor stands for the rings of all layers. */
static int32_t check_ring_layers(const struct hb_hybrid *h, struct hb_error *err) {
    for (int32_t l = 0; l < h->config.n_layers; l++) {
        if (is_linear(h, l) && !has_run(h, l)) {
            return hb_fail(err, HB_RULE_RING_LAYERS, -1, l, 0);
        }
    }
    return HB_OK;
}

/* What was begun: tracking. A capture: records all that ran. A replay: launches that. */
static int32_t launch_end(struct hb_hybrid *h, struct hb_error *err) {
    switch (h->graphs.open) {
    case HB_GRAPH_CAPTURING:
        return hb_graph_record(h, err);
    case HB_GRAPH_REPLAYING:
        return hb_graph_launch(h, err);
    default:
        return hb_hybrid_launch_tracking(h, err);
    }
}

int32_t hb_hybrid_finish(struct hb_hybrid *h, struct hb_error *err) {
    const int32_t is_replay = h->graphs.open == HB_GRAPH_REPLAYING;
    if (!h->has_metadata && !is_replay) {
        return hb_fail(err, HB_RULE_NO_METADATA, -1, 0, 0);
    }
    const struct hb_metadata *m = current_meta(h);
    /* a graph has the layers that its capture was asked about */
    int32_t status = m->replay_write_pos != NULL && !is_replay ? check_ring_layers(h, err) : HB_OK;
    if (status == HB_OK) {
        status = launch_end(h, err);
    }
    if (status == HB_OK) {
        status = hb_device_check(h->kernels, h->kernels->sync(), err);
    }
    if (status != HB_OK) {
        return status;
    }
    const uint32_t layers = h->layers_run;
    hb_hybrid_close(h);
    if (m->is_graph) { /* a capture: no row was live */
        return HB_OK;
    }
    if (m->ring_base != NULL) {
        hb_pool_end_verify(&h->pool, m->n_rows, m->cache_indices, m->replay_write_pos,
                           m->force_flush);
    } else if (m->replay_write_pos != NULL) {
        hb_pool_advance(&h->pool, m->n_rows, m->cache_indices, m->replay_write_pos,
                        m->force_flush);
    }
    h->has_verify = hb_mode_is(m->mode, HB_MODE_IS_TARGET_VERIFY);
    h->layers_verified = layers;
    return HB_OK;
}
