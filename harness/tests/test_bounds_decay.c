/* SPDX-License-Identifier: Apache-2.0
 * The error bounds of lightning attention, Mamba1 and the short convolution: a correct computation
 * in fp32, bf16 or fp16 stays inside in every element, in any order and form; a planted relative
 * error and the other value of each variant do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "harness/tests/oracle_mixer.h"
#include "harness/tests/oracle_tally.h"

enum { MIX_OUT = MIX_LEN * MIX_INNER };

struct run {
    struct mixer m;
    struct mixer_sim sim;
    struct hb_profile prefill, decode;
    double out[MIX_OUT], bound[MIX_OUT], mag[MIX_OUT];
    struct hb_ref_state *state;
};

static const char *const kind_names[HB_N_LAYER_KINDS] = {[HB_LAYER_LIGHTNING] = "lightning",
                                                         [HB_LAYER_SHORT_CONV] = "short conv",
                                                         [HB_LAYER_MAMBA1] = "mamba1"};

/* A constant decay may be a power of the distance instead of a difference of sums. */
static int may_be_direct(const struct mixer *m) {
    return m->kind == HB_LAYER_LIGHTNING && m->config.slope_kind != HB_SLOPE_TOKEN;
}

/* Profiles as a backend would declare them; form: bit 0 chunks, bit 1 operands rounded in them, bit
 * 2 the state in bf16. */
static void declare(struct run *r, int32_t form) {
    static const double u_io[HB_N_FLOAT_DTYPES] = {0.0, 0x1p-8, 0x1p-11};
    const int32_t act = r->m.config.act_dtype;
    struct hb_profile p = plain_profile();
    struct mixer_sim *s = &r->sim;
    s->m = &r->m;
    s->chunked = form & 1;
    s->op_dtype = (form & 3) == 3 ? act : HB_FP32;
    s->naive_softplus = draw_int(0, 1);
    s->reversed = draw_int(0, 1);
    s->rounds = draw_int(0, 1);
    s->sums = draw_int(0, 2);
    s->direct = may_be_direct(&r->m) && draw_int(0, 1);
    r->m.config.state_dtype = form & 4 ? HB_BF16 : HB_FP32;
    p.cs_tree = s->sums;
    p.u_io = u_io[act];
    p.io_floor = act == HB_FP16 ? 0x1p-25 : 0x1p-126;
    p.sp_abs = s->naive_softplus ? 0x1p-22 : 0.0;
    r->decode = p;
    p.chunked = s->chunked;
    p.u_op = u_io[s->op_dtype];
    r->prefill = p;
}

static void start(struct run *r) {
    r->state = hb_ref_state_new(&r->m.config);
    assert_non_null(r->state);
    hb_ref_state_set(&r->m.config, r->state, r->m.conv0, r->m.ssm0);
    mix_start(&r->sim);
}

static void step(struct run *r, int32_t path, int32_t from, int32_t n, struct tally *out,
                 struct tally *state) {
    const struct mixer *m = &r->m;
    const struct hb_profile *p = path == HB_PATH_DECODE ? &r->decode : &r->prefill;
    assert_int_equal(mixer_call(m, p, path, from, n, r->state, r->out, r->bound, r->mag), 0);
    mix_call(&r->sim, path, from, n);
    for (int32_t i = 0; i < n * m->size.width[3]; i++) {
        judge(out, (double)r->sim.out[i], r->out[i], r->bound[i], r->mag[i]);
    }
    for (int32_t i = 0; i < m->size.n_state; i++) {
        const double b = hb_ref_state_bound(&m->config, p, r->state, i, 0);
        judge(state, (double)r->sim.ssm[i], r->state->h[i], b, r->state->m[i]);
    }
    for (int32_t i = 0; i < m->size.channels * m->size.window; i++) {
        assert_true((double)r->sim.conv[i] == r->state->conv[i]);
    }
}

/* A random history: prefill, decodes, another prefill, decode. */
static void play(struct run *r, struct tally *out, struct tally *state) {
    const int32_t first = draw_int(1, 18), decodes = draw_int(0, 3), second = draw_int(1, 18);
    start(r);
    step(r, HB_PATH_PREFILL, 0, first, out, state);
    for (int32_t k = 0; k < decodes; k++) {
        step(r, HB_PATH_DECODE, first + k, 1, out, state);
    }
    step(r, HB_PATH_PREFILL, first + decodes, second, out, state);
    step(r, HB_PATH_DECODE, first + decodes + second, 1, out, state);
    hb_ref_state_free(r->state);
}

/* Wide values leave the range of fp16. */
static int32_t class_for(int32_t k, int32_t act) {
    const int32_t c = k % N_CLASSES;
    return act == HB_FP16 && c == CLASS_WIDE ? CLASS_ORDINARY : c;
}

static void correct_results_stay_inside(int32_t kind) {
    static const char *const act_names[HB_N_FLOAT_DTYPES] = {"fp32", "bf16", "fp16"};
    struct run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    for (int32_t act = 0; act < HB_N_FLOAT_DTYPES; act++) {
        for (int32_t form = 0; form < (kind == HB_LAYER_SHORT_CONV ? 1 : 8); form++) {
            struct tally out = {0}, state = {0};
            for (int32_t k = 0; k < 10 * N_CLASSES; k++) {
                draw_mixer(&r->m, kind, class_for(k, act), act, 0);
                declare(r, form);
                play(r, &out, &state);
            }
            print_message("%-10s %s form %d: worst err/B out %.3f state %.3f, vacuous %.2f%%\n",
                          kind_names[kind], act_names[act], form, out.worst, state.worst,
                          100.0 * (double)out.vacuous / (double)out.n);
            assert_int_equal(out.outside, 0);
            assert_int_equal(state.outside, 0);
        }
    }
    free(r);
}

static void bounds_of_lightning_hold(void **unused) {
    (void)unused;
    correct_results_stay_inside(HB_LAYER_LIGHTNING);
}

static void bounds_of_mamba1_hold(void **unused) {
    (void)unused;
    correct_results_stay_inside(HB_LAYER_MAMBA1);
}

static void bounds_of_short_conv_hold(void **unused) {
    (void)unused;
    correct_results_stay_inside(HB_LAYER_SHORT_CONV);
}

/* On values whose sums do not cancel an fp32 result off by the factor 1 + 2^-16 is outside, and on
 * ordinary values few bounds say nothing. */
static void planted_errors_are_outside(void **unused) {
    (void)unused;
    static const int32_t kinds[3] = {HB_LAYER_LIGHTNING, HB_LAYER_MAMBA1, HB_LAYER_SHORT_CONV};
    struct run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    for (int32_t k = 0; k < 6; k++) {
        struct tally out = {0}, state = {0}, ordinary = {0};
        for (int32_t i = 0; i < 60; i++) {
            draw_mixer(&r->m, kinds[k / 2], CLASS_SAME_SIGN, HB_FP32, 1);
            declare(r, k % 2);
            r->sim.sums = r->prefill.cs_tree = HB_CS_SEQUENTIAL;
            r->sim.naive_softplus = 0;
            r->prefill.sp_abs = r->decode.sp_abs = 0.0;
            play(r, &out, &state);
            draw_mixer(&r->m, kinds[k / 2], CLASS_ORDINARY, i % 3, 0);
            declare(r, k % 2);
            play(r, &ordinary, &state);
        }
        const double seen = (double)out.planted_seen / (double)out.planted;
        print_message("planted 2^-16, %s %s: outside in %.2f%% of outputs; ordinary vacuous "
                      "%.3f%%\n",
                      kind_names[kinds[k / 2]], k % 2 ? "chunks" : "recurrence", 100.0 * seen,
                      100.0 * (double)ordinary.vacuous / (double)ordinary.n);
        assert_true(seen >= 0.95);
        assert_true((double)ordinary.vacuous <= 0.01 * (double)ordinary.n);
        assert_int_equal(out.outside + ordinary.outside + state.outside, 0);
    }
    free(r);
}

/* A state that is off by 2^-12 when a call begins shows in its outputs. */
static void a_state_off_by_2_to_minus_12_is_seen(void **unused) {
    (void)unused;
    struct run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    for (int32_t k = 0; k < 4; k++) {
        struct tally out = {0};
        for (int32_t i = 0; i < 100; i++) {
            draw_mixer(&r->m, k / 2 ? HB_LAYER_MAMBA1 : HB_LAYER_LIGHTNING, CLASS_SAME_SIGN,
                       HB_FP32, 1);
            r->m.config.gate_norm = HB_GATE_NORM_NONE;
            fill_uniform(r->m.a, MIX_STATE, -0.05F, -0.01F);
            declare(r, k % 2);
            start(r);
            for (int32_t j = 0; j < MIX_STATE; j++) {
                r->sim.ssm[j] *= 8.0F * (1.0F + 0x1p-12F);
                r->m.ssm0[j] *= 8.0F;
            }
            hb_ref_state_set(&r->m.config, r->state, r->m.conv0, r->m.ssm0);
            const struct hb_profile *p = &r->prefill;
            const int32_t n = 1 + i % 3;
            assert_int_equal(
                mixer_call(&r->m, p, HB_PATH_PREFILL, 0, n, r->state, r->out, r->bound, r->mag), 0);
            mix_call(&r->sim, HB_PATH_PREFILL, 0, n);
            for (int32_t j = 0; j < n * r->m.size.width[3]; j++) {
                judge(&out, (double)r->sim.out[j], r->out[j], r->bound[j], r->mag[j]);
            }
            hb_ref_state_free(r->state);
        }
        assert_true((double)out.outside >= 0.95 * (double)out.n);
    }
    free(r);
}

/* ---- the other value of each variant, and lost parts, on the side of the oracle ---- */

static void no_change(struct mixer *m) {
    (void)m;
}

static void other_head_map(struct mixer *m) {
    m->config.head_map = HB_HEADS_TILE;
}

static void other_gate(struct mixer *m) {
    m->config.out_gate = HB_OUT_SIGMOID;
}

static void other_scale(struct mixer *m) {
    m->config.qk_scale = 1.0F;
}

static void other_qkv(struct mixer *m) {
    m->config.qkv_act = HB_QKV_SILU;
}

static void minimax_factor(struct mixer *m) {
    m->config.layer_factor = HB_FACTOR_MINIMAX;
}

static void ling_factor(struct mixer *m) {
    m->config.layer_factor = HB_FACTOR_LING;
}

static void factor_one_layer_off(struct mixer *m) {
    m->config.layer_factor = HB_FACTOR_LING_OFF;
}

static void fla_slope(struct mixer *m) {
    m->config.slope_kind = HB_SLOPE_FLA;
}

static void minimax_slope(struct mixer *m) {
    m->config.slope_kind = HB_SLOPE_MINIMAX;
}

static void other_layer(struct mixer *m) {
    m->layer++;
}

static void growth(struct mixer *m) {
    for (int32_t i = 0; i < MIX_STATE; i++) {
        m->a[i] = -m->a[i];
    }
}

static void lost_state(struct mixer *m) {
    memset(m->ssm0, 0, sizeof m->ssm0);
}

static void lost_history(struct mixer *m) {
    memset(m->conv0, 0, sizeof m->conv0);
}

static void lost_bias(struct mixer *m) {
    m->params.dt_bias = NULL;
}

static void lost_skip(struct mixer *m) {
    m->params.d = NULL;
}

static void bias_per_head(struct mixer *m) {
    for (int32_t i = 0; i < MIX_INNER; i++) {
        m->dt_bias[i] = m->dt_bias[i / m->config.head_dim];
    }
}

static void no_softplus(struct mixer *m) {
    m->config.dt_softplus = 0;
}

static void one_decay_per_channel(struct mixer *m) {
    for (int32_t i = 0; i < MIX_STATE; i++) {
        m->a[i] = m->a[i / m->config.state_size * m->config.state_size];
    }
}

static void lost_conv_bias(struct mixer *m) {
    m->params.conv_bias = NULL;
}

static void exchanged_taps(struct mixer *m) {
    const float first = m->conv_weight[0];
    m->conv_weight[0] = m->conv_weight[m->config.conv_width - 1];
    m->conv_weight[m->config.conv_width - 1] = first;
}

static void exchanged_inputs(struct mixer *m) { /* B | C | x: C for B */
    const int32_t inner = (int32_t)m->size.width[3];
    for (int32_t t = 0; t < MIX_LEN; t++) {
        float *row = m->in[1] + t * 3 * inner;
        for (int32_t i = 0; i < inner; i++) {
            const float b = row[i];
            row[i] = row[inner + i];
            row[inner + i] = b;
        }
    }
}

enum { LIGHT = HB_LAYER_LIGHTNING, SHORT = HB_LAYER_SHORT_CONV, SCAN = HB_LAYER_MAMBA1 };

static const struct mutation {
    const char *name;
    int32_t kind, slope, factor; /* slope and factor of the right layer */
    void (*apply)(struct mixer *m);
    int32_t fires;
} mutations[] = {
    {"none", LIGHT, HB_SLOPE_ALIBI, 0, no_change, 0},
    {"none", SHORT, 0, 0, no_change, 0},
    {"none", SCAN, 0, 0, no_change, 0},
    {"key heads tiled", LIGHT, HB_SLOPE_PARAM, 0, other_head_map, 1},
    {"sigmoid gate", LIGHT, HB_SLOPE_PARAM, 0, other_gate, 1},
    {"sigmoid gate", SCAN, 0, 0, other_gate, 1},
    {"scale 1", LIGHT, HB_SLOPE_PARAM, 0, other_scale, 1},
    {"silu on q, k, v", LIGHT, HB_SLOPE_PARAM, 0, other_qkv, 1},
    {"factor of MiniMax", LIGHT, HB_SLOPE_ALIBI, 0, minimax_factor, 1},
    {"factor of Ling", LIGHT, HB_SLOPE_ALIBI, 0, ling_factor, 1},
    {"factor one layer off", LIGHT, HB_SLOPE_ALIBI, HB_FACTOR_LING, factor_one_layer_off, 1},
    {"slope of FLA", LIGHT, HB_SLOPE_ALIBI, 0, fla_slope, 1},
    {"slope of MiniMax", LIGHT, HB_SLOPE_FLA, 0, minimax_slope, 1},
    {"slope of the next layer", LIGHT, HB_SLOPE_FLA, 0, other_layer, 1},
    {"sign of the decay", LIGHT, HB_SLOPE_PARAM, 0, growth, 1},
    {"sign of the decay", SCAN, 0, 0, growth, 1},
    {"initial state lost", LIGHT, HB_SLOPE_TOKEN, 0, lost_state, 1},
    {"initial state lost", SCAN, 0, 0, lost_state, 1},
    {"history lost", SCAN, 0, 0, lost_history, 1},
    {"history lost", SHORT, 0, 0, lost_history, 1},
    {"bias of the step lost", SCAN, 0, 0, lost_bias, 1},
    {"bias of the step per head", SCAN, 0, 0, bias_per_head, 1},
    {"one decay per channel", SCAN, 0, 0, one_decay_per_channel, 1},
    {"skip lost", SCAN, 0, 0, lost_skip, 1},
    {"no softplus", SCAN, 0, 0, no_softplus, 1},
    {"bias of the convolution lost", SHORT, 0, 0, lost_conv_bias, 1},
    {"taps exchanged", SHORT, 0, 0, exchanged_taps, 1},
    {"B and C exchanged", SHORT, 0, 0, exchanged_inputs, 1},
};

/* Sizes in which every mutation matters: two groups of two heads, four layers, the second one. */
static void draw_right(struct mixer *m, const struct mutation *x, int32_t act) {
    do {
        draw_mixer(m, x->kind, CLASS_ORDINARY, act, 1);
    } while (m->config.n_groups != 2 || m->config.head_dim < 2 || m->config.state_size < 4 ||
             m->config.n_layers < 3 || m->layer < 1 || m->layer > m->config.n_layers - 2);
    m->config.slope_kind = x->slope;
    m->config.layer_factor = x->factor;
    hb_ref_linear_sizes(&m->config, x->kind, &m->size);
    draw_mixer_inputs(m);
    point_mixer(m, 1, 1);
}

static void variants_and_losses_are_outside(void **unused) {
    (void)unused;
    struct run *r = calloc(1, sizeof *r);
    struct mixer *right = calloc(1, sizeof *right);
    assert_non_null(r);
    assert_non_null(right);
    for (size_t k = 0; k < sizeof mutations / sizeof *mutations; k++) {
        const struct mutation *x = &mutations[k];
        for (int32_t form = 0; form < 4; form++) { /* fp32 and fp16, recurrence and chunks */
            struct tally out = {0};
            draw_right(right, x, form & 2 ? HB_FP16 : HB_FP32);
            copy_mixer(&r->m, right);
            declare(r, form & 1);
            x->apply(&r->m);
            r->sim.m = right;
            r->sim.direct = 0;
            start(r);
            assert_int_equal(mixer_call(&r->m, &r->prefill, HB_PATH_PREFILL, 0, 12, r->state,
                                        r->out, r->bound, r->mag),
                             0);
            mix_call(&r->sim, HB_PATH_PREFILL, 0, 12);
            for (int32_t i = 0; i < 12 * right->size.width[3]; i++) {
                judge(&out, (double)r->sim.out[i], r->out[i], r->bound[i], r->mag[i]);
            }
            hb_ref_state_free(r->state);
            if ((x->fires != 0) != (out.outside > 0)) {
                fail_msg("%s, %s, form %d: %ld of %ld outside", kind_names[x->kind], x->name, form,
                         (long)out.outside, (long)out.n);
            }
        }
    }
    free(right);
    free(r);
}

int main(int argc, char **argv) {
    model_seed =
        argc > 1 ? strtoull(argv[1], NULL, 10) : 1; /* another seed plays other histories */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_of_lightning_hold),
        cmocka_unit_test(bounds_of_mamba1_hold),
        cmocka_unit_test(bounds_of_short_conv_hold),
        cmocka_unit_test(planted_errors_are_outside),
        cmocka_unit_test(a_state_off_by_2_to_minus_12_is_seen),
        cmocka_unit_test(variants_and_losses_are_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
