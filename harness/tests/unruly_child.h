/* SPDX-License-Identifier: Apache-2.0
 * Children that misbehave on purpose. A test program is its own child: with --child it attaches to
 * the page and acts by the case's seed, so that every way of dying can be shown without a defect in
 * a backend. Include after cmocka.h. */
#ifndef HB_HARNESS_TESTS_UNRULY_CHILD_H
#define HB_HARNESS_TESTS_UNRULY_CHILD_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/child_internal.h"
#include "harness/supervise.h"
#include "harness/watch.h"

/* What a case does: its seed modulo 100 where the variable HB_TEST_ACT is set, and only then. */
enum act {
    ACT_PASS,
    ACT_FIND,
    ACT_ABORT,
    ACT_HANG,
    ACT_EXIT,
    ACT_OVERFLOW,
    ACT_ABORT_ONCE,
    ACT_EMULATOR,
    ACT_KILLED,
    ACT_HARNESS,
    ACT_TERMINATED,      /* by a signal that the process does not ignore */
    ACT_HANG_BETWEEN,    /* after the case has ended */
    ACT_SIGNAL_SUPERVISOR /* then die */
};
enum { ACTIVE_EVERY = 10 };

/* --- the child --- */

static void overflow(void) {
    volatile char *block = malloc(8);
    volatile int at = 8;
    if (block) {
        block[at] = 1; /* AddressSanitizer reports it; other builds go on */
    }
    abort();
}

static void misbehave(struct hb_child *child, int act, struct hb_message *m) {
    child->me->operation = HB_OPERATION_layer;
    if (act == ACT_FIND) {
        hb_verdict_set(&m->verdict, HB_VERDICT_NUMERIC, "numeric.test", "forward", HB_OK, HB_OK,
                       "wrong on purpose");
    } else if (act == ACT_ABORT ||
               (act == ACT_ABORT_ONCE && child->page->options.work == HB_WORK_FUZZ)) {
        abort();
    } else if (act == ACT_EMULATOR) {
        (void)fputs("line before\nhbfuzz-emu: scan_kernel: divergent barrier\n", stderr);
        abort();
    } else if (act == ACT_KILLED) {
        (void)raise(SIGKILL);
    } else if (act == ACT_TERMINATED) {
        (void)signal(SIGTERM, SIG_DFL);
        (void)raise(SIGTERM);
    } else if (act == ACT_SIGNAL_SUPERVISOR) {
        (void)kill(getppid(), SIGTERM);
        (void)usleep(200000);
        abort();
    } else if (act == ACT_HARNESS) {
        child->me->operation = HB_OPERATION_none;
        abort();
    } else if (act == ACT_EXIT) {
        _exit(33);
    } else if (act == ACT_OVERFLOW) {
        overflow();
    }
    if (act == ACT_HANG) {
        (void)sleep(1000);
    }
    child->me->operation = HB_OPERATION_none;
}

static int act_of(const struct hb_case *c) {
    const char *act = getenv("HB_TEST_ACT");
    return act && c->config.seed % ACTIVE_EVERY == ACTIVE_EVERY - 1 ? (int)strtol(act, NULL, 10)
                                                                    : ACT_PASS;
}

static int one(struct hb_child *child, const struct hb_case *c, uint64_t index, const char *file) {
    struct hb_message m;
    if (!hb_child_begin(child, c, index)) {
        return 1;
    }
    memset(&m, 0, sizeof m);
    m.size = sizeof m;
    m.kind = HB_MESSAGE_RESULT;
    m.index = index;
    m.at_cases = ++child->me->cases;
    m.at_ns = hb_now_ns() - child->page->begun_ns;
    hb_case_id(c, m.id);
    misbehave(child, act_of(c), &m);
    child->me->started_ns = 0;
    if (act_of(c) == ACT_HANG_BETWEEN) {
        (void)sleep(1000);
    }
    int is_fuzz = child->page->options.work == HB_WORK_FUZZ;
    if (file) {
        (void)snprintf(m.file, sizeof m.file, "%s", file);
    } else if (m.verdict.kind != HB_VERDICT_PASS &&
               hb_page_see(child->page, m.verdict.fingerprint) && hb_page_first(child->page)) {
        (void)hb_child_save(child, c, &m);
    } else if (is_fuzz) {
        return 0;
    }
    hb_child_send(child, &m);
    return 0;
}

static int child_main(void) {
    static struct hb_child child;
    struct hb_case c;
    const char *early = getenv("HB_TEST_EARLY");
    if (early && strcmp(early, "die") == 0) {
        (void)fputs("no reason at all\n", stderr);
        return 9;
    }
    if (early && strcmp(early, "slow") == 0) {
        (void)usleep(1000000);
    }
    if (hb_child_open(&child) != 0) {
        return 5;
    }
    if (early && strcmp(early, "fail") == 0) {
        struct hb_error err = {.struct_size = sizeof err};
        hb_child_fail(&child, hb_fail_text(&err, HB_ERR_DEVICE, "no such device"), &err);
        return 0;
    }
    hb_case_init(&c);
    for (uint64_t i = child.me->first; child.page->options.work != HB_WORK_FILES; i++) {
        c.config.seed =
            (int32_t)(child.page->options.work == HB_WORK_FUZZ ? child.me->seed * 1000 + i : i);
        if (one(&child, &c, i, NULL) != 0) {
            return 0;
        }
    }
    uint64_t i = 0;
    for (const char *path = child.list; path < child.list + child.list_bytes;
         path += strlen(path) + 1, i++) {
        if (i >= child.me->first && hb_case_load(path, &c, NULL) == HB_OK &&
            one(&child, &c, i, path) != 0) {
            return 0;
        }
    }
    return 0;
}

/* --- for the tests --- */

static char self[HB_PATH_CAP];
static char folder[64];

struct seen {
    int32_t n, n_results;
    struct hb_message last;
    int32_t same, tries;
    uint64_t next;
    int32_t is_ordered;
};

static void on_finding(void *ctx, const struct hb_finding *f) {
    struct seen *s = ctx;
    s->n++;
    s->last = *f->message;
    s->same = f->same;
    s->tries = f->tries;
}

static void on_result(void *ctx, const struct hb_message *m) {
    struct seen *s = ctx;
    s->is_ordered &= m->index == s->next;
    s->next = m->index + 1;
    s->n_results++;
    if (m->verdict.kind != HB_VERDICT_PASS) {
        s->n++;
        s->last = *m;
    }
}

static void prepare(struct hb_supervise *s, struct seen *seen, int32_t work, int act) {
    char text[16];
    memset(seen, 0, sizeof *seen);
    seen->is_ordered = 1;
    hb_supervise_init(s);
    s->program = self;
    s->child.work = work;
    s->hang_seconds = 1;
    s->ctx = seen;
    s->finding = on_finding;
    s->result = on_result;
    (void)snprintf(s->child.out_dir, sizeof s->child.out_dir, "%s", folder);
    (void)snprintf(text, sizeof text, "%d", act);
    assert_int_equal(setenv("HB_TEST_ACT", text, 1), 0);
}

static struct hb_supervise_result result;

static inline int32_t run(const struct hb_supervise *s) {
    struct hb_error err = {.struct_size = sizeof err};
    int32_t status = hb_supervise(s, &result, &err);
    if (status != HB_OK) {
        print_message("%s\n", err.text);
    }
    return status;
}

static int make_folder(void **state) {
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/hbfuzz-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[] = "rm";
    char option[] = "-rf";
    char *argv[] = {command, option, folder, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        (void)execv("/bin/rm", argv);
        _exit(1);
    }
    int status = 1;
    return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -1;
}

/* As an engine: what it says of an argument that libFuzzer does not know, and of a value that is no number. */
static int engine_main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-nosuch=1") == 0) {
            (void)fprintf(stderr, "INFO: a line\n\nWARNING: unrecognized flag '%s'; use -help=1 to list all flags\n\n",
                          argv[i]);
        }
        if (strcmp(argv[i], "-seed=abc") == 0) {
            (void)fputs("INFO: a line\nterminate called after throwing 'std::invalid_argument'\n  what():  stoul\n",
                        stderr);
            abort();
        }
    }
    return child_main();
}

/* main of a test program: argc and argv as given. */
static int unruly_main(int argc, char **argv, int (*tests)(void)) {
    if (argc == 2 && strcmp(argv[1], "--child") == 0) {
        return child_main();
    }
    if (argc > 2 && strcmp(argv[1], "-len_control=0") == 0) {
        return engine_main(argc, argv);
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) {
        return 1;
    }
    self[n] = '\0';
    return tests();
}

#endif
