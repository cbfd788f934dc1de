/* SPDX-License-Identifier: Apache-2.0
 * Generation, recipes, mutation, crossover. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "backend/adapter.h"
#include "harness/gen_history.h"

enum { N_CASES = 3000, MAX_RECIPES = 256 };

static struct hb_gen_options options(int32_t gen_class, int32_t size) {
    struct hb_gen_options o;
    hb_gen_options_init(&o);
    o.gen_class = gen_class;
    o.size = size;
    return o;
}

static int is_normal(const struct hb_case *c) {
    struct hb_case again;
    memcpy(&again, c, sizeof again);
    hb_case_normalize(&again);
    return memcmp(c, &again, sizeof again) == 0;
}

static int32_t step_tokens(const struct hb_case_step *s) {
    int32_t n = 0;
    for (int32_t r = 0; r < s->n_rows; r++) {
        n += s->row[r].length;
    }
    return n;
}

/* --- the rules of a legal history, written down apart from the builder
 * ------------------------------------------ */

/* The row's track slot exists and was not given to the prefix cache. */
static void check_track(const struct hb_case *c, const struct hb_history *h,
                        const struct hb_case_step *s, int32_t r) {
    assert_true(hb_history_track_id(h, s, r) > 0);
    if (c->config.ping_pong == HB_PING_PONG_OFF) {
        const struct hb_taken *t = &h->take[h->track[s->row[r].track_slot]];
        assert_true(s->row[r].track_slot < h->n_tracks);
        assert_false(t->is_free || t->is_tree);
    }
}

static void check_row(const struct hb_case *c, const struct hb_history *h,
                      const struct hb_case_step *s, int32_t r) {
    const struct hb_case_row *row = &s->row[r];
    assert_true(hb_history_is_live(h, row->request));
    const int32_t is_native_decode = s->mode == HB_MODE_DECODE || r >= s->n_rows - s->n_decode;
    for (int32_t k = 0; k < r; k++) {
        assert_int_not_equal(s->row[k].request, row->request);
        assert_false(row->track && s->row[k].track &&
                     hb_history_track_id(h, s, r) == hb_history_track_id(h, s, k));
    }
    /* a prefill starts from what is folded */
    assert_true(s->mode == HB_MODE_DECODE || s->mode == HB_MODE_IDLE ||
                hb_history_cursor(h, row->request) == 0);
    if (row->track) {
        assert_true(s->mode == HB_MODE_DECODE || !is_native_decode);
        check_track(c, h, s, r);
        if (s->mode != HB_MODE_DECODE) {
            const int32_t pages = c->config.page_chunks;
            const int32_t cc = c->config.chunk_size * (pages > 1 ? pages : 1);
            assert_true(row->length >= cc);
            assert_true(row->track_point * cc <= row->length);
        }
    }
}

static void check_verify_row(const struct hb_case *c, const struct hb_history *h,
                             const struct hb_case_step *s, int32_t r) {
    const struct hb_case_row *row = &s->row[r];
    assert_true(hb_history_is_live(h, row->request));
    assert_true(hb_history_position(h, row->request) > 0);
    const int has_ring = hb_case_ring_has_mode(c, HB_MODE_TARGET_VERIFY);
    assert_true(has_ring || hb_history_cursor(h, row->request) == 0);
    assert_true(!has_ring || s->tree == HB_TREE_CHAIN);
    assert_true(s->tree == HB_TREE_CHAIN || c->config.window_layout == HB_WINDOWS_DENSE);
    assert_true(row->length <= c->config.max_draft && row->length <= hb_case_draft(s));
    assert_true(s->ragged || row->length == hb_case_draft(s));
    for (int32_t k = 0; k < r; k++) {
        assert_int_not_equal(s->row[k].request, row->request);
    }
}

static void check_commit(const struct hb_case *c, const struct hb_history *h,
                         const struct hb_case_step *s) {
    const struct hb_drafted *d = &h->drafted;
    assert_true(d->is_valid && s->n_rows <= d->batch_size);
    for (int32_t r = 0; r < s->n_rows && r < d->n_rows; r++) {
        const struct hb_case_row *row = &s->row[r];
        assert_true(row->accept < d->nodes[r]);
        assert_false(h->take[d->take[r]].is_free);
        if (row->track) {
            assert_true(row->track_accept < d->nodes[r]);
            assert_true(c->config.ping_pong != HB_PING_PONG_OFF || row->track_slot < h->n_tracks);
        }
        for (int32_t k = 0; k < r; k++) {
            assert_false(row->track && s->row[k].track && c->config.ping_pong == HB_PING_PONG_OFF &&
                         s->row[k].track_slot == row->track_slot);
        }
    }
}

static void check_slot_op(const struct hb_case *c, const struct hb_history *h,
                          const struct hb_case_step *s) {
    const int has_own = c->config.ping_pong != HB_PING_PONG_OFF;
    const struct hb_taken *t = &h->take[s->slot];
    assert_true(s->slot < h->n_takes);
    assert_false(t->is_free);
    if (s->kind == HB_STEP_FREE && s->slot2 >= 0) {
        assert_true(s->slot2 < h->n_takes && s->slot2 != s->slot && !h->take[s->slot2].is_free);
    } else if (s->kind == HB_STEP_COPY) {
        assert_true(s->slot2 < h->n_takes && s->slot != s->slot2);
        assert_false(h->take[s->slot2].is_free || h->take[s->slot2].is_tree);
        assert_true(t->is_known && t->cursor == 0);
    } else if (s->kind == HB_STEP_PUBLISH) {
        assert_true(has_own ? hb_ping_pong_newest(&h->ping_pong[t->request]) > 0
                            : t->is_track && t->is_known && !t->is_tree);
    } else if (s->kind == HB_STEP_MOVE) {
        assert_true(c->config.virtual_ids > 0 && h->n_free > 0);
    }
}

static void check_graph_step(const struct hb_case *c, const struct hb_history *h,
                             const struct hb_case_step *s) {
    if (s->kind == HB_STEP_GRAPH_INIT) {
        assert_int_equal(h->graph_rows, 0);
        assert_in_range(s->bs, 1, c->config.graph_rows);
        assert_in_range(s->nodes, 1, c->config.graph_draft);
        return;
    }
    assert_in_range(s->bs, 1, h->graph_rows);
    assert_false(h->captured[s->bs].is_captured);
    const int is_verify = s->mode == HB_MODE_TARGET_VERIFY;
    assert_true(is_verify || s->mode == HB_MODE_DECODE || s->mode == HB_MODE_IDLE);
    assert_true(!is_verify || (s->nodes == h->graph_draft && s->nodes <= c->config.max_draft));
    assert_true(c->config.window_layout == HB_WINDOWS_DENSE || !(s->optional & 128));
    const int32_t mamba = ((1 << c->config.n_layers) - 1) & ~c->config.attn_mask;
    assert_true(!hb_case_ring_has_mode(c, s->mode) || !(s->layer_mask & mamba));
    assert_true(!is_verify || !(s->optional & 128) || !hb_case_ring_has_mode(c, s->mode));
}

static void check_replay(const struct hb_history *h, const struct hb_case_step *s) {
    const struct hb_captured *cap = &h->captured[s->n_rows + s->pad_rows];
    assert_in_range(s->n_rows + s->pad_rows, 1, h->graph_rows);
    assert_true(cap->is_captured && cap->mode == s->mode && !s->ragged);
    assert_true(s->mode != HB_MODE_TARGET_VERIFY || (hb_case_draft(s) == h->graph_draft &&
                                                     (s->tree != HB_TREE_CHAIN) == cap->has_links));
    const int is_counted = (s->optional & 64) && s->mode != HB_MODE_IDLE;
    assert_true(!is_counted || (s->optional & 32) || s->pad_rows == 0);
    for (int32_t r = 0; r < s->n_rows && is_counted && (s->optional & 32); r++) {
        assert_true(hb_history_seq_len(h, s, r) > 1);
    }
    assert_int_equal(s->pad_tokens, 0);
}

static void check_step(const struct hb_case *c, const struct hb_history *h,
                       const struct hb_case_step *s) {
    if (s->kind == HB_STEP_FORWARD && s->replay) {
        check_replay(h, s);
    }
    if (s->kind == HB_STEP_TAKE) {
        assert_true(h->n_free > 0);
        if (s->from >= 0) {
            assert_true(s->from < h->n_tracks);
            assert_true(h->take[h->track[s->from]].is_known);
            assert_false(h->take[h->track[s->from]].is_free);
        }
    } else if (s->kind == HB_STEP_FREE || s->kind == HB_STEP_COPY || s->kind == HB_STEP_PUBLISH ||
               s->kind == HB_STEP_MOVE) {
        check_slot_op(c, h, s);
    } else if (s->kind == HB_STEP_GRAPH_INIT || s->kind == HB_STEP_CAPTURE) {
        check_graph_step(c, h, s);
    } else if (s->kind == HB_STEP_COMMIT) {
        check_commit(c, h, s);
    } else if (s->kind == HB_STEP_FORWARD && s->mode == HB_MODE_TARGET_VERIFY) {
        assert_true(hb_case_draft(s) <= c->config.max_draft);
        for (int32_t r = 0; r < s->n_rows; r++) {
            check_verify_row(c, h, s, r);
        }
    } else if (s->kind == HB_STEP_FORWARD) {
        assert_true(s->mode == HB_MODE_DECODE || s->mode == HB_MODE_IDLE ||
                    hb_mode_is_extend(s->mode));
        for (int32_t r = 0; r < s->n_rows; r++) {
            check_row(c, h, s, r);
        }
    }
}

static void check_history(const struct hb_case *c) {
    struct hb_config config;
    hb_case_backend_config(c, &config);
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_history h;
        hb_history_replay(&h, c, i);
        check_step(c, &h, &c->step[i]);
        for (int32_t r = 0; r < HB_MAX_REQS; r++) {
            assert_true(hb_history_position(&h, r) <= config.max_context);
        }
    }
}

static void valid_histories_are_legal(void **state) {
    (void)state;
    static const int32_t classes[] = {HB_GEN_VALID, HB_GEN_NEAR};
    static const int32_t targets[] = {HB_TARGET_FORWARD, HB_TARGET_VERIFY, HB_TARGET_METADATA,
                                      HB_TARGET_TRACK,   HB_TARGET_GRAPH,  HB_TARGET_SLOTS,
                                      HB_TARGET_ATTENTION};
    for (int32_t size = 0; size < HB_N_SIZES; size++) {
        for (int k = 0; k < 2; k++) {
            struct hb_gen_options o = options(classes[k], size);
            for (uint64_t i = 0; i < N_CASES / 3; i++) {
                struct hb_case c;
                o.target = targets[i % (sizeof targets / sizeof *targets)];
                hb_gen_case(&o, 1, i, &c);
                assert_int_equal(c.n_breaks, 0);
                assert_true(c.n_steps >= 2);
                check_history(&c);
            }
        }
    }
}

static void every_case_is_normal_and_repeatable(void **state) {
    (void)state;
    for (uint64_t i = 0; i < N_CASES; i++) {
        struct hb_gen_options o =
            options((int32_t)(i % HB_N_GEN_CLASSES), (int32_t)(i / 7 % HB_N_SIZES));
        struct hb_case a;
        struct hb_case b;
        o.target = (int32_t)(i / 5 % HB_N_TARGETS);
        memset(&b, 0x55, sizeof b);
        hb_gen_case(&o, 2, i, &a);
        hb_gen_case(&o, 2, i, &b);
        assert_memory_equal(&a, &b, sizeof a);
        assert_true(is_normal(&a));
        assert_int_equal(a.config.target, o.target);
    }
}

static int by_value(const void *a, const void *b) {
    return *(const int32_t *)a - *(const int32_t *)b;
}

static void default_sizes(void **state) {
    (void)state;
    static int32_t tokens[4 * N_CASES];
    int32_t n = 0;
    int32_t n_large = 0;
    int32_t n_forwards = 0;
    const struct hb_gen_options o = options(HB_GEN_VALID, HB_SIZE_DEFAULT);
    for (uint64_t i = 0; i < N_CASES; i++) {
        struct hb_case c;
        hb_gen_case(&o, 3, i, &c);
        if (c.config.head_dim > 8) {
            n_large++;
            continue;
        }
        if (c.config.relation > 0) {
            continue; /* some need long rows */
        }
        assert_true(c.config.heads <= 4 && c.config.state_size <= 16 && c.config.chunk_size <= 16);
        for (int32_t s = 0; s < c.n_steps; s++) {
            if (c.step[s].kind == HB_STEP_FORWARD) {
                n_forwards++;
                assert_true(c.step[s].n_rows <= 4);
                if (hb_mode_is_extend(c.step[s].mode)) {
                    tokens[n++] = step_tokens(&c.step[s]);
                }
            }
        }
    }
    qsort(tokens, (size_t)n, sizeof *tokens, by_value);
    assert_in_range(tokens[n / 2], 7, 13);
    assert_in_range(tokens[n - 1], 20, 24);
    assert_in_range(n_large, N_CASES / 24, N_CASES / 10);
    assert_in_range(n_forwards, N_CASES * 3 / 2, N_CASES * 7 / 2);
}

/* What the specification's blind spots ask for is really generated. */
static void valid_cases_cover_the_conditions(void **state) {
    (void)state;
    int modes[10] = {0};
    int m1 = 0;
    int m2 = 0;
    int restarts = 0;
    int prefixes = 0;
    int tracks = 0;
    int early_points = 0;
    int pads = 0;
    int short_rows = 0;
    int reused = 0;
    int permuted = 0;
    int relations = 0;
    int copies = 0;
    int orders = 0;
    const struct hb_gen_options o = options(HB_GEN_VALID, HB_SIZE_DEFAULT);
    for (uint64_t i = 0; i < N_CASES; i++) {
        struct hb_case c;
        hb_gen_case(&o, 4, i, &c);
        relations += c.config.relation > 0;
        orders += c.config.thread_order != HB_ORDER_ASCENDING;
        for (int32_t k = 0; k < c.n_steps; k++) {
            const struct hb_case_step *s = &c.step[k];
            struct hb_history h;
            hb_history_replay(&h, &c, k);
            restarts += s->kind == HB_STEP_TAKE && s->from >= 0;
            prefixes += s->prefix > 0;
            copies += s->kind == HB_STEP_COPY;
            reused += s->kind == HB_STEP_TAKE && h.n_takes > 0 &&
                      h.free_list[0] <= h.take[h.n_takes - 1].id;
            if (s->kind != HB_STEP_FORWARD) {
                continue;
            }
            modes[s->mode]++;
            m2 += s->n_decode > 0;
            pads += s->pad_rows > 0 && s->pad_tokens > 0;
            for (int32_t r = 0; r < s->n_rows; r++) {
                const int32_t id = h.take[h.request_take[s->row[r].request]].id;
                m1 += s->mode == HB_MODE_MIXED && s->n_decode == 0 && s->row[r].length == 1 &&
                      hb_history_position(&h, s->row[r].request) > 0;
                tracks += s->row[r].track;
                early_points += s->row[r].track_point > 0;
                short_rows +=
                    hb_mode_is_extend(s->mode) && s->row[r].length < c.config.conv_width - 1;
                permuted += id != r + 1;
            }
        }
    }
    static const int used[] = {1, 2, 3, 4, 8, 9};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
        assert_true(modes[used[i]] > N_CASES / 20);
    }
    assert_int_equal(modes[6] + modes[7] + modes[0], 0);
    assert_true(modes[5] > N_CASES / 10);
    const int at_least[] = {m1,   m2,         restarts, prefixes, tracks, early_points,
                            pads, short_rows, permuted, copies,   reused, orders};
    for (size_t i = 0; i < sizeof at_least / sizeof *at_least; i++) {
        assert_true(at_least[i] > N_CASES / 50);
    }
    assert_in_range(relations, N_CASES / 12, N_CASES / 6);
}

/* Nearly all cases of the target verify drafts, about one in six of the forward target; every shape occurs. */
static void verify_covers_the_conditions(void **state) {
    (void)state;
    enum { LINKED, TREE, RAGGED, PADDED, UNUSED, AGAIN, TWICE, NOTHING, TRACKED, AFTER, N_SEEN };
    int seen[N_SEEN] = {0};
    for (int32_t target = 0; target < HB_N_TARGETS; target += HB_TARGET_VERIFY) {
        int n_spec = 0;
        struct hb_gen_options o = options(HB_GEN_VALID, HB_SIZE_DEFAULT);
        o.target = target;
        for (uint64_t i = 0; i < N_CASES / 3; i++) {
            struct hb_case c;
            int has_verify = 0;
            hb_gen_case(&o, 11, i, &c);
            for (int32_t k = 0; k < c.n_steps; k++) {
                const struct hb_case_step *s = &c.step[k];
                const struct hb_case_step *last = &c.step[k > 0 ? k - 1 : 0];
                const int is_commit = s->kind == HB_STEP_COMMIT;
                const int is_verify = hb_step_is_verify(s);
                has_verify |= is_verify;
                seen[LINKED] += s->tree == HB_TREE_LINKED_CHAIN;
                seen[TREE] += s->tree >= HB_TREE_RANDOM;
                seen[RAGGED] += s->ragged;
                seen[PADDED] += is_verify && s->pad_rows > 0;
                seen[UNUSED] += s->ragged && s->draft > 0;
                seen[AGAIN] += is_verify && hb_step_is_verify(last) && k > 0;
                seen[TWICE] += is_commit && last->kind == HB_STEP_COMMIT;
                seen[NOTHING] += is_commit && s->n_rows > 0 && s->row[0].accept < 0;
                seen[TRACKED] += is_commit && s->n_rows > 0 && s->row[0].track;
                seen[AFTER] += s->kind == HB_STEP_FORWARD && !is_verify && has_verify;
            }
            n_spec += has_verify;
        }
        if (target == HB_TARGET_VERIFY) {
            assert_true(n_spec > N_CASES / 3 * 8 / 10);
        } else {
            assert_in_range(n_spec, N_CASES / 3 / 10, N_CASES / 3 / 4);
        }
    }
    for (int i = 0; i < N_SEEN; i++) {
        if (seen[i] < 30) {
            fail_msg("condition %d is generated %d times", i, seen[i]);
        }
    }
}

static void options_are_obeyed(void **state) {
    (void)state;
    static const int32_t modes[] = {1, 2, 3, 4, 8, 9, 5, 7, -3};
    for (uint64_t i = 0; i < 300; i++) {
        struct hb_gen_options o = options(HB_GEN_VALID, HB_SIZE_SMALL);
        struct hb_case c;
        o.mode = modes[i % 9];
        o.act_dtype = (int32_t)(i & 1);
        o.state_dtype = (int32_t)(i >> 1 & 1);
        o.kernel_form = (int32_t)(i >> 2 & 1);
        o.relation = (int32_t)(i % 3 ? 0 : 38);
        hb_gen_case(&o, 5, i, &c);
        assert_int_equal(c.config.act_dtype, o.act_dtype);
        assert_int_equal(c.config.state_dtype, o.state_dtype);
        assert_int_equal(c.config.kernel_form, o.kernel_form);
        assert_int_equal(c.config.relation, o.relation);
        for (int32_t k = 0; k < c.n_steps; k++) {
            if (c.step[k].kind == HB_STEP_FORWARD) {
                assert_int_equal(c.step[k].mode, o.mode);
            }
        }
    }
}

static void mix_has_the_shares(void **state) {
    (void)state;
    int broken = 0;
    int several = 0;
    const struct hb_gen_options o = options(HB_GEN_MIX, HB_SIZE_DEFAULT);
    for (uint64_t i = 0; i < N_CASES; i++) {
        struct hb_case c;
        hb_gen_case(&o, 6, i, &c);
        broken += c.n_breaks > 0;
        several += c.n_breaks > 1;
    }
    assert_in_range(broken, N_CASES * 18 / 100, N_CASES * 30 / 100);
    assert_in_range(several, N_CASES * 7 / 100, N_CASES * 18 / 100);
}

static void dispatch_covers_modes_and_entries(void **state) {
    (void)state;
    int invalid = 0;
    int unsupported = 0;
    int wild = 0;
    int entries[2][2] = {{0}};
    int layers = 0;
    struct hb_gen_options o = options(HB_GEN_MIX, HB_SIZE_DEFAULT);
    o.target = HB_TARGET_DISPATCH;
    for (uint64_t i = 0; i < N_CASES; i++) {
        struct hb_case c;
        hb_gen_case(&o, 7, i, &c);
        assert_true(c.config.heads == 1 && c.config.n_layers <= 2);
        for (int32_t k = 0; k < c.n_steps; k++) {
            const struct hb_case_step *s = &c.step[k];
            invalid += s->mode == 7 || s->mode == 0;
            unsupported += s->mode == 5 || s->mode == 6;
            wild += s->mode < 0 || s->mode > 10;
            if (s->kind == HB_STEP_ENTRY) {
                entries[s->target][s->direction]++;
            }
        }
        for (int32_t b = 0; b < c.n_breaks; b++) {
            layers += c.brk[b].field == HB_FIELD_LAYER_ID;
        }
    }
    print_message("invalid %d unsupported %d wild %d layers %d\n", invalid, unsupported, wild, layers);
    assert_true(invalid > 50 && unsupported > 50 && wild > 50 && layers > 50);
    assert_true(entries[0][0] > 100 && entries[0][1] > 100 && entries[1][0] > 100 &&
                entries[1][1] > 100);
}

/* --- recipes
 * ----------------------------------------------------------------------------------------------------
 */

static void every_rule_has_a_recipe_or_a_reason(void **state) {
    (void)state;
    struct hb_recipe_info info[MAX_RECIPES];
    const int n = hb_recipes(info, MAX_RECIPES);
    const int32_t *rules;
    const int n_rules = hb_rule_list(&rules);
    int n_unreachable = 0;
    int n_found = 0;
    for (int i = 0; i < n_rules; i++) {
        int found = 0;
        int is_reachable = 1;
        for (int k = 0; k < n; k++) {
            found += info[k].rule == rules[i];
            is_reachable &= info[k].rule != rules[i] || info[k].unreachable == NULL;
        }
        if (found == 0 || (!is_reachable && found > 1)) {
            fail_msg("rule %s has %d recipes", hb_rule_name(rules[i]), found);
        }
        n_found += found;
    }
    assert_int_equal(n, n_found); /* none is of no rule */
    for (int k = 0; k < n; k++) {
        n_unreachable += info[k].unreachable != NULL;
        assert_true(!info[k].unreachable || strlen(info[k].unreachable) > 10);
    }
    assert_int_equal(n_unreachable, 4);
}

/* Class BROKEN really makes use of each of them. */
static void every_reachable_recipe_is_generated(void **state) {
    (void)state;
    static int seen[HB_N_BREAK_FIELDS];
    int without_break = 0;
    const struct hb_gen_options o = options(HB_GEN_BROKEN, HB_SIZE_DEFAULT);
    for (uint64_t i = 0; i < N_CASES; i++) {
        struct hb_case c;
        hb_gen_case(&o, 8, i, &c);
        without_break += c.n_breaks == 0;
        for (int32_t b = 0; b < c.n_breaks; b++) {
            seen[c.brk[b].field]++;
        }
    }
    for (int32_t f = 0; f < HB_N_BREAK_FIELDS; f++) {
        if (!seen[f] && f != HB_FIELD_IS_DUMMY) {
            fail_msg("no case breaks %s", hb_break_field_name(f));
        }
    }
    /* entries, a doubled free and a copy onto itself are steps, not breaks */
    assert_in_range(without_break, N_CASES / 40, N_CASES / 8);
}

/* --- mutation
 * ---------------------------------------------------------------------------------------------------
 */

static void mutants_are_normal_and_repeatable(void **state) {
    (void)state;
    const struct hb_gen_options o = options(HB_GEN_MIX, HB_SIZE_DEFAULT);
    int same = 0;
    for (uint64_t i = 0; i < N_CASES; i++) {
        struct hb_case a;
        struct hb_case b;
        struct hb_case c;
        hb_gen_case(&o, 9, i, &a);
        b = a;
        c = a;
        hb_mutate_case(&b, i);
        hb_mutate_case(&c, i);
        assert_memory_equal(&b, &c, sizeof b);
        assert_true(is_normal(&b));
        same += memcmp(&a, &b, sizeof a) == 0;
    }
    assert_true(same < N_CASES / 4);
}

/* Long chains stay normal, from any start. */
static void chains_of_mutations(void **state) {
    (void)state;
    for (uint64_t chain = 0; chain < 40; chain++) {
        struct hb_case c;
        struct hb_case d;
        hb_case_init(&c);
        d = c;
        for (uint64_t i = 0; i < 200; i++) {
            hb_mutate_case(&c, chain * 1000 + i);
            hb_mutate_case(&d, chain * 1000 + i + 500);
            if (i % 10 == 9) {
                hb_crossover_case(&c, &d, i);
            }
            assert_true(is_normal(&c));
            assert_true(c.n_steps <= HB_MAX_STEPS && c.n_breaks <= HB_MAX_BREAKS);
        }
    }
}

static void crossover_takes_from_both(void **state) {
    (void)state;
    const struct hb_gen_options o = options(HB_GEN_VALID, HB_SIZE_DEFAULT);
    int changed = 0;
    int longer = 0;
    for (uint64_t i = 0; i < 500; i++) {
        struct hb_case a;
        struct hb_case b;
        struct hb_case c;
        hb_gen_case(&o, 10, 2 * i, &a);
        hb_gen_case(&o, 10, 2 * i + 1, &b);
        c = a;
        hb_crossover_case(&c, &b, i);
        assert_true(is_normal(&c));
        changed += memcmp(&a, &c, sizeof a) != 0;
        longer += c.n_steps > a.n_steps;
        c = a;
        hb_crossover_case(&c, &c, i); /* with itself */
        assert_true(is_normal(&c));
    }
    assert_true(changed > 350 && longer > 30);
}

/* Once a recipe looked for a layer that runs where none does, without end. */
static void mutation_ends_when_every_layer_is_left_out(void **state) {
    (void)state;
    struct hb_case c;
    hb_case_init(&c);
    c.n_steps = 2;
    c.step[0].kind = HB_STEP_TAKE;
    c.step[0].from = -1;
    c.step[1].kind = HB_STEP_FORWARD;
    c.step[1].mode = HB_MODE_EXTEND;
    c.step[1].layer_mask = (1 << c.config.n_layers) - 1;
    c.step[1].n_rows = 1;
    hb_case_normalize(&c);
    int layer_breaks = 0;
    for (uint64_t seed = 0; seed < 30000; seed++) {
        struct hb_case m = c;
        hb_mutate_case(&m, seed);
        for (int32_t i = 0; i < m.n_breaks; i++) {
            layer_breaks += m.brk[i].field == HB_FIELD_LAYER_ID;
        }
    }
    assert_true(layer_breaks > 0); /* the recipe was met */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_histories_are_legal),
        cmocka_unit_test(every_case_is_normal_and_repeatable),
        cmocka_unit_test(default_sizes),
        cmocka_unit_test(valid_cases_cover_the_conditions),
        cmocka_unit_test(verify_covers_the_conditions),
        cmocka_unit_test(options_are_obeyed),
        cmocka_unit_test(mix_has_the_shares),
        cmocka_unit_test(dispatch_covers_modes_and_entries),
        cmocka_unit_test(every_rule_has_a_recipe_or_a_reason),
        cmocka_unit_test(every_reachable_recipe_is_generated),
        cmocka_unit_test(mutants_are_normal_and_repeatable),
        cmocka_unit_test(chains_of_mutations),
        cmocka_unit_test(crossover_takes_from_both),
        cmocka_unit_test(mutation_ends_when_every_layer_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
