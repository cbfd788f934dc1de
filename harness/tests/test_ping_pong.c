/* SPDX-License-Identifier: Apache-2.0
 * Ping-pong tables: the rules of tracking.md section 2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/ping_pong.h"

/* Fills what is missing with the next ids; none left after `most`. */
static void fill(struct hb_ping_pong_table *p, int32_t *id, int32_t most) {
    for (int32_t k = hb_ping_pong_missing(p); k >= 0 && *id < most; k = hb_ping_pong_missing(p)) {
        p->slot[k] = ++*id;
    }
}

static void start(struct hb_ping_pong_table *p, int32_t mode, int32_t *id) {
    hb_ping_pong_init(p, mode);
    for (int32_t k = 0; k < hb_ping_pong_at_start(p); k++) {
        p->slot[k] = ++*id;
    }
}

static void off_has_no_slots(void **state) {
    (void)state;
    struct hb_ping_pong_table p;
    hb_ping_pong_init(&p, HB_PING_PONG_OFF);
    assert_int_equal(hb_ping_pong_at_start(&p), 0);
    assert_int_equal(hb_ping_pong_missing(&p), -1);
    assert_int_equal(hb_ping_pong_target(&p), 0);
    assert_int_equal(hb_ping_pong_newest(&p), 0);
    hb_ping_pong_init(&p, 99);
    assert_int_equal(hb_ping_pong_at_start(&p), 0);
    assert_int_equal(hb_ping_pong_missing(&p), -1);
}

static void one_slot_is_overwritten(void **state) {
    (void)state;
    struct hb_ping_pong_table p;
    int32_t id = 0;
    start(&p, HB_PING_PONG_ONE, &id);
    assert_int_equal(id, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hb_ping_pong_missing(&p), -1);
        assert_int_equal(hb_ping_pong_target(&p), 1);
        hb_ping_pong_tracked(&p);
        assert_int_equal(p.next, 0);
        assert_int_equal(hb_ping_pong_newest(&p), 1);
    }
}

static void next_flips_after_each_track_and_the_newest_is_the_other(void **state) {
    (void)state;
    struct hb_ping_pong_table p;
    int32_t id = 0;
    start(&p, HB_PING_PONG_TWO, &id);
    assert_int_equal(id, 2);
    assert_int_equal(hb_ping_pong_newest(&p), 0);
    for (int i = 0; i < 4; i++) {
        const int32_t target = 1 + i % 2;
        assert_int_equal(hb_ping_pong_target(&p), target);
        hb_ping_pong_tracked(&p);
        assert_int_equal(hb_ping_pong_newest(&p), target);
        assert_int_equal(p.keep, 1 - p.next);
    }
}

static void lazy_takes_its_second_slot_before_the_first_boundary(void **state) {
    (void)state;
    struct hb_ping_pong_table p;
    int32_t id = 0;
    start(&p, HB_PING_PONG_LAZY, &id);
    assert_int_equal(id, 1);
    assert_int_equal(hb_ping_pong_missing(&p), 1);
    fill(&p, &id, 9);
    assert_int_equal(id, 2);
    assert_int_equal(hb_ping_pong_target(&p), 1);
    hb_ping_pong_tracked(&p);
    assert_int_equal(hb_ping_pong_newest(&p), 1);
    assert_int_equal(hb_ping_pong_target(&p), 2);
}

/* next stays, the single slot is overwritten, and it is the newest: keep index = next. */
static void lazy_without_a_second_slot_overwrites_the_first(void **state) {
    (void)state;
    struct hb_ping_pong_table p;
    int32_t id = 0;
    start(&p, HB_PING_PONG_LAZY, &id);
    for (int i = 0; i < 2; i++) {
        fill(&p, &id, 1);
        assert_int_equal(hb_ping_pong_target(&p), 1);
        hb_ping_pong_tracked(&p);
        assert_int_equal(p.next, 0);
        assert_int_equal(p.keep, 0);
        assert_int_equal(hb_ping_pong_newest(&p), 1);
    }
    fill(&p, &id, 9);
    hb_ping_pong_tracked(&p);
    assert_int_equal(hb_ping_pong_newest(&p), 1);
    assert_int_equal(hb_ping_pong_target(&p), 2);
}

static void what_is_donated_is_replaced_by_a_blank_slot(void **state) {
    (void)state;
    struct hb_ping_pong_table p;
    int32_t id = 0;
    start(&p, HB_PING_PONG_TWO, &id);
    hb_ping_pong_donated(&p, 7); /* there is nothing to donate */
    assert_int_equal(p.slot[0], 1);
    assert_int_equal(p.slot[1], 2);
    hb_ping_pong_tracked(&p);
    hb_ping_pong_donated(&p, 8);
    assert_int_equal(p.slot[0], 8);
    assert_int_equal(hb_ping_pong_newest(&p), 0);
    assert_int_equal(hb_ping_pong_target(&p), 2);
    hb_ping_pong_tracked(&p);
    assert_int_equal(hb_ping_pong_newest(&p), 2);
    assert_int_equal(hb_ping_pong_target(&p), 8);
}

/* No slot was free for the place of the donated one: it is asked for again before the next
 * boundary. */
static void a_place_that_stays_empty_is_asked_for_again(void **state) {
    (void)state;
    struct hb_ping_pong_table p;
    int32_t id = 0;
    start(&p, HB_PING_PONG_ONE, &id);
    hb_ping_pong_tracked(&p);
    hb_ping_pong_donated(&p, 0);
    assert_int_equal(hb_ping_pong_target(&p), 0);
    assert_int_equal(hb_ping_pong_missing(&p), 0);
    fill(&p, &id, 9);
    assert_int_equal(hb_ping_pong_target(&p), 2);
    start(&p, HB_PING_PONG_TWO, &id);
    hb_ping_pong_tracked(&p);
    hb_ping_pong_donated(&p, 0);
    assert_int_equal(hb_ping_pong_missing(&p), 0);
    assert_int_equal(hb_ping_pong_target(&p), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(off_has_no_slots),
        cmocka_unit_test(one_slot_is_overwritten),
        cmocka_unit_test(next_flips_after_each_track_and_the_newest_is_the_other),
        cmocka_unit_test(lazy_takes_its_second_slot_before_the_first_boundary),
        cmocka_unit_test(lazy_without_a_second_slot_overwrites_the_first),
        cmocka_unit_test(what_is_donated_is_replaced_by_a_blank_slot),
        cmocka_unit_test(a_place_that_stays_empty_is_asked_for_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
