/* SPDX-License-Identifier: Apache-2.0
 * What the importers of whole layers share: projections in extended precision, the output
 * projection, stored states. */
#include <math.h>
#include <string.h>

#include "harness/golden_internal.h"
#include "harness/golden_load.h"

/* One element of the projection and the sum of its absolute terms. */
static void project(const struct hb_golden_projection *j, int64_t token, int32_t row, double *value,
                    double *mag) {
    const double *x = j->x + token * j->hidden;
    const float *w = j->w + (int64_t)row * j->hidden;
    long double sum = j->bias != NULL ? (long double)j->bias[row] : 0.0L;
    long double absolute = fabsl(sum);
    for (int32_t k = 0; k < j->hidden; k++) {
        const long double term = (long double)w[k] * (long double)(j->in_scale * x[k]);
        sum += term;
        absolute += fabsl(term);
    }
    const long double scale = j->scale != NULL ? (long double)j->scale[row] : 1.0L;
    *value = (double)(sum * scale);
    *mag = (double)(absolute * fabsl(scale));
}

void hb_golden_project(const struct hb_golden_problem *p, const struct hb_golden_projection *j,
                       int32_t row, int32_t n, const struct hb_golden_channels *out) {
    for (int64_t t = 0; t < p->n_tokens; t++) {
        const int64_t at = t * out->stride + out->first;
        for (int32_t i = 0; i < n; i++) {
            double mag = 0.0;
            project(j, t, row + i, &out->to[at + i], &mag);
            if (out->mag != NULL) {
                out->mag[at + i] = mag;
            }
        }
    }
}

double *hb_golden_doubles(struct hb_golden_problem *p, const char *name, int32_t n_dims,
                          const int64_t *shape, struct hb_error *err) {
    const struct hb_st_tensor *t = hb_golden_need(p, name, n_dims, shape, err);
    double *out = t != NULL ? hb_golden_own(p, t->n, sizeof *out, err) : NULL;
    for (int64_t i = 0; out != NULL && i < t->n; i++) {
        out[i] = hb_st_get(t, i);
    }
    return out;
}

int32_t hb_golden_set_decay(struct hb_golden_problem *p, const char *name, int32_t n_dims,
                            const int64_t *shape, struct hb_error *err) {
    const int32_t heads = p->config.n_heads;
    double *a = hb_golden_doubles(p, name, n_dims, shape, err);
    float *rounded = hb_golden_own(p, heads, sizeof *rounded, err);
    if (a == NULL || rounded == NULL) {
        return HB_ERR_PARSE;
    }
    for (int32_t h = 0; h < heads; h++) {
        a[h] = -exp(a[h]);
        rounded[h] = (float)a[h];
    }
    p->a = a;
    p->params.a = rounded;
    return HB_OK;
}

int32_t hb_golden_set_output(struct hb_golden_problem *p, const char *projection, int32_t hidden,
                             struct hb_error *err) {
    const int64_t y[2] = {p->n_tokens, hidden};
    const int64_t w[2] = {hidden, p->d_inner};
    char weight[48];
    char bias[48];
    (void)snprintf(weight, sizeof weight, "param.%s.weight", projection);
    (void)snprintf(bias, sizeof bias, "param.%s.bias", projection);
    const int has_bias = hb_st_find(&p->file, bias) != NULL;
    const int has_whole = hb_st_find(&p->file, "exp64.y_one_prefill") != NULL;
    p->y_width = hidden;
    p->w_out = hb_golden_doubles(p, weight, 2, w, err);
    p->b_out = has_bias ? hb_golden_doubles(p, bias, 1, w, err) : NULL;
    p->y = hb_golden_need(p, "exp64.y", 2, y, err);
    p->y_whole = has_whole ? hb_golden_need(p, "exp64.y_one_prefill", 2, y, err) : NULL;
    p->foreign[HB_FP32] = hb_golden_need(p, "exp32.y", 2, y, err);
    p->act_dtypes = 1 << HB_FP32; /* projections are not exact in 16 bits */
    const int ok = p->w_out != NULL && p->y != NULL && p->foreign[HB_FP32] != NULL &&
                   (!has_bias || p->b_out != NULL) && (!has_whole || p->y_whole != NULL);
    return ok ? HB_OK : HB_ERR_PARSE;
}

/* {index, sequence, after_token} of entry `item` of the list. */
static int32_t read_state(const struct hb_golden_object *o, const struct hb_golden_problem *p,
                          const cJSON *item, int32_t n, int32_t v[3]) {
    static const char *const field[3] = {"index", "sequence", "after_token"};
    static const int32_t least[3] = {0, 0, 1};
    for (int k = 0; k < 3; k++) {
        const cJSON *number = cJSON_GetObjectItemCaseSensitive(item, field[k]);
        const int32_t limit[3] = {n - 1, p->n_seq - 1, k == 2 ? p->len[v[1]] : 0};
        if (!hb_golden_whole(number, least[k], limit[k], &v[k])) {
            char name[48];
            (void)snprintf(name, sizeof name, "states[%d].%s", p->n_states, field[k]);
            return hb_golden_wrong(o, name, number, "an integer in %d..%d", least[k], limit[k]);
        }
    }
    return HB_OK;
}

int32_t hb_golden_set_layer_states(const struct hb_golden_source *s, struct hb_golden_problem *p) {
    const struct hb_config *c = &p->config;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(s->entry, "states");
    const struct hb_golden_object o = {s->entry, p->name, "", s->err};
    const int32_t n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    if (n == 0) {
        return hb_golden_wrong(&o, "states", list, "an array of at least one state");
    }
    const int64_t conv[3] = {n, p->channels, c->conv_width};
    const int64_t ssm[4] = {n, c->n_heads, p->state_is_kv ? c->state_size : c->head_dim,
                            p->state_is_kv ? c->head_dim : c->state_size};
    const struct hb_st_tensor *conv_state =
        p->channels > 0 ? hb_golden_need(p, "exp64.conv_state", 3, conv, s->err) : NULL;
    const struct hb_st_tensor *ssm_state = hb_golden_need(p, "exp64.ssm_state", 4, ssm, s->err);
    p->state = hb_golden_own(p, n, sizeof *p->state, s->err);
    if ((p->channels > 0 && conv_state == NULL) || ssm_state == NULL || p->state == NULL) {
        return HB_ERR_PARSE;
    }
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, list) {
        int32_t v[3] = {0, 0, 0};
        const int32_t status = read_state(&o, p, item, n, v);
        if (status != HB_OK) {
            return status;
        }
        p->state[p->n_states++] =
            (struct hb_golden_state){v[1], v[2], ssm_state, conv_state, v[0], v[0]};
    }
    p->conv_columns = conv_state != NULL ? c->conv_width : 0;
    p->conv_channels = p->channels;
    return HB_OK;
}
