/* SPDX-License-Identifier: Apache-2.0
 * Emulated device memory: exact-size heap blocks. Under AddressSanitizer its redzones are the
 * guard; otherwise 64 bytes on each side hold a pattern that free checks. Layout then: [size | left
 * canary | bytes | right canary]. */
#include <stdlib.h>
#include <string.h>

#include "kernels/emu/emu.h"
#include "kernels/emu/fiber.h"

enum { POISON = 0xff, CANARY = 0xa5, CANARY_BYTES = 64, HEAD_BYTES = 2 * CANARY_BYTES };

/* More than any device has: refused here, because a sanitizer's malloc ends the process instead of
 * returning null. */
#define MOST_BYTES ((uint64_t)1 << 40)

#if defined(HB_ASAN) || defined(__SANITIZE_ADDRESS__)
int32_t hb_emu_exact_guards(void) {
    return 1;
}

void *hb_emu_mem_alloc(uint64_t bytes) {
    void *ptr = bytes > MOST_BYTES ? NULL : malloc((size_t)bytes);
    if (ptr) {
        memset(ptr, POISON, (size_t)bytes);
    }
    return ptr;
}

void hb_emu_mem_free(void *ptr) {
    free(ptr);
}
#else
int32_t hb_emu_exact_guards(void) {
    return 0;
}

void *hb_emu_mem_alloc(uint64_t bytes) {
    char *block = bytes > MOST_BYTES ? NULL : malloc(HEAD_BYTES + (size_t)bytes + CANARY_BYTES);
    if (!block) {
        return NULL;
    }
    memcpy(block, &bytes, sizeof bytes);
    memset(block + CANARY_BYTES, CANARY, CANARY_BYTES);
    memset(block + HEAD_BYTES, POISON, (size_t)bytes);
    memset(block + HEAD_BYTES + bytes, CANARY, CANARY_BYTES);
    return block + HEAD_BYTES;
}

static int is_intact(const char *canary) {
    for (int i = 0; i < CANARY_BYTES; i++) {
        if ((unsigned char)canary[i] != CANARY) {
            return 0;
        }
    }
    return 1;
}

void hb_emu_mem_free(void *ptr) {
    if (!ptr) {
        return;
    }
    char *block = (char *)ptr - HEAD_BYTES;
    uint64_t bytes;
    memcpy(&bytes, block, sizeof bytes);
    if (!is_intact(block + CANARY_BYTES)) {
        hb_emu_fault("bytes below a device block were written", "mem_free", 0);
    } else if (!is_intact((char *)ptr + bytes)) {
        hb_emu_fault("bytes above a device block were written", "mem_free", 0);
    }
    free(block);
}
#endif
