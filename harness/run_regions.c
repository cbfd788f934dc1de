/* SPDX-License-Identifier: Apache-2.0
 * Regions of a backend: found when it is new, and filled with what must not be read. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run_internal.h"

static int no_regions(struct hb_run *r, const char *name, const struct hb_error *e) {
    hb_verdict_set(r->v, HB_VERDICT_DEVICE, "regions", name, HB_OK, e->status,
                   "before the first step: regions of the backend (%s): %s", name, e->text);
    return -1;
}

/* Three copies of every region in one block. */
static int place_regions(struct hb_run *r) {
    enum { ALIGN = 64 };
    size_t total = 0;
    for (int32_t i = 0; i < r->n_regions; i++) {
        total += 3 * (((size_t)r->region[i].bytes + ALIGN) / ALIGN * ALIGN);
    }
    uint8_t *next = hb_run_bytes(r, HB_MEMORY_REGIONS, total);
    for (int32_t i = 0; next && i < r->n_regions; i++) {
        const size_t bytes = ((size_t)r->region[i].bytes + ALIGN) / ALIGN * ALIGN;
        r->mirror[i] = next;
        r->actual[i] = next + bytes;
        r->want[i] = next + 2 * bytes;
        next += 3 * bytes;
    }
    return next ? 0 : -1;
}

/* The states of a linear layer: entries and their elements; 0: its kind has no such region
 * (adapter.h). */
struct state_region {
    const char *name;
    int64_t entries, elements;
    int32_t dtype;
};
enum { N_STATE_REGIONS = 4 };

static void list_states(const struct hb_run *r, struct state_region list[N_STATE_REGIONS]) {
    const struct hb_config *c = &r->config;
    const int64_t slots = (int64_t)c->n_slots + 1;
    const int64_t strip = (int64_t)c->max_draft + r->sizes.window - 1;
    const int is_strip = c->window_layout == HB_WINDOWS_STRIP;
    const int64_t windows = is_strip ? r->sizes.channels * strip : (int64_t)c->max_draft * r->n_conv;
    list[0] = (struct state_region){"conv", slots, r->n_conv, c->act_dtype};
    list[1] = (struct state_region){"temporal", slots, r->n_ssm, c->state_dtype};
    list[2] = (struct state_region){"intermediate_conv", c->spec_rows, windows, c->act_dtype};
    const int has_states = c->ring_length == 0 || c->ring_owner != HB_RING_COMMIT;
    list[3] = (struct state_region){"intermediate_ssm", has_states ? c->spec_rows : 0,
                                    (int64_t)c->max_draft * r->n_ssm, c->state_dtype};
}

/* A region that is missing, or one that the kind does not have, would go unchecked. */
static int check_states(struct hb_run *r) {
    struct state_region list[N_STATE_REGIONS];
    list_states(r, list);
    for (int32_t l = 0; l < r->config.n_layers && r->caps.has_regions; l++) {
        for (int k = 0; k < N_STATE_REGIONS; k++) {
            const int32_t i = hb_run_region(r, list[k].name, l);
            const int64_t n = hb_run_is_linear(r, l) ? list[k].entries * list[k].elements : 0;
            const int64_t bytes = n * hb_dtype_bytes(list[k].dtype);
            const int is_right = i < 0 ? n == 0
                                       : n > 0 && r->region[i].dtype == list[k].dtype &&
                                             r->region[i].n_dims > 1 &&
                                             r->region[i].shape[0] == list[k].entries &&
                                             r->region[i].bytes == (uint64_t)bytes;
            if (!is_right) {
                hb_verdict_set(r->v, HB_VERDICT_STATE, "create.regions", list[k].name, 0, 0,
                               "before the first step: region %s of layer %d has %lld bytes, want "
                               "%lld entries of %lld elements, %lld bytes",
                               list[k].name, l, i < 0 ? -1LL : (long long)r->region[i].bytes,
                               (long long)list[k].entries, (long long)list[k].elements,
                               (long long)bytes);
                return -1;
            }
        }
    }
    return 0;
}

int hb_run_open_regions(struct hb_run *r) {
    struct hb_error e = {.struct_size = sizeof e};
    int32_t n = 0;
    if (r->backend->n_regions(r->handle, &n, &e) != HB_OK || n < 0 || n > HB_MAX_REGIONS) {
        return no_regions(r, "number", &e);
    }
    r->n_regions = n;
    for (int32_t i = 0; i < r->n_regions; i++) {
        struct hb_region *region = &r->region[i];
        region->struct_size = sizeof *region;
        if (r->backend->region(r->handle, i, region, &e) != HB_OK) {
            return no_regions(r, "description", &e);
        }
    }
    if (check_states(r)) {
        return -1;
    }
    if (place_regions(r)) {
        r->no_memory = 1;
        return -1;
    }
    return 0;
}

/* Noise goes by the name of a region, not by its index: backends with other regions beside see the
 * same. */
static int32_t noise_stream(const struct hb_region *region) {
    uint32_t hash = 0;
    for (const char *p = region->name; *p; p++) {
        hash = hash * 31u + (uint32_t)(unsigned char)*p;
    }
    return (int32_t)(hash >> 1);
}

/* What a region holds before the first step, n values: noise that shows when a state is read by
 * mistake, NaN instead where the relation asks for it, and in rings what fills memory that must not
 * be read. Returns 0: nothing, it stays as it is. */
static int initial_values(struct hb_run *r, const struct hb_region *region, int64_t n,
                          float *values) {
    const struct hb_value_key key = {.tensor = HB_TENSOR_NOISE,
                                     .stream = noise_stream(region),
                                     .layer = region->layer,
                                     .position = -1};
    const int is_ring = strncmp(region->name, "ring_", 5) == 0;
    if (is_ring) {
        hb_values_unread(r->c, &key, (int32_t)n, values);
        return 1;
    }
    if (region->kind != HB_REGION_STATE) {
        return 0;
    }
    if (r->twist.nan_pool && strncmp(region->name, "kv_", 3) != 0) {
        for (int64_t k = 0; k < n; k++) {
            values[k] = NAN;
        }
        return 1;
    }
    const uint64_t t0 = hb_run_now(r);
    hb_values_fill(r->c, &key, (int32_t)n, values);
    hb_run_phase(r, HB_PHASE_VALUES, t0);
    return 1;
}

int hb_run_fill_pool(struct hb_run *r) {
    struct hb_error e = {.struct_size = sizeof e};
    for (int32_t i = 0; i < r->n_regions; i++) {
        const struct hb_region *region = &r->region[i];
        const int64_t n =
            region->dtype == HB_INT32 ? 0 : (int64_t)region->bytes / hb_dtype_bytes(region->dtype);
        float *values = hb_run_floats(r, (size_t)n);
        if (!values) {
            return -1;
        }
        if (n > 0 && initial_values(r, region, n, values)) {
            hb_pack(region->dtype, values, n, r->want[i]);
            if (r->backend->region_write(r->handle, i, 0, r->want[i], region->bytes, &e) != HB_OK) {
                return no_regions(r, region->name, &e);
            }
        }
        if (r->backend->region_read(r->handle, i, 0, r->mirror[i], region->bytes, &e) != HB_OK) {
            return no_regions(r, region->name, &e);
        }
    }
    return 0;
}
