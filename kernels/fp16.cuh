/* SPDX-License-Identifier: Apache-2.0
 * IEEE binary16 <-> fp32 in integer arithmetic, the same code on host and device, usable from C.
 * Widening is exact. Narrowing rounds to nearest, ties to even, down to the subnormals; every NaN
 * becomes 0x7fff, as the toolkit's conversion does. */
#ifndef HB_KERNELS_FP16_CUH
#define HB_KERNELS_FP16_CUH

#include <stdint.h>

#ifdef __CUDACC__
#define HB_FP16_FN static __host__ __device__ __forceinline__
#else
#define HB_FP16_FN static inline
#endif

HB_FP16_FN float hb_fp16_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000U) << 16;
    const uint32_t exponent = (uint32_t)half >> 10 & 0x1fU;
    const uint32_t mantissa = half & 0x3ffU;
    uint32_t bits = sign | mantissa << 13;
    float result;
    if (exponent == 0x1fU) {
        bits |= 0x7f800000U;
    } else if (exponent != 0) {
        bits |= (exponent + 112U) << 23;
    } else { /* mantissa * 2^-24, a normal fp32 number or zero */
        const float magnitude = (float)(int32_t)mantissa * 0x1p-24f;
        __builtin_memcpy(&bits, &magnitude, sizeof bits);
        bits |= sign;
    }
    __builtin_memcpy(&result, &bits, sizeof result);
    return result;
}

HB_FP16_FN uint16_t hb_fp16_from_float(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000U;
    const uint32_t magnitude = bits & 0x7fffffffU;
    const uint32_t exponent = magnitude >> 23;
    if (magnitude > 0x7f800000U) {
        return 0x7fffU;
    }
    if (magnitude >= 0x47800000U) { /* 2^16 and more */
        return (uint16_t)(sign | 0x7c00U);
    }
    if (magnitude >= 0x38800000U) { /* 2^-14 and more; 65520 and more carry into infinity */
        const uint32_t rounded = magnitude - 0x38000000U + 0xfffU + (magnitude >> 13 & 1U);
        return (uint16_t)(sign | rounded >> 13);
    }
    if (exponent < 102U) { /* less than half of the least subnormal, 2^-24 */
        return (uint16_t)sign;
    }
    const uint32_t shift = 126U - exponent; /* 14 .. 24: to units of 2^-24 */
    const uint32_t digits = (magnitude & 0x7fffffU) | 0x800000U;
    const uint32_t whole = digits >> shift;
    const uint32_t rest = digits & ((1U << shift) - 1U);
    const uint32_t half = 1U << (shift - 1U);
    return (uint16_t)(sign | (whole + (rest > half || (rest == half && (whole & 1U) != 0) ? 1U : 0U)));
}

#endif
