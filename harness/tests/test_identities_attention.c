/* SPDX-License-Identifier: Apache-2.0
 * Invariances of attention (ops-attention.md 5) on the emulated backend and in the oracle that are
 * no relation of two runs of one case. Each is silent on the right backend and not on a wrong one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/defects.h"
#include "harness/tests/identity_rig.h"
#include "harness/tests/mischief.h"

enum { DIM = 8, WINDOW = 6, LATE = ID_PREFIX + ID_PROMPT - 1 };

/* One attention layer. Variants by the bits of k: kernel form, activation type, window, cap. */
enum { ATTENTION_FORMS = 16 };
static void attention_case(struct identity *x, int32_t k) {
    identity_case(x, HB_MIXER_MAMBA2, ID_PREFIX);
    struct hb_case_config *g = &x->c.config;
    g->attn_mask = 1;
    g->q_heads = 4;
    g->kv_heads = 2;
    g->attn_dim = DIM;
    identity_form(x, k & 3);
    g->attn_window = k & 4 ? WINDOW : 0;
    g->attn_softcap = k & 8 ? 2 : 0;
}

/* Output elements of tokens from..last whose bits, or whose oracles, differ. */
static int64_t bits_apart(const struct identity *a, const struct identity *b, int32_t from,
                          int32_t last) {
    int64_t n = a->width != b->width;
    for (int32_t t = from; t <= last; t++) {
        for (int32_t i = 0; i < a->width; i++) {
            n += a->out[t][i] != b->out[t][i] || a->want[t][i] != b->want[t][i];
        }
    }
    return n;
}

/* --- pages ------------------------------------------------------------------------------------ */

static int64_t pages_apart(const struct hb_adapter *backend, int32_t form, int32_t page,
                           int32_t order, int32_t defect) {
    struct identity x[2];
    for (int32_t k = 0; k < 2; k++) {
        attention_case(&x[k], form);
        identity_steps(&x[k], ID_PROMPT, 2);
        x[k].c.config.seed = 3; /* whose shuffled pages are no neighbours */
        x[k].c.config.kv_page = k ? page : HB_KV_PAGE_1;
        x[k].c.config.page_order = k ? order : HB_PAGES_SHUFFLED;
        x[k].defect = k ? defect : 0;
        identity_run(&x[k], k ? backend : hb_adapter_emu());
    }
    return bits_apart(&x[0], &x[1], ID_PREFIX, ID_TOKENS - 1);
}

static void pages_and_their_order_change_no_bit(void **state) {
    (void)state;
    struct mischief m;
    for (int32_t k = 0; k < ATTENTION_FORMS * HB_N_KV_PAGES; k++) {
        for (int32_t order = 0; order < HB_N_PAGE_ORDERS; order++) {
            const int32_t form = k / HB_N_KV_PAGES, page = k % HB_N_KV_PAGES;
            assert_int_equal(pages_apart(hb_adapter_emu(), form, page, order, 0), 0);
        }
    }
    assert_true(pages_apart(mischief_init(&m, MISCHIEF_LAST_BIT, 0), 0, 1, 1, 0) > 0);
    if (identity_has_defects()) {
        assert_true(pages_apart(hb_adapter_emu(), 0, HB_KV_PAGE_16, HB_PAGES_SHUFFLED,
                                HB_DEFECT_PAGE_CROSSING) > 0);
    }
}

/* --- prefixes --------------------------------------------------------------------------------- */

/* The first tokens stand in the cache, or come with the prompt. */
static int64_t prefix_apart(const struct hb_adapter *backend, int32_t form) {
    struct identity x[2];
    for (int32_t k = 0; k < 2; k++) {
        attention_case(&x[k], form);
        x[k].first = x[k].c.step[0].prefix = k ? 0 : ID_PREFIX;
        identity_steps(&x[k], k ? ID_PREFIX + ID_PROMPT : ID_PROMPT, 2);
        identity_run(&x[k], k ? backend : hb_adapter_emu());
    }
    x[1].n_tokens -= ID_PREFIX; /* those that both have */
    return runs_apart(&x[0], &x[1]);
}

static void a_prefix_is_as_good_as_its_tokens(void **state) {
    (void)state;
    struct mischief m;
    for (int32_t k = 0; k < ATTENTION_FORMS; k++) {
        assert_int_equal(prefix_apart(hb_adapter_emu(), k), 0);
    }
    assert_true(prefix_apart(mischief_init(&m, MISCHIEF_OUTPUT, 0), 0) > 0);
}

/* --- heads ------------------------------------------------------------------------------------ */

/* arg 1: as many kv heads as query heads, each in place of the one that it shared. */
static void repeat_heads(struct identity *x, const struct hb_value_key *key, int32_t n,
                         float *out) {
    float heads[ID_WIDTH];
    const int32_t q = x->c.config.q_heads, shared = q / 2;
    if (x->arg == 0 || (key->tensor != HB_TENSOR_K && key->tensor != HB_TENSOR_V)) {
        return;
    }
    assert_int_equal(n, q * DIM);
    memcpy(heads, out, sizeof heads[0] * (size_t)(shared * DIM));
    for (int32_t i = 0; i < n; i++) {
        out[i] = heads[i / DIM / (q / shared) * DIM + i % DIM];
    }
}

static int64_t heads_apart(const struct hb_adapter *backend, int32_t form, int32_t defect) {
    struct identity x[2];
    for (int32_t k = 0; k < 2; k++) {
        attention_case(&x[k], form);
        identity_steps(&x[k], ID_PROMPT, 2);
        x[k].c.config.kv_heads = k ? 4 : 2;
        x[k].bend = repeat_heads;
        x[k].arg = k;
        x[k].defect = defect; /* shows where heads are shared */
        identity_run(&x[k], k ? backend : hb_adapter_emu());
    }
    for (int32_t i = 0; i < 4 * DIM; i++) { /* the keys of head 1 are those of head 0 */
        assert_true(x[1].in[1][ID_PREFIX][i] == x[0].in[1][ID_PREFIX][i / DIM / 2 * DIM + i % DIM]);
    }
    return bits_apart(&x[0], &x[1], ID_PREFIX, ID_TOKENS - 1);
}

static void shared_heads_are_repeated_heads_bit_by_bit(void **state) {
    (void)state;
    struct mischief m;
    for (int32_t k = 0; k < ATTENTION_FORMS; k++) {
        assert_int_equal(heads_apart(hb_adapter_emu(), k, 0), 0);
    }
    assert_true(heads_apart(mischief_init(&m, MISCHIEF_LAST_BIT, 0), 0, 0) > 0);
    if (identity_has_defects()) {
        assert_true(heads_apart(hb_adapter_emu(), 0, HB_DEFECT_ATTN_GQA_MODULO) > 0);
    }
}

/* --- masked keys ------------------------------------------------------------------------------ */

/* arg: what key and value of the last token of the prompt, or of the prefix, hold; 0: as ever. */
static void spoil(struct identity *x, const struct hb_value_key *key, int32_t n, float *out) {
    const int32_t at = x->c.config.attn_window > 0 && x->arg > 2 ? ID_PREFIX - 1 : LATE;
    const float with = x->arg & 1 ? NAN : INFINITY;
    if (x->arg > 0 && key->position == at &&
        (key->tensor == HB_TENSOR_K || key->tensor == HB_TENSOR_V)) {
        for (int32_t i = 0; i < n; i++) {
            out[i] = with;
        }
    }
}

/* Tokens before the last one do not see it; those a window behind the prefix do not see that. */
static int64_t masked_apart(const struct hb_adapter *backend, int32_t form, int32_t arg,
                            int32_t defect) {
    struct identity x[2];
    for (int32_t k = 0; k < 2; k++) {
        attention_case(&x[k], form);
        identity_steps(&x[k], ID_PROMPT, 0);
        x[k].bend = spoil;
        x[k].arg = k ? arg : 0;
        x[k].defect = k ? defect : 0;
        identity_run(&x[k], k ? backend : hb_adapter_emu());
    }
    const int is_old = arg > 2 && x[0].c.config.attn_window > 0;
    return bits_apart(&x[0], &x[1], is_old ? ID_PREFIX - 1 + WINDOW : ID_PREFIX,
                      is_old ? LATE : LATE - 1);
}

static void masked_keys_may_hold_anything(void **state) {
    (void)state;
    struct mischief m;
    for (int32_t k = 0; k < 4 * ATTENTION_FORMS; k++) {
        assert_int_equal(masked_apart(hb_adapter_emu(), k >> 2, 1 + (k & 3), 0), 0);
    }
    /* the last token reaches the first */
    assert_true(masked_apart(mischief_init(&m, 36, 0), 0, 1, 0) > 0);
    if (identity_has_defects()) {
        assert_true(masked_apart(hb_adapter_emu(), 4, 3, HB_DEFECT_WINDOW_OFF_BY_ONE) > 0);
    }
}

/* arg: the node of the draft whose key and value are no numbers. */
enum { NODES = 6 };
static void spoil_node(struct identity *x, const struct hb_value_key *key, int32_t n, float *out) {
    const int32_t which = key->tensor - HB_TENSOR_Q;
    for (int32_t i = 0; i < n && x->arg > 0 && (which == 1 || which == 2); i++) {
        out[i] = x->n_filled[which] - ID_PREFIX == x->arg ? NAN : out[i];
    }
}

/* Outputs of nodes that do not follow the spoiled one, and how many nodes those are. */
static int64_t tree_apart(const struct hb_adapter *backend, int32_t form, int32_t tree,
                          int32_t spoiled, int32_t *n_nodes) {
    struct identity x[2];
    int32_t parent[HB_MAX_DRAFT] = {0}, follows[HB_MAX_DRAFT] = {0};
    int64_t apart = 0;
    for (int32_t k = 0; k < 2; k++) {
        attention_case(&x[k], form);
        x[k].c.config.max_draft = NODES;
        struct hb_case_step *s = hand_forward(&x[k].c, HB_MODE_TARGET_VERIFY);
        s->tree = HB_TREE_RANDOM + tree;
        hand_row(s, 0, NODES);
        x[k].bend = spoil_node;
        x[k].arg = k ? spoiled : 0;
        identity_run(&x[k], k ? backend : hb_adapter_emu());
        hb_case_tree(&x[k].c, s, 0, NODES, parent);
    }
    assert_int_equal(x[0].n_tokens, NODES);
    for (int32_t t = 0; t < NODES; t++) {
        follows[t] = t == spoiled || (t > 0 && follows[parent[t]]);
        *n_nodes += t > spoiled && !follows[t];
        apart += follows[t] ? 0 : bits_apart(&x[0], &x[1], ID_PREFIX + t, ID_PREFIX + t);
    }
    return apart;
}

static void nodes_of_other_branches_may_hold_anything(void **state) {
    (void)state;
    struct mischief m;
    int32_t n_nodes = 0;
    for (int32_t k = 0; k < 16 * ATTENTION_FORMS; k++) {
        const int32_t spoiled = 1 + k % 3;
        assert_int_equal(tree_apart(hb_adapter_emu(), k >> 4, k & 15, spoiled, &n_nodes), 0);
    }
    assert_true(n_nodes > 100); /* that come later and could have read it */
    assert_true(tree_apart(mischief_init(&m, MISCHIEF_LAST_BIT, 0), 0, 0, 1, &n_nodes) > 0);
}

/* --- sums of weights -------------------------------------------------------------------------- */

/* arg 1: a constant vector on all keys moves all logits of a query alike. */
static void shift_keys(struct identity *x, const struct hb_value_key *key, int32_t n, float *out) {
    for (int32_t i = 0; i < n && x->arg && key->tensor == HB_TENSOR_K; i++) {
        out[i] += (float)(i % DIM - 3) * 0.25F;
    }
}

static int64_t shift_apart(const struct hb_adapter *backend, int32_t form) {
    struct identity x[2];
    for (int32_t k = 0; k < 2; k++) {
        attention_case(&x[k], form);
        identity_steps(&x[k], ID_PROMPT, 2);
        x[k].c.config.act_dtype = HB_FP32; /* in which the sums are exact */
        x[k].c.config.attn_softcap = 0;    /* it is not linear */
        x[k].bend = shift_keys;
        x[k].arg = k;
        identity_run(&x[k], k ? backend : hb_adapter_emu());
    }
    return runs_apart(&x[0], &x[1]);
}

static void a_constant_on_all_keys_is_not_seen(void **state) {
    (void)state;
    struct mischief m;
    for (int32_t k = 0; k < ATTENTION_FORMS; k++) {
        assert_int_equal(shift_apart(hb_adapter_emu(), k), 0);
    }
    assert_true(shift_apart(mischief_init(&m, MISCHIEF_OUTPUT, 0), 0) > 0);
}

static void same_values(struct identity *x, const struct hb_value_key *key, int32_t n, float *out) {
    (void)x;
    for (int32_t i = 0; i < n && key->tensor == HB_TENSOR_V; i++) {
        out[i] = (float)(i % 5 - 2) * 0.75F;
    }
}

static int64_t mean_apart(const struct hb_adapter *backend, int32_t form) {
    struct identity x;
    int64_t apart = 0;
    attention_case(&x, form);
    identity_steps(&x, ID_PROMPT, 2);
    x.bend = same_values;
    identity_run(&x, backend);
    for (int32_t t = ID_PREFIX; t < ID_TOKENS; t++) {
        for (int32_t i = 0; i < x.width; i++) {
            const double v = (double)x.in[2][t][i / DIM / 2 * DIM + i % DIM];
            apart += is_apart((double)x.out[t][i], x.want[t][i], x.bound[t][i], v, 0.0);
        }
    }
    return apart;
}

static void values_that_are_all_the_same_come_out(void **state) {
    (void)state;
    struct mischief m;
    for (int32_t k = 0; k < ATTENTION_FORMS; k++) {
        assert_int_equal(mean_apart(hb_adapter_emu(), k), 0);
    }
    assert_true(mean_apart(mischief_init(&m, MISCHIEF_OUTPUT, 0), 0) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_and_their_order_change_no_bit),
        cmocka_unit_test(a_prefix_is_as_good_as_its_tokens),
        cmocka_unit_test(shared_heads_are_repeated_heads_bit_by_bit),
        cmocka_unit_test(masked_keys_may_hold_anything),
        cmocka_unit_test(nodes_of_other_branches_may_hold_anything),
        cmocka_unit_test(a_constant_on_all_keys_is_not_seen),
        cmocka_unit_test(values_that_are_all_the_same_come_out),
    };
    return cmocka_run_group_tests_name("identities of attention", tests, NULL, NULL);
}
