/* SPDX-License-Identifier: Apache-2.0
 * Comparison: bytes of all regions against what may have changed, and elements against value and
 * bound. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run_internal.h"

/* Order-preserving integer of a value in the stored type. */
static int64_t ordered(int32_t dtype, double x) {
    if (dtype != HB_FP32) {
        uint16_t b = dtype == HB_FP16 ? hb_fp16_from_float((float)x) : hb_bf16_from_float((float)x);
        return b & 0x8000 ? -(int64_t)(b & 0x7fff) : (int64_t)b;
    }
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u & 0x80000000u ? -(int64_t)(u & 0x7fffffffu) : (int64_t)u;
}

uint64_t hb_ulp_distance(int32_t dtype, double a, double b) {
    if (isnan(a) || isnan(b)) {
        return UINT64_MAX;
    }
    int64_t d = ordered(dtype, a) - ordered(dtype, b);
    return (uint64_t)(d < 0 ? -d : d);
}

int hb_run_read_regions(struct hb_run *r) {
    struct hb_error e = {.struct_size = sizeof e};
    const uint64_t t0 = hb_run_now(r);
    for (int32_t i = 0; i < r->n_regions; i++) {
        if (r->backend->region_read(r->handle, i, 0, r->actual[i], r->region[i].bytes, &e) !=
            HB_OK) {
            hb_verdict_set(r->v, HB_VERDICT_DEVICE, "region_read", r->region[i].name, HB_OK,
                           e.status, "step %d: cannot read region %s: %s", r->step,
                           r->region[i].name, e.text);
            return -1;
        }
    }
    hb_run_phase(r, HB_PHASE_COMPARE, t0);
    return 0;
}

uint8_t *hb_run_mirror(struct hb_run *r, int32_t region) {
    r->is_unchanged[region] = 0;
    return r->mirror[region];
}

/* After a comparison the two are equal already, unless the mirror was written since. */
void hb_run_want_unchanged(struct hb_run *r) {
    for (int32_t i = 0; i < r->n_regions; i++) {
        if (!r->is_unchanged[i]) {
            memcpy(r->want[i], r->mirror[i], (size_t)r->region[i].bytes);
        }
        r->is_unchanged[i] = 0; /* the caller goes on to say what changes */
    }
}

/* memcmp() == 0, in the open: under the fuzz engine and AddressSanitizer a call of memcmp is
 * checked and traced for each of its many bytes. */
static int is_same(const uint8_t *a, const uint8_t *b, size_t n) {
    uint64_t differs = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t x, y;
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        differs |= x ^ y;
    }
    for (; i < n; i++) {
        differs |= (uint64_t)(a[i] ^ b[i]);
    }
    return differs == 0;
}

void hb_run_allow(struct hb_run *r, int32_t region, uint64_t offset, uint64_t bytes) {
    memcpy(r->want[region] + offset, r->actual[region] + offset, (size_t)bytes);
}

/* The first difference at or after byte `at`. */
static void report_bytes(struct hb_run *r, int32_t i, size_t at, int32_t kind, const char *check,
                         const char *place) {
    const struct hb_region *region = &r->region[i];
    while (r->want[i][at] == r->actual[i][at]) {
        at++;
    }
    int32_t element = hb_dtype_bytes(region->dtype);
    int64_t index = (int64_t)at / element;
    int64_t per_slot = 1;
    for (int32_t d = 1; d < region->n_dims; d++) {
        per_slot *= region->shape[d];
    }
    float got = 0, want = 0;
    if (region->dtype == HB_INT32) {
        int32_t g, w;
        memcpy(&g, r->actual[i] + index * element, sizeof g);
        memcpy(&w, r->want[i] + index * element, sizeof w);
        got = (float)g;
        want = (float)w;
    } else {
        hb_unpack(region->dtype, r->actual[i] + index * element, 1, &got);
        hb_unpack(region->dtype, r->want[i] + index * element, 1, &want);
    }
    r->v->at.step = r->step;
    r->v->at.layer = region->layer;
    r->v->at.element = index;
    r->v->at.got = got;
    r->v->at.want = want;
    r->v->at.bound = 0;
    r->v->at.ulp = hb_ulp_distance(region->dtype, got, want);
    (void)snprintf(r->v->at.source, sizeof r->v->at.source, "exact bytes of %.24s", region->name);
    char where[64];
    (void)snprintf(where, sizeof where, "%.28s %.24s", place, region->name);
    hb_verdict_set(
        r->v, kind, check, where, 0, 0,
        "step %d: %s of layer %d changed at slot %lld element %lld (byte %zu): got %.9g, "
        "want %.9g, exact",
        r->step, region->name, region->layer, (long long)(index / per_slot),
        (long long)(index % per_slot), at, (double)got, (double)want);
}

int hb_run_compare_bytes(struct hb_run *r, int32_t region, size_t at, size_t bytes,
                         const char *check, const char *place) {
    if (is_same(r->want[region] + at, r->actual[region] + at, bytes) ||
        (r->o->check_off & HB_OFF_STATE)) {
        return 0;
    }
    report_bytes(r, region, at, HB_VERDICT_STATE, check, place);
    return -1;
}

void hb_run_compare_regions(struct hb_run *r, int32_t kind, const char *check, const char *place) {
    int32_t off = kind == HB_VERDICT_PURITY ? HB_OFF_PURITY : HB_OFF_STATE;
    const uint64_t t0 = hb_run_now(r);
    for (int32_t i = 0; i < r->n_regions; i++) {
        size_t bytes = (size_t)r->region[i].bytes;
        if (r->stats) {
            r->stats->exact_bytes += bytes;
        }
        r->is_unchanged[i] = (uint8_t)is_same(r->want[i], r->actual[i], bytes);
        if (!r->is_unchanged[i] && !(r->o->check_off & off)) {
            report_bytes(r, i, 0, kind, check, place);
            return;
        }
        uint8_t *old = r->mirror[i];
        r->mirror[i] = r->actual[i];
        r->actual[i] = old;
    }
    hb_run_phase(r, HB_PHASE_COMPARE, t0);
}

/* Ratio bins are powers of two: the exponent field of the double, without a call per element. */
static int bin_of(double ratio) {
    uint64_t bits;
    memcpy(&bits, &ratio, sizeof bits);
    const int bin = (int)(bits >> 52 & 0x7ff) - 1023 + HB_RATIO_BINS - 1;
    return bin < 0 ? 0 : bin >= HB_RATIO_BINS ? HB_RATIO_BINS - 1 : bin;
}

/* Of each float type: the largest number, and what its smallest numbers may be off by through
 * underflow alone. */
static const struct {
    double largest, underflow;
} formats[HB_N_FLOAT_DTYPES] = {
    [HB_FP32] = {3.3895e38, 0x1p-100}, [HB_BF16] = {3.3895e38, 0x1p-100}, [HB_FP16] = {65504, 0x1p-22}};

/* tolerance.md section 5 rule 5: what a non-finite result may be. */
static int outside(int32_t dtype, double got, double want, double bound) {
    if (!isfinite(want) || !isfinite(bound)) {
        return 0; /* the input was not finite: nothing is claimed */
    }
    if (!isfinite(got)) {
        return fabs(want) + bound < formats[dtype].largest;
    }
    return fabs(got - want) > bound;
}

/* tolerance.md section 5 rule 4. Exact zeros and values below the normal range have a bound for
 * underflow alone, which is larger than their magnitude but no cover for an error. */
static int is_vacuous(int32_t dtype, double bound, double mag) {
    return bound > mag && bound > formats[dtype].underflow && isfinite(mag);
}

/* Elements are counted from one comparison to the next; the chosen one is changed. */
static void tamper(struct hb_run *r, int32_t kind, int64_t n, float *got) {
    if (r->o->tamper_element < 0 || r->o->tamper_kind != kind) {
        return;
    }
    const int64_t i = r->o->tamper_element - r->tampered;
    if (i >= 0 && i < n) {
        got[i] = (float)((double)got[i] * r->o->tamper_factor);
    }
    r->tampered += n;
}

static void count_elements(struct hb_run_stats *s, int32_t op, int32_t form, int32_t dtype,
                           int64_t n, const float *got, const double *want, const double *bound,
                           const double *mag) {
    uint64_t *bins = s->ratio_bins[op][form][dtype];
    double largest = s->max_ratio[op][form][dtype];
    uint64_t vacuous = 0;
    for (int64_t i = 0; i < n; i++) {
        const double err = fabs((double)got[i] - want[i]);
        vacuous += (uint64_t)is_vacuous(dtype, bound[i], mag[i]);
        if (!isfinite(err) || !isfinite(bound[i])) {
            continue;
        }
        const double ratio = bound[i] > 0 ? err / bound[i] : err > 0 ? 2.0 : 0.0;
        bins[bin_of(ratio)]++;
        largest = ratio > largest ? ratio : largest;
    }
    s->elements[op][form][dtype] += (uint64_t)n;
    s->vacuous[op][form][dtype] += vacuous;
    s->max_ratio[op][form][dtype] = largest;
}

int64_t hb_run_compare_bounds(struct hb_run *r, int32_t layer, int32_t is_state, int64_t n,
                              float *got, const double *want, const double *bound,
                              const double *mag) {
    const int32_t op = hb_op_of(r->config.layer_kind[layer], is_state);
    const int32_t dtype = is_state ? r->config.state_dtype : r->config.act_dtype;
    int64_t first = 0;
    tamper(r, is_state ? 2 : 0, n, got);
    while (first < n && !outside(dtype, (double)got[first], want[first], bound[first])) {
        first++;
    }
    if (r->stats) {
        count_elements(r->stats, op, r->config.kernel_form, dtype, n, got, want, bound, mag);
    }
    return first == n || (r->o->check_off & HB_OFF_NUMERIC) ? -1 : first;
}
