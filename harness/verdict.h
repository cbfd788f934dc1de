/* SPDX-License-Identifier: Apache-2.0
 * Verdicts: what one executed case came to, its fingerprint, and its one-line and JSON forms. */
#ifndef HB_HARNESS_VERDICT_H
#define HB_HARNESS_VERDICT_H

#include <stddef.h>
#include <stdint.h>

#include "harness/case.h"

enum hb_verdict_kind {
    HB_VERDICT_PASS = 0,
    HB_VERDICT_STATUS,   /* status, rule or text differs from the prediction */
    HB_VERDICT_PURITY,   /* an error changed a byte, or a batch was written */
    HB_VERDICT_NUMERIC,  /* an output element outside its bound */
    HB_VERDICT_STATE,    /* a state, tracked, neighbour or guard byte is wrong */
    HB_VERDICT_RELATION, /* a metamorphic relation does not hold */
    HB_VERDICT_MEMORY,   /* sanitizer report, emulator report or crash (written by the supervisor) */
    HB_VERDICT_HANG,
    HB_VERDICT_DEVICE,
    HB_VERDICT_SKIP,        /* the backend lacks something the case needs; reason in text */
    HB_VERDICT_ENVIRONMENT, /* no memory, ... */
    HB_N_VERDICTS
};

/* First divergence in execution order. Unused places are -1. */
struct hb_divergence {
    int32_t step, layer, row, head;
    int64_t token, element;
    double got, want, bound;
    uint64_t ulp;          /* distance in units of the stored type */
    char source[48];       /* which bound: "mamba2.y B1 fp32 chunked", "copy", ... */
};

struct hb_verdict {
    int32_t kind;
    char check[32];       /* stable name of the check: "status", "error.purity", "numeric.mamba2", "state.neighbour", .. */
    char place[64];       /* step kind, mode, layer kind, region; no numbers that depend on sizes or values */
    char fingerprint[17]; /* 16 hex digits of check + place + status pair */
    char text[512];       /* one line for people */
    int32_t want_status, got_status;
    struct hb_divergence at;
};

const char *hb_verdict_name(int32_t kind);
/* 1 for kinds that are findings. */
int hb_verdict_is_finding(int32_t kind);
/* A pass without a place: what hb_verdict_set starts from. */
void hb_verdict_clear(struct hb_verdict *v);
/* Sets kind, check, place and text and computes the fingerprint; the first failure stays. */
void hb_verdict_set(struct hb_verdict *v, int32_t kind, const char *check, const char *place, int32_t want, int32_t got,
                    const char *format, ...) __attribute__((format(printf, 7, 8)));
/* "VERDICT target check fingerprint where | repro: hbfuzz repro FILE" into out. */
void hb_verdict_line(const struct hb_verdict *v, const struct hb_case *c, const char *file, const char *backend,
                     char *out, size_t cap);

#endif
