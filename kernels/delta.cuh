/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of the gated delta rule share (ops-delta.md 1.2 and 2): addresses of q | k | v,
 * gates and states, the gates themselves, the factors of the l2 norm, and the recurrence of one
 * element. Each product and sum is rounded by itself, so that decode and verify of a form agree bit
 * for bit on every device. */
#ifndef HB_KERNELS_DELTA_CUH
#define HB_KERNELS_DELTA_CUH

#include "kernels/common.cuh"

#define HB_DELTA_L2_EPS 1e-6f

/* ---- addresses ---- */

HB_INLINE int32_t hb_delta_group_of(const struct hb_k_delta &args, int32_t head) {
    const int32_t is_tile =
        (args.head_map == HB_HEADS_TILE) != HB_DEFECT(args.defect, DELTA_HEAD_MAP);
    return hb_key_head(head, args.n_heads, args.n_groups,
                       is_tile ? HB_HEADS_TILE : HB_HEADS_INTERLEAVE);
}

/* Index of q[token][group of head][0]; k is n_groups * state_size elements further. */
HB_INLINE int64_t hb_delta_q_index(const struct hb_k_delta &args, int64_t token, int32_t head) {
    const int64_t stride =
        2 * (int64_t)args.n_groups * args.state_size + (int64_t)args.n_heads * args.head_dim;
    return token * stride + (int64_t)hb_delta_group_of(args, head) * args.state_size;
}

HB_INLINE int64_t hb_delta_v_index(const struct hb_k_delta &args, int64_t token, int32_t head,
                                   int32_t p) {
    const int64_t keys = 2 * (int64_t)args.n_groups * args.state_size;
    return token * (keys + (int64_t)args.n_heads * args.head_dim) + keys +
           (int64_t)head * args.head_dim + p;
}

HB_INLINE int64_t hb_delta_y_index(const struct hb_k_delta &args, int64_t token, int32_t head,
                                   int32_t p) {
    return (token * args.n_heads + head) * args.head_dim + p;
}

HB_INLINE int64_t hb_delta_slot_size(const struct hb_k_delta &args) {
    return (int64_t)args.n_heads * args.head_dim * args.state_size;
}

HB_INLINE int64_t hb_delta_slot_index(const struct hb_k_delta &args, int32_t slot) {
    return slot * (hb_delta_slot_size(args) + args.pool_pad);
}

/* The layout of states; with a planted defect the other one, where both have the same size. */
HB_INLINE int32_t hb_delta_layout(const struct hb_k_delta &args) {
    const int32_t is_other =
        HB_DEFECT(args.defect, DELTA_LAYOUT) && args.head_dim == args.state_size;
    return is_other ? hb_other_layout(args.state_layout) : args.state_layout;
}

/* Index of [head][p][0] in a slot; hb_delta_stride to the next n. */
HB_INLINE int64_t hb_delta_element(const struct hb_k_delta &args, int32_t head, int32_t p) {
    return hb_element_index(hb_delta_layout(args), head, p, args.head_dim, args.state_size);
}

HB_INLINE int64_t hb_delta_stride(const struct hb_k_delta &args) {
    return hb_element_stride(hb_delta_layout(args), args.head_dim);
}

/* ---- gates ---- */

/* The exponent is never positive, so nothing overflows. */
HB_INLINE float hb_delta_sigmoid(float x) {
    const float e = hb_exp(x < 0.0f ? x : -x);
    return x < 0.0f ? e / (1.0f + e) : 1.0f / (1.0f + e);
}

/* Index of a[token][0]. The entries of a token are a [H] (KDA [H, N]), then b [H]. */
HB_INLINE int64_t hb_delta_a_index(const struct hb_k_delta &args, int64_t token) {
    const int64_t n_a = (int64_t)args.n_heads * (args.is_kda ? args.state_size : 1);
    return token * (n_a + args.n_heads);
}

HB_INLINE float hb_delta_raw_beta(const struct hb_k_delta &args, int64_t token, int32_t head) {
    const int64_t n_a = (int64_t)args.n_heads * (args.is_kda ? args.state_size : 1);
    const float b =
        hb_load(args.gates, hb_delta_a_index(args, token) + n_a + head, args.act_dtype);
    if (args.beta_form == HB_BETA_RAW) {
        return b;
    }
    const float beta = hb_delta_sigmoid(b);
    return args.beta_form == HB_BETA_DOUBLE ? 2.0f * beta : beta;
}

/* Channel n of KDA; GDN has one channel, 0. */
HB_INLINE float hb_delta_raw_log_decay(const struct hb_k_delta &args, int64_t token, int32_t head,
                                       int32_t n) {
    const int32_t channel = HB_DEFECT(args.defect, KDA_DECAY_SCALAR) ? 0 : n;
    const int64_t at = args.is_kda ? (int64_t)head * args.state_size + channel : head;
    float a = hb_load(args.gates, hb_delta_a_index(args, token) + at, args.act_dtype);
    if (args.dt_bias) {
        a += args.dt_bias[at];
    }
    if (args.gate_form == HB_GATE_LOWER_BOUND) {
        return args.gate_bound * hb_delta_sigmoid(-args.a[head] * a);
    }
    return args.a[head] * (args.gate_softplus ? hb_softplus(a) : a);
}

/* In the builds with planted defects: a gate of exactly 0 marks a token of padding. */
HB_INLINE int32_t hb_delta_is_absent(const struct hb_k_delta &args, int64_t token, int32_t head) {
    return HB_DEFECT(args.defect, DELTA_ZERO_GATE) &&
           (hb_delta_raw_beta(args, token, head) == 0.0f ||
            hb_delta_raw_log_decay(args, token, head, 0) == 0.0f);
}

HB_INLINE float hb_delta_beta(const struct hb_k_delta &args, int64_t token, int32_t head) {
    return hb_delta_is_absent(args, token, head) ? 0.0f : hb_delta_raw_beta(args, token, head);
}

HB_INLINE float hb_delta_log_decay(const struct hb_k_delta &args, int64_t token, int32_t head,
                                   int32_t n) {
    if (hb_delta_is_absent(args, token, head)) {
        return 0.0f;
    }
    const float g = hb_delta_raw_log_decay(args, token, head, n);
    return HB_DEFECT(args.defect, DELTA_DECAY_SIGN) ? -g : g;
}

/* ---- q and k ---- */

/* Factor of a vector whose squares add up to sum (ops-delta.md 5). */
HB_INLINE float hb_delta_l2_of_sum(const struct hb_k_delta &args, float sum) {
    if (args.l2norm == HB_L2_OFF) {
        return 1.0f;
    }
    if (args.l2norm == HB_L2_MAX_EPS) {
        const float norm = hb_sqrt(sum);
        return 1.0f / (norm < HB_DELTA_L2_EPS ? HB_DELTA_L2_EPS : norm);
    }
    if (HB_DEFECT(args.defect, DELTA_L2_EPS)) {
        return 1.0f / (hb_sqrt(sum) + HB_DELTA_L2_EPS);
    }
    return 1.0f / hb_sqrt(sum + HB_DELTA_L2_EPS);
}

/* Factor of the vector at index. */
HB_INLINE float hb_delta_l2_factor(const struct hb_k_delta &args, int64_t index) {
    float sum = 0.0f;
    for (int32_t n = 0; n < args.state_size && args.l2norm != HB_L2_OFF; n++) {
        const float x = hb_load(args.qkv, index + n, args.act_dtype);
        sum = HB_MUL_ADD(x, x, sum);
    }
    return hb_delta_l2_of_sum(args, sum);
}

/* ---- recurrence: one element of the state ---- */

/* h := decay h; adds its part to the prediction k . h. */
HB_INLINE float hb_delta_decay_element(const struct hb_k_delta &args, float decay, float k,
                                       float *h, float prediction) {
    const float before = *h;
    *h = HB_MUL(decay, before);
    return HB_MUL_ADD(k, HB_DEFECT(args.defect, DELTA_PREDICTION) ? before : *h, prediction);
}

/* h := h + k delta; adds its part to y = q . h. */
HB_INLINE float hb_delta_update_element(float k, float delta, float q, float *h, float y) {
    *h = HB_MUL_ADD(k, delta, *h);
    return HB_MUL_ADD(q, *h, y);
}

#endif
