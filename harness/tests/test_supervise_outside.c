/* SPDX-License-Identifier: Apache-2.0
 * The supervisor and what is no case's fault: hangs between cases, kills from outside, interrupts,
 * an engine that cannot start. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "harness/supervise_internal.h"
#include "harness/tests/unruly_child.h"

static void a_hang_between_cases_is_killed_and_an_error(void **state) {
    (void)state;
    static const int32_t works[] = {HB_WORK_FUZZ, HB_WORK_GEN};
    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
        struct hb_supervise s;
        struct seen seen;
        struct hb_error err = {.struct_size = sizeof err};
        prepare(&s, &seen, works[i], ACT_HANG_BETWEEN);
        s.child.limit = 15;
        s.hang_seconds = 0.5;
        s.seconds = 10; /* the end where nobody notices */
        assert_int_equal(hb_supervise(&s, &result, &err), HB_ERR_STATE);
        assert_string_equal(
            err.text, "internal error: the child made no progress for 0.5 s outside a case");
        assert_int_equal(result.cases, 10);
        assert_true(result.seconds < 5);
        assert_int_equal(result.findings, 0);
    }
}

static void a_slow_start_is_no_hang(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_FUZZ, ACT_PASS);
    s.child.limit = 5;
    s.hang_seconds = 0.2;
    assert_int_equal(setenv("HB_TEST_EARLY", "slow", 1), 0);
    assert_int_equal(run(&s), HB_OK);
    assert_int_equal(unsetenv("HB_TEST_EARLY"), 0);
    assert_int_equal(result.cases, 5);
}

static void a_kill_from_outside_is_no_finding_in_any_work(void **state) {
    (void)state;
    static const int acts[] = {ACT_KILLED, ACT_TERMINATED};
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        struct hb_supervise s;
        struct seen seen;
        struct hb_error err = {.struct_size = sizeof err};
        prepare(&s, &seen, HB_WORK_GEN, acts[i]);
        s.child.limit = 25;
        assert_int_equal(hb_supervise(&s, &result, &err), HB_ERR_MEMORY);
        assert_non_null(strstr(err.text, "killed from outside (SIG"));
        assert_int_equal(result.findings, 0);
        assert_int_equal(seen.n_results, 9);
        prepare(&s, &seen, HB_WORK_FUZZ, acts[i]);
        s.child.limit = 25;
        assert_int_equal(run(&s), HB_OK);
        assert_int_equal(result.findings, 0);
        assert_int_equal(result.cases, 25);
    }
}

static void a_death_after_an_interrupt_is_no_finding(void **state) {
    (void)state;
    struct hb_supervise s;
    struct seen seen;
    prepare(&s, &seen, HB_WORK_GEN, ACT_SIGNAL_SUPERVISOR);
    s.child.limit = 25;
    s.hang_seconds = 20;
    assert_int_equal(run(&s), HB_OK);
    assert_true(result.is_interrupted);
    assert_int_equal(result.findings, 0);
    assert_int_equal(seen.n_results, 9);
}

/* What a child starts with: it lives through a signal to its group. */
static void children_ignore_what_the_group_gets(void **state) {
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    char *const argv[] = {"/bin/sleep", "1000", NULL};
    struct hb_process_start start = {
        .program = argv[0], .argv = (const char *const *)argv, .page_fd = -1, .list_fd = -1};
    static struct hb_process p;
    assert_int_equal(hb_process_start(&p, &start, NULL), HB_OK);
    (void)usleep(300000);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        assert_int_equal(kill(p.pid, numbers[i]), 0);
    }
    (void)usleep(100000);
    int status = 0;
    assert_false(hb_process_reap(&p, &status));
    hb_process_kill(&p);
    assert_int_equal(waitpid(p.pid, &status, 0), p.pid);
    assert_int_equal(WTERMSIG(status), SIGKILL);
    hb_process_close(&p);
}

static void an_ignored_hangup_stays_ignored(void **state) {
    (void)state;
    assert_true(signal(SIGHUP, SIG_IGN) != SIG_ERR);
    hb_supervise_catch(1);
    assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(hb_supervise_interrupts(), 0);
    hb_supervise_catch(0);
    assert_true(signal(SIGHUP, SIG_DFL) == SIG_IGN);
    hb_supervise_catch(1);
    assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(hb_supervise_interrupts(), 1);
    hb_supervise_catch(0);
}

static void the_reason_of_an_early_death_is_not_the_first_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"", "no message"},
        {"INFO: Seed: 1\nINFO: 3 files\n", "no message"},
        {"INFO: Seed: 1\nERROR: no such flag\n\nINFO: more\n", "ERROR: no such flag"},
        {"INFO: a\nfirst\nlast", "last"},
        {"INFO: a\n==1==ERROR: AddressSanitizer: SEGV on x\nSUMMARY: AddressSanitizer: SEGV y\n"
         "==1==ABORTING\n",
         "AddressSanitizer: SEGV y"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static struct hb_log log;
        char line[100];
        (void)snprintf(log.text, sizeof log.text, "%s", rows[i].text);
        log.n = strlen(rows[i].text);
        hb_log_reason(&log, line, sizeof line);
        assert_string_equal(line, rows[i].want);
    }
}

static int all(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hang_between_cases_is_killed_and_an_error),
        cmocka_unit_test(a_slow_start_is_no_hang),
        cmocka_unit_test(a_kill_from_outside_is_no_finding_in_any_work),
        cmocka_unit_test(a_death_after_an_interrupt_is_no_finding),
        cmocka_unit_test(children_ignore_what_the_group_gets),
        cmocka_unit_test(an_ignored_hangup_stays_ignored),
        cmocka_unit_test(the_reason_of_an_early_death_is_not_the_first_line),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

int main(int argc, char **argv) {
    return unruly_main(argc, argv, all);
}
