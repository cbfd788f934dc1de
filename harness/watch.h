/* SPDX-License-Identifier: Apache-2.0
 * An adapter around an adapter that notes the running operation, so that whoever watches the
 * process from outside can say where it died. Wraps one adapter per process. */
#ifndef HB_HARNESS_WATCH_H
#define HB_HARNESS_WATCH_H

#include "backend/adapter.h"

/* X(NAME, step kind): operations of the adapter table and the kind of step that uses them. */
#define HB_OPERATIONS(X)                                                                           \
    X(none, "none")                                                                                \
    X(describe, "config")                                                                          \
    X(create, "config")                                                                            \
    X(destroy, "config")                                                                           \
    X(buf_alloc, "buffer")                                                                         \
    X(buf_free, "buffer")                                                                          \
    X(buf_write, "buffer")                                                                         \
    X(buf_read, "buffer")                                                                          \
    X(slot_take, "take")                                                                           \
    X(slot_free, "free")                                                                           \
    X(slot_copy, "copy")                                                                           \
    X(table_set, "table")                                                                          \
    X(begin, "forward")                                                                            \
    X(layer, "forward")                                                                            \
    X(finish, "forward")                                                                           \
    X(entry, "entry")                                                                              \
    X(region_read, "region")                                                                       \
    X(region_write, "region")

enum hb_operation {
#define HB_OPERATION_ENUM(name, step) HB_OPERATION_##name,
    HB_OPERATIONS(HB_OPERATION_ENUM)
#undef HB_OPERATION_ENUM
        HB_N_OPERATIONS
};

/* Both give "none" for unknown values. */
const char *hb_operation_name(int32_t operation);
const char *hb_operation_step(int32_t operation);

/* Returns the wrapped table; *place receives the enum hb_operation that runs, HB_OPERATION_none
 * between calls. */
const struct hb_adapter *hb_watch_adapter(const struct hb_adapter *inner, volatile int32_t *place);

#endif
