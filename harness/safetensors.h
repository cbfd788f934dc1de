/* SPDX-License-Identifier: Apache-2.0
 * Reader and writer of .safetensors: 8-byte little-endian header length, JSON header, raw little-endian data.
 * The reader refuses every malformed file with a reason, the value and the limit. */
#ifndef HB_HARNESS_SAFETENSORS_H
#define HB_HARNESS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/status.h"

enum hb_st_dtype { HB_ST_F64, HB_ST_F32, HB_ST_BF16, HB_ST_F16, HB_ST_I64, HB_ST_I32, HB_ST_U8, HB_ST_BOOL, HB_N_ST_DTYPES };
enum { HB_ST_MAX_DIMS = 8 };
/* Largest file that is read: 8 GiB. A larger one is refused before its header is looked at. */
#define HB_ST_MAX_FILE ((uint64_t)8 << 30)

struct hb_st_tensor {
    char *name;
    int32_t dtype, n_dims;
    int64_t shape[HB_ST_MAX_DIMS];
    const void *data; /* in the file's memory, may be unaligned for the type */
    uint64_t bytes;
    int64_t n; /* elements */
};
struct hb_st_file {
    uint8_t *memory; /* what the tensors' data point into */
    size_t size;
    struct hb_st_tensor *tensor;
    int32_t n_tensors;
    char *names; /* what the tensors' names point into */
};

/* Length and header are checked against the file's size before the data is read. HB_ERR_IO (cannot be read, not a regular
 * file), HB_ERR_PARSE (malformed, or larger than HB_ST_MAX_FILE) or HB_ERR_MEMORY; *out is written only on success, owned by the caller. */
int32_t hb_st_read(const char *path, struct hb_st_file *out, struct hb_error *err);
/* The same on memory (copied). */
int32_t hb_st_parse(const void *data, size_t size, struct hb_st_file *out, struct hb_error *err);
void hb_st_free(struct hb_st_file *f);
/* Null when absent. */
const struct hb_st_tensor *hb_st_find(const struct hb_st_file *f, const char *name);
/* Element i as double, whatever the type. */
double hb_st_get(const struct hb_st_tensor *t, int64_t i);
/* Copies elements [first, first+n) as float (f32 exact). */
void hb_st_floats(const struct hb_st_tensor *t, int64_t first, int64_t n, float *out);
/* Writes all tensors (name, dtype, shape, data, bytes used) through a temporary file and rename. */
int32_t hb_st_write(const char *path, const struct hb_st_tensor *tensors, int32_t n, struct hb_error *err);

#endif
