/* SPDX-License-Identifier: Apache-2.0
 * Configuration rules in number order (forward-batch.md section 4.1, backend/README.md "Rules"). */
#include "backend/config.h"

#include <stddef.h>
#include <string.h>

#include "backend/memory.h"

enum {
    ROW_NORM_GROUP = 7,
    ROW_PRODUCTS = 17,
    N_SIZES = 17,
    N_PRODUCTS = 5,
    N_VARIANTS = 22,
    ROW_LAYER_KIND = 7
};

/* What a kind's buffers, states and parameters are counted in. */
enum unit {
    UNIT_NONE,
    UNIT_INNER,       /* H*P */
    UNIT_QKV,         /* H*P + 2*G*N */
    UNIT_INNER_3,     /* 3*H*P */
    UNIT_INNER_2N,    /* H*P + 2*N */
    UNIT_STATE,       /* H*P*N */
    UNIT_HEADS,       /* H */
    UNIT_HEADS_2,     /* 2*H */
    UNIT_HEADS_N,     /* H*N */
    UNIT_HEADS_N_1,   /* H*N + H */
    UNIT_TOKEN_DECAY, /* H where log decays are given per token */
    UNIT_Q,           /* HQ*D */
    UNIT_KV,          /* HKV*D */
    N_UNITS
};

/* adapter.h, the buffers of a layer call; caps.h, its parameters. */
struct kind_row {
    int32_t width[4];       /* in[0], in[1], in[2], out */
    int32_t channels;       /* of the conv and its state */
    int32_t state;          /* elements of the temporal state */
    int32_t a, dt_bias, d;  /* parameters */
    int32_t has_gate_norm;
};

static const struct kind_row kinds[HB_N_LAYER_KINDS] = {
    [HB_LAYER_MAMBA2] = {{UNIT_INNER, UNIT_QKV, UNIT_HEADS, UNIT_INNER},
                         UNIT_QKV,
                         UNIT_STATE,
                         UNIT_HEADS,
                         UNIT_HEADS,
                         UNIT_HEADS,
                         1},
    [HB_LAYER_ATTENTION] = {{UNIT_Q, UNIT_KV, UNIT_KV, UNIT_Q},
                            UNIT_NONE,
                            UNIT_NONE,
                            UNIT_NONE,
                            UNIT_NONE,
                            UNIT_NONE,
                            0},
    [HB_LAYER_GDN] = {{UNIT_INNER, UNIT_QKV, UNIT_HEADS_2, UNIT_INNER},
                      UNIT_QKV,
                      UNIT_STATE,
                      UNIT_HEADS,
                      UNIT_HEADS,
                      UNIT_NONE,
                      1},
    [HB_LAYER_KDA] = {{UNIT_INNER, UNIT_QKV, UNIT_HEADS_N_1, UNIT_INNER},
                      UNIT_QKV,
                      UNIT_STATE,
                      UNIT_HEADS,
                      UNIT_HEADS_N,
                      UNIT_NONE,
                      1},
    [HB_LAYER_LIGHTNING] = {{UNIT_INNER, UNIT_QKV, UNIT_TOKEN_DECAY, UNIT_INNER},
                            UNIT_NONE,
                            UNIT_STATE,
                            UNIT_HEADS,
                            UNIT_NONE,
                            UNIT_NONE,
                            1},
    [HB_LAYER_SHORT_CONV] = {{UNIT_NONE, UNIT_INNER_3, UNIT_NONE, UNIT_INNER},
                             UNIT_INNER,
                             UNIT_NONE,
                             UNIT_NONE,
                             UNIT_NONE,
                             UNIT_NONE,
                             0},
    [HB_LAYER_MAMBA1] = {{UNIT_INNER, UNIT_INNER, UNIT_INNER_2N, UNIT_INNER},
                         UNIT_INNER,
                         UNIT_STATE,
                         UNIT_STATE,
                         UNIT_INNER,
                         UNIT_INNER,
                         1},
};

struct size_row {
    size_t offset;
    int32_t least;
};
struct variant_row {
    size_t offset;
    int32_t n_values;
    int32_t row;
};

#define SIZE(field, least)                                                                         \
    { offsetof(struct hb_config, field), least }

/* Rule 201: row = index. */
static const struct size_row sizes[N_SIZES] = {
    SIZE(n_heads, 1),       SIZE(head_dim, 1),    SIZE(state_size, 1), SIZE(n_groups, 1),
    SIZE(conv_width, 2),    SIZE(chunk_size, 1),  SIZE(page_size, 1),  SIZE(norm_group, 1),
    SIZE(n_q_heads, 1),     SIZE(n_kv_heads, 1),  SIZE(attn_dim, 1),   SIZE(n_slots, 1),
    SIZE(req_pool_size, 1), SIZE(max_context, 1), SIZE(n_kv, 2),       SIZE(max_batch, 1),
    SIZE(max_tokens, 1),
};

#define VARIANT(field, n_values, row)                                                              \
    { offsetof(struct hb_config, field), n_values, row }

/* Rule 208; row 7 is layer_kind. */
static const struct variant_row variants[N_VARIANTS] = {
    VARIANT(conv_act, HB_N_CONV_ACTS, 0),
    VARIANT(gate_norm, HB_N_GATE_NORMS, 1),
    VARIANT(dt_clamp_prefill, HB_N_DT_CLAMPS, 2),
    VARIANT(dt_clamp_decode, HB_N_DT_CLAMPS, 3),
    VARIANT(kernel_form, HB_N_FORMS, 4),
    VARIANT(thread_order, HB_N_ORDERS, 5),
    VARIANT(block_order, HB_N_ORDERS, 6),
    VARIANT(window_layout, HB_N_WINDOW_LAYOUTS, 8),
    VARIANT(track_by_layer, 2, 9),
    VARIANT(head_map, HB_N_HEAD_MAPS, 10),
    VARIANT(state_layout, HB_N_STATE_LAYOUTS, 11),
    VARIANT(l2norm, HB_N_L2NORMS, 12),
    VARIANT(beta_form, HB_N_BETA_FORMS, 13),
    VARIANT(gate_form, HB_N_GATE_FORMS, 14),
    VARIANT(out_gate, HB_N_OUT_GATES, 15),
    VARIANT(slope_kind, HB_N_SLOPE_KINDS, 16),
    VARIANT(layer_factor, HB_N_LAYER_FACTORS, 17),
    VARIANT(qkv_act, HB_N_QKV_ACTS, 18),
    VARIANT(conv_state_len, HB_N_CONV_STATE_LENS, 19),
    VARIANT(window_rule, HB_N_WINDOW_RULES, 20),
    VARIANT(pad_policy, HB_N_PAD_POLICIES, 21),
    VARIANT(ring_owner, HB_N_RING_OWNERS, 22),
};

static int32_t field_at(const struct hb_config *config, size_t offset) {
    int32_t value;
    memcpy(&value, (const char *)config + offset, sizeof(value));
    return value;
}

int64_t hb_mul_saturate(int64_t a, int64_t b, int64_t c) {
    int64_t ab;
    int64_t abc;
    if (!hb_mul_i64(a, b, &ab)) {
        return c == 0 ? 0 : INT64_MAX;
    }
    return hb_mul_i64(ab, c, &abc) ? abc : INT64_MAX;
}

/* Entries of one layer's intermediate caches; signs are checked later, by rule 212. */
static int64_t count_nodes(const struct hb_config *config) {
    const int has_spec = config->spec_rows > 0 && config->max_draft > 0;
    return has_spec ? (int64_t)config->spec_rows * config->max_draft : 0;
}

/* Rule 201: least values and norm_group | d_inner in row order, then the element counts of one
 * layer's pools. */
static int32_t check_sizes(const struct hb_config *config, struct hb_error *err) {
    for (int32_t i = 0; i < N_SIZES; i++) {
        const int32_t v = field_at(config, sizes[i].offset);
        if (v < sizes[i].least) {
            return hb_fail(err, HB_RULE_CFG_DIM, i, v, sizes[i].least);
        }
        const int64_t d_inner = (int64_t)config->n_heads * config->head_dim;
        if (i == ROW_NORM_GROUP && d_inner % v != 0) {
            return hb_fail(err, HB_RULE_CFG_DIM, i, v, d_inner);
        }
    }
    const int64_t d_inner = (int64_t)config->n_heads * config->head_dim;
    const int64_t bc = hb_mul_saturate(config->n_groups, config->state_size, 2);
    const int64_t dim = bc > INT64_MAX - d_inner ? INT64_MAX : d_inner + bc;
    const int64_t slots = (int64_t)config->n_slots + 1;
    const int64_t window = (int64_t)config->conv_width - 1;
    const int64_t head = (int64_t)config->n_kv_heads * config->attn_dim;
    const int64_t nodes = count_nodes(config);
    const int64_t products[N_PRODUCTS] = {
        hb_mul_saturate(slots, dim, window), hb_mul_saturate(slots, d_inner, config->state_size),
        hb_mul_saturate(config->n_kv, head, 1), hb_mul_saturate(nodes, dim, window),
        hb_mul_saturate(nodes, d_inner, config->state_size)};
    for (int32_t i = 0; i < N_PRODUCTS; i++) {
        if (products[i] > INT32_MAX) {
            return hb_fail(err, HB_RULE_CFG_DIM, ROW_PRODUCTS + i, products[i], INT32_MAX);
        }
    }
    return HB_OK;
}

/* Rules 202..207. */
static int32_t check_fit(const struct hb_config *config, struct hb_error *err) {
    const int32_t chunk = config->chunk_size;
    const int32_t page = config->page_size;
    const int32_t window = config->conv_width - 1;
    if (config->n_heads % config->n_groups != 0) {
        return hb_fail(err, HB_RULE_CFG_GROUPS, -1, config->n_heads, config->n_groups);
    }
    if ((chunk & (chunk - 1)) != 0) {
        return hb_fail(err, HB_RULE_CFG_CHUNK, -1, chunk, 0);
    }
    if (window >= chunk) {
        return hb_fail(err, HB_RULE_CFG_WINDOW, -1, window, chunk);
    }
    if ((page > chunk ? page % chunk : chunk % page) != 0) {
        return hb_fail(err, HB_RULE_CFG_PAGE, -1, page, chunk);
    }
    if (config->n_q_heads % config->n_kv_heads != 0) {
        return hb_fail(err, HB_RULE_CFG_KV_HEADS, -1, config->n_q_heads, config->n_kv_heads);
    }
    if (config->conv_width > HB_MAX_CONV_WIDTH) {
        return hb_fail(err, HB_RULE_CFG_CONV_WIDTH, -1, config->conv_width, HB_MAX_CONV_WIDTH);
    }
    return HB_OK;
}

/* Rule 208. */
static int32_t check_variants(const struct hb_config *config, struct hb_error *err) {
    for (int32_t i = 0; i < N_VARIANTS; i++) {
        if (i == ROW_LAYER_KIND) { /* rows 0..6 are done */
            for (int32_t l = 0; l < config->n_layers; l++) {
                const int32_t kind = config->layer_kind[l];
                if (kind < 0 || kind >= HB_N_LAYER_KINDS) {
                    return hb_fail(err, HB_RULE_CFG_VARIANT, ROW_LAYER_KIND, kind, 0);
                }
            }
        }
        const int32_t v = field_at(config, variants[i].offset);
        if (v < 0 || v >= variants[i].n_values) {
            return hb_fail(err, HB_RULE_CFG_VARIANT, variants[i].row, v, 0);
        }
    }
    return HB_OK;
}

/* Rules 209..213. Every float type is an activation type, but only two are state types. */
static int32_t check_values(const struct hb_config *config, struct hb_error *err) {
    const int32_t dtypes[2] = {config->act_dtype, config->state_dtype};
    for (int32_t i = 0; i < 2; i++) {
        if (dtypes[i] < 0 || dtypes[i] >= HB_N_FLOAT_DTYPES || (i == 1 && dtypes[i] == HB_FP16)) {
            return hb_fail(err, HB_RULE_CFG_DTYPE, i, dtypes[i], 0);
        }
    }
    if (config->dt_lo > config->dt_hi) {
        return hb_fail(err, HB_RULE_CFG_DT_LIMIT, -1, 0, 0);
    }
    if (config->state_size > HB_MAX_STATE_SIZE) {
        return hb_fail(err, HB_RULE_CFG_STATE_SIZE, -1, config->state_size, HB_MAX_STATE_SIZE);
    }
    if (config->spec_rows < 0 || config->max_draft < 0 ||
        (config->spec_rows == 0) != (config->max_draft == 0)) {
        return hb_fail(err, HB_RULE_CFG_SPEC, -1, config->spec_rows, config->max_draft);
    }
    /* heads are a grid dimension of the kernels, and grids end at 65535 */
    const int32_t heads[2] = {config->n_heads, config->n_q_heads};
    for (int32_t i = 0; i < 2; i++) {
        if (heads[i] > HB_MAX_HEADS) {
            return hb_fail(err, HB_RULE_CFG_HEADS, i, heads[i], HB_MAX_HEADS);
        }
    }
    return HB_OK;
}

/* Rules 214..221. 218 is for backends that lack a feature; this one has them all. */
static int32_t check_features(const struct hb_config *config, struct hb_error *err) {
    const int32_t rows = config->graph_rows;
    const int32_t most_rows =
        config->max_batch < HB_MAX_GRAPH_ROWS ? config->max_batch : HB_MAX_GRAPH_ROWS;
    if (config->track_interval != 0 && config->track_interval < config->chunk_size) {
        return hb_fail(err, HB_RULE_CFG_TRACK_INTERVAL, -1, config->track_interval,
                       config->chunk_size);
    }
    if (config->ring_length < 0 || config->ring_length > HB_MAX_RING) {
        return hb_fail(err, HB_RULE_CFG_RING, -1, config->ring_length, HB_MAX_RING);
    }
    if (config->n_virtual != 0 && config->n_virtual < config->n_slots) {
        return hb_fail(err, HB_RULE_CFG_VIRTUAL, -1, config->n_virtual, config->n_slots);
    }
    if (config->n_virtual > HB_MAX_VIRTUAL && config->n_virtual > config->n_slots) {
        return hb_fail(err, HB_RULE_CFG_VIRTUAL, -1, config->n_virtual, HB_MAX_VIRTUAL);
    }
    if (rows < 0 || rows > most_rows) {
        return hb_fail(err, HB_RULE_CFG_GRAPH, 0, rows, most_rows);
    }
    if (rows > 0 && config->graph_draft < 1) {
        return hb_fail(err, HB_RULE_CFG_GRAPH, 1, config->graph_draft, 1);
    }
    const int64_t graph_tokens = (int64_t)rows * config->graph_draft;
    if (rows > 0 && graph_tokens > config->max_tokens) {
        return hb_fail(err, HB_RULE_CFG_GRAPH, 2, graph_tokens, config->max_tokens);
    }
    if (config->pool_pad < 0 || config->pool_pad > HB_MAX_POOL_PAD) {
        return hb_fail(err, HB_RULE_CFG_POOL_PAD, -1, config->pool_pad, HB_MAX_POOL_PAD);
    }
    if (config->multi_item_scoring != 0) {
        return hb_fail(err, HB_RULE_CFG_SCORING, -1, config->multi_item_scoring, 0);
    }
    if (config->stochastic_rounding != 0) {
        return hb_fail(err, HB_RULE_CFG_ROUNDING, -1, config->state_dtype, 0);
    }
    return HB_OK;
}

/* Kind of the first linear layer, -1: none. Kinds are known. */
static int32_t linear_kind(const struct hb_config *config) {
    for (int32_t l = 0; l < config->n_layers; l++) {
        if (config->layer_kind[l] != HB_LAYER_ATTENTION) {
            return config->layer_kind[l];
        }
    }
    return -1;
}

/* Rules 222..225. */
static int32_t check_kinds(const struct hb_config *config, struct hb_error *err) {
    const int32_t first = linear_kind(config);
    for (int32_t l = 0; l < config->n_layers; l++) {
        const int32_t kind = config->layer_kind[l];
        if (kind != HB_LAYER_ATTENTION && kind != first) {
            return hb_fail(err, HB_RULE_CFG_LINEAR_KINDS, l, kind, first);
        }
    }
    if (config->ring_length > 0 && first >= 0 && first != HB_LAYER_MAMBA2) {
        return hb_fail(err, HB_RULE_CFG_MIXER_FEATURE, 0, first, 0);
    }
    if (config->gate_form == HB_GATE_LOWER_BOUND && first == HB_LAYER_KDA &&
        !(config->gate_bound < 0.0F)) {
        return hb_fail(err, HB_RULE_CFG_GATE_BOUND, -1, 0, 0);
    }
    if (config->attn_window < 0) {
        return hb_fail(err, HB_RULE_CFG_ATTENTION, 0, config->attn_window, 0);
    }
    if (!(config->attn_softcap >= 0.0F)) {
        return hb_fail(err, HB_RULE_CFG_ATTENTION, 1, 0, 0);
    }
    return HB_OK;
}

/* Rule 230. The positions of the ring are counted modulo its length, and the nodes of two verifies
 * fit beside each other. */
static int32_t check_commit_ring(const struct hb_config *config, struct hb_error *err) {
    const int32_t length = config->ring_length;
    if (!hb_config_ring_commits(config)) {
        return HB_OK;
    }
    const struct {
        int32_t is_broken;
        int64_t value, limit;
    } rows[] = {{(length & (length - 1)) != 0, length, 0},
                {length < 2 * (int64_t)config->max_draft, length, 2 * (int64_t)config->max_draft},
                {config->spec_rows == 0, 0, 1},
                {config->state_dtype != HB_FP32, config->state_dtype, 0}};
    for (int32_t i = 0; i < (int32_t)(sizeof(rows) / sizeof(rows[0])); i++) {
        if (rows[i].is_broken) {
            return hb_fail(err, HB_RULE_CFG_RING_COMMIT, i, rows[i].value, rows[i].limit);
        }
    }
    return HB_OK;
}

int32_t hb_config_check(const struct hb_config *config, struct hb_error *err) {
    if (config->n_layers < 1 || config->n_layers > HB_MAX_LAYERS) {
        return hb_fail(err, HB_RULE_CFG_LAYERS, -1, config->n_layers, HB_MAX_LAYERS);
    }
    int32_t status = check_sizes(config, err);
    if (status == HB_OK) {
        status = check_fit(config, err);
    }
    if (status == HB_OK) {
        status = check_variants(config, err);
    }
    if (status == HB_OK) {
        status = check_values(config, err);
    }
    if (status == HB_OK) {
        status = check_features(config, err);
    }
    if (status == HB_OK) {
        status = check_kinds(config, err);
    }
    return status == HB_OK ? check_commit_ring(config, err) : status;
}

int32_t hb_config_dtype_bytes(int32_t dtype) {
    return dtype == HB_BF16 || dtype == HB_FP16 ? 2 : 4;
}

/* Elements that a unit stands for. */
static int64_t count_unit(const struct hb_config *config, int32_t unit) {
    const int64_t heads = config->n_heads;
    const int64_t n = config->state_size;
    const int64_t inner = heads * config->head_dim;
    const int64_t counts[N_UNITS] = {
        [UNIT_INNER] = inner,
        [UNIT_QKV] = inner + 2 * (int64_t)config->n_groups * n,
        [UNIT_INNER_3] = 3 * inner,
        [UNIT_INNER_2N] = inner + 2 * n,
        [UNIT_STATE] = inner * n,
        [UNIT_HEADS] = heads,
        [UNIT_HEADS_2] = 2 * heads,
        [UNIT_HEADS_N] = heads * n,
        [UNIT_HEADS_N_1] = heads * n + heads,
        [UNIT_TOKEN_DECAY] = config->slope_kind == HB_SLOPE_TOKEN ? heads : 0,
        [UNIT_Q] = (int64_t)config->n_q_heads * config->attn_dim,
        [UNIT_KV] = (int64_t)config->n_kv_heads * config->attn_dim,
    };
    return counts[unit];
}

void hb_config_dims(const struct hb_config *config, struct hb_dims *dims) {
    *dims = (struct hb_dims){0};
    dims->linear_kind = linear_kind(config);
    const struct kind_row *kind =
        &kinds[dims->linear_kind < 0 ? HB_LAYER_MAMBA2 : dims->linear_kind];
    dims->d_inner = config->n_heads * config->head_dim;
    dims->dim = (int32_t)count_unit(config, kind->channels);
    dims->window =
        config->conv_state_len == HB_CONV_STATE_FULL ? config->conv_width : config->conv_width - 1;
    dims->cache_chunk =
        config->chunk_size > config->page_size ? config->chunk_size : config->page_size;
    dims->act_bytes = hb_config_dtype_bytes(config->act_dtype);
    dims->state_bytes = hb_config_dtype_bytes(config->state_dtype);
    for (int32_t i = 0; i < config->n_layers; i++) {
        dims->has_attention |= config->layer_kind[i] == HB_LAYER_ATTENTION;
    }
    dims->track_interval =
        config->track_interval > 0 ? config->track_interval : config->chunk_size;
    dims->conv_slot_bytes = (int64_t)dims->dim * dims->window * dims->act_bytes;
    dims->temporal_slot_bytes = count_unit(config, kind->state) * dims->state_bytes;
    dims->n_nodes = count_nodes(config);
    dims->windows_bytes = dims->n_nodes * dims->conv_slot_bytes;
    if (config->window_layout == HB_WINDOWS_STRIP) {
        const int64_t columns =
            dims->n_nodes > 0 ? (int64_t)config->max_draft + dims->window - 1 : 0;
        dims->windows_bytes = config->spec_rows * columns * dims->dim * dims->act_bytes;
    }
    dims->kv_bytes =
        (int64_t)config->n_kv * config->n_kv_heads * config->attn_dim * dims->act_bytes;
}

int64_t hb_config_io_width(const struct hb_config *config, int32_t layer_kind, int32_t i) {
    return count_unit(config, kinds[layer_kind].width[i]);
}

int64_t hb_config_param_count(const struct hb_config *config, int32_t layer_kind, int32_t i) {
    const struct kind_row *kind = &kinds[layer_kind];
    const int64_t channels = count_unit(config, kind->channels);
    const int64_t counts[HB_N_PARAMS] = {
        [HB_PARAM_CONV_WEIGHT] = channels * config->conv_width,
        [HB_PARAM_CONV_BIAS] = channels,
        [HB_PARAM_A] = count_unit(config, kind->a),
        [HB_PARAM_DT_BIAS] = count_unit(config, kind->dt_bias),
        [HB_PARAM_D] = count_unit(config, kind->d),
        [HB_PARAM_NORM_WEIGHT] = kind->has_gate_norm ? count_unit(config, UNIT_INNER) : 0,
    };
    return counts[i];
}

int32_t hb_config_param_needed(const struct hb_config *config, int32_t layer_kind, int32_t i) {
    const int32_t has_norm = config->gate_norm == HB_GATE_NORM_AFTER ||
                             config->gate_norm == HB_GATE_NORM_BEFORE ||
                             config->gate_norm == HB_NORM_ONLY;
    if (hb_config_param_count(config, layer_kind, i) == 0) {
        return 0;
    }
    if (i == HB_PARAM_A) { /* other slopes than those of the parameter are computed */
        return layer_kind != HB_LAYER_LIGHTNING || config->slope_kind == HB_SLOPE_PARAM;
    }
    return i == HB_PARAM_CONV_WEIGHT || (i == HB_PARAM_NORM_WEIGHT && has_norm);
}
