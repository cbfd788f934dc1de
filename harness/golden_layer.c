/* SPDX-License-Identifier: Apache-2.0
 * Golden cases that are whole Mamba2 layers: the projections are done here in extended precision,
 * and the layer's inputs are their results (ops-mamba2.md section 2: rows of in_proj are z | xBC |
 * dt). */
#include <math.h>
#include <string.h>

#include "harness/golden_internal.h"
#include "harness/golden_load.h"

enum { SIZE_LIMIT = 1024, CHUNK_LIMIT = 4096 };

/* What the configuration does not say: the habits of a producer. */
struct family {
    const char *prefix;    /* of producer.function */
    int32_t norm_whole;    /* the norm runs over all channels, whatever the groups */
    int32_t min_only;      /* dt is clamped from below by time_step_min */
    int32_t optional_norm; /* norm and its order are in the configuration */
};
static const struct family families[] = {
    {"models.mamba2.", 1, 0, 0},
    {"models.bamba.", 1, 0, 0},
    {"models.nemotron_h.", 0, 1, 0},
    {"models.falcon_h1.", 0, 0, 1},
};

static const struct family *find_family(const cJSON *entry) {
    const cJSON *producer = cJSON_GetObjectItemCaseSensitive(entry, "producer");
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(producer, "function");
    for (size_t i = 0; i < sizeof families / sizeof families[0] && cJSON_IsString(function); i++) {
        if (strncmp(function->valuestring, families[i].prefix, strlen(families[i].prefix)) == 0) {
            return &families[i];
        }
    }
    return NULL;
}

static int32_t load_shape(const struct hb_golden_source *s, struct hb_golden_problem *p,
                          int32_t *hidden) {
    static const char *const keys[6][4] = {{"num_heads", "mamba_num_heads", "mamba_n_heads", NULL},
                                           {"head_dim", "mamba_head_dim", "mamba_d_head", NULL},
                                           {"state_size", "ssm_state_size", "mamba_d_state", NULL},
                                           {"n_groups", "mamba_n_groups", NULL, NULL},
                                           {"conv_kernel", "mamba_d_conv", NULL, NULL},
                                           {"hidden_size", NULL, NULL, NULL}};
    static const char *const chunk_key[3] = {"chunk_size", "mamba_chunk_size", NULL};
    static const int32_t least[6] = {1, 1, 1, 1, 2, 1};
    static const int32_t limit[6] = {SIZE_LIMIT, SIZE_LIMIT,        HB_MAX_STATE_SIZE,
                                     SIZE_LIMIT, HB_MAX_CONV_WIDTH, SIZE_LIMIT};
    int32_t size[6];
    for (int i = 0; i < 6; i++) {
        if (hb_golden_size(&s->config, keys[i], least[i], limit[i], &size[i]) != HB_OK) {
            return HB_ERR_PARSE;
        }
    }
    *hidden = size[5];
    if (hb_golden_chunk(&s->config, chunk_key, CHUNK_LIMIT, size[4], &size[5]) != HB_OK) {
        return HB_ERR_PARSE;
    }
    return hb_golden_shape(p, HB_LAYER_MAMBA2, size, s->err);
}

/* A number of at least 0, or the string "inf"; 0 for anything else. */
static int read_limit(const cJSON *item, double *out) {
    if (cJSON_IsString(item) && strcmp(item->valuestring, "inf") == 0) {
        *out = (double)INFINITY;
        return 1;
    }
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0.0)) {
        return 0;
    }
    *out = item->valuedouble;
    return 1;
}

/* The producers clamp dt in prefill only. */
static int32_t load_clamp(const struct hb_golden_source *s, const struct family *f,
                          struct hb_golden_problem *p) {
    const cJSON *limits = cJSON_GetObjectItemCaseSensitive(s->config.json, "time_step_limit");
    const cJSON *least = cJSON_GetObjectItemCaseSensitive(s->config.json, "time_step_min");
    p->dt_hi = (double)INFINITY;
    if (f->min_only && !(cJSON_IsNumber(least) && read_limit(least, &p->dt_lo))) {
        return hb_golden_wrong(&s->config, "time_step_min", least, "a number of at least 0");
    }
    if (!f->min_only && !(cJSON_IsArray(limits) && cJSON_GetArraySize(limits) == 2 &&
                          read_limit(cJSON_GetArrayItem(limits, 0), &p->dt_lo) &&
                          read_limit(cJSON_GetArrayItem(limits, 1), &p->dt_hi) &&
                          p->dt_lo <= p->dt_hi && isfinite(p->dt_lo))) {
        return hb_golden_wrong(&s->config, "time_step_limit", limits,
                               "[low, high] with 0 <= low <= high, high a number or \"inf\"");
    }
    p->config.dt_lo = (float)p->dt_lo;
    p->config.dt_hi = (float)p->dt_hi;
    p->config.dt_clamp_prefill = f->min_only ? HB_DT_CLAMP_MIN_ONLY : HB_DT_CLAMP_LIMIT;
    p->config.dt_clamp_decode = HB_DT_CLAMP_NONE;
    return HB_OK;
}

static int32_t load_variant(const struct hb_golden_source *s, const struct family *f,
                            struct hb_golden_problem *p) {
    static const char *const act_keys[3] = {"hidden_act", "mamba_hidden_act", NULL};
    static const char *const eps_keys[3] = {"layer_norm_epsilon", "rms_norm_eps", NULL};
    static const char *const norm_keys[2][2] = {{"mamba_rms_norm", NULL},
                                                {"mamba_norm_before_gate", NULL}};
    const char *used = NULL;
    const cJSON *act = hb_golden_field(&s->config, act_keys, &used);
    int32_t has_norm = 1;
    int32_t is_before = 0;
    if (!cJSON_IsString(act) || strcmp(act->valuestring, "silu") != 0) {
        return hb_golden_wrong(&s->config, used, act, "\"silu\"");
    }
    if (hb_golden_positive(&s->config, eps_keys, &p->eps) != HB_OK ||
        (f->optional_norm && (hb_golden_flag(&s->config, norm_keys[0], &has_norm) != HB_OK ||
                              hb_golden_flag(&s->config, norm_keys[1], &is_before) != HB_OK))) {
        return HB_ERR_PARSE;
    }
    if (p->d_inner % p->config.n_groups != 0) {
        return hb_fail_text(s->err, HB_ERR_PARSE, "%s: %d channels are not divisible by %d groups",
                            p->name, p->d_inner, p->config.n_groups);
    }
    p->config.norm_eps = (float)p->eps;
    p->config.norm_group = f->norm_whole ? p->d_inner : p->d_inner / p->config.n_groups;
    p->config.conv_act = HB_CONV_SILU;
    p->config.dt_softplus = 1;
    p->config.gate_norm = HB_GATE_NORM_AFTER;
    if (!has_norm) {
        p->config.gate_norm = HB_GATE_ONLY;
    } else if (is_before) {
        p->config.gate_norm = HB_GATE_NORM_BEFORE;
    }
    return load_clamp(s, f, p);
}

static int32_t load_params(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    const int64_t heads[1] = {p->config.n_heads};
    const int64_t inner[1] = {p->d_inner};
    const int64_t conv[3] = {p->dim, 1, p->config.conv_width};
    static const char *const bias_keys[3] = {"use_conv_bias", "mamba_conv_bias", NULL};
    int32_t has_bias = 0;
    if (hb_golden_flag(&s->config, bias_keys, &has_bias) != HB_OK) {
        return HB_ERR_PARSE;
    }
    const int32_t decay = hb_golden_set_decay(p, "param.A_log", 1, heads, s->err);
    p->params.conv_weight = hb_golden_floats(p, "param.conv1d.weight", 3, conv, s->err);
    p->params.conv_bias =
        has_bias ? hb_golden_floats(p, "param.conv1d.bias", 1, conv, s->err) : NULL;
    p->params.dt_bias = hb_golden_floats(p, "param.dt_bias", 1, heads, s->err);
    p->params.d = hb_golden_floats(p, "param.D", 1, heads, s->err);
    const int has_norm = p->config.gate_norm != HB_GATE_ONLY;
    p->params.norm_weight =
        has_norm ? hb_golden_floats(p, "param.norm.weight", 1, inner, s->err) : NULL;
    const int ok = p->params.conv_weight != NULL && p->params.dt_bias != NULL &&
                   p->params.d != NULL && (!has_bias || p->params.conv_bias != NULL) &&
                   (!has_norm || p->params.norm_weight != NULL);
    return ok ? decay : HB_ERR_PARSE;
}

/* Rows of in_proj: z | xBC | dt. */
static int32_t project_inputs(struct hb_golden_problem *p, const struct hb_golden_projection *j,
                              struct hb_error *err) {
    p->xbc_mag = hb_golden_own(p, (int64_t)p->n_tokens * p->dim, sizeof *p->xbc_mag, err);
    if (p->xbc_mag == NULL || hb_golden_inputs(p, err) != HB_OK) {
        return HB_ERR_MEMORY;
    }
    const struct hb_golden_channels z = {p->z, NULL, p->d_inner, 0};
    const struct hb_golden_channels xbc = {p->xbc, p->xbc_mag, p->dim, 0};
    const struct hb_golden_channels dt = {p->dt, NULL, p->gates, 0};
    hb_golden_project(p, j, 0, p->d_inner, &z);
    hb_golden_project(p, j, p->d_inner, p->dim, &xbc);
    hb_golden_project(p, j, p->d_inner + p->dim, p->gates, &dt);
    return HB_OK;
}

static int32_t load_projection(const struct hb_golden_source *s, struct hb_golden_problem *p,
                               int32_t hidden) {
    const int32_t rows = p->d_inner + p->dim + p->config.n_heads;
    const int64_t x[2] = {p->n_tokens, hidden};
    const int64_t w[2] = {rows, hidden};
    const int64_t scale[3] = {1, 1, rows};
    const cJSON *multiplier = cJSON_GetObjectItemCaseSensitive(s->config.json, "ssm_in_multiplier");
    const int has_bias = hb_st_find(&p->file, "param.in_proj.bias") != NULL;
    const int has_scale = hb_st_find(&p->file, "param.mup_vector") != NULL;
    struct hb_golden_projection j = {.hidden = hidden, .in_scale = 1.0};
    if (multiplier != NULL && !cJSON_IsNumber(multiplier)) {
        return hb_golden_wrong(&s->config, "ssm_in_multiplier", multiplier, "a number");
    }
    j.in_scale = multiplier != NULL ? multiplier->valuedouble : 1.0;
    j.x = hb_golden_doubles(p, "in.hidden_states", 2, x, s->err);
    j.w = hb_golden_floats(p, "param.in_proj.weight", 2, w, s->err);
    j.bias = has_bias ? hb_golden_floats(p, "param.in_proj.bias", 1, w, s->err) : NULL;
    j.scale = has_scale ? hb_golden_floats(p, "param.mup_vector", 3, scale, s->err) : NULL;
    if (j.x == NULL || j.w == NULL || (has_bias && j.bias == NULL) ||
        (has_scale && j.scale == NULL)) {
        return HB_ERR_PARSE;
    }
    return project_inputs(p, &j, s->err);
}

int32_t hb_golden_load_layer(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    const struct family *f = find_family(s->entry);
    int32_t hidden = 0;
    if (f == NULL) {
        const struct hb_golden_object o = {NULL, p->name, "producer", s->err};
        const cJSON *producer = cJSON_GetObjectItemCaseSensitive(s->entry, "producer");
        return hb_golden_wrong(&o, "function",
                               cJSON_GetObjectItemCaseSensitive(producer, "function"),
                               "the name of a known layer");
    }
    int32_t status = load_shape(s, p, &hidden);
    status = status != HB_OK ? status : load_variant(s, f, p);
    status = status != HB_OK
                 ? status
                 : hb_golden_sequences(
                       cJSON_GetObjectItemCaseSensitive(s->config.json, "sequences"), p, s->err);
    status = status != HB_OK ? status : load_params(s, p);
    status = status != HB_OK ? status : load_projection(s, p, hidden);
    status = status != HB_OK ? status : hb_golden_set_output(p, "out_proj", hidden, s->err);
    return status != HB_OK ? status : hb_golden_set_layer_states(s, p);
}
