/* SPDX-License-Identifier: Apache-2.0
 * Tables of names that options take, and the nearest name to a mistyped one. */
#ifndef HB_HARNESS_CLI_NAMES_H
#define HB_HARNESS_CLI_NAMES_H

#include <stddef.h>
#include <stdint.h>

struct hb_names {
    const char *what; /* "target", "backend", ... */
    int (*count)(void);
    const char *(*name)(int i);
    int32_t (*value)(int i); /* null: the index itself */
};

extern const struct hb_names hb_names_target, hb_names_relation, hb_names_backend, hb_names_mode, hb_names_size,
    hb_names_class, hb_names_case_format, hb_names_run_format, hb_names_engine, hb_names_check_off,
    hb_names_defect, hb_names_mixer;

enum { HB_FORMAT_CASE = 0, HB_FORMAT_JSON = 1 };
enum { HB_FORMAT_TEXT = 0, HB_FORMAT_JSONL = 1 };
enum { HB_ENGINE_LIBFUZZER = 0, HB_ENGINE_PLAIN = 1 };

/* Index of the value's name, -1 when unknown. */
int hb_names_find(const struct hb_names *names, const char *text);
/* The nearest of count names by edit distance, or null when none is near: at most one letter of
 * three, two of up to eight, a third of longer ones may differ, or text may be the beginning of a
 * name. */
const char *hb_nearest(const char *text, int count, const char *(*name)(int i));
/* ", did you mean 'x'?" or the whole list " (known: a, b)" when it is short, or "" into out. */
void hb_suggest(const char *text, int count, const char *(*name)(int i), char *out, size_t cap);

#endif
