/* SPDX-License-Identifier: Apache-2.0
 * Draft verification with a replay ring that commits own (speculative.md 7), and the fold of a
 * checkpoint. The state before node 0 is the stored one with the records of accepted tokens
 * replayed on it; each node leaves a record beyond them. Operations and their order are those of
 * the decode update, so ring, intermediate caches and plain decode agree bit for bit (states are
 * fp32 here).
 *
 * The records that are read and those that are written are different positions, and nodes are
 * computed from the inputs: no thread reads what another one writes in the same launch. */
#include "kernels/common.cuh"
#include "kernels/launchers.cuh"

enum { P_PER_WARP = 8, WARP = 32, MAX_RING = HB_MAX_RING, MAX_STATE = HB_MAX_STATE_SIZE };

/* The ring of one slot, as one head sees it. */
struct ring {
    int32_t slot, base, w, mask;
    int64_t x, b, g; /* index of record 0: of the head and p = 0, of its group, of the head */
};

HB_INLINE void open_ring(const struct hb_k_ssm_ring &args, int32_t slot, int32_t base, int32_t w,
                         int32_t head, struct ring *ring) {
    const struct hb_k_ssm &ssm = args.ssm;
    const int64_t record = ((int64_t)slot * ssm.n_heads + head) * args.ring_length;
    const int64_t group = (int64_t)slot * ssm.n_groups + hb_group_of(ssm, head);
    ring->slot = slot;
    ring->base = base;
    ring->w = w;
    ring->mask = args.ring_length - 1;
    ring->g = record;
    ring->x = record * ssm.head_dim;
    ring->b = group * args.ring_length * ssm.state_size;
}

/* Position of the j-th record from the base. */
HB_INLINE int32_t position(const struct ring &ring, int32_t j) {
    return (ring.base + j) & ring.mask;
}

/* One state element with the first count records replayed; decay and dt_x are theirs, dt_x at
 * stride. */
HB_INLINE float replay(const struct hb_k_ssm_ring &args, const struct ring &ring, int32_t count,
                       const float *decay, const float *dt_x, int32_t stride, int32_t n, float h) {
    for (int32_t j = 0; j < count; j++) {
        const float b = args.ring_b[ring.b + (int64_t)position(ring, j) * args.ssm.state_size + n];
        h = HB_MUL_ADD(dt_x[(int64_t)j * stride], b, HB_MUL(decay[j], h));
    }
    return h;
}

/* What a node is made of, for one head. */
struct node {
    int32_t at; /* position of its record */
    int64_t token, b, c;
    float dt, g, decay;
};

HB_INLINE void open_node(const struct hb_k_ssm_ring &args, const struct ring &ring, int32_t row,
                         int32_t t, int32_t head, struct node *node) {
    node->at = position(ring, ring.w + t);
    node->token = (int64_t)args.ssm.rows.qsl[row] + t;
    node->dt = hb_step_size(args.ssm, node->token, head);
    node->g = hb_log_decay(args.ssm, node->dt, head);
    node->decay = hb_exp(node->g);
    node->b = hb_b_index(args.ssm, node->token, head);
    node->c = node->b + (int64_t)args.ssm.n_groups * args.ssm.state_size;
}

/* xbc [T, dim] act, dt [T, H] act, y [T, H, P] act, pool [NS1, H, P, N] fp32, rings fp32. One
 * thread owns (row, head, p): its y column, its N state elements, dt x of each node; the thread of
 * p = 0 also writes A dt, and B where its head is the first of its group. Records, then nodes
 * ascending, n ascending. */
HB_KERNEL(ssm_ring_verify_v0_kernel, struct hb_k_ssm_ring, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t p = (int32_t)(item % args.ssm.head_dim);
    const int32_t head = (int32_t)(item / args.ssm.head_dim % args.ssm.n_heads);
    const int32_t row = (int32_t)(item / args.ssm.head_dim / args.ssm.n_heads);
    if (row >= args.ssm.rows.n_rows || args.ssm.rows.slots[row] < 0) {
        return;
    }
    struct ring ring;
    open_ring(args, args.ssm.rows.slots[row], args.base[row], args.write_pos[row], head, &ring);
    float decay[MAX_RING], dt_x[MAX_RING], h[MAX_STATE];
    for (int32_t j = 0; j < ring.w; j++) {
        decay[j] = hb_exp(args.ring_g[ring.g + position(ring, j)]);
        dt_x[j] = args.ring_x[ring.x + (int64_t)position(ring, j) * args.ssm.head_dim + p];
    }
    const int64_t state = hb_state_index(args.ssm, ring.slot, head, p);
    for (int32_t n = 0; n < args.ssm.state_size; n++) {
        const int64_t element = state + hb_state_offset(args.ssm, 0, n);
        h[n] = replay(args, ring, ring.w, decay, dt_x, 1, n,
                      hb_load(args.ssm.pool, element, args.ssm.state_dtype));
        if (args.fold[row]) {
            hb_store(args.ssm.pool, element, args.ssm.state_dtype, h[n]);
        }
    }
    const int32_t writes_b = p == 0 && hb_is_first_of_group(args.ssm, head);
    const int32_t len = hb_row_len(args.ssm.rows, row);
    for (int32_t t = 0; t < len; t++) {
        struct node node;
        open_node(args, ring, row, t, head, &node);
        const float x =
            hb_load(args.ssm.xbc, hb_x_index(args.ssm, node.token, head, p), args.ssm.act_dtype);
        float y = 0.0f;
        for (int32_t n = 0; n < args.ssm.state_size; n++) {
            const float b = hb_load(args.ssm.xbc, node.b + n, args.ssm.act_dtype);
            const float c = hb_load(args.ssm.xbc, node.c + n, args.ssm.act_dtype);
            y = hb_state_step(&h[n], node.decay, node.dt * x, b, c, y);
            if (writes_b) {
                args.ring_b[ring.b + (int64_t)node.at * args.ssm.state_size + n] = b;
            }
        }
        args.ring_x[ring.x + (int64_t)node.at * args.ssm.head_dim + p] = node.dt * x;
        if (p == 0) {
            args.ring_g[ring.g + node.at] = node.g;
        }
        hb_store(args.ssm.y, hb_y_index(args.ssm, node.token, head, p), args.ssm.act_dtype,
                 hb_add_skip(args.ssm, node.token, head, y, x));
    }
}

/* Record of one node: the block's n_p values of dt x; the block of p0 = 0 writes what they share. */
HB_INLINE void write_record(const struct hb_k_ssm_ring &args, const struct ring &ring,
                            const struct node &node, int32_t head, int32_t p0, int32_t n_p) {
    for (int32_t p = HB_THREAD; p < n_p; p += HB_THREADS) {
        const int64_t x_index = hb_x_index(args.ssm, node.token, head, p0 + p);
        const float x = hb_load(args.ssm.xbc, x_index, args.ssm.act_dtype);
        args.ring_x[ring.x + (int64_t)node.at * args.ssm.head_dim + p0 + p] = node.dt * x;
    }
    if (p0 != 0) {
        return;
    }
    if (HB_THREAD == 0) {
        args.ring_g[ring.g + node.at] = node.g;
    }
    for (int32_t n = HB_THREAD; hb_is_first_of_group(args.ssm, head) && n < args.ssm.state_size;
         n += HB_THREADS) {
        args.ring_b[ring.b + (int64_t)node.at * args.ssm.state_size + n] =
            hb_load(args.ssm.xbc, node.b + n, args.ssm.act_dtype);
    }
}

/* Grid (row, head, p / 8): one warp owns 8 values of p; its lanes share the state elements as in
 * the decode update, lane, lane + 32, ... Replayed decays and dt x lie in shared memory. */
HB_KERNEL(ssm_ring_verify_warp_kernel, struct hb_k_ssm_ring, args) {
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
    struct ring ring;
    open_ring(args, args.ssm.rows.slots[row], args.base[row], args.write_pos[row], head, &ring);
    for (int32_t j = HB_THREAD; j < ring.w; j += HB_THREADS) {
        decay[j] = hb_exp(args.ring_g[ring.g + position(ring, j)]);
    }
    for (int32_t i = HB_THREAD; i < ring.w * n_p; i += HB_THREADS) {
        const int64_t at = (int64_t)position(ring, i / n_p) * args.ssm.head_dim;
        dt_x[i / n_p * P_PER_WARP + i % n_p] = args.ring_x[ring.x + at + p0 + i % n_p];
    }
    HB_SYNCTHREADS();
    const int64_t state = hb_state_index(args.ssm, ring.slot, head, p0);
    float h[MAX_STATE / WARP][P_PER_WARP] = {{0.0f}};
    for (int32_t n = HB_THREAD, i = 0; n < args.ssm.state_size; n += HB_THREADS, i++) {
        for (int32_t p = 0; p < n_p; p++) {
            const int64_t at = state + hb_state_offset(args.ssm, p, n);
            h[i][p] = replay(args, ring, ring.w, decay, dt_x + p, P_PER_WARP, n,
                             hb_load(args.ssm.pool, at, args.ssm.state_dtype));
            if (args.fold[row]) {
                hb_store(args.ssm.pool, at, args.ssm.state_dtype, h[i][p]);
            }
        }
    }
    const int32_t len = hb_row_len(args.ssm.rows, row);
    for (int32_t t = 0; t < len; t++) {
        struct node node;
        open_node(args, ring, row, t, head, &node);
        const int64_t x_index = hb_x_index(args.ssm, node.token, head, p0);
        float y[P_PER_WARP] = {0.0f};
        for (int32_t n = HB_THREAD, i = 0; n < args.ssm.state_size; n += HB_THREADS, i++) {
            const float b = hb_load(args.ssm.xbc, node.b + n, args.ssm.act_dtype);
            const float c = hb_load(args.ssm.xbc, node.c + n, args.ssm.act_dtype);
            for (int32_t p = 0; p < n_p; p++) {
                const float x = hb_load(args.ssm.xbc, x_index + p, args.ssm.act_dtype);
                y[p] = hb_state_step(&h[i][p], node.decay, node.dt * x, b, c, y[p]);
            }
        }
        write_record(args, ring, node, head, p0, n_p);
        HB_WARP_SUM(y, n_p);
        for (int32_t p = HB_THREAD; p < n_p; p += HB_THREADS) {
            const float x = hb_load(args.ssm.xbc, x_index + p, args.ssm.act_dtype);
            hb_store(args.ssm.y, hb_y_index(args.ssm, node.token, head, p0 + p), args.ssm.act_dtype,
                     hb_add_skip(args.ssm, node.token, head, y[p], x));
        }
    }
}

extern "C" int32_t HB_K(hb_k_ssm_ring_verify)(const struct hb_k_ssm_ring *args) {
    const struct hb_k_ssm *ssm = &args->ssm;
    const int64_t n_items = (int64_t)ssm->rows.n_rows * ssm->n_heads * ssm->head_dim;
    if (n_items == 0) {
        return HB_OK;
    }
    if (args->ring_length > MAX_RING) {
        return HB_K(hb_launch_refused)("ssm_ring_verify_kernel", "ring_length", args->ring_length,
                                       MAX_RING);
    }
    if (ssm->state_size > MAX_STATE) {
        return HB_K(hb_launch_refused)("ssm_ring_verify_kernel", "state_size", ssm->state_size,
                                       MAX_STATE);
    }
    if (ssm->form == HB_FORM_V0) {
        return HB_LAUNCH(ssm_ring_verify_v0_kernel,
                         HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1), HB_FLAT_THREADS, 0,
                         HB_NO_SYNC, args);
    }
    const size_t shared = HB_SHARED_BYTES(float, args->ring_length) +
                          HB_SHARED_BYTES(float, args->ring_length *P_PER_WARP);
    /* as in the decode update: the emulated warp leaves out lanes without a state element */
    const int32_t n_lanes = HB_SIZE(WARP, ssm->state_size < WARP ? ssm->state_size : WARP);
    return HB_LAUNCH(
        ssm_ring_verify_warp_kernel,
        HB_GRID(ssm->rows.n_rows, ssm->n_heads, hb_blocks_for(ssm->head_dim, P_PER_WARP)), n_lanes,
        shared, HB_SYNC, args);
}

/* One thread owns (pair, head, p): N elements of the destination's state. */
HB_KERNEL(ssm_ring_fold_kernel, struct hb_k_ring_fold, args) {
    const struct hb_k_ssm &ssm = args.ring.ssm;
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t p = (int32_t)(item % ssm.head_dim);
    const int32_t head = (int32_t)(item / ssm.head_dim % ssm.n_heads);
    const int32_t i = (int32_t)(item / ssm.head_dim / ssm.n_heads);
    if (i >= args.n_pairs) {
        return;
    }
    struct ring ring;
    open_ring(args.ring, args.src[i], args.ring.base[i], args.count[i], head, &ring);
    float decay[MAX_RING], dt_x[MAX_RING];
    for (int32_t j = 0; j < ring.w; j++) {
        const int32_t at = position(ring, j);
        decay[j] = hb_exp(args.ring.ring_g[ring.g + at]);
        dt_x[j] = args.ring.ring_x[ring.x + (int64_t)at * ssm.head_dim + p];
    }
    const int64_t from = hb_state_index(ssm, ring.slot, head, p);
    const int64_t to = hb_state_index(ssm, args.dst[i], head, p);
    for (int32_t n = 0; n < ssm.state_size; n++) {
        const int64_t element = hb_state_offset(ssm, 0, n);
        const float h = replay(args.ring, ring, ring.w, decay, dt_x, 1, n,
                               hb_load(ssm.pool, from + element, ssm.state_dtype));
        hb_store(ssm.pool, to + element, ssm.state_dtype, h);
    }
}

extern "C" int32_t HB_K(hb_k_ring_fold)(const struct hb_k_ring_fold *args) {
    const struct hb_k_ssm *ssm = &args->ring.ssm;
    const int64_t n_items = (int64_t)args->n_pairs * ssm->n_heads * ssm->head_dim;
    if (n_items == 0) {
        return HB_OK;
    }
    if (args->ring.ring_length > MAX_RING) {
        return HB_K(hb_launch_refused)("ssm_ring_fold_kernel", "ring_length",
                                       args->ring.ring_length, MAX_RING);
    }
    return HB_LAUNCH(ssm_ring_fold_kernel, HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1),
                     HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}
