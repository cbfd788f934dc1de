/* SPDX-License-Identifier: Apache-2.0
 * Between the files of relations. Each relations_<area>.c gives an array of transformations; relations.c lists the arrays,
 * makes the second run and compares; relations_list.c holds the records. */
#ifndef HB_HARNESS_RELATIONS_INTERNAL_H
#define HB_HARNESS_RELATIONS_INTERNAL_H

#include "harness/run_internal.h"

/* What is demanded of two runs; conv states are always compared byte for byte. */
enum hb_exactness {
    HB_EXACT = 0,
    HB_BOUNDED,    /* within the sum of both bounds */
    HB_EXACT_FP32, /* exact where states are stored in fp32, or there are none, and so nothing is lost by storing one */
    HB_EXACT_SCAN, /* exact where a prefill is a recurrence over the tokens of one row, and no chunk grid moves */
    HB_EXACT_BATCH, /* as HB_EXACT_SCAN, and where the backend says that no row depends on the others of its batch */
    HB_EXACT_ROWS,  /* exact where chunks, if there are any, start their sums anew with each row */
    HB_EXACT_REPLAY /* exact where the backend says that a replay gives the bits of the eager forward */
};

enum hb_transform_flag {
    HB_REL_WITH_ERRORS = 1,   /* also says something where calls are refused */
    HB_REL_MOVES_KV = 2,      /* tokens get other KV slots: none may be read that was never written */
    HB_REL_SKIP_TRACKED = 4,  /* track slots may differ */
    HB_REL_ONLY_LAYER = 8,    /* compare layer relation_arg % n_layers only */
    HB_REL_SUBSET = 16,       /* the transformed run makes some of the outputs only, or makes them in another way */
    HB_REL_SWAPS_CHAINS = 32, /* chains become linked chains and the other way round */
    HB_REL_ONE_FORMULA = 64,  /* a prefill and a decode of one token must be one formula: limits of the time step on both */
    HB_REL_CONV_ONLY = 128,   /* of the states, conv only */
    HB_REL_NO_RING = 256,     /* says nothing with a replay ring: what a slot's temporal holds depends on when it folds */
    HB_REL_LINEAR_ONLY = 512, /* compare linear layers of the case itself only */
    HB_REL_TRACKED_ONLY = 1024 /* compare the states of track slots only */
};

struct hb_transform {
    int32_t number;
    enum hb_exactness outputs, state;
    enum hb_exactness unchanged; /* 36: of streams in which nothing changes */
    uint32_t flags;
    int32_t conv_number; /* the relation that a difference of conv states is reported as; 0: this one */
    /* Returns 0 when the relation says nothing about this case. *out is a copy of *c, *twist one of the twist below. */
    int (*apply)(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist);
    struct hb_twist twist; /* what differs beyond the case */
};

/* One area's transformations. */
struct hb_transforms {
    const struct hb_transform *list;
    int32_t n;
};
#define HB_BOTH(exactness) .outputs = (exactness), .state = (exactness)
#define HB_TRANSFORMS(array) {array, (int32_t)(sizeof(array) / sizeof *(array))}
extern const struct hb_transforms hb_transforms_base, hb_transforms_spec, hb_transforms_graph,
    hb_transforms_batch, hb_transforms_track;

/* relations.c: the verdict of two runs that differ. a: of the first run, b: of the other one. */
void hb_relation_fail(struct hb_verdict *v, int32_t number, const char *what, int32_t layer, int64_t pos,
                      int64_t element, double a, double b, double bound);

/* relations_kernel.c, relations_limits.c: 62 to 66, in runs of their own with the layer reduced to its scan. 0 if the case asks for another
 * relation. */
int hb_relation_kernel(const struct hb_adapter *backend, const struct hb_case *c, const struct hb_run_options *o,
                       const struct hb_capture *base, struct hb_verdict *v, struct hb_run_stats *stats);

/* relations_base.c */
/* Histories with breaks, or in which slots are copied over each other, are not transformed: there one request may visit a
 * position twice with different states. */
int hb_relation_is_plain(const struct hb_case *c);
/* The same case; the twist of the table's row does the rest. */
int hb_relation_same_case(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist);
/* Appends a step; 0 if the case is full. */
int hb_relation_append(struct hb_case *out, const struct hb_case_step *s);
int hb_relation_is_forward(const struct hb_case_step *s);
/* A forward of mode EXTEND, MIXED, SPLIT_PREFILL or DLLM_EXTEND. */
int hb_relation_is_extend(const struct hb_case_step *s);
int hb_relation_has_track(const struct hb_case_step *s);
/* 1 if a request starts from a track slot, or from what the prefix cache has. */
int hb_relation_has_restart(const struct hb_case *c);

#endif
