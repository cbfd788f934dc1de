/* SPDX-License-Identifier: Apache-2.0
 * An independent statement of which rule a batch of a capture or replay breaks: one predicate per
 * rule, tried in ascending number. The fixture has attention layers. Included by one test program.
 */
#ifndef HB_HARNESS_TESTS_EXPECT_GRAPH_TRUTH_H
#define HB_HARNESS_TESTS_EXPECT_GRAPH_TRUTH_H

#include "harness/tests/expect_graph_fixture.h"
#include "harness/tests/expect_verify_truth.h"

/* Where a predicate counts: captures and replays of decode (D), verify (V) and idle (I). */
enum { CD = 1, CV = 2, CI = 4, RD = 8, RV = 16, RI = 32 };
enum {
    CAP_ALL = CD | CV | CI,
    REP_ALL = RD | RV | RI,
    REP_ROWS = RD | RV,
    ANY = CAP_ALL | REP_ALL
};

/* The graph that the phase holds of the batch size, or null. */
static int has_graph(const struct scene *s) {
    const struct hb_graph_phase *g = &s->f->graphs;
    return s->rows > 0 && s->rows <= g->max_bs && g->set[s->rows].is_captured != 0;
}

static int mask_bit(const struct scene *s, int64_t r) {
    return s->b->mamba_track_mask.data != NULL && s->b->mamba_track_mask.data[r] != 0;
}

/* First set byte of the mask, in its own length; -1: none. */
static int64_t first_set(const struct scene *s) {
    int64_t r = 0;
    int64_t n = s->b->mamba_track_mask.data == NULL ? 0 : s->b->mamba_track_mask.len;
    while (r < n && s->b->mamba_track_mask.data[r] == 0) {
        r++;
    }
    return r < n ? r : -1;
}

static int64_t destination(const struct scene *s, int64_t r) {
    return s->b->mamba_track_indices.data[r];
}

static int is_verify(const struct scene *s) {
    return s->b->forward_mode == HB_MODE_TARGET_VERIFY;
}

#define P(number) static int g##number(const struct scene *s, struct truth *t)
P(15) {
    return s->f->graphs.max_bs == 0 && broken(t, -1, 0, 0);
}
P(16) {
    return has_graph(s) && broken(t, -1, s->rows, 0);
}
P(17) {
    return !has_graph(s) && s->rows > 0 && s->rows <= s->f->graphs.max_bs &&
           broken(t, -1, s->rows, 0);
}
P(18) {
    if (!has_graph(s) || s->f->graphs.set[s->rows].mode == s->b->forward_mode) {
        return 0;
    }
    return broken(t, -1, s->b->forward_mode, s->f->graphs.set[s->rows].mode);
}
P(19) {
    int links = s->b->retrieve_next_token.data != NULL && s->b->retrieve_next_sibling.data != NULL;
    return has_graph(s) && s->f->graphs.set[s->rows].has_links != links &&
           broken(t, -1, links, 1 - links);
}
P(25) {
    return s->b->mamba_track_indices.data == NULL && first_set(s) >= 0 &&
           broken(t, first_set(s), 0, 0);
}
P(54) {
    return s->b->mamba_track_indices.data != NULL && s->b->mamba_track_indices.len < s->rows &&
           broken(t, -1, s->b->mamba_track_indices.len, s->rows);
}
P(68) {
    int64_t want = is_verify(s) ? s->rows * s->f->graphs.draft : s->rows;
    return want != s->tokens && broken(t, -1, s->tokens, want);
}
P(69) {
    return s->b->draft_token_num != s->f->graphs.draft &&
           broken(t, -1, s->b->draft_token_num, s->f->graphs.draft);
}
P(74) {
    return !(s->rows > 0 && s->rows <= s->f->graphs.max_bs) &&
           broken(t, -1, s->rows, s->f->graphs.max_bs);
}
P(78) {
    int32_t p = s->b->num_padding;
    return s->b->has_num_padding != 0 && (p > s->rows || p < 0) && broken(t, -1, p, s->rows);
}
P(79) {
    const int32_t *mirror = s->b->seq_lens_cpu.data;
    for (int64_t r = 0; mirror != NULL && !s->b->has_num_padding && r < s->rows; r++) {
        for (int64_t later = r + 1; mirror[r] == 1 && later < s->rows; later++) {
            if (mirror[later] != 1) {
                return broken(t, r, 1, later);
            }
        }
    }
    return 0;
}

#define EACH_MASKED(condition, value, limit)                                                       \
    for (int64_t r = 0; r < s->real; r++) {                                                        \
        if (mask_bit(s, r) && (condition)) {                                                       \
            return broken(t, r, value, limit);                                                     \
        }                                                                                          \
    }                                                                                              \
    return 0
P(88) {
    for (int64_t r = s->real; r < s->rows; r++) {
        if (mask_bit(s, r)) {
            return broken(t, r, 0, 0);
        }
    }
    return 0;
}
P(90) {
    EACH_MASKED(destination(s, r) > NS || destination(s, r) <= 0, destination(s, r), NS);
}
P(111) {
    EACH_MASKED(s->f->kind[destination(s, r)] == HB_SLOT_FREE, destination(s, r), 0);
}
P(121) {
    for (int64_t r = 0; r < s->real; r++) {
        for (int64_t o = 0; o < r; o++) {
            if (mask_bit(s, r) && mask_bit(s, o) && destination(s, r) == destination(s, o)) {
                return broken(t, r, destination(s, r), o);
            }
        }
    }
    return 0;
}
P(131) {
    for (int64_t r = 0; r < s->real; r++) {
        for (int64_t o = 0; o < s->real; o++) {
            if (mask_bit(s, r) && slot_at(s, o) == destination(s, r)) {
                return broken(t, r, destination(s, r), o);
            }
        }
    }
    return 0;
}
P(132) {
    EACH_MASKED(s->f->kind[destination(s, r)] != HB_SLOT_TRACK, destination(s, r), 0);
}
P(140) {
    return s->f->b.ragged_verify_layout.data != NULL && broken(t, -1, 0, 0);
}
#undef EACH_MASKED
#undef P

static const struct {
    int32_t rule, where;
    predicate holds;
} GRAPH_PREDICATES[] = {
    {15, ANY, g15},        {16, CAP_ALL, g16},    {17, REP_ALL, g17},    {18, REP_ALL, g18},
    {19, RV, g19},         {20, REP_ROWS, p20},   {21, REP_ROWS, p21},   {25, RD, g25},
    {27, REP_ROWS, p27},   {28, REP_ROWS, p28},   {30, CV | RV, p30},    {40, ANY, p40},
    {41, ANY, p41},        {43, REP_ROWS, p43},   {44, REP_ROWS, p44},   {53, REP_ROWS, p53},
    {54, RD, g54},         {56, REP_ROWS, p56},   {57, REP_ROWS, p57},   {58, REP_ROWS, p58},
    {61, CV | RV, p61},    {67, REP_ROWS, p67},   {68, ANY, g68},        {69, CV | RV, g69},
    {70, ANY, p70},        {71, ANY, p71},        {72, CV, p72},         {73, CV | RV, p73},
    {74, ANY, g74},        {78, REP_ROWS, g78},   {79, REP_ROWS, g79},   {81, REP_ROWS, p81},
    {83, REP_ROWS, p83},   {84, REP_ROWS, p84},   {88, RD, g88},         {90, RD, g90},
    {93, REP_ROWS, p93},   {94, REP_ROWS, p94},   {95, REP_ROWS, p95},   {96, REP_ROWS, p96},
    {100, RV, p100},       {101, RV, p101},       {102, RV, p102},       {103, RV, p103},
    {107, REP_ROWS, p107}, {110, REP_ROWS, p110}, {111, RD, g111},       {114, RV, p114},
    {120, REP_ROWS, p120}, {121, RD, g121},       {122, REP_ROWS, p122}, {130, REP_ROWS, p130},
    {131, RD, g131},       {132, RD, g132},       {140, CV | RV, g140},  {141, CV | RV, p141},
    {142, CV | RV, p142},
};

/* graph.md section 3. */
static int64_t live_rows(const struct hb_batch *b) {
    int64_t live = b->batch_size;
    if (b->has_num_padding || b->seq_lens_cpu.data == NULL) {
        return live - (b->has_num_padding ? b->num_padding : 0);
    }
    for (int64_t r = 0; r < b->batch_size && r < b->seq_lens_cpu.len; r++) {
        live -= b->seq_lens_cpu.data[r] == 1;
    }
    return live;
}

static int where_of(const struct fixture *f) {
    int at = f->b.forward_mode == HB_MODE_DECODE ? CD : f->b.forward_mode == HB_MODE_IDLE ? CI : CV;
    return f->by == REPLAY ? at * RD : at;
}

static struct truth graph_truth_of(const struct fixture *f) {
    struct hb_batch b = f->b;
    int32_t mode = b.forward_mode;
    int verify = mode == HB_MODE_TARGET_VERIFY;
    int links = b.retrieve_next_token.data != NULL || b.retrieve_next_sibling.data != NULL;
    struct truth t = {0, -1, 0, 0};
    if (f->b_null) {
        return (struct truth){3, -1, 0, 0};
    }
    if (mode != HB_MODE_DECODE && mode != HB_MODE_IDLE && !verify) {
        return (struct truth){9, -1, mode, 0};
    }
    if ((f->caps.modes >> mode & 1U) == 0 || (verify && links && !f->caps.tree_verify) ||
        (verify && b.ragged_verify_layout.data != NULL && !f->caps.ragged_verify)) {
        return (struct truth){11, -1, mode, 0};
    }
    b.ragged_verify_layout.data = NULL; /* nothing but 140 sees it */
    const struct scene s = {f,
                            &b,
                            b.batch_size,
                            live_rows(&b),
                            verify ? b.draft_token_num : 1,
                            b.n_tokens,
                            verify ? 0 : -1};
    for (size_t i = 0; i < sizeof GRAPH_PREDICATES / sizeof GRAPH_PREDICATES[0]; i++) {
        t.rule = GRAPH_PREDICATES[i].rule;
        if ((GRAPH_PREDICATES[i].where & where_of(f)) != 0 && GRAPH_PREDICATES[i].holds(&s, &t)) {
            return t;
        }
    }
    return (struct truth){0, -1, 0, 0};
}

#endif
