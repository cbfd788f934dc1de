/* SPDX-License-Identifier: Apache-2.0
 * Names of statuses and the rule table: turns (rule, row, value, limit) into an error record. Knows
 * no condition, and needs no other file, so that a prediction can link it without the backend. */
#include "backend/status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "backend/batch.h"

struct rule {
    const char *name;
    const char *field;
    const char *text;
    int32_t status;
};

/* Indexed by rule number; numbers that are not used have a null name. */
static const struct rule rules[] = {
#define HB_RULE_ROW(number, name, status, field, text) [number] = {#name, field, text, HB_##status},
    HB_RULES(HB_RULE_ROW)
#undef HB_RULE_ROW
};

static const int32_t rule_numbers[] = {
#define HB_RULE_NUMBER(number, name, status, field, text) number,
    HB_RULES(HB_RULE_NUMBER)
#undef HB_RULE_NUMBER
};

enum {
    N_RULES = sizeof(rule_numbers) / sizeof(rule_numbers[0]),
    RULE_END = sizeof(rules) / sizeof(rules[0])
};

enum { WORD_SIZE = 48 };

/* Null for values without a name. */
static const char *mode_name(int64_t mode) {
    static const char *const names[] = {
#define HB_MODE_NAME(number, name) [number] = #name,
        HB_MODES(HB_MODE_NAME)
#undef HB_MODE_NAME
    };
    const int64_t n = (int64_t)(sizeof(names) / sizeof(names[0]));
    return mode >= 0 && mode < n ? names[mode] : NULL;
}

/* "<ForwardMode.EXTEND: 1>", or the decimal integer (forward-batch.md section 2). */
static void mode_text(int64_t mode, char *text) {
    const char *name = mode_name(mode);
    if (name != NULL) {
        (void)snprintf(text, WORD_SIZE, "<ForwardMode.%s: %" PRId64 ">", name, mode);
    } else {
        (void)snprintf(text, WORD_SIZE, "%" PRId64, mode);
    }
}

static const struct rule *find_rule(int32_t number) {
    if (number < 0 || number >= (int32_t)RULE_END || rules[number].name == NULL) {
        return NULL;
    }
    return &rules[number];
}

/* Value of the placeholder that starts at p ("{v}", "{l}", "{r}", "{mode}"): its text, and its
 * length in *used. *used is 0 where no placeholder starts. */
static void expand(const char *p, const struct hb_error *err, char *text, size_t *used) {
    *used = 0;
    if (strncmp(p, "{v}", 3) == 0) {
        (void)snprintf(text, WORD_SIZE, "%" PRId64, err->value);
        *used = 3;
    } else if (strncmp(p, "{l}", 3) == 0) {
        (void)snprintf(text, WORD_SIZE, "%" PRId64, err->limit);
        *used = 3;
    } else if (strncmp(p, "{r}", 3) == 0) {
        (void)snprintf(text, WORD_SIZE, "%" PRId32, err->row);
        *used = 3;
    } else if (strncmp(p, "{mode}", 6) == 0) {
        mode_text(err->value, text);
        *used = 6;
    }
}

static void format_text(const char *format, struct hb_error *err) {
    size_t n = 0;
    const size_t cap = sizeof(err->text) - 1;
    for (const char *p = format; *p != '\0' && n < cap;) {
        char word[WORD_SIZE];
        size_t used;
        expand(p, err, word, &used);
        if (used == 0) {
            err->text[n++] = *p++;
            continue;
        }
        size_t len = strlen(word);
        len = len < cap - n ? len : cap - n;
        memcpy(err->text + n, word, len);
        n += len;
        p += used;
    }
    err->text[n] = '\0';
}

int32_t hb_fail(struct hb_error *err, int32_t rule, int32_t row, int64_t value, int64_t limit) {
    const struct rule *entry = find_rule(rule);
    const int32_t status = entry != NULL ? entry->status : HB_ERR_UNSUPPORTED;
    if (err == NULL || err->status != HB_OK) {
        return status;
    }
    err->struct_size = sizeof(*err);
    err->status = status;
    err->rule = rule;
    err->row = row;
    err->value = value;
    err->limit = limit;
    format_text(entry != NULL ? entry->text : "unknown rule", err);
    return status;
}

int32_t hb_fail_text(struct hb_error *err, int32_t status, const char *format, ...) {
    if (err == NULL || err->status != HB_OK) {
        return status;
    }
    hb_error_clear(err);
    err->status = status;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    return status;
}

void hb_error_clear(struct hb_error *err) {
    if (err != NULL) {
        memset(err, 0, sizeof(*err));
        err->struct_size = sizeof(*err);
        err->row = -1;
    }
}

const char *hb_status_name(int32_t status) {
    switch (status) {
#define HB_STATUS_CASE(number, name)                                                               \
    case number:                                                                                   \
        return "HB_" #name;
        HB_STATUSES(HB_STATUS_CASE)
#undef HB_STATUS_CASE
    default:
        return "HB_STATUS_UNKNOWN";
    }
}

const char *hb_rule_name(int32_t rule) {
    const struct rule *entry = find_rule(rule);
    return entry != NULL ? entry->name : NULL;
}

const char *hb_rule_field(int32_t rule) {
    const struct rule *entry = find_rule(rule);
    return entry != NULL ? entry->field : NULL;
}

int32_t hb_rule_status(int32_t rule) {
    const struct rule *entry = find_rule(rule);
    return entry != NULL ? entry->status : HB_OK;
}

int hb_rule_list(const int32_t **numbers) {
    *numbers = rule_numbers;
    return (int)N_RULES;
}
