/* SPDX-License-Identifier: Apache-2.0
 * Transformations of the relations of invariants.md whose rows keep their order and their path:
 * errors, memory, padding, splits, tracking switched off. */
#include "harness/relations_internal.h"

int hb_relation_is_forward(const struct hb_case_step *s) {
    return s->kind == HB_STEP_FORWARD;
}

int hb_relation_is_extend(const struct hb_case_step *s) {
    return hb_relation_is_forward(s) &&
           (s->mode == HB_MODE_EXTEND || s->mode == HB_MODE_MIXED ||
            s->mode == HB_MODE_SPLIT_PREFILL || s->mode == HB_MODE_DLLM_EXTEND);
}

int hb_relation_has_track(const struct hb_case_step *s) {
    for (int32_t i = 0; i < s->n_rows; i++) {
        if (s->row[i].track) {
            return 1;
        }
    }
    return 0;
}

int hb_relation_has_restart(const struct hb_case *c) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (s->kind == HB_STEP_TAKE && (s->from >= 0 || s->match >= 0)) {
            return 1;
        }
    }
    return 0;
}

int hb_relation_is_plain(const struct hb_case *c) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        if (c->step[i].kind == HB_STEP_COPY) {
            return 0;
        }
    }
    return c->n_breaks == 0;
}

/* The same case; the twist of the table's row does the rest. */
int hb_relation_same_case(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)out;
    (void)twist;
    return hb_relation_is_plain(c);
}

static int add_padding(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step *s = &out->step[i];
        if (hb_relation_is_forward(s) && s->n_rows + s->pad_rows + 2 <= HB_MAX_ROWS) {
            s->pad_rows += 1 + c->config.relation_arg % 2;
            any = 1;
        }
    }
    out->config.unread = HB_UNREAD_NAN;
    return any && hb_relation_is_plain(c);
}

static int layer_alone(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int32_t keep = c->config.relation_arg % c->config.n_layers;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step *s = &out->step[i];
        if (hb_relation_is_forward(s)) {
            s->layer_mask |= ((1 << c->config.n_layers) - 1) & ~(1 << keep);
            if (c->step[i].layer_mask >> keep & 1) {
                return 0;
            }
        }
    }
    return hb_relation_is_plain(c) && c->config.n_layers > 1;
}

static int permute_decode(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step *s = &out->step[i];
        if (!hb_relation_is_forward(s) || s->mode != HB_MODE_DECODE || s->n_rows < 2) {
            continue;
        }
        int32_t by = 1 + c->config.relation_arg % (s->n_rows - 1);
        for (int32_t k = 0; k < s->n_rows; k++) {
            s->row[k] = c->step[i].row[(k + by) % s->n_rows];
        }
        any = 1;
    }
    return any && hb_relation_is_plain(c);
}

int hb_relation_append(struct hb_case *out, const struct hb_case_step *s) {
    if (out->n_steps >= HB_MAX_STEPS) {
        return 0;
    }
    out->step[out->n_steps++] = *s;
    return 1;
}

static int split_decode(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    out->n_steps = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step s = c->step[i];
        if (!hb_relation_is_forward(&s) || s.mode != HB_MODE_DECODE || s.n_rows < 2) {
            if (!hb_relation_append(out, &s)) {
                return 0;
            }
            continue;
        }
        for (int32_t k = 0; k < c->step[i].n_rows; k++) {
            s.n_rows = 1;
            s.row[0] = c->step[i].row[k];
            if (!hb_relation_append(out, &s)) {
                return 0;
            }
        }
        any = 1;
    }
    return any && hb_relation_is_plain(c);
}

/* extend(n) == extend(n1); extend(n2), cut anywhere, also shorter than the conv window. */
static int split_extend(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    out->n_steps = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (!hb_relation_is_extend(s) || s->n_decode > 0 || hb_relation_has_track(s)) {
            if (!hb_relation_append(out, s)) {
                return 0;
            }
            continue;
        }
        struct hb_case_step first = *s;
        struct hb_case_step second = *s;
        second.n_rows = 0;
        for (int32_t k = 0; k < s->n_rows; k++) {
            int32_t n = s->row[k].length;
            int32_t cut = n > 1 ? 1 + (c->config.relation_arg + k) % (n - 1) : 1;
            first.row[k].length = cut;
            if (n > cut) {
                second.row[second.n_rows] = s->row[k];
                second.row[second.n_rows++].length = n - cut;
            }
        }
        if (!hb_relation_append(out, &first) ||
            (second.n_rows > 0 && !hb_relation_append(out, &second))) {
            return 0;
        }
        any |= second.n_rows > 0;
    }
    return any && hb_relation_is_plain(c);
}

/* MIXED == EXTEND of the prefill rows, then DECODE of the others (both shapes). */
static int split_mixed(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    out->n_steps = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (!hb_relation_is_forward(s) || s->mode != HB_MODE_MIXED || hb_relation_has_track(s)) {
            if (!hb_relation_append(out, s)) {
                return 0;
            }
            continue;
        }
        int32_t n_decode = s->n_decode < s->n_rows ? s->n_decode : s->n_rows;
        int32_t np = s->n_rows - n_decode;
        while (n_decode == 0 && np > 0 && s->row[np - 1].length == 1) {
            np--; /* shape M1: trailing rows of length 1 */
        }
        struct hb_case_step extend = *s;
        struct hb_case_step decode = *s;
        extend.mode = HB_MODE_EXTEND;
        extend.n_rows = np;
        extend.n_decode = 0;
        decode.mode = HB_MODE_DECODE;
        decode.n_decode = 0;
        decode.n_rows = s->n_rows - np;
        for (int32_t k = 0; k < decode.n_rows; k++) {
            decode.row[k] = s->row[np + k];
        }
        if ((extend.n_rows > 0 && !hb_relation_append(out, &extend)) ||
            (decode.n_rows > 0 && !hb_relation_append(out, &decode))) {
            return 0;
        }
        any |= extend.n_rows > 0 && decode.n_rows > 0;
    }
    return any && hb_relation_is_plain(c);
}

static int tracking_off(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        for (int32_t k = 0; k < out->step[i].n_rows; k++) {
            any |= out->step[i].row[k].track;
            out->step[i].row[k].track = 0;
        }
    }
    return any && hb_relation_is_plain(c) && !hb_relation_has_restart(c);
}

/* All-false mask == no mask; one row's bit changes only that row's destination. */
static int mask_bits(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step *s = &out->step[i];
        if (!hb_relation_is_forward(s) || s->n_rows == 0) {
            continue;
        }
        if (!hb_relation_has_track(s)) {
            s->optional ^= 8;
            any = 1;
        } else if (!hb_relation_has_restart(c)) {
            s->row[c->config.relation_arg % s->n_rows].track = 0;
            any = 1;
        }
    }
    return any && hb_relation_is_plain(c);
}

#define MOVES_KV .flags = HB_REL_MOVES_KV
static const struct hb_transform transforms[] = {
    {8, .apply = hb_relation_same_case, .flags = HB_REL_WITH_ERRORS, .twist = {.insert_fail = 1}},
    {10, .apply = hb_relation_same_case, .flags = HB_REL_WITH_ERRORS, .twist = {.nan_inputs = 1}},
    {11, .apply = hb_relation_same_case, .flags = HB_REL_WITH_ERRORS, .twist = {.nan_pool = 1}},
    {12, .apply = add_padding, MOVES_KV},
    {14, .apply = hb_relation_same_case, .flags = HB_REL_WITH_ERRORS, .twist = {.nan_fresh = 1}},
    {17, .apply = layer_alone, .flags = HB_REL_ONLY_LAYER},
    {22, .apply = permute_decode, MOVES_KV},
    {23, .apply = split_decode, MOVES_KV},
    {26, HB_BOTH(HB_BOUNDED), .apply = split_extend, .conv_number = 27, MOVES_KV},
    {27, .outputs = HB_BOUNDED, .apply = split_extend, .flags = HB_REL_MOVES_KV | HB_REL_CONV_ONLY},
    {30, HB_BOTH(HB_BOUNDED), .apply = split_mixed,
     .flags = HB_REL_MOVES_KV | HB_REL_ONE_FORMULA},
    {37, .apply = tracking_off, .flags = HB_REL_SKIP_TRACKED},
    {40, .apply = mask_bits, .flags = HB_REL_SKIP_TRACKED},
};

const struct hb_transforms hb_transforms_base = HB_TRANSFORMS(transforms);
