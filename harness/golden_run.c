/* SPDX-License-Identifier: Apache-2.0
 * One run of the golden check: a schedule fed to a backend through the adapter, forward by forward,
 * beside the plain float64 result O (golden_ref.c) and the oracle Q with its bounds. */
#include "harness/golden_run.h"

#include <stdlib.h>
#include <string.h>

#include "harness/values.h"

enum { SPARE_ROWS = 4, SPARE_TOKENS = 4 };

/* ---- life of a run ---- */

static float round_to(int32_t dtype, float v) {
    uint32_t bytes = 0; /* room for any of the types */
    float out = v;
    hb_pack(dtype, &v, 1, &bytes);
    hb_unpack(dtype, &bytes, 1, &out);
    return out;
}

/* Inputs as handed over: rounded to the activation type and widened again. */
static float *rounded(const double *from, int64_t n, int32_t dtype) {
    float *out = calloc(n > 0 ? (size_t)n : 1, sizeof *out);
    for (int64_t i = 0; out != NULL && i < n; i++) {
        out[i] = round_to(dtype, (float)from[i]);
    }
    return out;
}

int64_t hb_golden_kv_place(const struct hb_config *config, int64_t i) {
    const int64_t n_p = config->head_dim;
    const int64_t n_n = config->state_size;
    return i / (n_p * n_n) * (n_p * n_n) + i % n_n * n_p + i / n_n % n_p;
}

static void set_config(struct hb_golden_run *r) {
    struct hb_config *c = &r->config;
    *c = r->p->config;
    c->act_dtype = r->judge.result->act_dtype;
    c->state_dtype = HB_FP32;
    c->kernel_form = r->judge.result->form;
    c->chunk_size = r->s->chunk_size;
    c->state_layout = r->s->state_layout;
    c->conv_state_len = r->s->conv_state_len;
    c->thread_order = r->s->thread_order;
    c->block_order = r->s->block_order;
    c->order_seed = r->s->order_seed;
    c->n_slots = 2 * r->p->n_seq;
    c->req_pool_size = r->p->n_seq + 1;
    c->max_context = r->p->base + r->p->max_seq_len;
    c->n_kv = 2;
    c->defect = r->judge.o->defect;
    c->max_batch = r->p->n_seq + SPARE_ROWS;
    c->max_tokens = r->p->n_tokens + SPARE_TOKENS;
    for (int32_t l = 0; l < c->n_layers; l++) {
        r->params[l] = r->p->params;
    }
    const int64_t widths[3] = {r->p->d_inner, r->p->dim, r->p->gates};
    for (int k = 0; k < 3; k++) {
        r->widest = widths[k] > r->widest ? widths[k] : r->widest;
    }
    r->window = c->conv_width - (c->conv_state_len == HB_CONV_STATE_FULL ? 0 : 1);
    r->n_h = (int64_t)r->p->d_inner * c->state_size;
    r->n_conv = (int64_t)r->p->channels * r->window;
}

static int32_t alloc_sequences(struct hb_golden_run *r) {
    const struct hb_golden_problem *p = r->p;
    r->seq = calloc((size_t)p->n_seq, sizeof *r->seq);
    for (int32_t i = 0; r->seq != NULL && i < p->n_seq; i++) {
        struct hb_golden_seq *q = &r->seq[i];
        q->h = calloc((size_t)r->n_h, sizeof *q->h);
        q->q = hb_ref_state_new(&r->config);
        q->foreign = r->foreign != NULL ? hb_ref_state_new(&r->config) : NULL;
        if (q->h == NULL || q->q == NULL || (r->foreign != NULL && q->foreign == NULL)) {
            return HB_ERR_MEMORY;
        }
        if (p->init_ssm != NULL) {
            for (int64_t k = 0; k < r->n_h; k++) {
                q->h[k] = (double)p->init_ssm[i * r->n_h + k];
            }
            hb_ref_state_set(&r->config, q->q, r->init_conv + i * r->n_conv,
                             p->init_ssm + i * r->n_h);
            if (q->foreign != NULL) {
                hb_ref_state_copy(&r->config, q->foreign, q->q);
            }
        }
    }
    return r->seq != NULL ? HB_OK : HB_ERR_MEMORY;
}

/* The initial states as the backend keeps them; a column of the window that is never read is 0. */
static int32_t alloc_initial(struct hb_golden_run *r) {
    const struct hb_golden_problem *p = r->p;
    const int64_t w = p->config.conv_width - 1;
    const int64_t rows = (int64_t)p->n_seq * p->channels;
    r->init_conv = calloc((size_t)(p->n_seq * r->n_conv) + 1, sizeof *r->init_conv);
    r->init_ssm = calloc((size_t)(p->n_seq * r->n_h) + 1, sizeof *r->init_ssm);
    if (r->init_conv == NULL || r->init_ssm == NULL) {
        return HB_ERR_MEMORY;
    }
    for (int64_t i = 0; p->init_ssm != NULL && i < rows * w; i++) {
        r->init_conv[i / w * r->window + r->window - w + i % w] =
            round_to(r->config.act_dtype, p->init_conv[i]);
    }
    for (int64_t i = 0; p->init_ssm != NULL && i < p->n_seq * r->n_h; i++) {
        const int64_t in_slot = i % r->n_h;
        const int64_t at = r->config.state_layout == HB_STATE_KV
                               ? hb_golden_kv_place(&r->config, in_slot)
                               : in_slot;
        r->init_ssm[i - in_slot + at] = p->init_ssm[i];
    }
    return HB_OK;
}

static int32_t alloc_inputs(struct hb_golden_run *r) {
    const struct hb_golden_problem *p = r->p;
    const double *const from[3] = {p->z, p->xbc, p->dt};
    const int64_t width[3] = {p->d_inner, p->dim, p->gates};
    for (int k = 0; k < 3; k++) {
        const int64_t n = p->n_tokens * width[k];
        r->in[k] = rounded(from[k], n, r->config.act_dtype);
        r->exact[k] = rounded(from[k], n, HB_FP32);
        if (r->in[k] == NULL || r->exact[k] == NULL) {
            return HB_ERR_MEMORY;
        }
    }
    return alloc_initial(r);
}

static int32_t alloc_scratch(struct hb_golden_run *r) {
    const struct hb_golden_problem *p = r->p;
    const size_t rows = (size_t)p->n_seq + SPARE_ROWS;
    const size_t tokens = (size_t)p->n_tokens + SPARE_TOKENS;
    const size_t out = (size_t)p->max_seq_len * (size_t)p->d_inner;
    r->o_out = calloc(6 * out, sizeof *r->o_out);
    r->q_out = r->o_out + out;
    r->q_bound = r->o_out + 2 * out;
    r->q_mag = r->o_out + 3 * out;
    r->foreign_bound = r->o_out + 4 * out;
    r->foreign_out = r->o_out + 5 * out;
    r->scratch = calloc((size_t)p->dim, sizeof *r->scratch);
    r->h_at = calloc((size_t)r->n_h, sizeof *r->h_at);
    r->q_at = hb_ref_state_new(&r->config);
    r->widened = calloc(tokens * (size_t)r->widest, sizeof *r->widened);
    r->packed = calloc(tokens * (size_t)r->widest + (size_t)(r->n_conv + r->n_h),
                       sizeof *r->widened);
    r->state = calloc((size_t)(r->n_conv + r->n_h), sizeof *r->state);
    r->i32 = calloc(4 * rows, sizeof *r->i32);
    r->i64 = calloc(2 * rows, sizeof *r->i64);
    r->mask = calloc(rows, 1);
    const int ok = r->o_out != NULL && r->scratch != NULL && r->h_at != NULL && r->q_at != NULL &&
                   r->widened != NULL && r->state != NULL && r->packed != NULL && r->i32 != NULL &&
                   r->i64 != NULL && r->mask != NULL;
    return ok ? HB_OK : HB_ERR_MEMORY;
}

static void free_run(struct hb_golden_run *r) {
    for (int32_t i = 0; r->seq != NULL && i < r->p->n_seq; i++) {
        free(r->seq[i].h);
        hb_ref_state_free(r->seq[i].q);
        hb_ref_state_free(r->seq[i].foreign);
    }
    free(r->seq);
    for (int k = 0; k < 3; k++) {
        free(r->in[k]);
        free(r->exact[k]);
    }
    free(r->init_conv);
    free(r->init_ssm);
    free(r->o_out);
    free(r->scratch);
    free(r->h_at);
    hb_ref_state_free(r->q_at);
    free(r->widened);
    free(r->state);
    free(r->packed);
    free(r->i32);
    free(r->i64);
    free(r->mask);
    if (r->handle != NULL) {
        r->backend->destroy(r->handle);
    }
}

/* ---- forwards ---- */

/* What a producer may do in this type (contracts.md section 6; tolerance.md section 2): chunks in
 * prefill, sums in any order, a naive softplus, two roundings in the norm; in bf16 operands of
 * tensor cores are rounded too. */
static struct hb_profile producer_profile(int32_t act_dtype, int32_t path) {
    const double u = 0x1p-24;
    const int is_bf16 = act_dtype == HB_BF16;
    return (struct hb_profile){.u_op = is_bf16 ? 0x1p-8 : 0.0,
                               .u_io = is_bf16 ? 0x1p-8 : 0.0,
                               .io_floor = 0x1p-126,
                               .u_acc = is_bf16 ? 2 * u : u,
                               .e_exp = 4 * u,
                               .sp_abs = 4 * u,
                               .sp_rel = 4 * u,
                               .chunked = path == HB_PATH_PREFILL,
                               .cs_tree = HB_CS_ANY,
                               .restart = 1,
                               .norm_roundings = 2};
}

/* Inputs from token `first` on; null where the layer reads none. */
static const float *from_token(float *const in[3], const struct hb_golden_problem *p, int k,
                               int64_t first) {
    const int64_t width[3] = {p->d_inner, p->dim, p->gates};
    return width[k] > 0 ? in[k] + first * width[k] : NULL;
}

/* What the producer's own result is judged by: its inputs are those that were stored. */
static int foreign_row(struct hb_golden_run *r, const struct hb_golden_row *row, int64_t first,
                       int32_t path) {
    const struct hb_profile profile = producer_profile(r->config.act_dtype, path);
    return hb_ref_linear(&r->config, r->p->layer, &r->p->params, &profile, path, row->n,
                         from_token(r->exact, r->p, 0, first), from_token(r->exact, r->p, 1, first),
                         from_token(r->exact, r->p, 2, first), r->seq[row->seq].foreign,
                         r->foreign_out, r->foreign_bound, NULL, NULL, 0);
}

/* O and Q of a row: results in o_out, q_out, q_bound, q_mag; the states of the sequence advance. */
static int32_t reference_row(struct hb_golden_run *r, const struct hb_golden_row *row) {
    struct hb_golden_seq *q = &r->seq[row->seq];
    const int64_t first = (int64_t)r->p->first[row->seq] + q->pos;
    const int32_t path = row->decode ? HB_PATH_DECODE : HB_PATH_PREFILL;
    const struct hb_profile *profile =
        &r->caps->profile[r->config.kernel_form][path][r->config.act_dtype];
    for (int32_t t = 0; t < row->n; t++) {
        hb_golden_ref_token(r->p, row->seq, q->pos + t, path, q->h, r->scratch,
                            r->o_out + (int64_t)t * r->p->d_inner);
        if (row->track == q->pos + t + 1) {
            memcpy(r->h_at, q->h, (size_t)r->n_h * sizeof *r->h_at);
        }
    }
    if (r->foreign != NULL && foreign_row(r, row, first, path) != 0) {
        return HB_ERR_MEMORY;
    }
    const int failed = hb_ref_linear(
        &r->config, r->p->layer, &r->p->params, profile, path, row->n,
        from_token(r->in, r->p, 0, first), from_token(r->in, r->p, 1, first),
        from_token(r->in, r->p, 2, first), q->q, r->q_out, r->q_bound, r->q_mag,
        row->track > 0 ? r->q_at : NULL, row->track > 0 ? row->track - q->pos : 0);
    return failed ? HB_ERR_MEMORY : HB_OK;
}

/* States that a row has left behind: its slot, and its track slot. */
static void judge_states(struct hb_golden_run *r, const struct hb_golden_row *row) {
    const struct hb_golden_seq *q = &r->seq[row->seq];
    const int32_t path = row->decode ? HB_PATH_DECODE : HB_PATH_PREFILL;
    if (hb_golden_read_state(r, q->slot)) {
        hb_golden_compare_state(r, row->seq, q->pos, path, q->h, q->q);
    }
    if (row->track > 0 && hb_golden_read_state(r, q->track_slot)) {
        hb_golden_compare_state(r, row->seq, row->track, path, r->h_at, r->q_at);
    }
}

static int32_t judge_forward(struct hb_golden_run *r, const struct hb_golden_forward *f,
                             int64_t n_tokens) {
    const float *got = r->widened;
    for (int32_t i = f->first_row; i < f->first_row + f->n_rows; i++) {
        const struct hb_golden_row *row = &r->s->row[i];
        const int32_t status = reference_row(r, row);
        if (status != HB_OK) {
            return status;
        }
        hb_golden_compare_output(r, row, got);
        r->seq[row->seq].pos += row->n;
        judge_states(r, row);
        got += (int64_t)row->n * r->p->d_inner;
    }
    for (; got < r->widened + n_tokens * r->p->d_inner; got++) {
        if (*got != 0.0F) {
            hb_golden_judge_fail(&r->judge, "y: an output row of padding is not zero but %.9g",
                                 (double)*got);
            break;
        }
    }
    return HB_OK;
}

/* Only UNSUPPORTED is a reason not to run; any other failure of create is a failure of the case. */
static int create(struct hb_golden_run *r) {
    struct hb_error err = {.struct_size = sizeof err};
    const int32_t status =
        r->backend->create(r->backend->ctx, &r->config, r->params, &r->handle, &err);
    if (status == HB_ERR_UNSUPPORTED) {
        r->judge.result->skipped = 1;
    }
    if (status != HB_OK) {
        r->handle = NULL;
        hb_golden_judge_fail(&r->judge, "create: %s: %.150s", hb_status_name(status), err.text);
    }
    return status == HB_OK;
}

static int32_t run_forwards(struct hb_golden_run *r) {
    int32_t status = alloc_inputs(r);
    status = status != HB_OK ? status : alloc_sequences(r);
    status = status != HB_OK ? status : alloc_scratch(r);
    if (status != HB_OK || !create(r) || !hb_golden_bind(r)) {
        return status;
    }
    for (int32_t i = 0; i < r->s->n_forwards && status == HB_OK && !r->judge.failed; i++) {
        int64_t n_tokens = 0;
        if (hb_golden_forward_run(r, &r->s->forward[i], &n_tokens)) {
            status = judge_forward(r, &r->s->forward[i], n_tokens);
        }
    }
    return status;
}

int32_t hb_golden_run(const struct hb_adapter *backend, const struct hb_caps *caps,
                      const struct hb_golden_problem *p, const struct hb_golden_schedule *s,
                      const struct hb_golden_options *o, int32_t kind,
                      struct hb_golden_case_result *result, struct hb_error *err) {
    struct hb_golden_run r = {.backend = backend, .caps = caps, .p = p, .s = s, .kind = kind};
    r.judge = (struct hb_golden_judge){o, result, result->act_dtype, 0};
    /* where the cut changes the result, the stored values belong to two schedules only */
    r.y = p->y_whole == NULL || kind == HB_GOLDEN_SEGMENTS ? p->y : NULL;
    r.y = p->y_whole != NULL && kind == HB_GOLDEN_WHOLE ? p->y_whole : r.y;
    r.foreign = kind == HB_GOLDEN_SEGMENTS ? p->foreign[result->act_dtype] : NULL;
    r.has_states = p->y_whole == NULL || kind == HB_GOLDEN_SEGMENTS;
    set_config(&r);
    for (int t = 0; t < HB_N_GOLDEN_TENSORS; t++) {
        for (int c = 0; c < HB_N_GOLDEN_CHECKS; c++) {
            result->share[t][c] = -1.0;
        }
    }
    result->share_foreign = -1.0;
    const int32_t status = run_forwards(&r);
    free_run(&r);
    if (status != HB_OK) {
        return hb_fail_text(err, status, "%s: out of memory", p->name);
    }
    result->passed = !r.judge.failed;
    return HB_OK;
}
