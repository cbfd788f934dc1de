/* SPDX-License-Identifier: Apache-2.0
 * Draft verification of conv and SSM (speculative.md section 1): each node equals decode steps along
 * its path bit for bit, in both forms. */
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

static struct hb_k_conv conv_args(struct verify_case *c) {
    const size_t dim = dim_of(&c->s);
    open_pool(c, dim * (size_t)(c->s.width - 1), c->s.act_dtype, dim);
    c->keeps_type = 1;
    return (struct hb_k_conv){.rows = c->rows,
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

static struct hb_k_ssm ssm_args(struct verify_case *c) {
    const struct shape *s = &c->s;
    const size_t heads = (size_t)s->heads;
    open_pool(c, heads * (size_t)(s->p * s->n), s->state_dtype, heads * (size_t)s->p);
    return (struct hb_k_ssm){.rows = c->rows,
                             .n_heads = s->heads,
                             .head_dim = s->p,
                             .state_size = s->n,
                             .n_groups = s->groups,
                             .chunk_size = 4,
                             .act_dtype = s->act_dtype,
                             .state_dtype = s->state_dtype,
                             .dt_softplus = 1,
                             .dt_clamp = HB_DT_CLAMP_LIMIT,
                             .dt_lo = 0.1f,
                             .dt_hi = 1.0f,
                             .form = c->form,
                             .defect = c->defect,
                             .xbc = random_acts(c, N_TOKENS * dim_of(s)),
                             .dt = random_acts(c, N_TOKENS * heads),
                             .a = random_floats(c, heads, -3.0f, -0.1f),
                             .dt_bias = random_floats(c, heads, -1.0f, 1.0f),
                             .d = random_floats(c, heads, -1.0f, 1.0f),
                             .y = c->y,
                             .pool = c->device_pool};
}

static int32_t conv_step(struct verify_case *c, const void *args, const struct hb_k_rows *rows,
                         void *pool, int32_t pool_dtype, void *y) {
    struct hb_k_conv step = *(const struct hb_k_conv *)args;
    (void)pool_dtype;
    step.rows = *rows;
    step.pool = pool;
    step.y = y;
    return c->rig.k->conv_update(&step);
}

static int32_t ssm_step(struct verify_case *c, const void *args, const struct hb_k_rows *rows,
                        void *pool, int32_t pool_dtype, void *y) {
    struct hb_k_ssm step = *(const struct hb_k_ssm *)args;
    step.rows = *rows;
    step.pool = pool;
    step.state_dtype = pool_dtype;
    step.y = y;
    return c->rig.k->ssm_update(&step);
}

static void conv_nodes_equal_decode_steps_along_their_path(void **state) {
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        struct verify_case c;
        if (!open_case(&c, i, shapes)) {
            continue;
        }
        const struct hb_k_conv conv = conv_args(&c);
        const struct hb_k_conv_verify args = {
            .conv = conv, .max_draft = MAX_DRAFT, .parent_stride = MAX_DRAFT, .parent = c.parent, .windows = c.entries};
        assert_int_equal(c.rig.k->conv_verify(&args), HB_OK);
        check_all(&c, conv_step, &conv);
        close_case(&c);
    }
}

static void ssm_nodes_equal_decode_steps_along_their_path(void **state) {
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        struct verify_case c;
        if (!open_case(&c, i, shapes)) {
            continue;
        }
        const struct hb_k_ssm ssm = ssm_args(&c);
        const struct hb_k_ssm_verify args = {
            .ssm = ssm, .max_draft = MAX_DRAFT, .parent_stride = MAX_DRAFT, .parent = c.parent, .states = c.entries};
        assert_int_equal(c.rig.k->ssm_verify(&args), HB_OK);
        check_all(&c, ssm_step, &ssm);
        close_case(&c);
    }
}

static void a_chain_given_as_a_tree_is_the_chain_with_fp32_states(void **state) {
    (void)state;
    for (int form = 0; form < HB_N_FORMS; form++) {
        struct verify_case c;
        struct array out[2], entries[2];
        assert_true(open_case(&c, 12 * form, shapes));
        const struct hb_k_ssm ssm = ssm_args(&c);
        const int32_t chain[N_ROWS][MAX_DRAFT] = {
            {0, 0, 1, 2, 3, 4}, {0, 0, 1, 2, 3, 4}, {0, 0, 1, 2, 3, 4}};
        struct hb_k_ssm_verify args = {.ssm = ssm, .max_draft = MAX_DRAFT, .states = c.entries};
        for (int i = 0; i < 2; i++) {
            args.parent = i == 1 ? rig_device(&c.rig, chain, sizeof chain) : NULL;
            assert_int_equal(c.rig.k->ssm_verify(&args), HB_OK);
            out[i] = array_read(&c.rig, c.y, N_TOKENS * c.width, c.s.act_dtype);
            entries[i] = array_read(&c.rig, c.entries, N_ROWS * MAX_DRAFT * c.entry, c.dtype);
        }
        assert_true(array_same(&out[0], &out[1]) && array_same(&entries[0], &entries[1]));
        for (int i = 0; i < 2; i++) {
            array_free(&out[i]);
            array_free(&entries[i]);
        }
        close_case(&c);
    }
}

static void stored_window_defect_writes_live_slots_only(void **state) {
    (void)state;
    struct verify_case c;
    assert_true(open_case(&c, 0, shapes));
    c.defect = HB_DEFECT_VERIFY_CONV_STORED;
    const struct hb_k_conv conv = conv_args(&c);
    const struct hb_k_conv_verify args = {
        .conv = conv, .max_draft = MAX_DRAFT, .windows = c.entries};
    assert_int_equal(c.rig.k->conv_verify(&args), HB_OK);
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
        cmocka_unit_test(empty_and_too_wide_verifies),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
