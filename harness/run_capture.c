/* SPDX-License-Identifier: Apache-2.0
 * What a run leaves for relations and for the comparison of two backends: output tokens, and the
 * states at the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run_forward.h"

/* Place of the next item. A later verify of the same nodes takes the place of the earlier one: it
 * is what a commit uses. */
static struct hb_captured *capture_item(struct hb_run *r, const struct hb_captured *key) {
    struct hb_capture *cap = r->capture;
    for (size_t i = 0; i < cap->n && key->is_verify; i++) {
        struct hb_captured *item = &cap->item[i];
        if (item->is_verify == key->is_verify && item->request == key->request &&
            item->stream == key->stream && item->layer == key->layer && item->start == key->start &&
            item->pos == key->pos && item->branch == key->branch) {
            free(item->got);
            free(item->bound);
            item->got = NULL;
            item->bound = NULL;
            return item;
        }
    }
    if (cap->n == cap->cap) {
        size_t next = cap->cap ? 2 * cap->cap : 64;
        struct hb_captured *items = realloc(cap->item, next * sizeof *items);
        if (!items) {
            return NULL;
        }
        cap->item = items;
        cap->cap = next;
    }
    return &cap->item[cap->n++];
}

/* The case's number of the request in a row of the pool: relation 16 gives it another row. */
static int32_t case_request(const struct hb_run *r, int32_t row) {
    for (int32_t q = 0; q < HB_MAX_REQS; q++) {
        if (hb_case_req_index(r->c, q) == row) {
            return q;
        }
    }
    return HB_MAX_REQS + row;
}

void hb_run_capture_output(struct hb_run *r, const struct hb_live_row *row, int32_t layer,
                           int32_t token, int32_t n, const float *got, const double *bound) {
    const struct hb_captured key = {.request = case_request(r, row->request),
                                    .stream = row->stream,
                                    .layer = layer,
                                    .n = n,
                                    .is_verify = row->is_verify,
                                    .start = row->is_verify ? row->pos : 0,
                                    .pos = hb_run_position(row, token),
                                    .branch = hb_run_branch(row, token)};
    struct hb_captured *item = capture_item(r, &key);
    if (!item) {
        r->no_memory = 1;
        return;
    }
    *item = key;
    item->got = malloc((size_t)n * sizeof *item->got);
    item->bound = malloc((size_t)n * sizeof *item->bound);
    if (!item->got || !item->bound) {
        item->n = 0; /* both are freed with the capture */
        r->no_memory = 1;
        return;
    }
    memcpy(item->got, got, (size_t)n * sizeof *got);
    memcpy(item->bound, bound, (size_t)n * sizeof *bound);
}

/* States of a name's slot in one layer; 0 or -1 (no memory). */
static int capture_layer(struct hb_run *r, int32_t name, int32_t slot, int32_t layer) {
    const struct hb_ref_state *ref = r->content[slot].ref[layer];
    const size_t n_conv = (size_t)r->n_conv, n_ssm = (size_t)r->n_ssm;
    float *conv = malloc((n_conv + 1) * sizeof *conv);
    float *ssm = malloc((n_ssm + 1) * sizeof *ssm);
    double *bound = malloc((n_ssm + 1) * sizeof *bound);
    r->capture->slot[name].conv[layer] = conv;
    r->capture->slot[name].ssm[layer] = ssm;
    r->capture->slot[name].bound[layer] = bound;
    if (!conv || !ssm || !bound) {
        return -1;
    }
    hb_run_read_slot(r, layer, slot, conv, ssm);
    const struct hb_profile *p =
        &r->caps.profile[r->config.kernel_form][HB_PATH_PREFILL][r->config.act_dtype];
    hb_ref_state_bounds(&r->config, p, ref, 0, bound);
    /* records that are not folded: temporal is an earlier state, of which the content says nothing
     */
    for (size_t i = 0; i < n_ssm && r->slots.write_pos[slot] > 0; i++) {
        bound[i] = INFINITY;
    }
    return 0;
}

void hb_run_capture_slots(struct hb_run *r) {
    r->capture->n_conv = r->n_conv;
    r->capture->n_ssm = r->n_ssm;
    for (int32_t k = 0; k < r->n_names; k++) {
        const int32_t slot = hb_run_slot(r, r->name[k]);
        const struct hb_content *content = &r->content[slot];
        r->capture->slot[k].stream = -1;
        if (slot <= 0 || !content->known || content->is_spoiled) {
            continue;
        }
        r->capture->slot[k].stream = content->stream;
        r->capture->slot[k].pos = content->pos;
        r->capture->slot[k].branch = content->branch;
        r->capture->slot[k].cursor = r->slots.write_pos[slot];
        r->capture->slot[k].is_track = r->name_is_track[k];
        for (int32_t l = 0; l < r->config.n_layers; l++) {
            if (content->ref[l] && capture_layer(r, k, slot, l)) {
                r->no_memory = 1;
                return;
            }
        }
    }
}

void hb_capture_free(struct hb_capture *capture) {
    for (size_t i = 0; i < capture->n; i++) {
        free(capture->item[i].got);
        free(capture->item[i].bound);
    }
    free(capture->item);
    for (int32_t k = 0; k < HB_MAX_NAMES; k++) {
        for (int32_t l = 0; l < HB_MAX_LAYERS; l++) {
            free(capture->slot[k].conv[l]);
            free(capture->slot[k].ssm[l]);
            free(capture->slot[k].bound[l]);
        }
    }
    memset(capture, 0, sizeof *capture);
}
