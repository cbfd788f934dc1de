/* SPDX-License-Identifier: Apache-2.0
 * One child process: its pipe of messages, and the end of what it prints. */
#ifndef HB_HARNESS_PROCESS_H
#define HB_HARNESS_PROCESS_H

#include <sys/types.h>

#include "harness/child.h"

enum { HB_LOG_CAP = 65536 };

/* The last HB_LOG_CAP bytes printed. */
struct hb_log {
    char text[HB_LOG_CAP + 1];
    size_t n;         /* bytes held; text[n] is 0 */
    int32_t is_shown; /* copy to standard error as well */
};

struct hb_process {
    pid_t pid;   /* 0: none */
    int pipe_fd; /* -1 after its end */
    int log_fd;  /* -1 after its end */
    uint8_t partial[sizeof(struct hb_message)];
    size_t n_partial;
    struct hb_log log;
};

struct hb_process_start {
    const char *program;
    const char *const *argv; /* ends with a null */
    int page_fd, list_fd;    /* list_fd -1: none */
    int32_t worker;
    int32_t is_engine; /* runs very many cases: reports keep two frames of an allocation */
};

/* Starts a child that dies with this process and ignores SIGINT, SIGTERM and SIGHUP, which a group
 * of processes gets together (the supervisor decides). HB_ERR_IO with the reason. */
int32_t hb_process_start(struct hb_process *p, const struct hb_process_start *start,
                         struct hb_error *err);
/* Next complete message, without waiting: 1 and *m, or 0. */
int hb_process_message(struct hb_process *p, struct hb_message *m);
/* Takes in what has been printed, without waiting. */
void hb_process_drain_log(struct hb_process *p);
/* 1 and *status (of waitpid) when the process has ended; pid becomes 0. Does not wait. */
int hb_process_reap(struct hb_process *p, int *status);
void hb_process_kill(struct hb_process *p);
/* Closes what is left. The process must be gone. */
void hb_process_close(struct hb_process *p);

/* Finds the report in a log: the line of text that says what happened, without its address part,
 * into out; the sanitizer's or emulator's word for it ("heap-buffer-overflow", "undefined", ...)
 * into word; 0 if there is none. */
int hb_log_summary(const struct hb_log *log, char *out, size_t cap, char *word, size_t word_cap);
/* Why a process that did nothing ended: the report's line, else the last line that is not one of the
 * engine's INFO lines; cut to cap. */
void hb_log_reason(const struct hb_log *log, char *out, size_t cap);
/* What was said before a report (or at all): the last lines that say something, joined by "; "; cut to cap. */
void hb_log_last_lines(const struct hb_log *log, char *out, size_t cap);
/* Writes the report's first 30 lines and its summary to path. */
int32_t hb_log_save(const struct hb_log *log, const char *path, struct hb_error *err);

#endif
