/* SPDX-License-Identifier: Apache-2.0
 * Canonical JSON text of a case: two-space indent, one row and one break per line. Fields at their
 * default are left out, except the main ones, which a reader looks for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case.h"

struct text {
    char *data;
    size_t len, cap;
    int32_t failed;
};

static void put(struct text *t, const char *s, size_t n) {
    if (t->failed) {
        return;
    }
    if (t->len + n + 1 > t->cap) {
        const size_t cap = 2 * t->cap > t->len + n + 1 ? 2 * t->cap : t->len + n + 4096;
        char *data = realloc(t->data, cap);
        if (!data) {
            t->failed = 1;
            return;
        }
        t->data = data;
        t->cap = cap;
    }
    memcpy(t->data + t->len, s, n);
    t->len += n;
    t->data[t->len] = '\0';
}

static void puts_to(struct text *t, const char *s) {
    put(t, s, strlen(s));
}

/* Fields written even at their default. */
static int is_main(const struct hb_case_field *f) {
    static const char *const config[] = {"n_layers",   "attn_mask",   "heads",       "head_dim",
                                         "state_size", "groups",      "conv_width",  "chunk_size",
                                         "act_dtype",  "state_dtype", "value_class", "seed"};
    static const char *const step[] = {"kind",  "mode",   "request",   "slot_kind", "slot",
                                       "bs",    "target", "direction", "layer"};
    static const char *const row[] = {"request", "length", "accept"};
    static const struct {
        const char *const *names;
        size_t n;
    } lists[] = {
        [HB_GROUP_CONFIG] = {config, sizeof config / sizeof *config},
        [HB_GROUP_STEP] = {step, sizeof step / sizeof *step},
        [HB_GROUP_ROW] = {row, sizeof row / sizeof *row},
        [HB_GROUP_BREAK] = {NULL, 0},
    };
    for (size_t i = 0; i < lists[f->group].n; i++) {
        if (strcmp(lists[f->group].names[i], f->name) == 0) {
            return 1;
        }
    }
    return f->group == HB_GROUP_BREAK;
}

static int is_mode(const struct hb_case_field *f) {
    return f->group == HB_GROUP_STEP && f->offset == offsetof(struct hb_case_step, mode);
}

/* At the top level of the text, not in "config". */
static int is_top(const struct hb_case_field *f) {
    return f->group == HB_GROUP_CONFIG && f->offset == offsetof(struct hb_case_config, target);
}

static void put_value(struct text *t, const struct hb_case_field *f, int64_t v) {
    static const int64_t number_limit = INT64_C(1) << 53;
    char mode[32];
    char line[96];
    const char *name = NULL;
    if (f->names) {
        name = f->names[v - f->lo];
    } else if (is_mode(f) && hb_case_mode_name((int32_t)v, mode, sizeof mode) > 0) {
        name = mode;
    }
    if (name) {
        (void)snprintf(line, sizeof line, "\"%s\"", name);
    } else if (v >= number_limit || v <= -number_limit) {
        /* readers of JSON hold numbers as doubles */
        (void)snprintf(line, sizeof line, "\"0x%016llx\"", (unsigned long long)v);
    } else {
        (void)snprintf(line, sizeof line, "%lld", (long long)v);
    }
    puts_to(t, line);
}

/* The members of one struct, separated by sep; returns how many were written. */
static int put_group(struct text *t, int32_t group, int32_t kind, const void *at, const char *sep) {
    const struct hb_case_field *f;
    const int n = hb_case_group_fields(group, &f);
    int written = 0;
    for (int i = 0; i < n; i++) {
        const int64_t v = hb_case_field_get(&f[i], at);
        if (is_top(&f[i]) || !hb_case_field_used(&f[i], kind) ||
            (v == f[i].initial && !is_main(&f[i]))) {
            continue;
        }
        puts_to(t, written++ ? sep : "");
        puts_to(t, "\"");
        puts_to(t, f[i].name);
        puts_to(t, "\": ");
        put_value(t, &f[i], v);
    }
    return written;
}

static void put_step(struct text *t, const struct hb_case_step *s) {
    puts_to(t, "    {");
    (void)put_group(t, HB_GROUP_STEP, s->kind, s, ", ");
    if (hb_step_has_rows(s->kind)) {
        puts_to(t, ", \"rows\": [");
        for (int32_t r = 0; r < s->n_rows; r++) {
            puts_to(t, r ? ",\n      {" : "\n      {");
            (void)put_group(t, HB_GROUP_ROW, s->kind, &s->row[r], ", ");
            puts_to(t, "}");
        }
        puts_to(t, s->n_rows ? "\n    ]" : "]");
    }
    puts_to(t, "}");
}

static void put_target(struct text *t, const struct hb_case *c) {
    const struct hb_case_field *f;
    const int n = hb_case_fields(&f);
    for (int i = 0; i < n; i++) {
        if (is_top(&f[i])) {
            put_value(t, &f[i], hb_case_field_get(&f[i], &c->config));
        }
    }
}

char *hb_case_to_json(const struct hb_case *c, const char *predicted) {
    struct text t = {NULL, 0, 0, 0};
    char schema[48];
    (void)snprintf(schema, sizeof schema, "{\n  \"schema\": %d,\n  \"target\": ", HB_CASE_SCHEMA);
    puts_to(&t, schema);
    put_target(&t, c);
    puts_to(&t, ",\n  \"config\": {\n    ");
    (void)put_group(&t, HB_GROUP_CONFIG, HB_STEP_FORWARD, &c->config, ",\n    ");
    puts_to(&t, "\n  },\n  \"steps\": [");
    for (int32_t i = 0; i < c->n_steps; i++) {
        puts_to(&t, i ? ",\n" : "\n");
        put_step(&t, &c->step[i]);
    }
    puts_to(&t, c->n_steps ? "\n  ],\n  \"breaks\": [" : "],\n  \"breaks\": [");
    for (int32_t b = 0; b < c->n_breaks; b++) {
        puts_to(&t, b ? ",\n    {" : "\n    {");
        (void)put_group(&t, HB_GROUP_BREAK, HB_STEP_FORWARD, &c->brk[b], ", ");
        puts_to(&t, "}");
    }
    puts_to(&t, c->n_breaks ? "\n  ]" : "]");
    if (predicted) {
        puts_to(&t, ",\n  \"predicted\": ");
        puts_to(&t, predicted);
    }
    puts_to(&t, "\n}\n");
    if (t.failed) {
        free(t.data);
        return NULL;
    }
    return t.data;
}
