/* SPDX-License-Identifier: Apache-2.0
 * Host and device allocation of the backend, with an injectable fault, and checked size arithmetic.
 */
#ifndef HB_BACKEND_MEMORY_H
#define HB_BACKEND_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "backend/status.h"
#include "kernels/kernels.h"

/* *out = a*b; returns 0 (and leaves *out) on overflow or a negative factor. */
int hb_mul_i64(int64_t a, int64_t b, int64_t *out);

/* Zeroed host memory for n elements of size bytes each (n = 0 gives one element); free with
 * hb_host_free. */
int32_t hb_host_alloc(int64_t n, size_t size, void **out, struct hb_error *err);
void hb_host_free(void *ptr);
/* Device memory, poisoned or zeroed (bytes = 0 gives one byte). Freed with hb_device_free. */
int32_t hb_device_alloc(const struct hb_kernels *kernels, int64_t bytes, int32_t is_zeroed,
                        void **out, struct hb_error *err);
/* Passes a launcher's or copy's result on, with the device's text on failure. */
int32_t hb_device_check(const struct hb_kernels *kernels, int32_t status, struct hb_error *err);

/* Tests only, per thread: the n-th allocation from now (0: the next) and all later ones fail; -1
 * switches it off. */
void hb_alloc_fail_after(int64_t n);
/* Allocations of this thread that are still held through this module (device memory included). */
int64_t hb_alloc_live(void);
void hb_device_free(const struct hb_kernels *kernels, void *ptr);

#endif
