/* SPDX-License-Identifier: Apache-2.0
 * Batch checks on what slots are used for: FREED, rings, DUPLICATE, ALIAS (rules 110..132). Every
 * id is in range by now. */
#include "backend/validate.h"

#include <stddef.h>

#include "backend/adapter.h"

static int32_t fail(const struct hb_batch_view *v, int32_t rule, int64_t row, int64_t value,
                    int64_t limit) {
    return hb_fail(v->err, rule, (int32_t)row, value, limit);
}

/* Id of a live row; 0 only in a dummy call, where it is exempt from all checks here. */
static int32_t live_id(const struct hb_batch_view *v, int64_t r) {
    return v->env->req_to_slot[v->batch->req_pool_indices.data[r]];
}

/* Track destination of a live row, 0 where the row is not masked. */
static int32_t track_id(const struct hb_batch_view *v, int64_t r) {
    const struct hb_u8s *mask = &v->batch->mamba_track_mask;
    if (v->first_mask < 0 || mask->data[r] == 0) {
        return 0;
    }
    return (int32_t)v->batch->mamba_track_indices.data[r];
}

/* FREE for an id without a slot. */
static int32_t kind_of(const struct hb_batch_view *v, int32_t id) {
    const int32_t slot = hb_env_slot(v->env, id);
    return slot < 0 ? HB_SLOT_FREE : v->env->slot_kind[slot];
}

/* Where ids are virtual, an id is free iff it has no slot, whatever the kind of that says. */
static int32_t is_free(const struct hb_batch_view *v, int32_t id) {
    return v->env->v2p != NULL ? hb_env_slot(v->env, id) < 0 : kind_of(v, id) == HB_SLOT_FREE;
}

/* Rules 110, 111. */
static int32_t check_freed(const struct hb_batch_view *v) {
    for (int64_t r = 0; r < v->n_live; r++) {
        const int32_t id = live_id(v, r);
        if (id != 0 && is_free(v, id)) {
            return fail(v, HB_RULE_SLOT_FREED, r, id, 0);
        }
    }
    for (int64_t r = 0; r < v->n_live; r++) {
        const int32_t dst = track_id(v, r);
        if (dst != 0 && is_free(v, dst)) {
            return fail(v, HB_RULE_TRACK_SLOT_FREED, r, dst, 0);
        }
    }
    return HB_OK;
}

/* Rule 114: only DECODE, or only a verify, knows the ring; elsewhere temporal alone is the state. */
static int32_t check_ring(const struct hb_batch_view *v) {
    const int32_t is_owner =
        v->env->ring_base != NULL ? v->is_verify : !v->is_extend && !v->is_verify;
    if (v->env->write_pos == NULL || is_owner || v->is_idle) {
        return HB_OK;
    }
    for (int64_t r = 0; r < v->n_live; r++) {
        const int32_t id = live_id(v, r);
        const int32_t cursor = id != 0 ? v->env->write_pos[hb_env_slot(v->env, id)] : 0;
        if (cursor != 0) {
            return fail(v, HB_RULE_RING_PENDING, r, id, cursor);
        }
    }
    return HB_OK;
}

/* First index whose id was there before. seen[id] = index + 1 while it runs, zero again afterwards.
 */
static int32_t check_duplicate(const struct hb_batch_view *v, int32_t rule, int64_t n,
                               int32_t (*id_at)(const struct hb_batch_view *v, int64_t i),
                               int32_t *seen) {
    int32_t status = HB_OK;
    int64_t end = 0;
    for (; end < n && status == HB_OK; end++) {
        const int32_t id = id_at(v, end);
        if (id == 0) {
            continue;
        }
        if (seen[id] != 0) {
            status = fail(v, rule, end, id, (int64_t)seen[id] - 1);
        } else {
            seen[id] = (int32_t)end + 1;
        }
    }
    for (int64_t i = 0; i < end; i++) {
        seen[id_at(v, i)] = 0;
    }
    return status;
}

static int32_t token_loc(const struct hb_batch_view *v, int64_t t) {
    return v->batch->out_cache_loc.data[t];
}

/* Rule 131: seen[id] = row + 1 of the live rows; the lowest row stays where an id occurs twice
 * (id 0 only). */
static int32_t check_alias_rows(const struct hb_batch_view *v) {
    int32_t *seen = v->env->slot_seen;
    int32_t status = HB_OK;
    for (int64_t r = v->n_live - 1; r >= 0; r--) {
        seen[live_id(v, r)] = (int32_t)r + 1;
    }
    for (int64_t r = 0; r < v->n_live && status == HB_OK; r++) {
        const int32_t dst = track_id(v, r);
        if (dst != 0 && seen[dst] != 0) {
            status = fail(v, HB_RULE_TRACK_ALIAS_ROW, r, dst, (int64_t)seen[dst] - 1);
        }
    }
    for (int64_t r = 0; r < v->n_live; r++) {
        seen[live_id(v, r)] = 0;
    }
    return status;
}

/* Rules 130..132. */
static int32_t check_alias(const struct hb_batch_view *v) {
    for (int64_t r = 0; r < v->n_live; r++) {
        const int32_t id = live_id(v, r);
        const int32_t kind = kind_of(v, id);
        if (id != 0 && (kind == HB_SLOT_TRACK || kind == HB_SLOT_TREE)) {
            return fail(v, HB_RULE_SLOT_NOT_LIVE, r, id, 0);
        }
    }
    const int32_t status = check_alias_rows(v);
    if (status != HB_OK) {
        return status;
    }
    for (int64_t r = 0; r < v->n_live; r++) {
        const int32_t dst = track_id(v, r);
        if (dst != 0 && kind_of(v, dst) != HB_SLOT_TRACK) {
            return fail(v, HB_RULE_TRACK_ALIAS_SLOT, r, dst, 0);
        }
    }
    return HB_OK;
}

int32_t hb_validate_slots(const struct hb_batch_view *v) {
    int32_t status = check_freed(v);
    if (status == HB_OK) {
        status = check_ring(v);
    }
    if (status == HB_OK) {
        status =
            check_duplicate(v, HB_RULE_SLOT_DUPLICATE, v->n_live, live_id, v->env->slot_seen);
    }
    if (status == HB_OK) {
        status =
            check_duplicate(v, HB_RULE_TRACK_DUPLICATE, v->n_live, track_id, v->env->slot_seen);
    }
    if (status == HB_OK && v->has_attention) {
        status =
            check_duplicate(v, HB_RULE_CACHE_LOC_DUPLICATE, v->n_real, token_loc, v->env->kv_seen);
    }
    return status == HB_OK ? check_alias(v) : status;
}
