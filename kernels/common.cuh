/* SPDX-License-Identifier: Apache-2.0
 * Small helpers that several kernels share: typed access, rows, gates. The dtype arguments are
 * uniform in a launch. */
#ifndef HB_KERNELS_COMMON_CUH
#define HB_KERNELS_COMMON_CUH

#include "kernels/port.cuh"

/* ---- typed access: index in elements ---- */

HB_INLINE float hb_load(const void *array, int64_t index, int32_t dtype) {
    if (dtype == HB_FP16) {
        return hb_fp16_to_float(((const uint16_t *)array)[index]);
    }
    return dtype == HB_BF16 ? hb_bf16_to_float(((const uint16_t *)array)[index])
                            : ((const float *)array)[index];
}

HB_INLINE void hb_store(void *array, int64_t index, int32_t dtype, float value) {
    if (dtype == HB_BF16) {
        ((uint16_t *)array)[index] = hb_bf16_from_float(value);
    } else if (dtype == HB_FP16) {
        ((uint16_t *)array)[index] = hb_fp16_from_float(value);
    } else {
        ((float *)array)[index] = value;
    }
}

/* What storing a value as dtype and loading it again gives. */
HB_INLINE float hb_round(float value, int32_t dtype) {
    if (dtype == HB_FP16) {
        return hb_fp16_to_float(hb_fp16_from_float(value));
    }
    return dtype == HB_BF16 ? hb_bf16_to_float(hb_bf16_from_float(value)) : value;
}

/* sum_i a[a_index + i] b[b_index + i], i ascending. The branch stands outside of the loop: this is
 * the hot one. */
HB_INLINE float hb_dot(const void *a, int64_t a_index, const void *b, int64_t b_index, int32_t n,
                       int32_t dtype) {
    float sum = 0.0f;
    if (dtype == HB_BF16) {
        const uint16_t *x = (const uint16_t *)a + a_index;
        const uint16_t *y = (const uint16_t *)b + b_index;
        for (int32_t i = 0; i < n; i++) {
            sum += hb_bf16_to_float(x[i]) * hb_bf16_to_float(y[i]);
        }
    } else if (dtype == HB_FP16) {
        for (int32_t i = 0; i < n; i++) {
            sum += hb_load(a, a_index + i, HB_FP16) * hb_load(b, b_index + i, HB_FP16);
        }
    } else {
        const float *x = (const float *)a + a_index;
        const float *y = (const float *)b + b_index;
        for (int32_t i = 0; i < n; i++) {
            sum += x[i] * y[i];
        }
    }
    return sum;
}

/* sum[r] = hb_dot of a with b at row[r], for four rows: one reading of a, and four sums that do not
 * wait for each other. */
HB_INLINE void hb_dot_rows(const void *a, int64_t a_index, const void *b, const int64_t row[4],
                           int32_t n, int32_t dtype, float sum[4]) {
    float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
    if (dtype == HB_BF16) {
        const uint16_t *x = (const uint16_t *)a + a_index;
        const uint16_t *y = (const uint16_t *)b;
        const uint16_t *y0 = y + row[0], *y1 = y + row[1], *y2 = y + row[2], *y3 = y + row[3];
        for (int32_t i = 0; i < n; i++) {
            const float v = hb_bf16_to_float(x[i]);
            s0 += v * hb_bf16_to_float(y0[i]);
            s1 += v * hb_bf16_to_float(y1[i]);
            s2 += v * hb_bf16_to_float(y2[i]);
            s3 += v * hb_bf16_to_float(y3[i]);
        }
    } else if (dtype == HB_FP16) {
        for (int32_t i = 0; i < n; i++) {
            const float v = hb_load(a, a_index + i, HB_FP16);
            s0 += v * hb_load(b, row[0] + i, HB_FP16);
            s1 += v * hb_load(b, row[1] + i, HB_FP16);
            s2 += v * hb_load(b, row[2] + i, HB_FP16);
            s3 += v * hb_load(b, row[3] + i, HB_FP16);
        }
    } else {
        const float *x = (const float *)a + a_index;
        const float *y = (const float *)b;
        const float *y0 = y + row[0], *y1 = y + row[1], *y2 = y + row[2], *y3 = y + row[3];
        for (int32_t i = 0; i < n; i++) {
            const float v = x[i];
            s0 += v * y0[i];
            s1 += v * y1[i];
            s2 += v * y2[i];
            s3 += v * y3[i];
        }
    }
    sum[0] = s0;
    sum[1] = s1;
    sum[2] = s2;
    sum[3] = s3;
}

/* sum + sum_i x[i x_stride] b[b_index + i b_stride], i ascending: four columns in shared memory,
 * each against one column of type dtype. */
HB_INLINE hb_vec4 hb_dot4_from(hb_vec4 sum, const hb_vec4 *x, int32_t x_stride, const void *b,
                               int64_t b_index, int64_t b_stride, int32_t n, int32_t dtype) {
    if (dtype == HB_BF16) {
        const uint16_t *y = (const uint16_t *)b + b_index;
        for (int32_t i = 0; i < n; i++, x += x_stride, y += b_stride) {
            sum = hb_add_scaled4(sum, hb_bf16_to_float(*y), *x);
        }
    } else if (dtype == HB_FP16) {
        const uint16_t *y = (const uint16_t *)b + b_index;
        for (int32_t i = 0; i < n; i++, x += x_stride, y += b_stride) {
            sum = hb_add_scaled4(sum, hb_fp16_to_float(*y), *x);
        }
    } else {
        const float *y = (const float *)b + b_index;
        for (int32_t i = 0; i < n; i++, x += x_stride, y += b_stride) {
            sum = hb_add_scaled4(sum, *y, *x);
        }
    }
    return sum;
}

/* Bit copy of one element: a NaN keeps its payload. */
HB_INLINE void hb_copy(void *to, int64_t to_index, const void *from, int64_t from_index,
                       int32_t dtype) {
    if (dtype != HB_FP32) {
        ((uint16_t *)to)[to_index] = ((const uint16_t *)from)[from_index];
    } else {
        ((uint32_t *)to)[to_index] = ((const uint32_t *)from)[from_index];
    }
}

HB_INLINE void hb_clear(void *array, int64_t index, int32_t dtype) {
    if (dtype != HB_FP32) {
        ((uint16_t *)array)[index] = 0;
    } else {
        ((uint32_t *)array)[index] = 0;
    }
}

/* ---- rows ---- */

HB_INLINE int32_t hb_row_len(const struct hb_k_rows &rows, int32_t row) {
    return rows.qsl[row + 1] - rows.qsl[row];
}

HB_INLINE int32_t hb_row_has_init(const struct hb_k_rows &rows, int32_t row) {
    return !rows.has_init || rows.has_init[row];
}

/* Columns of the conv state, enum hb_conv_state_len. */
HB_INLINE int32_t hb_conv_columns(int32_t width, int32_t conv_state_len) {
    return conv_state_len == HB_CONV_STATE_FULL ? width : width - 1;
}

/* ---- gates ---- */

/* x * sigmoid(x). The exponent is never positive, so nothing overflows. Below -80, where 1 + e^x is
 * 1, e^x is taken in two halves: it leaves the normal range before x e^x does, and would lose its
 * digits. */
HB_INLINE float hb_silu(float x) {
    if (x < -80.0f) {
        const float half = hb_exp(0.5f * x);
        return x * half * half;
    }
    const float e = hb_exp(x < 0.0f ? x : -x);
    return x < 0.0f ? x * (e / (1.0f + e)) : x / (1.0f + e);
}

/* 1 / (1 + e^-x), as hb_silu: below -80 it is e^x. */
HB_INLINE float hb_sigmoid(float x) {
    const float e = hb_exp(x < 0.0f ? x : -x);
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

/* softplus(x) = x for x > 20 (ops-mamba2.md 2.1). */
HB_INLINE float hb_softplus(float x) {
    return x > 20.0f ? x : hb_log1p(hb_exp(x));
}

/* enum hb_dt_clamp. Comparisons instead of fminf and fmaxf: a NaN stays one. */
HB_INLINE float hb_clamp_step(float dt, int32_t dt_clamp, float dt_lo, float dt_hi) {
    if (dt_clamp != HB_DT_CLAMP_NONE && dt < dt_lo) {
        dt = dt_lo;
    }
    if (dt_clamp == HB_DT_CLAMP_LIMIT && dt > dt_hi) {
        dt = dt_hi;
    }
    return dt;
}

/* Step size, ops-mamba2.md 2.1. */
HB_INLINE float hb_step_size(const struct hb_k_ssm &args, int64_t token, int32_t head) {
    float dt = hb_load(args.dt, token * args.n_heads + head, args.act_dtype);
    if (args.dt_bias) {
        dt += args.dt_bias[head];
    }
    if (args.dt_softplus) {
        dt = hb_softplus(dt);
    }
    return hb_clamp_step(dt, args.dt_clamp, args.dt_lo, args.dt_hi);
}

/* Log decay of a step, ops-mamba2.md 3. */
HB_INLINE float hb_log_decay(const struct hb_k_ssm &args, float dt, int32_t head) {
    return dt * (HB_DEFECT(args.defect, MAMBA2_DECAY_SIGN) ? -args.a[head] : args.a[head]);
}

/* ---- layout of a slot's temporal state ---- */

/* Key head of a value head (enum hb_head_map). */
HB_INLINE int32_t hb_key_head(int32_t head, int32_t n_heads, int32_t n_groups, int32_t head_map) {
    return head_map == HB_HEADS_TILE ? head % n_groups : head / (n_heads / n_groups);
}

/* Element [head][p][0] of a state [H, P, N], or [head][0][p] of one [H, N, P] (enum
 * hb_state_layout); and what separates it from the next n. */
HB_INLINE int64_t hb_element_index(int32_t layout, int32_t head, int32_t p, int32_t head_dim,
                                   int32_t state_size) {
    const int64_t start = (int64_t)head * head_dim * state_size;
    return start + (layout == HB_STATE_KV ? (int64_t)p : (int64_t)p * state_size);
}

HB_INLINE int64_t hb_element_stride(int32_t layout, int32_t head_dim) {
    return layout == HB_STATE_KV ? head_dim : 1;
}

HB_INLINE int32_t hb_other_layout(int32_t layout) {
    return layout == HB_STATE_KV ? HB_STATE_VK : HB_STATE_KV;
}

/* ---- layout of one token's x | B | C (ops-mamba2.md 2) ---- */

HB_INLINE int32_t hb_group_of(const struct hb_k_ssm &args, int32_t head) {
    if (HB_DEFECT(args.defect, GROUP_MODULO)) {
        return head % args.n_groups;
    }
    return hb_key_head(head, args.n_heads, args.n_groups, args.head_map);
}

/* Is this the head that stands for its group where heads share what is of the group? */
HB_INLINE int32_t hb_is_first_of_group(const struct hb_k_ssm &args, int32_t head) {
    return args.head_map == HB_HEADS_TILE ? head < args.n_groups
                                          : head % (args.n_heads / args.n_groups) == 0;
}

/* Elements of one token. */
HB_INLINE int64_t hb_token_stride(const struct hb_k_ssm &args) {
    return (int64_t)args.n_heads * args.head_dim + 2 * (int64_t)args.n_groups * args.state_size;
}

HB_INLINE int64_t hb_x_index(const struct hb_k_ssm &args, int64_t token, int32_t head, int32_t p) {
    return token * hb_token_stride(args) + (int64_t)head * args.head_dim + p;
}

/* Index of B[token][group of head][0]; C is n_groups * state_size elements further. */
HB_INLINE int64_t hb_b_index(const struct hb_k_ssm &args, int64_t token, int32_t head) {
    return token * hb_token_stride(args) + (int64_t)args.n_heads * args.head_dim +
           (int64_t)hb_group_of(args, head) * args.state_size;
}

HB_INLINE int64_t hb_y_index(const struct hb_k_ssm &args, int64_t token, int32_t head, int32_t p) {
    return (token * args.n_heads + head) * args.head_dim + p;
}

/* The layout of states; with a planted defect the other one, where both have the same size. */
HB_INLINE int32_t hb_ssm_layout(const struct hb_k_ssm &args) {
    return HB_DEFECT(args.defect, MAMBA2_LAYOUT) && args.head_dim == args.state_size
               ? hb_other_layout(args.state_layout)
               : args.state_layout;
}

/* Index of the state [slot][head][p][0], in the layout of the pool. */
HB_INLINE int64_t hb_state_index(const struct hb_k_ssm &args, int32_t slot, int32_t head,
                                 int32_t p) {
    const int64_t slot_size = (int64_t)args.n_heads * args.head_dim * args.state_size;
    return slot * (slot_size + args.pool_pad) +
           hb_element_index(hb_ssm_layout(args), head, p, args.head_dim, args.state_size);
}

/* From there to [slot][head][p + i][n]. */
HB_INLINE int64_t hb_state_offset(const struct hb_k_ssm &args, int32_t i, int32_t n) {
    return hb_ssm_layout(args) == HB_STATE_KV ? (int64_t)n * args.head_dim + i
                                              : (int64_t)i * args.state_size + n;
}

/* y of a token with D x, or without it where D is absent: x may be infinite. */
HB_INLINE float hb_add_skip(const struct hb_k_ssm &args, int64_t token, int32_t head, float y,
                            float x) {
    if (HB_DEFECT(args.defect, MAMBA2_ZERO_STEP) && hb_step_size(args, token, head) == 0.0f) {
        return 0.0f;
    }
    return args.d ? HB_MUL_ADD(args.d[head], x, y) : y;
}

/* One element of the state and its part of y, ops-mamba2.md 3: h = a h + (dt x) B, y += C h.
 * Prefill and decode share it, each product and sum rounded by itself, so that a prompt of one
 * token and a decode step agree bit for bit on every device.
 */
HB_INLINE float hb_state_step(float *h, float decay, float dt_x, float b, float c, float y) {
    *h = HB_MUL_ADD(dt_x, b, HB_MUL(decay, *h));
    return HB_MUL_ADD(c, *h, y);
}

#endif
