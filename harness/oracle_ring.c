/* SPDX-License-Identifier: Apache-2.0
 * Records of the replay ring in the float64 oracle (speculative.md section 7): a state between
 * folds is `temporal` and the recurrence over the stored records. */
#include "harness/oracle_adapter.h"

#include <math.h>
#include <string.h>

int64_t hb_oracle_record_items(const struct hb_config *c) {
    return (int64_t)c->n_heads * c->head_dim + (int64_t)c->n_groups * c->state_size + c->n_heads;
}

int hb_oracle_row_folds(const struct hb_config *c, const struct hb_oracle_row *row) {
    return row->w >= 0 && (row->forced || row->w == c->ring_length - 1);
}

/* Entry w of a slot in one ring: `items` floats of each of `outer` heads or groups. */
static float *record_at(const struct hb_oracle_layer *layer, int32_t pool, int32_t slot,
                        int32_t length, int32_t outer, int32_t w, int32_t items) {
    void *entry = layer->pool[pool] + (uint64_t)slot * layer->entry[pool];
    float *ring = entry;
    return ring + ((int64_t)outer * length + w) * items;
}

static void add_record(const struct hb_config *c, const struct hb_oracle_layer *layer, int32_t slot,
                       int32_t j, int32_t head, struct hb_ref_state *state) {
    int32_t length = c->ring_length;
    int32_t group = c->head_map == HB_HEADS_TILE ? head % c->n_groups
                                                 : head / (c->n_heads / c->n_groups);
    const float *x = record_at(layer, HB_POOL_RING_X, slot, length, head, j, c->head_dim);
    const float *b = record_at(layer, HB_POOL_RING_B, slot, length, group, j, c->state_size);
    double decay = exp((double)*record_at(layer, HB_POOL_RING_G, slot, length, head, j, 1));
    for (int32_t p = 0; p < c->head_dim; p++) {
        double *h = state->h + ((int64_t)head * c->head_dim + p) * c->state_size;
        for (int32_t n = 0; n < c->state_size; n++) {
            h[n] = decay * h[n] + (double)x[p] * (double)b[n];
        }
    }
}

void hb_oracle_ring_load(const struct hb_config *c, const struct hb_oracle_layer *layer,
                         int32_t slot, int32_t base, int32_t n, struct hb_ref_state *state) {
    for (int32_t j = 0; j < n; j++) {
        for (int32_t head = 0; head < c->n_heads; head++) {
            add_record(c, layer, slot, (base + j) % c->ring_length, head, state);
        }
    }
}

void hb_oracle_ring_store(const struct hb_config *c, struct hb_oracle_layer *layer, int32_t slot,
                          int32_t at, const float *record) {
    const int32_t w = at % c->ring_length;
    const struct {
        int32_t pool, outer, items;
    } parts[3] = {{HB_POOL_RING_X, c->n_heads, c->head_dim},
                  {HB_POOL_RING_B, c->n_groups, c->state_size},
                  {HB_POOL_RING_G, c->n_heads, 1}};
    for (int i = 0; i < 3; i++) {
        for (int32_t k = 0; k < parts[i].outer; k++) {
            memcpy(record_at(layer, parts[i].pool, slot, c->ring_length, k, w, parts[i].items),
                   record, (size_t)parts[i].items * sizeof *record);
            record += parts[i].items;
        }
    }
}
