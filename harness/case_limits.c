/* SPDX-License-Identifier: Apache-2.0
 * How much a case works: the limits of its normal form, and the backend configuration whose sizes
 * follow from it. */
#include <math.h>
#include <string.h>

#include "backend/batch.h"
#include "harness/case_internal.h"
#include "harness/rng.h"

/* --- limits of work
 * --------------------------------------------------------------------------------------------- */

struct work {
    int64_t tokens; /* of all forwards and entries, padding included */
    int64_t ssm,
        attn; /* elementary updates: tokens x layers x H P N; tokens x layers x context x HQ D */
    int32_t longest; /* longest row */
    int32_t context; /* most tokens a request can reach: largest prefix + the longest row of each
                        step */
    int32_t batch_rows, batch_tokens; /* most of any forward */
    int32_t verify_rows;              /* most rows of any verify, captured or not */
    int32_t prefixes;                 /* tokens before the first forward, summed */
    int32_t pages; /* of the KV cache, if each row of each step begins one */
    int32_t restarts;                 /* from a checkpoint, or by a match of the prefix cache */
};

/* Tokens of a forward or capture, padding included. */
static int32_t step_tokens(const struct hb_case_step *s) {
    if (s->kind == HB_STEP_CAPTURE) {
        return s->bs * s->nodes;
    }
    const int is_verify = hb_step_is_verify(s);
    int32_t tokens = is_verify ? 0 : s->pad_tokens + s->pad_rows;
    for (int32_t r = 0; r < s->n_rows && s->kind != HB_STEP_COMMIT; r++) {
        tokens += s->row[r].length;
    }
    for (int32_t r = 0; r < s->pad_rows && is_verify; r++) {
        tokens += hb_case_padding_nodes(s, r);
    }
    return tokens;
}

/* Most pages that n tokens touch. */
static int32_t pages_of(const struct hb_case_config *g, int32_t n) {
    return n == 0 ? 0 : (n - 1) / hb_case_kv_page(g) + 2;
}

static void measure(const struct hb_case *c, struct work *w) {
    memset(w, 0, sizeof *w);
    int32_t prefix = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        prefix = s->prefix > prefix ? s->prefix : prefix;
        w->prefixes += s->prefix;
        w->restarts += s->kind == HB_STEP_TAKE && (s->from >= 0 || s->match >= 0);
        const int is_capture = s->kind == HB_STEP_CAPTURE;
        const int is_verify = s->mode == HB_MODE_TARGET_VERIFY && (is_capture || hb_step_is_verify(s));
        int32_t longest = is_capture ? s->nodes : hb_case_draft(s);
        const int32_t tokens = step_tokens(s);
        for (int32_t r = 0; r < s->n_rows && s->kind != HB_STEP_COMMIT; r++) {
            longest = s->row[r].length > longest ? s->row[r].length : longest;
            w->pages += pages_of(&c->config, s->row[r].length);
        }
        w->pages += pages_of(&c->config, s->prefix);
        w->tokens += tokens;
        w->context += longest;
        w->longest = longest > w->longest ? longest : w->longest;
        w->batch_tokens = tokens > w->batch_tokens ? tokens : w->batch_tokens;
        const int32_t rows = is_capture ? s->bs : s->n_rows + s->pad_rows;
        w->batch_rows = rows > w->batch_rows ? rows : w->batch_rows;
        w->verify_rows = is_verify && rows > w->verify_rows ? rows : w->verify_rows;
    }
    w->context += prefix;
    const struct hb_case_config *g = &c->config;
    const int64_t per_layer = w->tokens * g->n_layers;
    w->ssm = per_layer * g->heads * g->head_dim * g->state_size;
    w->attn = per_layer * w->context * g->q_heads * g->attn_dim;
}

static void halve_lengths(struct hb_case *c, int32_t longest) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        for (int32_t r = 0; r < c->step[i].n_rows; r++) {
            int32_t *length = &c->step[i].row[r].length;
            *length = *length == longest ? (longest + 1) / 2 : *length;
        }
        const int32_t kind = c->step[i].kind;
        if ((kind == HB_STEP_CAPTURE || kind == HB_STEP_GRAPH_INIT) && c->step[i].nodes == longest) {
            c->step[i].nodes = (longest + 1) / 2; /* D of the graphs and of their verifies stay equal */
        }
        if (hb_step_is_verify(&c->step[i])) {
            int32_t *draft = &c->step[i].draft;
            *draft = *draft == longest ? (longest + 1) / 2 : *draft;
            hb_case_normalize_draft(&c->step[i]);
        }
    }
}

static void halve_prefixes(struct hb_case *c) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        c->step[i].prefix /= 2;
    }
}

/* Lowers lengths first (they are what a case is large by), then the sizes, until the case is within
 * the limits: HB_CASE_MAX_TOKENS tokens in all, HB_CASE_MAX_WORK elementary updates of either kind.
 */
void hb_case_limit_work(struct hb_case *c) {
    enum { SHORT = 16 };
    struct hb_case_config *g = &c->config;
    const int64_t most = g->real_size ? HB_CASE_REAL_WORK : HB_CASE_MAX_WORK;
    for (;;) {
        struct work w;
        measure(c, &w);
        const int too_many = w.tokens > HB_CASE_MAX_TOKENS;
        if (!too_many && w.ssm <= most && w.attn <= most) {
            break;
        }
        if (w.longest > (too_many ? 1 : SHORT)) {
            halve_lengths(c, w.longest);
        } else if (w.ssm > most) {
            int32_t *largest = &g->state_size;
            largest = g->head_dim > *largest ? &g->head_dim : largest;
            largest = g->heads > *largest ? &g->heads : largest;
            *largest = (*largest + 1) / 2;
        } else if (g->attn_dim > 1 || g->q_heads > 1) {
            int32_t *largest = g->attn_dim >= g->q_heads ? &g->attn_dim : &g->q_heads;
            *largest = (*largest + 1) / 2;
        } else {
            halve_prefixes(c);
        }
    }
    g->groups = divisor_below(g->heads, g->groups);
    g->kv_heads = divisor_below(g->q_heads, g->kv_heads);
}

/* --- the backend's configuration
 * -------------------------------------------------------------------------------- */

int32_t hb_case_req_index(const struct hb_case *c, int32_t request) {
    int32_t index[HB_MAX_REQS];
    for (int32_t i = 0; i < HB_MAX_REQS; i++) {
        index[i] = i + 1; /* 0 stays the request of padding rows */
    }
    struct hb_rng r = hb_rng_make((uint32_t)c->config.seed, 0x7265717565737473u);
    hb_rng_shuffle(&r, index, HB_MAX_REQS);
    return index[clamp(request, 0, HB_MAX_REQS - 1)];
}

/* Most slots held at one time: those of TAKE steps until a FREE gives them back, the track slots of each request with
 * ping-pong, and the fresh one in place of each that is donated. */
static int32_t slots_held(const struct hb_case *c) {
    static const int32_t own[HB_N_PING_PONGS] = {0, 1, 2, 2};
    int32_t held[HB_MAX_STEPS] = {0};
    int32_t n_takes = 0;
    int32_t now = 0;
    int32_t most = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (s->kind == HB_STEP_TAKE) {
            held[n_takes++] = 1;
            now += 1 + (s->slot_kind == 0 ? own[c->config.ping_pong] : 0);
        } else if (s->kind == HB_STEP_PUBLISH) {
            now += c->config.ping_pong != HB_PING_PONG_OFF;
        } else if (s->kind == HB_STEP_FREE) {
            now -= held[s->slot];
            held[s->slot] = 0;
            now -= s->slot2 >= 0 ? held[s->slot2] : 0;
            held[s->slot2 >= 0 ? s->slot2 : s->slot] = 0;
        }
        most = now > most ? now : most;
    }
    return most;
}

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* Graphs, ring, ids and layouts; n_slots, spec_rows, max_batch and max_tokens are set. */
static void configure_features(const struct hb_case_config *g, struct hb_config *config) {
    config->track_interval = g->track_chunks * g->chunk_size;
    config->n_virtual = g->virtual_ids == 0 ? 0 : config->n_slots + g->virtual_ids - 1;
    config->ring_length = g->ring_length;
    config->ring_owner = g->ring_owner;
    config->window_layout = g->window_layout;
    config->track_by_layer = g->track_by_layer;
    config->pool_pad = g->pool_pad;
    config->graph_rows = g->graph_rows;
    config->graph_draft = g->graph_rows == 0 ? 0 : g->graph_draft;
    config->max_batch = larger(config->max_batch, config->graph_rows);
    config->max_tokens = larger(config->max_tokens, config->graph_rows * config->graph_draft);
}

int32_t hb_case_linear_kind(const struct hb_case_config *g) {
    static const int32_t kinds[HB_N_MIXERS] = {HB_LAYER_MAMBA2,    HB_LAYER_GDN,        HB_LAYER_KDA,
                                               HB_LAYER_LIGHTNING, HB_LAYER_SHORT_CONV, HB_LAYER_MAMBA1};
    return kinds[g->mixer];
}

int32_t hb_case_kv_page(const struct hb_case_config *g) {
    static const int32_t sizes[HB_N_KV_PAGES] = {1, 16, 64};
    return sizes[g->kv_page];
}

/* Variants of the kinds; 0 is the default of each. */
static void configure_variants(const struct hb_case_config *g, struct hb_config *config) {
    static const float bounds[HB_N_GATE_BOUNDS] = {-5.0f, -1.0f, -0.25f, -20.0f};
    static const float scales[HB_N_QK_SCALES] = {0.0f, 1.0f, 0.5f, 0.3f};
    static const float caps[HB_N_SOFTCAPS] = {0.0f, 50.0f, 30.0f, 5.0f, 1.0f};
    config->head_map = g->head_map;
    config->state_layout = g->state_layout;
    config->out_gate = g->out_gate;
    config->conv_state_len = g->conv_state_len;
    config->l2norm = g->l2norm;
    config->beta_form = g->beta_form;
    config->gate_form = g->gate_form;
    config->gate_bound = bounds[g->gate_bound];
    config->qk_scale = scales[g->qk_scale];
    config->slope_kind = g->slope_kind;
    config->layer_factor = g->layer_factor;
    config->qkv_act = g->qkv_act;
    config->attn_window = g->attn_window;
    config->window_rule = g->window_rule;
    config->attn_softcap = caps[g->attn_softcap];
}

void hb_case_backend_config(const struct hb_case *c, struct hb_config *config) {
    static const float lower[] = {0.0078125f, 0.03125f, 0.0625f, 0.125f};
    static const float upper[] = {0.1875f, 0.25f, 0.5f, 1.5f};
    const struct hb_case_config *g = &c->config;
    struct work w;
    measure(c, &w);
    memset(config, 0, sizeof *config);
    config->struct_size = sizeof *config;
    config->n_layers = g->n_layers;
    for (int32_t l = 0; l < g->n_layers; l++) {
        config->layer_kind[l] = (g->attn_mask >> l) & 1 ? HB_LAYER_ATTENTION : hb_case_linear_kind(g);
    }
    config->n_heads = g->heads;
    config->head_dim = g->head_dim;
    config->state_size = g->state_size;
    config->n_groups = g->groups;
    config->conv_width = g->conv_width;
    config->chunk_size = g->chunk_size;
    config->page_size = g->page_chunks == 0 ? 1 : g->page_chunks * g->chunk_size;
    config->act_dtype = g->act_dtype;
    config->state_dtype = g->state_dtype;
    config->conv_act = g->conv_act;
    config->gate_norm = g->gate_norm;
    const int32_t inner = g->heads * g->head_dim;
    const int32_t spans[HB_N_NORM_SPANS] = {inner / g->groups, inner, g->head_dim};
    config->norm_group = spans[g->norm_group];
    config->dt_softplus = g->dt_softplus;
    const int32_t in_prefill = g->dt_clamp == HB_CLAMP_LIMIT || g->dt_clamp == HB_CLAMP_PREFILL;
    const int32_t in_decode = g->dt_clamp == HB_CLAMP_LIMIT || g->dt_clamp == HB_CLAMP_DECODE;
    config->dt_clamp_prefill = in_prefill ? HB_DT_CLAMP_LIMIT : HB_DT_CLAMP_NONE;
    config->dt_clamp_decode = in_decode ? HB_DT_CLAMP_LIMIT : HB_DT_CLAMP_NONE;
    struct hb_rng r = hb_rng_make((uint32_t)g->seed, 0x64745f6c696d6974u);
    const int32_t lo = hb_rng_below(&r, 4);
    const int32_t hi = hb_rng_below(&r, 4);
    config->dt_lo = g->dt_clamp == HB_CLAMP_NONE ? 0.0f : lower[lo];
    config->dt_hi = g->dt_clamp == HB_CLAMP_NONE ? INFINITY : upper[hi];
    config->norm_eps = g->eps ? 1e-6f : 1e-5f;
    config->n_q_heads = g->q_heads;
    config->n_kv_heads = g->kv_heads;
    config->attn_dim = g->attn_dim;
    config->n_slots = slots_held(c) + g->spare_slots;
    config->n_slots = config->n_slots < 1 ? 1 : config->n_slots;
    config->req_pool_size = HB_MAX_REQS + 1;
    config->max_context = w.context < 4 ? 4 : (w.context + 3) / 4 * 4;
    /* every token and prefix token once, a restarted request's tokens once more */
    config->n_kv = (int32_t)w.tokens + w.prefixes + w.restarts * w.context + 8;
    if (g->kv_page != HB_KV_PAGE_1) {
        config->n_kv = (w.pages + 2) * hb_case_kv_page(g);
    }
    config->max_batch = w.batch_rows + 2;
    config->max_draft = g->max_draft;
    config->spec_rows = w.verify_rows + g->spare_rows;
    config->spec_rows = g->max_draft == 0 ? 0 : config->spec_rows < 1 ? 1 : config->spec_rows;
    config->max_tokens = w.batch_tokens + 4;
    configure_features(g, config);
    configure_variants(g, config);
    config->kernel_form = g->kernel_form;
    config->thread_order = g->thread_order;
    config->block_order = g->block_order;
    config->order_seed = (uint32_t)g->order_seed;
}
