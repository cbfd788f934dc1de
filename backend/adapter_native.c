/* SPDX-License-Identifier: Apache-2.0
 * The project's own backend behind struct hb_adapter: one implementation for every kernel table.
 * Here null handles are answered, the error record is cleared, the emulator's execution order is
 * set and launches are counted; everything else is hybrid.c and pool.c. */
#include "backend/adapter.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "backend/hybrid.h"
#include "backend/memory.h"
#include "backend/mode.h"

/* What ctx points to. */
struct native {
    const struct hb_kernels *(*kernels)(void);
};

static const struct hb_kernels *kernels_of(const void *ctx) {
    return ((const struct native *)ctx)->kernels();
}

/* tolerance.md section 2, u = 2^-24. */
static void fill_profile(struct hb_profile *p, int32_t form, int32_t path, int32_t act_dtype) {
    static const double u_io[HB_N_FLOAT_DTYPES] = {
        [HB_FP32] = 0.0, [HB_BF16] = 0x1p-8, [HB_FP16] = 0x1p-11};
    const double u = 0x1p-24;
    *p = (struct hb_profile){.u_op = 0.0,
                             .k_in = 0,
                             .u_io = u_io[act_dtype],
                             .io_floor = act_dtype == HB_FP16 ? 0x1p-25 : 0x1p-126,
                             .u_acc = u,
                             .e_exp = 2 * u, /* expf within 1 ulp */
                             .sp_abs = 0.0,  /* log1pf(expf(a)) */
                             .sp_rel = 4 * u,
                             .chunked = form == HB_FORM_FAST && path == HB_PATH_PREFILL,
                             .cs_tree = HB_CS_SEQUENTIAL,
                             .restart = 1,
                             .norm_roundings = 1,
                             .attn_block = 0};
}

static int32_t describe(void *ctx, struct hb_caps *caps, struct hb_error *err) {
    const struct hb_kernels *k = kernels_of(ctx);
    hb_error_clear(err);
    if (caps == NULL) {
        return hb_fail_text(err, HB_ERR_NULL, "no place for the capabilities");
    }
    *caps = (struct hb_caps){.struct_size = sizeof(*caps),
                             .modes = hb_mode_supported_mask(),
                             .layer_kinds = hb_linear_kind_mask() | 1U << HB_LAYER_ATTENTION,
                             .act_dtypes = (1U << HB_N_FLOAT_DTYPES) - 1U,
                             .state_dtypes = 1U << HB_FP32 | 1U << HB_BF16,
                             .error_level = 2,
                             .has_regions = 1,
                             .deterministic = 1,
                             .batch_invariant = 1,
                             .exact_guards = k->exact_guards,
                             .tree_verify = 1,
                             .ragged_verify = 1,
                             .ring = 1,
                             .ring_commit = 1,
                             .virtual_slots = 1,
                             .pool_pad = 1,
                             .track_by_layer = 1,
                             .window_layouts = (1U << HB_N_WINDOW_LAYOUTS) - 1U,
                             .graphs = 1,
                             .replay_exact = (1U << HB_N_FORMS) - 1U,
                             .verify_exact = (1U << HB_N_FORMS) - 1U};
#ifdef HB_DEFECTS
    caps->has_defects = 1;
#endif
    (void)snprintf(caps->name, sizeof(caps->name), "%s", k->name);
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        for (int32_t path = 0; path < HB_N_PATHS; path++) {
            for (int32_t dtype = 0; dtype < HB_N_FLOAT_DTYPES; dtype++) {
                fill_profile(&caps->profile[form][path][dtype], form, path, dtype);
            }
        }
    }
    return HB_OK;
}

static int32_t create(void *ctx, const struct hb_config *config,
                      const struct hb_layer_params *params, void **handle, struct hb_error *err) {
    struct hb_hybrid *h = NULL;
    hb_error_clear(err);
    if (config == NULL || params == NULL || handle == NULL) {
        return hb_fail_text(err, HB_ERR_NULL,
                            "create needs a configuration, parameters and a place for the handle");
    }
    const int32_t status = hb_hybrid_create(kernels_of(ctx), config, params, &h, err);
    if (status == HB_OK) {
        *handle = h;
    }
    return status;
}

static void destroy(void *handle) {
    if (handle != NULL) {
        hb_hybrid_destroy(handle);
    }
}

/* Start of a call on a handle: rule 2. */
static int32_t enter(const void *handle, struct hb_error *err) {
    hb_error_clear(err);
    return handle == NULL ? hb_fail(err, HB_RULE_HANDLE_NULL, -1, 0, 0) : HB_OK;
}

/* Start and end of a call that may launch. The order is a property of the table, so each call sets
 * it anew. */
static uint64_t launch_begin(const struct hb_hybrid *h) {
    const struct hb_config *c = &h->config;
    h->kernels->set_order(c->thread_order, c->block_order, c->order_seed);
    return h->kernels->launches();
}

static int32_t launch_end(struct hb_hybrid *h, uint64_t before, int32_t status) {
    h->launches += h->kernels->launches() - before;
    return status;
}

static int32_t buf_alloc(void *handle, uint64_t bytes, struct hb_buf *out, struct hb_error *err) {
    const int32_t status = enter(handle, err);
    if (status == HB_OK && out == NULL) {
        return hb_fail_text(err, HB_ERR_NULL, "no place for the buffer");
    }
    return status == HB_OK ? hb_hybrid_buf_alloc(handle, bytes, out, err) : status;
}

static void buf_free(void *handle, struct hb_buf buf) {
    if (handle != NULL) {
        hb_hybrid_buf_free(handle, buf);
    }
}

/* Address of the first bytes of buf, rule 158. */
static int32_t buf_range(const struct hb_hybrid *h, struct hb_buf buf, const void *host,
                         uint64_t bytes, void **out, struct hb_error *err) {
    uint64_t usable;
    void *ptr = hb_hybrid_buf_ptr(h, buf, &usable);
    if (bytes > usable) {
        return hb_fail(err, HB_RULE_BUFFER_RANGE, -1,
                       bytes > (uint64_t)INT64_MAX ? INT64_MAX : (int64_t)bytes, (int64_t)usable);
    }
    if (bytes > 0 && host == NULL) {
        return hb_fail_text(err, HB_ERR_NULL, "no host memory for the copy");
    }
    *out = ptr;
    return HB_OK;
}

static int32_t buf_write(void *handle, struct hb_buf buf, const void *src, uint64_t bytes,
                         struct hb_error *err) {
    const struct hb_hybrid *h = handle;
    void *ptr = NULL;
    int32_t status = enter(handle, err);
    if (status == HB_OK) {
        status = buf_range(h, buf, src, bytes, &ptr, err);
    }
    if (status != HB_OK || bytes == 0) {
        return status;
    }
    return hb_device_check(h->kernels, h->kernels->to_device(ptr, src, bytes), err);
}

static int32_t buf_read(void *handle, struct hb_buf buf, void *dst, uint64_t bytes,
                        struct hb_error *err) {
    const struct hb_hybrid *h = handle;
    void *ptr = NULL;
    int32_t status = enter(handle, err);
    if (status == HB_OK) {
        status = buf_range(h, buf, dst, bytes, &ptr, err);
    }
    if (status != HB_OK || bytes == 0) {
        return status;
    }
    return hb_device_check(h->kernels, h->kernels->to_host(dst, ptr, bytes), err);
}

static int32_t slot_take(void *handle, int32_t n, int32_t kind, int32_t *ids,
                         struct hb_error *err) {
    struct hb_hybrid *h = handle;
    const int32_t status = enter(handle, err);
    if (status != HB_OK) {
        return status;
    }
    const uint64_t before = launch_begin(h);
    return launch_end(h, before, hb_pool_take(&h->pool, n, kind, ids, err));
}

static int32_t slot_free(void *handle, int32_t n, const int32_t *ids, struct hb_error *err) {
    struct hb_hybrid *h = handle;
    const int32_t status = enter(handle, err);
    return status == HB_OK ? hb_pool_free(&h->pool, n, ids, err) : status;
}

static int32_t slot_copy(void *handle, int32_t src, int32_t dst, struct hb_error *err) {
    struct hb_hybrid *h = handle;
    const int32_t status = enter(handle, err);
    if (status != HB_OK) {
        return status;
    }
    const uint64_t before = launch_begin(h);
    return launch_end(h, before, hb_pool_copy(&h->pool, src, dst, err));
}

static int32_t slot_publish(void *handle, int32_t id, struct hb_error *err) {
    struct hb_hybrid *h = handle;
    const int32_t status = enter(handle, err);
    return status == HB_OK ? hb_pool_publish(&h->pool, id, err) : status;
}

static int32_t slot_move(void *handle, int32_t id, struct hb_error *err) {
    struct hb_hybrid *h = handle;
    const int32_t status = enter(handle, err);
    if (status != HB_OK) {
        return status;
    }
    const uint64_t before = launch_begin(h);
    return launch_end(h, before, hb_pool_move(&h->pool, id, err));
}

static int32_t table_set(void *handle, int32_t req, int32_t slot, struct hb_error *err) {
    struct hb_hybrid *h = handle;
    const int32_t status = enter(handle, err);
    return status == HB_OK ? hb_pool_table_set(&h->pool, req, slot, err) : status;
}

static int32_t begin(void *handle, const struct hb_batch *batch, struct hb_error *err) {
    const int32_t status = enter(handle, err);
    return status == HB_OK ? hb_hybrid_begin(handle, batch, err) : status;
}

static int32_t graph_init(void *handle, int32_t max_bs, int32_t max_tokens,
                          struct hb_error *err) {
    const int32_t status = enter(handle, err);
    return status == HB_OK ? hb_graph_init(handle, max_bs, max_tokens, err) : status;
}

static int32_t capture(void *handle, const struct hb_batch *batch, struct hb_error *err) {
    const int32_t status = enter(handle, err);
    return status == HB_OK ? hb_graph_capture(handle, batch, err) : status;
}

static int32_t replay(void *handle, const struct hb_batch *batch, struct hb_error *err) {
    const int32_t status = enter(handle, err);
    return status == HB_OK ? hb_graph_replay(handle, batch, err) : status;
}

static int32_t layer(void *handle, int32_t layer_id, const struct hb_layer_io *io,
                     struct hb_error *err) {
    struct hb_hybrid *h = handle;
    const int32_t status = enter(handle, err);
    if (status != HB_OK) {
        return status;
    }
    const uint64_t before = launch_begin(h);
    return launch_end(h, before, hb_hybrid_layer(h, layer_id, io, err));
}

static int32_t finish(void *handle, struct hb_error *err) {
    struct hb_hybrid *h = handle;
    const int32_t status = enter(handle, err);
    if (status != HB_OK) {
        return status;
    }
    const uint64_t before = launch_begin(h);
    return launch_end(h, before, hb_hybrid_finish(h, err));
}

static int32_t commit(void *handle, const struct hb_commit *args, struct hb_error *err) {
    struct hb_hybrid *h = handle;
    const int32_t status = enter(handle, err);
    if (status != HB_OK) {
        return status;
    }
    const uint64_t before = launch_begin(h);
    return launch_end(h, before, hb_hybrid_commit(h, args, err));
}

/* The child refuses, if it does, before it looks at anything; which child that is, is the handle's
 * to say. Where it does not refuse, it is the wrapper, as are other targets. */
static int32_t entry(void *handle, int32_t target, int32_t direction, int32_t layer_id,
                     const struct hb_layer_io *io, struct hb_error *err) {
    struct hb_hybrid *h = handle;
    if (target == HB_ENTRY_CHILD) {
        const int32_t kind = h != NULL ? h->dims.linear_kind : -1;
        const int32_t rule = hb_linear_entry_rule(kind, direction);
        hb_error_clear(err);
        if (rule != HB_RULE_NONE) {
            return hb_fail(err, rule, -1, 0, 0);
        }
    }
    const int32_t status = enter(handle, err);
    if (status != HB_OK) {
        return status;
    }
    const uint64_t before = launch_begin(h);
    return launch_end(h, before, hb_hybrid_entry(h, direction, layer_id, io, err));
}

static int32_t n_regions(void *handle, int32_t *n, struct hb_error *err) {
    const struct hb_hybrid *h = handle;
    const int32_t status = enter(handle, err);
    if (status == HB_OK && n == NULL) {
        return hb_fail_text(err, HB_ERR_NULL, "no place for the number of regions");
    }
    if (status == HB_OK) {
        *n = h->n_regions;
    }
    return status;
}

static int32_t region(void *handle, int32_t i, struct hb_region *out, struct hb_error *err) {
    const struct hb_hybrid_region *r;
    int32_t status = enter(handle, err);
    if (status == HB_OK && out == NULL) {
        return hb_fail_text(err, HB_ERR_NULL, "no place for the region");
    }
    if (status == HB_OK) {
        status = hb_hybrid_region_at(handle, i, 0, 0, &r, err);
    }
    if (status == HB_OK) {
        *out = r->info;
    }
    return status;
}

static int32_t region_read(void *handle, int32_t i, uint64_t offset, void *dst, uint64_t bytes,
                           struct hb_error *err) {
    const int32_t status = enter(handle, err);
    return status == HB_OK ? hb_hybrid_region_read(handle, i, offset, dst, bytes, err) : status;
}

static int32_t region_write(void *handle, int32_t i, uint64_t offset, const void *src,
                            uint64_t bytes, struct hb_error *err) {
    const int32_t status = enter(handle, err);
    return status == HB_OK ? hb_hybrid_region_write(handle, i, offset, src, bytes, err) : status;
}

static uint64_t launches(void *handle) {
    return handle == NULL ? 0 : ((const struct hb_hybrid *)handle)->launches;
}

#define NATIVE_TABLE(context)                                                                      \
    {                                                                                              \
        .struct_size = sizeof(struct hb_adapter), .ctx = (context), .describe = describe,          \
        .create = create, .destroy = destroy, .buf_alloc = buf_alloc, .buf_free = buf_free,        \
        .buf_write = buf_write, .buf_read = buf_read, .slot_take = slot_take,                      \
        .slot_free = slot_free, .slot_copy = slot_copy, .slot_publish = slot_publish,              \
        .slot_move = slot_move, .table_set = table_set, .begin = begin,                            \
        .graph_init = graph_init, .capture = capture, .replay = replay,                            \
        .layer = layer, .finish = finish, .entry = entry, .n_regions = n_regions,                  \
        .region = region, .region_read = region_read, .region_write = region_write,                \
        .commit = commit, .launches = launches                                                     \
    }

/* ctx is not const in the table; these are never written. */
static struct native emu_context = {hb_kernels_emu};
static const struct hb_adapter emu_table = NATIVE_TABLE(&emu_context);

const struct hb_adapter *hb_adapter_emu(void) {
    return &emu_table;
}

#ifdef HB_HAVE_CUDA
static struct native cuda_context = {hb_kernels_cuda};
static const struct hb_adapter cuda_table = NATIVE_TABLE(&cuda_context);
#endif

const struct hb_adapter *hb_adapter_cuda(void) {
#ifdef HB_HAVE_CUDA
    return &cuda_table;
#else
    return NULL;
#endif
}
