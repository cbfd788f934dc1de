/* SPDX-License-Identifier: Apache-2.0
 * Causal depthwise convolution with a slot pool (ops-mamba2.md 1): prefill in two forms, decode
 * update, tracking, draft verification.
 *
 * One channel of one row sees xe = history [W] followed by the row's T inputs:
 *   y[t] = act(bias + sum_j w[j] xe[t + j]), j = 0 .. K - 1, in that order; the new history is
 * xe[T .. T + W - 1]. History and inputs are copied bit for bit. W is K - 1; a pool of K columns
 * keeps one input more, which the sum passes over. */
#include "kernels/common.cuh"
#include "kernels/launchers.cuh"

enum { MAX_WIDTH = HB_MAX_CONV_WIDTH };
enum { TILE_TOKENS = 8, TILE_CHANNELS = 32, TILE_THREADS = HB_SIZE(64, 8), TILE_BLOCKS = 2 };

HB_INLINE int64_t window_index(const struct hb_k_conv &args, int32_t slot, int32_t channel) {
    const int32_t columns = hb_conv_columns(args.width, args.conv_state_len);
    const int64_t slot_size = (int64_t)args.dim * columns;
    return slot * (slot_size + args.pool_pad) + (int64_t)channel * columns;
}

/* Columns of the pool before those that the sum reads. */
HB_INLINE int32_t unread_columns(const struct hb_k_conv &args) {
    if (HB_DEFECT(args.defect, CONV_OLDEST)) {
        return 0;
    }
    return hb_conv_columns(args.width, args.conv_state_len) - (args.width - 1);
}

/* xe[k] of one channel, from the oldest input that the sum reads on. Without an initial state the history is zero, whatever the slot holds. */
HB_INLINE float load_extended(const struct hb_k_conv &args, int32_t row, int32_t channel,
                              int32_t k) {
    const int32_t window = args.width - 1;
    if (k >= window) {
        const int64_t token = (int64_t)args.rows.qsl[row] + k - window;
        return hb_load(args.x, token * args.dim + channel, args.act_dtype);
    }
    if (!hb_row_has_init(args.rows, row)) {
        return 0.0f;
    }
    return hb_load(args.pool,
                   window_index(args, args.rows.slots[row], channel) + unread_columns(args) + k,
                   args.act_dtype);
}

HB_INLINE float activate(const struct hb_k_conv &args, float sum) {
    return args.conv_act == HB_CONV_SILU ? hb_silu(sum) : sum;
}

/* The taps and the last inputs of one channel, right-aligned: entry MAX_WIDTH - 1 belongs to the
 * current token, entries before first are not used. Loops over them have a fixed length, so they
 * stay in registers. */
struct channel {
    float bias, tap[MAX_WIDTH], input[MAX_WIDTH];
    int32_t first;
};

HB_INLINE void open_channel(const struct hb_k_conv &args, int32_t row, int32_t c,
                            struct channel *channel) {
    channel->first = MAX_WIDTH - args.width;
    channel->bias = args.bias ? args.bias[c] : 0.0f;
    for (int32_t j = 0; j < MAX_WIDTH; j++) {
        const int32_t k = j - channel->first;
        channel->tap[j] = k >= 0 ? args.weight[(int64_t)c * args.width + k] : 0.0f;
        channel->input[j] = k >= 0 && j < MAX_WIDTH - 1 ? load_extended(args, row, c, k) : 0.0f;
    }
}

/* bias + sum of taps, from the oldest; entries before first are skipped, not multiplied by zero.
 * Each product and sum is rounded by itself: prefill, decode and verification agree bit for bit on
 * every device. */
HB_INLINE float sum_taps(const struct channel *channel) {
    float sum = channel->bias;
    for (int32_t j = 0; j < MAX_WIDTH; j++) {
        sum = j >= channel->first ? HB_MUL_ADD(channel->tap[j], channel->input[j], sum) : sum;
    }
    return sum;
}

/* pool[slot][channel] := xe[T .. T + W - 1], in place: ascending order reads entry T + j before
 * anything writes it. */
HB_INLINE void store_window(const struct hb_k_conv &args, int32_t row, int32_t channel) {
    const int32_t window = hb_conv_columns(args.width, args.conv_state_len);
    const int32_t len = hb_row_len(args.rows, row);
    const int64_t base = window_index(args, args.rows.slots[row], channel);
    for (int32_t j = 0; j < window; j++) {
        int32_t k = len + j;
        if (k >= window) {
            const int64_t token = (int64_t)args.rows.qsl[row] + k - window;
            hb_copy(args.pool, base + j, args.x, token * args.dim + channel, args.act_dtype);
        } else if (hb_row_has_init(args.rows, row)) {
            k = HB_DEFECT(args.defect, CONV_SHORT_PROMPT) ? j : k;
            hb_copy(args.pool, base + j, args.pool, base + k, args.act_dtype);
        } else {
            hb_clear(args.pool, base + j, args.act_dtype);
        }
    }
}

/* x, y [T, dim] act; pool [NS1, dim, W] act. One thread owns one channel of one row: writes its y
 * column and its window. Token by token, taps from the oldest. */
HB_KERNEL(conv_prefill_v0_kernel, struct hb_k_conv, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t row = (int32_t)(item / args.dim);
    const int32_t channel = (int32_t)(item % args.dim);
    if (row >= args.rows.n_rows || args.rows.slots[row] < 0 || hb_row_len(args.rows, row) == 0) {
        return;
    }
    const int32_t len = hb_row_len(args.rows, row);
    struct channel state;
    open_channel(args, row, channel, &state);
    int64_t at = (int64_t)args.rows.qsl[row] * args.dim + channel;
    for (int32_t t = 0; t < len; t++, at += args.dim) {
        state.input[MAX_WIDTH - 1] = hb_load(args.x, at, args.act_dtype);
        hb_store(args.y, at, args.act_dtype, activate(args, sum_taps(&state)));
        for (int32_t j = 0; j + 1 < MAX_WIDTH; j++) {
            state.input[j] = state.input[j + 1];
        }
    }
    store_window(args, row, channel);
}

/* One tile of outputs from the inputs in shared memory, xe[t0 .. t0 + TILE_TOKENS + W - 1] of
 * TILE_CHANNELS channels. */
HB_INLINE void conv_tile(const struct hb_k_conv &args, const float *tile, int32_t row,
                         int32_t channel0, int32_t t0) {
    const int32_t len = hb_row_len(args.rows, row);
    const int64_t token0 = (int64_t)args.rows.qsl[row] + t0;
    const int32_t n_tokens = len - t0 < TILE_TOKENS ? len - t0 : TILE_TOKENS;
    for (int32_t i = HB_THREAD; i < n_tokens * TILE_CHANNELS; i += HB_THREADS) {
        const int32_t t = i / TILE_CHANNELS;
        const int32_t c = i % TILE_CHANNELS;
        const int32_t channel = channel0 + c;
        if (channel >= args.dim) {
            continue;
        }
        const float *weight = args.weight + (int64_t)channel * args.width;
        float sum = args.bias ? args.bias[channel] : 0.0f;
        for (int32_t j = 0; j < args.width; j++) {
            sum = HB_MUL_ADD(weight[j], tile[(t + j) * TILE_CHANNELS + c], sum);
        }
        hb_store(args.y, (token0 + t) * args.dim + channel, args.act_dtype, activate(args, sum));
    }
}

/* Grid (row, channel tile, 2): a row's token tiles alternate between two blocks. Reads x and the
 * pool, writes y only: the block with the row's end must not replace the history that the first
 * tile reads, so conv_window_kernel follows. */
HB_KERNEL(conv_prefill_tile_kernel, struct hb_k_conv, args) {
    const int32_t row = HB_BLOCK_X;
    const int32_t channel0 = HB_BLOCK_Y * TILE_CHANNELS;
    const int32_t n_inputs = TILE_TOKENS + args.width - 1;
    HB_SHARED_BEGIN;
    HB_SHARED(float, tile, n_inputs *TILE_CHANNELS);
    if (args.rows.slots[row] < 0) {
        return;
    }
    const int32_t len = hb_row_len(args.rows, row);
    const int32_t n_extended = len + args.width - 1;
    for (int32_t t0 = HB_BLOCK_Z * TILE_TOKENS; t0 < len; t0 += TILE_BLOCKS * TILE_TOKENS) {
        const int32_t n_left = n_extended - t0 < n_inputs ? n_extended - t0 : n_inputs;
        for (int32_t i = HB_THREAD; i < n_left * TILE_CHANNELS; i += HB_THREADS) {
            const int32_t channel = channel0 + i % TILE_CHANNELS;
            if (channel < args.dim) {
                tile[i] = load_extended(args, row, channel, t0 + i / TILE_CHANNELS);
            }
        }
        HB_SYNCTHREADS();
        conv_tile(args, tile, row, channel0, t0);
        if (t0 + TILE_BLOCKS * TILE_TOKENS < len) {
            HB_SYNCTHREADS(); /* the next tile replaces the inputs */
        }
    }
}

/* One thread owns the window of one channel of one row. */
HB_KERNEL(conv_window_kernel, struct hb_k_conv, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t row = (int32_t)(item / args.dim);
    if (row < args.rows.n_rows && args.rows.slots[row] >= 0 && hb_row_len(args.rows, row) > 0) {
        store_window(args, row, (int32_t)(item % args.dim));
    }
}

/* One token per row, x, y [T, dim]: one thread owns one channel of one row. */
HB_KERNEL(conv_update_kernel, struct hb_k_conv, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t row = (int32_t)(item / args.dim);
    const int32_t channel = (int32_t)(item % args.dim);
    if (row >= args.rows.n_rows) {
        return;
    }
    const int32_t slot = args.rows.slots[row];
    if (slot < 0) {
        if (HB_DEFECT(args.defect, PAD_ROW_WRITTEN)) {
            hb_clear(args.pool, window_index(args, 0, channel), args.act_dtype);
        }
        return;
    }
    const int64_t at = (int64_t)args.rows.qsl[row] * args.dim + channel;
    struct channel state;
    open_channel(args, row, channel, &state);
    state.input[MAX_WIDTH - 1] = hb_load(args.x, at, args.act_dtype);
    hb_store(args.y, at, args.act_dtype, activate(args, sum_taps(&state)));
    store_window(args, row, channel);
    if (HB_DEFECT(args.defect, NEIGHBOUR_SLOT) && slot > 0 && channel == 0) {
        hb_copy(args.pool, window_index(args, slot - 1, 0), args.pool, window_index(args, slot, 0),
                args.act_dtype);
    }
}

/* pool[dst[row]] := the W inputs before token after[row] of the row. One thread owns one channel of
 * one row. */
HB_KERNEL(conv_track_kernel, struct hb_k_conv_track, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t row = (int32_t)(item / args.dim);
    const int32_t channel = (int32_t)(item % args.dim);
    if (row >= args.rows.n_rows || args.rows.slots[row] < 0 || args.after[row] <= 0) {
        return;
    }
    const int32_t window = hb_conv_columns(args.width, args.conv_state_len);
    const int64_t slot_size = (int64_t)args.dim * window;
    const int64_t base =
        args.dst[row] * (slot_size + args.pool_pad) + (int64_t)channel * window;
    const int64_t token = (int64_t)args.rows.qsl[row] + args.after[row] - window;
    for (int32_t j = 0; j < window; j++) {
        hb_copy(args.pool, base + j, args.x, (token + j) * args.dim + channel, args.act_dtype);
    }
}

/* The node before a node on its path. From the root on it is the committed history: -1 is the
 * newest entry of the slot's window, -2 the one before. */
HB_INLINE int32_t node_before(const struct hb_k_conv_verify &args, int32_t row, int32_t node) {
    if (node <= 0 || !args.parent) {
        return node - 1;
    }
    return args.parent[(int64_t)row * args.parent_stride + node];
}

/* Index of the oldest input of the window after node t. In a strip, node t's window shares W-1
 * columns with that of t+1 (state-pool.md 4): each column is written by the first window that has
 * it, and again, with the same bits, by the later ones. */
HB_INLINE int64_t entry_index(const struct hb_k_conv_verify &args, int32_t row, int32_t t,
                              int32_t channel) {
    const int32_t window = hb_conv_columns(args.conv.width, args.conv.conv_state_len);
    if (args.window_layout == HB_WINDOWS_STRIP) {
        const int64_t n_columns = args.max_draft + window - 1;
        return ((int64_t)row * args.conv.dim + channel) * n_columns + t;
    }
    return (((int64_t)row * args.max_draft + t) * args.conv.dim + channel) * window;
}

/* x, y [T, dim] act, windows [SR, max_draft, dim, W] act or strips; the pool is only read. One
 * thread owns one channel of one row: writes its y column and its windows. The taps of a node, and
 * the window after it, are its inputs along the path (ops-mamba2.md 1.4). */
HB_KERNEL(conv_verify_kernel, struct hb_k_conv_verify, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t row = (int32_t)(item / args.conv.dim);
    const int32_t channel = (int32_t)(item % args.conv.dim);
    if (row >= args.conv.rows.n_rows || args.conv.rows.slots[row] < 0) {
        return;
    }
    const int32_t window = hb_conv_columns(args.conv.width, args.conv.conv_state_len);
    const int32_t len = hb_row_len(args.conv.rows, row);
    const int64_t history = window_index(args.conv, args.conv.rows.slots[row], channel) + window;
    const int64_t first = (int64_t)args.conv.rows.qsl[row] * args.conv.dim + channel;
    const int32_t dtype = args.conv.act_dtype;
    struct channel state;
    open_channel(args.conv, row, channel, &state);
    for (int32_t t = 0; t < len; t++) {
        const int64_t entry = entry_index(args, row, t, channel);
        int32_t node = t;
        for (int32_t j = MAX_WIDTH - 1; j >= state.first; j--) {
            const void *from = node >= 0 ? args.conv.x : args.conv.pool;
            const int64_t at = node >= 0 ? first + (int64_t)node * args.conv.dim : history + node;
            state.input[j] = hb_load(from, at, dtype);
            const int32_t column = window - (MAX_WIDTH - j); /* -1: only the sum has this one */
            if (column >= 0) {
                hb_copy(args.windows, entry + column, from, at, dtype);
            }
            node = node_before(args, row, node);
        }
        hb_store(args.conv.y, first + (int64_t)t * args.conv.dim, dtype,
                 activate(args.conv, sum_taps(&state)));
    }
    if (HB_DEFECT(args.conv.defect, VERIFY_CONV_STORED) && len > 0) {
        store_window(args.conv, row, channel);
    }
}

extern "C" int32_t HB_K(hb_k_conv_prefill)(const struct hb_k_conv *args) {
    const int64_t n_items = (int64_t)args->rows.n_rows * args->dim;
    if (n_items == 0) {
        return HB_OK;
    }
    const int64_t n_blocks = hb_blocks_for(n_items, HB_FLAT_THREADS);
    if (args->form == HB_FORM_V0) {
        return HB_LAUNCH(conv_prefill_v0_kernel, HB_GRID(n_blocks, 1, 1), HB_FLAT_THREADS, 0,
                         HB_NO_SYNC, args);
    }
    const size_t shared = HB_SHARED_BYTES(float, (TILE_TOKENS + args->width - 1) * TILE_CHANNELS);
    const int64_t n_tiles = hb_blocks_for(args->dim, TILE_CHANNELS);
    const int32_t status =
        HB_LAUNCH(conv_prefill_tile_kernel, HB_GRID(args->rows.n_rows, n_tiles, TILE_BLOCKS),
                  TILE_THREADS, shared, HB_SYNC, args);
    if (status != HB_OK) {
        return status;
    }
    return HB_LAUNCH(conv_window_kernel, HB_GRID(n_blocks, 1, 1), HB_FLAT_THREADS, 0, HB_NO_SYNC,
                     args);
}

extern "C" int32_t HB_K(hb_k_conv_update)(const struct hb_k_conv *args) {
    const int64_t n_items = (int64_t)args->rows.n_rows * args->dim;
    if (n_items == 0) {
        return HB_OK;
    }
    return HB_LAUNCH(conv_update_kernel, HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1),
                     HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}

extern "C" int32_t HB_K(hb_k_conv_track)(const struct hb_k_conv_track *args) {
    const int64_t n_items = (int64_t)args->rows.n_rows * args->dim;
    if (n_items == 0) {
        return HB_OK;
    }
    return HB_LAUNCH(conv_track_kernel, HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1),
                     HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}

extern "C" int32_t HB_K(hb_k_conv_verify)(const struct hb_k_conv_verify *args) {
    const int64_t n_items = (int64_t)args->conv.rows.n_rows * args->conv.dim;
    if (n_items == 0) {
        return HB_OK;
    }
    return HB_LAUNCH(conv_verify_kernel, HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1),
                     HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}
