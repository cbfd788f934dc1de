/* SPDX-License-Identifier: Apache-2.0
 * Gated DeltaNet and KDA, token by token in float64. */
#include "harness/oracle/ref_internal.h"

double hb_ref_delta_work(const struct hb_config *config) {
    (void)config;
    return 0.0;
}

int hb_ref_delta_run(const struct hb_ref_call *call) {
    (void)call;
    return -1;
}
