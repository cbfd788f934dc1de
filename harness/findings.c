/* SPDX-License-Identifier: Apache-2.0
 * What a campaign does with findings: a death becomes a verdict, a finding is run again in fresh
 * processes before it is believed. And the engine's command line. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/supervise_internal.h"
#include "harness/watch.h"

enum {
    MAX_TRIES = 5, /* of a finding that did not repeat at once */
    EXIT_ENGINE_OOM =
        71 /* the engine's code for its memory limit, which counts all cases since the start */
};

/* --- a death as a verdict --- */

static void signal_word(int status, char *word, size_t cap) {
    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        (void)snprintf(word, cap, "SIG%s", name ? name : "unknown");
    } else {
        (void)snprintf(word, cap, "exit-%d", WEXITSTATUS(status));
    }
}

/* The place has what a case's size and values do not change: kind of step, operation, kernel, line.
 */
static void crash_place(const struct hb_worker_page *page, char *place, size_t cap) {
    int32_t operation = page->operation;
    if (operation == HB_OPERATION_none) {
        (void)snprintf(place, cap, "harness"); /* outside the backend: values, oracle, comparison */
    } else if (page->kernel[0]) {
        (void)snprintf(place, cap, "%s %.40s:%d", hb_operation_step(operation), page->kernel,
                       (int)page->kernel_line);
    } else {
        (void)snprintf(place, cap, "%s %s", hb_operation_step(operation),
                       hb_operation_name(operation));
    }
}

static void crash_verdict(const struct hb_campaign *k, int32_t i, int status,
                          struct hb_verdict *v) {
    const struct hb_campaign_worker *w = &k->worker[i];
    const struct hb_worker_page *page = &k->page->worker[i];
    char word[48];
    char check[32];
    char place[64];
    char text[256];
    memset(v, 0, sizeof *v);
    memset(&v->at, 0xff, offsetof(struct hb_divergence, got));
    crash_place(page, place, sizeof place);
    if (w->killed) {
        hb_verdict_set(v, HB_VERDICT_HANG, "hang", place, HB_OK, HB_OK, "no end after %.0f s",
                       k->hang_seconds);
        return;
    }
    signal_word(status, word, sizeof word);
    (void)snprintf(text, sizeof text, "the process ended with %s", word);
    (void)hb_log_summary(&w->process.log, text, sizeof text, word, sizeof word);
    (void)snprintf(check, sizeof check, "memory.%.24s", word);
    hb_verdict_set(v, HB_VERDICT_MEMORY, check, place, HB_OK, HB_OK, "%s", text);
}

static void crash_message(const struct hb_campaign *k, int32_t i, int status,
                          struct hb_message *m) {
    const struct hb_worker_page *page = &k->page->worker[i];
    uint64_t now = hb_now_ns();
    memset(m, 0, sizeof *m);
    m->size = sizeof *m;
    m->kind = HB_MESSAGE_RESULT;
    m->index = page->index;
    m->ns = now - page->started_ns;
    m->at_cases = page->cases;
    m->at_ns = now - k->page->begun_ns;
    crash_verdict(k, i, status, &m->verdict);
}

/* The running case was copied to the page in its canonical form before it began. */
static void crashed_case(const struct hb_worker_page *page, struct hb_case *c) {
    size_t n = page->case_size <= sizeof page->case_bytes ? page->case_size : 0;
    hb_case_decode(page->case_bytes, n, c);
}

int32_t hb_campaign_crash(struct hb_campaign *k, int32_t i, int status, struct hb_error *err) {
    struct hb_message m;
    struct hb_case c;
    crash_message(k, i, status, &m);
    crashed_case(&k->page->worker[i], &c);
    m.target = c.config.target;
    hb_case_id(&c, m.id);
    int is_oom = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_ENGINE_OOM;
    if (k->s->child.work == HB_WORK_FUZZ &&
        (is_oom || !hb_page_see(k->page, m.verdict.fingerprint) || !hb_page_first(k->page))) {
        return HB_OK; /* known, or not the first; or the sum of many cases, which no single one repeats */
    }
    if (k->s->child.work == HB_WORK_FILES) {
        (void)snprintf(m.file, sizeof m.file, "%s",
                       (int64_t)m.index < k->s->n_files ? k->s->files[m.index] : "");
    } else if (k->s->child.out_dir[0]) {
        hb_finding_path(k->s->child.out_dir, m.target, hb_verdict_name(m.verdict.kind),
                        m.verdict.fingerprint, m.id, m.file, sizeof m.file);
        int32_t rc = hb_finding_save(m.file, &c, err);
        if (rc != HB_OK) {
            return rc;
        }
    }
    hb_campaign_result(k, &m, &k->worker[i].process.log);
    return HB_OK;
}

/* --- confirmation --- */

struct confirmation {
    struct hb_message *m;
    int32_t n;
};

static void keep_result(void *ctx, const struct hb_message *m) {
    struct confirmation *c = ctx;
    *c->m = *m;
    c->n++;
}

int32_t hb_supervise_case(const char *program, const struct hb_child_options *child,
                          const char *file, double hang_seconds, struct hb_message *m,
                          struct hb_error *err) {
    struct {
        struct hb_supervise s;
        struct hb_supervise_result r; /* tens of kilobytes: too much for a small stack */
    } *run = calloc(1, sizeof *run);
    struct hb_message got;
    struct confirmation keep = {.m = &got};
    if (!run) {
        return hb_fail_text(err, HB_ERR_MEMORY, "out of memory to run a case again");
    }
    memset(&got, 0, sizeof got);
    hb_supervise_init(&run->s);
    run->s.program = program;
    run->s.child = *child;
    run->s.child.work = HB_WORK_FILES;
    run->s.child.limit = 0;
    run->s.child.out_dir[0] = '\0';
    run->s.files = &file;
    run->s.n_files = 1;
    run->s.hang_seconds = hang_seconds;
    run->s.ctx = &keep;
    run->s.result = keep_result;
    int32_t status = hb_supervise(&run->s, &run->r, err);
    free(run);
    if (status == HB_OK && keep.n == 0) {
        status = hb_fail_text(err, HB_ERR_IO, "interrupted before the case was run");
    }
    if (status == HB_OK) {
        *m = got;
    }
    return status;
}

/* Runs the case again: once if it repeats at once, else MAX_TRIES times for the rate. */
static void confirm(const struct hb_campaign *k, const struct hb_message *m, struct hb_finding *f) {
    f->message = m;
    for (f->tries = 0; f->tries < MAX_TRIES && !(f->tries == 1 && f->same == 1);) {
        struct hb_message again;
        if (hb_supervise_interrupts() > 0 ||
            hb_supervise_case(k->s->program, &k->s->child, m->file, k->hang_seconds, &again,
                              NULL) != HB_OK) {
            return;
        }
        f->tries++;
        f->same += strcmp(again.verdict.fingerprint, m->verdict.fingerprint) == 0;
        if (m->verdict.kind == HB_VERDICT_HANG) {
            return; /* each try costs the whole limit */
        }
    }
}

static void rename_unstable(struct hb_message *m) {
    char path[HB_PATH_CAP];
    const char *slash = strrchr(m->file, '/');
    char dir[HB_PATH_CAP];
    (void)snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - m->file) : 1,
                   slash ? m->file : ".");
    hb_finding_path(dir, m->target, "unstable", m->verdict.fingerprint, m->id, path, sizeof path);
    if (rename(m->file, path) == 0) {
        memcpy(m->file, path, sizeof m->file);
    }
}

static void save_log(const struct hb_message *m, const struct hb_log *log) {
    char path[HB_PATH_CAP + 8];
    size_t n = strlen(m->file);
    if (log && log->n > 0 && n > 5 && strcmp(m->file + n - 5, ".case") == 0) {
        (void)snprintf(path, sizeof path, "%.*s.txt", (int)(n - 5), m->file);
        (void)hb_log_save(log, path, NULL); /* the case itself is what counts */
    }
}

static void note_first(struct hb_campaign *k, const struct hb_message *m) {
    if (k->n_findings++ == 0) {
        k->r->first_seconds = (double)m->at_ns * 1e-9;
        k->r->first_cases = 0;
        for (int32_t i = 0; i < k->n_workers; i++) {
            k->r->first_cases += k->page->worker[i].cases;
        }
        if (k->n_workers == 1) {
            k->r->first_cases = m->at_cases;
        }
    }
}

void hb_campaign_result(struct hb_campaign *k, struct hb_message *m, const struct hb_log *log) {
    if (k->s->child.work != HB_WORK_FUZZ) {
        if (hb_verdict_is_finding(m->verdict.kind)) {
            note_first(k, m);
        }
        if (k->s->result) {
            k->s->result(k->s->ctx, m);
        }
        if (k->s->child.work == HB_WORK_GEN) {
            save_log(m, log);
        }
        return;
    }
    struct hb_finding f = {.message = m};
    note_first(k, m);
    if (m->file[0]) {
        confirm(k, m, &f);
        if (f.tries > 0 && f.same < f.tries) {
            rename_unstable(m);
        }
        save_log(m, log);
    }
    if (k->s->finding) {
        k->s->finding(k->s->ctx, &f);
    }
}

/* --- the engine's folder --- */

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where) {
    (void)st;
    (void)kind;
    (void)where;
    (void)remove(path);
    return 0;
}

static void remove_folder(const char *path) {
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* In a process of its own: removes the folder after the supervisor's end, also if that was a SIGKILL. The engine's
 * processes die with the supervisor but may still be writing, so it tries again. Never returns. */
static void wait_and_remove(const char *path, int fd) {
    enum { TRIES = 100 };
    char byte;
    (void)setsid(); /* out of the group, which may be killed as a whole */
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    if (dup2(fd, 0) == 0) {
        (void)close_range(1, ~0U, 0); /* others wait for the end of what these lead to */
    }
    while (read(0, &byte, 1) < 0 && errno == EINTR) {
    }
    for (int i = 0; i < TRIES && access(path, F_OK) == 0; i++) {
        remove_folder(path);
        (void)poll(NULL, 0, 50);
    }
    _exit(0);
}

/* Without it (no process or pipe to be had) the folder is removed by the supervisor only. */
static void start_janitor(struct hb_campaign *k) {
    int fd[2];
    if (pipe2(fd, O_CLOEXEC) != 0) {
        return;
    }
    (void)fflush(NULL); /* nothing buffered may be written twice */
    const pid_t pid = fork();
    if (pid == 0) {
        (void)close(fd[1]);
        wait_and_remove(k->temporary, fd[0]);
    }
    (void)close(fd[0]);
    if (pid < 0) {
        (void)close(fd[1]);
        return;
    }
    k->janitor = pid;
    k->janitor_fd = fd[1];
}

void hb_campaign_remove_temporary(struct hb_campaign *k) {
    if (k->temporary[0]) {
        remove_folder(k->temporary);
    }
    if (k->janitor > 0) {
        (void)close(k->janitor_fd);
        while (waitpid(k->janitor, NULL, 0) < 0 && errno == EINTR) {
        }
    }
}

int32_t hb_campaign_make_temporary(struct hb_campaign *k, struct hb_error *err) {
    const char *base = getenv("TMPDIR");
    char path[HB_PATH_CAP];
    if (!base || !base[0]) { /* the engine writes hundreds of small files in its first seconds */
        base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    }
    (void)snprintf(path, sizeof path, "%.900s/hbfuzz-XXXXXX", base);
    if (!mkdtemp(path)) {
        return hb_fail_text(err, HB_ERR_IO, "cannot make the folder %.180s: %s", path,
                            strerror(errno));
    }
    memcpy(k->temporary, path, sizeof path);
    start_janitor(k);
    for (int32_t i = 0; i < k->n_workers; i++) {
        char corpus[HB_PATH_CAP + 32];
        (void)snprintf(corpus, sizeof corpus, "%s/corpus-%d", k->temporary, (int)i);
        if (mkdir(corpus, 0700) != 0) {
            return hb_fail_text(err, HB_ERR_IO, "cannot make the folder %.180s: %s", corpus,
                                strerror(errno));
        }
    }
    return HB_OK;
}

/* --- the engine's arguments --- */

/* entropic=0: its bookkeeping costs 6 % of the time of a case, and half of the inputs are fresh cases
 * whatever the engine picks. */
void hb_campaign_engine_args(const struct hb_campaign *k, int32_t i, struct hb_engine_args *args) {
    static const char *const fixed[] = {
        "-len_control=0",       "-detect_leaks=0",    "-use_value_profile=0", "-handle_int=0",
        "-handle_term=0",       "-print_final_stats=0", "-rss_limit_mb=4096", "-error_exitcode=77",
        "-entropic=0"};
    uint64_t seed = k->page->worker[i].seed;
    uint32_t seed31 = (uint32_t)((seed ^ (seed >> 31)) & 0x7fffffffU);
    int n = 0;
    int t = 0;
    memset(args, 0, sizeof *args);
    args->argv[n++] = k->s->engine;
    for (size_t j = 0; j < sizeof fixed / sizeof fixed[0]; j++) {
        args->argv[n++] = fixed[j];
    }
    (void)snprintf(args->text[t++], sizeof args->text[0], "-max_len=%d", (int)HB_CASE_MAX_BYTES);
    /* 0 would mean a seed from the clock */
    (void)snprintf(args->text[t++], sizeof args->text[0], "-seed=%u",
                   seed31 ? seed31 : 0x7fffffffU);
    /* the supervisor is the first to notice a hang */
    (void)snprintf(args->text[t++], sizeof args->text[0], "-timeout=%.0f", k->hang_seconds + 20);
    (void)snprintf(args->text[t++], sizeof args->text[0], "-artifact_prefix=%s/", k->temporary);
    int n_options = t;
    if (k->s->corpus_dir) {
        (void)snprintf(args->text[t++], sizeof args->text[0], "%s", k->s->corpus_dir);
    } else {
        (void)snprintf(args->text[t++], sizeof args->text[0], "%s/corpus-%d", k->temporary, (int)i);
    }
    /* the folder before the user's arguments: the engine writes into the first, and reads the others */
    for (int j = 0; j <= n_options; j++) {
        args->argv[n++] = args->text[j];
    }
    for (int32_t j = 0; j < k->s->n_engine_args && j < HB_MAX_ENGINE_ARGS; j++) {
        args->argv[n++] = k->s->engine_args[j];
    }
}
