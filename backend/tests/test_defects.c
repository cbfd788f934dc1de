/* SPDX-License-Identifier: Apache-2.0
 * Planted defects of the host side: each is noticed by a scenario that passes without it. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "backend/tests/spec_world.h"

enum { PAGE = 2 * C };

static void page_config(struct hb_config *c) {
    c->page_size = PAGE;
}

/* A commit of the roots alone: one accepted token per row. */
static int commit_of_roots(int32_t form, int32_t defect) {
    open_requests(HB_FP32, form, HB_ORDER_ASCENDING, defect);
    make_chains(DRAFT, NULL, 0);
    assert_int_equal(verify(), 0);
    commit_ok(plan_of(2, 0, 0, 0), 0);
    const int is_right = state_is(w.slot[R0], R0, 6) && state_is(w.slot[R1], R1, 3);
    close_world();
    return is_right;
}

/* A verify of one node per row, after one of more: the pools stay, and the root is committed. */
static int verify_without_drafts(int32_t form, int32_t defect) {
    open_requests(HB_FP32, form, HB_ORDER_ASCENDING, defect);
    make_chains(DRAFT, NULL, 0);
    (void)verify();
    const size_t n = dump_named("temporal", dump_a);
    make_chains(1, NULL, 1);
    (void)verify();
    assert_int_equal(dump_named("temporal", dump_b), n);
    int is_right = memcmp(dump_a, dump_b, n) == 0;
    commit_ok(plan_of(2, 0, 0, 0), 0);
    is_right &= state_is(w.slot[R0], R0, 6) && state_is(w.slot[R1], R1, 3);
    close_world();
    return is_right;
}

static int mixed_with_checkpoint(int32_t form, int32_t defect) {
    open_requests(HB_FP32, form, HB_ORDER_ASCENDING, defect);
    const int32_t dst = take_track();
    const struct row rows[] = {{R1, 6, dst, 6}, {R0, 0, 0, 0}};
    assert_int_equal(forward(HB_MODE_MIXED, 2, rows, 0, 0), 0);
    const int is_right = state_is(dst, R1, 6);
    close_world();
    return is_right;
}

/* Row 1 starts at token 5, off the grid of chunks. */
static int checkpoint_off_the_grid(int32_t form, int32_t defect) {
    open_requests(HB_FP32, form, HB_ORDER_ASCENDING, defect);
    const int32_t dst = take_track();
    const struct row rows[] = {{R0, 5, 0, 0}, {R1, 9, dst, 9}};
    assert_int_equal(forward(HB_MODE_EXTEND, 2, rows, 0, 0), 0);
    const int is_right = state_is(dst, R1, 10);
    close_world();
    return is_right;
}

/* 13 tokens, pages of 8: the checkpoint is after 8, three chunks are whole. */
static int checkpoint_on_a_page(int32_t form, int32_t defect) {
    world_config = page_config;
    open_requests(HB_FP32, form, HB_ORDER_ASCENDING, defect);
    world_config = NULL;
    const int32_t dst = take_track();
    const struct row rows[] = {{R0, 13, dst, 13}};
    assert_int_equal(forward(HB_MODE_EXTEND, 1, rows, 0, 0), 0);
    const int is_right = state_is(dst, R0, 5 + PAGE);
    close_world();
    return is_right;
}

/* Three children of the root; the last one is the row's next token. */
static int third_child_of_the_root(int32_t form, int32_t defect) {
    open_requests(HB_FP32, form, HB_ORDER_ASCENDING, defect);
    make_chains(4, NULL, 0);
    for (int32_t i = 0; i < 8; i++) {
        const int32_t node = i % 4;
        w.f.next[i] = node == 0 ? 1 : -1;
        w.f.sibling[i] = node == 1 || node == 2 ? node + 1 : -1;
        tokens[i].is_checked = node == 0 || node == 3;
        tokens[i].req = tokens[i].is_checked ? tokens[i].req : OTHER;
        tokens[i].pos = w.pos[R0 - i / 4] + (node > 0);
    }
    w.f.batch.retrieve_next_token = (struct hb_i32s){w.f.next, 8};
    w.f.batch.retrieve_next_sibling = (struct hb_i32s){w.f.sibling, 8};
    int is_right = verify() == 0;
    commit_ok(plan_of(2, 3, 3, 0), 0);
    is_right &= state_is(w.slot[R0], R0, 7) && state_is(w.slot[R1], R1, 4);
    close_world();
    return is_right;
}

/* Token slots that go down while positions go up: no page continues where the last one ends. */
static int prompt_over_pages(int32_t form, int32_t defect) {
    world_config = page_config;
    open_world(HB_FP32, form, HB_ORDER_ASCENDING, defect);
    world_config = NULL;
    for (int32_t i = 0; i < REQS * CONTEXT; i++) {
        w.f.table[i] = REQS * CONTEXT - i;
    }
    take(R0);
    const struct row rows[] = {{R0, PAGE + 3, 0, 0}};
    int is_right = forward(HB_MODE_EXTEND, 1, rows, 0, 0) == 0;
    is_right &= forward(HB_MODE_DECODE, 1, (const struct row[]){{R0, 0, 0, 0}}, 1, 0) == 0;
    close_world();
    return is_right;
}

static const struct {
    int32_t defect;
    int (*is_right)(int32_t form, int32_t defect);
} planted[] = {
    {HB_DEFECT_ACCEPT_MINUS_ONE, commit_of_roots},
    {HB_DEFECT_VERIFY_BY_SHAPE, verify_without_drafts},
    {HB_DEFECT_MIXED_DROPS_TRACK, mixed_with_checkpoint},
    {HB_DEFECT_H_INDEX_OFFSET, checkpoint_off_the_grid},
    {HB_DEFECT_PAGE_CHUNK, checkpoint_on_a_page},
    {HB_DEFECT_LATER_SIBLING, third_child_of_the_root},
    {HB_DEFECT_DRAFTLESS, verify_without_drafts},
    {HB_DEFECT_PAGE_CROSSING, prompt_over_pages},
};

static void defects_are_noticed_where_they_are_planted(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(planted) / sizeof(planted[0]); i++) {
        for (int32_t form = 0; form < HB_N_FORMS; form++) {
            assert_true(planted[i].is_right(form, 0));
#ifdef HB_DEFECTS
            if (planted[i].is_right(form, planted[i].defect)) {
                fail_msg("defect %d was not noticed", planted[i].defect);
            }
#else
            assert_true(planted[i].is_right(form, planted[i].defect)); /* there is none */
#endif
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defects_are_noticed_where_they_are_planted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
