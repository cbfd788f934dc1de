/* SPDX-License-Identifier: Apache-2.0
 * Relations over the kinds of linear layers: none is broken by a right backend, and each says
 * something of every kind but those listed here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "harness/run.h"
#include "harness/tests/kind_cases.h"

/* Relations that say nothing of a kind, and why. */
#define MIXER(name) (1u << HB_MIXER_##name)
static const struct {
    int32_t number;
    uint32_t mixers;
} silent[] = {
    {60, (1u << HB_N_MIXERS) - 1 - MIXER(MAMBA2)}, /* the replay ring is of Mamba2's scan */
    {64, MIXER(SHORT_CONV)},                       /* no step and no state */
    {65, MIXER(SHORT_CONV)},                       /* no state */
    {66, MIXER(SHORT_CONV) | MIXER(MAMBA1)},       /* no groups */
};

static int is_silent(int32_t number, int32_t mixer) {
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        if (silent[i].number == number) {
            return (silent[i].mixers >> mixer & 1) != 0;
        }
    }
    return 0;
}

_Static_assert(N_HISTORIES <= 64, "a bit each");

/* The k-th case of a relation and a mixer. */
static void run_history(const struct hb_adapter *backend, int32_t number, int32_t mixer, int32_t k,
                        struct hb_run_stats *stats) {
    struct hb_rng g = hb_rng_make((uint64_t)(k + 1000 * mixer), 0x72656c6bu + (uint32_t)number);
    struct hb_case c;
    struct hb_verdict v;
    hand_init(&c);
    draw_variants(&g, &c.config);
    histories[k % N_HISTORIES](&c);
    c.config.mixer = mixer;
    c.config.relation = number;
    c.config.relation_arg = hb_rng_below(&g, 8);
    hb_case_normalize(&c);
    assert_int_equal(hb_run_case(backend, &c, NULL, &v, stats), 0);
    if (v.kind != HB_VERDICT_PASS) {
        fail_msg("relation %d mixer %d case %d: %s %s: %s", number, mixer, k, v.check, v.place,
                 v.text);
    }
}

/* Second runs that a relation had in cases of a mixer: each history once, until it has had enough.
 * Histories in which it had none in the mixers before are tried where the others gave none. */
static uint64_t run_relation(const struct hb_adapter *backend, int32_t number, int32_t mixer,
                             uint64_t enough, uint64_t *mute) {
    struct hb_run_stats stats = {0};
    const int32_t first = number * 7 + mixer * 5; /* any */
    const uint64_t before = *mute;
    for (int32_t i = 0; i < 2 * N_HISTORIES && stats.second_runs < enough; i++) {
        if (i == N_HISTORIES && stats.second_runs > 0) {
            break;
        }
        const int32_t k = first + i % N_HISTORIES;
        const uint64_t bit = UINT64_C(1) << k % N_HISTORIES;
        if (((before & bit) != 0) == (i >= N_HISTORIES)) {
            const uint64_t n = stats.second_runs;
            run_history(backend, number, mixer, k, &stats);
            *mute = stats.second_runs == n ? *mute | bit : *mute & ~bit;
        }
    }
    return stats.second_runs;
}

static void pass_all(const struct hb_adapter *backend, uint64_t enough) {
    const struct hb_relation *list;
    const int n = hb_relations(&list);
    for (int i = 0; i < n; i++) {
        uint64_t mute = 0;
        for (int32_t mixer = 0; mixer < HB_N_MIXERS && !list[i].always; mixer++) {
            const uint64_t runs = run_relation(backend, list[i].number, mixer, enough, &mute);
            if ((runs == 0) != is_silent(list[i].number, mixer)) {
                fail_msg("relation %d said something of %d cases of mixer %d", list[i].number,
                         (int)runs, mixer);
            }
        }
    }
}

static void every_relation_holds_in_every_kind_on_the_emulator(void **state) {
    (void)state;
    pass_all(hb_adapter_emu(), 4);
}

static void every_relation_holds_in_every_kind_on_the_oracle(void **state) {
    (void)state;
    pass_all(hb_adapter_oracle(), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_relation_holds_in_every_kind_on_the_emulator),
        cmocka_unit_test(every_relation_holds_in_every_kind_on_the_oracle),
    };
    return cmocka_run_group_tests_name("relations_kinds", tests, NULL, NULL);
}
