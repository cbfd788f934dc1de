/* SPDX-License-Identifier: Apache-2.0
 * The process in which cases run. It shares a page with its supervisor: options one way, counters
 * and the running case the other, so that nothing is lost and the right case is blamed when the
 * process dies. Results go through a pipe as struct hb_message. The environment names both:
 * HBFUZZ_PAGE="<page fd>,<pipe fd>,<list fd or -1>,<worker>". */
#ifndef HB_HARNESS_CHILD_H
#define HB_HARNESS_CHILD_H

#include <stddef.h>
#include <stdint.h>

#include "harness/case.h"
#include "harness/gen.h"
#include "harness/run.h"
#include "harness/verdict.h"

enum {
    HB_PAGE_MAGIC = 0x48425031,
    HB_MAX_WORKERS = 64,
    HB_MAX_SEEN = 256,
    HB_PATH_CAP = 1024,
    HB_PER_CASE_BINS = 1024
};

enum hb_work {
    HB_WORK_FUZZ,  /* cases without end: generated, and mutated from earlier ones */
    HB_WORK_GEN,   /* generated cases number first .. first + count - 1 */
    HB_WORK_FILES, /* the files of the list, from number first on */
    HB_N_WORKS
};

struct hb_child_options {
    int32_t work;
    int32_t target;           /* fuzz: forced on every case */
    int32_t backend, compare; /* indices of hb_backends; compare -1: none */
    int32_t defect, status_only, check_off, timed;
    struct hb_gen_options gen;
    uint64_t seed;
    uint64_t limit;             /* most cases of all workers together; 0: no limit */
    char out_dir[HB_PATH_CAP];  /* where cases of findings are written; empty: nowhere */
    char dump_dir[HB_PATH_CAP]; /* empty: no dump */
};

/* Counts whose medians over the cases are kept. */
enum hb_per_case { HB_PER_CASE_FORWARDS, HB_PER_CASE_TOKENS, HB_PER_CASE_LAUNCHES, HB_N_PER_CASE };

/* One worker's part of the page. Written by the child unless noted. */
struct hb_worker_page {
    uint64_t seed;                /* by the supervisor, before each start */
    uint64_t first;               /* by the supervisor: index of the first case of this process */
    volatile uint64_t started_ns; /* CLOCK_MONOTONIC start of the running case, 0 between cases */
    volatile uint64_t index;      /* of the running case */
    volatile int32_t operation;   /* enum hb_operation, HB_OPERATION_none outside calls */
    volatile int32_t kernel_line;
    char kernel[64]; /* last kernel started by the emulator, filled when the process dies */
    uint32_t case_size;
    uint8_t case_bytes[HB_CASE_MAX_BYTES];
    uint64_t cases; /* executions, those of earlier processes included */
    struct hb_run_stats stats;
    uint64_t per_case[HB_N_PER_CASE]
                     [HB_PER_CASE_BINS]; /* cases by value, the last bin holds larger ones */
};

struct hb_page {
    uint32_t magic;
    uint32_t bytes;
    struct hb_child_options options;
    int32_t parent;             /* process id */
    uint64_t begun_ns;          /* start of the campaign */
    volatile int32_t stop;      /* no new case: by the supervisor, or by hb_page_first */
    int32_t stop_at_first;      /* fuzz: nothing begins after the first finding */
    int32_t has_first;          /* atomic */
    uint64_t taken;             /* cases begun by all workers, atomic */
    uint32_t n_seen;            /* atomic */
    char seen[HB_MAX_SEEN][17]; /* fingerprints already reported */
    int32_t n_workers;
    struct hb_worker_page worker[];
};

enum hb_message_kind {
    HB_MESSAGE_RESULT, /* gen, files: one per case; fuzz: one per new fingerprint */
    HB_MESSAGE_FAILED, /* the process cannot go on: status and text in failed */
    HB_MESSAGE_DONE    /* all work is done */
};
struct hb_message {
    uint32_t size;
    int32_t kind;
    uint64_t index;    /* of the case */
    uint64_t ns;       /* run time of the case */
    uint64_t at_cases; /* executions so far, this one included */
    uint64_t at_ns;    /* since begun_ns */
    uint64_t launches, tokens;
    double max_ratio[HB_N_OPS][HB_N_FORMS][HB_N_FLOAT_DTYPES];
    uint8_t broken[32]; /* bit r: rule r was broken (cases that are run one by one) */
    int32_t has_second_run; /* of a relation */
    struct hb_verdict verdict;
    int32_t target;
    char id[HB_CASE_ID_LEN];
    char file[HB_PATH_CAP]; /* case file: read from or written to; empty: none */
    struct hb_error failed;
};

uint64_t hb_now_ns(void);
/* Bytes of a page with n workers. */
size_t hb_page_bytes(int32_t n_workers);
/* "<dir>/<target>-<word>-<fingerprint8>-<id8>.case" */
void hb_finding_path(const char *dir, int32_t target, const char *word, const char *fingerprint,
                     const char *id, char *out, size_t cap);
/* Writes the case there; makes the folder if it is not there yet. */
int32_t hb_finding_save(const char *path, const struct hb_case *c, struct hb_error *err);
/* 1 if the fingerprint was new; thread and process safe. 0 also when the table is full. */
int hb_page_see(struct hb_page *page, const char *fingerprint);

/* 1 if a new finding may be reported. With stop_at_first that is the first one only, which also stops
 * the campaign; thread and process safe. */
int hb_page_first(struct hb_page *page);

/* hbfuzz --child: attaches to the page and does its work. Returns the exit code, 0 or 5. */
int hb_child_main(void);

/* For the engine's targets: attaches (returns 0 or -1), runs one input, mutates, crosses over.
 * Without a supervisor (HBFUZZ_PAGE unset) the inputs run on the backend of HBFUZZ_BACKEND (default
 * emu) and a finding aborts. */
int hb_child_attach(int32_t target);
int hb_child_input(const uint8_t *data, size_t size);
size_t hb_child_mutate(uint8_t *data, size_t size, size_t max_size, uint32_t seed);
size_t hb_child_cross(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                      uint8_t *out, size_t cap, uint32_t seed);

#endif
