/* SPDX-License-Identifier: Apache-2.0
 * The replay ring (speculative.md section 7): outputs equal plain decode on fp32 states bit for
 * bit, the state is written by a fold only and is then that of plain decode, records are dt x, B
 * and A dt, what lies beyond the cursor is not read, in both forms and all orders. */
#include "kernels/tests/rig.h"

enum { N_ROWS = 3, N_SLOTS = 4, LENGTH = 5, N_STEPS = 12, PAD = 3 };

struct shape {
    int32_t heads, p, n, groups, act_dtype, state_dtype;
};

static const struct shape shapes[] = {
    {4, 2, 3, 2, HB_FP32, HB_FP32},  {2, 10, 35, 1, HB_FP32, HB_FP32},
    {2, 9, 40, 2, HB_BF16, HB_FP32}, {1, 3, 70, 1, HB_BF16, HB_BF16},
    {2, 8, 256, 1, HB_FP32, HB_BF16}};

enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static const int32_t slots[N_ROWS] = {3, -1, 1};

/* A ring beside a plain decode with fp32 states, of the same inputs. */
struct run {
    struct rig rig;
    struct shape s;
    struct hb_k_ssm_ring ring;
    struct hb_k_ssm plain;
    void *pool, *plain_pool, *ring_y, *plain_y;
    void *xbc, *dt;
    size_t entry, n_y, n_xbc, n_dt, n_x, n_b, n_g;
    int32_t cursor[N_ROWS], fold[N_ROWS];
};

static void *floats(struct run *r, size_t n, float low, float high) {
    struct array a = array_make(n, HB_FP32);
    for (size_t i = 0; i < n; i++) {
        array_set(&a, i, rig_value(&r->rig, low, high));
    }
    void *device = array_device(&r->rig, &a);
    array_free(&a);
    return device;
}

static void fill_pools(struct run *r) {
    const size_t stride = r->entry + PAD;
    struct array pool = array_random(&r->rig, (N_SLOTS + 1) * stride, r->s.state_dtype, 1.0f);
    struct array wide = array_make((N_SLOTS + 1) * r->entry, HB_FP32);
    for (size_t i = 0; i < wide.n; i++) {
        array_set(&wide, i, (float)pool.wide[i / r->entry * stride + i % r->entry]);
    }
    r->pool = array_device(&r->rig, &pool);
    r->plain_pool = array_device(&r->rig, &wide);
    array_free(&pool);
    array_free(&wide);
}

static void open_run(struct run *r, int table, int32_t shape, int32_t form) {
    static const int32_t qsl[N_ROWS + 1] = {0, 1, 2, 3};
    memset(r, 0, sizeof *r);
    assert_true(rig_open(&r->rig, table, 7U + (uint32_t)shape));
    const struct shape *s = &r->s;
    r->s = shapes[shape];
    const size_t heads = (size_t)s->heads;
    const size_t n_bc = (size_t)(s->groups * s->n);
    r->entry = heads * (size_t)(s->p * s->n);
    r->n_y = N_ROWS * heads * (size_t)s->p;
    r->n_xbc = r->n_y + N_ROWS * 2 * n_bc;
    r->n_dt = N_ROWS * heads;
    r->n_x = (N_SLOTS + 1) * heads * (size_t)(LENGTH * s->p);
    r->n_b = (N_SLOTS + 1) * n_bc * LENGTH;
    r->n_g = (N_SLOTS + 1) * heads * LENGTH;
    fill_pools(r);
    r->ring_y = rig_device(&r->rig, NULL, r->n_y * size_of(s->act_dtype));
    r->plain_y = rig_device(&r->rig, NULL, r->n_y * size_of(s->act_dtype));
    r->xbc = rig_device(&r->rig, NULL, r->n_xbc * size_of(s->act_dtype));
    r->dt = rig_device(&r->rig, NULL, r->n_dt * size_of(s->act_dtype));
    r->plain = (struct hb_k_ssm){.rows = {.n_rows = N_ROWS,
                                          .qsl = rig_device(&r->rig, qsl, sizeof qsl),
                                          .slots = rig_device(&r->rig, slots, sizeof slots)},
                                 .n_heads = s->heads,
                                 .head_dim = s->p,
                                 .state_size = s->n,
                                 .n_groups = s->groups,
                                 .chunk_size = 4,
                                 .act_dtype = s->act_dtype,
                                 .state_dtype = HB_FP32,
                                 .dt_softplus = 1,
                                 .dt_clamp = HB_DT_CLAMP_NONE,
                                 .form = form,
                                 .xbc = r->xbc,
                                 .dt = r->dt,
                                 .a = floats(r, heads, -2.0f, -0.1f),
                                 .dt_bias = floats(r, heads, -1.0f, 1.0f),
                                 .d = floats(r, heads, -1.0f, 1.0f),
                                 .y = r->plain_y,
                                 .pool = r->plain_pool};
    r->ring = (struct hb_k_ssm_ring){
        .ssm = r->plain,
        .ring_length = LENGTH,
        .write_pos = rig_device(&r->rig, r->cursor, sizeof r->cursor),
        .fold = rig_device(&r->rig, r->fold, sizeof r->fold),
        .ring_x = rig_device(&r->rig, NULL, r->n_x * sizeof(float)),
        .ring_b = rig_device(&r->rig, NULL, r->n_b * sizeof(float)),
        .ring_g = rig_device(&r->rig, NULL, r->n_g * sizeof(float))};
    r->ring.ssm.state_dtype = s->state_dtype;
    r->ring.ssm.pool = r->pool;
    r->ring.ssm.pool_pad = PAD;
    r->ring.ssm.y = r->ring_y;
}

/* New inputs; row r folds when fold[r] says so. */
static void step(struct run *r) {
    const int32_t dtype = r->s.act_dtype;
    struct array xbc = array_random(&r->rig, r->n_xbc, dtype, 1.0f);
    struct array dt = array_random(&r->rig, r->n_dt, dtype, 1.0f);
    rig_rewrite(&r->rig, r->xbc, xbc.bytes, r->n_xbc * size_of(dtype));
    rig_rewrite(&r->rig, r->dt, dt.bytes, r->n_dt * size_of(dtype));
    array_free(&xbc);
    array_free(&dt);
    rig_rewrite(&r->rig, r->ring.write_pos, r->cursor, sizeof r->cursor);
    rig_rewrite(&r->rig, r->ring.fold, r->fold, sizeof r->fold);
    assert_int_equal(r->rig.k->ssm_ring(&r->ring), HB_OK);
    assert_int_equal(r->rig.k->ssm_update(&r->plain), HB_OK);
    for (int32_t i = 0; i < N_ROWS; i++) {
        r->cursor[i] = r->fold[i] || r->cursor[i] == LENGTH - 1 ? 0 : r->cursor[i] + 1;
    }
}

static int same_outputs(struct run *r) {
    const size_t bytes = r->n_y * size_of(r->s.act_dtype);
    void *a = rig_host(&r->rig, r->ring_y, bytes);
    void *b = rig_host(&r->rig, r->plain_y, bytes);
    const int same = memcmp(a, b, bytes) == 0; /* padding rows: the poison of both */
    free(a);
    free(b);
    return same;
}

/* Slot's state: that of plain decode, rounded once to the state's type where it is narrower. */
static int same_state(struct run *r, int32_t slot) {
    const size_t stride = r->entry + PAD;
    struct array pool = array_read(&r->rig, r->pool, (N_SLOTS + 1) * stride, r->s.state_dtype);
    struct array wide =
        array_read(&r->rig, r->plain_pool, (N_SLOTS + 1) * r->entry, HB_FP32);
    struct array one = array_make(1, r->s.state_dtype);
    int same = 1;
    for (size_t i = 0; i < r->entry; i++) {
        array_set(&one, 0, (float)wide.wide[(size_t)slot * r->entry + i]);
        same &= pool.wide[(size_t)slot * stride + i] == one.wide[0];
    }
    array_free(&pool);
    array_free(&wide);
    array_free(&one);
    return same;
}

/* With bf16 states plain decode must go on from what the fold stored. */
static void round_plain(struct run *r, int32_t slot) {
    const size_t stride = r->entry + PAD;
    struct array pool = array_read(&r->rig, r->pool, (N_SLOTS + 1) * stride, r->s.state_dtype);
    struct array wide =
        array_read(&r->rig, r->plain_pool, (N_SLOTS + 1) * r->entry, HB_FP32);
    for (size_t i = 0; i < r->entry; i++) {
        array_set(&wide, (size_t)slot * r->entry + i, (float)pool.wide[(size_t)slot * stride + i]);
    }
    rig_rewrite(&r->rig, r->plain_pool, wide.bytes, wide.n * sizeof(float));
    array_free(&pool);
    array_free(&wide);
}

static void ring_equals_plain_decode(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        for (int32_t i = 0; i < N_SHAPES * 2 * 3; i++) {
            struct run r;
            if (!rig_open(&r.rig, table, 1)) {
                continue;
            }
            open_run(&r, table, i % N_SHAPES, i / N_SHAPES % 2);
            r.rig.k->set_order(i / N_SHAPES / 2, (i / N_SHAPES / 2 + 1) % 3, 3);
            for (int32_t t = 0; t < N_STEPS; t++) {
                const int32_t before[N_ROWS] = {r.cursor[0], r.cursor[1], r.cursor[2]};
                r.fold[0] = t == 2 || t == 3;
                r.fold[2] = t == 8;
                step(&r);
                assert_true(same_outputs(&r));
                for (int32_t row = 0; row < N_ROWS; row += 2) {
                    const int32_t folds = before[row] == LENGTH - 1 || r.fold[row];
                    assert_int_equal(same_state(&r, slots[row]), folds);
                    if (folds) {
                        round_plain(&r, slots[row]);
                    }
                }
            }
            rig_close(&r.rig);
        }
    }
}

/* The state between two folds, other slots, pads and records beyond the cursor keep their bytes. */
static void ring_writes_its_record_and_nothing_else(void **state) {
    (void)state;
    for (int32_t form = 0; form < 2; form++) {
        struct run r;
        open_run(&r, 0, 0, form);
        const size_t n_pool = (N_SLOTS + 1) * (r.entry + PAD) * sizeof(float);
        void *before = rig_host(&r.rig, r.pool, n_pool);
        for (int32_t t = 0; t < 2; t++) {
            step(&r);
        }
        void *after = rig_host(&r.rig, r.pool, n_pool);
        assert_memory_equal(before, after, n_pool);
        float *g = rig_host(&r.rig, r.ring.ring_g, r.n_g * sizeof(float));
        float *x = rig_host(&r.rig, r.ring.ring_x, r.n_x * sizeof(float));
        float *b = rig_host(&r.rig, r.ring.ring_b, r.n_b * sizeof(float));
        for (int32_t slot = 0; slot <= N_SLOTS; slot++) {
            for (int32_t j = 0; j < LENGTH; j++) {
                const int is_written = (slot == 3 || slot == 1) && j < 2;
                const size_t head = (size_t)(slot * 4 * LENGTH + j);
                assert_int_equal(!isnan(g[head]), is_written);
                assert_int_equal(!isnan(x[head * 2 + 1]), is_written);
                assert_int_equal(!isnan(b[(size_t)(slot * 2 * LENGTH + LENGTH + j) * 3 + 2]),
                                 is_written);
                if (is_written) {
                    assert_true(g[head] < 0.0f);
                }
            }
        }
        free(before);
        free(after);
        free(g);
        free(x);
        free(b);
        rig_close(&r.rig);
    }
}

static void ring_values_of_a_record(void **state) {
    (void)state;
    struct run r;
    open_run(&r, 0, 0, HB_FORM_FAST);
    r.ring.ssm.dt_softplus = 0;
    r.ring.ssm.dt_bias = NULL;
    r.fold[0] = 1;
    step(&r); /* records are written on a fold, too */
    float *xbc = rig_host(&r.rig, r.xbc, r.n_xbc * sizeof(float));
    float *dt = rig_host(&r.rig, r.dt, r.n_dt * sizeof(float));
    float *a = rig_host(&r.rig, r.ring.ssm.a, 4 * sizeof(float));
    float *g = rig_host(&r.rig, r.ring.ring_g, r.n_g * sizeof(float));
    float *x = rig_host(&r.rig, r.ring.ring_x, r.n_x * sizeof(float));
    float *b = rig_host(&r.rig, r.ring.ring_b, r.n_b * sizeof(float));
    for (int32_t head = 0; head < 4; head++) {
        const int32_t record = (3 * 4 + head) * LENGTH;
        assert_true(g[record] == dt[head] * a[head]);
        assert_true(x[record * 2 + 1] == dt[head] * xbc[head * 2 + 1]);
    }
    for (int32_t n = 0; n < 3; n++) {
        assert_true(b[(3 * 2 + 1) * LENGTH * 3 + n] == xbc[8 + 3 + n]);
    }
    void *owned[] = {xbc, dt, a, g, x, b};
    for (size_t i = 0; i < 6; i++) {
        free(owned[i]);
    }
    rig_close(&r.rig);
}

static void ring_of_length_one_is_plain_decode(void **state) {
    (void)state;
    for (int32_t form = 0; form < 2; form++) {
        struct run r;
        open_run(&r, 0, 1, form);
        r.ring.ring_length = 1;
        for (int32_t t = 0; t < 3; t++) {
            memset(r.cursor, 0, sizeof r.cursor);
            step(&r);
            assert_true(same_outputs(&r) && same_state(&r, 3) && same_state(&r, 1));
        }
        rig_close(&r.rig);
    }
}

static void ring_refuses_a_length_that_it_cannot_hold(void **state) {
    (void)state;
    struct run r;
    open_run(&r, 0, 0, HB_FORM_V0);
    r.ring.ring_length = HB_MAX_RING + 1;
    assert_int_equal(r.rig.k->ssm_ring(&r.ring), HB_ERR_DEVICE);
    r.ring.ssm.rows.n_rows = 0;
    assert_int_equal(r.rig.k->ssm_ring(&r.ring), HB_OK);
    rig_close(&r.rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_equals_plain_decode),
        cmocka_unit_test(ring_writes_its_record_and_nothing_else),
        cmocka_unit_test(ring_values_of_a_record),
        cmocka_unit_test(ring_of_length_one_is_plain_decode),
        cmocka_unit_test(ring_refuses_a_length_that_it_cannot_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
