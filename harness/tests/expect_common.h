/* SPDX-License-Identifier: Apache-2.0
 * The configuration that the tests of the prediction share, and the comparison of an error record.
 */
#ifndef HB_HARNESS_TESTS_EXPECT_COMMON_H
#define HB_HARNESS_TESTS_EXPECT_COMMON_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "harness/expect.h"

enum { REQS = 6, CONTEXT = 32, N_KV = 64, NS = 8, CC = 4 };

static inline void fixture_config(struct hb_config *c, struct hb_caps *caps) {
    *c = (struct hb_config){.struct_size = sizeof *c,
                            .n_layers = 2,
                            .layer_kind = {HB_LAYER_MAMBA2, HB_LAYER_ATTENTION},
                            .n_heads = 2,
                            .head_dim = 2,
                            .state_size = 2,
                            .n_groups = 1,
                            .conv_width = 4,
                            .chunk_size = 4,
                            .page_size = CC,
                            .norm_group = 4,
                            .n_q_heads = 2,
                            .n_kv_heads = 1,
                            .attn_dim = 2,
                            .dt_lo = 0.0F,
                            .dt_hi = 1.0F,
                            .norm_eps = 1e-5F,
                            .n_slots = NS,
                            .req_pool_size = REQS,
                            .max_context = CONTEXT,
                            .n_kv = N_KV,
                            .max_batch = 6,
                            .max_tokens = 40};
    *caps = (struct hb_caps){.struct_size = sizeof *caps,
                             .modes = 0x31e,
                             .layer_kinds = 3,
                             .act_dtypes = 3,
                             .state_dtypes = 3,
                             .graphs = 1,
                             .ring = 1,
                             .ring_commit = 1,
                             .virtual_slots = 1,
                             .pool_pad = 1,
                             .track_by_layer = 1,
                             .window_layouts = 3};
}

/* The same slots behind virtual ids: id i stands for slot NS + 1 - i, except that free ids stand
 * for nothing. Every prediction about ids must come out the same. */
struct virtual_slots {
    int32_t kind[NS + 1], cursor[NS + 1], v2p[NS + 1];
};

static inline struct hb_slot_model virtual_model(const struct hb_slot_model *plain,
                                                 struct virtual_slots *s) {
    struct hb_slot_model m = *plain;
    for (int32_t id = 0; id <= NS; id++) {
        int32_t slot = id == 0 ? 0 : NS + 1 - id;
        s->kind[slot] = plain->kind[id];
        s->cursor[slot] = plain->write_pos[id];
        s->v2p[id] = id > 0 && plain->kind[id] == HB_SLOT_FREE ? -1 : slot;
    }
    m.kind = s->kind;
    m.write_pos = s->cursor;
    m.v2p = s->v2p;
    m.n_virtual = NS;
    return m;
}

static inline void same_error(const struct hb_error *a, const struct hb_error *b) {
    assert_int_equal(a->rule, b->rule);
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->row, b->row);
    assert_true(a->value == b->value && a->limit == b->limit);
    assert_string_equal(a->text, b->text);
}

static inline void check(const struct hb_error *e, int32_t rule, int32_t row, int64_t value,
                         int64_t limit) {
    if (e->rule != rule || e->row != row || e->value != value || e->limit != limit ||
        e->status != (rule == 0 ? HB_OK : hb_rule_status(rule))) {
        fail_msg("want rule %d row %d value %lld limit %lld, got rule %d row %d value %lld limit "
                 "%lld status %d (%s)",
                 rule, row, (long long)value, (long long)limit, e->rule, e->row,
                 (long long)e->value, (long long)e->limit, e->status, e->text);
    }
}

#endif
