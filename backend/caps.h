/* SPDX-License-Identifier: Apache-2.0
 * What a backend says of itself, and the configuration it is created with: structs only.
 * Letters as in forward-batch.md section 0: H heads, P head dim, N state size, G groups, K conv width, W = K-1,
 * C chunk size, NS usable slots; dim = H*P + 2*G*N, d_inner = H*P. */
#ifndef HB_BACKEND_CAPS_H
#define HB_BACKEND_CAPS_H

#include <stdint.h>

enum { HB_MAX_VIRTUAL = 1 << 20 };
enum { HB_MAX_RING = 64, HB_MAX_POOL_PAD = 64, HB_MAX_GRAPH_ROWS = 64 };
enum { HB_MAX_LAYERS = 8, HB_MAX_CONV_WIDTH = 4, HB_MAX_STATE_SIZE = 256, HB_MAX_HEADS = 1024 };

/* All kinds but ATTENTION are linear: they have state slots. A model has one linear kind. */
enum hb_layer_kind {
    HB_LAYER_MAMBA2 = 0,
    HB_LAYER_ATTENTION = 1,
    HB_LAYER_GDN = 2,        /* gated delta rule, one decay per head */
    HB_LAYER_KDA = 3,        /* gated delta rule, one decay per key channel */
    HB_LAYER_LIGHTNING = 4,  /* scalar decay, no delta: lightning attention, simple GLA */
    HB_LAYER_SHORT_CONV = 5, /* C * conv(B * x) */
    HB_LAYER_MAMBA1 = 6,     /* selective scan, one decay per channel and state */
    HB_N_LAYER_KINDS = 7
};
/* FP16 is a type of activations only. */
enum hb_dtype { HB_FP32 = 0, HB_BF16 = 1, HB_FP16 = 2, HB_INT32 = 3, HB_N_FLOAT_DTYPES = 3 };
enum hb_kernel_form { HB_FORM_V0 = 0, HB_FORM_FAST = 1, HB_N_FORMS = 2 };
/* Who fills the replay ring and moves its cursor: decode steps, or verifies and their commits (speculative.md section 7). */
enum hb_ring_owner { HB_RING_DECODE = 0, HB_RING_COMMIT = 1, HB_N_RING_OWNERS = 2 };
/* Windows of the intermediate conv cache: one per node, or one overlapping strip per row (state-pool.md section 4). */
enum hb_window_layout { HB_WINDOWS_DENSE = 0, HB_WINDOWS_STRIP = 1, HB_N_WINDOW_LAYOUTS = 2 };
enum hb_path { HB_PATH_PREFILL = 0, HB_PATH_DECODE = 1, HB_N_PATHS = 2 };

/* Declared variants (ops-mamba2.md): an unknown value is refused with HB_ERR_UNSUPPORTED. */
enum hb_conv_act { HB_CONV_SILU = 0, HB_CONV_NONE = 1, HB_N_CONV_ACTS = 2 };
enum hb_gate_norm {
    HB_GATE_NORM_AFTER = 0, /* norm_before_gate = false: rms(y * silu(z)) * w */
    HB_GATE_NORM_BEFORE = 1, /* rms(y) * w * silu(z) */
    HB_GATE_ONLY = 2,        /* y * silu(z) */
    HB_NORM_ONLY = 3,        /* rms(y) * w */
    HB_GATE_NORM_NONE = 4,   /* y */
    HB_N_GATE_NORMS = 5
};
enum hb_dt_clamp { HB_DT_CLAMP_NONE = 0, HB_DT_CLAMP_LIMIT = 1, HB_DT_CLAMP_MIN_ONLY = 2, HB_N_DT_CLAMPS = 3 };
/* Group (key head) of head h: h / (H/G), or h mod G. */
enum hb_head_map { HB_HEADS_INTERLEAVE = 0, HB_HEADS_TILE = 1, HB_N_HEAD_MAPS = 2 };
/* Order of one slot of the temporal state: [H, P, N] or [H, N, P]. */
enum hb_state_layout { HB_STATE_VK = 0, HB_STATE_KV = 1, HB_N_STATE_LAYOUTS = 2 };
/* q and k of the delta rule (ops-delta.md section 5): x / sqrt(sum x^2 + 1e-6), x / max(sqrt(sum x^2), 1e-6), x. */
enum hb_l2norm { HB_L2_ADD_EPS = 0, HB_L2_MAX_EPS = 1, HB_L2_OFF = 2, HB_N_L2NORMS = 3 };
/* beta of b: sigmoid, twice the sigmoid (negative eigenvalues), b itself. */
enum hb_beta_form { HB_BETA_SIGMOID = 0, HB_BETA_DOUBLE = 1, HB_BETA_RAW = 2, HB_N_BETA_FORMS = 3 };
/* Log decay: A softplus(a + dt_bias) (dt_softplus 0: A (a + dt_bias)), or gate_bound sigmoid(-A (a + dt_bias)), KDA only. */
enum hb_gate_form { HB_GATE_STANDARD = 0, HB_GATE_LOWER_BOUND = 1, HB_N_GATE_FORMS = 2 };
enum hb_out_gate { HB_OUT_SILU = 0, HB_OUT_SIGMOID = 1, HB_N_OUT_GATES = 2 }; /* the gate of gate_norm */
/* Lightning: log decay per head and token -s, slope s = base * factor (ops-delta.md section 3); or given per token. */
enum hb_slope_kind {
    HB_SLOPE_PARAM = 0,   /* -s = params.a, no factor */
    HB_SLOPE_ALIBI = 1,   /* powers of two, with the interleaved list for other head counts */
    HB_SLOPE_MINIMAX = 2, /* 2^(-8 (h+1)/H) for every H */
    HB_SLOPE_FLA = 3,     /* s = (8/H) (1 - l/L) h, no factor */
    HB_SLOPE_TOKEN = 4,   /* log decay = in[2] */
    HB_N_SLOPE_KINDS = 5
};
enum hb_layer_factor {
    HB_FACTOR_NONE = 0,    /* 1 */
    HB_FACTOR_MINIMAX = 1, /* 1 - l/(L - 1 + 1e-5) + 1e-5, l from 0: the layer's number among all layers */
    HB_FACTOR_LING = 2,    /* 1 - l/(L - 1) + 1e-5, l from 0; L = 1: 1 + 1e-5 */
    HB_FACTOR_LING_OFF = 3, /* 1 - (l - 1)/(L - 1) + 1e-5: the port that is one layer off */
    HB_N_LAYER_FACTORS = 4
};
enum hb_qkv_act { HB_QKV_NONE = 0, HB_QKV_SILU = 1, HB_N_QKV_ACTS = 2 }; /* lightning: on q, k and v as handed over */
/* Columns of the conv state: K-1, or K, of which the oldest is never read. */
enum hb_conv_state_len { HB_CONV_STATE_SHORT = 0, HB_CONV_STATE_FULL = 1, HB_N_CONV_STATE_LENS = 2 };
/* Sliding window w of attention: p - j < w, or p - j <= w. */
enum hb_window_rule { HB_WINDOW_EXCLUSIVE = 0, HB_WINDOW_INCLUSIVE = 1, HB_N_WINDOW_RULES = 2 };
enum hb_pad_policy { HB_PAD_ZERO_OUT = 0, HB_N_PAD_POLICIES = 1 };
enum hb_order { HB_ORDER_ASCENDING = 0, HB_ORDER_DESCENDING = 1, HB_ORDER_RANDOM = 2, HB_N_ORDERS = 3 };

struct hb_config {
    uint32_t struct_size;
    int32_t n_layers;
    int32_t layer_kind[HB_MAX_LAYERS]; /* enum hb_layer_kind */
    /* Mamba2 */
    int32_t n_heads, head_dim, state_size, n_groups; /* H P N G */
    int32_t conv_width;                              /* K, 2..4 */
    int32_t chunk_size;                              /* C */
    int32_t page_size;                               /* cache chunk CC = max(C, page_size) */
    int32_t act_dtype;                               /* activations, conv state, KV: a float type */
    int32_t state_dtype;                             /* temporal state: HB_FP32 or HB_BF16 */
    int32_t conv_act, gate_norm;                     /* variants */
    int32_t norm_group;                              /* channels per RMS group; divides d_inner */
    int32_t dt_softplus;                             /* 0: dt = dt_raw + dt_bias */
    int32_t dt_clamp_prefill, dt_clamp_decode;       /* enum hb_dt_clamp */
    float dt_lo, dt_hi;                              /* limits of the clamp; dt_hi may be +inf */
    float norm_eps;
    /* further variants; each kind reads its own (adapter.h) */
    int32_t head_map, state_layout, out_gate, conv_state_len, pad_policy;
    int32_t l2norm, beta_form, gate_form;       /* GDN, KDA */
    float gate_bound;                           /* KDA LOWER_BOUND: L < 0 */
    float qk_scale;                             /* GDN, KDA, lightning: factor of q; 0: N^-0.5 */
    int32_t slope_kind, layer_factor, qkv_act;  /* lightning */
    /* attention */
    int32_t n_q_heads, n_kv_heads, attn_dim;
    float sm_scale; /* 0: attn_dim^-0.5 */
    int32_t attn_window, window_rule; /* 0: no window */
    float attn_softcap;               /* logits cap * tanh(l / cap); 0: none */
    /* sizes */
    int32_t n_slots;       /* NS; slot 0 is reserved, usable are 1..NS */
    int32_t req_pool_size; /* requests */
    int32_t max_context;   /* columns of req_to_token */
    int32_t n_kv;          /* token slots of the KV cache, slot 0 reserved */
    int32_t max_batch;     /* most rows of a batch */
    int32_t max_tokens;    /* most tokens of a batch */
    int32_t spec_rows;     /* rows of the intermediate caches, 0: no speculation */
    int32_t max_draft;     /* nodes per row of the intermediate caches (capacity of D); 0 iff spec_rows is 0 */
    int32_t track_interval; /* I >= C, 0: C. Decode steps at multiples of I force the replay ring to fold */
    int32_t n_virtual;     /* NV: ids that slot_take gives out are virtual, 1..NV, NV >= NS; 0: ids are slots */
    int32_t ring_length;   /* L of the replay ring (speculative.md section 7), 0: none */
    int32_t ring_owner;    /* enum hb_ring_owner */
    int32_t window_layout; /* enum hb_window_layout */
    int32_t track_by_layer; /* 1: DECODE copies tracked slots in each layer call, 0: for all layers in finish */
    int32_t pool_pad;      /* elements between the entries of two slots, in conv and temporal pools */
    int32_t graph_rows;    /* most rows of a captured graph, 0: no graphs */
    int32_t graph_draft;   /* most nodes per row of a captured verify */
    int32_t multi_item_scoring;  /* must be 0 */
    int32_t stochastic_rounding; /* must be 0: no state type here allows it */
    int32_t kernel_form;   /* enum hb_kernel_form; backends without the choice ignore it */
    /* execution order of an emulated device; others ignore it */
    int32_t thread_order, block_order; /* enum hb_order */
    uint32_t order_seed;
    int32_t defect; /* planted defect, 0 = none; only in builds that have them */
};

/* Parameters of one layer, fp32, host memory, copied by create. All null for attention layers. */
struct hb_layer_params {
    const float *conv_weight; /* [conv channels, K]; w[c, K-1] multiplies the current token; lightning null */
    const float *conv_bias;   /* [conv channels] or null */
    const float *a;           /* A itself (<= 0), not A_log: [H]; Mamba1 [H*P, N]; lightning PARAM [H] log decay; others null */
    const float *dt_bias;     /* [H] or null; KDA [H, N]; Mamba1 [H*P] */
    const float *d;           /* [H] or null; Mamba1 [H*P] */
    const float *norm_weight; /* [d_inner], needed by the variants with a norm (per-head weights are repeated) */
};

/* How a chunk adds up its log decays: in sequence s_i = s_(i-1) + th_i; a tree of depth ceil(log2 Q)+1; any order. */
enum hb_cumsum { HB_CS_SEQUENTIAL = 0, HB_CS_TREE = 1, HB_CS_ANY = 2 };

/* Arithmetic profile of one path, tolerance.md section 2; u_st is a property of the state's format. */
struct hb_profile {
    double u_op;
    int32_t k_in;
    double u_io, io_floor;
    double u_acc;
    double e_exp;
    double sp_abs, sp_rel;
    int32_t chunked; /* 0: token recurrence; 1: chunks of config.chunk_size */
    int32_t cs_tree; /* enum hb_cumsum */
    int32_t restart; /* 1: the cumulative sum restarts at row starts (Wf = 0) */
    int32_t norm_roundings; /* output roundings of the gated norm: 1 or 2 */
    int32_t attn_block; /* keys per block of the online softmax; 0: one block */
};

struct hb_caps {
    uint32_t struct_size;
    char name[32];
    uint32_t modes;       /* bit m: forward mode m is supported */
    uint32_t layer_kinds; /* bit k */
    uint32_t act_dtypes, state_dtypes; /* bit d */
    int32_t error_level;  /* 0 status only, 1 + rule and row, 2 + exact text */
    int32_t has_regions;  /* all persistent bytes are visible */
    int32_t deterministic, batch_invariant;
    int32_t exact_guards; /* buffers of exact size, guarded by a sanitizer or by the device layer */
    int32_t has_defects;
    int32_t tree_verify, ragged_verify; /* TARGET_VERIFY with links, with a ragged layout */
    int32_t graphs, ring, ring_commit, virtual_slots, pool_pad, track_by_layer;
    uint32_t window_layouts; /* bit l */
    uint32_t replay_exact;   /* bit f: with kernel form f a replay gives the bits of the eager forward */
    uint32_t verify_exact;   /* bit f: with form f and fp32 states verify and commit give the bits of decode steps */
    struct hb_profile profile[HB_N_FORMS][HB_N_PATHS][HB_N_FLOAT_DTYPES]; /* by activation type */
};

#endif
