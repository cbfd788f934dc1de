/* SPDX-License-Identifier: Apache-2.0
 * A small world for whole forwards: an adapter handle on the emulated kernels, requests with
 * positions, inputs as a function of (request, position, layer, channel), and a token-by-token
 * reference. Every value is a small integer, there is no activation, softplus, decay or norm, so
 * every result is exact and compared bit for bit. Included by test programs after cmocka.h. */
#ifndef HB_BACKEND_TESTS_WORLD_H
#define HB_BACKEND_TESTS_WORLD_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/defects.h"
#include "backend/memory.h"
#include "backend/tests/fixture.h"
#include "kernels/fp16.cuh"

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
    int32_t req, len;     /* len 0: a native decode row */
    int32_t dst, n_track; /* dst 0: untracked; n_track: T_i - prefix (extend) */
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

static inline float value(int32_t kind, int32_t req, int32_t pos, int32_t layer, int32_t i) {
    uint32_t x = (uint32_t)kind * 7919U + (uint32_t)req * 104729U + (uint32_t)pos * 1299709U +
                 (uint32_t)layer * 15485863U + (uint32_t)i * 32452843U + 12345U;
    x ^= x >> 13;
    x *= 0x9e3779b1U;
    x ^= x >> 16;
    return kind == 2 ? (float)(x % 2U) : (float)(x % 3U) - 1.0F;
}

static inline uint16_t to_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return (uint16_t)((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
}

static inline void put(void *buf, int64_t i, float x) {
    if (w.config.act_dtype == HB_BF16) {
        ((uint16_t *)buf)[i] = isnan(x) ? 0x7fc0 : to_bf16(x);
    } else if (w.config.act_dtype == HB_FP16) {
        ((uint16_t *)buf)[i] = hb_fp16_from_float(x);
    } else {
        ((float *)buf)[i] = x;
    }
}

static inline float get(const void *buf, int64_t i) {
    if (w.config.act_dtype == HB_FP32) {
        return ((const float *)buf)[i];
    }
    if (w.config.act_dtype == HB_FP16) {
        return hb_fp16_to_float(((const uint16_t *)buf)[i]);
    }
    const uint32_t u = (uint32_t)((const uint16_t *)buf)[i] << 16;
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

static inline int64_t act_bytes(void) {
    return w.config.act_dtype == HB_FP32 ? 4 : 2;
}

/* Rounding error of a stored value of at most 1. */
static inline double act_error(void) {
    static const double errors[HB_N_FLOAT_DTYPES] = {0x1p-24, 0x1p-9, 0x1p-12};
    return errors[w.config.act_dtype];
}

static inline int32_t group_of(int32_t head) {
    return w.config.head_map == HB_HEADS_TILE ? head % G : head / (H / G);
}

/* reference */

struct ref {
    float conv[DIM][W];
    float before[DIM]; /* the input before those: the oldest column of a state of K columns */
    float state[H][P][N];
    float y[INNER];
};

static inline void ref_step(struct ref *r, int32_t req, int32_t pos, int32_t layer) {
    float c[DIM];
    for (int32_t i = 0; i < DIM; i++) {
        const float x = value(1, req, pos, layer, i);
        c[i] = w.conv_bias[i] + w.conv_weight[i * K + W] * x;
        for (int32_t j = 0; j < W; j++) {
            c[i] += w.conv_weight[i * K + j] * r->conv[i][j];
        }
        r->before[i] = r->conv[i][0];
        memmove(&r->conv[i][0], &r->conv[i][1], (W - 1) * sizeof(float));
        r->conv[i][W - 1] = x;
    }
    for (int32_t h = 0; h < H; h++) {
        const float dt = value(2, req, pos, layer, h);
        const int32_t g = group_of(h);
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
static inline struct ref reference(int32_t req, int32_t layer, int32_t n) {
    struct ref r = {0};
    for (int32_t pos = 0; pos < n; pos++) {
        ref_step(&r, req, pos, layer);
    }
    return r;
}

/* world */

static inline void region_at(const char *name, int32_t layer, int32_t *index,
                             struct hb_region *info) {
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

static inline void fill_region(const char *name, int32_t layer, uint8_t byte) {
    static uint8_t bytes[MAX_REGION];
    struct hb_region info = {0};
    int32_t i = 0;
    region_at(name, layer, &i, &info);
    assert_true(info.bytes <= sizeof(bytes));
    memset(bytes, byte, sizeof(bytes));
    assert_int_equal(w.a->region_write(w.h, i, 0, bytes, info.bytes, &w.err), HB_OK);
}

/* Changes of the configuration by tests of one feature, called by open_world. */
static void (*world_config)(struct hb_config *c);

static inline void open_world(int32_t act_dtype, int32_t form, int32_t order, int32_t defect) {
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
    if (world_config != NULL) {
        world_config(c);
    }
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
    const struct hb_layer_params of_layers[LAYERS] = {linear, {0}, linear};
    assert_int_equal(w.a->create(w.a->ctx, &w.config, of_layers, &w.h, &w.err), HB_OK);
    for (int32_t l = 0; l < LAYERS; l += 2) { /* what is read without being written shows */
        fill_region("conv", l, 0xff);
        fill_region("temporal", l, 0xff);
    }
    fill_region("kv_k", 1, 0xff);
    fill_region("kv_v", 1, 0xff);
}

static inline void close_world(void) {
    w.a->destroy(w.h);
    assert_int_equal(hb_alloc_live(), 0);
}

static inline void take(int32_t req) {
    assert_int_equal(w.a->slot_take(w.h, 1, HB_SLOT_LIVE, &w.slot[req], &w.err), HB_OK);
    assert_int_equal(w.a->table_set(w.h, req, w.slot[req], &w.err), HB_OK);
    w.pos[req] = 0;
}

static inline int32_t take_track(void) {
    int32_t id = 0;
    assert_int_equal(w.a->slot_take(w.h, 1, HB_SLOT_TRACK, &id, &w.err), HB_OK);
    return id;
}

/* Batch storage from rows; requests keep their own positions. */
static inline void make_batch(int32_t mode, int32_t n, const struct row *rows, int32_t pad_rows,
                              int32_t pad_tokens) {
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

static inline void make_io(struct io *io, int32_t layer, int32_t n, const struct row *rows) {
    static uint8_t bytes[TOKENS * 64 * 4];
    const int64_t linear[4] = {INNER, DIM, H, INNER};
    const int64_t attn[4] = {HQ * D, D, D, HQ * D};
    memcpy(io->widths, layer == 1 ? attn : linear, sizeof(linear));
    memset(&io->io, 0, sizeof(io->io));
    for (int32_t k = 0; k < 4; k++) {
        const int64_t width = io->widths[k];
        const int32_t total = w.f.batch.n_tokens;
        struct hb_buf *buf = k < 3 ? &io->io.in[k] : &io->io.out;
        assert_int_equal(w.a->buf_alloc(w.h, (uint64_t)(total * width * act_bytes()), buf, &w.err),
                         HB_OK);
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
            assert_int_equal(
                w.a->buf_write(w.h, *buf, bytes, (uint64_t)(total * width * act_bytes()), &w.err),
                HB_OK);
        }
    }
}

static inline void free_io(const struct io *io) {
    for (int32_t k = 0; k < 3; k++) {
        w.a->buf_free(w.h, io->io.in[k]);
    }
    w.a->buf_free(w.h, io->io.out);
}

/* Attention, whose keys are zero: the mean of the values that the token sees, n of them. */
static inline double mean_of_values(int32_t req, int32_t pos, int32_t layer, int32_t i,
                                    int32_t *n) {
    const int32_t window = w.config.attn_window;
    const int32_t is_inclusive = w.config.window_rule == HB_WINDOW_INCLUSIVE;
    double sum = 0;
    *n = 0;
    for (int32_t p = 0; p <= pos; p++) {
        if (window == 0 || pos - p < window || (is_inclusive && pos - p == window)) {
            sum += (double)value(2, req, p, layer, i % D);
            (*n)++;
        }
    }
    return sum / *n;
}

/* Number of output elements that differ from the reference. Attention is a mean: n additions of exact values, one division and one rounding of each are
 * within (n + 4) u of it. */
static inline int32_t count_wrong(const struct io *io, int32_t layer, int32_t n,
                                  const struct row *rows) {
    static uint8_t out[TOKENS * 64 * 4];
    const int64_t width = io->widths[3];
    const int32_t total = w.f.batch.n_tokens;
    int32_t wrong = 0;
    int64_t t = 0;
    assert_int_equal(
        w.a->buf_read(w.h, io->io.out, out, (uint64_t)(total * width * act_bytes()), &w.err),
        HB_OK);
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
                int32_t n_keys;
                const double want = mean_of_values(req, n_ctx - 1, layer, i, &n_keys);
                const double got = (double)get(out, t * width + i);
                wrong += !(fabs(got - want) <= (n_keys + 4) * 0x1p-24 + act_error());
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
static inline int32_t state_is(int32_t slot, int32_t req, int32_t n) {
    int32_t same = 1;
    for (int32_t l = 0; l < LAYERS; l += 2) {
        struct hb_region info = {0};
        int32_t i = 0;
        uint8_t conv[DIM * K * 4], want[DIM * K * 4];
        const int32_t columns = w.config.conv_state_len == HB_CONV_STATE_FULL ? K : W;
        float temporal[H * P * N];
        const struct ref ref = reference(req, l, n);
        const uint64_t conv_bytes = (uint64_t)(DIM * columns * act_bytes());
        for (int32_t k = 0; k < DIM * columns; k++) {
            const int32_t column = k % columns - (columns - W);
            put(want, k, column < 0 ? ref.before[k / columns] : ref.conv[k / columns][column]);
        }
        region_at("conv", l, &i, &info);
        assert_int_equal(
            w.a->region_read(w.h, i, (uint64_t)slot * conv_bytes, conv, conv_bytes, &w.err), HB_OK);
        region_at("temporal", l, &i, &info);
        assert_int_equal(w.a->region_read(w.h, i, (uint64_t)slot * sizeof(temporal), temporal,
                                          sizeof(temporal), &w.err),
                         HB_OK);
        for (int32_t k = 0; k < DIM * columns; k++) {
            same &= get(conv, k) == get(want, k);
        }
        for (int32_t k = 0; k < H * P * N; k++) {
            const int32_t transposed = (k / (P * N) * N + k % N) * P + k / N % P;
            const int32_t at = w.config.state_layout == HB_STATE_KV ? transposed : k;
            same &= temporal[at] == ((const float *)ref.state)[k];
        }
    }
    return same;
}

/* All persistent bytes. */
static inline size_t dump(uint8_t *out, size_t cap) {
    int32_t n = 0;
    size_t used = 0;
    assert_int_equal(w.a->n_regions(w.h, &n, &w.err), HB_OK);
    for (int32_t i = 0; i < n; i++) {
        struct hb_region info = {0};
        assert_int_equal(w.a->region(w.h, i, &info, &w.err), HB_OK);
        assert_true(used + info.bytes <= cap);
        assert_int_equal(w.a->region_read(w.h, i, 0, out + used, info.bytes, &w.err), HB_OK);
        used += info.bytes;
    }
    return used;
}

/* For dumps before and after; not every test has some. */
__attribute__((unused)) static uint8_t dump_a[8 * MAX_REGION], dump_b[8 * MAX_REGION];

/* begin, all layers, finish of the batch that was made; returns wrong output elements. */
static inline int32_t run_batch(int32_t n, const struct row *rows) {
    int32_t wrong = 0;
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

static inline int32_t forward(int32_t mode, int32_t n, const struct row *rows, int32_t pad_rows,
                              int32_t pad_tokens) {
    make_batch(mode, n, rows, pad_rows, pad_tokens);
    return run_batch(n, rows);
}

/* Entry i of an int32 table. */
static inline int32_t table_at(const char *name, int32_t i) {
    struct hb_region info = {0};
    int32_t region = 0;
    int32_t x = 0;
    region_at(name, -1, &region, &info);
    assert_int_equal(
        w.a->region_read(w.h, region, (uint64_t)i * sizeof(x), &x, sizeof(x), &w.err), HB_OK);
    return x;
}

static inline void check_error(int32_t status, int32_t rule, int32_t row) {
    if (status != hb_rule_status(rule) || w.err.rule != rule || w.err.row != row) {
        fail_msg("expected rule %d row %d, got %d row %d: %s", rule, row, w.err.rule, w.err.row,
                 w.err.text);
    }
}

#endif
