/* SPDX-License-Identifier: Apache-2.0
 * The float64 oracle behind the adapter table (contracts.md section 2): a backend whose numbers are
 * the reference and whose statuses are the prediction. It must pass every check, which tests the
 * harness itself. Construction and buffers; what else there is stands in the other oracle_*.c. */
#include "harness/oracle_adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/run.h"
#include "harness/values.h"

enum { POISON = 0xff }; /* NaN in every activation type */

int32_t hb_oracle_pass(struct hb_error *dst, const struct hb_error *src) {
    if (dst != NULL && dst->status == HB_OK) {
        *dst = *src;
    }
    return src->status;
}

void hb_oracle_sizes(const struct hb_config *config, int32_t kind, struct hb_ref_sizes *out) {
    const int64_t query = (int64_t)config->n_q_heads * config->attn_dim;
    const int64_t key = (int64_t)config->n_kv_heads * config->attn_dim;
    if (kind == HB_LAYER_ATTENTION) {
        *out = (struct hb_ref_sizes){.width = {query, key, key, query}};
    } else {
        hb_ref_linear_sizes(config, kind, out);
    }
}

/* Upper bounds that float64 arithmetic with one rounding per output keeps: those of a token
 * recurrence in fp32. */
static void fill_profile(struct hb_profile *p, int32_t act_dtype) {
    static const int u_io[HB_N_FLOAT_DTYPES] = {[HB_BF16] = -8, [HB_FP16] = -11};
    *p = (struct hb_profile){.u_io = act_dtype != HB_FP32 ? ldexp(1.0, u_io[act_dtype]) : 0.0,
                             .io_floor = ldexp(1.0, act_dtype == HB_FP16 ? -25 : -126),
                             .u_acc = ldexp(1.0, -24),
                             .e_exp = ldexp(1.0, -23),
                             .sp_rel = ldexp(1.0, -22),
                             .restart = 1,
                             .norm_roundings = 1};
}

static void fill_caps(struct hb_caps *caps) {
    *caps = (struct hb_caps){.struct_size = sizeof *caps,
                             .name = "oracle",
                             .modes = 1U << HB_MODE_EXTEND | 1U << HB_MODE_DECODE |
                                      1U << HB_MODE_MIXED | 1U << HB_MODE_IDLE |
                                      1U << HB_MODE_SPLIT_PREFILL | 1U << HB_MODE_DLLM_EXTEND |
                                      1U << HB_MODE_TARGET_VERIFY | 1U << HB_MODE_DRAFT_EXTEND_V2,
                             .layer_kinds = (1U << HB_N_LAYER_KINDS) - 1,
                             .act_dtypes = (1U << HB_N_FLOAT_DTYPES) - 1,
                             .state_dtypes = 1U << HB_FP32 | 1U << HB_BF16,
                             .error_level = 2,
                             .has_regions = 1,
                             .deterministic = 1,
                             .batch_invariant = 1,
                             .exact_guards = 1,
                             .tree_verify = 1,
                             .ragged_verify = 1,
                             .graphs = 1,
                             .ring = 1,
                             .ring_commit = 1,
                             .virtual_slots = 1,
                             .pool_pad = 1,
                             .track_by_layer = 1,
                             .window_layouts = (1U << HB_N_WINDOW_LAYOUTS) - 1,
                             .replay_exact = (1U << HB_N_FORMS) - 1,
                             .verify_exact = (1U << HB_N_FORMS) - 1};
    for (int form = 0; form < HB_N_FORMS; form++) {
        for (int path = 0; path < HB_N_PATHS; path++) {
            for (int32_t dtype = 0; dtype < HB_N_FLOAT_DTYPES; dtype++) {
                fill_profile(&caps->profile[form][path][dtype], dtype);
            }
        }
    }
}

static int32_t oracle_describe(void *ctx, struct hb_caps *caps, struct hb_error *err) {
    (void)ctx;
    if (caps == NULL) {
        return hb_fail_text(err, HB_ERR_NULL, "caps is null");
    }
    fill_caps(caps);
    return HB_OK;
}

/* ---- construction ---- */

int32_t hb_oracle_no_memory(struct hb_error *err, const char *what) {
    return hb_fail_text(err, HB_ERR_MEMORY, "out of memory: %s", what);
}

static void oracle_destroy(void *handle) {
    struct hb_oracle *o = handle;
    if (o == NULL) {
        return;
    }
    for (int32_t i = 0; i < HB_MAX_LAYERS; i++) {
        free(o->layer[i].numbers);
    }
    hb_oracle_regions_free(o);
    hb_ref_state_free(o->state);
    hb_ref_state_free(o->at);
    hb_slot_model_destroy(&o->slots);
    hb_oracle_forward_drop(&o->forward);
    hb_oracle_verify_drop(&o->verify);
    free(o);
}

static int32_t create_layer(struct hb_oracle *o, int32_t i, const struct hb_layer_params *params,
                            struct hb_error *err) {
    const int32_t kind = o->config.layer_kind[i];
    o->layer[i].id = i;
    if (kind == HB_LAYER_ATTENTION) {
        return HB_OK;
    }
    if (params == NULL) {
        return hb_fail_text(err, HB_ERR_NULL, "layer parameters are null");
    }
    if (o->state == NULL) {
        o->state = hb_ref_state_new(&o->config);
        o->at = hb_ref_state_new(&o->config);
        if (o->state == NULL || o->at == NULL) {
            return hb_oracle_no_memory(err, "state");
        }
    }
    return hb_oracle_params_keep(&o->config, kind, &params[i], &o->layer[i], err);
}

static int32_t oracle_create(void *ctx, const struct hb_config *config,
                             const struct hb_layer_params *params, void **handle,
                             struct hb_error *err) {
    struct hb_caps caps;
    struct hb_error e;
    (void)ctx;
    if (config == NULL || handle == NULL) {
        return hb_fail_text(err, HB_ERR_NULL, "configuration or handle is null");
    }
    fill_caps(&caps);
    hb_expect_create(config, &caps, &e);
    if (e.status != HB_OK) {
        return hb_oracle_pass(err, &e);
    }
    struct hb_oracle *o = calloc(1, sizeof *o);
    if (o == NULL) {
        return hb_oracle_no_memory(err, "handle");
    }
    o->config = *config;
    o->caps = caps;
    int32_t status = hb_slot_model_init(&o->slots, config);
    if (status != HB_OK) {
        (void)hb_oracle_no_memory(err, "slots");
    } else {
        status = hb_oracle_regions_make(o);
        if (status != HB_OK) {
            (void)hb_oracle_no_memory(err, "state pool");
        }
    }
    for (int32_t i = 0; i < config->n_layers && status == HB_OK; i++) {
        status = create_layer(o, i, params, err);
    }
    if (status != HB_OK) {
        oracle_destroy(o);
        return status;
    }
    *handle = o;
    return HB_OK;
}

/* ---- buffers: exact-size heap blocks ---- */

static int32_t oracle_buf_alloc(void *handle, uint64_t bytes, struct hb_buf *out,
                                struct hb_error *err) {
    if (handle == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    void *block = bytes <= HB_ORACLE_MOST_BYTES ? malloc(bytes > 0 ? bytes : 1) : NULL;
    if (block == NULL) {
        return hb_oracle_no_memory(err, "buffer");
    }
    memset(block, POISON, bytes);
    *out = (struct hb_buf){(uint64_t)(uintptr_t)block, 0, bytes};
    return HB_OK;
}

static void oracle_buf_free(void *handle, struct hb_buf buf) {
    (void)handle;
    free((void *)(uintptr_t)buf.id); /* NOLINT(performance-no-int-to-ptr): the id is the address */
}

/* Start of `bytes` bytes of buf, or null and err filled. */
static int32_t buf_at(const void *handle, struct hb_buf buf, uint64_t bytes, char **at,
                      struct hb_error *err) {
    if (handle == NULL) {
        return hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0);
    }
    if (bytes > buf.bytes || (buf.id == 0 && bytes > 0)) {
        return hb_fail(err, HB_RULE_BUFFER_RANGE, -1, (int64_t)bytes, (int64_t)buf.bytes);
    }
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): as above */
    *at = buf.id != 0 ? (char *)(uintptr_t)buf.id + buf.offset : NULL;
    return HB_OK;
}

static int32_t oracle_buf_write(void *handle, struct hb_buf buf, const void *src, uint64_t bytes,
                                struct hb_error *err) {
    char *at = NULL;
    int32_t status = buf_at(handle, buf, bytes, &at, err);
    if (status == HB_OK && at != NULL && bytes > 0) {
        memcpy(at, src, bytes);
    }
    return status;
}

static int32_t oracle_buf_read(void *handle, struct hb_buf buf, void *dst, uint64_t bytes,
                               struct hb_error *err) {
    char *at = NULL;
    int32_t status = buf_at(handle, buf, bytes, &at, err);
    if (status == HB_OK && at != NULL && bytes > 0) {
        memcpy(dst, at, bytes);
    }
    return status;
}

static uint64_t oracle_launches(void *handle) {
    const struct hb_oracle *o = handle;
    return o != NULL ? o->launches : 0;
}

const struct hb_adapter *hb_adapter_oracle(void) {
    static const struct hb_adapter table = {.struct_size = sizeof table,
                                            .describe = oracle_describe,
                                            .create = oracle_create,
                                            .destroy = oracle_destroy,
                                            .buf_alloc = oracle_buf_alloc,
                                            .buf_free = oracle_buf_free,
                                            .buf_write = oracle_buf_write,
                                            .buf_read = oracle_buf_read,
                                            .slot_take = hb_oracle_slot_take,
                                            .slot_free = hb_oracle_slot_free,
                                            .slot_copy = hb_oracle_slot_copy,
                                            .slot_publish = hb_oracle_slot_publish,
                                            .slot_move = hb_oracle_slot_move,
                                            .table_set = hb_oracle_table_set,
                                            .begin = hb_oracle_begin,
                                            .graph_init = hb_oracle_graph_init,
                                            .capture = hb_oracle_capture,
                                            .replay = hb_oracle_replay,
                                            .layer = hb_oracle_layer,
                                            .finish = hb_oracle_finish,
                                            .entry = hb_oracle_entry,
                                            .n_regions = hb_oracle_n_regions,
                                            .region = hb_oracle_region,
                                            .region_read = hb_oracle_region_read,
                                            .region_write = hb_oracle_region_write,
                                            .commit = hb_oracle_commit,
                                            .launches = oracle_launches};
    return &table;
}
