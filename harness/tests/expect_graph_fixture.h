/* SPDX-License-Identifier: Apache-2.0
 * Valid batches of captures and replays in every shape for the tests of the prediction, and one
 * recipe per way to break them. Included by one test program each. */
#ifndef HB_HARNESS_TESTS_EXPECT_GRAPH_FIXTURE_H
#define HB_HARNESS_TESTS_EXPECT_GRAPH_FIXTURE_H

#include "harness/tests/expect_verify_fixture.h"

/* Shapes: decode, verify with links, verify of chains, idle. */
enum { GD = 1, GU = 2, GC = 4, GI = 8, GV = GU | GC, GR = GD | GV, GALL = GR | GI };
enum { ROWS = 4, MAX_BS = 5 };

static inline int32_t graph_mode(int shape) {
    return shape == GD ? HB_MODE_DECODE : shape == GI ? HB_MODE_IDLE : HB_MODE_TARGET_VERIFY;
}

/* Four rows, three of them live in a replay; D_graph = 4, at most five rows. Sizes 1 and 5 are
 * captured, size 4 in a replay. */
static inline void graph_phase(struct fixture *f, int shape) {
    f->graphs = (struct hb_graph_phase){.max_bs = MAX_BS, .draft = NODES};
    f->graphs.set[1].is_captured = f->graphs.set[MAX_BS].is_captured = 1;
    f->graphs.set[1].mode = HB_MODE_DECODE;
    f->graphs.set[MAX_BS].mode = HB_MODE_TARGET_VERIFY;
    if (f->by == REPLAY) {
        f->graphs.set[ROWS].is_captured = 1;
        f->graphs.set[ROWS].mode = graph_mode(shape);
        f->graphs.set[ROWS].has_links = shape == GU;
    }
    f->config.graph_rows = 6;
    f->config.graph_draft = 6;
}

/* The fields that neither call reads hold junk. */
static inline void graph_batch(struct fixture *f, int shape) {
    verify_init(f, shape == GU ? U : C);
    f->b.forward_mode = graph_mode(shape);
    if (shape == GD || shape == GI) {
        fixture_init(f, shape == GD ? HB_MODE_DECODE : HB_MODE_IDLE);
        f->config.spec_rows = SPEC_ROWS;
        f->config.max_draft = MAX_DRAFT;
        f->caps.modes |= 1U << HB_MODE_TARGET_VERIFY;
        f->caps.tree_verify = f->caps.ragged_verify = 1;
        f->b.n_tokens = ROWS;
        f->b.out_cache_loc.len = ROWS;
        f->b.draft_token_num = -9;
    }
    f->b.original_batch_size = 99;
    f->b.n_extend = -3;
    f->req[3] = 77;
    f->seq[3] = INT32_MIN;
}

static inline void replay_init(struct fixture *f, int shape) {
    graph_batch(f, shape);
    f->by = REPLAY;
    f->b.has_num_padding = 1;
    f->b.num_padding = 1;
    graph_phase(f, shape);
}

static inline void capture_init(struct fixture *f, int shape) {
    graph_batch(f, shape);
    f->by = CAPTURE;
    f->b.req_pool_indices = f->b.seq_lens = f->b.out_cache_loc = (struct hb_i32s){NULL, 7};
    f->b.req_to_token = (struct hb_i32s){NULL, -2};
    f->b.seq_lens_cpu = (struct hb_i32s){f->mirror, 1};
    f->b.mamba_track_mask = (struct hb_u8s){f->mask, 9};
    f->b.mamba_track_indices = (struct hb_i64s){NULL, 0};
    f->b.has_num_padding = 1;
    f->b.num_padding = -4;
    f->mask[0] = 1;
    graph_phase(f, shape);
}

struct graph_recipe {
    int32_t rule;
    int shapes;
    void (*apply)(struct fixture *f);
    int32_t row;
    int64_t value, limit; /* as reported in the first of its shapes, GD first */
};

#define WAY(name, ...)                                                                             \
    static void way_##name(struct fixture *f) {                                                    \
        __VA_ARGS__;                                                                               \
    }
WAY(extend, f->b.forward_mode = HB_MODE_EXTEND)
WAY(draft_extend, f->b.forward_mode = HB_MODE_DRAFT_EXTEND_V2)
WAY(wild_mode, f->b.forward_mode = INT32_MIN)
WAY(no_init, memset(&f->graphs, 0, sizeof f->graphs))
WAY(captured, f->graphs.set[ROWS].is_captured = 1)
WAY(uncaptured, f->graphs.set[ROWS].is_captured = 0)
WAY(other_mode, f->graphs.set[ROWS].mode = 7)
WAY(other_links, f->graphs.set[ROWS].has_links ^= 1)
WAY(one_link, f->graphs.set[ROWS].has_links = 0; f->b.retrieve_next_token.data = NULL)
WAY(odd_tokens, f->b.n_tokens += 1;
    f->b.out_cache_loc.len += f->b.out_cache_loc.data != NULL ? 1 : 0)
WAY(odd_draft, f->b.draft_token_num = 3;
    f->b.retrieve_next_token.len = f->b.retrieve_next_sibling.len = 12)
WAY(few_tokens, f->config.max_tokens = 3)
WAY(few_graph_rows, f->graphs.max_bs = 3)
WAY(no_rows, f->b.batch_size = f->b.n_tokens = 0;
    f->b.retrieve_next_token.len = f->b.retrieve_next_sibling.len = 0; f->b.num_padding = 0;
    f->b.req_pool_indices.len = f->b.seq_lens.len = f->b.seq_lens_cpu.len = 0;
    f->b.mamba_track_mask.len = f->b.mamba_track_indices.len = f->b.out_cache_loc.len = 0)
WAY(layout, f->b.ragged_verify_layout = (struct hb_i32s){f->layout, 0})
WAY(short_track, f->b.mamba_track_indices.len = 3)
WAY(short_track_plain, f->b.mamba_track_indices.len = 0; f->b.mamba_track_mask.data = NULL)
WAY(negative_padding, f->b.num_padding = -1)
WAY(much_padding, f->b.num_padding = 5)
WAY(inner_one, f->b.has_num_padding = 0; f->mirror[1] = 1)
WAY(first_one, f->b.has_num_padding = 0; f->mirror[0] = 1; f->mirror[1] = 1)
WAY(alias_padding, f->mirror[3] = 0)
#undef WAY

#define R(rule, shapes, apply, row, value, limit)                                                  \
    { rule, shapes, apply, row, value, limit }
static const struct graph_recipe CAPTURE_RECIPES[] = {
    R(3, GALL, break_3, -1, 0, 0),
    R(9, GALL, break_10, -1, 7, 0),
    R(9, GALL, way_extend, -1, 1, 0),
    R(9, GALL, way_draft_extend, -1, 6, 0),
    R(9, GALL, way_wild_mode, -1, INT32_MIN, 0),
    R(11, GALL, break_11, -1, 2, 0),
    R(11, GU, way_no_trees, -1, 5, 0),
    R(15, GALL, way_no_init, -1, 0, 0),
    R(16, GALL, way_captured, -1, 4, 0),
    R(30, GU, way_no_sibling, -1, 0, 0),
    R(30, GU, way_no_next, -1, 0, 0),
    R(40, GALL, break_40, -1, -2, 0),
    R(41, GALL, break_41, -1, INT32_MIN, 0),
    R(61, GU, way_short_next, 0, 15, 16),
    R(61, GU, way_long_sibling, 1, 20, 16),
    R(68, GALL, way_odd_tokens, -1, 5, 4),
    R(69, GV, way_odd_draft, -1, 3, 4),
    R(70, GALL, break_70, -1, 4, 3),
    R(71, GALL, way_few_tokens, -1, 4, 3),
    R(72, GV, way_wide_draft, -1, 4, 3),
    R(73, GV, way_few_rows, -1, 4, 3),
    R(73, GV, way_no_caches, -1, 4, 0),
    R(74, GALL, way_few_graph_rows, -1, 4, 3),
    R(74, GALL, way_no_rows, -1, 0, 5),
    R(140, GV, way_layout, -1, 0, 0),
    R(141, GU, way_strip, -1, 0, 0),
    R(142, GU, way_ring, -1, 0, 0),
};
static const struct graph_recipe REPLAY_RECIPES[] = {
    R(3, GALL, break_3, -1, 0, 0),
    R(9, GALL, break_10, -1, 7, 0),
    R(9, GALL, way_extend, -1, 1, 0),
    R(9, GALL, way_wild_mode, -1, INT32_MIN, 0),
    R(11, GALL, break_11, -1, 2, 0),
    R(11, GU, way_no_trees, -1, 5, 0),
    R(15, GALL, way_no_init, -1, 0, 0),
    R(17, GALL, way_uncaptured, -1, 4, 0),
    R(18, GALL, way_other_mode, -1, 2, 7),
    R(19, GV, way_other_links, -1, 1, 0),
    R(19, GU, way_no_sibling, -1, 0, 1),
    R(20, GR, break_20, -1, 0, 4),
    R(21, GR, break_21, -1, 0, 4),
    R(25, GD, break_25, 0, 0, 0),
    R(27, GR, break_27, -1, 0, 4),
    R(28, GR, break_28, -1, 0, 4),
    R(30, GU, way_one_link, -1, 0, 0),
    R(40, GALL, break_40, -1, -2, 0),
    R(41, GALL, break_41, -1, INT32_MIN, 0),
    R(43, GR, break_43, -1, 3, 4),
    R(44, GR, break_44, -1, 5, 4),
    R(53, GR, break_53, -1, 5, 4),
    R(54, GD, way_short_track, -1, 3, 4),
    R(54, GD, way_short_track_plain, -1, 0, 4),
    R(56, GR, break_56, -1, 3, 4),
    R(57, GR, break_57, -1, 5, 6),
    R(58, GR, break_58, -1, 31, 32),
    R(61, GU, way_short_next, 0, 15, 16),
    R(61, GU, way_long_sibling, 1, 20, 16),
    R(67, GR, break_67, -1, 3, 4),
    R(68, GALL, way_odd_tokens, -1, 5, 4),
    R(69, GV, way_odd_draft, -1, 3, 4),
    R(70, GALL, break_70, -1, 4, 3),
    R(71, GALL, way_few_tokens, -1, 4, 3),
    R(73, GV, way_few_rows, -1, 4, 3),
    R(74, GALL, way_few_graph_rows, -1, 4, 3),
    R(74, GALL, way_no_rows, -1, 0, 5),
    R(78, GR, way_negative_padding, -1, -1, 4),
    R(78, GR, way_much_padding, -1, 5, 4),
    R(79, GR, way_inner_one, 1, 1, 2),
    R(79, GR, way_first_one, 0, 1, 2),
    R(81, GR, break_81, 1, 6, 5),
    R(83, GR, break_83, 1, 9, 8),
    R(84, GR, break_84, 2, 0, 1),
    R(88, GD, break_88, 3, 0, 0),
    R(90, GD, break_90, 0, 0, 8),
    R(93, GR, break_93, 1, 64, 63),
    R(94, GR, break_94, 1, 12, 6),
    R(95, GD, break_95, 0, 30, 1),
    R(95, GV, way_wrong_new, 0, 30, 1),
    R(96, GR, break_96, 1, 0, 63),
    R(100, GU, way_next_outside, 0, 4, 3),
    R(101, GU, way_link_to_itself, 0, 1, 1),
    R(102, GU, way_twice, 0, 3, 2),
    R(103, GV, way_mask_live, 1, 0, 0),
    R(103, GV, way_mask_padding, 3, 0, 0),
    R(107, GR, break_107, 1, 13, 12),
    R(107, GR, way_alias_padding, 3, 0, 1),
    R(110, GR, break_110, 1, 2, 0),
    R(111, GD, break_111, 0, 8, 0),
    R(114, GV, break_114, 1, 2, 3),
    R(120, GR, break_120, 2, 1, 0),
    R(121, GD, break_121, 2, 7, 0),
    R(122, GD, break_122, 2, 1, 0),
    R(122, GV, way_shared_loc, 2, 1, 0),
    R(130, GR, break_130, 1, 5, 0),
    R(131, GD, break_131, 0, 3, 2),
    R(132, GD, break_132, 0, 4, 0),
    R(140, GV, way_layout, -1, 0, 0),
    R(141, GU, way_strip, -1, 0, 0),
    R(142, GU, way_ring, -1, 0, 0),
};
#undef R

/* Both calls, to be run through alike. */
static const struct {
    void (*init)(struct fixture *f, int shape);
    const struct graph_recipe *recipes;
    int n;
} GRAPH_CALLS[2] = {
    {capture_init, CAPTURE_RECIPES, (int)(sizeof CAPTURE_RECIPES / sizeof CAPTURE_RECIPES[0])},
    {replay_init, REPLAY_RECIPES, (int)(sizeof REPLAY_RECIPES / sizeof REPLAY_RECIPES[0])},
};

#endif
