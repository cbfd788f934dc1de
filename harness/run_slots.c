/* SPDX-License-Identifier: Apache-2.0
 * Slot steps of a case: take (with initial state or restart), free, copy. */
#include <stdlib.h>
#include <string.h>

#include "harness/run_internal.h"

enum { MAX_TAKE = 64, EXTRA_STREAM = 1 << 20 /* streams of slots that no request owns */ };

void hb_content_reset(struct hb_run *r, struct hb_content *content) {
    free(content->loc);
    for (int32_t l = 0; l < HB_MAX_LAYERS; l++) {
        hb_run_state_free(r, content->ref[l]);
    }
    memset(content, 0, sizeof *content);
}

int hb_content_zero(struct hb_run *r, struct hb_content *content, int32_t stream) {
    content->known = 1;
    content->stream = stream;
    content->pos = 0;
    content->branch = 0;
    for (int32_t l = 0; l < r->config.n_layers; l++) {
        if (r->config.layer_kind[l] != HB_LAYER_MAMBA2) {
            continue;
        }
        if (content->ref[l]) {
            hb_ref_state_zero(&r->config, content->ref[l]);
        } else {
            content->ref[l] = hb_run_state_new(r);
        }
        if (!content->ref[l]) {
            return -1;
        }
    }
    return 0;
}

static int set_loc(struct hb_content *content, const int32_t *loc, int64_t n) {
    int32_t *copy = malloc((n > 0 ? (size_t)n : 1) * sizeof *copy);
    if (!copy) {
        return -1;
    }
    if (n > 0 && loc) {
        memcpy(copy, loc, (size_t)n * sizeof *copy);
    }
    free(content->loc);
    content->loc = copy;
    content->n_loc = n;
    return 0;
}

int hb_content_copy(struct hb_run *r, struct hb_content *dst, const struct hb_content *src,
                    int64_t n_loc) {
    dst->known = src->known;
    dst->stream = src->stream;
    dst->pos = src->pos;
    dst->branch = src->branch;
    for (int32_t l = 0; l < HB_MAX_LAYERS; l++) {
        if (!src->ref[l]) {
            continue;
        }
        if (!dst->ref[l]) {
            dst->ref[l] = hb_run_state_new(r);
        }
        if (!dst->ref[l]) {
            return -1;
        }
        hb_ref_state_copy(&r->config, dst->ref[l], src->ref[l]);
    }
    return set_loc(dst, src->loc, n_loc < src->n_loc ? n_loc : src->n_loc);
}

static int64_t break_value(const struct hb_run *r, int32_t field, int32_t row, int64_t value) {
    for (int32_t i = 0; i < r->c->n_breaks; i++) {
        const struct hb_case_break *brk = &r->c->brk[i];
        if (brk->step == r->step && brk->field == field && (row < 0 || (brk->row & 1) == row)) {
            value = brk->operation == HB_BREAK_ADD ? (int64_t)((uint64_t)value + (uint64_t)brk->value)
                                                   : brk->value;
        }
    }
    return value;
}

static int32_t to_i32(int64_t x) {
    return (int32_t)(uint32_t)(uint64_t)x;
}

static void model_take(struct hb_slot_model *m, int32_t id, int32_t kind) {
    m->kind[id] = kind;
    for (int32_t i = 0; i < m->n_free; i++) {
        if (m->free_list[i] == id) {
            memmove(&m->free_list[i], &m->free_list[i + 1],
                    (size_t)(m->n_free - i - 1) * sizeof *m->free_list);
            m->n_free--;
            return;
        }
    }
}

/* want := what a slot operation may have changed: known tables exactly, other tables anything. */
static void want_tables(struct hb_run *r) {
    for (int32_t i = 0; i < r->n_regions; i++) {
        const struct hb_region *region = &r->region[i];
        if (region->layer >= 0) {
            continue;
        }
        if (strcmp(region->name, "req_to_slot") == 0) {
            memcpy(r->want[i], r->slots.table, (size_t)region->bytes);
        } else if (strcmp(region->name, "slot_kind") == 0) {
            memcpy(r->want[i], r->slots.kind, (size_t)region->bytes);
        } else {
            hb_run_allow(r, i, 0, region->bytes);
        }
    }
}

/* The bytes of one slot in every state region; src < 0: zeros, else a copy of slot src as the mirror knows it. */
static void want_slot(struct hb_run *r, int32_t dst, int32_t src) {
    for (int32_t l = 0; l < r->config.n_layers; l++) {
        const char *const names[] = {"conv", "temporal"};
        for (int k = 0; k < 2; k++) {
            int32_t i = hb_run_region(r, names[k], l);
            if (i < 0) {
                continue;
            }
            size_t bytes = (size_t)r->region[i].bytes / (size_t)r->region[i].shape[0];
            if (src < 0) {
                memset(r->want[i] + (size_t)dst * bytes, 0, bytes);
            } else {
                memcpy(r->want[i] + (size_t)dst * bytes, r->mirror[i] + (size_t)src * bytes, bytes);
            }
        }
    }
}

static void after_call(struct hb_run *r, int ok, const char *check, const char *place) {
    if (r->v->kind != HB_VERDICT_PASS || hb_run_read_regions(r)) {
        return;
    }
    if (ok) {
        want_tables(r);
        hb_run_compare_regions(r, HB_VERDICT_STATE, check, place);
    } else {
        hb_run_compare_regions(r, HB_VERDICT_PURITY, "error.purity", place);
    }
}

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

/* A request that already has `prefix` tokens: random state and KV entries, exactly known. */
static int write_prefix(struct hb_run *r, struct hb_content *content, int32_t slot, int64_t prefix) {
    struct hb_error e = {.struct_size = sizeof e};
    content->pos = prefix;
    int32_t *loc = malloc((size_t)prefix * sizeof *loc);
    if (!loc) {
        r->no_memory = 1;
        return -1;
    }
    for (int64_t p = 0; p < prefix; p++) {
        loc[p] = hb_kv_alloc_take(&r->kv);
    }
    free(content->loc);
    content->loc = loc;
    content->n_loc = prefix;
    int32_t dim = hb_run_dim(&r->config);
    int32_t n_conv = dim * (r->config.conv_width - 1);
    int32_t n_ssm = r->config.n_heads * r->config.head_dim * r->config.state_size;
    int32_t n_kv = r->config.n_kv_heads * r->config.attn_dim;
    size_t n = (size_t)(n_conv + n_ssm) + (size_t)n_kv;
    float *values = hb_run_floats(r, n);
    if (!values) {
        return -1;
    }
    int bad = 0;
    for (int32_t l = 0; l < r->config.n_layers; l++) {
        int32_t rc = hb_run_region(r, "conv", l);
        int32_t rs = hb_run_region(r, "temporal", l);
        if (rc >= 0 && rs >= 0) {
            float *ssm = values + n_conv;
            hb_run_fill(r, HB_TENSOR_INIT_CONV, content->stream, l, 0, n_conv, values);
            hb_run_fill(r, HB_TENSOR_INIT_SSM, content->stream, l, 0, n_ssm, ssm);
            size_t cb = (size_t)n_conv * (size_t)hb_dtype_bytes(r->region[rc].dtype);
            size_t sb = (size_t)n_ssm * (size_t)hb_dtype_bytes(r->region[rs].dtype);
            uint8_t *cw = hb_run_mirror(r, rc) + (size_t)slot * cb;
            uint8_t *sw = hb_run_mirror(r, rs) + (size_t)slot * sb;
            hb_pack(r->region[rc].dtype, values, n_conv, cw);
            hb_pack(r->region[rs].dtype, ssm, n_ssm, sw);
            hb_unpack(r->region[rc].dtype, cw, n_conv, values);
            hb_unpack(r->region[rs].dtype, sw, n_ssm, ssm);
            hb_ref_state_set(&r->config, content->ref[l], values, ssm);
            bad |= r->backend->region_write(r->handle, rc, (size_t)slot * cb, cw, cb, &e);
            bad |= r->backend->region_write(r->handle, rs, (size_t)slot * sb, sw, sb, &e);
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

/* Restart of a request from a checkpoint: a copy, never the checkpoint itself (state-pool.md section 2). */
static void restart(struct hb_run *r, int32_t src, int32_t dst) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    hb_expect_copy(&r->slots, src, dst, &want);
    int32_t status = r->backend->slot_copy(r->handle, src, dst, &got);
    int ok = hb_run_judge(r, "slot_copy", "restart", &want, status, &got);
    hb_run_want_unchanged(r);
    if (ok) {
        want_slot(r, dst, src);
        if (r->content[src].known &&
            hb_content_copy(r, &r->content[dst], &r->content[src], INT64_MAX)) {
            r->no_memory = 1;
        }
    }
    after_call(r, ok, "slot.copy", "restart");
}

void hb_run_take(struct hb_run *r, const struct hb_case_step *step) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    int32_t ids[MAX_TAKE];
    int32_t kind = step->slot_kind ? HB_SLOT_TRACK : HB_SLOT_LIVE;
    kind = to_i32(break_value(r, HB_FIELD_SLOT_KIND, -1, kind));
    int32_t n = to_i32(break_value(r, HB_FIELD_SLOT_COUNT, -1, 1));
    hb_expect_take(&r->slots, n, kind, &want);
    if (want.status == HB_OK && n > MAX_TAKE) {
        n = MAX_TAKE;
    }
    int32_t status = r->backend->slot_take(r->handle, n, kind, ids, &got);
    int ok = hb_run_judge(r, "slot_take", "take", &want, status, &got);
    int32_t name = r->n_names < HB_MAX_NAMES ? r->n_names++ : HB_MAX_NAMES - 1;
    r->name[name] = 0;
    r->name_is_track[name] = step->slot_kind != 0;
    hb_run_want_unchanged(r);
    for (int32_t i = 0; ok && i < n; i++) {
        if (ids[i] < 1 || ids[i] > r->slots.n_slots || r->slots.kind[ids[i]] != HB_SLOT_FREE) {
            r->v->at.step = r->step;
            hb_verdict_set(r->v, HB_VERDICT_STATE, "slot.take", "take", 0, 0,
                           "step %d: slot_take returned slot %d, which was not free in 1..%d",
                           r->step, ids[i], r->slots.n_slots);
            return;
        }
        model_take(&r->slots, ids[i], kind);
        want_slot(r, ids[i], -1);
        hb_content_reset(r, &r->content[ids[i]]);
        /* a live slot that no request owns may still be reached through the mapping table */
        if (kind == HB_SLOT_LIVE && (i > 0 || step->slot_kind) &&
            hb_content_zero(r, &r->content[ids[i]], EXTRA_STREAM + ids[i])) {
            return;
        }
    }
    after_call(r, ok, "slot.take", "take");
    if (!ok || n < 1 || hb_run_done(r)) {
        return;
    }
    r->name[name] = ids[0];
    struct hb_content *content = &r->content[ids[0]];
    if (step->slot_kind || kind != HB_SLOT_LIVE) {
        return;
    }
    int32_t request = step->request & (HB_MAX_REQS - 1);
    int32_t stream = request + HB_MAX_REQS * r->request_generation[request]++;
    if (hb_content_zero(r, content, stream)) {
        return;
    }
    r->request_slot[request] = ids[0];
    set_table(r, hb_case_req_index(r->c, request), ids[0]);
    int32_t source = track_slot(r, step->from);
    if (step->from >= 0 && source > 0) {
        hb_run_want_unchanged(r);
        restart(r, source, ids[0]);
    } else if (step->prefix > 0) {
        write_prefix(r, content, ids[0], step->prefix);
    }
}

static int32_t named_slot(const struct hb_run *r, int32_t name) {
    return r->n_names > 0 && name >= 0 ? r->name[name % r->n_names] : 0;
}

void hb_run_free(struct hb_run *r, const struct hb_case_step *step) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    int32_t id = to_i32(break_value(r, HB_FIELD_SLOT_ID, 0, named_slot(r, step->slot)));
    hb_expect_free(&r->slots, 1, &id, &want);
    int32_t status = r->backend->slot_free(r->handle, 1, &id, &got);
    int ok = hb_run_judge(r, "slot_free", "free", &want, status, &got);
    if (ok) {
        r->slots.kind[id] = HB_SLOT_FREE;
        r->slots.free_list[r->slots.n_free++] = id;
    }
    hb_run_want_unchanged(r);
    after_call(r, ok, "slot.free", "free");
}

void hb_run_copy(struct hb_run *r, const struct hb_case_step *step) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    int32_t src = to_i32(break_value(r, HB_FIELD_SLOT_ID, 0, named_slot(r, step->slot)));
    int32_t dst = to_i32(break_value(r, HB_FIELD_SLOT_ID, 1, named_slot(r, step->slot2)));
    hb_expect_copy(&r->slots, src, dst, &want);
    int32_t status = r->backend->slot_copy(r->handle, src, dst, &got);
    int ok = hb_run_judge(r, "slot_copy", "copy", &want, status, &got);
    hb_run_want_unchanged(r);
    if (ok) {
        want_slot(r, dst, src);
        if (r->content[src].known) {
            if (hb_content_copy(r, &r->content[dst], &r->content[src], INT64_MAX)) {
                r->no_memory = 1;
            }
        } else if (hb_content_zero(r, &r->content[dst], r->content[dst].stream)) {
            return;
        }
    }
    after_call(r, ok, "slot.copy", "copy");
}
