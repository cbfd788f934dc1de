/* SPDX-License-Identifier: Apache-2.0
 * Name tables and edit distance. */
#include "harness/cli/names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backend/batch.h"
#include "backend/defects.h"
#include "harness/backends.h"
#include "harness/child.h"
#include "harness/cli/option_table.h"
#include "harness/run.h"

#define COUNT_OF(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* A table whose value is the index. */
#define INDEX_TABLE(id, what_text, ...)                                                            \
    static const char *const id##_list[] = {__VA_ARGS__};                                          \
    static int id##_count(void) {                                                                  \
        return COUNT_OF(id##_list);                                                                \
    }                                                                                              \
    static const char *id##_name(int i) {                                                          \
        return id##_list[i];                                                                       \
    }                                                                                              \
    const struct hb_names hb_names_##id = {what_text, id##_count, id##_name, NULL};

INDEX_TABLE(size, "size", "small", "default", "large", "real")
INDEX_TABLE(class, "class", "mix", "valid", "near", "broken", "several")
INDEX_TABLE(case_format, "format", "case", "json")
INDEX_TABLE(run_format, "format", "text", "jsonl")
INDEX_TABLE(engine, "engine", "libfuzzer", "plain")

static int target_count(void) {
    return HB_N_TARGETS;
}
static const char *target_name(int i) {
    return hb_target_name(i);
}
const struct hb_names hb_names_target = {"target", target_count, target_name, NULL};

static int mixer_count(void) {
    return HB_N_MIXERS;
}
static const char *mixer_name(int i) {
    return hb_mixer_name(i);
}
const struct hb_names hb_names_mixer = {"mixer", mixer_count, mixer_name, NULL};

static int backend_count(void) {
    const struct hb_backend_entry *list;
    return hb_backends(&list);
}
static const char *backend_name(int i) {
    const struct hb_backend_entry *list;
    (void)hb_backends(&list);
    return list[i].name;
}
const struct hb_names hb_names_backend = {"backend", backend_count, backend_name, NULL};

struct number_name {
    int32_t number;
    const char *name;
};

static const struct number_name mode_list[] = {
#define MODE_ROW(number, name) {number, #name},
    HB_MODES(MODE_ROW)
#undef MODE_ROW
};
static int mode_count(void) {
    return COUNT_OF(mode_list);
}
static const char *mode_name(int i) {
    return mode_list[i].name;
}
static int32_t mode_value(int i) {
    return mode_list[i].number;
}
const struct hb_names hb_names_mode = {"mode", mode_count, mode_name, mode_value};

static const struct number_name defect_list[] = {
#define DEFECT_ROW(number, name, what, detector) {number, #name},
    HB_DEFECTS_TABLE(DEFECT_ROW)
#undef DEFECT_ROW
};
static int defect_count(void) {
    return COUNT_OF(defect_list);
}
static const char *defect_name(int i) {
    return defect_list[i].name;
}
static int32_t defect_value(int i) {
    return defect_list[i].number;
}
const struct hb_names hb_names_defect = {"defect", defect_count, defect_name, defect_value};

static int relation_count(void) {
    const struct hb_relation *list;
    return hb_relations(&list);
}
static const char *relation_name(int i) {
    const struct hb_relation *list;
    (void)hb_relations(&list);
    return list[i].name;
}
static int32_t relation_value(int i) {
    const struct hb_relation *list;
    (void)hb_relations(&list);
    return list[i].number;
}
const struct hb_names hb_names_relation = {"relation", relation_count, relation_name,
                                           relation_value};

static const struct number_name off_list[] = {{HB_OFF_NUMERIC, "numeric"},
                                              {HB_OFF_STATE, "state"},
                                              {HB_OFF_PURITY, "purity"},
                                              {HB_OFF_STATUS, "status"},
                                              {HB_OFF_RELATION, "relation"},
                                              {HB_OFF_ORDER, "order"},
                                              {HB_OFF_POISON, "poison"}};
static int off_count(void) {
    return COUNT_OF(off_list);
}
static const char *off_name(int i) {
    return off_list[i].name;
}
static int32_t off_value(int i) {
    return off_list[i].number;
}
const struct hb_names hb_names_check_off = {"check", off_count, off_name, off_value};

int hb_names_find(const struct hb_names *names, const char *text) {
    int n = names->count();
    for (int i = 0; i < n; i++) {
        if (strcasecmp(names->name(i), text) == 0) {
            return i;
        }
    }
    return -1;
}

enum { MAX_WORD = 40 };

static int least(int a, int b, int c) {
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Levenshtein distance without case; words longer than MAX_WORD are near to nothing. */
static int distance(const char *a, const char *b) {
    int row[MAX_WORD + 1];
    int na = (int)strnlen(a, MAX_WORD + 1);
    int nb = (int)strnlen(b, MAX_WORD + 1);
    if (na > MAX_WORD || nb > MAX_WORD) {
        return MAX_WORD;
    }
    for (int j = 0; j <= nb; j++) {
        row[j] = j;
    }
    for (int i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            int next = least(row[j] + 1, row[j - 1] + 1, diagonal + !same);
            diagonal = row[j];
            row[j] = next;
        }
    }
    return row[nb];
}

/* Folds one more candidate in. */
static void consider(const char *text, const char *name, const char **best, int *best_distance) {
    size_t n = strlen(text);
    int d = n >= 2 && strncasecmp(text, name, n) == 0 ? 1 : distance(text, name);
    if (d < *best_distance) {
        *best_distance = d;
        *best = name;
    }
}

static const char *near_enough(const char *best, int d) {
    int n = best ? (int)strlen(best) : 0;
    int limit = n <= 3 ? 1 : n < 9 ? 2 : n / 3;
    return d <= limit ? best : NULL;
}

const char *hb_nearest(const char *text, int count, const char *(*name)(int i)) {
    const char *best = NULL;
    int d = MAX_WORD;
    for (int i = 0; i < count; i++) {
        consider(text, name(i), &best, &d);
    }
    return near_enough(best, d);
}

const char *hb_nearest_of(const char *text, int n, const char *const *names) {
    const char *best = NULL;
    int d = MAX_WORD;
    for (int i = 0; i < n; i++) {
        consider(text, names[i], &best, &d);
    }
    return near_enough(best, d);
}

void hb_suggest(const char *text, int count, const char *(*name)(int i), char *out, size_t cap) {
    const char *near = hb_nearest(text, count, name);
    out[0] = '\0';
    if (near) {
        (void)snprintf(out, cap, ", did you mean '%s'?", near);
        return;
    }
    size_t n = 0;
    for (int i = 0; i < count && n + 1 < cap; i++) {
        int k = snprintf(out + n, cap - n, "%s%s%s", i == 0 ? " (known: " : ", ", name(i),
                         i + 1 == count ? ")" : "");
        n += k > 0 ? (size_t)k : 0;
    }
    if (n + 1 >= cap) {
        (void)snprintf(out, cap, " (hbfuzz list names all %d)", count);
    }
}
