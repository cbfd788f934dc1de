/* SPDX-License-Identifier: Apache-2.0
 * One case on two backends: same verdict, same fingerprint, and outputs and states within the sum of both bounds; bit for
 * bit where nothing is rounded (conv states, the exact-value class outside of attention). */
#ifndef HB_HARNESS_COMPARE_H
#define HB_HARNESS_COMPARE_H

#include "harness/run.h"

struct hb_pair_result {
    struct hb_verdict a, b;
    int32_t same_verdict; /* kind and fingerprint */
    int32_t differs;      /* outputs or states differ by more than allowed */
    char text[320];       /* first place where the two part; empty if none */
    struct hb_divergence at; /* got: b, want: a, bound: B1 + B2 */
    uint64_t elements, bit_equal;
    double max_ratio; /* |a - b| / (B1 + B2) */
};

/* Runs c on a and then on b. Returns 0, or -1 when out of memory. stats_a, stats_b may be null. */
int hb_compare_case(const struct hb_adapter *a, const struct hb_adapter *b, const struct hb_case *c,
                    const struct hb_run_options *o, struct hb_pair_result *result,
                    struct hb_run_stats *stats_a, struct hb_run_stats *stats_b);

#endif
