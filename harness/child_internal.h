/* SPDX-License-Identifier: Apache-2.0
 * What the plain loops and the engine's targets share. */
#ifndef HB_HARNESS_CHILD_INTERNAL_H
#define HB_HARNESS_CHILD_INTERNAL_H

#include "harness/child.h"

struct hb_child {
    struct hb_page *page;
    struct hb_worker_page *me;
    int pipe_fd;
    const char *list;
    size_t list_bytes;
    const struct hb_adapter *backend;
    struct hb_run_options run;
    struct hb_run_memory memory; /* of run */
    struct hb_run_stats case_stats;
};

/* Maps what the environment names and binds this process to its supervisor's life. 0 or -1. */
int hb_child_open(struct hb_child *child);
/* Opens the backends and fills the run options. */
int32_t hb_child_backends(struct hb_child *child, struct hb_error *err);
/* Notes the running kernel on the page when the process dies by a fatal signal or a sanitizer
 * report. */
void hb_child_catch(struct hb_child *child);
void hb_child_send(const struct hb_child *child, const struct hb_message *m);
void hb_child_fail(const struct hb_child *child, int32_t status, const struct hb_error *err);
/* Puts c on the page as the running case; 0 when no more cases are wanted. */
int hb_child_begin(struct hb_child *child, const struct hb_case *c, uint64_t index);
/* Runs the case begun and fills m; -1 (after telling the supervisor) when the process cannot go on.
 */
int hb_child_run(struct hb_child *child, const struct hb_case *c, struct hb_run_stats *stats,
                 struct hb_message *m);
/* Writes the case of a finding (m->id and the verdict are set) and fills m->file; -1 as above. */
int hb_child_save(const struct hb_child *child, const struct hb_case *c, struct hb_message *m);
/* begin, run, save and send a new finding: 0 go on, 1 no more cases wanted, -1 cannot go on. */
int hb_child_fuzz_one(struct hb_child *child, const struct hb_case *c, uint64_t index);

#endif
