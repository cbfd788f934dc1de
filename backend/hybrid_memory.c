/* SPDX-License-Identifier: Apache-2.0
 * What a hybrid handle owns: construction and destruction, buffers for layer calls. */
#include "backend/hybrid.h"

#include <stddef.h>
#include <string.h>

#include "backend/memory.h"

enum { FIRST_BUFFERS = 64 };

static const char *const param_names[HB_N_PARAMS] = {"conv_weight", "conv_bias", "a",
                                                     "dt_bias",     "d",         "norm_weight"};

static int32_t load_param(struct hb_hybrid *h, int32_t layer_id, int32_t i, const float *src,
                          struct hb_error *err) {
    const struct hb_kernels *k = h->kernels;
    const int32_t kind = h->layer[layer_id].kind;
    void **dst = &h->layer[layer_id].weights.param[i];
    const int64_t n = hb_config_param_count(&h->config, kind, i);
    const int64_t bytes = hb_mul_saturate(n, (int64_t)sizeof(float), 1);
    if (src == NULL && hb_config_param_needed(&h->config, kind, i)) {
        return hb_fail_text(err, HB_ERR_NULL, "layer %d needs %s", layer_id, param_names[i]);
    }
    if (src == NULL || n == 0) {
        return HB_OK;
    }
    const int32_t status = hb_device_alloc(k, bytes, 0, dst, err);
    if (status != HB_OK) {
        return status;
    }
    return hb_device_check(k, k->to_device(*dst, src, (uint64_t)bytes), err);
}

static int32_t load_weights(struct hb_hybrid *h, int32_t layer_id, const struct hb_layer_params *p,
                            struct hb_error *err) {
    float a[HB_MAX_HEADS];
    const float *src[HB_N_PARAMS] = {p->conv_weight, p->conv_bias, p->a,
                                     p->dt_bias,     p->d,         p->norm_weight};
    int32_t status = HB_OK;
    if (hb_linear_fill_a(&h->config, layer_id, a)) {
        src[HB_PARAM_A] = a;
    }
    for (int32_t i = 0; i < HB_N_PARAMS && status == HB_OK; i++) {
        status = load_param(h, layer_id, i, src[i], err);
    }
    return status;
}

/* Zero-initialised like the pools: entries that no verify has written are read by nobody. */
static int32_t create_spec_cache(struct hb_hybrid *h, struct hb_spec_cache *spec,
                                 struct hb_error *err) {
    const int64_t n_states = hb_config_ring_commits(&h->config) ? 0 : h->dims.n_nodes;
    const int64_t bytes[2] = {h->dims.windows_bytes, n_states * h->dims.temporal_slot_bytes};
    void **const places[2] = {&spec->windows, &spec->states};
    int32_t status = HB_OK;
    for (int32_t i = 0; i < 2 && status == HB_OK; i++) {
        status = bytes[i] > 0 ? hb_device_alloc(h->kernels, bytes[i], 1, places[i], err) : HB_OK;
    }
    return status;
}

static int32_t create_layers(struct hb_hybrid *h, const struct hb_layer_params *params,
                             struct hb_error *err) {
    int32_t n_linear = 0;
    int32_t status = HB_OK;
    for (int32_t l = 0; l < h->config.n_layers && status == HB_OK; l++) {
        struct hb_hybrid_layer *layer = &h->layer[l];
        layer->kind = h->config.layer_kind[l];
        if (layer->kind != HB_LAYER_ATTENTION) {
            layer->pool_layer = n_linear++;
            status = load_weights(h, l, &params[l], err);
            if (status == HB_OK) {
                status = create_spec_cache(h, &layer->spec, err);
            }
            continue;
        }
        status = hb_device_alloc(h->kernels, h->dims.kv_bytes, 1, &layer->kv_k, err);
        if (status == HB_OK) {
            status = hb_device_alloc(h->kernels, h->dims.kv_bytes, 1, &layer->kv_v, err);
        }
    }
    return status;
}

/* Ids of a verify; copies of its commit: source and destination of at most SR rows and SR
 * checkpoints; folds of checkpoints: source, destination, base, count. */
static int32_t create_pairs(struct hb_hybrid *h, struct hb_error *err) {
    const int64_t n = 8 * (int64_t)h->config.spec_rows;
    void *ptr;
    if (n == 0) {
        return HB_OK;
    }
    const int32_t status =
        hb_host_alloc(n + 2 * (int64_t)h->config.spec_rows, sizeof(int32_t), &ptr, err);
    if (status != HB_OK) {
        return status;
    }
    h->commit_pairs = ptr;
    h->verify_ids = h->commit_pairs + n;
    h->verify_generation = h->verify_ids + h->config.spec_rows;
    return hb_device_alloc(h->kernels, n * (int64_t)sizeof(int32_t), 0, &h->device_pairs, err);
}

static int32_t create_scratch(struct hb_hybrid *h, struct hb_error *err) {
    const struct hb_config *c = &h->config;
    const int64_t words = hb_metadata_capacity(c, h->dims.has_attention);
    const int64_t meta_bytes = hb_mul_saturate(words, (int64_t)sizeof(int32_t), 1);
    const int64_t act = h->dims.act_bytes;
    int32_t status = HB_OK;
    void *ptr;
    if (meta_bytes == INT64_MAX) {
        return hb_fail_text(err, HB_ERR_MEMORY,
                            "max_batch %d and max_context %d are too large together", c->max_batch,
                            c->max_context);
    }
    for (int32_t i = 0; i < 2 && status == HB_OK; i++) {
        status = hb_host_alloc(words, sizeof(int32_t), &ptr, err);
        if (status == HB_OK) {
            h->forward[i].host_block = ptr;
            status = hb_device_alloc(h->kernels, meta_bytes, 0, &h->forward[i].device_block, err);
        }
    }
    if (status == HB_OK && h->pool.n_layers > 0 && h->dims.dim > 0) {
        status = hb_device_alloc(h->kernels, hb_mul_saturate(c->max_tokens, h->dims.dim, act), 0,
                                 &h->conv_out, err);
    }
    if (status == HB_OK && h->pool.n_layers > 0) {
        status = hb_device_alloc(h->kernels, hb_mul_saturate(c->max_tokens, h->dims.d_inner, act),
                                 0, &h->ssm_out, err);
    }
    const int64_t n_seen = (int64_t)h->pool.n_ids + 1 + c->n_kv;
    if (status == HB_OK) {
        status = hb_host_alloc(n_seen, sizeof(int32_t), &ptr, err);
    }
    if (status == HB_OK) {
        int32_t *seen = ptr;
        h->env = (struct hb_validate_env){.config = c,
                                          .has_attention = h->dims.has_attention,
                                          .req_to_slot = h->pool.req_to_slot,
                                          .slot_kind = h->pool.slot_kind,
                                          .v2p = h->pool.v2p,
                                          .write_pos = h->pool.write_pos,
                                          .ring_base = h->pool.ring_base,
                                          .ring_flush = h->pool.ring_flush,
                                          .slot_seen = seen,
                                          .kv_seen = seen + h->pool.n_ids + 1};
    }
    return status;
}

int32_t hb_hybrid_create(const struct hb_kernels *kernels, const struct hb_config *config,
                         const struct hb_layer_params *params, struct hb_hybrid **out,
                         struct hb_error *err) {
    void *ptr;
    int32_t status = hb_config_check(config, err);
    if (status == HB_OK) {
        status = hb_device_check(kernels, kernels->open(), err);
    }
    if (status == HB_OK) {
        status = hb_host_alloc(1, sizeof(struct hb_hybrid), &ptr, err);
    }
    if (status != HB_OK) {
        return status;
    }
    struct hb_hybrid *h = ptr;
    h->kernels = kernels;
    h->config = *config;
    hb_config_dims(config, &h->dims);
    status = hb_pool_init(&h->pool, kernels, &h->config, &h->dims, err);
    if (status == HB_OK) {
        status = create_layers(h, params, err);
    }
    if (status == HB_OK) {
        status = create_pairs(h, err);
    }
    if (status == HB_OK) {
        status = create_scratch(h, err);
    }
    if (status == HB_OK) {
        h->env.graphs = &h->graphs.facts;
        status = hb_graph_create(h, err);
    }
    if (status != HB_OK) {
        hb_hybrid_destroy(h);
        return status;
    }
    hb_hybrid_list_regions(h);
    *out = h;
    return HB_OK;
}

void hb_hybrid_destroy(struct hb_hybrid *h) {
    hb_graph_destroy(h);
    for (int64_t i = 0; i < h->n_buffers; i++) {
        hb_device_free(h->kernels, h->buffers[i].ptr);
    }
    hb_host_free(h->buffers);
    hb_host_free(h->env.slot_seen);
    hb_device_free(h->kernels, h->ssm_out);
    hb_device_free(h->kernels, h->conv_out);
    hb_device_free(h->kernels, h->device_pairs);
    hb_host_free(h->commit_pairs);
    for (int32_t i = 0; i < 2; i++) {
        hb_device_free(h->kernels, h->forward[i].device_block);
        hb_host_free(h->forward[i].host_block);
    }
    for (int32_t l = 0; l < h->config.n_layers; l++) {
        for (int32_t i = 0; i < HB_N_PARAMS; i++) {
            hb_device_free(h->kernels, h->layer[l].weights.param[i]);
        }
        hb_device_free(h->kernels, h->layer[l].spec.states);
        hb_device_free(h->kernels, h->layer[l].spec.windows);
        hb_device_free(h->kernels, h->layer[l].kv_v);
        hb_device_free(h->kernels, h->layer[l].kv_k);
    }
    hb_pool_destroy(&h->pool);
    hb_host_free(h);
}

/* An unused entry of the buffer table, grown where there is none. */
static int32_t find_entry(struct hb_hybrid *h, int64_t *out, struct hb_error *err) {
    void *ptr;
    for (int64_t i = 0; i < h->n_buffers; i++) {
        if (h->buffers[i].ptr == NULL) {
            *out = i;
            return HB_OK;
        }
    }
    const int64_t n = h->n_buffers > 0 ? 2 * h->n_buffers : FIRST_BUFFERS;
    const int32_t status = hb_host_alloc(n, sizeof(struct hb_hybrid_buffer), &ptr, err);
    if (status != HB_OK) {
        return status;
    }
    if (h->n_buffers > 0) {
        memcpy(ptr, h->buffers, (size_t)h->n_buffers * sizeof(struct hb_hybrid_buffer));
    }
    hb_host_free(h->buffers);
    *out = h->n_buffers;
    h->buffers = ptr;
    h->n_buffers = n;
    return HB_OK;
}

int32_t hb_hybrid_buf_alloc(struct hb_hybrid *h, uint64_t bytes, struct hb_buf *out,
                            struct hb_error *err) {
    int64_t i;
    if (bytes > (uint64_t)INT64_MAX) {
        return hb_fail_text(err, HB_ERR_MEMORY, "a buffer cannot have %llu bytes",
                            (unsigned long long)bytes);
    }
    int32_t status = find_entry(h, &i, err);
    if (status == HB_OK) {
        status = hb_device_alloc(h->kernels, (int64_t)bytes, 0, &h->buffers[i].ptr, err);
    }
    if (status != HB_OK) {
        return status;
    }
    h->buffers[i].bytes = bytes;
    *out = (struct hb_buf){.id = (uint64_t)i + 1, .offset = 0, .bytes = bytes};
    return HB_OK;
}

static struct hb_hybrid_buffer *find_buffer(const struct hb_hybrid *h, uint64_t id) {
    return id >= 1 && id <= (uint64_t)h->n_buffers && h->buffers[id - 1].ptr != NULL
               ? &h->buffers[id - 1]
               : NULL;
}

void hb_hybrid_buf_free(struct hb_hybrid *h, struct hb_buf buf) {
    struct hb_hybrid_buffer *entry = find_buffer(h, buf.id);
    if (entry != NULL) {
        hb_device_free(h->kernels, entry->ptr);
        *entry = (struct hb_hybrid_buffer){0};
    }
}

/* buf.bytes is the caller's word; never more than the allocation has. */
void *hb_hybrid_buf_ptr(const struct hb_hybrid *h, struct hb_buf buf, uint64_t *bytes) {
    const struct hb_hybrid_buffer *entry = find_buffer(h, buf.id);
    *bytes = 0;
    if (entry == NULL) {
        return NULL;
    }
    if (buf.offset > entry->bytes) {
        return entry->ptr;
    }
    const uint64_t rest = entry->bytes - buf.offset;
    *bytes = buf.bytes < rest ? buf.bytes : rest;
    return (char *)entry->ptr + buf.offset;
}
