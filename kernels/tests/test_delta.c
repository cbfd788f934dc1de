/* SPDX-License-Identifier: Apache-2.0
 * Delta rule kernels (prefill in two forms, one-token rows) against the recurrence in double
 * arithmetic; variants, tracking, padding, orders, forms, planted defects. */
#include "kernels/tests/delta_case.h"

/* Of the values of a case: q, k and v; raw gates; A in -[rate_low, rate_high). */
struct values {
    float range, gates, rate_low, rate_high;
    int integers; /* A = 0 and small integers, so that every form is exact */
};

static const struct values usual = {1.0f, 1.5f, 0.05f, 2.0f, 0};
static const struct values short_keys = {1e-3f, 1.5f, 0.05f, 2.0f, 0};
static const struct values strong = {1.0f, 1.5f, 60.0f, 90.0f, 0};
static const struct values integral = {-1.0f, -1.0f, 0.0f, 0.0f, 1};

static void make_values(struct delta_case *c, const struct values *values) {
    struct rig *rig = &c->rig;
    const struct shape *s = &c->s;
    const size_t n_tokens = (size_t)c->qsl[N_ROWS];
    c->qkv = array_random(rig, n_tokens * delta_dim(s), s->act_dtype, values->range);
    c->gates = array_random(rig, n_tokens * gates_width(s), s->act_dtype, values->gates);
    c->a = array_make((size_t)s->heads, HB_FP32);
    c->bias = array_random(rig, (size_t)(s->heads * (s->is_kda ? s->n : 1)), HB_FP32,
                           values->integers ? -1.0f : 1.0f);
    c->pool = array_random(rig, (size_t)(N_SLOTS + 1) * (size_t)(s->heads * s->p * s->n),
                           s->state_dtype, values->integers ? -2.0f : 1.0f);
    for (size_t h = 0; h < (size_t)s->heads; h++) {
        array_set(&c->a, h, -rig_value(rig, values->rate_low, values->rate_high));
    }
    const size_t n_y = n_tokens * (size_t)(s->heads * s->p);
    c->want = calloc(n_y + 1, sizeof(double));
    c->bound = calloc(n_y + 1, sizeof(double));
    c->want_pool = calloc(c->pool.n + 1, sizeof(double));
    c->bound_pool = calloc(c->pool.n + 1, sizeof(double));
    assert_true(c->want && c->bound && c->want_pool && c->bound_pool);
}

static void make_rows(struct delta_case *c, const int32_t *lens) {
    static const int32_t slots[N_ROWS] = {3, 1, -1, 7, 5};
    static const int32_t has_init[N_ROWS] = {1, 0, 1, 1, 0};
    static const int32_t dst[N_ROWS] = {2, 4, 8, 6, 9};
    for (int row = 0; row < N_ROWS; row++) {
        c->qsl[row + 1] = c->qsl[row] + lens[row];
        c->slots[row] = slots[row];
        c->has_init[row] = has_init[row];
        c->dst[row] = dst[row];
        c->after[row] = row == 1 ? 0 : lens[row] / c->s.chunk * c->s.chunk;
    }
    c->args.rows.n_rows = N_ROWS;
    c->args.rows.qsl = rig_device(&c->rig, c->qsl, sizeof c->qsl);
    c->args.rows.slots = rig_device(&c->rig, c->slots, sizeof c->slots);
    c->args.rows.has_init = rig_device(&c->rig, c->has_init, sizeof c->has_init);
    c->args.after = rig_device(&c->rig, c->after, sizeof c->after);
    c->args.dst = rig_device(&c->rig, c->dst, sizeof c->dst);
}

static void make_case(struct delta_case *c, const struct shape *shape,
                      const struct variant *variant, const int32_t *lens, int32_t form,
                      const struct values *values) {
    struct rig *rig = &c->rig;
    c->s = *shape;
    c->is_chunked = form == HB_FORM_FAST;
    c->args = (struct hb_k_delta){.n_heads = shape->heads,
                                  .head_dim = shape->p,
                                  .state_size = shape->n,
                                  .n_groups = shape->groups,
                                  .chunk_size = shape->chunk,
                                  .act_dtype = shape->act_dtype,
                                  .state_dtype = shape->state_dtype,
                                  .is_kda = shape->is_kda,
                                  .head_map = variant->head_map,
                                  .state_layout = variant->layout,
                                  .l2norm = variant->l2norm,
                                  .beta_form = variant->beta,
                                  .gate_form = variant->gate,
                                  .gate_softplus = variant->softplus,
                                  .gate_bound = -5.0f,
                                  .qk_scale = values->integers ? 1.0f : 0.3f,
                                  .form = form};
    make_rows(c, lens);
    make_values(c, values);
    c->args.qkv = array_device(rig, &c->qkv);
    c->args.gates = array_device(rig, &c->gates);
    c->args.a = array_device(rig, &c->a);
    c->args.dt_bias = array_device(rig, &c->bias);
    c->args.pool = array_device(rig, &c->pool);
    c->args.y = rig_device(rig, NULL,
                           (size_t)c->qsl[N_ROWS] * (size_t)(shape->heads * shape->p) *
                               size_of(shape->act_dtype));
}

static void read_results(struct delta_case *c) {
    const size_t n_y = (size_t)c->qsl[N_ROWS] * (size_t)(c->s.heads * c->s.p);
    c->y = array_read(&c->rig, c->args.y, n_y, c->s.act_dtype);
    c->got_pool = array_read(&c->rig, c->args.pool, c->pool.n, c->s.state_dtype);
}

static void drop_case(struct delta_case *c) {
    struct array *arrays[] = {&c->qkv, &c->gates, &c->a, &c->bias, &c->pool, &c->y, &c->got_pool};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        array_free(arrays[i]);
    }
    free(c->want);
    free(c->bound);
    free(c->want_pool);
    free(c->bound_pool);
    rig_close(&c->rig);
}

static int outputs_ok(const struct delta_case *c) {
    const int32_t width = c->s.heads * c->s.p;
    for (int32_t row = 0; row < N_ROWS; row++) {
        for (int32_t i = c->qsl[row] * width; i < c->qsl[row + 1] * width; i++) {
            if (c->slots[row] < 0 ? !isnan(c->y.wide[i])
                                  : !is_near(c->y.wide[i], c->want[i], c->bound[i])) {
                return 0;
            }
        }
    }
    return 1;
}

/* Written slots within their bounds, all others unchanged. */
static int pool_ok(const struct delta_case *c) {
    for (size_t i = 0; i < c->pool.n; i++) {
        if (!is_near(c->got_pool.wide[i], c->want_pool[i], c->bound_pool[i])) {
            return 0;
        }
    }
    return 1;
}

struct result {
    int outputs, pool;
};

enum call { CALL_PREFILL, CALL_UPDATE };

/* Runs the kernel of an already made case. */
static struct result run_case(struct delta_case *c, enum call call) {
    if (call == CALL_UPDATE) {
        memset(c->after, 0, sizeof c->after);
        c->args.after = NULL;
        c->args.dst = NULL;
        c->is_chunked = 0;
    }
    expect_all(c);
    const int32_t status = call == CALL_UPDATE ? c->rig.k->delta_update(&c->args)
                                               : c->rig.k->delta_prefill(&c->args);
    assert_int_equal(status, HB_OK);
    read_results(c);
    return (struct result){outputs_ok(c), pool_ok(c)};
}

static const struct shape shapes[] = {
    {4, 8, 16, 2, 8, HB_FP32, HB_FP32, 0},  {4, 3, 5, 2, 4, HB_BF16, HB_FP32, 1},
    {2, 11, 33, 2, 16, HB_FP16, HB_BF16, 0}, {2, 1, 1, 1, 1, HB_FP32, HB_BF16, 0},
    {6, 9, 40, 3, 32, HB_FP32, HB_FP32, 1}, {1, 13, 64, 1, 64, HB_BF16, HB_FP32, 0},
    {4, 8, 8, 2, 8, HB_FP32, HB_FP32, 1},
};
static const struct variant variants[] = {
    {HB_HEADS_INTERLEAVE, HB_STATE_VK, HB_L2_ADD_EPS, HB_BETA_SIGMOID, HB_GATE_STANDARD, 1},
    {HB_HEADS_TILE, HB_STATE_KV, HB_L2_MAX_EPS, HB_BETA_DOUBLE, HB_GATE_STANDARD, 1},
    {HB_HEADS_INTERLEAVE, HB_STATE_KV, HB_L2_ADD_EPS, HB_BETA_SIGMOID, HB_GATE_LOWER_BOUND, 1},
    {HB_HEADS_TILE, HB_STATE_VK, HB_L2_ADD_EPS, HB_BETA_RAW, HB_GATE_STANDARD, 1},
};
static const int32_t lens_of[][N_ROWS] = {{1, 2, 3, 4, 0}, {8, 9, 2, 16, 7}, {33, 1, 1, 17, 64}};
static const int32_t ones[N_ROWS] = {1, 1, 1, 1, 1};
enum {
    N_SHAPES = sizeof shapes / sizeof *shapes,
    N_VARIANTS = sizeof variants / sizeof *variants,
    N_LENS = sizeof lens_of / sizeof *lens_of
};

static void prefill_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES * N_LENS * HB_N_FORMS * N_VARIANTS; i++) {
        struct delta_case c = {0};
        if (!rig_open(&c.rig, i & 1, (uint32_t)i)) {
            continue;
        }
        make_case(&c, &shapes[i / 2 % N_SHAPES], &variants[i / 2 / N_SHAPES % N_VARIANTS],
                  lens_of[i / 2 / N_SHAPES / N_VARIANTS % N_LENS],
                  i / 2 / N_SHAPES / N_VARIANTS / N_LENS, &usual);
        const struct result r = run_case(&c, CALL_PREFILL);
        assert_true(r.outputs);
        assert_true(r.pool);
        drop_case(&c);
    }
}

static void update_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES * N_VARIANTS * HB_N_FORMS; i++) {
        struct delta_case c = {0};
        if (!rig_open(&c.rig, i & 1, (uint32_t)i)) {
            continue;
        }
        make_case(&c, &shapes[i / 2 % N_SHAPES], &variants[i / 2 / N_SHAPES % N_VARIANTS], ones,
                  i / 2 / N_SHAPES / N_VARIANTS, i % 4 < 2 ? &usual : &short_keys);
        const struct result r = run_case(&c, CALL_UPDATE);
        assert_true(r.outputs);
        assert_true(r.pool);
        drop_case(&c);
    }
}

/* Short keys, decays that underflow, gates without softplus, no bias, no norm. */
static void unusual_values(void **state) {
    (void)state;
    static const struct values small = {0.3f, 0.5f, 0.05f, 0.5f, 0};
    static const struct variant plain = {HB_HEADS_INTERLEAVE, HB_STATE_VK,      HB_L2_OFF,
                                         HB_BETA_RAW,         HB_GATE_STANDARD, 0};
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        for (int i = 0; i < 4; i++) {
            struct delta_case c = {0};
            assert_true(rig_open(&c.rig, 0, (uint32_t)i));
            const struct values *values = i < 2 ? &short_keys : i == 2 ? &strong : &small;
            make_case(&c, &shapes[i % 2 ? 6 : 0], i < 3 ? &variants[i % 2] : &plain, lens_of[1],
                      form, values);
            if (i == 3) {
                c.args.dt_bias = NULL;
            }
            const struct result r = run_case(&c, CALL_PREFILL);
            assert_true(r.outputs && r.pool);
            drop_case(&c);
        }
    }
}

/* A log decay of minus infinity clears the state in both forms, and what follows is finite. */
static void infinite_decay_clears_the_state(void **state) {
    (void)state;
    const int32_t lens[N_ROWS] = {7, 0, 0, 0, 0};
    for (int32_t i = 0; i < 2 * HB_N_FORMS; i++) {
        struct delta_case c[2];
        memset(c, 0, sizeof c);
        for (int32_t k = 0; k < 2; k++) {
            assert_true(rig_open(&c[k].rig, 0, 9));
            make_case(&c[k], &shapes[i / 2 ? 6 : 0], &variants[0], lens, i % 2, &usual);
            memset(c[k].after, 0, sizeof c[k].after);
            c[k].args.after = NULL;
            const size_t heads = (size_t)c[k].s.heads;
            const size_t n_a = gates_width(&c[k].s) - heads;
            for (size_t j = 0; k == 1 && j < n_a; j++) { /* token 3 */
                array_set(&c[k].gates, 3 * gates_width(&c[k].s) + j, INFINITY);
            }
            rig_rewrite(&c[k].rig, c[k].args.gates, c[k].gates.bytes, c[k].gates.n * 4);
            assert_int_equal(c[k].rig.k->delta_prefill(&c[k].args), HB_OK);
            read_results(&c[k]);
        }
        for (size_t j = 0; j < c[1].y.n; j++) {
            assert_true(isfinite(c[1].y.wide[j]));
            const int is_before = j < 3 * (size_t)(c[0].s.heads * c[0].s.p);
            assert_true(!is_before || c[0].y.wide[j] == c[1].y.wide[j]);
        }
        for (int32_t k = 0; k < 2; k++) {
            drop_case(&c[k]);
        }
    }
}

static void largest_sizes_fit(void **state) {
    (void)state;
    const int32_t lens[N_ROWS] = {257, 0, 0, 3, 0};
    for (int32_t is_kda = 0; is_kda < 2; is_kda++) {
        const struct shape large = {1, 2, 256, 1, 512, HB_BF16, HB_FP32, is_kda};
        struct delta_case c[HB_N_FORMS];
        memset(c, 0, sizeof c);
        for (int32_t form = 0; form < HB_N_FORMS; form++) {
            assert_true(rig_open(&c[form].rig, 0, 5));
            make_case(&c[form], &large, &variants[0], lens, form, &strong);
            c[form].is_chunked = 0;
            const int32_t status = c[form].rig.k->delta_prefill(&c[form].args);
            assert_int_equal(status, HB_OK);
            read_results(&c[form]);
        }
        for (size_t i = 0; i < c[0].y.n; i++) {
            const double scale = 1e-2 * (fabs(c[0].y.wide[i]) + 0.1);
            assert_true(is_near(c[1].y.wide[i], c[0].y.wide[i], scale));
        }
        drop_case(&c[0]);
        drop_case(&c[1]);
    }
}

static void state_that_a_thread_cannot_hold_is_refused(void **state) {
    (void)state;
    struct delta_case c = {0};
    assert_true(rig_open(&c.rig, 0, 5));
    make_case(&c, &shapes[0], &variants[0], ones, HB_FORM_V0, &usual);
    struct hb_k_delta args = c.args;
    args.state_size = 257;
    assert_int_equal(c.rig.k->delta_prefill(&args), HB_ERR_DEVICE);
    assert_non_null(strstr(c.rig.k->error_text(), "state_size 257"));
    assert_int_equal(c.rig.k->delta_update(&args), HB_ERR_DEVICE);
    args.form = HB_FORM_FAST;
    assert_int_equal(c.rig.k->delta_update(&args), HB_ERR_DEVICE);
    (void)run_case(&c, CALL_PREFILL);
    drop_case(&c);
}

static void both_forms_agree_bit_for_bit_on_integers(void **state) {
    (void)state;
    static const struct variant exact = {HB_HEADS_INTERLEAVE, HB_STATE_VK,      HB_L2_OFF,
                                         HB_BETA_RAW,         HB_GATE_STANDARD, 1};
    static const struct shape small[] = {{4, 5, 4, 2, 4, HB_FP32, HB_FP32, 0},
                                         {4, 5, 4, 2, 4, HB_FP32, HB_FP32, 1}};
    static const int32_t lens[N_ROWS] = {7, 2, 3, 6, 1};
    for (int i = 0; i < 8; i++) {
        struct delta_case c[HB_N_FORMS];
        memset(c, 0, sizeof c);
        int opened = 0;
        for (int32_t form = 0; form < HB_N_FORMS && rig_open(&c[form].rig, i % 2, 9); form++) {
            make_case(&c[form], &small[i / 2 % 2], &exact, i < 4 ? lens : ones, form, &integral);
            assert_int_equal(i < 4 ? c[form].rig.k->delta_prefill(&c[form].args)
                                   : c[form].rig.k->delta_update(&c[form].args),
                             HB_OK);
            read_results(&c[form]);
            opened++;
        }
        if (opened == HB_N_FORMS) {
            assert_true(array_same(&c[0].y, &c[1].y));
            assert_true(array_same(&c[0].got_pool, &c[1].got_pool));
            drop_case(&c[0]);
            drop_case(&c[1]);
        }
    }
}

/* The same operations of v0. */
static void prefill_by_tokens_equals_decode_steps_bit_for_bit(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct delta_case c[2];
        memset(c, 0, sizeof c);
        if (!rig_open(&c[0].rig, i % 2, 21) || !rig_open(&c[1].rig, i % 2, 21)) {
            continue;
        }
        for (int call = CALL_PREFILL; call <= CALL_UPDATE; call++) {
            make_case(&c[call], &shapes[i / 2 ? 6 : 0], &variants[0], ones, HB_FORM_V0, &usual);
            c[call].args.after = NULL;
            memset(c[call].after, 0, sizeof c[call].after);
            (void)run_case(&c[call], (enum call)call);
        }
        assert_true(array_same(&c[0].y, &c[1].y));
        assert_true(array_same(&c[0].got_pool, &c[1].got_pool));
        drop_case(&c[0]);
        drop_case(&c[1]);
    }
}

static void results_do_not_depend_on_the_order(void **state) {
    (void)state;
    for (int call = 0; call < 3; call++) {
        struct delta_case first = {0};
        for (int32_t i = 0; i < HB_N_ORDERS * HB_N_ORDERS; i++) {
            struct delta_case c = {0};
            assert_true(rig_open(&c.rig, 0, 31));
            c.rig.k->set_order(i / HB_N_ORDERS, i % HB_N_ORDERS, 55);
            make_case(&c, &shapes[call == 2 ? 4 : 2], &variants[call],
                      call == CALL_UPDATE ? ones : lens_of[2], HB_FORM_FAST, &usual);
            const struct result r = run_case(&c, call == CALL_UPDATE ? CALL_UPDATE : CALL_PREFILL);
            assert_true(r.outputs && r.pool);
            if (i == 0) {
                first = c;
                continue;
            }
            assert_true(array_same(&first.y, &c.y) && array_same(&first.got_pool, &c.got_pool));
            drop_case(&c);
        }
        drop_case(&first);
    }
}

/* A NaN or infinity in one row reaches no other row. */
static void rows_do_not_leak_into_each_other(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        struct delta_case c = {0};
        assert_true(rig_open(&c.rig, 0, 41));
        make_case(&c, &shapes[0], &variants[0], lens_of[1], form, &usual);
        expect_all(&c);
        float *qkv = c.qkv.bytes;
        for (size_t i = 0; i < (size_t)c.qsl[1] * delta_dim(&c.s); i++) {
            qkv[i] = i % 2 ? INFINITY : NAN;
        }
        rig_rewrite(&c.rig, c.args.qkv, qkv, c.qkv.n * 4);
        assert_int_equal(c.rig.k->delta_prefill(&c.args), HB_OK);
        read_results(&c);
        const size_t width = (size_t)(c.s.heads * c.s.p);
        for (size_t i = (size_t)c.qsl[1] * width; i < c.y.n; i++) {
            const int is_padding = i / width >= (size_t)c.qsl[2] && i / width < (size_t)c.qsl[3];
            assert_true(is_padding || is_near(c.y.wide[i], c.want[i], c.bound[i]));
        }
        drop_case(&c);
    }
}

/* The elements between two slots of a pool are left alone. */
static void padding_between_slots_is_left_alone(void **state) {
    (void)state;
    enum { PAD = 3 };
    for (int i = 0; i < 3; i++) {
        struct delta_case c = {0};
        assert_true(rig_open(&c.rig, 0, 61));
        make_case(&c, &shapes[0], &variants[i % 2], i == 2 ? ones : lens_of[1],
                  i == 0 ? HB_FORM_V0 : HB_FORM_FAST, &usual);
        const size_t slot = c.pool.n / (N_SLOTS + 1);
        float *padded = calloc((N_SLOTS + 1) * (slot + PAD), sizeof(float));
        assert_non_null(padded);
        for (size_t k = 0; k < c.pool.n; k++) {
            padded[k + k / slot * PAD] = ((float *)c.pool.bytes)[k];
        }
        const size_t bytes = (N_SLOTS + 1) * (slot + PAD) * sizeof(float);
        void *plain = c.args.pool;
        (void)run_case(&c, i == 2 ? CALL_UPDATE : CALL_PREFILL);
        c.args.pool = rig_device(&c.rig, padded, bytes);
        c.args.pool_pad = PAD;
        assert_int_equal(i == 2 ? c.rig.k->delta_update(&c.args) : c.rig.k->delta_prefill(&c.args),
                         HB_OK);
        float *after = rig_host(&c.rig, c.args.pool, bytes);
        for (size_t k = 0; k < (N_SLOTS + 1) * (slot + PAD); k++) {
            const size_t in_slot = k % (slot + PAD);
            const float want = in_slot < slot
                                   ? ((float *)c.got_pool.bytes)[k / (slot + PAD) * slot + in_slot]
                                   : 0.0f;
            assert_true(after[k] == want);
        }
        free(after);
        free(padded);
        c.args.pool = plain;
        drop_case(&c);
    }
}

#ifdef HB_DEFECTS
struct planted {
    int32_t defect, form;
    enum call call;
    int32_t shape;
    const struct values *values;
    int outputs, pool; /* left right? */
};

static const struct values rounded_gates = {1.0f, -1.0f, 0.05f, 2.0f, 0};
static const struct planted planted[] = {
    {HB_DEFECT_DELTA_HEAD_MAP, HB_FORM_V0, CALL_PREFILL, 0, &usual, 0, 0},
    {HB_DEFECT_DELTA_HEAD_MAP, HB_FORM_FAST, CALL_PREFILL, 0, &usual, 0, 0},
    {HB_DEFECT_DELTA_HEAD_MAP, HB_FORM_FAST, CALL_UPDATE, 0, &usual, 0, 0},
    {HB_DEFECT_DELTA_HEAD_MAP, HB_FORM_V0, CALL_UPDATE, 0, &usual, 0, 0},
    {HB_DEFECT_DELTA_DECAY_SIGN, HB_FORM_V0, CALL_PREFILL, 0, &usual, 0, 0},
    {HB_DEFECT_DELTA_DECAY_SIGN, HB_FORM_FAST, CALL_PREFILL, 6, &usual, 0, 0},
    {HB_DEFECT_DELTA_DECAY_SIGN, HB_FORM_FAST, CALL_UPDATE, 0, &usual, 0, 0},
    {HB_DEFECT_DELTA_DECAY_SIGN, HB_FORM_V0, CALL_UPDATE, 0, &usual, 0, 0},
    {HB_DEFECT_DELTA_ZERO_GATE, HB_FORM_V0, CALL_PREFILL, 0, &rounded_gates, 0, 0},
    {HB_DEFECT_DELTA_ZERO_GATE, HB_FORM_FAST, CALL_PREFILL, 6, &rounded_gates, 0, 0},
    {HB_DEFECT_DELTA_ZERO_GATE, HB_FORM_FAST, CALL_PREFILL, 0, &usual, 1, 1},
    {HB_DEFECT_DELTA_L2_EPS, HB_FORM_V0, CALL_PREFILL, 0, &short_keys, 0, 0},
    {HB_DEFECT_DELTA_L2_EPS, HB_FORM_FAST, CALL_PREFILL, 6, &short_keys, 0, 0},
    {HB_DEFECT_DELTA_L2_EPS, HB_FORM_FAST, CALL_UPDATE, 0, &short_keys, 0, 0},
    {HB_DEFECT_DELTA_L2_EPS, HB_FORM_V0, CALL_UPDATE, 0, &short_keys, 0, 0},
    {HB_DEFECT_DELTA_LAYOUT, HB_FORM_V0, CALL_PREFILL, 6, &usual, 0, 0},
    {HB_DEFECT_DELTA_LAYOUT, HB_FORM_FAST, CALL_PREFILL, 6, &usual, 0, 0},
    {HB_DEFECT_DELTA_LAYOUT, HB_FORM_FAST, CALL_PREFILL, 0, &usual, 1, 1}, /* P is not N */
    {HB_DEFECT_DELTA_MASKED_EXP, HB_FORM_FAST, CALL_PREFILL, 0, &strong, 1, 0},
    {HB_DEFECT_DELTA_MASKED_EXP, HB_FORM_FAST, CALL_PREFILL, 6, &strong, 1, 0},
    {HB_DEFECT_DELTA_MASKED_EXP, HB_FORM_FAST, CALL_PREFILL, 0, &usual, 1, 1},
    {HB_DEFECT_DELTA_PREDICTION, HB_FORM_V0, CALL_PREFILL, 0, &usual, 0, 0},
    {HB_DEFECT_DELTA_PREDICTION, HB_FORM_FAST, CALL_UPDATE, 6, &usual, 0, 0},
    {HB_DEFECT_DELTA_PREDICTION, HB_FORM_V0, CALL_UPDATE, 6, &usual, 0, 0},
};

/* Variant 3 has raw betas, so that rounded gates are exactly 0 now and then. */
static void planted_defects_are_noticed(void **state) {
    (void)state;
    for (size_t i = 0; i < 2 * sizeof planted / sizeof *planted; i++) {
        const struct planted *p = &planted[i / 2];
        struct delta_case c = {0};
        assert_true(rig_open(&c.rig, 0, 51));
        make_case(&c, &shapes[p->shape], &variants[p->values == &rounded_gates ? 3 : 0],
                  p->call == CALL_UPDATE ? ones : lens_of[1], p->form, p->values);
        c.args.defect = i % 2 ? p->defect : 0;
        const struct result r = run_case(&c, p->call);
        assert_int_equal(r.outputs, i % 2 ? p->outputs : 1);
        assert_int_equal(r.pool, i % 2 ? p->pool : 1);
        drop_case(&c);
    }
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_matches_the_recurrence),
        cmocka_unit_test(update_matches_the_recurrence),
        cmocka_unit_test(unusual_values),
        cmocka_unit_test(infinite_decay_clears_the_state),
        cmocka_unit_test(largest_sizes_fit),
        cmocka_unit_test(state_that_a_thread_cannot_hold_is_refused),
        cmocka_unit_test(both_forms_agree_bit_for_bit_on_integers),
        cmocka_unit_test(prefill_by_tokens_equals_decode_steps_bit_for_bit),
        cmocka_unit_test(results_do_not_depend_on_the_order),
        cmocka_unit_test(rows_do_not_leak_into_each_other),
        cmocka_unit_test(padding_between_slots_is_left_alone),
#ifdef HB_DEFECTS
        cmocka_unit_test(planted_defects_are_noticed),
#endif
    };
    return cmocka_run_group_tests_name("delta", tests, NULL, NULL);
}
