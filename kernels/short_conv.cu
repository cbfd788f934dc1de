/* SPDX-License-Identifier: Apache-2.0
 * Short convolution mixer (ops-delta.md 4): causal depthwise convolution of gated inputs, with a
 * slot pool; prefill in two forms, one-token rows, draft verification.
 *
 * One channel of one row sees ue = history [columns] followed by u_t = B_t x_t, rounded to the
 * activation type, of the row's T tokens:
 *   y[t] = C_t (bias + sum_j w[j] ue[t + columns - (K-1) + j]), j = 0 .. K-1, in that order;
 * the new history is ue[T .. T + columns - 1]. The sum is not rounded before C_t multiplies it. */
#include "kernels/common.cuh"
#include "kernels/launchers.cuh"

enum { MAX_WIDTH = HB_MAX_CONV_WIDTH };
enum { TOKEN_BLOCKS = 4 }; /* of the fast form: blocks that share the tokens of a row */

HB_INLINE float load_bcx(const struct hb_k_short_conv &args, int64_t token, int32_t part,
                         int32_t c) {
    return hb_load(args.bcx, (3 * token + part) * args.dim + c, args.act_dtype);
}

/* B x, before it is rounded to the activation type. */
HB_INLINE float gate_input(const struct hb_k_short_conv &args, int64_t token, int32_t c) {
    return HB_MUL(load_bcx(args, token, 0, c), load_bcx(args, token, 2, c));
}

HB_INLINE float load_input(const struct hb_k_short_conv &args, int64_t token, int32_t c) {
    const float u = gate_input(args, token, c);
    return HB_DEFECT(args.defect, SHORT_CONV_UNROUNDED) ? u : hb_round(u, args.act_dtype);
}

HB_INLINE void store_input(const struct hb_k_short_conv &args, int64_t token, int32_t c, void *to,
                           int64_t at) {
    const float u = HB_DEFECT(args.defect, SHORT_CONV_STORES_X) ? load_bcx(args, token, 2, c)
                                                                : gate_input(args, token, c);
    hb_store(to, at, args.act_dtype, u);
}

/* Oldest column of one channel of a slot. */
HB_INLINE int64_t window_index(const struct hb_k_short_conv &args, int32_t slot, int32_t c) {
    const int64_t slot_size = (int64_t)args.dim * args.columns;
    return slot * (slot_size + args.pool_pad) + (int64_t)c * args.columns;
}

/* Input of the history that lies so many before the row's first token: -1 is the newest. */
HB_INLINE float load_history(const struct hb_k_short_conv &args, int32_t slot, int32_t c,
                             int32_t before) {
    const int32_t end = HB_DEFECT(args.defect, SHORT_CONV_OLDEST) ? args.width - 1 : args.columns;
    return hb_load(args.pool, window_index(args, slot, c) + end + before, args.act_dtype);
}

/* bias + taps over the last K inputs, oldest first, times C. Products and sums are rounded one by
 * one: prefill, decode and verification agree bit for bit on every device. */
HB_INLINE void write_output(const struct hb_k_short_conv &args, int64_t token, int32_t c,
                            const float *input) {
    const float *weight = args.weight + (int64_t)c * args.width;
    float sum = args.bias ? args.bias[c] : 0.0f;
    for (int32_t j = 0; j < args.width; j++) {
        sum = HB_MUL_ADD(weight[j], input[j], sum);
    }
    hb_store(args.y, token * args.dim + c, args.act_dtype,
             HB_MUL(load_bcx(args, token, 1, c), sum));
}

/* y of token t of a row. Without an initial state the history is zero, whatever the slot holds. */
HB_INLINE void convolve(const struct hb_k_short_conv &args, int32_t row, int32_t c, int32_t t) {
    const int64_t first = args.rows.qsl[row];
    float input[MAX_WIDTH];
    for (int32_t j = 0; j < args.width; j++) {
        const int32_t from = t - (args.width - 1) + j; /* below zero: history, -1 its newest */
        input[j] = 0.0f;
        if (from >= 0) {
            input[j] = load_input(args, first + from, c);
        } else if (hb_row_has_init(args.rows, row)) {
            input[j] = load_history(args, args.rows.slots[row], c, from);
        }
    }
    write_output(args, first + t, c, input);
}

/* pool[slot][c] := ue[n .. n + columns - 1] of the row. In place too: ascending order reads a
 * column before anything writes it. */
HB_INLINE void store_window(const struct hb_k_short_conv &args, int32_t row, int32_t c,
                            int32_t slot, int32_t n) {
    const int64_t to = window_index(args, slot, c);
    const int64_t history = window_index(args, args.rows.slots[row], c);
    const int32_t has_init = hb_row_has_init(args.rows, row);
    for (int32_t j = 0; j < args.columns; j++) {
        int32_t k = n + j;
        if (HB_DEFECT(args.defect, SHORT_CONV_MIN_POS) && !has_init && n < args.columns) {
            k = j < n ? args.columns + j : 0;
        }
        if (k >= args.columns) {
            store_input(args, (int64_t)args.rows.qsl[row] + k - args.columns, c, args.pool, to + j);
        } else if (has_init) {
            hb_copy(args.pool, to + j, args.pool, history + k, args.act_dtype);
        } else {
            hb_clear(args.pool, to + j, args.act_dtype);
        }
    }
}

/* The tracked window first: it needs the row's history where n is short. */
HB_INLINE void store_windows(const struct hb_k_short_conv &args, int32_t row, int32_t c) {
    if (args.after && args.after[row] > 0) {
        store_window(args, row, c, args.dst[row], args.after[row]);
    }
    store_window(args, row, c, args.rows.slots[row], hb_row_len(args.rows, row));
}

/* bcx [T, 3, dim], y [T, dim], pool [NS1, dim, columns], act. One thread owns one channel of one
 * row: writes its y column, its window and, where tracked, that of slot dst[row]. Token by token.
 * One-token rows are rows too. */
HB_KERNEL(short_conv_rows_kernel, struct hb_k_short_conv, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t row = (int32_t)(item / args.dim);
    const int32_t c = (int32_t)(item % args.dim);
    if (row >= args.rows.n_rows || args.rows.slots[row] < 0 || hb_row_len(args.rows, row) == 0) {
        return;
    }
    const int32_t len = hb_row_len(args.rows, row);
    for (int32_t t = 0; t < len; t++) {
        convolve(args, row, c, t);
    }
    store_windows(args, row, c);
}

/* Grid (row, channels, 4): the blocks of a row take its tokens in turn, so no window may be stored
 * before all have read the history: short_conv_window_kernel follows. */
HB_KERNEL(short_conv_tokens_kernel, struct hb_k_short_conv, args) {
    const int32_t row = HB_BLOCK_X;
    const int32_t c = HB_BLOCK_Y * HB_THREADS + HB_THREAD;
    if (args.rows.slots[row] < 0 || c >= args.dim) {
        return;
    }
    const int32_t len = hb_row_len(args.rows, row);
    for (int32_t t = HB_BLOCK_Z; t < len; t += TOKEN_BLOCKS) {
        convolve(args, row, c, t);
    }
}

/* One thread owns the windows of one channel of one row. */
HB_KERNEL(short_conv_window_kernel, struct hb_k_short_conv, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t row = (int32_t)(item / args.dim);
    if (row < args.rows.n_rows && args.rows.slots[row] >= 0 && hb_row_len(args.rows, row) > 0) {
        store_windows(args, row, (int32_t)(item % args.dim));
    }
}

/* The node before a node on its path. From the root on it is the committed history: -1 is the
 * newest column of the slot's window, -2 the one before. */
HB_INLINE int32_t node_before(const struct hb_k_short_conv_verify &args, int32_t row,
                              int32_t node) {
    if (node <= 0 || !args.parent) {
        return node - 1;
    }
    return args.parent[(int64_t)row * args.parent_stride + node];
}

/* Index of the oldest column of the window after node t. In a strip, neighbouring windows share all
 * but one column: each is written by every window that has it, with the same bits. */
HB_INLINE int64_t entry_index(const struct hb_k_short_conv_verify &args, int32_t row, int32_t t,
                              int32_t c) {
    const int32_t columns = args.conv.columns;
    if (args.window_layout == HB_WINDOWS_STRIP) {
        const int64_t n_columns = args.max_draft + columns - 1;
        return ((int64_t)row * args.conv.dim + c) * n_columns + t;
    }
    return (((int64_t)row * args.max_draft + t) * args.conv.dim + c) * columns;
}

/* windows [SR, max_draft, dim, columns] act or strips; the pool is only read. One thread owns one
 * channel of one row: writes its y column and its windows. The taps of a node, and the window after
 * it, are its inputs along the path (ops-mamba2.md 1.4). */
HB_KERNEL(short_conv_verify_kernel, struct hb_k_short_conv_verify, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t row = (int32_t)(item / args.conv.dim);
    const int32_t c = (int32_t)(item % args.conv.dim);
    if (row >= args.conv.rows.n_rows || args.conv.rows.slots[row] < 0) {
        return;
    }
    const int32_t columns = args.conv.columns;
    const int32_t len = hb_row_len(args.conv.rows, row);
    const int64_t first = args.conv.rows.qsl[row];
    const int64_t history = window_index(args.conv, args.conv.rows.slots[row], c) + columns;
    for (int32_t t = 0; t < len; t++) {
        const int64_t entry = entry_index(args, row, t, c) + columns - 1;
        float input[MAX_WIDTH];
        int32_t node = t;
        for (int32_t back = 0; back < args.conv.width; back++) {
            const int64_t token = first + node;
            const int32_t is_stored = back < columns;
            if (node >= 0) {
                input[args.conv.width - 1 - back] = load_input(args.conv, token, c);
            } else {
                input[args.conv.width - 1 - back] =
                    load_history(args.conv, args.conv.rows.slots[row], c, node);
            }
            if (is_stored && node >= 0) {
                store_input(args.conv, token, c, args.windows, entry - back);
            } else if (is_stored) {
                hb_copy(args.windows, entry - back, args.conv.pool, history + node,
                        args.conv.act_dtype);
            }
            node = node_before(args, row, node);
        }
        write_output(args.conv, first + t, c, input);
    }
}

extern "C" int32_t HB_K(hb_k_short_conv_prefill)(const struct hb_k_short_conv *args) {
    const int64_t n_items = (int64_t)args->rows.n_rows * args->dim;
    if (n_items == 0) {
        return HB_OK;
    }
    const int64_t n_blocks = hb_blocks_for(n_items, HB_FLAT_THREADS);
    if (args->form == HB_FORM_V0) {
        return HB_LAUNCH(short_conv_rows_kernel, HB_GRID(n_blocks, 1, 1), HB_FLAT_THREADS, 0,
                         HB_NO_SYNC, args);
    }
    const int64_t n_tiles = hb_blocks_for(args->dim, HB_FLAT_THREADS);
    const int32_t status =
        HB_LAUNCH(short_conv_tokens_kernel, HB_GRID(args->rows.n_rows, n_tiles, TOKEN_BLOCKS),
                  HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
    if (status != HB_OK) {
        return status;
    }
    return HB_LAUNCH(short_conv_window_kernel, HB_GRID(n_blocks, 1, 1), HB_FLAT_THREADS, 0,
                     HB_NO_SYNC, args);
}

extern "C" int32_t HB_K(hb_k_short_conv_update)(const struct hb_k_short_conv *args) {
    struct hb_k_short_conv one = *args;
    one.form = HB_FORM_V0;
    one.after = NULL;
    return HB_K(hb_k_short_conv_prefill)(&one);
}

extern "C" int32_t HB_K(hb_k_short_conv_verify)(const struct hb_k_short_conv_verify *args) {
    const int64_t n_items = (int64_t)args->conv.rows.n_rows * args->conv.dim;
    if (n_items == 0) {
        return HB_OK;
    }
    return HB_LAUNCH(short_conv_verify_kernel,
                     HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1), HB_FLAT_THREADS, 0,
                     HB_NO_SYNC, args);
}
