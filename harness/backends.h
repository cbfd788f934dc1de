/* SPDX-License-Identifier: Apache-2.0
 * The backends that a case can run on, by name. */
#ifndef HB_HARNESS_BACKENDS_H
#define HB_HARNESS_BACKENDS_H

#include <stddef.h>

#include "backend/adapter.h"

struct hb_backend_entry {
    const char *name;
    const char *what; /* one line for people */
    const struct hb_adapter *(*adapter)(void);
    int32_t needs_gpu;
};

/* All backends this program knows of, in this build or not; returns their number. */
int hb_backends(const struct hb_backend_entry **out);
/* Index of a name, -1 when unknown. */
int32_t hb_backend_find(const char *name);
/* HB_OK, HB_ERR_UNSUPPORTED (not in this build) or HB_ERR_DEVICE (no device), with the reason in
 * err. Touches no device: safe in a process that will fork. */
int32_t hb_backend_available(int32_t index, struct hb_error *err);
/* The adapter, after asking it to describe itself; statuses as above. *out is written only on
 * success. */
int32_t hb_backend_open(int32_t index, const struct hb_adapter **out, struct hb_error *err);
/* First line of text about the GPU of this machine, without starting it; returns 1 if there is one.
 */
int hb_gpu_text(char *out, size_t cap);

#endif
