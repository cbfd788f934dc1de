/* SPDX-License-Identifier: Apache-2.0
 * One step of the Mamba2 recurrence per row with a replay ring (speculative.md 7), in two forms.
 * The state is not written: the step's record (dt x, B, A dt) is, and y comes from the stored state
 * with the records replayed on it, each element by the operations of the decode update in their
 * order. So with fp32 states ring and plain decode agree bit for bit; with bf16 states the ring
 * rounds the state once per fold instead of once per token.
 *
 * Only records below w are read, so what an older use of the slot left beyond them has no
 * influence, infinite or not. Record w is written and used from registers: no thread reads what
 * another one writes in the same launch. */
#include "kernels/common.cuh"
#include "kernels/launchers.cuh"

enum { P_PER_WARP = 8, WARP = 32, MAX_RING = HB_MAX_RING };

/* What a row does in this step. */
struct step {
    int32_t slot, w, is_fold;
    int64_t token;
    float dt, g; /* of the head */
    int64_t b;   /* index of B in xbc */
    int64_t c;
    int64_t ring_g, ring_b; /* index of record 0 */
};

HB_INLINE int64_t ring_x_index(const struct hb_k_ssm_ring &args, int32_t slot, int32_t head,
                               int32_t j, int32_t p) {
    const int64_t record = ((int64_t)slot * args.ssm.n_heads + head) * args.ring_length + j;
    return record * args.ssm.head_dim + p;
}

HB_INLINE int64_t ring_b_index(const struct hb_k_ssm_ring &args, int32_t slot, int32_t group) {
    return ((int64_t)slot * args.ssm.n_groups + group) * args.ring_length * args.ssm.state_size;
}

HB_INLINE void open_step(const struct hb_k_ssm_ring &args, int32_t row, int32_t head,
                         struct step *s) {
    s->slot = args.ssm.rows.slots[row];
    s->w = args.write_pos[row];
    s->is_fold = s->w == args.ring_length - 1 || args.fold[row];
    s->token = args.ssm.rows.qsl[row];
    s->dt = hb_step_size(args.ssm, s->token, head);
    s->g = hb_log_decay(args.ssm, s->dt, head);
    s->b = hb_b_index(args.ssm, s->token, head);
    s->c = s->b + (int64_t)args.ssm.n_groups * args.ssm.state_size;
    s->ring_g = ((int64_t)s->slot * args.ssm.n_heads + head) * args.ring_length;
    s->ring_b = ring_b_index(args, s->slot, hb_group_of(args.ssm, head));
}

/* Element n of B of the group that a first head stands for. */
HB_INLINE void write_b(const struct hb_k_ssm_ring &args, const struct step &s, int32_t head,
                       int32_t n) {
    const int32_t group =
        hb_key_head(head, args.ssm.n_heads, args.ssm.n_groups, args.ssm.head_map);
    const int64_t from = s.token * hb_token_stride(args.ssm) +
                         (int64_t)args.ssm.n_heads * args.ssm.head_dim +
                         (int64_t)group * args.ssm.state_size + n;
    const int64_t to =
        ring_b_index(args, s.slot, group) + (int64_t)s.w * args.ssm.state_size + n;
    args.ring_b[to] = hb_load(args.ssm.xbc, from, args.ssm.act_dtype);
}

/* xbc [T, dim] act, dt [T, H] act, y [T, H, P] act, pool [NS1, H, P, N] st, rings fp32. One thread
 * owns (row, head, p): one y, N state elements, one dt x; the thread of p = 0 also writes A dt,
 * that of the group's first head B. Records ascending, n ascending. */
HB_KERNEL(ssm_ring_v0_kernel, struct hb_k_ssm_ring, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t p = (int32_t)(item % args.ssm.head_dim);
    const int32_t head = (int32_t)(item / args.ssm.head_dim % args.ssm.n_heads);
    const int32_t row = (int32_t)(item / args.ssm.head_dim / args.ssm.n_heads);
    if (row >= args.ssm.rows.n_rows || args.ssm.rows.slots[row] < 0) {
        return;
    }
    struct step s;
    open_step(args, row, head, &s);
    float decay[MAX_RING], dt_x[MAX_RING];
    for (int32_t j = 0; j < s.w; j++) {
        decay[j] = hb_exp(args.ring_g[s.ring_g + j]);
        dt_x[j] = args.ring_x[ring_x_index(args, s.slot, head, j, p)];
    }
    const float x =
        hb_load(args.ssm.xbc, hb_x_index(args.ssm, s.token, head, p), args.ssm.act_dtype);
    const float last = hb_exp(s.g);
    const int64_t state = hb_state_index(args.ssm, s.slot, head, p);
    float y = 0.0f;
    for (int32_t n = 0; n < args.ssm.state_size; n++) {
        const int64_t element = state + hb_state_offset(args.ssm, 0, n);
        float h = hb_load(args.ssm.pool, element, args.ssm.state_dtype);
        for (int32_t j = 0; j < s.w; j++) {
            const float b = args.ring_b[s.ring_b + (int64_t)j * args.ssm.state_size + n];
            h = HB_MUL_ADD(dt_x[j], b, HB_MUL(decay[j], h));
        }
        const float b = hb_load(args.ssm.xbc, s.b + n, args.ssm.act_dtype);
        const float c = hb_load(args.ssm.xbc, s.c + n, args.ssm.act_dtype);
        y = hb_state_step(&h, last, s.dt * x, b, c, y);
        if (s.is_fold) {
            hb_store(args.ssm.pool, element, args.ssm.state_dtype, h);
        }
        if (p == 0 && hb_is_first_of_group(args.ssm, head)) {
            write_b(args, s, head, n);
        }
    }
    args.ring_x[ring_x_index(args, s.slot, head, s.w, p)] = s.dt * x;
    if (p == 0) {
        args.ring_g[s.ring_g + s.w] = s.g;
    }
    hb_store(args.ssm.y, hb_y_index(args.ssm, s.token, head, p), args.ssm.act_dtype,
             hb_add_skip(args.ssm, s.token, head, y, x));
}

/* Record w of the block's p values; the block of p0 = 0 writes what they share. */
HB_INLINE void write_record(const struct hb_k_ssm_ring &args, const struct step &s, int32_t head,
                            int32_t p0, int32_t n_p) {
    for (int32_t p = HB_THREAD; p < n_p; p += HB_THREADS) {
        const float x =
            hb_load(args.ssm.xbc, hb_x_index(args.ssm, s.token, head, p0 + p), args.ssm.act_dtype);
        args.ring_x[ring_x_index(args, s.slot, head, s.w, p0 + p)] = s.dt * x;
    }
    if (p0 != 0) {
        return;
    }
    if (HB_THREAD == 0) {
        args.ring_g[s.ring_g + s.w] = s.g;
    }
    for (int32_t n = HB_THREAD; hb_is_first_of_group(args.ssm, head) && n < args.ssm.state_size;
         n += HB_THREADS) {
        write_b(args, s, head, n);
    }
}

/* Grid (row, head, p / 8): one warp owns 8 values of p; its lanes share the state elements as in
 * the decode update, lane, lane + 32, ... The replayed decays and dt x lie in shared memory, B is
 * read once per record and lane. */
HB_KERNEL(ssm_ring_warp_kernel, struct hb_k_ssm_ring, args) {
    const int32_t row = HB_BLOCK_X;
    const int32_t head = HB_BLOCK_Y;
    const int32_t p0 = HB_BLOCK_Z * P_PER_WARP;
    const int32_t left = args.ssm.head_dim - p0;
    const int32_t n_p = left < P_PER_WARP ? left : P_PER_WARP;
    HB_SHARED_BEGIN;
    HB_SHARED(float, decay, args.ring_length);
    HB_SHARED(float, dt_x, args.ring_length *P_PER_WARP);
    if (args.ssm.rows.slots[row] < 0) {
        return;
    }
    struct step s;
    open_step(args, row, head, &s);
    for (int32_t j = HB_THREAD; j < s.w; j += HB_THREADS) {
        decay[j] = hb_exp(args.ring_g[s.ring_g + j]);
    }
    for (int32_t i = HB_THREAD; i < s.w * n_p; i += HB_THREADS) {
        const int32_t j = i / n_p;
        const int32_t p = i % n_p;
        dt_x[j * P_PER_WARP + p] = args.ring_x[ring_x_index(args, s.slot, head, j, p0 + p)];
    }
    HB_SYNCTHREADS();
    const int64_t x_index = hb_x_index(args.ssm, s.token, head, p0);
    const int64_t state = hb_state_index(args.ssm, s.slot, head, p0);
    const float last = hb_exp(s.g);
    float y[P_PER_WARP] = {0.0f};
    for (int32_t n = HB_THREAD; n < args.ssm.state_size; n += HB_THREADS) {
        float h[P_PER_WARP];
        for (int32_t p = 0; p < n_p; p++) {
            h[p] = hb_load(args.ssm.pool, state + hb_state_offset(args.ssm, p, n),
                           args.ssm.state_dtype);
        }
        for (int32_t j = 0; j < s.w; j++) {
            const float b = args.ring_b[s.ring_b + (int64_t)j * args.ssm.state_size + n];
            for (int32_t p = 0; p < n_p; p++) {
                h[p] = HB_MUL_ADD(dt_x[j * P_PER_WARP + p], b, HB_MUL(decay[j], h[p]));
            }
        }
        const float b = hb_load(args.ssm.xbc, s.b + n, args.ssm.act_dtype);
        const float c = hb_load(args.ssm.xbc, s.c + n, args.ssm.act_dtype);
        for (int32_t p = 0; p < n_p; p++) {
            const float x = hb_load(args.ssm.xbc, x_index + p, args.ssm.act_dtype);
            y[p] = hb_state_step(&h[p], last, s.dt * x, b, c, y[p]);
            if (s.is_fold) {
                hb_store(args.ssm.pool, state + hb_state_offset(args.ssm, p, n),
                         args.ssm.state_dtype, h[p]);
            }
        }
    }
    write_record(args, s, head, p0, n_p);
    HB_WARP_SUM(y, n_p);
    for (int32_t p = HB_THREAD; p < n_p; p += HB_THREADS) {
        const float x = hb_load(args.ssm.xbc, x_index + p, args.ssm.act_dtype);
        hb_store(args.ssm.y, hb_y_index(args.ssm, s.token, head, p0 + p), args.ssm.act_dtype,
                 hb_add_skip(args.ssm, s.token, head, y[p], x));
    }
}

extern "C" int32_t HB_K(hb_k_ssm_ring)(const struct hb_k_ssm_ring *args) {
    const struct hb_k_ssm *ssm = &args->ssm;
    const int64_t n_items = (int64_t)ssm->rows.n_rows * ssm->n_heads * ssm->head_dim;
    if (n_items == 0) {
        return HB_OK;
    }
    if (args->ring_length > MAX_RING) {
        return HB_K(hb_launch_refused)("ssm_ring_kernel", "ring_length", args->ring_length,
                                       MAX_RING);
    }
    if (ssm->form == HB_FORM_V0) {
        return HB_LAUNCH(ssm_ring_v0_kernel, HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1),
                         HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
    }
    const size_t shared = HB_SHARED_BYTES(float, args->ring_length) +
                          HB_SHARED_BYTES(float, args->ring_length *P_PER_WARP);
    /* as in the decode update: the emulated warp leaves out lanes without a state element */
    const int32_t n_lanes = HB_SIZE(WARP, ssm->state_size < WARP ? ssm->state_size : WARP);
    return HB_LAUNCH(
        ssm_ring_warp_kernel,
        HB_GRID(ssm->rows.n_rows, ssm->n_heads, hb_blocks_for(ssm->head_dim, P_PER_WARP)), n_lanes,
        shared, HB_SYNC, args);
}
