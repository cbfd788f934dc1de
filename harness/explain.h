/* SPDX-License-Identifier: Apache-2.0
 * What a case should lead to, as text: the prediction of each step, and how one bound came about. */
#ifndef HB_HARNESS_EXPLAIN_H
#define HB_HARNESS_EXPLAIN_H

#include <stddef.h>
#include <stdint.h>

#include "backend/status.h"
#include "harness/case.h"

/* JSON object text: per step the predicted status, rule and text. malloc'ed, null when out of memory. */
char *hb_explain_predicted(const struct hb_case *c);
/* Text on the bound of one output element: its value and its terms, into out. The place is that of a reported divergence. */
int32_t hb_explain_bound(const struct hb_case *c, int32_t step, int32_t layer, int64_t token, int64_t channel, char *out,
                         size_t cap, struct hb_error *err);

#endif
