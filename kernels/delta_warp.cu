/* SPDX-License-Identifier: Apache-2.0
 * One-token rows and draft nodes of the gated delta rule (ops-delta.md 1.2 and 2), fast form: a
 * warp owns 8 values of p of one head of one row, and its lanes share the state elements n: lane,
 * lane + 32, ... A lane sums its n ascending, then the lanes are added as a butterfly: one order,
 * whatever the schedule. Both kernels advance the state by run_token, so that with fp32 states they
 * agree bit for bit. */
#include "kernels/delta.cuh"
#include "kernels/launchers.cuh"

enum { P_PER_WARP = 8, WARP = 32, MAX_STATE = HB_MAX_STATE_SIZE };
enum { PER_LANE = MAX_STATE / WARP };

struct tile {
    int32_t row, head, p0, n_p;
};

HB_INLINE struct tile tile_of(const struct hb_k_delta &args) {
    struct tile tile;
    tile.row = HB_BLOCK_X;
    tile.head = HB_BLOCK_Y;
    tile.p0 = HB_BLOCK_Z * P_PER_WARP;
    tile.n_p = args.head_dim - tile.p0 < P_PER_WARP ? args.head_dim - tile.p0 : P_PER_WARP;
    return tile;
}

/* The lane's elements of the entry at index of states, which is laid out like a slot. */
HB_INLINE void load_state(const struct hb_k_delta &args, const struct tile &tile,
                          const void *states, int64_t index, float h[PER_LANE][P_PER_WARP]) {
    const int64_t stride = hb_delta_stride(args);
    for (int32_t n = HB_THREAD, i = 0; n < args.state_size; n += HB_THREADS, i++) {
        for (int32_t p = 0; p < tile.n_p; p++) {
            const int64_t element = hb_delta_element(args, tile.head, tile.p0 + p) + n * stride;
            h[i][p] = hb_load(states, index + element, args.state_dtype);
        }
    }
}

HB_INLINE void store_state(const struct hb_k_delta &args, const struct tile &tile, void *states,
                           int64_t index, const float h[PER_LANE][P_PER_WARP]) {
    const int64_t stride = hb_delta_stride(args);
    for (int32_t n = HB_THREAD, i = 0; n < args.state_size; n += HB_THREADS, i++) {
        for (int32_t p = 0; p < tile.n_p; p++) {
            const int64_t element = hb_delta_element(args, tile.head, tile.p0 + p) + n * stride;
            hb_store(states, index + element, args.state_dtype, h[i][p]);
        }
    }
}

/* Factors of the l2 norm of the token's q and k, from the lanes' shares of the squares. */
HB_INLINE void l2_factors(const struct hb_k_delta &args, int64_t q_index, int64_t k_index,
                          float factors[2]) {
    float sums[2] = {0.0f, 0.0f};
    for (int32_t n = HB_THREAD; n < args.state_size; n += HB_THREADS) {
        const float q = hb_load(args.qkv, q_index + n, args.act_dtype);
        const float k = hb_load(args.qkv, k_index + n, args.act_dtype);
        sums[0] = HB_MUL_ADD(q, q, sums[0]);
        sums[1] = HB_MUL_ADD(k, k, sums[1]);
    }
    HB_WARP_SUM(sums, 2);
    factors[0] = hb_delta_l2_of_sum(args, sums[0]);
    factors[1] = hb_delta_l2_of_sum(args, sums[1]);
}

/* h becomes the state after the token; writes y. */
HB_INLINE void run_token(const struct hb_k_delta &args, const struct tile &tile, int64_t token,
                         float h[PER_LANE][P_PER_WARP]) {
    const int64_t q_index = hb_delta_q_index(args, token, tile.head);
    const int64_t k_index = q_index + (int64_t)args.n_groups * args.state_size;
    const int64_t v_index = hb_delta_v_index(args, token, tile.head, tile.p0);
    const float one_decay =
        args.is_kda ? 0.0f : hb_exp(hb_delta_log_decay(args, token, tile.head, 0));
    const float beta = hb_delta_beta(args, token, tile.head);
    float factors[2];
    l2_factors(args, q_index, k_index, factors);
    float delta[P_PER_WARP] = {0.0f};
    for (int32_t n = HB_THREAD, i = 0; n < args.state_size; n += HB_THREADS, i++) {
        const float k = HB_MUL(hb_load(args.qkv, k_index + n, args.act_dtype), factors[1]);
        const float decay =
            args.is_kda ? hb_exp(hb_delta_log_decay(args, token, tile.head, n)) : one_decay;
        for (int32_t p = 0; p < tile.n_p; p++) {
            delta[p] = hb_delta_decay_element(args, decay, k, &h[i][p], delta[p]);
        }
    }
    HB_WARP_SUM(delta, tile.n_p); /* predictions */
    for (int32_t p = 0; p < tile.n_p; p++) {
        delta[p] = HB_MUL(beta, hb_load(args.qkv, v_index + p, args.act_dtype) - delta[p]);
    }
    float y[P_PER_WARP] = {0.0f};
    for (int32_t n = HB_THREAD, i = 0; n < args.state_size; n += HB_THREADS, i++) {
        const float k = HB_MUL(hb_load(args.qkv, k_index + n, args.act_dtype), factors[1]);
        const float q = HB_MUL(hb_load(args.qkv, q_index + n, args.act_dtype), factors[0]);
        for (int32_t p = 0; p < tile.n_p; p++) {
            y[p] = hb_delta_update_element(k, delta[p], q, &h[i][p], y[p]);
        }
    }
    HB_WARP_SUM(y, tile.n_p);
    for (int32_t p = HB_THREAD; p < tile.n_p; p += HB_THREADS) {
        hb_store(args.y, hb_delta_y_index(args, token, tile.head, tile.p0 + p), args.act_dtype,
                 HB_MUL(args.qk_scale, y[p]));
    }
}

/* Grid (row, head, p / 8). */
HB_KERNEL(delta_update_warp_kernel, struct hb_k_delta, args) {
    const struct tile tile = tile_of(args);
    const int32_t slot = args.rows.slots[tile.row];
    if (slot < 0) {
        return;
    }
    float h[PER_LANE][P_PER_WARP] = {{0.0f}};
    if (hb_row_has_init(args.rows, tile.row)) {
        load_state(args, tile, args.pool, hb_delta_slot_index(args, slot), h);
    }
    run_token(args, tile, args.rows.qsl[tile.row], h);
    store_state(args, tile, args.pool, hb_delta_slot_index(args, slot), h);
}

/* Index of the entry [row][t] of the intermediate caches. */
HB_INLINE int64_t entry_index(const struct hb_k_delta_verify &args, int32_t row, int32_t t) {
    return ((int64_t)row * args.max_draft + t) * hb_delta_slot_size(args.delta);
}

/* Grid (row, head, p / 8). As the v0 kernel in delta.cu: a lane reads back none but its own. */
HB_KERNEL(delta_verify_warp_kernel, struct hb_k_delta_verify, args) {
    const struct hb_k_delta &delta = args.delta;
    const struct tile tile = tile_of(delta);
    const int32_t slot = delta.rows.slots[tile.row];
    if (slot < 0) {
        return;
    }
    const int32_t len = hb_row_len(delta.rows, tile.row);
    float h[PER_LANE][P_PER_WARP] = {{0.0f}};
    load_state(delta, tile, delta.pool, hb_delta_slot_index(delta, slot), h);
    for (int32_t t = 0; t < len; t++) {
        if (t > 0 && args.parent) {
            const int32_t parent = args.parent[(int64_t)tile.row * args.parent_stride + t];
            load_state(delta, tile, args.states, entry_index(args, tile.row, parent), h);
        }
        run_token(delta, tile, (int64_t)delta.rows.qsl[tile.row] + t, h);
        store_state(delta, tile, args.states, entry_index(args, tile.row, t), h);
    }
}

/* Lanes without a state element add zero: the emulated warp leaves them out. */
static int32_t lanes_of(const struct hb_k_delta *args) {
    return HB_SIZE(WARP, args->state_size < WARP ? args->state_size : WARP);
}

extern "C" int32_t HB_K(hb_k_delta_update_warp)(const struct hb_k_delta *args) {
    if (args->state_size > MAX_STATE) {
        return HB_K(hb_launch_refused)("delta_update_warp_kernel", "state_size", args->state_size,
                                       MAX_STATE);
    }
    return HB_LAUNCH(
        delta_update_warp_kernel,
        HB_GRID(args->rows.n_rows, args->n_heads, hb_blocks_for(args->head_dim, P_PER_WARP)),
        lanes_of(args), 0, HB_SYNC, args);
}

extern "C" int32_t HB_K(hb_k_delta_verify_warp)(const struct hb_k_delta_verify *args) {
    const struct hb_k_delta *delta = &args->delta;
    if (delta->state_size > MAX_STATE) {
        return HB_K(hb_launch_refused)("delta_verify_warp_kernel", "state_size",
                                       delta->state_size, MAX_STATE);
    }
    return HB_LAUNCH(
        delta_verify_warp_kernel,
        HB_GRID(delta->rows.n_rows, delta->n_heads, hb_blocks_for(delta->head_dim, P_PER_WARP)),
        lanes_of(delta), 0, HB_SYNC, args);
}
