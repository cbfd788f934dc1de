/* SPDX-License-Identifier: Apache-2.0
 * Golden cases of the conv and of the gated norm as Mamba2 layers. Conv: D = 1 and B = C = 0, so y
 * is the conv; norm: the conv is an identity too, so the norm's input is x. */
#include <string.h>

#include "harness/golden_internal.h"
#include "harness/golden_load.h"

enum { HEAD_DIM = 8, SMALL_STATE = 4, CHUNK = 16, SIZE_LIMIT = 1024 };

static int32_t conv_states(const struct hb_golden_source *s, struct hb_golden_problem *p,
                           int32_t channels) {
    const int32_t n_seg = p->seg_first[p->n_seq];
    const int64_t shape[3] = {n_seg, channels, p->config.conv_width - 1};
    const struct hb_st_tensor *t = hb_golden_need(p, "exp64.state", 3, shape, s->err);
    p->state = hb_golden_own(p, n_seg, sizeof *p->state, s->err);
    if (t == NULL || p->state == NULL) {
        return HB_ERR_PARSE;
    }
    for (int32_t i = 0; i < p->n_seq; i++) {
        int32_t after = 0;
        for (int32_t k = p->seg_first[i]; k < p->seg_first[i + 1]; k++) {
            after += p->seg_len[k];
            p->state[p->n_states++] = (struct hb_golden_state){i, after, NULL, t, 0, k};
        }
    }
    p->conv_columns = p->config.conv_width - 1;
    p->conv_channels = channels;
    return HB_OK;
}

static int32_t conv_params(const struct hb_golden_source *s, struct hb_golden_problem *p,
                           int32_t channels) {
    const int64_t shape[2] = {channels, p->config.conv_width};
    const float *w = hb_golden_floats(p, "param.weight", 2, shape, s->err);
    if (w == NULL || hb_golden_set_conv(p, channels, w, s->err) != HB_OK) {
        return HB_ERR_PARSE;
    }
    static const char *const bias_key[2] = {"bias", NULL};
    int32_t has_bias = 0;
    if (hb_golden_flag(&s->config, bias_key, &has_bias) != HB_OK) {
        return HB_ERR_PARSE;
    }
    if (has_bias) {
        const float *given = hb_golden_floats(p, "param.bias", 1, shape, s->err);
        float *bias = hb_golden_own(p, p->dim, sizeof *bias, s->err);
        if (given == NULL || bias == NULL) {
            return HB_ERR_PARSE;
        }
        memcpy(bias, given, (size_t)channels * sizeof *bias);
        p->params.conv_bias = bias;
    }
    return hb_golden_set_pass_through(p, s->err);
}

/* Sizes of a layer whose x channels are the case's channels. */
static int32_t channel_shape(struct hb_golden_problem *p, int32_t channels, int32_t width,
                             struct hb_error *err) {
    const int32_t head_dim = channels % HEAD_DIM == 0 ? HEAD_DIM : channels;
    const int32_t size[6] = {channels / head_dim, head_dim, SMALL_STATE, 1, width, CHUNK};
    return hb_golden_shape(p, HB_LAYER_MAMBA2, size, err);
}

int32_t hb_golden_load_conv(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    static const char *const channel_key[2] = {"channels", NULL};
    static const char *const width_key[2] = {"width", NULL};
    static const char *const initial_key[2] = {"initial_state", NULL};
    const cJSON *activation = cJSON_GetObjectItemCaseSensitive(s->config.json, "activation");
    int32_t has_initial = 0;
    int32_t channels = 0;
    int32_t width = 0;
    if (hb_golden_size(&s->config, channel_key, 1, SIZE_LIMIT, &channels) != HB_OK ||
        hb_golden_size(&s->config, width_key, 2, HB_MAX_CONV_WIDTH, &width) != HB_OK ||
        hb_golden_flag(&s->config, initial_key, &has_initial) != HB_OK) {
        return HB_ERR_PARSE;
    }
    const int is_silu = cJSON_IsString(activation) && strcmp(activation->valuestring, "silu") == 0;
    if (!is_silu && !(cJSON_IsString(activation) && strcmp(activation->valuestring, "none") == 0)) {
        return hb_golden_wrong(&s->config, "activation", activation, "\"silu\" or \"none\"");
    }
    int32_t status = channel_shape(p, channels, width, s->err);
    p->config.conv_act = is_silu ? HB_CONV_SILU : HB_CONV_NONE;
    p->config.gate_norm = HB_GATE_NORM_NONE;
    status = status != HB_OK
                 ? status
                 : hb_golden_sequences(
                       cJSON_GetObjectItemCaseSensitive(s->config.json, "sequences"), p, s->err);
    const int64_t x[2] = {p->n_tokens, channels};
    status = status != HB_OK ? status : hb_golden_inputs(p, s->err);
    status =
        status != HB_OK ? status : hb_golden_put_input(p, "in.x", 2, x, p->xbc, p->dim, 0, s->err);
    status = status != HB_OK ? status : hb_golden_set_expected(p, "", 2, x, s->err);
    status = status != HB_OK ? status : conv_params(s, p, channels);
    status = status != HB_OK ? status : conv_states(s, p, channels);
    if (status == HB_OK && has_initial) {
        const int64_t shape[3] = {p->n_seq, channels, width - 1};
        const float *conv = hb_golden_floats(p, "init.state", 3, shape, s->err);
        status =
            conv != NULL ? hb_golden_set_initial(p, conv, channels, NULL, s->err) : HB_ERR_PARSE;
    }
    return status;
}

/* ---- norm ---- */

/* The rows of the tensor as one sequence: the first half prefilled, the rest decoded. */
static int32_t norm_sequence(const struct hb_golden_source *s, struct hb_golden_problem *p,
                             int64_t rows) {
    cJSON *list = cJSON_CreateArray();
    cJSON *segments = cJSON_CreateArray();
    int ok = list != NULL && segments != NULL && cJSON_AddItemToArray(list, segments);
    if (!ok) {
        cJSON_Delete(segments);
    }
    for (int64_t at = 0; at < rows && ok;) {
        const int64_t n = at == 0 ? rows - rows / 2 : 1;
        ok = cJSON_AddItemToArray(segments, cJSON_CreateNumber((double)n));
        at += n;
    }
    const int32_t status = ok ? hb_golden_sequences(list, p, s->err)
                              : hb_fail_text(s->err, HB_ERR_MEMORY, "%s: out of memory", p->name);
    cJSON_Delete(list);
    return status;
}

static int32_t norm_variant(const struct hb_golden_object *row, struct hb_golden_problem *p) {
    static const char *const keys[3][2] = {{"gate", NULL}, {"before", NULL}, {"eps", NULL}};
    const cJSON *group = cJSON_GetObjectItemCaseSensitive(row->json, "group");
    int32_t has_gate = 0;
    int32_t is_before = 0;
    if (hb_golden_flag(row, keys[0], &has_gate) != HB_OK ||
        hb_golden_flag(row, keys[1], &is_before) != HB_OK ||
        hb_golden_positive(row, keys[2], &p->eps) != HB_OK) {
        return HB_ERR_PARSE;
    }
    const int gated = is_before ? HB_GATE_NORM_BEFORE : HB_GATE_NORM_AFTER;
    p->config.gate_norm = has_gate ? gated : HB_NORM_ONLY;
    if (!cJSON_IsNull(group) && (!hb_golden_whole(group, 1, p->d_inner, &p->config.norm_group) ||
                                 p->d_inner % p->config.norm_group != 0)) {
        return hb_golden_wrong(row, "group", group, "null or a divisor of %d", p->d_inner);
    }
    p->config.norm_eps = (float)p->eps;
    return HB_OK;
}

int32_t hb_golden_load_norm(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    static const char *const key[2] = {"dim", NULL};
    struct hb_golden_object row = s->config;
    row.json = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(row.json, "rows"), s->row);
    (void)snprintf(row.path, sizeof row.path, "config.rows[%d]", s->row);
    char suffix[16];
    char x_name[32];
    char z_name[32];
    char w_name[32];
    int32_t channels = 0;
    (void)snprintf(suffix, sizeof suffix, "%d", s->row);
    (void)snprintf(x_name, sizeof x_name, "in.x%d", s->row);
    (void)snprintf(z_name, sizeof z_name, "in.z%d", s->row);
    (void)snprintf(w_name, sizeof w_name, "param.w%d", s->row);
    const struct hb_st_tensor *x = hb_st_find(&p->file, x_name);
    if (hb_golden_size(&row, key, 1, SIZE_LIMIT, &channels) != HB_OK) {
        return HB_ERR_PARSE;
    }
    if (x == NULL || x->n_dims != 2 || x->shape[0] < 1 || x->shape[0] > SIZE_LIMIT) {
        return hb_fail_text(s->err, HB_ERR_PARSE, "%s: tensor '%s' is absent or not a matrix",
                            p->name, x_name);
    }
    int32_t status = channel_shape(p, channels, 2, s->err);
    p->config.conv_act = HB_CONV_NONE;
    status = status != HB_OK ? status : norm_variant(&row, p);
    status = status != HB_OK ? status : norm_sequence(s, p, x->shape[0]);
    const int64_t shape[2] = {p->n_tokens, channels};
    status = status != HB_OK ? status : hb_golden_inputs(p, s->err);
    status = status != HB_OK ? status
                             : hb_golden_put_input(p, x_name, 2, shape, p->xbc, p->dim, 0, s->err);
    status = status != HB_OK
                 ? status
                 : hb_golden_put_input(p, z_name, 2, shape, p->z, p->d_inner, 0, s->err);
    status = status != HB_OK ? status : hb_golden_set_expected(p, suffix, 2, shape, s->err);
    status = status != HB_OK ? status : hb_golden_set_conv(p, channels, NULL, s->err);
    status = status != HB_OK ? status : hb_golden_set_pass_through(p, s->err);
    p->params.norm_weight =
        status == HB_OK ? hb_golden_floats(p, w_name, 1, shape + 1, s->err) : NULL;
    return status == HB_OK && p->params.norm_weight == NULL ? HB_ERR_PARSE : status;
}
