/* SPDX-License-Identifier: Apache-2.0
 * Buffers of a layer call: inputs from the value source, guards, and deliberate faults of the
 * buffers. */
#include <math.h>
#include <string.h>

#include "harness/run_forward.h"

enum { GUARD = HB_RUN_GUARD };

void hb_run_close_buffers(struct hb_run *r, struct hb_layer_buffers *lb) {
    for (int k = 0; k < 4; k++) {
        if (lb->base[k].id) {
            r->backend->buf_free(r->handle, lb->base[k]);
        }
    }
}

static void fill_inputs(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                        int32_t is_attention, struct hb_layer_buffers *lb) {
    const int32_t base = is_attention ? HB_TENSOR_Q : HB_TENSOR_Z;
    for (int k = 0; k < 3; k++) {
        int32_t width = lb->width[k];
        for (int32_t i = 0; i < f->n_live; i++) {
            const struct hb_live_row *row = &f->live[i];
            for (int32_t t = 0; t < row->length; t++) {
                float *at = lb->host[k] + (int64_t)(row->first + t) * width;
                if (r->twist.nan_inputs || hb_run_is_rejected(r, row, t)) {
                    for (int32_t j = 0; j < width; j++) {
                        at[j] = NAN;
                    }
                } else {
                    hb_run_fill(r, base + k, row->stream, layer, hb_run_value_position(row, t),
                                width, at);
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

/* Widths, and memory for the host's side. */
static int size_buffers(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                        struct hb_layer_buffers *lb) {
    const struct hb_config *cfg = &r->config;
    int32_t is_attention = cfg->layer_kind[layer] == HB_LAYER_ATTENTION;
    const int32_t q = cfg->n_q_heads * cfg->attn_dim;
    const int32_t kv = cfg->n_kv_heads * cfg->attn_dim;
    const int32_t attention[4] = {q, kv, kv, q};
    for (int k = 0; k < 4; k++) { /* 0: the kind does not read the buffer */
        lb->width[k] = is_attention ? attention[k] : (int32_t)r->sizes.width[k];
    }
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
    return 0;
}

static uint64_t buffer_bytes(const struct hb_run *r, const struct hb_forward *f,
                             const struct hb_layer_buffers *lb, int k) {
    return (uint64_t)lb->width[k] * (uint64_t)f->n_tokens *
           (uint64_t)hb_dtype_bytes(r->config.act_dtype);
}

/* packed := the buffer's bytes between its guards; host is rounded as the buffer is. */
static void pack_buffer(const struct hb_run *r, const struct hb_forward *f,
                        struct hb_layer_buffers *lb, int k, uint64_t guard) {
    const int32_t dtype = r->config.act_dtype;
    memset(lb->packed, 0xa5, (size_t)(buffer_bytes(r, f, lb, k) + 2 * guard));
    if (k < 3) {
        int64_t n = (int64_t)lb->width[k] * f->n_tokens;
        hb_pack(dtype, lb->host[k], n, lb->packed + guard);
        if (dtype != HB_FP32) {
            hb_unpack(dtype, lb->packed + guard, n, lb->host[k]);
        }
    }
}

static int no_buffer(struct hb_run *r, const struct hb_forward *f, uint64_t bytes, int32_t status,
                     const struct hb_error *e) {
    hb_verdict_set(r->v, HB_VERDICT_DEVICE, "buffer", f->place, HB_OK, status,
                   "step %d: cannot get a buffer of %llu bytes: %s", r->step,
                   (unsigned long long)bytes, e->text);
    return -1;
}

int hb_run_open_buffers(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                        struct hb_layer_buffers *lb) {
    if (size_buffers(r, f, layer, lb)) {
        return -1;
    }
    lb->io.struct_size = sizeof lb->io;
    const uint64_t guard = r->caps.exact_guards ? 0 : GUARD;
    for (int k = 0; k < 4; k++) {
        struct hb_error e = {.struct_size = sizeof e};
        const uint64_t bytes = buffer_bytes(r, f, lb, k);
        if (bytes == 0) {
            continue;
        }
        int32_t status = r->backend->buf_alloc(r->handle, bytes + 2 * guard, &lb->base[k], &e);
        if (status == HB_OK && (k < 3 || guard)) {
            pack_buffer(r, f, lb, k, guard);
            status =
                r->backend->buf_write(r->handle, lb->base[k], lb->packed, bytes + 2 * guard, &e);
        }
        if (status != HB_OK) {
            return no_buffer(r, f, bytes, status, &e);
        }
        struct hb_buf *target = k < 3 ? &lb->io.in[k] : &lb->io.out;
        *target = lb->base[k];
        target->offset += guard;
        target->bytes = bytes;
    }
    return 0;
}

int hb_run_refill_buffers(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                          struct hb_layer_buffers *lb, int32_t write) {
    const uint64_t guard = r->caps.exact_guards ? 0 : GUARD;
    if (size_buffers(r, f, layer, lb)) {
        return -1;
    }
    for (int k = 0; k < 4; k++) {
        struct hb_error e = {.struct_size = sizeof e};
        const uint64_t bytes = buffer_bytes(r, f, lb, k);
        if (bytes == 0) {
            continue;
        }
        pack_buffer(r, f, lb, k, guard);
        if (!write) {
            continue;
        }
        if (k == 3) { /* an output that nobody writes is not that of an earlier replay */
            memset(lb->packed + guard, 0xff, (size_t)bytes);
        }
        int32_t status =
            r->backend->buf_write(r->handle, lb->base[k], lb->packed, bytes + 2 * guard, &e);
        if (status != HB_OK) {
            return no_buffer(r, f, bytes, status, &e);
        }
    }
    return 0;
}

void hb_run_break_io(const struct hb_run *r, struct hb_layer_buffers *lb) {
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
            if (bytes <
                b->bytes) { /* a claim of more than there is would be a fault of the harness */
                b->bytes = bytes;
            }
        }
    }
}
