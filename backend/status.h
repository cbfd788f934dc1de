/* SPDX-License-Identifier: Apache-2.0
 * Status codes, the numbered rules that a call can break, and the error record.
 *
 * The rule table is a table of words only: which status, which field, which text. The conditions live twice and
 * independently, in the backend (validate.c and friends) and in the prediction (harness/expect.c).
 *
 * Total order: the rule with the lowest number wins; inside one rule the lowest row wins. Numbers are never reused.
 * Text placeholders: {v} value, {l} limit, {r} row. */
#ifndef HB_BACKEND_STATUS_H
#define HB_BACKEND_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(number, NAME): statuses of forward-batch.md section 3, then environment and internal codes. */
#define HB_STATUSES(X)                                                                             \
    X(0, OK)                                                                                       \
    X(1, ERR_INVALID_MODE)                                                                         \
    X(2, ERR_NOT_IMPLEMENTED)                                                                      \
    X(3, ERR_NULL)                                                                                 \
    X(4, ERR_SHAPE)                                                                                \
    X(5, ERR_RANGE)                                                                                \
    X(6, ERR_DUPLICATE)                                                                            \
    X(7, ERR_ALIAS)                                                                                \
    X(8, ERR_FREED)                                                                                \
    X(9, ERR_CAPACITY)                                                                             \
    X(10, ERR_STATE)                                                                               \
    X(11, ERR_UNSUPPORTED)                                                                         \
    X(12, ERR_DEVICE)                                                                              \
    X(20, ERR_MEMORY)                                                                              \
    X(21, ERR_IO)                                                                                  \
    X(22, ERR_PARSE)

enum hb_status {
#define HB_STATUS_ENUM(number, name) HB_##name = number,
    HB_STATUSES(HB_STATUS_ENUM)
#undef HB_STATUS_ENUM
};

#define HB_SEED_A_TEXT                                                                             \
    "Mamba2AttnBackend's forward is called directly instead of through HybridLinearAttnBackend, "  \
    "as it supports mixed prefill and decode"

/* X(number, NAME, STATUS, field, text). The classes are those of the contracts: refused entries, null handle, mode,
 * call order, NULL, SHAPE, CAPACITY, RANGE, FREED (and a ring that is not folded), DUPLICATE, ALIAS, UNSUPPORTED; then slot
 * operations, graph_init and the configuration. */
#define HB_RULES(X)                                                                                                                         \
    X(1, ENTRY_REFUSED, ERR_NOT_IMPLEMENTED, "entry", HB_SEED_A_TEXT)                                                                       \
    X(2, HANDLE_NULL, ERR_NULL, "handle", "backend handle is null")                                                                         \
    X(3, BATCH_NULL, ERR_NULL, "batch", "forward batch is null")                                                                            \
    X(4, SHORT_CONV_DECODE, ERR_NOT_IMPLEMENTED, "entry", "ShortConvAttnBackend is invoked via conv_state_metadata; it does not run through forward_decode.") \
    X(5, SHORT_CONV_EXTEND, ERR_NOT_IMPLEMENTED, "entry", "ShortConvAttnBackend is invoked via conv_state_metadata; it does not run through forward_extend.") \
    X(9, GRAPH_MODE_INVALID, ERR_INVALID_MODE, "forward_mode", "Invalid forward mode: forward_mode={mode}")                                 \
    X(10, MODE_INVALID, ERR_INVALID_MODE, "forward_mode", "Invalid forward mode: forward_batch.forward_mode={mode}")                        \
    X(11, MODE_UNSUPPORTED, ERR_UNSUPPORTED, "forward_mode", "forward mode {mode} is not supported by this backend")                        \
    X(12, NO_METADATA, ERR_STATE, "layer_id", "no forward metadata: begin has not succeeded since the last finish")                         \
    X(13, LAYER_TWICE, ERR_STATE, "layer_id", "layer {v} has already run in this forward")                                                  \
    X(14, NO_VERIFY, ERR_STATE, "commit", "no finished verify to commit: it was not run, or a begin came after it")                          \
    X(15, GRAPH_NO_INIT, ERR_STATE, "graph", "no graph_init before this call")                                                              \
    X(16, GRAPH_TWICE, ERR_STATE, "graph", "already done: graph_init, or the capture of batch size {v}")                                    \
    X(17, GRAPH_NOT_CAPTURED, ERR_STATE, "batch_size", "batch size {v} was not captured")                                                   \
    X(18, GRAPH_MODE, ERR_STATE, "forward_mode", "forward mode {v} differs from the captured one, {l}")                                     \
    X(19, GRAPH_LINKS, ERR_STATE, "retrieve_next_token", "links given: {v}, but captured: {l}")                                             \
    X(20, REQ_NULL, ERR_NULL, "req_pool_indices", "req_pool_indices is null, batch_size is {l}")                                            \
    X(21, SEQ_LENS_NULL, ERR_NULL, "seq_lens", "seq_lens is null, batch_size is {l}")                                                       \
    X(22, EXTEND_LENS_NULL, ERR_NULL, "extend_seq_lens", "extend_seq_lens is null, n_extend is {l}")                                        \
    X(23, PREFIX_LENS_NULL, ERR_NULL, "extend_prefix_lens", "extend_prefix_lens is null, n_extend is {l}")                                  \
    X(24, EXTEND_NUM_NULL, ERR_NULL, "extend_num_tokens", "extend_num_tokens is absent in an extend mode")                                  \
    X(25, TRACK_INDICES_NULL, ERR_NULL, "mamba_track_indices", "mamba_track_indices is null but mamba_track_mask[{r}] is set")              \
    X(26, TRACK_LENS_NULL, ERR_NULL, "mamba_track_seqlens", "mamba_track_seqlens is null but mamba_track_mask[{r}] is set")                 \
    X(27, CACHE_LOC_NULL, ERR_NULL, "out_cache_loc", "out_cache_loc is null, n_tokens is {l} and the model has attention layers")           \
    X(28, REQ_TO_TOKEN_NULL, ERR_NULL, "req_to_token", "req_to_token is null, batch_size is {l} and the model has attention layers")        \
    X(29, IO_NULL, ERR_NULL, "io", "layer buffer {r} is null")                                                                              \
    X(30, LINKS_NULL, ERR_NULL, "retrieve_next_token", "only one of retrieve_next_token and retrieve_next_sibling is given")                  \
    X(31, COMMIT_NULL, ERR_NULL, "commit", "commit is null")                                                                                \
    X(32, COMMIT_STEP_NULL, ERR_NULL, "step", "commit has no steps, n_rows is {l}")                                                         \
    X(33, COMMIT_TRACK_STEPS_NULL, ERR_NULL, "track_steps", "commit has track_indices but no track_steps")                                  \
    X(40, BATCH_NEGATIVE, ERR_SHAPE, "batch_size", "batch_size {v} is negative")                                                            \
    X(41, TOKENS_NEGATIVE, ERR_SHAPE, "n_tokens", "n_tokens {v} is negative")                                                               \
    X(42, N_EXTEND_ROWS, ERR_SHAPE, "n_extend", "n_extend {v} does not fit {l} real rows in this mode")                                     \
    X(43, REQ_LENGTH, ERR_SHAPE, "req_pool_indices", "req_pool_indices has {v} entries, batch_size is {l}")                                 \
    X(44, SEQ_LENS_LENGTH, ERR_SHAPE, "seq_lens", "seq_lens has {v} entries, batch_size is {l}")                                            \
    X(45, EXTEND_LENS_LENGTH, ERR_SHAPE, "extend_seq_lens", "extend_seq_lens has {v} entries, n_extend is {l}")                             \
    X(46, EXTEND_CPU_LENGTH, ERR_SHAPE, "extend_seq_lens_cpu", "extend_seq_lens_cpu has {v} entries, n_extend is {l}")                      \
    X(47, EXTEND_CPU_VALUE, ERR_SHAPE, "extend_seq_lens_cpu", "extend_seq_lens_cpu[{r}] is {v}, extend_seq_lens says {l}")                  \
    X(48, PREFIX_LENS_LENGTH, ERR_SHAPE, "extend_prefix_lens", "extend_prefix_lens has {v} entries, n_extend is {l}")                       \
    X(49, START_LOC_LENGTH, ERR_SHAPE, "extend_start_loc", "extend_start_loc has {v} entries, n_extend is {l}")                             \
    X(50, START_LOC_VALUE, ERR_SHAPE, "extend_start_loc", "extend_start_loc[{r}] is {v}, the exclusive prefix sum is {l}")                  \
    X(51, EXTEND_NUM_VALUE, ERR_SHAPE, "extend_num_tokens", "extend_num_tokens is {v}, the sum of extend_seq_lens is {l}")                  \
    X(52, TOKENS_SHORT, ERR_SHAPE, "n_tokens", "n_tokens {v} is less than the {l} real tokens of the batch")                                \
    X(53, TRACK_MASK_LENGTH, ERR_SHAPE, "mamba_track_mask", "mamba_track_mask has {v} entries, batch_size is {l}")                          \
    X(54, TRACK_INDICES_LENGTH, ERR_SHAPE, "mamba_track_indices", "mamba_track_indices has {v} entries, batch_size is {l}")                 \
    X(55, TRACK_LENS_LENGTH, ERR_SHAPE, "mamba_track_seqlens", "mamba_track_seqlens has {v} entries, batch_size is {l}")                    \
    X(56, CACHE_LOC_LENGTH, ERR_SHAPE, "out_cache_loc", "out_cache_loc has {v} entries, n_tokens is {l}")                                   \
    X(57, REQ_TO_TOKEN_ROWS, ERR_SHAPE, "req_to_token", "req_to_token has {v} rows, the request pool has {l}")                              \
    X(58, REQ_TO_TOKEN_COLS, ERR_SHAPE, "req_to_token", "req_to_token has {v} columns, max_context is {l}")                                 \
    X(59, IO_BYTES, ERR_SHAPE, "io", "layer buffer {r} has {v} bytes, {l} are needed")                                                      \
    X(60, VERIFY_TOKENS, ERR_SHAPE, "n_tokens", "n_tokens {v} is not batch_size times draft_token_num, {l}")                                 \
    X(61, LINKS_LENGTH, ERR_SHAPE, "retrieve_next_token", "the links of array {r} have {v} entries, batch_size times draft_token_num is {l}") \
    X(62, RAGGED_LENGTH, ERR_SHAPE, "ragged_verify_layout", "ragged_verify_layout has {v} entries, batch_size + 1 is {l}")                   \
    X(63, RAGGED_ORDER, ERR_SHAPE, "ragged_verify_layout", "ragged_verify_layout[{r}] is {v} after {l}")                                    \
    X(64, RAGGED_TOTAL, ERR_SHAPE, "ragged_verify_layout", "ragged_verify_layout ends with {v}, n_tokens is {l}")                           \
    X(65, COMMIT_ROWS, ERR_SHAPE, "n_rows", "commit has {v} rows, the verify had {l}")                                                      \
    X(66, COMMIT_LENGTH, ERR_SHAPE, "step", "array {r} of the commit has {v} entries, n_rows is {l}")                                       \
    X(67, CPU_LENS_LENGTH, ERR_SHAPE, "seq_lens_cpu", "seq_lens_cpu has {v} entries, batch_size is {l}")                                    \
    X(68, GRAPH_TOKENS, ERR_SHAPE, "n_tokens", "n_tokens {v} is not that of the graph, {l}")                                                \
    X(69, GRAPH_DRAFT, ERR_SHAPE, "draft_token_num", "draft_token_num {v} is not that of the graphs, {l}")                                  \
    X(70, BATCH_CAPACITY, ERR_CAPACITY, "batch_size", "batch_size {v} is larger than the limit {l}")                                        \
    X(71, TOKENS_CAPACITY, ERR_CAPACITY, "n_tokens", "n_tokens {v} is larger than the limit {l}")                                           \
    X(72, DRAFT_CAPACITY, ERR_CAPACITY, "draft_token_num", "draft_token_num {v} is larger than the limit {l}")                               \
    X(73, SPEC_ROWS_CAPACITY, ERR_CAPACITY, "batch_size", "batch_size {v} is larger than the {l} rows of the intermediate caches")          \
    X(74, GRAPH_CAPACITY, ERR_CAPACITY, "batch_size", "batch_size {v} of a graph is outside 1..{l}")                                        \
    X(78, PADDING_RANGE, ERR_RANGE, "num_padding", "num_padding {v} is outside 0..{l}")                                                     \
    X(79, PADDING_COUNT, ERR_RANGE, "seq_lens_cpu", "seq_lens_cpu[{r}] is {v} like padding, but row {l} after it is not")                   \
    X(80, ORIGINAL_RANGE, ERR_RANGE, "original_batch_size", "original_batch_size {v} is outside 0..{l}")                                    \
    X(81, REQ_RANGE, ERR_RANGE, "req_pool_indices", "req_pool_indices[{r}] is {v}, valid are 0..{l}")                                       \
    X(82, REQ_PADDING, ERR_RANGE, "req_pool_indices", "req_pool_indices[{r}] is {v}, a padding row must hold {l}")                          \
    X(83, SLOT_RANGE, ERR_RANGE, "req_pool_indices", "row {r} is mapped to state slot {v}, valid are 1..{l}")                               \
    X(84, SEQ_LEN_RANGE, ERR_RANGE, "seq_lens", "seq_lens[{r}] is {v}, a decode row needs at least {l}")                                    \
    X(85, EXTEND_LEN_RANGE, ERR_RANGE, "extend_seq_lens", "extend_seq_lens[{r}] is {v}, an extend row needs at least {l}")                  \
    X(86, PREFIX_RANGE, ERR_RANGE, "extend_prefix_lens", "extend_prefix_lens[{r}] is {v}, the least is {l}")                                \
    X(87, PREFIX_SUM, ERR_RANGE, "extend_prefix_lens", "prefix + extend of row {r} is {v}, seq_lens says {l}")                              \
    X(88, TRACK_MASK_PADDING, ERR_RANGE, "mamba_track_mask", "mamba_track_mask[{r}] is set on a padding row")                               \
    X(89, TRACK_MASK_DECODE, ERR_RANGE, "mamba_track_mask", "mamba_track_mask[{r}] is set on a decode row of a mixed batch")                \
    X(90, TRACK_SLOT_RANGE, ERR_RANGE, "mamba_track_indices", "mamba_track_indices[{r}] is {v}, valid are 1..{l}")                          \
    X(91, TRACK_LEN_SHORT, ERR_RANGE, "mamba_track_seqlens", "mamba_track_seqlens[{r}] is {v}, the least is {l}")                           \
    X(92, TRACK_LEN_LONG, ERR_RANGE, "mamba_track_seqlens", "mamba_track_seqlens[{r}] is {v}, the most is {l}")                             \
    X(93, CACHE_LOC_RANGE, ERR_RANGE, "out_cache_loc", "out_cache_loc[{r}] is {v}, valid are 1..{l}")                                       \
    X(94, CONTEXT_RANGE, ERR_RANGE, "req_to_token", "row {r} has {v} tokens, max_context is {l}")                                           \
    X(95, REQ_TO_TOKEN_NEW, ERR_RANGE, "req_to_token", "req_to_token of a new token of row {r} is {v}, out_cache_loc says {l}")             \
    X(96, REQ_TO_TOKEN_PREFIX, ERR_RANGE, "req_to_token", "req_to_token of a prefix token of row {r} is {v}, valid are 1..{l}")             \
    X(97, LAYER_RANGE, ERR_RANGE, "layer_id", "layer_id {v} is outside 0..{l}")                                                             \
    X(98, DRAFT_RANGE, ERR_RANGE, "draft_token_num", "draft_token_num {v} is less than {l}")                                                 \
    X(99, RAGGED_ROW, ERR_RANGE, "ragged_verify_layout", "row {r} has {v} draft nodes, valid are 1..{l}")                                   \
    X(100, LINK_RANGE, ERR_RANGE, "retrieve_next_token", "a link of row {r} is {v}, valid are -1 and 1..{l}")                               \
    X(101, LINK_ORDER, ERR_RANGE, "retrieve_next_token", "a link of row {r} leads from node {l} back to node {v}")                          \
    X(102, LINK_TREE, ERR_RANGE, "retrieve_next_token", "node {v} of row {r} is reached {l} times")                                         \
    X(103, TRACK_MASK_VERIFY, ERR_RANGE, "mamba_track_mask", "mamba_track_mask[{r}] is set in a verify")                                    \
    X(104, COMMIT_STEP_RANGE, ERR_RANGE, "step", "step[{r}] is {v}, the row has nodes up to {l}")                                           \
    X(105, COMMIT_TRACK_SLOT, ERR_RANGE, "track_indices", "track_indices[{r}] is {v}, valid are 1..{l}")                                    \
    X(106, COMMIT_TRACK_STEP, ERR_RANGE, "track_steps", "track_steps[{r}] is {v}, the row has nodes up to {l}")                             \
    X(107, CPU_LENS_VALUE, ERR_RANGE, "seq_lens_cpu", "seq_lens_cpu[{r}] is {v}, it must be {l}")                                           \
    X(110, SLOT_FREED, ERR_FREED, "req_pool_indices", "row {r} is mapped to state slot {v}, which is free")                                 \
    X(111, TRACK_SLOT_FREED, ERR_FREED, "mamba_track_indices", "mamba_track_indices[{r}] is slot {v}, which is free")                       \
    X(112, COMMIT_SLOT_FREED, ERR_FREED, "slot", "row {r} of the commit has slot {v}, which is free")                                        \
    X(113, COMMIT_TRACK_FREED, ERR_FREED, "track_indices", "track_indices[{r}] is slot {v}, which is free")                                 \
    X(114, RING_PENDING, ERR_STATE, "write_pos", "slot {v} of row {r} has {l} records in its replay ring that are not folded")              \
    X(115, COMMIT_SLOT_STALE, ERR_FREED, "slot", "slot {v} of row {r} was freed and taken again, or copied over, after the verify")         \
    X(116, RING_LAYERS, ERR_STATE, "layer", "layer {v} did not run in a decode or verify with the replay ring")                             \
    X(120, SLOT_DUPLICATE, ERR_DUPLICATE, "req_pool_indices", "row {r} shares state slot {v} with row {l}")                                 \
    X(121, TRACK_DUPLICATE, ERR_DUPLICATE, "mamba_track_indices", "mamba_track_indices[{r}] shares slot {v} with row {l}")                  \
    X(122, CACHE_LOC_DUPLICATE, ERR_DUPLICATE, "out_cache_loc", "out_cache_loc[{r}] is {v}, as token {l}")                                  \
    X(123, COMMIT_TRACK_DUPLICATE, ERR_DUPLICATE, "track_indices", "track_indices[{r}] shares slot {v} with row {l}")                        \
    X(130, SLOT_NOT_LIVE, ERR_ALIAS, "req_pool_indices", "row {r} is mapped to slot {v}, which holds a checkpoint")                         \
    X(131, TRACK_ALIAS_ROW, ERR_ALIAS, "mamba_track_indices", "mamba_track_indices[{r}] is slot {v}, the live slot of row {l}")             \
    X(132, TRACK_ALIAS_SLOT, ERR_ALIAS, "mamba_track_indices", "mamba_track_indices[{r}] is slot {v}, which is not a track slot")           \
    X(133, COMMIT_TRACK_ALIAS, ERR_ALIAS, "track_indices", "track_indices[{r}] is slot {v}, which is not a track slot")                      \
    X(140, GRAPH_RAGGED, ERR_UNSUPPORTED, "ragged_verify_layout", "a graph takes no ragged layout")                                         \
    X(141, STRIP_TREE, ERR_UNSUPPORTED, "retrieve_next_token", "links need the dense window layout")                                        \
    X(142, RING_TREE, ERR_UNSUPPORTED, "retrieve_next_token", "links are not supported with a replay ring that commits own")                \
    X(150, TAKE_NEGATIVE, ERR_SHAPE, "n", "cannot take {v} slots")                                                                          \
    X(151, TAKE_EXHAUSTED, ERR_CAPACITY, "n", "cannot take {v} slots, {l} are free")                                                        \
    X(152, TAKE_KIND, ERR_RANGE, "kind", "slot kind {v} cannot be taken")                                                                   \
    X(153, OP_SLOT_RANGE, ERR_RANGE, "slot", "slot {v} is outside 1..{l}")                                                                  \
    X(154, OP_SLOT_FREED, ERR_FREED, "slot", "slot {v} is already free")                                                                    \
    X(155, OP_SLOT_DUPLICATE, ERR_DUPLICATE, "slot", "slot {v} is named twice")                                                             \
    X(156, COPY_ALIAS, ERR_ALIAS, "slot", "slot {v} cannot be copied onto itself")                                                          \
    X(157, TABLE_RANGE, ERR_RANGE, "request", "request {v} is outside 0..{l}")                                                              \
    X(158, BUFFER_RANGE, ERR_RANGE, "buffer", "byte {v} is outside the {l} bytes of the buffer")                                            \
    X(159, COPY_RING, ERR_STATE, "write_pos", "copy_from requires a fully-flushed ReplaySSM source (write_pos==0), got {v}")                \
    X(160, GRAPH_SIZES, ERR_SHAPE, "max_tokens", "max_num_tokens={v} must be divisible by max_bs={l}")                                      \
    X(161, GRAPH_ROWS, ERR_CAPACITY, "max_bs", "max_bs {v} is outside 1..{l}")                                                              \
    X(162, GRAPH_NODES, ERR_CAPACITY, "max_tokens", "{v} nodes per row of a graph are outside 1..{l}")                                      \
    X(163, PUBLISH_KIND, ERR_ALIAS, "slot", "slot {v} is not a track slot")                                                                 \
    X(164, MOVE_STATIC, ERR_UNSUPPORTED, "slot", "slot {v} cannot move: ids are not virtual")                                               \
    X(165, MOVE_EXHAUSTED, ERR_CAPACITY, "slot", "slot {v} cannot move: no slot is free")                                                   \
    X(200, CFG_LAYERS, ERR_SHAPE, "n_layers", "n_layers {v} is outside 1..{l}")                                                             \
    X(201, CFG_DIM, ERR_SHAPE, "config", "configuration size {r} is {v}, the least is {l}")                                                 \
    X(202, CFG_GROUPS, ERR_SHAPE, "n_groups", "nheads must be divisible by ngroups: {v} % {l} != 0")                                        \
    X(203, CFG_CHUNK, ERR_SHAPE, "chunk_size", "chunk_size must be integer power of 2, got {v}")                                            \
    X(204, CFG_WINDOW, ERR_SHAPE, "conv_width", "conv_states_shape[-1]={v} should be less than C={l}")                                      \
    X(205, CFG_PAGE, ERR_SHAPE, "page_size", "the larger of page_size {v} and chunk_size {l} must be a multiple of the other")              \
    X(206, CFG_KV_HEADS, ERR_SHAPE, "n_kv_heads", "query heads must be divisible by kv heads: {v} % {l} != 0")                              \
    X(207, CFG_CONV_WIDTH, ERR_UNSUPPORTED, "conv_width", "conv_width {v} is not supported, the most is {l}")                               \
    X(208, CFG_VARIANT, ERR_UNSUPPORTED, "variant", "variant field {r} has the unknown value {v}")                                          \
    X(209, CFG_DTYPE, ERR_UNSUPPORTED, "dtype", "data type {v} is not supported")                                                           \
    X(210, CFG_DT_LIMIT, ERR_SHAPE, "dt_limit", "the lower dt limit is above the upper one")                                             \
    X(211, CFG_STATE_SIZE, ERR_UNSUPPORTED, "state_size", "state_size {v} is not supported, the most is {l}")            \
    X(212, CFG_SPEC, ERR_SHAPE, "spec_rows", "spec_rows {v} and max_draft {l} must both be positive or both be 0") \
    X(213, CFG_HEADS, ERR_UNSUPPORTED, "n_heads", "head count {r} is {v}, the most that is supported is {l}") \
    X(214, CFG_TRACK_INTERVAL, ERR_SHAPE, "track_interval", "mamba_track_interval ({v}) must be >= mamba_chunk_size ({l})")                 \
    X(215, CFG_RING, ERR_SHAPE, "ring_length", "ring_length {v} is outside 0..{l}")                                                         \
    X(216, CFG_VIRTUAL, ERR_SHAPE, "n_virtual", "n_virtual {v} is neither 0 nor at least the {l} slots")                                    \
    X(217, CFG_GRAPH, ERR_SHAPE, "graph_rows", "graph size {r} is {v}, the limit is {l}")                                                   \
    X(218, CFG_FEATURE, ERR_UNSUPPORTED, "config", "the backend lacks feature {r}, asked for with {v}")                                     \
    X(219, CFG_POOL_PAD, ERR_SHAPE, "pool_pad", "pool_pad {v} is outside 0..{l}")                                                           \
    X(220, CFG_SCORING, ERR_UNSUPPORTED, "multi_item_scoring", "hybrid backend does not support multi-item scoring. Hybrid models require a linear-attention backend that explicitly declares MIS support.") \
    X(221, CFG_ROUNDING, ERR_UNSUPPORTED, "stochastic_rounding", "Stochastic rounding for the Mamba SSM cache requires state dtype torch.float16, got {v}.") \
    X(222, CFG_LINEAR_KINDS, ERR_UNSUPPORTED, "layer_kind", "layer {r} is of linear kind {v}, an earlier one of kind {l}")                  \
    X(223, CFG_MIXER_FEATURE, ERR_UNSUPPORTED, "config", "linear kind {v} does not support feature {r}")                                    \
    X(224, CFG_GATE_BOUND, ERR_SHAPE, "gate_bound", "gate_bound must be below 0")                                                           \
    X(225, CFG_ATTENTION, ERR_SHAPE, "attn_window", "attention size {r} is {v}, the least is {l}") \
    X(230, CFG_RING_COMMIT, ERR_SHAPE, "ring_owner", "a ring that commits own: condition {r} does not hold, value {v}, limit {l}")

enum hb_rule {
    HB_RULE_NONE = 0,
#define HB_RULE_ENUM(number, name, status, field, text) HB_RULE_##name = number,
    HB_RULES(HB_RULE_ENUM)
#undef HB_RULE_ENUM
};

/* Caller-owned error record. row, value and limit are 0 (row -1) where the rule has none. */
struct hb_error {
    uint32_t struct_size;
    int32_t status;
    int32_t rule;
    int32_t row;
    int64_t value;
    int64_t limit;
    char text[256];
};

/* Fills err (may be null) from the rule table and returns the rule's status. The first failure stays: a record whose
 * status is not HB_OK is left alone. */
int32_t hb_fail(struct hb_error *err, int32_t rule, int32_t row, int64_t value, int64_t limit);
/* Fills err with a free text (environment trouble); returns status. */
int32_t hb_fail_text(struct hb_error *err, int32_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void hb_error_clear(struct hb_error *err);
/* "HB_OK", "HB_ERR_RANGE", ...; "HB_STATUS_UNKNOWN" for other values. */
const char *hb_status_name(int32_t status);
/* Rule table access: null when there is no such rule. */
const char *hb_rule_name(int32_t rule);
const char *hb_rule_field(int32_t rule);
int32_t hb_rule_status(int32_t rule);
/* Numbers of all rules in order; returns their count. */
int hb_rule_list(const int32_t **numbers);

#ifdef __cplusplus
}
#endif
#endif
