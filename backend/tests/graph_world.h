/* SPDX-License-Identifier: Apache-2.0
 * What the tests of graphs share: captures with buffers that stay, random batches that fit them,
 * the same step eagerly and as a replay, and what a refresh must write. Included after cmocka.h. */
#ifndef HB_BACKEND_TESTS_GRAPH_WORLD_H
#define HB_BACKEND_TESTS_GRAPH_WORLD_H

#include <string.h>

#include "backend/tests/spec_world.h"

enum { LIVE_REQS = 5, FIRST_REQ = 3 };

/* Buffers of the graph of each batch size, and the mode that it has. */
struct kept {
    struct io io[LAYERS];
    int32_t mode, draft, has_links;
};

static struct kept kept[GRAPH_ROWS + 1];
static int32_t track_ids[LIVE_REQS];
static uint32_t random_state = 1;
/* What static buffers hold before a refresh: by default no plausible value. */
static uint8_t poison_byte = 0x5a;

static inline int32_t pick(int32_t n) {
    random_state ^= random_state << 13; /* xorshift32: the state is never zero */
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return (int32_t)((random_state >> 8) % (uint32_t)n);
}

/* The only fields that a capture reads. */
static inline void make_capture(int32_t mode, int32_t bs, int32_t draft, int32_t has_links) {
    memset(&w.f.batch, 0, sizeof(w.f.batch));
    w.f.batch.forward_mode = mode;
    w.f.batch.batch_size = bs;
    w.f.batch.n_tokens = bs * draft;
    w.f.batch.draft_token_num = mode == HB_MODE_TARGET_VERIFY ? draft : 0;
    if (has_links) {
        w.f.batch.retrieve_next_token = (struct hb_i32s){w.f.next, (int64_t)bs * draft};
        w.f.batch.retrieve_next_sibling = (struct hb_i32s){w.f.sibling, (int64_t)bs * draft};
    }
}

/* Captures the layers of a bit set on buffers of their own, full of NaN. */
static inline void capture(int32_t mode, int32_t bs, int32_t draft, int32_t has_links,
                           uint32_t layers) {
    struct kept *k = &kept[bs];
    *k = (struct kept){.mode = mode, .draft = draft, .has_links = has_links};
    make_capture(mode, bs, draft, has_links);
    if (w.a->capture(w.h, &w.f.batch, &w.err) != HB_OK) {
        fail_msg("capture: %s", w.err.text);
    }
    for (int32_t l = 0; l < LAYERS; l++) {
        make_io(&k->io[l], l, 0, NULL);
        if ((layers >> l & 1U) != 0 && w.a->layer(w.h, l, &k->io[l].io, &w.err) != HB_OK) {
            fail_msg("layer %d of a capture: %s", l, w.err.text);
        }
    }
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
}

/* A world of five requests (3 to 7) with 2, 5, .. tokens and a track slot each. */
static inline void open_graph_world(int32_t act_dtype, int32_t form, int32_t order,
                                    int32_t defect) {
    open_world(act_dtype, form, order, defect);
    for (int32_t i = 0; i < LIVE_REQS; i++) {
        take(FIRST_REQ + i);
        track_ids[i] = take_track();
        const struct row row = {FIRST_REQ + i, 2 + 3 * i, 0, 0};
        assert_int_equal(forward(HB_MODE_EXTEND, 1, &row, 0, 0), 0);
    }
}

/* random batches */

static inline void pick_requests(int32_t n, int32_t *reqs) {
    int32_t all[LIVE_REQS] = {3, 4, 5, 6, 7};
    for (int32_t i = 0; i < n; i++) {
        const int32_t j = i + pick(LIVE_REQS - i);
        reqs[i] = all[j];
        all[j] = all[i];
    }
}

/* DECODE of n live rows of bs, some tracked; its inputs go to io. */
static inline void make_decode(int32_t bs, int32_t n, struct io io[LAYERS]) {
    int32_t reqs[LIVE_REQS];
    struct row rows[LIVE_REQS];
    pick_requests(n, reqs);
    for (int32_t r = 0; r < n; r++) {
        rows[r] = (struct row){reqs[r], 0, pick(2) ? track_ids[r] : 0, 0};
    }
    make_batch(HB_MODE_DECODE, n, rows, bs - n, bs - n);
    for (int32_t r = 0; r < bs; r++) {
        w.f.track_indices[r] = w.f.mask[r] ? w.f.track_indices[r] : pick(3) - 1;
    }
    for (int32_t l = 0; l < LAYERS; l++) {
        make_io(&io[l], l, n, rows);
    }
}

/* Random trees: the parent of node t is any node before it. */
static inline void make_links(int32_t bs, int32_t draft) {
    memset(w.f.next, 0xff, sizeof(w.f.next));
    memset(w.f.sibling, 0xff, sizeof(w.f.sibling));
    for (int32_t r = 0; r < bs; r++) {
        for (int32_t t = 1; t < draft; t++) {
            int32_t *link = &w.f.next[r * draft + pick(t)];
            while (*link >= 0) {
                link = &w.f.sibling[r * draft + *link];
            }
            *link = t;
        }
    }
    w.f.batch.retrieve_next_token = (struct hb_i32s){w.f.next, (int64_t)bs * draft};
    w.f.batch.retrieve_next_sibling = (struct hb_i32s){w.f.sibling, (int64_t)bs * draft};
}

static inline void make_verify(int32_t bs, int32_t n, int32_t draft, int32_t has_links,
                               struct io io[LAYERS]) {
    int32_t reqs[LIVE_REQS], seq[LIVE_REQS];
    pick_requests(n, reqs);
    for (int32_t r = 0; r < n; r++) {
        seq[r] = w.pos[reqs[r]];
    }
    memset(w.f.mask, 0, sizeof(w.f.mask));
    fixture_verify(&w.f, draft, n, seq, NULL, bs - n);
    for (int32_t t = 0; t < bs * draft; t++) {
        const int32_t r = t / draft;
        tokens[t] = (struct token){-1, 0, 0};
        if (r < n) {
            const int32_t pos = seq[r] + t % draft;
            w.f.req[r] = reqs[r];
            w.f.loc[t] = w.f.table[reqs[r] * CONTEXT + pos];
            tokens[t] = (struct token){reqs[r], pos, 1};
        }
    }
    if (has_links) {
        make_links(bs, draft);
    }
    for (int32_t l = 0; l < LAYERS; l++) {
        fill_io(&io[l], l);
    }
}

static inline void make_idle(int32_t bs, struct io io[LAYERS]) {
    make_capture(HB_MODE_IDLE, bs, 1, 0);
    for (int32_t l = 0; l < LAYERS; l++) {
        make_io(&io[l], l, 0, NULL);
    }
}

/* n live rows for the graph of batch size bs; how padding is told: 0 its number, 1 seq_lens_cpu, 2
 * both. */
static inline void make_step(int32_t bs, int32_t n, int32_t how, struct io io[LAYERS]) {
    const struct kept *k = &kept[bs];
    if (k->mode == HB_MODE_IDLE) {
        make_idle(bs, io);
        return;
    }
    if (k->mode == HB_MODE_DECODE) {
        make_decode(bs, n, io);
    } else {
        make_verify(bs, n, k->draft, k->has_links, io);
    }
    if (how > 0) {
        fixture_cpu_lens(&w.f);
    }
    w.f.batch.has_num_padding = how != 1;
    w.f.batch.num_padding = bs - n;
}

/* Bytes of all regions but the static ones. write: puts them back. */
static inline size_t move_state(uint8_t *bytes, int32_t write) {
    int32_t n = 0;
    size_t used = 0;
    assert_int_equal(w.a->n_regions(w.h, &n, &w.err), HB_OK);
    for (int32_t i = 0; i < n; i++) {
        struct hb_region info;
        assert_int_equal(w.a->region(w.h, i, &info, &w.err), HB_OK);
        if (info.kind == HB_REGION_STATIC) {
            continue;
        }
        assert_true(used + info.bytes <= sizeof(dump_a));
        assert_int_equal(write ? w.a->region_write(w.h, i, 0, bytes + used, info.bytes, &w.err)
                               : w.a->region_read(w.h, i, 0, bytes + used, info.bytes, &w.err),
                         HB_OK);
        used += info.bytes;
    }
    return used;
}

static inline void read_output(const struct io *io, uint8_t *out) {
    assert_int_equal(w.a->buf_read(w.h, io->io.out, out, io->io.out.bytes, &w.err), HB_OK);
}

static inline void copy_inputs(const struct io *from, const struct io *to) {
    static uint8_t bytes[TOKENS * 64 * 4];
    for (int32_t k = 0; k < 3; k++) {
        const uint64_t n = from->io.in[k].bytes;
        assert_true(n == to->io.in[k].bytes);
        assert_int_equal(w.a->buf_read(w.h, from->io.in[k], bytes, n, &w.err), HB_OK);
        assert_int_equal(w.a->buf_write(w.h, to->io.in[k], bytes, n, &w.err), HB_OK);
    }
}

/* A commit of any steps, some tracked. */
static inline struct plan random_plan(int32_t n, int32_t draft) {
    struct plan p = plan_of(n, 0, 0, 0);
    for (int32_t r = 0; r < n; r++) {
        p.step[r] = pick(draft + 1) - 1;
        p.track_step[r] = pick(draft + 1) - 1;
        p.track[r] = track_ids[r];
    }
    return p;
}

static inline void run_eager(struct io io[LAYERS]) {
    if (w.a->begin(w.h, &w.f.batch, &w.err) != HB_OK) {
        fail_msg("begin: %s", w.err.text);
    }
    for (int32_t l = 0; l < LAYERS; l++) {
        assert_int_equal(w.a->layer(w.h, l, &io[l].io, &w.err), HB_OK);
    }
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
}

/* what a refresh must write */

static inline int32_t read_word(const char *name, int64_t i) {
    struct hb_region info = {0};
    int32_t index = 0, word = 0;
    region_at(name, -1, &index, &info);
    assert_int_equal(w.a->region_read(w.h, index, (uint64_t)i * 4, &word, 4, &w.err), HB_OK);
    return word;
}

static inline int32_t slot_of_id(int32_t id) {
    return w.config.n_virtual > 0 ? read_word("v2p", id) : id;
}

/* Fills every static region with poison. */
static inline void poison_static(void) {
    static uint8_t bytes[MAX_REGION];
    int32_t n = 0;
    memset(bytes, poison_byte, sizeof(bytes));
    assert_int_equal(w.a->n_regions(w.h, &n, &w.err), HB_OK);
    for (int32_t i = 0; i < n; i++) {
        struct hb_region info;
        assert_int_equal(w.a->region(w.h, i, &info, &w.err), HB_OK);
        if (info.kind == HB_REGION_STATIC) {
            assert_true(info.bytes <= sizeof(bytes));
            assert_int_equal(w.a->region_write(w.h, i, 0, bytes, info.bytes, &w.err), HB_OK);
        }
    }
}

/* Words of a static region, all poison; the wanted ones are then filled in. */
static int32_t wanted[GRAPH_ROWS * GRAPH_ROWS * GRAPH_DRAFT];

static inline int32_t count_unwanted(const char *name) {
    struct hb_region info = {0};
    int32_t index = 0, wrong = 0;
    static int32_t got[GRAPH_ROWS * GRAPH_ROWS * GRAPH_DRAFT];
    region_at(name, -1, &index, &info);
    assert_true(info.bytes <= sizeof(got) && info.kind == HB_REGION_STATIC);
    assert_int_equal(w.a->region_read(w.h, index, 0, got, info.bytes, &w.err), HB_OK);
    for (uint64_t i = 0; i < info.bytes / 4; i++) {
        wrong += got[i] != wanted[i];
    }
    memset(wanted, poison_byte, sizeof(wanted));
    return wrong;
}

/* Rows that a batch tracks, translated destinations. */
static inline int32_t count_wrong_track(int32_t bs) {
    const struct hb_batch *b = &w.f.batch;
    const int32_t is_decode = b->forward_mode == HB_MODE_DECODE;
    const int64_t last = w.config.n_virtual > 0 ? w.config.n_virtual : SLOTS;
    for (int32_t r = 0; r < bs && is_decode && b->mamba_track_indices.data != NULL; r++) {
        const int64_t id = b->mamba_track_indices.data[r];
        wanted[r] = id < 0 || id > last ? -1 : slot_of_id((int32_t)id);
    }
    int32_t wrong = count_unwanted("graph_track_indices");
    for (int32_t r = 0; r < bs && is_decode; r++) {
        wanted[r] = b->mamba_track_mask.data != NULL && b->mamba_track_mask.data[r] != 0;
    }
    return wrong + count_unwanted("graph_track_mask");
}

/* Links of live rows, and the parents that they make. */
static inline int32_t count_wrong_links(int32_t bs, int32_t n) {
    const struct hb_batch *b = &w.f.batch;
    const int32_t draft = b->draft_token_num;
    const struct hb_i32s *links[2] = {&b->retrieve_next_token, &b->retrieve_next_sibling};
    static const char *const names[2] = {"graph_next_token", "graph_next_sibling"};
    const int32_t first = (bs - 1) * GRAPH_ROWS * GRAPH_DRAFT;
    int32_t wrong = 0;
    for (int32_t i = 0; i < 2; i++) {
        for (int32_t t = 0; links[i]->data != NULL && t < n * draft; t++) {
            wanted[first + t / draft * GRAPH_DRAFT + t % draft] = links[i]->data[t];
        }
        wrong += count_unwanted(names[i]);
    }
    for (int32_t r = 0; links[0]->data != NULL && r < bs; r++) {
        int32_t *parent = &wanted[first + r * GRAPH_DRAFT];
        memset(parent, 0, (size_t)draft * sizeof(int32_t));
        for (int32_t t = 0; t < draft && r < n; t++) {
            for (int32_t c = links[0]->data[r * draft + t]; c > 0;
                 c = links[1]->data[r * draft + c]) {
                parent[c] = t;
            }
        }
    }
    return wrong + count_unwanted("graph_parents");
}

/* The cursor of a row's slot by its region, 0 on padding. */
static inline void want_cursors(const char *name, int32_t bs, int32_t n) {
    for (int32_t r = 0; r < bs; r++) {
        wanted[(bs - 1) * GRAPH_ROWS + r] =
            r < n ? read_word(name, slot_of_id(w.slot[w.f.req[r]])) : 0;
    }
}

/* A ring that commits own: the words that a replay of a verify refreshes. */
static inline int32_t count_wrong_commit_ring(int32_t bs, int32_t n) {
    static const char *const names[3][2] = {{"write_pos", "graph_write_pos"},
                                            {"ring_flush", "graph_force_flush"},
                                            {"ring_base", "graph_ring_base"}};
    int32_t wrong = 0;
    for (int32_t i = 0; i < 3; i++) {
        if (w.f.batch.forward_mode == HB_MODE_TARGET_VERIFY) {
            want_cursors(names[i][0], bs, n);
        }
        wrong += count_unwanted(names[i][1]);
    }
    return wrong;
}

static inline int32_t count_wrong_ring(int32_t bs, int32_t n) {
    const struct hb_batch *b = &w.f.batch;
    const int32_t interval = w.config.track_interval > 0 ? w.config.track_interval : C;
    const int32_t is_decode = b->forward_mode == HB_MODE_DECODE;
    if (w.config.ring_length == 0) {
        return 0;
    }
    if (w.config.ring_owner == HB_RING_COMMIT) {
        return count_wrong_commit_ring(bs, n);
    }
    if (is_decode) {
        want_cursors("write_pos", bs, n);
    }
    int32_t wrong = count_unwanted("graph_write_pos");
    for (int32_t r = 0; r < bs && is_decode; r++) {
        const int32_t is_due =
            b->seq_lens_cpu.data != NULL && b->seq_lens_cpu.data[r] % interval == 0;
        wanted[(bs - 1) * GRAPH_ROWS + r] = r < n && (w.f.mask[r] != 0 || is_due);
    }
    return wrong + count_unwanted("graph_force_flush");
}

/* After poison_static and a replay of w.f.batch: words that backend/README.md "Graphs" has
 * otherwise, in all regions that it names. */
static inline int32_t count_wrong_static(int32_t bs, int32_t n) {
    const int32_t mode = w.f.batch.forward_mode;
    const int32_t draft = mode == HB_MODE_TARGET_VERIFY ? w.f.batch.draft_token_num : 1;
    const int32_t live = mode == HB_MODE_IDLE ? 0 : n;
    memset(wanted, poison_byte, sizeof(wanted));
    for (int32_t r = 0; r < bs; r++) {
        wanted[(bs - 1) * GRAPH_ROWS + r] = r < live ? slot_of_id(w.slot[w.f.req[r]]) : -1;
    }
    int32_t wrong = count_unwanted("graph_state_indices");
    for (int32_t r = 0; r <= bs; r++) {
        wanted[(bs - 1) * (GRAPH_ROWS + 1) + r] = draft * (r < live ? r : live);
    }
    wrong += count_unwanted("graph_query_start_loc");
    return wrong + count_wrong_track(bs) + count_wrong_links(bs, live) + count_wrong_ring(bs, live);
}

/* One random step of the graph of batch size bs, eagerly and, from the same state, as a replay;
 * with a commit after a verify. Returns output and state bytes that differ, and wrong static words.
 */
static inline int32_t count_differences(int32_t bs, int32_t n, int32_t how) {
    static uint8_t before[sizeof(dump_a)], eager_out[LAYERS][TOKENS * 64], out[TOKENS * 64];
    const int32_t is_verify = kept[bs].mode == HB_MODE_TARGET_VERIFY;
    struct io io[LAYERS];
    int32_t wrong = 0;
    make_step(bs, n, how, io);
    const struct plan plan = random_plan(n, kept[bs].draft);
    const size_t size = move_state(before, 0);
    run_eager(io);
    if (is_verify) {
        commit_ok(plan, 1);
    }
    (void)move_state(dump_a, 0);
    (void)move_state(before, 1);
    for (int32_t l = 0; l < LAYERS; l++) {
        read_output(&io[l], eager_out[l]);
        copy_inputs(&io[l], &kept[bs].io[l]);
        free_io(&io[l]);
    }
    poison_static();
    if (w.a->replay(w.h, &w.f.batch, &w.err) != HB_OK) {
        fail_msg("replay: %s", w.err.text);
    }
    wrong += count_wrong_static(bs, n);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    if (is_verify) {
        commit_ok(plan, 1);
    }
    (void)move_state(dump_b, 0);
    for (size_t i = 0; i < size; i++) {
        wrong += dump_a[i] != dump_b[i];
    }
    for (int32_t l = 0; l < LAYERS; l++) {
        const uint64_t bytes = kept[bs].io[l].io.out.bytes;
        assert_true(bytes <= sizeof(out));
        read_output(&kept[bs].io[l], out);
        for (uint64_t i = 0; i < bytes; i++) {
            wrong += out[i] != eager_out[l][i];
        }
    }
    for (int32_t r = 0; r < n && kept[bs].mode != HB_MODE_IDLE; r++) {
        w.pos[w.f.req[r]] += is_verify ? (plan.step[r] < 0 ? 0 : plan.step[r] + 1) : 1;
    }
    return wrong;
}

#endif
