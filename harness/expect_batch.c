/* SPDX-License-Identifier: Apache-2.0
 * Predicted status of begin: one table of checks in ascending rule number (forward-batch.md section
 * 4, tracking.md section 6, speculative.md sections 1-3, contracts.md section 3). A check may rely
 * on every check above it: array lengths fit once the SHAPE rules have passed. */
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
#define ROW(rule, when, check, array, count) {HB_RULE_##rule, when, hb_expect_##check, array, count}
static const struct hb_expect_check CHECKS[] = {
    ROW(REQ_NULL, ON_ROWS, array_absent, ARRAY_REQ, COUNT_BATCH),
    ROW(SEQ_LENS_NULL, ON_ROWS, array_absent, ARRAY_SEQ, COUNT_BATCH),
    ROW(EXTEND_LENS_NULL, ON_EXTEND, array_absent, ARRAY_EXTEND, COUNT_EXTEND),
    ROW(PREFIX_LENS_NULL, ON_EXTEND, array_absent, ARRAY_PREFIX, COUNT_EXTEND),
    ROW(EXTEND_NUM_NULL, ON_EXTEND, extend_num_absent, 0, 0),
    ROW(TRACK_INDICES_NULL, ON_TRACKS | IF_MASKED, track_array_absent, ARRAY_TRACK, 0),
    ROW(TRACK_LENS_NULL, ON_EXTEND | IF_MASKED, track_array_absent, ARRAY_TRACK_LEN, 0),
    ROW(CACHE_LOC_NULL, ON_ROWS | IF_ATTENTION, array_absent, ARRAY_LOC, COUNT_TOKENS),
    ROW(REQ_TO_TOKEN_NULL, ON_ROWS | IF_ATTENTION, array_absent, ARRAY_TOKENS, COUNT_BATCH),
    ROW(LINKS_NULL, ON_VERIFY, one_link_array, 0, 0),
    ROW(BATCH_NEGATIVE, ON_ANY, count_negative, 0, COUNT_BATCH),
    ROW(TOKENS_NEGATIVE, ON_ANY, count_negative, 0, COUNT_TOKENS),
    ROW(N_EXTEND_ROWS, ON_EXTEND, extend_rows_misfit, 0, 0),
    ROW(REQ_LENGTH, ON_ROWS, length_differs, ARRAY_REQ, COUNT_BATCH),
    ROW(SEQ_LENS_LENGTH, ON_ROWS, length_differs, ARRAY_SEQ, COUNT_BATCH),
    ROW(EXTEND_LENS_LENGTH, ON_EXTEND, length_differs, ARRAY_EXTEND, COUNT_EXTEND),
    ROW(EXTEND_CPU_LENGTH, ON_EXTEND, length_differs, ARRAY_EXTEND_CPU, COUNT_EXTEND),
    ROW(EXTEND_CPU_VALUE, ON_EXTEND, extend_cpu_differs, 0, 0),
    ROW(PREFIX_LENS_LENGTH, ON_EXTEND, length_differs, ARRAY_PREFIX, COUNT_EXTEND),
    ROW(START_LOC_LENGTH, ON_EXTEND, length_differs, ARRAY_START, COUNT_EXTEND),
    ROW(START_LOC_VALUE, ON_EXTEND, start_loc_differs, 0, 0),
    ROW(EXTEND_NUM_VALUE, ON_EXTEND, extend_num_differs, 0, 0),
    ROW(TOKENS_SHORT, ON_TRACKS, tokens_short, 0, 0),
    ROW(TRACK_MASK_LENGTH, ON_ROWS, length_differs, ARRAY_MASK, COUNT_BATCH),
    ROW(TRACK_INDICES_LENGTH, ON_TRACKS | IF_MASKED, length_differs, ARRAY_TRACK, COUNT_BATCH),
    ROW(TRACK_LENS_LENGTH, ON_EXTEND | IF_MASKED, length_differs, ARRAY_TRACK_LEN, COUNT_BATCH),
    ROW(CACHE_LOC_LENGTH, ON_ROWS | IF_ATTENTION, length_differs, ARRAY_LOC, COUNT_TOKENS),
    ROW(REQ_TO_TOKEN_ROWS, ON_ROWS | IF_ATTENTION, token_rows_differ, 0, 0),
    ROW(REQ_TO_TOKEN_COLS, ON_ROWS | IF_ATTENTION, token_cols_differ, 0, 0),
    ROW(VERIFY_TOKENS, ON_VERIFY | IF_UNIFORM, verify_tokens_differ, 0, 0),
    ROW(LINKS_LENGTH, ON_VERIFY | IF_LINKED, links_length_differs, 0, 0),
    ROW(RAGGED_LENGTH, ON_VERIFY | IF_RAGGED, length_differs, ARRAY_LAYOUT, COUNT_LAYOUT),
    ROW(RAGGED_ORDER, ON_VERIFY | IF_RAGGED, layout_decreases, 0, 0),
    ROW(RAGGED_TOTAL, ON_VERIFY | IF_RAGGED, layout_total_differs, 0, 0),
    ROW(BATCH_CAPACITY, ON_ANY, over_capacity, 0, COUNT_BATCH),
    ROW(TOKENS_CAPACITY, ON_ANY, over_capacity, 0, COUNT_TOKENS),
    ROW(DRAFT_CAPACITY, ON_VERIFY, draft_over_capacity, 0, 0),
    ROW(SPEC_ROWS_CAPACITY, ON_VERIFY, rows_over_caches, 0, 0),
    ROW(ORIGINAL_RANGE, ON_ALL, original_outside, 0, 0),
    ROW(REQ_RANGE, ON_ROWS, req_outside, 0, 0),
    ROW(REQ_PADDING, ON_ROWS, padding_nonzero, 0, 0),
    ROW(SLOT_RANGE, ON_ROWS, slot_outside, 0, 0),
    ROW(SEQ_LEN_RANGE, ON_ROWS, decode_seq_len_low, 0, 0),
    ROW(EXTEND_LEN_RANGE, ON_EXTEND, extend_value_low, ARRAY_EXTEND, 0),
    ROW(PREFIX_RANGE, ON_EXTEND, extend_value_low, ARRAY_PREFIX, 0),
    ROW(PREFIX_SUM, ON_EXTEND, prefix_sum_differs, 0, 0),
    ROW(TRACK_MASK_PADDING, ON_TRACKS | IF_MASKED, mask_on_padding, 0, 0),
    ROW(TRACK_MASK_DECODE, ON_EXTEND | IF_MASKED | IF_MIXED, mask_on_decode, 0, 0),
    ROW(TRACK_SLOT_RANGE, ON_TRACKS | IF_MASKED, track_slot_outside, 0, 0),
    ROW(TRACK_LEN_SHORT, ON_EXTEND | IF_MASKED, track_len_outside, 0, 0),
    ROW(TRACK_LEN_LONG, ON_EXTEND | IF_MASKED, track_len_outside, 0, 0),
    ROW(CACHE_LOC_RANGE, ON_ROWS | IF_ATTENTION, cache_loc_outside, 0, 0),
    ROW(CONTEXT_RANGE, ON_ROWS | IF_ATTENTION, context_exceeded, 0, 0),
    ROW(REQ_TO_TOKEN_NEW, ON_ROWS | IF_ATTENTION, new_token_differs, 0, 0),
    ROW(REQ_TO_TOKEN_PREFIX, ON_ROWS | IF_ATTENTION, prefix_token_outside, 0, 0),
    ROW(DRAFT_RANGE, ON_VERIFY, draft_low, 0, 0),
    ROW(RAGGED_ROW, ON_VERIFY | IF_RAGGED, row_nodes_outside, 0, 0),
    ROW(LINK_RANGE, ON_VERIFY | IF_LINKED, link_outside, 0, 0),
    ROW(LINK_ORDER, ON_VERIFY | IF_LINKED, link_backwards, 0, 0),
    ROW(LINK_TREE, ON_VERIFY | IF_LINKED, link_no_tree, 0, 0),
    ROW(TRACK_MASK_VERIFY, ON_VERIFY | IF_MASKED, mask_in_verify, 0, 0),
    ROW(SLOT_FREED, ON_ROWS, live_slot_freed, 0, 0),
    ROW(TRACK_SLOT_FREED, ON_TRACKS | IF_MASKED, track_slot_freed, 0, 0),
    ROW(SLOT_DUPLICATE, ON_ROWS, live_slot_shared, 0, 0),
    ROW(TRACK_DUPLICATE, ON_TRACKS | IF_MASKED, track_slot_shared, 0, 0),
    ROW(CACHE_LOC_DUPLICATE, ON_ROWS | IF_ATTENTION, cache_loc_shared, 0, 0),
    ROW(SLOT_NOT_LIVE, ON_ROWS, live_slot_is_checkpoint, 0, 0),
    ROW(TRACK_ALIAS_ROW, ON_TRACKS | IF_MASKED, track_slot_is_live_row, 0, 0),
    ROW(TRACK_ALIAS_SLOT, ON_TRACKS | IF_MASKED, track_slot_wrong_kind, 0, 0),
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
static void view_make(struct hb_expect_view *v, const struct hb_config *config,
                      const struct hb_slot_model *slots, const struct hb_batch *b,
                      uint32_t family) {
    memset(v, 0, sizeof *v);
    v->config = config;
    v->slots = slots;
    v->batch = b;
    v->holds = family | (has_attention(config) ? IF_ATTENTION : 0U);
    v->count[COUNT_BATCH] = b->batch_size;
    v->count[COUNT_EXTEND] = b->n_extend;
    v->count[COUNT_TOKENS] = b->n_tokens;
    v->count[COUNT_LAYOUT] = (int64_t)b->batch_size + 1;
    v->real_rows = b->has_original_batch_size ? b->original_batch_size : b->batch_size;
    v->first_masked = -1;
    if ((family & ON_ROWS) == 0) {
        return;
    }
    view_arrays(v, b);
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

void hb_expect_begin(const struct hb_config *config, const struct hb_caps *caps,
                     const struct hb_slot_model *slots, const struct hb_batch *batch,
                     struct hb_error *e) {
    hb_error_clear(e);
    if (batch == NULL) {
        (void)hb_fail(e, HB_RULE_BATCH_NULL, -1, 0, 0);
        return;
    }
    uint32_t family = mode_family(batch->forward_mode);
    if (family == 0) {
        (void)hb_fail(e, HB_RULE_MODE_INVALID, -1, batch->forward_mode, 0);
        return;
    }
    int trees =
        batch->retrieve_next_token.data != NULL || batch->retrieve_next_sibling.data != NULL;
    int ragged = batch->ragged_verify_layout.data != NULL;
    int lacks =
        family == ON_VERIFY && ((trees && !caps->tree_verify) || (ragged && !caps->ragged_verify));
    if (((caps->modes >> batch->forward_mode) & 1U) == 0 || lacks) {
        (void)hb_fail(e, HB_RULE_MODE_UNSUPPORTED, -1, batch->forward_mode, 0);
        return;
    }
    struct hb_expect_view v;
    view_make(&v, config, slots, batch, family);
    for (size_t i = 0; i < sizeof CHECKS / sizeof CHECKS[0]; i++) {
        const struct hb_expect_check *c = &CHECKS[i];
        uint32_t conditions = c->when & CONDITIONS;
        struct hb_expect_finding f = {-1, 0, 0};
        if ((v.holds & c->when & ON_ANY) != 0 && (v.holds & conditions) == conditions &&
            c->broken(&v, c, &f)) {
            (void)hb_fail(e, c->rule, (int32_t)f.row, f.value, f.limit);
            return;
        }
    }
}
