/* SPDX-License-Identifier: Apache-2.0
 * Random batches for the tests of the prediction: changes of a right one, each compared with what
 * the test says independently. */
#ifndef HB_HARNESS_TESTS_EXPECT_RANDOM_H
#define HB_HARNESS_TESTS_EXPECT_RANDOM_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

struct fixture;

static inline uint64_t next_random(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

struct random_batches {
    void (*start)(struct fixture *f, uint64_t *s);
    void (*mutate)(struct fixture *f, uint64_t *s);
    int32_t (*agree)(const struct fixture *f); /* the rule that comes first, 0: none */
    uint64_t least, n_counts; /* changes of a batch: least, .., least + n_counts - 1 */
};

/* Returns the number of different rules met; *valid: batches without fault. */
static inline int rules_met(const struct random_batches *kind, struct fixture *f, uint64_t seed,
                            int n, int *valid) {
    uint64_t s = seed;
    int seen[256] = {0};
    int distinct = 0;
    for (int i = 0; i < n; i++) {
        kind->start(f, &s);
        for (uint64_t k = kind->least + next_random(&s) % kind->n_counts; k > 0; k--) {
            kind->mutate(f, &s);
        }
        seen[kind->agree(f)]++;
    }
    for (int rule = 1; rule < 256; rule++) {
        distinct += seen[rule] > 0;
    }
    *valid = seen[0];
    print_message("%d rules met, %d of %d batches valid\n", distinct, seen[0], n);
    return distinct;
}

#endif
