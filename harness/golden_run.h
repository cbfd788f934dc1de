/* SPDX-License-Identifier: Apache-2.0
 * Inside of one run of the golden check. Files: golden_run.c (life, forwards), golden_drive.c
 * (calls of the backend), golden_compare.c (what is compared with what). */
#ifndef HB_HARNESS_GOLDEN_RUN_H
#define HB_HARNESS_GOLDEN_RUN_H

#include "harness/golden_internal.h"
#include "harness/golden_judge.h"
#include "harness/oracle/oracle.h"

struct hb_batch;

struct hb_golden_seq {
    int32_t pos; /* tokens consumed, without p->base */
    int32_t request, slot, track_slot;
    double *h; /* [H, P, N] of O */
    struct hb_ref_state *q;
    struct hb_ref_state *foreign; /* as q, with the bounds of the producer's profile; may be null */
};

struct hb_golden_run {
    const struct hb_adapter *backend;
    const struct hb_caps *caps;
    const struct hb_golden_problem *p;
    const struct hb_golden_schedule *s;
    int32_t kind;                 /* enum hb_golden_schedule_kind */
    const struct hb_st_tensor *y; /* stored outputs that hold under this schedule, null: none */
    int32_t has_states;           /* the stored states hold under this schedule */
    const struct hb_st_tensor
        *foreign; /* the producer's own result in this type, null: not judged */
    struct hb_golden_judge judge;
    struct hb_config config;
    void *handle;
    int32_t region_conv, region_ssm;
    struct hb_layer_params params[HB_MAX_LAYERS]; /* the same for all */
    int32_t window;      /* columns of the conv state */
    int64_t n_h, n_conv; /* elements of one state */
    int64_t widest;      /* of the rows of a token */
    struct hb_golden_seq *seq;
    float *in[3];                            /* as handed over */
    float *exact[3];                         /* what a producer gets: not rounded to 16 bits */
    float *init_conv;                        /* [n_seq, channels, window], rounded to the activation type */
    float *init_ssm;                         /* [n_seq, ..], in the order of the backend */
    double *o_out, *q_out, *q_bound, *q_mag; /* of one row, one allocation */
    double *foreign_out, *foreign_bound;     /* of one row, in the allocation of o_out */
    double *scratch;                         /* [dim] */
    double *h_at;                            /* O and Q at the tracked point of a row */
    struct hb_ref_state *q_at;
    float *widened, *state; /* outputs of a forward; one state */
    void *packed;
    int32_t *i32;
    int64_t *i64;
    uint8_t *mask;
    struct hb_error call; /* of the latest call */
};

/* All return 1 on success; otherwise the run has failed and the judge says why. */
int hb_golden_bind(struct hb_golden_run *r);
/* One forward; its outputs are in r->widened and its token count in *n_tokens. */
int hb_golden_forward_run(struct hb_golden_run *r, const struct hb_golden_forward *f,
                          int64_t *n_tokens);
/* The state of a slot into r->state: conv [channels, window], then temporal [H, P, N]. 0 also for a
 * backend without regions. */
int hb_golden_read_state(struct hb_golden_run *r, int32_t slot);

/* Place in [H, N, P] of element i of [H, P, N]. */
int64_t hb_golden_kv_place(const struct hb_config *config, int64_t i);

/* got [row->n, d_inner] against o_out, q_out and the stored outputs. */
void hb_golden_compare_output(struct hb_golden_run *r, const struct hb_golden_row *row,
                              const float *got);
/* r->state, which is that of sequence seq after `after` tokens, against h, q and the stored states.
 */
void hb_golden_compare_state(struct hb_golden_run *r, int32_t seq, int32_t after, int32_t path,
                             const double *h, const struct hb_ref_state *q);

#endif
