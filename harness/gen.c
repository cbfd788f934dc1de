/* SPDX-License-Identifier: Apache-2.0
 * Seeded generation: a configuration of the asked size, a valid history, and the class's breaks. */
#include "harness/gen.h"

#include <limits.h>
#include <string.h>

#include "backend/adapter.h"
#include "harness/gen_history.h"

enum { MAX_RECIPES = 256, TRIES = 8 };

void hb_gen_options_init(struct hb_gen_options *o) {
    memset(o, 0, sizeof *o);
    o->target = HB_TARGET_FORWARD;
    o->size = HB_SIZE_DEFAULT;
    o->gen_class = HB_GEN_MIX;
    o->act_dtype = -1;
    o->state_dtype = -1;
    o->kernel_form = -1;
    o->relation = -1;
}

/* --- configuration
 * ---------------------------------------------------------------------------------------------- */

struct size_limits {
    int32_t heads, head_dim_lo, head_dim_hi, state_lo, state_hi, attn_dim;
    int32_t requests, tokens;
};

static const struct size_limits small_size = {2, 1, 4, 1, 8, 4, 2, 12};
static const struct size_limits default_size = {4, 1, 8, 1, 16, 8, 4, 24};
static const struct size_limits large_size = {2, 16, 80, 16, 128, 32, 3, 130};
static const struct size_limits tiny_size = {1, 1, 2, 1, 2, 2, 2, 8};

static int32_t pick_divisor(struct hb_rng *r, int32_t n) {
    int32_t d = 1 + hb_rng_below(r, n);
    while (n % d != 0) {
        d--;
    }
    return d;
}

static void pick_sizes(struct hb_rng *r, const struct size_limits *z, struct hb_case_config *g) {
    static const int32_t chunks[] = {4, 8, 16};
    static const int32_t pages[] = {0, 0, 0, 0, 1, 1, 2, 4};
    g->heads = 1 + hb_rng_below(r, z->heads);
    g->head_dim = hb_rng_range(r, z->head_dim_lo, z->head_dim_hi);
    g->state_size = hb_rng_range(r, z->state_lo, z->state_hi);
    g->groups = pick_divisor(r, g->heads);
    g->conv_width = hb_rng_range(r, 2, HB_MAX_CONV_WIDTH);
    g->chunk_size = chunks[hb_rng_below(r, 3)];
    g->page_chunks = pages[hb_rng_below(r, 8)];
    g->q_heads = 1 + hb_rng_below(r, 4);
    g->kv_heads = pick_divisor(r, g->q_heads);
    g->attn_dim = 1 + hb_rng_below(r, z->attn_dim);
    if (z == &large_size) {
        g->chunk_size = hb_rng_one_in(r, 2) ? 16 << hb_rng_below(r, 3) : g->chunk_size;
        g->page_chunks = g->chunk_size > 32 ? 0 : g->page_chunks;
    }
}

static void pick_variants(struct hb_rng *r, struct hb_case_config *g) {
    g->conv_act = hb_rng_one_in(r, 8) ? HB_CONV_NONE : HB_CONV_SILU;
    g->gate_norm = hb_rng_one_in(r, 2) ? HB_GATE_NORM_AFTER : hb_rng_below(r, HB_N_GATE_NORMS);
    g->norm_group = hb_rng_below(r, 2) ? HB_NORM_WHOLE : HB_NORM_GROUP;
    g->dt_softplus = !hb_rng_one_in(r, 8);
    g->dt_clamp = hb_rng_one_in(r, 3) ? hb_rng_below(r, HB_N_CLAMPS) : HB_CLAMP_NONE;
    g->eps = hb_rng_below(r, 2);
    g->conv_bias = hb_rng_below(r, 2);
    g->dt_bias = !hb_rng_one_in(r, 4);
    g->skip_d = hb_rng_one_in(r, 3);
}

static void pick_config(struct hb_gen_state *g, const struct size_limits *z) {
    struct hb_rng *r = &g->rng;
    struct hb_case_config *cfg = &g->c->config;
    const struct hb_gen_options *o = g->o;
    cfg->target = o->target;
    pick_sizes(r, z, cfg);
    pick_variants(r, cfg);
    cfg->n_layers = 3;
    cfg->attn_mask = 1 << hb_rng_below(r, 3);
    if (hb_rng_one_in(r, 8)) {
        cfg->n_layers = 1 + hb_rng_below(r, 4);
        cfg->attn_mask = hb_rng_below(r, 1 << cfg->n_layers);
    }
    if (z == &tiny_size) {
        cfg->n_layers = hb_rng_one_in(r, 3) ? 2 : 1;
        cfg->attn_mask = hb_rng_below(r, 1 << cfg->n_layers);
    }
    cfg->act_dtype = o->act_dtype >= 0 ? o->act_dtype : hb_rng_below(r, HB_N_FLOAT_DTYPES);
    cfg->state_dtype = o->state_dtype >= 0 ? o->state_dtype : hb_rng_one_in(r, 3);
    cfg->kernel_form = o->kernel_form >= 0 ? o->kernel_form : !hb_rng_one_in(r, 4);
    cfg->spare_slots = hb_rng_below(r, 5);
    cfg->thread_order = hb_rng_one_in(r, 2) ? HB_ORDER_ASCENDING : hb_rng_below(r, HB_N_ORDERS);
    cfg->block_order = hb_rng_one_in(r, 2) ? HB_ORDER_ASCENDING : hb_rng_below(r, HB_N_ORDERS);
    cfg->order_seed = hb_rng_below(r, 256);
    cfg->value_class =
        hb_rng_one_in(r, 3)   ? hb_rng_below(r, HB_N_VALUE_CLASSES)
        : hb_rng_one_in(r, 2) ? HB_VALUES_ONE_SIGN
                              : HB_VALUES_ORDINARY;
    cfg->unread = hb_rng_below(r, HB_N_UNREAD);
    hb_gen_configure_features(g);
    cfg->seed = (int32_t)(uint32_t)hb_rng_next(r);
}

/* What a recipe needs of the configuration. */
static void meet_needs(struct hb_gen_state *g) {
    struct hb_case_config *cfg = &g->c->config;
    if ((g->needs & HB_NEED_ATTENTION) && cfg->attn_mask == 0) {
        cfg->attn_mask = 1 << hb_rng_below(&g->rng, cfg->n_layers);
    }
    if ((g->needs & HB_NEED_MAMBA) && cfg->attn_mask == (1 << cfg->n_layers) - 1) {
        cfg->attn_mask &= cfg->attn_mask - 1;
    }
    if (g->needs & HB_NEED_CLAMP) {
        cfg->dt_clamp = HB_CLAMP_LIMIT;
        cfg->value_class =
            cfg->value_class == HB_VALUES_EXACT ? HB_VALUES_ORDINARY : cfg->value_class;
    }
    if ((g->needs & HB_NEED_CHUNK_8) && cfg->chunk_size < 8) {
        cfg->chunk_size = 8;
    }
    if ((g->needs & HB_NEED_FREE_SLOT) && cfg->spare_slots == 0) {
        cfg->spare_slots = 1;
    }
    if ((g->needs & HB_NEED_TWO_SLOTS) && cfg->spare_slots < 2) {
        cfg->spare_slots = 2;
    }
}

/* --- forward target
 * --------------------------------------------------------------------------------------------- */

static const struct size_limits *pick_size(struct hb_gen_state *g) {
    switch (g->o->size) {
    case HB_SIZE_SMALL:
        return &small_size;
    case HB_SIZE_LARGE:
        return &large_size;
    default:
        if (g->o->target == HB_TARGET_METADATA) {
            return &small_size; /* tensors hardly matter */
        }
        return hb_rng_one_in(&g->rng, 16) ? &large_size : &default_size;
    }
}

static void begin_case(struct hb_gen_state *g, const struct size_limits *z) {
    memset(&g->has, 0, sizeof g->has);
    g->relation = 0;
    hb_gen_pick_features(g);
    hb_case_init(g->c);
    pick_config(g, z);
    meet_needs(g);
    g->max_requests = z->requests;
    g->max_tokens = z->tokens;
}

/* The normal form would shorten rows of a case with too much work, and so take the ground from
 * under its tracking: smaller sizes instead. */
static void fit_work(struct hb_case *c) {
    for (;;) {
        struct hb_case normal;
        memcpy(&normal, c, sizeof normal);
        hb_case_normalize(&normal);
        struct hb_case_config *g = &c->config;
        const int is_smallest = g->head_dim == 1 && g->state_size == 1 && g->attn_dim == 1;
        if (is_smallest || memcmp(normal.step, c->step, sizeof c->step) == 0) {
            memcpy(c, &normal, sizeof *c);
            return;
        }
        int32_t *largest = g->head_dim > g->state_size ? &g->head_dim : &g->state_size;
        *largest = (*largest + 1) / 2;
        g->attn_dim = (g->attn_dim + 1) / 2;
    }
}

static void valid_case(struct hb_gen_state *g) {
    begin_case(g, pick_size(g));
    hb_gen_history(g);
    fit_work(g->c);
}

static void name_relation(struct hb_gen_state *g) {
    struct hb_case_config *cfg = &g->c->config;
    cfg->relation = g->relation;
    cfg->relation_arg = cfg->relation > 0 ? hb_rng_below(&g->rng, 256) : 0;
}

/* The wanted recipe if a valid case can be made that takes it, else any that fits. */
static void broken_case(struct hb_gen_state *g) {
    struct hb_recipe_info info[MAX_RECIPES];
    const int n = hb_recipes(info, MAX_RECIPES);
    int wanted = hb_rng_below(&g->rng, n);
    while (info[wanted].unreachable) {
        wanted = (wanted + 1) % n;
    }
    for (int i = 0; i < TRIES; i++) {
        g->needs = info[wanted].needs;
        valid_case(g);
        if (hb_recipe_apply(g->c, wanted, &g->rng)) {
            return;
        }
    }
    for (int i = 0; i < n; i++) {
        if (hb_recipe_apply(g->c, (wanted + i) % n, &g->rng)) {
            return;
        }
    }
}

/* Two to four breaks: recipes as long as they fit. */
static void several_breaks(struct hb_gen_state *g) {
    struct hb_recipe_info info[MAX_RECIPES];
    const int n = hb_recipes(info, MAX_RECIPES);
    const int32_t wanted = hb_rng_range(&g->rng, 2, HB_MAX_BREAKS);
    for (int i = 0; i < 64 && g->c->n_breaks < wanted; i++) {
        const int k = hb_rng_below(&g->rng, n);
        /* a configuration that is refused would hide every other break */
        if (info[k].rule < HB_RULE_CFG_LAYERS || hb_rng_one_in(&g->rng, 8)) {
            (void)hb_recipe_apply(g->c, k, &g->rng);
        }
    }
}

/* Of the mixture, in percent: valid, near, broken; the rest is several. */
static const struct shares {
    int32_t valid, near, broken;
} shares[HB_N_TARGETS] = {
    [HB_TARGET_FORWARD] = {55, 20, 15}, [HB_TARGET_DISPATCH] = {55, 20, 15},
    [HB_TARGET_VERIFY] = {55, 20, 15},  [HB_TARGET_METADATA] = {8, 7, 45},
    [HB_TARGET_TRACK] = {60, 20, 12},   [HB_TARGET_GRAPH] = {60, 20, 12},
    [HB_TARGET_SLOTS] = {55, 15, 20},
};

static int32_t pick_class(struct hb_gen_state *g) {
    if (g->o->gen_class != HB_GEN_MIX) {
        return g->o->gen_class;
    }
    if (g->o->relation > 0) {
        return HB_GEN_VALID;
    }
    const struct shares *s = &shares[g->o->target];
    const int32_t p = hb_rng_below(&g->rng, 100);
    return p < s->valid                        ? HB_GEN_VALID
           : p < s->valid + s->near            ? HB_GEN_NEAR
           : p < s->valid + s->near + s->broken ? HB_GEN_BROKEN
                                               : HB_GEN_SEVERAL;
}

static void forward_case(struct hb_gen_state *g) {
    switch (pick_class(g)) {
    case HB_GEN_NEAR:
        g->is_near = 1;
        valid_case(g);
        break;
    case HB_GEN_BROKEN:
        broken_case(g);
        break;
    case HB_GEN_SEVERAL:
        valid_case(g);
        several_breaks(g);
        break;
    default:
        g->may_relate = g->o->target != HB_TARGET_METADATA; /* whose outputs nobody looks at */
        valid_case(g);
        name_relation(g);
        break;
    }
}

/* --- dispatch target
 * -------------------------------------------------------------------------------------------- */

static int32_t odd_mode(struct hb_rng *r) {
    static const int32_t modes[] = {0,  1,  2, 3,       4,       5, 6,  7,   8,      9,
                                    10, -1, 7, INT_MAX, INT_MIN, 0, 11, 256, 1 << 16};
    return modes[hb_rng_below(r, (int32_t)(sizeof modes / sizeof *modes))];
}

static void add_layer_break(struct hb_gen_state *g) {
    if (g->c->n_breaks == HB_MAX_BREAKS || g->c->n_steps == 0) {
        return;
    }
    static const int64_t ids[] = {-1, 0, 1, 2, 3, 8, 100, INT_MAX, INT_MIN};
    struct hb_case_break *b = &g->c->brk[g->c->n_breaks++];
    b->step = g->c->n_steps - 1;
    b->field = HB_FIELD_LAYER_ID;
    b->operation = HB_BREAK_SET;
    b->value = ids[hb_rng_below(&g->rng, (int32_t)(sizeof ids / sizeof *ids))];
}

/* Modes, entries, layer ids and call order on the smallest model; tensors hardly matter. */
static void dispatch_case(struct hb_gen_state *g) {
    const int32_t class = pick_class(g);
    g->is_near = class == HB_GEN_NEAR;
    begin_case(g, &tiny_size);
    g->c->config.value_class = HB_VALUES_ORDINARY;
    hb_history_init(&g->h, HB_MAX_HELD, 0);
    if (hb_rng_below(&g->rng, 8) > 0) {
        (void)hb_gen_add_take(g, hb_rng_below(&g->rng, HB_MAX_REQS), 0, hb_rng_below(&g->rng, 3),
                              -1);
    }
    const int32_t n = 1 + hb_rng_below(&g->rng, 4);
    const int is_broken = class == HB_GEN_BROKEN || class == HB_GEN_SEVERAL;
    for (int32_t i = 0; i < n; i++) {
        if (hb_rng_one_in(&g->rng, 3)) {
            (void)hb_gen_add_entry(g);
            continue;
        }
        if (!hb_gen_add_forward(g)) {
            break;
        }
        if (class != HB_GEN_VALID && g->o->mode == 0 && hb_rng_one_in(&g->rng, 2)) {
            g->c->step[g->c->n_steps - 1].mode = odd_mode(&g->rng);
        }
        if (is_broken && hb_rng_one_in(&g->rng, 2)) {
            add_layer_break(g);
        }
    }
    hb_case_normalize(g->c);
    if (class == HB_GEN_SEVERAL) {
        several_breaks(g);
    }
}

/* --- metadata target
 * -------------------------------------------------------------------------------------------- */

/* A field of some forward's batch is set to a value that may mean anything. */
static void wild_break(struct hb_gen_state *g) {
    static const int64_t values[] = {0,       1,       -1,        2,         3,        7,       64,
                                     INT_MAX, INT_MIN, INT64_MAX, INT64_MIN, 1LL << 32, 1 << 30, -2};
    struct hb_case *c = g->c;
    const int32_t start = hb_rng_below(&g->rng, c->n_steps);
    for (int32_t i = 0; i < c->n_steps && c->n_breaks < HB_MAX_BREAKS; i++) {
        const int32_t step = (start + i) % c->n_steps;
        const int32_t kind = c->step[step].kind;
        if (kind != HB_STEP_FORWARD && kind != HB_STEP_CAPTURE) {
            continue;
        }
        c->brk[c->n_breaks++] = (struct hb_case_break){
            .step = step,
            .field = hb_rng_below(&g->rng, HB_FIELD_COMMIT_POINTER),
            .row = hb_rng_below(&g->rng, 5),
            .operation = hb_rng_below(&g->rng, HB_N_BREAK_OPS),
            .value = values[hb_rng_below(&g->rng, (int32_t)(sizeof values / sizeof *values))]};
        return;
    }
}

/* Batches of every mode and of none, with one fault or several. */
static void metadata_case(struct hb_gen_state *g) {
    forward_case(g);
    const int is_broken = g->c->n_breaks > 0 && g->o->gen_class != HB_GEN_BROKEN;
    if (!is_broken || hb_rng_one_in(&g->rng, 2)) {
        return;
    }
    wild_break(g);
    for (int32_t i = 0; i < g->c->n_steps; i++) {
        struct hb_case_step *s = &g->c->step[i];
        if (s->kind == HB_STEP_FORWARD && hb_rng_one_in(&g->rng, 5)) {
            s->mode = odd_mode(&g->rng);
        }
    }
}

void hb_gen_case(const struct hb_gen_options *o, uint64_t seed, uint64_t index,
                 struct hb_case *out) {
    struct hb_gen_state g;
    memset(&g, 0, sizeof g);
    g.c = out;
    g.rng = hb_rng_make(seed, index);
    g.o = o;
    if (o->target == HB_TARGET_DISPATCH) {
        dispatch_case(&g);
    } else if (o->target == HB_TARGET_METADATA) {
        metadata_case(&g);
    } else {
        forward_case(&g);
    }
    hb_case_normalize(out);
}
