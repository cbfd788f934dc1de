/* SPDX-License-Identifier: Apache-2.0
 * Selective scan of Mamba1: the recurrence of ops-mamba2.md 3 with a step size per channel and a
 * decay per channel and state element. B and C are shared by all channels.
 *
 * One channel c = (head, p) sees x_t, dt_t, and B_t, C_t [N]:
 *   h_t[n] = e^(dt_t A[c,n]) h_(t-1)[n] + dt_t x_t B_t[n],   y_t = sum_n C_t[n] h_t[n] + D_c x_t.
 * The two forms of the prefill do the same operations in the same order; the fast one reads B and C
 * once for a block of channels. */
#include "kernels/common.cuh"
#include "kernels/launchers.cuh"

enum { MAX_STATE = HB_MAX_STATE_SIZE };
enum { TILE_TOKENS = 8, TILE_CHANNELS = HB_SIZE(64, 8) };

/* One channel of one row. */
struct channel {
    int32_t c, head, p;
    float bias;
    const float *a; /* [N] */
};

HB_INLINE int32_t n_channels(const struct hb_k_selective &args) {
    return args.n_heads * args.head_dim;
}

HB_INLINE void open_channel(const struct hb_k_selective &args, int32_t c, struct channel *channel) {
    channel->c = c;
    channel->head = c / args.head_dim;
    channel->p = c % args.head_dim;
    channel->bias = 0.0f;
    if (args.dt_bias) {
        channel->bias = args.dt_bias[HB_DEFECT(args.defect, DT_BIAS_PER_HEAD) ? channel->head : c];
    }
    channel->a = args.a + (int64_t)c * args.state_size;
}

/* Index of the raw step sizes of a token; B is n_channels elements further, then C. */
HB_INLINE int64_t dbc_index(const struct hb_k_selective &args, int64_t token) {
    return token * ((int64_t)n_channels(args) + 2 * (int64_t)args.state_size);
}

HB_INLINE float step_size(const struct hb_k_selective &args, const struct channel &channel,
                          int64_t token) {
    float dt = hb_load(args.dbc, dbc_index(args, token) + channel.c, args.act_dtype) + channel.bias;
    dt = args.dt_softplus ? hb_softplus(dt) : dt;
    return hb_clamp_step(dt, args.dt_clamp, args.dt_lo, args.dt_hi);
}

/* One token: h and y. bc: B [N] | C [N], from bc_at on, of type bc_dtype. n ascending; each product
 * and sum is rounded by itself, so that prefill, decode and verification agree bit for bit on every
 * device. */
HB_INLINE void step(const struct hb_k_selective &args, const struct channel &channel, int64_t token,
                    const void *bc, int64_t bc_at, int32_t bc_dtype, float *h) {
    const int64_t at = token * n_channels(args) + channel.c;
    const float dt = step_size(args, channel, token);
    const float x = hb_load(args.x, at, args.act_dtype);
    const float dt_x = HB_MUL(dt, x);
    float y = 0.0f;
    for (int32_t n = 0; n < args.state_size; n++) {
        const float rate = HB_DEFECT(args.defect, MAMBA1_DECAY_SIGN) ? -channel.a[n] : channel.a[n];
        const float decay = hb_exp(HB_MUL(dt, rate));
        y = hb_state_step(&h[n], decay, dt_x, hb_load(bc, bc_at + n, bc_dtype),
                          hb_load(bc, bc_at + args.state_size + n, bc_dtype), y);
    }
    y = args.d ? HB_MUL_ADD(args.d[channel.c], x, y) : y; /* x may be infinite */
    y = HB_DEFECT(args.defect, MAMBA1_ZERO_STEP) && dt == 0.0f ? 0.0f : y;
    hb_store(args.y, at, args.act_dtype, y);
}

/* The same, with B and C from global memory. */
HB_INLINE void step_alone(const struct hb_k_selective &args, const struct channel &channel,
                          int64_t token, float *h) {
    step(args, channel, token, args.dbc, dbc_index(args, token) + n_channels(args), args.act_dtype,
         h);
}

/* The layout of states; with a planted defect the other one, where both have the same size. */
HB_INLINE int32_t layout_of(const struct hb_k_selective &args) {
    return HB_DEFECT(args.defect, MAMBA1_LAYOUT) && args.head_dim == args.state_size
               ? hb_other_layout(args.state_layout)
               : args.state_layout;
}

/* Element [slot][head][p][0] of the pool. */
HB_INLINE int64_t pool_index(const struct hb_k_selective &args, int32_t slot,
                             const struct channel &channel) {
    const int64_t slot_size = (int64_t)n_channels(args) * args.state_size;
    return slot * (slot_size + args.pool_pad) + hb_element_index(layout_of(args), channel.head,
                                                                 channel.p, args.head_dim,
                                                                 args.state_size);
}

HB_INLINE void load_state(const struct hb_k_selective &args, const void *from, int64_t at,
                          float *h) {
    const int64_t stride = hb_element_stride(layout_of(args), args.head_dim);
    for (int32_t n = 0; n < args.state_size; n++) {
        h[n] = hb_load(from, at + n * stride, args.state_dtype);
    }
}

HB_INLINE void store_state(const struct hb_k_selective &args, void *to, int64_t at,
                           const float *h) {
    const int64_t stride = hb_element_stride(layout_of(args), args.head_dim);
    for (int32_t n = 0; n < args.state_size; n++) {
        hb_store(to, at + n * stride, args.state_dtype, h[n]);
    }
}

HB_INLINE void load_start(const struct hb_k_selective &args, int32_t row,
                          const struct channel &channel, float *h) {
    if (hb_row_has_init(args.rows, row)) {
        load_state(args, args.pool, pool_index(args, args.rows.slots[row], channel), h);
        return;
    }
    for (int32_t n = 0; n < args.state_size; n++) {
        h[n] = 0.0f;
    }
}

HB_INLINE void store_tracked(const struct hb_k_selective &args, int32_t row, int32_t n_tokens,
                             const struct channel &channel, const float *h) {
    if (args.after && args.after[row] == n_tokens) {
        store_state(args, args.pool, pool_index(args, args.dst[row], channel), h);
    }
}

/* x, y [T, H*P] act, dbc [T, H*P + 2N] act, pool [NS1, ..] st. One thread owns a channel of a row:
 * writes its y column, its N elements of the row's slot and, where tracked, of slot dst[row].
 * Tokens ascending. One-token rows are rows too. */
HB_KERNEL(selective_rows_kernel, struct hb_k_selective, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t row = (int32_t)(item / n_channels(args));
    if (row >= args.rows.n_rows || args.rows.slots[row] < 0 || hb_row_len(args.rows, row) == 0) {
        return;
    }
    const int32_t len = hb_row_len(args.rows, row);
    struct channel channel;
    float h[MAX_STATE];
    open_channel(args, (int32_t)(item % n_channels(args)), &channel);
    load_start(args, row, channel, h);
    for (int32_t t = 0; t < len; t++) {
        step_alone(args, channel, (int64_t)args.rows.qsl[row] + t, h);
        store_tracked(args, row, t + 1, channel, h);
    }
    store_state(args, args.pool, pool_index(args, args.rows.slots[row], channel), h);
}

/* Grid (row, channel tile), one thread per channel; tiles of B | C of TILE_TOKENS tokens in shared
 * memory. Threads without a channel help to load. */
HB_KERNEL(selective_tile_kernel, struct hb_k_selective, args) {
    const int32_t row = HB_BLOCK_X;
    const int32_t c = HB_BLOCK_Y * TILE_CHANNELS + HB_THREAD;
    const int32_t has_channel = c < n_channels(args);
    const int32_t width = 2 * args.state_size;
    HB_SHARED_BEGIN;
    HB_SHARED(float, tile, TILE_TOKENS *width);
    if (args.rows.slots[row] < 0 || hb_row_len(args.rows, row) == 0) {
        return;
    }
    const int32_t len = hb_row_len(args.rows, row);
    struct channel channel;
    float h[MAX_STATE];
    open_channel(args, has_channel ? c : 0, &channel);
    if (has_channel) {
        load_start(args, row, channel, h);
    }
    for (int32_t t0 = 0; t0 < len; t0 += TILE_TOKENS) {
        const int64_t first = (int64_t)args.rows.qsl[row] + t0;
        const int32_t n_tokens = len - t0 < TILE_TOKENS ? len - t0 : TILE_TOKENS;
        for (int32_t i = HB_THREAD; i < n_tokens * width; i += HB_THREADS) {
            const int64_t at = dbc_index(args, first + i / width) + n_channels(args) + i % width;
            tile[i] = hb_load(args.dbc, at, args.act_dtype);
        }
        HB_SYNCTHREADS();
        for (int32_t t = 0; t < n_tokens && has_channel; t++) {
            step(args, channel, first + t, tile, (int64_t)t * width, HB_FP32, h);
            store_tracked(args, row, t0 + t + 1, channel, h);
        }
        if (t0 + n_tokens < len) {
            HB_SYNCTHREADS(); /* the next tile replaces this one */
        }
    }
    if (has_channel) {
        store_state(args, args.pool, pool_index(args, args.rows.slots[row], channel), h);
    }
}

/* Element [row][t][head][p][0] of the intermediate caches. */
HB_INLINE int64_t entry_index(const struct hb_k_selective_verify &args, int32_t row, int32_t t,
                              const struct channel &channel) {
    const struct hb_k_selective &scan = args.scan;
    const int64_t slot_size = (int64_t)n_channels(scan) * scan.state_size;
    return ((int64_t)row * args.max_draft + t) * slot_size +
           hb_element_index(layout_of(scan), channel.head, channel.p, scan.head_dim,
                            scan.state_size);
}

/* states [SR, max_draft, ..] st; the pool is only read. One thread owns a channel of a row: writes
 * its y column and its N elements of every entry, and reads back none but its own. A chain keeps
 * the state in fp32 from node to node; a tree starts each node from its parent's stored entry. */
HB_KERNEL(selective_verify_kernel, struct hb_k_selective_verify, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t row = (int32_t)(item / n_channels(args.scan));
    if (row >= args.scan.rows.n_rows || args.scan.rows.slots[row] < 0) {
        return;
    }
    const int32_t len = hb_row_len(args.scan.rows, row);
    struct channel channel;
    float h[MAX_STATE];
    open_channel(args.scan, (int32_t)(item % n_channels(args.scan)), &channel);
    for (int32_t t = 0; t < len; t++) {
        if (t == 0) {
            load_start(args.scan, row, channel, h);
        } else if (args.parent) {
            const int32_t parent = args.parent[(int64_t)row * args.parent_stride + t];
            load_state(args.scan, args.states, entry_index(args, row, parent, channel), h);
        }
        step_alone(args.scan, channel, (int64_t)args.scan.rows.qsl[row] + t, h);
        store_state(args.scan, args.states, entry_index(args, row, t, channel), h);
    }
}

static int32_t check_size(const struct hb_k_selective *args) {
    return args->state_size > MAX_STATE ? HB_K(hb_launch_refused)("selective_kernel", "state_size",
                                                                  args->state_size, MAX_STATE)
                                        : HB_OK;
}

static int64_t count_items(const struct hb_k_selective *args) {
    return (int64_t)args->rows.n_rows * args->n_heads * args->head_dim;
}

extern "C" int32_t HB_K(hb_k_selective_prefill)(const struct hb_k_selective *args) {
    const int64_t n_items = count_items(args);
    if (n_items == 0) {
        return HB_OK;
    }
    if (check_size(args) != HB_OK) {
        return HB_ERR_DEVICE;
    }
    if (args->form == HB_FORM_V0) {
        return HB_LAUNCH(selective_rows_kernel,
                         HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1), HB_FLAT_THREADS, 0,
                         HB_NO_SYNC, args);
    }
    const int64_t n_tiles = hb_blocks_for((int64_t)args->n_heads * args->head_dim, TILE_CHANNELS);
    return HB_LAUNCH(selective_tile_kernel, HB_GRID(args->rows.n_rows, n_tiles, 1), TILE_CHANNELS,
                     HB_SHARED_BYTES(float, TILE_TOKENS * 2 * args->state_size), HB_SYNC, args);
}

extern "C" int32_t HB_K(hb_k_selective_update)(const struct hb_k_selective *args) {
    struct hb_k_selective one = *args;
    one.form = HB_FORM_V0;
    one.after = NULL;
    return HB_K(hb_k_selective_prefill)(&one);
}

extern "C" int32_t HB_K(hb_k_selective_verify)(const struct hb_k_selective_verify *args) {
    const int64_t n_items = count_items(&args->scan);
    if (n_items == 0) {
        return HB_OK;
    }
    if (check_size(&args->scan) != HB_OK) {
        return HB_ERR_DEVICE;
    }
    return HB_LAUNCH(selective_verify_kernel,
                     HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1), HB_FLAT_THREADS, 0,
                     HB_NO_SYNC, args);
}
