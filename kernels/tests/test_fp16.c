/* SPDX-License-Identifier: Apache-2.0
 * fp16 conversions: all 65,536 values both ways, ties, neighbours, subnormals, infinities, NaN, and
 * agreement with the compiler's own half type where it has one. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kernels/fp16.cuh"

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Value of a pattern by its definition; infinity and NaN are looked at elsewhere. */
static double defined_value(uint32_t half) {
    const int exponent = (int)(half >> 10 & 0x1fU);
    const int mantissa = (int)(half & 0x3ffU);
    const double magnitude =
        exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return half & 0x8000U ? -magnitude : magnitude;
}

static void widening_gives_the_defined_value(void **state) {
    (void)state;
    for (uint32_t half = 0; half <= 0xffffU; half++) {
        const float value = hb_fp16_to_float((uint16_t)half);
        if ((half & 0x7c00U) != 0x7c00U) {
            assert_true((double)value == defined_value(half));
            assert_int_equal(signbit(value) != 0, half >> 15);
        } else if ((half & 0x3ffU) == 0) {
            assert_true(isinf(value) && (value < 0) == (half >> 15 != 0));
        } else {
            assert_true(isnan(value));
        }
    }
}

static void widening_then_narrowing_is_identity(void **state) {
    (void)state;
    for (uint32_t half = 0; half <= 0xffffU; half++) {
        const float value = hb_fp16_to_float((uint16_t)half);
        assert_int_equal(hb_fp16_from_float(value), isnan(value) ? 0x7fffU : half);
    }
}

/* Between each pair of neighbours: the middle goes to the even one, the fp32 numbers beside the
 * middle to the nearer one. The last pair is 65504 and what would be 65536. */
static void ties_go_to_even(void **state) {
    (void)state;
    for (uint32_t low = 0; low < 0x7c00U; low++) {
        const double up = low == 0x7bffU ? 65536.0 : defined_value(low + 1);
        const float middle = (float)((defined_value(low) + up) / 2); /* exact: 12 digits */
        const uint32_t even = low & 1U ? low + 1 : low;
        assert_int_equal(hb_fp16_from_float(middle), even);
        assert_int_equal(hb_fp16_from_float(-middle), even | 0x8000U);
        assert_int_equal(hb_fp16_from_float(nextafterf(middle, 0.0F)), low);
        assert_int_equal(hb_fp16_from_float(nextafterf(middle, INFINITY)), low + 1);
    }
}

static void nearest_of_the_two_neighbours(void **state) {
    (void)state;
    uint32_t bits = 12345;
    for (int i = 0; i < 200000; i++) {
        bits = bits * 1664525U + 1013904223U;
        /* exponents -26 .. 15, where fp16 has numbers */
        const float value = float_of((bits & 0x7fffffU) | (101U + (bits >> 24) % 42U) << 23);
        const uint16_t got = hb_fp16_from_float(value);
        if (got >= 0x7c00U) {
            assert_true(value >= 65520.0F);
            continue;
        }
        const double error = fabs(defined_value(got) - (double)value);
        if (got > 0) {
            assert_true(error <= fabs(defined_value(got - 1U) - (double)value));
        }
        if (got < 0x7bffU) {
            assert_true(error <= fabs(defined_value(got + 1U) - (double)value));
        }
    }
}

static void overflow_infinity_and_nan(void **state) {
    (void)state;
    assert_int_equal(hb_fp16_from_float(INFINITY), 0x7c00);
    assert_int_equal(hb_fp16_from_float(-INFINITY), 0xfc00);
    assert_int_equal(hb_fp16_from_float(65519.996F), 0x7bff);
    assert_int_equal(hb_fp16_from_float(65520.0F), 0x7c00);
    assert_int_equal(hb_fp16_from_float(float_of(0x7f7fffffU)), 0x7c00);
    assert_int_equal(hb_fp16_from_float(float_of(0x7f800001U)), 0x7fff);
    assert_int_equal(hb_fp16_from_float(float_of(0xffffffffU)), 0x7fff);
    assert_int_equal(hb_fp16_from_float(-0.0F), 0x8000);
    assert_int_equal(hb_fp16_from_float(0x1p-25F), 0);
    assert_int_equal(hb_fp16_from_float(float_of(0x33000001U)), 1);
    assert_int_equal(hb_fp16_from_float(float_of(1U)), 0); /* a subnormal fp32 number */
    assert_int_equal(hb_fp16_from_float(-0x1p-140F), 0x8000);
}

#ifdef __FLT16_MANT_DIG__
/* Every fp16 pattern, and fp32 numbers of every exponent with mantissas that round each way. */
static void compiler_conversions_agree(void **state) {
    (void)state;
    for (uint32_t half = 0; half <= 0xffffU; half++) {
        const uint16_t bits = (uint16_t)half;
        _Float16 value;
        memcpy(&value, &bits, sizeof value);
        const float want = (float)value;
        const float got = hb_fp16_to_float(bits);
        assert_true(isnan(want) ? isnan(got) : memcmp(&want, &got, sizeof want) == 0);
    }
    uint32_t seed = 7;
    for (uint32_t high = 0; high <= 0x1ffU; high++) { /* sign and exponent */
        for (uint32_t i = 0; i < 2048; i++) {
            seed = seed * 1664525U + 1013904223U;
            const uint32_t low = i < 1024 ? i << 13 | (i & 1U ? 0x1000U : 0xfffU) : seed >> 9;
            const float x = float_of(high << 23 | low);
            const _Float16 want = (_Float16)x;
            uint16_t bits;
            memcpy(&bits, &want, sizeof bits);
            assert_int_equal(hb_fp16_from_float(x), isnan(x) ? 0x7fffU : bits);
        }
    }
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widening_gives_the_defined_value),
        cmocka_unit_test(widening_then_narrowing_is_identity),
        cmocka_unit_test(ties_go_to_even),
        cmocka_unit_test(nearest_of_the_two_neighbours),
        cmocka_unit_test(overflow_infinity_and_nan),
#ifdef __FLT16_MANT_DIG__
        cmocka_unit_test(compiler_conversions_agree),
#endif
    };
    return cmocka_run_group_tests_name("fp16", tests, NULL, NULL);
}
