/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: models of mostly attention, with windows, soft caps, pages and trees. By hand: as forward_fuzz.c. */
#include "harness/fuzz/target.h"

HB_FUZZ_TARGET(HB_TARGET_ATTENTION)
