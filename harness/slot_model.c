/* SPDX-License-Identifier: Apache-2.0
 * The harness's own model of state slots, virtual ids, replay cursors and of the request-to-slot
 * table (state-pool.md sections 2 and 5, speculative.md section 7). */
#include "harness/expect.h"

#include <stdlib.h>
#include <string.h>

static int32_t id_count(const struct hb_slot_model *m) {
    return m->n_virtual > 0 ? m->n_virtual : m->n_slots;
}

/* Arrays of n + 1 entries; the last one is spare where entries are counted from 0. */
static void *entries(int32_t n, size_t size) {
    return calloc((size_t)n + 1, size);
}

/* *m holds the sizes and null pointers; HB_ERR_MEMORY leaves what was got for the caller. */
static int32_t allocate(struct hb_slot_model *m) {
    m->kind = entries(m->n_slots, sizeof *m->kind);
    m->free_list = entries(m->n_slots, sizeof *m->free_list);
    m->write_pos = entries(m->n_slots, sizeof *m->write_pos);
    m->ring_base = entries(m->n_slots, sizeof *m->ring_base);
    m->ring_flush = entries(m->n_slots, sizeof *m->ring_flush);
    m->generation = entries(id_count(m), sizeof *m->generation);
    m->table = entries(m->req_pool_size, sizeof *m->table);
    int whole = m->kind != NULL && m->free_list != NULL && m->write_pos != NULL &&
                m->ring_base != NULL && m->ring_flush != NULL && m->generation != NULL &&
                m->table != NULL;
    if (m->n_virtual > 0) {
        m->v2p = entries(m->n_virtual, sizeof *m->v2p);
        m->free_ids = entries(m->n_virtual, sizeof *m->free_ids);
        whole = whole && m->v2p != NULL && m->free_ids != NULL;
    }
    return whole ? HB_OK : HB_ERR_MEMORY;
}

int32_t hb_slot_model_init(struct hb_slot_model *m, const struct hb_config *config) {
    struct hb_slot_model fresh = {.n_slots = config->n_slots,
                                  .n_free = config->n_slots,
                                  .n_virtual = config->n_virtual,
                                  .n_free_ids = config->n_virtual,
                                  .ring_length = config->ring_length,
                                  .commits = hb_ring_commits(config),
                                  .max_draft = config->max_draft,
                                  .req_pool_size = config->req_pool_size};
    if (fresh.n_slots < 0 || fresh.n_virtual < 0 || fresh.req_pool_size < 0) {
        return HB_ERR_SHAPE;
    }
    if (allocate(&fresh) != HB_OK) {
        hb_slot_model_destroy(&fresh);
        return HB_ERR_MEMORY;
    }
    fresh.kind[0] = HB_SLOT_RESERVED;
    for (int32_t i = 0; i < fresh.n_slots; i++) {
        fresh.kind[i + 1] = HB_SLOT_FREE;
        fresh.free_list[i] = i + 1;
    }
    for (int32_t i = 0; i < fresh.n_virtual; i++) {
        fresh.v2p[i + 1] = -1;
        fresh.free_ids[i] = i + 1;
    }
    *m = fresh;
    return HB_OK;
}

void hb_slot_model_destroy(struct hb_slot_model *m) {
    free(m->kind);
    free(m->free_list);
    free(m->write_pos);
    free(m->ring_base);
    free(m->ring_flush);
    free(m->generation);
    free(m->v2p);
    free(m->free_ids);
    free(m->table);
    memset(m, 0, sizeof *m);
}

static void copy_entries(int32_t *dst, const int32_t *src, int32_t n) {
    if (dst != NULL && src != NULL) {
        memcpy(dst, src, ((size_t)n + 1) * sizeof *src);
    }
}

int32_t hb_slot_model_copy(struct hb_slot_model *dst, const struct hb_slot_model *src) {
    if (dst == src) {
        return HB_OK;
    }
    if (dst->kind == NULL || dst->n_slots != src->n_slots || dst->n_virtual != src->n_virtual ||
        dst->req_pool_size != src->req_pool_size) {
        struct hb_slot_model fresh = {.n_slots = src->n_slots,
                                      .n_virtual = src->n_virtual,
                                      .req_pool_size = src->req_pool_size};
        if (allocate(&fresh) != HB_OK) {
            hb_slot_model_destroy(&fresh);
            return HB_ERR_MEMORY;
        }
        hb_slot_model_destroy(dst);
        *dst = fresh;
    }
    copy_entries(dst->kind, src->kind, src->n_slots);
    copy_entries(dst->free_list, src->free_list, src->n_slots);
    copy_entries(dst->write_pos, src->write_pos, src->n_slots);
    copy_entries(dst->ring_base, src->ring_base, src->n_slots);
    copy_entries(dst->ring_flush, src->ring_flush, src->n_slots);
    copy_entries(dst->v2p, src->v2p, src->n_virtual);
    copy_entries(dst->free_ids, src->free_ids, src->n_virtual);
    copy_entries(dst->table, src->table, src->req_pool_size);
    memcpy(dst->generation, src->generation, ((size_t)id_count(src) + 1) * sizeof *src->generation);
    dst->n_free = src->n_free;
    dst->n_free_ids = src->n_free_ids;
    dst->ring_length = src->ring_length;
    dst->commits = src->commits;
    dst->max_draft = src->max_draft;
    return HB_OK;
}

int32_t hb_slot_model_slot(const struct hb_slot_model *m, int32_t id) {
    if (id < 0 || id > id_count(m)) {
        return -1;
    }
    return m->n_virtual > 0 ? m->v2p[id] : id;
}

/* --- the replay ring (backend/README.md "Replay ring") ------------------------------------------ */

int hb_ring_commits(const struct hb_config *config) {
    return config->ring_length > 0 && config->ring_owner == HB_RING_COMMIT;
}

int32_t hb_ring_mode(const struct hb_config *config) {
    return hb_ring_commits(config) ? HB_MODE_TARGET_VERIFY : HB_MODE_DECODE;
}

int hb_ring_has_mode(const struct hb_config *config, int32_t mode) {
    return config->ring_length > 0 && mode == hb_ring_mode(config);
}

/* The slot holds a whole state: no record is left. */
static void set_folded(struct hb_slot_model *m, int32_t slot) {
    m->write_pos[slot] = 0;
    m->ring_base[slot] = 0;
    m->ring_flush[slot] = 0;
}

void hb_slot_model_copied(struct hb_slot_model *m, int32_t id) {
    set_folded(m, hb_slot_model_slot(m, id));
    m->generation[id]++;
}

void hb_slot_model_ring_verified(struct hb_slot_model *m, int32_t slot) {
    if (slot > 0 && m->ring_flush[slot] != 0) {
        m->ring_base[slot] = (m->ring_base[slot] + m->write_pos[slot]) % m->ring_length;
        m->write_pos[slot] = 0;
        m->ring_flush[slot] = 0;
    }
}

/* The nodes of a verify lie behind the records, up to max_draft of them: room for another verify
 * is made as soon as the next commit might leave too little. */
void hb_slot_model_ring_commit(struct hb_slot_model *m, int32_t slot, int32_t left, int32_t n) {
    if (slot > 0) {
        m->write_pos[slot] = left + n;
        m->ring_flush[slot] = left + n + 2 * m->max_draft > m->ring_length;
    }
}

/* Drops the first n of *count entries; what becomes vacant is 0. */
static void drop_first(int32_t *list, int32_t *count, int32_t n) {
    int32_t left = *count - n;
    memmove(list, list + n, (size_t)left * sizeof *list);
    memset(list + left, 0, (size_t)n * sizeof *list);
    *count = left;
}

void hb_slot_model_take(struct hb_slot_model *m, int32_t n, int32_t kind, int32_t *ids) {
    for (int32_t i = 0; i < n; i++) {
        int32_t slot = m->free_list[i];
        int32_t id = m->n_virtual > 0 ? m->free_ids[i] : slot;
        m->kind[slot] = kind;
        set_folded(m, slot);
        m->generation[id]++;
        if (m->n_virtual > 0) {
            m->v2p[id] = slot;
        }
        if (ids != NULL) {
            ids[i] = id;
        }
    }
    drop_first(m->free_list, &m->n_free, n);
    if (m->n_virtual > 0) {
        drop_first(m->free_ids, &m->n_free_ids, n);
    }
}

static void release_slot(struct hb_slot_model *m, int32_t slot) {
    m->kind[slot] = HB_SLOT_FREE;
    m->free_list[m->n_free++] = slot;
}

void hb_slot_model_release(struct hb_slot_model *m, int32_t n, const int32_t *ids) {
    for (int32_t i = 0; i < n && m->n_free < m->n_slots; i++) {
        release_slot(m, hb_slot_model_slot(m, ids[i]));
        if (m->n_virtual > 0) {
            m->v2p[ids[i]] = -1;
            m->free_ids[m->n_free_ids++] = ids[i];
        }
    }
}

void hb_slot_model_move(struct hb_slot_model *m, int32_t id) {
    int32_t from = m->v2p[id];
    int32_t to = m->free_list[0];
    m->kind[to] = m->kind[from];
    m->write_pos[to] = m->write_pos[from];
    m->ring_base[to] = m->ring_base[from];
    m->ring_flush[to] = m->ring_flush[from];
    m->v2p[id] = to;
    drop_first(m->free_list, &m->n_free, 1);
    release_slot(m, from);
}
