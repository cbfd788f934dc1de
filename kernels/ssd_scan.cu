/* SPDX-License-Identifier: Apache-2.0
 * Mamba2 prefill: the token recurrence (v0, ops-mamba2.md 3) and the chunked form (fast,
 * ops-mamba2.md 4). Chunk c of a row covers the row's tokens cC .. cC + C - 1, so every sum
 * restarts at a row and a tracked state, taken after a multiple of C tokens, is a chunk boundary
 * state. */
#include "kernels/common.cuh"
#include "kernels/launchers.cuh"

enum { MAX_STATE = 256 };               /* v0 keeps one (head, p) state in a local array */
enum { TILE_P = 8, TILE_QUERIES = 16 }; /* of the chunked form */
enum { QUADS = TILE_P / 4 };            /* a thread works on four values of p */
enum { SCAN_THREADS = HB_SIZE(64, 8) };

/* pool[slot][head][p] := h, each element rounded once from fp32. */
HB_INLINE void store_state(const struct hb_k_ssm &args, int32_t slot, int32_t head, int32_t p,
                           const float *h) {
    const int64_t state = hb_state_index(args, slot, head, p);
    for (int32_t n = 0; n < args.state_size; n++) {
        hb_store(args.pool, state + hb_state_offset(args, 0, n), args.state_dtype, h[n]);
    }
}

/* xbc [T, dim] act, dt [T, H] act, y [T, H, P] act, pool [NS1, H, P, N] st. One thread owns (row,
 * head, p): writes its y column, its N elements of the row's slot and, where tracked, of slot
 * dst[row]. Tokens ascending, n ascending. */
HB_KERNEL(ssd_prefill_v0_kernel, struct hb_k_ssm, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t p = (int32_t)(item % args.head_dim);
    const int32_t head = (int32_t)(item / args.head_dim % args.n_heads);
    const int32_t row = (int32_t)(item / args.head_dim / args.n_heads);
    if (row >= args.rows.n_rows || args.rows.slots[row] < 0 || hb_row_len(args.rows, row) == 0) {
        return;
    }
    const int32_t slot = args.rows.slots[row];
    const int32_t has_init = hb_row_has_init(args.rows, row);
    const int64_t start = hb_state_index(args, slot, head, p);
    float h[MAX_STATE];
    for (int32_t n = 0; n < args.state_size; n++) {
        const int64_t at = start + hb_state_offset(args, 0, n);
        h[n] = has_init ? hb_load(args.pool, at, args.state_dtype) : 0.0f;
    }
    const int32_t len = hb_row_len(args.rows, row);
    for (int32_t t = 0; t < len; t++) {
        const int64_t token = (int64_t)args.rows.qsl[row] + t;
        const float dt = hb_step_size(args, token, head);
        const float decay = hb_exp(hb_log_decay(args, dt, head));
        const float x = hb_load(args.xbc, hb_x_index(args, token, head, p), args.act_dtype);
        const int64_t b_index = hb_b_index(args, token, head);
        const int64_t c_index = b_index + (int64_t)args.n_groups * args.state_size;
        float y = 0.0f;
        for (int32_t n = 0; n < args.state_size; n++) {
            const float b = hb_load(args.xbc, b_index + n, args.act_dtype);
            const float c = hb_load(args.xbc, c_index + n, args.act_dtype);
            y = hb_state_step(&h[n], decay, dt * x, b, c, y);
        }
        hb_store(args.y, hb_y_index(args, token, head, p), args.act_dtype,
                 hb_add_skip(args, token, head, y, x));
        if (args.after && args.after[row] == t + 1) {
            store_state(args, args.dst[row], head, p, h);
        }
    }
    store_state(args, slot, head, p, h);
}

/* A block's view of its row, head and values of p. The arrays are shared. */
struct scan {
    int32_t row, head, p0, n_p;
    int64_t first; /* token of the chunk's start */
    int32_t len;   /* tokens of the chunk */
    int64_t b, c;  /* indices of B and C of the chunk's first token, for the head's group */
    int64_t stride;
    float *dt;     /* [C] step sizes */
    float *sum;    /* [C + 1] sum[j] = log decay before token j, in the chunk */
    float *to_end; /* [C] weight of token j in the state after the chunk */
    float *x;      /* [C, TILE_P] */
    float *weight; /* [TILE_QUERIES, C] of token j in y of token i */
    float *h;      /* [N, TILE_P] state before the chunk; as in x, entries from n_p on are unused */
};

HB_INLINE int32_t n_quads(const struct scan &s) {
    return (s.n_p + 3) / 4;
}

HB_INLINE void load_start(const struct hb_k_ssm &args, const struct scan &s) {
    const int64_t state = hb_state_index(args, args.rows.slots[s.row], s.head, s.p0);
    const int32_t has_init = hb_row_has_init(args.rows, s.row);
    for (int32_t i = HB_THREAD; i < s.n_p * args.state_size; i += HB_THREADS) {
        const int32_t n = i % args.state_size;
        const int32_t p = i / args.state_size;
        const int64_t from = state + hb_state_offset(args, p, n);
        s.h[n * TILE_P + p] = has_init ? hb_load(args.pool, from, args.state_dtype) : 0.0f;
    }
}

HB_INLINE void load_chunk(const struct hb_k_ssm &args, const struct scan &s) {
    for (int32_t j = HB_THREAD; j < s.len; j += HB_THREADS) {
        s.dt[j] = hb_step_size(args, s.first + j, s.head);
    }
    for (int32_t i = HB_THREAD; i < s.len * s.n_p; i += HB_THREADS) {
        const int32_t j = i / s.n_p;
        const int32_t p = i % s.n_p;
        s.x[j * TILE_P + p] =
            hb_load(args.xbc, hb_x_index(args, s.first + j, s.head, s.p0 + p), args.act_dtype);
    }
}

/* Inclusive sums s_i = sum[i + 1], one after the other by one thread: a depth of C roundings
 * (profile: cs_tree 0). */
HB_INLINE void sum_decays(const struct hb_k_ssm &args, const struct scan &s) {
    if (HB_THREAD != 0) {
        return;
    }
    if (!HB_DEFECT(args.defect, UNINIT_SHARED)) {
        s.sum[0] = 0.0f;
    }
    for (int32_t j = 0; j < s.len; j++) {
        s.sum[j + 1] = s.sum[j] + hb_log_decay(args, s.dt[j], s.head);
    }
}

/* exp(min(s_i - s_j, 0)): decay from after token j to after token i. */
HB_INLINE float decay_between(const struct scan &s, int32_t i, int32_t j) {
    const float difference = s.sum[i + 1] - s.sum[j + 1];
    return hb_exp(difference < 0.0f ? difference : (difference > 0.0f ? 0.0f : difference));
}

/* weight[i][j] = (C_i . B_j) exp(s_i - s_j) dt_j for j <= i. Entries above the diagonal are neither
 * written nor read. A thread takes four values of j; where fewer are left, the first stands in for
 * the rest. */
HB_INLINE void weigh_pairs(const struct hb_k_ssm &args, const struct scan &s, int32_t i0,
                           int32_t n_i) {
    const int32_t per_query = (s.len + 3) / 4;
    for (int32_t k = HB_THREAD; k < n_i * per_query; k += HB_THREADS) {
        const int32_t i = i0 + k / per_query;
        const int32_t j0 = 4 * (k % per_query);
        if (j0 > i) {
            continue;
        }
        const int32_t n_j = i - j0 + 1 < 4 ? i - j0 + 1 : 4;
        int64_t row[4];
        float dot[4];
        for (int32_t j = 0; j < 4; j++) {
            row[j] = s.b + (j0 + (j < n_j ? j : 0)) * s.stride;
        }
        hb_dot_rows(args.xbc, s.c + i * s.stride, args.xbc, row, args.state_size, args.act_dtype,
                    dot);
        const int32_t at = (i - i0) * args.chunk_size + j0; /* shared memory is small */
        float *weight = s.weight + at;
        for (int32_t j = 0; j < n_j; j++) {
            weight[j] = dot[j] * decay_between(s, i, j0 + j) * s.dt[j0 + j];
        }
    }
}

/* y_i = sum_{j <= i} weight[i][j] x_j + exp(s_i) C_i . h + D x_i, the terms in that order. */
HB_INLINE void write_outputs(const struct hb_k_ssm &args, const struct scan &s, int32_t i0,
                             int32_t n_i) {
    for (int32_t k = HB_THREAD; k < n_i * n_quads(s); k += HB_THREADS) {
        const int32_t i = i0 + k / n_quads(s);
        const int32_t quad = k % n_quads(s);
        const int32_t row = (i - i0) * args.chunk_size;
        const float *weight = s.weight + row;
        const hb_vec4 *x = (const hb_vec4 *)s.x + quad;
        hb_vec4 inside = hb_zero4();
        for (int32_t j = 0; j <= i; j++, x += QUADS) {
            inside = hb_add_scaled4(inside, weight[j], *x);
        }
        const hb_vec4 *h = (const hb_vec4 *)s.h + quad;
        const hb_vec4 before = hb_dot4_from(hb_zero4(), h, QUADS, args.xbc, s.c + i * s.stride, 1,
                                            args.state_size, args.act_dtype);
        const float decay = hb_exp(s.sum[i + 1]);
        for (int32_t p = 4 * quad; p < 4 * quad + 4 && p < s.n_p; p++) {
            const float y = hb_lane4(inside, p % 4) + decay * hb_lane4(before, p % 4);
            hb_store(args.y, hb_y_index(args, s.first + i, s.head, s.p0 + p), args.act_dtype,
                     hb_add_skip(args, s.first + i, s.head, y, s.x[i * TILE_P + p]));
        }
    }
}

/* x_j := to_end[j] x_j, the weight of B_j in the state after the chunk. */
HB_INLINE void scale_inputs(const struct scan &s) {
    for (int32_t k = HB_THREAD; k < s.len * s.n_p; k += HB_THREADS) {
        const int32_t j = k / s.n_p;
        s.x[j * TILE_P + k % s.n_p] *= s.to_end[j];
    }
}

/* h := exp(s_last) h + sum_j (to_end[j] x_j) B_j. One thread owns four values of p of one n, tokens
 * ascending. */
HB_INLINE void advance_state(const struct hb_k_ssm &args, const struct scan &s) {
    int32_t n_tokens = s.len;
    if (HB_DEFECT(args.defect, CHUNK_OFF_BY_ONE) && s.len == args.chunk_size) {
        n_tokens = s.len - 1; /* the last token of a full chunk is lost */
    }
    const float decay = hb_exp(s.sum[s.len]);
    for (int32_t k = HB_THREAD; k < n_quads(s) * args.state_size; k += HB_THREADS) {
        const int32_t n = k / n_quads(s);
        const int32_t quad = k % n_quads(s);
        const int32_t at = n * QUADS + quad;
        hb_vec4 *h = (hb_vec4 *)s.h + at;
        *h = hb_dot4_from(hb_scale4(decay, *h), (const hb_vec4 *)s.x + quad, QUADS, args.xbc,
                          s.b + n, s.stride, n_tokens, args.act_dtype);
    }
}

/* Each thread stores the elements that it owns in advance_state: no barrier lies between. */
HB_INLINE void store_tile(const struct hb_k_ssm &args, const struct scan &s, int32_t slot) {
    const int64_t state = hb_state_index(args, slot, s.head, s.p0);
    for (int32_t k = HB_THREAD; k < n_quads(s) * args.state_size; k += HB_THREADS) {
        const int32_t n = k / n_quads(s);
        const int32_t first = 4 * (k % n_quads(s));
        for (int32_t p = first; p < first + 4 && p < s.n_p; p++) {
            hb_store(args.pool, state + hb_state_offset(args, p, n), args.state_dtype,
                     s.h[n * TILE_P + p]);
        }
    }
}

/* One chunk, after its inputs are on the way to shared memory. */
HB_INLINE void scan_chunk(const struct hb_k_ssm &args, const struct scan &s) {
    HB_SYNCTHREADS();
    sum_decays(args, s);
    if (!HB_DEFECT(args.defect, MISSING_BARRIER)) {
        HB_SYNCTHREADS();
    }
    for (int32_t j = HB_THREAD; j < s.len; j += HB_THREADS) {
        s.to_end[j] = decay_between(s, s.len - 1, j) * s.dt[j];
    }
    for (int32_t i0 = 0; i0 < s.len; i0 += TILE_QUERIES) {
        const int32_t n_i = s.len - i0 < TILE_QUERIES ? s.len - i0 : TILE_QUERIES;
        weigh_pairs(args, s, i0, n_i);
        HB_SYNCTHREADS();
        write_outputs(args, s, i0, n_i);
        HB_SYNCTHREADS(); /* the next tile replaces the weights, or the state advances under the
                             readers */
    }
    scale_inputs(s);
    HB_SYNCTHREADS();
    advance_state(args, s);
}

/* Grid (row, head, p / 8). A block owns 8 values of p of one head of one row: it writes their y and
 * their state, in the row's slot and, where tracked, in slot dst[row]. */
HB_KERNEL(ssd_prefill_chunk_kernel, struct hb_k_ssm, args) {
    struct scan s;
    s.row = HB_BLOCK_X;
    s.head = HB_BLOCK_Y;
    s.p0 = HB_BLOCK_Z * TILE_P;
    s.n_p = args.head_dim - s.p0 < TILE_P ? args.head_dim - s.p0 : TILE_P;
    const int32_t row_len = hb_row_len(args.rows, s.row);
    if (args.rows.slots[s.row] < 0 || row_len == 0) {
        return;
    }
    const int32_t n_queries = args.chunk_size < TILE_QUERIES ? args.chunk_size : TILE_QUERIES;
    HB_SHARED_BEGIN;
    HB_SHARED(float, dt, args.chunk_size);
    HB_SHARED(float, sum, args.chunk_size + 1);
    HB_SHARED(float, to_end, args.chunk_size);
    HB_SHARED(float, x, args.chunk_size *TILE_P);
    HB_SHARED(float, weight, n_queries *args.chunk_size);
    HB_SHARED(float, h, args.state_size *TILE_P);
    s.stride = hb_token_stride(args);
    s.dt = dt;
    s.sum = sum;
    s.to_end = to_end;
    s.x = x;
    s.weight = weight;
    s.h = h;
    load_start(args, s);
    for (int32_t t0 = 0; t0 < row_len; t0 += args.chunk_size) {
        s.first = (int64_t)args.rows.qsl[s.row] + t0;
        s.len = row_len - t0 < args.chunk_size ? row_len - t0 : args.chunk_size;
        s.b = hb_b_index(args, s.first, s.head);
        s.c = s.b + (int64_t)args.n_groups * args.state_size;
        load_chunk(args, s);
        scan_chunk(args, s);
        if (args.after && args.after[s.row] == t0 + s.len) {
            store_tile(args, s, args.dst[s.row]);
        }
        if (t0 + s.len < row_len) {
            HB_SYNCTHREADS(); /* the next chunk replaces the inputs */
        }
    }
    store_tile(args, s, args.rows.slots[s.row]);
}

static size_t shared_bytes(const struct hb_k_ssm *args) {
    const int32_t n_queries = args->chunk_size < TILE_QUERIES ? args->chunk_size : TILE_QUERIES;
    return 2 * HB_SHARED_BYTES(float, args->chunk_size) +
           HB_SHARED_BYTES(float, args->chunk_size + 1) +
           HB_SHARED_BYTES(float, args->chunk_size *TILE_P) +
           HB_SHARED_BYTES(float, n_queries * args->chunk_size) +
           HB_SHARED_BYTES(float, args->state_size *TILE_P);
}

extern "C" int32_t HB_K(hb_k_ssd_prefill)(const struct hb_k_ssm *args) {
    const int64_t n_items = (int64_t)args->rows.n_rows * args->n_heads * args->head_dim;
    if (n_items == 0) {
        return HB_OK;
    }
    if (args->form != HB_FORM_V0) {
        return HB_LAUNCH(
            ssd_prefill_chunk_kernel,
            HB_GRID(args->rows.n_rows, args->n_heads, hb_blocks_for(args->head_dim, TILE_P)),
            SCAN_THREADS, shared_bytes(args), HB_SYNC, args);
    }
    if (args->state_size > MAX_STATE) {
        return HB_K(hb_launch_refused)("ssd_prefill_v0_kernel", "state_size", args->state_size,
                                       MAX_STATE);
    }
    return HB_LAUNCH(ssd_prefill_v0_kernel, HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1),
                     HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}
