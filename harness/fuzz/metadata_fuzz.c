/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: batches, mostly broken, eager and through graphs; statuses only. By hand: as forward_fuzz.c. */
#include "harness/fuzz/target.h"

HB_FUZZ_TARGET(HB_TARGET_METADATA)
