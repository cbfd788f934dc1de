/* SPDX-License-Identifier: Apache-2.0
 * State of a running campaign, shared by its loop (supervise.c) and by what it does with findings
 * (findings.c). */
#ifndef HB_HARNESS_SUPERVISE_INTERNAL_H
#define HB_HARNESS_SUPERVISE_INTERNAL_H

#include "harness/process.h"
#include "harness/supervise.h"

/* By us, for a hang: in a case, which is then the finding, or outside one. */
enum hb_kill { HB_KILL_NONE, HB_KILL_IN_CASE, HB_KILL_OUTSIDE };

struct hb_campaign_worker {
    struct hb_process process;
    uint64_t first; /* index of the next case, for a restart */
    uint64_t cases_at_start;
    uint64_t quiet_since_ns; /* last sign of progress, or of the stop */
    uint64_t cases_seen;     /* the child's count of cases at the last look */
    int32_t killed;          /* enum hb_kill */
    int32_t is_failed;       /* it said that it cannot go on */
    int32_t is_done;
    int32_t n_early; /* deaths before the first case, in a row */
};

struct hb_campaign {
    const struct hb_supervise *s;
    struct hb_supervise_result *r;
    struct hb_page *page;
    int page_fd, list_fd;
    struct hb_campaign_worker *worker;
    int32_t n_workers;
    double hang_seconds, start_seconds;
    uint64_t next_seed;
    int64_t n_findings;
    uint64_t ticked_ns;
    int32_t status;
    char temporary[HB_PATH_CAP]; /* folder of the engine's corpora; empty: none */
    pid_t janitor;               /* removes that folder when janitor_fd is closed, also by our death; 0: none */
    int janitor_fd;
    struct hb_engine_args *engine_args; /* null: no engine */
    int32_t is_stopping;
};

struct hb_engine_args {
    char text[16][HB_PATH_CAP + 64];
    const char *argv[64];
};

/* A result that came from a child, or (log not null) one made from a death. */
void hb_campaign_result(struct hb_campaign *k, struct hb_message *m, const struct hb_log *log);
/* Worker i died with a running case: writes the case, and reports the result. */
int32_t hb_campaign_crash(struct hb_campaign *k, int32_t i, int status, struct hb_error *err);
int32_t hb_campaign_make_temporary(struct hb_campaign *k, struct hb_error *err);
void hb_campaign_remove_temporary(struct hb_campaign *k);
/* The engine's command line for worker i. */
void hb_campaign_engine_args(const struct hb_campaign *k, int32_t i, struct hb_engine_args *args);

#endif
