/* SPDX-License-Identifier: Apache-2.0
 * The order of the rules of captures and replays: all pairs of recipes, and random batches, against
 * an independent list of predicates. Every array is an exact-size block, so a sanitizer build also
 * shows that nothing is read too far. */
#include "harness/tests/expect_graph_truth.h"
#include "harness/tests/expect_random.h"

static int32_t agree(const struct fixture *f) {
    struct hb_error e;
    struct truth t = graph_truth_of(f);
    call(f, &e);
    check(&e, t.rule, t.row, t.value, t.limit);
    return e.rule;
}

static void all_pairs_of_rules_report_the_lower_one(void **state) {
    static struct fixture f;
    (void)state;
    for (int by = 0; by < 2; by++) {
        int pairs = 0;
        int plain = 0;
        for (int shape = GD; shape <= GI; shape *= 2) {
            for (int k = 0; k < GRAPH_CALLS[by].n * GRAPH_CALLS[by].n; k++) {
                const struct graph_recipe *a = &GRAPH_CALLS[by].recipes[k % GRAPH_CALLS[by].n];
                const struct graph_recipe *b = &GRAPH_CALLS[by].recipes[k / GRAPH_CALLS[by].n];
                if (a == b || (a->shapes & shape) == 0 || (b->shapes & shape) == 0) {
                    continue;
                }
                GRAPH_CALLS[by].init(&f, shape);
                a->apply(&f);
                b->apply(&f);
                int32_t got = agree(&f);
                pairs++;
                plain += got == (a->rule < b->rule ? a->rule : b->rule);
            }
        }
        print_message("%d pairs, %d report the lower rule of the two\n", pairs, plain);
        assert_true(pairs > (by == 0 ? 1000 : 6000));
        assert_true(plain * 100 > pairs * 90); /* some recipes undo each other */
    }
}

static int32_t wild(uint64_t *s) {
    static const int32_t values[] = {0, 1,  2,  3,  4,  5,  6,         7,         8,  9,
                                     1, 12, 16, 31, 32, 64, INT32_MAX, INT32_MIN, -1, -2};
    return values[next_random(s) % (sizeof values / sizeof values[0])];
}

/* The set of one batch size, or the sizes of the graphs. */
static void mutate_graphs(struct fixture *f, uint64_t *s) {
    int32_t rows = 1 + (int32_t)(next_random(s) % MAX_BS);
    switch (next_random(s) % 6) {
    case 0:
        f->graphs.set[rows].is_captured ^= 1;
        return;
    case 1:
        f->graphs.set[rows].has_links ^= 1;
        return;
    case 2:
        f->graphs.set[rows].mode = 2 + (int32_t)(next_random(s) % 4);
        return;
    case 3:
        f->graphs.max_bs = (int32_t)(next_random(s) % 7);
        return;
    default: /* any batch size, with what goes with it */
        f->b.batch_size = rows;
        f->b.n_tokens = rows * (f->b.forward_mode == HB_MODE_TARGET_VERIFY ? NODES : 1);
        f->b.req_pool_indices.len = f->b.seq_lens.len = f->b.seq_lens_cpu.len = rows;
        f->b.mamba_track_mask.len = rows;
        f->b.out_cache_loc.len = f->b.n_tokens;
        f->b.retrieve_next_token.len = f->b.retrieve_next_sibling.len = (int64_t)rows * NODES;
        return;
    }
}

/* One random change; lengths stay within the storage of the fixture. */
static void mutate(struct fixture *f, uint64_t *s) {
    int32_t *const words[] = {f->req,      f->seq,    f->loc,  f->tokens + 32, f->table,
                              f->kind + 1, f->mirror, f->next, f->sibling,     f->cursor};
    int32_t *const scalars[] = {
        &f->b.batch_size,         &f->b.has_num_padding,   &f->b.n_tokens,
        &f->b.num_padding,        &f->b.is_dummy,          &f->b.draft_token_num,
        &f->b.req_to_token_rows,  &f->b.req_to_token_cols, &f->b.forward_mode,
        &f->config.window_layout, &f->config.max_draft,    &f->config.max_batch,
        &f->config.max_tokens,    &f->caps.tree_verify};
    struct hb_i32s *const i32s[] = {&f->b.req_pool_indices,     &f->b.seq_lens,
                                    &f->b.retrieve_next_token,  &f->b.out_cache_loc,
                                    &f->b.ragged_verify_layout, &f->b.retrieve_next_sibling,
                                    &f->b.seq_lens_cpu};
    uint64_t which = next_random(s);
    uint64_t at = next_random(s) % 6;
    switch (next_random(s) % 12) {
    case 0:
    case 1:
        which %= 10;
        words[which][at] = which == 5 ? (int32_t)(next_random(s) % 5) : wild(s);
        return;
    case 2:
        *scalars[which % 14] = wild(s);
        return;
    case 3:
        i32s[which % 7]->len = (int64_t)(next_random(s) % CAP);
        return;
    case 4:
        i32s[which % 7]->data = NULL;
        return;
    case 5:
        f->mask[at] ^= 1;
        f->track[at] = wild(s);
        return;
    case 6:
        f->b.mamba_track_mask.len = (int64_t)at;
        return;
    case 7:
        f->b.mamba_track_indices.len = (int64_t)(which % 7);
        f->b.mamba_track_indices.data = which % 8 == 0 ? NULL : f->track;
        return;
    case 8: /* padding by the mirror, from some row on */
        f->b.has_num_padding = 0;
        for (uint64_t r = at; r < 5; r++) {
            f->mirror[r] = 1;
        }
        return;
    default:
        mutate_graphs(f, s);
        return;
    }
}

static void start_capture(struct fixture *f, uint64_t *s) {
    GRAPH_CALLS[0].init(f, 1 << next_random(s) % 4);
}

static void start_replay(struct fixture *f, uint64_t *s) {
    GRAPH_CALLS[1].init(f, 1 << next_random(s) % 4);
}

static void random_batches_agree_and_never_read_too_far(void **state) {
    static struct fixture f;
    const struct random_batches captures = {start_capture, mutate, agree, 0, 4};
    const struct random_batches replays = {start_replay, mutate, agree, 0, 4};
    int valid = 0;
    (void)state;
    assert_true(rules_met(&captures, &f, 88172645463325252U, 30000, &valid) > 13);
    assert_true(valid > 5000);
    assert_true(rules_met(&replays, &f, 88172645463325252U, 60000, &valid) > 44);
    assert_true(valid > 10000);
}

static void batches_of_noise_agree_and_never_read_too_far(void **state) {
    static struct fixture f;
    const struct random_batches captures = {start_capture, mutate, agree, 0, 60};
    const struct random_batches replays = {start_replay, mutate, agree, 0, 60};
    int valid = 0;
    (void)state;
    assert_true(rules_met(&captures, &f, 1442695040888963407U, 20000, &valid) > 9);
    assert_true(rules_met(&replays, &f, 1442695040888963407U, 30000, &valid) > 19);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pairs_of_rules_report_the_lower_one),
        cmocka_unit_test(random_batches_agree_and_never_read_too_far),
        cmocka_unit_test(batches_of_noise_agree_and_never_read_too_far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
