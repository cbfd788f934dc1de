/* SPDX-License-Identifier: Apache-2.0
 * What the parts of the safetensors module share. */
#ifndef HB_HARNESS_SAFETENSORS_INTERNAL_H
#define HB_HARNESS_SAFETENSORS_INTERNAL_H

#include "harness/safetensors.h"

/* Takes memory over, also on failure. */
int32_t hb_st_parse_owned(uint8_t *memory, size_t size, struct hb_st_file *out,
                          struct hb_error *err);
/* "F64", ...; null for other values. */
const char *hb_st_dtype_name(int32_t dtype);
/* Bytes of one element; 0 for other values. */
uint32_t hb_st_dtype_size(int32_t dtype);

#endif
