/* SPDX-License-Identifier: Apache-2.0
 * Steps that the importers of golden operations share: sizes, inputs, and the exact identities of
 * contracts.md section 6 through which operations smaller than a layer become one. */
#include <math.h>
#include <string.h>

#include "harness/golden_internal.h"
#include "harness/golden_load.h"

float *hb_golden_floats(struct hb_golden_problem *p, const char *name, int32_t n_dims,
                        const int64_t *shape, struct hb_error *err) {
    const struct hb_st_tensor *t = hb_golden_need(p, name, n_dims, shape, err);
    float *out = t != NULL ? hb_golden_own(p, t->n, sizeof *out, err) : NULL;
    if (out != NULL) {
        hb_st_floats(t, 0, t->n, out);
    }
    return out;
}

void hb_golden_widths(struct hb_golden_problem *p) {
    const struct hb_config *c = &p->config;
    const int32_t kind = c->layer_kind[0];
    const int32_t lightning = c->slope_kind == HB_SLOPE_TOKEN ? c->n_heads : 0;
    const int32_t gates[HB_N_LAYER_KINDS] = {[HB_LAYER_MAMBA2] = c->n_heads,
                                             [HB_LAYER_GDN] = 2 * c->n_heads,
                                             [HB_LAYER_KDA] = c->n_heads * (c->state_size + 1),
                                             [HB_LAYER_LIGHTNING] = lightning};
    p->d_inner = c->n_heads * c->head_dim;
    p->dim = p->d_inner + 2 * c->n_groups * c->state_size;
    p->gates = gates[kind];
    p->channels = kind == HB_LAYER_LIGHTNING ? 0 : p->dim;
}

void hb_golden_set_layers(struct hb_golden_problem *p, int32_t n_layers) {
    p->config.n_layers = n_layers;
    for (int32_t l = 0; l < n_layers; l++) {
        p->config.layer_kind[l] = p->config.layer_kind[0];
    }
}

void hb_golden_set_scale(struct hb_golden_problem *p, double scale) {
    p->scale = scale;
    p->config.qk_scale = (float)scale;
    if ((double)p->config.qk_scale != scale && 
        fabs(scale * sqrt(p->config.state_size) - 1.0) < 1e-14) {
        p->config.qk_scale = 0.0F;
    }
}

int32_t hb_golden_shape(struct hb_golden_problem *p, int32_t kind, const int32_t size[6],
                        struct hb_error *err) {
    struct hb_config *c = &p->config;
    c->struct_size = sizeof *c;
    c->n_layers = 1;
    c->layer_kind[0] = kind;
    c->n_heads = size[0];
    c->head_dim = size[1];
    c->state_size = size[2];
    c->n_groups = size[3];
    c->conv_width = size[4];
    c->chunk_size = size[5];
    c->page_size = 1;
    hb_golden_widths(p);
    hb_golden_set_scale(p, 1.0);
    c->norm_group = p->d_inner;
    c->norm_eps = 1e-5F;
    c->dt_hi = INFINITY;
    p->eps = 1e-5;
    p->dt_hi = (double)INFINITY;
    c->n_q_heads = 1; /* sizes of the attention layers that are not there */
    c->n_kv_heads = 1;
    c->attn_dim = 1;
    if (c->n_heads % c->n_groups != 0) {
        return hb_fail_text(err, HB_ERR_PARSE, "%s: %d heads are not divisible by %d groups",
                            p->name, c->n_heads, c->n_groups);
    }
    return HB_OK;
}

int32_t hb_golden_inputs(struct hb_golden_problem *p, struct hb_error *err) {
    p->z = hb_golden_own(p, (int64_t)p->n_tokens * p->d_inner, sizeof *p->z, err);
    p->xbc = hb_golden_own(p, (int64_t)p->n_tokens * p->dim, sizeof *p->xbc, err);
    p->dt = hb_golden_own(p, (int64_t)p->n_tokens * p->gates, sizeof *p->dt, err);
    return p->z != NULL && p->xbc != NULL && p->dt != NULL ? HB_OK : HB_ERR_MEMORY;
}

/* Conv weights (0, .., 0, 1) for the first n channels, 0 for the rest; given weights are copied
 * instead. */
int32_t hb_golden_set_conv(struct hb_golden_problem *p, int32_t n, const float *given,
                           struct hb_error *err) {
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

int32_t hb_golden_set_pass_through(struct hb_golden_problem *p, struct hb_error *err) {
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

/* [H, N, P] to [H, P, N]. */
static void turn_state(const struct hb_config *c, const float *from, float *to) {
    const int64_t n_p = c->head_dim, n_n = c->state_size;
    for (int64_t i = 0; i < c->n_heads * n_p * n_n; i++) {
        const int64_t head = i / (n_p * n_n);
        to[(head * n_p + i % n_p) * n_n + i / n_p % n_n] = from[i];
    }
}

int32_t hb_golden_set_initial(struct hb_golden_problem *p, const float *conv, int32_t channels,
                              const float *ssm, struct hb_error *err) {
    const int32_t w = p->config.conv_width - 1;
    const int64_t state = (int64_t)p->d_inner * p->config.state_size;
    p->init_conv =
        hb_golden_own(p, (int64_t)p->n_seq * p->channels * w, sizeof *p->init_conv, err);
    p->init_ssm = hb_golden_own(p, p->n_seq * state, sizeof *p->init_ssm, err);
    if (p->init_conv == NULL || p->init_ssm == NULL) {
        return HB_ERR_MEMORY;
    }
    for (int32_t s = 0; s < p->n_seq && conv != NULL; s++) {
        memcpy(p->init_conv + (int64_t)s * p->channels * w, conv + (int64_t)s * channels * w,
               (size_t)channels * (size_t)w * sizeof *conv);
    }
    for (int32_t s = 0; s < p->n_seq && ssm != NULL; s++) {
        if (p->state_is_kv) {
            turn_state(&p->config, ssm + s * state, p->init_ssm + s * state);
        } else {
            memcpy(p->init_ssm + s * state, ssm + s * state, (size_t)state * sizeof *ssm);
        }
    }
    p->base = HB_GOLDEN_BASE;
    return HB_OK;
}

int32_t hb_golden_put_input(const struct hb_golden_problem *p, const char *name, int32_t n_dims,
                            const int64_t *shape, double *to, int32_t stride, int32_t first,
                            struct hb_error *err) {
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

int32_t hb_golden_set_expected(struct hb_golden_problem *p, const char *suffix, int32_t n_dims,
                               const int64_t *shape, struct hb_error *err) {
    char name[32];
    (void)snprintf(name, sizeof name, "exp64.y%s", suffix);
    p->y = hb_golden_need(p, name, n_dims, shape, err);
    (void)snprintf(name, sizeof name, "exp32.y%s", suffix);
    p->foreign[HB_FP32] = hb_golden_need(p, name, n_dims, shape, err);
    (void)snprintf(name, sizeof name, "expbf16.y%s", suffix);
    p->foreign[HB_BF16] = hb_golden_need(p, name, n_dims, shape, err);
    p->y_width = p->d_inner;
    p->act_dtypes = 1 << HB_FP32 | 1 << HB_BF16 | 1 << HB_FP16;
    return p->y != NULL && p->foreign[HB_FP32] != NULL && p->foreign[HB_BF16] != NULL
               ? HB_OK
               : HB_ERR_PARSE;
}

int32_t hb_golden_set_states(const struct hb_golden_source *s, struct hb_golden_problem *p,
                             const int64_t shape[3]) {
    const cJSON *points = cJSON_GetObjectItemCaseSensitive(s->entry, "mid_state_after_tokens");
    const int32_t n_mid = cJSON_IsArray(points) ? cJSON_GetArraySize(points) : 0;
    if (points != NULL && n_mid == 0) {
        const struct hb_golden_object o = {s->entry, p->name, "", s->err};
        return hb_golden_wrong(&o, "mid_state_after_tokens", points, "an array of token counts");
    }
    const int64_t final_shape[4] = {p->n_seq, shape[0], shape[1], shape[2]};
    const int64_t mid_shape[4] = {n_mid, shape[0], shape[1], shape[2]};
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
