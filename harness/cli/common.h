/* SPDX-License-Identifier: Apache-2.0
 * What the verbs share. */
#ifndef HB_HARNESS_CLI_COMMON_H
#define HB_HARNESS_CLI_COMMON_H

#include "harness/cli/cli.h"
#include "harness/cli/options.h"
#include "harness/record.h"
#include "harness/supervise.h"

enum { HB_CLI_MAX_MODELS = 128 };

/* One function per verb: returns the exit code. */
int hb_verb_doctor(const struct hb_args *args);
int hb_verb_list(const struct hb_args *args);
int hb_verb_gen(const struct hb_args *args);
int hb_verb_run(const struct hb_args *args);
int hb_verb_fuzz(const struct hb_args *args);
int hb_verb_repro(const struct hb_args *args);
int hb_verb_explain(const struct hb_args *args);
int hb_verb_check(const struct hb_args *args);

const struct hb_build_info *hb_cli_build(void);
/* "hbfuzz: text" on standard error, as one line: control characters are escaped. */
void hb_cli_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Complains and gives the exit code of the status: 3 for what is not here, 4 for the environment.
 */
int hb_cli_failed(int32_t status, const struct hb_error *err);
/* Opens /dev/null in the place of each standard stream that is closed, so that no file of ours gets
 * its number. */
void hb_cli_open_streams(void);
/* 0, or complains and gives 3 when --defect is given and the build has no planted defects. */
int hb_cli_defect_here(const struct hb_args *args);
/* Absolute path of the running program; 0 or -1. */
int hb_cli_self(char *out, size_t cap);
/* Makes path and the folders above it, and sees that it can be written to. */
int32_t hb_cli_make_dir(const char *path, struct hb_error *err);
/* Fills what run, fuzz and repro have in common; 0 or an exit code. program must live as long as s.
 */
int hb_cli_setup(const struct hb_args *args, char *program, size_t cap, struct hb_supervise *s);
/* 0, or complains and gives an exit code: a model that is not there, or --size real without one. */
int hb_cli_gen_options(const struct hb_args *args, struct hb_gen_options *o);
/* Folder of the model files: that of the source tree, else "models" beside the program. 0 or -1. */
int hb_cli_model_dir(char *out, size_t cap);
const char *hb_cli_backend_name(int32_t backend);
void hb_cli_record_context(const struct hb_args *args, struct hb_record_context *ctx);
/* The verdict's line with all options that its repro command needs. */
void hb_cli_verdict_line(const struct hb_args *args, const struct hb_verdict *v,
                         const struct hb_case *c, const char *file, char *out, size_t cap);
/* Progress line on standard error, if it is a terminal; hb_supervise.tick. */
void hb_cli_tick(void *ctx, uint64_t cases, double seconds, int64_t findings);
/* Takes the progress line away again. */
void hb_cli_untick(void);
/* Medians of the error-to-bound ratio and vacuous shares, per op and type, and the share of all together; with_stats:
 * also medians per case and times. */
void hb_cli_print_stats(const struct hb_supervise_result *r, int32_t with_stats);
/* "rules hit both ways: n of N" and "statuses seen: n of N"; verbose: also which are missing, and
 * which rules no case can reach, with the reason. */
void hb_cli_print_coverage(FILE *f, const struct hb_run_stats *s, int32_t verbose);
/* 1 when a run was long enough to judge and more than 1 % of its bounds, of all operations and types together, were
 * vacuous (contracts.md section 6). */
int hb_cli_is_vacuous(const struct hb_run_stats *s);

#endif
