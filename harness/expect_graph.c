/* SPDX-License-Identifier: Apache-2.0
 * Predicted status of graph_init, capture and replay, and the checks that only graphs have
 * (graph.md sections 1, 3 and 5). */
#include "harness/expect_internal.h"

enum { GRAPH_MODES = 1 << HB_MODE_DECODE | 1 << HB_MODE_IDLE | 1 << HB_MODE_TARGET_VERIFY };

static int is_captured(const struct hb_graph_phase *graphs, int64_t rows) {
    return rows >= 1 && rows <= graphs->max_bs && rows <= HB_MAX_GRAPH_ROWS &&
           graphs->set[rows].is_captured;
}

/* Rows of padding of a replay; a num_padding that PADDING_RANGE refuses counts as all rows. */
static int32_t padding_of(const struct hb_batch *batch) {
    const struct hb_i32s *mirror = &batch->seq_lens_cpu;
    int32_t rows = batch->batch_size;
    int32_t count = 0;
    if (batch->has_num_padding) {
        int fits = batch->num_padding >= 0 && batch->num_padding <= rows;
        return fits ? batch->num_padding : rows;
    }
    for (int32_t r = 0; mirror->data != NULL && r < rows && r < mirror->len; r++) {
        count += mirror->data[r] == HB_PAD_SEQ_LEN;
    }
    return count;
}

int32_t hb_expect_real_rows(const struct hb_batch *batch, int32_t is_replay) {
    if (!is_replay) {
        return batch->has_original_batch_size ? batch->original_batch_size : batch->batch_size;
    }
    return batch->forward_mode == HB_MODE_IDLE ? 0 : batch->batch_size - padding_of(batch);
}

/* ---- STATE ---- */

HB_EXPECT_CHECK(graph_absent) {
    (void)c;
    return v->graphs->max_bs < 1 && report(f, -1, 0, 0);
}

HB_EXPECT_CHECK(captured_before) {
    int64_t rows = v->count[COUNT_BATCH];
    (void)c;
    return is_captured(v->graphs, rows) && report(f, -1, rows, 0);
}

HB_EXPECT_CHECK(not_captured) {
    int64_t rows = v->count[COUNT_BATCH];
    (void)c;
    return rows >= 1 && rows <= v->graphs->max_bs && !is_captured(v->graphs, rows) &&
           report(f, -1, rows, 0);
}

/* Batch sizes that no graph can have are GRAPH_CAPACITY's. */
HB_EXPECT_CHECK(captured_mode_differs) {
    int64_t rows = v->count[COUNT_BATCH];
    (void)c;
    return is_captured(v->graphs, rows) && v->batch->forward_mode != v->graphs->set[rows].mode &&
           report(f, -1, v->batch->forward_mode, v->graphs->set[rows].mode);
}

HB_EXPECT_CHECK(captured_links_differ) {
    int64_t rows = v->count[COUNT_BATCH];
    int given = v->array[ARRAY_NEXT].data != NULL && v->array[ARRAY_SIBLING].data != NULL;
    (void)c;
    return is_captured(v->graphs, rows) && given != (v->graphs->set[rows].has_links != 0) &&
           report(f, -1, given, !given);
}

/* ---- SHAPE ---- */

/* A refresh copies the first B destinations, tracked or not. */
HB_EXPECT_CHECK(track_short) {
    const struct hb_expect_array *a = &v->array[c->array];
    int64_t count = v->count[c->count];
    return a->data != NULL && a->len < count && report(f, -1, a->len, count);
}

HB_EXPECT_CHECK(graph_tokens_differ) {
    int64_t nodes = (v->holds & ON_VERIFY) != 0 ? v->graphs->draft : 1;
    int64_t want = v->count[COUNT_BATCH] * nodes;
    (void)c;
    return v->count[COUNT_TOKENS] != want && report(f, -1, v->count[COUNT_TOKENS], want);
}

HB_EXPECT_CHECK(graph_draft_differs) {
    (void)c;
    return v->batch->draft_token_num != v->graphs->draft &&
           report(f, -1, v->batch->draft_token_num, v->graphs->draft);
}

/* ---- CAPACITY ---- */

HB_EXPECT_CHECK(graph_rows_outside) {
    int64_t rows = v->count[COUNT_BATCH];
    (void)c;
    return (rows < 1 || rows > v->graphs->max_bs) && report(f, -1, rows, v->graphs->max_bs);
}

/* ---- RANGE ---- */

HB_EXPECT_CHECK(padding_outside) {
    int64_t rows = v->count[COUNT_BATCH];
    int64_t padding = v->batch->num_padding;
    (void)c;
    return v->batch->has_num_padding && (padding < 0 || padding > rows) &&
           report(f, -1, padding, rows);
}

/* Counted padding must be the last rows: else a live row would be poisoned. */
HB_EXPECT_CHECK(padding_inside) {
    int64_t first = -1;
    (void)c;
    if (v->batch->has_num_padding || v->array[ARRAY_SEQ_CPU].data == NULL) {
        return 0;
    }
    for (int64_t r = 0; r < v->count[COUNT_BATCH]; r++) {
        int is_padding = at32(v, ARRAY_SEQ_CPU, r) == HB_PAD_SEQ_LEN;
        if (first >= 0 && !is_padding) {
            return report(f, first, HB_PAD_SEQ_LEN, r);
        }
        first = is_padding && first < 0 ? r : first;
    }
    return 0;
}

/* ---- UNSUPPORTED ---- */

HB_EXPECT_CHECK(layout_in_graph) {
    (void)c;
    return v->batch->ragged_verify_layout.data != NULL && report(f, -1, 0, 0);
}

/* ---- the calls ---- */

void hb_expect_graph_init(const struct hb_config *config, const struct hb_graph_phase *graphs,
                          int32_t max_bs, int32_t max_tokens, struct hb_error *e) {
    hb_error_clear(e);
    if (graphs->max_bs > 0) {
        (void)hb_fail(e, HB_RULE_GRAPH_TWICE, -1, 0, 0);
        return;
    }
    if (max_bs >= 1 && max_tokens % max_bs != 0) {
        (void)hb_fail(e, HB_RULE_GRAPH_SIZES, -1, max_tokens, max_bs);
        return;
    }
    if (max_bs < 1 || max_bs > config->graph_rows) {
        (void)hb_fail(e, HB_RULE_GRAPH_ROWS, -1, max_bs, config->graph_rows);
        return;
    }
    int32_t nodes = max_tokens / max_bs;
    if (nodes < 1 || nodes > config->graph_draft) {
        (void)hb_fail(e, HB_RULE_GRAPH_NODES, -1, nodes, config->graph_draft);
    }
}

void hb_expect_capture(const struct hb_config *config, const struct hb_caps *caps,
                       const struct hb_slot_model *slots, const struct hb_graph_phase *graphs,
                       const struct hb_batch *batch, struct hb_error *e) {
    const struct hb_expect_context context = {config, caps, slots, graphs, BY_CAPTURE};
    hb_expect_judge(&context, batch, HB_RULE_GRAPH_MODE_INVALID, GRAPH_MODES, e);
}

void hb_expect_replay(const struct hb_config *config, const struct hb_caps *caps,
                      const struct hb_slot_model *slots, const struct hb_graph_phase *graphs,
                      const struct hb_batch *batch, struct hb_error *e) {
    const struct hb_expect_context context = {config, caps, slots, graphs, BY_REPLAY};
    hb_expect_judge(&context, batch, HB_RULE_GRAPH_MODE_INVALID, GRAPH_MODES, e);
}
