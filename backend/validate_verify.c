/* SPDX-License-Identifier: Apache-2.0
 * Batch checks of TARGET_VERIFY (speculative.md sections 1 to 3): node counts, links, the track
 * mask. Rules 60..64, 72, 73, 98..103. */
#include "backend/validate.h"

#include <stddef.h>

static int32_t fail(const struct hb_batch_view *v, int32_t rule, int64_t row, int64_t value,
                    int64_t limit) {
    return hb_fail(v->err, rule, (int32_t)row, value, limit);
}

/* Rules 62..64. */
static int32_t check_layout(const struct hb_batch_view *v) {
    const struct hb_i32s *layout = &v->batch->ragged_verify_layout;
    if (layout->len != v->n_rows + 1) {
        return fail(v, HB_RULE_RAGGED_LENGTH, -1, layout->len, v->n_rows + 1);
    }
    if (layout->data[0] != 0) {
        return fail(v, HB_RULE_RAGGED_ORDER, 0, layout->data[0], 0);
    }
    for (int64_t r = 1; r <= v->n_rows; r++) {
        if (layout->data[r] < layout->data[r - 1]) {
            return fail(v, HB_RULE_RAGGED_ORDER, r, layout->data[r], layout->data[r - 1]);
        }
    }
    if (layout->data[v->n_rows] != v->batch->n_tokens) {
        return fail(v, HB_RULE_RAGGED_TOTAL, -1, layout->data[v->n_rows], v->batch->n_tokens);
    }
    return HB_OK;
}

int32_t hb_validate_verify_shape(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    const int64_t n_nodes = v->n_rows * b->draft_token_num;
    const int32_t is_begin = v->call == HB_CALL_BEGIN;
    const int32_t is_ragged = is_begin && b->ragged_verify_layout.data != NULL;
    if (is_begin && !is_ragged && b->n_tokens != n_nodes) {
        return fail(v, HB_RULE_VERIFY_TOKENS, -1, b->n_tokens, n_nodes);
    }
    const struct hb_i32s links[2] = {b->retrieve_next_token, b->retrieve_next_sibling};
    for (int32_t i = 0; i < 2; i++) {
        if (links[i].data != NULL && links[i].len != n_nodes) {
            return fail(v, HB_RULE_LINKS_LENGTH, i, links[i].len, n_nodes);
        }
    }
    return is_ragged ? check_layout(v) : HB_OK;
}

/* Without intermediate caches there is no limit of D to compare with: rule 73 answers. The D of a
 * replay is that of its capture. */
int32_t hb_validate_verify_capacity(const struct hb_batch_view *v) {
    const struct hb_config *config = v->env->config;
    const int64_t nodes = v->batch->draft_token_num;
    if (v->call != HB_CALL_REPLAY && config->spec_rows > 0 && nodes > config->max_draft) {
        return fail(v, HB_RULE_DRAFT_CAPACITY, -1, nodes, config->max_draft);
    }
    if (v->n_rows > config->spec_rows) {
        return fail(v, HB_RULE_SPEC_ROWS_CAPACITY, -1, v->n_rows, config->spec_rows);
    }
    return HB_OK;
}

/* Rules 98, 99. */
static int32_t check_nodes(const struct hb_batch_view *v) {
    const int64_t most = v->batch->draft_token_num;
    if (most < 1) {
        return fail(v, HB_RULE_DRAFT_RANGE, -1, most, 1);
    }
    for (int64_t r = 0; r < v->n_rows; r++) {
        const int64_t n = hb_view_nodes(v, r);
        if (n > most || (n < 1 && r < v->n_live)) {
            return fail(v, HB_RULE_RAGGED_ROW, r, n, most);
        }
    }
    return HB_OK;
}

/* The links of one live row: next_token of its n nodes, then next_sibling. */
struct links {
    const int32_t *array[2];
    int64_t n;
};

static struct links links_of(const struct hb_batch_view *v, int64_t r) {
    const int64_t first = r * v->batch->draft_token_num;
    return (struct links){.array = {v->batch->retrieve_next_token.data + first,
                                    v->batch->retrieve_next_sibling.data + first},
                          .n = hb_view_nodes(v, r)};
}

/* Rule 100. */
static int32_t check_link_range(const struct hb_batch_view *v, int64_t r, const struct links *l) {
    for (int64_t i = 0; i < 2 * l->n; i++) {
        const int32_t link = l->array[i / l->n][i % l->n];
        if (link != -1 && (link < 1 || link >= l->n)) {
            return fail(v, HB_RULE_LINK_RANGE, r, link, l->n - 1);
        }
    }
    return HB_OK;
}

/* Rule 101: a child and a later sibling have larger indices; the root has no sibling. */
static int32_t check_link_order(const struct hb_batch_view *v, int64_t r, const struct links *l) {
    for (int64_t i = 0; i < 2 * l->n; i++) {
        const int64_t node = i % l->n;
        const int32_t link = l->array[i / l->n][node];
        const int32_t is_root_sibling = i == l->n;
        if (link != -1 && (link <= node || is_root_sibling)) {
            return fail(v, HB_RULE_LINK_ORDER, r, link, node);
        }
    }
    return HB_OK;
}

static int64_t count_links(const struct links *l, int64_t node) {
    int64_t n = 0;
    for (int64_t i = 0; i < 2 * l->n; i++) {
        n += l->array[i / l->n][i % l->n] == node;
    }
    return n;
}

/* Rule 102: every node but the root is reached once; nodes after the last reached one are unused.
 */
static int32_t check_link_tree(const struct hb_batch_view *v, int64_t r, const struct links *l) {
    int64_t last = 0;
    for (int64_t i = 0; i < 2 * l->n; i++) {
        const int32_t link = l->array[i / l->n][i % l->n];
        last = link > last ? link : last;
    }
    for (int64_t node = 1; node <= last; node++) {
        const int64_t times = count_links(l, node);
        if (times != 1) {
            return fail(v, HB_RULE_LINK_TREE, r, node, times);
        }
    }
    return HB_OK;
}

/* Rules 100..102, each over all live rows before the next. */
static int32_t check_links(const struct hb_batch_view *v) {
    typedef int32_t (*check_fn)(const struct hb_batch_view *v, int64_t r, const struct links *l);
    static const check_fn checks[] = {check_link_range, check_link_order, check_link_tree};
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        for (int64_t r = 0; r < v->n_live; r++) {
            const struct links links = links_of(v, r);
            const int32_t status = checks[i](v, r, &links);
            if (status != HB_OK) {
                return status;
            }
        }
    }
    return HB_OK;
}

int32_t hb_validate_verify_range(const struct hb_batch_view *v) {
    int32_t status = v->call == HB_CALL_BEGIN ? check_nodes(v) : HB_OK;
    if (status == HB_OK && v->batch->retrieve_next_token.data != NULL) {
        status = check_links(v);
    }
    if (status == HB_OK && v->first_mask >= 0) {
        return fail(v, HB_RULE_TRACK_MASK_VERIFY, v->first_mask, 0, 0);
    }
    return status;
}
