/* SPDX-License-Identifier: Apache-2.0
 * Planted defects: one table; sites read HB_DEFECT(value, N), the constant 0 unless the build has HB_DEFECTS.
 * value is the defect picked at start, carried in the configuration and in each kernel's arguments. Numbers are never
 * reused. Columns: number, NAME, what is wrong, the check that must notice. */
#ifndef HB_BACKEND_DEFECTS_H
#define HB_BACKEND_DEFECTS_H

#define HB_DEFECTS_TABLE(X)                                                                                            \
    X(1, INIT_STATE_MASK, "initial state lost when a row is untracked", "numeric")                                     \
    X(2, CHUNK_OFF_BY_ONE, "chunk boundary off by one", "numeric")                                                     \
    X(3, CONV_SHORT_PROMPT, "conv window of a prompt shorter than the window", "state.conv")                           \
    X(4, PAD_ROW_WRITTEN, "padding row written", "state.neighbour")                                                    \
    X(5, TRACK_POSITION, "tracked state from the wrong position", "state.track")                                       \
    X(6, GROUP_MODULO, "heads mapped to groups by modulo", "numeric")                                                  \
    X(7, MISSING_BARRIER, "missing barrier", "numeric, with the thread order varied")                                  \
    X(8, UNINIT_SHARED, "uninitialised shared memory", "numeric, with shared memory poisoned")                         \
    X(9, NEIGHBOUR_SLOT, "one neighbour slot overwritten", "state.neighbour")                                          \
    X(10, IMPURE_ERROR, "error path that writes one byte before it returns", "error.purity")                           \
    X(11, VERIFY_SHAPE, "accepted step off by one at the commit", "state.commit")                                      \
    X(12, VERIFY_SIBLING, "sibling of a draft node taken for its child", "numeric")                                    \
    X(13, SCATTER_WRAP, "negative step committed to the last slot", "state.neighbour")                                 \
    X(14, VERIFY_CONV_STORED, "verify stores the shifted window into the slot", "verify.pool")                         \
    X(15, PAD_COUNT_MIDDLE, "padding counted from ones in the middle", "status")                                       \
    X(16, PAD_CLAMPED, "padding slot -1 clamped to slot 0 on a replay", "graph.refresh")                               \
    X(17, GRAPH_TRACK_TAIL, "track destinations of a graph read from the tail of the buffer", "state.track")           \
    X(18, GRAPH_WARMUP_LISTS, "index lists of the warm-up baked into the graph", "state.track")                        \
    X(19, GRAPH_STALE_ROWS, "stale links of a larger step left by a refresh", "graph.refresh")                         \
    X(20, ACCEPT_MINUS_ONE, "a commit of the root alone reads the entry before it", "state.commit")                    \
    X(21, VERIFY_BY_SHAPE, "a verify of one node per row taken for a decode", "verify.pool, numeric")                  \
    X(22, FREED_SLOT_COMMIT, "a slot freed since the verify is committed all the same", "status")                      \
    X(23, TRACK_VIRTUAL, "checkpoint destinations left virtual", "state.track")                                        \
    X(24, MIXED_DROPS_TRACK, "a mixed batch drops its tracking", "state.track")                                        \
    X(25, H_INDEX_OFFSET, "tracked SSM state found by a sum of whole chunks per row", "state.track")                   \
    X(26, PAGE_CHUNK, "window tracked on the page grid, SSM state on the chunk grid", "state.track")                   \
    X(27, LATER_SIBLING, "second sibling link of a draft node gives another parent", "numeric")                        \
    X(28, RING_NO_FORCE, "a masked row does not fold its replay ring", "state.temporal, state.track")                  \
    X(29, DRAFTLESS, "entry 1 committed after a verify without drafts", "state.commit")                                \
    X(30, MOVE_STALE, "slots of a commit translated before a move", "state.commit")                                    \
    X(31, DELTA_HEAD_MAP, "delta rule with the other head map", "numeric")                                             \
    X(32, DELTA_DECAY_SIGN, "decay of the delta rule with the wrong sign", "numeric")                                  \
    X(33, DELTA_ZERO_GATE, "a token of the delta rule with a gate of exactly 0 taken for padding", "numeric")          \
    X(34, DELTA_L2_EPS, "epsilon of the l2 norm added to the root instead of the sum", "numeric, with short keys")     \
    X(35, DELTA_LAYOUT, "delta states in the other layout where P = N", "numeric, state.temporal")                     \
    X(36, DELTA_MASKED_EXP, "exp of a masked row of a partial chunk times zero", "state.temporal")                            \
    X(37, DELTA_PREDICTION, "prediction of the delta rule from the state before its decay", "numeric")                 \
    X(40, DECAY_SIGN, "decay of lightning attention with the wrong sign", "numeric")                                   \
    X(41, DECAY_PARTIAL_CHUNK, "keys of a partial chunk decayed up to the end of a full one", "state.temporal")        \
    X(42, LAYER_FACTOR, "slopes with the factor of the layer after", "numeric")                                        \
    X(43, DT_BIAS_PER_HEAD, "Mamba1 step sizes with one bias per head", "numeric")                                     \
    X(44, SHORT_CONV_UNROUNDED, "short conv of products that are not rounded", "numeric")                              \
    X(45, SHORT_CONV_STORES_X, "short conv state holds x instead of B x", "state.conv")                                \
    X(46, SHORT_CONV_MIN_POS, "short conv stores token p of a short prompt in column p", "state.conv")                 \
    X(47, DECAY_ZERO_GATE, "a log decay of exactly 0 taken for an absent one", "numeric")                              \
    X(50, CAP_AFTER_MASK, "soft cap after the mask: masked keys count with -cap", "numeric")                           \
    X(51, WINDOW_OFF_BY_ONE, "sliding window of one key too many", "numeric")                                          \
    X(52, PAGE_CROSSING, "the first token slot of a page taken to follow the last one of the page before", "numeric")  \
    X(53, FP16_TRUNCATED, "fp16 outputs rounded towards zero", "numeric")                                              \
    X(54, GATE_AS_SILU, "sigmoid output gate taken for silu", "numeric")                                               \
    X(55, CONV_OLDEST, "conv state of K columns read from its oldest one on", "numeric")                               \
    X(56, RING_ACCEPT_ALL, "a commit moves the cursor of the ring by all nodes", "state.neighbour")                    \
    X(57, RING_FOLD_LATE, "a ring folds when one more verify would not fit instead of two", "state.neighbour")         \
    X(58, MAMBA2_DECAY_SIGN, "decay of Mamba2 with the wrong sign", "numeric")                                         \
    X(59, MAMBA2_ZERO_STEP, "a token of Mamba2 with a step of exactly 0 taken for padding: no output", "numeric")      \
    X(60, MAMBA2_LAYOUT, "states of Mamba2 in the other layout where P = N", "numeric, state.temporal")                \
    X(61, DECAY_HEAD_MAP, "lightning attention with the other head map", "numeric")                                    \
    X(62, DECAY_LAYOUT, "states of lightning attention in the other layout where P = N", "numeric, state.temporal")    \
    X(63, MAMBA1_DECAY_SIGN, "decay of Mamba1 with the wrong sign", "numeric")                                         \
    X(64, MAMBA1_ZERO_STEP, "a token of Mamba1 with a step of exactly 0 taken for padding: no output", "numeric")      \
    X(65, MAMBA1_LAYOUT, "states of Mamba1 in the other layout where P = N", "numeric, state.temporal")                \
    X(66, GATED_NORM_EPS, "epsilon of the gated norm added to the root", "numeric, with short outputs")                \
    X(67, ATTN_GQA_MODULO, "query heads mapped to kv heads by modulo", "numeric")                                      \
    X(68, SHORT_CONV_OLDEST, "short conv state of K columns read from its oldest one on", "numeric")                   \
    X(69, KDA_DECAY_SCALAR, "all channels of KDA decay like channel 0", "numeric")

enum hb_defect {
    HB_DEFECT_NONE = 0,
#define HB_DEFECT_ENUM(number, name, what, detector) HB_DEFECT_##name = number,
    HB_DEFECTS_TABLE(HB_DEFECT_ENUM)
#undef HB_DEFECT_ENUM
    HB_DEFECTS_END = 128 /* no number is as large */
};

#ifdef HB_DEFECTS
#define HB_DEFECT(value, name) ((value) == HB_DEFECT_##name)
#else
#define HB_DEFECT(value, name) ((void)(value), 0)
#endif

#endif
