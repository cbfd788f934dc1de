/* SPDX-License-Identifier: Apache-2.0
 * Conversions of fp16: every one of its 65,536 numbers, the edges between each two neighbours, and
 * all exponents of fp32, against arithmetic in double and, where the compiler has it, _Float16. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "backend/adapter.h"
#include "harness/values.h"

enum { INFINITE = 0x7c00, SIGN = 0x8000 };

static uint32_t bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* From the definition: sign, exponent field e, digits d: 2^(e-15) (1 + d/1024), or d 2^-24 for e =
 * 0. The infinite one counts as 2^16, the number that would follow. */
static double value_of(uint32_t h) {
    const int e = (int)(h >> 10 & 31);
    const double d = h & 0x3ff;
    const double size = e == 0 ? ldexp(d, -24) : ldexp(1024.0 + d, e - 25);
    return h & SIGN ? -size : size;
}

static void widening_is_exact(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const float x = hb_fp16_to_float((uint16_t)h);
        const uint32_t size = h & 0x7fff;
        if (size > INFINITE) {
            assert_true(isnan(x));
        } else if (size == INFINITE) {
            assert_true(isinf(x) && (x < 0) == (h != size));
        } else {
            assert_true((double)x == value_of(h));
            assert_int_equal(bits(x) >> 31, h >> 15); /* -0 too */
        }
    }
}

static void narrowing_is_the_inverse(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const uint16_t back = hb_fp16_from_float(hb_fp16_to_float((uint16_t)h));
        assert_int_equal(back, (h & 0x7fff) > INFINITE ? 0x7fff : h);
    }
}

/* Narrowing is monotonic between two edges, so the edges and the middles say everything. */
static void rounds_to_nearest_even_between_all_neighbours(void **state) {
    (void)state;
    for (uint32_t h = 0; h < INFINITE; h++) {
        const float middle = (float)(0.5 * (value_of(h) + value_of(h + 1))); /* 12 bits: exact */
        const uint32_t even = h & 1 ? h + 1 : h;
        for (uint32_t sign = 0; sign < 2; sign++) {
            const uint32_t s = sign * SIGN;
            const float m = sign ? -middle : middle;
            assert_int_equal(hb_fp16_from_float(m), s + even);
            assert_int_equal(hb_fp16_from_float(from_bits(bits(m) - 1)), s + h);
            assert_int_equal(hb_fp16_from_float(from_bits(bits(m) + 1)), s + h + 1);
        }
    }
}

/* Digits at which carries happen, under each exponent of fp32. */
static void every_exponent_rounds_as_in_double(void **state) {
    (void)state;
    static const uint32_t digits[] = {0,        1,        0xfff,    0x1000,   0x1001,   0x1fff,
                                      0x2000,   0x2fff,   0x3000,   0x3001,   0x3fffff, 0x400000,
                                      0x400001, 0x7fefff, 0x7ff000, 0x7ff001, 0x7fffff};
    for (uint32_t e = 0; e < 256; e++) {
        for (size_t k = 0; k < sizeof digits / sizeof *digits; k++) {
            const float x = from_bits(e << 23 | digits[k]);
            const uint16_t got = hb_fp16_from_float(x);
            if (isnan(x)) {
                assert_int_equal(got, 0x7fff);
                continue;
            }
            /* one step: 2^-24, or 2^-10 of the power of two below */
            const double size = (double)x;
            const int step = size < 0x1p-14 ? -24 : ilogb(size) - 10;
            const double want =
                size < 65520.0 ? ldexp(nearbyint(ldexp(size, -step)), step) : 0x1p16;
            assert_true(value_of(got) == want);
            assert_int_equal(hb_fp16_from_float(-x), got | SIGN);
        }
    }
}

static void agrees_with_the_compiler(void **state) {
    (void)state;
#ifdef __FLT16_MAX__
    for (uint32_t i = 0; i < 1U << 22; i++) {
        const float x = from_bits(i * UINT32_C(1013) + (i >> 3)); /* all exponents, both signs */
        const _Float16 half = (_Float16)x;
        uint16_t want;
        memcpy(&want, &half, sizeof want);
        if (!isnan(x)) {
            assert_int_equal(hb_fp16_from_float(x), want);
        }
    }
#else
    skip();
#endif
}

static void packs_two_bytes_each_at_any_alignment(void **state) {
    (void)state;
    static const float values[] = {0.0f, -0.0f, 1.0f, 1.00048828125f, -65504.0f, 0x1p-24f, 1e6f};
    enum { COUNT = sizeof values / sizeof *values };
    unsigned char raw[2 * COUNT + 2] = {0};
    float back[COUNT];
    raw[2 * COUNT + 1] = 77;
    hb_pack(HB_FP16, values, COUNT, raw + 1);
    assert_int_equal(raw[2 * COUNT + 1], 77);
    hb_unpack(HB_FP16, raw + 1, COUNT, back);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(bits(back[i]), bits(hb_fp16_to_float(hb_fp16_from_float(values[i]))));
    }
    assert_true(isinf(back[COUNT - 1]));
    assert_true(back[3] == 1.0f); /* a tie */
    assert_int_equal(hb_dtype_bytes(HB_FP16), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widening_is_exact),
        cmocka_unit_test(narrowing_is_the_inverse),
        cmocka_unit_test(rounds_to_nearest_even_between_all_neighbours),
        cmocka_unit_test(every_exponent_rounds_as_in_double),
        cmocka_unit_test(agrees_with_the_compiler),
        cmocka_unit_test(packs_two_bytes_each_at_any_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
