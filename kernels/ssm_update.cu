/* SPDX-License-Identifier: Apache-2.0
 * One step of the Mamba2 recurrence per row (ops-mamba2.md 3), in two forms. y comes from the fp32
 * state, before the state is rounded for storage. */
#include "kernels/common.cuh"
#include "kernels/launchers.cuh"

enum { P_PER_WARP = 8, WARP = 32 };

/* What a padding row and the first state element do in the builds with planted defects. */
HB_INLINE void plant_defects(const struct hb_k_ssm &args, int32_t slot, int64_t element) {
    if (HB_DEFECT(args.defect, PAD_ROW_WRITTEN) && slot < 0) {
        hb_clear(args.pool, element, args.state_dtype);
    }
    if (HB_DEFECT(args.defect, NEIGHBOUR_SLOT) && slot > 0 && element == 0) {
        hb_clear(args.pool, hb_state_index(args, slot - 1, 0, 0), args.state_dtype);
    }
}

/* xbc [T, dim] act, dt [T, H] act, y [T, H, P] act, pool [NS1, H, P, N] st. One thread owns (row,
 * head, p): writes one y and N state elements. Sum over n ascending: the order of the sequential
 * prefill. */
HB_KERNEL(ssm_update_v0_kernel, struct hb_k_ssm, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t p = (int32_t)(item % args.head_dim);
    const int32_t head = (int32_t)(item / args.head_dim % args.n_heads);
    const int32_t row = (int32_t)(item / args.head_dim / args.n_heads);
    if (row >= args.rows.n_rows) {
        return;
    }
    const int32_t slot = args.rows.slots[row];
    plant_defects(args, slot, hb_state_index(args, 0, head, p));
    if (slot < 0) {
        return;
    }
    const int64_t token = args.rows.qsl[row];
    const float dt = hb_step_size(args, token, head);
    const float decay = hb_exp(hb_log_decay(args, dt, head));
    const float x = hb_load(args.xbc, hb_x_index(args, token, head, p), args.act_dtype);
    const int64_t b_index = hb_b_index(args, token, head);
    const int64_t c_index = b_index + (int64_t)args.n_groups * args.state_size;
    const int64_t state = hb_state_index(args, slot, head, p);
    const int32_t has_init = hb_row_has_init(args.rows, row);
    float y = 0.0f;
    for (int32_t n = 0; n < args.state_size; n++) {
        const int64_t element = state + hb_state_offset(args, 0, n);
        float h = has_init ? hb_load(args.pool, element, args.state_dtype) : 0.0f;
        const float b = hb_load(args.xbc, b_index + n, args.act_dtype);
        const float c = hb_load(args.xbc, c_index + n, args.act_dtype);
        y = hb_state_step(&h, decay, dt * x, b, c, y);
        hb_store(args.pool, element, args.state_dtype, h);
    }
    hb_store(args.y, hb_y_index(args, token, head, p), args.act_dtype,
             hb_add_skip(args, token, head, y, x));
}

/* Grid (row, head, p / 8): one warp owns 8 values of p; its lanes share the state elements n, lane,
 * lane + 32, ... A lane sums its n ascending, then the lanes are added as a butterfly: one order,
 * whatever the schedule. */
HB_KERNEL(ssm_update_warp_kernel, struct hb_k_ssm, args) {
    const int32_t row = HB_BLOCK_X;
    const int32_t head = HB_BLOCK_Y;
    const int32_t p0 = HB_BLOCK_Z * P_PER_WARP;
    const int32_t n_p = args.head_dim - p0 < P_PER_WARP ? args.head_dim - p0 : P_PER_WARP;
    const int32_t slot = args.rows.slots[row];
    if (HB_THREAD == 0) {
        plant_defects(args, slot, hb_state_index(args, 0, head, p0));
    }
    if (slot < 0) {
        return;
    }
    const int64_t token = args.rows.qsl[row];
    const float dt = hb_step_size(args, token, head);
    const float decay = hb_exp(hb_log_decay(args, dt, head));
    const int64_t x_index = hb_x_index(args, token, head, p0);
    const int64_t b_index = hb_b_index(args, token, head);
    const int64_t c_index = b_index + (int64_t)args.n_groups * args.state_size;
    const int64_t state = hb_state_index(args, slot, head, p0);
    const int32_t has_init = hb_row_has_init(args.rows, row);
    float y[P_PER_WARP] = {0.0f};
    for (int32_t n = HB_THREAD; n < args.state_size; n += HB_THREADS) {
        const float b = hb_load(args.xbc, b_index + n, args.act_dtype);
        const float c = hb_load(args.xbc, c_index + n, args.act_dtype);
        for (int32_t p = 0; p < n_p; p++) {
            const int64_t element = state + hb_state_offset(args, p, n);
            const float x = hb_load(args.xbc, x_index + p, args.act_dtype);
            float h = has_init ? hb_load(args.pool, element, args.state_dtype) : 0.0f;
            y[p] = hb_state_step(&h, decay, dt * x, b, c, y[p]);
            hb_store(args.pool, element, args.state_dtype, h);
        }
    }
    HB_WARP_SUM(y, n_p);
    for (int32_t p = HB_THREAD; p < n_p; p += HB_THREADS) {
        const float x = hb_load(args.xbc, x_index + p, args.act_dtype);
        hb_store(args.y, hb_y_index(args, token, head, p0 + p), args.act_dtype,
                 hb_add_skip(args, token, head, y[p], x));
    }
}

extern "C" int32_t HB_K(hb_k_ssm_update)(const struct hb_k_ssm *args) {
    const int64_t n_items = (int64_t)args->rows.n_rows * args->n_heads * args->head_dim;
    if (n_items == 0) {
        return HB_OK;
    }
    if (args->form == HB_FORM_V0) {
        return HB_LAUNCH(ssm_update_v0_kernel,
                         HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1), HB_FLAT_THREADS, 0,
                         HB_NO_SYNC, args);
    }
    /* lanes without a state element add zero: the emulated warp leaves them out */
    const int32_t n_lanes = HB_SIZE(WARP, args->state_size < WARP ? args->state_size : WARP);
    return HB_LAUNCH(
        ssm_update_warp_kernel,
        HB_GRID(args->rows.n_rows, args->n_heads, hb_blocks_for(args->head_dim, P_PER_WARP)),
        n_lanes, 0, HB_SYNC, args);
}
