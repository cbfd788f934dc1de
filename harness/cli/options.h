/* SPDX-License-Identifier: Apache-2.0
 * The command line: one table of verbs, one table of options; parsing and help are made from them.
 */
#ifndef HB_HARNESS_CLI_OPTIONS_H
#define HB_HARNESS_CLI_OPTIONS_H

#include <stdint.h>
#include <stdio.h>

#include "harness/cli/names.h"

enum hb_verb {
    HB_VERB_DOCTOR,
    HB_VERB_LIST,
    HB_VERB_GEN,
    HB_VERB_RUN,
    HB_VERB_FUZZ,
    HB_VERB_REPRO,
    HB_VERB_EXPLAIN,
    HB_VERB_CHECK,
    HB_N_VERBS
};

/* Values of all options; fields keep their defaults where an option is not given. */
struct hb_args {
    int32_t verb;
    uint64_t given; /* bit per row of the option table */
    char **paths;   /* operands, in argv */
    int32_t n_paths;
    char **rest; /* after -- */
    int32_t n_rest;
    const char *program; /* argv[0] */
    int32_t help, version, quiet, verbose;
    int32_t json, targets, backends, modes, statuses, rules, relations, defects, models;
    int32_t stats, stop_at_first, status_only;
    int32_t backend, compare, target, relation, mode, size, gen_class, case_format, run_format, engine,
        defect, off, mixer;
    int32_t jobs, times;
    uint64_t seed, count, gen;
    double time;
    const char *out, *corpus, *golden, *filter, *dump, *bound, *model;
};

struct hb_verb_row {
    const char *name;
    const char *operands;            /* "FILE..." for the usage line */
    int32_t least_paths, most_paths; /* most -1: any number */
    const char *what;                /* one line */
    const char *example[2];
    int (*act)(const struct hb_args *args);
};

extern const struct hb_verb_row hb_verbs[HB_N_VERBS];

/* 0, or the exit code (after one line on standard error). args->help and args->version end parsing
 * early. */
int hb_options_parse(int argc, char **argv, struct hb_args *args);
/* verb -1: the program's. */
void hb_options_help(FILE *out, int32_t verb);
/* 1 if the option --name was given. */
int hb_given(const struct hb_args *args, const char *name);

#endif
