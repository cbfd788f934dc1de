/* SPDX-License-Identifier: Apache-2.0
 * Rules of begin, layer, finish and the entries; a refused call changes no byte. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "backend/tests/world.h"

static void hybrid_layer_and_finish_rules(void **state) {
    (void)state;
    struct io io;
    const struct row rows[] = {{1, 5, 0, 0}};
    open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    take(1);
    check_error(w.a->layer(NULL, 0, NULL, &w.err), HB_RULE_HANDLE_NULL, -1);
    check_error(w.a->finish(NULL, &w.err), HB_RULE_HANDLE_NULL, -1);
    check_error(w.a->begin(NULL, NULL, &w.err), HB_RULE_HANDLE_NULL, -1);
    check_error(w.a->begin(w.h, NULL, &w.err), HB_RULE_BATCH_NULL, -1);
    check_error(w.a->layer(w.h, 77, NULL, &w.err), HB_RULE_NO_METADATA, -1);
    check_error(w.a->finish(w.h, &w.err), HB_RULE_NO_METADATA, -1);
    make_batch(HB_MODE_EXTEND, 1, rows, 1, 1);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    make_io(&io, 0, 1, rows);
    const size_t n = dump(dump_a, sizeof(dump_a));
    check_error(w.a->layer(w.h, 0, NULL, &w.err), HB_RULE_IO_NULL, 0);
    struct hb_layer_io bad = io.io;
    memset(&bad.in[2], 0, sizeof(bad.in[2]));
    check_error(w.a->layer(w.h, 99, &bad, &w.err), HB_RULE_IO_NULL, 2);
    memset(&bad.out, 0, sizeof(bad.out));
    bad.in[2] = io.io.in[2];
    check_error(w.a->layer(w.h, 0, &bad, &w.err), HB_RULE_IO_NULL, 3);
    bad.out = io.io.out;
    bad.in[1].bytes--;
    bad.out.bytes = 0;
    check_error(w.a->layer(w.h, 0, &bad, &w.err), HB_RULE_IO_BYTES, 1);
    assert_true(w.err.limit == 6 * DIM * 4 && w.err.value == 6 * DIM * 4 - 1);
    bad.in[1] = io.io.in[1];
    bad.out = io.io.out;
    bad.out.offset = 4; /* says more than the allocation holds */
    check_error(w.a->layer(w.h, 0, &bad, &w.err), HB_RULE_IO_BYTES, 3);
    check_error(w.a->layer(w.h, LAYERS, &io.io, &w.err), HB_RULE_LAYER_RANGE, -1);
    check_error(w.a->layer(w.h, -1, &io.io, &w.err), HB_RULE_LAYER_RANGE, -1);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    assert_int_equal(w.a->layer(w.h, 0, &io.io, &w.err), HB_OK);
    check_error(w.a->layer(w.h, 0, NULL, &w.err), HB_RULE_LAYER_TWICE, -1);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    check_error(w.a->finish(w.h, &w.err), HB_RULE_NO_METADATA, -1);
    check_error(w.a->layer(w.h, 0, &io.io, &w.err), HB_RULE_NO_METADATA, -1);
    free_io(&io);
    close_world();
}

static void hybrid_entries(void **state) {
    (void)state;
    struct io io;
    const struct row rows[] = {{1, 5, 0, 0}};
    for (int32_t direction = -1; direction < 3; direction++) {
        open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
        take(1);
        const struct hb_adapter *a = w.a;
        check_error(a->entry(NULL, HB_ENTRY_CHILD, direction, 0, NULL, &w.err),
                    HB_RULE_ENTRY_REFUSED, -1);
        assert_string_equal(w.err.text, HB_SEED_A_TEXT);
        check_error(a->entry(w.h, HB_ENTRY_CHILD, direction, -5, NULL, &w.err),
                    HB_RULE_ENTRY_REFUSED, -1);
        check_error(a->entry(NULL, HB_ENTRY_WRAPPER, direction, 0, NULL, &w.err),
                    HB_RULE_HANDLE_NULL, -1);
        check_error(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 0, NULL, &w.err),
                    HB_RULE_ENTRY_REFUSED, -1);
        check_error(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 1, NULL, &w.err),
                    HB_RULE_NO_METADATA, -1);
        check_error(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 9, NULL, &w.err),
                    HB_RULE_NO_METADATA, -1);
        make_batch(HB_MODE_EXTEND, 1, rows, 0, 1);
        assert_int_equal(a->begin(w.h, &w.f.batch, &w.err), HB_OK);
        make_io(&io, 1, 1, rows);
        check_error(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 2, &io.io, &w.err),
                    HB_RULE_ENTRY_REFUSED, -1);
        check_error(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 1, NULL, &w.err), HB_RULE_IO_NULL,
                    0);
        check_error(a->entry(w.h, 55, direction, LAYERS, &io.io, &w.err), HB_RULE_LAYER_RANGE, -1);
        assert_int_equal(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 1, &io.io, &w.err), HB_OK);
        assert_int_equal(count_wrong(&io, 1, 1, rows), 0);
        check_error(a->entry(w.h, HB_ENTRY_WRAPPER, direction, 1, &io.io, &w.err),
                    HB_RULE_LAYER_TWICE, -1);
        check_error(a->layer(w.h, 1, &io.io, &w.err), HB_RULE_LAYER_TWICE, -1);
        free_io(&io);
        make_batch(HB_MODE_IDLE, 0, NULL, 2, 3);
        assert_int_equal(a->begin(w.h, &w.f.batch, &w.err), HB_OK);
        for (int32_t l = 0; l < LAYERS; l++) {
            make_io(&io, l, 0, NULL);
            for (int32_t again = 0; again < 2; again++) { /* nothing runs, so nothing has run */
                assert_int_equal(a->entry(w.h, HB_ENTRY_WRAPPER, direction, l, &io.io, &w.err),
                                 HB_OK);
                assert_int_equal(count_wrong(&io, l, 0, NULL), 0);
            }
            free_io(&io);
        }
        close_world();
    }
}

static void hybrid_failing_begin_keeps_metadata_and_bytes(void **state) {
    (void)state;
    struct io io;
    const struct row rows[] = {{1, 5, 0, 0}};
    open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, 0);
    take(1);
    make_batch(HB_MODE_EXTEND, 1, rows, 0, 0);
    assert_int_equal(w.a->begin(w.h, &w.f.batch, &w.err), HB_OK);
    const size_t n = dump(dump_a, sizeof(dump_a));
    w.f.batch.forward_mode = 7;
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_MODE_INVALID, -1);
    w.f.batch.forward_mode = 1;
    w.f.req[0] = 5; /* an unmapped request */
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_SLOT_RANGE, 0);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_memory_equal(dump_a, dump_b, n);
    memset(&w.f.ext, 0xff, sizeof(w.f.ext)); /* the batch is the caller's again after begin */
    make_batch(HB_MODE_EXTEND, 1, rows, 0, 0);
    make_io(&io, 0, 1, rows);
    assert_int_equal(w.a->layer(w.h, 0, &io.io, &w.err), HB_OK);
    assert_int_equal(count_wrong(&io, 0, 1, rows), 0);
    free_io(&io);
    assert_int_equal(w.a->finish(w.h, &w.err), HB_OK);
    close_world();
}

/* The child of a model without linear layers refuses as Mamba2 does. */
static void hybrid_entries_without_linear_layers(void **state) {
    (void)state;
    const struct hb_layer_params params = {0};
    memset(&w, 0, sizeof(w));
    w.a = hb_adapter_emu();
    fixture_config(&w.config);
    w.config.n_layers = 1;
    w.config.layer_kind[0] = HB_LAYER_ATTENTION;
    assert_int_equal(w.a->create(w.a->ctx, &w.config, &params, &w.h, &w.err), HB_OK);
    for (int32_t direction = 0; direction < 2; direction++) {
        check_error(w.a->entry(w.h, HB_ENTRY_CHILD, direction, 0, NULL, &w.err),
                    HB_RULE_ENTRY_REFUSED, -1);
        check_error(w.a->entry(w.h, HB_ENTRY_WRAPPER, direction, 0, NULL, &w.err),
                    HB_RULE_NO_METADATA, -1);
    }
    close_world();
}

static void hybrid_impure_error_defect_writes(void **state) {
    (void)state;
    const struct row rows[] = {{1, 5, 0, 0}};
    open_world(HB_FP32, HB_FORM_V0, HB_ORDER_ASCENDING, HB_DEFECT_IMPURE_ERROR);
    make_batch(HB_MODE_EXTEND, 1, rows, 0, 0);
    const size_t n = dump(dump_a, sizeof(dump_a));
    check_error(w.a->begin(w.h, &w.f.batch, &w.err), HB_RULE_SLOT_RANGE, 0);
    assert_int_equal(dump(dump_b, sizeof(dump_b)), n);
    assert_int_equal(memcmp(dump_a, dump_b, n) != 0, HB_DEFECT(w.config.defect, IMPURE_ERROR));
    close_world();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hybrid_layer_and_finish_rules),
        cmocka_unit_test(hybrid_entries),
        cmocka_unit_test(hybrid_failing_begin_keeps_metadata_and_bytes),
        cmocka_unit_test(hybrid_entries_without_linear_layers),
        cmocka_unit_test(hybrid_impure_error_defect_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
