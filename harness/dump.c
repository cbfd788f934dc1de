/* SPDX-License-Identifier: Apache-2.0
 * Collects the tensors of a run and writes them as one file. */
#include "harness/dump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add(struct hb_dump *d, int32_t step, int32_t layer, const char *name, int32_t dtype,
               int32_t n_dims, const int64_t *shape, const void *data, size_t bytes) {
    if (d->n == d->cap) {
        int32_t cap = d->cap ? 2 * d->cap : 32;
        struct hb_st_tensor *grown = realloc(d->tensor, (size_t)cap * sizeof *grown);
        if (!grown) {
            return -1;
        }
        d->tensor = grown;
        d->cap = cap;
    }
    struct hb_st_tensor *t = &d->tensor[d->n];
    memset(t, 0, sizeof *t);
    char text[64];
    if (layer >= 0) {
        (void)snprintf(text, sizeof text, "step%d.layer%d.%s", step, layer, name);
    } else {
        (void)snprintf(text, sizeof text, "step%d.%s", step, name);
    }
    t->name = strdup(text);
    void *copy = malloc(bytes ? bytes : 1);
    if (!t->name || !copy) {
        free(t->name);
        free(copy);
        return -1;
    }
    if (bytes) {
        memcpy(copy, data, bytes);
    }
    t->data = copy;
    t->bytes = bytes;
    t->dtype = dtype;
    t->n_dims = n_dims;
    t->n = 1;
    for (int32_t i = 0; i < n_dims; i++) {
        t->shape[i] = shape[i];
        t->n *= shape[i];
    }
    d->n++;
    return 0;
}

int hb_dump_floats(struct hb_dump *d, int32_t step, int32_t layer, const char *name, int64_t rows,
                   int64_t width, const float *values) {
    const int64_t shape[2] = {rows, width};
    return add(d, step, layer, name, HB_ST_F32, 2, shape, values,
               (size_t)(rows * width) * sizeof *values);
}

int hb_dump_region(struct hb_dump *d, int32_t step, const struct hb_region *region,
                   const uint8_t *bytes) {
    static const int32_t dtypes[] = {[HB_FP32] = HB_ST_F32, [HB_BF16] = HB_ST_BF16, [HB_FP16] = HB_ST_F16,
                                     [HB_INT32] = HB_ST_I32};
    return add(d, step, region->layer, region->name, dtypes[region->dtype], region->n_dims,
               region->shape, bytes, (size_t)region->bytes);
}

int32_t hb_dump_write(const struct hb_dump *d, const char *dir, const struct hb_case *c,
                      struct hb_error *err) {
    char id[HB_CASE_ID_LEN];
    char path[4096];
    if (d->n == 0) {
        return HB_OK;
    }
    hb_case_id(c, id);
    if (snprintf(path, sizeof path, "%s/%s.safetensors", dir, id) >= (int)sizeof path) {
        return hb_fail_text(err, HB_ERR_IO, "the dump's path is longer than %zu", sizeof path - 1);
    }
    return hb_st_write(path, d->tensor, d->n, err);
}

void hb_dump_free(struct hb_dump *d) {
    for (int32_t i = 0; i < d->n; i++) {
        free(d->tensor[i].name);
        void *data; /* add() made it; the tensors of a reader are const */
        memcpy((void *)&data, (const void *)&d->tensor[i].data, sizeof data);
        free(data);
    }
    free(d->tensor);
    memset(d, 0, sizeof *d);
}
