/* SPDX-License-Identifier: Apache-2.0
 * Verdict names, fingerprints and lines. */
#include "harness/verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const struct {
    const char *name;
    int is_finding;
} kinds[HB_N_VERDICTS] = {
    [HB_VERDICT_PASS] = {"pass", 0},         [HB_VERDICT_STATUS] = {"status", 1},
    [HB_VERDICT_PURITY] = {"purity", 1},     [HB_VERDICT_NUMERIC] = {"numeric", 1},
    [HB_VERDICT_STATE] = {"state", 1},       [HB_VERDICT_RELATION] = {"relation", 1},
    [HB_VERDICT_MEMORY] = {"memory", 1},     [HB_VERDICT_HANG] = {"hang", 1},
    [HB_VERDICT_DEVICE] = {"device", 1},     [HB_VERDICT_SKIP] = {"skip", 0},
    [HB_VERDICT_ENVIRONMENT] = {"environment", 0},
};

const char *hb_verdict_name(int32_t kind) {
    return kind >= 0 && kind < HB_N_VERDICTS ? kinds[kind].name : "unknown";
}

int hb_verdict_is_finding(int32_t kind) {
    return kind >= 0 && kind < HB_N_VERDICTS ? kinds[kind].is_finding : 0;
}

void hb_verdict_clear(struct hb_verdict *v) {
    memset(v, 0, sizeof *v);
    v->at.step = v->at.layer = v->at.row = v->at.head = -1;
    v->at.token = v->at.element = -1;
}

void hb_verdict_set(struct hb_verdict *v, int32_t kind, const char *check, const char *place,
                    int32_t want, int32_t got, const char *format, ...) {
    if (v->kind != HB_VERDICT_PASS) {
        return;
    }
    v->kind = kind;
    v->want_status = want;
    v->got_status = got;
    (void)snprintf(v->check, sizeof v->check, "%s", check);
    (void)snprintf(v->place, sizeof v->place, "%s", place);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(v->text, sizeof v->text, format, args);
    va_end(args);
    char key[160];
    int n = snprintf(key, sizeof key, "%d|%s|%s|%d|%d", (int)kind, v->check, v->place, (int)want,
                     (int)got);
    (void)snprintf(v->fingerprint, sizeof v->fingerprint, "%016llx",
                   (unsigned long long)XXH64(key, n > 0 ? (size_t)n : 0, 0));
}

void hb_verdict_line(const struct hb_verdict *v, const struct hb_case *c, const char *file,
                     const char *backend, char *out, size_t cap) {
    const char *target_name = hb_target_name(c->config.target);
    if (v->kind == HB_VERDICT_PASS) {
        (void)snprintf(out, cap, "pass %s", target_name);
        return;
    }
    const int n = snprintf(out, cap, "%s %s %s %s %s: %s", hb_verdict_name(v->kind), target_name,
                           v->check, v->fingerprint, v->place, v->text);
    if (n >= 0 && (size_t)n < cap && (!file || file[0])) { /* one that found before has the file */
        (void)snprintf(out + n, cap - (size_t)n, " | repro: hbfuzz repro %s --backend %s",
                       file ? file : "-", backend ? backend : "emu");
    }
}
