/* SPDX-License-Identifier: Apache-2.0
 * Allocation with a fault counter: every failure path of create must be reachable in a test
 * (style.md section 6). */
#include "backend/memory.h"

#include <inttypes.h>
#include <stdlib.h>

static _Thread_local int64_t fail_after = -1;
static _Thread_local int64_t n_live;

void hb_alloc_fail_after(int64_t n) {
    fail_after = n;
}

int64_t hb_alloc_live(void) {
    return n_live;
}

/* 1: this allocation must fail. */
static int injected_fault(void) {
    if (fail_after < 0) {
        return 0;
    }
    if (fail_after == 0) {
        return 1;
    }
    fail_after--;
    return 0;
}

int hb_mul_i64(int64_t a, int64_t b, int64_t *out) {
    if (a < 0 || b < 0 || (a > 0 && b > INT64_MAX / a)) {
        return 0;
    }
    *out = a * b;
    return 1;
}

int32_t hb_host_alloc(int64_t n, size_t size, void **out, struct hb_error *err) {
    int64_t bytes;
    const int64_t count = n > 0 ? n : 1;
    void *ptr = NULL;
    if (!injected_fault() && hb_mul_i64(count, (int64_t)size, &bytes)) {
        ptr = calloc((size_t)count, size);
    }
    if (ptr == NULL) {
        return hb_fail_text(err, HB_ERR_MEMORY, "out of host memory for %" PRId64 " elements", n);
    }
    n_live++;
    *out = ptr;
    return HB_OK;
}

void hb_host_free(void *ptr) {
    if (ptr != NULL) {
        n_live--;
        free(ptr);
    }
}

int32_t hb_device_alloc(const struct hb_kernels *kernels, int64_t bytes, int32_t is_zeroed,
                        void **out, struct hb_error *err) {
    void *ptr = NULL;
    if (bytes < 0 || injected_fault()) {
        return hb_fail_text(err, HB_ERR_MEMORY, "out of device memory for %" PRId64 " bytes",
                            bytes);
    }
    const uint64_t size = bytes > 0 ? (uint64_t)bytes : 1;
    int32_t status = hb_device_check(kernels, kernels->mem_alloc(size, &ptr), err);
    if (status != HB_OK) {
        return status;
    }
    if (is_zeroed) {
        status = hb_device_check(kernels, kernels->fill(ptr, 0, size), err);
        if (status != HB_OK) {
            kernels->mem_free(ptr);
            return status;
        }
    }
    n_live++;
    *out = ptr;
    return HB_OK;
}

void hb_device_free(const struct hb_kernels *kernels, void *ptr) {
    if (ptr != NULL) {
        n_live--;
        kernels->mem_free(ptr);
    }
}

int32_t hb_device_check(const struct hb_kernels *kernels, int32_t status, struct hb_error *err) {
    if (status == HB_OK) {
        return HB_OK;
    }
    const char *text = kernels->error_text();
    return hb_fail_text(err, status, "%s: %s", kernels->name,
                        text != NULL ? text : "device failure");
}
