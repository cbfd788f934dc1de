/* SPDX-License-Identifier: Apache-2.0
 * Between the files of the case: the parts of its normal form. */
#ifndef HB_HARNESS_CASE_INTERNAL_H
#define HB_HARNESS_CASE_INTERNAL_H

#include "harness/case.h"

/* First bytes of a canonical byte form; a file that begins with the first three and another fourth is of another schema. */
#define HB_CASE_MAGIC {'H', 'B', 'C', '0' + HB_CASE_SCHEMA}

static inline int32_t clamp(int32_t v, int32_t lo, int32_t hi) {
    v = v < lo ? lo : v;
    return v > hi ? hi : v;
}

/* The largest divisor of n that is at most d. */
static inline int32_t divisor_below(int32_t n, int32_t d) {
    d = d > n ? n : d;
    while (n % d != 0) {
        d--;
    }
    return d;
}

/* case_verify.c: rows of a verify in normal form; of other steps nothing of a draft is kept. */
void hb_case_normalize_draft(struct hb_case_step *s);
/* case_variants.c: sizes that only real models have are for cases that say so. is_folded: values above come down evenly
 * (random bytes shall not all end at the limit), else to the limit. */
void hb_case_limit_sizes(struct hb_case_config *g, int is_folded);
/* case_variants.c: what the mixer does not read is at its default; what a value class forbids is off. */
void hb_case_normalize_variants(struct hb_case_config *g);
/* case_limits.c: lowers lengths, then sizes, until the case is within HB_CASE_MAX_TOKENS and HB_CASE_MAX_WORK. */
void hb_case_limit_work(struct hb_case *c);

#endif
