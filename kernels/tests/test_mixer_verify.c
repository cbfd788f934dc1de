/* SPDX-License-Identifier: Apache-2.0
 * Draft verification of scalar decay, selective scan and short convolution (speculative.md section
 * 1): each node equals decode steps along its path bit for bit, whatever the form, layout and
 * order.
 */
#include "kernels/tests/verify_rig.h"

static const struct shape shapes[] = {
    {4, 2, 3, 2, 4, HB_FP32, HB_FP32},   {2, 10, 35, 1, 3, HB_FP32, HB_FP32},
    {4, 9, 40, 2, 2, HB_BF16, HB_FP32},  {1, 3, 70, 1, 4, HB_BF16, HB_BF16},
    {2, 8, 256, 1, 4, HB_FP32, HB_BF16}, {2, 3, 5, 1, 3, HB_FP16, HB_FP32},
};
enum { N_CASES = CASES_PER_SHAPE * sizeof shapes / sizeof shapes[0] };

static size_t inner_of(const struct shape *s) {
    return (size_t)s->heads * (size_t)s->p;
}

/* The decays come per token in every other shape. */
static void make_decay(struct verify_case *c) {
    const struct shape *s = &c->s;
    const size_t keys = (size_t)s->groups * (size_t)s->n;
    open_pool(c, inner_of(s) * (size_t)s->n, s->state_dtype, inner_of(s));
    const float *log_decay = random_floats(c, (size_t)s->heads, -2.0f, 0.0f);
    c->args.decay =
        (struct hb_k_decay){STATE_ARGS(c),
                            .n_groups = s->groups,
                            .chunk_size = 4,
                            .head_map = c->is_tree ? HB_HEADS_TILE : HB_HEADS_INTERLEAVE,
                            .state_layout = c->layout,
                            .qkv_act = c->is_tree ? HB_QKV_SILU : HB_QKV_NONE,
                            .qk_scale = 0.3f,
                            .qkv = random_acts(c, N_TOKENS * (inner_of(s) + 2 * keys)),
                            .log_decay = c->layout ? NULL : log_decay,
                            .token_decay = random_acts(c, N_TOKENS * (size_t)s->heads)};
}

static int32_t decay_step(struct verify_case *c, const struct decode *decode) {
    struct hb_k_decay step = c->args.decay;
    BECOME_STEP(step, decode);
    step.state_dtype = decode->state_dtype;
    return c->rig.k->decay_update(&step);
}

static int32_t decay_verify(struct verify_case *c) {
    const struct hb_k_decay_verify args = {.decay = c->args.decay, DRAFTS(c), .states = c->entries};
    return c->rig.k->decay_verify(&args);
}

static const struct verify_kind decay_kind = {make_decay, decay_verify, decay_step};

static void make_scan(struct verify_case *c) {
    const struct shape *s = &c->s;
    const size_t inner = inner_of(s);
    open_pool(c, inner * (size_t)s->n, s->state_dtype, inner);
    c->args.scan =
        (struct hb_k_selective){STATE_ARGS(c),
                                .state_layout = c->layout,
                                .dt_softplus = 1,
                                .dt_clamp = HB_DT_CLAMP_LIMIT,
                                .dt_lo = 0.1f,
                                .dt_hi = 1.0f,
                                .x = random_acts(c, N_TOKENS * inner),
                                .dbc = random_acts(c, N_TOKENS * (inner + 2 * (size_t)s->n)),
                                .a = random_floats(c, inner * (size_t)s->n, -3.0f, -0.1f),
                                .dt_bias = random_floats(c, inner, -1.0f, 1.0f),
                                .d = random_floats(c, inner, -1.0f, 1.0f)};
}

static int32_t scan_step(struct verify_case *c, const struct decode *decode) {
    struct hb_k_selective step = c->args.scan;
    BECOME_STEP(step, decode);
    step.state_dtype = decode->state_dtype;
    return c->rig.k->selective_update(&step);
}

static int32_t scan_verify(struct verify_case *c) {
    const struct hb_k_selective_verify args = {
        .scan = c->args.scan, DRAFTS(c), .states = c->entries};
    return c->rig.k->selective_verify(&args);
}

static const struct verify_kind scan_kind = {make_scan, scan_verify, scan_step};

static void make_short_conv(struct verify_case *c) {
    const struct shape *s = &c->s;
    const size_t dim = inner_of(s);
    const int32_t columns = s->width - 1 + c->layout;
    open_pool(c, dim * (size_t)columns, s->act_dtype, dim);
    c->keeps_type = 1;
    c->args.short_conv =
        (struct hb_k_short_conv){.rows = c->rows,
                                 .dim = (int32_t)dim,
                                 .width = s->width,
                                 .columns = columns,
                                 .act_dtype = s->act_dtype,
                                 .form = c->form,
                                 .defect = c->defect,
                                 .bcx = random_acts(c, N_TOKENS * 3 * dim),
                                 .weight = random_floats(c, dim * (size_t)s->width, -1.0f, 1.0f),
                                 .bias = random_floats(c, dim, -1.0f, 1.0f),
                                 .y = c->y,
                                 .pool = c->device_pool};
}

static int32_t short_conv_step(struct verify_case *c, const struct decode *decode) {
    struct hb_k_short_conv step = c->args.short_conv;
    BECOME_STEP(step, decode);
    return c->rig.k->short_conv_update(&step);
}

static int32_t short_conv_verify(struct verify_case *c) {
    const struct hb_k_short_conv_verify args = {
        .conv = c->args.short_conv, DRAFTS(c), .windows = c->entries};
    return c->rig.k->short_conv_verify(&args);
}

static const struct verify_kind short_conv_kind = {make_short_conv, short_conv_verify,
                                                   short_conv_step};

static void decay_nodes_equal_decode_steps_along_their_path(void **state) {
    (void)state;
    nodes_equal_decode_steps(&decay_kind, shapes, N_CASES);
}

static void scan_nodes_equal_decode_steps_along_their_path(void **state) {
    (void)state;
    nodes_equal_decode_steps(&scan_kind, shapes, N_CASES);
}

static void short_conv_nodes_equal_decode_steps_along_their_path(void **state) {
    (void)state;
    nodes_equal_decode_steps(&short_conv_kind, shapes, N_CASES);
}

/* Column k of a strip's window t is column t + k of the strip. */
static void strips_hold_the_windows_of_a_chain(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct verify_case c;
        assert_true(open_case(&c, i * CASES_PER_SHAPE, shapes));
        make_short_conv(&c);
        const struct hb_k_short_conv conv = c.args.short_conv;
        const int32_t columns = conv.columns;
        const int32_t n_columns = MAX_DRAFT + columns - 1;
        const size_t n = (size_t)(N_ROWS * conv.dim * n_columns);
        struct hb_k_short_conv_verify args = {
            .conv = conv, .max_draft = MAX_DRAFT, .windows = c.entries};
        assert_int_equal(c.rig.k->short_conv_verify(&args), HB_OK);
        args.windows = rig_device(&c.rig, NULL, n * sizeof(float));
        args.window_layout = HB_WINDOWS_STRIP;
        assert_int_equal(c.rig.k->short_conv_verify(&args), HB_OK);
        struct array dense = array_read(&c.rig, c.entries, N_ROWS * MAX_DRAFT * c.entry, c.dtype);
        struct array strip = array_read(&c.rig, args.windows, n, c.dtype);
        for (int32_t r = 0; r < N_ROWS; r++) {
            for (int32_t k = 0; slots[r] >= 0 && k < lens[r] * conv.dim * columns; k++) {
                const int32_t t = k / conv.dim / columns;
                const int32_t channel = k / columns % conv.dim;
                const int32_t at = (r * conv.dim + channel) * n_columns + t + k % columns;
                assert_true(strip.wide[at] ==
                            dense.wide[(size_t)(r * MAX_DRAFT) * c.entry + (size_t)k]);
            }
        }
        array_free(&dense);
        array_free(&strip);
        close_case(&c);
    }
}

#ifdef HB_DEFECTS
static void planted_defects_show_in_verifies(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) { /* the two layouts, or lengths of the window */
        assert_true(shows_in_verify(&decay_kind, squares, i, HB_DEFECT_DECAY_HEAD_MAP));
        assert_true(shows_in_verify(&decay_kind, squares, i, HB_DEFECT_DECAY_LAYOUT));
        assert_false(shows_in_verify(&decay_kind, shapes, i, HB_DEFECT_DECAY_LAYOUT));
        assert_true(shows_in_verify(&scan_kind, squares, i, HB_DEFECT_MAMBA1_DECAY_SIGN));
        assert_true(shows_in_verify(&scan_kind, squares, i, HB_DEFECT_MAMBA1_LAYOUT));
        assert_false(shows_in_verify(&scan_kind, shapes, i, HB_DEFECT_MAMBA1_LAYOUT));
        assert_int_equal(shows_in_verify(&short_conv_kind, squares, i, HB_DEFECT_SHORT_CONV_OLDEST),
                         i);
    }
    assert_false(shows_in_verify(&decay_kind, shapes, 1, HB_DEFECT_DECAY_HEAD_MAP)); /* one group */
}
#endif

static void empty_and_too_wide_verifies(void **state) {
    (void)state;
    struct rig rig;
    assert_true(rig_open(&rig, 0, 1));
    const uint64_t before = rig.k->launches();
    struct hb_k_decay_verify decay = {.decay = {.n_heads = 1, .head_dim = 1, .state_size = 1}};
    struct hb_k_selective_verify scan = {.scan = {.n_heads = 1, .head_dim = 1, .state_size = 1}};
    const struct hb_k_short_conv_verify conv = {.conv = {.dim = 4, .width = 2, .columns = 1}};
    assert_int_equal(rig.k->decay_verify(&decay), HB_OK);
    assert_int_equal(rig.k->selective_verify(&scan), HB_OK);
    assert_int_equal(rig.k->short_conv_verify(&conv), HB_OK);
    decay.decay.rows.n_rows = scan.scan.rows.n_rows = 1;
    decay.decay.state_size = scan.scan.state_size = HB_MAX_STATE_SIZE + 1;
    assert_int_equal(rig.k->decay_verify(&decay), HB_ERR_DEVICE);
    assert_non_null(strstr(rig.k->error_text(), "state_size 257 is larger than 256"));
    assert_int_equal(rig.k->selective_verify(&scan), HB_ERR_DEVICE);
    assert_non_null(strstr(rig.k->error_text(), "state_size 257 is larger than 256"));
    assert_true(rig.k->launches() == before);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decay_nodes_equal_decode_steps_along_their_path),
        cmocka_unit_test(scan_nodes_equal_decode_steps_along_their_path),
        cmocka_unit_test(short_conv_nodes_equal_decode_steps_along_their_path),
        cmocka_unit_test(strips_hold_the_windows_of_a_chain),
#ifdef HB_DEFECTS
        cmocka_unit_test(planted_defects_show_in_verifies),
#endif
        cmocka_unit_test(empty_and_too_wide_verifies),
    };
    return cmocka_run_group_tests_name("mixer verify", tests, NULL, NULL);
}
