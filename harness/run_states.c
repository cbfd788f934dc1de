/* SPDX-License-Identifier: Apache-2.0
 * What the regions must hold after a forward, and what the harness knows of the slots from then on.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run_forward.h"

void hb_run_want_kv(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                    const struct hb_layer_buffers *lb) {
    const char *const names[] = {"kv_k", "kv_v"};
    for (int k = 0; k < 2; k++) {
        int32_t i = hb_run_region(r, names[k], layer);
        if (i < 0 || !f->batch.b.out_cache_loc.data) {
            continue;
        }
        size_t line = (size_t)lb->width[1] * (size_t)hb_dtype_bytes(r->region[i].dtype);
        for (int32_t t = 0; t < f->n_real; t++) {
            hb_pack(r->region[i].dtype, lb->host[1 + k] + (int64_t)t * lb->width[1], lb->width[1],
                    r->want[i] + (size_t)f->batch.b.out_cache_loc.data[t] * line);
        }
    }
}

struct hb_entry hb_run_slot_entry(const struct hb_run *r, int32_t region, int32_t slot) {
    const size_t bytes = (size_t)r->region[region].bytes / (size_t)r->region[region].shape[0];
    return (struct hb_entry){region, (size_t)slot * bytes, bytes};
}

static void allow(struct hb_run *r, struct hb_entry e) {
    hb_run_allow(r, e.region, e.at, e.bytes);
}

void hb_run_want_conv(struct hb_run *r, struct hb_entry e, const struct hb_ref_state *state) {
    int32_t n = hb_run_dim(&r->config) * (r->config.conv_width - 1);
    float *values = hb_run_floats(r, (size_t)n);
    if (!values) {
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        values[i] = (float)state->conv[i];
    }
    uint8_t *at = r->want[e.region] + e.at;
    hb_pack(r->region[e.region].dtype, values, n, at);
    /* control of this check: the comparison is told that one element differs */
    if (r->o->tamper_element >= 0 && r->o->tamper_kind == 1) {
        int64_t k = r->o->tamper_element - r->tampered;
        if (k >= 0 && k < n) {
            values[k] = values[k] * (float)r->o->tamper_factor + 1.0f;
            hb_pack(r->region[e.region].dtype, values, n, at);
        }
        r->tampered += n;
    }
}

void hb_run_check_temporal(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                           const struct hb_live_row *row, int64_t token, struct hb_entry e,
                           const struct hb_ref_state *state, const char *check, const char *what) {
    int32_t n = r->config.n_heads * r->config.head_dim * r->config.state_size;
    float *got = hb_run_floats(r, (size_t)n);
    double *bound = hb_run_doubles(r, 2 * (size_t)n);
    if (!got || !bound) {
        return;
    }
    double *mag = bound + n;
    hb_unpack(r->region[e.region].dtype, r->actual[e.region] + e.at, n, got);
    hb_ref_state_bounds(&r->config, hb_run_profile(r, row), state, 0, bound);
    for (int32_t i = 0; i < n; i++) {
        mag[i] = state->m[i] > fabs(state->h[i]) ? state->m[i] : fabs(state->h[i]);
    }
    int64_t bad = hb_run_compare_bounds(r, HB_OP_MAMBA2_STATE, r->config.state_dtype, n, got,
                                        state->h, bound, mag);
    if (bad >= 0 && !(r->o->check_off & HB_OFF_STATE)) {
        const struct hb_where w = {.layer = layer,
                                   .token = token,
                                   .element = bad,
                                   .per_head = r->config.head_dim * r->config.state_size,
                                   .dtype = r->config.state_dtype,
                                   .got = (double)got[bad],
                                   .want = state->h[bad],
                                   .bound = bound[bad]};
        hb_run_report(r, f, row, &w, what, HB_VERDICT_STATE, check);
        return;
    }
    if (r->o->observer && !row->is_verify) {
        r->o->observer->see(r->o->observer->ctx, 2, row->request, layer, row->pos + row->length, n,
                            got, state->h, bound);
    }
    allow(r, e);
}

/* A tracked copy of a state not yet stored: one more rounding to the state type (tolerance.md 3.7).
 */
static void charge_store(struct hb_run *r, const struct hb_live_row *row,
                         struct hb_ref_state *state) {
    if (r->config.state_dtype == HB_FP32) {
        return;
    }
    const struct hb_profile *p = hb_run_profile(r, row);
    int32_t n = r->config.n_heads * r->config.head_dim * r->config.state_size;
    double *before = hb_run_doubles(r, 2 * (size_t)n);
    if (!before) {
        return;
    }
    double *stored = before + n;
    hb_ref_state_bounds(&r->config, p, state, 0, before);
    hb_ref_state_bounds(&r->config, p, state, 1, stored);
    for (int32_t i = 0; i < n; i++) {
        state->r[i] += stored[i] - before[i];
    }
}

static void observe_conv(struct hb_run *r, int32_t layer, const struct hb_live_row *row,
                         struct hb_entry e, const struct hb_ref_state *state) {
    int32_t n = hb_run_dim(&r->config) * (r->config.conv_width - 1);
    float *got = hb_run_floats(r, (size_t)n);
    if (r->o->observer && got) {
        hb_unpack(r->region[e.region].dtype, r->actual[e.region] + e.at, n, got);
        r->o->observer->see(r->o->observer->ctx, 1, row->request, layer, row->pos + row->length, n,
                            got, state->conv, NULL);
    }
}

/* The checkpoint of a row whose own state is checked already. */
static void check_track(struct hb_run *r, struct hb_forward *f, int32_t i, int32_t layer,
                        struct hb_entry conv, struct hb_entry ssm) {
    const struct hb_live_row *row = &f->live[i];
    const struct hb_entry conv_to = hb_run_slot_entry(r, conv.region, row->dst);
    const struct hb_entry ssm_to = hb_run_slot_entry(r, ssm.region, row->dst);
    if (row->is_decode || row->after == row->length) {
        /* the final state and a decode copy are the row's own bytes (invariant 38) */
        memcpy(r->want[conv.region] + conv_to.at, r->want[conv.region] + conv.at, conv.bytes);
        memcpy(r->want[ssm.region] + ssm_to.at, r->actual[ssm.region] + ssm.at, ssm.bytes);
        (void)hb_run_compare_bytes(r, ssm.region, ssm_to.at, ssm.bytes, "state.track", f->place);
    } else {
        charge_store(r, row, f->at[i][layer]);
        hb_run_want_conv(r, conv_to, f->at[i][layer]);
        hb_run_check_temporal(r, f, layer, row, row->first + row->length - 1, ssm_to,
                              f->at[i][layer], "state.track", "mamba2.track");
    }
    if (!hb_run_done(r)) {
        (void)hb_run_compare_bytes(r, conv.region, conv_to.at, conv.bytes, "state.track", f->place);
    }
}

void hb_run_check_states(struct hb_run *r, struct hb_forward *f, int32_t layer) {
    int32_t rc = hb_run_region(r, "conv", layer);
    int32_t rs = hb_run_region(r, "temporal", layer);
    if (rc < 0 || rs < 0) {
        return;
    }
    for (int32_t i = 0; i < f->n_live && !hb_run_done(r); i++) {
        const struct hb_live_row *row = &f->live[i];
        const struct hb_entry conv = hb_run_slot_entry(r, rc, row->slot);
        const struct hb_entry ssm = hb_run_slot_entry(r, rs, row->slot);
        struct hb_ref_state *state = r->content[row->slot].ref[layer];
        if (row->has_ring) {
            hb_run_check_records(r, f, i, layer);
        }
        const int is_pending = row->has_ring && !row->folds;
        if (!hb_run_is_predicted(r, row) || !hb_run_has_numbers(r)) {
            allow(r, conv);
            if (!is_pending) {
                allow(r, ssm);
            }
            if (row->dst > 0) {
                allow(r, hb_run_slot_entry(r, rc, row->dst));
                allow(r, hb_run_slot_entry(r, rs, row->dst));
            }
            continue;
        }
        hb_run_want_conv(r, conv, state);
        if (hb_run_compare_bytes(r, rc, conv.at, conv.bytes, "state.conv", f->place)) {
            return;
        }
        observe_conv(r, layer, row, conv, state);
        if (is_pending) { /* the records hold the step: temporal stays */
            (void)hb_run_compare_bytes(r, rs, ssm.at, ssm.bytes, "ring.temporal", f->place);
            continue;
        }
        hb_run_check_temporal(r, f, layer, row, row->first + row->length - 1, ssm, state,
                              "state.temporal", "mamba2.state");
        if (row->dst > 0 && !hb_run_done(r)) {
            check_track(r, f, i, layer, conv, ssm);
        }
    }
}

int hb_run_set_loc(struct hb_content *content, const int32_t *slots, int64_t n) {
    if (!slots) {
        content->n_loc = 0;
        return 0;
    }
    int32_t *loc = realloc(content->loc, (n > 0 ? (size_t)n : 1) * sizeof *loc);
    if (!loc) {
        return -1;
    }
    memcpy(loc, slots, (size_t)n * sizeof *loc);
    content->loc = loc;
    content->n_loc = n;
    return 0;
}

void hb_run_anchor(struct hb_run *r, int32_t slot, int32_t stream, int64_t pos,
                   const int32_t *loc) {
    struct hb_content *content = &r->content[slot];
    if (hb_content_zero(r, content, stream)) {
        return;
    }
    content->pos = pos;
    if (hb_run_set_loc(content, loc, pos)) {
        r->no_memory = 1;
        return;
    }
    int32_t n_conv = hb_run_dim(&r->config) * (r->config.conv_width - 1);
    int32_t n_ssm = r->config.n_heads * r->config.head_dim * r->config.state_size;
    float *values = hb_run_floats(r, (size_t)n_conv + (size_t)n_ssm);
    for (int32_t l = 0; l < r->config.n_layers && values; l++) {
        int32_t rc = hb_run_region(r, "conv", l);
        int32_t rs = hb_run_region(r, "temporal", l);
        if (rc < 0 || rs < 0) {
            continue;
        }
        hb_unpack(r->region[rc].dtype, r->mirror[rc] + hb_run_slot_entry(r, rc, slot).at, n_conv,
                  values);
        hb_unpack(r->region[rs].dtype, r->mirror[rs] + hb_run_slot_entry(r, rs, slot).at, n_ssm,
                  values + n_conv);
        hb_ref_state_set(&r->config, content->ref[l], values, values + n_conv);
    }
}

/* 1 if a Mamba2 layer did not run. */
static int leaves_out(const struct hb_run *r, const struct hb_forward *f) {
    for (int32_t l = 0; l < r->config.n_layers; l++) {
        if (r->config.layer_kind[l] == HB_LAYER_MAMBA2 && !(f->layers_run >> l & 1)) {
            return 1;
        }
    }
    return 0;
}

void hb_run_advance(struct hb_run *r, struct hb_forward *f) {
    for (int32_t i = 0; i < f->n_live; i++) {
        const struct hb_live_row *row = &f->live[i];
        struct hb_content *content = &r->content[row->slot];
        if (row->slot == 0) {
            if (row->dst > 0) {
                /* a checkpoint made from the reserved slot */
                hb_run_anchor(r, row->dst, row->stream, row->pos + row->after,
                              hb_run_token_slots(f, row));
            }
            continue;
        }
        content->is_spoiled = content->is_spoiled && (row->has_init || leaves_out(r, f));
        const int32_t *slots = hb_run_token_slots(f, row);
        content->pos = row->seq_len;
        content->branch = row->branch[0];
        if (hb_run_set_loc(content, slots, row->seq_len)) {
            r->no_memory = 1;
            return;
        }
        if (row->dst <= 0) {
            continue;
        }
        struct hb_content *dst = &r->content[row->dst];
        if (!dst->known && hb_content_zero(r, dst, row->stream)) {
            return;
        }
        dst->is_spoiled = content->is_spoiled;
        dst->stream = row->stream;
        dst->pos = row->pos + row->after;
        dst->branch = row->branch[0];
        if (hb_run_set_loc(dst, slots, dst->pos)) {
            r->no_memory = 1;
            return;
        }
        for (int32_t l = 0; l < r->config.n_layers; l++) {
            const struct hb_ref_state *from = content->ref[l];
            if (!row->is_decode && row->after != row->length && f->at[i][l]) {
                from = f->at[i][l];
            }
            if ((f->layers_run >> l & 1) && from && dst->ref[l]) {
                hb_ref_state_copy(&r->config, dst->ref[l], from);
            }
        }
    }
}
