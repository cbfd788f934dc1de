/* SPDX-License-Identifier: Apache-2.0
 * Explanations: the predicted statuses are those that a run is judged by, and the bound of an
 * element is the one that the run compared with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "harness/explain.h"
#include "harness/gen.h"
#include "harness/run.h"
#include "harness/tests/hand_case.h"
#include "harness/tests/mischief.h"

static void two_extends(struct hb_case *c) {
    struct hb_case_step *s = hand_forward(c, HB_MODE_EXTEND);
    hand_row(s, 0, 10);
    hand_row(s, 1, 19);
}

static const char *text_of(const cJSON *item, const char *name) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(item, name);
    return cJSON_IsString(field) ? field->valuestring : "";
}

static int number_of(const cJSON *item, const char *name) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(item, name);
    assert_true(cJSON_IsNumber(field));
    return field->valueint;
}

static cJSON *predict(const struct hb_case *c) {
    char *text = hb_explain_predicted(c);
    assert_non_null(text);
    cJSON *root = cJSON_Parse(text);
    free(text);
    assert_non_null(root);
    return root;
}

static void every_forward_and_every_refusal_of_a_broken_case_is_listed(void **state) {
    (void)state;
    static const struct {
        int step, row;
        const char *call, *status, *rule, *text;
    } want[] = {
        {4, -1, "begin", "HB_OK", "", ""},
        {5, 1, "begin", "HB_ERR_RANGE", "PREFIX_SUM",
         "prefix + extend of row 1 is 43, seq_lens says 44"},
        {6, -1, "begin", "HB_ERR_INVALID_MODE", "MODE_INVALID",
         "Invalid forward mode: forward_batch.forward_mode=<ForwardMode.PREBUILT: 7>"},
        {7, 0, "slot_free", "HB_ERR_RANGE", "OP_SLOT_RANGE", "slot 99 is outside 1..6"},
        {8, -1, "entry", "HB_ERR_NOT_IMPLEMENTED", "ENTRY_REFUSED",
         "Mamba2AttnBackend's forward is called directly instead of through "
         "HybridLinearAttnBackend, as it supports mixed prefill and decode"},
        {9, -1, "begin", "HB_OK", "", ""},
    };
    struct hb_case c;
    hand_init(&c);
    two_extends(&c);
    two_extends(&c);
    hand_break(&c, HB_FIELD_SEQ_LENS, 1, HB_BREAK_ADD, 1);
    two_extends(&c);
    c.step[c.n_steps - 1].mode = HB_MODE_PREBUILT;
    (void)hand_step(&c, HB_STEP_FREE);
    hand_break(&c, HB_FIELD_SLOT_ID, 0, HB_BREAK_SET, 99);
    struct hb_case_step *s = hand_step(&c, HB_STEP_ENTRY);
    s->n_rows = 0;
    s->null_args = 1;
    two_extends(&c);
    hb_case_normalize(&c);
    cJSON *root = predict(&c);
    const cJSON *calls = cJSON_GetObjectItemCaseSensitive(root, "calls");
    assert_int_equal(cJSON_GetArraySize(calls), (int)(sizeof want / sizeof *want));
    for (int i = 0; i < cJSON_GetArraySize(calls); i++) {
        const cJSON *item = cJSON_GetArrayItem(calls, i);
        assert_int_equal(number_of(item, "step"), want[i].step);
        assert_string_equal(text_of(item, "call"), want[i].call);
        assert_string_equal(text_of(item, "status"), want[i].status);
        assert_string_equal(text_of(item, "rule"), want[i].rule);
        assert_string_equal(text_of(item, "text"), want[i].text);
        if (want[i].rule[0]) {
            assert_int_equal(number_of(item, "row"), want[i].row);
        }
    }
    cJSON_Delete(root);
}

static void a_refused_configuration_is_the_only_entry(void **state) {
    (void)state;
    struct hb_case c;
    hand_init(&c);
    two_extends(&c);
    hand_break(&c, HB_FIELD_CFG_CHUNK_SIZE, 0, HB_BREAK_SET, 7);
    hb_case_normalize(&c);
    cJSON *root = predict(&c);
    const cJSON *calls = cJSON_GetObjectItemCaseSensitive(root, "calls");
    assert_int_equal(cJSON_GetArraySize(calls), 1);
    const cJSON *item = cJSON_GetArrayItem(calls, 0);
    assert_int_equal(number_of(item, "step"), -1);
    assert_string_equal(text_of(item, "call"), "create");
    assert_string_equal(text_of(item, "text"), "chunk_size must be integer power of 2, got 7");
    cJSON_Delete(root);
}

struct expected {
    const cJSON *next;
    int n;
};

static void same_prediction(void *ctx, int32_t step, const char *call,
                            const struct hb_error *want) {
    struct expected *e = ctx;
    const int is_told = strcmp(call, "begin") == 0 || strcmp(call, "graph_init") == 0 ||
                        strcmp(call, "capture") == 0 || strcmp(call, "replay") == 0;
    if (want->status == HB_OK && !is_told) {
        return;
    }
    assert_non_null(e->next);
    assert_int_equal(number_of(e->next, "step"), step);
    assert_string_equal(text_of(e->next, "call"), call);
    assert_string_equal(text_of(e->next, "status"), hb_status_name(want->status));
    assert_string_equal(text_of(e->next, "text"), want->text);
    e->next = e->next->next;
    e->n++;
}

static void a_run_on_the_emulator_is_judged_by_the_same_predictions(void **state) {
    (void)state;
    struct hb_gen_options g;
    int n = 0;
    hb_gen_options_init(&g);
    for (uint64_t i = 0; i < 200; i++) {
        struct hb_case c;
        struct hb_verdict v;
        hb_gen_case(&g, 31, i, &c);
        cJSON *root = predict(&c);
        struct expected e = {cJSON_GetObjectItemCaseSensitive(root, "calls")->child, 0};
        const struct hb_run_options o = {
            .tamper_element = -1, .predicted = same_prediction, .predicted_ctx = &e};
        assert_int_equal(hb_run_case(hb_adapter_emu(), &c, &o, &v, NULL), 0);
        assert_string_equal(v.text, "");
        assert_null(e.next);
        n += e.n;
        cJSON_Delete(root);
    }
    assert_true(n > 200);
}

/* explain F | explain - gives the bytes of explain F. */
static void a_prediction_inside_a_case_is_ignored_when_read(void **state) {
    (void)state;
    struct hb_case c, back;
    struct hb_error e = {.struct_size = sizeof e};
    hand_init(&c);
    two_extends(&c);
    hand_break(&c, HB_FIELD_SEQ_LENS, 1, HB_BREAK_ADD, 1);
    hb_case_normalize(&c);
    char *predicted = hb_explain_predicted(&c);
    char *text = hb_case_to_json(&c, predicted);
    assert_non_null(strstr(text, "\"predicted\""));
    assert_int_equal(hb_case_from_json(text, strlen(text), &back, &e), HB_OK);
    assert_memory_equal(&back, &c, sizeof c);
    char *predicted_again = hb_explain_predicted(&back);
    char *text_again = hb_case_to_json(&back, predicted_again);
    assert_string_equal(text_again, text);
    free(predicted);
    free(text);
    free(predicted_again);
    free(text_again);
}

/* --- bounds ----------------------------------------------------------------------------------- */

struct used {
    const struct hb_case *c;
    int n;
};

static void assert_says(const char *text, const char *format, double number) {
    char part[64];
    (void)snprintf(part, sizeof part, format, number);
    if (!strstr(text, part)) {
        fail_msg("'%s' does not say '%s'", text, part);
    }
}

static void explain_token(void *ctx, int32_t step, int32_t layer, int64_t token, int32_t n,
                          const double *want, const double *bound, const double *mag) {
    struct used *u = ctx;
    struct hb_error e = {.struct_size = sizeof e};
    char text[512];
    const int32_t channel = (int32_t)(token * 5 + layer) % n; /* one of each token */
    assert_int_equal(hb_explain_bound(u->c, step, layer, token, channel, text, sizeof text, &e),
                     HB_OK);
    assert_says(text, ": value %.17g,", want[channel]);
    assert_says(text, "bound %.6g (", bound[channel]);
    assert_says(text, "magnitude %.6g,", mag[channel]);
    u->n++;
}

static void a_bound_is_the_one_that_the_run_compared_with(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct hb_case c;
        struct hb_verdict v;
        hand_init(&c);
        c.config.kernel_form = k & 1;
        c.config.act_dtype = k >> 1;
        c.config.relation = 12; /* the bound is that of the case itself, not of its second run */
        two_extends(&c);
        struct hb_case_step *s = hand_forward(&c, HB_MODE_DECODE);
        hand_row(s, 1, 1);
        hb_case_normalize(&c);
        struct used u = {&c, 0};
        struct hb_case plain = c;
        plain.config.relation = 0;
        const struct hb_run_options o = {
            .tamper_element = -1, .see_token = explain_token, .see_token_ctx = &u};
        assert_int_equal(hb_run_case(hb_adapter_emu(), &plain, &o, &v, NULL), 0);
        assert_string_equal(v.text, "");
        assert_int_equal(u.n, 3 * (10 + 19 + 1));
    }
}

static void the_place_of_a_finding_can_be_explained(void **state) {
    (void)state;
    struct hb_case c;
    struct hb_verdict v;
    struct mischief m;
    struct hb_error e = {.struct_size = sizeof e};
    char text[512];
    hand_init(&c);
    two_extends(&c);
    hb_case_normalize(&c);
    assert_int_equal(hb_run_case(mischief_init(&m, MISCHIEF_OUTPUT, 0), &c, NULL, &v, NULL), 0);
    assert_int_equal(v.kind, HB_VERDICT_NUMERIC);
    assert_int_equal(hb_explain_bound(&c, v.at.step, v.at.layer, v.at.token, v.at.element, text,
                                      sizeof text, &e),
                     HB_OK);
    assert_says(text, ": value %.17g,", v.at.want);
    assert_says(text, "bound %.6g (", v.at.bound);
}

static void a_place_without_output_is_out_of_range(void **state) {
    (void)state;
    static const struct {
        int32_t step, layer;
        int64_t token, channel;
    } places[] = {{0, 0, 0, 0}, {4, 3, 0, 0},  {4, 0, 29, 0},
                  {4, 0, 0, 8}, {4, 0, 0, -1}, {-1, -1, -1, -1}};
    struct hb_case c;
    hand_init(&c);
    two_extends(&c);
    hb_case_normalize(&c);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct hb_error e = {.struct_size = sizeof e};
        char text[64] = "untouched";
        assert_int_equal(hb_explain_bound(&c, places[i].step, places[i].layer, places[i].token,
                                          places[i].channel, text, sizeof text, &e),
                         HB_ERR_RANGE);
        assert_non_null(strstr(e.text, "the case has no output at step"));
        assert_string_equal(text, "untouched");
    }
}

/* Graphs of four rows at most, of which two are captured; a replay of two rows and one of three. */
static void init_graphs(struct hb_case *c) {
    hb_case_init(c);
    c->config.graph_rows = 4;
    hand_take(c, 0, 5);
    hand_step(c, HB_STEP_GRAPH_INIT)->bs = 4;
    struct hb_case_step *s = hand_step(c, HB_STEP_CAPTURE);
    s->mode = HB_MODE_DECODE;
    s->bs = 2;
    for (int32_t padding = 1; padding < 3; padding++) {
        s = hand_forward(c, HB_MODE_DECODE);
        hand_row(s, 0, 1);
        s->replay = 1;
        s->pad_rows = padding;
    }
    hb_case_normalize(c);
}

static void graph_calls_are_listed(void **state) {
    (void)state;
    static const char *const want[] = {"graph_init HB_OK", "capture HB_OK", "replay HB_OK",
                                       "replay HB_ERR_STATE"};
    struct hb_case c;
    init_graphs(&c);
    cJSON *root = predict(&c);
    const cJSON *calls = cJSON_GetObjectItemCaseSensitive(root, "calls");
    assert_int_equal(cJSON_GetArraySize(calls), (int)(sizeof want / sizeof *want));
    for (int i = 0; i < cJSON_GetArraySize(calls); i++) {
        const cJSON *item = cJSON_GetArrayItem(calls, i);
        char line[64];
        (void)snprintf(line, sizeof line, "%.20s %.30s", text_of(item, "call"), text_of(item, "status"));
        assert_string_equal(line, want[i]);
    }
    assert_string_equal(text_of(cJSON_GetArrayItem(calls, 3), "rule"), "GRAPH_NOT_CAPTURED");
    cJSON_Delete(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_forward_and_every_refusal_of_a_broken_case_is_listed),
        cmocka_unit_test(a_refused_configuration_is_the_only_entry),
        cmocka_unit_test(a_run_on_the_emulator_is_judged_by_the_same_predictions),
        cmocka_unit_test(a_prediction_inside_a_case_is_ignored_when_read),
        cmocka_unit_test(a_bound_is_the_one_that_the_run_compared_with),
        cmocka_unit_test(the_place_of_a_finding_can_be_explained),
        cmocka_unit_test(a_place_without_output_is_out_of_range),
        cmocka_unit_test(graph_calls_are_listed),
    };
    return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
