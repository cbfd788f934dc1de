/* SPDX-License-Identifier: Apache-2.0
 * The prediction of commit (speculative.md section 5): each rule alone, all pairs of rules, and
 * random commits, against an independent list of predicates. Arrays are exact-size blocks. */
#include "harness/tests/expect_common.h"
#include "harness/tests/expect_random.h"

#include <stdlib.h>
#include <string.h>

enum { CAP = 12, B = 4, R = 3 };

/* Slots 1..4 live, 5 in the tree, 6 and 7 track, 8 free; rows 0..2 verified slots 1..3. */
struct scene {
    struct hb_config config;
    struct hb_caps caps;
    struct hb_slot_model slots;
    int32_t kind[NS + 1], free_list[NS], cursor[NS + 1], table[REQS];
    int64_t generation[NS + 1], row_generation[R];
    struct hb_verify_phase verify;
    int32_t row_slot[R], nodes[R];
    struct hb_commit c;
    int32_t step[CAP], track_step[CAP];
    int64_t dst[CAP];
    int c_null;
};

static void scene_init(struct scene *s) {
    static const int32_t kinds[NS + 1] = {HB_SLOT_RESERVED, HB_SLOT_LIVE,  HB_SLOT_LIVE,
                                          HB_SLOT_LIVE,     HB_SLOT_LIVE,  HB_SLOT_TREE,
                                          HB_SLOT_TRACK,    HB_SLOT_TRACK, HB_SLOT_FREE};
    static const int32_t step[B] = {3, -1, 2, 99};
    static const int32_t track_step[B] = {0, -1, 2, 99};
    static const int64_t dst[B] = {6, -5, 7, 0};
    memset(s, 0, sizeof *s);
    fixture_config(&s->config, &s->caps);
    memcpy(s->kind, kinds, sizeof kinds);
    s->slots = (struct hb_slot_model){.n_slots = NS,
                                      .kind = s->kind,
                                      .free_list = s->free_list,
                                      .n_free = 1,
                                      .generation = s->generation,
                                      .write_pos = s->cursor,
                                      .req_pool_size = REQS,
                                      .table = s->table};
    memcpy(s->row_slot, (const int32_t[R]){1, 2, 3}, sizeof s->row_slot);
    memcpy(s->nodes, (const int32_t[R]){4, 2, 3}, sizeof s->nodes);
    for (int r = 0; r < R; r++) {
        s->row_generation[r] = s->generation[r + 1] = 7 - r;
    }
    s->verify = (struct hb_verify_phase){1, B, R, s->row_slot, s->row_generation, s->nodes};
    memcpy(s->step, step, sizeof step);
    memcpy(s->track_step, track_step, sizeof track_step);
    memcpy(s->dst, dst, sizeof dst);
    s->c = (struct hb_commit){.struct_size = sizeof s->c,
                              .n_rows = B,
                              .step = {s->step, B},
                              .track_indices = {s->dst, B},
                              .track_steps = {s->track_step, B}};
}

static void *exact(const void *data, int64_t len, size_t item) {
    size_t bytes = len > 0 ? (size_t)len * item : 0;
    if (data == NULL) {
        return NULL;
    }
    void *block = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(block);
    memcpy(block, data, bytes);
    return block;
}

static void call(const struct scene *s, struct hb_error *e) {
    struct hb_commit c = s->c;
    int32_t *step = exact(c.step.data, c.step.len, sizeof *step);
    int64_t *dst = exact(c.track_indices.data, c.track_indices.len, sizeof *dst);
    int32_t *track_step = exact(c.track_steps.data, c.track_steps.len, sizeof *track_step);
    c.step.data = step;
    c.track_indices.data = dst;
    c.track_steps.data = track_step;
    struct virtual_slots hidden;
    const struct hb_slot_model ids = virtual_model(&s->slots, &hidden);
    struct hb_error again;
    memset(e, 0x5a, sizeof *e);
    hb_expect_commit(&s->config, &s->verify, &s->slots, s->c_null ? NULL : &c, e);
    hb_expect_commit(&s->config, &s->verify, &ids, s->c_null ? NULL : &c, &again);
    same_error(&again, e);
    free(step);
    free(dst);
    free(track_step);
}

/* ---- recipes ---- */

struct recipe {
    int32_t rule;
    void (*apply)(struct scene *s);
    int32_t row;
    int64_t value, limit;
};

#define WAY(name, ...)                                                                             \
    static void way_##name(struct scene *s) {                                                      \
        __VA_ARGS__;                                                                               \
    }
WAY(no_verify, s->verify = (struct hb_verify_phase){0, 9, 9, NULL, NULL, NULL})
WAY(no_commit, s->c_null = 1)
WAY(no_step, s->c.step.data = NULL)
WAY(no_track_steps, s->c.track_steps.data = NULL)
WAY(negative, s->c.n_rows = -1)
WAY(more_rows, s->c.n_rows = 5)
WAY(short_step, s->c.step.len = 3)
WAY(long_dst, s->c.track_indices.len = 5)
WAY(short_track, s->c.track_steps.len = 0)
WAY(step_high, s->step[2] = 3)
WAY(step_huge, s->step[0] = INT32_MAX)
WAY(dst_zero, s->dst[0] = 0)
WAY(dst_high, s->dst[2] = NS + 1)
WAY(dst_wraps, s->dst[0] = (INT64_C(1) << 32) + 6)
WAY(dst_negative, s->dst[2] = INT64_MIN)
WAY(track_high, s->track_step[1] = 2; s->dst[1] = 6; s->dst[0] = 7; s->track_step[2] = -1)
WAY(track_high_first, s->track_step[0] = 4)
WAY(row_freed, s->kind[3] = HB_SLOT_FREE)
WAY(row_freed_tracked, s->kind[1] = HB_SLOT_FREE; s->step[0] = -1)
WAY(dst_freed, s->dst[2] = 8)
WAY(row_stale, s->generation[3]++)
WAY(row_stale_tracked, s->generation[1] += 2; s->step[0] = -1)
WAY(dst_shared, s->dst[0] = 7)
WAY(dst_live, s->dst[0] = 4)
WAY(dst_own, s->dst[2] = 3)
WAY(dst_tree, s->dst[2] = 5)
#undef WAY

static const struct recipe RECIPES[] = {
    {14, way_no_verify, -1, 0, 0},
    {31, way_no_commit, -1, 0, 0},
    {32, way_no_step, -1, 0, 4},
    {33, way_no_track_steps, -1, 0, 0},
    {65, way_negative, -1, -1, 4},
    {65, way_more_rows, -1, 5, 4},
    {66, way_short_step, 0, 3, 4},
    {66, way_long_dst, 1, 5, 4},
    {66, way_short_track, 2, 0, 4},
    {104, way_step_high, 2, 3, 2},
    {104, way_step_huge, 0, INT32_MAX, 3},
    {105, way_dst_zero, 0, 0, 8},
    {105, way_dst_high, 2, 9, 8},
    {105, way_dst_wraps, 0, (INT64_C(1) << 32) + 6, 8},
    {105, way_dst_negative, 2, INT64_MIN, 8},
    {106, way_track_high, 1, 2, 1},
    {106, way_track_high_first, 0, 4, 3},
    {112, way_row_freed, 2, 3, 0},
    {112, way_row_freed_tracked, 0, 1, 0},
    {113, way_dst_freed, 2, 8, 0},
    {115, way_row_stale, 2, 3, 0},
    {115, way_row_stale_tracked, 0, 1, 0},
    {123, way_dst_shared, 2, 7, 0},
    {133, way_dst_live, 0, 4, 0},
    {133, way_dst_own, 2, 3, 0},
    {133, way_dst_tree, 2, 5, 0},
};
enum { N_RECIPES = (int)(sizeof RECIPES / sizeof RECIPES[0]) };

static void commit_is(const struct scene *s, int32_t rule, int32_t row, int64_t value,
                      int64_t limit) {
    struct hb_error e;
    call(s, &e);
    check(&e, rule, row, value, limit);
}

static void each_rule_alone_reports_row_value_and_limit(void **state) {
    static struct scene s;
    (void)state;
    scene_init(&s);
    commit_is(&s, 0, -1, 0, 0);
    for (int i = 0; i < N_RECIPES; i++) {
        scene_init(&s);
        RECIPES[i].apply(&s);
        commit_is(&s, RECIPES[i].rule, RECIPES[i].row, RECIPES[i].value, RECIPES[i].limit);
    }
}

/* ---- what stays silent ---- */

static void a_commit_of_no_rows_needs_only_a_verify(void **state) {
    static struct scene s;
    (void)state;
    scene_init(&s);
    s.c = (struct hb_commit){.struct_size = sizeof s.c};
    commit_is(&s, 0, -1, 0, 0);
    s.verify = (struct hb_verify_phase){1, 0, 0, NULL, NULL, NULL};
    commit_is(&s, 0, -1, 0, 0);
    s.c.n_rows = 1;
    s.c.step = (struct hb_i32s){s.step, 1};
    commit_is(&s, 65, -1, 1, 0);
    s.verify.has_verify = 0;
    commit_is(&s, 14, -1, 0, 0);
    s.c.n_rows = 0;
    s.c.step.data = NULL; /* absent: its length does not count */
    s.c.step.len = 7;
    s.verify.has_verify = 1;
    commit_is(&s, 0, -1, 0, 0);
    s.c.step.data = s.step;
    commit_is(&s, 66, 0, 7, 0);
}

static void untouched_rows_may_hold_anything(void **state) {
    static struct scene s;
    (void)state;
    scene_init(&s);
    s.step[0] = s.step[2] = INT32_MIN;
    s.track_step[0] = s.track_step[2] = -1;
    s.dst[0] = s.dst[2] = INT64_MAX;
    s.kind[0] = s.kind[1] = s.kind[2] = s.kind[3] = HB_SLOT_FREE;
    commit_is(&s, 0, -1, 0, 0);
    s.track_step[0] = 0; /* the row's slot is looked at for its checkpoint too */
    s.dst[0] = 6;
    commit_is(&s, 112, 0, 1, 0);
}

static void without_track_indices_track_steps_are_not_looked_at(void **state) {
    static struct scene s;
    (void)state;
    scene_init(&s);
    s.c.track_indices = (struct hb_i64s){NULL, 99};
    s.track_step[0] = 77;
    s.c.track_steps.len = 1;
    commit_is(&s, 0, -1, 0, 0);
    s.c.track_steps = (struct hb_i32s){NULL, -3};
    commit_is(&s, 0, -1, 0, 0);
}

static void fewer_rows_than_the_verify_leave_the_others_out(void **state) {
    static struct scene s;
    (void)state;
    scene_init(&s);
    way_dst_shared(&s); /* rows 0 and 2 */
    s.c.n_rows = 2;
    s.c.step.len = s.c.track_indices.len = s.c.track_steps.len = 2;
    commit_is(&s, 0, -1, 0, 0);
}

/* An untouched row may be anybody's by now, and a destination may have been given out anew. */
static void only_rows_that_a_commit_writes_must_be_the_same(void **state) {
    static struct scene s;
    (void)state;
    scene_init(&s);
    s.generation[2]++; /* row 1: no step, no checkpoint */
    s.generation[6]++;
    s.generation[7] = 99;
    commit_is(&s, 0, -1, 0, 0);
    s.track_step[1] = 0;
    s.dst[1] = 7;
    s.track_step[2] = -1;
    commit_is(&s, 115, 1, 2, 0);
    s.kind[2] = HB_SLOT_FREE; /* not given out again */
    commit_is(&s, 112, 1, 2, 0);
}

/* A slot that became a checkpoint is taken as it is. */
static void a_slot_is_refused_only_while_it_is_free(void **state) {
    static struct scene s;
    (void)state;
    scene_init(&s);
    s.kind[1] = HB_SLOT_TREE;
    s.row_slot[2] = 0; /* a dummy row */
    s.row_generation[2] = 0;
    commit_is(&s, 0, -1, 0, 0);
}

static void the_last_node_of_a_row_may_be_committed_and_tracked(void **state) {
    static struct scene s;
    (void)state;
    scene_init(&s);
    for (int r = 0; r < R; r++) {
        s.step[r] = s.track_step[r] = s.nodes[r] - 1;
    }
    s.track_step[1] = -1;
    commit_is(&s, 0, -1, 0, 0);
    s.step[1]++;
    commit_is(&s, 104, 1, 2, 1);
}

/* ---- the order of the rules ---- */

struct truth {
    int32_t rule, row;
};

/* The lowest row that breaks `rule`, or -1; shapes are known to fit. */
static int32_t first_row(const struct scene *s, int32_t rule) {
    for (int32_t r = 0; r < s->c.n_rows && r < s->verify.real_rows; r++) {
        int32_t step = s->c.step.data[r];
        int tracked = s->c.track_indices.data != NULL && s->c.track_steps.data[r] >= 0;
        int32_t track_step = tracked ? s->c.track_steps.data[r] : -1;
        int64_t dst = tracked ? s->c.track_indices.data[r] : -1;
        int in_pool = dst >= 1 && dst <= NS;
        int shared = 0;
        for (int32_t o = 0; o < r && tracked; o++) {
            shared |= s->c.track_steps.data[o] >= 0 && s->c.track_indices.data[o] == dst;
        }
        int freed = s->slots.kind[s->verify.slots[r]] == HB_SLOT_FREE;
        if ((rule == 104 && step >= s->verify.nodes[r]) || (rule == 105 && tracked && !in_pool) ||
            (rule == 106 && track_step >= s->verify.nodes[r]) ||
            (rule == 112 && freed && (step >= 0 || tracked)) ||
            (rule == 113 && in_pool && s->slots.kind[dst] == HB_SLOT_FREE) ||
            (rule == 115 && (step >= 0 || tracked) &&
             s->generation[s->row_slot[r]] > s->row_generation[r]) ||
            (rule == 123 && shared) ||
            (rule == 133 && in_pool && s->slots.kind[dst] != HB_SLOT_TRACK)) {
            return r;
        }
    }
    return -1;
}

static struct truth truth_of(const struct scene *s) {
    static const int32_t row_rules[] = {104, 105, 106, 112, 113, 115, 123, 133};
    const struct hb_commit *c = &s->c;
    int tracks = c->track_indices.data != NULL;
    if (!s->verify.has_verify || s->c_null) {
        return (struct truth){s->verify.has_verify ? 31 : 14, -1};
    }
    if (c->step.data == NULL && c->n_rows > 0) {
        return (struct truth){32, -1};
    }
    if (tracks && c->track_steps.data == NULL) {
        return (struct truth){33, -1};
    }
    if (c->n_rows < 0 || c->n_rows > s->verify.batch_size) {
        return (struct truth){65, -1};
    }
    if (c->step.data != NULL && c->step.len != c->n_rows) {
        return (struct truth){66, 0};
    }
    if (tracks && c->track_indices.len != c->n_rows) {
        return (struct truth){66, 1};
    }
    if (tracks && c->track_steps.len != c->n_rows) {
        return (struct truth){66, 2};
    }
    for (size_t i = 0; i < sizeof row_rules / sizeof row_rules[0]; i++) {
        int32_t row = first_row(s, row_rules[i]);
        if (row >= 0) {
            return (struct truth){row_rules[i], row};
        }
    }
    return (struct truth){0, -1};
}

static int32_t agree(const struct scene *s) {
    struct hb_error e;
    struct truth t = truth_of(s);
    call(s, &e);
    if (e.rule != t.rule || e.row != t.row) {
        fail_msg("predicted rule %d row %d (%s), truth is rule %d row %d", e.rule, e.row, e.text,
                 t.rule, t.row);
    }
    assert_int_equal(e.status, t.rule == 0 ? HB_OK : hb_rule_status(t.rule));
    return e.rule;
}

static void all_pairs_of_rules_report_the_lower_one(void **state) {
    static struct scene s;
    int pairs = 0;
    int plain = 0;
    (void)state;
    for (int i = 0; i < N_RECIPES; i++) {
        for (int j = 0; j < N_RECIPES; j++) {
            if (i == j) {
                continue;
            }
            scene_init(&s);
            RECIPES[i].apply(&s);
            RECIPES[j].apply(&s);
            int32_t got = agree(&s);
            pairs++;
            plain += got == (RECIPES[i].rule < RECIPES[j].rule ? RECIPES[i].rule : RECIPES[j].rule);
        }
    }
    print_message("%d pairs, %d report the lower rule of the two\n", pairs, plain);
    assert_true(plain * 100 > pairs * 90); /* two recipes may write one field */
}

static int64_t wild(uint64_t *s) {
    static const int64_t values[] = {0, 1,  2,  3,         4,         5,         6,        7,
                                     8, -1, -2, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    return values[next_random(s) % (sizeof values / sizeof values[0])];
}

static void mutate(struct scene *s, uint64_t *seed) {
    struct hb_i32s *const i32s[2] = {&s->c.step, &s->c.track_steps};
    uint64_t at = next_random(seed) % CAP;
    uint64_t which = next_random(seed);
    switch (next_random(seed) % 13) {
    case 0:
        s->c.n_rows = (int32_t)wild(seed);
        return;
    case 1:
        i32s[which % 2]->len = (int64_t)at;
        return;
    case 2:
        i32s[which % 2]->data = NULL;
        return;
    case 3:
        s->c.track_indices.len = (int64_t)at;
        return;
    case 4:
        s->c.track_indices.data = NULL;
        return;
    case 5:
        s->verify.real_rows = (int32_t)(at % (R + 1));
        return;
    case 6:
        s->kind[at % (NS + 1)] = (int32_t)(which % 5);
        return;
    case 7:
        s->dst[at % B] = wild(seed);
        return;
    case 8:
    case 9: /* all arrays together */
        s->c.n_rows = (int32_t)(at % 6);
        s->c.step.len = s->c.track_indices.len = s->c.track_steps.len = s->c.n_rows;
        return;
    case 10:
        s->row_generation[at % R] -= (int64_t)(which % 2);
        return;
    default:
        (which & 1 ? s->step : s->track_step)[at % B] = (int32_t)wild(seed);
        return;
    }
}

static void random_commits_agree_and_never_read_too_far(void **state) {
    static struct scene s;
    static const uint64_t most[2] = {5, 40};
    uint64_t seed = 88172645463325252U;
    (void)state;
    for (int k = 0; k < 2; k++) {
        int seen[256] = {0};
        int distinct = 0;
        for (int i = 0; i < 100000; i++) {
            scene_init(&s);
            for (uint64_t n = next_random(&seed) % most[k]; n > 0; n--) {
                mutate(&s, &seed);
            }
            s.verify.has_verify = next_random(&seed) % 50 != 0;
            seen[agree(&s)]++;
        }
        for (int rule = 0; rule < 256; rule++) {
            distinct += seen[rule] > 0;
        }
        print_message("%d rules met, %d commits valid\n", distinct - 1, seen[0]);
        assert_true(distinct >= 14);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_alone_reports_row_value_and_limit),
        cmocka_unit_test(a_commit_of_no_rows_needs_only_a_verify),
        cmocka_unit_test(untouched_rows_may_hold_anything),
        cmocka_unit_test(without_track_indices_track_steps_are_not_looked_at),
        cmocka_unit_test(fewer_rows_than_the_verify_leave_the_others_out),
        cmocka_unit_test(a_slot_is_refused_only_while_it_is_free),
        cmocka_unit_test(only_rows_that_a_commit_writes_must_be_the_same),
        cmocka_unit_test(the_last_node_of_a_row_may_be_committed_and_tracked),
        cmocka_unit_test(all_pairs_of_rules_report_the_lower_one),
        cmocka_unit_test(random_commits_agree_and_never_read_too_far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
