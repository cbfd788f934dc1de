/* SPDX-License-Identifier: Apache-2.0
 * Model files: all are read, give configurations that a backend accepts, and faults are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/adapter.h"
#include "harness/expect.h"
#include "harness/gen.h"
#include "harness/run.h"

enum { MAX_MODELS = 64, TEXT_CAP = 4096, N_CASES = 6 };

static const char folder[] = HB_SOURCE_DIR "/corpus/models";
static char names[MAX_MODELS][HB_MODEL_NAME];
static int32_t n_names;

static int read_names(void **state) {
    (void)state;
    n_names = hb_model_names(folder, names, MAX_MODELS);
    return n_names > 0 && n_names < MAX_MODELS ? 0 : -1;
}

static void load(const char *name, struct hb_model *m) {
    struct hb_error err = {.struct_size = sizeof err};
    if (hb_model_load(folder, name, m, &err) != HB_OK) {
        fail_msg("%s: %s", name, err.text);
    }
}

static void every_file_is_read(void **state) {
    (void)state;
    uint32_t mixers = 0;
    for (int32_t i = 0; i < n_names; i++) {
        struct hb_model m;
        load(names[i], &m);
        mixers |= 1u << m.scaled.mixer;
        assert_int_equal(m.real.real_size, 1);
        assert_int_equal(m.scaled.real_size, 0);
        assert_int_equal(m.real.mixer, m.scaled.mixer);
        assert_int_equal(m.real.gate_norm, m.scaled.gate_norm);
        assert_true(m.real.heads >= m.scaled.heads);
        assert_int_equal(m.n_layers, strlen(m.layers));
    }
    assert_int_equal(mixers, (1u << HB_N_MIXERS) - 1);
}

static void check_config(const struct hb_case *c, const char *name) {
    struct hb_caps caps = {.struct_size = sizeof caps};
    struct hb_config config;
    struct hb_error want = {.struct_size = sizeof want};
    const struct hb_adapter *oracle = hb_adapter_oracle();
    assert_int_equal(oracle->describe(oracle->ctx, &caps, NULL), HB_OK);
    hb_case_backend_config(c, &config);
    hb_expect_create(&config, &caps, &want);
    if (want.status != HB_OK) {
        fail_msg("%s: %s", name, want.text);
    }
}

/* Cases of a model have its sizes, its variants and both of its layer kinds, and keep what is asked for beside them. */
static void every_model_gives_valid_cases(void **state) {
    (void)state;
    for (int32_t i = 0; i < n_names; i++) {
        struct hb_gen_options o;
        hb_gen_options_init(&o);
        o.gen_class = HB_GEN_VALID;
        o.has_model = 1;
        load(names[i], &o.model);
        for (int32_t size = 0; size < HB_N_SIZES; size++) {
            for (uint64_t k = 0; k < N_CASES; k++) {
                struct hb_case c;
                o.size = size;
                hb_gen_case(&o, 5, k, &c);
                const struct hb_case_config *m = size == HB_SIZE_REAL ? &o.model.real : &o.model.scaled;
                check_config(&c, names[i]);
                assert_int_equal(c.config.mixer, m->mixer);
                assert_int_equal(c.config.real_size, size == HB_SIZE_REAL);
                const int32_t all = (1 << c.config.n_layers) - 1;
                assert_true(strchr(o.model.layers, 'A') == NULL || c.config.attn_mask != 0);
                assert_true(c.config.attn_mask != all);
                if (c.config.value_class != HB_VALUES_EXACT && m->gate_norm == HB_GATE_NORM_BEFORE) {
                    assert_int_equal(c.config.gate_norm, m->gate_norm); /* the file says it */
                }
                if (size == HB_SIZE_REAL) {
                    assert_int_equal(c.config.heads, m->heads);
                    assert_true(m->mixer == HB_MIXER_SHORT_CONV || c.config.state_size == m->state_size);
                    assert_int_equal(c.config.head_dim, m->head_dim);
                    assert_int_equal(c.config.attn_dim, m->attn_dim);
                    assert_int_equal(c.config.n_layers, 2);
                }
            }
        }
    }
}

static void types_that_are_asked_for_come_before_the_models(void **state) {
    (void)state;
    struct hb_gen_options o;
    struct hb_case c;
    hb_gen_options_init(&o);
    o.has_model = 1;
    load("qwen3-next-80b", &o.model);
    o.act_dtype = HB_FP16;
    o.state_dtype = HB_BF16;
    hb_gen_case(&o, 6, 0, &c);
    assert_int_equal(c.config.act_dtype, HB_FP16);
    assert_int_equal(c.config.state_dtype, HB_BF16);
}

/* A mutated case stays of the model's mixer and of ordinary size. */
static void what_is_asked_for_is_held_after_a_change(void **state) {
    (void)state;
    struct hb_gen_options o;
    struct hb_case c;
    hb_gen_options_init(&o);
    o.target = HB_TARGET_ATTENTION;
    o.mixer = HB_MIXER_KDA;
    hb_gen_case(&o, 7, 0, &c);
    for (uint64_t i = 0; i < 300; i++) {
        hb_mutate_case(&c, i);
        hb_gen_hold(&o, &c);
        assert_int_equal(c.config.mixer, HB_MIXER_KDA);
        assert_int_equal(c.config.target, HB_TARGET_ATTENTION);
        assert_int_equal(c.config.real_size, 0);
    }
}

/* --- faults ----------------------------------------------------------------------------------- */

static const char good[] =
    "{\"name\":\"x\",\"source\":\"s\",\"layers\":\"LL-A\",\"config\":{\"mixer\":\"gdn\",\"gate_norm\":\"before\"},"
    "\"true\":{\"heads\":32,\"head_dim\":128,\"state_size\":128,\"groups\":16,\"conv_width\":4,\"chunk_size\":64,"
    "\"q_heads\":16,\"kv_heads\":2,\"attn_dim\":256},"
    "\"scaled\":{\"heads\":4,\"head_dim\":8,\"state_size\":8,\"groups\":2,\"conv_width\":4,\"chunk_size\":8,"
    "\"q_heads\":4,\"kv_heads\":2,\"attn_dim\":8}}";

/* The good text with its first `from` replaced. */
static void changed(const char *from, const char *to, char out[TEXT_CAP]) {
    const char *at = strstr(good, from);
    assert_non_null(at);
    (void)snprintf(out, TEXT_CAP, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
}

static void faults_are_named(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *text;
    } bad[] = {
        {"{\"name\":\"x\",", "{", "name is missing"},
        {"\"x\"", "1", "name is not a string"},
        {"\"x\"", "\"\"", "name is not a string"},
        {"\"x\"", "\"0123456789012345678901234567890123456789012345678901234567890\"", "name has 61 bytes, the limit is 47"},
        {"\"source\":\"s\",", "", "source is missing"},
        {"LL-A", "LLXA", "layers has the letter 'X' at 2, known are"},
        {"LL-A", "LL\xc3\xa9", "layers has the byte 0xc3 at 2, known are"},
        {"LL-A", "--", "layers names no layer"},
        {"\"layers\"", "\"more\":1,\"layers\"", "more is an unknown member"},
        {"{\"mixer\":\"gdn\",\"gate_norm\":\"before\"}", "[]", "config is not an object"},
        {"\"mixer\":\"gdn\"", "\"mixer\":\"gdm\"", "config.mixer has the unknown name"},
        {"\"mixer\":\"gdn\"", "\"seed\":1", "config.seed is no such field"},
        {"\"mixer\":\"gdn\"", "\"heads\":1", "config.heads is no such field"},
        {"\"heads\":32,", "", "true.heads is missing"},
        {"\"heads\":32", "\"heads\":129", "true.heads is above"},
        {"\"groups\":16", "\"groups\":15", "true.groups does not fit"},
        {"\"heads\":4,", "\"heads\":9,", "scaled.heads does not fit"},
        {"\"attn_dim\":8}", "\"attn_dim\":33}", "scaled.attn_dim does not fit"},
        {"\"kv_heads\":2,\"attn_dim\":8", "\"kv_heads\":2", "scaled.attn_dim is missing"},
        {"\"chunk_size\":8", "\"chunk_size\":7", "scaled.chunk_size does not fit"},
        {"\"scaled\":{\"heads\":4", "\"scaled\":{\"mixer\":\"kda\",\"heads\":4", "scaled.mixer is no such field"},
        {"\"gate_norm\"", "\"mixer\"", "byte"},
        {"}}", "}", "byte"},
    };
    struct hb_model m;
    struct hb_model before;
    struct hb_error err = {.struct_size = sizeof err};
    assert_int_equal(hb_model_parse(good, strlen(good), &m, &err), HB_OK);
    assert_string_equal(m.layers, "LLA");
    memcpy(&before, &m, sizeof m);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[TEXT_CAP];
        struct hb_error e = {.struct_size = sizeof e};
        changed(bad[i].from, bad[i].to, text);
        assert_int_equal(hb_model_parse(text, strlen(text), &m, &e), HB_ERR_PARSE);
        assert_memory_equal(&m, &before, sizeof m); /* written on success only */
        if (!strstr(e.text, bad[i].text)) {
            fail_msg("%s: %s", text, e.text);
        }
    }
    assert_int_equal(hb_model_load(folder, "no-such-model", &m, &err), HB_ERR_IO);
    assert_non_null(strstr(err.text, "/no-such-model.json: cannot be opened: "));
    assert_int_equal(hb_model_names("/nowhere/at/all", names, MAX_MODELS), -1);
}

/* A file that is no model is named beside its fault; a good one says nothing. */
static void a_fault_names_its_file(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *text;
    } rows[] = {
        {"{", "{", NULL},
        {"\"x\"", "\"y\"", "/x.json: model: name is 'y', not that of the file"},
        {"LL-A", "LLXA", "/x.json: model: layers has the letter 'X' at 2"},
        {"{", "{x", "/x.json: json: byte 1: a key is expected, found 'x'"},
        {"\"heads\":32", "\"heads\":129", "/x.json: case: true.heads is above the largest value (value 129, limit 128)"},
        {"\"mixer\":\"gdn\"", "\"mixer\":\"gdm\"", "/x.json: case: config.mixer has the unknown name \"gdm\""},
    };
    char dir[] = "/tmp/hb-models-XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/x.json", dir);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[TEXT_CAP];
        struct hb_model m;
        struct hb_error err = {.struct_size = sizeof err};
        changed(rows[i].from, rows[i].to, text);
        FILE *f = fopen(path, "we");
        assert_non_null(f);
        assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
        assert_int_equal(hb_model_load(dir, "x", &m, &err), rows[i].text ? HB_ERR_PARSE : HB_OK);
        if (rows[i].text && !strstr(err.text, rows[i].text)) {
            fail_msg("%s: %s", text, err.text);
        }
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* A kind needs only the sizes that it has. */
static void sizes_that_a_kind_lacks_may_be_left_out(void **state) {
    (void)state;
    static const char text[] =
        "{\"name\":\"x\",\"source\":\"s\",\"layers\":\"L\",\"config\":{\"mixer\":\"short_conv\"},"
        "\"true\":{\"heads\":16,\"head_dim\":64,\"conv_width\":3},\"scaled\":{\"heads\":4,\"head_dim\":8,\"conv_width\":3}}";
    struct hb_model m;
    struct hb_error err = {.struct_size = sizeof err};
    if (hb_model_parse(text, strlen(text), &m, &err) != HB_OK) {
        fail_msg("%s", err.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_file_is_read),
        cmocka_unit_test(every_model_gives_valid_cases),
        cmocka_unit_test(types_that_are_asked_for_come_before_the_models),
        cmocka_unit_test(what_is_asked_for_is_held_after_a_change),
        cmocka_unit_test(sizes_that_a_kind_lacks_may_be_left_out),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(a_fault_names_its_file),
    };
    return cmocka_run_group_tests_name("models", tests, read_names, NULL);
}
