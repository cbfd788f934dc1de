/* SPDX-License-Identifier: Apache-2.0
 * The built command where the environment is unkind: full devices, closed streams, signals to the
 * group, folders that cannot be written, odd targets of --out. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <signal.h>

#include "harness/tests/cli_rig.h"

/* --- output ----------------------------------------------------------------------------------- */

static void output_that_cannot_be_written_is_4(void **state) {
    (void)state;
    static const char *const lines[] = {
        "--help",
        "--version",
        "help run",
        "run --help",
        "doctor",
        "list",
        "gen --count 3",
        "gen --count 1000",
        "run @/good.case --backend oracle",
        "run @/good.case --backend oracle --format jsonl",
        "fuzz dispatch --backend oracle --count 20 --engine plain -o @/full",
        "repro @/good.case --backend oracle",
        "explain @/good.case",
        "check --filter conv_w3",
    };
    start_with.out = "/dev/full";
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        int code = run(lines[i]);
        if (code != 4 || count_lines(err_text) != 1) {
            print_message("hbfuzz %s\ncode %d\n%s", lines[i], code, err_text);
        }
        assert_int_equal(code, 4);
        assert_string_equal(err_text, "hbfuzz: cannot write to standard output\n");
    }
    start_with.out = NULL;
}

static void records_that_cannot_be_written_are_4(void **state) {
    (void)state;
    assert_int_equal(mkdir(in_folder("full-records"), 0755), 0);
    assert_int_equal(symlink("/dev/full", in_folder("full-records/records.jsonl")), 0);
    assert_int_equal(
        run("fuzz dispatch --backend oracle --count 20 --engine plain -o @/full-records"), 4);
    assert_non_null(strstr(err_text, "full-records/records.jsonl"));
    assert_non_null(strstr(out_text, "dispatch: 20 cases")); /* what was done is said */
    assert_int_equal(symlink("/dev/full", in_folder("full-link")), 0);
    assert_int_equal(run("run @/good.case --backend oracle --out @/full-link"), 4);
    assert_non_null(strstr(err_text, "full-link: "));
}

static void closed_streams_spoil_no_file(void **state) {
    (void)state;
    static char text[TEXT_CAP];
    start_with.close_all = 1;
    /* the report is lost, which is told by the code; the records are not */
    assert_int_equal(
        run("fuzz dispatch --backend oracle --count 20 --engine plain --stats -v -o @/closed"), 4);
    start_with.close_all = 0;
    read_back(in_folder("closed/records.jsonl"), text);
    assert_int_equal(count_lines(text), 1);
    assert_int_equal(text[0], '{');
}

static void the_target_of_out_stays_what_it_is(void **state) {
    (void)state;
    static char text[TEXT_CAP];
    struct stat st;
    assert_int_equal(mkfifo(in_folder("pipe"), 0644), 0); /* like a device, and ours */
    int fd = open(in_folder("pipe"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(run("run @/good.case --backend oracle --out @/pipe"), 0);
    assert_int_equal(stat(in_folder("pipe"), &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_true(read(fd, text, sizeof text) > 100);
    assert_int_equal(close(fd), 0);
    assert_int_equal(mkdir(in_folder("elsewhere"), 0755), 0);
    write_file("elsewhere/r.jsonl", "old\n");
    static const char *const names[] = {"r.jsonl", "new.jsonl"}; /* there, and not there yet */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char to[64];
        char line[128];
        (void)snprintf(to, sizeof to, "elsewhere/%s", names[i]);
        (void)snprintf(line, sizeof line, "run @/good.case --backend oracle --out @/%s", names[i]);
        assert_int_equal(symlink(to, in_folder(names[i])), 0);
        assert_int_equal(run(line), 0);
        assert_int_equal(lstat(in_folder(names[i]), &st), 0);
        assert_true(S_ISLNK(st.st_mode));
        read_back(in_folder(to), text);
        assert_int_equal(count_lines(text), 2);
    }
    assert_int_equal(count_files("elsewhere"), 2);
    assert_int_equal(symlink("pipe", in_folder("pipe-link")), 0);
    fd = open(in_folder("pipe"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(run("run @/good.case --backend oracle --out @/pipe-link"), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(lstat(in_folder("pipe-link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

static void generated_cases_need_no_folder(void **state) {
    (void)state;
    start_with.dir = "/proc"; /* not even root makes files here */
    assert_int_equal(run("run --gen 5 --backend oracle"), 0);
    assert_string_equal(err_text, "");
#ifdef HB_DEFECTS
    assert_int_equal(run("run --gen 300 --defect 9"), 4);
    assert_non_null(strstr(err_text, "findings/"));
    assert_non_null(strstr(out_text, "1 findings"));
    start_with.dir = NULL;
    assert_int_equal(run("run --gen 300 --defect 9"), 1);
    assert_true(count_files("findings") > 0);
#endif
    start_with.dir = NULL;
}

/* --- input ------------------------------------------------------------------------------------ */

static void explain_reads_standard_input(void **state) {
    (void)state;
    static char first[TEXT_CAP];
    assert_int_equal(run("explain @/good.case"), 0);
    memcpy(first, out_text, sizeof first);
    write_file("explained", first);
    start_with.in = in_folder("explained");
    assert_int_equal(run("explain -"), 0);
    start_with.in = NULL;
    assert_string_equal(first, out_text);
}

static void a_folder_is_read_with_its_links_and_without_leftovers(void **state) {
    (void)state;
    assert_int_equal(mkdir(in_folder("links"), 0755), 0);
    assert_int_equal(symlink("../good.case", in_folder("links/a.case")), 0);
    assert_int_equal(run("run @/links --backend oracle"), 0);
    assert_string_equal(err_text, "");
    assert_int_equal(symlink("absent", in_folder("links/b.case")), 0);
    write_file("links/c.case.tmp-12-0", "HB");
    assert_int_equal(run("run @/links --backend oracle"), 0);
    assert_non_null(strstr(out_text, "run: 1 cases, 1 passed, 0 findings, 0 skipped\n"));
    assert_int_equal(count_lines(err_text), 1);
    assert_non_null(strstr(err_text, "skipped "));
    assert_non_null(strstr(err_text, "links/b.case"));
}

/* --- signals ---------------------------------------------------------------------------------- */

static int after_signal(const char *line, int number, useconds_t wait_us) {
    start_with.is_own_group = 1;
    pid_t pid = start(line);
    start_with.is_own_group = 0;
    (void)usleep(wait_us);
    assert_int_equal(kill(-pid, number), 0);
    int code = finish(pid);
    for (int i = 0; i < 100 && kill(-pid, 0) == 0; i++) {
        (void)usleep(20000); /* children that were killed may not have gone yet */
    }
    assert_int_equal(kill(-pid, 0), -1);
    return code;
}

static void a_signal_to_the_group_is_no_finding(void **state) {
    (void)state;
    static const int numbers[] = {SIGTERM, SIGHUP, SIGINT};
    static char text[TEXT_CAP];
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        assert_int_equal(after_signal("run --gen 10000000 --out @/group.jsonl", numbers[i], 700000),
                         130);
        assert_non_null(strstr(last_line(out_text), ", 0 findings, "));
        assert_string_equal(err_text, "");
        read_back(in_folder("group.jsonl"), text);
        assert_non_null(strstr(text, "{"));
        assert_int_equal(after_signal("fuzz dispatch --time 60 -o @/group", numbers[i], 700000),
                         130);
        assert_non_null(strstr(last_line(out_text), ", 0 findings\n"));
        assert_int_equal(after_signal("check", numbers[i], 600000), 130);
    }
    assert_int_equal(count_containing(".part"), 0);
}

static void check_takes_its_child_along(void **state) {
    (void)state;
    static const int numbers[] = {SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        start_with.is_own_group = 1;
        pid_t pid = start("check");
        start_with.is_own_group = 0;
        (void)usleep(600000);
        assert_int_equal(kill(pid, numbers[i]), 0);
        assert_int_equal(finish(pid), 130);
        assert_int_equal(kill(-pid, 0), -1);
    }
}

/* The first child of a process, 0 if there is none. */
static pid_t child_of(pid_t pid) {
    char path[64];
    char text[32] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *f = fopen(path, "re");
    if (!f) {
        return 0;
    }
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    (void)fclose(f);
    return (pid_t)strtol(text, NULL, 10);
}

static void a_child_killed_from_outside_is_4_and_keeps_what_was_done(void **state) {
    (void)state;
    static char text[TEXT_CAP];
    pid_t pid = start("run --gen 10000000 --size small --out @/killed.jsonl");
    (void)usleep(300000);
    for (int i = 0; i < 10; i++) { /* a kill between two cases is made good by a new child */
        pid_t child = child_of(pid);
        if (child > 0) {
            (void)kill(child, SIGKILL);
        }
        (void)usleep(300000);
    }
    (void)kill(pid, SIGINT); /* where it goes on all the same */
    assert_int_equal(finish(pid), 4);
    assert_non_null(strstr(err_text, "killed from outside (SIGKILL)"));
    assert_int_equal(count_lines(err_text), 1);
    assert_non_null(strstr(last_line(out_text), ", 0 findings, "));
    read_back(in_folder("killed.jsonl"), text);
    assert_int_equal(text[0], '{');
    assert_int_equal(count_containing(".part"), 0);
}

static void parallel_runs_share_no_temporary_file(void **state) {
    (void)state;
    pid_t first = start("run --gen 10000000 --backend oracle --out @/parallel.jsonl");
    pid_t second = start("run --gen 10000000 --backend oracle --out @/parallel.jsonl");
    (void)usleep(500000);
    int n = count_containing("parallel.jsonl.");
    assert_int_equal(kill(first, SIGINT), 0);
    assert_int_equal(kill(second, SIGINT), 0);
    assert_int_equal(finish(first), 130);
    assert_int_equal(finish(second), 130);
    assert_int_equal(n, 2);
    assert_int_equal(count_containing("parallel.jsonl."), 0);
}

static void an_interrupted_gen_leaves_whole_cases(void **state) {
    (void)state;
    assert_int_equal(after_signal("gen --count 10000000 --out @/many", SIGINT, 500000), 130);
    DIR *d = opendir(in_folder("many"));
    if (!d) {
        fail_msg("cannot open the folder of cases");
        return;
    }
    int n = 0;
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        assert_null(strstr(e->d_name, ".tmp-"));
        n++;
    }
    assert_int_equal(closedir(d), 0);
    assert_true(n > 3);
}

/* Before each test, as one that failed leaves its own settings. */
static int start_plainly(void **state) {
    (void)state;
    memset(&start_with, 0, sizeof start_with);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(output_that_cannot_be_written_is_4, start_plainly),
        cmocka_unit_test_setup(records_that_cannot_be_written_are_4, start_plainly),
        cmocka_unit_test_setup(closed_streams_spoil_no_file, start_plainly),
        cmocka_unit_test_setup(the_target_of_out_stays_what_it_is, start_plainly),
        cmocka_unit_test_setup(generated_cases_need_no_folder, start_plainly),
        cmocka_unit_test_setup(explain_reads_standard_input, start_plainly),
        cmocka_unit_test_setup(a_folder_is_read_with_its_links_and_without_leftovers, start_plainly),
        cmocka_unit_test_setup(a_signal_to_the_group_is_no_finding, start_plainly),
        cmocka_unit_test_setup(check_takes_its_child_along, start_plainly),
        cmocka_unit_test_setup(a_child_killed_from_outside_is_4_and_keeps_what_was_done,
                               start_plainly),
        cmocka_unit_test_setup(parallel_runs_share_no_temporary_file, start_plainly),
        cmocka_unit_test_setup(an_interrupted_gen_leaves_whole_cases, start_plainly),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
