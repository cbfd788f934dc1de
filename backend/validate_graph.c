/* SPDX-License-Identifier: Apache-2.0
 * Batch checks of captures and replays (graph.md sections 3 and 5): what is captured, sizes, the
 * padding count; and what no call or no graph supports. Rules 15..19, 68, 69, 74, 78, 79, 140..142.
 */
#include "backend/config.h"
#include "backend/validate.h"

#include <stddef.h>

#include "backend/defects.h"

static int32_t fail(const struct hb_batch_view *v, int32_t rule, int64_t row, int64_t value,
                    int64_t limit) {
    return hb_fail(v->err, rule, (int32_t)row, value, limit);
}

static int32_t has_links(const struct hb_batch *b) {
    return b->retrieve_next_token.data != NULL && b->retrieve_next_sibling.data != NULL;
}

/* Rules 15..19. A batch size that no graph can have is left to rule 74. */
int32_t hb_validate_graph_state(const struct hb_batch_view *v) {
    const struct hb_graph_facts *g = v->env->graphs;
    const int32_t mode = v->batch->forward_mode;
    if (!g->is_ready) {
        return fail(v, HB_RULE_GRAPH_NO_INIT, -1, 0, 0);
    }
    if (v->n_rows < 1 || v->n_rows > g->max_bs) {
        return HB_OK;
    }
    const int32_t is_captured = g->set[v->n_rows - 1].is_captured;
    if (v->call == HB_CALL_CAPTURE) {
        return is_captured ? fail(v, HB_RULE_GRAPH_TWICE, -1, v->n_rows, 0) : HB_OK;
    }
    if (!is_captured) {
        return fail(v, HB_RULE_GRAPH_NOT_CAPTURED, -1, v->n_rows, 0);
    }
    if (g->set[v->n_rows - 1].mode != mode) {
        return fail(v, HB_RULE_GRAPH_MODE, -1, mode, g->set[v->n_rows - 1].mode);
    }
    const int32_t captured_links = g->set[v->n_rows - 1].has_links;
    if (v->is_verify && has_links(v->batch) != captured_links) {
        return fail(v, HB_RULE_GRAPH_LINKS, -1, has_links(v->batch), captured_links);
    }
    return HB_OK;
}

/* Rules 68, 69. */
int32_t hb_validate_graph_shape(const struct hb_batch_view *v) {
    const int32_t draft = v->env->graphs->draft;
    const int64_t n_tokens = v->n_rows * (v->is_verify ? draft : 1);
    if (v->batch->n_tokens != n_tokens) {
        return fail(v, HB_RULE_GRAPH_TOKENS, -1, v->batch->n_tokens, n_tokens);
    }
    if (v->is_verify && v->batch->draft_token_num != draft) {
        return fail(v, HB_RULE_GRAPH_DRAFT, -1, v->batch->draft_token_num, draft);
    }
    return HB_OK;
}

/* Rule 74. */
int32_t hb_validate_graph_capacity(const struct hb_batch_view *v) {
    const int32_t most = v->env->graphs->max_bs;
    return v->n_rows < 1 || v->n_rows > most ? fail(v, HB_RULE_GRAPH_CAPACITY, -1, v->n_rows, most)
                                             : HB_OK;
}

/* Rule 79: entries equal to the fill value are padding, which is last. *n := their number. */
static int32_t count_padding(struct hb_batch_view *v, int64_t *n) {
    const int32_t *lens = v->batch->seq_lens_cpu.data;
    int64_t first = -1;
    *n = 0;
    for (int64_t r = 0; r < v->n_rows; r++) {
        const int32_t is_padding = lens[r] == HB_PAD_SEQ_LEN;
        *n += is_padding;
        first = first < 0 && is_padding ? r : first;
    }
    for (int64_t r = first + 1; first >= 0 && r < v->n_rows; r++) {
        if (lens[r] != HB_PAD_SEQ_LEN) {
            if (HB_DEFECT(v->env->config->defect, PAD_COUNT_MIDDLE)) {
                v->has_cpu_lens = 0; /* the last rows are padding, wherever the ones were */
                return HB_OK;
            }
            return fail(v, HB_RULE_PADDING_COUNT, first, HB_PAD_SEQ_LEN, r);
        }
    }
    return HB_OK;
}

/* Rules 78, 79; then R and the real tokens, which are the first. */
int32_t hb_validate_graph_padding(struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    int64_t n_padding = v->is_idle ? v->n_rows : 0;
    if (!v->is_idle && b->has_num_padding) {
        n_padding = b->num_padding;
        if (n_padding < 0 || n_padding > v->n_rows) {
            return fail(v, HB_RULE_PADDING_RANGE, -1, n_padding, v->n_rows);
        }
    } else if (!v->is_idle && v->has_cpu_lens) {
        const int32_t status = count_padding(v, &n_padding);
        if (status != HB_OK) {
            return status;
        }
    }
    v->n_live = v->n_rows - n_padding;
    v->n_real = v->n_live * (v->is_verify ? v->env->graphs->draft : 1);
    return HB_OK;
}

int32_t hb_validate_unsupported(const struct hb_batch_view *v) {
    const struct hb_batch *b = v->batch;
    if (v->is_verify && v->call != HB_CALL_BEGIN && b->ragged_verify_layout.data != NULL) {
        return fail(v, HB_RULE_GRAPH_RAGGED, -1, 0, 0);
    }
    if (v->is_verify && has_links(b) && v->env->config->window_layout == HB_WINDOWS_STRIP) {
        return fail(v, HB_RULE_STRIP_TREE, -1, 0, 0);
    }
    if (v->is_verify && has_links(b) && hb_config_ring_commits(v->env->config)) {
        return fail(v, HB_RULE_RING_TREE, -1, 0, 0);
    }
    return HB_OK;
}
