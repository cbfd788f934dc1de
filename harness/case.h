/* SPDX-License-Identifier: Apache-2.0
 * The test case: a configuration and a short history of steps, as plain data. One table (HB_CASE_FIELDS) names every field;
 * byte form, JSON form, mutation, explanation and shrinking are driven by it.
 *
 * Byte form: magic "HBC3", then the fields in table order. Bytes without the magic are taken as the body; missing bytes
 * read as zero and a zero byte is the field's default, so short inputs are simple cases. Any byte string decodes; the
 * canonical form is encode(decode(x)). JSON form: {"schema":3,"target":..,"config":{..},"steps":[..],"breaks":[..]}.
 *
 * Meaning of a history. Requests are 0..HB_MAX_REQS-1. TAKE of kind live binds a fresh slot to a request (prefix > 0: the
 * request already has that many tokens; its state and KV entries are random values written before the first forward;
 * from >= 0: the request restarts from the from-th track slot, inheriting stream and position of what is stored there).
 * TAKE of kind track makes the next track slot. Slots are named by the order of their TAKE step (0 = first TAKE of the
 * case). A forward consumes tokens of its requests; positions advance only when the step succeeded.
 *
 * Speculation. In a forward of mode TARGET_VERIFY a row's length is its number of draft nodes; nodes hang on the request's
 * tokens and no position advances. A COMMIT is about the last verify: its row i moves the request of that verify's row i
 * behind node `accept` (-1: not at all) and stores node `track_accept` in a track slot.
 *
 * Graphs. GRAPH_INIT once, then a CAPTURE per batch size, then forwards with replay = 1, whose batch size (rows and padding
 * rows) picks the graph. A replayed forward runs the layers that its graph captured.
 *
 * Prefix cache, as a scheduler keeps it. PUBLISH donates a track slot to the cache, which knows it by stream and number of
 * tokens. TAKE with match >= 0 makes a request that has its first `prefix` tokens in common with stream `match`: it starts
 * from a copy of the deepest published state of that stream at most that deep, or from nothing. FREE of a published slot
 * evicts it. With ping_pong, each request owns track slots (1, 2, or 2 of which the second is taken when first needed); a
 * tracked row of an extend or decode goes to the next of them, rows' track_slot is not looked at, and PUBLISH donates the
 * request's newest complete checkpoint, in whose place a fresh slot is taken. */
#ifndef HB_HARNESS_CASE_H
#define HB_HARNESS_CASE_H

#include <stddef.h>
#include <stdint.h>

#include "backend/caps.h"
#include "backend/status.h"

enum {
    HB_CASE_SCHEMA = 3,
    HB_MAX_STEPS = 16,
    HB_MAX_ROWS = 8,
    HB_MAX_REQS = 8,
    HB_MAX_BREAKS = 4,
    HB_MAX_DRAFT = 8, /* nodes of a row */
    HB_CASE_MAX_BYTES = 8192,
    HB_CASE_ID_LEN = 17
};

enum hb_step_kind {
    HB_STEP_FORWARD = 0,
    HB_STEP_TAKE = 1,
    HB_STEP_FREE = 2,
    HB_STEP_COPY = 3,
    HB_STEP_ENTRY = 4, /* call a decode/extend entry of child or wrapper, inside a forward of `mode` if n_rows > 0 */
    HB_STEP_COMMIT = 5,
    HB_STEP_GRAPH_INIT = 6,
    HB_STEP_CAPTURE = 7,
    HB_STEP_PUBLISH = 8,
    HB_STEP_MOVE = 9,
    HB_N_STEP_KINDS = 10
};

/* Value classes of the case's tensors (architecture.md decision 5). */
enum hb_value_class {
    HB_VALUES_ORDINARY = 0,  /* about N(0,1), moderate dt */
    HB_VALUES_EXACT = 1,     /* small integers; forces the exact variants (no silu, no softplus, A = 0, no gate norm) */
    HB_VALUES_LARGE_DT = 2,  /* and attention scores beyond +-100 */
    HB_VALUES_TINY_DT = 3,
    HB_VALUES_CANCEL = 4,
    HB_VALUES_WIDE = 5,      /* powers of two over a wide range */
    HB_VALUES_ONE_SIGN = 6,  /* ordinary without signs: no sum cancels, so bounds are tightest against the values */
    HB_N_VALUE_CLASSES = 7
};

/* Where the case's time step limits apply; a backend that takes the clamp of the wrong path shows with the last two. */
enum hb_case_clamp {
    HB_CLAMP_NONE = 0,
    HB_CLAMP_LIMIT = 1,   /* both paths */
    HB_CLAMP_PREFILL = 2, /* as public stacks do: extend rows only */
    HB_CLAMP_DECODE = 3,
    HB_N_CLAMPS = 4
};

/* What fills memory that must not be read (surplus tokens, padding rows, free slots). */
enum hb_unread { HB_UNREAD_RANDOM = 0, HB_UNREAD_NAN = 1, HB_UNREAD_INF = 2, HB_N_UNREAD = 3 };

enum hb_target {
    HB_TARGET_FORWARD = 0,
    HB_TARGET_DISPATCH = 1,
    HB_TARGET_VERIFY = 2,
    HB_TARGET_METADATA = 3, /* batches, mostly broken, statuses only */
    HB_TARGET_TRACK = 4,
    HB_TARGET_GRAPH = 5,
    HB_TARGET_SLOTS = 6, /* life of slots, prefix cache, virtual ids */
    HB_TARGET_ATTENTION = 7, /* models of mostly attention: pages, windows, soft caps, trees */
    HB_N_TARGETS = 8
};

/* The model's linear kind. */
enum hb_mixer {
    HB_MIXER_MAMBA2 = 0,
    HB_MIXER_GDN = 1,
    HB_MIXER_KDA = 2,
    HB_MIXER_LIGHTNING = 3,
    HB_MIXER_SHORT_CONV = 4,
    HB_MIXER_MAMBA1 = 5,
    HB_N_MIXERS = 6
};
/* Channels of an RMS group: of one key head's value heads, all, of one head. */
enum hb_norm_span { HB_NORM_GROUP = 0, HB_NORM_WHOLE = 1, HB_NORM_HEAD = 2, HB_N_NORM_SPANS = 3 };
/* Pages of the KV cache: token slots of a page are contiguous, the first one's number is a multiple of the page size. The
 * pages are given out in a random order; from the first one up, so that those of the requests alternate; or from the last
 * one down. */
enum hb_kv_page { HB_KV_PAGE_1 = 0, HB_KV_PAGE_16 = 1, HB_KV_PAGE_64 = 2, HB_N_KV_PAGES = 3 };
enum hb_page_order { HB_PAGES_SHUFFLED = 0, HB_PAGES_INTERLEAVED = 1, HB_PAGES_DESCENDING = 2, HB_N_PAGE_ORDERS = 3 };
/* Numbers that a case chooses from a short list (case_limits.c). */
enum { HB_N_GATE_BOUNDS = 4, HB_N_QK_SCALES = 4, HB_N_SOFTCAPS = 5 };

enum hb_ping_pong { HB_PING_PONG_OFF = 0, HB_PING_PONG_ONE = 1, HB_PING_PONG_TWO = 2, HB_PING_PONG_LAZY = 3, HB_N_PING_PONGS = 4 };

/* Shape of the drafts of a verify (step field tree). From HB_TREE_RANDOM on: the seed of a random tree per row. */
enum hb_tree_shape { HB_TREE_CHAIN = 0, /* no links */ HB_TREE_LINKED_CHAIN = 1, HB_TREE_RANDOM = 2, HB_TREE_MAX = 255 };

struct hb_case_config {
    int32_t target;
    int32_t n_layers, attn_mask; /* bit l of attn_mask: layer l is attention */
    int32_t heads, head_dim, state_size, groups, conv_width, chunk_size, page_chunks; /* page = 1 if 0 else n * C */
    int32_t act_dtype, state_dtype;
    int32_t conv_act, gate_norm, norm_group, dt_softplus, dt_clamp, eps;
    int32_t conv_bias, dt_bias, skip_d;
    int32_t q_heads, kv_heads, attn_dim;
    int32_t spare_slots; /* slots beyond those taken */
    int32_t kernel_form, thread_order, block_order, order_seed;
    int32_t value_class, unread, seed;
    int32_t relation, relation_arg; /* index in the relation table, 0 = none */
    int32_t max_draft;  /* capacity of D; 0: no speculation */
    int32_t spare_rows; /* rows of the intermediate caches beyond those of the largest verify */
    int32_t ring_length;  /* L, 0: no replay ring */
    int32_t ring_owner;   /* enum hb_ring_owner; COMMIT: L is a power of two, 2*max_draft or more, states fp32 */
    int32_t track_chunks; /* track interval I = this many chunks */
    int32_t virtual_ids;  /* 0: ids are slots; n: NV = NS + n - 1 virtual ids */
    int32_t ping_pong;    /* enum hb_ping_pong */
    int32_t window_layout, track_by_layer, pool_pad; /* as in hb_config */
    int32_t graph_rows, graph_draft; /* as in hb_config; 0 rows: no graphs */
    /* Variants; what the mixer does not read is at its default. gate_bound, qk_scale, attn_softcap: index of a choice. */
    int32_t mixer; /* enum hb_mixer */
    int32_t head_map, state_layout, out_gate, conv_state_len;
    int32_t l2norm, beta_form, gate_form, gate_bound, qk_scale;
    int32_t slope_kind, layer_factor, qkv_act;
    int32_t attn_window, window_rule, attn_softcap;
    int32_t kv_page, page_order;
    int32_t real_size; /* 1: sizes of real models are allowed, and work that takes a GPU */
};

struct hb_case_row {
    int32_t request;
    int32_t length; /* new tokens; decode rows always use 1; verify: draft nodes */
    int32_t track;  /* 0 no, 1 yes */
    int32_t track_slot;  /* which track slot: index among the case's track TAKEs, modulo their number */
    int32_t track_point; /* 0: the last aligned point; k > 0: the k-th aligned point of this call, clamped */
    int32_t accept;      /* commit: node to commit, -1 none */
    int32_t track_accept; /* commit of a tracked row: node to store */
};

struct hb_case_step {
    int32_t kind;
    int32_t mode;      /* forward, entry: any 32-bit value */
    int32_t n_decode;  /* MIXED: the last n_decode rows are native decode rows (shape M2) */
    int32_t pad_rows, pad_tokens;
    int32_t optional;  /* bit 0 extend_start_loc, 1 extend_seq_lens_cpu, 2 original_batch_size, 3 all-false mask given,
                        4 begin (replay) is called twice, 5 seq_lens_cpu given, 6 num_padding absent (replay), 7 links of a
                        capture (verify) given */
    int32_t layer_mask; /* bit l set: layer l is left out of this forward */
    int32_t draft;      /* verify: D; 0: the longest row's length */
    int32_t ragged;     /* verify: 1: rows of different length, pad_tokens nodes in the padding rows; 0: all have D nodes */
    int32_t tree;       /* verify: enum hb_tree_shape */
    int32_t replay;     /* forward: 1: of the graph of this batch size */
    int32_t n_rows;
    struct hb_case_row row[HB_MAX_ROWS];
    int32_t bs, nodes; /* graph_init: max_bs, max_tokens / max_bs; capture: batch size, draft_token_num */
    int32_t match;     /* take: -1, or the stream (a request's number) to find in the prefix cache */
    int32_t request, slot_kind, prefix, from; /* take; slot_kind 0 live, 1 track; from: -1 or track slot index */
    int32_t slot, slot2;                      /* free, copy, publish, move: slot names; free: slot2 -1 or a second id */
    int32_t target, direction, layer, null_args; /* entry */
};

/* One deliberate fault, applied to the derived batch of step `step` (-1: to the configuration). */
struct hb_case_break {
    int32_t step;
    int32_t field; /* index in HB_BREAK_FIELDS */
    int32_t row;
    int32_t operation; /* enum hb_break_op */
    int64_t value;
};

enum hb_break_op {
    HB_BREAK_SET = 0,    /* field[row] = value */
    HB_BREAK_ADD = 1,    /* field[row] += value, wrapping in the field's width */
    HB_BREAK_ABSENT = 2, /* array: null; has_ flag: 0 */
    HB_BREAK_LENGTH = 3, /* array length = value clamped to 0..4096; new entries are 0 */
    HB_BREAK_COPY = 4,   /* field[row] = field[value modulo length] */
    HB_N_BREAK_OPS = 5
};

/* X(NAME, json): batch fields a break can name; then mapping table and slots; then configuration fields (step -1). */
#define HB_BREAK_FIELDS(X)                                                                         \
    X(FORWARD_MODE, "forward_mode")                                                                \
    X(BATCH_SIZE, "batch_size")                                                                    \
    X(ORIGINAL_BATCH_SIZE, "original_batch_size")                                                  \
    X(N_TOKENS, "n_tokens")                                                                        \
    X(N_EXTEND, "n_extend")                                                                        \
    X(REQ_POOL_INDICES, "req_pool_indices")                                                        \
    X(SEQ_LENS, "seq_lens")                                                                        \
    X(EXTEND_SEQ_LENS, "extend_seq_lens")                                                          \
    X(EXTEND_SEQ_LENS_CPU, "extend_seq_lens_cpu")                                                  \
    X(EXTEND_PREFIX_LENS, "extend_prefix_lens")                                                    \
    X(EXTEND_START_LOC, "extend_start_loc")                                                        \
    X(EXTEND_NUM_TOKENS, "extend_num_tokens")                                                      \
    X(TRACK_MASK, "mamba_track_mask")                                                              \
    X(TRACK_INDICES, "mamba_track_indices")                                                        \
    X(TRACK_SEQLENS, "mamba_track_seqlens")                                                        \
    X(OUT_CACHE_LOC, "out_cache_loc")                                                              \
    X(REQ_TO_TOKEN, "req_to_token")                                                                \
    X(REQ_TO_TOKEN_ROWS, "req_to_token_rows")                                                      \
    X(REQ_TO_TOKEN_COLS, "req_to_token_cols")                                                      \
    X(IS_DUMMY, "is_dummy")                                                                        \
    X(SEQ_LENS_CPU, "seq_lens_cpu")                                                                \
    X(NUM_PADDING, "num_padding")                                                                  \
    X(DRAFT_TOKEN_NUM, "draft_token_num")                                                          \
    X(NEXT_TOKEN, "retrieve_next_token")                                                           \
    X(NEXT_SIBLING, "retrieve_next_sibling")                                                       \
    X(RAGGED_LAYOUT, "ragged_verify_layout")                                                       \
    X(COMMIT_POINTER, "commit")      /* ABSENT: commit gets null */                                \
    X(COMMIT_ROWS, "commit.n_rows")                                                                \
    X(COMMIT_STEP, "commit.step")                                                                  \
    X(COMMIT_TRACK_INDICES, "commit.track_indices")                                                \
    X(COMMIT_TRACK_STEPS, "commit.track_steps")                                                    \
    X(TABLE, "req_to_slot")      /* row = request: table_set before this step, undone after it */  \
    X(BATCH_POINTER, "batch")    /* ABSENT: begin gets a null batch */                             \
    X(IO_POINTER, "io")          /* ABSENT: buffer `row` (0..2 in, 3 out) of every layer is null */ \
    X(IO_BYTES, "io_bytes")      /* SET/ADD on the byte count of buffer `row` */                    \
    X(LAYER_ID, "layer_id")      /* SET: one extra layer call with this id after begin */           \
    X(SLOT_COUNT, "slot_count")  /* take: number of slots asked for */                             \
    X(SLOT_KIND, "slot_kind")    /* take: kind passed through */                                   \
    X(SLOT_ID, "slot_id")        /* free, copy, publish, move: literal id; row 0 = first, 1 = second */            \
    X(GRAPH_MAX_BS, "graph.max_bs")                                                                \
    X(GRAPH_MAX_TOKENS, "graph.max_tokens")                                                        \
    X(CFG_N_LAYERS, "config.n_layers")                                                             \
    X(CFG_HEADS, "config.n_heads")                                                                 \
    X(CFG_GROUPS, "config.n_groups")                                                               \
    X(CFG_CONV_WIDTH, "config.conv_width")                                                         \
    X(CFG_CHUNK_SIZE, "config.chunk_size")                                                         \
    X(CFG_PAGE_SIZE, "config.page_size")                                                           \
    X(CFG_KV_HEADS, "config.n_kv_heads")                                                           \
    X(CFG_VARIANT, "config.variant") /* row: as in rule 208, 0 conv_act .. 22 ring_owner; 7: of layer 0 */ \
    X(CFG_DTYPE, "config.dtype")     /* row: 0 act 1 state */                                       \
    X(CFG_DT_LO, "config.dt_lo")     /* integer value */                                           \
    X(CFG_STATE_SIZE, "config.state_size")                                                         \
    X(CFG_SPEC_ROWS, "config.spec_rows")                                                           \
    X(CFG_TRACK_INTERVAL, "config.track_interval")                                                 \
    X(CFG_RING, "config.ring_length")                                                              \
    X(CFG_VIRTUAL, "config.n_virtual")                                                             \
    X(CFG_GRAPH, "config.graph") /* row: 0 graph_rows 1 graph_draft */                              \
    X(CFG_POOL_PAD, "config.pool_pad")                                                             \
    X(CFG_SCORING, "config.multi_item_scoring")                                                    \
    X(CFG_ROUNDING, "config.stochastic_rounding")                                                  \
    X(CFG_GATE_BOUND, "config.gate_bound") /* integer value */                                     \
    X(CFG_ATTENTION, "config.attention")   /* row: 0 attn_window 1 attn_softcap (integer value) */

enum hb_break_field {
#define HB_BREAK_ENUM(name, json) HB_FIELD_##name,
    HB_BREAK_FIELDS(HB_BREAK_ENUM)
#undef HB_BREAK_ENUM
        HB_N_BREAK_FIELDS
};

struct hb_case {
    struct hb_case_config config;
    int32_t n_steps;
    struct hb_case_step step[HB_MAX_STEPS];
    int32_t unused; /* 0; the struct has no padding, as cases are compared as memory */
    int32_t n_breaks;
    struct hb_case_break brk[HB_MAX_BREAKS];
};

/* The field table. */
enum hb_field_group { HB_GROUP_CONFIG, HB_GROUP_STEP, HB_GROUP_ROW, HB_GROUP_BREAK };
struct hb_case_field {
    const char *name;
    size_t offset;   /* in the group's struct */
    int64_t lo, hi;  /* valid values */
    int64_t initial; /* default */
    const char *const *names; /* names of the values lo.., or null for numbers */
    int32_t group;   /* enum hb_field_group */
    uint32_t kinds;  /* step kinds that use it (bit k); rows: kinds of their step */
    int32_t is_wide; /* int64 instead of int32 */
};
/* All fields, in byte order; returns their number. */
int hb_case_fields(const struct hb_case_field **fields);
const char *hb_break_field_name(int32_t field);
/* "forward", ..; "unknown" for other numbers. */
const char *hb_target_name(int32_t target);
/* "mamba2", ..; "unknown" for other numbers. */
const char *hb_mixer_name(int32_t mixer);

/* A valid default case: no steps. */
void hb_case_init(struct hb_case *c);
/* Brings every field into range and makes dependent sizes fit (heads divisible by groups, power-of-two chunk, ...).
 * Idempotent. Never changes what is already consistent. */
void hb_case_normalize(struct hb_case *c);
/* Total: any bytes give a normalised case. */
void hb_case_decode(const uint8_t *data, size_t size, struct hb_case *out);
/* Canonical bytes of a normalised case; returns the size (<= HB_CASE_MAX_BYTES), 0 if cap is too small. */
size_t hb_case_encode(const struct hb_case *c, uint8_t *out, size_t cap);
/* 16 hex digits of the xxHash64 of the canonical bytes. */
void hb_case_id(const struct hb_case *c, char id[HB_CASE_ID_LEN]);
/* Canonical JSON text, malloc'ed, null when out of memory. predicted: a JSON object text added as "predicted", or null. */
char *hb_case_to_json(const struct hb_case *c, const char *predicted);
/* Strict: HB_ERR_PARSE with position, value and limit in err for every fault; *out is written only on success.
 * A top-level "predicted" is ignored. */
int32_t hb_case_from_json(const char *text, size_t len, struct hb_case *out, struct hb_error *err);
/* Reads a case from a regular file, or standard input for the path "-". HB_ERR_IO or HB_ERR_PARSE, with the path first
 * in err. A name that ends in .json is JSON. Otherwise what begins with the magic "HBC" is bytes; what begins with a
 * byte order mark, or whose first non-space byte is one of {[", is JSON; of the rest, a file with a byte below 0x09 or
 * above 0x7e among its first 64 is bytes, any other JSON. JSON that is not a case is refused. */
int32_t hb_case_load(const char *path, struct hb_case *out, struct hb_error *err);
/* Writes canonical bytes (or JSON when the name ends in .json) by a temporary file and rename: never half a file. */
int32_t hb_case_save(const char *path, const struct hb_case *c, struct hb_error *err);

/* The layer kind (enum hb_layer_kind) of the case's linear layers. */
int32_t hb_case_linear_kind(const struct hb_case_config *g);
/* Token slots of a page of the KV cache. */
int32_t hb_case_kv_page(const struct hb_case_config *g);
/* The backend configuration that a case asks for (before breaks at step -1). */
void hb_case_backend_config(const struct hb_case *c, struct hb_config *config);

/* Limits that hb_case_normalize keeps, so that no case takes long (case.c says how they are counted). */
enum { HB_CASE_MAX_WORK = 1 << 22, HB_CASE_REAL_WORK = 1 << 30, HB_CASE_MAX_TOKENS = 1024 };

/* The fields of one group (enum hb_field_group), which stand together in the table; returns their number. */
int hb_case_group_fields(int32_t group, const struct hb_case_field **fields);
/* Value of field f in a struct of its group, and the write of it (value must be in range). */
int64_t hb_case_field_get(const struct hb_case_field *f, const void *group);
void hb_case_field_set(const struct hb_case_field *f, void *group, int64_t value);
/* 1 if steps of this kind (rows: of a step of this kind) use f. */
int hb_case_field_used(const struct hb_case_field *f, int32_t kind);
/* Whether steps of this kind have rows. */
int hb_step_has_rows(int32_t kind);
/* The row of the request pool that a request (0..HB_MAX_REQS-1) uses: a permutation of 1..HB_MAX_REQS by seed. */
int32_t hb_case_req_index(const struct hb_case *c, int32_t request);
/* Draft nodes per row (D) of a step in normal form, 0 if it is no verify. */
int32_t hb_case_draft(const struct hb_case_step *s);
/* Draft nodes of padding row i (0..pad_rows-1) of a verify. */
int32_t hb_case_padding_nodes(const struct hb_case_step *s, int32_t i);
/* Parent of each of the n nodes of a row; the first nodes do not depend on n. */
void hb_case_tree(const struct hb_case *c, const struct hb_case_step *s, int32_t row, int32_t n, int32_t *parent);
int hb_step_is_verify(const struct hb_case_step *s);
/* Name of a mode 1..9 into out; returns its length, 0 for other numbers or a short buffer. */
int hb_case_mode_name(int32_t mode, char *out, size_t cap);

#endif
