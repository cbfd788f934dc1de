/* SPDX-License-Identifier: Apache-2.0
 * Planning of a forward: rows by the intention of the case, then by the batch that the backend
 * accepted, breaks included. */
#include <string.h>

#include "backend/batch.h"
#include "harness/run_forward.h"

int32_t hb_run_tracks(const struct hb_run *r, int32_t tracks[HB_MAX_NAMES]) {
    int32_t n = 0;
    for (int32_t k = 0; k < r->n_names; k++) {
        if (r->name_is_track[k]) {
            tracks[n++] = r->name[k];
        }
    }
    return n;
}

/* The slot of the request's state. An id that is free has none: then where the state was, if it is
 * still known there, so that nothing else is wrong with the row. */
static int32_t state_of(struct hb_run *r, int32_t request, int32_t id) {
    const int32_t slot = hb_run_slot(r, id);
    if (slot > 0) {
        r->request_at[request] = slot;
    }
    const int32_t at = r->request_at[request];
    return r->content[at].stream == r->request_stream[request] ? at : slot;
}

void hb_run_plan_case(struct hb_run *r, struct hb_forward *f) {
    int32_t tracks[HB_MAX_NAMES];
    const int32_t n_tracks = hb_run_tracks(r, tracks);
    int32_t targets[HB_MAX_ROWS] = {0};
    /* before anything points into contents: a slot that is taken here loses its content */
    for (int32_t i = 0; i < f->step->n_rows && r->c->config.ping_pong != HB_PING_PONG_OFF; i++) {
        const struct hb_case_row *row = &f->step->row[i];
        if (row->track && f->step->mode != HB_MODE_TARGET_VERIFY && !hb_run_done(r)) {
            targets[i] = hb_run_ping_pong(r, row->request & (HB_MAX_REQS - 1));
        }
    }
    for (int32_t i = 0; i < f->step->n_rows; i++) {
        const struct hb_case_row *row = &f->step->row[i];
        struct hb_row_plan *p = &f->plan.row[i];
        p->request = row->request & (HB_MAX_REQS - 1);
        p->slot = r->request_slot[p->request];
        const int32_t slot = state_of(r, p->request, p->slot);
        const struct hb_content *content = &r->content[slot];
        p->stream = content->stream;
        p->prefix = slot > 0 ? content->pos : 0;
        p->prefix_loc = content->n_loc >= p->prefix ? content->loc : NULL;
        p->track_dst = targets[i];
        if (row->track && n_tracks > 0 && r->c->config.ping_pong == HB_PING_PONG_OFF) {
            p->track_dst = tracks[row->track_slot % n_tracks];
        }
    }
}

/* Nodes of a row of a verify: seq_lens are the tokens before it. */
static void plan_verify_row(struct hb_run *r, const struct hb_forward *f, struct hb_live_row *row) {
    const struct hb_batch *b = &f->batch.b;
    const int32_t *layout = b->ragged_verify_layout.data;
    row->is_verify =
        f->step->tree < HB_TREE_RANDOM ? HB_DRAFT_CHAIN + f->step->tree : HB_DRAFT_TREE;
    row->is_decode = 1;
    row->has_init = 1;
    row->length = layout ? layout[row->row + 1] - layout[row->row] : b->draft_token_num;
    row->pos = row->seq_len;
    row->seq_len += row->length;
    hb_run_plan_tree(r, f, row);
}

static void plan_row(struct hb_run *r, const struct hb_forward *f, struct hb_live_row *row) {
    const struct hb_batch *b = &f->batch.b;
    const int32_t i = row->row;
    const int32_t np = b->forward_mode == HB_MODE_DECODE ? 0 : b->n_extend;
    const int32_t chunk = r->config.chunk_size;
    const int32_t cc = chunk > r->config.page_size ? chunk : r->config.page_size;
    row->is_decode = i >= np;
    row->length = row->is_decode ? 1 : b->extend_seq_lens.data[i];
    row->pos = (int64_t)row->seq_len - row->length;
    row->has_init = row->is_decode || b->extend_prefix_lens.data[i] > 0;
    row->branch[0] = row->has_init ? r->content[row->slot].branch : 0;
    if (i < HB_MAX_ROWS) {
        row->branch[0] = hb_branch_of(row->branch[0], row->pos, r->twist.rank[r->step][i]);
    }
    if (!b->mamba_track_mask.data || !b->mamba_track_mask.data[i]) {
        return;
    }
    row->dst_id = (int32_t)b->mamba_track_indices.data[i];
    row->dst = hb_run_slot(r, row->dst_id);
    row->after = 1;
    if (!row->is_decode) {
        int64_t len = b->mamba_track_seqlens.data[i] - row->pos;
        row->after = (int32_t)(len / cc * cc);
    }
}

void hb_run_plan_batch(struct hb_run *r, struct hb_forward *f) {
    const struct hb_batch *b = &f->batch.b;
    const int32_t real_rows = hb_expect_real_rows(b, f->is_replay);
    f->mode = b->forward_mode;
    f->n_tokens = b->n_tokens;
    f->n_live = 0;
    f->n_real = 0;
    if (b->forward_mode == HB_MODE_IDLE || b->forward_mode == HB_MODE_DRAFT_EXTEND_V2) {
        return;
    }
    for (int32_t i = 0; i < real_rows && f->n_live < HB_MAX_LIVE; i++) {
        struct hb_live_row *row = &f->live[f->n_live++];
        memset(row, 0, sizeof *row);
        row->row = i;
        row->request = b->req_pool_indices.data[i];
        row->id = r->slots.table[row->request];
        row->slot = hb_run_slot(r, row->id);
        row->stream = r->content[row->slot].stream;
        row->seq_len = b->seq_lens.data[i];
        if (i < HB_MAX_ROWS) {
            row->seq_len = (int32_t)(row->seq_len - f->shift[i]);
        }
        if (b->forward_mode == HB_MODE_TARGET_VERIFY) {
            plan_verify_row(r, f, row);
        } else {
            plan_row(r, f, row);
        }
        hb_run_plan_ring(r, f, row);
        row->first = f->n_real;
        f->n_real += row->length;
    }
}

int hb_run_is_predicted(const struct hb_run *r, const struct hb_live_row *row) {
    return row->slot > 0 && !(row->has_init && r->content[row->slot].is_spoiled);
}

int hb_run_has_numbers(const struct hb_run *r) {
    /* of the target that is about batches alone, statuses and untouched bytes are looked at */
    return !r->o->status_only && r->c->config.target != HB_TARGET_METADATA && !r->is_reshaped &&
           !r->twist.nan_inputs;
}

const struct hb_profile *hb_run_profile(const struct hb_run *r, const struct hb_live_row *row) {
    const int32_t path = row->is_decode ? HB_PATH_DECODE : HB_PATH_PREFILL;
    return &r->caps.profile[r->config.kernel_form][path][r->config.act_dtype];
}

const int32_t *hb_run_token_slots(const struct hb_forward *f, const struct hb_live_row *row) {
    const struct hb_batch *b = &f->batch.b;
    const int64_t first = (int64_t)row->request * b->req_to_token_cols;
    /* without attention layers nobody looks at the table, and a break may have made it any length
     */
    const int is_whole =
        row->seq_len <= b->req_to_token_cols && first + row->seq_len <= b->req_to_token.len;
    return b->req_to_token.data && is_whole ? b->req_to_token.data + first : NULL;
}

int64_t hb_run_position(const struct hb_live_row *row, int32_t token) {
    return row->pos + (row->is_verify ? row->depth[token] : token);
}

int64_t hb_run_branch(const struct hb_live_row *row, int32_t token) {
    return row->branch[row->is_verify ? token : 0];
}

int64_t hb_run_value_position(const struct hb_live_row *row, int32_t token) {
    enum { POSITION_BITS = 20 };
    return hb_run_position(row, token) + (hb_run_branch(row, token) << POSITION_BITS);
}
