/* SPDX-License-Identifier: Apache-2.0
 * A backend with one Mamba2 layer, driven through the adapter table alone, for the worked examples
 * of the specification: rows are named by request and position. worked_check.h looks at what comes
 * of it. Each program runs its examples twice, on the float64 oracle and on the emulated backend. */
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
#include "harness/run.h"

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

/* With graphs of up to `rows` rows of `nodes` nodes, and intermediate caches where nodes > 1. */
static inline void graph_config(struct rig *g, int32_t chunk, int32_t n_slots, int32_t rows,
                         int32_t nodes) {
    rig_config(g, chunk, n_slots);
    g->config.graph_rows = rows;
    g->config.graph_draft = nodes;
    g->config.spec_rows = nodes > 1 ? rows : 0;
    g->config.max_draft = nodes > 1 ? nodes : 0;
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

/* ---- the two backends ---- */

static inline int on_oracle(void **state) {
    (void)state;
    table = hb_adapter_oracle();
    return 0;
}

static inline int on_emu(void **state) {
    (void)state;
    table = hb_adapter_emu();
    return 0;
}

#define RUN_ON_BOTH(tests)                                                                         \
    (cmocka_run_group_tests_name("oracle", tests, on_oracle, NULL) +                               \
     cmocka_run_group_tests_name("emu", tests, on_emu, NULL))

#endif
