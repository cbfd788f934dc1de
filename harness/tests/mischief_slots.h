/* SPDX-License-Identifier: Apache-2.0
 * Mischief in slots: taking, freeing, copying, publishing, moving; part of mischief.h. */
#ifndef HB_HARNESS_TESTS_MISCHIEF_SLOTS_H
#define HB_HARNESS_TESTS_MISCHIEF_SLOTS_H

#include "harness/tests/mischief_state.h"

static inline int32_t mischief_slot_take(void *handle, int32_t n, int32_t kind, int32_t *ids,
                                         struct hb_error *err) {
    struct mischief_handle *m = handle;
    int32_t status = m->inner->slot_take(m->handle, n, kind, ids, err);
    if (status != HB_OK || n < 1) {
        return status;
    }
    m->n_taken++;
    if (m->number == MISCHIEF_TAKE || (m->number == 20 && m->variant == 0)) {
        ids[0] = 1;
    } else if (m->number == MISCHIEF_DIRTY || (m->number == 20 && m->variant == 1)) {
        mischief_flip(m, "temporal", ids[0], 1, 1);
    }
    return status;
}

static inline int32_t mischief_slot_free(void *handle, int32_t n, const int32_t *ids,
                                         struct hb_error *err) {
    const struct mischief_handle *m = handle;
    int32_t status = m->inner->slot_free(m->handle, n, ids, err);
    if (status == HB_OK && n > 0 && m->number == MISCHIEF_FREE) {
        mischief_flip(m, "conv", ids[0], 1, 1);
    }
    if (status == HB_ERR_FREED && m->number == 20) { /* a double free is no error */
        hb_error_clear(err);
        return HB_OK;
    }
    return status;
}

static inline int32_t mischief_slot_copy(void *handle, int32_t src, int32_t dst,
                                         struct hb_error *err) {
    const struct mischief_handle *m = handle;
    int32_t status = m->inner->slot_copy(m->handle, src, dst, err);
    if (status == HB_OK && (m->number == MISCHIEF_COPY || (m->number == 21 && m->variant == 0))) {
        mischief_flip(m, "conv", dst, 2, 1);
    }
    if (status == HB_ERR_STATE && m->number == 21) { /* records that are not folded are lost */
        hb_error_clear(err);
        return HB_OK;
    }
    return status;
}

static inline int32_t mischief_slot_publish(void *handle, int32_t id, struct hb_error *err) {
    const struct mischief_handle *m = handle;
    return m->number == MISCHIEF_PUBLISH ? HB_OK : m->inner->slot_publish(m->handle, id, err);
}

static inline int32_t mischief_slot_move(void *handle, int32_t id, struct hb_error *err) {
    const struct mischief_handle *m = handle;
    if (m->number == MISCHIEF_MOVE_ID) {
        return HB_OK;
    }
    const int32_t status = m->inner->slot_move(m->handle, id, err);
    if (status == HB_OK && m->number == MISCHIEF_MOVE) {
        const int32_t to =
            mischief_add_int(m->inner, m->handle, "v2p", (uint64_t)(id > 0 ? id : 0), 0);
        mischief_flip(m, "conv", to, 0, 1);
    }
    return status;
}

static inline int32_t mischief_table_set(void *handle, int32_t req, int32_t slot,
                                         struct hb_error *err) {
    const struct mischief_handle *m = handle;
    return m->inner->table_set(m->handle, req, slot, err);
}

#endif
