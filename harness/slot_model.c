/* SPDX-License-Identifier: Apache-2.0
 * The harness's own model of state slots and of the request-to-slot table (state-pool.md section
 * 2). */
#include "harness/expect.h"

#include <stdlib.h>
#include <string.h>

int32_t hb_slot_model_init(struct hb_slot_model *m, int32_t n_slots, int32_t req_pool_size) {
    struct hb_slot_model fresh = {
        .n_slots = n_slots, .n_free = n_slots, .req_pool_size = req_pool_size};
    if (n_slots < 0 || req_pool_size < 0) {
        return HB_ERR_SHAPE;
    }
    fresh.kind = calloc((size_t)n_slots + 1, sizeof *fresh.kind);
    fresh.free_list = calloc((size_t)n_slots + 1, sizeof *fresh.free_list);
    fresh.table = calloc((size_t)req_pool_size + 1, sizeof *fresh.table);
    if (fresh.kind == NULL || fresh.free_list == NULL || fresh.table == NULL) {
        hb_slot_model_destroy(&fresh);
        return HB_ERR_MEMORY;
    }
    fresh.kind[0] = HB_SLOT_RESERVED;
    for (int32_t i = 0; i < n_slots; i++) {
        fresh.kind[i + 1] = HB_SLOT_FREE;
        fresh.free_list[i] = i + 1;
    }
    *m = fresh;
    return HB_OK;
}

void hb_slot_model_destroy(struct hb_slot_model *m) {
    free(m->kind);
    free(m->free_list);
    free(m->table);
    memset(m, 0, sizeof *m);
}

int32_t hb_slot_model_copy(struct hb_slot_model *dst, const struct hb_slot_model *src) {
    if (dst == src) {
        return HB_OK;
    }
    if (dst->kind == NULL || dst->n_slots != src->n_slots ||
        dst->req_pool_size != src->req_pool_size) {
        struct hb_slot_model fresh;
        int32_t status = hb_slot_model_init(&fresh, src->n_slots, src->req_pool_size);
        if (status != HB_OK) {
            return status;
        }
        hb_slot_model_destroy(dst);
        *dst = fresh;
    }
    memcpy(dst->kind, src->kind, ((size_t)src->n_slots + 1) * sizeof *src->kind);
    memcpy(dst->free_list, src->free_list, (size_t)src->n_slots * sizeof *src->free_list);
    memcpy(dst->table, src->table, (size_t)src->req_pool_size * sizeof *src->table);
    dst->n_free = src->n_free;
    return HB_OK;
}

void hb_slot_model_take(struct hb_slot_model *m, int32_t n, int32_t kind, int32_t *ids) {
    int32_t left = m->n_free - n;
    for (int32_t i = 0; i < n; i++) {
        int32_t id = m->free_list[i];
        m->kind[id] = kind;
        if (ids != NULL) {
            ids[i] = id;
        }
    }
    memmove(m->free_list, m->free_list + n, (size_t)left * sizeof *m->free_list);
    memset(m->free_list + left, 0, (size_t)n * sizeof *m->free_list);
    m->n_free = left;
}

void hb_slot_model_release(struct hb_slot_model *m, int32_t n, const int32_t *ids) {
    for (int32_t i = 0; i < n && m->n_free < m->n_slots; i++) {
        m->kind[ids[i]] = HB_SLOT_FREE;
        m->free_list[m->n_free++] = ids[i];
    }
}
