/* SPDX-License-Identifier: Apache-2.0
 * Slot life cycle (state-pool.md section 2). All checks come before the first write. */
#include "backend/pool.h"

#include <stddef.h>
#include <string.h>

#include "backend/adapter.h"
#include "backend/defects.h"
#include "backend/memory.h"

/* Host tables, in one allocation. */
static int32_t create_tables(struct hb_pool *pool, const struct hb_config *config,
                             struct hb_error *err) {
    const int64_t ns = config->n_slots;
    const int64_t nv = config->n_virtual;
    const int32_t commits = hb_config_ring_commits(config);
    const int64_t n_cursors = config->ring_length > 0 ? (commits ? 3 : 1) * (ns + 1) : 0;
    /* kinds NS+1, free list NS, scratch 2 NS; per id a generation and a scratch word; ids NV+1,
     * their free list NV */
    const int64_t words = 4 * ns + 2 + config->req_pool_size + 2 * ((int64_t)pool->n_ids + 1) +
                          (nv > 0 ? 2 * nv + 2 : 0) + n_cursors;
    void *tables;
    const int32_t status = hb_host_alloc(words, sizeof(int32_t), &tables, err);
    if (status != HB_OK) {
        return status;
    }
    pool->slot_kind = tables;
    pool->free_list = pool->slot_kind + ns + 1;
    pool->n_free = pool->free_list + ns;
    pool->req_to_slot = pool->n_free + 1;
    pool->ids = pool->req_to_slot + config->req_pool_size;
    pool->generation = pool->ids + 2 * ns;
    pool->seen = pool->generation + pool->n_ids + 1;
    int32_t *next = pool->seen + pool->n_ids + 1;
    if (nv > 0) {
        pool->v2p = next;
        pool->free_ids = pool->v2p + nv + 1;
        pool->n_free_ids = pool->free_ids + nv;
        next = pool->n_free_ids + 1;
    }
    if (n_cursors > 0) {
        pool->write_pos = next;
    }
    if (commits) {
        pool->ring_base = pool->write_pos + ns + 1;
        pool->ring_flush = pool->ring_base + ns + 1;
    }
    return HB_OK;
}

/* state-pool.md section 2: the free lists are 1.. in order, everything else is zero. */
static void clear_tables(struct hb_pool *pool) {
    pool->slot_kind[0] = HB_SLOT_RESERVED;
    for (int32_t i = 0; i < pool->n_slots; i++) {
        pool->free_list[i] = i + 1;
    }
    *pool->n_free = pool->n_slots;
    for (int32_t i = 0; pool->v2p != NULL && i < pool->n_ids; i++) {
        pool->free_ids[i] = i + 1;
        pool->v2p[i + 1] = -1;
    }
    if (pool->v2p != NULL) {
        *pool->n_free_ids = pool->n_ids;
    }
}

/* Pools of linear layer i, null where its kind has no such state; the last slot's pad is part of
 * them. */
static int32_t create_layer(struct hb_pool *pool, int32_t i, struct hb_error *err) {
    const struct hb_kernels *k = pool->kernels;
    const int64_t slots = (int64_t)pool->n_slots + 1;
    const uint64_t slot_bytes[2] = {pool->conv_slot_bytes, pool->temporal_slot_bytes};
    const uint64_t pad_bytes[2] = {pool->conv_pad_bytes, pool->temporal_pad_bytes};
    void **places[2] = {&pool->conv[i], &pool->temporal[i]};
    float **rings[3] = {&pool->ring_x[i], &pool->ring_b[i], &pool->ring_g[i]};
    int32_t status = HB_OK;
    for (int32_t j = 0; j < 2 && status == HB_OK; j++) {
        const int64_t bytes = hb_mul_saturate(slots, (int64_t)(slot_bytes[j] + pad_bytes[j]), 1);
        status = slot_bytes[j] > 0 ? hb_device_alloc(k, bytes, 1, places[j], err) : HB_OK;
    }
    for (int32_t j = 0; j < 3 && status == HB_OK && pool->ring_length > 0; j++) {
        const int64_t bytes = hb_mul_saturate(slots, (int64_t)pool->ring_bytes[j], 1);
        void *ptr = NULL;
        status = hb_device_alloc(k, bytes, 1, &ptr, err);
        *rings[j] = ptr;
    }
    return status;
}

int32_t hb_pool_init(struct hb_pool *pool, const struct hb_kernels *kernels,
                     const struct hb_config *config, const struct hb_dims *dims,
                     struct hb_error *err) {
    const uint64_t record = (uint64_t)config->ring_length * sizeof(float);
    *pool = (struct hb_pool){
        .kernels = kernels,
        .n_slots = config->n_slots,
        .req_pool_size = config->req_pool_size,
        .n_ids = config->n_virtual > 0 ? config->n_virtual : config->n_slots,
        .ring_length = config->ring_length,
        .defect = config->defect,
        .conv_slot_bytes = (uint64_t)dims->conv_slot_bytes,
        .temporal_slot_bytes = (uint64_t)dims->temporal_slot_bytes,
        .conv_pad_bytes = (uint64_t)config->pool_pad * (uint64_t)dims->act_bytes,
        .temporal_pad_bytes = (uint64_t)config->pool_pad * (uint64_t)dims->state_bytes,
        .ring_bytes = {(uint64_t)dims->d_inner * record,
                       (uint64_t)config->n_groups * (uint64_t)config->state_size * record,
                       (uint64_t)config->n_heads * record}};
    int32_t status = create_tables(pool, config, err);
    if (status != HB_OK) {
        return status;
    }
    clear_tables(pool);
    status = hb_device_alloc(kernels, (int64_t)config->n_slots * 2 * (int64_t)sizeof(int32_t), 0,
                             &pool->device_ids, err);
    for (int32_t l = 0; l < config->n_layers && status == HB_OK; l++) {
        if (config->layer_kind[l] != HB_LAYER_ATTENTION) {
            status = create_layer(pool, pool->n_layers++, err);
        }
    }
    return status;
}

void hb_pool_destroy(struct hb_pool *pool) {
    for (int32_t i = pool->n_layers - 1; i >= 0; i--) {
        hb_device_free(pool->kernels, pool->ring_g[i]);
        hb_device_free(pool->kernels, pool->ring_b[i]);
        hb_device_free(pool->kernels, pool->ring_x[i]);
        hb_device_free(pool->kernels, pool->temporal[i]);
        hb_device_free(pool->kernels, pool->conv[i]);
    }
    hb_device_free(pool->kernels, pool->device_ids);
    hb_host_free(pool->slot_kind);
    *pool = (struct hb_pool){0};
}

int32_t hb_pool_slot(const struct hb_pool *pool, int32_t id) {
    if (id < 0 || id > pool->n_ids) {
        return -1;
    }
    const int32_t slot = pool->v2p != NULL && id > 0 ? pool->v2p[id] : id;
    return id > 0 && (slot < 1 || slot > pool->n_slots) ? -1 : slot;
}

int32_t hb_pool_is_free(const struct hb_pool *pool, int32_t id) {
    return pool->v2p != NULL ? hb_pool_slot(pool, id) < 0 : pool->slot_kind[id] == HB_SLOT_FREE;
}

void hb_pool_advance(struct hb_pool *pool, int32_t n_rows, const int32_t *slots, const int32_t *from,
                     const int32_t *force) {
    for (int32_t r = 0; r < n_rows && pool->write_pos != NULL; r++) {
        if (slots[r] < 1) {
            continue;
        }
        const int32_t is_folded = force[r] != 0 || from[r] >= pool->ring_length - 1;
        pool->write_pos[slots[r]] = is_folded ? 0 : from[r] + 1;
    }
}

void hb_pool_end_verify(struct hb_pool *pool, int32_t n_rows, const int32_t *slots,
                        const int32_t *from, const int32_t *fold) {
    for (int32_t r = 0; r < n_rows; r++) {
        if (slots[r] >= 1 && fold[r] != 0) {
            int32_t *base = &pool->ring_base[slots[r]];
            *base = (*base + from[r]) & (pool->ring_length - 1);
            pool->write_pos[slots[r]] = pool->ring_flush[slots[r]] = 0;
        }
    }
}

void hb_pool_accept(struct hb_pool *pool, int32_t slot, int32_t write_pos, int32_t max_draft) {
    if (slot >= 1) {
        pool->write_pos[slot] = write_pos;
        /* the next verify must fit before its fold, and the one after it if there is none */
        const int32_t n_verifies = HB_DEFECT(pool->defect, RING_FOLD_LATE) ? 1 : 2;
        pool->ring_flush[slot] = write_pos + n_verifies * max_draft > pool->ring_length;
    }
}

/* Cursors of a slot that starts with a whole state. */
static void clear_cursors(struct hb_pool *pool, int32_t slot) {
    if (pool->write_pos != NULL) {
        pool->write_pos[slot] = 0;
    }
    if (pool->ring_base != NULL) {
        pool->ring_base[slot] = pool->ring_flush[slot] = 0;
    }
}

/* Copies src -> dst (src null: zero dst) of one array of entries, if the layer has it. */
static int32_t copy_entries(const struct hb_pool *pool, void *entries, uint64_t slot_bytes,
                            uint64_t pad_bytes, int32_t n, const int32_t *src, const int32_t *dst,
                            const int32_t *mask, struct hb_error *err) {
    const struct hb_k_slots args = {.n_pairs = n,
                                    .defect = pool->defect,
                                    .slot_bytes = slot_bytes,
                                    .pad_bytes = pad_bytes,
                                    .src = src,
                                    .dst = dst,
                                    .pool = entries,
                                    .mask = mask};
    if (entries == NULL) {
        return HB_OK;
    }
    return hb_device_check(pool->kernels, pool->kernels->slots(&args), err);
}

int32_t hb_pool_copy_layer(const struct hb_pool *pool, int32_t i, int32_t n, const int32_t *src,
                           const int32_t *dst, const int32_t *mask, struct hb_error *err) {
    const int32_t status = copy_entries(pool, pool->conv[i], pool->conv_slot_bytes,
                                        pool->conv_pad_bytes, n, src, dst, mask, err);
    if (status != HB_OK) {
        return status;
    }
    return copy_entries(pool, pool->temporal[i], pool->temporal_slot_bytes,
                        pool->temporal_pad_bytes, n, src, dst, mask, err);
}

static int32_t copy_ring(const struct hb_pool *pool, int32_t i, int32_t n, const int32_t *src,
                         const int32_t *dst, struct hb_error *err) {
    float *const rings[3] = {pool->ring_x[i], pool->ring_b[i], pool->ring_g[i]};
    int32_t status = HB_OK;
    for (int32_t j = 0; j < 3 && status == HB_OK && pool->ring_length > 0; j++) {
        status = copy_entries(pool, rings[j], pool->ring_bytes[j], 0, n, src, dst, NULL, err);
    }
    return status;
}

enum pairs_kind { PAIRS_ZERO, PAIRS_COPY, PAIRS_MOVE };

/* pool->ids[0..n) := destinations, [n..2n) := sources unless zeroed; a move takes the ring along.
 */
static int32_t run_pairs(const struct hb_pool *pool, int32_t n, enum pairs_kind kind,
                         struct hb_error *err) {
    const struct hb_kernels *k = pool->kernels;
    int32_t *device = pool->device_ids;
    const int32_t *src = kind == PAIRS_ZERO ? NULL : device + n;
    const uint64_t bytes = (uint64_t)n * (src != NULL ? 2 : 1) * sizeof(int32_t);
    if (n == 0 || pool->n_layers == 0) {
        return HB_OK;
    }
    int32_t status = hb_device_check(k, k->to_device(device, pool->ids, bytes), err);
    for (int32_t i = 0; i < pool->n_layers && status == HB_OK; i++) {
        status = hb_pool_copy_layer(pool, i, n, src, device, NULL, err);
        if (status == HB_OK && kind == PAIRS_MOVE) {
            status = copy_ring(pool, i, n, src, device, err);
        }
    }
    return status;
}

static int32_t count_in(int32_t n, int32_t limit) {
    return n < 0 ? 0 : n > limit ? limit : n;
}

static int32_t count_free(const struct hb_pool *pool) {
    return count_in(*pool->n_free, pool->n_slots);
}

static int32_t count_free_ids(const struct hb_pool *pool) {
    return count_in(*pool->n_free_ids, pool->n_ids);
}

/* The tables are open to raw writes through their regions: an id that is not one must not become
 * an index. */
static int32_t check_list(const char *name, const int32_t *list, int32_t n, int32_t limit,
                          struct hb_error *err) {
    for (int32_t i = 0; i < n; i++) {
        if (list[i] < 1 || list[i] > limit) {
            return hb_fail_text(err, HB_ERR_STATE, "%s[%d] is %d: outside 1..%d", name, i, list[i],
                                limit);
        }
    }
    return HB_OK;
}

static int32_t check_lists(const struct hb_pool *pool, int32_t n, struct hb_error *err) {
    const int32_t status = check_list("free_list", pool->free_list, n, pool->n_slots, err);
    if (status != HB_OK || pool->v2p == NULL) {
        return status;
    }
    if (n > count_free_ids(pool)) {
        return hb_fail_text(err, HB_ERR_STATE, "%d slots are wanted, but %d ids are free", n,
                            count_free_ids(pool));
    }
    return check_list("free_ids", pool->free_ids, n, pool->n_ids, err);
}

/* What the id held is gone: a verify that read it can no longer be committed (rule 115). */
static void new_generation(struct hb_pool *pool, int32_t id) {
    pool->generation[id] = (int32_t)((uint32_t)pool->generation[id] + 1U);
}

/* Takes the first n entries off a list; what is left behind the free ones reads 0. */
static void pop_list(int32_t *list, int32_t *count, int32_t n_free, int32_t n) {
    memmove(list, list + n, (size_t)(n_free - n) * sizeof(int32_t));
    memset(list + (n_free - n), 0, (size_t)n * sizeof(int32_t));
    *count = n_free - n;
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
    int32_t status = check_lists(pool, n, err);
    if (status != HB_OK || n == 0) {
        return status;
    }
    memcpy(pool->ids, pool->free_list, (size_t)n * sizeof(int32_t));
    status = run_pairs(pool, n, PAIRS_ZERO, err);
    if (status != HB_OK) {
        return status;
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t slot = pool->ids[i];
        ids[i] = pool->v2p != NULL ? pool->free_ids[i] : slot;
        pool->slot_kind[slot] = kind;
        new_generation(pool, ids[i]);
        if (pool->v2p != NULL) {
            pool->v2p[ids[i]] = slot;
        }
        clear_cursors(pool, slot);
    }
    pop_list(pool->free_list, pool->n_free, n_free, n);
    if (pool->v2p != NULL) {
        pop_list(pool->free_ids, pool->n_free_ids, count_free_ids(pool), n);
    }
    return HB_OK;
}

/* Rules 153, 154 over ids in order. */
static int32_t check_ids(const struct hb_pool *pool, int32_t n, const int32_t *ids,
                         struct hb_error *err) {
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] < 1 || ids[i] > pool->n_ids) {
            return hb_fail(err, HB_RULE_OP_SLOT_RANGE, i, ids[i], pool->n_ids);
        }
    }
    for (int32_t i = 0; i < n; i++) {
        if (hb_pool_is_free(pool, ids[i])) {
            return hb_fail(err, HB_RULE_OP_SLOT_FREED, i, ids[i], 0);
        }
    }
    return HB_OK;
}

/* Rule 155. By rule 153 an array longer than NI names some id twice within its first NI + 1
 * entries. */
static int32_t check_named_twice(const struct hb_pool *pool, int32_t n, const int32_t *ids,
                                 struct hb_error *err) {
    int32_t *seen = pool->seen;
    memset(seen, 0, ((size_t)pool->n_ids + 1) * sizeof(int32_t));
    for (int32_t i = 0; i < n; i++) {
        if (seen[ids[i]]++ != 0) {
            return hb_fail(err, HB_RULE_OP_SLOT_DUPLICATE, i, ids[i], 0);
        }
    }
    return HB_OK;
}

/* Room for n more free slots and ids; only raw writes can take it away. */
static int32_t check_room(const struct hb_pool *pool, int32_t n, struct hb_error *err) {
    if (n > pool->n_slots - count_free(pool)) {
        return hb_fail_text(err, HB_ERR_STATE, "the free list has no room for %d slots", n);
    }
    if (pool->v2p != NULL && n > pool->n_ids - count_free_ids(pool)) {
        return hb_fail_text(err, HB_ERR_STATE, "the list of free ids has no room for %d", n);
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
    if (status == HB_OK) {
        status = check_room(pool, n, err);
    }
    if (status != HB_OK) {
        return status;
    }
    const int32_t n_free = count_free(pool);
    for (int32_t i = 0; i < n; i++) {
        const int32_t slot = hb_pool_slot(pool, ids[i]);
        pool->slot_kind[slot] = HB_SLOT_FREE;
        pool->free_list[n_free + i] = slot;
    }
    *pool->n_free = n_free + n;
    if (pool->v2p != NULL) {
        const int32_t n_ids = count_free_ids(pool);
        for (int32_t i = 0; i < n; i++) {
            pool->v2p[ids[i]] = -1;
            pool->free_ids[n_ids + i] = ids[i];
        }
        *pool->n_free_ids = n_ids + n;
    }
    return HB_OK;
}

int32_t hb_pool_copy(struct hb_pool *pool, int32_t src, int32_t dst, struct hb_error *err) {
    const int32_t pair[2] = {src, dst};
    int32_t status = check_ids(pool, 2, pair, err);
    if (status != HB_OK) {
        return status;
    }
    if (src == dst) {
        return hb_fail(err, HB_RULE_COPY_ALIAS, -1, src, 0);
    }
    pool->ids[0] = hb_pool_slot(pool, dst);
    pool->ids[1] = hb_pool_slot(pool, src);
    if (pool->write_pos != NULL && pool->write_pos[pool->ids[1]] != 0) {
        return hb_fail(err, HB_RULE_COPY_RING, -1, pool->write_pos[pool->ids[1]], 0);
    }
    status = run_pairs(pool, 1, PAIRS_COPY, err);
    if (status == HB_OK) {
        clear_cursors(pool, pool->ids[0]);
        new_generation(pool, dst);
    }
    return status;
}

int32_t hb_pool_publish(struct hb_pool *pool, int32_t id, struct hb_error *err) {
    const int32_t status = check_ids(pool, 1, &id, err);
    if (status != HB_OK) {
        return status;
    }
    int32_t *kind = &pool->slot_kind[hb_pool_slot(pool, id)];
    if (*kind != HB_SLOT_TRACK) {
        return hb_fail(err, HB_RULE_PUBLISH_KIND, -1, id, 0);
    }
    *kind = HB_SLOT_TREE;
    return HB_OK;
}

int32_t hb_pool_move(struct hb_pool *pool, int32_t id, struct hb_error *err) {
    if (pool->v2p == NULL) {
        return hb_fail(err, HB_RULE_MOVE_STATIC, -1, id, 0);
    }
    int32_t status = check_ids(pool, 1, &id, err);
    if (status != HB_OK) {
        return status;
    }
    const int32_t n_free = count_free(pool);
    if (n_free == 0) {
        return hb_fail(err, HB_RULE_MOVE_EXHAUSTED, -1, id, 0);
    }
    status = check_list("free_list", pool->free_list, 1, pool->n_slots, err);
    if (status != HB_OK) {
        return status;
    }
    const int32_t from = pool->v2p[id];
    const int32_t to = pool->free_list[0];
    pool->ids[0] = to;
    pool->ids[1] = from;
    status = run_pairs(pool, 1, PAIRS_MOVE, err);
    if (status != HB_OK) {
        return status;
    }
    if (pool->write_pos != NULL) {
        pool->write_pos[to] = pool->write_pos[from];
    }
    if (pool->ring_base != NULL) {
        pool->ring_base[to] = pool->ring_base[from];
        pool->ring_flush[to] = pool->ring_flush[from];
    }
    pool->slot_kind[to] = pool->slot_kind[from];
    pool->slot_kind[from] = HB_SLOT_FREE;
    pool->v2p[id] = to;
    memmove(pool->free_list, pool->free_list + 1, (size_t)(n_free - 1) * sizeof(int32_t));
    pool->free_list[n_free - 1] = from;
    return HB_OK;
}

int32_t hb_pool_table_set(struct hb_pool *pool, int32_t req, int32_t slot, struct hb_error *err) {
    if (req < 0 || req >= pool->req_pool_size) {
        return hb_fail(err, HB_RULE_TABLE_RANGE, -1, req, (int64_t)pool->req_pool_size - 1);
    }
    pool->req_to_slot[req] = slot;
    return HB_OK;
}
