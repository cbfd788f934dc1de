/* SPDX-License-Identifier: Apache-2.0
 * fuzz: a campaign on one target. The last line of its output is "<target>: <n> cases, <r> cases/s,
 * <k> findings". */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/cli/common.h"

static const double default_seconds = 60;

struct campaign {
    const struct hb_args *args;
    struct hb_record_context record;
    FILE *records;
    off_t good_end; /* of the records, behind the last one that could be written */
    int32_t write_errno; /* of the first one that could not, or 0 */
};

/* Frees the line. */
static void write_record(struct campaign *k, char *line) {
    if (line && (fprintf(k->records, "%s\n", line) < 0 || fflush(k->records) != 0)) {
        k->write_errno = k->write_errno ? k->write_errno : errno;
    } else if (line) {
        k->good_end = ftello(k->records);
    }
    free(line);
}

static void on_finding(void *ctx, const struct hb_finding *f) {
    struct campaign *k = ctx;
    const struct hb_message *m = f->message;
    struct hb_case c;
    char line[2048];
    char confirmed[32] = "";
    hb_case_init(&c);
    if (m->file[0]) {
        (void)hb_case_load(m->file, &c, NULL);
    }
    if (f->tries > 0) {
        (void)snprintf(confirmed, sizeof confirmed, "%d of %d", (int)f->same, (int)f->tries);
    }
    hb_cli_untick();
    hb_cli_verdict_line(k->args, &m->verdict, &c, m->file, line, sizeof line);
    (void)printf("%s%s%s\n", line,
                 f->tries > 0 && f->same < f->tries ? " | unstable: same verdict in " : "",
                 f->tries > 0 && f->same < f->tries ? confirmed : "");
    (void)fflush(stdout);
    write_record(k,
                 hb_record_result(&k->record, m, &c,
                                  f->tries > 0 && f->same == f->tries ? "yes" : confirmed));
}

/* 0, or the exit code for an engine argument that would make the engine do something else than this campaign. */
static int check_engine_args(const struct hb_args *args) {
    static const char more[] = "starts processes of its own, which this campaign does not see (--jobs N runs several)";
    static const char other[] = "does something else than a campaign";
    static const struct {
        const char *name, *why;
    } refused[] = {
        {"jobs", more},           {"workers", more},        {"fork", more},
        {"merge", other},         {"set_cover_merge", other}, {"merge_inner", other},
        {"minimize_crash", other}, {"minimize_crash_internal_step", other}, {"cleanse_crash", other},
        {"runs", "is the campaign's own (--count N)"},
        {"help", "only prints the engine's help (run the engine's program by hand for it)"},
    };
    for (int32_t i = 0; i < args->n_rest; i++) {
        const char *word = args->rest[i] + strspn(args->rest[i], "-");
        const size_t n = strcspn(word, "=");
        for (size_t j = 0; word > args->rest[i] && j < sizeof refused / sizeof refused[0]; j++) {
            if (strlen(refused[j].name) == n && strncmp(refused[j].name, word, n) == 0) {
                hb_cli_complain("'-- %.100s': refused, it %s", args->rest[i], refused[j].why);
                return HB_EXIT_USAGE;
            }
        }
    }
    return 0;
}

/* Which program runs the cases: 0 and *engine (null for the plain loop), or an exit code. */
static int pick_engine(const struct hb_args *args, const char *self, int32_t target, char *path,
                       size_t cap, const char **engine) {
    if (args->n_rest > HB_MAX_ENGINE_ARGS) {
        hb_cli_complain("the engine takes at most %d arguments, got %d", HB_MAX_ENGINE_ARGS,
                        (int)args->n_rest);
        return HB_EXIT_USAGE;
    }
    if (check_engine_args(args) != 0) {
        return HB_EXIT_USAGE;
    }
    (void)snprintf(path, cap, "%s-%s", self, hb_target_name(target));
    int is_there = access(path, X_OK) == 0;
    if (args->engine == HB_ENGINE_LIBFUZZER && !is_there) {
        hb_cli_complain("--engine libfuzzer: %s does not exist, the preset fuzz builds it", path);
        return HB_EXIT_NOT_HERE;
    }
    *engine = is_there && args->engine != HB_ENGINE_PLAIN ? path : NULL;
    if (!*engine && args->n_rest > 0) {
        hb_cli_complain("'-- %s': the plain engine takes no arguments", args->rest[0]);
        return HB_EXIT_USAGE;
    }
    if (!*engine && args->corpus) {
        hb_cli_complain("--corpus %s: the plain engine keeps no corpus", args->corpus);
        return HB_EXIT_USAGE;
    }
    return 0;
}

static int32_t open_records(struct campaign *k, const char *dir, struct hb_error *err) {
    char path[HB_PATH_CAP + 32];
    (void)snprintf(path, sizeof path, "%s/records.jsonl", dir);
    k->records = fopen(path, "ae");
    if (!k->records) {
        return hb_fail_text(err, HB_ERR_IO, "cannot write %.180s: %s", path, strerror(errno));
    }
    (void)fseeko(k->records, 0, SEEK_END); /* fails where there is no end to know, as in a pipe */
    k->good_end = ftello(k->records);
    return HB_OK;
}

/* Half a record is cut off, and a file without any removed. */
static int32_t close_records(struct campaign *k, const char *dir, struct hb_error *err) {
    char path[HB_PATH_CAP + 32];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/records.jsonl", dir);
    if (fclose(k->records) != 0 && k->write_errno == 0) {
        k->write_errno = errno;
    }
    if (k->good_end >= 0 && lstat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        if (k->write_errno && st.st_size > k->good_end) {
            (void)truncate(path, k->good_end);
        }
        if (k->good_end == 0) {
            (void)unlink(path);
        }
    }
    return k->write_errno ? hb_fail_text(err, HB_ERR_IO, "cannot write all of %.160s: %s", path, strerror(k->write_errno))
                          : HB_OK;
}

static int report(struct campaign *k, int32_t target, const struct hb_supervise_result *r) {
    int is_vacuous = hb_cli_is_vacuous(&r->stats);
    hb_cli_untick();
    write_record(k, hb_record_summary(&k->record, r));
    hb_cli_print_stats(r, k->args->stats);
    hb_cli_print_coverage(stdout, &r->stats, k->args->verbose);
    if (r->first_seconds >= 0) {
        (void)printf("first finding after %.2f s, %llu cases\n", r->first_seconds,
                     (unsigned long long)r->first_cases);
    }
    if (is_vacuous) {
        (void)printf("error of the generator: of the bounds of all elements together (the line \"bounds:\"), more than "
                     "1 %% are larger than the values they bound\n");
    }
    uint64_t skipped = r->stats.verdicts[HB_VERDICT_SKIP];
    int is_all_skipped = r->cases > 0 && skipped >= r->cases;
    if (skipped) {
        (void)printf("%llu cases skipped: the backend lacks something they need\n",
                     (unsigned long long)skipped);
    }
    (void)printf("%s: %llu cases, %.0f cases/s, %lld findings\n", hb_target_name(target),
                 (unsigned long long)r->cases, r->seconds > 0 ? (double)r->cases / r->seconds : 0.0,
                 (long long)r->findings);
    (void)fflush(stdout);
    if (r->is_interrupted) {
        return HB_EXIT_INTERRUPTED;
    }
    if (r->findings > 0 || is_vacuous) {
        return HB_EXIT_FINDINGS;
    }
    return is_all_skipped ? HB_EXIT_NOT_HERE : HB_EXIT_OK;
}

/* The engine writes inputs without looking whether they fit. HB_OK if some more bytes fit into the folder; else the empty
 * files, those that did not, are removed. */
static int32_t check_corpus(const char *dir, struct hb_error *err) {
    static const char zeros[4096];
    char path[HB_PATH_CAP + 300];
    (void)snprintf(path, sizeof path, "%s/.probe-%ld.tmp-", dir, (long)getpid());
    FILE *f = fopen(path, "we");
    int32_t why = f ? 0 : errno;
    if (f) {
        const int is_written = fwrite(zeros, 1, sizeof zeros, f) == sizeof zeros;
        why = is_written ? 0 : errno;
        why = fclose(f) == 0 || why ? why : errno;
        (void)unlink(path);
    }
    DIR *folder = why ? opendir(dir) : NULL;
    if (!folder) {
        return why ? hb_fail_text(err, HB_ERR_IO, "cannot write to the corpus %.180s: %s", dir, strerror(why)) : HB_OK;
    }
    int64_t n_lost = 0;
    for (const struct dirent *e = readdir(folder); e; e = readdir(folder)) {
        struct stat st;
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0) {
            n_lost += unlink(path) == 0;
        }
    }
    (void)closedir(folder);
    return hb_fail_text(err, HB_ERR_IO, "cannot write to the corpus %.150s: %s; %lld inputs are lost", dir, strerror(why),
                        (long long)n_lost);
}

static int run_campaign(struct campaign *k, struct hb_supervise *s, int32_t target) {
    const struct hb_args *args = k->args;
    const char *dir = args->out ? args->out : "findings";
    struct hb_error err = {.struct_size = sizeof err};
    struct hb_supervise_result *r = calloc(1, sizeof *r);
    if (!r) {
        hb_cli_complain("out of memory");
        return HB_EXIT_ENVIRONMENT;
    }
    int32_t status = hb_cli_make_dir(dir, &err);
    if (status == HB_OK && args->corpus) {
        status = hb_cli_make_dir(args->corpus, &err);
    }
    if (status == HB_OK) {
        status = open_records(k, dir, &err);
    }
    if (status != HB_OK) {
        free(r);
        return hb_cli_failed(status, &err);
    }
    (void)snprintf(s->child.out_dir, sizeof s->child.out_dir, "%s", dir);
    s->child.work = HB_WORK_FUZZ;
    s->child.target = target;
    s->child.gen.target = target;
    s->child.limit = args->count;
    s->seconds = args->time > 0 ? args->time : args->count ? 0 : default_seconds;
    s->workers = args->jobs;
    s->stop_at_first = args->stop_at_first;
    s->corpus_dir = args->corpus;
    s->engine_args = args->rest;
    s->n_engine_args = args->n_rest;
    s->ctx = k;
    s->finding = on_finding;
    status = hb_supervise(s, r, &err);
    const int is_refused = status != HB_OK && r->is_bad_argument;
    int rc = (status == HB_OK || r->cases > 0) && !is_refused ? report(k, target, r) : HB_EXIT_OK;
    const int32_t closed = close_records(k, dir, status == HB_OK ? &err : NULL);
    status = status == HB_OK ? closed : status;
    if (status == HB_OK && args->corpus) {
        status = check_corpus(args->corpus, &err);
    }
    if (status != HB_OK) {
        rc = hb_cli_failed(status, &err);
        rc = is_refused ? HB_EXIT_USAGE : rc;
    }
    free(r);
    return rc;
}

int hb_verb_fuzz(const struct hb_args *args) {
    char program[HB_PATH_CAP];
    char engine[HB_PATH_CAP + 32];
    struct hb_supervise *s = calloc(1, sizeof *s);
    struct campaign k = {.args = args};
    if (!s) {
        hb_cli_complain("out of memory");
        return HB_EXIT_ENVIRONMENT;
    }
    int32_t target = hb_names_find(&hb_names_target, args->paths[0]);
    int rc = 0;
    if (target < 0) {
        char hint[400];
        hb_suggest(args->paths[0], hb_names_target.count(), hb_names_target.name, hint,
                   sizeof hint);
        hb_cli_complain("unknown target '%.200s'%s", args->paths[0], hint);
        rc = HB_EXIT_USAGE;
    }
    if (rc == 0) {
        rc = hb_cli_setup(args, program, sizeof program, s);
    }
    if (rc == 0) {
        rc = pick_engine(args, program, target, engine, sizeof engine, &s->engine);
    }
    if (rc == 0) {
        hb_cli_record_context(args, &k.record);
        rc = run_campaign(&k, s, target);
    }
    free(s);
    return rc;
}
