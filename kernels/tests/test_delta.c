/* SPDX-License-Identifier: Apache-2.0
 * Delta rule kernels (prefill in two forms, one-token rows) against the recurrence in double
 * arithmetic; variants, tracking, padding, orders, forms, planted defects. */
#include "kernels/tests/delta_bound.h"

/* Of the values of a case: q, k and v; raw gates; A in -[rate_low, rate_high). */
struct values {
    float range, gates, rate_low, rate_high;
    int integers; /* A = 0 and small integers, so that every form is exact */
};

enum { USUAL, SHORT_KEYS, STRONG, SMALL, ROUNDED_GATES, INTEGERS };
static const struct values values_of[] = {
    [USUAL] = {1.0f, 1.5f, 0.05f, 2.0f, 0},          [SHORT_KEYS] = {1e-3f, 1.5f, 0.05f, 2.0f, 0},
    [STRONG] = {1.0f, 1.5f, 60.0f, 90.0f, 0},        [SMALL] = {0.3f, 0.5f, 0.05f, 0.5f, 0},
    [ROUNDED_GATES] = {1.0f, -1.0f, 0.05f, 2.0f, 0}, [INTEGERS] = {-1.0f, -1.0f, 0.0f, 0.0f, 1},
};

struct variant {
    int32_t head_map, layout, l2norm, beta, gate, softplus;
};

enum { N_VARIANTS = 4, RAW_BETA = 3, PLAIN = 4, EXACT = 5 }; /* the last two are for tests of their own */
static const struct variant variants[] = {
    {HB_HEADS_INTERLEAVE, HB_STATE_VK, HB_L2_ADD_EPS, HB_BETA_SIGMOID, HB_GATE_STANDARD, 1},
    {HB_HEADS_TILE, HB_STATE_KV, HB_L2_MAX_EPS, HB_BETA_DOUBLE, HB_GATE_STANDARD, 1},
    {HB_HEADS_INTERLEAVE, HB_STATE_KV, HB_L2_ADD_EPS, HB_BETA_SIGMOID, HB_GATE_LOWER_BOUND, 1},
    {HB_HEADS_TILE, HB_STATE_VK, HB_L2_ADD_EPS, HB_BETA_RAW, HB_GATE_STANDARD, 1},
    [PLAIN] = {HB_HEADS_INTERLEAVE, HB_STATE_VK, HB_L2_OFF, HB_BETA_RAW, HB_GATE_STANDARD, 0},
    [EXACT] = {HB_HEADS_INTERLEAVE, HB_STATE_VK, HB_L2_OFF, HB_BETA_RAW, HB_GATE_STANDARD, 1},
};

static void make_inputs(struct recur_case *c, const struct values *values) {
    struct rig *rig = &c->rig;
    const struct shape *s = &c->s;
    const size_t n_tokens = tokens_of(c);
    const size_t heads = (size_t)s->heads;
    (void)give(c, QKV, array_random(rig, n_tokens * delta_dim(s), s->act_dtype, values->range));
    (void)give(c, GATES, array_random(rig, n_tokens * gates_width(s), s->act_dtype, values->gates));
    (void)give(c, BIAS,
               array_random(rig, heads * (s->is_kda ? (size_t)s->n : 1), HB_FP32,
                            values->integers ? -1.0f : 1.0f));
    (void)give(c, RATES, array_range(rig, heads, HB_FP32, -values->rate_high, -values->rate_low));
}

static void make_delta(struct recur_case *c, const struct run *run) {
    const struct shape *s = run->shape;
    const struct variant *variant = &variants[run->variant];
    const struct values *values = &values_of[run->values];
    make_rows(c, run, variant->layout, 0, values->integers ? -2.0f : 1.0f);
    make_inputs(c, values);
    c->args.delta = (struct hb_k_delta){RECUR_ARGS(c, run),
                                        .n_groups = s->groups,
                                        .chunk_size = s->chunk,
                                        .is_kda = s->is_kda,
                                        .head_map = variant->head_map,
                                        .l2norm = variant->l2norm,
                                        .beta_form = variant->beta,
                                        .gate_form = variant->gate,
                                        .gate_softplus = variant->softplus,
                                        .gate_bound = -5.0f,
                                        .qk_scale = values->integers ? 1.0f : 0.3f,
                                        .qkv = c->device_input[QKV],
                                        .gates = c->device_input[GATES],
                                        .a = c->device_input[RATES],
                                        .dt_bias = c->device_input[BIAS]};
}

static int32_t launch_delta(struct recur_case *c, enum call call) {
    if (call == CALL_UPDATE) {
        c->args.delta.after = NULL;
        c->args.delta.dst = NULL;
        return c->rig.k->delta_update(&c->args.delta);
    }
    return c->rig.k->delta_prefill(&c->args.delta);
}

static const struct recur_kind kind = {make_delta, expect_delta, launch_delta, 2};

static const struct shape shapes[] = {
    {4, 8, 16, 2, 8, HB_FP32, HB_FP32, 0},   {4, 3, 5, 2, 4, HB_BF16, HB_FP32, 1},
    {2, 11, 33, 2, 16, HB_FP16, HB_BF16, 0}, {2, 1, 1, 1, 1, HB_FP32, HB_BF16, 0},
    {6, 9, 40, 3, 32, HB_FP32, HB_FP32, 1},  {1, 13, 64, 1, 64, HB_BF16, HB_FP32, 0},
    {4, 8, 8, 2, 8, HB_FP32, HB_FP32, 1},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void prefill_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES * N_LENS * HB_N_FORMS * N_VARIANTS; i++) {
        const int k = i / 2 / N_SHAPES / N_VARIANTS;
        const struct run run = {.shape = &shapes[i / 2 % N_SHAPES],
                                .lens = lens_of[k % N_LENS],
                                .form = k / N_LENS,
                                .variant = i / 2 / N_SHAPES % N_VARIANTS};
        check_run(&kind, &run, i & 1, (uint32_t)i);
    }
}

static void update_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES * N_VARIANTS * HB_N_FORMS; i++) {
        const struct run run = {.shape = &shapes[i / 2 % N_SHAPES],
                                .lens = ones,
                                .form = i / 2 / N_SHAPES / N_VARIANTS,
                                .variant = i / 2 / N_SHAPES % N_VARIANTS,
                                .values = i % 4 < 2 ? USUAL : SHORT_KEYS,
                                .call = CALL_UPDATE};
        check_run(&kind, &run, i & 1, (uint32_t)i);
    }
}

/* Short keys, decays that underflow, gates without softplus, no bias, no norm. */
static void unusual_values(void **state) {
    (void)state;
    static const int32_t values[] = {SHORT_KEYS, SHORT_KEYS, STRONG, SMALL};
    for (int i = 0; i < 4 * HB_N_FORMS; i++) {
        const int k = i % 4;
        const struct run run = {.shape = &shapes[k % 2 ? 6 : 0],
                                .lens = lens_of[1],
                                .form = i / 4,
                                .variant = k < 3 ? k % 2 : PLAIN,
                                .values = values[k]};
        struct recur_case c;
        assert_true(open_run(&kind, &c, &run, 0, (uint32_t)k));
        if (k == 3) {
            c.args.delta.dt_bias = NULL;
        }
        const struct result r = run_case(&kind, &c, CALL_PREFILL);
        assert_true(r.outputs && r.pool);
        drop_case(&c);
    }
}

/* A log decay of minus infinity clears the state in both forms, and what follows is finite. */
static void infinite_decay_clears_the_state(void **state) {
    (void)state;
    const int32_t lens[N_ROWS] = {7, 0, 0, 0, 0};
    for (int32_t i = 0; i < 2 * HB_N_FORMS; i++) {
        const struct run run = {
            .shape = &shapes[i / 2 ? 6 : 0], .lens = lens, .form = i % 2, .is_untracked = 1};
        struct recur_case c[2];
        for (int32_t k = 0; k < 2; k++) {
            assert_true(open_run(&kind, &c[k], &run, 0, 9));
            const size_t width = gates_width(&c[k].s);
            const size_t n_a = width - (size_t)c[k].s.heads;
            for (size_t j = 0; k == 1 && j < n_a; j++) { /* token 3 */
                array_set(&c[k].input[GATES], 3 * width + j, INFINITY);
            }
            give_again(&c[k], GATES);
            assert_int_equal(kind.launch(&c[k], CALL_PREFILL), HB_OK);
            read_results(&c[k]);
        }
        for (size_t j = 0; j < c[1].y.n; j++) {
            assert_true(isfinite(c[1].y.wide[j]));
            const int is_before = j < 3 * inner_of(&c[0].s);
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
        struct recur_case c[HB_N_FORMS];
        for (int32_t form = 0; form < HB_N_FORMS; form++) {
            const struct run run = {.shape = &large, .lens = lens, .form = form, .values = STRONG};
            assert_true(open_run(&kind, &c[form], &run, 0, 5));
            assert_int_equal(kind.launch(&c[form], CALL_PREFILL), HB_OK);
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
    const struct run run = {.shape = &shapes[0], .lens = ones, .form = HB_FORM_V0};
    struct recur_case c;
    check_run(&kind, &run, 0, 5);
    assert_true(open_run(&kind, &c, &run, 0, 5));
    c.args.delta.state_size = 257;
    check_too_large(&kind, &c, CALL_PREFILL);
    check_too_large(&kind, &c, CALL_UPDATE);
    c.args.delta.form = HB_FORM_FAST;
    check_too_large(&kind, &c, CALL_UPDATE);
    drop_case(&c);
}

static void both_forms_agree_bit_for_bit_on_integers(void **state) {
    (void)state;
    static const struct shape small[] = {{4, 5, 4, 2, 4, HB_FP32, HB_FP32, 0},
                                         {4, 5, 4, 2, 4, HB_FP32, HB_FP32, 1}};
    static const int32_t lens[N_ROWS] = {7, 2, 3, 6, 1};
    for (int i = 0; i < 8; i++) {
        const struct run run = {.shape = &small[i / 2 % 2],
                                .lens = i < 4 ? lens : ones,
                                .variant = EXACT,
                                .values = INTEGERS,
                                .call = i < 4 ? CALL_PREFILL : CALL_UPDATE};
        check_forms(&kind, &run, i % 2, 9);
    }
}

/* The same operations of v0. */
static void prefill_by_tokens_equals_decode_steps_bit_for_bit(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct run run = {.shape = &shapes[i ? 6 : 0], .form = HB_FORM_V0};
        check_one_token(&kind, &run);
    }
}

static void results_do_not_depend_on_the_order(void **state) {
    (void)state;
    const struct run runs[] = {
        {.shape = &shapes[2], .lens = lens_of[2], .form = HB_FORM_FAST},
        {.shape = &shapes[2],
         .lens = ones,
         .form = HB_FORM_FAST,
         .variant = 1,
         .call = CALL_UPDATE},
        {.shape = &shapes[4], .lens = lens_of[2], .form = HB_FORM_FAST, .variant = 2},
    };
    for (int i = 0; i < 3; i++) {
        check_orders(&kind, &runs[i]);
    }
}

static void rows_do_not_leak_into_each_other(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        const struct run run = {.shape = &shapes[0], .lens = lens_of[1], .form = form};
        check_no_leak(&kind, &run);
    }
}

/* The elements between two slots of a pool are left alone. */
static void padding_between_slots_is_left_alone(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct run run = {.shape = &shapes[0],
                                .lens = i == 2 ? ones : lens_of[1],
                                .form = i == 0 ? HB_FORM_V0 : HB_FORM_FAST,
                                .variant = i % 2,
                                .call = i == 2 ? CALL_UPDATE : CALL_PREFILL};
        struct recur_case c;
        assert_true(open_run(&kind, &c, &run, 0, 61));
        const size_t slot = c.pool.n / (N_SLOTS + 1);
        const size_t n = (N_SLOTS + 1) * (slot + PAD);
        float *padded = calloc(n, sizeof(float));
        assert_non_null(padded);
        for (size_t k = 0; k < c.pool.n; k++) {
            padded[k + k / slot * PAD] = ((float *)c.pool.bytes)[k];
        }
        (void)run_case(&kind, &c, run.call);
        c.args.delta.pool = rig_device(&c.rig, padded, n * sizeof(float));
        c.args.delta.pool_pad = PAD;
        assert_int_equal(kind.launch(&c, run.call), HB_OK);
        float *after = rig_host(&c.rig, c.args.delta.pool, n * sizeof(float));
        for (size_t k = 0; k < n; k++) {
            const size_t in_slot = k % (slot + PAD);
            const float want = in_slot < slot
                                   ? ((float *)c.got_pool.bytes)[k / (slot + PAD) * slot + in_slot]
                                   : 0.0f;
            assert_true(after[k] == want);
        }
        free(after);
        free(padded);
        drop_case(&c);
    }
}

#ifdef HB_DEFECTS
#define PREFILL(defect, form, shape, values)                                                       \
    {                                                                                              \
        &shapes[shape], lens_of[1], HB_FORM_##form, (values) == ROUNDED_GATES ? RAW_BETA : 0,      \
            values, CALL_PREFILL, HB_DEFECT_##defect, 0                                            \
    }
#define UPDATE(defect, form, shape, values)                                                        \
    { &shapes[shape], ones, HB_FORM_##form, 0, values, CALL_UPDATE, HB_DEFECT_##defect, 0 }

/* Raw betas and rounded gates are exactly 0 now and then. */
static const struct planted planted[] = {
    {PREFILL(DELTA_HEAD_MAP, V0, 0, USUAL), 0, 0},
    {PREFILL(DELTA_HEAD_MAP, FAST, 0, USUAL), 0, 0},
    {UPDATE(DELTA_HEAD_MAP, FAST, 0, USUAL), 0, 0},
    {UPDATE(DELTA_HEAD_MAP, V0, 0, USUAL), 0, 0},
    {PREFILL(DELTA_DECAY_SIGN, V0, 0, USUAL), 0, 0},
    {PREFILL(DELTA_DECAY_SIGN, FAST, 6, USUAL), 0, 0},
    {UPDATE(DELTA_DECAY_SIGN, FAST, 0, USUAL), 0, 0},
    {UPDATE(DELTA_DECAY_SIGN, V0, 0, USUAL), 0, 0},
    {PREFILL(DELTA_ZERO_GATE, V0, 0, ROUNDED_GATES), 0, 0},
    {PREFILL(DELTA_ZERO_GATE, FAST, 6, ROUNDED_GATES), 0, 0},
    {PREFILL(DELTA_ZERO_GATE, FAST, 0, USUAL), 1, 1},
    {PREFILL(DELTA_L2_EPS, V0, 0, SHORT_KEYS), 0, 0},
    {PREFILL(DELTA_L2_EPS, FAST, 6, SHORT_KEYS), 0, 0},
    {UPDATE(DELTA_L2_EPS, FAST, 0, SHORT_KEYS), 0, 0},
    {UPDATE(DELTA_L2_EPS, V0, 0, SHORT_KEYS), 0, 0},
    {PREFILL(DELTA_LAYOUT, V0, 6, USUAL), 0, 0},
    {PREFILL(DELTA_LAYOUT, FAST, 6, USUAL), 0, 0},
    {PREFILL(DELTA_LAYOUT, FAST, 0, USUAL), 1, 1}, /* P is not N */
    {PREFILL(DELTA_MASKED_EXP, FAST, 0, STRONG), 1, 0},
    {PREFILL(DELTA_MASKED_EXP, FAST, 6, STRONG), 1, 0},
    {PREFILL(DELTA_MASKED_EXP, FAST, 0, USUAL), 1, 1},
    {PREFILL(DELTA_PREDICTION, V0, 0, USUAL), 0, 0},
    {UPDATE(DELTA_PREDICTION, FAST, 6, USUAL), 0, 0},
    {UPDATE(DELTA_PREDICTION, V0, 6, USUAL), 0, 0},
    {PREFILL(KDA_DECAY_SCALAR, V0, 6, USUAL), 0, 0},
    {PREFILL(KDA_DECAY_SCALAR, FAST, 6, USUAL), 0, 0},
    {UPDATE(KDA_DECAY_SCALAR, V0, 6, USUAL), 0, 0},
    {UPDATE(KDA_DECAY_SCALAR, FAST, 6, USUAL), 0, 0},
    {PREFILL(KDA_DECAY_SCALAR, FAST, 0, USUAL), 1, 1}, /* one decay per head */
};

static void planted_defects_are_noticed(void **state) {
    (void)state;
    check_planted(&kind, planted, sizeof planted / sizeof *planted);
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
