/* SPDX-License-Identifier: Apache-2.0
 * Verification and commit of the float64 oracle behind the adapter table (speculative.md sections
 * 1-5). The layers themselves are in oracle_layer.c: node t of a row is one decode token from the
 * stored state of its parent, so an entry is what decoding its path token by token would store. */
#include "harness/oracle_adapter.h"

#include <stdlib.h>
#include <string.h>

#include "harness/tree.h"
#include "harness/values.h"

static int32_t nodes_of(const struct hb_batch *b, int32_t r) {
    const int32_t *layout = b->ragged_verify_layout.data;
    return layout == NULL ? b->draft_token_num : layout[r + 1] - layout[r];
}

int32_t hb_oracle_verify_rows(const struct hb_oracle *o, struct hb_oracle_forward *f,
                              const struct hb_batch *b) {
    size_t rows = (size_t)f->n_rows;
    size_t nodes = 0;
    for (int32_t r = 0; r < f->n_rows; r++) {
        nodes += (size_t)nodes_of(b, r);
    }
    struct hb_oracle_draft *draft = &f->draft;
    draft->generations =
        calloc(1, (rows + 1) * sizeof(int64_t) + (3 * rows + nodes) * sizeof(int32_t));
    if (draft->generations == NULL) {
        return HB_ERR_MEMORY;
    }
    void *rest = draft->generations + rows + 1;
    draft->ids = rest;
    draft->nodes = draft->ids + rows;
    draft->left = draft->nodes + rows;
    draft->parents = draft->left + rows;
    int32_t *parent = draft->parents;
    for (int32_t r = 0; r < f->n_rows; r++) {
        struct hb_oracle_row *row = &f->rows[r];
        ptrdiff_t first = (ptrdiff_t)r * b->draft_token_num;
        int linked = b->retrieve_next_token.data != NULL;
        row->n = nodes_of(b, r);
        row->prefix = b->seq_lens.data[r];
        row->parent = parent;
        (void)hb_tree_parents(linked ? b->retrieve_next_token.data + first : NULL,
                              linked ? b->retrieve_next_sibling.data + first : NULL, row->n,
                              parent);
        draft->ids[r] = row->id;
        draft->nodes[r] = row->n;
        draft->generations[r] = o->slots.generation[row->id];
        parent += row->n;
    }
    return HB_OK;
}

int32_t hb_oracle_ancestors(const struct hb_oracle_row *row, int32_t t, int32_t *path) {
    if (row->parent != NULL) {
        return hb_tree_path(row->parent, t, path);
    }
    for (int32_t i = 0; i <= t; i++) {
        path[i] = i;
    }
    return t + 1;
}

void hb_oracle_verify_drop(struct hb_oracle_verify *verify) {
    free(verify->draft.generations);
    memset(verify, 0, sizeof *verify);
}

void hb_oracle_verify_end(struct hb_oracle *o) {
    struct hb_oracle_forward *f = &o->forward;
    hb_oracle_verify_drop(&o->verify);
    o->verify = (struct hb_oracle_verify){.phase = {.has_verify = 1,
                                                    .batch_size = f->batch_size,
                                                    .real_rows = f->n_rows,
                                                    .slots = f->draft.ids,
                                                    .generations = f->draft.generations,
                                                    .nodes = f->draft.nodes},
                                          .layers_run = f->phase.layers_run,
                                          .draft = f->draft};
    f->draft = (struct hb_oracle_draft){0};
}

/* ---- entries of the intermediate caches ---- */

/* Where the window of channel ch after node t of row r starts. A strip holds the windows of a row
 * one column apart (state-pool.md section 4). */
static unsigned char *window_at(const struct hb_config *c, const struct hb_oracle_layer *layer,
                                const struct hb_ref_sizes *size, const int64_t node[2],
                                int64_t ch) {
    const int64_t r = node[0], t = node[1], window = size->window;
    int64_t dense = ((r * c->max_draft + t) * size->channels + ch) * window;
    int64_t strip = (r * size->channels + ch) * (c->max_draft + window - 1) + t;
    int64_t at = c->window_layout == HB_WINDOWS_STRIP ? strip : dense;
    return layer->pool[HB_POOL_CACHE_CONV] + at * hb_dtype_bytes(c->act_dtype);
}

/* The window after node t of row r, dense in `bytes`: out of the cache, or into it. */
static void move_window(const struct hb_config *c, const struct hb_oracle_layer *layer, int32_t r,
                        int32_t t, unsigned char *out, const unsigned char *in) {
    struct hb_ref_sizes size;
    hb_oracle_sizes(c, c->layer_kind[layer->id], &size);
    const int64_t node[2] = {r, t};
    size_t bytes = (size_t)size.window * (size_t)hb_dtype_bytes(c->act_dtype);
    for (int64_t ch = 0; ch < size.channels; ch++) {
        unsigned char *cached = window_at(c, layer, &size, node, ch);
        if (out != NULL) {
            memcpy(out + (size_t)ch * bytes, cached, bytes);
        } else if (in != NULL) {
            memcpy(cached, in + (size_t)ch * bytes, bytes);
        }
    }
}

static unsigned char *ssm_at(const struct hb_config *c, const struct hb_oracle_layer *layer,
                             int32_t r, int32_t t) {
    uint64_t node = (uint64_t)r * (uint64_t)c->max_draft + (uint64_t)t;
    return layer->pool[HB_POOL_CACHE_SSM] + node * layer->entry[HB_POOL_TEMPORAL];
}

void hb_oracle_node_store(const struct hb_config *c, struct hb_oracle_layer *layer, int32_t r,
                          int32_t t, const unsigned char *bytes) {
    move_window(c, layer, r, t, NULL, bytes);
    if (layer->entry[HB_POOL_CACHE_SSM] > 0) {
        memcpy(ssm_at(c, layer, r, t), bytes + layer->entry[HB_POOL_CONV],
               layer->entry[HB_POOL_TEMPORAL]);
    }
}

/* State of the node in row r, step `step` -> slot of an id, in every linear layer of the verify:
 * bit-exact copies. A ring that commits own has no such temporal states: the records are the row's
 * state, and a checkpoint is folded from them. w: memory for that, null for the row's own slot. */
static void commit_entry(struct hb_oracle *o, int32_t r, int32_t step, int64_t id,
                         struct hb_oracle_work *w) {
    const int32_t own = hb_slot_model_slot(&o->slots, o->verify.draft.ids[r]);
    uint64_t slot = (uint64_t)hb_slot_model_slot(&o->slots, (int32_t)id);
    for (int32_t l = 0; l < o->config.n_layers; l++) {
        struct hb_oracle_layer *layer = &o->layer[l];
        const uint64_t conv = layer->entry[HB_POOL_CONV], ssm = layer->entry[HB_POOL_TEMPORAL];
        if (!((o->verify.layers_run >> l) & 1U) || o->config.layer_kind[l] == HB_LAYER_ATTENTION) {
            continue;
        }
        if (conv > 0) {
            move_window(&o->config, layer, r, step, layer->pool[HB_POOL_CONV] + slot * conv, NULL);
        }
        if (o->slots.commits && w != NULL) {
            hb_oracle_fold(o, layer, w, own, own > 0 ? o->slots.ring_base[own] : 0,
                           o->verify.draft.left[r] + step + 1, (int32_t)slot);
        } else if (ssm > 0 && !o->slots.commits) {
            memcpy(layer->pool[HB_POOL_TEMPORAL] + slot * ssm, ssm_at(&o->config, layer, r, step),
                   ssm);
        }
    }
}

/* Memory for the checkpoints of a ring; 0: there is none left. */
static int make_fold(const struct hb_oracle *o, struct hb_oracle_work *w) {
    for (int32_t l = 0; l < o->config.n_layers && o->slots.commits; l++) {
        if (o->config.layer_kind[l] != HB_LAYER_ATTENTION) {
            return hb_oracle_fold_make(o, l, w);
        }
    }
    return 1;
}

static void commit_rows(struct hb_oracle *o, const struct hb_commit *commit, int32_t n) {
    for (int32_t r = 0; r < n; r++) {
        if (commit->step.data[r] < 0) {
            continue;
        }
        const int32_t id = o->verify.draft.ids[r];
        commit_entry(o, r, commit->step.data[r], id, NULL);
        if (o->slots.commits) {
            hb_slot_model_ring_commit(&o->slots, hb_slot_model_slot(&o->slots, id),
                                      o->verify.draft.left[r], commit->step.data[r] + 1);
        }
    }
}

/* All rows, then all checkpoints. */
int32_t hb_oracle_commit(void *handle, const struct hb_commit *commit, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_oracle_work w = {0};
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_commit(&o->config, &o->verify.phase, &o->slots, commit, &e);
    if (e.status != HB_OK) {
        return hb_oracle_pass(err, &e);
    }
    int32_t live = o->verify.phase.real_rows;
    int32_t n = commit->n_rows < live ? commit->n_rows : live;
    if (!make_fold(o, &w)) {
        hb_oracle_work_free(&w);
        return hb_oracle_no_memory(err, "checkpoints");
    }
    commit_rows(o, commit, n);
    for (int32_t r = 0; r < n && commit->track_indices.data != NULL; r++) {
        if (commit->track_steps.data[r] >= 0) {
            commit_entry(o, r, commit->track_steps.data[r], commit->track_indices.data[r], &w);
        }
    }
    hb_oracle_work_free(&w);
    return HB_OK;
}
