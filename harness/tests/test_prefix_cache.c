/* SPDX-License-Identifier: Apache-2.0
 * The prefix cache of a scheduler: the facts of tracking.md section 8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/prefix_cache.h"

static void the_deepest_state_that_is_not_too_deep_is_found(void **state) {
    (void)state;
    struct hb_prefix_cache cache = {0};
    assert_int_equal(hb_prefix_cache_find(&cache, 1, 100), 0);
    assert_int_equal(hb_prefix_cache_publish(&cache, 1, 16, 3), 0);
    assert_int_equal(hb_prefix_cache_publish(&cache, 1, 48, 4), 0);
    assert_int_equal(hb_prefix_cache_publish(&cache, 1, 32, 5), 0);
    assert_int_equal(hb_prefix_cache_publish(&cache, 2, 40, 6), 0);
    assert_int_equal(hb_prefix_cache_find(&cache, 1, 100), 4);
    assert_int_equal(hb_prefix_cache_find(&cache, 1, 48), 4);
    assert_int_equal(hb_prefix_cache_find(&cache, 1, 47), 5);
    assert_int_equal(hb_prefix_cache_find(&cache, 1, 16), 3);
    assert_int_equal(hb_prefix_cache_find(&cache, 1, 15), 0);
    assert_int_equal(hb_prefix_cache_find(&cache, 2, 100), 6);
    assert_int_equal(hb_prefix_cache_find(&cache, 3, 100), 0);
}

static void what_is_evicted_is_not_found_and_the_next_best_is(void **state) {
    (void)state;
    struct hb_prefix_cache cache = {0};
    (void)hb_prefix_cache_publish(&cache, 1, 16, 3);
    (void)hb_prefix_cache_publish(&cache, 1, 32, 4);
    assert_int_equal(hb_prefix_cache_evict(&cache, 9), 0);
    assert_int_equal(hb_prefix_cache_evict(&cache, 4), 1);
    assert_int_equal(hb_prefix_cache_evict(&cache, 4), 0);
    assert_int_equal(hb_prefix_cache_find(&cache, 1, 100), 3);
}

static void of_two_equal_states_the_first_is_used(void **state) {
    (void)state;
    struct hb_prefix_cache cache = {0};
    (void)hb_prefix_cache_publish(&cache, 1, 16, 3);
    (void)hb_prefix_cache_publish(&cache, 1, 16, 4);
    assert_int_equal(hb_prefix_cache_find(&cache, 1, 16), 3);
    (void)hb_prefix_cache_evict(&cache, 3);
    assert_int_equal(hb_prefix_cache_find(&cache, 1, 16), 4);
}

static void a_full_cache_refuses(void **state) {
    (void)state;
    struct hb_prefix_cache cache = {0};
    for (int32_t i = 0; i < HB_PREFIX_CACHE_ENTRIES; i++) {
        assert_int_equal(hb_prefix_cache_publish(&cache, 1, i, i + 1), 0);
    }
    assert_int_equal(hb_prefix_cache_publish(&cache, 1, 99, 99), -1);
    assert_int_equal(hb_prefix_cache_find(&cache, 1, 99), HB_PREFIX_CACHE_ENTRIES);
}

/* A longer match of tokens than of states: where the branch gets a state of its own. */
static void the_branching_point_is_on_the_grid(void **state) {
    (void)state;
    assert_int_equal(hb_prefix_cache_branch_point(40, 16), 32);
    assert_int_equal(hb_prefix_cache_branch_point(32, 16), 32);
    assert_int_equal(hb_prefix_cache_branch_point(15, 16), 0);
    assert_int_equal(hb_prefix_cache_branch_point(0, 16), 0);
    assert_int_equal(hb_prefix_cache_branch_point(-5, 16), 0);
    assert_int_equal(hb_prefix_cache_branch_point(40, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_deepest_state_that_is_not_too_deep_is_found),
        cmocka_unit_test(what_is_evicted_is_not_found_and_the_next_best_is),
        cmocka_unit_test(of_two_equal_states_the_first_is_used),
        cmocka_unit_test(a_full_cache_refuses),
        cmocka_unit_test(the_branching_point_is_on_the_grid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
