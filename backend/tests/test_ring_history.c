/* SPDX-License-Identifier: Apache-2.0
 * Random histories in three worlds: with a replay ring that commits own, with intermediate caches,
 * and of decode steps. Values are no round ones, so that only the same operations in the same order
 * give the same bits (speculative.md section 7). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "backend/tests/ring_world.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(histories_equal_caches_and_decode),
    };
    return cmocka_run_group_tests_name("ring_history", tests, NULL, NULL);
}
