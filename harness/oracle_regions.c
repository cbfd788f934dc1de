/* SPDX-License-Identifier: Apache-2.0
 * Persistent bytes of the float64 oracle as regions: two pools per layer, the tables, then what the
 * configuration asks for besides: intermediate caches, padding, rings, virtual ids, graphs. */
#include "harness/oracle_adapter.h"

#include <stdlib.h>
#include <string.h>

#include "harness/values.h"

/* What distinguishes the pools; shapes are in pool_shape. */
static const struct pool_row {
    const char *name[2]; /* of a linear layer, of an attention layer */
    int32_t is_state_type, is_float, kind;
} POOLS[HB_N_POOLS] = {
    [HB_POOL_CONV] = {{"conv", "kv_k"}, 0, 0, HB_REGION_STATE},
    [HB_POOL_TEMPORAL] = {{"temporal", "kv_v"}, 1, 0, HB_REGION_STATE},
    [HB_POOL_CACHE_CONV] = {{"intermediate_conv", NULL}, 0, 0, HB_REGION_STATE},
    [HB_POOL_CACHE_SSM] = {{"intermediate_ssm", NULL}, 1, 0, HB_REGION_STATE},
    [HB_POOL_CONV_PAD] = {{"conv_pad", NULL}, 0, 0, HB_REGION_STATE},
    [HB_POOL_TEMPORAL_PAD] = {{"temporal_pad", NULL}, 1, 0, HB_REGION_STATE},
    [HB_POOL_RING_X] = {{"ring_x", NULL}, 0, 1, HB_REGION_CURSOR},
    [HB_POOL_RING_B] = {{"ring_b", NULL}, 0, 1, HB_REGION_CURSOR},
    [HB_POOL_RING_G] = {{"ring_g", NULL}, 0, 1, HB_REGION_CURSOR},
};

/* Dimensions of a shape; fewer than all of them are used where the rest is 0. */
enum { MOST_DIMS = 4 };
struct shape {
    int32_t n;
    int64_t dim[MOST_DIMS];
};

/* A conv state or a temporal state that the kind does not have makes the shapes empty. */
static struct shape pool_shape(const struct hb_config *c, int32_t layer_kind, int32_t pool) {
    struct hb_ref_sizes size;
    hb_oracle_sizes(c, layer_kind, &size);
    const int is_kv = c->state_layout == HB_STATE_KV;
    const int64_t rows = is_kv ? c->state_size : c->head_dim;
    const int64_t columns = is_kv ? c->head_dim : c->state_size;
    const int64_t ns = (int64_t)c->n_slots + 1, length = c->ring_length, sr = c->spec_rows;
    const int64_t conv = size.channels, heads = size.n_state > 0 ? c->n_heads : 0;
    const int64_t pad = c->pool_pad;
    const struct shape shapes[HB_N_POOLS] = {
        [HB_POOL_CONV] = {3, {ns, conv, size.window}},
        [HB_POOL_TEMPORAL] = {4, {ns, heads, rows, columns}},
        [HB_POOL_CACHE_CONV] = {4, {sr, c->max_draft, conv, size.window}},
        [HB_POOL_CACHE_SSM] = {4, {hb_ring_commits(c) ? 0 : sr, c->max_draft, heads * rows, columns}},
        [HB_POOL_CONV_PAD] = {2, {ns, conv > 0 ? pad : 0}},
        [HB_POOL_TEMPORAL_PAD] = {2, {ns, heads > 0 ? pad : 0}},
        [HB_POOL_RING_X] = {4, {ns, c->n_heads, length, c->head_dim}},
        [HB_POOL_RING_B] = {4, {ns, c->n_groups, length, c->state_size}},
        [HB_POOL_RING_G] = {3, {ns, c->n_heads, length}},
    };
    if (layer_kind == HB_LAYER_ATTENTION) {
        return (struct shape){3, {c->n_kv, c->n_kv_heads, c->attn_dim}};
    }
    if (pool == HB_POOL_CACHE_CONV && c->window_layout == HB_WINDOWS_STRIP) {
        return (struct shape){3, {sr, conv, (int64_t)c->max_draft + size.window - 1}};
    }
    return shapes[pool];
}

/* Appends a region whose bytes are `at`, or are allocated, as zeros, where at is null. */
static int32_t add_region(struct hb_oracle *o, const char *name, int32_t layer, int32_t kind,
                          int32_t dtype, const struct shape *shape, void *at) {
    struct hb_oracle_region *r = &o->region[o->n_regions];
    uint64_t bytes = (uint64_t)(dtype == HB_INT32 ? 4 : hb_dtype_bytes(dtype));
    memset(r, 0, sizeof *r);
    r->info = (struct hb_region){.struct_size = sizeof r->info,
                                 .layer = layer,
                                 .dtype = dtype,
                                 .kind = kind,
                                 .n_dims = shape->n};
    memcpy(r->info.name, name, strlen(name) + 1);
    for (int32_t i = 0; i < shape->n; i++) {
        uint64_t n = (uint64_t)shape->dim[i];
        if (n > HB_ORACLE_MOST_BYTES / bytes) {
            return HB_ERR_MEMORY;
        }
        r->info.shape[i] = shape->dim[i];
        bytes *= n;
    }
    r->info.bytes = bytes;
    r->is_owned = at == NULL;
    r->at = at != NULL ? at : calloc(bytes, 1);
    if (r->at == NULL) {
        return HB_ERR_MEMORY;
    }
    o->n_regions++;
    return HB_OK;
}

/* Pools from..to-1 of every layer that has them. */
static int32_t add_pools(struct hb_oracle *o, int32_t from, int32_t to) {
    const struct hb_config *c = &o->config;
    for (int32_t l = 0; l < c->n_layers; l++) {
        for (int32_t pool = from; pool < to; pool++) {
            const struct pool_row *row = &POOLS[pool];
            const int is_attention = c->layer_kind[l] == HB_LAYER_ATTENTION;
            const char *name = row->name[is_attention];
            const struct shape shape = pool_shape(c, c->layer_kind[l], pool);
            int32_t dtype = row->is_state_type && !is_attention ? c->state_dtype : c->act_dtype;
            if (name == NULL || shape.dim[0] == 0 || shape.dim[1] == 0 ||
                (shape.n > 2 && shape.dim[2] == 0)) {
                continue;
            }
            dtype = row->is_float ? HB_FP32 : dtype;
            if (add_region(o, name, l, row->kind, dtype, &shape, NULL) != HB_OK) {
                return HB_ERR_MEMORY;
            }
            const struct hb_oracle_region *made = &o->region[o->n_regions - 1];
            o->layer[l].pool[pool] = made->at;
            o->layer[l].entry[pool] = made->info.bytes / (uint64_t)shape.dim[0];
        }
    }
    return HB_OK;
}

/* The arrays of the slot model. */
static int32_t add_tables(struct hb_oracle *o, int optional) {
    struct hb_slot_model *m = &o->slots;
    const struct {
        const char *name;
        int32_t is_optional, kind;
        int64_t n;
        int32_t *at;
    } tables[HB_ORACLE_TABLES] = {
        {"req_to_slot", 0, HB_REGION_TABLE, m->req_pool_size, m->table},
        {"slot_kind", 0, HB_REGION_TABLE, (int64_t)m->n_slots + 1, m->kind},
        {"free_list", 0, HB_REGION_TABLE, m->n_slots, m->free_list},
        {"v2p", 1, HB_REGION_TABLE, m->n_virtual > 0 ? (int64_t)m->n_virtual + 1 : 0, m->v2p},
        {"free_ids", 1, HB_REGION_TABLE, m->n_virtual, m->free_ids},
        {"write_pos", 1, HB_REGION_CURSOR, m->ring_length > 0 ? (int64_t)m->n_slots + 1 : 0,
         m->write_pos},
        {"ring_base", 1, HB_REGION_CURSOR, m->commits ? (int64_t)m->n_slots + 1 : 0, m->ring_base},
        {"ring_flush", 1, HB_REGION_CURSOR, m->commits ? (int64_t)m->n_slots + 1 : 0,
         m->ring_flush},
    };
    for (int32_t i = 0; i < HB_ORACLE_TABLES; i++) {
        const struct shape shape = {1, {tables[i].n}};
        if (tables[i].is_optional == optional && tables[i].n > 0 &&
            add_region(o, tables[i].name, -1, tables[i].kind, HB_INT32, &shape, tables[i].at) !=
                HB_OK) {
            return HB_ERR_MEMORY;
        }
    }
    return HB_OK;
}

static int32_t add_statics(struct hb_oracle *o) {
    const struct hb_config *c = &o->config;
    const int64_t rows = c->graph_rows;
    const int32_t spec = c->spec_rows > 0, ring = c->ring_length > 0;
    const struct {
        const char *name;
        int32_t is_there;
        struct shape shape;
    } statics[HB_N_STATICS] = {
        [HB_STATIC_STATE_INDICES] = {"graph_state_indices", 1, {2, {rows, rows}}},
        [HB_STATIC_QUERY_START] = {"graph_query_start_loc", 1, {2, {rows, rows + 1}}},
        [HB_STATIC_TRACK_INDICES] = {"graph_track_indices", 1, {1, {rows}}},
        [HB_STATIC_TRACK_MASK] = {"graph_track_mask", 1, {1, {rows}}},
        [HB_STATIC_NEXT] = {"graph_next_token", spec, {3, {rows, rows, c->graph_draft}}},
        [HB_STATIC_SIBLING] = {"graph_next_sibling", spec, {3, {rows, rows, c->graph_draft}}},
        [HB_STATIC_PARENTS] = {"graph_parents", spec, {3, {rows, rows, c->graph_draft}}},
        [HB_STATIC_WRITE_POS] = {"graph_write_pos", ring, {2, {rows, rows}}},
        [HB_STATIC_FORCE_FLUSH] = {"graph_force_flush", ring, {2, {rows, rows}}},
        [HB_STATIC_RING_BASE] = {"graph_ring_base", hb_ring_commits(c), {2, {rows, rows}}},
    };
    for (int32_t i = 0; i < HB_N_STATICS && rows > 0; i++) {
        if (!statics[i].is_there) {
            continue;
        }
        if (add_region(o, statics[i].name, -1, HB_REGION_STATIC, HB_INT32, &statics[i].shape,
                       NULL) != HB_OK) {
            return HB_ERR_MEMORY;
        }
        o->statics[i] = o->region[o->n_regions - 1].at;
    }
    for (int64_t i = 0; i < rows * rows; i++) {
        o->statics[HB_STATIC_STATE_INDICES][i] = HB_PAD_SLOT;
    }
    return HB_OK;
}

int32_t hb_oracle_regions_make(struct hb_oracle *o) {
    int done = add_pools(o, 0, HB_POOL_CACHE_CONV) == HB_OK && add_tables(o, 0) == HB_OK &&
               add_pools(o, HB_POOL_CACHE_CONV, HB_POOL_CONV_PAD) == HB_OK &&
               add_pools(o, HB_POOL_CONV_PAD, HB_N_POOLS) == HB_OK && add_tables(o, 1) == HB_OK &&
               add_statics(o) == HB_OK;
    return done ? HB_OK : HB_ERR_MEMORY;
}

void hb_oracle_regions_free(struct hb_oracle *o) {
    for (int32_t i = 0; i < o->n_regions; i++) {
        if (o->region[i].is_owned) {
            free(o->region[i].at);
        }
    }
    o->n_regions = 0;
}

/* Region i of a handle, or null and err filled. */
static const struct hb_oracle_region *find_region(void *handle, int32_t i, struct hb_error *err) {
    const struct hb_oracle *o = handle;
    if (o == NULL) {
        (void)hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
        return NULL;
    }
    if (i < 0 || i >= o->n_regions) {
        (void)hb_fail_text(err, HB_ERR_RANGE, "region %d is outside 0..%d", i, o->n_regions - 1);
        return NULL;
    }
    return &o->region[i];
}

/* Status of a failed find_region. */
static int32_t no_region(const void *handle) {
    return handle == NULL ? HB_ERR_NULL : HB_ERR_RANGE;
}

static int32_t check_range(const struct hb_oracle_region *r, uint64_t offset, uint64_t bytes,
                           struct hb_error *err) {
    if (offset > r->info.bytes || bytes > r->info.bytes - offset) {
        return hb_fail(err, HB_RULE_BUFFER_RANGE, -1, (int64_t)(offset + bytes),
                       (int64_t)r->info.bytes);
    }
    return HB_OK;
}

int32_t hb_oracle_n_regions(void *handle, int32_t *n, struct hb_error *err) {
    const struct hb_oracle *o = handle;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    *n = o->n_regions;
    return HB_OK;
}

int32_t hb_oracle_region(void *handle, int32_t i, struct hb_region *out, struct hb_error *err) {
    const struct hb_oracle_region *r = find_region(handle, i, err);
    if (r == NULL) {
        return no_region(handle);
    }
    *out = r->info;
    return HB_OK;
}

int32_t hb_oracle_region_read(void *handle, int32_t i, uint64_t offset, void *dst, uint64_t bytes,
                              struct hb_error *err) {
    const struct hb_oracle_region *r = find_region(handle, i, err);
    if (r == NULL) {
        return no_region(handle);
    }
    int32_t status = check_range(r, offset, bytes, err);
    if (status == HB_OK && bytes > 0) {
        memcpy(dst, (const unsigned char *)r->at + offset, bytes);
    }
    return status;
}

/* The length of a list of free entries is that of its leading valid ones, so that a written list is
 * taken as it stands. */
static int32_t count_valid(const int32_t *list, int32_t most) {
    int32_t n = 0;
    while (n < most && list[n] >= 1 && list[n] <= most) {
        n++;
    }
    return n;
}

int32_t hb_oracle_region_write(void *handle, int32_t i, uint64_t offset, const void *src,
                               uint64_t bytes, struct hb_error *err) {
    const struct hb_oracle_region *r = find_region(handle, i, err);
    if (r == NULL) {
        return no_region(handle);
    }
    int32_t status = check_range(r, offset, bytes, err);
    if (status != HB_OK || bytes == 0) {
        return status;
    }
    struct hb_slot_model *m = &((struct hb_oracle *)handle)->slots;
    memcpy((unsigned char *)r->at + offset, src, bytes);
    if (r->at == (void *)m->free_list) {
        m->n_free = count_valid(m->free_list, m->n_slots);
    }
    if (r->at == (void *)m->free_ids) {
        m->n_free_ids = count_valid(m->free_ids, m->n_virtual);
    }
    return HB_OK;
}
