/* SPDX-License-Identifier: Apache-2.0
 * Tables and cursors that every backend shows: what the harness's own model says they hold. */
#include <string.h>

#include "harness/run_internal.h"

enum table { REQ_TO_SLOT, SLOT_KIND, V2P, WRITE_POS, RING_BASE, RING_FLUSH, N_TABLES };
static const char *const names[N_TABLES] = {"req_to_slot", "slot_kind", "v2p",
                                            "write_pos",   "ring_base", "ring_flush"};

static int32_t table_of(const struct hb_region *region) {
    for (int32_t k = 0; k < N_TABLES && region->layer < 0; k++) {
        if (strcmp(region->name, names[k]) == 0) {
            return k;
        }
    }
    return N_TABLES;
}

/* A free slot's cursor is nobody's: it stays what it was. */
static void want_cursors(struct hb_run *r, int32_t region, const int32_t *cursors) {
    for (int32_t slot = 0; slot <= r->slots.n_slots; slot++) {
        const size_t at = (size_t)slot * sizeof(int32_t);
        if (r->slots.kind[slot] != HB_SLOT_FREE && at < r->region[region].bytes) {
            memcpy(r->want[region] + at, &cursors[slot], sizeof(int32_t));
        }
    }
}

static void want_table(struct hb_run *r, int32_t region, int32_t table) {
    const struct hb_slot_model *m = &r->slots;
    const struct {
        const int32_t *data;
        int32_t n;
    } sources[N_TABLES] = {
        [REQ_TO_SLOT] = {m->table, m->req_pool_size},
        [SLOT_KIND] = {m->kind, m->n_slots + 1},
        [V2P] = {m->v2p, m->n_virtual + 1},
        [WRITE_POS] = {m->write_pos, 0},
        [RING_BASE] = {m->ring_base, 0},
        [RING_FLUSH] = {m->ring_flush, 0}};
    if (table >= WRITE_POS) {
        want_cursors(r, region, sources[table].data);
    } else if (sources[table].data) {
        const size_t bytes = (size_t)sources[table].n * sizeof(int32_t);
        const size_t most = (size_t)r->region[region].bytes;
        memcpy(r->want[region], sources[table].data, bytes < most ? bytes : most);
    }
}

void hb_run_want_tables(struct hb_run *r) {
    for (int32_t i = 0; i < r->n_regions; i++) {
        const int32_t table = table_of(&r->region[i]);
        if (table < N_TABLES) {
            want_table(r, i, table);
        }
    }
}

void hb_run_want_own_tables(struct hb_run *r) {
    for (int32_t i = 0; i < r->n_regions; i++) {
        const struct hb_region *region = &r->region[i];
        const int32_t table = table_of(region);
        if (table < N_TABLES) {
            want_table(r, i, table);
        } else if (region->layer < 0 && region->kind != HB_REGION_STATIC) {
            hb_run_allow(r, i, 0, region->bytes);
        }
    }
}

void hb_run_check_fresh_tables(struct hb_run *r) {
    for (int32_t i = 0; i < r->n_regions; i++) {
        const int32_t table = table_of(&r->region[i]);
        const size_t bytes = (size_t)r->region[i].bytes;
        if (table == N_TABLES) {
            continue;
        }
        memcpy(r->want[i], r->mirror[i], bytes);
        memcpy(r->actual[i], r->mirror[i], bytes);
        want_table(r, i, table);
        if (hb_run_compare_bytes(r, i, 0, bytes, "create.tables", "create")) {
            return;
        }
    }
}
