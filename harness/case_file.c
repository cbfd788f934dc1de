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

#include "harness/case.h"

enum { MAX_FILE_BYTES = 1 << 20, MAX_TEMP_TRIES = 100 };

/* At most cap bytes; *size says how many came. */
static int32_t read_some(FILE *f, const char *path, char *data, size_t cap, size_t *size,
                         struct hb_error *err) {
    *size = fread(data, 1, cap, f);
    if (ferror(f)) {
        return hb_fail_text(err, HB_ERR_IO, "%.150s: cannot be read: %s", path, strerror(errno));
    }
    return HB_OK;
}

static int32_t check_size(FILE *f, const char *path, size_t size, struct hb_error *err) {
    if (size <= MAX_FILE_BYTES) {
        return HB_OK;
    }
    struct stat st;
    long long bytes = (long long)size; /* of a pipe: more than this */
    if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode)) {
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

static int is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int32_t parse(const char *data, size_t size, struct hb_case *out, struct hb_error *err) {
    size_t first = 0;
    while (first < size && is_space(data[first])) {
        first++;
    }
    if (first < size && data[first] == '{') {
        return hb_case_from_json(data, size, out, err);
    }
    hb_case_decode((const uint8_t *)data, size, out);
    return HB_OK;
}

static int32_t load_stream(FILE *f, const char *path, char *data, struct hb_case *out,
                           struct hb_error *err) {
    size_t size = 0;
    int32_t status = read_some(f, path, data, MAX_FILE_BYTES + 1, &size, err);
    if (status == HB_OK) {
        status = check_size(f, path, size, err);
    }
    return status == HB_OK ? parse(data, size, out, err) : status;
}

int32_t hb_case_load(const char *path, struct hb_case *out, struct hb_error *err) {
    const int is_stdin = strcmp(path, "-") == 0;
    char *data = malloc(MAX_FILE_BYTES + 1);
    if (!data) {
        return hb_fail_text(err, HB_ERR_MEMORY, "%.150s: out of memory", path);
    }
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    int32_t status;
    if (f) {
        status = load_stream(f, path, data, out, err);
    } else {
        status =
            hb_fail_text(err, HB_ERR_IO, "%.150s: cannot be opened: %s", path, strerror(errno));
    }
    free(data);
    if (f && !is_stdin) {
        (void)fclose(f);
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
    static const char suffix[] = ".json";
    const size_t n = strlen(path);
    if (n >= sizeof suffix - 1 && strcmp(path + n - (sizeof suffix - 1), suffix) == 0) {
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
