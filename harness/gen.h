/* SPDX-License-Identifier: Apache-2.0
 * Seeded generation and mutation of cases. Pure functions of their arguments. */
#ifndef HB_HARNESS_GEN_H
#define HB_HARNESS_GEN_H

#include "harness/case.h"
#include "harness/models.h"

/* REAL: true sizes of a model, for GPUs; without a model as LARGE. */
enum hb_gen_size { HB_SIZE_SMALL = 0, HB_SIZE_DEFAULT = 1, HB_SIZE_LARGE = 2, HB_SIZE_REAL = 3, HB_N_SIZES = 4 };
enum hb_gen_class {
    HB_GEN_MIX = 0,     /* the usual mixture of the four below */
    HB_GEN_VALID = 1,
    HB_GEN_NEAR = 2,    /* valid but at the edges: padding, length 1, window-sized prompts, chunk multiples */
    HB_GEN_BROKEN = 3,  /* one rule broken */
    HB_GEN_SEVERAL = 4, /* several broken */
    HB_N_GEN_CLASSES = 5
};
struct hb_gen_options {
    int32_t target, size, gen_class;
    int32_t mode; /* 0: any; else every forward uses this mode if possible */
    int32_t act_dtype, state_dtype, kernel_form; /* -1: any */
    int32_t relation; /* -1: any */
    int32_t mixer;    /* -1: any */
    int32_t has_model; /* sizes, layers and variants of this model; the mixer is its own */
    struct hb_model model;
};
void hb_gen_options_init(struct hb_gen_options *o);
void hb_gen_case(const struct hb_gen_options *o, uint64_t seed, uint64_t index, struct hb_case *out);
/* A case that was changed gets back what the options ask of every case: target and mixer; then its normal form. */
void hb_gen_hold(const struct hb_gen_options *o, struct hb_case *c);
/* Structure-aware mutation, in place. */
void hb_mutate_case(struct hb_case *c, uint64_t seed);
/* Steps and rows of b spliced into a. */
void hb_crossover_case(struct hb_case *a, const struct hb_case *b, uint64_t seed);

#endif
