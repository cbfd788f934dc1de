/* SPDX-License-Identifier: Apache-2.0
 * Little-endian byte cursors. */
#include "harness/bytes.h"

uint64_t hb_bytes_get(struct hb_byte_reader *r, int32_t width) {
    uint64_t value = 0;
    for (int32_t i = 0; i < width; i++) {
        if (r->pos < r->size) {
            value |= (uint64_t)r->data[r->pos++] << (8 * i);
        }
    }
    return value;
}

void hb_bytes_put(struct hb_byte_writer *w, uint64_t value, int32_t width) {
    if (width < 0 || (size_t)width > w->cap - w->size) {
        w->is_full = 1;
        return;
    }
    for (int32_t i = 0; i < width; i++) {
        w->data[w->size++] = (uint8_t)(value >> (8 * i));
    }
}
