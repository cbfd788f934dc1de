/* SPDX-License-Identifier: Apache-2.0
 * Whole forwards through the adapter on the emulated kernels, against a token-by-token reference. Every value is a small
 * integer, there is no activation, softplus, decay or norm, so every result is exact and compared bit for bit. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/defects.h"
#include "backend/memory.h"
#include "backend/tests/fixture.h"

enum {
    H = 4,
    P = 2,
    N = 3,
    G = 2,
    K = 4,
    W = 3,
    C = 4,
    INNER = H * P,
    DIM = INNER + 2 * G * N,
    HQ = 2,
    D = 4,
    LAYERS = 3,
    MAX_REGION = 1 << 15
};

struct row {
    int32_t req, len;      /* len 0: a native decode row */
    int32_t dst, n_track;  /* dst 0: untracked; n_track: T_i - prefix (extend) */
};

struct world {
    const struct hb_adapter *a;
    void *h;
    struct hb_config config;
    float conv_weight[DIM * K], conv_bias[DIM], a_zero[H], d[H];
    struct fixture f; /* batch storage */
    int32_t slot[REQS];
    int32_t pos[REQS];
    struct hb_error err;
};

static struct world w;

static float value(int32_t kind, int32_t req, int32_t pos, int32_t layer, int32_t i) {
    uint32_t x = (uint32_t)kind * 7919U + (uint32_t)req * 104729U + (uint32_t)pos * 1299709U + (uint32_t)layer * 15485863U +
                 (uint32_t)i * 32452843U + 12345U;
    x ^= x >> 13;
    x *= 0x9e3779b1U;
    x ^= x >> 16;
    return kind == 2 ? (float)(x % 2U) : (float)(x % 3U) - 1.0F;
}

static uint16_t to_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return (uint16_t)((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
}

static void put(void *buf, int64_t i, float x) {
    if (w.config.act_dtype == HB_BF16) {
        ((uint16_t *)buf)[i] = isnan(x) ? 0x7fc0 : to_bf16(x);
    } else {
        ((float *)buf)[i] = x;
    }
}

static float get(const void *buf, int64_t i) {
    if (w.config.act_dtype != HB_BF16) {
        return ((const float *)buf)[i];
    }
    const uint32_t u = (uint32_t)((const uint16_t *)buf)[i] << 16;
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

static int64_t act_bytes(void) {
    return w.config.act_dtype == HB_BF16 ? 2 : 4;
}

/* --- reference ---------------------------------------------------------------------------------------------------- */

struct ref {
    float conv[DIM][W];
    float state[H][P][N];
    float y[INNER];
};

static void ref_step(struct ref *r, int32_t req, int32_t pos, int32_t layer) {
    float c[DIM];
    for (int32_t i = 0; i < DIM; i++) {
        const float x = value(1, req, pos, layer, i);
        c[i] = w.conv_bias[i] + w.conv_weight[i * K + W] * x;
        for (int32_t j = 0; j < W; j++) {
            c[i] += w.conv_weight[i * K + j] * r->conv[i][j];
        }
        memmove(&r->conv[i][0], &r->conv[i][1], (W - 1) * sizeof(float));
        r->conv[i][W - 1] = x;
    }
    for (int32_t h = 0; h < H; h++) {
        const float dt = value(2, req, pos, layer, h);
        const int32_t g = h / (H / G);
        for (int32_t p = 0; p < P; p++) {
            const float x = c[h * P + p];
            float y = w.d[h] * x;
            for (int32_t n = 0; n < N; n++) {
                r->state[h][p][n] += dt * x * c[INNER + g * N + n];
                y += r->state[h][p][n] * c[INNER + G * N + g * N + n];
            }
            r->y[h * P + p] = y;
        }
    }
}

/* State after n tokens, y of the last of them. */
static struct ref reference(int32_t req, int32_t layer, int32_t n) {
    struct ref r = {0};
    for (int32_t pos = 0; pos < n; pos++) {
        ref_step(&r, req, pos, layer);
    }
    return r;
}

/* --- world -------------------------------------------------------------------------------------------------------- */

static void region_at(const char *name, int32_t layer, int32_t *index, struct hb_region *info) {
    int32_t n = 0;
    assert_int_equal(w.a->n_regions(w.h, &n, &w.err), HB_OK);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(w.a->region(w.h, i, info, &w.err), HB_OK);
        if (strcmp(info->name, name) == 0 && info->layer == layer) {
            *index = i;
            return;
        }
    }
    fail_msg("no region %s of layer %d", name, layer);
}

static void fill_region(const char *name, int32_t layer, uint8_t byte) {
    static uint8_t bytes[MAX_REGION];
    struct hb_region info;
    int32_t i = 0;
    region_at(name, layer, &i, &info);
    assert_true(info.bytes <= sizeof(bytes));
    memset(bytes, byte, sizeof(bytes));
    assert_int_equal(w.a->region_write(w.h, i, 0, bytes, info.bytes, &w.err), HB_OK);
}

static void open_world(int32_t act_dtype, int32_t form, int32_t order, int32_t defect) {
    memset(&w, 0, sizeof(w));
    w.a = hb_adapter_emu();
    fixture_tables(&w.f);
    struct hb_config *c = &w.f.config;
    c->conv_act = HB_CONV_NONE;
    c->dt_softplus = 0;
    c->gate_norm = HB_GATE_NORM_NONE;
    c->act_dtype = act_dtype;
    c->kernel_form = form;
    c->thread_order = c->block_order = order;
    c->order_seed = 5;
    c->defect = defect;
    w.config = *c;
    for (int32_t i = 0; i < DIM * K; i++) {
        w.conv_weight[i] = value(5, i, 0, 0, 0);
    }
    for (int32_t i = 0; i < DIM; i++) {
        w.conv_bias[i] = value(6, i, 0, 0, 0);
    }
    for (int32_t i = 0; i < H; i++) {
        w.d[i] = (float)(i - 1);
    }
    const struct hb_layer_params linear = {
        .conv_weight = w.conv_weight, .conv_bias = w.conv_bias, .a = w.a_zero, .d = w.d};
    const struct hb_layer_params params[LAYERS] = {linear, {0}, linear};
    assert_int_equal(w.a->create(w.a->ctx, &w.config, params, &w.h, &w.err), HB_OK);
    for (int32_t l = 0; l < LAYERS; l += 2) { /* what is read without being written shows */
        fill_region("conv", l, 0xff);
        fill_region("temporal", l, 0xff);
    }
    fill_region("kv_k", 1, 0xff);
    fill_region("kv_v", 1, 0xff);
}

static void close_world(void) {
    w.a->destroy(w.h);
    assert_int_equal(hb_alloc_live(), 0);
}

static void take(int32_t req) {
    assert_int_equal(w.a->slot_take(w.h, 1, HB_SLOT_LIVE, &w.slot[req], &w.err), HB_OK);
    assert_int_equal(w.a->table_set(w.h, req, w.slot[req], &w.err), HB_OK);
    w.pos[req] = 0;
}

static int32_t take_track(void) {
    int32_t id = 0;
    assert_int_equal(w.a->slot_take(w.h, 1, HB_SLOT_TRACK, &id, &w.err), HB_OK);
    return id;
}

/* Batch storage from rows; requests keep their own positions. */
static void make_batch(int32_t mode, int32_t n, const struct row *rows, int32_t pad_rows, int32_t pad_tokens) {
    struct fixture *f = &w.f;
    int32_t prefix[ROWS], len[ROWS], seq[ROWS];
    int32_t np = 0;
    int32_t t = 0;
    for (int32_t r = 0; r < n; r++) {
        np += rows[r].len > 0;
        prefix[r] = w.pos[rows[r].req];
        len[r] = rows[r].len;
        seq[r] = prefix[r] + 1;
    }
    memset(f->mask, 0, sizeof(f->mask));
    memset(f->req, 0, sizeof(f->req));
    fixture_batch(f, mode, np, prefix, len, n - np, seq + np, pad_rows, pad_tokens);
    for (int32_t r = 0; r < n; r++) {
        f->req[r] = rows[r].req;
        for (int32_t j = 0; j < (rows[r].len > 0 ? rows[r].len : 1); j++) {
            f->loc[t++] = f->table[rows[r].req * CONTEXT + prefix[r] + j];
        }
        if (rows[r].dst != 0) {
            fixture_track(f, r, rows[r].dst, prefix[r] + rows[r].n_track);
        }
    }
    for (int32_t j = 0; j < pad_rows; j++) {
        f->req[n + j] = 0;
    }
}

struct io {
    struct hb_layer_io io;
    int64_t widths[4];
};

static void make_io(struct io *io, int32_t layer, int32_t n, const struct row *rows) {
    static uint8_t bytes[TOKENS * 64 * 4];
    const int64_t linear[4] = {INNER, DIM, H, INNER};
    const int64_t attn[4] = {HQ * D, D, D, HQ * D};
    memcpy(io->widths, layer == 1 ? attn : linear, sizeof(linear));
    memset(&io->io, 0, sizeof(io->io));
    for (int32_t k = 0; k < 4; k++) {
        const int64_t width = io->widths[k];
        const int32_t total = w.f.batch.n_tokens;
        struct hb_buf *buf = k < 3 ? &io->io.in[k] : &io->io.out;
        assert_int_equal(w.a->buf_alloc(w.h, (uint64_t)(total * width * act_bytes()), buf, &w.err), HB_OK);
        int32_t t = 0;
        for (int32_t r = 0; r < n; r++) {
            for (int32_t j = 0; j < (rows[r].len > 0 ? rows[r].len : 1); j++, t++) {
                for (int32_t i = 0; i < width; i++) {
                    const float x = value(k, rows[r].req, w.pos[rows[r].req] + j, layer, i);
                    put(bytes, t * width + i, layer == 1 && k == 1 ? 0.0F : x);
                }
            }
        }
        for (; t < total; t++) {
            for (int32_t i = 0; i < width; i++) {
                put(bytes, t * width + i, NAN);
            }
        }
        if (k < 3) {
            assert_int_equal(w.a->buf_write(w.h, *buf, bytes, (uint64_t)(total * width * act_bytes()), &w.err), HB_OK);
        }
    }
}

static void free_io(const struct io *io) {
    for (int32_t k = 0; k < 3; k++) {
        w.a->buf_free(w.h, io->io.in[k]);
    }
    w.a->buf_free(w.h, io->io.out);
}

/* Number of output elements that differ from the reference. Attention: keys are zero, so the output is the mean of the
 * values; n additions of exact values, one division and one rounding of each are within (n + 4) u of it. */
static int32_t count_wrong(const struct io *io, int32_t layer, int32_t n, const struct row *rows) {
    static uint8_t out[TOKENS * 64 * 4];
    const int64_t width = io->widths[3];
    const int32_t total = w.f.batch.n_tokens;
    int32_t wrong = 0;
    int64_t t = 0;
    assert_int_equal(w.a->buf_read(w.h, io->io.out, out, (uint64_t)(total * width * act_bytes()), &w.err), HB_OK);
    for (int32_t r = 0; r < n; r++) {
        const int32_t req = rows[r].req;
        for (int32_t j = 0; j < (rows[r].len > 0 ? rows[r].len : 1); j++, t++) {
            const int32_t n_ctx = w.pos[req] + j + 1;
            if (layer != 1) {
                const struct ref ref = reference(req, layer, n_ctx);
                uint8_t one[4];
                for (int32_t i = 0; i < width; i++) {
                    put(one, 0, ref.y[i]);
                    wrong += get(one, 0) != get(out, t * width + i);
                }
                continue;
            }
            for (int32_t i = 0; i < width; i++) {
                double sum = 0;
                for (int32_t p = 0; p < n_ctx; p++) {
                    sum += (double)value(2, req, p, layer, i % D);
                }
                const double u = w.config.act_dtype == HB_BF16 ? 0x1p-9 : 0x1p-24;
                const double got = (double)get(out, t * width + i);
                wrong += !(fabs(got - sum / n_ctx) <= (n_ctx + 4) * 0x1p-24 + u);
            }
        }
    }
    for (; t < total; t++) {
        for (int32_t i = 0; i < width; i++) {
            wrong += get(out, t * width + i) != 0.0F;
        }
    }
    return wrong;
}

/* Slot holds the state of req after n tokens, in both linear layers. */
static int32_t state_is(int32_t slot, int32_t req, int32_t n) {
    int32_t same = 1;
    for (int32_t l = 0; l < LAYERS; l += 2) {
        struct hb_region info;
        int32_t i = 0;
        uint8_t conv[DIM * W * 4], want[DIM * W * 4];
        float temporal[H * P * N];
        const struct ref ref = reference(req, l, n);
        const uint64_t conv_bytes = (uint64_t)(DIM * W * act_bytes());
        for (int32_t k = 0; k < DIM * W; k++) {
            put(want, k, ref.conv[k / W][k % W]);
        }
        region_at("conv", l, &i, &info);
        assert_int_equal(w.a->region_read(w.h, i, (uint64_t)slot * conv_bytes, conv, conv_bytes, &w.err), HB_OK);
        region_at("temporal", l, &i, &info);
        assert_int_equal(
            w.a->region_read(w.h, i, (uint64_t)slot * sizeof(temporal), temporal, sizeof(temporal), &w.err), HB_OK);
        for (int32_t k = 0; k < DIM * W; k++) {
            same &= get(conv, k) == get(want, k);
        }
        for (int32_t k = 0; k < H * P * N; k++) {
            same &= temporal[k] == ((const float *)ref.state)[k];
        }
    }
    return same;
}

/* All persistent bytes. */
static size_t dump(uint8_t *out, size_t cap) {
    int32_t n = 0;
    size_t used = 0;
    assert_int_equal(w.a->n_regions(w.h, &n, &w.err), HB_OK);
    for (int32_t i = 0; i < n; i++) {
        struct hb_region info;
        assert_int_equal(w.a->region(w.h, i, &info, &w.err), HB_OK);
        assert_true(used + info.bytes <= cap);
        assert_int_equal(w.a->region_read(w.h, i, 0, out + used, info.bytes, &w.err), HB_OK);
        used += info.bytes;
    }
    return used;
}

static uint8_t dump_a[8 * MAX_REGION], dump_b[8 * MAX_REGION];

/* begin, all layers, finish; returns wrong output elements. */
static int32_t forward(int32_t mode, int32_t n, const struct row *rows, int32_t pad_rows, int32_t pad_tokens) {
    int32_t wrong = 0;
    make_batch(mode, n, rows, pad_rows, pad_tokens);
    if (w.a->begin(w.h, &w.f.batch, &w.err) != HB_OK) {
        fail_msg("begin: %s", w.err.text);
    }
    for (int32_t l = LAYERS - 1; l >= 0; l--) {
        struct io io;
        make_io(&io, l, n, rows);
        if (w.a->layer(w.h, l, &io.io, &w.err) != HB_OK) {
            fail_msg("layer %d: %s", l, w.err.text);
        }
        wrong += count_wrong(&io, l, n, rows);
        free_io(&io);
    }
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    for (int32_t r = 0; r < n; r++) {
        w.pos[rows[r].req] += rows[r].len > 0 ? rows[r].len : 1;
    }
    return wrong;
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

/* A history over all modes; returns wrong outputs plus wrong states. */
static int32_t history(void) {
    int32_t wrong = 0;
    for (int32_t req = 1; req <= 4; req++) {
        take(req);
    }
    const int32_t track = take_track();
    const int32_t track2 = take_track();
    wrong += forward(HB_MODE_EXTEND, 3, (const struct row[]){{2, 11, track, 9}, {1, 2, 0, 0}, {3, 5, 0, 0}}, 2, 3);
    wrong += !state_is(track, 2, 8);
    wrong += !state_is(w.slot[2], 2, 11);
    wrong += !state_is(w.slot[1], 1, 2);
    /* short continuation, mask present but false for it */
    wrong += forward(HB_MODE_SPLIT_PREFILL, 2, (const struct row[]){{1, 1, 0, 0}, {2, 9, track, 8}}, 0, 0);
    wrong += !state_is(track, 2, 19);
    wrong += forward(HB_MODE_MIXED, 3, (const struct row[]){{4, 6, 0, 0}, {3, 0, 0, 0}, {1, 0, 0, 0}}, 1, 1);
    wrong += forward(HB_MODE_DECODE, 3, (const struct row[]){{3, 0, 0, 0}, {2, 0, track2, 0}, {1, 0, 0, 0}}, 2, 4);
    wrong += !state_is(track2, 2, 21);
    wrong += !state_is(track, 2, 19);
    wrong += forward(HB_MODE_DLLM_EXTEND, 1, (const struct row[]){{4, 8, track, 8}}, 0, 0);
    wrong += !state_is(track, 4, 14);
    for (int32_t req = 1; req <= 4; req++) {
        wrong += !state_is(w.slot[req], req, w.pos[req]);
    }
    /* restart request 2 from its checkpoint at 21, on a new slot */
    const int32_t old = w.slot[2];
    take(2);
    assert_int_not_equal(old, w.slot[2]);
    assert_int_equal(w.a->slot_copy(w.h, track2, w.slot[2], &w.err), HB_OK);
    w.pos[2] = 21;
    wrong += forward(HB_MODE_EXTEND, 1, (const struct row[]){{2, 5, 0, 0}}, 0, 0);
    wrong += !state_is(w.slot[2], 2, 26);
    return wrong;
}

static void hybrid_history_is_exact_in_every_build(void **state) {
    (void)state;
    for (int32_t dtype = 0; dtype < HB_N_FLOAT_DTYPES; dtype++) {
        for (int32_t form = 0; form < HB_N_FORMS; form++) {
            for (int32_t order = 0; order < HB_N_ORDERS; order++) {
                open_world(dtype, form, order, 0);
                assert_int_equal(history(), 0);
                assert_true(w.a->launches(w.h) > 0);
                close_world();
            }
        }
    }
}

static void hybrid_host_defects_are_seen(void **state) {
    (void)state;
    const int32_t defects[] = {HB_DEFECT_INIT_STATE_MASK, HB_DEFECT_TRACK_POSITION};
    for (size_t i = 0; i < 2; i++) {
        open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, defects[i]);
        const int32_t wrong = history();
        assert_int_equal(wrong > 0, HB_DEFECT(defects[i], INIT_STATE_MASK) || HB_DEFECT(defects[i], TRACK_POSITION));
        close_world();
    }
}

static void hybrid_other_slots_keep_their_bytes(void **state) {
    (void)state;
    open_world(HB_FP32, HB_FORM_FAST, HB_ORDER_RANDOM, 0);
    take(1);
    take(3);
    struct hb_region info;
    int32_t i = 0;
    region_at("temporal", 0, &i, &info);
    float pool_before[(SLOTS + 1) * H * P * N], pool_after[(SLOTS + 1) * H * P * N];
    (void)forward(HB_MODE_EXTEND, 1, (const struct row[]){{3, 9, 0, 0}}, 0, 0);
    assert_int_equal(w.a->region_read(w.h, i, 0, pool_before, sizeof(pool_before), &w.err), HB_OK);
    (void)forward(HB_MODE_EXTEND, 1, (const struct row[]){{1, 9, 0, 0}}, 2, 2);
    assert_int_equal(w.a->region_read(w.h, i, 0, pool_after, sizeof(pool_after), &w.err), HB_OK);
    for (int32_t s = 0; s <= SLOTS; s++) {
        const int same = memcmp(pool_before + s * H * P * N, pool_after + s * H * P * N, sizeof(float) * H * P * N) == 0;
        assert_int_equal(same, s != w.slot[1]);
    }
    close_world();
}

static void hybrid_idle_writes_zero_and_no_state(void **state) {
    (void)state;
    open_world(HB_BF16, HB_FORM_FAST, HB_ORDER_ASCENDING, 0);
    take(1);
    (void)forward(HB_MODE_EXTEND, 1, (const struct row[]){{1, 5, 0, 0}}, 0, 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    assert_int_equal(forward(HB_MODE_IDLE, 0, NULL, 3, 4), 0);
    assert_int_equal(forward(HB_MODE_IDLE, 0, NULL, 0, 0), 0);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    close_world();
}

static void check_error(int32_t status, int32_t rule, int32_t row) {
    if (status != hb_rule_status(rule) || w.err.rule != rule || w.err.row != row) {
        fail_msg("expected rule %d row %d, got %d row %d: %s", rule, row, w.err.rule, w.err.row, w.err.text);
    }
}

static void hybrid_layer_and_finish_rules(void **state) {
    (void)state;
    struct io io;
    const struct row rows[] = {{1, 5, 0, 0}};
    open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    take(1);
    check_error(w.a->layer(NULL, 0, NULL, &w.err), HB_RULE_HANDLE_NULL, -1);
    check_error(w.a->finish(NULL, &w.err), HB_RULE_HANDLE_NULL, -1);
    check_error(w.a->begin(NULL, NULL, &w.err), HB_RULE_HANDLE_NULL, -1);
    check_error(w.a->begin(w.h, NULL, &w.err), HB_RULE_BATCH_NULL, -1);
    check_error(w.a->layer(w.h, 77, NULL, &w.err), HB_RULE_NO_METADATA, -1);
    check_error(w.a->finish(w.h, &w.err), HB_RULE_NO_METADATA, -1);
    make_batch(HB_MODE_EXTEND, 1, rows, 1, 1);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    make_io(&io, 0, 1, rows);
    const size_t n = dump(dump_a, sizeof(dump_a));
    check_error(w.a->layer(w.h, 0, NULL, &w.err), HB_RULE_IO_NULL, 0);
    struct hb_layer_io bad = io.io;
    memset(&bad.in[2], 0, sizeof(bad.in[2]));
    check_error(w.a->layer(w.h, 99, &bad, &w.err), HB_RULE_IO_NULL, 2);
    memset(&bad.out, 0, sizeof(bad.out));
    bad.in[2] = io.io.in[2];
    check_error(w.a->layer(w.h, 0, &bad, &w.err), HB_RULE_IO_NULL, 3);
    bad.out = io.io.out;
    bad.in[1].bytes--;
    bad.out.bytes = 0;
    check_error(w.a->layer(w.h, 0, &bad, &w.err), HB_RULE_IO_BYTES, 1);
    assert_true(w.err.limit == 6 * DIM * 4 && w.err.value == 6 * DIM * 4 - 1);
    bad.in[1] = io.io.in[1];
    bad.out = io.io.out;
    bad.out.offset = 4; /* says more than the allocation holds */
    check_error(w.a->layer(w.h, 0, &bad, &w.err), HB_RULE_IO_BYTES, 3);
    check_error(w.a->layer(w.h, LAYERS, &io.io, &w.err), HB_RULE_LAYER_RANGE, -1);
    check_error(w.a->layer(w.h, -1, &io.io, &w.err), HB_RULE_LAYER_RANGE, -1);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    assert_int_equal(w.a->layer(w.h, 0, &io.io, &w.err), HB_OK);
    check_error(w.a->layer(w.h, 0, NULL, &w.err), HB_RULE_LAYER_TWICE, -1);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    check_error(w.a->finish(w.h, &w.err), HB_RULE_NO_METADATA, -1);
    check_error(w.a->layer(w.h, 0, &io.io, &w.err), HB_RULE_NO_METADATA, -1);
    free_io(&io);
    close_world();
}

static void hybrid_entries(void **state) {
    (void)state;
    struct io io;
    const struct row rows[] = {{1, 5, 0, 0}};
    for (int32_t direction = -1; direction < 3; direction++) {
        open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
        take(1);
        const struct hb_adapter *a = w.a;
        check_error(a->entry(NULL, HB_ENTRY_CHILD, direction, 0, NULL, &w.err), HB_RULE_ENTRY_REFUSED, -1);
        assert_string_equal(w.err.text, HB_SEED_A_TEXT);
        check_error(a->entry(w.h, HB_ENTRY_CHILD, direction, -5, NULL, &w.err), HB_RULE_ENTRY_REFUSED, -1);
        check_error(a->entry(NULL, HB_ENTRY_WRAPPER, direction, 0, NULL, &w.err), HB_RULE_HANDLE_NULL, -1);
        check_error(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 0, NULL, &w.err), HB_RULE_ENTRY_REFUSED, -1);
        check_error(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 1, NULL, &w.err), HB_RULE_NO_METADATA, -1);
        check_error(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 9, NULL, &w.err), HB_RULE_NO_METADATA, -1);
        make_batch(HB_MODE_EXTEND, 1, rows, 0, 1);
        assert_int_equal(a->begin(w.h, &w.f.batch, &w.err), HB_OK);
        make_io(&io, 1, 1, rows);
        check_error(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 2, &io.io, &w.err), HB_RULE_ENTRY_REFUSED, -1);
        check_error(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 1, NULL, &w.err), HB_RULE_IO_NULL, 0);
        check_error(a->entry(w.h, 55, direction, LAYERS, &io.io, &w.err), HB_RULE_LAYER_RANGE, -1);
        assert_int_equal(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 1, &io.io, &w.err), HB_OK);
        assert_int_equal(count_wrong(&io, 1, 1, rows), 0);
        check_error(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 1, &io.io, &w.err), HB_RULE_LAYER_TWICE, -1);
        check_error(a->layer(w.h, 1, &io.io, &w.err), HB_RULE_LAYER_TWICE, -1);
        free_io(&io);
        make_batch(HB_MODE_IDLE, 0, NULL, 2, 3);
        assert_int_equal(a->begin(w.h, &w.f.batch, &w.err), HB_OK);
        for (int32_t l = 0; l < LAYERS; l++) {
            make_io(&io, l, 0, NULL);
            for (int32_t again = 0; again < 2; again++) { /* nothing runs, so nothing has run */
                assert_int_equal(a->entry(w.h, HB_ENTRY_WRAPPER, direction, l, &io.io, &w.err), HB_OK);
                assert_int_equal(count_wrong(&io, l, 0, NULL), 0);
            }
            free_io(&io);
        }
        close_world();
    }
}

static void hybrid_failing_begin_keeps_metadata_and_bytes(void **state) {
    (void)state;
    struct io io;
    const struct row rows[] = {{1, 5, 0, 0}};
    open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    take(1);
    make_batch(HB_MODE_EXTEND, 1, rows, 0, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    const size_t n = dump(dump_a, sizeof(dump_a));
    w.f.batch.forward_mode = 7;
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_MODE_INVALID, -1);
    w.f.batch.forward_mode = 1;
    w.f.req[0] = 5; /* an unmapped request */
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_SLOT_RANGE, 0);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    memset(&w.f.ext, 0xff, sizeof(w.f.ext)); /* the batch is the caller's again after begin */
    make_batch(HB_MODE_EXTEND, 1, rows, 0, 0);
    make_io(&io, 0, 1, rows);
    assert_int_equal(w.a->layer(w.h, 0, &io.io, &w.err), HB_OK);
    assert_int_equal(count_wrong(&io, 0, 1, rows), 0);
    free_io(&io);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    close_world();
}

static void hybrid_impure_error_defect_writes(void **state) {
    (void)state;
    const struct row rows[] = {{1, 5, 0, 0}};
    open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, HB_DEFECT_IMPURE_ERROR);
    make_batch(HB_MODE_EXTEND, 1, rows, 0, 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_SLOT_RANGE, 0);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_int_equal(memcmp(dump_a, dump_b, n) != 0, HB_DEFECT(w.config.defect, IMPURE_ERROR));
    close_world();
}

static void hybrid_begin_twice_is_begin_once(void **state) {
    (void)state;
    open_world(HB_FP32, HB_FORM_FAST, HB_ORDER_ASCENDING, 0);
    take(1);
    const int32_t track = take_track();
    const struct row rows[] = {{1, 9, track, 8}};
    make_batch(HB_MODE_EXTEND, 1, rows, 0, 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    assert_int_equal(forward(HB_MODE_EXTEND, 1, rows, 0, 0), 0);
    assert_true(state_is(track, 1, 8));
    close_world();
}

/* Only layers that ran are copied by decode tracking. */
static void hybrid_decode_tracking_copies_layers_that_ran(void **state) {
    (void)state;
    struct io io;
    float before[H * P * N], after[H * P * N];
    open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    take(1);
    const int32_t track = take_track();
    (void)forward(HB_MODE_EXTEND, 1, (const struct row[]){{1, 5, 0, 0}}, 0, 0);
    const struct row rows[] = {{1, 0, track, 0}};
    make_batch(HB_MODE_DECODE, 1, rows, 0, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    make_io(&io, 2, 1, rows);
    assert_int_equal(w.a->layer(w.h, 2, &io.io, &w.err), HB_OK);
    free_io(&io);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    for (int32_t l = 0; l < LAYERS; l += 2) {
        struct hb_region info;
        int32_t i = 0;
        region_at("temporal", l, &i, &info);
        (void)w.a->region_read(w.h, i, (uint64_t)w.slot[1] * sizeof(before), before, sizeof(before), &w.err);
        (void)w.a->region_read(w.h, i, (uint64_t)track * sizeof(after), after, sizeof(after), &w.err);
        const struct ref zero = {0};
        assert_memory_equal(after, l == 2 ? before : (const float *)zero.state, sizeof(after));
    }
    close_world();
}

static void hybrid_dummy_rows_share_slot_zero(void **state) {
    (void)state;
    open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    const struct row rows[] = {{5, 0, 0, 0}, {6, 0, 0, 0}};
    take(1);
    (void)forward(HB_MODE_EXTEND, 1, (const struct row[]){{1, 5, 0, 0}}, 0, 0);
    make_batch(HB_MODE_DECODE, 2, rows, 0, 0);
    w.f.batch.is_dummy = 1;
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    struct io io;
    make_io(&io, 0, 2, rows);
    assert_int_equal(w.a->layer(w.h, 0, &io.io, &w.err), HB_OK);
    free_io(&io);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    assert_true(state_is(w.slot[1], 1, 5));
    close_world();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hybrid_history_is_exact_in_every_build),
        cmocka_unit_test(hybrid_host_defects_are_seen),
        cmocka_unit_test(hybrid_other_slots_keep_their_bytes),
        cmocka_unit_test(hybrid_idle_writes_zero_and_no_state),
        cmocka_unit_test(hybrid_layer_and_finish_rules),
        cmocka_unit_test(hybrid_entries),
        cmocka_unit_test(hybrid_failing_begin_keeps_metadata_and_bytes),
        cmocka_unit_test(hybrid_impure_error_defect_writes),
        cmocka_unit_test(hybrid_begin_twice_is_begin_once),
        cmocka_unit_test(hybrid_decode_tracking_copies_layers_that_ran),
        cmocka_unit_test(hybrid_dummy_rows_share_slot_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
