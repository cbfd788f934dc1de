/* SPDX-License-Identifier: Apache-2.0
 * A backend that is right except in one way: the emulated backend behind a table that misbehaves as
 * its number says. Numbers up to 66 break the relation of invariants.md with that number, the
 * others are for comparisons of two backends. `variant` picks one of several ways to break it. */
#ifndef HB_HARNESS_TESTS_MISCHIEF_H
#define HB_HARNESS_TESTS_MISCHIEF_H

#include "harness/tests/mischief_forward.h"
#include "harness/tests/mischief_graph.h"
#include "harness/tests/mischief_slots.h"
#include "harness/tests/mischief_spec.h"

static inline int32_t mischief_describe(void *ctx, struct hb_caps *caps, struct hb_error *err) {
    const struct mischief *m = ctx;
    if (m->number == MISCHIEF_NO_DESCRIBE) {
        return hb_fail_text(err, HB_ERR_DEVICE, "no device here");
    }
    int32_t status = m->inner->describe(m->inner->ctx, caps, err);
    if (m->number == MISCHIEF_OVERRUN) {
        caps->exact_guards = 0;
    }
    if (m->number == MISCHIEF_NO_RING) {
        *(m->variant ? &caps->ring_commit : &caps->ring) = 0;
    }
    return status;
}

static inline int32_t mischief_create(void *ctx, const struct hb_config *config,
                                      const struct hb_layer_params *params, void **handle,
                                      struct hb_error *err) {
    const struct mischief *m = ctx;
    const int is_commit = config->ring_length > 0 && config->ring_owner == HB_RING_COMMIT;
    if (m->number == MISCHIEF_NO_RING && (m->variant ? is_commit : config->ring_length > 0)) {
        hb_error_clear(err);
        return hb_fail(err, HB_RULE_CFG_FEATURE, m->variant ? 6 : 1, config->ring_length, 0);
    }
    struct mischief_handle *h = calloc(1, sizeof *h);
    if (!h) {
        return hb_fail_text(err, HB_ERR_MEMORY, "no memory");
    }
    h->inner = m->inner;
    h->number = m->number;
    h->variant = m->variant;
    h->config = *config;
    int32_t status = m->inner->create(m->inner->ctx, config, params, &h->handle, err);
    if (status != HB_OK) {
        free(h);
        return status;
    }
    if (m->number == MISCHIEF_TABLES) {
        (void)mischief_add_int(h->inner, h->handle, "slot_kind", 2, 1);
    }
    *handle = h;
    return HB_OK;
}

static inline void mischief_destroy(void *handle) {
    struct mischief_handle *m = handle;
    m->inner->destroy(m->handle);
    free(m);
}

static inline int32_t mischief_buf_alloc(void *handle, uint64_t bytes, struct hb_buf *out,
                                         struct hb_error *err) {
    const struct mischief_handle *m = handle;
    if (m->number == MISCHIEF_NO_BUFFER) {
        return hb_fail_text(err, HB_ERR_MEMORY, "no buffer left");
    }
    return m->inner->buf_alloc(m->handle, bytes, out, err);
}

static inline void mischief_buf_free(void *handle, struct hb_buf buf) {
    const struct mischief_handle *m = handle;
    m->inner->buf_free(m->handle, buf);
}

static inline int32_t mischief_buf_write(void *handle, struct hb_buf buf, const void *src,
                                         uint64_t bytes, struct hb_error *err) {
    const struct mischief_handle *m = handle;
    return m->inner->buf_write(m->handle, buf, src, bytes, err);
}

static inline int32_t mischief_buf_read(void *handle, struct hb_buf buf, void *dst, uint64_t bytes,
                                        struct hb_error *err) {
    const struct mischief_handle *m = handle;
    if (m->number == MISCHIEF_NO_OUTPUT) {
        return hb_fail_text(err, HB_ERR_DEVICE, "copy failed");
    }
    return m->inner->buf_read(m->handle, buf, dst, bytes, err);
}

static inline int32_t mischief_n_regions(void *handle, int32_t *n, struct hb_error *err) {
    const struct mischief_handle *m = handle;
    return m->inner->n_regions(m->handle, n, err);
}

static inline int32_t mischief_get_region(void *handle, int32_t i, struct hb_region *out,
                                          struct hb_error *err) {
    const struct mischief_handle *m = handle;
    const int32_t status = m->inner->region(m->handle, i, out, err);
    const char *name = m->variant == 1 ? "conv" : "temporal";
    if (status == HB_OK && m->number == MISCHIEF_REGION && strcmp(out->name, name) == 0) {
        out->name[0] = m->variant == 2 ? 't' : 'x';
        out->dtype = m->variant == 2 ? HB_BF16 : out->dtype;
    }
    return status;
}

static inline int32_t mischief_region_read(void *handle, int32_t i, uint64_t offset, void *dst,
                                           uint64_t bytes, struct hb_error *err) {
    const struct mischief_handle *m = handle;
    if (m->number == MISCHIEF_NO_READ && m->n_finished > 0) {
        return hb_fail_text(err, HB_ERR_DEVICE, "copy failed");
    }
    return m->inner->region_read(m->handle, i, offset, dst, bytes, err);
}

static inline int32_t mischief_region_write(void *handle, int32_t i, uint64_t offset,
                                            const void *src, uint64_t bytes, struct hb_error *err) {
    const struct mischief_handle *m = handle;
    if (m->number == MISCHIEF_NO_START || (m->number == MISCHIEF_NO_WRITE && m->n_taken > 0)) {
        return hb_fail_text(err, HB_ERR_DEVICE, "copy failed");
    }
    return m->inner->region_write(m->handle, i, offset, src, bytes, err);
}

static inline uint64_t mischief_launches(void *handle) {
    const struct mischief_handle *m = handle;
    return m->inner->launches(m->handle);
}

/* The adapter is &m->table; m must outlive it and stay where it is. */
static inline const struct hb_adapter *mischief_init(struct mischief *m, int32_t number,
                                                     int32_t variant) {
    *m = (struct mischief){.inner = hb_adapter_emu(), .number = number, .variant = variant};
    m->table = (struct hb_adapter){
        .struct_size = sizeof m->table,
        .ctx = m,
        .describe = mischief_describe,
        .create = mischief_create,
        .destroy = mischief_destroy,
        .buf_alloc = mischief_buf_alloc,
        .buf_free = mischief_buf_free,
        .buf_write = mischief_buf_write,
        .buf_read = mischief_buf_read,
        .slot_take = mischief_slot_take,
        .slot_free = mischief_slot_free,
        .slot_copy = mischief_slot_copy,
        .slot_publish = mischief_slot_publish,
        .slot_move = mischief_slot_move,
        .table_set = mischief_table_set,
        .begin = mischief_begin,
        .graph_init = mischief_graph_init,
        .capture = mischief_capture,
        .replay = mischief_replay,
        .layer = mischief_layer,
        .finish = mischief_finish,
        .entry = number == 3 ? mischief_entry_lenient : mischief_entry,
        .n_regions = mischief_n_regions,
        .region = mischief_get_region,
        .region_read = mischief_region_read,
        .region_write = mischief_region_write,
        .commit = mischief_commit,
        .launches = mischief_launches,
    };
    return &m->table;
}

#endif
