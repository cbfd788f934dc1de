/* SPDX-License-Identifier: Apache-2.0
 * Between relations_kernel.c and relations_limits.c: runs of layers that are their scan (invariants.md 62 to 66). */
#ifndef HB_HARNESS_RELATIONS_KERNEL_H
#define HB_HARNESS_RELATIONS_KERNEL_H

#include "harness/relations_internal.h"

enum { HB_SCAN_RUNS = 3 };

/* Where things stand in the inputs of the kind (adapter.h). */
struct hb_scan_shape {
    int32_t kind;
    int32_t inner, dim, gates;  /* H P; widths of in[1] and in[2] */
    int32_t channels, columns;  /* of the conv state */
    int32_t heads, head_dim, state, groups, is_tiled;
    int32_t x;     /* in[1]: first of the H P channels in which the layer is linear */
    int32_t pairs; /* in[1]: first of the two vectors [G, N]: B and C, or q and k; not of Mamba1, short conv */
};
struct hb_scan_shape hb_scan_shape_of(const struct hb_case *c);

static inline int32_t hb_scan_group(const struct hb_scan_shape *s, int32_t head) {
    return s->is_tiled ? head % s->groups : head / (s->heads / s->groups);
}

/* Where one run gets its values from. */
struct hb_scan_source {
    const struct hb_case *plain; /* whose values are bent: 66 has other groups than the run */
    struct hb_scan_shape shape;  /* of plain */
    int32_t number, part;
    int32_t log2_scale; /* 62 */
    float *scratch;     /* [dim * K] of plain */
};
/* ctx: a source. */
void hb_scan_fill(void *ctx, const struct hb_case *c, const struct hb_value_key *key, int32_t n, float *out);

struct hb_scan_run {
    const struct hb_adapter *backend;
    const struct hb_run_options *o;
    const struct hb_case *plain; /* the case with layers that are their scan */
    struct hb_verdict *v;
    struct hb_run_stats *stats;
    int32_t number, log2_scale, is_scan;
    struct hb_scan_source source[HB_SCAN_RUNS];
    struct hb_capture capture[HB_SCAN_RUNS];
    int32_t n;
};
/* 1 if the run has the temporal state of the name's slot in the layer. */
int hb_scan_has_state(const struct hb_scan_run *k, int32_t name, int32_t layer);

/* relations_limits.c: 64 and 65, the first run against what its values say. */
void hb_scan_check_limits(const struct hb_scan_run *k);

#endif
