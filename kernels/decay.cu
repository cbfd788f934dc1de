/* SPDX-License-Identifier: Apache-2.0
 * Scalar decay without a delta (ops-delta.md 3): lightning attention and simple GLA. The token
 * recurrence (v0 prefill, one-token rows, draft nodes) and the chunked form of the fast prefill.
 *
 * One head sees q_t, k_t [N], v_t [P] and a log decay g_t:
 *   S_t = e^(g_t) S_(t-1) + v_t k_t^T,   y_t = qk_scale S_t q_t. */
#include "kernels/common.cuh"
#include "kernels/launchers.cuh"

enum { MAX_STATE = HB_MAX_STATE_SIZE };
enum {
    TILE_P = 8,
    QUADS = TILE_P / 4
};                         /* of the chunked form: a thread works on four values of p */
enum { MOST_TOKENS = 16 }; /* of a chunk */
enum { CHUNK_THREADS = HB_SIZE(64, 8) };

/* Tokens of a full chunk: they divide chunk_size, a power of two. */
#define CHUNK_TOKENS(chunk_size) ((chunk_size) < MOST_TOKENS ? (chunk_size) : MOST_TOKENS)
#define LEAST_LOG_DECAY (-128.0f) /* its exponential is 0 in fp32 */

/* ---- inputs ---- */

/* Below LEAST_LOG_DECAY every log decay means the same, and sums of them stay finite. */
HB_INLINE float load_log_decay(const struct hb_k_decay &args, int64_t token, int32_t head) {
    float g;
    if (args.log_decay) {
        g = HB_DEFECT(args.defect, DECAY_SIGN) ? -args.log_decay[head] : args.log_decay[head];
    } else {
        g = hb_load(args.token_decay, token * args.n_heads + head, args.act_dtype);
        g = HB_DEFECT(args.defect, DECAY_ZERO_GATE) && g == 0.0f ? LEAST_LOG_DECAY : g;
    }
    return g < LEAST_LOG_DECAY ? LEAST_LOG_DECAY : g;
}

HB_INLINE float load_qkv(const struct hb_k_decay &args, int64_t index) {
    const float x = hb_load(args.qkv, index, args.act_dtype);
    return args.qkv_act == HB_QKV_SILU ? hb_silu(x) : x;
}

HB_INLINE int32_t group_of(const struct hb_k_decay &args, int32_t head) {
    const int32_t is_tile =
        (args.head_map == HB_HEADS_TILE) != HB_DEFECT(args.defect, DECAY_HEAD_MAP);
    return hb_key_head(head, args.n_heads, args.n_groups,
                       is_tile ? HB_HEADS_TILE : HB_HEADS_INTERLEAVE);
}

/* Index of q[token][key head of head][0]; k is n_groups * state_size elements further. */
HB_INLINE int64_t q_index(const struct hb_k_decay &args, int64_t token, int32_t head) {
    const int64_t keys = (int64_t)args.n_groups * args.state_size;
    const int64_t width = (int64_t)args.n_heads * args.head_dim + 2 * keys;
    return token * width + (int64_t)group_of(args, head) * args.state_size;
}

HB_INLINE int64_t v_index(const struct hb_k_decay &args, int64_t token, int32_t head, int32_t p) {
    const int64_t keys = (int64_t)args.n_groups * args.state_size;
    const int64_t width = (int64_t)args.n_heads * args.head_dim + 2 * keys;
    return token * width + 2 * keys + (int64_t)head * args.head_dim + p;
}

HB_INLINE int64_t y_index(const struct hb_k_decay &args, int64_t token, int32_t head, int32_t p) {
    return (token * args.n_heads + head) * args.head_dim + p;
}

/* ---- states ---- */

/* The layout of states; with a planted defect the other one, where both have the same size. */
HB_INLINE int32_t layout_of(const struct hb_k_decay &args) {
    return HB_DEFECT(args.defect, DECAY_LAYOUT) && args.head_dim == args.state_size
               ? hb_other_layout(args.state_layout)
               : args.state_layout;
}

/* Element [slot][head][p][0] of the pool. */
HB_INLINE int64_t pool_index(const struct hb_k_decay &args, int32_t slot, int32_t head, int32_t p) {
    const int64_t slot_size = (int64_t)args.n_heads * args.head_dim * args.state_size;
    return slot * (slot_size + args.pool_pad) +
           hb_element_index(layout_of(args), head, p, args.head_dim, args.state_size);
}

/* ---- token recurrence ---- */

/* One token of one (head, p): h := e^g h + v k, and y. n ascending; each product and sum is rounded
 * by itself, so that prefill, decode and verification agree bit for bit on every device. */
HB_INLINE void step(const struct hb_k_decay &args, int64_t token, int32_t head, int32_t p,
                    float *h) {
    const float decay = hb_exp(load_log_decay(args, token, head));
    const float v = load_qkv(args, v_index(args, token, head, p));
    const int64_t q = q_index(args, token, head);
    const int64_t k = q + (int64_t)args.n_groups * args.state_size;
    float y = 0.0f;
    for (int32_t n = 0; n < args.state_size; n++) {
        y = hb_state_step(&h[n], decay, v, load_qkv(args, k + n), load_qkv(args, q + n), y);
    }
    hb_store(args.y, y_index(args, token, head, p), args.act_dtype, HB_MUL(args.qk_scale, y));
}

HB_INLINE void load_state(const struct hb_k_decay &args, const void *from, int64_t at, float *h) {
    const int64_t stride = hb_element_stride(layout_of(args), args.head_dim);
    for (int32_t n = 0; n < args.state_size; n++) {
        h[n] = hb_load(from, at + n * stride, args.state_dtype);
    }
}

HB_INLINE void store_state(const struct hb_k_decay &args, void *to, int64_t at, const float *h) {
    const int64_t stride = hb_element_stride(layout_of(args), args.head_dim);
    for (int32_t n = 0; n < args.state_size; n++) {
        hb_store(to, at + n * stride, args.state_dtype, h[n]);
    }
}

/* qkv [T, dim] act, y [T, H, P] act, pool [NS1, ..] st. One thread owns (row, head, p): writes its
 * y column, its N elements of the row's slot and, where tracked, of slot dst[row]. Tokens
 * ascending. One-token rows are rows too. */
HB_KERNEL(decay_rows_kernel, struct hb_k_decay, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t p = (int32_t)(item % args.head_dim);
    const int32_t head = (int32_t)(item / args.head_dim % args.n_heads);
    const int32_t row = (int32_t)(item / args.head_dim / args.n_heads);
    if (row >= args.rows.n_rows || args.rows.slots[row] < 0 || hb_row_len(args.rows, row) == 0) {
        return;
    }
    const int64_t state = pool_index(args, args.rows.slots[row], head, p);
    const int32_t len = hb_row_len(args.rows, row);
    float h[MAX_STATE];
    if (hb_row_has_init(args.rows, row)) {
        load_state(args, args.pool, state, h);
    } else {
        for (int32_t n = 0; n < args.state_size; n++) {
            h[n] = 0.0f;
        }
    }
    for (int32_t t = 0; t < len; t++) {
        step(args, (int64_t)args.rows.qsl[row] + t, head, p, h);
        if (args.after && args.after[row] == t + 1) {
            store_state(args, args.pool, pool_index(args, args.dst[row], head, p), h);
        }
    }
    store_state(args, args.pool, state, h);
}

/* Element [row][t][head][p][0] of the intermediate caches. */
HB_INLINE int64_t entry_index(const struct hb_k_decay_verify &args, int32_t row, int32_t t,
                              int32_t head, int32_t p) {
    const struct hb_k_decay &decay = args.decay;
    const int64_t slot_size = (int64_t)decay.n_heads * decay.head_dim * decay.state_size;
    return ((int64_t)row * args.max_draft + t) * slot_size +
           hb_element_index(layout_of(decay), head, p, decay.head_dim, decay.state_size);
}

/* states [SR, max_draft, ..] st; the pool is only read. One thread owns (row, head, p): writes its
 * y column and its N elements of every entry, and reads back none but its own. A chain keeps the
 * state in fp32 from node to node; a tree starts each node from its parent's stored entry. */
HB_KERNEL(decay_verify_kernel, struct hb_k_decay_verify, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t p = (int32_t)(item % args.decay.head_dim);
    const int32_t head = (int32_t)(item / args.decay.head_dim % args.decay.n_heads);
    const int32_t row = (int32_t)(item / args.decay.head_dim / args.decay.n_heads);
    if (row >= args.decay.rows.n_rows || args.decay.rows.slots[row] < 0) {
        return;
    }
    const int32_t len = hb_row_len(args.decay.rows, row);
    float h[MAX_STATE];
    for (int32_t t = 0; t < len; t++) {
        if (t == 0) {
            load_state(args.decay, args.decay.pool,
                       pool_index(args.decay, args.decay.rows.slots[row], head, p), h);
        } else if (args.parent) {
            const int32_t parent = args.parent[(int64_t)row * args.parent_stride + t];
            load_state(args.decay, args.states, entry_index(args, row, parent, head, p), h);
        }
        step(args.decay, (int64_t)args.decay.rows.qsl[row] + t, head, p, h);
        store_state(args.decay, args.states, entry_index(args, row, t, head, p), h);
    }
}

/* ---- chunked form ----
 *
 * With sums s_i of the log decays from the chunk's start, and the state S before it:
 *   y_i = qk_scale (sum_(j<=i) (q_i . k_j) e^(s_i - s_j) v_j + e^(s_i) S q_i)
 *   S'  = e^(s_last) S + sum_j e^(s_last - s_j) v_j k_j^T */

/* A block's view of its row, head and values of p. The arrays are shared; in those of TILE_P
 * columns, entries from n_p on are unused. */
struct chunk {
    int32_t row, head, p0, n_p;
    int64_t first;     /* token of the chunk's start */
    int32_t len, most; /* tokens of this chunk, of a full one */
    float *sum;        /* [most + 1] sum[j] = log decay before token j, in the chunk */
    float *q, *k;      /* [most, N] */
    float *v;          /* [most, TILE_P] */
    float *v_end;      /* [most, TILE_P] v decayed to the end of the chunk */
    float *weight;     /* [most, most] of token j in y of token i, j <= i */
    float *h;          /* [N, TILE_P] state before the chunk */
};

HB_INLINE int32_t n_quads(const struct chunk &s) {
    return (s.n_p + 3) / 4;
}

HB_INLINE void load_start(const struct hb_k_decay &args, const struct chunk &s) {
    const int32_t has_init = hb_row_has_init(args.rows, s.row);
    const int64_t stride = hb_element_stride(layout_of(args), args.head_dim);
    for (int32_t i = HB_THREAD; i < s.n_p * args.state_size; i += HB_THREADS) {
        const int32_t p = i / args.state_size;
        const int32_t n = i % args.state_size;
        const int64_t at = pool_index(args, args.rows.slots[s.row], s.head, s.p0 + p) + n * stride;
        s.h[n * TILE_P + p] = has_init ? hb_load(args.pool, at, args.state_dtype) : 0.0f;
    }
}

/* The sums one after the other, by one thread: a depth of as many roundings as tokens. */
HB_INLINE void load_chunk(const struct hb_k_decay &args, const struct chunk &s) {
    if (HB_THREAD == 0) {
        s.sum[0] = 0.0f;
        for (int32_t j = 0; j < s.len; j++) {
            s.sum[j + 1] = s.sum[j] + load_log_decay(args, s.first + j, s.head);
        }
    }
    for (int32_t i = HB_THREAD; i < s.len * args.state_size; i += HB_THREADS) {
        const int64_t q = q_index(args, s.first + i / args.state_size, s.head);
        const int32_t n = i % args.state_size;
        s.q[i] = load_qkv(args, q + n);
        s.k[i] = load_qkv(args, q + (int64_t)args.n_groups * args.state_size + n);
    }
    for (int32_t i = HB_THREAD; i < s.len * s.n_p; i += HB_THREADS) {
        const int32_t j = i / s.n_p;
        const int32_t p = i % s.n_p;
        s.v[j * TILE_P + p] = load_qkv(args, v_index(args, s.first + j, s.head, s.p0 + p));
    }
}

/* Entries above the diagonal are neither written nor read. */
HB_INLINE void weigh_pairs(const struct hb_k_decay &args, const struct chunk &s) {
    for (int32_t pair = HB_THREAD; pair < s.len * s.len; pair += HB_THREADS) {
        const int32_t i = pair / s.len;
        const int32_t j = pair % s.len;
        if (j <= i) {
            const float dot = hb_dot(s.q, (int64_t)i * args.state_size, s.k,
                                     (int64_t)j * args.state_size, args.state_size, HB_FP32);
            const int32_t at = i * s.most + j; /* shared memory is small */
            s.weight[at] = dot * hb_exp(s.sum[i + 1] - s.sum[j + 1]);
        }
    }
}

HB_INLINE void decay_to_end(const struct hb_k_decay &args, const struct chunk &s) {
    float end = s.sum[s.len];
    if (HB_DEFECT(args.defect, DECAY_PARTIAL_CHUNK)) {
        end += (float)(s.most - s.len) * (s.sum[s.len] - s.sum[s.len - 1]);
    }
    for (int32_t j = HB_THREAD; j < s.len; j += HB_THREADS) {
        const float decay = hb_exp(end - s.sum[j + 1]);
        for (int32_t p = 0; p < s.n_p; p++) {
            s.v_end[j * TILE_P + p] = decay * s.v[j * TILE_P + p];
        }
    }
}

HB_INLINE void write_outputs(const struct hb_k_decay &args, const struct chunk &s) {
    for (int32_t item = HB_THREAD; item < s.len * n_quads(s); item += HB_THREADS) {
        const int32_t i = item / n_quads(s);
        const int32_t quad = item % n_quads(s);
        const hb_vec4 inside = hb_dot4_from(hb_zero4(), (const hb_vec4 *)s.v + quad, QUADS,
                                            s.weight, (int64_t)i * s.most, 1, i + 1, HB_FP32);
        const hb_vec4 before =
            hb_dot4_from(hb_zero4(), (const hb_vec4 *)s.h + quad, QUADS, s.q,
                         (int64_t)i * args.state_size, 1, args.state_size, HB_FP32);
        const float decay = hb_exp(s.sum[i + 1]);
        for (int32_t p = 4 * quad; p < 4 * quad + 4 && p < s.n_p; p++) {
            const float y = hb_lane4(inside, p % 4) + decay * hb_lane4(before, p % 4);
            hb_store(args.y, y_index(args, s.first + i, s.head, s.p0 + p), args.act_dtype,
                     args.qk_scale * y);
        }
    }
}

/* One thread owns four values of p of one n, here and in store_tile. Tokens ascending. */
HB_INLINE void advance_state(const struct hb_k_decay &args, const struct chunk &s) {
    const float decay = hb_exp(s.sum[s.len]);
    for (int32_t item = HB_THREAD; item < n_quads(s) * args.state_size; item += HB_THREADS) {
        const int32_t n = item / n_quads(s);
        const int32_t quad = item % n_quads(s);
        const int32_t at = n * QUADS + quad;
        hb_vec4 *h = (hb_vec4 *)s.h + at;
        *h = hb_dot4_from(hb_scale4(decay, *h), (const hb_vec4 *)s.v_end + quad, QUADS, s.k, n,
                          args.state_size, s.len, HB_FP32);
    }
}

HB_INLINE void store_tile(const struct hb_k_decay &args, const struct chunk &s, int32_t slot) {
    const int64_t stride = hb_element_stride(layout_of(args), args.head_dim);
    for (int32_t item = HB_THREAD; item < n_quads(s) * args.state_size; item += HB_THREADS) {
        const int32_t n = item / n_quads(s);
        const int32_t first = 4 * (item % n_quads(s));
        for (int32_t p = first; p < first + 4 && p < s.n_p; p++) {
            const int64_t at = pool_index(args, slot, s.head, s.p0 + p) + n * stride;
            hb_store(args.pool, at, args.state_dtype, s.h[n * TILE_P + p]);
        }
    }
}

/* Grid (row, head, p / 8). A block owns 8 values of p of one head of one row: it writes their y and
 * their state, in the row's slot and, where tracked, in slot dst[row]. Chunks start at the row's
 * first token, so a tracked state, after a multiple of chunk_size tokens, is one between chunks. */
HB_KERNEL(decay_chunk_kernel, struct hb_k_decay, args) {
    struct chunk s;
    s.row = HB_BLOCK_X;
    s.head = HB_BLOCK_Y;
    s.p0 = HB_BLOCK_Z * TILE_P;
    s.n_p = args.head_dim - s.p0 < TILE_P ? args.head_dim - s.p0 : TILE_P;
    s.most = CHUNK_TOKENS(args.chunk_size);
    const int32_t row_len = hb_row_len(args.rows, s.row);
    if (args.rows.slots[s.row] < 0 || row_len == 0) {
        return;
    }
    HB_SHARED_BEGIN;
    HB_SHARED(float, sum, s.most + 1);
    HB_SHARED(float, q, s.most *args.state_size);
    HB_SHARED(float, k, s.most *args.state_size);
    HB_SHARED(float, v, s.most *TILE_P);
    HB_SHARED(float, v_end, s.most *TILE_P);
    HB_SHARED(float, weight, s.most *s.most);
    HB_SHARED(float, h, args.state_size *TILE_P);
    s.sum = sum;
    s.q = q;
    s.k = k;
    s.v = v;
    s.v_end = v_end;
    s.weight = weight;
    s.h = h;
    load_start(args, s);
    for (int32_t t0 = 0; t0 < row_len; t0 += s.most) {
        s.first = (int64_t)args.rows.qsl[s.row] + t0;
        s.len = row_len - t0 < s.most ? row_len - t0 : s.most;
        load_chunk(args, s);
        HB_SYNCTHREADS();
        weigh_pairs(args, s);
        decay_to_end(args, s);
        HB_SYNCTHREADS();
        write_outputs(args, s);
        HB_SYNCTHREADS(); /* the state advances under its readers */
        advance_state(args, s);
        if (args.after && args.after[s.row] == t0 + s.len) {
            store_tile(args, s, args.dst[s.row]);
        }
        if (t0 + s.len < row_len) {
            HB_SYNCTHREADS(); /* the next chunk replaces the inputs */
        }
    }
    store_tile(args, s, args.rows.slots[s.row]);
}

static size_t shared_bytes(const struct hb_k_decay *args) {
    const int32_t most = CHUNK_TOKENS(args->chunk_size);
    return HB_SHARED_BYTES(float, most + 1) + 2 * HB_SHARED_BYTES(float, most * args->state_size) +
           2 * HB_SHARED_BYTES(float, most *TILE_P) + HB_SHARED_BYTES(float, most *most) +
           HB_SHARED_BYTES(float, args->state_size *TILE_P);
}

static int32_t check_size(const struct hb_k_decay *args) {
    return args->state_size > MAX_STATE
               ? HB_K(hb_launch_refused)("decay_kernel", "state_size", args->state_size, MAX_STATE)
               : HB_OK;
}

static int64_t count_items(const struct hb_k_decay *args) {
    return (int64_t)args->rows.n_rows * args->n_heads * args->head_dim;
}

extern "C" int32_t HB_K(hb_k_decay_prefill)(const struct hb_k_decay *args) {
    const int64_t n_items = count_items(args);
    if (n_items == 0) {
        return HB_OK;
    }
    if (check_size(args) != HB_OK) {
        return HB_ERR_DEVICE;
    }
    if (args->form != HB_FORM_V0) {
        return HB_LAUNCH(
            decay_chunk_kernel,
            HB_GRID(args->rows.n_rows, args->n_heads, hb_blocks_for(args->head_dim, TILE_P)),
            CHUNK_THREADS, shared_bytes(args), HB_SYNC, args);
    }
    return HB_LAUNCH(decay_rows_kernel, HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1),
                     HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}

extern "C" int32_t HB_K(hb_k_decay_update)(const struct hb_k_decay *args) {
    struct hb_k_decay one = *args;
    one.form = HB_FORM_V0;
    one.after = NULL;
    return HB_K(hb_k_decay_prefill)(&one);
}

extern "C" int32_t HB_K(hb_k_decay_verify)(const struct hb_k_decay_verify *args) {
    const int64_t n_items = count_items(&args->decay);
    if (n_items == 0) {
        return HB_OK;
    }
    if (check_size(&args->decay) != HB_OK) {
        return HB_ERR_DEVICE;
    }
    return HB_LAUNCH(decay_verify_kernel, HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1),
                     HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}
