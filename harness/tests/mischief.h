/* SPDX-License-Identifier: Apache-2.0
 * A backend that is right except in one way: the emulated backend behind a table that misbehaves as
 * its number says. Numbers up to 66 break the relation of invariants.md with that number, the
 * others are for comparisons of two backends. `variant` picks one of several ways to break it. */
#ifndef HB_HARNESS_TESTS_MISCHIEF_H
#define HB_HARNESS_TESTS_MISCHIEF_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/adapter.h"
#include "harness/tests/mischief_graph.h"
#include "harness/values.h"

enum {
    MISCHIEF_OUTPUT = 100, /* one output element of each layer call is half as large again */
    MISCHIEF_LAST_BIT,     /* the last bit of one output element differs */
    MISCHIEF_TEMPORAL,     /* one element of the first row's temporal state is larger by one */
    MISCHIEF_CONV,         /* one byte of the first row's conv state */
    MISCHIEF_REFUSES,      /* begin refuses every batch with a wrong status */
    MISCHIEF_FREE_SLOT,    /* one byte of a slot that nobody holds */
    MISCHIEF_PADDING,      /* output of padding tokens is not zero */
    MISCHIEF_OVERRUN, /* a byte behind the output is written; the backend claims no exact guards */
    MISCHIEF_RULE,    /* errors name another rule of the same status */
    MISCHIEF_TEXT,    /* errors have the right numbers and a wrong text */
    MISCHIEF_TAKE,    /* every take gives slot 1 */
    MISCHIEF_DIRTY,   /* a slot is not all zero when taken */
    MISCHIEF_COPY,    /* a copy differs in one bit */
    MISCHIEF_FREE,    /* free clears a byte of the slot */
    MISCHIEF_COMMIT,  /* a commit differs in one bit */
    MISCHIEF_NO_DESCRIBE, /* environment trouble from here on */
    MISCHIEF_NO_BUFFER,
    MISCHIEF_NO_OUTPUT,
    MISCHIEF_NO_READ,  /* regions cannot be read after the first forward */
    MISCHIEF_NO_WRITE, /* regions cannot be written after the first take */
    MISCHIEF_NO_START, /* regions cannot be written at all */
    MISCHIEF_INIT,     /* graph_init leaves something in a static buffer */
    MISCHIEF_REPLAY_NEIGHBOUR, /* a replay touches a slot that nobody holds */
    MISCHIEF_REPLAY_PADDING,   /* output of padding rows of a replay is not zero */
    MISCHIEF_NO_LAUNCH,        /* finish of a replay does nothing */
    MISCHIEF_CURSOR,           /* the ring's cursor of row 0 is one too far */
    MISCHIEF_RECORD,           /* an element of its newest record is wrong */
    MISCHIEF_RING_NEIGHBOUR,   /* a record of another slot changes */
    MISCHIEF_TEMPORAL_DECODE,  /* as MISCHIEF_TEMPORAL, after a decode */
    MISCHIEF_PAD_BYTE,         /* a byte between two slots is written */
    MISCHIEF_PUBLISH,          /* publish does nothing */
    MISCHIEF_MOVE,             /* a move loses a bit */
    MISCHIEF_MOVE_ID,          /* a move does nothing */
    MISCHIEF_STRIP,            /* a column of a strip is wrong: 0 of a node, 1 behind the nodes */
    MISCHIEF_TABLES,           /* a fresh backend has a slot in use */
    MISCHIEF_NO_RING,          /* the backend declares no replay ring, and refuses one; 1: none that commits own */
    MISCHIEF_REGION,           /* 0: temporal states under another name, 1: so conv states, 2: temporal of another type */
    MISCHIEF_COMMIT_RING       /* of a ring that commits own something is wrong, enum mischief_ring */
};

enum mischief_ring {
    MISCHIEF_RING_POS,       /* a commit moves the cursor of row 0 too far */
    MISCHIEF_RING_FLUSH,     /* or says the other thing of its next fold */
    MISCHIEF_RING_TEMPORAL,  /* or writes its state */
    MISCHIEF_RING_BASE,      /* a verify moves the base */
    MISCHIEF_RING_NODE,      /* or writes a wrong record for node 1 of row 0 */
    MISCHIEF_RING_OLD,       /* or over the first record before its nodes */
    MISCHIEF_RING_FOLD,      /* or its state */
    MISCHIEF_RING_REFRESH    /* a replay writes a wrong base */
};

struct mischief {
    struct hb_adapter table; /* ctx points to the struct */
    const struct hb_adapter *inner;
    int32_t number, variant;
};

enum { MISCHIEF_MAX_ROWS = 16 };

struct mischief_handle {
    const struct hb_adapter *inner;
    void *handle;
    int32_t number, variant;
    struct hb_config config;
    /* the batch of the running forward */
    int32_t mode, batch_size, real_rows, n_tokens, n_extend, n_real;
    int32_t has_prefix, has_mask, n_masked;
    int32_t first_masked; /* row of the first masked one */
    int32_t request, seq_len, first_length; /* of row 0; tokens of it in this forward */
    int32_t largest_prefix;                 /* over the rows */
    int32_t slot[MISCHIEF_MAX_ROWS];
    int32_t track_dst; /* of the first masked row, 0: none */
    int32_t failed;    /* a begin has failed since the last finish */
    int32_t n_taken, n_finished;
    uint32_t layers_run;
    /* draft verification: the last begin was a verify, how many came one after the other, commits since */
    int32_t is_verify, n_verify, n_commits;
    int32_t has_links, is_ragged, nan_seen;
    int32_t nodes[MISCHIEF_MAX_ROWS];
    int32_t jumps;                             /* bit t: node t of row 0 does not hang on node t-1 */
    int32_t n_begun; /* begins since the last finish */
    struct mischief_graphs graphs;
};

/* --- regions ---------------------------------------------------------------------------------- */

static inline int32_t mischief_region(const struct mischief_handle *m, const char *name,
                                      int32_t layer, struct hb_region *out) {
    int32_t n = 0;
    (void)m->inner->n_regions(m->handle, &n, NULL);
    for (int32_t i = 0; i < n; i++) {
        memset(out, 0, sizeof *out);
        out->struct_size = sizeof *out;
        if (m->inner->region(m->handle, i, out, NULL) == HB_OK && strcmp(out->name, name) == 0 &&
            (layer < 0 || out->layer == layer)) {
            return i;
        }
    }
    return -1;
}

/* One bit of element `element` of a slot's entry in the first region of that name. */
static inline void mischief_flip(const struct mischief_handle *m, const char *name, int32_t slot,
                                 uint64_t element, uint8_t bits) {
    struct hb_region r;
    int32_t i = mischief_region(m, name, -1, &r);
    if (i < 0 || slot < 0) {
        return;
    }
    uint64_t at = r.bytes / (uint64_t)r.shape[0] * (uint64_t)slot +
                  element * (uint64_t)hb_dtype_bytes(r.dtype);
    uint8_t byte = 0;
    (void)m->inner->region_read(m->handle, i, at, &byte, 1, NULL);
    byte ^= bits;
    (void)m->inner->region_write(m->handle, i, at, &byte, 1, NULL);
}

/* Adds to the first element of a slot's temporal state in one layer; gives its value. */
static inline float mischief_temporal(const struct mischief_handle *m, int32_t layer, int32_t slot,
                                      float add) {
    struct hb_region r;
    int32_t i = mischief_region(m, "temporal", layer, &r);
    if (i < 0) {
        return 0.0f;
    }
    uint64_t element = (uint64_t)hb_dtype_bytes(r.dtype);
    uint64_t at = r.bytes / (uint64_t)r.shape[0] * (uint64_t)slot;
    unsigned char bytes[4] = {0};
    float value;
    (void)m->inner->region_read(m->handle, i, at, bytes, element, NULL);
    hb_unpack(r.dtype, bytes, 1, &value);
    if (add != 0.0f) {
        value += add;
        hb_pack(r.dtype, &value, 1, bytes);
        (void)m->inner->region_write(m->handle, i, at, bytes, element, NULL);
    }
    return value;
}

/* --- outputs ---------------------------------------------------------------------------------- */

/* Output elements [first, first + n) become value * factor + add; bits: flips these bits of the
 * first one instead. */
static inline void mischief_output(const struct mischief_handle *m, const struct hb_layer_io *io,
                                   int64_t first, int64_t n, float factor, float add,
                                   uint8_t bits) {
    size_t element = (size_t)hb_dtype_bytes(m->config.act_dtype);
    int64_t total = (int64_t)(io->out.bytes / element);
    unsigned char *bytes = malloc((size_t)io->out.bytes + 1);
    float *values = malloc(((size_t)total + 1) * sizeof *values);
    if (bytes && values && total > 0 &&
        m->inner->buf_read(m->handle, io->out, bytes, io->out.bytes, NULL) == HB_OK) {
        hb_unpack(m->config.act_dtype, bytes, total, values);
        for (int64_t i = first; i < first + n && i < total; i++) {
            values[i] = values[i] * factor + add;
        }
        hb_pack(m->config.act_dtype, values, total, bytes);
        bytes[(size_t)first * element] ^= bits;
        (void)m->inner->buf_write(m->handle, io->out, bytes, io->out.bytes, NULL);
    }
    free(bytes);
    free(values);
}

static inline int64_t mischief_width(const struct mischief_handle *m, int32_t layer) {
    return m->config.layer_kind[layer] == HB_LAYER_ATTENTION
               ? (int64_t)m->config.n_q_heads * m->config.attn_dim
               : (int64_t)m->config.n_heads * m->config.head_dim;
}

static inline int mischief_holds_nan(const struct mischief_handle *m, struct hb_buf in) {
    size_t element = (size_t)hb_dtype_bytes(m->config.act_dtype);
    unsigned char *bytes = malloc((size_t)in.bytes + 1);
    float value = 0.0f;
    int found = 0;
    if (bytes && m->inner->buf_read(m->handle, in, bytes, in.bytes, NULL) == HB_OK) {
        for (uint64_t at = 0; at + element <= in.bytes; at += element) {
            hb_unpack(m->config.act_dtype, bytes + at, 1, &value);
            found |= isnan(value);
        }
    }
    free(bytes);
    return found;
}

/* The first element of a token in the first input. */
static inline float mischief_input(const struct mischief_handle *m, const struct hb_layer_io *io,
                                   int32_t token) {
    const uint64_t element = (uint64_t)hb_dtype_bytes(m->config.act_dtype);
    struct hb_buf in = io->in[0];
    unsigned char bytes[4] = {0};
    float value = 0.0f;
    in.offset += in.bytes / (uint64_t)m->n_tokens * (uint64_t)token;
    in.bytes = element;
    if (m->inner->buf_read(m->handle, in, bytes, element, NULL) == HB_OK) {
        hb_unpack(m->config.act_dtype, bytes, 1, &value);
    }
    return value;
}

/* Flips a bit of element 0 of row 0's entry of a node in the intermediate windows. */
static inline void mischief_flip_node(const struct mischief_handle *m, int32_t node) {
    struct hb_region r;
    int32_t i = mischief_region(m, "intermediate_conv", -1, &r);
    uint64_t at = i < 0 ? 0 : r.bytes / (uint64_t)(r.shape[0] * r.shape[1]) * (uint64_t)node;
    uint8_t byte = 0;
    if (i >= 0) {
        (void)m->inner->region_read(m->handle, i, at, &byte, 1, NULL);
        byte ^= 1;
        (void)m->inner->region_write(m->handle, i, at, &byte, 1, NULL);
    }
}

/* Adds one to element 0 of row 0's entry of a node in the intermediate states of layer 0. */
static inline void mischief_add_node(const struct mischief_handle *m, int32_t node) {
    struct hb_region r;
    int32_t i = mischief_region(m, "intermediate_ssm", 0, &r);
    uint64_t at = i < 0 ? 0 : r.bytes / (uint64_t)(r.shape[0] * r.shape[1]) * (uint64_t)node;
    unsigned char bytes[4] = {0};
    float value;
    if (i >= 0) {
        uint64_t element = (uint64_t)hb_dtype_bytes(r.dtype);
        (void)m->inner->region_read(m->handle, i, at, bytes, element, NULL);
        hb_unpack(r.dtype, bytes, 1, &value);
        value += 1.0f;
        hb_pack(r.dtype, &value, 1, bytes);
        (void)m->inner->region_write(m->handle, i, at, bytes, element, NULL);
    }
}

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
        return m->config.n_groups == m->config.n_heads;
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
        mischief_output(m, io, 0, 1, 1.0f, 1.0f, 0);
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

/* --- the table -------------------------------------------------------------------------------- */

static inline int32_t mischief_describe(void *ctx, struct hb_caps *caps, struct hb_error *err) {
    const struct mischief *m = ctx;
    if (m->number == MISCHIEF_NO_DESCRIBE) {
        return hb_fail_text(err, HB_ERR_DEVICE, "no device here");
    }
    int32_t status = m->inner->describe(m->inner->ctx, caps, err);
    if (m->number == MISCHIEF_OVERRUN) {
        caps->exact_guards = 0;
    }
    if (m->number == MISCHIEF_NO_RING) {
        *(m->variant ? &caps->ring_commit : &caps->ring) = 0;
    }
    return status;
}

static inline int32_t mischief_create(void *ctx, const struct hb_config *config,
                                      const struct hb_layer_params *params, void **handle,
                                      struct hb_error *err) {
    const struct mischief *m = ctx;
    const int is_commit = config->ring_length > 0 && config->ring_owner == HB_RING_COMMIT;
    if (m->number == MISCHIEF_NO_RING && (m->variant ? is_commit : config->ring_length > 0)) {
        hb_error_clear(err);
        return hb_fail(err, HB_RULE_CFG_FEATURE, m->variant ? 6 : 1, config->ring_length, 0);
    }
    struct mischief_handle *h = calloc(1, sizeof *h);
    if (!h) {
        return hb_fail_text(err, HB_ERR_MEMORY, "no memory");
    }
    h->inner = m->inner;
    h->number = m->number;
    h->variant = m->variant;
    h->config = *config;
    int32_t status = m->inner->create(m->inner->ctx, config, params, &h->handle, err);
    if (status != HB_OK) {
        free(h);
        return status;
    }
    if (m->number == MISCHIEF_TABLES) {
        (void)mischief_add_int(h->inner, h->handle, "slot_kind", 2, 1);
    }
    *handle = h;
    return HB_OK;
}

static inline void mischief_destroy(void *handle) {
    struct mischief_handle *m = handle;
    m->inner->destroy(m->handle);
    free(m);
}

static inline int32_t mischief_buf_alloc(void *handle, uint64_t bytes, struct hb_buf *out,
                                         struct hb_error *err) {
    const struct mischief_handle *m = handle;
    if (m->number == MISCHIEF_NO_BUFFER) {
        return hb_fail_text(err, HB_ERR_MEMORY, "no buffer left");
    }
    return m->inner->buf_alloc(m->handle, bytes, out, err);
}

static inline void mischief_buf_free(void *handle, struct hb_buf buf) {
    const struct mischief_handle *m = handle;
    m->inner->buf_free(m->handle, buf);
}

static inline int32_t mischief_buf_write(void *handle, struct hb_buf buf, const void *src,
                                         uint64_t bytes, struct hb_error *err) {
    const struct mischief_handle *m = handle;
    return m->inner->buf_write(m->handle, buf, src, bytes, err);
}

static inline int32_t mischief_buf_read(void *handle, struct hb_buf buf, void *dst, uint64_t bytes,
                                        struct hb_error *err) {
    const struct mischief_handle *m = handle;
    if (m->number == MISCHIEF_NO_OUTPUT) {
        return hb_fail_text(err, HB_ERR_DEVICE, "copy failed");
    }
    return m->inner->buf_read(m->handle, buf, dst, bytes, err);
}

static inline int32_t mischief_slot_take(void *handle, int32_t n, int32_t kind, int32_t *ids,
                                         struct hb_error *err) {
    struct mischief_handle *m = handle;
    int32_t status = m->inner->slot_take(m->handle, n, kind, ids, err);
    if (status != HB_OK || n < 1) {
        return status;
    }
    m->n_taken++;
    if (m->number == MISCHIEF_TAKE || (m->number == 20 && m->variant == 0)) {
        ids[0] = 1;
    } else if (m->number == MISCHIEF_DIRTY || (m->number == 20 && m->variant == 1)) {
        mischief_flip(m, "temporal", ids[0], 1, 1);
    }
    return status;
}

static inline int32_t mischief_slot_free(void *handle, int32_t n, const int32_t *ids,
                                         struct hb_error *err) {
    const struct mischief_handle *m = handle;
    int32_t status = m->inner->slot_free(m->handle, n, ids, err);
    if (status == HB_OK && n > 0 && m->number == MISCHIEF_FREE) {
        mischief_flip(m, "conv", ids[0], 1, 1);
    }
    if (status == HB_ERR_FREED && m->number == 20) { /* a double free is no error */
        hb_error_clear(err);
        return HB_OK;
    }
    return status;
}

static inline int32_t mischief_slot_copy(void *handle, int32_t src, int32_t dst,
                                         struct hb_error *err) {
    const struct mischief_handle *m = handle;
    int32_t status = m->inner->slot_copy(m->handle, src, dst, err);
    if (status == HB_OK && (m->number == MISCHIEF_COPY || (m->number == 21 && m->variant == 0))) {
        mischief_flip(m, "conv", dst, 2, 1);
    }
    if (status == HB_ERR_STATE && m->number == 21) { /* records that are not folded are lost */
        hb_error_clear(err);
        return HB_OK;
    }
    return status;
}

static inline int32_t mischief_table_set(void *handle, int32_t req, int32_t slot,
                                         struct hb_error *err) {
    const struct mischief_handle *m = handle;
    return m->inner->table_set(m->handle, req, slot, err);
}

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

/* --- graphs ----------------------------------------------------------------------------------- */

static inline int32_t mischief_slot_publish(void *handle, int32_t id, struct hb_error *err) {
    const struct mischief_handle *m = handle;
    return m->number == MISCHIEF_PUBLISH ? HB_OK : m->inner->slot_publish(m->handle, id, err);
}

static inline int32_t mischief_slot_move(void *handle, int32_t id, struct hb_error *err) {
    const struct mischief_handle *m = handle;
    if (m->number == MISCHIEF_MOVE_ID) {
        return HB_OK;
    }
    const int32_t status = m->inner->slot_move(m->handle, id, err);
    if (status == HB_OK && m->number == MISCHIEF_MOVE) {
        const int32_t to =
            mischief_add_int(m->inner, m->handle, "v2p", (uint64_t)(id > 0 ? id : 0), 0);
        mischief_flip(m, "conv", to, 0, 1);
    }
    return status;
}

static inline int32_t mischief_graph_init(void *handle, int32_t max_bs, int32_t max_tokens,
                                          struct hb_error *err) {
    const struct mischief_handle *m = handle;
    const int32_t status = m->inner->graph_init(m->handle, max_bs, max_tokens, err);
    if (status == HB_OK && m->number == MISCHIEF_INIT) {
        (void)mischief_add_int(m->inner, m->handle, "graph_query_start_loc", 1, 1);
    }
    return status;
}

static inline int32_t mischief_capture(void *handle, const struct hb_batch *batch,
                                       struct hb_error *err) {
    struct mischief_handle *m = handle;
    int32_t status = m->inner->capture(m->handle, batch, err);
    if (status == HB_ERR_INVALID_MODE && m->number == 2) {
        return mischief_fail(err, HB_RULE_BATCH_NEGATIVE);
    }
    if (status == HB_OK) {
        m->graphs.is_capture = 1;
        m->graphs.is_replay = 0;
        m->graphs.bs = batch->batch_size;
        m->graphs.layers[batch->batch_size] = 0;
        m->graphs.tokens[batch->batch_size] = batch->n_tokens;
    }
    return status;
}

/* The part of a batch that a replay reads, as begin would see it. */
static inline void mischief_note_replay(struct mischief_handle *m, const struct hb_batch *batch) {
    struct mischief_graphs *g = &m->graphs;
    struct hb_batch b = *batch;
    b.has_original_batch_size = 1;
    b.original_batch_size = batch->batch_size - (batch->has_num_padding ? batch->num_padding : 0);
    for (int64_t i = 0; i < batch->seq_lens_cpu.len && !batch->has_num_padding; i++) {
        b.original_batch_size -= batch->seq_lens_cpu.data[i] == 1;
    }
    g->follows_empty = g->last_bs > 0 && g->last_bs != batch->batch_size && g->last_live == 0;
    g->last_bs = g->bs = batch->batch_size;
    g->last_live = b.original_batch_size;
    g->counts_padding = !batch->has_num_padding;
    g->is_replay = 1;
    g->is_capture = 0;
    mischief_note_batch(m, &b);
}

static inline int32_t mischief_replay(void *handle, const struct hb_batch *batch,
                                      struct hb_error *err) {
    struct mischief_handle *m = handle;
    const int32_t bs = batch ? batch->batch_size : 0;
    int32_t first = 0;
    if (bs >= 1 && bs <= m->config.graph_rows) {
        first = mischief_add_int(m->inner, m->handle, "graph_state_indices",
                                 mischief_set_entry(&m->config, bs, 0, 0), 0);
    }
    int32_t status = m->inner->replay(m->handle, batch, err);
    if (status == HB_ERR_INVALID_MODE && m->number == 2) {
        return mischief_fail(err, HB_RULE_BATCH_NEGATIVE);
    }
    if (status != HB_OK) {
        return status;
    }
    mischief_note_replay(m, batch);
    m->graphs.is_poisoned = first < -1 || first > m->config.n_slots;
    if (m->number == MISCHIEF_COMMIT_RING && m->variant == MISCHIEF_RING_REFRESH) {
        (void)mischief_add_int(m->inner, m->handle, "graph_ring_base",
                               mischief_set_entry(&m->config, bs, 0, 1), 1);
    } else if (m->number == 35) {
        (void)mischief_add_int(m->inner, m->handle, "graph_query_start_loc",
                               mischief_set_entry(&m->config, bs, 1, bs), 1);
    } else if (m->number == 46) { /* its own entry, or that of another batch size */
        const int32_t set = m->variant == 0 ? bs : bs % m->config.graph_rows + 1;
        (void)mischief_add_int(m->inner, m->handle, "graph_state_indices",
                               mischief_set_entry(&m->config, set, 0, m->config.graph_rows - 1), 1);
    }
    return status;
}

/* After the launch of a graph its outputs are as wrong as those of layers; a capture may write a slot. */
static inline void mischief_after_graph(struct mischief_handle *m) {
    struct mischief_graphs *g = &m->graphs;
    if (g->is_capture && m->number == 48) {
        mischief_flip(m, "conv", 1, 0, 1);
    }
    for (int32_t l = 0; l < m->config.n_layers && g->is_replay; l++) {
        if (g->layers[g->bs] >> l & 1) {
            mischief_after_layer(m, l, &g->io[g->bs][l], 0.0f);
            m->layers_run |= 1u << l;
        }
    }
    g->is_capture = g->is_replay = 0;
}

/* What is to be wrong of the first tracked row's checkpoint: 0 nothing, 1 conv, 2 temporal. */
static inline int32_t mischief_checkpoint(const struct mischief_handle *m) {
    if (m->track_dst <= 0) {
        return 0;
    }
    switch (m->number) {
    case 38:
        return m->variant == 0 ? 1 : 2;
    case 41:
        return m->first_masked > 0 ? 1 : 0;
    case 42:
        return m->config.page_size > m->config.chunk_size ? 2 : 0;
    case 43:
        return m->config.track_by_layer && m->mode == HB_MODE_DECODE ? 1 : 0;
    default:
        return 0;
    }
}

/* Element 0 of the record at an offset from the end of those that are not folded, one step of the exponent. */
static inline void mischief_record(const struct mischief_handle *m, int32_t base, int32_t offset) {
    const int32_t at = (base + offset) % m->config.ring_length;
    (void)mischief_add_int(m->inner, m->handle, "ring_x",
                           (uint64_t)((m->slot[0] * m->config.n_heads * m->config.ring_length + at) *
                                      m->config.head_dim),
                           1 << 23);
}

static inline void mischief_after_verify(const struct mischief_handle *m) {
    const uint64_t slot = (uint64_t)m->slot[0];
    const int32_t base = mischief_add_int(m->inner, m->handle, "ring_base", slot, 0);
    const int32_t left = mischief_add_int(m->inner, m->handle, "write_pos", slot, 0);
    switch (m->variant) {
    case MISCHIEF_RING_BASE:
        (void)mischief_add_int(m->inner, m->handle, "ring_base", slot, 1);
        break;
    case MISCHIEF_RING_NODE:
        mischief_record(m, base, left + 1);
        break;
    case MISCHIEF_RING_OLD:
        if (left > 0) {
            mischief_record(m, base, 0);
        }
        break;
    case MISCHIEF_RING_FOLD:
        (void)mischief_temporal(m, 0, m->slot[0], 1.0f);
        break;
    default:
        break;
    }
}

static inline void mischief_after_ring_commit(const struct mischief_handle *m) {
    const uint64_t slot = (uint64_t)m->slot[0];
    if (m->variant == MISCHIEF_RING_POS) {
        (void)mischief_add_int(m->inner, m->handle, "write_pos", slot, 1);
    } else if (m->variant == MISCHIEF_RING_FLUSH) {
        const int32_t flush = mischief_add_int(m->inner, m->handle, "ring_flush", slot, 0);
        (void)mischief_add_int(m->inner, m->handle, "ring_flush", slot, flush ? -1 : 1);
    } else if (m->variant == MISCHIEF_RING_TEMPORAL) {
        (void)mischief_temporal(m, 0, m->slot[0], 1.0f);
    }
}

/* What is to be wrong in the ring, in pads and strips after a forward. */
static inline void mischief_features(const struct mischief_handle *m) {
    struct hb_region r;
    const int is_decode = m->mode == HB_MODE_DECODE && m->real_rows > 0;
    switch (m->number) {
    case MISCHIEF_CURSOR:
        (void)mischief_add_int(m->inner, m->handle, "write_pos", (uint64_t)m->slot[0], is_decode);
        break;
    case MISCHIEF_RECORD: /* entry 0, one step of the exponent */
        (void)mischief_add_int(m->inner, m->handle, "ring_x",
                               (uint64_t)(m->slot[0] * m->config.n_heads * m->config.ring_length *
                                          m->config.head_dim),
                               is_decode << 23);
        break;
    case MISCHIEF_RING_NEIGHBOUR:
        (void)mischief_add_int(m->inner, m->handle, "ring_g", 0, is_decode);
        break;
    case MISCHIEF_TEMPORAL_DECODE:
        (void)mischief_temporal(m, 0, m->slot[0], is_decode ? 1.0f : 0.0f);
        break;
    case MISCHIEF_COMMIT_RING:
        if (m->is_verify && m->real_rows > 0) {
            mischief_after_verify(m);
        }
        break;
    case MISCHIEF_PAD_BYTE:
        mischief_flip(m, "conv_pad", 1, 0, 1);
        break;
    case MISCHIEF_STRIP:
        if (m->is_verify && mischief_region(m, "intermediate_conv", -1, &r) >= 0) {
            mischief_flip(m, "intermediate_conv", 0, m->variant ? (uint64_t)r.shape[2] - 1 : 0, 1);
        }
        break;
    default:
        break;
    }
}

static inline int32_t mischief_finish(void *handle, struct hb_error *err) {
    struct mischief_handle *m = handle;
    if (m->number == MISCHIEF_NO_LAUNCH && m->graphs.is_replay) {
        return HB_OK;
    }
    const int32_t is_replay = m->graphs.is_replay;
    int32_t status = m->inner->finish(m->handle, err);
    if (status != HB_OK) {
        return status;
    }
    mischief_features(m);
    if (m->number == MISCHIEF_REPLAY_NEIGHBOUR && is_replay) {
        mischief_flip(m, "temporal", m->config.n_slots, 0, 1);
    }
    m->failed = 0;
    m->n_begun = 0;
    m->n_finished++;
    if (m->graphs.is_capture) {
        mischief_after_graph(m);
        return status;
    }
    mischief_after_graph(m);
    int is_idle = m->mode == HB_MODE_IDLE;
    int continues = m->mode != HB_MODE_DECODE && m->has_prefix;
    int stores = m->number == 50 && m->variant == 0 && m->is_verify;
    if (m->is_verify && m->number == 52 && m->variant == 0) {
        mischief_flip_node(m, 1);
    } else if (m->is_verify && m->number == 52) {
        mischief_add_node(m, 1);
    } else if (m->number == 13 && is_idle) {
        mischief_flip(m, "conv", 1, 0, 1);
    } else if (stores || (m->number == 27 && continues) || (m->number == MISCHIEF_CONV && !is_idle)) {
        mischief_flip(m, "conv", m->slot[0], 0, 1); /* the last bit: one step of the type */
    } else if (mischief_checkpoint(m) == 1) {
        mischief_flip(m, "conv", m->track_dst, 0, 1);
    } else if (mischief_checkpoint(m) == 2) {
        (void)mischief_temporal(m, 0, m->track_dst, 1.0f);
    } else if (m->number == 61 && m->track_dst > 0) {
        if (m->variant == 0) {
            (void)mischief_temporal(m, 0, m->track_dst, 1.0f);
        } else { /* the row is not folded */
            (void)mischief_add_int(m->inner, m->handle, "write_pos", (uint64_t)m->slot[0], 1);
        }
    } else if ((m->number == 64 && m->variant == 1) || m->number == 65) {
        (void)mischief_temporal(m, 0, m->slot[0], m->number == 64 ? 1.0f : 1e6f);
    } else if (m->number == MISCHIEF_TEMPORAL && !is_idle) {
        (void)mischief_temporal(m, 0, m->slot[0], 1.0f);
    } else if (m->number == MISCHIEF_FREE_SLOT) {
        mischief_flip(m, "temporal", m->config.n_slots, 0, 1);
    }
    return status;
}

static inline int32_t mischief_commit(void *handle, const struct hb_commit *commit,
                                      struct hb_error *err) {
    struct mischief_handle *m = handle;
    int32_t status = m->inner->commit(m->handle, commit, err);
    if (status != HB_OK) {
        if (m->number == 4) {
            mischief_flip(m, "conv", 0, 0, 1);
        }
        return m->number == 19 ? mischief_fail(err, mischief_other_rule(status)) : status;
    }
    if (commit->n_rows < 1) {
        return status;
    }
    m->n_commits++;
    if (m->number == MISCHIEF_COMMIT_RING) {
        mischief_after_ring_commit(m);
    }
    if (m->number == 7 && m->variant == 1) {
        ((int32_t *)commit->step.data)[0] ^= 1;
    }
    const int is_wrong = m->number == MISCHIEF_COMMIT ||
                         (m->number == 59 && m->config.window_layout == HB_WINDOWS_STRIP) ||
                         (m->number == 55 && m->nan_seen) ||
                         (m->number == 56 && m->variant == 0 && m->n_commits > 1) ||
                         (m->number == 56 && m->variant == 1 && commit->step.data[0] < 0);
    if (is_wrong) {
        mischief_flip(m, "conv", m->slot[0], 0, 1);
    }
    if (m->number == 57 && commit->track_indices.data && commit->track_steps.data[0] >= 0) {
        int32_t dst = (int32_t)commit->track_indices.data[0];
        if (m->variant == 0) {
            mischief_flip(m, "conv", dst, 0, 1);
        } else {
            (void)mischief_temporal(m, 0, dst, 1.0f);
        }
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

static inline int32_t mischief_n_regions(void *handle, int32_t *n, struct hb_error *err) {
    const struct mischief_handle *m = handle;
    return m->inner->n_regions(m->handle, n, err);
}

static inline int32_t mischief_get_region(void *handle, int32_t i, struct hb_region *out,
                                          struct hb_error *err) {
    const struct mischief_handle *m = handle;
    const int32_t status = m->inner->region(m->handle, i, out, err);
    const char *name = m->variant == 1 ? "conv" : "temporal";
    if (status == HB_OK && m->number == MISCHIEF_REGION && strcmp(out->name, name) == 0) {
        out->name[0] = m->variant == 2 ? 't' : 'x';
        out->dtype = m->variant == 2 ? HB_BF16 : out->dtype;
    }
    return status;
}

static inline int32_t mischief_region_read(void *handle, int32_t i, uint64_t offset, void *dst,
                                           uint64_t bytes, struct hb_error *err) {
    const struct mischief_handle *m = handle;
    if (m->number == MISCHIEF_NO_READ && m->n_finished > 0) {
        return hb_fail_text(err, HB_ERR_DEVICE, "copy failed");
    }
    return m->inner->region_read(m->handle, i, offset, dst, bytes, err);
}

static inline int32_t mischief_region_write(void *handle, int32_t i, uint64_t offset,
                                            const void *src, uint64_t bytes, struct hb_error *err) {
    const struct mischief_handle *m = handle;
    if (m->number == MISCHIEF_NO_START || (m->number == MISCHIEF_NO_WRITE && m->n_taken > 0)) {
        return hb_fail_text(err, HB_ERR_DEVICE, "copy failed");
    }
    return m->inner->region_write(m->handle, i, offset, src, bytes, err);
}

static inline uint64_t mischief_launches(void *handle) {
    const struct mischief_handle *m = handle;
    return m->inner->launches(m->handle);
}

/* The adapter is &m->table; m must outlive it and stay where it is. */
static inline const struct hb_adapter *mischief_init(struct mischief *m, int32_t number,
                                                     int32_t variant) {
    *m = (struct mischief){.inner = hb_adapter_emu(), .number = number, .variant = variant};
    m->table = (struct hb_adapter){
        .struct_size = sizeof m->table,
        .ctx = m,
        .describe = mischief_describe,
        .create = mischief_create,
        .destroy = mischief_destroy,
        .buf_alloc = mischief_buf_alloc,
        .buf_free = mischief_buf_free,
        .buf_write = mischief_buf_write,
        .buf_read = mischief_buf_read,
        .slot_take = mischief_slot_take,
        .slot_free = mischief_slot_free,
        .slot_copy = mischief_slot_copy,
        .slot_publish = mischief_slot_publish,
        .slot_move = mischief_slot_move,
        .table_set = mischief_table_set,
        .begin = mischief_begin,
        .graph_init = mischief_graph_init,
        .capture = mischief_capture,
        .replay = mischief_replay,
        .layer = mischief_layer,
        .finish = mischief_finish,
        .entry = number == 3 ? mischief_entry_lenient : mischief_entry,
        .n_regions = mischief_n_regions,
        .region = mischief_get_region,
        .region_read = mischief_region_read,
        .region_write = mischief_region_write,
        .commit = mischief_commit,
        .launches = mischief_launches,
    };
    return &m->table;
}

#endif
