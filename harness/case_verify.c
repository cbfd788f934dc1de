/* SPDX-License-Identifier: Apache-2.0
 * Draft verification in a case: node counts, trees, normal form. */
#include "backend/batch.h"
#include "harness/case_internal.h"
#include "harness/rng.h"

int hb_step_is_verify(const struct hb_case_step *s) {
    return (s->kind == HB_STEP_FORWARD || s->kind == HB_STEP_ENTRY) &&
           s->mode == HB_MODE_TARGET_VERIFY;
}

/* D follows from the rows unless it is given; then no row has more nodes. Uniform rows have D nodes
 * each. */
static void normalize_verify(struct hb_case_step *s) {
    int32_t longest = s->draft > 0 ? 1 : 0;
    for (int32_t r = 0; r < s->n_rows; r++) {
        const int32_t most = s->draft > 0 ? s->draft : HB_MAX_DRAFT;
        s->row[r].length = clamp(s->row[r].length, 1, most);
        s->row[r].track = 0; /* nothing is tracked in a verify */
        s->row[r].track_slot = 0;
        s->row[r].track_point = 0;
        longest = s->row[r].length > longest ? s->row[r].length : longest;
    }
    for (int32_t r = 0; r < s->n_rows && !s->ragged; r++) {
        s->row[r].length = s->draft > 0 ? s->draft : longest;
    }
    s->pad_tokens = s->ragged ? clamp(s->pad_tokens, 0, s->pad_rows * hb_case_draft(s)) : 0;
}

int32_t hb_case_draft(const struct hb_case_step *s) {
    int32_t longest = s->draft;
    if (!hb_step_is_verify(s)) {
        return 0;
    }
    for (int32_t r = 0; r < s->n_rows && s->draft == 0; r++) {
        longest = s->row[r].length > longest ? s->row[r].length : longest;
    }
    return longest < 1 ? 1 : longest;
}

/* Ragged: as even as possible, each within D (speculative.md section 2). */
int32_t hb_case_padding_nodes(const struct hb_case_step *s, int32_t i) {
    const int32_t draft = hb_case_draft(s);
    if (!s->ragged) {
        return draft;
    }
    const int32_t n = s->pad_tokens / s->pad_rows + (i < s->pad_tokens % s->pad_rows);
    return n < draft ? n : draft;
}

void hb_case_tree(const struct hb_case *c, const struct hb_case_step *s, int32_t row, int32_t n,
                  int32_t *parent) {
    struct hb_rng r = hb_rng_make((uint32_t)c->config.seed + ((uint64_t)(uint32_t)s->tree << 32),
                                  0x6472616674u + (uint64_t)(uint32_t)row);
    for (int32_t t = 0; t < n; t++) {
        /* half of the nodes continue the last one, so that trees are deep as well as wide */
        const int32_t any = hb_rng_below(&r, t);
        const int32_t is_next = hb_rng_one_in(&r, 2) || s->tree < HB_TREE_RANDOM;
        parent[t] = t == 0 ? 0 : is_next ? t - 1 : any;
    }
}

void hb_case_normalize_draft(struct hb_case_step *s) {
    if (hb_step_is_verify(s)) {
        normalize_verify(s);
    } else {
        s->draft = 0;
        s->ragged = 0;
        s->tree = 0;
    }
}
