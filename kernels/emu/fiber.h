/* SPDX-License-Identifier: Apache-2.0
 * Fibers of the emulated device: one per thread of a block, kept for the life of the process.
 * Internal to emu/. */
#ifndef HB_KERNELS_EMU_FIBER_H
#define HB_KERNELS_EMU_FIBER_H

#include <stdint.h>

/* Makes fibers 0 .. n-1 exist; each calls body once per resume from its end. HB_OK or
 * HB_ERR_MEMORY. */
int32_t hb_fiber_reserve(uint32_t n, void (*body)(void));
/* From the scheduler: runs fiber i until it yields or body returns. */
void hb_fiber_resume(uint32_t i);
/* From a fiber: back to the scheduler. */
void hb_fiber_yield(void);
/* Forgets what fibers 0 .. n-1 were doing; the next resume starts body. */
void hb_fiber_abandon(uint32_t n);

/* Reports a broken rule (emu.c); used by memory.c too. */
void hb_emu_fault(const char *what, const char *file, int32_t line);

#endif
