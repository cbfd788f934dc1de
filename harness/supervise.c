/* SPDX-License-Identifier: Apache-2.0
 * The campaign loop: start workers, listen, notice hangs and deaths, restart, end. */
#include "harness/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/supervise_internal.h"

/* A build with a sanitizer runs cases about three times as slowly. */
#ifdef HB_ASAN
static const double default_hang_seconds = 60;
#else
static const double default_hang_seconds = 20;
#endif
/* Before the first case of a process, where a device starts or a corpus is read: at least this. */
static const double default_start_seconds = 60;
enum { MAX_EARLY_DEATHS = 3 };

static volatile sig_atomic_t interrupts;

static void on_interrupt(int number) {
    (void)number;
    interrupts = interrupts + 1;
}

int hb_supervise_interrupts(void) {
    return (int)interrupts;
}

void hb_supervise_init(struct hb_supervise *s) {
    memset(s, 0, sizeof *s);
    s->workers = 1;
    s->child.compare = -1;
    s->child.seed = 1;
    hb_gen_options_init(&s->child.gen);
}

/* --- set-up --- */

static int32_t make_page(struct hb_campaign *k, struct hb_error *err) {
    size_t bytes = hb_page_bytes(k->n_workers);
    k->page_fd = memfd_create("hbfuzz-page", MFD_CLOEXEC);
    if (k->page_fd < 0 || ftruncate(k->page_fd, (off_t)bytes) != 0) {
        return hb_fail_text(err, HB_ERR_MEMORY, "cannot make a shared page of %zu bytes: %s%s", bytes, strerror(errno),
                            errno == EFBIG ? " (ulimit -f)" : "");
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, k->page_fd, 0);
    if (memory == MAP_FAILED) {
        return hb_fail_text(err, HB_ERR_MEMORY, "cannot map a shared page of %zu bytes: %s", bytes,
                            strerror(errno));
    }
    k->page = memory;
    k->page->magic = HB_PAGE_MAGIC;
    k->page->bytes = (uint32_t)bytes;
    k->page->options = k->s->child;
    k->page->parent = (int32_t)getpid();
    k->page->n_workers = k->n_workers;
    k->page->stop_at_first = k->s->stop_at_first;
    k->page->begun_ns = hb_now_ns();
    return HB_OK;
}

static int32_t make_list(struct hb_campaign *k, struct hb_error *err) {
    k->list_fd = -1;
    if (k->s->child.work != HB_WORK_FILES) {
        return HB_OK;
    }
    k->list_fd = memfd_create("hbfuzz-list", MFD_CLOEXEC);
    int copy = k->list_fd >= 0 ? fcntl(k->list_fd, F_DUPFD_CLOEXEC, 3) : -1;
    FILE *f = copy >= 0 ? fdopen(copy, "w") : NULL;
    if (!f) {
        if (copy >= 0) {
            (void)close(copy);
        }
        return hb_fail_text(err, HB_ERR_MEMORY, "cannot make the list of cases: %s",
                            strerror(errno));
    }
    int is_bad = 0;
    for (int64_t i = 0; i < k->s->n_files; i++) {
        is_bad |= fwrite(k->s->files[i], strlen(k->s->files[i]) + 1, 1, f) != 1;
    }
    is_bad |= fclose(f) != 0;
    return is_bad ? hb_fail_text(err, HB_ERR_MEMORY, "cannot write the list of cases") : HB_OK;
}

static int32_t set_up(struct hb_campaign *k, struct hb_error *err) {
    k->worker = calloc((size_t)k->n_workers, sizeof *k->worker);
    if (!k->worker) {
        return hb_fail_text(err, HB_ERR_MEMORY, "out of memory for %d workers", (int)k->n_workers);
    }
    for (int32_t i = 0; i < k->n_workers; i++) {
        k->worker[i].process.pipe_fd = -1;
        k->worker[i].process.log_fd = -1;
    }
    int32_t status = make_page(k, err);
    if (status == HB_OK) {
        status = make_list(k, err);
    }
    if (status == HB_OK && k->s->engine) {
        k->engine_args = malloc(sizeof *k->engine_args);
        status = k->engine_args ? hb_campaign_make_temporary(k, err)
                                : hb_fail_text(err, HB_ERR_MEMORY, "out of memory for the engine's arguments");
    }
    return status;
}

static void tear_down(struct hb_campaign *k) {
    for (int32_t i = 0; k->worker && i < k->n_workers; i++) {
        struct hb_process *p = &k->worker[i].process;
        if (p->pid > 0) {
            hb_process_kill(p);
            while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) {
            }
            p->pid = 0;
        }
        hb_process_close(p);
    }
    free(k->worker);
    free(k->engine_args);
    hb_campaign_remove_temporary(k);
    if (k->page) {
        (void)munmap(k->page, k->page->bytes);
    }
    if (k->page_fd >= 0) {
        (void)close(k->page_fd);
    }
    if (k->list_fd >= 0) {
        (void)close(k->list_fd);
    }
}

static int32_t start_worker(struct hb_campaign *k, int32_t i, struct hb_error *err) {
    struct hb_campaign_worker *w = &k->worker[i];
    struct hb_worker_page *page = &k->page->worker[i];
    page->seed = k->next_seed++;
    page->first = w->first;
    page->started_ns = 0;
    w->killed = HB_KILL_NONE;
    w->is_failed = 0;
    w->cases_at_start = page->cases;
    w->cases_seen = page->cases;
    w->quiet_since_ns = hb_now_ns();
    w->process.log.is_shown = k->s->is_verbose;
    const char *const plain[] = {k->s->program, "--child", NULL};
    struct hb_process_start start = {.program = k->s->program,
                                     .argv = plain,
                                     .page_fd = k->page_fd,
                                     .list_fd = k->list_fd,
                                     .worker = i};
    if (k->s->engine) {
        hb_campaign_engine_args(k, i, k->engine_args);
        start.program = k->s->engine;
        start.is_engine = 1;
        start.argv = k->engine_args->argv;
    }
    return hb_process_start(&w->process, &start, err);
}

/* --- the loop --- */

static void wait_for_news(struct hb_campaign *k) {
    struct pollfd fd[2 * HB_MAX_WORKERS];
    nfds_t n = 0;
    int is_ending = 0;
    for (int32_t i = 0; i < k->n_workers; i++) {
        const struct hb_process *p = &k->worker[i].process;
        if (p->pipe_fd >= 0) {
            fd[n++] = (struct pollfd){.fd = p->pipe_fd, .events = POLLIN};
        }
        if (p->log_fd >= 0) {
            fd[n++] = (struct pollfd){.fd = p->log_fd, .events = POLLIN};
        }
        is_ending |= p->pid > 0 && p->pipe_fd < 0;
    }
    (void)poll(fd, n, is_ending ? 1 : 50);
}

/* An argument that the engine passes over in silence would be a campaign other than the one asked for. */
static void check_engine_words(struct hb_campaign *k, const struct hb_log *log, struct hb_error *err) {
    static const char *const marks[] = {"WARNING: unrecognized flag ", "WARNING: did you mean "};
    for (size_t i = 0; k->s->n_engine_args > 0 && k->status == HB_OK && i < sizeof marks / sizeof marks[0]; i++) {
        const char *at = strstr(log->text, marks[i]);
        if (at) {
            at += strlen("WARNING: ");
            k->r->is_bad_argument = 1;
            k->status = hb_fail_text(err, HB_ERR_PARSE, "the engine takes no such argument: %.*s",
                                     (int)strcspn(at, "\n;"), at);
        }
    }
}

static void take_messages(struct hb_campaign *k, int32_t i, struct hb_error *err) {
    struct hb_campaign_worker *w = &k->worker[i];
    struct hb_message m;
    while (hb_process_message(&w->process, &m)) {
        w->quiet_since_ns = hb_now_ns(); /* it may have waited for us to listen */
        if (m.size != sizeof m) {
            k->status = hb_fail_text(err, HB_ERR_IO, "a child process sent %u bytes instead of %zu",
                                     m.size, sizeof m);
            return;
        }
        if (m.kind == HB_MESSAGE_FAILED) {
            w->is_failed = 1;
            if (k->status == HB_OK) {
                k->status = m.failed.status;
                *err = m.failed;
            }
        } else if (m.kind == HB_MESSAGE_RESULT) {
            w->first = m.index + 1;
            hb_campaign_result(k, &m, NULL);
        }
    }
    hb_process_drain_log(&w->process);
    check_engine_words(k, &w->process.log, err);
}

/* Kills a worker whose case is too old, which begins no new case, or which does not come to an end
 * after the stop. */
static void check_hang(struct hb_campaign *k, int32_t i, uint64_t now) {
    struct hb_campaign_worker *w = &k->worker[i];
    uint64_t started = __atomic_load_n(&k->page->worker[i].started_ns, __ATOMIC_ACQUIRE);
    uint64_t cases = k->page->worker[i].cases;
    if (!k->page->stop && (started || cases != w->cases_seen)) {
        w->quiet_since_ns = now;
        w->cases_seen = cases;
    }
    uint64_t since = started ? started : w->quiet_since_ns;
    double limit = !started && !k->page->stop && cases == w->cases_at_start ? k->start_seconds
                                                                            : k->hang_seconds;
    if (w->process.pid > 0 && !w->killed && now > since && (double)(now - since) * 1e-9 > limit) {
        w->killed = started ? HB_KILL_IN_CASE : HB_KILL_OUTSIDE;
        hb_process_kill(&w->process);
    }
}

/* Ended by a signal that asks a process to go, which none of ours sends to a child unless it hangs:
 * the user, or the system when memory runs out. */
static int is_killed_by_others(const struct hb_campaign_worker *w, int status) {
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return !w->killed && (number == SIGKILL || number == SIGTERM || number == SIGHUP);
}

/* After a death with a running case: the case is the finding, the work goes on behind it. A kill by
 * others says nothing about the case: a campaign goes on, work that owes a result cannot. */
static int32_t after_crash(struct hb_campaign *k, int32_t i, int status, struct hb_error *err) {
    struct hb_campaign_worker *w = &k->worker[i];
    int32_t rc = HB_OK;
    if (!is_killed_by_others(w, status)) {
        rc = hb_campaign_crash(k, i, status, err);
    } else if (k->s->child.work != HB_WORK_FUZZ) {
        rc = hb_fail_text(err, HB_ERR_MEMORY,
                          "the child process was killed from outside (SIG%s) while a case ran; was "
                          "the memory short?",
                          sigabbrev_np(WTERMSIG(status)));
    }
    if (rc != HB_OK) {
        return rc;
    }
    w->first = k->page->worker[i].index + 1;
    return HB_OK;
}

static int32_t early_death(const struct hb_campaign *k, const struct hb_log *log, struct hb_error *err) {
    char line[180];
    if (k->s->engine && k->s->n_engine_args > 0) {
        hb_log_last_lines(log, line, sizeof line);
        return hb_fail_text(err, HB_ERR_IO, "the engine ends before its first case, with '%.40s'%s: %s",
                            k->s->engine_args[0], k->s->n_engine_args > 1 ? " .." : "", line);
    }
    hb_log_reason(log, line, sizeof line);
    return hb_fail_text(err, HB_ERR_IO, "the child process ends before its first case: %s", line);
}

static int32_t after_death(struct hb_campaign *k, int32_t i, int status, struct hb_error *err) {
    struct hb_campaign_worker *w = &k->worker[i];
    const struct hb_worker_page *page = &k->page->worker[i];
    hb_process_drain_log(&w->process);
    hb_process_close(&w->process);
    if (interrupts > 0 || w->is_failed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
        w->is_done = 1; /* once interrupted, no death says anything */
        return HB_OK;
    }
    if (w->killed == HB_KILL_OUTSIDE) {
        return hb_fail_text(
            err, HB_ERR_STATE,
            "internal error: the child made no progress for %g s outside a case",
            page->cases == w->cases_at_start ? k->start_seconds : k->hang_seconds);
    }
    if (page->started_ns != 0) {
        int32_t rc = after_crash(k, i, status, err);
        if (rc != HB_OK) {
            return rc;
        }
        w->n_early = 0;
    } else if (page->cases == w->cases_at_start && ++w->n_early >= MAX_EARLY_DEATHS) {
        return early_death(k, &w->process.log, err);
    }
    if (k->page->stop) {
        w->is_done = 1;
        return HB_OK;
    }
    k->r->restarts++;
    return start_worker(k, i, err);
}

static void update_totals(struct hb_campaign *k) {
    struct hb_supervise_result *r = k->r;
    r->cases = 0;
    for (int32_t i = 0; i < k->n_workers; i++) {
        r->cases += k->page->worker[i].cases;
    }
    r->seconds = (double)(hb_now_ns() - k->page->begun_ns) * 1e-9;
    r->findings = k->n_findings;
}

static void decide_stop(struct hb_campaign *k) {
    int is_over = interrupts > 0 || k->status != HB_OK;
    is_over |= k->s->seconds > 0 && k->r->seconds >= k->s->seconds;
    is_over |= k->s->stop_at_first && k->n_findings > 0;
    if (is_over && !k->is_stopping) { /* a child may have stopped the others */
        k->is_stopping = 1;
        k->page->stop = 1;
        for (int32_t i = 0; i < k->n_workers; i++) {
            k->worker[i].quiet_since_ns = hb_now_ns();
        }
    }
    for (int32_t i = 0; interrupts > 1 && i < k->n_workers; i++) {
        hb_process_kill(&k->worker[i].process);
    }
}

static int is_running(const struct hb_campaign *k) {
    int n = 0;
    for (int32_t i = 0; i < k->n_workers; i++) {
        n += !k->worker[i].is_done;
    }
    return n > 0;
}

static void tick(struct hb_campaign *k, uint64_t now) {
    if (k->s->tick && now - k->ticked_ns > 500000000U) {
        k->ticked_ns = now;
        k->s->tick(k->s->ctx, k->r->cases, k->r->seconds, k->n_findings);
    }
}

static void loop(struct hb_campaign *k, struct hb_error *err) {
    for (int32_t i = 0; i < k->n_workers && k->status == HB_OK; i++) {
        k->status = start_worker(k, i, err);
    }
    while (is_running(k)) {
        wait_for_news(k);
        uint64_t now = hb_now_ns();
        for (int32_t i = 0; i < k->n_workers; i++) {
            struct hb_campaign_worker *w = &k->worker[i];
            int status = 0;
            if (w->is_done) {
                continue;
            }
            check_hang(k, i, now);
            int is_dead = w->process.pid == 0 || hb_process_reap(&w->process, &status);
            take_messages(k, i, err);
            int32_t rc = is_dead ? after_death(k, i, status, err) : HB_OK;
            if (rc != HB_OK) {
                w->is_done = 1;
                k->status = k->status == HB_OK ? rc : k->status;
            }
        }
        update_totals(k);
        decide_stop(k);
        tick(k, now);
    }
}

static uint64_t median_per_case(const struct hb_campaign *k, int what) {
    uint64_t n = 0;
    uint64_t below = 0;
    for (int bin = 0; bin < 2 * HB_PER_CASE_BINS;
         bin++) { /* once for the number, once to half of it */
        for (int32_t i = 0; i < k->n_workers; i++) {
            uint64_t here = k->page->worker[i].per_case[what][bin % HB_PER_CASE_BINS];
            n += bin < HB_PER_CASE_BINS ? here : 0;
            below += bin < HB_PER_CASE_BINS ? 0 : here;
        }
        if (bin >= HB_PER_CASE_BINS && 2 * below >= n) {
            return n ? (uint64_t)(bin - HB_PER_CASE_BINS) : 0;
        }
    }
    return 0;
}

void hb_supervise_catch(int is_on) {
    static struct sigaction before[3];
    static int depth;
    static const int numbers[3] = {SIGINT, SIGTERM, SIGHUP};
    depth += is_on ? 1 : -1;
    if (depth != is_on) {
        return;
    }
    if (is_on) {
        interrupts = 0;
    }
    for (int i = 0; i < 3; i++) {
        if (is_on) {
            struct sigaction action;
            memset(&action, 0, sizeof action);
            action.sa_handler = on_interrupt;
            (void)sigaction(numbers[i], &action, &before[i]);
            if (numbers[i] == SIGHUP && before[i].sa_handler == SIG_IGN) { /* nohup */
                (void)sigaction(numbers[i], &before[i], NULL);
            }
        } else {
            (void)sigaction(numbers[i], &before[i], NULL);
        }
    }
}

int32_t hb_supervise(const struct hb_supervise *s, struct hb_supervise_result *r,
                     struct hb_error *err) {
    struct hb_error own = {.struct_size = sizeof own};
    struct hb_campaign k = {
        .s = s, .r = r, .page_fd = -1, .list_fd = -1, .next_seed = s->child.seed};
    k.n_workers = s->workers < 1 ? 1 : s->workers > HB_MAX_WORKERS ? HB_MAX_WORKERS : s->workers;
    k.hang_seconds = s->hang_seconds > 0 ? s->hang_seconds : default_hang_seconds;
    memset(r, 0, sizeof *r);
    r->first_seconds = -1;
    k.start_seconds =
        k.hang_seconds > default_start_seconds ? k.hang_seconds : default_start_seconds;
    hb_supervise_catch(1);
    k.status = set_up(&k, &own);
    if (k.status == HB_OK && k.page) {
        loop(&k, &own);
        update_totals(&k);
        for (int32_t i = 0; i < k.n_workers; i++) {
            hb_run_stats_add(&r->stats, &k.page->worker[i].stats);
        }
        for (int i = 0; i < HB_N_PER_CASE; i++) {
            r->median[i] = median_per_case(&k, i);
        }
    }
    r->is_interrupted = interrupts > 0;
    tear_down(&k);
    hb_supervise_catch(0);
    if (k.status != HB_OK && err) {
        *err = own;
    }
    return k.status;
}
