/* SPDX-License-Identifier: Apache-2.0
 * A forward (or an entry call): derive the batch, predict and call begin, run the layers, compare outputs and states.
 * What a forward must do is read off the batch that the backend got, breaks included, never off the case's intention. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run_internal.h"

enum { GUARD = 64, MAX_LIVE = 64 };

struct live_row {
    int32_t row, slot, request, stream, length, first, is_decode, has_init, dst, after, seq_len;
    int64_t pos;
};

struct forward {
    const struct hb_case_step *step;
    struct hb_plan plan;
    struct hb_owned_batch batch;
    struct live_row live[MAX_LIVE];
    int32_t n_live, n_real, n_tokens, mode;
    uint32_t layers_run;
    struct hb_ref_state *at[MAX_LIVE][HB_MAX_LAYERS]; /* tracked states of extend rows */
    const char *place;
};

/* --- planning --------------------------------------------------------------------------------------------------- */

static void plan_from_case(struct hb_run *r, struct forward *f) {
    int32_t tracks[HB_MAX_NAMES];
    int32_t n_tracks = 0;
    for (int32_t k = 0; k < r->n_names; k++) {
        if (r->name_is_track[k]) {
            tracks[n_tracks++] = r->name[k];
        }
    }
    for (int32_t i = 0; i < f->step->n_rows; i++) {
        const struct hb_case_row *row = &f->step->row[i];
        struct hb_row_plan *p = &f->plan.row[i];
        p->request = row->request & (HB_MAX_REQS - 1);
        p->slot = r->request_slot[p->request];
        const struct hb_content *content = &r->content[p->slot];
        p->stream = content->stream;
        p->prefix = p->slot > 0 ? content->pos : 0;
        p->prefix_loc = content->n_loc >= p->prefix ? content->loc : NULL;
        p->track_dst = row->track && n_tracks > 0 ? tracks[row->track_slot % n_tracks] : 0;
    }
}

/* The rows that the accepted batch describes. */
static void plan_from_batch(struct hb_run *r, struct forward *f) {
    const struct hb_batch *b = &f->batch.b;
    int32_t real_rows = b->has_original_batch_size ? b->original_batch_size : b->batch_size;
    int32_t is_decode_mode = b->forward_mode == HB_MODE_DECODE;
    f->mode = b->forward_mode;
    f->n_tokens = b->n_tokens;
    f->n_live = 0;
    f->n_real = 0;
    if (b->forward_mode == HB_MODE_IDLE) {
        return;
    }
    int32_t np = is_decode_mode ? 0 : b->n_extend;
    int32_t cc = r->config.chunk_size > r->config.page_size ? r->config.chunk_size
                                                            : r->config.page_size;
    for (int32_t i = 0; i < real_rows && f->n_live < MAX_LIVE; i++) {
        struct live_row *row = &f->live[f->n_live++];
        memset(row, 0, sizeof *row);
        row->row = i;
        row->request = b->req_pool_indices.data[i];
        row->slot = r->slots.table[row->request];
        row->stream = r->content[row->slot].stream;
        row->seq_len = b->seq_lens.data[i];
        row->is_decode = i >= np;
        row->length = row->is_decode ? 1 : b->extend_seq_lens.data[i];
        row->pos = (int64_t)row->seq_len - row->length;
        row->has_init = row->is_decode || b->extend_prefix_lens.data[i] > 0;
        row->first = f->n_real;
        f->n_real += row->length;
        if (!b->mamba_track_mask.data || !b->mamba_track_mask.data[i]) {
            continue;
        }
        row->dst = (int32_t)b->mamba_track_indices.data[i];
        row->after = 1;
        if (!row->is_decode) {
            int64_t len = b->mamba_track_seqlens.data[i] - row->pos;
            row->after = (int32_t)(len / cc * cc);
        }
    }
}

static int numbers_wanted(const struct hb_run *r) {
    return !r->o->status_only && !r->twist.nan_inputs;
}

/* --- buffers ---------------------------------------------------------------------------------------------------- */

struct layer_buffers {
    struct hb_layer_io io;
    struct hb_buf base[4];
    int32_t width[4];
    float *host[4]; /* inputs widened, then output */
    uint8_t *packed;
};

static void close_buffers(struct hb_run *r, struct layer_buffers *lb) {
    for (int k = 0; k < 4; k++) {
        if (lb->base[k].id) {
            r->backend->buf_free(r->handle, lb->base[k]);
        }
    }
}

static void fill_inputs(struct hb_run *r, const struct forward *f, int32_t layer, int32_t is_attention,
                        struct layer_buffers *lb) {
    const int32_t base = is_attention ? HB_TENSOR_Q : HB_TENSOR_Z;
    for (int k = 0; k < 3; k++) {
        int32_t width = lb->width[k];
        for (int32_t i = 0; i < f->n_live; i++) {
            const struct live_row *row = &f->live[i];
            for (int32_t t = 0; t < row->length; t++) {
                float *at = lb->host[k] + (int64_t)(row->first + t) * width;
                if (r->twist.nan_inputs) {
                    for (int32_t j = 0; j < width; j++) {
                        at[j] = NAN;
                    }
                } else {
                    hb_run_fill(r, base + k, row->stream, layer, row->pos + t, width, at);
                }
            }
        }
        for (int32_t t = f->n_real; t < f->n_tokens; t++) {
            const struct hb_value_key key = {
                .tensor = base + k, .stream = -1, .layer = layer, .position = t};
            hb_values_unread(r->c, &key, width, lb->host[k] + (int64_t)t * width);
        }
    }
}

static int open_buffers(struct hb_run *r, const struct forward *f, int32_t layer,
                        struct layer_buffers *lb) {
    const struct hb_config *cfg = &r->config;
    int32_t is_attention = cfg->layer_kind[layer] == HB_LAYER_ATTENTION;
    int32_t inner = cfg->n_heads * cfg->head_dim;
    const int32_t mamba[4] = {inner, hb_run_dim(cfg), cfg->n_heads, inner};
    const int32_t q = cfg->n_q_heads * cfg->attn_dim;
    const int32_t kv = cfg->n_kv_heads * cfg->attn_dim;
    const int32_t attention[4] = {q, kv, kv, q};
    memcpy(lb->width, is_attention ? attention : mamba, sizeof lb->width);
    int64_t total = 0;
    int32_t widest = 1;
    for (int k = 0; k < 4; k++) {
        total += (int64_t)lb->width[k] * f->n_tokens;
        widest = lb->width[k] > widest ? lb->width[k] : widest;
    }
    int32_t element = hb_dtype_bytes(cfg->act_dtype);
    lb->host[0] = hb_run_bytes(r, HB_MEMORY_HOST, (size_t)total * sizeof(float));
    lb->packed =
        hb_run_bytes(r, HB_MEMORY_PACKED,
                     (size_t)widest * (size_t)(f->n_tokens + 1) * (size_t)element + 2 * GUARD);
    if (!lb->host[0] || !lb->packed) {
        return -1;
    }
    for (int k = 1; k < 4; k++) {
        lb->host[k] = lb->host[k - 1] + (int64_t)lb->width[k - 1] * f->n_tokens;
    }
    const uint64_t t0 = hb_run_now(r);
    fill_inputs(r, f, layer, is_attention, lb);
    hb_run_phase(r, HB_PHASE_VALUES, t0);
    lb->io.struct_size = sizeof lb->io;
    uint64_t guard = r->caps.exact_guards ? 0 : GUARD;
    for (int k = 0; k < 4; k++) {
        struct hb_error e = {.struct_size = sizeof e};
        uint64_t bytes = (uint64_t)lb->width[k] * (uint64_t)f->n_tokens * (uint64_t)element;
        if (bytes == 0) {
            continue;
        }
        int32_t status = r->backend->buf_alloc(r->handle, bytes + 2 * guard, &lb->base[k], &e);
        if (status == HB_OK && (k < 3 || guard)) {
            memset(lb->packed, 0xa5, (size_t)(bytes + 2 * guard));
            if (k < 3) {
                int64_t n = (int64_t)lb->width[k] * f->n_tokens;
                hb_pack(cfg->act_dtype, lb->host[k], n, lb->packed + guard);
                if (cfg->act_dtype != HB_FP32) {
                    hb_unpack(cfg->act_dtype, lb->packed + guard, n, lb->host[k]);
                }
            }
            status =
                r->backend->buf_write(r->handle, lb->base[k], lb->packed, bytes + 2 * guard, &e);
        }
        if (status != HB_OK) {
            hb_verdict_set(r->v, HB_VERDICT_DEVICE, "buffer", f->place, HB_OK, status,
                           "step %d: cannot get a buffer of %llu bytes: %s", r->step,
                           (unsigned long long)bytes, e.text);
            return -1;
        }
        struct hb_buf *target = k < 3 ? &lb->io.in[k] : &lb->io.out;
        *target = lb->base[k];
        target->offset += guard;
        target->bytes = bytes;
    }
    return 0;
}

static void break_io(const struct hb_run *r, struct layer_buffers *lb) {
    for (int32_t i = 0; i < r->c->n_breaks; i++) {
        const struct hb_case_break *brk = &r->c->brk[i];
        if (brk->step != r->step) {
            continue;
        }
        struct hb_buf *b = (brk->row & 3) < 3 ? &lb->io.in[brk->row & 3] : &lb->io.out;
        if (brk->field == HB_FIELD_IO_POINTER && brk->operation == HB_BREAK_ABSENT) {
            memset(b, 0, sizeof *b);
        } else if (brk->field == HB_FIELD_IO_BYTES && b->id) {
            uint64_t value = (uint64_t)brk->value;
            uint64_t bytes = brk->operation == HB_BREAK_ADD ? b->bytes + value : value;
            if (bytes < b->bytes) { /* a claim of more than there is would be a fault of the harness */
                b->bytes = bytes;
            }
        }
    }
}

/* --- outputs ---------------------------------------------------------------------------------------------------- */

static int read_output(struct hb_run *r, const struct forward *f, struct layer_buffers *lb) {
    struct hb_error e = {.struct_size = sizeof e};
    int64_t n = (int64_t)lb->width[3] * f->n_tokens;
    uint64_t bytes = (uint64_t)n * (uint64_t)hb_dtype_bytes(r->config.act_dtype);
    if (bytes == 0) {
        return 0;
    }
    uint64_t guard = r->caps.exact_guards ? 0 : GUARD;
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
static void check_padding(struct hb_run *r, const struct forward *f, int32_t layer,
                          const struct layer_buffers *lb) {
    for (int64_t i = (int64_t)f->n_real * lb->width[3]; i < (int64_t)f->n_tokens * lb->width[3]; i++) {
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

static void report_element(struct hb_run *r, const struct forward *f, int32_t layer,
                           const struct live_row *row, int64_t token, int64_t element,
                           int32_t per_head, int32_t dtype, double got, double want, double bound,
                           const char *what, int32_t kind, const char *check) {
    struct hb_divergence *at = &r->v->at;
    at->step = r->step;
    at->layer = layer;
    at->row = row->row;
    at->token = token;
    at->element = element;
    at->head = per_head > 0 ? (int32_t)(element / per_head) : -1;
    at->got = got;
    at->want = want;
    at->bound = bound;
    at->ulp = hb_ulp_distance(dtype, got, want);
    const struct hb_profile *p =
        &r->caps.profile[r->config.kernel_form][row->is_decode ? HB_PATH_DECODE : HB_PATH_PREFILL]
                        [r->config.act_dtype];
    (void)snprintf(at->source, sizeof at->source, "%s tier-1 %s %s", what,
                   dtype == HB_BF16 ? "bf16" : "fp32",
                   row->is_decode || !p->chunked ? "recurrence" : "chunked");
    char where[64];
    (void)snprintf(where, sizeof where, "%.30s %.30s", f->place, what);
    hb_verdict_set(r->v, kind, check, where, 0, 0,
                   "step %d layer %d row %d token %lld head %d element %lld: got %.9g, want %.9g, "
                   "off by %.3g, bound %.3g (%s), %llu ulp",
                   r->step, layer, row->row, (long long)token, at->head, (long long)element, got,
                   want, fabs(got - want), bound, at->source, (unsigned long long)at->ulp);
}

static void capture_output(struct hb_run *r, const struct live_row *row, int32_t layer, int64_t pos,
                           int32_t n, const float *got, const double *bound) {
    struct hb_capture *cap = r->capture;
    if (cap->n == cap->cap) {
        size_t next = cap->cap ? 2 * cap->cap : 64;
        struct hb_captured *items = realloc(cap->item, next * sizeof *items);
        if (!items) {
            r->no_memory = 1;
            return;
        }
        cap->item = items;
        cap->cap = next;
    }
    struct hb_captured *item = &cap->item[cap->n];
    item->request = row->request;
    item->stream = row->stream;
    item->layer = layer;
    item->pos = pos;
    item->n = n;
    item->got = malloc((size_t)n * sizeof *item->got);
    item->bound = malloc((size_t)n * sizeof *item->bound);
    if (!item->got || !item->bound) {
        free(item->got);
        free(item->bound);
        r->no_memory = 1;
        return;
    }
    memcpy(item->got, got, (size_t)n * sizeof *got);
    memcpy(item->bound, bound, (size_t)n * sizeof *bound);
    cap->n++;
}

/* One row's outputs against out, bound, mag [length, width]. */
static void check_row(struct hb_run *r, struct forward *f, int32_t layer, const struct live_row *row,
                      struct layer_buffers *lb, const double *out, const double *bound,
                      const double *mag) {
    int32_t is_attention = r->config.layer_kind[layer] == HB_LAYER_ATTENTION;
    int32_t width = lb->width[3];
    float *got = lb->host[3] + (int64_t)row->first * width;
    int32_t op = is_attention ? HB_OP_ATTENTION : HB_OP_MAMBA2_OUT;
    int64_t n = (int64_t)row->length * width;
    int64_t bad = hb_run_compare_bounds(r, op, r->config.act_dtype, n, got, out, bound, mag);
    for (int32_t t = 0; t < row->length && r->o->see_token; t++) {
        int64_t at = (int64_t)t * width;
        r->o->see_token(r->o->see_token_ctx, r->step, layer, row->first + t, width, out + at,
                        bound + at, mag + at);
    }
    if (bad >= 0) {
        report_element(r, f, layer, row, row->first + bad / width, bad % width,
                       is_attention ? r->config.attn_dim : r->config.head_dim, r->config.act_dtype,
                       (double)got[bad], out[bad], bound[bad],
                       is_attention ? "attention" : "mamba2.y", HB_VERDICT_NUMERIC,
                       is_attention ? "numeric.attention" : "numeric.mamba2");
        return;
    }
    for (int32_t t = 0; t < row->length && (r->capture || r->o->observer); t++) {
        int64_t at = (int64_t)t * width;
        if (r->capture) {
            capture_output(r, row, layer, row->pos + t, width, got + at, bound + at);
        }
        if (r->o->observer) {
            r->o->observer->see(r->o->observer->ctx, 0, row->request, layer, row->pos + t, width,
                                got + at, out + at, bound + at);
        }
    }
}

static void check_mamba2(struct hb_run *r, struct forward *f, int32_t layer,
                         struct layer_buffers *lb) {
    for (int32_t i = 0; i < f->n_live && !hb_run_done(r); i++) {
        struct live_row *row = &f->live[i];
        struct hb_content *content = &r->content[row->slot];
        struct hb_ref_state *state = content->ref[layer];
        if (row->slot == 0 || !state) {
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
        const struct hb_profile *p =
            &r->caps.profile[r->config.kernel_form][path][r->config.act_dtype];
        uint64_t t0 = hb_run_now(r);
        if (hb_ref_mamba2(&r->config, &r->params[layer], p, path, row->length,
                          lb->host[0] + (int64_t)row->first * lb->width[0],
                          lb->host[1] + (int64_t)row->first * lb->width[1],
                          lb->host[2] + (int64_t)row->first * lb->width[2], state, d, d + n,
                          d + 2 * n, f->at[i][layer], row->after)) {
            r->no_memory = 1;
            return;
        }
        hb_run_phase(r, HB_PHASE_ORACLE, t0);
        uint64_t t1 = hb_run_now(r);
        check_row(r, f, layer, row, lb, d, d + n, d + 2 * n);
        hb_run_phase(r, HB_PHASE_COMPARE, t1);
    }
}

static const int32_t *token_slots(const struct forward *f, const struct live_row *row) {
    const struct hb_batch *b = &f->batch.b;
    return b->req_to_token.data ? b->req_to_token.data + (int64_t)row->request * b->req_to_token_cols
                                : NULL;
}

static void check_attention(struct hb_run *r, struct forward *f, int32_t layer,
                            struct layer_buffers *lb) {
    int32_t rk = hb_run_region(r, "kv_k", layer);
    int32_t rv = hb_run_region(r, "kv_v", layer);
    if (rk < 0 || rv < 0) {
        return;
    }
    int32_t n_kv = lb->width[1];
    int32_t dtype = r->config.act_dtype;
    size_t line = (size_t)n_kv * (size_t)hb_dtype_bytes(dtype);
    for (int32_t i = 0; i < f->n_live && !hb_run_done(r); i++) {
        const struct live_row *row = &f->live[i];
        const int32_t *slots = token_slots(f, row);
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
        int32_t path = row->is_decode ? HB_PATH_DECODE : HB_PATH_PREFILL;
        uint64_t t0 = hb_run_now(r);
        for (int32_t t = 0; t < row->length; t++) {
            size_t at = (size_t)t * (size_t)lb->width[3];
            hb_ref_attention(&r->config, &r->caps.profile[r->config.kernel_form][path][dtype],
                             (int32_t)(row->pos + t + 1),
                             lb->host[0] + (int64_t)(row->first + t) * lb->width[0], kv, values,
                             d + at, d + n + at, d + 2 * n + at);
        }
        hb_run_phase(r, HB_PHASE_ORACLE, t0);
        check_row(r, f, layer, row, lb, d, d + n, d + 2 * n);
    }
}

/* --- what the regions must hold ---------------------------------------------------------------------------------- */

static void want_kv(struct hb_run *r, const struct forward *f, int32_t layer,
                    const struct layer_buffers *lb) {
    const char *const names[] = {"kv_k", "kv_v"};
    for (int k = 0; k < 2; k++) {
        int32_t i = hb_run_region(r, names[k], layer);
        if (i < 0 || !f->batch.b.out_cache_loc.data) {
            continue;
        }
        size_t line = (size_t)lb->width[1] * (size_t)hb_dtype_bytes(r->region[i].dtype);
        for (int32_t t = 0; t < f->n_real; t++) {
            hb_pack(r->region[i].dtype, lb->host[1 + k] + (int64_t)t * lb->width[1], lb->width[1],
                    r->want[i] + (size_t)f->batch.b.out_cache_loc.data[t] * line);
        }
    }
}

static size_t slot_bytes(const struct hb_run *r, int32_t region) {
    return (size_t)r->region[region].bytes / (size_t)r->region[region].shape[0];
}

static void want_conv(struct hb_run *r, int32_t region, int32_t slot,
                      const struct hb_ref_state *state) {
    int32_t n = hb_run_dim(&r->config) * (r->config.conv_width - 1);
    float *values = hb_run_floats(r, (size_t)n);
    if (!values) {
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        values[i] = (float)state->conv[i];
    }
    uint8_t *at = r->want[region] + (size_t)slot * slot_bytes(r, region);
    hb_pack(r->region[region].dtype, values, n, at);
    /* control of this check: the comparison is told that one element differs */
    if (r->o->tamper_element >= 0 && r->o->tamper_kind == 1) {
        int64_t k = r->o->tamper_element - r->tampered;
        if (k >= 0 && k < n) {
            values[k] = values[k] * (float)r->o->tamper_factor + 1.0f;
            hb_pack(r->region[region].dtype, values, n, at);
        }
        r->tampered += n;
    }
}

/* A temporal state within its bound; afterwards its bytes are accepted as they are. */
static void check_temporal(struct hb_run *r, const struct forward *f, int32_t layer,
                           const struct live_row *row, int32_t slot, const struct hb_ref_state *state,
                           const char *check, const char *what) {
    int32_t region = hb_run_region(r, "temporal", layer);
    int32_t n = r->config.n_heads * r->config.head_dim * r->config.state_size;
    float *got = hb_run_floats(r, (size_t)n);
    double *bound = hb_run_doubles(r, 2 * (size_t)n);
    if (!got || !bound || region < 0) {
        return;
    }
    double *mag = bound + n;
    size_t bytes = slot_bytes(r, region);
    hb_unpack(r->region[region].dtype, r->actual[region] + (size_t)slot * bytes, n, got);
    const struct hb_profile *p =
        &r->caps.profile[r->config.kernel_form][row->is_decode ? HB_PATH_DECODE : HB_PATH_PREFILL]
                        [r->config.act_dtype];
    hb_ref_state_bounds(&r->config, p, state, 0, bound);
    for (int32_t i = 0; i < n; i++) {
        mag[i] = state->m[i] > fabs(state->h[i]) ? state->m[i] : fabs(state->h[i]);
    }
    int64_t bad = hb_run_compare_bounds(r, HB_OP_MAMBA2_STATE, r->config.state_dtype, n, got,
                                        state->h, bound, mag);
    if (bad >= 0 && !(r->o->check_off & HB_OFF_STATE)) {
        report_element(r, f, layer, row, row->first + row->length - 1, bad,
                       r->config.head_dim * r->config.state_size, r->config.state_dtype,
                       (double)got[bad], state->h[bad], bound[bad], what, HB_VERDICT_STATE, check);
        return;
    }
    if (r->o->observer) {
        r->o->observer->see(r->o->observer->ctx, 2, row->request, layer, row->pos + row->length, n,
                            got, state->h, bound);
    }
    hb_run_allow(r, region, (size_t)slot * bytes, bytes);
}

/* A tracked copy of a state not yet stored: one more rounding to the state type (tolerance.md 3.7). */
static void charge_store(struct hb_run *r, const struct live_row *row, struct hb_ref_state *state) {
    if (r->config.state_dtype == HB_FP32) {
        return;
    }
    const struct hb_profile *p =
        &r->caps.profile[r->config.kernel_form][row->is_decode ? HB_PATH_DECODE : HB_PATH_PREFILL]
                        [r->config.act_dtype];
    int32_t n = r->config.n_heads * r->config.head_dim * r->config.state_size;
    double *before = hb_run_doubles(r, 2 * (size_t)n);
    if (!before) {
        return;
    }
    double *stored = before + n;
    hb_ref_state_bounds(&r->config, p, state, 0, before);
    hb_ref_state_bounds(&r->config, p, state, 1, stored);
    for (int32_t i = 0; i < n; i++) {
        state->r[i] += stored[i] - before[i];
    }
}

static void observe_conv(struct hb_run *r, int32_t layer, const struct live_row *row, int32_t region,
                         const struct hb_ref_state *state) {
    int32_t n = hb_run_dim(&r->config) * (r->config.conv_width - 1);
    float *got = hb_run_floats(r, (size_t)n);
    if (r->o->observer && got) {
        hb_unpack(r->region[region].dtype,
                  r->actual[region] + (size_t)row->slot * slot_bytes(r, region), n, got);
        r->o->observer->see(r->o->observer->ctx, 1, row->request, layer, row->pos + row->length, n,
                            got, state->conv, NULL);
    }
}

static void check_layer_state(struct hb_run *r, struct forward *f, int32_t layer) {
    int32_t rc = hb_run_region(r, "conv", layer);
    int32_t rs = hb_run_region(r, "temporal", layer);
    if (rc < 0 || rs < 0) {
        return;
    }
    size_t cb = slot_bytes(r, rc);
    size_t sb = slot_bytes(r, rs);
    for (int32_t i = 0; i < f->n_live && !hb_run_done(r); i++) {
        const struct live_row *row = &f->live[i];
        size_t slot = (size_t)row->slot;
        struct hb_ref_state *state = r->content[row->slot].ref[layer];
        if (row->slot == 0 || !numbers_wanted(r)) {
            hb_run_allow(r, rc, slot * cb, cb);
            hb_run_allow(r, rs, slot * sb, sb);
            if (row->dst > 0) {
                hb_run_allow(r, rc, (size_t)row->dst * cb, cb);
                hb_run_allow(r, rs, (size_t)row->dst * sb, sb);
            }
            continue;
        }
        want_conv(r, rc, row->slot, state);
        if (hb_run_compare_slot(r, rc, row->slot, "state.conv", f->place)) {
            return;
        }
        observe_conv(r, layer, row, rc, state);
        check_temporal(r, f, layer, row, row->slot, state, "state.temporal", "mamba2.state");
        if (row->dst <= 0 || hb_run_done(r)) {
            continue;
        }
        size_t dst = (size_t)row->dst;
        if (row->is_decode || row->after == row->length) {
            /* the final state and a decode copy are the row's own bytes (invariant 38) */
            memcpy(r->want[rc] + dst * cb, r->want[rc] + slot * cb, cb);
            memcpy(r->want[rs] + dst * sb, r->actual[rs] + slot * sb, sb);
            (void)hb_run_compare_slot(r, rs, row->dst, "state.track", f->place);
        } else {
            charge_store(r, row, f->at[i][layer]);
            want_conv(r, rc, row->dst, f->at[i][layer]);
            check_temporal(r, f, layer, row, row->dst, f->at[i][layer], "state.track",
                           "mamba2.track");
        }
        if (!hb_run_done(r)) {
            (void)hb_run_compare_slot(r, rc, row->dst, "state.track", f->place);
        }
    }
}

static int grow_loc(struct hb_content *content, const int32_t *slots, int64_t n) {
    if (!slots) {
        content->n_loc = 0;
        return 0;
    }
    int32_t *loc = realloc(content->loc, (n > 0 ? (size_t)n : 1) * sizeof *loc);
    if (!loc) {
        return -1;
    }
    memcpy(loc, slots, (size_t)n * sizeof *loc);
    content->loc = loc;
    content->n_loc = n;
    return 0;
}

/* A checkpoint made from the reserved slot holds what nobody can predict: its own bytes are the truth from here on. */
static void anchor_content(struct hb_run *r, const struct forward *f, const struct live_row *row) {
    struct hb_content *dst = &r->content[row->dst];
    if (hb_content_zero(r, dst, row->stream)) {
        return;
    }
    dst->pos = row->pos + row->after;
    if (grow_loc(dst, token_slots(f, row), dst->pos)) {
        r->no_memory = 1;
        return;
    }
    int32_t n_conv = hb_run_dim(&r->config) * (r->config.conv_width - 1);
    int32_t n_ssm = r->config.n_heads * r->config.head_dim * r->config.state_size;
    float *values = hb_run_floats(r, (size_t)n_conv + (size_t)n_ssm);
    for (int32_t l = 0; l < r->config.n_layers && values; l++) {
        int32_t rc = hb_run_region(r, "conv", l);
        int32_t rs = hb_run_region(r, "temporal", l);
        if (rc < 0 || rs < 0) {
            continue;
        }
        size_t slot = (size_t)row->dst;
        hb_unpack(r->region[rc].dtype, r->mirror[rc] + slot * slot_bytes(r, rc), n_conv, values);
        hb_unpack(r->region[rs].dtype, r->mirror[rs] + slot * slot_bytes(r, rs), n_ssm,
                  values + n_conv);
        hb_ref_state_set(&r->config, dst->ref[l], values, values + n_conv);
    }
}

static void advance_contents(struct hb_run *r, struct forward *f) {
    for (int32_t i = 0; i < f->n_live; i++) {
        const struct live_row *row = &f->live[i];
        struct hb_content *content = &r->content[row->slot];
        if (row->slot == 0) {
            if (row->dst > 0) {
                anchor_content(r, f, row);
            }
            continue;
        }
        const int32_t *slots = token_slots(f, row);
        content->pos = row->seq_len;
        if (grow_loc(content, slots, row->seq_len)) {
            r->no_memory = 1;
            return;
        }
        if (row->dst <= 0) {
            continue;
        }
        struct hb_content *dst = &r->content[row->dst];
        if (!dst->known && hb_content_zero(r, dst, row->stream)) {
            return;
        }
        dst->stream = row->stream;
        dst->pos = row->pos + row->after;
        if (grow_loc(dst, slots, dst->pos)) {
            r->no_memory = 1;
            return;
        }
        for (int32_t l = 0; l < r->config.n_layers; l++) {
            const struct hb_ref_state *from = content->ref[l];
            if (!row->is_decode && row->after != row->length && f->at[i][l]) {
                from = f->at[i][l];
            }
            if ((f->layers_run >> l & 1) && from && dst->ref[l]) {
                hb_ref_state_copy(&r->config, dst->ref[l], from);
            }
        }
    }
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static void dump_layer(struct hb_run *r, const struct forward *f, int32_t layer,
                       const struct layer_buffers *lb) {
    static const char *const names[2][4] = {{"in.z", "in.xbc", "in.dt", "out.y"},
                                            {"in.q", "in.k", "in.v", "out.o"}};
    int32_t is_attention = r->config.layer_kind[layer] == HB_LAYER_ATTENTION;
    for (int k = 0; k < 4 && r->o->dump_dir; k++) {
        if (hb_dump_floats(&r->dump, r->step, layer, names[is_attention][k], f->n_tokens,
                           lb->width[k], lb->host[k])) {
            r->no_memory = 1;
            return;
        }
    }
}

static void layer_done(struct hb_run *r, struct forward *f, int32_t layer, struct layer_buffers *lb) {
    int32_t is_attention = r->config.layer_kind[layer] == HB_LAYER_ATTENTION;
    f->layers_run |= 1u << layer;
    if (f->step->kind != HB_STEP_ENTRY || f->mode != HB_MODE_IDLE) {
        r->phase.layers_run |= 1u << layer;
    }
    if (is_attention) {
        want_kv(r, f, layer, lb);
    }
    if (read_output(r, f, lb)) {
        return;
    }
    dump_layer(r, f, layer, lb);
    check_padding(r, f, layer, lb);
    if (!numbers_wanted(r) || hb_run_done(r)) {
        return;
    }
    if (is_attention) {
        check_attention(r, f, layer, lb);
    } else {
        check_mamba2(r, f, layer, lb);
    }
}

/* One layer through layer() or, for an entry step, through entry(). id: the id passed on. */
static void call_layer(struct hb_run *r, struct forward *f, int32_t id) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    struct layer_buffers lb = {0};
    const struct hb_case_step *step = f->step;
    int32_t layer = id >= 0 && id < r->config.n_layers ? id : 0;
    int is_entry = step->kind == HB_STEP_ENTRY;
    if (open_buffers(r, f, layer, &lb)) {
        close_buffers(r, &lb);
        return;
    }
    break_io(r, &lb);
    int32_t status;
    char place[64];
    uint64_t t0 = hb_run_now(r);
    if (is_entry) {
        int null_args = step->null_args != 0;
        const struct hb_layer_io *io = null_args ? NULL : &lb.io;
        hb_expect_entry(&r->config, &r->phase, !null_args, step->target, step->direction, id, io,
                        &want);
        status = r->backend->entry(null_args ? NULL : r->handle, step->target, step->direction, id,
                                   io, &got);
        (void)snprintf(place, sizeof place, "%s entry", step->target == HB_ENTRY_CHILD ? "child" : "wrapper");
    } else {
        hb_expect_layer(&r->config, &r->phase, id, &lb.io, &want);
        status = r->backend->layer(r->handle, id, &lb.io, &got);
        (void)snprintf(place, sizeof place, "%s", f->place);
    }
    hb_run_phase(r, HB_PHASE_BACKEND, t0);
    if (hb_run_judge(r, is_entry ? "entry" : "layer", place, &want, status, &got)) {
        layer_done(r, f, layer, &lb);
    }
    close_buffers(r, &lb);
}

static int32_t begin_once(struct hb_run *r, struct forward *f, const struct hb_batch *batch) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    hb_expect_begin(&r->config, &r->caps, &r->slots, batch, &want);
    uint64_t t0 = hb_run_now(r);
    int32_t status = r->backend->begin(r->handle, batch, &got);
    hb_run_phase(r, HB_PHASE_BACKEND, t0);
    if (r->stats) {
        for (int32_t k = 20; k < 133 && want.status == HB_OK; k++) {
            r->stats->rule_kept[k]++;
        }
    }
    int ok = hb_run_judge(r, "begin", f->place, &want, status, &got);
    if (hb_batch_changed(&f->batch) && !(r->o->check_off & HB_OFF_PURITY)) {
        r->v->at.step = r->step;
        hb_verdict_set(r->v, HB_VERDICT_PURITY, "batch.written", f->place, want.status, status,
                       "step %d: begin wrote into the batch", r->step);
    }
    if (ok && batch) { /* a right backend refuses a null batch */
        r->phase.has_metadata = 1;
        r->phase.mode = batch->forward_mode;
        r->phase.n_tokens = batch->n_tokens;
        r->phase.layers_run = 0;
    }
    return ok;
}

/* Mapping table entries that a break changes for the length of one step. */
static void break_table(struct hb_run *r, int undo, int32_t *saved) {
    for (int32_t k = 0; k < r->c->n_breaks; k++) {
        int32_t i = undo ? r->c->n_breaks - 1 - k : k; /* two breaks may name one row */
        const struct hb_case_break *brk = &r->c->brk[i];
        if (brk->step != r->step || brk->field != HB_FIELD_TABLE) {
            continue;
        }
        struct hb_error got = {.struct_size = sizeof got};
        struct hb_error want = {.struct_size = sizeof want};
        int32_t req = hb_case_req_index(r->c, brk->row & (HB_MAX_REQS - 1));
        int32_t value = undo ? saved[i] : (int32_t)(uint32_t)(uint64_t)brk->value;
        if (!undo && brk->operation == HB_BREAK_ADD) {
            value = (int32_t)((uint32_t)value + (uint32_t)r->slots.table[req]);
        }
        if (!undo) {
            saved[i] = r->slots.table[req];
        }
        hb_expect_table(&r->slots, req, &want);
        int32_t status = r->backend->table_set(r->handle, req, value, &got);
        if (hb_run_judge(r, "table_set", "break", &want, status, &got)) {
            r->slots.table[req] = value;
            int32_t region = hb_run_region(r, "req_to_slot", -1);
            if (region >= 0) {
                memcpy(hb_run_mirror(r, region), r->slots.table,
                       (size_t)r->region[region].bytes);
            }
        }
    }
}

/* Invariant 14: a row without prefix must not see what its slot held. Layers that do not run keep their bytes: nothing
 * overwrites them, and a later forward of the request starts from them. */
static void poison_fresh(struct hb_run *r, const struct forward *f) {
    struct hb_error e = {.struct_size = sizeof e};
    if (f->step->kind != HB_STEP_FORWARD) {
        return; /* entries run attention layers only */
    }
    for (int32_t i = 0; i < f->n_live; i++) {
        if (f->live[i].has_init || f->live[i].slot == 0) {
            continue;
        }
        for (int32_t k = 0; k < r->n_regions; k++) {
            const char *name = r->region[k].name;
            if (strcmp(name, "conv") != 0 && strcmp(name, "temporal") != 0) {
                continue;
            }
            if (f->step->layer_mask >> r->region[k].layer & 1) {
                continue;
            }
            size_t bytes = slot_bytes(r, k);
            size_t at = (size_t)f->live[i].slot * bytes;
            memset(hb_run_mirror(r, k) + at, 0xff, bytes);
            (void)r->backend->region_write(r->handle, k, at, r->mirror[k] + at, bytes, &e);
        }
    }
}

static void run_layers(struct hb_run *r, struct forward *f) {
    const struct hb_case_step *step = f->step;
    if (step->kind == HB_STEP_ENTRY) {
        call_layer(r, f, step->layer);
        return;
    }
    for (int32_t i = 0; i < r->c->n_breaks; i++) {
        const struct hb_case_break *brk = &r->c->brk[i];
        int32_t id = (int32_t)(uint32_t)(uint64_t)brk->value;
        if (brk->step == r->step && brk->field == HB_FIELD_LAYER_ID && !hb_run_done(r)) {
            call_layer(r, f, id);
        }
    }
    for (int32_t l = 0; l < r->config.n_layers && !hb_run_done(r); l++) {
        if (!(step->layer_mask >> l & 1)) {
            call_layer(r, f, l);
        }
    }
}

static void end_forward(struct hb_run *r, struct forward *f) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    hb_expect_finish(&r->phase, &want);
    int32_t status = r->backend->finish(r->handle, &got);
    if (!hb_run_judge(r, "finish", f->place, &want, status, &got) || hb_run_read_regions(r)) {
        return;
    }
    memset(&r->phase, 0, sizeof r->phase);
    for (int32_t i = 0; i < r->n_regions && r->o->dump_dir; i++) {
        if (hb_dump_region(&r->dump, r->step, &r->region[i], r->actual[i])) {
            r->no_memory = 1;
            return;
        }
    }
    for (int32_t l = 0; l < r->config.n_layers && !hb_run_done(r); l++) {
        if (f->layers_run >> l & 1) {
            check_layer_state(r, f, l);
        }
    }
    if (hb_run_done(r)) {
        return;
    }
    hb_run_compare_regions(r, HB_VERDICT_STATE, "state.neighbour", f->place);
    if (!hb_run_done(r)) {
        advance_contents(r, f);
    }
    if (r->stats) {
        r->stats->forwards++;
        r->stats->tokens += (uint64_t)f->n_real;
    }
}

static void try_forward(struct hb_run *r, struct forward *f) {
    if (r->twist.insert_fail) {
        int32_t mode = f->batch.b.forward_mode;
        f->batch.b.forward_mode = f->batch.before.forward_mode = HB_MODE_PREBUILT;
        (void)begin_once(r, f, &f->batch.b);
        f->batch.b.forward_mode = f->batch.before.forward_mode = mode;
    }
    hb_run_want_unchanged(r);
    int ok = begin_once(r, f, f->batch.is_null ? NULL : &f->batch.b);
    if (hb_run_done(r)) {
        return;
    }
    if (!ok) {
        if (!hb_run_read_regions(r)) {
            hb_run_compare_regions(r, HB_VERDICT_PURITY, "error.purity", f->place);
        }
        return;
    }
    plan_from_batch(r, f);
    if (r->twist.nan_fresh) {
        poison_fresh(r, f);
        hb_run_want_unchanged(r);
    }
    run_layers(r, f);
    if (!hb_run_done(r)) {
        end_forward(r, f);
    }
}

/* An entry call outside of any forward. */
static void bare_entry(struct hb_run *r, const struct hb_case_step *step) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    int has_handle = !step->null_args;
    hb_expect_entry(&r->config, &r->phase, has_handle, step->target, step->direction, step->layer,
                    NULL, &want);
    int32_t status = r->backend->entry(has_handle ? r->handle : NULL, step->target, step->direction,
                                       step->layer, NULL, &got);
    (void)hb_run_judge(r, "entry", step->target == HB_ENTRY_CHILD ? "child bare" : "wrapper bare",
                       &want, status, &got);
    hb_run_want_unchanged(r);
    if (!hb_run_done(r) && !hb_run_read_regions(r)) {
        hb_run_compare_regions(r, HB_VERDICT_PURITY, "error.purity", "entry");
    }
}

void hb_run_forward(struct hb_run *r, const struct hb_case_step *step) {
    if (step->kind == HB_STEP_ENTRY && step->n_rows == 0) {
        bare_entry(r, step);
        return;
    }
    struct forward *f = hb_run_bytes(r, HB_MEMORY_FORWARD, sizeof *f);
    if (!f) {
        return;
    }
    memset(f, 0, sizeof *f);
    f->step = step;
    f->place = hb_mode_place(step->mode);
    int32_t saved[HB_MAX_BREAKS] = {0};
    plan_from_case(r, f);
    if (hb_materialize_batch(r->c, step, &r->config, &r->kv, &f->plan, &f->batch) ||
        hb_materialize_breaks(r->c, r->step, &f->batch) || hb_batch_remember(&f->batch)) {
        r->no_memory = 1;
    } else {
        break_table(r, 0, saved);
        if (!hb_run_done(r)) {
            try_forward(r, f);
        }
        if (!hb_run_done(r)) {
            break_table(r, 1, saved);
        }
    }
    hb_batch_destroy(&f->batch);
    for (int32_t i = 0; i < MAX_LIVE; i++) {
        for (int32_t l = 0; l < HB_MAX_LAYERS; l++) {
            hb_run_state_free(r, f->at[i][l]);
        }
    }
}
