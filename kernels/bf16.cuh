/* SPDX-License-Identifier: Apache-2.0
 * bfloat16 <-> fp32 in integer arithmetic, the same code on host and device, usable from C.
 * A bf16 value is the upper half of an fp32 pattern, so widening is exact. Narrowing rounds to
 * nearest, ties to even; every NaN becomes 0x7fff, as the toolkit's conversion does. */
#ifndef HB_KERNELS_BF16_CUH
#define HB_KERNELS_BF16_CUH

#include <stdint.h>

#ifdef __CUDACC__
#define HB_BF16_FN static __host__ __device__ __forceinline__
#else
#define HB_BF16_FN static inline
#endif

HB_BF16_FN float hb_bf16_to_float(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

HB_BF16_FN uint16_t hb_bf16_from_float(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return 0x7fffU;
    }
    /* adding half a unit minus one, plus the last kept bit, carries exactly when rounding to even
     * goes up; the largest finite values carry into the exponent and become infinity, which is what
     * rounding to nearest asks for */
    bits += 0x7fffU + ((bits >> 16) & 1U);
    return (uint16_t)(bits >> 16);
}

#endif
