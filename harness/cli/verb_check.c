/* SPDX-License-Identifier: Apache-2.0
 * check: golden tensors of other projects against a backend. The work is done in a process of its
 * own, so that a crash of the backend is a result like others. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/backends.h"
#include "harness/cli/common.h"
#include "harness/golden.h"
#include "harness/record.h"

#ifndef HB_SOURCE_DIR
#define HB_SOURCE_DIR "."
#endif

static const char child_variable[] = "HBFUZZ_CHECK_CHILD";

static int is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The golden set of the source tree, else the one beside the program. */
static int find_golden(const struct hb_args *args, const char *self, char *out, size_t cap) {
    const char *slash = strrchr(self, '/');
    if (args->golden) {
        (void)snprintf(out, cap, "%s", args->golden);
        return 0;
    }
    (void)snprintf(out, cap, "%s", HB_SOURCE_DIR "/golden");
    if (is_dir(out)) {
        return 0;
    }
    (void)snprintf(out, cap, "%.*s/golden", slash ? (int)(slash - self) : 0, self);
    if (is_dir(out)) {
        return 0;
    }
    hb_cli_complain(
        "no golden cases: neither %s/golden nor %s is a folder, name one with --golden DIR",
        HB_SOURCE_DIR, out);
    return -1;
}

static double largest(const double share[HB_N_GOLDEN_CHECKS]) {
    double m = -1;
    for (int i = 0; i < HB_N_GOLDEN_CHECKS; i++) {
        m = share[i] > m ? share[i] : m;
    }
    return m;
}

static void print_share(const char *name, double v) {
    if (v >= 0) {
        (void)printf("  %s %5.3f", name, v);
    } else {
        (void)printf("  %s     -", name);
    }
}

enum { MAX_OPS = 96 };

/* The largest shares of all runs of an operation in one activation type. */
struct op_row {
    char name[sizeof((struct hb_golden_case_result *)0)->op];
    int32_t act_dtype;
    double share[HB_N_GOLDEN_TENSORS][HB_N_GOLDEN_CHECKS];
    double foreign;
};

/* One row per case: the largest shares over its runs. */
struct table {
    const struct hb_args *args;
    struct op_row op[MAX_OPS];
    int32_t n_ops;
    char name[sizeof((struct hb_golden_case_result *)0)->name];
    double share[HB_N_GOLDEN_TENSORS];
    int32_t n_passed, n_failed, n_skipped;
    int32_t is_begun;
};

static void print_shares(const double share[HB_N_GOLDEN_TENSORS]) {
    static const char *const names[HB_N_GOLDEN_TENSORS] = {"y", "ssm", "conv"};
    for (int i = 0; i < HB_N_GOLDEN_TENSORS; i++) {
        print_share(names[i], share[i]);
    }
}

static void end_row(struct table *t) {
    if (t->name[0] && !(t->args->quiet && t->n_failed == 0)) {
        (void)printf("%-34s %2d runs", t->name, (int)(t->n_passed + t->n_failed));
        print_shares(t->share);
        if (t->n_failed > 0) {
            (void)printf("  %d FAILED\n", (int)t->n_failed);
        } else {
            (void)printf("  passed\n");
        }
    }
    t->name[0] = '\0';
}

static void begin_row(struct table *t, const char *name) {
    end_row(t);
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    t->n_passed = t->n_failed = t->n_skipped = 0;
    for (int i = 0; i < HB_N_GOLDEN_TENSORS; i++) {
        t->share[i] = -1;
    }
}

static void raise_to(double *most, double v) {
    *most = v > *most ? v : *most;
}

/* Order of the rows: by name, then by type. */
static int by_op_and_type(const struct op_row *row, const struct hb_golden_case_result *r) {
    const int order = strcmp(row->name, r->op);
    return order ? order : (row->act_dtype > r->act_dtype) - (row->act_dtype < r->act_dtype);
}

static void count_op(struct table *t, const struct hb_golden_case_result *r) {
    int32_t i = 0;
    while (i < t->n_ops && by_op_and_type(&t->op[i], r) < 0) {
        i++;
    }
    const int is_new = i == t->n_ops || by_op_and_type(&t->op[i], r) != 0;
    if (is_new && t->n_ops == MAX_OPS) {
        return;
    }
    struct op_row *row = &t->op[i];
    if (is_new) {
        memmove(row + 1, row, (size_t)(t->n_ops - i) * sizeof *row);
        t->n_ops++;
    }
    (void)snprintf(row->name, sizeof row->name, "%s", r->op);
    row->act_dtype = r->act_dtype;
    row->foreign = is_new ? -1 : row->foreign;
    raise_to(&row->foreign, r->share_foreign);
    for (int k = 0; k < HB_N_GOLDEN_TENSORS; k++) {
        for (int c = 0; c < HB_N_GOLDEN_CHECKS; c++) {
            row->share[k][c] = is_new ? -1 : row->share[k][c];
            raise_to(&row->share[k][c], r->share[k][c]);
        }
    }
}

/* Checks (a) to (c) of harness/golden.h apart, and the producers' own results. */
static void print_ops(const struct table *t) {
    static const char *const checks[2][HB_N_GOLDEN_CHECKS] = {{"y a", "b", "c"},
                                                              {"ssm a", "b", "c"}};
    if (t->args->quiet || t->n_ops == 0) {
        return;
    }
    (void)printf("largest shares of each operation and type: a reference/stored, b backend/oracle, "
                 "c backend/stored:\n");
    for (int32_t i = 0; i < t->n_ops; i++) {
        (void)printf("%-16s %s", t->op[i].name, hb_dtype_name(t->op[i].act_dtype));
        for (int k = 0; k < 2; k++) {
            for (int c = 0; c < HB_N_GOLDEN_CHECKS; c++) {
                print_share(checks[k][c], t->op[i].share[k][c]);
            }
        }
        print_share("producer", t->op[i].foreign);
        (void)printf("\n");
    }
}

static void on_result(void *ctx, const struct hb_golden_case_result *r) {
    struct table *t = ctx;
    double share[HB_N_GOLDEN_TENSORS];
    if (!t->is_begun && !t->args->quiet) {
        (void)printf("largest error of each case as a share of its bound:\n");
    }
    t->is_begun = 1;
    if (r->skipped && !r->schedule[0]) {
        end_row(t);
        if (!t->args->quiet) {
            (void)printf("%-34s skipped: %s\n", r->name, r->reason);
        }
        return;
    }
    if (strcmp(t->name, r->name) != 0) {
        begin_row(t, r->name);
        if (t->args->verbose) {
            (void)printf("%s needs %s\n", r->name, r->needs);
        }
    }
    count_op(t, r);
    for (int i = 0; i < HB_N_GOLDEN_TENSORS; i++) {
        share[i] = largest(r->share[i]);
        t->share[i] = share[i] > t->share[i] ? share[i] : t->share[i];
    }
    int is_failed = !r->passed && !r->skipped;
    t->n_passed += r->passed;
    t->n_skipped += r->skipped;
    t->n_failed += is_failed;
    if (is_failed || t->args->verbose) {
        (void)printf("  %-32s %-8s %-4s %s", r->name, r->schedule,
                     r->form == HB_FORM_V0 ? "v0" : "fast", hb_dtype_name(r->act_dtype));
        print_shares(share);
        print_share("producer", r->share_foreign);
        (void)printf("  %s%s%s\n",
                     r->passed    ? "passed"
                     : r->skipped ? "skipped"
                                  : "FAILED",
                     r->reason[0] ? ": " : "", r->reason);
    }
}

static int check_here(const struct hb_args *args, const char *dir) {
    struct hb_error err = {.struct_size = sizeof err};
    const struct hb_adapter *backend = NULL;
    struct hb_golden_options o;
    int32_t n[3] = {0, 0, 0};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    int32_t status = hb_backend_open(args->backend, &backend, &err);
    if (status == HB_OK) {
        hb_golden_options_init(&o, dir);
        o.seed = args->seed;
        o.filter = args->filter;
        o.defect = args->defect;
        struct table t = {.args = args};
        status = hb_golden_check(backend, &o, on_result, &t, &n[0], &n[1], &n[2], &err);
        end_row(&t);
        print_ops(&t);
    }
    if (status != HB_OK) {
        return hb_cli_failed(status, &err);
    }
    if (n[0] + n[1] + n[2] == 0) {
        hb_cli_complain("no golden case was found in %.180s%s%.60s", dir,
                        args->filter ? " for the filter " : "", args->filter ? args->filter : "");
        return HB_EXIT_ENVIRONMENT;
    }
    (void)printf("check: %d passed, %d failed, %d skipped\n", (int)n[0], (int)n[1], (int)n[2]);
    return n[1] > 0 ? HB_EXIT_FINDINGS : HB_EXIT_OK;
}

/* The exit code for the way in which the working process ended. */
static int exit_code(int status) {
    static const int ours[] = {HB_EXIT_OK, HB_EXIT_FINDINGS, HB_EXIT_NOT_HERE, HB_EXIT_ENVIRONMENT,
                               HB_EXIT_INTERNAL};
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (hb_supervise_interrupts() > 0 || number == SIGINT) {
        return HB_EXIT_INTERRUPTED;
    }
    if (number == SIGKILL || number == SIGTERM || number == SIGHUP) {
        hb_cli_complain("the check was killed from outside (SIG%s); was the memory short?",
                        sigabbrev_np(number));
        return HB_EXIT_ENVIRONMENT;
    }
    for (size_t i = 0; WIFEXITED(status) && i < sizeof ours / sizeof ours[0]; i++) {
        if (WEXITSTATUS(status) == ours[i]) {
            return ours[i];
        }
    }
    hb_cli_complain("the check ended early with %s %d: a finding of the memory kind",
                    WIFSIGNALED(status) ? "signal" : "exit code",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return HB_EXIT_FINDINGS;
}

/* Runs this program again with the same options; stdout and stderr are inherited. */
static int check_in_child(const struct hb_args *args, const char *self, const char *dir) {
    char seed[32];
    char defect[16];
    const char *argv[16];
    int n = 0;
    (void)snprintf(seed, sizeof seed, "%llu", (unsigned long long)args->seed);
    (void)snprintf(defect, sizeof defect, "%d", (int)args->defect);
    const char *words[] = {self,
                           "check",
                           "--backend",
                           hb_cli_backend_name(args->backend),
                           "--seed",
                           seed,
                           "--golden",
                           dir,
                           args->quiet     ? "--quiet"
                           : args->verbose ? "--verbose"
                                           : NULL,
                           args->filter ? "--filter" : NULL,
                           args->filter,
                           args->defect ? "--defect" : NULL,
                           args->defect ? defect : NULL};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (words[i]) {
            argv[n++] = words[i];
        }
    }
    argv[n] = NULL;
    (void)fflush(NULL);
    hb_supervise_catch(1);
    pid_t pid = fork();
    if (pid < 0) {
        hb_supervise_catch(0);
        hb_cli_complain("cannot start a child process: %s", strerror(errno));
        return HB_EXIT_ENVIRONMENT;
    }
    if (pid == 0) {
        const char *sanitizer = getenv("ASAN_OPTIONS");
        char text[1024];
        (void)snprintf(text, sizeof text, "allocator_may_return_null=1:exitcode=77%s%s",
                       sanitizer ? ":" : "", sanitizer ? sanitizer : "");
        (void)setenv("ASAN_OPTIONS", text, 1);
        (void)setenv(child_variable, "1", 1);
        (void)execv(self, (char *const *)argv);
        _exit(HB_EXIT_INTERNAL);
    }
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (hb_supervise_interrupts() > 0) {
            (void)kill(pid, SIGKILL);
        }
        (void)poll(NULL, 0, 20);
    }
    hb_supervise_catch(0);
    return exit_code(status);
}

int hb_verb_check(const struct hb_args *args) {
    char self[HB_PATH_CAP];
    char dir[HB_PATH_CAP];
    struct hb_error err = {.struct_size = sizeof err};
    if (hb_cli_defect_here(args) != HB_EXIT_OK) {
        return HB_EXIT_NOT_HERE;
    }
    int32_t status = hb_backend_available(args->backend, &err);
    if (status != HB_OK) {
        return hb_cli_failed(status, &err);
    }
    if (hb_cli_self(self, sizeof self) != 0 || find_golden(args, self, dir, sizeof dir) != 0) {
        return HB_EXIT_ENVIRONMENT;
    }
    return getenv(child_variable) ? check_here(args, dir) : check_in_child(args, self, dir);
}
