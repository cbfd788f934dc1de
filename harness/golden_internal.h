/* SPDX-License-Identifier: Apache-2.0
 * Parts of the golden check: the imported case, its schedules, its plain float64 result, and one
 * run. */
#ifndef HB_HARNESS_GOLDEN_INTERNAL_H
#define HB_HARNESS_GOLDEN_INTERNAL_H

#include <cjson/cJSON.h>

#include "backend/caps.h"
#include "harness/golden.h"
#include "harness/safetensors.h"

enum { HB_GOLDEN_MAX_OWNED = 32, HB_GOLDEN_BASE = 5 };

/* A stored state: rows of the stored tensors (null: not stored), of sequence seq after its first
 * `after` tokens. */
struct hb_golden_state {
    int32_t seq, after;
    const struct hb_st_tensor *ssm, *conv;
    int64_t ssm_row, conv_row;
};

/* A golden case as one layer of a model of one linear kind. All arrays are owned through `owned`. */
struct hb_golden_problem {
    char name[64];
    char op[24];
    struct hb_config
        config; /* sizes and variants; types, kernel form and limits are set for each run */
    struct hb_layer_params params; /* of each of the config.n_layers layers */
    int32_t layer;                 /* the one that runs */
    double *a;                /* [H], A in float64 (params.a is its rounding); null where params.a is */
    double eps, dt_lo, dt_hi; /* as the producer has them; config holds their roundings */
    double scale;             /* of q, likewise */
    int32_t d_inner;
    int32_t dim;      /* width of in[1] */
    int32_t gates;    /* width of in[2], 0: not read */
    int32_t channels; /* of the convolution and its state: dim, or 0 */
    /* sequences: tokens first[s] .. first[s] + len[s] - 1; segments seg_first[s] .. seg_first[s+1]
     * - 1 of seg_len */
    int32_t n_seq, n_tokens, max_seq_len;
    int32_t base; /* tokens that a request has before its first one here: 0, or HB_GOLDEN_BASE with
                     initial states */
    int32_t *first, *len, *seg_first, *seg_len;
    double *z, *xbc, *dt; /* in[0..2]: [T, d_inner], [T, dim], [T, gates] in float64 */
    double *xbc_mag;      /* [T, dim] sums of absolute terms of the projection, null where xbc is an
                             input itself */
    float *init_conv, *init_ssm; /* [n_seq, channels, K-1], [n_seq, H, P, N], both or none */
    /* expected */
    const struct hb_st_tensor *y, *y_whole; /* y_whole null: y holds for every schedule */
    const struct hb_st_tensor *foreign[HB_N_FLOAT_DTYPES];
    int64_t y_width;
    double *w_out, *b_out; /* [y_width, d_inner], [y_width]; null: y is the output itself */
    int32_t conv_columns, conv_channels; /* of the stored conv states */
    int32_t state_is_kv;                 /* stored states are [H, N, P] */
    struct hb_golden_state *state;
    int32_t n_states;
    int32_t act_dtypes; /* bit d: the inputs are exact in this type, or the case is meant for it */
    struct hb_st_file file;
    void *owned[HB_GOLDEN_MAX_OWNED];
    int32_t n_owned;
};

/* Manifest of o->dir, strictly checked; cJSON tree owned by the caller. */
int32_t hb_golden_manifest(const char *dir, cJSON **manifest, struct hb_error *err);
/* Reads a whole text file (NUL-terminated, owned by the caller). */
int32_t hb_golden_read_text(const char *path, size_t limit, char **text, size_t *len,
                            struct hb_error *err);
/* Number of problems in a manifest entry (rows of gated_rms_norm, else 1). */
int32_t hb_golden_problem_count(const cJSON *entry);
/* Imports problem `row` of a manifest entry. HB_ERR_IO, HB_ERR_PARSE, HB_ERR_MEMORY. */
int32_t hb_golden_import(const char *dir, const cJSON *entry, int32_t row,
                         struct hb_golden_problem *p, struct hb_error *err);
void hb_golden_problem_free(struct hb_golden_problem *p);

/* The declared variants that the case needs, "kind field=value ..", cut to what fits. */
void hb_golden_needs(const struct hb_golden_problem *p, char *out, size_t cap);

/* An object of the manifest, and how messages name it. */
struct hb_golden_object {
    const cJSON *json;
    const char *name; /* of the case */
    char path[24];    /* "config", "config.rows[1]"; empty: the entry itself */
    struct hb_error *err;
};

/* Importers by operation (golden_layer.c, golden_scan.c, golden_ops.c, golden_core.c,
 * golden_mixer.c): p->file is open, p->name set. */
struct hb_golden_source {
    struct hb_golden_object config;
    const cJSON *entry;
    int32_t row;
    struct hb_error *err;
};
int32_t hb_golden_load_layer(const struct hb_golden_source *s, struct hb_golden_problem *p);
int32_t hb_golden_load_scan(const struct hb_golden_source *s, struct hb_golden_problem *p);
int32_t hb_golden_load_conv(const struct hb_golden_source *s, struct hb_golden_problem *p);
int32_t hb_golden_load_norm(const struct hb_golden_source *s, struct hb_golden_problem *p);
int32_t hb_golden_load_core(const struct hb_golden_source *s, struct hb_golden_problem *p);
int32_t hb_golden_load_gdn(const struct hb_golden_source *s, struct hb_golden_problem *p);
int32_t hb_golden_load_kda(const struct hb_golden_source *s, struct hb_golden_problem *p);
int32_t hb_golden_load_lightning(const struct hb_golden_source *s, struct hb_golden_problem *p);
/* Zeroed memory that lives as long as p; null when out of memory (err filled). */
void *hb_golden_own(struct hb_golden_problem *p, int64_t count, size_t size, struct hb_error *err);
/* config.sequences: lists of segment lengths, or plain lengths. */
int32_t hb_golden_sequences(const cJSON *list, struct hb_golden_problem *p, struct hb_error *err);
/* The tensor, checked against a shape ("name", n_dims, dims..) and a floating type; null and err
 * filled otherwise. */
const struct hb_st_tensor *hb_golden_need(const struct hb_golden_problem *p, const char *name,
                                          int32_t n_dims, const int64_t *shape,
                                          struct hb_error *err);

/* Fields (golden_fields.c). names: one field under several names, null ends; the first that is
 * there counts. All return HB_OK or HB_ERR_PARSE with case, field, value and what was expected. */
int32_t hb_golden_wrong(const struct hb_golden_object *o, const char *field, const cJSON *value,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Null when absent; *used is the name under which it is there, or the first. */
const cJSON *hb_golden_field(const struct hb_golden_object *o, const char *const *names,
                             const char **used);
/* 1 and *out when the item is an integer in least..limit. */
int32_t hb_golden_whole(const cJSON *item, int32_t least, int32_t limit, int32_t *out);
int32_t hb_golden_size(const struct hb_golden_object *o, const char *const *names, int32_t least,
                       int32_t limit, int32_t *out);
/* A chunk size: a power of two that is not below the conv width. */
int32_t hb_golden_chunk(const struct hb_golden_object *o, const char *const *names, int32_t limit,
                        int32_t conv_width, int32_t *out);
int32_t hb_golden_flag(const struct hb_golden_object *o, const char *const *names, int32_t *out);
int32_t hb_golden_positive(const struct hb_golden_object *o, const char *const *names, double *out);

/* A schedule: forwards over rows. decode rows stand behind the others. */
struct hb_golden_row {
    int32_t seq, n, decode;
    int32_t track; /* 0, or the token count of the sequence at which its state is tracked */
};
struct hb_golden_forward {
    int32_t mode, first_row, n_rows, pad_rows, pad_tokens;
};
struct hb_golden_schedule {
    struct hb_golden_forward *forward;
    struct hb_golden_row *row;
    int32_t n_forwards, n_rows, chunk_size;
    int32_t thread_order, block_order; /* enum hb_order, of an emulated device */
    uint32_t order_seed;
    int32_t state_layout, conv_state_len; /* how the backend keeps its states */
    int32_t *order; /* [n_seq] permutation: sequence s is request order[s] and takes live slot
                       order[n_seq-1-s] */
    char name[32];
};
enum hb_golden_schedule_kind { HB_GOLDEN_WHOLE, HB_GOLDEN_SEGMENTS, HB_GOLDEN_RANDOM };
int32_t hb_golden_schedule_make(const struct hb_golden_problem *p, int32_t kind, uint64_t seed,
                                struct hb_golden_schedule *s, struct hb_error *err);
void hb_golden_schedule_free(struct hb_golden_schedule *s);

/* Plain float64 recurrence on p->z, xbc, dt. h [H, P, N] advances by token t of sequence seq; out
 * [d_inner]. scratch [dim]. path chooses the dt clamp. */
void hb_golden_ref_token(const struct hb_golden_problem *p, int32_t seq, int32_t t, int32_t path,
                         double *h, double *scratch, double *out);
/* One head of the delta rule, or of the scalar decay (golden_ref_delta.c): token counts over all
 * sequences, c is its conv output [dim]. */
void hb_golden_ref_delta(const struct hb_golden_problem *p, int64_t token, int32_t head,
                         const double *c, double *h, double *y);
/* Slope s of a head (log decay -s) that follows from the configuration. */
double hb_golden_ref_slope(const struct hb_golden_problem *p, int32_t head);
/* log(1 + e^x), and x above the producers' threshold of 20. */
double hb_golden_ref_softplus(double x);
/* Conv input of channel c at position pos of sequence seq (negative: initial state or 0). */
double hb_golden_ref_input(const struct hb_golden_problem *p, int32_t seq, int32_t pos, int32_t c);

/* Runs a schedule; result->name, schedule, form and act_dtype are set by the caller. stored:
 * compare with stored values. */
int32_t hb_golden_run(const struct hb_adapter *backend, const struct hb_caps *caps,
                      const struct hb_golden_problem *p, const struct hb_golden_schedule *s,
                      const struct hb_golden_options *o, int32_t kind,
                      struct hb_golden_case_result *result, struct hb_error *err);

#endif
