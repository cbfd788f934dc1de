/* SPDX-License-Identifier: Apache-2.0
 * Entries of the intermediate caches: states by row and node; windows by row and node, or as one
 * strip per row in which the window after node t is columns t..t+W-1 (state-pool.md section 4). */
#include <string.h>

#include "harness/run_forward.h"

static int is_strip(const struct hb_run *r) {
    return r->config.window_layout == HB_WINDOWS_STRIP;
}

struct hb_entry hb_run_node_entry(const struct hb_run *r, int32_t region, int32_t row,
                                  int32_t node) {
    const struct hb_region *g = &r->region[region];
    const size_t bytes = (size_t)g->bytes / (size_t)(g->shape[0] * g->shape[1]);
    return (struct hb_entry){region, ((size_t)row * (size_t)g->shape[1] + (size_t)node) * bytes,
                             bytes};
}

/* Where channel c of the row's window after a node stands, and the bytes of its W columns: strips
 * are [SR, dim, columns]. */
static struct hb_entry strip_part(const struct hb_run *r, int32_t region, int32_t row, int32_t node,
                                  int32_t channel) {
    const struct hb_region *g = &r->region[region];
    const size_t element = (size_t)hb_dtype_bytes(g->dtype);
    const size_t first =
        ((size_t)row * (size_t)g->shape[1] + (size_t)channel) * (size_t)g->shape[2];
    return (struct hb_entry){region, (first + (size_t)node) * element,
                             (size_t)r->sizes.window * element};
}

static void want_strip(struct hb_run *r, int32_t region, int32_t row, int32_t node,
                       const struct hb_ref_state *state) {
    const int32_t w = (int32_t)r->sizes.window;
    for (int32_t c = 0; c < (int32_t)r->sizes.channels; c++) {
        const struct hb_entry e = strip_part(r, region, row, node, c);
        float values[HB_MAX_CONV_WIDTH];
        if (!state) {
            hb_run_allow(r, region, e.at, e.bytes);
            continue;
        }
        for (int32_t k = 0; k < w; k++) {
            values[k] = (float)state->conv[c * w + k];
        }
        hb_pack(r->region[region].dtype, values, w, r->want[region] + e.at);
    }
}

void hb_run_want_window(struct hb_run *r, int32_t region, int32_t row, int32_t node,
                        const struct hb_ref_state *state) {
    if (is_strip(r)) {
        want_strip(r, region, row, node, state);
        return;
    }
    const struct hb_entry e = hb_run_node_entry(r, region, row, node);
    if (state) {
        hb_run_want_conv(r, e, state);
    } else {
        hb_run_allow(r, region, e.at, e.bytes);
    }
}

int hb_run_compare_windows(struct hb_run *r, int32_t region, int32_t row, int32_t n,
                           const char *check, const char *place) {
    const size_t row_bytes = (size_t)r->region[region].bytes / (size_t)r->region[region].shape[0];
    const size_t bytes =
        is_strip(r) ? row_bytes : row_bytes / (size_t)r->region[region].shape[1] * (size_t)n;
    return hb_run_compare_bytes(r, region, (size_t)row * row_bytes, bytes, check, place);
}

void hb_run_copy_window(const struct hb_run *r, int32_t region, int32_t row, int32_t node,
                        uint8_t *to) {
    if (!is_strip(r)) {
        const struct hb_entry e = hb_run_node_entry(r, region, row, node);
        memcpy(to, r->mirror[region] + e.at, e.bytes);
        return;
    }
    for (int32_t c = 0; c < (int32_t)r->sizes.channels; c++) {
        const struct hb_entry e = strip_part(r, region, row, node, c);
        memcpy(to + (size_t)c * e.bytes, r->mirror[region] + e.at, e.bytes);
    }
}
