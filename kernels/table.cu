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
/* every launch, fill and copy, so that a capture of this stream sees them all */
static cudaStream_t stream;

/* A recorded graph. */
struct graph {
    cudaGraphExec_t exec;
    uint64_t n_launches;
};

static struct {
    int32_t is_on, is_broken;
    uint64_t n_launches;
} recorder;

static int32_t check(cudaError_t error, const char *call, const char *file, int32_t line) {
    if (error == cudaSuccess) {
        return HB_OK;
    }
    (void)snprintf(error_text, sizeof error_text, "%s: %s (%s:%d)", call, cudaGetErrorString(error),
                   file, line);
    return HB_ERR_DEVICE;
}

#define HB_CUDA(call) check((call), #call, __FILE__, __LINE__)

extern "C" cudaStream_t HB_K(hb_launch_stream)(void) {
    return stream;
}

static int32_t break_recording(int32_t status) {
    recorder.is_broken |= status != HB_OK;
    return status;
}

/* For what cannot be recorded: HB_OK outside of a recording. */
static int32_t refuse_recording(const char *text) {
    if (!recorder.is_on) {
        return HB_OK;
    }
    (void)snprintf(error_text, sizeof error_text, "%s", text);
    return break_recording(HB_ERR_DEVICE);
}

extern "C" int32_t HB_K(hb_launch_status)(const char *kernel, const char *file, int32_t line) {
    *(recorder.is_on ? &recorder.n_launches : &n_launches) += 1;
    return break_recording(check(cudaGetLastError(), kernel, file, line));
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
    if (stream) {
        return HB_OK;
    }
    /* nothing else uses the device, the default stream neither */
    return HB_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
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
    if (refuse_recording("memory is allocated while a graph is recorded") != HB_OK) {
        return HB_ERR_DEVICE;
    }
    struct block *found = size_class < N_CLASSES ? find_free(size_class) : nullptr;
    if (!found && size_class < N_CLASSES) {
        found = add_block(size_class);
    }
    if (!found) {
        (void)snprintf(error_text, sizeof error_text, "no device memory for %llu bytes",
                       (unsigned long long)bytes);
        return HB_ERR_MEMORY;
    }
    const int32_t status = HB_CUDA(
        cudaMemsetAsync(found->ptr, 0xff, (size_t)1 << (size_class + SMALLEST_CLASS), stream));
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

/* The host's bytes may change as soon as a copy has returned. */
static int32_t copy(void *dst, const void *src, uint64_t bytes, enum cudaMemcpyKind kind) {
    int32_t status = refuse_recording("bytes are copied while a graph is recorded");
    if (status == HB_OK) {
        status = HB_CUDA(cudaMemcpyAsync(dst, src, (size_t)bytes, kind, stream));
    }
    return status == HB_OK ? HB_CUDA(cudaStreamSynchronize(stream)) : status;
}

static int32_t to_device(void *dst, const void *src, uint64_t bytes) {
    return copy(dst, src, bytes, cudaMemcpyHostToDevice);
}

static int32_t to_host(void *dst, const void *src, uint64_t bytes) {
    return copy(dst, src, bytes, cudaMemcpyDeviceToHost);
}

static int32_t fill(void *dst, int32_t byte, uint64_t bytes) {
    return break_recording(HB_CUDA(cudaMemsetAsync(dst, byte, (size_t)bytes, stream)));
}

static int32_t sync_device(void) {
    const int32_t status = refuse_recording("the host waits while a graph is recorded");
    return status == HB_OK ? HB_CUDA(cudaStreamSynchronize(stream)) : status;
}

static int32_t graph_begin(void) {
    if (recorder.is_on) {
        (void)snprintf(error_text, sizeof error_text, "a graph is being recorded");
        return HB_ERR_DEVICE;
    }
    const int32_t status =
        HB_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    recorder.is_on = status == HB_OK;
    recorder.is_broken = 0;
    recorder.n_launches = 0;
    return status;
}

static void graph_free(void *graph) {
    struct graph *g = (struct graph *)graph;
    if (g) {
        (void)cudaGraphExecDestroy(g->exec);
        free(g);
    }
}

/* What was captured as a graph that can be launched. */
static int32_t instantiate(cudaGraph_t captured, void **graph) {
    struct graph *g = (struct graph *)calloc(1, sizeof *g);
    if (!g) {
        (void)snprintf(error_text, sizeof error_text, "out of host memory for a graph");
        return HB_ERR_MEMORY;
    }
    const int32_t status = HB_CUDA(cudaGraphInstantiate(&g->exec, captured, 0));
    if (status != HB_OK) {
        free(g);
        return status;
    }
    g->n_launches = recorder.n_launches;
    *graph = g;
    return HB_OK;
}

static int32_t graph_end(void **graph) {
    cudaGraph_t captured = nullptr;
    if (!recorder.is_on) {
        (void)snprintf(error_text, sizeof error_text, "no graph is being recorded");
        return HB_ERR_DEVICE;
    }
    recorder.is_on = 0;
    const cudaError_t error = cudaStreamEndCapture(stream, &captured);
    int32_t status = HB_ERR_DEVICE;
    if (recorder.is_broken) {
        (void)cudaGetLastError(); /* the text is that of the first failure */
    } else {
        status = check(error, "cudaStreamEndCapture", __FILE__, __LINE__);
    }
    if (status == HB_OK) {
        status = instantiate(captured, graph);
    }
    if (captured) {
        (void)cudaGraphDestroy(captured);
    }
    return status;
}

static int32_t graph_launch(void *graph) {
    const struct graph *g = (const struct graph *)graph;
    int32_t status = refuse_recording("a graph is launched while another one is recorded");
    if (status == HB_OK) {
        status = HB_CUDA(cudaGraphLaunch(g->exec, stream));
    }
    if (status == HB_OK) {
        n_launches += g->n_launches;
    }
    return status;
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
    return break_recording(HB_ERR_DEVICE);
}

#define HB_TABLE_NAME "cuda"
#define HB_TABLE_IS_DEVICE 1
#define HB_TABLE_GUARDS 0

#else

#include "kernels/emu/graph.h"

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
    if (hb_emu_refuse_recording("memory is allocated while a graph is recorded") != HB_OK) {
        return HB_ERR_DEVICE;
    }
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
    const int32_t status = hb_emu_refuse_recording("bytes are copied while a graph is recorded");
    if (status == HB_OK && bytes) {
        memcpy(dst, src, (size_t)bytes);
    }
    return status;
}

static int32_t to_host(void *dst, const void *src, uint64_t bytes) {
    return to_device(dst, src, bytes);
}

static int32_t sync_device(void) {
    return hb_emu_refuse_recording("the host waits while a graph is recorded");
}

static void set_order(int32_t thread_order, int32_t block_order, uint32_t seed) {
    hb_emu_set_order(thread_order, block_order, seed);
}

extern "C" int32_t HB_K(hb_launch_refused)(const char *kernel, const char *field, int32_t value,
                                           int32_t limit) {
    char text[128];
    (void)snprintf(text, sizeof text, "%s: %s %d is larger than %d", kernel, field, value, limit);
    return hb_emu_break_recording(hb_emu_fail(HB_ERR_DEVICE, text));
}

static int32_t fill(void *dst, int32_t byte, uint64_t bytes) {
    return hb_emu_fill(dst, byte, bytes);
}

static int32_t graph_begin(void) {
    return hb_emu_graph_begin();
}

static int32_t graph_end(void **graph) {
    return hb_emu_graph_end(graph);
}

static int32_t graph_launch(void *graph) {
    return hb_emu_graph_launch(graph);
}

static void graph_free(void *graph) {
    hb_emu_graph_free(graph);
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
        table.graph_begin = graph_begin;
        table.graph_end = graph_end;
        table.graph_launch = graph_launch;
        table.graph_free = graph_free;
        table.conv_prefill = HB_K(hb_k_conv_prefill);
        table.conv_update = HB_K(hb_k_conv_update);
        table.conv_track = HB_K(hb_k_conv_track);
        table.ssd_prefill = HB_K(hb_k_ssd_prefill);
        table.ssm_update = HB_K(hb_k_ssm_update);
        table.ssm_ring = HB_K(hb_k_ssm_ring);
        table.ssm_ring_verify = HB_K(hb_k_ssm_ring_verify);
        table.ring_fold = HB_K(hb_k_ring_fold);
        table.conv_verify = HB_K(hb_k_conv_verify);
        table.ssm_verify = HB_K(hb_k_ssm_verify);
        table.delta_prefill = HB_K(hb_k_delta_prefill);
        table.delta_update = HB_K(hb_k_delta_update);
        table.delta_verify = HB_K(hb_k_delta_verify);
        table.decay_prefill = HB_K(hb_k_decay_prefill);
        table.decay_update = HB_K(hb_k_decay_update);
        table.decay_verify = HB_K(hb_k_decay_verify);
        table.selective_prefill = HB_K(hb_k_selective_prefill);
        table.selective_update = HB_K(hb_k_selective_update);
        table.selective_verify = HB_K(hb_k_selective_verify);
        table.short_conv_prefill = HB_K(hb_k_short_conv_prefill);
        table.short_conv_update = HB_K(hb_k_short_conv_update);
        table.short_conv_verify = HB_K(hb_k_short_conv_verify);
        table.gated_norm = HB_K(hb_k_gated_norm);
        table.slots = HB_K(hb_k_slots);
        table.windows = HB_K(hb_k_windows);
        table.kv_write = HB_K(hb_k_kv_write);
        table.attention = HB_K(hb_k_attention);
        table.struct_size = (uint32_t)sizeof table;
    }
    return &table;
}
