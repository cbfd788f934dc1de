/* SPDX-License-Identifier: Apache-2.0
 * .safetensors files: reading one, header first, and writing one through a temporary file and
 * rename. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/safetensors_internal.h"

/* Growing text; failed stays set once memory ran out. */
struct text {
    char *at;
    size_t len, cap;
    int failed;
};

int32_t hb_st_open(const char *path, uint64_t limit, int *fd, uint64_t *size,
                   struct hb_error *err) {
    struct stat info;
    int32_t status = HB_OK;
    /* O_NONBLOCK: opening a named pipe returns at once, and fstat then says what it is */
    const int opened = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (opened < 0) {
        return hb_fail_text(err, HB_ERR_IO, "%.180s: %s", path, strerror(errno));
    }
    if (fstat(opened, &info) != 0 || !S_ISREG(info.st_mode)) {
        status = hb_fail_text(err, HB_ERR_IO, "%.180s: not a regular file", path);
    } else if ((uint64_t)info.st_size > limit) {
        status =
            hb_fail_text(err, HB_ERR_PARSE, "%.140s: the file has %llu bytes, the limit is %llu",
                         path, (unsigned long long)info.st_size, (unsigned long long)limit);
    }
    if (status != HB_OK) {
        (void)close(opened);
        return status;
    }
    *fd = opened;
    *size = (uint64_t)info.st_size;
    return HB_OK;
}

int32_t hb_st_fill(int fd, const char *path, void *to, size_t n, size_t *got,
                   struct hb_error *err) {
    size_t have = 0;
    ssize_t step = 1;
    while (have < n && step != 0) {
        step = read(fd, (uint8_t *)to + have, n - have);
        if (step < 0 && errno != EINTR) {
            return hb_fail_text(err, HB_ERR_IO, "%.180s: %s", path, strerror(errno));
        }
        have += step > 0 ? (size_t)step : 0;
    }
    *got = have;
    return HB_OK;
}

/* Exactly n bytes. */
static int32_t read_bytes(int fd, const char *path, uint8_t *to, size_t n, struct hb_error *err) {
    size_t got = 0;
    const int32_t status = hb_st_fill(fd, path, to, n, &got, err);
    if (status == HB_OK && got != n) {
        return hb_fail_text(err, HB_ERR_IO, "%.180s: %zu of the next %zu bytes could be read", path,
                            got, n);
    }
    return status;
}

/* The header of the file behind its 8 bytes, through memory of its own. */
static int32_t read_header(int fd, const char *path, size_t len, uint64_t data_bytes,
                           struct hb_st_file *f, struct hb_st_span **spans, struct hb_error *err) {
    uint8_t *text = malloc(len + 1);
    if (text == NULL) {
        return hb_fail_text(err, HB_ERR_MEMORY, "%.180s: out of memory for a header of %zu bytes",
                            path, len);
    }
    int32_t status = read_bytes(fd, path, text, len, err);
    if (status == HB_OK) {
        status = hb_st_parse_header((const char *)text, len, data_bytes, f, spans, err);
    }
    free(text);
    return status;
}

/* Nothing of the data is read, and no memory asked for it, before the header has been found good.
 * The memory has room for the whole file; the data take its end. */
static int32_t read_open(int fd, const char *path, uint64_t size, struct hb_st_file *out,
                         struct hb_error *err) {
    uint8_t prefix[HB_ST_PREFIX] = {0};
    uint64_t header = 0;
    int32_t status =
        size < sizeof prefix ? HB_OK : read_bytes(fd, path, prefix, sizeof prefix, err);
    status = status != HB_OK ? status : hb_st_check_length(prefix, size, &header, err);
    if (status != HB_OK) {
        return status;
    }
    struct hb_st_file f = {.memory = NULL};
    struct hb_st_span *spans = NULL;
    const size_t data_at = sizeof prefix + (size_t)header;
    status = read_header(fd, path, (size_t)header, size - data_at, &f, &spans, err);
    if (status != HB_OK) {
        return status;
    }
    uint8_t *memory = malloc(size > 0 ? (size_t)size : 1);
    status = memory != NULL
                 ? read_bytes(fd, path, memory + data_at, (size_t)size - data_at, err)
                 : hb_fail_text(err, HB_ERR_MEMORY, "%.180s: out of memory for %llu bytes", path,
                                (unsigned long long)size);
    if (status != HB_OK) {
        free(memory);
        free(spans);
        hb_st_free(&f);
        return status;
    }
    hb_st_attach(&f, spans, memory, (size_t)size, data_at);
    *out = f;
    return HB_OK;
}

int32_t hb_st_read(const char *path, struct hb_st_file *out, struct hb_error *err) {
    int fd = -1;
    uint64_t size = 0;
    int32_t status = hb_st_open(path, HB_ST_MAX_FILE, &fd, &size, err);
    if (status == HB_OK) {
        status = read_open(fd, path, size, out, err);
        (void)close(fd); /* only read from */
    }
    return status;
}

static void put(struct text *t, const char *bytes, size_t n) {
    if (t->failed) {
        return;
    }
    if (t->cap - t->len < n) {
        const size_t cap = 2 * (t->len + n) + 256;
        char *grown = realloc(t->at, cap);
        if (grown == NULL) {
            t->failed = 1;
            return;
        }
        t->at = grown;
        t->cap = cap;
    }
    memcpy(t->at + t->len, bytes, n);
    t->len += n;
}

static void put_string(struct text *t, const char *s) {
    put(t, s, strlen(s));
}

static void put_number(struct text *t, uint64_t v) {
    char digits[24];
    const int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)v);
    put(t, digits, n > 0 ? (size_t)n : 0);
}

/* A JSON string; other bytes than quote, backslash and control characters pass through. */
static void put_quoted(struct text *t, const char *s) {
    put(t, "\"", 1);
    for (; *s != '\0'; s++) {
        char escape[8];
        const unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            escape[0] = '\\';
            escape[1] = *s;
            put(t, escape, 2);
        } else if (c < 0x20) {
            const int n = snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
            put(t, escape, n > 0 ? (size_t)n : 0);
        } else {
            put(t, s, 1);
        }
    }
    put(t, "\"", 1);
}

static void put_tensor(struct text *t, const struct hb_st_tensor *tensor, uint64_t begin) {
    put_quoted(t, tensor->name);
    put_string(t, ":{\"dtype\":\"");
    put_string(t, hb_st_dtype_name(tensor->dtype));
    put_string(t, "\",\"shape\":[");
    for (int32_t d = 0; d < tensor->n_dims; d++) {
        put(t, ",", d > 0 ? 1 : 0);
        put_number(t, (uint64_t)tensor->shape[d]);
    }
    put_string(t, "],\"data_offsets\":[");
    put_number(t, begin);
    put(t, ",", 1);
    put_number(t, begin + tensor->bytes);
    put_string(t, "]}");
}

/* The same limits that the reader holds a file to. */
static int32_t check_tensor(const struct hb_st_tensor *t, struct hb_error *err) {
    const uint64_t size = hb_st_dtype_size(t->dtype);
    if (t->name == NULL || size == 0 || t->n_dims < 0 || t->n_dims > HB_ST_MAX_DIMS) {
        return hb_fail_text(err, HB_ERR_SHAPE,
                            "tensor '%s': dtype %d or number of dimensions %d is not valid",
                            t->name != NULL ? t->name : "?", t->dtype, t->n_dims);
    }
    if (t->data == NULL && t->bytes > 0) {
        return hb_fail_text(err, HB_ERR_SHAPE, "tensor '%s' has %llu bytes but no data", t->name,
                            (unsigned long long)t->bytes);
    }
    uint64_t bytes = size;
    for (int32_t d = 0; d < t->n_dims; d++) {
        const int64_t dim = t->shape[d];
        if (dim < 0 || (dim != 0 && bytes > (uint64_t)INT64_MAX / (uint64_t)dim)) {
            return hb_fail_text(err, HB_ERR_SHAPE, "tensor '%s': dimension %d is %lld", t->name, d,
                                (long long)dim);
        }
        bytes *= (uint64_t)dim;
    }
    if (bytes != t->bytes) {
        return hb_fail_text(err, HB_ERR_SHAPE,
                            "tensor '%s' has %llu bytes, shape and dtype say %llu", t->name,
                            (unsigned long long)t->bytes, (unsigned long long)bytes);
    }
    return HB_OK;
}

static int32_t build_header(const struct hb_st_tensor *tensors, int32_t n, struct text *header,
                            struct hb_error *err) {
    uint64_t begin = 0;
    put(header, "{", 1);
    for (int32_t i = 0; i < n; i++) {
        const int32_t status = check_tensor(&tensors[i], err);
        if (status != HB_OK) {
            return status;
        }
        put(header, ",", i > 0 ? 1 : 0);
        put_tensor(header, &tensors[i], begin);
        begin += tensors[i].bytes;
    }
    put(header, "}", 1);
    while (header->len % 8 != 0 && !header->failed) {
        put(header, " ", 1); /* the data starts aligned to 8 bytes */
    }
    if (header->failed || header->at == NULL) {
        return hb_fail_text(err, HB_ERR_MEMORY, "out of memory for the header of %d tensors", n);
    }
    return HB_OK;
}

static int write_all(FILE *file, const struct text *header, const struct hb_st_tensor *tensors,
                     int32_t n) {
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++) {
        prefix[i] = (uint8_t)((uint64_t)header->len >> (8 * i) & 255);
    }
    int ok = fwrite(prefix, 1, sizeof prefix, file) == sizeof prefix &&
             fwrite(header->at, 1, header->len, file) == header->len;
    for (int32_t i = 0; i < n && ok; i++) {
        const size_t bytes = (size_t)tensors[i].bytes;
        ok = bytes == 0 || fwrite(tensors[i].data, 1, bytes, file) == bytes;
    }
    return ok && fflush(file) == 0;
}

static FILE *open_new(const char *path) {
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST &&
        unlink(path) == 0) { /* left by a killed process of the same number */
        fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    }
    if (fd < 0) {
        return NULL;
    }
    FILE *file = fdopen(fd, "wb");
    if (file == NULL) {
        (void)close(fd);
    }
    return file;
}

static int32_t write_by_rename(const char *path, const char *temporary, const struct text *header,
                               const struct hb_st_tensor *tensors, int32_t n,
                               struct hb_error *err) {
    FILE *file = open_new(temporary);
    if (file == NULL) {
        return hb_fail_text(err, HB_ERR_IO, "%s: %s", temporary, strerror(errno));
    }
    int ok = write_all(file, header, tensors, n);
    int reason = ok ? 0 : errno;
    if (fclose(file) != 0 && ok) {
        ok = 0;
        reason = errno;
    }
    if (ok && rename(temporary, path) != 0) {
        ok = 0;
        reason = errno;
    }
    if (!ok) {
        (void)unlink(temporary); /* best effort: the error that matters is reported below */
        return hb_fail_text(err, HB_ERR_IO, "%s: %s", path, strerror(reason));
    }
    return HB_OK;
}

int32_t hb_st_write(const char *path, const struct hb_st_tensor *tensors, int32_t n,
                    struct hb_error *err) {
    struct text header = {NULL, 0, 0, 0};
    const size_t cap = strlen(path) + 32;
    char *temporary = malloc(cap);
    if (temporary == NULL) {
        return hb_fail_text(err, HB_ERR_MEMORY, "out of memory for a file name of %zu bytes", cap);
    }
    (void)snprintf(temporary, cap, "%s.%ld.tmp", path, (long)getpid());
    int32_t status = build_header(tensors, n, &header, err);
    if (status == HB_OK) {
        status = write_by_rename(path, temporary, &header, tensors, n, err);
    }
    free(header.at);
    free(temporary);
    return status;
}
