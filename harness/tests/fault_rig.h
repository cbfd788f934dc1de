/* SPDX-License-Identifier: Apache-2.0
 * Tables of histories for the executor's tests: right backends pass them, the calls that are to be
 * refused are predicted, and each check fires on a fault of its own. */
#ifndef HB_HARNESS_TESTS_FAULT_RIG_H
#define HB_HARNESS_TESTS_FAULT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "harness/tests/mischief.h"
#include "harness/tests/run_cases.h"

/* --- right backends --------------------------------------------------------------------------- */

struct right {
    const char *name;
    void (*build)(struct hb_case *c);
};
#define RIGHT(name)                                                                                \
    { #name, name }

static inline void assert_right(const struct hb_adapter *backend, const char *who,
                                const struct right *h, const struct hb_case *c) {
    struct hb_verdict v = run(backend, c, 0, 0);
    if (v.kind != HB_VERDICT_PASS) {
        fail_msg("%s, %s: %s %s: %s", h->name, who, v.check, v.place, v.text);
    }
}

static inline void assert_right_on_both(const struct right *h, const struct hb_case *c) {
    assert_right(hb_adapter_oracle(), "oracle", h, c);
    assert_right(hb_adapter_emu(), "emu", h, c);
}

/* --- predictions ------------------------------------------------------------------------------ */

/* Calls in their order: those of one kind, and all that are to be refused. */
struct calls {
    const char *always; /* "commit"; null: none */
    int32_t n;
    char name[64][16];
    int32_t rule[64];
};

static inline void note_call(void *ctx, int32_t step, const char *call,
                             const struct hb_error *want) {
    struct calls *k = ctx;
    (void)step;
    if (k->n < 64 && (want->status != HB_OK || (k->always && strcmp(call, k->always) == 0))) {
        (void)snprintf(k->name[k->n], sizeof k->name[k->n], "%s", call);
        k->rule[k->n++] = want->rule;
    }
}

static inline struct calls predicted(void (*build)(struct hb_case *c), const char *always) {
    struct calls k = {.always = always};
    struct hb_case c;
    struct hb_verdict v;
    make(build, &c);
    const struct hb_run_options o = {
        .tamper_element = -1, .predicted = note_call, .predicted_ctx = &k};
    assert_int_equal(hb_run_case(hb_adapter_oracle(), &c, &o, &v, NULL), 0);
    assert_pass(&v);
    return k;
}

/* The rules that the case breaks, in order. */
static inline void assert_rules(void (*build)(struct hb_case *c), int32_t n, const int32_t *rules) {
    const struct calls k = predicted(build, NULL);
    for (int32_t i = 0; i < k.n && i < n; i++) {
        assert_int_equal(k.rule[i], rules[i]);
    }
    assert_int_equal(k.n, n);
}
#define ASSERT_RULES(build, ...)                                                                   \
    do {                                                                                           \
        const int32_t rules[] = {__VA_ARGS__};                                                     \
        assert_rules(build, (int32_t)(sizeof rules / sizeof *rules), rules);                       \
    } while (0)

/* --- faults ----------------------------------------------------------------------------------- */

struct fault {
    int32_t number, variant; /* of the mischief */
    void (*build)(struct hb_case *c);
    const char *check, *place;
    int32_t off; /* with these off nothing is noticed; 0: the run cannot go on */
};

/* Returns what the run says. */
static inline struct hb_verdict assert_noticed(const struct fault *f) {
    struct hb_case c;
    struct mischief m;
    make(f->build, &c);
    const struct hb_adapter *wrong = mischief_init(&m, f->number, f->variant);
    const struct hb_verdict seen = run(wrong, &c, 0, 0);
    if (strcmp(seen.check, f->check) != 0 || (f->place && strcmp(seen.place, f->place) != 0)) {
        fail_msg("mischief %d, %d: %s, %s instead of %s, %s: %s", f->number, f->variant, seen.check,
                 seen.place, f->check, f->place ? f->place : "anywhere", seen.text);
    }
    if (f->off) {
        const struct hb_verdict v = run(wrong, &c, f->off, 0);
        assert_pass(&v);
    }
    return seen;
}

/* A fault with the kind of its verdict and a part of its text. */
struct told {
    struct fault fault;
    int32_t kind;
    const char *text;
};

static inline void assert_told(const struct told *t) {
    const struct hb_verdict v = assert_noticed(&t->fault);
    assert_int_equal(v.kind, t->kind);
    if (!strstr(v.text, t->text)) {
        fail_msg("'%s' does not say '%s'", v.text, t->text);
    }
}

#endif
