/* SPDX-License-Identifier: Apache-2.0
 * The adapter's own part: capabilities, buffers, regions, and every failure path of create and
 * begin. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "backend/hybrid.h"
#include "backend/memory.h"
#include "backend/tests/fixture.h"

enum { DIM = 20, WIDTH = 4, LAYERS = 3 };

static const float ones[DIM * WIDTH] = {1};
static struct hb_config config;
static struct hb_layer_params params[LAYERS];
static struct hb_error err;

static int setup(void **state) {
    (void)state;
    fixture_config(&config);
    const struct hb_layer_params linear = {ones, ones, ones, ones, ones, ones};
    params[0] = params[2] = linear;
    memset(&params[1], 0, sizeof(params[1]));
    hb_alloc_fail_after(-1);
    hb_error_clear(&err);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    hb_alloc_fail_after(-1);
    return hb_alloc_live() == 0 ? 0 : -1;
}

static void *open_handle(void) {
    const struct hb_adapter *a = hb_adapter_emu();
    void *h = NULL;
    assert_int_equal(a->create(a->ctx, &config, params, &h, &err), HB_OK);
    return h;
}

static void adapter_describes_itself(void **state) {
    (void)state;
    const struct hb_adapter *a = hb_adapter_emu();
    struct hb_caps caps;
    assert_int_equal(a->struct_size, sizeof(*a));
    assert_int_equal(a->describe(a->ctx, &caps, &err), HB_OK);
    assert_string_equal(caps.name, "emu");
    assert_int_equal(caps.struct_size, sizeof(caps));
    assert_int_equal(caps.modes, 0x37e);
    assert_true(caps.tree_verify && caps.ragged_verify);
    assert_int_equal(caps.layer_kinds, (1 << HB_N_LAYER_KINDS) - 1);
    assert_int_equal(caps.act_dtypes, 7);
    assert_int_equal(caps.state_dtypes, 3);
    assert_int_equal(caps.error_level, 2);
    assert_true(caps.has_regions && caps.deterministic && caps.batch_invariant);
    assert_int_equal(caps.exact_guards, hb_kernels_emu()->exact_guards);
    assert_int_equal(caps.profile[HB_FORM_V0][HB_PATH_PREFILL][HB_FP32].chunked, 0);
    assert_int_equal(caps.profile[HB_FORM_FAST][HB_PATH_PREFILL][HB_FP32].chunked, 1);
    assert_int_equal(caps.profile[HB_FORM_FAST][HB_PATH_PREFILL][HB_FP32].restart, 1);
    assert_int_equal(caps.profile[HB_FORM_FAST][HB_PATH_DECODE][HB_BF16].chunked, 0);
    assert_true(caps.profile[0][0][HB_BF16].u_io == 0x1p-8 &&
                caps.profile[0][0][HB_FP32].u_io == 0.0);
    assert_true(caps.profile[1][1][HB_FP16].u_io == 0x1p-11 &&
                caps.profile[1][1][HB_FP16].io_floor == 0x1p-25);
    assert_true(caps.profile[0][0][HB_FP32].e_exp == 0x1p-23);
    assert_int_equal(a->describe(a->ctx, NULL, &err), HB_ERR_NULL);
}

static void adapter_cuda_is_null_without_cuda(void **state) {
    (void)state;
#ifdef HB_HAVE_CUDA
    assert_non_null(hb_adapter_cuda());
#else
    assert_null(hb_adapter_cuda());
#endif
}

static void adapter_null_handles_are_answered(void **state) {
    (void)state;
    const struct hb_adapter *a = hb_adapter_emu();
    struct hb_buf buf = {0};
    struct hb_region region;
    int32_t n = -5;
    int32_t byte = 0;
    const int32_t statuses[] = {
        a->buf_alloc(NULL, 4, &buf, &err),
        a->buf_write(NULL, buf, &byte, 1, &err),
        a->buf_read(NULL, buf, &byte, 1, &err),
        a->slot_take(NULL, 1, 1, &n, &err),
        a->slot_free(NULL, 1, &n, &err),
        a->slot_copy(NULL, 1, 2, &err),
        a->table_set(NULL, 0, 0, &err),
        a->n_regions(NULL, &n, &err),
        a->region(NULL, 0, &region, &err),
        a->region_read(NULL, 0, 0, &byte, 1, &err),
        a->region_write(NULL, 0, 0, &byte, 1, &err),
        a->commit(NULL, NULL, &err),
    };
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        assert_int_equal(statuses[i], HB_ERR_NULL);
    }
    assert_int_equal(err.rule, HB_RULE_HANDLE_NULL);
    assert_int_equal(n, -5);
    a->destroy(NULL);
    a->buf_free(NULL, buf);
    assert_true(a->launches(NULL) == 0);
    void *h = NULL;
    assert_int_equal(a->create(a->ctx, NULL, params, &h, &err), HB_ERR_NULL);
    assert_int_equal(a->create(a->ctx, &config, NULL, &h, &err), HB_ERR_NULL);
    assert_int_equal(a->create(a->ctx, &config, params, NULL, &err), HB_ERR_NULL);
    assert_null(h);
}

static void adapter_clears_an_old_error(void **state) {
    (void)state;
    const struct hb_adapter *a = hb_adapter_emu();
    memset(&err, 0x5a, sizeof(err)); /* as left by anything before */
    assert_int_equal(a->finish(NULL, &err), HB_ERR_NULL);
    assert_int_equal(err.status, HB_ERR_NULL);
    void *h = open_handle();
    assert_int_equal(err.status, HB_OK);
    assert_string_equal(err.text, "");
    a->destroy(h);
}

static void adapter_buffers(void **state) {
    (void)state;
    const struct hb_adapter *a = hb_adapter_emu();
    void *h = open_handle();
    struct hb_buf buf;
    uint8_t bytes[8] = {0};
    assert_int_equal(a->buf_alloc(h, 8, &buf, &err), HB_OK);
    assert_true(buf.id != 0 && buf.offset == 0 && buf.bytes == 8);
    assert_int_equal(a->buf_read(h, buf, bytes, 8, &err), HB_OK);
    assert_int_equal(bytes[0] | bytes[7], 0xff); /* poison */
    const uint8_t data[3] = {1, 2, 3};
    struct hb_buf part = {buf.id, 5, 3};
    assert_int_equal(a->buf_write(h, part, data, 3, &err), HB_OK);
    assert_int_equal(a->buf_read(h, buf, bytes, 8, &err), HB_OK);
    assert_memory_equal(bytes + 5, data, 3);
    assert_int_equal(bytes[4], 0xff);
    part.bytes = 99; /* never beyond the allocation */
    assert_int_equal(a->buf_write(h, part, data, 4, &err), HB_ERR_RANGE);
    assert_int_equal(err.rule, HB_RULE_BUFFER_RANGE);
    assert_true(err.value == 4 && err.limit == 3);
    part.offset = UINT64_MAX;
    assert_int_equal(a->buf_read(h, part, bytes, 1, &err), HB_ERR_RANGE);
    assert_int_equal(a->buf_read(h, (struct hb_buf){0}, bytes, 1, &err), HB_ERR_RANGE);
    assert_int_equal(a->buf_read(h, (struct hb_buf){.id = 999, .bytes = 4}, bytes, 1, &err),
                     HB_ERR_RANGE);
    assert_int_equal(a->buf_read(h, buf, NULL, 1, &err), HB_ERR_NULL);
    assert_int_equal(a->buf_read(h, buf, NULL, 0, &err), HB_OK);
    a->buf_free(h, buf);
    a->buf_free(h, buf); /* no effect */
    assert_int_equal(a->buf_read(h, buf, bytes, 1, &err), HB_ERR_RANGE);
    struct hb_buf many[100];
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(a->buf_alloc(h, i, &many[i], &err), HB_OK);
        assert_true(many[i].id != 0 && many[i].bytes == i);
    }
    assert_int_equal(a->buf_alloc(h, UINT64_MAX, &buf, &err), HB_ERR_MEMORY);
    assert_int_equal(a->buf_alloc(h, 1, NULL, &err), HB_ERR_NULL);
    hb_alloc_fail_after(0);
    const struct hb_buf old = buf;
    assert_int_equal(a->buf_alloc(h, 1, &buf, &err), HB_ERR_MEMORY);
    assert_memory_equal(&old, &buf, sizeof(buf));
    a->destroy(h); /* releases what is still held */
}

static void adapter_regions(void **state) {
    (void)state;
    static const char *const names[] = {
        "conv",        "temporal",  "intermediate_conv", "intermediate_ssm",  "kv_k",
        "kv_v",        "conv",      "temporal",          "intermediate_conv", "intermediate_ssm",
        "req_to_slot", "slot_kind", "free_list",         "free_count",        "generation"};
    static const int32_t layers[] = {0, 0, 0, 0, 1, 1, 2, 2, 2, 2, -1, -1, -1, -1, -1};
    static const uint64_t sizes[] = {13 * 20 * 3 * 2,
                                     13 * 8 * 3 * 4,
                                     6 * 7 * 20 * 3 * 2,
                                     6 * 7 * 8 * 3 * 4,
                                     KV * 4 * 2,
                                     KV * 4 * 2,
                                     13 * 20 * 3 * 2,
                                     13 * 8 * 3 * 4,
                                     6 * 7 * 20 * 3 * 2,
                                     6 * 7 * 8 * 3 * 4,
                                     8 * 4,
                                     13 * 4,
                                     12 * 4,
                                     4,
                                     13 * 4};
    const struct hb_adapter *a = hb_adapter_emu();
    config.act_dtype = HB_BF16;
    config.graph_rows = 0;
    void *h = open_handle();
    int32_t n = 0;
    uint8_t bytes[4096];
    assert_int_equal(a->n_regions(h, &n, &err), HB_OK);
    assert_int_equal(n, 15);
    for (int32_t i = 0; i < n; i++) {
        struct hb_region r;
        assert_int_equal(a->region(h, i, &r, &err), HB_OK);
        assert_string_equal(r.name, names[i]);
        assert_int_equal(r.layer, layers[i]);
        assert_true(r.bytes == sizes[i]);
        int64_t elements = 1;
        for (int32_t d = 0; d < r.n_dims; d++) {
            elements *= r.shape[d];
        }
        assert_true((uint64_t)elements * (r.dtype == HB_BF16 ? 2U : 4U) == r.bytes);
        if (r.kind == HB_REGION_STATE) { /* zero-initialised */
            assert_int_equal(a->region_read(h, i, r.bytes - 8, bytes, 8, &err), HB_OK);
            const uint8_t zero[8] = {0};
            assert_memory_equal(bytes, zero, 8);
        }
        const uint8_t data[2] = {0x12, 0x34};
        assert_int_equal(a->region_write(h, i, r.bytes - 2, data, 2, &err), HB_OK);
        assert_int_equal(a->region_read(h, i, r.bytes - 2, bytes, 2, &err), HB_OK);
        assert_memory_equal(bytes, data, 2);
        assert_int_equal(a->region_read(h, i, r.bytes - 1, bytes, 2, &err), HB_ERR_RANGE);
        assert_int_equal(err.rule, HB_RULE_BUFFER_RANGE);
        assert_int_equal(a->region_write(h, i, UINT64_MAX, data, 2, &err), HB_ERR_RANGE);
        assert_int_equal(a->region_read(h, i, r.bytes, NULL, 0, &err), HB_OK);
        assert_int_equal(a->region_read(h, i, 0, NULL, 1, &err), HB_ERR_NULL);
        assert_int_equal(a->region_write(h, i, 0, NULL, 1, &err), HB_ERR_NULL);
    }
    struct hb_region r;
    assert_int_equal(a->region(h, n, &r, &err), HB_ERR_RANGE);
    assert_int_equal(a->region(h, -1, &r, &err), HB_ERR_RANGE);
    assert_int_equal(a->region(h, 0, NULL, &err), HB_ERR_NULL);
    assert_int_equal(a->n_regions(h, NULL, &err), HB_ERR_NULL);
    a->destroy(h);
    config.spec_rows = config.max_draft = 0; /* no caches, no regions of them */
    h = open_handle();
    assert_int_equal(a->n_regions(h, &n, &err), HB_OK);
    assert_int_equal(n, 11);
    a->destroy(h);
}

static void adapter_create_refuses_configurations_and_missing_parameters(void **state) {
    (void)state;
    const struct hb_adapter *a = hb_adapter_emu();
    void *h = NULL;
    config.n_groups = 3;
    assert_int_equal(a->create(a->ctx, &config, params, &h, &err), HB_ERR_SHAPE);
    assert_string_equal(err.text, "nheads must be divisible by ngroups: 4 % 3 != 0");
    config.n_groups = 2;
    params[2].norm_weight = NULL;
    assert_int_equal(a->create(a->ctx, &config, params, &h, &err), HB_ERR_NULL);
    assert_string_equal(err.text, "layer 2 needs norm_weight");
    config.gate_norm = HB_GATE_ONLY; /* has no norm */
    params[2].conv_bias = params[2].dt_bias = params[2].d = NULL;
    assert_int_equal(a->create(a->ctx, &config, params, &h, &err), HB_OK);
    a->destroy(h);
    h = NULL;
    params[0].a = NULL;
    assert_int_equal(a->create(a->ctx, &config, params, &h, &err), HB_ERR_NULL);
    assert_null(h);
}

static void adapter_create_releases_everything_at_each_failing_allocation(void **state) {
    (void)state;
    const struct hb_adapter *a = hb_adapter_emu();
    int32_t status = HB_ERR_MEMORY;
    int32_t n = 0;
    for (; n < 100 && status != HB_OK; n++) {
        void *h = NULL;
        hb_alloc_fail_after(n);
        status = a->create(a->ctx, &config, params, &h, &err);
        if (status != HB_OK) {
            assert_int_equal(status, HB_ERR_MEMORY);
            assert_int_equal(err.status, HB_ERR_MEMORY);
            assert_true(strlen(err.text) > 0);
            assert_null(h);
            assert_int_equal(hb_alloc_live(), 0);
        } else {
            a->destroy(h);
        }
    }
    assert_true(n > 25 && n < 100);
}

static void adapter_create_refuses_metadata_that_cannot_exist(void **state) {
    (void)state;
    const struct hb_adapter *a = hb_adapter_emu();
    void *h = NULL;
    config.max_batch = config.max_context = INT32_MAX;
    assert_int_equal(a->create(a->ctx, &config, params, &h, &err), HB_ERR_MEMORY);
    assert_int_equal(hb_alloc_live(), 0);
}

/* a device that fails: the emulated table with some entries replaced */

static int32_t calls_left;

static int32_t count_call(void) {
    if (calls_left == 0) {
        return HB_ERR_DEVICE;
    }
    calls_left--;
    return HB_OK;
}

static int32_t failing_to_device(void *dst, const void *src, uint64_t bytes) {
    const int32_t status = count_call();
    return status == HB_OK ? hb_kernels_emu()->to_device(dst, src, bytes) : status;
}

static int32_t failing_fill(void *dst, int32_t byte, uint64_t bytes) {
    const int32_t status = count_call();
    return status == HB_OK ? hb_kernels_emu()->fill(dst, byte, bytes) : status;
}

static int32_t failing_slots(const struct hb_k_slots *args) {
    const int32_t status = count_call();
    return status == HB_OK ? hb_kernels_emu()->slots(args) : status;
}

static int32_t failing_conv(const struct hb_k_conv *args) {
    const int32_t status = count_call();
    return status == HB_OK ? hb_kernels_emu()->conv_update(args) : status;
}

static int32_t no_device(void) {
    return HB_ERR_DEVICE;
}

static const char *device_text(void) {
    return "out of order";
}

static struct hb_kernels failing_table(void) {
    struct hb_kernels k = *hb_kernels_emu();
    k.error_text = device_text;
    k.to_device = failing_to_device;
    k.fill = failing_fill;
    k.slots = failing_slots;
    k.conv_update = failing_conv;
    return k;
}

static void hybrid_create_passes_device_failures_on(void **state) {
    (void)state;
    struct hb_kernels k = failing_table();
    int32_t status = HB_ERR_DEVICE;
    int32_t n = 0;
    for (; n < 100 && status != HB_OK; n++) {
        struct hb_hybrid *h = NULL;
        calls_left = n;
        hb_error_clear(&err);
        status = hb_hybrid_create(&k, &config, params, &h, &err);
        if (status != HB_OK) {
            assert_int_equal(status, HB_ERR_DEVICE);
            assert_string_equal(err.text, "emu: out of order");
            assert_null(h);
            assert_int_equal(hb_alloc_live(), 0);
        } else {
            hb_hybrid_destroy(h);
        }
    }
    assert_true(n > 15 && n < 100);
    k.open = no_device;
    struct hb_hybrid *h = NULL;
    hb_error_clear(&err);
    assert_int_equal(hb_hybrid_create(&k, &config, params, &h, &err), HB_ERR_DEVICE);
}

static void hybrid_begin_that_cannot_upload_keeps_the_earlier_metadata(void **state) {
    (void)state;
    static struct fixture f;
    const int32_t seq[] = {3, 4};
    struct hb_kernels k = failing_table();
    struct hb_hybrid *h = NULL;
    calls_left = 1000;
    assert_int_equal(hb_hybrid_create(&k, &config, params, &h, &err), HB_OK);
    fixture_tables(&f);
    fixture_batch(&f, HB_MODE_DECODE, 0, NULL, NULL, 2, seq, 0, 0);
    int32_t ids[2];
    assert_int_equal(hb_pool_take(&h->pool, 2, HB_SLOT_LIVE, ids, &err), HB_OK);
    (void)hb_pool_table_set(&h->pool, 7, ids[0], &err);
    (void)hb_pool_table_set(&h->pool, 6, ids[1], &err);
    assert_int_equal(hb_hybrid_begin(h, &f.batch, &err), HB_OK);
    f.batch.batch_size = f.batch.original_batch_size = 1;
    f.batch.req_pool_indices.len = f.batch.seq_lens.len = f.batch.mamba_track_mask.len = 1;
    calls_left = 0;
    assert_int_equal(hb_hybrid_begin(h, &f.batch, &err), HB_ERR_DEVICE);
    assert_int_equal(h->has_metadata, 1);
    assert_int_equal(h->forward[h->current].meta.n_live, 2);
    hb_error_clear(&err);
    assert_int_equal(hb_pool_take(&h->pool, 1, HB_SLOT_LIVE, ids, &err), HB_ERR_DEVICE);
    assert_int_equal(*h->pool.n_free, SLOTS - 2);
    hb_hybrid_destroy(h);
}

static void hybrid_layer_that_fails_on_the_device_has_not_run(void **state) {
    (void)state;
    static struct fixture f;
    const int32_t seq[] = {3};
    struct hb_kernels k = failing_table();
    struct hb_hybrid *h = NULL;
    struct hb_layer_io io = {.struct_size = sizeof(io)};
    const int64_t widths[4] = {8, 20, 4, 8};
    int32_t id;
    calls_left = 1000;
    assert_int_equal(hb_hybrid_create(&k, &config, params, &h, &err), HB_OK);
    fixture_tables(&f);
    fixture_batch(&f, HB_MODE_DECODE, 0, NULL, NULL, 1, seq, 0, 0);
    assert_int_equal(hb_pool_take(&h->pool, 1, HB_SLOT_LIVE, &id, &err), HB_OK);
    (void)hb_pool_table_set(&h->pool, 7, id, &err);
    assert_int_equal(hb_hybrid_begin(h, &f.batch, &err), HB_OK);
    for (int32_t i = 0; i < 4; i++) {
        struct hb_buf *buf = i < 3 ? &io.in[i] : &io.out;
        assert_int_equal(hb_hybrid_buf_alloc(h, (uint64_t)widths[i] * 4, buf, &err), HB_OK);
    }
    for (calls_left = 0; calls_left < 3; calls_left++) {
        const int32_t n = calls_left;
        hb_error_clear(&err);
        assert_int_equal(hb_hybrid_layer(h, 0, &io, &err), HB_ERR_DEVICE);
        assert_int_equal(h->layers_run, 0);
        calls_left = n;
    }
    calls_left = 1000;
    hb_error_clear(&err);
    assert_int_equal(hb_hybrid_layer(h, 0, &io, &err), HB_OK);
    assert_int_equal(h->layers_run, 1);
    hb_hybrid_destroy(h);
}

/* Upload, then two pools of two layers: each failure is passed on, and the verify stays. */
static void hybrid_commit_that_fails_on_the_device_may_be_repeated(void **state) {
    (void)state;
    static struct fixture f;
    const int32_t seq[] = {3};
    const int32_t step = 1;
    const struct hb_commit commit = {
        .struct_size = sizeof(commit), .n_rows = 1, .step = {&step, 1}};
    struct hb_kernels k = failing_table();
    struct hb_hybrid *h = NULL;
    int32_t id;
    calls_left = 1000;
    assert_int_equal(hb_hybrid_create(&k, &config, params, &h, &err), HB_OK);
    fixture_tables(&f);
    fixture_verify(&f, 2, 1, seq, NULL, 0);
    assert_int_equal(hb_pool_take(&h->pool, 1, HB_SLOT_LIVE, &id, &err), HB_OK);
    (void)hb_pool_table_set(&h->pool, 7, id, &err);
    assert_int_equal(hb_hybrid_begin(h, &f.batch, &err), HB_OK);
    h->layers_run = 7; /* as if they had */
    assert_int_equal(hb_hybrid_finish(h, &err), HB_OK);
    for (int32_t n = 0; n < 5; n++) {
        calls_left = n;
        hb_error_clear(&err);
        assert_int_equal(hb_hybrid_commit(h, &commit, &err), HB_ERR_DEVICE);
        assert_string_equal(err.text, "emu: out of order");
    }
    calls_left = 5;
    hb_error_clear(&err);
    assert_int_equal(hb_hybrid_commit(h, &commit, &err), HB_OK);
    calls_left = 0; /* a begin that cannot upload leaves the verify too */
    assert_int_equal(hb_hybrid_begin(h, &f.batch, &err), HB_ERR_DEVICE);
    calls_left = 5;
    hb_error_clear(&err);
    assert_int_equal(hb_hybrid_commit(h, &commit, &err), HB_OK);
    hb_hybrid_destroy(h);
}

int main(void) {
#define ADAPTER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        ADAPTER_TEST(adapter_describes_itself),
        ADAPTER_TEST(adapter_cuda_is_null_without_cuda),
        ADAPTER_TEST(adapter_null_handles_are_answered),
        ADAPTER_TEST(adapter_clears_an_old_error),
        ADAPTER_TEST(adapter_buffers),
        ADAPTER_TEST(adapter_regions),
        ADAPTER_TEST(adapter_create_refuses_configurations_and_missing_parameters),
        ADAPTER_TEST(adapter_create_releases_everything_at_each_failing_allocation),
        ADAPTER_TEST(adapter_create_refuses_metadata_that_cannot_exist),
        ADAPTER_TEST(hybrid_create_passes_device_failures_on),
        ADAPTER_TEST(hybrid_begin_that_cannot_upload_keeps_the_earlier_metadata),
        ADAPTER_TEST(hybrid_commit_that_fails_on_the_device_may_be_repeated),
        ADAPTER_TEST(hybrid_layer_that_fails_on_the_device_has_not_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
