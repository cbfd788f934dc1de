/* SPDX-License-Identifier: Apache-2.0
 * Mischief after a forward and in drafts: checkpoints, rings, strips, commits; part of mischief.h. */
#ifndef HB_HARNESS_TESTS_MISCHIEF_SPEC_H
#define HB_HARNESS_TESTS_MISCHIEF_SPEC_H

#include "harness/tests/mischief_graph.h"

/* What is to be wrong of the first tracked row's checkpoint: 0 nothing, 1 conv, 2 temporal. */
static inline int32_t mischief_checkpoint(const struct mischief_handle *m) {
    if (m->track_dst <= 0) {
        return 0;
    }
    switch (m->number) {
    case 38:
        return m->variant == 0 ? 1 : 2;
    case 41:
        return m->first_masked > 0 ? 1 : 0;
    case 42:
        return m->config.page_size > m->config.chunk_size ? 2 : 0;
    case 43:
        return m->config.track_by_layer && m->mode == HB_MODE_DECODE ? 1 : 0;
    default:
        return 0;
    }
}

/* Element 0 of the record at an offset from the end of those that are not folded, one step of the exponent. */
static inline void mischief_record(const struct mischief_handle *m, int32_t base, int32_t offset) {
    const int32_t at = (base + offset) % m->config.ring_length;
    (void)mischief_add_int(m->inner, m->handle, "ring_x",
                           (uint64_t)((m->slot[0] * m->config.n_heads * m->config.ring_length + at) *
                                      m->config.head_dim),
                           1 << 23);
}

static inline void mischief_after_verify(const struct mischief_handle *m) {
    const uint64_t slot = (uint64_t)m->slot[0];
    const int32_t base = mischief_add_int(m->inner, m->handle, "ring_base", slot, 0);
    const int32_t left = mischief_add_int(m->inner, m->handle, "write_pos", slot, 0);
    switch (m->variant) {
    case MISCHIEF_RING_BASE:
        (void)mischief_add_int(m->inner, m->handle, "ring_base", slot, 1);
        break;
    case MISCHIEF_RING_NODE:
        mischief_record(m, base, left + 1);
        break;
    case MISCHIEF_RING_OLD:
        if (left > 0) {
            mischief_record(m, base, 0);
        }
        break;
    case MISCHIEF_RING_FOLD:
        (void)mischief_temporal(m, 0, m->slot[0], 1.0f);
        break;
    default:
        break;
    }
}

static inline void mischief_after_ring_commit(const struct mischief_handle *m) {
    const uint64_t slot = (uint64_t)m->slot[0];
    if (m->variant == MISCHIEF_RING_POS) {
        (void)mischief_add_int(m->inner, m->handle, "write_pos", slot, 1);
    } else if (m->variant == MISCHIEF_RING_FLUSH) {
        const int32_t flush = mischief_add_int(m->inner, m->handle, "ring_flush", slot, 0);
        (void)mischief_add_int(m->inner, m->handle, "ring_flush", slot, flush ? -1 : 1);
    } else if (m->variant == MISCHIEF_RING_TEMPORAL) {
        (void)mischief_temporal(m, 0, m->slot[0], 1.0f);
    }
}

/* What is to be wrong in the ring, in pads and strips after a forward. */
static inline void mischief_features(const struct mischief_handle *m) {
    struct hb_region r;
    const int is_decode = m->mode == HB_MODE_DECODE && m->real_rows > 0;
    switch (m->number) {
    case MISCHIEF_CURSOR:
        (void)mischief_add_int(m->inner, m->handle, "write_pos", (uint64_t)m->slot[0], is_decode);
        break;
    case MISCHIEF_RECORD: /* entry 0, one step of the exponent */
        (void)mischief_add_int(m->inner, m->handle, "ring_x",
                               (uint64_t)(m->slot[0] * m->config.n_heads * m->config.ring_length *
                                          m->config.head_dim),
                               is_decode << 23);
        break;
    case MISCHIEF_RING_NEIGHBOUR:
        (void)mischief_add_int(m->inner, m->handle, "ring_g", 0, is_decode);
        break;
    case MISCHIEF_TEMPORAL_DECODE:
        (void)mischief_temporal(m, 0, m->slot[0], is_decode ? 1.0f : 0.0f);
        break;
    case MISCHIEF_COMMIT_RING:
        if (m->is_verify && m->real_rows > 0) {
            mischief_after_verify(m);
        }
        break;
    case MISCHIEF_PAD_BYTE:
        mischief_flip(m, "conv_pad", 1, 0, 1);
        break;
    case MISCHIEF_STRIP:
        if (m->is_verify && mischief_region(m, "intermediate_conv", -1, &r) >= 0) {
            mischief_flip(m, "intermediate_conv", 0, m->variant ? (uint64_t)r.shape[2] - 1 : 0, 1);
        }
        break;
    default:
        break;
    }
}

/* 1 if the states of a scan are to be wrong, those of 66 with as many groups as heads only. */
static inline int mischief_breaks_scan(const struct mischief_handle *m) {
    const int is_scan = m->number >= 62 && m->number <= 66 && m->variant == 1;
    const int has_groups = m->number != 66 || m->config.n_groups == m->config.n_heads;
    return m->number == 65 || (is_scan && has_groups);
}

static inline int32_t mischief_finish(void *handle, struct hb_error *err) {
    struct mischief_handle *m = handle;
    if (m->number == MISCHIEF_NO_LAUNCH && m->graphs.is_replay) {
        return HB_OK;
    }
    const int32_t is_replay = m->graphs.is_replay;
    int32_t status = m->inner->finish(m->handle, err);
    if (status != HB_OK) {
        return status;
    }
    mischief_features(m);
    if (m->number == MISCHIEF_REPLAY_NEIGHBOUR && is_replay) {
        mischief_flip(m, "temporal", m->config.n_slots, 0, 1);
    }
    m->failed = 0;
    m->n_begun = 0;
    m->n_finished++;
    if (m->graphs.is_capture) {
        mischief_after_graph(m);
        return status;
    }
    mischief_after_graph(m);
    int is_idle = m->mode == HB_MODE_IDLE;
    int continues = m->mode != HB_MODE_DECODE && m->has_prefix;
    int stores = m->number == 50 && m->variant == 0 && m->is_verify;
    if (m->is_verify && m->number == 52 && m->variant == 0) {
        mischief_flip_node(m, 1);
    } else if (m->is_verify && m->number == 52) {
        mischief_add_node(m, 1);
    } else if (m->number == 13 && is_idle) {
        mischief_flip(m, "conv", 1, 0, 1);
    } else if (stores || (m->number == 27 && continues) || (m->number == MISCHIEF_CONV && !is_idle)) {
        mischief_flip(m, "conv", m->slot[0], 0, 1); /* the last bit: one step of the type */
    } else if (mischief_checkpoint(m) == 1) {
        mischief_flip(m, "conv", m->track_dst, 0, 1);
    } else if (mischief_checkpoint(m) == 2) {
        (void)mischief_temporal(m, 0, m->track_dst, 1.0f);
    } else if (m->number == 61 && m->track_dst > 0) {
        if (m->variant == 0) {
            (void)mischief_temporal(m, 0, m->track_dst, 1.0f);
        } else { /* the row is not folded */
            (void)mischief_add_int(m->inner, m->handle, "write_pos", (uint64_t)m->slot[0], 1);
        }
    } else if (mischief_breaks_scan(m)) {
        (void)mischief_temporal(m, 0, m->slot[0], m->number == 65 ? 1e6f : 1.0f);
    } else if (m->number == MISCHIEF_TEMPORAL && !is_idle) {
        (void)mischief_temporal(m, 0, m->slot[0], 1.0f);
    } else if (m->number == MISCHIEF_FREE_SLOT) {
        mischief_flip(m, "temporal", m->config.n_slots, 0, 1);
    }
    return status;
}

static inline int32_t mischief_commit(void *handle, const struct hb_commit *commit,
                                      struct hb_error *err) {
    struct mischief_handle *m = handle;
    int32_t status = m->inner->commit(m->handle, commit, err);
    if (status != HB_OK) {
        if (m->number == 4) {
            mischief_flip(m, "conv", 0, 0, 1);
        }
        return m->number == 19 ? mischief_fail(err, mischief_other_rule(status)) : status;
    }
    if (commit->n_rows < 1) {
        return status;
    }
    m->n_commits++;
    if (m->number == MISCHIEF_COMMIT_RING) {
        mischief_after_ring_commit(m);
    }
    if (m->number == 7 && m->variant == 1) {
        ((int32_t *)commit->step.data)[0] ^= 1;
    }
    const int is_wrong = m->number == MISCHIEF_COMMIT ||
                         (m->number == 59 && m->config.window_layout == HB_WINDOWS_STRIP) ||
                         (m->number == 55 && m->nan_seen) ||
                         (m->number == 56 && m->variant == 0 && m->n_commits > 1) ||
                         (m->number == 56 && m->variant == 1 && commit->step.data[0] < 0);
    if (is_wrong) {
        mischief_flip(m, "conv", m->slot[0], 0, 1);
    }
    if (m->number == 57 && commit->track_indices.data && commit->track_steps.data[0] >= 0) {
        int32_t dst = (int32_t)commit->track_indices.data[0];
        if (m->variant == 0) {
            mischief_flip(m, "conv", dst, 0, 1);
        } else {
            (void)mischief_temporal(m, 0, dst, 1.0f);
        }
    }
    return status;
}

#endif
