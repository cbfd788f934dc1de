/* SPDX-License-Identifier: Apache-2.0
 * Limits and growth of the scan (invariants.md 64, 65): one run, of layers that are their scan,
 * against what its values say. With x the linear input, b its partner (B or k) and c what reads the
 * state (C or q), both by head:
 *   64 step 0: S = S0 bytewise, y = c.S0 + D x.  Strong decay: S = w x b of the last token.
 *   65 |S| <= |S0| + sum of |w x b|; with a delta rule by columns, in the 2-norm:
 *      n' = max(1, |1 - beta |k|^2|) n + |w x| |k|.
 * w: dt, beta, or 1. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/relations_kernel.h"

enum { POSITION_BITS = 20 };

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

/* Values of the run again. Parameters have zeros where the layer has none. */
struct again {
    const struct hb_scan_run *k;
    struct hb_config config;
    struct hb_scan_shape s;
    int32_t layer;
    int32_t n_bias; /* of dt_bias: H, or H P of Mamba1 */
    float *init, *in1, *in2, *bias, *d;
};

static int is_delta(const struct again *a) {
    return a->s.kind == HB_LAYER_GDN || a->s.kind == HB_LAYER_KDA;
}

static void draw(const struct again *a, int32_t tensor, int32_t stream, int64_t position, int32_t n,
                 float *out) {
    const struct hb_value_key key = {
        .tensor = tensor, .stream = stream, .layer = a->layer, .position = position};
    hb_scan_fill((void *)&a->k->source[0], a->k->plain, &key, n, out);
}

static void open_layer(struct again *a, int32_t layer, int32_t stream) {
    const int32_t n = a->s.inner * a->s.state;
    const struct hb_case_config *g = &a->k->plain->config;
    a->layer = layer;
    memset(a->init, 0, (size_t)n * sizeof *a->init);
    if (prefix_of(a->k->plain, stream) > 0) {
        draw(a, HB_TENSOR_INIT_SSM, stream, 0, n, a->init);
    }
    memset(a->bias, 0, (size_t)a->n_bias * sizeof *a->bias);
    memset(a->d, 0, (size_t)a->n_bias * sizeof *a->d);
    if (g->dt_bias) {
        draw(a, HB_TENSOR_DT_BIAS, 0, 0, a->n_bias, a->bias);
    }
    if (!g->skip_d && (a->s.kind == HB_LAYER_MAMBA2 || a->s.kind == HB_LAYER_MAMBA1)) {
        draw(a, HB_TENSOR_D, 0, 0, a->n_bias, a->d);
    }
}

/* x / s of one vector [N] (ops-delta.md section 5). */
static void normalise(const struct again *a, float *x) {
    double sum = 0;
    for (int32_t n = 0; n < a->s.state; n++) {
        sum += (double)x[n] * (double)x[n];
    }
    const double s = a->config.l2norm == HB_L2_OFF        ? 1.0
                     : a->config.l2norm == HB_L2_ADD_EPS ? sqrt(sum + 1e-6)
                                                          : fmax(sqrt(sum), 1e-6);
    for (int32_t n = 0; n < a->s.state; n++) {
        x[n] = (float)((double)x[n] / s);
    }
}

/* Inputs as they are handed over; keys and queries normalised, which costs them a rounding. */
static void draw_token(const struct again *a, int32_t stream, int64_t pos, int64_t branch) {
    const int64_t position = pos + (branch << POSITION_BITS);
    draw(a, HB_TENSOR_XBC, stream, position, a->s.dim, a->in1);
    draw(a, HB_TENSOR_DT, stream, position, a->s.gates, a->in2);
    for (int32_t i = 0; i < a->s.dim && a->config.act_dtype == HB_FP16; i++) {
        a->in1[i] = hb_fp16_to_float(hb_fp16_from_float(a->in1[i]));
    }
    for (int32_t i = 0; i < a->s.gates && a->config.act_dtype == HB_FP16; i++) {
        a->in2[i] = hb_fp16_to_float(hb_fp16_from_float(a->in2[i]));
    }
    for (int32_t i = 0; i < 2 * a->s.groups && is_delta(a); i++) {
        normalise(a, a->in1 + (int64_t)i * a->s.state);
    }
}

/* Element n of the head's partner of x (B, k), or of what reads the state (C, q). */
static double partner(const struct again *a, int32_t reads, int32_t head, int32_t n) {
    if (a->s.kind == HB_LAYER_MAMBA1) {
        return (double)a->in2[a->s.inner + (reads ? a->s.state : 0) + n];
    }
    /* B | C, but q | k */
    const int32_t second = a->s.kind == HB_LAYER_MAMBA2 ? reads : !reads;
    const int32_t vector = second * a->s.groups + hb_scan_group(&a->s, head);
    return (double)a->in1[a->s.pairs + vector * a->s.state + n];
}

static double softplus(double x) {
    return x > 30 ? x : log1p(exp(x));
}

/* Largest time step on any path. i: head, or channel of Mamba1. */
static double step_of(const struct again *a, int32_t i) {
    const struct hb_config *g = &a->config;
    const double raw = (double)a->in2[i] + (double)a->bias[i];
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

static double beta_of(const struct again *a, int32_t head) {
    const double b = (double)a->in2[a->s.gates - a->s.heads + head];
    const double sigmoid = 1 / (1 + exp(-b));
    return a->config.beta_form == HB_BETA_RAW      ? b
           : a->config.beta_form == HB_BETA_DOUBLE ? 2 * sigmoid
                                                   : sigmoid;
}

/* w of the channel. */
static double weight_of(const struct again *a, int32_t channel) {
    const int32_t head = channel / a->s.head_dim;
    switch (a->s.kind) {
    case HB_LAYER_MAMBA2:
        return step_of(a, head);
    case HB_LAYER_MAMBA1:
        return step_of(a, channel);
    case HB_LAYER_LIGHTNING:
        return 1.0;
    default:
        return beta_of(a, head);
    }
}

static double input_of(const struct again *a, int32_t channel) {
    return weight_of(a, channel) * (double)a->in1[a->s.x + channel];
}

/* 64, first limit. */
static void check_frozen_output(const struct again *a, const struct hb_captured *x) {
    draw_token(a, x->stream, x->pos, x->branch);
    const double scale = !is_delta(a)                  ? 1.0
                         : a->config.qk_scale != 0.0f ? (double)a->config.qk_scale
                                                       : 1.0 / sqrt((double)a->s.state);
    for (int32_t j = 0; j < x->n; j++) {
        const int32_t head = j / a->s.head_dim;
        const int32_t at_d = a->s.kind == HB_LAYER_MAMBA1 ? j : head;
        double want = (double)a->d[at_d] * (double)a->in1[a->s.x + j];
        double size = fabs(want);
        for (int32_t n = 0; n < a->s.state; n++) {
            const double term = scale * partner(a, 1, head, n) *
                                (double)a->init[(int64_t)j * a->s.state + n];
            want += term;
            size += fabs(term);
        }
        const double bound = x->bound[j] + 1e-6 * size; /* of what is drawn here */
        const double got = (double)x->got[j];
        if (isfinite(want) && isfinite(got) && !(fabs(want - got) <= bound)) {
            hb_relation_fail(a->k->v, 64, "output", x->layer, x->pos, j, want, got, bound);
            return;
        }
    }
}

/* 1 if every forward runs the layer, so that a slot holds the state that its label says. */
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

/* One token of the delta rule: norms of the columns of its heads. sum [H P, N], of which each row
 * holds its column's norm. */
static void grow_columns(const struct again *a, double *sum) {
    for (int32_t i = 0; i < a->s.inner; i++) {
        const int32_t head = i / a->s.head_dim;
        double square = 0;
        for (int32_t n = 0; n < a->s.state; n++) {
            square += partner(a, 0, head, n) * partner(a, 0, head, n);
        }
        const double rho = fmax(1.0, fabs(1.0 - beta_of(a, head) * square));
        const double norm =
            rho * sum[(int64_t)i * a->s.state] + fabs(input_of(a, i)) * sqrt(square);
        for (int32_t n = 0; n < a->s.state; n++) {
            sum[(int64_t)i * a->s.state + n] = norm;
        }
    }
}

/* One token: sum += |w x b|, or = w x b. */
static void add_token(const struct again *a, int is_last, double *sum) {
    if (is_delta(a) && !is_last) {
        grow_columns(a, sum);
        return;
    }
    for (int32_t i = 0; i < a->s.inner; i++) {
        const double in = input_of(a, i);
        for (int32_t n = 0; n < a->s.state; n++) {
            const double add = in * partner(a, 0, i / a->s.head_dim, n);
            double *to = &sum[(int64_t)i * a->s.state + n];
            *to = is_last ? add : *to + fabs(add);
        }
    }
}

/* |S0|, with a delta rule the norms of its columns. */
static void start_growth(const struct again *a, double *sum) {
    for (int32_t i = 0; i < a->s.inner; i++) {
        const float *init = a->init + (int64_t)i * a->s.state;
        double square = 0;
        for (int32_t n = 0; n < a->s.state; n++) {
            square += (double)init[n] * (double)init[n];
        }
        for (int32_t n = 0; n < a->s.state; n++) {
            sum[(int64_t)i * a->s.state + n] = is_delta(a) ? sqrt(square) : fabs((double)init[n]);
        }
    }
}

/* The state of a slot: against its bound (65), S0, or what the last token adds (64). */
static void check_state(const struct again *a, int32_t name, double *sum) {
    const struct hb_capture *cap = &a->k->capture[0];
    const int32_t stream = cap->slot[name].stream;
    const int64_t pos = cap->slot[name].pos;
    const int64_t prefix = prefix_of(a->k->plain, stream);
    const int is_bound = a->k->number == 65;
    const int is_last = !is_bound && a->k->source[0].part == 1;
    if ((is_bound && cap->slot[name].branch != 0) || (is_last && pos <= prefix)) {
        return;
    }
    start_growth(a, sum);
    for (int32_t i = 0; i < cap->n_ssm && !is_bound && !is_last; i++) {
        sum[i] = (double)a->init[i];
    }
    for (int64_t t = is_last ? pos - 1 : prefix; t < pos && (is_last || is_bound); t++) {
        draw_token(a, stream, t, cap->slot[name].branch);
        add_token(a, is_last, sum);
    }
    for (int32_t i = 0; i < cap->n_ssm; i++) {
        const double got = (double)cap->slot[name].ssm[a->layer][i];
        const double bound = cap->slot[name].bound[a->layer][i];
        const int is_small = isfinite(got) && fabs(got) <= sum[i] * (1 + 1e-6) + bound;
        const int is_right = is_bound  ? is_small || !isfinite(bound)
                             : is_last ? fabs(got - sum[i]) <= bound + 1e-6 * fabs(sum[i])
                                       : got == sum[i];
        if (!is_right) {
            hb_relation_fail(a->k->v, a->k->number, "temporal state", a->layer, pos, i, sum[i], got,
                             is_bound || is_last ? bound : 0);
            return;
        }
    }
}

static int is_linear(const struct again *a, int32_t layer) {
    return !(a->k->plain->config.attn_mask >> layer & 1);
}

static void check_all(struct again *a, double *sum) {
    const struct hb_scan_run *k = a->k;
    const struct hb_capture *cap = &k->capture[0];
    const int is_frozen = k->number == 64 && k->source[0].part == 0;
    for (size_t i = 0; is_frozen && i < cap->n && k->v->kind == HB_VERDICT_PASS; i++) {
        const struct hb_captured *x = &cap->item[i];
        if (is_linear(a, x->layer) && always_runs(k->plain, x->layer) &&
            prefix_of(k->plain, x->stream) >= 0) {
            open_layer(a, x->layer, x->stream);
            check_frozen_output(a, x);
        }
    }
    for (int32_t name = 0; name < HB_MAX_NAMES; name++) {
        for (int32_t l = 0; l < HB_MAX_LAYERS && k->v->kind == HB_VERDICT_PASS; l++) {
            if (hb_scan_has_state(k, name, l) && always_runs(k->plain, l) &&
                cap->slot[name].cursor == 0 &&
                prefix_of(k->plain, cap->slot[name].stream) >= 0) {
                open_layer(a, l, cap->slot[name].stream);
                check_state(a, name, sum);
            }
        }
    }
}

void hb_scan_check_limits(const struct hb_scan_run *k) {
    struct again a = {.k = k, .s = hb_scan_shape_of(k->plain)};
    a.n_bias = a.s.kind == HB_LAYER_MAMBA1 ? a.s.inner : a.s.heads;
    const size_t n_state = (size_t)a.s.inner * (size_t)a.s.state;
    const size_t n =
        n_state + (size_t)a.s.dim + (size_t)a.s.gates + 2 * (size_t)a.n_bias;
    float *numbers = malloc(n * sizeof *numbers);
    double *sum = calloc(n_state, sizeof *sum);
    hb_case_backend_config(k->plain, &a.config);
    if (numbers && sum) {
        a.init = numbers;
        a.in1 = numbers + n_state;
        a.in2 = a.in1 + a.s.dim;
        a.bias = a.in2 + a.s.gates;
        a.d = a.bias + a.n_bias;
        check_all(&a, sum);
    } else {
        hb_verdict_set(k->v, HB_VERDICT_ENVIRONMENT, "memory", "relation", 0, 0, "out of memory");
    }
    free(numbers);
    free(sum);
}
