/* SPDX-License-Identifier: Apache-2.0
 * Forwards with the replay ring (speculative.md section 7), decodes or verifies: which tokens fold,
 * what each appends, and where the cursors go. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run_forward.h"

enum { PART_X, PART_B, PART_G, N_PARTS };
static const char *const names[N_PARTS] = {"ring_x", "ring_b", "ring_g"};

/* The record of one token, part by part: lines (heads or groups) of `length` elements. */
struct part {
    int32_t lines, length, first; /* first: element of the record */
};

static int32_t list_parts(const struct hb_config *config, struct part part[N_PARTS]) {
    part[PART_X] = (struct part){config->n_heads, config->head_dim, 0};
    part[PART_B] =
        (struct part){config->n_groups, config->state_size, config->n_heads * config->head_dim};
    part[PART_G] = (struct part){config->n_heads, 1, 0};
    part[PART_G].first = part[PART_B].first + part[PART_B].lines * part[PART_B].length;
    return part[PART_G].first + part[PART_G].lines;
}

void hb_run_plan_ring(const struct hb_run *r, const struct hb_forward *f, struct hb_live_row *row) {
    const struct hb_batch *b = &f->batch.b;
    const int32_t length = r->config.ring_length;
    if (!hb_ring_has_mode(&r->config, f->mode)) {
        return;
    }
    const int32_t interval =
        r->config.track_interval > 0 ? r->config.track_interval : r->config.chunk_size;
    row->has_ring = 1;
    row->w = row->slot == 0 ? 0 : r->slots.write_pos[row->slot];
    if (r->slots.commits) {
        row->base = row->slot == 0 ? 0 : r->slots.ring_base[row->slot];
        row->folds = row->slot != 0 && r->slots.ring_flush[row->slot];
        return;
    }
    row->folds = row->w == length - 1 || row->dst_id > 0 ||
                 (b->seq_lens_cpu.data && b->seq_lens_cpu.data[row->row] % interval == 0);
}

/* The records of a row's tokens, `n` values and as many bounds each; null: out of memory. */
static double *make_records(struct hb_run *r, struct hb_forward *f, int32_t live, int32_t layer,
                            int32_t n) {
    double *records = malloc(2 * (size_t)n * (size_t)f->live[live].length * sizeof *records);
    free(f->record[live][layer]);
    f->record[live][layer] = records;
    r->no_memory |= !records;
    return records;
}

int hb_run_ring_token(struct hb_run *r, struct hb_forward *f, int32_t live, int32_t layer,
                      int32_t t, const struct hb_layer_buffers *lb, struct hb_ref_state *state,
                      double *out, size_t stride) {
    const struct hb_live_row *row = &f->live[live];
    struct part part[N_PARTS];
    const int32_t n = list_parts(&r->config, part);
    const int64_t token = (int64_t)row->first + t;
    double *record = t == 0 ? make_records(r, f, live, layer, n) : f->record[live][layer];
    if (!record) {
        return -1;
    }
    record += 2 * (size_t)n * (size_t)t;
    const int32_t w = (row->is_verify && row->folds ? 0 : row->w) + t;
    const struct hb_ref_record parts = {.x = record,
                                        .x_bound = record + n,
                                        .b = record + part[PART_B].first,
                                        .b_bound = record + n + part[PART_B].first,
                                        .g = record + part[PART_G].first,
                                        .g_bound = record + n + part[PART_G].first};
    if (hb_ref_mamba2_ring(&r->config, &r->params[layer], hb_run_profile(r, row), w,
                           row->folds && !row->is_verify, lb->host[0] + token * lb->width[0],
                           lb->host[1] + token * lb->width[1], lb->host[2] + token * lb->width[2],
                           state, out, out + stride, out + 2 * stride, &parts)) {
        r->no_memory = 1;
        return -1;
    }
    return 0;
}

/* Where a line of the slot's record number w stands in its region. */
static struct hb_entry line_entry(const struct hb_run *r, int32_t region, const struct part *part,
                                  int32_t slot, int32_t w, int32_t line) {
    const int64_t first = ((int64_t)slot * part->lines + line) * r->config.ring_length + w;
    const size_t bytes = (size_t)part->length * sizeof(float);
    return (struct hb_entry){region, (size_t)first * bytes, bytes};
}

/* Position of a token's record. */
static int32_t position_of(const struct hb_run *r, const struct hb_live_row *row, int32_t t) {
    return row->is_verify ? (row->base + row->w + t) % r->config.ring_length : row->w;
}

/* Elements of one line against values and bounds (null: nothing is claimed); then its bytes are
 * accepted. */
static void check_line(struct hb_run *r, const struct hb_forward *f, const struct hb_live_row *row,
                       int32_t layer, int32_t t, const struct hb_entry *e, const double *want,
                       const double *bound) {
    const int32_t n = (int32_t)(e->bytes / sizeof(float));
    for (int32_t i = 0; i < n && want && !(r->o->check_off & HB_OFF_STATE); i++) {
        float got;
        memcpy(&got, r->actual[e->region] + e->at + (size_t)i * sizeof got, sizeof got);
        const int is_claimed = isfinite(want[i]) && isfinite(bound[i]);
        if (is_claimed && !(fabs((double)got - want[i]) <= bound[i])) {
            const struct hb_where w = {.layer = layer,
                                       .token = row->first + t,
                                       .element = i,
                                       .dtype = HB_FP32,
                                       .got = (double)got,
                                       .want = want[i],
                                       .bound = bound[i]};
            hb_run_report(r, f, row, &w, r->region[e->region].name, HB_VERDICT_STATE,
                          "ring.record");
            return;
        }
    }
    hb_run_allow(r, e->region, e->at, e->bytes);
}

static void check_record(struct hb_run *r, const struct hb_forward *f, int32_t live, int32_t layer,
                         int32_t t) {
    const struct hb_live_row *row = &f->live[live];
    struct part part[N_PARTS];
    const int32_t n = list_parts(&r->config, part);
    const int32_t at = position_of(r, row, t);
    const double *record = f->record[live][layer];
    record = record ? record + 2 * (int64_t)n * t : NULL;
    for (int k = 0; k < N_PARTS; k++) {
        const int32_t region = hb_run_region(r, names[k], layer);
        for (int32_t line = 0; line < part[k].lines && region >= 0 && !hb_run_done(r); line++) {
            const struct hb_entry e = line_entry(r, region, &part[k], row->slot, at, line);
            const double *want =
                record ? record + part[k].first + (int64_t)line * part[k].length : NULL;
            check_line(r, f, row, layer, t, &e, want, want ? want + n : NULL);
        }
    }
}

void hb_run_check_records(struct hb_run *r, const struct hb_forward *f, int32_t live,
                          int32_t layer) {
    for (int32_t t = 0; t < f->live[live].length && !hb_run_done(r); t++) {
        check_record(r, f, live, layer, t);
    }
}

/* The state before the nodes, which is then what the slot holds: nothing is accepted yet. */
static void check_fold(struct hb_run *r, struct hb_forward *f, const struct hb_live_row *row,
                       int32_t layer) {
    const int32_t region = hb_run_region(r, "temporal", layer);
    if (region < 0) {
        return;
    }
    const struct hb_entry e = hb_run_slot_entry(r, region, row->slot);
    struct hb_ref_state *state = r->content[row->slot].ref[layer];
    if (!hb_run_is_predicted(r, row) || !hb_run_has_numbers(r) || !state) {
        hb_run_allow(r, region, e.at, e.bytes);
        return;
    }
    hb_ref_mamba2_fold(&r->config, hb_run_profile(r, row), row->w, state);
    hb_run_check_temporal(r, f, layer, row, row->first, e, state, "ring.fold", "fold");
}

void hb_run_ring_verified(struct hb_run *r, struct hb_forward *f, int32_t layer) {
    for (int32_t i = 0; i < f->n_live && !hb_run_done(r); i++) {
        if (f->live[i].has_ring) {
            hb_run_check_records(r, f, i, layer);
        }
        if (f->live[i].has_ring && f->live[i].folds && !hb_run_done(r)) {
            check_fold(r, f, &f->live[i], layer);
        }
    }
}

void hb_run_ring_done(struct hb_run *r, const struct hb_forward *f) {
    for (int32_t i = 0; i < f->n_live; i++) {
        const struct hb_live_row *row = &f->live[i];
        if (row->has_ring && row->is_verify) {
            hb_slot_model_ring_verified(&r->slots, row->slot);
        } else if (row->has_ring && row->slot > 0) {
            r->slots.write_pos[row->slot] = row->folds ? 0 : row->w + 1;
        }
    }
}

/* Whatever a region holds of a slot, or of a row. */
static void allow_entry(struct hb_run *r, const char *name, int32_t layer, int32_t entry) {
    const int32_t region = hb_run_region(r, name, layer);
    if (region >= 0) {
        const struct hb_entry e = hb_run_slot_entry(r, region, entry);
        hb_run_allow(r, region, e.at, e.bytes);
    }
}

static void allow_slot(struct hb_run *r, int32_t layer, int32_t slot) {
    allow_entry(r, "conv", layer, slot);
    allow_entry(r, "temporal", layer, slot);
}

/* What a row has written in a layer: a verify its windows, and temporal where it folds. */
static void allow_written(struct hb_run *r, const struct hb_live_row *row, int32_t layer) {
    if (!row->is_verify) {
        allow_slot(r, layer, row->slot);
    } else {
        allow_entry(r, "intermediate_conv", layer, row->row);
    }
    if (row->is_verify && row->folds) {
        allow_entry(r, "temporal", layer, row->slot);
    }
    if (row->dst > 0) { /* tracked layer by layer */
        allow_slot(r, layer, row->dst);
    }
}

void hb_run_ring_spoil(struct hb_run *r, struct hb_forward *f) {
    for (int32_t i = 0; i < f->n_live && !hb_run_done(r); i++) {
        const struct hb_live_row *row = &f->live[i];
        for (int32_t l = 0; l < r->config.n_layers; l++) {
            if (!(f->layers_run >> l & 1)) {
                continue;
            }
            free(f->record[i][l]); /* nothing is claimed of the entry */
            f->record[i][l] = NULL;
            hb_run_check_records(r, f, i, l);
            allow_written(r, row, l);
        }
        /* a verify that folds nothing has left the state as it was */
        r->content[row->slot].is_spoiled |= row->slot > 0 && (!row->is_verify || row->folds);
        if (row->dst > 0) {
            r->content[row->dst].is_spoiled = 1;
        }
    }
}
