/* SPDX-License-Identifier: Apache-2.0
 * The small seeded generator of generation and mutation (splitmix64). Tensor values never come from
 * here (values.h). */
#ifndef HB_HARNESS_RNG_H
#define HB_HARNESS_RNG_H

#include <stdint.h>

struct hb_rng {
    uint64_t state;
};

static inline uint64_t hb_rng_next(struct hb_rng *r) {
    r->state += 0x9e3779b97f4a7c15u;
    uint64_t z = r->state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Two numbers to one well-mixed start. */
static inline struct hb_rng hb_rng_make(uint64_t seed, uint64_t index) {
    struct hb_rng r = {seed};
    const uint64_t first = hb_rng_next(&r);
    r.state = first ^ (index * 0xd1342543de82ef95u);
    (void)hb_rng_next(&r);
    return r;
}

/* 0..n-1; 0 if n <= 0. */
static inline int32_t hb_rng_below(struct hb_rng *r, int32_t n) {
    if (n <= 0) {
        return 0;
    }
    return (int32_t)(((hb_rng_next(r) >> 32) * (uint64_t)n) >> 32);
}

/* lo..hi, both included. */
static inline int32_t hb_rng_range(struct hb_rng *r, int32_t lo, int32_t hi) {
    return lo + hb_rng_below(r, hi - lo + 1);
}

/* 1 in one of n draws. */
static inline int32_t hb_rng_one_in(struct hb_rng *r, int32_t n) {
    return hb_rng_below(r, n) == 0;
}

static inline void hb_rng_shuffle(struct hb_rng *r, int32_t *v, int32_t n) {
    for (int32_t i = n - 1; i > 0; i--) {
        const int32_t j = hb_rng_below(r, i + 1);
        const int32_t t = v[i];
        v[i] = v[j];
        v[j] = t;
    }
}

#endif
