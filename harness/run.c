/* SPDX-License-Identifier: Apache-2.0
 * The executor: creates the backend that a case asks for, runs its steps through the adapter,
 * predicts each result, and compares everything. The first divergence becomes the verdict; the
 * steps after it are not run. */
#include "harness/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/compare.h"
#include "harness/coverage.h"
#include "harness/run_internal.h"

uint64_t hb_run_now(const struct hb_run *r) {
    struct timespec t;
    if (!r->o->timed || clock_gettime(CLOCK_MONOTONIC, &t) != 0) {
        return 0;
    }
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void hb_run_phase(const struct hb_run *r, int32_t phase, uint64_t since) {
    if (r->stats && r->o->timed) {
        r->stats->time_ns[phase] += hb_run_now(r) - since;
    }
}

int hb_run_done(const struct hb_run *r) {
    return r->no_memory || r->v->kind != HB_VERDICT_PASS;
}

const char *hb_mode_place(int32_t mode) {
    switch (mode) {
#define CASE(number, name)                                                                         \
    case number:                                                                                   \
        return #name;
        HB_MODES(CASE)
#undef CASE
    default:
        return "other";
    }
}

/* Old content is not kept: a block is filled anew after each request. */
static void *take_memory(struct hb_run_memory *memory, int32_t use, size_t n) {
    if (n > memory->block[use].bytes) {
        void *p = malloc(n);
        if (!p) {
            return NULL;
        }
        free(memory->block[use].ptr);
        memory->block[use].ptr = p;
        memory->block[use].bytes = n;
    }
    return memory->block[use].ptr;
}

void hb_run_memory_free(struct hb_run_memory *memory) {
    for (int i = 0; i < HB_N_MEMORY_USES; i++) {
        free(memory->block[i].ptr);
    }
    for (int32_t i = 0; i < memory->n_states; i++) {
        hb_ref_state_free(memory->state[i]);
    }
    memset(memory, 0, sizeof *memory);
}

void *hb_run_bytes(struct hb_run *r, int32_t use, size_t n) {
    void *p = take_memory(r->memory, use, n > 0 ? n : 1);
    r->no_memory |= !p;
    return p;
}

struct hb_ref_state *hb_run_state_new(struct hb_run *r) {
    struct hb_run_memory *m = r->memory;
    struct hb_ref_state *old = m->n_states > 0 ? m->state[--m->n_states] : NULL;
    struct hb_ref_state *state = hb_ref_state_renew(old, &r->config);
    r->no_memory |= !state;
    return state;
}

void hb_run_state_free(struct hb_run *r, struct hb_ref_state *state) {
    struct hb_run_memory *m = r->memory;
    if (!state) { /* of thousands in a case few are: the sanitizer's free of nothing is not cheap */
        return;
    }
    if (m->n_states < HB_MEMORY_STATES) {
        m->state[m->n_states++] = state;
    } else {
        hb_ref_state_free(state);
    }
}

float *hb_run_floats(struct hb_run *r, size_t n) {
    return hb_run_bytes(r, HB_MEMORY_FLOATS, n * sizeof(float));
}

double *hb_run_doubles(struct hb_run *r, size_t n) {
    return hb_run_bytes(r, HB_MEMORY_DOUBLES, n * sizeof(double));
}

void hb_run_fill(struct hb_run *r, int32_t tensor, int32_t stream, int32_t layer, int64_t position,
                 int32_t n, float *out) {
    const struct hb_value_key key = {
        .tensor = tensor, .stream = stream, .layer = layer, .position = position};
    if (r->o->values) {
        r->o->values->fill(r->o->values->ctx, r->c, &key, n, out);
    } else {
        hb_values_fill(r->c, &key, n, out);
    }
}

/* What of the prediction is compared depends on the backend's error level (contracts.md section 3).
 */
static int same_result(const struct hb_run *r, const struct hb_error *want, int32_t status,
                       const struct hb_error *got) {
    if (want->status != status) {
        return 0;
    }
    if (want->status == HB_OK) {
        return 1;
    }
    int seed_text = want->status == HB_ERR_INVALID_MODE || want->status == HB_ERR_NOT_IMPLEMENTED;
    if (r->caps.error_level >= 1 && (want->rule != got->rule || want->row != got->row ||
                                     want->value != got->value || want->limit != got->limit)) {
        return 0;
    }
    return !(r->caps.error_level >= 2 || seed_text) || strcmp(want->text, got->text) == 0;
}

int hb_run_judge(struct hb_run *r, const char *call, const char *place, const struct hb_error *want,
                 int32_t got_status, const struct hb_error *got) {
    if (r->stats) {
        r->stats->calls++;
        hb_coverage_call(r->stats, call, r->batch_mode, want);
    }
    if (r->capture && want->status != HB_OK) {
        r->capture->refused++;
    }
    if (r->o->predicted) {
        r->o->predicted(r->o->predicted_ctx, r->step, call, want);
    }
    if (!same_result(r, want, got_status, got) && !(r->o->check_off & HB_OFF_STATUS)) {
        char where[64];
        (void)snprintf(where, sizeof where, "%s %s want-rule-%d", call, place, want->rule);
        const char *check = got_status != want->status ? "status" : "status.text";
        r->v->at.step = r->step;
        hb_verdict_set(
            r->v, got_status == HB_ERR_DEVICE ? HB_VERDICT_DEVICE : HB_VERDICT_STATUS, check, where,
            want->status, got_status,
            "step %d: predicted %s (rule %d, row %d, value %lld, limit %lld: %.120s), got "
            "%s (rule %d, row %d: %.120s)",
            r->step, hb_status_name(want->status), want->rule, want->row, (long long)want->value,
            (long long)want->limit, want->text, hb_status_name(got_status), got->rule, got->row,
            got->text);
        return 0;
    }
    return want->status == HB_OK && got_status == HB_OK;
}

int32_t hb_run_region(const struct hb_run *r, const char *name, int32_t layer) {
    for (int32_t i = 0; i < r->n_regions; i++) {
        if (r->region[i].layer == layer && strcmp(r->region[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* --- life of a run
 * ---------------------------------------------------------------------------------------------- */

/* A backend that lacks what the case is about has refused as it should: the rest of the case says
 * nothing of it. */
static void skip_feature(struct hb_run *r, const struct hb_error *want) {
    if (want->rule == HB_RULE_CFG_FEATURE && !hb_run_done(r)) {
        hb_verdict_set(r->v, HB_VERDICT_SKIP, "feature", "create", want->status, want->status, "%s",
                       want->text);
    }
}

/* 1: a layer is of a linear kind that the case's values are not made for. */
static int has_other_kind(const struct hb_case *c, const struct hb_config *config) {
    const int32_t own = hb_case_linear_kind(&c->config);
    for (int32_t l = 0; l < config->n_layers; l++) {
        if (config->layer_kind[l] != HB_LAYER_ATTENTION && config->layer_kind[l] != own) {
            return 1;
        }
    }
    return 0;
}

/* 1: the backend exists and the steps can run. */
static int open_run(struct hb_run *r) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    r->caps.struct_size = sizeof r->caps;
    int32_t status = r->backend->describe(r->backend->ctx, &r->caps, &got);
    if (status != HB_OK) {
        hb_verdict_set(r->v, HB_VERDICT_SKIP, "describe", "describe", HB_OK, status, "%s",
                       got.text);
        return 0;
    }
    hb_run_config(r->c, r->o, &r->config);
    r->config.defect = r->o->defect;
    if (r->o->check_off & HB_OFF_ORDER) {
        r->config.thread_order = r->config.block_order = HB_ORDER_ASCENDING;
    }
    r->step = -1;
    struct hb_config broken = r->config;
    hb_materialize_config_breaks(r->c, &broken);
    hb_expect_create(&broken, &r->caps, &want);
    if (want.status == HB_OK) {
        /* the breaks left a valid configuration: it is the one to run; but values are made for the
         * parts of the case's own kind and sizes, and would put a key where a gate is */
        r->is_reshaped = r->config.n_heads != broken.n_heads ||
                         r->config.n_groups != broken.n_groups ||
                         r->config.state_size != broken.state_size ||
                         has_other_kind(r->c, &broken);
        r->config = broken;
    }
    hb_run_set_kind(r);
    if (hb_run_make_params(r)) {
        r->no_memory = 1;
        return 0;
    }
    r->config = broken;
    hb_error_clear(&got);
    uint64_t t0 = hb_run_now(r);
    status = r->backend->create(r->backend->ctx, &r->config, r->params, &r->handle, &got);
    hb_run_phase(r, HB_PHASE_BACKEND, t0);
    if (!hb_run_judge(r, "create", "config", &want, status, &got)) {
        skip_feature(r, &want);
        return 0;
    }
    if (hb_slot_model_init(&r->slots, &r->config) != HB_OK) {
        r->no_memory = 1;
        return 0;
    }
    hb_run_rotate_slots(r);
    r->content = calloc((size_t)r->config.n_slots + 1, sizeof *r->content);
    if (!r->content || hb_run_open_regions(r) || hb_run_fill_pool(r)) {
        r->no_memory = r->v->kind == HB_VERDICT_PASS;
        return 0;
    }
    hb_run_check_fresh_tables(r);
    for (int32_t i = 0; i < HB_MAX_REQS; i++) {
        r->request_stream[i] = i; /* of the first request of this number */
    }
    hb_kv_alloc_init(&r->kv, r->c, r->config.n_kv);
    return 1;
}

static void close_run(struct hb_run *r) {
    if (r->handle) {
        hb_run_graph_free(r);
        if (r->stats && r->backend->launches) {
            r->stats->launches += r->backend->launches(r->handle);
        }
        uint64_t t0 = hb_run_now(r);
        r->backend->destroy(r->handle);
        hb_run_phase(r, HB_PHASE_BACKEND, t0);
    }
    if (r->content) {
        for (int32_t i = 0; i <= r->config.n_slots; i++) {
            hb_content_reset(r, &r->content[i]);
        }
    }
    free(r->content);
    hb_run_verified_free(r);
    hb_slot_model_destroy(&r->slots);
}

static void run_step(struct hb_run *r, const struct hb_case_step *step) {
    switch (step->kind) {
    case HB_STEP_TAKE:
        hb_run_take(r, step);
        break;
    case HB_STEP_FREE:
        hb_run_free(r, step);
        break;
    case HB_STEP_COPY:
        hb_run_copy(r, step);
        break;
    case HB_STEP_COMMIT:
        hb_run_commit(r, step);
        break;
    case HB_STEP_GRAPH_INIT:
        hb_run_graph_init(r, step);
        break;
    case HB_STEP_CAPTURE:
        hb_run_graph_capture(r, step);
        break;
    case HB_STEP_PUBLISH:
        hb_run_publish(r, step);
        break;
    case HB_STEP_MOVE:
        hb_run_move(r, step);
        break;
    default:
        hb_run_forward(r, step);
        break;
    }
}

/* Dumps belong to the case itself, not to its transformed runs. */
static void write_dump(struct hb_run *r) {
    struct hb_error e = {.struct_size = sizeof e};
    if (r->o->dump_dir && hb_dump_write(&r->dump, r->o->dump_dir, r->c, &e) != HB_OK) {
        hb_verdict_set(r->v, HB_VERDICT_ENVIRONMENT, "dump", "run", HB_OK, e.status, "%s", e.text);
    }
    hb_dump_free(&r->dump);
}

static uint64_t sum_phases(const struct hb_run_stats *s) {
    uint64_t sum = 0;
    for (int i = 0; i < HB_PHASE_OTHER; i++) {
        sum += s->time_ns[i];
    }
    return sum;
}

/* What of a run no phase accounts for. */
static void count_other(const struct hb_run *r, uint64_t since, uint64_t phases_before) {
    if (r->stats && r->o->timed) {
        const uint64_t phases = sum_phases(r->stats) - phases_before;
        const uint64_t all = hb_run_now(r) - since;
        r->stats->time_ns[HB_PHASE_OTHER] += all > phases ? all - phases : 0;
    }
}

int hb_run_once(const struct hb_adapter *backend, const struct hb_case *c,
                const struct hb_run_options *o, const struct hb_twist *twist,
                struct hb_capture *capture, struct hb_verdict *v, struct hb_run_stats *stats) {
    struct hb_run_memory own = {0};
    struct hb_run_memory *memory = o->memory ? o->memory : &own;
    struct hb_run *r = take_memory(memory, HB_MEMORY_RUN, sizeof *r);
    if (!r) {
        hb_verdict_set(v, HB_VERDICT_ENVIRONMENT, "memory", "run", 0, 0, "out of memory");
        return -1;
    }
    memset(r, 0, sizeof *r);
    r->memory = memory;
    r->backend = backend;
    r->c = c;
    r->o = o;
    r->v = v;
    r->stats = stats;
    r->capture = capture;
    if (twist) {
        r->twist = *twist;
    }
    const uint64_t begun = hb_run_now(r);
    const uint64_t phases = stats ? sum_phases(stats) : 0;
    if (open_run(r)) {
        for (int32_t i = 0; i < c->n_steps && !hb_run_done(r); i++) {
            r->step = i;
            run_step(r, &c->step[i]);
        }
        if (capture && !hb_run_done(r)) {
            hb_run_capture_slots(r);
        }
    }
    write_dump(r);
    int no_memory = r->no_memory;
    close_run(r);
    count_other(r, begun, phases);
    hb_run_memory_free(&own);
    if (no_memory) {
        hb_verdict_set(v, HB_VERDICT_ENVIRONMENT, "memory", "run", 0, 0, "out of memory");
        return -1;
    }
    return 0;
}

void hb_run_config(const struct hb_case *c, const struct hb_run_options *o,
                   struct hb_config *config) {
    if (o->config) {
        *config = *o->config;
    } else {
        hb_case_backend_config(c, config);
    }
}

int hb_run_captured(const struct hb_adapter *backend, const struct hb_case *c,
                    const struct hb_run_options *o, struct hb_capture *capture,
                    struct hb_verdict *v, struct hb_run_stats *stats) {
    struct hb_caps caps = {.struct_size = sizeof caps};
    struct hb_config config;
    hb_run_config(c, o, &config);
    if (backend->describe(backend->ctx, &caps, NULL) == HB_OK && hb_run_anchors(&config, &caps)) {
        const int failed = hb_run_once(backend, c, o, NULL, NULL, v, stats);
        if (failed || v->kind != HB_VERDICT_PASS) {
            return failed;
        }
    }
    return hb_run_once(backend, c, o, NULL, capture, v, stats);
}

/* The verdict of the first backend stands; where it passes, the second one is compared with it. */
static int run_pair(const struct hb_adapter *backend, const struct hb_case *c,
                    const struct hb_run_options *o, struct hb_verdict *v,
                    struct hb_run_stats *stats) {
    struct hb_pair_result pair;
    int failed = hb_compare_case(backend, o->other, c, o, &pair, stats, NULL);
    if (stats) {
        stats->pair_cases++;
        stats->pair_elements += pair.elements;
        stats->pair_bit_equal += pair.bit_equal;
        if (pair.max_ratio > stats->pair_max_ratio) {
            stats->pair_max_ratio = pair.max_ratio;
        }
    }
    if (!pair.same_verdict) {
        hb_verdict_set(v, HB_VERDICT_RELATION, "compare.verdict", "two backends", pair.a.kind,
                       pair.b.kind, "first: %s %s %.180s; second: %s %s %.180s",
                       hb_verdict_name(pair.a.kind), pair.a.fingerprint, pair.a.text,
                       hb_verdict_name(pair.b.kind), pair.b.fingerprint, pair.b.text);
    } else if (pair.a.kind != HB_VERDICT_PASS) {
        *v = pair.a;
    } else if (pair.differs) {
        hb_verdict_set(v, HB_VERDICT_RELATION, "compare.numeric", "two backends", 0, 0, "%s",
                       pair.text);
        v->at = pair.at;
    }
    return failed;
}

int hb_run_case(const struct hb_adapter *backend, const struct hb_case *c,
                const struct hb_run_options *options, struct hb_verdict *v,
                struct hb_run_stats *stats) {
    static const struct hb_run_options none = {.tamper_element = -1};
    const struct hb_run_options *o = options ? options : &none;
    hb_verdict_clear(v);
    struct hb_capture capture = {0};
    int wants_relation = c->config.relation != 0 && !o->status_only && !o->predicted;
    int failed;
    if (o->other) {
        failed = run_pair(backend, c, o, v, stats);
    } else {
        failed = wants_relation ? hb_run_captured(backend, c, o, &capture, v, stats)
                                : hb_run_once(backend, c, o, NULL, NULL, v, stats);
        if (!failed && v->kind == HB_VERDICT_PASS && wants_relation) {
            hb_run_relation(backend, c, o, &capture, v, stats);
        }
    }
    hb_capture_free(&capture);
    if (stats) {
        stats->cases++;
        stats->verdicts[v->kind]++;
    }
    return failed;
}
