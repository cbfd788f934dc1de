/* SPDX-License-Identifier: Apache-2.0
 * Convolution kernels against a double loop (bound: tolerance.md 3.6), windows bit for bit, forms
 * and orders. */
#include "kernels/tests/rig.h"

enum { N_ROWS = 5, N_SLOTS = 8 };

/* A call: rows with lengths and slots over one pool; expectations are made from the values before
 * it runs. */
struct conv_case {
    struct rig rig;
    struct hb_k_conv args;
    int32_t qsl[N_ROWS + 1], slots[N_ROWS], has_init[N_ROWS];
    struct array x, weight, bias, pool, y;
    double *want, *bound;
    struct array want_pool;
};

/* enum hb_conv_state_len of the cases that are made next. */
static int32_t state_len;

static int32_t columns_of(const struct conv_case *c) {
    return c->args.width - (c->args.conv_state_len == HB_CONV_STATE_FULL ? 0 : 1);
}

static size_t pool_index(const struct conv_case *c, int32_t slot, int32_t channel, int32_t j) {
    return ((size_t)slot * (size_t)c->args.dim + (size_t)channel) * (size_t)columns_of(c) +
           (size_t)j;
}

/* xe[k], from the oldest column of the pool on, and, where bits are asked for, its memory form copied to to[at]. */
static double extended(struct conv_case *c, int32_t row, int32_t channel, int32_t k,
                       struct array *to, size_t at) {
    const int32_t window = columns_of(c);
    const size_t bytes = size_of(c->args.act_dtype);
    const struct array *from = k >= window ? &c->x : &c->pool;
    size_t index = 0;
    if (k >= window) {
        index = (size_t)(c->qsl[row] + k - window) * (size_t)c->args.dim + (size_t)channel;
    } else if (c->has_init[row]) {
        index = pool_index(c, c->slots[row], channel, k);
    } else {
        if (to) {
            memset((char *)to->bytes + at * bytes, 0, bytes);
        }
        return 0.0;
    }
    if (to) {
        memcpy((char *)to->bytes + at * bytes, (char *)from->bytes + index * bytes, bytes);
    }
    return from->wide[index];
}

static void expect_output(struct conv_case *c, int32_t row, int32_t channel, int32_t t) {
    const size_t at = (size_t)(c->qsl[row] + t) * (size_t)c->args.dim + (size_t)channel;
    double sum = c->args.bias ? c->bias.wide[channel] : 0.0;
    double mag = fabs(sum);
    const int32_t first = t + columns_of(c) - (c->args.width - 1);
    for (int32_t j = 0; j < c->args.width; j++) {
        const double term =
            c->weight.wide[channel * c->args.width + j] *
            extended(c, row, channel, first + j, NULL, 0);
        sum += term;
        mag += fabs(term);
    }
    double bound = gam(c->args.width + 1, U32) * mag;
    double y = sum;
    if (c->args.conv_act == HB_CONV_SILU) {
        y = silu64(sum);
        bound = 1.1 * bound + fabs(y) * (E_EXP + 3 * U32 + U32 * fabs(sum));
    }
    c->want[at] = y;
    c->bound[at] =
        bound + u_of(c->args.act_dtype) * (fabs(y) + bound) + floor_of(c->args.act_dtype);
}

static void expect_all(struct conv_case *c) {
    const size_t bytes = c->pool.n * size_of(c->args.act_dtype);
    c->want_pool = array_make(c->pool.n, c->args.act_dtype);
    memcpy(c->want_pool.bytes, c->pool.bytes, bytes);
    for (int32_t row = 0; row < N_ROWS; row++) {
        const int32_t len = c->qsl[row + 1] - c->qsl[row];
        if (c->slots[row] < 0 || len == 0) {
            continue;
        }
        for (int32_t channel = 0; channel < c->args.dim; channel++) {
            for (int32_t t = 0; t < len; t++) {
                expect_output(c, row, channel, t);
            }
            for (int32_t j = 0; j < columns_of(c); j++) {
                (void)extended(c, row, channel, len + j, &c->want_pool,
                               pool_index(c, c->slots[row], channel, j));
            }
        }
    }
}

/* integers: every form must give the same bits */
static void make_case(struct conv_case *c, const int32_t *lens, int32_t dim, int32_t width,
                      int32_t dtype, int integers) {
    const int32_t slots[N_ROWS] = {3, 1, -1, 7, 5};
    const int32_t has_init[N_ROWS] = {1, 0, 1, 1, 0};
    for (int row = 0; row < N_ROWS; row++) {
        c->qsl[row + 1] = c->qsl[row] + lens[row];
        c->slots[row] = slots[row];
        c->has_init[row] = has_init[row];
    }
    const size_t n_x = (size_t)c->qsl[N_ROWS] * (size_t)dim;
    c->args = (struct hb_k_conv){.dim = dim,
                                 .width = width,
                                 .act_dtype = dtype,
                                 .conv_act = integers,
                                 .conv_state_len = state_len};
    const size_t n_pool = (size_t)(N_SLOTS + 1) * (size_t)dim * (size_t)columns_of(c);
    const float range = integers ? -4.0f : 1.5f;
    c->x = array_random(&c->rig, n_x, dtype, range);
    c->weight = array_random(&c->rig, (size_t)(dim * width), HB_FP32, range);
    c->bias = array_random(&c->rig, (size_t)dim, HB_FP32, range);
    c->pool = array_random(&c->rig, n_pool, dtype, range);
    c->want = calloc(n_x + 1, sizeof(double));
    c->bound = calloc(n_x + 1, sizeof(double));
    assert_non_null(c->want);
    assert_non_null(c->bound);
    struct rig *rig = &c->rig;
    c->args.rows.n_rows = N_ROWS;
    c->args.rows.qsl = rig_device(rig, c->qsl, sizeof c->qsl);
    c->args.rows.slots = rig_device(rig, c->slots, sizeof c->slots);
    c->args.rows.has_init = rig_device(rig, c->has_init, sizeof c->has_init);
    c->args.x = array_device(rig, &c->x);
    c->args.weight = array_device(rig, &c->weight);
    c->args.bias = array_device(rig, &c->bias);
    c->args.pool = array_device(rig, &c->pool);
    c->args.y = rig_device(rig, NULL, n_x * size_of(dtype));
    expect_all(c);
}

static void drop_case(struct conv_case *c) {
    struct array *arrays[] = {&c->x, &c->weight, &c->bias, &c->pool, &c->y, &c->want_pool};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        array_free(arrays[i]);
    }
    free(c->want);
    free(c->bound);
    rig_close(&c->rig);
}

static void read_results(struct conv_case *c, struct array *pool) {
    c->y = array_read(&c->rig, c->args.y, c->x.n, c->args.act_dtype);
    *pool = array_read(&c->rig, c->args.pool, c->pool.n, c->args.act_dtype);
}

/* Outputs within bounds, rows of padding untouched. */
static int outputs_ok(const struct conv_case *c) {
    for (int32_t row = 0; row < N_ROWS; row++) {
        for (int32_t i = c->qsl[row] * c->args.dim; i < c->qsl[row + 1] * c->args.dim; i++) {
            if (c->slots[row] < 0 ? !isnan(c->y.wide[i])
                                  : !is_near(c->y.wide[i], c->want[i], c->bound[i])) {
                return 0;
            }
        }
    }
    return 1;
}

struct result {
    int outputs, pool;
};

static struct result run_prefill(int table, const int32_t *lens, int32_t form, int32_t width,
                                 int32_t dtype, int integers, int32_t defect, struct array *y) {
    struct conv_case c = {0};
    struct array pool;
    if (!rig_open(&c.rig, table, 42)) {
        return (struct result){1, 1};
    }
    make_case(&c, lens, 37, width, dtype, integers);
    c.args.form = form;
    c.args.defect = defect;
    assert_int_equal(c.rig.k->conv_prefill(&c.args), HB_OK);
    read_results(&c, &pool);
    const struct result result = {outputs_ok(&c), array_same(&pool, &c.want_pool)};
    if (y) {
        *y = array_read(&c.rig, c.args.y, c.x.n, dtype);
    }
    array_free(&pool);
    drop_case(&c);
    return result;
}

/* Lengths around the window, the tile of 8 tokens and the two blocks of a row. */
static const int32_t all_lens[][N_ROWS] = {
    {1, 2, 3, 4, 0},
    {7, 8, 2, 9, 1},
    {15, 16, 1, 17, 24},
    {33, 3, 5, 1, 2},
};
enum { N_LENS = sizeof all_lens / sizeof *all_lens };

static void prefill_matches_double_loop(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        for (int i = 0; i < N_LENS; i++) {
            for (int32_t width = 2; width <= HB_MAX_CONV_WIDTH; width++) {
                for (int k = 0; k < 4 * HB_N_FLOAT_DTYPES; k++) {
                    state_len = k / 2 / HB_N_FLOAT_DTYPES;
                    const struct result r = run_prefill(table, all_lens[i], k % 2, width,
                                                        k / 2 % HB_N_FLOAT_DTYPES, 0, 0, NULL);
                    assert_true(r.outputs);
                    assert_true(r.pool);
                }
            }
        }
    }
}

static void both_forms_agree_bit_for_bit_on_integers(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        for (int i = 0; i < N_LENS; i++) {
            struct array y[HB_N_FORMS] = {{0}};
            for (int32_t form = 0; form < HB_N_FORMS; form++) {
                const struct result r =
                    run_prefill(table, all_lens[i], form, 4, HB_FP32, 1, 0, &y[form]);
                assert_true(r.outputs && r.pool);
            }
            assert_true(!y[0].bytes || array_same(&y[0], &y[1]));
            array_free(&y[0]);
            array_free(&y[1]);
        }
    }
}

static void run_update(int table, int32_t dtype, int32_t defect, struct result *result) {
    const int32_t lens[N_ROWS] = {1, 1, 1, 1, 1};
    struct conv_case c = {0};
    struct array pool;
    *result = (struct result){1, 1};
    if (!rig_open(&c.rig, table, 7)) {
        return;
    }
    make_case(&c, lens, 37, 4, dtype, 0);
    c.args.defect = defect;
    assert_int_equal(c.rig.k->conv_update(&c.args), HB_OK);
    read_results(&c, &pool);
    *result = (struct result){outputs_ok(&c), array_same(&pool, &c.want_pool)};
    array_free(&pool);
    drop_case(&c);
}

static void update_matches_double_loop(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        for (int32_t k = 0; k < 2 * HB_N_FLOAT_DTYPES; k++) {
            struct result r;
            state_len = k / HB_N_FLOAT_DTYPES;
            run_update(table, k % HB_N_FLOAT_DTYPES, 0, &r);
            assert_true(r.outputs && r.pool);
        }
    }
}

/* NaN payloads and signed zeros travel through the window unchanged. */
static void window_is_a_bit_copy(void **state) {
    (void)state;
    const int32_t lens[N_ROWS] = {1, 2, 3, 4, 5};
    for (int table = 0; table < 2; table++) {
        for (int mask = 0; mask < 4; mask++) {
            struct conv_case c = {0};
            struct array pool;
            if (!rig_open(&c.rig, table, 3)) {
                continue;
            }
            make_case(&c, lens, 5, 4, mask >> 1, 0);
            for (size_t i = 0; i < c.x.n * size_of(mask >> 1); i++) {
                ((uint8_t *)c.x.bytes)[i] = (uint8_t)(0x80 + 37 * i);
            }
            array_free(&c.want_pool);
            expect_all(&c);
            rig_rewrite(&c.rig, c.args.x, c.x.bytes, c.x.n * size_of(mask >> 1));
            c.args.form = mask & 1;
            assert_int_equal(c.rig.k->conv_prefill(&c.args), HB_OK);
            read_results(&c, &pool);
            assert_true(array_same(&pool, &c.want_pool));
            array_free(&pool);
            drop_case(&c);
        }
    }
}

static void track_copies_the_inputs_before_a_token_count(void **state) {
    (void)state;
    const int32_t lens[N_ROWS] = {9, 4, 8, 16, 3};
    const int32_t dst[N_ROWS] = {2, 4, 6, 8, 6};
    for (int i = 0; i < 2 * HB_N_CONV_STATE_LENS; i++) {
        const int table = i % 2;
        state_len = i / 2;
        const int32_t n = 3 + state_len; /* columns */
        const int32_t after[N_ROWS] = {8, 4, 8, n, 0};
        struct conv_case c = {0};
        if (!rig_open(&c.rig, table, 5)) {
            continue;
        }
        make_case(&c, lens, 37, 4, HB_BF16, 0);
        const struct hb_k_conv_track args = {.rows = c.args.rows,
                                             .dim = 37,
                                             .width = 4,
                                             .act_dtype = HB_BF16,
                                             .conv_state_len = state_len,
                                             .after = rig_device(&c.rig, after, sizeof after),
                                             .dst = rig_device(&c.rig, dst, sizeof dst),
                                             .x = c.args.x,
                                             .pool = c.args.pool};
        assert_int_equal(c.rig.k->conv_track(&args), HB_OK);
        struct array pool = array_read(&c.rig, c.args.pool, c.pool.n, HB_BF16);
        for (int32_t row = 0; row < N_ROWS; row++) {
            for (int32_t j = 0; row != 2 && after[row] && j < n * 37; j++) {
                const size_t token = (size_t)(c.qsl[row] + after[row] - n + j % n);
                const size_t at = pool_index(&c, dst[row], j / n, j % n);
                assert_int_equal(((uint16_t *)pool.bytes)[at],
                                 ((uint16_t *)c.x.bytes)[token * 37 + (size_t)(j / n)]);
                ((uint16_t *)pool.bytes)[at] = ((uint16_t *)c.pool.bytes)[at];
            }
        }
        assert_true(array_same(
            &pool, &c.pool)); /* nothing else has changed, also not for the padding row */
        array_free(&pool);
        drop_case(&c);
    }
}

static void results_do_not_depend_on_the_order(void **state) {
    (void)state;
    struct array first = {0};
    for (int32_t i = 0; i < HB_N_ORDERS * HB_N_ORDERS; i++) {
        struct conv_case c = {0};
        struct array pool;
        assert_true(rig_open(&c.rig, 0, 11));
        c.rig.k->set_order(i / HB_N_ORDERS, i % HB_N_ORDERS, 77);
        make_case(&c, all_lens[2], 70, 4, HB_FP32, 0);
        c.args.form = HB_FORM_FAST;
        assert_int_equal(c.rig.k->conv_prefill(&c.args), HB_OK);
        read_results(&c, &pool);
        assert_true(outputs_ok(&c) && array_same(&pool, &c.want_pool));
        if (i == 0) {
            first = array_read(&c.rig, c.args.y, c.x.n, HB_FP32);
        }
        assert_true(array_same(&first, &c.y));
        array_free(&pool);
        drop_case(&c);
    }
    array_free(&first);
}

static void an_output_off_by_two_to_the_minus_16_is_noticed(void **state) {
    (void)state;
    struct conv_case c = {0};
    assert_true(rig_open(&c.rig, 0, 13));
    make_case(&c, all_lens[2], 37, 4, HB_FP32, 0);
    int noticed = 0;
    int total = 0;
    for (size_t i = 0; i < c.x.n; i++) {
        if (c.bound[i] > 0) {
            total++;
            noticed += !is_near(c.want[i] * (1.0 + 1.0 / 65536), c.want[i], c.bound[i]);
        }
    }
    assert_true(noticed > 0.9 * total);
    c.y = array_make(1, HB_FP32);
    drop_case(&c);
}

static void planted_defects_are_noticed(void **state) {
    (void)state;
#ifndef HB_DEFECTS
    skip();
#else
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        struct result r =
            run_prefill(0, all_lens[0], form, 4, HB_FP32, 0, HB_DEFECT_CONV_SHORT_PROMPT, NULL);
        assert_true(r.outputs);
        assert_false(r.pool);
        r = run_prefill(0, all_lens[2], form, 2, HB_FP32, 0, HB_DEFECT_CONV_SHORT_PROMPT, NULL);
        assert_true(r.outputs && r.pool); /* no prompt is shorter than the window */
    }
    struct result r;
    run_update(0, HB_FP32, HB_DEFECT_PAD_ROW_WRITTEN, &r);
    assert_true(r.outputs && !r.pool);
    run_update(0, HB_BF16, HB_DEFECT_NEIGHBOUR_SLOT, &r);
    assert_true(r.outputs && !r.pool);
    for (state_len = 0; state_len < HB_N_CONV_STATE_LENS; state_len++) {
        const int is_full = state_len == HB_CONV_STATE_FULL;
        run_update(0, HB_FP32, HB_DEFECT_CONV_OLDEST, &r);
        assert_true(r.outputs == !is_full && r.pool);
        r = run_prefill(0, all_lens[0], 1, 3, HB_FP32, 0, HB_DEFECT_CONV_OLDEST, NULL);
        assert_true(r.outputs == !is_full && r.pool);
    }
#endif
}

static int short_state(void **state) {
    (void)state;
    state_len = HB_CONV_STATE_SHORT;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(prefill_matches_double_loop, short_state),
        cmocka_unit_test_setup(both_forms_agree_bit_for_bit_on_integers, short_state),
        cmocka_unit_test_setup(update_matches_double_loop, short_state),
        cmocka_unit_test_setup(window_is_a_bit_copy, short_state),
        cmocka_unit_test_setup(track_copies_the_inputs_before_a_token_count, short_state),
        cmocka_unit_test_setup(results_do_not_depend_on_the_order, short_state),
        cmocka_unit_test_setup(an_output_off_by_two_to_the_minus_16_is_noticed, short_state),
        cmocka_unit_test_setup(planted_defects_are_noticed, short_state),
    };
    return cmocka_run_group_tests_name("conv1d", tests, NULL, NULL);
}
