/* SPDX-License-Identifier: Apache-2.0
 * Golden directories: every fault of a manifest, a tensor file or cases.txt is told; backends that
 * cannot run a case are skipped with the reason, backends that fail a call are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/golden.h"
#include "harness/golden_internal.h"
#include "harness/run.h"

#define GOLDEN HB_SOURCE_DIR "/golden"

enum { PATH_CAP = 512 };

struct place {
    char dir[32];
    int32_t passed, failed, skipped, runs, skips;
    char text[512];     /* of the latest failure or skip */
    const char *wanted; /* a text that some report should hold */
    int32_t found;
    struct hb_error err;
};

static void see(void *ctx, const struct hb_golden_case_result *r) {
    struct place *p = ctx;
    p->runs++;
    p->skips += r->skipped;
    if (!r->passed) {
        (void)snprintf(p->text, sizeof p->text, "%s %s: %s", r->name, r->schedule, r->reason);
        p->found += p->wanted != NULL && strstr(p->text, p->wanted) != NULL;
    }
}

static void put(const struct place *p, const char *name, const char *text, size_t len) {
    char path[PATH_CAP];
    (void)snprintf(path, sizeof path, "%s/%s", p->dir, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL) {
        fail_msg("cannot write %s", path);
        return;
    }
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void link_file(const struct place *p, const char *name) {
    char from[PATH_CAP];
    char to[PATH_CAP];
    (void)snprintf(from, sizeof from, "%s/%s", GOLDEN, name);
    (void)snprintf(to, sizeof to, "%s/%s", p->dir, name);
    assert_int_equal(symlink(from, to), 0);
}

/* A directory with the conv and the smallest layer case, whose manifest can be changed. */
static void open_place(struct place *p, cJSON **manifest) {
    struct hb_error err = {.struct_size = sizeof err};
    memset(p, 0, sizeof *p);
    p->err.struct_size = sizeof p->err;
    (void)snprintf(p->dir, sizeof p->dir, "/tmp/hb_golden_XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    assert_int_equal(hb_golden_manifest(GOLDEN, manifest, &err), HB_OK);
    cJSON *cases = cJSON_GetObjectItemCaseSensitive(*manifest, "cases");
    for (int i = cJSON_GetArraySize(cases) - 1; i >= 0; i--) {
        const char *name =
            cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(cases, i), "name")->valuestring;
        if (strcmp(name, "conv_w3_nobias_noact") != 0 && strcmp(name, "mamba2_segments_g2") != 0 &&
            strcmp(name, "gdn_core_128") != 0) {
            cJSON_DeleteItemFromArray(cases, i);
        }
    }
    link_file(p, "conv_w3_nobias_noact.safetensors");
    link_file(p, "mamba2_segments_g2.safetensors");
}

static void write_manifest(const struct place *p, const cJSON *manifest) {
    char *text = cJSON_PrintUnformatted(manifest);
    assert_non_null(text);
    put(p, "manifest.json", text, strlen(text));
    free(text);
}

static void close_place(const struct place *p) {
    static const char *const names[] = {"manifest.json", "cases.txt",
                                        "conv_w3_nobias_noact.safetensors",
                                        "mamba2_segments_g2.safetensors", "other.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[PATH_CAP];
        (void)snprintf(path, sizeof path, "%s/%s", p->dir, names[i]);
        (void)unlink(path); /* most are not there */
    }
    assert_int_equal(rmdir(p->dir), 0);
}

static int32_t check_with(const struct hb_adapter *backend, struct place *p) {
    struct hb_golden_options o;
    hb_golden_options_init(&o, p->dir);
    o.n_random = 2;
    memset(&p->err, 0, sizeof p->err);
    p->err.struct_size = sizeof p->err;
    p->passed = p->failed = p->skipped = -1;
    p->runs = p->skips = 0;
    return hb_golden_check(backend, &o, see, p, &p->passed, &p->failed, &p->skipped, &p->err);
}

static int32_t check(struct place *p) {
    return check_with(hb_adapter_oracle(), p);
}

static void a_directory_without_list_requires_nothing(void **state) {
    (void)state;
    struct place p;
    cJSON *m = NULL;
    open_place(&p, &m);
    write_manifest(&p, m);
    assert_int_equal(check(&p), HB_OK);
    assert_int_equal(p.passed, 2);
    assert_int_equal(p.failed, 0);
    assert_int_equal(p.skipped, 1);
    cJSON_Delete(m);
    close_place(&p);
}

static void required_names_must_be_there_and_run(void **state) {
    (void)state;
    static const struct {
        const char *list;
        int32_t failed, skipped;
        const char *text;
    } lists[] = {
        {"# nothing\n\r\n\n", 0, 1, "not built"},
        {"conv_w3_nobias_noact\r\nmamba2_segments_g2", 0, 1, "not built"},
        {"conv_w3_nobias_noact\nlost_case\n", 1, 1,
         "lost_case : a case of cases.txt that the manifest does not have"},
        {"gdn_core_128\n", 1, 0, "gdn_core_128 : mixer gdn_core is not built yet"},
    };
    struct place p;
    cJSON *m = NULL;
    open_place(&p, &m);
    write_manifest(&p, m);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        put(&p, "cases.txt", lists[i].list, strlen(lists[i].list));
        p.wanted = lists[i].text;
        p.found = 0;
        assert_int_equal(check(&p), HB_OK);
        assert_int_equal(p.passed, 2);
        assert_int_equal(p.failed, lists[i].failed);
        assert_int_equal(p.skipped, lists[i].skipped);
        assert_true(p.found > 0);
    }
    cJSON_Delete(m);
    close_place(&p);
}

static void a_missing_or_broken_manifest_is_told(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } bad[] = {
        {"", ""},
        {"{\"format\":1,\"cases\":[]", ""},
        {"{\"format\":1,\"format\":1,\"cases\":[]}", "key appears twice"},
        {"{\"format\":2,\"cases\":[]}", "format is not 1"},
        {"{\"cases\":[]}", "format is not 1"},
        {"{\"format\":1,\"cases\":{}}", "cases is not an array"},
        {"[]", "format is not 1"},
        {"{\"format\":1,\"cases\":[1]}",
         "manifest case 0: name (1..55 characters), file or op is absent"},
        {"{\"format\":1,\"cases\":[{\"name\":\"a\",\"file\":\"../a\",\"op\":\"ssd_scan\"}]}",
         "'../a' is not a plain file name"},
        {"{\"format\":1,\"cases\":[{\"name\":\"a\",\"file\":\"a\",\"op\":\"x\"}]}",
         "manifest case 0 (a): unknown op 'x'"},
        {"{\"format\":1,\"cases\":[{\"name\":\"a\",\"file\":\"a\",\"op\":\"ssd_scan\"}]}",
         "config is not an object"},
    };
    struct place p;
    cJSON *m = NULL;
    open_place(&p, &m);
    cJSON_Delete(m);
    assert_int_equal(check(&p), HB_ERR_IO);
    assert_non_null(strstr(p.err.text, "manifest.json"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put(&p, "manifest.json", bad[i].text, strlen(bad[i].text));
        assert_int_equal(check(&p), HB_ERR_PARSE);
        assert_int_equal(p.passed, -1); /* written only on success */
        if (strstr(p.err.text, bad[i].message) == NULL) {
            fail_msg("manifest %zu: '%s'", i, p.err.text);
        }
        assert_true(p.err.text[0] != '\0');
    }
    close_place(&p);
}

/* Sets (or with json null removes) a field of case `name`: a top-level one, or one of its config.
 */
static void change(cJSON *manifest, const char *name, const char *object, const char *key,
                   const char *json) {
    cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(manifest, "cases")) {
        if (strcmp(cJSON_GetObjectItemCaseSensitive(entry, "name")->valuestring, name) == 0) {
            cJSON *target =
                object != NULL ? cJSON_GetObjectItemCaseSensitive(entry, object) : entry;
            cJSON_DeleteItemFromObjectCaseSensitive(target, key);
            if (json != NULL) {
                cJSON *value = cJSON_Parse(json);
                assert_non_null(value);
                assert_true(cJSON_AddItemToObject(target, key, value));
            }
            return;
        }
    }
    fail_msg("no case %s", name);
}

static void an_entry_that_does_not_fit_its_file_is_told(void **state) {
    (void)state;
    static const char *const conv = "conv_w3_nobias_noact";
    static const char *const layer = "mamba2_segments_g2";
    const struct {
        const char *name, *object, *key, *json, *message;
        int32_t status;
    } bad[] = {
        {layer, NULL, "name", "\"conv_w3_nobias_noact\"",
         "case name 'conv_w3_nobias_noact' is used twice", HB_ERR_PARSE},
        {layer, NULL, "file", "\"lost.safetensors\"", "lost.safetensors", HB_ERR_IO},
        {layer, NULL, "states", NULL,
         "dimension 0 of tensor 'exp64.conv_state' is 6, the config says 0", HB_ERR_PARSE},
        {layer, NULL, "states",
         "[{\"index\":0,\"sequence\":0,\"after_token\":17},{\"index\":1,\"sequence\":0,\"after_"
         "token\":99},{},{},{},{}]",
         "states[1] names index 1, sequence 0, token 99", HB_ERR_PARSE},
        {layer, NULL, "producer", "{\"function\":\"models.other.X\"}",
         "producer is none of the known layers", HB_ERR_PARSE},
        {layer, "tensors", "exp64.y", "{\"shape\":[66,31]}",
         "dimension 1 of tensor 'exp64.y' is 32, the config says 31", HB_ERR_PARSE},
        {layer, "tensors", "exp64.y", "{\"shape\":[66]}",
         "tensor 'exp64.y' has 2 dimensions, 1 are needed", HB_ERR_PARSE},
        {layer, "tensors", "exp64.y", "{\"shape\":[66,-1]}", "shape of 'exp64.y' is not valid",
         HB_ERR_PARSE},
        {layer, "tensors", "exp64.y", "{}", "gives no shape of 'exp64.y'", HB_ERR_PARSE},
        {layer, "tensors", "exp64.z", "{\"shape\":[1]}", "the file has no tensor 'exp64.z'",
         HB_ERR_PARSE},
        {layer, "config", "num_heads", "8", "the config says", HB_ERR_PARSE},
        {layer, "config", "num_heads", "0",
         "config.num_heads is absent or not an integer in 1..1024", HB_ERR_PARSE},
        {layer, "config", "num_heads", "1.5", "config.num_heads is absent or not an integer",
         HB_ERR_PARSE},
        {layer, "config", "num_heads", NULL, "config.num_heads is absent or not an integer",
         HB_ERR_PARSE},
        {layer, "config", "conv_kernel", "5",
         "config.conv_kernel is absent or not an integer in 1..4", HB_ERR_PARSE},
        {layer, "config", "n_groups", "3", "4 heads are not divisible by 3 groups", HB_ERR_PARSE},
        {layer, "config", "hidden_act", "\"gelu\"", "hidden_act of the config is not silu",
         HB_ERR_PARSE},
        {layer, "config", "layer_norm_epsilon", "0", "norm epsilon of the config is not positive",
         HB_ERR_PARSE},
        {layer, "config", "time_step_limit", "[0.5, 0.1]", "time step limits of the config",
         HB_ERR_PARSE},
        {layer, "config", "time_step_limit", "[0]", "time step limits of the config", HB_ERR_PARSE},
        {layer, "config", "ssm_in_multiplier", "\"x\"",
         "ssm_in_multiplier of the config is not a number", HB_ERR_PARSE},
        {layer, "config", "sequences", "[[66],[0]]",
         "config.sequences[1] holds a length outside 1..", HB_ERR_PARSE},
        {layer, "config", "sequences", "[[66],[]]", "config.sequences[1] is empty", HB_ERR_PARSE},
        {layer, "config", "sequences", "[]", "config.sequences has 0 entries", HB_ERR_PARSE},
        {layer, "config", "sequences", "[[65]]", "is 66, the config says 65", HB_ERR_PARSE},
        {conv, "config", "activation", "\"relu\"", "config.activation is neither silu nor none",
         HB_ERR_PARSE},
        {conv, "config", "width", "4", "the config says 4", HB_ERR_PARSE},
        {conv, "config", "sequences", "[[3],[3],[3],[20]]",
         "dimension 0 of tensor 'exp64.state' is 7", HB_ERR_PARSE},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct place p;
        cJSON *m = NULL;
        open_place(&p, &m);
        change(m, bad[i].name, bad[i].object, bad[i].key, bad[i].json);
        write_manifest(&p, m);
        const int32_t status = check(&p);
        if (status != bad[i].status || strstr(p.err.text, bad[i].message) == NULL) {
            fail_msg("change %zu: status %d, '%s', wanted '%s'", i, status, p.err.text,
                     bad[i].message);
        }
        cJSON_Delete(m);
        close_place(&p);
    }
}

static void a_broken_tensor_file_is_named(void **state) {
    (void)state;
    struct place p;
    cJSON *m = NULL;
    open_place(&p, &m);
    change(m, "mamba2_segments_g2", NULL, "file", "\"other.safetensors\"");
    write_manifest(&p, m);
    put(&p, "other.safetensors", "\x02\0\0\0\0\0\0\0[]", 10);
    assert_int_equal(check(&p), HB_ERR_PARSE);
    assert_non_null(strstr(p.err.text, "other.safetensors: the header is not a JSON object"));
    cJSON_Delete(m);
    close_place(&p);
}

static void oversized_lists_are_refused(void **state) {
    (void)state;
    struct place p;
    cJSON *m = NULL;
    char *big = calloc(1, (1 << 20) + 1);
    assert_non_null(big);
    memset(big, '#', (1 << 20) + 1);
    open_place(&p, &m);
    write_manifest(&p, m);
    put(&p, "cases.txt", big, (1 << 20) + 1);
    assert_int_equal(check(&p), HB_ERR_PARSE);
    assert_non_null(strstr(p.err.text, "larger than 1048576 bytes"));
    free(big);
    cJSON_Delete(m);
    close_place(&p);
}

/* ---- backends ---- */

/* The oracle with one function replaced. */
static int32_t no_create(void *ctx, const struct hb_config *config,
                         const struct hb_layer_params *params, void **handle,
                         struct hb_error *err) {
    (void)ctx;
    (void)config;
    (void)params;
    (void)handle;
    return hb_fail(err, HB_RULE_CFG_VARIANT, 1, 3, 0);
}
static int32_t no_memory(void *ctx, const struct hb_config *config,
                         const struct hb_layer_params *params, void **handle,
                         struct hb_error *err) {
    (void)ctx;
    (void)config;
    (void)params;
    (void)handle;
    return hb_fail_text(err, HB_ERR_MEMORY, "no room");
}
static int32_t no_finish(void *handle, struct hb_error *err) {
    (void)handle;
    return hb_fail_text(err, HB_ERR_DEVICE, "the device is gone");
}
static int32_t dirty_read(void *handle, struct hb_buf buf, void *dst, uint64_t bytes,
                          struct hb_error *err) {
    const int32_t status = hb_adapter_oracle()->buf_read(handle, buf, dst, bytes, err);
    uint8_t *last = (uint8_t *)dst + bytes - 2;
    if (last[0] == 0 && last[1] == 0) {
        last[1] = 0x40; /* the padding of some forward */
    }
    return status;
}
static int32_t only_extend(void *ctx, struct hb_caps *caps, struct hb_error *err) {
    const int32_t status = hb_adapter_oracle()->describe(ctx, caps, err);
    caps->modes = 1U << 1;
    return status;
}
static int32_t without_regions(void *ctx, struct hb_caps *caps, struct hb_error *err) {
    const int32_t status = hb_adapter_oracle()->describe(ctx, caps, err);
    caps->has_regions = 0;
    return status;
}
static int32_t without_fp32(void *ctx, struct hb_caps *caps, struct hb_error *err) {
    const int32_t status = hb_adapter_oracle()->describe(ctx, caps, err);
    caps->act_dtypes = 1U << HB_BF16;
    return status;
}

static void what_a_backend_cannot_do_is_skipped_and_what_it_fails_is_not(void **state) {
    (void)state;
    struct hb_adapter table[7];
    for (int i = 0; i < 7; i++) {
        table[i] = *hb_adapter_oracle();
    }
    table[0].create = no_create;
    table[1].create = no_memory;
    table[2].finish = no_finish;
    table[3].buf_read = dirty_read;
    table[4].describe = only_extend;
    table[5].describe = without_regions;
    table[6].describe = without_fp32;
    static const struct {
        int32_t passed, failed, skipped;
        const char *text;
    } want[7] = {
        {0, 0, 3, "the backend could run none of its schedules and types"},
        {0, 2, 1, "create: HB_ERR_MEMORY: no room"},
        {0, 2, 1, "finish: HB_ERR_DEVICE: the device is gone"},
        {0, 2, 1, "padding is not zero"},
        {2, 0, 1, "the backend does not support forward mode"},
        {1, 0, 2, "the backend has no regions, and the case starts from given states"},
        {1, 0, 2, "could run none"},
    };
    for (int i = 0; i < 7; i++) {
        struct place p;
        cJSON *m = NULL;
        open_place(&p, &m);
        write_manifest(&p, m);
        p.wanted = want[i].text;
        assert_int_equal(check_with(&table[i], &p), HB_OK);
        if (p.passed != want[i].passed || p.failed != want[i].failed ||
            p.skipped != want[i].skipped || p.found == 0) {
            fail_msg("backend %d: %d %d %d, '%s'", i, p.passed, p.failed, p.skipped, p.text);
        }
        cJSON_Delete(m);
        close_place(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_without_list_requires_nothing),
        cmocka_unit_test(required_names_must_be_there_and_run),
        cmocka_unit_test(a_missing_or_broken_manifest_is_told),
        cmocka_unit_test(an_entry_that_does_not_fit_its_file_is_told),
        cmocka_unit_test(a_broken_tensor_file_is_named),
        cmocka_unit_test(oversized_lists_are_refused),
        cmocka_unit_test(what_a_backend_cannot_do_is_skipped_and_what_it_fails_is_not),
    };
    return cmocka_run_group_tests_name("golden_dir", tests, NULL, NULL);
}
