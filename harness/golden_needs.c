/* SPDX-License-Identifier: Apache-2.0
 * Which declared variants a golden case needs of a backend: the values, by name, of those fields of
 * its configuration that its linear kind reads. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "harness/case.h"
#include "harness/golden_internal.h"

enum {
    MAMBA2 = 1 << HB_LAYER_MAMBA2,
    DELTA = 1 << HB_LAYER_GDN | 1 << HB_LAYER_KDA,
    LIGHTNING = 1 << HB_LAYER_LIGHTNING,
    ALL = MAMBA2 | DELTA | LIGHTNING
};

/* clang-format off */
static const char *const kind_names[HB_N_LAYER_KINDS] = {"mamba2", "attention", "gdn", "kda", "lightning", "short_conv", "mamba1"};
static const char *const clamp_names[HB_N_DT_CLAMPS] = {"none", "limit", "min_only"};
static const char *const flag_names[2] = {"no", "yes"};

#define FIELD(name, kinds, names) {#name, offsetof(struct hb_config, name), kinds, names}
/* names null: those of the field of a case that is called the same. */
static const struct need {
    const char *name;
    size_t offset;
    int32_t kinds;
    const char *const *names;
} needs[] = {
    FIELD(conv_act, MAMBA2 | DELTA, NULL),
    FIELD(gate_norm, ALL, NULL),
    FIELD(out_gate, ALL, NULL),
    FIELD(dt_softplus, MAMBA2 | DELTA, flag_names),
    FIELD(dt_clamp_prefill, MAMBA2, clamp_names),
    FIELD(dt_clamp_decode, MAMBA2, clamp_names),
    FIELD(head_map, ALL, NULL),
    FIELD(l2norm, DELTA, NULL),
    FIELD(beta_form, DELTA, NULL),
    FIELD(gate_form, DELTA, NULL),
    FIELD(slope_kind, LIGHTNING, NULL),
    FIELD(layer_factor, LIGHTNING, NULL),
    FIELD(qkv_act, LIGHTNING, NULL),
};
/* clang-format on */

/* The names of a variant's values, from the table of case fields. */
static const char *const *names_of(const struct need *n) {
    const struct hb_case_field *f = NULL;
    const int count = hb_case_group_fields(HB_GROUP_CONFIG, &f);
    for (int i = 0; n->names == NULL && i < count; i++) {
        if (strcmp(f[i].name, n->name) == 0) {
            return f[i].names;
        }
    }
    return n->names;
}

/* A field that the kind reads, but whose values do not differ in this case. */
static int is_idle(const struct hb_golden_problem *p, const struct need *n) {
    const struct hb_config *c = &p->config;
    const int has_gate = c->gate_norm == HB_GATE_NORM_AFTER ||
                         c->gate_norm == HB_GATE_NORM_BEFORE || c->gate_norm == HB_GATE_ONLY;
    const int has_factor = c->slope_kind == HB_SLOPE_ALIBI || c->slope_kind == HB_SLOPE_MINIMAX;
    return (n->offset == offsetof(struct hb_config, out_gate) && !has_gate) ||
           (n->offset == offsetof(struct hb_config, head_map) &&
            (c->n_groups == 1 || c->n_groups == c->n_heads)) ||
           (n->offset == offsetof(struct hb_config, gate_form) && !c->dt_softplus) ||
           (n->offset == offsetof(struct hb_config, layer_factor) && !has_factor);
}

void hb_golden_needs(const struct hb_golden_problem *p, char *out, size_t cap) {
    const struct hb_config *c = &p->config;
    const int32_t kind = c->layer_kind[0];
    size_t used = (size_t)snprintf(out, cap, "%s", kind_names[kind]);
    for (size_t i = 0; i < sizeof needs / sizeof needs[0] && used < cap; i++) {
        const char *const *names = names_of(&needs[i]);
        int32_t value = 0;
        memcpy(&value, (const char *)c + needs[i].offset, sizeof value);
        if ((needs[i].kinds >> kind & 1) != 0 && names != NULL && !is_idle(p, &needs[i])) {
            used += (size_t)snprintf(out + used, cap - used, " %s=%s", needs[i].name,
                                     names[value]);
        }
    }
    if (used < cap && kind != HB_LAYER_MAMBA2) {
        (void)snprintf(out + used, cap - used, " qk_scale=%.9g", (double)c->qk_scale);
    }
}
