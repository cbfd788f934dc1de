/* SPDX-License-Identifier: Apache-2.0
 * Transformations of the relations of draft verification (invariants.md 50 to 58). */
#include <string.h>

#include "harness/relations_internal.h"
#include "harness/tree.h"

/* A second run of the same verify finds the pools, and so its own results, as the first one did. */
static int verify_twice(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    out->n_steps = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const int again = c->step[i].kind == HB_STEP_FORWARD && hb_step_is_verify(&c->step[i]);
        if (!hb_relation_append(out, &c->step[i]) ||
            (again && !hb_relation_append(out, &c->step[i]))) {
            return 0;
        }
        any |= again;
    }
    return any && hb_relation_is_plain(c);
}

/* --- 51 --------------------------------------------------------------------------------------- */

/* The way of one row of a verify to the node that is committed. */
struct way {
    int32_t n;                  /* tokens, 0: nothing is committed */
    int32_t track_at;           /* index of the token after which a checkpoint is made, -1: none */
    int32_t rank[HB_MAX_DRAFT]; /* of each token among its siblings */
};

/* 0 if a checkpoint is made of a node that is not committed: decode steps do not pass it. */
static int find_way(const struct hb_case *c, const struct hb_case_step *verify, int32_t row,
                    const struct hb_case_row *commit, struct way *w) {
    int32_t parent[HB_MAX_DRAFT];
    int32_t children[HB_MAX_DRAFT] = {0};
    int32_t path[HB_MAX_DRAFT];
    int32_t rank[HB_MAX_DRAFT] = {0};
    const int32_t n = verify->row[row].length;
    memset(w, 0, sizeof *w);
    w->track_at = -1;
    if (commit->accept < 0) {
        return !commit->track;
    }
    hb_case_tree(c, verify, row, n, parent);
    for (int32_t t = 1; t < n; t++) {
        rank[t] = children[parent[t]]++;
    }
    w->n = hb_tree_path(parent, commit->accept, path);
    for (int32_t d = 0; d < w->n; d++) {
        w->rank[d] = rank[path[d]];
        if (commit->track && path[d] == commit->track_accept) {
            w->track_at = d;
        }
    }
    return !commit->track || w->track_at >= 0;
}

/* Decode steps over the accepted nodes instead of a verify and its commit; 0 if they do not fit. */
static int append_decodes(const struct hb_case_step *verify, const struct hb_case_step *commit,
                          const struct way *way, struct hb_case *out, struct hb_twist *twist) {
    for (int32_t d = 0; d < HB_MAX_DRAFT; d++) {
        struct hb_case_step s = *verify;
        s.mode = HB_MODE_DECODE;
        s.draft = s.ragged = s.tree = s.pad_rows = s.pad_tokens = s.optional = 0;
        s.n_rows = 0;
        for (int32_t r = 0; r < verify->n_rows; r++) {
            if (d >= way[r].n) {
                continue;
            }
            struct hb_case_row *row = &s.row[s.n_rows];
            *row = verify->row[r];
            row->length = 1;
            row->track = way[r].track_at == d;
            row->track_slot = row->track ? commit->row[r].track_slot : 0;
            if (out->n_steps < HB_MAX_STEPS) {
                twist->rank[out->n_steps][s.n_rows] = way[r].rank[d];
            }
            s.n_rows++;
        }
        if (s.n_rows > 0 && !hb_relation_append(out, &s)) {
            return 0;
        }
    }
    return 1;
}

static int verify_decode(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    int any = 0;
    out->n_steps = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (!hb_step_is_verify(s)) {
            if (s->kind == HB_STEP_COMMIT || !hb_relation_append(out, s)) {
                return 0; /* a second commit of one verify goes back to before its decode steps */
            }
            continue;
        }
        struct way way[HB_MAX_ROWS];
        if (s->kind != HB_STEP_FORWARD || i + 1 >= c->n_steps || s[1].kind != HB_STEP_COMMIT) {
            return 0;
        }
        for (int32_t r = 0; r < s->n_rows; r++) {
            static const struct hb_case_row none = {.accept = -1};
            if (!find_way(c, s, r, r < s[1].n_rows ? &s[1].row[r] : &none, &way[r])) {
                return 0;
            }
        }
        if (!append_decodes(s, s + 1, way, out, twist)) {
            return 0;
        }
        any = 1;
        i++;
    }
    return any && hb_relation_is_plain(c);
}

/* --- the others ------------------------------------------------------------------------------- */

static int link_chains(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step *s = &out->step[i];
        if (hb_step_is_verify(s) && s->tree < HB_TREE_RANDOM) {
            s->tree = s->tree == HB_TREE_CHAIN ? HB_TREE_LINKED_CHAIN : HB_TREE_CHAIN;
            any = 1;
        }
    }
    return any && hb_relation_is_plain(c);
}

static int nan_rejected(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)out;
    int any = 0;
    twist->nan_rejected = 1;
    for (int32_t i = 0; i < c->n_steps; i++) {
        any |= hb_step_is_verify(&c->step[i]);
    }
    return any && hb_relation_is_plain(c);
}

/* A commit of nothing, one of the later rows only, then the whole commit twice. */
static int commit_parts(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    out->n_steps = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (s->kind == HB_STEP_COMMIT) {
            struct hb_case_step part = *s;
            const int32_t n_left = HB_MAX_STEPS - out->n_steps - (c->n_steps - i);
            const int32_t first = s->n_rows > 1 && c->config.relation_arg % 2 ? 1 : s->n_rows;
            for (int32_t r = 0; r < first; r++) {
                part.row[r].accept = -1;
                part.row[r].track = 0;
            }
            if (n_left < 1) {
                return 0;
            }
            (void)hb_relation_append(out, s);
            if (n_left > 1) {
                out->step[out->n_steps - 1] = part;
                (void)hb_relation_append(out, s);
            }
            any = 1;
        }
        if (!hb_relation_append(out, s)) {
            return 0;
        }
    }
    return any && hb_relation_is_plain(c);
}

/* Rows of a ragged verify filled up to D nodes. */
static int fill_rows(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step *s = &out->step[i];
        if (!hb_step_is_verify(s) || !s->ragged) {
            continue;
        }
        s->draft = hb_case_draft(s);
        s->ragged = 0;
        s->pad_tokens = 0;
        for (int32_t r = 0; r < s->n_rows; r++) {
            s->row[r].length = s->draft;
        }
        any = 1;
    }
    return any && hb_relation_is_plain(c);
}

static const struct hb_transform transforms[] = {
    {50, .apply = verify_twice, .flags = HB_REL_MOVES_KV},
    {51, HB_BOTH(HB_BOUNDED), .apply = verify_decode,
     .flags = HB_REL_MOVES_KV | HB_REL_SUBSET | HB_REL_ONE_FORMULA},
    {54, HB_BOTH(HB_EXACT_FP32), .apply = link_chains, .flags = HB_REL_SWAPS_CHAINS},
    {55, .apply = nan_rejected},
    {56, .apply = commit_parts},
    {58, .apply = fill_rows, .flags = HB_REL_MOVES_KV},
};

const struct hb_transforms hb_transforms_spec = HB_TRANSFORMS(transforms);
