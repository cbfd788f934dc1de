/* SPDX-License-Identifier: Apache-2.0
 * Checks of row and token values for the prediction of begin and replay: RANGE, FREED, the replay
 * ring, DUPLICATE, ALIAS. Each relies on all rules with a lower number: lengths fit, and indices
 * checked before are in bounds. */
#include "harness/expect_internal.h"

/* First masked row in [from, to), or -1. */
static int64_t next_masked(const struct hb_expect_view *v, int64_t from, int64_t to) {
    for (int64_t r = from; r < to; r++) {
        if (is_masked(v, r)) {
            return r;
        }
    }
    return -1;
}

static int32_t id_of(const struct hb_expect_view *v, int64_t row) {
    return v->slots->table[at32(v, ARRAY_REQ, row)];
}

/* Tokens of the row before this forward, and after it. seq_lens counts the new tokens except in a
 * verify, whose nodes are only candidates. */
static int64_t prefix_of(const struct hb_expect_view *v, int64_t row) {
    if ((v->holds & ON_VERIFY) != 0) {
        return at32(v, ARRAY_SEQ, row);
    }
    return row < v->first_decode ? at32(v, ARRAY_PREFIX, row) : at32(v, ARRAY_SEQ, row) - 1;
}

static int64_t end_of(const struct hb_expect_view *v, int64_t row) {
    int64_t nodes = (v->holds & ON_VERIFY) != 0 ? nodes_of(v, row) : 0;
    return at32(v, ARRAY_SEQ, row) + nodes;
}

/* ---- RANGE ---- */

HB_EXPECT_CHECK(original_outside) {
    int64_t rows = v->count[COUNT_BATCH];
    int64_t given = v->batch->original_batch_size;
    (void)c;
    return v->batch->has_original_batch_size && (given < 0 || given > rows) &&
           report(f, -1, given, rows);
}

HB_EXPECT_CHECK(req_outside) {
    int64_t most = (int64_t)v->slots->req_pool_size - 1;
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        int64_t req = at32(v, ARRAY_REQ, r);
        if (req < 0 || req > most) {
            return report(f, r, req, most);
        }
    }
    return 0;
}

HB_EXPECT_CHECK(padding_nonzero) {
    (void)c;
    for (int64_t r = v->real_rows; r < v->count[COUNT_BATCH]; r++) {
        if (at32(v, ARRAY_REQ, r) != 0) {
            return report(f, r, at32(v, ARRAY_REQ, r), 0);
        }
    }
    return 0;
}

HB_EXPECT_CHECK(slot_outside) {
    int32_t least = v->batch->is_dummy ? 0 : 1;
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        if (id_of(v, r) < least || id_of(v, r) > id_count(v->slots)) {
            return report(f, r, id_of(v, r), id_count(v->slots));
        }
    }
    return 0;
}

HB_EXPECT_CHECK(decode_seq_len_low) {
    (void)c;
    for (int64_t r = v->first_decode; r < v->real_rows; r++) {
        if (at32(v, ARRAY_SEQ, r) < 1) {
            return report(f, r, at32(v, ARRAY_SEQ, r), 1);
        }
    }
    return 0;
}

/* extend_seq_lens has least value 1, extend_prefix_lens 0. */
HB_EXPECT_CHECK(extend_value_low) {
    int64_t least = c->array == ARRAY_EXTEND ? 1 : 0;
    for (int64_t r = 0; r < v->count[COUNT_EXTEND]; r++) {
        if (at32(v, c->array, r) < least) {
            return report(f, r, at32(v, c->array, r), least);
        }
    }
    return 0;
}

HB_EXPECT_CHECK(prefix_sum_differs) {
    (void)c;
    for (int64_t r = 0; r < v->count[COUNT_EXTEND]; r++) {
        int64_t sum = at32(v, ARRAY_PREFIX, r) + at32(v, ARRAY_EXTEND, r);
        if (sum != at32(v, ARRAY_SEQ, r)) {
            return report(f, r, sum, at32(v, ARRAY_SEQ, r));
        }
    }
    return 0;
}

HB_EXPECT_CHECK(mask_on_padding) {
    int64_t row = next_masked(v, v->real_rows, v->count[COUNT_BATCH]);
    (void)c;
    return row >= 0 && report(f, row, 0, 0);
}

HB_EXPECT_CHECK(mask_on_decode) {
    int64_t row = next_masked(v, v->first_decode, v->real_rows);
    (void)c;
    return row >= 0 && report(f, row, 0, 0);
}

HB_EXPECT_CHECK(track_slot_outside) {
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        if (is_masked(v, r)) {
            int64_t id = at64(v, ARRAY_TRACK, r);
            if (id < 1 || id > id_count(v->slots)) {
                return report(f, r, id, id_count(v->slots));
            }
        }
    }
    return 0;
}

/* TRACK_LEN_SHORT and TRACK_LEN_LONG: prefix + CC <= T_i <= prefix + extend, CC = max(C, page). */
HB_EXPECT_CHECK(track_len_outside) {
    int64_t chunk = v->config->chunk_size;
    int64_t page = v->config->page_size;
    for (int64_t r = 0; r < v->count[COUNT_EXTEND]; r++) {
        if (is_masked(v, r)) {
            int64_t point = at64(v, ARRAY_TRACK_LEN, r);
            int64_t least = at32(v, ARRAY_PREFIX, r) + (page > chunk ? page : chunk);
            int64_t most = at32(v, ARRAY_PREFIX, r) + at32(v, ARRAY_EXTEND, r);
            if (c->rule == HB_RULE_TRACK_LEN_SHORT && point < least) {
                return report(f, r, point, least);
            }
            if (c->rule == HB_RULE_TRACK_LEN_LONG && point > most) {
                return report(f, r, point, most);
            }
        }
    }
    return 0;
}

HB_EXPECT_CHECK(cache_loc_outside) {
    int64_t most = (int64_t)v->config->n_kv - 1;
    (void)c;
    for (int64_t i = 0; i < v->real_tokens; i++) {
        int64_t loc = at32(v, ARRAY_LOC, i);
        if (loc < 1 || loc > most) {
            return report(f, i, loc, most);
        }
    }
    return 0;
}

HB_EXPECT_CHECK(context_exceeded) {
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        if (end_of(v, r) > v->config->max_context) {
            return report(f, r, end_of(v, r), v->config->max_context);
        }
    }
    return 0;
}

static int64_t token_entry(const struct hb_expect_view *v, int64_t row, int64_t position) {
    return at32(v, ARRAY_TOKENS, at32(v, ARRAY_REQ, row) * v->config->max_context + position);
}

HB_EXPECT_CHECK(new_token_differs) {
    int64_t token = 0;
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        for (int64_t p = prefix_of(v, r); p < end_of(v, r); p++, token++) {
            int64_t entry = token_entry(v, r, p);
            if (entry != at32(v, ARRAY_LOC, token)) {
                return report(f, r, entry, at32(v, ARRAY_LOC, token));
            }
        }
    }
    return 0;
}

HB_EXPECT_CHECK(prefix_token_outside) {
    int64_t most = (int64_t)v->config->n_kv - 1;
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        for (int64_t p = 0; p < prefix_of(v, r); p++) {
            int64_t entry = token_entry(v, r, p);
            if (entry < 1 || entry > most) {
                return report(f, r, entry, most);
            }
        }
    }
    return 0;
}

/* The mirror of seq_lens has a fill value where a row is padding. */
HB_EXPECT_CHECK(cpu_len_differs) {
    (void)c;
    if (v->array[ARRAY_SEQ_CPU].data == NULL) {
        return 0;
    }
    for (int64_t r = 0; r < v->count[COUNT_BATCH]; r++) {
        int64_t want = r < v->real_rows ? at32(v, ARRAY_SEQ, r) : HB_PAD_SEQ_LEN;
        if (at32(v, ARRAY_SEQ_CPU, r) != want) {
            return report(f, r, at32(v, ARRAY_SEQ_CPU, r), want);
        }
    }
    return 0;
}

/* ---- FREED, pending ring, DUPLICATE, ALIAS ---- */

HB_EXPECT_CHECK(live_slot_freed) {
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        if (kind_of(v->slots, id_of(v, r)) == HB_SLOT_FREE) {
            return report(f, r, id_of(v, r), 0);
        }
    }
    return 0;
}

HB_EXPECT_CHECK(track_slot_freed) {
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        if (is_masked(v, r) && kind_of(v->slots, at64(v, ARRAY_TRACK, r)) == HB_SLOT_FREE) {
            return report(f, r, at64(v, ARRAY_TRACK, r), 0);
        }
    }
    return 0;
}

/* A ring that is not folded: temporal is not the state yet, except for the modes that own it. */
HB_EXPECT_CHECK(ring_pending) {
    const int is_owner = v->batch->forward_mode == hb_ring_mode(v->config);
    (void)c;
    for (int64_t r = 0; r < v->real_rows && !is_owner; r++) {
        if (cursor_of(v->slots, id_of(v, r)) != 0) {
            return report(f, r, id_of(v, r), cursor_of(v->slots, id_of(v, r)));
        }
    }
    return 0;
}

/* Id 0 may be shared; it only gets here in a dummy call. */
HB_EXPECT_CHECK(live_slot_shared) {
    (void)c;
    for (int64_t r = 1; r < v->real_rows; r++) {
        int32_t id = id_of(v, r);
        for (int64_t earlier = 0; earlier < r && id != 0; earlier++) {
            if (id_of(v, earlier) == id) {
                return report(f, r, id, earlier);
            }
        }
    }
    return 0;
}

HB_EXPECT_CHECK(track_slot_shared) {
    (void)c;
    for (int64_t r = 1; r < v->real_rows; r++) {
        for (int64_t earlier = 0; earlier < r && is_masked(v, r); earlier++) {
            int64_t id = at64(v, ARRAY_TRACK, r);
            if (is_masked(v, earlier) && at64(v, ARRAY_TRACK, earlier) == id) {
                return report(f, r, id, earlier);
            }
        }
    }
    return 0;
}

/* First token before `end` whose location lies in [base, base + 64 * n_words) and was seen before,
 * else `end`. */
static int64_t repeated_in_window(const struct hb_expect_view *v, int64_t base, int64_t end) {
    enum { N_WORDS = 64 };
    uint64_t seen[N_WORDS] = {0};
    for (int64_t i = 0; i < end; i++) {
        int64_t bit = at32(v, ARRAY_LOC, i) - base;
        if (bit >= 0 && bit < (int64_t)N_WORDS * 64) {
            uint64_t flag = UINT64_C(1) << (bit % 64);
            if ((seen[bit / 64] & flag) != 0) {
                return i;
            }
            seen[bit / 64] |= flag;
        }
    }
    return end;
}

/* One pass per 4096 cache slots instead of all pairs of tokens. */
HB_EXPECT_CHECK(cache_loc_shared) {
    int64_t first = v->real_tokens;
    (void)c;
    for (int64_t base = 0; base < v->config->n_kv; base += 4096) {
        first = repeated_in_window(v, base, first);
    }
    for (int64_t earlier = 0; first < v->real_tokens && earlier < first; earlier++) {
        if (at32(v, ARRAY_LOC, earlier) == at32(v, ARRAY_LOC, first)) {
            return report(f, first, at32(v, ARRAY_LOC, first), earlier);
        }
    }
    return 0;
}

HB_EXPECT_CHECK(live_slot_is_checkpoint) {
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        int32_t kind = kind_of(v->slots, id_of(v, r));
        if (kind == HB_SLOT_TRACK || kind == HB_SLOT_TREE) {
            return report(f, r, id_of(v, r), 0);
        }
    }
    return 0;
}

HB_EXPECT_CHECK(track_slot_is_live_row) {
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        for (int64_t other = 0; other < v->real_rows && is_masked(v, r); other++) {
            if (at64(v, ARRAY_TRACK, r) == id_of(v, other)) {
                return report(f, r, at64(v, ARRAY_TRACK, r), other);
            }
        }
    }
    return 0;
}

HB_EXPECT_CHECK(track_slot_wrong_kind) {
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        if (is_masked(v, r) && kind_of(v->slots, at64(v, ARRAY_TRACK, r)) != HB_SLOT_TRACK) {
            return report(f, r, at64(v, ARRAY_TRACK, r), 0);
        }
    }
    return 0;
}
