/* SPDX-License-Identifier: Apache-2.0
 * Life cycle of graphs: graph_init, capture, replay, what they leave and what they refuse; the
 * worked examples of graph.md. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <limits.h>

#include "backend/tests/graph_world.h"

static int32_t init(int32_t max_bs, int32_t max_tokens) {
    return w.a->graph_init(w.h, max_bs, max_tokens, &w.err);
}

static int32_t replay(void) {
    return w.a->replay(w.h, &w.f.batch, &w.err);
}

static void check_values(int64_t value, int64_t limit) {
    if (w.err.value != value || w.err.limit != limit) {
        fail_msg("value %lld limit %lld: %s", (long long)w.err.value, (long long)w.err.limit,
                 w.err.text);
    }
}

static void graph_init_refuses_sizes(void **state) {
    (void)state;
    const struct {
        int32_t max_bs, max_tokens, rule;
        int64_t value, limit;
    } bad[] = {
        {2, 5, HB_RULE_GRAPH_SIZES, 5, 2},
        {6, 7, HB_RULE_GRAPH_SIZES, 7, 6},
        {2, -3, HB_RULE_GRAPH_SIZES, -3, 2},
        {0, 5, HB_RULE_GRAPH_ROWS, 0, GRAPH_ROWS},
        {INT_MIN, INT_MIN, HB_RULE_GRAPH_ROWS, INT_MIN, GRAPH_ROWS},
        {6, 6, HB_RULE_GRAPH_ROWS, 6, GRAPH_ROWS},
        {2, 0, HB_RULE_GRAPH_NODES, 0, GRAPH_DRAFT},
        {2, 12, HB_RULE_GRAPH_NODES, 6, GRAPH_DRAFT},
        {2, -4, HB_RULE_GRAPH_NODES, -2, GRAPH_DRAFT},
    };
    open_world(HB_FP32, 0, 0, 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        check_error(init(bad[i].max_bs, bad[i].max_tokens), bad[i].rule, -1);
        check_values(bad[i].value, bad[i].limit);
    }
    assert_int_equal(init(2, 5), HB_ERR_SHAPE);
    assert_string_equal(w.err.text, "max_num_tokens=5 must be divisible by max_bs=2");
    assert_int_equal(init(GRAPH_ROWS, GRAPH_ROWS * GRAPH_DRAFT), HB_OK);
    check_error(init(2, 5), HB_RULE_GRAPH_TWICE, -1);
    check_values(0, 0);
    assert_int_equal(w.a->graph_init(NULL, 1, 1, &w.err), HB_ERR_NULL);
    assert_int_equal(w.a->capture(NULL, &w.f.batch, &w.err), HB_ERR_NULL);
    assert_int_equal(w.a->replay(NULL, &w.f.batch, &w.err), HB_ERR_NULL);
    assert_int_equal(w.a->capture(w.h, NULL, NULL), HB_ERR_NULL);
    assert_int_equal(w.a->replay(w.h, NULL, NULL), HB_ERR_NULL);
    close_world();
}

static void no_graphs(struct hb_config *c) {
    c->graph_rows = 0;
    c->graph_draft = 0;
}

static void graph_init_refuses_without_graph_rows(void **state) {
    (void)state;
    world_config = no_graphs;
    open_world(HB_FP32, 0, 0, 0);
    world_config = NULL;
    check_error(init(1, 1), HB_RULE_GRAPH_ROWS, -1);
    check_values(1, 0);
    make_capture(HB_MODE_DECODE, 1, 1, 0);
    check_error(w.a->capture(w.h, &w.f.batch, &w.err), HB_RULE_GRAPH_NO_INIT, -1);
    close_world();
}

/* A capture launches and writes its own output, but no other byte: not even slot 0. */
static void capture_writes_no_state(void **state) {
    (void)state;
    static const int32_t modes[] = {HB_MODE_IDLE, HB_MODE_TARGET_VERIFY, HB_MODE_DECODE,
                                    HB_MODE_TARGET_VERIFY, HB_MODE_DECODE};
    open_graph_world(HB_FP32, 0, 0, 0);
    assert_int_equal(init(GRAPH_ROWS, GRAPH_ROWS * 3), HB_OK);
    (void)move_state(dump_a, 0);
    poison_static();
    for (int32_t bs = 1; bs <= GRAPH_ROWS; bs++) {
        const int32_t is_verify = modes[bs - 1] == HB_MODE_TARGET_VERIFY;
        const uint64_t before = w.a->launches(w.h);
        capture(modes[bs - 1], bs, is_verify ? 3 : 1, bs == 2, 7);
        /* the layers ran once: two conv, two SSM, two norms, a store and an attention */
        assert_true(w.a->launches(w.h) - before == (bs == 1 ? 0 : 8));
        for (int32_t l = 0; l < LAYERS; l++) {
            static uint8_t out[TOKENS * 64], zero[TOKENS * 64];
            read_output(&kept[bs].io[l], out);
            assert_memory_equal(out, zero, kept[bs].io[l].io.out.bytes);
        }
    }
    const size_t size = move_state(dump_b, 0);
    assert_memory_equal(dump_a, dump_b, size);
    close_world();
}

/* A fresh world's static buffers: -1 for slots, 0 for the rest. */
static void static_buffers_start_as_padding(void **state) {
    (void)state;
    open_world(HB_FP32, 0, 0, 0);
    for (int64_t i = 0; i < GRAPH_ROWS * GRAPH_ROWS; i++) {
        assert_int_equal(read_word("graph_state_indices", i), -1);
        assert_int_equal(read_word("graph_query_start_loc", i), 0);
        assert_int_equal(read_word("graph_parents", i), 0);
    }
    close_world();
}

static void many_slots(struct hb_config *c) {
    c->n_slots = 42;
}

static void expect_words(const char *name, int64_t first, int32_t n, const int32_t *want) {
    for (int32_t i = 0; i < n; i++) {
        if (read_word(name, first + i) != want[i]) {
            fail_msg("%s[%lld] is %d, not %d", name, (long long)(first + i),
                     read_word(name, first + i), want[i]);
        }
    }
}

/* DECODE of live requests with seq tokens each, after the forward; padding counted from ones. */
static void make_counted(int32_t bs, int32_t n, const int32_t *reqs, const int32_t *seq) {
    fixture_batch(&w.f, HB_MODE_DECODE, 0, NULL, NULL, n, seq, bs - n, bs - n);
    memset(w.f.mask, 0, sizeof(w.f.mask));
    for (int32_t r = 0; r < bs; r++) {
        w.f.req[r] = r < n ? reqs[r] : 0;
        w.f.loc[r] = r < n ? w.f.table[reqs[r] * CONTEXT + seq[r] - 1] : 0;
    }
    fixture_cpu_lens(&w.f);
}

/* graph.md section 4. */
static void replay_worked_example(void **state) {
    (void)state;
    int32_t live[39], track[2];
    world_config = many_slots;
    open_world(HB_FP32, 0, 0, 0);
    world_config = NULL;
    assert_int_equal(w.a->slot_take(w.h, 39, HB_SLOT_LIVE, live, &w.err), HB_OK);
    assert_int_equal(w.a->slot_take(w.h, 2, HB_SLOT_TRACK, track, &w.err), HB_OK);
    assert_int_equal(track[0], 40);
    assert_int_equal(track[1], 41);
    assert_int_equal(w.a->table_set(w.h, 0, 0, &w.err), HB_OK);
    assert_int_equal(w.a->table_set(w.h, 1, 2, &w.err), HB_OK);
    assert_int_equal(w.a->table_set(w.h, 2, 9, &w.err), HB_OK);
    assert_int_equal(w.a->table_set(w.h, 5, 6, &w.err), HB_OK);
    assert_int_equal(init(GRAPH_ROWS, GRAPH_ROWS), HB_OK);
    capture(HB_MODE_DECODE, 4, 1, 0, 7);
    make_counted(4, 2, (const int32_t[]){2, 1}, (const int32_t[]){3, 4});
    w.f.track_indices[0] = 40;
    w.f.track_indices[1] = 41;
    w.f.track_indices[2] = w.f.track_indices[3] = 0;
    w.f.mask[0] = w.f.mask[1] = 1;
    assert_int_equal(replay(), HB_OK);
    expect_words("graph_state_indices", 3 * GRAPH_ROWS, 4, (const int32_t[]){9, 2, -1, -1});
    expect_words("graph_query_start_loc", 3 * (GRAPH_ROWS + 1), 5,
                 (const int32_t[]){0, 1, 2, 2, 2});
    expect_words("graph_track_indices", 0, 4, (const int32_t[]){40, 41, 0, 0});
    expect_words("graph_track_mask", 0, 4, (const int32_t[]){1, 1, 0, 0});
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    make_counted(4, 3, (const int32_t[]){1, 2, 5}, (const int32_t[]){5, 4, 2});
    assert_int_equal(replay(), HB_OK);
    expect_words("graph_state_indices", 3 * GRAPH_ROWS, 4, (const int32_t[]){2, 9, 6, -1});
    expect_words("graph_query_start_loc", 3 * (GRAPH_ROWS + 1), 5,
                 (const int32_t[]){0, 1, 2, 3, 3});
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    close_world();
}

/* graph.md section 3: [5, 1, 1] has two rows of padding, [1, 5] is refused. */
static void replay_counts_trailing_ones(void **state) {
    (void)state;
    open_world(HB_FP32, 0, 0, 0);
    int32_t ids[6];
    assert_int_equal(w.a->slot_take(w.h, 6, HB_SLOT_LIVE, ids, &w.err), HB_OK);
    take(2); /* slot 7 */
    take(4);
    assert_int_equal(w.slot[2], 7);
    assert_int_equal(init(GRAPH_ROWS, GRAPH_ROWS), HB_OK);
    capture(HB_MODE_DECODE, 3, 1, 0, 7);
    capture(HB_MODE_DECODE, 2, 1, 0, 7);
    make_counted(3, 1, (const int32_t[]){2}, (const int32_t[]){5});
    assert_int_equal(w.f.cpu_lens[1], 1);
    assert_int_equal(replay(), HB_OK);
    expect_words("graph_state_indices", 2 * GRAPH_ROWS, 3, (const int32_t[]){7, -1, -1});
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    make_counted(2, 2, (const int32_t[]){2, 4}, (const int32_t[]){1, 5});
    const size_t size = dump(dump_a, sizeof(dump_a));
    check_error(replay(), HB_RULE_PADDING_COUNT, 0);
    check_values(1, 1);
    assert_true(dump(dump_b, sizeof(dump_b)) == size);
    assert_memory_equal(dump_a, dump_b, size);
    w.f.batch.has_num_padding = 1; /* the number is better: a live row may have one token */
    assert_int_equal(replay(), HB_OK);
    expect_words("graph_state_indices", GRAPH_ROWS, 2, (const int32_t[]){7, 8});
    close_world();
}

/* What a refused replay leaves: every byte, and an open forward. */
static void replay_refused_changes_nothing(void **state) {
    (void)state;
    struct io io[LAYERS];
    open_graph_world(HB_FP32, 0, 0, 0);
    assert_int_equal(init(GRAPH_ROWS, GRAPH_ROWS * 3), HB_OK);
    make_capture(HB_MODE_DECODE, 3, 1, 0);
    check_error(replay(), HB_RULE_GRAPH_NOT_CAPTURED, -1);
    capture(HB_MODE_DECODE, 3, 1, 0, 7);
    capture(HB_MODE_TARGET_VERIFY, 2, 3, 1, 7);
    make_step(3, 3, 2, io);
    const struct hb_batch good = w.f.batch;
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    const size_t size = dump(dump_a, sizeof(dump_a));
    const int32_t refused[] = {HB_RULE_GRAPH_MODE_INVALID,   HB_RULE_GRAPH_MODE,
                               HB_RULE_TRACK_INDICES_LENGTH, HB_RULE_GRAPH_CAPACITY,
                               HB_RULE_PADDING_RANGE,        HB_RULE_REQ_RANGE};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct hb_batch *b = &w.f.batch;
        *b = good;
        b->forward_mode = i == 0 ? HB_MODE_DRAFT_EXTEND_V2 : i == 1 ? HB_MODE_IDLE : HB_MODE_DECODE;
        b->mamba_track_indices.len -= i == 2;
        if (i == 3) {
            b->batch_size = b->n_tokens = GRAPH_ROWS + 1;
            b->req_pool_indices.len = b->seq_lens.len = b->seq_lens_cpu.len = b->batch_size;
            b->mamba_track_mask.len = b->mamba_track_indices.len = b->batch_size;
            b->out_cache_loc.len = b->batch_size;
        }
        b->num_padding = i == 4 ? 4 : 0;
        const int32_t req = w.f.req[2];
        w.f.req[2] = i == 5 ? REQS : req;
        check_error(replay(), refused[i], i == 5 ? 2 : -1);
        w.f.req[2] = req;
        assert_true(dump(dump_b, sizeof(dump_b)) == size);
        assert_memory_equal(dump_a, dump_b, size);
    }
    for (int32_t l = 0; l < LAYERS; l++) { /* the begun forward is still open */
        assert_int_equal(w.a->layer(w.h, l, &io[l].io, &w.err), HB_OK);
    }
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    close_world();
}

static void captures_are_refused(void **state) {
    (void)state;
    open_graph_world(HB_FP32, 0, 0, 0);
    make_capture(HB_MODE_DECODE, 2, 1, 0);
    check_error(w.a->capture(w.h, &w.f.batch, &w.err), HB_RULE_GRAPH_NO_INIT, -1);
    assert_int_equal(init(4, 12), HB_OK);
    capture(HB_MODE_DECODE, 2, 1, 0, 7);
    make_capture(HB_MODE_IDLE, 2, 1, 0);
    check_error(w.a->capture(w.h, &w.f.batch, &w.err), HB_RULE_GRAPH_TWICE, -1);
    check_values(2, 0);
    make_capture(HB_MODE_EXTEND, 2, 1, 0);
    check_error(w.a->capture(w.h, &w.f.batch, &w.err), HB_RULE_GRAPH_MODE_INVALID, -1);
    assert_string_equal(w.err.text, "Invalid forward mode: forward_mode=<ForwardMode.EXTEND: 1>");
    make_capture(HB_MODE_DECODE, 5, 1, 0);
    check_error(w.a->capture(w.h, &w.f.batch, &w.err), HB_RULE_GRAPH_CAPACITY, -1);
    check_values(5, 4);
    make_capture(HB_MODE_TARGET_VERIFY, 3, 2, 0);
    check_error(w.a->capture(w.h, &w.f.batch, &w.err), HB_RULE_GRAPH_TOKENS, -1);
    check_values(6, 9);
    close_world();
}

/* The states of a forward: no layer between replay and finish, nothing to finish afterwards. */
static void replay_sees_no_layers(void **state) {
    (void)state;
    struct io io[LAYERS];
    open_graph_world(HB_FP32, 0, 0, 0);
    assert_int_equal(init(GRAPH_ROWS, GRAPH_ROWS * 3), HB_OK);
    capture(HB_MODE_DECODE, 3, 1, 0, 7);
    make_step(3, 2, 0, io);
    const uint64_t before = w.a->launches(w.h);
    assert_int_equal(replay(), HB_OK);
    assert_true(w.a->launches(w.h) == before);
    check_error(w.a->layer(w.h, 0, &io[0].io, &w.err), HB_RULE_NO_METADATA, -1);
    check_error(w.a->entry(w.h, HB_ENTRY_WRAPPER, 0, 1, &io[1].io, &w.err), HB_RULE_NO_METADATA,
                -1);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    assert_true(w.a->launches(w.h) - before == 12); /* 8 of the layers, 4 of tracking */
    check_error(w.a->finish(w.h, &w.err), HB_RULE_NO_METADATA, -1);
    assert_int_equal(replay(), HB_OK); /* a begin takes its place: nothing is launched */
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    const uint64_t between = w.a->launches(w.h);
    assert_int_equal(w.a->layer(w.h, 1, &io[1].io, &w.err), HB_OK);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    assert_true(w.a->launches(w.h) - between == 2);
    close_world();
}

static void unfinished_capture_leaves_no_graph(void **state) {
    (void)state;
    struct io io[LAYERS];
    open_graph_world(HB_FP32, 0, 0, 0);
    assert_int_equal(init(GRAPH_ROWS, GRAPH_ROWS * 3), HB_OK);
    make_capture(HB_MODE_DECODE, 3, 1, 0);
    assert_int_equal(w.a->capture(w.h, &w.f.batch, &w.err), HB_OK);
    capture(HB_MODE_DECODE, 2, 1, 0, 7);
    kept[3] = (struct kept){.mode = HB_MODE_DECODE, .draft = 1};
    make_step(3, 2, 0, io);
    check_error(replay(), HB_RULE_GRAPH_NOT_CAPTURED, -1);
    for (int32_t l = 0; l < LAYERS; l++) {
        free_io(&io[l]);
    }
    capture(HB_MODE_DECODE, 3, 1, 0, 7);
    assert_int_equal(count_differences(3, 2, 0), 0);
    assert_int_equal(count_differences(2, 1, 0), 0);
    close_world();
}

/* Only captured layers run: the others' states and outputs stay. */
static void replay_runs_captured_layers(void **state) {
    (void)state;
    struct io io[LAYERS];
    static uint8_t out[TOKENS * 64];
    open_graph_world(HB_FP32, 0, 0, 0);
    assert_int_equal(init(GRAPH_ROWS, GRAPH_ROWS * 3), HB_OK);
    capture(HB_MODE_DECODE, 2, 1, 0, 4); /* layer 2 */
    make_step(2, 2, 0, io);
    memset(w.f.mask, 0, sizeof(w.f.mask));
    const uint64_t before = w.a->launches(w.h);
    assert_int_equal(replay(), HB_OK);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    assert_true(w.a->launches(w.h) - before == 5); /* conv, SSM, norm, tracking of two pools */
    read_output(&kept[2].io[0], out);
    assert_int_equal(out[0], 0xff); /* fresh memory */
    close_world();
}

/* Verify, commit; and a capture of a verify is none. */
static void commit_follows_a_replay(void **state) {
    (void)state;
    struct io io[LAYERS];
    open_graph_world(HB_FP32, 0, 0, 0);
    assert_int_equal(init(GRAPH_ROWS, GRAPH_ROWS * 3), HB_OK);
    capture(HB_MODE_TARGET_VERIFY, 2, 3, 0, 7);
    struct plan p = plan_of(1, 1, -1, -1);
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1);
    make_step(2, 1, 0, io);
    const int32_t req = w.f.req[0];
    for (int32_t l = 0; l < LAYERS; l++) {
        copy_inputs(&io[l], &kept[2].io[l]);
    }
    assert_int_equal(replay(), HB_OK);
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    assert_true(state_is(w.slot[req], req, w.pos[req]));
    p = plan_of(2, 1, 7, -1); /* the second row is padding: its step is not looked at */
    commit_ok(p, 0);
    assert_true(state_is(w.slot[req], req, w.pos[req] + 2));
    p.step[0] = 3;
    check_error(commit(&p, 0), HB_RULE_COMMIT_STEP_RANGE, 0);
    capture(HB_MODE_DECODE, 1, 1, 0, 7); /* ends the verify */
    check_error(commit(&p, 0), HB_RULE_NO_VERIFY, -1);
    close_world();
}

static void with_ring(struct hb_config *c) {
    c->ring_length = 4;
    c->track_interval = 6;
}

/* Rule 116 asks at the capture; its replays advance all cursors. */
static void ring_capture_needs_every_layer(void **state) {
    (void)state;
    world_config = with_ring;
    open_graph_world(HB_FP32, 0, 0, 0);
    world_config = NULL;
    assert_int_equal(init(GRAPH_ROWS, GRAPH_ROWS * 3), HB_OK);
    make_capture(HB_MODE_DECODE, 2, 1, 0);
    assert_int_equal(w.a->capture(w.h, &w.f.batch, &w.err), HB_OK);
    make_io(&kept[2].io[0], 0, 0, NULL);
    make_io(&kept[2].io[2], 2, 0, NULL);
    assert_int_equal(w.a->layer(w.h, 0, &kept[2].io[0].io, &w.err), HB_OK);
    check_error(w.a->finish(w.h, &w.err), HB_RULE_RING_LAYERS, -1);
    check_values(2, 0);
    assert_int_equal(w.a->layer(w.h, 2, &kept[2].io[2].io, &w.err), HB_OK);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    for (int32_t i = 0; i <= SLOTS; i++) {
        assert_int_equal(read_word("write_pos", i), 0);
    }
    close_world();
}

/* Allocation faults of create with graphs are in test_adapter_native.c; here, none happens later.
 */
static void graphs_take_no_device_memory(void **state) {
    (void)state;
    struct io io[LAYERS];
    open_graph_world(HB_FP32, 0, 0, 0);
    assert_int_equal(init(GRAPH_ROWS, GRAPH_ROWS * 3), HB_OK);
    kept[3] = (struct kept){.mode = HB_MODE_DECODE, .draft = 1};
    make_step(3, 2, 0, io);
    hb_alloc_fail_after(0);
    const struct hb_batch step = w.f.batch;
    make_capture(HB_MODE_DECODE, 3, 1, 0);
    assert_int_equal(w.a->capture(w.h, &w.f.batch, &w.err), HB_OK);
    for (int32_t l = 0; l < LAYERS; l++) {
        assert_int_equal(w.a->layer(w.h, l, &io[l].io, &w.err), HB_OK);
    }
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    w.f.batch = step;
    assert_int_equal(replay(), HB_OK);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    hb_alloc_fail_after(-1);
    close_world();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graph_init_refuses_sizes),
        cmocka_unit_test(graph_init_refuses_without_graph_rows),
        cmocka_unit_test(capture_writes_no_state),
        cmocka_unit_test(static_buffers_start_as_padding),
        cmocka_unit_test(replay_worked_example),
        cmocka_unit_test(replay_counts_trailing_ones),
        cmocka_unit_test(replay_refused_changes_nothing),
        cmocka_unit_test(captures_are_refused),
        cmocka_unit_test(replay_sees_no_layers),
        cmocka_unit_test(unfinished_capture_leaves_no_graph),
        cmocka_unit_test(replay_runs_captured_layers),
        cmocka_unit_test(commit_follows_a_replay),
        cmocka_unit_test(ring_capture_needs_every_layer),
        cmocka_unit_test(graphs_take_no_device_memory),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
