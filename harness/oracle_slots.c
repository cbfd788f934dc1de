/* SPDX-License-Identifier: Apache-2.0
 * Slots of the float64 oracle: taken, freed, copied, published, moved (state-pool.md section 2).
 * The slot model does the tables, this file the bytes. */
#include "harness/oracle_adapter.h"

#include <string.h>

static void copy_entry(struct hb_oracle_layer *layer, int32_t pool, int32_t src, int32_t dst) {
    uint64_t bytes = layer->entry[pool];
    if (bytes > 0) {
        memcpy(layer->pool[pool] + (uint64_t)dst * bytes, layer->pool[pool] + (uint64_t)src * bytes,
               bytes);
    }
}

void hb_oracle_state_copy(struct hb_oracle_layer *layer, int32_t src, int32_t dst) {
    copy_entry(layer, HB_POOL_CONV, src, dst);
    copy_entry(layer, HB_POOL_TEMPORAL, src, dst);
}

int32_t hb_oracle_slot_take(void *handle, int32_t n, int32_t kind, int32_t *ids,
                            struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_take(&o->slots, n, kind, &e);
    if (e.status != HB_OK) {
        return hb_oracle_pass(err, &e);
    }
    for (int32_t i = 0; i < n; i++) {
        uint64_t slot = (uint64_t)o->slots.free_list[i];
        for (int32_t l = 0; l < o->config.n_layers; l++) {
            struct hb_oracle_layer *layer = &o->layer[l];
            for (int32_t pool = HB_POOL_CONV;
                 pool <= HB_POOL_TEMPORAL && o->config.layer_kind[l] != HB_LAYER_ATTENTION;
                 pool++) {
                if (layer->entry[pool] > 0) {
                    memset(layer->pool[pool] + slot * layer->entry[pool], 0, layer->entry[pool]);
                }
            }
        }
    }
    hb_slot_model_take(&o->slots, n, kind, ids);
    return HB_OK;
}

int32_t hb_oracle_slot_free(void *handle, int32_t n, const int32_t *ids, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_free(&o->slots, n, ids, &e);
    if (e.status == HB_OK) {
        hb_slot_model_release(&o->slots, n, ids);
    }
    return hb_oracle_pass(err, &e);
}

int32_t hb_oracle_slot_copy(void *handle, int32_t src, int32_t dst, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_copy(&o->slots, src, dst, &e);
    if (e.status != HB_OK) {
        return hb_oracle_pass(err, &e);
    }
    int32_t from = hb_slot_model_slot(&o->slots, src);
    int32_t to = hb_slot_model_slot(&o->slots, dst);
    for (int32_t l = 0; l < o->config.n_layers; l++) {
        if (o->config.layer_kind[l] != HB_LAYER_ATTENTION) {
            hb_oracle_state_copy(&o->layer[l], from, to);
        }
    }
    hb_slot_model_copied(&o->slots, dst);
    return HB_OK;
}

int32_t hb_oracle_slot_publish(void *handle, int32_t id, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_publish(&o->slots, id, &e);
    if (e.status == HB_OK) {
        o->slots.kind[hb_slot_model_slot(&o->slots, id)] = HB_SLOT_TREE;
    }
    return hb_oracle_pass(err, &e);
}

/* The bytes of the old slot stay as they are. */
int32_t hb_oracle_slot_move(void *handle, int32_t id, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_move(&o->slots, id, &e);
    if (e.status != HB_OK) {
        return hb_oracle_pass(err, &e);
    }
    int32_t from = hb_slot_model_slot(&o->slots, id);
    hb_slot_model_move(&o->slots, id);
    int32_t to = hb_slot_model_slot(&o->slots, id);
    for (int32_t l = 0; l < o->config.n_layers; l++) {
        if (o->config.layer_kind[l] == HB_LAYER_ATTENTION) {
            continue;
        }
        hb_oracle_state_copy(&o->layer[l], from, to);
        for (int32_t pool = HB_POOL_RING_X; pool <= HB_POOL_RING_G; pool++) {
            copy_entry(&o->layer[l], pool, from, to);
        }
    }
    return HB_OK;
}

int32_t hb_oracle_table_set(void *handle, int32_t req, int32_t slot, struct hb_error *err) {
    struct hb_oracle *o = handle;
    struct hb_error e;
    if (o == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    hb_expect_table(&o->slots, req, &e);
    if (e.status == HB_OK) {
        o->slots.table[req] = slot;
    }
    return hb_oracle_pass(err, &e);
}
