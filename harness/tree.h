/* SPDX-License-Identifier: Apache-2.0
 * Draft trees: the parent table of one row's links (speculative.md section 3). */
#ifndef HB_HARNESS_TREE_H
#define HB_HARNESS_TREE_H

#include <stdint.h>

/* parent[t] of nodes 0..n-1 from next_token and next_sibling of the row; next == null: a chain. Root and trailing orphans get 0.
 * Returns 0, or -1 when the links are no tree: out of range, backwards, a node reached twice, an orphan before a reached
 * node, or a sibling of the root. The table is filled in either case, with parent[t] < t except at the root; bad links are
 * then left out, and of two links to one node the later counts. */
int hb_tree_parents(const int32_t *next, const int32_t *sibling, int32_t n, int32_t *parent);
/* Number of nodes from the root to t, both included. path (may be null) receives them in that order; [n] is enough. */
int32_t hb_tree_path(const int32_t *parent, int32_t t, int32_t *path);

#endif
