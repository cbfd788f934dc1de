/* SPDX-License-Identifier: Apache-2.0
 * doctor: what this build and this machine can do, and why not. */
#include <stdarg.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include <xxhash.h>

#include "backend/defects.h"
#include "harness/backends.h"
#include "harness/cli/common.h"
#include "kernels/emu/emu.h"

#ifndef HB_CUDA_REASON
#define HB_CUDA_REASON "built without nvcc"
#endif

static void line(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void line(const char *what, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)printf("%-11s %s\n", what, text);
}

static void print_engines(void) {
    char self[HB_PATH_CAP];
    if (hb_cli_self(self, sizeof self) != 0) {
        return;
    }
    for (int32_t i = 0; i < HB_N_TARGETS; i++) {
        char path[HB_PATH_CAP + 32];
        (void)snprintf(path, sizeof path, "%s-%s", self, hb_target_name(i));
        int is_here = access(path, X_OK) == 0;
        line("engine", "%s: %s", hb_target_name(i),
             is_here ? path : "plain loop (preset fuzz builds the engine's)");
    }
}

static void print_backends(void) {
    const struct hb_backend_entry *b;
    int n = hb_backends(&b);
    for (int i = 0; i < n; i++) {
        struct hb_error err = {.struct_size = sizeof err};
        int is_here = hb_backend_available(i, &err) == HB_OK;
        line("backend", "%s: %s", b[i].name, is_here ? "yes" : err.text);
    }
}

int hb_verb_doctor(const struct hb_args *args) {
    (void)args;
    const struct hb_build_info *b = hb_cli_build();
    char device[128];
    line("version", "hbfuzz %s", b->version);
    line("commit", "%s", b->commit);
    line("compiler", "%s", b->compiler);
    line("build", "%s", b->type);
    line("sanitizers", "%s", b->sanitizers);
#ifdef HB_DEFECTS
    line("defects", "planted defects are compiled in");
#else
    line("defects", "not compiled in (presets defects, asan and cuda have them)");
#endif
#ifdef HB_HAVE_CUDA
    line("cuda", "yes (%s)", HB_CUDA_REASON);
#else
    line("cuda", "no: %s", HB_CUDA_REASON);
#endif
    (void)hb_gpu_text(device, sizeof device);
    line("device", "%s", device);
    line("emulator", "buffers %s",
         hb_emu_exact_guards() ? "of exact size, guarded by AddressSanitizer"
                               : "between canaries, looked at when they are freed");
    print_backends();
    print_engines();
    line("libraries", "cJSON %s, xxHash %d.%d.%d", cJSON_Version(), XXH_VERSION_NUMBER / 10000,
         XXH_VERSION_NUMBER / 100 % 100, XXH_VERSION_NUMBER % 100);
    return HB_EXIT_OK;
}
