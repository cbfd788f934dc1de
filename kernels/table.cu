/* SPDX-License-Identifier: Apache-2.0
 * The table of this build: launchers, device memory, names. The two halves differ only in how
 * memory is got. */
#include <stdio.h>
#include <string.h>

#include "kernels/launchers.cuh"

#ifdef __CUDACC__

#include <stdlib.h>

/* Freed blocks are kept by size class (powers of two from 256 bytes), because cudaMalloc and
 * cudaFree wait for the device and a run creates and destroys a backend for every case. */
enum { N_CLASSES = 40, SMALLEST_CLASS = 8 };

struct block {
    void *ptr;
    int32_t size_class, is_used;
};

static struct block *blocks;
static size_t n_blocks, max_blocks;
static uint64_t n_launches;
static char error_text[256];

static int32_t check(cudaError_t error, const char *call, const char *file, int32_t line) {
    if (error == cudaSuccess) {
        return HB_OK;
    }
    (void)snprintf(error_text, sizeof error_text, "%s: %s (%s:%d)", call, cudaGetErrorString(error),
                   file, line);
    return HB_ERR_DEVICE;
}

#define HB_CUDA(call) check((call), #call, __FILE__, __LINE__)

extern "C" int32_t HB_K(hb_launch_status)(const char *kernel, const char *file, int32_t line) {
    n_launches++;
    return check(cudaGetLastError(), kernel, file, line);
}

static uint64_t count_launches(void) {
    return n_launches;
}

static const char *get_error_text(void) {
    return error_text;
}

static int32_t open_device(void) {
    int n_devices = 0;
    const int32_t status = HB_CUDA(cudaGetDeviceCount(&n_devices));
    if (status != HB_OK) {
        (void)cudaGetLastError();
        return status;
    }
    if (n_devices == 0) {
        (void)snprintf(error_text, sizeof error_text, "no CUDA device");
        return HB_ERR_DEVICE;
    }
    return HB_CUDA(cudaFree(nullptr)); /* creates the context */
}

static int32_t class_of(uint64_t bytes) {
    int32_t size_class = 0;
    while (size_class < N_CLASSES && ((uint64_t)1 << (size_class + SMALLEST_CLASS)) < bytes) {
        size_class++;
    }
    return size_class;
}

static struct block *find_free(int32_t size_class) {
    for (size_t i = 0; i < n_blocks; i++) {
        if (!blocks[i].is_used && blocks[i].size_class == size_class) {
            return &blocks[i];
        }
    }
    return nullptr;
}

static struct block *add_block(int32_t size_class) {
    if (n_blocks == max_blocks) {
        const size_t more = max_blocks ? 2 * max_blocks : 64;
        struct block *bigger = (struct block *)realloc(blocks, more * sizeof *bigger);
        if (!bigger) {
            return nullptr;
        }
        blocks = bigger;
        max_blocks = more;
    }
    void *ptr = nullptr;
    if (HB_CUDA(cudaMalloc(&ptr, (size_t)1 << (size_class + SMALLEST_CLASS))) != HB_OK) {
        (void)cudaGetLastError(); /* out of memory is not sticky */
        return nullptr;
    }
    blocks[n_blocks].ptr = ptr;
    blocks[n_blocks].size_class = size_class;
    return &blocks[n_blocks++];
}

static int32_t mem_alloc(uint64_t bytes, void **out) {
    const int32_t size_class = class_of(bytes);
    struct block *found = size_class < N_CLASSES ? find_free(size_class) : nullptr;
    if (!found && size_class < N_CLASSES) {
        found = add_block(size_class);
    }
    if (!found) {
        (void)snprintf(error_text, sizeof error_text, "no device memory for %llu bytes",
                       (unsigned long long)bytes);
        return HB_ERR_MEMORY;
    }
    const int32_t status =
        HB_CUDA(cudaMemset(found->ptr, 0xff, (size_t)1 << (size_class + SMALLEST_CLASS)));
    found->is_used = status == HB_OK;
    if (status == HB_OK) {
        *out = found->ptr;
    }
    return status;
}

static void mem_free(void *ptr) {
    for (size_t i = 0; ptr && i < n_blocks; i++) {
        if (blocks[i].ptr == ptr) {
            blocks[i].is_used = 0;
        }
    }
}

static int32_t to_device(void *dst, const void *src, uint64_t bytes) {
    return HB_CUDA(cudaMemcpy(dst, src, (size_t)bytes, cudaMemcpyHostToDevice));
}

static int32_t to_host(void *dst, const void *src, uint64_t bytes) {
    return HB_CUDA(cudaMemcpy(dst, src, (size_t)bytes, cudaMemcpyDeviceToHost));
}

static int32_t fill(void *dst, int32_t byte, uint64_t bytes) {
    return HB_CUDA(cudaMemset(dst, byte, (size_t)bytes));
}

static int32_t sync_device(void) {
    return HB_CUDA(cudaDeviceSynchronize());
}

static void set_order(int32_t thread_order, int32_t block_order, uint32_t seed) {
    (void)thread_order;
    (void)block_order;
    (void)seed;
}

extern "C" int32_t HB_K(hb_launch_refused)(const char *kernel, const char *field, int32_t value,
                                           int32_t limit) {
    (void)snprintf(error_text, sizeof error_text, "%s: %s %d is larger than %d", kernel, field,
                   value, limit);
    return HB_ERR_DEVICE;
}

#define HB_TABLE_NAME "cuda"
#define HB_TABLE_IS_DEVICE 1
#define HB_TABLE_GUARDS 0

#else

static uint64_t count_launches(void) {
    return hb_emu_launches();
}

static const char *get_error_text(void) {
    return hb_emu_error_text();
}

static int32_t open_device(void) {
    return HB_OK;
}

static int32_t mem_alloc(uint64_t bytes, void **out) {
    void *ptr = hb_emu_mem_alloc(bytes);
    if (!ptr) {
        char text[64];
        (void)snprintf(text, sizeof text, "no device memory for %llu bytes",
                       (unsigned long long)bytes);
        return hb_emu_fail(HB_ERR_MEMORY, text);
    }
    *out = ptr;
    return HB_OK;
}

static void mem_free(void *ptr) {
    hb_emu_mem_free(ptr);
}

static int32_t to_device(void *dst, const void *src, uint64_t bytes) {
    if (bytes) {
        memcpy(dst, src, (size_t)bytes);
    }
    return HB_OK;
}

static int32_t to_host(void *dst, const void *src, uint64_t bytes) {
    return to_device(dst, src, bytes);
}

static int32_t fill(void *dst, int32_t byte, uint64_t bytes) {
    if (bytes) {
        memset(dst, byte, (size_t)bytes);
    }
    return HB_OK;
}

static int32_t sync_device(void) {
    return HB_OK;
}

static void set_order(int32_t thread_order, int32_t block_order, uint32_t seed) {
    hb_emu_set_order(thread_order, block_order, seed);
}

extern "C" int32_t HB_K(hb_launch_refused)(const char *kernel, const char *field, int32_t value,
                                           int32_t limit) {
    char text[128];
    (void)snprintf(text, sizeof text, "%s: %s %d is larger than %d", kernel, field, value, limit);
    return hb_emu_fail(HB_ERR_DEVICE, text);
}

#define HB_TABLE_NAME "emu"
#define HB_TABLE_IS_DEVICE 0
#define HB_TABLE_GUARDS hb_emu_exact_guards()

#endif

extern "C" const struct hb_kernels *HB_K(hb_kernels)(void) {
    static struct hb_kernels table;
    if (table.struct_size == 0) {
        table.name = HB_TABLE_NAME;
        table.is_device_code = HB_TABLE_IS_DEVICE;
        table.exact_guards = HB_TABLE_GUARDS;
        table.error_text = get_error_text;
        table.open = open_device;
        table.mem_alloc = mem_alloc;
        table.mem_free = mem_free;
        table.to_device = to_device;
        table.to_host = to_host;
        table.fill = fill;
        table.sync = sync_device;
        table.set_order = set_order;
        table.launches = count_launches;
        table.conv_prefill = HB_K(hb_k_conv_prefill);
        table.conv_update = HB_K(hb_k_conv_update);
        table.conv_track = HB_K(hb_k_conv_track);
        table.ssd_prefill = HB_K(hb_k_ssd_prefill);
        table.ssm_update = HB_K(hb_k_ssm_update);
        table.ssm_ring = HB_K(hb_k_ssm_ring);
        table.conv_verify = HB_K(hb_k_conv_verify);
        table.ssm_verify = HB_K(hb_k_ssm_verify);
        table.gated_norm = HB_K(hb_k_gated_norm);
        table.slots = HB_K(hb_k_slots);
        table.windows = HB_K(hb_k_windows);
        table.kv_write = HB_K(hb_k_kv_write);
        table.attention = HB_K(hb_k_attention);
        table.struct_size = (uint32_t)sizeof table;
    }
    return &table;
}
