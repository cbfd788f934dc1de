/* SPDX-License-Identifier: Apache-2.0
 * Safetensors: what is accepted reads back exactly; every kind of malformed file is refused with
 * its reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "harness/safetensors.h"

/* A file image: prefix with `claimed` as header length (-1: its own), header, then data_bytes
 * zeros. */
static size_t image(const char *header, size_t header_len, int64_t claimed, size_t data_bytes,
                    uint8_t *out) {
    const uint64_t n = claimed < 0 ? header_len : (uint64_t)claimed;
    for (int i = 0; i < 8; i++) {
        out[i] = (uint8_t)(n >> (8 * i) & 255);
    }
    memcpy(out + 8, header, header_len);
    memset(out + 8 + header_len, 0, data_bytes);
    return 8 + header_len + data_bytes;
}

static int32_t parse(const char *header, size_t data_bytes, struct hb_st_file *f,
                     struct hb_error *err) {
    uint8_t bytes[4096];
    memset(err, 0, sizeof *err);
    err->struct_size = sizeof *err;
    const size_t n = image(header, strlen(header), -1, data_bytes, bytes);
    uint8_t *exact = malloc(n); /* exact size: a read beyond the file is seen by the sanitizer */
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    const int32_t status = hb_st_parse(exact, n, f, err);
    free(exact);
    return status;
}

static void accepts_every_dtype_with_exact_values(void **state) {
    (void)state;
    static const uint16_t half[6] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x8400};
    static const double half_value[6] = {1.0, -2.0, 0x1p-24, 65504.0, INFINITY, -0x1p-14};
    static const double f64[1] = {0.1};
    static const float f32[2] = {0.1F, -3.5F};
    static const uint16_t bf16[2] = {0x3f80, 0xc040};
    static const int64_t i64[2] = {-5, 1LL << 40};
    static const int32_t i32[1] = {-7};
    static const uint8_t u8[3] = {0, 200, 255};
    const struct hb_st_tensor all[8] = {
        {.name = (char[]){"f64"}, .dtype = HB_ST_F64, .n_dims = 0, .data = f64, .bytes = 8},
        {.name = (char[]){"f32"},
         .dtype = HB_ST_F32,
         .n_dims = 2,
         .shape = {1, 2},
         .data = f32,
         .bytes = 8},
        {.name = (char[]){"bf16"},
         .dtype = HB_ST_BF16,
         .n_dims = 1,
         .shape = {2},
         .data = bf16,
         .bytes = 4},
        {.name = (char[]){"f16"},
         .dtype = HB_ST_F16,
         .n_dims = 1,
         .shape = {6},
         .data = half,
         .bytes = 12},
        {.name = (char[]){"i64"},
         .dtype = HB_ST_I64,
         .n_dims = 1,
         .shape = {2},
         .data = i64,
         .bytes = 16},
        {.name = (char[]){"i32"},
         .dtype = HB_ST_I32,
         .n_dims = 1,
         .shape = {1},
         .data = i32,
         .bytes = 4},
        {.name = (char[]){"u8 \"q\"\\\n"},
         .dtype = HB_ST_U8,
         .n_dims = 1,
         .shape = {3},
         .data = u8,
         .bytes = 3},
        {.name = (char[]){"bool"},
         .dtype = HB_ST_BOOL,
         .n_dims = 2,
         .shape = {0, 5},
         .data = u8,
         .bytes = 0},
    };
    char dir[] = "/tmp/hb_st_XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/all.safetensors", dir);
    struct hb_error err = {.struct_size = sizeof err};
    struct hb_st_file f;
    assert_int_equal(hb_st_write(path, all, 8, &err), HB_OK);
    assert_int_equal(hb_st_write(path, all, 8, &err), HB_OK); /* over an old file */
    assert_int_equal(hb_st_read(path, &f, &err), HB_OK);
    assert_int_equal(f.n_tensors, 8);
    for (int i = 0; i < 8; i++) {
        const struct hb_st_tensor *t = hb_st_find(&f, all[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, all[i].dtype);
        assert_int_equal(t->n_dims, all[i].n_dims);
        assert_int_equal(t->bytes, all[i].bytes);
        assert_memory_equal(t->data, all[i].data, all[i].bytes);
    }
    assert_true(hb_st_get(hb_st_find(&f, "f64"), 0) == 0.1);
    assert_true(hb_st_get(hb_st_find(&f, "f32"), 0) == (double)0.1F);
    assert_true(hb_st_get(hb_st_find(&f, "bf16"), 1) == -3.0);
    assert_true(hb_st_get(hb_st_find(&f, "i64"), 1) == 1099511627776.0);
    assert_true(hb_st_get(hb_st_find(&f, "i32"), 0) == -7.0);
    assert_true(hb_st_get(hb_st_find(&f, all[6].name), 1) == 200.0);
    for (int i = 0; i < 6; i++) {
        assert_true(hb_st_get(hb_st_find(&f, "f16"), i) == half_value[i]);
    }
    float two[2];
    hb_st_floats(hb_st_find(&f, "f32"), 0, 2, two);
    assert_memory_equal(two, f32, sizeof f32);
    hb_st_floats(hb_st_find(&f, "i64"), 0, 1, two);
    assert_true(two[0] == -5.0F);
    assert_null(hb_st_find(&f, "absent"));
    hb_st_free(&f);
    hb_st_free(&f); /* a freed file is empty */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void accepts_metadata_and_trailing_spaces(void **state) {
    (void)state;
    struct hb_st_file f;
    struct hb_error err;
    assert_int_equal(parse("{\"__metadata__\":{\"a\":\"b\"},\"t\":{\"dtype\":\"F32\",\"shape\":[2],"
                           "\"data_offsets\":"
                           "[0,8]}}    ",
                           8, &f, &err),
                     HB_OK);
    assert_int_equal(f.n_tensors, 1);
    hb_st_free(&f);
    assert_int_equal(parse("{}", 0, &f, &err), HB_OK); /* no tensors, no data */
    assert_int_equal(f.n_tensors, 0);
    hb_st_free(&f);
}

#define T(fields) "{\"t\":{" fields "}}"
#define D "\"dtype\":\"F32\","
#define TWO(a, b)                                                                                  \
    "{\"s\":{" D "\"shape\":[2],\"data_offsets\":[" a "]},\"t\":{" D                               \
    "\"shape\":[2],\"data_offsets\":[" b "]}}"

static void every_malformed_header_is_refused_with_value_and_limit(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *text;
    } bad[] = {
        {"", 0, ""},
        {"[]", 0, "the header is not a JSON object"},
        {"{\"t\":", 0, ""},
        {"{\"t\":1,\"t\":1}", 0, "key \"t\" appears twice"},
        {"{\"a\\u0000b\":1}", 0, ""},
        {"{} x", 0, ""},
        {"{\"t\":1e400}", 0, ""},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ entry 'a' is not a string"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object of strings"},
        {"{\"t\":[]}", 0, "tensor 't' is not an object"},
        {T(D "\"shape\":[2],\"data_offsets\":[0,8],\"x\":1"), 8,
         "tensor 't' has the unknown field 'x'"},
        {T(D "\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,8]"), 8, "key \"shape\" appears twice"},
        {T("\"shape\":[2],\"data_offsets\":[0,8]"), 8, "tensor 't' has no field 'dtype'"},
        {T(D "\"data_offsets\":[0,8]"), 8, "tensor 't' has no field 'shape'"},
        {T(D "\"shape\":[2]"), 8, "tensor 't' has no field 'data_offsets'"},
        {T("\"dtype\":\"F8\",\"shape\":[2],\"data_offsets\":[0,8]"), 8,
         "tensor 't' has the unknown dtype 'F8'"},
        {T("\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]"), 8,
         "tensor 't' has the unknown dtype '?'"},
        {T(D "\"shape\":2,\"data_offsets\":[0,8]"), 8, "tensor 't': shape is not an array"},
        {T(D "\"shape\":[-1],\"data_offsets\":[0,8]"), 8, "dimension 0 is -1, valid are integers"},
        {T(D "\"shape\":[2,1.5],\"data_offsets\":[0,8]"), 8,
         "dimension 1 is 1.5, valid are integers"},
        {T(D "\"shape\":[[2]],\"data_offsets\":[0,8]"), 8,
         "dimension 0 is nan, valid are integers"},
        {T(D "\"shape\":[9007199254740992],\"data_offsets\":[0,8]"), 8, "9007199254740992"},
        {T(D "\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]"), 8,
         "has 9 dimensions, the limit is 8"},
        {T(D "\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0,
         "dimension 1 is 4294967296, the size overflows 2^63 bytes"},
        {T(D "\"shape\":[3],\"data_offsets\":[0,8]"), 8,
         "has 8 bytes by its offsets, 12 by shape and dtype"},
        {T(D "\"shape\":[2],\"data_offsets\":[8,0]"), 8, "begin 8 is above end 0"},
        {T(D "\"shape\":[2],\"data_offsets\":[0,16]"), 8,
         "ends at byte 16, the file has 8 bytes of data"},
        {T(D "\"shape\":[2],\"data_offsets\":[0]"), 8,
         "data_offsets is not an array of 2 integers"},
        {T(D "\"shape\":[2],\"data_offsets\":[0,8,8]"), 8,
         "data_offsets is not an array of 2 integers"},
        {T(D "\"shape\":[2],\"data_offsets\":[-8,0]"), 8,
         "data_offsets is not an array of 2 integers"},
        {T(D "\"shape\":[2],\"data_offsets\":[0.5,8.5]"), 9,
         "data_offsets is not an array of 2 integers"},
        {T(D "\"shape\":[2],\"data_offsets\":\"0\""), 8,
         "data_offsets is not an array of 2 integers"},
        {T(D "\"shape\":[2],\"data_offsets\":[0,8]"), 12,
         "the tensors cover 8 bytes, the file has 12 bytes of data"},
        {"{}", 1, "the tensors cover 0 bytes, the file has 1 bytes of data"},
        {TWO("0,8", "4,12"), 12,
         "tensor 't' begins at byte 4 and overlaps the data before it, which ends at 8"},
        {TWO("0,8", "0,8"), 8, "and overlaps the data before it"},
        {TWO("0,8", "12,20"), 20,
         "tensor 't' begins at byte 12 and leaves a gap after the data before it, which ends at 8"},
        {TWO("4,12", "12,20"), 20, "tensor 's' begins at byte 4 and leaves a gap after"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct hb_st_file f = {.size = 77, .n_tensors = 77};
        struct hb_error err;
        const int32_t status = parse(bad[i].header, bad[i].data, &f, &err);
        if (status != HB_ERR_PARSE || strstr(err.text, bad[i].text) == NULL ||
            err.text[0] == '\0') {
            fail_msg("header %zu: status %d, text '%s', wanted '%s'", i, status, err.text,
                     bad[i].text);
        }
        assert_int_equal(f.size, 77); /* written only on success */
    }
}

static void nesting_depth_is_limited(void **state) {
    (void)state;
    char deep[400] = "{\"t\":";
    memset(deep + 5, '[', 180);
    memset(deep + 185, ']', 180);
    deep[365] = '}';
    struct hb_st_file f;
    struct hb_error err;
    assert_int_equal(parse(deep, 0, &f, &err), HB_ERR_PARSE);
    assert_non_null(strstr(err.text, "64"));
}

static void header_length_is_checked_before_it_is_used(void **state) {
    (void)state;
    static const struct {
        size_t size;
        int64_t claimed;
        const char *text;
    } bad[] = {
        {0, 0, "the file has 0 bytes, the least is 8"},
        {7, 0, "the file has 7 bytes, the least is 8"},
        {8, 1000000000, "header length 1000000000 is above the limit 100000000"},
        {8, INT64_MAX, "header length 9223372036854775807 is above the limit"},
        {10, 3, "header length 3 goes beyond the file, 2 bytes are left"},
        {8, 100000000, "header length 100000000 goes beyond the file, 0 bytes are left"},
        {8, 0, ""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t bytes[64];
        struct hb_st_file f;
        struct hb_error err = {.struct_size = sizeof err};
        (void)image("{}", 2, bad[i].claimed, 0, bytes);
        assert_int_equal(hb_st_parse(bytes, bad[i].size, &f, &err), HB_ERR_PARSE);
        assert_non_null(strstr(err.text, bad[i].text));
        assert_true(err.text[0] != '\0');
    }
}

/* Names come decoded, and end where they end. */
static void names_may_be_escaped_empty_and_long(void **state) {
    (void)state;
    static const char rest[] = "\":{" D "\"shape\":[2],\"data_offsets\":[";
    char longest[257];
    char header[1200];
    struct hb_st_file f;
    struct hb_error err;
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    (void)snprintf(header, sizeof header,
                   " { \"\\u00e9\\ud83d\\ude00\\n\\\"\\/%s0,8] } , \"%s8,16]}, \"%s%s16,24]}}", rest, rest, longest, rest);
    assert_int_equal(parse(header, 24, &f, &err), HB_OK);
    assert_int_equal(f.n_tensors, 3);
    assert_string_equal(f.tensor[0].name, "\xc3\xa9\xf0\x9f\x98\x80\n\"/");
    assert_string_equal(f.tensor[1].name, "");
    assert_string_equal(f.tensor[2].name, longest);
    assert_ptr_equal(hb_st_find(&f, ""), &f.tensor[1]);
    hb_st_free(&f);
}

/* A header of n tensors without elements, with its prefix; bad: the last one begins at byte 1. */
static uint8_t *many_tensors(int32_t n, int is_bad, size_t *size) {
    const size_t cap = 8 + 2 + (size_t)n * 80;
    char *text = malloc(cap);
    if (!text) {
        return NULL;
    }
    size_t at = 8;
    for (int32_t i = 0; i < n; i++) {
        const int begin = is_bad && i == n - 1;
        at += (size_t)snprintf(text + at, cap - at, "%c\"t%d\":{" D "\"shape\":[0],\"data_offsets\":[%d,%d]}",
                               i ? ',' : '{', (int)i, begin, begin);
    }
    text[at++] = '}';
    for (size_t i = 0, len = at - 8; i < 8; i++) {
        text[i] = (char)(len >> (8 * i) & 255);
    }
    *size = at;
    return (uint8_t *)text;
}

/* Processor time of reading it, the better of two. */
static double seconds_of(int32_t n, int is_bad) {
    double best = 1e9;
    size_t size = 0;
    uint8_t *bytes = many_tensors(n, is_bad, &size);
    assert_non_null(bytes);
    for (int i = 0; i < 2; i++) {
        struct hb_st_file f;
        struct hb_error err = {.struct_size = sizeof err};
        const clock_t begin = clock();
        const int32_t status = hb_st_parse(bytes, size, &f, &err);
        const double t = (double)(clock() - begin) / CLOCKS_PER_SEC;
        assert_int_equal(status, is_bad ? HB_ERR_PARSE : HB_OK);
        if (status == HB_OK) {
            assert_int_equal(f.n_tensors, n);
            hb_st_free(&f);
        }
        best = t < best ? t : best;
    }
    free(bytes);
    return best;
}

static void many_tensors_take_time_in_proportion(void **state) {
    (void)state;
    for (int is_bad = 0; is_bad < 2; is_bad++) {
        const double few = seconds_of(25000, is_bad);
        const double many = seconds_of(400000, is_bad);
        assert_true(many < 16 * 3 * few + 0.1);
    }
}

/* Every prefix of a good file is refused, whatever it cuts. */
static void every_truncation_is_refused(void **state) {
    (void)state;
    uint8_t bytes[512];
    const char *header = TWO("0,8", "8,16");
    const size_t n = image(header, strlen(header), -1, 16, bytes);
    for (size_t size = 0; size <= n; size++) {
        struct hb_st_file f;
        struct hb_error err = {.struct_size = sizeof err};
        const int32_t status = hb_st_parse(bytes, size, &f, &err);
        assert_int_equal(status, size == n ? HB_OK : HB_ERR_PARSE);
        if (status == HB_OK) {
            hb_st_free(&f);
        }
    }
}

static void unreadable_paths_are_io_errors(void **state) {
    (void)state;
    struct hb_st_file f;
    struct hb_error err = {.struct_size = sizeof err};
    assert_int_equal(hb_st_read("/tmp/hb_no_such_dir/x.safetensors", &f, &err), HB_ERR_IO);
    assert_non_null(strstr(err.text, "/tmp/hb_no_such_dir/x.safetensors"));
    memset(&err, 0, sizeof err);
    assert_int_equal(hb_st_read("/tmp", &f, &err), HB_ERR_IO);
    assert_non_null(strstr(err.text, "not a regular file"));
}

/* A sparse file of `size` bytes that begins with a header. */
static void put_sparse(const char *path, const char *header, int64_t claimed, uint64_t size) {
    uint8_t bytes[512];
    const size_t n = image(header, strlen(header), claimed, 0, bytes);
    FILE *f = fopen(path, "wb");
    if (!f) {
        fail_msg("cannot write %s", path);
        return;
    }
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(path, (off_t)size), 0);
}

static void a_pipe_is_refused_and_not_waited_for(void **state) {
    (void)state;
    char dir[] = "/tmp/hb_st_XXXXXX";
    char path[64];
    struct hb_st_file f;
    struct hb_error err = {.struct_size = sizeof err};
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/pipe", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    (void)alarm(20); /* a reader that waits for a writer would wait for ever */
    assert_int_equal(hb_st_read(path, &f, &err), HB_ERR_IO);
    (void)alarm(0);
    assert_non_null(strstr(err.text, "pipe: not a regular file"));
    assert_int_equal(hb_st_read("/dev/zero", &f, &err), HB_ERR_IO);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* Files that are too large, or whose header is wrong, before a byte of their data is read. */
static void a_large_file_is_judged_by_its_header(void **state) {
    (void)state;
    static const struct {
        const char *header;
        int64_t claimed;
        uint64_t size;
        const char *message;
    } files[] = {
        {"", 0, (uint64_t)100 << 30, "has 107374182400 bytes, the limit is 8589934592"},
        {"", 0, ((uint64_t)8 << 30) + 1, "has 8589934593 bytes, the limit is 8589934592"},
        {"", 0, (uint64_t)8 << 30, "byte"}, /* an empty header */
        {"{}", -1, (uint64_t)8 << 30, "the tensors cover 0 bytes, the file has 8589934582"},
        {"", 100000001, (uint64_t)4 << 30, "header length 100000001 is above the limit 100000000"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", -1, (uint64_t)4 << 30,
         "the tensors cover 8 bytes"},
    };
    char dir[] = "/tmp/hb_st_XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/large", dir);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct hb_error err = {.struct_size = sizeof err};
        struct hb_st_file f = {.size = 77};
        put_sparse(path, files[i].header, files[i].claimed, files[i].size);
        const clock_t begin = clock();
        assert_int_equal(hb_st_read(path, &f, &err), HB_ERR_PARSE);
        assert_true(clock() - begin < CLOCKS_PER_SEC); /* nothing of the data was read */
        if (strstr(err.text, files[i].message) == NULL) {
            fail_msg("file %zu: '%s'", i, err.text);
        }
        assert_int_equal(f.size, 77);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static int entries(const char *dir) {
    DIR *d = opendir(dir);
    int n = 0;
    if (d == NULL) {
        fail_msg("cannot read %s", dir);
        return -1;
    }
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        n += e->d_name[0] != '.';
    }
    (void)closedir(d);
    return n;
}

static void a_failed_write_leaves_nothing_behind(void **state) {
    (void)state;
    static const float v[2] = {1.0F, 2.0F};
    const struct hb_st_tensor good = {.name = (char[]){"t"},
                                      .dtype = HB_ST_F32,
                                      .n_dims = 1,
                                      .shape = {2},
                                      .data = v,
                                      .bytes = 8};
    struct hb_st_tensor bad = good;
    char dir[] = "/tmp/hb_st_XXXXXX";
    char path[64];
    struct hb_error err = {.struct_size = sizeof err};
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/none/x.safetensors", dir);
    assert_int_equal(hb_st_write(path, &good, 1, &err), HB_ERR_IO); /* no such folder */
    assert_non_null(strstr(err.text, path));
    (void)snprintf(path, sizeof path, "%s/x", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    memset(&err, 0, sizeof err);
    assert_int_equal(hb_st_write(path, &good, 1, &err),
                     HB_ERR_IO); /* rename onto a folder fails after the data */
    assert_int_equal(entries(dir), 1);
    assert_int_equal(rmdir(path), 0);
    bad.bytes = 4;
    memset(&err, 0, sizeof err);
    assert_int_equal(hb_st_write(path, &bad, 1, &err), HB_ERR_SHAPE);
    assert_non_null(strstr(err.text, "tensor 't' has 4 bytes, shape and dtype say 8"));
    bad = good;
    bad.shape[0] = -2;
    memset(&err, 0, sizeof err);
    assert_int_equal(hb_st_write(path, &bad, 1, &err), HB_ERR_SHAPE);
    assert_non_null(strstr(err.text, "dimension 0 is -2"));
    bad = good;
    bad.data = NULL;
    memset(&err, 0, sizeof err);
    assert_int_equal(hb_st_write(path, &bad, 1, &err), HB_ERR_SHAPE);
    assert_non_null(strstr(err.text, "tensor 't' has 8 bytes but no data"));
    bad = good;
    bad.dtype = 99;
    memset(&err, 0, sizeof err);
    assert_int_equal(hb_st_write(path, &bad, 1, &err), HB_ERR_SHAPE);
    assert_non_null(strstr(err.text, "dtype 99"));
    assert_int_equal(entries(dir), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void a_folder_that_takes_no_files_is_an_io_error(void **state) {
    (void)state;
    static const float v[2] = {1.0F, 2.0F};
    const struct hb_st_tensor t = {.name = (char[]){"t"},
                                   .dtype = HB_ST_F32,
                                   .n_dims = 1,
                                   .shape = {2},
                                   .data = v,
                                   .bytes = 8};
    struct hb_error err = {.struct_size = sizeof err};
    assert_int_equal(hb_st_write("/proc/hb.safetensors", &t, 1, &err), HB_ERR_IO);
    assert_true(err.text[0] != '\0');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_every_dtype_with_exact_values),
        cmocka_unit_test(accepts_metadata_and_trailing_spaces),
        cmocka_unit_test(every_malformed_header_is_refused_with_value_and_limit),
        cmocka_unit_test(nesting_depth_is_limited),
        cmocka_unit_test(header_length_is_checked_before_it_is_used),
        cmocka_unit_test(names_may_be_escaped_empty_and_long),
        cmocka_unit_test(many_tensors_take_time_in_proportion),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(unreadable_paths_are_io_errors),
        cmocka_unit_test(a_pipe_is_refused_and_not_waited_for),
        cmocka_unit_test(a_large_file_is_judged_by_its_header),
        cmocka_unit_test(a_failed_write_leaves_nothing_behind),
        cmocka_unit_test(a_folder_that_takes_no_files_is_an_io_error),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
