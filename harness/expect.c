/* SPDX-License-Identifier: Apache-2.0
 * Predicted status of construction, layers, finish and entries (contracts.md section 3,
 * forward-batch.md sections 2 and 4.1). Rules are tried in ascending number, then rows ascending.
 */
#include "harness/expect.h"

#include <stddef.h>
#include <string.h>

struct size_field {
    size_t offset;
    int32_t least;
};
struct choice_field {
    size_t offset;
    int32_t n_values;
};
enum { ROW_NONE = -1, ROW_NORM_GROUP = 7, ROW_LAYER_KIND = 7, ROW_POOLS = 17 };

/* The index is the row of CFG_DIM. */
static const struct size_field SIZES[] = {
    {offsetof(struct hb_config, n_heads), 1},       {offsetof(struct hb_config, head_dim), 1},
    {offsetof(struct hb_config, state_size), 1},    {offsetof(struct hb_config, n_groups), 1},
    {offsetof(struct hb_config, conv_width), 2},    {offsetof(struct hb_config, chunk_size), 1},
    {offsetof(struct hb_config, page_size), 1},     {offsetof(struct hb_config, norm_group), 1},
    {offsetof(struct hb_config, n_q_heads), 1},     {offsetof(struct hb_config, n_kv_heads), 1},
    {offsetof(struct hb_config, attn_dim), 1},      {offsetof(struct hb_config, n_slots), 1},
    {offsetof(struct hb_config, req_pool_size), 1}, {offsetof(struct hb_config, max_context), 1},
    {offsetof(struct hb_config, n_kv), 2},          {offsetof(struct hb_config, max_batch), 1},
    {offsetof(struct hb_config, max_tokens), 1},
};

/* The index is the row of CFG_VARIANT; what stands at row 7 is the first layer's kind. */
static const struct choice_field CHOICES[] = {
    {offsetof(struct hb_config, conv_act), HB_N_CONV_ACTS},
    {offsetof(struct hb_config, gate_norm), HB_N_GATE_NORMS},
    {offsetof(struct hb_config, dt_clamp_prefill), HB_N_DT_CLAMPS},
    {offsetof(struct hb_config, dt_clamp_decode), HB_N_DT_CLAMPS},
    {offsetof(struct hb_config, kernel_form), HB_N_FORMS},
    {offsetof(struct hb_config, thread_order), HB_N_ORDERS},
    {offsetof(struct hb_config, block_order), HB_N_ORDERS},
    {offsetof(struct hb_config, layer_kind), HB_N_LAYER_KINDS},
    {offsetof(struct hb_config, window_layout), HB_N_WINDOW_LAYOUTS},
    {offsetof(struct hb_config, track_by_layer), 2},
    {offsetof(struct hb_config, head_map), HB_N_HEAD_MAPS},
    {offsetof(struct hb_config, state_layout), HB_N_STATE_LAYOUTS},
    {offsetof(struct hb_config, l2norm), HB_N_L2NORMS},
    {offsetof(struct hb_config, beta_form), HB_N_BETA_FORMS},
    {offsetof(struct hb_config, gate_form), HB_N_GATE_FORMS},
    {offsetof(struct hb_config, out_gate), HB_N_OUT_GATES},
    {offsetof(struct hb_config, slope_kind), HB_N_SLOPE_KINDS},
    {offsetof(struct hb_config, layer_factor), HB_N_LAYER_FACTORS},
    {offsetof(struct hb_config, qkv_act), HB_N_QKV_ACTS},
    {offsetof(struct hb_config, conv_state_len), HB_N_CONV_STATE_LENS},
    {offsetof(struct hb_config, window_rule), HB_N_WINDOW_RULES},
    {offsetof(struct hb_config, pad_policy), HB_N_PAD_POLICIES},
    {offsetof(struct hb_config, ring_owner), HB_N_RING_OWNERS},
};

/* --- layer kinds ------------------------------------------------------------------------------ */

/* Lengths that the buffers and states of a layer are made of (adapter.h). Inner: H P, pairs: 2 G N.
 */
enum length { NONE, INNER, INNER_3, INNER_PAIRS, INNER_2N, HEADS, HEADS_2, HEADS_N_1, QUERY, KEY };

/* One row per kind: buffers 0..3 of a layer, and what its decode and extend entries refuse (0: they
 * run the layer). */
struct kind_row {
    int32_t width[4];
    int32_t refusal[2]; /* by enum hb_entry_direction */
};
#define REFUSES {HB_RULE_ENTRY_REFUSED, HB_RULE_ENTRY_REFUSED}
static const struct kind_row KINDS[HB_N_LAYER_KINDS] = {
    [HB_LAYER_MAMBA2] = {{INNER, INNER_PAIRS, HEADS, INNER}, REFUSES},
    [HB_LAYER_ATTENTION] = {{QUERY, KEY, KEY, QUERY}, {0, 0}},
    [HB_LAYER_GDN] = {{INNER, INNER_PAIRS, HEADS_2, INNER}, {0, 0}},
    [HB_LAYER_KDA] = {{INNER, INNER_PAIRS, HEADS_N_1, INNER}, {0, 0}},
    [HB_LAYER_LIGHTNING] = {{INNER, INNER_PAIRS, HEADS, INNER}, {0, 0}},
    [HB_LAYER_SHORT_CONV] = {{NONE, INNER_3, NONE, INNER},
                             {HB_RULE_SHORT_CONV_DECODE, HB_RULE_SHORT_CONV_EXTEND}},
    [HB_LAYER_MAMBA1] = {{INNER, INNER, INNER_2N, INNER}, REFUSES},
};

/* Below 2^65 for any sizes that are not negative. */
static __int128 length_of(const struct hb_config *c, int32_t length) {
    const __int128 inner = (__int128)c->n_heads * c->head_dim;
    switch (length) {
    case INNER:
        return inner;
    case INNER_3:
        return 3 * inner;
    case INNER_PAIRS:
        return inner + (__int128)2 * c->n_groups * c->state_size;
    case INNER_2N:
        return inner + (__int128)2 * c->state_size;
    case HEADS:
        return c->n_heads;
    case HEADS_2:
        return (__int128)2 * c->n_heads;
    case HEADS_N_1:
        return (__int128)c->n_heads * ((__int128)c->state_size + 1);
    case QUERY:
        return (__int128)c->n_q_heads * c->attn_dim;
    case KEY:
        return (__int128)c->n_kv_heads * c->attn_dim;
    default:
        return 0;
    }
}

/* Elements of one token in buffer 0..3 of a layer. Only slopes that are given per token make a
 * lightning layer read its third input. */
static uint64_t token_width(const struct hb_config *c, int32_t kind, int32_t buffer) {
    if (kind == HB_LAYER_LIGHTNING && buffer == 2 && c->slope_kind != HB_SLOPE_TOKEN) {
        return 0;
    }
    return (uint64_t)length_of(c, KINDS[kind].width[buffer]);
}

/* The first linear layer's kind; -1: the model has none. */
static int32_t linear_kind(const struct hb_config *c) {
    for (int32_t i = 0; c != NULL && i < c->n_layers; i++) {
        if (c->layer_kind[i] != HB_LAYER_ATTENTION) {
            return c->layer_kind[i];
        }
    }
    return -1;
}

/* --- create ----------------------------------------------------------------------------------- */

static int32_t config_field(const struct hb_config *config, size_t offset) {
    int32_t value;
    memcpy(&value, (const char *)config + offset, sizeof value);
    return value;
}

static int is_known(int32_t value, int32_t n_values, uint32_t declared) {
    return value >= 0 && value < n_values && ((declared >> value) & 1U) != 0;
}

/* Elements of one layer's pools, which indices of 32 bits must reach: rows 17 (conv), 18
 * (temporal), 19 (KV), 20 and 21 (intermediate conv and temporal) of CFG_DIM. The rows times
 * elements per row are below 2^62 * 2^64; values beyond int64 are reported as INT64_MAX. Negative
 * sizes of the intermediate caches are CFG_SPEC's. The numbers are the same for all kinds and conv
 * states. */
static int32_t check_pools(const struct hb_config *c, struct hb_error *e) {
    __int128 slots = (__int128)c->n_slots + 1;
    __int128 d_inner = length_of(c, INNER);
    __int128 dim = length_of(c, INNER_PAIRS);
    int32_t window = c->conv_width - 1;
    __int128 steps =
        c->spec_rows > 0 && c->max_draft > 0 ? (__int128)c->spec_rows * c->max_draft : 0;
    const struct {
        __int128 rows, per_row;
        int32_t width;
    } pools[] = {{slots, dim, window},
                 {slots, d_inner, c->state_size},
                 {c->n_kv, (__int128)c->n_kv_heads * c->attn_dim, 1},
                 {steps, dim, window},
                 {steps, d_inner, c->state_size}};
    for (int32_t i = 0; i < (int32_t)(sizeof pools / sizeof pools[0]); i++) {
        __int128 n = pools[i].rows * pools[i].per_row;
        n = n > INT64_MAX ? INT64_MAX : n * pools[i].width;
        n = n > INT64_MAX ? INT64_MAX : n;
        if (n > INT32_MAX) {
            return hb_fail(e, HB_RULE_CFG_DIM, ROW_POOLS + i, (int64_t)n, INT32_MAX);
        }
    }
    return HB_OK;
}

/* CFG_DIM: every size has a least value, and the RMS groups tile d_inner. */
static int32_t check_sizes(const struct hb_config *c, struct hb_error *e) {
    int64_t d_inner = (int64_t)c->n_heads * c->head_dim;
    for (int32_t row = 0; row < (int32_t)(sizeof SIZES / sizeof SIZES[0]); row++) {
        int32_t value = config_field(c, SIZES[row].offset);
        if (value < SIZES[row].least) {
            return hb_fail(e, HB_RULE_CFG_DIM, row, value, SIZES[row].least);
        }
        if (row == ROW_NORM_GROUP && d_inner % value != 0) {
            return hb_fail(e, HB_RULE_CFG_DIM, row, value, d_inner);
        }
    }
    return check_pools(c, e);
}

/* The relations between sizes: groups, chunk, window, page, kv heads, and the widest conv. */
static int32_t check_relations(const struct hb_config *c, struct hb_error *e) {
    int32_t chunk = c->chunk_size;
    int32_t page = c->page_size;
    int32_t larger = page > chunk ? page : chunk;
    int32_t smaller = page > chunk ? chunk : page;
    if (c->n_heads % c->n_groups != 0) {
        return hb_fail(e, HB_RULE_CFG_GROUPS, ROW_NONE, c->n_heads, c->n_groups);
    }
    if ((chunk & (chunk - 1)) != 0) {
        return hb_fail(e, HB_RULE_CFG_CHUNK, ROW_NONE, chunk, 0);
    }
    if (c->conv_width - 1 >= chunk) {
        return hb_fail(e, HB_RULE_CFG_WINDOW, ROW_NONE, c->conv_width - 1, chunk);
    }
    if (larger % smaller != 0) {
        return hb_fail(e, HB_RULE_CFG_PAGE, ROW_NONE, page, chunk);
    }
    if (c->n_q_heads % c->n_kv_heads != 0) {
        return hb_fail(e, HB_RULE_CFG_KV_HEADS, ROW_NONE, c->n_q_heads, c->n_kv_heads);
    }
    if (c->conv_width > HB_MAX_CONV_WIDTH) {
        return hb_fail(e, HB_RULE_CFG_CONV_WIDTH, ROW_NONE, c->conv_width, HB_MAX_CONV_WIDTH);
    }
    return HB_OK;
}

static int32_t check_choices(const struct hb_config *c, const struct hb_caps *caps,
                             struct hb_error *e) {
    for (int32_t row = 0; row < (int32_t)(sizeof CHOICES / sizeof CHOICES[0]); row++) {
        int is_layer = row == ROW_LAYER_KIND;
        uint32_t declared = is_layer ? caps->layer_kinds : UINT32_MAX;
        for (int32_t i = 0; i < (is_layer ? c->n_layers : 1); i++) {
            int32_t value = config_field(c, CHOICES[row].offset + (size_t)i * sizeof value);
            if (!is_known(value, CHOICES[row].n_values, declared)) {
                return hb_fail(e, HB_RULE_CFG_VARIANT, row, value, 0);
            }
        }
    }
    if (!is_known(c->act_dtype, HB_N_FLOAT_DTYPES, caps->act_dtypes)) {
        return hb_fail(e, HB_RULE_CFG_DTYPE, 0, c->act_dtype, 0);
    }
    if (c->state_dtype == HB_FP16 ||
        !is_known(c->state_dtype, HB_N_FLOAT_DTYPES, caps->state_dtypes)) {
        return hb_fail(e, HB_RULE_CFG_DTYPE, 1, c->state_dtype, 0);
    }
    return HB_OK;
}

/* Rules 210 .. 217: limits, caches, heads, interval, ring, ids, graphs. The product of graph sizes
 * is below 2^62. */
static int32_t check_limits(const struct hb_config *c, struct hb_error *e) {
    int one_cache = (c->spec_rows == 0) != (c->max_draft == 0);
    int32_t most = c->max_batch < HB_MAX_GRAPH_ROWS ? c->max_batch : HB_MAX_GRAPH_ROWS;
    int has_graphs = c->graph_rows > 0;
    int64_t graph_tokens = (int64_t)c->graph_rows * c->graph_draft;
    const struct {
        int broken;
        int32_t rule, row;
        int64_t value, limit;
    } checks[] = {
        {c->dt_lo > c->dt_hi, HB_RULE_CFG_DT_LIMIT, ROW_NONE, 0, 0},
        {c->state_size > HB_MAX_STATE_SIZE, HB_RULE_CFG_STATE_SIZE, ROW_NONE, c->state_size,
         HB_MAX_STATE_SIZE},
        {c->spec_rows < 0 || c->max_draft < 0 || one_cache, HB_RULE_CFG_SPEC, ROW_NONE,
         c->spec_rows, c->max_draft},
        {c->n_heads > HB_MAX_HEADS, HB_RULE_CFG_HEADS, 0, c->n_heads, HB_MAX_HEADS},
        {c->n_q_heads > HB_MAX_HEADS, HB_RULE_CFG_HEADS, 1, c->n_q_heads, HB_MAX_HEADS},
        {c->track_interval != 0 && c->track_interval < c->chunk_size, HB_RULE_CFG_TRACK_INTERVAL,
         ROW_NONE, c->track_interval, c->chunk_size},
        {c->ring_length < 0 || c->ring_length > HB_MAX_RING, HB_RULE_CFG_RING, ROW_NONE,
         c->ring_length, HB_MAX_RING},
        {c->n_virtual != 0 && c->n_virtual < c->n_slots, HB_RULE_CFG_VIRTUAL, ROW_NONE,
         c->n_virtual, c->n_slots},
        {c->n_virtual > c->n_slots && c->n_virtual > HB_MAX_VIRTUAL, HB_RULE_CFG_VIRTUAL, ROW_NONE,
         c->n_virtual, HB_MAX_VIRTUAL},
        {c->graph_rows < 0 || c->graph_rows > most, HB_RULE_CFG_GRAPH, 0, c->graph_rows, most},
        {has_graphs && c->graph_draft < 1, HB_RULE_CFG_GRAPH, 1, c->graph_draft, 1},
        {has_graphs && graph_tokens > c->max_tokens, HB_RULE_CFG_GRAPH, 2, graph_tokens,
         c->max_tokens},
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if (checks[i].broken) {
            return hb_fail(e, checks[i].rule, checks[i].row, checks[i].value, checks[i].limit);
        }
    }
    return HB_OK;
}

/* Rules 218 .. 221: features that the backend lacks, padding of pools, what nobody has. */
static int32_t check_features(const struct hb_config *c, const struct hb_caps *caps,
                              struct hb_error *e) {
    const struct {
        int32_t asked, has;
    } features[] = {
        {c->graph_rows > 0 ? c->graph_rows : 0, caps->graphs},
        {c->ring_length, caps->ring},
        {c->n_virtual, caps->virtual_slots},
        {c->window_layout, (caps->window_layouts >> HB_WINDOWS_STRIP & 1U) != 0},
        {c->pool_pad > 0 ? c->pool_pad : 0, caps->pool_pad},
        {c->track_by_layer, caps->track_by_layer},
        {hb_ring_commits(c) ? c->ring_length : 0, caps->ring_commit},
    };
    for (int32_t i = 0; i < (int32_t)(sizeof features / sizeof features[0]); i++) {
        if (features[i].asked != 0 && !features[i].has) {
            return hb_fail(e, HB_RULE_CFG_FEATURE, i, features[i].asked, 0);
        }
    }
    if (c->pool_pad < 0 || c->pool_pad > HB_MAX_POOL_PAD) {
        return hb_fail(e, HB_RULE_CFG_POOL_PAD, ROW_NONE, c->pool_pad, HB_MAX_POOL_PAD);
    }
    if (c->multi_item_scoring != 0) {
        return hb_fail(e, HB_RULE_CFG_SCORING, ROW_NONE, c->multi_item_scoring, 0);
    }
    if (c->stochastic_rounding != 0) {
        return hb_fail(e, HB_RULE_CFG_ROUNDING, ROW_NONE, c->state_dtype, 0);
    }
    return HB_OK;
}

/* Rules 222 .. 225: one linear kind, the ring's kind, and numbers of variants. */
static int32_t check_kinds(const struct hb_config *c, struct hb_error *e) {
    const int32_t kind = linear_kind(c);
    for (int32_t i = 0; i < c->n_layers; i++) {
        if (c->layer_kind[i] != HB_LAYER_ATTENTION && c->layer_kind[i] != kind) {
            return hb_fail(e, HB_RULE_CFG_LINEAR_KINDS, i, c->layer_kind[i], kind);
        }
    }
    if (c->ring_length > 0 && kind >= 0 && kind != HB_LAYER_MAMBA2) {
        return hb_fail(e, HB_RULE_CFG_MIXER_FEATURE, 0, kind, 0);
    }
    if (kind == HB_LAYER_KDA && c->gate_form == HB_GATE_LOWER_BOUND && !(c->gate_bound < 0)) {
        return hb_fail(e, HB_RULE_CFG_GATE_BOUND, ROW_NONE, 0, 0);
    }
    if (c->attn_window < 0) {
        return hb_fail(e, HB_RULE_CFG_ATTENTION, 0, c->attn_window, 0);
    }
    return c->attn_softcap >= 0 ? HB_OK : hb_fail(e, HB_RULE_CFG_ATTENTION, 1, 0, 0);
}

/* Rule 230. Records are replayed in fp32, so nothing else may hold the state between two folds. */
static int32_t check_ring(const struct hb_config *c, struct hb_error *e) {
    const int64_t nodes = (int64_t)2 * c->max_draft;
    const struct {
        int broken;
        int64_t value, limit;
    } checks[] = {
        {(c->ring_length & (c->ring_length - 1)) != 0, c->ring_length, 0},
        {c->ring_length < nodes, c->ring_length, nodes},
        {c->spec_rows == 0, 0, 1},
        {c->state_dtype != HB_FP32, c->state_dtype, 0},
    };
    for (int32_t i = 0; i < (int32_t)(sizeof checks / sizeof checks[0]) && hb_ring_commits(c);
         i++) {
        if (checks[i].broken) {
            return hb_fail(e, HB_RULE_CFG_RING_COMMIT, i, checks[i].value, checks[i].limit);
        }
    }
    return HB_OK;
}

void hb_expect_create(const struct hb_config *config, const struct hb_caps *caps,
                      struct hb_error *e) {
    hb_error_clear(e);
    if (config->n_layers < 1 || config->n_layers > HB_MAX_LAYERS) {
        (void)hb_fail(e, HB_RULE_CFG_LAYERS, ROW_NONE, config->n_layers, HB_MAX_LAYERS);
        return;
    }
    if (check_sizes(config, e) == HB_OK && check_relations(config, e) == HB_OK &&
        check_choices(config, caps, e) == HB_OK && check_limits(config, e) == HB_OK &&
        check_features(config, caps, e) == HB_OK && check_kinds(config, e) == HB_OK) {
        (void)check_ring(config, e);
    }
}

static int in_range(const struct hb_config *config, int32_t layer_id) {
    return layer_id >= 0 && layer_id < config->n_layers;
}

static const struct hb_buf *io_buffer(const struct hb_layer_io *io, int32_t i) {
    return i < 3 ? &io->in[i] : &io->out;
}

/* A replay has its layers from the capture: calls of single layers see no metadata. */
static int sees_metadata(const struct hb_forward_phase *phase) {
    return phase->has_metadata && !phase->is_replay;
}

/* NO_METADATA, LAYER_TWICE, IO_NULL, IO_BYTES, LAYER_RANGE. A forward without tokens needs no
 * bytes, and a buffer that the kind does not read has none: such buffers may be null, the struct
 * that names them may not. */
static void check_layer(const struct hb_config *config, const struct hb_forward_phase *phase,
                        int32_t layer_id, const struct hb_layer_io *io, struct hb_error *e) {
    int known = in_range(config, layer_id);
    if (!sees_metadata(phase)) {
        (void)hb_fail(e, HB_RULE_NO_METADATA, ROW_NONE, 0, 0);
        return;
    }
    if (known && ((phase->layers_run >> layer_id) & 1U) != 0) {
        (void)hb_fail(e, HB_RULE_LAYER_TWICE, ROW_NONE, layer_id, 0);
        return;
    }
    for (int32_t i = 0; i < 4; i++) {
        const int is_read =
            phase->n_tokens > 0 &&
            (!known || token_width(config, config->layer_kind[layer_id], i) > 0);
        if (io == NULL || (is_read && io_buffer(io, i)->id == 0)) {
            (void)hb_fail(e, HB_RULE_IO_NULL, i, 0, 0);
            return;
        }
    }
    for (int32_t i = 0; i < 4 && phase->n_tokens > 0 && known; i++) {
        uint64_t item = config->act_dtype == HB_FP32 ? 4 : 2;
        uint64_t width = token_width(config, config->layer_kind[layer_id], i);
        uint64_t need = (uint64_t)phase->n_tokens * width * item;
        if (io_buffer(io, i)->bytes < need) {
            (void)hb_fail(e, HB_RULE_IO_BYTES, i, (int64_t)io_buffer(io, i)->bytes, (int64_t)need);
            return;
        }
    }
    if (!known) {
        (void)hb_fail(e, HB_RULE_LAYER_RANGE, ROW_NONE, layer_id, (int64_t)config->n_layers - 1);
    }
}

void hb_expect_layer(const struct hb_config *config, const struct hb_forward_phase *phase,
                     int32_t layer_id, const struct hb_layer_io *io, struct hb_error *e) {
    hb_error_clear(e);
    check_layer(config, phase, layer_id, io, e);
}

/* NO_METADATA, then RING_LAYERS: the cursors advance in finish, for all Mamba2 layers at once, so
 * each must have run. A replay runs the captured layers by itself. */
void hb_expect_finish(const struct hb_config *config, const struct hb_forward_phase *phase,
                      struct hb_error *e) {
    hb_error_clear(e);
    if (!phase->has_metadata) {
        (void)hb_fail(e, HB_RULE_NO_METADATA, ROW_NONE, 0, 0);
        return;
    }
    for (int32_t i = 0; i < config->n_layers && phase->has_ring && !phase->is_replay; i++) {
        if (config->layer_kind[i] == HB_LAYER_MAMBA2 && ((phase->layers_run >> i) & 1U) == 0) {
            (void)hb_fail(e, HB_RULE_RING_LAYERS, ROW_NONE, i, 0);
            return;
        }
    }
}

/* The rule by which the entries of a linear kind refuse, 0: they run the layer. */
static int32_t refusal_of(int32_t kind, int32_t direction) {
    return kind == HB_LAYER_ATTENTION ? 0 : KINDS[kind].refusal[direction == HB_ENTRY_EXTEND];
}

/* forward-batch.md section 2: the child refuses by the model's kind whatever the arguments; where
 * that kind refuses nothing, and for the wrapper, linear layers are refused by their kind unless
 * the forward is idle. */
void hb_expect_entry(const struct hb_config *config, const struct hb_forward_phase *phase,
                     int32_t has_handle, int32_t target, int32_t direction, int32_t layer_id,
                     const struct hb_layer_io *io, struct hb_error *e) {
    const int32_t kind = has_handle ? linear_kind(config) : -1; /* without a handle no model */
    hb_error_clear(e);
    if (target == HB_ENTRY_CHILD) {
        const int32_t rule = kind >= 0 ? refusal_of(kind, direction) : HB_RULE_ENTRY_REFUSED;
        if (rule != 0) {
            (void)hb_fail(e, rule, ROW_NONE, 0, 0);
            return;
        }
    }
    if (!has_handle) {
        (void)hb_fail(e, HB_RULE_HANDLE_NULL, ROW_NONE, 0, 0);
        return;
    }
    const int idle = sees_metadata(phase) && phase->mode == HB_MODE_IDLE;
    const int32_t rule =
        in_range(config, layer_id) ? refusal_of(config->layer_kind[layer_id], direction) : 0;
    if (!idle && rule != 0) {
        (void)hb_fail(e, rule, ROW_NONE, 0, 0);
        return;
    }
    struct hb_forward_phase seen = *phase;
    if (idle) {
        seen.layers_run = 0; /* an idle entry runs nothing, so it may be called again */
    }
    check_layer(config, &seen, layer_id, io, e);
}
