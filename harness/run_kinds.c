/* SPDX-License-Identifier: Apache-2.0
 * What differs between the kinds of linear layers, as tables with one row per kind: names of
 * buffers and parameters (adapter.h); the forms in which states stand in regions; and whether the
 * reference starts each call from what the backend stored. */
#include <stddef.h>
#include <string.h>

#include "harness/run_internal.h"

/* --- kinds ------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    const char *buffer[4];
} kinds[HB_N_LAYER_KINDS] = {
    [HB_LAYER_MAMBA2] = {"mamba2", {"in.z", "in.xbc", "in.dt", "out.y"}},
    [HB_LAYER_ATTENTION] = {"attention", {"in.q", "in.k", "in.v", "out.o"}},
    [HB_LAYER_GDN] = {"gdn", {"in.z", "in.qkv", "in.ab", "out.y"}},
    [HB_LAYER_KDA] = {"kda", {"in.z", "in.qkv", "in.ab", "out.y"}},
    [HB_LAYER_LIGHTNING] = {"lightning", {"in.z", "in.qkv", "in.g", "out.y"}},
    [HB_LAYER_SHORT_CONV] = {"short_conv", {"in.0", "in.bcx", "in.2", "out.y"}},
    [HB_LAYER_MAMBA1] = {"mamba1", {"in.z", "in.x", "in.dtbc", "out.y"}},
};

int hb_run_is_linear(const struct hb_run *r, int32_t layer) {
    return r->config.layer_kind[layer] != HB_LAYER_ATTENTION;
}

const char *hb_run_kind_name(int32_t layer_kind) {
    return kinds[layer_kind].name;
}

const char *hb_run_buffer_name(const struct hb_run *r, int32_t layer, int32_t buffer) {
    return kinds[r->config.layer_kind[layer]].buffer[buffer];
}

int32_t hb_run_linear_kind(const struct hb_config *config) {
    for (int32_t l = 0; l < config->n_layers; l++) {
        if (config->layer_kind[l] != HB_LAYER_ATTENTION) {
            return config->layer_kind[l];
        }
    }
    return HB_LAYER_MAMBA2;
}

/* The bound of a delta rule in chunks feeds on itself from call to call, while the state that each
 * call leaves is checked when it ends (tolerance.md 3.4). */
int hb_run_anchors(const struct hb_config *config, const struct hb_caps *caps) {
    const int32_t kind = hb_run_linear_kind(config);
    const int is_delta = kind == HB_LAYER_GDN || kind == HB_LAYER_KDA;
    return is_delta && config->kernel_form >= 0 && config->kernel_form < HB_N_FORMS &&
           config->act_dtype >= 0 && config->act_dtype < HB_N_FLOAT_DTYPES &&
           caps->profile[config->kernel_form][HB_PATH_PREFILL][config->act_dtype].chunked;
}

void hb_run_set_kind(struct hb_run *r) {
    r->kind = hb_run_linear_kind(&r->config);
    hb_ref_linear_sizes(&r->config, r->kind, &r->sizes);
    r->n_conv = (int32_t)(r->sizes.channels * r->sizes.window);
    r->n_ssm = (int32_t)r->sizes.n_state;
    /* runs that are compared with others need bounds against what all of them compute */
    r->is_anchored = !r->capture && !r->o->observer && hb_run_anchors(&r->config, &r->caps);
}

/* --- parameters ------------------------------------------------------------------------------- */

enum length { ABSENT, TAPS, CHANNELS, HEADS, HEADS_N, INNER, INNER_N };
enum { CONV_WEIGHT, CONV_BIAS, A, DT_BIAS, D, NORM_WEIGHT, N_PARTS };

static const struct {
    size_t offset; /* in struct hb_layer_params */
    int32_t tensor;
} parts[N_PARTS] = {
    [CONV_WEIGHT] = {offsetof(struct hb_layer_params, conv_weight), HB_TENSOR_CONV_WEIGHT},
    [CONV_BIAS] = {offsetof(struct hb_layer_params, conv_bias), HB_TENSOR_CONV_BIAS},
    [A] = {offsetof(struct hb_layer_params, a), HB_TENSOR_A},
    [DT_BIAS] = {offsetof(struct hb_layer_params, dt_bias), HB_TENSOR_DT_BIAS},
    [D] = {offsetof(struct hb_layer_params, d), HB_TENSOR_D},
    [NORM_WEIGHT] = {offsetof(struct hb_layer_params, norm_weight), HB_TENSOR_NORM_WEIGHT},
};

static const int32_t lengths[HB_N_LAYER_KINDS][N_PARTS] = {
    [HB_LAYER_MAMBA2] = {TAPS, CHANNELS, HEADS, HEADS, HEADS, INNER},
    [HB_LAYER_ATTENTION] = {ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT},
    [HB_LAYER_GDN] = {TAPS, CHANNELS, HEADS, HEADS, ABSENT, INNER},
    [HB_LAYER_KDA] = {TAPS, CHANNELS, HEADS, HEADS_N, ABSENT, INNER},
    [HB_LAYER_LIGHTNING] = {ABSENT, ABSENT, HEADS, ABSENT, ABSENT, INNER},
    [HB_LAYER_SHORT_CONV] = {TAPS, CHANNELS, ABSENT, ABSENT, ABSENT, ABSENT},
    [HB_LAYER_MAMBA1] = {TAPS, CHANNELS, INNER_N, INNER, INNER, INNER},
};

static int64_t length_of(const struct hb_run *r, int32_t length) {
    const struct hb_config *c = &r->config;
    const int64_t inner = (int64_t)c->n_heads * c->head_dim;
    switch (length) {
    case TAPS:
        return r->sizes.channels * c->conv_width;
    case CHANNELS:
        return r->sizes.channels;
    case HEADS:
        return c->n_heads;
    case HEADS_N:
        return (int64_t)c->n_heads * c->state_size;
    case INNER:
        return inner;
    case INNER_N:
        return inner * c->state_size;
    default:
        return 0;
    }
}

/* 0: the layer has no such parameter. */
static int64_t part_length(const struct hb_run *r, int32_t layer, int32_t part) {
    const struct hb_case_config *g = &r->c->config;
    const int32_t kind = r->config.layer_kind[layer];
    if (kind < 0 || kind >= HB_N_LAYER_KINDS) {
        return 0; /* create refuses it */
    }
    const int has_no_slopes = part == A && kind == HB_LAYER_LIGHTNING &&
                              r->config.slope_kind != HB_SLOPE_PARAM;
    if ((part == CONV_BIAS && !g->conv_bias) || (part == DT_BIAS && !g->dt_bias) ||
        (part == D && g->skip_d) || has_no_slopes) {
        return 0;
    }
    return length_of(r, lengths[kind][part]);
}

int hb_run_make_params(struct hb_run *r) {
    if (r->o->params) {
        r->params = r->o->params;
        return 0;
    }
    size_t total = 0;
    for (int32_t l = 0; l < r->config.n_layers; l++) {
        for (int32_t i = 0; i < N_PARTS; i++) {
            total += (size_t)part_length(r, l, i);
        }
    }
    float *next = hb_run_bytes(r, HB_MEMORY_PARAMS, total * sizeof *next);
    if (!next) {
        return -1;
    }
    for (int32_t l = 0; l < r->config.n_layers; l++) {
        for (int32_t i = 0; i < N_PARTS; i++) {
            const int64_t n = part_length(r, l, i);
            const float *at = next;
            if (n > 0) {
                hb_run_fill(r, parts[i].tensor, 0, l, 0, (int32_t)n, next);
                memcpy((char *)&r->own_params[l] + parts[i].offset, &at, sizeof at);
                next += n;
            }
        }
    }
    r->params = r->own_params;
    return 0;
}

/* --- states in regions ------------------------------------------------------------------------ */

/* [H, rows, columns] to [H, columns, rows]. */
static void transpose(int32_t heads, int32_t rows, int32_t columns, const float *from, float *to) {
    const int64_t n = (int64_t)rows * columns;
    for (int32_t h = 0; h < heads; h++) {
        for (int32_t i = 0; i < rows; i++) {
            for (int32_t j = 0; j < columns; j++) {
                to[h * n + (int64_t)j * rows + i] = from[h * n + (int64_t)i * columns + j];
            }
        }
    }
}

static float *spare(struct hb_run *r) {
    return hb_run_bytes(r, HB_MEMORY_LAYOUT, (size_t)r->n_ssm * sizeof(float));
}

void hb_run_unpack_ssm(struct hb_run *r, int32_t region, const uint8_t *from, float *to) {
    const struct hb_config *c = &r->config;
    float *stored = c->state_layout == HB_STATE_KV ? spare(r) : to;
    if (stored) {
        hb_unpack(r->region[region].dtype, from, r->n_ssm, stored);
    }
    if (stored && stored != to) {
        transpose(c->n_heads, c->state_size, c->head_dim, stored, to);
    }
}

void hb_run_pack_ssm(struct hb_run *r, int32_t region, const float *from, uint8_t *to) {
    const struct hb_config *c = &r->config;
    float *stored = c->state_layout == HB_STATE_KV ? spare(r) : NULL;
    if (stored) {
        transpose(c->n_heads, c->head_dim, c->state_size, from, stored);
        from = stored;
    }
    hb_pack(r->region[region].dtype, from, r->n_ssm, to);
}

void hb_run_read_slot(struct hb_run *r, int32_t layer, int32_t slot, float *conv, float *ssm) {
    const int32_t rc = hb_run_region(r, "conv", layer);
    const int32_t rs = hb_run_region(r, "temporal", layer);
    memset(conv, 0, (size_t)r->n_conv * sizeof *conv);
    memset(ssm, 0, (size_t)r->n_ssm * sizeof *ssm);
    if (rc >= 0) {
        const size_t bytes = (size_t)r->region[rc].bytes / (size_t)r->region[rc].shape[0];
        hb_unpack(r->region[rc].dtype, r->mirror[rc] + (size_t)slot * bytes, r->n_conv, conv);
    }
    if (rs >= 0) {
        const size_t bytes = (size_t)r->region[rs].bytes / (size_t)r->region[rs].shape[0];
        hb_run_unpack_ssm(r, rs, r->mirror[rs] + (size_t)slot * bytes, ssm);
    }
}

void hb_run_set_state(struct hb_run *r, int32_t layer, int32_t slot, struct hb_ref_state *state) {
    float *values = hb_run_floats(r, (size_t)r->n_conv + (size_t)r->n_ssm);
    if (values && state) {
        hb_run_read_slot(r, layer, slot, values, values + r->n_conv);
        hb_ref_state_set(&r->config, state, values, values + r->n_conv);
    }
}
