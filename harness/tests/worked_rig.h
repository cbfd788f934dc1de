/* SPDX-License-Identifier: Apache-2.0
 * A backend with one Mamba2 layer, driven through the adapter table alone, for the worked examples
 * of the specification: rows are named by request and position, regions by name. Included by one
 * test program. */
#ifndef HB_HARNESS_TESTS_WORKED_RIG_H
#define HB_HARNESS_TESTS_WORKED_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/adapter.h"
#include "harness/oracle/oracle.h"

enum {
    HEADS = 2,
    D_INNER = 4,
    STATE = 2,
    DIM = 8,
    WIDTH = 4,
    WINDOW = 3,
    N_SSM = 8,
    MOST_ROWS = 8,
    MOST_TOKENS = 208
};

static const struct hb_adapter *table;

struct rig {
    struct hb_config config;
    struct hb_caps caps;
    struct hb_layer_params params;
    float conv_weight[DIM * WIDTH], conv_bias[DIM], a[HEADS], dt_bias[HEADS], d[HEADS],
        norm[D_INNER];
    void *h;
    struct hb_layer_io io; /* of eager forwards */
    struct hb_error e;
    struct hb_batch b;
    int32_t req[MOST_ROWS], seq[MOST_ROWS], ext[MOST_ROWS], prefix[MOST_ROWS], cpu[MOST_ROWS];
    uint8_t mask[MOST_ROWS];
    int64_t track[MOST_ROWS], point[MOST_ROWS];
    int32_t next[MOST_TOKENS], sibling[MOST_TOKENS], layout[MOST_ROWS + 1];
    int32_t token_req[MOST_TOKENS], token_at[MOST_TOKENS];
    int32_t n_given; /* tokens with inputs */
    float out[MOST_TOKENS * D_INNER];
};

/* Input `channel` of buffer `which` for the token of a request at a position. */
static inline float value(int32_t req, int32_t position, int32_t which, int32_t channel) {
    uint32_t x =
        (uint32_t)(position + 1) * 2654435761U + (uint32_t)(req * 7 + which) * 40503U + 977U;
    x ^= x >> 13;
    x = (x + (uint32_t)channel * 97U) * 2246822519U;
    x ^= x >> 16;
    return (float)((int32_t)(x % 65U) - 32) / 32.0F;
}

static inline int32_t width_of(int32_t which) {
    static const int32_t widths[4] = {D_INNER, DIM, HEADS, D_INNER};
    return widths[which];
}

/* NS slots; the caller may change the configuration before rig_open. */
static inline void rig_config(struct rig *g, int32_t chunk, int32_t n_slots) {
    memset(g, 0, sizeof *g);
    g->config = (struct hb_config){.struct_size = sizeof g->config,
                                   .n_layers = 1,
                                   .layer_kind = {HB_LAYER_MAMBA2},
                                   .n_heads = HEADS,
                                   .head_dim = D_INNER / HEADS,
                                   .state_size = STATE,
                                   .n_groups = 1,
                                   .conv_width = WIDTH,
                                   .chunk_size = chunk,
                                   .page_size = chunk,
                                   .norm_group = D_INNER,
                                   .dt_softplus = 1,
                                   .dt_hi = INFINITY,
                                   .norm_eps = 1e-5F,
                                   .n_q_heads = 1,
                                   .n_kv_heads = 1,
                                   .attn_dim = 1,
                                   .n_slots = n_slots,
                                   .req_pool_size = 8,
                                   .max_context = 256,
                                   .n_kv = 2,
                                   .max_batch = MOST_ROWS,
                                   .max_tokens = MOST_TOKENS};
    for (int32_t i = 0; i < DIM * WIDTH; i++) {
        g->conv_weight[i] = value(100, i, 0, 0) * 0.6F;
    }
    for (int32_t i = 0; i < DIM; i++) {
        g->conv_bias[i] = value(100, i, 1, 0) * 0.25F;
    }
    for (int32_t i = 0; i < HEADS; i++) {
        g->a[i] = -0.25F - 0.5F * (float)i;
        g->dt_bias[i] = value(100, i, 2, 0);
        g->d[i] = value(100, i, 3, 0);
    }
    for (int32_t i = 0; i < D_INNER; i++) {
        g->norm[i] = 1.0F + 0.25F * value(101, i, 0, 0);
    }
    g->params =
        (struct hb_layer_params){g->conv_weight, g->conv_bias, g->a, g->dt_bias, g->d, g->norm};
}

/* The call succeeds. */
static inline void ok(struct rig *g, int32_t status) {
    if (status != HB_OK) {
        fail_msg("%s: %s", hb_status_name(status), g->e.text);
    }
}

/* The call is refused by a rule, at a row with a value and a limit. */
static inline void refused(struct rig *g, int32_t status, int32_t rule, int32_t row, int64_t value_,
                           int64_t limit) {
    assert_int_equal(status, hb_rule_status(rule));
    assert_int_equal(g->e.rule, rule);
    assert_int_equal(g->e.row, row);
    assert_int_equal(g->e.value, value_);
    assert_int_equal(g->e.limit, limit);
    hb_error_clear(&g->e);
}

static inline void open_io(struct rig *g, struct hb_layer_io *io) {
    io->struct_size = sizeof *io;
    for (int32_t i = 0; i < 4; i++) {
        ok(g, table->buf_alloc(g->h, (uint64_t)MOST_TOKENS * (uint64_t)width_of(i) * 4,
                               i < 3 ? &io->in[i] : &io->out, &g->e));
    }
}

static inline void close_io(const struct rig *g, const struct hb_layer_io *io) {
    for (int32_t i = 0; i < 4; i++) {
        table->buf_free(g->h, i < 3 ? io->in[i] : io->out);
    }
}

static inline void rig_open(struct rig *g) {
    hb_error_clear(&g->e);
    ok(g, table->describe(table->ctx, &g->caps, &g->e));
    ok(g, table->create(table->ctx, &g->config, &g->params, &g->h, &g->e));
    open_io(g, &g->io);
}

static inline void rig_close(struct rig *g) {
    close_io(g, &g->io);
    table->destroy(g->h);
}

/* n slots of a kind, the first of which must be `first`. */
static inline void take(struct rig *g, int32_t n, int32_t kind, int32_t first) {
    int32_t ids[64] = {0};
    assert_true(n <= 64);
    ok(g, table->slot_take(g->h, n, kind, ids, &g->e));
    assert_int_equal(ids[0], first);
}

static inline void map(struct rig *g, int32_t req, int32_t id) {
    ok(g, table->table_set(g->h, req, id, &g->e));
}

/* ---- batches ---- */

static inline void batch(struct rig *g, int32_t mode) {
    g->b = (struct hb_batch){.struct_size = sizeof g->b, .forward_mode = mode};
    g->n_given = 0;
    memset(g->mask, 0, sizeof g->mask);
    memset(g->track, 0, sizeof g->track);
    memset(g->layout, 0, sizeof g->layout);
}

static inline void give(struct rig *g, int32_t req, int32_t position) {
    g->token_req[g->n_given] = req;
    g->token_at[g->n_given++] = position;
}

/* n tokens of a request from position `prefix` on: an extend row, or (n = 0) a decode row. */
static inline int32_t row(struct rig *g, int32_t req, int32_t prefix, int32_t n) {
    int32_t r = g->b.batch_size++;
    int32_t count = n > 0 ? n : 1;
    g->req[r] = req;
    g->seq[r] = g->cpu[r] = prefix + count;
    for (int32_t t = 0; t < count; t++) {
        give(g, req, prefix + t);
    }
    if (n > 0) {
        g->ext[r] = n;
        g->prefix[r] = prefix;
        g->b.n_extend++;
        g->b.has_extend_num_tokens = 1;
        g->b.extend_num_tokens += n;
    }
    g->b.n_tokens += count;
    return r;
}

/* n draft nodes of a request that has `prefix` tokens; node t has the inputs of position prefix +
 * t. */
static inline int32_t draft(struct rig *g, int32_t req, int32_t prefix, int32_t n) {
    int32_t r = row(g, req, prefix, 0);
    for (int32_t t = 1; t < n; t++) {
        give(g, req, prefix + t);
    }
    g->seq[r] = g->cpu[r] = prefix;
    g->b.n_tokens += n - 1;
    g->b.draft_token_num = n;
    g->layout[r + 1] = g->b.n_tokens;
    return r;
}

/* p padding rows of `each` tokens. */
static inline void pad(struct rig *g, int32_t p, int32_t each) {
    g->b.has_original_batch_size = 1;
    g->b.original_batch_size = g->b.batch_size;
    for (int32_t i = 0; i < p; i++) {
        int32_t r = g->b.batch_size++;
        g->req[r] = 0;
        g->seq[r] = g->cpu[r] = 1;
        g->b.n_tokens += each;
        g->layout[r + 1] = g->b.n_tokens;
    }
}

static inline void mark(struct rig *g, int32_t r, int64_t dst, int64_t point) {
    g->mask[r] = 1;
    g->track[r] = dst;
    g->point[r] = point;
}

static inline const struct hb_batch *wired(struct rig *g) {
    int32_t n = g->b.batch_size;
    int32_t np = g->b.n_extend;
    g->b.req_pool_indices = (struct hb_i32s){g->req, n};
    g->b.seq_lens = (struct hb_i32s){g->seq, n};
    g->b.extend_seq_lens = (struct hb_i32s){np > 0 ? g->ext : NULL, np};
    g->b.extend_prefix_lens = (struct hb_i32s){np > 0 ? g->prefix : NULL, np};
    g->b.mamba_track_mask = (struct hb_u8s){g->mask, n};
    g->b.mamba_track_indices = (struct hb_i64s){g->track, n};
    g->b.mamba_track_seqlens = (struct hb_i64s){g->point, n};
    return &g->b;
}

static inline void write_inputs(struct rig *g, const struct hb_layer_io *io) {
    float x[MOST_TOKENS * DIM];
    for (int32_t i = 0; i < 3; i++) {
        for (int32_t t = 0; t < g->n_given; t++) {
            for (int32_t c = 0; c < width_of(i); c++) {
                x[t * width_of(i) + c] = value(g->token_req[t], g->token_at[t], i, c);
            }
        }
        ok(g, table->buf_write(g->h, io->in[i], x, (uint64_t)g->n_given * (uint64_t)width_of(i) * 4,
                               &g->e));
    }
}

static inline void read_outputs(struct rig *g, const struct hb_layer_io *io) {
    ok(g, table->buf_read(g->h, io->out, g->out, (uint64_t)g->b.n_tokens * D_INNER * 4, &g->e));
}

static inline void forward(struct rig *g) {
    ok(g, table->begin(g->h, wired(g), &g->e));
    write_inputs(g, &g->io);
    ok(g, table->layer(g->h, 0, &g->io, &g->e));
    read_outputs(g, &g->io);
    ok(g, table->finish(g->h, &g->e));
}

/* Prefill of `n` tokens of one request in one call. */
static inline void prefill(struct rig *g, int32_t req, int32_t prefix, int32_t n) {
    batch(g, HB_MODE_EXTEND);
    (void)row(g, req, prefix, n);
    forward(g);
}

static inline void decode(struct rig *g, int32_t req, int32_t position) {
    batch(g, HB_MODE_DECODE);
    (void)row(g, req, position, 0);
    forward(g);
}

static inline int32_t commit(struct rig *g, int32_t n, const int32_t *step, const int64_t *dst,
                             const int32_t *track_step) {
    const struct hb_commit c = {.struct_size = sizeof c,
                                .n_rows = n,
                                .step = {step, n},
                                .track_indices = {dst, dst != NULL ? n : 0},
                                .track_steps = {track_step, track_step != NULL ? n : 0}};
    return table->commit(g->h, &c, &g->e);
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
    uint64_t size = info.bytes / (uint64_t)info.shape[0];
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

/* ---- graphs ---- */

/* Captures a graph of bs rows, with its own buffers. */
static inline void capture(struct rig *g, int32_t mode, int32_t bs, int32_t draft_num, int linked,
                           struct hb_layer_io *io) {
    open_io(g, io);
    batch(g, mode);
    g->b.batch_size = bs;
    g->b.draft_token_num = mode == HB_MODE_TARGET_VERIFY ? draft_num : 0;
    g->b.n_tokens = bs * (mode == HB_MODE_TARGET_VERIFY ? draft_num : 1);
    if (linked) {
        g->b.retrieve_next_token = (struct hb_i32s){g->next, (int64_t)bs * draft_num};
        g->b.retrieve_next_sibling = (struct hb_i32s){g->sibling, (int64_t)bs * draft_num};
    }
    ok(g, table->capture(g->h, &g->b, &g->e));
    ok(g, table->layer(g->h, 0, io, &g->e));
    ok(g, table->finish(g->h, &g->e));
}

/* Inputs into the captured buffers, refresh, launch. */
static inline void replay(struct rig *g, const struct hb_layer_io *io) {
    write_inputs(g, io);
    ok(g, table->replay(g->h, wired(g), &g->e));
    ok(g, table->finish(g->h, &g->e));
    read_outputs(g, io);
}

#endif
