/* SPDX-License-Identifier: Apache-2.0
 * The figures of a campaign as text. */
#include "harness/cli/common.h"
#include "harness/coverage.h"

enum { LEAST_CASES_TO_JUDGE = 1000 };

static double share(uint64_t part, uint64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

static double per_case(uint64_t n, const struct hb_run_stats *s) {
    return s->cases ? (double)n / (double)s->cases : 0.0;
}

static void print_phases(const struct hb_supervise_result *r) {
    const struct hb_run_stats *s = &r->stats;
    uint64_t sum = 0;
    for (int32_t i = 0; i <= HB_PHASE_OTHER; i++) {
        sum += s->time_ns[i];
    }
    (void)printf("per case (median): %llu forwards, %llu tokens, %llu kernels\n",
                 (unsigned long long)r->median[HB_PER_CASE_FORWARDS],
                 (unsigned long long)r->median[HB_PER_CASE_TOKENS],
                 (unsigned long long)r->median[HB_PER_CASE_LAUNCHES]);
    (void)printf("per case (mean): %.1f forwards, %.1f tokens, %.1f calls, %.1f kernels, %.0f "
                 "bytes compared exactly\n",
                 per_case(s->forwards, s), per_case(s->tokens, s), per_case(s->calls, s),
                 per_case(s->launches, s), per_case(s->exact_bytes, s));
    (void)printf("time:");
    for (int32_t i = 0; i <= HB_PHASE_OTHER; i++) {
        (void)printf(" %s %.1f %% (%.0f us/case)%s", hb_phase_name(i), share(s->time_ns[i], sum),
                     per_case(s->time_ns[i], s) * 1e-3, i < HB_PHASE_OTHER ? "," : "\n");
    }
}

static void print_pair(const struct hb_run_stats *s) {
    if (s->pair_cases) {
        (void)printf("two backends: %llu cases, %llu elements, %.3f %% bit-equal, largest "
                     "difference %.3g of B1 + B2\n",
                     (unsigned long long)s->pair_cases, (unsigned long long)s->pair_elements,
                     share(s->pair_bit_equal, s->pair_elements), s->pair_max_ratio);
    }
}

static void print_op(const struct hb_run_stats *s, int32_t op, int32_t form, int32_t t) {
    if (s->elements[op][form][t]) {
        (void)printf("%-15s %-4s %s  error/bound median %.3g, largest %.3g; %llu elements, "
                     "vacuous %.3f %%\n",
                     hb_op_name(op), hb_form_name(form), hb_dtype_name(t),
                     hb_run_stats_median(s, op, form, t), s->max_ratio[op][form][t],
                     (unsigned long long)s->elements[op][form][t],
                     share(s->vacuous[op][form][t], s->elements[op][form][t]));
    }
}

static void count_bounds(const struct hb_run_stats *s, uint64_t *elements, uint64_t *vacuous) {
    *elements = 0;
    *vacuous = 0;
    for (int op = 0; op < HB_N_OPS; op++) {
        for (int form = 0; form < HB_N_FORMS; form++) {
            for (int t = 0; t < HB_N_FLOAT_DTYPES; t++) {
                *elements += s->elements[op][form][t];
                *vacuous += s->vacuous[op][form][t];
            }
        }
    }
}

void hb_cli_print_stats(const struct hb_supervise_result *r, int32_t with_stats) {
    const struct hb_run_stats *s = &r->stats;
    print_pair(s);
    if (with_stats && s->cases) {
        (void)printf("forwards %llu, tokens %llu, kernels launched %llu; relations said something "
                     "about %llu cases\n",
                     (unsigned long long)s->forwards, (unsigned long long)s->tokens,
                     (unsigned long long)s->launches, (unsigned long long)s->second_runs);
        print_phases(r);
    }
    for (int32_t op = 0; op < HB_N_OPS; op++) {
        for (int32_t form = 0; form < HB_N_FORMS; form++) {
            for (int32_t t = 0; t < HB_N_FLOAT_DTYPES; t++) {
                print_op(s, op, form, t);
            }
        }
    }
    uint64_t elements;
    uint64_t vacuous;
    count_bounds(s, &elements, &vacuous);
    if (elements) {
        (void)printf("bounds: %llu elements, vacuous %.3f %%\n", (unsigned long long)elements, share(vacuous, elements));
    }
}

static void print_missing(FILE *f, const struct hb_run_stats *s) {
    static const char *const what[] = {"not reached", "broken, never kept", "kept, never broken"};
    const int32_t *list;
    int n = hb_rule_list(&list);
    for (int i = 0; i < n; i++) {
        const char *why = hb_coverage_unreachable(list[i]);
        const int32_t covered = hb_coverage_rule(s, list[i]);
        if (why) {
            (void)fprintf(f, "  rule %d %s: no case can break it: %s\n", list[i],
                          hb_rule_name(list[i]), why);
        } else if (covered != HB_COVERED_BOTH) {
            (void)fprintf(f, "  rule %d %s: %s\n", list[i], hb_rule_name(list[i]), what[covered]);
        }
    }
    n = hb_coverage_statuses(&list);
    for (int i = 0; i < n; i++) {
        if (!s->status_seen[(uint32_t)list[i] & 31]) {
            (void)fprintf(f, "  status %s: not seen\n", hb_status_name(list[i]));
        }
    }
}

void hb_cli_print_coverage(FILE *f, const struct hb_run_stats *s, int32_t verbose) {
    struct hb_coverage c;
    hb_coverage_of(s, &c);
    if (verbose) {
        print_missing(f, s);
    }
    (void)fprintf(f, "rules hit both ways: %d of %d\nstatuses seen: %d of %d\n", c.rules_both,
                  c.rules, c.statuses_seen, c.statuses);
}

int hb_cli_is_vacuous(const struct hb_run_stats *s) {
    uint64_t elements;
    uint64_t vacuous;
    count_bounds(s, &elements, &vacuous);
    return s->cases >= LEAST_CASES_TO_JUDGE && share(vacuous, elements) > 1.0;
}
