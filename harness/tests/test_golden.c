/* SPDX-License-Identifier: Apache-2.0
 * Golden check: every built case passes on the oracle and on the emulated backend; every doctored
 * element, wrong variant and failing call is found and named; schedules cover what they promise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/batch.h"
#include "backend/defects.h"
#include "harness/golden.h"
#include "harness/golden_internal.h"
#include "harness/golden_judge.h"
#include "harness/rng.h"
#include "harness/run.h"

#define GOLDEN HB_SOURCE_DIR "/golden"

enum { MUST_PASS = 23, DOCTORED = 100 };

static cJSON *manifest;
static struct hb_caps oracle_caps;

static int setup(void **state) {
    (void)state;
    struct hb_error err = {.struct_size = sizeof err};
    oracle_caps.struct_size = sizeof oracle_caps;
    return hb_golden_manifest(GOLDEN, &manifest, &err) != HB_OK ||
           hb_adapter_oracle()->describe(hb_adapter_oracle()->ctx, &oracle_caps, &err) != HB_OK;
}

static int teardown(void **state) {
    (void)state;
    cJSON_Delete(manifest);
    return 0;
}

static void import(const char *name, int32_t row, struct hb_golden_problem *p) {
    struct hb_error err = {.struct_size = sizeof err};
    const cJSON *entry = NULL;
    memset(p, 0, sizeof *p);
    cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(manifest, "cases")) {
        if (strcmp(cJSON_GetObjectItemCaseSensitive(entry, "name")->valuestring, name) == 0) {
            if (hb_golden_import(GOLDEN, entry, row, p, &err) != HB_OK) {
                fail_msg("%s", err.text);
            }
            return;
        }
    }
    fail_msg("no case %s", name);
}

static struct hb_golden_case_result run_on(const struct hb_adapter *backend,
                                           const struct hb_golden_problem *p, int32_t kind,
                                           const struct hb_golden_options *o, int32_t act_dtype) {
    struct hb_golden_case_result result = {.form = HB_FORM_V0, .act_dtype = act_dtype};
    struct hb_error err = {.struct_size = sizeof err};
    struct hb_golden_schedule s;
    assert_int_equal(hb_golden_schedule_make(p, kind, o->seed, &s, &err), HB_OK);
    assert_int_equal(hb_golden_run(backend, &oracle_caps, p, &s, o, kind, &result, &err), HB_OK);
    hb_golden_schedule_free(&s);
    return result;
}

static struct hb_golden_case_result run_plain(const struct hb_golden_problem *p, int32_t kind) {
    struct hb_golden_options o;
    hb_golden_options_init(&o, GOLDEN);
    return run_on(hb_adapter_oracle(), p, kind, &o, HB_FP32);
}

/* ---- the check on the shipped cases ---- */

struct tally {
    int32_t runs, failed, skipped, whole, segments, random, forms[HB_N_FORMS],
        dtypes[HB_N_FLOAT_DTYPES];
    int64_t compared[HB_N_GOLDEN_TENSORS];
    char text[512];
};

static void see(void *ctx, const struct hb_golden_case_result *r) {
    struct tally *t = ctx;
    if (r->skipped) {
        t->skipped++;
        (void)snprintf(t->text, sizeof t->text, "%s: %s", r->name, r->reason);
        return;
    }
    t->runs++;
    if (!r->passed) {
        t->failed++;
        (void)snprintf(t->text, sizeof t->text, "%s %s: %s", r->name, r->schedule, r->reason);
    }
    t->whole += strcmp(r->schedule, "whole") == 0;
    t->segments += strcmp(r->schedule, "segments") == 0;
    t->random += strcmp(r->schedule, "random") == 0;
    if (r->form >= 0) {
        t->forms[r->form]++;
        t->dtypes[r->act_dtype]++;
    }
    for (int i = 0; i < HB_N_GOLDEN_TENSORS; i++) {
        t->compared[i] += r->compared[i];
    }
}

static void check_all(const struct hb_adapter *backend) {
    struct hb_golden_options o;
    struct hb_error err = {.struct_size = sizeof err};
    struct tally t = {0};
    int32_t passed = -1;
    int32_t failed = -1;
    int32_t skipped = -1;
    hb_golden_options_init(&o, GOLDEN);
    assert_int_equal(hb_golden_check(backend, &o, see, &t, &passed, &failed, &skipped, &err),
                     HB_OK);
    if (failed != 0) {
        fail_msg("%s", t.text);
    }
    assert_int_equal(passed, MUST_PASS);
    assert_int_equal(skipped, 0);
    assert_int_equal(t.skipped, 0);
    /* 13 layers in one type, 9 core cases and 3 norms in three; 2 forms; 5 schedules */
    assert_int_equal(t.runs, (13 + 12 * 3) * 2 * 5);
    assert_int_equal(t.whole, (13 + 12 * 3) * 2);
    assert_int_equal(t.segments, t.whole);
    assert_int_equal(t.random, 3 * t.whole);
    assert_int_equal(t.forms[HB_FORM_V0], t.forms[HB_FORM_FAST]);
    assert_int_equal(t.dtypes[HB_BF16], 12 * 2 * 5);
    assert_int_equal(t.dtypes[HB_FP16], t.dtypes[HB_BF16]);
    for (int i = 0; i < HB_N_GOLDEN_TENSORS; i++) {
        assert_true(t.compared[i] > 100000);
    }
}

static void oracle_passes_every_built_case(void **state) {
    (void)state;
    check_all(hb_adapter_oracle());
}

static void emulated_backend_passes_every_built_case(void **state) {
    (void)state;
    check_all(hb_adapter_emu());
}

/* Every stored element of a case is met when its stored segments are run. */
static void segments_compare_every_stored_element(void **state) {
    (void)state;
    static const char *const names[] = {"mamba2_mixed_prefill_decode", "mamba2_dt_limit",
                                        "falcon_h1_norm_after_gate",   "gdn_qwen3next_segments",
                                        "kda_kimi_segments",           "lightning_minimax_segments",
                                        "gdn_core_gva_varlen"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct hb_golden_problem p;
        import(names[i], 0, &p);
        const struct hb_golden_case_result r = run_plain(&p, HB_GOLDEN_SEGMENTS);
        const int32_t w = p.config.conv_width - 1;
        assert_true(r.passed);
        assert_int_equal(r.compared[HB_GOLDEN_Y], p.y->n);
        assert_int_equal(r.compared[HB_GOLDEN_SSM], p.state[0].ssm->n);
        const int64_t conv = p.state[0].conv != NULL ? p.state[0].conv->n / (w + 1) * w : 0;
        assert_int_equal(r.compared[HB_GOLDEN_CONV], conv);
        hb_golden_problem_free(&p);
    }
}

/* ---- doctored elements ---- */

/* What the report must say of element `index`: its beginning, and the place. */
struct expected {
    char head[32], place[96];
};

static struct expected expect_place(const struct hb_golden_problem *p, int32_t tensor,
                                    int32_t check, int64_t index) {
    static const char *const tensors[HB_N_GOLDEN_TENSORS] = {"y", "ssm_state", "conv_state"};
    static const char checks[HB_N_GOLDEN_CHECKS] = {'a', 'b', 'c'};
    struct expected e;
    const int64_t width = check == HB_GOLDEN_B ? p->d_inner : p->y_width;
    const int64_t n_state = tensor == HB_GOLDEN_SSM ? (int64_t)p->d_inner * p->config.state_size
                                                    : (int64_t)p->conv_channels * p->conv_columns;
    int32_t seq = 0;
    int32_t token = 0;
    int64_t channel = index % width;
    if (tensor == HB_GOLDEN_Y) {
        while (seq + 1 < p->n_seq && index / width >= p->first[seq + 1]) {
            seq++;
        }
        token = (int32_t)(index / width) - p->first[seq];
    } else {
        const struct hb_golden_state *s =
            &p->state[index / n_state]; /* row i of these cases is states[i] */
        seq = s->seq;
        token = s->after;
        channel = tensor == HB_GOLDEN_SSM ? index % n_state : index % n_state / p->conv_columns;
    }
    (void)snprintf(e.head, sizeof e.head, "%s, (%c) ", tensors[tensor], checks[check]);
    (void)snprintf(e.place, sizeof e.place, ": sequence %d, token %d, channel %lld: got ", seq,
                   token, (long long)channel);
    return e;
}

static int is_named(const char *reason, const struct expected *e) {
    return strncmp(reason, e->head, strlen(e->head)) == 0 && strstr(reason, e->place) != NULL &&
           strstr(reason, ", want ") != NULL && strstr(reason, ", bound ") != NULL;
}

static int64_t pick(const struct hb_golden_problem *p, int32_t tensor, int32_t check,
                    struct hb_rng *rng) {
    int64_t n = check == HB_GOLDEN_B ? (int64_t)p->n_tokens * p->d_inner : p->y->n;
    n = tensor == HB_GOLDEN_SSM ? p->state[0].ssm->n : n;
    n = tensor == HB_GOLDEN_CONV ? p->state[0].conv->n : n;
    int64_t index = hb_rng_below(rng, (int32_t)n);
    if (tensor == HB_GOLDEN_CONV && check != HB_GOLDEN_A && index % p->conv_columns == 0) {
        index++; /* the oldest stored column is not kept by backends: (a) alone looks at it */
    }
    return index;
}

static int32_t count_found(double bounds, int32_t check, int32_t n_tensors) {
    enum { N = 6 };
    static const char *const names[N] = {"mamba2_segments_g2",    "mamba2_mixed_prefill_decode",
                                         "nemotron_h_group_norm", "gdn_qwen3next_segments",
                                         "kda_kimi_segments",     "lightning_minimax_segments"};
    struct hb_rng rng = hb_rng_make(7, (uint64_t)check);
    struct hb_golden_problem p[N];
    int32_t found = 0;
    for (int i = 0; i < N; i++) {
        import(names[i], 0, &p[i]);
    }
    for (int32_t i = 0; i < DOCTORED; i++) {
        const int has_conv = i % n_tensors == HB_GOLDEN_CONV;
        const struct hb_golden_problem *one = &p[hb_rng_below(&rng, has_conv ? N - 1 : N)];
        struct hb_golden_options o;
        hb_golden_options_init(&o, GOLDEN);
        o.tamper_tensor = i % n_tensors;
        o.tamper_check = check;
        o.tamper_index = pick(one, o.tamper_tensor, check, &rng);
        o.tamper_bounds = hb_rng_one_in(&rng, 2) ? bounds : -bounds;
        const struct hb_golden_case_result r =
            run_on(hb_adapter_oracle(), one, HB_GOLDEN_SEGMENTS, &o, HB_FP32);
        const struct expected e = expect_place(one, o.tamper_tensor, check, o.tamper_index);
        if (!r.passed && !is_named(r.reason, &e)) {
            print_error("wanted '%s..%s', found '%s'\n", e.head, e.place, r.reason);
        }
        found += !r.passed && is_named(r.reason, &e);
    }
    for (int i = 0; i < N; i++) {
        hb_golden_problem_free(&p[i]);
    }
    return found;
}

static void stored_elements_doctored_by_3_bounds_are_found_by_the_reference(void **state) {
    (void)state;
    assert_int_equal(count_found(3.0, HB_GOLDEN_A, HB_N_GOLDEN_TENSORS), DOCTORED);
}

static void backend_elements_doctored_by_3_bounds_are_found_against_the_oracle(void **state) {
    (void)state;
    assert_int_equal(count_found(3.0, HB_GOLDEN_B, HB_N_GOLDEN_TENSORS), DOCTORED);
}

static void stored_elements_doctored_by_3_bounds_are_found_against_the_backend(void **state) {
    (void)state;
    assert_int_equal(count_found(3.0, HB_GOLDEN_C, HB_N_GOLDEN_TENSORS), DOCTORED);
}

/* Less than the bound is left to rounding: the check says nothing. (Zeros of a conv state have no
 * such room.) */
static void elements_moved_inside_the_bound_pass(void **state) {
    (void)state;
    assert_int_equal(count_found(0.5, HB_GOLDEN_A, HB_GOLDEN_CONV), 0);
}

/* The same through the public entry, which names the case and counts it. */
static void a_doctored_case_counts_as_failed(void **state) {
    (void)state;
    struct hb_golden_options o;
    struct tally t = {0};
    int32_t count[3] = {-1, -1, -1};
    hb_golden_options_init(&o, GOLDEN);
    o.n_random = 0;
    o.filter = "mamba2_s"; /* two cases; the second is too short for the index */
    o.tamper_tensor = HB_GOLDEN_SSM;
    o.tamper_check = HB_GOLDEN_C;
    o.tamper_index = 4000; /* row 3 of mamba2_segments_g2 */
    o.tamper_bounds = 3.0;
    assert_int_equal(
        hb_golden_check(hb_adapter_oracle(), &o, see, &t, &count[0], &count[1], &count[2], NULL),
        HB_OK);
    assert_int_equal(count[0], 1);
    assert_int_equal(count[1], 1);
    assert_int_equal(count[2], 0);
    assert_int_equal(t.failed, HB_N_FORMS); /* whole requests do not meet that state */
    assert_non_null(strstr(t.text, "mamba2_segments_g2 segments: ssm_state, (c)"));
}

static void nan_is_never_inside_a_bound(void **state) {
    (void)state;
    struct hb_golden_options o;
    struct hb_golden_case_result r;
    const struct hb_golden_place at = {HB_GOLDEN_Y, HB_GOLDEN_B, 1, 2, 3, 4};
    memset(&r, 0, sizeof r);
    hb_golden_options_init(&o, GOLDEN);
    struct hb_golden_judge j = {&o, &r, HB_FP32, 0};
    hb_golden_judge_element(&j, &at, 1.0, 1.0, 0.0); /* exact passes a bound of 0 */
    assert_false(j.failed);
    hb_golden_judge_element(&j, &at, (double)NAN, 1.0, (double)INFINITY);
    assert_true(j.failed);
    assert_true(isinf(r.share[HB_GOLDEN_Y][HB_GOLDEN_B]));
}

static void units_in_the_last_place(void **state) {
    (void)state;
    assert_true(hb_golden_ulp(HB_FP32, 1.0) == 0x1p-23);
    assert_true(hb_golden_ulp(HB_FP32, -1.999) == 0x1p-23);
    assert_true(hb_golden_ulp(HB_FP32, 2.0) == 0x1p-22);
    assert_true(hb_golden_ulp(HB_FP32, 0.0) == 0x1p-149);
    assert_true(hb_golden_ulp(HB_FP32, 0x1p-130) == 0x1p-149);
    assert_true(hb_golden_ulp(HB_BF16, 1.0) == 0x1p-7);
    assert_true(hb_golden_ulp(HB_FP16, 1.0) == 0x1p-10);
    assert_true(hb_golden_ulp(HB_FP16, 0x1p-20) == 0x1p-24);
}

/* ---- wrong variants ---- */

static void half_norm_groups(struct hb_golden_problem *p) {
    p->config.norm_group /= 2;
}
static void other_gate_order(struct hb_golden_problem *p) {
    p->config.gate_norm =
        p->config.gate_norm == HB_GATE_NORM_AFTER ? HB_GATE_NORM_BEFORE : HB_GATE_NORM_AFTER;
}
static void no_norm(struct hb_golden_problem *p) {
    p->config.gate_norm = HB_GATE_ONLY;
}
static void no_clamp(struct hb_golden_problem *p) {
    p->config.dt_clamp_prefill = HB_DT_CLAMP_NONE;
}
static void clamp_in_decode(struct hb_golden_problem *p) {
    p->config.dt_clamp_decode = HB_DT_CLAMP_LIMIT;
}
static void minimum_only(struct hb_golden_problem *p) {
    p->config.dt_clamp_prefill = HB_DT_CLAMP_MIN_ONLY;
}
static void no_activation(struct hb_golden_problem *p) {
    p->config.conv_act = HB_CONV_NONE;
}
static void no_softplus(struct hb_golden_problem *p) {
    p->config.dt_softplus = 0;
}
static void no_skip(struct hb_golden_problem *p) {
    p->params.d = NULL;
}
static void no_dt_bias(struct hb_golden_problem *p) {
    p->params.dt_bias = NULL;
}
static void no_conv_bias(struct hb_golden_problem *p) {
    p->params.conv_bias = NULL;
}
static void other_epsilon(struct hb_golden_problem *p) {
    p->eps = 1e-6;
    p->config.norm_eps = 1e-6F;
}
static void one_group(struct hb_golden_problem *p) {
    /* B and C of the first group for all heads: the same widths with half the groups and twice the
     * state would change the shapes, so the inputs of the other groups are overwritten */
    for (int64_t t = 0; t < p->n_tokens; t++) {
        double *bc = p->xbc + t * p->dim + p->d_inner;
        memcpy(bc + p->config.state_size, bc, (size_t)p->config.state_size * sizeof *bc);
    }
}
static void no_initial_state(struct hb_golden_problem *p) {
    p->init_conv = NULL;
    p->init_ssm = NULL;
    p->base = 0;
}

/* Each variant is told from its neighbours by the stored values: a wrong one is found by (a). */
static void a_wrong_variant_is_found(void **state) {
    (void)state;
    static const struct {
        const char *name;
        void (*change)(struct hb_golden_problem *p);
        int32_t kind;
    } wrong[] = {
        {"nemotron_h_group_norm", half_norm_groups, HB_GOLDEN_WHOLE},
        {"mamba2_segments_g2", half_norm_groups, HB_GOLDEN_WHOLE},
        {"falcon_h1_norm_before_gate", other_gate_order, HB_GOLDEN_WHOLE},
        {"falcon_h1_norm_after_gate", other_gate_order, HB_GOLDEN_WHOLE},
        {"bamba_large_dt", no_norm, HB_GOLDEN_WHOLE},
        {"mamba2_dt_limit", no_clamp, HB_GOLDEN_WHOLE},
        {"mamba2_dt_limit", minimum_only, HB_GOLDEN_SEGMENTS},
        {"mamba2_dt_limit", clamp_in_decode, HB_GOLDEN_SEGMENTS},
        {"conv_w4_silu", no_activation, HB_GOLDEN_SEGMENTS},
        {"conv_w4_silu", no_conv_bias, HB_GOLDEN_SEGMENTS},
        {"conv_w3_nobias_noact", no_initial_state, HB_GOLDEN_WHOLE},
        {"ssd_varlen_short", no_initial_state, HB_GOLDEN_WHOLE},
        {"ssd_varlen_short", no_softplus, HB_GOLDEN_WHOLE},
        {"ssd_varlen_short", no_skip, HB_GOLDEN_WHOLE},
        {"ssd_g2_D_bias_T128", no_dt_bias, HB_GOLDEN_WHOLE},
        {"ssd_g2_D_bias_T128", one_group, HB_GOLDEN_WHOLE},
        {"mamba2_single_g1", no_skip, HB_GOLDEN_WHOLE},
        {"mamba2_single_g1", other_epsilon, HB_GOLDEN_WHOLE},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct hb_golden_problem p;
        import(wrong[i].name, 0, &p);
        assert_true(run_plain(&p, wrong[i].kind).passed);
        wrong[i].change(&p);
        const struct hb_golden_case_result r = run_plain(&p, wrong[i].kind);
        if (r.passed || strstr(r.reason, "(a)") == NULL) {
            fail_msg("change %zu of %s: passed %d, '%s'", i, wrong[i].name, r.passed, r.reason);
        }
        hb_golden_problem_free(&p);
    }
}

/* Where the cut changes the result, each stored output belongs to its own schedule, and random cuts
 * to none. */
static void stored_outputs_of_a_cut_dependent_case_are_kept_apart(void **state) {
    (void)state;
    struct hb_golden_problem p;
    import("mamba2_dt_limit", 0, &p);
    assert_non_null(p.y_whole);
    assert_int_equal(run_plain(&p, HB_GOLDEN_WHOLE).compared[HB_GOLDEN_Y], p.y->n);
    assert_int_equal(run_plain(&p, HB_GOLDEN_RANDOM).compared[HB_GOLDEN_Y], 0);
    p.y_whole = p.y;
    assert_false(run_plain(&p, HB_GOLDEN_WHOLE).passed);
    hb_golden_problem_free(&p);
}

#ifdef HB_DEFECTS
/* Planted defects that change values are found by one golden case alone, which passes without. */
static void planted_defects_are_found(void **state) {
    (void)state;
    static const struct {
        int32_t defect;
        const char *name;
    } rows[] = {
        {HB_DEFECT_INIT_STATE_MASK, "mamba2_varlen_chunk64"},
        {HB_DEFECT_CHUNK_OFF_BY_ONE, "mamba2_varlen_chunk64"},
        {HB_DEFECT_CONV_SHORT_PROMPT, "mamba2_varlen_chunk64"},
        {HB_DEFECT_TRACK_POSITION, "mamba2_varlen_chunk64"},
        {HB_DEFECT_GROUP_MODULO, "mamba2_segments_g2"},
        {HB_DEFECT_MISSING_BARRIER, "mamba2_varlen_chunk64"},
        {HB_DEFECT_UNINIT_SHARED, "mamba2_varlen_chunk64"},
        {HB_DEFECT_NEIGHBOUR_SLOT, "mamba2_varlen_chunk64"},
    };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
        struct hb_golden_options o;
        struct tally t = {0};
        int32_t count[3] = {-1, -1, -1};
        hb_golden_options_init(&o, GOLDEN);
        o.filter = rows[i / 2].name;
        o.n_random = 1;
        o.defect = i % 2 ? rows[i / 2].defect : 0;
        assert_int_equal(
            hb_golden_check(hb_adapter_emu(), &o, see, &t, &count[0], &count[1], &count[2], NULL),
            HB_OK);
        if (count[1] != (int32_t)(i % 2)) {
            fail_msg("defect %d: %d cases fail", o.defect, count[1]);
        }
    }
}
#endif

/* What a backend must declare for each case of the other kinds; one of Mamba2 for comparison. */
static void a_case_says_which_variants_it_needs(void **state) {
    (void)state;
    static const struct {
        const char *name, *needs;
    } rows[] = {
        {"mamba2_dt_limit", "mamba2 conv_act=silu gate_norm=after out_gate=silu dt_softplus=yes "
                            "dt_clamp_prefill=limit dt_clamp_decode=none"},
        {"gdn_core_gva_varlen", "gdn conv_act=none gate_norm=none dt_softplus=no "
                                "head_map=interleave l2norm=add_eps beta_form=raw qk_scale=0.25"},
        {"gdn_core_128",
         "gdn conv_act=none gate_norm=none dt_softplus=no l2norm=off beta_form=raw qk_scale=0"},
        {"gdn_qwen3next_segments",
         "gdn conv_act=silu gate_norm=before out_gate=silu dt_softplus=yes head_map=interleave "
         "l2norm=add_eps beta_form=sigmoid gate_form=standard qk_scale=0.25"},
        {"kda_core_varlen", "kda conv_act=none gate_norm=none dt_softplus=no l2norm=add_eps "
                            "beta_form=raw qk_scale=0.25"},
        {"kda_kimi_segments",
         "kda conv_act=silu gate_norm=before out_gate=sigmoid dt_softplus=yes l2norm=add_eps "
         "beta_form=sigmoid gate_form=standard qk_scale=0.25"},
        {"simple_gla_core_varlen",
         "lightning gate_norm=none slope_kind=token qkv_act=none qk_scale=0.25"},
        {"lightning_core_varlen",
         "lightning gate_norm=none slope_kind=fla qkv_act=none qk_scale=0.25"},
        {"lightning_minimax_segments",
         "lightning gate_norm=before out_gate=sigmoid slope_kind=minimax layer_factor=minimax "
         "qkv_act=silu qk_scale=1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hb_golden_problem p;
        char text[256];
        import(rows[i].name, 0, &p);
        hb_golden_needs(&p, text, sizeof text);
        assert_string_equal(text, rows[i].needs);
        hb_golden_needs(&p, text, 8); /* cut to what fits */
        assert_int_equal(strlen(text), 7 < strlen(rows[i].needs) ? 7 : strlen(rows[i].needs));
        hb_golden_problem_free(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
#ifdef HB_DEFECTS
        cmocka_unit_test(planted_defects_are_found),
#endif
        cmocka_unit_test(oracle_passes_every_built_case),
        cmocka_unit_test(emulated_backend_passes_every_built_case),
        cmocka_unit_test(segments_compare_every_stored_element),
        cmocka_unit_test(stored_elements_doctored_by_3_bounds_are_found_by_the_reference),
        cmocka_unit_test(backend_elements_doctored_by_3_bounds_are_found_against_the_oracle),
        cmocka_unit_test(stored_elements_doctored_by_3_bounds_are_found_against_the_backend),
        cmocka_unit_test(elements_moved_inside_the_bound_pass),
        cmocka_unit_test(a_doctored_case_counts_as_failed),
        cmocka_unit_test(nan_is_never_inside_a_bound),
        cmocka_unit_test(units_in_the_last_place),
        cmocka_unit_test(a_wrong_variant_is_found),
        cmocka_unit_test(a_case_says_which_variants_it_needs),
        cmocka_unit_test(stored_outputs_of_a_cut_dependent_case_are_kept_apart),
    };
    return cmocka_run_group_tests_name("golden", tests, setup, teardown);
}
