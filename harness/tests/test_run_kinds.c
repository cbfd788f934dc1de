/* SPDX-License-Identifier: Apache-2.0
 * The executor over the kinds of linear layers: histories by hand in all of them, with their
 * variants; references that start from the stored state; and the controls of what only these kinds
 * have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "backend/batch.h"
#include "backend/defects.h"
#include "harness/record.h"
#include "harness/rng.h"
#include "harness/tests/defect_cases.h"
#include "harness/tests/mischief.h"

/* --- right backends --------------------------------------------------------------------------- */

/* clang-format off */
static void (*const histories[])(struct hb_case *c) = {
    extend, extend_and_decode, padded_decode, padded_tokens, one_row_tracked, tracked_late,
    short_prompt, copy_slot, free_slot, idle, mixed, restart, mixed_tracked, tracked_off_the_grid,
    large_pages_tracked, odd_layer, absent_buffer,
    chain, forked_tree, three_siblings, committed_in_part, no_drafts_after_drafts, strip,
    decode_replayed, replays_by_turns, replay_tracked, verify_graph, part_of_the_layers,
    virtual_ids, moved_before_the_commit, published, ping_pong_lazy, padded_pool,
};
/* clang-format on */
enum { N_HISTORIES = sizeof histories / sizeof *histories };

/* Variants of the kind at random; the normal form keeps those that the kind reads. */
static void draw_variants(struct hb_rng *g, struct hb_case_config *c) {
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

static void make_kind(struct hb_rng *g, int32_t mixer, void (*build)(struct hb_case *c),
                      struct hb_case *c) {
    hand_init(c);
    draw_variants(g, &c->config);
    c->config.mixer = mixer;
    build(c);
    hb_case_normalize(c);
}

static void pass_all(const struct hb_adapter *backend, int32_t draws, struct hb_run_stats *s) {
    for (int32_t k = 0; k < HB_N_MIXERS * N_HISTORIES * draws; k++) {
        const int32_t mixer = k % HB_N_MIXERS;
        const int32_t history = k / HB_N_MIXERS % N_HISTORIES;
        struct hb_rng g = hb_rng_make((uint64_t)k, 0x6b696e6473u);
        struct hb_case c;
        struct hb_verdict v;
        make_kind(&g, mixer, histories[history], &c);
        assert_int_equal(hb_run_case(backend, &c, NULL, &v, s), 0);
        if (v.kind != HB_VERDICT_PASS) {
            fail_msg("mixer %d history %d draw %d: %s %s: %s", mixer, history, k, v.check, v.place,
                     v.text);
        }
    }
}

/* Every operation was compared, in both forms and all types. */
static void every_op_is_seen(const struct hb_run_stats *s) {
    for (int op = 0; op < HB_N_OPS; op++) {
        for (int form = 0; form < HB_N_FORMS; form++) {
            const int is_state = strstr(hb_op_name(op), ".state") != NULL;
            for (int d = 0; d < (is_state ? 2 : HB_N_FLOAT_DTYPES); d++) {
                assert_true(s->elements[op][form][d] > 0 && s->max_ratio[op][form][d] <= 1.0);
            }
        }
    }
}

static void every_kind_passes_on_the_oracle(void **state) {
    (void)state;
    struct hb_run_stats s = {0};
    pass_all(hb_adapter_oracle(), 4, &s);
    every_op_is_seen(&s);
}

static void every_kind_passes_on_the_emulator(void **state) {
    (void)state;
    struct hb_run_stats s = {0};
    pass_all(hb_adapter_emu(), 4, &s);
    every_op_is_seen(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_passes_on_the_oracle),
        cmocka_unit_test(every_kind_passes_on_the_emulator),
    };
    return cmocka_run_group_tests_name("run_kinds", tests, NULL, NULL);
}
