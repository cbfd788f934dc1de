/* SPDX-License-Identifier: Apache-2.0
 * Identities of the recurrences (ops-mamba2.md 7, ops-delta.md 6) on the emulated backend and, by
 * what it is compared with, in the oracle: those that are no relation of two runs of one case.
 * Each is silent on the right backend and not on one with a wrong output or state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/defects.h"
#include "harness/tests/identity_linear.h"
#include "harness/tests/mischief.h"

#define MIXER(name) (1u << HB_MIXER_##name)
enum {
    EVERY = (1 << HB_N_MIXERS) - 1,
    WITH_STATE = EVERY & ~MIXER(SHORT_CONV),
    DELTA = MIXER(GDN) | MIXER(KDA)
};
static const int32_t wrong[] = {MISCHIEF_OUTPUT, MISCHIEF_TEMPORAL};

/* --- S = e^g S + w x b ------------------------------------------------------------------------ */

/* Outputs and states that are not those of S = e^g S + w x b, y = c.S, from the initial state. */
static int64_t plain_apart(const struct identity *x) {
    const struct sizes s = sizes_of(x);
    int64_t apart = x->n_state != s.n_state || x->width != s.inner;
    for (int32_t channel = 0; channel < s.inner; channel++) {
        double state[ID_STATE] = {0}, size[ID_STATE] = {0};
        for (int32_t n = 0; n < s.state && x->first > 0; n++) {
            state[n] = (double)x->init[channel * s.state + n];
            size[n] = fabs(state[n]);
        }
        for (int32_t t = x->first; t < x->first + x->n_tokens; t++) {
            double y = 0.0, scale = 0.0;
            for (int32_t n = 0; n < s.state; n++) {
                const int32_t i = channel * s.state + n;
                const double decay = exp(log_decay(x, t, i));
                const double add = is_delta(x) ? 0.0 : addend(x, t, i); /* beta is 0 */
                state[n] = decay * state[n] + add;
                size[n] = decay * size[n] + fabs(add);
                y += reader(x, t, i) * state[n];
                scale += fabs(reader(x, t, i)) * size[n];
            }
            apart += is_apart((double)x->out[t][channel], x->want[t][channel],
                              x->bound[t][channel], y, scale);
        }
        for (int32_t n = 0; n < s.state; n++) {
            const int32_t i = channel * s.state + n;
            apart += is_apart((double)x->state[i], x->state_want[i], x->state_bound[i], state[n],
                              size[n]);
        }
    }
    return apart;
}

/* --- nothing is put in, or nothing decays ----------------------------------------------------- */

/* ops-mamba2.md 5, ops-delta.md 2: x = 0, or beta = 0. */
static void no_input(struct identity *x, const struct hb_value_key *key, int32_t n, float *out) {
    const struct sizes s = sizes_of(x);
    const int32_t mixer = x->c.config.mixer;
    const int is_x_first = mixer == HB_MIXER_MAMBA2 || mixer == HB_MIXER_MAMBA1;
    const int32_t first = is_delta(x) ? n - s.heads : is_x_first ? 0 : n - s.inner;
    const int32_t end = is_x_first ? s.inner : n;
    identity_pass(x, key, n, out);
    if (key->tensor == (is_delta(x) ? HB_TENSOR_DT : HB_TENSOR_XBC)) {
        for (int32_t i = first; i < end; i++) {
            out[i] = 0.0F;
        }
    }
    for (int32_t i = 0; i < n && key->tensor == HB_TENSOR_INIT_CONV; i++) {
        out[i] = 0.0F; /* so that no window brings any */
    }
}

/* ops-mamba2.md 6: A = 0; the delta rules have 3 and 4 instead. */
static void no_decay(struct identity *x, const struct hb_value_key *key, int32_t n, float *out) {
    const int is_lightning = x->c.config.mixer == HB_MIXER_LIGHTNING;
    identity_pass(x, key, n, out);
    for (int32_t i = 0; i < n && key->tensor == (is_lightning ? HB_TENSOR_DT : HB_TENSOR_A); i++) {
        out[i] = 0.0F;
    }
}

typedef void (*bend_fn)(struct identity *x, const struct hb_value_key *key, int32_t n, float *out);

static int64_t plain_identity(const struct hb_adapter *backend, int32_t mixer, bend_fn bend,
                              int32_t form, int32_t head_map, int32_t defect) {
    struct identity x;
    identity_case(&x, mixer, ID_PREFIX);
    x.defect = defect;
    identity_steps(&x, ID_PROMPT, 2);
    identity_core(&x);
    identity_form(&x, form);
    x.c.config.head_map = head_map;
    x.bend = bend;
    identity_run(&x, backend);
    return plain_apart(&x);
}

static void check_plain(uint32_t mixers, bend_fn bend) {
    for (int32_t mixer = 0; mixer < HB_N_MIXERS; mixer++) {
        struct mischief m;
        if (!(mixers >> mixer & 1)) {
            continue;
        }
        for (int32_t k = 0; k < 2 * IDENTITY_FORMS; k++) {
            assert_int_equal(plain_identity(hb_adapter_emu(), mixer, bend, k >> 1, k & 1, 0), 0);
        }
        for (int32_t i = 0; i < 2; i++) {
            assert_true(plain_identity(mischief_init(&m, wrong[i], 0), mixer, bend, 0, 0, 0) > 0);
        }
    }
}

static void without_input_the_start_decays(void **state) {
    (void)state;
    check_plain(WITH_STATE, no_input);
}

static void without_decay_the_state_is_a_sum(void **state) {
    (void)state;
    check_plain(WITH_STATE & ~DELTA, no_decay);
}

/* --- orthonormal keys ------------------------------------------------------------------------- */

/* ops-delta.md 3, 4: no decay, beta = 1, unit vector t modulo N as the key of token t; values
 * repeat with the keys. From N tokens on nothing changes. */
static void unit_keys(struct identity *x, const struct hb_value_key *key, int32_t n, float *out) {
    const struct sizes s = sizes_of(x);
    identity_pass(x, key, n, out);
    if (key->tensor == HB_TENSOR_DT) {
        for (int32_t i = 0; i < n; i++) {
            out[i] = i < n - s.heads ? 0.0F : 1.0F;
        }
    } else if (key->tensor == HB_TENSOR_XBC) {
        struct hb_value_key first = *key;
        first.position %= s.state;
        hb_values_fill(&x->c, &first, n, out);
        for (int32_t i = 0; i < s.keys; i++) {
            out[s.keys + i] = i % s.state == key->position % s.state ? 1.0F : 0.0F;
        }
    }
}

/* Elements of the state, after so many tokens, that are not v of the last token of their key. */
static int64_t keys_apart(const struct hb_adapter *backend, int32_t mixer, int32_t form,
                          int32_t n_tokens, int32_t defect) {
    struct identity x;
    int64_t apart = 0;
    identity_case(&x, mixer, 0);
    x.defect = defect;
    identity_steps(&x, n_tokens - 2, 2);
    identity_core(&x);
    identity_form(&x, form);
    x.bend = unit_keys;
    identity_run(&x, backend);
    const struct sizes s = sizes_of(&x);
    for (int32_t i = 0; i < s.n_state; i++) {
        const int32_t t = i % s.state;
        const float v = x.in[1][t][2 * s.keys + i / s.state];
        apart += x.state[i] != v || x.state_want[i] != (double)v;
    }
    for (int32_t t = 0; t < n_tokens; t++) { /* only what was stored is read */
        for (int32_t channel = 0; channel < s.inner; channel++) {
            double y = 0.0, scale = 0.0;
            for (int32_t n = 0; n < s.state && n <= t; n++) {
                const double term = reader(&x, t, channel * s.state + n) *
                                    (double)x.in[1][n][2 * s.keys + channel];
                y += term;
                scale += fabs(term);
            }
            apart += is_apart((double)x.out[t][channel], x.want[t][channel], x.bound[t][channel],
                              y, scale);
        }
    }
    return apart;
}

static void orthonormal_keys_are_read_back_and_repeats_change_nothing(void **state) {
    (void)state;
    for (int32_t mixer = HB_MIXER_GDN; mixer <= HB_MIXER_KDA; mixer++) {
        static const int32_t tokens[] = {8, 16, 24, 19};
        struct mischief m;
        for (int32_t k = 0; k < 4 * IDENTITY_FORMS; k++) {
            assert_int_equal(keys_apart(hb_adapter_emu(), mixer, k >> 2, tokens[k & 3], 0), 0);
        }
        for (int32_t i = 0; i < 2; i++) {
            assert_true(keys_apart(mischief_init(&m, wrong[i], 0), mixer, 0, 16, 0) > 0);
        }
    }
}

/* --- one mixer is another --------------------------------------------------------------------- */

/* ops-delta.md 5: the decay of channel 0 of KDA is that of all, and of GDN. */
static void one_decay(struct identity *x, const struct hb_value_key *key, int32_t n, float *out) {
    const struct sizes s = sizes_of(x);
    const int is_gdn = x->c.config.mixer == HB_MIXER_GDN;
    if (key->tensor != HB_TENSOR_DT) {
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        const int is_beta = i >= n - s.heads;
        const int32_t head = is_beta ? i - (n - s.heads) : is_gdn ? i : i / s.state;
        const int64_t draw = (key->position * 7 + head * 5 + is_beta * 3) % 16;
        out[i] = is_beta ? (float)(draw - 8) * 0.5F : (float)(draw - 12) * 0.25F;
    }
}

static int64_t kda_apart(const struct hb_adapter *kda, int32_t form, int32_t head_map,
                         int32_t defect) {
    struct identity x[2];
    for (int32_t k = 0; k < 2; k++) {
        identity_case(&x[k], k ? HB_MIXER_KDA : HB_MIXER_GDN, ID_PREFIX);
        identity_steps(&x[k], ID_PROMPT, 2);
        identity_form(&x[k], form);
        x[k].c.config.dt_bias = 0; /* [H] here, [H, N] there */
        x[k].c.config.head_map = head_map;
        x[k].bend = one_decay;
        x[k].defect = k ? defect : 0;
        identity_run(&x[k], k ? kda : hb_adapter_emu());
    }
    assert_memory_equal(x[0].want, x[1].want, sizeof x[0].want);
    return runs_apart(&x[0], &x[1]);
}

static void kda_with_one_decay_is_gdn(void **state) {
    (void)state;
    struct mischief m;
    for (int32_t k = 0; k < 2 * IDENTITY_FORMS; k++) {
        assert_int_equal(kda_apart(hb_adapter_emu(), k >> 1, k & 1, 0), 0);
    }
    for (int32_t i = 0; i < 2; i++) {
        assert_true(kda_apart(mischief_init(&m, wrong[i], 0), 0, 0, 0) > 0);
    }
}

/* ops-delta.md 6: orthogonal keys and no state, so that nothing is predicted. beta is 1/2, which
 * simple GLA has in v; A is -1/2. */
static void nothing_predicted(struct identity *x, const struct hb_value_key *key, int32_t n,
                              float *out) {
    const struct sizes s = sizes_of(x);
    identity_pass(x, key, n, out);
    if (key->tensor == HB_TENSOR_XBC) {
        for (int32_t i = 0; i < s.keys; i++) {
            out[s.keys + i] = i % s.state == key->position ? 1.0F : 0.0F;
        }
        for (int32_t i = 2 * s.keys; i < n && !is_delta(x); i++) {
            out[i] *= 0.5F;
        }
    } else if (key->tensor == HB_TENSOR_A) {
        for (int32_t i = 0; i < n; i++) {
            out[i] = -0.5F;
        }
    } else if (key->tensor == HB_TENSOR_DT) {
        for (int32_t i = 0; i < n; i++) {
            const int32_t gates = n - s.heads;
            const int32_t head = x->c.config.mixer == HB_MIXER_KDA ? i / s.state : i;
            const float raw = (float)((key->position * 3 + head) % 5) * 0.25F;
            out[i] = !is_delta(x) ? -0.5F * raw : i < gates ? raw : 0.5F;
        }
    }
}

static int64_t gla_apart(const struct hb_adapter *delta, int32_t mixer, int32_t form,
                         int32_t head_map, int32_t defect) {
    struct identity x[2];
    for (int32_t k = 0; k < 2; k++) {
        identity_case(&x[k], k ? mixer : HB_MIXER_LIGHTNING, 0);
        x[k].defect = k ? defect : 0;
        identity_steps(&x[k], 6, 2); /* as many tokens as there are orthogonal keys */
        identity_core(&x[k]);
        identity_form(&x[k], form);
        x[k].c.config.head_map = head_map;
        x[k].bend = nothing_predicted;
        identity_run(&x[k], k ? delta : hb_adapter_emu());
    }
    return runs_apart(&x[0], &x[1]);
}

static void without_a_prediction_it_is_simple_gla(void **state) {
    (void)state;
    for (int32_t mixer = HB_MIXER_GDN; mixer <= HB_MIXER_KDA; mixer++) {
        struct mischief m;
        for (int32_t k = 0; k < 2 * IDENTITY_FORMS; k++) {
            assert_int_equal(gla_apart(hb_adapter_emu(), mixer, k >> 1, k & 1, 0), 0);
        }
        for (int32_t i = 0; i < 2; i++) {
            assert_true(gla_apart(mischief_init(&m, wrong[i], 0), mixer, 0, 0, 0) > 0);
        }
    }
}

/* --- heads of one group change places --------------------------------------------------------- */

/* The head whose place it takes: the other one of its key head, or group. */
static int32_t other_head(const struct identity *x, int32_t head) {
    return x->c.config.head_map == HB_HEADS_TILE ? head ^ x->c.config.groups : head ^ 1;
}

static void permute(const struct identity *x, int32_t per_head, float *values) {
    float old[ID_STATE];
    const int32_t n = x->c.config.heads * per_head;
    assert_in_range(n, 0, ID_STATE);
    memcpy(old, values, (size_t)n * sizeof *old);
    for (int32_t i = 0; i < n; i++) {
        values[i] = old[other_head(x, i / per_head) * per_head + i % per_head];
    }
}

/* arg 1: all that belongs to a head moves with it; what heads share stays. */
static void heads_permuted(struct identity *x, const struct hb_value_key *key, int32_t n,
                           float *out) {
    const struct sizes s = sizes_of(x);
    const int32_t mixer = x->c.config.mixer;
    const int is_input = key->tensor == HB_TENSOR_XBC;
    const int is_channels = is_input || key->tensor == HB_TENSOR_INIT_CONV ||
                            key->tensor == HB_TENSOR_CONV_WEIGHT ||
                            key->tensor == HB_TENSOR_CONV_BIAS;
    const int has_pairs = mixer != HB_MIXER_MAMBA1 && mixer != HB_MIXER_SHORT_CONV;
    const int32_t pairs = has_pairs ? 2 * s.keys : 0;
    if (x->arg == 0) {
        return;
    }
    if (mixer == HB_MIXER_SHORT_CONV && is_input) { /* B | C | x */
        for (int32_t i = 0; i < 3; i++) {
            permute(x, s.head_dim, out + i * s.inner);
        }
    } else if (is_channels) { /* x | B | C, or q | k | v; each with the columns of its window */
        const int32_t columns = n / (s.inner + pairs);
        permute(x, s.head_dim * columns, out + (mixer == HB_MIXER_MAMBA2 ? 0 : pairs * columns));
    } else if (key->tensor == HB_TENSOR_DT && mixer == HB_MIXER_MAMBA1) { /* dt | B | C */
        permute(x, s.head_dim, out);
    } else if (key->tensor == HB_TENSOR_DT && is_delta(x)) { /* a | b */
        permute(x, n / s.heads - 1, out);
        permute(x, 1, out + n - s.heads);
    } else {
        permute(x, n / s.heads, out);
    }
}

/* ops-delta.md 8: outputs and states of the heads change places, bit by bit. */
static int64_t heads_apart(const struct hb_adapter *backend, int32_t mixer, int32_t form,
                           int32_t head_map) {
    struct identity x[2];
    int64_t apart = 0;
    for (int32_t k = 0; k < 2; k++) {
        identity_case(&x[k], mixer, ID_PREFIX);
        identity_steps(&x[k], ID_PROMPT, 2);
        identity_form(&x[k], form);
        x[k].c.config.gate_norm = HB_GATE_NORM_BEFORE;
        x[k].c.config.conv_bias = 1;
        x[k].c.config.dt_bias = 1;
        x[k].c.config.head_map = head_map;
        x[k].c.config.slope_kind = HB_SLOPE_TOKEN;
        x[k].bend = heads_permuted;
        x[k].arg = k;
        identity_run(&x[k], k ? backend : hb_adapter_emu());
    }
    const int32_t width = x[0].width, per = width / x[0].c.config.heads;
    for (int32_t t = x[0].first; t < x[0].first + x[0].n_tokens; t++) {
        for (int32_t i = 0; i < width; i++) {
            const int32_t j = other_head(&x[0], i / per) * per + i % per;
            apart += x[0].out[t][i] != x[1].out[t][j] || x[0].want[t][i] != x[1].want[t][j];
        }
    }
    const int32_t size = x[0].n_state / x[0].c.config.heads;
    for (int32_t i = 0; i < x[0].n_state; i++) {
        const int32_t j = other_head(&x[0], i / size) * size + i % size;
        apart += x[0].state[i] != x[1].state[j] || x[0].state_want[i] != x[1].state_want[j];
    }
    return apart;
}

static void heads_of_one_group_change_places_bit_by_bit(void **state) {
    (void)state;
    for (int32_t mixer = 0; mixer < HB_N_MIXERS; mixer++) {
        struct mischief m;
        for (int32_t k = 0; k < 2 * IDENTITY_FORMS; k++) {
            assert_int_equal(heads_apart(hb_adapter_emu(), mixer, k >> 1, k & 1), 0);
        }
        assert_true(heads_apart(mischief_init(&m, MISCHIEF_LAST_BIT, 0), mixer, 0, 0) > 0);
        if (mixer != HB_MIXER_SHORT_CONV) {
            assert_true(heads_apart(mischief_init(&m, MISCHIEF_TEMPORAL, 0), mixer, 0, 0) > 0);
        }
    }
}

/* --- planted defects -------------------------------------------------------------------------- */

static const struct {
    int32_t mixer, form, defect;
    bend_fn bend;
} of_plain[] = {
    {HB_MIXER_KDA, HB_FORM_V0, HB_DEFECT_KDA_DECAY_SCALAR, no_input},
    {HB_MIXER_MAMBA2, HB_FORM_V0, HB_DEFECT_MAMBA2_DECAY_SIGN, no_input},
    {HB_MIXER_MAMBA1, HB_FORM_V0, HB_DEFECT_MAMBA1_DECAY_SIGN, no_input},
    {HB_MIXER_LIGHTNING, HB_FORM_V0, HB_DEFECT_DECAY_ZERO_GATE, no_decay},
    {HB_MIXER_LIGHTNING, HB_FORM_V0, HB_DEFECT_DECAY_HEAD_MAP, no_decay},
    {HB_MIXER_MAMBA2, HB_FORM_V0, HB_DEFECT_GROUP_MODULO, no_decay},
    {HB_MIXER_MAMBA2, HB_FORM_FAST, HB_DEFECT_CHUNK_OFF_BY_ONE, no_decay},
};

static void planted_defects_break_identities(void **state) {
    (void)state;
    const struct hb_adapter *emu = hb_adapter_emu();
    if (!identity_has_defects()) {
        skip();
    }
    for (int32_t mixer = HB_MIXER_GDN; mixer <= HB_MIXER_KDA; mixer++) {
        assert_true(plain_identity(emu, mixer, no_input, 0, 0, HB_DEFECT_DELTA_DECAY_SIGN) > 0);
        assert_true(keys_apart(emu, mixer, 0, 16, HB_DEFECT_DELTA_ZERO_GATE) > 0);
        assert_true(gla_apart(emu, mixer, 0, 0, HB_DEFECT_DELTA_DECAY_SIGN) > 0);
        assert_true(gla_apart(emu, mixer, 0, 0, HB_DEFECT_DELTA_HEAD_MAP) > 0);
    }
    for (size_t i = 0; i < sizeof of_plain / sizeof *of_plain; i++) {
        assert_true(plain_identity(emu, of_plain[i].mixer, of_plain[i].bend, of_plain[i].form, 0,
                                   of_plain[i].defect) > 0);
    }
    assert_true(kda_apart(emu, 0, 0, HB_DEFECT_DELTA_HEAD_MAP) > 0);
    assert_true(kda_apart(emu, 0, 0, HB_DEFECT_DELTA_PREDICTION) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_input_the_start_decays),
        cmocka_unit_test(without_decay_the_state_is_a_sum),
        cmocka_unit_test(orthonormal_keys_are_read_back_and_repeats_change_nothing),
        cmocka_unit_test(kda_with_one_decay_is_gdn),
        cmocka_unit_test(without_a_prediction_it_is_simple_gla),
        cmocka_unit_test(heads_of_one_group_change_places_bit_by_bit),
        cmocka_unit_test(planted_defects_break_identities),
    };
    return cmocka_run_group_tests_name("identities", tests, NULL, NULL);
}
