/* SPDX-License-Identifier: Apache-2.0
 * Walks folders of cases. */
#include "harness/cli/files.h"

#include "harness/cli/common.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct hb_files *walk_to; /* nftw passes no argument through */

static int add(struct hb_files *f, const char *path) {
    if ((f->n & (f->n - 1)) == 0) { /* grow at powers of two */
        size_t cap = f->n ? 2 * (size_t)f->n : 1;
        char **grown = (char **)realloc((void *)f->path, cap * sizeof *grown);
        if (!grown) {
            return -1;
        }
        f->path = grown;
    }
    f->path[f->n] = strdup(path);
    return f->path[f->n] ? (f->n++, 0) : -1;
}

static int can_be_case(const char *path) {
    static const char *const others[] = {".txt", ".jsonl", ".md", ".dict", ".part"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        size_t k = strlen(others[i]);
        if (n >= k && strcmp(path + n - k, others[i]) == 0) {
            return 0;
        }
    }
    return strstr(path, ".tmp-") == NULL; /* of a writer that was stopped */
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *where) {
    struct stat target;
    (void)st;
    if (kind == FTW_SL) { /* links to files are followed */
        if (stat(path, &target) == 0 && S_ISREG(target.st_mode)) {
            kind = FTW_F;
        } else {
            hb_cli_complain("skipped %.200s: a link that leads to no file", path);
        }
    }
    if (kind != FTW_F || path[where->base] == '.' || !can_be_case(path + where->base) ||
        strstr(path, "/models/")) { /* a corpus's model files are no cases */
        return 0;
    }
    return add(walk_to, path);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int32_t collect_dir(const char *path, struct hb_files *out, struct hb_error *err) {
    int64_t before = out->n;
    walk_to = out;
    if (nftw(path, visit, 16, FTW_PHYS) != 0) {
        return hb_fail_text(err, HB_ERR_IO, "cannot read the folder %.200s", path);
    }
    if (out->n == before) {
        return hb_fail_text(err, HB_ERR_IO, "no case files in the folder %.200s", path);
    }
    qsort((void *)(out->path + before), (size_t)(out->n - before), sizeof *out->path, by_name);
    return HB_OK;
}

int32_t hb_files_collect(char *const *paths, int32_t n_paths, struct hb_files *out,
                         struct hb_error *err) {
    int32_t status = HB_OK;
    for (int32_t i = 0; status == HB_OK && i < n_paths; i++) {
        struct stat st;
        if (stat(paths[i], &st) != 0) {
            status =
                hb_fail_text(err, HB_ERR_IO, "cannot read %.180s: %s", paths[i], strerror(errno));
        } else if (S_ISDIR(st.st_mode)) {
            status = collect_dir(paths[i], out, err);
        } else if (add(out, paths[i]) != 0) {
            status = hb_fail_text(err, HB_ERR_MEMORY, "out of memory for the list of files");
        }
    }
    return status;
}

void hb_files_free(struct hb_files *files) {
    for (int64_t i = 0; i < files->n; i++) {
        free(files->path[i]);
    }
    free((void *)files->path);
    files->path = NULL;
    files->n = 0;
}
