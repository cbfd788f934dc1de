/* SPDX-License-Identifier: Apache-2.0
 * run: cases from files, or generated ones, once each. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/cli/common.h"
#include "harness/cli/files.h"

struct run {
    const struct hb_args *args;
    const struct hb_supervise *s;
    struct hb_record_context record;
    FILE *records; /* null: none */
    FILE *text;    /* null: none */
    uint64_t n_passed, n_skipped;
    int32_t is_finished; /* the summary is written */
    int32_t write_errno; /* of the first record that could not be written, or 0 */
};

static void case_of(const struct run *k, const struct hb_message *m, struct hb_case *c) {
    if (k->s->child.work == HB_WORK_GEN) {
        hb_gen_case(&k->s->child.gen, k->s->child.seed, m->index, c);
    } else if (hb_case_load(m->file, c, NULL) != HB_OK) {
        hb_case_init(c);
    }
}

/* Frees the line. */
static void put_record(struct run *k, char *line) {
    errno = 0;
    if (fprintf(k->records, "%s\n", line ? line : "{}") < 0 && k->write_errno == 0) {
        k->write_errno = errno;
    }
    free(line);
}

static void on_result(void *ctx, const struct hb_message *m) {
    struct run *k = ctx;
    const struct hb_verdict *v = &m->verdict;
    struct hb_case c;
    k->n_passed += v->kind == HB_VERDICT_PASS;
    k->n_skipped += v->kind == HB_VERDICT_SKIP;
    int is_shown = v->kind != HB_VERDICT_PASS || k->args->verbose;
    if (!k->records && !is_shown) {
        return;
    }
    case_of(k, m, &c);
    if (k->records) {
        char *line = hb_record_result(&k->record, m, &c, "");
        put_record(k, line);
    }
    if (k->text && is_shown) {
        char line[2048];
        hb_cli_untick();
        hb_cli_verdict_line(k->args, v, &c, m->file, line, sizeof line);
        (void)fprintf(k->text, "%s%s%s\n", line,
                      v->kind == HB_VERDICT_PASS && m->file[0] ? " " : "",
                      v->kind == HB_VERDICT_PASS ? m->file : "");
    }
}

static int finish(struct run *k, const struct hb_supervise_result *r) {
    hb_cli_untick();
    k->is_finished = 1;
    if (k->records) {
        char *line = hb_record_summary(&k->record, r);
        put_record(k, line);
    }
    if (k->text) {
        if (k->args->stats) {
            hb_cli_print_stats(r, 1);
        }
        hb_cli_print_coverage(k->text, &r->stats, k->args->verbose);
        (void)fprintf(k->text, "run: %llu cases, %llu passed, %lld findings, %llu skipped\n",
                      (unsigned long long)r->cases, (unsigned long long)k->n_passed,
                      (long long)r->findings, (unsigned long long)k->n_skipped);
    }
    if (r->is_interrupted) {
        return HB_EXIT_INTERRUPTED;
    }
    if (r->findings > 0) {
        return HB_EXIT_FINDINGS;
    }
    return r->cases > 0 && k->n_skipped == r->cases ? HB_EXIT_NOT_HERE : HB_EXIT_OK;
}

/* Runs with the records going to f (null: none). */
static int execute(struct run *k, struct hb_supervise *s, FILE *file, struct hb_error *err,
                   int32_t *status) {
    const struct hb_args *args = k->args;
    struct hb_supervise_result *r = calloc(1, sizeof *r);
    if (!r) {
        *status = hb_fail_text(err, HB_ERR_MEMORY, "out of memory");
        return HB_EXIT_ENVIRONMENT;
    }
    int is_text_file = file && hb_given(args, "format") && args->run_format == HB_FORMAT_TEXT;
    int is_text_stdout = !file && !args->json && args->run_format == HB_FORMAT_TEXT;
    if (file) {
        k->records = is_text_file ? NULL : file;
        k->text = is_text_file ? file : stdout;
    } else {
        k->records = is_text_stdout ? NULL : stdout;
        k->text = is_text_stdout ? stdout : NULL;
    }
    hb_cli_record_context(args, &k->record);
    s->ctx = k;
    s->result = on_result;
    *status = hb_supervise(s, r, err);
    int rc = *status == HB_OK || r->cases > 0 ? finish(k, r) : HB_EXIT_OK;
    free(r);
    return rc;
}

static int32_t cannot_write(const char *path, struct hb_error *err) {
    return hb_fail_text(err, HB_ERR_IO, "cannot write %.180s: %s", path, strerror(errno));
}

/* Where the records of --out go first. A name that is new or leads to a regular file: a file beside
 * it, so that the records are complete or absent; *target gets the name that this file has at the
 * end. What exists otherwise (a device, a pipe, a link that leads to no file) is written to. */
struct destination {
    char target[PATH_MAX]; /* symbolic links followed */
    char part[PATH_MAX + 32];
    int32_t is_direct;
};

static int32_t find_destination(const char *out, struct destination *d, struct hb_error *err) {
    struct stat st;
    int is_there = stat(out, &st) == 0;
    if (is_there && S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        return cannot_write(out, err);
    }
    if (strlen(out) >= sizeof d->target) {
        errno = ENAMETOOLONG;
        return cannot_write(out, err);
    }
    d->is_direct = is_there ? !S_ISREG(st.st_mode) : lstat(out, &st) == 0;
    (void)snprintf(d->target, sizeof d->target, "%s", out);
    if (is_there && !d->is_direct && !realpath(out, d->target)) {
        return cannot_write(out, err);
    }
    (void)snprintf(d->part, sizeof d->part, "%s.%ld.part", d->target, (long)getpid());
    return HB_OK;
}

static int execute_to_file(struct run *k, struct hb_supervise *s, struct hb_error *err,
                           int32_t *status) {
    struct destination d = {.is_direct = 0};
    const char *out = k->args->out;
    if (!out) {
        return execute(k, s, NULL, err, status);
    }
    *status = find_destination(out, &d, err);
    if (*status != HB_OK) {
        return HB_EXIT_ENVIRONMENT;
    }
    FILE *f = fopen(d.is_direct ? d.target : d.part, "we");
    if (!f) {
        *status = cannot_write(out, err);
        return HB_EXIT_ENVIRONMENT;
    }
    int rc = execute(k, s, f, err, status);
    int is_bad = ferror(f);
    if (fclose(f) != 0) {
        is_bad = 1;
        k->write_errno = k->write_errno ? k->write_errno : errno;
    }
    if (!d.is_direct && (is_bad || !k->is_finished)) {
        (void)unlink(d.part);
    } else if (!d.is_direct && rename(d.part, d.target) != 0) {
        is_bad = 1;
        k->write_errno = errno;
    }
    if (is_bad && *status == HB_OK) {
        errno = k->write_errno ? k->write_errno : EIO;
        *status = cannot_write(out, err);
    }
    return rc;
}

static int32_t prepare_gen(const struct hb_args *args, struct hb_supervise *s) {
    s->child.work = HB_WORK_GEN;
    s->child.limit = args->gen;
    s->child.target = s->child.gen.target;
    (void)snprintf(s->child.out_dir, sizeof s->child.out_dir, "findings");
    return HB_OK; /* the folder is made for the first finding */
}

/* All must be readable before the first one runs. Says of each that is not why, of the last one in err. */
static int32_t check_files(const struct hb_files *files, struct hb_error *err) {
    enum { MOST_NAMED = 20 };
    struct hb_error last = {.struct_size = sizeof last};
    int64_t n_bad = 0;
    for (int64_t i = 0; i < files->n; i++) {
        struct hb_case c;
        struct hb_error fault = {.struct_size = sizeof fault};
        if (hb_case_load(files->path[i], &c, &fault) != HB_OK) {
            if (n_bad > 0 && n_bad < MOST_NAMED) {
                hb_cli_complain("%s", last.text);
            }
            last = fault;
            n_bad++;
        }
    }
    if (n_bad > 1) {
        hb_cli_complain("%s", last.text);
        return hb_fail_text(err, last.status, "%lld of %lld files are no cases; none was run",
                            (long long)n_bad, (long long)files->n);
    }
    if (n_bad == 1) {
        *err = last;
    }
    return last.status;
}

static int32_t prepare_files(const struct hb_args *args, struct hb_supervise *s,
                             struct hb_files *files, struct hb_error *err) {
    s->child.work = HB_WORK_FILES;
    int32_t status = hb_files_collect(args->paths, args->n_paths, files, err);
    status = status == HB_OK ? check_files(files, err) : status;
    if (status == HB_OK && args->dump) {
        status = hb_cli_make_dir(args->dump, err);
        (void)snprintf(s->child.dump_dir, sizeof s->child.dump_dir, "%s", args->dump);
    }
    s->files = (const char *const *)files->path;
    s->n_files = files->n;
    return status;
}

static int check_input(const struct hb_args *args) {
    if (args->gen && args->n_paths > 0) {
        hb_cli_complain("--gen and case files contradict each other: '%.200s'", args->paths[0]);
        return HB_EXIT_USAGE;
    }
    if (!args->gen && args->n_paths == 0) {
        hb_cli_complain("run needs case files, folders of them, or --gen N (hbfuzz run --help)");
        return HB_EXIT_USAGE;
    }
    return 0;
}

int hb_verb_run(const struct hb_args *args) {
    char program[HB_PATH_CAP];
    static struct hb_supervise s;
    struct hb_error err = {.struct_size = sizeof err};
    struct hb_files files = {NULL, 0};
    struct run k = {.args = args, .s = &s};
    int rc = check_input(args);
    if (rc == 0) {
        rc = hb_cli_setup(args, program, sizeof program, &s);
    }
    if (rc != 0) {
        return rc;
    }
    int32_t status =
        args->gen ? prepare_gen(args, &s) : prepare_files(args, &s, &files, &err);
    if (status == HB_OK && args->dump && files.n != 1) {
        hb_cli_complain("--dump takes one case, got %lld", (long long)files.n);
        hb_files_free(&files);
        return HB_EXIT_USAGE;
    }
    if (status == HB_OK) {
        rc = execute_to_file(&k, &s, &err, &status);
    }
    hb_files_free(&files);
    return status == HB_OK ? rc : hb_cli_failed(status, &err);
}
