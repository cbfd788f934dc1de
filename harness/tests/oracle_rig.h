/* SPDX-License-Identifier: Apache-2.0
 * A small backend handle with parameters, buffers and one batch, for the tests of the oracle behind
 * the adapter table. */
#ifndef HB_HARNESS_TESTS_ORACLE_RIG_H
#define HB_HARNESS_TESTS_ORACLE_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/oracle/oracle.h"
#include "harness/run.h"

enum {
    NS = 5,
    REQS = 4,
    CONTEXT = 32,
    N_KV = 40,
    MOST_TOKENS = 24,
    DIM = 12,
    D_INNER = 8,
    HEADS = 2,
    N_REGIONS = 7,
    MAX_DRAFT = 6,
    SPEC_ROWS = 4
};
enum { CONV = 0, TEMPORAL = 1, KEYS = 2, VALUES = 3, TABLE = 4, KIND = 5, FREE_LIST = 6 };

enum { CONV_ITEMS = 24, SSM_ITEMS = 16 }; /* one slot of each pool */
#define CONV_BYTES (UINT64_C(4) * CONV_ITEMS)
#define SSM_BYTES (UINT64_C(4) * SSM_ITEMS)

static const struct hb_adapter *table;

/* A backend with one Mamba2 and one attention layer, its parameters, and the arrays of one batch.
 */
struct rig {
    struct hb_config config;
    struct hb_layer_params params[2];
    float conv_weight[DIM * 3], conv_bias[DIM], a[HEADS], dt_bias[HEADS], d[HEADS], norm[D_INNER];
    void *h;
    struct hb_batch b;
    int32_t req[4], seq[4], ext[4], prefix[4], loc[MOST_TOKENS], tokens[REQS * CONTEXT];
    uint8_t mask[4];
    int64_t track[4], point[4];
    int32_t count[4]; /* tokens of each row */
    int32_t next[4 * MAX_DRAFT], sibling[4 * MAX_DRAFT], layout[5];
    struct hb_layer_io io[2];
    float in[2][3][MOST_TOKENS * DIM]; /* what the buffers hold, widened */
};

static inline float value(int32_t stream, int64_t i) {
    uint32_t x = (uint32_t)(i + 1) * 2654435761U + (uint32_t)stream * 40503U;
    x ^= x >> 15;
    return (float)((int32_t)(x % 65U) - 32) / 32.0F; /* exact in bf16 */
}

static inline void rig_config(struct rig *g, int32_t act, int32_t state) {
    g->config = (struct hb_config){.struct_size = sizeof g->config,
                                   .n_layers = 2,
                                   .layer_kind = {HB_LAYER_MAMBA2, HB_LAYER_ATTENTION},
                                   .n_heads = HEADS,
                                   .head_dim = 4,
                                   .state_size = 2,
                                   .n_groups = 1,
                                   .conv_width = 3,
                                   .chunk_size = 4,
                                   .page_size = 4,
                                   .act_dtype = act,
                                   .state_dtype = state,
                                   .norm_group = D_INNER,
                                   .dt_softplus = 1,
                                   .dt_hi = INFINITY,
                                   .norm_eps = 1e-5F,
                                   .n_q_heads = 2,
                                   .n_kv_heads = 1,
                                   .attn_dim = 4,
                                   .n_slots = NS,
                                   .req_pool_size = REQS,
                                   .max_context = CONTEXT,
                                   .n_kv = N_KV,
                                   .max_batch = 4,
                                   .max_tokens = MOST_TOKENS};
    for (int i = 0; i < DIM * 3; i++) {
        g->conv_weight[i] = value(1, i) * 0.6F;
    }
    for (int i = 0; i < DIM; i++) {
        g->conv_bias[i] = value(2, i) * 0.25F;
    }
    for (int i = 0; i < HEADS; i++) {
        g->a[i] = -0.25F - 0.5F * (float)i;
        g->dt_bias[i] = value(3, i);
        g->d[i] = value(4, i);
    }
    for (int i = 0; i < D_INNER; i++) {
        g->norm[i] = 1.0F + 0.25F * value(5, i);
    }
    g->params[0] =
        (struct hb_layer_params){g->conv_weight, g->conv_bias, g->a, g->dt_bias, g->d, g->norm};
}

/* With intermediate caches of so many rows, or none. */
static inline void rig_init_rows(struct rig *g, int32_t act, int32_t state, int32_t spec_rows) {
    int32_t ids[4];
    struct hb_error e = {0};
    memset(g, 0, sizeof *g);
    rig_config(g, act, state);
    g->config.spec_rows = spec_rows;
    g->config.max_draft = spec_rows > 0 ? MAX_DRAFT : 0;
    assert_int_equal(table->create(table->ctx, &g->config, g->params, &g->h, &e), HB_OK);
    assert_int_equal(table->slot_take(g->h, 3, HB_SLOT_LIVE, ids, &e), HB_OK);
    assert_int_equal(table->slot_take(g->h, 1, HB_SLOT_TRACK, ids + 3, &e), HB_OK);
    for (int32_t r = 0; r < 3; r++) {
        assert_int_equal(table->table_set(g->h, r + 1, ids[r], &e), HB_OK);
    }
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < 4; i++) {
            struct hb_buf *buf = i < 3 ? &g->io[l].in[i] : &g->io[l].out;
            g->io[l].struct_size = sizeof g->io[l];
            assert_int_equal(table->buf_alloc(g->h, (uint64_t)MOST_TOKENS * DIM * 4, buf, &e),
                             HB_OK);
        }
    }
}

static inline void rig_init(struct rig *g, int32_t act, int32_t state) {
    rig_init_rows(g, act, state, 0);
}

static inline void rig_end(struct rig *g) {
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < 4; i++) {
            table->buf_free(g->h, i < 3 ? g->io[l].in[i] : g->io[l].out);
        }
    }
    table->destroy(g->h);
}

static inline int64_t width_of(int layer, int i) {
    static const int64_t widths[2][4] = {{D_INNER, DIM, HEADS, D_INNER}, {8, 4, 4, 8}};
    return widths[layer][i];
}

/* Starts a batch; rows are added by `row`, tokens are consecutive. */
static inline void batch(struct rig *g, int32_t mode) {
    g->b = (struct hb_batch){
        .struct_size = sizeof g->b, .forward_mode = mode, .has_extend_num_tokens = 1};
    memset(g->mask, 0, sizeof g->mask);
}

/* Inputs of one token: functions of request and key. */
static inline void feed(struct rig *g, int32_t token, int32_t req, int64_t key) {
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < 3; i++) {
            int64_t w = width_of(l, i);
            for (int64_t c = 0; c < w; c++) {
                g->in[l][i][token * w + c] = value(10 + l * 3 + i + 100 * req, key * 64 + c);
            }
        }
    }
}

/* Row of n tokens after `prefix`, with the positions as keys of their inputs. */
static inline int32_t put_row(struct rig *g, int32_t req, int32_t prefix, int32_t n) {
    int32_t r = g->b.batch_size++;
    int32_t first = g->b.n_tokens;
    g->req[r] = req;
    g->count[r] = n;
    for (int32_t p = 0; p < prefix + n; p++) {
        g->tokens[req * CONTEXT + p] = 1 + (req - 1) * 12 + p % 12;
    }
    for (int32_t t = 0; t < n; t++) {
        g->loc[first + t] = g->tokens[req * CONTEXT + prefix + t];
        feed(g, first + t, req, prefix + t);
    }
    g->b.n_tokens += n;
    return r;
}

/* Request `req` with n new tokens after `prefix`; n == 0: a decode row. */
static inline void row(struct rig *g, int32_t req, int32_t prefix, int32_t n) {
    int32_t r = put_row(g, req, prefix, n > 0 ? n : 1);
    g->seq[r] = prefix + g->count[r];
    if (n > 0) {
        g->ext[r] = n;
        g->prefix[r] = prefix;
        g->b.n_extend++;
        g->b.extend_num_tokens += n;
    }
}

/* A verify row: n draft nodes after `prefix` tokens; node t has the inputs of position prefix + t.
 */
static inline void draft_row(struct rig *g, int32_t req, int32_t prefix, int32_t n) {
    int32_t r = put_row(g, req, prefix, n);
    g->seq[r] = prefix;
    g->layout[r + 1] = g->b.n_tokens;
}

static inline int32_t begin(struct rig *g, int32_t surplus, struct hb_error *e) {
    int32_t n = g->b.batch_size;
    int32_t np = g->b.n_extend;
    g->b.n_tokens += surplus;
    g->b.req_pool_indices = (struct hb_i32s){g->req, n};
    g->b.seq_lens = (struct hb_i32s){g->seq, n};
    g->b.extend_seq_lens = (struct hb_i32s){g->ext, np};
    g->b.extend_prefix_lens = (struct hb_i32s){g->prefix, np};
    g->b.mamba_track_mask = (struct hb_u8s){g->mask, n};
    g->b.mamba_track_indices = (struct hb_i64s){g->track, n};
    g->b.mamba_track_seqlens = (struct hb_i64s){g->point, n};
    g->b.out_cache_loc = (struct hb_i32s){g->loc, g->b.n_tokens};
    g->b.req_to_token = (struct hb_i32s){g->tokens, (int64_t)REQS * CONTEXT};
    g->b.req_to_token_rows = REQS;
    g->b.req_to_token_cols = CONTEXT;
    return table->begin(g->h, &g->b, e);
}

/* Writes the inputs (surplus tokens stay poison) and runs one layer. */
static inline int32_t layer(struct rig *g, int l, float *out, struct hb_error *e) {
    unsigned char bytes[MOST_TOKENS * DIM * 4];
    int64_t item = hb_dtype_bytes(g->config.act_dtype);
    int64_t real = 0;
    for (int32_t r = 0; r < g->b.batch_size; r++) {
        real += g->count[r];
    }
    for (int i = 0; i < 3; i++) {
        hb_pack(g->config.act_dtype, g->in[l][i], real * width_of(l, i), bytes);
        assert_int_equal(table->buf_write(g->h, g->io[l].in[i], bytes,
                                          (uint64_t)(real * width_of(l, i) * item), e),
                         HB_OK);
    }
    int32_t status = table->layer(g->h, l, &g->io[l], e);
    int64_t n = g->b.n_tokens * width_of(l, 3);
    assert_int_equal(table->buf_read(g->h, g->io[l].out, bytes, (uint64_t)(n * item), e), HB_OK);
    if (out != NULL) {
        hb_unpack(g->config.act_dtype, bytes, n, out);
    }
    return status;
}

/* begin, both layers (outputs of layer 0 and 1 may be null), finish. */
static inline void forward(struct rig *g, int32_t surplus, float *out0, float *out1) {
    struct hb_error e = {0};
    if (begin(g, surplus, &e) != HB_OK) {
        fail_msg("%s", e.text);
    }
    assert_int_equal(layer(g, 1, out1, &e), HB_OK);
    assert_int_equal(layer(g, 0, out0, &e), HB_OK);
    assert_int_equal(table->finish(g->h, &e), HB_OK);
}

/* All persistent bytes, as one malloc'ed block. */
static inline unsigned char *snapshot(const struct rig *g, size_t *size) {
    struct hb_error e = {0};
    int32_t n = 0;
    unsigned char *all = NULL;
    *size = 0;
    assert_int_equal(table->n_regions(g->h, &n, &e), HB_OK);
    assert_int_equal(n, N_REGIONS + (g->config.spec_rows > 0 ? 2 : 0));
    for (int32_t i = 0; i < n; i++) {
        struct hb_region r;
        assert_int_equal(table->region(g->h, i, &r, &e), HB_OK);
        unsigned char *grown = realloc(all, *size + r.bytes);
        assert_non_null(grown);
        all = grown;
        assert_int_equal(table->region_read(g->h, i, 0, all + *size, r.bytes, &e), HB_OK);
        *size += r.bytes;
    }
    return all;
}

static inline void read_slot(const struct rig *g, int32_t region, int32_t slot, unsigned char *out,
                             uint64_t *bytes) {
    struct hb_error e = {0};
    struct hb_region r;
    assert_int_equal(table->region(g->h, region, &r, &e), HB_OK);
    *bytes = r.bytes / (uint64_t)r.shape[0];
    assert_int_equal(table->region_read(g->h, region, (uint64_t)slot * *bytes, out, *bytes, &e),
                     HB_OK);
}

static inline int same_slot(const struct rig *g, int32_t region, int32_t a, const struct rig *other,
                            int32_t b) {
    unsigned char x[512];
    unsigned char y[512];
    uint64_t n = 0;
    read_slot(g, region, a, x, &n);
    read_slot(other, region, b, y, &n);
    return memcmp(x, y, n) == 0;
}

#endif
