/* SPDX-License-Identifier: Apache-2.0
 * A golden directory of its own for a test: a few shipped cases whose manifest can be changed. */
#ifndef HB_HARNESS_TESTS_GOLDEN_PLACE_H
#define HB_HARNESS_TESTS_GOLDEN_PLACE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/golden.h"
#include "harness/golden_internal.h"
#include "harness/run.h"

#define GOLDEN HB_SOURCE_DIR "/golden"
#define NORM "gated_rms_norm_a"
#define SCAN "ssd_varlen_short"

enum { PATH_CAP = 512 };

struct place {
    char dir[32];
    int32_t n_random;   /* as in hb_golden_options */
    const char *filter; /* likewise */
    int32_t passed, failed, skipped, runs, skips;
    char text[512];     /* of the latest failure or skip */
    const char *wanted; /* a text that some report should hold */
    int32_t found;
    struct hb_error err;
};

static inline void see(void *ctx, const struct hb_golden_case_result *r) {
    struct place *p = ctx;
    p->runs++;
    p->skips += r->skipped;
    if (!r->passed) {
        (void)snprintf(p->text, sizeof p->text, "%s %s: %s", r->name, r->schedule, r->reason);
        p->found += p->wanted != NULL && strstr(p->text, p->wanted) != NULL;
    }
}

static inline void put(const struct place *p, const char *name, const char *text, size_t len) {
    char path[PATH_CAP];
    (void)snprintf(path, sizeof path, "%s/%s", p->dir, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL) {
        fail_msg("cannot write %s", path);
        return;
    }
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static inline void link_file(const struct place *p, const char *name) {
    char from[PATH_CAP];
    char to[PATH_CAP];
    (void)snprintf(from, sizeof from, "%s/%s", GOLDEN, name);
    (void)snprintf(to, sizeof to, "%s/%s", p->dir, name);
    assert_int_equal(symlink(from, to), 0);
}

/* A directory with the conv, the smallest layer case, and perhaps another one, whose manifest can
 * be changed. */
static inline void open_place_with(struct place *p, cJSON **manifest, const char *other) {
    struct hb_error err = {.struct_size = sizeof err};
    memset(p, 0, sizeof *p);
    p->n_random = 2;
    p->err.struct_size = sizeof p->err;
    (void)snprintf(p->dir, sizeof p->dir, "/tmp/hb_golden_XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    assert_int_equal(hb_golden_manifest(GOLDEN, manifest, &err), HB_OK);
    cJSON *cases = cJSON_GetObjectItemCaseSensitive(*manifest, "cases");
    for (int i = cJSON_GetArraySize(cases) - 1; i >= 0; i--) {
        const char *name =
            cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(cases, i), "name")->valuestring;
        if (strcmp(name, "conv_w3_nobias_noact") != 0 && strcmp(name, "mamba2_segments_g2") != 0 &&
            (other == NULL || strcmp(name, other) != 0)) {
            cJSON_DeleteItemFromArray(cases, i);
        }
    }
    link_file(p, "conv_w3_nobias_noact.safetensors");
    link_file(p, "mamba2_segments_g2.safetensors");
    if (other != NULL && strcmp(other, "conv_w3_nobias_noact") != 0 &&
        strcmp(other, "mamba2_segments_g2") != 0) {
        char file[64];
        (void)snprintf(file, sizeof file, "%s.safetensors", other);
        link_file(p, file);
    }
}

static inline void open_place(struct place *p, cJSON **manifest) {
    open_place_with(p, manifest, NULL);
}

static inline void write_manifest(const struct place *p, const cJSON *manifest) {
    char *text = cJSON_PrintUnformatted(manifest);
    assert_non_null(text);
    put(p, "manifest.json", text, strlen(text));
    free(text);
}

static inline void close_place(const struct place *p) {
    DIR *d = opendir(p->dir);
    assert_non_null(d);
    for (struct dirent *e = d ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        char path[PATH_CAP];
        (void)snprintf(path, sizeof path, "%s/%s", p->dir, e->d_name);
        if (e->d_name[0] != '.') {
            assert_int_equal(unlink(path), 0);
        }
    }
    assert_int_equal(d ? closedir(d) : -1, 0);
    assert_int_equal(rmdir(p->dir), 0);
}

static inline int32_t check_with(const struct hb_adapter *backend, struct place *p) {
    struct hb_golden_options o;
    hb_golden_options_init(&o, p->dir);
    o.n_random = p->n_random;
    o.filter = p->filter;
    memset(&p->err, 0, sizeof p->err);
    p->err.struct_size = sizeof p->err;
    p->passed = p->failed = p->skipped = -1;
    p->runs = p->skips = 0;
    return hb_golden_check(backend, &o, see, p, &p->passed, &p->failed, &p->skipped, &p->err);
}

static inline int32_t check(struct place *p) {
    return check_with(hb_adapter_oracle(), p);
}

/* Sets (or with json null removes) a field of case `name`: a top-level one, or one of its config.
 */
static inline void change(cJSON *manifest, const char *name, const char *object, const char *key,
                          const char *json) {
    cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(manifest, "cases")) {
        if (strcmp(cJSON_GetObjectItemCaseSensitive(entry, "name")->valuestring, name) == 0) {
            cJSON *target =
                object != NULL ? cJSON_GetObjectItemCaseSensitive(entry, object) : entry;
            cJSON_DeleteItemFromObjectCaseSensitive(target, key);
            if (json != NULL) {
                cJSON *value = cJSON_Parse(json);
                assert_non_null(value);
                assert_true(cJSON_AddItemToObject(target, key, value));
            }
            return;
        }
    }
    fail_msg("no case %s", name);
}

#endif
