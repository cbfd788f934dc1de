/* SPDX-License-Identifier: Apache-2.0
 * Messages, exit codes, folders, and the set-up shared by the verbs that execute cases. */
#include "harness/cli/common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/defects.h"
#include "hb_build_info.h"
#include "harness/backends.h"
#include "harness/cli/option_table.h"

#ifndef HB_VERSION
#define HB_VERSION "0.1.0"
#endif

const struct hb_build_info *hb_cli_build(void) {
#ifdef HB_ASAN
    static const char sanitizers[] = "address,undefined";
#else
    static const char sanitizers[] = "none";
#endif
    static const struct hb_build_info info = {HB_VERSION, HB_BUILD_COMMIT, HB_BUILD_COMPILER,
                                              HB_BUILD_TYPE, sanitizers};
    return &info;
}

void hb_cli_complain(const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    hb_cli_untick();
    (void)fflush(stdout);
    (void)fputs("hbfuzz: ", stderr);
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '\n') {
            (void)fputs("\\n", stderr);
        } else if (c < 0x20 || c == 0x7f) {
            (void)fprintf(stderr, "\\x%02x", c);
        } else {
            (void)fputc(c, stderr);
        }
    }
    (void)fputc('\n', stderr);
}

void hb_cli_open_streams(void) {
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            /* the lowest free number, fd; a closed standard output takes nothing, so that writing to it is an error */
            (void)open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR); /* NOLINT */
        }
    }
}

int hb_cli_failed(int32_t status, const struct hb_error *err) {
    static const struct {
        int32_t status, code;
    } codes[] = {{HB_ERR_UNSUPPORTED, HB_EXIT_NOT_HERE},
                 {HB_ERR_DEVICE, HB_EXIT_NOT_HERE},
                 {HB_ERR_IO, HB_EXIT_ENVIRONMENT},
                 {HB_ERR_PARSE, HB_EXIT_ENVIRONMENT},
                 {HB_ERR_MEMORY, HB_EXIT_ENVIRONMENT}};
    hb_cli_complain("%s", err->text[0] ? err->text : hb_status_name(status));
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (codes[i].status == status) {
            return codes[i].code;
        }
    }
    return HB_EXIT_INTERNAL;
}

int hb_cli_self(char *out, size_t cap) {
    ssize_t n = readlink("/proc/self/exe", out, cap - 1);
    if (n <= 0 || (size_t)n >= cap - 1) {
        hb_cli_complain("cannot find the path of this program: %s", strerror(errno));
        return -1;
    }
    out[n] = '\0';
    return 0;
}

int32_t hb_cli_make_dir(const char *path, struct hb_error *err) {
    char text[HB_PATH_CAP];
    struct stat st;
    if (strlen(path) + 80 >= sizeof text) { /* room for the names of the files in it */
        return hb_fail_text(err, HB_ERR_IO,
                            "the path of the folder has %zu characters, the limit is %zu",
                            strlen(path), sizeof text - 80);
    }
    (void)snprintf(text, sizeof text, "%s", path);
    for (char *p = text + 1; *p; p++) {
        if (*p == '/') {
            *p = '\0';
            (void)mkdir(text, 0777); /* the last one tells */
            *p = '/';
        }
    }
    if (mkdir(text, 0777) != 0 && errno != EEXIST) {
        return hb_fail_text(err, HB_ERR_IO, "cannot make the folder %.180s: %s", path,
                            strerror(errno));
    }
    if (stat(text, &st) != 0 || !S_ISDIR(st.st_mode)) {
        return hb_fail_text(err, HB_ERR_IO, "%.200s is not a folder", path);
    }
    if (access(text, W_OK) != 0) {
        return hb_fail_text(err, HB_ERR_IO, "cannot write to the folder %.180s: %s", path,
                            strerror(errno));
    }
    return HB_OK;
}

int hb_cli_model_dir(char *out, size_t cap) {
    struct stat st;
    char self[HB_PATH_CAP];
    (void)snprintf(out, cap, "%s", HB_SOURCE_DIR "/corpus/models");
    if (stat(out, &st) == 0 && S_ISDIR(st.st_mode)) {
        return 0;
    }
    if (hb_cli_self(self, sizeof self) != 0) {
        return -1;
    }
    const char *slash = strrchr(self, '/');
    (void)snprintf(out, cap, "%.*s/models", slash ? (int)(slash - self) : 0, self);
    return stat(out, &st) == 0 && S_ISDIR(st.st_mode) ? 0 : -1;
}

static const char *model_name(int i) {
    static char names[HB_CLI_MAX_MODELS][HB_MODEL_NAME];
    char dir[HB_PATH_CAP];
    (void)hb_cli_model_dir(dir, sizeof dir);
    return hb_model_names(dir, names, HB_CLI_MAX_MODELS) > i ? names[i] : "";
}

static int unknown_model(const char *name, int32_t n) {
    char hint[400] = "";
    hb_suggest(name, n, model_name, hint, sizeof hint);
    hb_cli_complain("unknown model '%.200s'%s", name, hint[0] ? hint : " (list --models names them)");
    return HB_EXIT_USAGE;
}

/* --model NAME. */
static int load_model(const struct hb_args *args, struct hb_gen_options *o) {
    char names[HB_CLI_MAX_MODELS][HB_MODEL_NAME];
    char dir[HB_PATH_CAP];
    struct hb_error err = {.struct_size = sizeof err};
    int32_t n = hb_cli_model_dir(dir, sizeof dir) == 0 ? hb_model_names(dir, names, HB_CLI_MAX_MODELS) : -1;
    if (n < 0) {
        hb_cli_complain("no models: %s is no folder", dir);
        return HB_EXIT_ENVIRONMENT;
    }
    for (int32_t i = 0; i < n; i++) {
        if (strcmp(names[i], args->model) == 0) {
            o->has_model = 1;
            const int32_t status = hb_model_load(dir, args->model, &o->model, &err);
            return status == HB_OK ? 0 : hb_cli_failed(status, &err);
        }
    }
    return unknown_model(args->model, n);
}

/* True sizes are meant for GPUs: elsewhere a word about what they cost. */
static void warn_of_size(const struct hb_args *args, const struct hb_gen_options *o) {
    const struct hb_backend_entry *list;
    const struct hb_case_config *g = &o->model.real;
    (void)hb_backends(&list);
    if (args->size == HB_SIZE_REAL && args->verb != HB_VERB_GEN && !list[args->backend].needs_gpu) {
        hb_cli_complain("--size real on backend %s: up to %.1e updates of states a case (%.1e a token and layer), "
                        "seconds to minutes each; it is meant for a GPU",
                        list[args->backend].name, (double)HB_CASE_REAL_WORK,
                        (double)g->heads * g->head_dim * g->state_size);
    }
}

int hb_cli_gen_options(const struct hb_args *args, struct hb_gen_options *o) {
    hb_gen_options_init(o);
    o->target = args->target == HB_TARGET_ANY ? HB_TARGET_FORWARD : args->target;
    o->size = args->size;
    o->gen_class = args->gen_class;
    o->mode = args->mode;
    o->relation = args->relation > 0 ? args->relation : -1;
    o->mixer = args->mixer;
    if (args->size == HB_SIZE_REAL && !args->model) {
        hb_cli_complain("--size real needs --model: the sizes are the model's");
        return HB_EXIT_USAGE;
    }
    const int rc = args->model ? load_model(args, o) : 0;
    if (rc == 0) {
        warn_of_size(args, o);
    }
    return rc;
}

const char *hb_cli_backend_name(int32_t backend) {
    return hb_names_backend.name(backend);
}

void hb_cli_record_context(const struct hb_args *args, struct hb_record_context *ctx) {
    static char device[128];
    const struct hb_backend_entry *list;
    (void)hb_backends(&list);
    (void)snprintf(device, sizeof device, "host");
    if (list[args->backend].needs_gpu) {
        (void)hb_gpu_text(device, sizeof device);
    }
    ctx->build = hb_cli_build();
    ctx->verb = hb_verbs[args->verb].name;
    ctx->backend = hb_cli_backend_name(args->backend);
    ctx->device = device;
    ctx->seed = args->seed;
    ctx->defect = args->defect;
}

int hb_cli_defect_here(const struct hb_args *args) {
#ifndef HB_DEFECTS
    if (args->defect != HB_DEFECT_NONE) {
        hb_cli_complain(
            "--defect %d: this build has no planted defects (presets defects, asan and cuda have)",
            (int)args->defect);
        return HB_EXIT_NOT_HERE;
    }
#else
    (void)args;
#endif
    return HB_EXIT_OK;
}

/* A case of real size takes minutes where no GPU helps, and its oracle seconds in any case. */
static const double real_hang_seconds = 1200;

int hb_cli_setup(const struct hb_args *args, char *program, size_t cap, struct hb_supervise *s) {
    struct hb_error err = {.struct_size = sizeof err};
    hb_supervise_init(s);
    if (args->compare == args->backend) {
        hb_cli_complain("--compare %s: it is the backend under test itself",
                        hb_cli_backend_name(args->compare));
        return HB_EXIT_USAGE;
    }
    if (hb_cli_defect_here(args) != HB_EXIT_OK) {
        return HB_EXIT_NOT_HERE;
    }
    int32_t status = hb_backend_available(args->backend, &err);
    if (status == HB_OK && args->compare >= 0) {
        status = hb_backend_available(args->compare, &err);
    }
    if (status != HB_OK) {
        return hb_cli_failed(status, &err);
    }
    if (hb_cli_self(program, cap) != 0) {
        return HB_EXIT_ENVIRONMENT;
    }
    s->program = program;
    s->is_verbose = args->verbose;
    s->child.backend = args->backend;
    s->child.compare = args->compare;
    s->child.defect = args->defect;
    s->child.status_only = args->status_only;
    s->child.timed = args->stats;
    s->child.check_off = args->off;
    s->child.seed = args->seed;
    const int rc = hb_cli_gen_options(args, &s->child.gen);
    if (rc != 0) {
        return rc;
    }
    s->hang_seconds = args->size == HB_SIZE_REAL ? real_hang_seconds : s->hang_seconds;
    if (!args->quiet && isatty(2)) {
        s->tick = hb_cli_tick;
    }
    return 0;
}

void hb_cli_verdict_line(const struct hb_args *args, const struct hb_verdict *v,
                         const struct hb_case *c, const char *file, char *out, size_t cap) {
    hb_verdict_line(v, c, file, hb_cli_backend_name(args->backend), out, cap);
    if (file && !file[0]) {
        return; /* no command to go on */
    }
    size_t n = strlen(out);
    if (hb_verdict_is_finding(v->kind) && args->compare >= 0 && n < cap) {
        n += (size_t)snprintf(out + n, cap - n, " --compare %s", hb_cli_backend_name(args->compare));
    }
    if (hb_verdict_is_finding(v->kind) && args->defect && n < cap) {
        n += (size_t)snprintf(out + n, cap - n, " --defect %d", (int)args->defect);
    }
    if (hb_verdict_is_finding(v->kind) && args->status_only && n < cap) {
        n += (size_t)snprintf(out + n, cap - n, " --status-only");
    }
    for (int i = 0; hb_verdict_is_finding(v->kind) && i < hb_names_check_off.count() && n < cap;
         i++) {
        if (args->off & hb_names_check_off.value(i)) {
            n += (size_t)snprintf(out + n, cap - n, " --off %s", hb_names_check_off.name(i));
        }
    }
}

static int is_ticked;

void hb_cli_tick(void *ctx, uint64_t cases, double seconds, int64_t findings) {
    (void)ctx;
    (void)fprintf(stderr, "\r%llu cases, %.0f s, %.0f cases/s, %lld findings ",
                  (unsigned long long)cases, seconds, seconds > 0 ? (double)cases / seconds : 0.0,
                  (long long)findings);
    is_ticked = 1;
}

void hb_cli_untick(void) {
    if (is_ticked) {
        (void)fprintf(stderr, "\r%60s\r", "");
        is_ticked = 0;
    }
}
