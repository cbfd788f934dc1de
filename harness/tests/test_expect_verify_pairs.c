/* SPDX-License-Identifier: Apache-2.0
 * The order of the rules of a verify: all pairs of recipes, and random batches, against an
 * independent list of predicates, one per rule, tried in ascending number. Every array is an
 * exact-size block, so a sanitizer build also shows that nothing is read too far. */
#include "harness/tests/expect_random.h"
#include "harness/tests/expect_verify_truth.h"

static int32_t agree(const struct fixture *f) {
    struct hb_error e;
    struct truth t = truth_of(f);
    call(f, &e);
    check(&e, t.rule, t.row, t.value, t.limit);
    return e.rule;
}

static void all_pairs_of_rules_report_the_lower_one(void **state) {
    static struct fixture f;
    int pairs = 0;
    int plain = 0;
    (void)state;
    for (int shape = U; shape <= H; shape *= 2) {
        for (int i = 0; i < N_VERIFY_RECIPES; i++) {
            for (int j = 0; j < N_VERIFY_RECIPES; j++) {
                const struct verify_recipe *a = &VERIFY_RECIPES[i];
                const struct verify_recipe *b = &VERIFY_RECIPES[j];
                if (i == j || (a->shapes & shape) == 0 || (b->shapes & shape) == 0) {
                    continue;
                }
                verify_init(&f, shape);
                a->apply(&f);
                b->apply(&f);
                int32_t got = agree(&f);
                pairs++;
                plain += got == (a->rule < b->rule ? a->rule : b->rule);
            }
        }
    }
    print_message("%d pairs, %d report the lower rule of the two\n", pairs, plain);
    assert_true(pairs > 8000);
    assert_true(plain * 100 > pairs * 93); /* some recipes undo each other */
}

static int32_t wild(uint64_t *s) {
    static const int32_t values[] = {0,  1,  2,  3,  4,  5,  6,  7,         8,         9,  10,
                                     12, 16, 17, 31, 32, 63, 64, INT32_MAX, INT32_MIN, -1, -2};
    return values[next_random(s) % (sizeof values / sizeof values[0])];
}

/* The mapping that fits the counts, as long as it stays within the storage of the fixture. */
static void map_if_possible(struct fixture *f) {
    for (int32_t r = 0; r < 3; r++) {
        int32_t nodes = verify_nodes(f, r);
        if (f->req[r] < 0 || f->req[r] >= REQS || f->seq[r] < 0 || f->seq[r] > 16 || nodes < 0 ||
            nodes > 8) {
            return;
        }
    }
    verify_map(f);
}

/* One random change; lengths stay within the storage of the fixture. */
static void mutate(struct fixture *f, uint64_t *s) {
    int32_t *const words[] = {f->req,     f->seq,      f->loc,    f->tokens + 32,
                              f->table,   f->kind + 1, f->next,   f->next,
                              f->sibling, f->sibling,  f->next,   f->sibling,
                              f->layout,  f->layout,   f->mirror, f->cursor};
    int32_t *const scalars[] = {&f->b.batch_size,        &f->b.has_original_batch_size,
                                &f->b.n_tokens,          &f->b.original_batch_size,
                                &f->b.is_dummy,          &f->b.draft_token_num,
                                &f->b.req_to_token_rows, &f->b.req_to_token_cols,
                                &f->config.window_layout,   &f->config.ring_length,
                                &f->config.ring_owner};
    struct hb_i32s *const i32s[] = {&f->b.req_pool_indices,     &f->b.seq_lens,
                                    &f->b.retrieve_next_token,  &f->b.out_cache_loc,
                                    &f->b.ragged_verify_layout, &f->b.retrieve_next_sibling,
                                    &f->b.seq_lens_cpu};
    uint64_t which = next_random(s);
    int32_t *word = NULL;
    switch (next_random(s) % 12) {
    case 0:
        which %= 16;
        word = words[which] + next_random(s) % 6;
        *word = which == 5 ? (int32_t)(next_random(s) % 5) : wild(s);
        return;
    case 1:
        *scalars[which % 11] = wild(s);
        return;
    case 2:
        i32s[which % 7]->len = (int64_t)(next_random(s) % CAP);
        return;
    case 3:
        i32s[which % 7]->data = NULL;
        return;
    case 4:
        f->mask[which % 5] ^= 1;
        return;
    case 5:
        f->b.mamba_track_mask.len = (int64_t)(which % 6);
        return;
    case 6:
        verify_draft(f, (int32_t)(which % 8));
        return;
    case 7:
        if (which & 64 && f->layout[3] == 9) {
            verify_padding(f, (int32_t)(which % 7));
        }
        f->layout[1 + which % 3] ^= which & 32 ? 1 : 0;
        map_if_possible(f);
        return;
    default: /* a small link, mostly in range */
        (which & 1 ? f->next : f->sibling)[next_random(s) % 16] = (int32_t)(which / 2 % 6) - 1;
        return;
    }
}

static void start(struct fixture *f, uint64_t *s) {
    verify_init(f, 1 << next_random(s) % 4);
}

static void random_batches_agree_and_never_read_too_far(void **state) {
    static struct fixture f;
    const struct random_batches verifies = {start, mutate, agree, 0, 4};
    int valid = 0;
    (void)state;
    assert_true(rules_met(&verifies, &f, 88172645463325252U, 100000, &valid) > 34);
    assert_true(valid > 10000);
}

static void batches_of_noise_agree_and_never_read_too_far(void **state) {
    static struct fixture f;
    const struct random_batches verifies = {start, mutate, agree, 0, 60};
    int valid = 0;
    (void)state;
    assert_true(rules_met(&verifies, &f, 1442695040888963407U, 30000, &valid) > 19);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pairs_of_rules_report_the_lower_one),
        cmocka_unit_test(random_batches_agree_and_never_read_too_far),
        cmocka_unit_test(batches_of_noise_agree_and_never_read_too_far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
