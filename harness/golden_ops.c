/* SPDX-License-Identifier: Apache-2.0
 * Golden cases of the core operations as Mamba2 layers through exact identities (contracts.md section 6):
 * scan: conv weights (0, .., 0, 1), no activation, no gate or norm; conv: D = 1 and B = C = 0, so y is the conv;
 * norm: both, then the norm. Whole layers are in golden_layer.c. */
#include <math.h>
#include <string.h>

#include "harness/golden_internal.h"
#include "harness/golden_load.h"

enum { IDENTITY_WIDTH = 4, HEAD_DIM = 8, SMALL_STATE = 4, CHUNK = 16, SIZE_LIMIT = 1024 };

int hb_golden_flag(const cJSON *config, const char *name)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(config, name));
}

float *hb_golden_floats(struct hb_golden_problem *p, const char *name, int32_t n_dims, const int64_t *shape,
                        struct hb_error *err)
{
    const struct hb_st_tensor *t = hb_golden_need(p, name, n_dims, shape, err);
    float *out = t != NULL ? hb_golden_own(p, t->n, sizeof *out, err) : NULL;
    if (out != NULL) {
        hb_st_floats(t, 0, t->n, out);
    }
    return out;
}

int32_t hb_golden_shape(struct hb_golden_problem *p, const int32_t size[6], struct hb_error *err)
{
    struct hb_config *c = &p->config;
    c->struct_size = sizeof *c;
    c->n_layers = 1;
    c->layer_kind[0] = HB_LAYER_MAMBA2;
    c->n_heads = size[0];
    c->head_dim = size[1];
    c->state_size = size[2];
    c->n_groups = size[3];
    c->conv_width = size[4];
    c->chunk_size = size[5];
    c->page_size = 1;
    p->d_inner = c->n_heads * c->head_dim;
    p->dim = p->d_inner + 2 * c->n_groups * c->state_size;
    c->norm_group = p->d_inner;
    c->norm_eps = 1e-5F;
    c->dt_hi = INFINITY;
    p->eps = 1e-5;
    p->dt_hi = (double)INFINITY;
    c->n_q_heads = 1; /* sizes of the attention layers that are not there */
    c->n_kv_heads = 1;
    c->attn_dim = 1;
    if (c->n_heads % c->n_groups != 0) {
        return hb_fail_text(err, HB_ERR_PARSE, "%s: %d heads are not divisible by %d groups", p->name, c->n_heads,
                            c->n_groups);
    }
    return HB_OK;
}

int32_t hb_golden_inputs(struct hb_golden_problem *p, struct hb_error *err)
{
    p->z = hb_golden_own(p, (int64_t)p->n_tokens * p->d_inner, sizeof *p->z, err);
    p->xbc = hb_golden_own(p, (int64_t)p->n_tokens * p->dim, sizeof *p->xbc, err);
    p->dt = hb_golden_own(p, (int64_t)p->n_tokens * p->config.n_heads, sizeof *p->dt, err);
    return p->z != NULL && p->xbc != NULL && p->dt != NULL ? HB_OK : HB_ERR_MEMORY;
}

/* Conv weights (0, .., 0, 1) for the first n channels, 0 for the rest; given weights are copied instead. */
static int32_t set_conv(struct hb_golden_problem *p, int32_t n, const float *given, struct hb_error *err)
{
    const int32_t k = p->config.conv_width;
    float *w = hb_golden_own(p, (int64_t)p->dim * k, sizeof *w, err);
    if (w == NULL) {
        return HB_ERR_MEMORY;
    }
    for (int32_t c = 0; c < n; c++) {
        for (int32_t j = 0; j < k; j++) {
            const float identity = j == k - 1 ? 1.0F : 0.0F;
            w[c * k + j] = given != NULL ? given[c * k + j] : identity;
        }
    }
    p->params.conv_weight = w;
    return HB_OK;
}

/* A = -1 and D = 1 for each head. */
static int32_t set_pass_through(struct hb_golden_problem *p, struct hb_error *err)
{
    const int32_t heads = p->config.n_heads;
    float *a = hb_golden_own(p, heads, sizeof *a, err);
    float *d = hb_golden_own(p, heads, sizeof *d, err);
    p->a = hb_golden_own(p, heads, sizeof *p->a, err);
    if (a == NULL || d == NULL || p->a == NULL) {
        return HB_ERR_MEMORY;
    }
    for (int32_t h = 0; h < heads; h++) {
        a[h] = -1.0F;
        d[h] = 1.0F;
        p->a[h] = -1.0;
    }
    p->params.a = a;
    p->params.d = d;
    p->config.dt_softplus = 1;
    return HB_OK;
}

/* Initial states: conv [n_seq, channels, W] of the first channels or null, ssm or null. */
static int32_t set_initial(struct hb_golden_problem *p, const float *conv, int32_t channels, const float *ssm,
                           struct hb_error *err)
{
    const int32_t w = p->config.conv_width - 1;
    const int64_t state = (int64_t)p->d_inner * p->config.state_size;
    p->init_conv = hb_golden_own(p, (int64_t)p->n_seq * p->dim * w, sizeof *p->init_conv, err);
    p->init_ssm = hb_golden_own(p, p->n_seq * state, sizeof *p->init_ssm, err);
    if (p->init_conv == NULL || p->init_ssm == NULL) {
        return HB_ERR_MEMORY;
    }
    for (int32_t s = 0; s < p->n_seq && conv != NULL; s++) {
        memcpy(p->init_conv + (int64_t)s * p->dim * w, conv + (int64_t)s * channels * w,
               (size_t)channels * (size_t)w * sizeof *conv);
    }
    if (ssm != NULL) {
        memcpy(p->init_ssm, ssm, (size_t)(p->n_seq * state) * sizeof *ssm);
    }
    p->base = HB_GOLDEN_BASE;
    return HB_OK;
}

/* Copies tensor [T, width] into channels first.. of the layer input to [T, stride]. */
static int32_t put_input(const struct hb_golden_problem *p, const char *name, int32_t n_dims, const int64_t *shape,
                         double *to, int32_t stride, int32_t first, struct hb_error *err)
{
    const struct hb_st_tensor *t = hb_golden_need(p, name, n_dims, shape, err);
    if (t == NULL) {
        return HB_ERR_PARSE;
    }
    const int64_t width = t->n / p->n_tokens;
    for (int64_t i = 0; i < t->n; i++) {
        to[i / width * stride + first + i % width] = hb_st_get(t, i);
    }
    return HB_OK;
}

/* Output and the types in which core cases run: their inputs are exact in both. */
static int32_t set_expected(struct hb_golden_problem *p, const char *suffix, int32_t n_dims, const int64_t *shape,
                            struct hb_error *err)
{
    char name[32];
    (void)snprintf(name, sizeof name, "exp64.y%s", suffix);
    p->y = hb_golden_need(p, name, n_dims, shape, err);
    (void)snprintf(name, sizeof name, "exp32.y%s", suffix);
    p->foreign[HB_FP32] = hb_golden_need(p, name, n_dims, shape, err);
    (void)snprintf(name, sizeof name, "expbf16.y%s", suffix);
    p->foreign[HB_BF16] = hb_golden_need(p, name, n_dims, shape, err);
    p->y_width = p->d_inner;
    p->act_dtypes = 1 << HB_FP32 | 1 << HB_BF16;
    return p->y != NULL && p->foreign[HB_FP32] != NULL && p->foreign[HB_BF16] != NULL ? HB_OK : HB_ERR_PARSE;
}

/* ---- scan ---- */

static int32_t scan_params(const struct hb_golden_source *s, struct hb_golden_problem *p)
{
    const int64_t heads[1] = {p->config.n_heads};
    const float *a = hb_golden_floats(p, "param.A", 1, heads, s->err);
    p->a = hb_golden_own(p, heads[0], sizeof *p->a, s->err);
    if (a == NULL || p->a == NULL) {
        return HB_ERR_PARSE;
    }
    for (int32_t h = 0; h < p->config.n_heads; h++) {
        p->a[h] = (double)a[h];
    }
    p->params.a = a;
    const int has_d = hb_golden_flag(s->config, "D");
    const int has_bias = hb_golden_flag(s->config, "dt_bias");
    p->params.d = has_d ? hb_golden_floats(p, "param.D", 1, heads, s->err) : NULL;
    p->params.dt_bias = has_bias ? hb_golden_floats(p, "param.dt_bias", 1, heads, s->err) : NULL;
    if ((has_d && p->params.d == NULL) || (has_bias && p->params.dt_bias == NULL)) {
        return HB_ERR_PARSE;
    }
    p->config.dt_softplus = hb_golden_flag(s->config, "dt_softplus");
    return set_conv(p, p->dim, NULL, s->err);
}

/* Final states of all sequences and the states inside sequence 0, which is cut there into segments. */
static int32_t scan_states(const struct hb_golden_source *s, struct hb_golden_problem *p)
{
    const struct hb_config *c = &p->config;
    const cJSON *points = cJSON_GetObjectItemCaseSensitive(s->entry, "mid_state_after_tokens");
    const int32_t n_mid = cJSON_IsArray(points) ? cJSON_GetArraySize(points) : 0;
    const int64_t final_shape[4] = {p->n_seq, c->n_heads, c->head_dim, c->state_size};
    const int64_t mid_shape[4] = {n_mid, c->n_heads, c->head_dim, c->state_size};
    const struct hb_st_tensor *last = hb_golden_need(p, "exp64.final_state", 4, final_shape, s->err);
    const struct hb_st_tensor *mid = n_mid > 0 ? hb_golden_need(p, "exp64.mid_state", 4, mid_shape, s->err) : NULL;
    if (last == NULL || (n_mid > 0 && mid == NULL)) {
        return HB_ERR_PARSE;
    }
    int32_t *seg_len = hb_golden_own(p, (int64_t)p->n_seq + n_mid, sizeof *seg_len, s->err);
    p->state = hb_golden_own(p, (int64_t)p->n_seq + n_mid, sizeof *p->state, s->err);
    if (seg_len == NULL || p->state == NULL) {
        return HB_ERR_MEMORY;
    }
    int32_t at = 0;
    const cJSON *point = NULL;
    cJSON_ArrayForEach(point, points)
    {
        const double v = cJSON_IsNumber(point) ? point->valuedouble : 0.0;
        if (!(v > at) || !(v < p->len[0]) || floor(v) != v) {
            return hb_fail_text(s->err, HB_ERR_PARSE, "%s: mid_state_after_tokens is not ascending in 1..%d", p->name,
                                p->len[0] - 1);
        }
        seg_len[p->n_states] = (int32_t)v - at;
        at = (int32_t)v;
        p->state[p->n_states] = (struct hb_golden_state){0, at, mid, NULL, p->n_states, 0};
        p->n_states++;
    }
    for (int32_t i = 0; i < p->n_seq; i++) {
        seg_len[p->n_states] = i == 0 ? p->len[0] - at : p->len[i];
        p->seg_first[i + 1] = p->n_states + 1;
        p->state[p->n_states++] = (struct hb_golden_state){i, p->len[i], last, NULL, i, 0};
    }
    p->seg_len = seg_len;
    return HB_OK;
}

static int32_t scan_inputs(const struct hb_golden_source *s, struct hb_golden_problem *p)
{
    const struct hb_config *c = &p->config;
    const int64_t x[3] = {p->n_tokens, c->n_heads, c->head_dim};
    const int64_t bc[3] = {p->n_tokens, c->n_groups, c->state_size};
    const int32_t width = c->n_groups * c->state_size;
    int32_t status = hb_golden_inputs(p, s->err);
    status = status != HB_OK ? status : put_input(p, "in.x", 3, x, p->xbc, p->dim, 0, s->err);
    status = status != HB_OK ? status : put_input(p, "in.B", 3, bc, p->xbc, p->dim, p->d_inner, s->err);
    status = status != HB_OK ? status : put_input(p, "in.C", 3, bc, p->xbc, p->dim, p->d_inner + width, s->err);
    status = status != HB_OK ? status : put_input(p, "in.dt", 2, x, p->dt, c->n_heads, 0, s->err);
    return status != HB_OK ? status : set_expected(p, "", 3, x, s->err);
}

int32_t hb_golden_load_scan(const struct hb_golden_source *s, struct hb_golden_problem *p)
{
    static const char *const keys[6][2] = {{"nheads", NULL},  {"headdim", NULL}, {"dstate", NULL},
                                           {"ngroups", NULL}, {NULL, NULL},      {"chunk_size", NULL}};
    int32_t size[6] = {0, 0, 0, 0, IDENTITY_WIDTH, 0};
    for (int i = 0; i < 6; i++) {
        if (keys[i][0] != NULL && hb_golden_size(s->config, keys[i], SIZE_LIMIT, &size[i], s->err) != HB_OK) {
            return HB_ERR_PARSE;
        }
    }
    int32_t status = hb_golden_shape(p, size, s->err);
    p->config.conv_act = HB_CONV_NONE;
    p->config.gate_norm = HB_GATE_NORM_NONE;
    status = status != HB_OK
                 ? status
                 : hb_golden_sequences(cJSON_GetObjectItemCaseSensitive(s->config, "sequences"), p, s->err);
    status = status != HB_OK ? status : scan_inputs(s, p);
    status = status != HB_OK ? status : scan_params(s, p);
    status = status != HB_OK ? status : scan_states(s, p);
    if (status == HB_OK && hb_golden_flag(s->config, "initial_state")) {
        const int64_t shape[4] = {p->n_seq, size[0], size[1], size[2]};
        const float *ssm = hb_golden_floats(p, "init.state", 4, shape, s->err);
        status = ssm != NULL ? set_initial(p, NULL, 0, ssm, s->err) : HB_ERR_PARSE;
    }
    return status;
}

/* ---- conv ---- */

static int32_t conv_states(const struct hb_golden_source *s, struct hb_golden_problem *p, int32_t channels)
{
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

static int32_t conv_params(const struct hb_golden_source *s, struct hb_golden_problem *p, int32_t channels)
{
    const int64_t shape[2] = {channels, p->config.conv_width};
    const float *w = hb_golden_floats(p, "param.weight", 2, shape, s->err);
    if (w == NULL || set_conv(p, channels, w, s->err) != HB_OK) {
        return HB_ERR_PARSE;
    }
    if (hb_golden_flag(s->config, "bias")) {
        const float *given = hb_golden_floats(p, "param.bias", 1, shape, s->err);
        float *bias = hb_golden_own(p, p->dim, sizeof *bias, s->err);
        if (given == NULL || bias == NULL) {
            return HB_ERR_PARSE;
        }
        memcpy(bias, given, (size_t)channels * sizeof *bias);
        p->params.conv_bias = bias;
    }
    return set_pass_through(p, s->err);
}

/* Sizes of a layer whose x channels are the case's channels. */
static int32_t channel_shape(struct hb_golden_problem *p, int32_t channels, int32_t width, struct hb_error *err)
{
    const int32_t head_dim = channels % HEAD_DIM == 0 ? HEAD_DIM : channels;
    const int32_t size[6] = {channels / head_dim, head_dim, SMALL_STATE, 1, width, CHUNK};
    return hb_golden_shape(p, size, err);
}

int32_t hb_golden_load_conv(const struct hb_golden_source *s, struct hb_golden_problem *p)
{
    static const char *const channel_key[2] = {"channels", NULL};
    static const char *const width_key[2] = {"width", NULL};
    const cJSON *activation = cJSON_GetObjectItemCaseSensitive(s->config, "activation");
    int32_t channels = 0;
    int32_t width = 0;
    if (hb_golden_size(s->config, channel_key, SIZE_LIMIT, &channels, s->err) != HB_OK ||
        hb_golden_size(s->config, width_key, HB_MAX_CONV_WIDTH, &width, s->err) != HB_OK) {
        return HB_ERR_PARSE;
    }
    const int is_silu = cJSON_IsString(activation) && strcmp(activation->valuestring, "silu") == 0;
    if (!is_silu && !(cJSON_IsString(activation) && strcmp(activation->valuestring, "none") == 0)) {
        return hb_fail_text(s->err, HB_ERR_PARSE, "%s: config.activation is neither silu nor none", p->name);
    }
    int32_t status = channel_shape(p, channels, width, s->err);
    p->config.conv_act = is_silu ? HB_CONV_SILU : HB_CONV_NONE;
    p->config.gate_norm = HB_GATE_NORM_NONE;
    status = status != HB_OK
                 ? status
                 : hb_golden_sequences(cJSON_GetObjectItemCaseSensitive(s->config, "sequences"), p, s->err);
    const int64_t x[2] = {p->n_tokens, channels};
    status = status != HB_OK ? status : hb_golden_inputs(p, s->err);
    status = status != HB_OK ? status : put_input(p, "in.x", 2, x, p->xbc, p->dim, 0, s->err);
    status = status != HB_OK ? status : set_expected(p, "", 2, x, s->err);
    status = status != HB_OK ? status : conv_params(s, p, channels);
    status = status != HB_OK ? status : conv_states(s, p, channels);
    if (status == HB_OK && hb_golden_flag(s->config, "initial_state")) {
        const int64_t shape[3] = {p->n_seq, channels, width - 1};
        const float *conv = hb_golden_floats(p, "init.state", 3, shape, s->err);
        status = conv != NULL ? set_initial(p, conv, channels, NULL, s->err) : HB_ERR_PARSE;
    }
    return status;
}

/* ---- norm ---- */

/* The rows of the tensor as one sequence: the first half prefilled, the rest decoded. */
static int32_t norm_sequence(const struct hb_golden_source *s, struct hb_golden_problem *p, int64_t rows)
{
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

static int32_t norm_variant(const cJSON *row, struct hb_golden_problem *p, struct hb_error *err)
{
    const cJSON *group = cJSON_GetObjectItemCaseSensitive(row, "group");
    const cJSON *eps = cJSON_GetObjectItemCaseSensitive(row, "eps");
    const int after = hb_golden_flag(row, "before") ? HB_GATE_NORM_BEFORE : HB_GATE_NORM_AFTER;
    p->config.gate_norm = hb_golden_flag(row, "gate") ? after : HB_NORM_ONLY;
    if (cJSON_IsNumber(group)) {
        static const char *const key[2] = {"group", NULL};
        if (hb_golden_size(row, key, p->d_inner, &p->config.norm_group, err) != HB_OK) {
            return HB_ERR_PARSE;
        }
    }
    if (p->d_inner % p->config.norm_group != 0 || !cJSON_IsNumber(eps) || !(eps->valuedouble > 0.0)) {
        return hb_fail_text(err, HB_ERR_PARSE, "%s: group %d does not divide %d channels, or eps is not positive",
                            p->name, p->config.norm_group, p->d_inner);
    }
    p->eps = eps->valuedouble;
    p->config.norm_eps = (float)p->eps;
    return HB_OK;
}

int32_t hb_golden_load_norm(const struct hb_golden_source *s, struct hb_golden_problem *p)
{
    static const char *const key[2] = {"dim", NULL};
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(s->config, "rows"), s->row);
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
    if (hb_golden_size(row, key, SIZE_LIMIT, &channels, s->err) != HB_OK) {
        return HB_ERR_PARSE;
    }
    if (x == NULL || x->n_dims != 2 || x->shape[0] < 1 || x->shape[0] > SIZE_LIMIT) {
        return hb_fail_text(s->err, HB_ERR_PARSE, "%s: tensor '%s' is absent or not a matrix", p->name, x_name);
    }
    int32_t status = channel_shape(p, channels, 2, s->err);
    p->config.conv_act = HB_CONV_NONE;
    status = status != HB_OK ? status : norm_variant(row, p, s->err);
    status = status != HB_OK ? status : norm_sequence(s, p, x->shape[0]);
    const int64_t shape[2] = {p->n_tokens, channels};
    status = status != HB_OK ? status : hb_golden_inputs(p, s->err);
    status = status != HB_OK ? status : put_input(p, x_name, 2, shape, p->xbc, p->dim, 0, s->err);
    status = status != HB_OK ? status : put_input(p, z_name, 2, shape, p->z, p->d_inner, 0, s->err);
    status = status != HB_OK ? status : set_expected(p, suffix, 2, shape, s->err);
    status = status != HB_OK ? status : set_conv(p, channels, NULL, s->err);
    status = status != HB_OK ? status : set_pass_through(p, s->err);
    p->params.norm_weight = status == HB_OK ? hb_golden_floats(p, w_name, 1, shape + 1, s->err) : NULL;
    return status == HB_OK && p->params.norm_weight == NULL ? HB_ERR_PARSE : status;
}
