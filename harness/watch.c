/* SPDX-License-Identifier: Apache-2.0
 * Forwarding functions of the noting adapter. The inner table and the place are process-wide, as
 * the adapter's functions get no pointer of ours: handles belong to the inner backend. */
#include "harness/watch.h"

static const struct hb_adapter *inner_adapter;
static volatile int32_t *noted;
static struct hb_adapter wrapped;

static const struct {
    const char *name, *step;
} operations[HB_N_OPERATIONS] = {
#define HB_OPERATION_ROW(name, step) {#name, step},
    HB_OPERATIONS(HB_OPERATION_ROW)
#undef HB_OPERATION_ROW
};

const char *hb_operation_name(int32_t operation) {
    return operations[operation < 0 || operation >= HB_N_OPERATIONS ? 0 : operation].name;
}

const char *hb_operation_step(int32_t operation) {
    return operations[operation < 0 || operation >= HB_N_OPERATIONS ? 0 : operation].step;
}

/* Defines watch_NAME with the parameters of the table entry; ARGS are passed on. */
#define WATCH(name, params, args)                                                                  \
    static int32_t watch_##name params {                                                           \
        *noted = HB_OPERATION_##name;                                                              \
        int32_t status = inner_adapter->name args;                                                 \
        *noted = HB_OPERATION_none;                                                                \
        return status;                                                                             \
    }

WATCH(describe, (void *ctx, struct hb_caps *caps, struct hb_error *err), (ctx, caps, err))
WATCH(create,
      (void *ctx, const struct hb_config *config, const struct hb_layer_params *params,
       void **handle, struct hb_error *err),
      (ctx, config, params, handle, err))
WATCH(buf_alloc, (void *h, uint64_t bytes, struct hb_buf *out, struct hb_error *err),
      (h, bytes, out, err))
WATCH(buf_write,
      (void *h, struct hb_buf buf, const void *src, uint64_t bytes, struct hb_error *err),
      (h, buf, src, bytes, err))
WATCH(buf_read, (void *h, struct hb_buf buf, void *dst, uint64_t bytes, struct hb_error *err),
      (h, buf, dst, bytes, err))
WATCH(slot_take, (void *h, int32_t n, int32_t kind, int32_t *ids, struct hb_error *err),
      (h, n, kind, ids, err))
WATCH(slot_free, (void *h, int32_t n, const int32_t *ids, struct hb_error *err), (h, n, ids, err))
WATCH(slot_copy, (void *h, int32_t src, int32_t dst, struct hb_error *err), (h, src, dst, err))
WATCH(table_set, (void *h, int32_t req, int32_t slot, struct hb_error *err), (h, req, slot, err))
WATCH(begin, (void *h, const struct hb_batch *batch, struct hb_error *err), (h, batch, err))
WATCH(layer, (void *h, int32_t id, const struct hb_layer_io *io, struct hb_error *err),
      (h, id, io, err))
WATCH(finish, (void *h, struct hb_error *err), (h, err))
WATCH(entry,
      (void *h, int32_t target, int32_t direction, int32_t id, const struct hb_layer_io *io,
       struct hb_error *err),
      (h, target, direction, id, io, err))
WATCH(region_read,
      (void *h, int32_t i, uint64_t offset, void *dst, uint64_t bytes, struct hb_error *err),
      (h, i, offset, dst, bytes, err))
WATCH(region_write,
      (void *h, int32_t i, uint64_t offset, const void *src, uint64_t bytes, struct hb_error *err),
      (h, i, offset, src, bytes, err))

static void watch_destroy(void *h) {
    *noted = HB_OPERATION_destroy;
    inner_adapter->destroy(h);
    *noted = HB_OPERATION_none;
}

static void watch_buf_free(void *h, struct hb_buf buf) {
    *noted = HB_OPERATION_buf_free;
    inner_adapter->buf_free(h, buf);
    *noted = HB_OPERATION_none;
}

const struct hb_adapter *hb_watch_adapter(const struct hb_adapter *inner, volatile int32_t *place) {
    inner_adapter = inner;
    noted = place;
    wrapped = *inner;
    wrapped.describe = watch_describe;
    wrapped.create = watch_create;
    wrapped.destroy = watch_destroy;
    wrapped.buf_alloc = watch_buf_alloc;
    wrapped.buf_free = watch_buf_free;
    wrapped.buf_write = watch_buf_write;
    wrapped.buf_read = watch_buf_read;
    wrapped.slot_take = watch_slot_take;
    wrapped.slot_free = watch_slot_free;
    wrapped.slot_copy = watch_slot_copy;
    wrapped.table_set = watch_table_set;
    wrapped.begin = watch_begin;
    wrapped.layer = watch_layer;
    wrapped.finish = watch_finish;
    wrapped.entry = watch_entry;
    wrapped.region_read = watch_region_read;
    wrapped.region_write = watch_region_write;
    return &wrapped;
}
