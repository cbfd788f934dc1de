/* SPDX-License-Identifier: Apache-2.0
 * Mischief in an eager forward: begin, layers and bare entries; part of mischief.h. */
#ifndef HB_HARNESS_TESTS_MISCHIEF_FORWARD_H
#define HB_HARNESS_TESTS_MISCHIEF_FORWARD_H

#include "harness/tests/mischief_state.h"

/* --- what a layer call is to spoil ------------------------------------------------------------- */

/* 1 if this forward is one in which the outputs are to be wrong as a whole. */
static inline int mischief_scales(const struct mischief_handle *m, int32_t layer) {
    switch (m->number) {
    case 6:
        return m->n_begun > 1;
    case 8:
        return m->failed;
    case 18:
        return m->config.pool_pad > 0;
    case 45:
        return m->graphs.is_replay;
    case 47:
        return m->variant == 0 ? m->graphs.is_poisoned : m->graphs.follows_empty;
    case 49:
        return m->graphs.is_replay && m->graphs.counts_padding;
    case 60:
        return m->config.ring_length > 0 && m->mode == (m->config.ring_owner == HB_RING_COMMIT ? HB_MODE_TARGET_VERIFY : HB_MODE_DECODE);
    case 64:
        return m->variant == 0;
    case 66:
        return m->variant == 0 && m->config.n_groups == m->config.n_heads;
    case 12:
        return m->batch_size > m->real_rows;
    case 17:
        return (m->layers_run & ~(1u << layer)) != 0;
    case 26:
        return m->mode != HB_MODE_DECODE && m->has_prefix;
    case 30:
        return m->mode == HB_MODE_MIXED;
    case 37:
        return m->n_masked > 0;
    case 50:
        return m->variant == 1 && m->n_verify > 1;
    case 51:
        return m->is_verify;
    case 54:
        return m->is_verify && m->has_links;
    case 58:
        return m->is_verify && m->is_ragged;
    case 15:
        return m->slot[0] == 1;
    case 25:
        return m->n_extend > 1;
    case 28:
        return m->n_extend > 0 && m->n_real == m->real_rows;
    case 29:
        return m->n_extend > 0;
    case 31:
        return m->largest_prefix == 5;
    case 33:
        return m->mode == HB_MODE_DECODE && m->seq_len < 10;
    case 34:
        return m->config.chunk_size != 8;
    case 39:
        return m->n_extend > 0 && m->has_prefix;
    case 40:
        return m->variant == 0 ? m->has_mask && m->n_masked == 0 : m->n_masked == 2;
    default:
        return 0;
    }
}

static inline void mischief_after_layer(const struct mischief_handle *m, int32_t layer,
                                        const struct hb_layer_io *io, float before) {
    int64_t width = mischief_width(m, layer);
    switch (m->number) {
    case 11: /* a slot that nobody holds: the last one */
        mischief_output(m, io, 0, 1, 1.0f, mischief_temporal(m, layer, m->config.n_slots, 0.0f), 0);
        break;
    case 14:
        mischief_output(m, io, 0, 1, 1.0f, before, 0);
        break;
    case 22:
        for (int32_t t = 1; t < m->n_real && m->mode == HB_MODE_DECODE; t++) {
            mischief_output(m, io, t * width, width, 1.0f + (float)t, 0.0f, 0);
        }
        break;
    case 16:
        mischief_output(m, io, 0, width * m->n_real, 1.0f + (float)m->request, 0.0f, 0);
        break;
    case 24:
        for (int32_t t = 1; t < m->n_real && m->n_extend > 0; t++) {
            mischief_output(m, io, t * width, width, 1.0f + (float)t, 0.0f, 0);
        }
        break;
    case 32:
        mischief_output(m, io, 0, m->n_extend > 0 ? width : 0, (float)m->mode, 0.0f, 0);
        break;
    case 36: { /* the last token of row 0 reaches the first one of the row, or the last one of the last row */
        const int64_t reached = m->variant == 0 ? 0 : m->n_real - 1;
        mischief_output(m, io, reached * width, 1, 1.0f, mischief_input(m, io, m->first_length - 1), 0);
        break;
    }
    case 23:
        mischief_output(m, io, 0, width * m->n_real, (float)m->real_rows, 0.0f, 0);
        break;
    case 62: /* no longer linear */
    case 63:
        mischief_output(m, io, 0, m->variant == 0, 1.0f, 1.0f, 0);
        break;
    case 53:
        for (int32_t t = 1; t < m->nodes[0] && m->is_verify; t++) {
            mischief_output(m, io, t * width, width, m->jumps >> t & 1 ? 1.5f : 1.0f, 0.0f, 0);
        }
        break;
    case MISCHIEF_OUTPUT:
        mischief_output(m, io, width - 1, 1, 1.5f, 0.0f, 0);
        break;
    case MISCHIEF_LAST_BIT:
        mischief_output(m, io, 0, 0, 1.0f, 0.0f, 1);
        break;
    case MISCHIEF_OVERRUN: {
        const struct hb_buf behind = {io->out.id, io->out.offset + io->out.bytes, 1};
        (void)m->inner->buf_write(m->handle, behind, "", 1, NULL);
        break;
    }
    case MISCHIEF_REPLAY_PADDING:
    case MISCHIEF_PADDING:
        if (m->n_tokens > m->n_real && (m->number == MISCHIEF_PADDING || m->graphs.is_replay)) {
            mischief_output(m, io, m->n_real * width, 1, 1.0f, 1.0f, 0);
        }
        break;
    default:
        if (mischief_scales(m, layer)) {
            mischief_output(m, io, 0, width * m->n_real, 1.5f, 0.0f, 0);
        }
        break;
    }
}

/* --- calls ------------------------------------------------------------------------------------ */

static inline int32_t mischief_fail(struct hb_error *err, int32_t rule) {
    hb_error_clear(err);
    return hb_fail(err, rule, 0, 0, 0);
}

/* A rule of another status than the given one. */
static inline int32_t mischief_other_rule(int32_t status) {
    switch (status) {
    case HB_ERR_RANGE:
        return HB_RULE_SLOT_DUPLICATE;
    case HB_ERR_DUPLICATE:
        return HB_RULE_SLOT_FREED;
    case HB_ERR_NULL:
        return HB_RULE_BATCH_NEGATIVE;
    default:
        return HB_RULE_SLOT_RANGE;
    }
}

static inline void mischief_note_verify(struct mischief_handle *m, const struct hb_batch *b) {
    const int32_t *layout = b->ragged_verify_layout.data;
    m->is_verify = b->forward_mode == HB_MODE_TARGET_VERIFY;
    m->n_verify = m->is_verify ? m->n_verify + 1 : 0;
    m->n_commits = 0;
    m->has_links = b->retrieve_next_token.data != NULL;
    m->is_ragged = layout != NULL;
    m->nan_seen = 0;
    m->jumps = 0;
    for (int32_t i = 0; i < m->real_rows && i < MISCHIEF_MAX_ROWS && m->is_verify; i++) {
        m->nodes[i] = layout ? layout[i + 1] - layout[i] : b->draft_token_num;
    }
    for (int32_t t = 1; m->is_verify && m->has_links && t < m->nodes[0]; t++) {
        m->jumps |= b->retrieve_next_token.data[t - 1] == t ? 0 : 1 << t;
    }
}

static inline void mischief_note_batch(struct mischief_handle *m, const struct hb_batch *b) {
    struct hb_region r;
    m->mode = b->forward_mode;
    m->batch_size = b->batch_size;
    m->real_rows = b->has_original_batch_size ? b->original_batch_size : b->batch_size;
    m->n_tokens = b->n_tokens;
    m->n_extend =
        b->forward_mode == HB_MODE_DECODE || b->forward_mode == HB_MODE_TARGET_VERIFY ? 0 : b->n_extend;
    m->has_prefix = 0;
    m->largest_prefix = 0;
    m->first_masked = -1;
    m->n_real = 0;
    m->has_mask = b->mamba_track_mask.data != NULL;
    m->n_masked = 0;
    m->track_dst = 0;
    m->layers_run = 0;
    mischief_note_verify(m, b);
    int32_t table = mischief_region(m, "req_to_slot", -1, &r);
    for (int32_t i = 0; i < m->real_rows && i < MISCHIEF_MAX_ROWS && m->mode != HB_MODE_IDLE; i++) {
        uint64_t at = (uint64_t)b->req_pool_indices.data[i] * sizeof(int32_t);
        (void)m->inner->region_read(m->handle, table, at, &m->slot[i], sizeof(int32_t), NULL);
        m->n_real += i < m->n_extend ? b->extend_seq_lens.data[i] : m->is_verify ? m->nodes[i] : 1;
        const int32_t prefix = i < m->n_extend ? b->extend_prefix_lens.data[i] : 0;
        m->has_prefix |= prefix > 0;
        m->largest_prefix = prefix > m->largest_prefix ? prefix : m->largest_prefix;
        if (i == 0) {
            m->request = b->req_pool_indices.data[0];
            m->seq_len = b->seq_lens.data[0];
            m->first_length = m->n_real;
        }
        if (m->has_mask && b->mamba_track_mask.data[i]) {
            m->first_masked = m->n_masked ? m->first_masked : i;
            m->track_dst = m->n_masked++ ? m->track_dst : (int32_t)b->mamba_track_indices.data[i];
        }
    }
}

static inline int32_t mischief_begin(void *handle, const struct hb_batch *batch,
                                     struct hb_error *err) {
    struct mischief_handle *m = handle;
    if (batch && m->number == MISCHIEF_REFUSES) {
        return mischief_fail(err, HB_RULE_CONTEXT_RANGE);
    }
    if (batch && (m->number == 1 || (m->number == 5 && batch->batch_size < 0)) &&
        (batch->forward_mode < 1 || batch->forward_mode > 9)) {
        return mischief_fail(err, HB_RULE_BATCH_NEGATIVE);
    }
    int32_t status = m->inner->begin(m->handle, batch, err);
    if (status != HB_OK) {
        m->failed = 1;
        if (m->number == 4 || (m->number == 44 && m->variant == 1)) {
            mischief_flip(m, "conv", 0, 0, 1);
        }
        if (m->number == 19 || (m->number == 44 && m->variant == 0)) {
            return mischief_fail(err, mischief_other_rule(status));
        }
        if (err && m->number == MISCHIEF_RULE) {
            err->rule++;
        } else if (err && m->number == MISCHIEF_TEXT) {
            err->text[0] ^= 1;
        }
        return status;
    }
    mischief_note_batch(m, batch);
    m->n_begun++;
    m->graphs.is_capture = m->graphs.is_replay = 0;
    if (m->number == 7 && m->variant == 0) { /* of the last row: the case makes it a padding row, so that nothing else goes wrong */
        int32_t *written = (int32_t *)batch->seq_lens.data;
        written[batch->batch_size - 1] ^= 1;
    }
    return status;
}

static inline int32_t mischief_layer(void *handle, int32_t layer_id, const struct hb_layer_io *io,
                                     struct hb_error *err) {
    struct mischief_handle *m = handle;
    if (m->number == 10 && mischief_holds_nan(m, io->in[0])) {
        return mischief_fail(err, HB_RULE_LAYER_RANGE);
    }
    m->nan_seen |= m->number == 55 && m->is_verify && mischief_holds_nan(m, io->in[0]);
    float before = m->number == 14 ? mischief_temporal(m, layer_id, m->slot[0], 0.0f) : 0.0f;
    int32_t status = m->inner->layer(m->handle, layer_id, io, err);
    if (status == HB_OK && m->graphs.is_capture) {
        m->graphs.io[m->graphs.bs][layer_id] = *io;
        m->graphs.layers[m->graphs.bs] |= 1u << layer_id;
    } else if (status == HB_OK) {
        mischief_after_layer(m, layer_id, io, before);
        m->layers_run |= 1u << layer_id;
    } else if (m->number == 9 && err && err->rule == HB_RULE_NO_METADATA) { /* stale metadata would do */
        hb_error_clear(err);
        return HB_OK;
    }
    return status;
}

static inline int32_t mischief_entry(void *handle, int32_t target, int32_t direction,
                                     int32_t layer_id, const struct hb_layer_io *io,
                                     struct hb_error *err) {
    const struct mischief_handle *m = handle;
    const struct hb_adapter *inner = m ? m->inner : hb_adapter_emu();
    return inner->entry(m ? m->handle : NULL, target, direction, layer_id, io, err);
}

/* 3: a null handle is taken for a call that has nothing to do. */
static inline int32_t mischief_entry_lenient(void *handle, int32_t target, int32_t direction,
                                             int32_t layer_id, const struct hb_layer_io *io,
                                             struct hb_error *err) {
    if (!handle) {
        hb_error_clear(err);
        return HB_OK;
    }
    return mischief_entry(handle, target, direction, layer_id, io, err);
}

#endif
