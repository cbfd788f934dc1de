/* SPDX-License-Identifier: Apache-2.0
 * Whole forwards of every linear kind through the adapter: a prompt in one piece, in pieces and token
 * by token; verify and commit against decode steps, bit for bit; checkpoints; graphs; entries,
 * regions and buffers of each kind. Token p of every request is the same, so that two requests can be
 * compared. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "backend/config.h"
#include "backend/tests/world.h"

enum {
    N_LAYERS = 2,
    N_VARIANTS = 10,
    MAX_PARAM = 80,
    MAX_WIDTH = 32,
    MAX_STATE = 256,
    STRANGE = 20 /* token p + STRANGE: another one than p */
};

static const int32_t linear_kinds[] = {HB_LAYER_MAMBA2,    HB_LAYER_GDN,        HB_LAYER_KDA,
                                       HB_LAYER_LIGHTNING, HB_LAYER_SHORT_CONV, HB_LAYER_MAMBA1};
enum { N_KINDS = sizeof linear_kinds / sizeof *linear_kinds };

static float params[N_LAYERS][HB_N_PARAMS][MAX_PARAM];
static float output[N_LAYERS][TOKENS][INNER]; /* of the last batch */
static int32_t position[TOKENS];              /* of the batch's tokens, -1: padding */
static struct hb_layer_io buffers[N_LAYERS];

/* In (-1, 1). */
static float content(int32_t k, int32_t pos, int32_t layer, int32_t i) {
    uint32_t x = (uint32_t)k * 7919U + (uint32_t)pos * 1299709U + (uint32_t)layer * 15485863U +
                 (uint32_t)i * 32452843U + 99U;
    x ^= x >> 13;
    x *= 0x9e3779b1U;
    x ^= x >> 16;
    return (float)(x >> 8) * 0x1p-23F - 1.0F;
}

static void set_variant(struct hb_config *c, int32_t kind, int32_t v) {
    fixture_config(c);
    c->n_layers = N_LAYERS;
    c->layer_kind[0] = c->layer_kind[1] = kind;
    c->state_layout = v % 2;
    c->head_map = v / 2 % 2;
    c->conv_state_len = v / 4 % 2;
    c->conv_act = v / 2 % 2;
    c->gate_norm = v % HB_N_GATE_NORMS;
    c->out_gate = v / 5 % 2;
    c->l2norm = v % 2; /* without a norm of the keys the delta rule may grow */
    c->beta_form = v / 3 % 2;
    c->gate_form = v / 2 % 2;
    c->gate_bound = -3.0F;
    c->slope_kind = v % HB_N_SLOPE_KINDS;
    c->layer_factor = v % HB_N_LAYER_FACTORS;
    c->qkv_act = v / 2 % 2;
    c->pool_pad = v % 3;
    c->track_by_layer = v / 3 % 2;
    c->graph_rows = 2;
    c->graph_draft = 3;
}

static void open_kind(int32_t kind, int32_t v, int32_t act_dtype, int32_t form, int32_t order) {
    struct hb_layer_params layers[N_LAYERS];
    memset(&w, 0, sizeof(w));
    w.a = hb_adapter_emu();
    fixture_tables(&w.f);
    set_variant(&w.config, kind, v);
    w.config.act_dtype = act_dtype;
    w.config.kernel_form = form;
    w.config.thread_order = w.config.block_order = order;
    for (int32_t l = 0; l < N_LAYERS; l++) {
        for (int32_t i = 0; i < HB_N_PARAMS; i++) {
            for (int32_t j = 0; j < MAX_PARAM; j++) {
                const float x = content(10 + i, 0, l, j);
                params[l][i][j] = i == HB_PARAM_A ? -0.6F - 0.5F * x : x;
            }
        }
        layers[l] = (struct hb_layer_params){params[l][0], params[l][1], params[l][2],
                                             params[l][3], params[l][4], params[l][5]};
    }
    if (w.a->create(w.a->ctx, &w.config, layers, &w.h, &w.err) != HB_OK) {
        fail_msg("create: %s", w.err.text);
    }
}

static int64_t width_of(int32_t i) {
    return hb_config_io_width(&w.config, w.config.layer_kind[0], i);
}

/* Buffers of a layer for n tokens; none where the kind reads none. */
static void make_buffers(int32_t n) {
    for (int32_t l = 0; l < N_LAYERS; l++) {
        memset(&buffers[l], 0, sizeof(buffers[l]));
        buffers[l].struct_size = sizeof(buffers[l]);
        for (int32_t i = 0; i < 4; i++) {
            struct hb_buf *buf = i < 3 ? &buffers[l].in[i] : &buffers[l].out;
            if (width_of(i) > 0) {
                const uint64_t bytes = (uint64_t)(n * width_of(i) * act_bytes());
                assert_int_equal(w.a->buf_alloc(w.h, bytes, buf, &w.err), HB_OK);
            }
        }
    }
}

static void drop_buffers(void) {
    for (int32_t l = 0; l < N_LAYERS; l++) {
        for (int32_t i = 0; i < 3; i++) {
            w.a->buf_free(w.h, buffers[l].in[i]);
        }
        w.a->buf_free(w.h, buffers[l].out);
    }
}

static void write_inputs(void) {
    static uint8_t bytes[TOKENS * MAX_WIDTH * 4];
    const int32_t n = w.f.batch.n_tokens;
    for (int32_t l = 0; l < N_LAYERS; l++) {
        for (int32_t k = 0; k < 3; k++) {
            const int64_t width = width_of(k);
            const int32_t is_log_decay = w.config.layer_kind[0] == HB_LAYER_LIGHTNING && k == 2;
            assert_true(width <= MAX_WIDTH);
            for (int32_t t = 0; t < n; t++) {
                for (int32_t i = 0; i < width; i++) {
                    const float x = content(k, position[t], l, i);
                    put(bytes, t * width + i,
                        position[t] < 0  ? NAN
                        : is_log_decay ? -fabsf(x)
                                       : 2.0F * x);
                }
            }
            if (width > 0) {
                assert_int_equal(w.a->buf_write(w.h, buffers[l].in[k], bytes,
                                                (uint64_t)(n * width * act_bytes()), &w.err),
                                 HB_OK);
            }
        }
    }
}

static void read_outputs(void) {
    static uint8_t bytes[TOKENS * INNER * 4];
    const int32_t n = w.f.batch.n_tokens;
    for (int32_t l = 0; l < N_LAYERS; l++) {
        assert_int_equal(w.a->buf_read(w.h, buffers[l].out, bytes,
                                       (uint64_t)(n * INNER * act_bytes()), &w.err),
                         HB_OK);
        for (int32_t t = 0; t < n; t++) {
            for (int32_t i = 0; i < INNER; i++) {
                output[l][t][i] = get(bytes, t * INNER + i);
                assert_true(isfinite(output[l][t][i]));
                assert_true(position[t] >= 0 || output[l][t][i] == 0.0F);
            }
        }
    }
}

static void run_layers(void) {
    for (int32_t l = 0; l < N_LAYERS; l++) {
        if (w.a->layer(w.h, l, &buffers[l], &w.err) != HB_OK) {
            fail_msg("layer: %s", w.err.text);
        }
    }
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
}

/* Forward of the batch that was made: begin, all layers, finish; outputs stay in output. */
static void run(void) {
    if (w.a->begin(w.h, &w.f.batch, &w.err) != HB_OK) {
        fail_msg("begin: %s", w.err.text);
    }
    make_buffers(w.f.batch.n_tokens);
    write_inputs();
    run_layers();
    read_outputs();
    drop_buffers();
}

/* Rows as make_batch takes them, their positions, and padding behind. */
static void make_rows(int32_t mode, int32_t n, const struct row *rows, int32_t pad_rows,
                      int32_t pad_tokens) {
    int32_t t = 0;
    make_batch(mode, n, rows, pad_rows, pad_tokens);
    for (int32_t r = 0; r < n; r++) {
        for (int32_t j = 0; j < (rows[r].len > 0 ? rows[r].len : 1); j++) {
            position[t++] = w.pos[rows[r].req] + j;
        }
    }
    while (t < w.f.batch.n_tokens) {
        position[t++] = -1;
    }
}

static void run_rows(int32_t mode, int32_t n, const struct row *rows, int32_t pad) {
    make_rows(mode, n, rows, pad, pad);
    run();
    for (int32_t r = 0; r < n; r++) {
        w.pos[rows[r].req] += rows[r].len > 0 ? rows[r].len : 1;
    }
}

static int32_t find_region(const char *name, int32_t layer, struct hb_region *info) {
    int32_t n = 0;
    assert_int_equal(w.a->n_regions(w.h, &n, &w.err), HB_OK);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(w.a->region(w.h, i, info, &w.err), HB_OK);
        if (strcmp(info->name, name) == 0 && info->layer == layer) {
            return i;
        }
    }
    return -1;
}

/* Conv and temporal state of a slot, in all layers; returns the bytes. */
static size_t read_slot(int32_t slot, uint8_t *out) {
    static const char *const names[] = {"conv", "temporal"};
    size_t used = 0;
    for (int32_t l = 0; l < N_LAYERS; l++) {
        for (int32_t k = 0; k < 2; k++) {
            struct hb_region info;
            const int32_t i = find_region(names[k], l, &info);
            if (i >= 0) {
                const uint64_t bytes = info.bytes / (SLOTS + 1);
                assert_int_equal(w.a->region_read(w.h, i, (uint64_t)slot * bytes, out + used,
                                                  bytes, &w.err),
                                 HB_OK);
                used += bytes;
            }
        }
    }
    assert_true(used > 0 && used <= sizeof(float) * N_LAYERS * MAX_STATE);
    return used;
}

static void check_same_slots(int32_t a, int32_t b) {
    uint8_t x[sizeof(float) * N_LAYERS * MAX_STATE], y[sizeof(x)];
    const size_t n = read_slot(a, x);
    assert_int_equal(read_slot(b, y), n);
    assert_memory_equal(x, y, n);
}

/* fp32 states: equal up to the order of sums. */
static void check_near_slots(int32_t a, int32_t b) {
    float x[N_LAYERS * MAX_STATE], y[N_LAYERS * MAX_STATE];
    const size_t n = read_slot(a, (uint8_t *)x) / sizeof(float);
    (void)read_slot(b, (uint8_t *)y);
    for (size_t i = 0; i < n; i++) {
        assert_true(fabsf(x[i] - y[i]) <= 1e-4F * (1.0F + fabsf(x[i])));
    }
}

static void copy_request(int32_t from, int32_t to) {
    take(to);
    assert_int_equal(w.a->slot_copy(w.h, w.slot[from], w.slot[to], &w.err), HB_OK);
    w.pos[to] = w.pos[from];
}

/* A prompt in one piece, with a checkpoint; in two pieces and single tokens; up to the checkpoint. */
static void prompts_in_pieces_give_the_same(void **state) {
    (void)state;
    for (int32_t i = 0; i < N_KINDS * N_VARIANTS; i++) {
        float whole[N_LAYERS][TOKENS][INNER];
        open_kind(linear_kinds[i % N_KINDS], i / N_KINDS, HB_FP32, i / N_KINDS / 2 % 2, i % 3);
        take(1);
        take(2);
        take(3);
        const int32_t dst = take_track();
        run_rows(HB_MODE_EXTEND, 1, (const struct row[]){{1, 11, dst, 9}}, 1);
        memcpy(whole, output, sizeof(whole));
        run_rows(HB_MODE_EXTEND, 2, (const struct row[]){{3, 8, 0, 0}, {2, 4, 0, 0}}, 0);
        check_near_slots(dst, w.slot[3]);
        take(4);
        run_rows(HB_MODE_MIXED, 2, (const struct row[]){{4, 1, 0, 0}, {2, 0, 0, 0}}, 1);
        for (int32_t l = 0; l < N_LAYERS; l++) {
            for (int32_t k = 0; k < INNER; k++) {
                assert_true(fabsf(output[l][1][k] - whole[l][4][k]) <=
                            1e-4F * (1.0F + fabsf(whole[l][4][k])));
                assert_true(fabsf(output[l][0][k] - whole[l][0][k]) <=
                            1e-4F * (1.0F + fabsf(whole[l][0][k])));
            }
        }
        while (w.pos[2] < 11) {
            run_rows(HB_MODE_DECODE, 1, (const struct row[]){{2, 0, 0, 0}}, w.pos[2] % 2);
        }
        check_near_slots(w.slot[1], w.slot[2]);
        close_world();
    }
}

/* Three nodes in a chain, or nodes 0, 2, 4 of a tree, after the tokens of requests 7 and 6. */
static void make_nodes(int32_t is_tree) {
    static const int32_t depth[] = {0, 1, 1, 2, 2};
    const int32_t seq[] = {w.pos[7], w.pos[6]};
    const int32_t draft = is_tree ? 5 : 3;
    memset(w.f.mask, 0, sizeof(w.f.mask));
    fixture_verify(&w.f, draft, 2, seq, NULL, 1);
    if (is_tree) {
        fixture_tree(&w.f);
    }
    for (int32_t t = 0; t < 3 * draft; t++) {
        const int32_t node = t % draft;
        const int32_t place = is_tree ? depth[node] : node;
        const int32_t is_strange = is_tree && node % 2 == 1;
        position[t] = t >= 2 * draft ? -1 : seq[t / draft] + place + (is_strange ? STRANGE : 0);
    }
}

static void commit_step(int32_t step, int32_t track_step, int64_t dst) {
    int32_t steps[2] = {step, -1};
    int32_t track_steps[2] = {track_step, -1};
    int64_t track[2] = {dst, 0};
    const struct hb_commit c = {.struct_size = sizeof(c),
                                .n_rows = 2,
                                .step = {steps, 2},
                                .track_indices = {track, 2},
                                .track_steps = {track_steps, 2}};
    if (w.a->commit(w.h, &c, &w.err) != HB_OK) {
        fail_msg("commit: %s", w.err.text);
    }
}

/* Three decode steps of request 1, with a checkpoint after the second; request 5 is then where that
 * is. */
static void decode_steps(int32_t dst, float steps[3][N_LAYERS][INNER]) {
    for (int32_t t = 0; t < 3; t++) {
        if (t == 2) {
            copy_request(1, 5);
        }
        run_rows(HB_MODE_DECODE, 1, (const struct row[]){{1, 0, t == 1 ? dst : 0, 0}}, 1);
        for (int32_t l = 0; l < N_LAYERS; l++) {
            memcpy(steps[t][l], output[l][0], sizeof(steps[t][l]));
        }
    }
}

/* Requests 7 and 6 start where request 4 has stayed. */
static void check_verify(int32_t is_tree, float steps[3][N_LAYERS][INNER], int32_t dst) {
    copy_request(4, 7);
    copy_request(4, 6);
    make_nodes(is_tree);
    run();
    check_same_slots(w.slot[7], w.slot[4]); /* not written until the commit */
    for (int32_t t = 0; t < 3; t++) {
        for (int32_t l = 0; l < N_LAYERS; l++) {
            assert_memory_equal(output[l][is_tree ? 2 * t : t], steps[t][l], sizeof(steps[t][l]));
        }
    }
    commit_step(is_tree ? 4 : 2, is_tree ? 2 : 1, dst);
    check_same_slots(w.slot[7], w.slot[1]);
    check_same_slots(w.slot[6], w.slot[4]);
    check_same_slots(dst, w.slot[5]);
}

static void verify_and_commit_are_decode_steps(void **state) {
    (void)state;
    for (int32_t i = 0; i < N_KINDS * N_VARIANTS * HB_N_FLOAT_DTYPES; i++) {
        const int32_t v = i / N_KINDS % N_VARIANTS;
        float steps[3][N_LAYERS][INNER];
        open_kind(linear_kinds[i % N_KINDS], v, i / N_KINDS / N_VARIANTS, v / 2 % 2, i % 3);
        const int32_t dst = take_track();
        take(1);
        run_rows(HB_MODE_EXTEND, 1, (const struct row[]){{1, 5, 0, 0}}, 0);
        copy_request(1, 4);
        decode_steps(dst, steps);
        check_same_slots(dst, w.slot[5]);
        check_verify(0, steps, dst);
        check_verify(1, steps, dst);
        close_world();
    }
}

/* A graph of decode steps, and one of verifies, of two rows each: one live row, one of padding. */
static void replays_are_eager_forwards(void **state) {
    (void)state;
    for (int32_t i = 0; i < 2 * N_KINDS * HB_N_FORMS; i++) {
        const int32_t is_verify = i / N_KINDS % 2;
        const int32_t seq[] = {5};
        float eager[N_LAYERS][TOKENS][INNER];
        struct hb_layer_io kept[N_LAYERS];
        open_kind(linear_kinds[i % N_KINDS], i % N_VARIANTS, HB_FP32, i / N_KINDS / 2, i % 3);
        take(7);
        run_rows(HB_MODE_EXTEND, 1, (const struct row[]){{7, 5, 0, 0}}, 0);
        assert_int_equal(w.a->graph_init(w.h, 2, 6, &w.err), HB_OK);
        memset(&w.f.batch, 0, sizeof(w.f.batch));
        w.f.batch.forward_mode = is_verify ? HB_MODE_TARGET_VERIFY : HB_MODE_DECODE;
        w.f.batch.batch_size = 2;
        w.f.batch.n_tokens = is_verify ? 6 : 2;
        w.f.batch.draft_token_num = is_verify ? 3 : 0;
        assert_int_equal(w.a->capture(w.h, &w.f.batch, &w.err), HB_OK);
        make_buffers(w.f.batch.n_tokens);
        run_layers();
        memcpy(kept, buffers, sizeof(kept));
        copy_request(7, 1);
        if (is_verify) {
            fixture_verify(&w.f, 3, 1, seq, NULL, 1);
            for (int32_t t = 0; t < 6; t++) {
                position[t] = t < 3 ? 5 + t : -1;
            }
        } else {
            make_rows(HB_MODE_DECODE, 1, (const struct row[]){{7, 0, 0, 0}}, 1, 1);
        }
        write_inputs();
        fixture_cpu_lens(&w.f);
        if (w.a->replay(w.h, &w.f.batch, &w.err) != HB_OK) {
            fail_msg("replay: %s", w.err.text);
        }
        assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
        read_outputs();
        memcpy(eager, output, sizeof(eager));
        w.f.req[0] = 1; /* the same step of the copy */
        run();
        assert_memory_equal(eager, output, sizeof(eager));
        check_same_slots(w.slot[1], w.slot[7]);
        memcpy(buffers, kept, sizeof(buffers));
        drop_buffers();
        close_world();
    }
}

static void check_entry(int32_t target, int32_t direction, int32_t layer, int32_t status,
                        int32_t rule) {
    assert_int_equal(w.a->entry(w.h, target, direction, layer, &buffers[0], &w.err), status);
    assert_int_equal(w.err.rule, rule);
}

/* Mamba refuses, short conv by direction, the others run the layer. */
static void entries_refuse_or_run(void **state) {
    static const int32_t rules[HB_N_LAYER_KINDS][2] = {
        [HB_LAYER_MAMBA2] = {HB_RULE_ENTRY_REFUSED, HB_RULE_ENTRY_REFUSED},
        [HB_LAYER_SHORT_CONV] = {HB_RULE_SHORT_CONV_DECODE, HB_RULE_SHORT_CONV_EXTEND},
        [HB_LAYER_MAMBA1] = {HB_RULE_ENTRY_REFUSED, HB_RULE_ENTRY_REFUSED}};
    (void)state;
    for (int32_t i = 0; i < 4 * N_KINDS; i++) {
        const int32_t kind = linear_kinds[i % N_KINDS];
        const int32_t target = i / N_KINDS % 2;
        const int32_t direction = i / N_KINDS / 2;
        const int32_t rule = rules[kind][direction];
        const int32_t status = rule != 0 ? HB_ERR_NOT_IMPLEMENTED : HB_ERR_STATE;
        open_kind(kind, i % N_VARIANTS, HB_FP32, 0, 0);
        take(1);
        make_buffers(5);
        check_entry(target, direction, 0, status, rule != 0 ? rule : HB_RULE_NO_METADATA);
        make_rows(HB_MODE_EXTEND, 1, (const struct row[]){{1, 5, 0, 0}}, 0, 0);
        write_inputs();
        assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
        check_entry(target, direction, 0, rule != 0 ? HB_ERR_NOT_IMPLEMENTED : HB_OK, rule);
        if (rule == 0) { /* it has run */
            check_entry(target, direction, 0, HB_ERR_STATE, HB_RULE_LAYER_TWICE);
        } else if (target == HB_ENTRY_CHILD) { /* whatever the arguments */
            check_entry(target, direction, 9, HB_ERR_NOT_IMPLEMENTED, rule);
        }
        assert_int_equal(w.a->entry(NULL, HB_ENTRY_CHILD, direction, 0, NULL, &w.err),
                         HB_ERR_NOT_IMPLEMENTED);
        assert_int_equal(w.err.rule, HB_RULE_ENTRY_REFUSED);
        if (rule == 0) {
            float by_entry[INNER];
            uint8_t bytes[INNER * 4];
            assert_int_equal(w.a->layer(w.h, 1, &buffers[1], &w.err), HB_OK);
            assert_int_equal(w.a->buf_read(w.h, buffers[0].out, bytes, sizeof(bytes), &w.err),
                             HB_OK);
            memcpy(by_entry, bytes, sizeof(by_entry));
            assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
            take(1);
            run();
            assert_memory_equal(by_entry, output[0][0], sizeof(by_entry));
        }
        drop_buffers();
        close_world();
    }
}

static void regions_are_those_of_the_kind(void **state) {
    (void)state;
    for (int32_t i = 0; i < N_KINDS * 8; i++) {
        const int32_t kind = linear_kinds[i % N_KINDS];
        struct hb_region info;
        open_kind(kind, i / N_KINDS, i % 3, 0, 0);
        const int32_t columns = w.config.conv_state_len == HB_CONV_STATE_FULL ? K : W;
        const int32_t is_kv = w.config.state_layout == HB_STATE_KV;
        const int32_t channels =
            kind == HB_LAYER_SHORT_CONV || kind == HB_LAYER_MAMBA1 ? INNER : DIM;
        for (int32_t l = 0; l < N_LAYERS; l++) {
            const int32_t has_conv = kind != HB_LAYER_LIGHTNING;
            const int32_t has_state = kind != HB_LAYER_SHORT_CONV;
            assert_int_equal(find_region("intermediate_conv", l, &info) >= 0, has_conv);
            assert_int_equal(find_region("intermediate_ssm", l, &info) >= 0, has_state);
            assert_int_equal(find_region("conv_pad", l, &info) >= 0,
                             has_conv && w.config.pool_pad > 0);
            assert_int_equal(find_region("temporal_pad", l, &info) >= 0,
                             has_state && w.config.pool_pad > 0);
            assert_int_equal(find_region("conv", l, &info) >= 0, has_conv);
            if (has_conv) {
                assert_true(info.shape[1] == channels && info.shape[2] == columns);
                assert_int_equal(info.dtype, w.config.act_dtype);
                assert_int_equal(info.bytes,
                                 (uint64_t)((SLOTS + 1) * channels * columns * act_bytes()));
            }
            assert_int_equal(find_region("temporal", l, &info) >= 0, has_state);
            if (has_state) {
                assert_true(info.shape[2] == (is_kv ? N : P) && info.shape[3] == (is_kv ? P : N));
            }
        }
        close_world();
    }
}

/* A buffer that a kind does not read may be null, any other may not. */
static void null_buffers_go_by_the_width(void **state) {
    (void)state;
    for (int32_t i = 0; i < N_KINDS; i++) {
        open_kind(linear_kinds[i], 1, HB_FP32, 0, 0); /* ALiBi: no log decays per token */
        take(1);
        make_buffers(3);
        make_rows(HB_MODE_EXTEND, 1, (const struct row[]){{1, 3, 0, 0}}, 0, 0);
        write_inputs();
        for (int32_t k = 0; k < 4; k++) {
            struct hb_layer_io io = buffers[0];
            *(k < 3 ? &io.in[k] : &io.out) = (struct hb_buf){0};
            assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
            const int32_t status = w.a->layer(w.h, 0, &io, &w.err);
            assert_int_equal(status, width_of(k) > 0 ? HB_ERR_NULL : HB_OK);
            if (width_of(k) > 0) {
                assert_true(w.err.rule == HB_RULE_IO_NULL && w.err.row == k);
            }
        }
        assert_true(width_of(1) > 0 && width_of(3) > 0);
        drop_buffers();
        close_world();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_in_pieces_give_the_same),
        cmocka_unit_test(verify_and_commit_are_decode_steps),
        cmocka_unit_test(replays_are_eager_forwards),
        cmocka_unit_test(entries_refuse_or_run),
        cmocka_unit_test(regions_are_those_of_the_kind),
        cmocka_unit_test(null_buffers_go_by_the_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
