/* SPDX-License-Identifier: Apache-2.0
 * list: the tables of this build, for people or as one JSON object. */
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "backend/defects.h"
#include "harness/backends.h"
#include "harness/cli/common.h"
#include "harness/controls.h"
#include "harness/coverage.h"

static cJSON *item(cJSON *list, const char *name) {
    cJSON *o = cJSON_CreateObject();
    if (o) {
        cJSON_AddStringToObject(o, "name", name);
        cJSON_AddItemToArray(list, o);
    }
    return o;
}

/* The test that breaks it. */
static void add_control(cJSON *o, const char *control) {
    cJSON_AddStringToObject(o, "control", control ? control : "none");
}

static void fill_targets(cJSON *list) {
    static const char *const what[HB_N_TARGETS] = {
        "histories of forwards and slot operations, all outputs and states",
        "modes, entries and refusals",
        "draft verification and commit in such histories",
        "batches, most of them broken, in every mode: statuses only",
        "checkpoints of extends and decodes, and restarts from them",
        "captured graphs and their replays beside eager forwards",
        "life of slots: prefix cache, ping-pong, virtual ids, moves",
        "models of mostly attention: windows, soft caps, pages, trees"};
    for (int32_t i = 0; i < HB_N_TARGETS; i++) {
        cJSON *o = item(list, hb_target_name(i));
        cJSON_AddStringToObject(o, "what", what[i]);
    }
}

static void fill_backends(cJSON *list) {
    const struct hb_backend_entry *b;
    int n = hb_backends(&b);
    for (int i = 0; i < n; i++) {
        struct hb_error err = {.struct_size = sizeof err};
        int is_here = hb_backend_available(i, &err) == HB_OK;
        cJSON *o = item(list, b[i].name);
        cJSON_AddStringToObject(o, "what", b[i].what);
        cJSON_AddBoolToObject(o, "available", is_here);
        if (!is_here) {
            cJSON_AddStringToObject(o, "reason", err.text);
        }
    }
}

static void fill_modes(cJSON *list) {
    for (int i = 0; i < hb_names_mode.count(); i++) {
        cJSON_AddNumberToObject(item(list, hb_names_mode.name(i)), "number",
                                hb_names_mode.value(i));
    }
}

static void fill_statuses(cJSON *list) {
    static const int32_t numbers[] = {
#define STATUS_ROW(number, name) number,
        HB_STATUSES(STATUS_ROW)
#undef STATUS_ROW
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        cJSON *o = item(list, hb_status_name(numbers[i]));
        cJSON_AddNumberToObject(o, "number", numbers[i]);
        add_control(o, hb_status_control(numbers[i]));
    }
}

static void fill_rules(cJSON *list) {
    const int32_t *numbers;
    int n = hb_rule_list(&numbers);
    for (int i = 0; i < n; i++) {
        cJSON *o = item(list, hb_rule_name(numbers[i]));
        cJSON_AddNumberToObject(o, "number", numbers[i]);
        cJSON_AddStringToObject(o, "status", hb_status_name(hb_rule_status(numbers[i])));
        cJSON_AddStringToObject(o, "field", hb_rule_field(numbers[i]));
        add_control(o, hb_rule_control(numbers[i]));
        if (hb_coverage_unreachable(numbers[i])) {
            cJSON_AddStringToObject(o, "no_case", hb_coverage_unreachable(numbers[i]));
        }
    }
}

static void fill_relations(cJSON *list) {
    const struct hb_relation *r;
    int n = hb_relations(&r);
    for (int i = 0; i < n; i++) {
        cJSON *o = item(list, r[i].name);
        cJSON_AddStringToObject(o, "kind", r[i].kind);
        add_control(o, r[i].control);
        cJSON_AddNumberToObject(o, "number", r[i].number);
        cJSON_AddBoolToObject(o, "always", r[i].always);
    }
}

static void fill_defects(cJSON *list) {
    static const struct {
        int32_t number;
        const char *name, *what, *detector;
    } defects[] = {
#define DEFECT_ROW(number, name, what, detector) {number, #name, what, detector},
        HB_DEFECTS_TABLE(DEFECT_ROW)
#undef DEFECT_ROW
    };
#ifdef HB_DEFECTS
    const int is_here = 1;
#else
    const int is_here = 0;
#endif
    for (size_t i = 0; i < sizeof defects / sizeof defects[0]; i++) {
        cJSON *o = item(list, defects[i].name);
        cJSON_AddNumberToObject(o, "number", defects[i].number);
        cJSON_AddStringToObject(o, "what", defects[i].what);
        cJSON_AddStringToObject(o, "detector", defects[i].detector);
        cJSON_AddBoolToObject(o, "available", is_here);
    }
}

static void fill_models(cJSON *list) {
    char names[HB_CLI_MAX_MODELS][HB_MODEL_NAME];
    char dir[HB_PATH_CAP];
    const int32_t n = hb_cli_model_dir(dir, sizeof dir) == 0 ? hb_model_names(dir, names, HB_CLI_MAX_MODELS) : 0;
    for (int32_t i = 0; i < n; i++) {
        struct hb_model m;
        struct hb_error err = {.struct_size = sizeof err};
        cJSON *o = item(list, names[i]);
        if (hb_model_load(dir, names[i], &m, &err) != HB_OK) {
            cJSON_AddStringToObject(o, "error", err.text);
            continue;
        }
        cJSON_AddStringToObject(o, "mixer", hb_mixer_name(m.scaled.mixer));
        cJSON_AddStringToObject(o, "layers", m.layers);
        cJSON_AddStringToObject(o, "source", m.source);
    }
}

enum { N_SECTIONS = 8 };

static const struct {
    const char *name;
    void (*fill)(cJSON *list);
    size_t flag; /* in struct hb_args */
} sections[N_SECTIONS] = {
    {"targets", fill_targets, offsetof(struct hb_args, targets)},
    {"backends", fill_backends, offsetof(struct hb_args, backends)},
    {"modes", fill_modes, offsetof(struct hb_args, modes)},
    {"statuses", fill_statuses, offsetof(struct hb_args, statuses)},
    {"rules", fill_rules, offsetof(struct hb_args, rules)},
    {"relations", fill_relations, offsetof(struct hb_args, relations)},
    {"defects", fill_defects, offsetof(struct hb_args, defects)},
    {"models", fill_models, offsetof(struct hb_args, models)},
};

static int is_wanted(const struct hb_args *args, int i) {
    int32_t is_on = 0;
    memcpy(&is_on, (const char *)args + sections[i].flag, sizeof is_on);
    return is_on;
}

static void print_value(const cJSON *v) {
    if (cJSON_IsBool(v)) {
        (void)printf("  %s %s", v->string, cJSON_IsTrue(v) ? "yes" : "no");
    } else if (cJSON_IsNumber(v)) {
        (void)printf("  %s %.0f", v->string, v->valuedouble);
    } else {
        (void)printf("  %s: %s", v->string, v->valuestring);
    }
}

static void print_text(const cJSON *all) {
    for (const cJSON *list = all->child; list; list = list->next) {
        (void)printf("%s%s (%d)\n", list == all->child ? "" : "\n", list->string,
                     cJSON_GetArraySize(list));
        for (const cJSON *o = list->child; o; o = o->next) {
            const cJSON *name = o->child;
            (void)printf("  %-24s", name->valuestring);
            for (const cJSON *v = name->next; v; v = v->next) {
                print_value(v);
            }
            (void)printf("\n");
        }
    }
}

int hb_verb_list(const struct hb_args *args) {
    cJSON *all = cJSON_CreateObject();
    int n_wanted = 0;
    for (int i = 0; i < N_SECTIONS; i++) {
        n_wanted += is_wanted(args, i);
    }
    for (int i = 0; all && i < N_SECTIONS; i++) {
        cJSON *list = n_wanted == 0 || is_wanted(args, i)
                          ? cJSON_AddArrayToObject(all, sections[i].name)
                          : NULL;
        if (list) {
            sections[i].fill(list);
        }
    }
    char *text = args->json && all ? cJSON_Print(all) : NULL;
    int rc = HB_EXIT_OK;
    if (text) {
        (void)puts(text);
    } else if (!args->json && all) {
        print_text(all);
    } else {
        hb_cli_complain("out of memory for the list");
        rc = HB_EXIT_ENVIRONMENT;
    }
    free(text);
    cJSON_Delete(all);
    return rc;
}
