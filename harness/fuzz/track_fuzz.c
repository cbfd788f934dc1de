/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: checkpoints, ping-pong, prefix cache and restarts. By hand: as forward_fuzz.c. */
#include "harness/fuzz/target.h"

HB_FUZZ_TARGET(HB_TARGET_TRACK)
