/* SPDX-License-Identifier: Apache-2.0
 * The linear kind of a generated case, and the variants of its layers: half of the cases as public models combine them
 * (model-shapes.md), the others any. */
#include "backend/adapter.h"
#include "harness/gen_history.h"

#define COUNT_OF(a) ((int32_t)(sizeof(a) / sizeof((a)[0])))

/* --- the linear kind -------------------------------------------------------------------------- */

/* Of a hundred cases; a half belongs to the kinds with more features and more public models. */
static const int32_t mixer_shares[HB_N_MIXERS] = {
    [HB_MIXER_MAMBA2] = 38,    [HB_MIXER_GDN] = 17,        [HB_MIXER_KDA] = 14,
    [HB_MIXER_LIGHTNING] = 11, [HB_MIXER_SHORT_CONV] = 10, [HB_MIXER_MAMBA1] = 10,
};

static int32_t draw_mixer(struct hb_rng *r) {
    int32_t p = hb_rng_below(r, 100);
    int32_t mixer = 0;
    while (mixer < HB_N_MIXERS - 1 && p >= mixer_shares[mixer]) {
        p -= mixer_shares[mixer++];
    }
    return mixer;
}

/* The mixers that meet a need. */
static const struct {
    uint64_t need;
    uint32_t mixers;
} mixer_needs[] = {
    {HB_NEED_RING | HB_NEED_PENDING | HB_NEED_MAMBA2, 1u << HB_MIXER_MAMBA2},
    {HB_NEED_OTHER_MIXER, ~(1u << HB_MIXER_MAMBA2)},
    {HB_NEED_KDA, 1u << HB_MIXER_KDA},
    {HB_NEED_SHORT_CONV, 1u << HB_MIXER_SHORT_CONV},
    {HB_NEED_REFUSAL, 1u << HB_MIXER_MAMBA2 | 1u << HB_MIXER_MAMBA1},
};

void hb_gen_pick_mixer(struct hb_gen_state *g) {
    uint32_t allowed = (1u << HB_N_MIXERS) - 1;
    for (int32_t i = 0; i < COUNT_OF(mixer_needs); i++) {
        allowed &= (g->needs & mixer_needs[i].need) ? mixer_needs[i].mixers : ~0u;
    }
    g->mixer = draw_mixer(&g->rng);
    const int32_t asked = g->o->has_model ? g->o->model.scaled.mixer : g->o->mixer;
    if (asked >= 0) {
        g->mixer = asked; /* what is asked for comes before needs, which then are not met */
        return;
    }
    for (int32_t i = 0; i < HB_N_MIXERS && !(allowed >> g->mixer & 1u); i++) {
        g->mixer = (g->mixer + 1) % HB_N_MIXERS;
    }
}

/* --- variants --------------------------------------------------------------------------------- */

/* As families of public models have them. head_map, state_layout and conv_state_len differ between frameworks, not models:
 * they are drawn for all. */
static const struct family {
    int32_t mixer;
    int32_t gate_norm, norm_group, out_gate, conv_bias;
    int32_t l2norm, beta_form, gate_form, qk_scale;
    int32_t slope_kind, layer_factor, qkv_act;
} families[] = {
    /* Nemotron-H, Bamba, Granite 4, Falcon-H1 */
    {.mixer = HB_MIXER_MAMBA2, .gate_norm = HB_GATE_NORM_AFTER, .norm_group = HB_NORM_GROUP, .conv_bias = 1},
    {.mixer = HB_MIXER_MAMBA2, .gate_norm = HB_GATE_NORM_AFTER, .norm_group = HB_NORM_WHOLE, .conv_bias = 1},
    {.mixer = HB_MIXER_MAMBA2, .gate_norm = HB_GATE_ONLY, .norm_group = HB_NORM_GROUP, .conv_bias = 1},
    /* Qwen3-Next and 3.5; the same with negative eigenvalues; as ggml normalises */
    {.mixer = HB_MIXER_GDN, .gate_norm = HB_GATE_NORM_BEFORE, .norm_group = HB_NORM_HEAD},
    {.mixer = HB_MIXER_GDN, .gate_norm = HB_GATE_NORM_BEFORE, .norm_group = HB_NORM_HEAD, .beta_form = HB_BETA_DOUBLE},
    {.mixer = HB_MIXER_GDN, .gate_norm = HB_GATE_NORM_BEFORE, .norm_group = HB_NORM_HEAD, .l2norm = HB_L2_MAX_EPS},
    /* Kimi-Linear, and with the bounded gate */
    {.mixer = HB_MIXER_KDA, .gate_norm = HB_GATE_NORM_BEFORE, .norm_group = HB_NORM_HEAD, .out_gate = HB_OUT_SIGMOID},
    {.mixer = HB_MIXER_KDA,
     .gate_norm = HB_GATE_NORM_BEFORE,
     .norm_group = HB_NORM_HEAD,
     .out_gate = HB_OUT_SIGMOID,
     .gate_form = HB_GATE_LOWER_BOUND},
    /* MiniMax-01; Ring and Ling; simple GLA with data dependent decays; lightning attention as FLA has it */
    {.mixer = HB_MIXER_LIGHTNING,
     .gate_norm = HB_GATE_NORM_BEFORE,
     .norm_group = HB_NORM_WHOLE,
     .out_gate = HB_OUT_SIGMOID,
     .qk_scale = 1,
     .slope_kind = HB_SLOPE_MINIMAX,
     .layer_factor = HB_FACTOR_MINIMAX,
     .qkv_act = HB_QKV_SILU},
    {.mixer = HB_MIXER_LIGHTNING,
     .gate_norm = HB_GATE_NORM_BEFORE,
     .norm_group = HB_NORM_GROUP,
     .out_gate = HB_OUT_SIGMOID,
     .slope_kind = HB_SLOPE_ALIBI,
     .layer_factor = HB_FACTOR_LING},
    {.mixer = HB_MIXER_LIGHTNING, .gate_norm = HB_NORM_ONLY, .norm_group = HB_NORM_HEAD, .slope_kind = HB_SLOPE_TOKEN},
    {.mixer = HB_MIXER_LIGHTNING, .gate_norm = HB_GATE_NORM_NONE, .slope_kind = HB_SLOPE_FLA},
    /* LFM2 */
    {.mixer = HB_MIXER_SHORT_CONV},
    /* Jamba, Mamba1 */
    {.mixer = HB_MIXER_MAMBA1, .gate_norm = HB_GATE_ONLY, .conv_bias = 1},
};

static void take_family(struct hb_rng *r, struct hb_case_config *g) {
    int32_t i = hb_rng_below(r, COUNT_OF(families));
    while (families[i].mixer != g->mixer) {
        i = (i + 1) % COUNT_OF(families);
    }
    const struct family *f = &families[i];
    g->gate_norm = f->gate_norm;
    g->norm_group = f->norm_group;
    g->out_gate = f->out_gate;
    g->conv_bias = f->conv_bias;
    g->l2norm = f->l2norm;
    g->beta_form = f->beta_form;
    g->gate_form = f->gate_form;
    g->qk_scale = f->qk_scale;
    g->slope_kind = f->slope_kind;
    g->layer_factor = f->layer_factor;
    g->qkv_act = f->qkv_act;
}

static void draw_variants(struct hb_rng *r, struct hb_case_config *g) {
    g->conv_act = hb_rng_one_in(r, 8) ? HB_CONV_NONE : HB_CONV_SILU;
    g->gate_norm = hb_rng_one_in(r, 2) ? HB_GATE_NORM_AFTER : hb_rng_below(r, HB_N_GATE_NORMS);
    g->norm_group = hb_rng_below(r, HB_N_NORM_SPANS);
    g->dt_softplus = !hb_rng_one_in(r, 8);
    g->conv_bias = hb_rng_below(r, 2);
    g->out_gate = hb_rng_one_in(r, 3) ? HB_OUT_SIGMOID : HB_OUT_SILU;
    g->l2norm = hb_rng_one_in(r, 2) ? HB_L2_ADD_EPS : hb_rng_below(r, HB_N_L2NORMS);
    g->beta_form = hb_rng_one_in(r, 2) ? HB_BETA_SIGMOID : hb_rng_below(r, HB_N_BETA_FORMS);
    g->gate_form = hb_rng_one_in(r, 3) ? HB_GATE_LOWER_BOUND : HB_GATE_STANDARD;
    g->qk_scale = hb_rng_one_in(r, 2) ? 0 : hb_rng_below(r, HB_N_QK_SCALES);
    g->slope_kind = hb_rng_below(r, HB_N_SLOPE_KINDS);
    g->layer_factor = hb_rng_below(r, HB_N_LAYER_FACTORS);
    g->qkv_act = hb_rng_below(r, HB_N_QKV_ACTS);
}

void hb_gen_pick_variants(struct hb_gen_state *g) {
    struct hb_rng *r = &g->rng;
    struct hb_case_config *cfg = &g->c->config;
    cfg->mixer = g->mixer;
    draw_variants(r, cfg);
    if (hb_rng_one_in(r, 2)) {
        take_family(r, cfg);
    }
    cfg->dt_clamp = hb_rng_one_in(r, 3) ? hb_rng_below(r, HB_N_CLAMPS) : HB_CLAMP_NONE;
    cfg->eps = hb_rng_below(r, 2);
    cfg->dt_bias = !hb_rng_one_in(r, 4);
    cfg->skip_d = hb_rng_one_in(r, 3);
    cfg->gate_bound = hb_rng_one_in(r, 2) ? 0 : hb_rng_below(r, HB_N_GATE_BOUNDS);
    cfg->head_map = hb_rng_one_in(r, 3) ? HB_HEADS_TILE : HB_HEADS_INTERLEAVE;
    cfg->state_layout = hb_rng_one_in(r, 3) ? HB_STATE_KV : HB_STATE_VK;
    cfg->conv_state_len = hb_rng_one_in(r, 4) ? HB_CONV_STATE_FULL : HB_CONV_STATE_SHORT;
}

/* --- attention -------------------------------------------------------------------------------- */

/* In percent of the cases. */
struct attention_mix {
    int32_t window, softcap, pages;
};

void hb_gen_pick_attention(struct hb_gen_state *g) {
    static const struct attention_mix few = {20, 15, 15}, many = {50, 40, 65};
    static const int32_t windows[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 64};
    struct hb_rng *r = &g->rng;
    struct hb_case_config *cfg = &g->c->config;
    const struct attention_mix *m = g->o->target == HB_TARGET_ATTENTION ? &many : &few;
    if (hb_rng_below(r, 100) < m->window) {
        cfg->attn_window = windows[hb_rng_below(r, COUNT_OF(windows))];
        cfg->window_rule = hb_rng_below(r, HB_N_WINDOW_RULES);
    }
    if (hb_rng_below(r, 100) < m->softcap) {
        cfg->attn_softcap = hb_rng_range(r, 1, HB_N_SOFTCAPS - 1);
    }
    if (hb_rng_below(r, 100) < m->pages) {
        cfg->kv_page = hb_rng_one_in(r, 4) ? HB_KV_PAGE_64 : HB_KV_PAGE_16;
        cfg->page_order = hb_rng_below(r, HB_N_PAGE_ORDERS);
    }
    if (g->o->target == HB_TARGET_ATTENTION) { /* all layers, or all but one */
        cfg->n_layers = hb_rng_range(r, 1, 3);
        const int32_t all = (1 << cfg->n_layers) - 1;
        const int32_t linear = hb_rng_one_in(r, 3) ? 0 : 1 << hb_rng_below(r, cfg->n_layers);
        cfg->attn_mask = cfg->n_layers > 1 ? all & ~linear : all;
        cfg->q_heads = 1 + hb_rng_below(r, 8);
        cfg->kv_heads = 1 + hb_rng_below(r, cfg->q_heads); /* the normal form makes it a divisor */
        cfg->attn_dim = hb_rng_one_in(r, 3) ? 1 + hb_rng_below(r, 32) : cfg->attn_dim;
    }
}

/* --- models ----------------------------------------------------------------------------------- */

/* Consecutive layers of the model, of both kinds where it has both: two of real size, else up to four. */
static void take_layers(struct hb_gen_state *g, int32_t is_real) {
    enum { TRIES = 32 };
    const struct hb_model *m = &g->o->model;
    struct hb_case_config *cfg = &g->c->config;
    const int32_t most = is_real ? 2 : 4;
    const int32_t last = m->n_layers > most ? m->n_layers - most : 0;
    int32_t first = hb_rng_range(&g->rng, 0, last);
    for (int32_t i = 0; i <= last; i++) {
        hb_model_layers(m, first, most, cfg);
        if (cfg->attn_mask != 0 && cfg->attn_mask != (1 << cfg->n_layers) - 1) {
            return;
        }
        first = i < TRIES && last > TRIES ? hb_rng_range(&g->rng, 0, last) : (first + 1) % (last + 1);
    }
}

void hb_gen_take_model(struct hb_gen_state *g) {
    struct hb_case_config *cfg = &g->c->config;
    const int32_t is_real = g->o->size == HB_SIZE_REAL;
    hb_model_apply(&g->o->model, is_real, cfg);
    take_layers(g, is_real);
    if (g->o->size == HB_SIZE_LARGE) { /* the normal form keeps them in range */
        cfg->head_dim *= 2;
        cfg->state_size *= 2;
        cfg->attn_dim *= 2;
    }
}
