/* SPDX-License-Identifier: Apache-2.0
 * Strips of conv windows (state-pool.md section 4): columns t..t+W-1 of a strip are the dense
 * window after node t, for ragged chains; columns that no window has keep their bytes; the copies
 * of a commit give the same slots from either layout, pads between slots or not. */
#include "kernels/tests/rig.h"

enum { N_ROWS = 4, N_SLOTS = 6, MAX_DRAFT = 5, N_TOKENS = 11, DIM = 37 };

static const int32_t qsl[N_ROWS + 1] = {0, 5, 6, 9, 11};
static const int32_t slots[N_ROWS] = {3, 6, -1, 1};

struct pair {
    struct rig rig;
    int32_t width, dtype, pad;
    struct hb_k_conv_verify v[2]; /* by layout */
    size_t n_windows[2];          /* elements */
    size_t n_pool;
};

static void open_pair(struct pair *c, int table, int32_t width, int32_t dtype, int32_t pad) {
    memset(c, 0, sizeof *c);
    assert_true(rig_open(&c->rig, table, 11U + (uint32_t)width));
    c->width = width;
    c->dtype = dtype;
    c->pad = pad;
    c->n_pool = (size_t)((N_SLOTS + 1) * (DIM * (width - 1) + pad));
    c->n_windows[HB_WINDOWS_DENSE] = (size_t)(N_ROWS * MAX_DRAFT * DIM * (width - 1));
    c->n_windows[HB_WINDOWS_STRIP] = (size_t)(N_ROWS * DIM * (MAX_DRAFT + width - 2));
    struct array pool = array_random(&c->rig, c->n_pool, dtype, 1.0f);
    struct array x = array_random(&c->rig, N_TOKENS * DIM, dtype, 1.0f);
    struct array weight = array_random(&c->rig, (size_t)(DIM * width), HB_FP32, 1.0f);
    struct hb_k_conv conv = {.rows = {.n_rows = N_ROWS,
                                      .qsl = rig_device(&c->rig, qsl, sizeof qsl),
                                      .slots = rig_device(&c->rig, slots, sizeof slots)},
                             .dim = DIM,
                             .width = width,
                             .act_dtype = dtype,
                             .x = array_device(&c->rig, &x),
                             .weight = array_device(&c->rig, &weight),
                             .pool = array_device(&c->rig, &pool),
                             .pool_pad = pad};
    for (int32_t l = 0; l < 2; l++) {
        conv.y = rig_device(&c->rig, NULL, N_TOKENS * DIM * size_of(dtype));
        c->v[l] = (struct hb_k_conv_verify){
            .conv = conv,
            .max_draft = MAX_DRAFT,
            .windows = rig_device(&c->rig, NULL, c->n_windows[l] * size_of(dtype)),
            .window_layout = l};
        assert_int_equal(c->rig.k->conv_verify(&c->v[l]), HB_OK);
    }
    array_free(&pool);
    array_free(&x);
    array_free(&weight);
}

static const char *at(const void *bytes, size_t i, int32_t dtype) {
    return (const char *)bytes + i * size_of(dtype);
}

static void check_strips(struct pair *c) {
    const size_t w = (size_t)c->width - 1;
    const size_t columns = MAX_DRAFT + w - 1;
    const size_t bytes = w * size_of(c->dtype);
    void *dense = rig_host(&c->rig, c->v[0].windows, c->n_windows[0] * size_of(c->dtype));
    void *strip = rig_host(&c->rig, c->v[1].windows, c->n_windows[1] * size_of(c->dtype));
    for (size_t r = 0; r < N_ROWS; r++) {
        const size_t n = slots[r] < 0 ? 0 : (size_t)(qsl[r + 1] - qsl[r]);
        for (size_t i = 0; i < DIM; i++) {
            for (size_t t = 0; t < n; t++) {
                assert_memory_equal(
                    at(dense, ((r * MAX_DRAFT + t) * DIM + i) * w, c->dtype),
                    at(strip, (r * DIM + i) * columns + t, c->dtype), bytes);
            }
            for (size_t k = n == 0 ? 0 : n + w - 1; k < columns; k++) { /* poison stays */
                assert_memory_equal("\xff\xff\xff\xff",
                                    at(strip, (r * DIM + i) * columns + k, c->dtype),
                                    size_of(c->dtype));
            }
        }
    }
    free(dense);
    free(strip);
}

/* Entries of random nodes to random slots, from both layouts. */
static void check_copies(struct pair *c) {
    enum { N_PAIRS = 4 };
    const int32_t src[N_PAIRS] = {4, MAX_DRAFT, 3 * MAX_DRAFT + 1, -1};
    const int32_t dst[N_PAIRS] = {2, 6, -1, 1};
    const uint64_t slot_bytes = (uint64_t)(DIM * (c->width - 1)) * size_of(c->dtype);
    struct hb_k_slots dense = {.n_pairs = N_PAIRS,
                               .slot_bytes = slot_bytes,
                               .pad_bytes = (uint64_t)c->pad * size_of(c->dtype),
                               .src = rig_device(&c->rig, src, sizeof src),
                               .dst = rig_device(&c->rig, dst, sizeof dst),
                               .src_pool = c->v[0].windows};
    struct hb_k_windows strip = {.n_pairs = N_PAIRS,
                                 .dim = DIM,
                                 .width = c->width,
                                 .act_dtype = c->dtype,
                                 .max_draft = MAX_DRAFT,
                                 .src = dense.src,
                                 .dst = dense.dst,
                                 .windows = c->v[1].windows,
                                 .pool_pad = c->pad};
    const size_t bytes = c->n_pool * size_of(c->dtype);
    void *before = rig_host(&c->rig, c->v[0].conv.pool, bytes);
    dense.pool = rig_device(&c->rig, before, bytes);
    strip.pool = rig_device(&c->rig, before, bytes);
    assert_int_equal(c->rig.k->slots(&dense), HB_OK);
    assert_int_equal(c->rig.k->windows(&strip), HB_OK);
    void *a = rig_host(&c->rig, dense.pool, bytes);
    void *b = rig_host(&c->rig, strip.pool, bytes);
    assert_memory_equal(a, b, bytes);
    const size_t stride = slot_bytes + dense.pad_bytes;
    for (size_t slot = 0; slot <= N_SLOTS; slot++) {
        const int is_written = slot == 2 || slot == 6;
        const char *old = (const char *)before + slot * stride;
        const char *new_bytes = (const char *)a + slot * stride;
        assert_int_equal(memcmp(old, new_bytes, slot_bytes) != 0, is_written);
        assert_memory_equal(old + slot_bytes, new_bytes + slot_bytes, dense.pad_bytes);
    }
    strip.n_pairs = 0;
    assert_int_equal(c->rig.k->windows(&strip), HB_OK);
    free(before);
    free(a);
    free(b);
}

static void strips_hold_the_dense_windows(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        for (int32_t i = 0; i < 3 * 2 * 3; i++) {
            struct pair c;
            if (!rig_open(&c.rig, table, 1)) {
                continue;
            }
            open_pair(&c, table, 2 + i % 3, i / 3 % 2 != 0 ? HB_BF16 : HB_FP32, i / 6 * 5);
            check_strips(&c);
            check_copies(&c);
            rig_close(&c.rig);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strips_hold_the_dense_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
