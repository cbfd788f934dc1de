/* SPDX-License-Identifier: Apache-2.0
 * Verification and commit of the float64 oracle behind the adapter table (speculative.md sections
 * 1-5). The layers themselves are in oracle_forward.c: node t of a row is one decode token from the
 * stored state of its parent, so an entry is what decoding its path token by token would store. */
#include "harness/oracle_adapter.h"

#include <stdlib.h>
#include <string.h>

#include "harness/tree.h"

static int32_t nodes_of(const struct hb_batch *b, int32_t r) {
    const int32_t *layout = b->ragged_verify_layout.data;
    return layout == NULL ? b->draft_token_num : layout[r + 1] - layout[r];
}

int32_t hb_oracle_verify_rows(struct hb_oracle_forward *f, const struct hb_batch *b) {
    size_t rows = (size_t)f->n_rows;
    size_t nodes = 0;
    for (int32_t r = 0; r < f->n_rows; r++) {
        nodes += (size_t)nodes_of(b, r);
    }
    f->draft = calloc(2 * rows + nodes + 1, sizeof *f->draft);
    if (f->draft == NULL) {
        return HB_ERR_MEMORY;
    }
    int32_t *parent = f->draft + 2 * rows;
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
        f->draft[r] = row->slot;
        f->draft[rows + (size_t)r] = row->n;
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
    free(verify->draft);
    memset(verify, 0, sizeof *verify);
}

void hb_oracle_verify_end(struct hb_oracle *o) {
    struct hb_oracle_forward *f = &o->forward;
    hb_oracle_verify_drop(&o->verify);
    o->verify = (struct hb_oracle_verify){
        .phase = {.has_verify = 1,
                  .batch_size = f->batch_size,
                  .real_rows = f->n_rows,
                  .slots = f->draft,
                  .nodes = f->draft + f->n_rows},
        .layers_run = f->phase.layers_run,
        .draft = f->draft};
    f->draft = NULL;
}

/* State of the node in row r, step `step` -> slot, in every Mamba2 layer of the verify: bit-exact
 * copies. */
static void copy_entry(struct hb_oracle *o, int32_t r, int32_t step, int64_t slot) {
    for (int32_t l = 0; l < o->config.n_layers; l++) {
        int ran = ((o->verify.layers_run >> l) & 1U) != 0;
        for (int32_t part = 0; part < 2 && ran && o->config.layer_kind[l] == HB_LAYER_MAMBA2;
             part++) {
            uint64_t bytes = hb_oracle_slot_bytes(&o->config, part);
            uint64_t entry = (uint64_t)r * (uint64_t)o->config.max_draft + (uint64_t)step;
            memcpy(o->layer[l].pool[part] + (uint64_t)slot * bytes,
                   o->layer[l].pool[HB_ORACLE_CACHES + part] + entry * bytes, bytes);
        }
    }
}

int32_t hb_oracle_commit(void *handle, const struct hb_commit *commit, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_commit(&o->config, &o->verify.phase, &o->slots, commit, &e);
    if (e.status != HB_OK) {
        return hb_oracle_pass(err, &e);
    }
    int32_t live = o->verify.phase.real_rows;
    for (int32_t r = 0; r < commit->n_rows && r < live; r++) {
        if (commit->step.data[r] >= 0) {
            copy_entry(o, r, commit->step.data[r], o->verify.phase.slots[r]);
        }
        if (commit->track_indices.data != NULL && commit->track_steps.data[r] >= 0) {
            copy_entry(o, r, commit->track_steps.data[r], commit->track_indices.data[r]);
        }
    }
    return HB_OK;
}
