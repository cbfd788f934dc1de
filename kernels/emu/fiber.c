/* SPDX-License-Identifier: Apache-2.0
 * Fibers: Boost.Context through its two C symbols, or ucontext (about 100 times slower) under
 * HB_EMU_UCONTEXT.
 *
 * A fiber never ends: when a thread of a block is done, its fiber waits for the next block, so a
 * launch pays no set-up. Stacks come from mmap with a guard page below. Under AddressSanitizer
 * (HB_ASAN; this file itself is not instrumented) every switch is announced, or the sanitizer would
 * judge the kernel's frames by the wrong stack. */
#include "kernels/emu/fiber.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "backend/status.h"
#include "kernels/emu/emu.h"

#ifdef HB_EMU_UCONTEXT
#include <ucontext.h>
#endif

enum { STACK_BYTES = 256 * 1024, GUARD_BYTES = 64 * 1024 };

#ifdef HB_EMU_UCONTEXT
typedef ucontext_t context;
#else
/* Boost.Context's C interface, by its binary contract (Boost 1.61 and later). */
typedef void *context;
typedef struct {
    context ctx;
    void *data;
} transfer;
context make_fcontext(void *stack_top, size_t bytes, void (*fn)(transfer));
transfer jump_fcontext(context to, void *data);
#endif

struct fiber {
    context ctx;
    char *stack; /* lowest usable byte */
    void *fake_stack;
};

static struct {
    struct fiber all[HB_EMU_MAX_THREADS];
    uint32_t n;
    struct fiber *running;
    context scheduler;
    void *scheduler_fake;
    const void *scheduler_stack;
    size_t scheduler_bytes;
    void (*body)(void);
} fibers;

#ifdef HB_ASAN
void __sanitizer_start_switch_fiber(void **fake_stack_save, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake_stack_save, const void **bottom_old,
                                     size_t *size_old);
void __asan_unpoison_memory_region(const volatile void *addr, size_t size);

static void leave(void **save, const void *bottom, size_t bytes) {
    __sanitizer_start_switch_fiber(save, bottom, bytes);
}

static void enter_fiber(void *fake_stack) {
    __sanitizer_finish_switch_fiber(fake_stack, &fibers.scheduler_stack, &fibers.scheduler_bytes);
}

static void enter_scheduler(void *fake_stack) {
    __sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
}

static void clean_stack(const struct fiber *fiber) {
    __asan_unpoison_memory_region(fiber->stack, STACK_BYTES);
}
#else
static void leave(void **save, const void *bottom, size_t bytes) {
    (void)save;
    (void)bottom;
    (void)bytes;
}

static void enter_fiber(void *fake_stack) {
    (void)fake_stack;
}

static void enter_scheduler(void *fake_stack) {
    (void)fake_stack;
}

static void clean_stack(const struct fiber *fiber) {
    (void)fiber;
}
#endif

static void run_bodies(void) {
    for (;;) {
        fibers.body();
        hb_fiber_yield();
    }
}

#ifdef HB_EMU_UCONTEXT
static void begin(void) {
    enter_fiber(NULL);
    run_bodies();
}

static int32_t start(struct fiber *fiber) {
    if (getcontext(&fiber->ctx) != 0) {
        return HB_ERR_MEMORY;
    }
    fiber->ctx.uc_stack.ss_sp = fiber->stack;
    fiber->ctx.uc_stack.ss_size = STACK_BYTES;
    fiber->ctx.uc_link = NULL;
    makecontext(&fiber->ctx, begin, 0);
    return HB_OK;
}

static void switch_to_fiber(struct fiber *fiber) {
    (void)swapcontext(&fibers.scheduler, &fiber->ctx);
}

static void switch_to_scheduler(struct fiber *fiber) {
    (void)swapcontext(&fiber->ctx, &fibers.scheduler);
}
#else
static void begin(transfer from) {
    fibers.scheduler = from.ctx;
    enter_fiber(NULL);
    run_bodies();
}

static int32_t start(struct fiber *fiber) {
    fiber->ctx = make_fcontext(fiber->stack + STACK_BYTES, STACK_BYTES, begin);
    return fiber->ctx ? HB_OK : HB_ERR_MEMORY;
}

static void switch_to_fiber(struct fiber *fiber) {
    fiber->ctx = jump_fcontext(fiber->ctx, NULL).ctx;
}

static void switch_to_scheduler(struct fiber *fiber) {
    (void)fiber; /* the scheduler gets and keeps the fiber's new context */
    fibers.scheduler = jump_fcontext(fibers.scheduler, NULL).ctx;
}
#endif

static int32_t create(struct fiber *fiber) {
    char *low = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (low == MAP_FAILED) {
        return HB_ERR_MEMORY;
    }
    if (mprotect(low + GUARD_BYTES, STACK_BYTES, PROT_READ | PROT_WRITE) != 0) {
        (void)munmap(low, GUARD_BYTES + STACK_BYTES);
        return HB_ERR_MEMORY;
    }
    fiber->stack = low + GUARD_BYTES;
    fiber->fake_stack = NULL;
    return start(fiber);
}

int32_t hb_fiber_reserve(uint32_t n, void (*body)(void)) {
    fibers.body = body;
    while (fibers.n < n) {
        int32_t status = create(&fibers.all[fibers.n]);
        if (status != HB_OK) {
            return status;
        }
        fibers.n++;
    }
    return HB_OK;
}

void hb_fiber_resume(uint32_t i) {
    struct fiber *fiber = &fibers.all[i];
    fibers.running = fiber;
    leave(&fibers.scheduler_fake, fiber->stack, STACK_BYTES);
    switch_to_fiber(fiber);
    enter_scheduler(fibers.scheduler_fake);
}

void hb_fiber_yield(void) {
    struct fiber *fiber = fibers.running;
    leave(&fiber->fake_stack, fibers.scheduler_stack, fibers.scheduler_bytes);
    switch_to_scheduler(fiber);
    enter_fiber(fiber->fake_stack);
}

void hb_fiber_abandon(uint32_t n) {
    for (uint32_t i = 0; i < n && i < fibers.n; i++) {
        clean_stack(&fibers.all[i]);
        fibers.all[i].fake_stack = NULL;
        /* the stack is there and start only fails for want of one */
        (void)start(&fibers.all[i]);
    }
}
