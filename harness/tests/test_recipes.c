/* SPDX-License-Identifier: Apache-2.0
 * Generation against the executor: valid cases break no rule, each recipe breaks the rule it names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "harness/gen_history.h"
#include "harness/run.h"

enum { N_CASES = 300, N_APPLIED = 4, N_TRIES = 600, MAX_RECIPES = 256 };

static const int32_t targets[] = {HB_TARGET_FORWARD, HB_TARGET_GRAPH, HB_TARGET_SLOTS,
                                  HB_TARGET_VERIFY,  HB_TARGET_TRACK, HB_TARGET_ATTENTION};
enum { N_TARGETS = sizeof targets / sizeof targets[0] };

/* Statuses only: what is predicted here is the rule, and that the backend agrees. */
static void run(const struct hb_case *c, struct hb_run_stats *stats) {
    const struct hb_run_options o = {.tamper_element = -1, .status_only = 1};
    struct hb_verdict v;
    memset(stats, 0, sizeof *stats);
    assert_int_equal(hb_run_case(hb_adapter_oracle(), c, &o, &v, stats), 0);
    if (v.kind != HB_VERDICT_PASS) {
        char *text = hb_case_to_json(c, NULL);
        print_error("%s\n", text);
        free(text);
        fail_msg("%s", v.text);
    }
}

/* Entry calls may be refused in any class: a wrong entry is a legal step of a history. */
static int is_entry_rule(int32_t rule) {
    return rule == HB_RULE_ENTRY_REFUSED || rule == HB_RULE_SHORT_CONV_DECODE ||
           rule == HB_RULE_SHORT_CONV_EXTEND || rule == HB_RULE_HANDLE_NULL ||
           rule == HB_RULE_NO_METADATA || rule == HB_RULE_LAYER_RANGE || rule == HB_RULE_IO_NULL;
}

static void valid_cases_break_no_rule(void **state) {
    (void)state;
    static struct hb_run_stats stats;
    struct hb_gen_options o;
    hb_gen_options_init(&o);
    for (uint64_t i = 0; i < N_CASES; i++) {
        struct hb_case c;
        o.target = targets[i % N_TARGETS];
        o.gen_class = i & 1 ? HB_GEN_VALID : HB_GEN_NEAR;
        hb_gen_case(&o, 21, i, &c);
        run(&c, &stats);
        for (int32_t rule = 1; rule < 256; rule++) {
            if (stats.rule_broken[rule] && !is_entry_rule(rule)) {
                fail_msg("case %d breaks rule %s", (int)i, hb_rule_name(rule));
            }
        }
    }
}

/* A case whose history is bent towards the recipe's needs, as class BROKEN makes it. */
static int make(int recipe, uint64_t index, struct hb_case *c) {
    struct hb_rng r = hb_rng_make((uint64_t)recipe, index);
    struct hb_gen_options o;
    hb_gen_options_init(&o);
    o.target = targets[index % N_TARGETS];
    o.gen_class = index & 1 ? HB_GEN_VALID : HB_GEN_NEAR;
    hb_gen_case(&o, 22 + (uint64_t)recipe, index, c);
    const int ok = hb_recipe_apply(c, recipe, &r);
    hb_case_normalize(c);
    return ok;
}

static void each_recipe_breaks_its_rule_first(void **state) {
    (void)state;
    static struct hb_run_stats stats;
    struct hb_recipe_info info[MAX_RECIPES];
    const int n = hb_recipes(info, MAX_RECIPES);
    for (int k = 0; k < n; k++) {
        int applied = 0;
        for (uint64_t i = 0; i < N_TRIES && applied < N_APPLIED && !info[k].unreachable; i++) {
            struct hb_case c;
            if (!make(k, i, &c)) {
                continue;
            }
            applied++;
            run(&c, &stats);
            if (!stats.rule_broken[info[k].rule]) {
                char *text = hb_case_to_json(&c, NULL);
                print_error("%s\n", text);
                free(text);
                fail_msg("the recipe for %s does not break it", hb_rule_name(info[k].rule));
            }
        }
        if (!info[k].unreachable && applied == 0) {
            fail_msg("the recipe for %s is never applied", hb_rule_name(info[k].rule));
        }
    }
}

static void class_broken_breaks_something(void **state) {
    (void)state;
    static struct hb_run_stats stats;
    struct hb_gen_options o;
    int seen[256] = {0};
    int rules = 0;
    hb_gen_options_init(&o);
    for (uint64_t i = 0; i < 4ull * N_CASES; i++) {
        struct hb_case c;
        int any = 0;
        o.target = targets[i % N_TARGETS];
        o.gen_class = i & 3 ? HB_GEN_BROKEN : HB_GEN_SEVERAL;
        hb_gen_case(&o, 23, i, &c);
        run(&c, &stats);
        for (int32_t rule = 1; rule < 256; rule++) {
            any |= stats.rule_broken[rule] > 0;
            rules += stats.rule_broken[rule] > 0 && !seen[rule]++;
        }
        if (!any) {
            char *text = hb_case_to_json(&c, NULL);
            print_error("%s\n", text);
            free(text);
            fail_msg("case %d breaks nothing", (int)i);
        }
    }
    print_message("%d rules broken\n", rules);
    assert_true(rules > 110);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_cases_break_no_rule),
        cmocka_unit_test(each_recipe_breaks_its_rule_first),
        cmocka_unit_test(class_broken_breaks_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
