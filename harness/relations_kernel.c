/* SPDX-License-Identifier: Apache-2.0
 * Relations of the scan alone (invariants.md 62 to 66). They hold where the layer is its scan: the
 * window passes the current token (weights 0, .., 0, 1, no bias, no activation) and no gate or norm
 * follows. So the case is not compared with itself but run anew with such layers, and again with
 * other values; states and outputs of linear layers are compared. For fixed gates, keys and queries
 * each kind's map (x, S) -> (y, S') is linear, where x is v of the attention-like kinds.
 * relations_limits.c compares one run with what its values say. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/batch.h"
#include "harness/relations_kernel.h"

/* --- kinds ------------------------------------------------------------------------------------ */

#define BIT(number) (1u << ((number)-62))
enum { ALL = 31 };
/* Which of the relations say something of a kind. Lightning has no step: of its limits there is the
 * strong decay. A short convolution has no state, and neither it nor Mamba1 has groups. */
static const uint32_t numbers_of[HB_N_LAYER_KINDS] = {
    [HB_LAYER_MAMBA2] = ALL,
    [HB_LAYER_GDN] = ALL,
    [HB_LAYER_KDA] = ALL,
    [HB_LAYER_LIGHTNING] = ALL,
    [HB_LAYER_SHORT_CONV] = BIT(62) | BIT(63),
    [HB_LAYER_MAMBA1] = BIT(62) | BIT(63) | BIT(64) | BIT(65),
};

struct hb_scan_shape hb_scan_shape_of(const struct hb_case *c) {
    struct hb_config config;
    struct hb_ref_sizes sizes;
    hb_case_backend_config(c, &config);
    const int32_t kind = hb_case_linear_kind(&c->config);
    hb_ref_linear_sizes(&config, kind, &sizes);
    struct hb_scan_shape s = {.kind = kind,
                              .inner = config.n_heads * config.head_dim,
                              .dim = (int32_t)sizes.width[1],
                              .gates = (int32_t)sizes.width[2],
                              .channels = (int32_t)sizes.channels,
                              .columns = (int32_t)sizes.window,
                              .heads = config.n_heads,
                              .head_dim = config.head_dim,
                              .state = config.state_size,
                              .groups = config.n_groups,
                              .is_tiled = config.head_map == HB_HEADS_TILE};
    const int is_first = kind == HB_LAYER_MAMBA2 || kind == HB_LAYER_MAMBA1;
    s.x = is_first ? 0 : s.dim - s.inner;
    s.pairs = is_first ? s.inner : 0;
    return s;
}

/* --- values ----------------------------------------------------------------------------------- */

static void set_identity(int32_t n, int32_t taps, float *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = i % taps == taps - 1 ? 1.0f : 0.0f;
    }
}

/* The leading three bits of a significand. What they leave has fewer bits than the value: both
 * parts are representable wherever the value is. */
static float leading(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u &= 0xffe00000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

static float bend(const struct hb_scan_source *s, float x) {
    if (s->number == 62) {
        return ldexpf(x, s->log2_scale);
    }
    if (s->number == 63 && s->part == 1) {
        return leading(x);
    }
    return s->number == 63 && s->part == 2 ? x - leading(x) : x;
}

/* 66: channels of H groups from those of G: x as it is, group h of both vectors is that of head h.
 */
static void spread(const struct hb_scan_source *s, int32_t per_channel, float *out) {
    const struct hb_scan_shape *p = &s->shape;
    const int64_t per = per_channel;
    const int64_t x_to = p->x > 0 ? 2 * (int64_t)p->heads * p->state : 0;
    memcpy(out + x_to * per, s->scratch + p->x * per, (size_t)(p->inner * per) * sizeof *out);
    for (int32_t part = 0; part < 2; part++) {
        for (int32_t h = 0; h < p->heads; h++) {
            const int64_t to = p->pairs + ((int64_t)part * p->heads + h) * p->state;
            const int64_t from =
                p->pairs + ((int64_t)part * p->groups + hb_scan_group(p, h)) * p->state;
            memcpy(out + to * per, s->scratch + from * per,
                   (size_t)(p->state * per) * sizeof *out);
        }
    }
}

/* 64: softplus(-200) = 0 in fp32, and so is the sigmoid; exp(-0.1 * 2000) = 0. Lightning: the log
 * decay itself. */
static void set_steps(const struct hb_scan_source *s, int32_t n, float *out) {
    const struct hb_scan_shape *p = &s->shape;
    const int is_delta = p->kind == HB_LAYER_GDN || p->kind == HB_LAYER_KDA;
    const int32_t n_steps = is_delta                       ? p->gates - p->heads
                            : p->kind == HB_LAYER_MAMBA1 ? p->inner
                                                           : p->gates;
    for (int32_t i = 0; i < n_steps && i < n; i++) {
        out[i] = s->part == 0 ? -200.0f : 2000.0f;
        out[i] = p->kind == HB_LAYER_LIGHTNING ? -2000.0f : out[i];
    }
    for (int32_t i = n_steps; i < n && is_delta && s->part == 0; i++) {
        out[i] = -200.0f; /* beta */
    }
}

void hb_scan_fill(void *ctx, const struct hb_case *c, const struct hb_value_key *key, int32_t n,
                  float *out) {
    const struct hb_scan_source *s = ctx;
    const struct hb_scan_shape *p = &s->shape;
    const int is_conv = key->tensor == HB_TENSOR_INIT_CONV;
    const int is_channels = is_conv || key->tensor == HB_TENSOR_XBC;
    const int32_t per_channel = is_conv ? p->columns : 1;
    if (key->tensor == HB_TENSOR_CONV_WEIGHT) {
        set_identity(n, c->config.conv_width, out);
        return;
    }
    if (s->number == 66 && s->part == 1 && is_channels) {
        hb_values_fill(s->plain, key, p->dim * per_channel, s->scratch);
        spread(s, per_channel, out);
        return;
    }
    hb_values_fill(s->plain, key, n, out);
    if (s->number == 64 && key->tensor == HB_TENSOR_DT) {
        set_steps(s, n, out);
    }
    if (key->tensor != HB_TENSOR_INIT_SSM && !is_channels) {
        return;
    }
    /* the conv state of a short convolution has x in each channel, as B x */
    const int32_t first = is_conv ? (p->channels - p->dim + p->x) * per_channel : p->x;
    const int is_state = key->tensor == HB_TENSOR_INIT_SSM;
    const int32_t end = is_state ? n : first + p->inner * per_channel;
    for (int32_t i = is_state ? 0 : first; i < end && i < n; i++) {
        out[i] = bend(s, out[i]);
    }
}

/* --- runs ------------------------------------------------------------------------------------- */

static void make_plain(const struct hb_case *c, int32_t number, struct hb_case *out) {
    *out = *c;
    out->config.relation = 0;
    out->config.conv_act = HB_CONV_NONE;
    out->config.conv_bias = 0;
    out->config.gate_norm = HB_GATE_NORM_NONE;
    out->config.qkv_act = HB_QKV_NONE;
    if (number == 64) {
        out->config.dt_softplus = 1;
        out->config.dt_clamp = HB_CLAMP_NONE;
        out->config.gate_form = HB_GATE_STANDARD;
        out->config.beta_form = HB_BETA_SIGMOID;
        if (out->config.mixer == HB_MIXER_LIGHTNING) {
            out->config.slope_kind = HB_SLOPE_TOKEN;
            out->config.layer_factor = HB_FACTOR_NONE;
        }
        if (out->config.value_class == HB_VALUES_EXACT) { /* there A = 0 */
            out->config.value_class = HB_VALUES_ORDINARY;
        }
    }
}

/* One more run with values of the given part; 0 if it cannot be compared. */
static int make_run(struct hb_scan_run *k, const struct hb_case *c, int32_t part, int32_t log2_scale) {
    struct hb_scan_source *s = &k->source[k->n];
    struct hb_capture *capture = &k->capture[k->n];
    struct hb_run_options o = *k->o;
    const int32_t taps = k->plain->config.conv_width;
    *s = (struct hb_scan_source){.plain = k->plain,
                         .shape = hb_scan_shape_of(k->plain),
                         .number = k->number,
                         .part = part,
                         .log2_scale = log2_scale};
    s->scratch = malloc((size_t)s->shape.dim * (size_t)taps * sizeof *s->scratch);
    if (!s->scratch) {
        hb_verdict_set(k->v, HB_VERDICT_ENVIRONMENT, "memory", "relation", 0, 0, "out of memory");
        return 0;
    }
    const struct hb_value_source values = {.ctx = s, .fill = hb_scan_fill};
    o.values = &values;
    o.dump_dir = NULL;
    k->n++;
    (void)hb_run_once(k->backend, c, &o, NULL, capture, k->v, k->stats);
    if (k->stats && k->n == 1) {
        k->stats->second_runs++;
    }
    if (k->v->kind != HB_VERDICT_PASS) {
        const size_t n = strlen(k->v->text);
        (void)snprintf(k->v->text + n, sizeof k->v->text - n, " [run %d of relation %d]", k->n,
                       k->number);
        return 0;
    }
    return capture->refused == 0;
}

static int is_linear(const struct hb_scan_run *k, int32_t layer) {
    return !(k->plain->config.attn_mask >> layer & 1);
}

/* --- comparison of runs ----------------------------------------------------------------------- */

/* want and got are equal as the relation says; bound: of all runs together. Near the end of fp16's
 * range a power of two is not all of the difference. */
static int agrees(const struct hb_scan_run *k, double want, double got, double bound) {
    const double underflow = 0x1p-100;
    const int is_scaled = k->number == 62 && k->plain->config.act_dtype != HB_FP16;
    if (!isfinite(want) || !isfinite(got)) {
        return 1; /* the values were not finite: nothing is claimed */
    }
    if (is_scaled || (k->number == 66 && k->is_scan)) {
        return want == got || (fabs(want) < underflow && fabs(got) < underflow);
    }
    return fabs(want - got) <= bound;
}

/* The bound of the first run is multiplied as its value is. */
static double bound_of(const struct hb_scan_run *k, int32_t run, double bound) {
    return k->number == 62 && run == 0 ? ldexp(bound, k->log2_scale) : bound;
}

/* What the runs before must give for the last one: 62 a multiple, 63 the sum, 66 the same. */
static double combine(const struct hb_scan_run *k, const double *x) {
    return k->number == 63 ? x[1] + x[2] : ldexp(x[0], k->log2_scale);
}

static double result(const struct hb_scan_run *k, const double *x) {
    return k->number == 63 ? x[0] : x[1];
}

static void compare_item(const struct hb_scan_run *k, size_t i) {
    const struct hb_captured *x = &k->capture[0].item[i];
    for (int32_t r = 1; r < k->n; r++) {
        const struct hb_captured *y = &k->capture[r].item[i];
        if (y->stream != x->stream || y->pos != x->pos || y->branch != x->branch ||
            y->layer != x->layer || y->n != x->n) {
            hb_relation_fail(k->v, k->number, "missing output", x->layer, x->pos, 0, 0, 0, 0);
            return;
        }
    }
    for (int32_t j = 0; j < x->n; j++) {
        double got[HB_SCAN_RUNS] = {0};
        double bound = 0;
        for (int32_t r = 0; r < k->n; r++) {
            got[r] = (double)k->capture[r].item[i].got[j];
            bound += bound_of(k, r, k->capture[r].item[i].bound[j]);
        }
        if (!agrees(k, combine(k, got), result(k, got), bound)) {
            hb_relation_fail(k->v, k->number, "output", x->layer, x->pos, j, combine(k, got),
                             result(k, got), bound);
            return;
        }
    }
}

static void compare_slot(const struct hb_scan_run *k, int32_t name, int32_t l) {
    for (int32_t j = 0; j < k->capture[0].n_ssm; j++) {
        double got[HB_SCAN_RUNS] = {0};
        double bound = 0;
        for (int32_t r = 0; r < k->n; r++) {
            got[r] = (double)k->capture[r].slot[name].ssm[l][j];
            bound += bound_of(k, r, k->capture[r].slot[name].bound[l][j]);
        }
        if (!agrees(k, combine(k, got), result(k, got), bound)) {
            hb_relation_fail(k->v, k->number, "temporal state", l, k->capture[0].slot[name].pos, j,
                             combine(k, got), result(k, got), bound);
            return;
        }
    }
}

int hb_scan_has_state(const struct hb_scan_run *k, int32_t name, int32_t l) {
    for (int32_t r = 0; r < k->n; r++) {
        if (k->capture[r].slot[name].stream < 0 || !k->capture[r].slot[name].ssm[l]) {
            return 0;
        }
    }
    return 1;
}

static void compare_runs(const struct hb_scan_run *k) {
    size_t n = k->capture[0].n;
    for (int32_t r = 1; r < k->n; r++) {
        n = k->capture[r].n == n ? n : 0;
    }
    for (size_t i = 0; i < n && k->v->kind == HB_VERDICT_PASS; i++) {
        if (is_linear(k, k->capture[0].item[i].layer)) {
            compare_item(k, i);
        }
    }
    for (int32_t name = 0; name < HB_MAX_NAMES; name++) {
        for (int32_t l = 0; l < HB_MAX_LAYERS && k->v->kind == HB_VERDICT_PASS; l++) {
            if (hb_scan_has_state(k, name, l)) {
                compare_slot(k, name, l);
            }
        }
    }
}

/* --- the relations ---------------------------------------------------------------------------- */

static void run_all(struct hb_scan_run *k, struct hb_case *other) {
    const int32_t arg = k->plain->config.relation_arg;
    if (k->number == 64 || k->number == 65) {
        const int is_strong = arg % 2 || k->plain->config.mixer == HB_MIXER_LIGHTNING;
        if (make_run(k, other, k->number == 64 ? is_strong : 0, 0)) {
            hb_scan_check_limits(k);
        }
        return;
    }
    int ok = make_run(k, other, 0, 0);
    if (k->number == 62) {
        k->log2_scale = arg % 2 ? 1 + arg % 5 : -1 - arg % 5;
        ok = ok && make_run(k, other, 1, k->log2_scale);
    } else if (k->number == 63) {
        ok = ok && make_run(k, other, 1, 0) && make_run(k, other, 2, 0);
    } else {
        other->config.groups = other->config.heads;
        ok = ok && make_run(k, other, 1, 0);
    }
    if (ok) {
        compare_runs(k);
    }
}

int hb_relation_kernel(const struct hb_adapter *backend, const struct hb_case *c,
                       const struct hb_run_options *o, const struct hb_capture *base,
                       struct hb_verdict *v, struct hb_run_stats *stats) {
    const int32_t number = c->config.relation;
    struct hb_caps caps = {.struct_size = sizeof caps};
    if (number < 62 || number > 66) {
        return 0;
    }
    const int is_plain = hb_relation_is_plain(c) && !base->refused && !o->values && !o->params &&
                         !o->config;
    const int has_linear = (((1 << c->config.n_layers) - 1) & ~c->config.attn_mask) &&
                           (numbers_of[hb_case_linear_kind(&c->config)] & BIT(number));
    const int has_more_groups = number != 66 || c->config.groups < c->config.heads;
    if ((o->check_off & HB_OFF_RELATION) || !is_plain || !has_linear || !has_more_groups ||
        backend->describe(backend->ctx, &caps, NULL) != HB_OK) {
        return 1;
    }
    struct hb_case *cases = malloc(2 * sizeof *cases);
    struct hb_scan_run *k = calloc(1, sizeof *k);
    if (cases && k) {
        make_plain(c, number, &cases[0]);
        cases[1] = cases[0];
        *k = (struct hb_scan_run){.backend = backend,
                           .o = o,
                           .plain = &cases[0],
                           .v = v,
                           .stats = stats,
                           .number = number,
                           .is_scan = !caps.profile[c->config.kernel_form][HB_PATH_PREFILL]
                                                   [c->config.act_dtype].chunked};
        run_all(k, &cases[1]);
        for (int32_t r = 0; r < k->n; r++) {
            hb_capture_free(&k->capture[r]);
            free(k->source[r].scratch);
        }
    } else {
        hb_verdict_set(v, HB_VERDICT_ENVIRONMENT, "memory", "relation", 0, 0, "out of memory");
    }
    free(k);
    free(cases);
    return 1;
}
