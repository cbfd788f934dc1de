/* SPDX-License-Identifier: Apache-2.0
 * The stored cases of corpus/: canonical text, right on every backend, each planted defect found by its regression case,
 * and together what corpus/README.md says that they cover. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/batch.h"
#include "backend/defects.h"
#include "harness/child.h"
#include "harness/run.h"

enum { MAX_FILES = 512, PATH_CAP = 512, TEXT_CAP = 65536 };
enum { N_DEFECTS = HB_DEFECTS_END - 1 }; /* numbers have gaps */

struct stored {
    char path[PATH_CAP];
    char name[256];
    int32_t target;
    int32_t defect; /* from the name "defect-<n>-...", 0: none */
    struct hb_case c;
};

static struct stored stored[MAX_FILES];
static int n_stored;

static void add_file(const char *folder, const char *name, int32_t target) {
    struct hb_error err = {.struct_size = sizeof err};
    assert_true(n_stored < MAX_FILES);
    struct stored *s = &stored[n_stored++];
    (void)snprintf(s->path, sizeof s->path, "%.250s/%.250s", folder, name);
    (void)snprintf(s->name, sizeof s->name, "%s", name);
    s->target = target;
    if (strncmp(name, "defect-", 7) == 0) {
        s->defect = (int32_t)strtol(name + 7, NULL, 10);
        assert_in_range(s->defect, 1, N_DEFECTS);
    }
    if (hb_case_load(s->path, &s->c, &err) != HB_OK) {
        fail_msg("%s: %s", s->path, err.text);
    }
}

static void load_folder(const char *folder, int32_t target) {
    DIR *dir = opendir(folder);
    if (!dir) {
        return; /* not every target has both */
    }
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (e->d_name[0] != '.') {
            add_file(folder, e->d_name, target);
        }
    }
    assert_int_equal(closedir(dir), 0);
}

static int load_corpus(void **state) {
    (void)state;
    for (int32_t target = 0; target < HB_N_TARGETS; target++) {
        char folder[PATH_CAP];
        const int before = n_stored;
        (void)snprintf(folder, sizeof folder, HB_SOURCE_DIR "/corpus/%.20s/seeds", hb_target_name(target));
        load_folder(folder, target);
        (void)snprintf(folder, sizeof folder, HB_SOURCE_DIR "/corpus/%.20s/regress", hb_target_name(target));
        load_folder(folder, target);
        if (n_stored == before) {
            fail_msg("target %s has no stored case", hb_target_name(target));
        }
    }
    return 0;
}

static void read_text(const char *path, char *text, size_t *size) {
    FILE *f = fopen(path, "re");
    if (!f) {
        fail_msg("cannot open %s", path);
        return;
    }
    *size = fread(text, 1, TEXT_CAP - 1, f);
    assert_int_equal(fclose(f), 0);
    text[*size] = '\0';
}

/* So that a difference in a commit is a difference in the case. */
static void files_are_canonical_text_of_their_target(void **state) {
    (void)state;
    static char text[TEXT_CAP];
    for (int i = 0; i < n_stored; i++) {
        size_t size = 0;
        read_text(stored[i].path, text, &size);
        char *canonical = hb_case_to_json(&stored[i].c, NULL);
        assert_non_null(canonical);
        if (strcmp(text, canonical) != 0) {
            fail_msg("%s is not its canonical text", stored[i].path);
        }
        free(canonical);
        assert_int_equal(stored[i].c.config.target, stored[i].target);
        assert_true(size <= HB_CASE_MAX_BYTES); /* the engine cuts longer inputs */
    }
}

static struct hb_verdict run(const struct hb_adapter *backend, const struct stored *s, int32_t defect) {
    const struct hb_run_options o = {.tamper_element = -1, .defect = defect};
    struct hb_verdict v;
    assert_int_equal(hb_run_case(backend, &s->c, &o, &v, NULL), 0);
    return v;
}

static void pass_all(const struct hb_adapter *backend) {
    for (int i = 0; i < n_stored; i++) {
        struct hb_verdict v = run(backend, &stored[i], HB_DEFECT_NONE);
        if (v.kind != HB_VERDICT_PASS) {
            fail_msg("%s: %s", stored[i].path, v.text);
        }
    }
}

static void all_pass_on_emu(void **state) {
    (void)state;
    pass_all(hb_adapter_emu());
}

static void all_pass_on_oracle(void **state) {
    (void)state;
    pass_all(hb_adapter_oracle());
}

/* The detector's name is the first word of the table's column. */
static const char *detector_of(int32_t defect) {
    static const char *const detectors[N_DEFECTS + 1] = {
#define DETECTOR(number, name, what, detector) [number] = (detector),
        HB_DEFECTS_TABLE(DETECTOR)
#undef DETECTOR
    };
    return detectors[defect];
}

static void each_defect_is_found_by_its_regression_case(void **state) {
    (void)state;
    struct hb_caps caps = {.struct_size = sizeof caps};
    int seen[N_DEFECTS + 1] = {0};
    assert_int_equal(hb_adapter_emu()->describe(hb_adapter_emu()->ctx, &caps, NULL), HB_OK);
    if (!caps.has_defects) {
        skip();
    }
    for (int i = 0; i < n_stored; i++) {
        const struct stored *s = &stored[i];
        if (!s->defect) {
            continue;
        }
        const char *detector = detector_of(s->defect);
        assert_non_null(detector);
        struct hb_verdict v = run(hb_adapter_emu(), s, s->defect);
        if (strncmp(v.check, detector, strcspn(detector, ",")) != 0) {
            fail_msg("%s: noticed by '%s', not by '%s'", s->path, v.check, detector);
        }
        seen[s->defect]++;
    }
    for (int32_t d = 1; d <= N_DEFECTS; d++) {
        assert_true(seen[d] > 0 || !detector_of(d));
    }
}

struct covered {
    int mode[16], values[HB_N_VALUE_CLASSES], unread[HB_N_UNREAD], kind[HB_N_STEP_KINDS];
    int invalid_mode, native_decode, mixed_prefill, padded, tracked, restarted, relation;
    int chain, tree, ragged, dropped, committed_track;
    int mixer[HB_N_MIXERS], act[HB_N_FLOAT_DTYPES], page[HB_N_KV_PAGES], window, softcap;
};

static void count_step(const struct hb_case_step *s, struct covered *k) {
    k->kind[s->kind]++;
    k->restarted += s->kind == HB_STEP_TAKE && s->slot_kind == 0 && s->from >= 0;
    if (!hb_step_has_rows(s->kind)) {
        return;
    }
    int is_mode = s->mode >= HB_MODE_EXTEND && s->mode <= HB_MODE_DLLM_EXTEND;
    if (s->kind == HB_STEP_COMMIT) {
        for (int32_t r = 0; r < s->n_rows; r++) {
            k->dropped += s->row[r].accept < 0;
            k->committed_track += s->row[r].track;
        }
        return;
    }
    k->chain += hb_step_is_verify(s) && s->tree == HB_TREE_CHAIN;
    k->tree += s->tree >= HB_TREE_RANDOM;
    k->ragged += s->ragged;
    k->mode[is_mode ? s->mode : 0]++;
    k->invalid_mode += !is_mode;
    k->native_decode += s->mode == HB_MODE_MIXED && s->n_decode > 0;
    k->mixed_prefill += s->mode == HB_MODE_MIXED && s->n_decode == 0;
    k->padded += s->pad_rows > 0 && s->pad_tokens > 0;
    for (int32_t r = 0; r < s->n_rows; r++) {
        k->tracked += s->row[r].track;
    }
}

static void together_they_cover_what_the_readme_says(void **state) {
    (void)state;
    static struct covered k;
    static struct hb_run_stats stats;
    const struct hb_run_options o = {.tamper_element = -1, .status_only = 1};
    for (int i = 0; i < n_stored; i++) {
        const struct hb_case *c = &stored[i].c;
        struct hb_verdict v;
        k.values[c->config.value_class]++;
        k.mixer[c->config.mixer]++;
        k.act[c->config.act_dtype]++;
        k.page[c->config.kv_page]++;
        k.window += c->config.attn_window > 0;
        k.softcap += c->config.attn_softcap > 0;
        k.unread[c->config.unread]++;
        k.relation += c->config.relation > 0;
        for (int32_t s = 0; s < c->n_steps; s++) {
            count_step(&c->step[s], &k);
        }
        assert_int_equal(hb_run_case(hb_adapter_oracle(), c, &o, &v, &stats), 0);
    }
    for (int32_t m = HB_MODE_EXTEND; m <= HB_MODE_DLLM_EXTEND; m++) {
        assert_true(k.mode[m] > 0);
    }
    for (int i = 0; i < HB_N_VALUE_CLASSES; i++) {
        assert_true(k.values[i] > 0);
    }
    for (int i = 0; i < HB_N_UNREAD; i++) {
        assert_true(k.unread[i] > 0);
    }
    for (int i = 0; i < HB_N_MIXERS; i++) {
        assert_true(k.mixer[i] >= HB_N_TARGETS);
    }
    for (int i = 0; i < HB_N_FLOAT_DTYPES; i++) {
        assert_true(k.act[i] > 0 && k.page[i] > 0); /* three of either */
    }
    assert_true(k.window > 0 && k.softcap > 0);
    for (int i = 0; i < HB_N_STEP_KINDS; i++) {
        assert_true(k.kind[i] > 0);
    }
    assert_true(k.invalid_mode && k.native_decode && k.mixed_prefill && k.padded && k.tracked);
    assert_true(k.restarted && k.relation);
    assert_true(k.chain && k.tree && k.ragged && k.dropped && k.committed_track);
    static const int32_t statuses[] = {
        HB_ERR_INVALID_MODE, HB_ERR_UNSUPPORTED, HB_ERR_NOT_IMPLEMENTED, HB_ERR_NULL,
        HB_ERR_SHAPE,        HB_ERR_RANGE,       HB_ERR_DUPLICATE,       HB_ERR_ALIAS,
        HB_ERR_FREED,        HB_ERR_STATE};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        assert_true(stats.status_seen[statuses[i]] > 0);
    }
}

/* Crossing is a pure function of both cases and the seed, so equal results mean equal cases. */
static void the_engine_reads_a_seed_of_text_as_its_bytes(void **state) {
    (void)state;
    static char text[TEXT_CAP];
    uint8_t bytes[HB_CASE_MAX_BYTES];
    uint8_t from_text[HB_CASE_MAX_BYTES];
    uint8_t from_bytes[HB_CASE_MAX_BYTES];
    int n_other = 0;
    for (int i = 0; i < n_stored; i++) {
        size_t text_size = 0;
        read_text(stored[i].path, text, &text_size);
        const size_t size = hb_case_encode(&stored[i].c, bytes, sizeof bytes);
        const uint8_t *json = (const uint8_t *)text;
        const size_t a = hb_child_cross(json, text_size, json, text_size, from_text,
                                        sizeof from_text, 7);
        const size_t b = hb_child_cross(bytes, size, bytes, size, from_bytes, sizeof from_bytes, 7);
        assert_int_equal(a, b);
        assert_memory_equal(from_text, from_bytes, a);
        /* half a text is no text: its bytes are a case all the same */
        const size_t half = hb_child_cross(json, text_size / 2, json, text_size / 2, from_text,
                                           sizeof from_text, 7);
        assert_true(half > 0);
        n_other += half != b || memcmp(from_text, from_bytes, b) != 0;
    }
    assert_int_equal(n_other, n_stored);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_canonical_text_of_their_target),
        cmocka_unit_test(all_pass_on_emu),
        cmocka_unit_test(all_pass_on_oracle),
        cmocka_unit_test(each_defect_is_found_by_its_regression_case),
        cmocka_unit_test(together_they_cover_what_the_readme_says),
        cmocka_unit_test(the_engine_reads_a_seed_of_text_as_its_bytes),
    };
    return cmocka_run_group_tests(tests, load_corpus, NULL);
}
