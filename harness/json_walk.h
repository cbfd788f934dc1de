/* SPDX-License-Identifier: Apache-2.0
 * A cursor over a JSON text that hb_json_scan has accepted: reads it in one pass, without a tree and without memory of its
 * own. Headers of tensor files may name millions of tensors. No call fails: the text is known to be well formed. */
#ifndef HB_HARNESS_JSON_WALK_H
#define HB_HARNESS_JSON_WALK_H

#include <stddef.h>
#include <stdint.h>

/* pos stands before a value, or behind the text. */
struct hb_json_walk {
    const char *text;
    size_t len, pos;
};

/* Of the value at the cursor: '{', '[', '"', '0' (a number), 't', 'f' or 'n'. */
char hb_json_walk_kind(struct hb_json_walk *w);
/* Goes into a container, whose bracket is at the cursor. */
void hb_json_walk_enter(struct hb_json_walk *w);
/* Goes to the next element of the container, or to its first one: 1, or 0 behind its end. In an object the cursor then
 * stands before a key. */
int hb_json_walk_next(struct hb_json_walk *w);
/* Decodes the string or key at the cursor into out, cut to cap - 1 bytes and ended by a zero; a key's colon is passed. */
void hb_json_walk_string(struct hb_json_walk *w, char *out, size_t cap);
double hb_json_walk_number(struct hb_json_walk *w);
/* Passes any value. */
void hb_json_walk_skip(struct hb_json_walk *w);
/* Elements of the container at the cursor, which stays there; 0 for other values. */
size_t hb_json_walk_count(const struct hb_json_walk *w);

#endif
