/* SPDX-License-Identifier: Apache-2.0
 * A backend from outside of the tree: the build option HB_BACKEND puts it into the table of backends. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define HB_BACKEND mine
#include "harness/backends.c" /* NOLINT(bugprone-suspicious-include): the table with that option */

const struct hb_adapter *hb_adapter_mine(void) {
    return hb_adapter_oracle();
}

static void a_backend_of_ones_own_is_in_the_table(void **state) {
    (void)state;
    const struct hb_backend_entry *table;
    const int n = hb_backends(&table);
    const int32_t i = hb_backend_find("mine");
    assert_true(i >= 0 && i < n);
    assert_string_equal(table[i].name, "mine");
    assert_ptr_equal(table[i].adapter(), hb_adapter_oracle());
    assert_int_equal(hb_backend_find("HB_BACKEND"), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_backend_of_ones_own_is_in_the_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
