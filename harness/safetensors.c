/* SPDX-License-Identifier: Apache-2.0
 * .safetensors reader: the checks. Elements are in safetensors_values.c, files in safetensors_io.c.
 *
 * Nothing of the file is trusted: every length is compared in uint64 before it is used, products
 * are checked for overflow, and the tensors together must cover the data exactly (no gap, no
 * overlap, no rest). */
#include "harness/safetensors.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/json_scan.h"
#include "harness/safetensors_internal.h"

enum { NAME_SHOWN = 60 };
static const uint64_t MAX_HEADER = 100000000U;

/* Place of a tensor in the data block, kept beside it while the header is checked. */
struct hb_st_span {
    uint64_t begin, end;
    struct hb_st_tensor *tensor;
};

static int32_t find_dtype(const char *name) {
    for (int32_t i = 0; i < HB_N_ST_DTYPES; i++) {
        if (strcmp(name, hb_st_dtype_name(i)) == 0) {
            return i;
        }
    }
    return -1;
}

/* A non-negative integer. The scanner has refused 2^53 and above, so the conversion to uint64 is
 * exact. */
static int is_count(const cJSON *item) {
    return cJSON_IsNumber(item) && item->valuedouble >= 0.0 &&
           floor(item->valuedouble) == item->valuedouble;
}

static int32_t check_metadata(const cJSON *object, struct hb_error *err) {
    if (!cJSON_IsObject(object)) {
        return hb_fail_text(err, HB_ERR_PARSE, "__metadata__ is not an object of strings");
    }
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, object) {
        if (!cJSON_IsString(item)) {
            return hb_fail_text(err, HB_ERR_PARSE, "__metadata__ entry '%.*s' is not a string",
                                NAME_SHOWN, item->string);
        }
    }
    return HB_OK;
}

static int32_t read_shape(const cJSON *shape, struct hb_st_tensor *t, struct hb_error *err) {
    if (!cJSON_IsArray(shape)) {
        return hb_fail_text(err, HB_ERR_PARSE, "tensor '%.*s': shape is not an array", NAME_SHOWN,
                            t->name);
    }
    const uint64_t size = hb_st_dtype_size(t->dtype);
    uint64_t n = 1;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, shape) {
        if (t->n_dims == HB_ST_MAX_DIMS) {
            return hb_fail_text(err, HB_ERR_PARSE,
                                "tensor '%.*s' has %d dimensions, the limit is %d", NAME_SHOWN,
                                t->name, cJSON_GetArraySize(shape), (int)HB_ST_MAX_DIMS);
        }
        if (!is_count(item)) {
            return hb_fail_text(
                err, HB_ERR_PARSE,
                "tensor '%.*s': dimension %d is %.17g, valid are integers 0..2^53-1", NAME_SHOWN,
                t->name, t->n_dims, cJSON_IsNumber(item) ? item->valuedouble : (double)NAN);
        }
        const uint64_t dim = (uint64_t)item->valuedouble;
        if (dim != 0 && n > (uint64_t)INT64_MAX / size / dim) {
            return hb_fail_text(
                err, HB_ERR_PARSE,
                "tensor '%.*s': dimension %d is %llu, the size overflows 2^63 bytes", NAME_SHOWN,
                t->name, t->n_dims, (unsigned long long)dim);
        }
        n *= dim;
        t->shape[t->n_dims++] = (int64_t)dim;
    }
    t->n = (int64_t)n;
    t->bytes = n * size;
    return HB_OK;
}

static int32_t read_offsets(const cJSON *offsets, struct hb_st_tensor *t, uint64_t data_bytes,
                            struct hb_st_span *span, struct hb_error *err) {
    const cJSON *begin = cJSON_GetArrayItem(offsets, 0);
    const cJSON *end = cJSON_GetArrayItem(offsets, 1);
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 || !is_count(begin) ||
        !is_count(end)) {
        return hb_fail_text(
            err, HB_ERR_PARSE,
            "tensor '%.*s': data_offsets is not an array of 2 integers in 0..2^53-1", NAME_SHOWN,
            t->name);
    }
    span->tensor = t;
    span->begin = (uint64_t)begin->valuedouble;
    span->end = (uint64_t)end->valuedouble;
    if (span->begin > span->end) {
        return hb_fail_text(err, HB_ERR_PARSE, "tensor '%.*s': begin %llu is above end %llu",
                            NAME_SHOWN, t->name, (unsigned long long)span->begin,
                            (unsigned long long)span->end);
    }
    if (span->end > data_bytes) {
        return hb_fail_text(
            err, HB_ERR_PARSE, "tensor '%.*s' ends at byte %llu, the file has %llu bytes of data",
            NAME_SHOWN, t->name, (unsigned long long)span->end, (unsigned long long)data_bytes);
    }
    if (span->end - span->begin != t->bytes) {
        return hb_fail_text(err, HB_ERR_PARSE,
                            "tensor '%.*s' has %llu bytes by its offsets, %llu by shape and dtype",
                            NAME_SHOWN, t->name, (unsigned long long)(span->end - span->begin),
                            (unsigned long long)t->bytes);
    }
    return HB_OK;
}

/* Exactly the fields dtype, shape and data_offsets (the scanner has refused a key that comes
 * twice). */
static int32_t check_fields(const cJSON *entry, const char *name, struct hb_error *err) {
    static const char *const field[3] = {"dtype", "shape", "data_offsets"};
    int seen[3] = {0, 0, 0};
    if (!cJSON_IsObject(entry)) {
        return hb_fail_text(err, HB_ERR_PARSE, "tensor '%.*s' is not an object", NAME_SHOWN, name);
    }
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, entry) {
        int k = 0;
        while (k < 3 && strcmp(item->string, field[k]) != 0) {
            k++;
        }
        if (k == 3) {
            return hb_fail_text(err, HB_ERR_PARSE, "tensor '%.*s' has the unknown field '%.*s'",
                                NAME_SHOWN, name, NAME_SHOWN, item->string);
        }
        seen[k] = 1;
    }
    for (int k = 0; k < 3; k++) {
        if (seen[k] == 0) {
            return hb_fail_text(err, HB_ERR_PARSE, "tensor '%.*s' has no field '%s'", NAME_SHOWN,
                                name, field[k]);
        }
    }
    return HB_OK;
}

static int32_t read_tensor(const cJSON *entry, uint64_t data_bytes, struct hb_st_tensor *t,
                           struct hb_st_span *span, struct hb_error *err) {
    const char *name = entry->string;
    const int32_t fields = check_fields(entry, name, err);
    if (fields != HB_OK) {
        return fields;
    }
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    t->dtype = cJSON_IsString(dtype) ? find_dtype(dtype->valuestring) : -1;
    if (t->dtype < 0) {
        return hb_fail_text(err, HB_ERR_PARSE, "tensor '%.*s' has the unknown dtype '%.*s'",
                            NAME_SHOWN, name, 16, cJSON_IsString(dtype) ? dtype->valuestring : "?");
    }
    t->name = malloc(strlen(name) + 1);
    if (t->name == NULL) {
        return hb_fail_text(err, HB_ERR_MEMORY, "out of memory for the name of a tensor");
    }
    memcpy(t->name, name, strlen(name) + 1);
    const int32_t shape = read_shape(cJSON_GetObjectItemCaseSensitive(entry, "shape"), t, err);
    if (shape != HB_OK) {
        return shape;
    }
    return read_offsets(cJSON_GetObjectItemCaseSensitive(entry, "data_offsets"), t, data_bytes,
                        span, err);
}

static int by_place(const void *a, const void *b) {
    const struct hb_st_span *x = a;
    const struct hb_st_span *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return (x->end > y->end) - (x->end < y->end);
}

static int32_t check_cover(struct hb_st_span *span, int32_t n, uint64_t data_bytes,
                           struct hb_error *err) {
    qsort(span, (size_t)n, sizeof *span, by_place);
    uint64_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        if (span[i].begin != at) {
            const char *what = span[i].begin < at ? "overlaps" : "leaves a gap after";
            return hb_fail_text(
                err, HB_ERR_PARSE,
                "tensor '%.*s' begins at byte %llu and %s the data before it, which "
                "ends at %llu",
                NAME_SHOWN, span[i].tensor->name, (unsigned long long)span[i].begin, what,
                (unsigned long long)at);
        }
        at = span[i].end;
    }
    if (at != data_bytes) {
        return hb_fail_text(err, HB_ERR_PARSE,
                            "the tensors cover %llu bytes, the file has %llu bytes of data",
                            (unsigned long long)at, (unsigned long long)data_bytes);
    }
    return HB_OK;
}

/* Header entries to f->tensor; spans [number of entries] is scratch. */
static int32_t read_entries(const cJSON *root, uint64_t data_bytes, struct hb_st_span *spans,
                            struct hb_st_file *f, struct hb_error *err) {
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, root) {
        int32_t status = HB_OK;
        if (strcmp(item->string, "__metadata__") == 0) {
            status = check_metadata(item, err);
        } else {
            struct hb_st_tensor *t = &f->tensor[f->n_tensors++];
            status = read_tensor(item, data_bytes, t, &spans[f->n_tensors - 1], err);
        }
        if (status != HB_OK) {
            return status;
        }
    }
    return check_cover(spans, f->n_tensors, data_bytes, err);
}

/* The strict grammar first (cJSON is lenient in several places; names are unique after it), then
 * the tree. */
static int32_t parse_text(const char *text, size_t len, cJSON **root, struct hb_error *err) {
    const int32_t scan = hb_json_scan(text, len, err);
    if (scan != HB_OK) {
        return scan;
    }
    cJSON *tree = cJSON_ParseWithLength(text, len);
    if (tree == NULL) {
        return hb_fail_text(err, HB_ERR_MEMORY, "out of memory for a header of %zu bytes", len);
    }
    if (!cJSON_IsObject(tree)) {
        cJSON_Delete(tree);
        return hb_fail_text(err, HB_ERR_PARSE, "the header is not a JSON object");
    }
    *root = tree;
    return HB_OK;
}

int32_t hb_st_check_length(const uint8_t *prefix, uint64_t size, uint64_t *header,
                           struct hb_error *err) {
    if (size < HB_ST_PREFIX) {
        return hb_fail_text(err, HB_ERR_PARSE, "the file has %llu bytes, the least is %d",
                            (unsigned long long)size, (int)HB_ST_PREFIX);
    }
    uint64_t length = 0;
    for (int i = HB_ST_PREFIX - 1; i >= 0; i--) {
        length = length << 8 | prefix[i];
    }
    if (length > MAX_HEADER) {
        return hb_fail_text(err, HB_ERR_PARSE, "header length %llu is above the limit %llu",
                            (unsigned long long)length, (unsigned long long)MAX_HEADER);
    }
    if (length > size - HB_ST_PREFIX) {
        return hb_fail_text(err, HB_ERR_PARSE,
                            "header length %llu goes beyond the file, %llu bytes are left",
                            (unsigned long long)length, (unsigned long long)(size - HB_ST_PREFIX));
    }
    *header = length;
    return HB_OK;
}

int32_t hb_st_parse_header(const char *text, size_t len, uint64_t data_bytes, struct hb_st_file *f,
                           struct hb_st_span **spans, struct hb_error *err) {
    cJSON *root = NULL;
    int32_t status = parse_text(text, len, &root, err);
    if (status != HB_OK) {
        return status;
    }
    const size_t entries =
        (size_t)cJSON_GetArraySize(root) + 1; /* one more: never a request for 0 bytes */
    struct hb_st_file made = {NULL, 0, NULL, 0};
    struct hb_st_span *places = calloc(entries, sizeof *places);
    made.tensor = calloc(entries, sizeof *made.tensor);
    if (places == NULL || made.tensor == NULL) {
        status = hb_fail_text(err, HB_ERR_MEMORY, "out of memory for %zu tensors", entries);
    } else {
        status = read_entries(root, data_bytes, places, &made, err);
    }
    cJSON_Delete(root);
    if (status != HB_OK) {
        free(places);
        hb_st_free(&made);
        return status;
    }
    *f = made;
    *spans = places;
    return HB_OK;
}

void hb_st_attach(struct hb_st_file *f, struct hb_st_span *spans, uint8_t *memory, size_t size,
                  size_t data_at) {
    f->memory = memory;
    f->size = size;
    for (int32_t i = 0; i < f->n_tensors; i++) {
        spans[i].tensor->data = memory + data_at + spans[i].begin;
    }
    free(spans);
}

int32_t hb_st_parse(const void *data, size_t size, struct hb_st_file *out, struct hb_error *err) {
    const uint8_t *bytes = data;
    uint64_t header = 0;
    struct hb_st_file f;
    struct hb_st_span *spans = NULL;
    int32_t status = hb_st_check_length(bytes, size, &header, err);
    if (status != HB_OK) {
        return status;
    }
    const size_t data_at = HB_ST_PREFIX + (size_t)header;
    status = hb_st_parse_header((const char *)bytes + HB_ST_PREFIX, (size_t)header, size - data_at,
                                &f, &spans, err);
    if (status != HB_OK) {
        return status;
    }
    uint8_t *copy = malloc(size);
    if (copy == NULL) {
        free(spans);
        hb_st_free(&f);
        return hb_fail_text(err, HB_ERR_MEMORY, "out of memory for %zu bytes", size);
    }
    memcpy(copy, bytes, size);
    hb_st_attach(&f, spans, copy, size, data_at);
    *out = f;
    return HB_OK;
}

void hb_st_free(struct hb_st_file *f) {
    if (f == NULL) {
        return;
    }
    for (int32_t i = 0; i < f->n_tensors; i++) {
        free(f->tensor[i].name);
    }
    free(f->tensor);
    free(f->memory);
    *f = (struct hb_st_file){NULL, 0, NULL, 0};
}
