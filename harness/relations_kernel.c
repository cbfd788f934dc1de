/* SPDX-License-Identifier: Apache-2.0
 * Relations of the scan alone (invariants.md 62 to 66). They hold where the layer is its scan: the
 * window passes the current token (weights 0, .., 0, 1, no bias, no activation) and no gate or norm
 * follows. So the case is not compared with itself but run anew with such layers, and again with
 * other values; states and outputs of Mamba2 layers are compared. With y = C.S + D x and
 * S' = exp(A dt) S + dt x B the map (x, S) -> (y, S') is linear for fixed dt, B, C. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/batch.h"
#include "harness/relations_internal.h"

enum { MAX_RUNS = 3, POSITION_BITS = 20 };

/* --- sizes ------------------------------------------------------------------------------------ */

struct shape {
    int32_t inner, dim, width, heads, head_dim, state, groups;
};

static struct shape shape_of(const struct hb_case *c) {
    const struct hb_case_config *g = &c->config;
    struct shape s = {.inner = g->heads * g->head_dim,
                      .width = g->conv_width - 1,
                      .heads = g->heads,
                      .head_dim = g->head_dim,
                      .state = g->state_size,
                      .groups = g->groups};
    s.dim = s.inner + 2 * s.groups * s.state;
    return s;
}

/* --- values ----------------------------------------------------------------------------------- */

/* Where one run gets its values from. */
struct source {
    const struct hb_case *plain; /* whose values are bent: 66 has other groups than the run */
    struct shape shape;          /* of plain */
    int32_t number, part;
    int32_t log2_scale;          /* 62 */
    float *scratch;              /* [dim * max(1, W)] of plain */
};

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

static float bend(const struct source *s, float x) {
    if (s->number == 62) {
        return ldexpf(x, s->log2_scale);
    }
    if (s->number == 63 && s->part == 1) {
        return leading(x);
    }
    return s->number == 63 && s->part == 2 ? x - leading(x) : x;
}

/* 66: channels of H groups from those of G: x as it is, group h of B and of C is that of head h. */
static void spread(const struct source *s, int32_t per_channel, float *out) {
    const struct shape *p = &s->shape;
    const int32_t per_group = p->heads / p->groups;
    memcpy(out, s->scratch, (size_t)p->inner * (size_t)per_channel * sizeof *out);
    for (int32_t part = 0; part < 2; part++) {
        for (int32_t h = 0; h < p->heads; h++) {
            const int32_t to = p->inner + (part * p->heads + h) * p->state;
            const int32_t from = p->inner + (part * p->groups + h / per_group) * p->state;
            memcpy(out + (int64_t)to * per_channel, s->scratch + (int64_t)from * per_channel,
                   (size_t)p->state * (size_t)per_channel * sizeof *out);
        }
    }
}

static void fill(void *ctx, const struct hb_case *c, const struct hb_value_key *key, int32_t n,
                 float *out) {
    const struct source *s = ctx;
    const int is_conv = key->tensor == HB_TENSOR_INIT_CONV;
    const int is_channels = is_conv || key->tensor == HB_TENSOR_XBC;
    const int32_t per_channel = is_conv ? s->shape.width : 1;
    if (key->tensor == HB_TENSOR_CONV_WEIGHT) {
        set_identity(n, c->config.conv_width, out);
        return;
    }
    if (s->number == 64 && key->tensor == HB_TENSOR_DT) {
        for (int32_t i = 0; i < n; i++) { /* softplus(-200) = 0 in fp32; exp(-0.1 * 2000) = 0 */
            out[i] = s->part == 0 ? -200.0f : 2000.0f;
        }
        return;
    }
    if (s->number == 66 && s->part == 1 && is_channels) {
        hb_values_fill(s->plain, key, s->shape.dim * per_channel, s->scratch);
        spread(s, per_channel, out);
        return;
    }
    hb_values_fill(s->plain, key, n, out);
    const int32_t n_bent = is_channels ? s->shape.inner * per_channel
                           : key->tensor == HB_TENSOR_INIT_SSM ? n
                                                               : 0;
    for (int32_t i = 0; i < n_bent && i < n; i++) {
        out[i] = bend(s, out[i]);
    }
}

/* --- runs ------------------------------------------------------------------------------------- */

struct runs {
    const struct hb_adapter *backend;
    const struct hb_run_options *o;
    const struct hb_case *plain; /* the case with layers that are their scan */
    struct hb_verdict *v;
    struct hb_run_stats *stats;
    int32_t number, log2_scale, is_scan;
    struct source source[MAX_RUNS];
    struct hb_capture capture[MAX_RUNS];
    int32_t n;
};

static void make_plain(const struct hb_case *c, int32_t number, struct hb_case *out) {
    *out = *c;
    out->config.relation = 0;
    out->config.conv_act = HB_CONV_NONE;
    out->config.conv_bias = 0;
    out->config.gate_norm = HB_GATE_NORM_NONE;
    if (number == 64) {
        out->config.dt_softplus = 1;
        out->config.dt_clamp = HB_CLAMP_NONE;
        if (out->config.value_class == HB_VALUES_EXACT) { /* there A = 0 */
            out->config.value_class = HB_VALUES_ORDINARY;
        }
    }
}

/* One more run with values of the given part; 0 if it cannot be compared. */
static int make_run(struct runs *k, const struct hb_case *c, int32_t part, int32_t log2_scale) {
    struct source *s = &k->source[k->n];
    struct hb_capture *capture = &k->capture[k->n];
    struct hb_run_options o = *k->o;
    const int32_t taps = k->plain->config.conv_width;
    *s = (struct source){.plain = k->plain,
                         .shape = shape_of(k->plain),
                         .number = k->number,
                         .part = part,
                         .log2_scale = log2_scale};
    s->scratch = malloc((size_t)s->shape.dim * (size_t)taps * sizeof *s->scratch);
    if (!s->scratch) {
        hb_verdict_set(k->v, HB_VERDICT_ENVIRONMENT, "memory", "relation", 0, 0, "out of memory");
        return 0;
    }
    const struct hb_value_source values = {.ctx = s, .fill = fill};
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

static int is_mamba(const struct runs *k, int32_t layer) {
    return !(k->plain->config.attn_mask >> layer & 1);
}

/* --- comparison of runs ----------------------------------------------------------------------- */

/* want and got are equal as the relation says. bound: of all runs together. */
static int agrees(const struct runs *k, double want, double got, double bound) {
    const double underflow = 0x1p-100; /* where a power of two is not all of the difference */
    if (!isfinite(want) || !isfinite(got)) {
        return 1; /* the values were not finite: nothing is claimed */
    }
    if (k->number == 62 || (k->number == 66 && k->is_scan)) {
        return want == got || (fabs(want) < underflow && fabs(got) < underflow);
    }
    return fabs(want - got) <= bound;
}

/* What the runs before must give for the last one: 62 a multiple, 63 the sum, 66 the same. */
static double combine(const struct runs *k, const double *x) {
    return k->number == 63 ? x[1] + x[2] : ldexp(x[0], k->log2_scale);
}

static double result(const struct runs *k, const double *x) {
    return k->number == 63 ? x[0] : x[1];
}

static void compare_item(const struct runs *k, size_t i) {
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
        double got[MAX_RUNS] = {0};
        double bound = 0;
        for (int32_t r = 0; r < k->n; r++) {
            got[r] = (double)k->capture[r].item[i].got[j];
            bound += k->capture[r].item[i].bound[j];
        }
        if (!agrees(k, combine(k, got), result(k, got), bound)) {
            hb_relation_fail(k->v, k->number, "output", x->layer, x->pos, j, combine(k, got),
                             result(k, got), bound);
            return;
        }
    }
}

static void compare_slot(const struct runs *k, int32_t name, int32_t l) {
    for (int32_t j = 0; j < k->capture[0].n_ssm; j++) {
        double got[MAX_RUNS] = {0};
        double bound = 0;
        for (int32_t r = 0; r < k->n; r++) {
            got[r] = (double)k->capture[r].slot[name].ssm[l][j];
            bound += k->capture[r].slot[name].bound[l][j];
        }
        if (!agrees(k, combine(k, got), result(k, got), bound)) {
            hb_relation_fail(k->v, k->number, "temporal state", l, k->capture[0].slot[name].pos, j,
                             combine(k, got), result(k, got), bound);
            return;
        }
    }
}

static int has_state(const struct runs *k, int32_t name, int32_t l) {
    for (int32_t r = 0; r < k->n; r++) {
        if (k->capture[r].slot[name].stream < 0 || !k->capture[r].slot[name].ssm[l]) {
            return 0;
        }
    }
    return 1;
}

static void compare_runs(const struct runs *k) {
    size_t n = k->capture[0].n;
    for (int32_t r = 1; r < k->n; r++) {
        n = k->capture[r].n == n ? n : 0;
    }
    for (size_t i = 0; i < n && k->v->kind == HB_VERDICT_PASS; i++) {
        if (is_mamba(k, k->capture[0].item[i].layer)) {
            compare_item(k, i);
        }
    }
    for (int32_t name = 0; name < HB_MAX_NAMES; name++) {
        for (int32_t l = 0; l < HB_MAX_LAYERS && k->v->kind == HB_VERDICT_PASS; l++) {
            if (has_state(k, name, l)) {
                compare_slot(k, name, l);
            }
        }
    }
}

/* --- one run against what its values say ------------------------------------------------------ */

/* Tokens that the request had when it was taken; -1: no such stream. Streams count the takes of a
 * request. */
static int64_t prefix_of(const struct hb_case *c, int32_t stream) {
    int32_t generation[HB_MAX_REQS] = {0};
    for (int32_t i = 0; i < c->n_steps; i++) {
        if (c->step[i].kind == HB_STEP_TAKE && c->step[i].match >= 0) {
            return -1; /* streams shared through the prefix cache: one may have begun at zero */
        }
    }
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (s->kind == HB_STEP_TAKE && !s->slot_kind) {
            const int32_t request = s->request & (HB_MAX_REQS - 1);
            if (stream == request + HB_MAX_REQS * generation[request]++) {
                return s->from >= 0 || s->match >= 0 ? 0 : s->prefix;
            }
        }
    }
    return -1;
}

/* Values of one run again. numbers: room for init [H, P, N] and for xbc [dim] and dt [H] of a
 * token, A, dt_bias and D. */
struct again {
    const struct runs *k;
    struct shape s;
    int32_t layer;
    float *init, *xbc, *dt, *bias, *d;
};

static void draw(const struct again *a, int32_t tensor, int32_t stream, int64_t position, int32_t n,
                 float *out) {
    const struct hb_value_key key = {
        .tensor = tensor, .stream = stream, .layer = a->layer, .position = position};
    fill((void *)&a->k->source[0], a->k->plain, &key, n, out);
}

static void open_layer(struct again *a, int32_t layer, int32_t stream) {
    const int32_t n = a->s.inner * a->s.state;
    a->layer = layer;
    memset(a->init, 0, (size_t)n * sizeof *a->init);
    if (prefix_of(a->k->plain, stream) > 0) {
        draw(a, HB_TENSOR_INIT_SSM, stream, 0, n, a->init);
    }
    memset(a->bias, 0, (size_t)a->s.heads * sizeof *a->bias);
    memset(a->d, 0, (size_t)a->s.heads * sizeof *a->d);
    if (a->k->plain->config.dt_bias) {
        draw(a, HB_TENSOR_DT_BIAS, 0, 0, a->s.heads, a->bias);
    }
    if (!a->k->plain->config.skip_d) {
        draw(a, HB_TENSOR_D, 0, 0, a->s.heads, a->d);
    }
}

static void draw_token(const struct again *a, int32_t stream, int64_t pos, int64_t branch) {
    const int64_t position = pos + (branch << POSITION_BITS);
    draw(a, HB_TENSOR_XBC, stream, position, a->s.dim, a->xbc);
    draw(a, HB_TENSOR_DT, stream, position, a->s.heads, a->dt);
}

/* Column n of B (part 0) or C (part 1) for a head. */
static double column(const struct again *a, int32_t part, int32_t head, int32_t n) {
    const int32_t group = head / (a->s.heads / a->s.groups);
    return (double)a->xbc[a->s.inner + (part * a->s.groups + group) * a->s.state + n];
}

/* 64, first limit: y = C.S0 + D x. */
static void check_frozen_output(const struct again *a, const struct hb_captured *x) {
    draw_token(a, x->stream, x->pos, x->branch);
    for (int32_t j = 0; j < x->n; j++) {
        const int32_t head = j / a->s.head_dim;
        double want = (double)a->d[head] * (double)a->xbc[j];
        for (int32_t n = 0; n < a->s.state; n++) {
            want += column(a, 1, head, n) * (double)a->init[(int64_t)j * a->s.state + n];
        }
        if (!agrees(a->k, want, (double)x->got[j], x->bound[j])) {
            hb_relation_fail(a->k->v, 64, "output", x->layer, x->pos, j, want, (double)x->got[j],
                             x->bound[j]);
            return;
        }
    }
}

/* 1 if every forward runs the layer, so that a slot holds the state that its label says; else a
 * checkpoint may hold another stream's. */
static int always_runs(const struct hb_case *c, int32_t layer) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        const int is_partial = s->kind == HB_STEP_FORWARD || s->kind == HB_STEP_CAPTURE;
        if ((s->kind == HB_STEP_ENTRY && s->n_rows > 0) ||
            (is_partial && (s->layer_mask >> layer & 1))) {
            return 0;
        }
    }
    return 1;
}

static double softplus(double x) {
    return x > 30 ? x : log1p(exp(x));
}

/* Largest time step of the token's head on any path. */
static double step_of(const struct again *a, const struct hb_config *g, int32_t head) {
    const double raw = (double)a->dt[head] + (double)a->bias[head];
    const double dt = fabs(g->dt_softplus ? softplus(raw) : raw);
    const int32_t clamp[2] = {g->dt_clamp_prefill, g->dt_clamp_decode};
    double most = 0;
    for (int p = 0; p < 2; p++) {
        double x = dt;
        x = clamp[p] != HB_DT_CLAMP_NONE ? fmax(x, (double)g->dt_lo) : x;
        x = clamp[p] == HB_DT_CLAMP_LIMIT ? fmin(x, (double)g->dt_hi) : x;
        most = fmax(most, x);
    }
    return most;
}

/* The state of a slot against |S0| + sum of dt |x| |B| over the request's tokens (65), against S0
 * or against dt x B of the last token (64). sum [H, P, N]. */
static void check_state(const struct again *a, const struct hb_config *g, int32_t name,
                        double *sum) {
    const struct hb_capture *cap = &a->k->capture[0];
    const int32_t stream = cap->slot[name].stream;
    const int64_t pos = cap->slot[name].pos;
    const int64_t prefix = prefix_of(a->k->plain, stream);
    const int is_bound = a->k->number == 65;
    const int is_last = !is_bound && a->k->source[0].part == 1;
    if ((is_bound && cap->slot[name].branch != 0) || (is_last && pos <= prefix)) {
        return;
    }
    for (int32_t i = 0; i < cap->n_ssm; i++) {
        sum[i] = is_last ? 0.0 : is_bound ? fabs((double)a->init[i]) : (double)a->init[i];
    }
    for (int64_t t = is_last ? pos - 1 : prefix; t < pos && (is_last || is_bound); t++) {
        draw_token(a, stream, t, cap->slot[name].branch);
        for (int32_t i = 0; i < cap->n_ssm; i++) {
            const int32_t channel = i / a->s.state;
            const int32_t head = channel / a->s.head_dim;
            const double add = step_of(a, g, head) * (double)a->xbc[channel] *
                               column(a, 0, head, i % a->s.state);
            sum[i] += is_bound ? fabs(add) : add;
        }
    }
    for (int32_t i = 0; i < cap->n_ssm; i++) {
        const double got = (double)cap->slot[name].ssm[a->layer][i];
        const double bound = cap->slot[name].bound[a->layer][i];
        const int is_right = is_bound  ? isfinite(got) && fabs(got) <= sum[i] * (1 + 1e-6) + bound
                             : is_last ? fabs(got - sum[i]) <= bound + 1e-6 * fabs(sum[i])
                                       : got == sum[i];
        if (!is_right) {
            hb_relation_fail(a->k->v, a->k->number, "temporal state", a->layer, pos, i, sum[i], got,
                             is_bound || is_last ? bound : 0);
            return;
        }
    }
}

static void check_run(const struct runs *k) {
    const struct hb_capture *cap = &k->capture[0];
    struct hb_config config;
    struct again a = {.k = k, .s = shape_of(k->plain)};
    const size_t n_state = (size_t)a.s.inner * (size_t)a.s.state;
    const size_t n = n_state + (size_t)a.s.dim + 3 * (size_t)a.s.heads;
    float *numbers = malloc(n * sizeof *numbers);
    double *sum = calloc(n_state, sizeof *sum);
    hb_case_backend_config(k->plain, &config);
    a.init = numbers;
    if (!numbers || !sum) {
        hb_verdict_set(k->v, HB_VERDICT_ENVIRONMENT, "memory", "relation", 0, 0, "out of memory");
        free(numbers);
        free(sum);
        return;
    }
    a.xbc = numbers + n_state;
    a.dt = a.xbc + a.s.dim;
    a.bias = a.dt + a.s.heads;
    a.d = a.bias + a.s.heads;
    const int is_frozen = k->number == 64 && k->source[0].part == 0;
    for (size_t i = 0; is_frozen && i < cap->n && k->v->kind == HB_VERDICT_PASS; i++) {
        const struct hb_captured *x = &cap->item[i];
        if (is_mamba(k, x->layer) && always_runs(k->plain, x->layer) &&
            prefix_of(k->plain, x->stream) >= 0) {
            open_layer(&a, x->layer, x->stream);
            check_frozen_output(&a, x);
        }
    }
    for (int32_t name = 0; name < HB_MAX_NAMES; name++) {
        for (int32_t l = 0; l < HB_MAX_LAYERS && k->v->kind == HB_VERDICT_PASS; l++) {
            if (has_state(k, name, l) && always_runs(k->plain, l) && cap->slot[name].cursor == 0 &&
                prefix_of(k->plain, cap->slot[name].stream) >= 0) {
                open_layer(&a, l, cap->slot[name].stream);
                check_state(&a, &config, name, sum);
            }
        }
    }
    free(numbers);
    free(sum);
}

/* --- the relations ---------------------------------------------------------------------------- */

static void run_all(struct runs *k, struct hb_case *other) {
    const int32_t arg = k->plain->config.relation_arg;
    if (k->number == 64 || k->number == 65) {
        if (make_run(k, other, k->number == 64 ? arg % 2 : 0, 0)) {
            check_run(k);
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
    const int is_plain = hb_relation_is_plain(c) && !base->refused && !o->values && !o->params;
    const int has_mamba = ((1 << c->config.n_layers) - 1) & ~c->config.attn_mask;
    const int has_more_groups = number != 66 || c->config.groups < c->config.heads;
    if ((o->check_off & HB_OFF_RELATION) || !is_plain || !has_mamba || !has_more_groups ||
        backend->describe(backend->ctx, &caps, NULL) != HB_OK) {
        return 1;
    }
    struct hb_case *cases = malloc(2 * sizeof *cases);
    struct runs *k = calloc(1, sizeof *k);
    if (cases && k) {
        make_plain(c, number, &cases[0]);
        cases[1] = cases[0];
        *k = (struct runs){.backend = backend,
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
