/* SPDX-License-Identifier: Apache-2.0
 * Predicted status of the slot operations and of the mapping table (state-pool.md sections 2 and
 * 5). Rules are tried in ascending number, then positions ascending. */
#include "harness/expect_internal.h"

enum { ROW_NONE = -1 };

void hb_expect_take(const struct hb_slot_model *slots, int32_t n, int32_t kind,
                    struct hb_error *e) {
    hb_error_clear(e);
    if (n < 0) {
        (void)hb_fail(e, HB_RULE_TAKE_NEGATIVE, ROW_NONE, n, 0);
    } else if (n > slots->n_free) {
        (void)hb_fail(e, HB_RULE_TAKE_EXHAUSTED, ROW_NONE, n, slots->n_free);
    } else if (kind != HB_SLOT_LIVE && kind != HB_SLOT_TRACK) {
        (void)hb_fail(e, HB_RULE_TAKE_KIND, ROW_NONE, kind, 0);
    }
}

/* OP_SLOT_RANGE for all ids, then OP_SLOT_FREED for all ids. */
static int32_t check_ids(const struct hb_slot_model *slots, int32_t n, const int32_t *ids,
                         struct hb_error *e) {
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] < 1 || ids[i] > id_count(slots)) {
            return hb_fail(e, HB_RULE_OP_SLOT_RANGE, i, ids[i], id_count(slots));
        }
    }
    for (int32_t i = 0; i < n; i++) {
        if (kind_of(slots, ids[i]) == HB_SLOT_FREE) {
            return hb_fail(e, HB_RULE_OP_SLOT_FREED, i, ids[i], 0);
        }
    }
    return HB_OK;
}

void hb_expect_free(const struct hb_slot_model *slots, int32_t n, const int32_t *ids,
                    struct hb_error *e) {
    hb_error_clear(e);
    if (check_ids(slots, n, ids, e) != HB_OK) {
        return;
    }
    for (int32_t later = 1; later < n; later++) {
        for (int32_t i = 0; i < later; i++) {
            if (ids[i] == ids[later]) {
                (void)hb_fail(e, HB_RULE_OP_SLOT_DUPLICATE, later, ids[later], 0);
                return;
            }
        }
    }
}

/* A copy takes whole states, so the source's ring must be folded. */
void hb_expect_copy(const struct hb_slot_model *slots, int32_t src, int32_t dst,
                    struct hb_error *e) {
    const int32_t ids[2] = {src, dst};
    hb_error_clear(e);
    if (check_ids(slots, 2, ids, e) != HB_OK) {
        return;
    }
    if (src == dst) {
        (void)hb_fail(e, HB_RULE_COPY_ALIAS, ROW_NONE, src, 0);
    } else if (cursor_of(slots, src) != 0) {
        (void)hb_fail(e, HB_RULE_COPY_RING, ROW_NONE, cursor_of(slots, src), 0);
    }
}

void hb_expect_publish(const struct hb_slot_model *slots, int32_t id, struct hb_error *e) {
    hb_error_clear(e);
    if (check_ids(slots, 1, &id, e) == HB_OK && kind_of(slots, id) != HB_SLOT_TRACK) {
        (void)hb_fail(e, HB_RULE_PUBLISH_KIND, ROW_NONE, id, 0);
    }
}

void hb_expect_move(const struct hb_slot_model *slots, int32_t id, struct hb_error *e) {
    hb_error_clear(e);
    if (slots->n_virtual <= 0) {
        (void)hb_fail(e, HB_RULE_MOVE_STATIC, ROW_NONE, id, 0);
    } else if (check_ids(slots, 1, &id, e) == HB_OK && slots->n_free == 0) {
        (void)hb_fail(e, HB_RULE_MOVE_EXHAUSTED, ROW_NONE, id, 0);
    }
}

void hb_expect_table(const struct hb_slot_model *slots, int32_t req, struct hb_error *e) {
    hb_error_clear(e);
    if (req < 0 || req >= slots->req_pool_size) {
        (void)hb_fail(e, HB_RULE_TABLE_RANGE, ROW_NONE, req, (int64_t)slots->req_pool_size - 1);
    }
}
