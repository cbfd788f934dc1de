/* SPDX-License-Identifier: Apache-2.0
 * A small valid configuration, and valid batches of every mode with storage that a test may then
 * break. Layers: 0 Mamba2, 1 attention, 2 Mamba2. Row r is request 7-r (padding: 0) on slot 2+r;
 * the KV place of position p of request q is 1 + q*CONTEXT + p. */
#ifndef HB_BACKEND_TESTS_FIXTURE_H
#define HB_BACKEND_TESTS_FIXTURE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backend/adapter.h"
#include "backend/validate.h"

enum {
    REQS = 8,
    ROWS = 8,
    TOKENS = 160,
    CONTEXT = 64,
    SLOTS = 12,
    SPEC_ROWS = 6,
    MAX_DRAFT = 7,
    GRAPH_ROWS = 5,
    GRAPH_DRAFT = 5,
    KV = 1 + REQS * CONTEXT,
    TRACK_SLOT = 10
};

struct fixture {
    struct hb_config config;
    struct hb_batch batch;
    int32_t req[ROWS], seq[ROWS], ext[ROWS], cpu[ROWS], prefix[ROWS], start[ROWS];
    uint8_t mask[ROWS];
    int64_t track_indices[ROWS], track_seqlens[ROWS];
    int32_t loc[TOKENS];
    int32_t table[REQS * CONTEXT];
    int32_t cpu_lens[ROWS];
    struct hb_graph_facts graphs;
    int32_t req_to_slot[REQS];
    int32_t slot_kind[SLOTS + 1];
    int32_t write_pos[SLOTS + 1]; /* of a replay ring: in the environment where a test wants one */
    int32_t slot_seen[SLOTS + 1];
    int32_t kv_seen[KV];
    int32_t next[ROWS * MAX_DRAFT], sibling[ROWS * MAX_DRAFT], layout[ROWS + 1];
    struct hb_validate_env env;
};

static inline void fixture_config(struct hb_config *c) {
    memset(c, 0, sizeof(*c));
    c->struct_size = sizeof(*c);
    c->n_layers = 3;
    c->layer_kind[1] = HB_LAYER_ATTENTION;
    c->n_heads = 4;
    c->head_dim = 2;
    c->state_size = 3;
    c->n_groups = 2;
    c->conv_width = 4;
    c->chunk_size = 4;
    c->page_size = 1;
    c->norm_group = 8;
    c->dt_softplus = 1;
    c->dt_hi = INFINITY;
    c->norm_eps = 1e-5F;
    c->n_q_heads = 2;
    c->n_kv_heads = 1;
    c->attn_dim = 4;
    c->n_slots = SLOTS;
    c->req_pool_size = REQS;
    c->max_context = CONTEXT;
    c->n_kv = KV;
    c->max_batch = ROWS;
    c->max_tokens = TOKENS;
    c->spec_rows = SPEC_ROWS;
    c->max_draft = MAX_DRAFT;
    c->graph_rows = GRAPH_ROWS;
    c->graph_draft = GRAPH_DRAFT;
}

static inline void fixture_tables(struct fixture *f) {
    memset(f, 0, sizeof(*f));
    fixture_config(&f->config);
    for (int32_t r = 0; r < ROWS; r++) {
        f->req_to_slot[7 - r] = 2 + r;
        f->slot_kind[2 + r] = HB_SLOT_LIVE;
    }
    f->slot_kind[0] = HB_SLOT_RESERVED;
    f->slot_kind[TRACK_SLOT] = HB_SLOT_TRACK;
    f->slot_kind[TRACK_SLOT + 1] = HB_SLOT_TRACK;
    for (int32_t i = 0; i < REQS * CONTEXT; i++) {
        f->table[i] = 1 + i;
    }
    f->env = (struct hb_validate_env){.config = &f->config,
                                      .has_attention = 1,
                                      .req_to_slot = f->req_to_slot,
                                      .slot_kind = f->slot_kind,
                                      .slot_seen = f->slot_seen,
                                      .graphs = &f->graphs,
                                      .kv_seen = f->kv_seen};
}

/* Rows 0..np-1 extend (prefix[r], len[r]), np..np+nd-1 decode of sequence length seq[r-np], then
 * pad rows and tokens. */
static inline void fixture_batch(struct fixture *f, int32_t mode, int32_t np, const int32_t *prefix,
                                 const int32_t *len, int32_t nd, const int32_t *seq,
                                 int32_t pad_rows, int32_t pad_tokens) {
    struct hb_batch *b = &f->batch;
    int32_t t = 0;
    memset(b, 0, sizeof(*b));
    b->struct_size = sizeof(*b);
    b->forward_mode = mode;
    b->batch_size = np + nd + pad_rows;
    b->has_original_batch_size = 1;
    b->original_batch_size = np + nd;
    b->n_extend = np;
    for (int32_t r = 0; r < np + nd; r++) {
        const int32_t n = r < np ? len[r] : 1;
        f->req[r] = 7 - r;
        f->seq[r] = r < np ? prefix[r] + len[r] : seq[r - np];
        f->start[r] = t;
        f->ext[r] = n;
        f->cpu[r] = n;
        f->prefix[r] = f->seq[r] - n;
        for (int32_t j = 0; j < n; j++) {
            f->loc[t++] = f->table[f->req[r] * CONTEXT + f->prefix[r] + j];
        }
        b->extend_num_tokens += r < np ? n : 0;
        f->track_indices[r] = -7;
        f->track_seqlens[r] = -1;
    }
    b->has_extend_num_tokens = mode != 2 && mode != 4;
    b->n_tokens = t + pad_tokens;
    b->req_pool_indices = (struct hb_i32s){f->req, b->batch_size};
    b->seq_lens = (struct hb_i32s){f->seq, b->batch_size};
    if (mode != 2 && mode != 4) {
        b->extend_seq_lens = (struct hb_i32s){f->ext, np};
        b->extend_seq_lens_cpu = (struct hb_i32s){f->cpu, np};
        b->extend_prefix_lens = (struct hb_i32s){f->prefix, np};
        b->extend_start_loc = (struct hb_i32s){f->start, np};
    }
    b->mamba_track_mask = (struct hb_u8s){f->mask, b->batch_size};
    b->mamba_track_indices = (struct hb_i64s){f->track_indices, b->batch_size};
    b->mamba_track_seqlens = (struct hb_i64s){f->track_seqlens, b->batch_size};
    b->out_cache_loc = (struct hb_i32s){f->loc, b->n_tokens};
    b->req_to_token = (struct hb_i32s){f->table, REQS * CONTEXT};
    b->req_to_token_rows = REQS;
    b->req_to_token_cols = CONTEXT;
}

/* Verify: live rows of seq[r] tokens with nodes[r] draft nodes each (null: draft of them), then pad
 * rows of draft nodes each; ragged where nodes is given. Chains; fixture_tree makes trees of them.
 */
static inline void fixture_verify(struct fixture *f, int32_t draft, int32_t n, const int32_t *seq,
                                  const int32_t *nodes, int32_t pad_rows) {
    struct hb_batch *b = &f->batch;
    int32_t t = 0;
    fixture_batch(f, HB_MODE_TARGET_VERIFY, 0, NULL, NULL, 0, NULL, n + pad_rows, 0);
    b->original_batch_size = n;
    b->draft_token_num = draft;
    b->has_extend_num_tokens = 0;
    for (int32_t r = 0; r < n + pad_rows; r++) {
        f->req[r] = r < n ? 7 - r : 0;
        f->seq[r] = r < n ? seq[r] : 1;
        f->layout[r] = t;
        const int32_t count = r < n && nodes != NULL ? nodes[r] : draft;
        for (int32_t j = 0; j < count; j++) {
            f->loc[t++] = r < n ? f->table[f->req[r] * CONTEXT + seq[r] + j] : 0;
        }
        f->layout[r + 1] = t;
    }
    b->n_tokens = t;
    b->out_cache_loc.len = t;
    if (nodes != NULL) {
        b->ragged_verify_layout = (struct hb_i32s){f->layout, b->batch_size + 1};
    }
}

/* Links of every row: node 0 has children 1 and 2, 1 has 3, 2 has 4 (speculative.md section 3), cut
 * at the row's nodes; a fifth node and later ones are unused. */
static inline void fixture_tree(struct fixture *f) {
    static const int32_t child[] = {1, 3, 4};
    struct hb_batch *b = &f->batch;
    const int32_t draft = b->draft_token_num;
    for (int32_t i = 0; i < b->batch_size * draft; i++) {
        const int32_t node = i % draft;
        const int32_t n = f->layout[i / draft + 1] - f->layout[i / draft];
        const int32_t next = node < 3 ? child[node] : -1;
        f->next[i] = next < n ? next : -1;
        f->sibling[i] = node == 1 && n > 2 ? 2 : -1;
    }
    b->retrieve_next_token = (struct hb_i32s){f->next, (int64_t)b->batch_size * draft};
    b->retrieve_next_sibling = (struct hb_i32s){f->sibling, (int64_t)b->batch_size * draft};
}

/* seq_lens_cpu of a DECODE or verify batch: seq_lens of live rows, 1 on padding. */
static inline void fixture_cpu_lens(struct fixture *f) {
    for (int32_t r = 0; r < f->batch.batch_size; r++) {
        f->cpu_lens[r] = r < f->batch.original_batch_size ? f->seq[r] : 1;
    }
    f->batch.seq_lens_cpu = (struct hb_i32s){f->cpu_lens, f->batch.batch_size};
}

static inline void fixture_track(struct fixture *f, int32_t row, int64_t dst, int64_t seqlen) {
    f->mask[row] = 1;
    f->track_indices[row] = dst;
    f->track_seqlens[row] = seqlen;
}

#endif
