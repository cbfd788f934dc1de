/* SPDX-License-Identifier: Apache-2.0
 * hb_run_case: the one executor. Fuzz targets, verbs, golden checks and tests all come through here. */
#ifndef HB_HARNESS_RUN_H
#define HB_HARNESS_RUN_H

#include "backend/adapter.h"
#include "harness/case.h"
#include "harness/values.h"
#include "harness/verdict.h"

/* Operations whose error-to-bound ratios are kept apart, by kernel form and type: outputs and temporal states of each kind
 * of layer. hb_op_of gives that of a kind. */
enum hb_op {
    HB_OP_MAMBA2_OUT, HB_OP_MAMBA2_STATE, HB_OP_ATTENTION, HB_OP_GDN_OUT, HB_OP_GDN_STATE, HB_OP_KDA_OUT, HB_OP_KDA_STATE,
    HB_OP_LIGHTNING_OUT, HB_OP_LIGHTNING_STATE, HB_OP_SHORT_CONV_OUT, HB_OP_MAMBA1_OUT, HB_OP_MAMBA1_STATE, HB_N_OPS
};
enum { HB_RATIO_BINS = 64 }; /* bin b: ratio in [2^(b-63), 2^(b-62)), bin 0: smaller or exact */

struct hb_run_stats {
    uint64_t cases, forwards, tokens, calls, launches;
    uint64_t second_runs;               /* relations that said something about a case */
    uint64_t elements[HB_N_OPS][HB_N_FORMS][HB_N_FLOAT_DTYPES]; /* compared against a bound */
    uint64_t vacuous[HB_N_OPS][HB_N_FORMS][HB_N_FLOAT_DTYPES];
    uint64_t ratio_bins[HB_N_OPS][HB_N_FORMS][HB_N_FLOAT_DTYPES][HB_RATIO_BINS];
    double max_ratio[HB_N_OPS][HB_N_FORMS][HB_N_FLOAT_DTYPES];
    uint64_t pair_cases, pair_elements, pair_bit_equal; /* comparisons with a second backend */
    double pair_max_ratio;                              /* |a - b| / (B1 + B2) */
    uint64_t exact_bytes;               /* compared byte for byte */
    uint64_t status_seen[32];           /* by enum hb_status */
    uint64_t rule_broken[256], rule_kept[256]; /* by number; coverage.h */
    uint64_t verdicts[HB_N_VERDICTS];
    uint64_t time_ns[8]; /* enum hb_phase */
};
enum hb_phase { HB_PHASE_BACKEND, HB_PHASE_ORACLE, HB_PHASE_VALUES, HB_PHASE_COMPARE, HB_PHASE_OTHER };

/* Called for each compared output row and state; the golden check adds its comparison with stored tensors.
 * Output: kind 0, position is the absolute token position, n elements. State: kind 1 conv (bound null), kind 2 temporal,
 * position is the number of tokens after which the state holds. */
struct hb_observer {
    void *ctx;
    void (*see)(void *ctx, int32_t kind, int32_t request, int32_t layer, int64_t position, int32_t n, const float *got,
                const double *want, const double *bound);
};

/* Working memory that one run leaves to the next: a campaign runs millions of cases, and fresh memory is slow, most of all
 * under AddressSanitizer. Zero-initialised is valid. Never shared by two runs at a time. */
enum hb_memory_use { HB_MEMORY_RUN, HB_MEMORY_REGIONS, HB_MEMORY_PARAMS, HB_MEMORY_FLOATS, HB_MEMORY_DOUBLES,
                     HB_MEMORY_FORWARD, HB_MEMORY_HOST, HB_MEMORY_PACKED, HB_MEMORY_LAYOUT, HB_N_MEMORY_USES };
enum { HB_MEMORY_STATES = 32 };
struct hb_ref_state;
struct hb_run_memory {
    struct {
        void *ptr;
        size_t bytes;
    } block[HB_N_MEMORY_USES];
    struct hb_ref_state *state[HB_MEMORY_STATES]; /* of the oracle */
    int32_t n_states;
};
void hb_run_memory_free(struct hb_run_memory *memory);

struct hb_run_options {
    const struct hb_value_source *values; /* null: the case's own */
    const struct hb_layer_params *params; /* null: the case's own; [n_layers] */
    const struct hb_config *config;       /* null: hb_case_backend_config */
    const struct hb_observer *observer;   /* may be null */
    int32_t defect;                       /* planted defect to pass on */
    int32_t status_only;                  /* skip oracle and output comparison */
    const char *dump_dir;                 /* null, or write inputs, outputs and states as safetensors there */
    /* second backend on which the case also runs: a different verdict or fingerprint is the finding "compare.verdict",
     * outputs or states further apart than the sum of both bounds are "compare.numeric"; null: none */
    const struct hb_adapter *other;
    /* test hook: multiply one compared output element (counted over the run) by tamper_factor; -1: off */
    int64_t tamper_element;
    double tamper_factor;
    int32_t tamper_kind; /* 0 outputs, 1 conv state, 2 temporal state */
    /* called with each predicted result, in order of the calls (explain); may be null */
    void (*predicted)(void *ctx, int32_t step, const char *call, const struct hb_error *want);
    void *predicted_ctx;
    /* called with each compared output token: batch token index, value, bound, magnitude [n]; may be null */
    void (*see_token)(void *ctx, int32_t step, int32_t layer, int64_t token, int32_t n, const double *want,
                      const double *bound, const double *mag);
    void *see_token_ctx;
    int32_t timed;       /* fill stats->time_ns */
    struct hb_run_memory *memory; /* kept by the caller for the next run; null: each run has its own */
    int32_t check_off;   /* bit mask of enum hb_check_off: detectors switched off for control runs */
};
enum hb_check_off { HB_OFF_NUMERIC = 1, HB_OFF_STATE = 2, HB_OFF_PURITY = 4, HB_OFF_STATUS = 8, HB_OFF_RELATION = 16,
                    HB_OFF_ORDER = 32, /* threads and blocks always ascending */
                    HB_OFF_POISON = 64 /* fresh memory of the emulator not poisoned; set by whoever starts the process */ };

/* Executes c (normalised) on backend. v always describes the result; stats (may be null) are added to.
 * Returns 0, or -1 when out of memory (v says so). Deterministic: no clock enters a verdict. */
int hb_run_case(const struct hb_adapter *backend, const struct hb_case *c, const struct hb_run_options *options,
                struct hb_verdict *v, struct hb_run_stats *stats);

void hb_run_stats_add(struct hb_run_stats *to, const struct hb_run_stats *from);
/* Median error-to-bound ratio of one op, form and type from the bins (upper edge of the median bin), 0 if none. */
double hb_run_stats_median(const struct hb_run_stats *s, int32_t op, int32_t form, int32_t dtype);
/* enum hb_op of a layer kind's outputs, or of its temporal state. */
int32_t hb_op_of(int32_t layer_kind, int32_t is_state);

/* The relations of invariants.md as records. */
struct hb_relation {
    int32_t number;       /* of invariants.md */
    const char *name;     /* "area.name" */
    const char *kind;     /* "E", "T", "S" or a mix */
    const char *control;  /* the test in which it fires */
    int32_t always;       /* 1: checked in every case; 0: needs a transformed second run (case.relation) */
};
int hb_relations(const struct hb_relation **out);

/* The float64 oracle behind the adapter table. */
const struct hb_adapter *hb_adapter_oracle(void);

#endif
