/* SPDX-License-Identifier: Apache-2.0
 * The float64 oracle and the emulated backend, driven through the adapter table by the same random
 * calls, right and wrong ones: same status, rule, row, value, limit and text, same integers in
 * every table, cursor and static buffer, same conv windows bit for bit, nearly the same states. */
#include "harness/tests/worked_check.h"

#include "harness/run.h"

enum { N_SLOTS = 7, N_REQS = 5, GRAPH_ROWS = 3, NODES = 3, CALLS = 120, HISTORIES = 60 };

static uint64_t seed = 1;

static int32_t draw(int32_t lo, int32_t hi) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return lo + (int32_t)((seed >> 33) % (uint64_t)(hi - lo + 1));
}

static int32_t one_in(int32_t n) {
    return draw(1, n) == 1;
}

enum call {
    TAKE,
    FREE,
    COPY,
    PUBLISH,
    MOVE,
    MAP,
    INIT,
    BEGIN,
    CAPTURE,
    REPLAY,
    LAYER,
    FINISH,
    COMMIT,
    N_CALLS
};

/* One call with all of its arguments. */
struct op {
    int32_t call, a, b, ids[3], io;
    struct hb_commit commit;
    int32_t step[4], track_step[4];
    int64_t dst[4];
};

struct twins {
    struct rig g[2];                          /* oracle, emulated */
    struct hb_layer_io io[2][GRAPH_ROWS + 1]; /* of graphs by batch size, [0] of eager forwards */
    int32_t capturing;                        /* batch size, 0: none */
    int32_t mode[GRAPH_ROWS + 1], linked[GRAPH_ROWS + 1]; /* of the last OK capture by batch size */
    int32_t hint; /* the call that makes sense next, N_CALLS: any */
};

static const struct hb_adapter *adapter_of(int k) {
    return k == 0 ? hb_adapter_oracle() : hb_adapter_emu();
}

/* Most histories start with requests on live slots, two checkpoints and captured graphs. */
static void settle(struct twins *t, int32_t ring) {
    int32_t is_bare = one_in(4), first = draw(0, 1), linked = draw(0, 1);
    for (int k = 0; k < 2 && !is_bare; k++) {
        struct rig *g = &t->g[k];
        table = adapter_of(k);
        take(g, 4, HB_SLOT_LIVE, 1);
        take(g, 2, HB_SLOT_TRACK, 5);
        for (int32_t r = 1; r <= 4; r++) {
            map(g, r, 5 - r);
        }
        ok(g, table->graph_init(g->h, GRAPH_ROWS, GRAPH_ROWS * NODES, &g->e));
        for (int32_t bs = 1; bs <= GRAPH_ROWS; bs++) {
            int32_t verifies = bs == 1 + first && g->config.window_layout == HB_WINDOWS_DENSE;
            close_io(g, &t->io[k][bs]);
            capture(g, verifies ? HB_MODE_TARGET_VERIFY : HB_MODE_DECODE, bs, NODES,
                    verifies && linked && ring == 0, &t->io[k][bs]);
            t->mode[bs] = g->b.forward_mode;
            t->linked[bs] = g->b.retrieve_next_token.data != NULL;
        }
    }
}

static void open_twins(struct twins *t) {
    int32_t virtual_ids = draw(0, 1) * (N_SLOTS + 2), ring = draw(0, 3), strip = draw(0, 1);
    int32_t pad_elements = draw(0, 1) * 3, by_layer = draw(0, 1);
    for (int k = 0; k < 2; k++) {
        struct rig *g = &t->g[k];
        table = adapter_of(k);
        rig_config(g, 4, N_SLOTS);
        g->config.graph_rows = GRAPH_ROWS;
        g->config.graph_draft = NODES;
        g->config.spec_rows = 4;
        g->config.max_draft = NODES;
        g->config.n_virtual = virtual_ids;
        g->config.ring_length = ring;
        g->config.window_layout = strip;
        g->config.pool_pad = pad_elements;
        g->config.track_by_layer = by_layer;
        g->config.track_interval = 5;
        rig_open(g);
        for (int32_t i = 0; i <= GRAPH_ROWS; i++) {
            open_io(g, &t->io[k][i]);
        }
    }
    t->capturing = 0;
    t->hint = N_CALLS;
    for (int32_t bs = 1; bs <= GRAPH_ROWS; bs++) {
        t->mode[bs] = HB_MODE_DECODE;
        t->linked[bs] = 0;
    }
    settle(t, ring);
}

static void close_twins(struct twins *t) {
    for (int k = 0; k < 2; k++) {
        table = adapter_of(k);
        for (int32_t i = 0; i <= GRAPH_ROWS; i++) {
            close_io(&t->g[k], &t->io[k][i]);
        }
        rig_close(&t->g[k]);
    }
}

/* ---- random batches, most of them nearly right ---- */

static void draw_row(struct rig *g, int32_t mode, int32_t n) {
    int32_t req = one_in(25) ? draw(0, 7) : g->b.batch_size + 1;
    int32_t prefix = draw(0, 9);
    if (mode == HB_MODE_TARGET_VERIFY) {
        (void)draft(g, req, prefix + 1, n);
    } else {
        int32_t extends = mode == HB_MODE_EXTEND ||
                          (mode == HB_MODE_MIXED && draw(0, 1) && g->b.n_extend == g->b.batch_size);
        (void)row(g, req, prefix, extends ? draw(1, 9) : 0);
    }
    int32_t r = g->b.batch_size - 1;
    g->track[r] = one_in(3) ? draw(-1, N_SLOTS + 3) : 5 + r % 2;
    g->point[r] = prefix + draw(3, 9);
    g->mask[r] = (uint8_t)(mode != HB_MODE_TARGET_VERIFY && r < 2 && one_in(3));
}

/* Arrays that only some batches have, and lies. */
static void spoil(struct rig *g, int32_t is_replay) {
    int32_t n = g->b.batch_size;
    if (draw(0, 1)) {
        g->b.seq_lens_cpu = (struct hb_i32s){g->cpu, n};
    }
    if (is_replay && draw(0, 1)) {
        g->b.has_num_padding = 1;
        g->b.num_padding = n - g->b.original_batch_size;
    }
    if (one_in(3)) {
        g->b.mamba_track_mask.data = NULL;
    }
    if (one_in(12)) {
        g->b.mamba_track_indices.data = NULL;
    }
    if (one_in(15) && n > 0) {
        g->cpu[draw(0, n - 1)] = draw(0, 12);
    }
    if (one_in(20)) {
        g->b.n_tokens += draw(-1, 1);
    }
    if (one_in(25)) {
        g->b.num_padding += draw(-1, 1);
    }
    if (one_in(25)) {
        g->b.draft_token_num += draw(-1, 1);
    }
    if (one_in(25) && n > 0) {
        g->seq[draw(0, n - 1)] = draw(-1, 12);
    }
    if (one_in(30)) {
        g->b.forward_mode = draw(0, 10);
    }
    if (one_in(30)) {
        g->b.seq_lens_cpu.len += draw(-1, 1);
    }
    if (one_in(30)) {
        g->b.req_pool_indices.len += draw(-1, 1);
    }
}

static void draw_links(struct rig *g) {
    int64_t n = (int64_t)g->b.batch_size * g->b.draft_token_num;
    static const int32_t trees[3][2][NODES] = {
        {{1, 2, -1}, {-1, -1, -1}}, {{1, -1, -1}, {-1, 2, -1}}, {{1, 2, -1}, {-1, 0, 1}}};
    for (int64_t i = 0; i < n && g->b.draft_token_num <= NODES; i++) {
        int32_t tree = one_in(20) ? 2 : (int32_t)(i / g->b.draft_token_num % 2);
        int32_t t = (int32_t)(i % g->b.draft_token_num);
        int32_t next = trees[tree][0][t], sibling = trees[tree][1][t];
        g->next[i] = next < g->b.draft_token_num ? next : -1;
        g->sibling[i] = sibling < g->b.draft_token_num ? sibling : -1;
    }
    g->b.retrieve_next_token = (struct hb_i32s){g->next, n};
    g->b.retrieve_next_sibling = (struct hb_i32s){g->sibling, n};
}

/* graph: batch size of the graph that is meant, 0: none. */
static void draw_batch(const struct twins *t, struct rig *g, int32_t is_graph, int32_t graph) {
    static const int32_t modes[] = {HB_MODE_DECODE, HB_MODE_TARGET_VERIFY, HB_MODE_DECODE,
                                    HB_MODE_IDLE,   HB_MODE_EXTEND,        HB_MODE_MIXED};
    int32_t mode = graph > 0 ? t->mode[graph] : modes[is_graph ? draw(0, 3) : draw(0, 5)];
    int32_t nodes = graph > 0 || !one_in(8) ? NODES : draw(1, NODES);
    int32_t live = draw(0, graph > 0 ? graph : GRAPH_ROWS);
    int32_t padding = graph > 0 ? graph - live : draw(0, GRAPH_ROWS - live + one_in(15));
    batch(g, mode);
    if (mode == HB_MODE_TARGET_VERIFY) {
        g->b.draft_token_num = nodes;
    }
    for (int32_t i = 0; i < live && mode != HB_MODE_IDLE; i++) {
        draw_row(g, mode, nodes);
    }
    g->b.original_batch_size = g->b.batch_size;
    if (mode == HB_MODE_EXTEND || mode == HB_MODE_MIXED) {
        g->b.has_extend_num_tokens = 1;
    }
    if (padding > 0) {
        pad(g, padding, mode == HB_MODE_TARGET_VERIFY ? nodes : 1);
    }
    (void)wired(g);
    g->b.extend_seq_lens.data = g->ext;
    g->b.extend_prefix_lens.data = g->prefix;
    if (mode == HB_MODE_TARGET_VERIFY && (graph > 0 ? t->linked[graph] : one_in(3))) {
        draw_links(g);
    }
    if (graph > 0) {
        g->b.has_num_padding = 1;
        g->b.num_padding = padding;
    }
    if (graph == 0 || one_in(3)) {
        spoil(g, is_graph);
    }
}

/* The other twin's batch is the same, with arrays of its own. */
static void copy_batch(struct rig *to, const struct rig *from) {
    struct rig kept = *to;
    memcpy(to, from, sizeof *to);
    to->h = kept.h;
    to->io = kept.io;
    to->caps = kept.caps;
    to->e = kept.e;
    to->params = (struct hb_layer_params){to->conv_weight, to->conv_bias, to->a,
                                          to->dt_bias,     to->d,         to->norm};
    const ptrdiff_t shift = (char *)to - (const char *)from;
    const void **const arrays[] = {(const void **)&to->b.req_pool_indices.data,
                                   (const void **)&to->b.seq_lens.data,
                                   (const void **)&to->b.seq_lens_cpu.data,
                                   (const void **)&to->b.extend_seq_lens.data,
                                   (const void **)&to->b.extend_prefix_lens.data,
                                   (const void **)&to->b.mamba_track_mask.data,
                                   (const void **)&to->b.mamba_track_indices.data,
                                   (const void **)&to->b.mamba_track_seqlens.data,
                                   (const void **)&to->b.retrieve_next_token.data,
                                   (const void **)&to->b.retrieve_next_sibling.data};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        if (*arrays[i] != NULL) {
            *arrays[i] = (const char *)*arrays[i] + shift;
        }
    }
}

static void draw_op(struct twins *t, struct op *o) {
    static const int32_t often[] = {
        TAKE,  TAKE,  TAKE,  FREE,    COPY,    PUBLISH, MOVE,   MAP,    MAP,    MAP,   INIT,
        BEGIN, BEGIN, BEGIN, CAPTURE, CAPTURE, REPLAY,  REPLAY, REPLAY, REPLAY, LAYER, LAYER,
        LAYER, LAYER, LAYER, FINISH,  FINISH,  FINISH,  FINISH, FINISH, COMMIT, COMMIT};
    memset(o, 0, sizeof *o);
    o->call = often[draw(0, (int32_t)(sizeof often / sizeof *often) - 1)];
    o->call = t->hint != N_CALLS && !one_in(5) ? t->hint : o->call;
    o->a = draw(0, N_SLOTS + 1);
    o->b = draw(-1, N_SLOTS + 2);
    if (o->call == TAKE) {
        o->a = draw(-1, 3);
        o->b = one_in(10) ? draw(0, 5) : draw(HB_SLOT_LIVE, HB_SLOT_TRACK);
    } else if (o->call == MAP) {
        o->a = one_in(10) ? draw(-1, 9) : draw(0, N_REQS);
        o->b = one_in(3) ? o->b : 5 - o->a;
    } else if (o->call == INIT) {
        o->a = one_in(4) ? draw(-1, 5) : GRAPH_ROWS;
        o->b = one_in(4) ? draw(0, 12) : GRAPH_ROWS * NODES;
    }
    for (int32_t i = 0; i < 3; i++) {
        o->ids[i] = draw(0, N_SLOTS + 1);
    }
    if (o->call == BEGIN || o->call == CAPTURE || o->call == REPLAY) {
        draw_batch(t, &t->g[0], o->call != BEGIN,
                   o->call == REPLAY && !one_in(6) ? draw(1, GRAPH_ROWS) : 0);
        copy_batch(&t->g[1], &t->g[0]);
    }
    o->io = t->capturing;
    int32_t n = draw(0, 3);
    for (int32_t r = 0; r < n; r++) {
        o->step[r] = draw(-1, NODES - 1 + one_in(20));
        o->track_step[r] = draw(-1, NODES - 1 + one_in(20));
        o->dst[r] = one_in(3) ? draw(0, N_SLOTS) : 5 + r % 2;
    }
    o->commit = (struct hb_commit){.struct_size = sizeof o->commit, .n_rows = n};
}

static int32_t run_op(struct twins *t, int k, struct op *o) {
    struct rig *g = &t->g[k];
    table = adapter_of(k);
    hb_error_clear(&g->e);
    switch (o->call) {
    case TAKE:
        return table->slot_take(g->h, o->a, o->b, (int32_t[8]){0}, &g->e);
    case FREE:
        return table->slot_free(g->h, 1 + (o->b & 1), o->ids, &g->e);
    case COPY:
        return table->slot_copy(g->h, o->a, o->b, &g->e);
    case PUBLISH:
        return table->slot_publish(g->h, o->a, &g->e);
    case MOVE:
        return table->slot_move(g->h, o->a, &g->e);
    case MAP:
        return table->table_set(g->h, o->a, o->b, &g->e);
    case INIT:
        return table->graph_init(g->h, o->a, o->b, &g->e);
    case BEGIN:
        write_inputs(g, &t->io[k][0]);
        return table->begin(g->h, &g->b, &g->e);
    case CAPTURE:
        return table->capture(g->h, &g->b, &g->e);
    case REPLAY:
        if (g->b.batch_size >= 1 && g->b.batch_size <= GRAPH_ROWS) {
            write_inputs(g, &t->io[k][g->b.batch_size]);
        }
        return table->replay(g->h, &g->b, &g->e);
    case LAYER:
        return table->layer(g->h, 0, &t->io[k][o->io], &g->e);
    case FINISH:
        return table->finish(g->h, &g->e);
    default:
        o->commit.step = (struct hb_i32s){o->step, o->commit.n_rows};
        o->commit.track_indices = (struct hb_i64s){o->b & 1 ? o->dst : NULL, o->commit.n_rows};
        o->commit.track_steps = (struct hb_i32s){o->b & 1 ? o->track_step : NULL, o->commit.n_rows};
        return table->commit(g->h, &o->commit, &g->e);
    }
}

/* ---- comparison ---- */

static void compare_floats(const char *name, const float *x, const float *y, uint64_t n) {
    int exact = strncmp(name, "conv", 4) == 0 || strcmp(name, "intermediate_conv") == 0;
    for (uint64_t i = 0; i < n; i++) {
        float most = exact ? 0.0F : 1e-4F * (1.0F + fabsf(x[i]));
        int both_nan = isnan(x[i]) && isnan(y[i]); /* of inputs that nobody wrote */
        if (!both_nan && !(fabsf(x[i] - y[i]) <= most)) {
            fail_msg("%s[%d]: %a and %a", name, (int)i, (double)x[i], (double)y[i]);
        }
    }
}

static void compare_regions(struct twins *t) {
    static union {
        unsigned char bytes[1 << 14];
        float floats[1 << 12];
        int32_t ints[1 << 12];
    } x, y;
    int32_t n = 0;
    ok(&t->g[0], hb_adapter_oracle()->n_regions(t->g[0].h, &n, &t->g[0].e));
    for (int32_t i = 0; i < n; i++) {
        struct hb_region info = {0}, other = {0};
        table = adapter_of(0);
        ok(&t->g[0], table->region(t->g[0].h, i, &info, &t->g[0].e));
        if (strcmp(info.name, "free_ids") == 0) { /* under this name in the oracle alone */
            continue;
        }
        assert_true(info.bytes <= sizeof x.bytes);
        ok(&t->g[0], table->region_read(t->g[0].h, i, 0, x.bytes, info.bytes, &t->g[0].e));
        table = adapter_of(1);
        int32_t j = region_of(&t->g[1], info.name, &other);
        assert_true(other.bytes == info.bytes && other.kind == info.kind &&
                    other.dtype == info.dtype && other.layer == info.layer &&
                    other.n_dims == info.n_dims &&
                    memcmp(other.shape, info.shape, sizeof info.shape) == 0);
        ok(&t->g[1], table->region_read(t->g[1].h, j, 0, y.bytes, info.bytes, &t->g[1].e));
        if (info.dtype == HB_FP32) {
            compare_floats(info.name, x.floats, y.floats, info.bytes / 4);
        } else if (memcmp(x.bytes, y.bytes, info.bytes) != 0) {
            for (uint64_t k = 0; k < info.bytes / 4; k++) {
                if (x.ints[k] != y.ints[k]) {
                    fail_msg("%s[%d]: %d and %d", info.name, (int)k, x.ints[k], y.ints[k]);
                }
            }
        }
    }
}

static void compare_errors(const struct op *o, int32_t a, int32_t b, const struct hb_error *x,
                           const struct hb_error *y) {
    if (a != b || x->rule != y->rule || x->row != y->row || x->value != y->value ||
        x->limit != y->limit || strcmp(x->text, y->text) != 0) {
        fail_msg("call %d: %s rule %d row %d value %ld limit %ld '%s', %s rule %d row %d value %ld "
                 "limit %ld '%s'",
                 o->call, hb_status_name(a), x->rule, x->row, (long)x->value, (long)x->limit,
                 x->text, hb_status_name(b), y->rule, y->row, (long)y->value, (long)y->limit,
                 y->text);
    }
}

/* The call on one twin; refused, it changes no byte. */
static int32_t run_pure(struct twins *t, int k, struct op *o) {
    size_t size = 0;
    table = adapter_of(k);
    unsigned char *before = snapshot(&t->g[k], &size);
    int32_t status = run_op(t, k, o);
    if (status != HB_OK) {
        const struct hb_error kept = t->g[k].e;
        unchanged(&t->g[k], before, size);
        t->g[k].e = kept;
    } else {
        free(before);
    }
    return status;
}

/* What a call that went through leads to. */
static void follow(struct twins *t, const struct op *o) {
    const struct hb_batch *b = &t->g[0].b;
    int32_t verifies = b->forward_mode == HB_MODE_TARGET_VERIFY;
    static const int32_t next[N_CALLS] = {
        [BEGIN] = LAYER, [CAPTURE] = LAYER, [REPLAY] = FINISH, [LAYER] = FINISH};
    t->hint = next[o->call] != 0 ? next[o->call] : N_CALLS;
    if (o->call == FINISH && t->capturing > 0) {
        t->mode[t->capturing] = b->forward_mode;
        t->linked[t->capturing] = b->retrieve_next_token.data != NULL;
    } else if (o->call == FINISH && verifies) {
        t->hint = COMMIT;
    }
    if (o->call == BEGIN || o->call == REPLAY || o->call == FINISH) {
        t->capturing = 0;
    } else if (o->call == CAPTURE) {
        t->capturing = b->batch_size;
    }
}

/* Successes and refusals of each call, over all histories. */
static int64_t seen[N_CALLS][2];

static void twins_agree(void **state) {
    struct twins *t = calloc(1, sizeof *t);
    (void)state;
    assert_non_null(t);
    for (int32_t h = 0; h < HISTORIES; h++) {
        open_twins(t);
        for (int32_t i = 0; i < CALLS; i++) {
            struct op o;
            draw_op(t, &o);
            int32_t a = run_pure(t, 0, &o), b = run_pure(t, 1, &o);
            compare_errors(&o, a, b, &t->g[0].e, &t->g[1].e);
            seen[o.call][a != HB_OK]++;
            if (a == HB_OK) {
                follow(t, &o);
            }
            compare_regions(t);
        }
        close_twins(t);
    }
    for (int32_t call = 0; call < N_CALLS; call++) {
        print_message("call %d: %ld ok, %ld refused\n", call, (long)seen[call][0],
                      (long)seen[call][1]);
        assert_true(seen[call][0] > 0 && seen[call][1] > 0);
    }
    free(t);
}

int main(int argc, char **argv) {
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1; /* another seed plays other histories */
    const struct CMUnitTest tests[] = {cmocka_unit_test(twins_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
