/* SPDX-License-Identifier: Apache-2.0
 * The two tables: what they say of themselves, and device memory. */
#include "kernels/tests/rig.h"

static void emulated_table_is_host_code(void **state) {
    (void)state;
    const struct hb_kernels *k = hb_kernels_emu();
    assert_int_equal(k->struct_size, sizeof *k);
    assert_string_equal(k->name, "emu");
    assert_int_equal(k->is_device_code, 0);
    assert_ptr_equal(k, hb_kernels_emu());
#ifdef HB_ASAN
    assert_int_equal(k->exact_guards, 1);
#endif
}

static void cuda_table_was_compiled_as_device_code(void **state) {
    (void)state;
#ifdef HB_HAVE_CUDA
    const struct hb_kernels *k = hb_kernels_cuda();
    assert_string_equal(k->name, "cuda");
    assert_int_equal(k->is_device_code, 1);
#else
    skip();
#endif
}

static void cuda_without_a_device_says_why(void **state) {
    (void)state;
#ifdef HB_HAVE_CUDA
    const struct hb_kernels *k = hb_kernels_cuda();
    const int32_t status = k->open();
    assert_true(status == HB_OK || (status == HB_ERR_DEVICE && k->error_text()[0]));
#else
    skip();
#endif
}

static void every_entry_is_set(void **state) {
    (void)state;
    const struct hb_kernels *k = hb_kernels_emu();
    assert_true(k->error_text && k->open && k->mem_alloc && k->mem_free && k->to_device &&
                k->to_host && k->fill);
    assert_true(k->sync && k->set_order && k->launches && k->conv_prefill && k->conv_update &&
                k->conv_track);
    assert_true(k->ssd_prefill && k->ssm_update && k->gated_norm && k->slots && k->kv_write &&
                k->attention && k->conv_verify && k->ssm_verify);
}

static void memory_is_poisoned_copied_and_filled(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct rig rig;
        if (!rig_open(&rig, table, 1)) {
            continue;
        }
        for (int round = 0; round < 2;
             round++) { /* the second block may be the first one, used again */
            unsigned char bytes[300];
            void *block = NULL;
            assert_int_equal(rig.k->mem_alloc(sizeof bytes, &block), HB_OK);
            assert_int_equal(rig.k->to_host(bytes, block, sizeof bytes), HB_OK);
            for (size_t i = 0; i < sizeof bytes; i++) {
                assert_int_equal(bytes[i], 0xff);
                bytes[i] = (unsigned char)i;
            }
            assert_int_equal(rig.k->to_device(block, bytes, sizeof bytes), HB_OK);
            assert_int_equal(rig.k->fill(block, 7, 10), HB_OK);
            assert_int_equal(rig.k->to_host(bytes, block, sizeof bytes), HB_OK);
            for (size_t i = 0; i < sizeof bytes; i++) {
                assert_int_equal(bytes[i], i < 10 ? 7 : (unsigned char)i);
            }
            rig.k->mem_free(block);
        }
        rig.k->mem_free(NULL);
    }
}

static void memory_that_nobody_has_is_refused(void **state) {
    (void)state;
    for (int table = 0; table < 2; table++) {
        struct rig rig;
        if (!rig_open(&rig, table, 1)) {
            continue;
        }
        void *block = &rig;
        assert_int_equal(rig.k->mem_alloc((uint64_t)1 << 45, &block), HB_ERR_MEMORY);
        assert_ptr_equal(block, &rig);
        assert_non_null(strstr(rig.k->error_text(), "no device memory"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(emulated_table_is_host_code),
        cmocka_unit_test(cuda_table_was_compiled_as_device_code),
        cmocka_unit_test(cuda_without_a_device_says_why),
        cmocka_unit_test(every_entry_is_set),
        cmocka_unit_test(memory_is_poisoned_copied_and_filled),
        cmocka_unit_test(memory_that_nobody_has_is_refused),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
