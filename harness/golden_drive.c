/* SPDX-License-Identifier: Apache-2.0
 * The backend's side of a run of the golden check: slots, initial states, batches, layer calls. */
#include <math.h>
#include <string.h>

#include "backend/batch.h"
#include "harness/golden_run.h"
#include "harness/values.h"

/* 1 if the call succeeded; else the run has failed. */
static int called(struct hb_golden_run *r, const char *call, int32_t status) {
    if (status != HB_OK) {
        hb_golden_judge_fail(&r->judge, "%s: %s: %.150s", call, hb_status_name(status),
                             r->call.text);
    }
    return status == HB_OK;
}

static struct hb_error *fresh(struct hb_golden_run *r) {
    memset(&r->call, 0, sizeof r->call);
    r->call.struct_size = sizeof r->call;
    return &r->call;
}

static int find_regions(struct hb_golden_run *r) {
    int32_t n = 0;
    if (!called(r, "n_regions", r->backend->n_regions(r->handle, &n, fresh(r)))) {
        return 0;
    }
    for (int32_t i = 0; i < n; i++) {
        struct hb_region region = {.struct_size = sizeof region};
        if (!called(r, "region", r->backend->region(r->handle, i, &region, fresh(r)))) {
            return 0;
        }
        r->region_conv = region.layer == r->p->layer && strcmp(region.name, "conv") == 0 ? i
                                                                                     : r->region_conv;
        r->region_ssm = region.layer == r->p->layer && strcmp(region.name, "temporal") == 0
                            ? i
                            : r->region_ssm;
    }
    if ((r->region_conv < 0 && r->n_conv > 0) || r->region_ssm < 0) {
        hb_golden_judge_fail(&r->judge, "the backend has no region conv or temporal of layer %d",
                             r->p->layer);
    }
    return !r->judge.failed;
}

/* What the backend says of itself decides whether a schedule can be run at all. */
static int can_run(struct hb_golden_run *r) {
    for (int32_t i = 0; i < r->s->n_forwards; i++) {
        if ((r->caps->modes >> r->s->forward[i].mode & 1) == 0) {
            r->judge.result->skipped = 1;
            hb_golden_judge_fail(&r->judge, "the backend does not support forward mode %d",
                                 r->s->forward[i].mode);
            return 0;
        }
    }
    r->region_conv = -1;
    r->region_ssm = -1;
    if (!r->caps->has_regions && r->p->init_ssm != NULL) {
        r->judge.result->skipped = 1;
        hb_golden_judge_fail(&r->judge,
                             "the backend has no regions, and the case starts from given states");
        return 0;
    }
    return !r->caps->has_regions || find_regions(r);
}

/* The initial states of sequence i into its slot. */
static int write_initial(struct hb_golden_run *r, int32_t i) {
    const int64_t n_conv = r->n_conv;
    const uint64_t slot = (uint64_t)r->seq[i].slot;
    const uint64_t conv_bytes = (uint64_t)n_conv * (uint64_t)hb_dtype_bytes(r->config.act_dtype);
    const uint64_t ssm_bytes = (uint64_t)r->n_h * sizeof(float);
    hb_pack(r->config.act_dtype, r->init_conv + i * n_conv, n_conv, r->packed);
    return (n_conv == 0 ||
            called(r, "region_write",
                   r->backend->region_write(r->handle, r->region_conv, slot * conv_bytes, r->packed,
                                            conv_bytes, fresh(r)))) &&
           called(r, "region_write",
                  r->backend->region_write(r->handle, r->region_ssm, slot * ssm_bytes,
                                           r->init_ssm + i * r->n_h, ssm_bytes, fresh(r)));
}

/* Slots, requests, and the initial states written into the slots. */
int hb_golden_bind(struct hb_golden_run *r) {
    const int32_t n = r->p->n_seq;
    int32_t *ids = r->i32;
    if (!can_run(r) ||
        !called(r, "slot_take", r->backend->slot_take(r->handle, n, HB_SLOT_LIVE, ids, fresh(r))) ||
        !called(r, "slot_take",
                r->backend->slot_take(r->handle, n, HB_SLOT_TRACK, ids + n, fresh(r)))) {
        return 0;
    }
    for (int32_t i = 0; i < n; i++) {
        struct hb_golden_seq *q = &r->seq[i];
        q->request = r->s->order[i];
        q->slot = ids[r->s->order[n - 1 - i]];
        q->track_slot = ids[n + i];
    }
    for (int32_t i = 0; i < n; i++) {
        const struct hb_golden_seq *q = &r->seq[i];
        if (!called(r, "table_set",
                    r->backend->table_set(r->handle, q->request, q->slot, fresh(r))) ||
            (r->p->init_ssm != NULL && !write_initial(r, i))) {
            return 0;
        }
    }
    return 1;
}

/* Arrays of a batch of `total` rows, in the run's scratch. */
struct arrays {
    int32_t *request, *seq_len, *extend, *prefix;
    int64_t *track_slot, *track_len;
    uint8_t *mask;
};

static void put_row(const struct hb_golden_run *r, const struct hb_golden_row *row,
                    const struct arrays *a, int64_t i, struct hb_batch *b) {
    const struct hb_golden_seq *q = &r->seq[row->seq];
    a->request[i] = q->request;
    a->seq_len[i] = r->p->base + q->pos + row->n;
    a->mask[i] = row->track > 0;
    a->track_slot[i] = row->track > 0 ? q->track_slot : -1;
    a->track_len[i] = -1;
    b->n_tokens += row->n;
    if (!row->decode) {
        a->extend[b->n_extend] = row->n;
        a->prefix[b->n_extend++] = r->p->base + q->pos;
        b->extend_num_tokens += row->n;
        /* tracking.md section 3: the end of the row, or one more than the wanted point */
        a->track_len[i] =
            row->track == q->pos + row->n ? a->seq_len[i] : r->p->base + row->track + 1;
    }
}

static void build_batch(struct hb_golden_run *r, const struct hb_golden_forward *f,
                        struct hb_batch *b) {
    const int64_t total = (int64_t)f->n_rows + f->pad_rows;
    const struct arrays a = {
        r->i32,         r->i32 + total, r->i32 + 2 * total, r->i32 + 3 * total, r->i64,
        r->i64 + total, r->mask};
    memset(b, 0, sizeof *b);
    b->struct_size = sizeof *b;
    for (int64_t i = 0; i < f->n_rows; i++) {
        put_row(r, &r->s->row[f->first_row + i], &a, i, b);
    }
    for (int64_t i = f->n_rows; i < total; i++) {
        a.request[i] = 0;
        a.seq_len[i] = 1;
        a.mask[i] = 0;
        a.track_slot[i] = -1;
        a.track_len[i] = -1;
    }
    b->forward_mode = f->mode;
    b->batch_size = (int32_t)total;
    b->has_original_batch_size = f->pad_rows > 0;
    b->original_batch_size = f->n_rows;
    b->n_tokens += f->pad_tokens;
    b->has_extend_num_tokens = b->n_extend > 0;
    b->req_pool_indices = (struct hb_i32s){a.request, total};
    b->seq_lens = (struct hb_i32s){a.seq_len, total};
    if (b->n_extend > 0) {
        b->extend_seq_lens = (struct hb_i32s){a.extend, b->n_extend};
        b->extend_prefix_lens = (struct hb_i32s){a.prefix, b->n_extend};
    }
    b->mamba_track_mask = (struct hb_u8s){a.mask, total};
    b->mamba_track_indices = (struct hb_i64s){a.track_slot, total};
    b->mamba_track_seqlens = (struct hb_i64s){a.track_len, total};
}

/* Rows of `from` [token, width] in batch order into buffer `to`; tokens that must not be read are
 * NaN. */
static int fill_input(struct hb_golden_run *r, const struct hb_golden_forward *f, int64_t n_tokens,
                      const float *from, int64_t width, struct hb_buf to) {
    int64_t at = 0;
    for (int32_t i = f->first_row; i < f->first_row + f->n_rows; i++) {
        const struct hb_golden_row *row = &r->s->row[i];
        const int64_t first = (int64_t)r->p->first[row->seq] + r->seq[row->seq].pos;
        memcpy(r->widened + at * width, from + first * width,
               (size_t)(row->n * width) * sizeof *from);
        at += row->n;
    }
    for (int64_t i = at * width; i < n_tokens * width; i++) {
        r->widened[i] = NAN;
    }
    hb_pack(r->config.act_dtype, r->widened, n_tokens * width, r->packed);
    return called(r, "buf_write",
                  r->backend->buf_write(r->handle, to, r->packed, to.bytes, fresh(r)));
}

static int call_layer(struct hb_golden_run *r, const struct hb_golden_forward *f,
                      const struct hb_batch *batch, struct hb_layer_io *io) {
    const struct hb_adapter *b = r->backend;
    const int64_t width[4] = {r->p->d_inner, r->p->dim, r->p->gates, r->p->d_inner};
    struct hb_buf *buf[4] = {&io->in[0], &io->in[1], &io->in[2], &io->out};
    const int64_t element = hb_dtype_bytes(r->config.act_dtype);
    for (int k = 0; k < 4; k++) {
        const uint64_t bytes = (uint64_t)(batch->n_tokens * width[k] * element);
        if (width[k] == 0) {
            continue; /* the layer reads no such buffer */
        }
        if (!called(r, "buf_alloc", b->buf_alloc(r->handle, bytes, buf[k], fresh(r))) ||
            (k < 3 && !fill_input(r, f, batch->n_tokens, r->in[k], width[k], *buf[k]))) {
            return 0;
        }
    }
    if (!called(r, "begin", b->begin(r->handle, batch, fresh(r))) ||
        !called(r, "layer", b->layer(r->handle, r->p->layer, io, fresh(r))) ||
        !called(r, "buf_read",
                b->buf_read(r->handle, io->out, r->packed, io->out.bytes, fresh(r))) ||
        !called(r, "finish", b->finish(r->handle, fresh(r)))) {
        return 0;
    }
    hb_unpack(r->config.act_dtype, r->packed, batch->n_tokens * width[3], r->widened);
    return 1;
}

int hb_golden_forward_run(struct hb_golden_run *r, const struct hb_golden_forward *f,
                          int64_t *n_tokens) {
    struct hb_batch batch;
    struct hb_layer_io io = {.struct_size = sizeof io};
    struct hb_buf *const buf[4] = {&io.in[0], &io.in[1], &io.in[2], &io.out};
    build_batch(r, f, &batch);
    *n_tokens = batch.n_tokens;
    const int ok = call_layer(r, f, &batch, &io);
    for (int k = 0; k < 4; k++) {
        if (buf[k]->id != 0) {
            r->backend->buf_free(r->handle, *buf[k]);
        }
    }
    return ok;
}

int hb_golden_read_state(struct hb_golden_run *r, int32_t slot) {
    const uint64_t conv_bytes = (uint64_t)r->n_conv * (uint64_t)hb_dtype_bytes(r->config.act_dtype);
    const uint64_t ssm_bytes = (uint64_t)r->n_h * sizeof(float);
    if (r->region_ssm < 0) {
        return 0; /* a backend without regions is compared by its outputs */
    }
    if (r->n_conv > 0 &&
        !called(r, "region_read",
                r->backend->region_read(r->handle, r->region_conv, (uint64_t)slot * conv_bytes,
                                        r->packed, conv_bytes, fresh(r)))) {
        return 0;
    }
    hb_unpack(r->config.act_dtype, r->packed, r->n_conv, r->state);
    const int is_kv = r->config.state_layout == HB_STATE_KV;
    float *ssm = r->packed;
    if (!called(r, "region_read",
                r->backend->region_read(r->handle, r->region_ssm, (uint64_t)slot * ssm_bytes, ssm,
                                        ssm_bytes, fresh(r)))) {
        return 0;
    }
    for (int64_t i = 0; i < r->n_h; i++) {
        r->state[r->n_conv + i] = ssm[is_kv ? hb_golden_kv_place(&r->config, i) : i];
    }
    return 1;
}
