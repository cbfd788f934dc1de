/* SPDX-License-Identifier: Apache-2.0
 * The table of backends, and whether this build and this machine have them. */
#include "harness/backends.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/run.h"

/* One more, by the options HB_BACKEND and HB_BACKEND_SOURCES of the build. */
#ifdef HB_BACKEND
#define HB_JOIN(a, b) a##b
#define HB_OWN_TABLE(name) HB_JOIN(hb_adapter_, name)
#define HB_TEXT(name) #name
#define HB_OWN_NAME(name) HB_TEXT(name)
const struct hb_adapter *HB_OWN_TABLE(HB_BACKEND)(void);
#endif

static const struct hb_backend_entry backends[] = {
    {"emu", "the project's kernels on the emulated device", hb_adapter_emu, 0},
    {"cuda", "the project's kernels on an NVIDIA GPU", hb_adapter_cuda, 1},
    {"oracle", "the float64 reference behind the adapter table", hb_adapter_oracle, 0},
#ifdef HB_BACKEND
    {HB_OWN_NAME(HB_BACKEND), "linked in by HB_BACKEND_SOURCES", HB_OWN_TABLE(HB_BACKEND), 0},
#endif
};

int hb_backends(const struct hb_backend_entry **out) {
    *out = backends;
    return (int)(sizeof backends / sizeof backends[0]);
}

int32_t hb_backend_find(const char *name) {
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        if (strcmp(backends[i].name, name) == 0) {
            return (int32_t)i;
        }
    }
    return -1;
}

/* The driver lists each GPU as a folder of /proc with its model in a text file; reading it starts
 * no context. */
static int read_model(const char *folder, char *out, size_t cap) {
    char path[512];
    if (snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", folder) >=
        (int)sizeof path) {
        return 0;
    }
    FILE *f = fopen(path, "re");
    if (!f) {
        return 0;
    }
    char line[256];
    int found = 0;
    while (!found && fgets(line, sizeof line, f)) {
        if (strncmp(line, "Model:", 6) == 0) {
            const char *text = line + 6;
            text += strspn(text, " \t");
            (void)snprintf(out, cap, "%.*s", (int)strcspn(text, "\n"), text);
            found = 1;
        }
    }
    (void)fclose(f);
    return found;
}

int hb_gpu_text(char *out, size_t cap) {
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/dxg"};
    int has_node = 0;
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        has_node |= access(nodes[i], F_OK) == 0;
    }
    if (!has_node) {
        (void)snprintf(out, cap, "no NVIDIA GPU here: /dev/nvidiactl does not exist");
        return 0;
    }
    (void)snprintf(out, cap, "NVIDIA GPU");
    DIR *dir = opendir("/proc/driver/nvidia/gpus");
    if (dir) {
        const struct dirent *e;
        int found = 0;
        while (!found && (e = readdir(dir))) {
            found = e->d_name[0] != '.' && read_model(e->d_name, out, cap);
        }
        (void)closedir(dir);
    }
    return 1;
}

int32_t hb_backend_available(int32_t index, struct hb_error *err) {
    if (index < 0 || index >= (int32_t)(sizeof backends / sizeof backends[0])) {
        return hb_fail_text(err, HB_ERR_UNSUPPORTED, "there is no backend number %d", (int)index);
    }
    const struct hb_backend_entry *b = &backends[index];
    if (!b->adapter()) {
        return hb_fail_text(err, HB_ERR_UNSUPPORTED, "the backend '%s' is not in this build%s",
                            b->name, b->needs_gpu ? ": it was built without nvcc" : "");
    }
    char text[128];
    if (b->needs_gpu && !hb_gpu_text(text, sizeof text)) {
        return hb_fail_text(err, HB_ERR_DEVICE, "the backend '%s' cannot run: %s", b->name, text);
    }
    return HB_OK;
}

int32_t hb_backend_open(int32_t index, const struct hb_adapter **out, struct hb_error *err) {
    int32_t status = hb_backend_available(index, err);
    if (status != HB_OK) {
        return status;
    }
    const struct hb_adapter *adapter = backends[index].adapter();
    struct hb_caps caps = {.struct_size = sizeof caps};
    status = adapter->describe(adapter->ctx, &caps, err);
    if (status != HB_OK) {
        return status;
    }
    *out = adapter;
    return HB_OK;
}
