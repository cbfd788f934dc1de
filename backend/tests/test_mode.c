/* SPDX-License-Identifier: Apache-2.0
 * Mode predicates against the table of forward-batch.md section 1, written out as sets. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <limits.h>
#include <string.h>

#include "backend/mode.h"

struct row {
    enum hb_mode_predicate predicate;
    const char *modes; /* digits of the modes for which it is true */
};

static const struct row rows[] = {
    {HB_MODE_IS_EXTEND, "13589"},
    {HB_MODE_IS_EXTEND_V2, "135689"},
    {HB_MODE_IS_EXTEND_WITHOUT_SPECULATIVE, "1389"},
    {HB_MODE_IS_CONTEXT_PARALLEL_EXTEND, "13"},
    {HB_MODE_IS_CONTEXT_PARALLEL_EXTEND_V2, "136"},
    {HB_MODE_IS_EXTEND_OR_DRAFT_EXTEND_OR_MIXED, "138"},
    {HB_MODE_IS_EXTEND_OR_DRAFT_EXTEND_OR_MIXED_V2, "1368"},
    {HB_MODE_IS_DECODE, "2"},
    {HB_MODE_IS_IDLE, "4"},
    {HB_MODE_IS_MIXED, "3"},
    {HB_MODE_IS_DECODE_OR_IDLE, "24"},
    {HB_MODE_IS_TARGET_VERIFY, "5"},
    {HB_MODE_IS_DRAFT_EXTEND_V2, "6"},
    {HB_MODE_IS_PREBUILT, "7"},
    {HB_MODE_IS_SPLIT_PREFILL, "8"},
    {HB_MODE_IS_DLLM_EXTEND, "9"},
    {HB_MODE_IS_CUDA_GRAPH, "2459"},
    {HB_MODE_IS_CPU_GRAPH, "2"},
    {HB_MODE_EAGER_VALID, "12345689"},
    {HB_MODE_GRAPH_INIT_VALID, "245"},
    {HB_MODE_SUPPORTED, "12345689"},
};

static void mode_predicates_match_the_table(void **state) {
    (void)state;
    assert_int_equal(sizeof(rows) / sizeof(rows[0]), HB_N_MODE_PREDICATES);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int32_t mode = -3; mode <= 40; mode++) {
            const int32_t want =
                mode >= 1 && mode <= 9 && strchr(rows[i].modes, '0' + mode) != NULL;
            assert_int_equal(hb_mode_is(mode, rows[i].predicate), want);
        }
    }
}

static void mode_wild_values_satisfy_nothing(void **state) {
    (void)state;
    const int32_t wild[] = {INT_MAX, INT_MIN, 33, -31, 257};
    for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        for (int p = 0; p < HB_N_MODE_PREDICATES; p++) {
            assert_int_equal(hb_mode_is(wild[i], (enum hb_mode_predicate)p), 0);
        }
        assert_null(hb_mode_name(wild[i]));
    }
    assert_int_equal(hb_mode_is(1, HB_N_MODE_PREDICATES), 0);
}

static void mode_names(void **state) {
    (void)state;
    assert_string_equal(hb_mode_name(1), "EXTEND");
    assert_string_equal(hb_mode_name(6), "DRAFT_EXTEND_V2");
    assert_string_equal(hb_mode_name(9), "DLLM_EXTEND");
    assert_null(hb_mode_name(0));
    assert_null(hb_mode_name(10));
}

static void mode_supported_mask_has_a_bit_per_mode(void **state) {
    (void)state;
    assert_int_equal(hb_mode_supported_mask(), 0x37e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mode_predicates_match_the_table),
        cmocka_unit_test(mode_wild_values_satisfy_nothing),
        cmocka_unit_test(mode_names),
        cmocka_unit_test(mode_supported_mask_has_a_bit_per_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
