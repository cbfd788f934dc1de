/* SPDX-License-Identifier: Apache-2.0
 * Normal form, sizes and text of what a case says of graphs, ring, ids, prefix cache and layouts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "harness/tests/hand_case.h"

static struct hb_config config_of(const struct hb_case *c) {
    struct hb_config config;
    hb_case_backend_config(c, &config);
    return config;
}

/* --- configuration ------------------------------------------------------------------------------------------------ */

static void features_are_off_by_default(void **state) {
    (void)state;
    struct hb_case c;
    hb_case_init(&c);
    const struct hb_config g = config_of(&c);
    assert_true(g.n_virtual == 0 && g.ring_length == 0 && g.graph_rows == 0 && g.graph_draft == 0);
    assert_true(g.window_layout == HB_WINDOWS_DENSE && g.pool_pad == 0 && !g.track_by_layer);
    assert_true(g.multi_item_scoring == 0 && g.stochastic_rounding == 0);
    assert_int_equal(g.track_interval, g.chunk_size);
}

static void the_configuration_follows_the_fields(void **state) {
    (void)state;
    struct hb_case c;
    hb_case_init(&c);
    c.config.track_chunks = 3;
    c.config.virtual_ids = 4;
    c.config.ring_length = 5;
    c.config.max_draft = 3;
    c.config.window_layout = HB_WINDOWS_STRIP;
    c.config.track_by_layer = 1;
    c.config.pool_pad = 7;
    c.config.graph_rows = 12;
    c.config.graph_draft = 3;
    hand_take(&c, 0, 0);
    const struct hb_case said = c;
    hb_case_normalize(&c);
    assert_memory_equal(&c, &said, sizeof c);
    const struct hb_config g = config_of(&c);
    assert_int_equal(g.track_interval, 24);
    assert_int_equal(g.n_virtual, g.n_slots + 3);
    assert_true(g.ring_length == 5 && g.pool_pad == 7 && g.track_by_layer == 1);
    assert_int_equal(g.window_layout, HB_WINDOWS_STRIP);
    assert_true(g.graph_rows == 12 && g.graph_draft == 3);
    assert_true(g.max_batch >= 12 && g.max_tokens >= 36); /* rule 217 */
}

/* Commits own a ring where there are drafts; it is then as long as they need, a power of two, and states are fp32. */
static void a_ring_that_commits_own_has_room(void **state) {
    (void)state;
    static const struct {
        int32_t length, max_draft, want;
    } rows[] = {{1, 1, 2}, {5, 2, 8}, {8, 4, 8}, {8, 5, 16}, {33, 8, 64}, {64, 8, 64}, {1, 8, 16}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hb_case c;
        hb_case_init(&c);
        c.config.ring_length = rows[i].length;
        c.config.ring_owner = HB_RING_COMMIT;
        c.config.max_draft = rows[i].max_draft;
        c.config.state_dtype = HB_BF16;
        hand_take(&c, 0, 0);
        hb_case_normalize(&c);
        const struct hb_config g = config_of(&c);
        assert_true(g.ring_length == rows[i].want && g.ring_owner == HB_RING_COMMIT);
        assert_true(g.spec_rows > 0 && g.state_dtype == HB_FP32);
        c.config.max_draft = 0;
        hb_case_normalize(&c);
        assert_true(c.config.ring_owner == HB_RING_DECODE && c.config.ring_length == rows[i].want);
        c.config.max_draft = 2;
        c.config.ring_owner = HB_RING_COMMIT;
        c.config.mixer = HB_MIXER_GDN;
        hb_case_normalize(&c);
        assert_true(c.config.ring_owner == HB_RING_DECODE && c.config.ring_length == 0);
    }
}

static void what_stands_alone_is_taken_back(void **state) {
    (void)state;
    struct hb_case c;
    hb_case_init(&c);
    c.config.window_layout = HB_WINDOWS_STRIP; /* windows of no caches */
    c.config.graph_draft = 4;                  /* nodes of no graphs */
    hb_case_normalize(&c);
    assert_int_equal(c.config.window_layout, HB_WINDOWS_DENSE);
    assert_int_equal(c.config.graph_draft, 1);
}

/* A capture counts as a forward of its size. */
static void captures_make_room_for_themselves(void **state) {
    (void)state;
    struct hb_case c;
    hb_case_init(&c);
    c.config.max_draft = 4;
    c.config.graph_rows = 8;
    c.config.graph_draft = 4;
    struct hb_case_step *s = hand_step(&c, HB_STEP_CAPTURE);
    s->mode = HB_MODE_TARGET_VERIFY;
    s->bs = 7;
    s->nodes = 4;
    hb_case_normalize(&c);
    const struct hb_config g = config_of(&c);
    assert_true(g.spec_rows >= 7 && g.max_tokens >= 28 && g.max_batch >= 7);
    c.step[0].mode = HB_MODE_DECODE;
    hb_case_normalize(&c);
    assert_int_equal(c.step[0].nodes, 1); /* no drafts, no nodes */
    assert_int_equal(config_of(&c).spec_rows, 1);
}

/* --- slots ---------------------------------------------------------------------------------------------------------- */

static void ping_pong_counts_the_slots_of_requests(void **state) {
    (void)state;
    static const int32_t each[] = {1, 2, 3, 3};
    for (int32_t mode = 0; mode < HB_N_PING_PONGS; mode++) {
        struct hb_case c;
        hb_case_init(&c);
        c.config.ping_pong = mode;
        c.config.spare_slots = 0;
        hand_take(&c, 0, 0);
        hand_take(&c, 1, 0);
        hb_case_normalize(&c);
        assert_int_equal(config_of(&c).n_slots, 2 * each[mode]);
        (void)hand_step(&c, HB_STEP_PUBLISH); /* a fresh slot in its place */
        hb_case_normalize(&c);
        assert_int_equal(config_of(&c).n_slots, 2 * each[mode] + (mode > 0));
    }
}

static void a_free_of_two_gives_two_back(void **state) {
    (void)state;
    struct hb_case c;
    hb_case_init(&c);
    c.config.spare_slots = 0;
    hand_take(&c, 0, 0);
    hand_take(&c, 1, 0);
    struct hb_case_step *s = hand_step(&c, HB_STEP_FREE);
    s->slot2 = 1;
    hand_take(&c, 0, 0);
    hand_take(&c, 1, 0);
    hb_case_normalize(&c);
    assert_int_equal(c.step[2].slot2, 1);
    assert_int_equal(config_of(&c).n_slots, 2);
    c.step[2].slot2 = -1;
    hb_case_normalize(&c);
    assert_int_equal(c.step[2].slot2, -1);
    assert_int_equal(config_of(&c).n_slots, 3);
}

static void a_copy_has_two_slots_a_free_may_have_one(void **state) {
    (void)state;
    struct hb_case c;
    hb_case_init(&c);
    hand_take(&c, 0, 0);
    (void)hand_step(&c, HB_STEP_COPY);
    (void)hand_step(&c, HB_STEP_FREE);
    hb_case_normalize(&c);
    assert_int_equal(c.step[1].slot2, 0);
    assert_int_equal(c.step[2].slot2, -1);
}

static void tokens_come_from_one_place(void **state) {
    (void)state;
    struct hb_case c;
    hb_case_init(&c);
    hand_take_track(&c);
    hand_take(&c, 0, 9);
    hand_take(&c, 1, 12);
    c.step[0].match = 3; /* a track slot has no tokens at all */
    c.step[2].match = 0;
    c.step[2].from = 0;
    hb_case_normalize(&c);
    assert_int_equal(c.step[0].match, -1);
    assert_true(c.step[2].match == 0 && c.step[2].from == -1 && c.step[2].prefix == 12);
}

static void ping_pong_rows_name_no_track_slot(void **state) {
    (void)state;
    struct hb_case c;
    hb_case_init(&c);
    hand_take_track(&c);
    hand_take_track(&c);
    hand_take(&c, 0, 0);
    struct hb_case_step *s = hand_forward(&c, HB_MODE_EXTEND);
    hand_track(hand_row(s, 0, 16), 1, 1);
    hb_case_normalize(&c);
    assert_int_equal(c.step[3].row[0].track_slot, 1);
    c.config.ping_pong = HB_PING_PONG_TWO;
    hb_case_normalize(&c);
    assert_true(c.step[3].row[0].track_slot == 0 && c.step[3].row[0].track_point == 1);
}

/* --- bytes and text ------------------------------------------------------------------------------------------------ */

static void full_case(struct hb_case *c) {
    hb_case_init(c);
    c->config.target = HB_TARGET_GRAPH;
    c->config.max_draft = 3;
    c->config.graph_rows = 6;
    c->config.graph_draft = 3;
    c->config.ring_length = 8;
    c->config.ring_owner = HB_RING_COMMIT;
    c->config.virtual_ids = 2;
    c->config.ping_pong = HB_PING_PONG_LAZY;
    c->config.pool_pad = 64;
    struct hb_case_step *s = hand_step(c, HB_STEP_GRAPH_INIT);
    s->bs = 6;
    s->nodes = 3;
    s = hand_step(c, HB_STEP_CAPTURE);
    s->mode = HB_MODE_TARGET_VERIFY;
    s->bs = 4;
    s->nodes = 3;
    s->optional = 128;
    hand_take(c, 3, 5);
    s = hand_forward(c, HB_MODE_DECODE);
    (void)hand_row(s, 3, 1);
    s->replay = 1;
    s->optional = 96;
    s->pad_rows = 3;
    (void)hand_step(c, HB_STEP_PUBLISH);
    (void)hand_step(c, HB_STEP_MOVE);
    s = hand_step(c, HB_STEP_TAKE);
    s->request = 5;
    s->match = 3;
    s->prefix = 7;
    (void)hand_step(c, HB_STEP_FREE);
    hb_case_normalize(c);
}

static void every_new_step_keeps_in_bytes_and_text(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_case back;
    struct hb_error e = {.struct_size = sizeof e};
    uint8_t bytes[HB_CASE_MAX_BYTES];
    full_case(&c);
    const size_t n = hb_case_encode(&c, bytes, sizeof bytes);
    assert_true(n > 0);
    assert_memory_equal(bytes, "HBC3", 4);
    hb_case_decode(bytes, n, &back);
    assert_memory_equal(&back, &c, sizeof c);
    char *text = hb_case_to_json(&c, NULL);
    assert_non_null(text);
    memset(&back, 0, sizeof back);
    assert_int_equal(hb_case_from_json(text, strlen(text), &back, &e), HB_OK);
    assert_memory_equal(&back, &c, sizeof c);
    static const char *const words[] = {"\"graph_init\"", "\"capture\"", "\"publish\"",   "\"move\"",
                                        "\"match\": 3",  "\"replay\": 1", "\"graph\"",   "\"lazy\"",
                                        "\"bs\": 4",      "\"nodes\": 3"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strstr(text, words[i])) {
            fail_msg("%s is missing in %s", words[i], text);
        }
    }
    assert_null(strstr(text, "slot2")); /* one slot is given back */
    free(text);
}

static void another_schema_is_refused_with_both_numbers(void **state) {
    (void)state;
    static const char text[] = "{\"schema\": 2, \"steps\": []}";
    struct hb_case c;
    struct hb_error e = {.struct_size = sizeof e};
    assert_int_equal(hb_case_from_json(text, sizeof text - 1, &c, &e), HB_ERR_PARSE);
    assert_non_null(strstr(e.text, "schema"));
    assert_true(strstr(e.text, "2") && strstr(e.text, "3"));
    assert_true(e.value == 2 && e.limit == HB_CASE_SCHEMA);
}

static void targets_and_step_kinds_have_names(void **state) {
    (void)state;
    static const char *const names[] = {"forward", "dispatch", "verify", "metadata",
                                        "track",   "graph",    "slots",  "attention"};
    assert_int_equal(sizeof names / sizeof *names, HB_N_TARGETS);
    for (int32_t t = 0; t < HB_N_TARGETS; t++) {
        assert_string_equal(hb_target_name(t), names[t]);
    }
    assert_string_equal(hb_target_name(-1), "unknown");
    assert_string_equal(hb_target_name(HB_N_TARGETS), "unknown");
}

/* Breaks of graph_init belong to its step, those of the configuration to none. */
static void graph_breaks_stay_with_their_step(void **state) {
    (void)state;
    struct hb_case c;
    full_case(&c);
    c.n_breaks = 2;
    c.brk[0] = (struct hb_case_break){.step = 0, .field = HB_FIELD_GRAPH_MAX_BS, .value = 3};
    c.brk[1] = (struct hb_case_break){.step = 4, .field = HB_FIELD_CFG_RING, .value = 3};
    hb_case_normalize(&c);
    assert_int_equal(c.brk[0].step, 0);
    assert_int_equal(c.brk[1].step, -1);
}

/* Sixteen large captures and forwards are brought below the limit, nodes of all graphs alike. */
static void the_limit_of_work_counts_captures(void **state) {
    (void)state;
    struct hb_case c;
    hb_case_init(&c);
    c.config.max_draft = HB_MAX_DRAFT;
    c.config.graph_rows = 16;
    c.config.graph_draft = HB_MAX_DRAFT;
    struct hb_case_step *s = hand_step(&c, HB_STEP_GRAPH_INIT);
    s->bs = 16;
    s->nodes = 8;
    for (int32_t i = 1; i < HB_MAX_STEPS; i++) {
        s = hand_step(&c, HB_STEP_CAPTURE);
        s->mode = HB_MODE_TARGET_VERIFY;
        s->bs = 16;
        s->nodes = 8;
    }
    hb_case_normalize(&c);
    int32_t tokens = 0;
    for (int32_t i = 1; i < HB_MAX_STEPS; i++) {
        assert_int_equal(c.step[i].nodes, c.step[0].nodes);
        tokens += c.step[i].bs * c.step[i].nodes;
    }
    assert_in_range(tokens, 1, HB_CASE_MAX_TOKENS);
    const struct hb_case once = c;
    hb_case_normalize(&c);
    assert_memory_equal(&c, &once, sizeof c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_are_off_by_default),
        cmocka_unit_test(the_configuration_follows_the_fields),
        cmocka_unit_test(a_ring_that_commits_own_has_room),
        cmocka_unit_test(what_stands_alone_is_taken_back),
        cmocka_unit_test(captures_make_room_for_themselves),
        cmocka_unit_test(ping_pong_counts_the_slots_of_requests),
        cmocka_unit_test(a_free_of_two_gives_two_back),
        cmocka_unit_test(a_copy_has_two_slots_a_free_may_have_one),
        cmocka_unit_test(tokens_come_from_one_place),
        cmocka_unit_test(ping_pong_rows_name_no_track_slot),
        cmocka_unit_test(every_new_step_keeps_in_bytes_and_text),
        cmocka_unit_test(another_schema_is_refused_with_both_numbers),
        cmocka_unit_test(targets_and_step_kinds_have_names),
        cmocka_unit_test(graph_breaks_stay_with_their_step),
        cmocka_unit_test(the_limit_of_work_counts_captures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
