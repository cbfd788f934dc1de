/* SPDX-License-Identifier: Apache-2.0
 * Layers of the float64 oracle behind the adapter table. A layer has all its memory before it runs,
 * so that running out of it changes nothing; it computes every row before it stores the first. */
#include "harness/oracle_adapter.h"

#include <stdlib.h>
#include <string.h>

#include "harness/values.h"

/* ---- memory of a call ---- */

static void *block(int64_t n, size_t item) {
    return calloc((size_t)n + 1, item);
}

void hb_oracle_work_free(struct hb_oracle_work *w) {
    void *const blocks[] = {w->in[0], w->in[1], w->in[2],  w->out,    w->row_out, w->result,
                            w->conv,  w->ssm,   w->turned, w->staged, w->folded,  w->records, w->record,
                            w->path,  w->keys,  w->values, w->bound,  w->mag};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        free(blocks[i]);
    }
    memset(w, 0, sizeof *w);
}

/* The adapter's buffers are named by number; this backend's number is the address. A kind that does
 * not read a buffer may get none. */
static char *buf_bytes(const struct hb_buf *buf) {
    /* NOLINTNEXTLINE(performance-no-int-to-ptr) */
    return buf->id != 0 ? (char *)(uintptr_t)buf->id + buf->offset : NULL;
}

static int is_verify(const struct hb_oracle *o) {
    return o->forward.phase.mode == HB_MODE_TARGET_VERIFY;
}

/* What both kinds of layer need. */
static int make_common(const struct hb_oracle *o, struct hb_oracle_work *w) {
    const struct hb_oracle_forward *f = &o->forward;
    int32_t longest = 0;
    for (int32_t r = 0; r < f->n_rows; r++) {
        longest = f->rows[r].n > longest ? f->rows[r].n : longest;
    }
    for (int i = 0; i < 3; i++) {
        w->in[i] = block(f->n_real * w->size.width[i], sizeof(float));
    }
    w->out = block(longest * w->size.width[3], sizeof(double));
    w->row_out = block(w->size.width[3], sizeof(float));
    w->result =
        block(f->phase.n_tokens * w->size.width[3], (size_t)hb_dtype_bytes(o->config.act_dtype));
    return w->in[0] != NULL && w->in[1] != NULL && w->in[2] != NULL && w->out != NULL &&
           w->row_out != NULL && w->result != NULL;
}

int hb_oracle_fold_make(const struct hb_oracle *o, int32_t layer_id, struct hb_oracle_work *w) {
    const struct hb_oracle_layer *layer = &o->layer[layer_id];
    int64_t bytes = (int64_t)(layer->entry[HB_POOL_CONV] + layer->entry[HB_POOL_TEMPORAL]);
    hb_oracle_sizes(&o->config, o->config.layer_kind[layer_id], &w->size);
    w->conv = block(w->size.channels * w->size.window, sizeof(float));
    w->ssm = block(w->size.n_state, sizeof(float));
    w->turned = block(w->size.n_state, sizeof(float));
    w->folded = block(bytes, 1);
    return w->conv != NULL && w->ssm != NULL && w->turned != NULL && w->folded != NULL;
}

static int make_linear(const struct hb_oracle *o, const struct hb_oracle_layer *layer,
                       struct hb_oracle_work *w) {
    const struct hb_config *c = &o->config;
    const struct hb_oracle_forward *f = &o->forward;
    int64_t n_staged = is_verify(o) ? f->n_real : 2 * (int64_t)f->n_rows;
    int64_t bytes = (int64_t)(layer->entry[HB_POOL_CONV] + layer->entry[HB_POOL_TEMPORAL]);
    int64_t items = hb_ring_has_mode(c, f->phase.mode) ? hb_oracle_record_items(c) : 0;
    int64_t n_records = is_verify(o) ? f->n_real : f->n_rows;
    int has_slot = hb_oracle_fold_make(o, layer->id, w);
    w->staged = block(n_staged * bytes, 1);
    w->records = block(n_records * items, sizeof(float));
    w->record = block(items, sizeof(double));
    return has_slot && w->staged != NULL && w->records != NULL && w->record != NULL;
}

static int make_attention(const struct hb_oracle *o, struct hb_oracle_work *w) {
    const struct hb_oracle_forward *f = &o->forward;
    int32_t longest = 0;
    int32_t most_new = 0;
    for (int32_t r = 0; r < f->n_rows; r++) {
        int32_t context = f->rows[r].prefix + f->rows[r].n;
        longest = context > longest ? context : longest;
        most_new = f->rows[r].n > most_new ? f->rows[r].n : most_new;
    }
    w->keys = block(longest * w->size.width[1], sizeof(float));
    w->values = block(longest * w->size.width[1], sizeof(float));
    w->path = block(most_new, sizeof *w->path);
    w->bound = block(w->size.width[3], sizeof(double));
    w->mag = block(w->size.width[3], sizeof(double));
    return w->keys != NULL && w->values != NULL && w->path != NULL && w->bound != NULL &&
           w->mag != NULL;
}

int hb_oracle_work_make(const struct hb_oracle *o, int32_t layer_id, struct hb_oracle_work *w) {
    int32_t kind = o->config.layer_kind[layer_id];
    hb_oracle_sizes(&o->config, kind, &w->size);
    return make_common(o, w) &&
           (kind == HB_LAYER_ATTENTION ? make_attention(o, w)
                                       : make_linear(o, &o->layer[layer_id], w));
}

/* Rounds output tokens once, to the activation type. */
static void store_rows(struct hb_oracle_work *w, int32_t act, int64_t token, int32_t n) {
    size_t bytes = (size_t)w->size.width[3] * (size_t)hb_dtype_bytes(act);
    for (int32_t t = 0; t < n; t++) {
        for (int64_t i = 0; i < w->size.width[3]; i++) {
            w->row_out[i] = (float)w->out[t * w->size.width[3] + i];
        }
        hb_pack(act, w->row_out, w->size.width[3], w->result + (size_t)(token + t) * bytes);
    }
}

/* ---- linear layers ---- */

/* Between [H, P, N] and the order of a slot; the way back is the same with P and N exchanged. */
static const float *turn(const struct hb_config *c, int32_t rows, int32_t columns, const float *src,
                         float *dst) {
    if (c->state_layout != HB_STATE_KV) {
        return src;
    }
    for (int64_t h = 0; h < c->n_heads; h++) {
        const int64_t at = h * rows * columns;
        for (int64_t i = 0; i < (int64_t)rows * columns; i++) {
            dst[at + i % columns * rows + i / columns] = src[at + i];
        }
    }
    return dst;
}

/* Rounds a state into the bytes of one slot, conv then temporal. */
static void pack_state(const struct hb_config *c, const struct hb_ref_state *state,
                       const struct hb_oracle_layer *layer, struct hb_oracle_work *w,
                       unsigned char *bytes) {
    int64_t n_conv = w->size.channels * w->size.window;
    int64_t n_ssm = w->size.n_state;
    for (int64_t i = 0; i < n_conv; i++) {
        w->conv[i] = (float)state->conv[i];
    }
    for (int64_t i = 0; i < n_ssm; i++) {
        w->ssm[i] = (float)state->h[i];
    }
    hb_pack(c->act_dtype, w->conv, n_conv, bytes);
    hb_pack(c->state_dtype,
            n_ssm > 0 ? turn(c, c->head_dim, c->state_size, w->ssm, w->turned) : w->ssm, n_ssm,
            bytes + layer->entry[HB_POOL_CONV]);
}

/* Widens the stored bytes of one slot or draft node into the scratch state. */
static void unpack_state(const struct hb_oracle *o, struct hb_oracle_work *w,
                         const unsigned char *conv, const unsigned char *ssm) {
    const struct hb_config *c = &o->config;
    hb_unpack(c->act_dtype, conv, w->size.channels * w->size.window, w->conv);
    hb_unpack(c->state_dtype, ssm, w->size.n_state, w->ssm);
    hb_ref_state_set(c, o->state, w->conv,
                     w->size.n_state > 0 ? turn(c, c->state_size, c->head_dim, w->ssm, w->turned)
                                         : w->ssm);
}

/* A slot in one pool; null where the kind has no such state. */
static unsigned char *slot_at(const struct hb_oracle_layer *layer, int32_t pool, int32_t slot) {
    return layer->entry[pool] > 0 ? layer->pool[pool] + (uint64_t)slot * layer->entry[pool] : NULL;
}

/* A decode row and a draft root always load their state, a prefill row only with a prefix
 * (metadata.md 4.1). */
static void load_state(const struct hb_oracle *o, const struct hb_oracle_layer *layer,
                       const struct hb_oracle_row *row, struct hb_oracle_work *w) {
    if (row->path == HB_PATH_PREFILL && row->prefix == 0) {
        hb_ref_state_zero(&o->config, o->state);
        return;
    }
    unpack_state(o, w, slot_at(layer, HB_POOL_CONV, row->slot),
                 slot_at(layer, HB_POOL_TEMPORAL, row->slot));
    if (row->w > 0) {
        hb_oracle_ring_load(&o->config, layer, row->slot, row->base, row->w, o->state);
    }
    /* a verify that folds starts from what it stores, so that it can be repeated */
    for (int64_t i = 0; i < w->size.n_state && is_verify(o) && row->w > 0 && row->forced; i++) {
        o->state->h[i] = (double)(float)o->state->h[i];
    }
}

/* `n` tokens of a row from its token `t` on, from the scratch state. The reference allocates
 * nothing, so it does not fail. */
static void run_tokens(const struct hb_oracle *o, const struct hb_oracle_layer *layer,
                       const struct hb_oracle_row *row, int32_t t, int32_t n,
                       struct hb_oracle_work *w) {
    const struct hb_config *c = &o->config;
    int64_t token = row->token + t;
    int saves = row->dst > 0 && row->path == HB_PATH_PREFILL;
    (void)hb_ref_linear(c, layer->id, &layer->params, &o->caps.profile[0][row->path][c->act_dtype],
                        row->path, n, w->in[0] + token * w->size.width[0],
                        w->in[1] + token * w->size.width[1], w->in[2] + token * w->size.width[2],
                        o->state, w->out, NULL, NULL, saves ? o->at : NULL, saves ? row->at : 0);
    store_rows(w, c->act_dtype, token, n);
}

/* A token with the replay ring: the recurrence, and its record in fp32. */
static void run_ring_token(const struct hb_oracle *o, const struct hb_oracle_layer *layer,
                           int64_t token, float *record, struct hb_oracle_work *w) {
    const struct hb_config *c = &o->config;
    int64_t n_b = (int64_t)c->n_groups * c->state_size;
    const struct hb_ref_record to = {
        .x = w->record, .b = w->record + w->size.width[0], .g = w->record + w->size.width[0] + n_b};
    (void)hb_ref_mamba2_ring(
        c, &layer->params, &o->caps.profile[0][HB_PATH_DECODE][c->act_dtype], 0, 0,
        w->in[0] + token * w->size.width[0], w->in[1] + token * w->size.width[1],
        w->in[2] + token * w->size.width[2], o->state, w->out, NULL, NULL, &to);
    for (int64_t i = 0; i < hb_oracle_record_items(c); i++) {
        record[i] = (float)w->record[i];
    }
    store_rows(w, c->act_dtype, token, 1);
}

void hb_oracle_fold(const struct hb_oracle *o, struct hb_oracle_layer *layer,
                    struct hb_oracle_work *w, int32_t src, int32_t base, int32_t n, int32_t dst) {
    const uint64_t conv = layer->entry[HB_POOL_CONV];
    unpack_state(o, w, slot_at(layer, HB_POOL_CONV, src), slot_at(layer, HB_POOL_TEMPORAL, src));
    hb_oracle_ring_load(&o->config, layer, src, base, n, o->state);
    pack_state(&o->config, o->state, layer, w, w->folded);
    memcpy(slot_at(layer, HB_POOL_TEMPORAL, dst), w->folded + conv, layer->entry[HB_POOL_TEMPORAL]);
}

/* Every node is one decode token from the stored state of its parent. The slots stay as they are,
 * but for what a ring that commits own folds. */
static void verify_linear(const struct hb_oracle *o, struct hb_oracle_layer *layer,
                          struct hb_oracle_work *w) {
    const struct hb_oracle_forward *f = &o->forward;
    const struct hb_config *c = &o->config;
    uint64_t conv = layer->entry[HB_POOL_CONV];
    uint64_t bytes = conv + layer->entry[HB_POOL_TEMPORAL];
    int64_t items = hb_oracle_record_items(c);
    for (int32_t r = 0; r < f->n_rows; r++) {
        const struct hb_oracle_row *row = &f->rows[r];
        unsigned char *staged = w->staged + (uint64_t)row->token * bytes;
        for (int32_t t = 0; t < row->n; t++) {
            const unsigned char *from = staged + (uint64_t)row->parent[t] * bytes;
            if (t == 0) {
                load_state(o, layer, row, w);
            } else {
                unpack_state(o, w, from, from + conv);
            }
            if (row->w >= 0) {
                run_ring_token(o, layer, row->token + t, w->records + (row->token + t) * items, w);
            } else {
                run_tokens(o, layer, row, t, 1, w);
            }
            pack_state(c, o->state, layer, w, staged + (uint64_t)t * bytes);
        }
    }
    for (int32_t r = 0; r < f->n_rows; r++) {
        const struct hb_oracle_row *row = &f->rows[r];
        if (row->w >= 0 && row->forced) {
            hb_oracle_fold(o, layer, w, row->slot, row->base, row->w, row->slot);
        }
        for (int32_t t = 0; t < row->n; t++) {
            const int64_t token = row->token + t;
            hb_oracle_node_store(c, layer, r, t, w->staged + (uint64_t)token * bytes);
            if (row->w >= 0) {
                hb_oracle_ring_store(c, layer, row->slot, row->base + row->w + t,
                                     w->records + token * items);
            }
        }
    }
}

static void store_slot(struct hb_oracle_layer *layer, int32_t pool, int32_t slot,
                       const unsigned char *bytes) {
    if (layer->entry[pool] > 0) {
        memcpy(slot_at(layer, pool, slot), bytes, layer->entry[pool]);
    }
}

/* What row r stores: its slot, whose temporal state a ring leaves alone unless it folds, its
 * record, its checkpoint. */
static void store_row(const struct hb_config *c, struct hb_oracle_layer *layer,
                      const struct hb_oracle_row *row, const unsigned char *own,
                      const float *record) {
    uint64_t conv = layer->entry[HB_POOL_CONV];
    store_slot(layer, HB_POOL_CONV, row->slot, own);
    if (row->w < 0 || hb_oracle_row_folds(c, row)) {
        store_slot(layer, HB_POOL_TEMPORAL, row->slot, own + conv);
    }
    if (row->w >= 0) {
        hb_oracle_ring_store(c, layer, row->slot, row->w, record);
    }
    if (row->dst > 0 && row->path == HB_PATH_PREFILL) {
        const unsigned char *at = own + conv + layer->entry[HB_POOL_TEMPORAL];
        store_slot(layer, HB_POOL_CONV, row->dst, at);
        store_slot(layer, HB_POOL_TEMPORAL, row->dst, at + conv);
    }
}

static void forward_linear(const struct hb_oracle *o, struct hb_oracle_layer *layer,
                           struct hb_oracle_work *w) {
    const struct hb_oracle_forward *f = &o->forward;
    const struct hb_config *c = &o->config;
    uint64_t bytes = layer->entry[HB_POOL_CONV] + layer->entry[HB_POOL_TEMPORAL];
    int64_t items = hb_oracle_record_items(c);
    for (int32_t r = 0; r < f->n_rows; r++) {
        const struct hb_oracle_row *row = &f->rows[r];
        unsigned char *own = w->staged + 2 * (uint64_t)r * bytes;
        load_state(o, layer, row, w);
        if (row->w >= 0) {
            run_ring_token(o, layer, row->token, w->records + r * items, w);
        } else {
            run_tokens(o, layer, row, 0, row->n, w);
        }
        pack_state(c, o->state, layer, w, own);
        if (row->dst > 0 && row->path == HB_PATH_PREFILL) {
            pack_state(c, o->at, layer, w, own + bytes);
        }
    }
    for (int32_t r = 0; r < f->n_rows; r++) {
        const float *record = f->rows[r].w >= 0 ? w->records + r * items : NULL;
        store_row(c, layer, &f->rows[r], w->staged + 2 * (uint64_t)r * bytes, record);
    }
}

void hb_oracle_track(struct hb_oracle *o, int32_t layer_id) {
    for (int32_t r = 0; r < o->forward.n_rows; r++) {
        const struct hb_oracle_row *row = &o->forward.rows[r];
        if (row->dst > 0 && row->path == HB_PATH_DECODE) {
            hb_oracle_state_copy(&o->layer[layer_id], row->slot, row->dst);
        }
    }
}

/* ---- attention ---- */

/* Stores the new keys and values of all rows first (ops-attention.md section 2): exact copies. */
static void store_cache(const struct hb_oracle *o, struct hb_oracle_layer *layer,
                        const struct hb_layer_io *io) {
    size_t bytes = (size_t)layer->entry[HB_POOL_KEYS];
    for (int32_t r = 0; r < o->forward.n_rows; r++) {
        const struct hb_oracle_row *row = &o->forward.rows[r];
        for (int32_t t = 0; t < row->n; t++) {
            size_t to = (size_t)row->map[row->prefix + t] * bytes;
            size_t from = (size_t)(row->token + t) * bytes;
            memcpy(layer->pool[HB_POOL_KEYS] + to, buf_bytes(&io->in[1]) + from, bytes);
            memcpy(layer->pool[HB_POOL_VALUES] + to, buf_bytes(&io->in[2]) + from, bytes);
        }
    }
}

/* Key and value in a cache slot -> position p of the context. */
static void load_token(const struct hb_config *c, const struct hb_oracle_layer *layer,
                       int32_t cache_slot, int64_t p, struct hb_oracle_work *w) {
    int64_t width = w->size.width[1];
    uint64_t at = (uint64_t)cache_slot * layer->entry[HB_POOL_KEYS];
    hb_unpack(c->act_dtype, layer->pool[HB_POOL_KEYS] + at, width, w->keys + p * width);
    hb_unpack(c->act_dtype, layer->pool[HB_POOL_VALUES] + at, width, w->values + p * width);
}

static void run_attention(const struct hb_oracle *o, struct hb_oracle_layer *layer,
                          const struct hb_layer_io *io, struct hb_oracle_work *w) {
    const struct hb_oracle_forward *f = &o->forward;
    const struct hb_config *c = &o->config;
    store_cache(o, layer, io);
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
                             w->in[0] + (row->token + t) * w->size.width[0], w->keys, w->values,
                             w->out, w->bound, w->mag);
            store_rows(w, c->act_dtype, row->token + t, 1);
        }
    }
}

void hb_oracle_run(struct hb_oracle *o, int32_t layer_id, const struct hb_layer_io *io,
                   struct hb_oracle_work *w) {
    const struct hb_oracle_forward *f = &o->forward;
    struct hb_oracle_layer *layer = &o->layer[layer_id];
    int32_t act = o->config.act_dtype;
    o->launches++;
    if (f->phase.n_tokens <= 0) {
        return;
    }
    for (int i = 0; i < 3 && f->n_real > 0; i++) {
        hb_unpack(act, buf_bytes(&io->in[i]), f->n_real * w->size.width[i], w->in[i]);
    }
    if (o->config.layer_kind[layer_id] == HB_LAYER_ATTENTION) {
        run_attention(o, layer, io, w);
    } else if (is_verify(o)) {
        verify_linear(o, layer, w);
    } else {
        forward_linear(o, layer, w);
        if (o->config.track_by_layer) {
            hb_oracle_track(o, layer_id);
        }
    }
    memcpy(buf_bytes(&io->out), w->result,
           (size_t)f->phase.n_tokens * (size_t)w->size.width[3] * (size_t)hb_dtype_bytes(act));
}
