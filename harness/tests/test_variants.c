/* SPDX-License-Identifier: Apache-2.0
 * Every declared variant is visible: for each pair of its values the oracle tells them apart, on
 * some generated layer of each kind that reads it, by more than both bounds together; kinds that do
 * not read it give the same bits. One test per variant. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/batch.h"
#include "harness/oracle/oracle.h"
#include "harness/rng.h"
#include "harness/run.h"
#include "harness/values.h"

enum {
    HEADS = 6, /* no power of two: ALiBi has its second list */
    HEAD_DIM = 4,
    STATE = 8,
    GROUPS = 2,
    TOKENS = 12,
    LAYERS = 4,
    LAYER = 2,
    INNER = HEADS * HEAD_DIM,
    SEEDS = 4,
    CAP = 4096
};

enum {
    MAMBA2 = 1 << HB_LAYER_MAMBA2,
    GDN = 1 << HB_LAYER_GDN,
    KDA = 1 << HB_LAYER_KDA,
    DELTA = GDN | KDA,
    LIGHTNING = 1 << HB_LAYER_LIGHTNING,
    SHORT = 1 << HB_LAYER_SHORT_CONV,
    MAMBA1 = 1 << HB_LAYER_MAMBA1,
    GATED = MAMBA2 | DELTA | LIGHTNING | MAMBA1,
    LINEAR = GATED | SHORT
};

/* ---- generated layers ---- */

struct world {
    struct hb_config config;
    struct hb_layer_params params;
    struct hb_ref_sizes sizes;
    int32_t path, layer;
    uint64_t seed;
    float in[3][CAP], param[6][CAP];
};

static float bf16(float x) {
    return hb_bf16_to_float(hb_bf16_from_float(x));
}

static float uniform(struct hb_rng *rng, float lo, float hi) {
    return bf16(lo + (hi - lo) * (float)hb_rng_below(rng, 1 << 20) * 0x1p-20F);
}

static void fill(struct hb_rng *rng, float lo, float hi, float *out) {
    for (int i = 0; i < CAP; i++) {
        out[i] = uniform(rng, lo, hi);
    }
}

static struct hb_config plain_config(int32_t kind) {
    struct hb_config c = {.struct_size = sizeof c,
                          .n_layers = LAYERS,
                          .n_heads = HEADS,
                          .head_dim = HEAD_DIM,
                          .state_size = STATE,
                          .n_groups = GROUPS,
                          .conv_width = 4,
                          .chunk_size = 16,
                          .page_size = 1,
                          .gate_norm = HB_GATE_NORM_BEFORE,
                          .norm_group = HEAD_DIM,
                          .dt_softplus = 1,
                          .dt_lo = 0.25F,
                          .dt_hi = 1.0F,
                          .norm_eps = 1e-5F,
                          .gate_bound = -5.0F,
                          .slope_kind = HB_SLOPE_MINIMAX,
                          .n_q_heads = 2,
                          .n_kv_heads = 1,
                          .attn_dim = 4,
                          .n_slots = 2,
                          .req_pool_size = 2,
                          .max_context = 2 * TOKENS,
                          .n_kv = 2 * TOKENS,
                          .max_batch = 2,
                          .max_tokens = 2 * TOKENS};
    for (int l = 0; l < LAYERS; l++) {
        c.layer_kind[l] = kind;
    }
    return c;
}

static void make_world(struct world *w, int32_t kind, uint64_t seed) {
    struct hb_rng rng = hb_rng_make(seed, (uint64_t)kind);
    memset(w, 0, sizeof *w);
    w->config = plain_config(kind);
    w->path = HB_PATH_PREFILL;
    w->layer = LAYER;
    w->seed = seed;
    for (int k = 0; k < 3; k++) {
        fill(&rng, -2.0F, 2.0F, w->in[k]);
    }
    fill(&rng, -1.0F, 1.0F, w->param[0]);
    fill(&rng, -0.5F, 0.5F, w->param[1]);
    fill(&rng, -1.5F, -0.1F, w->param[2]);
    fill(&rng, -1.0F, 1.0F, w->param[3]);
    fill(&rng, 0.5F, 1.5F, w->param[4]);
    fill(&rng, 0.5F, 1.5F, w->param[5]);
    const int has_conv = kind != HB_LAYER_LIGHTNING;
    const int has_bias = has_conv && kind != HB_LAYER_SHORT_CONV;
    const int has_d = kind == HB_LAYER_MAMBA2 || kind == HB_LAYER_MAMBA1;
    w->params = (struct hb_layer_params){
        .conv_weight = has_conv ? w->param[0] : NULL,
        .conv_bias = kind == HB_LAYER_MAMBA2 || kind == HB_LAYER_MAMBA1 ? w->param[1] : NULL,
        .a = kind != HB_LAYER_SHORT_CONV ? w->param[2] : NULL,
        .dt_bias = has_bias ? w->param[3] : NULL,
        .d = has_d ? w->param[4] : NULL,
        .norm_weight = kind != HB_LAYER_SHORT_CONV ? w->param[5] : NULL};
}

/* in[2] of lightning: log decays of its tokens. */
static void as_log_decays(struct world *w) {
    for (int i = 0; i < CAP; i++) {
        w->in[2][i] = -bf16(fabsf(w->in[2][i]));
    }
}
/* Steps that lie outside of the limits on both sides, in prefill and in decode. */
static void decode_path(struct world *w) {
    w->path = HB_PATH_DECODE;
}
/* Keys and queries as short as the epsilon of the norm: an identity convolution hands them on. */
static void short_keys(struct world *w) {
    for (int i = 0; i < CAP; i++) {
        w->in[1][i] = bf16(w->in[1][i] * 1e-3F);
        w->param[0][i] = i % 4 == 3 ? 1.0F : 0.0F;
    }
    w->config.conv_act = HB_CONV_NONE;
}
/* Two of the factors differ by 1e-5 only, which counts where there is no other decay, in the last
 * layer, and where nothing cancels. */
static void some_factors(struct world *w) {
    w->config.slope_kind = HB_SLOPE_ALIBI;
    w->config.gate_norm = HB_GATE_NORM_NONE;
    for (int i = 0; i < CAP; i++) {
        w->in[1][i] = fabsf(w->in[1][i]);
    }
    if (w->seed % 2 == 1) {
        w->config.n_layers = 2;
        w->layer = 1;
    }
}

/* ---- one evaluation ---- */

struct result {
    double out[TOKENS * INNER], bound[TOKENS * INNER];
};

static void evaluate(struct world *w, struct result *r) {
    const double u = 0x1p-24;
    const struct hb_profile fp32 = {.io_floor = 0x1p-126,
                                    .u_acc = u,
                                    .e_exp = 2 * u,
                                    .sp_rel = 4 * u,
                                    .restart = 1,
                                    .norm_roundings = 1};
    struct hb_ref_state *state = hb_ref_state_new(&w->config);
    assert_non_null(state);
    hb_ref_linear_sizes(&w->config, w->config.layer_kind[w->layer], &w->sizes);
    for (int k = 0; k < 3; k++) {
        assert_true(w->sizes.width[k] * TOKENS <= CAP);
    }
    assert_int_equal(hb_ref_linear(&w->config, w->layer, &w->params, &fp32, w->path, TOKENS,
                                   w->in[0], w->in[1], w->in[2], state, r->out, r->bound, NULL,
                                   NULL, 0),
                     0);
    hb_ref_state_free(state);
}

/* Some element of both is further apart than both bounds allow together. */
static int are_apart(const struct result *x, const struct result *y) {
    int apart = 0;
    for (int i = 0; i < TOKENS * INNER; i++) {
        apart |= fabs(x->out[i] - y->out[i]) > x->bound[i] + y->bound[i];
    }
    return apart;
}

/* ---- variants ---- */

struct variant {
    const char *name;
    size_t offset;
    int32_t n_values, kinds;
    void (*prepare)(struct world *w); /* may be null */
};
#define VARIANT(field, n, kinds, prepare)                                                          \
    { #field, offsetof(struct hb_config, field), n, kinds, prepare }
static struct variant variants[] = {
    /* written by nobody: cmocka wants void pointers */
    VARIANT(conv_act, HB_N_CONV_ACTS, MAMBA2 | DELTA | MAMBA1, NULL),
    VARIANT(gate_norm, HB_N_GATE_NORMS, GATED, NULL),
    VARIANT(out_gate, HB_N_OUT_GATES, GATED, NULL),
    VARIANT(dt_softplus, 2, MAMBA2 | DELTA | MAMBA1, NULL),
    VARIANT(dt_clamp_prefill, HB_N_DT_CLAMPS, MAMBA2 | MAMBA1, NULL),
    VARIANT(dt_clamp_decode, HB_N_DT_CLAMPS, MAMBA2 | MAMBA1, decode_path),
    VARIANT(head_map, HB_N_HEAD_MAPS, MAMBA2 | DELTA | LIGHTNING, NULL),
    VARIANT(l2norm, HB_N_L2NORMS, DELTA, short_keys),
    VARIANT(beta_form, HB_N_BETA_FORMS, DELTA, NULL),
    VARIANT(gate_form, HB_N_GATE_FORMS, KDA, NULL),
    VARIANT(slope_kind, HB_N_SLOPE_KINDS, LIGHTNING, as_log_decays),
    VARIANT(layer_factor, HB_N_LAYER_FACTORS, LIGHTNING, some_factors),
    VARIANT(qkv_act, HB_N_QKV_ACTS, LIGHTNING, NULL),
};

static void set(struct world *w, const struct variant *v, int32_t value) {
    memcpy((char *)&w->config + v->offset, &value, sizeof value);
}

static int pair_is_told_apart(const struct variant *v, int32_t kind, int32_t a, int32_t b) {
    static struct world w;
    static struct result x, y;
    int apart = 0;
    for (uint64_t seed = 1; seed <= SEEDS && !apart; seed++) {
        make_world(&w, kind, seed);
        if (v->prepare != NULL) {
            v->prepare(&w);
        }
        set(&w, v, a);
        evaluate(&w, &x);
        set(&w, v, b);
        evaluate(&w, &y);
        apart = are_apart(&x, &y);
    }
    return apart;
}

static void values_are_told_apart(void **state) {
    const struct variant *v = *state;
    for (int32_t kind = 0; kind < HB_N_LAYER_KINDS; kind++) {
        const int reads = (v->kinds >> kind & 1) != 0;
        for (int32_t a = 0; a < v->n_values; a++) {
            for (int32_t b = a; b < v->n_values && kind != HB_LAYER_ATTENTION; b++) {
                const int apart = pair_is_told_apart(v, kind, a, b);
                if (apart != (reads && a != b)) {
                    fail_msg("%s %d and %d, kind %d: told apart %d, wanted %d", v->name, a, b, kind,
                             apart, reads && a != b);
                }
            }
        }
    }
}

/* ---- numbers that are declared like variants ---- */

static void numbers_are_told_apart(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
        int32_t kind;
        float a, b;
    } numbers[] = {
        {"qk_scale", offsetof(struct hb_config, qk_scale), HB_LAYER_GDN, 0.0F, 1.0F},
        {"qk_scale", offsetof(struct hb_config, qk_scale), HB_LAYER_KDA, 0.0F, 0.5F},
        {"qk_scale", offsetof(struct hb_config, qk_scale), HB_LAYER_LIGHTNING, 0.0F, 1.0F},
        {"gate_bound", offsetof(struct hb_config, gate_bound), HB_LAYER_KDA, -5.0F, -1.0F},
        {"norm_eps", offsetof(struct hb_config, norm_eps), HB_LAYER_GDN, 1e-5F, 1e-6F},
        {"norm_eps", offsetof(struct hb_config, norm_eps), HB_LAYER_MAMBA2, 1e-5F, 1e-6F},
        {"dt_lo", offsetof(struct hb_config, dt_lo), HB_LAYER_MAMBA2, 0.25F, 0.5F},
        {"dt_hi", offsetof(struct hb_config, dt_hi), HB_LAYER_MAMBA2, 1.0F, 0.75F},
    };
    static struct world w;
    static struct result x, y, again;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        make_world(&w, numbers[i].kind, 1);
        w.config.gate_form = numbers[i].kind == HB_LAYER_KDA ? HB_GATE_LOWER_BOUND : 0;
        w.config.gate_norm =
            strcmp(numbers[i].name, "norm_eps") == 0 ? HB_NORM_ONLY : HB_GATE_NORM_NONE;
        w.config.dt_clamp_prefill = HB_DT_CLAMP_LIMIT;
        memcpy((char *)&w.config + numbers[i].offset, &numbers[i].a, sizeof(float));
        evaluate(&w, &x);
        evaluate(&w, &again);
        memcpy((char *)&w.config + numbers[i].offset, &numbers[i].b, sizeof(float));
        evaluate(&w, &y);
        assert_false(are_apart(&x, &again));
        if (!are_apart(&x, &y)) {
            fail_msg("%s of kind %d is not told apart", numbers[i].name, numbers[i].kind);
        }
    }
}

static void norm_groups_are_told_apart(void **state) {
    (void)state;
    static const int32_t groups[3] = {HEAD_DIM, 2 * HEAD_DIM, INNER};
    static struct world w;
    static struct result r[3];
    for (int32_t kind = 0; kind < HB_N_LAYER_KINDS; kind++) {
        if ((GATED >> kind & 1) == 0) {
            continue;
        }
        make_world(&w, kind, 1);
        for (int i = 0; i < 3; i++) {
            w.config.norm_group = groups[i];
            evaluate(&w, &r[i]);
        }
        assert_true(are_apart(&r[0], &r[1]) && are_apart(&r[0], &r[2]) && are_apart(&r[1], &r[2]));
    }
}

/* ---- attention ---- */

enum { QUERIES = 2, DIM = 4 };

struct attention {
    double out[QUERIES * DIM], bound[QUERIES * DIM];
};

static struct attention attend(const struct hb_config *c) {
    static float q[QUERIES * DIM], keys[TOKENS * DIM], values[TOKENS * DIM];
    const double u = 0x1p-24;
    const struct hb_profile fp32 = {.io_floor = 0x1p-126, .u_acc = u, .e_exp = 2 * u, .restart = 1};
    struct hb_rng rng = hb_rng_make(3, 3);
    struct attention a = {{0}, {0}};
    double mag[QUERIES * DIM];
    for (int i = 0; i < TOKENS * DIM; i++) {
        q[i % (QUERIES * DIM)] = uniform(&rng, -2.0F, 2.0F);
        keys[i] = uniform(&rng, -2.0F, 2.0F);
        values[i] = uniform(&rng, -2.0F, 2.0F);
    }
    hb_ref_attention(c, &fp32, TOKENS, q, keys, values, a.out, a.bound, mag);
    return a;
}

static int attentions_differ(const struct attention *x, const struct attention *y) {
    int apart = 0;
    for (int i = 0; i < QUERIES * DIM; i++) {
        apart |= fabs(x->out[i] - y->out[i]) > x->bound[i] + y->bound[i];
    }
    return apart;
}

/* Rules, widths and caps of the soft cap, each against each. */
static void attention_variants_are_told_apart(void **state) {
    (void)state;
    static const struct {
        int32_t window, rule;
        float softcap, scale;
    } rows[] = {
        {0, HB_WINDOW_EXCLUSIVE, 0.0F, 0.0F}, {3, HB_WINDOW_EXCLUSIVE, 0.0F, 0.0F},
        {3, HB_WINDOW_INCLUSIVE, 0.0F, 0.0F}, {5, HB_WINDOW_EXCLUSIVE, 0.0F, 0.0F},
        {0, HB_WINDOW_EXCLUSIVE, 5.0F, 0.0F}, {0, HB_WINDOW_EXCLUSIVE, 1.0F, 0.0F},
        {0, HB_WINDOW_EXCLUSIVE, 0.0F, 1.0F},
    };
    enum { N = sizeof rows / sizeof rows[0] };
    struct attention a[N];
    for (int i = 0; i < N; i++) {
        struct hb_config c = plain_config(HB_LAYER_ATTENTION);
        c.attn_window = rows[i].window;
        c.window_rule = rows[i].rule;
        c.attn_softcap = rows[i].softcap;
        c.sm_scale = rows[i].scale;
        a[i] = attend(&c);
    }
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            if (attentions_differ(&a[i], &a[j]) != (i != j)) {
                fail_msg("rows %d and %d", i, j);
            }
        }
    }
}

/* Without a window the rule says nothing. */
static void the_rule_of_no_window_is_not_seen(void **state) {
    (void)state;
    struct hb_config c = plain_config(HB_LAYER_ATTENTION);
    const struct attention x = attend(&c);
    c.window_rule = HB_WINDOW_INCLUSIVE;
    const struct attention y = attend(&c);
    assert_memory_equal(x.out, y.out, sizeof x.out);
}

/* ---- forms of the state, seen through the regions of the oracle as a backend ---- */

struct kept {
    struct hb_region region;
    float values[1 << 12]; /* of the slot, fp32 as all of them here */
};

/* One prefill of TOKENS tokens in layer 0, then a region of it. */
static void run_and_read(const struct hb_config *config, struct world *w, const char *name,
                         struct kept *out) {
    const struct hb_adapter *b = hb_adapter_oracle();
    struct hb_error err = {.struct_size = sizeof err};
    struct hb_layer_params params[LAYERS] = {w->params, w->params, w->params, w->params};
    void *handle = NULL;
    int32_t slot = 0, request = 0, length = TOKENS, prefix = 0, n = 0;
    assert_int_equal(b->create(b->ctx, config, params, &handle, &err), HB_OK);
    assert_int_equal(b->slot_take(handle, 1, HB_SLOT_LIVE, &slot, &err), HB_OK);
    assert_int_equal(b->table_set(handle, request, slot, &err), HB_OK);
    struct hb_batch batch = {.struct_size = sizeof batch,
                             .forward_mode = HB_MODE_EXTEND,
                             .batch_size = 1,
                             .n_tokens = TOKENS,
                             .n_extend = 1,
                             .has_extend_num_tokens = 1,
                             .extend_num_tokens = TOKENS,
                             .req_pool_indices = {&request, 1},
                             .seq_lens = {&length, 1},
                             .extend_seq_lens = {&length, 1},
                             .extend_prefix_lens = {&prefix, 1}};
    struct hb_layer_io io = {.struct_size = sizeof io};
    struct hb_buf *const buf[4] = {&io.in[0], &io.in[1], &io.in[2], &io.out};
    hb_ref_linear_sizes(config, config->layer_kind[0], &w->sizes);
    for (int k = 0; k < 4; k++) {
        const uint64_t bytes = (uint64_t)w->sizes.width[k] * TOKENS * sizeof(float);
        if (bytes > 0) {
            assert_int_equal(b->buf_alloc(handle, bytes, buf[k], &err), HB_OK);
        }
        if (bytes > 0 && k < 3) {
            assert_int_equal(b->buf_write(handle, *buf[k], w->in[k], bytes, &err), HB_OK);
        }
    }
    assert_int_equal(b->begin(handle, &batch, &err), HB_OK);
    assert_int_equal(b->layer(handle, 0, &io, &err), HB_OK);
    assert_int_equal(b->finish(handle, &err), HB_OK);
    assert_int_equal(b->n_regions(handle, &n, &err), HB_OK);
    memset(out, 0, sizeof *out);
    for (int32_t i = 0; i < n; i++) {
        struct hb_region r = {.struct_size = sizeof r};
        assert_int_equal(b->region(handle, i, &r, &err), HB_OK);
        if (r.layer == 0 && strcmp(r.name, name) == 0) {
            const uint64_t entry = r.bytes / (uint64_t)r.shape[0];
            out->region = r;
            assert_true(entry <= sizeof out->values);
            assert_int_equal(
                b->region_read(handle, i, (uint64_t)slot * entry, out->values, entry, &err), HB_OK);
        }
    }
    for (int k = 0; k < 4; k++) {
        if (buf[k]->id != 0) {
            b->buf_free(handle, *buf[k]);
        }
    }
    b->destroy(handle);
}

/* The same numbers in another order: bit for bit, and not in the order of the other layout. */
static void state_layouts_are_told_apart(void **state) {
    (void)state;
    static struct world w;
    static struct kept vk, kv;
    for (int32_t kind = 0; kind < HB_N_LAYER_KINDS; kind++) {
        if ((GATED >> kind & 1) == 0) {
            continue;
        }
        make_world(&w, kind, 1);
        run_and_read(&w.config, &w, "temporal", &vk);
        w.config.state_layout = HB_STATE_KV;
        run_and_read(&w.config, &w, "temporal", &kv);
        const float *x = vk.values;
        const float *y = kv.values;
        int differ = 0;
        assert_int_equal(vk.region.shape[2], HEAD_DIM);
        assert_int_equal(kv.region.shape[2], STATE);
        for (int i = 0; i < INNER * STATE; i++) {
            const int head = i / (HEAD_DIM * STATE);
            const int turned = (head * STATE + i % STATE) * HEAD_DIM + i / STATE % HEAD_DIM;
            assert_memory_equal(&x[i], &y[turned], sizeof x[i]);
            differ |= x[i] != y[i];
        }
        assert_true(differ);
    }
}

/* One column more, and the newer ones the same. */
static void conv_state_lengths_are_told_apart(void **state) {
    (void)state;
    static struct world w;
    static struct kept less, more;
    for (int32_t kind = 0; kind < HB_N_LAYER_KINDS; kind++) {
        if ((LINEAR >> kind & 1) == 0 || kind == HB_LAYER_LIGHTNING) {
            continue;
        }
        make_world(&w, kind, 1);
        run_and_read(&w.config, &w, "conv", &less);
        w.config.conv_state_len = HB_CONV_STATE_FULL;
        run_and_read(&w.config, &w, "conv", &more);
        assert_int_equal(less.region.shape[2], 3);
        assert_int_equal(more.region.shape[2], 4);
        for (int64_t c = 0; c < less.region.shape[1]; c++) {
            assert_memory_equal(less.values + c * 3, more.values + c * 4 + 1, 3 * sizeof(float));
        }
    }
}

static void pad_policy_has_one_value(void **state) {
    (void)state;
    assert_int_equal(HB_N_PAD_POLICIES, 1);
}

int main(void) {
    enum { N = sizeof variants / sizeof variants[0] };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(numbers_are_told_apart),
        cmocka_unit_test(norm_groups_are_told_apart),
        cmocka_unit_test(attention_variants_are_told_apart),
        cmocka_unit_test(the_rule_of_no_window_is_not_seen),
        cmocka_unit_test(state_layouts_are_told_apart),
        cmocka_unit_test(conv_state_lengths_are_told_apart),
        cmocka_unit_test(pad_policy_has_one_value),
    };
    struct CMUnitTest tests[N + sizeof others / sizeof others[0]];
    for (size_t i = 0; i < N; i++) {
        tests[i] = (struct CMUnitTest){.name = variants[i].name,
                                       .test_func = values_are_told_apart,
                                       .initial_state = &variants[i]};
    }
    memcpy(tests + N, others, sizeof others);
    return cmocka_run_group_tests_name("variants", tests, NULL, NULL);
}
