/* SPDX-License-Identifier: Apache-2.0
 * Draft trees: parents in index order, and paths from the root. */
#include "harness/tree.h"

#include <stddef.h>

static int leads_on(int32_t link, int32_t from, int32_t n) {
    return link > from && link < n;
}

/* -1: out of range, backwards, or to a node that a link has reached before. parent is -1 where none
 * has. */
static int take_link(int32_t link, int32_t from, int32_t n, int32_t of, int32_t *parent) {
    if (link == -1) {
        return 0;
    }
    if (!leads_on(link, from, n)) {
        return -1;
    }
    int again = parent[link] != -1;
    parent[link] = of;
    return again ? -1 : 0;
}

int hb_tree_parents(const int32_t *next, const int32_t *sibling, int32_t n, int32_t *parent) {
    int status = 0;
    int orphans = 0;
    for (int32_t t = 0; t < n; t++) {
        parent[t] = next == NULL && t > 0 ? t - 1 : -1;
    }
    for (int32_t t = 0; t < n; t++) {
        if (t > 0 && parent[t] == -1) {
            orphans = 1;
        } else if (orphans) {
            status = -1;
        }
        parent[t] = parent[t] == -1 ? 0 : parent[t];
        if (next != NULL && take_link(next[t], t, n, t, parent) != 0) {
            status = -1;
        }
        if (sibling != NULL && next != NULL) {
            int bad = t == 0 ? sibling[0] != -1 : take_link(sibling[t], t, n, parent[t], parent);
            status = bad ? -1 : status;
        }
    }
    return status;
}

int32_t hb_tree_path(const int32_t *parent, int32_t t, int32_t *path) {
    int32_t depth = 1;
    for (int32_t node = t; node > 0; node = parent[node]) {
        depth++;
    }
    int32_t node = t;
    for (int32_t i = depth - 1; i >= 0 && path != NULL; i--) {
        path[i] = node;
        node = parent[node];
    }
    return depth;
}
