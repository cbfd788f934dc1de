/* SPDX-License-Identifier: Apache-2.0
 * Forwards of the float64 oracle behind the adapter table: metadata, layers, tracking. A layer
 * computes everything aside and stores it last, so that running out of memory changes nothing. */
#include "harness/oracle_adapter.h"

#include <stdlib.h>
#include <string.h>

#include "harness/values.h"

/* ---- metadata ---- */

void hb_oracle_forward_drop(struct hb_oracle_forward *forward) {
    free(forward->rows);
    free(forward->maps);
    free(forward->draft);
    memset(forward, 0, sizeof *forward);
}

static int is_extend_family(int32_t mode) {
    return mode == HB_MODE_EXTEND || mode == HB_MODE_MIXED || mode == HB_MODE_SPLIT_PREFILL ||
           mode == HB_MODE_DLLM_EXTEND;
}

/* Row r of a valid batch; the checkpoint lies at the last multiple of CC (relative to the prefix)
 * up to the given length (tracking.md section 1). */
static void make_row(const struct hb_oracle *o, const struct hb_batch *b, int32_t r,
                     struct hb_oracle_row *row) {
    int extends = is_extend_family(b->forward_mode) && r < b->n_extend;
    row->req = b->req_pool_indices.data[r];
    row->slot = o->slots.table[row->req];
    row->path = extends ? HB_PATH_PREFILL : HB_PATH_DECODE;
    row->n = extends ? b->extend_seq_lens.data[r] : 1;
    row->prefix = extends ? b->extend_prefix_lens.data[r] : b->seq_lens.data[r] - 1;
    if (b->mamba_track_mask.data != NULL && b->mamba_track_mask.data[r] != 0) {
        row->dst = (int32_t)b->mamba_track_indices.data[r];
        row->at = row->n;
        if (extends) {
            int64_t chunk = o->config.page_size > o->config.chunk_size ? o->config.page_size
                                                                       : o->config.chunk_size;
            row->at = (int32_t)((b->mamba_track_seqlens.data[r] - row->prefix) / chunk * chunk);
        }
    }
}

static int has_kind(const struct hb_config *config, int32_t kind) {
    for (int32_t i = 0; i < config->n_layers; i++) {
        if (config->layer_kind[i] == kind) {
            return 1;
        }
    }
    return 0;
}

/* Copies the cache slots of every row's context. */
static int32_t copy_maps(struct hb_oracle_forward *f, const struct hb_batch *b) {
    size_t total = 0;
    size_t used = 0;
    for (int32_t r = 0; r < f->n_rows; r++) {
        total += (size_t)f->rows[r].prefix + (size_t)f->rows[r].n;
    }
    f->maps = calloc(total + 1, sizeof *f->maps);
    if (f->maps == NULL) {
        return HB_ERR_MEMORY;
    }
    for (int32_t r = 0; r < f->n_rows; r++) {
        struct hb_oracle_row *row = &f->rows[r];
        size_t n = (size_t)row->prefix + (size_t)row->n;
        row->map = f->maps + used;
        memcpy(row->map, b->req_to_token.data + (int64_t)row->req * b->req_to_token_cols,
               n * sizeof *row->map);
        used += n;
    }
    return HB_OK;
}

static int32_t make_rows(const struct hb_oracle *o, const struct hb_batch *b,
                         struct hb_oracle_forward *f) {
    f->rows = calloc((size_t)f->n_rows + 1, sizeof *f->rows);
    if (f->rows == NULL) {
        return HB_ERR_MEMORY;
    }
    for (int32_t r = 0; r < f->n_rows; r++) {
        make_row(o, b, r, &f->rows[r]);
    }
    if (b->forward_mode == HB_MODE_TARGET_VERIFY && hb_oracle_verify_rows(f, b) != HB_OK) {
        return HB_ERR_MEMORY;
    }
    for (int32_t r = 0; r < f->n_rows; r++) {
        f->rows[r].token = f->n_real;
        f->n_real += f->rows[r].n;
    }
    return has_kind(&o->config, HB_LAYER_ATTENTION) && f->n_rows > 0 ? copy_maps(f, b) : HB_OK;
}

int32_t hb_oracle_begin(void *handle, const struct hb_batch *batch, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_oracle_forward f = {0};
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_begin(&o->config, &o->caps, &o->slots, batch, &e);
    if (e.status != HB_OK) {
        return hb_oracle_pass(err, &e);
    }
    if (batch->forward_mode == HB_MODE_DRAFT_EXTEND_V2) { /* of the other child: no metadata here */
        hb_oracle_forward_drop(&o->forward);
        hb_oracle_verify_drop(&o->verify);
        return HB_OK;
    }
    f.phase = (struct hb_forward_phase){
        .has_metadata = 1, .mode = batch->forward_mode, .n_tokens = batch->n_tokens};
    f.batch_size = batch->batch_size;
    if (batch->forward_mode != HB_MODE_IDLE) {
        f.n_rows = batch->has_original_batch_size ? batch->original_batch_size : batch->batch_size;
    }
    if (make_rows(o, batch, &f) != HB_OK) {
        hb_oracle_forward_drop(&f);
        return hb_fail_text(err, HB_ERR_MEMORY, "out of memory: metadata of the batch");
    }
    hb_oracle_forward_drop(&o->forward);
    hb_oracle_verify_drop(&o->verify);
    o->forward = f;
    return HB_OK;
}

/* ---- layers ---- */

/* Memory of one layer call. Inputs are widened, results kept aside. */
struct work {
    int64_t width[4];
    float *in[3];          /* [n_real, width] */
    double *out;           /* [most new tokens of a row, width[3]] */
    float *row_out;        /* [width[3]] */
    unsigned char *result; /* [T, width[3]] in the activation type: zero where no real token is */
    float *conv, *ssm;     /* one slot, widened */
    unsigned char *staged; /* Mamba2: [n_rows, 2] slots: the row's own, then its checkpoint;
                              in a verify [n_real] draft nodes */
    int32_t *path;         /* attention: [most new tokens of a row] */
    float *keys, *values;  /* attention: [longest context, width[1]] */
    double *bound, *mag;   /* attention: [width[3]] */
};

static void *block(int64_t n, size_t item) {
    return calloc((size_t)n + 1, item);
}

static void work_free(struct work *w) {
    free(w->in[0]);
    free(w->in[1]);
    free(w->in[2]);
    free(w->out);
    free(w->row_out);
    free(w->result);
    free(w->conv);
    free(w->ssm);
    free(w->staged);
    free(w->path);
    free(w->keys);
    free(w->values);
    free(w->bound);
    free(w->mag);
}

/* The adapter's buffers are named by number; this backend's number is the address. */
static char *buf_bytes(const struct hb_buf *buf) {
    return (char *)(uintptr_t)buf->id + buf->offset; /* NOLINT(performance-no-int-to-ptr) */
}

/* What both kinds of layer need; returns 0 when out of memory. */
static int work_common(struct work *w, const struct hb_oracle *o, int32_t kind,
                       const struct hb_layer_io *io) {
    const struct hb_oracle_forward *f = &o->forward;
    int32_t act = o->config.act_dtype;
    int32_t longest = 0;
    hb_oracle_widths(&o->config, kind, w->width);
    for (int32_t r = 0; r < f->n_rows; r++) {
        longest = f->rows[r].n > longest ? f->rows[r].n : longest;
    }
    for (int i = 0; i < 3; i++) {
        w->in[i] = block(f->n_real * w->width[i], sizeof(float));
        if (w->in[i] == NULL) {
            return 0;
        }
        if (f->n_real > 0) {
            hb_unpack(act, buf_bytes(&io->in[i]), f->n_real * w->width[i], w->in[i]);
        }
    }
    w->out = block(longest * w->width[3], sizeof(double));
    w->row_out = block(w->width[3], sizeof(float));
    w->result = block(f->phase.n_tokens * w->width[3], (size_t)hb_dtype_bytes(act));
    return w->out != NULL && w->row_out != NULL && w->result != NULL;
}

/* Rounds output tokens once, to the activation type. */
static void store_rows(struct work *w, int32_t act, int64_t token, int32_t n) {
    size_t bytes = (size_t)w->width[3] * (size_t)hb_dtype_bytes(act);
    for (int32_t t = 0; t < n; t++) {
        for (int64_t i = 0; i < w->width[3]; i++) {
            w->row_out[i] = (float)w->out[t * w->width[3] + i];
        }
        hb_pack(act, w->row_out, w->width[3], w->result + (size_t)(token + t) * bytes);
    }
}

/* Rounds a state into the bytes of one slot, conv then temporal. */
static void pack_state(const struct hb_config *c, const struct hb_ref_state *state, struct work *w,
                       unsigned char *bytes) {
    int64_t n_conv = w->width[1] * (c->conv_width - 1);
    int64_t n_ssm = w->width[0] * c->state_size;
    for (int64_t i = 0; i < n_conv; i++) {
        w->conv[i] = (float)state->conv[i];
    }
    for (int64_t i = 0; i < n_ssm; i++) {
        w->ssm[i] = (float)state->h[i];
    }
    hb_pack(c->act_dtype, w->conv, n_conv, bytes);
    hb_pack(c->state_dtype, w->ssm, n_ssm, bytes + hb_oracle_slot_bytes(c, 0));
}

/* Widens the stored bytes of one slot or draft node into the scratch state. */
static void unpack_state(const struct hb_oracle *o, struct work *w, const unsigned char *conv,
                         const unsigned char *ssm) {
    const struct hb_config *c = &o->config;
    hb_unpack(c->act_dtype, conv, w->width[1] * (c->conv_width - 1), w->conv);
    hb_unpack(c->state_dtype, ssm, w->width[0] * c->state_size, w->ssm);
    hb_ref_state_set(c, o->state, w->conv, w->ssm);
}

/* A decode row and a draft root always load their state, a prefill row only with a prefix
 * (metadata.md 4.1). */
static void load_state(const struct hb_oracle *o, const struct hb_oracle_layer *layer,
                       const struct hb_oracle_row *row, struct work *w) {
    uint64_t slot = (uint64_t)row->slot;
    if (row->path == HB_PATH_PREFILL && row->prefix == 0) {
        hb_ref_state_zero(&o->config, o->state);
        return;
    }
    unpack_state(o, w, layer->pool[0] + slot * hb_oracle_slot_bytes(&o->config, 0),
                 layer->pool[1] + slot * hb_oracle_slot_bytes(&o->config, 1));
}

static void store_slot(const struct hb_config *c, struct hb_oracle_layer *layer, int32_t slot,
                       const unsigned char *bytes) {
    uint64_t conv = hb_oracle_slot_bytes(c, 0);
    uint64_t ssm = hb_oracle_slot_bytes(c, 1);
    memcpy(layer->pool[0] + (uint64_t)slot * conv, bytes, conv);
    memcpy(layer->pool[1] + (uint64_t)slot * ssm, bytes + conv, ssm);
}

/* `n` tokens of a row from its token `t` on, from the scratch state. */
static int run_tokens(const struct hb_oracle *o, const struct hb_oracle_layer *layer,
                      const struct hb_oracle_row *row, int32_t t, int32_t n, struct work *w) {
    const struct hb_config *c = &o->config;
    int64_t token = row->token + t;
    int saves = row->dst > 0 && row->path == HB_PATH_PREFILL;
    int status =
        hb_ref_mamba2(c, &layer->params, &o->caps.profile[0][row->path][c->act_dtype], row->path, n,
                      w->in[0] + token * w->width[0], w->in[1] + token * w->width[1],
                      w->in[2] + token * w->width[2], o->state, w->out, NULL, NULL,
                      saves ? o->at : NULL, saves ? row->at : 0);
    if (status == 0) {
        store_rows(w, c->act_dtype, token, n);
    }
    return status == 0;
}

/* Every node is one decode token from the stored state of its parent. The slots stay as they are.
 */
static int verify_mamba2(const struct hb_oracle *o, struct hb_oracle_layer *layer, struct work *w) {
    const struct hb_oracle_forward *f = &o->forward;
    const struct hb_config *c = &o->config;
    uint64_t part[2] = {hb_oracle_slot_bytes(c, 0), hb_oracle_slot_bytes(c, 1)};
    uint64_t bytes = part[0] + part[1];
    for (int32_t r = 0; r < f->n_rows; r++) {
        const struct hb_oracle_row *row = &f->rows[r];
        unsigned char *staged = w->staged + (uint64_t)row->token * bytes;
        for (int32_t t = 0; t < row->n; t++) {
            const unsigned char *from = staged + (uint64_t)row->parent[t] * bytes;
            if (t == 0) {
                load_state(o, layer, row, w);
            } else {
                unpack_state(o, w, from, from + part[0]);
            }
            if (!run_tokens(o, layer, row, t, 1, w)) {
                return 0;
            }
            pack_state(c, o->state, w, staged + (uint64_t)t * bytes);
        }
    }
    for (int32_t r = 0; r < f->n_rows; r++) {
        for (int32_t t = 0; t < f->rows[r].n; t++) {
            const unsigned char *staged = w->staged + (uint64_t)(f->rows[r].token + t) * bytes;
            uint64_t entry = (uint64_t)r * (uint64_t)c->max_draft + (uint64_t)t;
            memcpy(layer->pool[HB_ORACLE_CACHES] + entry * part[0], staged, part[0]);
            memcpy(layer->pool[HB_ORACLE_CACHES + 1] + entry * part[1], staged + part[0], part[1]);
        }
    }
    return 1;
}

static int forward_mamba2(const struct hb_oracle *o, struct hb_oracle_layer *layer,
                          struct work *w) {
    const struct hb_oracle_forward *f = &o->forward;
    const struct hb_config *c = &o->config;
    uint64_t slot_bytes = hb_oracle_slot_bytes(c, 0) + hb_oracle_slot_bytes(c, 1);
    for (int32_t r = 0; r < f->n_rows; r++) {
        const struct hb_oracle_row *row = &f->rows[r];
        unsigned char *own = w->staged + 2 * (uint64_t)r * slot_bytes;
        load_state(o, layer, row, w);
        if (!run_tokens(o, layer, row, 0, row->n, w)) {
            return 0;
        }
        pack_state(c, o->state, w, own);
        if (row->dst > 0 && row->path == HB_PATH_PREFILL) {
            pack_state(c, o->at, w, own + slot_bytes);
        }
    }
    for (int32_t r = 0; r < f->n_rows; r++) {
        const unsigned char *own = w->staged + 2 * (uint64_t)r * slot_bytes;
        store_slot(c, layer, f->rows[r].slot, own);
        if (f->rows[r].dst > 0 && f->rows[r].path == HB_PATH_PREFILL) {
            store_slot(c, layer, f->rows[r].dst, own + slot_bytes);
        }
    }
    return 1;
}

static int run_mamba2(struct hb_oracle *o, int32_t layer_id, struct work *w) {
    const struct hb_config *c = &o->config;
    int verify = o->forward.phase.mode == HB_MODE_TARGET_VERIFY;
    int64_t n_staged = verify ? o->forward.n_real : 2 * (int64_t)o->forward.n_rows;
    uint64_t slot_bytes = hb_oracle_slot_bytes(c, 0) + hb_oracle_slot_bytes(c, 1);
    w->conv = block(w->width[1] * (c->conv_width - 1), sizeof(float));
    w->ssm = block(w->width[0] * c->state_size, sizeof(float));
    w->staged = block(n_staged * (int64_t)slot_bytes, 1);
    if (w->conv == NULL || w->ssm == NULL || w->staged == NULL) {
        return 0;
    }
    return verify ? verify_mamba2(o, &o->layer[layer_id], w)
                  : forward_mamba2(o, &o->layer[layer_id], w);
}

/* Stores the new keys and values of all rows first (ops-attention.md section 2): exact copies. */
static void store_cache(const struct hb_oracle *o, struct hb_oracle_layer *layer,
                        const struct hb_layer_io *io, size_t bytes) {
    for (int32_t r = 0; r < o->forward.n_rows; r++) {
        const struct hb_oracle_row *row = &o->forward.rows[r];
        for (int32_t t = 0; t < row->n; t++) {
            size_t to = (size_t)row->map[row->prefix + t] * bytes;
            size_t from = (size_t)(row->token + t) * bytes;
            memcpy(layer->pool[0] + to, buf_bytes(&io->in[1]) + from, bytes);
            memcpy(layer->pool[1] + to, buf_bytes(&io->in[2]) + from, bytes);
        }
    }
}

/* Key and value in a cache slot -> position p of the context. */
static void load_token(const struct hb_config *c, const struct hb_oracle_layer *layer,
                       int32_t cache_slot, int64_t p, struct work *w) {
    int64_t width = w->width[1];
    size_t at = (size_t)cache_slot * (size_t)width * (size_t)hb_dtype_bytes(c->act_dtype);
    hb_unpack(c->act_dtype, layer->pool[0] + at, width, w->keys + p * width);
    hb_unpack(c->act_dtype, layer->pool[1] + at, width, w->values + p * width);
}

static int run_attention(struct hb_oracle *o, int32_t layer_id, const struct hb_layer_io *io,
                         struct work *w) {
    const struct hb_oracle_forward *f = &o->forward;
    const struct hb_config *c = &o->config;
    struct hb_oracle_layer *layer = &o->layer[layer_id];
    int64_t width = w->width[1];
    size_t bytes = (size_t)width * (size_t)hb_dtype_bytes(c->act_dtype);
    int32_t longest = 0;
    int32_t most_new = 0;
    for (int32_t r = 0; r < f->n_rows; r++) {
        int32_t context = f->rows[r].prefix + f->rows[r].n;
        longest = context > longest ? context : longest;
        most_new = f->rows[r].n > most_new ? f->rows[r].n : most_new;
    }
    w->keys = block(longest * width, sizeof(float));
    w->values = block(longest * width, sizeof(float));
    w->path = block(most_new, sizeof *w->path);
    w->bound = block(w->width[3], sizeof(double));
    w->mag = block(w->width[3], sizeof(double));
    if (w->keys == NULL || w->values == NULL || w->path == NULL || w->bound == NULL ||
        w->mag == NULL) {
        return 0;
    }
    store_cache(o, layer, io, bytes);
    for (int32_t r = 0; r < f->n_rows; r++) {
        const struct hb_oracle_row *row = &f->rows[r];
        for (int32_t p = 0; p < row->prefix; p++) {
            load_token(c, layer, row->map[p], p, w);
        }
        for (int32_t t = 0; t < row->n; t++) {
            int32_t seen = hb_oracle_ancestors(row, t, w->path);
            for (int32_t i = row->parent != NULL ? 0 : t; i < seen; i++) {
                load_token(c, layer, row->map[row->prefix + w->path[i]], row->prefix + i, w);
            }
            hb_ref_attention(c, &o->caps.profile[0][row->path][c->act_dtype], row->prefix + seen,
                             w->in[0] + (row->token + t) * w->width[0], w->keys, w->values, w->out,
                             w->bound, w->mag);
            store_rows(w, c->act_dtype, row->token + t, 1);
        }
    }
    return 1;
}

/* A layer whose call has been checked. */
static int32_t run_layer(struct hb_oracle *o, int32_t layer_id, const struct hb_layer_io *io,
                         struct hb_error *err) {
    struct work w = {0};
    int32_t kind = o->config.layer_kind[layer_id];
    int done = 1;
    if (o->forward.phase.n_tokens > 0) {
        done = work_common(&w, o, kind, io) &&
               (kind == HB_LAYER_MAMBA2 ? run_mamba2(o, layer_id, &w)
                                        : run_attention(o, layer_id, io, &w));
        if (done) {
            size_t bytes = (size_t)o->forward.phase.n_tokens * (size_t)w.width[3] *
                           (size_t)hb_dtype_bytes(o->config.act_dtype);
            memcpy(buf_bytes(&io->out), w.result, bytes);
        }
        work_free(&w);
    }
    if (!done) {
        return hb_fail_text(err, HB_ERR_MEMORY, "out of memory: layer %d", layer_id);
    }
    o->forward.phase.layers_run |= 1U << layer_id;
    o->launches++;
    return HB_OK;
}

int32_t hb_oracle_layer(void *handle, int32_t layer_id, const struct hb_layer_io *io,
                        struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_layer(&o->config, &o->forward.phase, layer_id, io, &e);
    return e.status != HB_OK ? hb_oracle_pass(err, &e) : run_layer(o, layer_id, io, err);
}

int32_t hb_oracle_entry(void *handle, int32_t target, int32_t direction, int32_t layer_id,
                        const struct hb_layer_io *io, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    hb_expect_entry(o != NULL ? &o->config : NULL, o != NULL ? &o->forward.phase : NULL, o != NULL,
                    target, direction, layer_id, io, &e);
    if (e.status != HB_OK || o == NULL) {
        return hb_oracle_pass(err, &e);
    }
    uint32_t before = o->forward.phase.layers_run;
    int32_t status = run_layer(o, layer_id, io, err);
    if (o->forward.phase.mode == HB_MODE_IDLE) {
        o->forward.phase.layers_run = before; /* an idle entry runs nothing */
    }
    return status;
}

/* Decode checkpoints are bit-exact copies of whole slots, in the layers that ran (tracking.md
 * section 5). */
int32_t hb_oracle_finish(void *handle, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_finish(&o->config, &o->forward.phase, &e);
    if (e.status != HB_OK) {
        return hb_oracle_pass(err, &e);
    }
    for (int32_t r = 0; r < o->forward.n_rows; r++) {
        const struct hb_oracle_row *row = &o->forward.rows[r];
        for (int32_t i = 0; i < o->config.n_layers && row->dst > 0 && row->path == HB_PATH_DECODE;
             i++) {
            int ran = ((o->forward.phase.layers_run >> i) & 1U) != 0;
            for (int32_t part = 0; part < 2 && ran && o->config.layer_kind[i] == HB_LAYER_MAMBA2;
                 part++) {
                uint64_t bytes = hb_oracle_slot_bytes(&o->config, part);
                unsigned char *pool = o->layer[i].pool[part];
                memcpy(pool + (uint64_t)row->dst * bytes, pool + (uint64_t)row->slot * bytes,
                       bytes);
            }
        }
    }
    if (o->forward.phase.mode == HB_MODE_TARGET_VERIFY) {
        hb_oracle_verify_end(o);
    }
    hb_oracle_forward_drop(&o->forward);
    return HB_OK;
}
