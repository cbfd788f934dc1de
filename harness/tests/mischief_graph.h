/* SPDX-License-Identifier: Apache-2.0
 * The part of mischief.h that concerns captures and replays; included from there. */
#ifndef HB_HARNESS_TESTS_MISCHIEF_GRAPH_H
#define HB_HARNESS_TESTS_MISCHIEF_GRAPH_H

enum { MISCHIEF_GRAPHS = 17 };

/* What a backend in mischief knows of its graphs. */
struct mischief_graphs {
    int32_t is_capture, is_replay, bs; /* of what is open */
    int32_t counts_padding, is_poisoned, follows_empty;
    int32_t last_bs, last_live; /* of the replay before */
    int32_t tokens[MISCHIEF_GRAPHS];
    uint32_t layers[MISCHIEF_GRAPHS];
    struct hb_layer_io io[MISCHIEF_GRAPHS][HB_MAX_LAYERS];
};

/* Adds to an int32 of a static or table region; gives what it held. */
static inline int32_t mischief_add_int(const struct hb_adapter *inner, void *handle,
                                       const char *name, uint64_t index, int32_t add) {
    int32_t n = 0;
    int32_t value = 0;
    struct hb_region r;
    (void)inner->n_regions(handle, &n, NULL);
    for (int32_t i = 0; i < n; i++) {
        memset(&r, 0, sizeof r);
        r.struct_size = sizeof r;
        if (inner->region(handle, i, &r, NULL) != HB_OK || strcmp(r.name, name) != 0) {
            continue;
        }
        (void)inner->region_read(handle, i, index * sizeof value, &value, sizeof value, NULL);
        const int32_t next = value + add;
        if (add != 0) {
            (void)inner->region_write(handle, i, index * sizeof next, &next, sizeof next, NULL);
        }
        return value;
    }
    return 0;
}

/* Index of an entry in a region of one row per batch size. */
static inline uint64_t mischief_set_entry(const struct hb_config *config, int32_t bs, int32_t width,
                                          int32_t i) {
    return (uint64_t)(bs - 1) * (uint64_t)(config->graph_rows + width) + (uint64_t)i;
}

#endif
