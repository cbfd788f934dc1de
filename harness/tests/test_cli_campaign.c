/* SPDX-License-Identifier: Apache-2.0
 * The built command: limits of the shell, engine arguments, the first finding, what a repro line needs, figures of
 * campaigns. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "harness/tests/cli_rig.h"

/* --- limits ----------------------------------------------------------------------------------- */

static void a_limit_of_file_sizes_is_4_and_leaves_no_part(void **state) {
    (void)state;
    start_with.file_bytes = 1 << 18;
    assert_int_equal(run("run --gen 2000 --size small --backend oracle --json --out @/limited.jsonl"), 4);
    assert_string_equal(last_line(out_text) + strcspn(last_line(out_text), ","), ", 2000 passed, 0 findings, 0 skipped\n");
    assert_non_null(strstr(err_text, "limited.jsonl: File too large\n"));
    assert_int_equal(count_lines(err_text), 1);
    assert_int_equal(count_containing("limited"), 0);
    assert_int_equal(run("run --gen 2 --backend oracle --json --out @/limited.jsonl"), 0);
    assert_int_equal(count_containing("limited"), 1);
    start_with.file_bytes = 10240; /* less than processes share */
    assert_int_equal(run("fuzz dispatch --backend oracle --count 5 --engine plain -o @/limited-fuzz"), 4);
    assert_non_null(strstr(err_text, "cannot make a shared page of "));
    assert_non_null(strstr(err_text, "File too large (ulimit -f)\n"));
    assert_int_equal(access(in_folder("limited-fuzz/records.jsonl"), F_OK), -1);
}

/* Records of earlier campaigns stay whole. */
static void half_a_record_is_cut_off(void **state) {
    (void)state;
    static char text[TEXT_CAP];
    static char old[200001];
    memset(old, 'x', sizeof old - 2);
    old[sizeof old - 2] = '\n';
    assert_int_equal(mkdir(in_folder("old"), 0755), 0);
    write_file("old/records.jsonl", old);
    start_with.file_bytes = 200100;
    assert_int_equal(run("fuzz dispatch --backend oracle --count 5 --engine plain -o @/old"), 4);
    assert_non_null(strstr(err_text, "old/records.jsonl: File too large\n"));
    read_back(in_folder("old/records.jsonl"), text);
    assert_string_equal(text, old);
}

static void a_small_stack_is_enough(void **state) {
    (void)state;
    start_with.stack_bytes = 1 << 16;
    assert_int_equal(run("run --gen 20 --json --out @/stack.jsonl"), 0);
    assert_int_equal(run("fuzz forward --count 20 --engine plain -o @/stack"), 0);
    assert_int_equal(run("repro @/good.case"), 0);
    assert_int_equal(run("explain @/good.case"), 0);
    assert_int_equal(run("list --models"), 0);
#ifdef HB_DEFECTS
    assert_int_equal(run("fuzz forward --count 60 --defect NEIGHBOUR_SLOT --engine plain -o @/stack"), 1);
    assert_non_null(strstr(out_text, "repro: hbfuzz repro "));
#endif
}

/* --- engine arguments ------------------------------------------------------------------------- */

static void engine_arguments_that_are_no_campaign_are_2(void **state) {
    (void)state;
    static const struct bad rows[] = {
        {"fuzz forward -o @/e -- -jobs=3", 2, "'-- -jobs=3': refused, it starts processes of its own"},
        {"fuzz forward -o @/e -- -max_len=9 -workers=2", 2, "'-- -workers=2': refused"},
        {"fuzz forward -o @/e -- -runs=abc", 2, "'-- -runs=abc': refused, it is the campaign's own (--count N)"},
        {"fuzz forward -o @/e -- -fork=2", 2, "'-- -fork=2': refused, it starts processes of its own"},
        {"fuzz forward -o @/e -- -merge=1", 2, "'-- -merge=1': refused, it does something else"},
        {"fuzz forward -o @/e -- -minimize_crash=1 x", 2, "'-- -minimize_crash=1': refused"},
        {"fuzz forward -o @/e -- -help=1", 2, "'-- -help=1': refused, it only prints"},
        {"fuzz forward -o @/e -- --help", 2, "'-- --help': refused, it only prints"},
        /* not refused for themselves: words that only resemble them */
        {"fuzz forward -o @/e --engine plain -- -job=3", 2, "'-- -job=3': the plain engine takes no arguments"},
        {"fuzz forward -o @/e --engine plain -- jobs", 2, "'-- jobs': the plain engine takes no arguments"},
    };
    check_bad(rows, sizeof rows / sizeof rows[0]);
    assert_int_equal(count_containing("fuzz-"), 0);
    assert_int_equal(access(in_folder("e"), F_OK), -1);
}

/* --- findings and figures --------------------------------------------------------------------- */

#ifdef HB_DEFECTS
static int count_text(const char *text, const char *what) {
    int n = 0;
    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what)) {
        n++;
    }
    return n;
}

static void stop_at_first_reports_one_finding(void **state) {
    (void)state;
    assert_int_equal(run("fuzz forward --defect 1 --seed 1 --count 200 --engine plain -o @/all"), 1);
    assert_true(count_text(out_text, " | repro: ") > 1);
    static const char *const lines[] = {
        "fuzz forward --defect 1 --seed 1 --time 30 --engine plain --stop-at-first -o @/first",
        "fuzz forward --defect 1 --seed 1 --time 30 --engine plain --stop-at-first -j 3 -o @/first-3"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        unsigned long long at = 0;
        unsigned long long cases = 1;
        assert_int_equal(run(lines[i]), 1);
        assert_int_equal(count_text(out_text, " | repro: "), 1);
        assert_non_null(strstr(last_line(out_text), ", 1 findings\n"));
        const char *first = strstr(out_text, " s, ");
        assert_non_null(first);
        at = strtoull(first + strlen(" s, "), NULL, 10);
        cases = strtoull(last_line(out_text) + strlen("forward: "), NULL, 10);
        assert_true(cases >= at && cases <= at + 2 * i); /* those that ran on other processes */
    }
    assert_int_equal(count_files("first"), 2); /* the case and the records */
    assert_int_equal(count_files("first-3"), 2);
}

/* A finding line begins and ends as the command of its repro line does. */
static void a_repro_line_names_the_second_backend(void **state) {
    (void)state;
    char line[512];
    assert_int_equal(run("run --gen 60 --seed 1 --defect 1 --json --out @/pairs.jsonl"), 1);
    assert_int_equal(run("run @/findings --compare oracle --defect 1"), 1);
    const char *repro = strstr(out_text, "repro: hbfuzz repro ");
    assert_non_null(repro);
    repro += strlen("repro: hbfuzz ");
    (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(repro, "\n"), repro);
    assert_non_null(strstr(line, " --compare oracle --defect 1"));
    assert_int_equal(run(line), 1);
    assert_non_null(strstr(out_text, line));
    assert_int_equal(run("run @/findings --defect 1"), 1);
    assert_null(strstr(out_text, "--compare"));
}
#endif

static void bounds_are_counted_together(void **state) {
    (void)state;
    assert_int_equal(run("run @/good.case --stats"), 0);
    const char *bounds = strstr(out_text, "\nbounds: ");
    assert_non_null(bounds);
    unsigned long long sum = 0;
    const unsigned long long all = strtoull(bounds + strlen("\nbounds: "), NULL, 10);
    for (const char *p = strstr(out_text, "; "); p; p = strstr(p + 1, "; ")) {
        char *end = NULL;
        const unsigned long long n = strtoull(p + 2, &end, 10);
        sum += strncmp(end, " elements, vacuous ", 19) == 0 ? n : 0;
    }
    assert_true(sum > 0);
    assert_true(sum == all);
    assert_int_equal(run("run @/good.case"), 0);
    assert_null(strstr(out_text, "bounds: "));
    assert_int_equal(run("fuzz forward --count 20 --engine plain -o @/bounds"), 0);
    assert_non_null(strstr(out_text, "\nbounds: "));
}

/* One row for each type; producers computed in two of them. */
static void check_keeps_types_apart(void **state) {
    (void)state;
    assert_int_equal(run("check --filter lightning_core"), 0);
    const char *row[3] = {strstr(out_text, "\nlightning_core   fp32  y a"), strstr(out_text, "\nlightning_core   bf16  y a"),
                          strstr(out_text, "\nlightning_core   fp16  y a")};
    assert_true(row[0] && row[1] > row[0] && row[2] > row[1]); /* types apart, in this order */
    assert_non_null(strstr(row[0], " producer 0."));
    assert_non_null(strstr(row[2], " producer     -\n"));
    assert_null(strstr(row[2] + 1, "\nlightning_core "));
    assert_int_equal(run("check --filter lightning_core -q"), 0);
    assert_null(strstr(out_text, " producer "));
}

static int start_plainly(void **state) {
    (void)state;
    memset(&start_with, 0, sizeof start_with);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_limit_of_file_sizes_is_4_and_leaves_no_part, start_plainly),
        cmocka_unit_test_setup(half_a_record_is_cut_off, start_plainly),
        cmocka_unit_test_setup(a_small_stack_is_enough, start_plainly),
        cmocka_unit_test_setup(engine_arguments_that_are_no_campaign_are_2, start_plainly),
#ifdef HB_DEFECTS
        cmocka_unit_test_setup(stop_at_first_reports_one_finding, start_plainly),
        cmocka_unit_test_setup(a_repro_line_names_the_second_backend, start_plainly),
#endif
        cmocka_unit_test_setup(bounds_are_counted_together, start_plainly),
        cmocka_unit_test_setup(check_keeps_types_apart, start_plainly),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
