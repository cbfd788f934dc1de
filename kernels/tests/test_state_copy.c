/* SPDX-License-Identifier: Apache-2.0
 * Slot copies and cache writes: every byte, and no other byte. */
#include "kernels/tests/rig.h"

enum { N_SLOTS = 9 };

/* Copies or zero-fills pairs and compares with memcpy; bytes of all sizes, so words and single
 * bytes are both used. */
static void check_slots(int table, size_t slot_bytes, int is_zero) {
    struct rig rig;
    if (!rig_open(&rig, table, 1)) {
        return;
    }
    const int32_t src[5] = {1, 3, -1, 5, 0};
    const int32_t dst[5] = {2, 8, 4, -1, 7};
    unsigned char *want = malloc(N_SLOTS * slot_bytes);
    assert_non_null(want);
    for (size_t i = 0; i < N_SLOTS * slot_bytes; i++) {
        want[i] = (unsigned char)(i * 31 + i / 256);
    }
    const struct hb_k_slots args = {.n_pairs = 5,
                                    .slot_bytes = slot_bytes,
                                    .src = is_zero ? NULL : rig_device(&rig, src, sizeof src),
                                    .dst = rig_device(&rig, dst, sizeof dst),
                                    .pool = rig_device(&rig, want, N_SLOTS * slot_bytes)};
    for (int i = 0; i < 5; i++) {
        if (dst[i] >= 0 && is_zero) {
            memset(want + (size_t)dst[i] * slot_bytes, 0, slot_bytes);
        } else if (dst[i] >= 0 && src[i] >= 0) {
            memcpy(want + (size_t)dst[i] * slot_bytes, want + (size_t)src[i] * slot_bytes,
                   slot_bytes);
        }
    }
    assert_int_equal(rig.k->slots(&args), HB_OK);
    void *got = rig_host(&rig, args.pool, N_SLOTS * slot_bytes);
    assert_memory_equal(got, want, N_SLOTS * slot_bytes);
    free(got);
    free(want);
    rig_close(&rig);
}

static void slots_are_copied_or_cleared_exactly(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 2, 4, 62, 64, 66, 68, 130, 1000, 4098};
    for (int i = 0; i < 4 * (int)(sizeof sizes / sizeof *sizes); i++) {
        check_slots(i & 1, sizes[i / 4], i >> 1 & 1);
    }
}

/* Entries of another array, as a commit copies them: there are more of them than slots. */
static void slots_come_from_another_array_exactly(void **state) {
    (void)state;
    static const size_t sizes[] = {2, 64, 66, 132};
    enum { N_ENTRIES = 20 };
    const int32_t src[4] = {19, 0, -1, 7};
    const int32_t dst[4] = {1, 8, 2, -1};
    for (int i = 0; i < 8; i++) {
        const size_t bytes = sizes[i / 2];
        struct rig rig;
        if (!rig_open(&rig, i & 1, 1)) {
            continue;
        }
        unsigned char pool[N_SLOTS * 132];
        unsigned char entries[N_ENTRIES * 132];
        for (size_t k = 0; k < sizeof entries; k++) {
            entries[k] = (unsigned char)(k * 7 + k / 256);
        }
        memset(pool, 0x55, sizeof pool);
        const struct hb_k_slots args = {.n_pairs = 4,
                                        .slot_bytes = bytes,
                                        .src = rig_device(&rig, src, sizeof src),
                                        .dst = rig_device(&rig, dst, sizeof dst),
                                        .pool = rig_device(&rig, pool, N_SLOTS * bytes),
                                        .src_pool = rig_device(&rig, entries, N_ENTRIES * bytes)};
        assert_int_equal(rig.k->slots(&args), HB_OK);
        memcpy(pool + bytes, entries + 19 * bytes, bytes);
        memcpy(pool + 8 * bytes, entries, bytes);
        void *got = rig_host(&rig, args.pool, N_SLOTS * bytes);
        assert_memory_equal(got, pool, N_SLOTS * bytes);
        free(got);
        got = rig_host(&rig, args.src_pool, N_ENTRIES * bytes);
        assert_memory_equal(got, entries, N_ENTRIES * bytes);
        free(got);
        rig_close(&rig);
    }
}

static void check_kv_write(int table, int32_t dtype) {
    struct rig rig;
    if (!rig_open(&rig, table, 2)) {
        return;
    }
    enum { ROW = 6, TOKENS = 4, KV = 9 };
    const int32_t loc[TOKENS] = {3, -1, 8, 1};
    struct array k = array_random(&rig, TOKENS * ROW, dtype, 1.0f);
    struct array v = array_random(&rig, TOKENS * ROW, dtype, 1.0f);
    struct array cache = array_random(&rig, KV * ROW, dtype, 1.0f);
    const struct hb_k_kv_write args = {.n_tokens = TOKENS,
                                       .row_elems = ROW,
                                       .act_dtype = dtype,
                                       .loc = rig_device(&rig, loc, sizeof loc),
                                       .k = array_device(&rig, &k),
                                       .v = array_device(&rig, &v),
                                       .k_buf = array_device(&rig, &cache),
                                       .v_buf = array_device(&rig, &cache)};
    assert_int_equal(rig.k->kv_write(&args), HB_OK);
    struct array got_k = array_read(&rig, args.k_buf, cache.n, dtype);
    struct array got_v = array_read(&rig, args.v_buf, cache.n, dtype);
    for (size_t i = 0; i < cache.n; i++) {
        double want_k = cache.wide[i];
        double want_v = cache.wide[i];
        for (size_t t = 0; t < TOKENS; t++) {
            if (loc[t] == (int32_t)(i / ROW)) {
                want_k = k.wide[t * ROW + i % ROW];
                want_v = v.wide[t * ROW + i % ROW];
            }
        }
        assert_true(got_k.wide[i] == want_k && got_v.wide[i] == want_v);
    }
    struct array *arrays[] = {&k, &v, &cache, &got_k, &got_v};
    for (size_t i = 0; i < 5; i++) {
        array_free(arrays[i]);
    }
    rig_close(&rig);
}

static void keys_and_values_go_to_their_slots_only(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        check_kv_write(i & 1, i >> 1);
    }
}

static void empty_launches_do_nothing(void **state) {
    (void)state;
    struct rig rig;
    assert_true(rig_open(&rig, 0, 2));
    const uint64_t before = rig.k->launches();
    const struct hb_k_slots slots = {0};
    const struct hb_k_kv_write kv = {0};
    const struct hb_k_conv conv = {.dim = 4, .width = 2};
    const struct hb_k_conv_track track = {.dim = 4, .width = 2};
    const struct hb_k_ssm ssm = {
        .n_heads = 1, .head_dim = 1, .state_size = 1, .n_groups = 1, .chunk_size = 1};
    const struct hb_k_norm norm = {.d_inner = 1, .norm_group = 1};
    const struct hb_k_attention attention = {.n_q_heads = 1, .n_kv_heads = 1, .attn_dim = 1};
    assert_int_equal(rig.k->slots(&slots), HB_OK);
    assert_int_equal(rig.k->kv_write(&kv), HB_OK);
    assert_int_equal(rig.k->conv_prefill(&conv), HB_OK);
    assert_int_equal(rig.k->conv_update(&conv), HB_OK);
    assert_int_equal(rig.k->conv_track(&track), HB_OK);
    assert_int_equal(rig.k->ssd_prefill(&ssm), HB_OK);
    assert_int_equal(rig.k->ssm_update(&ssm), HB_OK);
    assert_int_equal(rig.k->gated_norm(&norm), HB_OK);
    assert_int_equal(rig.k->attention(&attention), HB_OK);
    assert_int_equal(rig.k->launches(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_copied_or_cleared_exactly),
        cmocka_unit_test(slots_come_from_another_array_exactly),
        cmocka_unit_test(keys_and_values_go_to_their_slots_only),
        cmocka_unit_test(empty_launches_do_nothing),
    };
    return cmocka_run_group_tests_name("state_copy", tests, NULL, NULL);
}
