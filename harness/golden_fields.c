/* SPDX-License-Identifier: Apache-2.0
 * Fields of a golden manifest, read strictly: a field that is absent or of another type or value
 * than expected is an error that names the case, the field, the value and what was expected. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/golden_internal.h"

enum { VALUE_CAP = 64, EXPECTED_CAP = 128 };

/* The value as JSON, cut to what fits. */
static void value_text(const cJSON *value, char *out, size_t cap) {
    char *text = value != NULL ? cJSON_PrintUnformatted(value) : NULL;
    if (value == NULL) {
        (void)snprintf(out, cap, "absent");
    } else if (text == NULL) {
        (void)snprintf(out, cap, "not printable");
    } else if (snprintf(out, cap, "%s", text) >= (int)cap) {
        (void)snprintf(out + cap - 4, 4, "...");
    }
    cJSON_free(text);
}

int32_t hb_golden_wrong(const struct hb_golden_object *o, const char *field, const cJSON *value,
                        const char *format, ...) {
    char got[VALUE_CAP];
    char expected[EXPECTED_CAP];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(expected, sizeof expected, format, args);
    va_end(args);
    value_text(value, got, sizeof got);
    return hb_fail_text(o->err, HB_ERR_PARSE, "%.56s: %s%s%.40s is %s, expected %s", o->name,
                        o->path, o->path[0] != '\0' ? "." : "", field, got, expected);
}

const cJSON *hb_golden_field(const struct hb_golden_object *o, const char *const *names,
                             const char **used) {
    const cJSON *item = NULL;
    *used = names[0];
    for (int i = 0; names[i] != NULL && item == NULL; i++) {
        item = cJSON_GetObjectItemCaseSensitive(o->json, names[i]);
        *used = item != NULL ? names[i] : *used;
    }
    return item;
}

int32_t hb_golden_whole(const cJSON *item, int32_t least, int32_t limit, int32_t *out) {
    if (!cJSON_IsNumber(item) || item->valuedouble < least || item->valuedouble > limit ||
        floor(item->valuedouble) != item->valuedouble) {
        return 0;
    }
    *out = (int32_t)item->valuedouble;
    return 1;
}

int32_t hb_golden_size(const struct hb_golden_object *o, const char *const *names, int32_t least,
                       int32_t limit, int32_t *out) {
    const char *name = NULL;
    const cJSON *item = hb_golden_field(o, names, &name);
    return hb_golden_whole(item, least, limit, out)
               ? HB_OK
               : hb_golden_wrong(o, name, item, "an integer in %d..%d", least, limit);
}

int32_t hb_golden_chunk(const struct hb_golden_object *o, const char *const *names, int32_t limit,
                        int32_t conv_width, int32_t *out) {
    const char *name = NULL;
    const cJSON *item = hb_golden_field(o, names, &name);
    int32_t v = 0;
    if (!hb_golden_whole(item, conv_width, limit, &v) || (v & (v - 1)) != 0) {
        return hb_golden_wrong(o, name, item, "a power of two in %d..%d", conv_width, limit);
    }
    *out = v;
    return HB_OK;
}

int32_t hb_golden_flag(const struct hb_golden_object *o, const char *const *names, int32_t *out) {
    const char *name = NULL;
    const cJSON *item = hb_golden_field(o, names, &name);
    if (!cJSON_IsBool(item)) {
        return hb_golden_wrong(o, name, item, "true or false");
    }
    *out = cJSON_IsTrue(item) != 0;
    return HB_OK;
}

int32_t hb_golden_positive(const struct hb_golden_object *o, const char *const *names,
                           double *out) {
    const char *name = NULL;
    const cJSON *item = hb_golden_field(o, names, &name);
    if (!cJSON_IsNumber(item) || !((float)item->valuedouble > 0.0F)) {
        return hb_golden_wrong(o, name, item, "a number above 0, in float32 too");
    }
    *out = item->valuedouble;
    return HB_OK;
}
