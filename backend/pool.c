/* SPDX-License-Identifier: Apache-2.0
 * Slot life cycle (state-pool.md section 2). All checks come before the first write. */
#include "backend/pool.h"

#include <stddef.h>
#include <string.h>

#include "backend/adapter.h"
#include "backend/memory.h"

int32_t hb_pool_init(struct hb_pool *pool, const struct hb_kernels *kernels,
                     const struct hb_config *config, const struct hb_dims *dims,
                     struct hb_error *err) {
    const int64_t slots = (int64_t)config->n_slots + 1;
    void *tables;
    *pool = (struct hb_pool){.kernels = kernels,
                             .n_slots = config->n_slots,
                             .req_pool_size = config->req_pool_size,
                             .defect = config->defect,
                             .conv_slot_bytes = (uint64_t)dims->conv_slot_bytes,
                             .temporal_slot_bytes = (uint64_t)dims->temporal_slot_bytes};
    int32_t status =
        hb_host_alloc(4 * slots + config->req_pool_size, sizeof(int32_t), &tables, err);
    if (status != HB_OK) {
        return status;
    }
    pool->slot_kind = tables;
    pool->free_list = pool->slot_kind + slots;
    pool->n_free = pool->free_list + config->n_slots;
    pool->req_to_slot = pool->n_free + 1;
    pool->ids = pool->req_to_slot + config->req_pool_size;
    pool->slot_kind[0] = HB_SLOT_RESERVED;
    for (int32_t i = 0; i < config->n_slots; i++) {
        pool->free_list[i] = i + 1;
    }
    *pool->n_free = config->n_slots;
    status = hb_device_alloc(kernels, (slots - 1) * 2 * (int64_t)sizeof(int32_t), 0,
                             &pool->device_ids, err);
    for (int32_t l = 0; l < config->n_layers && status == HB_OK; l++) {
        if (config->layer_kind[l] != HB_LAYER_MAMBA2) {
            continue;
        }
        const int32_t i = pool->n_layers++;
        status = hb_device_alloc(kernels, slots * dims->conv_slot_bytes, 1, &pool->conv[i], err);
        if (status == HB_OK) {
            status = hb_device_alloc(kernels, slots * dims->temporal_slot_bytes, 1,
                                     &pool->temporal[i], err);
        }
    }
    return status;
}

void hb_pool_destroy(struct hb_pool *pool) {
    for (int32_t i = pool->n_layers - 1; i >= 0; i--) {
        hb_device_free(pool->kernels, pool->temporal[i]);
        hb_device_free(pool->kernels, pool->conv[i]);
    }
    hb_device_free(pool->kernels, pool->device_ids);
    hb_host_free(pool->slot_kind);
    *pool = (struct hb_pool){0};
}

int32_t hb_pool_copy_layer(const struct hb_pool *pool, int32_t i, int32_t n, const int32_t *src,
                           const int32_t *dst, struct hb_error *err) {
    struct hb_k_slots args = {.n_pairs = n,
                              .defect = pool->defect,
                              .slot_bytes = pool->conv_slot_bytes,
                              .src = src,
                              .dst = dst,
                              .pool = pool->conv[i]};
    int32_t status = hb_device_check(pool->kernels, pool->kernels->slots(&args), err);
    if (status == HB_OK) {
        args.slot_bytes = pool->temporal_slot_bytes;
        args.pool = pool->temporal[i];
        status = hb_device_check(pool->kernels, pool->kernels->slots(&args), err);
    }
    return status;
}

/* pool->ids[0..n) := destinations, [n..2n) := sources; has_src 0: zero-fill. */
static int32_t run_pairs(const struct hb_pool *pool, int32_t n, int32_t has_src,
                         struct hb_error *err) {
    const struct hb_kernels *k = pool->kernels;
    int32_t *device = pool->device_ids;
    const uint64_t bytes = (uint64_t)n * (has_src ? 2 : 1) * sizeof(int32_t);
    if (n == 0 || pool->n_layers == 0) {
        return HB_OK;
    }
    int32_t status = hb_device_check(k, k->to_device(device, pool->ids, bytes), err);
    for (int32_t i = 0; i < pool->n_layers && status == HB_OK; i++) {
        status = hb_pool_copy_layer(pool, i, n, has_src ? device + n : NULL, device, err);
    }
    return status;
}

/* The table is open to raw writes through its region: an id that is not a slot must not become an
 * index. */
static int32_t check_free_list(const struct hb_pool *pool, int32_t n, struct hb_error *err) {
    for (int32_t i = 0; i < n; i++) {
        if (pool->free_list[i] < 1 || pool->free_list[i] > pool->n_slots) {
            return hb_fail_text(err, HB_ERR_STATE, "free_list[%d] is %d: not a slot", i,
                                pool->free_list[i]);
        }
    }
    return HB_OK;
}

static int32_t count_free(const struct hb_pool *pool) {
    const int32_t n = *pool->n_free;
    return n < 0 ? 0 : n > pool->n_slots ? pool->n_slots : n;
}

int32_t hb_pool_take(struct hb_pool *pool, int32_t n, int32_t kind, int32_t *ids,
                     struct hb_error *err) {
    const int32_t n_free = count_free(pool);
    if (n < 0) {
        return hb_fail(err, HB_RULE_TAKE_NEGATIVE, -1, n, 0);
    }
    if (n > n_free) {
        return hb_fail(err, HB_RULE_TAKE_EXHAUSTED, -1, n, n_free);
    }
    if (kind != HB_SLOT_LIVE && kind != HB_SLOT_TRACK) {
        return hb_fail(err, HB_RULE_TAKE_KIND, -1, kind, 0);
    }
    if (n > 0 && ids == NULL) {
        return hb_fail_text(err, HB_ERR_NULL, "no place for the ids of %d slots", n);
    }
    int32_t status = check_free_list(pool, n, err);
    if (status != HB_OK || n == 0) {
        return status;
    }
    memcpy(pool->ids, pool->free_list, (size_t)n * sizeof(int32_t));
    status = run_pairs(pool, n, 0, err);
    if (status != HB_OK) {
        return status;
    }
    for (int32_t i = 0; i < n; i++) {
        ids[i] = pool->ids[i];
        pool->slot_kind[ids[i]] = kind;
    }
    memmove(pool->free_list, pool->free_list + n, (size_t)(n_free - n) * sizeof(int32_t));
    memset(pool->free_list + (n_free - n), 0, (size_t)n * sizeof(int32_t));
    *pool->n_free = n_free - n;
    return HB_OK;
}

/* Rules 153, 154 over ids in order. */
static int32_t check_ids(const struct hb_pool *pool, int32_t n, const int32_t *ids,
                         struct hb_error *err) {
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] < 1 || ids[i] > pool->n_slots) {
            return hb_fail(err, HB_RULE_OP_SLOT_RANGE, i, ids[i], pool->n_slots);
        }
    }
    for (int32_t i = 0; i < n; i++) {
        if (pool->slot_kind[ids[i]] == HB_SLOT_FREE) {
            return hb_fail(err, HB_RULE_OP_SLOT_FREED, i, ids[i], 0);
        }
    }
    return HB_OK;
}

/* Rule 155. By rule 153 an array longer than NS names some slot twice within its first NS + 1
 * entries. */
static int32_t check_named_twice(const struct hb_pool *pool, int32_t n, const int32_t *ids,
                                 struct hb_error *err) {
    int32_t *seen = pool->ids;
    memset(seen, 0, (size_t)pool->n_slots * sizeof(int32_t));
    for (int32_t i = 0; i < n; i++) {
        if (seen[ids[i] - 1]++ != 0) {
            return hb_fail(err, HB_RULE_OP_SLOT_DUPLICATE, i, ids[i], 0);
        }
    }
    return HB_OK;
}

int32_t hb_pool_free(struct hb_pool *pool, int32_t n, const int32_t *ids, struct hb_error *err) {
    if (n <= 0) {
        return HB_OK;
    }
    if (ids == NULL) {
        return hb_fail_text(err, HB_ERR_NULL, "no ids given for %d slots", n);
    }
    int32_t status = check_ids(pool, n, ids, err);
    if (status == HB_OK) {
        status = check_named_twice(pool, n, ids, err);
    }
    const int32_t n_free = count_free(pool);
    if (status == HB_OK && n > pool->n_slots - n_free) {
        status = hb_fail_text(err, HB_ERR_STATE, "the free list has no room for %d slots", n);
    }
    if (status != HB_OK) {
        return status;
    }
    for (int32_t i = 0; i < n; i++) {
        pool->slot_kind[ids[i]] = HB_SLOT_FREE;
        pool->free_list[n_free + i] = ids[i];
    }
    *pool->n_free = n_free + n;
    return HB_OK;
}

int32_t hb_pool_copy(struct hb_pool *pool, int32_t src, int32_t dst, struct hb_error *err) {
    const int32_t pair[2] = {src, dst};
    const int32_t status = check_ids(pool, 2, pair, err);
    if (status != HB_OK) {
        return status;
    }
    if (src == dst) {
        return hb_fail(err, HB_RULE_COPY_ALIAS, -1, src, 0);
    }
    pool->ids[0] = dst;
    pool->ids[1] = src;
    return run_pairs(pool, 1, 1, err);
}

int32_t hb_pool_table_set(struct hb_pool *pool, int32_t req, int32_t slot, struct hb_error *err) {
    if (req < 0 || req >= pool->req_pool_size) {
        return hb_fail(err, HB_RULE_TABLE_RANGE, -1, req, (int64_t)pool->req_pool_size - 1);
    }
    pool->req_to_slot[req] = slot;
    return HB_OK;
}
