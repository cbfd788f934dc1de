/* SPDX-License-Identifier: Apache-2.0
 * The emulated device: grid loop, shared memory, faults, queries. Fibers live in fiber.c, device
 * memory in memory.c.
 *
 * Scheduling of a block whose kernel synchronises: passes over the threads in the chosen order;
 * each ready thread runs until it waits or ends. When no thread is ready, all of them must have
 * ended, or all must wait at one barrier, which is then released; anything else is a fault. A warp
 * operation is completed by its last lane, which runs on. */
#include "kernels/emu/emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/caps.h"
#include "backend/status.h"
#include "kernels/emu/fiber.h"
#include "kernels/emu/graph.h"

enum thread_state { THREAD_READY, THREAD_AT_BARRIER, THREAD_AT_WARP, THREAD_DONE, N_THREAD_STATES };
enum { N_SITES = 256, N_SPARE = 64, MAX_WARPS = HB_EMU_MAX_THREADS / HB_EMU_WARP };

struct thread {
    int32_t state, line;
    const char *file;
    float *values; /* of a waiting warp operation */
    int32_t count;
};

/* A shared array: the heap block stays with its line and is taken again when the size is the same.
 */
struct site {
    uint64_t block; /* serial of the block that declared it last */
    int32_t line;
    size_t bytes;
    void *ptr;
};
struct spare {
    size_t bytes;
    void *ptr;
};

struct hb_emu_dim hb_emu_thread_idx, hb_emu_block_idx, hb_emu_block_dim, hb_emu_grid_dim;

static struct {
    const struct hb_emu_launch *launch; /* null between launches */
    struct thread threads[HB_EMU_MAX_THREADS];
    uint32_t n_in_state[N_THREAD_STATES];
    uint32_t arrived[MAX_WARPS];
    uint32_t running;
    uint64_t block_serial, n_launches;
    size_t shared_used;
    struct site sites[N_SITES];
    struct spare spares[N_SPARE];
    uint32_t next_spare;
    int32_t thread_order, block_order;
    uint32_t order_seed, launch_seed, random;
    uint32_t *thread_perm, *block_perm;
    uint32_t thread_perm_len, block_perm_len;
    int32_t no_poison, is_faulty;
    const char *barrier_file;
    int32_t barrier_line;
    hb_emu_fault_hook hook;
    char text[256];
} emu;

static void print_and_abort(const char *text) {
    (void)fprintf(stderr, "hbfuzz-emu: %s\n", text);
    abort(); /* a broken rule of the device: nothing after it can be trusted */
}

void hb_emu_fault(const char *what, const char *file, int32_t line) {
    const char *name = emu.launch ? emu.launch->kernel : "host";
    (void)snprintf(emu.text, sizeof emu.text, "%s in %s at %s:%d", what, name, file ? file : "?",
                   line);
    emu.is_faulty = 1;
    if (emu.hook) {
        emu.hook(emu.text);
    } else {
        print_and_abort(emu.text);
    }
}

hb_emu_fault_hook hb_emu_set_fault_hook(hb_emu_fault_hook hook) {
    hb_emu_fault_hook before = emu.hook;
    emu.hook = hook;
    return before;
}

const char *hb_emu_error_text(void) {
    return emu.text;
}

int32_t hb_emu_fail(int32_t status, const char *text) {
    (void)snprintf(emu.text, sizeof emu.text, "%s", text);
    return status;
}

const char *hb_emu_current_kernel(void) {
    return emu.launch ? emu.launch->kernel : NULL;
}

const char *hb_emu_barrier_file(void) {
    return emu.barrier_file;
}

int32_t hb_emu_barrier_line(void) {
    return emu.barrier_line;
}

uint64_t hb_emu_launches(void) {
    return emu.n_launches;
}

void hb_emu_set_poison(int32_t is_on) {
    emu.no_poison = !is_on;
}

void hb_emu_set_order(int32_t thread_order, int32_t block_order, uint32_t seed) {
    emu.thread_order = thread_order;
    emu.block_order = block_order;
    emu.order_seed = seed;
    emu.launch_seed = seed;
}

/* ---- orders ---- */

static uint32_t next_random(void) {
    /* xorshift32; the state is never zero */
    emu.random ^= emu.random << 13;
    emu.random ^= emu.random >> 17;
    emu.random ^= emu.random << 5;
    return emu.random;
}

static int32_t grow_permutation(uint32_t **perm, uint32_t *len, uint32_t need) {
    if (need <= *len) {
        return HB_OK;
    }
    uint32_t *bigger = realloc(*perm, (size_t)need * sizeof *bigger);
    if (!bigger) {
        return HB_ERR_MEMORY;
    }
    *perm = bigger;
    *len = need;
    return HB_OK;
}

/* The grown part would start unset, so the identity is written anew each time: Fisher-Yates over
 * it. */
static void shuffle(uint32_t *perm, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = next_random() % (i + 1);
        perm[i] = perm[j];
        perm[j] = i;
    }
}

static uint32_t in_order(int32_t order, const uint32_t *perm, uint32_t k, uint32_t n) {
    if (order == HB_ORDER_DESCENDING) {
        return n - 1 - k;
    }
    return order == HB_ORDER_RANDOM ? perm[k] : k;
}

static int32_t prepare_orders(uint32_t n_blocks, uint32_t n_threads) {
    /* each launch has its own stream, so a launch's order does not depend on how often earlier ones
     * drew */
    emu.launch_seed = emu.launch_seed * 1664525U + 1013904223U;
    emu.random = emu.launch_seed ? emu.launch_seed : 1U;
    int32_t status = HB_OK;
    if (emu.thread_order == HB_ORDER_RANDOM) {
        status = grow_permutation(&emu.thread_perm, &emu.thread_perm_len, n_threads);
        if (status == HB_OK) {
            shuffle(emu.thread_perm, n_threads);
        }
    }
    if (status == HB_OK && emu.block_order == HB_ORDER_RANDOM) {
        status = grow_permutation(&emu.block_perm, &emu.block_perm_len, n_blocks);
        if (status == HB_OK) {
            shuffle(emu.block_perm, n_blocks);
        }
    }
    return status;
}

/* ---- shared memory ---- */

static void *take_spare(size_t bytes) {
    for (uint32_t i = 0; i < N_SPARE; i++) {
        if (emu.spares[i].ptr && emu.spares[i].bytes == bytes) {
            void *ptr = emu.spares[i].ptr;
            emu.spares[i].ptr = NULL;
            return ptr;
        }
    }
    return malloc(bytes);
}

static void keep_spare(void *ptr, size_t bytes) {
    if (!ptr) {
        return;
    }
    struct spare *place = &emu.spares[emu.next_spare++ % N_SPARE];
    free(place->ptr);
    place->ptr = ptr;
    place->bytes = bytes;
}

static void *open_site(struct site *site, int32_t line, size_t bytes) {
    if (site->bytes != bytes || !site->ptr) {
        keep_spare(site->ptr, site->bytes);
        site->ptr = take_spare(bytes);
        site->bytes = bytes;
    }
    emu.shared_used += (bytes + 15) & ~(size_t)15; /* as port.cuh carves the GPU's array */
    if (!site->ptr || emu.shared_used > emu.launch->shared_bytes) {
        hb_emu_fault("shared memory beyond the launch's request", emu.launch->kernel, line);
    }
    if (!site->ptr) {
        abort(); /* the thread cannot go on without its array */
    }
    memset(site->ptr, emu.no_poison ? 0 : 0xff, bytes);
    site->line = line;
    site->block = emu.block_serial;
    return site->ptr;
}

void *hb_emu_shared(int32_t line, size_t bytes) {
    struct site *site = &emu.sites[(uint32_t)line % N_SITES];
    if (site->block == emu.block_serial && site->line == line) {
        return site->ptr;
    }
    if (site->block == emu.block_serial) {
        hb_emu_fault("two shared arrays whose lines differ by a multiple of 256",
                     emu.launch->kernel, line);
    }
    return open_site(site, line, bytes);
}

/* ---- threads that wait ---- */

static void set_state(uint32_t t, int32_t state) {
    emu.n_in_state[emu.threads[t].state]--;
    emu.n_in_state[state]++;
    emu.threads[t].state = state;
}

static void wait_at(int32_t state, const char *file, int32_t line) {
    struct thread *self = &emu.threads[emu.running];
    self->file = file;
    self->line = line;
    emu.barrier_file = file;
    emu.barrier_line = line;
    set_state(emu.running, state);
}

void hb_emu_barrier(const char *file, int32_t line) {
    if (emu.launch->flags != HB_EMU_SYNC) {
        hb_emu_fault("barrier without HB_SYNC", file, line);
        return;
    }
    wait_at(THREAD_AT_BARRIER, file, line);
    hb_fiber_yield();
}

static uint32_t lanes_of(uint32_t warp) {
    uint32_t left = emu.launch->n_threads - warp * HB_EMU_WARP;
    return left < HB_EMU_WARP ? left : HB_EMU_WARP;
}

static int32_t is_same_place(const struct thread *a, const struct thread *b) {
    return a->line == b->line && (a->file == b->file || strcmp(a->file, b->file) == 0);
}

/* 1 if the warp's lanes wait at different operations. */
static int32_t is_warp_divergent(uint32_t first, uint32_t n_lanes) {
    const struct thread *a = &emu.threads[first];
    for (uint32_t i = 1; i < n_lanes; i++) {
        const struct thread *b = &emu.threads[first + i];
        if (a->count != b->count || !is_same_place(a, b)) {
            return 1;
        }
    }
    return 0;
}

static void complete_warp(uint32_t first, uint32_t n_lanes) {
    for (int32_t v = 0; v < emu.threads[first].count; v++) {
        float lane[HB_EMU_WARP] = {0};
        for (uint32_t i = 0; i < n_lanes; i++) {
            lane[i] = emu.threads[first + i].values[v];
        }
        /* after each step of the butterfly lanes i and i + offset hold the same sum, so one half is
         * enough */
        for (uint32_t offset = HB_EMU_WARP / 2; offset > 0; offset /= 2) {
            for (uint32_t i = 0; i < offset; i++) {
                lane[i] += lane[i + offset];
            }
        }
        for (uint32_t i = 0; i < n_lanes; i++) {
            emu.threads[first + i].values[v] = lane[0];
        }
    }
    for (uint32_t i = 0; i < n_lanes; i++) {
        set_state(first + i, THREAD_READY);
    }
}

void hb_emu_warp_sum(float *values, int32_t count, const char *file, int32_t line) {
    if (emu.launch->flags != HB_EMU_SYNC || count > HB_EMU_MAX_WARP_VALUES) {
        hb_emu_fault("warp operation without HB_SYNC", file, line);
        return;
    }
    uint32_t warp = emu.running / HB_EMU_WARP;
    uint32_t first = warp * HB_EMU_WARP;
    uint32_t n_lanes = lanes_of(warp);
    emu.threads[emu.running].values = values;
    emu.threads[emu.running].count = count;
    wait_at(THREAD_AT_WARP, file, line);
    if (++emu.arrived[warp] < n_lanes) {
        hb_fiber_yield();
        return;
    }
    emu.arrived[warp] = 0;
    if (is_warp_divergent(first, n_lanes)) {
        hb_emu_fault("divergent warp operation", file, line);
        hb_fiber_yield();
        return;
    }
    complete_warp(first, n_lanes);
}

/* ---- blocks ---- */

static void run_thread(void) {
    emu.launch->entry(emu.launch->args);
    set_state(emu.running, THREAD_DONE);
}

static void run_ready_threads(uint32_t n) {
    for (uint32_t k = 0; k < n && !emu.is_faulty; k++) {
        uint32_t t = in_order(emu.thread_order, emu.thread_perm, k, n);
        if (emu.threads[t].state == THREAD_READY) {
            emu.running = t;
            hb_emu_thread_idx.x = t;
            hb_fiber_resume(t);
        }
    }
}

/* All threads wait at one barrier: they may go on. Otherwise says which two places were reached. */
static void release_barrier(uint32_t n) {
    const struct thread *waiting = NULL;
    for (uint32_t t = 0; t < n; t++) {
        const struct thread *other = &emu.threads[t];
        if (other->state == THREAD_DONE) {
            continue;
        }
        if (waiting && !is_same_place(other, waiting)) {
            hb_emu_fault("divergent barrier", other->file, other->line);
            return;
        }
        waiting = other;
    }
    if (emu.n_in_state[THREAD_AT_BARRIER] != n) {
        const char *what =
            emu.n_in_state[THREAD_AT_WARP] ? "divergent warp operation" : "divergent barrier";
        hb_emu_fault(what, waiting ? waiting->file : NULL, waiting ? waiting->line : 0);
        return;
    }
    for (uint32_t t = 0; t < n; t++) {
        emu.threads[t].state = THREAD_READY;
    }
    emu.n_in_state[THREAD_AT_BARRIER] = 0;
    emu.n_in_state[THREAD_READY] = n;
}

static void run_block_fibers(uint32_t n) {
    memset(emu.n_in_state, 0, sizeof emu.n_in_state);
    memset(emu.arrived, 0, sizeof emu.arrived);
    for (uint32_t t = 0; t < n; t++) {
        emu.threads[t].state = THREAD_READY;
    }
    emu.n_in_state[THREAD_READY] = n;
    while (!emu.is_faulty) {
        run_ready_threads(n);
        if (emu.is_faulty || emu.n_in_state[THREAD_DONE] == n) {
            break;
        }
        if (emu.n_in_state[THREAD_READY] == 0) {
            release_barrier(n);
        }
        if (emu.thread_order == HB_ORDER_RANDOM) {
            shuffle(emu.thread_perm, n);
        }
    }
    if (emu.is_faulty) {
        hb_fiber_abandon(n); /* they stand in the middle of a kernel */
    }
}

static void run_block_loop(const struct hb_emu_launch *launch) {
    uint32_t n = launch->n_threads;
    for (uint32_t k = 0; k < n; k++) {
        hb_emu_thread_idx.x = in_order(emu.thread_order, emu.thread_perm, k, n);
        launch->entry(launch->args);
    }
}

static int32_t refuse(const struct hb_emu_launch *launch) {
    (void)snprintf(emu.text, sizeof emu.text,
                   "%s: invalid launch: grid %u x %u x %u, %u threads, %zu bytes of shared memory",
                   launch->kernel, launch->grid.x, launch->grid.y, launch->grid.z,
                   launch->n_threads, launch->shared_bytes);
    return HB_ERR_DEVICE;
}

static int32_t check_sizes(const struct hb_emu_launch *launch) {
    const struct hb_emu_dim *grid = &launch->grid;
    if (!grid->x || !grid->y || !grid->z || grid->y > HB_EMU_MAX_GRID_YZ ||
        grid->z > HB_EMU_MAX_GRID_YZ || (uint64_t)grid->x * grid->y * grid->z > INT32_MAX ||
        !launch->n_threads || launch->n_threads > HB_EMU_MAX_THREADS ||
        launch->shared_bytes > HB_EMU_MAX_SHARED) {
        return refuse(launch);
    }
    return HB_OK;
}

static int32_t prepare(const struct hb_emu_launch *launch, uint32_t n_blocks) {
    int32_t status = prepare_orders(n_blocks, launch->n_threads);
    if (status == HB_OK && launch->flags == HB_EMU_SYNC) {
        status = hb_fiber_reserve(launch->n_threads, run_thread);
    }
    if (status != HB_OK) {
        (void)snprintf(emu.text, sizeof emu.text, "%s: out of host memory", launch->kernel);
    }
    return status;
}

int32_t hb_emu_run(const struct hb_emu_launch *launch) {
    int32_t status = check_sizes(launch);
    if (status != HB_OK) {
        return hb_emu_break_recording(status);
    }
    if (hb_emu_is_recording()) {
        return hb_emu_record_launch(launch);
    }
    uint32_t n_blocks = launch->grid.x * launch->grid.y * launch->grid.z;
    status = prepare(launch, n_blocks);
    if (status != HB_OK) {
        return status;
    }
    emu.launch = launch;
    emu.n_launches++;
    emu.is_faulty = 0;
    emu.barrier_file = NULL;
    emu.barrier_line = 0;
    hb_emu_grid_dim = launch->grid;
    hb_emu_block_dim = (struct hb_emu_dim){launch->n_threads, 1, 1};
    hb_emu_thread_idx = (struct hb_emu_dim){0, 0, 0};
    for (uint32_t k = 0; k < n_blocks && !emu.is_faulty; k++) {
        uint32_t block = in_order(emu.block_order, emu.block_perm, k, n_blocks);
        hb_emu_block_idx.x = block % launch->grid.x;
        hb_emu_block_idx.y = block / launch->grid.x % launch->grid.y;
        hb_emu_block_idx.z = block / launch->grid.x / launch->grid.y;
        emu.block_serial++;
        emu.shared_used = 0;
        if (launch->flags == HB_EMU_SYNC) {
            run_block_fibers(launch->n_threads);
        } else {
            run_block_loop(launch);
        }
    }
    emu.launch = NULL;
    return emu.is_faulty ? HB_ERR_DEVICE : HB_OK;
}
