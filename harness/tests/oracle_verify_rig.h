/* SPDX-License-Identifier: Apache-2.0
 * Verifies, commits and the intermediate caches of the oracle's rig. Included by one test program
 * each. */
#ifndef HB_HARNESS_TESTS_ORACLE_VERIFY_RIG_H
#define HB_HARNESS_TESTS_ORACLE_VERIFY_RIG_H

#include "harness/tests/oracle_rig.h"

enum { CACHE_CONV = 7, CACHE_SSM = 8, PREFIX = 5 };
static const int32_t TYPES[3][2] = {{HB_FP32, HB_FP32}, {HB_BF16, HB_FP32}, {HB_BF16, HB_BF16}};

/* Branches, two chains of three, a leaf of the root with the highest index. */
static const int32_t TREE_NEXT[6] = {1, 3, 4, -1, -1, -1};
static const int32_t TREE_SIBLING[6] = {-1, 2, 5, -1, -1, -1};
static const int32_t TREE_PARENT[6] = {0, 0, 0, 1, 2, 0};

/* A verify of nodes of one tree or, links null, of chains; ragged if so asked. Runs both layers. */
static inline void verify(struct rig *g, int32_t draft, int linked, int ragged, float *out0,
                          float *out1) {
    g->b.draft_token_num = draft;
    if (linked) {
        for (int32_t r = 0; r < g->b.batch_size; r++) {
            memcpy(g->next + (ptrdiff_t)r * draft, TREE_NEXT, (size_t)draft * sizeof *g->next);
            memcpy(g->sibling + (ptrdiff_t)r * draft, TREE_SIBLING,
                   (size_t)draft * sizeof *g->sibling);
        }
        g->b.retrieve_next_token = (struct hb_i32s){g->next, (int64_t)g->b.batch_size * draft};
        g->b.retrieve_next_sibling = (struct hb_i32s){g->sibling, (int64_t)g->b.batch_size * draft};
    }
    if (ragged) {
        g->b.ragged_verify_layout = (struct hb_i32s){g->layout, (int64_t)g->b.batch_size + 1};
    }
    forward(g, 0, out0, out1);
}

static inline void prefill(struct rig *g, int32_t n_requests) {
    batch(g, HB_MODE_EXTEND);
    for (int32_t req = 1; req <= n_requests; req++) {
        row(g, req, 0, PREFIX);
    }
    forward(g, 0, NULL, NULL);
}

static inline void rig_start(struct rig *g, int k, int32_t n_requests) {
    rig_init_rows(g, TYPES[k][0], TYPES[k][1], SPEC_ROWS);
    prefill(g, n_requests);
}

/* Decodes one token of `req` at `position` with the inputs of key `key`. */
static inline void decode(struct rig *g, int32_t req, int32_t position, int32_t key, float *out0,
                          float *out1) {
    batch(g, HB_MODE_DECODE);
    row(g, req, position, 0);
    feed(g, 0, req, key);
    forward(g, 0, out0, out1);
}

static inline void read_entry(const struct rig *g, int32_t region, int32_t r, int32_t t,
                              unsigned char *out, uint64_t *bytes) {
    struct hb_error e = {0};
    struct hb_region info;
    assert_int_equal(table->region(g->h, region, &info, &e), HB_OK);
    *bytes = info.bytes / (SPEC_ROWS * MAX_DRAFT);
    assert_int_equal(
        table->region_read(g->h, region, (uint64_t)(r * MAX_DRAFT + t) * *bytes, out, *bytes, &e),
        HB_OK);
}

/* Entry (r, t) of both caches against a slot of `other`. */
static inline int entry_is_slot(const struct rig *g, int32_t r, int32_t t, const struct rig *other,
                                int32_t slot) {
    unsigned char x[512];
    unsigned char y[512];
    int same = 1;
    for (int32_t part = 0; part < 2; part++) {
        uint64_t nx = 0;
        uint64_t ny = 0;
        read_entry(g, CACHE_CONV + part, r, t, x, &nx);
        read_slot(other, CONV + part, slot, y, &ny);
        same &= nx == ny && memcmp(x, y, nx) == 0;
    }
    return same;
}

/* Fills regions [from, to] with a byte. */
static inline void fill(struct rig *g, int32_t from, int32_t to, int byte) {
    struct hb_error e = {0};
    unsigned char bytes[8192];
    for (int32_t i = from; i <= to; i++) {
        struct hb_region info;
        assert_int_equal(table->region(g->h, i, &info, &e), HB_OK);
        assert_true(info.bytes <= sizeof bytes);
        memset(bytes, byte, info.bytes);
        assert_int_equal(table->region_write(g->h, i, 0, bytes, info.bytes, &e), HB_OK);
    }
}

static inline int same_region(const struct rig *g, const struct rig *other, int32_t i) {
    struct hb_error e = {0};
    struct hb_region info;
    unsigned char x[8192];
    unsigned char y[8192];
    assert_int_equal(table->region(g->h, i, &info, &e), HB_OK);
    assert_int_equal(table->region_read(g->h, i, 0, x, info.bytes, &e), HB_OK);
    assert_int_equal(table->region_read(other->h, i, 0, y, info.bytes, &e), HB_OK);
    return memcmp(x, y, info.bytes) == 0;
}

static inline int32_t commit_rows(struct rig *g, int32_t n, const int32_t *step, const int64_t *dst,
                                  const int32_t *track_step, struct hb_error *e) {
    const struct hb_commit c = {.struct_size = sizeof c,
                                .n_rows = n,
                                .step = {step, n},
                                .track_indices = {dst, dst != NULL ? n : 0},
                                .track_steps = {track_step, track_step != NULL ? n : 0}};
    memset(e, 0, sizeof *e);
    return table->commit(g->h, &c, e);
}

#endif
