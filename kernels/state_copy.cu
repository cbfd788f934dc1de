/* SPDX-License-Identifier: Apache-2.0
 * Pure copies: whole state slots, inside a pool or from the intermediate caches of a verify
 * (speculative.md 5), and new keys and values into the cache (ops-attention.md 2). Bit exact. */
#include "kernels/common.cuh"
#include "kernels/launchers.cuh"

enum { PIECE_BYTES = 64 }; /* of one thread */

/* bytes at pool[to] := those at source[from], or zero; all three multiples of the element. */
HB_INLINE void move_vectors(void *pool, const void *source, uint64_t to, uint64_t from,
                            uint64_t bytes, int32_t zero) {
    hb_vec4 *element = (hb_vec4 *)pool;
    const hb_vec4 *old = (const hb_vec4 *)source;
    for (uint64_t i = 0; i < bytes / sizeof *element; i++) {
        element[to / sizeof *element + i] = zero ? hb_zero4() : old[from / sizeof *element + i];
    }
}

HB_INLINE void move_words(void *pool, const void *source, uint64_t to, uint64_t from,
                          uint64_t bytes, int32_t zero) {
    uint32_t *element = (uint32_t *)pool;
    const uint32_t *old = (const uint32_t *)source;
    for (uint64_t i = 0; i < bytes / sizeof *element; i++) {
        element[to / sizeof *element + i] = zero ? 0U : old[from / sizeof *element + i];
    }
}

HB_INLINE void move_bytes(void *pool, const void *source, uint64_t to, uint64_t from,
                          uint64_t bytes, int32_t zero) {
    uint8_t *element = (uint8_t *)pool;
    const uint8_t *old = (const uint8_t *)source;
    for (uint64_t i = 0; i < bytes; i++) {
        element[to + i] = zero ? (uint8_t)0 : old[from + i];
    }
}

/* pool [NS1, slot_bytes], src_pool entries of the same size. One thread owns 64 bytes of one
 * destination, in the largest element that slots are made of. Pairs with a negative end, or
 * that the mask leaves out, are skipped. */
HB_KERNEL(slots_kernel, struct hb_k_slots, args) {
    const uint64_t pieces = (args.slot_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    const uint64_t item = (uint64_t)HB_BLOCK_X * (uint64_t)HB_THREADS + (uint64_t)HB_THREAD;
    const uint64_t pair = item / pieces;
    if (pair >= (uint64_t)args.n_pairs || args.dst[pair] < 0 || (args.src && args.src[pair] < 0) ||
        (args.mask && args.mask[pair] == 0)) {
        return;
    }
    const uint64_t first = item % pieces * PIECE_BYTES;
    const uint64_t left = args.slot_bytes - first;
    const uint64_t bytes = left < PIECE_BYTES ? left : (uint64_t)PIECE_BYTES;
    const uint64_t stride = args.slot_bytes + args.pad_bytes;
    const uint64_t src_stride = args.src_pool ? args.slot_bytes : stride;
    const uint64_t to = (uint64_t)args.dst[pair] * stride + first;
    const uint64_t from = args.src ? (uint64_t)args.src[pair] * src_stride + first : 0;
    const void *source = args.src_pool ? args.src_pool : args.pool;
    if (args.slot_bytes % sizeof(hb_vec4) == 0 && stride % sizeof(hb_vec4) == 0) {
        move_vectors(args.pool, source, to, from, bytes, !args.src);
    } else if (args.slot_bytes % sizeof(uint32_t) == 0 && stride % sizeof(uint32_t) == 0) {
        move_words(args.pool, source, to, from, bytes, !args.src);
    } else {
        move_bytes(args.pool, source, to, from, bytes, !args.src);
    }
}

/* windows [SR, dim, max_draft+W-1] act -> pool [NS1, dim, W]. One thread owns one channel of one
 * destination. */
HB_KERNEL(windows_kernel, struct hb_k_windows, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t pair = (int32_t)(item / args.dim);
    const int32_t channel = (int32_t)(item % args.dim);
    if (pair >= args.n_pairs || args.dst[pair] < 0 || args.src[pair] < 0) {
        return;
    }
    const int32_t window = hb_conv_columns(args.width, args.conv_state_len);
    const int32_t row = args.src[pair] / args.max_draft;
    const int32_t t = args.src[pair] % args.max_draft;
    const int64_t n_columns = args.max_draft + window - 1;
    const int64_t from = ((int64_t)row * args.dim + channel) * n_columns + t;
    const int64_t slot_size = (int64_t)args.dim * window;
    const int64_t to =
        args.dst[pair] * (slot_size + args.pool_pad) + (int64_t)channel * window;
    for (int32_t j = 0; j < window; j++) {
        hb_copy(args.pool, to + j, args.windows, from + j, args.act_dtype);
    }
}

/* k, v [n_tokens, HKV, D] act -> k_buf, v_buf [n_kv, HKV, D] at loc[token]. One thread owns one
 * element of both. */
HB_KERNEL(kv_write_kernel, struct hb_k_kv_write, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t token = (int32_t)(item / args.row_elems);
    if (token >= args.n_tokens || args.loc[token] < 0) {
        return;
    }
    const int64_t to = (int64_t)args.loc[token] * args.row_elems + item % args.row_elems;
    hb_copy(args.k_buf, to, args.k, item, args.act_dtype);
    hb_copy(args.v_buf, to, args.v, item, args.act_dtype);
}

extern "C" int32_t HB_K(hb_k_slots)(const struct hb_k_slots *args) {
    if (args->n_pairs == 0 || args->slot_bytes == 0) {
        return HB_OK;
    }
    const int64_t pieces = hb_blocks_for((int64_t)args->slot_bytes, PIECE_BYTES);
    return HB_LAUNCH(slots_kernel,
                     HB_GRID(hb_blocks_for(pieces * args->n_pairs, HB_FLAT_THREADS), 1, 1),
                     HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}

extern "C" int32_t HB_K(hb_k_windows)(const struct hb_k_windows *args) {
    const int64_t n_items = (int64_t)args->n_pairs * args->dim;
    if (n_items == 0) {
        return HB_OK;
    }
    return HB_LAUNCH(windows_kernel, HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1),
                     HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}

extern "C" int32_t HB_K(hb_k_kv_write)(const struct hb_k_kv_write *args) {
    const int64_t n_items = (int64_t)args->n_tokens * args->row_elems;
    if (n_items == 0) {
        return HB_OK;
    }
    return HB_LAUNCH(kv_write_kernel, HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1),
                     HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}
