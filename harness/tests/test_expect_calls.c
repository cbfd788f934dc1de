/* SPDX-License-Identifier: Apache-2.0
 * The prediction of construction, layers, finish and entries. */
#include "harness/tests/expect_common.h"

#include <string.h>

/* ---- create ---- */

static void create_is(const struct hb_config *c, int32_t rule, int32_t row, int64_t value,
                      int64_t limit) {
    struct hb_config ignored;
    struct hb_caps caps;
    struct hb_error e;
    fixture_config(&ignored, &caps);
    hb_expect_create(c, &caps, &e);
    check(&e, rule, row, value, limit);
}

static void create_checks_counts_and_sizes(void **state) {
    struct hb_config base;
    struct hb_config c;
    struct hb_caps caps;
    (void)state;
    fixture_config(&base, &caps);
    create_is(&base, 0, -1, 0, 0);
    c = base, c.n_layers = 0, create_is(&c, 200, -1, 0, 8);
    c = base, c.n_layers = 9, create_is(&c, 200, -1, 9, 8);
    int32_t *const fields[] = {&c.n_heads,       &c.head_dim,    &c.state_size, &c.n_groups,
                               &c.conv_width,    &c.chunk_size,  &c.page_size,  &c.norm_group,
                               &c.n_q_heads,     &c.n_kv_heads,  &c.attn_dim,   &c.n_slots,
                               &c.req_pool_size, &c.max_context, &c.n_kv,       &c.max_batch,
                               &c.max_tokens};
    for (int32_t row = 0; row < 17; row++) {
        int32_t least = row == 4 || row == 14 ? 2 : 1;
        c = base;
        *fields[row] = least - 1;
        create_is(&c, 201, row, least - 1, least);
        *fields[row] = INT32_MIN;
        create_is(&c, 201, row, INT32_MIN, least);
    }
    c = base, c.norm_group = 3, create_is(&c, 201, 7, 3, 4);
    c.n_q_heads = 0; /* row 7 comes before row 8 */
    create_is(&c, 201, 7, 3, 4);
    c = base, c.n_heads = INT32_MAX, c.head_dim = INT32_MAX, c.norm_group = 2;
    create_is(&c, 201, 7, 2, (int64_t)INT32_MAX * INT32_MAX);
}

static void create_checks_relations_variants_and_types(void **state) {
    struct hb_config base;
    struct hb_config c;
    struct hb_caps caps;
    (void)state;
    fixture_config(&base, &caps);
    c = base, c.n_groups = 4, create_is(&c, 202, -1, 2, 4);
    c = base, c.chunk_size = 12, create_is(&c, 203, -1, 12, 0);
    c = base, c.chunk_size = 2, create_is(&c, 204, -1, 3, 2);
    c = base, c.conv_width = 5, create_is(&c, 204, -1, 4, 4);
    c = base, c.page_size = 6, create_is(&c, 205, -1, 6, 4);
    c = base, c.page_size = 3, create_is(&c, 205, -1, 3, 4);
    c = base, c.page_size = 2, create_is(&c, 0, -1, 0, 0);
    c = base, c.n_kv_heads = 3, create_is(&c, 206, -1, 2, 3);
    c = base, c.conv_width = 5, c.chunk_size = 8, c.page_size = 8, create_is(&c, 207, -1, 5, 4);
    int32_t *const fields[] = {&c.conv_act,        &c.gate_norm,     &c.dt_clamp_prefill,
                               &c.dt_clamp_decode, &c.kernel_form,   &c.thread_order,
                               &c.block_order,     &c.layer_kind[1], &c.window_layout,
                               &c.track_by_layer};
    static const int32_t counts[] = {2, 5, 3, 3, 2, 3, 3, 2, 2, 2};
    for (int32_t row = 0; row < 10; row++) {
        c = base;
        *fields[row] = counts[row] - 1;
        create_is(&c, 0, -1, 0, 0);
        *fields[row] = counts[row];
        create_is(&c, 208, row, counts[row], 0);
        *fields[row] = -1;
        create_is(&c, 208, row, -1, 0);
    }
    c = base, c.layer_kind[7] = 9, create_is(&c, 0, -1, 0, 0);
    c = base, c.act_dtype = HB_INT32, create_is(&c, 209, 0, 3, 0);
    c = base, c.state_dtype = -1, create_is(&c, 209, 1, -1, 0);
    c = base, c.dt_lo = 1.5F, create_is(&c, 210, -1, 0, 0);
    c = base, c.state_size = 256, create_is(&c, 0, -1, 0, 0);
    c = base, c.state_size = 257, create_is(&c, 211, -1, 257, 256);
}

/* The fixture has dim 8, window 3, d_inner 4, N 2. */
static void create_checks_the_intermediate_caches(void **state) {
    struct hb_config base;
    struct hb_config c;
    struct hb_caps caps;
    (void)state;
    fixture_config(&base, &caps);
    base.spec_rows = 2;
    base.max_draft = 3;
    create_is(&base, 0, -1, 0, 0);
    c = base, c.n_heads = 1024, c.norm_group = 1, create_is(&c, 0, -1, 0, 0);
    c = base, c.n_heads = 1026, c.norm_group = 1, create_is(&c, 213, 0, 1026, 1024);
    c = base, c.n_q_heads = 1026, create_is(&c, 213, 1, 1026, 1024);
    c = base, c.spec_rows = 0, create_is(&c, 212, -1, 0, 3);
    c = base, c.max_draft = 0, create_is(&c, 212, -1, 2, 0);
    c = base, c.spec_rows = -1, create_is(&c, 212, -1, -1, 3);
    c = base, c.spec_rows = c.max_draft = INT32_MIN, create_is(&c, 212, -1, INT32_MIN, INT32_MIN);
    c.state_size = 257, create_is(&c, 211, -1, 257, 256); /* the lower number first */
    c = base, c.max_draft = 1 << 28, create_is(&c, 201, 20, INT64_C(24) << 29, INT32_MAX);
    c.spec_rows = 1 << 28, create_is(&c, 201, 20, INT64_C(24) << 56, INT32_MAX);
    c.spec_rows = c.max_draft = INT32_MAX, create_is(&c, 201, 20, INT64_MAX, INT32_MAX);
    c = base, c.n_heads = c.n_groups = c.norm_group = 1, c.state_size = 16, c.conv_width = 2;
    c.spec_rows = 1 << 14, c.max_draft = 1 << 12; /* conv 34 * 2^26, temporal 32 * 2^26 */
    create_is(&c, 201, 20, INT64_C(34) << 26, INT32_MAX);
    c.head_dim = 40, c.state_size = 1, c.chunk_size = c.page_size = 4;
    c.spec_rows = 5, c.max_draft = 10226113; /* 42 elements of a window */
    create_is(&c, 201, 20, INT64_C(42) * 5 * 10226113, INT32_MAX);
    c.max_draft--; /* 2147483520 elements */
    create_is(&c, 0, -1, 0, 0);
    c.head_dim = 64, c.state_size = 128; /* conv 320, temporal 8192 */
    c.spec_rows = 64, c.max_draft = 4096;
    create_is(&c, 201, 21, INT64_C(8192) * 64 * 4096, INT32_MAX);
    c.max_draft = 4095;
    create_is(&c, 0, -1, 0, 0);
}

/* Backends with every feature; the fixture has C = 4, NS = 8, at most 6 rows and 40 tokens. */
static void create_checks_graphs_ring_ids_and_interval(void **state) {
    struct hb_config base;
    struct hb_config c;
    struct hb_caps caps;
    (void)state;
    fixture_config(&base, &caps);
    c = base, c.track_interval = 4, create_is(&c, 0, -1, 0, 0);
    c.track_interval = 3, create_is(&c, 214, -1, 3, 4);
    c.track_interval = -8, create_is(&c, 214, -1, -8, 4);
    c = base, c.ring_length = 64, create_is(&c, 0, -1, 0, 0);
    c.ring_length = 65, create_is(&c, 215, -1, 65, 64);
    c.ring_length = -1, create_is(&c, 215, -1, -1, 64);
    c = base, c.n_virtual = 8, create_is(&c, 0, -1, 0, 0);
    c.n_virtual = 7, create_is(&c, 216, -1, 7, 8);
    c.n_virtual = -1, create_is(&c, 216, -1, -1, 8);
    c = base, c.graph_rows = 6, c.graph_draft = 6, create_is(&c, 0, -1, 0, 0);
    c.graph_draft = 7, create_is(&c, 217, 2, 42, 40);
    c.graph_draft = 0, create_is(&c, 217, 1, 0, 1);
    c.graph_rows = 7, create_is(&c, 217, 0, 7, 6);
    c.graph_rows = -1, create_is(&c, 217, 0, -1, 6);
    c.graph_rows = 0, c.graph_draft = -3, create_is(&c, 0, -1, 0, 0); /* not read */
    c = base, c.max_batch = 100, c.max_tokens = 1000, c.graph_draft = 1;
    c.graph_rows = 64, create_is(&c, 0, -1, 0, 0);
    c.graph_rows = 65, create_is(&c, 217, 0, 65, 64);
    c = base, c.pool_pad = 64, create_is(&c, 0, -1, 0, 0);
    c.pool_pad = 65, create_is(&c, 219, -1, 65, 64);
    c.pool_pad = -1, create_is(&c, 219, -1, -1, 64);
    c = base, c.multi_item_scoring = 2, create_is(&c, 220, -1, 2, 0);
    c = base, c.stochastic_rounding = 1, c.state_dtype = HB_BF16;
    create_is(&c, 221, -1, HB_BF16, 0);
    c.track_interval = 1, create_is(&c, 214, -1, 1, 4); /* the lower number first */
    c.n_heads = 1026, c.norm_group = 1, create_is(&c, 213, 0, 1026, 1024);
}

/* The conditions in their order, each with what breaks the later ones too. */
static void create_checks_a_ring_that_commits_own(void **state) {
    struct hb_config c;
    struct hb_caps caps;
    (void)state;
    fixture_config(&c, &caps);
    c.ring_owner = HB_RING_COMMIT, create_is(&c, 0, -1, 0, 0); /* without a ring it owns nothing */
    c.ring_length = 12, c.max_draft = c.spec_rows = 0, c.state_dtype = HB_BF16;
    create_is(&c, 230, 0, 12, 0);
    c.ring_length = 8;
    create_is(&c, 230, 2, 0, 1);
    c.max_draft = 5, c.spec_rows = 1;
    create_is(&c, 230, 1, 8, 10);
    c.ring_length = 16;
    create_is(&c, 230, 3, HB_BF16, 0);
    c.state_dtype = HB_FP32, create_is(&c, 0, -1, 0, 0);
    c.max_draft = 8, create_is(&c, 0, -1, 0, 0);
    c.max_draft = 9, create_is(&c, 230, 1, 16, 18);
    c.ring_length = 12, c.ring_owner = HB_RING_DECODE, create_is(&c, 0, -1, 0, 0);
    c.ring_owner = 2, create_is(&c, 208, 22, 2, 0);
    c.ring_owner = -1, create_is(&c, 208, 22, -1, 0);
    c.ring_owner = HB_RING_COMMIT;
    c.attn_window = -1, create_is(&c, 225, 0, -1, 0); /* the lower number first */
}

static void create_checks_features_against_what_is_declared(void **state) {
    struct hb_config c;
    struct hb_caps caps;
    struct hb_error e;
    (void)state;
    for (int32_t lacking = 0; lacking < 6; lacking++) {
        fixture_config(&c, &caps);
        int32_t *const has[] = {&caps.graphs, &caps.ring,     &caps.virtual_slots,
                                NULL,         &caps.pool_pad, &caps.track_by_layer};
        int32_t *const asked[] = {&c.graph_rows,    &c.ring_length, &c.n_virtual,
                                  &c.window_layout, &c.pool_pad,    &c.track_by_layer};
        static const int32_t value[] = {2, 5, 9, HB_WINDOWS_STRIP, 3, 1};
        c.graph_draft = 1;
        for (int32_t i = lacking; i < 6; i++) { /* with what comes after it */
            *asked[i] = value[i];
        }
        hb_expect_create(&c, &caps, &e);
        check(&e, 0, -1, 0, 0);
        if (has[lacking] != NULL) {
            *has[lacking] = 0;
        } else {
            caps.window_layouts = 1U << HB_WINDOWS_DENSE;
        }
        caps.track_by_layer = 0;
        hb_expect_create(&c, &caps, &e);
        check(&e, 218, lacking, value[lacking], 0);
    }
    fixture_config(&c, &caps);
    c.ring_length = 16, c.ring_owner = HB_RING_COMMIT, c.max_draft = 8, c.spec_rows = 1;
    hb_expect_create(&c, &caps, &e);
    check(&e, 0, -1, 0, 0);
    caps.ring_commit = 0;
    hb_expect_create(&c, &caps, &e);
    check(&e, 218, 6, 16, 0);
    c.ring_owner = HB_RING_DECODE;
    hb_expect_create(&c, &caps, &e);
    check(&e, 0, -1, 0, 0);
    fixture_config(&c, &caps);
    caps.graphs = caps.ring = caps.virtual_slots = caps.pool_pad = caps.track_by_layer = 0;
    caps.window_layouts = 0;
    hb_expect_create(&c, &caps, &e);
    check(&e, 0, -1, 0, 0);
    c.pool_pad = -1; /* asks for nothing */
    hb_expect_create(&c, &caps, &e);
    check(&e, 219, -1, -1, 64);
}

/* ---- layer, finish, entry ---- */

static struct hb_layer_io whole_io(void) {
    struct hb_layer_io io = {.struct_size = sizeof io};
    for (int i = 0; i < 3; i++) {
        io.in[i] = (struct hb_buf){1U + (unsigned)i, 0, 4096};
    }
    io.out = (struct hb_buf){9, 0, 4096};
    return io;
}

static void layers_check_metadata_repeats_buffers_and_id(void **state) {
    struct hb_config c;
    struct hb_caps caps;
    struct hb_error e;
    struct hb_forward_phase phase = {.has_metadata = 1, .mode = HB_MODE_EXTEND, .n_tokens = 5};
    struct hb_layer_io io = whole_io();
    (void)state;
    fixture_config(&c, &caps);
    hb_expect_layer(&c, &phase, 0, &io, &e);
    check(&e, 0, -1, 0, 0);
    phase.layers_run = 2;
    hb_expect_layer(&c, &phase, 1, NULL, &e);
    check(&e, 13, -1, 1, 0);
    hb_expect_layer(&c, &phase, 0, NULL, &e);
    check(&e, 29, 0, 0, 0);
    hb_expect_layer(&c, &phase, 33, &io, &e); /* no shift by 33 */
    check(&e, 97, -1, 33, 1);
    hb_expect_layer(&c, &phase, -1, &io, &e);
    check(&e, 97, -1, -1, 1);
    io.in[1].bytes = 5 * 8 * 4 - 1; /* dim = 4 + 2*1*2 */
    io.out.id = 0;
    hb_expect_layer(&c, &phase, 0, &io, &e);
    check(&e, 29, 3, 0, 0);
    hb_expect_layer(&c, &phase, 99, &io, &e); /* the null buffer is seen before the layer id */
    check(&e, 29, 3, 0, 0);
    io.out.id = 9;
    hb_expect_layer(&c, &phase, 0, &io, &e);
    check(&e, 59, 1, 159, 160);
    hb_expect_layer(&c, &phase, 99, &io, &e);
    check(&e, 97, -1, 99, 1);
    phase.n_tokens = 0;
    io = (struct hb_layer_io){.struct_size = sizeof io};
    hb_expect_layer(&c, &phase, 0, &io, &e);
    check(&e, 0, -1, 0, 0);
    hb_expect_layer(&c, &phase, 0, NULL, &e);
    check(&e, 29, 0, 0, 0);
    phase.has_metadata = 0;
    hb_expect_layer(&c, &phase, 99, NULL, &e);
    check(&e, 12, -1, 0, 0);
    hb_expect_finish(&c, &phase, &e);
    check(&e, 12, -1, 0, 0);
    phase.has_metadata = 1;
    hb_expect_finish(&c, &phase, &e);
    check(&e, 0, -1, 0, 0);
}

static void a_ring_decode_ends_when_every_mamba2_layer_ran(void **state) {
    struct hb_forward_phase phase = {
        .has_metadata = 1, .mode = HB_MODE_DECODE, .n_tokens = 5, .has_ring = 1};
    struct hb_config c;
    struct hb_caps caps;
    struct hb_error e;
    (void)state;
    fixture_config(&c, &caps);
    c.n_layers = 4;
    c.layer_kind[3] = HB_LAYER_ATTENTION; /* 0 and 2 are Mamba2 */
    hb_expect_finish(&c, &phase, &e);
    check(&e, 116, -1, 0, 0);
    phase.layers_run = 1;
    hb_expect_finish(&c, &phase, &e);
    check(&e, 116, -1, 2, 0);
    phase.layers_run = 4;
    hb_expect_finish(&c, &phase, &e);
    check(&e, 116, -1, 0, 0);
    phase.layers_run = 5; /* attention may be left out */
    hb_expect_finish(&c, &phase, &e);
    check(&e, 0, -1, 0, 0);
    phase.layers_run = 0;
    phase.is_replay = 1; /* runs what was captured */
    hb_expect_finish(&c, &phase, &e);
    check(&e, 0, -1, 0, 0);
    phase.is_replay = phase.has_ring = 0;
    hb_expect_finish(&c, &phase, &e);
    check(&e, 0, -1, 0, 0);
    phase.has_ring = 1;
    phase.has_metadata = 0;
    hb_expect_finish(&c, &phase, &e);
    check(&e, 12, -1, 0, 0);
}

static void a_replay_shows_no_metadata_to_layers_and_entries(void **state) {
    struct hb_forward_phase phase = {
        .has_metadata = 1, .mode = HB_MODE_IDLE, .n_tokens = 5, .is_replay = 1};
    struct hb_layer_io io = whole_io();
    struct hb_config c;
    struct hb_caps caps;
    struct hb_error e;
    (void)state;
    fixture_config(&c, &caps);
    hb_expect_layer(&c, &phase, 0, &io, &e);
    check(&e, 12, -1, 0, 0);
    hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, HB_ENTRY_DECODE, 0, &io, &e);
    check(&e, 1, -1, 0, 0);
    hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, HB_ENTRY_DECODE, 1, &io, &e);
    check(&e, 12, -1, 0, 0);
    hb_expect_finish(&c, &phase, &e);
    check(&e, 0, -1, 0, 0);
}

static void every_buffer_needs_exactly_its_bytes(void **state) {
    static const uint64_t widths[2][4] = {{4, 8, 2, 4}, {4, 2, 2, 4}};
    struct hb_config c;
    struct hb_caps caps;
    struct hb_error e;
    const struct hb_forward_phase phase = {
        .has_metadata = 1, .mode = HB_MODE_DECODE, .n_tokens = 7};
    (void)state;
    fixture_config(&c, &caps);
    for (int dtype = 0; dtype < 2; dtype++) {
        c.act_dtype = dtype;
        for (int layer = 0; layer < 2; layer++) {
            for (int i = 0; i < 4; i++) {
                struct hb_layer_io io = whole_io();
                uint64_t need = 7 * widths[layer][i] * (dtype == HB_BF16 ? 2U : 4U);
                struct hb_buf *buf = i < 3 ? &io.in[i] : &io.out;
                buf->bytes = need;
                hb_expect_layer(&c, &phase, layer, &io, &e);
                check(&e, 0, -1, 0, 0);
                buf->bytes = need - 1;
                hb_expect_layer(&c, &phase, layer, &io, &e);
                check(&e, 59, i, (int64_t)need - 1, (int64_t)need);
            }
        }
    }
}

static void entries_follow_the_refusal_rules(void **state) {
    struct hb_config c;
    struct hb_caps caps;
    struct hb_error e;
    struct hb_forward_phase phase = {.has_metadata = 1, .mode = HB_MODE_EXTEND, .n_tokens = 2};
    struct hb_layer_io io = whole_io();
    (void)state;
    fixture_config(&c, &caps);
    hb_expect_entry(NULL, NULL, 0, HB_ENTRY_CHILD, HB_ENTRY_DECODE, 0, NULL, &e);
    check(&e, 1, -1, 0, 0);
    assert_string_equal(e.text, HB_SEED_A_TEXT);
    hb_expect_entry(&c, &phase, 1, HB_ENTRY_CHILD, HB_ENTRY_EXTEND, 1, &io, &e);
    check(&e, 1, -1, 0, 0);
    hb_expect_entry(NULL, NULL, 0, HB_ENTRY_WRAPPER, HB_ENTRY_DECODE, 0, NULL, &e);
    check(&e, 2, -1, 0, 0);
    hb_expect_entry(NULL, NULL, 0, 77, HB_ENTRY_DECODE, 0, NULL, &e);
    check(&e, 2, -1, 0, 0);
    for (int32_t direction = -1; direction < 3; direction++) {
        hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, direction, 0, &io, &e);
        check(&e, 1, -1, 0, 0);
        hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, direction, 1, &io, &e);
        check(&e, 0, -1, 0, 0);
        hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, direction, 2, &io, &e);
        check(&e, 97, -1, 2, 1);
    }
    phase.has_metadata = 0;
    phase.mode = HB_MODE_IDLE; /* of an earlier forward */
    hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, 0, 0, &io, &e);
    check(&e, 1, -1, 0, 0);
    hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, 0, 1, &io, &e);
    check(&e, 12, -1, 0, 0);
    phase.has_metadata = 1;
    hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, 0, 0, &io, &e);
    check(&e, 0, -1, 0, 0);
    phase.layers_run = 1; /* an idle entry runs nothing, however often */
    hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, 0, 0, &io, &e);
    check(&e, 0, -1, 0, 0);
    phase.mode = HB_MODE_DECODE;
    phase.layers_run = 1U << 1;
    hb_expect_entry(&c, &phase, 1, HB_ENTRY_WRAPPER, 0, 1, &io, &e);
    check(&e, 13, -1, 1, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_checks_counts_and_sizes),
        cmocka_unit_test(create_checks_relations_variants_and_types),
        cmocka_unit_test(create_checks_the_intermediate_caches),
        cmocka_unit_test(create_checks_graphs_ring_ids_and_interval),
        cmocka_unit_test(create_checks_a_ring_that_commits_own),
        cmocka_unit_test(create_checks_features_against_what_is_declared),
        cmocka_unit_test(layers_check_metadata_repeats_buffers_and_id),
        cmocka_unit_test(a_ring_decode_ends_when_every_mamba2_layer_ran),
        cmocka_unit_test(a_replay_shows_no_metadata_to_layers_and_entries),
        cmocka_unit_test(every_buffer_needs_exactly_its_bytes),
        cmocka_unit_test(entries_follow_the_refusal_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
