/* SPDX-License-Identifier: Apache-2.0
 * How the second run of a relation differs beyond its case: other slots, and lengths that say
 * something else than the truth. */
#include "harness/run_forward.h"

/* Invariant 15: takes n slots and gives them back, the last one first, so that every later take
 * gives another slot. */
void hb_run_rotate_slots(struct hb_run *r) {
    enum { MOST = 64 };
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    int32_t ids[MOST];
    int32_t back[MOST];
    const int32_t n_slots = r->config.n_slots < MOST ? r->config.n_slots : MOST;
    if (r->twist.rotate_slots < 1 || n_slots < 1) {
        return;
    }
    const int32_t n = 1 + (r->twist.rotate_slots - 1) % n_slots;
    hb_expect_take(&r->slots, n, HB_SLOT_LIVE, &want);
    int32_t status = r->backend->slot_take(r->handle, n, HB_SLOT_LIVE, ids, &got);
    if (!hb_run_judge(r, "slot_take", "twist", &want, status, &got)) {
        return;
    }
    hb_slot_model_take(&r->slots, n, HB_SLOT_LIVE, NULL);
    for (int32_t i = 0; i < n; i++) {
        back[i] = ids[n - 1 - i];
    }
    hb_expect_free(&r->slots, n, back, &want);
    hb_error_clear(&got);
    status = r->backend->slot_free(r->handle, n, back, &got);
    if (hb_run_judge(r, "slot_free", "twist", &want, status, &got)) {
        hb_slot_model_release(&r->slots, n, back);
    }
}

/* Arrays of the batch are the harness's own. */
static void shift(struct hb_i32s array, int64_t i, int64_t by) {
    if (array.data && i < array.len) {
        ((int32_t *)array.data)[i] = (int32_t)(array.data[i] + by);
    }
}

/* Invariants 31 and 33. f->shift keeps how far a row's seq_lens are from the truth. */
void hb_run_shift_lens(const struct hb_run *r, struct hb_forward *f) {
    const struct hb_batch *b = &f->batch.b;
    const struct hb_case_step *s = f->step;
    if ((r->twist.prefix_len == 0 && r->twist.seq_len == 0) || s->kind != HB_STEP_FORWARD ||
        s->replay) {
        return;
    }
    for (int32_t i = 0; i < s->n_rows; i++) {
        if (s->row[i].track) {
            return;
        }
    }
    const int is_decode = s->mode == HB_MODE_DECODE;
    const int32_t np = is_decode || s->mode == HB_MODE_TARGET_VERIFY ? 0 : b->n_extend;
    for (int32_t i = 0; i < f->plan.n_rows; i++) {
        const int64_t prefix = f->plan.row[i].prefix;
        int64_t by = 0;
        if (r->twist.prefix_len > 0 && i < np && prefix > 0) {
            by = r->twist.prefix_len - prefix;
            shift(b->extend_prefix_lens, i, by);
        } else if (r->twist.seq_len > 0 && is_decode) {
            by = r->twist.seq_len - b->seq_lens.data[i];
            shift(b->seq_lens_cpu, i, by);
        }
        if (by != 0) {
            shift(b->seq_lens, i, by);
            f->shift[i] = by;
        }
    }
}
