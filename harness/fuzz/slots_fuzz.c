/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: the life of slots, virtual ids, moves, publication and eviction. By hand: as forward_fuzz.c. */
#include "harness/fuzz/target.h"

HB_FUZZ_TARGET(HB_TARGET_SLOTS)
