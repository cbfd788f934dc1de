/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: histories of forwards and slot operations, every output and state byte checked.
 * By hand: hbfuzz-forward FILE runs one input on HBFUZZ_BACKEND and aborts on a finding. */
#include "harness/fuzz/target.h"

HB_FUZZ_TARGET(HB_TARGET_FORWARD)
