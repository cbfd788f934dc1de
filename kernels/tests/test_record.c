/* SPDX-License-Identifier: Apache-2.0
 * Graphs of recorded launches and fills, on every table that opens: what is kept of the recording
 * and what is read at the replay. */
#include "kernels/tests/rig.h"

#include <stdio.h>

#include "kernels/emu/emu.h"
#include "kernels/emu/graph.h"

enum { SLOT_WORDS = 4, N_SLOTS = 5, N_WORDS = SLOT_WORDS * N_SLOTS };

/* A pool of five slots of four words, and a copy of one slot to another. */
struct world {
    struct rig rig;
    int32_t *pool, *src, *dst;
    struct hb_k_slots args;
};

static int open_copy(struct world *w, int table) {
    int32_t words[N_WORDS];
    const int32_t from = 1, to = 3;
    if (!rig_open(&w->rig, table, 1)) {
        return 0;
    }
    for (int32_t i = 0; i < N_WORDS; i++) {
        words[i] = 100 + i;
    }
    w->pool = rig_device(&w->rig, words, sizeof words);
    w->src = rig_device(&w->rig, &from, sizeof from);
    w->dst = rig_device(&w->rig, &to, sizeof to);
    memset(&w->args, 0, sizeof w->args);
    w->args.n_pairs = 1;
    w->args.slot_bytes = SLOT_WORDS * sizeof(int32_t);
    w->args.src = w->src;
    w->args.dst = w->dst;
    w->args.pool = w->pool;
    return 1;
}

static int32_t word(struct world *w, int32_t i) {
    int32_t *words = rig_host(&w->rig, w->pool, N_WORDS * sizeof(int32_t));
    const int32_t value = words[i];
    free(words);
    return value;
}

/* Records the copy, after a fill of slot 1 where there is one. */
static void *record(struct world *w, int32_t has_fill) {
    void *graph = NULL;
    assert_int_equal(w->rig.k->graph_begin(), HB_OK);
    if (has_fill) {
        assert_int_equal(w->rig.k->fill(w->pool + SLOT_WORDS, 7, w->args.slot_bytes), HB_OK);
    }
    assert_int_equal(w->rig.k->slots(&w->args), HB_OK);
    assert_int_equal(w->rig.k->graph_end(&graph), HB_OK);
    assert_non_null(graph);
    return graph;
}

static void recorded_equals_direct(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct world w;
        if (!open_copy(&w, table)) {
            continue;
        }
        void *graph = record(&w, 1);
        assert_int_equal(word(&w, SLOT_WORDS), 104); /* nothing has run */
        assert_int_equal(word(&w, 3 * SLOT_WORDS), 112);
        for (int32_t i = 0; i < 2; i++) {
            assert_int_equal(w.rig.k->graph_launch(graph), HB_OK);
            assert_int_equal(word(&w, SLOT_WORDS), 0x07070707); /* in the order of the recording */
            assert_int_equal(word(&w, 3 * SLOT_WORDS + 3), 0x07070707);
            assert_int_equal(word(&w, 4 * SLOT_WORDS), 116);
        }
        w.rig.k->graph_free(graph);
        w.rig.k->graph_free(NULL);
        rig_close(&w.rig);
    }
}

/* A number in an argument struct is that of the recording, whatever its owner does with it later.
 */
static void arguments_are_those_of_the_recording(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct world w;
        if (!open_copy(&w, table)) {
            continue;
        }
        void *graph = record(&w, 0);
        memset(&w.args, 0xee, sizeof w.args);
        assert_int_equal(w.rig.k->graph_launch(graph), HB_OK);
        assert_int_equal(word(&w, 3 * SLOT_WORDS), 104);
        w.rig.k->graph_free(graph);
        rig_close(&w.rig);
    }
}

/* What a pointer leads to is read at the replay. */
static void pointers_are_followed_at_the_replay(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct world w;
        const int32_t other = 2, none = -1;
        if (!open_copy(&w, table)) {
            continue;
        }
        void *graph = record(&w, 0);
        rig_rewrite(&w.rig, w.src, &other, sizeof other);
        assert_int_equal(w.rig.k->graph_launch(graph), HB_OK);
        assert_int_equal(word(&w, 3 * SLOT_WORDS), 108);
        rig_rewrite(&w.rig, w.src, &none, sizeof none);
        rig_rewrite(&w.rig, w.dst, &other, sizeof other);
        assert_int_equal(w.rig.k->graph_launch(graph), HB_OK);
        assert_int_equal(word(&w, 2 * SLOT_WORDS), 108); /* a pair that is skipped */
        w.rig.k->graph_free(graph);
        rig_close(&w.rig);
    }
}

static void pairs_without_their_mask_are_skipped(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct world w;
        const int32_t on = 1, off = 0;
        if (!open_copy(&w, table)) {
            continue;
        }
        int32_t *mask = rig_device(&w.rig, &off, sizeof off);
        w.args.mask = mask;
        assert_int_equal(w.rig.k->slots(&w.args), HB_OK);
        assert_int_equal(word(&w, 3 * SLOT_WORDS), 112);
        rig_rewrite(&w.rig, mask, &on, sizeof on);
        assert_int_equal(w.rig.k->slots(&w.args), HB_OK);
        assert_int_equal(word(&w, 3 * SLOT_WORDS), 104);
        rig_close(&w.rig);
    }
}

static void replayed_launches_are_counted(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct world w;
        void *graph = NULL;
        if (!open_copy(&w, table)) {
            continue;
        }
        const struct hb_kernels *k = w.rig.k;
        const uint64_t before = k->launches();
        assert_int_equal(k->graph_begin(), HB_OK);
        for (int32_t i = 0; i < 40; i++) {
            assert_int_equal(k->slots(&w.args), HB_OK);
        }
        assert_int_equal(k->graph_end(&graph), HB_OK);
        assert_true(k->launches() == before);
        assert_int_equal(k->graph_launch(graph), HB_OK);
        assert_true(k->launches() == before + 40);
        k->graph_free(graph);
        assert_int_equal(k->graph_begin(), HB_OK); /* nothing recorded: a graph that does nothing */
        assert_int_equal(k->graph_end(&graph), HB_OK);
        assert_int_equal(k->graph_launch(graph), HB_OK);
        assert_true(k->launches() == before + 40);
        k->graph_free(graph);
        rig_close(&w.rig);
    }
}

static void recordings_do_not_nest(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct world w;
        void *graph = &w;
        if (!open_copy(&w, table)) {
            continue;
        }
        const struct hb_kernels *k = w.rig.k;
        assert_int_equal(k->graph_end(&graph), HB_ERR_DEVICE);
        assert_string_equal(k->error_text(), "no graph is being recorded");
        assert_ptr_equal(graph, &w);
        assert_int_equal(k->graph_begin(), HB_OK);
        assert_int_equal(k->graph_begin(), HB_ERR_DEVICE);
        assert_string_equal(k->error_text(), "a graph is being recorded");
        assert_int_equal(k->slots(&w.args), HB_OK); /* the first one goes on */
        assert_int_equal(k->graph_end(&graph), HB_OK);
        assert_int_equal(k->graph_launch(graph), HB_OK);
        assert_int_equal(word(&w, 3 * SLOT_WORDS), 104);
        k->graph_free(graph);
        rig_close(&w.rig);
    }
}

/* What fails, or cannot be recorded: number i. */
static int32_t break_recording(struct world *w, int32_t i, void *other) {
    const struct hb_kernels *k = w->rig.k;
    int32_t value = 0;
    void *ptr = NULL;
    struct hb_k_ssm_verify large = {.ssm = {.rows = {.n_rows = 1},
                                            .n_heads = 1,
                                            .head_dim = 1,
                                            .state_size = HB_MAX_STATE_SIZE + 1}};
    switch (i) {
    case 0:
        return k->to_device(w->pool, &value, sizeof value);
    case 1:
        return k->to_host(&value, w->pool, sizeof value);
    case 2:
        return k->mem_alloc(16, &ptr);
    case 3:
        return k->sync();
    case 4:
        return k->graph_launch(other);
    default:
        return k->ssm_verify(&large);
    }
}

static void failures_leave_no_graph(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct world w;
        if (!open_copy(&w, table)) {
            continue;
        }
        const struct hb_kernels *k = w.rig.k;
        void *other = record(&w, 0);
        for (int32_t i = 0; i < 6; i++) {
            void *graph = &w;
            char text[256];
            assert_int_equal(k->graph_begin(), HB_OK);
            assert_int_equal(k->slots(&w.args), HB_OK);
            assert_int_equal(break_recording(&w, i, other), HB_ERR_DEVICE);
            (void)snprintf(text, sizeof text, "%s", k->error_text());
            assert_true(text[0] != '\0');
            assert_int_equal(k->graph_end(&graph), HB_ERR_DEVICE);
            assert_ptr_equal(graph, &w);
            assert_string_equal(k->error_text(), text);
            assert_int_equal(word(&w, 3 * SLOT_WORDS), 112); /* and nothing has run */
        }
        assert_int_equal(k->graph_launch(other), HB_OK); /* a new recording starts clean */
        assert_int_equal(word(&w, 3 * SLOT_WORDS), 104);
        k->graph_free(other);
        other = record(&w, 1);
        k->graph_free(other);
        rig_close(&w.rig);
    }
}

/* A launch that the emulated device refuses. */
static void no_kernel(const void *args) {
    (void)args;
}

static void refused_launches_leave_no_graph(void **state) {
    (void)state;
    const struct hb_emu_launch large = {"large", no_kernel, NULL,           {1, 1, 1},
                                        1025,    0,         HB_EMU_NO_SYNC, 0};
    void *graph = NULL;
    assert_int_equal(hb_emu_graph_begin(), HB_OK);
    assert_int_equal(hb_emu_run(&large), HB_ERR_DEVICE);
    assert_int_equal(hb_emu_graph_end(&graph), HB_ERR_DEVICE);
    assert_null(graph);
    assert_non_null(strstr(hb_emu_error_text(), "invalid launch"));
}

/* Each thread notes when it ran. */
struct trace {
    int32_t *order;
    int32_t *n;
};

static void trace_kernel(const void *args) {
    const struct trace *t = args;
    t->order[(*t->n)++] = (int32_t)hb_emu_thread_idx.x;
}

static void orders_are_those_of_the_replay(void **state) {
    (void)state;
    int32_t order[4], n = 0;
    struct trace args = {order, &n};
    const struct hb_emu_launch launch = {"trace", trace_kernel,   &args,      {1, 1, 1}, 4,
                                         0,       HB_EMU_NO_SYNC, sizeof args};
    void *graph = NULL;
    hb_emu_set_order(HB_ORDER_ASCENDING, HB_ORDER_ASCENDING, 1);
    assert_int_equal(hb_emu_graph_begin(), HB_OK);
    assert_int_equal(hb_emu_run(&launch), HB_OK);
    assert_int_equal(hb_emu_graph_end(&graph), HB_OK);
    memset(&args, 0, sizeof args);
    hb_emu_set_order(HB_ORDER_DESCENDING, HB_ORDER_ASCENDING, 1);
    assert_int_equal(hb_emu_graph_launch(graph), HB_OK);
    assert_int_equal(n, 4);
    assert_int_equal(order[0], 3);
    hb_emu_set_order(HB_ORDER_ASCENDING, HB_ORDER_ASCENDING, 1);
    n = 0;
    assert_int_equal(hb_emu_graph_launch(graph), HB_OK);
    assert_int_equal(order[0], 0);
    hb_emu_graph_free(graph);
}

/* The norm leaves tokens of padding rows alone. */
static void norm_skips_padding_rows(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct rig rig;
        const int32_t slots[3] = {4, -1, 2};
        const float ones[6] = {1, 1, 1, 1, 1, 1};
        const float zeros[6] = {0};
        if (!rig_open(&rig, table, 1)) {
            continue;
        }
        float *out = rig_device(&rig, zeros, sizeof zeros);
        const struct hb_k_norm args = {.n_tokens = 6,
                                       .d_inner = 1,
                                       .norm_group = 1,
                                       .gate_norm = HB_GATE_NORM_NONE,
                                       .y = rig_device(&rig, ones, sizeof ones),
                                       .z = rig_device(&rig, ones, sizeof ones),
                                       .out = out,
                                       .slots = rig_device(&rig, slots, sizeof slots),
                                       .row_tokens = 2};
        assert_int_equal(rig.k->gated_norm(&args), HB_OK);
        float *got = rig_host(&rig, out, sizeof zeros);
        for (int32_t t = 0; t < 6; t++) {
            assert_true(got[t] == (t / 2 == 1 ? 0.0F : 1.0F));
        }
        free(got);
        rig_close(&rig);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_equals_direct),
        cmocka_unit_test(arguments_are_those_of_the_recording),
        cmocka_unit_test(pointers_are_followed_at_the_replay),
        cmocka_unit_test(pairs_without_their_mask_are_skipped),
        cmocka_unit_test(replayed_launches_are_counted),
        cmocka_unit_test(recordings_do_not_nest),
        cmocka_unit_test(failures_leave_no_graph),
        cmocka_unit_test(refused_launches_leave_no_graph),
        cmocka_unit_test(orders_are_those_of_the_replay),
        cmocka_unit_test(norm_skips_padding_rows),
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
