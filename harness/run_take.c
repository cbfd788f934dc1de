/* SPDX-License-Identifier: Apache-2.0
 * TAKE: a request starts from nothing, with tokens already, from a checkpoint, or from what the
 * prefix cache knows. */
#include <stdlib.h>
#include <string.h>

#include "harness/run_internal.h"

enum { EXTRA_STREAM = 1 << 20 /* streams of slots that no request owns */ };

static void set_table(struct hb_run *r, int32_t req, int32_t slot) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    hb_expect_table(&r->slots, req, &want);
    int32_t status = r->backend->table_set(r->handle, req, slot, &got);
    if (hb_run_judge(r, "table_set", "take", &want, status, &got)) {
        r->slots.table[req] = slot;
    }
    /* the write is checked with the next comparison */
    int32_t table = hb_run_region(r, "req_to_slot", -1);
    if (table >= 0) {
        memcpy(hb_run_mirror(r, table), r->slots.table, (size_t)r->region[table].bytes);
    }
}

/* One layer's states of a slot: values [n_conv + n_ssm] is room for them. Nonzero where the backend
 * refuses a write. */
static int write_states(struct hb_run *r, struct hb_content *content, int32_t slot, int32_t layer,
                        float *values, struct hb_error *e) {
    float *ssm = values + r->n_conv;
    const int32_t rc = hb_run_region(r, "conv", layer);
    const int32_t rs = hb_run_region(r, "temporal", layer);
    int bad = 0;
    if (rc >= 0) {
        const size_t bytes = (size_t)r->region[rc].bytes / (size_t)r->region[rc].shape[0];
        uint8_t *at = hb_run_mirror(r, rc) + (size_t)slot * bytes;
        hb_run_fill(r, HB_TENSOR_INIT_CONV, content->stream, layer, 0, r->n_conv, values);
        hb_pack(r->region[rc].dtype, values, r->n_conv, at);
        bad |= r->backend->region_write(r->handle, rc, (size_t)slot * bytes, at, bytes, e);
    }
    if (rs >= 0) {
        const size_t bytes = (size_t)r->region[rs].bytes / (size_t)r->region[rs].shape[0];
        uint8_t *at = hb_run_mirror(r, rs) + (size_t)slot * bytes;
        hb_run_fill(r, HB_TENSOR_INIT_SSM, content->stream, layer, 0, r->n_ssm, ssm);
        hb_run_pack_ssm(r, rs, ssm, at);
        bad |= r->backend->region_write(r->handle, rs, (size_t)slot * bytes, at, bytes, e);
    }
    hb_run_read_slot(r, layer, slot, values, ssm); /* as it is stored */
    hb_ref_state_set(&r->config, content->ref[layer], values, ssm);
    return bad;
}

/* A request that already has `prefix` tokens: random state and KV entries, exactly known. */
static int write_prefix(struct hb_run *r, struct hb_content *content, int32_t slot,
                        int64_t prefix) {
    struct hb_error e = {.struct_size = sizeof e};
    content->pos = prefix;
    int32_t *loc = malloc((size_t)prefix * sizeof *loc);
    if (!loc) {
        r->no_memory = 1;
        return -1;
    }
    for (int64_t p = 0; p < prefix; p++) {
        loc[p] = hb_kv_alloc_take(&r->kv, p, p > 0 ? loc[p - 1] : 0);
    }
    free(content->loc);
    content->loc = loc;
    content->n_loc = prefix;
    const int32_t n_conv = r->n_conv, n_ssm = r->n_ssm;
    const int32_t n_kv = r->config.n_kv_heads * r->config.attn_dim;
    size_t n = (size_t)(n_conv + n_ssm) + (size_t)n_kv;
    float *values = hb_run_floats(r, n);
    if (!values) {
        return -1;
    }
    int bad = 0;
    for (int32_t l = 0; l < r->config.n_layers; l++) {
        if (hb_run_is_linear(r, l)) {
            bad |= write_states(r, content, slot, l, values, &e);
        }
        const char *const kv[] = {"kv_k", "kv_v"};
        for (int k = 0; k < 2; k++) {
            int32_t i = hb_run_region(r, kv[k], l);
            size_t row = i < 0 ? 0 : (size_t)n_kv * (size_t)hb_dtype_bytes(r->region[i].dtype);
            for (int64_t p = 0; i >= 0 && p < prefix; p++) {
                hb_run_fill(r, k ? HB_TENSOR_V : HB_TENSOR_K, content->stream, l, p, n_kv, values);
                uint8_t *w = hb_run_mirror(r, i) + (size_t)loc[p] * row;
                hb_pack(r->region[i].dtype, values, n_kv, w);
                bad |= r->backend->region_write(r->handle, i, (size_t)loc[p] * row, w, row, &e);
            }
        }
    }
    if (bad) {
        hb_verdict_set(r->v, HB_VERDICT_STATUS, "region_write", "take", HB_OK, e.status,
                       "step %d: region_write failed: %s", r->step, e.text);
    }
    return bad ? -1 : 0;
}

static int32_t track_slot(const struct hb_run *r, int32_t index) {
    int32_t seen[HB_MAX_NAMES];
    int32_t n = 0;
    for (int32_t k = 0; k < r->n_names; k++) {
        if (r->name_is_track[k] && r->name[k] > 0) {
            seen[n++] = r->name[k];
        }
    }
    return n > 0 && index >= 0 ? seen[index % n] : 0;
}

/* Where the tokens of a fresh request come from. Restarts copy, never use the checkpoint itself
 * (state-pool.md section 2). A match has its first tokens in common with another request: whether a
 * state of them is found or not, it is their stream that it goes on with. */
static void give_tokens(struct hb_run *r, const struct hb_case_step *step, int32_t request,
                        int32_t id) {
    struct hb_content *content = &r->content[hb_run_slot(r, id)];
    if (step->match >= 0) {
        const int32_t shared = r->request_stream[step->match & (HB_MAX_REQS - 1)];
        const int32_t found = hb_prefix_cache_find(&r->cache, shared, step->prefix);
        content->stream = shared;
        if (found > 0) {
            hb_run_copy_slot(r, found, id, "match");
        }
    } else if (step->from >= 0 && track_slot(r, step->from) > 0) {
        hb_run_copy_slot(r, track_slot(r, step->from), id, "restart");
    } else if (step->prefix > 0) {
        (void)write_prefix(r, content, hb_run_slot(r, id), step->prefix);
    }
    r->request_stream[request] = content->stream;
}

/* Streams of live slots that no request owns: they may still be reached through the mapping table.
 */
static int own_streams(struct hb_run *r, int32_t n, const int32_t *ids) {
    for (int32_t i = 0; i < n; i++) {
        const int32_t slot = hb_run_slot(r, ids[i]);
        if (hb_content_zero(r, &r->content[slot], EXTRA_STREAM + slot)) {
            return -1;
        }
    }
    return 0;
}

static void take_track_slots(struct hb_run *r, int32_t request) {
    struct hb_ping_pong_table *p = &r->ping_pong[request];
    hb_ping_pong_init(p, r->c->config.ping_pong);
    const int32_t n = hb_ping_pong_at_start(p);
    if (n > 0) {
        (void)hb_run_take_slots(r, n, HB_SLOT_TRACK, p->slot);
    }
}

void hb_run_take(struct hb_run *r, const struct hb_case_step *step) {
    enum { MAX_TAKE = 64 };
    int32_t ids[MAX_TAKE];
    const int32_t kind = hb_run_break_value(r, HB_FIELD_SLOT_KIND, -1,
                                            step->slot_kind ? HB_SLOT_TRACK : HB_SLOT_LIVE);
    int32_t n = hb_run_break_value(r, HB_FIELD_SLOT_COUNT, -1, 1);
    const int32_t name = r->n_names < HB_MAX_NAMES ? r->n_names++ : HB_MAX_NAMES - 1;
    r->name[name] = 0;
    r->name_is_track[name] = step->slot_kind != 0;
    r->name_request[name] = -1;
    if (!hb_run_take_slots(r, n, kind, ids) || n < 1) {
        return;
    }
    n = n > MAX_TAKE ? MAX_TAKE : n;
    r->name[name] = ids[0];
    const int32_t has_owner = !step->slot_kind;
    if (kind == HB_SLOT_LIVE && own_streams(r, n - has_owner, ids + has_owner)) {
        return;
    }
    if (!has_owner || kind != HB_SLOT_LIVE) {
        return;
    }
    const int32_t request = step->request & (HB_MAX_REQS - 1);
    const int32_t stream = request + HB_MAX_REQS * r->request_generation[request]++;
    if (hb_content_zero(r, &r->content[hb_run_slot(r, ids[0])], stream)) {
        return;
    }
    r->name_request[name] = request;
    r->request_slot[request] = ids[0];
    r->request_stream[request] = step->match == request ? r->request_stream[request] : stream;
    set_table(r, hb_case_req_index(r->c, request), ids[0]);
    give_tokens(r, step, request, ids[0]);
    if (!hb_run_done(r)) {
        take_track_slots(r, request);
    }
}
