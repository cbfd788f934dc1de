/* SPDX-License-Identifier: Apache-2.0
 * Draft verification of conv and SSM (speculative.md section 1): each node equals decode steps
 * along its path bit for bit, in both forms. */
#include "kernels/tests/verify_rig.h"

static const struct shape shapes[] = {
    {4, 2, 3, 2, 4, HB_FP32, HB_FP32},   {2, 10, 35, 1, 3, HB_FP32, HB_FP32},
    {2, 9, 40, 2, 2, HB_BF16, HB_FP32},  {1, 3, 70, 1, 4, HB_BF16, HB_BF16},
    {2, 8, 256, 1, 4, HB_FP32, HB_BF16},
};

enum { N_CASES = CASES_PER_SHAPE * sizeof shapes / sizeof shapes[0] };

static size_t dim_of(const struct shape *s) {
    return (size_t)s->heads * (size_t)s->p + 2 * (size_t)s->groups * (size_t)s->n;
}

static void make_conv(struct verify_case *c) {
    const size_t dim = dim_of(&c->s);
    open_pool(c, dim * (size_t)(c->s.width - 1), c->s.act_dtype, dim);
    c->keeps_type = 1;
    c->args.conv =
        (struct hb_k_conv){.rows = c->rows,
                           .dim = (int32_t)dim,
                           .width = c->s.width,
                           .act_dtype = c->s.act_dtype,
                           .form = c->form,
                           .defect = c->defect,
                           .x = random_acts(c, N_TOKENS * dim),
                           .weight = random_floats(c, dim * (size_t)c->s.width, -1.0f, 1.0f),
                           .bias = random_floats(c, dim, -1.0f, 1.0f),
                           .y = c->y,
                           .pool = c->device_pool};
}

static int32_t conv_step(struct verify_case *c, const struct decode *decode) {
    struct hb_k_conv step = c->args.conv;
    BECOME_STEP(step, decode);
    return c->rig.k->conv_update(&step);
}

static int32_t conv_verify(struct verify_case *c) {
    const struct hb_k_conv_verify args = {.conv = c->args.conv, DRAFTS(c), .windows = c->entries};
    return c->rig.k->conv_verify(&args);
}

static const struct verify_kind conv_kind = {make_conv, conv_verify, conv_step};

static void make_ssm(struct verify_case *c) {
    const struct shape *s = &c->s;
    const size_t heads = (size_t)s->heads;
    open_pool(c, heads * (size_t)(s->p * s->n), s->state_dtype, heads * (size_t)s->p);
    c->args.ssm = (struct hb_k_ssm){STATE_ARGS(c),
                                    .n_groups = s->groups,
                                    .chunk_size = 4,
                                    .dt_softplus = 1,
                                    .dt_clamp = HB_DT_CLAMP_LIMIT,
                                    .dt_lo = 0.1f,
                                    .dt_hi = 1.0f,
                                    .xbc = random_acts(c, N_TOKENS * dim_of(s)),
                                    .dt = random_acts(c, N_TOKENS * heads),
                                    .a = random_floats(c, heads, -3.0f, -0.1f),
                                    .dt_bias = random_floats(c, heads, -1.0f, 1.0f),
                                    .d = random_floats(c, heads, -1.0f, 1.0f)};
}

static int32_t ssm_step(struct verify_case *c, const struct decode *decode) {
    struct hb_k_ssm step = c->args.ssm;
    BECOME_STEP(step, decode);
    step.state_dtype = decode->state_dtype;
    return c->rig.k->ssm_update(&step);
}

static int32_t ssm_verify(struct verify_case *c) {
    const struct hb_k_ssm_verify args = {.ssm = c->args.ssm, DRAFTS(c), .states = c->entries};
    return c->rig.k->ssm_verify(&args);
}

static const struct verify_kind ssm_kind = {make_ssm, ssm_verify, ssm_step};

static void conv_nodes_equal_decode_steps_along_their_path(void **state) {
    (void)state;
    nodes_equal_decode_steps(&conv_kind, shapes, N_CASES);
}

static void ssm_nodes_equal_decode_steps_along_their_path(void **state) {
    (void)state;
    nodes_equal_decode_steps(&ssm_kind, shapes, N_CASES);
}

static void a_chain_given_as_a_tree_is_the_chain_with_fp32_states(void **state) {
    (void)state;
    chain_as_a_tree_is_the_chain(&ssm_kind, shapes);
}

static void stored_window_defect_writes_live_slots_only(void **state) {
    (void)state;
    struct verify_case c;
    assert_true(open_case(&c, 0, shapes));
    c.defect = HB_DEFECT_VERIFY_CONV_STORED;
    make_conv(&c);
    assert_int_equal(conv_verify(&c), HB_OK);
    struct array after = array_read(&c.rig, c.device_pool, c.pool.n, c.dtype);
    for (size_t s = 0; s <= N_SLOTS; s++) {
        const int same = memcmp((float *)after.bytes + s * c.entry,
                                (float *)c.pool.bytes + s * c.entry, c.entry * sizeof(float)) == 0;
        const int is_live = s == 1 || s == 3;
        assert_int_equal(same, !(is_live && HB_DEFECT(c.defect, VERIFY_CONV_STORED)));
    }
    array_free(&after);
    close_case(&c);
}

#ifdef HB_DEFECTS
static void planted_defects_show_in_verifies(void **state) {
    (void)state;
    assert_true(shows_in_verify(&ssm_kind, shapes, 0, HB_DEFECT_MAMBA2_DECAY_SIGN));
    assert_true(shows_in_verify(&ssm_kind, squares, 0, HB_DEFECT_MAMBA2_LAYOUT));
    assert_false(shows_in_verify(&ssm_kind, shapes, 0, HB_DEFECT_MAMBA2_LAYOUT));
}
#endif

static void empty_and_too_wide_verifies(void **state) {
    (void)state;
    struct rig rig;
    assert_true(rig_open(&rig, 0, 1));
    const uint64_t before = rig.k->launches();
    const struct hb_k_conv_verify conv = {.conv = {.dim = 4, .width = 2}};
    struct hb_k_ssm_verify ssm = {
        .ssm = {.n_heads = 1, .head_dim = 1, .state_size = 1, .n_groups = 1, .chunk_size = 1}};
    assert_int_equal(rig.k->conv_verify(&conv), HB_OK);
    assert_int_equal(rig.k->ssm_verify(&ssm), HB_OK);
    ssm.ssm.rows.n_rows = 1;
    ssm.ssm.state_size = HB_MAX_STATE_SIZE + 1;
    for (ssm.ssm.form = 0; ssm.ssm.form < HB_N_FORMS; ssm.ssm.form++) {
        assert_int_equal(rig.k->ssm_verify(&ssm), HB_ERR_DEVICE);
        assert_non_null(strstr(rig.k->error_text(), "state_size 257 is larger than 256"));
    }
    assert_true(rig.k->launches() == before);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_nodes_equal_decode_steps_along_their_path),
        cmocka_unit_test(ssm_nodes_equal_decode_steps_along_their_path),
        cmocka_unit_test(a_chain_given_as_a_tree_is_the_chain_with_fp32_states),
        cmocka_unit_test(stored_window_defect_writes_live_slots_only),
#ifdef HB_DEFECTS
        cmocka_unit_test(planted_defects_show_in_verifies),
#endif
        cmocka_unit_test(empty_and_too_wide_verifies),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
