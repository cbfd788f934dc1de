/* SPDX-License-Identifier: Apache-2.0
 * What a campaign reached: rules that some call broke and some other call kept, and statuses that were predicted. A rule is
 * kept by a call that is predicted HB_OK, of a kind that looks at the rule, in a mode that looks at it (backend/README.md,
 * "Rules"). */
#ifndef HB_HARNESS_COVERAGE_H
#define HB_HARNESS_COVERAGE_H

#include "harness/run.h"

enum { HB_COVERED_BROKEN = 1, HB_COVERED_KEPT = 2, HB_COVERED_BOTH = 3 };

struct hb_coverage {
    int32_t rules_both, rules; /* of those that a case can reach */
    int32_t statuses_seen, statuses;
};

/* Counts one judged call. call: the adapter's function name; mode: of the batch, where the call has one. */
void hb_coverage_call(struct hb_run_stats *stats, const char *call, int32_t mode, const struct hb_error *want);
void hb_coverage_of(const struct hb_run_stats *stats, struct hb_coverage *out);
/* HB_COVERED_* bits. */
int32_t hb_coverage_rule(const struct hb_run_stats *stats, int32_t rule);
/* 1 if calls of this name look at the rule. */
int32_t hb_coverage_belongs(const char *call, int32_t rule);
/* Why no case can break the rule, null if some can. */
const char *hb_coverage_unreachable(int32_t rule);
/* The statuses that a call can be predicted to give; returns their number. */
int hb_coverage_statuses(const int32_t **out);

#endif
