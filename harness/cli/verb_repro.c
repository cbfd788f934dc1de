/* SPDX-License-Identifier: Apache-2.0
 * repro: one case again, each time in a fresh process, with the full trace of the first divergence.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "harness/cli/common.h"

static void print_place(const struct hb_divergence *d) {
    const struct {
        const char *name;
        int64_t v;
    } places[] = {{"step", d->step},   {"layer", d->layer}, {"row", d->row},
                  {"token", d->token}, {"head", d->head},   {"element", d->element}};
    int n = 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (places[i].v >= 0) {
            (void)printf("%s%s %" PRId64, n++ ? ", " : "  at           ", places[i].name,
                         places[i].v);
        }
    }
    (void)printf("%s", n ? "\n" : "");
}

static void print_divergence(const struct hb_verdict *v) {
    const struct hb_divergence *d = &v->at;
    print_place(d);
    if (d->source[0]) {
        double difference = fabs(d->got - d->want);
        (void)printf("  got          %a (%.9g)\n  want         %a (%.9g)\n", d->got, d->got,
                     d->want, d->want);
        (void)printf("  difference   %.6g", difference);
        if (d->ulp > 0) {
            (void)printf(", %" PRIu64 " ulp", d->ulp);
        }
        (void)printf("\n");
        (void)printf("  bound        %.6g from %s\n", d->bound, d->source);
        if (d->bound > 0) {
            (void)printf("  error/bound  %.4g\n", difference / d->bound);
        }
    }
}

static void print_trace(const struct hb_message *m) {
    const struct hb_verdict *v = &m->verdict;
    (void)printf("  case         %s, %" PRIu64 " us\n", m->id, m->ns / 1000U);
    if (v->kind == HB_VERDICT_PASS) {
        return;
    }
    (void)printf("  check        %s\n  place        %s\n", v->check, v->place);
    if (v->kind == HB_VERDICT_STATUS) {
        (void)printf("  status       got %s, want %s\n", hb_status_name(v->got_status),
                     hb_status_name(v->want_status));
    }
    if (hb_verdict_is_finding(v->kind)) {
        print_divergence(v);
    }
    (void)printf("  text         %s\n", v->text);
}

/* Runs and prints; *first is the first run's result. */
static int repeat(const struct hb_args *args, const struct hb_supervise *s, const struct hb_case *c,
                  struct hb_message *first) {
    const char *file = args->paths[0];
    int32_t same = 0;
    for (int32_t i = 0; i < args->times; i++) {
        struct hb_error err = {.struct_size = sizeof err};
        struct hb_message m;
        int32_t status = hb_supervise_case(s->program, &s->child, file, 0, &m, &err);
        if (hb_supervise_interrupts() > 0) {
            return HB_EXIT_INTERRUPTED;
        }
        if (status != HB_OK) {
            return hb_cli_failed(status, &err);
        }
        if (i == 0) {
            char line[2048];
            *first = m;
            hb_cli_verdict_line(args, &m.verdict, c, file, line, sizeof line);
            (void)printf("%s\n", line);
            print_trace(&m);
        }
        same += m.verdict.kind == first->verdict.kind &&
                strcmp(m.verdict.fingerprint, first->verdict.fingerprint) == 0;
    }
    if (args->times > 1) {
        (void)printf("same verdict in %d of %d runs, each in a fresh process\n", (int)same,
                     (int)args->times);
    }
    return HB_EXIT_OK;
}

int hb_verb_repro(const struct hb_args *args) {
    char program[HB_PATH_CAP];
    static struct hb_supervise s;
    struct hb_error err = {.struct_size = sizeof err};
    struct hb_message first;
    struct hb_case c;
    int rc = hb_cli_setup(args, program, sizeof program, &s);
    if (rc != 0) {
        return rc;
    }
    int32_t status = hb_case_load(args->paths[0], &c, &err);
    if (status != HB_OK) {
        return hb_cli_failed(status, &err);
    }
    memset(&first, 0, sizeof first);
    rc = repeat(args, &s, &c, &first);
    if (rc != HB_EXIT_OK) {
        return rc;
    }
    if (first.verdict.kind == HB_VERDICT_SKIP) {
        return HB_EXIT_NOT_HERE;
    }
    return hb_verdict_is_finding(first.verdict.kind) ? HB_EXIT_FINDINGS : HB_EXIT_OK;
}
