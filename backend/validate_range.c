/* SPDX-License-Identifier: Apache-2.0
 * Batch checks, RANGE class (rules 80..96, 107; 98..103 are in validate_verify.c). One function per
 * rule, each over all rows before the next rule. */
#include "backend/validate.h"

#include <stddef.h>

static int32_t fail(const struct hb_batch_view *v, int32_t rule, int64_t row, int64_t value,
                    int64_t limit) {
    return hb_fail(v->err, rule, (int32_t)row, value, limit);
}

static int is_decode_row(const struct hb_batch_view *v, int64_t r) {
    return r >= v->n_extend && r < v->n_live;
}

static int is_masked(const struct hb_batch_view *v, int64_t r) {
    const struct hb_u8s *mask = &v->batch->mamba_track_mask;
    return mask->data != NULL && mask->data[r] != 0;
}

/* Tokens of a live row that were there before this forward. */
static int64_t row_prefix(const struct hb_batch_view *v, int64_t r) {
    if (v->is_verify) {
        return v->batch->seq_lens.data[r];
    }
    return is_decode_row(v, r) ? (int64_t)v->batch->seq_lens.data[r] - 1
                               : v->batch->extend_prefix_lens.data[r];
}

/* Tokens of a live row after this forward; of a verify, with all its nodes. */
static int64_t row_end(const struct hb_batch_view *v, int64_t r) {
    return v->batch->seq_lens.data[r] + (v->is_verify ? hb_view_nodes(v, r) : 0);
}

static int32_t check_requests(const struct hb_batch_view *v) {
    const int32_t *req = v->batch->req_pool_indices.data;
    const int64_t last = (int64_t)v->env->config->req_pool_size - 1;
    for (int64_t r = 0; r < v->n_live; r++) {
        if (req[r] < 0 || req[r] > last) {
            return fail(v, HB_RULE_REQ_RANGE, r, req[r], last);
        }
    }
    for (int64_t r = v->n_live; r < v->n_rows && v->call == HB_CALL_BEGIN; r++) {
        if (req[r] != 0) {
            return fail(v, HB_RULE_REQ_PADDING, r, req[r], 0);
        }
    }
    return HB_OK;
}

/* Rule 83, state-pool.md section 3: slot 0 only in a flagged dummy call. */
static int32_t check_live_slots(const struct hb_batch_view *v) {
    const int32_t *req = v->batch->req_pool_indices.data;
    const int32_t last = hb_env_n_ids(v->env);
    const int32_t least = v->batch->is_dummy ? 0 : 1;
    for (int64_t r = 0; r < v->n_live; r++) {
        const int32_t slot = v->env->req_to_slot[req[r]];
        if (slot < least || slot > last) {
            return fail(v, HB_RULE_SLOT_RANGE, r, slot, last);
        }
    }
    return HB_OK;
}

/* Rules 84..87. */
static int32_t check_lengths(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    for (int64_t r = v->n_extend; r < v->n_live; r++) {
        if (b->seq_lens.data[r] < 1) {
            return fail(v, HB_RULE_SEQ_LEN_RANGE, r, b->seq_lens.data[r], 1);
        }
    }
    for (int64_t r = 0; r < v->n_extend; r++) {
        if (b->extend_seq_lens.data[r] < 1) {
            return fail(v, HB_RULE_EXTEND_LEN_RANGE, r, b->extend_seq_lens.data[r], 1);
        }
    }
    for (int64_t r = 0; r < v->n_extend; r++) {
        if (b->extend_prefix_lens.data[r] < 0) {
            return fail(v, HB_RULE_PREFIX_RANGE, r, b->extend_prefix_lens.data[r], 0);
        }
    }
    for (int64_t r = 0; r < v->n_extend; r++) {
        const int64_t sum = (int64_t)b->extend_prefix_lens.data[r] + b->extend_seq_lens.data[r];
        if (sum != b->seq_lens.data[r]) {
            return fail(v, HB_RULE_PREFIX_SUM, r, sum, b->seq_lens.data[r]);
        }
    }
    return HB_OK;
}

/* Rules 88..90. */
static int32_t check_track_rows(const struct hb_batch_view *v) {
    const int64_t last = hb_env_n_ids(v->env);
    if (v->is_verify) {
        return HB_OK; /* rule 103 */
    }
    for (int64_t r = v->n_live; r < v->n_rows; r++) {
        if (is_masked(v, r)) {
            return fail(v, HB_RULE_TRACK_MASK_PADDING, r, 0, 0);
        }
    }
    for (int64_t r = v->n_extend; v->is_mixed && r < v->n_live; r++) {
        if (is_masked(v, r)) {
            return fail(v, HB_RULE_TRACK_MASK_DECODE, r, 0, 0);
        }
    }
    for (int64_t r = 0; r < v->n_live; r++) {
        if (!is_masked(v, r)) {
            continue;
        }
        const int64_t dst = v->batch->mamba_track_indices.data[r];
        if (dst < 1 || dst > last) {
            return fail(v, HB_RULE_TRACK_SLOT_RANGE, r, dst, last);
        }
    }
    return HB_OK;
}

/* Rules 91, 92: prefix + CC <= T_i <= prefix + extend (tracking.md section 6). */
static int32_t check_track_lengths(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    const struct hb_config *config = v->env->config;
    const int64_t cache_chunk =
        config->chunk_size > config->page_size ? config->chunk_size : config->page_size;
    for (int64_t r = 0; r < v->n_extend; r++) {
        if (is_masked(v, r)) {
            const int64_t least = b->extend_prefix_lens.data[r] + cache_chunk;
            if (b->mamba_track_seqlens.data[r] < least) {
                return fail(v, HB_RULE_TRACK_LEN_SHORT, r, b->mamba_track_seqlens.data[r], least);
            }
        }
    }
    for (int64_t r = 0; r < v->n_extend; r++) {
        if (is_masked(v, r)) {
            const int64_t most =
                (int64_t)b->extend_prefix_lens.data[r] + b->extend_seq_lens.data[r];
            if (b->mamba_track_seqlens.data[r] > most) {
                return fail(v, HB_RULE_TRACK_LEN_LONG, r, b->mamba_track_seqlens.data[r], most);
            }
        }
    }
    return HB_OK;
}

/* Rule 95: the table entries of the new tokens are the places where the tokens are stored. */
static int32_t check_new_entries(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    int64_t token = 0;
    for (int64_t r = 0; r < v->n_live; r++) {
        const int32_t *row =
            b->req_to_token.data + (int64_t)b->req_pool_indices.data[r] * b->req_to_token_cols;
        const int64_t end = row_end(v, r);
        for (int64_t pos = row_prefix(v, r); pos < end; pos++, token++) {
            if (row[pos] != b->out_cache_loc.data[token]) {
                return fail(v, HB_RULE_REQ_TO_TOKEN_NEW, r, row[pos], b->out_cache_loc.data[token]);
            }
        }
    }
    return HB_OK;
}

/* Rule 96. */
static int32_t check_prefix_entries(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    const int32_t last = v->env->config->n_kv - 1;
    for (int64_t r = 0; r < v->n_live; r++) {
        const int32_t *row =
            b->req_to_token.data + (int64_t)b->req_pool_indices.data[r] * b->req_to_token_cols;
        const int64_t prefix = row_prefix(v, r);
        for (int64_t pos = 0; pos < prefix; pos++) {
            if (row[pos] < 1 || row[pos] > last) {
                return fail(v, HB_RULE_REQ_TO_TOKEN_PREFIX, r, row[pos], last);
            }
        }
    }
    return HB_OK;
}

/* Rules 93..96. */
static int32_t check_attention(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    const int32_t last = v->env->config->n_kv - 1;
    const int64_t context = v->env->config->max_context;
    for (int64_t t = 0; t < v->n_real; t++) {
        if (b->out_cache_loc.data[t] < 1 || b->out_cache_loc.data[t] > last) {
            return fail(v, HB_RULE_CACHE_LOC_RANGE, t, b->out_cache_loc.data[t], last);
        }
    }
    for (int64_t r = 0; r < v->n_live; r++) {
        if (row_end(v, r) > context) {
            return fail(v, HB_RULE_CONTEXT_RANGE, r, row_end(v, r), context);
        }
    }
    const int32_t status = check_new_entries(v);
    return status == HB_OK ? check_prefix_entries(v) : status;
}

/* Rule 107. */
static int32_t check_cpu_lens(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    for (int64_t r = 0; v->has_cpu_lens && r < v->n_rows; r++) {
        const int32_t want = r < v->n_live ? b->seq_lens.data[r] : HB_PAD_SEQ_LEN;
        if (b->seq_lens_cpu.data[r] != want) {
            return fail(v, HB_RULE_CPU_LENS_VALUE, r, b->seq_lens_cpu.data[r], want);
        }
    }
    return HB_OK;
}

int32_t hb_validate_range(const struct hb_batch_view *v) {
    typedef int32_t (*check_fn)(const struct hb_batch_view *v);
    static const check_fn checks[] = {check_requests, check_live_slots, check_lengths,
                                      check_track_rows, check_track_lengths};
    if (v->call == HB_CALL_BEGIN && (v->n_live < 0 || v->n_live > v->n_rows)) {
        return fail(v, HB_RULE_ORIGINAL_RANGE, -1, v->n_live, v->n_rows);
    }
    if (v->is_idle) {
        return HB_OK;
    }
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        const int32_t status = checks[i](v);
        if (status != HB_OK) {
            return status;
        }
    }
    int32_t status = v->has_attention ? check_attention(v) : HB_OK;
    if (status == HB_OK && v->is_verify) {
        status = hb_validate_verify_range(v);
    }
    return status == HB_OK ? check_cpu_lens(v) : status;
}
