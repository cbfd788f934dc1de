/* SPDX-License-Identifier: Apache-2.0
 * Every break of a batch and of a configuration, and the memory of what a batch was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "harness/tests/batch_rig.h"

/* --- breaks ----------------------------------------------------------------------------------- */

/* A batch in which every array is present: two rows, lengths 4 and 2, both tracked. */
static void full_batch(struct rig *g) {
    struct hb_case_step *s = rig_start(g, HB_MODE_EXTEND);
    g->c.config.chunk_size = 4;
    hand_track(hand_row(s, 3, 4), 0, 0);
    hand_track(hand_row(s, 1, 6), 0, 0);
    s->optional = 15;
    RIG_DERIVE(g, 0, 16);
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
    {HB_FIELD_REQ_POOL_INDICES, 32},   {HB_FIELD_SEQ_LENS, 32},
    {HB_FIELD_EXTEND_SEQ_LENS, 32},    {HB_FIELD_EXTEND_SEQ_LENS_CPU, 32},
    {HB_FIELD_EXTEND_PREFIX_LENS, 32}, {HB_FIELD_EXTEND_START_LOC, 32},
    {HB_FIELD_TRACK_MASK, 8},          {HB_FIELD_TRACK_INDICES, 64},
    {HB_FIELD_TRACK_SEQLENS, 64},      {HB_FIELD_OUT_CACHE_LOC, 32},
    {HB_FIELD_REQ_TO_TOKEN, 32},
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
        int64_t n = 0;
        int64_t len = 0;
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
        FIELD(N_LAYERS, 0, n_layers),       FIELD(HEADS, 0, n_heads),
        FIELD(GROUPS, 0, n_groups),         FIELD(CONV_WIDTH, 0, conv_width),
        FIELD(CHUNK_SIZE, 0, chunk_size),   FIELD(PAGE_SIZE, 0, page_size),
        FIELD(KV_HEADS, 0, n_kv_heads),     FIELD(VARIANT, 0, conv_act),
        FIELD(VARIANT, 1, gate_norm),       FIELD(VARIANT, 2, dt_clamp_prefill),
        FIELD(VARIANT, 3, dt_clamp_decode), FIELD(VARIANT, 4, kernel_form),
        FIELD(VARIANT, 5, thread_order),    FIELD(VARIANT, 6, block_order),
        FIELD(VARIANT, 7, layer_kind[0]),   FIELD(VARIANT, 8, window_layout),
        FIELD(VARIANT, 9, track_by_layer),  FIELD(VARIANT, 22, ring_owner),
        FIELD(VARIANT, 27, kernel_form),
        FIELD(VARIANT, 10, head_map),       FIELD(VARIANT, 11, state_layout),
        FIELD(VARIANT, 12, l2norm),         FIELD(VARIANT, 13, beta_form),
        FIELD(VARIANT, 14, gate_form),      FIELD(VARIANT, 15, out_gate),
        FIELD(VARIANT, 16, slope_kind),     FIELD(VARIANT, 17, layer_factor),
        FIELD(VARIANT, 18, qkv_act),        FIELD(VARIANT, 19, conv_state_len),
        FIELD(VARIANT, 20, window_rule),    FIELD(VARIANT, 21, pad_policy),
        FIELD(ATTENTION, 0, attn_window),
        FIELD(DTYPE, 0, act_dtype),         FIELD(DTYPE, 1, state_dtype),
        FIELD(STATE_SIZE, 0, state_size),   FIELD(SPEC_ROWS, 0, spec_rows),
        FIELD(RING, 0, ring_length),        FIELD(TRACK_INTERVAL, 0, track_interval),
        FIELD(VIRTUAL, 0, n_virtual),       FIELD(GRAPH, 0, graph_rows),
        FIELD(GRAPH, 1, graph_draft),       FIELD(POOL_PAD, 0, pool_pad),
        FIELD(SCORING, 0, multi_item_scoring), FIELD(ROUNDING, 0, stochastic_rounding),
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        struct rig g;
        (void)rig_start(&g, HB_MODE_EXTEND);
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
    (void)rig_start(&g, HB_MODE_EXTEND);
    hb_case_backend_config(&g.c, &g.config);
    hand_break(&g.c, HB_FIELD_CFG_DT_LO, 0, HB_BREAK_SET, 3);
    g.c.brk[0].step = -1;
    hb_materialize_config_breaks(&g.c, &g.config);
    assert_true(g.config.dt_lo == 3.0f);
    hand_break(&g.c, HB_FIELD_CFG_GATE_BOUND, 0, HB_BREAK_SET, 2);
    hand_break(&g.c, HB_FIELD_CFG_ATTENTION, 1, HB_BREAK_SET, -1);
    g.c.brk[1].step = g.c.brk[2].step = -1;
    hb_materialize_config_breaks(&g.c, &g.config);
    assert_true(g.config.gate_bound == 2.0f && g.config.attn_softcap == -1.0f);
}

/* --- memory of a batch ------------------------------------------------------------------------ */

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
#define BLOCK(member)                                                                              \
    {g.batch.b.member.data, (size_t)g.batch.b.member.len * sizeof *g.batch.b.member.data}
        BLOCK(req_pool_indices),    BLOCK(seq_lens),
        BLOCK(extend_seq_lens),     BLOCK(extend_seq_lens_cpu),
        BLOCK(extend_prefix_lens),  BLOCK(extend_start_loc),
        BLOCK(mamba_track_mask),    BLOCK(mamba_track_indices),
        BLOCK(mamba_track_seqlens), BLOCK(out_cache_loc),
        BLOCK(req_to_token),
    };
    for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++) {
        unsigned char *data = (unsigned char *)blocks[k].data;
        const size_t places[] = {0, blocks[k].bytes / 2, blocks[k].bytes - 1};
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_breaks_every_array),
        cmocka_unit_test(scalars_are_set_and_added_to_with_wrapping),
        cmocka_unit_test(breaks_apply_to_their_step_only),
        cmocka_unit_test(configuration_breaks_reach_every_field),
        cmocka_unit_test(every_written_byte_of_a_batch_is_seen),
        cmocka_unit_test(an_absent_or_empty_array_is_remembered_as_such),
    };
    return cmocka_run_group_tests_name("materialize_breaks", tests, NULL, NULL);
}
