/* SPDX-License-Identifier: Apache-2.0
 * Steps of graphs: graph_init, capture; and what a replay has beyond an eager forward (graph.md;
 * invariants 45 to 49). Rows, outputs and states of a replay are judged by the same rooms as those
 * of any forward. */
#include <stdlib.h>
#include <string.h>

#include "harness/run_forward.h"

const char *hb_replay_place(int32_t mode) {
    switch (mode) {
    case HB_MODE_DECODE:
        return "DECODE replay";
    case HB_MODE_IDLE:
        return "IDLE replay";
    case HB_MODE_TARGET_VERIFY:
        return "TARGET_VERIFY replay";
    default:
        return "other replay";
    }
}

static const char *capture_place(int32_t mode) {
    switch (mode) {
    case HB_MODE_DECODE:
        return "DECODE capture";
    case HB_MODE_IDLE:
        return "IDLE capture";
    case HB_MODE_TARGET_VERIFY:
        return "TARGET_VERIFY capture";
    default:
        return "other capture";
    }
}

static void close_set(struct hb_run *r, struct hb_graph_set *set) {
    for (int32_t l = 0; l < HB_MAX_LAYERS; l++) {
        hb_run_close_buffers(r, &set->lb[l]);
    }
    memset(set, 0, sizeof *set);
}

void hb_run_graph_free(struct hb_run *r) {
    for (int32_t bs = 0; bs <= HB_MAX_GRAPH_ROWS; bs++) {
        if (r->graph_set[bs]) {
            close_set(r, r->graph_set[bs]);
            free(r->graph_set[bs]);
            r->graph_set[bs] = NULL;
        }
    }
}

static void expect_nothing(struct hb_run *r, const char *place) {
    if (!hb_run_done(r) && !hb_run_read_regions(r)) {
        hb_run_compare_regions(r, HB_VERDICT_PURITY, "error.purity", place);
    }
}

void hb_run_graph_init(struct hb_run *r, const struct hb_case_step *step) {
    struct hb_error got = {.struct_size = sizeof got};
    struct hb_error want = {.struct_size = sizeof want};
    int32_t max_bs = 0, max_tokens = 0;
    (void)step;
    if (!r->backend->graph_init) {
        return; /* a backend without graphs */
    }
    hb_materialize_graph_init(r->c, r->step, &max_bs, &max_tokens);
    hb_expect_graph_init(&r->config, &r->graphs, max_bs, max_tokens, &want);
    hb_run_want_unchanged(r);
    const int32_t status = r->backend->graph_init(r->handle, max_bs, max_tokens, &got);
    if (!hb_run_judge(r, "graph_init", "graph", &want, status, &got)) {
        expect_nothing(r, "graph_init");
        return;
    }
    r->graphs.max_bs = max_bs;
    r->graphs.draft = max_tokens / max_bs;
    if (!hb_run_read_regions(r)) {
        hb_run_want_static_initial(r);
        hb_run_compare_regions(r, HB_VERDICT_STATE, "graph.init", "graph_init");
    }
}

/* --- capture ----------------------------------------------------------------------------------- */

/* The set of a batch size, empty. A capture that was not finished has left its buffers: it is no
 * graph. */
static struct hb_graph_set *empty_set(struct hb_run *r, int32_t bs) {
    struct hb_graph_set **set = &r->graph_set[bs];
    if (*set) {
        close_set(r, *set);
    } else {
        *set = calloc(1, sizeof **set);
    }
    r->no_memory |= !*set;
    return *set;
}

/* Entries that dummy rows may leave behind: the reserved slot, and the first rows of the
 * intermediate caches. */
static void allow_dummy_rows(struct hb_run *r, int32_t bs) {
    static const struct {
        const char *name;
        int32_t by_row;
    } parts[] = {{"conv", 0},   {"temporal", 0},          {"ring_x", 0},          {"ring_b", 0},
                 {"ring_g", 0}, {"intermediate_conv", 1}, {"intermediate_ssm", 1}};
    for (int32_t i = 0; i < r->n_regions; i++) {
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            const struct hb_region *g = &r->region[i];
            if (g->layer < 0 || strcmp(g->name, parts[k].name) != 0) {
                continue;
            }
            const int64_t n = !parts[k].by_row ? 1 : bs < g->shape[0] ? bs : g->shape[0];
            hb_run_allow(r, i, 0, g->bytes / (uint64_t)g->shape[0] * (uint64_t)n);
        }
    }
}

/* After the layers: finish makes the graph. */
static void end_capture(struct hb_run *r, struct hb_forward *f, int32_t bs) {
    const struct hb_batch *b = &f->batch.b;
    const int ok = hb_run_finish(r, f);
    if (hb_run_done(r) || hb_run_read_regions(r)) {
        return;
    }
    allow_dummy_rows(r, bs);
    hb_run_want_static_capture(r, bs);
    hb_run_compare_regions(r, HB_VERDICT_STATE, "graph.capture", f->place);
    if (!ok) {
        return;
    }
    memset(&r->phase, 0, sizeof r->phase);
    r->graphs.set[bs].is_captured = 1;
    r->graphs.set[bs].mode = b->forward_mode;
    r->graphs.set[bs].has_links = b->forward_mode == HB_MODE_TARGET_VERIFY &&
                                  b->retrieve_next_token.data && b->retrieve_next_sibling.data;
    f->set->mode = b->forward_mode;
    f->set->has_links = r->graphs.set[bs].has_links;
}

static void try_capture(struct hb_run *r, struct hb_forward *f) {
    const struct hb_batch *batch = f->batch.is_null ? NULL : &f->batch.b;
    hb_run_want_unchanged(r);
    if (!hb_run_begin(r, HB_CALL_CAPTURE, &f->batch, batch, f->place)) {
        expect_nothing(r, f->place);
        return;
    }
    if (hb_run_done(r) || !batch) {
        return;
    }
    const int32_t bs = batch->batch_size;
    f->mode = batch->forward_mode;
    f->n_tokens = batch->n_tokens;
    f->set = empty_set(r, bs);
    for (int32_t i = 0; i < r->c->n_breaks && !hb_run_done(r); i++) {
        const struct hb_case_break *brk = &r->c->brk[i];
        if (brk->step == r->step && brk->field == HB_FIELD_LAYER_ID) {
            hb_run_call_layer(r, f, (int32_t)(uint32_t)(uint64_t)brk->value);
        }
    }
    for (int32_t l = 0; l < r->config.n_layers && !hb_run_done(r); l++) {
        if (!(f->step->layer_mask >> l & 1)) {
            hb_run_call_layer(r, f, l);
        }
    }
    if (!hb_run_done(r)) {
        end_capture(r, f, bs);
    }
}

void hb_run_graph_capture(struct hb_run *r, const struct hb_case_step *step) {
    struct hb_forward *f = hb_run_bytes(r, HB_MEMORY_FORWARD, sizeof *f);
    if (!f || !r->backend->capture) {
        return;
    }
    memset(f, 0, sizeof *f);
    f->step = step;
    f->place = capture_place(step->mode);
    if (hb_materialize_capture(r->c, step, &r->config, &f->batch) ||
        hb_materialize_breaks(r->c, r->step, &f->batch) || hb_batch_remember(&f->batch)) {
        r->no_memory = 1;
    } else {
        try_capture(r, f);
    }
    hb_batch_destroy(&f->batch);
}

/* --- replay ------------------------------------------------------------------------------------ */

void hb_run_graph_refreshed(struct hb_run *r, struct hb_forward *f) {
    f->set = r->graph_set[f->batch.b.batch_size];
    if (hb_run_read_regions(r)) {
        return;
    }
    hb_run_want_static_refresh(r, f);
    hb_run_compare_regions(r, HB_VERDICT_STATE, "graph.refresh", f->place);
    if (hb_run_done(r)) {
        return;
    }
    hb_run_want_unchanged(r);
    for (int32_t l = 0; l < r->config.n_layers; l++) {
        if ((f->set->layers_run >> l & 1) && hb_run_refill_buffers(r, f, l, &f->set->lb[l], 1)) {
            return;
        }
    }
}

void hb_run_graph_outputs(struct hb_run *r, struct hb_forward *f) {
    for (int32_t l = 0; l < r->config.n_layers && !hb_run_done(r); l++) {
        if (!(f->set->layers_run >> l & 1)) {
            continue;
        }
        if (!hb_run_refill_buffers(r, f, l, &f->set->lb[l], 0)) {
            hb_run_layer_done(r, f, l, &f->set->lb[l]);
        }
    }
}
