/* SPDX-License-Identifier: Apache-2.0
 * Bounds of a decode with the replay ring (speculative.md section 7): fp32 results in any order of
 * sums stay inside, between folds and at them; a state that is off by 2^-12, a lost record or a
 * wrong decay does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "harness/tests/oracle_sim.h"
#include "harness/tests/oracle_tally.h"

enum { MOST_RECORDS = HB_MAX_RING, N_DECAYS = 5 };

/* How the simulated backend adds up log decays from record j+1 to record w: as a difference of
 * prefix sums (in sequence, as a tree, in the order of a scan from the back), directly from j on,
 * or not at all, as a product of exponentials. */
enum decay_form { DIFFERENCE_SEQUENTIAL, DIFFERENCE_TREE, DIFFERENCE_ANY, DIRECT, PRODUCT };

struct ring_sim {
    struct sim s; /* s.ssm is `temporal` */
    int32_t form, scores_first, start_last;
    int32_t w;
    float x[MOST_RECORDS][MAX_INNER], b[MOST_RECORDS][MAX_DIM], g[MOST_RECORDS][MAX_HEADS];
};

/* Prefix sums of n log decays of one head. */
static void prefix_sums(const struct ring_sim *r, int32_t head, int32_t n, float *sum) {
    float next[MOST_RECORDS] = {0};
    for (int32_t i = 0; i < n; i++) {
        sum[i] = r->g[i][head];
    }
    for (int32_t i = 1; i < n && r->form != DIFFERENCE_TREE && r->form != DIFFERENCE_ANY; i++) {
        sum[i] += sum[i - 1];
    }
    for (int32_t gap = 1; gap < n && r->form == DIFFERENCE_TREE; gap *= 2) {
        for (int32_t i = 0; i < n; i++) {
            next[i] = i >= gap ? sum[i] + sum[i - gap] : sum[i];
        }
        memcpy(sum, next, (size_t)n * sizeof(float));
    }
    for (int32_t i = n - 1; i >= 0 && r->form == DIFFERENCE_ANY; i--) {
        for (int32_t j = i - 1; j >= 0; j--) {
            sum[i] += sum[j];
        }
    }
}

/* decay[0] is that of `temporal` up to record n-1, decay[j+1] that of record j. */
static void make_decays(const struct ring_sim *r, int32_t head, int32_t n, float *decay) {
    float sum[MOST_RECORDS] = {0};
    prefix_sums(r, head, n, sum);
    for (int32_t j = -1; j < n; j++) {
        float direct = 0.0F;
        float product = 1.0F;
        for (int32_t i = j + 1; i < n; i++) {
            direct += r->g[i][head];
            product *= expf(r->g[i][head]);
        }
        float difference = fminf(sum[n - 1] - (j >= 0 ? sum[j] : 0.0F), 0.0F);
        decay[j + 1] = r->form == PRODUCT  ? product
                       : r->form == DIRECT ? expf(direct)
                                           : expf(difference);
    }
}

/* Element i of the state of (head, p) after n records. */
static float ring_state(const struct ring_sim *r, int32_t head, int32_t p, int32_t i, int32_t n,
                        const float *decay) {
    const struct hb_config *c = &r->s.m->config;
    const int32_t group = head / (c->n_heads / c->n_groups);
    const int32_t row = head * c->head_dim + p;
    const float start = decay[0] * r->s.ssm[row * c->state_size + i];
    float sum = r->start_last ? 0.0F : start;
    for (int32_t k = 0; k < n; k++) {
        const int32_t j = r->s.reversed ? n - 1 - k : k;
        const float b = r->b[j][group * c->state_size + i];
        sum += r->start_last ? decay[j + 1] * b * r->x[j][row] : decay[j + 1] * (r->x[j][row] * b);
    }
    return r->start_last ? sum + start : sum;
}

/* C.S of (head, p), either from C.B of each record, or from the state. */
static float ring_output(const struct ring_sim *r, const struct sim_token *k, int32_t head,
                         int32_t p, int32_t n, const float *decay) {
    const struct hb_config *c = &r->s.m->config;
    const int32_t group = head / (c->n_heads / c->n_groups);
    const int32_t row = head * c->head_dim + p;
    float h[MAX_STATE] = {0};
    if (!r->scores_first) {
        for (int32_t i = 0; i < c->state_size; i++) {
            h[i] = ring_state(r, head, p, i, n, decay);
        }
        return sim_dot(&r->s, k->c, h, 0);
    }
    float y = 0.0F;
    for (int32_t q = 0; q < n; q++) {
        const int32_t j = r->s.reversed ? n - 1 - q : q;
        y += sim_dot(&r->s, k->c, r->b[j] + group * c->state_size, 0) * decay[j + 1] * r->x[j][row];
    }
    return y + decay[0] * sim_dot(&r->s, k->c, r->s.ssm + row * c->state_size, 0);
}

static void append(struct ring_sim *r) {
    const struct model *m = r->s.m;
    const struct hb_config *c = &m->config;
    for (int32_t h = 0; h < c->n_heads; h++) {
        const struct sim_token k = sim_token(&r->s, 0, h);
        r->g[r->w][h] = k.dt * m->a[h];
        for (int32_t p = 0; p < c->head_dim; p++) {
            r->x[r->w][h * c->head_dim + p] = k.dt * k.x[p];
        }
    }
    memcpy(r->b[r->w], r->s.c + m->inner, (size_t)(c->n_groups * c->state_size) * sizeof(float));
}

static void ring_head(struct ring_sim *r, int32_t head, int32_t folds) {
    const struct hb_config *c = &r->s.m->config;
    const struct sim_token k = sim_token(&r->s, 0, head);
    const float d = r->s.m->params.d ? r->s.m->d[head] : 0.0F;
    float decay[MOST_RECORDS + 1] = {0};
    float row[MAX_STATE] = {0};
    make_decays(r, head, r->w + 1, decay);
    for (int32_t p = 0; p < c->head_dim; p++) {
        const int32_t at = head * c->head_dim + p;
        r->s.y[at] = ring_output(r, &k, head, p, r->w + 1, decay) + d * k.x[p];
        for (int32_t i = 0; i < c->state_size && folds; i++) {
            row[i] = ring_state(r, head, p, i, r->w + 1, decay);
            row[i] = r->s.state_bf16 ? round_bf16(row[i]) : row[i];
        }
        if (folds) {
            memcpy(r->s.ssm + at * c->state_size, row, (size_t)c->state_size * sizeof(float));
        }
    }
}

/* Token t of the model; out [inner] is then in r->s.out. */
static void ring_step(struct ring_sim *r, int32_t t, int32_t folds) {
    sim_conv(&r->s, t, 1);
    sim_steps(&r->s, HB_PATH_DECODE, t, 1);
    append(r);
    for (int32_t h = 0; h < r->s.m->config.n_heads; h++) {
        ring_head(r, h, folds);
    }
    sim_gate_norm(&r->s, t, 0);
    r->w = folds ? 0 : r->w + 1;
}

/* One request on both sides. */
struct pair {
    struct model m;
    struct ring_sim sim;
    struct hb_profile profile;
    struct hb_ref_state *state;
    double out[MAX_INNER], bound[MAX_INNER], mag[MAX_INNER];
    struct tally outs, states;
};

static struct pair *new_pair(void) {
    struct pair *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    return p;
}

static void begin_pair(struct pair *p, int32_t length, int32_t kind) {
    struct hb_config *c = &p->m.config;
    c->ring_length = length;
    c->state_dtype = kind & 2 ? HB_BF16 : HB_FP32;
    p->profile = plain_profile();
    p->profile.u_io = kind & 1 ? 0x1p-8 : 0.0;
    p->sim.s.m = &p->m;
    p->sim.s.act_bf16 = kind & 1;
    p->sim.s.state_bf16 = (kind & 2) != 0;
    p->sim.s.reversed = draw_int(0, 1);
    p->sim.form = draw_int(0, N_DECAYS - 1);
    p->sim.scores_first = draw_int(0, 1);
    p->sim.start_last = draw_int(0, 1);
    p->sim.w = 0;
    sim_start(&p->sim.s);
    p->state = hb_ref_state_new(c);
    assert_non_null(p->state);
    hb_ref_state_set(c, p->state, p->m.conv0, p->m.ssm0);
}

static void end_pair(struct pair *p) {
    hb_ref_state_free(p->state);
    p->state = NULL;
}

static void reference_step(struct pair *p, int32_t t, int32_t w, int32_t folds) {
    const struct model *m = &p->m;
    assert_int_equal(hb_ref_mamba2_ring(&m->config, &m->params, &p->profile, w, folds,
                                        m->z + t * m->inner, m->xbc + t * m->dim,
                                        m->dt + t * m->config.n_heads, p->state, p->out, p->bound,
                                        p->mag, NULL),
                     0);
}

static void judge_fold(struct pair *p) {
    for (int32_t i = 0; i < p->m.n_state; i++) {
        const double b = hb_ref_state_bound(&p->m.config, &p->profile, p->state, i, 0);
        judge(&p->states, (double)p->sim.s.ssm[i], p->state->h[i], b, p->state->m[i]);
    }
}

static void both_step(struct pair *p, int32_t t, int32_t folds) {
    const int32_t w = p->sim.w;
    ring_step(&p->sim, t, folds);
    reference_step(p, t, w, folds);
    for (int32_t i = 0; i < p->m.inner; i++) {
        judge(&p->outs, (double)p->sim.s.out[i], p->out[i], p->bound[i], p->mag[i]);
    }
    if (folds) {
        judge_fold(p);
    }
}

/* n tokens with a fold at the wrap, and at one token in `forced` besides (0: never). */
static void play(struct pair *p, int32_t n, int32_t forced) {
    for (int32_t t = 0; t < n; t++) {
        const int32_t wrap = p->sim.w == p->m.config.ring_length - 1;
        both_step(p, t, wrap || (forced > 0 && draw_int(1, forced) == 1));
    }
}

static void any_order_stays_inside(int32_t value_class) {
    struct pair *p = new_pair();
    for (int32_t kind = 0; kind < 4; kind++) {
        p->outs = p->states = (struct tally){0};
        for (int32_t k = 0; k < 60; k++) {
            draw_model(&p->m, value_class, 0);
            begin_pair(p, k % 4 ? draw_int(1, 16) : 40, kind);
            play(p, MAX_LEN, k % 3 * 8);
            end_pair(p);
        }
        print_message("class %d act %s state %s: worst err/B out %.3f state %.3f\n", value_class,
                      kind & 1 ? "bf16" : "fp32", kind & 2 ? "bf16" : "fp32", p->outs.worst,
                      p->states.worst);
        assert_int_equal(p->outs.outside, 0);
        assert_int_equal(p->states.outside, 0);
        assert_true(p->states.n > 0);
    }
    free(p);
}

static void ring_bounds_hold_without_cancellation(void **unused) {
    (void)unused;
    any_order_stays_inside(CLASS_SAME_SIGN);
}

static void ring_bounds_hold_on_ordinary_values(void **unused) {
    (void)unused;
    any_order_stays_inside(CLASS_ORDINARY);
}

static void ring_bounds_hold_on_large_steps(void **unused) {
    (void)unused;
    any_order_stays_inside(CLASS_LARGE_DT);
}

static void ring_bounds_hold_on_tiny_steps(void **unused) {
    (void)unused;
    any_order_stays_inside(CLASS_TINY_DT);
}

static void ring_bounds_hold_on_cancelling_values(void **unused) {
    (void)unused;
    any_order_stays_inside(CLASS_CANCEL);
}

static void ring_bounds_hold_on_wide_values(void **unused) {
    (void)unused;
    any_order_stays_inside(CLASS_WIDE);
}

static void ring_bounds_hold_on_zeros(void **unused) {
    (void)unused;
    any_order_stays_inside(CLASS_ZEROS);
}

/* Values do not depend on folds: they are those of plain decode, bit for bit. */
static void values_are_those_of_plain_decode(void **unused) {
    (void)unused;
    struct pair *p = new_pair();
    for (int32_t k = 0; k < 20; k++) {
        draw_model(&p->m, CLASS_ORDINARY, 0);
        begin_pair(p, draw_int(1, 9), k % 4);
        const struct model *m = &p->m;
        struct hb_ref_state *plain = hb_ref_state_new(&m->config);
        double out[MAX_INNER];
        assert_non_null(plain);
        hb_ref_state_set(&m->config, plain, m->conv0, m->ssm0);
        for (int32_t t = 0, w = 0; t < 20; t++) {
            const int32_t folds = w == m->config.ring_length - 1 || t == 6;
            reference_step(p, t, w, folds);
            w = folds ? 0 : w + 1;
            assert_int_equal(hb_ref_mamba2(&m->config, &m->params, &p->profile, HB_PATH_DECODE, 1,
                                           m->z + t * m->inner, m->xbc + t * m->dim,
                                           m->dt + t * m->config.n_heads, plain, out, NULL, NULL,
                                           NULL, 0),
                             0);
            assert_memory_equal(p->out, out, (size_t)m->inner * sizeof(double));
            assert_memory_equal(p->state->h, plain->h, (size_t)m->n_state * sizeof(double));
            assert_memory_equal(p->state->conv, plain->conv,
                                (size_t)(m->dim * m->window) * sizeof(double));
        }
        hb_ref_state_free(plain);
        end_pair(p);
    }
    free(p);
}

/* How much of the stored elements at folds a change of the simulated state puts outside. */
static double seen_at_folds(int32_t length, void (*spoil)(struct ring_sim *sim)) {
    struct pair *p = new_pair();
    int64_t outside = 0, all = 0;
    for (int32_t k = 0; k < 40; k++) {
        draw_model(&p->m, CLASS_SAME_SIGN, 1);
        begin_pair(p, length, 0);
        for (int32_t t = 0; t < length - 1; t++) {
            both_step(p, t, 0);
        }
        p->states = (struct tally){0};
        spoil(&p->sim);
        both_step(p, length - 1, 1);
        outside += p->states.outside;
        all += p->states.n;
        end_pair(p);
    }
    free(p);
    return (double)outside / (double)all;
}

static void spoil_nothing(struct ring_sim *sim) {
    (void)sim;
}

static void spoil_records_and_state(struct ring_sim *sim) {
    for (int32_t i = 0; i < sim->s.m->n_state; i++) {
        sim->s.ssm[i] *= 1.0F + 0x1p-12F;
    }
    for (int32_t j = 0; j < sim->w; j++) {
        for (int32_t i = 0; i < sim->s.m->inner; i++) {
            sim->x[j][i] *= 1.0F + 0x1p-12F;
        }
    }
}

static void spoil_last_record(struct ring_sim *sim) {
    memset(sim->x[sim->w - 1], 0, sizeof(sim->x[0]));
}

static void spoil_decay(struct ring_sim *sim) {
    for (int32_t h = 0; h < sim->s.m->config.n_heads; h++) {
        sim->g[sim->w - 1][h] *= 1.0F + 0x1p-9F;
    }
}

/* Two records exchanged: right contents, wrong order. */
static void spoil_order(struct ring_sim *sim) {
    float keep[MAX_INNER];
    memcpy(keep, sim->x[0], sizeof(keep));
    memcpy(sim->x[0], sim->x[sim->w - 1], sizeof(keep));
    memcpy(sim->x[sim->w - 1], keep, sizeof(keep));
}

static void state_off_by_2_to_minus_12_is_noticed_at_the_fold(void **unused) {
    (void)unused;
    static const int32_t lengths[] = {4, 16, 40};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        const double right = seen_at_folds(lengths[i], spoil_nothing);
        const double scaled = seen_at_folds(lengths[i], spoil_records_and_state);
        print_message("L = %d: outside %.4f right, %.4f scaled\n", lengths[i], right, scaled);
        assert_true(right <= 0.0);
        assert_true(scaled >= (lengths[i] == 40 ? 0.7 : 0.95));
    }
}

static void lost_and_exchanged_records_are_noticed_at_the_fold(void **unused) {
    (void)unused;
    assert_true(seen_at_folds(16, spoil_last_record) >= 0.99);
    assert_true(seen_at_folds(16, spoil_order) >= 0.95);
    assert_true(seen_at_folds(16, spoil_decay) >= 0.9);
}

/* A record of the step before the last, taken for lost, is noticed by the output at once. */
static void lost_record_is_noticed_by_the_output(void **unused) {
    (void)unused;
    struct pair *p = new_pair();
    draw_model(&p->m, CLASS_SAME_SIGN, 1);
    begin_pair(p, 8, 0);
    play(p, 3, 0);
    assert_int_equal(p->outs.outside, 0);
    spoil_last_record(&p->sim);
    both_step(p, 3, 0);
    assert_true(p->outs.outside > 0);
    end_pair(p);
    free(p);
}

/* The record itself, with the bounds that come along. */
static void records_stay_inside_their_bounds(void **unused) {
    (void)unused;
    struct pair *p = new_pair();
    double x[2][MAX_INNER], b[2][MAX_DIM], g[2][MAX_HEADS];
    const struct hb_ref_record record = {x[0], x[1], b[0], b[1], g[0], g[1]};
    for (int32_t k = 0; k < 200; k++) {
        struct tally t = {0};
        draw_model(&p->m, k % N_CLASSES, 0);
        begin_pair(p, 4, k & 1);
        const struct model *m = &p->m;
        const struct hb_config *c = &m->config;
        ring_step(&p->sim, 0, 0);
        assert_int_equal(hb_ref_mamba2_ring(c, &m->params, &p->profile, 0, 0, m->z, m->xbc, m->dt,
                                            p->state, p->out, NULL, NULL, &record),
                         0);
        for (int32_t i = 0; i < m->inner; i++) {
            judge(&t, (double)p->sim.x[0][i], x[0][i], x[1][i], 1.0);
        }
        for (int32_t i = 0; i < c->n_groups * c->state_size; i++) {
            judge(&t, (double)p->sim.b[0][i], b[0][i], b[1][i], 1.0);
        }
        for (int32_t h = 0; h < c->n_heads; h++) {
            judge(&t, (double)p->sim.g[0][h], g[0][h], g[1][h], 1.0);
        }
        assert_int_equal(t.outside, 0);
        end_pair(p);
    }
    free(p);
}

/* A copied state goes on as its source does, bounds included. */
static void copy_keeps_records_that_are_not_folded(void **unused) {
    (void)unused;
    struct pair *p = new_pair();
    draw_model(&p->m, CLASS_ORDINARY, 1);
    begin_pair(p, 6, 0);
    for (int32_t w = 0; w < 3; w++) {
        reference_step(p, w, w, 0);
    }
    struct hb_ref_state *first = p->state;
    struct hb_ref_state *second = hb_ref_state_new(&p->m.config);
    double bound[MAX_INNER];
    assert_non_null(second);
    hb_ref_state_copy(&p->m.config, second, first);
    reference_step(p, 3, 3, 1);
    memcpy(bound, p->bound, sizeof(bound));
    p->state = second;
    reference_step(p, 3, 3, 1);
    assert_memory_equal(bound, p->bound, (size_t)p->m.inner * sizeof(double));
    assert_memory_equal(first->r, second->r, (size_t)p->m.n_state * sizeof(double));
    hb_ref_state_free(first);
    end_pair(p);
    free(p);
}

/* A fold after the records is the fold with the last of them; without a record there is none. */
static void fold_apart_is_the_fold_with_the_last_token(void **unused) {
    (void)unused;
    for (int32_t n = 1; n <= 6; n++) {
        struct pair *p = new_pair();
        draw_model(&p->m, CLASS_ORDINARY, 1);
        begin_pair(p, 6, 0);
        struct hb_ref_state *first = p->state;
        struct hb_ref_state *second = hb_ref_state_new(&p->m.config);
        assert_non_null(second);
        hb_ref_state_copy(&p->m.config, second, first);
        for (int32_t w = 0; w < n; w++) {
            reference_step(p, w, w, w == n - 1);
        }
        p->state = second;
        for (int32_t w = 0; w < n; w++) {
            reference_step(p, w, w, 0);
        }
        const struct hb_profile *profile = &p->profile;
        assert_memory_not_equal(first->r, second->r, (size_t)p->m.n_state * sizeof(double));
        hb_ref_mamba2_fold(&p->m.config, profile, n, second);
        assert_memory_equal(first->r, second->r, (size_t)p->m.n_state * sizeof(double));
        assert_memory_equal(first->h, second->h, (size_t)p->m.n_state * sizeof(double));
        hb_ref_mamba2_fold(&p->m.config, profile, 0, second);
        assert_memory_equal(first->r, second->r, (size_t)p->m.n_state * sizeof(double));
        hb_ref_state_free(first);
        end_pair(p);
        free(p);
    }
}

/* One rounding of a 16-bit state per fold, none in between. */
static void state_type_is_charged_at_folds_only(void **unused) {
    (void)unused;
    struct pair *p = new_pair();
    draw_model(&p->m, CLASS_SAME_SIGN, 1);
    begin_pair(p, 8, 2);
    for (int32_t w = 0; w < 7; w++) {
        reference_step(p, w, w, 0);
        assert_true(p->state->r[0] < 0x1p-14 * p->state->h[0]);
    }
    reference_step(p, 7, 7, 1);
    assert_true(p->state->r[0] >= 0x1p-8 * p->state->h[0]);
    assert_true(p->state->r[0] < 0x1.1p-8 * p->state->h[0]);
    end_pair(p);
    free(p);
}

/* With one record the ring is plain decode; its bounds are not more than twice as wide. */
static void ring_of_one_record_is_about_as_tight_as_plain_decode(void **unused) {
    (void)unused;
    struct pair *p = new_pair();
    for (int32_t k = 0; k < 20; k++) {
        draw_model(&p->m, CLASS_SAME_SIGN, 1);
        p->m.config.state_size = 16;
        p->m.config.head_dim = 2;
        p->m.config.n_heads = p->m.config.n_groups = 1;
        p->m.inner = p->m.config.norm_group = 2;
        p->m.dim = 34;
        p->m.n_state = 32;
        begin_pair(p, 1, 0);
        const struct model *m = &p->m;
        struct hb_ref_state *plain = hb_ref_state_new(&m->config);
        double out[MAX_INNER], bound[MAX_INNER];
        assert_non_null(plain);
        hb_ref_state_set(&m->config, plain, m->conv0, m->ssm0);
        for (int32_t t = 0; t < 12; t++) {
            reference_step(p, t, 0, 1);
            assert_int_equal(hb_ref_mamba2(&m->config, &m->params, &p->profile, HB_PATH_DECODE, 1,
                                           m->z + t * m->inner, m->xbc + t * m->dim, m->dt + t,
                                           plain, out, bound, NULL, NULL, 0),
                             0);
            for (int32_t i = 0; i < m->inner; i++) {
                assert_true(p->bound[i] <= 2.0 * bound[i]);
            }
            for (int32_t i = 0; i < m->n_state; i++) {
                assert_true(p->state->r[i] <= 3.0 * plain->r[i]);
            }
        }
        hb_ref_state_free(plain);
        end_pair(p);
    }
    free(p);
}

static void cursor_outside_the_ring_is_refused(void **unused) {
    (void)unused;
    struct pair *p = new_pair();
    draw_model(&p->m, CLASS_ORDINARY, 1);
    begin_pair(p, 3, 0);
    const struct model *m = &p->m;
    static const int32_t outside[] = {-1, 3, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(hb_ref_mamba2_ring(&m->config, &m->params, &p->profile, outside[i], 0,
                                            m->z, m->xbc, m->dt, p->state, p->out, NULL, NULL,
                                            NULL),
                         -1);
    }
    assert_int_equal(p->state->n_tokens, 0);
    end_pair(p);
    free(p);
}

int main(int argc, char **argv) {
    model_seed =
        argc > 1 ? strtoull(argv[1], NULL, 10) : 1; /* another seed plays other histories */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_bounds_hold_without_cancellation),
        cmocka_unit_test(ring_bounds_hold_on_ordinary_values),
        cmocka_unit_test(ring_bounds_hold_on_large_steps),
        cmocka_unit_test(ring_bounds_hold_on_tiny_steps),
        cmocka_unit_test(ring_bounds_hold_on_cancelling_values),
        cmocka_unit_test(ring_bounds_hold_on_wide_values),
        cmocka_unit_test(ring_bounds_hold_on_zeros),
        cmocka_unit_test(values_are_those_of_plain_decode),
        cmocka_unit_test(state_off_by_2_to_minus_12_is_noticed_at_the_fold),
        cmocka_unit_test(lost_and_exchanged_records_are_noticed_at_the_fold),
        cmocka_unit_test(lost_record_is_noticed_by_the_output),
        cmocka_unit_test(records_stay_inside_their_bounds),
        cmocka_unit_test(fold_apart_is_the_fold_with_the_last_token),
        cmocka_unit_test(copy_keeps_records_that_are_not_folded),
        cmocka_unit_test(state_type_is_charged_at_folds_only),
        cmocka_unit_test(ring_of_one_record_is_about_as_tight_as_plain_decode),
        cmocka_unit_test(cursor_outside_the_ring_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
