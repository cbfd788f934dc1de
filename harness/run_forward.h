/* SPDX-License-Identifier: Apache-2.0
 * Inside of one forward of the executor: what the accepted batch asks for, the buffers of a layer call, and the rooms that
 * work on them. Files: run_plan.c (planning), run_buffers.c (buffers), run_outputs.c (outputs), run_capture.c (what
 * relations need), run_states.c (states), run_ring.c (replay ring), run_verify.c (draft verification), run_windows.c (its
 * caches), run_commit.c (commit), run_forward.c (calls), run_graph.c and run_graph_static.c (captures and replays). */
#ifndef HB_HARNESS_RUN_FORWARD_H
#define HB_HARNESS_RUN_FORWARD_H

#include "harness/run_internal.h"

enum { HB_MAX_LIVE = 64, HB_RUN_GUARD = 64 };

struct hb_live_row {
    int32_t row, request, stream, length, first, is_decode, has_init, after;
    int32_t id, slot;       /* state: what the table says, and the slot it means */
    int32_t dst_id, dst;    /* the same of the checkpoint's destination, 0: not tracked */
    int32_t has_ring, w, folds; /* the replay ring is this mode's: the slot's cursor, and whether this token folds the
                                   records with its own; in a verify, whether what is there is folded before the nodes */
    int32_t base; /* verify: position of the first record */
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
    int64_t shift[HB_MAX_ROWS]; /* invariants 31, 33: how far a row's seq_lens in the batch are from the truth */
    struct hb_live_row live[HB_MAX_LIVE];
    int32_t n_live, n_real, n_tokens, mode;
    int32_t is_replay;
    struct hb_graph_set *set; /* captured or replayed, else null */
    uint32_t layers_run;
    struct hb_ref_state *at[HB_MAX_LIVE][HB_MAX_LAYERS]; /* tracked states of extend rows */
    double *record[HB_MAX_LIVE][HB_MAX_LAYERS]; /* what each token appends to the ring: values, then bounds */
    const char *place;
};

struct hb_layer_buffers {
    struct hb_layer_io io;
    struct hb_buf base[4];
    int32_t width[4];
    float *host[4]; /* inputs widened, then output */
    uint8_t *packed;
};

/* What one batch size's graph has captured. */
struct hb_graph_set {
    int32_t mode, has_links;
    uint32_t layers_run;
    struct hb_layer_buffers lb[HB_MAX_LAYERS]; /* of these layers; host and packed are those of the call in progress */
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
/* 0: the reserved slot, or a spoiled one: nothing can be predicted. */
int hb_run_is_predicted(const struct hb_run *r, const struct hb_live_row *row);
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
/* The inputs of a forward in buffers that exist: on the host, widened as stored; write: in the buffers too, with poison in
 * the output. */
int hb_run_refill_buffers(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                          struct hb_layer_buffers *lb, int32_t write);

/* run_outputs.c */
/* Input 0..2 of a token, widened; null where the layer's kind does not read it. */
const float *hb_run_token(const struct hb_layer_buffers *lb, int32_t input, int64_t token);
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

/* run_twist.c */
/* Lengths of the second run of a relation, in the batch that was derived. */
void hb_run_shift_lens(const struct hb_run *r, struct hb_forward *f);

/* run_capture.c */
void hb_run_capture_output(struct hb_run *r, const struct hb_live_row *row, int32_t layer, int32_t token,
                           int32_t n, const float *got, const double *bound);

/* run_states.c */
struct hb_entry hb_run_slot_entry(const struct hb_run *r, int32_t region, int32_t slot);
void hb_run_want_kv(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                    const struct hb_layer_buffers *lb);
/* want := the state's window. */
void hb_run_want_conv(struct hb_run *r, struct hb_entry e, const struct hb_ref_state *state);
/* A temporal state within its bound; afterwards its bytes are accepted as they are. token: of the batch; what: behind the
 * kind's name. */
void hb_run_check_temporal(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                           const struct hb_live_row *row, int64_t token, struct hb_entry e,
                           const struct hb_ref_state *state, const char *check, const char *what);
void hb_run_check_states(struct hb_run *r, struct hb_forward *f, int32_t layer);
void hb_run_advance(struct hb_run *r, struct hb_forward *f);
/* content := the state of stream after pos tokens, read from the slot's bytes: what nobody can predict is the truth from
 * here on. loc: KV token slots [pos] or null. */
void hb_run_anchor(struct hb_run *r, int32_t slot, int32_t stream, int64_t pos, const int32_t *loc);
int hb_run_set_loc(struct hb_content *content, const int32_t *slots, int64_t n);

/* run_ring.c */
void hb_run_plan_ring(const struct hb_run *r, const struct hb_forward *f, struct hb_live_row *row);
/* Token t of a row by the oracle; the record is kept for the comparison. Bounds are `stride` doubles behind out,
 * magnitudes as many behind these. Returns 0 or -1. */
int hb_run_ring_token(struct hb_run *r, struct hb_forward *f, int32_t live, int32_t layer, int32_t t,
                      const struct hb_layer_buffers *lb, struct hb_ref_state *state, double *out, size_t stride);
/* The row's records: one entry per token is new, the rest is as it was. */
void hb_run_check_records(struct hb_run *r, const struct hb_forward *f, int32_t live, int32_t layer);
/* Cursors after finish. */
void hb_run_ring_done(struct hb_run *r, const struct hb_forward *f);
/* After the layers of a verify whose commits own the ring: records, and temporal where it folds. */
void hb_run_ring_verified(struct hb_run *r, struct hb_forward *f, int32_t layer);
/* A forward of the ring that cannot be finished: what its rows write may be anything. */
void hb_run_ring_spoil(struct hb_run *r, struct hb_forward *f);

/* run_graph.c */
/* "DECODE replay", .. for fingerprints. */
const char *hb_replay_place(int32_t mode);
/* After an accepted replay: static buffers as predicted; then the inputs of the captured layers. */
void hb_run_graph_refreshed(struct hb_run *r, struct hb_forward *f);
/* After finish of a replay: what each captured layer has computed. */
void hb_run_graph_outputs(struct hb_run *r, struct hb_forward *f);

/* run_graph_static.c */
/* want := static buffers before the first capture, after a capture, after a refresh. */
void hb_run_want_static_initial(struct hb_run *r);
void hb_run_want_static_capture(struct hb_run *r, int32_t bs);
void hb_run_want_static_refresh(struct hb_run *r, const struct hb_forward *f);
/* Every byte of the set of bs := nonsense, in the backend and in the mirror. */
void hb_run_poison_static(struct hb_run *r, int32_t bs);

/* run_verify.c */
void hb_run_plan_tree(struct hb_run *r, const struct hb_forward *f, struct hb_live_row *row);
void hb_run_verify_linear(struct hb_run *r, struct hb_forward *f, int32_t layer,
                          struct hb_layer_buffers *lb);
void hb_run_verify_attention(struct hb_run *r, struct hb_forward *f, int32_t layer,
                             struct hb_layer_buffers *lb);
/* After finish: intermediate entries of the layers that ran, and pools untouched. */
void hb_run_verify_states(struct hb_run *r, struct hb_forward *f);
/* What a commit may stand on. */
void hb_run_verify_done(struct hb_run *r, const struct hb_forward *f);
/* 1 if the twist takes the node's inputs away: no commit before the next forward needs it. */
int hb_run_is_rejected(const struct hb_run *r, const struct hb_live_row *row, int32_t node);

/* run_windows.c */
/* Entry of a row's node in the intermediate states, or in dense windows. */
struct hb_entry hb_run_node_entry(const struct hb_run *r, int32_t region, int32_t row, int32_t node);
/* want := the row's window after a node, from the state's, or whatever it is (state null). */
void hb_run_want_window(struct hb_run *r, int32_t region, int32_t row, int32_t node,
                        const struct hb_ref_state *state);
/* The windows of a row's first n nodes against want; -1 and a verdict if they differ. */
int hb_run_compare_windows(struct hb_run *r, int32_t region, int32_t row, int32_t n, const char *check,
                           const char *place);
/* The window of a node as the mirror knows it, in the form of a conv state, to `to`. */
void hb_run_copy_window(const struct hb_run *r, int32_t region, int32_t row, int32_t node, uint8_t *to);

/* run_forward.c */
enum hb_begin_call { HB_CALL_BEGIN, HB_CALL_CAPTURE, HB_CALL_REPLAY };
int32_t hb_run_begin(struct hb_run *r, int32_t call, struct hb_owned_batch *owned,
                     const struct hb_batch *batch, const char *place);
/* One layer through layer() or, for an entry step, through entry(). id: the id passed on. */
void hb_run_call_layer(struct hb_run *r, struct hb_forward *f, int32_t id);
/* After a layer has run: its KV entries, outputs, padding. */
void hb_run_layer_done(struct hb_run *r, struct hb_forward *f, int32_t layer, struct hb_layer_buffers *lb);
/* Predicts and calls finish; 1 if it is done. */
int hb_run_finish(struct hb_run *r, const struct hb_forward *f);

#endif
