/* SPDX-License-Identifier: Apache-2.0
 * Verify through the adapter against the reference of world.h: outputs of nodes, intermediate
 * states, committed states and checkpoints; planted defects. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "backend/tests/spec_world.h"

static void verify_chain_and_commit_are_decode_steps(void **state) {
    (void)state;
    for (int32_t i = 0; i < 2 * HB_N_FORMS * HB_N_ORDERS; i++) {
        open_requests(i % 2, i / 2 % 2, i / 4, 0);
        const size_t n = dump_named("conv", dump_a);
        const size_t m = dump_named("temporal", dump_a + n);
        make_chains(DRAFT, NULL, 1);
        assert_int_equal(verify(), 0);
        assert_int_equal(dump_named("conv", dump_b), n);
        assert_int_equal(dump_named("temporal", dump_b + n), m);
        assert_memory_equal(dump_a, dump_b, n + m); /* not written until the commit */
        commit_ok(plan_of(3, 3, 0, 99), 0);         /* a padding row's step is not looked at */
        assert_true(state_is(w.slot[R0], R0, 9));
        assert_true(state_is(w.slot[R1], R1, 3));
        commit_ok(plan_of(2, 4, -7, 0), 0); /* again, and a row that stays */
        assert_true(state_is(w.slot[R0], R0, 10));
        assert_true(state_is(w.slot[R1], R1, 3));
        commit_ok(plan_of(1, 1, 0, 0), 0); /* fewer rows */
        assert_true(state_is(w.slot[R0], R0, 7));
        assert_true(state_is(w.slot[R1], R1, 3));
        w.pos[R0] = 7;
        w.pos[R1] = 3;
        assert_int_equal(
            forward(HB_MODE_DECODE, 2, (const struct row[]){{R1, 0, 0, 0}, {R0, 0, 0, 0}}, 1, 1),
            0);
        assert_true(state_is(w.slot[R0], R0, 8));
        close_world();
    }
}

static void short_window(struct hb_config *c) {
    c->attn_window = 2;
}

static void longer_window(struct hb_config *c) {
    c->attn_window = 6;
    c->window_rule = HB_WINDOW_INCLUSIVE;
}

/* Keys within the window of the node's position on its path. */
static void verify_windows_of_attention_go_by_the_path(void **state) {
    (void)state;
    void (*const windows[])(struct hb_config *) = {short_window, longer_window};
    for (int32_t i = 0; i < 2 * HB_N_FLOAT_DTYPES; i++) {
        world_config = windows[i % 2];
        open_requests(i / 2, i % 2, HB_ORDER_RANDOM, 0);
        make_chains(DRAFT, NULL, 1);
        assert_int_equal(verify(), 0);
        commit_ok(plan_of(2, 1, 4, 0), 0);
        w.pos[R0] += 2;
        w.pos[R1] += 5;
        make_trees();
        assert_int_equal(verify(), 0);
        close_world();
    }
    world_config = NULL;
}

static void verify_trees_follow_their_paths(void **state) {
    (void)state;
    for (int32_t i = 0; i < 2 * HB_N_FORMS * HB_N_ORDERS; i++) {
        open_requests(i % 2, i / 2 % 2, i / 4, 0);
        const int32_t dst = take_track();
        make_trees();
        assert_int_equal(verify(), 0);
        struct plan p = plan_of(3, 4, 2, 0);
        p.track_step[0] = 2;
        p.track[0] = dst;
        p.track_step[2] = 5; /* a padding row's is not looked at */
        p.track[2] = -99;
        p.track[1] = INT64_MIN; /* nor the slot of a row without a checkpoint */
        commit_ok(p, 1);
        assert_true(state_is(w.slot[R0], R0, 8));
        assert_true(state_is(w.slot[R1], R1, 4));
        assert_true(state_is(dst, R0, 7));
        close_world();
    }
}

static void verify_writes_its_entries_only(void **state) {
    (void)state;
    static const int32_t nodes[] = {5, 3};
    open_requests(HB_FP32, HB_FORM_FAST, HB_ORDER_RANDOM, 0);
    for (int32_t l = 0; l < LAYERS; l += 2) {
        fill_region("intermediate_conv", l, 0xff);
        fill_region("intermediate_ssm", l, 0xff);
    }
    make_chains(DRAFT, nodes, 1);
    assert_int_equal(verify(), 0);
    const size_t n = dump_named("intermediate_ssm", dump_a);
    enum { ENTRY = sizeof(float) * H * P * N };
    assert_int_equal(n, 2 * SPEC_ROWS * MAX_DRAFT * ENTRY);
    for (int32_t e = 0; e < SPEC_ROWS * MAX_DRAFT; e++) {
        const int32_t row = e / MAX_DRAFT;
        const struct ref ref = reference(R0 - row, 0, w.pos[R0 - row] + e % MAX_DRAFT + 1);
        const int32_t is_node = row < 2 && e % MAX_DRAFT < nodes[row];
        uint8_t want[ENTRY];
        memset(want, 0xff, sizeof(want));
        if (is_node) {
            memcpy(want, ref.state, sizeof(want));
        }
        assert_memory_equal(dump_a + (size_t)e * ENTRY, want, ENTRY);
    }
    const size_t m = dump_named("intermediate_conv", dump_a);
    const size_t window = sizeof(float) * DIM * W;
    assert_int_equal(m, 2 * SPEC_ROWS * MAX_DRAFT * window);
    for (int32_t e = 0; e < SPEC_ROWS * MAX_DRAFT; e++) {
        const int32_t row = e / MAX_DRAFT;
        const struct ref ref = reference(R0 - row, 0, w.pos[R0 - row] + e % MAX_DRAFT + 1);
        const int32_t is_node = row < 2 && e % MAX_DRAFT < nodes[row];
        uint8_t want[sizeof(float) * DIM * W];
        memset(want, 0xff, sizeof(want));
        if (is_node) {
            memcpy(want, ref.conv, sizeof(want));
        }
        assert_memory_equal(dump_a + (size_t)e * window, want, window);
    }
    close_world();
}

static void verify_twice_is_verify_once(void **state) {
    (void)state;
    open_requests(HB_FP32, HB_FORM_FAST, HB_ORDER_ASCENDING, 0);
    make_trees();
    assert_int_equal(verify(), 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    assert_int_equal(verify(), 0);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    commit_ok(plan_of(2, 4, 2, 0), 0);
    assert_true(state_is(w.slot[R0], R0, 8));
    close_world();
}

static void verify_defects_are_seen(void **state) {
    (void)state;
    for (int32_t defect = 0; defect <= HB_DEFECT_VERIFY_CONV_STORED; defect++) {
        const int32_t is_new = defect == 0 || defect >= HB_DEFECT_VERIFY_SHAPE;
        if (!is_new) {
            continue;
        }
        open_requests(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, defect);
        const size_t n = dump_named("conv", dump_a);
        make_trees();
        const int32_t wrong = verify();
        assert_int_equal(wrong > 0, HB_DEFECT(defect, VERIFY_SIBLING));
        (void)dump_named("conv", dump_b);
        assert_int_equal(memcmp(dump_a, dump_b, n) != 0, HB_DEFECT(defect, VERIFY_CONV_STORED));
        const size_t m = dump(dump_a, sizeof(dump_a));
        commit_ok(plan_of(2, -1, -1, 0), 0);
        (void)dump(dump_b, sizeof(dump_b));
        assert_int_equal(memcmp(dump_a, dump_b, m) != 0, HB_DEFECT(defect, SCATTER_WRAP));
        commit_ok(plan_of(2, 0, 2, 0), 0);
        assert_true(state_is(w.slot[R0], R0, 6)); /* step 0 has no earlier one */
        assert_int_equal(!state_is(w.slot[R1], R1, 4),
                         HB_DEFECT(defect, VERIFY_SHAPE) || HB_DEFECT(defect, VERIFY_SIBLING));
        close_world();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verify_chain_and_commit_are_decode_steps),
        cmocka_unit_test(verify_windows_of_attention_go_by_the_path),
        cmocka_unit_test(verify_trees_follow_their_paths),
        cmocka_unit_test(verify_writes_its_entries_only),
        cmocka_unit_test(verify_twice_is_verify_once),
        cmocka_unit_test(verify_defects_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
