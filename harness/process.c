/* SPDX-License-Identifier: Apache-2.0
 * Starting, listening to and ending child processes. */
#include "harness/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Options of the sanitizers' run-times; those of the user come last and win. 77 is the code of a
 * report. */
static void set_sanitizer_options(const char *variable, const char *ours) {
    char text[2048];
    const char *theirs = getenv(variable);
    (void)snprintf(text, sizeof text, "%s%s%s", ours, theirs ? ":" : "", theirs ? theirs : "");
    (void)setenv(variable, text, 1);
}

static void keep_open(int fd) {
    if (fd >= 0) {
        (void)fcntl(fd, F_SETFD, 0);
    }
}

#define HB_ASAN_OPTIONS                                                                            \
    "quarantine_size_mb=16:detect_stack_use_after_return=0:allocator_may_return_null=1:"           \
    "handle_abort=1:detect_leaks=0:exitcode=77"

/* In the new process: never returns. */
static void become(const struct hb_process_start *start, int pipe_fd, int log_fd, pid_t parent) {
    const struct rlimit no_core = {0, 0}; /* deaths are expected here */
    char text[64];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(5);
    }
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0) {
        _exit(5);
    }
    keep_open(start->page_fd);
    keep_open(start->list_fd);
    keep_open(pipe_fd);
    (void)snprintf(text, sizeof text, "%d,%d,%d,%d", start->page_fd, pipe_fd, start->list_fd,
                   (int)start->worker);
    (void)setenv("HBFUZZ_PAGE", text, 1);
    /* The quarantine holds more than the largest case frees; a larger one only makes all memory
     * cold: 16 instead of 256 MiB is 11 % of the time of a case. Unwinding at each malloc and free
     * is another 3 %: only the program that repeats a single case does it in full. */
    set_sanitizer_options("ASAN_OPTIONS", start->is_engine
                                              ? "malloc_context_size=2:" HB_ASAN_OPTIONS
                                              : HB_ASAN_OPTIONS);
    set_sanitizer_options("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1:exitcode=77");
    (void)execv(start->program, (char *const *)start->argv);
    (void)dprintf(2, "hbfuzz: cannot start %s: errno %d\n", start->program, errno);
    _exit(5);
}

int32_t hb_process_start(struct hb_process *p, const struct hb_process_start *start,
                         struct hb_error *err) {
    int message[2] = {-1, -1};
    int log[2] = {-1, -1};
    pid_t parent = getpid();
    if (pipe2(message, O_CLOEXEC) != 0 || pipe2(log, O_CLOEXEC) != 0) {
        goto failed;
    }
    if (fcntl(message[0], F_SETFL, O_NONBLOCK) != 0 || fcntl(log[0], F_SETFL, O_NONBLOCK) != 0) {
        goto failed;
    }
    (void)fflush(NULL); /* nothing buffered may be written twice */
    pid_t pid = fork();
    if (pid < 0) {
        goto failed;
    }
    if (pid == 0) {
        become(start, message[1], log[1], parent);
    }
    (void)close(message[1]);
    (void)close(log[1]);
    p->pid = pid;
    p->pipe_fd = message[0];
    p->log_fd = log[0];
    p->n_partial = 0;
    p->log.n = 0;
    p->log.text[0] = '\0';
    return HB_OK;
failed:
    for (int i = 0; i < 2; i++) {
        if (message[i] >= 0) {
            (void)close(message[i]);
        }
        if (log[i] >= 0) {
            (void)close(log[i]);
        }
    }
    return hb_fail_text(err, HB_ERR_IO, "cannot start a child process: %s", strerror(errno));
}

static void close_fd(int *fd) {
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

int hb_process_message(struct hb_process *p, struct hb_message *m) {
    while (p->pipe_fd >= 0) {
        ssize_t n = read(p->pipe_fd, p->partial + p->n_partial, sizeof p->partial - p->n_partial);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return 0;
        }
        if (n <= 0) {
            close_fd(&p->pipe_fd);
            return 0;
        }
        p->n_partial += (size_t)n;
        if (p->n_partial == sizeof p->partial) {
            memcpy(m, p->partial, sizeof *m);
            p->n_partial = 0;
            return 1;
        }
    }
    return 0;
}

static void log_add(struct hb_log *log, const char *text, size_t n) {
    if (log->is_shown) {
        (void)fwrite(text, 1, n, stderr);
    }
    if (n > HB_LOG_CAP) {
        text += n - HB_LOG_CAP;
        n = HB_LOG_CAP;
    }
    size_t drop = log->n + n > HB_LOG_CAP ? log->n + n - HB_LOG_CAP : 0;
    memmove(log->text, log->text + drop, log->n - drop);
    memcpy(log->text + log->n - drop, text, n);
    log->n += n - drop;
    log->text[log->n] = '\0';
}

void hb_process_drain_log(struct hb_process *p) {
    char text[4096];
    while (p->log_fd >= 0) {
        ssize_t n = read(p->log_fd, text, sizeof text);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n <= 0) {
            close_fd(&p->log_fd);
            return;
        }
        log_add(&p->log, text, (size_t)n);
    }
}

int hb_process_reap(struct hb_process *p, int *status) {
    if (p->pid == 0 || waitpid(p->pid, status, WNOHANG) != p->pid) {
        return 0;
    }
    p->pid = 0;
    return 1;
}

void hb_process_kill(struct hb_process *p) {
    if (p->pid > 0) {
        (void)kill(p->pid, SIGKILL);
    }
}

void hb_process_close(struct hb_process *p) {
    close_fd(&p->pipe_fd);
    close_fd(&p->log_fd);
}

/* Where a report begins, in the order of preference; word null: the rest of the line up to a space
 * is the word. */
static const struct {
    const char *mark, *word;
} reports[] = {
    {"hbfuzz-emu: ", "emulator"}, /* prints, then aborts: a sanitizer reports the abort after it */
    {"runtime error: ", "undefined"},   {"ERROR: AddressSanitizer: ", NULL},
    {"ERROR: LeakSanitizer: ", "leak"}, {"ERROR: libFuzzer: ", NULL},
};

static const char *find_report(const struct hb_log *log, size_t *which) {
    for (size_t i = 0; i < sizeof reports / sizeof reports[0]; i++) {
        const char *at = strstr(log->text, reports[i].mark);
        if (at) {
            *which = i;
            return at;
        }
    }
    return NULL;
}

static const char *start_of_line(const char *text, const char *at) {
    while (at > text && at[-1] != '\n') {
        at--;
    }
    return at;
}

int hb_log_summary(const struct hb_log *log, char *out, size_t cap, char *word, size_t word_cap) {
    size_t which = 0;
    const char *at = find_report(log, &which);
    if (!at) {
        return 0;
    }
    const char *rest = at + strlen(reports[which].mark);
    if (reports[which].word) {
        (void)snprintf(word, word_cap, "%s", reports[which].word);
    } else {
        (void)snprintf(word, word_cap, "%.*s", (int)strcspn(rest, " :\n"), rest);
    }
    const char *summary = strstr(at, "SUMMARY: ");
    const char *line = !reports[which].word && summary ? summary + strlen("SUMMARY: ")
                                                       : start_of_line(log->text, at);
    (void)snprintf(out, cap, "%.*s", (int)strcspn(line, "\n"), line);
    return 1;
}

void hb_log_reason(const struct hb_log *log, char *out, size_t cap) {
    char word[48];
    (void)snprintf(out, cap, "no message");
    if (hb_log_summary(log, out, cap, word, sizeof word)) {
        return;
    }
    for (const char *line = log->text; *line;) {
        size_t n = strcspn(line, "\n");
        if (n > 0 && strncmp(line, "INFO:", 5) != 0) {
            (void)snprintf(out, cap, "%.*s", (int)n, line);
        }
        line += n + (line[n] == '\n');
    }
}

/* 1 for a line that says something: no INFO of the engine, no beginning of a report. */
static int is_said(const char *line, size_t n) {
    return strspn(line, "= ") < n && strncmp(line, "INFO:", 5) != 0 &&
           strncmp(line, "AddressSanitizer:DEADLYSIGNAL", 29) != 0;
}

void hb_log_last_lines(const struct hb_log *log, char *out, size_t cap) {
    enum { MOST = 3 };
    const char *line[MOST];
    size_t which = 0;
    size_t used = 0;
    int n = 0;
    const char *report = find_report(log, &which);
    const char *end = report ? start_of_line(log->text, report) : log->text + log->n;
    for (const char *p = log->text; p < end; p += strcspn(p, "\n") + 1) {
        if (is_said(p, strcspn(p, "\n"))) {
            line[n++ % MOST] = p;
        }
    }
    if (n == 0) {
        hb_log_reason(log, out, cap);
        return;
    }
    for (int i = n > MOST ? n - MOST : 0; i < n && used < cap; i++) {
        const char *p = line[i % MOST];
        p += strspn(p, " ");
        used += (size_t)snprintf(out + used, cap - used, "%s%.*s", used > 0 ? "; " : "", (int)strcspn(p, "\n"), p);
    }
}

int32_t hb_log_save(const struct hb_log *log, const char *path, struct hb_error *err) {
    size_t which = 0;
    const char *at = find_report(log, &which);
    const char *line = at ? start_of_line(log->text, at) : log->text;
    FILE *f = fopen(path, "we");
    if (!f) {
        return hb_fail_text(err, HB_ERR_IO, "cannot write %.200s", path);
    }
    for (int i = 0; i < 30 && *line; i++) {
        size_t n = strcspn(line, "\n");
        (void)fprintf(f, "%.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
    const char *summary = strstr(line, "SUMMARY: ");
    if (summary) {
        (void)fprintf(f, "%.*s\n", (int)strcspn(summary, "\n"), summary);
    }
    if (fclose(f) != 0) {
        return hb_fail_text(err, HB_ERR_IO, "cannot write %.200s", path);
    }
    return HB_OK;
}
