/* SPDX-License-Identifier: Apache-2.0
 * Statistics of runs: sums over workers, and medians from bins. */
#include <math.h>

#include "harness/run.h"

void hb_run_stats_add(struct hb_run_stats *to, const struct hb_run_stats *from) {
    to->cases += from->cases;
    to->forwards += from->forwards;
    to->tokens += from->tokens;
    to->calls += from->calls;
    to->launches += from->launches;
    to->second_runs += from->second_runs;
    to->exact_bytes += from->exact_bytes;
    to->pair_cases += from->pair_cases;
    to->pair_elements += from->pair_elements;
    to->pair_bit_equal += from->pair_bit_equal;
    if (from->pair_max_ratio > to->pair_max_ratio) {
        to->pair_max_ratio = from->pair_max_ratio;
    }
    for (int op = 0; op < HB_N_OPS; op++) {
        for (int d = 0; d < HB_N_FLOAT_DTYPES; d++) {
            to->elements[op][d] += from->elements[op][d];
            to->vacuous[op][d] += from->vacuous[op][d];
            if (from->max_ratio[op][d] > to->max_ratio[op][d]) {
                to->max_ratio[op][d] = from->max_ratio[op][d];
            }
            for (int b = 0; b < HB_RATIO_BINS; b++) {
                to->ratio_bins[op][d][b] += from->ratio_bins[op][d][b];
            }
        }
    }
    for (int i = 0; i < 32; i++) {
        to->status_seen[i] += from->status_seen[i];
    }
    for (int i = 0; i < 256; i++) {
        to->rule_broken[i] += from->rule_broken[i];
        to->rule_kept[i] += from->rule_kept[i];
    }
    for (int i = 0; i < HB_N_VERDICTS; i++) {
        to->verdicts[i] += from->verdicts[i];
    }
    for (int i = 0; i < 8; i++) {
        to->time_ns[i] += from->time_ns[i];
    }
}

double hb_run_stats_median(const struct hb_run_stats *s, int32_t op, int32_t dtype) {
    uint64_t total = 0;
    for (int b = 0; b < HB_RATIO_BINS; b++) {
        total += s->ratio_bins[op][dtype][b];
    }
    uint64_t seen = 0;
    for (int b = 0; b < HB_RATIO_BINS && total > 0; b++) {
        seen += s->ratio_bins[op][dtype][b];
        if (2 * seen >= total) {
            return b == 0 ? 0.0 : ldexp(1.0, b - HB_RATIO_BINS + 2);
        }
    }
    return 0.0;
}
