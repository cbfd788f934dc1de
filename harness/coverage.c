/* SPDX-License-Identifier: Apache-2.0
 * Which calls look at which rule, and what of it was reached. */
#include "harness/coverage.h"

#include <string.h>

#include "backend/batch.h"
#include "harness/gen_recipes.h"

/* --- calls and rules -------------------------------------------------------------------------- */

enum {
    CREATE = 1,
    BEGIN = 1 << 1,
    CAPTURE = 1 << 2,
    REPLAY = 1 << 3,
    LAYER = 1 << 4,
    ENTRY = 1 << 5,
    FINISH = 1 << 6,
    COMMIT = 1 << 7,
    TAKE = 1 << 8,
    FREE = 1 << 9,
    COPY = 1 << 10,
    PUBLISH = 1 << 11,
    MOVE = 1 << 12,
    TABLE = 1 << 13,
    GRAPH_INIT = 1 << 14,
    BATCH_CALLS = BEGIN | CAPTURE | REPLAY,
    ROW_CALLS = BEGIN | REPLAY
};

static const struct {
    const char *name;
    int32_t call;
} calls[] = {
    {"create", CREATE},         {"begin", BEGIN},         {"capture", CAPTURE},
    {"replay", REPLAY},         {"layer", LAYER},         {"entry", ENTRY},
    {"finish", FINISH},         {"commit", COMMIT},       {"slot_take", TAKE},
    {"slot_free", FREE},        {"slot_copy", COPY},      {"slot_publish", PUBLISH},
    {"slot_move", MOVE},        {"table_set", TABLE},     {"graph_init", GRAPH_INIT},
};

#define MODE(name) (1 << HB_MODE_##name)
enum {
    EXT = MODE(EXTEND) | MODE(MIXED) | MODE(SPLIT_PREFILL) | MODE(DLLM_EXTEND),
    DEC = MODE(DECODE),
    VFY = MODE(TARGET_VERIFY),
    IDLE = MODE(IDLE),
    ROWS = EXT | DEC | VFY,
    ANY = -1
};

/* Rules first..last: looked at by these calls; those with a batch look at them in these modes. */
struct place {
    int32_t first, last, calls, modes;
};
static const struct place places[] = {
    {1, 2, ENTRY, ANY},
    {3, 3, BATCH_CALLS, ANY},
    {4, 5, ENTRY, ANY},
    {9, 9, CAPTURE | REPLAY, ANY},
    {10, 10, BEGIN, ANY},
    {11, 11, BATCH_CALLS, ANY},
    {12, 12, LAYER | ENTRY | FINISH, ANY},
    {13, 13, LAYER | ENTRY, ANY},
    {14, 14, COMMIT, ANY},
    {15, 15, CAPTURE | REPLAY, ANY},
    {16, 16, GRAPH_INIT | CAPTURE, ANY},
    {17, 18, REPLAY, ANY},
    {19, 19, REPLAY, VFY},
    {20, 21, ROW_CALLS, ROWS},
    {22, 24, BEGIN, EXT},
    {25, 25, ROW_CALLS, EXT | DEC},
    {26, 26, BEGIN, EXT},
    {27, 28, ROW_CALLS, ROWS},
    {29, 29, LAYER | ENTRY, ANY},
    {30, 30, BATCH_CALLS, VFY},
    {31, 33, COMMIT, ANY},
    {40, 41, BATCH_CALLS, ANY},
    {42, 42, BEGIN, EXT},
    {43, 44, ROW_CALLS, ROWS},
    {45, 51, BEGIN, EXT},
    {52, 52, BEGIN, EXT | DEC},
    {53, 53, ROW_CALLS, ROWS},
    {54, 54, ROW_CALLS, EXT | DEC},
    {55, 55, BEGIN, EXT},
    {56, 58, ROW_CALLS, ROWS},
    {59, 59, LAYER | ENTRY, ANY},
    {60, 60, BEGIN, VFY},
    {61, 61, BATCH_CALLS, VFY},
    {62, 64, BEGIN, VFY},
    {65, 66, COMMIT, ANY},
    {67, 67, ROW_CALLS, DEC | VFY},
    {68, 68, CAPTURE | REPLAY, ANY},
    {69, 69, CAPTURE | REPLAY, VFY},
    {70, 71, BATCH_CALLS, ANY},
    {72, 72, BEGIN | CAPTURE, VFY},
    {73, 73, BATCH_CALLS, VFY},
    {74, 74, CAPTURE | REPLAY, ANY},
    {78, 79, REPLAY, DEC | VFY},
    {80, 80, BEGIN, ROWS | IDLE},
    {81, 81, ROW_CALLS, ROWS},
    {82, 82, BEGIN, ROWS},
    {83, 83, ROW_CALLS, ROWS},
    {84, 84, ROW_CALLS, DEC | VFY | MODE(MIXED)},
    {85, 87, BEGIN, EXT},
    {88, 88, ROW_CALLS, EXT | DEC},
    {89, 89, BEGIN, MODE(MIXED)},
    {90, 90, ROW_CALLS, EXT | DEC},
    {91, 92, BEGIN, EXT},
    {93, 96, ROW_CALLS, ROWS},
    {97, 97, LAYER | ENTRY, ANY},
    {98, 99, BEGIN, VFY},
    {100, 103, ROW_CALLS, VFY},
    {104, 106, COMMIT, ANY},
    {107, 107, ROW_CALLS, DEC | VFY},
    {110, 110, ROW_CALLS, ROWS},
    {111, 111, ROW_CALLS, EXT | DEC},
    {112, 113, COMMIT, ANY},
    {114, 114, ROW_CALLS, ROWS},
    {115, 115, COMMIT, ANY},
    {116, 116, FINISH, ANY},
    {120, 120, ROW_CALLS, ROWS},
    {121, 121, ROW_CALLS, EXT | DEC},
    {122, 122, ROW_CALLS, ROWS},
    {123, 123, COMMIT, ANY},
    {130, 130, ROW_CALLS, ROWS},
    {131, 132, ROW_CALLS, EXT | DEC},
    {133, 133, COMMIT, ANY},
    {140, 140, CAPTURE | REPLAY, VFY},
    {141, 142, BATCH_CALLS, VFY},
    {150, 152, TAKE, ANY},
    {153, 154, FREE | COPY | PUBLISH | MOVE, ANY},
    {155, 155, FREE, ANY},
    {156, 156, COPY, ANY},
    {157, 157, TABLE, ANY},
    {159, 159, COPY, ANY},
    {160, 162, GRAPH_INIT, ANY},
    {163, 163, PUBLISH, ANY},
    {164, 165, MOVE, ANY},
    {200, 225, CREATE, ANY},
    {230, 230, CREATE, ANY},
};
enum { N_PLACES = sizeof places / sizeof *places };

static int32_t call_bit(const char *name) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (strcmp(calls[i].name, name) == 0) {
            return calls[i].call;
        }
    }
    return 0;
}

/* --- counting --------------------------------------------------------------------------------- */

void hb_coverage_call(struct hb_run_stats *stats, const char *call, int32_t mode,
                      const struct hb_error *want) {
    const int32_t bit = call_bit(call);
    const int32_t mode_bit = mode > 0 && mode < 31 ? 1 << mode : 0;
    stats->status_seen[(uint32_t)want->status & 31]++;
    if (want->status != HB_OK) {
        stats->rule_broken[(uint32_t)want->rule & 255]++;
        return;
    }
    for (int i = 0; i < N_PLACES; i++) {
        const struct place *p = &places[i];
        const int in_mode = p->modes == ANY || !(bit & BATCH_CALLS) || (p->modes & mode_bit);
        for (int32_t rule = p->first; (p->calls & bit) && in_mode && rule <= p->last; rule++) {
            stats->rule_kept[rule]++;
        }
    }
}

int32_t hb_coverage_belongs(const char *call, int32_t rule) {
    const int32_t bit = call_bit(call);
    for (int i = 0; i < N_PLACES; i++) {
        if (rule >= places[i].first && rule <= places[i].last && (places[i].calls & bit)) {
            return 1;
        }
    }
    return 0;
}

int32_t hb_coverage_rule(const struct hb_run_stats *stats, int32_t rule) {
    const uint32_t i = (uint32_t)rule & 255;
    return (stats->rule_broken[i] ? HB_COVERED_BROKEN : 0) |
           (stats->rule_kept[i] ? HB_COVERED_KEPT : 0);
}

const char *hb_coverage_unreachable(int32_t rule) {
    const struct hb_recipe *r;
    const int n = hb_recipe_table(&r);
    for (int i = 0; i < n; i++) {
        if (r[i].rule == rule) {
            return r[i].unreachable;
        }
    }
    return NULL;
}

int hb_coverage_statuses(const int32_t **out) {
    /* the others tell of environment trouble, which nobody predicts */
    static const int32_t statuses[] = {
        HB_OK,           HB_ERR_INVALID_MODE, HB_ERR_NOT_IMPLEMENTED, HB_ERR_NULL,
        HB_ERR_SHAPE,    HB_ERR_RANGE,        HB_ERR_DUPLICATE,       HB_ERR_ALIAS,
        HB_ERR_FREED,    HB_ERR_CAPACITY,     HB_ERR_STATE,           HB_ERR_UNSUPPORTED,
    };
    *out = statuses;
    return (int)(sizeof statuses / sizeof *statuses);
}

void hb_coverage_of(const struct hb_run_stats *stats, struct hb_coverage *out) {
    const int32_t *list;
    memset(out, 0, sizeof *out);
    int n = hb_rule_list(&list);
    for (int i = 0; i < n; i++) {
        if (!hb_coverage_unreachable(list[i])) {
            out->rules++;
            out->rules_both += hb_coverage_rule(stats, list[i]) == HB_COVERED_BOTH;
        }
    }
    n = hb_coverage_statuses(&list);
    out->statuses = n;
    for (int i = 0; i < n; i++) {
        out->statuses_seen += stats->status_seen[(uint32_t)list[i] & 31] > 0;
    }
}
