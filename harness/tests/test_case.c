/* SPDX-License-Identifier: Apache-2.0
 * Case: field table, byte form, normal form, backend configuration. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/batch.h"
#include "harness/bytes.h"
#include "harness/case.h"
#include "harness/rng.h"

enum { N_RANDOM = 100000 };

static size_t random_bytes(struct hb_rng *r, uint8_t *data, size_t cap) {
    const size_t n = (size_t)hb_rng_below(r, (int32_t)cap + 1);
    const int32_t style = hb_rng_below(r, 3); /* all values; mostly zero; mostly small */
    for (size_t i = 0; i < n; i++) {
        const uint8_t any = (uint8_t)hb_rng_next(r);
        data[i] = style == 0 ? any : style == 1 ? (any < 32 ? any : 0) : any & 3;
    }
    static const uint8_t magic[4] = {'H', 'B', 'C', '2'};
    if (n >= sizeof magic && hb_rng_one_in(r, 2)) {
        memcpy(data, magic, sizeof magic);
    }
    return n;
}

static void fields_have_defaults_in_range(void **state) {
    (void)state;
    const struct hb_case_field *f;
    const int n = hb_case_fields(&f);
    assert_true(n > 50);
    for (int i = 0; i < n; i++) {
        assert_true(f[i].lo <= f[i].initial && f[i].initial <= f[i].hi);
        for (int j = 0; j < i; j++) {
            assert_false(f[i].group == f[j].group && strcmp(f[i].name, f[j].name) == 0);
        }
        for (int64_t v = f[i].lo; f[i].names && v <= f[i].hi; v++) {
            assert_non_null(f[i].names[v - f[i].lo]);
        }
    }
}

/* Every int32 of the structs is in the table: setting all fields to a pattern leaves no other byte.
 */
static void every_member_is_in_the_table(void **state) {
    (void)state;
    static const size_t sizes[] = {sizeof(struct hb_case_config),
                                   sizeof(struct hb_case_step) -
                                       sizeof(int32_t) * (1 + 7 * HB_MAX_ROWS),
                                   sizeof(struct hb_case_row), sizeof(struct hb_case_break)};
    size_t bytes[4] = {0};
    const struct hb_case_field *f;
    const int n = hb_case_fields(&f);
    for (int i = 0; i < n; i++) {
        bytes[f[i].group] += f[i].is_wide ? 8 : 4;
    }
    for (int g = 0; g < 4; g++) {
        assert_int_equal(bytes[g], sizes[g]);
    }
}

static void no_bytes_are_the_default_case(void **state) {
    (void)state;
    struct hb_case a;
    struct hb_case b;
    const uint8_t zeros[300] = {0};
    hb_case_init(&a);
    hb_case_decode(NULL, 0, &b);
    assert_memory_equal(&a, &b, sizeof a);
    hb_case_decode(zeros, sizeof zeros, &b);
    assert_memory_equal(&a, &b, sizeof a);
    hb_case_normalize(&b);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(a.config.n_layers, 3);
    assert_int_equal(a.config.attn_mask, 4);
    assert_int_equal(a.n_steps, 0);
}

static void bytes_after_the_case_and_the_magic_do_not_matter(void **state) {
    (void)state;
    struct hb_case a;
    struct hb_case b;
    uint8_t bytes[HB_CASE_MAX_BYTES];
    const uint8_t data[] = {'H', 'B', 'C', '3', 1, 2, 3};
    hb_case_decode(data, sizeof data, &a);
    hb_case_decode(data + 4, sizeof data - 4, &b);
    assert_memory_equal(&a, &b, sizeof a);
    const size_t n = hb_case_encode(&a, bytes, sizeof bytes);
    memset(bytes + n, 0xa5, 100);
    hb_case_decode(bytes, n + 100, &b);
    assert_memory_equal(&a, &b, sizeof a);
}

static void any_bytes_round_trip(void **state) {
    (void)state;
    struct hb_rng r = hb_rng_make(1, 1);
    uint8_t data[400];
    uint8_t first[HB_CASE_MAX_BYTES];
    uint8_t second[HB_CASE_MAX_BYTES];
    for (int i = 0; i < N_RANDOM; i++) {
        struct hb_case a;
        struct hb_case b;
        const size_t size = random_bytes(&r, data, sizeof data);
        hb_case_decode(data, size, &a);
        const size_t n = hb_case_encode(&a, first, sizeof first);
        assert_true(n > 0);
        hb_case_decode(first, n, &b);
        assert_memory_equal(&a, &b, sizeof a);
        if (i % 16 == 0) { /* equal cases, so that the same work would be done once more */
            assert_int_equal(hb_case_encode(&b, second, sizeof second), n);
            assert_memory_equal(first, second, n);
        }
        hb_case_normalize(&b);
        assert_memory_equal(&a, &b, sizeof a);
    }
}

/* Arbitrary struct bytes become a normal case, and a second pass changes nothing. */
static void normalize_is_total_and_idempotent(void **state) {
    (void)state;
    struct hb_rng r = hb_rng_make(2, 2);
    for (int i = 0; i < 20000; i++) {
        struct hb_case a;
        struct hb_case b;
        hb_case_init(&a);
        for (size_t at = 0; at + sizeof(int32_t) <= sizeof a; at += sizeof(int32_t)) {
            const int32_t word =
                hb_rng_one_in(&r, 4) ? (int32_t)hb_rng_next(&r) : hb_rng_below(&r, 300);
            if (hb_rng_one_in(&r, 2)) {
                memcpy((char *)&a + at, &word, sizeof word);
            }
        }
        hb_case_normalize(&a);
        b = a;
        hb_case_normalize(&b);
        const struct hb_case_field *f;
        const int n = hb_case_fields(&f);
        for (int k = 0; k < n; k++) {
            if (f[k].group == HB_GROUP_CONFIG) {
                const int64_t v = hb_case_field_get(&f[k], &a.config);
                assert_true(v >= f[k].lo && v <= f[k].hi);
                assert_int_equal(v, hb_case_field_get(&f[k], &b.config));
            }
        }
        assert_int_equal(a.config.heads % a.config.groups, 0);
        assert_int_equal(a.config.q_heads % a.config.kv_heads, 0);
        assert_int_equal(a.config.chunk_size & (a.config.chunk_size - 1), 0);
        assert_true(a.config.chunk_size > a.config.conv_width - 1);
        assert_memory_equal(a.step, b.step, sizeof a.step);
        assert_memory_equal(a.brk, b.brk, sizeof a.brk);
    }
}

static void normalize_keeps_what_is_consistent(void **state) {
    (void)state;
    struct hb_case a;
    hb_case_init(&a);
    a.config.heads = 6;
    a.config.groups = 3;
    a.config.page_chunks = 4;
    a.config.seed = INT32_MIN;
    a.n_steps = 3;
    a.step[0].kind = HB_STEP_TAKE;
    a.step[0].request = 5;
    a.step[0].prefix = 17;
    a.step[1].kind = HB_STEP_TAKE;
    a.step[1].slot_kind = 1;
    a.step[2].mode = HB_MODE_MIXED;
    a.step[2].n_rows = 2;
    a.step[2].n_decode = 1;
    a.step[2].row[0].request = 5;
    a.step[2].row[0].length = 32;
    a.step[2].row[0].track = 1;
    a.step[2].row[0].track_point = 1;
    a.n_breaks = 1;
    a.brk[0].step = 2;
    a.brk[0].value = INT64_MIN;
    struct hb_case b = a;
    hb_case_normalize(&b);
    assert_memory_equal(&a, &b, sizeof a);
}

static void normalize_repairs(void **state) {
    (void)state;
    struct hb_case a;
    hb_case_init(&a);
    a.config.heads = 6;
    a.config.groups = 4;
    a.config.chunk_size = 37;
    a.config.page_chunks = 3;
    a.config.n_layers = 1;
    a.config.value_class = HB_VALUES_EXACT;
    a.n_steps = 2;
    a.step[0].mode = HB_MODE_DECODE;
    a.step[0].n_rows = 1;
    a.step[0].row[0].length = 9;
    a.step[0].n_decode = 3;
    a.step[1].kind = HB_STEP_FREE;
    a.step[1].slot = 5;
    a.step[1].pad_rows = 2;
    a.n_breaks = 2;
    a.brk[0].step = 9;
    a.brk[1].field = HB_FIELD_CFG_HEADS;
    hb_case_normalize(&a);
    assert_int_equal(a.config.groups, 3);
    assert_int_equal(a.config.chunk_size, 32);
    assert_int_equal(a.config.page_chunks, 2);
    assert_int_equal(a.config.attn_mask, 0);
    assert_int_equal(a.config.conv_act, HB_CONV_NONE);
    assert_int_equal(a.config.gate_norm, HB_GATE_NORM_NONE);
    assert_int_equal(a.config.dt_softplus, 0);
    assert_int_equal(a.step[0].row[0].length, 1);
    assert_int_equal(a.step[0].n_decode, 0);
    assert_int_equal(a.step[1].slot, 0);
    assert_int_equal(a.step[1].pad_rows, 0);
    assert_int_equal(a.brk[0].step, 1);
    assert_int_equal(a.brk[1].step, -1);
}

static void work_is_limited(void **state) {
    (void)state;
    struct hb_case a;
    hb_case_init(&a);
    a.config.heads = 8;
    a.config.head_dim = 80;
    a.config.state_size = 128;
    a.config.q_heads = 8;
    a.config.attn_dim = 32;
    a.n_steps = HB_MAX_STEPS;
    for (int s = 0; s < HB_MAX_STEPS; s++) {
        a.step[s].n_rows = HB_MAX_ROWS;
        a.step[s].pad_tokens = 32;
        for (int r = 0; r < HB_MAX_ROWS; r++) {
            a.step[s].row[r].length = 200;
        }
    }
    hb_case_normalize(&a);
    int64_t tokens = 0;
    for (int s = 0; s < a.n_steps; s++) {
        tokens += a.step[s].pad_tokens;
        for (int r = 0; r < a.step[s].n_rows; r++) {
            tokens += a.step[s].row[r].length;
        }
    }
    assert_true(tokens <= HB_CASE_MAX_TOKENS);
    const struct hb_case_config *g = &a.config;
    assert_true(tokens * g->n_layers * g->heads * g->head_dim * g->state_size <= HB_CASE_MAX_WORK);
}

static void encode_refuses_a_small_buffer(void **state) {
    (void)state;
    struct hb_case a;
    uint8_t bytes[HB_CASE_MAX_BYTES];
    hb_case_init(&a);
    const size_t n = hb_case_encode(&a, bytes, sizeof bytes);
    assert_true(n > 4);
    assert_memory_equal(bytes, "HBC3", 4);
    assert_int_equal(hb_case_encode(&a, bytes, n), n);
    for (size_t cap = 0; cap < n; cap++) {
        assert_int_equal(hb_case_encode(&a, bytes, cap), 0);
    }
}

static void the_largest_case_fits(void **state) {
    (void)state;
    struct hb_case a;
    uint8_t bytes[HB_CASE_MAX_BYTES];
    hb_case_init(&a);
    a.n_steps = HB_MAX_STEPS;
    a.n_breaks = HB_MAX_BREAKS;
    for (int s = 0; s < HB_MAX_STEPS; s++) {
        a.step[s].kind = HB_STEP_ENTRY;
        a.step[s].n_rows = HB_MAX_ROWS;
    }
    hb_case_normalize(&a);
    const size_t n = hb_case_encode(&a, bytes, sizeof bytes);
    assert_true(n > 500 && n < HB_CASE_MAX_BYTES);
}

static void id_follows_the_canonical_bytes(void **state) {
    (void)state;
    struct hb_case a;
    char first[HB_CASE_ID_LEN];
    char second[HB_CASE_ID_LEN];
    hb_case_init(&a);
    hb_case_id(&a, first);
    assert_int_equal(strlen(first), 16);
    assert_int_equal(strspn(first, "0123456789abcdef"), 16);
    hb_case_id(&a, second);
    assert_string_equal(first, second);
    a.config.seed++;
    hb_case_id(&a, second);
    assert_string_not_equal(first, second);
}

static void requests_have_distinct_pool_rows(void **state) {
    (void)state;
    struct hb_case a;
    hb_case_init(&a);
    int differs = 0;
    for (int32_t seed = -50; seed < 50; seed++) {
        int seen[HB_MAX_REQS + 1] = {0};
        a.config.seed = seed;
        for (int32_t r = 0; r < HB_MAX_REQS; r++) {
            const int32_t i = hb_case_req_index(&a, r);
            assert_in_range(i, 1, HB_MAX_REQS);
            assert_false(seen[i]);
            seen[i] = 1;
            differs += i != r + 1;
        }
    }
    assert_true(differs > 400);
}

static void backend_config_of_the_default(void **state) {
    (void)state;
    struct hb_case a;
    struct hb_config g;
    hb_case_init(&a);
    hb_case_backend_config(&a, &g);
    assert_int_equal(g.struct_size, sizeof g);
    assert_int_equal(g.n_layers, 3);
    assert_int_equal(g.layer_kind[2], HB_LAYER_ATTENTION);
    assert_int_equal(g.layer_kind[0], HB_LAYER_MAMBA2);
    assert_int_equal(g.page_size, 1);
    assert_int_equal(g.norm_group, 8);
    assert_int_equal(g.n_slots, 2);
    assert_int_equal(g.req_pool_size, HB_MAX_REQS + 1);
    assert_int_equal(g.max_context, 4);
    assert_true(isinf(g.dt_hi) && g.dt_lo == 0.0f);
    a.config.spare_slots = 0;
    hb_case_backend_config(&a, &g);
    assert_int_equal(g.n_slots, 1);
}

static void backend_config_has_room(void **state) {
    (void)state;
    struct hb_case a;
    struct hb_config g;
    hb_case_init(&a);
    a.config.dt_clamp = HB_DT_CLAMP_LIMIT;
    a.config.page_chunks = 2;
    a.config.spare_slots = 3;
    a.n_steps = 4;
    a.step[0].kind = HB_STEP_TAKE;
    a.step[0].prefix = 10;
    a.step[1].kind = HB_STEP_TAKE;
    a.step[1].request = 1;
    a.step[2].kind = HB_STEP_FREE;
    a.step[2].slot = 1;
    a.step[3].n_rows = 2;
    a.step[3].row[0].length = 20;
    a.step[3].row[1].length = 5;
    a.step[3].pad_tokens = 3;
    a.step[3].pad_rows = 1;
    hb_case_normalize(&a);
    hb_case_backend_config(&a, &g);
    assert_int_equal(g.page_size, 16);
    assert_int_equal(g.n_slots, 5);
    assert_int_equal(g.max_context, 32);
    assert_true(g.max_tokens > 28 && g.max_tokens < 40);
    assert_true(g.max_batch > 3 && g.max_batch < 8);
    assert_true(g.n_kv >= 10 + 28 + 1);
    assert_true(g.dt_lo < g.dt_hi && g.dt_lo > 0.0f);
}

/* Slots are given back: the pool is as large as the most slots held at one time. */
static void freed_slots_are_reused(void **state) {
    (void)state;
    struct hb_case a;
    struct hb_config g;
    hb_case_init(&a);
    a.config.spare_slots = 0;
    a.n_steps = 3;
    a.step[0].kind = HB_STEP_TAKE;
    a.step[1].kind = HB_STEP_FREE;
    a.step[2].kind = HB_STEP_TAKE;
    hb_case_normalize(&a);
    hb_case_backend_config(&a, &g);
    assert_int_equal(g.n_slots, 1);
}

static void mode_names(void **state) {
    (void)state;
    char name[32];
    assert_int_equal(hb_case_mode_name(7, name, sizeof name), 8);
    assert_string_equal(name, "PREBUILT");
    assert_int_equal(hb_case_mode_name(7, name, 8), 0);
    assert_int_equal(hb_case_mode_name(0, name, sizeof name), 0);
    assert_int_equal(hb_case_mode_name(10, name, sizeof name), 0);
    assert_int_equal(hb_case_mode_name(INT_MIN, name, sizeof name), 0);
}

static void break_names(void **state) {
    (void)state;
    assert_string_equal(hb_break_field_name(HB_FIELD_TABLE), "req_to_slot");
    assert_null(hb_break_field_name(-1));
    assert_null(hb_break_field_name(HB_N_BREAK_FIELDS));
}

static void byte_cursors(void **state) {
    (void)state;
    uint8_t data[3];
    struct hb_byte_writer w = {data, sizeof data, 0, 0};
    hb_bytes_put(&w, 0x1234, 2);
    assert_false(w.is_full);
    hb_bytes_put(&w, 0, 2);
    assert_true(w.is_full);
    struct hb_byte_reader r = {data, 2, 0};
    assert_int_equal(hb_bytes_get(&r, 1), 0x34);
    assert_int_equal(hb_bytes_get(&r, 4), 0x12);
    assert_int_equal(hb_bytes_get(&r, 8), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_have_defaults_in_range),
        cmocka_unit_test(every_member_is_in_the_table),
        cmocka_unit_test(no_bytes_are_the_default_case),
        cmocka_unit_test(bytes_after_the_case_and_the_magic_do_not_matter),
        cmocka_unit_test(any_bytes_round_trip),
        cmocka_unit_test(normalize_is_total_and_idempotent),
        cmocka_unit_test(normalize_keeps_what_is_consistent),
        cmocka_unit_test(normalize_repairs),
        cmocka_unit_test(work_is_limited),
        cmocka_unit_test(encode_refuses_a_small_buffer),
        cmocka_unit_test(the_largest_case_fits),
        cmocka_unit_test(id_follows_the_canonical_bytes),
        cmocka_unit_test(requests_have_distinct_pool_rows),
        cmocka_unit_test(backend_config_of_the_default),
        cmocka_unit_test(backend_config_has_room),
        cmocka_unit_test(freed_slots_are_reused),
        cmocka_unit_test(mode_names),
        cmocka_unit_test(break_names),
        cmocka_unit_test(byte_cursors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
