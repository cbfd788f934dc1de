/* SPDX-License-Identifier: Apache-2.0
 * Tests of kernels that carry a state from token to token: rows over a pool, one run of a kernel
 * and its verdict, and the checks that hold for every kind. A kind makes the arguments, says what
 * is expected, and launches. */
#ifndef HB_KERNELS_TESTS_RECUR_RIG_H
#define HB_KERNELS_TESTS_RECUR_RIG_H

#include "kernels/tests/rig.h"

enum { N_ROWS = 5, N_SLOTS = 10, PAD = 3, N_INPUTS = 5 };
enum call { CALL_PREFILL, CALL_UPDATE };

struct shape {
    int32_t heads, p, n, groups, chunk, act_dtype, state_dtype, is_kda;
};

/* What one run is. */
struct run {
    const struct shape *shape;
    const int32_t *lens;
    int32_t form;
    int32_t variant, values; /* the kind's own numbers */
    enum call call;
    int32_t defect, is_untracked;
};

union recur_args {
    struct hb_k_decay decay;
    struct hb_k_selective scan;
    struct hb_k_ssm ssm;
    struct hb_k_delta delta;
};

struct recur_case;

/* One state element at one token, for the recurrence of recur_bound.h: values, and bounds on the
 * errors with which a kernel knows them. */
struct term {
    double th, eta; /* minus the log decay */
    double in, din;
    double out, dout;
};
typedef struct term (*term_fn)(const struct recur_case *c, size_t token, int32_t head, int32_t p,
                               int32_t n);

struct recur_case {
    struct rig rig;
    struct shape s;
    union recur_args args;
    int32_t layout, pad, is_chunked;
    struct hb_k_rows rows;
    int32_t qsl[N_ROWS + 1], slots[N_ROWS], has_init[N_ROWS], after[N_ROWS], dst[N_ROWS];
    const int32_t *device_after, *device_dst;
    struct array input[N_INPUTS], pool; /* inputs: the kind's own */
    void *device_input[N_INPUTS], *device_pool, *device_y;
    double *want, *bound;           /* y */
    double *want_pool, *bound_pool; /* bound 0: bit for bit */
    struct array y, got_pool;
    /* of the recurrence of recur_bound.h */
    term_fn term;
    double scale;
    double *skip; /* [T, H, P] what is added to y, or null */
    void *own;    /* what the terms look up, or null */
};

struct recur_kind {
    void (*make)(struct recur_case *c, const struct run *run); /* make_rows, inputs, args */
    void (*expect)(struct recur_case *c);
    int32_t (*launch)(struct recur_case *c, enum call call);
    int32_t n_token_inputs; /* the first inputs have an entry per token */
};

struct result {
    int outputs, pool;
};

static const struct shape shapes_of_all[] = {
    {4, 8, 16, 2, 8, HB_FP32, HB_FP32, 0},   {4, 3, 5, 1, 4, HB_BF16, HB_FP32, 0},
    {2, 11, 33, 2, 16, HB_BF16, HB_BF16, 0}, {1, 1, 1, 1, 1, HB_FP32, HB_BF16, 0},
    {6, 17, 40, 3, 64, HB_FP32, HB_FP32, 0}, {2, 5, 7, 1, 8, HB_FP16, HB_FP32, 0},
};
/* around one token, the chunk and its tile of 16 */
static const int32_t lens_of[][N_ROWS] = {{1, 2, 3, 4, 0}, {8, 9, 2, 16, 7}, {33, 1, 1, 17, 64}};
static const int32_t ones[N_ROWS] = {1, 1, 1, 1, 1};
static const struct shape square = {4, 8, 8, 2, 8, HB_FP32, HB_FP32, 0}; /* P = N */
enum {
    N_SHAPES_OF_ALL = sizeof shapes_of_all / sizeof *shapes_of_all,
    N_LENS = sizeof lens_of / sizeof *lens_of
};

static inline size_t inner_of(const struct shape *s) {
    return (size_t)s->heads * (size_t)s->p;
}

static inline size_t tokens_of(const struct recur_case *c) {
    return (size_t)c->qsl[N_ROWS];
}

static inline size_t state_index(const struct recur_case *c, int32_t slot, int32_t head, int32_t p,
                                 int32_t n) {
    const struct shape *s = &c->s;
    const int32_t element =
        c->layout == HB_STATE_KV ? (head * s->n + n) * s->p + p : (head * s->p + p) * s->n + n;
    return (size_t)slot * (inner_of(s) * (size_t)s->n + (size_t)c->pad) + (size_t)element;
}

/* The members of a kernel's arguments that are the same for all kinds. */
#define RECUR_ARGS(c, run)                                                                         \
    .rows = (c)->rows, .n_heads = (c)->s.heads, .head_dim = (c)->s.p, .state_size = (c)->s.n,      \
    .act_dtype = (c)->s.act_dtype, .state_dtype = (c)->s.state_dtype, .state_layout = (c)->layout, \
    .form = (run)->form, .defect = (run)->defect, .y = (c)->device_y, .pool = (c)->device_pool,    \
    .after = (c)->device_after, .dst = (c)->device_dst, .pool_pad = (c)->pad

/* ---- cases ---- */

static inline double *doubles(size_t n) {
    double *x = calloc(n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

/* Rows, pool and output. range as in array_random. */
static inline void make_rows(struct recur_case *c, const struct run *run, int32_t layout,
                             int32_t pad, float range) {
    static const int32_t slots[N_ROWS] = {3, 1, -1, 7, 5};
    static const int32_t has_init[N_ROWS] = {1, 0, 1, 1, 0};
    static const int32_t dst[N_ROWS] = {2, 4, 8, 6, 9};
    struct rig *rig = &c->rig;
    c->s = *run->shape;
    c->layout = layout;
    c->pad = pad;
    c->is_chunked = run->form == HB_FORM_FAST;
    c->scale = 1;
    for (int row = 0; row < N_ROWS; row++) {
        const int is_tracked = row != 1 && !run->is_untracked;
        c->qsl[row + 1] = c->qsl[row] + run->lens[row];
        c->slots[row] = slots[row];
        c->has_init[row] = has_init[row];
        c->dst[row] = dst[row];
        c->after[row] = is_tracked ? run->lens[row] / c->s.chunk * c->s.chunk : 0;
    }
    c->pool = array_random(rig, (N_SLOTS + 1) * (inner_of(&c->s) * (size_t)c->s.n + (size_t)pad),
                           c->s.state_dtype, range);
    const size_t n_y = tokens_of(c) * inner_of(&c->s);
    c->want = doubles(n_y);
    c->bound = doubles(n_y);
    c->want_pool = doubles(c->pool.n);
    c->bound_pool = doubles(c->pool.n);
    c->rows.n_rows = N_ROWS;
    c->rows.qsl = rig_device(rig, c->qsl, sizeof c->qsl);
    c->rows.slots = rig_device(rig, c->slots, sizeof c->slots);
    c->rows.has_init = rig_device(rig, c->has_init, sizeof c->has_init);
    c->device_after = run->is_untracked ? NULL : rig_device(rig, c->after, sizeof c->after);
    c->device_dst = rig_device(rig, c->dst, sizeof c->dst);
    c->device_pool = array_device(rig, &c->pool);
    c->device_y = rig_device(rig, NULL, n_y * size_of(c->s.act_dtype));
}

/* Input i; returns its copy on the device. */
static inline void *give(struct recur_case *c, int i, struct array a) {
    c->input[i] = a;
    c->device_input[i] = array_device(&c->rig, &a);
    return c->device_input[i];
}

/* Copies input i to the device again. */
static inline void give_again(struct recur_case *c, int i) {
    const struct array *a = &c->input[i];
    rig_rewrite(&c->rig, c->device_input[i], a->bytes, a->n * size_of(a->dtype));
}

/* Uniform in [low, high). */
static inline struct array array_range(struct rig *rig, size_t n, int32_t dtype, float low,
                                       float high) {
    struct array a = array_make(n, dtype);
    for (size_t i = 0; i < n; i++) {
        array_set(&a, i, rig_value(rig, low, high));
    }
    return a;
}

/* Every element of the pool keeps its bits. */
static inline void expect_unchanged(struct recur_case *c) {
    for (size_t i = 0; i < c->pool.n; i++) {
        c->want_pool[i] = c->pool.wide[i];
        c->bound_pool[i] = 0;
    }
}

static inline void read_results(struct recur_case *c) {
    c->y = array_read(&c->rig, c->device_y, tokens_of(c) * inner_of(&c->s), c->s.act_dtype);
    c->got_pool = array_read(&c->rig, c->device_pool, c->pool.n, c->s.state_dtype);
}

/* Outputs within bounds and padding untouched; written slots within bounds, all else unchanged. */
static inline struct result judge(struct recur_case *c) {
    struct result r = {1, 1};
    const int32_t width = c->s.heads * c->s.p;
    read_results(c);
    for (int32_t row = 0; row < N_ROWS; row++) {
        for (int32_t i = c->qsl[row] * width; i < c->qsl[row + 1] * width; i++) {
            r.outputs &= c->slots[row] < 0 ? isnan(c->y.wide[i]) != 0
                                           : is_near(c->y.wide[i], c->want[i], c->bound[i]);
        }
    }
    for (size_t i = 0; i < c->pool.n; i++) {
        r.pool &= is_near(c->got_pool.wide[i], c->want_pool[i], c->bound_pool[i]);
    }
    return r;
}

static inline void drop_case(struct recur_case *c) {
    for (size_t i = 0; i < N_INPUTS; i++) {
        array_free(&c->input[i]);
    }
    array_free(&c->pool);
    array_free(&c->y);
    array_free(&c->got_pool);
    free(c->want);
    free(c->bound);
    free(c->want_pool);
    free(c->bound_pool);
    free(c->skip);
    free(c->own);
    rig_close(&c->rig);
}

/* 0 when there is no such table. */
static inline int open_run(const struct recur_kind *kind, struct recur_case *c,
                           const struct run *run, int table, uint32_t seed) {
    memset(c, 0, sizeof *c);
    if (!rig_open(&c->rig, table, seed)) {
        return 0;
    }
    kind->make(c, run);
    return 1;
}

/* Runs the kernel of an already made case. */
static inline struct result run_case(const struct recur_kind *kind, struct recur_case *c,
                                     enum call call) {
    if (call == CALL_UPDATE) {
        memset(c->after, 0, sizeof c->after);
        c->is_chunked = 0;
    }
    kind->expect(c);
    assert_int_equal(kind->launch(c, call), HB_OK);
    return judge(c);
}

static inline int same_results(const struct recur_case *a, const struct recur_case *b) {
    return array_same(&a->y, &b->y) && array_same(&a->got_pool, &b->got_pool);
}

/* ---- checks of every kind ---- */

static inline void check_run(const struct recur_kind *kind, const struct run *run, int table,
                             uint32_t seed) {
    struct recur_case c;
    if (open_run(kind, &c, run, table, seed)) {
        const struct result r = run_case(kind, &c, run->call);
        assert_true(r.outputs);
        assert_true(r.pool);
        drop_case(&c);
    }
}

/* Two runs with the same values have the same bits. */
static inline void check_same(const struct recur_kind *kind, const struct run *run, int table,
                              uint32_t seed) {
    struct recur_case c[2];
    if (!open_run(kind, &c[0], &run[0], table, seed) ||
        !open_run(kind, &c[1], &run[1], table, seed)) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        const struct result r = run_case(kind, &c[i], run[i].call);
        assert_true(r.outputs && r.pool);
    }
    assert_true(same_results(&c[0], &c[1]));
    drop_case(&c[0]);
    drop_case(&c[1]);
}

static inline void check_forms(const struct recur_kind *kind, const struct run *run, int table,
                               uint32_t seed) {
    struct run both[2] = {*run, *run};
    both[0].form = HB_FORM_V0;
    both[1].form = HB_FORM_FAST;
    check_same(kind, both, table, seed);
}

/* A prefill of one token per row is a decode step. */
static inline void check_one_token(const struct recur_kind *kind, const struct run *run) {
    struct run both[2] = {*run, *run};
    for (int i = 0; i < 2; i++) {
        both[i].lens = ones;
        both[i].is_untracked = 1;
        both[i].call = i == 0 ? CALL_PREFILL : CALL_UPDATE;
    }
    for (int table = 0; table < 2; table++) {
        check_same(kind, both, table, 21);
    }
}

static inline void check_orders(const struct recur_kind *kind, const struct run *run) {
    struct recur_case first = {0};
    for (int32_t i = 0; i < HB_N_ORDERS * HB_N_ORDERS; i++) {
        struct recur_case c;
        assert_true(open_run(kind, &c, run, 0, 31));
        c.rig.k->set_order(i / HB_N_ORDERS, i % HB_N_ORDERS, 55);
        const struct result r = run_case(kind, &c, run->call);
        assert_true(r.outputs && r.pool);
        if (i == 0) {
            first = c;
            continue;
        }
        assert_true(same_results(&first, &c));
        drop_case(&c);
    }
    drop_case(&first);
}

/* A NaN or infinity in one row reaches no other row; fp32 activations. */
static inline void check_no_leak(const struct recur_kind *kind, const struct run *run) {
    struct recur_case c;
    assert_true(open_run(kind, &c, run, 0, 41));
    kind->expect(&c);
    for (int input = 0; input < kind->n_token_inputs; input++) {
        const struct array *a = &c.input[input];
        float *x = a->bytes;
        assert_int_equal(a->dtype, HB_FP32);
        for (size_t i = 0; i < (size_t)c.qsl[1] * (a->n / tokens_of(&c)); i++) {
            x[i] = i % 2 ? INFINITY : NAN;
        }
        give_again(&c, input);
    }
    assert_int_equal(kind->launch(&c, run->call), HB_OK);
    read_results(&c);
    const size_t width = inner_of(&c.s);
    for (size_t i = (size_t)c.qsl[1] * width; i < c.y.n; i++) {
        const int is_padding = i / width >= (size_t)c.qsl[2] && i / width < (size_t)c.qsl[3];
        assert_true(is_padding || is_near(c.y.wide[i], c.want[i], c.bound[i]));
    }
    drop_case(&c);
}

/* The case's arguments have too large a state. */
static inline void check_too_large(const struct recur_kind *kind, struct recur_case *c,
                                   enum call call) {
    assert_int_equal(kind->launch(c, call), HB_ERR_DEVICE);
    assert_non_null(strstr(c->rig.k->error_text(), "state_size 257"));
}

/* One run on the emulator with a thread order. */
static inline struct result run_once(const struct recur_kind *kind, const struct run *run,
                                     int32_t order) {
    struct recur_case c;
    assert_true(open_run(kind, &c, run, 0, 51));
    c.rig.k->set_order(order, HB_ORDER_ASCENDING, 3);
    const struct result r = run_case(kind, &c, run->call);
    drop_case(&c);
    return r;
}

/* A defect, and what of the results stays right. */
struct planted {
    struct run run;
    int outputs, pool;
};

/* Each is noticed where it says so, and without its defect the same run is right. */
static inline void check_planted(const struct recur_kind *kind, const struct planted *planted,
                                 size_t n) {
    for (size_t i = 0; i < 2 * n; i++) {
        const struct planted *p = &planted[i / 2];
        struct run run = p->run;
        run.defect = i % 2 ? run.defect : 0;
        const struct result r = run_once(kind, &run, HB_ORDER_ASCENDING);
        assert_int_equal(r.outputs, i % 2 ? p->outputs : 1);
        assert_int_equal(r.pool, i % 2 ? p->pool : 1);
    }
}

#endif
