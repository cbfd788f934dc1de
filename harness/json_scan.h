/* SPDX-License-Identifier: Apache-2.0
 * Strict check of a JSON text before any parser sees it (contracts.md section 4): RFC 8259 grammar,
 * UTF-8 without a byte order mark, nesting at most 64, no key twice in an object, numbers below
 * 2^53 in magnitude, no NUL inside strings. */
#ifndef HB_HARNESS_JSON_SCAN_H
#define HB_HARNESS_JSON_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "backend/status.h"

enum { HB_JSON_MAX_DEPTH = 64, HB_JSON_MAX_KEY = 256, HB_JSON_MAX_NUMBER = 64 };

/* HB_OK, HB_ERR_PARSE with byte offset, value and limit in err, or HB_ERR_MEMORY. Uses no
 * recursion. */
int32_t hb_json_scan(const char *text, size_t len, struct hb_error *err);

#endif
