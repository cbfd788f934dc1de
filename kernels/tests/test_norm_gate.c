/* SPDX-License-Identifier: Apache-2.0
 * Gated norm against double arithmetic for every variant (bound: tolerance.md 3.6). */
#include "kernels/tests/rig.h"

enum { N_TOKENS = 9, D_INNER = 24 };

struct norm_case {
    int32_t gate_norm, norm_group, act_dtype;
    float eps;
    int32_t out_gate, defect;
};

static double gate64(const struct norm_case *c, double z) {
    return c->out_gate == HB_OUT_SIGMOID ? 1 / (1 + exp(-z)) : silu64(z);
}

static int is_normed(int32_t gate_norm) {
    return gate_norm != HB_GATE_ONLY && gate_norm != HB_GATE_NORM_NONE;
}

static double want_one(const struct norm_case *c, const double *y, const double *z, const double *w,
                       size_t i) {
    const int is_gated = c->gate_norm != HB_NORM_ONLY && c->gate_norm != HB_GATE_NORM_NONE;
    const size_t first = i / (size_t)c->norm_group * (size_t)c->norm_group;
    double sum = 0;
    for (size_t k = first; k < first + (size_t)c->norm_group; k++) {
        const double v = c->gate_norm == HB_GATE_NORM_AFTER ? y[k] * gate64(c, z[k]) : y[k];
        sum += v * v;
    }
    double o = is_gated ? y[i] * gate64(c, z[i]) : y[i];
    if (is_normed(c->gate_norm)) {
        o *= w[i % D_INNER] / sqrt(sum / c->norm_group + (double)c->eps);
    }
    return o;
}

/* Returns how many outputs lie outside their bound; scale multiplies each output before the
 * comparison. */
static int count_misses(int table, const struct norm_case *c, double scale) {
    struct rig rig;
    if (!rig_open(&rig, table, 17)) {
        return 0;
    }
    struct array y = array_random(&rig, N_TOKENS * D_INNER, c->act_dtype, 3.0f);
    struct array z = array_random(&rig, N_TOKENS * D_INNER, c->act_dtype, 30.0f);
    struct array w = array_random(&rig, D_INNER, HB_FP32, 2.0f);
    const struct hb_k_norm args = {.n_tokens = N_TOKENS,
                                   .d_inner = D_INNER,
                                   .norm_group = c->norm_group,
                                   .gate_norm = c->gate_norm,
                                   .act_dtype = c->act_dtype,
                                   .defect = c->defect,
                                   .out_gate = c->out_gate,
                                   .eps = c->eps,
                                   .y = array_device(&rig, &y),
                                   .z = array_device(&rig, &z),
                                   .weight =
                                       is_normed(c->gate_norm) ? array_device(&rig, &w) : NULL,
                                   .out = rig_device(&rig, NULL, y.n * size_of(c->act_dtype))};
    assert_int_equal(rig.k->gated_norm(&args), HB_OK);
    struct array out = array_read(&rig, args.out, y.n, c->act_dtype);
    const double rel = 2 * (E_EXP + 4 * U32) + gam(c->norm_group / 2.0 + 6, U32) + 4 * U32;
    int misses = 0;
    for (size_t i = 0; i < y.n; i++) {
        const double want = want_one(c, y.wide, z.wide, w.wide, i);
        const double error = c->gate_norm == HB_GATE_NORM_NONE ? 0 : rel * fabs(want);
        const double rounding = c->gate_norm == HB_GATE_NORM_NONE
                                    ? 0
                                    : u_of(c->act_dtype) * (fabs(want) + error) +
                                          floor_of(c->act_dtype);
        misses += !is_near(out.wide[i] * scale, want, error + rounding);
    }
    struct array *arrays[] = {&y, &z, &w, &out};
    for (size_t i = 0; i < 4; i++) {
        array_free(arrays[i]);
    }
    rig_close(&rig);
    return misses;
}

static void every_variant_matches_double_arithmetic(void **state) {
    (void)state;
    static const int32_t groups[] = {D_INNER, 8, 1};
    for (int table = 0; table < 2; table++) {
        for (int i = 0; i < HB_N_GATE_NORMS * 3 * HB_N_FLOAT_DTYPES * HB_N_OUT_GATES; i++) {
            const struct norm_case c = {i % HB_N_GATE_NORMS,
                                        groups[i / HB_N_GATE_NORMS % 3],
                                        i / HB_N_GATE_NORMS / 3 % HB_N_FLOAT_DTYPES,
                                        1e-5f,
                                        i / HB_N_GATE_NORMS / 3 / HB_N_FLOAT_DTYPES,
                                        0};
            assert_int_equal(count_misses(table, &c, 1.0), 0);
        }
    }
}

static void planted_defects_are_noticed(void **state) {
    (void)state;
#ifndef HB_DEFECTS
    skip();
#else
    struct norm_case c = {HB_GATE_NORM_AFTER, 8, HB_FP32, 1e-5f, HB_OUT_SIGMOID,
                          HB_DEFECT_GATE_AS_SILU};
    assert_true(count_misses(0, &c, 1.0) > N_TOKENS * D_INNER / 2);
    c.out_gate = HB_OUT_SILU;
    assert_int_equal(count_misses(0, &c, 1.0), 0);
    c.defect = HB_DEFECT_FP16_TRUNCATED;
    assert_int_equal(count_misses(0, &c, 1.0), 0); /* no fp16 here */
    c.act_dtype = HB_FP16;
    c.gate_norm = HB_NORM_ONLY;
    assert_true(count_misses(0, &c, 1.0) > 0);
    c.gate_norm = HB_GATE_NORM_NONE; /* what has the type already is not rounded */
    assert_int_equal(count_misses(0, &c, 1.0), 0);
    for (int32_t gate_norm = 0; gate_norm < HB_N_GATE_NORMS; gate_norm++) {
        c = (struct norm_case){gate_norm, 8, HB_FP32, 0.1f, HB_OUT_SILU, HB_DEFECT_GATED_NORM_EPS};
        assert_int_equal(count_misses(0, &c, 1.0) > 0, is_normed(gate_norm));
    }
#endif
}

static void an_output_off_by_two_to_the_minus_16_is_noticed(void **state) {
    (void)state;
    const struct norm_case c = {HB_GATE_NORM_AFTER, 8, HB_FP32, 1e-5f, HB_OUT_SILU, 0};
    assert_true(count_misses(0, &c, 1.0 + 1.0 / 65536) > N_TOKENS * D_INNER * 95 / 100);
}

/* exp(-z) overflows at z = -89 and exp(z) is subnormal there; the product is still a normal number.
 */
static void gate_far_below_zero_keeps_its_digits(void **state) {
    (void)state;
    struct rig rig;
    assert_true(rig_open(&rig, 0, 1));
    const float z[4] = {-88.9f, -90.0f, -300.0f, 300.0f};
    const float y[4] = {1e6f, 1e6f, 1.0f, 2.0f};
    const struct hb_k_norm args = {.n_tokens = 1,
                                   .d_inner = 4,
                                   .norm_group = 4,
                                   .gate_norm = HB_GATE_ONLY,
                                   .act_dtype = HB_FP32,
                                   .y = rig_device(&rig, y, sizeof y),
                                   .z = rig_device(&rig, z, sizeof z),
                                   .out = rig_device(&rig, NULL, sizeof y)};
    assert_int_equal(rig.k->gated_norm(&args), HB_OK);
    float *out = rig_host(&rig, args.out, sizeof y);
    for (int i = 0; i < 4; i++) {
        const double want = (double)y[i] * (double)z[i] / (1 + exp(-(double)z[i]));
        /* two exponentials and four products; silu(z) itself may be subnormal, with an error of
         * 2^-149 at most */
        const double bound =
            (2 * E_EXP + 4 * U32) * fabs(want) + ldexp(fabs((double)y[i]), -149) + FLOOR;
        assert_true(is_near((double)out[i], want, bound));
    }
    free(out);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_matches_double_arithmetic),
        cmocka_unit_test(an_output_off_by_two_to_the_minus_16_is_noticed),
        cmocka_unit_test(planted_defects_are_noticed),
        cmocka_unit_test(gate_far_below_zero_keeps_its_digits),
    };
    return cmocka_run_group_tests_name("norm_gate", tests, NULL, NULL);
}
