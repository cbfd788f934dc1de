/* SPDX-License-Identifier: Apache-2.0
 * Rows of the option table. */
#ifndef HB_HARNESS_CLI_OPTION_TABLE_H
#define HB_HARNESS_CLI_OPTION_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "harness/cli/options.h"

enum hb_option_type {
    HB_OPTION_FLAG,    /* int32_t, becomes 1 */
    HB_OPTION_TEXT,    /* const char * */
    HB_OPTION_U64,     /* uint64_t in lo..hi, hi 0: no limit */
    HB_OPTION_INT,     /* int32_t in lo..hi, not negative */
    HB_OPTION_SECONDS, /* double, above 0 up to hi */
    HB_OPTION_NAME,    /* int32_t, value of a name */
    HB_OPTION_NAME_OR_NUMBER,
    HB_OPTION_NAMES /* int32_t, values of several uses joined by "or" */
};

enum { HB_TARGET_ANY = -1 };

struct hb_option {
    const char *name;
    char letter;
    int32_t type;
    const char *arg; /* word for the value in help */
    const char *help;
    uint32_t verbs; /* bit per enum hb_verb */
    size_t offset;  /* in struct hb_args */
    int64_t lo, hi;
    const struct hb_names *names;
};

/* Two options that exclude each other, or of which the first needs the second. */
struct hb_conflict {
    uint32_t verbs;
    const char *a, *b;
};

extern const struct hb_option hb_option_table[];
extern const int hb_n_options;
extern const struct hb_conflict hb_conflicts[], hb_needs[];
extern const int hb_n_conflicts, hb_n_needs;

/* The nearest of n names, or null (see hb_nearest). */
const char *hb_nearest_of(const char *text, int n, const char *const *names);

#endif
