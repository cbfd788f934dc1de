/* SPDX-License-Identifier: Apache-2.0
 * Runs the built command in a folder of the test's own. Include after cmocka.h. */
#ifndef HB_HARNESS_TESTS_CLI_RIG_H
#define HB_HARNESS_TESTS_CLI_RIG_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/case.h"
#include "harness/gen.h"

extern char **environ;

enum { MAX_WORDS = 64, TEXT_CAP = 262144 };

static const char hbfuzz[] = HB_BUILD_DIR "/hbfuzz";
static char folder[64];
static char out_text[TEXT_CAP], err_text[TEXT_CAP];

static void read_back(const char *path, char *text) {
    FILE *f = fopen(path, "re");
    if (!f) {
        fail_msg("cannot open %s", path);
        return;
    }
    size_t n = fread(text, 1, TEXT_CAP - 1, f);
    text[n] = '\0';
    assert_int_equal(fclose(f), 0);
}

static char *in_folder(const char *name) {
    static char text[8][256];
    static int next;
    char *t = text[next++ % 8];
    (void)snprintf(t, sizeof text[0], "%s/%s", folder, name);
    return t;
}

static void write_file(const char *name, const char *text) {
    FILE *f = fopen(in_folder(name), "we");
    if (!f) {
        fail_msg("cannot write %s", name);
        return;
    }
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* What the next programs are started with besides the defaults. */
static struct {
    const char *dir;  /* working folder; null: the test's */
    const char *in;   /* standard input; null: that of the test */
    const char *out;  /* standard output; null: the file "stdout" in the test's folder */
    int close_all;    /* no standard streams at all */
    int is_own_group; /* a group of processes with the number of the program */
    rlim_t file_bytes, stack_bytes; /* limits; 0: those of the test */
} start_with;

/* Copies words, separated by blanks, each @ replaced by the folder; ends argv with a null. */
static void split_words(const char *line, char words[MAX_WORDS][512], const char **argv) {
    int n = 0;
    argv[n++] = hbfuzz;
    for (const char *p = line; *p && n < MAX_WORDS; p += strspn(p, " ")) {
        size_t k = strcspn(p, " ");
        const char *at = memchr(p, '@', k);
        (void)snprintf(words[n], sizeof words[0], "%.*s%s%.*s", at ? (int)(at - p) : (int)k, p,
                       at ? folder : "", at ? (int)(k - (size_t)(at - p) - 1) : 0,
                       at ? at + 1 : "");
        argv[n] = words[n];
        n++;
        p += k;
    }
    argv[n] = NULL;
}

static void set_streams(posix_spawn_file_actions_t *actions) {
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    const char *out = start_with.out ? start_with.out : in_folder("stdout");
    int rc = posix_spawn_file_actions_addchdir_np(actions,
                                                  start_with.dir ? start_with.dir : folder);
    for (int fd = 0; fd < 3 && start_with.close_all; fd++) {
        rc |= posix_spawn_file_actions_addclose(actions, fd);
    }
    if (!start_with.close_all) {
        rc |= start_with.in
                  ? posix_spawn_file_actions_addopen(actions, 0, start_with.in, O_RDONLY, 0)
                  : 0;
        rc |= posix_spawn_file_actions_addopen(actions, 1, out, flags, 0644);
        rc |= posix_spawn_file_actions_addopen(actions, 2, in_folder("stderr"), flags, 0644);
    }
    assert_int_equal(rc, 0);
}

/* Lowers the soft limit of this process, which the next program inherits; *before is what it was. 0: leaves it. */
static void lower(int resource, rlim_t bytes, struct rlimit *before) {
    assert_int_equal(getrlimit((__rlimit_resource_t)resource, before), 0);
    if (bytes) {
        const struct rlimit low = {bytes, before->rlim_max};
        assert_int_equal(setrlimit((__rlimit_resource_t)resource, &low), 0);
    }
}

/* Starts hbfuzz with the words of line as start_with says. */
static pid_t start(const char *line) {
    static char words[MAX_WORDS][512];
    const char *argv[MAX_WORDS + 1];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t pid = 0;
    split_words(line, words, argv);
    write_file("stdout", "");
    write_file("stderr", "");
    assert_int_equal(posix_spawnattr_init(&attributes), 0);
    assert_int_equal(posix_spawnattr_setflags(
                         &attributes, start_with.is_own_group ? POSIX_SPAWN_SETPGROUP : 0),
                     0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    set_streams(&actions);
    struct rlimit file;
    struct rlimit stack;
    lower(RLIMIT_FSIZE, start_with.file_bytes, &file);
    lower(RLIMIT_STACK, start_with.stack_bytes, &stack);
    assert_int_equal(
        posix_spawn(&pid, hbfuzz, &actions, &attributes, (char *const *)argv, environ), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &file), 0);
    assert_int_equal(setrlimit(RLIMIT_STACK, &stack), 0);
    assert_int_equal(posix_spawn_file_actions_destroy(&actions), 0);
    assert_int_equal(posix_spawnattr_destroy(&attributes), 0);
    return pid;
}

static int finish(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    read_back(in_folder("stdout"), out_text);
    read_back(in_folder("stderr"), err_text);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int run(const char *line) {
    return finish(start(line));
}

static int count_lines(const char *text) {
    int n = 0;
    for (; *text; text++) {
        n += *text == '\n';
    }
    return n;
}

static inline const char *last_line(const char *text) {
    const char *last = text;
    for (const char *p = text; *p; p++) {
        last = *p == '\n' && p[1] ? p + 1 : last;
    }
    return last;
}

struct bad {
    const char *line;
    int code;
    const char *text; /* part of the one line on standard error */
};

static inline void check_bad(const struct bad *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int code = run(rows[i].line);
        if (code != rows[i].code || !strstr(err_text, rows[i].text) || count_lines(err_text) != 1 ||
            out_text[0]) {
            print_message("hbfuzz %s\ncode %d, want %d\n%s---\n%.500s", rows[i].line, code,
                          rows[i].code, err_text, out_text);
        }
        assert_int_equal(code, rows[i].code);
        assert_non_null(strstr(err_text, rows[i].text));
        assert_int_equal(strncmp(err_text, "hbfuzz: ", 8), 0);
        assert_int_equal(count_lines(err_text), 1);
        assert_string_equal(out_text, "");
    }
}

/* Entries of the test's folder whose name has this part. */
static inline int count_containing(const char *part) {
    DIR *d = opendir(folder);
    int n = 0;
    if (!d) {
        fail_msg("cannot open %s", folder);
        return 0;
    }
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        n += strstr(e->d_name, part) != NULL;
    }
    assert_int_equal(closedir(d), 0);
    return n;
}

static inline int count_files(const char *name) {
    DIR *d = opendir(in_folder(name));
    int n = 0;
    if (!d) {
        fail_msg("cannot open %s", name);
        return 0;
    }
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        n += e->d_name[0] != '.';
    }
    assert_int_equal(closedir(d), 0);
    return n;
}

static int make_folder(void **state) {
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/hbfuzz-cli-XXXXXX");
    struct hb_gen_options o;
    struct hb_case c;
    hb_gen_options_init(&o);
    o.gen_class = HB_GEN_VALID;
    hb_gen_case(&o, 1, 1, &c);
    return mkdtemp(folder) && mkdir(in_folder("empty-folder"), 0755) == 0 &&
                   hb_case_save(in_folder("good.case"), &c, NULL) == HB_OK
               ? 0
               : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[] = "rm";
    char option[] = "-rf";
    char *argv[] = {command, option, folder, NULL};
    pid_t pid = 0;
    int status = 1;
    return posix_spawn(&pid, "/bin/rm", NULL, NULL, argv, environ) == 0 &&
                   waitpid(pid, &status, 0) == pid && status == 0
               ? 0
               : -1;
}

#endif
