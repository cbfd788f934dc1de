/* SPDX-License-Identifier: Apache-2.0
 * The supervisor with children that misbehave on purpose. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/supervise_internal.h"
#include "harness/tests/unruly_child.h"

static void counts_every_case_and_stops_at_the_limit(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_PASS);
    s.child.limit = 1234;
    assert_int_equal(run(&s), HB_OK);
    assert_int_equal(result.cases, 1234);
    assert_int_equal(result.findings, 0);
    s.workers = 3;
    assert_int_equal(run(&s), HB_OK);
    assert_int_equal(result.cases, 1234);
}

static void stops_at_the_time_limit(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_PASS);
    s.seconds = 0.3;
    assert_int_equal(run(&s), HB_OK);
    assert_true(result.cases > 0);
    assert_true(result.seconds >= 0.3 && result.seconds < 3);
}

static void a_wrong_result_is_reported_once_and_confirmed(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    struct hb_case c;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_FIND);
    s.child.limit = 200;
    assert_int_equal(run(&s), HB_OK);
    assert_int_equal(result.cases, 200);
    assert_int_equal(result.findings, 1);
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.same, 1);
    assert_int_equal(seen.tries, 1);
    assert_string_equal(seen.last.verdict.check, "numeric.test");
    assert_int_equal(hb_case_load(seen.last.file, &c, NULL), HB_OK);
    assert_int_equal(result.first_cases, 10);
    assert_true(result.first_seconds >= 0);
}

static int32_t run_until(struct hb_supervise *s, uint64_t limit) {
    s->child.limit = limit;
    return run(s);
}

static void stop_at_first_ends_the_campaign(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_FIND);
    assert_int_equal(run_until(&s, 35), HB_OK);
    assert_int_equal(result.cases, 35); /* goes on */
    s.stop_at_first = 1;
    assert_int_equal(run_until(&s, 0), HB_OK);
    assert_int_equal(result.findings, 1);
    assert_int_equal(result.cases, ACTIVE_EVERY); /* nothing after the first */
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_ABORT);
    s.stop_at_first = 1;
    assert_int_equal(run(&s), HB_OK);
    assert_int_equal(seen.n, 1);
    assert_int_equal(result.cases, ACTIVE_EVERY);
    assert_int_equal(result.restarts, 0);
}

/* Of workers that find something at the same time one is heard. */
static void stop_at_first_means_the_first_of_all_workers(void **state) {
    (void)state;
    static struct hb_page page;
    struct hb_supervise s;
    struct seen seen;
    assert_int_equal(hb_page_first(&page), 1);
    assert_int_equal(hb_page_first(&page), 1);
    assert_int_equal(page.stop, 0);
    page.stop_at_first = 1;
    assert_int_equal(hb_page_first(&page), 1);
    assert_int_equal(hb_page_first(&page), 0);
    assert_int_equal(page.stop, 1);
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_FIND);
    s.stop_at_first = 1;
    s.workers = 4;
    assert_int_equal(run(&s), HB_OK);
    assert_int_equal(seen.n, 1);
    assert_int_equal(result.findings, 1);
}

static void a_crash_blames_the_running_case_and_work_goes_on(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    struct hb_case c;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_ABORT);
    s.child.limit = 35;
    assert_int_equal(run(&s), HB_OK);
    assert_int_equal(result.cases, 35);
    assert_int_equal(result.restarts, 3); /* every tenth case dies */
    assert_int_equal(result.findings, 1); /* with one fingerprint */
    assert_int_equal(seen.last.verdict.kind, HB_VERDICT_MEMORY);
    assert_string_equal(seen.last.verdict.place, "forward layer");
    assert_int_equal(seen.same, 1);
    assert_int_equal(hb_case_load(seen.last.file, &c, NULL), HB_OK);
    assert_int_equal(c.config.seed % ACTIVE_EVERY, ACTIVE_EVERY - 1);
    assert_non_null(strstr(seen.last.file, "/forward-memory-"));
}

static void a_crash_that_does_not_repeat_is_unstable(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_ABORT_ONCE);
    s.child.limit = 15;
    assert_int_equal(run(&s), HB_OK);
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.same, 0);
    assert_int_equal(seen.tries, 5);
    assert_non_null(strstr(seen.last.file, "/forward-unstable-"));
    assert_int_equal(access(seen.last.file, R_OK), 0);
}

static void a_hang_is_killed_and_named(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_HANG);
    s.child.limit = 15;
    s.hang_seconds = 0.3;
    assert_int_equal(run(&s), HB_OK);
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.last.verdict.kind, HB_VERDICT_HANG);
    assert_int_equal(seen.same, 1);
    assert_int_equal(result.cases, 15);
}

static void an_odd_exit_code_is_a_finding(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_EXIT);
    s.child.limit = 12;
    assert_int_equal(run(&s), HB_OK);
    assert_string_equal(seen.last.verdict.check, "memory.exit-33");
}

static void a_death_outside_the_backend_says_so(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_HARNESS);
    s.child.limit = 12;
    assert_int_equal(run(&s), HB_OK);
    assert_string_equal(seen.last.verdict.place, "harness");
}

static void a_kill_from_outside_is_no_finding(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_KILLED);
    s.child.limit = 25;
    assert_int_equal(run(&s), HB_OK);
    assert_int_equal(result.findings, 0);
    assert_int_equal(result.restarts, 2);
    assert_int_equal(result.cases, 25);
}

static void a_sanitizer_report_names_the_kind(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_OVERFLOW);
    s.child.limit = 12;
    s.hang_seconds = 20;
    assert_int_equal(run(&s), HB_OK);
    assert_int_equal(seen.n, 1);
#ifdef HB_ASAN
    char path[HB_PATH_CAP + 8];
    assert_string_equal(seen.last.verdict.check, "memory.heap-buffer-overflow");
    (void)snprintf(path, sizeof path, "%.*s.txt", (int)(strlen(seen.last.file) - 5),
                   seen.last.file);
    FILE *f = fopen(path, "r");
    if (!f) {
        fail_msg("cannot open %s", path);
        return;
    }
    char text[4096];
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, "ERROR: AddressSanitizer: heap-buffer-overflow"));
    assert_non_null(strstr(text, "SUMMARY: "));
#else
    assert_string_equal(seen.last.verdict.check, "memory.SIGABRT");
#endif
}

static void an_emulator_report_names_its_line(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_EMULATOR);
    s.child.limit = 12;
    assert_int_equal(run(&s), HB_OK);
    assert_string_equal(seen.last.verdict.check, "memory.emulator");
    assert_string_equal(seen.last.verdict.text, "hbfuzz-emu: scan_kernel: divergent barrier");
}

static void generated_cases_go_on_behind_a_crash(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_GEN, ACT_ABORT);
    s.child.limit = 45;
    assert_int_equal(run(&s), HB_OK);
    assert_int_equal(seen.n_results, 45);
    assert_true(seen.is_ordered);
    assert_int_equal(seen.n, 4);
    assert_int_equal(result.findings, 4);
}

static void files_go_on_behind_a_crash(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    char names[25][96];
    const char *files[25];
    for (int i = 0; i < 25; i++) {
        struct hb_case c;
        hb_case_init(&c);
        c.config.seed = i;
        (void)snprintf(names[i], sizeof names[i], "%s/file-%d.case", folder, i);
        assert_int_equal(hb_case_save(names[i], &c, NULL), HB_OK);
        files[i] = names[i];
    }
    prepare(&s, &seen, HB_WORK_FILES, ACT_ABORT);
    s.files = files;
    s.n_files = 25;
    assert_int_equal(run(&s), HB_OK);
    assert_int_equal(seen.n_results, 25);
    assert_true(seen.is_ordered);
    assert_int_equal(seen.n, 2);
    assert_string_equal(seen.last.file, names[19]);
}

static void a_child_that_cannot_work_ends_the_campaign(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    struct hb_error err = {.struct_size = sizeof err};
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_PASS);
    assert_int_equal(setenv("HB_TEST_EARLY", "fail", 1), 0);
    assert_int_equal(hb_supervise(&s, &result, &err), HB_ERR_DEVICE);
    assert_string_equal(err.text, "no such device");
    assert_int_equal(setenv("HB_TEST_EARLY", "die", 1), 0);
    hb_error_clear(&err);
    assert_int_equal(hb_supervise(&s, &result, &err), HB_ERR_IO);
    assert_non_null(strstr(err.text, "no reason at all"));
    assert_int_equal(unsetenv("HB_TEST_EARLY"), 0);
    s.program = "/nonexistent/hbfuzz";
    hb_error_clear(&err);
    assert_int_equal(hb_supervise(&s, &result, &err), HB_ERR_IO);
    assert_non_null(strstr(err.text, "/nonexistent/hbfuzz"));
}

static void interrupt_at_tick(void *ctx, uint64_t cases, double seconds, int64_t findings) {
    (void)ctx;
    (void)cases;
    (void)seconds;
    (void)findings;
    assert_int_equal(raise(SIGINT), 0);
}

static void an_interrupt_ends_the_campaign_in_order(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_FIND);
    s.tick = interrupt_at_tick;
    assert_int_equal(run(&s), HB_OK);
    assert_true(result.is_interrupted);
    assert_int_equal(result.findings, 1);
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_PASS);
    s.child.limit = 5;
    assert_int_equal(run(&s), HB_OK);
    assert_false(result.is_interrupted);
}

/* A supervisor in a process of its own is killed; its child is re-parented to this one, which must
 * see it die. */
static void children_die_with_the_supervisor(void **state) {
    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct hb_supervise s;
        struct seen seen;
        prepare(&s, &seen, HB_WORK_FUZZ, ACT_PASS);
        (void)hb_supervise(&s, &result, NULL);
        _exit(0);
    }
    (void)usleep(300000);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    int status = 0;
    pid_t orphan = 0;
    for (int i = 0; i < 200 && orphan == 0; i++) {
        orphan = waitpid(-1, &status, WNOHANG);
        (void)usleep(10000);
    }
    assert_true(orphan > 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

static void the_seen_table_tells_new_from_known(void **state) {
    (void)state;
    static struct hb_page page;
    char text[24];
    assert_int_equal(hb_page_see(&page, "0123456789abcdef"), 1);
    assert_int_equal(hb_page_see(&page, "0123456789abcdef"), 0);
    for (int i = 1; i < HB_MAX_SEEN; i++) {
        (void)snprintf(text, sizeof text, "%016d", i);
        assert_int_equal(hb_page_see(&page, text), 1);
    }
    assert_int_equal(hb_page_see(&page, "fedcba9876543210"), 0); /* full */
}

static void no_page_no_child(void **state) {
    (void)state;
    static const char *const bad[] = {
        "", "1", "99,98,97", "x,1,2,3", "0,1,2,3,", "70000,1,-1,0", "-2,1,-1,0"};
    static struct hb_child child;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(setenv("HBFUZZ_PAGE", bad[i], 1), 0);
        assert_int_equal(hb_child_open(&child), -1);
    }
    assert_int_equal(unsetenv("HBFUZZ_PAGE"), 0);
    assert_int_equal(hb_child_open(&child), -1);
}

/* The engine writes into the first folder it is given. */
static void the_engine_gets_its_own_folder_before_those_of_the_user(void **state) {
    (void)state;
    static char seeds[] = "corpus/forward/seeds";
    static struct hb_engine_args args;
    char *rest[] = {seeds};
    struct hb_page *page = calloc(1, hb_page_bytes(1));
    assert_non_null(page);
    struct hb_supervise s;
    struct hb_campaign k = {.s = &s, .page = page, .temporary = "/own"};
    hb_supervise_init(&s);
    s.engine = "engine";
    s.engine_args = rest;
    s.n_engine_args = 1;
    for (int is_given = 0; is_given < 2; is_given++) {
        s.corpus_dir = is_given ? "given" : NULL;
        hb_campaign_engine_args(&k, 0, &args);
        int n = 0;
        while (args.argv[n]) {
            n++;
        }
        assert_string_equal(args.argv[0], "engine");
        assert_string_equal(args.argv[n - 1], seeds);
        assert_string_equal(args.argv[n - 2], is_given ? "given" : "/own/corpus-0");
        for (int i = 1; i < n - 2; i++) {
            assert_int_equal(args.argv[i][0], '-');
        }
    }
    free(page);
}

static int all(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_engine_gets_its_own_folder_before_those_of_the_user),
        cmocka_unit_test(counts_every_case_and_stops_at_the_limit),
        cmocka_unit_test(stops_at_the_time_limit),
        cmocka_unit_test(a_wrong_result_is_reported_once_and_confirmed),
        cmocka_unit_test(stop_at_first_ends_the_campaign),
        cmocka_unit_test(stop_at_first_means_the_first_of_all_workers),
        cmocka_unit_test(a_crash_blames_the_running_case_and_work_goes_on),
        cmocka_unit_test(a_crash_that_does_not_repeat_is_unstable),
        cmocka_unit_test(a_hang_is_killed_and_named),
        cmocka_unit_test(an_odd_exit_code_is_a_finding),
        cmocka_unit_test(a_death_outside_the_backend_says_so),
        cmocka_unit_test(a_kill_from_outside_is_no_finding),
        cmocka_unit_test(a_sanitizer_report_names_the_kind),
        cmocka_unit_test(an_emulator_report_names_its_line),
        cmocka_unit_test(generated_cases_go_on_behind_a_crash),
        cmocka_unit_test(files_go_on_behind_a_crash),
        cmocka_unit_test(a_child_that_cannot_work_ends_the_campaign),
        cmocka_unit_test(an_interrupt_ends_the_campaign_in_order),
        cmocka_unit_test(children_die_with_the_supervisor),
        cmocka_unit_test(the_seen_table_tells_new_from_known),
        cmocka_unit_test(no_page_no_child),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

int main(int argc, char **argv) {
    return unruly_main(argc, argv, all);
}
