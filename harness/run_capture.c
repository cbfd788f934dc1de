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

void hb_run_capture_slots(struct hb_run *r) {
    int32_t n_conv = hb_run_dim(&r->config) * (r->config.conv_width - 1);
    int32_t n_ssm = r->config.n_heads * r->config.head_dim * r->config.state_size;
    r->capture->n_conv = n_conv;
    r->capture->n_ssm = n_ssm;
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
        /* records that are not folded: temporal is an earlier state, of which the content says
         * nothing */
        const int is_pending = r->slots.write_pos[slot] > 0;
        r->capture->slot[k].is_track = r->name_is_track[k];
        for (int32_t l = 0; l < r->config.n_layers; l++) {
            int32_t rc = hb_run_region(r, "conv", l);
            int32_t rs = hb_run_region(r, "temporal", l);
            if (rc < 0 || rs < 0 || !content->ref[l]) {
                continue;
            }
            float *conv = malloc((size_t)n_conv * sizeof *conv);
            float *ssm = malloc((size_t)n_ssm * sizeof *ssm);
            double *bound = malloc((size_t)n_ssm * sizeof *bound);
            r->capture->slot[k].conv[l] = conv;
            r->capture->slot[k].ssm[l] = ssm;
            r->capture->slot[k].bound[l] = bound;
            if (!conv || !ssm || !bound) {
                r->no_memory = 1;
                return;
            }
            int32_t cb = hb_dtype_bytes(r->region[rc].dtype);
            int32_t sb = hb_dtype_bytes(r->region[rs].dtype);
            const size_t at = (size_t)slot;
            hb_unpack(r->region[rc].dtype, r->mirror[rc] + at * (size_t)n_conv * (size_t)cb, n_conv,
                      conv);
            hb_unpack(r->region[rs].dtype, r->mirror[rs] + at * (size_t)n_ssm * (size_t)sb, n_ssm,
                      ssm);
            const struct hb_profile *p =
                &r->caps.profile[r->config.kernel_form][HB_PATH_PREFILL][r->config.act_dtype];
            hb_ref_state_bounds(&r->config, p, content->ref[l], 0, bound);
            for (int32_t i = 0; i < n_ssm && is_pending; i++) {
                bound[i] = INFINITY;
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
