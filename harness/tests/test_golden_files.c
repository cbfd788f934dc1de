/* SPDX-License-Identifier: Apache-2.0
 * Golden files: values that are not finite, producers' own results out of their bounds, and pipes
 * in the place of files are found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/safetensors.h"
#include "harness/tests/golden_place.h"

/* ---- values of tensor files ---- */

/* A copy of a case's file in which one element of a tensor is moved by, or becomes, a value. */
static void put_changed(const struct place *p, const char *from, const char *tensor, int64_t index,
                        double value, int is_move) {
    char path[PATH_CAP];
    struct hb_st_file f;
    struct hb_error err = {.struct_size = sizeof err};
    (void)snprintf(path, sizeof path, "%s/%s.safetensors", GOLDEN, from);
    assert_int_equal(hb_st_read(path, &f, &err), HB_OK);
    const struct hb_st_tensor *t = hb_st_find(&f, tensor);
    assert_non_null(t);
    uint8_t *data = f.memory + ((const uint8_t *)t->data - f.memory);
    const double v = is_move ? hb_st_get(t, index) + value : value;
    const float single = (float)v;
    if (t->dtype == HB_ST_F64) {
        memcpy(data + index * 8, &v, 8);
    } else if (t->dtype == HB_ST_F32) {
        memcpy(data + index * 4, &single, 4);
    } else {
        memcpy(data + index * 2, (const uint8_t *)&single + 2, 2); /* bf16: the upper half */
    }
    (void)snprintf(path, sizeof path, "%s/other.safetensors", p->dir);
    assert_int_equal(hb_st_write(path, f.tensor, f.n_tensors, &err), HB_OK);
    hb_st_free(&f);
}

static void a_number_that_is_not_finite_is_a_fault_of_the_file(void **state) {
    (void)state;
    static const struct {
        const char *name, *tensor;
        double value;
        const char *message;
    } bad[] = {
        {"mamba2_segments_g2", "exp64.y", (double)NAN,
         "mamba2_segments_g2: element 5 of tensor 'exp64.y' is nan, expected a finite float64"},
        {"mamba2_segments_g2", "exp64.ssm_state", (double)INFINITY,
         "element 5 of tensor 'exp64.ssm_state' is inf, expected a finite float64"},
        {"mamba2_segments_g2", "in.hidden_states", (double)NAN,
         "element 5 of tensor 'in.hidden_states' is nan, expected a finite float32"},
        {NORM, "exp64.y1", (double)NAN, "element 5 of tensor 'exp64.y1' is nan"},
        {SCAN, "init.state", -(double)INFINITY, "element 5 of tensor 'init.state' is -inf"},
        {"gdn_core_128", "in.g", (double)NAN, "element 5 of tensor 'in.g' is nan"},
        {"kda_kimi_segments", "exp64.ssm_state", (double)NAN,
         "kda_kimi_segments: element 5 of tensor 'exp64.ssm_state' is nan"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct place p;
        cJSON *m = NULL;
        open_place_with(&p, &m, bad[i].name);
        change(m, bad[i].name, NULL, "file", "\"other.safetensors\"");
        write_manifest(&p, m);
        put_changed(&p, bad[i].name, bad[i].tensor, 5, bad[i].value, 0);
        const int32_t status = check(&p);
        if (status != HB_ERR_PARSE || strstr(p.err.text, bad[i].message) == NULL) {
            fail_msg("tensor %zu: status %d, '%s'", i, status, p.err.text);
        }
        cJSON_Delete(m);
        close_place(&p);
    }
}

static void a_producers_own_result_is_judged(void **state) {
    (void)state;
    static const struct {
        const char *name, *tensor;
        double value;
        int is_move;
        int32_t failed;
        const char *message;
    } rows[] = {
        {"mamba2_segments_g2", "exp32.y", (double)NAN, 0, 1,
         "exp32.y, the producer's own result: sequence 0, token 0, channel 7: got nan"},
        {"mamba2_segments_g2", "exp32.y", (double)INFINITY, 0, 1, "channel 7: got inf"},
        {"mamba2_segments_g2", "exp32.y", 0.1, 1, 1, "exp32.y, the producer's own result"},
        {SCAN, "exp32.y", 0.1, 1, 1, "exp32.y, the producer's own result"},
        {SCAN, "expbf16.y", (double)NAN, 0, 1, "expbf16.y, the producer's own result"},
        {SCAN, "expbf16.y", 8.0, 1, 1, "expbf16.y, the producer's own result"},
        {NORM, "exp32.y2", (double)NAN, 0, 1, "exp32.y2, the producer's own result"},
        {NORM, "expbf16.y1", 1.0, 1, 1, "expbf16.y1, the producer's own result"},
        {SCAN, "exp32.y", 0.0, 1, 0, ""},
        {"gdn_core_gva_varlen", "exp32.y", 0.01, 1, 1, "exp32.y, the producer's own result"},
        {"gdn_core_gva_varlen", "expbf16.y", 1.0, 1, 1, "expbf16.y, the producer's own result"},
        {"kda_core_varlen", "expbf16.y", (double)NAN, 0, 1, "expbf16.y, the producer's own result"},
        {"kda_core_varlen", "expbf16.y", 1.0, 1, 1, "expbf16.y, the producer's own result"},
        {"lightning_core_varlen", "expbf16.y", 1.0, 1, 1, "expbf16.y, the producer's own result"},
        {"gdn_qwen3next_segments", "exp32.y", 0.1, 1, 1, "exp32.y, the producer's own result"},
        {"kda_kimi_segments", "exp32.y", 0.1, 1, 1, "exp32.y, the producer's own result"},
        {"kda_kimi_segments", "exp32.y", 0.0, 1, 0, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct place p;
        cJSON *m = NULL;
        open_place_with(&p, &m, rows[i].name);
        change(m, rows[i].name, NULL, "file", "\"other.safetensors\"");
        write_manifest(&p, m);
        put_changed(&p, rows[i].name, rows[i].tensor, 7, rows[i].value, rows[i].is_move);
        p.wanted = rows[i].failed ? rows[i].message : NULL;
        p.filter = rows[i].name;
        p.n_random = 0; /* it is judged on the stored segments */
        assert_int_equal(check(&p), HB_OK);
        if (p.failed != rows[i].failed || (rows[i].failed && p.found == 0)) {
            fail_msg("row %zu: %d failed, '%s'", i, p.failed, p.text);
        }
        cJSON_Delete(m);
        close_place(&p);
    }
}

/* ---- what is not a regular file ---- */

static void pipes_in_the_place_of_files_are_refused_and_not_waited_for(void **state) {
    (void)state;
    static const char *const names[3] = {"manifest.json", "other.safetensors", "cases.txt"};
    for (size_t i = 0; i < 3; i++) {
        struct place p;
        cJSON *m = NULL;
        char path[PATH_CAP];
        open_place(&p, &m);
        change(m, "mamba2_segments_g2", NULL, "file", "\"other.safetensors\"");
        write_manifest(&p, m);
        (void)snprintf(path, sizeof path, "%s/%s", p.dir, names[i]);
        (void)unlink(path); /* only the manifest is there */
        assert_int_equal(mkfifo(path, 0600), 0);
        (void)alarm(60); /* a reader that waits for a writer would wait for ever */
        assert_int_equal(check(&p), HB_ERR_IO);
        (void)alarm(0);
        assert_non_null(strstr(p.err.text, names[i]));
        assert_non_null(strstr(p.err.text, "not a regular file"));
        cJSON_Delete(m);
        close_place(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_that_is_not_finite_is_a_fault_of_the_file),
        cmocka_unit_test(a_producers_own_result_is_judged),
        cmocka_unit_test(pipes_in_the_place_of_files_are_refused_and_not_waited_for),
    };
    return cmocka_run_group_tests_name("golden_files", tests, NULL, NULL);
}
