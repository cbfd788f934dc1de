/* SPDX-License-Identifier: Apache-2.0
 * The prediction over kinds of layers: sizes, variants, the rules of kinds, buffers of width 0, and
 * entries; and on random configurations the emulated backend says what was predicted. */
#include "harness/tests/expect_common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/batch.h"
#include "harness/rng.h"

static void every_kind(struct hb_config *c, struct hb_caps *caps, int32_t kind) {
    fixture_config(c, caps);
    caps->layer_kinds = (1U << HB_N_LAYER_KINDS) - 1;
    caps->act_dtypes = (1U << HB_N_FLOAT_DTYPES) - 1;
    caps->state_dtypes = caps->act_dtypes;
    c->layer_kind[0] = kind;
    c->gate_bound = -5.0F;
}

static void create_is(const struct hb_config *c, int32_t rule, int32_t row, int64_t value,
                      int64_t limit) {
    struct hb_config ignored;
    struct hb_caps caps;
    struct hb_error e;
    every_kind(&ignored, &caps, HB_LAYER_MAMBA2);
    hb_expect_create(c, &caps, &e);
    check(&e, rule, row, value, limit);
}

static const int32_t linear[] = {HB_LAYER_MAMBA2,    HB_LAYER_GDN,        HB_LAYER_KDA,
                                 HB_LAYER_LIGHTNING, HB_LAYER_SHORT_CONV, HB_LAYER_MAMBA1};
enum { N_LINEAR = sizeof linear / sizeof *linear };

/* --- create ----------------------------------------------------------------------------------- */

static void variants_of_the_kinds_are_refused_by_row(void **state) {
    struct hb_config base;
    struct hb_config c = {0};
    struct hb_caps caps;
    (void)state;
    every_kind(&base, &caps, HB_LAYER_GDN);
    int32_t *const fields[] = {&c.head_map,  &c.state_layout,   &c.l2norm,      &c.beta_form,
                               &c.gate_form, &c.out_gate,       &c.slope_kind,  &c.layer_factor,
                               &c.qkv_act,   &c.conv_state_len, &c.window_rule, &c.pad_policy};
    static const int32_t counts[] = {2, 2, 3, 3, 2, 2, 5, 4, 2, 2, 2, 1};
    for (int32_t i = 0; i < 12; i++) {
        c = base;
        *fields[i] = counts[i] - 1;
        create_is(&c, 0, -1, 0, 0);
        *fields[i] = counts[i];
        create_is(&c, 208, 10 + i, counts[i], 0);
        *fields[i] = -1;
        create_is(&c, 208, 10 + i, -1, 0);
    }
    c = base, c.layer_kind[1] = HB_N_LAYER_KINDS, create_is(&c, 208, 7, HB_N_LAYER_KINDS, 0);
    c = base, c.act_dtype = HB_FP16, create_is(&c, 0, -1, 0, 0);
    c = base, c.state_dtype = HB_FP16, create_is(&c, 209, 1, HB_FP16, 0);
}

static void rules_of_kinds_have_their_rows(void **state) {
    struct hb_config c;
    struct hb_caps caps;
    (void)state;
    every_kind(&c, &caps, HB_LAYER_GDN);
    c.n_layers = 3, c.layer_kind[2] = HB_LAYER_KDA;
    create_is(&c, 222, 2, HB_LAYER_KDA, HB_LAYER_GDN);
    c.layer_kind[2] = HB_LAYER_GDN, create_is(&c, 0, -1, 0, 0);
    c.ring_length = 3, create_is(&c, 223, 0, HB_LAYER_GDN, 0);
    every_kind(&c, &caps, HB_LAYER_ATTENTION);
    c.ring_length = 3, create_is(&c, 0, -1, 0, 0); /* nobody uses it */
    every_kind(&c, &caps, HB_LAYER_KDA);
    c.gate_bound = 0.0F, create_is(&c, 0, -1, 0, 0);
    c.gate_form = HB_GATE_LOWER_BOUND, create_is(&c, 224, -1, 0, 0);
    c.gate_bound = NAN, create_is(&c, 224, -1, 0, 0);
    c.layer_kind[0] = HB_LAYER_GDN, create_is(&c, 0, -1, 0, 0);
    every_kind(&c, &caps, HB_LAYER_GDN);
    c.attn_softcap = -1.0F, create_is(&c, 225, 1, 0, 0);
    c.attn_softcap = NAN, create_is(&c, 225, 1, 0, 0);
    c.attn_window = -3, create_is(&c, 225, 0, -3, 0);
    c.stochastic_rounding = 1, create_is(&c, 221, -1, 0, 0); /* the lower number first */
}

/* H = 2, P = 2, N = 2, G = 1, K = 4: d_inner 4, dim 8, and 3 columns. */
static void pools_are_counted_alike_for_all_kinds(void **state) {
    struct hb_config c;
    struct hb_caps caps;
    (void)state;
    for (int32_t i = 0; i < N_LINEAR; i++) {
        every_kind(&c, &caps, linear[i]);
        c.n_slots = INT32_MAX - 1;
        create_is(&c, 201, 17, INT64_C(8 * 3) * INT32_MAX, INT32_MAX);
        c.conv_state_len = HB_CONV_STATE_FULL;
        create_is(&c, 201, 17, INT64_C(8 * 3) * INT32_MAX, INT32_MAX);
        every_kind(&c, &caps, linear[i]);
        c.spec_rows = 1 << 15, c.max_draft = 1 << 16;
        create_is(&c, 201, 20, INT64_C(8 * 3) << 31, INT32_MAX);
        c.conv_state_len = HB_CONV_STATE_FULL;
        create_is(&c, 201, 20, INT64_C(8 * 3) << 31, INT32_MAX);
    }
}

/* --- layer, entry ----------------------------------------------------------------------------- */

static struct hb_layer_io whole_io(void) {
    struct hb_layer_io io = {.struct_size = sizeof io};
    for (int i = 0; i < 3; i++) {
        io.in[i] = (struct hb_buf){1U + (unsigned)i, 0, 4096};
    }
    io.out = (struct hb_buf){9, 0, 4096};
    return io;
}

static void buffers_of_each_kind_have_its_widths(void **state) {
    static const int64_t widths[N_LINEAR][4] = {{4, 8, 2, 4}, {4, 8, 4, 4},  {4, 8, 6, 4},
                                                {4, 8, 0, 4}, {0, 12, 0, 4}, {4, 4, 8, 4}};
    (void)state;
    for (int32_t i = 0; i < N_LINEAR * 4 * 2; i++) {
        const int32_t k = i / 8, buffer = i / 2 % 4;
        struct hb_forward_phase phase = {.has_metadata = 1, .mode = HB_MODE_EXTEND, .n_tokens = 5};
        struct hb_layer_io io = whole_io();
        struct hb_buf *buf = buffer < 3 ? &io.in[buffer] : &io.out;
        struct hb_config c;
        struct hb_caps caps;
        struct hb_error e;
        every_kind(&c, &caps, linear[k]);
        c.act_dtype = i & 1 ? HB_FP16 : HB_FP32;
        const int64_t need = 5 * widths[k][buffer] * (i & 1 ? 2 : 4);
        buf->bytes = (uint64_t)need;
        hb_expect_layer(&c, &phase, 0, &io, &e);
        check(&e, 0, -1, 0, 0);
        *buf = (struct hb_buf){0};
        hb_expect_layer(&c, &phase, 0, &io, &e);
        check(&e, need > 0 ? 29 : 0, need > 0 ? buffer : -1, 0, 0);
        hb_expect_layer(&c, &phase, 7, &io, &e); /* of an unknown layer every buffer counts */
        check(&e, 29, buffer, 0, 0);
        if (need > 0) {
            *buf = (struct hb_buf){3, 0, (uint64_t)need - 1};
            hb_expect_layer(&c, &phase, 0, &io, &e);
            check(&e, 59, buffer, need - 1, need);
        }
    }
    struct hb_config c;
    struct hb_caps caps;
    struct hb_error e;
    struct hb_forward_phase phase = {.has_metadata = 1, .mode = HB_MODE_DECODE, .n_tokens = 5};
    struct hb_layer_io io = whole_io();
    every_kind(&c, &caps, HB_LAYER_LIGHTNING);
    c.slope_kind = HB_SLOPE_TOKEN; /* the third input is read */
    io.in[2].bytes = 39;
    hb_expect_layer(&c, &phase, 0, &io, &e);
    check(&e, 59, 2, 39, 40);
}

static void entries_refuse_by_kind(void **state) {
    static const int32_t rules[N_LINEAR][2] = {{1, 1}, {0, 0}, {0, 0}, {0, 0}, {4, 5}, {1, 1}};
    (void)state;
    for (int32_t i = 0; i < N_LINEAR * 4; i++) {
        const int32_t k = i / 4, direction = i & 1, target = i >> 1 & 1;
        const int32_t rule = rules[k][direction];
        struct hb_forward_phase phase = {.has_metadata = 1, .mode = HB_MODE_EXTEND, .n_tokens = 5};
        struct hb_layer_io io = whole_io();
        struct hb_config c;
        struct hb_caps caps;
        struct hb_error e;
        every_kind(&c, &caps, linear[k]);
        hb_expect_entry(&c, &phase, 0, target, direction, 0, &io, &e); /* no handle */
        check(&e, target == HB_ENTRY_CHILD ? 1 : 2, -1, 0, 0);
        hb_expect_entry(&c, &phase, 1, target, direction, 0, &io, &e);
        check(&e, rule, -1, 0, 0);
        hb_expect_entry(&c, &phase, 1, target, direction, 1, &io, &e); /* the attention layer */
        check(&e, target == HB_ENTRY_CHILD ? rule : 0, -1, 0, 0);
        phase.layers_run = 3;
        hb_expect_entry(&c, &phase, 1, target, direction, 0, &io, &e);
        check(&e, rule ? rule : 13, -1, 0, 0);
        phase.mode = HB_MODE_IDLE; /* nothing runs: not a second time */
        hb_expect_entry(&c, &phase, 1, target, direction, 0, &io, &e);
        check(&e, target == HB_ENTRY_CHILD ? rule : 0, -1, 0, 0);
        phase.has_metadata = 0;
        hb_expect_entry(&c, &phase, 1, target, direction, 0, &io, &e);
        check(&e, rule ? rule : 12, -1, 0, 0);
        c.layer_kind[0] = HB_LAYER_ATTENTION; /* no linear layer */
        hb_expect_entry(&c, &phase, 1, target, direction, 0, &io, &e);
        check(&e, target == HB_ENTRY_CHILD ? 1 : 12, -1, 0, 0);
    }
}

/* --- the emulated backend --------------------------------------------------------------------- */

/* A few fields of a valid configuration take a value from here. */
static void break_config(struct hb_rng *g, struct hb_config *c) {
    static const int32_t values[] = {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 257, 1 << 20, INT32_MAX};
    enum { N_VALUES = sizeof values / sizeof *values };
    int32_t *const fields[] = {
        &c->n_heads,      &c->head_dim,       &c->state_size,     &c->n_groups,    &c->conv_width,
        &c->chunk_size,   &c->page_size,      &c->norm_group,     &c->n_slots,     &c->n_kv,
        &c->spec_rows,    &c->max_draft,      &c->act_dtype,      &c->state_dtype, &c->conv_act,
        &c->gate_norm,    &c->head_map,       &c->state_layout,   &c->out_gate,    &c->l2norm,
        &c->pad_policy,   &c->conv_state_len, &c->beta_form,      &c->gate_form,   &c->slope_kind,
        &c->layer_factor, &c->qkv_act,        &c->attn_window,    &c->window_rule, &c->ring_length,
        &c->n_virtual,    &c->layer_kind[0],  &c->layer_kind[1],  &c->layer_kind[2],
        &c->graph_rows,   &c->window_layout,  &c->track_interval, &c->pool_pad,
    };
    const int32_t n = hb_rng_below(g, 4);
    for (int32_t i = 0; i < n; i++) {
        *fields[hb_rng_below(g, sizeof fields / sizeof *fields)] = values[hb_rng_below(g, N_VALUES)];
    }
    static const float floats[] = {0.0F, -1.0F, 1.0F, NAN, INFINITY};
    c->gate_bound = floats[hb_rng_below(g, 5)];
    c->attn_softcap = floats[hb_rng_below(g, 8) < 7 ? 0 : hb_rng_below(g, 5)];
}

static void random_configurations_are_refused_as_predicted(void **state) {
    const struct hb_adapter *const backends[] = {hb_adapter_emu()};
    struct hb_caps caps = {.struct_size = sizeof caps};
    struct hb_error e = {.struct_size = sizeof e};
    struct hb_rng g = hb_rng_make(5, 0x636f6e666967u);
    int refused = 0;
    (void)state;
    assert_int_equal(backends[0]->describe(backends[0]->ctx, &caps, &e), HB_OK);
    const struct hb_layer_params none[HB_MAX_LAYERS] = {{0}};
    for (int32_t i = 0; i < 20000; i++) {
        struct hb_config c;
        struct hb_caps ignored;
        struct hb_error want;
        struct hb_error got = {.struct_size = sizeof got};
        void *handle = NULL;
        every_kind(&c, &ignored, linear[hb_rng_below(&g, N_LINEAR)]);
        c.conv_state_len = hb_rng_below(&g, HB_N_CONV_STATE_LENS);
        c.n_layers = 1 + hb_rng_below(&g, 3);
        c.layer_kind[2] = c.layer_kind[0];
        break_config(&g, &c);
        hb_expect_create(&c, &caps, &want);
        if (want.status == HB_OK) {
            continue; /* without parameters there is nothing to create */
        }
        const int32_t status = backends[0]->create(backends[0]->ctx, &c, none, &handle, &got);
        if (status != want.status || got.rule != want.rule || got.row != want.row ||
            got.value != want.value || got.limit != want.limit) {
            fail_msg("configuration %d, kinds %d %d %d of %d: predicted rule %d row %d value %lld limit %lld, got rule "
                     "%d row %d value %lld limit %lld: %s",
                     i, c.layer_kind[0], c.layer_kind[1], c.layer_kind[2], c.n_layers, want.rule,
                     want.row, (long long)want.value, (long long)want.limit, got.rule,
                     got.row, (long long)got.value, (long long)got.limit, got.text);
        }
        refused++;
    }
    assert_true(refused > 8000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_of_the_kinds_are_refused_by_row),
        cmocka_unit_test(rules_of_kinds_have_their_rows),
        cmocka_unit_test(pools_are_counted_alike_for_all_kinds),
        cmocka_unit_test(buffers_of_each_kind_have_its_widths),
        cmocka_unit_test(entries_refuse_by_kind),
        cmocka_unit_test(random_configurations_are_refused_as_predicted),
    };
    return cmocka_run_group_tests_name("expect_kinds", tests, NULL, NULL);
}
