/* SPDX-License-Identifier: Apache-2.0
 * A verify: each draft node is one decode step of the oracle from its parent's state. Nothing but
 * the intermediate caches and the KV entries of live nodes may change (invariants 50, 52, 53, 58);
 * where commits own the replay ring, its records too, and temporal of rows that fold. */
#include <stdlib.h>
#include <string.h>

#include "harness/run_forward.h"
#include "harness/tree.h"

void hb_run_verified_free(struct hb_run *r) {
    struct hb_verified *verified = &r->verified;
    for (int32_t i = 0; i < HB_MAX_VERIFY_ROWS; i++) {
        struct hb_verified_row *row = &verified->row[i];
        free(row->loc);
        for (int32_t l = 0; l < HB_MAX_LAYERS; l++) {
            for (int32_t t = 0; t < HB_MAX_DRAFT; t++) {
                hb_run_state_free(r, row->state[l][t]);
            }
        }
    }
}

/* --- planning --------------------------------------------------------------------------------- */

void hb_run_plan_tree(struct hb_run *r, const struct hb_forward *f, struct hb_live_row *row) {
    const struct hb_batch *b = &f->batch.b;
    const int64_t first = (int64_t)row->row * b->draft_token_num;
    int32_t children[HB_MAX_DRAFT] = {0};
    if (row->length > HB_MAX_DRAFT) {
        row->length = HB_MAX_DRAFT; /* max_draft of a case is not larger */
    }
    const int32_t *next = b->retrieve_next_token.data;
    const int32_t *sibling = b->retrieve_next_sibling.data;
    (void)hb_tree_parents(next ? next + first : NULL, sibling ? sibling + first : NULL, row->length,
                          row->parent);
    row->depth[0] = 0;
    row->branch[0] = r->content[row->slot].branch;
    for (int32_t t = 1; t < row->length; t++) {
        const int32_t p = row->parent[t];
        row->depth[t] = row->depth[p] + 1;
        row->branch[t] = hb_branch_of(row->branch[p], row->pos + row->depth[t], children[p]++);
    }
    r->verified.row[row->row & (HB_MAX_VERIFY_ROWS - 1)].is_known = 0;
}

/* 1 if node lies on the way from the root to node `to`. */
static int is_on_path(const struct hb_live_row *row, int32_t node, int32_t to) {
    for (int32_t t = to < row->length ? to : -1; t > 0; t = row->parent[t]) {
        if (t == node) {
            return 1;
        }
    }
    return to >= 0 && node == 0;
}

int hb_run_is_rejected(const struct hb_run *r, const struct hb_live_row *row, int32_t node) {
    if (!r->twist.nan_rejected || !row->is_verify) {
        return 0;
    }
    for (int32_t i = r->step + 1; i < r->c->n_steps; i++) {
        const struct hb_case_step *s = &r->c->step[i];
        if (s->kind == HB_STEP_FORWARD || (s->kind == HB_STEP_ENTRY && s->n_rows > 0)) {
            break;
        }
        if (s->kind != HB_STEP_COMMIT || row->row >= s->n_rows) {
            continue;
        }
        const struct hb_case_row *c = &s->row[row->row];
        if (is_on_path(row, node, c->accept) ||
            (c->track && is_on_path(row, node, c->track_accept))) {
            return 0;
        }
    }
    return 1;
}

/* --- outputs ---------------------------------------------------------------------------------- */

/* The reference state after node t, a copy of its parent's to begin with; null when out of memory.
 */
static struct hb_ref_state *node_state(struct hb_run *r, const struct hb_live_row *row,
                                       int32_t layer, int32_t t) {
    struct hb_ref_state **at = r->verified.row[row->row].state[layer];
    const struct hb_ref_state *from =
        t == 0 ? r->content[row->slot].ref[layer] : at[row->parent[t]];
    if (!at[t]) {
        at[t] = hb_run_state_new(r);
    }
    if (!at[t]) {
        return NULL;
    }
    hb_ref_state_copy(&r->config, at[t], from);
    if (t == 0 && row->has_ring && row->folds) {
        hb_ref_mamba2_fold(&r->config, hb_run_profile(r, row), row->w, at[t]);
    }
    return at[t];
}

void hb_run_verify_linear(struct hb_run *r, struct hb_forward *f, int32_t layer,
                          struct hb_layer_buffers *lb) {
    for (int32_t i = 0; i < f->n_live && !hb_run_done(r); i++) {
        const struct hb_live_row *row = &f->live[i];
        if (!hb_run_is_predicted(r, row) || row->row >= HB_MAX_VERIFY_ROWS ||
            !r->content[row->slot].ref[layer]) {
            continue; /* the reserved slot holds nothing that could be predicted */
        }
        const size_t width = (size_t)lb->width[3];
        const size_t n = (size_t)row->length * width;
        double *d = hb_run_doubles(r, 3 * n);
        if (!d) {
            return;
        }
        const uint64_t t0 = hb_run_now(r);
        for (int32_t t = 0; t < row->length; t++) {
            const int64_t token = (int64_t)row->first + t;
            struct hb_ref_state *state = node_state(r, row, layer, t);
            if (!state) {
                return;
            }
            double *out = d + (size_t)t * width;
            if (row->has_ring) {
                if (hb_run_ring_token(r, f, i, layer, t, lb, state, out, n)) {
                    return;
                }
            } else if (hb_ref_linear(&r->config, layer, &r->params[layer], hb_run_profile(r, row),
                              HB_PATH_DECODE, 1, hb_run_token(lb, 0, token),
                              hb_run_token(lb, 1, token), hb_run_token(lb, 2, token), state, out,
                              out + n, out + 2 * n, NULL, 0)) {
                r->no_memory = 1;
                return;
            }
        }
        hb_run_phase(r, HB_PHASE_ORACLE, t0);
        r->verified.row[row->row].is_known = 1;
        hb_run_check_row(r, f, layer, row, lb, d, d + n, d + 2 * n);
    }
}

/* Keys and values of the context of each node in position order: the tokens before the verify, then
 * its path. */
struct context {
    int32_t n_kv, dtype, regions[2];
    size_t line;
    const int32_t *slots;
    float *kv[2];
};

static void load_kv(const struct hb_run *r, const struct context *c, int64_t from, int64_t to) {
    for (int k = 0; k < 2; k++) {
        hb_unpack(c->dtype, r->want[c->regions[k]] + (size_t)c->slots[from] * c->line, c->n_kv,
                  c->kv[k] + to * c->n_kv);
    }
}

void hb_run_verify_attention(struct hb_run *r, struct hb_forward *f, int32_t layer,
                             struct hb_layer_buffers *lb) {
    struct context c = {
        .n_kv = lb->width[1],
        .dtype = r->config.act_dtype,
        .regions = {hb_run_region(r, "kv_k", layer), hb_run_region(r, "kv_v", layer)}};
    c.line = (size_t)c.n_kv * (size_t)hb_dtype_bytes(c.dtype);
    for (int32_t i = 0; i < f->n_live && !hb_run_done(r) && c.regions[0] >= 0 && c.regions[1] >= 0;
         i++) {
        const struct hb_live_row *row = &f->live[i];
        const size_t n = (size_t)row->length * (size_t)lb->width[3];
        c.slots = hb_run_token_slots(f, row);
        c.kv[0] = hb_run_floats(r, 2 * (size_t)row->seq_len * (size_t)c.n_kv);
        double *d = hb_run_doubles(r, 3 * n);
        if (!c.kv[0] || !d) {
            return;
        }
        c.kv[1] = c.kv[0] + (size_t)row->seq_len * (size_t)c.n_kv;
        for (int64_t p = 0; p < row->pos; p++) {
            load_kv(r, &c, p, p);
        }
        for (int32_t t = 0; t < row->length; t++) {
            int32_t path[HB_MAX_DRAFT];
            const int32_t n_path = hb_tree_path(row->parent, t, path);
            for (int32_t k = 0; k < n_path; k++) {
                load_kv(r, &c, row->pos + path[k], row->pos + k);
            }
            double *out = d + (size_t)t * (size_t)lb->width[3];
            hb_ref_attention(&r->config, hb_run_profile(r, row), (int32_t)row->pos + n_path,
                             lb->host[0] + (int64_t)(row->first + t) * lb->width[0], c.kv[0],
                             c.kv[1], out, out + n, out + 2 * n);
        }
        hb_run_check_row(r, f, layer, row, lb, d, d + n, d + 2 * n);
    }
}

/* --- states ----------------------------------------------------------------------------------- */

/* rc, rs: the regions of windows and states, -1 where the kind has none. */
static void check_row_entries(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                              const struct hb_live_row *row, int32_t rc, int32_t rs) {
    const int is_predicted = hb_run_has_numbers(r) && hb_run_is_predicted(r, row);
    struct hb_ref_state *const *state = r->verified.row[row->row].state[layer];
    for (int32_t t = 0; t < row->length && rc >= 0; t++) {
        hb_run_want_window(r, rc, row->row, t, is_predicted ? state[t] : NULL);
    }
    if (rc >= 0 && hb_run_compare_windows(r, rc, row->row, row->length, "verify.intermediate",
                                          f->place)) {
        return;
    }
    for (int32_t t = 0; t < row->length && rs >= 0 && !hb_run_done(r); t++) {
        const struct hb_entry ssm = hb_run_node_entry(r, rs, row->row, t);
        if (is_predicted) {
            hb_run_check_temporal(r, f, layer, row, row->first + t, ssm, state[t],
                                  "verify.intermediate", "node");
        } else {
            hb_run_allow(r, rs, ssm.at, ssm.bytes);
        }
    }
}

void hb_run_verify_states(struct hb_run *r, struct hb_forward *f) {
    for (int32_t l = 0; l < r->config.n_layers && !hb_run_done(r); l++) {
        const char *const pools[] = {"conv", "temporal"};
        const int has_run = hb_run_is_linear(r, l) && (f->layers_run >> l & 1);
        if (has_run) {
            hb_run_ring_verified(r, f, l);
        }
        for (int k = 0; k < 2 && !hb_run_done(r); k++) {
            const int32_t i = hb_run_region(r, pools[k], l);
            if (i >= 0 && hb_run_compare_bytes(r, i, 0, (size_t)r->region[i].bytes, "verify.pool",
                                               f->place)) {
                return;
            }
        }
        const int32_t rc = hb_run_region(r, "intermediate_conv", l);
        const int32_t rs = hb_run_region(r, "intermediate_ssm", l);
        for (int32_t i = 0; i < f->n_live && has_run && !hb_run_done(r); i++) {
            check_row_entries(r, f, l, &f->live[i], rc, rs);
        }
    }
}

void hb_run_verify_done(struct hb_run *r, const struct hb_forward *f) {
    struct hb_verified *v = &r->verified;
    const int32_t n = f->n_live < HB_MAX_VERIFY_ROWS ? f->n_live : HB_MAX_VERIFY_ROWS;
    v->layers_run = f->layers_run;
    for (int32_t i = 0; i < n; i++) {
        const struct hb_live_row *row = &f->live[i];
        struct hb_verified_row *to = &v->row[i];
        const int32_t *slots = hb_run_token_slots(f, row);
        const size_t n_loc = (size_t)row->pos + (size_t)row->length;
        v->ids[i] = row->id;
        v->generations[i] = row->id > 0 ? r->slots.generation[row->id] : 0;
        to->request = i < HB_MAX_ROWS ? f->plan.row[i].request : 0;
        to->slot = hb_run_is_predicted(r, row) ? row->slot : 0;
        v->nodes[i] = row->length;
        to->left = row->has_ring ? r->slots.write_pos[row->slot] : 0;
        to->stream = row->stream;
        to->pos = row->pos;
        memcpy(to->depth, row->depth, sizeof to->depth);
        memcpy(to->branch, row->branch, sizeof to->branch);
        memcpy(to->parent, row->parent, sizeof to->parent);
        free(to->loc);
        to->loc = slots ? malloc(n_loc * sizeof *to->loc) : NULL;
        if (slots && !to->loc) {
            r->no_memory = 1;
            return;
        }
        if (slots) {
            memcpy(to->loc, slots, n_loc * sizeof *to->loc);
        }
    }
    v->phase = (struct hb_verify_phase){.has_verify = 1,
                                        .batch_size = f->batch.b.batch_size,
                                        .real_rows = n,
                                        .slots = v->ids,
                                        .generations = v->generations,
                                        .nodes = v->nodes};
}
