/* SPDX-License-Identifier: Apache-2.0
 * An independent statement of which rule a verify batch breaks: one predicate per rule, tried in
 * ascending number. The fixture has attention layers. Included by one test program. */
#ifndef HB_HARNESS_TESTS_EXPECT_VERIFY_TRUTH_H
#define HB_HARNESS_TESTS_EXPECT_VERIFY_TRUTH_H

#include "harness/tests/expect_verify_fixture.h"

struct truth {
    int32_t rule, row;
    int64_t value, limit;
};

/* A predicate: 1 when its rule is broken, *t then has row, value and limit. It may rely on every
 * predicate above it in the list. */
struct scene {
    const struct fixture *f;
    const struct hb_batch *b;
    int64_t rows, real, draft, tokens;
    int64_t base; /* position of a row's first new token, from seq_lens */
};
typedef int (*predicate)(const struct scene *s, struct truth *t);

static int broken(struct truth *t, int64_t row, int64_t value, int64_t limit) {
    *t = (struct truth){t->rule, (int32_t)row, value, limit};
    return 1;
}

static int64_t v_of(const struct scene *s, int64_t r) {
    const int32_t *layout = s->b->ragged_verify_layout.data;
    return layout == NULL ? s->draft : (int64_t)layout[r + 1] - layout[r];
}

static int64_t first_token(const struct scene *s, int64_t r) {
    return s->b->ragged_verify_layout.data == NULL ? r * s->draft
                                                   : s->b->ragged_verify_layout.data[r];
}

static int32_t slot_at(const struct scene *s, int64_t r) {
    return s->f->table[s->b->req_pool_indices.data[r]];
}

static int64_t start_of(const struct scene *s, int64_t r) {
    return s->b->seq_lens.data[r] + s->base;
}

static int off_length(struct truth *t, const void *data, int64_t len, int64_t want) {
    return data != NULL && len != want && broken(t, -1, len, want);
}

static int absent(struct truth *t, const void *data, int64_t count) {
    return data == NULL && count > 0 && broken(t, -1, 0, count);
}

#define P(number) static int p##number(const struct scene *s, struct truth *t)

P(20) {
    return absent(t, s->b->req_pool_indices.data, s->rows);
}
P(21) {
    return absent(t, s->b->seq_lens.data, s->rows);
}
P(27) {
    return absent(t, s->b->out_cache_loc.data, s->tokens);
}
P(28) {
    return absent(t, s->b->req_to_token.data, s->rows);
}
P(30) {
    int given =
        (s->b->retrieve_next_token.data != NULL) + (s->b->retrieve_next_sibling.data != NULL);
    return given == 1 && broken(t, -1, 0, 0);
}
P(40) {
    return s->rows < 0 && broken(t, -1, s->rows, 0);
}
P(41) {
    return s->tokens < 0 && broken(t, -1, s->tokens, 0);
}
P(43) {
    return off_length(t, s->b->req_pool_indices.data, s->b->req_pool_indices.len, s->rows);
}
P(44) {
    return off_length(t, s->b->seq_lens.data, s->b->seq_lens.len, s->rows);
}
P(53) {
    return off_length(t, s->b->mamba_track_mask.data, s->b->mamba_track_mask.len, s->rows);
}
P(56) {
    return off_length(t, s->b->out_cache_loc.data, s->b->out_cache_loc.len, s->tokens);
}
P(57) {
    return s->b->req_to_token.data != NULL && s->b->req_to_token_rows != REQS &&
           broken(t, -1, s->b->req_to_token_rows, REQS);
}
P(58) {
    int64_t cols = s->b->req_to_token_cols;
    int64_t len = s->b->req_to_token.len;
    int64_t want = s->f->config.max_context;
    if (s->b->req_to_token.data == NULL || (cols == want && len == REQS * want)) {
        return 0;
    }
    return broken(t, -1, cols != want ? cols : len / REQS, want);
}
P(60) {
    return s->b->ragged_verify_layout.data == NULL && s->tokens != s->rows * s->draft &&
           broken(t, -1, s->tokens, s->rows * s->draft);
}
P(61) {
    if (s->b->retrieve_next_token.data == NULL) {
        return 0;
    }
    if (s->b->retrieve_next_token.len != s->rows * s->draft) {
        return broken(t, 0, s->b->retrieve_next_token.len, s->rows * s->draft);
    }
    return s->b->retrieve_next_sibling.len != s->rows * s->draft &&
           broken(t, 1, s->b->retrieve_next_sibling.len, s->rows * s->draft);
}
P(62) {
    return off_length(t, s->b->ragged_verify_layout.data, s->b->ragged_verify_layout.len,
                      s->rows + 1);
}
P(63) {
    const int32_t *layout = s->b->ragged_verify_layout.data;
    if (layout == NULL) {
        return 0;
    }
    if (layout[0] != 0) {
        return broken(t, 0, layout[0], 0);
    }
    for (int64_t r = 1; r <= s->rows; r++) {
        if (layout[r - 1] > layout[r]) {
            return broken(t, r, layout[r], layout[r - 1]);
        }
    }
    return 0;
}
P(64) {
    const int32_t *layout = s->b->ragged_verify_layout.data;
    return layout != NULL && layout[s->rows] != s->tokens &&
           broken(t, -1, layout[s->rows], s->tokens);
}
P(67) {
    return off_length(t, s->b->seq_lens_cpu.data, s->b->seq_lens_cpu.len, s->rows);
}
P(70) {
    return s->rows > s->f->config.max_batch && broken(t, -1, s->rows, s->f->config.max_batch);
}
P(71) {
    return s->tokens > s->f->config.max_tokens && broken(t, -1, s->tokens, s->f->config.max_tokens);
}
P(72) {
    int64_t most = s->f->config.max_draft;
    return s->f->config.spec_rows != 0 && s->draft > most && broken(t, -1, s->draft, most);
}
P(73) {
    return s->rows > s->f->config.spec_rows && broken(t, -1, s->rows, s->f->config.spec_rows);
}
P(80) {
    return (s->real < 0 || s->real > s->rows) && broken(t, -1, s->real, s->rows);
}

#define EACH_LIVE(condition, value, limit)                                                         \
    for (int64_t r = 0; r < s->real; r++) {                                                        \
        if (condition) {                                                                           \
            return broken(t, r, value, limit);                                                     \
        }                                                                                          \
    }                                                                                              \
    return 0
P(81) {
    const int32_t *req = s->b->req_pool_indices.data;
    EACH_LIVE(req[r] < 0 || req[r] >= REQS, req[r], REQS - 1);
}
P(82) {
    for (int64_t r = s->real; r < s->rows; r++) {
        if (s->b->req_pool_indices.data[r] != 0) {
            return broken(t, r, s->b->req_pool_indices.data[r], 0);
        }
    }
    return 0;
}
P(83) {
    EACH_LIVE(slot_at(s, r) > NS || slot_at(s, r) < !s->b->is_dummy, slot_at(s, r), NS);
}
P(84) {
    EACH_LIVE(s->b->seq_lens.data[r] <= 0, s->b->seq_lens.data[r], 1);
}
P(93) {
    const int32_t *loc = s->b->out_cache_loc.data;
    for (int64_t i = 0; s->rows > 0 && i < first_token(s, s->real); i++) {
        if (loc[i] <= 0 || loc[i] >= N_KV) {
            return broken(t, i, loc[i], N_KV - 1);
        }
    }
    return 0;
}
P(94) {
    int64_t most = s->f->config.max_context;
    EACH_LIVE(start_of(s, r) + v_of(s, r) > most, start_of(s, r) + v_of(s, r), most);
}

static int64_t mapped(const struct scene *s, int64_t r, int64_t position) {
    return s->b->req_to_token
        .data[s->b->req_pool_indices.data[r] * s->f->config.max_context + position];
}

P(95) {
    for (int64_t r = 0; r < s->real; r++) {
        for (int64_t j = 0; j < v_of(s, r); j++) {
            int64_t entry = mapped(s, r, start_of(s, r) + j);
            int64_t loc = s->b->out_cache_loc.data[first_token(s, r) + j];
            if (entry != loc) {
                return broken(t, r, entry, loc);
            }
        }
    }
    return 0;
}
P(96) {
    for (int64_t r = 0; r < s->real; r++) {
        for (int64_t p = 0; p < start_of(s, r); p++) {
            if (mapped(s, r, p) < 1 || mapped(s, r, p) > N_KV - 1) {
                return broken(t, r, mapped(s, r, p), N_KV - 1);
            }
        }
    }
    return 0;
}
P(98) {
    return s->draft <= 0 && broken(t, -1, s->draft, 1);
}
P(99) {
    for (int64_t r = 0; s->b->ragged_verify_layout.data != NULL && r < s->rows; r++) {
        if (v_of(s, r) > s->draft || (r < s->real && v_of(s, r) == 0)) {
            return broken(t, r, v_of(s, r), s->draft);
        }
    }
    return 0;
}

/* Links of one row, as pointers and their count. */
static const int32_t *links_of(const struct scene *s, int64_t r, int sibling) {
    const struct hb_i32s *a = sibling ? &s->b->retrieve_next_sibling : &s->b->retrieve_next_token;
    return a->data == NULL ? NULL : a->data + r * s->draft;
}

P(100) {
    for (int64_t r = 0; r < s->real; r++) {
        for (int sibling = 0; sibling < 2; sibling++) {
            const int32_t *links = links_of(s, r, sibling);
            for (int64_t i = 0; links != NULL && i < v_of(s, r); i++) {
                if (links[i] < -1 || links[i] == 0 || links[i] >= v_of(s, r)) {
                    return broken(t, r, links[i], v_of(s, r) - 1);
                }
            }
        }
    }
    return 0;
}
P(101) {
    for (int64_t r = 0; r < s->real; r++) {
        for (int sibling = 0; sibling < 2; sibling++) {
            const int32_t *links = links_of(s, r, sibling);
            for (int64_t i = 0; links != NULL && i < v_of(s, r); i++) {
                if (links[i] > 0 && (links[i] <= i || (sibling && i == 0))) {
                    return broken(t, r, links[i], i);
                }
            }
        }
    }
    return 0;
}
P(102) {
    for (int64_t r = 0; r < s->real && links_of(s, r, 0) != NULL; r++) {
        int64_t count[CAP] = {0};
        int64_t last = 0;
        for (int64_t i = 0; i < 2 * v_of(s, r); i++) {
            int32_t to = links_of(s, r, i % 2 == 1)[i / 2];
            if (to > 0) {
                count[to]++;
                last = to > last ? to : last;
            }
        }
        for (int64_t node = 1; node <= last; node++) {
            if (count[node] != 1) {
                return broken(t, r, node, count[node]);
            }
        }
    }
    return 0;
}
P(103) {
    for (int64_t r = 0; s->b->mamba_track_mask.data != NULL && r < s->rows; r++) {
        if (s->b->mamba_track_mask.data[r]) {
            return broken(t, r, 0, 0);
        }
    }
    return 0;
}
P(107) {
    for (int64_t r = 0; s->b->seq_lens_cpu.data != NULL && r < s->rows; r++) {
        int32_t mirror = s->b->seq_lens_cpu.data[r];
        int32_t want = r < s->real ? s->b->seq_lens.data[r] : 1;
        if (mirror != want) {
            return broken(t, r, mirror, want);
        }
    }
    return 0;
}
P(110) {
    EACH_LIVE(s->f->kind[slot_at(s, r)] == HB_SLOT_FREE, slot_at(s, r), 0);
}
static int commits_own(const struct scene *s) {
    return s->f->config.ring_length > 0 && s->f->config.ring_owner == HB_RING_COMMIT;
}

P(114) {
    EACH_LIVE(!commits_own(s) && slot_at(s, r) > 0 && s->f->cursor[slot_at(s, r)] != 0, slot_at(s, r),
              s->f->cursor[slot_at(s, r)]);
}
P(120) {
    for (int64_t r = 0; r < s->real; r++) {
        for (int64_t o = 0; o < r; o++) {
            if (slot_at(s, r) != 0 && slot_at(s, o) == slot_at(s, r)) {
                return broken(t, r, slot_at(s, r), o);
            }
        }
    }
    return 0;
}
P(122) {
    const int32_t *loc = s->b->out_cache_loc.data;
    for (int64_t i = 1; s->rows > 0 && i < first_token(s, s->real); i++) {
        for (int64_t j = 0; j < i; j++) {
            if (loc[i] == loc[j]) {
                return broken(t, i, loc[i], j);
            }
        }
    }
    return 0;
}
P(130) {
    EACH_LIVE(s->f->kind[slot_at(s, r)] == HB_SLOT_TRACK ||
                  s->f->kind[slot_at(s, r)] == HB_SLOT_TREE,
              slot_at(s, r), 0);
}
P(141) {
    return s->b->retrieve_next_token.data != NULL &&
           s->f->config.window_layout == HB_WINDOWS_STRIP && broken(t, -1, 0, 0);
}
P(142) {
    return s->b->retrieve_next_token.data != NULL && commits_own(s) && broken(t, -1, 0, 0);
}
#undef EACH_LIVE
#undef P

static const struct {
    int32_t rule;
    predicate holds;
} PREDICATES[] = {{20, p20},   {21, p21},   {27, p27},   {28, p28},   {30, p30},   {40, p40},
                  {41, p41},   {43, p43},   {44, p44},   {53, p53},   {56, p56},   {57, p57},
                  {58, p58},   {60, p60},   {61, p61},   {62, p62},   {63, p63},   {64, p64},
                  {67, p67},   {70, p70},   {71, p71},   {72, p72},   {73, p73},   {80, p80},
                  {81, p81},   {82, p82},   {83, p83},   {84, p84},   {93, p93},   {94, p94},
                  {95, p95},   {96, p96},   {98, p98},   {99, p99},   {100, p100}, {101, p101},
                  {102, p102}, {103, p103}, {107, p107}, {110, p110}, {114, p114}, {120, p120},
                  {122, p122}, {130, p130}, {141, p141}, {142, p142}};

static inline struct truth truth_of(const struct fixture *f) {
    const struct hb_batch *b = &f->b;
    const struct scene s = {f,
                            b,
                            b->batch_size,
                            b->has_original_batch_size ? b->original_batch_size : b->batch_size,
                            b->draft_token_num,
                            b->n_tokens,
                            0};
    struct truth t = {0, -1, 0, 0};
    int links = b->retrieve_next_token.data != NULL || b->retrieve_next_sibling.data != NULL;
    if (f->b_null) {
        return (struct truth){3, -1, 0, 0};
    }
    if (b->forward_mode == 7) {
        return (struct truth){10, -1, 7, 0};
    }
    if (f->caps.modes == 0 || (links && !f->caps.tree_verify) ||
        (b->ragged_verify_layout.data != NULL && !f->caps.ragged_verify)) {
        return (struct truth){11, -1, b->forward_mode, 0};
    }
    for (size_t i = 0; i < sizeof PREDICATES / sizeof PREDICATES[0]; i++) {
        t.rule = PREDICATES[i].rule;
        if (PREDICATES[i].holds(&s, &t)) {
            return t;
        }
    }
    return (struct truth){0, -1, 0, 0};
}

#endif
