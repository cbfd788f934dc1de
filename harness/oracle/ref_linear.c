/* SPDX-License-Identifier: Apache-2.0
 * The linear kinds of the oracle: one row each. */
#include "harness/oracle/ref_scan.h"

/* Of every kind that has a convolution. */
static int64_t conv_columns(const struct hb_config *config) {
    return config->conv_width - (config->conv_state_len == HB_CONV_STATE_FULL ? 0 : 1);
}

static int64_t inner_of(const struct hb_config *config) {
    return (int64_t)config->n_heads * config->head_dim;
}

/* [H, P] and two of [G, N]: x, B, C or q, k, v. */
static int64_t grouped_of(const struct hb_config *config) {
    return inner_of(config) + 2 * (int64_t)config->n_groups * config->state_size;
}

static struct hb_ref_sizes conv_sizes(const struct hb_config *config, int64_t gates) {
    const int64_t inner = inner_of(config), dim = grouped_of(config);
    const struct hb_ref_sizes s = {.width = {inner, dim, gates, inner},
                                   .channels = dim,
                                   .window = conv_columns(config),
                                   .n_state = inner * config->state_size};
    return s;
}

static void sizes_mamba2(const struct hb_config *config, struct hb_ref_sizes *out) {
    *out = conv_sizes(config, config->n_heads);
}

static void sizes_gdn(const struct hb_config *config, struct hb_ref_sizes *out) {
    *out = conv_sizes(config, 2 * (int64_t)config->n_heads);
}

static void sizes_kda(const struct hb_config *config, struct hb_ref_sizes *out) {
    *out = conv_sizes(config, (int64_t)config->n_heads * (config->state_size + 1));
}

static void sizes_lightning(const struct hb_config *config, struct hb_ref_sizes *out) {
    const int64_t inner = inner_of(config);
    const int64_t decays = config->slope_kind == HB_SLOPE_TOKEN ? config->n_heads : 0;
    *out = (struct hb_ref_sizes){.width = {inner, grouped_of(config), decays, inner},
                                 .n_state = inner * config->state_size};
}

static void sizes_short_conv(const struct hb_config *config, struct hb_ref_sizes *out) {
    const int64_t inner = inner_of(config);
    *out = (struct hb_ref_sizes){
        .width = {0, 3 * inner, 0, inner}, .channels = inner, .window = conv_columns(config)};
}

static void sizes_mamba1(const struct hb_config *config, struct hb_ref_sizes *out) {
    const int64_t inner = inner_of(config);
    *out = (struct hb_ref_sizes){
        .width = {inner, inner, inner + 2 * (int64_t)config->state_size, inner},
        .channels = inner,
        .window = conv_columns(config),
        .n_state = inner * config->state_size};
}

static int run_mamba2(const struct hb_ref_call *c) {
    return hb_ref_mamba2(c->config, c->params, c->profile, c->path, c->n, c->in[0], c->in[1],
                         c->in[2], c->state, c->out, c->bound, c->mag, c->at, c->at_tokens);
}

static const struct hb_ref_kind kinds[HB_N_LAYER_KINDS] = {
    [HB_LAYER_MAMBA2] = {run_mamba2, NULL, sizes_mamba2},
    [HB_LAYER_GDN] = {hb_ref_delta_run, hb_ref_delta_work, sizes_gdn},
    [HB_LAYER_KDA] = {hb_ref_delta_run, hb_ref_delta_work, sizes_kda},
    [HB_LAYER_LIGHTNING] = {hb_ref_decay_run, NULL, sizes_lightning},
    [HB_LAYER_SHORT_CONV] = {hb_ref_short_conv_run, NULL, sizes_short_conv},
    [HB_LAYER_MAMBA1] = {hb_ref_mamba1_run, hb_ref_mamba1_work, sizes_mamba1},
};

static const struct hb_ref_kind *row_of(int32_t kind) {
    const int known = kind >= 0 && kind < HB_N_LAYER_KINDS && kinds[kind].sizes != NULL;
    return &kinds[known ? kind : HB_LAYER_MAMBA2];
}

int32_t hb_ref_kind_of(const struct hb_config *config) {
    for (int32_t l = 0; l < config->n_layers && l < HB_MAX_LAYERS; l++) {
        if (config->layer_kind[l] != HB_LAYER_ATTENTION) {
            return config->layer_kind[l];
        }
    }
    return HB_LAYER_MAMBA2;
}

double hb_ref_work_of(const struct hb_config *config) {
    const struct hb_ref_kind *k = row_of(hb_ref_kind_of(config));
    return k->work != NULL ? k->work(config) : 0.0;
}

void hb_ref_linear_sizes(const struct hb_config *config, int32_t kind, struct hb_ref_sizes *out) {
    row_of(kind)->sizes(config, out);
}

int hb_ref_linear(const struct hb_config *config, int32_t layer,
                  const struct hb_layer_params *params, const struct hb_profile *profile,
                  int32_t path, int32_t n, const float *in0, const float *in1, const float *in2,
                  struct hb_ref_state *state, double *out, double *bound, double *mag,
                  struct hb_ref_state *at, int32_t at_tokens) {
    const struct hb_ref_call call = {.config = config,
                                     .params = params,
                                     .profile = profile,
                                     .layer = layer,
                                     .path = path,
                                     .n = n,
                                     .in = {in0, in1, in2},
                                     .state = state,
                                     .out = out,
                                     .bound = bound,
                                     .mag = mag,
                                     .at = at,
                                     .at_tokens = at_tokens};
    const struct hb_ref_kind *k = row_of(hb_ref_kind_of(config));
    return k->run != NULL ? k->run(&call) : -1;
}
