/* SPDX-License-Identifier: Apache-2.0
 * .safetensors reader: the checks. Elements are in safetensors_values.c, files in safetensors_io.c.
 *
 * Nothing of the file is trusted: every length is compared in uint64 before it is used, products
 * are checked for overflow, and the tensors together must cover the data exactly (no gap, no
 * overlap, no rest). */
#include "harness/safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/json_scan.h"
#include "harness/json_walk.h"
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

/* A non-negative integer at the cursor, which moves behind the value; *v is NaN for what is no number. The scanner has
 * refused 2^53 and above, so a conversion to uint64 is exact. */
static int is_count(struct hb_json_walk *w, double *v) {
    *v = (double)NAN;
    if (hb_json_walk_kind(w) != '0') {
        hb_json_walk_skip(w);
        return 0;
    }
    *v = hb_json_walk_number(w);
    return *v >= 0.0 && floor(*v) == *v;
}

static int32_t check_metadata(struct hb_json_walk *w, struct hb_error *err) {
    if (hb_json_walk_kind(w) != '{') {
        return hb_fail_text(err, HB_ERR_PARSE, "__metadata__ is not an object of strings");
    }
    hb_json_walk_enter(w);
    while (hb_json_walk_next(w)) {
        char key[HB_JSON_MAX_KEY + 1];
        hb_json_walk_string(w, key, sizeof key);
        if (hb_json_walk_kind(w) != '"') {
            return hb_fail_text(err, HB_ERR_PARSE, "__metadata__ entry '%.*s' is not a string",
                                NAME_SHOWN, key);
        }
        hb_json_walk_skip(w);
    }
    return HB_OK;
}

static int32_t read_shape(struct hb_json_walk w, struct hb_st_tensor *t, struct hb_error *err) {
    if (hb_json_walk_kind(&w) != '[') {
        return hb_fail_text(err, HB_ERR_PARSE, "tensor '%.*s': shape is not an array", NAME_SHOWN,
                            t->name);
    }
    const uint64_t size = hb_st_dtype_size(t->dtype);
    const struct hb_json_walk start = w;
    uint64_t n = 1;
    hb_json_walk_enter(&w);
    while (hb_json_walk_next(&w)) {
        double v;
        if (t->n_dims == HB_ST_MAX_DIMS) {
            return hb_fail_text(err, HB_ERR_PARSE,
                                "tensor '%.*s' has %zu dimensions, the limit is %d", NAME_SHOWN,
                                t->name, hb_json_walk_count(&start), (int)HB_ST_MAX_DIMS);
        }
        if (!is_count(&w, &v)) {
            return hb_fail_text(
                err, HB_ERR_PARSE,
                "tensor '%.*s': dimension %d is %.17g, valid are integers 0..2^53-1", NAME_SHOWN,
                t->name, t->n_dims, v);
        }
        const uint64_t dim = (uint64_t)v;
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

/* An array of two counts. */
static int read_pair(struct hb_json_walk w, uint64_t pair[2]) {
    int n = 0;
    if (hb_json_walk_kind(&w) != '[') {
        return 0;
    }
    hb_json_walk_enter(&w);
    for (; hb_json_walk_next(&w); n++) {
        double v;
        if (n == 2 || !is_count(&w, &v)) {
            return 0;
        }
        pair[n] = (uint64_t)v;
    }
    return n == 2;
}

static int32_t read_offsets(struct hb_json_walk w, const struct hb_st_tensor *t, uint64_t data_bytes,
                            struct hb_st_span *span, struct hb_error *err) {
    uint64_t pair[2];
    if (!read_pair(w, pair)) {
        return hb_fail_text(
            err, HB_ERR_PARSE,
            "tensor '%.*s': data_offsets is not an array of 2 integers in 0..2^53-1", NAME_SHOWN,
            t->name);
    }
    span->begin = pair[0];
    span->end = pair[1];
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

enum { DTYPE, SHAPE, OFFSETS, N_FIELDS };

/* Exactly the fields dtype, shape and data_offsets (the scanner has refused a key that comes twice):
 * where their values are. w moves behind the entry. */
static int32_t find_fields(struct hb_json_walk *w, const char *name, struct hb_json_walk at[N_FIELDS],
                           struct hb_error *err) {
    static const char *const field[N_FIELDS] = {"dtype", "shape", "data_offsets"};
    int seen[N_FIELDS] = {0, 0, 0};
    if (hb_json_walk_kind(w) != '{') {
        return hb_fail_text(err, HB_ERR_PARSE, "tensor '%.*s' is not an object", NAME_SHOWN, name);
    }
    hb_json_walk_enter(w);
    while (hb_json_walk_next(w)) {
        char key[HB_JSON_MAX_KEY + 1];
        int k = 0;
        hb_json_walk_string(w, key, sizeof key);
        while (k < N_FIELDS && strcmp(key, field[k]) != 0) {
            k++;
        }
        if (k == N_FIELDS) {
            return hb_fail_text(err, HB_ERR_PARSE, "tensor '%.*s' has the unknown field '%.*s'",
                                NAME_SHOWN, name, NAME_SHOWN, key);
        }
        seen[k] = 1;
        at[k] = *w;
        hb_json_walk_skip(w);
    }
    for (int k = 0; k < N_FIELDS; k++) {
        if (seen[k] == 0) {
            return hb_fail_text(err, HB_ERR_PARSE, "tensor '%.*s' has no field '%s'", NAME_SHOWN,
                                name, field[k]);
        }
    }
    return HB_OK;
}

/* t->name is set; w stands before the entry's value and moves behind it. */
static int32_t read_tensor(struct hb_json_walk *w, uint64_t data_bytes, struct hb_st_tensor *t,
                           struct hb_st_span *span, struct hb_error *err) {
    struct hb_json_walk at[N_FIELDS];
    char dtype[32] = "?";
    int32_t status = find_fields(w, t->name, at, err);
    if (status != HB_OK) {
        return status;
    }
    if (hb_json_walk_kind(&at[DTYPE]) == '"') {
        hb_json_walk_string(&at[DTYPE], dtype, sizeof dtype);
    }
    t->dtype = find_dtype(dtype);
    if (t->dtype < 0) {
        return hb_fail_text(err, HB_ERR_PARSE, "tensor '%.*s' has the unknown dtype '%.16s'",
                            NAME_SHOWN, t->name, dtype);
    }
    status = read_shape(at[SHAPE], t, err);
    return status != HB_OK ? status : read_offsets(at[OFFSETS], t, data_bytes, span, err);
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

/* Header entries to f->tensor and spans, which have room for all; names go behind each other into f->names. */
static int32_t read_entries(struct hb_json_walk w, uint64_t data_bytes, struct hb_st_span *spans,
                            struct hb_st_file *f, struct hb_error *err) {
    char *name = f->names;
    hb_json_walk_enter(&w);
    while (hb_json_walk_next(&w)) {
        int32_t status = HB_OK;
        hb_json_walk_string(&w, name, HB_JSON_MAX_KEY + 1);
        if (strcmp(name, "__metadata__") == 0) {
            status = check_metadata(&w, err);
        } else {
            struct hb_st_tensor *t = &f->tensor[f->n_tensors];
            t->name = name;
            spans[f->n_tensors].tensor = t;
            status = read_tensor(&w, data_bytes, t, &spans[f->n_tensors++], err);
            name += strlen(name) + 1;
        }
        if (status != HB_OK) {
            return status;
        }
    }
    return check_cover(spans, f->n_tensors, data_bytes, err);
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
    struct hb_json_walk w = {text, len, 0};
    int32_t status = hb_json_scan(text, len, err);
    if (status != HB_OK) {
        return status;
    }
    if (hb_json_walk_kind(&w) != '{') {
        return hb_fail_text(err, HB_ERR_PARSE, "the header is not a JSON object");
    }
    const size_t entries = hb_json_walk_count(&w) + 1; /* one more: never a request for 0 bytes */
    struct hb_st_file made = {.memory = NULL};
    struct hb_st_span *places = calloc(entries, sizeof *places);
    made.tensor = calloc(entries, sizeof *made.tensor);
    /* a decoded name and its zero are shorter than the name with its quotes; the last one may be cut at the longest key */
    made.names = malloc(len + HB_JSON_MAX_KEY + 1);
    if (places == NULL || made.tensor == NULL || made.names == NULL) {
        status = hb_fail_text(err, HB_ERR_MEMORY, "out of memory for %zu tensors", entries);
    } else {
        status = read_entries(w, data_bytes, places, &made, err);
    }
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
    struct hb_st_file f = {.memory = NULL};
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
    free(f->names);
    free(f->tensor);
    free(f->memory);
    *f = (struct hb_st_file){.memory = NULL};
}
