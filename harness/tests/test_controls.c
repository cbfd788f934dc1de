/* SPDX-License-Identifier: Apache-2.0
 * Every relation, rule and status has a control: a test that exists in the sources and names what
 * it breaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/controls.h"
#include "harness/coverage.h"
#include "harness/gen.h"

enum { PATH_CAP = 512, NAME_CAP = 128, TEXT_CAP = 1 << 20, N_INVARIANTS = 66 };

static const char RECIPES[] = "each_recipe_breaks_its_rule_first";

/* --- sources ---------------------------------------------------------------------------------- */

static char *read_file(const char *path) {
    FILE *f = fopen(path, "re");
    if (!f) {
        return NULL;
    }
    char *text = calloc(1, TEXT_CAP);
    assert_non_null(text);
    assert_true(fread(text, 1, TEXT_CAP - 1, f) < TEXT_CAP - 1);
    assert_int_equal(fclose(f), 0);
    return text;
}

/* The text of a test program, null if there is none of that name. */
static char *read_program(const char *name) {
    static const char *const folders[] = {"kernels", "backend", "harness"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[PATH_CAP];
        (void)snprintf(path, sizeof path, "%s/%s/tests/%s.c", HB_SOURCE_DIR, folders[i], name);
        char *text = read_file(path);
        if (text) {
            return text;
        }
    }
    return NULL;
}

static int is_word(int c) {
    return isalnum(c) || c == '_';
}

/* The word as a whole, or after "HB_RULE_", "HB_ERR_" or "HB_". */
static int has_word(const char *text, const char *word) {
    static const char *const before[] = {"HB_RULE_", "HB_ERR_", "HB_", ""};
    const size_t n = strlen(word);
    for (const char *p = strstr(text, word); p; p = strstr(p + 1, word)) {
        for (size_t i = 0; i < sizeof before / sizeof *before && !is_word(p[n]); i++) {
            const size_t k = strlen(before[i]);
            const int fits = (size_t)(p - text) >= k && strncmp(p - k, before[i], k) == 0;
            if (fits && (p - k == text || !is_word(p[-(ptrdiff_t)k - 1]))) {
                return 1;
            }
        }
    }
    return 0;
}

/* The word in the text, or in a header or source of the project that the text includes. */
static int mentions(const char *text, const char *word) {
    int found = has_word(text, word);
    for (const char *p = strstr(text, "#include \""); p && !found; p = strstr(p + 1, "#include \"")) {
        char name[NAME_CAP];
        char path[PATH_CAP];
        if (sscanf(p, "#include \"%100[^\"]\"", name) != 1 || !strstr(name, "/tests/")) {
            continue;
        }
        (void)snprintf(path, sizeof path, "%s/%s", HB_SOURCE_DIR, name);
        char *header = read_file(path);
        assert_non_null(header);
        found = mentions(header, word);
        free(header);
    }
    return found;
}

/* Whether the function is a test there: by its definition, or made by a list of relations
 * X(number). */
static int has_test(const char *text, const char *function) {
    char wanted[NAME_CAP + 32];
    (void)snprintf(wanted, sizeof wanted, "static void %s(void **state)", function);
    if (strstr(text, wanted)) {
        (void)snprintf(wanted, sizeof wanted, "(%s)", function); /* by cmocka_unit_test or a macro over it */
        return strstr(text, wanted) != NULL;
    }
    if (strncmp(function, "relation_", 9) == 0 && strstr(function, "_fires")) {
        (void)snprintf(wanted, sizeof wanted, "X(%ld)", strtol(function + 9, NULL, 10));
        return strstr(text, "RELATIONS(HB_RELATION_TESTS)") && strstr(text, wanted);
    }
    return 0;
}

/* Null if the control is as it should be, else what is wrong. words: one of them must be in the
 * test's sources. */
static const char *fault_of(const char *control, const char *const *words, int n_words) {
    char program[NAME_CAP];
    char function[NAME_CAP];
    int any = n_words == 0;
    if (!control) {
        return "has no control";
    }
    if (sscanf(control, "%100[a-z0-9_]: %100[a-z0-9_]", program, function) != 2) {
        return "has a control that is no 'program: function'";
    }
    char *text = read_program(program);
    if (!text) {
        return "names a program that does not exist";
    }
    const int is_there = has_test(text, function);
    /* the recipe of each rule is in a table that this test goes through */
    any |= strcmp(function, RECIPES) == 0;
    for (int i = 0; i < n_words && !any; i++) {
        any = mentions(text, words[i]);
    }
    free(text);
    return !is_there ? "names a test that does not exist" : !any ? "is not broken in its control" : NULL;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void every_relation_has_a_control(void **state) {
    (void)state;
    const struct hb_relation *list;
    const int n = hb_relations(&list);
    for (int i = 0; i < n; i++) {
        const char *fault = fault_of(list[i].control, NULL, 0);
        if (fault) {
            fail_msg("relation %d %s %s: %s", list[i].number, list[i].name, fault, list[i].control);
        }
    }
}

static void every_invariant_is_a_relation(void **state) {
    (void)state;
    const struct hb_relation *list;
    const int n = hb_relations(&list);
    assert_int_equal(n, N_INVARIANTS);
    for (int i = 0; i < n; i++) {
        assert_int_equal(list[i].number, i + 1);
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(list[k].name, list[i].name);
        }
    }
}

static void every_rule_has_a_control(void **state) {
    (void)state;
    const int32_t *numbers;
    const int n = hb_rule_list(&numbers);
    for (int i = 0; i < n; i++) {
        const char *name = hb_rule_name(numbers[i]);
        char number[16];
        (void)snprintf(number, sizeof number, "%d", numbers[i]);
        const char *const words[] = {name, number};
        const char *fault = fault_of(hb_rule_control(numbers[i]), words, 2);
        const int by_recipe = hb_rule_control(numbers[i]) && strstr(hb_rule_control(numbers[i]), RECIPES);
        if (!fault && by_recipe && hb_coverage_unreachable(numbers[i])) {
            fault = "is broken by no recipe";
        }
        if (fault) {
            fail_msg("rule %d %s %s: %s", numbers[i], name, fault, hb_rule_control(numbers[i]));
        }
    }
    assert_null(hb_rule_control(8));
}

/* Given by name, or by a rule of this status. */
static void every_status_has_a_control(void **state) {
    (void)state;
    static const int32_t statuses[] = {
#define STATUS_ROW(number, name) number,
        HB_STATUSES(STATUS_ROW)
#undef STATUS_ROW
    };
    const int32_t *rules;
    const int n_rules = hb_rule_list(&rules);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        const char *words[256];
        int n = 0;
        const char *name = hb_status_name(statuses[i]);
        words[n++] = strncmp(name, "HB_ERR_", 7) == 0 ? name + 7 : name + 3;
        for (int k = 0; k < n_rules && n < 256; k++) {
            if (hb_rule_status(rules[k]) == statuses[i]) {
                words[n++] = hb_rule_name(rules[k]);
            }
        }
        const char *fault = fault_of(hb_status_control(statuses[i]), words, n);
        if (fault) {
            fail_msg("status %s %s: %s", name, fault, hb_status_control(statuses[i]));
        }
    }
    assert_null(hb_status_control(13));
}

/* The reader of controls itself. */
static void a_wrong_control_is_noticed(void **state) {
    (void)state;
    static const char *const word[] = {"REQ_NULL"};
    static const char *const other[] = {"NO_SUCH_RULE"};
    static const char here[] = "test_controls: a_wrong_control_is_noticed";
    static const char batch[] = "test_validate: validate_each_rule_fires";
    assert_null(fault_of(here, NULL, 0));
    assert_null(fault_of(batch, word, 1));
    assert_string_equal(fault_of(batch, other, 1), "is not broken in its control");
    assert_string_equal(fault_of(NULL, NULL, 0), "has no control");
    assert_string_equal(fault_of("test_controls", NULL, 0), "has a control that is no 'program: function'");
    assert_string_equal(fault_of("test_nothing: x", NULL, 0), "names a program that does not exist");
    assert_string_equal(fault_of("test_controls: fault_of", NULL, 0), "names a test that does not exist");
    assert_string_equal(fault_of("test_relations: relation_2_fires", NULL, 0), "names a test that does not exist");
    assert_false(has_word("HB_RULE_REQ_NULLS", "REQ_NULL"));
    assert_false(has_word("XREQ_NULL", "REQ_NULL"));
    assert_true(has_word("(REQ_NULL)", "REQ_NULL"));
}

/* --- coverage --------------------------------------------------------------------------------- */

static void nothing_run_is_nothing_covered(void **state) {
    (void)state;
    static const struct hb_run_stats none;
    struct hb_coverage c;
    hb_coverage_of(&none, &c);
    assert_int_equal(c.rules_both, 0);
    assert_int_equal(c.statuses_seen, 0);
    assert_true(c.rules > 100);
    assert_int_equal(c.statuses, 12);
}

static void a_rule_is_hit_when_it_was_broken_and_kept(void **state) {
    (void)state;
    struct hb_run_stats s = {0};
    struct hb_coverage c;
    const struct hb_error ok = {.status = HB_OK};
    const struct hb_error bad = {.status = HB_ERR_SHAPE, .rule = HB_RULE_VERIFY_TOKENS};
    hb_coverage_call(&s, "begin", 2, &bad);
    assert_int_equal(hb_coverage_rule(&s, HB_RULE_VERIFY_TOKENS), HB_COVERED_BROKEN);
    hb_coverage_call(&s, "begin", 2, &ok); /* a decode does not look at it */
    hb_coverage_call(&s, "finish", 5, &ok);
    hb_coverage_call(&s, "replay", 5, &ok); /* nor does a replay */
    assert_int_equal(hb_coverage_rule(&s, HB_RULE_VERIFY_TOKENS), HB_COVERED_BROKEN);
    hb_coverage_of(&s, &c);
    assert_int_equal(c.rules_both, 0);
    hb_coverage_call(&s, "begin", 5, &ok);
    assert_int_equal(hb_coverage_rule(&s, HB_RULE_VERIFY_TOKENS), HB_COVERED_BOTH);
    hb_coverage_of(&s, &c);
    assert_int_equal(c.rules_both, 1);
    assert_int_equal(c.statuses_seen, 2);
}

/* What a case breaks is a rule of the call that broke it: else the table of calls and rules would
 * be wrong. */
static void look(void *ctx, int32_t step, const char *call, const struct hb_error *want) {
    int *n = ctx;
    (void)step;
    if (want->status != HB_OK && !hb_coverage_belongs(call, want->rule)) {
        fail_msg("%s breaks rule %d, which is not one of its rules", call, want->rule);
    }
    *n += want->status != HB_OK;
}

static void broken_rules_belong_to_their_calls(void **state) {
    (void)state;
    enum { N = 150 };
    int n = 0;
    const struct hb_run_options o = {
        .tamper_element = -1, .status_only = 1, .predicted = look, .predicted_ctx = &n};
    for (int32_t target = 0; target < HB_N_TARGETS; target++) {
        struct hb_gen_options g;
        hb_gen_options_init(&g);
        g.target = target;
        g.gen_class = HB_GEN_BROKEN;
        for (uint64_t i = 0; i < N; i++) {
            struct hb_case c;
            struct hb_verdict v;
            hb_gen_case(&g, 17, i, &c);
            assert_int_equal(hb_run_case(hb_adapter_oracle(), &c, &o, &v, NULL), 0);
        }
    }
    assert_true(n > N);
}

static void every_rule_belongs_to_a_call(void **state) {
    (void)state;
    static const char *const calls[] = {
        "create",    "begin",     "capture",   "replay",       "layer",     "entry",     "finish",    "commit",
        "slot_take", "slot_free", "slot_copy", "slot_publish", "slot_move", "table_set", "graph_init"};
    const int32_t *numbers;
    const int n = hb_rule_list(&numbers);
    for (int i = 0; i < n; i++) {
        int belongs = hb_coverage_unreachable(numbers[i]) != NULL;
        for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
            belongs |= hb_coverage_belongs(calls[k], numbers[i]);
        }
        if (!belongs) {
            fail_msg("rule %d belongs to no call", numbers[i]);
        }
    }
    assert_false(hb_coverage_belongs("no such call", HB_RULE_REQ_NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_relation_has_a_control),
        cmocka_unit_test(every_invariant_is_a_relation),
        cmocka_unit_test(every_rule_has_a_control),
        cmocka_unit_test(every_status_has_a_control),
        cmocka_unit_test(a_wrong_control_is_noticed),
        cmocka_unit_test(nothing_run_is_nothing_covered),
        cmocka_unit_test(a_rule_is_hit_when_it_was_broken_and_kept),
        cmocka_unit_test(broken_rules_belong_to_their_calls),
        cmocka_unit_test(every_rule_belongs_to_a_call),
    };
    return cmocka_run_group_tests_name("controls", tests, NULL, NULL);
}
