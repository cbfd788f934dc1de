/* SPDX-License-Identifier: Apache-2.0
 * Track slots of one request and which of them the next checkpoint goes to (tracking.md section 2). A pure table: who uses it
 * takes and frees the slots. */
#ifndef HB_HARNESS_PING_PONG_H
#define HB_HARNESS_PING_PONG_H

#include <stdint.h>

#include "harness/case.h"

struct hb_ping_pong_table {
    int32_t mode;    /* enum hb_ping_pong of case.h */
    int32_t slot[2]; /* ids, 0: none yet */
    int32_t next;    /* index of the slot that the next checkpoint goes to */
    int32_t keep;    /* index of the newest complete checkpoint, -1: none */
};

void hb_ping_pong_init(struct hb_ping_pong_table *p, int32_t mode);
/* Slots that a request takes when it starts: 0, 1, 2, and 1 in lazy mode. */
int32_t hb_ping_pong_at_start(const struct hb_ping_pong_table *p);
/* Right before a step that tracks: the index of an entry to be filled, -1 if none is missing. The entry of `next` comes
 * first; in lazy mode the other one follows. A failure to fill is no error: ask no more before this step. */
int32_t hb_ping_pong_missing(const struct hb_ping_pong_table *p);
/* Id of the slot that the next checkpoint goes to, 0: none. */
int32_t hb_ping_pong_target(const struct hb_ping_pong_table *p);
/* The checkpoint is written: it is the newest; next flips if there are two slots. */
void hb_ping_pong_tracked(struct hb_ping_pong_table *p);
/* Id of the newest complete checkpoint, 0: none. */
int32_t hb_ping_pong_newest(const struct hb_ping_pong_table *p);
/* The newest checkpoint leaves for the prefix cache; a fresh slot (0: none) takes its place, and holds no checkpoint. */
void hb_ping_pong_donated(struct hb_ping_pong_table *p, int32_t fresh);

#endif
