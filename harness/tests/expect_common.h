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
                             .state_dtypes = 3};
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
