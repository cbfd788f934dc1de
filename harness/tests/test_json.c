/* SPDX-License-Identifier: Apache-2.0
 * Strict JSON scanner, JSON form of cases, case files. */
#define _XOPEN_SOURCE 700

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/case.h"
#include "harness/gen.h"
#include "harness/json_scan.h"
#include "harness/rng.h"

enum { N_CASES = 3000 };

static int32_t scan(const char *text, struct hb_error *err) {
    memset(err, 0, sizeof *err);
    err->struct_size = sizeof *err;
    /* an exact heap copy: reading past the end is a finding of the sanitizer */
    const size_t n = strlen(text);
    char *tight = malloc(n > 0 ? n : 1);
    assert_non_null(tight);
    for (size_t i = 0; i < n; i++) {
        tight[i] = text[i];
    }
    const int32_t status = hb_json_scan(tight, n, err);
    free(tight);
    return status;
}

static int32_t read_case(const char *text, struct hb_case *c, struct hb_error *err) {
    memset(err, 0, sizeof *err);
    err->struct_size = sizeof *err;
    return hb_case_from_json(text, strlen(text), c, err);
}

static void scanner_accepts_json(void **state) {
    (void)state;
    static const char *const good[] = {"{}",
                                       "[]",
                                       " [ ] ",
                                       "0",
                                       "-0",
                                       "1.5e-3",
                                       "\"x\"",
                                       "true",
                                       "null",
                                       "{\"a\":{\"a\":[1,{\"a\":2}]},\"b\":[[],{},[{}]]}",
                                       "\"\\u00e9\\ud83d\\ude00\\n\\/\"",
                                       "\"\xc3\xa9\xf0\x9f\x98\x80\xed\x9f\xbf\"",
                                       "[9007199254740991,-9007199254740991,9e15]",
                                       "\t\r\n{\"a\" : 1 }\n",
                                       "[{\"a\":1},{\"a\":2}]"};
    struct hb_error e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(scan(good[i], &e), HB_OK);
        assert_int_equal(e.status, HB_OK);
    }
}

static void scanner_refuses_with_offset(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int offset;
        const char *what;
    } bad[] = {
        {"", 0, "a value is expected"},
        {"   ", 3, "a value is expected"},
        {"\xef\xbb\xbf{}", 0, "byte order mark"},
        {"[1e400]", 1, "2^53"},
        {"[1e400000000000000000000000]", 1, "2^53"},
        {"[9007199254740992]", 1, "2^53"},
        {"[9007199254740993]", 1, "2^53"},
        {"[-9007199254740993]", 1, "2^53"},
        {"[01]", 1, "leading zero"},
        {"[-01]", 2, "leading zero"},
        {"[1.]", 3, "after the point"},
        {"[.5]", 1, "a value is expected"},
        {"[+1]", 1, "a value is expected"},
        {"[1e]", 3, "exponent"},
        {"[-]", 2, "a digit is missing"},
        {"[0x10]", 2, "a comma or ]"},
        {"NaN", 0, "a value is expected"},
        {"Infinity", 0, "a value is expected"},
        {"-Infinity", 1, "a digit is missing"},
        {"[1,]", 3, "a value is expected"},
        {"[1 2]", 3, "a comma or ]"},
        {"{\"a\":1,}", 7, "a key is expected"},
        {"{a:1}", 1, "a key is expected"},
        {"{\"a\" 1}", 5, "a colon"},
        {"{\"a\":1,\"a\":2}", 7, "twice"},
        {"{\"a\":1,\"b\":{\"a\":1},\"\\u0061\":2}", 19, "twice"},
        {"{\"\":1,\"\":2}", 6, "twice"},
        {"\"\\u0000\"", 3, "\\u0000"},
        {"\"\\ud800\"", 3, "surrogate"},
        {"\"\\ud800\\u0041\"", 3, "surrogate"},
        {"\"\\udc00\"", 3, "surrogate"},
        {"\"\\u12g4\"", 5, "escape"},
        {"\"\\x\"", 2, "escape"},
        {"\"a\tb\"", 2, "control character"},
        {"\"abc", 0, "not closed"},
        {"\"abc\\", 5, "escape"},
        {"\"\xff\"", 1, "UTF-8"},
        {"\"\xc0\x80\"", 1, "UTF-8"},
        {"\"\xed\xa0\x80\"", 2, "UTF-8"},
        {"\"\xf4\x90\x80\x80\"", 2, "UTF-8"},
        {"\"\xe2\x82\"", 3, "UTF-8"},
        {"{} {}", 3, "after the value"},
        {"[1]]", 3, "after the value"},
        {"[}", 1, "a value is expected"},
        {"{\"a\":1]", 6, "a comma or }"},
        {"[[1]", 4, "a comma or ]"},
        {"tru", 0, "a value is expected"},
        {"truee", 4, "after the value"},
    };
    struct hb_error e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char place[32];
        (void)snprintf(place, sizeof place, "byte %d:", bad[i].offset);
        assert_int_equal(scan(bad[i].text, &e), HB_ERR_PARSE);
        assert_int_equal(e.status, HB_ERR_PARSE);
        if (!strstr(e.text, place) || !strstr(e.text, bad[i].what)) {
            fail_msg("%s: %s", bad[i].text, e.text);
        }
    }
    assert_int_equal(scan("[1 2]", &e), HB_ERR_PARSE); /* what is there instead is said */
    assert_non_null(strstr(e.text, "a comma or ] is expected, found '2'"));
    assert_int_equal(scan("[\x10]", &e), HB_ERR_PARSE);
    assert_non_null(strstr(e.text, "a value is expected, found the byte 0x10"));
    assert_int_equal(scan("{\"a\"", &e), HB_ERR_PARSE);
    assert_non_null(strstr(e.text, "a colon is expected, the text ends here"));
    assert_int_equal(scan("{\"ab\":1,\"ab\":2}", &e), HB_ERR_PARSE);
    assert_non_null(strstr(e.text, "key \"ab\" appears twice"));
    assert_int_equal(scan("[9007199254740993]", &e), HB_ERR_PARSE);
    assert_non_null(strstr(e.text, "limit"));
}

static void scanner_sees_nul_bytes(void **state) {
    (void)state;
    struct hb_error e = {.struct_size = sizeof e};
    assert_int_equal(hb_json_scan("{}\0{}", 5, &e), HB_ERR_PARSE);
    hb_error_clear(&e);
    assert_int_equal(hb_json_scan("\"a\0b\"", 5, &e), HB_ERR_PARSE);
    assert_int_equal(hb_json_scan("[1]", 2, NULL), HB_ERR_PARSE);
}

static void depth_is_limited(void **state) {
    (void)state;
    struct hb_error e = {.struct_size = sizeof e};
    enum { DEEP = 100000 };
    char *text = malloc(6 * (size_t)DEEP);
    assert_non_null(text);
    memset(text, '[', DEEP);
    assert_int_equal(hb_json_scan(text, DEEP, &e), HB_ERR_PARSE);
    assert_int_equal(e.value, 65);
    assert_int_equal(e.limit, 64);
    static const char open[5] = {'{', '"', 'a', '"', ':'};
    for (size_t i = 0; i < DEEP; i++) {
        memcpy(text + sizeof open * i, open, sizeof open);
    }
    hb_error_clear(&e);
    assert_int_equal(hb_json_scan(text, 5 * (size_t)DEEP, &e), HB_ERR_PARSE);
    assert_int_equal(e.value, 65);
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    assert_int_equal(hb_json_scan(text, 128, NULL), HB_OK);
    free(text);
}

/* The set of keys grows, and is per object. */
static void many_keys(void **state) {
    (void)state;
    enum { N = 20000 };
    const size_t cap = (size_t)N * 20 + 32;
    char *text = malloc(cap);
    assert_non_null(text);
    size_t n = 0;
    text[n++] = '{';
    for (int i = 0; i < N; i++) {
        n += (size_t)snprintf(text + n, cap - n, "%s\"k%d\":{\"k\":0}", i ? "," : "", i);
    }
    text[n++] = '}';
    assert_int_equal(hb_json_scan(text, n, NULL), HB_OK);
    n += (size_t)snprintf(text + n - 1, cap - n, ",\"k777\":1}") - 1;
    assert_int_equal(hb_json_scan(text, n, NULL), HB_ERR_PARSE);
    free(text);
}

/* A key that stands twice is seen at every place of objects of every size, also when objects came between; the same key
 * in the objects between is none of theirs. */
static void twice_is_seen_in_few_keys_and_in_many(void **state) {
    (void)state;
    for (int n = 1; n <= 24; n++) {
        for (int twin = -1; twin < n; twin++) {
            char text[2048];
            size_t at = (size_t)snprintf(text, sizeof text, "[{");
            for (int i = 0; i < n; i++) {
                at += (size_t)snprintf(text + at, sizeof text - at, "%s\"k%d\":{\"k0\":{\"k0\":1},\"k1\":[]}", i ? "," : "", i);
            }
            if (twin >= 0) {
                at += (size_t)snprintf(text + at, sizeof text - at, ",\"k%d\":1", twin);
            }
            at += (size_t)snprintf(text + at, sizeof text - at, "},{\"k0\":1}]");
            assert_int_equal(hb_json_scan(text, at, NULL), twin < 0 ? HB_OK : HB_ERR_PARSE);
        }
    }
}

static void long_keys_and_numbers_are_refused(void **state) {
    (void)state;
    struct hb_error e = {.struct_size = sizeof e};
    char text[400];
    memset(text, 'k', sizeof text);
    text[0] = '{';
    text[1] = '"';
    (void)snprintf(text + 259, 5, "\":1}");
    assert_int_equal(hb_json_scan(text, 263, &e), HB_ERR_PARSE);
    assert_int_equal(e.value, 257);
    assert_int_equal(e.limit, 256);
    memset(text, '1', 70);
    text[1] = '.';
    hb_error_clear(&e);
    assert_int_equal(hb_json_scan(text, 70, &e), HB_ERR_PARSE);
    assert_int_equal(e.value, 70);
    assert_int_equal(hb_json_scan(text, 60, NULL), HB_OK);
}

/* --- cases
 * ------------------------------------------------------------------------------------------------------
 */

static void every_generated_case_round_trips(void **state) {
    (void)state;
    struct hb_gen_options o;
    hb_gen_options_init(&o);
    for (int i = 0; i < N_CASES; i++) {
        struct hb_case a;
        struct hb_case b;
        struct hb_error e = {.struct_size = sizeof e};
        o.target = i & 1;
        hb_gen_case(&o, 3, (uint64_t)i, &a);
        char *first = hb_case_to_json(&a, i % 3 ? NULL : "{\"steps\": [1.5, null]}");
        assert_non_null(first);
        if (hb_case_from_json(first, strlen(first), &b, &e) != HB_OK) {
            fail_msg("%s\n%s", e.text, first);
        }
        assert_memory_equal(&a, &b, sizeof a);
        char *second = hb_case_to_json(&b, i % 3 ? NULL : "{\"steps\": [1.5, null]}");
        assert_string_equal(first, second);
        free(first);
        free(second);
    }
}

static void any_bytes_survive_json(void **state) {
    (void)state;
    struct hb_rng r = hb_rng_make(7, 7);
    for (int i = 0; i < N_CASES; i++) {
        struct hb_case a;
        struct hb_case b;
        struct hb_error e = {.struct_size = sizeof e};
        uint8_t data[500];
        for (size_t k = 0; k < sizeof data; k++) {
            data[k] = (uint8_t)hb_rng_next(&r);
        }
        hb_case_decode(data, (size_t)hb_rng_below(&r, 500), &a);
        char *text = hb_case_to_json(&a, NULL);
        assert_non_null(text);
        if (hb_case_from_json(text, strlen(text), &b, &e) != HB_OK) {
            fail_msg("%s\n%s", e.text, text);
        }
        assert_memory_equal(&a, &b, sizeof a);
        free(text);
    }
}

static void text_is_readable(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_error e;
    assert_int_equal(
        read_case("{\"schema\":3,\"steps\":[{\"kind\":\"take\",\"request\":1},"
                  "{\"kind\":0,\"mode\":2,\"rows\":[{\"request\":1}]}],\"breaks\":["
                  "{\"step\":1,\"field\":\"seq_lens\",\"value\":\"0x8000000000000000\"}]}",
                  &c, &e),
        HB_OK);
    assert_int_equal(c.n_steps, 2);
    assert_int_equal(c.step[1].mode, 2);
    assert_true(c.brk[0].value == INT64_MIN);
    char *text = hb_case_to_json(&c, NULL);
    assert_non_null(text);
    assert_non_null(
        strstr(text, "{\n  \"schema\": 3,\n  \"target\": \"forward\",\n  \"config\": {\n"));
    assert_non_null(
        strstr(text, "    {\"kind\": \"take\", \"request\": 1, \"slot_kind\": \"live\"},\n"));
    assert_non_null(strstr(text, "    {\"kind\": \"forward\", \"mode\": \"DECODE\", \"rows\": [\n"
                                 "      {\"request\": 1, \"length\": 1}\n    ]}\n"));
    assert_non_null(strstr(text,
                           "{\"step\": 1, \"field\": \"seq_lens\", \"row\": 0, \"operation\": "
                           "\"set\", \"value\": \"0x8000000000000000\"}"));
    free(text);
}

static void names_and_numbers_are_read(void **state) {
    (void)state;
    struct hb_case a;
    struct hb_case b;
    struct hb_error e;
    assert_int_equal(read_case("{\"schema\":3,\"target\":\"dispatch\",\"config\":{\"act_dtype\":"
                               "\"bf16\",\"seed\":-2147483648},\"steps\":[{\"kind\":\"forward\","
                               "\"mode\":\"DLLM_EXTEND\"},{\"kind\":\"forward\",\"mode\":-5}]}",
                               &a, &e),
                     HB_OK);
    assert_int_equal(read_case("{\"schema\":3,\"target\":1,\"config\":{\"act_dtype\":1,\"seed\":"
                               "-2147483648},\"steps\":[{\"kind\":0,\"mode\":9},{\"kind\":0,"
                               "\"mode\":-5}],\"breaks\":[],\"predicted\":{\"any\":[1.5]}}",
                               &b, &e),
                     HB_OK);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(a.config.seed, INT_MIN);
    assert_int_equal(a.step[0].mode, 9);
    assert_int_equal(a.step[1].mode, -5);
}

static void faults_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *path;
        int64_t value, limit;
    } bad[] = {
        {"[]", "case is an array, it must be an object", 0, 0},
        {"{}", "schema is missing", 0, 0},
        {"{\"schema\":2}", "schema of the case is not that of this program (value 2, limit 3)", 2, 3},
        {"{\"schema\":3,\"x\":1}", "x is an unknown field", 0, 0},
        {"{\"schema\":3,\"target\":\"other\"}", "target has the unknown name \"other\", known: forward, dispatch", 0, 0},
        {"{\"schema\":3,\"config\":[]}", "config is an array, it must be an object", 0, 0},
        {"{\"schema\":3,\"config\":{\"target\":0}}", "config.target is an unknown field", 0, 0},
        {"{\"schema\":3,\"config\":{\"Heads\":1}}", "config.Heads is an unknown field", 0, 0},
        {"{\"schema\":3,\"config\":{\"heads\":9}}", "config.heads does not fit", 9, 8},
        {"{\"schema\":3,\"config\":{\"heads\":129}}", "config.heads is above", 129, 128},
        {"{\"schema\":3,\"config\":{\"heads\":0}}", "config.heads is below", 0, 1},
        {"{\"schema\":3,\"config\":{\"heads\":1.5}}", "config.heads is 1.5, it must be an integer", 0, 0},
        {"{\"schema\":3,\"config\":{\"heads\":\"2\"}}", "config.heads is a string, it must be a number", 0, 0},
        {"{\"schema\":3,\"config\":{\"heads\":null}}", "config.heads is null, it must be a number", 0, 0},
        {"{\"schema\":3,\"config\":{\"heads\":true}}", "config.heads is true or false", 0, 0},
        {"{\"schema\":3,\"config\":{\"heads\":[2]}}", "config.heads is an array", 0, 0},
        {"{\"schema\":3,\"config\":{\"seed\":2147483648}}", "config.seed is above", 2147483648,
         INT_MAX},
        {"{\"schema\":3,\"config\":{\"chunk_size\":12}}", "config.chunk_size does not fit", 12, 8},
        {"{\"schema\":3,\"config\":{\"groups\":2,\"heads\":3}}", "config.groups does not fit", 2,
         1},
        {"{\"schema\":3,\"steps\":{}}", "steps is an object, it must be an array", 0, 0},
        {"{\"schema\":3,\"steps\":[1]}", "steps[0] is a number, it must be an object", 0, 0},
        {"{\"schema\":3,\"steps\":[{}]}", "steps[0].kind is missing", 0, 0},
        {"{\"schema\":3,\"steps\":[{\"kind\":10}]}", "steps[0].kind is above", 10, HB_N_STEP_KINDS - 1},
        {"{\"schema\":3,\"steps\":[{\"kind\":\"take\",\"mode\":1}]}",
         "steps[0].mode does not belong", 1, 0},
        {"{\"schema\":3,\"steps\":[{\"kind\":\"take\",\"rows\":[]}]}",
         "steps[0].rows is an unknown", 0, 0},
        {"{\"schema\":3,\"steps\":[{\"kind\":0,\"mode\":\"NO\"}]}", "steps[0].mode has the unknown",
         0, 0},
        {"{\"schema\":3,\"steps\":[{\"kind\":0,\"rows\":[{\"length\":201}]}]}",
         "steps[0].rows[0].length is above", 201, 200},
        {"{\"schema\":3,\"steps\":[{\"kind\":0,\"mode\":2,\"rows\":[{\"length\":2}]}]}",
         "steps[0].rows[0].length does not fit", 2, 1},
        {"{\"schema\":3,\"steps\":[{\"kind\":0,\"rows\":[{},{},{},{},{},{},{},{},{}]}]}",
         "steps[0].rows has too many", 9, 8},
        {"{\"schema\":3,\"steps\":[{\"kind\":2,\"slot\":3}]}", "steps[0].slot does not fit", 3, 0},
        {"{\"schema\":3,\"breaks\":[{\"step\":0}]}", "breaks name a step", 1, 0},
        {"{\"schema\":3,\"breaks\":[{\"step\":-1,\"field\":\"nothing\"}]}",
         "breaks[0].field has the unknown", 0, 0},
        {"{\"schema\":3,\"breaks\":[{\"value\":\"0x\"}]}", "breaks[0].value has the unknown", 0, 0},
        {"{\"schema\":3,\"breaks\":[{\"value\":\"0x12345678901234567\"}]}",
         "breaks[0].value has the", 0, 0},
        {"{\"schema\":3,\"breaks\":[{},{},{},{},{}]}", "breaks has too many", 5, 4},
        {"{\"schema\":3,\"schema\":3}", "byte 12: key \"schema\" appears twice", 0, 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hb_case c;
        struct hb_case before;
        struct hb_error e;
        memset(&c, 0x5a, sizeof c);
        memcpy(&before, &c, sizeof c);
        assert_int_equal(read_case(bad[i].text, &c, &e), HB_ERR_PARSE);
        assert_memory_equal(&c, &before, sizeof c); /* written on success only */
        if (!strstr(e.text, bad[i].path) || e.value != bad[i].value || e.limit != bad[i].limit) {
            fail_msg("%s: %s", bad[i].text, e.text);
        }
        assert_int_equal(read_case(bad[i].text, &c, &e), HB_ERR_PARSE);
        assert_int_equal(hb_case_from_json(bad[i].text, strlen(bad[i].text), &c, NULL),
                         HB_ERR_PARSE);
    }
}

static void arrays_with_too_many_steps_are_refused(void **state) {
    (void)state;
    char text[512] = "{\"schema\":3,\"steps\":[";
    size_t n = strlen(text);
    for (int i = 0; i <= HB_MAX_STEPS; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s{\"kind\":0}", i ? "," : "");
    }
    (void)snprintf(text + n, sizeof text - n, "]}");
    struct hb_case c;
    struct hb_error e;
    assert_int_equal(read_case(text, &c, &e), HB_ERR_PARSE);
    assert_int_equal(e.value, HB_MAX_STEPS + 1);
    assert_int_equal(e.limit, HB_MAX_STEPS);
}

/* Every cut of a text, and every single byte changed, gives a status and no fault. */
static void damaged_texts_are_refused_or_read(void **state) {
    (void)state;
    struct hb_gen_options o;
    struct hb_case c;
    struct hb_rng r = hb_rng_make(9, 9);
    hb_gen_options_init(&o);
    hb_gen_case(&o, 5, 17, &c);
    char *text = hb_case_to_json(&c, NULL);
    assert_non_null(text);
    const size_t n = strlen(text);
    for (size_t i = 0; i + 2 < n; i++) {
        assert_int_equal(hb_case_from_json(text, i, &c, NULL), HB_ERR_PARSE);
        const char keep = text[i];
        text[i] = (char)hb_rng_next(&r);
        (void)hb_case_from_json(text, n, &c, NULL);
        text[i] = keep;
    }
    assert_int_equal(hb_case_from_json(text, n, &c, NULL), HB_OK);
    free(text);
}

/* --- files
 * ------------------------------------------------------------------------------------------------------
 */

static char folder[] = "/tmp/hb_test_json_XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static int count_files(void) {
    int n = 0;
    DIR *d = opendir(folder);
    if (!d) {
        fail();
        return -1;
    }
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

static void path_in_folder(const char *name, char *out, size_t cap) {
    (void)snprintf(out, cap, "%s/%s", folder, name);
}

static void put_file(const char *path, const char *data, size_t n) {
    FILE *f = fopen(path, "wb");
    if (!f) {
        fail();
        return;
    }
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void files_round_trip(void **state) {
    (void)state;
    static const char *const names[] = {"a.case", "a.json"};
    struct hb_gen_options o;
    hb_gen_options_init(&o);
    for (int i = 0; i < 40; i++) {
        struct hb_case a;
        struct hb_case b;
        struct hb_error e = {.struct_size = sizeof e};
        char path[128];
        hb_gen_case(&o, 11, (uint64_t)i, &a);
        path_in_folder(names[i & 1], path, sizeof path);
        assert_int_equal(hb_case_save(path, &a, &e), HB_OK);
        assert_int_equal(hb_case_load(path, &b, &e), HB_OK);
        assert_memory_equal(&a, &b, sizeof a);
        assert_int_equal(count_files(), 1); /* no temporary file stays */
        unlink(path);
    }
}

static void json_is_told_from_bytes(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_error e = {.struct_size = sizeof e};
    char path[128];
    path_in_folder("x", path, sizeof path);
    put_file(path, " \n {\"schema\":3,\"config\":{\"heads\":7}}", 36);
    assert_int_equal(hb_case_load(path, &c, &e), HB_OK);
    assert_int_equal(c.config.heads, 7);
    put_file(path, " \n {\"schema\":3,", 15);
    assert_int_equal(hb_case_load(path, &c, &e), HB_ERR_PARSE);
    put_file(path, "", 0);
    assert_int_equal(hb_case_load(path, &c, NULL), HB_ERR_PARSE);
    unlink(path);
}

static void file_size_is_limited(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_error e = {.struct_size = sizeof e};
    char path[128];
    const size_t n = (1u << 20) + 5;
    char *data = malloc(n);
    assert_non_null(data);
    memset(data, ' ', n);
    path_in_folder("big", path, sizeof path);
    put_file(path, data, n);
    assert_int_equal(hb_case_load(path, &c, &e), HB_ERR_PARSE);
    assert_int_equal(e.value, n);
    assert_int_equal(e.limit, 1 << 20);
    assert_non_null(strstr(e.text, "1048576"));
    data[0] = '\0'; /* bytes */
    put_file(path, data, n - 5);
    assert_int_equal(hb_case_load(path, &c, NULL), HB_OK);
    free(data);
    unlink(path);
}

static void unreadable_files_are_io_errors(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_error e = {.struct_size = sizeof e};
    char path[128];
    path_in_folder("none", path, sizeof path);
    assert_int_equal(hb_case_load(path, &c, &e), HB_ERR_IO);
    assert_non_null(strstr(e.text, "none"));
    hb_error_clear(&e);
    assert_int_equal(hb_case_load(folder, &c, &e), HB_ERR_IO); /* a folder */
}

static void failed_save_leaves_nothing(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_error e = {.struct_size = sizeof e};
    char path[128];
    hb_case_init(&c);
    path_in_folder("no/such/folder.case", path, sizeof path);
    assert_int_equal(hb_case_save(path, &c, &e), HB_ERR_IO);
    /* the name is taken by a folder: the rename fails after the data were written */
    path_in_folder("taken", path, sizeof path);
    assert_int_equal(mkdir(path, 0777), 0);
    hb_error_clear(&e);
    assert_int_equal(hb_case_save(path, &c, &e), HB_ERR_IO);
    assert_int_equal(count_files(), 1);
    assert_int_equal(rmdir(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scanner_accepts_json),
        cmocka_unit_test(scanner_refuses_with_offset),
        cmocka_unit_test(scanner_sees_nul_bytes),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(many_keys),
        cmocka_unit_test(twice_is_seen_in_few_keys_and_in_many),
        cmocka_unit_test(long_keys_and_numbers_are_refused),
        cmocka_unit_test(every_generated_case_round_trips),
        cmocka_unit_test(any_bytes_survive_json),
        cmocka_unit_test(text_is_readable),
        cmocka_unit_test(names_and_numbers_are_read),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(arrays_with_too_many_steps_are_refused),
        cmocka_unit_test(damaged_texts_are_refused_or_read),
        cmocka_unit_test(files_round_trip),
        cmocka_unit_test(json_is_told_from_bytes),
        cmocka_unit_test(file_size_is_limited),
        cmocka_unit_test(unreadable_files_are_io_errors),
        cmocka_unit_test(failed_save_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
