/* SPDX-License-Identifier: Apache-2.0
 * What the tests of verify and commit share: two requests, chains and trees of draft nodes after
 * them, their inputs and wanted outputs, commits. Included after cmocka.h.
 *
 * Row 0 is request 7, row 1 request 6, as in fixture_verify. A node is a token of some request; the
 * nodes that are looked at continue the row's own request. */
#ifndef HB_BACKEND_TESTS_SPEC_WORLD_H
#define HB_BACKEND_TESTS_SPEC_WORLD_H

#include <string.h>

#include "backend/tests/world.h"

enum { R0 = 7, R1 = 6, OTHER = 3, DRAFT = 5, MAX_NODES = ROWS * MAX_DRAFT };

struct token {
    int32_t req, pos; /* req < 0: NaN */
    int32_t is_checked;
};

static struct token tokens[MAX_NODES];

/* Requests 7 and 6 have 5 and 2 tokens: one window full, one short. */
static inline void open_requests(int32_t act_dtype, int32_t form, int32_t order, int32_t defect) {
    open_world(act_dtype, form, order, defect);
    take(R0);
    take(R1);
    assert_int_equal(
        forward(HB_MODE_EXTEND, 2, (const struct row[]){{R0, 5, 0, 0}, {R1, 2, 0, 0}}, 0, 0), 0);
}

/* Batch of chains: every node continues its row's request. */
static inline void make_chains(int32_t draft, const int32_t *nodes, int32_t pad_rows) {
    const int32_t seq[] = {w.pos[R0], w.pos[R1]};
    fixture_verify(&w.f, draft, 2, seq, nodes, pad_rows);
    for (int32_t r = 0; r < 2 + pad_rows; r++) {
        for (int32_t t = w.f.layout[r]; t < w.f.layout[r + 1]; t++) {
            const int32_t pos = r < 2 ? seq[r] + t - w.f.layout[r] : 0;
            tokens[t] = (struct token){r < 2 ? R0 - r : -1, pos, r < 2};
        }
    }
}

/* The tree of fixture_tree, ragged: nodes 0, 2, 4 continue the row's request, the others are of
 * another request. Row 1 has the first three nodes. */
static inline void make_trees(void) {
    static const int32_t nodes[] = {5, 3};
    static const int32_t depth[] = {0, 1, 1, 2, 2};
    make_chains(DRAFT, nodes, 1);
    fixture_tree(&w.f);
    for (int32_t r = 0; r < 2; r++) {
        for (int32_t t = 0; t < nodes[r]; t++) {
            struct token *token = &tokens[w.f.layout[r] + t];
            token->is_checked = t % 2 == 0;
            token->req = token->is_checked ? R0 - r : OTHER;
            token->pos = w.pos[R0 - r] + depth[t];
        }
    }
}

static inline void fill_io(struct io *io, int32_t layer) {
    static uint8_t bytes[TOKENS * 64 * 4];
    make_io(io, layer, 0, NULL);
    for (int32_t k = 0; k < 3; k++) {
        const int64_t width = io->widths[k];
        const int32_t n = w.f.batch.n_tokens;
        for (int32_t t = 0; t < n; t++) {
            for (int32_t i = 0; i < width; i++) {
                const float x = value(k, tokens[t].req, tokens[t].pos, layer, i);
                put(bytes, t * width + i,
                    tokens[t].req < 0      ? NAN
                    : layer == 1 && k == 1 ? 0.0F
                                           : x);
            }
        }
        assert_int_equal(
            w.a->buf_write(w.h, io->io.in[k], bytes, (uint64_t)(n * width * act_bytes()), &w.err),
            HB_OK);
    }
}

/* Element i of what a token's output must be, and how far it may be off. Keys are zero, so
 * attention is the mean of the values of the request's tokens so far, or of those in the window. */
static inline double want_of(const struct token *token, int32_t layer, const struct ref *ref,
                             int32_t i, double *off) {
    *off = 0;
    if (token->req < 0) {
        return 0;
    }
    if (layer != 1) {
        uint8_t one[4];
        put(one, 0, ref->y[i]);
        return (double)get(one, 0);
    }
    int32_t n;
    const double mean = mean_of_values(token->req, token->pos, layer, i, &n);
    *off = (n + 4) * 0x1p-24 + act_error();
    return mean;
}

static inline int32_t count_wrong_nodes(const struct io *io, int32_t layer) {
    static uint8_t out[TOKENS * 64 * 4];
    const int64_t width = io->widths[3];
    const int32_t n = w.f.batch.n_tokens;
    int32_t wrong = 0;
    assert_int_equal(
        w.a->buf_read(w.h, io->io.out, out, (uint64_t)(n * width * act_bytes()), &w.err), HB_OK);
    for (int32_t t = 0; t < n; t++) {
        const struct token *token = &tokens[t];
        if (!token->is_checked && token->req >= 0) {
            continue;
        }
        struct ref ref = {0};
        if (token->req >= 0 && layer != 1) {
            ref = reference(token->req, layer, token->pos + 1);
        }
        for (int32_t i = 0; i < width; i++) {
            double off;
            const double want = want_of(token, layer, &ref, i, &off);
            wrong += !(fabs((double)get(out, t * width + i) - want) <= off);
        }
    }
    return wrong;
}

/* The begun forward's layers, and finish; returns wrong output elements. */
static inline int32_t run_layers(uint32_t layers) {
    int32_t wrong = 0;
    for (int32_t l = 0; l < LAYERS; l++) {
        struct io io;
        if ((layers >> l & 1U) == 0) {
            continue;
        }
        fill_io(&io, l);
        if (w.a->layer(w.h, l, &io.io, &w.err) != HB_OK) {
            fail_msg("layer %d: %s", l, w.err.text);
        }
        wrong += count_wrong_nodes(&io, l);
        free_io(&io);
    }
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    return wrong;
}

static inline int32_t verify(void) {
    if (w.a->begin(w.h, &w.f.batch, &w.err) != HB_OK) {
        fail_msg("begin: %s", w.err.text);
    }
    return run_layers(7);
}

/* A commit of up to ROWS rows. */
struct plan {
    int32_t step[ROWS], track_step[ROWS];
    int64_t track[ROWS];
    struct hb_commit c;
};

static inline struct plan plan_of(int32_t n, int32_t step0, int32_t step1, int32_t step2) {
    return (struct plan){.step = {step0, step1, step2},
                         .track_step = {-1, -1, -1, -1, -1, -1, -1, -1},
                         .c = {.struct_size = sizeof(struct hb_commit), .n_rows = n}};
}

static inline int32_t commit(struct plan *p, int32_t has_track) {
    p->c.step = (struct hb_i32s){p->step, p->c.n_rows};
    if (has_track) {
        p->c.track_indices = (struct hb_i64s){p->track, p->c.n_rows};
        p->c.track_steps = (struct hb_i32s){p->track_step, p->c.n_rows};
    }
    return w.a->commit(w.h, &p->c, &w.err);
}

static inline void commit_ok(struct plan p, int32_t has_track) {
    if (commit(&p, has_track) != HB_OK) {
        fail_msg("commit: %s", w.err.text);
    }
}

/* Bytes of one region kind of all layers. */
static inline size_t dump_named(const char *name, uint8_t *out) {
    size_t used = 0;
    for (int32_t l = 0; l < LAYERS; l += 2) {
        struct hb_region info = {0};
        int32_t i = 0;
        region_at(name, l, &i, &info);
        assert_int_equal(w.a->region_read(w.h, i, 0, out + used, info.bytes, &w.err), HB_OK);
        used += info.bytes;
    }
    return used;
}

#endif
