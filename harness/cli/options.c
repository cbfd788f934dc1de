/* SPDX-License-Identifier: Apache-2.0
 * The option table, its parser, and what options say to each other. */
#include "harness/cli/options.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/common.h"
#include "harness/cli/option_table.h"

static const char *option_name(int i) {
    return hb_option_table[i].name;
}

static const char *verb_name(int i) {
    return hb_verbs[i].name;
}

static int fits_verb(const struct hb_option *o, int32_t verb) {
    return (o->verbs >> verb & 1U) != 0;
}

static int usage(const char *text) {
    hb_cli_complain("%s", text);
    return HB_EXIT_USAGE;
}

static int usage2(const char *format, const char *a, const char *b)
    __attribute__((format(printf, 1, 0)));
static int usage2(const char *format, const char *a, const char *b) {
    char text[768];
    (void)snprintf(text, sizeof text, format, a, b);
    return usage(text);
}

int hb_given(const struct hb_args *args, const char *name) {
    for (int i = 0; i < hb_n_options; i++) {
        if (strcmp(hb_option_table[i].name, name) == 0 && (args->given >> i & 1U)) {
            return 1;
        }
    }
    return 0;
}

/* --- values --- */

/* Decimal or 0x: digits only, no sign, no rest. */
static int parse_u64(const char *text, uint64_t *out) {
    int is_hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const char *digits = is_hex ? text + 2 : text;
    size_t n = strspn(digits, is_hex ? "0123456789abcdefABCDEF" : "0123456789");
    if (n == 0 || digits[n]) {
        return -1;
    }
    errno = 0;
    *out = strtoull(digits, NULL, is_hex ? 16 : 10);
    return errno ? -1 : 0;
}

static int bad_value(const struct hb_option *o, const char *text) {
    char line[512];
    if (o->type == HB_OPTION_U64) {
        (void)snprintf(line, sizeof line, "--%s takes a number from %llu to %llu, got '%.200s'",
                       o->name, (unsigned long long)o->lo,
                       o->hi ? (unsigned long long)o->hi : (unsigned long long)UINT64_MAX, text);
    } else if (o->type == HB_OPTION_INT) {
        (void)snprintf(line, sizeof line, "--%s takes a number from %lld to %lld, got '%.200s'",
                       o->name, (long long)o->lo, (long long)o->hi, text);
    } else {
        (void)snprintf(line, sizeof line, "--%s takes seconds above 0 and up to %lld, got '%.200s'",
                       o->name, (long long)o->hi, text);
    }
    return usage(line);
}

static int set_seconds(const struct hb_option *o, const char *text, double *out) {
    char *end = NULL;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || *end || errno || !isfinite(v) || v <= 0 || v > (double)o->hi) {
        return bad_value(o, text);
    }
    *out = v;
    return 0;
}

static int set_name(const struct hb_option *o, const char *text, int32_t *out) {
    int i = hb_names_find(o->names, text);
    uint64_t number = 0;
    if (i < 0 && o->type == HB_OPTION_NAME_OR_NUMBER && parse_u64(text, &number) == 0) {
        for (int j = 0; j < o->names->count(); j++) {
            if ((uint64_t)o->names->value(j) == number) {
                i = j;
            }
        }
    }
    if (i < 0) {
        char hint[400];
        char line[768];
        hb_suggest(text, o->names->count(), o->names->name, hint, sizeof hint);
        (void)snprintf(line, sizeof line, "unknown %s '%.200s'%s", o->names->what, text, hint);
        return usage(line);
    }
    int32_t v = o->names->value ? o->names->value(i) : i;
    *out = o->type == HB_OPTION_NAMES ? *out | v : v;
    return 0;
}

static int set_value(const struct hb_option *o, const char *text, struct hb_args *args) {
    void *at = (char *)args + o->offset;
    uint64_t v = 0;
    switch (o->type) {
    case HB_OPTION_TEXT:
        if (!text[0]) {
            return usage2("--%s needs a value, got an empty one%s", o->name, "");
        }
        *(const char **)at = text;
        return 0;
    case HB_OPTION_U64:
        if (parse_u64(text, &v) != 0 || v < (uint64_t)o->lo || (o->hi && v > (uint64_t)o->hi)) {
            return bad_value(o, text);
        }
        *(uint64_t *)at = v;
        return 0;
    case HB_OPTION_INT:
        if (parse_u64(text, &v) != 0 || v < (uint64_t)o->lo || v > (uint64_t)o->hi) {
            return bad_value(o, text);
        }
        *(int32_t *)at = (int32_t)v;
        return 0;
    case HB_OPTION_SECONDS:
        return set_seconds(o, text, at);
    default:
        return set_name(o, text, at);
    }
}

/* --- words --- */

static int unknown_option(const char *word, size_t n, int32_t verb) {
    char name[64];
    char hint[400] = "";
    char line[768];
    const char *known[64];
    int n_known = 0;
    (void)snprintf(name, sizeof name, "%.*s", (int)n, word);
    for (int i = 0; i < hb_n_options && n_known < 64; i++) {
        if (fits_verb(&hb_option_table[i], verb)) {
            known[n_known++] = hb_option_table[i].name;
        }
    }
    const char *near = hb_nearest_of(name, n_known, known);
    for (int i = 0; i < hb_n_options; i++) {
        if (strcmp(hb_option_table[i].name, name) == 0) {
            (void)snprintf(line, sizeof line, "the verb '%s' does not take the option --%s",
                           hb_verbs[verb].name, name);
            return usage(line);
        }
    }
    if (near) {
        (void)snprintf(hint, sizeof hint, ", did you mean '--%s'?", near);
    }
    (void)snprintf(line, sizeof line, "unknown option '--%s'%s (hbfuzz %s --help lists them)", name,
                   hint, hb_verbs[verb].name);
    return usage(line);
}

static int find_long(const char *word, size_t n, int32_t verb) {
    for (int i = 0; i < hb_n_options; i++) {
        const char *name = option_name(i);
        if (strlen(name) == n && strncmp(name, word, n) == 0 &&
            fits_verb(&hb_option_table[i], verb)) {
            return i;
        }
    }
    return -1;
}

static int find_short(char letter, int32_t verb) {
    for (int i = 0; i < hb_n_options; i++) {
        if (hb_option_table[i].letter == letter && fits_verb(&hb_option_table[i], verb)) {
            return i;
        }
    }
    return -1;
}

static int store(int i, const char *value, struct hb_args *args) {
    const struct hb_option *o = &hb_option_table[i];
    if ((args->given >> i & 1U) && o->type != HB_OPTION_FLAG && o->type != HB_OPTION_NAMES) {
        return usage2("--%s is given twice%s", o->name, "");
    }
    args->given |= 1ULL << i;
    if (o->type == HB_OPTION_FLAG) {
        const int32_t on = 1;
        memcpy((char *)args + o->offset, &on, sizeof on);
        return 0;
    }
    return set_value(o, value, args);
}

/* One option word; *at moves past a value that is a word of its own. */
static int parse_option(int argc, char **argv, int *at, struct hb_args *args) {
    const char *word = argv[*at];
    const char *value = NULL;
    int i;
    if (word[1] == '-') {
        size_t n = strcspn(word + 2, "=");
        i = find_long(word + 2, n, args->verb);
        if (i < 0) {
            return unknown_option(word + 2, n, args->verb);
        }
        value = word[2 + n] == '=' ? word + 3 + n : NULL;
    } else {
        i = find_short(word[1], args->verb);
        if (i < 0) {
            return usage2("unknown option '%s' (hbfuzz %s --help lists them)", word,
                          hb_verbs[args->verb].name);
        }
        value = word[2] ? word + 2 : NULL;
    }
    const struct hb_option *o = &hb_option_table[i];
    if (o->type == HB_OPTION_FLAG && value) {
        return usage2("--%s takes no value, got '%.200s'", o->name, value);
    }
    if (o->type != HB_OPTION_FLAG && !value) {
        if (*at + 1 >= argc) {
            return usage2("--%s needs a value: %s", o->name, o->arg);
        }
        value = argv[++*at];
    }
    return store(i, value, args);
}

static int check_conflicts(const struct hb_args *args) {
    for (int i = 0; i < hb_n_conflicts; i++) {
        const struct hb_conflict *c = &hb_conflicts[i];
        if ((c->verbs >> args->verb & 1U) && hb_given(args, c->a) && hb_given(args, c->b)) {
            return usage2("--%s and --%s contradict each other", c->a, c->b);
        }
    }
    for (int i = 0; i < hb_n_needs; i++) {
        const struct hb_conflict *c = &hb_needs[i];
        if ((c->verbs >> args->verb & 1U) && hb_given(args, c->a) && !hb_given(args, c->b)) {
            return usage2("--%s needs --%s", c->a, c->b);
        }
    }
    if (args->n_rest > 0 && args->verb != HB_VERB_FUZZ) {
        return usage2("'-- %s': only the verb 'fuzz' passes arguments on%s", args->rest[0], "");
    }
    return 0;
}

static int check_paths(const struct hb_args *args) {
    const struct hb_verb_row *v = &hb_verbs[args->verb];
    char line[512];
    for (int32_t i = 0; i < args->n_paths && args->verb != HB_VERB_EXPLAIN; i++) {
        if (strcmp(args->paths[i], "-") == 0) { /* cases run in processes that have no input */
            return usage2("%s reads nothing from standard input, name a file instead of '-'%s",
                          v->name, "");
        }
    }
    if (args->n_paths < v->least_paths) {
        (void)snprintf(line, sizeof line, "%s needs %s (hbfuzz %s --help)", v->name, v->operands,
                       v->name);
        return usage(line);
    }
    if (v->most_paths >= 0 && args->n_paths > v->most_paths) {
        (void)snprintf(line, sizeof line, "%s takes %d operand%s, '%.200s' is one too many",
                       v->name, (int)v->most_paths, v->most_paths == 1 ? "" : "s",
                       args->paths[v->most_paths]);
        return usage(line);
    }
    return 0;
}

static void set_defaults(struct hb_args *args) {
    memset(args, 0, sizeof *args);
    args->verb = -1;
    args->compare = -1;
    args->target = HB_TARGET_ANY;
    args->mixer = -1;
    args->size = 1; /* HB_SIZE_DEFAULT */
    args->engine = -1;
    args->jobs = 1;
    args->times = 1;
    args->seed = 1;
    args->count = 0;
}

static int find_verb(const char *word, struct hb_args *args) {
    for (int32_t i = 0; i < HB_N_VERBS; i++) {
        if (strcmp(hb_verbs[i].name, word) == 0) {
            args->verb = i;
            return 0;
        }
    }
    char hint[400];
    hb_suggest(word, HB_N_VERBS, verb_name, hint, sizeof hint);
    return usage2("unknown verb '%.200s'%s", word, hint);
}

int hb_options_parse(int argc, char **argv, struct hb_args *args) {
    set_defaults(args);
    args->program = argc > 0 ? argv[0] : "hbfuzz";
    if (argc < 2) {
        return usage("a verb is missing (hbfuzz --help lists them)");
    }
    args->help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
                 strcmp(argv[1], "help") == 0;
    args->version = strcmp(argv[1], "--version") == 0;
    if (args->help || args->version) {
        return args->help && argc > 2 ? find_verb(argv[2], args) : 0;
    }
    if (argv[1][0] == '-' && argv[1][1]) {
        return usage2("the first word is the verb, got the option '%.200s'%s", argv[1], "");
    }
    int rc = find_verb(argv[1], args);
    args->paths = argv + 1; /* operands are moved down to here */
    for (int i = 2; rc == 0 && i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            args->rest = argv + i + 1;
            args->n_rest = argc - i - 1;
            break;
        }
        if (argv[i][0] == '-' && argv[i][1]) {
            rc = parse_option(argc, argv, &i, args);
        } else {
            args->paths[args->n_paths++] = argv[i];
        }
    }
    if (rc == 0 && !args->help) {
        rc = check_conflicts(args);
    }
    if (rc == 0 && !args->help) {
        rc = check_paths(args);
    }
    return rc;
}
