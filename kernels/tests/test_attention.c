/* SPDX-License-Identifier: Apache-2.0
 * Attention over the cache against double arithmetic (bound: tolerance.md 3.5); keys that must not
 * be read. */
#include "kernels/tests/rig.h"

enum { N_ROWS = 4, N_REQUESTS = 6, MAX_CONTEXT = 40, N_KV = 200 };

struct shape {
    int32_t n_q, n_kv, d, act_dtype;
};

struct variant {
    int32_t window, window_rule;
    float softcap;
};

static const struct variant variants[] = {
    {0, 0, 0.0f},
    {1, HB_WINDOW_EXCLUSIVE, 0.0f},
    {4, HB_WINDOW_INCLUSIVE, 0.0f},
    {0, HB_WINDOW_INCLUSIVE, 0.5f},
    {6, HB_WINDOW_EXCLUSIVE, 2.0f},
    {33, HB_WINDOW_EXCLUSIVE, 0.0f}, /* wider than every request */
    {INT32_MAX, HB_WINDOW_INCLUSIVE, 0.0f},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

struct attention_case {
    struct rig rig;
    struct shape s;
    struct hb_k_attention args;
    int32_t qsl[N_ROWS + 1], slots[N_ROWS], reqs[N_ROWS], seq_lens[N_ROWS];
    int32_t table[N_REQUESTS * MAX_CONTEXT];
    struct array q, k, v;
};

static void make_case(struct attention_case *c, const struct shape *shape) {
    static const int32_t lens[N_ROWS] = {5, 1, 2, 17};
    static const int32_t seq_lens[N_ROWS] = {5, 23, 9, 33};
    static const int32_t slots[N_ROWS] = {2, 1, -1, 3};
    static const int32_t reqs[N_ROWS] = {4, 0, 5, 2};
    struct rig *rig = &c->rig;
    c->s = *shape;
    for (int r = 0; r < N_ROWS; r++) {
        c->qsl[r + 1] = c->qsl[r] + lens[r];
        c->slots[r] = slots[r];
        c->reqs[r] = reqs[r];
        c->seq_lens[r] = seq_lens[r];
    }
    /* a permutation of the token slots; entries past a row's length lead to slots that hold NaN */
    for (int32_t i = 0; i < N_REQUESTS * MAX_CONTEXT; i++) {
        c->table[i] = N_KV - 1;
    }
    int32_t next = 1;
    for (int r = 0; r < N_ROWS; r++) {
        for (int32_t j = 0; j < seq_lens[r]; j++) {
            c->table[reqs[r] * MAX_CONTEXT + j] = 1 + next++ * 7 % (N_KV - 3);
        }
    }
    const size_t row = (size_t)(shape->n_kv * shape->d);
    const size_t n_q = (size_t)(c->qsl[N_ROWS] * shape->n_q * shape->d);
    c->q = array_random(rig, n_q, shape->act_dtype, 1.0f);
    c->k = array_random(rig, N_KV * row, shape->act_dtype, 1.0f);
    c->v = array_random(rig, N_KV * row, shape->act_dtype, 1.0f);
    for (size_t i = 0; i < row; i++) {
        array_set(&c->k, (N_KV - 1) * row + i, NAN);
        array_set(&c->v, (N_KV - 1) * row + i, INFINITY);
    }
    c->args = (struct hb_k_attention){.n_q_heads = shape->n_q,
                                      .n_kv_heads = shape->n_kv,
                                      .attn_dim = shape->d,
                                      .act_dtype = shape->act_dtype,
                                      .sm_scale = 0.7f,
                                      .max_context = MAX_CONTEXT};
    c->args.rows.n_rows = N_ROWS;
    c->args.rows.qsl = rig_device(rig, c->qsl, sizeof c->qsl);
    c->args.rows.slots = rig_device(rig, c->slots, sizeof c->slots);
    c->args.reqs = rig_device(rig, c->reqs, sizeof c->reqs);
    c->args.seq_lens = rig_device(rig, c->seq_lens, sizeof c->seq_lens);
    c->args.req_to_token = rig_device(rig, c->table, sizeof c->table);
    c->args.q = array_device(rig, &c->q);
    c->args.k_buf = array_device(rig, &c->k);
    c->args.v_buf = array_device(rig, &c->v);
    c->args.out = rig_device(rig, NULL, n_q * size_of(shape->act_dtype));
}

static void drop_case(struct attention_case *c) {
    array_free(&c->q);
    array_free(&c->k);
    array_free(&c->v);
    rig_close(&c->rig);
}

static void set_variant(struct attention_case *c, const struct variant *v) {
    c->args.window = v->window;
    c->args.window_rule = v->window_rule;
    c->args.softcap = v->softcap;
}

/* ops-attention.md 3: p - j < w, or p - j <= w. */
static int is_seen(const struct attention_case *c, int32_t position, int32_t j) {
    const int64_t distance = (int64_t)position - j;
    const int64_t limit =
        (int64_t)c->args.window + (c->args.window_rule == HB_WINDOW_INCLUSIVE ? 1 : 0);
    return c->args.window == 0 || distance < limit;
}

/* Scores of one query and their errors; returns the largest of those that are seen. */
static double scores_of(const struct attention_case *c, int r, int32_t t, int32_t head, double *l,
                        double *dl) {
    const struct shape *s = &c->s;
    const size_t q = (size_t)(((c->qsl[r] + t) * s->n_q + head) * s->d);
    const int32_t last = c->seq_lens[r] - (c->qsl[r + 1] - c->qsl[r]) + t;
    double largest = -INFINITY;
    for (int32_t j = 0; j <= last; j++) {
        const int32_t slot = c->table[c->reqs[r] * MAX_CONTEXT + j];
        const size_t key = (size_t)((slot * s->n_kv + head / (s->n_q / s->n_kv)) * s->d);
        double mag = 0;
        l[j] = 0;
        for (size_t i = 0; i < (size_t)s->d; i++) {
            l[j] += c->q.wide[q + i] * c->k.wide[key + i];
            mag += fabs(c->q.wide[q + i] * c->k.wide[key + i]);
        }
        l[j] *= (double)c->args.sm_scale;
        dl[j] = (double)c->args.sm_scale * gam(s->d + 2, U32) * mag + 2 * U32 * fabs(l[j]);
        if (c->args.softcap > 0.0f) {
            const double cap = (double)c->args.softcap;
            const double low = fabs(l[j]) > dl[j] ? fabs(l[j]) - dl[j] : 0;
            const double slope = 1 - tanh(low / cap) * tanh(low / cap);
            l[j] = cap * tanh(l[j] / cap);
            dl[j] = dl[j] * slope + 6 * U32 * fabs(l[j]);
        }
        largest = is_seen(c, last, j) && l[j] > largest ? l[j] : largest;
    }
    return largest;
}

static int query_ok(const struct attention_case *c, int r, int32_t t, int32_t head,
                    const double *out) {
    const struct shape *s = &c->s;
    const int32_t last = c->seq_lens[r] - (c->qsl[r + 1] - c->qsl[r]) + t;
    double l[MAX_CONTEXT];
    double dl[MAX_CONTEXT];
    const double m = scores_of(c, r, t, head, l, dl);
    double total = 0;
    for (int32_t j = 0; j <= last; j++) {
        total += is_seen(c, last, j) ? exp(l[j] - m) : 0;
    }
    for (int32_t i = 0; i < s->d; i++) {
        double o = 0;
        double mag = 0;
        double rho = 0;
        double spread = 0;
        for (int pass = 0; pass < 2; pass++) {
            for (int32_t j = 0; j <= last; j++) {
                if (!is_seen(c, last, j)) {
                    continue;
                }
                const int32_t slot = c->table[c->reqs[r] * MAX_CONTEXT + j];
                const double v = c->v.wide[(slot * s->n_kv + head / (s->n_q / s->n_kv)) * s->d + i];
                const double w = exp(l[j] - m) / total;
                const double rho_j =
                    expm1(dl[j] + 2 * U32 * fabs(l[j] - m) + 2 * U32 * fabs(m)) + E_EXP;
                o += pass ? 0 : w * v;
                mag += pass ? 0 : w * fabs(v);
                rho += pass ? w * rho_j : 0;
                spread += pass ? w * rho_j * fabs(v - o) : 0;
            }
        }
        const double k = gam(2 + last + 1 + 8, U32) + E_EXP;
        const double e = (1 + 2 * rho) * spread + k * mag + k * fabs(o);
        if (!is_near(out[i], o, e + u_of(s->act_dtype) * (fabs(o) + e) + floor_of(s->act_dtype))) {
            return 0;
        }
    }
    return 1;
}

static const struct shape shapes[] = {
    {4, 2, 8, HB_FP32},
    {3, 1, 5, HB_BF16},
    {2, 2, 64, HB_FP32},
    {2, 1, 130, HB_BF16},
    {4, 1, 16, HB_FP16},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* Queries whose output is outside of its bound; a padding row's must stay as it was: poisoned. */
static int count_misses(int table, const struct shape *shape, const struct variant *variant,
                        int32_t defect) {
    struct attention_case c = {0};
    int misses = 0;
    if (!rig_open(&c.rig, table, (uint32_t)(2 * (shape - shapes) + table))) {
        return 0;
    }
    make_case(&c, shape);
    set_variant(&c, variant);
    c.args.defect = defect;
    assert_int_equal(c.rig.k->attention(&c.args), HB_OK);
    struct array out = array_read(&c.rig, c.args.out, c.q.n, c.s.act_dtype);
    for (int r = 0; r < N_ROWS; r++) {
        for (int32_t k = 0; k < (c.qsl[r + 1] - c.qsl[r]) * c.s.n_q; k++) {
            const double *one = out.wide + (c.qsl[r] * c.s.n_q + k) * c.s.d;
            misses += c.slots[r] < 0 ? !isnan(one[0])
                                     : !query_ok(&c, r, k / c.s.n_q, k % c.s.n_q, one);
        }
    }
    array_free(&out);
    drop_case(&c);
    return misses;
}

static void attention_matches_double_arithmetic(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES; i++) {
        for (int v = 0; v < N_VARIANTS; v++) {
            assert_int_equal(count_misses(i & 1, &shapes[i / 2], &variants[v], 0), 0);
        }
    }
}

/* The key before the window, and those before it, may hold anything. */
static void keys_before_the_window_are_not_read(void **state) {
    (void)state;
    for (int v = 1; v < N_VARIANTS; v++) {
        struct array out[2];
        if (variants[v].window == 0 || variants[v].window > 20) {
            continue;
        }
        for (int i = 0; i < 2; i++) {
            struct attention_case c = {0};
            assert_true(rig_open(&c.rig, 0, 5));
            make_case(&c, &shapes[0]);
            set_variant(&c, &variants[v]);
            const size_t row = (size_t)(c.s.n_kv * c.s.d);
            for (int32_t j = 0; i == 1 && j < c.seq_lens[1]; j++) {
                if (!is_seen(&c, c.seq_lens[1] - 1, j)) {
                    const size_t slot = (size_t)c.table[c.reqs[1] * MAX_CONTEXT + j];
                    memset((char *)c.k.bytes + slot * row * 4, 0xff, row * 4);
                    memset((char *)c.v.bytes + slot * row * 4, 0xff, row * 4);
                }
            }
            rig_rewrite(&c.rig, c.args.k_buf, c.k.bytes, c.k.n * 4);
            rig_rewrite(&c.rig, c.args.v_buf, c.v.bytes, c.v.n * 4);
            assert_int_equal(c.rig.k->attention(&c.args), HB_OK);
            out[i] = array_read(&c.rig, c.args.out, c.q.n, HB_FP32);
            assert_true(isfinite(out[i].wide[c.qsl[1] * c.s.n_q * c.s.d]));
            drop_case(&c);
        }
        assert_true(array_same(&out[0], &out[1]));
        array_free(&out[0]);
        array_free(&out[1]);
    }
}

static void planted_defects_are_noticed(void **state) {
    (void)state;
#ifndef HB_DEFECTS
    skip();
#else
    for (int v = 0; v < N_VARIANTS; v++) {
        const struct variant *x = &variants[v];
        const int is_capped = x->softcap > 0.0f;
        const int is_short = x->window > 0 && x->window < 23;
        assert_int_equal(count_misses(0, &shapes[0], x, HB_DEFECT_CAP_AFTER_MASK) > 0, is_capped);
        assert_int_equal(count_misses(0, &shapes[0], x, HB_DEFECT_WINDOW_OFF_BY_ONE) > 0,
                         is_short && x->window_rule == HB_WINDOW_EXCLUSIVE);
    }
    for (int i = 0; i < N_SHAPES; i++) {
        const int is_shared = shapes[i].n_kv > 1 && shapes[i].n_q > shapes[i].n_kv;
        assert_int_equal(count_misses(0, &shapes[i], &variants[0], HB_DEFECT_ATTN_GQA_MODULO) > 0,
                         is_shared);
    }
#endif
}

static void no_key_gives_zero(void **state) {
    (void)state;
    struct attention_case c = {0};
    assert_true(rig_open(&c.rig, 0, 3));
    make_case(&c, &shapes[0]);
    const int32_t seq_lens[N_ROWS] = {
        4, 0, 0, 16}; /* one less than the row's tokens: the first has no key */
    rig_rewrite(&c.rig, c.args.seq_lens, seq_lens, sizeof seq_lens);
    assert_int_equal(c.rig.k->attention(&c.args), HB_OK);
    struct array out = array_read(&c.rig, c.args.out, c.q.n, HB_FP32);
    for (size_t i = 0; i < (size_t)(c.s.n_q * c.s.d); i++) {
        assert_true(out.wide[i] == 0.0);
    }
    assert_true(isfinite(out.wide[c.s.n_q * c.s.d]));
    array_free(&out);
    drop_case(&c);
}

static void order_of_token_slots_changes_no_bit(void **state) {
    (void)state;
    struct array out[2];
    for (int i = 0; i < 2; i++) {
        struct attention_case c = {0};
        assert_true(rig_open(&c.rig, 0, 8));
        c.rig.k->set_order(i ? HB_ORDER_RANDOM : HB_ORDER_ASCENDING,
                           i ? HB_ORDER_DESCENDING : HB_ORDER_ASCENDING, 4);
        make_case(&c, &shapes[0]);
        if (i == 1) { /* slot s becomes slot N_KV - 1 - s */
            const size_t row = (size_t)(c.s.n_kv * c.s.d);
            float *k = calloc(c.k.n, 4);
            float *v = calloc(c.v.n, 4);
            assert_true(k && v);
            for (size_t s = 0; s < N_KV; s++) {
                memcpy(k + s * row, (float *)c.k.bytes + (N_KV - 1 - s) * row, row * 4);
                memcpy(v + s * row, (float *)c.v.bytes + (N_KV - 1 - s) * row, row * 4);
            }
            for (int32_t j = 0; j < N_REQUESTS * MAX_CONTEXT; j++) {
                c.table[j] = N_KV - 1 - c.table[j];
            }
            c.args.k_buf = rig_device(&c.rig, k, c.k.n * 4);
            c.args.v_buf = rig_device(&c.rig, v, c.v.n * 4);
            c.args.req_to_token = rig_device(&c.rig, c.table, sizeof c.table);
            free(k);
            free(v);
        }
        assert_int_equal(c.rig.k->attention(&c.args), HB_OK);
        out[i] = array_read(&c.rig, c.args.out, c.q.n, HB_FP32);
        drop_case(&c);
    }
    assert_true(array_same(&out[0], &out[1]));
    array_free(&out[0]);
    array_free(&out[1]);
}

enum { TREE_ROW = 3, TREE_LEN = 17, TREE_FIRST = 33 - TREE_LEN, MAX_DRAFT = 20 };

/* Parents of all rows: row 3 is a tree, the others are chains. */
static void make_parents(int32_t *parent) {
    for (int32_t i = 0; i < N_ROWS * MAX_DRAFT; i++) {
        const int32_t t = i % MAX_DRAFT;
        const int in_tree = i / MAX_DRAFT == TREE_ROW && t % 3 != 0;
        parent[i] = t == 0 ? 0 : in_tree ? t / 3 : t - 1;
    }
}

/* Node t's output by causal attention: one query, and a table row that holds the tokens before the
 * draft and then the node's path. */
static struct array attend_path(struct attention_case *c, const int32_t *parent, int32_t t) {
    int32_t path[TREE_LEN];
    int32_t row[MAX_CONTEXT];
    int32_t n = 0;
    memcpy(row, c->table + (size_t)c->reqs[TREE_ROW] * MAX_CONTEXT, sizeof row);
    for (int32_t node = t; node > 0; node = parent[TREE_ROW * MAX_DRAFT + node]) {
        path[n++] = row[TREE_FIRST + node];
    }
    for (int32_t k = 0; k < n; k++) {
        row[TREE_FIRST + 1 + k] = path[n - 1 - k];
    }
    const int32_t qsl[2] = {c->qsl[TREE_ROW] + t, c->qsl[TREE_ROW] + t + 1};
    const int32_t words[3] = {3, 0, TREE_FIRST + 1 + n}; /* slot, request, length */
    void *memory = NULL;
    assert_int_equal(c->rig.k->mem_alloc(sizeof qsl + sizeof words + sizeof row, &memory), HB_OK);
    int32_t *device = memory;
    assert_int_equal(c->rig.k->to_device(device, qsl, sizeof qsl), HB_OK);
    assert_int_equal(c->rig.k->to_device(device + 2, words, sizeof words), HB_OK);
    assert_int_equal(c->rig.k->to_device(device + 5, row, sizeof row), HB_OK);
    struct hb_k_attention one = c->args;
    one.rows = (struct hb_k_rows){.n_rows = 1, .qsl = device, .slots = device + 2};
    one.reqs = device + 3;
    one.seq_lens = device + 4;
    one.req_to_token = device + 5;
    assert_int_equal(c->rig.k->attention(&one), HB_OK);
    struct array out = array_read(&c->rig, c->args.out, c->q.n, c->s.act_dtype);
    c->rig.k->mem_free(memory);
    return out;
}

/* A node sees the tokens before the draft and its path, bit for bit as if nothing else was there:
 * so a window goes by positions on the path. */
static void tree_nodes_attend_their_path(void **state) {
    (void)state;
    int32_t parent[N_ROWS * MAX_DRAFT];
    make_parents(parent);
    for (int i = 0; i < 2 * N_SHAPES * N_VARIANTS; i++) {
        struct attention_case c = {0};
        if (!rig_open(&c.rig, i & 1, (uint32_t)i)) {
            continue;
        }
        make_case(&c, &shapes[i / 2 % N_SHAPES]);
        set_variant(&c, &variants[i / 2 / N_SHAPES]);
        struct hb_k_attention tree = c.args;
        tree.parent = rig_device(&c.rig, parent, sizeof parent);
        tree.parent_stride = MAX_DRAFT;
        assert_int_equal(c.rig.k->attention(&c.args), HB_OK);
        struct array causal = array_read(&c.rig, c.args.out, c.q.n, c.s.act_dtype);
        assert_int_equal(c.rig.k->attention(&tree), HB_OK);
        struct array out = array_read(&c.rig, c.args.out, c.q.n, c.s.act_dtype);
        const size_t bytes = (size_t)c.s.n_q * (size_t)c.s.d * size_of(c.s.act_dtype);
        const size_t first = (size_t)c.qsl[TREE_ROW] * bytes;
        assert_memory_equal(out.bytes, causal.bytes, first); /* the chains */
        for (int32_t t = 0; t < TREE_LEN; t++) {
            struct array want = attend_path(&c, parent, t);
            const size_t at = first + (size_t)t * bytes;
            assert_memory_equal((char *)out.bytes + at, (char *)want.bytes + at, bytes);
            array_free(&want);
        }
        array_free(&causal);
        array_free(&out);
        drop_case(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_double_arithmetic),
        cmocka_unit_test(keys_before_the_window_are_not_read),
        cmocka_unit_test(planted_defects_are_noticed),
        cmocka_unit_test(no_key_gives_zero),
        cmocka_unit_test(tree_nodes_attend_their_path),
        cmocka_unit_test(order_of_token_slots_changes_no_bit),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
