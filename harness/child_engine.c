/* SPDX-License-Identifier: Apache-2.0
 * The engine's side of a child: inputs, mutation, crossover; and what happens when the process
 * dies. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/backends.h"
#include "harness/child_internal.h"
#include "harness/watch.h"
#include "kernels/emu/emu.h"

static struct hb_child engine;
static int32_t engine_target;
static uint64_t engine_inputs;
static volatile int32_t alone_operation;
static int is_caught;

/* Of the sanitizers' run-time; absent in builds without one. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static struct hb_worker_page *dying;

/* Runs inside a signal handler or a sanitizer's report: copies a name, nothing else. */
static void note_kernel(void) {
    const char *name = dying ? hb_emu_current_kernel() : NULL;
    if (name) {
        size_t i = 0;
        for (; name[i] && i + 1 < sizeof dying->kernel; i++) {
            dying->kernel[i] = name[i];
        }
        dying->kernel[i] = '\0';
        dying->kernel_line = hb_emu_barrier_line();
    }
}

static void on_fatal(int number) {
    note_kernel();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

void hb_child_catch(struct hb_child *child) {
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    dying = child->me;
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(note_kernel);
        return;
    }
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_handler = on_fatal;
        action.sa_flags = (int)(SA_NODEFER | SA_RESETHAND);
        (void)sigaction(fatal[i], &action, NULL);
    }
}

/* Without a supervisor: the engine's program run by hand. */
static int attach_alone(void) {
    const char *name = getenv("HBFUZZ_BACKEND");
    struct hb_error err = {.struct_size = sizeof err};
    const struct hb_adapter *backend = NULL;
    if (hb_backend_open(hb_backend_find(name ? name : "emu"), &backend, &err) != HB_OK) {
        (void)fprintf(stderr, "hbfuzz: %s\n", err.text);
        return -1;
    }
    engine.backend = hb_watch_adapter(backend, &alone_operation);
    engine.run.tamper_element = -1;
    return 0;
}

int hb_child_attach(int32_t target) {
    engine_target = target;
    if (!getenv("HBFUZZ_PAGE")) {
        return attach_alone();
    }
    struct hb_error err = {.struct_size = sizeof err};
    if (hb_child_open(&engine) != 0) {
        (void)fputs("hbfuzz: HBFUZZ_PAGE does not name the page of a running supervisor\n", stderr);
        return -1;
    }
    int32_t status = hb_child_backends(&engine, &err);
    if (status != HB_OK) {
        hb_child_fail(&engine, status, &err);
        return -1;
    }
    return 0;
}

/* 1 and *c if the input is the JSON form of a case, as people's seeds are. Bytes of the canonical
 * form start otherwise; other bytes that only look like JSON are taken as bytes. */
static int decode_text(const uint8_t *data, size_t size, struct hb_case *c) {
    size_t i = 0;
    while (i < size && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r')) {
        i++;
    }
    return i < size && data[i] == '{' &&
           hb_case_from_json((const char *)data, size, c, NULL) == HB_OK;
}

/* What the campaign asked for; without a supervisor only the target. */
static struct hb_gen_options asked_for(void) {
    struct hb_gen_options gen;
    if (engine.page) {
        gen = engine.page->options.gen;
    } else {
        hb_gen_options_init(&gen);
    }
    gen.target = engine_target;
    return gen;
}

/* The empty input, seeds of other targets and kinds: all become cases of what was asked for. */
static void decode(const uint8_t *data, size_t size, struct hb_case *c) {
    const struct hb_gen_options gen = asked_for();
    if (!decode_text(data, size, c)) {
        hb_case_decode(data, size, c);
    }
    hb_gen_hold(&gen, c);
}

static int input_alone(const struct hb_case *c) {
    struct hb_verdict v;
    memset(&v, 0, sizeof v);
    (void)hb_run_case(engine.backend, c, &engine.run, &v, NULL);
    if (hb_verdict_is_finding(v.kind)) {
        char line[1024];
        hb_verdict_line(&v, c, "FILE", "emu", line, sizeof line);
        (void)fprintf(stderr, "%s\n", line);
        abort();
    }
    return 0;
}

int hb_child_input(const uint8_t *data, size_t size) {
    struct hb_case c;
    decode(data, size, &c);
    if (!engine.page) {
        return input_alone(&c);
    }
    if (!is_caught) {
        /* the engine has set its own callback since; ours needs no artifact */
        hb_child_catch(&engine);
        is_caught = 1;
    }
    if (hb_child_fuzz_one(&engine, &c, engine_inputs++) != 0) {
        _exit(0); /* the engine reports a target that calls exit as a crash */
    }
    return 0;
}

/* Spreads a 32-bit seed (splitmix64's finaliser), so that neighbouring seeds share nothing. */
static uint64_t spread(uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

size_t hb_child_mutate(uint8_t *data, size_t size, size_t max_size, uint32_t seed) {
    struct hb_case c;
    uint64_t s = spread(seed);
    const struct hb_gen_options gen = asked_for();
    if (s & 1U) {
        hb_gen_case(&gen, s, 0, &c);
    } else {
        decode(data, size, &c);
        hb_mutate_case(&c, s);
        hb_gen_hold(&gen, &c);
    }
    size_t n = hb_case_encode(&c, data, max_size);
    return n ? n : size;
}

size_t hb_child_cross(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                      uint8_t *out, size_t cap, uint32_t seed) {
    const struct hb_gen_options gen = asked_for();
    struct hb_case first;
    struct hb_case second;
    decode(a, a_size, &first);
    decode(b, b_size, &second);
    hb_crossover_case(&first, &second, spread(seed));
    hb_gen_hold(&gen, &first);
    return hb_case_encode(&first, out, cap);
}
