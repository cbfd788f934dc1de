/* SPDX-License-Identifier: Apache-2.0
 * Draft verification in the kernel tests: rows, trees and chains, entries; the output and the
 * stored entry of each node against decode steps along its path, bit for bit; pools, padding rows
 * and unused entries keep their bytes. The including file has the shapes and the kinds: what makes
 * the arguments, the verify, the decode step. */
#ifndef HB_KERNELS_TESTS_VERIFY_RIG_H
#define HB_KERNELS_TESTS_VERIFY_RIG_H

#include "kernels/tests/rig.h"

enum { N_ROWS = 3, N_SLOTS = 5, MAX_DRAFT = 6, N_TOKENS = 13 };

struct shape {
    int32_t heads, p, n, groups, width, act_dtype, state_dtype;
};

static const int32_t lens[N_ROWS] = {5, 5, 3};
static const int32_t slots[N_ROWS] = {3, -1, 1};
static const int32_t trees[N_ROWS][MAX_DRAFT] = {
    {0, 0, 0, 1, 2, 77}, {77, 77, 77, 77, 77, 77}, {0, 0, 1, 77, 77, 77}};

/* P = N; with every layout. */
static const struct shape squares[] = {{4, 5, 5, 2, 4, HB_FP32, HB_FP32},
                                       {4, 5, 5, 2, 4, HB_FP32, HB_FP32}};

/* Of the kernel whose verify is tested. */
union kind_args {
    struct hb_k_conv conv;
    struct hb_k_ssm ssm;
    struct hb_k_decay decay;
    struct hb_k_selective scan;
    struct hb_k_short_conv short_conv;
    struct hb_k_delta delta;
};

/* One verify, and what decode steps need. */
struct verify_case {
    struct rig rig;
    struct shape s;
    union kind_args args;
    int32_t is_tree, form, defect, layout;
    int32_t qsl[N_ROWS + 1];
    const int32_t *steps; /* device 0, 1, ..: any token as a row of its own */
    const int32_t *device_slots, *parent;
    struct hb_k_rows rows;
    size_t entry;      /* elements of a slot */
    int32_t dtype;     /* of the pool */
    struct array pool; /* before */
    void *device_pool, *entries, *y;
    size_t width;       /* elements of y per token */
    int32_t keeps_type; /* a chain's running state has the pool's type: conv inputs */
};

/* One decode step of a row: the token as a row of its own. */
struct decode {
    struct hb_k_rows rows;
    void *pool;
    int32_t state_dtype; /* of that pool */
    void *y;
};

struct verify_kind {
    void (*make)(struct verify_case *c); /* opens the pool, then sets args */
    int32_t (*verify)(struct verify_case *c);
    int32_t (*step)(struct verify_case *c, const struct decode *decode);
};

/* The members of a kernel's arguments that are the same for all kinds with states. */
#define STATE_ARGS(c)                                                                              \
    .rows = (c)->rows, .n_heads = (c)->s.heads, .head_dim = (c)->s.p, .state_size = (c)->s.n,      \
    .act_dtype = (c)->s.act_dtype, .state_dtype = (c)->s.state_dtype, .form = (c)->form,           \
    .defect = (c)->defect, .y = (c)->y, .pool = (c)->device_pool

/* The members of a verify's arguments that are the same for all kinds. */
#define DRAFTS(c) .max_draft = MAX_DRAFT, .parent_stride = MAX_DRAFT, .parent = (c)->parent

/* Turns arguments of a verify into those of a decode step. */
#define BECOME_STEP(args, decode)                                                                  \
    ((args).rows = (decode)->rows, (args).pool = (decode)->pool, (args).y = (decode)->y)

static inline void open_rows(struct verify_case *c) {
    int32_t steps[N_TOKENS + 1];
    for (int32_t i = 0; i <= N_TOKENS; i++) {
        steps[i] = i;
    }
    for (int32_t r = 0; r < N_ROWS; r++) {
        c->qsl[r + 1] = c->qsl[r] + lens[r];
    }
    c->steps = rig_device(&c->rig, steps, sizeof steps);
    c->device_slots = rig_device(&c->rig, slots, sizeof slots);
    c->parent = c->is_tree ? rig_device(&c->rig, trees, sizeof trees) : NULL;
    c->rows = (struct hb_k_rows){.n_rows = N_ROWS,
                                 .qsl = rig_device(&c->rig, c->qsl, sizeof c->qsl),
                                 .slots = c->device_slots};
}

static inline void open_pool(struct verify_case *c, size_t entry, int32_t dtype, size_t width) {
    c->entry = entry;
    c->dtype = dtype;
    c->width = width;
    c->pool = array_random(&c->rig, (N_SLOTS + 1) * entry, dtype, 1.0f);
    c->device_pool = array_device(&c->rig, &c->pool);
    c->entries = rig_device(&c->rig, NULL, N_ROWS * MAX_DRAFT * entry * size_of(dtype));
    c->y = rig_device(&c->rig, NULL, N_TOKENS * width * size_of(c->s.act_dtype));
}

static inline void *random_floats(struct verify_case *c, size_t n, float low, float high) {
    struct array a = array_make(n, HB_FP32);
    for (size_t i = 0; i < n; i++) {
        array_set(&a, i, rig_value(&c->rig, low, high));
    }
    void *device = array_device(&c->rig, &a);
    array_free(&a);
    return device;
}

static inline void *random_acts(struct verify_case *c, size_t n) {
    struct array a = array_random(&c->rig, n, c->s.act_dtype, 1.0f);
    void *device = array_device(&c->rig, &a);
    array_free(&a);
    return device;
}

/* Nodes from the root to t; returns how many. */
static inline int32_t path_to(const struct verify_case *c, int32_t row, int32_t t, int32_t *path) {
    int32_t back[MAX_DRAFT];
    int32_t n = 0;
    for (int32_t node = t; node >= 0; n++) {
        back[n] = node;
        node = node == 0 ? -1 : c->is_tree ? trees[row][node] : node - 1;
    }
    for (int32_t i = 0; i < n; i++) {
        path[i] = back[n - 1 - i];
    }
    return n;
}

/* Node t of a row against decode steps: a chain never rounds the running state, so its reference
 * pool is fp32 and rounded at the end; a tree reads the rounded entry back, as decode does. */
static inline void check_node(struct verify_case *c, const struct verify_kind *kind, int32_t row,
                              int32_t t, const struct array *y, const struct array *entries) {
    const int32_t dtype = c->is_tree ? c->dtype : HB_FP32;
    struct array before = array_make(c->pool.n, dtype);
    for (size_t i = 0; i < c->pool.n; i++) {
        array_set(&before, i, (float)c->pool.wide[i]);
    }
    struct array *start = c->keeps_type ? &c->pool : &before;
    void *pool = NULL;
    void *out = NULL;
    assert_int_equal(c->rig.k->mem_alloc(start->n * size_of(start->dtype), &pool), HB_OK);
    assert_int_equal(c->rig.k->to_device(pool, start->bytes, start->n * size_of(start->dtype)),
                     HB_OK);
    assert_int_equal(c->rig.k->mem_alloc(y->n * size_of(y->dtype), &out), HB_OK);
    int32_t path[MAX_DRAFT];
    const int32_t n = path_to(c, row, t, path);
    for (int32_t i = 0; i < n; i++) {
        const struct decode decode = {.rows = {.n_rows = 1,
                                               .qsl = c->steps + c->qsl[row] + path[i],
                                               .slots = c->device_slots + row},
                                      .pool = pool,
                                      .state_dtype = start->dtype,
                                      .y = out};
        assert_int_equal(kind->step(c, &decode), HB_OK);
    }
    struct array got_y = array_read(&c->rig, out, y->n, y->dtype);
    struct array got_pool = array_read(&c->rig, pool, start->n, start->dtype);
    const size_t token = (size_t)(c->qsl[row] + t) * c->width;
    for (size_t i = 0; i < c->width; i++) {
        assert_true(y->wide[token + i] == got_y.wide[token + i]);
    }
    struct array want = array_make(c->entry, c->dtype);
    const size_t entry = (size_t)(row * MAX_DRAFT + t) * c->entry;
    for (size_t i = 0; i < c->entry; i++) {
        array_set(&want, i, (float)got_pool.wide[(size_t)slots[row] * c->entry + i]);
        assert_true(want.wide[i] == entries->wide[entry + i]);
    }
    c->rig.k->mem_free(pool);
    c->rig.k->mem_free(out);
    array_free(&before);
    array_free(&got_y);
    array_free(&got_pool);
    array_free(&want);
}

/* All nodes, then what must not have changed. */
static inline void check_all(struct verify_case *c, const struct verify_kind *kind) {
    const size_t n = N_ROWS * MAX_DRAFT * c->entry;
    struct array y = array_read(&c->rig, c->y, N_TOKENS * c->width, c->s.act_dtype);
    struct array entries = array_read(&c->rig, c->entries, n, c->dtype);
    struct array after = array_read(&c->rig, c->device_pool, c->pool.n, c->dtype);
    for (int32_t r = 0; r < N_ROWS; r++) {
        for (int32_t t = 0; t < MAX_DRAFT; t++) {
            if (slots[r] >= 0 && t < lens[r]) {
                check_node(c, kind, r, t, &y, &entries);
                continue;
            }
            for (size_t i = 0; i < c->entry; i++) { /* poison */
                assert_true(isnan(entries.wide[(size_t)(r * MAX_DRAFT + t) * c->entry + i]));
            }
        }
    }
    for (size_t i = (size_t)c->qsl[1] * c->width; i < (size_t)c->qsl[2] * c->width; i++) {
        assert_true(isnan(y.wide[i]));
    }
    assert_true(array_same(&c->pool, &after));
    array_free(&y);
    array_free(&entries);
    array_free(&after);
}

/* Case number -> table, order, tree, form; the rest is the shape's number. */
enum { CASES_PER_SHAPE = 2 * 3 * 2 * 2 };

static inline int open_case(struct verify_case *c, int i, const struct shape *shapes) {
    memset(c, 0, sizeof *c);
    if (!rig_open(&c->rig, i % 2, (uint32_t)i)) {
        return 0;
    }
    c->rig.k->set_order(i / 2 % 3, i / 2 % 3, 7);
    c->is_tree = i / 6 % 2;
    c->form = i / 12 % 2;
    c->s = shapes[i / CASES_PER_SHAPE];
    c->layout = i / CASES_PER_SHAPE % 2;
    open_rows(c);
    return 1;
}

static inline void close_case(struct verify_case *c) {
    array_free(&c->pool);
    rig_close(&c->rig);
}

static inline void nodes_equal_decode_steps(const struct verify_kind *kind,
                                            const struct shape *shapes, int n_cases) {
    for (int i = 0; i < n_cases; i++) {
        struct verify_case c;
        if (!open_case(&c, i, shapes)) {
            continue;
        }
        kind->make(&c);
        assert_int_equal(kind->verify(&c), HB_OK);
        check_all(&c, kind);
        close_case(&c);
    }
}

/* Whether a defect shows in an output or an entry, in chains and trees of both forms of a shape: in
 * all of them, or in none. */
static inline int shows_in_verify(const struct verify_kind *kind, const struct shape *shapes,
                                  int shape, int32_t defect) {
    enum { N_RUNS = CASES_PER_SHAPE / 6 };
    int n_shown = 0;
    for (int i = 0; i < N_RUNS; i++) {
        struct array out[2], entries[2];
        for (int k = 0; k < 2; k++) {
            struct verify_case c;
            assert_true(open_case(&c, shape * CASES_PER_SHAPE + 6 * i, shapes));
            c.defect = k == 0 ? 0 : defect;
            kind->make(&c);
            assert_int_equal(kind->verify(&c), HB_OK);
            out[k] = array_read(&c.rig, c.y, N_TOKENS * c.width, c.s.act_dtype);
            entries[k] = array_read(&c.rig, c.entries, N_ROWS * MAX_DRAFT * c.entry, c.dtype);
            close_case(&c);
        }
        n_shown += !array_same(&out[0], &out[1]) || !array_same(&entries[0], &entries[1]);
        for (int k = 0; k < 2; k++) {
            array_free(&out[k]);
            array_free(&entries[k]);
        }
    }
    assert_true(n_shown == 0 || n_shown == N_RUNS);
    return n_shown > 0;
}

/* A chain given by parents is the chain, bit for bit: with fp32 states, as the first shape has. */
static inline void chain_as_a_tree_is_the_chain(const struct verify_kind *kind,
                                                const struct shape *shapes) {
    const int32_t chain[N_ROWS][MAX_DRAFT] = {
        {0, 0, 1, 2, 3, 4}, {0, 0, 1, 2, 3, 4}, {0, 0, 1, 2, 3, 4}};
    for (int form = 0; form < HB_N_FORMS; form++) {
        struct verify_case c;
        struct array out[2], entries[2];
        assert_true(open_case(&c, CASES_PER_SHAPE / HB_N_FORMS * form, shapes));
        kind->make(&c);
        for (int i = 0; i < 2; i++) {
            c.parent = i == 1 ? rig_device(&c.rig, chain, sizeof chain) : NULL;
            assert_int_equal(kind->verify(&c), HB_OK);
            out[i] = array_read(&c.rig, c.y, N_TOKENS * c.width, c.s.act_dtype);
            entries[i] = array_read(&c.rig, c.entries, N_ROWS * MAX_DRAFT * c.entry, c.dtype);
        }
        assert_true(array_same(&out[0], &out[1]) && array_same(&entries[0], &entries[1]));
        for (int i = 0; i < 2; i++) {
            array_free(&out[i]);
            array_free(&entries[i]);
        }
        close_case(&c);
    }
}

#endif
