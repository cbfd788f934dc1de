/* SPDX-License-Identifier: Apache-2.0
 * Golden check: the loop over cases, kernel forms, activation types and schedules, and the list of
 * cases that must be there. */
#include "harness/golden.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/golden_internal.h"

enum { LIST_LIMIT = 1 << 20, PATH_CAP = 4096 };

struct check {
    const struct hb_adapter *backend;
    const struct hb_golden_options *o;
    void (*report)(void *ctx, const struct hb_golden_case_result *result);
    void *ctx;
    struct hb_caps caps;
    struct hb_error *err;
    char *list; /* cases.txt, each line ended by NUL; may be null */
    size_t list_len;
    int32_t count[3];           /* cases: failed, passed, skipped */
    int32_t n_passed, n_failed; /* runs of the current case */
};

void hb_golden_options_init(struct hb_golden_options *o, const char *dir) {
    *o = (struct hb_golden_options){.dir = dir, .seed = 1, .n_random = 3, .tamper_tensor = -1};
}

static void tell(struct check *k, const struct hb_golden_case_result *result) {
    if (k->report != NULL) {
        k->report(k->ctx, result);
    }
}

/* A case that did not run at all, and why. */
enum { NOT_RUN, NOT_LISTED };
static void tell_skip(struct check *k, const char *name, int32_t why, int32_t skipped) {
    struct hb_golden_case_result result = {
        .skipped = skipped, .act_dtype = -1, .form = -1, .share_foreign = -1.0};
    for (int t = 0; t < HB_N_GOLDEN_TENSORS; t++) {
        for (int c = 0; c < HB_N_GOLDEN_CHECKS; c++) {
            result.share[t][c] = -1.0;
        }
    }
    (void)snprintf(result.name, sizeof result.name, "%.60s", name);
    (void)snprintf(result.reason, sizeof result.reason, "%s",
                   why == NOT_LISTED ? "a case of cases.txt that the manifest does not have"
                                     : "the backend could run none of its schedules and types");
    tell(k, &result);
}

/* ---- one case ---- */

static uint64_t name_seed(uint64_t seed, const char *name) {
    uint64_t h = 0xcbf29ce484222325U ^ seed; /* FNV-1a: each case has schedules of its own */
    for (; *name != '\0'; name++) {
        h = (h ^ (unsigned char)*name) * 0x100000001b3U;
    }
    return h;
}

static int32_t run_schedule(struct check *k, const struct hb_golden_problem *p,
                            const struct hb_golden_schedule *s, int32_t kind, int32_t form,
                            int32_t dtype) {
    struct hb_golden_case_result result = {.form = form, .act_dtype = dtype};
    (void)snprintf(result.name, sizeof result.name, "%s", p->name);
    (void)snprintf(result.op, sizeof result.op, "%s", p->op);
    hb_golden_needs(p, result.needs, sizeof result.needs);
    (void)snprintf(result.schedule, sizeof result.schedule, "%s", s->name);
    const int32_t status = hb_golden_run(k->backend, &k->caps, p, s, k->o, kind, &result, k->err);
    if (status == HB_OK) {
        k->n_passed += result.passed;
        k->n_failed += !result.passed && !result.skipped;
        tell(k, &result);
    }
    return status;
}

/* Both kernel forms and every activation type that the case and the backend share. */
static int32_t run_forms(struct check *k, const struct hb_golden_problem *p,
                         const struct hb_golden_schedule *s, int32_t kind) {
    int32_t status = HB_OK;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        for (int32_t dtype = 0; dtype < HB_N_FLOAT_DTYPES && status == HB_OK; dtype++) {
            if ((p->act_dtypes >> dtype & 1) != 0 && (k->caps.act_dtypes >> dtype & 1) != 0) {
                status = run_schedule(k, p, s, kind, form, dtype);
            }
        }
    }
    return status;
}

static int32_t run_problem(struct check *k, const struct hb_golden_problem *p) {
    const uint64_t seed = name_seed(k->o->seed, p->name);
    int32_t status = HB_OK;
    for (int32_t i = 0; i < 2 + k->o->n_random && status == HB_OK; i++) {
        const int32_t kind = i < 2 ? i : HB_GOLDEN_RANDOM; /* HB_GOLDEN_WHOLE, HB_GOLDEN_SEGMENTS */
        struct hb_golden_schedule s;
        status = hb_golden_schedule_make(p, kind, seed + (uint64_t)i, &s, k->err);
        if (status == HB_OK) {
            status = run_forms(k, p, &s, kind);
            hb_golden_schedule_free(&s);
        }
    }
    return status;
}

/* The next name of cases.txt from *at on; null at the end. Empty lines and lines that begin with #
 * are no names. */
static const char *next_required(const struct check *k, size_t *at) {
    while (*at < k->list_len) {
        const char *line = k->list + *at;
        *at += strlen(line) + 1;
        if (line[0] != '\0' && line[0] != '#') {
            return line;
        }
    }
    return NULL;
}

static int is_required(const struct check *k, const char *name) {
    size_t at = 0;
    const char *required = next_required(k, &at);
    while (required != NULL && strcmp(required, name) != 0) {
        required = next_required(k, &at);
    }
    return required != NULL;
}

/* A case without a run that passed or failed; a required one has failed thereby. */
static void count_skip(struct check *k, const char *name) {
    const int required = is_required(k, name);
    tell_skip(k, name, NOT_RUN, !required);
    k->count[required ? 0 : 2]++;
}

static int32_t run_rows(struct check *k, const cJSON *entry) {
    int32_t status = HB_OK;
    for (int32_t row = 0; row < hb_golden_problem_count(entry) && status == HB_OK; row++) {
        struct hb_golden_problem p;
        status = hb_golden_import(k->o->dir, entry, row, &p, k->err);
        if (status == HB_OK) {
            status = run_problem(k, &p);
            hb_golden_problem_free(&p);
        }
    }
    return status;
}

static int32_t run_case(struct check *k, const cJSON *entry) {
    const char *name = cJSON_GetObjectItemCaseSensitive(entry, "name")->valuestring;
    k->n_passed = 0;
    k->n_failed = 0;
    const int32_t status = run_rows(k, entry);
    if (status == HB_OK && k->n_failed + k->n_passed == 0) {
        count_skip(k, name);
    } else if (status == HB_OK) {
        k->count[k->n_failed == 0]++;
    }
    return status;
}

static int is_selected(const struct check *k, const char *name) {
    return k->o->filter == NULL || strstr(name, k->o->filter) != NULL;
}

static int32_t run_cases(struct check *k, const cJSON *cases) {
    const cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, cases) {
        if (is_selected(k, cJSON_GetObjectItemCaseSensitive(entry, "name")->valuestring)) {
            const int32_t status = run_case(k, entry);
            if (status != HB_OK) {
                return status;
            }
        }
    }
    return HB_OK;
}

/* ---- cases.txt ---- */

static int32_t read_list(struct check *k) {
    char path[PATH_CAP];
    (void)snprintf(path, sizeof path, "%s/cases.txt", k->o->dir);
    struct stat info;
    if (lstat(path, &info) != 0 && errno == ENOENT) {
        return HB_OK; /* no list: no case is required to be there */
    }
    const int32_t status = hb_golden_read_text(path, LIST_LIMIT, &k->list, &k->list_len, k->err);
    if (status != HB_OK) {
        return status;
    }
    for (size_t i = 0; i < k->list_len; i++) {
        if (k->list[i] == '\n' || k->list[i] == '\r') {
            k->list[i] = '\0';
        }
    }
    return HB_OK;
}

/* Required names that the manifest does not have. */
static void count_missing(struct check *k, const cJSON *cases) {
    size_t at = 0;
    for (const char *name = next_required(k, &at); name != NULL; name = next_required(k, &at)) {
        const cJSON *entry = cases->child;
        while (entry != NULL &&
               strcmp(cJSON_GetObjectItemCaseSensitive(entry, "name")->valuestring, name) != 0) {
            entry = entry->next;
        }
        if (entry == NULL && is_selected(k, name)) {
            tell_skip(k, name, NOT_LISTED, 0);
            k->count[0]++;
        }
    }
}

int32_t hb_golden_check(const struct hb_adapter *backend, const struct hb_golden_options *o,
                        void (*report)(void *ctx, const struct hb_golden_case_result *result),
                        void *ctx, int32_t *passed, int32_t *failed, int32_t *skipped,
                        struct hb_error *err) {
    struct check k = {.backend = backend, .o = o, .report = report, .ctx = ctx, .err = err};
    cJSON *manifest = NULL;
    k.caps.struct_size = sizeof k.caps;
    int32_t status = backend->describe(backend->ctx, &k.caps, err);
    status = status != HB_OK ? status : hb_golden_manifest(o->dir, &manifest, err);
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(manifest, "cases");
    status = status != HB_OK ? status : read_list(&k);
    status = status != HB_OK ? status : run_cases(&k, cases);
    if (status == HB_OK) {
        count_missing(&k, cases);
    }
    free(k.list);
    cJSON_Delete(manifest);
    if (status == HB_OK) {
        *failed = k.count[0];
        *passed = k.count[1];
        *skipped = k.count[2];
    }
    return status;
}
