/* SPDX-License-Identifier: Apache-2.0
 * Variants of a case in normal form: which of them a mixer reads, and which a value class allows. */
#include <string.h>

#include "harness/case_internal.h"

/* --- sizes ------------------------------------------------------------------------------------ */

#define SIZE(member, hi) {offsetof(struct hb_case_config, member), hi}
/* The largest sizes of a case that is not of real size. */
static const struct {
    size_t offset;
    int32_t hi;
} small_sizes[] = {
    SIZE(heads, 8),   SIZE(head_dim, 80), SIZE(state_size, 128), SIZE(groups, 8),
    SIZE(q_heads, 8), SIZE(kv_heads, 8),  SIZE(attn_dim, 32),    SIZE(chunk_size, 64),
    SIZE(attn_window, 255),
};
enum { N_SMALL_SIZES = sizeof small_sizes / sizeof small_sizes[0] };

void hb_case_limit_sizes(struct hb_case_config *g, int is_folded) {
    for (int32_t i = 0; i < N_SMALL_SIZES && !g->real_size; i++) {
        int32_t v;
        char *at = (char *)g + small_sizes[i].offset;
        memcpy(&v, at, sizeof v);
        const int32_t hi = small_sizes[i].hi;
        v = v <= hi ? v : is_folded ? 1 + (v - 1) % hi : hi;
        memcpy(at, &v, sizeof v);
    }
}

/* --- variants --------------------------------------------------------------------------------- */

#define MIXER(name) (1u << HB_MIXER_##name)
#define DELTA (MIXER(GDN) | MIXER(KDA))
#define WITH_GROUPS (MIXER(MAMBA2) | DELTA | MIXER(LIGHTNING))
#define VARIANT(member, mixers, exact) {offsetof(struct hb_case_config, member), mixers, exact}
enum { ANY = -1 };
/* Fields that some mixers do not read, and are 0 there. exact: the one value that the exact class allows, as it needs sums
 * without transcendental functions and divisions; ANY where it does not matter. */
static const struct {
    size_t offset;
    uint32_t mixers;
    int32_t exact;
} variants[] = {
    VARIANT(head_map, WITH_GROUPS, ANY),
    VARIANT(state_layout, WITH_GROUPS | MIXER(MAMBA1), ANY),
    VARIANT(out_gate, WITH_GROUPS | MIXER(MAMBA1), ANY),
    VARIANT(conv_state_len, ~MIXER(LIGHTNING), ANY),
    VARIANT(l2norm, DELTA, HB_L2_OFF),
    VARIANT(beta_form, DELTA, HB_BETA_RAW),
    VARIANT(gate_form, MIXER(KDA), HB_GATE_STANDARD),
    VARIANT(gate_bound, MIXER(KDA), ANY),
    VARIANT(qk_scale, DELTA | MIXER(LIGHTNING), 1), /* a factor of 1 */
    VARIANT(slope_kind, MIXER(LIGHTNING), ANY),
    VARIANT(layer_factor, MIXER(LIGHTNING), HB_FACTOR_NONE),
    VARIANT(qkv_act, MIXER(LIGHTNING), HB_QKV_NONE),
    VARIANT(ring_length, MIXER(MAMBA2), ANY),
};
enum { N_VARIANTS = sizeof variants / sizeof variants[0] };

/* Exact sums exist without transcendental functions only; any activation type is allowed. */
static void normalize_exact(struct hb_case_config *g) {
    g->conv_act = HB_CONV_NONE;
    g->gate_norm = HB_GATE_NORM_NONE;
    g->dt_softplus = 0;
    g->dt_clamp = HB_CLAMP_NONE;
    if (g->mixer == HB_MIXER_LIGHTNING && g->slope_kind != HB_SLOPE_TOKEN) {
        g->slope_kind = HB_SLOPE_PARAM; /* the others decay */
    }
}

void hb_case_normalize_variants(struct hb_case_config *g) {
    const int is_exact = g->value_class == HB_VALUES_EXACT;
    for (int32_t i = 0; i < N_VARIANTS; i++) {
        int32_t v;
        char *at = (char *)g + variants[i].offset;
        memcpy(&v, at, sizeof v);
        v = is_exact && variants[i].exact != ANY ? variants[i].exact : v;
        v = (variants[i].mixers & (1u << g->mixer)) != 0 ? v : 0;
        memcpy(at, &v, sizeof v);
    }
    if (is_exact) {
        normalize_exact(g);
    }
    g->gate_bound = g->gate_form == HB_GATE_LOWER_BOUND ? g->gate_bound : 0;
    if (g->slope_kind == HB_SLOPE_PARAM || g->slope_kind == HB_SLOPE_FLA || g->slope_kind == HB_SLOPE_TOKEN) {
        g->layer_factor = HB_FACTOR_NONE; /* not read */
    }
    g->window_rule = g->attn_window == 0 ? HB_WINDOW_EXCLUSIVE : g->window_rule;
    g->page_order = g->kv_page == HB_KV_PAGE_1 ? HB_PAGES_SHUFFLED : g->page_order;
}
