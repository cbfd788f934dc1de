/* SPDX-License-Identifier: Apache-2.0
 * Inside of one forward of the executor: what the accepted batch asks for, the buffers of a layer call, and the rooms that
 * work on them. Files: run_plan.c (planning), run_buffers.c (buffers), run_outputs.c (outputs), run_capture.c (what
 * relations need), run_states.c (states), run_verify.c (draft verification), run_commit.c (commit), run_forward.c (calls). */
#ifndef HB_HARNESS_RUN_FORWARD_H
#define HB_HARNESS_RUN_FORWARD_H

#include "harness/run_internal.h"

enum { HB_MAX_LIVE = 64, HB_RUN_GUARD = 64 };

struct hb_live_row {
    int32_t row, slot, request, stream, length, first, is_decode, has_init, dst, after;
    int32_t seq_len; /* tokens of the request with those of this row */
    int64_t pos;     /* without them */
    int32_t is_verify; /* enum hb_draft_kind: the row's tokens are draft nodes */
    int32_t parent[HB_MAX_DRAFT], depth[HB_MAX_DRAFT];
    int64_t branch[HB_MAX_DRAFT]; /* of each node; other rows have one for all tokens */
};

struct hb_forward {
    const struct hb_case_step *step;
    struct hb_plan plan;
    struct hb_owned_batch batch;
    struct hb_live_row live[HB_MAX_LIVE];
    int32_t n_live, n_real, n_tokens, mode;
    uint32_t layers_run;
    struct hb_ref_state *at[HB_MAX_LIVE][HB_MAX_LAYERS]; /* tracked states of extend rows */
    const char *place;
};

struct hb_layer_buffers {
    struct hb_layer_io io;
    struct hb_buf base[4];
    int32_t width[4];
    float *host[4]; /* inputs widened, then output */
    uint8_t *packed;
};

/* A block of one region: the state of a slot, or of a node of a verify. */
struct hb_entry {
    int32_t region;
    size_t at, bytes;
};

/* run_plan.c */
void hb_run_plan_case(struct hb_run *r, struct hb_forward *f);
/* The rows that the accepted batch describes. */
void hb_run_plan_batch(struct hb_run *r, struct hb_forward *f);
/* Slots of the case's track TAKEs so far; returns their number. */
int32_t hb_run_tracks(const struct hb_run *r, int32_t tracks[HB_MAX_NAMES]);
/* 0: statuses only. */
int hb_run_has_numbers(const struct hb_run *r);
/* Arithmetic of a row's path. */
const struct hb_profile *hb_run_profile(const struct hb_run *r, const struct hb_live_row *row);
/* KV token slots of the row's request by position, null without attention layers. */
const int32_t *hb_run_token_slots(const struct hb_forward *f, const struct hb_live_row *row);

/* Position and branch of a row's token, and the position under which its values are drawn: the plain one on branch 0. */
int64_t hb_run_position(const struct hb_live_row *row, int32_t token);
int64_t hb_run_branch(const struct hb_live_row *row, int32_t token);
int64_t hb_run_value_position(const struct hb_live_row *row, int32_t token);

/* run_buffers.c */
int hb_run_open_buffers(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                        struct hb_layer_buffers *lb);
void hb_run_close_buffers(struct hb_run *r, struct hb_layer_buffers *lb);
void hb_run_break_io(const struct hb_run *r, struct hb_layer_buffers *lb);

/* run_outputs.c */
/* After a layer call: output and guards, padding, every live token. */
int hb_run_read_output(struct hb_run *r, const struct hb_forward *f, struct hb_layer_buffers *lb);
void hb_run_check_padding(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                          const struct hb_layer_buffers *lb);
void hb_run_check_outputs(struct hb_run *r, struct hb_forward *f, int32_t layer,
                          struct hb_layer_buffers *lb);
/* One row's outputs against out, bound, mag [length, width]. */
void hb_run_check_row(struct hb_run *r, struct hb_forward *f, int32_t layer,
                      const struct hb_live_row *row, struct hb_layer_buffers *lb, const double *out,
                      const double *bound, const double *mag);
struct hb_where {
    int32_t layer;
    int64_t token, element;
    int32_t per_head, dtype; /* elements of a head; 0: no heads */
    double got, want, bound;
};
void hb_run_report(struct hb_run *r, const struct hb_forward *f, const struct hb_live_row *row,
                   const struct hb_where *w, const char *what, int32_t kind, const char *check);

/* run_capture.c */
void hb_run_capture_output(struct hb_run *r, const struct hb_live_row *row, int32_t layer, int32_t token,
                           int32_t n, const float *got, const double *bound);

/* run_states.c */
struct hb_entry hb_run_slot_entry(const struct hb_run *r, int32_t region, int32_t slot);
void hb_run_want_kv(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                    const struct hb_layer_buffers *lb);
/* want := the state's window. */
void hb_run_want_conv(struct hb_run *r, struct hb_entry e, const struct hb_ref_state *state);
/* A temporal state within its bound; afterwards its bytes are accepted as they are. token: of the batch. */
void hb_run_check_temporal(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                           const struct hb_live_row *row, int64_t token, struct hb_entry e,
                           const struct hb_ref_state *state, const char *check, const char *what);
void hb_run_check_states(struct hb_run *r, struct hb_forward *f, int32_t layer);
void hb_run_advance(struct hb_run *r, struct hb_forward *f);
/* content := the state of stream after pos tokens, read from the slot's bytes: what nobody can predict is the truth from
 * here on. loc: KV token slots [pos] or null. */
void hb_run_anchor(struct hb_run *r, int32_t slot, int32_t stream, int64_t pos, const int32_t *loc);
int hb_run_set_loc(struct hb_content *content, const int32_t *slots, int64_t n);

/* run_verify.c */
void hb_run_plan_tree(struct hb_run *r, const struct hb_forward *f, struct hb_live_row *row);
void hb_run_verify_mamba2(struct hb_run *r, struct hb_forward *f, int32_t layer,
                          struct hb_layer_buffers *lb);
void hb_run_verify_attention(struct hb_run *r, struct hb_forward *f, int32_t layer,
                             struct hb_layer_buffers *lb);
/* After finish: intermediate entries of the layers that ran, and pools untouched. */
void hb_run_verify_states(struct hb_run *r, struct hb_forward *f);
/* Entry of a row's node in an intermediate cache. */
struct hb_entry hb_run_node_entry(const struct hb_run *r, int32_t region, int32_t row, int32_t node);
/* What a commit may stand on. */
void hb_run_verify_done(struct hb_run *r, const struct hb_forward *f);
/* 1 if the twist takes the node's inputs away: no commit before the next forward needs it. */
int hb_run_is_rejected(const struct hb_run *r, const struct hb_live_row *row, int32_t node);

/* run_forward.c */
int32_t hb_run_begin(struct hb_run *r, struct hb_owned_batch *owned, const struct hb_batch *batch,
                     const char *place);

#endif
