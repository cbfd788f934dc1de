/* SPDX-License-Identifier: Apache-2.0
 * Golden directories: every fault of a manifest, a tensor file or cases.txt is told; backends that
 * cannot run a case are skipped with the reason, backends that fail a call are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "harness/tests/golden_place.h"

#define GDN_CORE "gdn_core_128"
#define KDA_CORE "kda_core_varlen"
#define GLA_CORE "simple_gla_core_varlen"
#define LIGHTNING_CORE "lightning_core_varlen"
#define GDN_LAYER "gdn_qwen3next_segments"
#define KDA_LAYER "kda_kimi_segments"
#define LIGHTNING_LAYER "lightning_minimax_segments"
#define NORM_ROW(gate, before, group)                                                              \
    "{\"rows\":[{\"dim\":128,\"gate\":" gate ",\"before\":" before ",\"group\":" group             \
    ",\"eps\":1e-5}]}"

static void a_directory_without_list_requires_nothing(void **state) {
    (void)state;
    struct place p;
    cJSON *m = NULL;
    open_place(&p, &m);
    write_manifest(&p, m);
    assert_int_equal(check(&p), HB_OK);
    assert_int_equal(p.passed, 2);
    assert_int_equal(p.failed, 0);
    assert_int_equal(p.skipped, 0);
    cJSON_Delete(m);
    close_place(&p);
}

/* The oracle without activations in fp32, which all layers have. */
static int32_t without_fp32(void *ctx, struct hb_caps *caps, struct hb_error *err) {
    const int32_t status = hb_adapter_oracle()->describe(ctx, caps, err);
    caps->act_dtypes = 1U << HB_BF16;
    return status;
}

static void required_names_must_be_there_and_run(void **state) {
    (void)state;
    static const struct {
        const char *list;
        int32_t failed, skipped;
        const char *text; /* of some report; null: there is none */
    } lists[] = {
        {"# nothing\n\r\n\n", 0, 1, "could run none"},
        {"conv_w3_nobias_noact\r\n", 0, 1, "could run none"},
        {"conv_w3_nobias_noact\nlost_case\n", 1, 1,
         "lost_case : a case of cases.txt that the manifest does not have"},
        {"conv_w3_nobias_noact\r\nmamba2_segments_g2", 1, 0,
         "mamba2_segments_g2 : the backend could run none of its schedules and types"},
    };
    struct hb_adapter backend = *hb_adapter_oracle();
    struct place p;
    cJSON *m = NULL;
    backend.describe = without_fp32;
    open_place(&p, &m);
    write_manifest(&p, m);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        put(&p, "cases.txt", lists[i].list, strlen(lists[i].list));
        p.wanted = lists[i].text;
        p.found = 0;
        assert_int_equal(check_with(&backend, &p), HB_OK);
        assert_int_equal(p.passed, 1);
        assert_int_equal(p.failed, lists[i].failed);
        assert_int_equal(p.skipped, lists[i].skipped);
        assert_true(p.found > 0);
    }
    put(&p, "cases.txt", lists[3].list, strlen(lists[3].list));
    assert_int_equal(check(&p), HB_OK); /* a backend that can run it */
    assert_int_equal(p.passed, 2);
    assert_int_equal(p.failed, 0);
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
        {"{\"format\":1,\"format\":1,\"cases\":[]}", "key \"format\" appears twice"},
        {"{\"format\":2,\"cases\":[]}", "format is not 1"},
        {"{\"cases\":[]}", "format is not 1"},
        {"{\"format\":1,\"cases\":{}}", "cases is not an array"},
        {"[]", "format is not 1"},
        {"{\"format\":1,\"cases\":[1]}", "manifest case 0: the entry is 1, expected an object"},
        {"{\"format\":1,\"cases\":[{\"name\":3}]}",
         "manifest case 0: name is 3, expected 1..55 printable ASCII characters"},
        {"{\"format\":1,\"cases\":[{\"name\":\"a\\nb\"}]}", "name is \"a\\nb\", expected"},
        {"{\"format\":1,\"cases\":[{\"name\":\"a\"}]}",
         "a: file is absent, expected a plain file name"},
        {"{\"format\":1,\"cases\":[{\"name\":\"a\",\"file\":\"a\",\"op\":7}]}",
         "a: op is 7, expected a known operation"},
        {"{\"format\":1,\"cases\":[{\"name\":\"a\",\"file\":\"a\",\"op\":\"gated_rms_norm\","
         "\"config\":{},\"tensors\":{},\"producer\":{}}]}",
         "a: config.rows is absent, expected an array of at least one row"},
        {"{\"format\":1,\"cases\":[{\"name\":\"a\",\"file\":\"../a\",\"op\":\"ssd_scan\"}]}",
         "a: file is \"../a\", expected a plain file name"},
        {"{\"format\":1,\"cases\":[{\"name\":\"a\",\"file\":\"a\",\"op\":\"x\"}]}",
         "a: op is \"x\", expected a known operation"},
        {"{\"format\":1,\"cases\":[{\"name\":\"a\",\"file\":\"a\",\"op\":\"ssd_scan\"}]}",
         "a: config is absent, expected an object"},
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
         "mamba2_segments_g2: states is absent, expected an array of at least one state",
         HB_ERR_PARSE},
        {layer, NULL, "states",
         "[{\"index\":0,\"sequence\":0,\"after_token\":17},{\"index\":1,\"sequence\":0,\"after_"
         "token\":99},{},{},{},{}]",
         "states[1].after_token is 99, expected an integer in 1..66", HB_ERR_PARSE},
        {layer, NULL, "producer", "{\"function\":\"models.other.X\"}",
         "producer.function is \"models.other.X\", expected the name of a known layer",
         HB_ERR_PARSE},
        {layer, "tensors", "exp64.y", "{\"shape\":[66,31]}",
         "dimension 1 of tensor 'exp64.y' is 32, the config says 31", HB_ERR_PARSE},
        {layer, "tensors", "exp64.y", "{\"shape\":[66]}",
         "tensor 'exp64.y' has 2 dimensions, 1 are needed", HB_ERR_PARSE},
        {layer, "tensors", "exp64.y", "{\"shape\":[66,-1]}",
         "tensors.exp64.y is {\"shape\":[66,-1]}, expected an object with a shape", HB_ERR_PARSE},
        {layer, "tensors", "exp64.y", "{}",
         "tensors.exp64.y is {}, expected an object with a shape", HB_ERR_PARSE},
        {layer, "tensors", "exp64.z", "{\"shape\":[1]}", "the file has no tensor 'exp64.z'",
         HB_ERR_PARSE},
        {layer, "config", "num_heads", "8", "the config says", HB_ERR_PARSE},
        {layer, "config", "num_heads", "0", "config.num_heads is 0, expected an integer in 1..1024",
         HB_ERR_PARSE},
        {layer, "config", "num_heads", "1.5", "config.num_heads is 1.5, expected an integer",
         HB_ERR_PARSE},
        {layer, "config", "num_heads", NULL, "config.num_heads is absent, expected an integer",
         HB_ERR_PARSE},
        {layer, "config", "conv_kernel", "5",
         "config.conv_kernel is 5, expected an integer in 2..4", HB_ERR_PARSE},
        {layer, "config", "n_groups", "3", "4 heads are not divisible by 3 groups", HB_ERR_PARSE},
        {layer, "config", "hidden_act", "\"gelu\"",
         "config.hidden_act is \"gelu\", expected \"silu\"", HB_ERR_PARSE},
        {layer, "config", "layer_norm_epsilon", "0",
         "config.layer_norm_epsilon is 0, expected a number above 0", HB_ERR_PARSE},
        {layer, "config", "time_step_limit", "[0.5, 0.1]",
         "config.time_step_limit is [0.5,0.1], expected [low, high]", HB_ERR_PARSE},
        {layer, "config", "time_step_limit", "[0]", "config.time_step_limit is [0], expected",
         HB_ERR_PARSE},
        {layer, "config", "ssm_in_multiplier", "\"x\"",
         "config.ssm_in_multiplier is \"x\", expected a number", HB_ERR_PARSE},
        {layer, "config", "sequences", "[[66],[0]]",
         "config.sequences[1] is [0], expected a length or a list of lengths", HB_ERR_PARSE},
        {layer, "config", "sequences", "[[66],[]]", "config.sequences[1] is [], expected",
         HB_ERR_PARSE},
        {layer, "config", "sequences", "[]",
         "config.sequences is [], expected an array of 1..4096 entries", HB_ERR_PARSE},
        {layer, "config", "sequences", "[[65]]", "is 66, the config says 65", HB_ERR_PARSE},
        {conv, "config", "activation", "\"relu\"",
         "config.activation is \"relu\", expected \"silu\" or \"none\"", HB_ERR_PARSE},
        {conv, "config", "width", "4", "the config says 4", HB_ERR_PARSE},
        {conv, "config", "width", "1", "config.width is 1, expected an integer in 2..4",
         HB_ERR_PARSE},
        {conv, NULL, "config", "{}",
         "conv_w3_nobias_noact: config.channels is absent, expected an integer in 1..1024",
         HB_ERR_PARSE},
        {conv, "config", "bias", "\"false\"", "config.bias is \"false\", expected true or false",
         HB_ERR_PARSE},
        {conv, "config", "initial_state", "1", "config.initial_state is 1, expected true or false",
         HB_ERR_PARSE},
        {layer, "config", "use_conv_bias", "\"yes\"",
         "mamba2_segments_g2: config.use_conv_bias is \"yes\", expected true or false",
         HB_ERR_PARSE},
        {layer, "config", "use_conv_bias", NULL, "config.use_conv_bias is absent", HB_ERR_PARSE},
        {layer, "config", "chunk_size", "3",
         "config.chunk_size is 3, expected a power of two in 4..4096", HB_ERR_PARSE},
        {layer, "config", "chunk_size", "2", "config.chunk_size is 2, expected a power of two",
         HB_ERR_PARSE},
        {layer, "config", "state_size", "512", "is 512, expected an integer in 1..256",
         HB_ERR_PARSE},
        {layer, "config", "time_step_limit", "{\"a\":0,\"b\":1}",
         "config.time_step_limit is {\"a\":0,\"b\":1}, expected", HB_ERR_PARSE},
        {layer, "config", "layer_norm_epsilon", "1e-60",
         "config.layer_norm_epsilon is 1e-60, expected a number above 0, in float32 too",
         HB_ERR_PARSE},
        {layer, NULL, "states", "{}", "states is {}, expected an array", HB_ERR_PARSE},
        {layer, NULL, "tensors", "{\"in.x\":1}", "tensors.in.x is 1, expected an object",
         HB_ERR_PARSE},
        {NORM, NULL, "config", "{}", "config.rows is absent, expected an array", HB_ERR_PARSE},
        {NORM, NULL, "config", "{\"rows\":[]}", "config.rows is [], expected", HB_ERR_PARSE},
        {NORM, NULL, "config", "{\"rows\":[3]}", "config.rows[0].dim is absent", HB_ERR_PARSE},
        {NORM, NULL, "config", NORM_ROW("1", "false", "null"),
         "gated_rms_norm_a: config.rows[0].gate is 1, expected true or false", HB_ERR_PARSE},
        {NORM, NULL, "config", NORM_ROW("true", "null", "null"),
         "config.rows[0].before is null, expected true or false", HB_ERR_PARSE},
        {NORM, NULL, "config", NORM_ROW("true", "false", "\"32\""),
         "config.rows[0].group is \"32\", expected null or a divisor of 128", HB_ERR_PARSE},
        {NORM, NULL, "config", NORM_ROW("true", "false", "33"),
         "config.rows[0].group is 33, expected null or a divisor of 128", HB_ERR_PARSE},
        {SCAN, "config", "D", "0", "ssd_varlen_short: config.D is 0, expected true or false",
         HB_ERR_PARSE},
        {SCAN, "config", "dt_softplus", NULL,
         "config.dt_softplus is absent, expected true or false", HB_ERR_PARSE},
        {SCAN, "config", "chunk_size", "33", "config.chunk_size is 33, expected a power of two",
         HB_ERR_PARSE},
        {SCAN, NULL, "mid_state_after_tokens", "7",
         "mid_state_after_tokens is 7, expected an array of token counts", HB_ERR_PARSE},
        {SCAN, NULL, "config", "{}", "config.nheads is absent", HB_ERR_PARSE},
        {GDN_CORE, "config", "qk_l2norm", "1",
         "gdn_core_128: config.qk_l2norm is 1, expected true or false", HB_ERR_PARSE},
        {GDN_CORE, "config", "scale", "0", "config.scale is 0, expected a number above 0",
         HB_ERR_PARSE},
        {GDN_CORE, "config", "q_heads", NULL, "config.q_heads is absent, expected an integer",
         HB_ERR_PARSE},
        {GDN_CORE, "config", "v_heads", "4", "the config says 4", HB_ERR_PARSE},
        {GDN_CORE, "config", "head_k", "16", "the config says 16", HB_ERR_PARSE},
        {GDN_CORE, "config", "initial_state", "null",
         "config.initial_state is null, expected true or false", HB_ERR_PARSE},
        {GDN_CORE, NULL, "op", "\"kda_core\"", "tensor 'in.g' has 2 dimensions, 3 are needed",
         HB_ERR_PARSE},
        {GDN_CORE, NULL, "mid_state_after_tokens", "[7]",
         "the file has no tensor 'exp64.mid_state'", HB_ERR_PARSE},
        {KDA_CORE, NULL, "op", "\"gdn_core\"", "tensor 'in.g' has 3 dimensions, 2 are needed",
         HB_ERR_PARSE},
        {GLA_CORE, "config", "qk_l2norm", "true", "config.qk_l2norm is true, expected false",
         HB_ERR_PARSE},
        {LIGHTNING_CORE, "config", "num_layers", NULL, "config.num_layers is absent", HB_ERR_PARSE},
        {LIGHTNING_CORE, "config", "num_layers", "9",
         "config.num_layers is 9, expected an integer in 1..8", HB_ERR_PARSE},
        {LIGHTNING_CORE, "config", "layer_idx", "4",
         "config.layer_idx is 4, expected an integer in 0..3", HB_ERR_PARSE},
        {LIGHTNING_CORE, "config", "layer_idx", "2",
         "element 1 of tensor 'in.g' is -1.5, expected -1 of layer 2 of 4", HB_ERR_PARSE},
        {GDN_LAYER, NULL, "producer", "{\"function\":\"models.olmo.X\"}",
         "producer.function is \"models.olmo.X\", expected a layer of models.qwen3_next.",
         HB_ERR_PARSE},
        {GDN_LAYER, "config", "linear_num_key_heads", "3", "4 heads are not divisible by 3 groups",
         HB_ERR_PARSE},
        {GDN_LAYER, "config", "linear_num_key_heads", "4", "the config says", HB_ERR_PARSE},
        {GDN_LAYER, "config", "linear_conv_kernel_dim", "3", "the config says 3", HB_ERR_PARSE},
        {GDN_LAYER, "config", "hidden_act", "\"gelu\"",
         "config.hidden_act is \"gelu\", expected \"silu\"", HB_ERR_PARSE},
        {GDN_LAYER, "config", "rms_norm_eps", NULL, "config.rms_norm_eps is absent", HB_ERR_PARSE},
        {GDN_LAYER, NULL, "states", "[{\"index\":0,\"sequence\":2,\"after_token\":1}]",
         "the config says 1", HB_ERR_PARSE},
        {GDN_LAYER, NULL, "op", "\"kda_layer\"", "expected a layer of models.kimi_linear.",
         HB_ERR_PARSE},
        {KDA_LAYER, "config", "linear_head_dim", "8", "the config says", HB_ERR_PARSE},
        {KDA_LAYER, NULL, "states", NULL, "states is absent", HB_ERR_PARSE},
        {LIGHTNING_LAYER, "config", "num_hidden_layers", "0",
         "config.num_hidden_layers is 0, expected an integer in 1..8", HB_ERR_PARSE},
        {LIGHTNING_LAYER, "config", "block_size", "24",
         "config.block_size is 24, expected a power of two", HB_ERR_PARSE},
        {LIGHTNING_LAYER, "config", "head_dim", "32", "the config says", HB_ERR_PARSE},
        {conv, "config", "sequences", "[[3],[3],[3],[20]]",
         "dimension 0 of tensor 'exp64.state' is 7", HB_ERR_PARSE},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct place p;
        cJSON *m = NULL;
        open_place_with(&p, &m, bad[i].name);
        change(m, bad[i].name, bad[i].object, bad[i].key, bad[i].json);
        write_manifest(&p, m);
        p.filter = strcmp(bad[i].key, "name") != 0 ? bad[i].name : NULL; /* the others are right */
        p.n_random = 0;
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
    assert_non_null(
        strstr(p.err.text, "cases.txt: the file has 1048577 bytes, the limit is 1048576"));
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
        {0, 0, 2, "the backend could run none of its schedules and types"},
        {0, 2, 0, "create: HB_ERR_MEMORY: no room"},
        {0, 2, 0, "finish: HB_ERR_DEVICE: the device is gone"},
        {0, 2, 0, "padding is not zero"},
        {2, 0, 0, "the backend does not support forward mode"},
        {1, 0, 1, "the backend has no regions, and the case starts from given states"},
        {1, 0, 1, "could run none"},
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
