/* SPDX-License-Identifier: Apache-2.0
 * Golden cases of the scan as Mamba2 layers: conv weights (0, .., 0, 1), no activation, no gate or
 * norm. */
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
    int32_t status = hb_golden_shape(p, HB_LAYER_MAMBA2, size, s->err);
    p->config.conv_act = HB_CONV_NONE;
    p->config.gate_norm = HB_GATE_NORM_NONE;
    status = status != HB_OK
                 ? status
                 : hb_golden_sequences(
                       cJSON_GetObjectItemCaseSensitive(s->config.json, "sequences"), p, s->err);
    status = status != HB_OK ? status : scan_inputs(s, p);
    status = status != HB_OK ? status : scan_params(s, p);
    const int64_t state[3] = {size[0], size[1], size[2]};
    status = status != HB_OK ? status : hb_golden_set_states(s, p, state);
    if (status == HB_OK && has_initial) {
        const int64_t shape[4] = {p->n_seq, size[0], size[1], size[2]};
        const float *ssm = hb_golden_floats(p, "init.state", 4, shape, s->err);
        status = ssm != NULL ? hb_golden_set_initial(p, NULL, 0, ssm, s->err) : HB_ERR_PARSE;
    }
    return status;
}
