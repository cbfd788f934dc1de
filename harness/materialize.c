/* SPDX-License-Identifier: Apache-2.0
 * Derivation of a forward batch (forward-batch.md section 4, tracking.md section 3; drafts:
 * speculative.md sections 1 to 3) and of a commit. */
#include "harness/materialize.h"

#include <stdlib.h>
#include <string.h>

/* What a replay does not read: the requests of padding rows, original_batch_size. */
enum { UNREAD_REQUEST = -77777 };

void hb_kv_alloc_init(struct hb_kv_alloc *a, const struct hb_case *c, int32_t n_kv) {
    static const int32_t strides[] = {7, 5, 11, 13, 3, 1};
    const uint32_t seed = (uint32_t)c->config.seed;
    memset(a, 0, sizeof *a);
    a->n_kv = n_kv;
    a->page = hb_case_kv_page(&c->config);
    a->order = c->config.page_order;
    const int32_t n = n_kv / a->page - 1;
    a->stride = 1;
    if (a->order != HB_PAGES_SHUFFLED || n < 1) {
        return;
    }
    a->offset = (int32_t)(seed % (uint32_t)n);
    for (size_t i = seed % 3; i < sizeof strides / sizeof *strides; i++) {
        if (n % strides[i] != 0) {
            a->stride = strides[i];
            break;
        }
    }
}

/* The next page, or with pages of one token the next slot. */
static int32_t next_page(struct hb_kv_alloc *a) {
    const int64_t n = a->n_kv / a->page - 1;
    const int64_t i = a->next++;
    if (n < 1) {
        return 0;
    }
    return a->order == HB_PAGES_DESCENDING ? (int32_t)(n - i % n)
                                           : (int32_t)(1 + (i * a->stride + a->offset) % n);
}

int32_t hb_kv_alloc_take(struct hb_kv_alloc *a, int64_t position, int32_t previous) {
    const int32_t at = (int32_t)(position % a->page);
    int32_t page = previous / a->page;
    const int goes_on = at > 0 && page > 0 && page < HB_MAX_KV_PAGES && a->filled[page] == at &&
                        previous % a->page == at - 1;
    page = goes_on ? page : next_page(a);
    if (page < HB_MAX_KV_PAGES) {
        a->filled[page] = (uint8_t)(at + 1);
    }
    return page * a->page + at;
}

static int32_t *new_i32(int64_t n) {
    return calloc(n > 0 ? (size_t)n : 1, sizeof(int32_t));
}

/* Row lengths, first tokens and tracking points. */
static void plan_rows(const struct hb_case_step *step, const struct hb_config *config,
                      struct hb_plan *plan) {
    int32_t cc = config->chunk_size > config->page_size ? config->chunk_size : config->page_size;
    int32_t is_decode_mode = plan->mode == HB_MODE_DECODE;
    int32_t n_decode = plan->mode == HB_MODE_MIXED ? step->n_decode : 0;
    if (n_decode > plan->n_rows) {
        n_decode = plan->n_rows;
    }
    int32_t token = 0;
    for (int32_t r = 0; r < plan->n_rows; r++) {
        struct hb_row_plan *row = &plan->row[r];
        row->is_decode = is_decode_mode || r >= plan->n_rows - n_decode;
        row->length = row->is_decode ? 1 : step->row[r].length; /* of a verify: nodes */
        row->first = token;
        token += row->length;
        row->track_after = 0;
        if (row->track_dst == 0) {
            continue;
        }
        int32_t points = row->length / cc;
        int32_t point = step->row[r].track_point;
        if (row->is_decode) {
            row->track_after = 1;
        } else {
            point = point == 0 || point > points ? points : point;
            row->track_after = point * cc;
        }
    }
    plan->n_real = token;
    /* the rows of a decode have a token each, padding too, and so have all of a graph but those of a verify */
    int32_t has_row_tokens = is_decode_mode || (step->replay && plan->mode == HB_MODE_IDLE);
    plan->n_tokens = token + step->pad_tokens + (has_row_tokens ? step->pad_rows : 0);
    if (plan->mode == HB_MODE_TARGET_VERIFY) {
        plan->n_tokens = token;
        for (int32_t i = 0; i < step->pad_rows; i++) {
            plan->n_tokens += hb_case_padding_nodes(step, i);
        }
    }
}

/* The mirror of seq_lens; its padding rows hold 1 as those of seq_lens do. */
static int fill_lens_cpu(struct hb_batch *b) {
    int32_t *cpu = new_i32(b->seq_lens.len);
    b->seq_lens_cpu = (struct hb_i32s){cpu, b->seq_lens.len};
    if (cpu && b->seq_lens.len > 0) {
        memcpy(cpu, b->seq_lens.data, (size_t)b->seq_lens.len * sizeof *cpu);
    }
    return cpu ? 0 : -1;
}

static int fill_rows(const struct hb_case *c, const struct hb_case_step *step,
                     const struct hb_plan *plan, struct hb_owned_batch *out) {
    struct hb_batch *b = &out->b;
    int64_t n_rows = b->batch_size;
    int32_t *reqs = new_i32(n_rows);
    int32_t *seq = new_i32(n_rows);
    b->req_pool_indices = (struct hb_i32s){reqs, n_rows};
    b->seq_lens = (struct hb_i32s){seq, n_rows};
    if (!reqs || !seq) {
        return -1;
    }
    for (int32_t r = 0; r < plan->n_rows; r++) {
        reqs[r] = hb_case_req_index(c, plan->row[r].request);
        /* a verify says the tokens before it */
        const int32_t length = plan->mode == HB_MODE_TARGET_VERIFY ? 0 : plan->row[r].length;
        seq[r] = (int32_t)plan->row[r].prefix + length;
    }
    for (int64_t r = plan->n_rows; r < n_rows; r++) {
        seq[r] = 1; /* fill value of padding rows */
        reqs[r] = step->replay ? UNREAD_REQUEST : 0;
    }
    if (step->pad_rows > 0 || (step->optional & 4)) {
        b->has_original_batch_size = 1;
        b->original_batch_size = step->replay ? UNREAD_REQUEST : plan->n_rows;
    }
    if (step->replay && !(step->optional & 64)) {
        b->has_num_padding = 1;
        b->num_padding = step->pad_rows;
    }
    return step->optional & 32 ? fill_lens_cpu(b) : 0;
}

static int fill_extend(const struct hb_case_step *step, const struct hb_plan *plan,
                       struct hb_owned_batch *out) {
    struct hb_batch *b = &out->b;
    int32_t np = 0;
    while (np < plan->n_rows && !plan->row[np].is_decode) {
        np++;
    }
    int32_t *lens = new_i32(np);
    int32_t *prefix = new_i32(np);
    b->n_extend = np;
    b->extend_seq_lens = (struct hb_i32s){lens, np};
    b->extend_prefix_lens = (struct hb_i32s){prefix, np};
    if (!lens || !prefix) {
        return -1;
    }
    int64_t sum = 0;
    int32_t *start = NULL;
    if (step->optional & 1) {
        start = new_i32(np);
        b->extend_start_loc = (struct hb_i32s){start, np};
        if (!start) {
            return -1;
        }
    }
    for (int32_t r = 0; r < np; r++) {
        lens[r] = plan->row[r].length;
        prefix[r] = (int32_t)plan->row[r].prefix;
        if (start) {
            start[r] = (int32_t)sum;
        }
        sum += lens[r];
    }
    b->has_extend_num_tokens = 1;
    b->extend_num_tokens = sum;
    if (step->optional & 2) {
        int32_t *cpu = new_i32(np);
        b->extend_seq_lens_cpu = (struct hb_i32s){cpu, np};
        if (!cpu) {
            return -1;
        }
        if (np > 0) {
            memcpy(cpu, lens, (size_t)np * sizeof *cpu);
        }
    }
    return 0;
}

static int fill_tracking(const struct hb_case_step *step, const struct hb_plan *plan,
                         struct hb_owned_batch *out) {
    struct hb_batch *b = &out->b;
    int32_t any = 0;
    for (int32_t r = 0; r < plan->n_rows; r++) {
        any |= step->row[r].track;
    }
    if (!any && !(step->optional & 8)) {
        return 0;
    }
    size_t n = b->batch_size > 0 ? (size_t)b->batch_size : 1;
    uint8_t *mask = calloc(n, 1);
    b->mamba_track_mask = (struct hb_u8s){mask, b->batch_size};
    if (!mask) {
        return -1;
    }
    if (!any) {
        return 0;
    }
    int64_t *index = calloc(n, sizeof *index);
    int64_t *len = calloc(n, sizeof *len);
    b->mamba_track_indices = (struct hb_i64s){index, b->batch_size};
    b->mamba_track_seqlens = (struct hb_i64s){len, b->batch_size};
    if (!index || !len) {
        return -1;
    }
    for (int32_t r = 0; r < b->batch_size; r++) {
        index[r] = -1;
        len[r] = -1;
        if (r >= plan->n_rows || !step->row[r].track) {
            continue;
        }
        const struct hb_row_plan *row = &plan->row[r];
        mask[r] = 1;
        index[r] = row->track_dst;
        /* tracking.md section 3: the last aligned point is passed as the end of the row, aligned or
         * not; another point N that is not the end as N + 1 */
        int32_t is_end = step->row[r].track_point == 0 || row->track_after == 0 ||
                         row->track_after == row->length;
        len[r] = row->prefix + (is_end ? row->length : row->track_after + 1);
    }
    return 0;
}

static int fill_cache(const struct hb_case *c, const struct hb_config *config,
                      const struct hb_plan *plan, struct hb_kv_alloc *kv,
                      struct hb_owned_batch *out) {
    struct hb_batch *b = &out->b;
    int64_t cols = config->max_context;
    int64_t rows = config->req_pool_size;
    int32_t *loc = new_i32(plan->n_tokens);
    int32_t *table = new_i32(rows * cols);
    b->out_cache_loc = (struct hb_i32s){loc, plan->n_tokens};
    b->req_to_token = (struct hb_i32s){table, rows * cols};
    b->req_to_token_rows = (int32_t)rows;
    b->req_to_token_cols = (int32_t)cols;
    if (!loc || !table) {
        return -1;
    }
    for (int32_t r = 0; r < plan->n_rows; r++) {
        const struct hb_row_plan *row = &plan->row[r];
        int32_t *line = table + (int64_t)hb_case_req_index(c, row->request) * cols;
        for (int64_t p = 0; p < row->prefix && p < cols; p++) {
            line[p] = row->prefix_loc ? row->prefix_loc[p] : 0;
        }
        int32_t slot = row->prefix > 0 && row->prefix_loc ? row->prefix_loc[row->prefix - 1] : 0;
        for (int32_t j = 0; j < row->length; j++) {
            slot = hb_kv_alloc_take(kv, row->prefix + j, slot);
            loc[row->first + j] = slot;
            if (row->prefix + j < cols) {
                line[row->prefix + j] = slot;
            }
        }
    }
    return 0;
}

/* Children in increasing index order, parent before child (speculative.md section 3). */
static void fill_row_links(const int32_t *parent, int32_t n, int32_t *next, int32_t *sibling) {
    int32_t last_child[HB_MAX_DRAFT];
    for (int32_t t = 0; t < n; t++) {
        last_child[t] = 0;
        if (t == 0) {
            continue;
        }
        const int32_t p = parent[t];
        if (last_child[p] == 0) {
            next[p] = t;
        } else {
            sibling[last_child[p]] = t;
        }
        last_child[p] = t;
    }
}

static int fill_draft(const struct hb_case *c, const struct hb_case_step *step,
                      const struct hb_plan *plan, struct hb_owned_batch *out) {
    struct hb_batch *b = &out->b;
    const int32_t draft = hb_case_draft(step);
    b->draft_token_num = draft;
    if (step->ragged) {
        int32_t *layout = new_i32((int64_t)b->batch_size + 1);
        b->ragged_verify_layout = (struct hb_i32s){layout, (int64_t)b->batch_size + 1};
        if (!layout) {
            return -1;
        }
        for (int32_t r = 0; r < b->batch_size; r++) {
            layout[r + 1] =
                layout[r] + (r < plan->n_rows ? plan->row[r].length
                                              : hb_case_padding_nodes(step, r - plan->n_rows));
        }
    }
    if (step->tree == HB_TREE_CHAIN) {
        return 0;
    }
    const int64_t n = (int64_t)b->batch_size * draft;
    int32_t *next = new_i32(n);
    int32_t *sibling = new_i32(n);
    b->retrieve_next_token = (struct hb_i32s){next, n};
    b->retrieve_next_sibling = (struct hb_i32s){sibling, n};
    if (!next || !sibling) {
        return -1;
    }
    for (int64_t i = 0; i < n; i++) {
        next[i] = sibling[i] = -1;
    }
    for (int32_t r = 0; r < b->batch_size; r++) {
        int32_t parent[HB_MAX_DRAFT];
        const int32_t nodes =
            r < plan->n_rows ? plan->row[r].length : hb_case_padding_nodes(step, r - plan->n_rows);
        hb_case_tree(c, step, r, nodes, parent);
        fill_row_links(parent, nodes, next + (int64_t)r * draft, sibling + (int64_t)r * draft);
    }
    return 0;
}

int hb_materialize_batch(const struct hb_case *c, const struct hb_case_step *step,
                         const struct hb_config *config, struct hb_kv_alloc *kv,
                         struct hb_plan *plan, struct hb_owned_batch *out) {
    memset(out, 0, sizeof *out);
    plan->mode = step->mode;
    plan->n_rows = step->n_rows;
    plan_rows(step, config, plan);
    struct hb_batch *b = &out->b;
    b->struct_size = sizeof *b;
    b->forward_mode = step->mode;
    b->batch_size = plan->n_rows + step->pad_rows;
    b->n_tokens = plan->n_tokens;
    int32_t has_attention = 0;
    for (int32_t l = 0; l < config->n_layers && l < HB_MAX_LAYERS; l++) {
        has_attention |= config->layer_kind[l] == HB_LAYER_ATTENTION;
    }
    int failed = fill_rows(c, step, plan, out);
    if (!failed && step->mode == HB_MODE_TARGET_VERIFY) {
        failed = fill_draft(c, step, plan, out);
    } else if (!failed && step->mode != HB_MODE_DECODE) {
        failed = fill_extend(step, plan, out);
    }
    if (!failed) {
        failed = fill_tracking(step, plan, out);
    }
    if (!failed && has_attention) {
        failed = fill_cache(c, config, plan, kv, out);
    }
    return failed;
}

/* Of the batch only the sizes, and whether there are links, are read: their entries are nonsense. */
int hb_materialize_capture(const struct hb_case *c, const struct hb_case_step *step,
                           const struct hb_config *config, struct hb_owned_batch *out) {
    (void)c;
    (void)config;
    memset(out, 0, sizeof *out);
    struct hb_batch *b = &out->b;
    const int is_verify = step->mode == HB_MODE_TARGET_VERIFY;
    b->struct_size = sizeof *b;
    b->forward_mode = step->mode;
    b->batch_size = step->bs;
    b->n_tokens = step->bs * step->nodes; /* nodes: 1 in other modes */
    b->draft_token_num = is_verify ? step->nodes : 0;
    if (!is_verify || !(step->optional & 128)) {
        return 0;
    }
    const int64_t n = b->n_tokens;
    int32_t *next = new_i32(n);
    int32_t *sibling = new_i32(n);
    b->retrieve_next_token = (struct hb_i32s){next, n};
    b->retrieve_next_sibling = (struct hb_i32s){sibling, n};
    if (!next || !sibling) {
        return -1;
    }
    for (int64_t i = 0; i < n; i++) {
        next[i] = sibling[i] = UNREAD_REQUEST;
    }
    return 0;
}

int hb_materialize_commit(const struct hb_case_step *step, const int32_t *tracks, int32_t n_tracks,
                          const int32_t *row_dst, struct hb_owned_commit *out) {
    memset(out, 0, sizeof *out);
    struct hb_commit *m = &out->c;
    m->struct_size = sizeof *m;
    m->n_rows = step->n_rows;
    int32_t *steps = new_i32(step->n_rows);
    m->step = (struct hb_i32s){steps, step->n_rows};
    if (!steps) {
        return -1;
    }
    int any = 0;
    for (int32_t r = 0; r < step->n_rows; r++) {
        steps[r] = step->row[r].accept;
        any |= step->row[r].track;
    }
    if (!any) {
        return 0;
    }
    int32_t *track_steps = new_i32(step->n_rows);
    int64_t *index = calloc((size_t)step->n_rows, sizeof *index);
    m->track_indices = (struct hb_i64s){index, step->n_rows};
    m->track_steps = (struct hb_i32s){track_steps, step->n_rows};
    if (!track_steps || !index) {
        return -1;
    }
    for (int32_t r = 0; r < step->n_rows; r++) {
        const struct hb_case_row *row = &step->row[r];
        index[r] = !row->track ? -1
                   : row_dst   ? row_dst[r]
                               : (n_tracks > 0 ? tracks[row->track_slot % n_tracks] : 0);
        track_steps[r] = row->track ? row->track_accept : -1;
    }
    return 0;
}
