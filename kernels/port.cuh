/* SPDX-License-Identifier: Apache-2.0
 * What the kernel sources are written in: C with a few words that mean CUDA under nvcc and the
 * emulator elsewhere. The emulated build is C++ without the standard library and without a CUDA
 * header. */
/* clang-format off */
/*
 *   HB_K(name)                    external name of this build: name_cuda or name_emu
 *   HB_KERNEL(name, type, args)   head of a kernel; args is one const struct, by value on the GPU
 *   HB_INLINE                     a helper of kernels
 *   HB_LAUNCH(kernel, grid, threads, shared_bytes, flags, args)
 *                                 runs it; args is a pointer, the value is a status
 *   HB_NO_SYNC, HB_SYNC           flags: barriers and warp operations need HB_SYNC; it costs fibers
 *   HB_GRID(x, y, z)              grid; HB_BLOCK_X, _Y, _Z are the block's place in it,
 *                                 HB_THREAD of HB_THREADS the thread's in the block
 *   HB_SYNCTHREADS()              barrier; never in divergent code
 *   HB_MUL(a, b), HB_MUL_ADD(a, b, c)
 *                                 product, product plus sum, each rounded: nvcc may not fuse them
 *   hb_vec4                       four floats (or 16 bytes to copy), 16-byte aligned; hb_zero4(),
 *                                 hb_lane4(x, i), hb_scale4(a, x) = a x,
 *                                 hb_add_scaled4(y, a, x) = y + a x
 *   HB_WARP_SUM(values, count)    each lane of the warp gets the sum over its lanes, count times
 *   HB_SHARED_BEGIN               before the first HB_SHARED of a kernel
 *   HB_SHARED(type, name, count)  an array in shared memory, of run-time size; one a line
 *   HB_SHARED_BYTES(type, count)  what one such array adds to the launch's request
 *   HB_SIZE(cuda, emu)            a block or tile size that differs between the builds
 */
/* clang-format on */
#ifndef HB_KERNELS_PORT_CUH
#define HB_KERNELS_PORT_CUH

#include <stddef.h>
#include <stdint.h>

#include "backend/caps.h"
#include "backend/defects.h"
#include "backend/status.h"
#include "kernels/bf16.cuh"
#include "kernels/fp16.cuh"
#include "kernels/kernels.h"

/* NOLINTBEGIN(bugprone-macro-parentheses): types and names cannot stand in parentheses */
#define HB_PASTE_(a, b) a##b
#define HB_PASTE(a, b) HB_PASTE_(a, b)
#define HB_SHARED_BYTES(type, count) (((size_t)(count) * sizeof(type) + 15) & ~(size_t)15)
#define HB_BLOCK_X ((int32_t)blockIdx.x)
#define HB_BLOCK_Y ((int32_t)blockIdx.y)
#define HB_BLOCK_Z ((int32_t)blockIdx.z)
#define HB_THREAD ((int32_t)threadIdx.x)
#define HB_THREADS ((int32_t)blockDim.x)

#ifdef __CUDACC__

#define HB_K(name) HB_PASTE(name, _cuda)
#define HB_SIZE(cuda, emu) (cuda)
#define HB_INLINE static __device__ __forceinline__
#define HB_KERNEL(name, type, args) static __global__ void name(const type args)
#define HB_GRID(x, y, z) dim3((unsigned)(x), (unsigned)(y), (unsigned)(z))
enum { HB_NO_SYNC = 0, HB_SYNC = 1 };
/* args: pointer to the struct */
#define HB_LAUNCH(kernel, grid, threads, shared_bytes, flags, args)                                \
    ((void)(flags),                                                                                \
     kernel<<<(grid), (unsigned)(threads), (shared_bytes), HB_K(hb_launch_stream)()>>>(*(args)),   \
     HB_K(hb_launch_status)(#kernel, __FILE__, __LINE__))
#define HB_SYNCTHREADS() __syncthreads()
#define HB_MUL(a, b) __fmul_rn((a), (b))
#define HB_MUL_ADD(a, b, c) __fadd_rn(__fmul_rn((a), (b)), (c))
#define HB_WARP_SUM(values, count) hb_warp_sum((values), (count))
#define HB_SHARED_BEGIN                                                                            \
    extern __shared__ __align__(16) unsigned char hb_shared_bytes[];                               \
    unsigned char *hb_shared_next = hb_shared_bytes
#define HB_SHARED(type, name, count)                                                               \
    type *const name = (type *)hb_shared_next;                                                     \
    hb_shared_next += HB_SHARED_BYTES(type, count)

/* The one stream of this table (table.cu): a graph is recorded from it. */
extern "C" cudaStream_t HB_K(hb_launch_stream)(void);
/* Counts the launch and turns a launch error into HB_ERR_DEVICE (table.cu). */
extern "C" int32_t HB_K(hb_launch_status)(const char *kernel, const char *file, int32_t line);

/* Four floats of shared memory at a time. */
typedef float4 hb_vec4;
HB_INLINE hb_vec4 hb_zero4(void) {
    return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}
HB_INLINE float hb_lane4(const hb_vec4 &x, int32_t i) {
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}
HB_INLINE hb_vec4 hb_scale4(float a, const hb_vec4 &x) {
    return make_float4(a * x.x, a * x.y, a * x.z, a * x.w);
}
HB_INLINE hb_vec4 hb_add_scaled4(const hb_vec4 &y, float a, const hb_vec4 &x) {
    return make_float4(y.x + a * x.x, y.y + a * x.y, y.z + a * x.z, y.w + a * x.w);
}

HB_INLINE float hb_exp(float x) {
    return expf(x);
}
HB_INLINE float hb_log1p(float x) {
    return log1pf(x);
}
HB_INLINE float hb_sqrt(float x) {
    return sqrtf(x);
}
HB_INLINE float hb_tanh(float x) {
    return tanhf(x);
}

/* Lanes that the last warp lacks count as zero; after the butterfly only lane 0 has then seen every
 * lane. */
HB_INLINE void hb_warp_sum(float *values, int32_t count) {
    const int32_t lane = HB_THREAD % 32;
    const int32_t left = HB_THREADS - (HB_THREAD - lane);
    const int32_t n_lanes = left < 32 ? left : 32;
    const unsigned mask = n_lanes == 32 ? 0xffffffffU : (1U << n_lanes) - 1U;
    for (int32_t v = 0; v < count; v++) {
        float sum = values[v];
        for (int32_t offset = 16; offset > 0; offset /= 2) {
            const float other = __shfl_xor_sync(mask, sum, offset);
            sum += (lane ^ offset) < n_lanes ? other : 0.0f;
        }
        values[v] = __shfl_sync(mask, sum, 0);
    }
}

#else

#include "kernels/emu/emu.h"

#define HB_K(name) HB_PASTE(name, _emu)
#define HB_SIZE(cuda, emu) (emu)
/* as on the GPU: helpers inlined and arguments by value, so that arguments live in registers and
 * only the kernel's own memory accesses are instrumented */
#define HB_INLINE static inline __attribute__((always_inline))
#define threadIdx hb_emu_thread_idx
#define blockIdx hb_emu_block_idx
#define blockDim hb_emu_block_dim
#define gridDim hb_emu_grid_dim
enum { HB_NO_SYNC = HB_EMU_NO_SYNC, HB_SYNC = HB_EMU_SYNC };
#define HB_KERNEL(name, type, args)                                                                \
    HB_INLINE void name(const type args);                                                          \
    static void name##_entry(const void *hb_args) {                                                \
        name(*(const type *)hb_args);                                                              \
    }                                                                                              \
    HB_INLINE void name(const type args)
#define HB_GRID(x, y, z)                                                                           \
    hb_emu_dim {                                                                                   \
        (uint32_t)(x), (uint32_t)(y), (uint32_t)(z)                                                \
    }
#define HB_LAUNCH(kernel, grid, threads, shared_bytes, flags, args)                                \
    hb_emu_launch_(#kernel, kernel##_entry, (args), sizeof *(args), (grid), (threads),             \
                   (shared_bytes), (flags))
#define HB_SYNCTHREADS() hb_emu_barrier(__FILE__, __LINE__)
#define HB_MUL(a, b) ((a) * (b)) /* this build does not contract (-ffp-contract=off) */
#define HB_MUL_ADD(a, b, c) ((a) * (b) + (c))
#define HB_WARP_SUM(values, count) hb_emu_warp_sum((values), (count), __FILE__, __LINE__)
#define HB_SHARED_BEGIN (void)0
#define HB_SHARED(type, name, count)                                                               \
    type *const name = (type *)hb_emu_shared(__LINE__, (size_t)(count) * sizeof(type))

static inline int32_t hb_emu_launch_(const char *kernel, void (*entry)(const void *),
                                     const void *args, size_t args_bytes, hb_emu_dim grid,
                                     int32_t n_threads, size_t shared_bytes, int32_t flags) {
    const hb_emu_launch launch = {kernel,       entry, args,      grid, (uint32_t)n_threads,
                                  shared_bytes, flags, args_bytes};
    return hb_emu_run(&launch);
}

/* One instrumented access for four floats; alignment is checked like any other. */
typedef float hb_vec4 __attribute__((vector_size(16), may_alias));
HB_INLINE hb_vec4 hb_zero4(void) {
    return hb_vec4{0.0f, 0.0f, 0.0f, 0.0f};
}
HB_INLINE float hb_lane4(const hb_vec4 &x, int32_t i) {
    return x[i];
}
HB_INLINE hb_vec4 hb_scale4(float a, const hb_vec4 &x) {
    return a * x;
}
HB_INLINE hb_vec4 hb_add_scaled4(const hb_vec4 &y, float a, const hb_vec4 &x) {
    return y + a * x;
}

static inline float hb_exp(float x) {
    return __builtin_expf(x);
}
static inline float hb_log1p(float x) {
    return __builtin_log1pf(x);
}
static inline float hb_sqrt(float x) {
    return __builtin_sqrtf(x);
}
static inline float hb_tanh(float x) {
    return __builtin_tanhf(x);
}

#endif
/* NOLINTEND(bugprone-macro-parentheses) */
#endif
