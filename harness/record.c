/* SPDX-License-Identifier: Apache-2.0
 * Records as JSON text. Numbers that may not survive a double (seeds) are strings. */
#include "harness/record.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "harness/coverage.h"

static const char *pick(const char *const *names, int32_t n, int32_t i) {
    return i >= 0 && i < n ? names[i] : "unknown";
}

const char *hb_op_name(int32_t op) {
    static const char *const names[HB_N_OPS] = {
        [HB_OP_MAMBA2_OUT] = "mamba2.out",         [HB_OP_MAMBA2_STATE] = "mamba2.state",
        [HB_OP_ATTENTION] = "attention",           [HB_OP_GDN_OUT] = "gdn.out",
        [HB_OP_GDN_STATE] = "gdn.state",           [HB_OP_KDA_OUT] = "kda.out",
        [HB_OP_KDA_STATE] = "kda.state",           [HB_OP_LIGHTNING_OUT] = "lightning.out",
        [HB_OP_LIGHTNING_STATE] = "lightning.state", [HB_OP_SHORT_CONV_OUT] = "short_conv.out",
        [HB_OP_MAMBA1_OUT] = "mamba1.out",         [HB_OP_MAMBA1_STATE] = "mamba1.state"};
    return pick(names, HB_N_OPS, op);
}

const char *hb_dtype_name(int32_t dtype) {
    static const char *const names[HB_N_FLOAT_DTYPES] = {"fp32", "bf16", "fp16"};
    return pick(names, HB_N_FLOAT_DTYPES, dtype);
}

const char *hb_form_name(int32_t form) {
    static const char *const names[HB_N_FORMS] = {"v0", "fast"};
    return pick(names, HB_N_FORMS, form);
}

const char *hb_phase_name(int32_t phase) {
    static const char *const names[] = {"backend", "oracle", "values", "compare", "other"};
    return pick(names, (int32_t)(sizeof names / sizeof names[0]), phase);
}

static void add_u64(cJSON *o, const char *name, uint64_t v) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, v);
    cJSON_AddStringToObject(o, name, text);
}

/* JSON has no infinities: such values are strings. */
static void add_double(cJSON *o, const char *name, double v) {
    if (isfinite(v)) {
        cJSON_AddNumberToObject(o, name, v);
    } else {
        cJSON_AddStringToObject(o, name, isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
    }
}

static double whole(double v) {
    return nearbyint(v);
}

static void add_context(cJSON *o, const struct hb_record_context *ctx, const char *kind) {
    cJSON_AddNumberToObject(o, "schema", HB_RECORD_SCHEMA);
    cJSON_AddStringToObject(o, "record", kind);
    cJSON_AddStringToObject(o, "verb", ctx->verb);
    cJSON_AddStringToObject(o, "version", ctx->build->version);
    cJSON_AddStringToObject(o, "commit", ctx->build->commit);
    cJSON_AddStringToObject(o, "compiler", ctx->build->compiler);
    cJSON_AddStringToObject(o, "build", ctx->build->type);
    cJSON_AddStringToObject(o, "sanitizers", ctx->build->sanitizers);
    cJSON_AddStringToObject(o, "backend", ctx->backend);
    cJSON_AddStringToObject(o, "device", ctx->device);
    add_u64(o, "seed", ctx->seed);
    cJSON_AddNumberToObject(o, "defect", ctx->defect);
}

static void add_variant(cJSON *o, const struct hb_case *c) {
    static const char *const acts[HB_N_CONV_ACTS] = {"silu", "none"};
    static const char *const gates[HB_N_GATE_NORMS] = {"after", "before", "gate_only", "norm_only",
                                                       "none"};
    static const char *const clamps[HB_N_DT_CLAMPS] = {"none", "limit", "min_only"};
    struct hb_config g;
    char profile[32];
    hb_case_backend_config(c, &g);
    (void)snprintf(profile, sizeof profile, "%s.%s", hb_form_name(g.kernel_form),
                   hb_dtype_name(g.act_dtype));
    cJSON_AddStringToObject(o, "profile", profile);
    cJSON *v = cJSON_AddObjectToObject(o, "variant");
    if (!v) {
        return;
    }
    cJSON_AddStringToObject(v, "state", hb_dtype_name(g.state_dtype));
    cJSON_AddStringToObject(v, "conv_act", pick(acts, HB_N_CONV_ACTS, g.conv_act));
    cJSON_AddStringToObject(v, "gate_norm", pick(gates, HB_N_GATE_NORMS, g.gate_norm));
    cJSON_AddStringToObject(v, "dt_clamp_prefill",
                            pick(clamps, HB_N_DT_CLAMPS, g.dt_clamp_prefill));
    cJSON_AddStringToObject(v, "dt_clamp_decode", pick(clamps, HB_N_DT_CLAMPS, g.dt_clamp_decode));
    cJSON_AddBoolToObject(v, "dt_softplus", g.dt_softplus);
}

static void add_divergence(cJSON *o, const struct hb_divergence *d) {
    cJSON *at = d->step >= 0 ? cJSON_AddObjectToObject(o, "at") : NULL;
    if (!at) {
        return;
    }
    cJSON_AddNumberToObject(at, "step", d->step);
    cJSON_AddNumberToObject(at, "layer", d->layer);
    cJSON_AddNumberToObject(at, "row", d->row);
    cJSON_AddNumberToObject(at, "token", (double)d->token);
    cJSON_AddNumberToObject(at, "head", d->head);
    cJSON_AddNumberToObject(at, "element", (double)d->element);
    add_double(at, "got", d->got);
    add_double(at, "want", d->want);
    add_double(at, "bound", d->bound);
    add_u64(at, "ulp", d->ulp);
    cJSON_AddStringToObject(at, "source", d->source);
}

/* A case runs in one form, which its profile names: the larger of both is that of the case. */
static void add_ratios(cJSON *o, const struct hb_message *m) {
    cJSON *r = cJSON_AddObjectToObject(o, "max_ratio");
    for (int32_t op = 0; r && op < HB_N_OPS; op++) {
        for (int32_t t = 0; t < HB_N_FLOAT_DTYPES; t++) {
            char name[64];
            (void)snprintf(name, sizeof name, "%s.%s", hb_op_name(op), hb_dtype_name(t));
            const double ratio = fmax(m->max_ratio[op][HB_FORM_V0][t],
                                      m->max_ratio[op][HB_FORM_FAST][t]);
            if (ratio > 0) {
                add_double(r, name, ratio);
            }
        }
    }
}

static void add_broken(cJSON *o, const struct hb_message *m) {
    cJSON *list = cJSON_AddArrayToObject(o, "rules_broken");
    for (int32_t r = 1; list && r < 256; r++) {
        if (m->broken[r / 8] >> (r % 8) & 1) {
            cJSON_AddItemToArray(list, cJSON_CreateNumber(r));
        }
    }
}

static char *print_and_delete(cJSON *o) {
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return text;
}

char *hb_record_result(const struct hb_record_context *ctx, const struct hb_message *m,
                       const struct hb_case *c, const char *confirmed) {
    cJSON *o = cJSON_CreateObject();
    if (!o) {
        return NULL;
    }
    const struct hb_verdict *v = &m->verdict;
    add_context(o, ctx, "case");
    cJSON_AddStringToObject(o, "target", hb_target_name(m->target));
    cJSON_AddStringToObject(o, "id", m->id);
    cJSON_AddNumberToObject(o, "index", (double)m->index);
    cJSON_AddStringToObject(o, "file", m->file);
    cJSON_AddStringToObject(o, "verdict", hb_verdict_name(v->kind));
    cJSON_AddStringToObject(o, "check", v->check);
    cJSON_AddStringToObject(o, "place", v->place);
    cJSON_AddStringToObject(o, "fingerprint", v->fingerprint);
    cJSON_AddStringToObject(o, "text", v->text);
    if (v->kind == HB_VERDICT_STATUS) {
        cJSON_AddStringToObject(o, "want_status", hb_status_name(v->want_status));
        cJSON_AddStringToObject(o, "got_status", hb_status_name(v->got_status));
    }
    if (confirmed[0]) {
        cJSON_AddStringToObject(o, "confirmed", confirmed);
    }
    if (hb_verdict_is_finding(v->kind)) {
        add_divergence(o, &v->at);
    }
    if (c) {
        add_variant(o, c);
    }
    cJSON_AddNumberToObject(o, "us", whole((double)m->ns * 1e-3));
    cJSON_AddNumberToObject(o, "tokens", (double)m->tokens);
    cJSON_AddNumberToObject(o, "launches", (double)m->launches);
    add_ratios(o, m);
    add_broken(o, m);
    cJSON_AddBoolToObject(o, "second_run", m->has_second_run);
    return print_and_delete(o);
}

static void add_op_row(cJSON *ops, const struct hb_run_stats *s, int32_t op, int32_t form,
                       int32_t t) {
    cJSON *row = s->elements[op][form][t] ? cJSON_CreateObject() : NULL;
    if (!row) {
        return;
    }
    cJSON_AddItemToArray(ops, row);
    cJSON_AddStringToObject(row, "op", hb_op_name(op));
    cJSON_AddStringToObject(row, "form", hb_form_name(form));
    cJSON_AddStringToObject(row, "dtype", hb_dtype_name(t));
    cJSON_AddNumberToObject(row, "elements", (double)s->elements[op][form][t]);
    cJSON_AddNumberToObject(row, "vacuous", (double)s->vacuous[op][form][t]);
    add_double(row, "median_ratio", hb_run_stats_median(s, op, form, t));
    add_double(row, "max_ratio", s->max_ratio[op][form][t]);
}

static void add_op_table(cJSON *o, const struct hb_run_stats *s) {
    cJSON *ops = cJSON_AddArrayToObject(o, "ops");
    for (int32_t op = 0; ops && op < HB_N_OPS; op++) {
        for (int32_t form = 0; form < HB_N_FORMS; form++) {
            for (int32_t t = 0; t < HB_N_FLOAT_DTYPES; t++) {
                add_op_row(ops, s, op, form, t);
            }
        }
    }
}

/* Numbers of rules that are not hit both ways. */
static void add_coverage(cJSON *o, const struct hb_run_stats *s) {
    struct hb_coverage c;
    const int32_t *list;
    hb_coverage_of(s, &c);
    cJSON_AddNumberToObject(o, "rules_hit_both_ways", c.rules_both);
    cJSON_AddNumberToObject(o, "rules", c.rules);
    cJSON_AddNumberToObject(o, "statuses_seen", c.statuses_seen);
    cJSON_AddNumberToObject(o, "statuses", c.statuses);
    cJSON *broken = cJSON_AddArrayToObject(o, "rules_not_broken");
    cJSON *kept = cJSON_AddArrayToObject(o, "rules_not_kept");
    const int n = hb_rule_list(&list);
    for (int i = 0; broken && kept && i < n; i++) {
        const int32_t covered = hb_coverage_rule(s, list[i]);
        if (hb_coverage_unreachable(list[i])) {
            continue;
        }
        if (!(covered & HB_COVERED_BROKEN)) {
            cJSON_AddItemToArray(broken, cJSON_CreateNumber(list[i]));
        }
        if (!(covered & HB_COVERED_KEPT)) {
            cJSON_AddItemToArray(kept, cJSON_CreateNumber(list[i]));
        }
    }
}

char *hb_record_summary(const struct hb_record_context *ctx, const struct hb_supervise_result *r) {
    cJSON *o = cJSON_CreateObject();
    if (!o) {
        return NULL;
    }
    const struct hb_run_stats *s = &r->stats;
    add_context(o, ctx, "summary");
    cJSON_AddNumberToObject(o, "cases", (double)r->cases);
    cJSON_AddNumberToObject(o, "seconds", r->seconds);
    cJSON_AddNumberToObject(o, "findings", (double)r->findings);
    cJSON_AddNumberToObject(o, "restarts", (double)r->restarts);
    cJSON_AddBoolToObject(o, "interrupted", r->is_interrupted);
    if (r->first_seconds >= 0) {
        cJSON_AddNumberToObject(o, "first_finding_seconds", r->first_seconds);
        cJSON_AddNumberToObject(o, "first_finding_cases", (double)r->first_cases);
    }
    cJSON_AddNumberToObject(o, "forwards", (double)s->forwards);
    cJSON_AddNumberToObject(o, "tokens", (double)s->tokens);
    cJSON_AddNumberToObject(o, "launches", (double)s->launches);
    cJSON_AddNumberToObject(o, "second_runs", (double)s->second_runs);
    cJSON_AddNumberToObject(o, "exact_bytes", (double)s->exact_bytes);
    cJSON *verdicts = cJSON_AddObjectToObject(o, "verdicts");
    for (int32_t i = 0; verdicts && i < HB_N_VERDICTS; i++) {
        if (s->verdicts[i]) {
            cJSON_AddNumberToObject(verdicts, hb_verdict_name(i), (double)s->verdicts[i]);
        }
    }
    cJSON *phases = cJSON_AddObjectToObject(o, "phase_ms");
    for (int32_t i = 0; phases && i <= HB_PHASE_OTHER; i++) {
        cJSON_AddNumberToObject(phases, hb_phase_name(i), whole((double)s->time_ns[i] * 1e-6));
    }
    add_op_table(o, s);
    add_coverage(o, s);
    return print_and_delete(o);
}
