/* SPDX-License-Identifier: Apache-2.0
 * Golden check: a backend against tensors that other people's implementations computed.
 *
 * A golden case becomes one layer of its linear kind (contracts.md section 6: what is smaller than a mixer
 * enters through exact identities) and is run under three kinds of schedule: whole requests, the
 * stored segments, random cuts into chunks and mixed batches. Three float64 results exist for each
 * element (tolerance.md 3.8): S = stored, O = plain float64 evaluation on float64 projections, Q =
 * the oracle on the values as handed over; (a) |O - S| <= 2^-40 (mag + |S|)              our
 * mathematics against other people's (b) |backend - Q| <= B                        the backend
 * against the oracle, also where nothing is stored (c) |backend - S| <= B + |Q - O| + 2^-40 (mag +
 * |S|), mapped through |W_out| where there is an output projection. The producer's own results E
 * in fp32 and bf16 are judged on the stored segments as those of a foreign backend: |E - Q| <= B
 * with a profile of its freedom (golden_run.c). */
#ifndef HB_HARNESS_GOLDEN_H
#define HB_HARNESS_GOLDEN_H

#include <stdint.h>

#include "backend/adapter.h"

enum hb_golden_check_kind { HB_GOLDEN_A, HB_GOLDEN_B, HB_GOLDEN_C, HB_N_GOLDEN_CHECKS };
enum hb_golden_tensor { HB_GOLDEN_Y, HB_GOLDEN_SSM, HB_GOLDEN_CONV, HB_N_GOLDEN_TENSORS };

struct hb_golden_options {
    const char *dir;    /* manifest.json, the files it names, and cases.txt (may be absent: then no
                           case must be there) */
    uint64_t seed;      /* of the random schedules */
    int32_t n_random;   /* random schedules per case, kernel form and activation type */
    const char *filter; /* null, or only cases whose name contains this */
    int32_t defect;     /* planted defect to pass on to the backend, 0: none */
    /* Control of the check itself: element tamper_index of a tensor is moved by tamper_bounds times
     * the bound of one check before it is compared: in (a) and (c) the stored value (index in the
     * stored tensor), in (b) the backend's value (y: index in [token, d_inner]; states: index in
     * the stored tensor; the bound of a copy is one unit in the last place of the activation type).
     * tamper_tensor -1: off. */
    int32_t tamper_tensor; /* enum hb_golden_tensor */
    int32_t tamper_check;  /* enum hb_golden_check_kind */
    int64_t tamper_index;
    double tamper_bounds;
};

/* One run: a case under one schedule, kernel form and activation type; or a case that was not run
 * (skipped). */
struct hb_golden_case_result {
    char name[64];
    char op[24];       /* of the manifest; empty when skipped as a whole */
    char needs[256];   /* declared variants that the case needs: "kind field=value .." */
    char schedule[32]; /* "whole", "segments", "random"; empty when skipped as a whole */
    int32_t form;      /* enum hb_kernel_form */
    int32_t act_dtype;
    int32_t passed, skipped; /* neither: failed */
    char reason[256]; /* of a failure or a skip: tensor, sequence, token, channel, got, want, bound
                       */
    /* largest error as a share of its bound; -1 where nothing was compared */
    double share[HB_N_GOLDEN_TENSORS][HB_N_GOLDEN_CHECKS];
    double share_foreign; /* the producer's own result in this type (exp32.y, expbf16.y) against Q,
                             as a share of the bound of a producer's profile; -1: not judged */
    int64_t compared[HB_N_GOLDEN_TENSORS]; /* elements compared with stored values */
};

/* Sets the defaults: 3 random schedules, seed 1, tampering off. */
void hb_golden_options_init(struct hb_golden_options *o, const char *dir);

/* Runs every case of o->dir in every kernel form. report (may be null) is called for each run and
 * for each skipped case. passed, failed, skipped count cases: passed if all of its runs passed or
 * were skipped and at least one passed; a name of cases.txt without a case that ran counts as
 * failed. HB_OK when the check could be carried out (whatever its result), HB_ERR_IO or
 * HB_ERR_PARSE for the directory, HB_ERR_MEMORY. The counts are written on HB_OK only. */
int32_t hb_golden_check(const struct hb_adapter *backend, const struct hb_golden_options *o,
                        void (*report)(void *ctx, const struct hb_golden_case_result *result),
                        void *ctx, int32_t *passed, int32_t *failed, int32_t *skipped,
                        struct hb_error *err);

#endif
