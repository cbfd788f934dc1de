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

int32_t hb_golden_shape(struct hb_golden_problem *p, const int32_t size[6], struct hb_error *err) {
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
        return hb_fail_text(err, HB_ERR_PARSE, "%s: %d heads are not divisible by %d groups",
                            p->name, c->n_heads, c->n_groups);
    }
    return HB_OK;
}

int32_t hb_golden_inputs(struct hb_golden_problem *p, struct hb_error *err) {
    p->z = hb_golden_own(p, (int64_t)p->n_tokens * p->d_inner, sizeof *p->z, err);
    p->xbc = hb_golden_own(p, (int64_t)p->n_tokens * p->dim, sizeof *p->xbc, err);
    p->dt = hb_golden_own(p, (int64_t)p->n_tokens * p->config.n_heads, sizeof *p->dt, err);
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

int32_t hb_golden_set_initial(struct hb_golden_problem *p, const float *conv, int32_t channels,
                              const float *ssm, struct hb_error *err) {
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
    p->act_dtypes = 1 << HB_FP32 | 1 << HB_BF16;
    return p->y != NULL && p->foreign[HB_FP32] != NULL && p->foreign[HB_BF16] != NULL
               ? HB_OK
               : HB_ERR_PARSE;
}
