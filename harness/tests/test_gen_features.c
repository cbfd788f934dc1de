/* SPDX-License-Identifier: Apache-2.0
 * What generation must reach of graphs, ring, ids, prefix cache and layouts, counted over many cases of each target; and the
 * model that keeps its histories legal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "backend/adapter.h"
#include "harness/gen_history.h"
#include "harness/tests/hand_case.h"

enum { N_CASES = 1500 };

/* Conditions; each must be met N_CASES / 100 times at least. */
#define CONDITIONS(X)                                                                               \
    X(GRAPH_INIT) X(CAPTURE_DECODE) X(CAPTURE_VERIFY) X(CAPTURE_LINKS) X(CAPTURE_IDLE)              \
    X(CAPTURE_LATE) X(REPLAY_DECODE) X(REPLAY_CHAIN) X(REPLAY_TREE) X(REPLAY_IDLE) X(REPLAY_FULL)   \
    X(REPLAY_PADDED) X(REPLAY_ALL_PADDING) X(REPLAY_COUNTED) X(REPLAY_TRACKED) X(REPLAY_TWICE)      \
    X(REPLAY_SMALLER) X(REPLAY_COMMITTED) X(EAGER_BETWEEN) X(RING_WRAP) X(RING_FORCED)              \
    X(RING_TRACKED) X(RING_PREFILL) X(RING_VERIFY) X(COMMIT_RING) X(COMMIT_FOLDS) X(COMMIT_AGAIN)   \
    X(COMMIT_REPLAY) X(MOVE) X(MOVE_LIVE) X(PUBLISH) X(PUBLISH_OWN)   \
    X(MATCH_HIT) X(MATCH_SHORT) X(MATCH_MISS) X(EVICT) X(FREE_PAIR) X(RETAKE) X(RESTART)            \
    X(PING_PONG_ONE) X(PING_PONG_TWO) X(PING_PONG_LAZY) X(PING_PONG_COMMIT) X(STRIP) X(PAD)         \
    X(BY_LAYER) X(VIRTUAL_FEW) X(VIRTUAL_MANY) X(CPU_DECODE) X(CPU_VERIFY) X(INTERVAL)
enum condition {
#define CONDITION(name) name,
    CONDITIONS(CONDITION)
#undef CONDITION
    N_CONDITIONS
};
static const char *const condition_names[] = {
#define CONDITION(name) #name,
    CONDITIONS(CONDITION)
#undef CONDITION
};

static void see_graph_step(const struct hb_case *c, int32_t k, const struct hb_history *h, int *seen) {
    const struct hb_case_step *s = &c->step[k];
    const int is_verify = s->mode == HB_MODE_TARGET_VERIFY;
    seen[GRAPH_INIT] += s->kind == HB_STEP_GRAPH_INIT;
    if (s->kind == HB_STEP_CAPTURE) {
        seen[CAPTURE_DECODE] += s->mode == HB_MODE_DECODE;
        seen[CAPTURE_VERIFY] += is_verify && !(s->optional & 128);
        seen[CAPTURE_LINKS] += is_verify && (s->optional & 128);
        seen[CAPTURE_IDLE] += s->mode == HB_MODE_IDLE;
        seen[CAPTURE_LATE] += k > 0 && c->step[k - 1].kind != HB_STEP_CAPTURE &&
                              c->step[k - 1].kind != HB_STEP_GRAPH_INIT;
        return;
    }
    if (s->kind != HB_STEP_FORWARD || !s->replay) {
        return;
    }
    seen[REPLAY_DECODE] += s->mode == HB_MODE_DECODE;
    seen[REPLAY_CHAIN] += is_verify && s->tree == HB_TREE_CHAIN;
    seen[REPLAY_TREE] += is_verify && s->tree != HB_TREE_CHAIN;
    seen[REPLAY_IDLE] += s->mode == HB_MODE_IDLE;
    seen[REPLAY_FULL] += s->pad_rows == 0;
    seen[REPLAY_PADDED] += s->pad_rows > 0 && s->n_rows > 0;
    seen[REPLAY_ALL_PADDING] += s->n_rows == 0;
    seen[REPLAY_COUNTED] += s->pad_rows > 0 && (s->optional & 96) == 96;
    seen[REPLAY_TWICE] += (s->optional & 16) != 0;
    seen[REPLAY_COMMITTED] += is_verify && k + 1 < c->n_steps && c->step[k + 1].kind == HB_STEP_COMMIT;
    for (int32_t r = 0; r < s->n_rows; r++) {
        seen[REPLAY_TRACKED] += s->row[r].track;
    }
    /* a smaller batch after a larger one of the same graph: stale entries would show */
    for (int32_t i = k - 1; i >= 0; i--) {
        const struct hb_case_step *t = &c->step[i];
        if (t->kind == HB_STEP_FORWARD && !t->replay) {
            seen[EAGER_BETWEEN]++;
            break;
        }
        if (t->kind == HB_STEP_FORWARD && t->n_rows + t->pad_rows == s->n_rows + s->pad_rows) {
            seen[REPLAY_SMALLER] += t->n_rows > s->n_rows;
            break;
        }
    }
    (void)h;
}

static void see_ring(const struct hb_case *c, const struct hb_case_step *s, const struct hb_history *h,
                     int *seen) {
    if (s->kind != HB_STEP_FORWARD || c->config.ring_length == 0) {
        return;
    }
    const int32_t interval = c->config.chunk_size * c->config.track_chunks;
    for (int32_t r = 0; r < s->n_rows && hb_case_ring_has_mode(c, HB_MODE_TARGET_VERIFY); r++) {
        const int32_t t = h->request_take[s->row[r].request];
        const int is_pending = s->mode == HB_MODE_TARGET_VERIFY && t >= 0 && h->take[t].cursor > 0;
        seen[COMMIT_RING] += s->mode == HB_MODE_TARGET_VERIFY;
        seen[COMMIT_FOLDS] += is_pending && h->take[t].is_full;
        seen[COMMIT_AGAIN] += is_pending && !h->take[t].is_full;
        seen[COMMIT_REPLAY] += is_pending && s->replay;
    }
    for (int32_t r = 0; r < s->n_rows && hb_case_ring_has_mode(c, HB_MODE_DECODE); r++) {
        const int32_t w = hb_history_cursor(h, s->row[r].request);
        if (s->mode == HB_MODE_DECODE) {
            const int is_multiple = hb_history_seq_len(h, s, r) % interval == 0 && (s->optional & 32);
            seen[RING_WRAP] += w > 0 && w == c->config.ring_length - 1;
            seen[RING_FORCED] += is_multiple;
            seen[RING_TRACKED] += s->row[r].track && w > 0;
        } else {
            seen[RING_PREFILL] += hb_mode_is_extend(s->mode);
            seen[RING_VERIFY] += s->mode == HB_MODE_TARGET_VERIFY;
        }
    }
}

static void see_slots(const struct hb_case *c, const struct hb_case_step *s, const struct hb_history *h,
                      int *seen) {
    const struct hb_taken *t = &h->take[s->slot];
    const int has_own = c->config.ping_pong != HB_PING_PONG_OFF;
    seen[MOVE] += s->kind == HB_STEP_MOVE;
    seen[MOVE_LIVE] += s->kind == HB_STEP_MOVE && t->request >= 0 && t->position > 0;
    seen[PUBLISH] += s->kind == HB_STEP_PUBLISH && !has_own;
    seen[PUBLISH_OWN] += s->kind == HB_STEP_PUBLISH && has_own;
    seen[EVICT] += s->kind == HB_STEP_FREE && t->is_tree;
    seen[FREE_PAIR] += s->kind == HB_STEP_FREE && s->slot2 >= 0;
    if (s->kind != HB_STEP_TAKE) {
        return;
    }
    seen[RESTART] += s->from >= 0;
    seen[RETAKE] += s->slot_kind == 0 && h->request_take[s->request] >= 0;
    if (s->match >= 0) {
        const struct hb_kept *k = hb_history_match(h, s->match, s->prefix);
        seen[MATCH_HIT] += k && k->position == s->prefix;
        seen[MATCH_SHORT] += k && k->position < s->prefix;
        seen[MATCH_MISS] += !k;
    }
}

static void see_config(const struct hb_case *c, int *seen) {
    const struct hb_case_config *g = &c->config;
    seen[STRIP] += g->window_layout == HB_WINDOWS_STRIP;
    seen[PAD] += g->pool_pad > 0;
    seen[BY_LAYER] += g->track_by_layer;
    seen[VIRTUAL_FEW] += g->virtual_ids == 1;
    seen[VIRTUAL_MANY] += g->virtual_ids > 1;
    seen[INTERVAL] += g->ring_length > 0 && g->track_chunks > 1;
}

static void see_tracking(const struct hb_case *c, const struct hb_case_step *s, int *seen) {
    for (int32_t r = 0; r < s->n_rows; r++) {
        if (s->row[r].track) {
            seen[PING_PONG_ONE] += c->config.ping_pong == HB_PING_PONG_ONE;
            seen[PING_PONG_TWO] += c->config.ping_pong == HB_PING_PONG_TWO;
            seen[PING_PONG_LAZY] += c->config.ping_pong == HB_PING_PONG_LAZY;
            seen[PING_PONG_COMMIT] +=
                c->config.ping_pong != HB_PING_PONG_OFF && s->kind == HB_STEP_COMMIT;
        }
    }
    const int is_forward = s->kind == HB_STEP_FORWARD && (s->optional & 32);
    seen[CPU_DECODE] += is_forward && s->mode == HB_MODE_DECODE;
    seen[CPU_VERIFY] += is_forward && s->mode == HB_MODE_TARGET_VERIFY;
}

static void valid_cases_reach_every_condition(void **state) {
    (void)state;
    static const int32_t targets[] = {HB_TARGET_GRAPH, HB_TARGET_SLOTS, HB_TARGET_TRACK,
                                      HB_TARGET_VERIFY};
    int seen[N_CONDITIONS] = {0};
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++) {
        struct hb_gen_options o;
        hb_gen_options_init(&o);
        o.gen_class = HB_GEN_VALID;
        o.target = targets[t];
        for (uint64_t i = 0; i < N_CASES; i++) {
            struct hb_case c;
            hb_gen_case(&o, 41, i, &c);
            see_config(&c, seen);
            for (int32_t k = 0; k < c.n_steps; k++) {
                struct hb_history h;
                hb_history_replay(&h, &c, k);
                see_graph_step(&c, k, &h, seen);
                see_ring(&c, &c.step[k], &h, seen);
                see_slots(&c, &c.step[k], &h, seen);
                see_tracking(&c, &c.step[k], seen);
            }
        }
    }
    for (int i = 0; i < N_CONDITIONS; i++) {
        if (seen[i] < N_CASES / 100) {
            fail_msg("condition %s is generated %d times", condition_names[i], seen[i]);
        }
    }
}

/* Every feature also occurs in the target that is run first. */
static void the_forward_target_has_a_share_of_each_feature(void **state) {
    (void)state;
    enum { GRAPHS, RING, VIRTUAL, PING_PONG, CACHE, N };
    int seen[N] = {0};
    struct hb_gen_options o;
    hb_gen_options_init(&o);
    o.gen_class = HB_GEN_VALID;
    for (uint64_t i = 0; i < N_CASES; i++) {
        struct hb_case c;
        int is_cache = 0;
        hb_gen_case(&o, 42, i, &c);
        for (int32_t k = 0; k < c.n_steps; k++) {
            is_cache |= c.step[k].kind == HB_STEP_PUBLISH;
        }
        seen[GRAPHS] += c.config.graph_rows > 0;
        seen[RING] += c.config.ring_length > 0;
        seen[VIRTUAL] += c.config.virtual_ids > 0;
        seen[PING_PONG] += c.config.ping_pong > 0;
        seen[CACHE] += is_cache;
    }
    for (int i = 0; i < N; i++) {
        assert_in_range(seen[i], i == CACHE ? N_CASES / 60 : N_CASES / 25, N_CASES / 4);
    }
}

/* Nine in ten cases are not valid, and modes are any numbers. */
static void metadata_is_mostly_broken(void **state) {
    (void)state;
    int broken = 0;
    int wild = 0;
    int graphs = 0;
    struct hb_gen_options o;
    hb_gen_options_init(&o);
    o.target = HB_TARGET_METADATA;
    for (uint64_t i = 0; i < N_CASES; i++) {
        struct hb_case c;
        hb_gen_case(&o, 43, i, &c);
        broken += c.n_breaks > 0;
        graphs += c.config.graph_rows > 0;
        assert_int_equal(c.config.relation, 0);
        for (int32_t k = 0; k < c.n_steps; k++) {
            wild += c.step[k].kind == HB_STEP_FORWARD && (c.step[k].mode < 1 || c.step[k].mode > 9);
        }
    }
    assert_true(broken > N_CASES * 7 / 10);
    assert_true(wild > N_CASES / 20 && graphs > N_CASES / 5);
}

/* --- the model ------------------------------------------------------------------------------------------------------- */

static void after(const struct hb_case *c, struct hb_history *h) {
    hb_history_replay(h, c, c->n_steps);
}

/* speculative.md section 7 with L = 4: a fold after the fourth record, and one at each multiple of the interval (here 8) where
 * the mirror of the lengths is given. */
static void ring_cursors_advance_wrap_and_are_forced(void **state) {
    (void)state;
    static const int32_t want[] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1};
    struct hb_case c;
    hb_case_init(&c);
    c.config.ring_length = 4;
    hand_take(&c, 0, 7); /* lengths 8 .. */
    for (int32_t i = 0; i < 10; i++) {
        struct hb_history h;
        after(&c, &h);
        assert_int_equal(hb_history_cursor(&h, 0), want[i]);
        (void)hand_row(hand_forward(&c, HB_MODE_DECODE), 0, 1);
    }
    for (int32_t i = 1; i < c.n_steps; i++) {
        c.step[i].optional = 32; /* multiples of 8 are forced now: lengths 8 and 16 */
    }
    static const int32_t forced[] = {0, 0, 1, 2, 3, 0, 1, 2, 3, 0};
    for (int32_t i = 0; i < 10; i++) {
        struct hb_history h;
        hb_history_replay(&h, &c, 1 + i);
        assert_int_equal(hb_history_cursor(&h, 0), forced[i]);
    }
}

/* L = 8, three nodes at most: a fold as soon as 6 more might not fit. */
static void ring_cursors_of_commits_advance_and_fold(void **state) {
    (void)state;
    static const int32_t accept[] = {0, 2, -1, 1, 0, 0};
    static const int32_t want[] = {1, 4, 0, 2, 3, 1}; /* the third and the last find a full ring */
    struct hb_case c;
    hb_case_init(&c);
    c.config.max_draft = 3;
    c.config.ring_length = 8;
    c.config.ring_owner = HB_RING_COMMIT;
    hand_take(&c, 0, 7);
    for (int32_t i = 0; i < 6; i++) {
        struct hb_history h;
        (void)hand_row(hand_forward(&c, HB_MODE_TARGET_VERIFY), 0, 3);
        struct hb_case_step *s = hand_step(&c, HB_STEP_COMMIT);
        s->n_rows = 1;
        s->row[0].accept = accept[i];
        after(&c, &h);
        assert_int_equal(hb_history_cursor(&h, 0), want[i]);
        assert_int_equal(h.take[0].is_full, want[i] + 6 > 8);
    }
}

static void a_match_finds_the_deepest_state_that_is_not_too_deep(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_history h;
    hb_case_init(&c);
    hand_take(&c, 2, 0);
    hand_take_track(&c);
    hand_take_track(&c);
    for (int32_t k = 0; k < 2; k++) {
        struct hb_case_step *s = hand_forward(&c, HB_MODE_EXTEND);
        hand_track(hand_row(s, 2, 8), k, 0);
        hand_step(&c, HB_STEP_PUBLISH)->slot = 1 + k;
    }
    hb_case_normalize(&c);
    after(&c, &h);
    assert_int_equal(h.n_published, 2);
    assert_null(hb_history_match(&h, 2, 7));
    assert_int_equal(hb_history_match(&h, 2, 8)->position, 8);
    assert_int_equal(hb_history_match(&h, 2, 15)->position, 8);
    assert_int_equal(hb_history_match(&h, 2, 99)->position, 16);
    assert_null(hb_history_match(&h, 1, 99));
    hand_step(&c, HB_STEP_FREE)->slot = 2; /* evicted */
    after(&c, &h);
    assert_int_equal(hb_history_match(&h, 2, 99)->position, 8);
    struct hb_case_step *s = hand_step(&c, HB_STEP_TAKE);
    s->request = 5;
    s->match = 2;
    s->prefix = 12;
    after(&c, &h);
    assert_int_equal(hb_history_position(&h, 5), 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_cases_reach_every_condition),
        cmocka_unit_test(the_forward_target_has_a_share_of_each_feature),
        cmocka_unit_test(metadata_is_mostly_broken),
        cmocka_unit_test(ring_cursors_advance_wrap_and_are_forced),
        cmocka_unit_test(ring_cursors_of_commits_advance_and_fold),
        cmocka_unit_test(a_match_finds_the_deepest_state_that_is_not_too_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
