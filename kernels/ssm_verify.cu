/* SPDX-License-Identifier: Apache-2.0
 * The Mamba2 recurrence over draft nodes (speculative.md 1), in the two forms of the decode update
 * and with its order of operations, so that with fp32 states a verify agrees with one decode step
 * per node bit for bit. A chain keeps the state in fp32 from node to node; a tree starts each node
 * from its parent's stored entry. */
#include "kernels/common.cuh"
#include "kernels/launchers.cuh"

enum { P_PER_WARP = 8, WARP = 32, MAX_STATE = HB_MAX_STATE_SIZE };

/* What a block or thread knows of one node. */
struct node {
    float dt, decay;
    int64_t token, b, c;
    const void *before; /* what is_loaded nodes start from: the pool or the caches */
    int64_t before_at;  /* of its element [head][p][0] */
    int64_t after_at;   /* in the caches */
};

/* Index of the entry [row][t][head][p][0] of the intermediate caches. */
HB_INLINE int64_t entry_index(const struct hb_k_ssm_verify &args, int32_t row, int32_t t,
                              int32_t head, int32_t p) {
    const struct hb_k_ssm &ssm = args.ssm;
    const int64_t entry_size = (int64_t)ssm.n_heads * ssm.head_dim * ssm.state_size;
    return ((int64_t)row * args.max_draft + t) * entry_size +
           hb_element_index(hb_ssm_layout(ssm), head, p, ssm.head_dim, ssm.state_size);
}

HB_INLINE void open_node(const struct hb_k_ssm_verify &args, int32_t row, int32_t t, int32_t head,
                         int32_t p, struct node *node) {
    node->token = (int64_t)args.ssm.rows.qsl[row] + t;
    node->dt = hb_step_size(args.ssm, node->token, head);
    node->decay = hb_exp(hb_log_decay(args.ssm, node->dt, head));
    node->b = hb_b_index(args.ssm, node->token, head);
    node->c = node->b + (int64_t)args.ssm.n_groups * args.ssm.state_size;
    node->after_at = entry_index(args, row, t, head, p);
    node->before = args.ssm.pool;
    node->before_at = hb_state_index(args.ssm, args.ssm.rows.slots[row], head, p);
    if (t > 0 && args.parent) {
        const int32_t parent = args.parent[(int64_t)row * args.parent_stride + t];
        node->before = args.states;
        node->before_at = entry_index(args, row, parent, head, p);
    }
}

HB_INLINE float load_before(const struct hb_k_ssm_verify &args, const struct node &node,
                            int64_t element) {
    return hb_load(node.before, node.before_at + element, args.ssm.state_dtype);
}

/* Is the node's state read from memory, or left in h by the node before? */
HB_INLINE int32_t is_loaded(const struct hb_k_ssm_verify &args, int32_t t) {
    return t == 0 || args.parent;
}

/* xbc [T, dim] act, dt [T, H] act, y [T, H, P] act, states [SR, max_draft, H, P, N] st; the pool is
 * only read. One thread owns (row, head, p): writes its y column and its N elements of every entry,
 * and reads back none but its own. Nodes ascending, n ascending. */
HB_KERNEL(ssm_verify_v0_kernel, struct hb_k_ssm_verify, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int32_t p = (int32_t)(item % args.ssm.head_dim);
    const int32_t head = (int32_t)(item / args.ssm.head_dim % args.ssm.n_heads);
    const int32_t row = (int32_t)(item / args.ssm.head_dim / args.ssm.n_heads);
    if (row >= args.ssm.rows.n_rows || args.ssm.rows.slots[row] < 0) {
        return;
    }
    const int32_t len = hb_row_len(args.ssm.rows, row);
    float h[MAX_STATE];
    for (int32_t t = 0; t < len; t++) {
        struct node node;
        open_node(args, row, t, head, p, &node);
        const int64_t x_index = hb_x_index(args.ssm, node.token, head, p);
        const float x = hb_load(args.ssm.xbc, x_index, args.ssm.act_dtype);
        float y = 0.0f;
        for (int32_t n = 0; n < args.ssm.state_size; n++) {
            const int64_t element = hb_state_offset(args.ssm, 0, n);
            h[n] = is_loaded(args, t) ? load_before(args, node, element) : h[n];
            const float b = hb_load(args.ssm.xbc, node.b + n, args.ssm.act_dtype);
            const float c = hb_load(args.ssm.xbc, node.c + n, args.ssm.act_dtype);
            y = hb_state_step(&h[n], node.decay, node.dt * x, b, c, y);
            hb_store(args.states, node.after_at + element, args.ssm.state_dtype, h[n]);
        }
        hb_store(args.ssm.y, hb_y_index(args.ssm, node.token, head, p), args.ssm.act_dtype,
                 hb_add_skip(args.ssm, node.token, head, y, x));
    }
}

/* Grid (row, head, p / 8): one warp owns 8 values of p; its lanes share the state elements as in
 * the decode update, lane, lane + 32, ..., so a lane reads back none but its own. */
HB_KERNEL(ssm_verify_warp_kernel, struct hb_k_ssm_verify, args) {
    const int32_t row = HB_BLOCK_X;
    const int32_t head = HB_BLOCK_Y;
    const int32_t p0 = HB_BLOCK_Z * P_PER_WARP;
    const int32_t left = args.ssm.head_dim - p0;
    const int32_t n_p = left < P_PER_WARP ? left : P_PER_WARP;
    if (args.ssm.rows.slots[row] < 0) {
        return;
    }
    const int32_t len = hb_row_len(args.ssm.rows, row);
    float h[MAX_STATE / WARP][P_PER_WARP] = {{0.0f}};
    for (int32_t t = 0; t < len; t++) {
        struct node node;
        open_node(args, row, t, head, p0, &node);
        const int64_t x_index = hb_x_index(args.ssm, node.token, head, p0);
        float y[P_PER_WARP] = {0.0f};
        for (int32_t n = HB_THREAD, i = 0; n < args.ssm.state_size; n += HB_THREADS, i++) {
            const float b = hb_load(args.ssm.xbc, node.b + n, args.ssm.act_dtype);
            const float c = hb_load(args.ssm.xbc, node.c + n, args.ssm.act_dtype);
            for (int32_t p = 0; p < n_p; p++) {
                const int64_t element = hb_state_offset(args.ssm, p, n);
                const float x = hb_load(args.ssm.xbc, x_index + p, args.ssm.act_dtype);
                h[i][p] = is_loaded(args, t) ? load_before(args, node, element) : h[i][p];
                y[p] = hb_state_step(&h[i][p], node.decay, node.dt * x, b, c, y[p]);
                hb_store(args.states, node.after_at + element, args.ssm.state_dtype, h[i][p]);
            }
        }
        HB_WARP_SUM(y, n_p);
        for (int32_t p = HB_THREAD; p < n_p; p += HB_THREADS) {
            const float x = hb_load(args.ssm.xbc, x_index + p, args.ssm.act_dtype);
            hb_store(args.ssm.y, hb_y_index(args.ssm, node.token, head, p0 + p), args.ssm.act_dtype,
                     hb_add_skip(args.ssm, node.token, head, y[p], x));
        }
    }
}

extern "C" int32_t HB_K(hb_k_ssm_verify)(const struct hb_k_ssm_verify *args) {
    const struct hb_k_ssm *ssm = &args->ssm;
    const int64_t n_items = (int64_t)ssm->rows.n_rows * ssm->n_heads * ssm->head_dim;
    if (n_items == 0) {
        return HB_OK;
    }
    if (ssm->state_size > MAX_STATE) {
        return HB_K(hb_launch_refused)("ssm_verify_kernel", "state_size", ssm->state_size,
                                       MAX_STATE);
    }
    if (ssm->form == HB_FORM_V0) {
        return HB_LAUNCH(ssm_verify_v0_kernel,
                         HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1), HB_FLAT_THREADS, 0,
                         HB_NO_SYNC, args);
    }
    /* as in the decode update: the emulated warp leaves out lanes without a state element */
    const int32_t n_lanes = HB_SIZE(WARP, ssm->state_size < WARP ? ssm->state_size : WARP);
    return HB_LAUNCH(
        ssm_verify_warp_kernel,
        HB_GRID(ssm->rows.n_rows, ssm->n_heads, hb_blocks_for(ssm->head_dim, P_PER_WARP)), n_lanes,
        0, HB_SYNC, args);
}
