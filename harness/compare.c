/* SPDX-License-Identifier: Apache-2.0
 * Comparison of two backends on one case, from what both runs captured. */
#include "harness/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/run_internal.h"

struct side {
    double value, bound;
};

static void part(struct hb_pair_result *result, const char *what, int32_t layer, int64_t pos,
                 int64_t element, int32_t dtype, struct side a, struct side b, double allowed) {
    if (result->differs) {
        return;
    }
    result->differs = 1;
    result->at.layer = layer;
    result->at.token = pos;
    result->at.element = element;
    result->at.want = a.value;
    result->at.got = b.value;
    result->at.bound = allowed;
    result->at.ulp = hb_ulp_distance(dtype, a.value, b.value);
    (void)snprintf(result->at.source, sizeof result->at.source, "B1 + B2");
    (void)snprintf(result->text, sizeof result->text,
                   "%s of layer %d position %lld element %lld: %.9g against %.9g, allowed %.3g, %llu ulp",
                   what, layer, (long long)pos, (long long)element, a.value, b.value, allowed,
                   (unsigned long long)result->at.ulp);
}

/* 1 if the element may stand. */
static int judge(struct hb_pair_result *result, struct side a, struct side b, int exact,
                 double *allowed) {
    result->elements++;
    int same = (isnan(a.value) && isnan(b.value)) || a.value == b.value;
    result->bit_equal += (uint64_t)same;
    *allowed = exact ? 0 : a.bound + b.bound;
    if (same || !isfinite(a.bound) || !isfinite(b.bound)) {
        return 1;
    }
    double d = fabs(a.value - b.value);
    if (!exact && *allowed > 0 && d / *allowed > result->max_ratio) {
        result->max_ratio = d / *allowed;
    }
    return !exact && d <= *allowed;
}

static void compare_outputs(const struct hb_case *c, const struct hb_config *cfg,
                            const struct hb_capture *a, const struct hb_capture *b,
                            struct hb_pair_result *result) {
    if (a->n != b->n) {
        struct side x = {(double)a->n, 0};
        struct side y = {(double)b->n, 0};
        part(result, "number of output tokens", -1, -1, -1, HB_FP32, x, y, 0);
        return;
    }
    for (size_t i = 0; i < a->n; i++) {
        const struct hb_captured *x = &a->item[i];
        const struct hb_captured *y = &b->item[i];
        int exact = c->config.value_class == HB_VALUES_EXACT &&
                    cfg->layer_kind[x->layer] != HB_LAYER_ATTENTION;
        for (int32_t j = 0; j < x->n; j++) {
            struct side s = {(double)x->got[j], x->bound[j]};
            struct side t = {(double)y->got[j], y->bound[j]};
            double allowed;
            if (!judge(result, s, t, exact, &allowed)) {
                part(result, "output", x->layer, x->pos, j, cfg->act_dtype, s, t, allowed);
            }
        }
    }
}

static void compare_states(const struct hb_case *c, const struct hb_config *cfg,
                           const struct hb_capture *a, const struct hb_capture *b,
                           struct hb_pair_result *result) {
    int exact = c->config.value_class == HB_VALUES_EXACT;
    for (int32_t k = 0; k < HB_MAX_NAMES; k++) {
        for (int32_t l = 0; l < HB_MAX_LAYERS; l++) {
            if (!a->slot[k].conv[l] || !b->slot[k].conv[l]) {
                continue;
            }
            double allowed;
            for (int32_t j = 0; j < a->n_conv; j++) {
                struct side s = {(double)a->slot[k].conv[l][j], 0};
                struct side t = {(double)b->slot[k].conv[l][j], 0};
                if (!judge(result, s, t, 1, &allowed)) {
                    part(result, "conv state", l, a->slot[k].pos, j, cfg->act_dtype, s, t, 0);
                }
            }
            for (int32_t j = 0; j < a->n_ssm; j++) {
                struct side s = {(double)a->slot[k].ssm[l][j], a->slot[k].bound[l][j]};
                struct side t = {(double)b->slot[k].ssm[l][j], b->slot[k].bound[l][j]};
                if (!judge(result, s, t, exact, &allowed)) {
                    part(result, "temporal state", l, a->slot[k].pos, j, cfg->state_dtype, s, t,
                         allowed);
                }
            }
        }
    }
}

int hb_compare_case(const struct hb_adapter *a, const struct hb_adapter *b, const struct hb_case *c,
                    const struct hb_run_options *o, struct hb_pair_result *result,
                    struct hb_run_stats *stats_a, struct hb_run_stats *stats_b) {
    struct hb_capture ca = {0};
    struct hb_capture cb = {0};
    memset(result, 0, sizeof *result);
    hb_verdict_clear(&result->a);
    hb_verdict_clear(&result->b);
    result->at.step = result->at.row = result->at.head = -1;
    struct hb_config cfg;
    hb_run_config(c, o, &cfg);
    int failed = hb_run_captured(a, c, o, &ca, &result->a, stats_a);
    failed |= hb_run_captured(b, c, o, &cb, &result->b, stats_b);
    result->same_verdict = result->a.kind == result->b.kind &&
                           strcmp(result->a.fingerprint, result->b.fingerprint) == 0;
    if (!failed && result->a.kind == HB_VERDICT_PASS && result->b.kind == HB_VERDICT_PASS) {
        compare_outputs(c, &cfg, &ca, &cb, result);
        compare_states(c, &cfg, &ca, &cb, result);
    }
    hb_capture_free(&ca);
    hb_capture_free(&cb);
    return failed ? -1 : 0;
}
