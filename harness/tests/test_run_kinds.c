/* SPDX-License-Identifier: Apache-2.0
 * The executor over the kinds of linear layers: histories by hand in all of them, with their
 * variants; references that start from the stored state; and the controls of what only these kinds
 * have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "backend/defects.h"
#include "harness/record.h"
#include "harness/tests/kind_cases.h"
#include "harness/tests/mischief.h"

/* --- right backends --------------------------------------------------------------------------- */

static void pass_all(const struct hb_adapter *backend, int32_t draws, struct hb_run_stats *s) {
    for (int32_t k = 0; k < HB_N_MIXERS * N_HISTORIES * draws; k++) {
        const int32_t mixer = k % HB_N_MIXERS;
        const int32_t history = k / HB_N_MIXERS % N_HISTORIES;
        struct hb_rng g = hb_rng_make((uint64_t)k, 0x6b696e6473u);
        struct hb_case c;
        struct hb_verdict v;
        make_kind(&g, mixer, histories[history], &c);
        assert_int_equal(hb_run_case(backend, &c, NULL, &v, s), 0);
        if (v.kind != HB_VERDICT_PASS) {
            fail_msg("mixer %d history %d draw %d: %s %s: %s", mixer, history, k, v.check, v.place,
                     v.text);
        }
    }
}

/* Every operation was compared, in both forms and all types. */
static void every_op_is_seen(const struct hb_run_stats *s) {
    for (int op = 0; op < HB_N_OPS; op++) {
        for (int form = 0; form < HB_N_FORMS; form++) {
            const int is_state = strstr(hb_op_name(op), ".state") != NULL;
            for (int d = 0; d < (is_state ? 2 : HB_N_FLOAT_DTYPES); d++) {
                assert_true(s->elements[op][form][d] > 0 && s->max_ratio[op][form][d] <= 1.0);
            }
        }
    }
}

static void every_kind_passes_on_the_oracle(void **state) {
    (void)state;
    struct hb_run_stats s = {0};
    pass_all(hb_adapter_oracle(), 4, &s);
    every_op_is_seen(&s);
}

static void every_kind_passes_on_the_emulator(void **state) {
    (void)state;
    struct hb_run_stats s = {0};
    pass_all(hb_adapter_emu(), 4, &s);
    every_op_is_seen(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_passes_on_the_oracle),
        cmocka_unit_test(every_kind_passes_on_the_emulator),
    };
    return cmocka_run_group_tests_name("run_kinds", tests, NULL, NULL);
}
