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

#include "backend/defects.h"
#include "harness/record.h"
#include "harness/tests/kind_cases.h"
#include "harness/tests/mischief.h"

/* --- right backends --------------------------------------------------------------------------- */

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

/* --- planted defects -------------------------------------------------------------------------- */

/* A prompt of one token, and a decode: the window has columns that no token has filled. */
static void short_prompts(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 1);
    hand_row(s, 1, 3);
    decode(c);
}

static void long_extend(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 40);
    hand_row(s, 1, 29);
    decode(c);
}

#define FIELD(member) offsetof(struct hb_case_config, member)
enum { MOST_FIELDS = 4, OUT = HB_OFF_NUMERIC | HB_OFF_STATE };
struct planted {
    int32_t defect, mixer, off; /* off: detectors; with them off nothing is noticed */
    void (*build)(struct hb_case *c);
    const char *check;
    struct {
        size_t field;
        int32_t value;
    } set[MOST_FIELDS]; /* fields that are not 0 and that the defect needs */
};
/* clang-format off */
static const struct planted planted[] = {
    {HB_DEFECT_DELTA_HEAD_MAP, HB_MIXER_GDN, OUT, two_groups, "numeric.gdn", {{0}}},
    {HB_DEFECT_DELTA_HEAD_MAP, HB_MIXER_KDA, OUT, two_groups, "numeric.kda", {{FIELD(head_map), 1}}},
    {HB_DEFECT_DELTA_DECAY_SIGN, HB_MIXER_GDN, OUT, extend, "numeric.gdn", {{0}}},
    {HB_DEFECT_DELTA_ZERO_GATE, HB_MIXER_GDN, OUT, extend, "numeric.gdn", {{0}}},
    {HB_DEFECT_DELTA_L2_EPS, HB_MIXER_GDN, OUT, extend, "numeric.gdn", {{FIELD(value_class), HB_VALUES_TINY_DT}}},
    {HB_DEFECT_DELTA_LAYOUT, HB_MIXER_GDN, OUT, extend, "numeric.gdn", {{FIELD(head_dim), 4}, {FIELD(state_size), 4}}},
    {HB_DEFECT_DELTA_MASKED_EXP, HB_MIXER_GDN, OUT, extend, "state.temporal", {{FIELD(value_class), HB_VALUES_LARGE_DT}, {FIELD(kernel_form), 1}}},
    {HB_DEFECT_DELTA_PREDICTION, HB_MIXER_KDA, OUT, extend, "numeric.kda", {{0}}},
    {HB_DEFECT_DECAY_SIGN, HB_MIXER_LIGHTNING, OUT, extend, "numeric.lightning", {{0}}},
    {HB_DEFECT_DECAY_PARTIAL_CHUNK, HB_MIXER_LIGHTNING, OUT, extend, "state.temporal", {{FIELD(kernel_form), 1}}},
    {HB_DEFECT_LAYER_FACTOR, HB_MIXER_LIGHTNING, OUT, extend, "numeric.lightning", {{FIELD(slope_kind), HB_SLOPE_ALIBI}, {FIELD(layer_factor), HB_FACTOR_MINIMAX}}},
    {HB_DEFECT_DT_BIAS_PER_HEAD, HB_MIXER_MAMBA1, OUT, extend, "numeric.mamba1", {{FIELD(dt_bias), 1}}},
    {HB_DEFECT_SHORT_CONV_UNROUNDED, HB_MIXER_SHORT_CONV, OUT, extend, "numeric.short_conv", {{FIELD(act_dtype), HB_BF16}}},
    {HB_DEFECT_SHORT_CONV_STORES_X, HB_MIXER_SHORT_CONV, OUT, extend, "state.conv", {{0}}},
    {HB_DEFECT_SHORT_CONV_MIN_POS, HB_MIXER_SHORT_CONV, OUT, short_prompts, "state.conv", {{0}}},
    {HB_DEFECT_DECAY_ZERO_GATE, HB_MIXER_LIGHTNING, OUT, extend, "numeric.lightning", {{FIELD(slope_kind), HB_SLOPE_TOKEN}}},
    {HB_DEFECT_CAP_AFTER_MASK, HB_MIXER_MAMBA2, OUT, forked_tree, "numeric.attention", {{FIELD(attn_softcap), 3}}},
    {HB_DEFECT_WINDOW_OFF_BY_ONE, HB_MIXER_MAMBA2, OUT, extend, "numeric.attention", {{FIELD(attn_window), 4}}},
    {HB_DEFECT_PAGE_CROSSING, HB_MIXER_MAMBA2, OUT, long_extend, "numeric.attention", {{FIELD(kv_page), HB_KV_PAGE_16}, {FIELD(page_order), HB_PAGES_INTERLEAVED}}},
    {HB_DEFECT_FP16_TRUNCATED, HB_MIXER_MAMBA2, OUT, long_extend, "numeric.mamba2", {{FIELD(act_dtype), HB_FP16}, {FIELD(value_class), HB_VALUES_WIDE}, {FIELD(gate_norm), HB_GATE_ONLY}}},
    {HB_DEFECT_GATE_AS_SILU, HB_MIXER_KDA, OUT, extend, "numeric.kda", {{FIELD(out_gate), HB_OUT_SIGMOID}}},
    {HB_DEFECT_CONV_OLDEST, HB_MIXER_GDN, OUT, extend, "numeric.gdn", {{FIELD(conv_state_len), HB_CONV_STATE_FULL}}},
    {HB_DEFECT_MAMBA2_DECAY_SIGN, HB_MIXER_MAMBA2, OUT, extend, "numeric.mamba2", {{0}}},
    {HB_DEFECT_MAMBA2_ZERO_STEP, HB_MIXER_MAMBA2, OUT, extend, "numeric.mamba2", {{FIELD(value_class), HB_VALUES_EXACT}}},
    {HB_DEFECT_MAMBA2_LAYOUT, HB_MIXER_MAMBA2, OUT, extend, "numeric.mamba2", {{FIELD(head_dim), 4}, {FIELD(state_size), 4}}},
    {HB_DEFECT_DECAY_HEAD_MAP, HB_MIXER_LIGHTNING, OUT, two_groups, "numeric.lightning", {{0}}},
    {HB_DEFECT_DECAY_LAYOUT, HB_MIXER_LIGHTNING, OUT, extend, "numeric.lightning", {{FIELD(head_dim), 4}, {FIELD(state_size), 4}}},
    {HB_DEFECT_MAMBA1_DECAY_SIGN, HB_MIXER_MAMBA1, OUT, extend, "numeric.mamba1", {{0}}},
    {HB_DEFECT_MAMBA1_ZERO_STEP, HB_MIXER_MAMBA1, OUT, extend, "numeric.mamba1", {{FIELD(value_class), HB_VALUES_EXACT}}},
    {HB_DEFECT_MAMBA1_LAYOUT, HB_MIXER_MAMBA1, OUT, extend, "numeric.mamba1", {{FIELD(head_dim), 4}, {FIELD(state_size), 4}}},
    {HB_DEFECT_GATED_NORM_EPS, HB_MIXER_MAMBA2, OUT, extend, "numeric.mamba2", {{FIELD(value_class), HB_VALUES_TINY_DT}}},
    {HB_DEFECT_GATED_NORM_EPS, HB_MIXER_LIGHTNING, OUT, extend, "numeric.lightning", {{FIELD(value_class), HB_VALUES_TINY_DT}}},
    {HB_DEFECT_ATTN_GQA_MODULO, HB_MIXER_MAMBA2, OUT, extend, "numeric.attention", {{FIELD(q_heads), 4}, {FIELD(kv_heads), 2}}},
    {HB_DEFECT_SHORT_CONV_OLDEST, HB_MIXER_SHORT_CONV, OUT, extend, "numeric.short_conv", {{FIELD(conv_state_len), HB_CONV_STATE_FULL}}},
    {HB_DEFECT_KDA_DECAY_SCALAR, HB_MIXER_KDA, OUT, extend, "numeric.kda", {{0}}},
};
/* clang-format on */

static void make_planted(const struct planted *p, struct hb_case *c) {
    hand_init(c);
    c->config.mixer = p->mixer;
    for (int i = 0; i < MOST_FIELDS && p->set[i].field > 0; i++) {
        memcpy((char *)&c->config + p->set[i].field, &p->set[i].value, sizeof p->set[i].value);
    }
    p->build(c);
    hb_case_normalize(c);
}

static void each_planted_defect_of_the_kinds_is_found_by_its_detector_alone(void **state) {
    (void)state;
    struct hb_caps caps = {.struct_size = sizeof caps};
    assert_int_equal(hb_adapter_emu()->describe(hb_adapter_emu()->ctx, &caps, NULL), HB_OK);
    if (!caps.has_defects) {
        skip();
    }
    int seen[HB_DEFECTS_END] = {0};
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        struct hb_case c;
        make_planted(&planted[i], &c);
        struct hb_verdict v = run(hb_adapter_emu(), &c, 0, planted[i].defect);
        if (strcmp(v.check, planted[i].check) != 0) {
            fail_msg("defect %d: %s instead of %s: %s", planted[i].defect, v.check,
                     planted[i].check, v.text);
        }
        v = run(hb_adapter_emu(), &c, planted[i].off, planted[i].defect);
        if (v.kind != HB_VERDICT_PASS) {
            fail_msg("defect %d with its detector off: %s: %s", planted[i].defect, v.check, v.text);
        }
        v = run(hb_adapter_emu(), &c, 0, HB_DEFECT_NONE);
        assert_pass(&v);
        seen[planted[i].defect]++;
    }
#define DEFECT_BIT(number, name, what, detector)                                                   \
    assert_true(seen[number] || (number) <= HB_DEFECT_MOVE_STALE ||                                \
                ((number) >= HB_DEFECT_RING_ACCEPT_ALL && /* of a ring: Mamba2 alone */            \
                 (number) <= HB_DEFECT_RING_FOLD_LATE));
    HB_DEFECTS_TABLE(DEFECT_BIT)
#undef DEFECT_BIT
}

/* --- references that start from the stored state ---------------------------------------------- */

struct widths {
    double sum;
};

static void add_bounds(void *ctx, int32_t step, int32_t layer, int64_t token, int32_t n,
                       const double *want, const double *bound, const double *mag) {
    struct widths *w = ctx;
    (void)step, (void)layer, (void)token, (void)want, (void)mag;
    for (int32_t i = 0; i < n; i++) {
        w->sum += bound[i];
    }
}

static void see_nothing(void *ctx, int32_t kind, int32_t request, int32_t layer, int64_t position,
                        int32_t n, const float *got, const double *want, const double *bound) {
    (void)ctx, (void)kind, (void)request, (void)layer, (void)position, (void)n;
    (void)got, (void)want, (void)bound;
}

/* Sum of all bounds of the outputs of a case without attention; observed: the reference goes on
 * from its own states. */
static double bounds_of(int32_t mixer, int32_t form, int is_observed) {
    const struct hb_observer observer = {.see = see_nothing};
    struct widths w = {0};
    struct hb_case c;
    struct hb_verdict v;
    const struct hb_run_options o = {.tamper_element = -1,
                                     .observer = is_observed ? &observer : NULL,
                                     .see_token = add_bounds,
                                     .see_token_ctx = &w};
    hand_init(&c);
    c.config.attn_mask = 0;
    c.config.mixer = mixer;
    c.config.kernel_form = form;
    for (int i = 0; i < 4; i++) {
        extend_and_decode(&c);
    }
    hb_case_normalize(&c);
    assert_int_equal(hb_run_case(hb_adapter_emu(), &c, &o, &v, NULL), 0);
    assert_pass(&v);
    return w.sum;
}

static void bounds_of_a_delta_rule_in_chunks_do_not_add_up_over_calls(void **state) {
    (void)state;
    for (int32_t mixer = 0; mixer < HB_N_MIXERS; mixer++) {
        for (int32_t form = 0; form < HB_N_FORMS; form++) {
            const double own = bounds_of(mixer, form, 1);
            const double stored = bounds_of(mixer, form, 0);
            const int is_delta = mixer == HB_MIXER_GDN || mixer == HB_MIXER_KDA;
            if (is_delta && form == HB_FORM_FAST) {
                print_message("mixer %d: %g from stored states, %g from its own\n", mixer, stored,
                              own);
                assert_true(stored < own);
            } else {
                assert_true(stored == own);
            }
        }
    }
}

/* --- states ------------------------------------------------------------------------------------ */

/* Conv states of K columns: the oldest, which nobody reads, is compared as well; and the states of
 * every kind. */
static void wrong_states_are_noticed_in_every_kind(void **state) {
    static const int32_t numbers[] = {MISCHIEF_CONV, MISCHIEF_TEMPORAL};
    static const char *const checks[] = {"state.conv", "state.temporal"};
    (void)state;
    for (int32_t i = 0; i < 4 * HB_N_MIXERS; i++) {
        const int32_t mixer = i / 4, which = i & 1;
        const int has_state = which == 0 ? mixer != HB_MIXER_LIGHTNING : mixer != HB_MIXER_SHORT_CONV;
        struct hb_case c;
        struct mischief m;
        hand_init(&c);
        c.config.mixer = mixer;
        c.config.conv_state_len = i >> 1 & 1;
        c.config.state_layout = i >> 1 & 1;
        extend(&c);
        hb_case_normalize(&c);
        struct hb_verdict v = run(mischief_init(&m, numbers[which], 0), &c, 0, 0);
        assert_string_equal(v.check, has_state ? checks[which] : "");
        v = run(&m.table, &c, HB_OFF_STATE, 0);
        assert_pass(&v);
    }
}

/* A backend that shows no states, or shows them in another shape, cannot be judged. */
static void missing_states_are_noticed(void **state) {
    (void)state;
    for (int32_t variant = 0; variant < 3; variant++) {
        struct hb_case c;
        struct mischief m;
        make(extend, &c);
        c.config.mixer = HB_MIXER_GDN;
        struct hb_verdict v = run(mischief_init(&m, MISCHIEF_REGION, variant), &c, 0, 0);
        assert_int_equal(v.kind, HB_VERDICT_STATE);
        assert_string_equal(v.check, "create.regions");
        assert_string_equal(v.place, variant == 1 ? "conv" : "temporal");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_of_a_delta_rule_in_chunks_do_not_add_up_over_calls),
        cmocka_unit_test(wrong_states_are_noticed_in_every_kind),
        cmocka_unit_test(missing_states_are_noticed),
        cmocka_unit_test(each_planted_defect_of_the_kinds_is_found_by_its_detector_alone),
        cmocka_unit_test(every_kind_passes_on_the_oracle),
        cmocka_unit_test(every_kind_passes_on_the_emulator),
    };
    return cmocka_run_group_tests_name("run_kinds", tests, NULL, NULL);
}
