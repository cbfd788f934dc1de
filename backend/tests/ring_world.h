/* SPDX-License-Identifier: Apache-2.0
 * What the tests of a ring that commits own share: configurations, and the cursors of a slot.
 * Included after cmocka.h. */
#ifndef HB_BACKEND_TESTS_RING_WORLD_H
#define HB_BACKEND_TESTS_RING_WORLD_H

#include "backend/tests/graph_world.h"

enum { D4 = 4 }; /* nodes of a row, at most */

static int32_t ring_length = 8;
static int32_t other_layouts; /* states [H, N, P], heads of the groups in turn */

static inline void ring_config(struct hb_config *c) {
    c->max_draft = D4;
    c->graph_draft = D4;
    c->ring_length = ring_length;
    c->ring_owner = HB_RING_COMMIT;
    c->pool_pad = 5;
    c->state_layout = c->head_map = c->conv_state_len = other_layouts;
}

static inline void virtual_config(struct hb_config *c) {
    ring_config(c);
    c->n_virtual = 2 * SLOTS;
}

static inline int32_t cursor(int32_t slot) {
    return table_at("write_pos", slot);
}

static inline int32_t base_of(int32_t slot) {
    return table_at("ring_base", slot);
}

static inline int32_t flush_of(int32_t slot) {
    return table_at("ring_flush", slot);
}

static inline void check_cursors(int32_t slot, int32_t base, int32_t w_pos, int32_t flush) {
    assert_int_equal(base_of(slot), base);
    assert_int_equal(cursor(slot), w_pos);
    assert_int_equal(flush_of(slot), flush);
}

#endif
