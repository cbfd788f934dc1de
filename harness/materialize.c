/* SPDX-License-Identifier: Apache-2.0
 * Derivation of a forward batch (forward-batch.md section 4, tracking.md section 3) and of its deliberate faults. */
#include "harness/materialize.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BREAK_LENGTH = 4096 };

void hb_kv_alloc_init(struct hb_kv_alloc *a, int32_t n_kv, uint32_t seed) {
    static const int32_t strides[] = {7, 5, 11, 13, 3, 1};
    int32_t n = n_kv - 1;
    a->n_kv = n_kv;
    a->next = 0;
    a->offset = n > 0 ? (int32_t)(seed % (uint32_t)n) : 0;
    a->stride = 1;
    for (size_t i = seed % 3; i < sizeof strides / sizeof *strides; i++) {
        if (n > 0 && n % strides[i] != 0) {
            a->stride = strides[i];
            break;
        }
    }
}

int32_t hb_kv_alloc_take(struct hb_kv_alloc *a) {
    int64_t n = a->n_kv - 1;
    int64_t i = a->next++;
    return (int32_t)(1 + (i * a->stride + a->offset) % n);
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
        row->length = row->is_decode ? 1 : step->row[r].length;
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
    plan->n_tokens = token + step->pad_tokens + (is_decode_mode ? step->pad_rows : 0);
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
        seq[r] = (int32_t)(plan->row[r].prefix + plan->row[r].length);
    }
    for (int64_t r = plan->n_rows; r < n_rows; r++) {
        seq[r] = 1; /* fill value of padding rows */
    }
    if (step->pad_rows > 0 || (step->optional & 4)) {
        b->has_original_batch_size = 1;
        b->original_batch_size = plan->n_rows;
    }
    return 0;
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
        /* tracking.md section 3: the last aligned point is passed as the end of the row, aligned or not; another point N
         * that is not the end as N + 1 */
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
        for (int32_t j = 0; j < row->length; j++) {
            int32_t slot = hb_kv_alloc_take(kv);
            loc[row->first + j] = slot;
            if (row->prefix + j < cols) {
                line[row->prefix + j] = slot;
            }
        }
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
    if (!failed && step->mode != HB_MODE_DECODE) {
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

/* --- arrays of a batch as a table ------------------------------------------------------------------------------- */

struct array_field {
    int32_t field;
    size_t offset; /* of {data, len} in struct hb_batch */
    size_t element;
};
#define ARRAY(id, member, type) {HB_FIELD_##id, offsetof(struct hb_batch, member), sizeof(type)}
static const struct array_field arrays[] = {
    ARRAY(REQ_POOL_INDICES, req_pool_indices, int32_t),
    ARRAY(SEQ_LENS, seq_lens, int32_t),
    ARRAY(EXTEND_SEQ_LENS, extend_seq_lens, int32_t),
    ARRAY(EXTEND_SEQ_LENS_CPU, extend_seq_lens_cpu, int32_t),
    ARRAY(EXTEND_PREFIX_LENS, extend_prefix_lens, int32_t),
    ARRAY(EXTEND_START_LOC, extend_start_loc, int32_t),
    ARRAY(TRACK_MASK, mamba_track_mask, uint8_t),
    ARRAY(TRACK_INDICES, mamba_track_indices, int64_t),
    ARRAY(TRACK_SEQLENS, mamba_track_seqlens, int64_t),
    ARRAY(OUT_CACHE_LOC, out_cache_loc, int32_t),
    ARRAY(REQ_TO_TOKEN, req_to_token, int32_t),
};
enum { N_ARRAYS = sizeof arrays / sizeof *arrays };

/* All array structs have the layout {const T *data; int64_t len}. */
struct any_array {
    void *data;
    int64_t len;
};

static struct any_array get_array(const struct hb_batch *b, const struct array_field *f) {
    struct any_array a;
    memcpy(&a, (const char *)b + f->offset, sizeof a);
    return a;
}

static void put_array(struct hb_batch *b, const struct array_field *f, struct any_array a) {
    memcpy((char *)b + f->offset, &a, sizeof a);
}

static int64_t load(const struct any_array *a, size_t element, int64_t i) {
    if (element == 1) {
        return ((const uint8_t *)a->data)[i];
    }
    return element == 4 ? ((const int32_t *)a->data)[i] : ((const int64_t *)a->data)[i];
}

static void store(const struct any_array *a, size_t element, int64_t i, int64_t value) {
    if (element == 1) {
        ((uint8_t *)a->data)[i] = (uint8_t)value;
    } else if (element == 4) {
        ((int32_t *)a->data)[i] = (int32_t)(uint32_t)(uint64_t)value;
    } else {
        ((int64_t *)a->data)[i] = value;
    }
}

static int64_t wrapping_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int break_array(struct hb_batch *b, const struct array_field *f,
                       const struct hb_case_break *brk) {
    struct any_array a = get_array(b, f);
    int64_t row = brk->row;
    if (brk->operation == HB_BREAK_ABSENT) {
        free(a.data);
        a = (struct any_array){NULL, 0};
    } else if (brk->operation == HB_BREAK_LENGTH) {
        int64_t len = brk->value < 0 ? 0 : brk->value;
        len = len > MAX_BREAK_LENGTH ? MAX_BREAK_LENGTH : len;
        void *data = calloc(len > 0 ? (size_t)len : 1, f->element);
        if (!data) {
            return -1;
        }
        if (a.data && a.len > 0 && len > 0) {
            memcpy(data, a.data, (size_t)(len < a.len ? len : a.len) * f->element);
        }
        free(a.data);
        a = (struct any_array){data, len};
    } else if (a.data && a.len > 0) {
        row = row < 0 ? 0 : row % a.len;
        int64_t value = brk->value;
        if (brk->operation == HB_BREAK_ADD) {
            value = wrapping_add(load(&a, f->element, row), value);
        } else if (brk->operation == HB_BREAK_COPY) {
            int64_t from = (value % a.len + a.len) % a.len;
            value = load(&a, f->element, from);
        }
        store(&a, f->element, row, value);
    }
    put_array(b, f, a);
    return 0;
}

static void break_scalar(int32_t *target, const struct hb_case_break *brk) {
    int64_t value =
        brk->operation == HB_BREAK_ADD ? wrapping_add(*target, brk->value) : brk->value;
    *target = (int32_t)(uint32_t)(uint64_t)value;
}

static void break_field(struct hb_owned_batch *batch, const struct hb_case_break *brk) {
    struct hb_batch *b = &batch->b;
    switch (brk->field) {
    case HB_FIELD_FORWARD_MODE:
        break_scalar(&b->forward_mode, brk);
        break;
    case HB_FIELD_BATCH_SIZE:
        break_scalar(&b->batch_size, brk);
        break;
    case HB_FIELD_N_TOKENS:
        break_scalar(&b->n_tokens, brk);
        break;
    case HB_FIELD_N_EXTEND:
        break_scalar(&b->n_extend, brk);
        break;
    case HB_FIELD_IS_DUMMY:
        break_scalar(&b->is_dummy, brk);
        break;
    case HB_FIELD_REQ_TO_TOKEN_ROWS:
        break_scalar(&b->req_to_token_rows, brk);
        break;
    case HB_FIELD_REQ_TO_TOKEN_COLS:
        break_scalar(&b->req_to_token_cols, brk);
        break;
    case HB_FIELD_ORIGINAL_BATCH_SIZE:
        b->has_original_batch_size = brk->operation != HB_BREAK_ABSENT;
        break_scalar(&b->original_batch_size, brk);
        break;
    case HB_FIELD_EXTEND_NUM_TOKENS:
        b->has_extend_num_tokens = brk->operation != HB_BREAK_ABSENT;
        b->extend_num_tokens = brk->operation == HB_BREAK_ADD
                                   ? wrapping_add(b->extend_num_tokens, brk->value)
                                   : brk->value;
        break;
    case HB_FIELD_BATCH_POINTER:
        batch->is_null = brk->operation == HB_BREAK_ABSENT;
        break;
    default:
        break;
    }
}

int hb_materialize_breaks(const struct hb_case *c, int32_t step, struct hb_owned_batch *batch) {
    for (int32_t i = 0; i < c->n_breaks; i++) {
        const struct hb_case_break *brk = &c->brk[i];
        if (brk->step != step) {
            continue;
        }
        int32_t is_array = 0;
        for (int32_t k = 0; k < N_ARRAYS; k++) {
            if (arrays[k].field == brk->field) {
                is_array = 1;
                if (break_array(&batch->b, &arrays[k], brk)) {
                    return -1;
                }
            }
        }
        if (!is_array) {
            break_field(batch, brk);
        }
    }
    return 0;
}

static size_t array_bytes(const struct hb_batch *b, int32_t k) {
    const struct any_array a = get_array(b, &arrays[k]);
    return a.data && a.len > 0 ? (size_t)a.len * arrays[k].element : 0;
}

int hb_batch_remember(struct hb_owned_batch *batch) {
    size_t total = 1;
    memcpy(&batch->before, &batch->b, sizeof batch->b); /* padding bytes too */
    for (int32_t k = 0; k < N_ARRAYS; k++) {
        total += array_bytes(&batch->b, k);
    }
    char *copy = malloc(total);
    batch->copies = copy;
    for (int32_t k = 0; copy && k < N_ARRAYS; k++) {
        const size_t bytes = array_bytes(&batch->b, k);
        if (bytes > 0) {
            memcpy(copy, get_array(&batch->b, &arrays[k]).data, bytes);
        }
        copy += bytes;
    }
    return copy ? 0 : -1;
}

int hb_batch_changed(const struct hb_owned_batch *batch) {
    /* bytes, not members: before is a copy by memcpy, and a write into padding is a write too */
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison,cert-exp42-c,cert-flp37-c)
    if (memcmp(&batch->before, &batch->b, sizeof batch->b) != 0) {
        return 1;
    }
    const char *copy = batch->copies;
    for (int32_t k = 0; k < N_ARRAYS; k++) {
        const size_t bytes = array_bytes(&batch->before, k);
        if (bytes > 0 && memcmp(copy, get_array(&batch->before, &arrays[k]).data, bytes) != 0) {
            return 1;
        }
        copy += bytes;
    }
    return 0;
}

void hb_batch_destroy(struct hb_owned_batch *batch) {
    for (int32_t k = 0; k < N_ARRAYS; k++) {
        free(get_array(&batch->b, &arrays[k]).data);
    }
    free(batch->copies);
    memset(batch, 0, sizeof *batch);
}

void hb_materialize_config_breaks(const struct hb_case *c, struct hb_config *config) {
    for (int32_t i = 0; i < c->n_breaks; i++) {
        const struct hb_case_break *brk = &c->brk[i];
        if (brk->step != -1) {
            continue;
        }
        int32_t *const variants[] = {&config->conv_act, &config->gate_norm,
                                     &config->dt_clamp_prefill, &config->dt_clamp_decode,
                                     &config->kernel_form};
        int32_t row = brk->row < 0 ? 0 : brk->row;
        switch (brk->field) {
        case HB_FIELD_CFG_N_LAYERS:
            break_scalar(&config->n_layers, brk);
            break;
        case HB_FIELD_CFG_HEADS:
            break_scalar(&config->n_heads, brk);
            break;
        case HB_FIELD_CFG_GROUPS:
            break_scalar(&config->n_groups, brk);
            break;
        case HB_FIELD_CFG_CONV_WIDTH:
            break_scalar(&config->conv_width, brk);
            break;
        case HB_FIELD_CFG_CHUNK_SIZE:
            break_scalar(&config->chunk_size, brk);
            break;
        case HB_FIELD_CFG_PAGE_SIZE:
            break_scalar(&config->page_size, brk);
            break;
        case HB_FIELD_CFG_KV_HEADS:
            break_scalar(&config->n_kv_heads, brk);
            break;
        case HB_FIELD_CFG_VARIANT:
            break_scalar(variants[row % 5], brk);
            break;
        case HB_FIELD_CFG_DTYPE:
            break_scalar(row % 2 ? &config->state_dtype : &config->act_dtype, brk);
            break;
        case HB_FIELD_CFG_STATE_SIZE:
            break_scalar(&config->state_size, brk);
            break;
        case HB_FIELD_CFG_DT_LO:
            config->dt_lo = (float)brk->value;
            break;
        default:
            break;
        }
    }
}
