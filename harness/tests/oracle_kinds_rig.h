/* SPDX-License-Identifier: Apache-2.0
 * A backend handle with one linear layer of any kind, and batches of it, for the tests of the
 * oracle behind the adapter table. */
#ifndef HB_HARNESS_TESTS_ORACLE_KINDS_RIG_H
#define HB_HARNESS_TESTS_ORACLE_KINDS_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/oracle/oracle.h"
#include "harness/run.h"
#include "harness/values.h"

enum {
    KIT_SLOTS = 6,
    KIT_REQS = 4,
    KIT_TOKENS = 24,
    KIT_WIDTH = 64, /* most numbers of a token in a buffer */
    KIT_STATE = 64, /* most numbers of a slot in a pool */
    KIT_PARAMS = 256,
    KIT_DRAFT = 5,
    KIT_ROWS = 3
};

struct kit {
    struct hb_config config;
    struct hb_layer_params params;
    struct hb_ref_sizes size;
    float numbers[6][KIT_PARAMS];
    const struct hb_adapter *table;
    void *h;
    struct hb_layer_io io;
    struct hb_batch b;
    int32_t req[4], seq[4], ext[4], prefix[4], count[4];
    int32_t next[KIT_ROWS * KIT_DRAFT], sibling[KIT_ROWS * KIT_DRAFT];
    uint8_t mask[4];
    int64_t track[4], point[4];
    float in[3][KIT_TOKENS * KIT_WIDTH], out[KIT_TOKENS * KIT_WIDTH];
    struct hb_error e;
};

static inline float kit_value(int32_t stream, int64_t i) {
    uint32_t x = (uint32_t)(i + 1) * 2654435761U + (uint32_t)stream * 40503U;
    x ^= x >> 15;
    return (float)((int32_t)(x % 65U) - 32) / 32.0F; /* exact in every type */
}

/* Variants by the bits of `variant`: state layout, conv state, strips, head map, output gate. */
static inline void kit_config(struct kit *k, int32_t kind, int32_t act, int32_t variant) {
    struct hb_config *c = &k->config;
    *c = (struct hb_config){.struct_size = sizeof *c,
                            .n_layers = 1,
                            .layer_kind = {kind},
                            .n_heads = 4,
                            .head_dim = 2,
                            .state_size = 3,
                            .n_groups = 2,
                            .conv_width = 3,
                            .chunk_size = 4,
                            .page_size = 4,
                            .act_dtype = act,
                            .state_dtype = variant & 32 ? HB_BF16 : HB_FP32,
                            .norm_group = 2,
                            .dt_softplus = 1,
                            .dt_hi = INFINITY,
                            .norm_eps = 1e-5F,
                            .gate_bound = -5.0F,
                            .state_layout = variant & 1,
                            .conv_state_len = variant >> 1 & 1,
                            .window_layout = variant >> 2 & 1,
                            .head_map = variant >> 3 & 1,
                            .out_gate = variant >> 4 & 1,
                            .n_q_heads = 1,
                            .n_kv_heads = 1,
                            .attn_dim = 1,
                            .n_slots = KIT_SLOTS,
                            .req_pool_size = KIT_REQS,
                            .max_context = 64,
                            .n_kv = 2,
                            .max_batch = 4,
                            .max_tokens = KIT_TOKENS,
                            .spec_rows = KIT_ROWS,
                            .max_draft = KIT_DRAFT,
                            .pool_pad = 2};
    for (int p = 0; p < 6; p++) {
        for (int i = 0; i < KIT_PARAMS; i++) {
            const float x = kit_value(p, i);
            k->numbers[p][i] = p == 2 ? -0.5F - 0.25F * x : 0.5F * x;
        }
    }
    k->params = (struct hb_layer_params){k->numbers[0], k->numbers[1], k->numbers[2],
                                         k->numbers[3], k->numbers[4], k->numbers[5]};
}

/* The configuration is the caller's, and the adapter, which is the oracle unless `table` is set. */
static inline void kit_open(struct kit *k) {
    int32_t ids[5];
    hb_ref_linear_sizes(&k->config, k->config.layer_kind[0], &k->size);
    k->table = k->table != NULL ? k->table : hb_adapter_oracle();
    if (k->table->create(k->table->ctx, &k->config, &k->params, &k->h, &k->e) != HB_OK) {
        fail_msg("%s", k->e.text);
    }
    assert_int_equal(k->table->slot_take(k->h, 3, HB_SLOT_LIVE, ids, &k->e), HB_OK);
    assert_int_equal(k->table->slot_take(k->h, 2, HB_SLOT_TRACK, ids + 3, &k->e), HB_OK);
    for (int32_t r = 1; r < KIT_REQS; r++) {
        assert_int_equal(k->table->table_set(k->h, r, ids[r - 1], &k->e), HB_OK);
    }
    k->io.struct_size = sizeof k->io;
    for (int i = 0; i < 4; i++) {
        struct hb_buf *buf = i < 3 ? &k->io.in[i] : &k->io.out;
        const uint64_t bytes = (uint64_t)(KIT_TOKENS * k->size.width[i]) *
                               (uint64_t)hb_dtype_bytes(k->config.act_dtype);
        if (bytes > 0) { /* else the layer is given a null buffer */
            assert_int_equal(k->table->buf_alloc(k->h, bytes, buf, &k->e), HB_OK);
        }
    }
}

static inline void kit_close(struct kit *k) {
    for (int i = 0; i < 4; i++) {
        k->table->buf_free(k->h, i < 3 ? k->io.in[i] : k->io.out);
    }
    k->table->destroy(k->h);
}

static inline void kit_batch(struct kit *k, int32_t mode) {
    k->b = (struct hb_batch){
        .struct_size = sizeof k->b, .forward_mode = mode, .has_extend_num_tokens = 1};
    memset(k->mask, 0, sizeof k->mask);
}

/* Inputs of one token: functions of request and key. Log decays are negative. */
static inline void kit_feed(struct kit *k, int64_t token, int32_t req, int64_t key) {
    for (int i = 0; i < 3; i++) {
        const int is_decay = k->config.layer_kind[0] == HB_LAYER_LIGHTNING && i == 2;
        for (int64_t c = 0; c < k->size.width[i]; c++) {
            const float x = kit_value(20 + i + 100 * req, key * 64 + c);
            k->in[i][token * k->size.width[i] + c] = is_decay ? -1.0F - x : x;
        }
    }
}

/* n tokens of `req` after `prefix`: a prefill row, in DECODE a row of one, in a verify n nodes. */
static inline int32_t kit_row(struct kit *k, int32_t req, int32_t prefix, int32_t n) {
    const int32_t r = k->b.batch_size++, mode = k->b.forward_mode;
    k->req[r] = req;
    k->count[r] = n;
    k->seq[r] = mode == HB_MODE_TARGET_VERIFY ? prefix : prefix + n;
    if (mode == HB_MODE_EXTEND) {
        k->ext[r] = n;
        k->prefix[r] = prefix;
        k->b.n_extend++;
        k->b.extend_num_tokens += n;
    }
    for (int32_t t = 0; t < n; t++) {
        kit_feed(k, k->b.n_tokens + t, req, prefix + t);
    }
    k->b.n_tokens += n;
    return r;
}

static inline void kit_forward(struct kit *k) {
    unsigned char bytes[4 * KIT_TOKENS * KIT_WIDTH];
    const int32_t n = k->b.batch_size, np = k->b.n_extend, act = k->config.act_dtype;
    const int64_t tokens = k->b.n_tokens;
    k->b.req_pool_indices = (struct hb_i32s){k->req, n};
    k->b.seq_lens = (struct hb_i32s){k->seq, n};
    k->b.extend_seq_lens = (struct hb_i32s){k->ext, np};
    k->b.extend_prefix_lens = (struct hb_i32s){k->prefix, np};
    k->b.mamba_track_mask = (struct hb_u8s){k->mask, n};
    k->b.mamba_track_indices = (struct hb_i64s){k->track, n};
    k->b.mamba_track_seqlens = (struct hb_i64s){k->point, n};
    if (k->table->begin(k->h, &k->b, &k->e) != HB_OK) {
        fail_msg("%s", k->e.text);
    }
    for (int i = 0; i < 3; i++) {
        const int64_t items = tokens * k->size.width[i];
        hb_pack(act, k->in[i], items, bytes);
        assert_int_equal(k->table->buf_write(k->h, k->io.in[i], bytes,
                                             (uint64_t)(items * hb_dtype_bytes(act)), &k->e),
                         HB_OK);
    }
    if (k->table->layer(k->h, 0, &k->io, &k->e) != HB_OK) {
        fail_msg("%s", k->e.text);
    }
    assert_int_equal(k->table->finish(k->h, &k->e), HB_OK);
    const int64_t items = tokens * k->size.width[3];
    assert_int_equal(
        k->table->buf_read(k->h, k->io.out, bytes, (uint64_t)(items * hb_dtype_bytes(act)), &k->e),
        HB_OK);
    hb_unpack(act, bytes, items, k->out);
}

static inline void kit_decode(struct kit *k, int32_t req, int32_t position, int32_t key) {
    kit_batch(k, HB_MODE_DECODE);
    (void)kit_row(k, req, position, 1);
    kit_feed(k, 0, req, key);
    kit_forward(k);
}

/* Index of the region of that name in layer 0, -1: none. */
static inline int32_t kit_region(struct kit *k, const char *name, struct hb_region *out) {
    int32_t n = 0;
    assert_int_equal(k->table->n_regions(k->h, &n, &k->e), HB_OK);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(k->table->region(k->h, i, out, &k->e), HB_OK);
        if (strcmp(out->name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Entry `at` of a region, widened; returns the number of elements, 0 where there is no region. */
static inline int64_t kit_read(struct kit *k, const char *name, int64_t at, float *out) {
    unsigned char bytes[4 * KIT_STATE * 8];
    struct hb_region r;
    const int32_t i = kit_region(k, name, &r);
    if (i < 0) {
        return 0;
    }
    const uint64_t n = r.bytes / (uint64_t)r.shape[0];
    assert_true(n <= sizeof bytes);
    assert_int_equal(k->table->region_read(k->h, i, (uint64_t)at * n, bytes, n, &k->e), HB_OK);
    const int64_t items = (int64_t)n / hb_dtype_bytes(r.dtype);
    hb_unpack(r.dtype, bytes, items, out);
    return items;
}

static inline void kit_assert_slots(struct kit *a, int32_t slot, struct kit *b, int32_t other) {
    static const char *const names[2] = {"conv", "temporal"};
    for (int i = 0; i < 2; i++) {
        float x[KIT_STATE * 8], y[KIT_STATE * 8];
        const int64_t n = kit_read(a, names[i], slot, x);
        assert_int_equal(kit_read(b, names[i], other, y), n);
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
    }
}

#endif
