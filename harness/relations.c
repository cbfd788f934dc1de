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
        int32_t left_out = hb_relation_is_forward(s) ? s->layer_mask : ~(1 << (s->layer & 31));
        const int consumes = hb_relation_is_forward(s) || s->kind == HB_STEP_ENTRY;
        if (consumes && s->n_rows > 0 && (left_out & c->config.attn_mask)) {
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

static void fail(struct hb_verdict *v, int32_t number, const char *what, int32_t layer, int64_t pos,
                 int64_t element, double a, double b, double bound) {
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
        if (y->request == x->request && y->stream == x->stream && y->pos == x->pos &&
            y->branch == x->branch && y->layer == x->layer &&
            (is_subset(t) || (y->is_verify == kind && y->start == x->start))) {
            return y;
        }
    }
    return NULL;
}

/* a: of the case itself, b: of the transformed run. */
static void compare_outputs(const struct hb_transform *t, const struct hb_capture *a,
                            const struct hb_capture *b, int32_t layer, struct hb_verdict *v) {
    const struct hb_capture *from = is_subset(t) ? b : a;
    for (size_t i = 0; i < from->n && v->kind == HB_VERDICT_PASS; i++) {
        const struct hb_captured *x = &from->item[i];
        if (layer >= 0 && x->layer != layer) {
            continue;
        }
        struct hb_captured *y = counterpart(t, is_subset(t) ? a : b, x);
        if (!y) {
            fail(v, t->number, "missing output", x->layer, x->pos, 0, 0, 0, 0);
            return;
        }
        const struct hb_captured *first = is_subset(t) ? y : x;
        const struct hb_captured *second = is_subset(t) ? x : y;
        for (int32_t j = 0; j < x->n; j++) {
            const double p = (double)first->got[j];
            const double q = (double)second->got[j];
            if (!agree(t->outputs, p, first->bound[j], q, second->bound[j])) {
                fail(v, t->number, "output", x->layer, x->pos, j, p, q,
                     t->outputs == HB_EXACT ? 0 : x->bound[j] + y->bound[j]);
                return;
            }
        }
        y->stream = -2 - y->stream;
    }
}

static void compare_states(const struct hb_transform *t, const struct hb_capture *a,
                           const struct hb_capture *b, int32_t layer, struct hb_verdict *v) {
    for (int32_t k = 0; k < HB_MAX_NAMES && v->kind == HB_VERDICT_PASS; k++) {
        if (a->slot[k].stream < 0 || ((t->flags & HB_REL_SKIP_TRACKED) && a->slot[k].is_track)) {
            continue;
        }
        for (int32_t l = 0; l < HB_MAX_LAYERS; l++) {
            if (!a->slot[k].conv[l] || !b->slot[k].conv[l] || (layer >= 0 && l != layer)) {
                continue;
            }
            for (int32_t j = 0; j < a->n_conv; j++) {
                double x = (double)a->slot[k].conv[l][j];
                double y = (double)b->slot[k].conv[l][j];
                if (!same_bits(x, y)) {
                    fail(v, t->conv_number ? t->conv_number : t->number, "conv state", l,
                         a->slot[k].pos, j, x, y, 0);
                    return;
                }
            }
            for (int32_t j = 0; j < a->n_ssm && !(t->flags & HB_REL_CONV_ONLY); j++) {
                double x = (double)a->slot[k].ssm[l][j];
                double y = (double)b->slot[k].ssm[l][j];
                double bx = a->slot[k].bound[l][j];
                double by = b->slot[k].bound[l][j];
                if (!agree(t->state, x, bx, y, by)) {
                    fail(v, t->number, "temporal state", l, a->slot[k].pos, j, x, y,
                         t->state == HB_EXACT ? 0 : bx + by);
                    return;
                }
            }
        }
    }
}

/* What is demanded of this case on this backend. */
static enum hb_exactness demand(const struct hb_case *c, const struct hb_caps *caps,
                                enum hb_exactness e) {
    const struct hb_profile *prefill =
        &caps->profile[c->config.kernel_form][HB_PATH_PREFILL][c->config.act_dtype];
    switch (e) {
    case HB_EXACT_FP32:
        return c->config.state_dtype == HB_FP32 ? HB_EXACT : HB_BOUNDED;
    case HB_EXACT_SCAN:
        return prefill->chunked ? HB_BOUNDED : HB_EXACT;
    default:
        return e;
    }
}

/* 1 if the relation with these flags may say something about the case. */
static int is_about(const struct hb_transform *t, const struct hb_case *c,
                    const struct hb_capture *base) {
    const int has_one_formula =
        c->config.dt_clamp != HB_CLAMP_PREFILL && c->config.dt_clamp != HB_CLAMP_DECODE;
    return !(base->refused && !(t->flags & HB_REL_WITH_ERRORS)) &&
           !((t->flags & HB_REL_MOVES_KV) && !kv_complete(c)) &&
           !((t->flags & HB_REL_ONE_FORMULA) && !has_one_formula) &&
           !((t->flags & HB_REL_NO_RING) && c->config.ring_length > 0);
}

static const struct hb_transforms *const areas[] = {&hb_transforms_base, &hb_transforms_spec};

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
                       const struct hb_twist *twist, const struct hb_run_options *o,
                       const struct hb_capture *base, struct hb_verdict *v,
                       struct hb_run_stats *stats) {
    struct hb_capture capture = {0};
    (void)hb_run_once(backend, other, o, twist, &capture, v, stats);
    if (v->kind != HB_VERDICT_PASS) {
        size_t n = strlen(v->text);
        (void)snprintf(v->text + n, sizeof v->text - n, " [second run of relation %d, %s]",
                       t->number, relation_name(t->number));
    }
    const int32_t layer =
        (t->flags & HB_REL_ONLY_LAYER) ? c->config.relation_arg % c->config.n_layers : -1;
    if (v->kind == HB_VERDICT_PASS && !twist->nan_inputs &&
        ((t->flags & HB_REL_WITH_ERRORS) || !capture.refused)) {
        compare_outputs(t, base, &capture, layer, v);
        compare_states(t, base, &capture, layer, v);
    }
    hb_capture_free(&capture);
}

void hb_run_relation(const struct hb_adapter *backend, const struct hb_case *c,
                     const struct hb_run_options *o, const struct hb_capture *base,
                     struct hb_verdict *v, struct hb_run_stats *stats) {
    struct hb_transform t;
    struct hb_caps caps = {.struct_size = sizeof caps};
    if ((o->check_off & HB_OFF_RELATION) || !find_transform(c->config.relation, &t) ||
        !is_about(&t, c, base) || backend->describe(backend->ctx, &caps, NULL) != HB_OK) {
        return;
    }
    t.outputs = demand(c, &caps, t.outputs);
    t.state = demand(c, &caps, t.state);
    t.twist.base = base;
    t.twist.caps = &caps;
    struct hb_case *other = malloc(sizeof *other);
    if (!other) {
        hb_verdict_set(v, HB_VERDICT_ENVIRONMENT, "memory", "relation", 0, 0, "out of memory");
        return;
    }
    *other = *c;
    struct hb_twist twist = t.twist;
    if (t.apply(c, other, &twist)) {
        other->config.relation = 0;
        second_run(backend, &t, c, other, &twist, o, base, v, stats);
    }
    free(other);
}
