/* SPDX-License-Identifier: Apache-2.0
 * The replay ring that commits own, through the adapter (speculative.md section 7, backend/README.md
 * "Replay ring"): random histories in three worlds, with this ring, with intermediate caches and of
 * decode steps, whose values are no round ones, so that only the same operations in the same order
 * give the same bits; cursors; what a verify and a commit write; rules 114, 116, 142 and 159. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "backend/tests/graph_world.h"

enum { D4 = 4 };

static int32_t ring_length = 8;
static int32_t other_layouts; /* states [H, N, P], heads of the groups in turn */

static void ring_config(struct hb_config *c) {
    c->max_draft = D4;
    c->graph_draft = D4;
    c->ring_length = ring_length;
    c->ring_owner = HB_RING_COMMIT;
    c->pool_pad = 5;
    c->state_layout = c->head_map = c->conv_state_len = other_layouts;
}

static void virtual_config(struct hb_config *c) {
    ring_config(c);
    c->n_virtual = 2 * SLOTS;
}

/* exact worlds: small integers */

static void open_ring(int32_t form, int32_t defect) {
    world_config = ring_config;
    open_requests(HB_FP32, form, HB_ORDER_RANDOM, defect);
    world_config = NULL;
}

static int32_t cursor(int32_t slot) {
    return table_at("write_pos", slot);
}

static int32_t base_of(int32_t slot) {
    return table_at("ring_base", slot);
}

static int32_t flush_of(int32_t slot) {
    return table_at("ring_flush", slot);
}

static void check_cursors(int32_t slot, int32_t base, int32_t w_pos, int32_t flush) {
    assert_int_equal(base_of(slot), base);
    assert_int_equal(cursor(slot), w_pos);
    assert_int_equal(flush_of(slot), flush);
}

static void accept(int32_t n0, int32_t n1) {
    w.pos[R0] += n0;
    w.pos[R1] += n1;
}

/* L = 8, at most 4 nodes: 5 tokens accepted of two verifies, and the fold of the third. */
static void ring_worked_example(void **state) {
    (void)state;
    for (int32_t i = 0; i < 4; i++) {
        ring_length = i < 2 ? 8 : 16;
        const int32_t late = i >= 2; /* the longer ring folds later */
        open_ring(i % 2, 0);
        const int32_t s0 = w.slot[R0];
        const int32_t s1 = w.slot[R1];
        make_chains(D4, NULL, 1);
        assert_int_equal(verify(), 0);
        check_cursors(s0, 0, 0, 0);
        commit_ok(plan_of(2, 1, -1, 0), 0);
        accept(2, 0);
        check_cursors(s0, 0, 2, !late);
        check_cursors(s1, 0, 0, 0);
        assert_false(state_is(s0, R0, 7));
        make_chains(D4, NULL, 0);
        assert_int_equal(verify(), 0);
        check_cursors(s0, late ? 0 : 2, late ? 2 : 0, 0);
        commit_ok(plan_of(2, 3, 3, 0), 0);
        accept(4, 4);
        check_cursors(s0, late ? 0 : 2, late ? 6 : 4, !late);
        make_chains(D4, NULL, 0);
        assert_int_equal(verify(), 0);
        commit_ok(plan_of(2, 3, 3, 0), 0);
        accept(4, 4);
        check_cursors(s0, late ? 0 : 6, late ? 10 : 4, 1);
        make_chains(D4, NULL, 0);
        assert_int_equal(verify(), 0);
        check_cursors(s0, late ? 10 : 2, 0, 0);
        commit_ok(plan_of(2, -1, 0, 0), 0);
        check_cursors(s0, late ? 10 : 2, 0, 0); /* the fold stays, nothing was accepted */
        close_world();
    }
    ring_length = 8;
}

/* A verify that does not fold writes the ring alone; one that does, temporal of its rows too. */
static void verify_and_commit_write_what_the_readme_says(void **state) {
    static const char *const kept_names[] = {"conv", "temporal"};
    static uint8_t before[2][sizeof(dump_a)];
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        open_ring(form, 0);
        for (int32_t round = 0; round < 6; round++) {
            size_t n[2];
            make_chains(D4, NULL, 1);
            for (int32_t k = 0; k < 2; k++) {
                n[k] = dump_named(kept_names[k], before[k]);
            }
            const int32_t folds = flush_of(w.slot[R0]) || flush_of(w.slot[R1]);
            assert_int_equal(folds, round > 0);
            assert_int_equal(verify(), 0);
            for (int32_t k = 0; k < 2; k++) {
                (void)dump_named(kept_names[k], dump_a);
                assert_int_equal(memcmp(before[k], dump_a, n[k]) != 0, k == 1 && folds);
            }
            n[1] = dump_named("temporal", before[1]);
            commit_ok(plan_of(2, 1, 2, 0), 0);
            (void)dump_named("temporal", dump_a);
            assert_memory_equal(before[1], dump_a, n[1]); /* no checkpoint: conv and cursors */
            (void)dump_named("conv", dump_a);
            assert_int_not_equal(memcmp(before[0], dump_a, n[0]), 0);
            accept(2, 3);
        }
        close_world();
    }
}

static void verify_and_commit_may_be_repeated(void **state) {
    (void)state;
    open_ring(HB_FORM_FAST, 0);
    const int32_t dst = take_track();
    for (int32_t round = 0; round < 6; round++) {
        make_chains(D4, NULL, round % 2);
        assert_int_equal(verify(), 0);
        const size_t n = dump(dump_a, sizeof(dump_a));
        assert_int_equal(verify(), 0);
        assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
        assert_memory_equal(dump_a, dump_b, n);
        struct plan p = plan_of(2, 3, 0, 0);
        p.track[0] = dst;
        p.track_step[0] = 2;
        commit_ok(p, 1);
        assert_true(state_is(dst, R0, w.pos[R0] + 3));
        check_cursors(dst, 0, 0, 0);
        p.step[0] = 1; /* other steps than before */
        p.track_step[0] = 0;
        commit_ok(p, 1);
        assert_true(state_is(dst, R0, w.pos[R0] + 1));
        (void)dump(dump_a, sizeof(dump_a));
        commit_ok(p, 1);
        (void)dump(dump_b, sizeof(dump_b));
        assert_memory_equal(dump_a, dump_b, n);
        accept(2, 1);
    }
    close_world();
}

static void other_modes_need_a_folded_ring(void **state) {
    static const struct row extend[] = {{R1, 2, 0, 0}, {R0, 3, 0, 0}};
    static const struct row mixed[] = {{R1, 2, 0, 0}, {R0, 0, 0, 0}};
    static const struct row decode[] = {{R1, 0, 0, 0}, {R0, 0, 0, 0}};
    static const struct {
        int32_t mode;
        const struct row *rows;
    } other[] = {{HB_MODE_EXTEND, extend}, {HB_MODE_MIXED, mixed}, {HB_MODE_DECODE, decode}};
    (void)state;
    open_ring(HB_FORM_V0, 0);
    const int32_t slot = w.slot[R0];
    make_chains(D4, NULL, 0);
    assert_int_equal(verify(), 0);
    commit_ok(plan_of(2, 2, -1, 0), 0);
    accept(3, 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    for (int32_t i = 0; i < 3; i++) {
        make_batch(other[i].mode, 2, other[i].rows, 0, 0);
        check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_RING_PENDING, 1);
        assert_true(w.err.value == slot && w.err.limit == 3);
    }
    check_error(w.a->slot_copy(w.h, slot, w.slot[R1], &w.err), HB_RULE_COPY_RING, -1);
    assert_int_equal(w.err.value, 3);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    make_batch(HB_MODE_IDLE, 0, NULL, 1, 1);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    make_chains(D4, NULL, 0); /* folds; nothing is accepted: temporal is the state */
    assert_int_equal(verify(), 0);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(forward(other[i].mode, 2, other[i].rows, 1, 1), 0);
    }
    check_cursors(slot, 3, 0, 0);
    assert_int_equal(w.a->slot_copy(w.h, slot, w.slot[R1], &w.err), HB_OK);
    make_chains(D4, NULL, 0);
    check_cursors(w.slot[R1], 0, 0, 0);
    assert_true(state_is(w.slot[R1], R0, w.pos[R0]));
    close_world();
}

static void links_are_refused(void **state) {
    (void)state;
    open_ring(HB_FORM_V0, 0);
    assert_int_equal(w.a->graph_init(w.h, GRAPH_ROWS, GRAPH_ROWS * D4, &w.err), HB_OK);
    const size_t n = dump(dump_a, sizeof(dump_a));
    make_chains(D4, NULL, 0);
    fixture_tree(&w.f);
    w.f.batch.retrieve_next_token.len = w.f.batch.retrieve_next_sibling.len = 2 * D4;
    memset(w.f.next, 0xff, sizeof(w.f.next));
    memset(w.f.sibling, 0xff, sizeof(w.f.sibling));
    for (int32_t i = 0; i < 2 * D4; i++) { /* a chain, told by links */
        w.f.next[i] = i % D4 < D4 - 1 ? i % D4 + 1 : -1;
    }
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_RING_TREE, -1);
    make_capture(HB_MODE_TARGET_VERIFY, 2, D4, 1);
    check_error(w.a->capture(w.h, &w.f.batch, &w.err), HB_RULE_RING_TREE, -1);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    close_world();
}

static void verify_needs_every_linear_layer(void **state) {
    struct io io;
    (void)state;
    open_ring(HB_FORM_V0, 0);
    make_chains(D4, NULL, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    fill_io(&io, 0);
    assert_int_equal(w.a->layer(w.h, 0, &io.io, &w.err), HB_OK);
    free_io(&io);
    const size_t n = dump(dump_a, sizeof(dump_a));
    check_error(w.a->finish(w.h, &w.err), HB_RULE_RING_LAYERS, -1);
    assert_int_equal(w.err.value, 2);
    struct plan p = plan_of(2, 0, 0, 0);
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    assert_int_equal(run_layers(4), 0); /* attention may stay out */
    assert_int_equal(commit(&p, 0), HB_OK);
    check_cursors(w.slot[R0], 0, 1, 1);
    /* other modes may leave layers out */
    take(OTHER);
    make_batch(HB_MODE_EXTEND, 1, (const struct row[]){{OTHER, 2, 0, 0}}, 0, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    /* so must a capture */
    assert_int_equal(w.a->graph_init(w.h, GRAPH_ROWS, GRAPH_ROWS * D4, &w.err), HB_OK);
    make_capture(HB_MODE_TARGET_VERIFY, 2, D4, 0);
    assert_int_equal(w.a->capture(w.h, &w.f.batch, &w.err), HB_OK);
    check_error(w.a->finish(w.h, &w.err), HB_RULE_RING_LAYERS, -1);
    assert_int_equal(w.err.value, 0);
    close_world();
}

static void ring_of_a_new_owner_starts_empty(void **state) {
    (void)state;
    open_ring(HB_FORM_FAST, 0);
    const int32_t slot = w.slot[R0];
    for (int32_t k = 0; k < 2; k++) {
        make_chains(D4, NULL, 0);
        assert_int_equal(verify(), 0);
        commit_ok(plan_of(2, 2, 0, 0), 0);
        accept(3, 1);
    }
    check_cursors(slot, 3, 3, 1);
    assert_int_equal(w.a->slot_free(w.h, 1, &slot, &w.err), HB_OK);
    check_cursors(slot, 3, 3, 1); /* bytes stay */
    do {
        take(R0);
    } while (w.slot[R0] != slot);
    check_cursors(slot, 0, 0, 0);
    for (int32_t l = 0; l < LAYERS; l += 2) { /* stale records are not read */
        fill_region("ring_x", l, 0xff);
        fill_region("ring_b", l, 0xff);
        fill_region("ring_g", l, 0xff);
    }
    assert_int_equal(forward(HB_MODE_EXTEND, 1, (const struct row[]){{R0, 4, 0, 0}}, 0, 0), 0);
    assert_int_equal(w.a->slot_copy(w.h, slot, w.slot[R1], &w.err), HB_OK);
    const int32_t seq = w.pos[R0];
    fixture_verify(&w.f, D4, 1, &seq, NULL, 1);
    for (int32_t t = 0; t < 2 * D4; t++) {
        tokens[t] = (struct token){t < D4 ? R0 : -1, seq + t, t < D4};
    }
    assert_int_equal(verify(), 0);
    close_world();
}

/* Dummy rows share slot 0, whose cursors never move. */
static void dummy_rows_never_advance(void **state) {
    (void)state;
    open_ring(HB_FORM_V0, 0);
    for (int32_t r = 0; r < 2; r++) {
        assert_int_equal(w.a->table_set(w.h, R0 - r, 0, &w.err), HB_OK);
    }
    for (int32_t k = 0; k < 3; k++) {
        make_chains(D4, NULL, 0);
        w.f.batch.is_dummy = 1;
        (void)verify();
        commit_ok(plan_of(2, 3, 1, 0), 0);
        for (int32_t slot = 0; slot <= SLOTS; slot++) {
            check_cursors(slot, 0, 0, 0);
        }
    }
    close_world();
}

/* Cursors written raw through their regions lead nowhere outside. */
static void cursors_out_of_range_are_harmless(void **state) {
    (void)state;
    open_ring(HB_FORM_FAST, 0);
    for (int32_t k = 0; k < 4; k++) {
        static const uint8_t bytes[] = {0xff, 0x7f, 0x80, 0x07};
        fill_region("write_pos", -1, bytes[k]);
        fill_region("ring_base", -1, bytes[k]);
        fill_region("ring_flush", -1, k % 2 ? 0xff : 0);
        make_chains(D4, NULL, 0);
        (void)verify();
        commit_ok(plan_of(2, 3, 3, 0), 0);
        assert_int_equal(cursor(w.slot[R0]), 4);
    }
    close_world();
}

static void ring_regions(void **state) {
    (void)state;
    open_ring(HB_FORM_V0, 0);
    static const char *const names[] = {"write_pos", "ring_base", "ring_flush"};
    for (int32_t i = 0; i < 3; i++) {
        struct hb_region info = {0};
        int32_t at = 0;
        region_at(names[i], -1, &at, &info);
        assert_int_equal(info.kind, HB_REGION_CURSOR);
        assert_int_equal(info.dtype, HB_INT32);
        assert_int_equal(info.shape[0], SLOTS + 1);
    }
    struct hb_region info = {0};
    int32_t n = 0;
    assert_int_equal(w.a->n_regions(w.h, &n, &w.err), HB_OK);
    for (int32_t i = 0; i < n; i++) { /* there are windows, and no states, of nodes */
        assert_int_equal(w.a->region(w.h, i, &info, &w.err), HB_OK);
        assert_string_not_equal(info.name, "intermediate_ssm");
    }
    close_world();
}

/* replays */

/* Verifies of chains, 2 and 4 rows, and a decode; a cursor that a decode would refuse goes. */
static void replay_equals_eager(void **state) {
    (void)state;
    for (int32_t i = 0; i < 4; i++) {
        ring_length = i < 2 ? 8 : 16;
        world_config = i % 2 ? virtual_config : ring_config;
        random_state = 5U + (uint32_t)i;
        open_graph_world(i % HB_N_FLOAT_DTYPES, i % 2, i % HB_N_ORDERS, 0);
        world_config = NULL;
        assert_int_equal(w.a->graph_init(w.h, GRAPH_ROWS, GRAPH_ROWS * D4, &w.err), HB_OK);
        capture(HB_MODE_IDLE, 1, 1, 0, 7);
        capture(HB_MODE_TARGET_VERIFY, 2, D4, 0, 7);
        capture(HB_MODE_DECODE, 3, 1, 0, 7);
        capture(HB_MODE_TARGET_VERIFY, 4, D4, 0, 7);
        capture(HB_MODE_TARGET_VERIFY, 5, D4, 0, 7);
        int32_t n_folds = 0;
        for (int32_t k = 0; k < 50; k++) {
            const int32_t bs = 1 + pick(GRAPH_ROWS);
            for (int32_t q = FIRST_REQ; q < FIRST_REQ + LIVE_REQS; q++) {
                w.pos[q] = w.pos[q] > CONTEXT - 8 ? 6 : w.pos[q];
                n_folds += flush_of(slot_of_id(w.slot[q]));
            }
            if (bs == 3 && k % 4 != 0) {
                continue;
            }
            if (bs == 3) {
                fill_region("write_pos", -1, 0);
            }
            if (i % 2) {
                assert_int_equal(w.a->slot_move(w.h, w.slot[FIRST_REQ + pick(5)], &w.err), HB_OK);
            }
            assert_int_equal(count_differences(bs, k % 3 == 0 ? bs : pick(bs + 1), pick(3)), 0);
        }
        assert_in_range(n_folds, 6, INT32_MAX);
        close_world();
    }
    ring_length = 8;
}

/* three worlds of values that are no round ones */

enum { RING_WORLD, CACHE_WORLD, DECODE_WORLD, N_WORLDS };

static struct world worlds[N_WORLDS];
static int32_t current_world;
static int32_t salts[REQS][CONTEXT]; /* what a token at a place is, this time */
static uint8_t outs[N_WORLDS][LAYERS][TOKENS * 64 * 4];
static struct {
    int32_t base, w, flush;
} model[REQS];

static void enter(int32_t i) {
    worlds[current_world] = w;
    w = worlds[i];
    current_world = i;
}

static void real_config(struct hb_config *c) {
    virtual_config(c);
    c->dt_softplus = 1;
    c->conv_act = HB_CONV_SILU;
    if (current_world != RING_WORLD) {
        c->ring_length = c->ring_owner = c->pool_pad = 0;
    }
    for (int32_t i = 0; i < H; i++) {
        w.a_zero[i] = -0.3F * (float)(i + 1);
    }
}

static float real_value(int32_t kind, int32_t req, int32_t pos, int32_t layer, int32_t i) {
    uint32_t x = (uint32_t)kind * 7919U + (uint32_t)req * 104729U + (uint32_t)pos * 1299709U +
                 (uint32_t)layer * 15485863U + (uint32_t)i * 32452843U +
                 (uint32_t)salts[req][pos] * 86028121U;
    x = (x ^ x >> 15) * 0x9e3779b1U;
    x = (x ^ x >> 13) * 0x85ebca6bU;
    return (float)((x >> 8) % 2001U) / 997.0F - 1.0F;
}

/* The begun forward of the world at hand, whose tokens are listed. */
static void run_real(void) {
    static uint8_t bytes[TOKENS * 64 * 4];
    if (w.a->begin(w.h, &w.f.batch, &w.err) != HB_OK) {
        fail_msg("begin: %s", w.err.text);
    }
    for (int32_t l = 0; l < LAYERS; l++) {
        struct io io;
        make_io(&io, l, 0, NULL);
        for (int32_t k = 0; k < 3; k++) {
            for (int32_t i = 0; i < w.f.batch.n_tokens * io.widths[k]; i++) {
                const struct token *t = &tokens[i / io.widths[k]];
                const int32_t at = (int32_t)(i % io.widths[k]);
                put(bytes, i, t->req < 0 ? NAN : real_value(k, t->req, t->pos, l, at));
            }
            assert_int_equal(
                w.a->buf_write(w.h, io.io.in[k], bytes, io.io.in[k].bytes, &w.err), HB_OK);
        }
        assert_int_equal(w.a->layer(w.h, l, &io.io, &w.err), HB_OK);
        read_output(&io, outs[current_world][l]);
        free_io(&io);
    }
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
}

/* n tokens of a request, as a prompt or (0) one decode step; dst: checkpoint of the decode. */
static void run_row(int32_t req, int32_t len, int32_t dst) {
    const struct row row = {req, len, dst, 0};
    make_batch(len > 0 ? HB_MODE_EXTEND : HB_MODE_DECODE, 1, &row, 0, 0);
    for (int32_t t = 0; t < (len > 0 ? len : 1); t++) {
        tokens[t] = (struct token){req, w.pos[req] + t, 0};
    }
    run_real();
    w.pos[req] += len > 0 ? len : 1;
}

static void start_request(int32_t req, int32_t is_new) {
    const int32_t len = 1 + pick(7);
    for (int32_t i = 0; i < N_WORLDS; i++) {
        enter(i);
        if (!is_new) {
            assert_int_equal(w.a->slot_free(w.h, 1, &w.slot[req], &w.err), HB_OK);
        }
        take(req);
        assert_int_equal(w.slot[req], i > 0 ? worlds[0].slot[req] : w.slot[req]);
        run_row(req, len, 0);
    }
    model[req].base = model[req].w = model[req].flush = 0;
}

static void open_worlds(int32_t act_dtype, int32_t form, int32_t order) {
    memset(model, 0, sizeof(model));
    world_config = real_config;
    for (int32_t i = 0; i < N_WORLDS; i++) {
        enter(i);
        open_world(act_dtype, form, order, 0);
        for (int32_t k = 0; k < LIVE_REQS; k++) {
            track_ids[k] = take_track();
        }
    }
    world_config = NULL;
    for (int32_t k = 0; k < LIVE_REQS; k++) {
        start_request(FIRST_REQ + k, 1);
    }
}

static void close_worlds(void) {
    for (int32_t i = 0; i < N_WORLDS; i++) {
        enter(i);
        w.a->destroy(w.h);
    }
    assert_int_equal(hb_alloc_live(), 0);
}

static size_t read_entry(int32_t world, const char *name, int32_t layer, int32_t id, uint8_t *out) {
    struct hb_region info = {0};
    int32_t index = 0;
    enter(world);
    region_at(name, layer, &index, &info);
    const uint64_t n = info.bytes / (SLOTS + 1);
    assert_int_equal(
        w.a->region_read(w.h, index, (uint64_t)slot_of_id(id) * n, out, n, &w.err), HB_OK);
    return n;
}

static void check_same(const char *name, int32_t a, int32_t b, int32_t id) {
    static uint8_t left[MAX_REGION], right[MAX_REGION];
    for (int32_t l = 0; l < LAYERS; l += 2) {
        const size_t n = read_entry(a, name, l, id, left);
        assert_int_equal(read_entry(b, name, l, id, right), n);
        assert_memory_equal(left, right, n);
    }
}

/* One verify: rows, nodes of each, what is accepted and kept. */
struct round {
    int32_t n, pad, draft, is_ragged;
    int32_t reqs[LIVE_REQS], nodes[LIVE_REQS];
    struct plan plan;
};

static struct round random_round(int32_t number) {
    struct round r = {.n = 1 + pick(LIVE_REQS), .draft = 1 + pick(D4), .is_ragged = pick(2)};
    r.pad = pick(SPEC_ROWS - r.n + 1);
    r.draft = pick(2) ? D4 : r.draft;
    pick_requests(r.n, r.reqs);
    r.plan = plan_of(r.n, 0, 0, 0);
    for (int32_t i = 0; i < r.n; i++) {
        r.nodes[i] = r.is_ragged ? 1 + pick(r.draft) : r.draft;
        r.plan.step[i] = pick(3) ? pick(r.nodes[i] + 1) - 1 : r.nodes[i] - 1;
        r.plan.track_step[i] = pick(r.nodes[i] + 1) - 1;
        r.plan.track[i] = track_ids[i];
        for (int32_t t = 0; t < r.nodes[i]; t++) {
            salts[r.reqs[i]][w.pos[r.reqs[i]] + t] = number;
        }
    }
    return r;
}

static void run_verify(int32_t world, const struct round *round) {
    int32_t seq[LIVE_REQS];
    enter(world);
    for (int32_t i = 0; i < round->n; i++) {
        seq[i] = w.pos[round->reqs[i]];
    }
    memset(w.f.mask, 0, sizeof(w.f.mask));
    fixture_verify(&w.f, round->draft, round->n, seq, round->is_ragged ? round->nodes : NULL,
                   round->pad);
    for (int32_t r = 0; r < round->n + round->pad; r++) {
        for (int32_t t = w.f.layout[r]; t < w.f.layout[r + 1]; t++) {
            const int32_t node = t - w.f.layout[r];
            tokens[t] = (struct token){-1, 0, 0};
            if (r < round->n) {
                w.f.req[r] = round->reqs[r];
                w.f.loc[t] = w.f.table[round->reqs[r] * CONTEXT + seq[r] + node];
                tokens[t] = (struct token){round->reqs[r], seq[r] + node, 0};
            }
        }
    }
    run_real();
}

/* Outputs, folded states and cursors after the verify of the two worlds. */
static int32_t check_verify(const struct round *round) {
    int32_t n_folds = 0;
    for (int32_t l = 0; l < LAYERS; l++) {
        assert_memory_equal(outs[RING_WORLD][l], outs[CACHE_WORLD][l], sizeof(outs[0][l]));
    }
    for (int32_t i = 0; i < round->n; i++) {
        const int32_t req = round->reqs[i];
        if (model[req].flush) {
            check_same("temporal", RING_WORLD, CACHE_WORLD, w.slot[req]);
            model[req].base = (model[req].base + model[req].w) & (ring_length - 1);
            model[req].w = model[req].flush = 0;
            n_folds++;
        }
    }
    return n_folds;
}

static void check_model(void) {
    enter(RING_WORLD);
    for (int32_t req = FIRST_REQ; req < FIRST_REQ + LIVE_REQS; req++) {
        check_cursors(slot_of_id(w.slot[req]), model[req].base, model[req].w, model[req].flush);
        assert_true(model[req].w <= ring_length - D4);
    }
}

static void run_commit(const struct round *round) {
    enter(RING_WORLD);
    if (pick(3) == 0) { /* another one first: the last one counts */
        struct round first = *round;
        for (int32_t i = 0; i < round->n; i++) {
            first.plan.step[i] = round->plan.step[i] < 0 ? -1 : pick(round->nodes[i]);
        }
        commit_ok(first.plan, 0);
    }
    if (pick(3) == 0) {
        assert_int_equal(w.a->slot_move(w.h, w.slot[round->reqs[0]], &w.err), HB_OK);
    }
    if (pick(3) == 0) {
        assert_int_equal(w.a->slot_move(w.h, track_ids[0], &w.err), HB_OK);
    }
    commit_ok(round->plan, 1);
    enter(CACHE_WORLD);
    commit_ok(round->plan, 1);
    for (int32_t i = 0; i < round->n; i++) {
        const int32_t req = round->reqs[i];
        check_same("conv", RING_WORLD, CACHE_WORLD, w.slot[req]);
        if (round->plan.track_step[i] >= 0) {
            check_same("conv", RING_WORLD, CACHE_WORLD, track_ids[i]);
            check_same("temporal", RING_WORLD, CACHE_WORLD, track_ids[i]);
        }
        if (round->plan.step[i] >= 0) {
            model[req].w += round->plan.step[i] + 1;
            model[req].flush = model[req].w + 2 * D4 > ring_length;
        }
    }
}

/* The accepted nodes of row r, whose first token is at first, as decode steps. */
static void check_decode(const struct round *round, int32_t r, int32_t first) {
    const int32_t req = round->reqs[r];
    const size_t n = (size_t)(INNER * act_bytes());
    enter(DECODE_WORLD);
    for (int32_t t = 0; t <= round->plan.step[r]; t++) {
        run_row(req, 0, round->plan.track_step[r] == t ? track_ids[r] : 0);
        for (int32_t l = 0; l < LAYERS; l += 2) {
            assert_memory_equal(outs[DECODE_WORLD][l],
                                outs[RING_WORLD][l] + (size_t)(first + t) * n, n);
        }
    }
    if (round->plan.track_step[r] >= 0 && round->plan.track_step[r] <= round->plan.step[r]) {
        check_same("temporal", RING_WORLD, DECODE_WORLD, track_ids[r]);
        check_same("conv", RING_WORLD, DECODE_WORLD, track_ids[r]);
    }
    check_same("temporal", CACHE_WORLD, DECODE_WORLD, w.slot[req]);
    for (int32_t i = 0; i < DECODE_WORLD; i++) {
        enter(i);
        w.pos[req] = worlds[DECODE_WORLD].pos[req];
    }
}

/* Between two verifies: a decode step or a copy where the ring is folded, else they are refused. */
static void do_something_else(void) {
    const int32_t from = FIRST_REQ + pick(LIVE_REQS), to = FIRST_REQ + pick(LIVE_REQS);
    const int32_t is_copy = pick(2);
    enter(RING_WORLD);
    if (from == to || w.pos[from] > w.pos[to]) {
        return;
    }
    if (model[from].w > 0) {
        check_error(w.a->slot_copy(w.h, w.slot[from], w.slot[to], &w.err), HB_RULE_COPY_RING, -1);
        make_batch(HB_MODE_DECODE, 1, (const struct row[]){{from, 0, 0, 0}}, 0, 0);
        check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_RING_PENDING, 0);
        return;
    }
    for (int32_t i = 0; i < N_WORLDS; i++) {
        enter(i);
        if (is_copy) {
            assert_int_equal(w.a->slot_copy(w.h, w.slot[from], w.slot[to], &w.err), HB_OK);
            w.pos[to] = w.pos[from];
        } else {
            run_row(from, 0, 0);
        }
    }
    check_same("temporal", RING_WORLD, DECODE_WORLD, w.slot[is_copy ? to : from]);
    if (is_copy) {
        model[to].base = model[to].w = model[to].flush = 0;
    }
}

static int32_t run_history(int32_t n_rounds) {
    int32_t n_folds = 0;
    for (int32_t k = 0; k < n_rounds; k++) {
        enter(RING_WORLD);
        for (int32_t req = FIRST_REQ; req < FIRST_REQ + LIVE_REQS; req++) {
            if (w.pos[req] > CONTEXT - 2 * D4 - 2) {
                start_request(req, 0);
            }
        }
        enter(RING_WORLD);
        if (pick(2)) {
            const int32_t req = FIRST_REQ + pick(LIVE_REQS);
            assert_int_equal(w.a->slot_move(w.h, w.slot[req], &w.err), HB_OK);
        }
        const struct round round = random_round(k + 1);
        int32_t first[LIVE_REQS];
        run_verify(CACHE_WORLD, &round);
        run_verify(RING_WORLD, &round);
        memcpy(first, w.f.layout, sizeof(first));
        n_folds += check_verify(&round);
        check_model();
        if (pick(3) == 0) {
            run_verify(RING_WORLD, &round);
            (void)check_verify(&round);
            check_model();
        }
        run_commit(&round);
        check_model();
        for (int32_t r = 0; r < round.n; r++) {
            check_decode(&round, r, first[r]);
        }
        if (pick(2)) {
            do_something_else();
        }
    }
    return n_folds;
}

static void histories_equal_caches_and_decode(void **state) {
    static const int32_t lengths[] = {8, 16, 32};
    (void)state;
    for (int32_t i = 0; i < 12; i++) {
        random_state = 77U + (uint32_t)i;
        ring_length = lengths[i % 3];
        other_layouts = i / 2 % 2;
        open_worlds(i / 4, i % 2, i % HB_N_ORDERS);
        assert_true(run_history(200) > 20);
        close_worlds();
    }
    ring_length = 8;
    other_layouts = 0;
}

#ifdef HB_DEFECTS
/* All of 4 nodes accepted where 2 are; records written over live ones. */
static void planted_defects_are_seen(void **state) {
    static const int32_t defects[] = {0, HB_DEFECT_RING_ACCEPT_ALL, HB_DEFECT_RING_FOLD_LATE};
    (void)state;
    for (int32_t i = 0; i < 6; i++) {
        const int32_t defect = defects[i / 2];
        int32_t wrong = 0;
        open_ring(i % 2, defect);
        for (int32_t round = 0; round < 5; round++) {
            make_chains(D4, NULL, 0);
            wrong += verify();
            commit_ok(plan_of(2, 1, 2, 0), 0);
            accept(2, 3);
            wrong += cursor(w.slot[R0]) != 2;
        }
        if ((wrong > 0) != (defect != 0)) {
            fail_msg("defect %d, %d differences", defect, wrong);
        }
        close_world();
    }
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_worked_example),
        cmocka_unit_test(verify_and_commit_write_what_the_readme_says),
        cmocka_unit_test(verify_and_commit_may_be_repeated),
        cmocka_unit_test(other_modes_need_a_folded_ring),
        cmocka_unit_test(links_are_refused),
        cmocka_unit_test(verify_needs_every_linear_layer),
        cmocka_unit_test(ring_of_a_new_owner_starts_empty),
        cmocka_unit_test(dummy_rows_never_advance),
        cmocka_unit_test(cursors_out_of_range_are_harmless),
        cmocka_unit_test(ring_regions),
        cmocka_unit_test(replay_equals_eager),
        cmocka_unit_test(histories_equal_caches_and_decode),
#ifdef HB_DEFECTS
        cmocka_unit_test(planted_defects_are_seen),
#endif
    };
    return cmocka_run_group_tests_name("ring_commit", tests, NULL, NULL);
}
