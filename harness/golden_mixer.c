/* SPDX-License-Identifier: Apache-2.0
 * Golden cases that are whole layers of the other linear kinds (ops-delta.md 1.3, 2, 3): Qwen3-Next,
 * Kimi Linear, MiniMax. The projections are done here in extended precision. */
#include <math.h>
#include <string.h>

#include "harness/golden_internal.h"
#include "harness/golden_load.h"

enum { SIZE_LIMIT = 1024, CHUNK_LIMIT = 4096, CHUNK = 64, NO_CONV_WIDTH = 4, MAX_RANK = 1024 };

enum { HEADS, HEAD_DIM, STATE_SIZE, GROUPS, CONV_WIDTH, HIDDEN, N_SIZES };

/* What the configuration does not say: the habits of a producer. */
struct mixer {
    const char *prefix;               /* of producer.function */
    const char *keys[N_SIZES];        /* null: the layer has no convolution */
    const char *chunk_key, *eps_key;  /* null: 64, 1e-6 */
    int32_t kind, out_gate;
    int32_t norm_whole;               /* the norm runs over all heads, else over each */
    const char *norm_weight, *output; /* tensor and projection */
};
static const struct mixer gdn = {"models.qwen3_next.",
                                 {"linear_num_value_heads", "linear_value_head_dim",
                                  "linear_key_head_dim", "linear_num_key_heads",
                                  "linear_conv_kernel_dim", "hidden_size"},
                                 NULL,
                                 "rms_norm_eps",
                                 HB_LAYER_GDN,
                                 HB_OUT_SILU,
                                 0,
                                 "param.norm.weight",
                                 "out_proj"};
static const struct mixer kda = {"models.kimi_linear.",
                                 {"linear_num_heads", "linear_head_dim", "linear_head_dim",
                                  "linear_num_heads", "linear_conv_kernel_dim", "hidden_size"},
                                 NULL,
                                 "rms_norm_eps",
                                 HB_LAYER_KDA,
                                 HB_OUT_SIGMOID,
                                 0,
                                 "param.o_norm.weight",
                                 "o_proj"};
static const struct mixer minimax = {"models.minimax.",
                                     {"num_attention_heads", "head_dim", "head_dim",
                                      "num_attention_heads", NULL, "hidden_size"},
                                     "block_size",
                                     NULL,
                                     HB_LAYER_LIGHTNING,
                                     HB_OUT_SIGMOID,
                                     1,
                                     "param.norm.weight",
                                     "out_proj"};

/* ---- what the layers share ---- */

static int32_t check_producer(const struct hb_golden_source *s, const struct hb_golden_problem *p,
                              const struct mixer *m) {
    const cJSON *producer = cJSON_GetObjectItemCaseSensitive(s->entry, "producer");
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(producer, "function");
    const struct hb_golden_object o = {NULL, p->name, "producer", s->err};
    if (!cJSON_IsString(function) ||
        strncmp(function->valuestring, m->prefix, strlen(m->prefix)) != 0) {
        return hb_golden_wrong(&o, "function", function, "a layer of %s", m->prefix);
    }
    return HB_OK;
}

static int32_t load_sizes(const struct hb_golden_source *s, struct hb_golden_problem *p,
                          const struct mixer *m, int32_t *hidden) {
    static const int32_t least[N_SIZES] = {1, 1, 1, 1, 2, 1};
    static const int32_t limit[N_SIZES] = {SIZE_LIMIT, SIZE_LIMIT,        HB_MAX_STATE_SIZE,
                                           SIZE_LIMIT, HB_MAX_CONV_WIDTH, SIZE_LIMIT};
    const char *const chunk_key[2] = {m->chunk_key, NULL};
    int32_t size[N_SIZES];
    for (int i = 0; i < N_SIZES; i++) {
        const char *const key[2] = {m->keys[i], NULL};
        size[i] = NO_CONV_WIDTH;
        if (key[0] != NULL &&
            hb_golden_size(&s->config, key, least[i], limit[i], &size[i]) != HB_OK) {
            return HB_ERR_PARSE;
        }
    }
    *hidden = size[HIDDEN];
    size[HIDDEN] = CHUNK;
    if (m->chunk_key != NULL && hb_golden_chunk(&s->config, chunk_key, CHUNK_LIMIT,
                                                size[CONV_WIDTH], &size[HIDDEN]) != HB_OK) {
        return HB_ERR_PARSE;
    }
    p->state_is_kv = 1;
    return hb_golden_shape(p, m->kind, size, s->err);
}

static int32_t load_variant(const struct hb_golden_source *s, struct hb_golden_problem *p,
                            const struct mixer *m) {
    const cJSON *act = cJSON_GetObjectItemCaseSensitive(s->config.json, "hidden_act");
    const char *const eps_key[2] = {m->eps_key, NULL};
    struct hb_config *c = &p->config;
    p->eps = 1e-6;
    if (!cJSON_IsString(act) || strcmp(act->valuestring, "silu") != 0) {
        return hb_golden_wrong(&s->config, "hidden_act", act, "\"silu\"");
    }
    if (m->eps_key != NULL && hb_golden_positive(&s->config, eps_key, &p->eps) != HB_OK) {
        return HB_ERR_PARSE;
    }
    c->norm_eps = (float)p->eps;
    c->norm_group = m->norm_whole ? p->d_inner : c->head_dim;
    c->gate_norm = HB_GATE_NORM_BEFORE;
    c->out_gate = m->out_gate;
    c->conv_act = HB_CONV_SILU;
    c->dt_softplus = 1;
    c->l2norm = HB_L2_ADD_EPS;
    c->beta_form = HB_BETA_SIGMOID;
    c->gate_form = HB_GATE_STANDARD;
    return HB_OK;
}

/* Weights [d_inner], or [P] for each head alike. */
static int32_t load_norm(const struct hb_golden_source *s, struct hb_golden_problem *p,
                         const struct mixer *m) {
    const int32_t n = p->config.norm_group;
    const int64_t shape[1] = {n};
    const float *given = hb_golden_floats(p, m->norm_weight, 1, shape, s->err);
    float *all = hb_golden_own(p, p->d_inner, sizeof *all, s->err);
    if (given == NULL || all == NULL) {
        return HB_ERR_PARSE;
    }
    for (int32_t i = 0; i < p->d_inner; i++) {
        all[i] = given[i % n];
    }
    p->params.norm_weight = all;
    return HB_OK;
}

static int32_t load_conv(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    const int64_t shape[3] = {p->dim, 1, p->config.conv_width};
    p->params.conv_weight = hb_golden_floats(p, "param.conv1d.weight", 3, shape, s->err);
    return p->params.conv_weight != NULL ? HB_OK : HB_ERR_PARSE;
}

static int32_t begin_layer(const struct hb_golden_source *s, struct hb_golden_problem *p,
                           const struct mixer *m, int32_t *hidden) {
    int32_t status = check_producer(s, p, m);
    status = status != HB_OK ? status : load_sizes(s, p, m, hidden);
    status = status != HB_OK ? status : load_variant(s, p, m);
    status = status != HB_OK
                 ? status
                 : hb_golden_sequences(
                       cJSON_GetObjectItemCaseSensitive(s->config.json, "sequences"), p, s->err);
    status = status != HB_OK ? status : hb_golden_inputs(p, s->err);
    if (status == HB_OK) {
        p->xbc_mag = hb_golden_own(p, (int64_t)p->n_tokens * p->dim, sizeof *p->xbc_mag, s->err);
        status = p->xbc_mag != NULL ? HB_OK : HB_ERR_MEMORY;
    }
    return status != HB_OK ? status : load_norm(s, p, m);
}

static int32_t end_layer(const struct hb_golden_source *s, struct hb_golden_problem *p,
                         const struct mixer *m, int32_t hidden) {
    const int32_t status = hb_golden_set_output(p, m->output, hidden, s->err);
    return status != HB_OK ? status : hb_golden_set_layer_states(s, p);
}

/* The projection of that name, of the layer's input. */
static int32_t load_projection(struct hb_golden_problem *p, const char *name, int32_t rows,
                               int32_t hidden, struct hb_golden_projection *j,
                               struct hb_error *err) {
    const int64_t w[2] = {rows, hidden};
    char tensor[48];
    (void)snprintf(tensor, sizeof tensor, "param.%s.weight", name);
    j->in_scale = 1.0;
    j->hidden = hidden;
    j->w = hb_golden_floats(p, tensor, 2, w, err);
    return j->w != NULL ? HB_OK : HB_ERR_PARSE;
}

static int32_t load_input(struct hb_golden_problem *p, int32_t hidden, struct hb_error *err,
                          const double **x) {
    const int64_t shape[2] = {p->n_tokens, hidden};
    *x = hb_golden_doubles(p, "in.hidden_states", 2, shape, err);
    return *x != NULL ? HB_OK : HB_ERR_PARSE;
}

/* ---- Qwen3-Next: rows grouped by key head, q k v.. z.. and b.. a.. ---- */

static int32_t gdn_inputs(const struct hb_golden_source *s, struct hb_golden_problem *p,
                          int32_t hidden) {
    const struct hb_config *c = &p->config;
    const int32_t n = c->state_size;
    const int32_t heads = c->n_heads / c->n_groups; /* value heads of a key head */
    const int32_t values = heads * c->head_dim;
    const int32_t stride = 2 * n + 2 * values;
    struct hb_golden_projection all = {0};
    struct hb_golden_projection gates = {0};
    int32_t status =
        load_projection(p, "in_proj_qkvz", c->n_groups * stride, hidden, &all, s->err);
    status = status != HB_OK ? status
                             : load_projection(p, "in_proj_ba", 2 * c->n_heads, hidden, &gates,
                                               s->err);
    status = status != HB_OK ? status : load_input(p, hidden, s->err, &all.x);
    gates.x = all.x;
    for (int32_t g = 0; g < c->n_groups && status == HB_OK; g++) {
        const int32_t row = g * stride;
        const int32_t first_v = 2 * c->n_groups * n + g * values;
        const struct hb_golden_channels q = {p->xbc, p->xbc_mag, p->dim, g * n};
        const struct hb_golden_channels k = {p->xbc, p->xbc_mag, p->dim, (c->n_groups + g) * n};
        const struct hb_golden_channels v = {p->xbc, p->xbc_mag, p->dim, first_v};
        const struct hb_golden_channels z = {p->z, NULL, p->d_inner, g * values};
        const struct hb_golden_channels a = {p->dt, NULL, p->gates, g * heads};
        const struct hb_golden_channels b = {p->dt, NULL, p->gates, c->n_heads + g * heads};
        hb_golden_project(p, &all, row, n, &q);
        hb_golden_project(p, &all, row + n, n, &k);
        hb_golden_project(p, &all, row + 2 * n, values, &v);
        hb_golden_project(p, &all, row + 2 * n + values, values, &z);
        hb_golden_project(p, &gates, 2 * g * heads, heads, &b);
        hb_golden_project(p, &gates, (2 * g + 1) * heads, heads, &a);
    }
    return status;
}

int32_t hb_golden_load_gdn(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    int32_t hidden = 0;
    int32_t status = begin_layer(s, p, &gdn, &hidden);
    hb_golden_set_scale(p, 1.0 / sqrt(status == HB_OK ? p->config.state_size : 1));
    status = status != HB_OK ? status : gdn_inputs(s, p, hidden);
    status = status != HB_OK ? status : load_conv(s, p);
    const int64_t heads[1] = {p->config.n_heads};
    status = status != HB_OK ? status : hb_golden_set_decay(p, "param.A_log", 1, heads, s->err);
    p->params.dt_bias =
        status == HB_OK ? hb_golden_floats(p, "param.dt_bias", 1, heads, s->err) : NULL;
    status = status == HB_OK && p->params.dt_bias == NULL ? HB_ERR_PARSE : status;
    return status != HB_OK ? status : end_layer(s, p, &gdn, hidden);
}

/* ---- Kimi Linear: one projection each; decay and gate are of low rank ---- */

/* second(first(x)) into out, through [T, rank]. */
static int32_t low_rank(const struct hb_golden_source *s, struct hb_golden_problem *p,
                        const char *const names[2], const double *x, int32_t hidden,
                        const struct hb_golden_channels *out, int32_t n) {
    char tensor[48];
    (void)snprintf(tensor, sizeof tensor, "param.%s.weight", names[0]);
    const struct hb_st_tensor *t = hb_st_find(&p->file, tensor);
    const int32_t rank = t != NULL && t->n_dims == 2 && t->shape[0] <= MAX_RANK
                             ? (int32_t)t->shape[0]
                             : 1;
    struct hb_golden_projection first = {0};
    struct hb_golden_projection second = {0};
    int32_t status = load_projection(p, names[0], rank, hidden, &first, s->err);
    status = status != HB_OK ? status : load_projection(p, names[1], n, rank, &second, s->err);
    double *middle = hb_golden_own(p, (int64_t)p->n_tokens * rank, sizeof *middle, s->err);
    if (status != HB_OK || middle == NULL) {
        return status != HB_OK ? status : HB_ERR_MEMORY;
    }
    const struct hb_golden_channels mid = {middle, NULL, rank, 0};
    first.x = x;
    second.x = middle;
    hb_golden_project(p, &first, 0, rank, &mid);
    hb_golden_project(p, &second, 0, n, out);
    return HB_OK;
}

static int32_t kda_inputs(const struct hb_golden_source *s, struct hb_golden_problem *p,
                          int32_t hidden) {
    static const char *const decay[2] = {"forget_gate.f_a_proj", "forget_gate.f_b_proj"};
    static const char *const gate[2] = {"g_a_proj", "g_b_proj"};
    const struct hb_config *c = &p->config;
    const int32_t keys = c->n_groups * c->state_size;
    const int32_t decays = c->n_heads * c->state_size;
    const struct {
        const char *name;
        int32_t n;
        struct hb_golden_channels out;
    } part[4] = {{"q_proj", keys, {p->xbc, p->xbc_mag, p->dim, 0}},
                 {"k_proj", keys, {p->xbc, p->xbc_mag, p->dim, keys}},
                 {"v_proj", p->d_inner, {p->xbc, p->xbc_mag, p->dim, 2 * keys}},
                 {"b_proj", c->n_heads, {p->dt, NULL, p->gates, decays}}};
    const struct hb_golden_channels a = {p->dt, NULL, p->gates, 0};
    const struct hb_golden_channels z = {p->z, NULL, p->d_inner, 0};
    struct hb_golden_projection j = {0};
    int32_t status = load_input(p, hidden, s->err, &j.x);
    for (int k = 0; k < 4 && status == HB_OK; k++) {
        status = load_projection(p, part[k].name, part[k].n, hidden, &j, s->err);
        if (status == HB_OK) {
            hb_golden_project(p, &j, 0, part[k].n, &part[k].out);
        }
    }
    status = status != HB_OK ? status : low_rank(s, p, decay, j.x, hidden, &a, decays);
    return status != HB_OK ? status : low_rank(s, p, gate, j.x, hidden, &z, p->d_inner);
}

int32_t hb_golden_load_kda(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    int32_t hidden = 0;
    int32_t status = begin_layer(s, p, &kda, &hidden);
    hb_golden_set_scale(p, 1.0 / sqrt(status == HB_OK ? p->config.state_size : 1));
    status = status != HB_OK ? status : kda_inputs(s, p, hidden);
    status = status != HB_OK ? status : load_conv(s, p);
    const int64_t heads[4] = {1, 1, p->config.n_heads, 1};
    const int64_t bias[1] = {(int64_t)p->config.n_heads * p->config.state_size};
    status = status != HB_OK
                 ? status
                 : hb_golden_set_decay(p, "param.forget_gate.A_log", 4, heads, s->err);
    p->params.dt_bias =
        status == HB_OK ? hb_golden_floats(p, "param.forget_gate.dt_bias", 1, bias, s->err) : NULL;
    status = status == HB_OK && p->params.dt_bias == NULL ? HB_ERR_PARSE : status;
    return status != HB_OK ? status : end_layer(s, p, &kda, hidden);
}

/* ---- MiniMax: rows by head, q k v; layer 0; q is not scaled ---- */

static int32_t minimax_inputs(const struct hb_golden_source *s, struct hb_golden_problem *p,
                              int32_t hidden) {
    const struct hb_config *c = &p->config;
    const int32_t n = c->head_dim;
    struct hb_golden_projection all = {0};
    struct hb_golden_projection gate = {0};
    int32_t status = load_projection(p, "qkv_proj", 3 * p->d_inner, hidden, &all, s->err);
    status = status != HB_OK
                 ? status
                 : load_projection(p, "output_gate", p->d_inner, hidden, &gate, s->err);
    status = status != HB_OK ? status : load_input(p, hidden, s->err, &all.x);
    gate.x = all.x;
    if (status != HB_OK) {
        return status;
    }
    for (int32_t part = 0; part < 3; part++) {
        for (int32_t h = 0; h < c->n_heads; h++) {
            const struct hb_golden_channels out = {p->xbc, p->xbc_mag, p->dim,
                                                   part * p->d_inner + h * n};
            hb_golden_project(p, &all, (3 * h + part) * n, n, &out);
        }
    }
    const struct hb_golden_channels z = {p->z, NULL, p->d_inner, 0};
    hb_golden_project(p, &gate, 0, p->d_inner, &z);
    return HB_OK;
}

int32_t hb_golden_load_lightning(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    static const char *const layers_key[2] = {"num_hidden_layers", NULL};
    int32_t hidden = 0;
    int32_t n_layers = 0;
    p->config.slope_kind = HB_SLOPE_MINIMAX;
    p->config.layer_factor = HB_FACTOR_MINIMAX;
    p->config.qkv_act = HB_QKV_SILU;
    int32_t status = begin_layer(s, p, &minimax, &hidden);
    status = status != HB_OK
                 ? status
                 : hb_golden_size(&s->config, layers_key, 1, HB_MAX_LAYERS, &n_layers);
    hb_golden_set_layers(p, status == HB_OK ? n_layers : 1);
    status = status != HB_OK ? status : minimax_inputs(s, p, hidden);
    return status != HB_OK ? status : end_layer(s, p, &minimax, hidden);
}
