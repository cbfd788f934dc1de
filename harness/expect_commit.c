/* SPDX-License-Identifier: Apache-2.0
 * Predicted status of a commit (speculative.md section 5): rules in ascending number, then rows
 * ascending. */
#include "harness/expect_internal.h"

enum { ROW_NONE = -1 };

struct view {
    const struct hb_verify_phase *verify;
    const struct hb_slot_model *slots;
    const struct hb_commit *commit;
    int32_t n; /* rows that count: those of the commit that were live in the verify */
};

static int steps(const struct view *v, int32_t r) {
    return v->commit->step.data[r] >= 0;
}

static int tracks(const struct view *v, int32_t r) {
    return v->commit->track_indices.data != NULL && v->commit->track_steps.data[r] >= 0;
}

static int64_t target(const struct view *v, int32_t r) {
    return v->commit->track_indices.data[r];
}

/* COMMIT_STEP_NULL .. COMMIT_LENGTH: from here on the arrays have n_rows entries. */
static int32_t check_arrays(const struct view *v, struct hb_error *e) {
    const struct hb_commit *c = v->commit;
    const int tracked = c->track_indices.data != NULL;
    const struct {
        int counts;
        int64_t len;
    } arrays[3] = {{c->step.data != NULL, c->step.len},
                   {tracked, c->track_indices.len},
                   {tracked, c->track_steps.len}};
    if (c->n_rows > 0 && c->step.data == NULL) {
        return hb_fail(e, HB_RULE_COMMIT_STEP_NULL, ROW_NONE, 0, c->n_rows);
    }
    if (tracked && c->track_steps.data == NULL) {
        return hb_fail(e, HB_RULE_COMMIT_TRACK_STEPS_NULL, ROW_NONE, 0, 0);
    }
    if (c->n_rows < 0 || c->n_rows > v->verify->batch_size) {
        return hb_fail(e, HB_RULE_COMMIT_ROWS, ROW_NONE, c->n_rows, v->verify->batch_size);
    }
    for (int32_t i = 0; i < 3; i++) {
        if (arrays[i].counts && arrays[i].len != c->n_rows) {
            return hb_fail(e, HB_RULE_COMMIT_LENGTH, i, arrays[i].len, c->n_rows);
        }
    }
    return HB_OK;
}

/* One rule about row r: 1 and value and limit filled when it is broken. */
typedef int (*row_check)(const struct view *v, int32_t r, int64_t *value, int64_t *limit);

static int step_outside(const struct view *v, int32_t r, int64_t *value, int64_t *limit) {
    *value = v->commit->step.data[r];
    *limit = (int64_t)v->verify->nodes[r] - 1;
    return *value > *limit;
}

static int target_outside(const struct view *v, int32_t r, int64_t *value, int64_t *limit) {
    *limit = id_count(v->slots);
    *value = tracks(v, r) ? target(v, r) : 1;
    return *value < 1 || *value > *limit;
}

static int track_step_outside(const struct view *v, int32_t r, int64_t *value, int64_t *limit) {
    *value = tracks(v, r) ? v->commit->track_steps.data[r] : -1;
    *limit = (int64_t)v->verify->nodes[r] - 1;
    return *value > *limit;
}

static int slot_freed(const struct view *v, int32_t r, int64_t *value, int64_t *limit) {
    *value = v->verify->slots[r];
    *limit = 0;
    return (steps(v, r) || tracks(v, r)) && kind_of(v->slots, *value) == HB_SLOT_FREE;
}

/* The id belongs to somebody else now: an ABA of slots. */
static int slot_stale(const struct view *v, int32_t r, int64_t *value, int64_t *limit) {
    *value = v->verify->slots[r];
    *limit = 0;
    return (steps(v, r) || tracks(v, r)) &&
           v->slots->generation[*value] != v->verify->generations[r];
}

static int target_freed(const struct view *v, int32_t r, int64_t *value, int64_t *limit) {
    *value = tracks(v, r) ? target(v, r) : 0;
    *limit = 0;
    return tracks(v, r) && kind_of(v->slots, *value) == HB_SLOT_FREE;
}

static int target_shared(const struct view *v, int32_t r, int64_t *value, int64_t *limit) {
    for (int32_t earlier = 0; earlier < r && tracks(v, r); earlier++) {
        if (tracks(v, earlier) && target(v, earlier) == target(v, r)) {
            *value = target(v, r);
            *limit = earlier;
            return 1;
        }
    }
    return 0;
}

static int target_wrong_kind(const struct view *v, int32_t r, int64_t *value, int64_t *limit) {
    *value = tracks(v, r) ? target(v, r) : 0;
    *limit = 0;
    return tracks(v, r) && kind_of(v->slots, *value) != HB_SLOT_TRACK;
}

static const struct {
    int32_t rule;
    row_check broken;
} ROW_CHECKS[] = {
    {HB_RULE_COMMIT_STEP_RANGE, step_outside},
    {HB_RULE_COMMIT_TRACK_SLOT, target_outside},
    {HB_RULE_COMMIT_TRACK_STEP, track_step_outside},
    {HB_RULE_COMMIT_SLOT_FREED, slot_freed},
    {HB_RULE_COMMIT_TRACK_FREED, target_freed},
    {HB_RULE_COMMIT_SLOT_STALE, slot_stale},
    {HB_RULE_COMMIT_TRACK_DUPLICATE, target_shared},
    {HB_RULE_COMMIT_TRACK_ALIAS, target_wrong_kind},
};

void hb_expect_commit(const struct hb_config *config, const struct hb_verify_phase *verify,
                      const struct hb_slot_model *slots, const struct hb_commit *commit,
                      struct hb_error *e) {
    struct view v = {verify, slots, commit, 0};
    (void)config;
    hb_error_clear(e);
    if (!verify->has_verify) {
        (void)hb_fail(e, HB_RULE_NO_VERIFY, ROW_NONE, 0, 0);
        return;
    }
    if (commit == NULL) {
        (void)hb_fail(e, HB_RULE_COMMIT_NULL, ROW_NONE, 0, 0);
        return;
    }
    if (check_arrays(&v, e) != HB_OK) {
        return;
    }
    v.n = commit->n_rows < verify->real_rows ? commit->n_rows : verify->real_rows;
    for (size_t i = 0; i < sizeof ROW_CHECKS / sizeof ROW_CHECKS[0]; i++) {
        for (int32_t r = 0; r < v.n; r++) {
            int64_t value = 0;
            int64_t limit = 0;
            if (ROW_CHECKS[i].broken(&v, r, &value, &limit)) {
                (void)hb_fail(e, ROW_CHECKS[i].rule, r, value, limit);
                return;
            }
        }
    }
}
