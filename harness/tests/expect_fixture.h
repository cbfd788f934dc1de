/* SPDX-License-Identifier: Apache-2.0
 * Valid batches of each family for the tests of the prediction, one recipe per rule of begin that
 * breaks it, and an independent statement of which rule a batch breaks. Included by one test
 * program each. */
#ifndef HB_HARNESS_TESTS_EXPECT_FIXTURE_H
#define HB_HARNESS_TESTS_EXPECT_FIXTURE_H

#include "harness/tests/expect_common.h"

#include <stdlib.h>
#include <string.h>

enum { CAP = 64 };
enum { BEGIN, CAPTURE, REPLAY };

/* A batch whose arrays live in the fixture; `call` hands exact-size copies to the prediction. */
struct fixture {
    struct hb_config config;
    struct hb_caps caps;
    struct hb_slot_model slots;
    struct hb_batch b;
    int b_null;
    int by; /* which call judges the batch: BEGIN, CAPTURE or REPLAY */
    struct hb_graph_phase graphs;
    int32_t kind[NS + 1], free_list[NS], cursor[NS + 1], table[REQS];
    int64_t generation[NS + 1];
    int32_t req[CAP], seq[CAP], mirror[CAP], ext[CAP], cpu[CAP], prefix[CAP], start[CAP], loc[CAP];
    uint8_t mask[CAP];
    int64_t track[CAP], point[CAP];
    int32_t tokens[REQS * CONTEXT + CAP];
    int32_t next[CAP], sibling[CAP], layout[CAP]; /* of a verify */
};

/* The slots of the fixture: 1..4 live, 5 in the tree, 6 and 7 track, 8 free; request r has slot r,
 * request 5 slot 8. */
static void fixture_slots(struct fixture *f) {
    static const int32_t kinds[NS + 1] = {HB_SLOT_RESERVED, HB_SLOT_LIVE,  HB_SLOT_LIVE,
                                          HB_SLOT_LIVE,     HB_SLOT_LIVE,  HB_SLOT_TREE,
                                          HB_SLOT_TRACK,    HB_SLOT_TRACK, HB_SLOT_FREE};
    memcpy(f->kind, kinds, sizeof kinds);
    f->free_list[0] = 8;
    for (int32_t r = 0; r < REQS; r++) {
        f->table[r] = r == 5 ? 8 : r;
    }
    f->slots = (struct hb_slot_model){.n_slots = NS,
                                      .kind = f->kind,
                                      .free_list = f->free_list,
                                      .n_free = 1,
                                      .generation = f->generation,
                                      .write_pos = f->cursor,
                                      .req_pool_size = REQS,
                                      .table = f->table};
}

/* Writes the mapping of row r: prefix entries from the top of the cache, new ones from
 * out_cache_loc. */
static void fixture_tokens(struct fixture *f, int32_t r, int32_t prefix, int32_t n, int32_t first) {
    int32_t *row = f->tokens + (ptrdiff_t)f->req[r] * CONTEXT;
    for (int32_t p = 0; p < prefix + n; p++) {
        row[p] = p < prefix ? 40 + r * 6 + p % 6 : f->loc[first + p - prefix];
    }
}

static void fixture_extend(struct fixture *f, int32_t np) {
    static const int32_t lens[3] = {5, 8, 4};
    static const int32_t prefixes[3] = {0, 4, 3};
    int32_t token = 0;
    for (int32_t r = 0; r < 3; r++) {
        int32_t n = r < np ? lens[r] : 1;
        int32_t prefix = r < np ? prefixes[r] : f->seq[r] - 1;
        f->seq[r] = prefix + n;
        f->point[r] = r < np && r != 1 ? prefix + n : -1;
        if (r < np) {
            f->ext[r] = f->cpu[r] = n;
            f->prefix[r] = prefix;
            f->start[r] = token;
        }
        fixture_tokens(f, r, prefix, n, token);
        token += n;
    }
    f->b.n_extend = np;
    f->b.has_extend_num_tokens = 1;
    f->b.extend_num_tokens = token - (3 - np);
    f->b.n_tokens = token + 2;
}

/* Three real rows and one padding row (idle: padding only), two surplus tokens; rows 0 and 2 are
 * tracked where they may. */
static void fixture_init(struct fixture *f, int32_t mode) {
    memset(f, 0, sizeof *f);
    fixture_config(&f->config, &f->caps);
    fixture_slots(f);
    for (int32_t i = 0; i < 20; i++) {
        f->loc[i] = i + 1;
    }
    static const int32_t seq[4] = {5, 12, 7, 1};
    for (int32_t r = 0; r < 4; r++) {
        f->req[r] = r == 3 ? 0 : r + 1;
        f->seq[r] = seq[r];
        f->point[r] = -1;
        f->track[r] = -1;
    }
    f->b = (struct hb_batch){.struct_size = sizeof f->b,
                             .forward_mode = mode,
                             .batch_size = 4,
                             .has_original_batch_size = 1,
                             .original_batch_size = 3};
    f->mask[0] = 1;
    f->track[0] = 6;
    if (mode == HB_MODE_MIXED) {
        fixture_extend(f, 2);
        f->mask[1] = 1;
        f->track[1] = 7;
        f->point[1] = 9;
    } else {
        f->mask[2] = 1;
        f->track[2] = 7;
        if (mode == HB_MODE_DECODE) {
            for (int32_t r = 0; r < 3; r++) {
                fixture_tokens(f, r, f->seq[r] - 1, 1, r);
            }
            f->b.n_tokens = 5;
        } else if (mode == HB_MODE_IDLE) {
            f->b.original_batch_size = 0;
            f->b.n_tokens = 5;
        } else {
            fixture_extend(f, 3);
        }
    }
    int64_t np = f->b.n_extend;
    f->b.req_pool_indices = (struct hb_i32s){f->req, 4};
    f->b.seq_lens = (struct hb_i32s){f->seq, 4};
    memcpy(f->mirror, f->seq, 4 * sizeof *f->mirror);
    f->b.seq_lens_cpu = (struct hb_i32s){f->mirror, 4};
    if (np > 0) {
        f->b.extend_seq_lens = (struct hb_i32s){f->ext, np};
        f->b.extend_seq_lens_cpu = (struct hb_i32s){f->cpu, np};
        f->b.extend_prefix_lens = (struct hb_i32s){f->prefix, np};
        f->b.extend_start_loc = (struct hb_i32s){f->start, np};
        f->b.mamba_track_seqlens = (struct hb_i64s){f->point, 4};
    }
    f->b.mamba_track_mask = (struct hb_u8s){f->mask, 4};
    f->b.mamba_track_indices = (struct hb_i64s){f->track, 4};
    f->b.out_cache_loc = (struct hb_i32s){f->loc, f->b.n_tokens};
    f->b.req_to_token = (struct hb_i32s){f->tokens, (int64_t)REQS * CONTEXT};
    f->b.req_to_token_rows = REQS;
    f->b.req_to_token_cols = CONTEXT;
}

/* Copies of the arrays in blocks of their exact size, so that the sanitizer sees one entry too
 * many. */
static void *exact(const void *data, int64_t len, size_t item, void **blocks, int *n) {
    size_t bytes = len > 0 ? (size_t)len * item : 0;
    if (data == NULL) {
        return NULL;
    }
    void *block = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(block);
    memcpy(block, data, bytes);
    blocks[(*n)++] = block;
    return block;
}

static void judge(const struct fixture *f, const struct hb_slot_model *slots,
                  const struct hb_batch *b, struct hb_error *e) {
    memset(e, 0x5a, sizeof *e);
    if (f->by == CAPTURE) {
        hb_expect_capture(&f->config, &f->caps, slots, &f->graphs, b, e);
    } else if (f->by == REPLAY) {
        hb_expect_replay(&f->config, &f->caps, slots, &f->graphs, b, e);
    } else {
        hb_expect_begin(&f->config, &f->caps, slots, b, e);
    }
}

static void call(const struct fixture *f, struct hb_error *e) {
    void *blocks[16];
    int n = 0;
    struct hb_batch b = f->b;
#define EXACT(field)                                                                               \
    b.field.data = exact(b.field.data, b.field.len, sizeof *b.field.data, blocks, &n)
    EXACT(req_pool_indices);
    EXACT(seq_lens);
    EXACT(seq_lens_cpu);
    EXACT(extend_seq_lens);
    EXACT(extend_seq_lens_cpu);
    EXACT(extend_prefix_lens);
    EXACT(extend_start_loc);
    EXACT(mamba_track_mask);
    EXACT(mamba_track_indices);
    EXACT(mamba_track_seqlens);
    EXACT(out_cache_loc);
    EXACT(req_to_token);
    EXACT(retrieve_next_token);
    EXACT(retrieve_next_sibling);
    EXACT(ragged_verify_layout);
#undef EXACT
    struct virtual_slots hidden;
    struct hb_slot_model ids = virtual_model(&f->slots, &hidden);
    struct hb_error again;
    judge(f, &f->slots, f->b_null ? NULL : &b, e);
    judge(f, &ids, f->b_null ? NULL : &b, &again);
    same_error(&again, e);
    while (n > 0) {
        free(blocks[--n]);
    }
}

/* ---- recipes: each breaks one rule of a valid batch ---- */

enum { E = 1, D = 2, M = 4, I = 8 }; /* families a recipe works in: extend, decode, mixed, idle */

struct recipe {
    int32_t rule;
    int families;
    void (*apply)(struct fixture *f);
    int32_t row;
    int64_t value, limit; /* as reported in the first of its families */
};

#define RECIPE(number, ...)                                                                        \
    static void break_##number(struct fixture *f) {                                                \
        __VA_ARGS__;                                                                               \
    }
RECIPE(3, f->b_null = 1)
RECIPE(10, f->b.forward_mode = 7)
RECIPE(11, f->caps.modes = 0)
RECIPE(20, f->b.req_pool_indices.data = NULL)
RECIPE(21, f->b.seq_lens.data = NULL)
RECIPE(22, f->b.extend_seq_lens.data = NULL)
RECIPE(23, f->b.extend_prefix_lens.data = NULL)
RECIPE(24, f->b.has_extend_num_tokens = 0)
RECIPE(25, f->b.mamba_track_indices.data = NULL)
RECIPE(26, f->b.mamba_track_seqlens.data = NULL)
RECIPE(27, f->b.out_cache_loc.data = NULL)
RECIPE(28, f->b.req_to_token.data = NULL)
RECIPE(40, f->b.batch_size = -2)
RECIPE(41, f->b.n_tokens = INT32_MIN)
RECIPE(42, f->b.n_extend = 4)
RECIPE(43, f->b.req_pool_indices.len = 3)
RECIPE(44, f->b.seq_lens.len = 5)
RECIPE(45, f->b.extend_seq_lens.len -= 1)
RECIPE(46, f->b.extend_seq_lens_cpu.len += 1)
RECIPE(47, f->cpu[1] = 9)
RECIPE(48, f->b.extend_prefix_lens.len += 2)
RECIPE(49, f->b.extend_start_loc.len = 1)
RECIPE(50, f->start[1] = 6)
RECIPE(51, f->b.extend_num_tokens += 1)
RECIPE(52, f->b.n_tokens = 2; f->b.out_cache_loc.len = 2)
RECIPE(53, f->b.mamba_track_mask.len = 5)
RECIPE(54, f->b.mamba_track_indices.len = 3)
RECIPE(55, f->b.mamba_track_seqlens.len = 0)
RECIPE(56, f->b.out_cache_loc.len -= 1)
RECIPE(57, f->b.req_to_token_rows = 5)
RECIPE(58, f->b.req_to_token_cols = 31)
RECIPE(67, f->b.seq_lens_cpu.len = 3)
RECIPE(70, f->config.max_batch = 3)
RECIPE(71, f->config.max_tokens = 4)
RECIPE(80, f->b.original_batch_size = 5)
RECIPE(81, f->req[1] = REQS)
RECIPE(82, f->req[3] = 2)
RECIPE(83, f->table[2] = NS + 1)
RECIPE(84, f->seq[2] = 0)
RECIPE(85, f->ext[1] = f->cpu[1] = 0; f->b.extend_num_tokens = f->ext[0] + f->ext[2];
       f->start[2] = f->ext[0])
RECIPE(86, f->prefix[1] = -1)
RECIPE(87, f->seq[0] = 6)
RECIPE(88, f->mask[3] = 1)
RECIPE(89, f->mask[2] = 255)
RECIPE(90, f->track[0] = 0)
RECIPE(91, f->point[0] = 3)
RECIPE(92, f->point[0] = 6)
RECIPE(93, f->loc[1] = N_KV)
RECIPE(94, f->config.max_context = 6; f->b.req_to_token_cols = 6; f->b.req_to_token.len = 36)
RECIPE(95, f->tokens[1 * CONTEXT + 4] = 30)
RECIPE(96, f->tokens[2 * CONTEXT + 1] = 0)
RECIPE(107, f->mirror[1] += 1)
RECIPE(114, f->cursor[2] = 3)
RECIPE(110, f->kind[2] = HB_SLOT_FREE)
RECIPE(111, f->track[0] = 8)
RECIPE(120, f->table[3] = 1)
RECIPE(121, f->track[0] = 7)
RECIPE(122, f->loc[2] = f->loc[0];
       f->tokens[(f->b.forward_mode == HB_MODE_DECODE ? 3 * CONTEXT + 6 : 1 * CONTEXT + 2)] =
           f->loc[0])
RECIPE(130, f->table[2] = 5)
RECIPE(131, f->track[0] = 3)
RECIPE(132, f->track[0] = 4)
#undef RECIPE

#define R(number, families, row, value, limit) {number, families, break_##number, row, value, limit}
static const struct recipe RECIPES[] = {
    R(3, E | D | M | I, -1, 0, 0),
    R(10, E | D | M | I, -1, 7, 0),
    R(11, E | D | M | I, -1, 1, 0),
    R(20, E | D | M, -1, 0, 4),
    R(21, E | D | M, -1, 0, 4),
    R(22, E | M, -1, 0, 3),
    R(23, E | M, -1, 0, 3),
    R(24, E | M, -1, 0, 0),
    R(25, E | D | M, 0, 0, 0),
    R(26, E | M, 0, 0, 0),
    R(27, E | D | M, -1, 0, 19),
    R(28, E | D | M, -1, 0, 4),
    R(40, E | D | M | I, -1, -2, 0),
    R(41, E | D | M | I, -1, INT32_MIN, 0),
    R(42, E | M, -1, 4, 3),
    R(43, E | D | M, -1, 3, 4),
    R(44, E | D | M, -1, 5, 4),
    R(45, E | M, -1, 2, 3),
    R(46, E | M, -1, 4, 3),
    R(47, E | M, 1, 9, 8),
    R(48, E | M, -1, 5, 3),
    R(49, E | M, -1, 1, 3),
    R(50, E | M, 1, 6, 5),
    R(51, E | M, -1, 18, 17),
    R(52, E | D | M, -1, 2, 17),
    R(53, E | D | M, -1, 5, 4),
    R(54, E | D | M, -1, 3, 4),
    R(55, E | M, -1, 0, 4),
    R(56, E | D | M, -1, 18, 19),
    R(57, E | D | M, -1, 5, 6),
    R(58, E | D | M, -1, 31, 32),
    R(67, D, -1, 3, 4),
    R(70, E | D | M | I, -1, 4, 3),
    R(71, E | D | M | I, -1, 19, 4),
    R(80, D | M | I, -1, 5, 4),
    R(81, E | D | M, 1, 6, 5),
    R(82, E | D | M, 3, 2, 0),
    R(83, E | D | M, 1, 9, 8),
    R(84, D | M, 2, 0, 1),
    R(85, E | M, 1, 0, 1),
    R(86, E | M, 1, -1, 0),
    R(87, E | M, 0, 5, 6),
    R(88, E | D | M, 3, 0, 0),
    R(89, M, 2, 0, 0),
    R(90, E | D | M, 0, 0, 8),
    R(91, E | M, 0, 3, 4),
    R(92, E | M, 0, 6, 5),
    R(93, E | D | M, 1, 64, 63),
    R(94, E | D | M, 1, 12, 6),
    R(95, E | D | M, 0, 30, 5),
    R(96, E | D | M, 1, 0, 63),
    R(107, D, 1, 13, 12),
    R(110, E | D | M, 1, 2, 0),
    R(111, E | D | M, 0, 8, 0),
    R(114, E | M, 1, 2, 3),
    R(120, E | D | M, 2, 1, 0),
    R(121, E | D | M, 2, 7, 0),
    R(122, E | D | M, 2, 1, 0),
    R(130, E | D | M, 1, 5, 0),
    R(131, E | D | M, 0, 3, 2),
    R(132, E | D | M, 0, 4, 0),
};
#undef R
enum { N_RECIPES = (int)(sizeof RECIPES / sizeof RECIPES[0]) };

static const int32_t BASE_MODES[] = {HB_MODE_EXTEND, HB_MODE_DECODE,        HB_MODE_MIXED,
                                     HB_MODE_IDLE,   HB_MODE_SPLIT_PREFILL, HB_MODE_DLLM_EXTEND};
static inline int family_of(int32_t mode) {
    return mode == HB_MODE_DECODE ? D : mode == HB_MODE_MIXED ? M : mode == HB_MODE_IDLE ? I : E;
}

#endif
