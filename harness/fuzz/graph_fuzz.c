/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: captures and replays of several batch sizes among eager forwards. By hand: as forward_fuzz.c. */
#include "harness/fuzz/target.h"

HB_FUZZ_TARGET(HB_TARGET_GRAPH)
