/* SPDX-License-Identifier: Apache-2.0
 * A recipe: what breaks one rule, in terms of the step it is applied to. The table is in
 * gen_recipe_table.c, the application in gen_recipes.c. */
#ifndef HB_HARNESS_GEN_RECIPES_H
#define HB_HARNESS_GEN_RECIPES_H

#include "harness/gen_history.h"

/* Which step the breaks go to; NEW_ steps are appended. */
enum on_step {
    ON_CONFIG,
    ON_FORWARD,
    ON_COMMIT,
    ON_GRAPH_INIT,
    ON_CAPTURE,
    NEW_TAKE,
    NEW_FREE,
    NEW_FREE_TWICE,
    NEW_COPY_SELF,
    NEW_CHILD,
    NEW_CHILD_DECODE, /* with a handle, one direction */
    NEW_CHILD_EXTEND,
    NEW_NULL,
    NEW_BARE,
    NEW_COMMIT,       /* without a verify before it */
    NEW_COMMIT_FREED, /* after one of its rows has given its slot back */
    NEW_COMMIT_STALE, /* and the slot was taken again */
    NEW_COMMIT_OVER,  /* and the slot was copied over */
    NEW_FREE_PAIR,    /* one slot named twice */
    NEW_COPY_PENDING, /* of a slot with records in its ring */
    NEW_EXTEND_PENDING,
    NEW_RING_SOME,    /* a forward of the ring, without a Mamba2 layer */
    NEW_GRAPH_INIT,   /* once more */
    NEW_CAPTURE,      /* of the first batch size */
    NEW_CAPTURE_OUTSIDE,
    NEW_REPLAY,       /* of a batch size that was not captured */
    NEW_PUBLISH,
    NEW_MOVE,
    NEW_MOVE_FULL     /* when no slot is free */
};

/* The break's row. */
enum at {
    AT_0,
    AT_1,
    AT_ROW,
    AT_ROW2,
    AT_PAD,
    AT_LAST,
    AT_TRACK,
    AT_TRACK2,
    AT_REQUEST,
    AT_ANY,
    AT_TOKEN,
    AT_TOKEN2,
    AT_MAP_NEW,
    AT_MAP_NEW2,
    AT_MAP_OLD,
    AT_LAYOUT_END,
    AT_ROOT, /* link of the row's first node */
    AT_NODE, /* and of its second */
    AT_VARIANT,
    AT_WINDOWS, /* the variant of the window layout */
    AT_LAYER_KIND, /* and of the first layer's kind */
    AT_GATE_FORM,
    AT_OWNER /* of the ring's owner */
};

/* The break's value is one of these plus `plus`. */
enum base {
    B_NUMBER,
    B_MODE,
    B_LAYER,
    B_BAD_LAYER,
    B_BATCH,
    B_EXTEND_ROWS,
    B_REAL,
    B_SUM_LESS_ROW,
    B_BAD_REQUEST,
    B_BAD_SLOT,
    B_BAD_TRACK,
    B_BAD_LOC,
    B_OTHER_LOC,
    B_FREE_SLOT,
    B_TRACK_SLOT,
    B_ROW_SLOT,
    B_ROW2_SLOT,
    B_OUTSIDE_SLOT,
    B_CONTEXT,
    B_MAX_BATCH,
    B_HEADS,
    B_Q_HEADS,
    B_CHUNK,
    B_NS,
    B_BAD_KIND,
    B_BAD_VARIANT,
    B_SIGN,
    B_TRACK_ROW,
    B_ROW2_TOKEN,
    B_MAP_NEW,
    B_VERIFY_BATCH, /* rows of the verify that a commit is about */
    B_LINKS,
    B_BAD_LINK,
    B_LESS_DRAFT, /* one less than the longest row */
    B_MAX_DRAFT,
    B_NODES,  /* of the row */
    B_COMMIT_ROWS,
    B_SPEC_ROWS, /* of the largest verify */
    B_LIVE_SLOT, /* of the row of the verify */
    B_LIVE_ID,   /* of some request */
    B_TOKENS,    /* of the step */
    B_BAD_GRAPH_MODE,
    B_OTHER_MODE, /* that a graph takes, but another one than the step's */
    B_BAD_PADDING,
    B_BAD_SIZE, /* below every least */
    B_GRAPH_TOKENS,
    B_BAD_RING,
    B_BAD_PAD,
    B_FREE_COUNT, /* of slots */
    B_BAD_VIRTUAL,
    B_OTHER_KIND
};

struct hb_break_recipe {
    int32_t field, operation; /* field -1: end of the list */
    enum at at;
    enum base base;
    int32_t plus;
};

struct hb_recipe {
    int32_t rule;
    enum on_step on;
    uint64_t needs;
    struct hb_break_recipe brk[HB_MAX_BREAKS];
    int32_t n_breaks;
    const char *unreachable;
};

/* The place a recipe is applied to. */
struct hb_spot {
    const struct hb_case *c;
    struct hb_rng *rng;
    struct hb_config config;
    int32_t step;
    const struct hb_case_step *s; /* null for the configuration and for steps that are appended */
    struct hb_history h;
    int32_t row, row2;     /* a row that meets the needs, and another one (or the same) */
    int32_t track, track2; /* tracked rows, -1 none */
    int32_t outsider;      /* live request outside the batch, -1 none */
};

/* gen_recipe_steps.c: appends the steps of a NEW_ recipe; 0 if the history has nothing for them. */
int hb_recipe_steps(struct hb_case *c, struct hb_spot *p, enum on_step on);
/* A live request with records in its ring, -1 none. */
int32_t hb_recipe_pending(const struct hb_history *h);

/* All recipes; returns their number. */
int hb_recipe_table(const struct hb_recipe **out);

#endif
