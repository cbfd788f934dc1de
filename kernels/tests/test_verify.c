/* SPDX-License-Identifier: Apache-2.0
 * Draft verification (speculative.md section 1): the output and the stored entry of each node equal
 * decode steps along its path bit for bit, in both forms; the pools, padding rows and unused
 * entries keep their bytes. */
#include "kernels/tests/rig.h"

enum { N_ROWS = 3, N_SLOTS = 5, MAX_DRAFT = 6, N_TOKENS = 13 };

struct shape {
    int32_t heads, p, n, groups, width, act_dtype, state_dtype;
};

static const struct shape shapes[] = {
    {4, 2, 3, 2, 4, HB_FP32, HB_FP32},   {2, 10, 35, 1, 3, HB_FP32, HB_FP32},
    {2, 9, 40, 2, 2, HB_BF16, HB_FP32},  {1, 3, 70, 1, 4, HB_BF16, HB_BF16},
    {2, 8, 256, 1, 4, HB_FP32, HB_BF16},
};

enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static const int32_t lens[N_ROWS] = {5, 5, 3};
static const int32_t slots[N_ROWS] = {3, -1, 1};
static const int32_t trees[N_ROWS][MAX_DRAFT] = {
    {0, 0, 0, 1, 2, 77}, {77, 77, 77, 77, 77, 77}, {0, 0, 1, 77, 77, 77}};

/* One verify of conv or SSM, and what decode steps need. */
struct verify_case {
    struct rig rig;
    struct shape s;
    int32_t is_tree, form, defect;
    int32_t qsl[N_ROWS + 1];
    const int32_t *steps; /* device 0, 1, ..: any token as a row of its own */
    const int32_t *device_slots, *parent;
    struct hb_k_rows rows;
    size_t entry;      /* elements of a slot */
    int32_t dtype;     /* of the pool */
    struct array pool; /* before */
    void *device_pool, *entries, *y;
    size_t width; /* elements of y per token */
};

static size_t dim_of(const struct shape *s) {
    return (size_t)s->heads * (size_t)s->p + 2 * (size_t)s->groups * (size_t)s->n;
}

static void open_rows(struct verify_case *c) {
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

static void open_pool(struct verify_case *c, size_t entry, int32_t dtype, size_t width) {
    c->entry = entry;
    c->dtype = dtype;
    c->width = width;
    c->pool = array_random(&c->rig, (N_SLOTS + 1) * entry, dtype, 1.0f);
    c->device_pool = array_device(&c->rig, &c->pool);
    c->entries = rig_device(&c->rig, NULL, N_ROWS * MAX_DRAFT * entry * size_of(dtype));
    c->y = rig_device(&c->rig, NULL, N_TOKENS * width * size_of(c->s.act_dtype));
}

static void *random_floats(struct verify_case *c, size_t n, float low, float high) {
    struct array a = array_make(n, HB_FP32);
    for (size_t i = 0; i < n; i++) {
        array_set(&a, i, rig_value(&c->rig, low, high));
    }
    void *device = array_device(&c->rig, &a);
    array_free(&a);
    return device;
}

static void *random_acts(struct verify_case *c, size_t n) {
    struct array a = array_random(&c->rig, n, c->s.act_dtype, 1.0f);
    void *device = array_device(&c->rig, &a);
    array_free(&a);
    return device;
}

static struct hb_k_conv conv_args(struct verify_case *c) {
    const size_t dim = dim_of(&c->s);
    open_pool(c, dim * (size_t)(c->s.width - 1), c->s.act_dtype, dim);
    return (struct hb_k_conv){.rows = c->rows,
                              .dim = (int32_t)dim,
                              .width = c->s.width,
                              .act_dtype = c->s.act_dtype,
                              .form = c->form,
                              .defect = c->defect,
                              .x = random_acts(c, N_TOKENS * dim),
                              .weight = random_floats(c, dim * (size_t)c->s.width, -1.0f, 1.0f),
                              .bias = random_floats(c, dim, -1.0f, 1.0f),
                              .y = c->y,
                              .pool = c->device_pool};
}

static struct hb_k_ssm ssm_args(struct verify_case *c) {
    const struct shape *s = &c->s;
    const size_t heads = (size_t)s->heads;
    open_pool(c, heads * (size_t)(s->p * s->n), s->state_dtype, heads * (size_t)s->p);
    return (struct hb_k_ssm){.rows = c->rows,
                             .n_heads = s->heads,
                             .head_dim = s->p,
                             .state_size = s->n,
                             .n_groups = s->groups,
                             .chunk_size = 4,
                             .act_dtype = s->act_dtype,
                             .state_dtype = s->state_dtype,
                             .dt_softplus = 1,
                             .dt_clamp = HB_DT_CLAMP_LIMIT,
                             .dt_lo = 0.1f,
                             .dt_hi = 1.0f,
                             .form = c->form,
                             .defect = c->defect,
                             .xbc = random_acts(c, N_TOKENS * dim_of(s)),
                             .dt = random_acts(c, N_TOKENS * heads),
                             .a = random_floats(c, heads, -3.0f, -0.1f),
                             .dt_bias = random_floats(c, heads, -1.0f, 1.0f),
                             .d = random_floats(c, heads, -1.0f, 1.0f),
                             .y = c->y,
                             .pool = c->device_pool};
}

/* Nodes from the root to t; returns how many. */
static int32_t path_to(const struct verify_case *c, int32_t row, int32_t t, int32_t *path) {
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

/* The kernel of one decode step of a row: the token as a row of its own. */
typedef int32_t (*step_fn)(struct verify_case *c, const void *args, const struct hb_k_rows *rows,
                           void *pool, int32_t pool_dtype, void *y);

static int32_t conv_step(struct verify_case *c, const void *args, const struct hb_k_rows *rows,
                         void *pool, int32_t pool_dtype, void *y) {
    struct hb_k_conv step = *(const struct hb_k_conv *)args;
    (void)pool_dtype;
    step.rows = *rows;
    step.pool = pool;
    step.y = y;
    return c->rig.k->conv_update(&step);
}

static int32_t ssm_step(struct verify_case *c, const void *args, const struct hb_k_rows *rows,
                        void *pool, int32_t pool_dtype, void *y) {
    struct hb_k_ssm step = *(const struct hb_k_ssm *)args;
    step.rows = *rows;
    step.pool = pool;
    step.state_dtype = pool_dtype;
    step.y = y;
    return c->rig.k->ssm_update(&step);
}

/* Node t of a row against decode steps: a chain never rounds the running state, so its reference
 * pool is fp32 and rounded at the end; a tree reads the rounded entry back, as decode does. */
static void check_node(struct verify_case *c, step_fn step, const void *args, int32_t row,
                       int32_t t, const struct array *y, const struct array *entries) {
    const int32_t dtype = c->is_tree ? c->dtype : HB_FP32;
    struct array before = array_make(c->pool.n, dtype);
    for (size_t i = 0; i < c->pool.n; i++) {
        array_set(&before, i, (float)c->pool.wide[i]);
    }
    const int is_conv = step == conv_step; /* its pool has the activation type */
    struct array *start = is_conv ? &c->pool : &before;
    void *pool = NULL;
    void *out = NULL;
    assert_int_equal(c->rig.k->mem_alloc(start->n * size_of(start->dtype), &pool), HB_OK);
    assert_int_equal(c->rig.k->to_device(pool, start->bytes, start->n * size_of(start->dtype)),
                     HB_OK);
    assert_int_equal(c->rig.k->mem_alloc(y->n * size_of(y->dtype), &out), HB_OK);
    int32_t path[MAX_DRAFT];
    const int32_t n = path_to(c, row, t, path);
    for (int32_t i = 0; i < n; i++) {
        const struct hb_k_rows rows = {
            .n_rows = 1, .qsl = c->steps + c->qsl[row] + path[i], .slots = c->device_slots + row};
        assert_int_equal(step(c, args, &rows, pool, start->dtype, out), HB_OK);
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
static void check_all(struct verify_case *c, step_fn step, const void *args) {
    const size_t n = N_ROWS * MAX_DRAFT * c->entry;
    struct array y = array_read(&c->rig, c->y, N_TOKENS * c->width, c->s.act_dtype);
    struct array entries = array_read(&c->rig, c->entries, n, c->dtype);
    struct array after = array_read(&c->rig, c->device_pool, c->pool.n, c->dtype);
    for (int32_t r = 0; r < N_ROWS; r++) {
        for (int32_t t = 0; t < MAX_DRAFT; t++) {
            if (slots[r] >= 0 && t < lens[r]) {
                check_node(c, step, args, r, t, &y, &entries);
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

/* Case number -> table, order, tree, form, shape. */
enum { N_CASES = 2 * 3 * 2 * 2 * N_SHAPES };

static int open_case(struct verify_case *c, int i) {
    memset(c, 0, sizeof *c);
    if (!rig_open(&c->rig, i % 2, (uint32_t)i)) {
        return 0;
    }
    c->rig.k->set_order(i / 2 % 3, i / 2 % 3, 7);
    c->is_tree = i / 6 % 2;
    c->form = i / 12 % 2;
    c->s = shapes[i / 24];
    open_rows(c);
    return 1;
}

static void close_case(struct verify_case *c) {
    array_free(&c->pool);
    rig_close(&c->rig);
}

static void conv_nodes_equal_decode_steps_along_their_path(void **state) {
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        struct verify_case c;
        if (!open_case(&c, i)) {
            continue;
        }
        const struct hb_k_conv conv = conv_args(&c);
        const struct hb_k_conv_verify args = {
            .conv = conv, .max_draft = MAX_DRAFT, .parent_stride = MAX_DRAFT, .parent = c.parent, .windows = c.entries};
        assert_int_equal(c.rig.k->conv_verify(&args), HB_OK);
        check_all(&c, conv_step, &conv);
        close_case(&c);
    }
}

static void ssm_nodes_equal_decode_steps_along_their_path(void **state) {
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        struct verify_case c;
        if (!open_case(&c, i)) {
            continue;
        }
        const struct hb_k_ssm ssm = ssm_args(&c);
        const struct hb_k_ssm_verify args = {
            .ssm = ssm, .max_draft = MAX_DRAFT, .parent_stride = MAX_DRAFT, .parent = c.parent, .states = c.entries};
        assert_int_equal(c.rig.k->ssm_verify(&args), HB_OK);
        check_all(&c, ssm_step, &ssm);
        close_case(&c);
    }
}

static void a_chain_given_as_a_tree_is_the_chain_with_fp32_states(void **state) {
    (void)state;
    for (int form = 0; form < HB_N_FORMS; form++) {
        struct verify_case c;
        struct array out[2], entries[2];
        assert_true(open_case(&c, 12 * form));
        const struct hb_k_ssm ssm = ssm_args(&c);
        const int32_t chain[N_ROWS][MAX_DRAFT] = {
            {0, 0, 1, 2, 3, 4}, {0, 0, 1, 2, 3, 4}, {0, 0, 1, 2, 3, 4}};
        struct hb_k_ssm_verify args = {.ssm = ssm, .max_draft = MAX_DRAFT, .states = c.entries};
        for (int i = 0; i < 2; i++) {
            args.parent = i == 1 ? rig_device(&c.rig, chain, sizeof chain) : NULL;
            assert_int_equal(c.rig.k->ssm_verify(&args), HB_OK);
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

static void stored_window_defect_writes_live_slots_only(void **state) {
    (void)state;
    struct verify_case c;
    assert_true(open_case(&c, 0));
    c.defect = HB_DEFECT_VERIFY_CONV_STORED;
    const struct hb_k_conv conv = conv_args(&c);
    const struct hb_k_conv_verify args = {
        .conv = conv, .max_draft = MAX_DRAFT, .windows = c.entries};
    assert_int_equal(c.rig.k->conv_verify(&args), HB_OK);
    struct array after = array_read(&c.rig, c.device_pool, c.pool.n, c.dtype);
    for (size_t s = 0; s <= N_SLOTS; s++) {
        const int same = memcmp((float *)after.bytes + s * c.entry,
                                (float *)c.pool.bytes + s * c.entry, c.entry * sizeof(float)) == 0;
        const int is_live = s == 1 || s == 3;
        assert_int_equal(same, !(is_live && HB_DEFECT(c.defect, VERIFY_CONV_STORED)));
    }
    array_free(&after);
    close_case(&c);
}

static void empty_and_too_wide_verifies(void **state) {
    (void)state;
    struct rig rig;
    assert_true(rig_open(&rig, 0, 1));
    const uint64_t before = rig.k->launches();
    const struct hb_k_conv_verify conv = {.conv = {.dim = 4, .width = 2}};
    struct hb_k_ssm_verify ssm = {
        .ssm = {.n_heads = 1, .head_dim = 1, .state_size = 1, .n_groups = 1, .chunk_size = 1}};
    assert_int_equal(rig.k->conv_verify(&conv), HB_OK);
    assert_int_equal(rig.k->ssm_verify(&ssm), HB_OK);
    ssm.ssm.rows.n_rows = 1;
    ssm.ssm.state_size = HB_MAX_STATE_SIZE + 1;
    for (ssm.ssm.form = 0; ssm.ssm.form < HB_N_FORMS; ssm.ssm.form++) {
        assert_int_equal(rig.k->ssm_verify(&ssm), HB_ERR_DEVICE);
        assert_non_null(strstr(rig.k->error_text(), "state_size 257 is larger than 256"));
    }
    assert_true(rig.k->launches() == before);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_nodes_equal_decode_steps_along_their_path),
        cmocka_unit_test(ssm_nodes_equal_decode_steps_along_their_path),
        cmocka_unit_test(a_chain_given_as_a_tree_is_the_chain_with_fp32_states),
        cmocka_unit_test(stored_window_defect_writes_live_slots_only),
        cmocka_unit_test(empty_and_too_wide_verifies),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
