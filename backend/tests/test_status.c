/* SPDX-License-Identifier: Apache-2.0
 * Texts of the error records and the tables behind them. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <limits.h>
#include <string.h>

#include "backend/status.h"

static void check_text(int32_t rule, int32_t row, int64_t value, int64_t limit, int32_t status,
                       const char *text) {
    struct hb_error err;
    hb_error_clear(&err);
    assert_int_equal(hb_fail(&err, rule, row, value, limit), status);
    assert_string_equal(err.text, text);
    assert_int_equal(err.status, status);
    assert_int_equal(err.rule, rule);
    assert_int_equal(err.row, row);
    assert_true(err.value == value && err.limit == limit);
}

static void status_seed_texts_are_exact(void **state) {
    (void)state;
    check_text(HB_RULE_ENTRY_REFUSED, -1, 0, 0, HB_ERR_NOT_IMPLEMENTED,
               "Mamba2AttnBackend's forward is called directly instead of through "
               "HybridLinearAttnBackend, "
               "as it supports mixed prefill and decode");
    check_text(HB_RULE_MODE_INVALID, -1, 7, 0, HB_ERR_INVALID_MODE,
               "Invalid forward mode: forward_batch.forward_mode=<ForwardMode.PREBUILT: 7>");
    check_text(HB_RULE_MODE_INVALID, -1, -1, 0, HB_ERR_INVALID_MODE,
               "Invalid forward mode: forward_batch.forward_mode=-1");
    check_text(HB_RULE_MODE_INVALID, -1, 0, 0, HB_ERR_INVALID_MODE,
               "Invalid forward mode: forward_batch.forward_mode=0");
    check_text(HB_RULE_MODE_INVALID, -1, 10, 0, HB_ERR_INVALID_MODE,
               "Invalid forward mode: forward_batch.forward_mode=10");
    check_text(HB_RULE_MODE_INVALID, -1, INT_MAX, 0, HB_ERR_INVALID_MODE,
               "Invalid forward mode: forward_batch.forward_mode=2147483647");
    check_text(HB_RULE_MODE_INVALID, -1, INT_MIN, 0, HB_ERR_INVALID_MODE,
               "Invalid forward mode: forward_batch.forward_mode=-2147483648");
    check_text(HB_RULE_MODE_UNSUPPORTED, -1, 5, 0, HB_ERR_UNSUPPORTED,
               "forward mode <ForwardMode.TARGET_VERIFY: 5> is not supported by this backend");
}

static void status_placeholders_are_filled(void **state) {
    (void)state;
    check_text(HB_RULE_START_LOC_VALUE, 3, -5, INT64_MAX, HB_ERR_SHAPE,
               "extend_start_loc[3] is -5, the exclusive prefix sum is 9223372036854775807");
    check_text(HB_RULE_CFG_GROUPS, -1, 4, 3, HB_ERR_SHAPE,
               "nheads must be divisible by ngroups: 4 % 3 != 0");
    check_text(HB_RULE_EXTEND_NUM_NULL, -1, 0, 0, HB_ERR_NULL,
               "extend_num_tokens is absent in an extend mode");
}

static void status_every_rule_has_a_complete_text(void **state) {
    (void)state;
    const int32_t *numbers;
    const int n = hb_rule_list(&numbers);
    assert_true(n > 80);
    for (int i = 0; i < n; i++) {
        struct hb_error err;
        assert_true(i == 0 || numbers[i] > numbers[i - 1]);
        assert_non_null(hb_rule_name(numbers[i]));
        assert_non_null(hb_rule_field(numbers[i]));
        assert_int_not_equal(hb_rule_status(numbers[i]), HB_OK);
        hb_error_clear(&err);
        (void)hb_fail(&err, numbers[i], INT_MAX, INT64_MIN, INT64_MIN);
        assert_null(strchr(err.text, '{'));
        assert_true(strlen(err.text) > 0 && strlen(err.text) < sizeof(err.text) - 1);
    }
}

static void status_first_failure_stays(void **state) {
    (void)state;
    struct hb_error err;
    hb_error_clear(&err);
    assert_int_equal(err.row, -1);
    assert_int_equal(hb_fail(&err, HB_RULE_REQ_NULL, -1, 0, 4), HB_ERR_NULL);
    assert_int_equal(hb_fail(&err, HB_RULE_REQ_RANGE, 1, 2, 3), HB_ERR_RANGE);
    assert_int_equal(hb_fail_text(&err, HB_ERR_IO, "%d", 1), HB_ERR_IO);
    assert_int_equal(err.rule, HB_RULE_REQ_NULL);
    assert_string_equal(err.text, "req_pool_indices is null, batch_size is 4");
}

static void status_null_record_is_allowed(void **state) {
    (void)state;
    hb_error_clear(NULL);
    assert_int_equal(hb_fail(NULL, HB_RULE_HANDLE_NULL, -1, 0, 0), HB_ERR_NULL);
    assert_int_equal(hb_fail_text(NULL, HB_ERR_MEMORY, "x"), HB_ERR_MEMORY);
}

static void status_free_text_is_cut_to_fit(void **state) {
    (void)state;
    struct hb_error err;
    char big[400];
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    hb_error_clear(&err);
    assert_int_equal(hb_fail_text(&err, HB_ERR_IO, "%s", big), HB_ERR_IO);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    assert_int_equal(err.rule, HB_RULE_NONE);
}

static void status_unknown_rule_is_never_ok(void **state) {
    (void)state;
    const int32_t numbers[] = {-1, 0, 6, 143, 226, INT_MAX, INT_MIN};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct hb_error err;
        hb_error_clear(&err);
        assert_int_not_equal(hb_fail(&err, numbers[i], 0, 0, 0), HB_OK);
        assert_null(hb_rule_name(numbers[i]));
        assert_null(hb_rule_field(numbers[i]));
    }
}

static void status_names(void **state) {
    (void)state;
    assert_string_equal(hb_status_name(HB_OK), "HB_OK");
    assert_string_equal(hb_status_name(HB_ERR_RANGE), "HB_ERR_RANGE");
    assert_string_equal(hb_status_name(13), "HB_STATUS_UNKNOWN");
    assert_string_equal(hb_status_name(INT_MIN), "HB_STATUS_UNKNOWN");
    assert_string_equal(hb_rule_name(HB_RULE_HANDLE_NULL), "HANDLE_NULL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_seed_texts_are_exact),
        cmocka_unit_test(status_placeholders_are_filled),
        cmocka_unit_test(status_every_rule_has_a_complete_text),
        cmocka_unit_test(status_first_failure_stays),
        cmocka_unit_test(status_null_record_is_allowed),
        cmocka_unit_test(status_free_text_is_cut_to_fit),
        cmocka_unit_test(status_unknown_rule_is_never_ok),
        cmocka_unit_test(status_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
