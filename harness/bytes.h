/* SPDX-License-Identifier: Apache-2.0
 * Little-endian byte cursors of the case's byte form: reading past the end gives zeros, writing
 * past the end is recorded. */
#ifndef HB_HARNESS_BYTES_H
#define HB_HARNESS_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct hb_byte_reader {
    const uint8_t *data;
    size_t size, pos;
};

struct hb_byte_writer {
    uint8_t *data;
    size_t cap, size;
    int32_t is_full; /* something did not fit; size is then meaningless */
};

/* The next width (1..8) bytes; bytes that do not exist are zero. */
uint64_t hb_bytes_get(struct hb_byte_reader *r, int32_t width);
/* Appends the low width (1..8) bytes of value. */
void hb_bytes_put(struct hb_byte_writer *w, uint64_t value, int32_t width);

#endif
