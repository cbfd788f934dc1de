/* SPDX-License-Identifier: Apache-2.0
 * Draft verification of the delta rule (speculative.md section 1): each node equals decode steps
 * along its path bit for bit, whatever the form, layout and order. */
#include "kernels/tests/verify_rig.h"

static const struct shape shapes[] = {
    {4, 2, 3, 2, 0, HB_FP32, HB_FP32},   {2, 10, 35, 1, 0, HB_FP32, HB_FP32},
    {4, 9, 40, 2, 0, HB_BF16, HB_FP32},  {1, 3, 70, 1, 0, HB_FP16, HB_BF16},
    {2, 8, 256, 1, 0, HB_FP32, HB_BF16},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0], N_CASES = 2 * CASES_PER_SHAPE * N_SHAPES };

/* The second half of the cases is KDA; variants change with the case. */
static struct hb_k_delta delta_args(struct verify_case *c, int i) {
    const struct shape *s = &c->s;
    const int32_t is_kda = i >= N_CASES / 2;
    const size_t heads = (size_t)s->heads;
    const size_t inner = heads * (size_t)s->p;
    const size_t keys = (size_t)s->groups * (size_t)s->n;
    const size_t n_a = heads * (is_kda ? (size_t)s->n : 1);
    open_pool(c, inner * (size_t)s->n, s->state_dtype, inner);
    return (struct hb_k_delta){.rows = c->rows,
                               .n_heads = s->heads,
                               .head_dim = s->p,
                               .state_size = s->n,
                               .n_groups = s->groups,
                               .chunk_size = 4,
                               .act_dtype = s->act_dtype,
                               .state_dtype = s->state_dtype,
                               .is_kda = is_kda,
                               .head_map = c->is_tree ? HB_HEADS_TILE : HB_HEADS_INTERLEAVE,
                               .state_layout = c->layout,
                               .l2norm = c->form ? HB_L2_MAX_EPS : HB_L2_ADD_EPS,
                               .beta_form = c->is_tree ? HB_BETA_DOUBLE : HB_BETA_SIGMOID,
                               .gate_form = is_kda && c->is_tree ? HB_GATE_LOWER_BOUND
                                                                 : HB_GATE_STANDARD,
                               .gate_softplus = 1,
                               .gate_bound = -5.0f,
                               .qk_scale = 0.3f,
                               .form = c->form,
                               .defect = c->defect,
                               .qkv = random_acts(c, N_TOKENS * (inner + 2 * keys)),
                               .gates = random_acts(c, N_TOKENS * (n_a + heads)),
                               .a = random_floats(c, heads, -2.0f, -0.1f),
                               .dt_bias = random_floats(c, n_a, -1.0f, 1.0f),
                               .y = c->y,
                               .pool = c->device_pool};
}

static int32_t delta_step(struct verify_case *c, const void *args, const struct hb_k_rows *rows,
                          void *pool, int32_t pool_dtype, void *y) {
    struct hb_k_delta step = *(const struct hb_k_delta *)args;
    step.rows = *rows;
    step.pool = pool;
    step.state_dtype = pool_dtype;
    step.y = y;
    return c->rig.k->delta_update(&step);
}

static int open_delta(struct verify_case *c, int i) {
    return open_case(c, i % (N_CASES / 2), shapes);
}

static void nodes_equal_decode_steps_along_their_path(void **state) {
    (void)state;
    for (int i = 0; i < (int)N_CASES; i++) {
        struct verify_case c;
        if (!open_delta(&c, i)) {
            continue;
        }
        const struct hb_k_delta delta = delta_args(&c, i);
        const struct hb_k_delta_verify args = {.delta = delta,
                                               .max_draft = MAX_DRAFT,
                                               .parent_stride = MAX_DRAFT,
                                               .parent = c.parent,
                                               .states = c.entries};
        assert_int_equal(c.rig.k->delta_verify(&args), HB_OK);
        check_all(&c, delta_step, &delta);
        close_case(&c);
    }
}

static void a_chain_given_as_a_tree_is_the_chain_with_fp32_states(void **state) {
    (void)state;
    const int32_t chain[N_ROWS][MAX_DRAFT] = {
        {0, 0, 1, 2, 3, 4}, {0, 0, 1, 2, 3, 4}, {0, 0, 1, 2, 3, 4}};
    for (int i = 0; i < 2 * HB_N_FORMS; i++) {
        struct verify_case c;
        struct array out[2], entries[2];
        const int number = 12 * (i % HB_N_FORMS) + i / HB_N_FORMS * (int)(N_CASES / 2);
        assert_true(open_delta(&c, number));
        struct hb_k_delta_verify args = {
            .delta = delta_args(&c, number), .max_draft = MAX_DRAFT, .states = c.entries};
        for (int k = 0; k < 2; k++) {
            args.parent = k == 1 ? rig_device(&c.rig, chain, sizeof chain) : NULL;
            args.parent_stride = MAX_DRAFT;
            assert_int_equal(c.rig.k->delta_verify(&args), HB_OK);
            out[k] = array_read(&c.rig, c.y, N_TOKENS * c.width, c.s.act_dtype);
            entries[k] = array_read(&c.rig, c.entries, N_ROWS * MAX_DRAFT * c.entry, c.dtype);
        }
        assert_true(array_same(&out[0], &out[1]) && array_same(&entries[0], &entries[1]));
        for (int k = 0; k < 2; k++) {
            array_free(&out[k]);
            array_free(&entries[k]);
        }
        close_case(&c);
    }
}

static void state_that_a_thread_cannot_hold_is_refused(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        struct verify_case c;
        assert_true(open_delta(&c, 12 * form));
        struct hb_k_delta_verify args = {
            .delta = delta_args(&c, 0), .max_draft = MAX_DRAFT, .states = c.entries};
        args.delta.state_size = 257;
        assert_int_equal(c.rig.k->delta_verify(&args), HB_ERR_DEVICE);
        assert_non_null(strstr(c.rig.k->error_text(), "state_size 257"));
        close_case(&c);
    }
}

static void nothing_to_do_launches_nothing(void **state) {
    (void)state;
    struct verify_case c;
    assert_true(open_delta(&c, 0));
    struct hb_k_delta_verify args = {.delta = delta_args(&c, 0), .max_draft = MAX_DRAFT};
    args.delta.rows.n_rows = 0;
    const uint64_t before = c.rig.k->launches();
    assert_int_equal(c.rig.k->delta_verify(&args), HB_OK);
    assert_int_equal(c.rig.k->delta_update(&args.delta), HB_OK);
    assert_int_equal(c.rig.k->delta_prefill(&args.delta), HB_OK);
    assert_int_equal(c.rig.k->launches(), before);
    close_case(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_equal_decode_steps_along_their_path),
        cmocka_unit_test(a_chain_given_as_a_tree_is_the_chain_with_fp32_states),
        cmocka_unit_test(state_that_a_thread_cannot_hold_is_refused),
        cmocka_unit_test(nothing_to_do_launches_nothing),
    };
    return cmocka_run_group_tests_name("delta_verify", tests, NULL, NULL);
}
