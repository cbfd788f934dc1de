/* SPDX-License-Identifier: Apache-2.0
 * A replay equals the eager forward of the same batch bit for bit, in outputs, states, cursors and
 * what a commit makes of it; a refresh writes what backend/README.md "Graphs" says and nothing
 * else. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "backend/tests/graph_world.h"

/* Graphs of five batch sizes: decode (3 and 5), verify of chains (4), of trees (2), idle (1). */
static void capture_all(void) {
    assert_int_equal(w.a->graph_init(w.h, GRAPH_ROWS, GRAPH_ROWS * 4, &w.err), HB_OK);
    capture(HB_MODE_IDLE, 1, 1, 0, 7);
    capture(HB_MODE_TARGET_VERIFY, 2, 4, w.config.window_layout == HB_WINDOWS_DENSE, 7);
    capture(HB_MODE_DECODE, 3, 1, 0, 7);
    capture(HB_MODE_TARGET_VERIFY, 4, 4, 0, 7);
    capture(HB_MODE_DECODE, 5, 1, 0, 7);
}

/* Cursors of the ring to 0: a verify refuses others. */
static void fold_rings(void) {
    if (w.config.ring_length > 0) {
        fill_region("write_pos", -1, 0);
    }
}

/* Random steps over all graphs, their live rows up and down. */
static int32_t run_steps(int32_t n_steps) {
    int32_t wrong = 0;
    for (int32_t i = 0; i < n_steps; i++) {
        const int32_t bs = 1 + pick(GRAPH_ROWS);
        for (int32_t q = FIRST_REQ; q < FIRST_REQ + LIVE_REQS; q++) {
            w.pos[q] = w.pos[q] > CONTEXT - 8 ? 6 : w.pos[q];
        }
        if (kept[bs].mode == HB_MODE_TARGET_VERIFY) {
            fold_rings();
        }
        wrong += count_differences(bs, i % 3 == 0 ? bs : pick(bs + 1), pick(3));
    }
    return wrong;
}

static int32_t run_world(int32_t act_dtype, int32_t form, int32_t order, int32_t defect,
                         int32_t n_steps) {
    random_state = 11U + (uint32_t)order;
    open_graph_world(act_dtype, form, order, defect);
    capture_all();
    const int32_t wrong = run_steps(n_steps);
    close_world();
    return wrong;
}

static void replay_equals_eager_bit_for_bit(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        for (int32_t order = 0; order < HB_N_ORDERS; order++) {
            assert_int_equal(run_world(order % 2, form, order, 0, 24), 0);
        }
    }
}

static void with_ring(struct hb_config *c) {
    c->ring_length = 4;
    c->track_interval = 6;
}
static void with_virtual_ids(struct hb_config *c) {
    c->n_virtual = 2 * SLOTS;
}
static void with_tracking_by_layer(struct hb_config *c) {
    c->track_by_layer = 1;
    c->pool_pad = 3;
}
static void with_strips(struct hb_config *c) {
    c->window_layout = HB_WINDOWS_STRIP;
}
static void with_all(struct hb_config *c) {
    with_ring(c);
    with_virtual_ids(c);
    with_tracking_by_layer(c);
}

static void replay_equals_eager_with_every_option(void **state) {
    (void)state;
    void (*const options[])(struct hb_config *) = {with_ring, with_virtual_ids,
                                                   with_tracking_by_layer, with_strips, with_all};
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        world_config = options[i];
        for (int32_t form = 0; form < HB_N_FORMS; form++) {
            assert_int_equal(run_world(form, form, HB_ORDER_ASCENDING, 0, 24), 0);
        }
        world_config = NULL;
    }
}

/* Large and small batches in turn on one graph (graph.md section 6). */
static void replay_leaves_nothing_for_a_smaller_step(void **state) {
    (void)state;
    open_graph_world(HB_FP32, 0, 0, 0);
    capture_all();
    for (int32_t i = 0; i < 6; i++) {
        for (int32_t bs = 1; bs <= GRAPH_ROWS; bs++) {
            assert_int_equal(count_differences(bs, i % 2 == 0 ? bs : 1, 2), 0);
        }
    }
    close_world();
}

/* A slot that moves between two replays: the second one finds it at its new place. */
static void refresh_translates_ids_at_the_replay(void **state) {
    (void)state;
    world_config = with_virtual_ids;
    open_graph_world(HB_FP32, 0, 0, 0);
    world_config = NULL;
    capture_all();
    for (int32_t i = 0; i < LIVE_REQS; i++) {
        assert_int_equal(w.a->slot_move(w.h, w.slot[FIRST_REQ + i], &w.err), HB_OK);
        assert_int_equal(w.a->slot_move(w.h, track_ids[i], &w.err), HB_OK);
        assert_int_equal(count_differences(5, 4, 0), 0);
        assert_int_equal(count_differences(2, 2, 0), 0);
    }
    close_world();
}

#ifdef HB_DEFECTS
static void replay_defects_are_noticed(void **state) {
    (void)state;
    const int32_t defects[] = {HB_DEFECT_PAD_CLAMPED, HB_DEFECT_GRAPH_TRACK_TAIL,
                               HB_DEFECT_GRAPH_WARMUP_LISTS, HB_DEFECT_GRAPH_STALE_ROWS};
    poison_byte = 0; /* what the defects leave stale is used: it must be an index */
    for (size_t i = 0; i < sizeof(defects) / sizeof(defects[0]); i++) {
        if (run_world(HB_FP32, 0, 0, defects[i], 60) == 0) {
            fail_msg("defect %d was not noticed", defects[i]);
        }
    }
    assert_int_equal(run_world(HB_FP32, 0, 0, 0, 24), 0);
    poison_byte = 0x5a;
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replay_equals_eager_bit_for_bit),
        cmocka_unit_test(replay_equals_eager_with_every_option),
        cmocka_unit_test(replay_leaves_nothing_for_a_smaller_step),
        cmocka_unit_test(refresh_translates_ids_at_the_replay),
#ifdef HB_DEFECTS
        cmocka_unit_test(replay_defects_are_noticed),
#endif
    };
    return cmocka_run_group_tests_name("graph_replay", tests, NULL, NULL);
}
