/* SPDX-License-Identifier: Apache-2.0
 * Selective scan kernels (Mamba1) against the recurrence in double arithmetic: both forms of the
 * prefill, one-token rows, tracking, layouts, clamps, absent parameters, orders, planted defects. */
#include "kernels/tests/recur_rig.h"

enum { X, DBC, A, BIAS, D };
enum call { CALL_PREFILL, CALL_UPDATE };

struct scan_case {
    struct recur_case r; /* first: terms see it */
    struct hb_k_selective args;
    double *skip;
};

/* Step size with its error, tolerance.md 3.1. */
static double step_size(const struct recur_case *c, size_t token, size_t channel, double *error) {
    const struct hb_k_selective *args = &((const struct scan_case *)(const void *)c)->args;
    const size_t width = inner_of(&c->s) + 2 * (size_t)c->s.n;
    const double bias = args->dt_bias ? c->input[BIAS].wide[channel] : 0;
    const double a = c->input[DBC].wide[token * width + channel] + bias;
    double dt = a;
    *error = U32 * fabs(a);
    if (args->dt_softplus) {
        dt = (a > 0 ? a : 0) + log1p(exp(-fabs(a)));
        *error = *error / (1 + exp(-a)) * (1 + 1.0 / 1024) + 4 * U32 * dt +
                 (a >= 19.9 ? exp(-a) : 0);
    }
    if (args->dt_clamp != HB_DT_CLAMP_NONE && dt < (double)args->dt_lo) {
        dt = (double)args->dt_lo;
    }
    if (args->dt_clamp == HB_DT_CLAMP_LIMIT && dt > (double)args->dt_hi) {
        dt = (double)args->dt_hi;
    }
    return dt;
}

static struct term scan_term(const struct recur_case *c, size_t token, int32_t head, int32_t p,
                             int32_t n) {
    const size_t inner = inner_of(&c->s);
    const size_t channel = (size_t)(head * c->s.p + p);
    const double *bc = c->input[DBC].wide + token * (inner + 2 * (size_t)c->s.n) + inner;
    const double xb = c->input[X].wide[token * inner + channel] * bc[n];
    const double a = c->input[A].wide[channel * (size_t)c->s.n + (size_t)n];
    double ddt;
    const double dt = step_size(c, token, channel, &ddt);
    return (struct term){.th = -dt * a,
                         .eta = fabs(a) * ddt + fabs(dt * a) * U32,
                         .in = dt * xb,
                         .din = ddt * fabs(xb) * (1 + 4 * U32),
                         .out = bc[c->s.n + n]};
}

static void make_case(struct scan_case *c, const struct shape *shape, const int32_t *lens,
                      int32_t form, int32_t layout) {
    struct recur_case *r = &c->r;
    make_rows(r, shape, lens, layout, form, 1.0f);
    const size_t inner = inner_of(shape);
    const size_t n = (size_t)shape->n;
    r->term = scan_term;
    r->is_chunked = 0; /* in neither form */
    r->input[X] = array_random(&r->rig, tokens_of(r) * inner, shape->act_dtype, 1.0f);
    r->input[DBC] = array_random(&r->rig, tokens_of(r) * (inner + 2 * n), shape->act_dtype, 1.0f);
    r->input[A] = array_make(inner * n, HB_FP32);
    fill_range(r, &r->input[A], -3.0f, -0.1f);
    r->input[BIAS] = array_random(&r->rig, inner, HB_FP32, 1.0f);
    r->input[D] = array_random(&r->rig, inner, HB_FP32, 1.0f);
    c->args = (struct hb_k_selective){.rows = r->rows,
                                      .n_heads = shape->heads,
                                      .head_dim = shape->p,
                                      .state_size = shape->n,
                                      .act_dtype = shape->act_dtype,
                                      .state_dtype = shape->state_dtype,
                                      .state_layout = layout,
                                      .dt_softplus = 1,
                                      .form = form,
                                      .x = array_device(&r->rig, &r->input[X]),
                                      .dbc = array_device(&r->rig, &r->input[DBC]),
                                      .a = array_device(&r->rig, &r->input[A]),
                                      .dt_bias = array_device(&r->rig, &r->input[BIAS]),
                                      .d = array_device(&r->rig, &r->input[D]),
                                      .y = r->device_y,
                                      .pool = r->device_pool,
                                      .after = r->device_after,
                                      .dst = r->device_dst,
                                      .pool_pad = PAD};
}

static struct result run_case(struct scan_case *c, enum call call) {
    struct recur_case *r = &c->r;
    const size_t inner = inner_of(&r->s);
    if (call == CALL_UPDATE) {
        no_tracking(r);
    }
    c->skip = calloc(tokens_of(r) * inner + 1, sizeof(double));
    assert_non_null(c->skip);
    for (size_t i = 0; c->args.d && i < tokens_of(r) * inner; i++) {
        c->skip[i] = r->input[D].wide[i % inner] * r->input[X].wide[i];
    }
    r->skip = c->skip;
    expect_all(r);
    assert_int_equal(call == CALL_UPDATE ? r->rig.k->selective_update(&c->args)
                                         : r->rig.k->selective_prefill(&c->args),
                     HB_OK);
    free(c->skip);
    return judge(r);
}

static void prefill_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES * N_LENS * HB_N_FORMS; i++) {
        struct scan_case c = {0};
        if (!rig_open(&c.r.rig, i & 1, (uint32_t)i)) {
            continue;
        }
        make_case(&c, &shapes[i / 2 % N_SHAPES], lens_of[i / 2 / N_SHAPES % N_LENS],
                  i / 2 / N_SHAPES / N_LENS, i / 2 % 2);
        const struct result r = run_case(&c, CALL_PREFILL);
        assert_true(r.outputs);
        assert_true(r.pool);
        drop_case(&c.r);
    }
}

static void update_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES * 2; i++) {
        struct scan_case c = {0};
        if (!rig_open(&c.r.rig, i & 1, (uint32_t)i)) {
            continue;
        }
        make_case(&c, &shapes[i / 2 % N_SHAPES], ones, HB_FORM_FAST, i / 2 / N_SHAPES);
        const struct result r = run_case(&c, CALL_UPDATE);
        assert_true(r.outputs);
        assert_true(r.pool);
        drop_case(&c.r);
    }
}

static void largest_sizes_fit(void **state) {
    (void)state;
    const struct shape large = {1, 9, 256, 1, 256, HB_BF16, HB_FP32};
    const int32_t lens[N_ROWS] = {33, 0, 0, 3, 0};
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        struct scan_case c = {0};
        assert_true(rig_open(&c.r.rig, 0, 5));
        make_case(&c, &large, lens, form, HB_STATE_VK);
        const struct result r = run_case(&c, CALL_PREFILL);
        assert_true(r.outputs && r.pool);
        c.args.state_size = HB_MAX_STATE_SIZE + 1;
        assert_int_equal(c.r.rig.k->selective_prefill(&c.args), HB_ERR_DEVICE);
        assert_non_null(strstr(c.r.rig.k->error_text(), "state_size 257"));
        drop_case(&c.r);
    }
}

static void clamps_and_absent_parameters(void **state) {
    (void)state;
    for (int i = 0; i < 2 * HB_N_DT_CLAMPS * 2 * 2; i++) {
        struct scan_case c = {0};
        assert_true(rig_open(&c.r.rig, 0, (uint32_t)i));
        const enum call call = i & 1 ? CALL_UPDATE : CALL_PREFILL;
        make_case(&c, &shapes[0], call == CALL_UPDATE ? ones : lens_of[1], HB_FORM_FAST,
                  HB_STATE_VK);
        c.args.dt_clamp = i / 2 % HB_N_DT_CLAMPS;
        c.args.dt_lo = 0.5f;
        c.args.dt_hi = 0.7f;
        if (i / 2 / HB_N_DT_CLAMPS & 1) {
            c.args.d = NULL;
            c.args.dt_bias = NULL;
        }
        c.args.dt_softplus = i / 4 / HB_N_DT_CLAMPS;
        const struct result r = run_case(&c, call);
        assert_true(r.outputs && r.pool);
        drop_case(&c.r);
    }
}

static void both_forms_agree_bit_for_bit(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES; i++) {
        struct scan_case c[HB_N_FORMS];
        memset(c, 0, sizeof c);
        if (!rig_open(&c[0].r.rig, i & 1, 9) || !rig_open(&c[1].r.rig, i & 1, 9)) {
            continue;
        }
        for (int32_t form = 0; form < HB_N_FORMS; form++) {
            make_case(&c[form], &shapes[i / 2], lens_of[1], form, HB_STATE_KV);
            (void)run_case(&c[form], CALL_PREFILL);
        }
        assert_true(same_results(&c[0].r, &c[1].r));
        drop_case(&c[0].r);
        drop_case(&c[1].r);
    }
}

static void prefill_of_one_token_equals_a_decode_step_bit_for_bit(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct scan_case c[2];
        memset(c, 0, sizeof c);
        if (!rig_open(&c[0].r.rig, table, 21) || !rig_open(&c[1].r.rig, table, 21)) {
            continue;
        }
        for (int call = CALL_PREFILL; call <= CALL_UPDATE; call++) {
            make_case(&c[call], &shapes[0], ones, HB_FORM_FAST, HB_STATE_VK);
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
    struct scan_case first = {0};
    for (int32_t i = 0; i < HB_N_ORDERS * HB_N_ORDERS; i++) {
        struct scan_case c = {0};
        assert_true(rig_open(&c.r.rig, 0, 31));
        c.r.rig.k->set_order(i / HB_N_ORDERS, i % HB_N_ORDERS, 55);
        make_case(&c, &shapes[2], lens_of[2], HB_FORM_FAST, HB_STATE_VK);
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

/* A NaN or infinity in one row reaches no other row. */
static void rows_do_not_leak_into_each_other(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        struct scan_case c = {0};
        assert_true(rig_open(&c.r.rig, 0, 41));
        make_case(&c, &shapes[0], lens_of[1], form, HB_STATE_VK);
        c.args.d = NULL;
        expect_all(&c.r);
        float *dbc = c.r.input[DBC].bytes;
        const size_t stride = c.r.input[DBC].n / tokens_of(&c.r);
        for (size_t i = 0; i < (size_t)c.r.qsl[1] * stride; i++) {
            dbc[i] = i % 2 ? INFINITY : NAN;
        }
        rig_rewrite(&c.r.rig, c.args.dbc, dbc, c.r.input[DBC].n * 4);
        assert_int_equal(c.r.rig.k->selective_prefill(&c.args), HB_OK);
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

#ifdef HB_DEFECTS
static void planted_defects_are_noticed(void **state) {
    (void)state;
    for (int i = 0; i < 2 * HB_N_FORMS; i++) {
        struct scan_case c = {0};
        assert_true(rig_open(&c.r.rig, 0, 51));
        make_case(&c, &shapes[0], i & 1 ? ones : lens_of[1], i / 2, HB_STATE_VK);
        c.args.defect = HB_DEFECT_DT_BIAS_PER_HEAD;
        const struct result r = run_case(&c, i & 1 ? CALL_UPDATE : CALL_PREFILL);
        assert_true(!r.outputs && !r.pool);
        drop_case(&c.r);
    }
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_matches_the_recurrence),
        cmocka_unit_test(update_matches_the_recurrence),
        cmocka_unit_test(largest_sizes_fit),
        cmocka_unit_test(clamps_and_absent_parameters),
        cmocka_unit_test(both_forms_agree_bit_for_bit),
        cmocka_unit_test(prefill_of_one_token_equals_a_decode_step_bit_for_bit),
        cmocka_unit_test(results_do_not_depend_on_the_order),
        cmocka_unit_test(rows_do_not_leak_into_each_other),
#ifdef HB_DEFECTS
        cmocka_unit_test(planted_defects_are_noticed),
#endif
    };
    return cmocka_run_group_tests_name("selective", tests, NULL, NULL);
}
