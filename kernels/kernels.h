/* SPDX-License-Identifier: Apache-2.0
 * C declarations of all launchers and of device memory. Each of the two builds of the kernel sources exports one table:
 * hb_kernels_emu() (threads run on the host as fibers or loops) and hb_kernels_cuda() (a GPU). No validation happens
 * here: pointers are device pointers of the same table, sizes fit, indices are in range.
 *
 * Letters: H heads, P head dim, N state size, G groups, K conv width, W = K-1, C chunk size, dim = H*P + 2*G*N,
 * d_inner = H*P, NS1 = slots + 1. Arrays are dense and row-major unless a stride is given. "act" is act_dtype
 * (HB_FP32, HB_BF16 or HB_FP16), "st" is state_dtype (not HB_FP16). Sums are fp32; a narrower type rounds to nearest even,
 * once, at the store. */
#ifndef HB_KERNELS_KERNELS_H
#define HB_KERNELS_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of one launch. Row r owns tokens qsl[r] .. qsl[r+1]-1 of the token axis, and state slot slots[r]; HB_PAD_SLOT (-1)
 * rows are skipped: no state byte is touched and no output is written. */
struct hb_k_rows {
    int32_t n_rows;
    const int32_t *qsl;      /* device [n_rows + 1], absolute token positions */
    const int32_t *slots;    /* device [n_rows] */
    const int32_t *has_init; /* device [n_rows]: 0 = start from zero, whatever the slot holds. Null: all 1 (decode) */
};

struct hb_k_conv {
    struct hb_k_rows rows;
    int32_t dim, width; /* K */
    int32_t act_dtype, conv_act; /* enum hb_conv_act */
    int32_t form;                /* enum hb_kernel_form */
    int32_t defect;
    const void *x;       /* act [T, dim] */
    const float *weight; /* [dim, K] */
    const float *bias;   /* [dim] or null */
    void *y;             /* act [T, dim] */
    void *pool;          /* act [NS1, dim, W], in place: the last W inputs, oldest first */
    int32_t pool_pad;    /* elements between the entries of two slots of the pool; neither read nor written */
    int32_t conv_state_len; /* enum hb_conv_state_len; FULL: W = K here, and the oldest column is kept but never read */
};

/* Copies the conv window at a token count into a second slot: for each row with after[r] > 0, pool[dst[r]] := the last W
 * pre-conv inputs among the row's first after[r] tokens of this call (after[r] >= W is guaranteed). */
struct hb_k_conv_track {
    struct hb_k_rows rows;
    int32_t dim, width, act_dtype, defect;
    const int32_t *after; /* device [n_rows], 0: not tracked */
    const int32_t *dst;   /* device [n_rows] */
    const void *x;        /* act [T, dim] */
    void *pool;           /* act [NS1, dim, W] */
    int32_t pool_pad;     /* as in hb_k_conv */
    int32_t conv_state_len;
};

struct hb_k_ssm {
    struct hb_k_rows rows;
    int32_t n_heads, head_dim, state_size, n_groups, chunk_size;
    int32_t act_dtype, state_dtype;
    int32_t dt_softplus, dt_clamp; /* enum hb_dt_clamp */
    float dt_lo, dt_hi;
    int32_t form, defect;
    const void *xbc;      /* act [T, dim]: x [H,P] | B [G,N] | C [G,N], after the conv */
    const void *dt;       /* act [T, H], raw */
    const float *a;       /* [H] */
    const float *dt_bias; /* [H] or null */
    const float *d;       /* [H] or null */
    void *y;              /* act [T, d_inner] */
    void *pool;           /* st [NS1, H, P, N], in place */
    /* prefill only: state after the row's first after[r] tokens of this call (a multiple of C, <= its length) goes to
     * slot dst[r]; null: nothing is tracked */
    const int32_t *after;
    const int32_t *dst;
    int32_t pool_pad; /* elements between the entries of two slots of the pool */
    int32_t head_map, state_layout; /* enums of caps.h; KV: pool is st [NS1, H, N, P] */
};

/* One token per row with the replay ring (speculative.md section 7): row r appends its record (dt x, B, A dt) at position
 * w = write_pos[r] of its slot's ring, and y comes from the pool's state and the records 0 .. w, in the order of the decode
 * update. With w = ring_length - 1 or fold[r] the state after them goes to the pool; else the pool is only read. Records
 * beyond w are neither read nor written. */
struct hb_k_ssm_ring {
    struct hb_k_ssm ssm; /* has_init, after and dst are not read */
    int32_t ring_length; /* L */
    const int32_t *write_pos; /* device [n_rows] in 0 .. L-1 */
    const int32_t *fold;      /* device [n_rows] */
    float *ring_x;            /* [NS1, H, L, P] dt x */
    float *ring_b;            /* [NS1, G, L, N] B */
    float *ring_g;            /* [NS1, H, L] A dt */
    /* ssm_ring_verify, ring_fold: position of the oldest record; L is a power of two, records count modulo L */
    const int32_t *base; /* device [n_rows] in 0 .. L-1 */
};

/* Draft chains with a ring that commits own: ssm_ring_verify takes a struct hb_k_ssm_ring whose rows are as in a verify. The
 * state before node 0 is the pool's with the records base .. base+w-1 replayed, w = write_pos[r]; with fold[r] it goes to the
 * pool. Node t leaves its record at base+w+t. w and the row's nodes fit in L together; states are fp32.
 * ring_fold: state of slot dst[i] := state of slot src[i] with count[i] records from ring.base[i] on. */
struct hb_k_ring_fold {
    struct hb_k_ssm_ring ring; /* of ssm: sizes, state_dtype, pool, pool_pad */
    int32_t n_pairs;
    const int32_t *src, *dst, *count; /* device [n_pairs] */
};

/* Draft verification (speculative.md section 1). Row r's nodes are its tokens, node t at qsl[r] + t, at most max_draft of
 * them; parent[r * parent_stride + t] is the parent node of node t (entry 0 unused); null: chain. The pools are read only:
 * the state after each node goes to the intermediate caches, indexed by row. Rows always start from their slot's state
 * (has_init is not read). */
struct hb_k_conv_verify {
    struct hb_k_conv conv; /* pool: read only */
    int32_t max_draft;
    int32_t parent_stride; /* of the parent table, at least the nodes of a row */
    const int32_t *parent; /* device [n_rows, parent_stride] or null */
    void *windows;         /* act [SR, max_draft, dim, W]: window after node t along its path */
    /* HB_WINDOWS_STRIP (chains only): windows is act [SR, dim, max_draft+W-1], the window after node t its columns t..t+W-1 */
    int32_t window_layout; /* enum hb_window_layout */
};
struct hb_k_ssm_verify {
    struct hb_k_ssm ssm; /* pool: read only; after and dst unused */
    int32_t max_draft;
    int32_t parent_stride;
    const int32_t *parent; /* as above. Chain: S stays fp32 over the nodes; tree: the parent's stored entry is read back */
    void *states;          /* st [SR, max_draft, H, P, N]: S after node t along its path */
};

/* Gated delta rule (ops-delta.md 1 and 2): GDN, with one decay per value head, and KDA, with one per key channel. Per value
 * head, S' = decay S, d = beta (v - S'^T k), S = S' + k d^T, y = qk_scale S^T q. States are [H, P, N], or [H, N, P]. */
struct hb_k_delta {
    struct hb_k_rows rows;
    int32_t n_heads, head_dim, state_size, n_groups, chunk_size;
    int32_t act_dtype, state_dtype;
    int32_t is_kda;
    int32_t head_map, state_layout, l2norm, beta_form, gate_form; /* enums of caps.h; LOWER_BOUND: KDA only */
    int32_t gate_softplus; /* STANDARD: 0 is A (a + dt_bias) */
    float gate_bound;      /* LOWER_BOUND */
    float qk_scale;        /* resolved: 0 is a factor of 0 */
    int32_t form, defect;
    const void *qkv;      /* act [T, dim]: q [G,N] | k [G,N] | v [H,P], after the conv, before the l2 norm */
    const void *gates;    /* act [T, H + H]: a | b; KDA [T, H*N + H] */
    const float *a;       /* [H] A */
    const float *dt_bias; /* [H], KDA [H, N], or null */
    void *y;              /* act [T, d_inner] */
    void *pool;           /* st [NS1, H, P, N] or [NS1, H, N, P], in place */
    const int32_t *after; /* prefill only, as in hb_k_ssm */
    const int32_t *dst;
    int32_t pool_pad;
};
struct hb_k_delta_verify { /* as hb_k_ssm_verify */
    struct hb_k_delta delta;
    int32_t max_draft, parent_stride;
    const int32_t *parent;
    void *states;
};

/* Scalar decay without a delta (ops-delta.md 3): lightning attention, simple GLA. Per value head, S' = exp(g) S + v k^T,
 * y = qk_scale S' q. States are [H, P, N], or [H, N, P], by state_layout. */
struct hb_k_decay {
    struct hb_k_rows rows;
    int32_t n_heads, head_dim, state_size, n_groups, chunk_size;
    int32_t act_dtype, state_dtype;
    int32_t head_map, state_layout, qkv_act; /* enums of caps.h */
    float qk_scale;                          /* resolved: 0 is a factor of 0 */
    int32_t form, defect;
    const void *qkv;        /* act [T, dim]: q [G,N] | k [G,N] | v [H,P], before qkv_act */
    const float *log_decay; /* [H] g of every token; null: token_decay */
    const void *token_decay; /* act [T, H] g */
    void *y;                /* act [T, d_inner] */
    void *pool;             /* st [NS1, H, P, N] or [NS1, H, N, P], in place */
    const int32_t *after;   /* prefill only, as in hb_k_ssm */
    const int32_t *dst;
    int32_t pool_pad;
};
struct hb_k_decay_verify { /* as hb_k_ssm_verify */
    struct hb_k_decay decay;
    int32_t max_draft, parent_stride;
    const int32_t *parent;
    void *states;
};

/* Selective scan of Mamba1: a step size and decays per channel c = (head, p): h' = exp(dt_c A[c,n]) h + dt_c x_c B[n],
 * y_c = sum_n C[n] h' + D_c x_c. Step sizes as in Mamba2. */
struct hb_k_selective {
    struct hb_k_rows rows;
    int32_t n_heads, head_dim, state_size;
    int32_t act_dtype, state_dtype, state_layout;
    int32_t dt_softplus, dt_clamp;
    float dt_lo, dt_hi;
    int32_t form, defect;
    const void *x;        /* act [T, d_inner], after the conv */
    const void *dbc;      /* act [T, d_inner + 2N]: raw dt | B | C */
    const float *a;       /* [d_inner, N] */
    const float *dt_bias; /* [d_inner] or null */
    const float *d;       /* [d_inner] or null */
    void *y;              /* act [T, d_inner] */
    void *pool;           /* as in hb_k_decay; the rest too */
    const int32_t *after;
    const int32_t *dst;
    int32_t pool_pad;
};
struct hb_k_selective_verify { /* as hb_k_ssm_verify */
    struct hb_k_selective scan;
    int32_t max_draft, parent_stride;
    const int32_t *parent;
    void *states;
};

/* Short convolution mixer (ops-delta.md 4): y = C conv(u), u = B x rounded to the activation type. The pool holds the last
 * columns of u, oldest first: columns is K-1, or K, of which the oldest is kept and never read. */
struct hb_k_short_conv {
    struct hb_k_rows rows;
    int32_t dim, width, columns; /* d_inner, K */
    int32_t act_dtype, form, defect;
    const void *bcx;     /* act [T, 3*dim]: B | C | x */
    const float *weight; /* [dim, K] */
    const float *bias;   /* [dim] or null */
    void *y;             /* act [T, dim] */
    void *pool;          /* act [NS1, dim, columns], in place */
    /* prefill only: the last columns of u among the row's first after[r] tokens of this call (at least K of them) go to
     * slot dst[r]; 0: not tracked; null: nothing is */
    const int32_t *after;
    const int32_t *dst;
    int32_t pool_pad;
};
struct hb_k_short_conv_verify { /* as hb_k_conv_verify, windows of so many columns */
    struct hb_k_short_conv conv;
    int32_t max_draft, parent_stride;
    const int32_t *parent;
    void *windows;         /* act [SR, max_draft, dim, columns], or strips [SR, dim, max_draft+columns-1] */
    int32_t window_layout; /* enum hb_window_layout */
};

/* Gated RMS norm over tokens 0 .. n_tokens-1, group statistics over norm_group channels (ops-mamba2.md 2.2). */
struct hb_k_norm {
    int32_t n_tokens, d_inner, norm_group, gate_norm, act_dtype, defect;
    int32_t out_gate; /* enum hb_out_gate */
    float eps;
    const void *y;       /* act [T, d_inner] */
    const void *z;       /* act [T, d_inner] */
    const float *weight; /* [d_inner] or null where the variant has no norm */
    void *out;           /* act [T, d_inner] */
    /* captured forwards: token t is of row t / row_tokens, and rows whose slot is negative are skipped. Null: no row is */
    const int32_t *slots; /* device [n_tokens / row_tokens] */
    int32_t row_tokens;
};

/* Copies whole slots src[i] -> dst[i] of one pool; slot_bytes per slot. Pairs with src or dst < 0 or mask 0 are skipped. */
struct hb_k_slots {
    int32_t n_pairs, defect;
    uint64_t slot_bytes;
    uint64_t pad_bytes; /* between the entries of two slots of pool; src_pool has none */
    const int32_t *src; /* device [n_pairs]; null: zero-fill dst */
    const int32_t *dst; /* device [n_pairs] */
    void *pool;
    const void *src_pool; /* where src counts entries of slot_bytes; null: pool itself */
    const int32_t *mask;  /* device [n_pairs] or null: every pair */
};

/* pool[dst[i]] := window src[i] % max_draft of strip row src[i] / max_draft (state-pool.md section 4). Pairs with src or
 * dst < 0 are skipped. */
struct hb_k_windows {
    int32_t n_pairs, dim, width, act_dtype, defect;
    int32_t max_draft;
    const int32_t *src;  /* device [n_pairs] */
    const int32_t *dst;  /* device [n_pairs] */
    const void *windows; /* act [SR, dim, max_draft+W-1] */
    void *pool;          /* act [NS1, dim, W] */
    int32_t pool_pad;    /* as in hb_k_conv */
    int32_t conv_state_len;
};

struct hb_k_kv_write {
    int32_t n_tokens, row_elems, act_dtype, defect; /* row_elems = HKV * D */
    const int32_t *loc;                             /* device [n_tokens] token slots, negative: skipped */
    const void *k, *v;                              /* act [n_tokens, HKV, D] */
    void *k_buf, *v_buf;                            /* act [n_kv, HKV, D] */
};

/* Causal attention over the cache, ops-attention.md 3. Row r's query tokens are its last positions:
 * token j of row r has absolute position seq_lens[r] - (qsl[r+1]-qsl[r]) + j. slots[r] < 0: skipped. */
struct hb_k_attention {
    struct hb_k_rows rows;
    int32_t n_q_heads, n_kv_heads, attn_dim, act_dtype, defect;
    float sm_scale;
    int32_t window, window_rule; /* keys at positions p - j < window, or <= (enum hb_window_rule); 0: all */
    float softcap;               /* scores become cap tanh(score / cap); 0: none */
    const int32_t *reqs;         /* device [n_rows]; null: row r is request r */
    const int32_t *seq_lens;     /* device [n_rows] */
    const int32_t *req_to_token; /* device [reqs, max_context] */
    int32_t max_context;
    const void *q;                   /* act [T, HQ, D] */
    const void *k_buf, *v_buf;       /* act [n_kv, HKV, D] */
    void *out;                       /* act [T, HQ, D] */
    /* verify of trees: the last tokens of each row are draft nodes (as many as the row has tokens); node t attends the
     * positions before them, its ancestors and itself, at the positions that they have on its path. Null: causal */
    const int32_t *parent; /* device [n_rows, parent_stride] */
    int32_t parent_stride;
};

struct hb_kernels {
    uint32_t struct_size;
    const char *name;       /* "emu", "cuda" */
    int32_t is_device_code; /* 1: compiled under __CUDACC__ */
    int32_t exact_guards;   /* allocations are exact-size blocks under AddressSanitizer */
    /* All return 0 or HB_ERR_DEVICE / HB_ERR_MEMORY; error_text describes the last failure. */
    const char *(*error_text)(void);
    int32_t (*open)(void); /* first use of the device; HB_ERR_DEVICE with a reason when there is none */
    /* Fresh memory is poisoned (0xff bytes: NaN in fp32 and bf16, -1 in int32). */
    int32_t (*mem_alloc)(uint64_t bytes, void **out);
    void (*mem_free)(void *ptr);
    int32_t (*to_device)(void *dst, const void *src, uint64_t bytes);
    int32_t (*to_host)(void *dst, const void *src, uint64_t bytes);
    int32_t (*fill)(void *dst, int32_t byte, uint64_t bytes);
    int32_t (*sync)(void);
    /* order of threads in a block and of blocks in a grid for the following launches (emulator; no-op on a GPU) */
    void (*set_order)(int32_t thread_order, int32_t block_order, uint32_t seed);
    uint64_t (*launches)(void); /* since the process started */
    /* Graphs. Between begin and end launches and fills are recorded, with a copy of their argument structs, and not run;
     * copies to and from the host, mem_alloc, sync and a second begin are refused with HB_ERR_DEVICE. A failure of a
     * launch in between makes end fail, which then leaves no graph. launch runs what was recorded, on what memory then
     * holds; its kernels count as launches, recorded ones do not. */
    int32_t (*graph_begin)(void);
    int32_t (*graph_end)(void **graph);
    int32_t (*graph_launch)(void *graph);
    void (*graph_free)(void *graph); /* null is allowed */
    /* launchers */
    int32_t (*conv_prefill)(const struct hb_k_conv *args);
    int32_t (*conv_update)(const struct hb_k_conv *args); /* every row is one token */
    int32_t (*conv_track)(const struct hb_k_conv_track *args);
    int32_t (*ssd_prefill)(const struct hb_k_ssm *args);
    int32_t (*ssm_update)(const struct hb_k_ssm *args); /* every row is one token */
    int32_t (*ssm_ring)(const struct hb_k_ssm_ring *args); /* every row is one token */
    int32_t (*ssm_ring_verify)(const struct hb_k_ssm_ring *args);
    int32_t (*ring_fold)(const struct hb_k_ring_fold *args);
    int32_t (*conv_verify)(const struct hb_k_conv_verify *args);
    int32_t (*ssm_verify)(const struct hb_k_ssm_verify *args);
    int32_t (*delta_prefill)(const struct hb_k_delta *args);
    int32_t (*delta_update)(const struct hb_k_delta *args); /* every row is one token */
    int32_t (*delta_verify)(const struct hb_k_delta_verify *args);
    int32_t (*decay_prefill)(const struct hb_k_decay *args);
    int32_t (*decay_update)(const struct hb_k_decay *args); /* every row is one token */
    int32_t (*decay_verify)(const struct hb_k_decay_verify *args);
    int32_t (*selective_prefill)(const struct hb_k_selective *args);
    int32_t (*selective_update)(const struct hb_k_selective *args); /* every row is one token */
    int32_t (*selective_verify)(const struct hb_k_selective_verify *args);
    int32_t (*short_conv_prefill)(const struct hb_k_short_conv *args);
    int32_t (*short_conv_update)(const struct hb_k_short_conv *args); /* every row is one token */
    int32_t (*short_conv_verify)(const struct hb_k_short_conv_verify *args);
    int32_t (*gated_norm)(const struct hb_k_norm *args);
    int32_t (*slots)(const struct hb_k_slots *args);
    int32_t (*windows)(const struct hb_k_windows *args);
    int32_t (*kv_write)(const struct hb_k_kv_write *args);
    int32_t (*attention)(const struct hb_k_attention *args);
};

const struct hb_kernels *hb_kernels_emu(void);
#ifdef HB_HAVE_CUDA
const struct hb_kernels *hb_kernels_cuda(void);
#endif

#ifdef __cplusplus
}
#endif
#endif
