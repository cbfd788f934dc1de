/* SPDX-License-Identifier: Apache-2.0
 * run --dump: inputs, outputs and states of a case as one safetensors file, <case id>.safetensors. */
#ifndef HB_HARNESS_DUMP_H
#define HB_HARNESS_DUMP_H

#include "backend/adapter.h"
#include "harness/case.h"
#include "harness/safetensors.h"

struct hb_dump {
    struct hb_st_tensor *tensor;
    int32_t n, cap;
};

/* Adds rows x width floats as "step<k>.layer<l>.<name>" (F32). -1 when out of memory. */
int hb_dump_floats(struct hb_dump *d, int32_t step, int32_t layer, const char *name, int64_t rows,
                   int64_t width, const float *values);
/* Adds a region's bytes as "step<k>.layer<l>.<region>" in its own type. -1 when out of memory. */
int hb_dump_region(struct hb_dump *d, int32_t step, const struct hb_region *region,
                   const uint8_t *bytes);
/* Writes DIR/<case id>.safetensors; an empty dump writes nothing. */
int32_t hb_dump_write(const struct hb_dump *d, const char *dir, const struct hb_case *c,
                      struct hb_error *err);
void hb_dump_free(struct hb_dump *d);

#endif
