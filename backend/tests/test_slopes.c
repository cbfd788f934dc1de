/* SPDX-License-Identifier: Apache-2.0
 * Slopes of lightning attention against numbers worked out by hand from ops-delta.md section 3. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>

#include "backend/defects.h"
#include "backend/slopes.h"

enum { MOST_HEADS = 12 };

/* A slope and what it must be, to the last bit of fp32 or its neighbour. */
static void check(int32_t kind, int32_t factor, int32_t n_layers, int32_t layer, int32_t n_heads,
                  const double *slopes) {
    const struct hb_config config = {.n_layers = n_layers,
                                     .n_heads = n_heads,
                                     .slope_kind = kind,
                                     .layer_factor = factor};
    float got[MOST_HEADS];
    assert_int_equal(hb_slopes_fill(&config, layer, got), 1);
    for (int32_t h = 0; h < n_heads; h++) {
        assert_true(fabs((double)got[h] + slopes[h]) <= 0x1p-23 * fabs(slopes[h]));
    }
}

static void alibi_of_a_power_of_two(void **state) {
    (void)state;
    check(HB_SLOPE_ALIBI, HB_FACTOR_NONE, 1, 0, 1, (double[]){0x1p-8});
    check(HB_SLOPE_ALIBI, HB_FACTOR_NONE, 1, 0, 4, (double[]){0x1p-2, 0x1p-4, 0x1p-6, 0x1p-8});
    check(HB_SLOPE_ALIBI, HB_FACTOR_NONE, 8, 3, 8,
          (double[]){0.5, 0.25, 0.125, 0x1p-4, 0x1p-5, 0x1p-6, 0x1p-7, 0x1p-8});
}

/* The list of the power below, then every other entry of the list of the power above. */
static void alibi_of_other_head_counts(void **state) {
    (void)state;
    check(HB_SLOPE_ALIBI, HB_FACTOR_NONE, 1, 0, 3, (double[]){0x1p-4, 0x1p-8, 0x1p-2});
    check(HB_SLOPE_ALIBI, HB_FACTOR_NONE, 1, 0, 6,
          (double[]){0x1p-2, 0x1p-4, 0x1p-6, 0x1p-8, 0x1p-1, 0x1p-3});
    check(HB_SLOPE_ALIBI, HB_FACTOR_NONE, 1, 0, 12,
          (double[]){0.5, 0.25, 0.125, 0x1p-4, 0x1p-5, 0x1p-6, 0x1p-7, 0x1p-8, 0.70710678118654752,
                     0.35355339059327376, 0.17677669529663688, 0.088388347648318441});
}

static void minimax_takes_the_power_for_every_head_count(void **state) {
    (void)state;
    check(HB_SLOPE_MINIMAX, HB_FACTOR_NONE, 1, 0, 2, (double[]){0x1p-4, 0x1p-8});
    check(HB_SLOPE_MINIMAX, HB_FACTOR_NONE, 1, 0, 6,
          (double[]){0.39685026299204986, 0.15749013123685915, 0x1p-4, 0.024803141437003116,
                     0.0098431332023036969, 0x1p-8});
}

static void factors_by_layer(void **state) {
    (void)state;
    const double base = 0x1p-8; /* of one head */
    const struct {
        int32_t factor, n_layers, layer;
        double want;
    } rows[] = {
        {HB_FACTOR_MINIMAX, 8, 0, 1.00001},
        {HB_FACTOR_MINIMAX, 8, 7, 1.142856939e-5}, /* 1e-5 / 7.00001 + 1e-5 */
        {HB_FACTOR_MINIMAX, 1, 0, 1.00001},
        {HB_FACTOR_LING, 5, 0, 1.00001},
        {HB_FACTOR_LING, 5, 2, 0.50001},
        {HB_FACTOR_LING, 5, 4, 0.00001},
        {HB_FACTOR_LING, 1, 0, 1.00001},
        {HB_FACTOR_LING_OFF, 5, 0, 1.25001},
        {HB_FACTOR_LING_OFF, 5, 1, 1.00001},
        {HB_FACTOR_LING_OFF, 5, 4, 0.25001},
        {HB_FACTOR_LING_OFF, 1, 0, 1.00001},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double want = base * rows[i].want;
        check(HB_SLOPE_ALIBI, rows[i].factor, rows[i].n_layers, rows[i].layer, 1, &want);
        check(HB_SLOPE_MINIMAX, rows[i].factor, rows[i].n_layers, rows[i].layer, 1, &want);
    }
}

/* Head 0 does not decay; the factor variant is not looked at. */
static void fla_slopes_are_linear_in_the_head(void **state) {
    (void)state;
    check(HB_SLOPE_FLA, HB_FACTOR_NONE, 4, 1, 4, (double[]){0, 1.5, 3, 4.5});
    check(HB_SLOPE_FLA, HB_FACTOR_MINIMAX, 4, 3, 2, (double[]){0, 1});
}

static void given_decays_are_left_alone(void **state) {
    (void)state;
    const int32_t kinds[] = {HB_SLOPE_PARAM, HB_SLOPE_TOKEN};
    for (size_t i = 0; i < 2; i++) {
        const struct hb_config config = {.n_layers = 1, .n_heads = 1, .slope_kind = kinds[i]};
        float got = 7;
        assert_int_equal(hb_slopes_fill(&config, 0, &got), 0);
        assert_true(got == 7);
    }
}

/* One layer off: the factor of LING's layer 2 is that of LING_OFF's layer 3. */
static void wrong_layer_is_noticed(void **state) {
    (void)state;
    struct hb_config config = {.n_layers = 5,
                               .n_heads = 1,
                               .slope_kind = HB_SLOPE_ALIBI,
                               .layer_factor = HB_FACTOR_LING,
                               .defect = HB_DEFECT_LAYER_FACTOR};
    const double wrong = 0x1p-8 * 0.25001;
    const double right = 0x1p-8 * 0.50001;
    float got;
    assert_int_equal(hb_slopes_fill(&config, 2, &got), 1);
    const double want = HB_DEFECT(config.defect, LAYER_FACTOR) ? wrong : right;
    assert_true(fabs((double)got + want) <= 0x1p-23 * want);
    config.defect = 0;
    assert_int_equal(hb_slopes_fill(&config, 2, &got), 1);
    assert_true(fabs((double)got + right) <= 0x1p-23 * right);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alibi_of_a_power_of_two),
        cmocka_unit_test(alibi_of_other_head_counts),
        cmocka_unit_test(minimax_takes_the_power_for_every_head_count),
        cmocka_unit_test(factors_by_layer),
        cmocka_unit_test(fla_slopes_are_linear_in_the_head),
        cmocka_unit_test(given_decays_are_left_alone),
        cmocka_unit_test(wrong_layer_is_noticed),
    };
    return cmocka_run_group_tests_name("slopes", tests, NULL, NULL);
}
