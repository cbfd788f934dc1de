/* SPDX-License-Identifier: Apache-2.0
 * Inside of generation: what a history does to slots and requests if every step succeeds, the
 * builder of valid histories, and the recipes that break one rule each. */
#ifndef HB_HARNESS_GEN_HISTORY_H
#define HB_HARNESS_GEN_HISTORY_H

#include "harness/gen.h"
#include "harness/rng.h"

/* What one TAKE step's slot holds. */
struct hb_taken {
    int32_t id; /* physical slot, first in first out over 1..NS */
    int32_t is_track;
    int32_t is_free;
    int32_t is_known; /* live: always; track: once something was stored */
    int32_t position; /* tokens after which the content holds */
};

/* The last verify, for the commit after it. */
struct hb_drafted {
    int32_t is_valid; /* no begin came after it */
    int32_t batch_size, n_rows;
    int32_t take[HB_MAX_ROWS]; /* TAKE order of each row's slot */
    int32_t position[HB_MAX_ROWS], nodes[HB_MAX_ROWS];
    int32_t depth[HB_MAX_ROWS][HB_MAX_DRAFT];
};

struct hb_history {
    int32_t n_slots;
    int32_t n_takes;
    struct hb_taken take[HB_MAX_STEPS];
    int32_t n_tracks;
    int32_t track[HB_MAX_STEPS];       /* TAKE order of the k-th track slot */
    int32_t request_take[HB_MAX_REQS]; /* TAKE order of the slot bound to a request, -1 none */
    int32_t n_free;
    int32_t free_list[2 * HB_MAX_STEPS + 8];
    struct hb_drafted drafted;
};

void hb_history_init(struct hb_history *h, int32_t n_slots);
/* Applies a step as if it succeeded; steps that cannot succeed change nothing. */
void hb_history_apply(struct hb_history *h, const struct hb_case *c, const struct hb_case_step *s);
/* The state before step `step` of c. */
void hb_history_replay(struct hb_history *h, const struct hb_case *c, int32_t step);
/* Tokens that a request has, and whether it has a live slot. */
int32_t hb_history_position(const struct hb_history *h, int32_t request);
int hb_history_is_live(const struct hb_history *h, int32_t request);
/* Cache chunk CC = max(C, page size). */
int32_t hb_case_cache_chunk(const struct hb_case *c);
int hb_mode_is_extend(int32_t mode); /* 1, 3, 8, 9 */

/* What a recipe needs of the case and of the step it is applied to. */
enum hb_need {
    HB_NEED_EXTEND = 1 << 0,     /* an extend row in a mode of the extend family */
    HB_NEED_DECODE = 1 << 1,     /* mode DECODE with a row */
    HB_NEED_M2 = 1 << 2,         /* MIXED with native decode rows */
    HB_NEED_TRACK = 1 << 3,      /* a tracked row */
    HB_NEED_TWO_TRACKS = 1 << 4, /* two of them */
    HB_NEED_TWO_ROWS = 1 << 5,
    HB_NEED_ATTENTION = 1 << 6,
    HB_NEED_PREFIX = 1 << 7,    /* a row whose request has tokens */
    HB_NEED_PADDING = 1 << 8,   /* a padding row */
    HB_NEED_START_LOC = 1 << 9, /* the optional array is given */
    HB_NEED_LENS_CPU = 1 << 10,
    HB_NEED_NO_EXTRAS = 1 << 11, /* neither of these two is given */
    HB_NEED_ORIGINAL = 1 << 12,  /* original_batch_size is given */
    HB_NEED_MASK = 1 << 13,      /* a track mask is given, all false or not */
    HB_NEED_CLAMP = 1 << 14,
    HB_NEED_CHUNK_8 = 1 << 15, /* C >= 8 */
    HB_NEED_FREE_SLOT = 1 << 16,
    HB_NEED_TRACK_SLOT = 1 << 17,
    HB_NEED_OUTSIDER = 1 << 18, /* a live request outside the batch */
    HB_NEED_ROW = 1 << 19,      /* any real row */
    HB_NEED_NO_TRACK = 1 << 20,
    HB_NEED_MAMBA = 1 << 21,
    HB_NEED_LONG_ROW = 1 << 22, /* an extend row of two tokens or more, or two rows */
    HB_NEED_ROOM = 1 << 23,     /* a step more fits */
    HB_NEED_NO_MASK = 1 << 24,   /* no track mask at all */
    HB_NEED_VERIFY = 1 << 25,    /* mode TARGET_VERIFY with a row */
    HB_NEED_TREE = 1 << 26,      /* links, and a row of three nodes or more */
    HB_NEED_UNIFORM = 1 << 27,   /* no layout */
    HB_NEED_RAGGED = 1 << 28,    /* a layout */
    HB_NEED_NO_LINKS = 1 << 29,  /* and a row of two nodes or more */
    HB_NEED_NO_VERIFY = 1 << 30
};
#define HB_NEED_SPEC_ROWS 0x80000000u /* intermediate caches of two rows or more */

struct hb_gen_state {
    struct hb_case *c;
    struct hb_rng rng;
    struct hb_history h;
    const struct hb_gen_options *o;
    int32_t is_near;
    int32_t is_spec; /* verify and commit among the forwards */
    int32_t is_compact; /* few steps, so that the relations of speculation have room for theirs */
    int32_t max_requests, max_tokens; /* of one forward */
    uint32_t needs;
};

/* gen_history.c: the steps of a valid history for the configuration in g->c. */
void hb_gen_history(struct hb_gen_state *g);
/* Appends a step; 0 if the case is full. */
int hb_gen_push(struct hb_gen_state *g, const struct hb_case_step *s);
void hb_gen_step_init(struct hb_case_step *s, int32_t kind);
int hb_gen_add_take(struct hb_gen_state *g, int32_t request, int32_t slot_kind, int32_t prefix,
                    int32_t from);
int hb_gen_add_forward(struct hb_gen_state *g);
int hb_gen_add_entry(struct hb_gen_state *g);

/* gen_verify.c */
/* A verify of requests that have tokens; 0 if there is none or the case is full. */
int hb_gen_add_verify(struct hb_gen_state *g);
/* A verify and what may follow it: again, commits, a commit of nothing. */
void hb_gen_add_round(struct hb_gen_state *g);
/* What a verify and a commit do to a history. */
void hb_history_verify(struct hb_history *h, const struct hb_case *c, const struct hb_case_step *s);
void hb_history_commit(struct hb_history *h, const struct hb_case_step *s);

/* gen_recipes.c: the table of recipes. */
/* A recipe's number of breaks, and where and what each one sets, are private; these are its public
 * face. */
struct hb_recipe_info {
    int32_t rule;
    uint32_t needs;
    const char *unreachable; /* null, or why no case can break the rule */
};
int hb_recipes(struct hb_recipe_info *out, int cap);
/* Applies recipe number `index` to c at some step that meets its needs; 1 if it could. */
int hb_recipe_apply(struct hb_case *c, int index, struct hb_rng *rng);

#endif
