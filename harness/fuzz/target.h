/* SPDX-License-Identifier: Apache-2.0
 * The entry points that the fuzz engine calls, and their one implementation for a target. */
#ifndef HB_HARNESS_FUZZ_TARGET_H
#define HB_HARNESS_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "harness/child.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t cap, unsigned int seed);

#define HB_FUZZ_TARGET(target)                                                                     \
    int LLVMFuzzerInitialize(int *argc, char ***argv) {                                            \
        (void)argc;                                                                                \
        (void)argv;                                                                                \
        if (hb_child_attach(target) != 0) {                                                        \
            _Exit(5);                                                                              \
        }                                                                                          \
        return 0;                                                                                  \
    }                                                                                              \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {                                 \
        return hb_child_input(data, size);                                                         \
    }                                                                                              \
    size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size,                    \
                                   unsigned int seed) {                                            \
        return hb_child_mutate(data, size, max_size, seed);                                        \
    }                                                                                              \
    size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b,            \
                                     size_t b_size, uint8_t *out, size_t cap, unsigned int seed) { \
        return hb_child_cross(a, a_size, b, b_size, out, cap, seed);                               \
    }

#endif
