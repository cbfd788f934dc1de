/* SPDX-License-Identifier: Apache-2.0
 * Import of the golden cases: the plain float64 evaluation on what was imported gives the stored
 * outputs and states of other projects, for every case, without the oracle and without a backend;
 * and each part of an import that is changed no longer does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/golden_internal.h"

#define GOLDEN HB_SOURCE_DIR "/golden"

static cJSON *manifest;

static int setup(void **state) {
    (void)state;
    struct hb_error err = {.struct_size = sizeof err};
    return hb_golden_manifest(GOLDEN, &manifest, &err) != HB_OK;
}

static int teardown(void **state) {
    (void)state;
    cJSON_Delete(manifest);
    return 0;
}

static void import_entry(const cJSON *entry, int32_t row, struct hb_golden_problem *p) {
    struct hb_error err = {.struct_size = sizeof err};
    if (hb_golden_import(GOLDEN, entry, row, p, &err) != HB_OK) {
        fail_msg("%s", err.text);
    }
}

static const cJSON *entry_of(const char *name) {
    const cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(manifest, "cases")) {
        if (strcmp(cJSON_GetObjectItemCaseSensitive(entry, "name")->valuestring, name) == 0) {
            return entry;
        }
    }
    fail_msg("no case %s", name);
    return NULL;
}

static double most_of(const struct hb_st_tensor *t) {
    double most = 0.0;
    for (int64_t i = 0; i < t->n; i++) {
        most = fmax(most, fabs(hb_st_get(t, i)));
    }
    return most;
}

/* Largest errors, as a share of the largest stored value. */
struct errors {
    double y, ssm;
    int64_t states;
};

static void compare_output(const struct hb_golden_problem *p, int64_t token, const double *out,
                           double scale, struct errors *e) {
    for (int64_t j = 0; j < p->y_width; j++) {
        double v = p->w_out == NULL ? out[j] : 0.0;
        v += p->b_out != NULL ? p->b_out[j] : 0.0;
        for (int64_t i = 0; p->w_out != NULL && i < p->d_inner; i++) {
            v += p->w_out[j * p->d_inner + i] * out[i];
        }
        e->y = fmax(e->y, fabs(v - hb_st_get(p->y, token * p->y_width + j)) / scale);
    }
}

static void compare_state(const struct hb_golden_problem *p, int32_t seq, int32_t after,
                          const double *h, struct errors *e) {
    const int64_t n_p = p->config.head_dim;
    const int64_t n_n = p->config.state_size;
    const int64_t n_h = p->d_inner * n_n;
    for (int32_t i = 0; i < p->n_states; i++) {
        const struct hb_golden_state *s = &p->state[i];
        if (s->seq != seq || s->after != after || s->ssm == NULL) {
            continue;
        }
        const double scale = most_of(s->ssm);
        for (int64_t k = 0; k < n_h; k++) {
            const int64_t head = k / (n_p * n_n);
            const int64_t turned = (head * n_n + k % n_n) * n_p + k / n_n % n_p;
            const double stored = hb_st_get(s->ssm, s->ssm_row * n_h + (p->state_is_kv ? turned : k));
            e->ssm = fmax(e->ssm, fabs(h[k] - stored) / scale);
        }
        e->states++;
    }
}

/* The stored segments, token by token. */
static struct errors evaluate(const struct hb_golden_problem *p) {
    struct errors e = {0};
    const int64_t n_h = (int64_t)p->d_inner * p->config.state_size;
    const double scale = most_of(p->y);
    double *h = calloc((size_t)n_h, sizeof *h);
    double *out = calloc((size_t)(p->d_inner + p->dim), sizeof *out);
    assert_true(h != NULL && out != NULL);
    for (int32_t s = 0; s < p->n_seq; s++) {
        int32_t t = 0;
        for (int64_t i = 0; i < n_h; i++) {
            h[i] = p->init_ssm != NULL ? (double)p->init_ssm[s * n_h + i] : 0.0;
        }
        for (int32_t k = p->seg_first[s]; k < p->seg_first[s + 1]; k++) {
            const int32_t is_decode = k > p->seg_first[s] && p->seg_len[k] == 1;
            for (const int32_t end = t + p->seg_len[k]; t < end; t++) {
                hb_golden_ref_token(p, s, t, is_decode ? HB_PATH_DECODE : HB_PATH_PREFILL, h,
                                    out + p->d_inner, out);
                compare_output(p, p->first[s] + t, out, scale, &e);
            }
            compare_state(p, s, t, h, &e);
        }
    }
    free(h);
    free(out);
    return e;
}

static void every_case_gives_the_stored_values(void **state) {
    (void)state;
    const cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(manifest, "cases")) {
        for (int32_t row = 0; row < hb_golden_problem_count(entry); row++) {
            struct hb_golden_problem p;
            import_entry(entry, row, &p);
            const struct errors e = evaluate(&p);
            if (!(e.y <= 0x1p-40) || !(e.ssm <= 0x1p-40)) {
                print_error("%s: y %g, state %g\n", p.name, e.y, e.ssm);
                fail();
            }
            const int has_states = p.n_states > 0 && p.state[0].ssm != NULL;
            assert_int_equal(e.states, has_states ? p.n_states : 0);
            hb_golden_problem_free(&p);
        }
    }
}

/* ---- a wrong part of an import is noticed ---- */

static void other_map(struct hb_golden_problem *p) {
    p->config.head_map = HB_HEADS_TILE;
}
static void state_turned(struct hb_golden_problem *p) {
    p->state_is_kv = 0;
}
static void other_norm(struct hb_golden_problem *p) {
    p->config.l2norm = p->config.l2norm == HB_L2_OFF ? HB_L2_ADD_EPS : HB_L2_OFF;
}
static void norm_with_maximum(struct hb_golden_problem *p) {
    p->config.l2norm = HB_L2_MAX_EPS;
}
static void beta_doubled(struct hb_golden_problem *p) {
    p->config.beta_form = HB_BETA_DOUBLE;
}
static void other_gate(struct hb_golden_problem *p) {
    p->config.out_gate = 1 - p->config.out_gate;
}
static void gate_first(struct hb_golden_problem *p) {
    p->config.gate_norm = HB_GATE_NORM_AFTER;
}
static void other_scale(struct hb_golden_problem *p) {
    p->scale = p->scale == 1.0 ? 0.25 : 1.0;
}
static void lower_bound(struct hb_golden_problem *p) {
    p->config.gate_form = HB_GATE_LOWER_BOUND;
    p->config.gate_bound = -5.0F;
}
static void softplus_turned(struct hb_golden_problem *p) {
    p->config.dt_softplus = 1 - p->config.dt_softplus;
}
static void no_bias(struct hb_golden_problem *p) {
    p->params.dt_bias = NULL;
}
static void no_initial_state(struct hb_golden_problem *p) {
    p->init_ssm = NULL;
}
static void alibi_slopes(struct hb_golden_problem *p) {
    p->config.slope_kind = HB_SLOPE_ALIBI;
}
static void no_factor(struct hb_golden_problem *p) {
    p->config.layer_factor = HB_FACTOR_NONE;
}
static void next_layer(struct hb_golden_problem *p) {
    p->layer++;
}
static void no_activation(struct hb_golden_problem *p) {
    p->config.qkv_act = HB_QKV_NONE;
    p->config.conv_act = HB_CONV_NONE;
}
/* a and b of the gates in each other's place. */
static void gates_swapped(struct hb_golden_problem *p) {
    const int32_t n = p->config.n_heads;
    for (int64_t i = 0; i < (int64_t)p->n_tokens * n; i++) {
        double *a = p->dt + i / n * p->gates + i % n;
        const double b = a[n];
        a[n] = a[0];
        a[0] = b;
    }
}
/* Rows of the projection read as if they were not grouped by key head: the first k for the second q. */
static void flat_order(struct hb_golden_problem *p) {
    const int32_t n = p->config.state_size;
    for (int64_t t = 0; t < p->n_tokens; t++) {
        for (int32_t i = 0; i < n; i++) {
            double *q1 = p->xbc + t * p->dim + n + i;
            const double k0 = q1[n];
            q1[n] = q1[0];
            q1[0] = k0;
        }
    }
}

static void a_wrong_part_of_an_import_is_noticed(void **state) {
    (void)state;
    static const struct {
        const char *name;
        void (*change)(struct hb_golden_problem *p);
    } wrong[] = {
        {"gdn_core_gva_varlen", other_map},
        {"gdn_core_gva_varlen", state_turned},
        {"gdn_core_gva_varlen", other_norm},
        {"gdn_core_gva_varlen", norm_with_maximum},
        {"gdn_core_gva_varlen", beta_doubled},
        {"gdn_core_gva_varlen", other_scale},
        {"gdn_core_gva_varlen", no_initial_state},
        {"gdn_core_gva_varlen", softplus_turned},
        {"gdn_core_128", other_norm},
        {"kda_core_varlen", lower_bound},
        {"kda_core_varlen", other_norm},
        {"kda_core_varlen", beta_doubled},
        {"kda_core_varlen", no_initial_state},
        {"simple_gla_core_varlen", other_scale},
        {"simple_gla_core_varlen", no_initial_state},
        {"simple_gla_core_varlen", alibi_slopes},
        {"lightning_core_varlen", next_layer},
        {"lightning_core_varlen", alibi_slopes},
        {"gdn_qwen3next_segments", other_map},
        {"gdn_qwen3next_segments", gates_swapped},
        {"gdn_qwen3next_segments", flat_order},
        {"gdn_qwen3next_segments", other_gate},
        {"gdn_qwen3next_segments", gate_first},
        {"gdn_qwen3next_segments", no_bias},
        {"gdn_qwen3next_segments", softplus_turned},
        {"gdn_qwen3next_segments", no_activation},
        {"gdn_qwen3next_segments", beta_doubled},
        {"gdn_qwen3next_segments", state_turned},
        {"kda_kimi_segments", other_gate},
        {"kda_kimi_segments", gate_first},
        {"kda_kimi_segments", lower_bound},
        {"kda_kimi_segments", no_bias},
        {"kda_kimi_segments", other_norm},
        {"kda_kimi_segments", other_scale},
        {"lightning_minimax_segments", other_gate},
        {"lightning_minimax_segments", gate_first},
        {"lightning_minimax_segments", other_scale},
        {"lightning_minimax_segments", next_layer},
        {"lightning_minimax_segments", no_factor},
        {"lightning_minimax_segments", no_activation},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct hb_golden_problem p;
        import_entry(entry_of(wrong[i].name), 0, &p);
        wrong[i].change(&p);
        const struct errors e = evaluate(&p);
        if (e.y <= 0x1p-40 && e.ssm <= 0x1p-40) {
            fail_msg("change %zu of %s is not noticed: y %g, state %g", i, wrong[i].name, e.y,
                     e.ssm);
        }
        hb_golden_problem_free(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_gives_the_stored_values),
        cmocka_unit_test(a_wrong_part_of_an_import_is_noticed),
    };
    return cmocka_run_group_tests_name("golden_ref", tests, setup, teardown);
}
