/* SPDX-License-Identifier: Apache-2.0
 * Tests of kernels whose state elements each obey h' = e^-th h + in, y = scale sum_n out h' + skip:
 * rows over a pool, expectations in double arithmetic with the bound of tolerance.md 3.2, and what
 * must not change. A test says what th, in and out are, with their errors. */
#ifndef HB_KERNELS_TESTS_RECUR_RIG_H
#define HB_KERNELS_TESTS_RECUR_RIG_H

#include "kernels/tests/rig.h"

enum { N_ROWS = 5, N_SLOTS = 10, PAD = 3 };

struct shape {
    int32_t heads, p, n, groups, chunk, act_dtype, state_dtype;
};

struct recur_case;

/* One state element at one token: values, and bounds on the errors with which a kernel knows them. */
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
    int32_t layout, is_chunked;
    term_fn term;
    double scale;
    struct hb_k_rows rows;
    int32_t qsl[N_ROWS + 1], slots[N_ROWS], has_init[N_ROWS], after[N_ROWS], dst[N_ROWS];
    const int32_t *device_after, *device_dst;
    struct array input[5], pool; /* inputs: the test's own */
    const double *skip;          /* [T, H, P] what is added to y, or null */
    double *want, *bound;           /* y */
    double *want_pool, *bound_pool; /* bound 0: bit for bit */
    void *device_pool, *device_y;
    struct array y, got_pool;
};

struct result {
    int outputs, pool;
};

static const struct shape shapes[] = {
    {4, 8, 16, 2, 8, HB_FP32, HB_FP32},   {4, 3, 5, 1, 4, HB_BF16, HB_FP32},
    {2, 11, 33, 2, 16, HB_BF16, HB_BF16}, {1, 1, 1, 1, 1, HB_FP32, HB_BF16},
    {6, 17, 40, 3, 64, HB_FP32, HB_FP32}, {2, 5, 7, 1, 8, HB_FP16, HB_FP32},
};
/* around one token, the chunk and its tile of 16 */
static const int32_t lens_of[][N_ROWS] = {{1, 2, 3, 4, 0}, {8, 9, 2, 16, 7}, {33, 1, 1, 17, 64}};
static const int32_t ones[N_ROWS] = {1, 1, 1, 1, 1};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, N_LENS = sizeof lens_of / sizeof *lens_of };

static inline size_t inner_of(const struct shape *s) {
    return (size_t)s->heads * (size_t)s->p;
}

static inline size_t tokens_of(const struct recur_case *c) {
    return (size_t)c->qsl[N_ROWS];
}

static inline size_t state_index(const struct recur_case *c, int32_t slot, int32_t head, int32_t p,
                                 int32_t n) {
    const struct shape *s = &c->s;
    const int32_t element = c->layout == HB_STATE_KV ? (head * s->n + n) * s->p + p
                                                     : (head * s->p + p) * s->n + n;
    return (size_t)slot * (inner_of(s) * (size_t)s->n + PAD) + (size_t)element;
}

/* ---- expectations ---- */

struct element {
    double h, m, r, f;
};

static inline struct term term_at(const struct recur_case *c, int32_t row, int32_t t, int32_t head,
                                  int32_t p, int32_t n) {
    return c->term(c, (size_t)(c->qsl[row] + t), head, p, n);
}

/* th summed over the last C tokens that end at t; chunked kinds have one for all p and n */
static inline double window_sum(const struct recur_case *c, int32_t row, int32_t t, int32_t head) {
    double sum = 0;
    for (int32_t k = t; k >= 0 && k > t - c->s.chunk && c->is_chunked; k--) {
        sum += fabs(term_at(c, row, k, head, 0, 0).th);
    }
    return sum;
}

static inline void step_element(const struct recur_case *c, struct element *e, const struct term *x,
                                double window) {
    const double gq = c->is_chunked ? gam(c->s.chunk, U32) : 0;
    const double u = fabs(x->in);
    const double a = exp(-x->th);
    const double r = expm1(x->eta + 2 * gq * fabs(x->th) + E_EXP + 3 * U32);
    e->r = a * (e->r + e->f + r * (e->m + e->r)) + u * 4 * U32 + x->din + FLOOR * (e->m + u + 1);
    e->m = a * e->m + u + x->din;
    e->f = u * expm1(2 * gq * window);
    e->h = a * e->h + x->in;
}

static inline double sum_constant(const struct recur_case *c) {
    return c->is_chunked ? gam(c->s.n + 2 * c->s.chunk + 8, U32) : gam(c->s.n + 2, U32);
}

static inline void expect_state(struct recur_case *c, const struct element *e, int32_t slot,
                                int32_t head, int32_t p) {
    const double ky = sum_constant(c);
    for (int32_t n = 0; n < c->s.n; n++) {
        const size_t at = state_index(c, slot, head, p, n);
        const double r = (1 + ky) * e[n].r + ky * e[n].m + FLOOR;
        c->want_pool[at] = e[n].h;
        c->bound_pool[at] = r + u_of(c->s.state_dtype) * (fabs(e[n].h) + r);
    }
}

static inline void expect_token(struct recur_case *c, struct element *e, int32_t row, int32_t t,
                                int32_t head, int32_t p) {
    const double window = window_sum(c, row, t, head);
    double y = 0, mag = 0, err = 0;
    for (int32_t n = 0; n < c->s.n; n++) {
        const struct term x = term_at(c, row, t, head, p, n);
        step_element(c, &e[n], &x, window);
        y += x.out * e[n].h;
        mag += fabs(x.out) * e[n].m;
        err += fabs(x.out) * e[n].r + x.dout * (fabs(e[n].h) + e[n].r);
    }
    const double ky = sum_constant(c);
    const size_t token = (size_t)(c->qsl[row] + t);
    const size_t at = (token * (size_t)c->s.heads + (size_t)head) * (size_t)c->s.p + (size_t)p;
    const double skip = c->skip ? c->skip[at] : 0;
    err = fabs(c->scale) * ((1 + ky) * err + (ky + 2 * U32) * mag) + 4 * U32 * fabs(skip) +
          U32 * (fabs(c->scale) * mag + fabs(skip));
    c->want[at] = c->scale * y + skip;
    c->bound[at] = err + u_of(c->s.act_dtype) * (fabs(c->want[at]) + err) +
                   floor_of(c->s.act_dtype);
}

static inline void expect_row(struct recur_case *c, int32_t row, int32_t head, int32_t p) {
    const int32_t len = c->qsl[row + 1] - c->qsl[row];
    struct element e[HB_MAX_STATE_SIZE] = {{0}};
    for (int32_t n = 0; n < c->s.n && c->has_init[row]; n++) {
        e[n].h = c->pool.wide[state_index(c, c->slots[row], head, p, n)];
        e[n].m = fabs(e[n].h);
    }
    for (int32_t t = 0; t < len; t++) {
        expect_token(c, e, row, t, head, p);
        if (c->after[row] == t + 1) {
            expect_state(c, e, c->dst[row], head, p);
        }
    }
    expect_state(c, e, c->slots[row], head, p);
}

static inline void expect_all(struct recur_case *c) {
    for (size_t i = 0; i < c->pool.n; i++) {
        c->want_pool[i] = c->pool.wide[i];
        c->bound_pool[i] = 0;
    }
    for (int32_t i = 0; i < N_ROWS * c->s.heads * c->s.p; i++) {
        const int32_t row = i / (c->s.heads * c->s.p);
        if (c->slots[row] >= 0 && c->qsl[row + 1] > c->qsl[row]) {
            expect_row(c, row, i / c->s.p % c->s.heads, i % c->s.p);
        }
    }
}

/* ---- cases ---- */

/* Rows, pool and output. range as in array_random. */
static inline void make_rows(struct recur_case *c, const struct shape *shape, const int32_t *lens,
                             int32_t layout, int32_t form, float range) {
    static const int32_t slots[N_ROWS] = {3, 1, -1, 7, 5};
    static const int32_t has_init[N_ROWS] = {1, 0, 1, 1, 0};
    static const int32_t dst[N_ROWS] = {2, 4, 8, 6, 9};
    struct rig *rig = &c->rig;
    c->s = *shape;
    c->layout = layout;
    c->is_chunked = form == HB_FORM_FAST;
    c->scale = 1;
    for (int row = 0; row < N_ROWS; row++) {
        c->qsl[row + 1] = c->qsl[row] + lens[row];
        c->slots[row] = slots[row];
        c->has_init[row] = has_init[row];
        c->dst[row] = dst[row];
        c->after[row] = row == 1 ? 0 : lens[row] / shape->chunk * shape->chunk;
    }
    c->pool = array_random(
        rig, (N_SLOTS + 1) * (inner_of(shape) * (size_t)shape->n + PAD), shape->state_dtype, range);
    const size_t n_y = tokens_of(c) * inner_of(shape);
    c->want = calloc(n_y + 1, sizeof(double));
    c->bound = calloc(n_y + 1, sizeof(double));
    c->want_pool = calloc(c->pool.n + 1, sizeof(double));
    c->bound_pool = calloc(c->pool.n + 1, sizeof(double));
    assert_true(c->want && c->bound && c->want_pool && c->bound_pool);
    c->rows.n_rows = N_ROWS;
    c->rows.qsl = rig_device(rig, c->qsl, sizeof c->qsl);
    c->rows.slots = rig_device(rig, c->slots, sizeof c->slots);
    c->rows.has_init = rig_device(rig, c->has_init, sizeof c->has_init);
    c->device_after = rig_device(rig, c->after, sizeof c->after);
    c->device_dst = rig_device(rig, c->dst, sizeof c->dst);
    c->device_pool = array_device(rig, &c->pool);
    c->device_y = rig_device(rig, NULL, n_y * size_of(shape->act_dtype));
}

/* Uniform in (low, high), replaces what an array holds. */
static inline void fill_range(struct recur_case *c, struct array *a, float low, float high) {
    for (size_t i = 0; i < a->n; i++) {
        array_set(a, i, rig_value(&c->rig, low, high));
    }
}

static inline void no_tracking(struct recur_case *c) {
    memset(c->after, 0, sizeof c->after);
    c->is_chunked = 0;
}

/* Outputs within bounds and padding untouched; written slots within bounds, all else unchanged. */
static inline struct result judge(struct recur_case *c) {
    struct result r = {1, 1};
    c->y = array_read(&c->rig, c->device_y, tokens_of(c) * inner_of(&c->s), c->s.act_dtype);
    c->got_pool = array_read(&c->rig, c->device_pool, c->pool.n, c->s.state_dtype);
    for (int32_t row = 0; row < N_ROWS; row++) {
        const int32_t width = c->s.heads * c->s.p;
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
    for (size_t i = 0; i < sizeof c->input / sizeof *c->input; i++) {
        array_free(&c->input[i]);
    }
    array_free(&c->pool);
    array_free(&c->y);
    array_free(&c->got_pool);
    free(c->want);
    free(c->bound);
    free(c->want_pool);
    free(c->bound_pool);
    rig_close(&c->rig);
}

static inline int same_results(const struct recur_case *a, const struct recur_case *b) {
    return array_same(&a->y, &b->y) && array_same(&a->got_pool, &b->got_pool);
}

#endif
