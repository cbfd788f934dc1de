/* SPDX-License-Identifier: Apache-2.0
 * Histories by hand in all kinds of linear layers, with their variants. Include after cmocka.h. */
#ifndef HB_HARNESS_TESTS_KIND_CASES_H
#define HB_HARNESS_TESTS_KIND_CASES_H

#include "backend/batch.h"
#include "harness/rng.h"
#include "harness/tests/defect_cases.h"

static inline void ragged(struct hb_case *c) {
    hand_take(c, 2, 3);
    (void)verify(c, HB_TREE_CHAIN, 4, 2);
    (void)commit(c, 2, 1);
    decode_both(c);
}

/* clang-format off */
static void (*const histories[])(struct hb_case *c) = {
    extend, extend_and_decode, padded_decode, padded_tokens, one_row_tracked, tracked_late,
    short_prompt, copy_slot, free_slot, idle, mixed, restart, mixed_tracked, tracked_off_the_grid,
    large_pages_tracked, odd_layer, absent_buffer,
    chain, forked_tree, three_siblings, committed_in_part, no_drafts_after_drafts, ragged, strip,
    decode_replayed, replays_by_turns, replay_tracked, verify_graph, part_of_the_layers,
    virtual_ids, moved_before_the_commit, published, ping_pong_lazy, padded_pool,
};
/* clang-format on */
enum { N_HISTORIES = sizeof histories / sizeof *histories };

/* Variants of the kind at random; the normal form keeps those that the kind reads. */
static inline void draw_variants(struct hb_rng *g, struct hb_case_config *c) {
    c->act_dtype = hb_rng_below(g, HB_N_FLOAT_DTYPES);
    c->state_dtype = hb_rng_below(g, 2);
    c->kernel_form = hb_rng_below(g, HB_N_FORMS);
    c->heads = 4;
    c->groups = 1 << hb_rng_below(g, 3);
    c->head_dim = 1 + hb_rng_below(g, 9);
    c->state_size = 1 + hb_rng_below(g, 9);
    c->conv_width = 2 + hb_rng_below(g, 3);
    c->conv_act = hb_rng_below(g, HB_N_CONV_ACTS);
    c->gate_norm = hb_rng_below(g, HB_N_GATE_NORMS);
    c->norm_group = hb_rng_below(g, HB_N_NORM_SPANS);
    c->conv_bias = hb_rng_below(g, 2);
    c->dt_bias = hb_rng_below(g, 2);
    c->skip_d = hb_rng_below(g, 2);
    c->head_map = hb_rng_below(g, HB_N_HEAD_MAPS);
    c->state_layout = hb_rng_below(g, HB_N_STATE_LAYOUTS);
    c->out_gate = hb_rng_below(g, HB_N_OUT_GATES);
    c->conv_state_len = hb_rng_below(g, HB_N_CONV_STATE_LENS);
    c->l2norm = hb_rng_below(g, HB_N_L2NORMS);
    c->beta_form = hb_rng_below(g, HB_N_BETA_FORMS);
    c->gate_form = hb_rng_below(g, HB_N_GATE_FORMS);
    c->gate_bound = hb_rng_below(g, HB_N_GATE_BOUNDS);
    c->qk_scale = hb_rng_below(g, HB_N_QK_SCALES);
    c->slope_kind = hb_rng_below(g, HB_N_SLOPE_KINDS);
    c->layer_factor = hb_rng_below(g, HB_N_LAYER_FACTORS);
    c->qkv_act = hb_rng_below(g, HB_N_QKV_ACTS);
    c->attn_window = hb_rng_below(g, 2) * (1 + hb_rng_below(g, 9));
    c->window_rule = hb_rng_below(g, HB_N_WINDOW_RULES);
    c->attn_softcap = hb_rng_below(g, HB_N_SOFTCAPS);
    c->dt_softplus = 1;
    c->seed = hb_rng_below(g, 1000);
}

static inline void make_kind(struct hb_rng *g, int32_t mixer, void (*build)(struct hb_case *c),
                      struct hb_case *c) {
    hand_init(c);
    draw_variants(g, &c->config);
    c->config.mixer = mixer;
    build(c);
    hb_case_normalize(c);
}

#endif
