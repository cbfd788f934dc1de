/* SPDX-License-Identifier: Apache-2.0
 * Golden cases of the recurrences of ops-delta.md as layers. Exact identities: conv weights (0, ..,
 * 0, 1) without activation; A = -1, no bias and no softplus, so that a = -g gives the log decay g;
 * beta as it is; no gate or norm. Lightning reads log decays as they are, or has them from its
 * slopes. */
#include <math.h>
#include <string.h>

#include "harness/golden_internal.h"
#include "harness/golden_load.h"

enum { IDENTITY_WIDTH = 4, CHUNK = 64, SIZE_LIMIT = 1024 };

/* One row per operation. */
struct core {
    const char *op;
    int32_t kind, slope_kind;
    int32_t is_delta;    /* there is a beta, and q and k may be normalised */
    int32_t has_factors; /* layer_idx and num_layers are in the configuration */
};
static const struct core cores[] = {
    {"gdn_core", HB_LAYER_GDN, HB_SLOPE_PARAM, 1, 0},
    {"kda_core", HB_LAYER_KDA, HB_SLOPE_PARAM, 1, 0},
    {"simple_gla_core", HB_LAYER_LIGHTNING, HB_SLOPE_TOKEN, 0, 0},
    {"lightning_core", HB_LAYER_LIGHTNING, HB_SLOPE_FLA, 0, 1},
};

static const struct core *find_core(const char *op) {
    size_t i = 0;
    while (i + 1 < sizeof cores / sizeof cores[0] && strcmp(cores[i].op, op) != 0) {
        i++;
    }
    return &cores[i];
}

static int32_t core_shape(const struct hb_golden_source *s, struct hb_golden_problem *p,
                          const struct core *core) {
    static const char *const keys[4][2] = {
        {"v_heads", NULL}, {"head_v", NULL}, {"head_k", NULL}, {"q_heads", NULL}};
    static const int32_t limit[4] = {SIZE_LIMIT, SIZE_LIMIT, HB_MAX_STATE_SIZE, SIZE_LIMIT};
    int32_t size[6] = {0, 0, 0, 0, IDENTITY_WIDTH, CHUNK};
    for (int i = 0; i < 4; i++) {
        if (hb_golden_size(&s->config, keys[i], 1, limit[i], &size[i]) != HB_OK) {
            return HB_ERR_PARSE;
        }
    }
    const int32_t status = hb_golden_shape(p, core->kind, size, s->err);
    p->config.slope_kind = core->slope_kind;
    p->config.conv_act = HB_CONV_NONE;
    p->config.gate_norm = HB_GATE_NORM_NONE;
    p->config.beta_form = HB_BETA_RAW;
    p->state_is_kv = 1;
    hb_golden_widths(p);
    return status;
}

/* The layer whose slopes are meant, in a model of that many layers. */
static int32_t core_layer(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    static const char *const keys[2][2] = {{"num_layers", NULL}, {"layer_idx", NULL}};
    int32_t n_layers = 0;
    if (hb_golden_size(&s->config, keys[0], 1, HB_MAX_LAYERS, &n_layers) != HB_OK ||
        hb_golden_size(&s->config, keys[1], 0, n_layers - 1, &p->layer) != HB_OK) {
        return HB_ERR_PARSE;
    }
    hb_golden_set_layers(p, n_layers);
    return HB_OK;
}

static int32_t core_variant(const struct hb_golden_source *s, struct hb_golden_problem *p,
                            const struct core *core) {
    static const char *const norm_key[2] = {"qk_l2norm", NULL};
    static const char *const scale_key[2] = {"scale", NULL};
    const struct hb_golden_object *o = &s->config;
    double scale = 0.0;
    int32_t has_norm = 0;
    if (hb_golden_flag(o, norm_key, &has_norm) != HB_OK ||
        hb_golden_positive(o, scale_key, &scale) != HB_OK) {
        return HB_ERR_PARSE;
    }
    if (has_norm && !core->is_delta) {
        return hb_golden_wrong(o, norm_key[0],
                               cJSON_GetObjectItemCaseSensitive(o->json, norm_key[0]), "false");
    }
    p->config.l2norm = has_norm ? HB_L2_ADD_EPS : HB_L2_OFF;
    hb_golden_set_scale(p, scale);
    return core->has_factors ? core_layer(s, p) : HB_OK;
}

/* in.g as a = -g, and in.beta behind it. */
static int32_t core_gates(const struct hb_golden_source *s, struct hb_golden_problem *p,
                          const struct core *core) {
    const struct hb_config *c = &p->config;
    const int64_t g[3] = {p->n_tokens, c->n_heads, c->state_size};
    const int32_t n_dims = core->kind == HB_LAYER_KDA ? 3 : 2;
    const int32_t n_decays = core->kind == HB_LAYER_KDA ? c->n_heads * c->state_size : c->n_heads;
    if (core->has_factors) {
        return HB_OK; /* in.g is what the slopes must come to: core_slopes */
    }
    int32_t status = hb_golden_put_input(p, "in.g", n_dims, g, p->dt, p->gates, 0, s->err);
    for (int64_t i = 0; core->is_delta && status == HB_OK && i < g[0] * n_decays; i++) {
        double *a = &p->dt[i / n_decays * p->gates + i % n_decays];
        *a = -*a;
    }
    if (status == HB_OK && core->is_delta) {
        status = hb_golden_put_input(p, "in.beta", 2, g, p->dt, p->gates, n_decays, s->err);
    }
    return status;
}

/* Log decays that do not vary over tokens, and those of the configuration: the same numbers. */
static int32_t core_slopes(const struct hb_golden_source *s, const struct hb_golden_problem *p) {
    const struct hb_config *c = &p->config;
    const int64_t shape[2] = {p->n_tokens, c->n_heads};
    const struct hb_st_tensor *g = hb_golden_need(p, "in.g", 2, shape, s->err);
    for (int64_t i = 0; g != NULL && i < g->n; i++) {
        const double want = -hb_golden_ref_slope(p, (int32_t)(i % c->n_heads));
        if (!(fabs(hb_st_get(g, i) - want) <= 0x1p-24 * fabs(want))) {
            return hb_fail_text(s->err, HB_ERR_PARSE,
                                "%s: element %lld of tensor 'in.g' is %.9g, expected %.9g of layer "
                                "%d of %d",
                                p->name, (long long)i, hb_st_get(g, i), want, p->layer,
                                c->n_layers);
        }
    }
    return g != NULL ? HB_OK : HB_ERR_PARSE;
}

static int32_t core_inputs(const struct hb_golden_source *s, struct hb_golden_problem *p,
                           const struct core *core) {
    const struct hb_config *c = &p->config;
    const int32_t keys = c->n_groups * c->state_size;
    const int64_t qk[3] = {p->n_tokens, c->n_groups, c->state_size};
    const int64_t v[3] = {p->n_tokens, c->n_heads, c->head_dim};
    static const char *const names[3] = {"in.q", "in.k", "in.v"};
    int32_t status = hb_golden_inputs(p, s->err);
    for (int k = 0; k < 3 && status == HB_OK; k++) {
        status = hb_golden_put_input(p, names[k], 3, k < 2 ? qk : v, p->xbc, p->dim, k * keys,
                                     s->err);
    }
    status = status != HB_OK ? status : core_gates(s, p, core);
    status = status != HB_OK || !core->has_factors ? status : core_slopes(s, p);
    return status != HB_OK ? status : hb_golden_set_expected(p, "", 3, v, s->err);
}

static int32_t core_params(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    if (p->channels == 0) {
        return HB_OK;
    }
    const int32_t status = hb_golden_set_pass_through(p, s->err);
    p->params.d = NULL;
    p->config.dt_softplus = 0;
    return status != HB_OK ? status : hb_golden_set_conv(p, p->dim, NULL, s->err);
}

int32_t hb_golden_load_core(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    static const char *const initial_key[2] = {"initial_state", NULL};
    const struct core *core = find_core(p->op);
    int32_t has_initial = 0;
    int32_t status = core_shape(s, p, core);
    status = status != HB_OK ? status : core_variant(s, p, core);
    status = status != HB_OK ? status : hb_golden_flag(&s->config, initial_key, &has_initial);
    status = status != HB_OK
                 ? status
                 : hb_golden_sequences(
                       cJSON_GetObjectItemCaseSensitive(s->config.json, "sequences"), p, s->err);
    status = status != HB_OK ? status : core_inputs(s, p, core);
    status = status != HB_OK ? status : core_params(s, p);
    const struct hb_config *c = &p->config;
    const int64_t state[3] = {c->n_heads, c->state_size, c->head_dim};
    status = status != HB_OK ? status : hb_golden_set_states(s, p, state);
    if (status == HB_OK && has_initial) {
        const int64_t shape[4] = {p->n_seq, state[0], state[1], state[2]};
        const float *ssm = hb_golden_floats(p, "init.state", 4, shape, s->err);
        status = ssm != NULL ? hb_golden_set_initial(p, NULL, 0, ssm, s->err) : HB_ERR_PARSE;
    }
    return status;
}
