/* SPDX-License-Identifier: Apache-2.0
 * Checks that only a verify has, for the prediction of begin (speculative.md sections 1-3): counts,
 * ragged layout, links, and the mask that must be off. Each relies on all rules with a lower
 * number.
 */
#include "harness/expect_internal.h"

/* ---- NULL, SHAPE ---- */

HB_EXPECT_CHECK(one_link_array) {
    (void)c;
    return (v->array[ARRAY_NEXT].data == NULL) != (v->array[ARRAY_SIBLING].data == NULL) &&
           report(f, -1, 0, 0);
}

static int64_t nodes_of_batch(const struct hb_expect_view *v) {
    return v->count[COUNT_BATCH] * v->batch->draft_token_num;
}

HB_EXPECT_CHECK(verify_tokens_differ) {
    int64_t given = v->count[COUNT_TOKENS];
    (void)c;
    return given != nodes_of_batch(v) && report(f, -1, given, nodes_of_batch(v));
}

HB_EXPECT_CHECK(links_length_differs) {
    static const int32_t arrays[2] = {ARRAY_NEXT, ARRAY_SIBLING};
    (void)c;
    for (int32_t i = 0; i < 2; i++) {
        if (v->array[arrays[i]].len != nodes_of_batch(v)) {
            return report(f, i, v->array[arrays[i]].len, nodes_of_batch(v));
        }
    }
    return 0;
}

HB_EXPECT_CHECK(layout_decreases) {
    int64_t before = 0;
    (void)c;
    for (int64_t r = 0; r < v->count[COUNT_LAYOUT]; r++) {
        int64_t entry = at32(v, ARRAY_LAYOUT, r);
        if (entry < before || (r == 0 && entry != 0)) {
            return report(f, r, entry, before);
        }
        before = entry;
    }
    return 0;
}

HB_EXPECT_CHECK(layout_total_differs) {
    int64_t total = at32(v, ARRAY_LAYOUT, v->count[COUNT_BATCH]);
    (void)c;
    return total != v->count[COUNT_TOKENS] && report(f, -1, total, v->count[COUNT_TOKENS]);
}

/* ---- CAPACITY ---- */

/* Without intermediate caches it is their rows that do not suffice, whatever D is. */
HB_EXPECT_CHECK(draft_over_capacity) {
    int64_t most = v->config->max_draft;
    (void)c;
    return v->config->spec_rows > 0 && v->batch->draft_token_num > most &&
           report(f, -1, v->batch->draft_token_num, most);
}

HB_EXPECT_CHECK(rows_over_caches) {
    int64_t rows = v->count[COUNT_BATCH];
    (void)c;
    return rows > v->config->spec_rows && report(f, -1, rows, v->config->spec_rows);
}

/* ---- RANGE ---- */

HB_EXPECT_CHECK(draft_low) {
    (void)c;
    return v->batch->draft_token_num < 1 && report(f, -1, v->batch->draft_token_num, 1);
}

HB_EXPECT_CHECK(row_nodes_outside) {
    int64_t most = v->batch->draft_token_num;
    (void)c;
    for (int64_t r = 0; r < v->count[COUNT_BATCH]; r++) {
        int64_t least = r < v->real_rows ? 1 : 0;
        if (nodes_of(v, r) < least || nodes_of(v, r) > most) {
            return report(f, r, nodes_of(v, r), most);
        }
    }
    return 0;
}

/* The links of a row, in the order in which they are judged: next_token of all nodes, then
 * next_sibling. */
struct link {
    int64_t from, to;
    int of_sibling;
};

static struct link link_at(const struct hb_expect_view *v, int64_t row, int64_t i) {
    int64_t nodes = nodes_of(v, row);
    int second = i >= nodes;
    int64_t from = second ? i - nodes : i;
    int32_t array = second ? ARRAY_SIBLING : ARRAY_NEXT;
    return (struct link){from, at32(v, array, row * v->batch->draft_token_num + from), second};
}

HB_EXPECT_CHECK(link_outside) {
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        int64_t most = nodes_of(v, r) - 1;
        for (int64_t i = 0; i < 2 * nodes_of(v, r); i++) {
            int64_t to = link_at(v, r, i).to;
            if (to != -1 && (to < 1 || to > most)) {
                return report(f, r, to, most);
            }
        }
    }
    return 0;
}

HB_EXPECT_CHECK(link_backwards) {
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        for (int64_t i = 0; i < 2 * nodes_of(v, r); i++) {
            struct link l = link_at(v, r, i);
            int of_root = l.of_sibling && l.from == 0;
            if (l.to != -1 && (l.to <= l.from || of_root)) {
                return report(f, r, l.to, l.from);
            }
        }
    }
    return 0;
}

static int64_t times_reached(const struct hb_expect_view *v, int64_t row, int64_t node) {
    int64_t times = 0;
    for (int64_t i = 0; i < 2 * nodes_of(v, row); i++) {
        times += link_at(v, row, i).to == node;
    }
    return times;
}

/* Every node but the root once; nodes that nothing reaches come last. */
HB_EXPECT_CHECK(link_no_tree) {
    (void)c;
    for (int64_t r = 0; r < v->real_rows; r++) {
        int64_t last = nodes_of(v, r) - 1;
        while (last > 0 && times_reached(v, r, last) == 0) {
            last--;
        }
        for (int64_t node = 1; node <= last; node++) {
            int64_t times = times_reached(v, r, node);
            if (times != 1) {
                return report(f, r, node, times);
            }
        }
    }
    return 0;
}

HB_EXPECT_CHECK(mask_in_verify) {
    (void)c;
    return report(f, v->first_masked, 0, 0);
}

/* ---- UNSUPPORTED ---- */

/* The windows of a strip overlap, so that a node's window is its predecessor's, moved by one. */
HB_EXPECT_CHECK(links_in_strip) {
    (void)c;
    return v->config->window_layout == HB_WINDOWS_STRIP && report(f, -1, 0, 0);
}

/* Records follow each other: those of a tree would have several successors. */
HB_EXPECT_CHECK(links_in_ring) {
    (void)c;
    return hb_ring_commits(v->config) && report(f, -1, 0, 0);
}
