/* SPDX-License-Identifier: Apache-2.0
 * Attention over the cache (ops-attention.md 3), causal or over a tree of draft nodes (3.1), with a
 * sliding window and a soft cap where asked for, fp32, one block of keys: the maximum first, then
 * the sums. */
#include "kernels/common.cuh"
#include "kernels/launchers.cuh"

enum { QUERY_THREADS = HB_SIZE(32, 8), TILE_D = 64 };
enum { KEPT = 32 }; /* scores that the second pass does not compute again */

/* What one thread works on: token index, q head, its kv head, the place of the last key, the place
 * of the row's first query token, the query's position (in a tree that on its path), and the places
 * begin .. end - 1 where its keys are. */
struct query {
    int32_t row, head, kv_head, last, first, position, begin, end;
    int64_t token;
};

/* Whether a key so many positions before the query is in its window. */
HB_INLINE int32_t in_window(const struct hb_k_attention &args, int32_t distance) {
    const int32_t is_inclusive =
        args.window_rule == HB_WINDOW_INCLUSIVE || HB_DEFECT(args.defect, WINDOW_OFF_BY_ONE);
    return args.window == 0 || distance < args.window ||
           (is_inclusive && distance == args.window);
}

/* Kv head of a query head (ops-attention.md 3). */
HB_INLINE int32_t kv_head_of(const struct hb_k_attention &args, int32_t head) {
    return HB_DEFECT(args.defect, ATTN_GQA_MODULO) ? head % args.n_kv_heads
                                                   : head / (args.n_q_heads / args.n_kv_heads);
}

HB_INLINE const int32_t *parents_of(const struct hb_k_attention &args, const struct query &q) {
    return args.parent + (int64_t)q.row * args.parent_stride;
}

/* Verify of trees: a draft node sees the tokens before the draft, its ancestors and itself. A
 * parent has a smaller index than its child, so the walk up ends at or below j. */
HB_INLINE int32_t is_visible(const struct hb_k_attention &args, const struct query &q, int32_t j) {
    if (!args.parent || j < q.first) {
        return j <= q.last && in_window(args, q.position - j);
    }
    const int32_t *parent = parents_of(args, q);
    int32_t node = q.last - q.first;
    int32_t distance = 0;
    for (; node > j - q.first; distance++) {
        node = parent[node];
    }
    return node == j - q.first && in_window(args, distance);
}

HB_INLINE int32_t caps_masked(const struct hb_k_attention &args) {
    return HB_DEFECT(args.defect, CAP_AFTER_MASK) && args.softcap > 0.0f;
}

/* Position, and the places that can hold keys: an ancestor lies at or after its position. */
HB_INLINE void open_keys(const struct hb_k_attention &args, struct query *q) {
    q->position = q->last;
    if (args.parent) {
        const int32_t *parent = parents_of(args, *q);
        q->position = q->first;
        for (int32_t node = q->last - q->first; node > 0; node = parent[node]) {
            q->position++;
        }
    }
    const int32_t begin = args.window > 0 ? q->position - args.window : 0;
    q->begin = begin > 0 ? begin : 0;
    q->end = q->last + 1;
    if (caps_masked(args)) {
        q->begin = 0;
        q->end = args.seq_lens[q->row];
    }
}

/* Element [slot of position j][kv head][0] of the cache. */
HB_INLINE int64_t key_index(const struct hb_k_attention &args, const struct query &q,
                            int32_t position) {
    const int64_t request = args.reqs ? args.reqs[q.row] : q.row;
    const int32_t slot = args.req_to_token[request * args.max_context + position];
    return ((int64_t)slot * args.n_kv_heads + q.kv_head) * args.attn_dim;
}

HB_INLINE int64_t query_index(const struct hb_k_attention &args, const struct query &q) {
    return (q.token * args.n_q_heads + q.head) * args.attn_dim;
}

/* l = sm_scale (q . k), components ascending; then the soft cap. */
HB_INLINE float score(const struct hb_k_attention &args, const struct query &q, int64_t key) {
    const float l =
        args.sm_scale *
        hb_dot(args.q, query_index(args, q), args.k_buf, key, args.attn_dim, args.act_dtype);
    return args.softcap > 0.0f ? args.softcap * hb_tanh(l / args.softcap) : l;
}

/* Whether the query has a key at place j, and that key's score. */
HB_INLINE int32_t is_key(const struct hb_k_attention &args, const struct query &q, int32_t j) {
    return caps_masked(args) || is_visible(args, q, j);
}

HB_INLINE float key_score(const struct hb_k_attention &args, const struct query &q, int32_t j) {
    if (caps_masked(args) && !is_visible(args, q, j)) {
        return -args.softcap; /* cap tanh(-infinity) */
    }
    return score(args, q, key_index(args, q, j));
}

/* A query sees at least itself. kept: the scores at the first places that have a key. */
HB_INLINE float largest_score(const struct hb_k_attention &args, const struct query &q,
                              float kept[KEPT]) {
    float largest = 0.0f;
    int32_t n_keys = 0;
    for (int32_t j = q.begin; j < q.end; j++) {
        if (!is_key(args, q, j)) {
            continue;
        }
        const float l = key_score(args, q, j);
        if (j - q.begin < KEPT) {
            kept[j - q.begin] = l;
        }
        largest = n_keys++ == 0 || l > largest ? l : largest;
    }
    return largest;
}

/* out[d0 .. d0 + n_d - 1] = sum_j w_j v_j / sum_j w_j, keys ascending; keys after the query's
 * position or before its window, and nodes of other branches, are never read. */
HB_INLINE void attend(const struct hb_k_attention &args, const struct query &q,
                      const float kept[KEPT], float largest, int32_t d0, int32_t n_d) {
    float total = 0.0f;
    float sum[TILE_D] = {0.0f};
    for (int32_t j = q.begin; j < q.end; j++) {
        if (!is_key(args, q, j)) {
            continue;
        }
        const int64_t key = key_index(args, q, j);
        /* of keys; others are never read. NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign) */
        const float l = j - q.begin < KEPT ? kept[j - q.begin] : key_score(args, q, j);
        const float weight = hb_exp(l - largest);
        total += weight;
        for (int32_t d = 0; d < n_d; d++) {
            sum[d] += weight * hb_load(args.v_buf, key + d0 + d, args.act_dtype);
        }
    }
    const int64_t out = query_index(args, q) + d0;
    for (int32_t d = 0; d < n_d; d++) {
        hb_store(args.out, out + d, args.act_dtype, sum[d] / total);
    }
}

/* q, out [T, HQ, D] act; k_buf, v_buf [n_kv, HKV, D] act. Grid (row, q head): thread i owns the
 * row's tokens i, i + threads, ... and writes their out. An empty key set gives zero. */
HB_KERNEL(attention_v0_kernel, struct hb_k_attention, args) {
    struct query q;
    q.row = HB_BLOCK_X;
    q.head = HB_BLOCK_Y;
    q.kv_head = kv_head_of(args, q.head);
    if (args.rows.slots[q.row] < 0) {
        return;
    }
    const int32_t len = hb_row_len(args.rows, q.row);
    q.first = args.seq_lens[q.row] - len;
    for (int32_t t = HB_THREAD; t < len; t += HB_THREADS) {
        q.token = (int64_t)args.rows.qsl[q.row] + t;
        q.last = q.first + t;
        if (q.last < 0) {
            for (int32_t d = 0; d < args.attn_dim; d++) {
                hb_clear(args.out, query_index(args, q) + d, args.act_dtype);
            }
            continue;
        }
        open_keys(args, &q);
        float kept[KEPT];
        const float largest = largest_score(args, q, kept);
        for (int32_t d0 = 0; d0 < args.attn_dim; d0 += TILE_D) {
            const int32_t left = args.attn_dim - d0;
            attend(args, q, kept, largest, d0, left < TILE_D ? left : TILE_D);
        }
    }
}

extern "C" int32_t HB_K(hb_k_attention)(const struct hb_k_attention *args) {
    if (args->rows.n_rows == 0) {
        return HB_OK;
    }
    return HB_LAUNCH(attention_v0_kernel, HB_GRID(args->rows.n_rows, args->n_q_heads, 1),
                     QUERY_THREADS, 0, HB_NO_SYNC, args);
}
