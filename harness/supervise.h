/* SPDX-License-Identifier: Apache-2.0
 * The supervisor: runs cases in child processes that may die, and keeps what they found. It never
 * runs a case itself and never starts a device. */
#ifndef HB_HARNESS_SUPERVISE_H
#define HB_HARNESS_SUPERVISE_H

#include "harness/child.h"

enum { HB_MAX_ENGINE_ARGS = 32 };

/* A finding of a fuzzing campaign, after it was run again in fresh processes. */
struct hb_finding {
    const struct hb_message *message; /* verdict, id, file, when */
    int32_t same, tries;              /* runs with the same fingerprint, of tries */
};

struct hb_supervise {
    const char *program; /* hbfuzz itself */
    const char *engine;  /* the engine's program for the target; null: the plain loop */
    struct hb_child_options child;
    double seconds; /* 0: no limit */
    int32_t workers;
    int32_t stop_at_first; /* no case after the first finding; those that run on other workers end, unreported */
    int32_t is_verbose;     /* show what the children print */
    double hang_seconds;    /* 0: the build's default */
    const char *corpus_dir; /* engine: read and extended; null: a temporary one */
    char *const *engine_args;
    int32_t n_engine_args; /* at most HB_MAX_ENGINE_ARGS */
    const char *const *files; /* HB_WORK_FILES */
    int64_t n_files;
    void *ctx;
    void (*result)(void *ctx,
                   const struct hb_message *m); /* gen, files: every case, in order; may be null */
    void (*finding)(void *ctx, const struct hb_finding *f); /* fuzz; may be null */
    void (*tick)(void *ctx, uint64_t cases, double seconds,
                 int64_t findings); /* every 0.5 s; may be null */
};

struct hb_supervise_result {
    uint64_t cases;
    double seconds;
    int64_t findings;
    int64_t restarts;
    double first_seconds; /* of the first finding; -1: none */
    uint64_t first_cases;
    int32_t is_interrupted;
    int32_t is_bad_argument; /* the engine does not take one of engine_args */
    struct hb_run_stats stats;
    uint64_t median[HB_N_PER_CASE]; /* over the cases */
};

/* HB_OK when the campaign could be carried out, whatever it found; else the reason in err. *r is
 * filled in either case. */
int32_t hb_supervise(const struct hb_supervise *s, struct hb_supervise_result *r,
                     struct hb_error *err);
/* How often the user asked to stop (SIGINT, SIGTERM, SIGHUP) during campaigns. */
int hb_supervise_interrupts(void);
/* Counts interrupts from is_on 1 to is_on 0 instead of dying by them; nested calls (a campaign's
 * confirmations) share the count. A SIGHUP that was ignored (nohup) stays so. */
void hb_supervise_catch(int is_on);
/* Sets the defaults: one worker, plain, nothing limited, seed 1. */
void hb_supervise_init(struct hb_supervise *s);
/* Runs the case of file in a fresh process with the options of child; *m receives its result. */
int32_t hb_supervise_case(const char *program, const struct hb_child_options *child,
                          const char *file, double hang_seconds, struct hb_message *m,
                          struct hb_error *err);

#endif
