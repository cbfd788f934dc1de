/* SPDX-License-Identifier: Apache-2.0
 * Draft verification of the delta rule (speculative.md section 1): each node equals decode steps
 * along its path bit for bit, whatever the form, layout and order. */
#include "kernels/tests/verify_rig.h"

static const struct shape shapes[] = {
    {4, 2, 3, 2, 0, HB_FP32, HB_FP32},   {2, 10, 35, 1, 0, HB_FP32, HB_FP32},
    {4, 9, 40, 2, 0, HB_BF16, HB_FP32},  {1, 3, 70, 1, 0, HB_FP16, HB_BF16},
    {2, 8, 256, 1, 0, HB_FP32, HB_BF16},
};
enum { N_CASES = CASES_PER_SHAPE * sizeof shapes / sizeof shapes[0] };

/* Variants change with the case. */
static void make_delta(struct verify_case *c, int32_t is_kda) {
    const struct shape *s = &c->s;
    const size_t heads = (size_t)s->heads;
    const size_t inner = heads * (size_t)s->p;
    const size_t keys = (size_t)s->groups * (size_t)s->n;
    const size_t n_a = heads * (is_kda ? (size_t)s->n : 1);
    open_pool(c, inner * (size_t)s->n, s->state_dtype, inner);
    c->args.delta = (struct hb_k_delta){
        STATE_ARGS(c),
        .n_groups = s->groups,
        .chunk_size = 4,
        .is_kda = is_kda,
        .head_map = c->is_tree ? HB_HEADS_TILE : HB_HEADS_INTERLEAVE,
        .state_layout = c->layout,
        .l2norm = c->form ? HB_L2_MAX_EPS : HB_L2_ADD_EPS,
        .beta_form = c->is_tree ? HB_BETA_DOUBLE : HB_BETA_SIGMOID,
        .gate_form = is_kda && c->is_tree ? HB_GATE_LOWER_BOUND : HB_GATE_STANDARD,
        .gate_softplus = 1,
        .gate_bound = -5.0f,
        .qk_scale = 0.3f,
        .qkv = random_acts(c, N_TOKENS * (inner + 2 * keys)),
        .gates = random_acts(c, N_TOKENS * (n_a + heads)),
        .a = random_floats(c, heads, -2.0f, -0.1f),
        .dt_bias = random_floats(c, n_a, -1.0f, 1.0f)};
}

static void make_gdn(struct verify_case *c) {
    make_delta(c, 0);
}

static void make_kda(struct verify_case *c) {
    make_delta(c, 1);
}

static int32_t delta_step(struct verify_case *c, const struct decode *decode) {
    struct hb_k_delta step = c->args.delta;
    BECOME_STEP(step, decode);
    step.state_dtype = decode->state_dtype;
    return c->rig.k->delta_update(&step);
}

static int32_t delta_verify(struct verify_case *c) {
    const struct hb_k_delta_verify args = {.delta = c->args.delta, DRAFTS(c), .states = c->entries};
    return c->rig.k->delta_verify(&args);
}

static const struct verify_kind delta_kinds[2] = {{make_gdn, delta_verify, delta_step},
                                                  {make_kda, delta_verify, delta_step}};

static void nodes_equal_decode_steps_along_their_path(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        nodes_equal_decode_steps(&delta_kinds[i], shapes, N_CASES);
    }
}

static void a_chain_given_as_a_tree_is_the_chain_with_fp32_states(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        chain_as_a_tree_is_the_chain(&delta_kinds[i], shapes);
    }
}

#ifdef HB_DEFECTS
static void decay_by_the_first_channel_shows_in_verifies_of_kda(void **state) {
    (void)state;
    for (int is_kda = 0; is_kda < 2; is_kda++) {
        assert_int_equal(
            shows_in_verify(&delta_kinds[is_kda], squares, 0, HB_DEFECT_KDA_DECAY_SCALAR), is_kda);
    }
}
#endif

static void state_that_a_thread_cannot_hold_is_refused(void **state) {
    (void)state;
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        struct verify_case c;
        assert_true(open_case(&c, CASES_PER_SHAPE / HB_N_FORMS * form, shapes));
        make_gdn(&c);
        c.args.delta.state_size = 257;
        assert_int_equal(delta_verify(&c), HB_ERR_DEVICE);
        assert_non_null(strstr(c.rig.k->error_text(), "state_size 257"));
        close_case(&c);
    }
}

static void nothing_to_do_launches_nothing(void **state) {
    (void)state;
    struct verify_case c;
    assert_true(open_case(&c, 0, shapes));
    make_gdn(&c);
    c.args.delta.rows.n_rows = 0;
    const uint64_t before = c.rig.k->launches();
    assert_int_equal(delta_verify(&c), HB_OK);
    assert_int_equal(c.rig.k->delta_update(&c.args.delta), HB_OK);
    assert_int_equal(c.rig.k->delta_prefill(&c.args.delta), HB_OK);
    assert_int_equal(c.rig.k->launches(), before);
    close_case(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_equal_decode_steps_along_their_path),
        cmocka_unit_test(a_chain_given_as_a_tree_is_the_chain_with_fp32_states),
        cmocka_unit_test(state_that_a_thread_cannot_hold_is_refused),
        cmocka_unit_test(nothing_to_do_launches_nothing),
#ifdef HB_DEFECTS
        cmocka_unit_test(decay_by_the_first_channel_shows_in_verifies_of_kda),
#endif
    };
    return cmocka_run_group_tests_name("delta_verify", tests, NULL, NULL);
}
