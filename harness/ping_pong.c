/* SPDX-License-Identifier: Apache-2.0
 * The ping-pong table of a request's track slots (tracking.md section 2). */
#include "harness/ping_pong.h"

#include <string.h>

void hb_ping_pong_init(struct hb_ping_pong_table *p, int32_t mode) {
    memset(p, 0, sizeof *p);
    p->mode = mode;
    p->keep = -1;
}

/* Entries that the table can have, and those filled when the request starts. */
static const struct {
    int32_t entries, at_start;
} shapes[HB_N_PING_PONGS] = {[HB_PING_PONG_OFF] = {0, 0},
                             [HB_PING_PONG_ONE] = {1, 1},
                             [HB_PING_PONG_TWO] = {2, 2},
                             [HB_PING_PONG_LAZY] = {2, 1}};

static int32_t shape_of(const struct hb_ping_pong_table *p) {
    return p->mode > 0 && p->mode < HB_N_PING_PONGS ? p->mode : HB_PING_PONG_OFF;
}

int32_t hb_ping_pong_at_start(const struct hb_ping_pong_table *p) {
    return shapes[shape_of(p)].at_start;
}

int32_t hb_ping_pong_missing(const struct hb_ping_pong_table *p) {
    const int32_t entries = shapes[shape_of(p)].entries;
    for (int32_t i = 0; i < entries; i++) {
        const int32_t index = entries == 2 ? p->next ^ i : 0;
        if (p->slot[index] == 0) {
            return index;
        }
    }
    return -1;
}

int32_t hb_ping_pong_target(const struct hb_ping_pong_table *p) {
    return p->slot[p->next];
}

void hb_ping_pong_tracked(struct hb_ping_pong_table *p) {
    p->keep = p->next;
    if (p->slot[0] != 0 && p->slot[1] != 0) {
        p->next = 1 - p->next;
    }
}

int32_t hb_ping_pong_newest(const struct hb_ping_pong_table *p) {
    return p->keep < 0 ? 0 : p->slot[p->keep];
}

void hb_ping_pong_donated(struct hb_ping_pong_table *p, int32_t fresh) {
    if (p->keep >= 0) {
        p->slot[p->keep] = fresh;
        p->keep = -1;
    }
}
