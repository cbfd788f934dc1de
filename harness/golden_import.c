/* SPDX-License-Identifier: Apache-2.0
 * Golden cases: the manifest, strictly read, and what the importers of the single operations share.
 */
#include "harness/golden_internal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/json_scan.h"
#include "harness/safetensors_internal.h"

enum { MANIFEST_LIMIT = 16 << 20, PATH_CAP = 4096, MAX_SEQUENCES = 4096, MAX_TOKENS = 1 << 20 };

struct op {
    const char *name;
    int32_t (*load)(const struct hb_golden_source *s, struct hb_golden_problem *p);
};

static const struct op ops[] = {
    {"mamba2_layer", hb_golden_load_layer},
    {"ssd_scan", hb_golden_load_scan},
    {"causal_conv1d", hb_golden_load_conv},
    {"gated_rms_norm", hb_golden_load_norm},
    {"gdn_core", hb_golden_load_core},
    {"gdn_layer", hb_golden_load_gdn},
    {"kda_core", hb_golden_load_core},
    {"kda_layer", hb_golden_load_kda},
    {"simple_gla_core", hb_golden_load_core},
    {"lightning_core", hb_golden_load_core},
    {"lightning_layer", hb_golden_load_lightning},
};

static const struct op *find_op(const char *name) {
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (strcmp(name, ops[i].name) == 0) {
            return &ops[i];
        }
    }
    return NULL;
}

int32_t hb_golden_read_text(const char *path, size_t limit, char **text, size_t *len,
                            struct hb_error *err) {
    int fd = -1;
    uint64_t size = 0;
    size_t n = 0;
    int32_t status = hb_st_open(path, limit, &fd, &size, err);
    if (status != HB_OK) {
        return status;
    }
    char *buffer = malloc((size_t)size + 1);
    status = buffer != NULL ? hb_st_fill(fd, path, buffer, (size_t)size, &n, err)
                            : hb_fail_text(err, HB_ERR_MEMORY, "%.180s: out of memory", path);
    (void)close(fd); /* only read from */
    if (buffer == NULL || status != HB_OK) {
        free(buffer);
        return status;
    }
    buffer[n] = '\0';
    *text = buffer;
    *len = n;
    return HB_OK;
}

static const char *text_of(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

/* Printable ASCII, 1..55 characters. */
static int is_name(const char *name) {
    size_t n = 0;
    while (name[n] >= ' ' && name[n] <= '~') {
        n++;
    }
    return n > 0 && n < 56 && name[n] == '\0';
}

/* The fields that every entry must have; names of files stay inside the directory. */
static int32_t check_entry(const cJSON *entry, int32_t index, struct hb_error *err) {
    static const char *const objects[3] = {"config", "tensors", "producer"};
    char place[32];
    (void)snprintf(place, sizeof place, "manifest case %d", index);
    struct hb_golden_object o = {entry, place, "", err};
    const char *name = text_of(entry, "name");
    const char *file = text_of(entry, "file");
    const char *op = text_of(entry, "op");
    if (!cJSON_IsObject(entry)) {
        return hb_golden_wrong(&o, "the entry", entry, "an object");
    }
    if (name == NULL || !is_name(name)) {
        return hb_golden_wrong(&o, "name", cJSON_GetObjectItemCaseSensitive(entry, "name"),
                               "1..55 printable ASCII characters");
    }
    o.name = name;
    if (file == NULL || strchr(file, '/') != NULL || file[0] == '.' || file[0] == '\0') {
        return hb_golden_wrong(&o, "file", cJSON_GetObjectItemCaseSensitive(entry, "file"),
                               "a plain file name");
    }
    if (op == NULL || find_op(op) == NULL) {
        return hb_golden_wrong(&o, "op", cJSON_GetObjectItemCaseSensitive(entry, "op"),
                               "a known operation");
    }
    for (int k = 0; k < 3; k++) {
        const cJSON *object = cJSON_GetObjectItemCaseSensitive(entry, objects[k]);
        if (!cJSON_IsObject(object)) {
            return hb_golden_wrong(&o, objects[k], object, "an object");
        }
    }
    const cJSON *rows =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(entry, "config"), "rows");
    if (find_op(op)->load == hb_golden_load_norm &&
        !(cJSON_IsArray(rows) && cJSON_GetArraySize(rows) > 0)) {
        return hb_golden_wrong(&o, "config.rows", rows, "an array of at least one row");
    }
    return HB_OK;
}

static int32_t check_manifest(const cJSON *root, struct hb_error *err) {
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(root, "format");
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(root, "cases");
    if (!cJSON_IsNumber(format) || format->valuedouble != 1.0) {
        return hb_fail_text(err, HB_ERR_PARSE, "manifest: format is not 1");
    }
    if (!cJSON_IsArray(cases)) {
        return hb_fail_text(err, HB_ERR_PARSE, "manifest: cases is not an array");
    }
    int32_t index = 0;
    const cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, cases) {
        const int32_t status = check_entry(entry, index++, err);
        if (status != HB_OK) {
            return status;
        }
        for (const cJSON *other = cases->child; other != entry; other = other->next) {
            if (strcmp(text_of(other, "name"), text_of(entry, "name")) == 0) {
                return hb_fail_text(err, HB_ERR_PARSE, "manifest: case name '%s' is used twice",
                                    text_of(entry, "name"));
            }
        }
    }
    return HB_OK;
}

int32_t hb_golden_manifest(const char *dir, cJSON **manifest, struct hb_error *err) {
    char path[PATH_CAP];
    char *text = NULL;
    size_t len = 0;
    (void)snprintf(path, sizeof path, "%s/manifest.json", dir);
    int32_t status = hb_golden_read_text(path, MANIFEST_LIMIT, &text, &len, err);
    if (status != HB_OK) {
        return status;
    }
    status = hb_json_scan(text, len, err);
    cJSON *root = status == HB_OK ? cJSON_ParseWithLength(text, len) : NULL;
    free(text);
    if (status == HB_OK) {
        status = root == NULL ? hb_fail_text(err, HB_ERR_MEMORY, "%s: out of memory", path)
                              : check_manifest(root, err);
    }
    if (status != HB_OK) {
        cJSON_Delete(root);
        return status;
    }
    *manifest = root;
    return HB_OK;
}

void *hb_golden_own(struct hb_golden_problem *p, int64_t count, size_t size, struct hb_error *err) {
    void *memory =
        p->n_owned < HB_GOLDEN_MAX_OWNED ? calloc(count > 0 ? (size_t)count : 1, size) : NULL;
    if (memory == NULL) {
        (void)hb_fail_text(err, HB_ERR_MEMORY, "%s: out of memory", p->name);
        return NULL;
    }
    p->owned[p->n_owned++] = memory;
    return memory;
}

void hb_golden_problem_free(struct hb_golden_problem *p) {
    for (int32_t i = 0; i < p->n_owned; i++) {
        free(p->owned[i]);
    }
    hb_st_free(&p->file);
    memset(p, 0, sizeof *p);
}

/* config.sequences[seq] is not what it should be. */
static int32_t wrong_sequence(const struct hb_golden_problem *p, int32_t seq, const cJSON *item,
                              struct hb_error *err) {
    const struct hb_golden_object o = {NULL, p->name, "config", err};
    char field[32];
    (void)snprintf(field, sizeof field, "sequences[%d]", seq);
    return hb_golden_wrong(&o, field, item,
                           "a length or a list of lengths, together 1..%d of a case",
                           (int)MAX_TOKENS);
}

/* Counts, or fills when p->seg_len is there. An element is a list of lengths or one length. */
static int32_t walk_sequences(const cJSON *list, struct hb_golden_problem *p, int32_t *n_seg,
                              struct hb_error *err) {
    int32_t seq = 0;
    int32_t seg = 0;
    int64_t total = 0;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, list) {
        int32_t len = 0;
        const cJSON *one = cJSON_IsArray(item) ? item->child : item;
        if (p->seg_len != NULL) {
            p->seg_first[seq] = seg;
            p->first[seq] = (int32_t)total;
        }
        for (; one != NULL; one = cJSON_IsArray(item) ? one->next : NULL) {
            int32_t n = 0;
            if (!hb_golden_whole(one, 1, MAX_TOKENS, &n) || total + n > MAX_TOKENS) {
                return wrong_sequence(p, seq, item, err);
            }
            total += n;
            if (p->seg_len != NULL) {
                p->seg_len[seg] = n;
            }
            len += n;
            seg++;
        }
        if (len == 0) {
            return wrong_sequence(p, seq, item, err);
        }
        if (p->seg_len != NULL) {
            p->len[seq] = len;
        }
        p->max_seq_len = len > p->max_seq_len ? len : p->max_seq_len;
        seq++;
    }
    p->n_tokens = (int32_t)total;
    *n_seg = seg;
    return HB_OK;
}

int32_t hb_golden_sequences(const cJSON *list, struct hb_golden_problem *p, struct hb_error *err) {
    const int32_t n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    if (n < 1 || n > MAX_SEQUENCES) {
        const struct hb_golden_object o = {NULL, p->name, "config", err};
        return hb_golden_wrong(&o, "sequences", list, "an array of 1..%d entries",
                               (int)MAX_SEQUENCES);
    }
    int32_t n_seg = 0;
    int32_t status = walk_sequences(list, p, &n_seg, err);
    if (status != HB_OK) {
        return status;
    }
    p->n_seq = n;
    p->first = hb_golden_own(p, n, sizeof *p->first, err);
    p->len = hb_golden_own(p, n, sizeof *p->len, err);
    p->seg_first = hb_golden_own(p, (int64_t)n + 1, sizeof *p->seg_first, err);
    p->seg_len = hb_golden_own(p, n_seg, sizeof *p->seg_len, err);
    if (p->first == NULL || p->len == NULL || p->seg_first == NULL || p->seg_len == NULL) {
        return HB_ERR_MEMORY;
    }
    p->seg_first[n] = n_seg;
    return walk_sequences(list, p, &n_seg, err);
}

const struct hb_st_tensor *hb_golden_need(const struct hb_golden_problem *p, const char *name,
                                          int32_t n_dims, const int64_t *shape,
                                          struct hb_error *err) {
    const struct hb_st_tensor *t = hb_st_find(&p->file, name);
    if (t == NULL) {
        (void)hb_fail_text(err, HB_ERR_PARSE, "%s: the file has no tensor '%s'", p->name, name);
        return NULL;
    }
    if (t->dtype != HB_ST_F64 && t->dtype != HB_ST_F32 && t->dtype != HB_ST_BF16) {
        (void)hb_fail_text(err, HB_ERR_PARSE, "%s: tensor '%s' is not F64, F32 or BF16", p->name,
                           name);
        return NULL;
    }
    if (t->n_dims != n_dims) {
        (void)hb_fail_text(err, HB_ERR_PARSE, "%s: tensor '%s' has %d dimensions, %d are needed",
                           p->name, name, t->n_dims, n_dims);
        return NULL;
    }
    for (int32_t d = 0; d < n_dims; d++) {
        if (t->shape[d] != shape[d]) {
            (void)hb_fail_text(err, HB_ERR_PARSE,
                               "%s: dimension %d of tensor '%s' is %lld, the config says %lld",
                               p->name, d, name, (long long)t->shape[d], (long long)shape[d]);
            return NULL;
        }
    }
    return t;
}

/* Every tensor that the manifest lists is in the file with that shape. */
static int32_t check_tensors(const cJSON *list, const struct hb_golden_problem *p,
                             struct hb_error *err) {
    const cJSON *item = NULL;
    const struct hb_golden_object o = {NULL, p->name, "tensors", err};
    cJSON_ArrayForEach(item, list) {
        int64_t shape[HB_ST_MAX_DIMS] = {0};
        const cJSON *dims = cJSON_GetObjectItemCaseSensitive(item, "shape");
        const int32_t n = cJSON_IsArray(dims) ? cJSON_GetArraySize(dims) : -1;
        int32_t ok = n >= 0 && n <= HB_ST_MAX_DIMS;
        int32_t d = 0;
        const cJSON *dim = NULL;
        cJSON_ArrayForEach(dim, dims) {
            int32_t v = 0;
            ok = ok && hb_golden_whole(dim, 1, INT32_MAX, &v);
            if (ok) {
                shape[d++] = v;
            }
        }
        if (!ok) {
            return hb_golden_wrong(&o, item->string, item,
                                   "an object with a shape of at most %d integers above 0",
                                   (int)HB_ST_MAX_DIMS);
        }
        if (hb_golden_need(p, item->string, n, shape, err) == NULL) {
            return HB_ERR_PARSE;
        }
    }
    return HB_OK;
}

/* What the importers hand on is finite, inputs in float32 too. The producers' own results in fp32
 * and bf16 that a problem judges are not looked at here: a NaN there is a failure of the case. */
static int32_t check_finite(const struct hb_golden_problem *p, struct hb_error *err) {
    for (int32_t i = 0; i < p->file.n_tensors; i++) {
        const struct hb_st_tensor *t = &p->file.tensor[i];
        const int is_float = t->dtype == HB_ST_F64 || t->dtype == HB_ST_F32 ||
                             t->dtype == HB_ST_BF16 || t->dtype == HB_ST_F16;
        const int is_expected = strncmp(t->name, "exp", 3) == 0;
        const int is_judged =
            strncmp(t->name, "exp32.y", 7) == 0 ||
            (p->foreign[HB_BF16] != NULL && strncmp(t->name, "expbf16.y", 9) == 0);
        for (int64_t k = 0; k < t->n && is_float && !is_judged; k++) {
            const double v = hb_st_get(t, k);
            if (!(fabs(v) <= (is_expected ? DBL_MAX : (double)FLT_MAX))) {
                return hb_fail_text(err, HB_ERR_PARSE,
                                    "%s: element %lld of tensor '%.60s' is %g, expected a finite "
                                    "%s number",
                                    p->name, (long long)k, t->name, v,
                                    is_expected ? "float64" : "float32");
            }
        }
    }
    return HB_OK;
}

/* The states of all slots have fewer than 2^31 elements (rule CFG_DIM of the backend, which is not
 * to blame for a case that breaks it). */
static int32_t check_products(const struct hb_golden_problem *p, struct hb_error *err) {
    const int64_t slots = 2 * (int64_t)p->n_seq + 1;
    const int64_t ssm = slots * p->d_inner * p->config.state_size;
    const int64_t conv = slots * p->channels * p->config.conv_width;
    if (ssm > INT32_MAX || conv > INT32_MAX) {
        return hb_fail_text(err, HB_ERR_PARSE,
                            "%s: %d sequences with states of %d channels by %d have %lld elements, "
                            "expected at most %d",
                            p->name, p->n_seq, p->d_inner, p->config.state_size,
                            (long long)(ssm > conv ? ssm : conv), (int)INT32_MAX);
    }
    return HB_OK;
}

int32_t hb_golden_problem_count(const cJSON *entry) {
    const cJSON *config = cJSON_GetObjectItemCaseSensitive(entry, "config");
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(config, "rows");
    return strcmp(text_of(entry, "op"), "gated_rms_norm") == 0 ? cJSON_GetArraySize(rows) : 1;
}

static int32_t import_into(const char *dir, const cJSON *entry, int32_t row,
                           struct hb_golden_problem *p, struct hb_error *err) {
    char path[PATH_CAP];
    const int rows = hb_golden_problem_count(entry) > 1;
    (void)snprintf(path, sizeof path, "%s/%s", dir, text_of(entry, "file"));
    if (rows) {
        (void)snprintf(p->name, sizeof p->name, "%s/%d", text_of(entry, "name"), row);
    } else {
        (void)snprintf(p->name, sizeof p->name, "%s", text_of(entry, "name"));
    }
    (void)snprintf(p->op, sizeof p->op, "%s", text_of(entry, "op"));
    struct hb_error inner = {.struct_size = sizeof inner};
    int32_t status = hb_st_read(path, &p->file, &inner);
    if (status != HB_OK) { /* parse errors do not name the file themselves */
        return strstr(inner.text, text_of(entry, "file")) == NULL
                   ? hb_fail_text(err, status, "%.80s: %.160s", text_of(entry, "file"), inner.text)
                   : hb_fail_text(err, status, "%.250s", inner.text);
    }
    status = check_tensors(cJSON_GetObjectItemCaseSensitive(entry, "tensors"), p, err);
    if (status == HB_OK) {
        const struct hb_golden_source source = {
            {cJSON_GetObjectItemCaseSensitive(entry, "config"), p->name, "config", err},
            entry,
            row,
            err};
        status = find_op(p->op)->load(&source, p);
    }
    status = status != HB_OK ? status : check_finite(p, err);
    return status != HB_OK ? status : check_products(p, err);
}

int32_t hb_golden_import(const char *dir, const cJSON *entry, int32_t row,
                         struct hb_golden_problem *p, struct hb_error *err) {
    memset(p, 0, sizeof *p);
    const int32_t status = import_into(dir, entry, row, p, err);
    if (status != HB_OK) {
        hb_golden_problem_free(p);
    }
    return status;
}
