/* SPDX-License-Identifier: Apache-2.0
 * The relations of invariants.md: a table, and for those that need a second run the transformation
 * of the case and the comparison of both runs. Outputs are matched by (stream, position, layer),
 * states by slot name, so a transformation may cut, merge or reorder forwards freely. E compares
 * bytes, T compares with the sum of both bounds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/relations_internal.h"

/* EXACT_FP32: exact where states are stored in fp32, and so nothing is lost by storing one. */
enum exactness { EXACT, BOUNDED, EXACT_FP32 };

/* A transformation returns 0 when the relation says nothing about this case. */
struct transform {
    int32_t number;
    enum exactness outputs, state;
    int (*apply)(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist);
    int32_t with_errors; /* 1: also says something where calls are refused */
    int32_t moves_kv;    /* 1: tokens get other KV slots: none may be read that was never written */
    int32_t skip_tracked; /* track slots may differ */
    int32_t only_layer;   /* 1: compare layer relation_arg % n_layers only */
    int32_t is_subset;    /* 1: the transformed run makes some of the outputs only */
    struct hb_twist twist; /* what differs beyond the case; apply may add to it */
};

static int is_forward(const struct hb_case_step *s) {
    return s->kind == HB_STEP_FORWARD;
}

static int is_extend_mode(int32_t mode) {
    return mode == HB_MODE_EXTEND || mode == HB_MODE_MIXED || mode == HB_MODE_SPLIT_PREFILL ||
           mode == HB_MODE_DLLM_EXTEND;
}

static int has_track(const struct hb_case_step *s) {
    for (int32_t i = 0; i < s->n_rows; i++) {
        if (s->row[i].track) {
            return 1;
        }
    }
    return 0;
}

static int has_restart(const struct hb_case *c) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        if (c->step[i].kind == HB_STEP_TAKE && c->step[i].from >= 0) {
            return 1;
        }
    }
    return 0;
}

/* 1 if every step that consumes tokens runs every attention layer. A layer that is left out gets no
 * KV entries, and its later outputs depend on what happens to lie in their place. */
static int kv_complete(const struct hb_case *c) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        int32_t left_out = is_forward(s) ? s->layer_mask : ~(1 << (s->layer & 31));
        const int consumes = is_forward(s) || s->kind == HB_STEP_ENTRY;
        if (consumes && s->n_rows > 0 && (left_out & c->config.attn_mask)) {
            return 0;
        }
    }
    return 1;
}

int hb_relation_is_plain(const struct hb_case *c) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        if (c->step[i].kind == HB_STEP_COPY) {
            return 0;
        }
    }
    return c->n_breaks == 0;
}

/* The same case; the twist of the table's row does the rest. */
static int same_case(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)out;
    (void)twist;
    return hb_relation_is_plain(c);
}

static int add_padding(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step *s = &out->step[i];
        if (is_forward(s) && s->n_rows + s->pad_rows + 2 <= HB_MAX_ROWS) {
            s->pad_rows += 1 + c->config.relation_arg % 2;
            any = 1;
        }
    }
    out->config.unread = HB_UNREAD_NAN;
    return any && hb_relation_is_plain(c);
}

static int layer_alone(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int32_t keep = c->config.relation_arg % c->config.n_layers;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step *s = &out->step[i];
        if (is_forward(s)) {
            s->layer_mask |= ((1 << c->config.n_layers) - 1) & ~(1 << keep);
            if (c->step[i].layer_mask >> keep & 1) {
                return 0;
            }
        }
    }
    return hb_relation_is_plain(c) && c->config.n_layers > 1;
}

static int permute_decode(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step *s = &out->step[i];
        if (!is_forward(s) || s->mode != HB_MODE_DECODE || s->n_rows < 2) {
            continue;
        }
        int32_t by = 1 + c->config.relation_arg % (s->n_rows - 1);
        for (int32_t k = 0; k < s->n_rows; k++) {
            s->row[k] = c->step[i].row[(k + by) % s->n_rows];
        }
        any = 1;
    }
    return any && hb_relation_is_plain(c);
}

int hb_relation_append(struct hb_case *out, const struct hb_case_step *s) {
    if (out->n_steps >= HB_MAX_STEPS) {
        return 0;
    }
    out->step[out->n_steps++] = *s;
    return 1;
}

static int split_decode(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    out->n_steps = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step s = c->step[i];
        if (!is_forward(&s) || s.mode != HB_MODE_DECODE || s.n_rows < 2) {
            if (!hb_relation_append(out, &s)) {
                return 0;
            }
            continue;
        }
        for (int32_t k = 0; k < c->step[i].n_rows; k++) {
            s.n_rows = 1;
            s.row[0] = c->step[i].row[k];
            if (!hb_relation_append(out, &s)) {
                return 0;
            }
        }
        any = 1;
    }
    return any && hb_relation_is_plain(c);
}

/* extend(n) == extend(n1); extend(n2), cut anywhere, also shorter than the conv window. */
static int split_extend(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    out->n_steps = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (!is_forward(s) || !is_extend_mode(s->mode) || s->n_decode > 0 || has_track(s)) {
            if (!hb_relation_append(out, s)) {
                return 0;
            }
            continue;
        }
        struct hb_case_step first = *s;
        struct hb_case_step second = *s;
        second.n_rows = 0;
        for (int32_t k = 0; k < s->n_rows; k++) {
            int32_t n = s->row[k].length;
            int32_t cut = n > 1 ? 1 + (c->config.relation_arg + k) % (n - 1) : 1;
            first.row[k].length = cut;
            if (n > cut) {
                second.row[second.n_rows] = s->row[k];
                second.row[second.n_rows++].length = n - cut;
            }
        }
        if (!hb_relation_append(out, &first) ||
            (second.n_rows > 0 && !hb_relation_append(out, &second))) {
            return 0;
        }
        any |= second.n_rows > 0;
    }
    return any && hb_relation_is_plain(c);
}

/* MIXED == EXTEND of the prefill rows, then DECODE of the others (both shapes). */
static int split_mixed(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    out->n_steps = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (!is_forward(s) || s->mode != HB_MODE_MIXED || has_track(s)) {
            if (!hb_relation_append(out, s)) {
                return 0;
            }
            continue;
        }
        int32_t n_decode = s->n_decode < s->n_rows ? s->n_decode : s->n_rows;
        int32_t np = s->n_rows - n_decode;
        while (n_decode == 0 && np > 0 && s->row[np - 1].length == 1) {
            np--; /* shape M1: trailing rows of length 1 */
        }
        struct hb_case_step extend = *s;
        struct hb_case_step decode = *s;
        extend.mode = HB_MODE_EXTEND;
        extend.n_rows = np;
        extend.n_decode = 0;
        decode.mode = HB_MODE_DECODE;
        decode.n_decode = 0;
        decode.n_rows = s->n_rows - np;
        for (int32_t k = 0; k < decode.n_rows; k++) {
            decode.row[k] = s->row[np + k];
        }
        if ((extend.n_rows > 0 && !hb_relation_append(out, &extend)) ||
            (decode.n_rows > 0 && !hb_relation_append(out, &decode))) {
            return 0;
        }
        any |= extend.n_rows > 0 && decode.n_rows > 0;
    }
    return any && hb_relation_is_plain(c);
}

static int tracking_off(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        for (int32_t k = 0; k < out->step[i].n_rows; k++) {
            any |= out->step[i].row[k].track;
            out->step[i].row[k].track = 0;
        }
    }
    return any && hb_relation_is_plain(c) && !has_restart(c);
}

/* All-false mask == no mask; one row's bit changes only that row's destination. */
static int mask_bits(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step *s = &out->step[i];
        if (!is_forward(s) || s->n_rows == 0) {
            continue;
        }
        if (!has_track(s)) {
            s->optional ^= 8;
            any = 1;
        } else if (!has_restart(c)) {
            s->row[c->config.relation_arg % s->n_rows].track = 0;
            any = 1;
        }
    }
    return any && hb_relation_is_plain(c);
}

static const struct transform transforms[] = {
    {8, EXACT, EXACT, same_case, 1, 0, 0, 0, 0, {.insert_fail = 1}},
    {10, EXACT, EXACT, same_case, 1, 0, 0, 0, 0, {.nan_inputs = 1}},
    {11, EXACT, EXACT, same_case, 1, 0, 0, 0, 0, {.nan_pool = 1}},
    {12, EXACT, EXACT, add_padding, 0, 1, 0, 0, 0, {0}},
    {14, EXACT, EXACT, same_case, 1, 0, 0, 0, 0, {.nan_fresh = 1}},
    {17, EXACT, EXACT, layer_alone, 0, 0, 0, 1, 0, {0}},
    {22, EXACT, EXACT, permute_decode, 0, 1, 0, 0, 0, {0}},
    {23, EXACT, EXACT, split_decode, 0, 1, 0, 0, 0, {0}},
    {26, BOUNDED, BOUNDED, split_extend, 0, 1, 0, 0, 0, {0}},
    {27, BOUNDED, BOUNDED, split_extend, 0, 1, 0, 0, 0, {0}}, /* the conv part of 26 is always exact */
    {30, BOUNDED, BOUNDED, split_mixed, 0, 1, 0, 0, 0, {0}},
    {37, EXACT, EXACT, tracking_off, 0, 0, 1, 0, 0, {0}},
    {40, EXACT, EXACT, mask_bits, 0, 0, 1, 0, 0, {0}},
    {50, EXACT, EXACT, hb_relation_verify_twice, 0, 1, 0, 0, 0, {0}},
    {51, BOUNDED, BOUNDED, hb_relation_verify_decode, 0, 1, 0, 0, 1, {0}},
    {54, EXACT_FP32, EXACT_FP32, hb_relation_link_chains, 0, 0, 0, 0, 0, {0}},
    {55, EXACT, EXACT, hb_relation_nan_rejected, 0, 0, 0, 0, 0, {0}},
    {56, EXACT, EXACT, hb_relation_commit_parts, 0, 0, 0, 0, 0, {0}},
    {58, EXACT, EXACT, hb_relation_fill_rows, 0, 1, 0, 0, 0, {0}},
};

/* 50: that a verify leaves the pools as they are is compared in every verify (verify.pool). 52, 53,
 * 57: compared in every case, since the oracle computes each node on the path from the root, and
 * each commit is a copy of what it judged. 59 speaks of a second, deduplicated layout of the
 * windows, which no backend here has: there is one layout to compare. */
static const struct hb_relation relations[] = {
    {1, "error.invalid_mode", "S", "test_relations: relation_1_fires", 1},
    {3, "error.child_entry", "S", "test_relations: relation_3_fires", 1},
    {4, "error.purity", "E", "test_relations: relation_4_fires", 1},
    {5, "error.mode_first", "S", "test_relations: relation_5_fires", 1},
    {7, "batch.written", "E", "test_relations: relation_7_fires", 1},
    {8, "error.no_trace", "E", "test_relations: relation_8_fires", 0},
    {10, "error.value_free", "S", "test_relations: relation_10_fires", 0},
    {11, "state.neighbour", "E", "test_relations: relation_11_fires", 0},
    {12, "batch.padding_rows", "E", "test_relations: relation_12_fires", 0},
    {13, "mode.idle", "E", "test_relations: relation_13_fires", 1},
    {14, "state.fresh_row", "E", "test_relations: relation_14_fires", 0},
    {17, "layer.independent", "E", "test_relations: relation_17_fires", 0},
    {19, "slot.invalid", "S", "test_relations: relation_19_fires", 1},
    {22, "decode.permutation", "E", "test_relations: relation_22_fires", 0},
    {23, "decode.one_by_one", "E", "test_relations: relation_23_fires", 0},
    {26, "extend.split", "T", "test_relations: relation_26_fires", 0},
    {27, "extend.split_conv", "E", "test_relations: relation_27_fires", 0},
    {30, "mixed.separate", "T", "test_relations: relation_30_fires", 0},
    {37, "track.invisible", "E", "test_relations: relation_37_fires", 0},
    {38, "track.law", "E T", "test_relations: relation_38_fires", 1},
    {40, "track.mask_bits", "E", "test_relations: relation_40_fires", 0},
    {44, "track.invalid", "S E", "test_relations: relation_44_fires", 1},
    {50, "verify.repeat", "E", "test_relations_spec: relation_50_fires", 0},
    {51, "verify.decode", "E T", "test_relations_spec: relation_51_fires", 0},
    {52, "verify.intermediate", "E T", "test_relations_spec: relation_52_fires", 1},
    {53, "verify.tree_path", "E T", "test_relations_spec: relation_53_fires", 1},
    {54, "verify.linked_chain", "E T", "test_relations_spec: relation_54_fires", 0},
    {55, "verify.rejected", "E", "test_relations_spec: relation_55_fires", 0},
    {56, "commit.repeat", "E", "test_relations_spec: relation_56_fires", 0},
    {57, "commit.track", "E T", "test_relations_spec: relation_57_fires", 1},
    {58, "verify.ragged", "E", "test_relations_spec: relation_58_fires", 0},
};

int hb_relations(const struct hb_relation **out) {
    *out = relations;
    return (int)(sizeof relations / sizeof *relations);
}

static const char *relation_name(int32_t number) {
    for (size_t i = 0; i < sizeof relations / sizeof *relations; i++) {
        if (relations[i].number == number) {
            return relations[i].name;
        }
    }
    return "relation";
}

static int same_bits(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

/* 1 if the values may be called equal. */
static int agree(enum exactness e, double a, double bound_a, double b, double bound_b) {
    if (e == EXACT || !isfinite(a) || !isfinite(b)) {
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
static struct hb_captured *counterpart(const struct transform *t, const struct hb_capture *in,
                                       const struct hb_captured *x) {
    const int is_swapped =
        t->apply == hb_relation_link_chains &&
        (x->is_verify == HB_DRAFT_CHAIN || x->is_verify == HB_DRAFT_LINKED_CHAIN);
    const int32_t kind =
        is_swapped ? HB_DRAFT_CHAIN + HB_DRAFT_LINKED_CHAIN - x->is_verify : x->is_verify;
    for (size_t k = 0; k < in->n; k++) {
        struct hb_captured *y = &in->item[k];
        if (y->request == x->request && y->stream == x->stream && y->pos == x->pos &&
            y->branch == x->branch && y->layer == x->layer &&
            (t->is_subset || (y->is_verify == kind && y->start == x->start))) {
            return y;
        }
    }
    return NULL;
}

/* a: of the case itself, b: of the transformed run. */
static void compare_outputs(const struct transform *t, const struct hb_capture *a,
                            const struct hb_capture *b, int32_t layer, struct hb_verdict *v) {
    const struct hb_capture *from = t->is_subset ? b : a;
    for (size_t i = 0; i < from->n && v->kind == HB_VERDICT_PASS; i++) {
        const struct hb_captured *x = &from->item[i];
        if (layer >= 0 && x->layer != layer) {
            continue;
        }
        struct hb_captured *y = counterpart(t, t->is_subset ? a : b, x);
        if (!y) {
            fail(v, t->number, "missing output", x->layer, x->pos, 0, 0, 0, 0);
            return;
        }
        const struct hb_captured *first = t->is_subset ? y : x;
        const struct hb_captured *second = t->is_subset ? x : y;
        for (int32_t j = 0; j < x->n; j++) {
            const double p = (double)first->got[j];
            const double q = (double)second->got[j];
            if (!agree(t->outputs, p, first->bound[j], q, second->bound[j])) {
                fail(v, t->number, "output", x->layer, x->pos, j, p, q,
                     t->outputs == EXACT ? 0 : x->bound[j] + y->bound[j]);
                return;
            }
        }
        y->stream = -2 - y->stream;
    }
}

static void compare_states(const struct transform *t, const struct hb_capture *a,
                           const struct hb_capture *b, int32_t layer, struct hb_verdict *v) {
    for (int32_t k = 0; k < HB_MAX_NAMES && v->kind == HB_VERDICT_PASS; k++) {
        if (a->slot[k].stream < 0 || (t->skip_tracked && a->slot[k].is_track)) {
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
                    fail(v, t->number == 26 ? 27 : t->number, "conv state", l, a->slot[k].pos, j, x,
                         y, 0);
                    return;
                }
            }
            for (int32_t j = 0; j < a->n_ssm && t->number != 27; j++) {
                double x = (double)a->slot[k].ssm[l][j];
                double y = (double)b->slot[k].ssm[l][j];
                double bx = a->slot[k].bound[l][j];
                double by = b->slot[k].bound[l][j];
                if (!agree(t->state, x, bx, y, by)) {
                    fail(v, t->number, "temporal state", l, a->slot[k].pos, j, x, y,
                         t->state == EXACT ? 0 : bx + by);
                    return;
                }
            }
        }
    }
}

static enum exactness exactness_of(const struct hb_case *c, enum exactness e) {
    if (e == EXACT_FP32) {
        return c->config.state_dtype == HB_FP32 ? EXACT : BOUNDED;
    }
    return e;
}

/* With limits of the time step on one path only, a prefill and a decode of one token are different formulas. */
static int crosses_paths(const struct transform *t) {
    return t->number == 30 || t->number == 51;
}

static int one_formula(const struct hb_case *c) {
    return c->config.dt_clamp != HB_CLAMP_PREFILL && c->config.dt_clamp != HB_CLAMP_DECODE;
}

void hb_run_relation(const struct hb_adapter *backend, const struct hb_case *c,
                     const struct hb_run_options *o, const struct hb_capture *base,
                     struct hb_verdict *v, struct hb_run_stats *stats) {
    struct transform found = {0};
    const struct transform *t = &found;
    for (size_t i = 0; i < sizeof transforms / sizeof *transforms; i++) {
        if (transforms[i].number == c->config.relation) {
            found = transforms[i];
        }
    }
    found.outputs = exactness_of(c, found.outputs);
    found.state = exactness_of(c, found.state);
    if (!t->apply || (o->check_off & HB_OFF_RELATION) || (base->refused && !t->with_errors) ||
        (t->moves_kv && !kv_complete(c)) || (crosses_paths(t) && !one_formula(c))) {
        return;
    }
    struct hb_case *other = malloc(sizeof *other);
    if (!other) {
        hb_verdict_set(v, HB_VERDICT_ENVIRONMENT, "memory", "relation", 0, 0, "out of memory");
        return;
    }
    *other = *c;
    struct hb_twist twist = t->twist;
    struct hb_capture capture = {0};
    if (t->apply(c, other, &twist)) {
        other->config.relation = 0;
        (void)hb_run_once(backend, other, o, &twist, &capture, v, stats);
        if (v->kind != HB_VERDICT_PASS) {
            size_t n = strlen(v->text);
            (void)snprintf(v->text + n, sizeof v->text - n, " [second run of relation %d, %s]",
                           t->number, relation_name(t->number));
        }
        int32_t layer = t->only_layer ? c->config.relation_arg % c->config.n_layers : -1;
        if (v->kind == HB_VERDICT_PASS && !twist.nan_inputs &&
            (t->with_errors || !capture.refused)) {
            compare_outputs(t, base, &capture, layer, v);
            compare_states(t, base, &capture, layer, v);
        }
    }
    hb_capture_free(&capture);
    free(other);
}
