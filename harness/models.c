/* SPDX-License-Identifier: Apache-2.0
 * Reading of model files, and their part in a configuration. */
#define _POSIX_C_SOURCE 200809L

#include "harness/models.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "harness/case_internal.h"
#include "harness/json_scan.h"

enum { MAX_FILE = 1 << 16 };

/* --- what a file may and must say ------------------------------------------------------------- */

#define MIXER(name) (1u << HB_MIXER_##name)
#define ANY_MIXER (~0u)
#define DELTA (MIXER(GDN) | MIXER(KDA))
/* Sizes: in both "true" and "scaled". kind: the letter of the layers that need it, of these mixers; 0: it is optional. */
static const struct {
    const char *name;
    char kind;
    uint32_t mixers;
} sizes[] = {
    {"heads", 'L', ANY_MIXER},
    {"head_dim", 'L', ANY_MIXER},
    {"state_size", 'L', ~MIXER(SHORT_CONV)},
    {"groups", 'L', MIXER(MAMBA2) | DELTA | MIXER(LIGHTNING)},
    {"conv_width", 'L', ~MIXER(LIGHTNING)},
    {"chunk_size", 'L', MIXER(MAMBA2) | DELTA | MIXER(LIGHTNING)},
    {"q_heads", 'A', ANY_MIXER},
    {"kv_heads", 'A', ANY_MIXER},
    {"attn_dim", 'A', ANY_MIXER},
    {"attn_window", 0, ANY_MIXER},
};

/* Fields of "config". */
static const char *const choices[] = {
    "mixer",     "act_dtype",    "state_dtype",    "conv_act",   "gate_norm",  "norm_group",   "dt_softplus",
    "dt_clamp",  "eps",          "conv_bias",      "dt_bias",    "skip_d",     "head_map",     "state_layout",
    "out_gate",  "conv_state_len", "l2norm",       "beta_form",  "gate_form",  "gate_bound",   "qk_scale",
    "slope_kind", "layer_factor", "qkv_act",       "window_rule", "attn_softcap",
};

#define COUNT_OF(a) ((int32_t)(sizeof(a) / sizeof((a)[0])))

static int is_size(const char *name) {
    for (int32_t i = 0; i < COUNT_OF(sizes); i++) {
        if (strcmp(sizes[i].name, name) == 0) {
            return 1;
        }
    }
    return 0;
}

static int is_choice(const char *name) {
    for (int32_t i = 0; i < COUNT_OF(choices); i++) {
        if (strcmp(choices[i], name) == 0) {
            return 1;
        }
    }
    return 0;
}

static int32_t fail(struct hb_error *err, const char *place, const char *what) {
    char text[160];
    (void)snprintf(text, sizeof text, "model: %.64s %.80s", place, what);
    return hb_fail_text(err, HB_ERR_PARSE, "%s", text);
}

/* --- members ---------------------------------------------------------------------------------- */

/* A string of 1..cap-1 bytes. */
static int32_t read_string(const cJSON *item, const char *name, char *out, size_t cap,
                           struct hb_error *err) {
    if (!cJSON_IsString(item) || item->valuestring[0] == '\0') {
        return fail(err, name, "is not a string with text");
    }
    if (strlen(item->valuestring) >= cap) {
        char what[80];
        (void)snprintf(what, sizeof what, "has %zu bytes, the limit is %zu", strlen(item->valuestring), cap - 1);
        return fail(err, name, what);
    }
    (void)snprintf(out, cap, "%s", item->valuestring);
    return HB_OK;
}

static int32_t read_layers(const cJSON *item, struct hb_model *m, struct hb_error *err) {
    char text[HB_MODEL_LAYERS] = "";
    const int32_t status = read_string(item, "layers", text, sizeof text, err);
    if (status != HB_OK) {
        return status;
    }
    for (const char *p = text; *p; p++) {
        if (!strchr("LA-", *p)) {
            char what[80];
            const int is_plain = *p > 0x20 && *p < 0x7f;
            (void)snprintf(what, sizeof what, is_plain ? "has the letter '%c' at %d, known are L, A and -"
                                                       : "has the byte 0x%02x at %d, known are L, A and -",
                           is_plain ? *p : (unsigned char)*p, (int)(p - text));
            return fail(err, "layers", what);
        }
        if (*p != '-') {
            m->layers[m->n_layers++] = *p;
        }
    }
    return m->n_layers > 0 ? HB_OK : fail(err, "layers", "names no layer with a state");
}

/* The members of one object, all of which `is_allowed` knows, into both or one of the configurations. */
static int32_t read_fields(const cJSON *object, const char *where, int (*is_allowed)(const char *name),
                           struct hb_case_config *g, struct hb_model *m, struct hb_error *err) {
    if (!cJSON_IsObject(object)) {
        return fail(err, where, object ? "is not an object" : "is missing");
    }
    const struct hb_case_field *f;
    const int n = hb_case_group_fields(HB_GROUP_CONFIG, &f);
    for (const cJSON *item = object->child; item; item = item->next) {
        if (!is_allowed(item->string)) {
            char place[96];
            (void)snprintf(place, sizeof place, "%.20s.%.40s", where, item->string);
            return fail(err, place, "is no such field of a model");
        }
        for (int i = 0; i < n && i < HB_MODEL_FIELDS; i++) {
            m->is_given[i] |= strcmp(f[i].name, item->string) == 0;
        }
    }
    return hb_case_read_config(object, where, g, err);
}

/* The sizes that the model's layers need. */
static int32_t check_sizes(const cJSON *object, const char *where, const struct hb_model *m,
                           struct hb_error *err) {
    for (int32_t i = 0; i < COUNT_OF(sizes); i++) {
        const int is_needed = sizes[i].kind != 0 && strchr(m->layers, sizes[i].kind) != NULL &&
                              (sizes[i].mixers >> m->scaled.mixer & 1u);
        if (is_needed && !cJSON_GetObjectItemCaseSensitive(object, sizes[i].name)) {
            char place[96];
            (void)snprintf(place, sizeof place, "%.20s.%.40s", where, sizes[i].name);
            return fail(err, place, "is missing");
        }
    }
    return HB_OK;
}

static int32_t read_members(const cJSON *root, struct hb_model *m, struct hb_error *err) {
    static const char *const known[] = {"name", "source", "layers", "config", "true", "scaled"};
    if (!cJSON_IsObject(root)) {
        return fail(err, "the text", "is not an object");
    }
    const cJSON *item[COUNT_OF(known)];
    for (int32_t i = 0; i < COUNT_OF(known); i++) {
        item[i] = cJSON_GetObjectItemCaseSensitive(root, known[i]);
        if (!item[i]) {
            return fail(err, known[i], "is missing");
        }
    }
    for (const cJSON *member = root->child; member; member = member->next) {
        int32_t i = 0;
        while (i < COUNT_OF(known) && strcmp(member->string, known[i]) != 0) {
            i++;
        }
        if (i == COUNT_OF(known)) {
            return fail(err, member->string, "is an unknown member");
        }
    }
    int32_t status = read_string(item[0], "name", m->name, sizeof m->name, err);
    status = status ? status : read_string(item[1], "source", m->source, sizeof m->source, err);
    status = status ? status : read_layers(item[2], m, err);
    status = status ? status : read_fields(item[3], "config", is_choice, &m->scaled, m, err);
    m->real = m->scaled;
    m->real.real_size = 1;
    status = status ? status : read_fields(item[4], "true", is_size, &m->real, m, err);
    status = status ? status : read_fields(item[5], "scaled", is_size, &m->scaled, m, err);
    status = status ? status : check_sizes(item[4], "true", m, err);
    status = status ? status : check_sizes(item[5], "scaled", m, err);
    status = status ? status : hb_case_check_config("true", &m->real, err);
    return status ? status : hb_case_check_config("scaled", &m->scaled, err);
}

int32_t hb_model_parse(const char *text, size_t len, struct hb_model *out, struct hb_error *err) {
    int32_t status = hb_json_scan(text, len, err);
    if (status != HB_OK) {
        return status;
    }
    cJSON *root = cJSON_ParseWithLength(text, len);
    if (!root) {
        return hb_fail_text(err, HB_ERR_MEMORY, "model: out of memory");
    }
    struct hb_case c;
    struct hb_model m;
    memset(&m, 0, sizeof m);
    hb_case_init(&c);
    m.scaled = c.config;
    m.real = c.config;
    status = read_members(root, &m, err);
    if (status == HB_OK) {
        *out = m;
    }
    cJSON_Delete(root);
    return status;
}

/* --- files ------------------------------------------------------------------------------------ */

int32_t hb_model_load(const char *dir, const char *name, struct hb_model *out, struct hb_error *err) {
    char path[1100];
    struct hb_model m;
    (void)snprintf(path, sizeof path, "%.1000s/%.60s.json", dir, name);
    FILE *f = fopen(path, "rbe");
    if (!f) {
        return hb_fail_text(err, HB_ERR_IO, "%.150s: cannot be opened: %s", path, strerror(errno));
    }
    char *text = malloc(MAX_FILE);
    const size_t len = text ? fread(text, 1, MAX_FILE, f) : 0;
    const int is_bad = ferror(f) != 0;
    (void)fclose(f);
    int32_t status = HB_OK;
    if (!text) {
        status = hb_fail_text(err, HB_ERR_MEMORY, "model: out of memory");
    } else if (is_bad || len == MAX_FILE) {
        status = hb_fail_text(err, HB_ERR_IO, "%.150s: cannot be read, or is too large", path);
    } else {
        struct hb_error own = {.struct_size = sizeof own};
        status = hb_model_parse(text, len, &m, &own);
        if (status == HB_OK && strcmp(m.name, name) != 0) {
            status = hb_fail_text(&own, HB_ERR_PARSE, "model: name is '%.48s', not that of the file", m.name);
        }
        if (status != HB_OK) {
            (void)hb_fail_text(err, status, "%.110s: %.140s", path, own.text);
        }
    }
    free(text);
    if (status == HB_OK) {
        *out = m;
    }
    return status;
}

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

int32_t hb_model_names(const char *dir, char (*names)[HB_MODEL_NAME], int32_t cap) {
    DIR *d = opendir(dir);
    if (!d) {
        return -1;
    }
    int32_t n = 0;
    for (const struct dirent *e = readdir(d); e && n < cap; e = readdir(d)) {
        const size_t len = strlen(e->d_name);
        if (len > 5 && len - 5 < HB_MODEL_NAME && strcmp(e->d_name + len - 5, ".json") == 0) {
            (void)snprintf(names[n++], HB_MODEL_NAME, "%.*s", (int)(len - 5), e->d_name);
        }
    }
    (void)closedir(d);
    qsort(names, (size_t)n, sizeof *names, by_name);
    return n;
}

/* --- use -------------------------------------------------------------------------------------- */

void hb_model_apply(const struct hb_model *m, int32_t is_real, struct hb_case_config *g) {
    const struct hb_case_field *f;
    const int n = hb_case_group_fields(HB_GROUP_CONFIG, &f);
    const struct hb_case_config *from = is_real ? &m->real : &m->scaled;
    for (int i = 0; i < n && i < HB_MODEL_FIELDS; i++) {
        if (m->is_given[i]) {
            hb_case_field_set(&f[i], g, hb_case_field_get(&f[i], from));
        }
    }
    g->real_size = is_real;
}

void hb_model_layers(const struct hb_model *m, int32_t first, int32_t most, struct hb_case_config *g) {
    g->n_layers = 0;
    g->attn_mask = 0;
    for (int32_t l = first; l < m->n_layers && g->n_layers < most; l++) {
        g->attn_mask |= m->layers[l] == 'A' ? 1 << g->n_layers : 0;
        g->n_layers++;
    }
}
