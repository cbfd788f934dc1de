/* SPDX-License-Identifier: Apache-2.0
 * The float64 oracle and the emulated backend on every linear kind, type and layout, driven by the
 * same calls: same regions, same conv states and padding bit for bit, nearly the same outputs,
 * temporal states and intermediate caches. */
#include "harness/tests/oracle_kinds_rig.h"

static const int32_t KINDS[] = {HB_LAYER_MAMBA2,    HB_LAYER_GDN,        HB_LAYER_KDA,
                                HB_LAYER_LIGHTNING, HB_LAYER_SHORT_CONV, HB_LAYER_MAMBA1};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS, N_VARIANTS = 64, MOST_BYTES = 1 << 16 };

struct twins {
    struct kit k[2]; /* oracle, emulated */
    unsigned char bytes[2][MOST_BYTES];
    float wide[2][MOST_BYTES];
};

static struct twins *open_twins(int32_t kind, int32_t act, int32_t variant, int32_t form) {
    struct twins *t = calloc(1, sizeof *t);
    assert_non_null(t);
    for (int i = 0; i < 2; i++) {
        struct kit *k = &t->k[i];
        kit_config(k, kind, act, variant);
        k->config.kernel_form = form;
        k->config.l2norm = variant % HB_N_L2NORMS == HB_L2_OFF ? HB_L2_ADD_EPS : variant % 2;
        k->config.beta_form = variant / 2 % 2;
        k->config.gate_form = kind == HB_LAYER_KDA ? variant / 4 % 2 : 0;
        k->config.slope_kind = (variant + variant / 8) % HB_N_SLOPE_KINDS;
        k->config.layer_factor = variant / 3 % HB_N_LAYER_FACTORS;
        k->config.qkv_act = variant / 5 % 2;
        k->config.gate_norm = variant % HB_N_GATE_NORMS;
        k->config.conv_act = variant / 6 % 2;
        k->config.dt_clamp_prefill = variant % HB_N_DT_CLAMPS;
        k->config.dt_clamp_decode = variant / 4 % HB_N_DT_CLAMPS;
        k->config.dt_lo = 0.3F;
        k->config.dt_hi = 0.9F;
        k->config.qk_scale = variant / 7 % 2 ? 0.75F : 0.0F;
        k->table = i == 0 ? hb_adapter_oracle() : hb_adapter_emu();
        kit_open(k);
    }
    return t;
}

static void close_twins(struct twins *t) {
    for (int i = 0; i < 2; i++) {
        kit_close(&t->k[i]);
    }
    free(t);
}

/* Differences of a few rounding steps of the type, on values of about one; in 16 bits a norm may
 * enlarge what is left of sums that cancel. The bounds proper are the executor's. */
static double slack_of(int32_t dtype) {
    static const double steps[HB_N_FLOAT_DTYPES] = {
        [HB_FP32] = 0x1p-16, [HB_BF16] = 0x1p-3, [HB_FP16] = 0x1p-6};
    return steps[dtype];
}

static void assert_near(const struct twins *t, const char *what, int32_t dtype, const float *a,
                        const float *b, int64_t n) {
    double size = 0.25;
    for (int64_t i = 0; i < n; i++) {
        size = fabs((double)a[i]) > size ? fabs((double)a[i]) : size;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)a[i] - (double)b[i]) <= slack_of(dtype) * size)) {
            fail_msg("kind %d, %s, element %ld: %g and %g", t->k[0].config.layer_kind[0], what,
                     (long)i, (double)a[i], (double)b[i]);
        }
    }
}

/* A state follows from inputs and outputs of 16 bits. */
static int32_t coarser(int32_t a, int32_t b) {
    return slack_of(a) > slack_of(b) ? a : b;
}

static int is_exact(const struct hb_region *r) {
    return strcmp(r->name, "conv") == 0 || strcmp(r->name, "intermediate_conv") == 0 ||
           strstr(r->name, "_pad") != NULL;
}

static void compare_regions(struct twins *t, int32_t entries) {
    int32_t n = 0;
    assert_int_equal(t->k[0].table->n_regions(t->k[0].h, &n, &t->k[0].e), HB_OK);
    for (int32_t i = 0; i < n; i++) {
        struct hb_region r[2];
        assert_int_equal(t->k[0].table->region(t->k[0].h, i, &r[0], &t->k[0].e), HB_OK);
        if (r[0].layer < 0) {
            continue;
        }
        const int32_t at = kit_region(&t->k[1], r[0].name, &r[1]);
        if (at < 0) {
            fail_msg("kind %d: no region %s", t->k[0].config.layer_kind[0], r[0].name);
        }
        assert_int_equal(r[0].n_dims, r[1].n_dims);
        assert_memory_equal(r[0].shape, r[1].shape, sizeof r[0].shape);
        assert_int_equal(r[0].dtype, r[1].dtype);
        assert_int_equal(r[0].kind, r[1].kind);
        const uint64_t entry = r[0].bytes / (uint64_t)r[0].shape[0];
        const int is_cache = strncmp(r[0].name, "intermediate", 12) == 0;
        /* slot 0 may hold anything; of the caches only the entries of a verify count */
        const uint64_t first = is_cache || strstr(r[0].name, "_pad") != NULL ? 0 : entry;
        const uint64_t bytes = is_cache ? entry * (uint64_t)entries : r[0].bytes - first;
        assert_true(bytes <= MOST_BYTES);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(t->k[k].table->region_read(t->k[k].h, k == 0 ? i : at, first,
                                                        t->bytes[k], bytes, &t->k[k].e),
                             HB_OK);
            hb_unpack(r[0].dtype, t->bytes[k], (int64_t)bytes / hb_dtype_bytes(r[0].dtype),
                      t->wide[k]);
        }
        if (is_exact(&r[0])) {
            assert_memory_equal(t->bytes[0], t->bytes[1], bytes);
        } else {
            assert_near(t, r[0].name, coarser(r[0].dtype, t->k[0].config.act_dtype), t->wide[0],
                        t->wide[1], (int64_t)bytes / hb_dtype_bytes(r[0].dtype));
        }
    }
}

static void run_both(struct twins *t, int32_t entries) {
    kit_forward(&t->k[0]);
    kit_forward(&t->k[1]);
    assert_near(t, "output", coarser(t->k[0].config.act_dtype, t->k[0].config.state_dtype),
                t->k[0].out, t->k[1].out, t->k[0].b.n_tokens * t->k[0].size.width[3]);
    compare_regions(t, entries);
}

static void prefill(struct twins *t) {
    for (int i = 0; i < 2; i++) {
        struct kit *k = &t->k[i];
        kit_batch(k, HB_MODE_EXTEND);
        (void)kit_row(k, 1, 0, 6);
        (void)kit_row(k, 2, 0, 1);
        (void)kit_row(k, 3, 0, 9);
        k->mask[0] = 1;
        k->track[0] = 5;
        k->point[0] = 5;
    }
    run_both(t, 0);
}

static void decode(struct twins *t) {
    for (int i = 0; i < 2; i++) {
        struct kit *k = &t->k[i];
        kit_batch(k, HB_MODE_DECODE);
        (void)kit_row(k, 1, 6, 1);
        (void)kit_row(k, 2, 1, 1);
        k->mask[1] = 1;
        k->track[1] = 4;
    }
    run_both(t, 0);
}

static const int32_t NEXT[KIT_DRAFT] = {1, 3, 4, -1, -1};
static const int32_t SIBLING[KIT_DRAFT] = {-1, 2, -1, -1, -1};

static void verify_and_commit(struct twins *t) {
    static const int32_t step[2] = {4, 3}, saved[2] = {1, -1};
    static const int64_t dst[2] = {4, 5};
    const struct hb_commit c = {.struct_size = sizeof c,
                                .n_rows = 2,
                                .step = {step, 2},
                                .track_indices = {dst, 2},
                                .track_steps = {saved, 2}};
    for (int i = 0; i < 2; i++) {
        struct kit *k = &t->k[i];
        kit_batch(k, HB_MODE_TARGET_VERIFY);
        (void)kit_row(k, 1, 7, KIT_DRAFT);
        (void)kit_row(k, 2, 2, KIT_DRAFT);
        k->b.draft_token_num = KIT_DRAFT;
        for (int j = 0; j < 2 * KIT_DRAFT; j++) {
            k->next[j] = NEXT[j % KIT_DRAFT];
            k->sibling[j] = SIBLING[j % KIT_DRAFT];
        }
        if (k->config.window_layout == HB_WINDOWS_DENSE) {
            k->b.retrieve_next_token = (struct hb_i32s){k->next, INT64_C(2) * KIT_DRAFT};
            k->b.retrieve_next_sibling = (struct hb_i32s){k->sibling, INT64_C(2) * KIT_DRAFT};
        }
    }
    run_both(t, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t->k[i].table->commit(t->k[i].h, &c, &t->k[i].e), HB_OK);
    }
    compare_regions(t, 2);
}

static void continue_prefill(struct twins *t) {
    for (int i = 0; i < 2; i++) {
        kit_batch(&t->k[i], HB_MODE_EXTEND);
        (void)kit_row(&t->k[i], 3, 9, 5);
        (void)kit_row(&t->k[i], 1, 10, 2);
    }
    run_both(t, 2);
}

static void both_agree(int32_t form) {
    for (int32_t i = 0; i < N_KINDS; i++) {
        for (int32_t variant = 0; variant < N_VARIANTS; variant++) {
            struct twins *t = open_twins(KINDS[i], (variant + variant / 3 + i) % HB_N_FLOAT_DTYPES,
                                         variant, form);
            compare_regions(t, 0);
            prefill(t);
            decode(t);
            verify_and_commit(t);
            continue_prefill(t);
            close_twins(t);
        }
    }
}

static void the_token_recurrences_agree(void **state) {
    (void)state;
    both_agree(HB_FORM_V0);
}

static void the_fast_forms_agree(void **state) {
    (void)state;
    both_agree(HB_FORM_FAST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_token_recurrences_agree),
        cmocka_unit_test(the_fast_forms_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
