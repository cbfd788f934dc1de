/* SPDX-License-Identifier: Apache-2.0
 * The persistent bytes of a hybrid handle as regions (adapter.h): their list, and reading and
 * writing them. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "backend/hybrid.h"
#include "backend/memory.h"

void hb_hybrid_add_region(struct hb_hybrid *h, const char *name, int32_t layer, int32_t dtype,
                          int32_t kind, int32_t is_device, void *ptr, int32_t n_dims,
                          const int64_t *shape) {
    struct hb_hybrid_region *r = &h->region[h->n_regions++];
    struct hb_region *info = &r->info;
    uint64_t n = 1;
    *r = (struct hb_hybrid_region){.ptr = ptr, .is_device = is_device};
    info->struct_size = sizeof(*info);
    (void)snprintf(info->name, sizeof(info->name), "%s", name);
    info->layer = layer;
    info->dtype = dtype;
    info->kind = kind;
    info->n_dims = n_dims;
    for (int32_t i = 0; i < n_dims; i++) {
        info->shape[i] = shape[i];
        n *= (uint64_t)shape[i];
    }
    info->bytes = n * (uint64_t)hb_config_dtype_bytes(dtype);
    r->item_bytes = r->stride_bytes = info->bytes;
}

/* A pool, dense without its pads, and the pads; nothing where the kind has no such state. */
static void add_pool(struct hb_hybrid *h, const char *name, const char *pad_name, int32_t layer,
                     int32_t dtype, void *ptr, uint64_t slot_bytes, uint64_t pad_bytes,
                     int32_t n_dims, const int64_t *shape) {
    const int64_t pads[2] = {shape[0], h->config.pool_pad};
    if (ptr == NULL) {
        return;
    }
    hb_hybrid_add_region(h, name, layer, dtype, HB_REGION_STATE, 1, ptr, n_dims, shape);
    if (pad_bytes == 0) {
        return;
    }
    struct hb_hybrid_region *r = &h->region[h->n_regions - 1];
    r->item_bytes = slot_bytes;
    r->stride_bytes = slot_bytes + pad_bytes;
    hb_hybrid_add_region(h, pad_name, layer, dtype, HB_REGION_STATE, 1, (char *)ptr + slot_bytes, 2,
                         pads);
    r = &h->region[h->n_regions - 1];
    r->item_bytes = pad_bytes;
    r->stride_bytes = slot_bytes + pad_bytes;
}

static void add_ring(struct hb_hybrid *h, int32_t l, int32_t pool_layer) {
    const struct hb_config *c = &h->config;
    const int64_t slots = (int64_t)c->n_slots + 1;
    const int64_t x[4] = {slots, c->n_heads, c->ring_length, c->head_dim};
    const int64_t b[4] = {slots, c->n_groups, c->ring_length, c->state_size};
    const int64_t g[3] = {slots, c->n_heads, c->ring_length};
    const int32_t kind = HB_REGION_CURSOR;
    hb_hybrid_add_region(h, "ring_x", l, HB_FP32, kind, 1, h->pool.ring_x[pool_layer], 4, x);
    hb_hybrid_add_region(h, "ring_b", l, HB_FP32, kind, 1, h->pool.ring_b[pool_layer], 4, b);
    hb_hybrid_add_region(h, "ring_g", l, HB_FP32, kind, 1, h->pool.ring_g[pool_layer], 3, g);
}

static void add_spec(struct hb_hybrid *h, int32_t l, const struct hb_spec_cache *spec) {
    const struct hb_config *c = &h->config;
    const int32_t kind = HB_REGION_STATE;
    const int64_t windows[4] = {c->spec_rows, c->max_draft, h->dims.dim, h->dims.window};
    const int64_t strips[3] = {c->spec_rows, h->dims.dim,
                               (int64_t)c->max_draft + h->dims.window - 1};
    const int32_t is_kv = c->state_layout == HB_STATE_KV;
    const int64_t states[4] = {c->spec_rows, c->max_draft,
                               (int64_t)c->n_heads * (is_kv ? c->state_size : c->head_dim),
                               is_kv ? c->head_dim : c->state_size};
    const int32_t is_strip = c->window_layout == HB_WINDOWS_STRIP;
    if (spec->windows != NULL) {
        hb_hybrid_add_region(h, "intermediate_conv", l, c->act_dtype, kind, 1, spec->windows,
                             is_strip ? 3 : 4, is_strip ? strips : windows);
    }
    if (spec->states != NULL) {
        hb_hybrid_add_region(h, "intermediate_ssm", l, c->state_dtype, kind, 1, spec->states, 4,
                             states);
    }
}

static void add_layer(struct hb_hybrid *h, int32_t l) {
    const struct hb_config *c = &h->config;
    const struct hb_pool *pool = &h->pool;
    const struct hb_hybrid_layer *layer = &h->layer[l];
    const int64_t slots = (int64_t)c->n_slots + 1;
    const int64_t conv[3] = {slots, h->dims.dim, h->dims.window};
    const int32_t is_kv = c->state_layout == HB_STATE_KV;
    const int64_t temporal[4] = {slots, c->n_heads, is_kv ? c->state_size : c->head_dim,
                                 is_kv ? c->head_dim : c->state_size};
    const int64_t kv[3] = {c->n_kv, c->n_kv_heads, c->attn_dim};
    const int32_t i = layer->pool_layer;
    if (layer->kind == HB_LAYER_ATTENTION) {
        hb_hybrid_add_region(h, "kv_k", l, c->act_dtype, HB_REGION_STATE, 1, layer->kv_k, 3, kv);
        hb_hybrid_add_region(h, "kv_v", l, c->act_dtype, HB_REGION_STATE, 1, layer->kv_v, 3, kv);
        return;
    }
    add_pool(h, "conv", "conv_pad", l, c->act_dtype, pool->conv[i], pool->conv_slot_bytes,
             pool->conv_pad_bytes, 3, conv);
    add_pool(h, "temporal", "temporal_pad", l, c->state_dtype, pool->temporal[i],
             pool->temporal_slot_bytes, pool->temporal_pad_bytes, 4, temporal);
    if (h->dims.n_nodes > 0) {
        add_spec(h, l, &layer->spec);
    }
    if (c->ring_length > 0) {
        add_ring(h, l, i);
    }
}

static void add_table(struct hb_hybrid *h, const char *name, int32_t kind, int32_t *table,
                      int64_t n) {
    if (table != NULL) {
        hb_hybrid_add_region(h, name, -1, HB_INT32, kind, 0, table, 1, &n);
    }
}

void hb_hybrid_list_regions(struct hb_hybrid *h) {
    const struct hb_pool *pool = &h->pool;
    const int64_t ns = pool->n_slots;
    const int64_t ni = pool->n_ids;
    h->n_regions = 0;
    for (int32_t l = 0; l < h->config.n_layers; l++) {
        add_layer(h, l);
    }
    add_table(h, "req_to_slot", HB_REGION_TABLE, pool->req_to_slot, pool->req_pool_size);
    add_table(h, "slot_kind", HB_REGION_TABLE, pool->slot_kind, ns + 1);
    add_table(h, "free_list", HB_REGION_TABLE, pool->free_list, ns);
    add_table(h, "free_count", HB_REGION_CURSOR, pool->n_free, 1);
    add_table(h, "generation", HB_REGION_TABLE, pool->generation, ni + 1);
    add_table(h, "v2p", HB_REGION_TABLE, pool->v2p, ni + 1);
    add_table(h, "free_ids", HB_REGION_TABLE, pool->free_ids, ni);
    add_table(h, "free_id_count", HB_REGION_CURSOR, pool->n_free_ids, 1);
    add_table(h, "write_pos", HB_REGION_CURSOR, pool->write_pos, ns + 1);
    add_table(h, "ring_base", HB_REGION_CURSOR, pool->ring_base, ns + 1);
    add_table(h, "ring_flush", HB_REGION_CURSOR, pool->ring_flush, ns + 1);
    for (int32_t i = 0; i < HB_N_GRAPH_ARRAYS; i++) {
        int64_t shape[4];
        int32_t n_dims;
        const char *name;
        void *ptr;
        if (hb_graph_region(h, i, &name, &n_dims, shape, &ptr)) {
            hb_hybrid_add_region(h, name, -1, HB_INT32, HB_REGION_STATIC, 1, ptr, n_dims, shape);
        }
    }
}

int32_t hb_hybrid_region_at(const struct hb_hybrid *h, int32_t i, uint64_t offset, uint64_t bytes,
                            const struct hb_hybrid_region **out, struct hb_error *err) {
    if (i < 0 || i >= h->n_regions) {
        return hb_fail_text(err, HB_ERR_RANGE, "region %d is outside 0..%d", i, h->n_regions - 1);
    }
    const uint64_t size = h->region[i].info.bytes;
    if (offset > size || bytes > size - offset) {
        const uint64_t end = offset > UINT64_MAX - bytes ? UINT64_MAX : offset + bytes;
        return hb_fail(err, HB_RULE_BUFFER_RANGE, -1,
                       end > (uint64_t)INT64_MAX ? INT64_MAX : (int64_t)end, (int64_t)size);
    }
    *out = &h->region[i];
    return HB_OK;
}

/* One piece that lies together: to the region where src is given, else from it to dst. */
static int32_t copy_piece(const struct hb_hybrid *h, const struct hb_hybrid_region *r, char *place,
                          void *dst, const void *src, uint64_t bytes, struct hb_error *err) {
    const struct hb_kernels *k = h->kernels;
    if (r->is_device) {
        return hb_device_check(
            k, src != NULL ? k->to_device(place, src, bytes) : k->to_host(dst, place, bytes), err);
    }
    if (src != NULL) {
        memcpy(place, src, (size_t)bytes);
    } else {
        memcpy(dst, place, (size_t)bytes);
    }
    return HB_OK;
}

static int32_t copy_region(const struct hb_hybrid *h, int32_t i, uint64_t offset, char *dst,
                           const char *src, uint64_t bytes, struct hb_error *err) {
    const struct hb_hybrid_region *r = NULL;
    int32_t status = hb_hybrid_region_at(h, i, offset, bytes, &r, err);
    if (r == NULL || bytes == 0) { /* refused: no region */
        return status;
    }
    if (dst == NULL && src == NULL) {
        return hb_fail_text(err, HB_ERR_NULL, "no host memory for the copy");
    }
    for (uint64_t done = 0; done < bytes && status == HB_OK;) {
        const uint64_t within = (offset + done) % r->item_bytes;
        const uint64_t rest = r->item_bytes - within;
        const uint64_t n = rest < bytes - done ? rest : bytes - done;
        char *place = (char *)r->ptr + (offset + done) / r->item_bytes * r->stride_bytes + within;
        status = copy_piece(h, r, place, dst != NULL ? dst + done : NULL,
                            src != NULL ? src + done : NULL, n, err);
        done += n;
    }
    return status;
}

int32_t hb_hybrid_region_read(const struct hb_hybrid *h, int32_t i, uint64_t offset, void *dst,
                              uint64_t bytes, struct hb_error *err) {
    return copy_region(h, i, offset, dst, NULL, bytes, err);
}

int32_t hb_hybrid_region_write(const struct hb_hybrid *h, int32_t i, uint64_t offset,
                               const void *src, uint64_t bytes, struct hb_error *err) {
    return copy_region(h, i, offset, NULL, src, bytes, err);
}
