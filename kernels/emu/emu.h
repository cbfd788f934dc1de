/* SPDX-License-Identifier: Apache-2.0
 * Runs kernels on the host: blocks one after another, threads of a block as a plain loop or as
 * fibers. port.cuh is the only client among the kernels; the harness uses the hooks and the
 * queries.
 *
 * One process has one emulated device and one launch at a time: nothing here may be called
 * concurrently.
 *
 * A fault is a rule that the kernel broke and that a GPU would not report: a divergent barrier, a
 * barrier in a kernel that was launched without HB_SYNC, shared memory beyond the launch's request,
 * a damaged canary. The hook gets one line; the default hook prints it to stderr and aborts. If a
 * hook returns, the launch ends and says HB_ERR_DEVICE. */
#ifndef HB_KERNELS_EMU_EMU_H
#define HB_KERNELS_EMU_EMU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { HB_EMU_NO_SYNC = 0, HB_EMU_SYNC = 1 };
enum { HB_EMU_MAX_THREADS = 1024, HB_EMU_MAX_GRID_YZ = 65535, HB_EMU_MAX_SHARED = 48 * 1024 };
enum { HB_EMU_WARP = 32, HB_EMU_MAX_WARP_VALUES = 8 };

struct hb_emu_dim {
    uint32_t x, y, z;
};

/* Set by the scheduler before a thread runs or goes on. */
extern struct hb_emu_dim hb_emu_thread_idx, hb_emu_block_idx, hb_emu_block_dim, hb_emu_grid_dim;

struct hb_emu_launch {
    const char *kernel;
    void (*entry)(const void *args); /* the kernel, for the current thread */
    const void *args;
    struct hb_emu_dim grid;
    uint32_t n_threads;
    size_t shared_bytes;
    int32_t flags;
    size_t args_bytes; /* what a recording copies */
};

/* Runs a grid to its end, or records it while a graph is recorded (graph.h). HB_OK; HB_ERR_DEVICE after a fault or for a size that a GPU refuses;
 * HB_ERR_MEMORY. */
int32_t hb_emu_run(const struct hb_emu_launch *launch);

/* For kernels. file and line name the call site. */
void hb_emu_barrier(const char *file, int32_t line);
/* Every lane of the warp gets, for each of the count values, the sum over the lanes in the order of
 * an xor butterfly (offsets 16, 8, 4, 2, 1); lanes that the last warp lacks count as zero. */
void hb_emu_warp_sum(float *values, int32_t count, const char *file, int32_t line);
/* The running block's shared array declared at this line: an exact-size heap block, filled with
 * 0xff. */
void *hb_emu_shared(int32_t line, size_t bytes);

/* Settings for the launches that follow. */
void hb_emu_set_order(int32_t thread_order, int32_t block_order, uint32_t seed); /* enum hb_order */
void hb_emu_set_poison(
    int32_t is_on); /* 0: shared memory starts as zero; for showing what poison finds */

/* Faults. Returns the hook before; null means the default. */
typedef void (*hb_emu_fault_hook)(const char *text);
hb_emu_fault_hook hb_emu_set_fault_hook(hb_emu_fault_hook hook);
const char *hb_emu_error_text(void); /* of the last failure, "" if there was none */
int32_t hb_emu_fail(int32_t status, const char *text); /* sets that text, returns status */

/* What runs now, for the fingerprint of a memory error: valid at any time, also inside a
 * sanitizer's death callback. */
const char *hb_emu_current_kernel(void); /* null outside a launch */
const char *
hb_emu_barrier_file(void); /* the last barrier or warp operation of the launch, null if none */
int32_t hb_emu_barrier_line(void);
uint64_t hb_emu_launches(void);

/* Device memory: exact-size blocks, poisoned with 0xff bytes. Without AddressSanitizer each block
 * stands between two 64-byte canaries, checked by free. null: out of memory. */
void *hb_emu_mem_alloc(uint64_t bytes);
void hb_emu_mem_free(void *ptr);
int32_t hb_emu_exact_guards(void); /* 1 in builds with AddressSanitizer */

#ifdef __cplusplus
}
#endif
#endif
