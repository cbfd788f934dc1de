/* SPDX-License-Identifier: Apache-2.0
 * What the worked examples look at: regions by name, outputs and states against the float64
 * reference. */
#ifndef HB_HARNESS_TESTS_WORKED_CHECK_H
#define HB_HARNESS_TESTS_WORKED_CHECK_H

#include "harness/oracle/oracle.h"
#include "harness/tests/worked_rig.h"

static inline int same_bits(const float *a, const float *b, int32_t n) {
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static inline void check_zero(const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        assert_true(x[i] == 0.0F);
    }
}

/* ---- regions ---- */

static inline int32_t region_of(struct rig *g, const char *name, struct hb_region *info) {
    int32_t n = 0;
    ok(g, table->n_regions(g->h, &n, &g->e));
    for (int32_t i = 0; i < n; i++) {
        ok(g, table->region(g->h, i, info, &g->e));
        if (strcmp(info->name, name) == 0) {
            return i;
        }
    }
    fail_msg("no region %s", name);
    return -1;
}

/* `bytes` bytes of entry `entry` (of its first dimension) of a region, all of it with bytes = 0.
 * Returns their number. */
static inline uint64_t read_entry(struct rig *g, const char *name, int64_t entry, void *dst,
                                  uint64_t bytes) {
    struct hb_region info = {0};
    int32_t i = region_of(g, name, &info);
    assert_true(info.shape[0] > 0);
    uint64_t size = info.shape[0] > 0 ? info.bytes / (uint64_t)info.shape[0] : 0;
    uint64_t want = bytes > 0 ? bytes : size;
    assert_true(want <= size);
    ok(g, table->region_read(g->h, i, (uint64_t)entry * size, dst, want, &g->e));
    return want;
}

/* The first n int32 of an entry are these. */
static inline void check_ints(struct rig *g, const char *name, int64_t entry, int32_t n,
                              const int32_t *want) {
    int32_t got[64] = {0};
    assert_true(n <= 64);
    (void)read_entry(g, name, entry, got, (uint64_t)n * 4);
    for (int32_t i = 0; i < n; i++) {
        if (got[i] != want[i]) {
            fail_msg("%s[%d][%d] is %d, not %d", name, (int)entry, (int)i, got[i], want[i]);
        }
    }
}
#define CHECK_INTS(g, name, entry, ...)                                                            \
    do {                                                                                           \
        const int32_t want_[] = {__VA_ARGS__};                                                     \
        check_ints(g, name, entry, (int32_t)(sizeof want_ / sizeof *want_), want_);                \
    } while (0)

/* The first n int32 of a region of one dimension. */
static inline void check_list(struct rig *g, const char *name, int32_t n, const int32_t *want) {
    for (int32_t i = 0; i < n; i++) {
        check_ints(g, name, i, 1, want + i);
    }
}
#define CHECK_LIST(g, name, ...)                                                                   \
    do {                                                                                           \
        const int32_t want_[] = {__VA_ARGS__};                                                     \
        check_list(g, name, (int32_t)(sizeof want_ / sizeof *want_), want_);                       \
    } while (0)

/* All persistent bytes, as one block of the heap. */
static inline unsigned char *snapshot(struct rig *g, size_t *size) {
    int32_t n = 0;
    unsigned char *all = NULL;
    *size = 0;
    ok(g, table->n_regions(g->h, &n, &g->e));
    for (int32_t i = 0; i < n; i++) {
        struct hb_region info;
        ok(g, table->region(g->h, i, &info, &g->e));
        unsigned char *grown = realloc(all, *size + info.bytes + 1);
        assert_non_null(grown);
        all = grown;
        ok(g, table->region_read(g->h, i, 0, all + *size, info.bytes, &g->e));
        *size += info.bytes;
    }
    return all;
}

/* Nothing persistent has changed since `before`, which is freed. */
static inline void unchanged(struct rig *g, unsigned char *before, size_t size) {
    size_t now = 0;
    unsigned char *after = snapshot(g, &now);
    assert_int_equal(now, size);
    assert_memory_equal(before, after, size);
    free(before);
    free(after);
}

/* Slot `a` here holds the bytes of slot `b` there, in both pools. */
static inline void same_state(struct rig *g, int32_t a, struct rig *other, int32_t b) {
    static const char *const pools[2] = {"conv", "temporal"};
    for (int i = 0; i < 2; i++) {
        unsigned char x[512], y[512];
        uint64_t n = read_entry(g, pools[i], a, x, 0);
        assert_int_equal(read_entry(other, pools[i], b, y, 0), n);
        assert_memory_equal(x, y, n);
    }
}

/* The conv window of a slot: inputs of `req` at the three positions, zeros before its first. */
static inline void check_window(struct rig *g, int32_t slot, int32_t req, int32_t first) {
    float got[DIM * WINDOW];
    (void)read_entry(g, "conv", slot, got, sizeof got);
    for (int32_t c = 0; c < DIM; c++) {
        for (int32_t j = 0; j < WINDOW; j++) {
            float want = first + j >= 0 ? value(req, first + j, 1, c) : 0.0F;
            assert_true(got[c * WINDOW + j] == want);
        }
    }
}

/* ---- the reference ---- */

static inline struct hb_ref_state *ref_new(const struct rig *g) {
    struct hb_ref_state *s = hb_ref_state_new(&g->config);
    assert_non_null(s);
    hb_ref_state_zero(&g->config, s);
    return s;
}

/* One call of n tokens of `req` from `from` on; *at, if given, is the state after at_tokens of
 * them. */
static inline void ref_call(const struct rig *g, int32_t path, int32_t req, int32_t from, int32_t n,
                            struct hb_ref_state *s, double *out, double *bound,
                            struct hb_ref_state *at, int32_t at_tokens) {
    float in[3][MOST_TOKENS * DIM];
    double sink[2][MOST_TOKENS * D_INNER];
    for (int32_t i = 0; i < 3; i++) {
        for (int32_t t = 0; t < n; t++) {
            for (int32_t c = 0; c < width_of(i); c++) {
                in[i][t * width_of(i) + c] = value(req, from + t, i, c);
            }
        }
    }
    assert_int_equal(hb_ref_mamba2(&g->config, &g->params, &g->caps.profile[0][path][HB_FP32], path,
                                   n, in[0], in[1], in[2], s, out != NULL ? out : sink[0],
                                   bound != NULL ? bound : sink[1], NULL, at, at_tokens),
                     0);
}

/* The temporal state of a slot is that of the reference, within its bound. */
static inline void check_temporal(struct rig *g, int32_t slot, int32_t path,
                                  const struct hb_ref_state *s, int32_t stores) {
    float got[N_SSM];
    (void)read_entry(g, "temporal", slot, got, sizeof got);
    for (int32_t i = 0; i < N_SSM; i++) {
        double bound =
            hb_ref_state_bound(&g->config, &g->caps.profile[0][path][HB_FP32], s, i, stores);
        assert_true(fabs((double)got[i] - s->h[i]) <= bound);
        assert_true(bound < 1e-3);
    }
}

/* Outputs of n tokens from `first` on, against the reference. */
static inline void check_outputs(const struct rig *g, int32_t first, int32_t n, const double *want,
                          const double *bound) {
    for (int32_t i = 0; i < n * D_INNER; i++) {
        assert_true(fabs((double)g->out[first * D_INNER + i] - want[i]) <= bound[i]);
    }
}

#endif
