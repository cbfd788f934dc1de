/* SPDX-License-Identifier: Apache-2.0
 * Strict reading of a case's JSON: the scanner first, then cJSON, then every member against the
 * field table. A text that says something inconsistent is refused, never silently changed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "backend/batch.h"
#include "harness/case_internal.h"
#include "harness/json_scan.h"

/* Where in the text the reader is: "steps[1].rows[0]". */
struct place {
    char text[64];
};

struct reader {
    struct hb_error *err;
    int32_t status;
};

/* A fault that has no number. */
static int fail_text(struct reader *r, const struct place *at, const char *name, const char *what) {
    if (r->status == HB_OK) {
        r->status = HB_ERR_PARSE;
        hb_fail_text(r->err, HB_ERR_PARSE, "case: %s%s%.64s %s", at->text,
                     at->text[0] && name[0] ? "." : "", name, what);
    }
    return 0;
}

/* value and limit also go into the record. */
static int fail(struct reader *r, const struct place *at, const char *name, const char *what,
                int64_t value, int64_t limit) {
    char line[160];
    const int is_first = r->status == HB_OK && r->err && r->err->status == HB_OK;
    (void)snprintf(line, sizeof line, "%.80s (value %lld, limit %lld)", what, (long long)value,
                   (long long)limit);
    (void)fail_text(r, at, name, line);
    if (is_first) {
        r->err->value = value;
        r->err->limit = limit;
    }
    return 0;
}

/* The kind of a JSON value, for a message. */
static const char *kind_of(const cJSON *item) {
    return cJSON_IsString(item)   ? "a string"
           : cJSON_IsNumber(item) ? "a number"
           : cJSON_IsArray(item)  ? "an array"
           : cJSON_IsObject(item) ? "an object"
           : cJSON_IsNull(item)   ? "null"
                                  : "true or false";
}

static int fail_kind(struct reader *r, const struct place *at, const char *name, const cJSON *item,
                     const char *wanted) {
    char line[96];
    (void)snprintf(line, sizeof line, "is %s, it must be %s", kind_of(item), wanted);
    return fail_text(r, at, name, line);
}

static int is_mode(const struct hb_case_field *f) {
    return f->group == HB_GROUP_STEP && f->offset == offsetof(struct hb_case_step, mode);
}

/* The names that the field knows, as many as fit. */
static int fail_name(struct reader *r, const struct place *at, const struct hb_case_field *f,
                     const char *name) {
    char line[160];
    int n = snprintf(line, sizeof line, "has the unknown name \"%.64s\"", name);
    if (is_mode(f)) {
        (void)snprintf(line + n, sizeof line - (size_t)n, " (hbfuzz list --modes)");
    }
    for (int64_t v = f->lo; f->names && v <= f->hi && n + 1 < (int)sizeof line; v++) {
        n += snprintf(line + n, sizeof line - (size_t)n, "%s%s", v == f->lo ? ", known: " : ", ",
                      f->names[v - f->lo]);
    }
    return fail_text(r, at, f->name, line);
}

static int is_target(const struct hb_case_field *f) {
    return f->group == HB_GROUP_CONFIG && f->offset == offsetof(struct hb_case_config, target);
}

/* Value of a name, or of 0x.. where the field is 64 bits wide. 1 if s is one. */
static int value_of_name(const struct hb_case_field *f, const char *s, int64_t *value) {
    if (f->names) {
        for (int64_t v = f->lo; v <= f->hi; v++) {
            if (strcmp(f->names[v - f->lo], s) == 0) {
                *value = v;
                return 1;
            }
        }
    }
    for (int32_t mode = 1; is_mode(f) && mode <= HB_MODE_DLLM_EXTEND; mode++) {
        char name[32];
        if (hb_case_mode_name(mode, name, sizeof name) > 0 && strcmp(name, s) == 0) {
            *value = mode;
            return 1;
        }
    }
    if (f->is_wide && s[0] == '0' && s[1] == 'x') {
        const size_t n = strlen(s + 2);
        if (n >= 1 && n <= 16 && strspn(s + 2, "0123456789abcdefABCDEF") == n) {
            *value = (int64_t)strtoull(s + 2, NULL, 16);
            return 1;
        }
    }
    return 0;
}

static int read_value(struct reader *r, const struct place *at, const struct hb_case_field *f,
                      const cJSON *item, int64_t *value) {
    if (cJSON_IsString(item)) {
        if (!f->names && !f->is_wide && !is_mode(f)) {
            return fail_kind(r, at, f->name, item, "a number");
        }
        if (!value_of_name(f, item->valuestring, value)) {
            return fail_name(r, at, f, item->valuestring);
        }
    } else if (cJSON_IsNumber(item)) {
        *value =
            (int64_t)item->valuedouble; /* below 2^53 in magnitude: the scanner has seen to it */
        if ((double)*value != item->valuedouble) {
            char what[64];
            (void)snprintf(what, sizeof what, "is %.9g, it must be an integer", item->valuedouble);
            return fail_text(r, at, f->name, what);
        }
    } else {
        return fail_kind(r, at, f->name, item, f->names ? "a number or a name" : "a number");
    }
    if (*value < f->lo) {
        return fail(r, at, f->name, "is below the least value", *value, f->lo);
    }
    if (*value > f->hi) {
        return fail(r, at, f->name, "is above the largest value", *value, f->hi);
    }
    return 1;
}

static const struct hb_case_field *find_field(int32_t group, const char *name) {
    const struct hb_case_field *f;
    const int n = hb_case_group_fields(group, &f);
    for (int i = 0; i < n; i++) {
        if (!is_target(&f[i]) && strcmp(f[i].name, name) == 0) {
            return &f[i];
        }
    }
    return NULL;
}

/* All members of an object into a struct; `other` is a member that somebody else reads, or null. */
static int read_group(struct reader *r, const struct place *at, const cJSON *object, int32_t group,
                      int32_t kind, void *to, const char *other) {
    if (!cJSON_IsObject(object)) {
        return fail_kind(r, at, "", object, "an object");
    }
    for (const cJSON *item = object->child; item; item = item->next) {
        if (other && strcmp(item->string, other) == 0) {
            continue;
        }
        const struct hb_case_field *f = find_field(group, item->string);
        int64_t value = 0;
        if (!f) {
            return fail_text(r, at, item->string, "is an unknown field");
        }
        if (!hb_case_field_used(f, kind)) {
            return fail(r, at, item->string, "does not belong to this kind of step", kind, 0);
        }
        if (!read_value(r, at, f, item, &value)) {
            return 0;
        }
        hb_case_field_set(f, to, value);
    }
    return 1;
}

/* Number of elements of an array member, -1 if it is something else or too long. */
static int32_t array_size(struct reader *r, const struct place *at, const char *name,
                          const cJSON *array, int32_t most) {
    if (!cJSON_IsArray(array)) {
        fail_kind(r, at, name, array, "an array");
        return -1;
    }
    const int n = cJSON_GetArraySize(array);
    if (n > most) {
        fail(r, at, name, "has too many entries", n, most);
        return -1;
    }
    return n;
}

static struct place place_of(const char *base, int32_t i, const char *sub, int32_t j) {
    struct place p;
    if (sub) {
        (void)snprintf(p.text, sizeof p.text, "%.20s[%d].%.20s[%d]", base, i, sub, j);
    } else if (i >= 0) {
        (void)snprintf(p.text, sizeof p.text, "%.20s[%d]", base, i);
    } else {
        (void)snprintf(p.text, sizeof p.text, "%.20s", base);
    }
    return p;
}

static int read_step(struct reader *r, int32_t index, const cJSON *item, struct hb_case_step *s) {
    const struct place at = place_of("steps", index, NULL, 0);
    if (!cJSON_IsObject(item)) {
        return fail_kind(r, &at, "", item, "an object");
    }
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(item, "kind");
    int64_t value = 0;
    if (!kind) {
        return fail_text(r, &at, "kind", "is missing");
    }
    if (!read_value(r, &at, find_field(HB_GROUP_STEP, "kind"), kind, &value)) {
        return 0;
    }
    s->kind = (int32_t)value;
    const int has_rows = hb_step_has_rows(s->kind);
    if (!read_group(r, &at, item, HB_GROUP_STEP, s->kind, s, has_rows ? "rows" : NULL)) {
        return 0;
    }
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(item, "rows");
    if (!rows) {
        return 1;
    }
    s->n_rows = array_size(r, &at, "rows", rows, HB_MAX_ROWS);
    if (s->n_rows < 0) {
        return 0;
    }
    int32_t k = 0;
    for (const cJSON *row = rows->child; row; row = row->next, k++) {
        const struct place where = place_of("steps", index, "rows", k);
        if (!read_group(r, &where, row, HB_GROUP_ROW, s->kind, &s->row[k], NULL)) {
            return 0;
        }
    }
    return 1;
}

static int read_steps(struct reader *r, const cJSON *array, struct hb_case *c) {
    const struct place top = {""};
    c->n_steps = array_size(r, &top, "steps", array, HB_MAX_STEPS);
    if (c->n_steps < 0) {
        return 0;
    }
    int32_t i = 0;
    for (const cJSON *item = array->child; item; item = item->next, i++) {
        if (!read_step(r, i, item, &c->step[i])) {
            return 0;
        }
    }
    return 1;
}

static int read_breaks(struct reader *r, const cJSON *array, struct hb_case *c) {
    const struct place top = {""};
    c->n_breaks = array_size(r, &top, "breaks", array, HB_MAX_BREAKS);
    if (c->n_breaks < 0) {
        return 0;
    }
    int32_t i = 0;
    for (const cJSON *item = array->child; item; item = item->next, i++) {
        const struct place at = place_of("breaks", i, NULL, 0);
        if (!read_group(r, &at, item, HB_GROUP_BREAK, HB_STEP_FORWARD, &c->brk[i], NULL)) {
            return 0;
        }
    }
    return 1;
}

static int read_target(struct reader *r, const cJSON *item, struct hb_case *c) {
    const struct place top = {""};
    const struct hb_case_field *f;
    const int n = hb_case_fields(&f);
    for (int i = 0; i < n; i++) {
        int64_t value = 0;
        if (is_target(&f[i])) {
            if (!read_value(r, &top, &f[i], item, &value)) {
                return 0;
            }
            hb_case_field_set(&f[i], &c->config, value);
        }
    }
    return 1;
}

static int read_top(struct reader *r, const cJSON *root, struct hb_case *c) {
    const struct place top = {""};
    const struct place config = place_of("config", -1, NULL, 0);
    if (!cJSON_IsObject(root)) {
        return fail_kind(r, &top, "case", root, "an object");
    }
    int has_schema = 0;
    for (const cJSON *item = root->child; item; item = item->next) {
        int ok = 1;
        if (strcmp(item->string, "schema") == 0) {
            has_schema = cJSON_IsNumber(item) && item->valuedouble == (double)HB_CASE_SCHEMA;
            ok = has_schema ||
                 fail(r, &top, "schema", "of the case is not that of this program",
                      cJSON_IsNumber(item) ? (int64_t)item->valuedouble : 0, HB_CASE_SCHEMA);
        } else if (strcmp(item->string, "target") == 0) {
            ok = read_target(r, item, c);
        } else if (strcmp(item->string, "config") == 0) {
            ok = read_group(r, &config, item, HB_GROUP_CONFIG, HB_STEP_FORWARD, &c->config, NULL);
        } else if (strcmp(item->string, "steps") == 0) {
            ok = read_steps(r, item, c);
        } else if (strcmp(item->string, "breaks") == 0) {
            ok = read_breaks(r, item, c);
        } else if (strcmp(item->string, "predicted") != 0) {
            ok = fail_text(r, &top, item->string, "is an unknown field");
        }
        if (!ok) {
            return 0;
        }
    }
    return has_schema || fail_text(r, &top, "schema", "is missing");
}

/* --- consistency
 * ------------------------------------------------------------------------------------------------
 */

static int same_group(struct reader *r, const struct place *at, int32_t group, int32_t kind,
                      const void *said, const void *normal) {
    const struct hb_case_field *f;
    const int n = hb_case_group_fields(group, &f);
    for (int i = 0; i < n; i++) {
        if (!hb_case_field_used(&f[i], kind)) {
            continue;
        }
        const int64_t a = hb_case_field_get(&f[i], said);
        const int64_t b = hb_case_field_get(&f[i], normal);
        if (a != b) {
            return fail(r, at, f[i].name,
                        "does not fit the rest of the case or its limit of work; the limit is the "
                        "nearest value that does",
                        a, b);
        }
    }
    return 1;
}

/* The text must already be in normal form. */
static int check_normal(struct reader *r, const struct hb_case *said,
                        const struct hb_case *normal) {
    const struct place config = place_of("config", -1, NULL, 0);
    const struct place top = {""};
    if (!same_group(r, &config, HB_GROUP_CONFIG, HB_STEP_FORWARD, &said->config, &normal->config)) {
        return 0;
    }
    for (int32_t i = 0; i < said->n_steps; i++) {
        const struct place at = place_of("steps", i, NULL, 0);
        const struct hb_case_step *s = &said->step[i];
        if (!same_group(r, &at, HB_GROUP_STEP, s->kind, s, &normal->step[i])) {
            return 0;
        }
        for (int32_t k = 0; k < s->n_rows; k++) {
            const struct place row = place_of("steps", i, "rows", k);
            if (!same_group(r, &row, HB_GROUP_ROW, s->kind, &s->row[k], &normal->step[i].row[k])) {
                return 0;
            }
        }
    }
    if (said->n_breaks != normal->n_breaks) {
        return fail(r, &top, "breaks", "name a step that does not exist", said->n_breaks,
                    normal->n_breaks);
    }
    for (int32_t b = 0; b < said->n_breaks; b++) {
        const struct place at = place_of("breaks", b, NULL, 0);
        if (!same_group(r, &at, HB_GROUP_BREAK, HB_STEP_FORWARD, &said->brk[b], &normal->brk[b])) {
            return 0;
        }
    }
    return 1;
}

int32_t hb_case_from_json(const char *text, size_t len, struct hb_case *out, struct hb_error *err) {
    const int32_t status = hb_json_scan(text, len, err);
    if (status != HB_OK) {
        return status;
    }
    /* cJSON sees grammatical text only, so the one way to fail is memory */
    cJSON *root = cJSON_ParseWithLength(text, len);
    if (!root) {
        return hb_fail_text(err, HB_ERR_MEMORY, "case: out of memory");
    }
    struct reader r = {err, HB_OK};
    struct hb_case said;
    struct hb_case normal;
    hb_case_init(&said);
    if (read_top(&r, root, &said)) {
        memcpy(&normal, &said, sizeof normal);
        hb_case_normalize(&normal);
        if (check_normal(&r, &said, &normal)) {
            memcpy(out, &normal, sizeof normal);
        }
    }
    cJSON_Delete(root);
    return r.status;
}

/* --- a configuration alone ---------------------------------------------------------------------- */

int32_t hb_case_read_config(const struct cJSON *object, const char *where, struct hb_case_config *g,
                            struct hb_error *err) {
    struct reader r = {err, HB_OK};
    const struct place at = place_of(where, -1, NULL, 0);
    struct hb_case_config copy = *g;
    if (read_group(&r, &at, object, HB_GROUP_CONFIG, HB_STEP_FORWARD, &copy, NULL)) {
        *g = copy;
    }
    return r.status;
}

int32_t hb_case_check_config(const char *where, const struct hb_case_config *said, struct hb_error *err) {
    struct reader r = {err, HB_OK};
    const struct place at = place_of(where, -1, NULL, 0);
    struct hb_case c;
    hb_case_init(&c);
    c.config = *said;
    hb_case_normalize(&c);
    (void)same_group(&r, &at, HB_GROUP_CONFIG, HB_STEP_FORWARD, said, &c.config);
    return r.status;
}
