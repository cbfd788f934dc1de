/* SPDX-License-Identifier: Apache-2.0
 * From case step to batch: the arrays of each mode, padding, the encoding of tracking points (tracking.md section 3), every
 * break, KV slots, and the memory of what a batch was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "harness/materialize.h"
#include "harness/tests/hand_case.h"

static const int32_t prefix_slots[] = {40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55};

struct rig {
    struct hb_case c;
    struct hb_config config;
    struct hb_kv_alloc kv;
    struct hb_plan plan;
    struct hb_owned_batch batch;
};

/* Rows with the given prefixes; tracked rows go to slots 11, 12, ... */
static void derive(struct rig *g, const int64_t *prefix) {
    struct hb_case_step *s = &g->c.step[g->c.n_steps - 1];
    hb_case_backend_config(&g->c, &g->config);
    g->config.max_context = 128;
    g->config.n_kv = 400;
    hb_kv_alloc_init(&g->kv, g->config.n_kv, 1);
    for (int32_t r = 0; r < s->n_rows; r++) {
        g->plan.row[r] = (struct hb_row_plan){.request = s->row[r].request,
                                              .slot = r + 1,
                                              .prefix = prefix[r],
                                              .track_dst = s->row[r].track ? 11 + r : 0,
                                              .prefix_loc = prefix[r] <= 16 ? prefix_slots : NULL};
    }
    assert_int_equal(hb_materialize_batch(&g->c, s, &g->config, &g->kv, &g->plan, &g->batch), 0);
}

static struct hb_case_step *start(struct rig *g, int32_t mode) {
    memset(g, 0, sizeof *g);
    hb_case_init(&g->c);
    return hand_forward(&g->c, mode);
}

#define ASSERT_ARRAY(array, ...)                                                                   \
    do {                                                                                           \
        const int64_t expected[] = {__VA_ARGS__};                                                  \
        const int64_t n = (int64_t)(sizeof expected / sizeof *expected);                           \
        assert_int_equal((array).len, n);                                                          \
        for (int64_t at = 0; at < n; at++) {                                                       \
            assert_int_equal((array).data[at], expected[at]);                                      \
        }                                                                                          \
    } while (0)

static int64_t req(const struct rig *g, int32_t request) {
    return hb_case_req_index(&g->c, request);
}

/* --- modes -------------------------------------------------------------------------------------------------------- */

static void an_extend_batch_has_its_arrays(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = start(&g, HB_MODE_EXTEND);
    hand_row(s, 3, 4);
    hand_row(s, 1, 2);
    derive(&g, (const int64_t[]){0, 16});
    const struct hb_batch *b = &g.batch.b;
    assert_int_equal(b->struct_size, sizeof *b);
    assert_int_equal(b->forward_mode, HB_MODE_EXTEND);
    assert_true(b->batch_size == 2 && b->n_extend == 2 && b->n_tokens == 6 && !b->is_dummy);
    assert_true(!b->has_original_batch_size && b->has_extend_num_tokens && b->extend_num_tokens == 6);
    ASSERT_ARRAY(b->req_pool_indices, req(&g, 3), req(&g, 1));
    ASSERT_ARRAY(b->seq_lens, 4, 18);
    ASSERT_ARRAY(b->extend_seq_lens, 4, 2);
    ASSERT_ARRAY(b->extend_prefix_lens, 0, 16);
    assert_null(b->extend_start_loc.data);
    assert_null(b->extend_seq_lens_cpu.data);
    assert_null(b->mamba_track_mask.data);
    assert_int_equal(b->out_cache_loc.len, 6);
    assert_true(b->req_to_token_rows == g.config.req_pool_size && b->req_to_token_cols == 128);
    assert_int_equal(b->req_to_token.len, (int64_t)g.config.req_pool_size * 128);
    const int32_t *line = b->req_to_token.data + req(&g, 1) * 128;
    assert_memory_equal(line, prefix_slots, sizeof prefix_slots);
    assert_true(line[16] == b->out_cache_loc.data[4] && line[17] == b->out_cache_loc.data[5]);
    assert_int_equal(line[18], 0);
    hb_batch_destroy(&g.batch);
}

static void optional_fields_are_there_when_asked_for(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = start(&g, HB_MODE_EXTEND);
    hand_row(s, 0, 4);
    hand_row(s, 1, 2);
    hand_row(s, 2, 7);
    s->optional = 15;
    derive(&g, (const int64_t[]){0, 0, 0});
    const struct hb_batch *b = &g.batch.b;
    ASSERT_ARRAY(b->extend_start_loc, 0, 4, 6);
    ASSERT_ARRAY(b->extend_seq_lens_cpu, 4, 2, 7);
    assert_true(b->has_original_batch_size && b->original_batch_size == 3);
    ASSERT_ARRAY(b->mamba_track_mask, 0, 0, 0);
    assert_null(b->mamba_track_indices.data);
    hb_batch_destroy(&g.batch);
}

static void a_decode_batch_has_no_extend_arrays(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = start(&g, HB_MODE_DECODE);
    hand_row(s, 2, 9);
    hand_row(s, 0, 9);
    derive(&g, (const int64_t[]){7, 3});
    const struct hb_batch *b = &g.batch.b;
    assert_true(b->batch_size == 2 && b->n_extend == 0 && b->n_tokens == 2);
    assert_true(!b->has_extend_num_tokens && !b->extend_seq_lens.data && !b->extend_prefix_lens.data);
    ASSERT_ARRAY(b->seq_lens, 8, 4);
    assert_true(g.plan.row[0].is_decode && g.plan.row[1].length == 1 && g.plan.row[1].first == 1);
    hb_batch_destroy(&g.batch);
}

/* forward-batch.md: MIXED with decode rows as extend rows of length 1 (M1), or as native decode rows at the end (M2). */
static void both_shapes_of_mixed(void **state) {
    (void)state;
    for (int32_t native = 0; native < 2; native++) {
        struct rig g;
        struct hb_case_step *s = start(&g, HB_MODE_MIXED);
        hand_row(s, 0, 10);
        hand_row(s, 1, 1);
        hand_row(s, 2, 1);
        s->n_decode = native ? 2 : 0;
        derive(&g, (const int64_t[]){0, 5, 9});
        const struct hb_batch *b = &g.batch.b;
        assert_true(b->batch_size == 3 && b->n_tokens == 12 && g.plan.n_real == 12);
        ASSERT_ARRAY(b->seq_lens, 10, 6, 10);
        assert_true(b->has_extend_num_tokens);
        if (native) {
            assert_int_equal(b->n_extend, 1);
            ASSERT_ARRAY(b->extend_seq_lens, 10);
            ASSERT_ARRAY(b->extend_prefix_lens, 0);
            assert_int_equal(b->extend_num_tokens, 10);
        } else {
            assert_int_equal(b->n_extend, 3);
            ASSERT_ARRAY(b->extend_seq_lens, 10, 1, 1);
            ASSERT_ARRAY(b->extend_prefix_lens, 0, 5, 9);
            assert_int_equal(b->extend_num_tokens, 12);
        }
        assert_int_equal(g.plan.row[2].is_decode, native);
        assert_int_equal(g.plan.row[2].first, 11);
        hb_batch_destroy(&g.batch);
    }
}

static void padding_rows_and_tokens_follow_the_live_ones(void **state) {
    (void)state;
    static const int32_t modes[] = {HB_MODE_EXTEND, HB_MODE_DECODE};
    for (int k = 0; k < 2; k++) {
        struct rig g;
        struct hb_case_step *s = start(&g, modes[k]);
        hand_row(s, 4, 1);
        s->pad_rows = 2;
        s->pad_tokens = 3;
        derive(&g, (const int64_t[]){6});
        const struct hb_batch *b = &g.batch.b;
        assert_true(b->batch_size == 3 && b->has_original_batch_size && b->original_batch_size == 1);
        ASSERT_ARRAY(b->req_pool_indices, req(&g, 4), 0, 0);
        ASSERT_ARRAY(b->seq_lens, 7, 1, 1);
        /* a padding row of a decode batch has a token of its own */
        assert_int_equal(b->n_tokens, k ? 1 + 3 + 2 : 1 + 3);
        assert_int_equal(b->out_cache_loc.len, b->n_tokens);
        assert_true(b->out_cache_loc.data[0] > 0 && b->out_cache_loc.data[1] == 0);
        hb_batch_destroy(&g.batch);
    }
}

static void a_model_without_attention_has_no_cache_arrays(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = start(&g, HB_MODE_EXTEND);
    g.c.config.attn_mask = 0;
    hand_row(s, 0, 4);
    derive(&g, (const int64_t[]){0});
    assert_null(g.batch.b.out_cache_loc.data);
    assert_null(g.batch.b.req_to_token.data);
    assert_int_equal(g.batch.b.req_to_token_cols, 0);
    hb_batch_destroy(&g.batch);
}

/* --- tracking ------------------------------------------------------------------------------------------------------- */

/* The worked examples of tracking.md section 4: C = 16. */
static void tracking_points_are_encoded_as_the_scheduler_does(void **state) {
    (void)state;
    static const struct {
        int32_t length, point, page_chunks;
        int64_t prefix, want_after, want_len;
    } rows[] = {
        {40, 0, 0, 0, 32, 40},  /* last aligned point: the end of the row is passed */
        {30, 0, 0, 16, 16, 46}, /* N = 32 */
        {64, 0, 0, 0, 64, 64},  /* aligned end: final state */
        {16, 0, 0, 0, 16, 16},
        {40, 1, 0, 0, 16, 17},  /* branching point N = 16: N + 1 */
        {40, 2, 0, 0, 32, 33},
        {64, 4, 0, 0, 64, 64},  /* the branching point is the end */
        {64, 3, 0, 5, 48, 54},
        {40, 9, 0, 0, 32, 33},  /* clamped to the last aligned point */
        {100, 0, 2, 0, 96, 100}, /* page_size 32: CC = 32 */
        {100, 1, 2, 7, 32, 40},
        {15, 0, 0, 3, 0, 18},   /* shorter than a chunk: nothing to store, begin must refuse it */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig g;
        struct hb_case_step *s = start(&g, HB_MODE_EXTEND);
        g.c.config.chunk_size = 16;
        g.c.config.page_chunks = rows[i].page_chunks;
        hand_row(s, 0, 3);
        hand_track(hand_row(s, 1, rows[i].length), 0, rows[i].point);
        s->pad_rows = 1;
        derive(&g, (const int64_t[]){0, rows[i].prefix});
        assert_int_equal(g.plan.row[1].track_after, rows[i].want_after);
        ASSERT_ARRAY(g.batch.b.mamba_track_mask, 0, 1, 0);
        ASSERT_ARRAY(g.batch.b.mamba_track_indices, -1, 12, -1);
        ASSERT_ARRAY(g.batch.b.mamba_track_seqlens, -1, rows[i].want_len, -1);
        hb_batch_destroy(&g.batch);
    }
}

static void a_tracked_decode_row_stores_the_state_after_its_token(void **state) {
    (void)state;
    struct rig g;
    struct hb_case_step *s = start(&g, HB_MODE_DECODE);
    hand_track(hand_row(s, 0, 1), 0, 0);
    derive(&g, (const int64_t[]){63});
    ASSERT_ARRAY(g.batch.b.mamba_track_mask, 1);
    ASSERT_ARRAY(g.batch.b.mamba_track_indices, 11);
    ASSERT_ARRAY(g.batch.b.mamba_track_seqlens, 64);
    assert_int_equal(g.plan.row[0].track_after, 1);
    hb_batch_destroy(&g.batch);
}

/* --- breaks --------------------------------------------------------------------------------------------------------- */

/* A batch in which every array is present: two rows, lengths 4 and 2, both tracked. */
static void full_batch(struct rig *g) {
    struct hb_case_step *s = start(g, HB_MODE_EXTEND);
    g->c.config.chunk_size = 4;
    hand_track(hand_row(s, 3, 4), 0, 0);
    hand_track(hand_row(s, 1, 6), 0, 0);
    s->optional = 15;
    derive(g, (const int64_t[]){0, 16});
}

static void apply(struct rig *g, int32_t field, int32_t row, int32_t operation, int64_t value) {
    hand_break(&g->c, field, row, operation, value);
    assert_int_equal(hb_materialize_breaks(&g->c, 0, &g->batch), 0);
    g->c.n_breaks = 0;
}

static int64_t array_at(const struct hb_batch *b, int32_t field, int64_t i, int64_t *len) {
    switch (field) {
#define CASE(id, member)                                                                           \
    case HB_FIELD_##id:                                                                            \
        *len = b->member.data ? b->member.len : -1;                                                \
        return i >= 0 && i < *len ? (int64_t)b->member.data[i] : INT64_MIN;
        CASE(REQ_POOL_INDICES, req_pool_indices)
        CASE(SEQ_LENS, seq_lens)
        CASE(EXTEND_SEQ_LENS, extend_seq_lens)
        CASE(EXTEND_SEQ_LENS_CPU, extend_seq_lens_cpu)
        CASE(EXTEND_PREFIX_LENS, extend_prefix_lens)
        CASE(EXTEND_START_LOC, extend_start_loc)
        CASE(TRACK_MASK, mamba_track_mask)
        CASE(TRACK_INDICES, mamba_track_indices)
        CASE(TRACK_SEQLENS, mamba_track_seqlens)
        CASE(OUT_CACHE_LOC, out_cache_loc)
        CASE(REQ_TO_TOKEN, req_to_token)
#undef CASE
    default:
        fail_msg("field %d is no array", field);
        return 0;
    }
}

static const struct {
    int32_t field, bits;
} arrays[] = {
    {HB_FIELD_REQ_POOL_INDICES, 32}, {HB_FIELD_SEQ_LENS, 32},           {HB_FIELD_EXTEND_SEQ_LENS, 32},
    {HB_FIELD_EXTEND_SEQ_LENS_CPU, 32}, {HB_FIELD_EXTEND_PREFIX_LENS, 32}, {HB_FIELD_EXTEND_START_LOC, 32},
    {HB_FIELD_TRACK_MASK, 8},        {HB_FIELD_TRACK_INDICES, 64},      {HB_FIELD_TRACK_SEQLENS, 64},
    {HB_FIELD_OUT_CACHE_LOC, 32},    {HB_FIELD_REQ_TO_TOKEN, 32},
};
enum { N_ARRAYS = sizeof arrays / sizeof *arrays };

static void every_operation_breaks_every_array(void **state) {
    (void)state;
    for (int k = 0; k < N_ARRAYS; k++) {
        const int32_t field = arrays[k].field;
        const int32_t bits = arrays[k].bits;
        struct rig g;
        full_batch(&g);
        const struct hb_batch *b = &g.batch.b;
        int64_t n, len;
        int64_t first = array_at(b, field, 0, &n);
        int64_t second = array_at(b, field, 1, &n);
        assert_true(n >= 2);
        apply(&g, field, 1, HB_BREAK_SET, 99);
        assert_int_equal(array_at(b, field, 1, &len), 99);
        assert_int_equal(array_at(b, field, 0, &len), first);
        apply(&g, field, 1, HB_BREAK_ADD, second - 99);
        assert_int_equal(array_at(b, field, 1, &len), second);
        /* wraps in the width of the field */
        int64_t most = bits == 8 ? UINT8_MAX : bits == 32 ? INT32_MAX : INT64_MAX;
        int64_t least = bits == 8 ? 0 : bits == 32 ? INT32_MIN : INT64_MIN;
        apply(&g, field, 0, HB_BREAK_SET, most);
        apply(&g, field, 0, HB_BREAK_ADD, 1);
        assert_int_equal(array_at(b, field, 0, &len), least);
        apply(&g, field, 0, HB_BREAK_COPY, -(int64_t)n + 1); /* the same as entry 1 */
        assert_int_equal(array_at(b, field, 0, &len), second);
        apply(&g, field, (int32_t)n + 1, HB_BREAK_SET, 55); /* rows are taken modulo the length */
        assert_int_equal(array_at(b, field, 1, &len), 55);
        apply(&g, field, 0, HB_BREAK_LENGTH, n + 3);
        assert_int_equal(array_at(b, field, n + 2, &len), 0);
        assert_int_equal(len, n + 3);
        assert_int_equal(array_at(b, field, 1, &len), 55);
        apply(&g, field, 0, HB_BREAK_LENGTH, 1);
        assert_int_equal(array_at(b, field, 0, &len), second);
        assert_int_equal(len, 1);
        apply(&g, field, 0, HB_BREAK_LENGTH, -7);
        (void)array_at(b, field, 0, &len);
        assert_int_equal(len, 0);
        apply(&g, field, 0, HB_BREAK_SET, 3); /* nothing to set */
        apply(&g, field, 0, HB_BREAK_LENGTH, INT64_MAX);
        (void)array_at(b, field, 0, &len);
        assert_int_equal(len, 4096);
        apply(&g, field, 0, HB_BREAK_ABSENT, 0);
        (void)array_at(b, field, 0, &len);
        assert_int_equal(len, -1);
        apply(&g, field, 0, HB_BREAK_COPY, 1); /* nothing to copy */
        hb_batch_destroy(&g.batch);
    }
}

static void scalars_are_set_and_added_to_with_wrapping(void **state) {
    (void)state;
    static const struct {
        int32_t field;
        size_t offset;
    } scalars[] = {
        {HB_FIELD_FORWARD_MODE, offsetof(struct hb_batch, forward_mode)},
        {HB_FIELD_BATCH_SIZE, offsetof(struct hb_batch, batch_size)},
        {HB_FIELD_ORIGINAL_BATCH_SIZE, offsetof(struct hb_batch, original_batch_size)},
        {HB_FIELD_N_TOKENS, offsetof(struct hb_batch, n_tokens)},
        {HB_FIELD_N_EXTEND, offsetof(struct hb_batch, n_extend)},
        {HB_FIELD_IS_DUMMY, offsetof(struct hb_batch, is_dummy)},
        {HB_FIELD_REQ_TO_TOKEN_ROWS, offsetof(struct hb_batch, req_to_token_rows)},
        {HB_FIELD_REQ_TO_TOKEN_COLS, offsetof(struct hb_batch, req_to_token_cols)},
    };
    struct rig g;
    full_batch(&g);
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) {
        int32_t value;
        const char *at = (const char *)&g.batch.b + scalars[i].offset;
        apply(&g, scalars[i].field, 0, HB_BREAK_SET, INT32_MAX);
        memcpy(&value, at, sizeof value);
        assert_int_equal(value, INT32_MAX);
        apply(&g, scalars[i].field, 0, HB_BREAK_ADD, 1);
        memcpy(&value, at, sizeof value);
        assert_int_equal(value, INT32_MIN);
        apply(&g, scalars[i].field, 0, HB_BREAK_SET, INT64_C(0x100000005)); /* the low 32 bits */
        memcpy(&value, at, sizeof value);
        assert_int_equal(value, 5);
    }
    apply(&g, HB_FIELD_EXTEND_NUM_TOKENS, 0, HB_BREAK_SET, INT64_MAX);
    assert_true(g.batch.b.has_extend_num_tokens && g.batch.b.extend_num_tokens == INT64_MAX);
    apply(&g, HB_FIELD_EXTEND_NUM_TOKENS, 0, HB_BREAK_ADD, 1);
    assert_int_equal(g.batch.b.extend_num_tokens, INT64_MIN);
    apply(&g, HB_FIELD_EXTEND_NUM_TOKENS, 0, HB_BREAK_ABSENT, 0);
    assert_false(g.batch.b.has_extend_num_tokens);
    apply(&g, HB_FIELD_ORIGINAL_BATCH_SIZE, 0, HB_BREAK_ABSENT, 0);
    assert_false(g.batch.b.has_original_batch_size);
    assert_false(g.batch.is_null);
    apply(&g, HB_FIELD_BATCH_POINTER, 0, HB_BREAK_ABSENT, 0);
    assert_true(g.batch.is_null);
    hb_batch_destroy(&g.batch);
}

static void breaks_apply_to_their_step_only(void **state) {
    (void)state;
    struct rig g;
    full_batch(&g);
    hand_break(&g.c, HB_FIELD_SEQ_LENS, 0, HB_BREAK_SET, 99);
    g.c.brk[0].step = 1;
    assert_int_equal(hb_materialize_breaks(&g.c, 0, &g.batch), 0);
    assert_int_equal(g.batch.b.seq_lens.data[0], 4);
    assert_int_equal(hb_materialize_breaks(&g.c, 1, &g.batch), 0);
    assert_int_equal(g.batch.b.seq_lens.data[0], 99);
    hb_batch_destroy(&g.batch);
}

static void configuration_breaks_reach_every_field(void **state) {
    (void)state;
#define FIELD(id, row, member)                                                                     \
    { HB_FIELD_CFG_##id, row, offsetof(struct hb_config, member) }
    static const struct {
        int32_t field, row;
        size_t offset;
    } fields[] = {
        FIELD(N_LAYERS, 0, n_layers),      FIELD(HEADS, 0, n_heads),
        FIELD(GROUPS, 0, n_groups),        FIELD(CONV_WIDTH, 0, conv_width),
        FIELD(CHUNK_SIZE, 0, chunk_size),  FIELD(PAGE_SIZE, 0, page_size),
        FIELD(KV_HEADS, 0, n_kv_heads),    FIELD(VARIANT, 0, conv_act),
        FIELD(VARIANT, 1, gate_norm),      FIELD(VARIANT, 2, dt_clamp_prefill),
        FIELD(VARIANT, 3, dt_clamp_decode), FIELD(VARIANT, 4, kernel_form),
        FIELD(VARIANT, 9, kernel_form),    FIELD(DTYPE, 0, act_dtype),
        FIELD(DTYPE, 1, state_dtype),
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        struct rig g;
        (void)start(&g, HB_MODE_EXTEND);
        hb_case_backend_config(&g.c, &g.config);
        struct hb_config want = g.config;
        memcpy((char *)&want + fields[i].offset, &(int32_t){77}, sizeof(int32_t));
        hand_break(&g.c, fields[i].field, fields[i].row, HB_BREAK_SET, 77);
        hb_materialize_config_breaks(&g.c, &g.config); /* at step 0: not for the configuration */
        assert_memory_not_equal(&g.config, &want, sizeof want);
        g.c.brk[0].step = -1;
        hb_materialize_config_breaks(&g.c, &g.config);
        assert_memory_equal(&g.config, &want, sizeof want);
    }
    struct rig g;
    (void)start(&g, HB_MODE_EXTEND);
    hb_case_backend_config(&g.c, &g.config);
    hand_break(&g.c, HB_FIELD_CFG_DT_LO, 0, HB_BREAK_SET, 3);
    g.c.brk[0].step = -1;
    hb_materialize_config_breaks(&g.c, &g.config);
    assert_true(g.config.dt_lo == 3.0f);
}

/* --- memory of a batch ---------------------------------------------------------------------------------------------- */

static void every_written_byte_of_a_batch_is_seen(void **state) {
    (void)state;
    struct rig g;
    full_batch(&g);
    assert_int_equal(hb_batch_remember(&g.batch), 0);
    assert_false(hb_batch_changed(&g.batch));
    unsigned char *bytes = (unsigned char *)&g.batch.b;
    for (size_t i = 0; i < sizeof g.batch.b; i++) {
        bytes[i] ^= 0x10;
        assert_true(hb_batch_changed(&g.batch));
        bytes[i] ^= 0x10;
    }
    const struct {
        const void *data;
        size_t bytes;
    } blocks[] = {
#define BLOCK(member) {g.batch.b.member.data, (size_t)g.batch.b.member.len * sizeof *g.batch.b.member.data}
        BLOCK(req_pool_indices),    BLOCK(seq_lens),            BLOCK(extend_seq_lens),
        BLOCK(extend_seq_lens_cpu), BLOCK(extend_prefix_lens),  BLOCK(extend_start_loc),
        BLOCK(mamba_track_mask),    BLOCK(mamba_track_indices), BLOCK(mamba_track_seqlens),
        BLOCK(out_cache_loc),       BLOCK(req_to_token),
    };
    for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++) {
        unsigned char *data = (unsigned char *)(uintptr_t)blocks[k].data;
        size_t places[] = {0, blocks[k].bytes / 2, blocks[k].bytes - 1};
        for (size_t i = 0; i < 3; i++) {
            data[places[i]] ^= 1;
            assert_true(hb_batch_changed(&g.batch));
            data[places[i]] ^= 1;
            assert_false(hb_batch_changed(&g.batch));
        }
    }
    hb_batch_destroy(&g.batch);
}

static void an_absent_or_empty_array_is_remembered_as_such(void **state) {
    (void)state;
    struct rig g;
    full_batch(&g);
    apply(&g, HB_FIELD_SEQ_LENS, 0, HB_BREAK_ABSENT, 0);
    apply(&g, HB_FIELD_TRACK_MASK, 0, HB_BREAK_LENGTH, 0);
    assert_int_equal(hb_batch_remember(&g.batch), 0);
    assert_false(hb_batch_changed(&g.batch));
    int32_t made_up = 0;
    g.batch.b.seq_lens.data = &made_up;
    assert_true(hb_batch_changed(&g.batch));
    g.batch.b.seq_lens.data = NULL;
    hb_batch_destroy(&g.batch);
}

/* --- KV slots ------------------------------------------------------------------------------------------------------- */

static void kv_slots_are_distinct_until_all_are_used(void **state) {
    (void)state;
    for (int32_t n_kv = 2; n_kv < 120; n_kv++) {
        for (uint32_t seed = 0; seed < 8; seed++) {
            struct hb_kv_alloc a;
            unsigned char used[128] = {0};
            int32_t steps_of_one = 0;
            int32_t last = 0;
            hb_kv_alloc_init(&a, n_kv, seed * 77777u);
            for (int32_t i = 1; i < n_kv; i++) {
                int32_t slot = hb_kv_alloc_take(&a);
                assert_true(slot >= 1 && slot < n_kv && !used[slot]);
                used[slot] = 1;
                steps_of_one += slot == last + 1;
                last = slot;
            }
            if (n_kv > 20 && (n_kv - 1) % 2 && (n_kv - 1) % 3) {
                assert_true(steps_of_one < n_kv / 2); /* scattered */
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_extend_batch_has_its_arrays),
        cmocka_unit_test(optional_fields_are_there_when_asked_for),
        cmocka_unit_test(a_decode_batch_has_no_extend_arrays),
        cmocka_unit_test(both_shapes_of_mixed),
        cmocka_unit_test(padding_rows_and_tokens_follow_the_live_ones),
        cmocka_unit_test(a_model_without_attention_has_no_cache_arrays),
        cmocka_unit_test(tracking_points_are_encoded_as_the_scheduler_does),
        cmocka_unit_test(a_tracked_decode_row_stores_the_state_after_its_token),
        cmocka_unit_test(every_operation_breaks_every_array),
        cmocka_unit_test(scalars_are_set_and_added_to_with_wrapping),
        cmocka_unit_test(breaks_apply_to_their_step_only),
        cmocka_unit_test(configuration_breaks_reach_every_field),
        cmocka_unit_test(every_written_byte_of_a_batch_is_seen),
        cmocka_unit_test(an_absent_or_empty_array_is_remembered_as_such),
        cmocka_unit_test(kv_slots_are_distinct_until_all_are_used),
    };
    return cmocka_run_group_tests_name("materialize", tests, NULL, NULL);
}
