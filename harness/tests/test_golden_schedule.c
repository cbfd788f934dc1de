/* SPDX-License-Identifier: Apache-2.0
 * Schedules of the golden check: every token once and in order, every stored state met, legal rows,
 * and variety. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "backend/batch.h"
#include "harness/golden_internal.h"

#define GOLDEN HB_SOURCE_DIR "/golden"

enum { SEEDS = 200, MAX_SEQ = 8 };

static void import(const char *name, struct hb_golden_problem *p) {
    struct hb_error err = {.struct_size = sizeof err};
    cJSON *manifest = NULL;
    memset(p, 0, sizeof *p);
    assert_int_equal(hb_golden_manifest(GOLDEN, &manifest, &err), HB_OK);
    const cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(manifest, "cases")) {
        if (strcmp(cJSON_GetObjectItemCaseSensitive(entry, "name")->valuestring, name) == 0) {
            assert_int_equal(hb_golden_import(GOLDEN, entry, 0, p, &err), HB_OK);
        }
    }
    cJSON_Delete(manifest);
    assert_true(p->n_seq > 0 && p->n_seq <= MAX_SEQ);
}

static struct hb_golden_schedule make(const struct hb_golden_problem *p, int32_t kind,
                                      uint64_t seed) {
    struct hb_golden_schedule s;
    struct hb_error err = {.struct_size = sizeof err};
    assert_int_equal(hb_golden_schedule_make(p, kind, seed, &s, &err), HB_OK);
    return s;
}

/* One row against the rules of forward-batch.md and tracking.md; met: stored states met so far. */
static void check_row(const struct hb_golden_problem *p, const struct hb_golden_schedule *s,
                      int32_t mode, const struct hb_golden_row *row, int32_t *pos, int32_t *met) {
    const int32_t before = pos[row->seq];
    assert_true(row->n >= 1);
    pos[row->seq] += row->n;
    assert_true(pos[row->seq] <= p->len[row->seq]);
    if (row->decode) {
        assert_true(row->n == 1 && p->base + before > 0 && mode != HB_MODE_EXTEND);
        assert_true(row->track == 0 || (mode == HB_MODE_DECODE && row->track == pos[row->seq]));
    } else if (row->track > 0) {
        assert_true(row->track <= pos[row->seq] && row->track - before >= s->chunk_size);
        assert_int_equal((row->track - before) % s->chunk_size, 0);
    }
    for (int32_t i = 0; i < p->n_states; i++) {
        const struct hb_golden_state *st = &p->state[i];
        met[i] += st->seq == row->seq && (st->after == pos[row->seq] || st->after == row->track);
    }
}

static void check_schedule(const struct hb_golden_problem *p, const struct hb_golden_schedule *s,
                           int32_t all_states) {
    int32_t pos[MAX_SEQ] = {0};
    int32_t met[64] = {0};
    int32_t row = 0;
    for (int32_t f = 0; f < s->n_forwards; f++) {
        const struct hb_golden_forward *forward = &s->forward[f];
        int32_t used[MAX_SEQ] = {0};
        int32_t n_decode = 0;
        assert_int_equal(forward->first_row, row);
        assert_true(forward->n_rows >= 1 && forward->pad_rows >= 0 &&
                    forward->pad_tokens >= forward->pad_rows);
        for (int32_t i = 0; i < forward->n_rows; i++, row++) {
            assert_int_equal(used[s->row[row].seq]++, 0); /* a sequence is one row of a batch */
            assert_true(s->row[row].decode ||
                        n_decode == 0); /* decode rows stand behind the others */
            n_decode += s->row[row].decode;
            check_row(p, s, forward->mode, &s->row[row], pos, met);
        }
        assert_true(forward->mode != HB_MODE_DECODE || n_decode == forward->n_rows);
        assert_true(forward->mode == HB_MODE_DECODE || n_decode < forward->n_rows);
    }
    assert_int_equal(row, s->n_rows);
    for (int32_t i = 0; i < p->n_seq; i++) {
        assert_int_equal(pos[i], p->len[i]);
    }
    for (int32_t i = 0; i < p->n_states && all_states; i++) {
        assert_true(met[i] > 0);
    }
}

static void whole_requests_are_one_extend(void **state) {
    (void)state;
    struct hb_golden_problem p;
    import("mamba2_varlen_chunk64", &p);
    struct hb_golden_schedule s = make(&p, HB_GOLDEN_WHOLE, 0);
    check_schedule(&p, &s, 1);
    assert_int_equal(s.n_forwards, 1);
    assert_int_equal(s.forward[0].mode, HB_MODE_EXTEND);
    assert_int_equal(s.forward[0].n_rows, 6);
    hb_golden_schedule_free(&s);
    hb_golden_problem_free(&p);
}

/* [[5, 1, 1], [1, 1], [33], [3, 4, 1]] */
static void segments_run_together_and_single_continuations_decode(void **state) {
    (void)state;
    struct hb_golden_problem p;
    import("mamba2_mixed_prefill_decode", &p);
    struct hb_golden_schedule s = make(&p, HB_GOLDEN_SEGMENTS, 0);
    check_schedule(&p, &s, 1);
    static const int32_t mode[3] = {HB_MODE_EXTEND, HB_MODE_MIXED, HB_MODE_DECODE};
    static const struct hb_golden_row rows[9] = {{0, 5, 0, 0}, {1, 1, 0, 0}, {2, 33, 0, 0},
                                                 {3, 3, 0, 0}, {3, 4, 0, 0}, {0, 1, 1, 0},
                                                 {1, 1, 1, 0}, {0, 1, 1, 0}, {3, 1, 1, 0}};
    assert_int_equal(s.n_forwards, 3);
    assert_int_equal(s.n_rows, 9);
    assert_memory_equal(s.row, rows, sizeof rows);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(s.forward[i].mode, mode[i]);
    }
    hb_golden_schedule_free(&s);
    hb_golden_problem_free(&p);
}

static void random_schedules_are_legal_and_meet_every_stored_state(void **state) {
    (void)state;
    static const char *const names[] = {"mamba2_varlen_chunk64",
                                        "mamba2_mixed_prefill_decode",
                                        "mamba2_segments_g2",
                                        "ssd_g2_D_bias_T128",
                                        "conv_w4_silu",
                                        "gated_rms_norm_a",
                                        "gdn_qwen3next_segments",
                                        "kda_core_varlen",
                                        "lightning_minimax_segments"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct hb_golden_problem p;
        import(names[k], &p);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct hb_golden_schedule s = make(&p, HB_GOLDEN_RANDOM, seed);
            check_schedule(&p, &s, 1);
            hb_golden_schedule_free(&s);
        }
        hb_golden_problem_free(&p);
    }
}

/* What the random schedules are for occurs among them. */
static void random_schedules_have_variety(void **state) {
    (void)state;
    int32_t modes[10] = {0};
    int32_t m2 = 0;
    int32_t padded = 0;
    int32_t inner_track = 0;
    int32_t end_track = 0;
    int32_t decode_track = 0;
    int32_t permuted = 0;
    int32_t crossing = 0;
    int32_t forms[HB_N_STATE_LAYOUTS][HB_N_CONV_STATE_LENS] = {{0}};
    struct hb_golden_problem p;
    import("mamba2_segments_g2", &p);
    struct hb_golden_problem many;
    import("mamba2_varlen_chunk64", &many);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const struct hb_golden_problem *one = seed % 2 ? &p : &many;
        struct hb_golden_schedule s = make(one, HB_GOLDEN_RANDOM, seed);
        int32_t pos[MAX_SEQ] = {0};
        for (int32_t f = 0; f < s.n_forwards; f++) {
            modes[s.forward[f].mode]++;
            padded += s.forward[f].pad_rows > 0;
            m2 += s.forward[f].mode == HB_MODE_MIXED &&
                  s.row[s.forward[f].first_row + s.forward[f].n_rows - 1].decode;
        }
        for (int32_t i = 0; i < s.n_rows; i++) {
            const struct hb_golden_row *row = &s.row[i];
            crossing += pos[row->seq] / s.chunk_size != (pos[row->seq] + row->n - 1) / s.chunk_size;
            pos[row->seq] += row->n;
            inner_track += row->track > 0 && row->track < pos[row->seq];
            end_track += row->track > 0 && !row->decode && row->track == pos[row->seq];
            decode_track += row->track > 0 && row->decode;
        }
        permuted += one == &many && s.order[0] != 0;
        forms[s.state_layout][s.conv_state_len]++;
        hb_golden_schedule_free(&s);
    }
    assert_true(modes[HB_MODE_EXTEND] > 50 && modes[HB_MODE_DECODE] > 50 &&
                modes[HB_MODE_MIXED] > 50);
    assert_true(m2 > 20 && padded > 20 && permuted > 20 && crossing > 50);
    for (int i = 0; i < 4; i++) {
        assert_true(forms[i / 2][i % 2] > 20);
    }
    assert_true(inner_track > 20 && end_track > 20 && decode_track > 20);
    hb_golden_problem_free(&p);
    hb_golden_problem_free(&many);
}

static void a_seed_names_its_schedule(void **state) {
    (void)state;
    struct hb_golden_problem p;
    import("mamba2_varlen_chunk64", &p);
    struct hb_golden_schedule a = make(&p, HB_GOLDEN_RANDOM, 5);
    struct hb_golden_schedule b = make(&p, HB_GOLDEN_RANDOM, 5);
    struct hb_golden_schedule c = make(&p, HB_GOLDEN_RANDOM, 6);
    assert_int_equal(a.n_rows, b.n_rows);
    assert_memory_equal(a.row, b.row, (size_t)a.n_rows * sizeof *a.row);
    assert_true(a.n_rows != c.n_rows ||
                memcmp(a.row, c.row, (size_t)a.n_rows * sizeof *a.row) != 0);
    hb_golden_schedule_free(&a);
    hb_golden_schedule_free(&b);
    hb_golden_schedule_free(&c);
    hb_golden_problem_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_requests_are_one_extend),
        cmocka_unit_test(segments_run_together_and_single_continuations_decode),
        cmocka_unit_test(random_schedules_are_legal_and_meet_every_stored_state),
        cmocka_unit_test(random_schedules_have_variety),
        cmocka_unit_test(a_seed_names_its_schedule),
    };
    return cmocka_run_group_tests_name("golden_schedule", tests, NULL, NULL);
}
