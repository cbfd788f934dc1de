/* SPDX-License-Identifier: Apache-2.0
 * Inside of generation: what a history does to slots and requests if every step succeeds, the
 * builder of valid histories, and the recipes that break one rule each. */
#ifndef HB_HARNESS_GEN_HISTORY_H
#define HB_HARNESS_GEN_HISTORY_H

#include "harness/gen.h"
#include "harness/gen_needs.h"
#include "harness/ping_pong.h"
#include "harness/rng.h"

/* What one TAKE step's slot holds. */
struct hb_taken {
    int32_t id; /* first in first out over 1..NI */
    int32_t is_track, is_tree; /* tree: it has been published */
    int32_t is_free;
    int32_t is_known; /* live: always; track: once something was stored */
    int32_t stream, position; /* whose tokens, and after how many of them the content holds */
    int32_t cursor; /* records in the replay ring */
    int32_t is_full; /* the next verify folds them */
    int32_t request; /* live: who took it, else -1 */
};

/* A checkpoint in a track slot of ping-pong, or in the prefix cache. */
struct hb_kept {
    int32_t id, stream, position;
};

/* The last verify, for the commit after it. */
struct hb_drafted {
    int32_t is_valid; /* no begin came after it */
    int32_t batch_size, n_rows;
    int32_t take[HB_MAX_ROWS]; /* TAKE order of each row's slot */
    int32_t position[HB_MAX_ROWS], nodes[HB_MAX_ROWS];
    int32_t left[HB_MAX_ROWS]; /* records that it left in each row's ring */
    int32_t depth[HB_MAX_ROWS][HB_MAX_DRAFT];
};

/* What has been captured for one batch size. */
struct hb_captured {
    int32_t is_captured, mode, has_links, layer_mask;
};
enum { HB_MAX_CAPTURE = 2 * HB_MAX_ROWS, HB_MAX_HELD = 6 * HB_MAX_STEPS + 32 };

struct hb_history {
    int32_t n_slots;
    int32_t n_takes;
    struct hb_taken take[HB_MAX_STEPS];
    int32_t n_tracks;
    int32_t track[HB_MAX_STEPS];       /* TAKE order of the k-th track slot */
    int32_t request_take[HB_MAX_REQS]; /* TAKE order of the slot bound to a request, -1 none */
    int32_t request_stream[HB_MAX_REQS], n_streams;
    int32_t n_free;                    /* slots */
    int32_t n_free_ids;                /* as many, unless ids are virtual */
    int32_t free_list[HB_MAX_HELD];    /* ids */
    struct hb_ping_pong_table ping_pong[HB_MAX_REQS];
    struct hb_kept checkpoint[HB_MAX_REQS][2]; /* content of its slots */
    int32_t n_published;
    struct hb_kept published[HB_MAX_STEPS];
    int32_t graph_rows, graph_draft; /* of graph_init; 0: not called */
    struct hb_captured captured[HB_MAX_CAPTURE + 1]; /* by batch size */
    struct hb_drafted drafted;
};

/* n_virtual: 0, ids are slots. */
void hb_history_init(struct hb_history *h, int32_t n_slots, int32_t n_virtual);
/* Applies a step as if it succeeded; steps that cannot succeed change nothing. */
void hb_history_apply(struct hb_history *h, const struct hb_case *c, const struct hb_case_step *s);
/* The state before step `step` of c. */
void hb_history_replay(struct hb_history *h, const struct hb_case *c, int32_t step);
/* Tokens that a request has, and whether it has a live slot. */
int32_t hb_history_position(const struct hb_history *h, int32_t request);
int hb_history_is_live(const struct hb_history *h, int32_t request);
/* The mode whose forwards append to the ring of the case, if it has one; and whether this one's do. */
int32_t hb_case_ring_mode(const struct hb_case *c);
int hb_case_ring_has_mode(const struct hb_case *c, int32_t mode);
/* Records that are not folded in the ring of a request's slot. */
int32_t hb_history_cursor(const struct hb_history *h, int32_t request);
/* Id that row r of a step is tracked into, 0 none. */
int32_t hb_history_track_id(const struct hb_history *h, const struct hb_case_step *s, int32_t r);
/* The checkpoint that TAKE with match and prefix would start from, null if there is none. */
const struct hb_kept *hb_history_match(const struct hb_history *h, int32_t match, int32_t prefix);
/* Tokens of row r after a step as seq_lens says it: a verify's before it. */
int32_t hb_history_seq_len(const struct hb_history *h, const struct hb_case_step *s, int32_t r);
/* The row's checkpoint goes to a track slot. */
void hb_history_track(struct hb_history *h, const struct hb_case_row *row, int32_t request, int32_t stream,
                      int32_t position);
/* Cache chunk CC = max(C, page size). */
int32_t hb_case_cache_chunk(const struct hb_case *c);
int hb_mode_is_extend(int32_t mode); /* 1, 3, 8, 9 */

/* What the case is to have besides forwards, drawn by the target's weights (gen_features.c). */
struct hb_gen_features {
    int32_t spec;    /* verify and commit among the forwards */
    int32_t graphs, ring, cache, ping_pong, strip;
    int32_t ring_commits; /* the ring is owned by commits */
    int32_t tracks;  /* track slots in any case */
    int32_t slot_ops; /* many slot operations */
};

struct hb_gen_state {
    struct hb_case *c;
    struct hb_rng rng;
    struct hb_history h;
    const struct hb_gen_options *o;
    int32_t relation; /* asked for or drawn, 0 none */
    int32_t may_relate; /* a relation may be drawn */
    int32_t is_near;
    int32_t is_compact; /* few steps, so that relations have room for theirs */
    int32_t max_requests, max_tokens; /* of one forward */
    struct hb_gen_features has;
    uint64_t needs;
    int32_t mixer;
};

/* gen_variants.c */
/* The linear kind that is asked for, or one that meets the needs. */
void hb_gen_pick_mixer(struct hb_gen_state *g);
/* Variants of the linear layers; windows, soft cap and pages of attention, and the layers of target attention. */
void hb_gen_pick_variants(struct hb_gen_state *g);
void hb_gen_pick_attention(struct hb_gen_state *g);
/* Sizes, layers and variants of the model that is asked for. */
void hb_gen_take_model(struct hb_gen_state *g);

/* gen_features.c */
void hb_gen_pick_features(struct hb_gen_state *g);
/* Fields of the configuration that belong to the features. */
void hb_gen_configure_features(struct hb_gen_state *g);
/* Draws g->relation for a valid case of which no relation is asked. */
void hb_gen_pick_relation(struct hb_gen_state *g);
/* What a relation needs of its case, as need bits. */
uint64_t hb_gen_relation_needs(int32_t relation);

/* gen_history.c: the steps of a valid history for the configuration in g->c. */
void hb_gen_history(struct hb_gen_state *g);
/* Appends a step; 0 if the case is full. */
int hb_gen_push(struct hb_gen_state *g, const struct hb_case_step *s);
void hb_gen_step_init(struct hb_case_step *s, int32_t kind);
int hb_gen_add_forward(struct hb_gen_state *g);
int hb_gen_add_entry(struct hb_gen_state *g);
/* Lengths at which kernels and metadata change their way. */
int32_t hb_gen_edge_length(struct hb_gen_state *g);
/* Live requests in random order, without those whose ring holds records if is_folded; returns their number. */
int32_t hb_gen_live(struct hb_gen_state *g, int32_t is_folded, int32_t out[HB_MAX_REQS]);
/* Legal tracking of the step's rows. */
void hb_gen_pick_tracks(struct hb_gen_state *g, struct hb_case_step *s);
/* Track slots that may be written, by index, in random order; returns their number. */
int32_t hb_gen_usable_tracks(struct hb_gen_state *g, int32_t out[HB_MAX_STEPS]);

/* gen_slots.c: slots between forwards. */
int hb_gen_add_take(struct hb_gen_state *g, int32_t request, int32_t slot_kind, int32_t prefix,
                    int32_t from);
int32_t hb_gen_pick_prefix(struct hb_gen_state *g);
/* Takes of all requests and track slots in random order. */
void hb_gen_add_takes(struct hb_gen_state *g, int32_t n_requests, int32_t n_tracks);
/* Between two forwards: free and reuse, copy, move, publish, restart. */
void hb_gen_add_slot_ops(struct hb_gen_state *g);
/* Now and then take t moves to another slot, where ids are virtual. */
void hb_gen_add_move(struct hb_gen_state *g, int32_t t);

/* gen_graph.c */
/* graph_init and the first captures. */
void hb_gen_add_graphs(struct hb_gen_state *g);
/* A replay of one of the captured batch sizes, or another capture; 0 if nothing was added. */
int hb_gen_add_replay(struct hb_gen_state *g);

/* gen_verify.c */
/* A verify of requests that have tokens; 0 if there is none or the case is full. */
int hb_gen_add_verify(struct hb_gen_state *g);
/* A verify and what may follow it: again, commits, a commit of nothing. */
void hb_gen_add_round(struct hb_gen_state *g);
/* What may follow a verify: commits. */
void hb_gen_add_commits(struct hb_gen_state *g);
/* Requests that a verify can take, in random order; returns their number. */
int32_t hb_gen_drafted(struct hb_gen_state *g, int32_t out[HB_MAX_REQS]);

/* gen_model.c, gen_verify.c: what a verify and a commit do to a history. */
void hb_history_verify(struct hb_history *h, const struct hb_case *c, const struct hb_case_step *s);
void hb_history_commit(struct hb_history *h, const struct hb_case *c, const struct hb_case_step *s);

/* gen_recipes.c: the table of recipes. */
/* A recipe's number of breaks, and where and what each one sets, are private; these are its public
 * face. */
struct hb_recipe_info {
    int32_t rule;
    uint64_t needs;
    const char *unreachable; /* null, or why no case can break the rule */
};
int hb_recipes(struct hb_recipe_info *out, int cap);
/* Applies recipe number `index` to c at some step that meets its needs; 1 if it could. */
int hb_recipe_apply(struct hb_case *c, int index, struct hb_rng *rng);

#endif
