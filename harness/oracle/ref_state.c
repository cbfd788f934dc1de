/* SPDX-License-Identifier: Apache-2.0
 * State of one request: one block of memory with the public arrays and the scratch of a call behind
 * them. */
#include "harness/oracle/ref_internal.h"

#include <stdlib.h>
#include <string.h>

struct hb_ref_dims hb_ref_dims_of(const struct hb_config *config) {
    struct hb_ref_dims d;
    d.heads = config->n_heads;
    d.head_dim = config->head_dim;
    d.state_size = config->state_size;
    d.groups = config->n_groups;
    d.conv_width = config->conv_width;
    d.chunk = config->chunk_size > 0 ? config->chunk_size : 1;
    d.window = config->ring_length > d.chunk ? config->ring_length : d.chunk;
    d.d_inner = (int64_t)d.heads * d.head_dim;
    struct hb_ref_sizes sizes;
    hb_ref_linear_sizes(config, hb_ref_kind_of(config), &sizes);
    d.dim = sizes.width[1];
    d.gates = sizes.width[2];
    d.channels = sizes.channels;
    d.columns = sizes.window;
    d.n_state = sizes.n_state;
    return d;
}

/* Places n doubles at *at inside base, or only counts them when base is null. */
static double *place(double *base, size_t *at, int64_t n) {
    double *p = base ? base + *at : NULL;
    *at += (size_t)n;
    return p;
}

static size_t lay_out(const struct hb_config *config, struct hb_ref_box *box, double *base) {
    const struct hb_ref_dims dims = hb_ref_dims_of(config);
    const struct hb_ref_dims *d = &dims;
    size_t at = 0;
    struct hb_ref_state *s = &box->state;
    s->conv = place(base, &at, d->channels * d->columns);
    s->h = place(base, &at, d->n_state);
    s->m = place(base, &at, d->n_state);
    s->r = place(base, &at, d->n_state);
    s->f = place(base, &at, d->n_state);
    s->th_ring = place(base, &at, (int64_t)d->heads * d->window);
    box->m0 = place(base, &at, d->n_state);
    box->decay = place(base, &at, d->heads);
    box->reach = place(base, &at, d->d_inner);
    box->rows = place(base, &at, d->dim * d->conv_width);
    box->taps = place(base, &at, d->dim * (d->conv_width + 1));
    box->c = place(base, &at, d->dim);
    box->dc = place(base, &at, d->dim);
    box->tops = place(base, &at, 2 * (int64_t)d->state_size);
    box->y = place(base, &at, d->d_inner);
    box->dy = place(base, &at, d->d_inner);
    box->my = place(base, &at, d->d_inner);
    box->z = place(base, &at, d->d_inner);
    box->dt = place(base, &at, d->gates);
    box->steps = place(base, &at, 4 * (int64_t)d->heads);
    box->gate = place(base, &at, d->d_inner);
    box->dgate = place(base, &at, d->d_inner);
    box->sink = place(base, &at, 2 * d->d_inner);
    box->work = place(base, &at, (int64_t)hb_ref_work_of(config));
    return at;
}

/* No array of the layout exceeds this many doubles; larger sizes are treated as out of memory. */
static int is_addressable(const struct hb_config *config) {
    const double inner = (double)config->n_heads * config->head_dim;
    const double dim = inner + 2.0 * config->n_groups * config->state_size;
    const double all = 6.0 * inner * config->state_size + 16.0 * dim + 16.0 * inner +
                       (double)config->n_heads * (4.0 + config->chunk_size + config->ring_length) +
                       hb_ref_work_of(config);
    return all < 0x1p40;
}

struct hb_ref_state *hb_ref_state_new(const struct hb_config *config) {
    if (!is_addressable(config)) {
        return NULL;
    }
    struct hb_ref_box probe = {0};
    const size_t n = lay_out(config, &probe, NULL);
    struct hb_ref_box *box = calloc(1, sizeof(*box) + n * sizeof(double));
    if (box == NULL) {
        return NULL;
    }
    box->capacity = n;
    (void)lay_out(config, box, (double *)(box + 1));
    return &box->state;
}

/* Scratch needs no clearing: a call sets what it reads. */
struct hb_ref_state *hb_ref_state_renew(struct hb_ref_state *old, const struct hb_config *config) {
    struct hb_ref_box *box = old ? hb_ref_box_of(old) : NULL;
    if (box != NULL && is_addressable(config)) {
        struct hb_ref_box probe = {0};
        if (lay_out(config, &probe, NULL) <= box->capacity) {
            (void)lay_out(config, box, (double *)(box + 1));
            hb_ref_state_zero(config, old);
            return old;
        }
    }
    hb_ref_state_free(old);
    return hb_ref_state_new(config);
}

void hb_ref_state_free(struct hb_ref_state *state) {
    free(state);
}

static void copy_doubles(double *dst, const double *src, int64_t n) {
    memcpy(dst, src, (size_t)n * sizeof(double));
}

static void clear_doubles(double *dst, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        dst[i] = 0.0;
    }
}

void hb_ref_state_copy(const struct hb_config *config, struct hb_ref_state *dst,
                       const struct hb_ref_state *src) {
    if (dst == src) {
        return;
    }
    const struct hb_ref_dims d = hb_ref_dims_of(config);
    copy_doubles(dst->conv, src->conv, d.channels * d.columns);
    copy_doubles(dst->h, src->h, d.n_state);
    copy_doubles(dst->m, src->m, d.n_state);
    copy_doubles(dst->r, src->r, d.n_state);
    copy_doubles(dst->f, src->f, d.n_state);
    copy_doubles(dst->th_ring, src->th_ring, (int64_t)d.heads * d.window);
    /* of a replay ring that is not folded yet */
    copy_doubles(((struct hb_ref_box *)dst)->reach, ((const struct hb_ref_box *)src)->reach,
                 d.d_inner);
    dst->ring_pos = src->ring_pos;
    dst->n_tokens = src->n_tokens;
}

void hb_ref_state_zero(const struct hb_config *config, struct hb_ref_state *state) {
    hb_ref_state_set(config, state, NULL, NULL);
}

void hb_ref_state_set(const struct hb_config *config, struct hb_ref_state *state, const float *conv,
                      const float *ssm) {
    const struct hb_ref_dims d = hb_ref_dims_of(config);
    const int64_t n_conv = d.channels * d.columns;
    for (int64_t i = 0; i < n_conv; i++) {
        state->conv[i] = conv ? (double)conv[i] : 0.0;
    }
    for (int64_t i = 0; i < d.n_state; i++) {
        state->h[i] = ssm ? (double)ssm[i] : 0.0;
        state->m[i] = fabs(state->h[i]);
    }
    clear_doubles(state->r, d.n_state);
    clear_doubles(state->f, d.n_state);
    clear_doubles(state->th_ring, (int64_t)d.heads * d.window);
    state->ring_pos = 0;
    state->n_tokens = 0;
}

static double stored_bound(double h, double m, double r, double u_st, int32_t stores) {
    double b = r + HB_REF_TINY;
    for (int32_t k = 0; k < stores; k++) {
        b += u_st * (fabs(h) + b);
    }
    const int judged = hb_ref_is_finite(h) && hb_ref_is_finite(b) && m + b <= (double)FLT_MAX;
    return judged ? b : (double)INFINITY;
}

/* The rounding of the sums behind the state is in r already: it was folded in when the call ended
 * (README), so the profile that made the state and the one that reads it may differ. */
double hb_ref_state_bound(const struct hb_config *config, const struct hb_profile *profile,
                          const struct hb_ref_state *state, int64_t i, int32_t stores) {
    const double u_st = hb_ref_rates_of(config, profile, 1).u_st;
    return stored_bound(state->h[i], state->m[i], state->r[i], u_st, stores);
}

void hb_ref_state_bounds(const struct hb_config *config, const struct hb_profile *profile,
                         const struct hb_ref_state *state, int32_t stores, double *bound) {
    const double u_st = hb_ref_rates_of(config, profile, 1).u_st;
    const int64_t n = hb_ref_dims_of(config).n_state;
    for (int64_t i = 0; i < n; i++) {
        bound[i] = stored_bound(state->h[i], state->m[i], state->r[i], u_st, stores);
    }
}
