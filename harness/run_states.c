/* SPDX-License-Identifier: Apache-2.0
 * What the regions must hold after a forward, and what the harness knows of the slots from then on.
 */
#include <math.h>
#include <stdio.h>
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
    const int32_t n = r->n_conv;
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
    const int32_t n = r->n_ssm;
    float *got = hb_run_floats(r, (size_t)n);
    double *bound = hb_run_doubles(r, 2 * (size_t)n);
    if (!got || !bound) {
        return;
    }
    double *mag = bound + n;
    hb_run_unpack_ssm(r, e.region, r->actual[e.region] + e.at, got);
    hb_ref_state_bounds(&r->config, hb_run_profile(r, row), state, 0, bound);
    for (int32_t i = 0; i < n; i++) {
        mag[i] = state->m[i] > fabs(state->h[i]) ? state->m[i] : fabs(state->h[i]);
    }
    int64_t bad = hb_run_compare_bounds(r, layer, 1, n, got, state->h, bound, mag);
    if (bad >= 0 && !(r->o->check_off & HB_OFF_STATE)) {
        const struct hb_where w = {.layer = layer,
                                   .token = token,
                                   .element = bad,
                                   .per_head = r->config.head_dim * r->config.state_size,
                                   .dtype = r->config.state_dtype,
                                   .got = (double)got[bad],
                                   .want = state->h[bad],
                                   .bound = bound[bad]};
        char where[32];
        (void)snprintf(where, sizeof where, "%s.%s", hb_run_kind_name(r->kind), what);
        hb_run_report(r, f, row, &w, where, HB_VERDICT_STATE, check);
        return;
    }
    if (r->o->observer && !row->is_verify) {
        r->o->observer->see(r->o->observer->ctx, 2, row->request, layer, row->pos + row->length, n,
                            got, state->h, bound);
    }
    allow(r, e);
}

static void observe_conv(struct hb_run *r, int32_t layer, const struct hb_live_row *row,
                         struct hb_entry e, const struct hb_ref_state *state) {
    const int32_t n = r->n_conv;
    float *got = hb_run_floats(r, (size_t)n);
    if (r->o->observer && got) {
        hb_unpack(r->region[e.region].dtype, r->actual[e.region] + e.at, n, got);
        r->o->observer->see(r->o->observer->ctx, 1, row->request, layer, row->pos + row->length, n,
                            got, state->conv, NULL);
    }
}

/* The parts of a slot's state in one layer; region -1: the kind has none. */
enum { CONV, TEMPORAL, N_STATES };
static const char *const state_names[N_STATES] = {"conv", "temporal"};

static void find_entries(const struct hb_run *r, int32_t layer, int32_t slot,
                         struct hb_entry e[N_STATES]) {
    for (int k = 0; k < N_STATES; k++) {
        const int32_t region = hb_run_region(r, state_names[k], layer);
        e[k].region = -1;
        if (region >= 0) {
            e[k] = hb_run_slot_entry(r, region, slot);
        }
    }
}

static void allow_entries(struct hb_run *r, const struct hb_entry e[N_STATES]) {
    for (int k = 0; k < N_STATES; k++) {
        if (e[k].region >= 0) {
            allow(r, e[k]);
        }
    }
}

/* The final state and a decode copy are the row's own bytes (invariant 38). */
static void check_copy(struct hb_run *r, const struct hb_forward *f,
                       const struct hb_entry own[N_STATES], const struct hb_entry to[N_STATES]) {
    for (int k = N_STATES - 1; k >= 0 && !hb_run_done(r); k--) {
        if (own[k].region < 0) {
            continue;
        }
        const uint8_t *from = k == CONV ? r->want[own[k].region] : r->actual[own[k].region];
        memcpy(r->want[to[k].region] + to[k].at, from + own[k].at, own[k].bytes);
        (void)hb_run_compare_bytes(r, to[k].region, to[k].at, to[k].bytes, "state.track", f->place);
    }
}

/* state := what the entries, which are checked, hold in the backend (tolerance.md 3.4). */
static void anchor(struct hb_run *r, const struct hb_entry e[N_STATES],
                   struct hb_ref_state *state) {
    const int32_t n = r->n_conv;
    float *values = hb_run_floats(r, (size_t)n + (size_t)r->n_ssm);
    if (!r->is_anchored || hb_run_done(r) || !values) {
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        values[i] = (float)state->conv[i];
    }
    hb_run_unpack_ssm(r, e[TEMPORAL].region, r->actual[e[TEMPORAL].region] + e[TEMPORAL].at,
                      values + n);
    hb_ref_state_set(&r->config, state, values, values + n);
}

/* The checkpoint of a row whose own state is checked already. */
static void check_track(struct hb_run *r, struct hb_forward *f, int32_t i, int32_t layer,
                        const struct hb_entry own[N_STATES]) {
    const struct hb_live_row *row = &f->live[i];
    struct hb_ref_state *state = f->at[i][layer];
    struct hb_entry to[N_STATES];
    find_entries(r, layer, row->dst, to);
    if (row->is_decode || row->after == row->length) {
        check_copy(r, f, own, to);
        return;
    }
    if (to[TEMPORAL].region >= 0) {
        /* a copy of a state not yet stored: one more rounding to the state type (tolerance.md 3.7)
         */
        hb_ref_state_store(&r->config, hb_run_profile(r, row), state);
        hb_run_check_temporal(r, f, layer, row, row->first + row->length - 1, to[TEMPORAL], state,
                              "state.track", "track");
    }
    if (to[CONV].region >= 0 && !hb_run_done(r)) {
        hb_run_want_conv(r, to[CONV], state);
        (void)hb_run_compare_bytes(r, to[CONV].region, to[CONV].at, to[CONV].bytes, "state.track",
                                   f->place);
    }
    anchor(r, to, state);
}

/* One row's states in one layer. */
static void check_row_states(struct hb_run *r, struct hb_forward *f, int32_t i, int32_t layer) {
    const struct hb_live_row *row = &f->live[i];
    struct hb_ref_state *state = r->content[row->slot].ref[layer];
    struct hb_entry own[N_STATES];
    find_entries(r, layer, row->slot, own);
    if (own[CONV].region >= 0) {
        hb_run_want_conv(r, own[CONV], state);
        if (hb_run_compare_bytes(r, own[CONV].region, own[CONV].at, own[CONV].bytes, "state.conv",
                                 f->place)) {
            return;
        }
        observe_conv(r, layer, row, own[CONV], state);
    }
    if (row->has_ring && !row->folds) { /* the records hold the step: temporal stays */
        (void)hb_run_compare_bytes(r, own[TEMPORAL].region, own[TEMPORAL].at, own[TEMPORAL].bytes,
                                   "ring.temporal", f->place);
        return;
    }
    if (own[TEMPORAL].region >= 0) {
        hb_run_check_temporal(r, f, layer, row, row->first + row->length - 1, own[TEMPORAL], state,
                              "state.temporal", "state");
    }
    if (row->dst > 0 && !hb_run_done(r)) {
        check_track(r, f, i, layer, own);
    }
    anchor(r, own, state);
}

/* A row of which nothing is predicted. */
static void allow_row(struct hb_run *r, const struct hb_live_row *row, int32_t layer) {
    struct hb_entry e[N_STATES];
    find_entries(r, layer, row->slot, e);
    if (row->has_ring && !row->folds) {
        e[TEMPORAL].region = -1;
    }
    allow_entries(r, e);
    if (row->dst > 0) {
        find_entries(r, layer, row->dst, e);
        allow_entries(r, e);
    }
}

void hb_run_check_states(struct hb_run *r, struct hb_forward *f, int32_t layer) {
    for (int32_t i = 0; i < f->n_live && hb_run_is_linear(r, layer) && !hb_run_done(r); i++) {
        const struct hb_live_row *row = &f->live[i];
        if (row->has_ring) {
            hb_run_check_records(r, f, i, layer);
        }
        if (!hb_run_is_predicted(r, row) || !hb_run_has_numbers(r)) {
            allow_row(r, row, layer);
        } else {
            check_row_states(r, f, i, layer);
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
    for (int32_t l = 0; l < r->config.n_layers; l++) {
        if (hb_run_is_linear(r, l)) {
            hb_run_set_state(r, l, slot, content->ref[l]);
        }
    }
}

/* 1 if a linear layer did not run. */
static int leaves_out(const struct hb_run *r, const struct hb_forward *f) {
    for (int32_t l = 0; l < r->config.n_layers; l++) {
        if (hb_run_is_linear(r, l) && !(f->layers_run >> l & 1)) {
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
