/* SPDX-License-Identifier: Apache-2.0
 * Short convolution kernels (ops-delta.md 4) against a double loop (bound: tolerance.md 3.6),
 * windows of rounded products bit for bit, tracking, both lengths of the state, forms and orders,
 * prompts shorter than the width, planted defects. */
#include "kernels/tests/rig.h"

enum { N_ROWS = 5, N_SLOTS = 10, DIM = 37, PAD = 2 };
enum call { CALL_PREFILL, CALL_UPDATE };

struct short_case {
    struct rig rig;
    struct hb_k_short_conv args;
    int32_t qsl[N_ROWS + 1], slots[N_ROWS], has_init[N_ROWS], after[N_ROWS], dst[N_ROWS];
    struct array bcx, weight, bias, pool, products, y, want_pool, got_pool;
    double *want, *bound;
};

struct result {
    int outputs, pool;
};

static size_t pool_index(const struct short_case *c, int32_t slot, int32_t channel, int32_t j) {
    const size_t slot_size = (size_t)(DIM * c->args.columns + PAD);
    return (size_t)slot * slot_size + (size_t)(channel * c->args.columns + j);
}

/* Where ue[k] of a channel is, k from -columns (history) on; null: zero. */
static const struct array *extended(const struct short_case *c, int32_t row, int32_t channel,
                                    int32_t k, size_t *at) {
    if (k >= 0) {
        *at = (size_t)(c->qsl[row] + k) * DIM + (size_t)channel;
        return &c->products;
    }
    *at = pool_index(c, c->slots[row], channel, c->args.columns + k);
    return c->has_init[row] ? &c->pool : NULL;
}

static void expect_output(struct short_case *c, int32_t row, int32_t channel, int32_t t) {
    const int32_t width = c->args.width;
    const size_t token = (size_t)(c->qsl[row] + t);
    const double gate = c->bcx.wide[(3 * token + 1) * DIM + (size_t)channel];
    double sum = c->args.bias ? c->bias.wide[channel] : 0.0;
    double mag = fabs(sum);
    for (int32_t j = 0; j < width; j++) {
        size_t at;
        const struct array *from = extended(c, row, channel, t - (width - 1) + j, &at);
        const double term = from ? c->weight.wide[channel * width + j] * from->wide[at] : 0.0;
        sum += term;
        mag += fabs(term);
    }
    const size_t at = token * DIM + (size_t)channel;
    const double bound = fabs(gate) * gam(width + 2, U32) * mag;
    c->want[at] = gate * sum;
    c->bound[at] =
        bound + u_of(c->args.act_dtype) * (fabs(gate * sum) + bound) + floor_of(c->args.act_dtype);
}

static void expect_window(struct short_case *c, int32_t row, int32_t channel, int32_t slot,
                          int32_t n) {
    const size_t bytes = size_of(c->args.act_dtype);
    for (int32_t j = 0; j < c->args.columns; j++) {
        size_t at;
        const struct array *from = extended(c, row, channel, n - c->args.columns + j, &at);
        char *to = (char *)c->want_pool.bytes + pool_index(c, slot, channel, j) * bytes;
        if (from) {
            memcpy(to, (const char *)from->bytes + at * bytes, bytes);
        } else {
            memset(to, 0, bytes);
        }
    }
}

static void expect_all(struct short_case *c) {
    memcpy(c->want_pool.bytes, c->pool.bytes, c->pool.n * size_of(c->args.act_dtype));
    for (int32_t i = 0; i < N_ROWS * DIM; i++) {
        const int32_t row = i / DIM;
        const int32_t len = c->qsl[row + 1] - c->qsl[row];
        if (c->slots[row] < 0 || len == 0) {
            continue;
        }
        for (int32_t t = 0; t < len; t++) {
            expect_output(c, row, i % DIM, t);
        }
        if (c->after[row] > 0) {
            expect_window(c, row, i % DIM, c->dst[row], c->after[row]);
        }
        expect_window(c, row, i % DIM, c->slots[row], len);
    }
}

/* Products B x, rounded once to the activation type. */
static void make_products(struct short_case *c) {
    const size_t n = (size_t)c->qsl[N_ROWS] * DIM;
    c->products = array_make(n, c->args.act_dtype);
    for (size_t i = 0; i < n; i++) {
        const size_t b = i / DIM * 3 * DIM + i % DIM;
        array_set(&c->products, i, (float)(c->bcx.wide[b] * c->bcx.wide[b + 2 * DIM]));
    }
}

static void make_case(struct short_case *c, const int32_t *lens, int32_t width, int32_t is_full,
                      int32_t dtype, float range) {
    static const int32_t slots[N_ROWS] = {3, 1, -1, 7, 5};
    static const int32_t has_init[N_ROWS] = {1, 0, 1, 1, 0};
    static const int32_t dst[N_ROWS] = {2, 4, 8, 6, 9};
    struct rig *rig = &c->rig;
    const int32_t columns = width - 1 + is_full;
    for (int row = 0; row < N_ROWS; row++) {
        c->qsl[row + 1] = c->qsl[row] + lens[row];
        c->slots[row] = slots[row];
        c->has_init[row] = has_init[row];
        c->dst[row] = dst[row];
        c->after[row] = row == 1 ? 0 : lens[row] / 4 * 4;
    }
    const size_t n_tokens = (size_t)c->qsl[N_ROWS];
    c->bcx = array_random(rig, n_tokens * 3 * DIM, dtype, range);
    c->weight = array_random(rig, (size_t)(DIM * width), HB_FP32, range);
    c->bias = array_random(rig, DIM, HB_FP32, range);
    c->pool = array_random(rig, (size_t)((N_SLOTS + 1) * (DIM * columns + PAD)), dtype, range);
    c->want_pool = array_make(c->pool.n, dtype);
    c->want = calloc(n_tokens * DIM + 1, sizeof(double));
    c->bound = calloc(n_tokens * DIM + 1, sizeof(double));
    assert_non_null(c->want);
    assert_non_null(c->bound);
    c->args = (struct hb_k_short_conv){
        .dim = DIM, .width = width, .columns = columns, .act_dtype = dtype, .pool_pad = PAD};
    make_products(c);
    c->args.rows.n_rows = N_ROWS;
    c->args.rows.qsl = rig_device(rig, c->qsl, sizeof c->qsl);
    c->args.rows.slots = rig_device(rig, c->slots, sizeof c->slots);
    c->args.rows.has_init = rig_device(rig, c->has_init, sizeof c->has_init);
    c->args.after = rig_device(rig, c->after, sizeof c->after);
    c->args.dst = rig_device(rig, c->dst, sizeof c->dst);
    c->args.bcx = array_device(rig, &c->bcx);
    c->args.weight = array_device(rig, &c->weight);
    c->args.bias = array_device(rig, &c->bias);
    c->args.pool = array_device(rig, &c->pool);
    c->args.y = rig_device(rig, NULL, n_tokens * DIM * size_of(dtype));
}

static struct result run_case(struct short_case *c, enum call call) {
    struct result r = {1, 1};
    if (call == CALL_UPDATE) {
        memset(c->after, 0, sizeof c->after);
    }
    expect_all(c);
    assert_int_equal(call == CALL_UPDATE ? c->rig.k->short_conv_update(&c->args)
                                         : c->rig.k->short_conv_prefill(&c->args),
                     HB_OK);
    c->y = array_read(&c->rig, c->args.y, (size_t)c->qsl[N_ROWS] * DIM, c->args.act_dtype);
    c->got_pool = array_read(&c->rig, c->args.pool, c->pool.n, c->args.act_dtype);
    for (int32_t row = 0; row < N_ROWS; row++) {
        for (int32_t i = c->qsl[row] * DIM; i < c->qsl[row + 1] * DIM; i++) {
            r.outputs &= c->slots[row] < 0 ? isnan(c->y.wide[i]) != 0
                                           : is_near(c->y.wide[i], c->want[i], c->bound[i]);
        }
    }
    r.pool = array_same(&c->got_pool, &c->want_pool);
    return r;
}

static void drop_case(struct short_case *c) {
    struct array *arrays[] = {&c->bcx,      &c->weight, &c->bias,      &c->pool,
                              &c->products, &c->y,      &c->want_pool, &c->got_pool};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        array_free(arrays[i]);
    }
    free(c->want);
    free(c->bound);
    rig_close(&c->rig);
}

/* Lengths around the width and the four blocks of a row; row 4 is a short prompt from nothing. */
static const int32_t all_lens[][N_ROWS] = {{1, 2, 3, 4, 1}, {7, 8, 2, 9, 2}, {15, 16, 1, 17, 3}};
static const int32_t ones[N_ROWS] = {1, 1, 1, 1, 1};
enum { N_LENS = sizeof all_lens / sizeof *all_lens };

static void calls_match_the_double_loop(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_LENS * 3 * 2 * HB_N_FORMS * HB_N_FLOAT_DTYPES * 2; i++) {
        struct short_case c = {0};
        if (!rig_open(&c.rig, i & 1, (uint32_t)i)) {
            continue;
        }
        int k = i / 2;
        const int32_t *lens = all_lens[k % N_LENS];
        k /= N_LENS;
        const int32_t width = 2 + k % 3;
        k /= 3;
        const int32_t is_full = k % 2;
        const int32_t form = k / 2 % HB_N_FORMS;
        const int32_t dtype = k / 2 / HB_N_FORMS % HB_N_FLOAT_DTYPES;
        const enum call call = k / 2 / HB_N_FORMS / HB_N_FLOAT_DTYPES ? CALL_UPDATE : CALL_PREFILL;
        make_case(&c, call == CALL_UPDATE ? ones : lens, width, is_full, dtype, 1.5f);
        c.args.form = form;
        if (i % 5 == 0) {
            c.args.bias = NULL;
        }
        const struct result r = run_case(&c, call);
        assert_true(r.outputs);
        assert_true(r.pool);
        drop_case(&c);
    }
}

/* Forms and orders change no bit; nor does handing a prompt over token by token. */
static void forms_orders_and_splits_agree_bit_for_bit(void **state) {
    (void)state;
    const int32_t lens[N_ROWS] = {5, 3, 2, 6, 1};
    struct short_case first = {0};
    for (int32_t i = 0; i < HB_N_ORDERS * HB_N_ORDERS * HB_N_FORMS; i++) {
        struct short_case c = {0};
        assert_true(rig_open(&c.rig, 0, 31));
        c.rig.k->set_order(i / HB_N_ORDERS % HB_N_ORDERS, i % HB_N_ORDERS, 55);
        make_case(&c, lens, 4, 0, HB_BF16, 1.0f);
        c.args.form = i % HB_N_FORMS;
        const struct result r = run_case(&c, CALL_PREFILL);
        assert_true(r.outputs && r.pool);
        if (i == 0) {
            first = c;
            continue;
        }
        assert_true(array_same(&first.y, &c.y) && array_same(&first.got_pool, &c.got_pool));
        drop_case(&c);
    }
    struct short_case c = {0};
    assert_true(rig_open(&c.rig, 0, 31));
    make_case(&c, lens, 4, 0, HB_BF16, 1.0f);
    for (int32_t t = 0; t < lens[3]; t++) { /* row 3, slot 7 */
        const int32_t qsl[2] = {c.qsl[3] + t, c.qsl[3] + t + 1};
        struct hb_k_short_conv args = c.args;
        args.rows = (struct hb_k_rows){.n_rows = 1,
                                       .qsl = rig_device(&c.rig, qsl, sizeof qsl),
                                       .slots = c.args.rows.slots + 3};
        assert_int_equal(c.rig.k->short_conv_update(&args), HB_OK);
    }
    struct array y = array_read(&c.rig, c.args.y, (size_t)c.qsl[N_ROWS] * DIM, HB_BF16);
    struct array pool = array_read(&c.rig, c.args.pool, c.pool.n, HB_BF16);
    for (int32_t i = c.qsl[3] * DIM; i < c.qsl[4] * DIM; i++) {
        assert_true(y.wide[i] == first.y.wide[i]);
    }
    for (size_t i = pool_index(&c, 7, 0, 0); i < pool_index(&c, 7, DIM, 0); i++) {
        assert_true(pool.wide[i] == first.got_pool.wide[i]);
    }
    array_free(&y);
    array_free(&pool);
    drop_case(&c);
    drop_case(&first);
}

static void empty_calls_launch_nothing(void **state) {
    (void)state;
    struct rig rig;
    assert_true(rig_open(&rig, 0, 1));
    const uint64_t before = rig.k->launches();
    const struct hb_k_short_conv args = {.dim = 4, .width = 2, .columns = 1};
    assert_int_equal(rig.k->short_conv_prefill(&args), HB_OK);
    assert_int_equal(rig.k->short_conv_update(&args), HB_OK);
    assert_true(rig.k->launches() == before);
    rig_close(&rig);
}

#ifdef HB_DEFECTS
static struct result run_state(enum call call, int32_t form, int32_t dtype, int32_t defect,
                               const int32_t *lens, int32_t is_full) {
    struct short_case c = {0};
    assert_true(rig_open(&c.rig, 0, 51));
    make_case(&c, lens, 4, is_full, dtype, 1.0f);
    c.args.form = form;
    c.args.defect = defect;
    const struct result r = run_case(&c, call);
    drop_case(&c);
    return r;
}

static struct result run_defect(enum call call, int32_t form, int32_t dtype, int32_t defect,
                                const int32_t *lens) {
    return run_state(call, form, dtype, defect, lens, 0);
}

static void planted_defects_are_noticed(void **state) {
    (void)state;
    const int32_t long_lens[N_ROWS] = {4, 8, 2, 9, 3};
    struct result r;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        for (int call = CALL_PREFILL; call <= CALL_UPDATE; call++) {
            const int32_t *lens = call == CALL_UPDATE ? ones : all_lens[1];
            r = run_defect((enum call)call, form, HB_BF16, HB_DEFECT_SHORT_CONV_UNROUNDED, lens);
            assert_true(!r.outputs && r.pool);
            r = run_defect((enum call)call, form, HB_FP16, HB_DEFECT_SHORT_CONV_UNROUNDED, lens);
            assert_true(!r.outputs && r.pool);
            r = run_defect((enum call)call, form, HB_FP32, HB_DEFECT_SHORT_CONV_UNROUNDED, lens);
            assert_true(r.outputs && r.pool); /* the product is rounded to fp32 anyway */
            r = run_defect((enum call)call, form, HB_FP32, HB_DEFECT_SHORT_CONV_STORES_X, lens);
            assert_true(r.outputs && !r.pool);
            for (int32_t is_full = 0; is_full < 2; is_full++) {
                r = run_state((enum call)call, form, HB_FP32, HB_DEFECT_SHORT_CONV_OLDEST, lens,
                              is_full);
                assert_true(r.outputs == !is_full && r.pool);
            }
        }
        r = run_defect(CALL_PREFILL, form, HB_FP32, HB_DEFECT_SHORT_CONV_MIN_POS, all_lens[1]);
        assert_true(r.outputs && !r.pool);
        r = run_defect(CALL_PREFILL, form, HB_FP32, HB_DEFECT_SHORT_CONV_MIN_POS, long_lens);
        assert_true(r.outputs && r.pool); /* no prompt is shorter than the window */
    }
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_match_the_double_loop),
        cmocka_unit_test(forms_orders_and_splits_agree_bit_for_bit),
        cmocka_unit_test(empty_calls_launch_nothing),
#ifdef HB_DEFECTS
        cmocka_unit_test(planted_defects_are_noticed),
#endif
    };
    return cmocka_run_group_tests_name("short conv", tests, NULL, NULL);
}
