/* SPDX-License-Identifier: Apache-2.0
 * What a backend in mischief knows and how it damages regions and outputs; part of mischief.h. */
#ifndef HB_HARNESS_TESTS_MISCHIEF_STATE_H
#define HB_HARNESS_TESTS_MISCHIEF_STATE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/adapter.h"
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

enum { MISCHIEF_GRAPHS = 17 };

/* What a backend in mischief knows of its graphs. */
struct mischief_graphs {
    int32_t is_capture, is_replay, bs; /* of what is open */
    int32_t counts_padding, is_poisoned, follows_empty;
    int32_t last_bs, last_live; /* of the replay before */
    int32_t tokens[MISCHIEF_GRAPHS];
    uint32_t layers[MISCHIEF_GRAPHS];
    struct hb_layer_io io[MISCHIEF_GRAPHS][HB_MAX_LAYERS];
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

/* Adds to an int32 of a static or table region; gives what it held. */
static inline int32_t mischief_add_int(const struct hb_adapter *inner, void *handle,
                                       const char *name, uint64_t index, int32_t add) {
    int32_t n = 0;
    int32_t value = 0;
    struct hb_region r;
    (void)inner->n_regions(handle, &n, NULL);
    for (int32_t i = 0; i < n; i++) {
        memset(&r, 0, sizeof r);
        r.struct_size = sizeof r;
        if (inner->region(handle, i, &r, NULL) != HB_OK || strcmp(r.name, name) != 0) {
            continue;
        }
        (void)inner->region_read(handle, i, index * sizeof value, &value, sizeof value, NULL);
        const int32_t next = value + add;
        if (add != 0) {
            (void)inner->region_write(handle, i, index * sizeof next, &next, sizeof next, NULL);
        }
        return value;
    }
    return 0;
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

#endif
