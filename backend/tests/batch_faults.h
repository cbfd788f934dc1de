/* SPDX-License-Identifier: Apache-2.0
 * Valid batches of all kinds, and a table of single faults with the rule that must answer. Included
 * after cmocka.h. */
#ifndef HB_BACKEND_TESTS_BATCH_FAULTS_H
#define HB_BACKEND_TESTS_BATCH_FAULTS_H

#include <limits.h>
#include <string.h>

#include "backend/tests/fixture.h"

static struct fixture f;

/* Bases: valid batches. E: rows 0,1 extend (prefix 4 and 0, lengths 8 and 3), one padding row, two
 * surplus tokens; row 0 tracked. M: row 0 extend tracked, rows 1,2 decode. D: three decode rows,
 * row 1 tracked, with seq_lens_cpu. I: idle. V: verify, rows 0,1 chains of 5 nodes, one padding row.
 * T: the same with trees, and seq_lens_cpu. G: trees, ragged: 5 and 3 nodes.
 * Captures of D, V, T with as many rows: CD, CV, CT. Replays: RD counts its padding from
 * seq_lens_cpu, RV is told it, RT is told it and has seq_lens_cpu, RI is idle. */
enum base {
    E = 1,
    D = 2,
    M = 3,
    I = 4,
    V = 5,
    T = 6,
    G = 7,
    CD = 8,
    CV = 9,
    CT = 10,
    RD = 11,
    RV = 12,
    RT = 13,
    RI = 14,
    LAST_BASE = RI
};

static const struct {
    enum hb_call call;
    int32_t eager; /* the base that it is made from */
} base_calls[LAST_BASE + 1] = {
    [CD] = {HB_CALL_CAPTURE, D}, [CV] = {HB_CALL_CAPTURE, V}, [CT] = {HB_CALL_CAPTURE, T},
    [RD] = {HB_CALL_REPLAY, D},  [RV] = {HB_CALL_REPLAY, V},  [RT] = {HB_CALL_REPLAY, T},
    [RI] = {HB_CALL_REPLAY, I},
};

static int32_t base_call, base_rows; /* of the batch in f */

static const void *wild(void);

/* What a capture does not read is not there to be read. */
static void strip_capture(void) {
    struct hb_batch *b = &f.batch;
    const struct hb_batch full = *b;
    *b = (struct hb_batch){.struct_size = full.struct_size,
                           .forward_mode = full.forward_mode,
                           .batch_size = full.batch_size,
                           .n_tokens = full.n_tokens,
                           .draft_token_num = full.draft_token_num,
                           .has_original_batch_size = 1,
                           .original_batch_size = 99,
                           .has_num_padding = 1,
                           .num_padding = -5,
                           .retrieve_next_token = full.retrieve_next_token,
                           .retrieve_next_sibling = full.retrieve_next_sibling};
    b->req_pool_indices = b->seq_lens = b->seq_lens_cpu = b->out_cache_loc = b->req_to_token =
        (struct hb_i32s){wild(), 77};
    b->mamba_track_mask = (struct hb_u8s){wild(), 77};
    b->mamba_track_indices = (struct hb_i64s){wild(), 77};
}

/* Turns the eager batch in f into one of a graph call. */
static void make_graph_base(int32_t base) {
    struct hb_batch *b = &f.batch;
    const int32_t is_decode = b->forward_mode == HB_MODE_DECODE;
    f.graphs.is_ready = 1;
    f.graphs.max_bs = f.graphs.draft = 5;
    if (b->forward_mode != HB_MODE_TARGET_VERIFY) { /* a token for each row */
        b->n_tokens = b->batch_size;
        b->out_cache_loc.len = is_decode ? b->n_tokens : 0;
    }
    if (base_calls[base].call == HB_CALL_CAPTURE) {
        strip_capture();
        return;
    }
    f.graphs.set[b->batch_size - 1].is_captured = 1;
    f.graphs.set[b->batch_size - 1].mode = b->forward_mode;
    f.graphs.set[b->batch_size - 1].has_links = b->retrieve_next_token.data != NULL;
    b->original_batch_size = 99; /* not read */
    b->has_num_padding = base != RD;
    b->num_padding = base == RI ? 99 : 1;
    for (int32_t r = 2 + is_decode; base != RI && r < b->batch_size; r++) {
        f.req[r] = -9; /* requests of padding rows are not read either */
    }
}

static void make_base(int32_t wanted) {
    const int32_t base = base_calls[wanted].eager != 0 ? base_calls[wanted].eager : wanted;
    static const int32_t prefix[] = {4, 0};
    static const int32_t len[] = {8, 3};
    static const int32_t seq[] = {6, 9, 3};
    fixture_tables(&f);
    if (base == E) {
        fixture_batch(&f, HB_MODE_EXTEND, 2, prefix, len, 0, NULL, 1, 2);
        fixture_track(&f, 0, TRACK_SLOT, 12);
    } else if (base == M) {
        fixture_batch(&f, HB_MODE_MIXED, 1, prefix, len, 2, seq, 1, 2);
        fixture_track(&f, 0, TRACK_SLOT, 12);
    } else if (base == D) {
        fixture_batch(&f, HB_MODE_DECODE, 0, NULL, NULL, 3, seq, 1, 2);
        fixture_track(&f, 1, TRACK_SLOT, 0);
        fixture_cpu_lens(&f);
    } else if (base >= V) {
        static const int32_t nodes[] = {5, 3};
        fixture_verify(&f, 5, 2, seq, base == G ? nodes : NULL, 1);
        if (base != V) {
            fixture_tree(&f);
        }
        if (base == T) {
            fixture_cpu_lens(&f);
        }
    } else {
        fixture_batch(&f, HB_MODE_IDLE, 0, NULL, NULL, 0, NULL, 3, 2);
        memset(&f.batch.req_pool_indices, 0, sizeof(f.batch.req_pool_indices));
    }
    base_call = (int32_t)base_calls[wanted].call;
    base_rows = f.batch.batch_size;
    if (base != wanted) {
        make_graph_base(wanted);
    }
}

static int32_t n_live_found; /* R of the last accepted replay, 0 of a capture, else -1 */

static int32_t validate(struct hb_error *err) {
    const struct fixture before = f;
    hb_error_clear(err);
    int32_t n_live = -1;
    const int32_t status =
        base_call == HB_CALL_BEGIN
            ? hb_validate_batch(&f.env, &f.batch, err)
            : hb_validate_graph_batch(&f.env, (enum hb_call)base_call, &f.batch, &n_live, err);
    assert_memory_equal(&before, &f,
                        sizeof(f)); /* the batch is not written, the scratch is zero again */
    assert_int_equal(status, err->status);
    n_live_found = n_live;
    return status;
}

static int32_t *entry_of(int32_t row, int32_t pos) {
    return &f.table[f.req[row] * CONTEXT + pos];
}

struct fault {
    int32_t base;
    int32_t rule;
    int32_t row;
    int64_t value, limit;
    void (*apply)(void);
};

#define FAULT(name, code)                                                                          \
    static void name(void) {                                                                       \
        code;                                                                                      \
    }

FAULT(mode_7, f.batch.forward_mode = 7)
FAULT(req_null, f.batch.req_pool_indices.data = NULL)
FAULT(seq_null, f.batch.seq_lens.data = NULL)
FAULT(ext_null, f.batch.extend_seq_lens.data = NULL)
FAULT(prefix_null, f.batch.extend_prefix_lens.data = NULL)
FAULT(num_absent, f.batch.has_extend_num_tokens = 0)
FAULT(track_null, f.batch.mamba_track_indices.data = NULL)
FAULT(track_len_null, f.batch.mamba_track_seqlens.data = NULL)
FAULT(loc_null, f.batch.out_cache_loc.data = NULL)
FAULT(table_null, f.batch.req_to_token.data = NULL)
FAULT(batch_negative, f.batch.batch_size = INT_MIN)
FAULT(tokens_negative, f.batch.n_tokens = -1)
FAULT(n_extend_more, f.batch.n_extend = INT_MAX)
FAULT(n_extend_less, f.batch.n_extend = 1)
FAULT(n_extend_negative, f.batch.n_extend = -1)
FAULT(req_len, f.batch.req_pool_indices.len = 1)
FAULT(seq_len, f.batch.seq_lens.len = 0)
FAULT(ext_len, f.batch.extend_seq_lens.len = 1)
FAULT(cpu_len, f.batch.extend_seq_lens_cpu.len = 0)
FAULT(cpu_value, f.cpu[0] = 9)
FAULT(prefix_len, f.batch.extend_prefix_lens.len = 5)
FAULT(start_len, f.batch.extend_start_loc.len = 0)
FAULT(start_value, f.start[1] = 7)
FAULT(start_first, f.start[0] = 1)
FAULT(num_value, f.batch.extend_num_tokens = 13)
FAULT(tokens_short, f.batch.n_tokens = 2)
FAULT(mask_len, f.batch.mamba_track_mask.len = 2)
FAULT(track_indices_len, f.batch.mamba_track_indices.len = 1)
FAULT(track_seqlens_len, f.batch.mamba_track_seqlens.len = 1)
FAULT(loc_len, f.batch.out_cache_loc.len = 3)
FAULT(table_rows, f.batch.req_to_token_rows = -1)
FAULT(table_cols, f.batch.req_to_token_cols = CONTEXT + 1)
FAULT(table_len, f.batch.req_to_token.len = REQS * 10)
FAULT(batch_capacity, f.config.max_batch = 1)
FAULT(tokens_capacity, f.config.max_tokens = 2)
FAULT(original_low, f.batch.original_batch_size = -3)
FAULT(original_high, f.batch.original_batch_size = 4)
FAULT(req_range, f.req[1] = REQS)
FAULT(req_negative, f.req[0] = -1)
FAULT(req_padding, f.req[f.batch.original_batch_size] = 1)
FAULT(slot_high, f.req_to_slot[7] = SLOTS + 1)
FAULT(slot_zero, f.req_to_slot[7] = 0)
FAULT(slot_negative, f.req_to_slot[7] = -1)
FAULT(decode_len, f.seq[2] = 0)
FAULT(extend_zero, f.ext[1] = f.cpu[1] = 0; f.batch.extend_num_tokens = 8)
FAULT(prefix_negative, f.prefix[0] = INT_MIN)
FAULT(prefix_sum, f.seq[0] = 13)
FAULT(mask_padding, f.mask[f.batch.original_batch_size] = 1)
FAULT(mask_decode, f.mask[2] = 255)
FAULT(mask_last, f.mask[base_rows - 1] = 1)
FAULT(dst_zero, f.track_indices[0] = f.track_indices[1] = 0)
FAULT(dst_high, f.track_indices[0] = f.track_indices[1] = INT64_MAX)
FAULT(track_short, f.track_seqlens[0] = 7)
FAULT(track_long, f.track_seqlens[0] = 13)
FAULT(loc_zero, f.loc[1] = 0)
FAULT(loc_high, f.loc[0] = KV)
FAULT(context, f.config.max_context = f.batch.req_to_token_cols = 4;
      f.batch.req_to_token.len = 4 * REQS)
FAULT(entry_new, *entry_of(0, f.seq[0] - 1) = 1)
FAULT(entry_prefix, *entry_of(0, 0) = 0)
FAULT(freed, f.slot_kind[3] = HB_SLOT_FREE)
FAULT(ring_pending, f.env.write_pos = f.write_pos; f.write_pos[2] = 7)
FAULT(ring_pending_commit, f.env.write_pos = f.env.ring_base = f.env.ring_flush = f.write_pos;
      f.write_pos[2] = 7)
FAULT(ring_tree, f.config.ring_length = 16; f.config.ring_owner = HB_RING_COMMIT)
FAULT(track_freed, f.slot_kind[TRACK_SLOT] = HB_SLOT_FREE)
FAULT(duplicate, f.req_to_slot[6] = 2)
FAULT(track_duplicate, f.mask[0] = f.mask[1] = 1;
      f.track_indices[0] = f.track_indices[1] = TRACK_SLOT; f.track_seqlens[1] = f.seq[1])
FAULT(loc_duplicate, f.loc[1] = f.loc[0];
      *entry_of(f.batch.n_extend ? 0 : 1, f.batch.n_extend ? 5 : 8) = f.loc[0])
FAULT(not_live, f.slot_kind[2] = HB_SLOT_TREE)
FAULT(not_live_track, f.slot_kind[2] = HB_SLOT_TRACK)
FAULT(alias_row, f.track_indices[0] = f.track_indices[1] = 2)
FAULT(alias_slot, f.slot_kind[TRACK_SLOT] = HB_SLOT_LIVE)
FAULT(alias_tree, f.slot_kind[TRACK_SLOT] = HB_SLOT_TREE)

/* Base G with other node counts of rows 0 and 1, and the cache places of their nodes. */
static void move_layout(int32_t end0, int32_t end1) {
    f.layout[1] = end0;
    f.layout[2] = end1;
    for (int32_t t = 0; t < end1; t++) {
        const int32_t r = t >= end0;
        f.loc[t] = *entry_of(r, f.seq[r] + t - (r ? end0 : 0));
    }
}

FAULT(next_null, f.batch.retrieve_next_token.data = NULL)
FAULT(sibling_null, f.batch.retrieve_next_sibling.data = NULL)
FAULT(draft_more, f.batch.draft_token_num = 6)
FAULT(draft_huge, f.batch.draft_token_num = INT_MAX)
FAULT(next_len, f.batch.retrieve_next_token.len = 14)
FAULT(sibling_len, f.batch.retrieve_next_sibling.len = 16)
FAULT(layout_len, f.batch.ragged_verify_layout.len = 3)
FAULT(layout_first, f.layout[0] = 1)
FAULT(layout_order, f.layout[2] = -1)
FAULT(layout_last, f.layout[3] = 12)
FAULT(draft_capacity, f.config.max_draft = 4)
FAULT(spec_rows, f.config.spec_rows = 2)
FAULT(no_spec, f.config.spec_rows = f.config.max_draft = 0)
FAULT(draft_zero, f.batch.draft_token_num = 0;
      f.batch.retrieve_next_token.len = f.batch.retrieve_next_sibling.len = 0)
FAULT(row_empty, move_layout(0, 5))
FAULT(row_long, move_layout(6, 7))
FAULT(padding_long, move_layout(4, 7))
FAULT(link_high, f.next[3] = 5)
FAULT(link_zero, f.sibling[4] = 0)
FAULT(link_low, f.next[5] = f.sibling[0] = -2)
FAULT(link_ragged, f.sibling[5 + 2] = 3)
FAULT(link_back, f.next[3] = 2)
FAULT(link_self, f.sibling[4] = 4)
FAULT(link_root, f.sibling[0] = 1)
FAULT(link_twice, f.next[5 + 3] = 4)
FAULT(link_orphan, f.next[1] = -1)
FAULT(verify_len, f.seq[0] = 0)
FAULT(verify_context, f.config.max_context = f.batch.req_to_token_cols = 10;
      f.batch.req_to_token.len = 10 * REQS)
FAULT(verify_new, *entry_of(1, 13) = 3)
FAULT(verify_new_ragged, *entry_of(1, 9) = 3)
FAULT(verify_prefix, *entry_of(1, 8) = KV)
FAULT(verify_loc_duplicate, f.loc[1] = f.loc[0]; *entry_of(0, 7) = f.loc[0])
FAULT(mask_verify, f.mask[2] = f.mask[1] = 3)

FAULT(cpu_lens_len, f.batch.seq_lens_cpu.len = 2)
FAULT(cpu_lens_live, f.cpu_lens[1] = 8)
FAULT(cpu_lens_pad, f.cpu_lens[base_rows - 1] = 2)
FAULT(strip_layout, f.config.window_layout = HB_WINDOWS_STRIP)
FAULT(graph_not_ready, f.graphs.is_ready = 0)
FAULT(graph_again, f.graphs.set[base_rows - 1].is_captured = 1)
FAULT(graph_not_captured, f.graphs.set[base_rows - 1].is_captured = 0)
FAULT(graph_mode, f.graphs.set[base_rows - 1].mode = HB_MODE_EXTEND)
FAULT(graph_links, f.graphs.set[base_rows - 1].has_links ^= 1)
FAULT(graph_tokens, f.batch.n_tokens--;
      f.batch.out_cache_loc.len = f.batch.out_cache_loc.data != NULL ? f.batch.n_tokens : 0)
FAULT(graph_draft, f.batch.draft_token_num = 4)
FAULT(graph_capacity, f.graphs.max_bs = 1)
FAULT(graph_ragged, f.batch.ragged_verify_layout = f.batch.req_pool_indices)
FAULT(only_next, f.batch.retrieve_next_token.data = f.next; f.batch.retrieve_next_token.len = 15)
FAULT(only_sibling, f.batch.retrieve_next_sibling.data = f.sibling;
      f.batch.retrieve_next_sibling.len = 15)
FAULT(padding_high, f.batch.has_num_padding = 1; f.batch.num_padding = 5)
FAULT(padding_negative, f.batch.has_num_padding = 1; f.batch.num_padding = -1)
FAULT(padding_middle, f.batch.has_num_padding = 0; f.cpu_lens[0] = 1)

static const struct fault faults[] = {
    {D, HB_RULE_CPU_LENS_LENGTH, -1, 2, 4, cpu_lens_len},
    {T, HB_RULE_CPU_LENS_LENGTH, -1, 2, 3, cpu_lens_len},
    {D, HB_RULE_CPU_LENS_VALUE, 1, 8, 9, cpu_lens_live},
    {T, HB_RULE_CPU_LENS_VALUE, 2, 2, 1, cpu_lens_pad},
    {T, HB_RULE_STRIP_TREE, -1, 0, 0, strip_layout},
    {CD, HB_RULE_GRAPH_MODE_INVALID, -1, 7, 0, mode_7},
    {CT, HB_RULE_GRAPH_NO_INIT, -1, 0, 0, graph_not_ready},
    {CD, HB_RULE_GRAPH_TWICE, -1, 4, 0, graph_again},
    {CV, HB_RULE_LINKS_NULL, -1, 0, 0, only_next},
    {CT, HB_RULE_LINKS_NULL, -1, 0, 0, next_null},
    {CD, HB_RULE_BATCH_NEGATIVE, -1, INT_MIN, 0, batch_negative},
    {CD, HB_RULE_TOKENS_NEGATIVE, -1, -1, 0, tokens_negative},
    {CT, HB_RULE_LINKS_LENGTH, 1, 16, 15, sibling_len},
    {CD, HB_RULE_GRAPH_TOKENS, -1, 3, 4, graph_tokens},
    {CT, HB_RULE_GRAPH_TOKENS, -1, 14, 15, graph_tokens},
    {CV, HB_RULE_GRAPH_DRAFT, -1, 4, 5, graph_draft},
    {CD, HB_RULE_BATCH_CAPACITY, -1, 4, 1, batch_capacity},
    {CT, HB_RULE_TOKENS_CAPACITY, -1, 15, 2, tokens_capacity},
    {CT, HB_RULE_DRAFT_CAPACITY, -1, 5, 4, draft_capacity},
    {CV, HB_RULE_SPEC_ROWS_CAPACITY, -1, 3, 2, spec_rows},
    {CT, HB_RULE_GRAPH_CAPACITY, -1, 3, 1, graph_capacity},
    {CD, HB_RULE_GRAPH_CAPACITY, -1, 4, 1, graph_capacity},
    {CV, HB_RULE_GRAPH_RAGGED, -1, 0, 0, graph_ragged},
    {CT, HB_RULE_STRIP_TREE, -1, 0, 0, strip_layout},
    {RD, HB_RULE_GRAPH_MODE_INVALID, -1, 7, 0, mode_7},
    {RD, HB_RULE_GRAPH_NO_INIT, -1, 0, 0, graph_not_ready},
    {RD, HB_RULE_GRAPH_NOT_CAPTURED, -1, 4, 0, graph_not_captured},
    {RI, HB_RULE_GRAPH_NOT_CAPTURED, -1, 3, 0, graph_not_captured},
    {RD, HB_RULE_GRAPH_MODE, -1, 2, 1, graph_mode},
    {RI, HB_RULE_GRAPH_MODE, -1, 4, 1, graph_mode},
    {RV, HB_RULE_GRAPH_LINKS, -1, 0, 1, graph_links},
    {RT, HB_RULE_GRAPH_LINKS, -1, 1, 0, graph_links},
    {RD, HB_RULE_REQ_NULL, -1, 0, 4, req_null},
    {RV, HB_RULE_SEQ_LENS_NULL, -1, 0, 3, seq_null},
    {RD, HB_RULE_TRACK_INDICES_NULL, 1, 0, 0, track_null},
    {RV, HB_RULE_CACHE_LOC_NULL, -1, 0, 15, loc_null},
    {RD, HB_RULE_REQ_TO_TOKEN_NULL, -1, 0, 4, table_null},
    {RV, HB_RULE_LINKS_NULL, -1, 0, 0, only_sibling},
    {RD, HB_RULE_BATCH_NEGATIVE, -1, INT_MIN, 0, batch_negative},
    {RI, HB_RULE_BATCH_NEGATIVE, -1, INT_MIN, 0, batch_negative},
    {RI, HB_RULE_TOKENS_NEGATIVE, -1, -1, 0, tokens_negative},
    {RD, HB_RULE_REQ_LENGTH, -1, 1, 4, req_len},
    {RT, HB_RULE_SEQ_LENS_LENGTH, -1, 0, 3, seq_len},
    {RD, HB_RULE_TRACK_MASK_LENGTH, -1, 2, 4, mask_len},
    {RD, HB_RULE_TRACK_INDICES_LENGTH, -1, 1, 4, track_indices_len},
    {RV, HB_RULE_CACHE_LOC_LENGTH, -1, 3, 15, loc_len},
    {RD, HB_RULE_REQ_TO_TOKEN_ROWS, -1, -1, REQS, table_rows},
    {RT, HB_RULE_REQ_TO_TOKEN_COLS, -1, CONTEXT + 1, CONTEXT, table_cols},
    {RT, HB_RULE_LINKS_LENGTH, 0, 14, 15, next_len},
    {RD, HB_RULE_CPU_LENS_LENGTH, -1, 2, 4, cpu_lens_len},
    {RD, HB_RULE_GRAPH_TOKENS, -1, 3, 4, graph_tokens},
    {RI, HB_RULE_GRAPH_TOKENS, -1, 2, 3, graph_tokens},
    {RV, HB_RULE_GRAPH_TOKENS, -1, 14, 15, graph_tokens},
    {RV, HB_RULE_GRAPH_DRAFT, -1, 4, 5, graph_draft},
    {RD, HB_RULE_BATCH_CAPACITY, -1, 4, 1, batch_capacity},
    {RT, HB_RULE_TOKENS_CAPACITY, -1, 15, 2, tokens_capacity},
    {RT, HB_RULE_SPEC_ROWS_CAPACITY, -1, 3, 2, spec_rows},
    {RD, HB_RULE_GRAPH_CAPACITY, -1, 4, 1, graph_capacity},
    {RI, HB_RULE_GRAPH_CAPACITY, -1, 3, 1, graph_capacity},
    {RD, HB_RULE_PADDING_RANGE, -1, 5, 4, padding_high},
    {RT, HB_RULE_PADDING_RANGE, -1, -1, 3, padding_negative},
    {RD, HB_RULE_PADDING_COUNT, 0, 1, 1, padding_middle},
    {RT, HB_RULE_PADDING_COUNT, 0, 1, 1, padding_middle},
    {RD, HB_RULE_REQ_RANGE, 0, -1, REQS - 1, req_negative},
    {RV, HB_RULE_SLOT_RANGE, 0, 0, SLOTS, slot_zero},
    {RD, HB_RULE_SEQ_LEN_RANGE, 2, 0, 1, decode_len},
    {RD, HB_RULE_TRACK_MASK_PADDING, 3, 0, 0, mask_last},
    {RD, HB_RULE_TRACK_SLOT_RANGE, 1, 0, SLOTS, dst_zero},
    {RD, HB_RULE_CACHE_LOC_RANGE, 0, KV, KV - 1, loc_high},
    {RT, HB_RULE_CONTEXT_RANGE, 0, 11, 10, verify_context},
    {RV, HB_RULE_REQ_TO_TOKEN_NEW, 1, 3, 1 + 6 * CONTEXT + 13, verify_new},
    {RD, HB_RULE_REQ_TO_TOKEN_PREFIX, 0, 0, KV - 1, entry_prefix},
    {RT, HB_RULE_LINK_RANGE, 0, 5, 4, link_high},
    {RT, HB_RULE_LINK_ORDER, 0, 2, 3, link_back},
    {RT, HB_RULE_LINK_TREE, 1, 4, 2, link_twice},
    {RV, HB_RULE_TRACK_MASK_VERIFY, 1, 0, 0, mask_verify},
    {RD, HB_RULE_CPU_LENS_VALUE, 1, 8, 9, cpu_lens_live},
    {RT, HB_RULE_CPU_LENS_VALUE, 2, 2, 1, cpu_lens_pad},
    {RD, HB_RULE_SLOT_FREED, 1, 3, 0, freed},
    {RD, HB_RULE_TRACK_SLOT_FREED, 1, TRACK_SLOT, 0, track_freed},
    {RV, HB_RULE_SLOT_DUPLICATE, 1, 2, 0, duplicate},
    {RD, HB_RULE_TRACK_DUPLICATE, 1, TRACK_SLOT, 0, track_duplicate},
    {RD, HB_RULE_CACHE_LOC_DUPLICATE, 1, 1 + 7 * CONTEXT + 5, 0, loc_duplicate},
    {RD, HB_RULE_SLOT_NOT_LIVE, 0, 2, 0, not_live_track},
    {RD, HB_RULE_TRACK_ALIAS_ROW, 1, 2, 0, alias_row},
    {RD, HB_RULE_TRACK_ALIAS_SLOT, 1, TRACK_SLOT, 0, alias_slot},
    {RV, HB_RULE_GRAPH_RAGGED, -1, 0, 0, graph_ragged},
    {RT, HB_RULE_STRIP_TREE, -1, 0, 0, strip_layout},
    {E, HB_RULE_MODE_INVALID, -1, 7, 0, mode_7},
    {D, HB_RULE_REQ_NULL, -1, 0, 4, req_null},
    {E, HB_RULE_SEQ_LENS_NULL, -1, 0, 3, seq_null},
    {E, HB_RULE_EXTEND_LENS_NULL, -1, 0, 2, ext_null},
    {M, HB_RULE_PREFIX_LENS_NULL, -1, 0, 1, prefix_null},
    {E, HB_RULE_EXTEND_NUM_NULL, -1, 0, 0, num_absent},
    {D, HB_RULE_TRACK_INDICES_NULL, 1, 0, 0, track_null},
    {E, HB_RULE_TRACK_INDICES_NULL, 0, 0, 0, track_null},
    {E, HB_RULE_TRACK_LENS_NULL, 0, 0, 0, track_len_null},
    {E, HB_RULE_CACHE_LOC_NULL, -1, 0, 13, loc_null},
    {D, HB_RULE_REQ_TO_TOKEN_NULL, -1, 0, 4, table_null},
    {I, HB_RULE_BATCH_NEGATIVE, -1, INT_MIN, 0, batch_negative},
    {D, HB_RULE_BATCH_NEGATIVE, -1, INT_MIN, 0, batch_negative},
    {E, HB_RULE_TOKENS_NEGATIVE, -1, -1, 0, tokens_negative},
    {I, HB_RULE_TOKENS_NEGATIVE, -1, -1, 0, tokens_negative},
    {E, HB_RULE_N_EXTEND_ROWS, -1, INT_MAX, 2, n_extend_more},
    {E, HB_RULE_N_EXTEND_ROWS, -1, 1, 2, n_extend_less},
    {M, HB_RULE_N_EXTEND_ROWS, -1, -1, 3, n_extend_negative},
    {M, HB_RULE_N_EXTEND_ROWS, -1, INT_MAX, 3, n_extend_more},
    {D, HB_RULE_REQ_LENGTH, -1, 1, 4, req_len},
    {E, HB_RULE_SEQ_LENS_LENGTH, -1, 0, 3, seq_len},
    {E, HB_RULE_EXTEND_LENS_LENGTH, -1, 1, 2, ext_len},
    {E, HB_RULE_EXTEND_CPU_LENGTH, -1, 0, 2, cpu_len},
    {M, HB_RULE_EXTEND_CPU_VALUE, 0, 9, 8, cpu_value},
    {E, HB_RULE_PREFIX_LENS_LENGTH, -1, 5, 2, prefix_len},
    {E, HB_RULE_START_LOC_LENGTH, -1, 0, 2, start_len},
    {E, HB_RULE_START_LOC_VALUE, 1, 7, 8, start_value},
    {M, HB_RULE_START_LOC_VALUE, 0, 1, 0, start_first},
    {E, HB_RULE_EXTEND_NUM_VALUE, -1, 13, 11, num_value},
    {E, HB_RULE_TOKENS_SHORT, -1, 2, 11, tokens_short},
    {M, HB_RULE_TOKENS_SHORT, -1, 2, 10, tokens_short},
    {D, HB_RULE_TOKENS_SHORT, -1, 2, 3, tokens_short},
    {D, HB_RULE_TRACK_MASK_LENGTH, -1, 2, 4, mask_len},
    {D, HB_RULE_TRACK_INDICES_LENGTH, -1, 1, 4, track_indices_len},
    {E, HB_RULE_TRACK_LENS_LENGTH, -1, 1, 3, track_seqlens_len},
    {E, HB_RULE_CACHE_LOC_LENGTH, -1, 3, 13, loc_len},
    {E, HB_RULE_REQ_TO_TOKEN_ROWS, -1, -1, REQS, table_rows},
    {E, HB_RULE_REQ_TO_TOKEN_COLS, -1, CONTEXT + 1, CONTEXT, table_cols},
    {D, HB_RULE_REQ_TO_TOKEN_COLS, -1, 10, CONTEXT, table_len},
    {E, HB_RULE_BATCH_CAPACITY, -1, 3, 1, batch_capacity},
    {I, HB_RULE_BATCH_CAPACITY, -1, 3, 1, batch_capacity},
    {E, HB_RULE_TOKENS_CAPACITY, -1, 13, 2, tokens_capacity},
    {D, HB_RULE_ORIGINAL_RANGE, -1, -3, 4, original_low},
    {I, HB_RULE_ORIGINAL_RANGE, -1, 4, 3, original_high},
    {M, HB_RULE_REQ_RANGE, 1, REQS, REQS - 1, req_range},
    {D, HB_RULE_REQ_RANGE, 0, -1, REQS - 1, req_negative},
    {D, HB_RULE_REQ_PADDING, 3, 1, 0, req_padding},
    {E, HB_RULE_REQ_PADDING, 2, 1, 0, req_padding},
    {D, HB_RULE_SLOT_RANGE, 0, SLOTS + 1, SLOTS, slot_high},
    {E, HB_RULE_SLOT_RANGE, 0, 0, SLOTS, slot_zero},
    {M, HB_RULE_SLOT_RANGE, 0, -1, SLOTS, slot_negative},
    {D, HB_RULE_SEQ_LEN_RANGE, 2, 0, 1, decode_len},
    {M, HB_RULE_SEQ_LEN_RANGE, 2, 0, 1, decode_len},
    {E, HB_RULE_EXTEND_LEN_RANGE, 1, 0, 1, extend_zero},
    {E, HB_RULE_PREFIX_RANGE, 0, INT_MIN, 0, prefix_negative},
    {M, HB_RULE_PREFIX_SUM, 0, 12, 13, prefix_sum},
    {D, HB_RULE_TRACK_MASK_PADDING, 3, 0, 0, mask_padding},
    {M, HB_RULE_TRACK_MASK_PADDING, 3, 0, 0, mask_padding},
    {M, HB_RULE_TRACK_MASK_DECODE, 2, 0, 0, mask_decode},
    {D, HB_RULE_TRACK_SLOT_RANGE, 1, 0, SLOTS, dst_zero},
    {E, HB_RULE_TRACK_SLOT_RANGE, 0, INT64_MAX, SLOTS, dst_high},
    {E, HB_RULE_TRACK_LEN_SHORT, 0, 7, 8, track_short},
    {M, HB_RULE_TRACK_LEN_LONG, 0, 13, 12, track_long},
    {E, HB_RULE_CACHE_LOC_RANGE, 1, 0, KV - 1, loc_zero},
    {D, HB_RULE_CACHE_LOC_RANGE, 0, KV, KV - 1, loc_high},
    {D, HB_RULE_CONTEXT_RANGE, 0, 6, 4, context},
    {E, HB_RULE_REQ_TO_TOKEN_NEW, 0, 1, 1 + 7 * CONTEXT + 11, entry_new},
    {D, HB_RULE_REQ_TO_TOKEN_NEW, 0, 1, 1 + 7 * CONTEXT + 5, entry_new},
    {D, HB_RULE_REQ_TO_TOKEN_PREFIX, 0, 0, KV - 1, entry_prefix},
    {M, HB_RULE_REQ_TO_TOKEN_PREFIX, 0, 0, KV - 1, entry_prefix},
    {M, HB_RULE_SLOT_FREED, 1, 3, 0, freed},
    {D, HB_RULE_TRACK_SLOT_FREED, 1, TRACK_SLOT, 0, track_freed},
    {E, HB_RULE_RING_PENDING, 0, 2, 7, ring_pending},
    {M, HB_RULE_RING_PENDING, 0, 2, 7, ring_pending},
    {V, HB_RULE_RING_PENDING, 0, 2, 7, ring_pending},
    {E, HB_RULE_RING_PENDING, 0, 2, 7, ring_pending_commit},
    {M, HB_RULE_RING_PENDING, 0, 2, 7, ring_pending_commit},
    {D, HB_RULE_RING_PENDING, 0, 2, 7, ring_pending_commit},
    {RD, HB_RULE_RING_PENDING, 0, 2, 7, ring_pending_commit},
    {T, HB_RULE_RING_TREE, -1, 0, 0, ring_tree},
    {G, HB_RULE_RING_TREE, -1, 0, 0, ring_tree},
    {CT, HB_RULE_RING_TREE, -1, 0, 0, ring_tree},
    {RT, HB_RULE_RING_TREE, -1, 0, 0, ring_tree},
    {E, HB_RULE_SLOT_DUPLICATE, 1, 2, 0, duplicate},
    {D, HB_RULE_TRACK_DUPLICATE, 1, TRACK_SLOT, 0, track_duplicate},
    {E, HB_RULE_CACHE_LOC_DUPLICATE, 1, 1 + 7 * CONTEXT + 4, 0, loc_duplicate},
    {D, HB_RULE_CACHE_LOC_DUPLICATE, 1, 1 + 7 * CONTEXT + 5, 0, loc_duplicate},
    {E, HB_RULE_SLOT_NOT_LIVE, 0, 2, 0, not_live},
    {D, HB_RULE_SLOT_NOT_LIVE, 0, 2, 0, not_live_track},
    {D, HB_RULE_TRACK_ALIAS_ROW, 1, 2, 0, alias_row},
    {E, HB_RULE_TRACK_ALIAS_ROW, 0, 2, 0, alias_row},
    {E, HB_RULE_TRACK_ALIAS_SLOT, 0, TRACK_SLOT, 0, alias_slot},
    {M, HB_RULE_TRACK_ALIAS_SLOT, 0, TRACK_SLOT, 0, alias_tree},
    {V, HB_RULE_REQ_NULL, -1, 0, 3, req_null},
    {T, HB_RULE_SEQ_LENS_NULL, -1, 0, 3, seq_null},
    {V, HB_RULE_CACHE_LOC_NULL, -1, 0, 15, loc_null},
    {G, HB_RULE_REQ_TO_TOKEN_NULL, -1, 0, 3, table_null},
    {T, HB_RULE_LINKS_NULL, -1, 0, 0, next_null},
    {G, HB_RULE_LINKS_NULL, -1, 0, 0, sibling_null},
    {V, HB_RULE_BATCH_NEGATIVE, -1, INT_MIN, 0, batch_negative},
    {G, HB_RULE_TOKENS_NEGATIVE, -1, -1, 0, tokens_negative},
    {V, HB_RULE_REQ_LENGTH, -1, 1, 3, req_len},
    {T, HB_RULE_SEQ_LENS_LENGTH, -1, 0, 3, seq_len},
    {V, HB_RULE_TRACK_MASK_LENGTH, -1, 2, 3, mask_len},
    {G, HB_RULE_CACHE_LOC_LENGTH, -1, 3, 13, loc_len},
    {V, HB_RULE_REQ_TO_TOKEN_ROWS, -1, -1, REQS, table_rows},
    {T, HB_RULE_REQ_TO_TOKEN_COLS, -1, CONTEXT + 1, CONTEXT, table_cols},
    {V, HB_RULE_VERIFY_TOKENS, -1, 15, 18, draft_more},
    {T, HB_RULE_VERIFY_TOKENS, -1, 15, 3 * (int64_t)INT_MAX, draft_huge},
    {T, HB_RULE_LINKS_LENGTH, 0, 14, 15, next_len},
    {G, HB_RULE_LINKS_LENGTH, 1, 16, 15, sibling_len},
    {G, HB_RULE_RAGGED_LENGTH, -1, 3, 4, layout_len},
    {G, HB_RULE_RAGGED_ORDER, 0, 1, 0, layout_first},
    {G, HB_RULE_RAGGED_ORDER, 2, -1, 5, layout_order},
    {G, HB_RULE_RAGGED_TOTAL, -1, 12, 13, layout_last},
    {V, HB_RULE_BATCH_CAPACITY, -1, 3, 1, batch_capacity},
    {G, HB_RULE_TOKENS_CAPACITY, -1, 13, 2, tokens_capacity},
    {T, HB_RULE_DRAFT_CAPACITY, -1, 5, 4, draft_capacity},
    {G, HB_RULE_SPEC_ROWS_CAPACITY, -1, 3, 2, spec_rows},
    {V, HB_RULE_SPEC_ROWS_CAPACITY, -1, 3, 0, no_spec},
    {G, HB_RULE_ORIGINAL_RANGE, -1, -3, 3, original_low},
    {T, HB_RULE_ORIGINAL_RANGE, -1, 4, 3, original_high},
    {V, HB_RULE_REQ_RANGE, 1, REQS, REQS - 1, req_range},
    {V, HB_RULE_REQ_PADDING, 2, 1, 0, req_padding},
    {V, HB_RULE_SLOT_RANGE, 0, 0, SLOTS, slot_zero},
    {V, HB_RULE_SEQ_LEN_RANGE, 0, 0, 1, verify_len},
    {V, HB_RULE_CACHE_LOC_RANGE, 1, 0, KV - 1, loc_zero},
    {T, HB_RULE_CONTEXT_RANGE, 0, 11, 10, verify_context},
    {V, HB_RULE_REQ_TO_TOKEN_NEW, 1, 3, 1 + 6 * CONTEXT + 13, verify_new},
    {G, HB_RULE_REQ_TO_TOKEN_NEW, 1, 3, 1 + 6 * CONTEXT + 9, verify_new_ragged},
    {V, HB_RULE_REQ_TO_TOKEN_PREFIX, 1, KV, KV - 1, verify_prefix},
    {G, HB_RULE_DRAFT_RANGE, -1, 0, 1, draft_zero},
    {G, HB_RULE_RAGGED_ROW, 0, 0, 5, row_empty},
    {G, HB_RULE_RAGGED_ROW, 0, 6, 5, row_long},
    {G, HB_RULE_RAGGED_ROW, 2, 6, 5, padding_long},
    {T, HB_RULE_LINK_RANGE, 0, 5, 4, link_high},
    {T, HB_RULE_LINK_RANGE, 0, 0, 4, link_zero},
    {T, HB_RULE_LINK_RANGE, 0, -2, 4, link_low},
    {G, HB_RULE_LINK_RANGE, 1, 3, 2, link_ragged},
    {T, HB_RULE_LINK_ORDER, 0, 2, 3, link_back},
    {T, HB_RULE_LINK_ORDER, 0, 4, 4, link_self},
    {G, HB_RULE_LINK_ORDER, 0, 1, 0, link_root},
    {T, HB_RULE_LINK_TREE, 1, 4, 2, link_twice},
    {G, HB_RULE_LINK_TREE, 0, 3, 0, link_orphan},
    {V, HB_RULE_TRACK_MASK_VERIFY, 1, 0, 0, mask_verify},
    {T, HB_RULE_SLOT_FREED, 1, 3, 0, freed},
    {V, HB_RULE_SLOT_DUPLICATE, 1, 2, 0, duplicate},
    {V, HB_RULE_CACHE_LOC_DUPLICATE, 1, 1 + 7 * CONTEXT + 6, 0, verify_loc_duplicate},
    {G, HB_RULE_SLOT_NOT_LIVE, 0, 2, 0, not_live_track},
};

enum { N_FAULTS = sizeof(faults) / sizeof(faults[0]) };

#endif
