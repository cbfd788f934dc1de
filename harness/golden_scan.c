/* SPDX-License-Identifier: Apache-2.0
 * Golden cases of the scan as Mamba2 layers: conv weights (0, .., 0, 1), no activation, no gate or
 * norm. */
#include <math.h>

#include "harness/golden_internal.h"
#include "harness/golden_load.h"

enum { IDENTITY_WIDTH = 4, SIZE_LIMIT = 1024 };

static int32_t scan_params(const struct hb_golden_source *s, struct hb_golden_problem *p) {
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
    static const char *const flags[3][2] = {{"D", NULL}, {"dt_bias", NULL}, {"dt_softplus", NULL}};
    int32_t has[3];
    for (int i = 0; i < 3; i++) {
        if (hb_golden_flag(&s->config, flags[i], &has[i]) != HB_OK) {
            return HB_ERR_PARSE;
        }
    }
    const int has_d = has[0];
    const int has_bias = has[1];
    p->params.d = has_d ? hb_golden_floats(p, "param.D", 1, heads, s->err) : NULL;
    p->params.dt_bias = has_bias ? hb_golden_floats(p, "param.dt_bias", 1, heads, s->err) : NULL;
    if ((has_d && p->params.d == NULL) || (has_bias && p->params.dt_bias == NULL)) {
        return HB_ERR_PARSE;
    }
    p->config.dt_softplus = has[2];
    return hb_golden_set_conv(p, p->dim, NULL, s->err);
}

/* Final states of all sequences and the states inside sequence 0, which is cut there into segments.
 */
static int32_t scan_states(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    const struct hb_config *c = &p->config;
    const cJSON *points = cJSON_GetObjectItemCaseSensitive(s->entry, "mid_state_after_tokens");
    const int32_t n_mid = cJSON_IsArray(points) ? cJSON_GetArraySize(points) : 0;
    if (points != NULL && n_mid == 0) {
        const struct hb_golden_object o = {s->entry, p->name, "", s->err};
        return hb_golden_wrong(&o, "mid_state_after_tokens", points, "an array of token counts");
    }
    const int64_t final_shape[4] = {p->n_seq, c->n_heads, c->head_dim, c->state_size};
    const int64_t mid_shape[4] = {n_mid, c->n_heads, c->head_dim, c->state_size};
    const struct hb_st_tensor *last =
        hb_golden_need(p, "exp64.final_state", 4, final_shape, s->err);
    const struct hb_st_tensor *mid =
        n_mid > 0 ? hb_golden_need(p, "exp64.mid_state", 4, mid_shape, s->err) : NULL;
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
    cJSON_ArrayForEach(point, points) {
        const double v = cJSON_IsNumber(point) ? point->valuedouble : 0.0;
        if (!(v > at) || !(v < p->len[0]) || floor(v) != v) {
            const struct hb_golden_object o = {s->entry, p->name, "", s->err};
            return hb_golden_wrong(&o, "mid_state_after_tokens", points,
                                   "integers ascending in 1..%d", p->len[0] - 1);
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

static int32_t scan_inputs(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    const struct hb_config *c = &p->config;
    const int64_t x[3] = {p->n_tokens, c->n_heads, c->head_dim};
    const int64_t bc[3] = {p->n_tokens, c->n_groups, c->state_size};
    const int32_t width = c->n_groups * c->state_size;
    int32_t status = hb_golden_inputs(p, s->err);
    status =
        status != HB_OK ? status : hb_golden_put_input(p, "in.x", 3, x, p->xbc, p->dim, 0, s->err);
    status = status != HB_OK
                 ? status
                 : hb_golden_put_input(p, "in.B", 3, bc, p->xbc, p->dim, p->d_inner, s->err);
    status = status != HB_OK ? status
                             : hb_golden_put_input(p, "in.C", 3, bc, p->xbc, p->dim,
                                                   p->d_inner + width, s->err);
    status = status != HB_OK ? status
                             : hb_golden_put_input(p, "in.dt", 2, x, p->dt, c->n_heads, 0, s->err);
    return status != HB_OK ? status : hb_golden_set_expected(p, "", 3, x, s->err);
}

int32_t hb_golden_load_scan(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    static const char *const keys[4][2] = {
        {"nheads", NULL}, {"headdim", NULL}, {"dstate", NULL}, {"ngroups", NULL}};
    static const int32_t limit[4] = {SIZE_LIMIT, SIZE_LIMIT, HB_MAX_STATE_SIZE, SIZE_LIMIT};
    static const char *const chunk_key[2] = {"chunk_size", NULL};
    static const char *const initial_key[2] = {"initial_state", NULL};
    int32_t size[6] = {0, 0, 0, 0, IDENTITY_WIDTH, 0};
    int32_t has_initial = 0;
    for (int i = 0; i < 4; i++) {
        if (hb_golden_size(&s->config, keys[i], 1, limit[i], &size[i]) != HB_OK) {
            return HB_ERR_PARSE;
        }
    }
    if (hb_golden_chunk(&s->config, chunk_key, SIZE_LIMIT, IDENTITY_WIDTH, &size[5]) != HB_OK ||
        hb_golden_flag(&s->config, initial_key, &has_initial) != HB_OK) {
        return HB_ERR_PARSE;
    }
    int32_t status = hb_golden_shape(p, size, s->err);
    p->config.conv_act = HB_CONV_NONE;
    p->config.gate_norm = HB_GATE_NORM_NONE;
    status = status != HB_OK
                 ? status
                 : hb_golden_sequences(
                       cJSON_GetObjectItemCaseSensitive(s->config.json, "sequences"), p, s->err);
    status = status != HB_OK ? status : scan_inputs(s, p);
    status = status != HB_OK ? status : scan_params(s, p);
    status = status != HB_OK ? status : scan_states(s, p);
    if (status == HB_OK && has_initial) {
        const int64_t shape[4] = {p->n_seq, size[0], size[1], size[2]};
        const float *ssm = hb_golden_floats(p, "init.state", 4, shape, s->err);
        status = ssm != NULL ? hb_golden_set_initial(p, NULL, 0, ssm, s->err) : HB_ERR_PARSE;
    }
    return status;
}
