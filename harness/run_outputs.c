/* SPDX-License-Identifier: Apache-2.0
 * Outputs of a layer call against the float64 oracle, element by element. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/record.h"
#include "harness/run_forward.h"

const float *hb_run_token(const struct hb_layer_buffers *lb, int32_t input, int64_t token) {
    return lb->width[input] > 0 ? lb->host[input] + token * lb->width[input] : NULL;
}

int hb_run_read_output(struct hb_run *r, const struct hb_forward *f, struct hb_layer_buffers *lb) {
    struct hb_error e = {.struct_size = sizeof e};
    int64_t n = (int64_t)lb->width[3] * f->n_tokens;
    uint64_t bytes = (uint64_t)n * (uint64_t)hb_dtype_bytes(r->config.act_dtype);
    if (bytes == 0) {
        return 0;
    }
    uint64_t guard = r->caps.exact_guards ? 0 : HB_RUN_GUARD;
    if (r->backend->buf_read(r->handle, lb->base[3], lb->packed, bytes + 2 * guard, &e) != HB_OK) {
        hb_verdict_set(r->v, HB_VERDICT_DEVICE, "buffer", f->place, HB_OK, e.status,
                       "step %d: cannot read the output: %s", r->step, e.text);
        return -1;
    }
    for (uint64_t i = 0; i < guard; i++) {
        if (lb->packed[i] != 0xa5 || lb->packed[guard + bytes + i] != 0xa5) {
            hb_verdict_set(r->v, HB_VERDICT_STATE, "guard.output", f->place, 0, 0,
                           "step %d: guard byte %llu beside the output was written", r->step,
                           (unsigned long long)i);
            return -1;
        }
    }
    hb_unpack(r->config.act_dtype, lb->packed + guard, n, lb->host[3]);
    return 0;
}

/* Output rows of padding and surplus tokens are zero. */
void hb_run_check_padding(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                          const struct hb_layer_buffers *lb) {
    for (int64_t i = (int64_t)f->n_real * lb->width[3]; i < (int64_t)f->n_tokens * lb->width[3];
         i++) {
        if (lb->host[3][i] != 0.0f && !(r->o->check_off & HB_OFF_STATE)) {
            r->v->at.layer = layer;
            r->v->at.step = r->step;
            r->v->at.token = i / lb->width[3];
            r->v->at.element = i % lb->width[3];
            r->v->at.got = (double)lb->host[3][i];
            r->v->at.want = 0;
            hb_verdict_set(r->v, HB_VERDICT_STATE, "output.padding", f->place, 0, 0,
                           "step %d layer %d: output of padding token %lld channel %lld is %.9g, "
                           "want 0",
                           r->step, layer, (long long)r->v->at.token, (long long)r->v->at.element,
                           (double)lb->host[3][i]);
            return;
        }
    }
}

void hb_run_report(struct hb_run *r, const struct hb_forward *f, const struct hb_live_row *row,
                   const struct hb_where *w, const char *what, int32_t kind, const char *check) {
    struct hb_divergence *at = &r->v->at;
    at->step = r->step;
    at->layer = w->layer;
    at->row = row->row;
    at->token = w->token;
    at->element = w->element;
    at->head = w->per_head > 0 ? (int32_t)(w->element / w->per_head) : -1;
    at->got = w->got;
    at->want = w->want;
    at->bound = w->bound;
    at->ulp = hb_ulp_distance(w->dtype, w->got, w->want);
    (void)snprintf(at->source, sizeof at->source, "%s tier-1 %s %s", what,
                   hb_dtype_name(w->dtype),
                   row->is_decode || !hb_run_profile(r, row)->chunked ? "recurrence" : "chunked");
    char where[64];
    (void)snprintf(where, sizeof where, "%.30s %.30s", f->place, what);
    hb_verdict_set(r->v, kind, check, where, 0, 0,
                   "step %d layer %d row %d token %lld head %d element %lld: got %.9g, want %.9g, "
                   "off by %.3g, bound %.3g (%s), %llu ulp",
                   r->step, w->layer, row->row, (long long)w->token, at->head,
                   (long long)w->element, w->got, w->want, fabs(w->got - w->want), w->bound,
                   at->source, (unsigned long long)at->ulp);
}

void hb_run_check_row(struct hb_run *r, struct hb_forward *f, int32_t layer,
                      const struct hb_live_row *row, struct hb_layer_buffers *lb, const double *out,
                      const double *bound, const double *mag) {
    int32_t is_attention = r->config.layer_kind[layer] == HB_LAYER_ATTENTION;
    int32_t width = lb->width[3];
    float *got = lb->host[3] + (int64_t)row->first * width;
    int64_t n = (int64_t)row->length * width;
    int64_t bad = hb_run_compare_bounds(r, layer, 0, n, got, out, bound, mag);
    for (int32_t t = 0; t < row->length && r->o->see_token; t++) {
        int64_t at = (int64_t)t * width;
        r->o->see_token(r->o->see_token_ctx, r->step, layer, row->first + t, width, out + at,
                        bound + at, mag + at);
    }
    if (bad >= 0) {
        const struct hb_where w = {.layer = layer,
                                   .token = row->first + bad / width,
                                   .element = bad % width,
                                   .per_head =
                                       is_attention ? r->config.attn_dim : r->config.head_dim,
                                   .dtype = r->config.act_dtype,
                                   .got = (double)got[bad],
                                   .want = out[bad],
                                   .bound = bound[bad]};
        const char *kind = hb_run_kind_name(r->config.layer_kind[layer]);
        char what[32];
        char check[32];
        (void)snprintf(what, sizeof what, is_attention ? "%s" : "%s.y", kind);
        (void)snprintf(check, sizeof check, "numeric.%s", kind);
        hb_run_report(r, f, row, &w, what, HB_VERDICT_NUMERIC, check);
        return;
    }
    for (int32_t t = 0; t < row->length && (r->capture || r->o->observer); t++) {
        int64_t at = (int64_t)t * width;
        if (r->capture) {
            hb_run_capture_output(r, row, layer, t, width, got + at, bound + at);
        }
        if (r->o->observer) {
            r->o->observer->see(r->o->observer->ctx, 0, row->request, layer,
                                hb_run_position(row, t), width, got + at, out + at, bound + at);
        }
    }
}

static void check_linear(struct hb_run *r, struct hb_forward *f, int32_t layer,
                         struct hb_layer_buffers *lb) {
    for (int32_t i = 0; i < f->n_live && !hb_run_done(r); i++) {
        struct hb_live_row *row = &f->live[i];
        struct hb_content *content = &r->content[row->slot];
        struct hb_ref_state *state = content->ref[layer];
        if (!hb_run_is_predicted(r, row) || !state) {
            continue; /* the reserved slot holds nothing that could be predicted */
        }
        if (!row->has_init) {
            hb_ref_state_zero(&r->config, state);
        }
        if (row->dst > 0 && !row->is_decode) {
            f->at[i][layer] = hb_run_state_new(r);
            if (!f->at[i][layer]) {
                return;
            }
        }
        size_t n = (size_t)row->length * (size_t)lb->width[3];
        double *d = hb_run_doubles(r, 3 * n);
        if (!d) {
            return;
        }
        int32_t path = row->is_decode ? HB_PATH_DECODE : HB_PATH_PREFILL;
        const struct hb_profile *p = hb_run_profile(r, row);
        uint64_t t0 = hb_run_now(r);
        if (row->has_ring) {
            if (hb_run_ring_token(r, f, i, layer, 0, lb, state, d, n)) {
                return;
            }
        } else if (hb_ref_linear(&r->config, layer, &r->params[layer], p, path, row->length,
                                 hb_run_token(lb, 0, row->first), hb_run_token(lb, 1, row->first),
                                 hb_run_token(lb, 2, row->first), state, d, d + n, d + 2 * n,
                                 f->at[i][layer], row->after)) {
            r->no_memory = 1;
            return;
        }
        hb_run_phase(r, HB_PHASE_ORACLE, t0);
        uint64_t t1 = hb_run_now(r);
        hb_run_check_row(r, f, layer, row, lb, d, d + n, d + 2 * n);
        hb_run_phase(r, HB_PHASE_COMPARE, t1);
    }
}

static void check_attention(struct hb_run *r, struct hb_forward *f, int32_t layer,
                            struct hb_layer_buffers *lb) {
    int32_t rk = hb_run_region(r, "kv_k", layer);
    int32_t rv = hb_run_region(r, "kv_v", layer);
    if (rk < 0 || rv < 0) {
        return;
    }
    int32_t n_kv = lb->width[1];
    int32_t dtype = r->config.act_dtype;
    size_t line = (size_t)n_kv * (size_t)hb_dtype_bytes(dtype);
    for (int32_t i = 0; i < f->n_live && !hb_run_done(r); i++) {
        const struct hb_live_row *row = &f->live[i];
        const int32_t *slots = hb_run_token_slots(f, row);
        size_t n = (size_t)row->length * (size_t)lb->width[3];
        float *kv = hb_run_floats(r, 2 * (size_t)row->seq_len * (size_t)n_kv);
        double *d = hb_run_doubles(r, 3 * n);
        if (!kv || !d) {
            return;
        }
        float *values = kv + (size_t)row->seq_len * (size_t)n_kv;
        for (int32_t p = 0; p < row->seq_len; p++) {
            hb_unpack(dtype, r->want[rk] + (size_t)slots[p] * line, n_kv, kv + (int64_t)p * n_kv);
            hb_unpack(dtype, r->want[rv] + (size_t)slots[p] * line, n_kv,
                      values + (int64_t)p * n_kv);
        }
        uint64_t t0 = hb_run_now(r);
        for (int32_t t = 0; t < row->length; t++) {
            size_t at = (size_t)t * (size_t)lb->width[3];
            hb_ref_attention(&r->config, hb_run_profile(r, row), (int32_t)(row->pos + t + 1),
                             lb->host[0] + (int64_t)(row->first + t) * lb->width[0], kv, values,
                             d + at, d + n + at, d + 2 * n + at);
        }
        hb_run_phase(r, HB_PHASE_ORACLE, t0);
        hb_run_check_row(r, f, layer, row, lb, d, d + n, d + 2 * n);
    }
}

void hb_run_check_outputs(struct hb_run *r, struct hb_forward *f, int32_t layer,
                          struct hb_layer_buffers *lb) {
    int is_attention = r->config.layer_kind[layer] == HB_LAYER_ATTENTION;
    if (f->mode == HB_MODE_TARGET_VERIFY) {
        (is_attention ? hb_run_verify_attention : hb_run_verify_linear)(r, f, layer, lb);
    } else {
        (is_attention ? check_attention : check_linear)(r, f, layer, lb);
    }
}
