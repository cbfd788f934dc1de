/* SPDX-License-Identifier: Apache-2.0
 * What a backend says of itself, and the configuration it is created with: structs only.
 * Letters as in forward-batch.md section 0: H heads, P head dim, N state size, G groups, K conv width, W = K-1,
 * C chunk size, NS usable slots; dim = H*P + 2*G*N, d_inner = H*P. */
#ifndef HB_BACKEND_CAPS_H
#define HB_BACKEND_CAPS_H

#include <stdint.h>

enum { HB_MAX_RING = 64, HB_MAX_POOL_PAD = 64, HB_MAX_GRAPH_ROWS = 64 };
enum { HB_MAX_LAYERS = 8, HB_MAX_CONV_WIDTH = 4, HB_MAX_STATE_SIZE = 256, HB_MAX_HEADS = 1024 };

enum hb_layer_kind { HB_LAYER_MAMBA2 = 0, HB_LAYER_ATTENTION = 1, HB_N_LAYER_KINDS = 2 };
enum hb_dtype { HB_FP32 = 0, HB_BF16 = 1, HB_INT32 = 2, HB_N_FLOAT_DTYPES = 2 };
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
    int32_t act_dtype;                               /* activations, conv state, KV: HB_FP32 or HB_BF16 */
    int32_t state_dtype;                             /* temporal state: HB_FP32 or HB_BF16 */
    int32_t conv_act, gate_norm;                     /* variants */
    int32_t norm_group;                              /* channels per RMS group; divides d_inner */
    int32_t dt_softplus;                             /* 0: dt = dt_raw + dt_bias */
    int32_t dt_clamp_prefill, dt_clamp_decode;       /* enum hb_dt_clamp */
    float dt_lo, dt_hi;                              /* limits of the clamp; dt_hi may be +inf */
    float norm_eps;
    /* attention */
    int32_t n_q_heads, n_kv_heads, attn_dim;
    float sm_scale; /* 0: attn_dim^-0.5 */
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
    const float *conv_weight; /* [dim, K]; w[c, K-1] multiplies the current token */
    const float *conv_bias;   /* [dim] or null */
    const float *a;           /* [H], A itself (<= 0), not A_log */
    const float *dt_bias;     /* [H] or null */
    const float *d;           /* [H] or null */
    const float *norm_weight; /* [d_inner], needed by the variants with a norm */
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
