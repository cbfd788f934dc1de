/* SPDX-License-Identifier: Apache-2.0
 * The cursor over a scanned JSON text: where it stands after each kind of value, and what it reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "harness/json_scan.h"
#include "harness/json_walk.h"

static char *exact; /* freed by the test */

/* In memory of exactly its size, so that a read behind it is seen. */
static struct hb_json_walk walk_of(const char *text) {
    const size_t n = strlen(text);
    exact = malloc(n > 0 ? n : 1);
    assert_non_null(exact);
    for (size_t i = 0; i < n; i++) {
        exact[i] = text[i];
    }
    return (struct hb_json_walk){exact, n, 0};
}

static void every_kind_of_value_is_passed(void **state) {
    (void)state;
    static const char text[] = " [ 1 , -2.5e1,\"a\\\",]\",true , false,null,{ } ,[ ], {\"k}\" : [1,{\"x\":\"]\"}] , \"l\":2} ]  ";
    static const char kinds[] = "00\"tfn{[{";
    struct hb_json_walk w = walk_of(text);
    assert_int_equal(hb_json_scan(w.text, w.len, NULL), HB_OK);
    assert_int_equal(hb_json_walk_kind(&w), '[');
    assert_int_equal(hb_json_walk_count(&w), 9);
    hb_json_walk_enter(&w);
    for (size_t i = 0; kinds[i]; i++) {
        assert_int_equal(hb_json_walk_next(&w), 1);
        assert_int_equal(hb_json_walk_kind(&w), kinds[i]);
        assert_int_equal(hb_json_walk_count(&w), i == 8 ? 2 : 0);
        hb_json_walk_skip(&w);
    }
    assert_int_equal(hb_json_walk_next(&w), 0);
    free(exact);
}

static void numbers_and_strings_are_read(void **state) {
    (void)state;
    static const char text[] = "{\"\\t\\u0041\\u20ac\" :-2.5E+1,\"b\":9007199254740991,\"c\":\"\\ud834\\udd1e!\",\"d\":\"123456789\"}";
    struct hb_json_walk w = walk_of(text);
    assert_int_equal(hb_json_scan(w.text, w.len, NULL), HB_OK);
    char out[8];
    hb_json_walk_enter(&w);
    assert_int_equal(hb_json_walk_next(&w), 1);
    hb_json_walk_string(&w, out, sizeof out);
    assert_string_equal(out, "\tA\xe2\x82\xac");
    assert_true(hb_json_walk_number(&w) == -25.0);
    assert_int_equal(hb_json_walk_next(&w), 1);
    hb_json_walk_string(&w, out, sizeof out);
    assert_string_equal(out, "b");
    assert_true(hb_json_walk_number(&w) == 9007199254740991.0);
    assert_int_equal(hb_json_walk_next(&w), 1);
    hb_json_walk_string(&w, out, sizeof out);
    hb_json_walk_string(&w, out, sizeof out);
    assert_string_equal(out, "\xf0\x9d\x84\x9e!");
    assert_int_equal(hb_json_walk_next(&w), 1);
    hb_json_walk_string(&w, out, sizeof out);
    hb_json_walk_string(&w, out, sizeof out);
    assert_string_equal(out, "1234567"); /* cut */
    assert_int_equal(hb_json_walk_next(&w), 0);
    free(exact);
}

static void a_text_that_ends_early_ends_the_walk(void **state) {
    (void)state;
    static const char *const texts[] = {"", "[", "{\"a", "{\"a\\", "[1,", "{\"a\":[\"\\u12"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char out[8];
        struct hb_json_walk w = walk_of(texts[i]);
        (void)hb_json_walk_kind(&w);
        (void)hb_json_walk_count(&w);
        hb_json_walk_enter(&w);
        (void)hb_json_walk_next(&w);
        hb_json_walk_string(&w, out, sizeof out);
        (void)hb_json_walk_number(&w);
        hb_json_walk_skip(&w);
        assert_int_equal(hb_json_walk_next(&w), 0);
        free(exact);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_value_is_passed),
        cmocka_unit_test(numbers_and_strings_are_read),
        cmocka_unit_test(a_text_that_ends_early_ends_the_walk),
    };
    return cmocka_run_group_tests_name("json_walk", tests, NULL, NULL);
}
