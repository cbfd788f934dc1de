/* SPDX-License-Identifier: Apache-2.0
 * Relations of invariants.md that need a second run: the transformation of the case, the run, and
 * the comparison of both runs. Outputs are matched by (stream, position, layer), states by slot
 * name, so a transformation may cut, merge or reorder forwards freely. E compares bytes, T compares
 * with the sum of both bounds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/relations_internal.h"

/* 1 if every step that consumes tokens runs every attention layer. A layer that is left out gets no
 * KV entries, and its later outputs depend on what happens to lie in their place. */
static int kv_complete(const struct hb_case *c) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        const int is_entry = s->kind == HB_STEP_ENTRY;
        const int is_capture = s->kind == HB_STEP_CAPTURE; /* replays run its layers */
        const int32_t left_out = is_entry ? ~(1 << (s->layer & 31)) : s->layer_mask;
        const int consumes = (hb_relation_is_forward(s) || is_entry) && s->n_rows > 0;
        if ((consumes || is_capture) && (left_out & c->config.attn_mask)) {
            return 0;
        }
    }
    return 1;
}

static const char *relation_name(int32_t number) {
    const struct hb_relation *list;
    const int n = hb_relations(&list);
    for (int i = 0; i < n; i++) {
        if (list[i].number == number) {
            return list[i].name;
        }
    }
    return "relation";
}

static int is_subset(const struct hb_transform *t) {
    return (t->flags & HB_REL_SUBSET) != 0;
}

static int same_bits(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

/* 1 if the values may be called equal. */
static int agree(enum hb_exactness e, double a, double bound_a, double b, double bound_b) {
    if (e == HB_EXACT || !isfinite(a) || !isfinite(b)) {
        return same_bits(a, b) || !isfinite(bound_a) || !isfinite(bound_b);
    }
    return fabs(a - b) <= bound_a + bound_b;
}

void hb_relation_fail(struct hb_verdict *v, int32_t number, const char *what, int32_t layer,
                      int64_t pos, int64_t element, double a, double b, double bound) {
    v->at.layer = layer;
    v->at.token = pos;
    v->at.element = element;
    v->at.got = b;
    v->at.want = a;
    v->at.bound = bound;
    (void)snprintf(v->at.source, sizeof v->at.source, "relation %d", number);
    hb_verdict_set(
        v, HB_VERDICT_RELATION, relation_name(number), what, 0, 0,
        "relation %d: %s of layer %d position %lld element %lld is %.9g, the transformed "
        "run gives %.9g, allowed %.3g",
        number, what, layer, (long long)pos, (long long)element, a, b, bound);
}

/* 39: of the request that started again from a checkpoint of another one. */
static int is_clone(const struct hb_transform *t, const struct hb_captured *x) {
    return t->twist.is_clone && x->request == t->twist.clone;
}

/* 36: what the changed tokens may reach. */
static int is_later(const struct hb_transform *t, int32_t stream, int64_t pos) {
    return t->twist.is_before && stream == t->twist.stream && pos >= t->twist.pos;
}

/* 36: streams without a change share a batch with the changed one, no more. */
static enum hb_exactness demanded_of(const struct hb_transform *t, int32_t stream,
                                     enum hb_exactness e) {
    return t->twist.is_before && stream != t->twist.stream ? t->unchanged : e;
}

/* The output of the same token in the other run; each one is matched once. A token may occur as a
 * draft node and, later, in a forward. */
static struct hb_captured *counterpart(const struct hb_transform *t, const struct hb_capture *in,
                                       const struct hb_captured *x) {
    const int is_swapped =
        (t->flags & HB_REL_SWAPS_CHAINS) &&
        (x->is_verify == HB_DRAFT_CHAIN || x->is_verify == HB_DRAFT_LINKED_CHAIN);
    const int32_t kind =
        is_swapped ? HB_DRAFT_CHAIN + HB_DRAFT_LINKED_CHAIN - x->is_verify : x->is_verify;
    for (size_t k = 0; k < in->n; k++) {
        struct hb_captured *y = &in->item[k];
        if ((y->request == x->request || is_clone(t, x)) && y->stream == x->stream &&
            y->pos == x->pos &&
            y->branch == x->branch && y->layer == x->layer &&
            (is_subset(t) || (y->is_verify == kind && y->start == x->start))) {
            return y;
        }
    }
    return NULL;
}

/* a: of the case itself, b: of the transformed run. */
static void compare_outputs(const struct hb_transform *t, const struct hb_capture *a,
                            const struct hb_capture *b, uint32_t layers, struct hb_verdict *v) {
    const struct hb_capture *from = is_subset(t) ? b : a;
    for (size_t i = 0; i < from->n && v->kind == HB_VERDICT_PASS; i++) {
        const struct hb_captured *x = &from->item[i];
        if (!(layers >> x->layer & 1) || is_later(t, x->stream, x->pos)) {
            continue;
        }
        struct hb_captured *y = counterpart(t, is_subset(t) ? a : b, x);
        if (!y) {
            hb_relation_fail(v, t->number, "missing output", x->layer, x->pos, 0, 0, 0, 0);
            return;
        }
        const enum hb_exactness e = demanded_of(t, x->stream, t->outputs);
        const struct hb_captured *first = is_subset(t) ? y : x;
        const struct hb_captured *second = is_subset(t) ? x : y;
        for (int32_t j = 0; j < x->n; j++) {
            const double p = (double)first->got[j];
            const double q = (double)second->got[j];
            if (!agree(e, p, first->bound[j], q, second->bound[j])) {
                hb_relation_fail(v, t->number, "output", x->layer, x->pos, j, p, q,
                                 e == HB_EXACT ? 0 : x->bound[j] + y->bound[j]);
                return;
            }
        }
        if (!t->twist.is_clone) { /* an output of the original is that of its clone too */
            y->stream = -2 - y->stream;
        }
    }
}

/* The state of slot ka in the first run and of slot kb in the other one, in one layer. */
static void compare_state(const struct hb_transform *t, const struct hb_capture *a, int32_t ka,
                          const struct hb_capture *b, int32_t kb, int32_t layer,
                          struct hb_verdict *v) {
    const int64_t pos = a->slot[ka].pos;
    const enum hb_exactness e = demanded_of(t, a->slot[ka].stream, t->state);
    for (int32_t j = 0; j < a->n_conv; j++) {
        const double x = (double)a->slot[ka].conv[layer][j];
        const double y = (double)b->slot[kb].conv[layer][j];
        if (!same_bits(x, y)) {
            hb_relation_fail(v, t->conv_number ? t->conv_number : t->number, "conv state", layer,
                             pos, j, x, y, 0);
            return;
        }
    }
    /* records of a replay ring that are not folded yet are no part of temporal */
    const int is_state = a->slot[ka].cursor == b->slot[kb].cursor;
    for (int32_t j = 0; j < a->n_ssm && is_state && !(t->flags & HB_REL_CONV_ONLY); j++) {
        const double x = (double)a->slot[ka].ssm[layer][j];
        const double y = (double)b->slot[kb].ssm[layer][j];
        const double bx = a->slot[ka].bound[layer][j];
        const double by = b->slot[kb].bound[layer][j];
        if (!agree(e, x, bx, y, by)) {
            hb_relation_fail(v, t->number, "temporal state", layer, pos, j, x, y,
                             e == HB_EXACT ? 0 : bx + by);
            return;
        }
    }
}

static void compare_states(const struct hb_transform *t, const struct hb_capture *a,
                           const struct hb_capture *b, uint32_t layers, struct hb_verdict *v) {
    const int32_t n = t->twist.is_clone ? HB_MAX_NAMES + 1 : HB_MAX_NAMES;
    for (int32_t k = 0; k < n && v->kind == HB_VERDICT_PASS; k++) {
        const int32_t ka = k < HB_MAX_NAMES ? k : t->twist.clone_of;
        const int32_t kb = k < HB_MAX_NAMES ? k : t->twist.clone_name;
        const int is_track = a->slot[ka].is_track;
        /* the slot of a name that was freed may have been taken by another request */
        const int is_same =
            a->slot[ka].stream == b->slot[kb].stream && a->slot[ka].pos == b->slot[kb].pos;
        if (a->slot[ka].stream < 0 || !is_same || ((t->flags & HB_REL_SKIP_TRACKED) && is_track) ||
            ((t->flags & HB_REL_TRACKED_ONLY) && !is_track) ||
            is_later(t, a->slot[ka].stream, a->slot[ka].pos - 1)) {
            continue;
        }
        for (int32_t l = 0; l < HB_MAX_LAYERS && v->kind == HB_VERDICT_PASS; l++) {
            if (a->slot[ka].conv[l] && b->slot[kb].conv[l] && (layers >> l & 1)) {
                compare_state(t, a, ka, b, kb, l, v);
            }
        }
    }
}

/* What is demanded of this case on this backend. */
static enum hb_exactness demand(const struct hb_config *config, const struct hb_caps *caps,
                                enum hb_exactness e) {
    const struct hb_profile *prefill =
        &caps->profile[config->kernel_form][HB_PATH_PREFILL][config->act_dtype];
    struct hb_ref_sizes sizes;
    switch (e) {
    case HB_EXACT_FP32:
        hb_ref_linear_sizes(config, hb_run_linear_kind(config), &sizes);
        return config->state_dtype == HB_FP32 || sizes.n_state == 0 ? HB_EXACT : HB_BOUNDED;
    case HB_EXACT_SCAN:
        return prefill->chunked ? HB_BOUNDED : HB_EXACT;
    case HB_EXACT_BATCH:
        return prefill->chunked && !caps->batch_invariant ? HB_BOUNDED : HB_EXACT;
    case HB_EXACT_ROWS:
        return prefill->chunked && !prefill->restart ? HB_BOUNDED : HB_EXACT;
    case HB_EXACT_REPLAY:
        return caps->replay_exact >> config->kernel_form & 1 ? HB_EXACT : HB_BOUNDED;
    default:
        return e;
    }
}

/* 1 if the relation with these flags may say something about the case. */
static int is_about(const struct hb_transform *t, const struct hb_case *c,
                    const struct hb_capture *base) {
    const int has_step =
        c->config.mixer == HB_MIXER_MAMBA2 || c->config.mixer == HB_MIXER_MAMBA1;
    const int has_one_formula = !has_step || (c->config.dt_clamp != HB_CLAMP_PREFILL &&
                                              c->config.dt_clamp != HB_CLAMP_DECODE);
    return !(base->refused && !(t->flags & HB_REL_WITH_ERRORS)) &&
           !((t->flags & HB_REL_MOVES_KV) && !kv_complete(c)) &&
           !((t->flags & HB_REL_ONE_FORMULA) && !has_one_formula) &&
           !((t->flags & HB_REL_NO_RING) && c->config.ring_length > 0);
}

static const struct hb_transforms *const areas[] = {&hb_transforms_base, &hb_transforms_spec,
                                                    &hb_transforms_graph, &hb_transforms_batch,
                                                    &hb_transforms_track};

/* 0 if the relation is checked in every run, or unknown. */
static int find_transform(int32_t number, struct hb_transform *found) {
    for (size_t a = 0; a < sizeof areas / sizeof *areas; a++) {
        for (int32_t i = 0; i < areas[a]->n; i++) {
            if (areas[a]->list[i].number == number) {
                *found = areas[a]->list[i];
                return 1;
            }
        }
    }
    return 0;
}

static void second_run(const struct hb_adapter *backend, const struct hb_transform *t,
                       const struct hb_case *c, const struct hb_case *other,
                       const struct hb_run_options *o,
                       const struct hb_capture *base, struct hb_verdict *v,
                       struct hb_run_stats *stats) {
    struct hb_capture capture = {0};
    struct hb_run_options own = *o;
    struct hb_config config;
    if (t->twist.values.fill) {
        own.values = &t->twist.values;
    }
    if (t->twist.keep_config && !o->config) {
        hb_case_backend_config(c, &config);
        own.config = &config;
    }
    (void)hb_run_once(backend, other, &own, &t->twist, &capture, v, stats);
    if (stats) {
        stats->second_runs++;
    }
    if (v->kind == HB_VERDICT_SKIP) { /* a feature that the case itself does not ask for */
        hb_verdict_clear(v);
        hb_capture_free(&capture);
        return;
    }
    if (v->kind != HB_VERDICT_PASS) {
        size_t n = strlen(v->text);
        (void)snprintf(v->text + n, sizeof v->text - n, " [second run of relation %d, %s]",
                       t->number, relation_name(t->number));
    }
    const uint32_t layers =
        t->flags & HB_REL_ONLY_LAYER   ? 1u << c->config.relation_arg % c->config.n_layers
        : t->flags & HB_REL_LINEAR_ONLY ? ~(uint32_t)c->config.attn_mask
                                       : ~0u;
    if (v->kind == HB_VERDICT_PASS && !t->twist.nan_inputs &&
        ((t->flags & HB_REL_WITH_ERRORS) || !capture.refused)) {
        if (!(t->flags & HB_REL_TRACKED_ONLY)) {
            compare_outputs(t, base, &capture, layers, v);
        }
        compare_states(t, base, &capture, layers, v);
    }
    hb_capture_free(&capture);
}

void hb_run_relation(const struct hb_adapter *backend, const struct hb_case *c,
                     const struct hb_run_options *o, const struct hb_capture *base,
                     struct hb_verdict *v, struct hb_run_stats *stats) {
    struct hb_transform t;
    struct hb_caps caps = {.struct_size = sizeof caps};
    if (hb_relation_kernel(backend, c, o, base, v, stats)) {
        return;
    }
    if ((o->check_off & HB_OFF_RELATION) || !find_transform(c->config.relation, &t) ||
        !is_about(&t, c, base) || backend->describe(backend->ctx, &caps, NULL) != HB_OK) {
        return;
    }
    struct hb_config config;
    hb_run_config(c, o, &config);
    t.outputs = demand(&config, &caps, t.outputs);
    t.state = demand(&config, &caps, t.state);
    t.unchanged = demand(&config, &caps, t.unchanged);
    t.twist.base = base;
    t.twist.caps = &caps;
    struct hb_case *other = malloc(sizeof *other);
    if (!other) {
        hb_verdict_set(v, HB_VERDICT_ENVIRONMENT, "memory", "relation", 0, 0, "out of memory");
        return;
    }
    *other = *c;
    if (t.apply(c, other, &t.twist) && !(o->values && t.twist.values.fill)) {
        other->config.relation = 0;
        second_run(backend, &t, c, other, o, base, v, stats);
    }
    free(other);
}
