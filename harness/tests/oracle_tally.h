/* SPDX-License-Identifier: Apache-2.0
 * Counts how results compare with their bounds; included by test programs only. */
#ifndef HB_HARNESS_TESTS_ORACLE_TALLY_H
#define HB_HARNESS_TESTS_ORACLE_TALLY_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { MAX_RATIOS = 1 << 18 };

/* What a comparison saw. */
struct tally {
    int64_t n, outside, vacuous, planted_seen, planted;
    double worst; /* largest |err| / B */
    double *ratio;
    int64_t n_ratio;
};

static inline void judge(struct tally *t, double got, double want, double bound, double mag) {
    const double err = fabs(got - want);
    t->n++;
    t->vacuous += bound > mag;
    t->outside += !(err <= bound);
    t->worst = err > t->worst * bound ? err / bound : t->worst;
    t->planted += want != 0.0;
    t->planted_seen += want != 0.0 && fabs(got * (1.0 + 0x1p-16) - want) > bound;
    if (t->ratio != NULL && t->n_ratio < MAX_RATIOS && err > 0.0) {
        t->ratio[t->n_ratio++] = bound / err;
    }
}

static inline int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double quantile(struct tally *t, double at) {
    qsort(t->ratio, (size_t)t->n_ratio, sizeof(double), compare_doubles);
    return t->n_ratio > 0 ? t->ratio[(int64_t)(at * (double)(t->n_ratio - 1))] : 0.0;
}

#endif
