/* SPDX-License-Identifier: Apache-2.0
 * Deliberate faults of batches, commits and configurations; the bytes of a batch before and after a
 * call. */
#include <stdlib.h>
#include <string.h>

#include "harness/materialize.h"

enum { MAX_BREAK_LENGTH = 4096 };

/* --- arrays of a batch as a table ------------------------------------------------------------- */

struct array_field {
    int32_t field;
    size_t offset; /* of {data, len} in struct hb_batch or hb_commit */
    size_t element;
};
#define ARRAY(id, member, type)                                                                    \
    { HB_FIELD_##id, offsetof(struct hb_batch, member), sizeof(type) }
static const struct array_field arrays[] = {
    ARRAY(REQ_POOL_INDICES, req_pool_indices, int32_t),
    ARRAY(SEQ_LENS, seq_lens, int32_t),
    ARRAY(SEQ_LENS_CPU, seq_lens_cpu, int32_t),
    ARRAY(EXTEND_SEQ_LENS, extend_seq_lens, int32_t),
    ARRAY(EXTEND_SEQ_LENS_CPU, extend_seq_lens_cpu, int32_t),
    ARRAY(EXTEND_PREFIX_LENS, extend_prefix_lens, int32_t),
    ARRAY(EXTEND_START_LOC, extend_start_loc, int32_t),
    ARRAY(TRACK_MASK, mamba_track_mask, uint8_t),
    ARRAY(TRACK_INDICES, mamba_track_indices, int64_t),
    ARRAY(TRACK_SEQLENS, mamba_track_seqlens, int64_t),
    ARRAY(OUT_CACHE_LOC, out_cache_loc, int32_t),
    ARRAY(REQ_TO_TOKEN, req_to_token, int32_t),
    ARRAY(NEXT_TOKEN, retrieve_next_token, int32_t),
    ARRAY(NEXT_SIBLING, retrieve_next_sibling, int32_t),
    ARRAY(RAGGED_LAYOUT, ragged_verify_layout, int32_t),
};
enum { N_ARRAYS = sizeof arrays / sizeof *arrays };

static const struct array_field commit_arrays[] = {
    {HB_FIELD_COMMIT_STEP, offsetof(struct hb_commit, step), sizeof(int32_t)},
    {HB_FIELD_COMMIT_TRACK_INDICES, offsetof(struct hb_commit, track_indices), sizeof(int64_t)},
    {HB_FIELD_COMMIT_TRACK_STEPS, offsetof(struct hb_commit, track_steps), sizeof(int32_t)},
};
enum { N_COMMIT_ARRAYS = sizeof commit_arrays / sizeof *commit_arrays };

/* All array structs have the layout {const T *data; int64_t len}. */
struct any_array {
    void *data;
    int64_t len;
};

/* b: the struct that holds the array. */
static struct any_array get_array(const void *b, const struct array_field *f) {
    struct any_array a;
    memcpy(&a, (const char *)b + f->offset, sizeof a);
    return a;
}

static void put_array(void *b, const struct array_field *f, struct any_array a) {
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

static int break_array(void *b, const struct array_field *f, const struct hb_case_break *brk) {
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
    int64_t value = brk->operation == HB_BREAK_ADD ? wrapping_add(*target, brk->value) : brk->value;
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
    case HB_FIELD_DRAFT_TOKEN_NUM:
        break_scalar(&b->draft_token_num, brk);
        break;
    case HB_FIELD_ORIGINAL_BATCH_SIZE:
        b->has_original_batch_size = brk->operation != HB_BREAK_ABSENT;
        break_scalar(&b->original_batch_size, brk);
        break;
    case HB_FIELD_NUM_PADDING:
        b->has_num_padding = brk->operation != HB_BREAK_ABSENT;
        break_scalar(&b->num_padding, brk);
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

int hb_materialize_commit_breaks(const struct hb_case *c, int32_t step,
                                 struct hb_owned_commit *commit) {
    for (int32_t i = 0; i < c->n_breaks; i++) {
        const struct hb_case_break *brk = &c->brk[i];
        if (brk->step != step) {
            continue;
        }
        for (int32_t k = 0; k < N_COMMIT_ARRAYS; k++) {
            if (commit_arrays[k].field == brk->field &&
                break_array(&commit->c, &commit_arrays[k], brk)) {
                return -1;
            }
        }
        if (brk->field == HB_FIELD_COMMIT_ROWS) {
            break_scalar(&commit->c.n_rows, brk);
        } else if (brk->field == HB_FIELD_COMMIT_POINTER) {
            commit->is_null = brk->operation == HB_BREAK_ABSENT;
        }
    }
    return 0;
}

void hb_commit_destroy(struct hb_owned_commit *commit) {
    for (int32_t k = 0; k < N_COMMIT_ARRAYS; k++) {
        free(get_array(&commit->c, &commit_arrays[k]).data);
    }
    memset(commit, 0, sizeof *commit);
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

void hb_materialize_graph_init(const struct hb_case *c, int32_t step, int32_t *max_bs,
                               int32_t *max_tokens) {
    *max_bs = c->step[step].bs;
    *max_tokens = c->step[step].bs * c->step[step].nodes;
    for (int32_t i = 0; i < c->n_breaks; i++) {
        const struct hb_case_break *brk = &c->brk[i];
        if (brk->step == step && brk->field == HB_FIELD_GRAPH_MAX_BS) {
            break_scalar(max_bs, brk);
        } else if (brk->step == step && brk->field == HB_FIELD_GRAPH_MAX_TOKENS) {
            break_scalar(max_tokens, brk);
        }
    }
}

#define PLACE(id, rows, row, member) {HB_FIELD_CFG_##id, rows, row, offsetof(struct hb_config, member)}
/* Where a break of the configuration goes, by its field and its row modulo `rows`. Those that are no integers come after it. */
static const struct {
    int32_t field, rows, row;
    size_t offset;
} config_places[] = {
    PLACE(N_LAYERS, 1, 0, n_layers),
    PLACE(HEADS, 1, 0, n_heads),
    PLACE(GROUPS, 1, 0, n_groups),
    PLACE(CONV_WIDTH, 1, 0, conv_width),
    PLACE(CHUNK_SIZE, 1, 0, chunk_size),
    PLACE(PAGE_SIZE, 1, 0, page_size),
    PLACE(KV_HEADS, 1, 0, n_kv_heads),
    PLACE(VARIANT, 23, 0, conv_act),
    PLACE(VARIANT, 23, 1, gate_norm),
    PLACE(VARIANT, 23, 2, dt_clamp_prefill),
    PLACE(VARIANT, 23, 3, dt_clamp_decode),
    PLACE(VARIANT, 23, 4, kernel_form),
    PLACE(VARIANT, 23, 5, thread_order),
    PLACE(VARIANT, 23, 6, block_order),
    PLACE(VARIANT, 23, 7, layer_kind),
    PLACE(VARIANT, 23, 8, window_layout),
    PLACE(VARIANT, 23, 9, track_by_layer),
    PLACE(VARIANT, 23, 10, head_map),
    PLACE(VARIANT, 23, 11, state_layout),
    PLACE(VARIANT, 23, 12, l2norm),
    PLACE(VARIANT, 23, 13, beta_form),
    PLACE(VARIANT, 23, 14, gate_form),
    PLACE(VARIANT, 23, 15, out_gate),
    PLACE(VARIANT, 23, 16, slope_kind),
    PLACE(VARIANT, 23, 17, layer_factor),
    PLACE(VARIANT, 23, 18, qkv_act),
    PLACE(VARIANT, 23, 19, conv_state_len),
    PLACE(VARIANT, 23, 20, window_rule),
    PLACE(VARIANT, 23, 21, pad_policy),
    PLACE(VARIANT, 23, 22, ring_owner),
    PLACE(DTYPE, 2, 0, act_dtype),
    PLACE(DTYPE, 2, 1, state_dtype),
    PLACE(STATE_SIZE, 1, 0, state_size),
    PLACE(SPEC_ROWS, 1, 0, spec_rows),
    PLACE(TRACK_INTERVAL, 1, 0, track_interval),
    PLACE(RING, 1, 0, ring_length),
    PLACE(VIRTUAL, 1, 0, n_virtual),
    PLACE(GRAPH, 2, 0, graph_rows),
    PLACE(GRAPH, 2, 1, graph_draft),
    PLACE(POOL_PAD, 1, 0, pool_pad),
    PLACE(SCORING, 1, 0, multi_item_scoring),
    PLACE(ROUNDING, 1, 0, stochastic_rounding),
    PLACE(ATTENTION, 2, 0, attn_window),
};
enum { N_CONFIG_PLACES = sizeof config_places / sizeof config_places[0] };

static void break_config(struct hb_config *config, const struct hb_case_break *brk) {
    const int32_t row = brk->row < 0 ? 0 : brk->row;
    for (int32_t i = 0; i < N_CONFIG_PLACES; i++) {
        if (config_places[i].field == brk->field && row % config_places[i].rows == config_places[i].row) {
            int32_t value = 0;
            char *at = (char *)config + config_places[i].offset;
            memcpy(&value, at, sizeof value);
            break_scalar(&value, brk);
            memcpy(at, &value, sizeof value);
        }
    }
    if (brk->field == HB_FIELD_CFG_DT_LO) {
        config->dt_lo = (float)brk->value;
    } else if (brk->field == HB_FIELD_CFG_GATE_BOUND) {
        config->gate_bound = (float)brk->value;
    } else if (brk->field == HB_FIELD_CFG_ATTENTION && row % 2 == 1) {
        config->attn_softcap = (float)brk->value;
    }
}

void hb_materialize_config_breaks(const struct hb_case *c, struct hb_config *config) {
    for (int32_t i = 0; i < c->n_breaks; i++) {
        if (c->brk[i].step == -1) {
            break_config(config, &c->brk[i]);
        }
    }
}
