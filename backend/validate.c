/* SPDX-License-Identifier: Apache-2.0
 * Batch checks, first half: pointers, modes, absent arrays, shapes, capacity (those of a verify are
 * in validate_verify.c, those of graphs in validate_graph.c). Later classes rely on these: once
 * they passed, every per-row array has its length and may be indexed. Sums are int64 over the
 * values as given. */
#include "backend/validate.h"

#include <stddef.h>

#include "backend/mode.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const int32_t try_status = (call);                                                         \
        if (try_status != HB_OK) {                                                                 \
            return try_status;                                                                     \
        }                                                                                          \
    } while (0)

static int32_t fail(const struct hb_batch_view *v, int32_t rule, int64_t row, int64_t value,
                    int64_t limit) {
    return hb_fail(v->err, rule, (int32_t)row, value, limit);
}

/* Rule 30. */
static int32_t check_links_absent(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    if (v->is_verify &&
        (b->retrieve_next_token.data == NULL) != (b->retrieve_next_sibling.data == NULL)) {
        return fail(v, HB_RULE_LINKS_NULL, -1, 0, 0);
    }
    return HB_OK;
}

/* Rules 27, 28, 30. */
static int32_t check_absent_more(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    if (v->has_attention && b->n_tokens > 0 && b->out_cache_loc.data == NULL) {
        return fail(v, HB_RULE_CACHE_LOC_NULL, -1, 0, b->n_tokens);
    }
    if (v->has_attention && v->n_rows > 0 && b->req_to_token.data == NULL) {
        return fail(v, HB_RULE_REQ_TO_TOKEN_NULL, -1, 0, v->n_rows);
    }
    return check_links_absent(v);
}

/* Rules 20..30. */
static int32_t check_absent(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    if (v->n_rows > 0 && b->req_pool_indices.data == NULL) {
        return fail(v, HB_RULE_REQ_NULL, -1, 0, v->n_rows);
    }
    if (v->n_rows > 0 && b->seq_lens.data == NULL) {
        return fail(v, HB_RULE_SEQ_LENS_NULL, -1, 0, v->n_rows);
    }
    if (v->is_extend && v->n_extend > 0 && b->extend_seq_lens.data == NULL) {
        return fail(v, HB_RULE_EXTEND_LENS_NULL, -1, 0, v->n_extend);
    }
    if (v->is_extend && v->n_extend > 0 && b->extend_prefix_lens.data == NULL) {
        return fail(v, HB_RULE_PREFIX_LENS_NULL, -1, 0, v->n_extend);
    }
    if (v->is_extend && !b->has_extend_num_tokens) {
        return fail(v, HB_RULE_EXTEND_NUM_NULL, -1, 0, 0);
    }
    if (!v->is_verify && v->first_mask >= 0 && b->mamba_track_indices.data == NULL) {
        return fail(v, HB_RULE_TRACK_INDICES_NULL, v->first_mask, 0, 0);
    }
    if (v->is_extend && v->first_mask >= 0 && b->mamba_track_seqlens.data == NULL) {
        return fail(v, HB_RULE_TRACK_LENS_NULL, v->first_mask, 0, 0);
    }
    return check_absent_more(v);
}

/* A present array must have want entries. */
static int32_t check_len(const struct hb_batch_view *v, int32_t rule, const void *data, int64_t len,
                         int64_t want) {
    return data != NULL && len != want ? fail(v, rule, -1, len, want) : HB_OK;
}

/* Rule 42: the extend arrays cover all real rows, in MIXED the first of them. */
static int32_t check_n_extend(const struct hb_batch_view *v) {
    const int fits =
        v->is_mixed ? v->n_extend >= 0 && v->n_extend <= v->n_live : v->n_extend == v->n_live;
    return fits ? HB_OK : fail(v, HB_RULE_N_EXTEND_ROWS, -1, v->n_extend, v->n_live);
}

/* Rules 45..50; the element checks run only after both lengths are right. */
static int32_t check_extend_shape(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    const int64_t np = v->n_extend;
    const int32_t *lens = b->extend_seq_lens.data;
    const int32_t *cpu = b->extend_seq_lens_cpu.data;
    const int32_t *starts = b->extend_start_loc.data;
    TRY(check_len(v, HB_RULE_EXTEND_LENS_LENGTH, lens, b->extend_seq_lens.len, np));
    TRY(check_len(v, HB_RULE_EXTEND_CPU_LENGTH, cpu, b->extend_seq_lens_cpu.len, np));
    for (int64_t r = 0; cpu != NULL && r < np; r++) {
        if (cpu[r] != lens[r]) {
            return fail(v, HB_RULE_EXTEND_CPU_VALUE, r, cpu[r], lens[r]);
        }
    }
    TRY(check_len(v, HB_RULE_PREFIX_LENS_LENGTH, b->extend_prefix_lens.data,
                  b->extend_prefix_lens.len, np));
    TRY(check_len(v, HB_RULE_START_LOC_LENGTH, starts, b->extend_start_loc.len, np));
    int64_t sum = 0;
    for (int64_t r = 0; starts != NULL && r < np; r++) {
        if (starts[r] != sum) {
            return fail(v, HB_RULE_START_LOC_VALUE, r, starts[r], sum);
        }
        sum += lens[r];
    }
    return HB_OK;
}

/* Real tokens; the sum is over entries that exist, which rule 45 has made n_extend of them. Those
 * of a verify are counted when its layout is known to be right. */
static void count_tokens(struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    v->extend_sum = 0;
    for (int64_t r = 0; v->is_extend && r < v->n_extend; r++) {
        v->extend_sum += b->extend_seq_lens.data[r];
    }
    v->n_real = v->is_extend ? v->extend_sum + (v->n_live - v->n_extend) : v->n_live;
}

/* Rules 56..58. */
static int32_t check_attention_shape(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    const struct hb_config *config = v->env->config;
    const int64_t rows = b->req_to_token_rows;
    const int64_t cols = b->req_to_token_cols;
    TRY(check_len(v, HB_RULE_CACHE_LOC_LENGTH, b->out_cache_loc.data, b->out_cache_loc.len,
                  b->n_tokens));
    if (b->req_to_token.data == NULL) {
        return HB_OK;
    }
    if (rows != config->req_pool_size) {
        return fail(v, HB_RULE_REQ_TO_TOKEN_ROWS, -1, rows, config->req_pool_size);
    }
    if (cols != config->max_context) {
        return fail(v, HB_RULE_REQ_TO_TOKEN_COLS, -1, cols, config->max_context);
    }
    if (b->req_to_token.len != rows * cols) {
        const int64_t actual = b->req_to_token.len / (rows > 1 ? rows : 1);
        return fail(v, HB_RULE_REQ_TO_TOKEN_COLS, -1, actual, config->max_context);
    }
    return HB_OK;
}

/* Nodes of the live rows, which are the first rows; 0 while the number of live rows is wrong (rule
 * 80), or not known yet (of a replay). */
static void count_nodes(struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    const int32_t *layout = b->ragged_verify_layout.data;
    v->n_real = 0;
    if (v->call == HB_CALL_BEGIN && v->n_live >= 0 && v->n_live <= v->n_rows) {
        v->n_real = layout != NULL ? layout[v->n_live] : v->n_live * b->draft_token_num;
    }
}

/* Rules 54, 55. A replay reads the destinations of all rows (graph.md section 5). */
static int32_t check_track_shape(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    const struct hb_i64s *indices = &b->mamba_track_indices;
    if (v->call == HB_CALL_REPLAY && !v->is_verify) {
        return indices->data != NULL && indices->len < v->n_rows
                   ? fail(v, HB_RULE_TRACK_INDICES_LENGTH, -1, indices->len, v->n_rows)
                   : HB_OK;
    }
    if (v->is_verify || v->first_mask < 0) {
        return HB_OK;
    }
    TRY(check_len(v, HB_RULE_TRACK_INDICES_LENGTH, indices->data, indices->len, v->n_rows));
    if (v->is_extend) {
        TRY(check_len(v, HB_RULE_TRACK_LENS_LENGTH, b->mamba_track_seqlens.data,
                      b->mamba_track_seqlens.len, v->n_rows));
    }
    return HB_OK;
}

/* Rules 42..67 (the shapes of all modes but IDLE). */
static int32_t check_shape(struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    if (v->is_extend) {
        TRY(check_n_extend(v));
    }
    TRY(check_len(v, HB_RULE_REQ_LENGTH, b->req_pool_indices.data, b->req_pool_indices.len,
                  v->n_rows));
    TRY(check_len(v, HB_RULE_SEQ_LENS_LENGTH, b->seq_lens.data, b->seq_lens.len, v->n_rows));
    if (v->is_extend) {
        TRY(check_extend_shape(v));
    }
    count_tokens(v);
    if (v->is_extend && b->extend_num_tokens != v->extend_sum) {
        return fail(v, HB_RULE_EXTEND_NUM_VALUE, -1, b->extend_num_tokens, v->extend_sum);
    }
    if (!v->is_verify && v->call == HB_CALL_BEGIN && b->n_tokens < v->n_real) {
        return fail(v, HB_RULE_TOKENS_SHORT, -1, b->n_tokens, v->n_real);
    }
    TRY(check_len(v, HB_RULE_TRACK_MASK_LENGTH, b->mamba_track_mask.data, b->mamba_track_mask.len,
                  v->n_rows));
    TRY(check_track_shape(v));
    if (v->has_attention) {
        TRY(check_attention_shape(v));
    }
    if (v->is_verify) {
        TRY(hb_validate_verify_shape(v));
        count_nodes(v);
    }
    return v->has_cpu_lens ? check_len(v, HB_RULE_CPU_LENS_LENGTH, b->seq_lens_cpu.data,
                                       b->seq_lens_cpu.len, v->n_rows)
                           : HB_OK;
}

static void init_view(struct hb_batch_view *v, const struct hb_validate_env *env, enum hb_call call,
                      const struct hb_batch *batch, struct hb_error *err) {
    *v = (struct hb_batch_view){.env = env, .call = (int32_t)call, .batch = batch, .err = err};
    v->is_idle = hb_mode_is(batch->forward_mode, HB_MODE_IS_IDLE);
    v->is_extend = hb_mode_is(batch->forward_mode, HB_MODE_IS_EXTEND_WITHOUT_SPECULATIVE);
    v->is_mixed = hb_mode_is(batch->forward_mode, HB_MODE_IS_MIXED);
    v->is_verify = hb_mode_is(batch->forward_mode, HB_MODE_IS_TARGET_VERIFY);
    v->has_attention = env->has_attention;
    v->n_rows = batch->batch_size;
    v->n_live = call == HB_CALL_CAPTURE ? 0
                : call == HB_CALL_BEGIN && batch->has_original_batch_size
                    ? batch->original_batch_size
                    : batch->batch_size;
    v->n_extend = v->is_extend ? batch->n_extend : 0;
    v->first_mask = -1;
    const struct hb_u8s *mask = &batch->mamba_track_mask;
    const int32_t has_mask = !v->is_idle && call != HB_CALL_CAPTURE &&
                             !hb_mode_is(batch->forward_mode, HB_MODE_IS_DRAFT_EXTEND_V2);
    v->has_cpu_lens = call != HB_CALL_CAPTURE && batch->seq_lens_cpu.data != NULL &&
                      (v->is_verify || hb_mode_is(batch->forward_mode, HB_MODE_IS_DECODE));
    for (int64_t r = 0; has_mask && mask->data != NULL && r < mask->len; r++) {
        if (mask->data[r] != 0) {
            v->first_mask = r;
            break;
        }
    }
}

/* Rules 40, 41 before the shapes, 70 to 74 after them. */
static int32_t check_counts(const struct hb_batch_view *v) {
    if (v->n_rows < 0) {
        return fail(v, HB_RULE_BATCH_NEGATIVE, -1, v->n_rows, 0);
    }
    if (v->batch->n_tokens < 0) {
        return fail(v, HB_RULE_TOKENS_NEGATIVE, -1, v->batch->n_tokens, 0);
    }
    return HB_OK;
}

static int32_t check_capacity(const struct hb_batch_view *v) {
    const struct hb_config *config = v->env->config;
    if (v->n_rows > config->max_batch) {
        return fail(v, HB_RULE_BATCH_CAPACITY, -1, v->n_rows, config->max_batch);
    }
    if (v->batch->n_tokens > config->max_tokens) {
        return fail(v, HB_RULE_TOKENS_CAPACITY, -1, v->batch->n_tokens, config->max_tokens);
    }
    if (v->is_verify) {
        TRY(hb_validate_verify_capacity(v));
    }
    return v->call != HB_CALL_BEGIN ? hb_validate_graph_capacity(v) : HB_OK;
}

/* From rule 15 on. */
static int32_t check_batch(struct hb_batch_view *v) {
    const int32_t is_graph = v->call != HB_CALL_BEGIN;
    const int32_t is_draft_extend = hb_mode_is(v->batch->forward_mode, HB_MODE_IS_DRAFT_EXTEND_V2);
    const int32_t reads_links = v->call == HB_CALL_CAPTURE && v->is_verify;
    const int32_t reads_arrays = !v->is_idle && !is_draft_extend && v->call != HB_CALL_CAPTURE;
    if (is_graph) {
        TRY(hb_validate_graph_state(v));
    }
    if (reads_arrays || reads_links) {
        TRY(reads_arrays ? check_absent(v) : check_links_absent(v));
    }
    TRY(check_counts(v));
    if (reads_arrays || reads_links) {
        TRY(reads_arrays ? check_shape(v) : hb_validate_verify_shape(v));
    }
    if (is_graph) {
        TRY(hb_validate_graph_shape(v));
    }
    TRY(check_capacity(v));
    if (v->call == HB_CALL_REPLAY) {
        TRY(hb_validate_graph_padding(v));
    }
    if (!is_draft_extend && v->call != HB_CALL_CAPTURE) {
        TRY(hb_validate_range(v));
    }
    if (reads_arrays) {
        TRY(hb_validate_slots(v));
    }
    return hb_validate_unsupported(v);
}

int32_t hb_validate_batch(const struct hb_validate_env *env, const struct hb_batch *batch,
                          struct hb_error *err) {
    struct hb_batch_view view;
    if (batch == NULL) {
        return hb_fail(err, HB_RULE_BATCH_NULL, -1, 0, 0);
    }
    if (!hb_mode_is(batch->forward_mode, HB_MODE_EAGER_VALID)) {
        return hb_fail(err, HB_RULE_MODE_INVALID, -1, batch->forward_mode, 0);
    }
    init_view(&view, env, HB_CALL_BEGIN, batch, err);
    return check_batch(&view);
}

int32_t hb_validate_graph_batch(const struct hb_validate_env *env, enum hb_call call,
                                const struct hb_batch *batch, int32_t *n_live,
                                struct hb_error *err) {
    struct hb_batch_view view;
    if (batch == NULL) {
        return hb_fail(err, HB_RULE_BATCH_NULL, -1, 0, 0);
    }
    if (!hb_mode_is(batch->forward_mode, HB_MODE_GRAPH_INIT_VALID)) {
        return hb_fail(err, HB_RULE_GRAPH_MODE_INVALID, -1, batch->forward_mode, 0);
    }
    init_view(&view, env, call, batch, err);
    TRY(check_batch(&view));
    *n_live = (int32_t)view.n_live;
    return HB_OK;
}
