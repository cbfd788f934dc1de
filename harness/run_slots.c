/* SPDX-License-Identifier: Apache-2.0
 * Slot steps of a case: free, copy, publish, move; and what the slots of a run hold. */
#include <stdlib.h>
#include <string.h>

#include "harness/run_internal.h"

void hb_content_reset(struct hb_run *r, struct hb_content *content) {
    free(content->loc);
    for (int32_t l = 0; l < HB_MAX_LAYERS; l++) {
        hb_run_state_free(r, content->ref[l]);
    }
    memset(content, 0, sizeof *content);
}

int hb_content_zero(struct hb_run *r, struct hb_content *content, int32_t stream) {
    content->known = 1;
    content->is_spoiled = 0;
    content->stream = stream;
    content->pos = 0;
    content->branch = 0;
    for (int32_t l = 0; l < r->config.n_layers; l++) {
        if (!hb_run_is_linear(r, l)) {
            continue;
        }
        if (content->ref[l]) {
            hb_ref_state_zero(&r->config, content->ref[l]);
        } else {
            content->ref[l] = hb_run_state_new(r);
        }
        if (!content->ref[l]) {
            return -1;
        }
    }
    return 0;
}

static int set_loc(struct hb_content *content, const int32_t *loc, int64_t n) {
    int32_t *copy = malloc((n > 0 ? (size_t)n : 1) * sizeof *copy);
    if (!copy) {
        return -1;
    }
    if (n > 0 && loc) {
        memcpy(copy, loc, (size_t)n * sizeof *copy);
    }
    free(content->loc);
    content->loc = copy;
    content->n_loc = n;
    return 0;
}

int hb_content_copy(struct hb_run *r, struct hb_content *dst, const struct hb_content *src,
                    int64_t n_loc) {
    dst->known = src->known;
    dst->is_spoiled = src->is_spoiled;
    dst->stream = src->stream;
    dst->pos = src->pos;
    dst->branch = src->branch;
    for (int32_t l = 0; l < HB_MAX_LAYERS; l++) {
        if (!src->ref[l]) {
            continue;
        }
        if (!dst->ref[l]) {
            dst->ref[l] = hb_run_state_new(r);
        }
        if (!dst->ref[l]) {
            return -1;
        }
        hb_ref_state_copy(&r->config, dst->ref[l], src->ref[l]);
    }
    return set_loc(dst, src->loc, n_loc < src->n_loc ? n_loc : src->n_loc);
}

int32_t hb_run_slot(const struct hb_run *r, int32_t id) {
    const int32_t slot = hb_slot_model_slot(&r->slots, id);
    return slot < 0 ? 0 : slot;
}

int32_t hb_run_break_value(const struct hb_run *r, int32_t field, int32_t row, int64_t value) {
    for (int32_t i = 0; i < r->c->n_breaks; i++) {
        const struct hb_case_break *brk = &r->c->brk[i];
        if (brk->step == r->step && brk->field == field && (row < 0 || (brk->row & 1) == row)) {
            value = brk->operation == HB_BREAK_ADD
                        ? (int64_t)((uint64_t)value + (uint64_t)brk->value)
                        : brk->value;
        }
    }
    return (int32_t)(uint32_t)(uint64_t)value;
}

/* --- bytes of slots ---------------------------------------------------------------------------- */

enum slot_change { SLOT_ZERO, SLOT_COPY, SLOT_MOVE };

/* Which regions have one entry per slot, and what becomes of an entry: it is zeroed, made equal to
 * that of another slot, or may hold anything (records beyond a cursor of 0 say nothing). */
enum entry_rule { ENTRY_ZERO, ENTRY_SOURCE, ENTRY_ANY };
static const struct {
    const char *name;
    int32_t rule[3]; /* by enum slot_change */
} slot_regions[] = {{"conv", {ENTRY_ZERO, ENTRY_SOURCE, ENTRY_SOURCE}},
                    {"temporal", {ENTRY_ZERO, ENTRY_SOURCE, ENTRY_SOURCE}},
                    {"ring_x", {ENTRY_ANY, ENTRY_ANY, ENTRY_SOURCE}},
                    {"ring_b", {ENTRY_ANY, ENTRY_ANY, ENTRY_SOURCE}},
                    {"ring_g", {ENTRY_ANY, ENTRY_ANY, ENTRY_SOURCE}}};

static void want_entry(struct hb_run *r, int32_t region, int32_t rule, int32_t dst, int32_t src) {
    const size_t bytes = (size_t)r->region[region].bytes / (size_t)r->region[region].shape[0];
    uint8_t *at = r->want[region] + (size_t)dst * bytes;
    if (rule == ENTRY_ZERO) {
        memset(at, 0, bytes);
    } else if (rule == ENTRY_SOURCE) {
        memcpy(at, r->mirror[region] + (size_t)src * bytes, bytes);
    } else {
        hb_run_allow(r, region, (size_t)dst * bytes, bytes);
    }
}

static void want_slot(struct hb_run *r, int32_t change, int32_t dst, int32_t src) {
    for (int32_t i = 0; i < r->n_regions; i++) {
        for (size_t k = 0; k < sizeof slot_regions / sizeof *slot_regions; k++) {
            if (r->region[i].layer >= 0 && strcmp(r->region[i].name, slot_regions[k].name) == 0) {
                want_entry(r, i, slot_regions[k].rule[change], dst, src);
            }
        }
    }
}

/* After a call whose regions are read and want is complete but for the tables. */
static void compare_after(struct hb_run *r, int ok, const char *check, const char *place) {
    if (ok) {
        hb_run_want_own_tables(r);
        hb_run_compare_regions(r, HB_VERDICT_STATE, check, place);
    } else {
        hb_run_compare_regions(r, HB_VERDICT_PURITY, "error.purity", place);
    }
}

/* Reads the regions; -1 if the run is over. */
static int read_after(struct hb_run *r) {
    if (r->v->kind != HB_VERDICT_PASS || hb_run_read_regions(r)) {
        return -1;
    }
    hb_run_want_unchanged(r);
    return 0;
}

/* --- operations -------------------------------------------------------------------------------- */

int hb_run_take_slots(struct hb_run *r, int32_t n, int32_t kind, int32_t *ids) {
    enum { MAX_TAKE = 64 };
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    int32_t predicted[MAX_TAKE];
    int32_t taken[MAX_TAKE];
    hb_expect_take(&r->slots, n, kind, &want);
    if (want.status == HB_OK && n > MAX_TAKE) {
        n = MAX_TAKE;
    }
    int32_t status = r->backend->slot_take(r->handle, n, kind, taken, &got);
    int ok = hb_run_judge(r, "slot_take", "take", &want, status, &got);
    if (ok && n > 0) {
        hb_slot_model_take(&r->slots, n, kind, predicted);
    }
    for (int32_t i = 0; ok && i < n; i++) {
        if (taken[i] != predicted[i]) {
            r->v->at.step = r->step;
            hb_verdict_set(r->v, HB_VERDICT_STATE, "slot.take", "take", 0, 0,
                           "step %d: slot_take returned slot %d, the first that is free is %d",
                           r->step, taken[i], predicted[i]);
            return 0;
        }
    }
    if (read_after(r)) {
        return 0;
    }
    for (int32_t i = 0; ok && i < n; i++) {
        const int32_t slot = hb_run_slot(r, predicted[i]);
        ids[i] = predicted[i];
        want_slot(r, SLOT_ZERO, slot, 0);
        hb_content_reset(r, &r->content[slot]);
    }
    compare_after(r, ok, "slot.take", "take");
    return ok && !hb_run_done(r);
}

void hb_run_copy_slot(struct hb_run *r, int32_t src, int32_t dst, const char *place) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    hb_expect_copy(&r->slots, src, dst, &want);
    int32_t status = r->backend->slot_copy(r->handle, src, dst, &got);
    int ok = hb_run_judge(r, "slot_copy", place, &want, status, &got);
    if (read_after(r)) {
        return;
    }
    if (ok) {
        const int32_t from = hb_run_slot(r, src), to = hb_run_slot(r, dst);
        struct hb_content *content = &r->content[to];
        want_slot(r, SLOT_COPY, to, from);
        hb_slot_model_copied(&r->slots, dst);
        r->no_memory |= r->content[from].known
                            ? hb_content_copy(r, content, &r->content[from], INT64_MAX) != 0
                            : hb_content_zero(r, content, content->stream) != 0;
        content->is_spoiled =
            r->content[from].is_spoiled; /* of a checkpoint never completed, too */
    }
    compare_after(r, ok, "slot.copy", place);
}

static int32_t named_slot(const struct hb_run *r, int32_t name) {
    return r->n_names > 0 && name >= 0 ? r->name[name % r->n_names] : 0;
}

static int32_t argument(const struct hb_run *r, int32_t row, int32_t name) {
    return hb_run_break_value(r, HB_FIELD_SLOT_ID, row, named_slot(r, name));
}

void hb_run_free(struct hb_run *r, const struct hb_case_step *step) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    const int32_t n = step->slot2 >= 0 ? 2 : 1;
    const int32_t ids[2] = {argument(r, 0, step->slot), n > 1 ? argument(r, 1, step->slot2) : 0};
    hb_expect_free(&r->slots, n, ids, &want);
    int32_t status = r->backend->slot_free(r->handle, n, ids, &got);
    int ok = hb_run_judge(r, "slot_free", "free", &want, status, &got);
    for (int32_t i = 0; ok && i < n; i++) {
        (void)hb_prefix_cache_evict(&r->cache, ids[i]);
    }
    if (ok) {
        hb_slot_model_release(&r->slots, n, ids);
    }
    if (!read_after(r)) {
        compare_after(r, ok, "slot.free", "free");
    }
}

void hb_run_copy(struct hb_run *r, const struct hb_case_step *step) {
    hb_run_copy_slot(r, argument(r, 0, step->slot), argument(r, 1, step->slot2), "copy");
}

static void allow_cursors(struct hb_run *r, int32_t slot) {
    static const char *const names[] = {"write_pos", "ring_base", "ring_flush"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const int32_t region = hb_run_region(r, names[k], -1);
        if (region >= 0) {
            hb_run_allow(r, region, (size_t)slot * sizeof(int32_t), sizeof(int32_t));
        }
    }
}

/* The state goes to the first free slot, the id stays (invariant 15 in one run). */
void hb_run_move(struct hb_run *r, const struct hb_case_step *step) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    const int32_t id = argument(r, 0, step->slot);
    if (!r->backend->slot_move) {
        return;
    }
    hb_expect_move(&r->slots, id, &want);
    int32_t status = r->backend->slot_move(r->handle, id, &got);
    int ok = hb_run_judge(r, "slot_move", "move", &want, status, &got);
    if (read_after(r)) {
        return;
    }
    if (ok) {
        const int32_t from = hb_run_slot(r, id);
        hb_slot_model_move(&r->slots, id);
        const int32_t to = hb_run_slot(r, id);
        want_slot(r, SLOT_MOVE, to, from);
        allow_cursors(r, from); /* the old slot is free: its cursors are nobody's */
        const struct hb_content moved = r->content[from];
        hb_content_reset(r, &r->content[to]);
        r->content[to] = moved;
        memset(&r->content[from], 0, sizeof r->content[from]);
    }
    compare_after(r, ok, "slot.move", "move");
}

/* --- prefix cache ------------------------------------------------------------------------------ */

int32_t hb_run_ping_pong(struct hb_run *r, int32_t request) {
    struct hb_ping_pong_table *p = &r->ping_pong[request];
    int32_t index = hb_ping_pong_missing(p);
    while (index >= 0 && hb_run_take_slots(r, 1, HB_SLOT_TRACK, &p->slot[index])) {
        index = hb_ping_pong_missing(p);
    }
    return hb_ping_pong_target(p);
}

/* A fresh track slot in place of the donated one (state-pool.md section 2). */
static void replace_donated(struct hb_run *r, int32_t request) {
    int32_t fresh = 0;
    (void)hb_run_take_slots(r, 1, HB_SLOT_TRACK, &fresh);
    hb_ping_pong_donated(&r->ping_pong[request], fresh);
}

void hb_run_publish(struct hb_run *r, const struct hb_case_step *step) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    const int32_t request = r->n_names > 0 ? r->name_request[step->slot % r->n_names] : -1;
    const int is_ping_pong = r->c->config.ping_pong != HB_PING_PONG_OFF && request >= 0;
    int32_t id = is_ping_pong ? hb_ping_pong_newest(&r->ping_pong[request]) : 0;
    id = is_ping_pong ? hb_run_break_value(r, HB_FIELD_SLOT_ID, 0, id) : argument(r, 0, step->slot);
    if (!r->backend->slot_publish) {
        return;
    }
    hb_expect_publish(&r->slots, id, &want);
    int32_t status = r->backend->slot_publish(r->handle, id, &got);
    int ok = hb_run_judge(r, "slot_publish", "publish", &want, status, &got);
    if (ok) {
        const int32_t slot = hb_run_slot(r, id);
        const struct hb_content *content = &r->content[slot];
        r->slots.kind[slot] = HB_SLOT_TREE;
        if (content->known) { /* a slot that was never written has no label to be found by */
            (void)hb_prefix_cache_publish(&r->cache, content->stream, content->pos, id);
        }
    }
    if (read_after(r)) {
        return;
    }
    compare_after(r, ok, "slot.publish", "publish");
    if (ok && is_ping_pong && !hb_run_done(r) &&
        id == hb_ping_pong_newest(&r->ping_pong[request])) {
        replace_donated(r, request);
    }
}
