/* SPDX-License-Identifier: Apache-2.0
 * What the parts of the safetensors module share. */
#ifndef HB_HARNESS_SAFETENSORS_INTERNAL_H
#define HB_HARNESS_SAFETENSORS_INTERNAL_H

#include "harness/safetensors.h"

enum { HB_ST_PREFIX = 8 }; /* bytes of the header length */
/* Place of a tensor in the data block. */
struct hb_st_span;

/* Header length from the first bytes of a file of size bytes (read only if there are enough). */
int32_t hb_st_check_length(const uint8_t *prefix, uint64_t size, uint64_t *header,
                           struct hb_error *err);
/* Checks the header of a file with data_bytes of data, which need not be there yet: f gets tensors
 * without data. On success f and spans are the caller's; hb_st_attach or free takes the spans. */
int32_t hb_st_parse_header(const char *text, size_t len, uint64_t data_bytes, struct hb_st_file *f,
                           struct hb_st_span **spans, struct hb_error *err);
/* Gives memory (taken over), the whole file with its data from data_at on, to f; frees spans. */
void hb_st_attach(struct hb_st_file *f, struct hb_st_span *spans, uint8_t *memory, size_t size,
                  size_t data_at);
/* Opens a regular file of at most limit bytes for reading, without waiting: a pipe, a device or a
 * directory is refused. HB_ERR_IO, or HB_ERR_PARSE above the limit; texts name the path. */
int32_t hb_st_open(const char *path, uint64_t limit, int *fd, uint64_t *size, struct hb_error *err);
/* Reads n bytes, or *got fewer where the file ends. HB_ERR_IO. */
int32_t hb_st_fill(int fd, const char *path, void *to, size_t n, size_t *got, struct hb_error *err);
/* "F64", ...; null for other values. */
const char *hb_st_dtype_name(int32_t dtype);
/* Bytes of one element; 0 for other values. */
uint32_t hb_st_dtype_size(int32_t dtype);

#endif
