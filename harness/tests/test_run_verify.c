/* SPDX-License-Identifier: Apache-2.0
 * The executor on draft verification: right backends pass, each check of a verify and of a commit
 * fires on a fault of its own, and what a commit stands on is the last finished verify. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "harness/tests/mischief.h"
#include "harness/tests/run_cases.h"
#include "harness/tests/spec_cases.h"

/* --- cases ------------------------------------------------------------------------------------ */

static void chain_and_decode(struct hb_case *c) {
    chain(c);
    decode_both(c);
}

static void trees_and_extend(struct hb_case *c) {
    hand_take(c, 2, 3);
    for (int32_t i = 0; i < 3; i++) {
        verify(c, HB_TREE_RANDOM + i, 5, i == 1 ? 3 : 5)->pad_rows = i;
        (void)commit(c, 4 - i, i);
    }
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 1, 10);
}

static void padded_ragged(struct hb_case *c) {
    hand_take(c, 2, 3);
    struct hb_case_step *s = verify(c, HB_TREE_LINKED_CHAIN, 2, 4);
    s->draft = 5;
    s->pad_rows = 2;
    s->pad_tokens = 7;
    s->optional = 8;
    c->config.unread = HB_UNREAD_NAN;
    (void)commit(c, 1, 3);
    decode_both(c);
}

static void tracked_and_restarted(struct hb_case *c) {
    chain(c);
    struct hb_case_row *row = &c->step[c->n_steps - 1].row[0];
    hand_track(row, 0, 0);
    row->track_accept = 2;
    hand_take(c, 3, 0);
    c->step[c->n_steps - 1].from = 0;
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 3, 4);
    hand_row(s, 1, 2);
}

static void twice_and_less(struct hb_case *c) {
    chain(c);
    (void)commit(c, 2, -1);
    commit(c, 0, 1)->n_rows = 1;
    (void)commit(c, -1, -1);
    decode_both(c);
}

static void layers_left_out(struct hb_case *c) {
    chain(c);
    c->step[c->n_steps - 2].layer_mask = 1;
    decode_both(c);
}

/* Everything of a verify that nobody commits is gone with the next forward. */
static void dropped(struct hb_case *c) {
    hand_take(c, 2, 3);
    (void)verify(c, HB_TREE_RANDOM, 4, 4);
    decode_both(c);
    (void)verify(c, HB_TREE_RANDOM, 4, 4);
    decode_both(c);
    (void)commit(c, 0, 0); /* refused */
}

/* The slot of row 0 is given back and taken by another request before the commit. */
static void slot_changes_hands(struct hb_case *c) {
    hand_take(c, 2, 3);
    c->config.spare_slots = 0;
    (void)verify(c, HB_TREE_CHAIN, 3, 3);
    struct hb_case_step *s = hand_step(c, HB_STEP_FREE);
    s->slot = 1;
    (void)commit(c, -1, 2); /* its slot is free: only the other row can move */
    hand_take(c, 4, 0);
    (void)commit(c, 1, 2);
    s = hand_forward(c, HB_MODE_DECODE);
    hand_row(s, 4, 1);
    hand_row(s, 2, 1);
}

static void freed_slot(struct hb_case *c) {
    chain(c);
    struct hb_case_step *s = hand_step(c, HB_STEP_FREE);
    s->slot = 4;
    (void)commit(c, 1, 2);
}

static void draft_extend(struct hb_case *c) {
    hand_take(c, 2, 3);
    (void)verify(c, HB_TREE_CHAIN, 3, 3);
    struct hb_case_step *s = hand_forward(c, HB_MODE_DRAFT_EXTEND_V2);
    hand_row(s, 1, 2);
    (void)commit(c, 1, 2); /* refused: the begin has ended the verify */
    decode_both(c);
}

static void wrapper_entry(struct hb_case *c) {
    hand_take(c, 2, 3);
    struct hb_case_step *s = verify(c, HB_TREE_RANDOM, 4, 4);
    s->kind = HB_STEP_ENTRY;
    s->target = HB_ENTRY_WRAPPER;
    s->layer = 2;
    (void)commit(c, 1, 2);
}

static void no_speculation(struct hb_case *c) {
    chain(c);
    c->config.max_draft = 0;
}

static void (*const right[])(struct hb_case *c) = {
    chain,          chain_and_decode, trees_and_extend, padded_ragged,      tracked_and_restarted,
    twice_and_less, layers_left_out,  dropped,          slot_changes_hands, freed_slot,
    draft_extend,   wrapper_entry,    no_speculation};
enum { N_RIGHT = sizeof right / sizeof *right };

/* --- right backends --------------------------------------------------------------------------- */

static void every_history_passes(void **state) {
    (void)state;
    for (size_t i = 0; i < N_RIGHT; i++) {
        for (int k = 0; k < 8; k++) {
            struct hb_case c;
            make(right[i], &c);
            c.config.kernel_form = k & 1;
            c.config.act_dtype = k >> 1 & 1;
            c.config.state_dtype = k >> 2 & 1;
            struct hb_verdict v = run(hb_adapter_emu(), &c, 0, 0);
            assert_pass(&v);
            v = run(hb_adapter_oracle(), &c, 0, 0);
            assert_pass(&v);
        }
    }
}

/* Calls in their order, as predicted. */
struct calls {
    int32_t n;
    char name[64][12];
    int32_t rule[64];
};

static void note(void *ctx, int32_t step, const char *call, const struct hb_error *want) {
    struct calls *k = ctx;
    (void)step;
    if (k->n < 64 && (strcmp(call, "commit") == 0 || want->status != HB_OK)) {
        (void)snprintf(k->name[k->n], sizeof k->name[k->n], "%s", call);
        k->rule[k->n++] = want->rule;
    }
}

static struct calls predicted(void (*build)(struct hb_case *c)) {
    struct calls k = {0};
    struct hb_case c;
    struct hb_verdict v;
    make(build, &c);
    const struct hb_run_options o = {.tamper_element = -1, .predicted = note, .predicted_ctx = &k};
    assert_int_equal(hb_run_case(hb_adapter_oracle(), &c, &o, &v, NULL), 0);
    assert_pass(&v);
    return k;
}

static void a_commit_stands_on_the_last_finished_verify(void **state) {
    (void)state;
    struct calls k = predicted(twice_and_less);
    assert_int_equal(k.n, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(k.rule[i], HB_RULE_NONE);
    }
    k = predicted(dropped);
    assert_true(k.n == 1 && k.rule[0] == HB_RULE_NO_VERIFY);
    k = predicted(slot_changes_hands);
    assert_true(k.n == 2 && k.rule[0] == HB_RULE_NONE && k.rule[1] == HB_RULE_COMMIT_SLOT_STALE);
    k = predicted(freed_slot);
    assert_true(k.n == 2 && k.rule[0] == HB_RULE_NONE && k.rule[1] == HB_RULE_COMMIT_SLOT_FREED);
}

static void without_caches_a_verify_is_refused(void **state) {
    (void)state;
    struct calls k = predicted(no_speculation);
    assert_int_equal(k.n, 2);
    assert_string_equal(k.name[0], "begin");
    assert_string_equal(k.name[1], "commit");
    assert_int_equal(k.rule[1], HB_RULE_NO_VERIFY);
}

/* Layers, finish and commit after a begin that leaves no metadata. */
static void draft_extend_leaves_no_metadata(void **state) {
    (void)state;
    struct calls k = predicted(draft_extend);
    assert_int_equal(k.n, 5);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(k.name[i], i < 3 ? "layer" : "finish");
        assert_int_equal(k.rule[i], HB_RULE_NO_METADATA);
    }
    assert_int_equal(k.rule[4], HB_RULE_NO_VERIFY);
}

/* A refused begin between verify and commit changes nothing. */
static void a_refused_begin_keeps_the_verify(void **state) {
    (void)state;
    struct hb_case c;
    make(tracked_and_restarted, &c);
    c.config.relation = 8;
    struct hb_run_stats stats = {0};
    struct hb_verdict v;
    assert_int_equal(hb_run_case(hb_adapter_emu(), &c, NULL, &v, &stats), 0);
    assert_pass(&v);
    assert_int_equal(stats.rule_broken[HB_RULE_MODE_INVALID], 3); /* two forwards and a commit */
}

/* --- faults ----------------------------------------------------------------------------------- */

struct fault {
    int32_t number, kind;
    void (*build)(struct hb_case *c);
    const char *check, *place, *text;
    int32_t off;
};
/* clang-format off */
static const struct fault faults[] = {
    {MISCHIEF_OUTPUT, HB_VERDICT_NUMERIC, chain, "numeric.mamba2", "TARGET_VERIFY mamba2.y", "step 5 layer 0 row 0 token 0 head 1 element 7", HB_OFF_NUMERIC},
    {MISCHIEF_COMMIT, HB_VERDICT_STATE, chain, "state.commit", "commit conv", "step 6: conv of layer 0 changed at slot 2 element 0", HB_OFF_STATE},
    {MISCHIEF_FREE_SLOT, HB_VERDICT_STATE, chain, "verify.pool", "TARGET_VERIFY temporal", "temporal of layer 0 changed at slot 7 element 0", HB_OFF_STATE},
    {MISCHIEF_PADDING, HB_VERDICT_STATE, padded_ragged, "output.padding", "TARGET_VERIFY", "output of padding token 6 channel 0 is 1, want 0", HB_OFF_STATE},
    {4, HB_VERDICT_PURITY, dropped, "error.purity", "commit conv", "conv of layer 0 changed at slot 0 element 0", HB_OFF_PURITY},
    {7, HB_VERDICT_PURITY, chain, "batch.written", "commit", "commit wrote into its arguments", 0},
    {19, HB_VERDICT_STATUS, freed_slot, "status", "commit commit want-rule-112", "predicted HB_ERR_FREED", HB_OFF_STATUS},
};
/* clang-format on */

static void each_check_fires_on_its_fault_and_not_when_it_is_off(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const struct fault *f = &faults[i];
        struct hb_case c;
        struct mischief m;
        make(f->build, &c);
        const struct hb_adapter *wrong =
            mischief_init(&m, f->number, f->number == 7); /* 7: variant 1 */
        struct hb_verdict v = run(wrong, &c, 0, 0);
        assert_string_equal(v.text[0] ? v.check : "nothing was noticed", f->check);
        assert_int_equal(v.kind, f->kind);
        assert_string_equal(v.place, f->place);
        if (!strstr(v.text, f->text)) {
            fail_msg("'%s' does not say '%s'", v.text, f->text);
        }
        if (f->off) {
            v = run(wrong, &c, f->off, 0);
            assert_pass(&v);
        }
    }
}

/* One element of a window, of a state and of an output, made wrong in the comparison itself. */
static void small_errors_of_nodes_are_noticed(void **state) {
    (void)state;
    static const char *const checks[] = {"numeric.mamba2", "verify.intermediate",
                                         "verify.intermediate"};
    struct hb_case c;
    make(chain, &c);
    c.config.value_class = HB_VALUES_ONE_SIGN;
    c.config.gate_norm = HB_GATE_NORM_NONE;
    for (int32_t kind = 0; kind < 3; kind++) {
        const struct hb_run_options o = {
            .tamper_element = 7, .tamper_factor = 1.0 + 0x1p-10, .tamper_kind = kind};
        struct hb_verdict v;
        assert_int_equal(hb_run_case(hb_adapter_emu(), &c, &o, &v, NULL), 0);
        assert_string_equal(v.text[0] ? v.check : "nothing was noticed", checks[kind]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_history_passes),
        cmocka_unit_test(a_commit_stands_on_the_last_finished_verify),
        cmocka_unit_test(without_caches_a_verify_is_refused),
        cmocka_unit_test(draft_extend_leaves_no_metadata),
        cmocka_unit_test(a_refused_begin_keeps_the_verify),
        cmocka_unit_test(each_check_fires_on_its_fault_and_not_when_it_is_off),
        cmocka_unit_test(small_errors_of_nodes_are_noticed),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
