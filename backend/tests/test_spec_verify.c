/* SPDX-License-Identifier: Apache-2.0
 * Verify and commit through the adapter against the reference of world.h: outputs of nodes,
 * intermediate states, committed states and checkpoints; rules of commit, each of which changes no
 * byte; when a verify can be committed. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <limits.h>
#include <string.h>

#include "backend/tests/world.h"

/* Row 0 is request 7, row 1 request 6, as in fixture_verify. A node is a token of some request; the
 * nodes that are looked at continue the row's own request. */
enum { R0 = 7, R1 = 6, OTHER = 3, DRAFT = 5, MAX_NODES = ROWS * MAX_DRAFT };

struct token {
    int32_t req, pos; /* req < 0: NaN */
    int32_t is_checked;
};

static struct token tokens[MAX_NODES];

/* Requests 7 and 6 have 5 and 2 tokens: one window full, one short. */
static void open_requests(int32_t act_dtype, int32_t form, int32_t order, int32_t defect) {
    open_world(act_dtype, form, order, defect);
    take(R0);
    take(R1);
    assert_int_equal(forward(HB_MODE_EXTEND, 2, (const struct row[]){{R0, 5, 0, 0}, {R1, 2, 0, 0}},
                             0, 0),
                     0);
}

/* Batch of chains: every node continues its row's request. */
static void make_chains(int32_t draft, const int32_t *nodes, int32_t pad_rows) {
    const int32_t seq[] = {w.pos[R0], w.pos[R1]};
    fixture_verify(&w.f, draft, 2, seq, nodes, pad_rows);
    for (int32_t r = 0; r < 2 + pad_rows; r++) {
        for (int32_t t = w.f.layout[r]; t < w.f.layout[r + 1]; t++) {
            const int32_t pos = r < 2 ? seq[r] + t - w.f.layout[r] : 0;
            tokens[t] = (struct token){r < 2 ? R0 - r : -1, pos, r < 2};
        }
    }
}

/* The tree of fixture_tree, ragged: nodes 0, 2, 4 continue the row's request, the others are of
 * another request. Row 1 has the first three nodes. */
static void make_trees(void) {
    static const int32_t nodes[] = {5, 3};
    static const int32_t depth[] = {0, 1, 1, 2, 2};
    make_chains(DRAFT, nodes, 1);
    fixture_tree(&w.f);
    for (int32_t r = 0; r < 2; r++) {
        for (int32_t t = 0; t < nodes[r]; t++) {
            struct token *token = &tokens[w.f.layout[r] + t];
            token->is_checked = t % 2 == 0;
            token->req = token->is_checked ? R0 - r : OTHER;
            token->pos = w.pos[R0 - r] + depth[t];
        }
    }
}

static void fill_io(struct io *io, int32_t layer) {
    static uint8_t bytes[TOKENS * 64 * 4];
    make_io(io, layer, 0, NULL);
    for (int32_t k = 0; k < 3; k++) {
        const int64_t width = io->widths[k];
        const int32_t n = w.f.batch.n_tokens;
        for (int32_t t = 0; t < n; t++) {
            for (int32_t i = 0; i < width; i++) {
                const float x = value(k, tokens[t].req, tokens[t].pos, layer, i);
                put(bytes, t * width + i,
                    tokens[t].req < 0 ? NAN : layer == 1 && k == 1 ? 0.0F : x);
            }
        }
        assert_int_equal(
            w.a->buf_write(w.h, io->io.in[k], bytes, (uint64_t)(n * width * act_bytes()), &w.err),
            HB_OK);
    }
}

/* Element i of what a token's output must be, and how far it may be off. Keys are zero, so attention
 * is the mean of the values of the request's tokens so far. */
static double want_of(const struct token *token, int32_t layer, const struct ref *ref, int32_t i,
                      double *off) {
    uint8_t one[4];
    *off = 0;
    if (token->req < 0) {
        return 0;
    }
    if (layer != 1) {
        put(one, 0, ref->y[i]);
        return (double)get(one, 0);
    }
    double sum = 0;
    for (int32_t p = 0; p <= token->pos; p++) {
        sum += (double)value(2, token->req, p, layer, i % D);
    }
    *off = (token->pos + 5) * 0x1p-24 + (w.config.act_dtype == HB_BF16 ? 0x1p-9 : 0x1p-24);
    return sum / (token->pos + 1);
}

static int32_t count_wrong_nodes(const struct io *io, int32_t layer) {
    static uint8_t out[TOKENS * 64 * 4];
    const int64_t width = io->widths[3];
    const int32_t n = w.f.batch.n_tokens;
    int32_t wrong = 0;
    assert_int_equal(
        w.a->buf_read(w.h, io->io.out, out, (uint64_t)(n * width * act_bytes()), &w.err), HB_OK);
    for (int32_t t = 0; t < n; t++) {
        const struct token *token = &tokens[t];
        if (!token->is_checked && token->req >= 0) {
            continue;
        }
        struct ref ref = {0};
        if (token->req >= 0 && layer != 1) {
            ref = reference(token->req, layer, token->pos + 1);
        }
        for (int32_t i = 0; i < width; i++) {
            double off;
            const double want = want_of(token, layer, &ref, i, &off);
            wrong += !(fabs((double)get(out, t * width + i) - want) <= off);
        }
    }
    return wrong;
}

/* The begun forward's layers, and finish; returns wrong output elements. */
static int32_t run_layers(uint32_t layers) {
    int32_t wrong = 0;
    for (int32_t l = 0; l < LAYERS; l++) {
        struct io io;
        if ((layers >> l & 1U) == 0) {
            continue;
        }
        fill_io(&io, l);
        if (w.a->layer(w.h, l, &io.io, &w.err) != HB_OK) {
            fail_msg("layer %d: %s", l, w.err.text);
        }
        wrong += count_wrong_nodes(&io, l);
        free_io(&io);
    }
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    return wrong;
}

static int32_t verify(void) {
    if (w.a->begin(w.h, &w.f.batch, &w.err) != HB_OK) {
        fail_msg("begin: %s", w.err.text);
    }
    return run_layers(7);
}

/* A commit of up to ROWS rows. */
struct plan {
    int32_t step[ROWS], track_step[ROWS];
    int64_t track[ROWS];
    struct hb_commit c;
};

static struct plan plan_of(int32_t n, int32_t step0, int32_t step1, int32_t step2) {
    return (struct plan){.step = {step0, step1, step2},
                         .track_step = {-1, -1, -1, -1, -1, -1, -1, -1},
                         .c = {.struct_size = sizeof(struct hb_commit), .n_rows = n}};
}

static int32_t commit(struct plan *p, int32_t has_track) {
    p->c.step = (struct hb_i32s){p->step, p->c.n_rows};
    if (has_track) {
        p->c.track_indices = (struct hb_i64s){p->track, p->c.n_rows};
        p->c.track_steps = (struct hb_i32s){p->track_step, p->c.n_rows};
    }
    return w.a->commit(w.h, &p->c, &w.err);
}

static void commit_ok(struct plan p, int32_t has_track) {
    if (commit(&p, has_track) != HB_OK) {
        fail_msg("commit: %s", w.err.text);
    }
}

/* Bytes of one region kind of all layers. */
static size_t dump_named(const char *name, uint8_t *out) {
    size_t used = 0;
    for (int32_t l = 0; l < LAYERS; l += 2) {
        struct hb_region info;
        int32_t i = 0;
        region_at(name, l, &i, &info);
        assert_int_equal(w.a->region_read(w.h, i, 0, out + used, info.bytes, &w.err), HB_OK);
        used += info.bytes;
    }
    return used;
}

static void verify_chain_and_commit_are_decode_steps(void **state) {
    (void)state;
    for (int32_t i = 0; i < 2 * HB_N_FORMS * HB_N_ORDERS; i++) {
        open_requests(i % 2, i / 2 % 2, i / 4, 0);
        const size_t n = dump_named("conv", dump_a);
        const size_t m = dump_named("temporal", dump_a + n);
        make_chains(DRAFT, NULL, 1);
        assert_int_equal(verify(), 0);
        assert_int_equal(dump_named("conv", dump_b), n);
        assert_int_equal(dump_named("temporal", dump_b + n), m);
        assert_memory_equal(dump_a, dump_b, n + m); /* not written until the commit */
        commit_ok(plan_of(3, 3, 0, 99), 0);         /* a padding row's step is not looked at */
        assert_true(state_is(w.slot[R0], R0, 9));
        assert_true(state_is(w.slot[R1], R1, 3));
        commit_ok(plan_of(2, 4, -7, 0), 0); /* again, and a row that stays */
        assert_true(state_is(w.slot[R0], R0, 10));
        assert_true(state_is(w.slot[R1], R1, 3));
        commit_ok(plan_of(1, 1, 0, 0), 0); /* fewer rows */
        assert_true(state_is(w.slot[R0], R0, 7));
        assert_true(state_is(w.slot[R1], R1, 3));
        w.pos[R0] = 7;
        w.pos[R1] = 3;
        assert_int_equal(
            forward(HB_MODE_DECODE, 2, (const struct row[]){{R1, 0, 0, 0}, {R0, 0, 0, 0}}, 1, 1),
            0);
        assert_true(state_is(w.slot[R0], R0, 8));
        close_world();
    }
}

static void verify_trees_follow_their_paths(void **state) {
    (void)state;
    for (int32_t i = 0; i < 2 * HB_N_FORMS * HB_N_ORDERS; i++) {
        open_requests(i % 2, i / 2 % 2, i / 4, 0);
        const int32_t dst = take_track();
        make_trees();
        assert_int_equal(verify(), 0);
        struct plan p = plan_of(3, 4, 2, 0);
        p.track_step[0] = 2;
        p.track[0] = dst;
        p.track_step[2] = 5; /* a padding row's is not looked at */
        p.track[2] = -99;
        p.track[1] = INT64_MIN; /* nor the slot of a row without a checkpoint */
        commit_ok(p, 1);
        assert_true(state_is(w.slot[R0], R0, 8));
        assert_true(state_is(w.slot[R1], R1, 4));
        assert_true(state_is(dst, R0, 7));
        close_world();
    }
}

static void verify_writes_its_entries_only(void **state) {
    (void)state;
    static const int32_t nodes[] = {5, 3};
    open_requests(HB_FP32, HB_FORM_FAST, HB_ORDER_RANDOM, 0);
    for (int32_t l = 0; l < LAYERS; l += 2) {
        fill_region("intermediate_conv", l, 0xff);
        fill_region("intermediate_ssm", l, 0xff);
    }
    make_chains(DRAFT, nodes, 1);
    assert_int_equal(verify(), 0);
    const size_t n = dump_named("intermediate_ssm", dump_a);
    enum { ENTRY = sizeof(float) * H * P * N };
    assert_int_equal(n, 2 * SPEC_ROWS * MAX_DRAFT * ENTRY);
    for (int32_t e = 0; e < SPEC_ROWS * MAX_DRAFT; e++) {
        const int32_t row = e / MAX_DRAFT;
        const struct ref ref = reference(R0 - row, 0, w.pos[R0 - row] + e % MAX_DRAFT + 1);
        const int32_t is_node = row < 2 && e % MAX_DRAFT < nodes[row];
        uint8_t want[ENTRY];
        memset(want, 0xff, sizeof(want));
        if (is_node) {
            memcpy(want, ref.state, sizeof(want));
        }
        assert_memory_equal(dump_a + (size_t)e * ENTRY, want, ENTRY);
    }
    const size_t m = dump_named("intermediate_conv", dump_a);
    const size_t window = sizeof(float) * DIM * W;
    assert_int_equal(m, 2 * SPEC_ROWS * MAX_DRAFT * window);
    for (int32_t e = 0; e < SPEC_ROWS * MAX_DRAFT; e++) {
        const int32_t row = e / MAX_DRAFT;
        const struct ref ref = reference(R0 - row, 0, w.pos[R0 - row] + e % MAX_DRAFT + 1);
        const int32_t is_node = row < 2 && e % MAX_DRAFT < nodes[row];
        uint8_t want[sizeof(float) * DIM * W];
        memset(want, 0xff, sizeof(want));
        if (is_node) {
            memcpy(want, ref.conv, sizeof(want));
        }
        assert_memory_equal(dump_a + (size_t)e * window, want, window);
    }
    close_world();
}

static void verify_twice_is_verify_once(void **state) {
    (void)state;
    open_requests(HB_FP32, HB_FORM_FAST, HB_ORDER_ASCENDING, 0);
    make_trees();
    assert_int_equal(verify(), 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    assert_int_equal(verify(), 0);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    commit_ok(plan_of(2, 4, 2, 0), 0);
    assert_true(state_is(w.slot[R0], R0, 8));
    close_world();
}

/* A commit of nothing, and one that is repeated. */
static void commit_may_do_nothing_and_may_be_repeated(void **state) {
    (void)state;
    open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    make_chains(DRAFT, NULL, 0);
    assert_int_equal(verify(), 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    const struct hb_commit none = {.struct_size = sizeof(none)};
    assert_int_equal(w.a->commit(w.h, &none, &w.err), HB_OK);
    commit_ok(plan_of(0, 0, 0, 0), 1);
    commit_ok(plan_of(2, -1, INT_MIN, 0), 0);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    commit_ok(plan_of(2, 1, 2, 0), 0);
    (void)dump(dump_a, sizeof(dump_a));
    commit_ok(plan_of(2, 1, 2, 0), 0);
    (void)dump(dump_b, sizeof(dump_b));
    assert_memory_equal(dump_a, dump_b, n);
    close_world();
}

static void commit_concerns_layers_that_ran(void **state) {
    (void)state;
    open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    make_chains(DRAFT, NULL, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    assert_int_equal(run_layers(4), 0);
    const size_t n = dump_named("temporal", dump_a);
    commit_ok(plan_of(2, 1, 2, 0), 0);
    (void)dump_named("temporal", dump_b);
    assert_memory_equal(dump_a, dump_b, n / 2);
    assert_int_not_equal(memcmp(dump_a + n / 2, dump_b + n / 2, n / 2), 0);
    close_world();
}

static void commit_needs_a_finished_verify(void **state) {
    (void)state;
    struct plan p = plan_of(2, 1, 2, 0);
    open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    check_error(w.a->commit(NULL, NULL, &w.err), HB_RULE_HANDLE_NULL, -1);
    check_error(w.a->commit(w.h, NULL, &w.err), HB_RULE_NO_VERIFY, -1);
    make_chains(DRAFT, NULL, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1); /* not finished */
    assert_int_equal(run_layers(7), 0);
    check_error(w.a->finish(w.h, &w.err), HB_RULE_NO_METADATA, -1); /* changes nothing */
    w.f.batch.draft_token_num = 0;
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_VERIFY_TOKENS, -1);
    assert_int_equal(commit(&p, 0), HB_OK); /* a refused begin leaves it */
    assert_true(state_is(w.slot[R0], R0, 7));
    make_batch(HB_MODE_IDLE, 0, NULL, 1, 1);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1);
    close_world();
}

static void draft_extend_ends_metadata_and_verify(void **state) {
    (void)state;
    struct io io;
    struct plan p = plan_of(2, 1, 2, 0);
    open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    make_chains(DRAFT, NULL, 0);
    assert_int_equal(verify(), 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    const struct hb_batch batch = {.struct_size = sizeof(batch),
                                   .forward_mode = HB_MODE_DRAFT_EXTEND_V2,
                                   .batch_size = 2,
                                   .n_tokens = 4};
    struct hb_batch bad = batch;
    bad.n_tokens = TOKENS + 1;
    check_error(w.a->begin(w.h, &bad, &w.err), HB_RULE_TOKENS_CAPACITY, -1);
    assert_int_equal(commit(&p, 0), HB_OK);
    const struct row rows[] = {{R0, 0, 0, 0}};
    w.pos[R0] = 7;
    make_batch(HB_MODE_DECODE, 1, rows, 0, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    make_io(&io, 1, 1, rows);
    (void)dump(dump_a, sizeof(dump_a));
    assert_int_equal(w.a->begin(w.h, &batch, &w.err), HB_OK);
    check_error(w.a->layer(w.h, 0, &io.io, &w.err), HB_RULE_NO_METADATA, -1);
    check_error(w.a->layer(w.h, 1, &io.io, &w.err), HB_RULE_NO_METADATA, -1);
    check_error(w.a->entry(w.h, HB_ENTRY_WRAPPER, 0, 1, &io.io, &w.err), HB_RULE_NO_METADATA, -1);
    check_error(w.a->entry(w.h, HB_ENTRY_WRAPPER, 0, 0, &io.io, &w.err), HB_RULE_ENTRY_REFUSED, -1);
    check_error(w.a->finish(w.h, &w.err), HB_RULE_NO_METADATA, -1);
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    free_io(&io);
    close_world();
}

/* Faults of a commit of two live rows with checkpoints, one padding row in the verify. */
struct fault {
    int32_t rule, row;
    int64_t value, limit;
    void (*apply)(struct plan *p);
};

static int32_t track_a, track_b;

#define FAULT(name, code)                                                                          \
    static void name(struct plan *p) {                                                             \
        code;                                                                                      \
    }

FAULT(step_null, p->c.step.data = NULL)
FAULT(track_steps_null, p->c.track_steps.data = NULL)
FAULT(rows_negative, p->c.n_rows = -1)
FAULT(rows_many, p->c.n_rows = 4)
FAULT(step_len, p->c.step.len = 1)
FAULT(track_len, p->c.track_indices.len = 9)
FAULT(track_steps_len, p->c.track_steps.len = 0)
FAULT(step_high, p->step[1] = 3)
FAULT(track_zero, p->track[0] = 0)
FAULT(track_high, p->track[1] = INT64_MAX)
FAULT(track_step_high, p->track_step[1] = INT_MAX)
FAULT(slot_free, (void)p; assert_int_equal(w.a->slot_free(w.h, 1, &w.slot[R1], &w.err), HB_OK))
FAULT(track_free, (void)p; assert_int_equal(w.a->slot_free(w.h, 1, &track_a, &w.err), HB_OK))
FAULT(track_twice, p->track[1] = p->track[0])
FAULT(track_live, p->track[1] = w.slot[R0])

static const struct fault faults[] = {
    {HB_RULE_COMMIT_STEP_NULL, -1, 0, 2, step_null},
    {HB_RULE_COMMIT_TRACK_STEPS_NULL, -1, 0, 0, track_steps_null},
    {HB_RULE_COMMIT_ROWS, -1, -1, 3, rows_negative},
    {HB_RULE_COMMIT_ROWS, -1, 4, 3, rows_many},
    {HB_RULE_COMMIT_LENGTH, 0, 1, 2, step_len},
    {HB_RULE_COMMIT_LENGTH, 1, 9, 2, track_len},
    {HB_RULE_COMMIT_LENGTH, 2, 0, 2, track_steps_len},
    {HB_RULE_COMMIT_STEP_RANGE, 1, 3, 2, step_high},
    {HB_RULE_COMMIT_TRACK_SLOT, 0, 0, SLOTS, track_zero},
    {HB_RULE_COMMIT_TRACK_SLOT, 1, INT64_MAX, SLOTS, track_high},
    {HB_RULE_COMMIT_TRACK_STEP, 1, INT_MAX, 2, track_step_high},
    {HB_RULE_COMMIT_SLOT_FREED, 1, 2, 0, slot_free},
    {HB_RULE_COMMIT_TRACK_FREED, 0, 3, 0, track_free},
    {HB_RULE_COMMIT_TRACK_DUPLICATE, 1, 3, 0, track_twice},
    {HB_RULE_COMMIT_TRACK_ALIAS, 1, 1, 0, track_live},
};

enum { N_FAULTS = sizeof(faults) / sizeof(faults[0]) };

/* A verify and a valid commit of it: slots 1 and 2, checkpoints 3 and 4. */
static struct plan open_commit(void) {
    static const int32_t nodes[] = {5, 3};
    open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    track_a = take_track();
    track_b = take_track();
    make_chains(DRAFT, nodes, 1);
    assert_int_equal(verify(), 0);
    struct plan p = plan_of(2, 4, -1, 0);
    p.track_step[0] = 0;
    p.track_step[1] = 2;
    p.track[0] = track_a;
    p.track[1] = track_b;
    return p;
}

static void point_at(struct plan *p) {
    p->c.step = (struct hb_i32s){p->step, 2};
    p->c.track_indices = (struct hb_i64s){p->track, 2};
    p->c.track_steps = (struct hb_i32s){p->track_step, 2};
}

static void commit_each_rule_fires_and_changes_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FAULTS; i++) {
        const struct fault *x = &faults[i];
        struct plan p = open_commit();
        point_at(&p);
        if (i == 0) {
            assert_int_equal(w.a->commit(w.h, &p.c, &w.err), HB_OK);
            check_error(w.a->commit(w.h, NULL, &w.err), HB_RULE_COMMIT_NULL, -1);
        }
        x->apply(&p);
        const size_t n = dump(dump_a, sizeof(dump_a));
        check_error(w.a->commit(w.h, &p.c, &w.err), x->rule, x->row);
        assert_true(w.err.value == x->value && w.err.limit == x->limit);
        assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
        assert_memory_equal(dump_a, dump_b, n);
        /* the verify is still there; no fault left a trace in the scratch */
        p = plan_of(1, 4, 0, 0);
        commit_ok(p, 0);
        assert_true(state_is(w.slot[R0], R0, 10));
        close_world();
    }
}

static void commit_lower_rule_wins_in_every_pair(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FAULTS; i++) {
        for (size_t k = i + 1; k < N_FAULTS; k++) {
            const struct fault *a = &faults[i];
            const struct fault *b = &faults[k];
            /* another checkpoint slot, or two shares of one */
            const int32_t hides = (a->apply == track_twice && b->apply == track_live) ||
                                  (a->apply == step_null && b->apply == rows_negative);
            if (a->rule == b->rule || hides) {
                continue;
            }
            struct plan p = open_commit();
            point_at(&p);
            b->apply(&p);
            a->apply(&p);
            (void)w.a->commit(w.h, &p.c, &w.err);
            if (w.err.rule != a->rule) {
                fail_msg("rules %d and %d: got %d", a->rule, b->rule, w.err.rule);
            }
            close_world();
        }
    }
}

static void commit_to_a_slot_that_changed_since(void **state) {
    (void)state;
    struct plan p = open_commit();
    /* freed: fine for a row that is left alone */
    assert_int_equal(w.a->slot_free(w.h, 1, &w.slot[R1], &w.err), HB_OK);
    p.track_step[1] = -1;
    commit_ok(p, 1);
    assert_true(state_is(w.slot[R0], R0, 10));
    assert_true(state_is(track_a, R0, 6));
    /* taken again as a checkpoint: the row's state goes there first, then the checkpoint */
    int32_t again = 0;
    do {
        again = take_track();
    } while (again != w.slot[R1]);
    p.step[1] = 0;
    p.track[0] = again;
    commit_ok(p, 1);
    assert_true(state_is(again, R0, 6));
    p.track_step[0] = -1;
    commit_ok(p, 1);
    assert_true(state_is(again, R1, 3));
    close_world();
}

static void commit_of_dummy_rows_writes_slot_zero(void **state) {
    (void)state;
    open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    make_chains(DRAFT, NULL, 0);
    for (int32_t r = 0; r < 2; r++) {
        assert_int_equal(w.a->table_set(w.h, R0 - r, 0, &w.err), HB_OK);
    }
    w.f.batch.is_dummy = 1;
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    (void)run_layers(7);
    commit_ok(plan_of(2, 1, 2, 0), 0);
    assert_true(state_is(w.slot[R0], R0, 5));
    assert_true(state_is(w.slot[R1], R1, 2));
    close_world();
}

static void verify_defects_are_seen(void **state) {
    (void)state;
    for (int32_t defect = 0; defect <= HB_DEFECT_VERIFY_CONV_STORED; defect++) {
        const int32_t is_new = defect == 0 || defect >= HB_DEFECT_VERIFY_SHAPE;
        if (!is_new) {
            continue;
        }
        open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, defect);
        const size_t n = dump_named("conv", dump_a);
        make_trees();
        const int32_t wrong = verify();
        assert_int_equal(wrong > 0, HB_DEFECT(defect, VERIFY_SIBLING));
        (void)dump_named("conv", dump_b);
        assert_int_equal(memcmp(dump_a, dump_b, n) != 0, HB_DEFECT(defect, VERIFY_CONV_STORED));
        const size_t m = dump(dump_a, sizeof(dump_a));
        commit_ok(plan_of(2, -1, -1, 0), 0);
        (void)dump(dump_b, sizeof(dump_b));
        assert_int_equal(memcmp(dump_a, dump_b, m) != 0, HB_DEFECT(defect, SCATTER_WRAP));
        commit_ok(plan_of(2, 0, 2, 0), 0);
        assert_true(state_is(w.slot[R0], R0, 6)); /* step 0 has no earlier one */
        assert_int_equal(!state_is(w.slot[R1], R1, 4),
                         HB_DEFECT(defect, VERIFY_SHAPE) || HB_DEFECT(defect, VERIFY_SIBLING));
        close_world();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verify_chain_and_commit_are_decode_steps),
        cmocka_unit_test(verify_trees_follow_their_paths),
        cmocka_unit_test(verify_writes_its_entries_only),
        cmocka_unit_test(verify_twice_is_verify_once),
        cmocka_unit_test(commit_may_do_nothing_and_may_be_repeated),
        cmocka_unit_test(commit_concerns_layers_that_ran),
        cmocka_unit_test(commit_needs_a_finished_verify),
        cmocka_unit_test(draft_extend_ends_metadata_and_verify),
        cmocka_unit_test(commit_each_rule_fires_and_changes_nothing),
        cmocka_unit_test(commit_lower_rule_wins_in_every_pair),
        cmocka_unit_test(commit_to_a_slot_that_changed_since),
        cmocka_unit_test(commit_of_dummy_rows_writes_slot_zero),
        cmocka_unit_test(verify_defects_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
