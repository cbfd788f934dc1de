/* SPDX-License-Identifier: Apache-2.0
 * One comparison of the golden check: shares, first failure, tampering. */
#ifndef HB_HARNESS_GOLDEN_JUDGE_H
#define HB_HARNESS_GOLDEN_JUDGE_H

#include "harness/golden.h"

struct hb_golden_judge {
    const struct hb_golden_options *o;
    struct hb_golden_case_result *result;
    int32_t act_dtype;
    int32_t failed;
};

/* Where an element stands: index as in hb_golden_options.tamper_index. */
struct hb_golden_place {
    int32_t tensor, check; /* enum hb_golden_tensor, enum hb_golden_check_kind */
    int32_t seq, token, channel;
    int64_t index;
};

/* |got - want| <= bound, NaN never is. */
void hb_golden_judge_element(struct hb_golden_judge *j, const struct hb_golden_place *at,
                             double got, double want, double bound);
/* Any other failure of the run. The first failure stays. */
void hb_golden_judge_fail(struct hb_golden_judge *j, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Distance from |x| to the next number of the type. */
double hb_golden_ulp(int32_t dtype, double x);

#endif
