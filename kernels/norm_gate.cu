/* SPDX-License-Identifier: Apache-2.0
 * Gate and RMS norm of the mixer's output (ops-mamba2.md 2.2), rounded once at the store.
 *   AFTER   v = y g(z);  o = v r w           BEFORE  o = (y r w) g(z)
 *   GATE    o = y g(z)                       NORM    o = y r w            NONE  o = y
 * g is silu, or the sigmoid (ops-delta.md 2). r = 1 / sqrt(mean over the group of v^2 + eps), of y^2 in BEFORE and NORM. */
#include "kernels/common.cuh"
#include "kernels/launchers.cuh"

HB_INLINE float gate(const struct hb_k_norm &args, int64_t i) {
    const float z = hb_load(args.z, i, args.act_dtype);
    const int32_t is_sigmoid =
        args.out_gate == HB_OUT_SIGMOID && !HB_DEFECT(args.defect, GATE_AS_SILU);
    return is_sigmoid ? hb_sigmoid(z) : hb_silu(z);
}

/* The value whose mean square is taken. */
HB_INLINE float normalised(const struct hb_k_norm &args, int64_t i) {
    const float y = hb_load(args.y, i, args.act_dtype);
    return args.gate_norm == HB_GATE_NORM_AFTER ? y * gate(args, i) : y;
}

/* 1 / sqrt(mean square + eps), channels ascending. */
HB_INLINE float inverse_rms(const struct hb_k_norm &args, int64_t first) {
    float sum = 0.0f;
    for (int32_t c = 0; c < args.norm_group; c++) {
        const float v = normalised(args, first + c);
        sum += v * v;
    }
    const float mean = sum / (float)args.norm_group;
    return HB_DEFECT(args.defect, GATED_NORM_EPS) ? 1.0f / (hb_sqrt(mean) + args.eps)
                                                  : 1.0f / hb_sqrt(mean + args.eps);
}

HB_INLINE void store(const struct hb_k_norm &args, int64_t i, float value) {
    hb_store(args.out, i, args.act_dtype, value);
    if (HB_DEFECT(args.defect, FP16_TRUNCATED) && args.act_dtype == HB_FP16) {
        uint16_t *half = (uint16_t *)args.out + i;
        const float rounded = hb_fp16_to_float(*half);
        /* away from zero by the rounding: one unit back */
        *half = (uint16_t)(*half - (value < 0.0f ? rounded < value : rounded > value));
    }
}

HB_INLINE int32_t is_padding(const struct hb_k_norm &args, int64_t token) {
    return args.slots && args.slots[token / args.row_tokens] < 0;
}

/* y, z, out [T, d_inner] act, weight [d_inner]. One thread owns one group of one token. */
HB_KERNEL(gated_norm_kernel, struct hb_k_norm, args) {
    const int64_t item = (int64_t)HB_BLOCK_X * HB_THREADS + HB_THREAD;
    const int64_t first =
        item * args.norm_group; /* groups tile the row, so this is also token * d_inner + channel */
    if (first >= (int64_t)args.n_tokens * args.d_inner || is_padding(args, first / args.d_inner)) {
        return;
    }
    const int32_t is_gated = args.gate_norm != HB_NORM_ONLY && args.gate_norm != HB_GATE_NORM_NONE;
    const int32_t is_normed = args.gate_norm != HB_GATE_ONLY && args.gate_norm != HB_GATE_NORM_NONE;
    const float scale = is_normed ? inverse_rms(args, first) : 1.0f;
    for (int32_t c = 0; c < args.norm_group; c++) {
        float v = normalised(args, first + c);
        if (is_normed) {
            v = v * scale * args.weight[(first + c) % args.d_inner];
        }
        if (is_gated && args.gate_norm != HB_GATE_NORM_AFTER) {
            v *= gate(args, first + c);
        }
        store(args, first + c, v);
    }
}

extern "C" int32_t HB_K(hb_k_gated_norm)(const struct hb_k_norm *args) {
    const int64_t n_items = (int64_t)args->n_tokens * (args->d_inner / args->norm_group);
    if (n_items == 0) {
        return HB_OK;
    }
    return HB_LAUNCH(gated_norm_kernel, HB_GRID(hb_blocks_for(n_items, HB_FLAT_THREADS), 1, 1),
                     HB_FLAT_THREADS, 0, HB_NO_SYNC, args);
}
