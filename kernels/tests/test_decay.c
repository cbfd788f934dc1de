/* SPDX-License-Identifier: Apache-2.0
 * Scalar decay kernels (ops-delta.md 3) against the recurrence in double arithmetic: both forms of
 * the prefill, one-token rows, tracking, layouts, head maps, orders, strong decays, planted
 * defects.
 */
#include "kernels/tests/recur_bound.h"

enum { QKV, DECAY };

/* bits of a case's variant */
enum { KV_LAYOUT = 1, TILE_MAP = 2, SILU = 4, PER_TOKEN = 8, N_VARIANTS = 16 };

/* of q, k, v and the pool; integers come with no decay, zero gates are zero now and then */
enum { USUAL, SMALL, INTEGERS, ZERO_GATES };
static const float ranges[] = {1.0f, 0.2f, -2.0f, 1.0f};

/* An element of q, k or v as the kernel sees it, and the error of its activation. */
static double activated(const struct recur_case *c, size_t at, double *error) {
    const double x = c->input[QKV].wide[at];
    if (c->args.decay.qkv_act == HB_QKV_NONE) {
        *error = 0;
        return x;
    }
    *error = fabs(silu64(x)) * (E_EXP + 4 * U32);
    return silu64(x);
}

static struct term decay_term(const struct recur_case *c, size_t token, int32_t head, int32_t p,
                              int32_t n) {
    const struct shape *s = &c->s;
    const struct hb_k_decay *args = &c->args.decay;
    const size_t keys = (size_t)(s->groups * s->n);
    const size_t base = token * (inner_of(s) + 2 * keys);
    const int32_t group =
        args->head_map == HB_HEADS_TILE ? head % s->groups : head / (s->heads / s->groups);
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

static struct array make_decays(struct recur_case *c, int32_t is_token, int32_t values) {
    const size_t n = (is_token ? tokens_of(c) : 1) * (size_t)c->s.heads;
    const int32_t dtype = is_token ? c->s.act_dtype : HB_FP32;
    struct array a =
        values == INTEGERS ? array_make(n, dtype) : array_range(&c->rig, n, dtype, -1.5f, 0.0f);
    for (size_t i = 0; values == ZERO_GATES && i < n; i += 7) {
        array_set(&a, i, 0.0f);
    }
    return a;
}

static void make_decay(struct recur_case *c, const struct run *run) {
    const struct shape *s = run->shape;
    const float range = ranges[run->values];
    const int32_t is_token = (run->variant & PER_TOKEN) != 0;
    make_rows(c, run, run->variant & KV_LAYOUT, PAD, range);
    c->term = decay_term;
    c->scale = run->values == INTEGERS ? 2.0 : 0.375;
    const size_t width = inner_of(s) + 2 * (size_t)(s->groups * s->n);
    const void *qkv =
        give(c, QKV, array_random(&c->rig, tokens_of(c) * width, s->act_dtype, range));
    void *decay = give(c, DECAY, make_decays(c, is_token, run->values));
    c->args.decay = (struct hb_k_decay){RECUR_ARGS(c, run),
                                        .n_groups = s->groups,
                                        .chunk_size = s->chunk,
                                        .head_map = (run->variant & TILE_MAP) != 0,
                                        .qkv_act = (run->variant & SILU) != 0,
                                        .qk_scale = (float)c->scale,
                                        .qkv = qkv,
                                        .log_decay = is_token ? NULL : (const float *)decay,
                                        .token_decay = decay};
}

static int32_t launch_decay(struct recur_case *c, enum call call) {
    return call == CALL_UPDATE ? c->rig.k->decay_update(&c->args.decay)
                               : c->rig.k->decay_prefill(&c->args.decay);
}

/* With decays per token both inputs are poisoned. */
static const struct recur_kind kind = {make_decay, expect_elements, launch_decay, 2};

static void prefill_matches_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SHAPES_OF_ALL * N_LENS * HB_N_FORMS; i++) {
        const int k = i / 2 / N_SHAPES_OF_ALL;
        const struct run run = {.shape = &shapes_of_all[i / 2 % N_SHAPES_OF_ALL],
                                .lens = lens_of[k % N_LENS],
                                .form = k / N_LENS};
        check_run(&kind, &run, i & 1, (uint32_t)i);
    }
}

static void variants_match_the_recurrence(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_VARIANTS * HB_N_FORMS * 2; i++) {
        const int k = i / 2 / N_VARIANTS;
        struct run run = {.shape = &shapes_of_all[i / 2 % 3],
                          .lens = lens_of[1],
                          .form = k % HB_N_FORMS,
                          .variant = i / 2 % N_VARIANTS};
        if (k / HB_N_FORMS) {
            run.call = CALL_UPDATE;
            run.lens = ones;
        }
        check_run(&kind, &run, i & 1, (uint32_t)i);
    }
}

static void largest_sizes_fit(void **state) {
    (void)state;
    const struct shape large = {1, 9, 256, 1, 256, HB_BF16, HB_FP32, 0};
    const int32_t lens[N_ROWS] = {257, 0, 0, 3, 0};
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        const struct run run = {.shape = &large, .lens = lens, .form = form, .values = SMALL};
        struct recur_case c;
        check_run(&kind, &run, 0, 5);
        assert_true(open_run(&kind, &c, &run, 0, 5));
        c.args.decay.state_size = HB_MAX_STATE_SIZE + 1;
        check_too_large(&kind, &c, CALL_PREFILL);
        drop_case(&c);
    }
}

static void both_forms_agree_bit_for_bit_on_integers(void **state) {
    (void)state;
    const struct run run = {
        .shape = &shapes_of_all[0], .lens = lens_of[1], .variant = PER_TOKEN, .values = INTEGERS};
    for (int table = 0; table < 2; table++) {
        check_forms(&kind, &run, table, 9);
    }
}

static void prefill_of_one_token_equals_a_decode_step_bit_for_bit(void **state) {
    (void)state;
    const struct run run = {.shape = &shapes_of_all[0], .form = HB_FORM_V0, .variant = SILU};
    check_one_token(&kind, &run);
}

static void results_do_not_depend_on_the_order(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        const struct run run = {
            .shape = &shapes_of_all[2], .lens = lens_of[2], .form = form, .variant = KV_LAYOUT};
        check_orders(&kind, &run);
    }
}

static void rows_do_not_leak_into_each_other(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        const struct run run = {
            .shape = &shapes_of_all[0], .lens = lens_of[1], .form = form, .variant = PER_TOKEN};
        check_no_leak(&kind, &run);
    }
}

/* Log decays far below the range of the exponential forget everything, and cost their neighbours no
 * digits: token 1 of each row is -infinity, token 3 is -1e30. */
static void total_decay_forgets_and_does_no_harm(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        const struct run run = {
            .shape = &shapes_of_all[0], .lens = lens_of[1], .form = form, .variant = PER_TOKEN};
        struct recur_case c;
        assert_true(open_run(&kind, &c, &run, 0, 43));
        struct array *a = &c.input[DECAY];
        for (int32_t row = 0; row < N_ROWS; row++) {
            for (int32_t t = 1; t < c.qsl[row + 1] - c.qsl[row] && t < 4; t += 2) {
                for (int32_t h = 0; h < c.s.heads; h++) {
                    const size_t at = (size_t)((c.qsl[row] + t) * c.s.heads + h);
                    array_set(a, at, t == 1 ? -INFINITY : -1e30f);
                    a->wide[at] = -150; /* the same: e^-150 is below the bounds' floor */
                }
            }
        }
        give_again(&c, DECAY);
        const struct result r = run_case(&kind, &c, CALL_PREFILL);
        assert_true(r.outputs && r.pool);
        drop_case(&c);
    }
}

#ifdef HB_DEFECTS
static const int32_t full[N_ROWS] = {16, 32, 16, 48, 16};

static void planted_defects_are_noticed(void **state) {
    (void)state;
    const struct shape *shape = &shapes_of_all[4];
    const struct shape *one_group = &shapes_of_all[1];
    const int32_t *lens = lens_of[1];
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        const struct planted planted[] = {
            {{shape, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_DECAY_SIGN, 0}, 0, 0},
            {{shape, ones, form, 0, USUAL, CALL_UPDATE, HB_DEFECT_DECAY_SIGN, 0}, 0, 0},
            {{shape, lens, form, PER_TOKEN, ZERO_GATES, CALL_PREFILL, HB_DEFECT_DECAY_ZERO_GATE, 0},
             0,
             0},
            /* no decay is zero */
            {{shape, lens, form, PER_TOKEN, USUAL, CALL_PREFILL, HB_DEFECT_DECAY_ZERO_GATE, 0},
             1,
             1},
            {{shape, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_DECAY_HEAD_MAP, 0}, 0, 0},
            {{shape, ones, form, TILE_MAP, USUAL, CALL_UPDATE, HB_DEFECT_DECAY_HEAD_MAP, 0}, 0, 0},
            {{one_group, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_DECAY_HEAD_MAP, 0}, 1, 1},
            {{&square, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_DECAY_LAYOUT, 0}, 0, 0},
            {{&square, ones, form, KV_LAYOUT, USUAL, CALL_UPDATE, HB_DEFECT_DECAY_LAYOUT, 0}, 0, 0},
            {{shape, lens, form, 0, USUAL, CALL_PREFILL, HB_DEFECT_DECAY_LAYOUT, 0}, 1, 1},
        };
        check_planted(&kind, planted, sizeof planted / sizeof *planted);
    }
    const int32_t fast = HB_FORM_FAST;
    const struct planted partial[] = {
        {{shape, lens, fast, 0, USUAL, CALL_PREFILL, HB_DEFECT_DECAY_PARTIAL_CHUNK, 0}, 1, 0},
        /* every chunk is full */
        {{shape, full, fast, 0, USUAL, CALL_PREFILL, HB_DEFECT_DECAY_PARTIAL_CHUNK, 0}, 1, 1},
    };
    check_planted(&kind, partial, sizeof partial / sizeof *partial);
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
