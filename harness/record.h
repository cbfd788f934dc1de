/* SPDX-License-Identifier: Apache-2.0
 * Records: one JSON object per line for each result and for each campaign, with everything needed
 * to place it: versions, commit, compiler, backend, device, seed, variant. Schema version 1. */
#ifndef HB_HARNESS_RECORD_H
#define HB_HARNESS_RECORD_H

#include <stdint.h>

#include "harness/supervise.h"

enum { HB_RECORD_SCHEMA = 1 };

/* What was built. Filled by the command. */
struct hb_build_info {
    const char *version, *commit, *compiler, *type, *sanitizers;
};

struct hb_record_context {
    const struct hb_build_info *build;
    const char *verb;    /* "run", "fuzz", ... */
    const char *backend; /* name */
    const char *device;  /* text of the GPU, or "host" */
    uint64_t seed;
    int32_t defect;
};

/* Names for reports. */
const char *hb_op_name(int32_t op);
const char *hb_form_name(int32_t form);
const char *hb_dtype_name(int32_t dtype);
const char *hb_phase_name(int32_t phase);

/* One line without its end, malloc'ed; null when out of memory. c: the case of m, for profile and
 * variant, or null. confirmed: "" (not run again), "yes", or the rate as "2 of 5". */
char *hb_record_result(const struct hb_record_context *ctx, const struct hb_message *m,
                       const struct hb_case *c, const char *confirmed);
char *hb_record_summary(const struct hb_record_context *ctx, const struct hb_supervise_result *r);

#endif
