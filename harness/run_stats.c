/* SPDX-License-Identifier: Apache-2.0
 * Statistics of runs: sums over workers, and medians from bins. */
#include <math.h>

#include "harness/run.h"

int32_t hb_op_of(int32_t layer_kind, int32_t is_state) {
    /* of a kind without a temporal state the second entry is never asked for */
    static const int32_t ops[HB_N_LAYER_KINDS][2] = {
        [HB_LAYER_MAMBA2] = {HB_OP_MAMBA2_OUT, HB_OP_MAMBA2_STATE},
        [HB_LAYER_ATTENTION] = {HB_OP_ATTENTION, HB_OP_ATTENTION},
        [HB_LAYER_GDN] = {HB_OP_GDN_OUT, HB_OP_GDN_STATE},
        [HB_LAYER_KDA] = {HB_OP_KDA_OUT, HB_OP_KDA_STATE},
        [HB_LAYER_LIGHTNING] = {HB_OP_LIGHTNING_OUT, HB_OP_LIGHTNING_STATE},
        [HB_LAYER_SHORT_CONV] = {HB_OP_SHORT_CONV_OUT, HB_OP_SHORT_CONV_OUT},
        [HB_LAYER_MAMBA1] = {HB_OP_MAMBA1_OUT, HB_OP_MAMBA1_STATE},
    };
    const int is_kind = layer_kind >= 0 && layer_kind < HB_N_LAYER_KINDS;
    return ops[is_kind ? layer_kind : HB_LAYER_MAMBA2][is_state != 0];
}

/* The figures of one op, form and type. */
static void add_op(struct hb_run_stats *to, const struct hb_run_stats *from, int op, int form,
                   int d) {
    to->elements[op][form][d] += from->elements[op][form][d];
    to->vacuous[op][form][d] += from->vacuous[op][form][d];
    if (from->max_ratio[op][form][d] > to->max_ratio[op][form][d]) {
        to->max_ratio[op][form][d] = from->max_ratio[op][form][d];
    }
    for (int b = 0; b < HB_RATIO_BINS && from->elements[op][form][d] > 0; b++) {
        to->ratio_bins[op][form][d][b] += from->ratio_bins[op][form][d][b];
    }
}

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
        for (int form = 0; form < HB_N_FORMS; form++) {
            for (int d = 0; d < HB_N_FLOAT_DTYPES; d++) {
                add_op(to, from, op, form, d);
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

double hb_run_stats_median(const struct hb_run_stats *s, int32_t op, int32_t form,
                           int32_t dtype) {
    uint64_t total = 0;
    for (int b = 0; b < HB_RATIO_BINS; b++) {
        total += s->ratio_bins[op][form][dtype][b];
    }
    uint64_t seen = 0;
    for (int b = 0; b < HB_RATIO_BINS && total > 0; b++) {
        seen += s->ratio_bins[op][form][dtype][b];
        if (2 * seen >= total) {
            return b == 0 ? 0.0 : ldexp(1.0, b - HB_RATIO_BINS + 2);
        }
    }
    return 0.0;
}
