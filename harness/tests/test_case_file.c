/* SPDX-License-Identifier: Apache-2.0
 * Case files: what is text and what is bytes, what is no file to read from, and messages that name
 * the file. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/case.h"

static char folder[64];

static const char *in_folder(const char *name) {
    static char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put_file(const char *path, const char *data, size_t n) {
    FILE *f = fopen(path, "wb");
    if (!f) {
        fail_msg("cannot write %s", path);
        return;
    }
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

#define TEXT(text) text, sizeof(text) - 1

static void text_that_is_no_case_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *name, *data;
        size_t n;
        int32_t want;
    } rows[] = {
        {"a.json", TEXT("{\"schema\":3}"), HB_OK},
        {"a.json", TEXT("HBC1"), HB_ERR_PARSE},
        {"a.json", TEXT("\x01\x02\x03"), HB_ERR_PARSE},
        {"a.json", TEXT(""), HB_ERR_PARSE},
        {"a", TEXT(""), HB_ERR_PARSE},
        {"a", TEXT(" \n"), HB_ERR_PARSE},
        {"a", TEXT("[]"), HB_ERR_PARSE},
        {"a", TEXT(" [1]"), HB_ERR_PARSE},
        {"a", TEXT("[\"\xc3\xa9\"]"), HB_ERR_PARSE},
        {"a", TEXT("\"text\""), HB_ERR_PARSE},
        {"a", TEXT("12"), HB_ERR_PARSE},
        {"a", TEXT("-1"), HB_ERR_PARSE},
        {"a", TEXT("null"), HB_ERR_PARSE},
        {"a", TEXT("any text\n"), HB_ERR_PARSE},
        {"a", TEXT("\xef\xbb\xbf{\"schema\":3}"), HB_ERR_PARSE},
        {"a", TEXT("\xff\xfe{\0}\0"), HB_ERR_PARSE},
        {"a", TEXT("\xfe\xff\0{\0}"), HB_ERR_PARSE},
        {"a.case", TEXT("{\"schema\":3}"), HB_OK},
        {"a.case", TEXT("HBC"), HB_OK},
        {"a.case", TEXT("HBC3"), HB_OK},
        {"a.case", TEXT("HBC1"), HB_ERR_PARSE},
        {"a.case", TEXT("HBC2\x01"), HB_ERR_PARSE},
        {"a.case", TEXT("HBC3[[[["), HB_OK},
        {"a.case", TEXT("\x01\x02"), HB_OK},
        {"a.case", TEXT("abc\x7f"), HB_OK},
        {"a.case", TEXT("abc\x00"), HB_OK},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hb_case c;
        struct hb_error e = {.struct_size = sizeof e};
        const char *path = in_folder(rows[i].name);
        put_file(path, rows[i].data, rows[i].n);
        int32_t status = hb_case_load(path, &c, &e);
        if (status != rows[i].want) {
            print_message("row %zu: %s\n", i, e.text);
        }
        assert_int_equal(status, rows[i].want);
        assert_int_equal(hb_case_load(path, &c, NULL), rows[i].want);
        assert_int_equal(unlink(path), 0);
    }
}

static void deep_text_is_refused(void **state) {
    (void)state;
    static char deep[100000];
    struct hb_case c;
    struct hb_error e = {.struct_size = sizeof e};
    memset(deep, '[', sizeof deep);
    put_file(in_folder("deep"), deep, sizeof deep);
    assert_int_equal(hb_case_load(in_folder("deep"), &c, &e), HB_ERR_PARSE);
    assert_non_null(strstr(e.text, "nested too deep"));
    assert_int_equal(unlink(in_folder("deep")), 0);
}

static void a_parse_error_names_its_file(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_error e = {.struct_size = sizeof e};
    char want[600];
    put_file(in_folder("x.json"), "{\"colour\":1}", 12);
    assert_int_equal(hb_case_load(in_folder("x.json"), &c, &e), HB_ERR_PARSE);
    (void)snprintf(want, sizeof want, "%s: case: ", in_folder("x.json"));
    assert_int_equal(strncmp(e.text, want, strlen(want)), 0);
    put_file(in_folder("x.json"), "]", 1);
    struct hb_error first = e; /* the first failure stays */
    assert_int_equal(hb_case_load(in_folder("x.json"), &c, &e), HB_ERR_PARSE);
    assert_string_equal(e.text, first.text);
    hb_error_clear(&e);
    assert_int_equal(hb_case_load(in_folder("x.json"), &c, &e), HB_ERR_PARSE);
    (void)snprintf(want, sizeof want, "%s: json: byte 0: ", in_folder("x.json"));
    assert_int_equal(strncmp(e.text, want, strlen(want)), 0);
    assert_int_equal(unlink(in_folder("x.json")), 0);
    /* a long name keeps its end, and the fault all of its text */
    char name[230];
    memset(name, 'n', sizeof name);
    memcpy(name + sizeof name - 6, ".json", 6);
    put_file(in_folder(name), "]", 1);
    hb_error_clear(&e);
    assert_int_equal(hb_case_load(in_folder(name), &c, &e), HB_ERR_PARSE);
    assert_non_null(strstr(e.text, "nnn.json: json: byte 0: a value is expected, found ']'"));
    assert_int_equal(unlink(in_folder(name)), 0);
}

static void what_is_no_regular_file_is_refused_without_waiting(void **state) {
    (void)state;
    struct hb_case c;
    const char *const paths[] = {"/dev/null", "/dev/zero", folder, in_folder("fifo")};
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    (void)alarm(20); /* ends a test that waits */
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct hb_error e = {.struct_size = sizeof e};
        assert_int_equal(hb_case_load(paths[i], &c, &e), HB_ERR_IO);
        assert_non_null(strstr(e.text, ": is not a regular file"));
    }
    (void)alarm(0);
    assert_int_equal(unlink(in_folder("fifo")), 0);
}

static int make_folder(void **state) {
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/hbfuzz-files-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_that_is_no_case_is_refused),
        cmocka_unit_test(deep_text_is_refused),
        cmocka_unit_test(a_parse_error_names_its_file),
        cmocka_unit_test(what_is_no_regular_file_is_refused_without_waiting),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
