/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: draft verification and commit within histories of forwards. By hand: as forward_fuzz.c. */
#include "harness/fuzz/target.h"

HB_FUZZ_TARGET(HB_TARGET_VERIFY)
