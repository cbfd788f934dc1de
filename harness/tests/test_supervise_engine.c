/* SPDX-License-Identifier: Apache-2.0
 * The supervisor and the engine's program: arguments that it does not take, and the folder that it works in. The test
 * program is its own engine (engine_main of unruly_child.h). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>

#include "harness/tests/unruly_child.h"

static void prepare_engine(struct hb_supervise *s, struct seen *seen, char **words, int32_t n) {
    prepare(s, seen, HB_WORK_FUZZ, ACT_PASS);
    s->engine = self;
    s->engine_args = words;
    s->n_engine_args = n;
    s->child.limit = 50;
    s->hang_seconds = 20;
}

static void an_argument_that_the_engine_does_not_know_ends_the_campaign(void **state) {
    (void)state;
    static char known[] = "-runs=7";
    static char unknown[] = "-nosuch=1";
    char *words[] = {known, unknown};
    struct hb_supervise s;
    struct seen seen;
    struct hb_error err = {.struct_size = sizeof err};
    prepare_engine(&s, &seen, words, 1);
    assert_int_equal(hb_supervise(&s, &result, &err), HB_OK);
    assert_int_equal(result.cases, 50);
    assert_int_equal(result.is_bad_argument, 0);
    prepare_engine(&s, &seen, words, 2);
    s.child.limit = 0;
    assert_int_equal(hb_supervise(&s, &result, &err), HB_ERR_PARSE);
    assert_string_equal(err.text, "the engine takes no such argument: unrecognized flag '-nosuch=1'");
    assert_int_equal(result.is_bad_argument, 1);
}

static void an_engine_that_dies_of_an_argument_is_heard(void **state) {
    (void)state;
    static char bad[] = "-seed=abc";
    char *words[] = {bad};
    struct hb_supervise s;
    struct seen seen;
    struct hb_error err = {.struct_size = sizeof err};
    prepare_engine(&s, &seen, words, 1);
    assert_int_equal(hb_supervise(&s, &result, &err), HB_ERR_IO);
    assert_string_equal(err.text, "the engine ends before its first case, with '-seed=abc': terminate called after "
                                  "throwing 'std::invalid_argument'; what():  stoul");
}

static int count_folders(void) {
    DIR *d = opendir(folder);
    int n = 0;
    if (!d) {
        fail_msg("cannot open %s", folder);
        return -1;
    }
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        n += strncmp(e->d_name, "hbfuzz-", 7) == 0;
    }
    assert_int_equal(closedir(d), 0);
    return n;
}

static pid_t start_supervisor(void) {
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct hb_supervise s;
        struct seen seen;
        prepare_engine(&s, &seen, NULL, 0);
        s.child.limit = 0;
        s.seconds = 0.5;
        (void)hb_supervise(&s, &result, NULL);
        _exit(0);
    }
    (void)usleep(300000);
    return pid;
}

/* The engine's folder is there while it works, and gone however the supervisor ended. */
static void a_killed_supervisor_leaves_no_folder(void **state) {
    (void)state;
    assert_int_equal(setenv("TMPDIR", folder, 1), 0);
    for (int is_killed = 0; is_killed < 2; is_killed++) {
        const pid_t pid = start_supervisor();
        assert_int_equal(count_folders(), 1);
        if (is_killed) {
            assert_int_equal(kill(pid, SIGKILL), 0);
        }
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        for (int i = 0; is_killed && i < 200 && count_folders() > 0; i++) {
            (void)usleep(10000);
        }
        assert_int_equal(count_folders(), 0);
    }
    assert_int_equal(unsetenv("TMPDIR"), 0);
}

static int all(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_argument_that_the_engine_does_not_know_ends_the_campaign),
        cmocka_unit_test(an_engine_that_dies_of_an_argument_is_heard),
        cmocka_unit_test(a_killed_supervisor_leaves_no_folder),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

int main(int argc, char **argv) {
    return unruly_main(argc, argv, all);
}
