/* SPDX-License-Identifier: Apache-2.0
 * Private to the prediction: the batch as the checks of begin, capture and replay see it, the
 * checks of single rows, of a verify and of graphs, and ids as all calls see them. */
#ifndef HB_HARNESS_EXPECT_INTERNAL_H
#define HB_HARNESS_EXPECT_INTERNAL_H

#include "harness/expect.h"

#include <stddef.h>

enum hb_expect_array_id {
    ARRAY_REQ,
    ARRAY_SEQ,
    ARRAY_SEQ_CPU,
    ARRAY_EXTEND,
    ARRAY_EXTEND_CPU,
    ARRAY_PREFIX,
    ARRAY_START,
    ARRAY_MASK,
    ARRAY_TRACK,
    ARRAY_TRACK_LEN,
    ARRAY_LOC,
    ARRAY_TOKENS,
    ARRAY_NEXT,
    ARRAY_SIBLING,
    ARRAY_LAYOUT,
    N_ARRAYS
};
enum hb_expect_count_id { COUNT_BATCH, COUNT_EXTEND, COUNT_TOKENS, COUNT_LAYOUT, N_COUNTS };

/* The calls that a check belongs to. */
enum hb_expect_call {
    BY_BEGIN = 1,
    BY_CAPTURE = 2,
    BY_REPLAY = 4,
    BY_GRAPH = BY_CAPTURE | BY_REPLAY,
    BY_RUN = BY_BEGIN | BY_REPLAY, /* rows are live */
    BY_ANY = BY_BEGIN | BY_GRAPH
};

/* When a check applies: any of the families, and all of the conditions. */
enum hb_expect_when {
    ON_EXTEND = 1,
    ON_DECODE = 2,
    ON_IDLE = 4,
    ON_VERIFY = 8,
    ON_DRAFT = 16,                     /* DRAFT_EXTEND_V2 */
    ON_TRACKS = ON_EXTEND | ON_DECODE, /* rows may be tracked */
    ON_ROWS = ON_TRACKS | ON_VERIFY,
    ON_GRAPHS = ON_DECODE | ON_VERIFY, /* modes that a graph runs with live rows */
    ON_ALL = ON_ROWS | ON_IDLE,
    ON_ANY = ON_ALL | ON_DRAFT,
    IF_ATTENTION = 32,
    IF_MASKED = 64,
    IF_MIXED = 128,
    IF_UNIFORM = 256,
    IF_RAGGED = 512,
    IF_LINKED = 1024,
    CONDITIONS = IF_ATTENTION | IF_MASKED | IF_MIXED | IF_UNIFORM | IF_RAGGED | IF_LINKED
};

struct hb_expect_array {
    const void *data;
    int64_t len;
};

/* What a batch is judged against. */
struct hb_expect_context {
    const struct hb_config *config;
    const struct hb_caps *caps;
    const struct hb_slot_model *slots;
    const struct hb_graph_phase *graphs; /* null in begin */
    uint32_t call;                       /* enum hb_expect_call */
};

/* The batch as the checks see it. In a graph the ragged layout is only refused, never read: its
 * array is absent here. */
struct hb_expect_view {
    const struct hb_config *config;
    const struct hb_slot_model *slots;
    const struct hb_graph_phase *graphs;
    const struct hb_batch *batch;
    uint32_t holds; /* bits of enum hb_expect_when */
    struct hb_expect_array array[N_ARRAYS];
    int64_t count[N_COUNTS];
    int64_t real_rows;    /* R */
    int64_t first_decode; /* first row that is a one-token decode */
    int64_t n_extended;   /* sum of extend_seq_lens */
    int64_t real_tokens;
    int64_t first_masked; /* -1: none */
};

/* What a broken rule reports. */
struct hb_expect_finding {
    int64_t row, value, limit;
};

struct hb_expect_check {
    int32_t rule;
    uint32_t calls; /* enum hb_expect_call */
    uint32_t when;
    int (*broken)(const struct hb_expect_view *v, const struct hb_expect_check *c,
                  struct hb_expect_finding *f);
    int32_t array; /* enum hb_expect_array_id, where the check is about one array */
    int32_t count; /* enum hb_expect_count_id */
};

/* NI: ids are 1..NI. */
static inline int32_t id_count(const struct hb_slot_model *slots) {
    return slots->n_virtual > 0 ? slots->n_virtual : slots->n_slots;
}

/* Kind of the slot of an id in 0..NI, HB_SLOT_FREE for an id that has none. */
static inline int32_t kind_of(const struct hb_slot_model *slots, int64_t id) {
    int32_t slot = hb_slot_model_slot(slots, (int32_t)id);
    return slot < 0 ? HB_SLOT_FREE : slots->kind[slot];
}

/* Records in the replay ring of an id in 0..NI that is not free; slot 0 has none. */
static inline int32_t cursor_of(const struct hb_slot_model *slots, int64_t id) {
    return id == 0 ? 0 : slots->write_pos[hb_slot_model_slot(slots, (int32_t)id)];
}

static inline int report(struct hb_expect_finding *f, int64_t row, int64_t value, int64_t limit) {
    f->row = row;
    f->value = value;
    f->limit = limit;
    return 1;
}

static inline int64_t at32(const struct hb_expect_view *v, int32_t array, int64_t i) {
    return ((const int32_t *)v->array[array].data)[i];
}

static inline int64_t at64(const struct hb_expect_view *v, int32_t array, int64_t i) {
    return ((const int64_t *)v->array[array].data)[i];
}

/* The row's mask bit; only after TRACK_MASK_LENGTH has passed. */
static inline int is_masked(const struct hb_expect_view *v, int64_t row) {
    const uint8_t *mask = v->array[ARRAY_MASK].data;
    return mask != NULL && mask[row] != 0;
}

/* Draft nodes of a row of a verify; only after RAGGED_LENGTH has passed. */
static inline int64_t nodes_of(const struct hb_expect_view *v, int64_t row) {
    return v->array[ARRAY_LAYOUT].data == NULL
               ? v->batch->draft_token_num
               : at32(v, ARRAY_LAYOUT, row + 1) - at32(v, ARRAY_LAYOUT, row);
}

/* Head of one check. */
#define HB_EXPECT_CHECK(name)                                                                      \
    int hb_expect_##name(const struct hb_expect_view *v, const struct hb_expect_check *c,          \
                         struct hb_expect_finding *f)

/* RANGE, FREED, DUPLICATE and ALIAS checks (expect_rows.c): 1 and *f filled when the rule is
 * broken. */
#define HB_EXPECT_ROW_CHECKS(X)                                                                    \
    X(original_outside)                                                                            \
    X(req_outside)                                                                                 \
    X(padding_nonzero)                                                                             \
    X(slot_outside) X(decode_seq_len_low) X(extend_value_low) X(prefix_sum_differs)                \
        X(mask_on_padding) X(mask_on_decode) X(track_slot_outside) X(track_len_outside)            \
            X(cache_loc_outside) X(context_exceeded) X(new_token_differs) X(prefix_token_outside)  \
                X(live_slot_freed) X(track_slot_freed) X(live_slot_shared) X(track_slot_shared)    \
                    X(cache_loc_shared) X(live_slot_is_checkpoint) X(track_slot_is_live_row)       \
                        X(track_slot_wrong_kind) X(cpu_len_differs) X(ring_pending)

/* All checks that only a verify has (expect_verify.c). */
#define HB_EXPECT_VERIFY_CHECKS(X)                                                                 \
    X(one_link_array)                                                                              \
    X(verify_tokens_differ)                                                                        \
    X(links_length_differs)                                                                        \
    X(layout_decreases) X(layout_total_differs) X(draft_over_capacity) X(rows_over_caches)         \
        X(draft_low) X(row_nodes_outside) X(link_outside) X(link_backwards) X(link_no_tree)        \
            X(mask_in_verify) X(links_in_strip) X(links_in_ring)

/* All checks that only graphs have (expect_graph.c). */
#define HB_EXPECT_GRAPH_CHECKS(X)                                                                  \
    X(graph_absent)                                                                                \
    X(captured_before)                                                                             \
    X(not_captured)                                                                                \
    X(captured_mode_differs) X(captured_links_differ) X(track_short) X(graph_tokens_differ)        \
        X(graph_draft_differs) X(graph_rows_outside) X(padding_outside) X(padding_inside)          \
            X(layout_in_graph)

#define HB_EXPECT_DECLARE(name) HB_EXPECT_CHECK(name);
HB_EXPECT_ROW_CHECKS(HB_EXPECT_DECLARE)
HB_EXPECT_VERIFY_CHECKS(HB_EXPECT_DECLARE)
HB_EXPECT_GRAPH_CHECKS(HB_EXPECT_DECLARE)
#undef HB_EXPECT_DECLARE

/* Judges a batch by the checks of the context's call; bad_mode is the rule of modes that the call
 * does not take, `modes` the bits of those it takes. */
void hb_expect_judge(const struct hb_expect_context *context, const struct hb_batch *batch,
                     int32_t bad_mode, uint32_t modes, struct hb_error *e);

#endif
