/* SPDX-License-Identifier: Apache-2.0
 * A forward (or an entry call): derive the batch, predict and call begin, run the layers, compare
 * outputs and states. What a forward must do is read off the batch that the backend got, breaks
 * included, never off the case's intention. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run_forward.h"

static void dump_layer(struct hb_run *r, const struct hb_forward *f, int32_t layer,
                       const struct hb_layer_buffers *lb) {
    for (int k = 0; k < 4 && r->o->dump_dir; k++) {
        if (lb->width[k] > 0 && hb_dump_floats(&r->dump, r->step, layer,
                                               hb_run_buffer_name(r, layer, k), f->n_tokens,
                                               lb->width[k], lb->host[k])) {
            r->no_memory = 1;
            return;
        }
    }
}

void hb_run_layer_done(struct hb_run *r, struct hb_forward *f, int32_t layer,
                       struct hb_layer_buffers *lb) {
    int32_t is_attention = r->config.layer_kind[layer] == HB_LAYER_ATTENTION;
    f->layers_run |= 1u << layer;
    if (f->step->kind != HB_STEP_ENTRY || f->mode != HB_MODE_IDLE) {
        r->phase.layers_run |= 1u << layer;
    }
    if (is_attention) {
        hb_run_want_kv(r, f, layer, lb);
    }
    if (hb_run_read_output(r, f, lb)) {
        return;
    }
    dump_layer(r, f, layer, lb);
    hb_run_check_padding(r, f, layer, lb);
    if (!hb_run_has_numbers(r) || hb_run_done(r)) {
        return;
    }
    hb_run_check_outputs(r, f, layer, lb);
}

/* A capture keeps the buffers of the layers that ran in it. */
static struct hb_layer_buffers *kept_buffers(const struct hb_forward *f, int32_t layer) {
    const int is_capture = f->set && !f->is_replay;
    return is_capture && !(f->set->layers_run >> layer & 1) ? &f->set->lb[layer] : NULL;
}

void hb_run_call_layer(struct hb_run *r, struct hb_forward *f, int32_t id) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    struct hb_layer_buffers local = {0};
    const struct hb_case_step *step = f->step;
    int32_t layer = id >= 0 && id < r->config.n_layers ? id : 0;
    struct hb_layer_buffers *kept = kept_buffers(f, layer);
    struct hb_layer_buffers *lb = kept ? kept : &local;
    int is_entry = step->kind == HB_STEP_ENTRY;
    if (hb_run_open_buffers(r, f, layer, lb)) {
        hb_run_close_buffers(r, lb);
        return;
    }
    hb_run_break_io(r, lb);
    int32_t status;
    char place[64];
    uint64_t t0 = hb_run_now(r);
    if (is_entry) {
        int null_args = step->null_args != 0;
        const struct hb_layer_io *io = null_args ? NULL : &lb->io;
        hb_expect_entry(&r->config, &r->phase, !null_args, step->target, step->direction, id, io,
                        &want);
        status = r->backend->entry(null_args ? NULL : r->handle, step->target, step->direction, id,
                                   io, &got);
        (void)snprintf(place, sizeof place, "%s entry",
                       step->target == HB_ENTRY_CHILD ? "child" : "wrapper");
    } else {
        hb_expect_layer(&r->config, &r->phase, id, &lb->io, &want);
        status = r->backend->layer(r->handle, id, &lb->io, &got);
        (void)snprintf(place, sizeof place, "%s", f->place);
    }
    hb_run_phase(r, HB_PHASE_BACKEND, t0);
    const int ok = hb_run_judge(r, is_entry ? "entry" : "layer", place, &want, status, &got);
    if (ok && kept) {
        f->set->layers_run |= 1u << layer;
        f->layers_run |= 1u << layer;
        r->phase.layers_run |= 1u << layer;
        return;
    }
    if (ok) {
        hb_run_layer_done(r, f, layer, lb);
    }
    hb_run_close_buffers(r, lb);
}

static const char *const call_names[] = {"begin", "capture", "replay"};

/* Predicts and makes one of the three calls that open a forward. */
static int32_t open_forward(struct hb_run *r, int32_t call, const struct hb_batch *batch,
                            struct hb_error *want, struct hb_error *got) {
    switch (call) {
    case HB_CALL_CAPTURE:
        hb_expect_capture(&r->config, &r->caps, &r->slots, &r->graphs, batch, want);
        return r->backend->capture(r->handle, batch, got);
    case HB_CALL_REPLAY:
        hb_expect_replay(&r->config, &r->caps, &r->slots, &r->graphs, batch, want);
        return r->backend->replay(r->handle, batch, got);
    default:
        hb_expect_begin(&r->config, &r->caps, &r->slots, batch, want);
        return r->backend->begin(r->handle, batch, got);
    }
}

int32_t hb_run_begin(struct hb_run *r, int32_t call, struct hb_owned_batch *owned,
                     const struct hb_batch *batch, const char *place) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    uint64_t t0 = hb_run_now(r);
    int32_t status = open_forward(r, call, batch, &want, &got);
    hb_run_phase(r, HB_PHASE_BACKEND, t0);
    r->batch_mode = batch ? batch->forward_mode : 0;
    int ok = hb_run_judge(r, call_names[call], place, &want, status, &got);
    if (hb_batch_changed(owned) && !(r->o->check_off & HB_OFF_PURITY)) {
        r->v->at.step = r->step;
        hb_verdict_set(r->v, HB_VERDICT_PURITY, "batch.written", place, want.status, status,
                       "step %d: %s wrote into the batch", r->step, call_names[call]);
    }
    if (ok && batch) { /* a right backend refuses a null batch */
        const int32_t mode = batch->forward_mode;
        const int32_t is_replay = call == HB_CALL_REPLAY;
        r->verified.phase.has_verify = 0;
        r->phase = (struct hb_forward_phase){.has_metadata = mode != HB_MODE_DRAFT_EXTEND_V2,
                                             .mode = mode,
                                             .n_tokens = batch->n_tokens,
                                             .is_replay = is_replay,
                                             .has_ring =
                                                 !is_replay && hb_ring_has_mode(&r->config, mode)};
    }
    return ok;
}

/* Mapping table entries that a break changes for the length of one step. */
static void break_table(struct hb_run *r, int undo, int32_t *saved) {
    for (int32_t k = 0; k < r->c->n_breaks; k++) {
        int32_t i = undo ? r->c->n_breaks - 1 - k : k; /* two breaks may name one row */
        const struct hb_case_break *brk = &r->c->brk[i];
        if (brk->step != r->step || brk->field != HB_FIELD_TABLE) {
            continue;
        }
        struct hb_error got = {.struct_size = sizeof got};
        struct hb_error want = {.struct_size = sizeof want};
        int32_t req = hb_case_req_index(r->c, brk->row & (HB_MAX_REQS - 1));
        int32_t value = undo ? saved[i] : (int32_t)(uint32_t)(uint64_t)brk->value;
        if (!undo && brk->operation == HB_BREAK_ADD) {
            value = (int32_t)((uint32_t)value + (uint32_t)r->slots.table[req]);
        }
        if (!undo) {
            saved[i] = r->slots.table[req];
        }
        hb_expect_table(&r->slots, req, &want);
        int32_t status = r->backend->table_set(r->handle, req, value, &got);
        if (hb_run_judge(r, "table_set", "break", &want, status, &got)) {
            r->slots.table[req] = value;
            int32_t region = hb_run_region(r, "req_to_slot", -1);
            if (region >= 0) {
                memcpy(hb_run_mirror(r, region), r->slots.table, (size_t)r->region[region].bytes);
            }
        }
    }
}

/* Invariant 14: a row without prefix must not see what its slot held. Layers that do not run keep
 * their bytes: nothing overwrites them, and a later forward of the request starts from them. */
static void poison_fresh(struct hb_run *r, const struct hb_forward *f) {
    struct hb_error e = {.struct_size = sizeof e};
    if (f->step->kind != HB_STEP_FORWARD) {
        return; /* an entry may be refused: then nothing overwrites the poison */
    }
    for (int32_t i = 0; i < f->n_live; i++) {
        if (f->live[i].has_init || f->live[i].slot == 0) {
            continue;
        }
        for (int32_t k = 0; k < r->n_regions; k++) {
            const char *name = r->region[k].name;
            if (strcmp(name, "conv") != 0 && strcmp(name, "temporal") != 0) {
                continue;
            }
            if (f->step->layer_mask >> r->region[k].layer & 1) {
                continue;
            }
            const struct hb_entry at = hb_run_slot_entry(r, k, f->live[i].slot);
            memset(hb_run_mirror(r, k) + at.at, 0xff, at.bytes);
            (void)r->backend->region_write(r->handle, k, at.at, r->mirror[k] + at.at, at.bytes, &e);
        }
    }
}

static void run_layers(struct hb_run *r, struct hb_forward *f) {
    const struct hb_case_step *step = f->step;
    if (step->kind == HB_STEP_ENTRY) {
        hb_run_call_layer(r, f, step->layer);
        return;
    }
    for (int32_t i = 0; i < r->c->n_breaks; i++) {
        const struct hb_case_break *brk = &r->c->brk[i];
        int32_t id = (int32_t)(uint32_t)(uint64_t)brk->value;
        if (brk->step == r->step && brk->field == HB_FIELD_LAYER_ID && !hb_run_done(r)) {
            hb_run_call_layer(r, f, id);
        }
    }
    for (int32_t l = 0; l < r->config.n_layers && !hb_run_done(r) && !f->is_replay; l++) {
        if (!(step->layer_mask >> l & 1)) {
            hb_run_call_layer(r, f, l);
        }
    }
}

int hb_run_finish(struct hb_run *r, const struct hb_forward *f) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    hb_expect_finish(&r->config, &r->phase, &want);
    const uint64_t t0 = hb_run_now(r);
    int32_t status = r->backend->finish(r->handle, &got);
    hb_run_phase(r, HB_PHASE_BACKEND, t0);
    return hb_run_judge(r, "finish", f->place, &want, status, &got);
}

/* Ping-pong: checkpoints that are complete now. */
static void note_tracked(struct hb_run *r, const struct hb_forward *f) {
    for (int32_t i = 0; i < f->n_live; i++) {
        const struct hb_live_row *row = &f->live[i];
        if (row->dst_id <= 0 || row->row >= f->step->n_rows) {
            continue;
        }
        struct hb_ping_pong_table *p = &r->ping_pong[f->plan.row[row->row].request];
        if (hb_ping_pong_target(p) == row->dst_id) {
            hb_ping_pong_tracked(p);
        }
    }
}

static void check_after(struct hb_run *r, struct hb_forward *f) {
    if (f->mode == HB_MODE_TARGET_VERIFY) {
        hb_run_verify_states(r, f);
    }
    for (int32_t l = 0; l < r->config.n_layers && f->mode != HB_MODE_TARGET_VERIFY; l++) {
        if ((f->layers_run >> l & 1) && !hb_run_done(r)) {
            hb_run_check_states(r, f, l);
        }
    }
    if (hb_run_done(r)) {
        return;
    }
    hb_run_ring_done(r, f);
    hb_run_want_tables(r);
    hb_run_compare_regions(r, HB_VERDICT_STATE, "state.neighbour", f->place);
    if (hb_run_done(r)) {
        return;
    }
    if (f->mode == HB_MODE_TARGET_VERIFY) {
        hb_run_verify_done(r, f);
    } else {
        hb_run_advance(r, f);
        note_tracked(r, f);
    }
}

/* Some of a ring decode's layers ran, and it cannot be finished: nobody else's bytes may have
 * changed. */
static void refused_finish(struct hb_run *r, struct hb_forward *f) {
    if (hb_run_done(r) || hb_run_read_regions(r)) {
        return;
    }
    hb_run_ring_spoil(r, f);
    if (!hb_run_done(r)) {
        hb_run_compare_regions(r, HB_VERDICT_STATE, "state.neighbour", f->place);
    }
}

static void end_forward(struct hb_run *r, struct hb_forward *f) {
    if (!hb_run_finish(r, f)) {
        refused_finish(r, f);
        return;
    }
    if (f->is_replay) {
        hb_run_graph_outputs(r, f);
    }
    if (hb_run_done(r) || hb_run_read_regions(r)) {
        return;
    }
    memset(&r->phase, 0, sizeof r->phase);
    for (int32_t i = 0; i < r->n_regions && r->o->dump_dir; i++) {
        if (hb_dump_region(&r->dump, r->step, &r->region[i], r->actual[i])) {
            r->no_memory = 1;
            return;
        }
    }
    check_after(r, f);
    if (hb_run_done(r)) {
        return;
    }
    if (r->stats) {
        r->stats->forwards++;
        r->stats->tokens += (uint64_t)f->n_real;
    }
}

/* After a begin that left no metadata (speculative.md section 6): every further call is refused. */
static void run_without_metadata(struct hb_run *r, struct hb_forward *f) {
    run_layers(r, f);
    if (!hb_run_done(r)) {
        (void)hb_run_finish(r, f);
    }
    if (!hb_run_done(r) && !hb_run_read_regions(r)) {
        hb_run_compare_regions(r, HB_VERDICT_PURITY, "error.purity", f->place);
    }
}

static void try_forward(struct hb_run *r, struct hb_forward *f) {
    if (r->twist.insert_fail) {
        int32_t mode = f->batch.b.forward_mode;
        f->batch.b.forward_mode = f->batch.before.forward_mode = HB_MODE_PREBUILT;
        (void)hb_run_begin(r, HB_CALL_BEGIN, &f->batch, &f->batch.b, f->place);
        f->batch.b.forward_mode = f->batch.before.forward_mode = mode;
    }
    const int32_t call = f->is_replay ? HB_CALL_REPLAY : HB_CALL_BEGIN;
    const struct hb_batch *batch = f->batch.is_null ? NULL : &f->batch.b;
    if (r->twist.poison_static && f->is_replay) { /* invariant 47 */
        hb_run_poison_static(r, f->batch.b.batch_size);
    }
    hb_run_want_unchanged(r);
    int ok = hb_run_begin(r, call, &f->batch, batch, f->place);
    if (hb_run_done(r)) {
        return;
    }
    if (!ok) {
        if (!hb_run_read_regions(r)) {
            hb_run_compare_regions(r, HB_VERDICT_PURITY, "error.purity", f->place);
        }
        return;
    }
    if (f->step->optional &
        16) { /* invariant 6: a second begin of the same batch changes nothing */
        (void)hb_run_begin(r, call, &f->batch, batch, f->place);
        if (hb_run_done(r)) {
            return;
        }
    }
    hb_run_plan_batch(r, f);
    if (f->is_replay) {
        hb_run_graph_refreshed(r, f);
        if (hb_run_done(r)) {
            return;
        }
    }
    if (!r->phase.has_metadata) {
        run_without_metadata(r, f);
        return;
    }
    if (r->twist.nan_fresh) {
        poison_fresh(r, f);
        hb_run_want_unchanged(r);
    }
    run_layers(r, f);
    if (!hb_run_done(r)) {
        end_forward(r, f);
    }
}

/* An entry call outside of any forward. */
static void bare_entry(struct hb_run *r, const struct hb_case_step *step) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    int has_handle = !step->null_args;
    hb_expect_entry(&r->config, &r->phase, has_handle, step->target, step->direction, step->layer,
                    NULL, &want);
    int32_t status = r->backend->entry(has_handle ? r->handle : NULL, step->target, step->direction,
                                       step->layer, NULL, &got);
    (void)hb_run_judge(r, "entry", step->target == HB_ENTRY_CHILD ? "child bare" : "wrapper bare",
                       &want, status, &got);
    hb_run_want_unchanged(r);
    if (!hb_run_done(r) && !hb_run_read_regions(r)) {
        hb_run_compare_regions(r, HB_VERDICT_PURITY, "error.purity", "entry");
    }
}

/* Returns 0 or -1 (no memory). */
static int derive_batch(struct hb_run *r, struct hb_forward *f) {
    if (hb_materialize_batch(r->c, f->step, &r->config, &r->kv, &f->plan, &f->batch) ||
        hb_materialize_breaks(r->c, r->step, &f->batch)) {
        return -1;
    }
    hb_run_shift_lens(r, f);
    return hb_batch_remember(&f->batch);
}

void hb_run_forward(struct hb_run *r, const struct hb_case_step *step) {
    if (step->kind == HB_STEP_ENTRY && step->n_rows == 0) {
        bare_entry(r, step);
        return;
    }
    struct hb_forward *f = hb_run_bytes(r, HB_MEMORY_FORWARD, sizeof *f);
    if (!f) {
        return;
    }
    memset(f, 0, sizeof *f);
    f->step = step;
    f->is_replay = step->kind == HB_STEP_FORWARD && step->replay;
    f->place = f->is_replay ? hb_replay_place(step->mode) : hb_mode_place(step->mode);
    if (f->is_replay && !r->backend->replay) {
        return; /* a backend without graphs */
    }
    int32_t saved[HB_MAX_BREAKS] = {0};
    hb_run_plan_case(r, f);
    if (hb_run_done(r)) {
        return;
    }
    if (derive_batch(r, f)) {
        r->no_memory = 1;
    } else {
        break_table(r, 0, saved);
        if (!hb_run_done(r)) {
            try_forward(r, f);
        }
        if (!hb_run_done(r)) {
            break_table(r, 1, saved);
        }
    }
    hb_batch_destroy(&f->batch);
    for (int32_t i = 0; i < HB_MAX_LIVE; i++) {
        for (int32_t l = 0; l < HB_MAX_LAYERS; l++) {
            hb_run_state_free(r, f->at[i][l]);
            if (f->record[i][l]) {
                free(f->record[i][l]);
            }
        }
    }
}
