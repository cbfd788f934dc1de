/* SPDX-License-Identifier: Apache-2.0
 * Controls of relations: a case and a misbehaving backend, what must be noticed of it, and that it
 * is not when the detector is off or the backend right. Include after cmocka.h. */
#ifndef HB_HARNESS_TESTS_RELATION_RIG_H
#define HB_HARNESS_TESTS_RELATION_RIG_H

#include "harness/gen.h"
#include "harness/run.h"
#include "harness/tests/hand_case.h"
#include "harness/tests/mischief.h"

#define STATUS_IS(want, got) "predicted HB_ERR_" want, "got HB_ERR_" got

struct control {
    int32_t number, variant;
    void (*build)(struct hb_case *c);
    int32_t off;             /* detectors that would notice earlier */
    int32_t kind;            /* verdict, */
    const char *check;       /* its check */
    const char *place;       /* and its place */
    const char *text, *more; /* parts of its text */
};

#define NUMERIC_OFF HB_OFF_NUMERIC, HB_VERDICT_RELATION
#define REFUSAL HB_VERDICT_STATUS, "status"

static inline const struct hb_relation *relation_of(int32_t number) {
    const struct hb_relation *list;
    int n = hb_relations(&list);
    for (int i = 0; i < n; i++) {
        if (list[i].number == number) {
            return &list[i];
        }
    }
    fail_msg("no relation %d", number);
    return NULL;
}

static inline void make(const struct control *t, struct hb_case *c) {
    hand_init(c);
    t->build(c);
    c->config.relation_arg = 1; /* 17: layer 1 alone; 40: row 1 loses its bit */
    c->config.relation = relation_of(t->number)->always ? 0 : t->number;
    hb_case_normalize(c);
}

static inline int32_t detector(int32_t kind) {
    switch (kind) {
    case HB_VERDICT_STATUS:
        return HB_OFF_STATUS;
    case HB_VERDICT_PURITY:
        return HB_OFF_PURITY;
    case HB_VERDICT_STATE:
        return HB_OFF_STATE;
    case HB_VERDICT_NUMERIC:
        return HB_OFF_NUMERIC;
    default:
        return HB_OFF_RELATION;
    }
}

static inline void assert_part(const char *text, const char *part) {
    if (!strstr(text, part)) {
        fail_msg("'%s' does not say '%s'", text, part);
    }
}

static inline void fires_in(const struct control *controls, int n_controls, int32_t number) {
    int n = 0;
    for (int i = 0; i < n_controls; i++) {
        const struct control *t = &controls[i];
        if (t->number != number) {
            continue;
        }
        n++;
        struct hb_case c;
        struct mischief m;
        struct hb_verdict v;
        make(t, &c);
        const struct hb_adapter *wrong = mischief_init(&m, number, t->variant);
        struct hb_run_options o = {.tamper_element = -1, .check_off = t->off};
        assert_int_equal(hb_run_case(wrong, &c, &o, &v, NULL), 0);
        assert_string_equal(v.text[0] ? v.check : "nothing was noticed", t->check);
        assert_int_equal(v.kind, t->kind);
        assert_string_equal(v.place, t->place);
        assert_part(v.text, t->text);
        assert_part(v.text, t->more);
        o.check_off |= detector(t->kind);
        assert_int_equal(hb_run_case(wrong, &c, &o, &v, NULL), 0);
        assert_string_equal(v.text, "");
        assert_int_equal(v.kind, HB_VERDICT_PASS);
    }
    assert_true(n > 0);
}

static inline void passes(const struct hb_case *c) {
    struct hb_verdict v;
    struct hb_run_stats stats = {0};
    assert_int_equal(hb_run_case(hb_adapter_emu(), c, NULL, &v, &stats), 0);
    assert_string_equal(v.text, "");
    assert_int_equal(v.kind, HB_VERDICT_PASS);
    /* a relation that did not apply would be silent for nothing */
    assert_true(stats.calls > 0 && (c->config.relation == 0 || stats.second_runs > 0));
}

/* Runs a relation, which must not fail; 1 if it said something. */
static inline int says_something(struct hb_case *c, int32_t number) {
    struct hb_verdict v;
    struct hb_run_stats stats = {0};
    c->config.relation = number;
    hb_case_normalize(c);
    assert_int_equal(hb_run_case(hb_adapter_emu(), c, NULL, &v, &stats), 0);
    assert_string_equal(v.text, "");
    return stats.second_runs > 0;
}

static inline void is_silent_in(const struct control *controls, int n_controls, int32_t number) {
    for (int i = 0; i < n_controls; i++) {
        if (controls[i].number != number) {
            continue;
        }
        for (int k = 0; k < 8; k++) {
            struct hb_case c;
            make(&controls[i], &c);
            c.config.kernel_form = k & 1;
            c.config.act_dtype = k >> 1 & 1;
            c.config.state_dtype = k >> 2 & 1;
            passes(&c);
        }
    }
}

/* Generated cases that ask for the relation: none breaks it on the right backend, and it says
 * something about at least 3 %. */
static inline void generated_are_silent(int32_t number) {
    enum { N = 200, LEAST = 6 };
    struct hb_gen_options o;
    struct hb_run_stats stats = {0};
    hb_gen_options_init(&o);
    o.relation = number;
    o.size = HB_SIZE_SMALL;
    for (uint64_t i = 0; i < N; i++) {
        struct hb_case c;
        struct hb_verdict v;
        hb_gen_case(&o, 77, i, &c);
        assert_int_equal(c.config.relation, number);
        assert_int_equal(hb_run_case(hb_adapter_emu(), &c, NULL, &v, &stats), 0);
        if (v.kind != HB_VERDICT_PASS && v.kind != HB_VERDICT_SKIP) {
            fail_msg("relation %d, case %d: %s", number, (int)i, v.text);
        }
    }
    if (stats.second_runs < LEAST) {
        fail_msg("relation %d says something about %d of %d cases", number, (int)stats.second_runs,
                 (int)N);
    }
}

#define HB_RELATION_GENERATED(number)                                                              \
    static void relation_##number##_generated(void **state) {                                      \
        (void)state;                                                                               \
        generated_are_silent(number);                                                              \
    }
#define HB_RELATION_GENERATED_UNITS(number) cmocka_unit_test(relation_##number##_generated),

#define HB_RELATION_TESTS(number)                                                                  \
    static void relation_##number##_fires(void **state) {                                          \
        (void)state;                                                                               \
        fires_in(controls, N_CONTROLS, number);                                                    \
    }                                                                                              \
    static void relation_##number##_silent(void **state) {                                         \
        (void)state;                                                                               \
        is_silent_in(controls, N_CONTROLS, number);                                                \
    }
#define HB_RELATION_UNITS(number)                                                                  \
    cmocka_unit_test(relation_##number##_fires), cmocka_unit_test(relation_##number##_silent),

#endif
