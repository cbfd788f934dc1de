/* SPDX-License-Identifier: Apache-2.0
 * Inside of the executor: what the harness knows while a case runs. Files: run.c (life of a run), run_regions.c and
 * run_tables.c (regions, and the tables among them), run_kinds.c (what differs between kinds of layers), run_slots.c and
 * run_take.c (slot steps), run_graph.c (captures), ping_pong.c and prefix_cache.c (the scheduler's side of tracking),
 * run_forward.h and its rooms (forwards, entries, commits), run_compare.c (comparisons), run_stats.c (statistics), run_twist.c and relations.c (transformed second runs). */
#ifndef HB_HARNESS_RUN_INTERNAL_H
#define HB_HARNESS_RUN_INTERNAL_H

#include "harness/dump.h"
#include "harness/materialize.h"
#include "harness/oracle/oracle.h"
#include "harness/ping_pong.h"
#include "harness/prefix_cache.h"
#include "harness/run.h"

enum { HB_MAX_REGIONS = 9 * HB_MAX_LAYERS + 32, HB_MAX_NAMES = HB_MAX_STEPS, HB_MAX_VERIFY_ROWS = 32 };

/* What a slot holds, by the law: the state of `stream` after `pos` tokens. Siblings of a draft stand at one position: the
 * branch names the way to a token, 0 where each token on it is a first child or no draft at all. Spoiled: a decode with the
 * replay ring was begun and never finished, so that nothing can be said of the bytes until the request starts afresh. */
struct hb_content {
    int32_t known, is_spoiled;
    int32_t stream;
    int64_t pos, branch;
    int32_t *loc; /* KV token slots of positions 0..pos-1 */
    int64_t n_loc;
    struct hb_ref_state *ref[HB_MAX_LAYERS]; /* linear layers */
};

/* The branch of a token whose node is the rank-th child of its parent (from 0). */
static inline int64_t hb_branch_of(int64_t parent, int64_t position, int32_t rank) {
    uint64_t x = (uint64_t)parent * 0x9e3779b97f4a7c15u + (uint64_t)position * 0xd1342543de82ef95u +
                 (uint64_t)rank * 0x94d049bb133111ebu;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return rank == 0 ? parent : (int64_t)(x >> 33 | 1u);
}

/* What a token is. States between the nodes of a chain are kept as they are, between those of links they are stored. */
enum hb_draft_kind { HB_DRAFT_NONE = 0, HB_DRAFT_CHAIN = 1, HB_DRAFT_LINKED_CHAIN = 2, HB_DRAFT_TREE = 3 };

/* One captured output token of one layer, for relations. */
struct hb_captured {
    int32_t request, stream, layer, n;
    int32_t is_verify; /* enum hb_draft_kind */
    int64_t pos, branch;
    int64_t start; /* of a draft node: tokens before the verify, from whose stored state it is computed; else 0 */
    float *got;
    double *bound;
};
struct hb_capture {
    struct hb_captured *item;
    size_t n, cap;
    /* state of each slot name in each layer at the end: conv then temporal; stream -1: not known */
    struct {
        int32_t stream, is_track;
        int32_t cursor; /* of the replay ring: temporal is the state before so many records */
        int64_t pos, branch;
        float *conv[HB_MAX_LAYERS], *ssm[HB_MAX_LAYERS];
        double *bound[HB_MAX_LAYERS];
    } slot[HB_MAX_NAMES];
    int32_t n_conv, n_ssm;
    int32_t refused; /* calls with a predicted error */
};

/* How a transformed run differs beyond its case (see relations.c). */
struct hb_twist {
    /* what a transformation may look at */
    const struct hb_capture *base; /* the run of the case itself */
    const struct hb_caps *caps;
    int32_t nan_pool;    /* 11: pool pre-filled with NaN */
    int32_t nan_inputs;  /* 10: every activation NaN, statuses only */
    int32_t nan_fresh;   /* 14: slots of rows without prefix hold NaN before the forward */
    int32_t insert_fail; /* 8: a failing call before each forward and commit */
    int32_t poison_static; /* 47: nonsense in the static buffers of the batch size before each replay */
    int32_t nan_rejected; /* 55: inputs of draft nodes that no commit needs are NaN */
    int32_t rotate_slots; /* 15: so many slots are taken and given back in the other order before the first step */
    int32_t prefix_len;   /* 31: what untracked eager extend rows with a prefix say of it, seq_lens adjusted; 0: the truth */
    int32_t seq_len;      /* 33: what untracked eager decode rows say of it; 0: the truth */
    int32_t keep_config;  /* 16: the configuration of the case itself */
    struct hb_value_source values; /* 16, 36: null fill: the run's own */
    int32_t is_before, stream; /* 36: activations of this stream differ from position pos on: compare what is not after it */
    int64_t pos;
    int32_t is_clone, clone, clone_of, clone_name; /* 39: a request that restarts, and the slot names of the request that it
                                                      repeats and of its own */
    int32_t rank[HB_MAX_STEPS][HB_MAX_ROWS]; /* 51: of the draft node that a decode row's token stands for */
};

/* One live row of the last verify. */
struct hb_verified_row {
    int32_t request; /* of the case */
    int32_t slot, stream, is_known; /* slot 0: nothing is predicted; known: the reference states exist */
    int32_t left;    /* records that the verify left in the ring */
    int64_t pos;                    /* tokens before the verify */
    int64_t branch[HB_MAX_DRAFT];
    int32_t depth[HB_MAX_DRAFT];
    int32_t parent[HB_MAX_DRAFT];
    int32_t *loc; /* KV token slots of positions 0..pos-1, then of the nodes; null without attention layers */
    struct hb_ref_state *state[HB_MAX_LAYERS][HB_MAX_DRAFT]; /* after each node along its path */
};

/* What a commit stands on. Memory is kept from one verify to the next. */
struct hb_verified {
    struct hb_verify_phase phase; /* points into ids, generations and nodes */
    int32_t ids[HB_MAX_VERIFY_ROWS], nodes[HB_MAX_VERIFY_ROWS];
    int64_t generations[HB_MAX_VERIFY_ROWS];
    uint32_t layers_run;
    struct hb_verified_row row[HB_MAX_VERIFY_ROWS];
};

struct hb_run {
    const struct hb_adapter *backend;
    const struct hb_case *c;
    const struct hb_run_options *o;
    struct hb_verdict *v;
    struct hb_run_stats *stats;
    struct hb_capture *capture; /* may be null */
    struct hb_twist twist;
    int32_t is_reshaped; /* breaks of the configuration changed sizes that values are made for: statuses only */
    struct hb_caps caps;
    struct hb_config config;
    int32_t kind;             /* of the linear layers; Mamba2 where there are none */
    struct hb_ref_sizes sizes; /* of that kind */
    int32_t n_conv, n_ssm;     /* elements of one slot's states, 0: the kind has none */
    int32_t is_anchored;       /* each call of the reference starts from the state that the backend stored (hb_run_anchors) */
    const struct hb_layer_params *params;
    struct hb_layer_params own_params[HB_MAX_LAYERS];
    struct hb_run_memory *memory;
    void *handle;
    struct hb_slot_model slots;
    struct hb_content *content; /* [NS+1] by slot; what requests, names and plans hold are ids */
    int32_t request_slot[HB_MAX_REQS]; /* id, 0 unbound */
    int32_t request_generation[HB_MAX_REQS];
    int32_t request_stream[HB_MAX_REQS]; /* of the newest request of this number */
    int32_t request_at[HB_MAX_REQS];     /* slot in which its state was last seen */
    struct hb_ping_pong_table ping_pong[HB_MAX_REQS];
    struct hb_prefix_cache cache;
    int32_t name[HB_MAX_NAMES]; /* id of each TAKE in order, 0 = failed */
    int32_t name_is_track[HB_MAX_NAMES];
    int32_t name_request[HB_MAX_NAMES]; /* of a live TAKE, else -1 */
    int32_t n_names;
    struct hb_kv_alloc kv;
    int32_t n_regions;
    struct hb_region region[HB_MAX_REGIONS];
    uint8_t *mirror[HB_MAX_REGIONS];
    uint8_t *actual[HB_MAX_REGIONS];
    uint8_t *want[HB_MAX_REGIONS];
    uint8_t is_unchanged[HB_MAX_REGIONS]; /* want holds the bytes of mirror */
    struct hb_forward_phase phase;
    struct hb_graph_phase graphs;
    struct hb_graph_set *graph_set[HB_MAX_GRAPH_ROWS + 1]; /* by batch size; run_forward.h */
    int32_t batch_mode; /* of the last begin, capture or replay that was tried */
    struct hb_verified verified;
    int32_t step; /* index of the running step */
    int32_t no_memory;
    struct hb_dump dump;
    int64_t tampered; /* elements seen so far of the tamper kind */
};

/* run.c */
/* Compares one call's result with its prediction; 1 if both are HB_OK (go on), 0 otherwise. A difference sets the verdict. */
int hb_run_judge(struct hb_run *r, const char *call, const char *place, const struct hb_error *want,
                 int32_t got_status, const struct hb_error *got);
void hb_run_fill(struct hb_run *r, int32_t tensor, int32_t stream, int32_t layer, int64_t position,
                 int32_t n, float *out);
uint64_t hb_run_now(const struct hb_run *r);
/* Adds the time since hb_run_now() was `since` to a phase (enum hb_phase). */
void hb_run_phase(const struct hb_run *r, int32_t phase, uint64_t since);
/* n bytes for one use, valid until the next request for this use; null (and no_memory set) when out of memory. */
void *hb_run_bytes(struct hb_run *r, int32_t use, size_t n);
/* A zero state of the oracle; null (and no_memory set) when out of memory. */
struct hb_ref_state *hb_run_state_new(struct hb_run *r);
void hb_run_state_free(struct hb_run *r, struct hb_ref_state *state);
/* Scratch arrays of the forward. */
float *hb_run_floats(struct hb_run *r, size_t n);
double *hb_run_doubles(struct hb_run *r, size_t n);
int hb_run_done(const struct hb_run *r);
/* Index of a region by name and layer, -1 if the backend has none. */
int32_t hb_run_region(const struct hb_run *r, const char *name, int32_t layer);
const char *hb_mode_place(int32_t mode);

/* run_slots.c, run_take.c */
void hb_run_take(struct hb_run *r, const struct hb_case_step *step);
void hb_run_free(struct hb_run *r, const struct hb_case_step *step);
void hb_run_copy(struct hb_run *r, const struct hb_case_step *step);
void hb_run_publish(struct hb_run *r, const struct hb_case_step *step);
void hb_run_move(struct hb_run *r, const struct hb_case_step *step);
/* One slot_copy with all its checks; content follows. */
void hb_run_copy_slot(struct hb_run *r, int32_t src, int32_t dst, const char *place);
/* slot_take of n slots of a kind with all its checks: 1 if ids [n] are taken, empty. n that cannot be is predicted. */
int hb_run_take_slots(struct hb_run *r, int32_t n, int32_t kind, int32_t *ids);
/* Slot of an id; the reserved one for ids that are free or none. */
int32_t hb_run_slot(const struct hb_run *r, int32_t id);
/* Value of a slot operation's argument after the breaks of this step. */
int32_t hb_run_break_value(const struct hb_run *r, int32_t field, int32_t row, int64_t value);
/* Destination of a tracked row of the request with ping-pong, id or 0; takes the slots that are still missing. */
int32_t hb_run_ping_pong(struct hb_run *r, int32_t request);

/* run_regions.c: each returns 0, or -1 with a verdict or no_memory. */
int hb_run_open_regions(struct hb_run *r);
int hb_run_fill_pool(struct hb_run *r);

/* run_tables.c */
/* want := what the model says of mapping table, kinds, ids and cursors. */
void hb_run_want_tables(struct hb_run *r);
/* The same, and anything in tables of the backend's own: for slot operations. */
void hb_run_want_own_tables(struct hb_run *r);
/* The tables of a fresh backend, as fill_pool read them. */
void hb_run_check_fresh_tables(struct hb_run *r);

void hb_content_reset(struct hb_run *r, struct hb_content *content);
/* Deep copy; returns -1 when out of memory. */
int hb_content_copy(struct hb_run *r, struct hb_content *dst, const struct hb_content *src,
                    int64_t n_loc);
int hb_content_zero(struct hb_run *r, struct hb_content *content, int32_t stream);

/* run_kinds.c: what differs between the kinds of linear layers */
/* What the run's configuration, which is accepted, says of its kind. */
void hb_run_set_kind(struct hb_run *r);
int hb_run_is_linear(const struct hb_run *r, int32_t layer);
/* The parameters that the layer's kind reads, from the run's values; 0 or -1 (no memory). */
int hb_run_make_params(struct hb_run *r);
/* Names of the layer's buffers 0..3, for dumps, and what it is called in checks and texts: "mamba2", .. */
const char *hb_run_buffer_name(const struct hb_run *r, int32_t layer, int32_t buffer);
const char *hb_run_kind_name(int32_t layer_kind);
/* A slot's temporal state from its bytes to [H, P, N], or to its bytes, whatever the layout of the state. */
void hb_run_unpack_ssm(struct hb_run *r, int32_t region, const uint8_t *from, float *to);
void hb_run_pack_ssm(struct hb_run *r, int32_t region, const float *from, uint8_t *to);
/* What the slot holds in the mirror: conv [n_conv] and temporal [H, P, N], zeros where the layer has no such region. */
void hb_run_read_slot(struct hb_run *r, int32_t layer, int32_t slot, float *conv, float *ssm);
/* state := the same, as an exact value. */
void hb_run_set_state(struct hb_run *r, int32_t layer, int32_t slot, struct hb_ref_state *state);
/* Kind of the linear layers, Mamba2 where there are none. */
int32_t hb_run_linear_kind(const struct hb_config *config);
/* 1 if the reference of this kind and form starts each call from the stored state. */
int hb_run_anchors(const struct hb_config *config, const struct hb_caps *caps);

/* run_twist.c: before the first step */
void hb_run_rotate_slots(struct hb_run *r);

/* run_forward.c, run_commit.c, run_verify.c */
void hb_run_forward(struct hb_run *r, const struct hb_case_step *step);
void hb_run_commit(struct hb_run *r, const struct hb_case_step *step);
/* run_graph.c */
void hb_run_graph_init(struct hb_run *r, const struct hb_case_step *step);
void hb_run_graph_capture(struct hb_run *r, const struct hb_case_step *step);
void hb_run_graph_free(struct hb_run *r);
void hb_run_verified_free(struct hb_run *r);

/* run_capture.c */
void hb_run_capture_slots(struct hb_run *r);
void hb_capture_free(struct hb_capture *capture);

/* run_compare.c */
/* The mirror of a region, to be written. */
uint8_t *hb_run_mirror(struct hb_run *r, int32_t region);
/* Reads all regions into actual. */
int hb_run_read_regions(struct hb_run *r);
/* want := mirror for all regions. */
void hb_run_want_unchanged(struct hb_run *r);
/* Marks bytes that may hold anything by copying them from actual to want. */
void hb_run_allow(struct hb_run *r, int32_t region, uint64_t offset, uint64_t bytes);
/* Compares actual with want byte for byte; the first difference sets a verdict of `kind` and `check`. mirror := actual. */
void hb_run_compare_regions(struct hb_run *r, int32_t kind, const char *check, const char *place);
/* Some bytes of one region only; -1 and a verdict of kind state if they differ. */
int hb_run_compare_bytes(struct hb_run *r, int32_t region, size_t at, size_t bytes,
                         const char *check, const char *place);
/* n elements of a layer's output, or of its temporal state, against value and bound; counts, tampers. Returns index of the
 * first element outside, or -1. */
int64_t hb_run_compare_bounds(struct hb_run *r, int32_t layer, int32_t is_state, int64_t n, float *got,
                              const double *want, const double *bound, const double *mag);
uint64_t hb_ulp_distance(int32_t dtype, double a, double b);

/* relations.c */
void hb_run_relation(const struct hb_adapter *backend, const struct hb_case *c,
                     const struct hb_run_options *o, const struct hb_capture *base,
                     struct hb_verdict *v, struct hb_run_stats *stats);
/* One plain run with capture and twist; the only caller of the steps. */
int hb_run_once(const struct hb_adapter *backend, const struct hb_case *c,
                const struct hb_run_options *o, const struct hb_twist *twist,
                struct hb_capture *capture, struct hb_verdict *v, struct hb_run_stats *stats);
/* The same for a run whose capture is compared with that of another one. Bounds of a capture are against what both compute;
 * where those of a plain run are against what its own backend stored, the case runs plainly first. */
int hb_run_captured(const struct hb_adapter *backend, const struct hb_case *c, const struct hb_run_options *o,
                    struct hb_capture *capture, struct hb_verdict *v, struct hb_run_stats *stats);
/* The configuration that the options give, or the case's own. */
void hb_run_config(const struct hb_case *c, const struct hb_run_options *o, struct hb_config *config);

#endif
