/* SPDX-License-Identifier: Apache-2.0
 * bf16 conversions: all 65,536 values, ties, and agreement with a rounding made in double
 * arithmetic. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kernels/bf16.cuh"

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void widening_then_narrowing_is_identity(void **state) {
    (void)state;
    for (uint32_t half = 0; half <= 0xffffU; half++) {
        const float value = hb_bf16_to_float((uint16_t)half);
        const uint16_t back = hb_bf16_from_float(value);
        if (isnan(value)) {
            assert_int_equal(back, 0x7fff);
        } else {
            assert_int_equal(back, half);
        }
    }
}

static void widening_keeps_the_upper_half(void **state) {
    (void)state;
    for (uint32_t half = 0; half <= 0xffffU; half++) {
        const float value = hb_bf16_to_float((uint16_t)half);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (!isnan(value)) {
            assert_int_equal(bits, half << 16);
        }
    }
}

static void ties_go_to_even(void **state) {
    (void)state;
    for (uint32_t half = 0; half < 0x7f7fU; half++) {
        const uint32_t even = half & 1U ? half + 1 : half;
        assert_int_equal(hb_bf16_from_float(float_of(half << 16 | 0x8000U)), even);
        assert_int_equal(hb_bf16_from_float(float_of((half | 0x8000U) << 16 | 0x8000U)),
                         even | 0x8000U);
        assert_int_equal(hb_bf16_from_float(float_of(half << 16 | 0x7fffU)), half);
        assert_int_equal(hb_bf16_from_float(float_of(half << 16 | 0x8001U)), half + 1);
    }
}

static void nearest_of_the_two_neighbours(void **state) {
    (void)state;
    uint32_t bits = 12345;
    for (int i = 0; i < 200000; i++) {
        bits = bits * 1664525U + 1013904223U;
        const float value = float_of(bits & 0x7fffffffU);
        if (!(fabsf(value) < 3.0e38f)) {
            continue;
        }
        const uint16_t low = (uint16_t)((bits & 0x7fffffffU) >> 16);
        const double down = (double)value - (double)hb_bf16_to_float(low);
        const double up = (double)hb_bf16_to_float((uint16_t)(low + 1)) - (double)value;
        const uint16_t got = hb_bf16_from_float(value);
        if (down < up) {
            assert_int_equal(got, low);
        } else if (up < down) {
            assert_int_equal(got, low + 1);
        }
    }
}

static void overflow_and_infinity(void **state) {
    (void)state;
    assert_int_equal(hb_bf16_from_float(INFINITY), 0x7f80);
    assert_int_equal(hb_bf16_from_float(-INFINITY), 0xff80);
    assert_int_equal(hb_bf16_from_float(float_of(0x7f7fffffU)),
                     0x7f80); /* largest fp32 rounds to infinity */
    assert_int_equal(hb_bf16_from_float(float_of(0x7f7f7fffU)), 0x7f7f);
    assert_int_equal(hb_bf16_from_float(float_of(0x7f800001U)),
                     0x7fff); /* a NaN whose payload sits in the lower half */
    assert_int_equal(hb_bf16_from_float(float_of(0xffffffffU)), 0x7fff);
    assert_int_equal(hb_bf16_from_float(-0.0f), 0x8000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widening_then_narrowing_is_identity),
        cmocka_unit_test(widening_keeps_the_upper_half),
        cmocka_unit_test(ties_go_to_even),
        cmocka_unit_test(nearest_of_the_two_neighbours),
        cmocka_unit_test(overflow_and_infinity),
    };
    return cmocka_run_group_tests_name("bf16", tests, NULL, NULL);
}
