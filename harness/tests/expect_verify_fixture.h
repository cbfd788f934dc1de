/* SPDX-License-Identifier: Apache-2.0
 * Valid verify batches in every shape for the tests of the prediction, and one recipe per way to
 * break them. Included by one test program each. */
#ifndef HB_HARNESS_TESTS_EXPECT_VERIFY_FIXTURE_H
#define HB_HARNESS_TESTS_EXPECT_VERIFY_FIXTURE_H

#include "harness/tests/expect_fixture.h"

/* Shapes: uniform with links, ragged with links, uniform chain, ragged chain. */
enum { U = 1, G = 2, C = 4, H = 8, LINKED = U | G, RAGGED = G | H, ALL = U | G | C | H };
enum { NODES = 4, SPEC_ROWS = 5, MAX_DRAFT = 6 };

/* -1: absurd. */
static int32_t verify_nodes(const struct fixture *f, int32_t r) {
    int64_t nodes = f->b.ragged_verify_layout.data != NULL
                        ? (int64_t)f->layout[r + 1] - f->layout[r]
                        : f->b.draft_token_num;
    return nodes >= 0 && nodes <= CAP ? (int32_t)nodes : -1;
}

/* req_to_token of the live rows as the counts now are. */
static void verify_map(struct fixture *f) {
    int32_t token = 0;
    for (int32_t r = 0; r < 3; r++) {
        int32_t nodes = verify_nodes(f, r);
        fixture_tokens(f, r, f->seq[r], nodes, token);
        token += nodes;
    }
}

/* Three live rows and a padding row, whose links are junk as are those beyond a row's nodes. Row 0
 * branches, row 1 is a chain, row 2 has two children of the root and, uniform, an unused node. */
static void verify_init(struct fixture *f, int shape) {
    static const int32_t next[2][16] = {{1, 3, -1, -1, 1, 2, 3, -1, 1, -1, -1, -1, 99, -9, 0, 4},
                                        {1, 3, -1, -1, 1, -1, 77, 1, 1, -1, -1, 1, 99, -9, 0, 4}};
    static const int32_t sibling[2][16] = {
        {-1, 2, -1, -1, -1, -1, -1, -1, -1, 2, -1, -1, 1, 1, 1, 1},
        {-1, 2, -1, -1, -1, -1, -1, 0, -1, 2, -1, -2, 1, 1, 1, 1}};
    static const int32_t layout[5] = {0, 4, 6, 9, 10};
    const int ragged = (shape & RAGGED) != 0;
    fixture_init(f, HB_MODE_DECODE);
    f->config.spec_rows = SPEC_ROWS;
    f->config.max_draft = MAX_DRAFT;
    f->caps.modes |= 1U << HB_MODE_TARGET_VERIFY | 1U << HB_MODE_DRAFT_EXTEND_V2;
    f->caps.tree_verify = f->caps.ragged_verify = 1;
    f->b.forward_mode = HB_MODE_TARGET_VERIFY;
    f->b.draft_token_num = NODES;
    f->b.n_tokens = ragged ? 10 : 16;
    f->b.out_cache_loc.len = f->b.n_tokens;
    memset(f->mask, 0, sizeof f->mask);
    memcpy(f->next, next[ragged], sizeof next[0]);
    memcpy(f->sibling, sibling[ragged], sizeof sibling[0]);
    memcpy(f->layout, layout, sizeof layout);
    if ((shape & LINKED) != 0) {
        f->b.retrieve_next_token = (struct hb_i32s){f->next, 16};
        f->b.retrieve_next_sibling = (struct hb_i32s){f->sibling, 16};
    }
    if (ragged) {
        f->b.ragged_verify_layout = (struct hb_i32s){f->layout, 5};
    }
    verify_map(f);
}

static void verify_draft(struct fixture *f, int32_t draft) {
    f->b.draft_token_num = draft;
    f->b.retrieve_next_token.len = f->b.retrieve_next_sibling.len = (int64_t)4 * draft;
    if (f->b.ragged_verify_layout.data == NULL) {
        f->b.n_tokens = 4 * draft;
        f->b.out_cache_loc.len = f->b.n_tokens;
    }
}

/* Nodes of the padding row of a ragged batch. */
static void verify_padding(struct fixture *f, int32_t nodes) {
    f->layout[4] = f->layout[3] + nodes;
    f->b.n_tokens = f->layout[4];
    f->b.out_cache_loc.len = f->layout[4];
}

struct verify_recipe {
    int32_t rule;
    int shapes;
    void (*apply)(struct fixture *f);
    int32_t row;
    int64_t value, limit; /* as reported in the first of its shapes, U first */
};

#define WAY(name, ...)                                                                             \
    static void way_##name(struct fixture *f) {                                                    \
        __VA_ARGS__;                                                                               \
    }
WAY(no_trees, f->caps.tree_verify = 0)
WAY(no_ragged, f->caps.ragged_verify = 0)
WAY(no_sibling, f->b.retrieve_next_sibling.data = NULL)
WAY(no_next, f->b.retrieve_next_token.data = NULL)
WAY(one_more, f->b.n_tokens += 1; f->b.out_cache_loc.len += 1)
WAY(short_next, f->b.retrieve_next_token.len -= 1)
WAY(long_sibling, f->b.retrieve_next_sibling.len += 4)
WAY(short_layout, f->b.ragged_verify_layout.len = 4)
WAY(empty_layout, f->b.ragged_verify_layout.len = 0)
WAY(late_layout, f->layout[0] = 1)
WAY(early_layout, f->layout[0] = -1)
WAY(falling_layout, f->layout[2] = 3)
WAY(wrong_total, f->layout[4] = 11)
WAY(wide_draft, f->config.max_draft = 3)
WAY(few_rows, f->config.spec_rows = 3)
WAY(no_caches, f->config.spec_rows = f->config.max_draft = 0)
WAY(long_context, f->seq[1] = CONTEXT - 1)
WAY(wrong_new, f->tokens[1 * CONTEXT + 5] = 30)
WAY(last_prefix, f->tokens[1 * CONTEXT + 4] = N_KV)
WAY(shared_loc, f->loc[2] = f->loc[0]; f->tokens[1 * CONTEXT + 7] = f->loc[0])
WAY(no_draft, verify_draft(f, 0))
WAY(empty_row, f->layout[2] = 4; verify_map(f))
WAY(long_row, verify_draft(f, 3))
WAY(long_padding, verify_padding(f, 5))
WAY(next_outside, f->next[2] = 4)
WAY(sibling_outside, f->sibling[5] = -2)
WAY(link_to_root, f->sibling[1] = 0)
WAY(next_beyond_row, f->next[5] = 2)
WAY(link_to_itself, f->next[1] = 1)
WAY(link_back, f->next[1] = 2; f->sibling[3] = 1)
WAY(root_sibling, f->sibling[0] = 3)
WAY(twice, f->next[2] = 3)
WAY(orphan, f->next[8] = 2; f->sibling[9] = -1)
WAY(orphan_links, f->next[0] = -1; f->sibling[1] = -1)
WAY(mask_live, f->mask[1] = 4)
WAY(mask_padding, f->mask[3] = 1)
WAY(mirror_padding, f->mirror[3] = 2)
WAY(strip, f->config.window_layout = HB_WINDOWS_STRIP)
WAY(ring, f->config.ring_length = 16; f->config.ring_owner = HB_RING_COMMIT)
#undef WAY

#define R(rule, shapes, apply, row, value, limit)                                                  \
    { rule, shapes, apply, row, value, limit }
static const struct verify_recipe VERIFY_RECIPES[] = {
    R(3, ALL, break_3, -1, 0, 0),
    R(10, ALL, break_10, -1, 7, 0),
    R(11, ALL, break_11, -1, 5, 0),
    R(11, LINKED, way_no_trees, -1, 5, 0),
    R(11, RAGGED, way_no_ragged, -1, 5, 0),
    R(20, ALL, break_20, -1, 0, 4),
    R(21, ALL, break_21, -1, 0, 4),
    R(27, ALL, break_27, -1, 0, 16),
    R(28, ALL, break_28, -1, 0, 4),
    R(30, LINKED, way_no_sibling, -1, 0, 0),
    R(30, LINKED, way_no_next, -1, 0, 0),
    R(40, ALL, break_40, -1, -2, 0),
    R(41, ALL, break_41, -1, INT32_MIN, 0),
    R(43, ALL, break_43, -1, 3, 4),
    R(44, ALL, break_44, -1, 5, 4),
    R(53, ALL, break_53, -1, 5, 4),
    R(56, ALL, break_56, -1, 15, 16),
    R(57, ALL, break_57, -1, 5, 6),
    R(58, ALL, break_58, -1, 31, 32),
    R(60, U | C, way_one_more, -1, 17, 16),
    R(61, LINKED, way_short_next, 0, 15, 16),
    R(61, LINKED, way_long_sibling, 1, 20, 16),
    R(62, RAGGED, way_short_layout, -1, 4, 5),
    R(62, RAGGED, way_empty_layout, -1, 0, 5),
    R(63, RAGGED, way_late_layout, 0, 1, 0),
    R(63, RAGGED, way_early_layout, 0, -1, 0),
    R(63, RAGGED, way_falling_layout, 2, 3, 4),
    R(64, RAGGED, way_wrong_total, -1, 11, 10),
    R(67, ALL, break_67, -1, 3, 4),
    R(70, ALL, break_70, -1, 4, 3),
    R(71, ALL, break_71, -1, 16, 4),
    R(72, ALL, way_wide_draft, -1, 4, 3),
    R(73, ALL, way_few_rows, -1, 4, 3),
    R(73, ALL, way_no_caches, -1, 4, 0),
    R(80, ALL, break_80, -1, 5, 4),
    R(81, ALL, break_81, 1, 6, 5),
    R(82, ALL, break_82, 3, 2, 0),
    R(83, ALL, break_83, 1, 9, 8),
    R(84, ALL, break_84, 2, 0, 1),
    R(93, ALL, break_93, 1, 64, 63),
    R(94, ALL, break_94, 0, 9, 6),
    R(94, ALL, way_long_context, 1, 35, 32),
    R(95, ALL, way_wrong_new, 0, 30, 1),
    R(96, ALL, break_96, 1, 0, 63),
    R(96, ALL, way_last_prefix, 0, 64, 63),
    R(98, ALL, way_no_draft, -1, 0, 1),
    R(99, RAGGED, way_empty_row, 1, 0, 4),
    R(99, RAGGED, way_long_row, 0, 4, 3),
    R(99, RAGGED, way_long_padding, 3, 5, 4),
    R(100, LINKED, way_next_outside, 0, 4, 3),
    R(100, LINKED, way_sibling_outside, 1, -2, 3),
    R(100, LINKED, way_link_to_root, 0, 0, 3),
    R(100, G, way_next_beyond_row, 1, 2, 1),
    R(101, LINKED, way_link_to_itself, 0, 1, 1),
    R(101, LINKED, way_link_back, 0, 1, 3),
    R(101, LINKED, way_root_sibling, 0, 3, 0),
    R(102, LINKED, way_twice, 0, 3, 2),
    R(102, LINKED, way_orphan, 2, 1, 0),
    R(102, LINKED, way_orphan_links, 0, 1, 0),
    R(103, ALL, way_mask_live, 1, 0, 0),
    R(103, ALL, way_mask_padding, 3, 0, 0),
    R(107, ALL, break_107, 1, 13, 12),
    R(107, ALL, way_mirror_padding, 3, 2, 1),
    R(110, ALL, break_110, 1, 2, 0),
    R(114, ALL, break_114, 1, 2, 3),
    R(120, ALL, break_120, 2, 1, 0),
    R(122, ALL, way_shared_loc, 2, 1, 0),
    R(130, ALL, break_130, 1, 5, 0),
    R(141, LINKED, way_strip, -1, 0, 0),
    R(142, LINKED, way_ring, -1, 0, 0),
};
#undef R
enum { N_VERIFY_RECIPES = (int)(sizeof VERIFY_RECIPES / sizeof VERIFY_RECIPES[0]) };

#endif
