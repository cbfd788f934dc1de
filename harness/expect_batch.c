/* SPDX-License-Identifier: Apache-2.0
 * Predicted status of begin, capture and replay: one table of checks in ascending rule number
 * (forward-batch.md section 4, tracking.md section 6, speculative.md sections 1-3, graph.md section
 * 5, contracts.md section 3). A check may rely on every check above it that applies in the same
 * call: array lengths fit once the SHAPE rules have passed. */
#include "harness/expect_internal.h"

#include <string.h>

/* ---- NULL ---- */

static HB_EXPECT_CHECK(array_absent) {
    int64_t count = v->count[c->count];
    return v->array[c->array].data == NULL && count > 0 && report(f, -1, 0, count);
}

static HB_EXPECT_CHECK(extend_num_absent) {
    (void)c;
    return !v->batch->has_extend_num_tokens && report(f, -1, 0, 0);
}

static HB_EXPECT_CHECK(track_array_absent) {
    return v->array[c->array].data == NULL && report(f, v->first_masked, 0, 0);
}

/* ---- SHAPE ---- */

static HB_EXPECT_CHECK(count_negative) {
    return v->count[c->count] < 0 && report(f, -1, v->count[c->count], 0);
}

static HB_EXPECT_CHECK(extend_rows_misfit) {
    int64_t np = v->count[COUNT_EXTEND];
    int fits = (v->holds & IF_MIXED) != 0 ? np >= 0 && np <= v->real_rows : np == v->real_rows;
    (void)c;
    return !fits && report(f, -1, np, v->real_rows);
}

static HB_EXPECT_CHECK(length_differs) {
    const struct hb_expect_array *a = &v->array[c->array];
    int64_t count = v->count[c->count];
    return a->data != NULL && a->len != count && report(f, -1, a->len, count);
}

static HB_EXPECT_CHECK(extend_cpu_differs) {
    (void)c;
    if (v->array[ARRAY_EXTEND_CPU].data == NULL) {
        return 0;
    }
    for (int64_t r = 0; r < v->count[COUNT_EXTEND]; r++) {
        int64_t mirror = at32(v, ARRAY_EXTEND_CPU, r);
        int64_t want = at32(v, ARRAY_EXTEND, r);
        if (mirror != want) {
            return report(f, r, mirror, want);
        }
    }
    return 0;
}

static HB_EXPECT_CHECK(start_loc_differs) {
    int64_t sum = 0;
    (void)c;
    if (v->array[ARRAY_START].data == NULL) {
        return 0;
    }
    for (int64_t r = 0; r < v->count[COUNT_EXTEND]; r++) {
        int64_t start = at32(v, ARRAY_START, r);
        if (start != sum) {
            return report(f, r, start, sum);
        }
        sum += at32(v, ARRAY_EXTEND, r);
    }
    return 0;
}

static HB_EXPECT_CHECK(extend_num_differs) {
    int64_t given = v->batch->extend_num_tokens;
    (void)c;
    return given != v->n_extended && report(f, -1, given, v->n_extended);
}

static HB_EXPECT_CHECK(tokens_short) {
    int64_t given = v->count[COUNT_TOKENS];
    (void)c;
    return given < v->real_tokens && report(f, -1, given, v->real_tokens);
}

static HB_EXPECT_CHECK(token_rows_differ) {
    int64_t rows = v->batch->req_to_token_rows;
    int64_t want = v->slots->req_pool_size;
    (void)c;
    return v->array[ARRAY_TOKENS].data != NULL && rows != want && report(f, -1, rows, want);
}

static HB_EXPECT_CHECK(token_cols_differ) {
    int64_t rows = v->batch->req_to_token_rows;
    int64_t cols = v->batch->req_to_token_cols;
    int64_t want = v->config->max_context;
    const struct hb_expect_array *a = &v->array[ARRAY_TOKENS];
    (void)c;
    if (a->data == NULL) {
        return 0;
    }
    if (cols != want) {
        return report(f, -1, cols, want);
    }
    return a->len != rows * cols && report(f, -1, a->len / (rows > 1 ? rows : 1), want);
}

/* ---- CAPACITY ---- */

static HB_EXPECT_CHECK(over_capacity) {
    int32_t most = c->count == COUNT_BATCH ? v->config->max_batch : v->config->max_tokens;
    return v->count[c->count] > most && report(f, -1, v->count[c->count], most);
}

/* clang-format off */
#define ROW(rule, calls, when, check, array, count)                                                \
    {HB_RULE_##rule, calls, when, hb_expect_##check, array, count}
static const struct hb_expect_check CHECKS[] = {
    ROW(GRAPH_NO_INIT, BY_GRAPH, ON_ALL, graph_absent, 0, 0),
    ROW(GRAPH_TWICE, BY_CAPTURE, ON_ALL, captured_before, 0, 0),
    ROW(GRAPH_NOT_CAPTURED, BY_REPLAY, ON_ALL, not_captured, 0, 0),
    ROW(GRAPH_MODE, BY_REPLAY, ON_ALL, captured_mode_differs, 0, 0),
    ROW(GRAPH_LINKS, BY_REPLAY, ON_VERIFY, captured_links_differ, 0, 0),
    ROW(REQ_NULL, BY_RUN, ON_ROWS, array_absent, ARRAY_REQ, COUNT_BATCH),
    ROW(SEQ_LENS_NULL, BY_RUN, ON_ROWS, array_absent, ARRAY_SEQ, COUNT_BATCH),
    ROW(EXTEND_LENS_NULL, BY_BEGIN, ON_EXTEND, array_absent, ARRAY_EXTEND, COUNT_EXTEND),
    ROW(PREFIX_LENS_NULL, BY_BEGIN, ON_EXTEND, array_absent, ARRAY_PREFIX, COUNT_EXTEND),
    ROW(EXTEND_NUM_NULL, BY_BEGIN, ON_EXTEND, extend_num_absent, 0, 0),
    ROW(TRACK_INDICES_NULL, BY_RUN, ON_TRACKS | IF_MASKED, track_array_absent, ARRAY_TRACK, 0),
    ROW(TRACK_LENS_NULL, BY_BEGIN, ON_EXTEND | IF_MASKED, track_array_absent, ARRAY_TRACK_LEN, 0),
    ROW(CACHE_LOC_NULL, BY_RUN, ON_ROWS | IF_ATTENTION, array_absent, ARRAY_LOC, COUNT_TOKENS),
    ROW(REQ_TO_TOKEN_NULL, BY_RUN, ON_ROWS | IF_ATTENTION, array_absent, ARRAY_TOKENS, COUNT_BATCH),
    ROW(LINKS_NULL, BY_ANY, ON_VERIFY, one_link_array, 0, 0),
    ROW(BATCH_NEGATIVE, BY_ANY, ON_ANY, count_negative, 0, COUNT_BATCH),
    ROW(TOKENS_NEGATIVE, BY_ANY, ON_ANY, count_negative, 0, COUNT_TOKENS),
    ROW(N_EXTEND_ROWS, BY_BEGIN, ON_EXTEND, extend_rows_misfit, 0, 0),
    ROW(REQ_LENGTH, BY_RUN, ON_ROWS, length_differs, ARRAY_REQ, COUNT_BATCH),
    ROW(SEQ_LENS_LENGTH, BY_RUN, ON_ROWS, length_differs, ARRAY_SEQ, COUNT_BATCH),
    ROW(EXTEND_LENS_LENGTH, BY_BEGIN, ON_EXTEND, length_differs, ARRAY_EXTEND, COUNT_EXTEND),
    ROW(EXTEND_CPU_LENGTH, BY_BEGIN, ON_EXTEND, length_differs, ARRAY_EXTEND_CPU, COUNT_EXTEND),
    ROW(EXTEND_CPU_VALUE, BY_BEGIN, ON_EXTEND, extend_cpu_differs, 0, 0),
    ROW(PREFIX_LENS_LENGTH, BY_BEGIN, ON_EXTEND, length_differs, ARRAY_PREFIX, COUNT_EXTEND),
    ROW(START_LOC_LENGTH, BY_BEGIN, ON_EXTEND, length_differs, ARRAY_START, COUNT_EXTEND),
    ROW(START_LOC_VALUE, BY_BEGIN, ON_EXTEND, start_loc_differs, 0, 0),
    ROW(EXTEND_NUM_VALUE, BY_BEGIN, ON_EXTEND, extend_num_differs, 0, 0),
    ROW(TOKENS_SHORT, BY_BEGIN, ON_TRACKS, tokens_short, 0, 0),
    ROW(TRACK_MASK_LENGTH, BY_RUN, ON_ROWS, length_differs, ARRAY_MASK, COUNT_BATCH),
    ROW(TRACK_INDICES_LENGTH, BY_BEGIN, ON_TRACKS | IF_MASKED, length_differs, ARRAY_TRACK, COUNT_BATCH),
    ROW(TRACK_INDICES_LENGTH, BY_REPLAY, ON_DECODE, track_short, ARRAY_TRACK, COUNT_BATCH),
    ROW(TRACK_LENS_LENGTH, BY_BEGIN, ON_EXTEND | IF_MASKED, length_differs, ARRAY_TRACK_LEN, COUNT_BATCH),
    ROW(CACHE_LOC_LENGTH, BY_RUN, ON_ROWS | IF_ATTENTION, length_differs, ARRAY_LOC, COUNT_TOKENS),
    ROW(REQ_TO_TOKEN_ROWS, BY_RUN, ON_ROWS | IF_ATTENTION, token_rows_differ, 0, 0),
    ROW(REQ_TO_TOKEN_COLS, BY_RUN, ON_ROWS | IF_ATTENTION, token_cols_differ, 0, 0),
    ROW(VERIFY_TOKENS, BY_BEGIN, ON_VERIFY | IF_UNIFORM, verify_tokens_differ, 0, 0),
    ROW(LINKS_LENGTH, BY_ANY, ON_VERIFY | IF_LINKED, links_length_differs, 0, 0),
    ROW(RAGGED_LENGTH, BY_BEGIN, ON_VERIFY | IF_RAGGED, length_differs, ARRAY_LAYOUT, COUNT_LAYOUT),
    ROW(RAGGED_ORDER, BY_BEGIN, ON_VERIFY | IF_RAGGED, layout_decreases, 0, 0),
    ROW(RAGGED_TOTAL, BY_BEGIN, ON_VERIFY | IF_RAGGED, layout_total_differs, 0, 0),
    ROW(CPU_LENS_LENGTH, BY_RUN, ON_GRAPHS, length_differs, ARRAY_SEQ_CPU, COUNT_BATCH),
    ROW(GRAPH_TOKENS, BY_GRAPH, ON_ALL, graph_tokens_differ, 0, 0),
    ROW(GRAPH_DRAFT, BY_GRAPH, ON_VERIFY, graph_draft_differs, 0, 0),
    ROW(BATCH_CAPACITY, BY_ANY, ON_ANY, over_capacity, 0, COUNT_BATCH),
    ROW(TOKENS_CAPACITY, BY_ANY, ON_ANY, over_capacity, 0, COUNT_TOKENS),
    ROW(DRAFT_CAPACITY, BY_BEGIN | BY_CAPTURE, ON_VERIFY, draft_over_capacity, 0, 0),
    ROW(SPEC_ROWS_CAPACITY, BY_ANY, ON_VERIFY, rows_over_caches, 0, 0),
    ROW(GRAPH_CAPACITY, BY_GRAPH, ON_ALL, graph_rows_outside, 0, 0),
    ROW(PADDING_RANGE, BY_REPLAY, ON_GRAPHS, padding_outside, 0, 0),
    ROW(PADDING_COUNT, BY_REPLAY, ON_GRAPHS, padding_inside, 0, 0),
    ROW(ORIGINAL_RANGE, BY_BEGIN, ON_ALL, original_outside, 0, 0),
    ROW(REQ_RANGE, BY_RUN, ON_ROWS, req_outside, 0, 0),
    ROW(REQ_PADDING, BY_BEGIN, ON_ROWS, padding_nonzero, 0, 0),
    ROW(SLOT_RANGE, BY_RUN, ON_ROWS, slot_outside, 0, 0),
    ROW(SEQ_LEN_RANGE, BY_RUN, ON_ROWS, decode_seq_len_low, 0, 0),
    ROW(EXTEND_LEN_RANGE, BY_BEGIN, ON_EXTEND, extend_value_low, ARRAY_EXTEND, 0),
    ROW(PREFIX_RANGE, BY_BEGIN, ON_EXTEND, extend_value_low, ARRAY_PREFIX, 0),
    ROW(PREFIX_SUM, BY_BEGIN, ON_EXTEND, prefix_sum_differs, 0, 0),
    ROW(TRACK_MASK_PADDING, BY_RUN, ON_TRACKS | IF_MASKED, mask_on_padding, 0, 0),
    ROW(TRACK_MASK_DECODE, BY_BEGIN, ON_EXTEND | IF_MASKED | IF_MIXED, mask_on_decode, 0, 0),
    ROW(TRACK_SLOT_RANGE, BY_RUN, ON_TRACKS | IF_MASKED, track_slot_outside, 0, 0),
    ROW(TRACK_LEN_SHORT, BY_BEGIN, ON_EXTEND | IF_MASKED, track_len_outside, 0, 0),
    ROW(TRACK_LEN_LONG, BY_BEGIN, ON_EXTEND | IF_MASKED, track_len_outside, 0, 0),
    ROW(CACHE_LOC_RANGE, BY_RUN, ON_ROWS | IF_ATTENTION, cache_loc_outside, 0, 0),
    ROW(CONTEXT_RANGE, BY_RUN, ON_ROWS | IF_ATTENTION, context_exceeded, 0, 0),
    ROW(REQ_TO_TOKEN_NEW, BY_RUN, ON_ROWS | IF_ATTENTION, new_token_differs, 0, 0),
    ROW(REQ_TO_TOKEN_PREFIX, BY_RUN, ON_ROWS | IF_ATTENTION, prefix_token_outside, 0, 0),
    ROW(DRAFT_RANGE, BY_BEGIN, ON_VERIFY, draft_low, 0, 0),
    ROW(RAGGED_ROW, BY_BEGIN, ON_VERIFY | IF_RAGGED, row_nodes_outside, 0, 0),
    ROW(LINK_RANGE, BY_RUN, ON_VERIFY | IF_LINKED, link_outside, 0, 0),
    ROW(LINK_ORDER, BY_RUN, ON_VERIFY | IF_LINKED, link_backwards, 0, 0),
    ROW(LINK_TREE, BY_RUN, ON_VERIFY | IF_LINKED, link_no_tree, 0, 0),
    ROW(TRACK_MASK_VERIFY, BY_RUN, ON_VERIFY | IF_MASKED, mask_in_verify, 0, 0),
    ROW(CPU_LENS_VALUE, BY_RUN, ON_GRAPHS, cpu_len_differs, 0, 0),
    ROW(SLOT_FREED, BY_RUN, ON_ROWS, live_slot_freed, 0, 0),
    ROW(TRACK_SLOT_FREED, BY_RUN, ON_TRACKS | IF_MASKED, track_slot_freed, 0, 0),
    ROW(RING_PENDING, BY_RUN, ON_ROWS, ring_pending, 0, 0),
    ROW(SLOT_DUPLICATE, BY_RUN, ON_ROWS, live_slot_shared, 0, 0),
    ROW(TRACK_DUPLICATE, BY_RUN, ON_TRACKS | IF_MASKED, track_slot_shared, 0, 0),
    ROW(CACHE_LOC_DUPLICATE, BY_RUN, ON_ROWS | IF_ATTENTION, cache_loc_shared, 0, 0),
    ROW(SLOT_NOT_LIVE, BY_RUN, ON_ROWS, live_slot_is_checkpoint, 0, 0),
    ROW(TRACK_ALIAS_ROW, BY_RUN, ON_TRACKS | IF_MASKED, track_slot_is_live_row, 0, 0),
    ROW(TRACK_ALIAS_SLOT, BY_RUN, ON_TRACKS | IF_MASKED, track_slot_wrong_kind, 0, 0),
    ROW(GRAPH_RAGGED, BY_GRAPH, ON_VERIFY, layout_in_graph, 0, 0),
    ROW(STRIP_TREE, BY_ANY, ON_VERIFY | IF_LINKED, links_in_strip, 0, 0),
    ROW(RING_TREE, BY_ANY, ON_VERIFY | IF_LINKED, links_in_ring, 0, 0),
};
#undef ROW
/* clang-format on */

/* Families of the modes; 0: begin does not know the mode (PREBUILT and everything outside the
 * enum). */
static uint32_t mode_family(int32_t mode) {
    switch (mode) {
    case HB_MODE_MIXED:
        return ON_EXTEND | IF_MIXED;
    case HB_MODE_EXTEND:
    case HB_MODE_SPLIT_PREFILL:
    case HB_MODE_DLLM_EXTEND:
        return ON_EXTEND;
    case HB_MODE_DECODE:
        return ON_DECODE;
    case HB_MODE_IDLE:
        return ON_IDLE;
    case HB_MODE_TARGET_VERIFY:
        return ON_VERIFY;
    case HB_MODE_DRAFT_EXTEND_V2:
        return ON_DRAFT;
    default:
        return 0;
    }
}

static int has_attention(const struct hb_config *config) {
    for (int32_t i = 0; i < config->n_layers; i++) {
        if (config->layer_kind[i] == HB_LAYER_ATTENTION) {
            return 1;
        }
    }
    return 0;
}

static void find_mask(struct hb_expect_view *v) {
    const struct hb_expect_array *mask = &v->array[ARRAY_MASK];
    const uint8_t *bytes = mask->data;
    v->first_masked = -1;
    for (int64_t r = 0; bytes != NULL && r < mask->len; r++) {
        if (bytes[r] != 0) {
            v->first_masked = r;
            v->holds |= IF_MASKED;
            return;
        }
    }
}

static void view_arrays(struct hb_expect_view *v, const struct hb_batch *b) {
#define TAKE(id, field) v->array[id] = (struct hb_expect_array){b->field.data, b->field.len}
    TAKE(ARRAY_REQ, req_pool_indices);
    TAKE(ARRAY_SEQ, seq_lens);
    TAKE(ARRAY_SEQ_CPU, seq_lens_cpu);
    TAKE(ARRAY_EXTEND, extend_seq_lens);
    TAKE(ARRAY_EXTEND_CPU, extend_seq_lens_cpu);
    TAKE(ARRAY_PREFIX, extend_prefix_lens);
    TAKE(ARRAY_START, extend_start_loc);
    TAKE(ARRAY_MASK, mamba_track_mask);
    TAKE(ARRAY_TRACK, mamba_track_indices);
    TAKE(ARRAY_TRACK_LEN, mamba_track_seqlens);
    TAKE(ARRAY_LOC, out_cache_loc);
    TAKE(ARRAY_TOKENS, req_to_token);
    TAKE(ARRAY_NEXT, retrieve_next_token);
    TAKE(ARRAY_SIBLING, retrieve_next_sibling);
    TAKE(ARRAY_LAYOUT, ragged_verify_layout);
#undef TAKE
}

static void view_verify(struct hb_expect_view *v) {
    const struct hb_expect_array *layout = &v->array[ARRAY_LAYOUT];
    v->holds |= layout->data != NULL ? IF_RAGGED : IF_UNIFORM;
    v->holds |= v->array[ARRAY_NEXT].data != NULL ? IF_LINKED : 0U;
    if (layout->data == NULL) {
        v->real_tokens = v->real_rows * v->batch->draft_token_num;
    } else if (v->real_rows >= 0 && v->real_rows < layout->len) {
        v->real_tokens = at32(v, ARRAY_LAYOUT, v->real_rows);
    }
}

/* Derived counts are right as soon as the lengths they stand on have passed their checks. */
static void view_make(struct hb_expect_view *v, const struct hb_expect_context *context,
                      const struct hb_batch *b, uint32_t family) {
    memset(v, 0, sizeof *v);
    v->config = context->config;
    v->slots = context->slots;
    v->graphs = context->graphs;
    v->batch = b;
    v->holds = family | (has_attention(context->config) ? IF_ATTENTION : 0U);
    v->count[COUNT_BATCH] = b->batch_size;
    v->count[COUNT_EXTEND] = b->n_extend;
    v->count[COUNT_TOKENS] = b->n_tokens;
    v->count[COUNT_LAYOUT] = (int64_t)b->batch_size + 1;
    v->real_rows = hb_expect_real_rows(b, context->call == BY_REPLAY);
    v->first_masked = -1;
    if ((family & ON_ROWS) == 0) {
        return;
    }
    view_arrays(v, b);
    if (context->call != BY_BEGIN) {
        v->array[ARRAY_LAYOUT] = (struct hb_expect_array){NULL, 0};
    }
    find_mask(v);
    v->real_tokens = v->real_rows;
    if ((family & ON_VERIFY) != 0) {
        view_verify(v);
    }
    if ((family & ON_EXTEND) != 0) {
        const struct hb_expect_array *lens = &v->array[ARRAY_EXTEND];
        for (int64_t r = 0; lens->data != NULL && r < lens->len && r < b->n_extend; r++) {
            v->n_extended += at32(v, ARRAY_EXTEND, r);
        }
        v->first_decode = b->n_extend;
        v->real_tokens = v->n_extended + v->real_rows - b->n_extend;
    }
}

/* Whether the backend has the mode, and what of a verify is given. */
static int is_supported(const struct hb_caps *caps, const struct hb_batch *b, uint32_t family) {
    int trees = b->retrieve_next_token.data != NULL || b->retrieve_next_sibling.data != NULL;
    int ragged = b->ragged_verify_layout.data != NULL;
    int lacks =
        family == ON_VERIFY && ((trees && !caps->tree_verify) || (ragged && !caps->ragged_verify));
    return ((caps->modes >> b->forward_mode) & 1U) != 0 && !lacks;
}

static int applies(const struct hb_expect_check *c, uint32_t call, uint32_t holds) {
    uint32_t conditions = c->when & CONDITIONS;
    return (c->calls & call) != 0 && (holds & c->when & ON_ANY) != 0 &&
           (holds & conditions) == conditions;
}

void hb_expect_judge(const struct hb_expect_context *context, const struct hb_batch *batch,
                     int32_t bad_mode, uint32_t modes, struct hb_error *e) {
    hb_error_clear(e);
    if (batch == NULL) {
        (void)hb_fail(e, HB_RULE_BATCH_NULL, -1, 0, 0);
        return;
    }
    uint32_t family = mode_family(batch->forward_mode);
    if (family == 0 || ((modes >> batch->forward_mode) & 1U) == 0) {
        (void)hb_fail(e, bad_mode, -1, batch->forward_mode, 0);
        return;
    }
    if (!is_supported(context->caps, batch, family)) {
        (void)hb_fail(e, HB_RULE_MODE_UNSUPPORTED, -1, batch->forward_mode, 0);
        return;
    }
    struct hb_expect_view v;
    view_make(&v, context, batch, family);
    for (size_t i = 0; i < sizeof CHECKS / sizeof CHECKS[0]; i++) {
        const struct hb_expect_check *c = &CHECKS[i];
        struct hb_expect_finding f = {-1, 0, 0};
        if (applies(c, context->call, v.holds) && c->broken(&v, c, &f)) {
            (void)hb_fail(e, c->rule, (int32_t)f.row, f.value, f.limit);
            return;
        }
    }
}

void hb_expect_begin(const struct hb_config *config, const struct hb_caps *caps,
                     const struct hb_slot_model *slots, const struct hb_batch *batch,
                     struct hb_error *e) {
    const struct hb_expect_context context = {config, caps, slots, NULL, BY_BEGIN};
    hb_expect_judge(&context, batch, HB_RULE_MODE_INVALID, UINT32_MAX, e);
}
