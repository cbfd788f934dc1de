/* SPDX-License-Identifier: Apache-2.0
 * The gated delta rule, GDN and KDA (ops-delta.md 1.2 and 2), token by token: prefill in its
 * simplest order, one-token rows, draft nodes. All three advance the state by run_token, so that
 * with fp32 states they agree bit for bit. The fast forms: delta_chunk.cu, delta_warp.cu. */
#include "kernels/delta.cuh"
#include "kernels/launchers.cuh"

enum { MAX_STATE = HB_MAX_STATE_SIZE }; /* a thread keeps one (head, p) state in a local array */

/* The (row, head, p) of a thread; row is n_rows or more beyond the last item. */
struct item {
    int32_t row, head, p;
};

HB_INLINE struct item item_of(const struct hb_k_delta &args, int64_t index) {
    struct item item;
    item.p = (int32_t)(index % args.head_dim);
    item.head = (int32_t)(index / args.head_dim % args.n_heads);
    item.row = (int32_t)(index / args.head_dim / args.n_heads);
    return item;
}

/* h := the entry at index of states, whose elements are laid out like a slot's. */
HB_INLINE void load_state(const struct hb_k_delta &args, const struct item &item,
                          const void *states, int64_t index, float *h) {
    const int64_t first = index + hb_delta_element(args, item.head, item.p);
    const int64_t stride = hb_delta_stride(args);
    for (int32_t n = 0; n < args.state_size; n++) {
        h[n] = hb_load(states, first + n * stride, args.state_dtype);
    }
}

/* Each element is rounded once from fp32. */
HB_INLINE void store_state(const struct hb_k_delta &args, const struct item &item, void *states,
                           int64_t index, const float *h) {
    const int64_t first = index + hb_delta_element(args, item.head, item.p);
    const int64_t stride = hb_delta_stride(args);
    for (int32_t n = 0; n < args.state_size; n++) {
        hb_store(states, first + n * stride, args.state_dtype, h[n]);
    }
}

HB_INLINE void load_start(const struct hb_k_delta &args, const struct item &item, float *h) {
    if (hb_row_has_init(args.rows, item.row)) {
        load_state(args, item, args.pool, hb_delta_slot_index(args, args.rows.slots[item.row]), h);
        return;
    }
    for (int32_t n = 0; n < args.state_size; n++) {
        h[n] = 0.0f;
    }
}

/* h [N] becomes the state after the token; writes y. The prediction uses the decayed state, the
 * output the updated one; n ascending. */
HB_INLINE void run_token(const struct hb_k_delta &args, const struct item &item, int64_t token,
                         float *h) {
    const int64_t q_index = hb_delta_q_index(args, token, item.head);
    const int64_t k_index = q_index + (int64_t)args.n_groups * args.state_size;
    const int64_t v_index = hb_delta_v_index(args, token, item.head, item.p);
    const float q_factor = hb_delta_l2_factor(args, q_index);
    const float k_factor = hb_delta_l2_factor(args, k_index);
    const float one_decay =
        args.is_kda ? 0.0f : hb_exp(hb_delta_log_decay(args, token, item.head, 0));
    float prediction = 0.0f;
    for (int32_t n = 0; n < args.state_size; n++) {
        const float k = HB_MUL(hb_load(args.qkv, k_index + n, args.act_dtype), k_factor);
        const float decay =
            args.is_kda ? hb_exp(hb_delta_log_decay(args, token, item.head, n)) : one_decay;
        prediction = hb_delta_decay_element(args, decay, k, &h[n], prediction);
    }
    const float delta = HB_MUL(hb_delta_beta(args, token, item.head),
                               hb_load(args.qkv, v_index, args.act_dtype) - prediction);
    float y = 0.0f;
    for (int32_t n = 0; n < args.state_size; n++) {
        const float k = HB_MUL(hb_load(args.qkv, k_index + n, args.act_dtype), k_factor);
        const float q = HB_MUL(hb_load(args.qkv, q_index + n, args.act_dtype), q_factor);
        y = hb_delta_update_element(k, delta, q, &h[n], y);
    }
    hb_store(args.y, hb_delta_y_index(args, token, item.head, item.p), args.act_dtype,
             HB_MUL(args.qk_scale, y));
}

/* qkv [T, 2 G N + H P] act, gates [T, a | b] act, y [T, H, P] act, pool [NS1, slot] st. One thread
 * owns (row, head, p): writes its y column, its N elements of the row's slot and, where tracked, of
 * slot dst[row]. Tokens ascending. */
HB_KERNEL(delta_prefill_v0_kernel, struct hb_k_delta, args) {
    const struct item item = item_of(args, (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD);
    if (item.row >= args.rows.n_rows || args.rows.slots[item.row] < 0 ||
        hb_row_len(args.rows, item.row) == 0) {
        return;
    }
    float h[MAX_STATE];
    load_start(args, item, h);
    const int32_t len = hb_row_len(args.rows, item.row);
    for (int32_t t = 0; t < len; t++) {
        run_token(args, item, (int64_t)args.rows.qsl[item.row] + t, h);
        if (args.after && args.after[item.row] == t + 1) {
            store_state(args, item, args.pool,
                        hb_delta_slot_index(args, args.dst[item.row]), h);
        }
    }
    store_state(args, item, args.pool, hb_delta_slot_index(args, args.rows.slots[item.row]), h);
}

/* As above, for rows of one token: only where they start is read of qsl. */
HB_KERNEL(delta_update_v0_kernel, struct hb_k_delta, args) {
    const struct item item = item_of(args, (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD);
    if (item.row >= args.rows.n_rows || args.rows.slots[item.row] < 0) {
        return;
    }
    float h[MAX_STATE];
    load_start(args, item, h);
    run_token(args, item, args.rows.qsl[item.row], h);
    store_state(args, item, args.pool, hb_delta_slot_index(args, args.rows.slots[item.row]), h);
}

/* Index of the entry [row][t] of the intermediate caches. */
HB_INLINE int64_t entry_index(const struct hb_k_delta_verify &args, int32_t row, int32_t t) {
    return ((int64_t)row * args.max_draft + t) * hb_delta_slot_size(args.delta);
}

/* states [SR, max_draft, slot] st; the pool is only read. A thread writes its y column and its N
 * elements of every entry, and reads back none but its own. Nodes ascending. A chain keeps the
 * state in fp32 from node to node; a tree starts each node but the root from its parent's stored
 * entry. */
HB_KERNEL(delta_verify_v0_kernel, struct hb_k_delta_verify, args) {
    const struct hb_k_delta &delta = args.delta;
    const struct item item = item_of(delta, (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD);
    if (item.row >= delta.rows.n_rows || delta.rows.slots[item.row] < 0) {
        return;
    }
    const int32_t len = hb_row_len(delta.rows, item.row);
    float h[MAX_STATE];
    load_state(delta, item, delta.pool, hb_delta_slot_index(delta, delta.rows.slots[item.row]), h);
    for (int32_t t = 0; t < len; t++) {
        if (t > 0 && args.parent) {
            const int32_t parent = args.parent[(int64_t)item.row * args.parent_stride + t];
            load_state(delta, item, args.states, entry_index(args, item.row, parent), h);
        }
        run_token(delta, item, (int64_t)delta.rows.qsl[item.row] + t, h);
        store_state(delta, item, args.states, entry_index(args, item.row, t), h);
    }
}

static int64_t blocks_of(const struct hb_k_delta *args) {
    const int64_t n_items = (int64_t)args->rows.n_rows * args->n_heads * args->head_dim;
    return hb_blocks_for(n_items, HB_FLAT_THREADS);
}

/* HB_OK, or the refusal of a state that a thread cannot hold. */
static int32_t check_state(const struct hb_k_delta *args, const char *kernel) {
    if (args->state_size <= MAX_STATE) {
        return HB_OK;
    }
    return HB_K(hb_launch_refused)(kernel, "state_size", args->state_size, MAX_STATE);
}

extern "C" int32_t HB_K(hb_k_delta_prefill)(const struct hb_k_delta *args) {
    const int64_t n_blocks = blocks_of(args);
    if (n_blocks == 0) {
        return HB_OK;
    }
    if (args->form != HB_FORM_V0) {
        return HB_K(hb_k_delta_chunks)(args);
    }
    const int32_t status = check_state(args, "delta_prefill_v0_kernel");
    return status != HB_OK ? status
                           : HB_LAUNCH(delta_prefill_v0_kernel, HB_GRID(n_blocks, 1, 1),
                                       HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}

extern "C" int32_t HB_K(hb_k_delta_update)(const struct hb_k_delta *args) {
    const int64_t n_blocks = blocks_of(args);
    if (n_blocks == 0) {
        return HB_OK;
    }
    if (args->form != HB_FORM_V0) {
        return HB_K(hb_k_delta_update_warp)(args);
    }
    const int32_t status = check_state(args, "delta_update_v0_kernel");
    return status != HB_OK ? status
                           : HB_LAUNCH(delta_update_v0_kernel, HB_GRID(n_blocks, 1, 1),
                                       HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}

extern "C" int32_t HB_K(hb_k_delta_verify)(const struct hb_k_delta_verify *args) {
    const int64_t n_blocks = blocks_of(&args->delta);
    if (n_blocks == 0) {
        return HB_OK;
    }
    if (args->delta.form != HB_FORM_V0) {
        return HB_K(hb_k_delta_verify_warp)(args);
    }
    const int32_t status = check_state(&args->delta, "delta_verify_v0_kernel");
    return status != HB_OK ? status
                           : HB_LAUNCH(delta_verify_v0_kernel, HB_GRID(n_blocks, 1, 1),
                                       HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}
