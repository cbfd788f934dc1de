/* SPDX-License-Identifier: Apache-2.0
 * Persistent bytes of the float64 oracle as regions: two pools per layer, then the tables, then the
 * two intermediate caches of each Mamba2 layer where there are any. */
#include "harness/oracle_adapter.h"

#include <string.h>

#include "harness/values.h"

enum { TABLE_REQ_TO_SLOT, TABLE_SLOT_KIND, TABLE_FREE_LIST, N_TABLES };

static void set_shape(struct hb_region *r, int32_t n_dims, const int64_t *shape) {
    r->n_dims = n_dims;
    r->bytes = (uint64_t)(r->dtype == HB_INT32 ? 4 : hb_dtype_bytes(r->dtype));
    for (int32_t i = 0; i < n_dims; i++) {
        r->shape[i] = shape[i];
        r->bytes *= (uint64_t)shape[i];
    }
}

static void describe_pool(const struct hb_config *c, int32_t layer, int32_t part,
                          struct hb_region *r) {
    static const char *const names[HB_N_LAYER_KINDS][2] = {{"conv", "temporal"}, {"kv_k", "kv_v"}};
    int32_t kind = c->layer_kind[layer];
    int64_t width[4];
    hb_oracle_widths(c, HB_LAYER_MAMBA2, width);
    const int64_t conv[3] = {(int64_t)c->n_slots + 1, width[1], (int64_t)c->conv_width - 1};
    const int64_t temporal[4] = {(int64_t)c->n_slots + 1, c->n_heads, c->head_dim, c->state_size};
    const int64_t cache[3] = {c->n_kv, c->n_kv_heads, c->attn_dim};
    memcpy(r->name, names[kind][part], strlen(names[kind][part]) + 1);
    r->layer = layer;
    r->kind = HB_REGION_STATE;
    r->dtype = c->act_dtype;
    if (kind == HB_LAYER_ATTENTION) {
        set_shape(r, 3, cache);
    } else if (part == 0) {
        set_shape(r, 3, conv);
    } else {
        r->dtype = c->state_dtype;
        set_shape(r, 4, temporal);
    }
}

static void *describe_table(struct hb_oracle *o, int32_t table, struct hb_region *r) {
    static const char *const names[N_TABLES] = {"req_to_slot", "slot_kind", "free_list"};
    const int64_t sizes[N_TABLES] = {o->slots.req_pool_size, (int64_t)o->slots.n_slots + 1,
                                     o->slots.n_slots};
    int32_t *const data[N_TABLES] = {o->slots.table, o->slots.kind, o->slots.free_list};
    memcpy(r->name, names[table], strlen(names[table]) + 1);
    r->layer = -1;
    r->kind = HB_REGION_TABLE;
    r->dtype = HB_INT32;
    set_shape(r, 1, &sizes[table]);
    return data[table];
}

/* Intermediate caches: their number, and the layer and part of cache i. */
static int32_t n_caches(const struct hb_config *c) {
    int32_t n = 0;
    for (int32_t l = 0; l < c->n_layers && c->spec_rows > 0; l++) {
        n += c->layer_kind[l] == HB_LAYER_MAMBA2 ? 2 : 0;
    }
    return n;
}

static void *describe_cache(const struct hb_oracle *o, int32_t i, struct hb_region *r) {
    static const char *const names[2] = {"intermediate_conv", "intermediate_ssm"};
    const struct hb_config *c = &o->config;
    int32_t part = i % 2;
    int32_t layer = 0;
    int64_t width[4];
    for (int32_t left = i / 2;; layer++) {
        if (c->layer_kind[layer] == HB_LAYER_MAMBA2 && left-- == 0) {
            break;
        }
    }
    hb_oracle_widths(c, HB_LAYER_MAMBA2, width);
    const int64_t shape[4] = {c->spec_rows, c->max_draft, width[part == 0 ? 1 : 0],
                              part == 0 ? c->conv_width - 1 : c->state_size};
    memcpy(r->name, names[part], strlen(names[part]) + 1);
    r->layer = layer;
    r->kind = HB_REGION_STATE;
    r->dtype = part == 0 ? c->act_dtype : c->state_dtype;
    set_shape(r, 4, shape);
    return o->layer[layer].pool[HB_ORACLE_CACHES + part];
}

/* Describes region i into *r and its bytes into *at. */
static int32_t find_region(void *handle, int32_t i, struct hb_region *r, unsigned char **at,
                           struct hb_error *err) {
    struct hb_oracle *o = handle;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    int32_t n_pools = 2 * o->config.n_layers;
    int32_t n = n_pools + N_TABLES + n_caches(&o->config);
    if (i < 0 || i >= n) {
        return hb_fail_text(err, HB_ERR_RANGE, "region %d is outside 0..%d", i, n - 1);
    }
    memset(r, 0, sizeof *r);
    r->struct_size = sizeof *r;
    if (i < n_pools) {
        describe_pool(&o->config, i / 2, i % 2, r);
        *at = o->layer[i / 2].pool[i % 2];
    } else if (i < n_pools + N_TABLES) {
        *at = describe_table(o, i - n_pools, r);
    } else {
        *at = describe_cache(o, i - n_pools - N_TABLES, r);
    }
    return HB_OK;
}

/* find_region, and [offset, offset + bytes) lies inside. */
static int32_t find_bytes(void *handle, int32_t i, uint64_t offset, uint64_t bytes,
                          unsigned char **at, struct hb_error *err) {
    struct hb_region r = {0};
    int32_t status = find_region(handle, i, &r, at, err);
    if (status != HB_OK) {
        return status;
    }
    if (offset > r.bytes || bytes > r.bytes - offset) {
        return hb_fail(err, HB_RULE_BUFFER_RANGE, -1, (int64_t)(offset + bytes), (int64_t)r.bytes);
    }
    *at += offset;
    return HB_OK;
}

int32_t hb_oracle_n_regions(void *handle, int32_t *n, struct hb_error *err) {
    const struct hb_oracle *o = handle;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    *n = 2 * o->config.n_layers + N_TABLES + n_caches(&o->config);
    return HB_OK;
}

int32_t hb_oracle_region(void *handle, int32_t i, struct hb_region *out, struct hb_error *err) {
    struct hb_region r = {0};
    unsigned char *at = NULL;
    int32_t status = find_region(handle, i, &r, &at, err);
    if (status == HB_OK) {
        *out = r;
    }
    return status;
}

int32_t hb_oracle_region_read(void *handle, int32_t i, uint64_t offset, void *dst, uint64_t bytes,
                              struct hb_error *err) {
    unsigned char *at = NULL;
    int32_t status = find_bytes(handle, i, offset, bytes, &at, err);
    if (status == HB_OK && at != NULL && bytes > 0) {
        memcpy(dst, at, bytes);
    }
    return status;
}

/* The length of the free list is that of its leading valid ids, so that a written list is taken as
 * it stands. */
static void recount_free(struct hb_slot_model *slots) {
    slots->n_free = 0;
    while (slots->n_free < slots->n_slots && slots->free_list[slots->n_free] >= 1 &&
           slots->free_list[slots->n_free] <= slots->n_slots) {
        slots->n_free++;
    }
}

int32_t hb_oracle_region_write(void *handle, int32_t i, uint64_t offset, const void *src,
                               uint64_t bytes, struct hb_error *err) {
    struct hb_oracle *o = handle;
    unsigned char *at = NULL;
    int32_t status = find_bytes(handle, i, offset, bytes, &at, err);
    if (status != HB_OK) {
        return status;
    }
    if (at != NULL && bytes > 0) {
        memcpy(at, src, bytes);
    }
    if (i == 2 * o->config.n_layers + TABLE_FREE_LIST) {
        recount_free(&o->slots);
    }
    return HB_OK;
}
