/* SPDX-License-Identifier: Apache-2.0
 * Scalar decay kernels (ops-delta.md 3) against the recurrence in double arithmetic: both forms of
 * the prefill, one-token rows, tracking, layouts, head maps, orders, strong decays, planted defects.
 */
#include "kernels/tests/recur_rig.h"

enum { QKV, DECAY };
enum call { CALL_PREFILL, CALL_UPDATE };

/* bits of a case's variant */
enum { KV_LAYOUT = 1, TILE_MAP = 2, SILU = 4, PER_TOKEN = 8, N_VARIANTS = 16 };

struct decay_case {
    struct recur_case r; /* first: terms see it */
    struct hb_k_decay args;
};

static const struct hb_k_decay *args_of(const struct recur_case *c) {
    return &((const struct decay_case *)(const void *)c)->args;
}

/* An element of q, k or v as the kernel sees it, and the error of its activation. */
static double activated(const struct recur_case *c, size_t at, double *error) {
    const double x = c->input[QKV].wide[at];
    if (args_of(c)->qkv_act == HB_QKV_NONE) {
        *error = 0;
        return x;
    }
    *error = fabs(silu64(x)) * (E_EXP + 4 * U32);
    return silu64(x);
}

static struct term decay_term(const struct recur_case *c, size_t token, int32_t head, int32_t p,
                              int32_t n) {
    const struct shape *s = &c->s;
    const struct hb_k_decay *args = args_of(c);
    const size_t keys = (size_t)(s->groups * s->n);
    const size_t base = token * (inner_of(s) + 2 * keys);
    const int32_t group = args->head_map == HB_HEADS_TILE ? head % s->groups
                                                          : head / (s->heads / s->groups);
    const size_t q = base + (size_t)(group * s->n + n);
    double dq, dk, dv;
    const double qn = activated(c, q, &dq);
    const double kn = activated(c, q + keys, &dk);
    const double v = activated(c, base + 2 * keys + (size_t)(head * s->p + p), &dv);
    const size_t at = args->log_decay ? 0 : token * (size_t)s->heads;
    return (struct term){.th = -c->input[DECAY].wide[at + (size_t)head],
                         .in = v * kn,
                         .din = fabs(v) * dk + dv * fabs(kn) + dv * dk,
                         .out = qn,
                         .dout = dq};
}

/* range < 0: integers, and no decay */
static void make_case(struct decay_case *c, const struct shape *shape, const int32_t *lens,
                      int32_t form, int32_t variant, float range) {
    struct recur_case *r = &c->r;
    const int32_t is_token = (variant & PER_TOKEN) != 0;
    make_rows(r, shape, lens, variant & KV_LAYOUT, form, range);
    r->term = decay_term;
    r->scale = range < 0 ? 2.0 : 0.375;
    r->input[QKV] = array_random(
        &r->rig,
        tokens_of(r) * (inner_of(shape) + 2 * (size_t)(shape->groups * shape->n)),
        shape->act_dtype, range);
    r->input[DECAY] = array_make((is_token ? tokens_of(r) : 1) * (size_t)shape->heads,
                                 is_token ? shape->act_dtype : HB_FP32);
    if (range > 0) {
        fill_range(r, &r->input[DECAY], -1.5f, 0.0f);
    }
    void *decay = array_device(&r->rig, &r->input[DECAY]);
    c->args = (struct hb_k_decay){.rows = r->rows,
                                  .n_heads = shape->heads,
                                  .head_dim = shape->p,
                                  .state_size = shape->n,
                                  .n_groups = shape->groups,
                                  .chunk_size = shape->chunk,
                                  .act_dtype = shape->act_dtype,
                                  .state_dtype = shape->state_dtype,
                                  .head_map = (variant & TILE_MAP) != 0,
                                  .state_layout = r->layout,
                                  .qkv_act = (variant & SILU) != 0,
                                  .qk_scale = (float)r->scale,
                                  .form = form,
                                  .qkv = array_device(&r->rig, &r->input[QKV]),
                                  .log_decay = is_token ? NULL : (const float *)decay,
                                  .token_decay = decay,
                                  .y = r->device_y,
                                  .pool = r->device_pool,
                                  .after = r->device_after,
                                  .dst = r->device_dst,
                                  .pool_pad = PAD};
}

static struct result run_case(struct decay_case *c, enum call call) {
    const struct hb_kernels *k = c->r.rig.k;
    if (call == CALL_UPDATE) {
        no_tracking(&c->r);
    }
    expect_all(&c->r);
    assert_int_equal(call == CALL_UPDATE ? k->decay_update(&c->args) : k->decay_prefill(&c->args),
                     HB_OK);
    return judge(&c->r);
}

static void prefill_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES * N_LENS * HB_N_FORMS; i++) {
        struct decay_case c = {0};
        if (!rig_open(&c.r.rig, i & 1, (uint32_t)i)) {
            continue;
        }
        make_case(&c, &shapes[i / 2 % N_SHAPES], lens_of[i / 2 / N_SHAPES % N_LENS],
                  i / 2 / N_SHAPES / N_LENS, 0, 1.0f);
        const struct result r = run_case(&c, CALL_PREFILL);
        assert_true(r.outputs);
        assert_true(r.pool);
        drop_case(&c.r);
    }
}

static void variants_match_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_VARIANTS * HB_N_FORMS * 2; i++) {
        struct decay_case c = {0};
        if (!rig_open(&c.r.rig, i & 1, (uint32_t)i)) {
            continue;
        }
        const enum call call = i / 2 / N_VARIANTS / HB_N_FORMS ? CALL_UPDATE : CALL_PREFILL;
        make_case(&c, &shapes[i / 2 % 3], call == CALL_UPDATE ? ones : lens_of[1],
                  i / 2 / N_VARIANTS % HB_N_FORMS, i / 2 % N_VARIANTS, 1.0f);
        const struct result r = run_case(&c, call);
        assert_true(r.outputs);
        assert_true(r.pool);
        drop_case(&c.r);
    }
}

static void largest_sizes_fit(void **state) {
    (void)state;
    const struct shape large = {1, 9, 256, 1, 256, HB_BF16, HB_FP32};
    const int32_t lens[N_ROWS] = {257, 0, 0, 3, 0};
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        struct decay_case c = {0};
        assert_true(rig_open(&c.r.rig, 0, 5));
        make_case(&c, &large, lens, form, 0, 0.2f);
        const struct result r = run_case(&c, CALL_PREFILL);
        assert_true(r.outputs && r.pool);
        c.args.state_size = HB_MAX_STATE_SIZE + 1;
        assert_int_equal(c.r.rig.k->decay_prefill(&c.args), HB_ERR_DEVICE);
        assert_non_null(strstr(c.r.rig.k->error_text(), "state_size 257"));
        drop_case(&c.r);
    }
}

static void both_forms_agree_bit_for_bit_on_integers(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct decay_case c[HB_N_FORMS];
        memset(c, 0, sizeof c);
        int opened = 0;
        for (int32_t form = 0; form < HB_N_FORMS && rig_open(&c[form].r.rig, table, 9); form++) {
            make_case(&c[form], &shapes[0], lens_of[1], form, PER_TOKEN, -2.0f);
            const struct result r = run_case(&c[form], CALL_PREFILL);
            assert_true(r.outputs && r.pool);
            opened++;
        }
        if (opened == HB_N_FORMS) {
            assert_true(same_results(&c[0].r, &c[1].r));
            drop_case(&c[0].r);
            drop_case(&c[1].r);
        }
    }
}

static void prefill_of_one_token_equals_a_decode_step_bit_for_bit(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct decay_case c[2];
        memset(c, 0, sizeof c);
        if (!rig_open(&c[0].r.rig, table, 21) || !rig_open(&c[1].r.rig, table, 21)) {
            continue;
        }
        for (int call = CALL_PREFILL; call <= CALL_UPDATE; call++) {
            make_case(&c[call], &shapes[0], ones, HB_FORM_V0, SILU, 1.0f);
            c[call].args.after = NULL;
            (void)run_case(&c[call], (enum call)call);
        }
        assert_true(same_results(&c[0].r, &c[1].r));
        drop_case(&c[0].r);
        drop_case(&c[1].r);
    }
}

static void results_do_not_depend_on_the_order(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        struct decay_case first = {0};
        for (int32_t i = 0; i < HB_N_ORDERS * HB_N_ORDERS; i++) {
            struct decay_case c = {0};
            assert_true(rig_open(&c.r.rig, 0, 31));
            c.r.rig.k->set_order(i / HB_N_ORDERS, i % HB_N_ORDERS, 55);
            make_case(&c, &shapes[2], lens_of[2], form, KV_LAYOUT, 1.0f);
            const struct result r = run_case(&c, CALL_PREFILL);
            assert_true(r.outputs && r.pool);
            if (i == 0) {
                first = c;
                continue;
            }
            assert_true(same_results(&first.r, &c.r));
            drop_case(&c.r);
        }
        drop_case(&first.r);
    }
}

/* A NaN or infinity in one row reaches no other row. */
static void rows_do_not_leak_into_each_other(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        struct decay_case c = {0};
        assert_true(rig_open(&c.r.rig, 0, 41));
        make_case(&c, &shapes[0], lens_of[1], form, PER_TOKEN, 1.0f);
        expect_all(&c.r);
        for (int input = QKV; input <= DECAY; input++) {
            struct array *a = &c.r.input[input];
            float *x = a->bytes;
            for (size_t i = 0; i < (size_t)c.r.qsl[1] * (a->n / tokens_of(&c.r)); i++) {
                x[i] = i % 2 ? INFINITY : NAN;
            }
            rig_rewrite(&c.r.rig, input == QKV ? c.args.qkv : c.args.token_decay, x, a->n * 4);
        }
        assert_int_equal(c.r.rig.k->decay_prefill(&c.args), HB_OK);
        (void)judge(&c.r);
        const size_t width = inner_of(&c.r.s);
        for (size_t i = (size_t)c.r.qsl[1] * width; i < c.r.y.n; i++) {
            const int is_padding =
                i / width >= (size_t)c.r.qsl[2] && i / width < (size_t)c.r.qsl[3];
            assert_true(is_padding || is_near(c.r.y.wide[i], c.r.want[i], c.r.bound[i]));
        }
        drop_case(&c.r);
    }
}

/* Log decays far below the range of the exponential forget everything, and cost their neighbours no
 * digits: token 1 of each row is -infinity, token 3 is -1e30. */
static void total_decay_forgets_and_does_no_harm(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        struct decay_case c = {0};
        assert_true(rig_open(&c.r.rig, 0, 43));
        make_case(&c, &shapes[0], lens_of[1], form, PER_TOKEN, 1.0f);
        struct array *a = &c.r.input[DECAY];
        for (int32_t row = 0; row < N_ROWS; row++) {
            for (int32_t t = 1; t < c.r.qsl[row + 1] - c.r.qsl[row] && t < 4; t += 2) {
                for (int32_t h = 0; h < c.r.s.heads; h++) {
                    const size_t at = (size_t)((c.r.qsl[row] + t) * c.r.s.heads + h);
                    array_set(a, at, t == 1 ? -INFINITY : -1e30f);
                    a->wide[at] = -150; /* the same: e^-150 is below the bounds' floor */
                }
            }
        }
        rig_rewrite(&c.r.rig, c.args.token_decay, a->bytes, a->n * 4);
        const struct result r = run_case(&c, CALL_PREFILL);
        assert_true(r.outputs && r.pool);
        drop_case(&c.r);
    }
}

#ifdef HB_DEFECTS
static struct result run_defect(enum call call, int32_t form, int32_t variant, int32_t defect,
                                const int32_t *lens, int with_zero_gates) {
    struct decay_case c = {0};
    assert_true(rig_open(&c.r.rig, 0, 51));
    make_case(&c, &shapes[4], lens, form, variant, 1.0f);
    c.args.defect = defect;
    for (size_t i = 0; with_zero_gates && i < c.r.input[DECAY].n; i += 7) {
        array_set(&c.r.input[DECAY], i, 0.0f);
    }
    rig_rewrite(&c.r.rig, c.args.token_decay, c.r.input[DECAY].bytes, c.r.input[DECAY].n * 4);
    const struct result r = run_case(&c, call);
    drop_case(&c.r);
    return r;
}

static void planted_defects_are_noticed(void **state) {
    (void)state;
    const int32_t full[N_ROWS] = {16, 32, 16, 48, 16};
    struct result r;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        r = run_defect(CALL_PREFILL, form, 0, HB_DEFECT_DECAY_SIGN, lens_of[1], 0);
        assert_true(!r.outputs && !r.pool);
        r = run_defect(CALL_UPDATE, form, 0, HB_DEFECT_DECAY_SIGN, ones, 0);
        assert_true(!r.outputs && !r.pool);
        r = run_defect(CALL_PREFILL, form, PER_TOKEN, HB_DEFECT_DECAY_ZERO_GATE, lens_of[1], 1);
        assert_true(!r.outputs && !r.pool);
        r = run_defect(CALL_PREFILL, form, PER_TOKEN, HB_DEFECT_DECAY_ZERO_GATE, lens_of[1], 0);
        assert_true(r.outputs && r.pool); /* no decay is zero */
        r = run_defect(CALL_PREFILL, form, PER_TOKEN, 0, lens_of[1], 1);
        assert_true(r.outputs && r.pool);
    }
    r = run_defect(CALL_PREFILL, HB_FORM_FAST, 0, HB_DEFECT_DECAY_PARTIAL_CHUNK, lens_of[1], 0);
    assert_true(r.outputs && !r.pool);
    r = run_defect(CALL_PREFILL, HB_FORM_FAST, 0, HB_DEFECT_DECAY_PARTIAL_CHUNK, full, 0);
    assert_true(r.outputs && r.pool); /* every chunk is full */
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_matches_the_recurrence),
        cmocka_unit_test(variants_match_the_recurrence),
        cmocka_unit_test(largest_sizes_fit),
        cmocka_unit_test(both_forms_agree_bit_for_bit_on_integers),
        cmocka_unit_test(prefill_of_one_token_equals_a_decode_step_bit_for_bit),
        cmocka_unit_test(results_do_not_depend_on_the_order),
        cmocka_unit_test(rows_do_not_leak_into_each_other),
        cmocka_unit_test(total_decay_forgets_and_does_no_harm),
#ifdef HB_DEFECTS
        cmocka_unit_test(planted_defects_are_noticed),
#endif
    };
    return cmocka_run_group_tests_name("decay", tests, NULL, NULL);
}
