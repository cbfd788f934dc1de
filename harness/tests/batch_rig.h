/* SPDX-License-Identifier: Apache-2.0
 * A case of one step and the batch derived from it. Include after cmocka.h. */
#ifndef HB_HARNESS_TESTS_BATCH_RIG_H
#define HB_HARNESS_TESTS_BATCH_RIG_H

#include <string.h>

#include "harness/materialize.h"
#include "harness/tests/hand_case.h"

static const int32_t prefix_slots[] = {40, 41, 42, 43, 44, 45, 46, 47,
                                       48, 49, 50, 51, 52, 53, 54, 55};

struct rig {
    struct hb_case c;
    struct hb_config config;
    struct hb_kv_alloc kv;
    struct hb_plan plan;
    struct hb_owned_batch batch;
};

/* Rows with the given prefixes; tracked rows go to slots 11, 12, ... */
static inline void rig_derive(struct rig *g, int32_t n_rows, const int64_t *prefix) {
    const struct hb_case_step *s = &g->c.step[g->c.n_steps - 1];
    assert_int_equal(s->n_rows, n_rows);
    hb_case_backend_config(&g->c, &g->config);
    g->config.max_context = 128;
    g->config.n_kv = 400;
    hb_kv_alloc_init(&g->kv, &g->c, g->config.n_kv);
    for (int32_t r = 0; r < n_rows; r++) {
        g->plan.row[r] = (struct hb_row_plan){.request = s->row[r].request,
                                              .slot = r + 1,
                                              .prefix = prefix[r],
                                              .track_dst = s->row[r].track ? 11 + r : 0,
                                              .prefix_loc = prefix[r] <= 16 ? prefix_slots : NULL};
    }
    assert_int_equal(hb_materialize_batch(&g->c, s, &g->config, &g->kv, &g->plan, &g->batch), 0);
}

static inline struct hb_case_step *rig_start(struct rig *g, int32_t mode) {
    memset(g, 0, sizeof *g);
    hb_case_init(&g->c);
    return hand_forward(&g->c, mode);
}

/* Prefixes of the rows of the last step. */
#define RIG_DERIVE(g, ...)                                                                         \
    do {                                                                                           \
        const int64_t prefixes[] = {__VA_ARGS__};                                                  \
        rig_derive(g, (int32_t)(sizeof prefixes / sizeof *prefixes), prefixes);                    \
    } while (0)

#define ASSERT_ARRAY(array, ...)                                                                   \
    do {                                                                                           \
        const int64_t expected[] = {__VA_ARGS__};                                                  \
        const int64_t n = (int64_t)(sizeof expected / sizeof *expected);                           \
        assert_int_equal((array).len, n);                                                          \
        for (int64_t at = 0; at < n; at++) {                                                       \
            assert_int_equal((array).data[at], expected[at]);                                      \
        }                                                                                          \
    } while (0)

#endif
