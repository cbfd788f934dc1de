/* SPDX-License-Identifier: Apache-2.0
 * The replay ring that commits own (speculative.md section 7), over long random histories of
 * verifies and commits: outputs and states equal those of intermediate caches and of decode steps
 * bit for bit, in both forms, all orders, both state layouts and head maps; a verify writes its
 * records, a folding one its rows' states, a fold its destination, and nothing else. */
#include "kernels/tests/rig.h"

enum { N_ROWS = 4, N_SLOTS = 6, PAD = 3, N_ROUNDS = 14, CHECKPOINT = 5, MAX_D = 5 };

struct shape {
    int32_t heads, p, n, groups, act_dtype, draft, length;
};

/* Rings of twice the nodes, and larger ones; more state elements than a warp has lanes. */
static const struct shape shapes[] = {
    {4, 2, 3, 2, HB_FP32, 2, 4},   {2, 10, 35, 1, HB_FP32, 4, 8}, {2, 9, 40, 2, HB_BF16, 4, 16},
    {4, 3, 5, 2, HB_FP16, 5, 16},  {1, 3, 70, 1, HB_BF16, 1, 2},   {2, 8, 256, 1, HB_FP32, 4, 8},
    {4, 2, 3, 2, HB_FP32, 5, 64}};

enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static const int32_t slots[N_ROWS] = {3, -1, 1, 6}; /* the last slot is one of them */

/* State of a ring's slot as the backend keeps it. */
struct cursor {
    int32_t base, w, flush;
};

/* A ring, intermediate caches and decode steps over the same inputs. */
struct run {
    struct rig rig;
    struct shape s;
    struct hb_k_ssm_ring ring;
    struct hb_k_ssm_verify plain;
    struct hb_k_ssm decode;
    void *xbc, *dt, *y;
    const int32_t *steps; /* device 0, 1, ..: any token as a row of its own */
    struct hb_k_ring_fold fold;
    struct cursor cursor[N_ROWS];
    int32_t qsl[N_ROWS + 1];
    size_t entry, stride, n_y, n_xbc, n_dt, n_x, n_b, n_g;
    float *expected; /* the ring's pool */
    float *states;   /* pool of the intermediate caches */
};

static const void *floats(struct run *r, size_t n, float low, float high) {
    struct array a = array_make(n, HB_FP32);
    for (size_t i = 0; i < n; i++) {
        array_set(&a, i, rig_value(&r->rig, low, high));
    }
    const void *device = array_device(&r->rig, &a);
    array_free(&a);
    return device;
}

static const int32_t *ints(struct run *r, size_t n) {
    return rig_device(&r->rig, NULL, n * sizeof(int32_t));
}

/* The same states in a pool with pads, in one without, and in that of the decode steps. */
static void open_pools(struct run *r) {
    struct array dense = array_random(&r->rig, (N_SLOTS + 1) * r->entry, HB_FP32, 1.0f);
    struct array padded = array_random(&r->rig, (N_SLOTS + 1) * r->stride, HB_FP32, 1.0f);
    for (size_t i = 0; i < dense.n; i++) {
        const size_t at = i / r->entry * r->stride + i % r->entry;
        ((float *)padded.bytes)[at] = ((float *)dense.bytes)[i];
    }
    r->ring.ssm.pool = array_device(&r->rig, &padded);
    r->plain.ssm.pool = array_device(&r->rig, &dense);
    r->decode.pool = array_device(&r->rig, &dense);
    r->expected = padded.bytes;
    r->states = dense.bytes;
    free(padded.wide);
    free(dense.wide);
}

static void count(struct run *r) {
    const size_t heads = (size_t)r->s.heads, length = (size_t)r->s.length;
    const size_t n_bc = (size_t)(r->s.groups * r->s.n);
    r->entry = heads * (size_t)(r->s.p * r->s.n);
    r->stride = r->entry + PAD;
    r->n_y = N_ROWS * (size_t)r->s.draft * heads * (size_t)r->s.p;
    r->n_xbc = r->n_y + N_ROWS * (size_t)r->s.draft * 2 * n_bc;
    r->n_dt = N_ROWS * (size_t)r->s.draft * heads;
    r->n_x = (N_SLOTS + 1) * heads * length * (size_t)r->s.p;
    r->n_b = (N_SLOTS + 1) * n_bc * length;
    r->n_g = (N_SLOTS + 1) * heads * length;
}

static void open_args(struct run *r, int32_t form, int32_t layout, int32_t head_map) {
    const size_t heads = (size_t)r->s.heads, act = size_of(r->s.act_dtype);
    r->xbc = rig_device(&r->rig, NULL, r->n_xbc * act);
    r->dt = rig_device(&r->rig, NULL, r->n_dt * act);
    r->y = rig_device(&r->rig, NULL, r->n_y * act);
    const struct hb_k_ssm ssm = {.rows = {.n_rows = N_ROWS,
                                          .qsl = ints(r, N_ROWS + 1),
                                          .slots = rig_device(&r->rig, slots, sizeof slots)},
                                 .n_heads = r->s.heads,
                                 .head_dim = r->s.p,
                                 .state_size = r->s.n,
                                 .n_groups = r->s.groups,
                                 .chunk_size = 4,
                                 .act_dtype = r->s.act_dtype,
                                 .state_dtype = HB_FP32,
                                 .dt_softplus = 1,
                                 .form = form,
                                 .xbc = r->xbc,
                                 .dt = r->dt,
                                 .a = floats(r, heads, -2.0f, -0.1f),
                                 .dt_bias = floats(r, heads, -1.0f, 1.0f),
                                 .d = floats(r, heads, -1.0f, 1.0f),
                                 .head_map = head_map,
                                 .state_layout = layout};
    const size_t n_entries = N_ROWS * (size_t)r->s.draft * r->entry;
    r->plain = (struct hb_k_ssm_verify){
        .ssm = ssm,
        .max_draft = r->s.draft,
        .parent_stride = r->s.draft,
        .states = rig_device(&r->rig, NULL, n_entries * sizeof(float))};
    r->plain.ssm.y = rig_device(&r->rig, NULL, r->n_y * act);
    r->decode = ssm;
    r->decode.y = rig_device(&r->rig, NULL, r->n_y * act);
    r->ring = (struct hb_k_ssm_ring){.ssm = ssm,
                                     .ring_length = r->s.length,
                                     .write_pos = ints(r, N_ROWS),
                                     .fold = ints(r, N_ROWS),
                                     .base = ints(r, N_ROWS),
                                     .ring_x = rig_device(&r->rig, NULL, r->n_x * sizeof(float)),
                                     .ring_b = rig_device(&r->rig, NULL, r->n_b * sizeof(float)),
                                     .ring_g = rig_device(&r->rig, NULL, r->n_g * sizeof(float))};
    r->ring.ssm.y = r->y;
    r->ring.ssm.pool_pad = PAD;
}

static int open_run(struct run *r, int table, int32_t shape, int32_t form, int32_t layout,
                    int32_t head_map) {
    int32_t steps[N_ROWS * MAX_D + 1];
    memset(r, 0, sizeof *r);
    if (!rig_open(&r->rig, table, 7U + (uint32_t)shape)) {
        return 0;
    }
    r->s = shapes[shape];
    count(r);
    open_args(r, form, layout, head_map);
    open_pools(r);
    for (int32_t i = 0; i <= N_ROWS * MAX_D; i++) {
        steps[i] = i;
    }
    r->steps = rig_device(&r->rig, steps, sizeof steps);
    r->fold = (struct hb_k_ring_fold){
        .ring = r->ring, .n_pairs = 1, .src = ints(r, 1), .dst = ints(r, 1), .count = ints(r, 1)};
    r->fold.ring.base = ints(r, 1);
    return 1;
}

static void close_run(struct run *r) {
    free(r->expected);
    free(r->states);
    rig_close(&r->rig);
}

static int32_t pick(struct run *r, int32_t n) {
    return (int32_t)rig_value(&r->rig, 0.0f, (float)n) % n;
}

static float *read_floats(struct run *r, const void *device, size_t n) {
    return rig_host(&r->rig, device, n * sizeof(float));
}

/* New inputs of ragged rows. */
static void make_inputs(struct run *r) {
    const int32_t dtype = r->s.act_dtype;
    struct array xbc = array_random(&r->rig, r->n_xbc, dtype, 1.0f);
    struct array dt = array_random(&r->rig, r->n_dt, dtype, 1.0f);
    rig_rewrite(&r->rig, r->xbc, xbc.bytes, r->n_xbc * size_of(dtype));
    rig_rewrite(&r->rig, r->dt, dt.bytes, r->n_dt * size_of(dtype));
    array_free(&xbc);
    array_free(&dt);
    for (int32_t i = 0; i < N_ROWS; i++) {
        r->qsl[i + 1] = r->qsl[i] + (pick(r, 2) ? r->s.draft : 1 + pick(r, r->s.draft));
    }
    rig_rewrite(&r->rig, r->ring.ssm.rows.qsl, r->qsl, sizeof r->qsl);
}

/* The row's slot in the two pools: expected of the ring's := state of the other. */
static void expect_state(struct run *r, int32_t slot) {
    memcpy(r->expected + (size_t)slot * r->stride, r->states + (size_t)slot * r->entry,
           r->entry * sizeof(float));
}

static void check_pool(struct run *r) {
    const size_t n = (N_SLOTS + 1) * r->stride;
    float *pool = read_floats(r, r->ring.ssm.pool, n);
    assert_memory_equal(pool, r->expected, n * sizeof(float));
    free(pool);
}

/* Is position at of a slot's ring one that the verify writes? */
static int is_written(const struct run *r, int32_t slot, int32_t at) {
    for (int32_t i = 0; i < N_ROWS; i++) {
        const int32_t first = r->cursor[i].base + r->cursor[i].w;
        const int32_t node = (at - first) & (r->s.length - 1);
        if (slots[i] == slot && node < r->qsl[i + 1] - r->qsl[i]) {
            return 1;
        }
    }
    return 0;
}

/* Records [N_SLOTS+1, lanes, L, width]: those that the verify did not write keep their bytes. */
static void check_records(const struct run *r, const float *before, const float *after,
                          int32_t lanes, int32_t width) {
    const size_t n = (size_t)width;
    for (int32_t i = 0; i < (N_SLOTS + 1) * lanes * r->s.length; i++) {
        const int32_t slot = i / r->s.length / lanes;
        const size_t at = (size_t)i * n;
        if (!is_written(r, slot, i % r->s.length)) {
            assert_memory_equal(before + at, after + at, n * sizeof(float));
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            assert_true(after[at + k] == after[at + k]); /* no poison */
        }
    }
}

static void write_cursors(struct run *r) {
    int32_t base[N_ROWS], w[N_ROWS], fold[N_ROWS];
    for (int32_t i = 0; i < N_ROWS; i++) {
        base[i] = r->cursor[i].base;
        w[i] = r->cursor[i].w;
        fold[i] = r->cursor[i].flush;
    }
    rig_rewrite(&r->rig, r->ring.base, base, sizeof base);
    rig_rewrite(&r->rig, r->ring.write_pos, w, sizeof w);
    rig_rewrite(&r->rig, r->ring.fold, fold, sizeof fold);
}

/* One verify of each, compared; then what the end of a verify does to the cursors. */
static void verify(struct run *r) {
    const size_t n_y = r->n_y * size_of(r->s.act_dtype);
    write_cursors(r);
    float *x = read_floats(r, r->ring.ring_x, r->n_x);
    float *b = read_floats(r, r->ring.ring_b, r->n_b);
    float *g = read_floats(r, r->ring.ring_g, r->n_g);
    assert_int_equal(r->rig.k->ssm_ring_verify(&r->ring), HB_OK);
    assert_int_equal(r->rig.k->ssm_verify(&r->plain), HB_OK);
    void *y = rig_host(&r->rig, r->y, n_y);
    void *want = rig_host(&r->rig, r->plain.ssm.y, n_y);
    assert_memory_equal(y, want, n_y); /* padding rows: the poison of both */
    float *x2 = read_floats(r, r->ring.ring_x, r->n_x);
    float *b2 = read_floats(r, r->ring.ring_b, r->n_b);
    float *g2 = read_floats(r, r->ring.ring_g, r->n_g);
    check_records(r, x, x2, r->s.heads, r->s.p);
    check_records(r, b, b2, r->s.groups, r->s.n);
    check_records(r, g, g2, r->s.heads, 1);
    float *const owned[] = {x, b, g, x2, b2, g2};
    for (size_t i = 0; i < 6; i++) {
        free(owned[i]);
    }
    free(y);
    free(want);
    for (int32_t i = 0; i < N_ROWS; i++) {
        struct cursor *c = &r->cursor[i];
        if (slots[i] >= 0 && c->flush) {
            expect_state(r, slots[i]);
            *c = (struct cursor){(c->base + c->w) & (r->s.length - 1), 0, 0};
        }
    }
    check_pool(r);
}

/* Row i's state after n of its nodes goes to the checkpoint. */
static void fold_checkpoint(struct run *r, int32_t i, int32_t n, const float *want) {
    const int32_t values[4] = {slots[i], CHECKPOINT, r->cursor[i].base, r->cursor[i].w + n};
    const int32_t *const places[4] = {r->fold.src, r->fold.dst, r->fold.ring.base, r->fold.count};
    for (int32_t k = 0; k < 4; k++) {
        rig_rewrite(&r->rig, places[k], &values[k], sizeof(int32_t));
    }
    r->fold.ring.ssm.pool = r->ring.ssm.pool;
    r->fold.ring.ssm.rows = (struct hb_k_rows){0};
    assert_int_equal(r->rig.k->ring_fold(&r->fold), HB_OK);
    memcpy(r->expected + (size_t)CHECKPOINT * r->stride, want, r->entry * sizeof(float));
    check_pool(r);
}

/* Row i's first n nodes as decode steps. */
static void decode_nodes(struct run *r, int32_t i, int32_t n) {
    struct hb_k_ssm args = r->decode;
    for (int32_t t = 0; t < n; t++) {
        args.rows = (struct hb_k_rows){.n_rows = 1,
                                       .qsl = r->steps + r->qsl[i] + t,
                                       .slots = r->ring.ssm.rows.slots + i};
        assert_int_equal(r->rig.k->ssm_update(&args), HB_OK);
    }
}

/* Any number of accepted nodes per row; the cursors as the backend moves them. */
static void commit(struct run *r) {
    const size_t n_pool = (N_SLOTS + 1) * r->entry;
    float *entries = read_floats(r, r->plain.states, N_ROWS * (size_t)r->s.draft * r->entry);
    for (int32_t i = 0; i < N_ROWS; i++) {
        const int32_t len = r->qsl[i + 1] - r->qsl[i];
        if (slots[i] < 0) {
            continue;
        }
        if (pick(r, 3) == 0) {
            const int32_t t = pick(r, len);
            fold_checkpoint(r, i, t + 1, entries + (size_t)(i * r->s.draft + t) * r->entry);
        }
        const int32_t n = pick(r, 3) ? pick(r, len + 1) : len;
        if (n > 0) {
            struct cursor *c = &r->cursor[i];
            memcpy(r->states + (size_t)slots[i] * r->entry,
                   entries + (size_t)(i * r->s.draft + n - 1) * r->entry,
                   r->entry * sizeof(float));
            c->w += n;
            c->flush = c->w + 2 * r->s.draft > r->s.length;
            assert_true(c->w + r->s.draft <= r->s.length);
        }
        decode_nodes(r, i, n);
    }
    rig_rewrite(&r->rig, r->plain.ssm.pool, r->states, n_pool * sizeof(float));
    float *decoded = read_floats(r, r->decode.pool, n_pool);
    assert_memory_equal(decoded, r->states, n_pool * sizeof(float));
    free(decoded);
    free(entries);
}

static void ring_verify_equals_caches_and_decode(void **state) {
    (void)state;
    int32_t n_folds = 0;
    int32_t n_wraps = 0;
    for (int32_t i = 0; i < 2 * N_SHAPES * 12; i++) {
        struct run r;
        if (!open_run(&r, i % 2, i / 2 % N_SHAPES, i / 2 / N_SHAPES % 2, i / 4 / N_SHAPES % 2,
                      (i / 8 / N_SHAPES + i / 4 / N_SHAPES) % 2)) {
            continue;
        }
        r.rig.k->set_order(i / 2 / N_SHAPES % 3, (i / 2 / N_SHAPES + 1) % 3, 3);
        for (int32_t round = 0; round < N_ROUNDS; round++) {
            const struct cursor before = r.cursor[0];
            make_inputs(&r);
            verify(&r);
            if (round % 4 == 1) { /* once more, of the same and of other nodes */
                verify(&r);
                make_inputs(&r);
                verify(&r);
            }
            n_folds += before.flush;
            n_wraps += r.cursor[0].base < before.base;
            commit(&r);
        }
        close_run(&r);
    }
    assert_true(n_folds > 100 && n_wraps > 50);
}

/* Records beyond the cursor may be anything, infinite or not. */
static void ring_verify_reads_no_record_beyond_the_cursor(void **state) {
    (void)state;
    for (int32_t form = 0; form < 2; form++) {
        struct run r;
        assert_true(open_run(&r, 0, 0, form, 0, 0));
        float *x = read_floats(&r, r.ring.ring_x, r.n_x); /* poison: NaN */
        for (size_t i = 0; i < r.n_x; i++) {
            assert_true(isnan(x[i]));
            x[i] = INFINITY;
        }
        rig_rewrite(&r.rig, r.ring.ring_x, x, r.n_x * sizeof(float));
        make_inputs(&r);
        verify(&r);
        free(x);
        close_run(&r);
    }
}

/* No record: a fold copies. */
static void ring_fold_of_no_record_is_a_copy(void **state) {
    (void)state;
    struct run r;
    assert_true(open_run(&r, 0, 1, HB_FORM_V0, 0, 0));
    fold_checkpoint(&r, 2, 0, r.states + (size_t)slots[2] * r.entry);
    close_run(&r);
}

static void ring_verify_refuses_what_it_cannot_hold(void **state) {
    (void)state;
    struct run r;
    assert_true(open_run(&r, 0, 0, HB_FORM_V0, 0, 0));
    struct hb_k_ssm_ring args = r.ring;
    args.ring_length = 2 * HB_MAX_RING;
    assert_int_equal(r.rig.k->ssm_ring_verify(&args), HB_ERR_DEVICE);
    args = r.ring;
    args.ssm.state_size = HB_MAX_STATE_SIZE + 1;
    assert_int_equal(r.rig.k->ssm_ring_verify(&args), HB_ERR_DEVICE);
    args.ssm.rows.n_rows = 0;
    assert_int_equal(r.rig.k->ssm_ring_verify(&args), HB_OK);
    struct hb_k_ring_fold fold = r.fold;
    fold.ring.ring_length = 2 * HB_MAX_RING;
    assert_int_equal(r.rig.k->ring_fold(&fold), HB_ERR_DEVICE);
    fold.n_pairs = 0;
    assert_int_equal(r.rig.k->ring_fold(&fold), HB_OK);
    check_pool(&r);
    close_run(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_verify_equals_caches_and_decode),
        cmocka_unit_test(ring_verify_reads_no_record_beyond_the_cursor),
        cmocka_unit_test(ring_fold_of_no_record_is_a_copy),
        cmocka_unit_test(ring_verify_refuses_what_it_cannot_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
