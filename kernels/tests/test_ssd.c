/* SPDX-License-Identifier: Apache-2.0
 * State-space kernels (prefill in two forms, decode in two forms) against the recurrence in double
 * arithmetic, with the bound of tolerance.md 3.1 and 3.2; tracking, padding, clamps, orders, forms,
 * planted defects. */
#include "kernels/tests/rig.h"

enum { N_ROWS = 5, N_SLOTS = 10 };

struct shape {
    int32_t heads, p, n, groups, chunk, act_dtype, state_dtype;
};

struct ssm_case {
    struct rig rig;
    struct shape s;
    struct hb_k_ssm args;
    int32_t qsl[N_ROWS + 1], slots[N_ROWS], has_init[N_ROWS], after[N_ROWS], dst[N_ROWS];
    int32_t is_chunked;
    struct array xbc, dt, a, bias, d, pool;
    double *want, *bound;           /* y */
    double *want_pool, *bound_pool; /* bound 0: bit for bit */
    struct array y, got_pool;
};

/* Step size and decay of one token with their errors, tolerance.md 3.1. */
struct gate {
    double dt, ddt, th, eta;
};

static struct gate gate_of(const struct ssm_case *c, size_t token, int32_t head) {
    struct gate g;
    const double a = c->dt.wide[token * (size_t)c->s.heads + (size_t)head] + c->bias.wide[head];
    const double da = U32 * fabs(a);
    g.dt = a;
    g.ddt = da;
    if (c->args.dt_softplus) {
        g.dt = (a > 0 ? a : 0) + log1p(exp(-fabs(a)));
        g.ddt = da / (1 + exp(-a)) * (1 + 1.0 / 1024) + 4 * U32 * g.dt + (a >= 19.9 ? exp(-a) : 0);
    }
    if (c->args.dt_clamp != HB_DT_CLAMP_NONE && g.dt < (double)c->args.dt_lo) {
        g.dt = (double)c->args.dt_lo;
    }
    if (c->args.dt_clamp == HB_DT_CLAMP_LIMIT && g.dt > (double)c->args.dt_hi) {
        g.dt = (double)c->args.dt_hi;
    }
    g.th = -g.dt * c->a.wide[head];
    g.eta = -c->a.wide[head] * g.ddt + fabs(g.th) * U32;
    return g;
}

struct element {
    double h, m, r, f;
};

static void step_element(const struct ssm_case *c, struct element *e, const struct gate *g,
                         double xb, double window) {
    const double gq = c->is_chunked ? gam(c->s.chunk, U32) : 0;
    const double u = fabs(xb);
    const double a = exp(-g->th);
    const double r = expm1(g->eta + 2 * gq * fabs(g->th) + E_EXP + 3 * U32);
    e->r = a * (e->r + e->f + r * (e->m + e->r)) +
           u * (fabs(g->dt) * 4 * U32 + g->ddt * (1 + 4 * U32)) + FLOOR * (e->m + u * window);
    e->m = a * e->m + u * fabs(g->dt);
    e->f = u * fabs(g->dt) * expm1(2 * gq * window);
    e->h = a * e->h + g->dt * xb;
}

/* th summed over the last C tokens that end at t */
static double window_sum(const struct ssm_case *c, int32_t row, int32_t t, int32_t head) {
    double sum = 0;
    for (int32_t k = t; k >= 0 && k > t - c->s.chunk; k--) {
        sum += fabs(gate_of(c, (size_t)(c->qsl[row] + k), head).th);
    }
    return sum;
}

static size_t state_index(const struct ssm_case *c, int32_t slot, int32_t head, int32_t p) {
    const size_t hp = (size_t)(slot * c->s.heads + head) * (size_t)c->s.p + (size_t)p;
    return hp * (size_t)c->s.n;
}

static double sum_constant(const struct ssm_case *c) {
    return c->is_chunked ? gam(c->s.n + 2 * c->s.chunk + 8, U32) : gam(c->s.n + 2, U32);
}

static void expect_state(struct ssm_case *c, const struct element *e, int32_t slot, int32_t head,
                         int32_t p) {
    const size_t at = state_index(c, slot, head, p);
    const double ky = sum_constant(c);
    for (int32_t n = 0; n < c->s.n; n++) {
        const double r = (1 + ky) * e[n].r + ky * e[n].m + FLOOR;
        c->want_pool[at + (size_t)n] = e[n].h;
        c->bound_pool[at + (size_t)n] = r + u_of(c->s.state_dtype) * (fabs(e[n].h) + r);
    }
}

/* One token: advances the elements and sets want and bound of y. */
static void expect_token(struct ssm_case *c, struct element *e, int32_t row, int32_t t,
                         int32_t head, int32_t p) {
    const struct shape *s = &c->s;
    const size_t token = (size_t)(c->qsl[row] + t);
    const size_t base = token * (size_t)(s->heads * s->p + 2 * s->groups * s->n);
    const double *b = c->xbc.wide + base + s->heads * s->p + head / (s->heads / s->groups) * s->n;
    const double x = c->xbc.wide[base + (size_t)(head * s->p + p)];
    const struct gate g = gate_of(c, token, head);
    const double window = window_sum(c, row, t, head);
    double y = 0;
    double mag = 0;
    double err = 0;
    for (int32_t n = 0; n < s->n; n++) {
        step_element(c, &e[n], &g, x * b[n], window);
        const double cn = b[s->groups * s->n + n];
        y += cn * e[n].h;
        mag += fabs(cn) * e[n].m;
        err += fabs(cn) * e[n].r;
    }
    const double dx = c->args.d ? c->d.wide[head] * x : 0;
    const double ky = sum_constant(c);
    err = (1 + ky) * err + ky * mag + 3 * U32 * fabs(dx) + U32 * (mag + fabs(dx));
    const size_t at = (token * (size_t)s->heads + (size_t)head) * (size_t)s->p + (size_t)p;
    c->want[at] = y + dx;
    c->bound[at] = err + u_of(s->act_dtype) * (fabs(y + dx) + err) + FLOOR;
}

static void expect_all(struct ssm_case *c) {
    struct element e[256];
    for (size_t i = 0; i < c->pool.n; i++) {
        c->want_pool[i] = c->pool.wide[i];
        c->bound_pool[i] = 0;
    }
    for (int32_t i = 0; i < N_ROWS * c->s.heads * c->s.p; i++) {
        const int32_t row = i / (c->s.heads * c->s.p);
        const int32_t head = i / c->s.p % c->s.heads;
        const int32_t p = i % c->s.p;
        const int32_t len = c->qsl[row + 1] - c->qsl[row];
        if (c->slots[row] < 0 || len == 0) {
            continue;
        }
        memset(e, 0, sizeof e);
        for (int32_t n = 0; n < c->s.n && c->has_init[row]; n++) {
            e[n].h = c->pool.wide[state_index(c, c->slots[row], head, p) + (size_t)n];
            e[n].m = fabs(e[n].h);
            e[n].f = 0;
        }
        for (int32_t t = 0; t < len; t++) {
            expect_token(c, e, row, t, head, p);
            if (c->after[row] == t + 1) {
                expect_state(c, e, c->dst[row], head, p);
            }
        }
        expect_state(c, e, c->slots[row], head, p);
    }
}

/* integers: A = 0, dt a small integer, so every form is exact */
static void make_values(struct ssm_case *c, int integers) {
    struct rig *rig = &c->rig;
    const struct shape *s = &c->s;
    const size_t n_tokens = (size_t)c->qsl[N_ROWS];
    const float range = integers ? -2.0f : 1.0f;
    c->xbc = array_random(rig, n_tokens * (size_t)(s->heads * s->p + 2 * s->groups * s->n),
                          s->act_dtype, range);
    c->dt = array_random(rig, n_tokens * (size_t)s->heads, s->act_dtype, range);
    c->a = array_make((size_t)s->heads, HB_FP32);
    c->bias = array_random(rig, (size_t)s->heads, HB_FP32, range);
    c->d = array_random(rig, (size_t)s->heads, HB_FP32, range);
    c->pool = array_random(rig, (size_t)(N_SLOTS + 1) * (size_t)(s->heads * s->p * s->n),
                           s->state_dtype, range);
    for (size_t h = 0; h < (size_t)s->heads; h++) {
        array_set(&c->a, h, integers ? 0.0f : -rig_value(rig, 0.1f, 3.0f));
    }
    const size_t n_y = n_tokens * (size_t)(s->heads * s->p);
    c->want = calloc(n_y + 1, sizeof(double));
    c->bound = calloc(n_y + 1, sizeof(double));
    c->want_pool = calloc(c->pool.n + 1, sizeof(double));
    c->bound_pool = calloc(c->pool.n + 1, sizeof(double));
    assert_true(c->want && c->bound && c->want_pool && c->bound_pool);
}

static void make_case(struct ssm_case *c, const struct shape *shape, const int32_t *lens,
                      int32_t form, int integers) {
    static const int32_t slots[N_ROWS] = {3, 1, -1, 7, 5};
    static const int32_t has_init[N_ROWS] = {1, 0, 1, 1, 0};
    static const int32_t dst[N_ROWS] = {2, 4, 8, 6, 9};
    struct rig *rig = &c->rig;
    c->s = *shape;
    c->is_chunked = form == HB_FORM_FAST;
    for (int row = 0; row < N_ROWS; row++) {
        c->qsl[row + 1] = c->qsl[row] + lens[row];
        c->slots[row] = slots[row];
        c->has_init[row] = has_init[row];
        c->dst[row] = dst[row];
        c->after[row] = row == 1 ? 0 : lens[row] / shape->chunk * shape->chunk;
    }
    make_values(c, integers);
    c->args = (struct hb_k_ssm){.n_heads = shape->heads,
                                .head_dim = shape->p,
                                .state_size = shape->n,
                                .n_groups = shape->groups,
                                .chunk_size = shape->chunk,
                                .act_dtype = shape->act_dtype,
                                .state_dtype = shape->state_dtype,
                                .dt_softplus = !integers,
                                .form = form};
    c->args.rows.n_rows = N_ROWS;
    c->args.rows.qsl = rig_device(rig, c->qsl, sizeof c->qsl);
    c->args.rows.slots = rig_device(rig, c->slots, sizeof c->slots);
    c->args.rows.has_init = rig_device(rig, c->has_init, sizeof c->has_init);
    c->args.after = rig_device(rig, c->after, sizeof c->after);
    c->args.dst = rig_device(rig, c->dst, sizeof c->dst);
    c->args.xbc = array_device(rig, &c->xbc);
    c->args.dt = array_device(rig, &c->dt);
    c->args.a = array_device(rig, &c->a);
    c->args.dt_bias = array_device(rig, &c->bias);
    c->args.d = array_device(rig, &c->d);
    c->args.pool = array_device(rig, &c->pool);
    c->args.y = rig_device(rig, NULL,
                           (size_t)c->qsl[N_ROWS] * (size_t)(shape->heads * shape->p) *
                               size_of(shape->act_dtype));
}

static void read_results(struct ssm_case *c) {
    const size_t n_y = (size_t)c->qsl[N_ROWS] * (size_t)(c->s.heads * c->s.p);
    c->y = array_read(&c->rig, c->args.y, n_y, c->s.act_dtype);
    c->got_pool = array_read(&c->rig, c->args.pool, c->pool.n, c->s.state_dtype);
}

static void drop_case(struct ssm_case *c) {
    struct array *arrays[] = {&c->xbc, &c->dt,   &c->a, &c->bias,
                              &c->d,   &c->pool, &c->y, &c->got_pool};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        array_free(arrays[i]);
    }
    free(c->want);
    free(c->bound);
    free(c->want_pool);
    free(c->bound_pool);
    rig_close(&c->rig);
}

static int outputs_ok(const struct ssm_case *c) {
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
static int pool_ok(const struct ssm_case *c) {
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
static struct result run_case(struct ssm_case *c, enum call call) {
    if (call == CALL_UPDATE) {
        memset(c->after, 0, sizeof c->after);
        c->args.after = NULL;
        c->args.dst = NULL;
        c->is_chunked = 0;
    }
    expect_all(c);
    const int32_t status =
        call == CALL_UPDATE ? c->rig.k->ssm_update(&c->args) : c->rig.k->ssd_prefill(&c->args);
    assert_int_equal(status, HB_OK);
    read_results(c);
    return (struct result){outputs_ok(c), pool_ok(c)};
}

static const struct shape shapes[] = {
    {4, 8, 16, 2, 8, HB_FP32, HB_FP32},    {4, 3, 5, 1, 4, HB_BF16, HB_FP32},
    {2, 11, 33, 2, 16, HB_BF16, HB_BF16},  {1, 1, 1, 1, 1, HB_FP32, HB_BF16},
    {6, 17, 128, 3, 64, HB_FP32, HB_FP32},
};
static const int32_t lens_of[][N_ROWS] = {{1, 2, 3, 4, 0}, {8, 9, 2, 16, 7}, {33, 1, 1, 17, 64}};
static const int32_t ones[N_ROWS] = {1, 1, 1, 1, 1};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, N_LENS = sizeof lens_of / sizeof *lens_of };

static void prefill_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES * N_LENS * HB_N_FORMS; i++) {
        struct ssm_case c = {0};
        if (!rig_open(&c.rig, i & 1, (uint32_t)i)) {
            continue;
        }
        make_case(&c, &shapes[i / 2 % N_SHAPES], lens_of[i / 2 / N_SHAPES % N_LENS],
                  i / 2 / N_SHAPES / N_LENS, 0);
        const struct result r = run_case(&c, CALL_PREFILL);
        assert_true(r.outputs);
        assert_true(r.pool);
        drop_case(&c);
    }
}

static void update_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES * HB_N_FORMS; i++) {
        struct ssm_case c = {0};
        if (!rig_open(&c.rig, i & 1, (uint32_t)i)) {
            continue;
        }
        make_case(&c, &shapes[i / 2 % N_SHAPES], ones, i / 2 / N_SHAPES, 0);
        const struct result r = run_case(&c, CALL_UPDATE);
        assert_true(r.outputs);
        assert_true(r.pool);
        drop_case(&c);
    }
}

static void largest_sizes_fit(void **state) {
    (void)state;
    const struct shape large = {1, 9, 256, 1, 256, HB_BF16, HB_FP32};
    const int32_t lens[N_ROWS] = {257, 0, 0, 3, 0};
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        struct ssm_case c = {0};
        assert_true(rig_open(&c.rig, 0, 5));
        make_case(&c, &large, lens, form, 0);
        const struct result r = run_case(&c, CALL_PREFILL);
        assert_true(r.outputs && r.pool);
        drop_case(&c);
    }
}

static void state_that_v0_cannot_hold_is_refused(void **state) {
    (void)state;
    struct ssm_case c = {0};
    assert_true(rig_open(&c.rig, 0, 5));
    make_case(&c, &shapes[0], ones, HB_FORM_V0, 0);
    struct hb_k_ssm args = c.args;
    args.state_size = 257;
    assert_int_equal(c.rig.k->ssd_prefill(&args), HB_ERR_DEVICE);
    assert_non_null(strstr(c.rig.k->error_text(), "state_size 257"));
    (void)run_case(&c, CALL_PREFILL);
    drop_case(&c);
}

static void clamps_and_absent_parameters(void **state) {
    (void)state;
    for (int i = 0; i < 2 * HB_N_DT_CLAMPS * HB_N_FORMS * 2; i++) {
        struct ssm_case c = {0};
        assert_true(rig_open(&c.rig, 0, (uint32_t)i));
        const enum call call = i & 1 ? CALL_UPDATE : CALL_PREFILL;
        make_case(&c, &shapes[0], call == CALL_UPDATE ? ones : lens_of[1], i / 2 % HB_N_FORMS, 0);
        c.args.dt_clamp = i / 2 / HB_N_FORMS % HB_N_DT_CLAMPS;
        c.args.dt_lo = 0.5f;
        c.args.dt_hi = 0.7f;
        if (i >= 2 * HB_N_DT_CLAMPS * HB_N_FORMS) {
            c.args.d = NULL;
            c.args.dt_bias = NULL;
            memset(c.bias.wide, 0, c.bias.n * sizeof(double));
        }
        const struct result r = run_case(&c, call);
        assert_true(r.outputs && r.pool);
        drop_case(&c);
    }
}

static void both_forms_agree_bit_for_bit_on_integers(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        for (int call = CALL_PREFILL; call <= CALL_UPDATE; call++) {
            struct ssm_case c[HB_N_FORMS];
            memset(c, 0, sizeof c);
            int opened = 0;
            for (int32_t form = 0; form < HB_N_FORMS && rig_open(&c[form].rig, table, 9); form++) {
                make_case(&c[form], &shapes[0], call == CALL_UPDATE ? ones : lens_of[1], form, 1);
                const struct result r = run_case(&c[form], (enum call)call);
                assert_true(r.outputs && r.pool);
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
}

static void prefill_of_one_token_equals_a_decode_step_bit_for_bit(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct ssm_case c[2];
        memset(c, 0, sizeof c);
        if (!rig_open(&c[0].rig, table, 21) || !rig_open(&c[1].rig, table, 21)) {
            continue;
        }
        for (int call = CALL_PREFILL; call <= CALL_UPDATE; call++) {
            make_case(&c[call], &shapes[0], ones, HB_FORM_V0, 0);
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
    for (int call = CALL_PREFILL; call <= CALL_UPDATE; call++) {
        struct ssm_case first = {0};
        for (int32_t i = 0; i < HB_N_ORDERS * HB_N_ORDERS; i++) {
            struct ssm_case c = {0};
            assert_true(rig_open(&c.rig, 0, 31));
            c.rig.k->set_order(i / HB_N_ORDERS, i % HB_N_ORDERS, 55);
            make_case(&c, &shapes[2], call == CALL_UPDATE ? ones : lens_of[2], HB_FORM_FAST, 0);
            const struct result r = run_case(&c, (enum call)call);
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
        struct ssm_case c = {0};
        assert_true(rig_open(&c.rig, 0, 41));
        make_case(&c, &shapes[0], lens_of[1], form, 0);
        expect_all(&c);
        float *xbc = c.xbc.bytes;
        const size_t width = c.xbc.n / (size_t)c.qsl[N_ROWS];
        for (size_t i = 0; i < (size_t)c.qsl[1] * width; i++) {
            xbc[i] = i % 2 ? INFINITY : NAN;
        }
        rig_rewrite(&c.rig, c.args.xbc, xbc, c.xbc.n * 4);
        assert_int_equal(c.rig.k->ssd_prefill(&c.args), HB_OK);
        read_results(&c);
        for (size_t i = (size_t)(c.qsl[1] * c.s.heads * c.s.p); i < c.y.n; i++) {
            const int is_padding = i / (size_t)(c.s.heads * c.s.p) >= (size_t)c.qsl[2] &&
                                   i / (size_t)(c.s.heads * c.s.p) < (size_t)c.qsl[3];
            assert_true(is_padding || is_near(c.y.wide[i], c.want[i], c.bound[i]));
        }
        drop_case(&c);
    }
}

#ifdef HB_DEFECTS
static struct result run_defect(enum call call, int32_t form, int32_t defect, int32_t order,
                                const int32_t *lens) {
    struct ssm_case c = {0};
    assert_true(rig_open(&c.rig, 0, 51));
    c.rig.k->set_order(order, HB_ORDER_ASCENDING, 3);
    make_case(&c, &shapes[0], lens, form, 0);
    c.args.defect = defect;
    const struct result r = run_case(&c, call);
    drop_case(&c);
    return r;
}

/* Declared by the emulator; the poison is its setting, not the table's. */
void hb_emu_set_poison(int32_t is_on);

static void planted_defects_are_noticed(void **state) {
    (void)state;
    const int32_t *lens = lens_of[1];
    const int32_t short_lens[N_ROWS] = {7, 1, 2, 3, 5};
    struct result r;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        r = run_defect(CALL_PREFILL, form, HB_DEFECT_GROUP_MODULO, HB_ORDER_ASCENDING, lens);
        assert_true(!r.outputs && !r.pool);
        r = run_defect(CALL_UPDATE, form, HB_DEFECT_GROUP_MODULO, HB_ORDER_ASCENDING, ones);
        assert_true(!r.outputs && !r.pool);
        r = run_defect(CALL_UPDATE, form, HB_DEFECT_PAD_ROW_WRITTEN, HB_ORDER_ASCENDING, ones);
        assert_true(r.outputs && !r.pool);
        r = run_defect(CALL_UPDATE, form, HB_DEFECT_NEIGHBOUR_SLOT, HB_ORDER_ASCENDING, ones);
        assert_true(r.outputs && !r.pool);
    }
    r = run_defect(CALL_PREFILL, HB_FORM_FAST, HB_DEFECT_CHUNK_OFF_BY_ONE, HB_ORDER_ASCENDING,
                   lens);
    assert_true(!r.outputs && !r.pool);
    r = run_defect(CALL_PREFILL, HB_FORM_FAST, HB_DEFECT_CHUNK_OFF_BY_ONE, HB_ORDER_ASCENDING,
                   short_lens);
    assert_true(r.outputs && r.pool); /* no row fills a chunk */
}

static void missing_barrier_is_noticed_when_the_order_varies(void **state) {
    (void)state;
    struct result r = run_defect(CALL_PREFILL, HB_FORM_FAST, HB_DEFECT_MISSING_BARRIER,
                                 HB_ORDER_ASCENDING, lens_of[1]);
    assert_true(r.outputs && r.pool); /* the detector is off */
    r = run_defect(CALL_PREFILL, HB_FORM_FAST, HB_DEFECT_MISSING_BARRIER, HB_ORDER_DESCENDING,
                   lens_of[1]);
    assert_true(!r.outputs);
    r = run_defect(CALL_PREFILL, HB_FORM_FAST, HB_DEFECT_MISSING_BARRIER, HB_ORDER_RANDOM,
                   lens_of[1]);
    assert_true(!r.outputs);
}

static void unset_shared_memory_is_noticed_by_poison(void **state) {
    (void)state;
    struct result r = run_defect(CALL_PREFILL, HB_FORM_FAST, HB_DEFECT_UNINIT_SHARED,
                                 HB_ORDER_ASCENDING, lens_of[1]);
    assert_true(!r.outputs && !r.pool);
    hb_emu_set_poison(0);
    r = run_defect(CALL_PREFILL, HB_FORM_FAST, HB_DEFECT_UNINIT_SHARED, HB_ORDER_ASCENDING,
                   lens_of[1]);
    hb_emu_set_poison(1);
    assert_true(r.outputs && r.pool); /* the detector is off */
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_matches_the_recurrence),
        cmocka_unit_test(update_matches_the_recurrence),
        cmocka_unit_test(largest_sizes_fit),
        cmocka_unit_test(state_that_v0_cannot_hold_is_refused),
        cmocka_unit_test(clamps_and_absent_parameters),
        cmocka_unit_test(both_forms_agree_bit_for_bit_on_integers),
        cmocka_unit_test(prefill_of_one_token_equals_a_decode_step_bit_for_bit),
        cmocka_unit_test(results_do_not_depend_on_the_order),
        cmocka_unit_test(rows_do_not_leak_into_each_other),
#ifdef HB_DEFECTS
        cmocka_unit_test(planted_defects_are_noticed),
        cmocka_unit_test(missing_barrier_is_noticed_when_the_order_varies),
        cmocka_unit_test(unset_shared_memory_is_noticed_by_poison),
#endif
    };
    return cmocka_run_group_tests_name("ssd", tests, NULL, NULL);
}
