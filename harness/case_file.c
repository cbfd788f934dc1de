/* SPDX-License-Identifier: Apache-2.0
 * Case files: reading with a size limit, writing by a temporary file in the same folder and a
 * rename. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/case_internal.h"

enum { MAX_FILE_BYTES = 1 << 20, MAX_TEMP_TRIES = 100, TEXT_LOOK = 64 };

/* Opens a regular file for reading, without waiting for the other end of a pipe. -1, with the reason
 * in err. */
static int open_regular(const char *path, struct hb_error *err) {
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (fd < 0) {
        hb_fail_text(err, HB_ERR_IO, "%.150s: cannot be opened: %s", path, strerror(errno));
        return -1;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd);
        hb_fail_text(err, HB_ERR_IO, "%.150s: is not a regular file", path);
        return -1;
    }
    return fd;
}

/* At most cap bytes; *size says how many came. */
static int32_t read_some(int fd, const char *path, char *data, size_t cap, size_t *size,
                         struct hb_error *err) {
    for (*size = 0; *size < cap;) {
        const ssize_t n = read(fd, data + *size, cap - *size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return hb_fail_text(err, HB_ERR_IO, "%.150s: cannot be read: %s", path,
                                strerror(errno));
        }
        if (n == 0) {
            break;
        }
        *size += (size_t)n;
    }
    return HB_OK;
}

static int32_t check_size(int fd, const char *path, size_t size, struct hb_error *err) {
    if (size <= MAX_FILE_BYTES) {
        return HB_OK;
    }
    struct stat st;
    long long bytes = (long long)size; /* of a pipe: more than this */
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        bytes = (long long)st.st_size;
    }
    const int is_first = err && err->status == HB_OK;
    hb_fail_text(err, HB_ERR_PARSE, "%.150s: case file has %lld bytes, the most is %d", path, bytes,
                 MAX_FILE_BYTES);
    if (is_first) {
        err->value = bytes;
        err->limit = MAX_FILE_BYTES;
    }
    return HB_ERR_PARSE;
}

static int is_json_name(const char *path) {
    static const char suffix[] = ".json";
    const size_t n = strlen(path);
    return n >= sizeof suffix - 1 && strcmp(path + n - (sizeof suffix - 1), suffix) == 0;
}

static int is_space(uint8_t c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Whether a file has bytes: the rule of hb_case_load. */
static int has_bytes(const char *path, const uint8_t *data, size_t size) {
    static const struct {
        size_t size;
        const char *text;
        int has_bytes;
    } starts[] = {{3, "HBC", 1},
                  {3, "\xef\xbb\xbf", 0}, /* byte order marks: UTF-8, UTF-16 */
                  {2, "\xfe\xff", 0},
                  {2, "\xff\xfe", 0}};
    size_t first = 0;
    if (is_json_name(path)) {
        return 0;
    }
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        if (size >= starts[i].size && memcmp(data, starts[i].text, starts[i].size) == 0) {
            return starts[i].has_bytes;
        }
    }
    while (first < size && is_space(data[first])) {
        first++;
    }
    if (first < size && (data[first] == '{' || data[first] == '[' || data[first] == '"')) {
        return 0;
    }
    for (size_t i = 0; i < size && i < TEXT_LOOK; i++) {
        if (data[i] < 0x09 || data[i] >= 0x7f) {
            return 1;
        }
    }
    return 0;
}

/* Whether bytes have the magic of another schema. */
static int is_other_schema(const char *data, size_t size) {
    static const char magic[4] = HB_CASE_MAGIC;
    return size >= sizeof magic && memcmp(data, magic, sizeof magic - 1) == 0 &&
           data[3] != magic[3] && data[3] >= '0' && data[3] <= '9';
}

/* A fault in the text of path: err gets the name before the fault's own text, the end of the name
 * where both do not fit. */
static int32_t fail_in_file(const char *path, const struct hb_error *fault, struct hb_error *err) {
    if (!err || err->status != HB_OK) {
        return fault->status;
    }
    const size_t n = strlen(path);
    const size_t room = sizeof err->text - 3 - strlen(fault->text);
    const size_t skip = n > room ? n - room : 0;
    hb_fail_text(err, fault->status, "%s: %s", path + skip, fault->text);
    err->row = fault->row;
    err->value = fault->value;
    err->limit = fault->limit;
    return fault->status;
}

static int32_t load_open(int fd, const char *path, char *data, struct hb_case *out,
                         struct hb_error *err) {
    struct hb_error fault = {.struct_size = sizeof fault};
    size_t size = 0;
    int32_t status = read_some(fd, path, data, MAX_FILE_BYTES + 1, &size, err);
    if (status == HB_OK) {
        status = check_size(fd, path, size, err);
    }
    if (status != HB_OK) {
        return status;
    }
    if (has_bytes(path, (const uint8_t *)data, size)) {
        if (is_other_schema(data, size)) {
            return hb_fail_text(err, HB_ERR_PARSE, "%.150s: bytes of schema '%c', this program reads %d",
                                path, data[3], HB_CASE_SCHEMA);
        }
        hb_case_decode((const uint8_t *)data, size, out);
        return HB_OK;
    }
    status = hb_case_from_json(data, size, out, &fault);
    return status == HB_OK ? HB_OK : fail_in_file(path, &fault, err);
}

int32_t hb_case_load(const char *path, struct hb_case *out, struct hb_error *err) {
    const int is_stdin = strcmp(path, "-") == 0;
    char *data = malloc(MAX_FILE_BYTES + 1);
    if (!data) {
        return hb_fail_text(err, HB_ERR_MEMORY, "%.150s: out of memory", path);
    }
    const int fd = is_stdin ? STDIN_FILENO : open_regular(path, err);
    const int32_t status = fd < 0 ? HB_ERR_IO : load_open(fd, path, data, out, err);
    free(data);
    if (fd >= 0 && !is_stdin) {
        (void)close(fd);
    }
    return status;
}

/* Opens PATH.tmp-PID-N, which did not exist before; name must hold strlen(path) + 48 bytes. */
static int open_temp(const char *path, char *name, size_t cap) {
    int fd = -1;
    for (int i = 0; i < MAX_TEMP_TRIES && fd < 0; i++) {
        (void)snprintf(name, cap, "%s.tmp-%ld-%d", path, (long)getpid(), i);
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) {
            break;
        }
    }
    return fd;
}

static int write_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        const ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return -1;
        }
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

static int32_t save_bytes(const char *path, const char *data, size_t size, struct hb_error *err) {
    const size_t cap = strlen(path) + 48;
    char *name = malloc(cap);
    if (!name) {
        return hb_fail_text(err, HB_ERR_MEMORY, "%.150s: out of memory", path);
    }
    const int fd = open_temp(path, name, cap);
    if (fd < 0) {
        free(name);
        return hb_fail_text(err, HB_ERR_IO, "%.150s: cannot be created: %s", path, strerror(errno));
    }
    int failed = write_all(fd, data, size) != 0;
    int why = errno;
    if (close(fd) != 0 && !failed) {
        failed = 1;
        why = errno;
    }
    if (!failed && rename(name, path) != 0) {
        failed = 1;
        why = errno;
    }
    if (failed) {
        (void)unlink(name);
    }
    free(name);
    return failed
               ? hb_fail_text(err, HB_ERR_IO, "%.150s: cannot be written: %s", path, strerror(why))
               : HB_OK;
}

int32_t hb_case_save(const char *path, const struct hb_case *c, struct hb_error *err) {
    if (is_json_name(path)) {
        char *text = hb_case_to_json(c, NULL);
        if (!text) {
            return hb_fail_text(err, HB_ERR_MEMORY, "%.150s: out of memory", path);
        }
        const int32_t status = save_bytes(path, text, strlen(text), err);
        free(text);
        return status;
    }
    uint8_t bytes[HB_CASE_MAX_BYTES];
    const size_t size = hb_case_encode(c, bytes, sizeof bytes);
    return save_bytes(path, (const char *)bytes, size, err);
}
