/* SPDX-License-Identifier: Apache-2.0
 * How the values of each tensor are distributed, by value class and by what the mixer does with them. A mixer is a row of
 * two tables: the parts of its in[1] and of its in[2] (backend/adapter.h). */
#include "backend/adapter.h"
#include "harness/values_internal.h"

static struct hb_shape shape(enum hb_shape_kind kind, float a, float b) {
    return (struct hb_shape){kind, a, b, 0.0f, 1.0f};
}

static struct hb_shape gate(float a, float b, float special) {
    return (struct hb_shape){HB_SHAPE_GATE, a, b, special, 1.0f};
}

/* --- parts of the activations ----------------------------------------------------------------- */

enum role {
    NOTHING,
    INPUT,     /* what is stored: x, v, and B of state space models */
    READOUT,   /* what reads a state: C, and q without a delta rule */
    QUERY,     /* of a delta rule */
    KEY,       /* of a delta rule */
    STEP,      /* time step before its bias and softplus */
    GATE,      /* the delta rule's a */
    BETA,      /* the delta rule's b */
    LOG_DECAY, /* of lightning, <= 0 */
};
enum size { NONE, INNER, GROUPS, HEADS, HEADS_N, STATE };

struct part {
    enum role role;
    enum size size;
};

static const struct part streams[HB_N_MIXERS][HB_MAX_VALUE_PARTS] = {
    [HB_MIXER_MAMBA2] = {{INPUT, INNER}, {INPUT, GROUPS}, {READOUT, GROUPS}},
    [HB_MIXER_GDN] = {{QUERY, GROUPS}, {KEY, GROUPS}, {INPUT, INNER}},
    [HB_MIXER_KDA] = {{QUERY, GROUPS}, {KEY, GROUPS}, {INPUT, INNER}},
    [HB_MIXER_LIGHTNING] = {{READOUT, GROUPS}, {INPUT, GROUPS}, {INPUT, INNER}},
    [HB_MIXER_SHORT_CONV] = {{INPUT, INNER}, {READOUT, INNER}, {INPUT, INNER}},
    [HB_MIXER_MAMBA1] = {{INPUT, INNER}},
};

static const struct part gates[HB_N_MIXERS][HB_MAX_VALUE_PARTS] = {
    [HB_MIXER_MAMBA2] = {{STEP, HEADS}},
    [HB_MIXER_GDN] = {{GATE, HEADS}, {BETA, HEADS}},
    [HB_MIXER_KDA] = {{GATE, HEADS_N}, {BETA, HEADS}},
    [HB_MIXER_LIGHTNING] = {{LOG_DECAY, HEADS}},
    [HB_MIXER_SHORT_CONV] = {{INPUT, INNER}}, /* not read */
    [HB_MIXER_MAMBA1] = {{STEP, INNER}, {INPUT, STATE}, {READOUT, STATE}},
};

static int32_t channels(const struct hb_case_config *g, enum size size) {
    switch (size) {
    case INNER:
        return g->heads * g->head_dim;
    case GROUPS:
        return g->groups * g->state_size;
    case HEADS:
        return g->heads;
    case HEADS_N:
        return g->heads * g->state_size;
    case STATE:
        return g->state_size;
    default:
        return 0;
    }
}

/* --- shapes by role --------------------------------------------------------------------------- */

/* Whether a log decay comes of softplus(raw + bias) (or of the sigmoid of it), or of raw + bias itself. */
static int has_softplus(const struct hb_case_config *g) {
    return g->dt_softplus || g->gate_form == HB_GATE_LOWER_BOUND;
}

/* Time steps. With softplus 0.018..0.97, without it the same range directly (dt must not be
 * negative). */
static struct hb_shape step_shape(const struct hb_case_config *g) {
    switch (g->value_class) {
    case HB_VALUES_EXACT:
        return shape(HB_SHAPE_INTEGER, 0.0f, 1.0f);
    case HB_VALUES_LARGE_DT: /* decays exp(A dt) that underflow, increments up to 40 */
        return shape(HB_SHAPE_UNIFORM, 0.0f, 40.0f);
    case HB_VALUES_TINY_DT: /* softplus(-15) = 3e-7 */
        return has_softplus(g) ? shape(HB_SHAPE_UNIFORM, -16.0f, -14.0f)
                               : shape(HB_SHAPE_UNIFORM, 1e-7f, 1e-6f);
    default:
        return has_softplus(g) ? shape(HB_SHAPE_UNIFORM, -4.0f, 0.5f)
                               : shape(HB_SHAPE_UNIFORM, 0.02f, 1.0f);
    }
}

/* As time steps, but one of eight is a log decay of exactly 0 in fp32: softplus and sigmoid of -120 underflow. In class
 * LARGE_DT a chunk's log decays sum up to thousands, whose exponential must not be taken with the wrong sign. */
static struct hb_shape gate_shape(const struct hb_case_config *g) {
    struct hb_shape s = step_shape(g);
    if (g->value_class != HB_VALUES_EXACT) { /* there A is 0 */
        s.kind = HB_SHAPE_GATE;
        s.special = has_softplus(g) ? -120.0f : 0.0f;
    }
    return s;
}

/* One of eight is a beta of exactly 0 in fp32. */
static struct hb_shape beta_shape(const struct hb_case_config *g) {
    if (g->value_class == HB_VALUES_EXACT) {
        return shape(HB_SHAPE_INTEGER, 0.0f, 1.0f);
    }
    if (g->beta_form == HB_BETA_RAW) {
        return gate(0.0f, 1.0f, 0.0f);
    }
    return g->value_class == HB_VALUES_LARGE_DT ? gate(-1.0f, 8.0f, -120.0f) : gate(-4.0f, 4.0f, -120.0f);
}

static struct hb_shape log_decay_shape(const struct hb_case_config *g) {
    switch (g->value_class) {
    case HB_VALUES_EXACT:
        return shape(HB_SHAPE_INTEGER, 0.0f, 0.0f);
    case HB_VALUES_LARGE_DT:
        return gate(-40.0f, 0.0f, 0.0f);
    case HB_VALUES_TINY_DT:
        return gate(-1e-6f, -1e-7f, 0.0f);
    default:
        return gate(-1.0f, 0.0f, 0.0f);
    }
}

/* fp16 ends at 65504, which products of three wide numbers and sums of them must not reach. */
static struct hb_shape wide_shape(const struct hb_case_config *g) {
    return g->act_dtype == HB_FP16 ? shape(HB_SHAPE_POWER, -8.0f, 1.0f)
                                   : shape(HB_SHAPE_POWER, -10.0f, 10.0f);
}

static struct hb_shape input_shape(const struct hb_case_config *g) {
    switch (g->value_class) {
    case HB_VALUES_EXACT:
        return shape(HB_SHAPE_INTEGER, -3.0f, 3.0f);
    case HB_VALUES_WIDE:
        return wide_shape(g);
    case HB_VALUES_CANCEL:
        return shape(HB_SHAPE_CANCEL_X, 1.0f, 1.01f);
    default:
        return shape(HB_SHAPE_NORMAL, 1.0f, 0.0f);
    }
}

/* In class CANCEL what reads the state alternates by channel, so that y = sum_n S C cancels too. */
static struct hb_shape readout_shape(const struct hb_case_config *g) {
    return g->value_class == HB_VALUES_CANCEL ? shape(HB_SHAPE_CANCEL_C, 1.0f, 1.01f) : input_shape(g);
}

/* Keys and queries of class TINY_DT: their norms are about 1e-3, where the eps of the normalisation counts. */
static const float tiny_norm = 0x1p-10f;

/* Without normalisation |k| must stay about 1 or less, else the recurrence grows without limit: the convolution gives about
 * N(0, 1), so that a factor of at most 1 / (2 sqrt(N)) makes |k| 1/2. */
static float key_scale(const struct hb_case_config *g) {
    float scale = g->value_class == HB_VALUES_TINY_DT ? tiny_norm : 1.0f;
    if (g->l2norm == HB_L2_OFF) {
        scale = 0.5f;
        for (int32_t n = 1; n < g->state_size; n *= 4) {
            scale *= 0.5f;
        }
    }
    return scale;
}

static struct hb_shape key_shape(const struct hb_case_config *g) {
    struct hb_shape s = input_shape(g);
    if (g->value_class == HB_VALUES_WIDE && g->l2norm == HB_L2_OFF) {
        s = shape(HB_SHAPE_POWER, -8.0f, 0.0f);
    }
    s.scale = key_scale(g);
    return s;
}

static struct hb_shape query_shape(const struct hb_case_config *g) {
    struct hb_shape s = readout_shape(g);
    s.scale = g->value_class == HB_VALUES_TINY_DT ? tiny_norm : 1.0f;
    return s;
}

static struct hb_shape role_shape(const struct hb_case_config *g, enum role role) {
    switch (role) {
    case READOUT:
        return readout_shape(g);
    case QUERY:
        return query_shape(g);
    case KEY:
        return key_shape(g);
    case STEP:
        return step_shape(g);
    case GATE:
        return gate_shape(g);
    case BETA:
        return beta_shape(g);
    case LOG_DECAY:
        return log_decay_shape(g);
    default:
        return input_shape(g);
    }
}

/* --- parameters ------------------------------------------------------------------------------- */

/* Small integers. A = 0, so nothing decays and S only adds; root mean squares: convolution 3.4, S
 * after 200 tokens 120, y over 128 state columns 5000 and the sum of its absolute terms 30000, far
 * below the 2^24 up to which fp32 is exact in any order. The delta rule has keys of one entry 1 or -1 and beta 0 or 1, so
 * that each column of S holds a value or an initial one: nothing grows, and the triangular system of a chunk has an inverse
 * of entries 0, 1, -1. The 16-bit types round stored results once, as every backend must. */
static struct hb_shape exact_shape(int32_t tensor) {
    switch (tensor) {
    case HB_TENSOR_A:
    case HB_TENSOR_DT_BIAS:
        return shape(HB_SHAPE_INTEGER, 0.0f, 0.0f);
    case HB_TENSOR_CONV_WEIGHT:
    case HB_TENSOR_CONV_BIAS:
        return shape(HB_SHAPE_INTEGER, -1.0f, 1.0f);
    case HB_TENSOR_D:
        return shape(HB_SHAPE_INTEGER, -2.0f, 2.0f);
    case HB_TENSOR_NORM_WEIGHT:
        return shape(HB_SHAPE_INTEGER, 1.0f, 1.0f);
    default:
        return shape(HB_SHAPE_INTEGER, -3.0f, 3.0f);
    }
}

/* Parameters of the classes that are not exact. */
static struct hb_shape parameter_shape(const struct hb_case_config *g, int32_t tensor) {
    switch (tensor) {
    case HB_TENSOR_CONV_WEIGHT: /* about 1 / sqrt(K) */
        return shape(HB_SHAPE_NORMAL, 0.55f, 0.0f);
    case HB_TENSOR_CONV_BIAS:
        return shape(HB_SHAPE_NORMAL, 0.2f, 0.0f);
    case HB_TENSOR_A:
        return g->mixer == HB_MIXER_LIGHTNING ? log_decay_shape(g) : shape(HB_SHAPE_UNIFORM, -4.0f, -0.1f);
    case HB_TENSOR_DT_BIAS: /* without softplus dt = dt_raw + bias must stay positive */
        return has_softplus(g) ? shape(HB_SHAPE_UNIFORM, -0.5f, 0.5f) : shape(HB_SHAPE_UNIFORM, 0.0f, 1e-6f);
    case HB_TENSOR_D:
        return shape(HB_SHAPE_NORMAL, 0.5f, 0.5f);
    default: /* norm weight */
        return shape(HB_SHAPE_NORMAL, 0.15f, 1.0f);
    }
}

static int is_parameter(int32_t tensor) {
    return tensor >= HB_TENSOR_CONV_WEIGHT && tensor <= HB_TENSOR_NORM_WEIGHT;
}

/* --- parts ------------------------------------------------------------------------------------ */

/* Tensors of one shape: gate, attention, initial states, parameters. */
static struct hb_shape plain_shape(const struct hb_case_config *g, int32_t tensor) {
    const int is_score = tensor == HB_TENSOR_Q || tensor == HB_TENSOR_K;
    if (tensor == HB_TENSOR_NOISE) {
        return shape(HB_SHAPE_NORMAL, 3.0f, 0.5f);
    }
    if (g->value_class == HB_VALUES_EXACT) {
        return exact_shape(tensor);
    }
    if (is_parameter(tensor)) {
        return parameter_shape(g, tensor);
    }
    if (g->value_class == HB_VALUES_WIDE) {
        /* scores of attention stay where a softmax has more than one non-zero weight */
        return is_score ? shape(HB_SHAPE_POWER, -6.0f, 1.0f) : wide_shape(g);
    }
    if (g->value_class == HB_VALUES_CANCEL && tensor == HB_TENSOR_V) {
        return shape(HB_SHAPE_CANCEL_X, 1.0f, 1.01f);
    }
    /* scores beyond +-100: a softmax that does not subtract its largest score overflows */
    if (g->value_class == HB_VALUES_LARGE_DT && is_score) {
        return shape(HB_SHAPE_NORMAL, 8.0f, 0.0f);
    }
    return shape(HB_SHAPE_NORMAL, 1.0f, 0.0f);
}

/* What a conv channel's weights, bias and window are by the role of the channel. */
static void conv_part(const struct hb_case_config *g, int32_t tensor, enum role role,
                      struct hb_value_part *p) {
    const int is_unit = role == KEY && g->value_class == HB_VALUES_EXACT;
    if (tensor == HB_TENSOR_INIT_CONV) {
        /* the windows of all channels are of one sign pattern: no channel's is the readout's */
        p->shape = role == KEY ? key_shape(g) : input_shape(g);
        p->shape.scale = role == QUERY ? query_shape(g).scale : p->shape.scale;
        p->fill = is_unit ? HB_FILL_UNIT : HB_FILL_SHAPE;
        return;
    }
    p->shape = plain_shape(g, tensor);
    if (tensor == HB_TENSOR_CONV_WEIGHT) {
        p->fill = is_unit ? HB_FILL_TAP : HB_FILL_SHAPE;
    } else if (is_unit) {
        p->shape = shape(HB_SHAPE_INTEGER, 0.0f, 0.0f);
    } else if (role == KEY || role == QUERY) {
        p->shape.scale = role_shape(g, role).scale; /* the bias must not drown what is small */
    }
}

static int32_t columns(const struct hb_case_config *g, int32_t tensor) {
    const int32_t window = g->conv_width - 1 + (g->conv_state_len == HB_CONV_STATE_FULL);
    return tensor == HB_TENSOR_INIT_CONV ? window : tensor == HB_TENSOR_CONV_WEIGHT ? g->conv_width : 1;
}

static int32_t list_parts(const struct hb_case_config *g, int32_t tensor, const struct part *parts,
                          struct hb_value_part *out) {
    const int is_conv = tensor >= HB_TENSOR_INIT_CONV;
    int32_t n = 0;
    for (; n < HB_MAX_VALUE_PARTS && parts[n].role != NOTHING; n++) {
        struct hb_value_part *p = &out[n];
        const enum role role = parts[n].role;
        *p = (struct hb_value_part){.columns = columns(g, tensor), .vector = g->state_size};
        p->n = channels(g, parts[n].size) * p->columns;
        if (is_conv) {
            conv_part(g, tensor, role, p);
        } else {
            p->shape = role_shape(g, role);
            p->fill = role == KEY && g->value_class == HB_VALUES_EXACT ? HB_FILL_UNIT : HB_FILL_SHAPE;
        }
        const int has_sign = role == STEP || role == GATE || role == BETA || role == LOG_DECAY;
        p->is_positive = g->value_class == HB_VALUES_ONE_SIGN && !has_sign;
    }
    return n;
}

int32_t hb_value_parts(const struct hb_case_config *g, int32_t tensor,
                       struct hb_value_part out[HB_MAX_VALUE_PARTS]) {
    /* the conv of short conv runs over B x, which has d_inner channels */
    static const struct part inner[HB_MAX_VALUE_PARTS] = {{INPUT, INNER}};
    switch (tensor) {
    case HB_TENSOR_XBC:
        return list_parts(g, tensor, streams[g->mixer], out);
    case HB_TENSOR_DT:
        return list_parts(g, tensor, gates[g->mixer], out);
    case HB_TENSOR_INIT_CONV:
    case HB_TENSOR_CONV_WEIGHT:
    case HB_TENSOR_CONV_BIAS:
        return list_parts(g, tensor, g->mixer == HB_MIXER_SHORT_CONV ? inner : streams[g->mixer], out);
    default:
        break;
    }
    const int has_sign = tensor == HB_TENSOR_A || tensor == HB_TENSOR_DT_BIAS;
    out[0] = (struct hb_value_part){.shape = plain_shape(g, tensor), .columns = 1, .vector = 1};
    out[0].is_positive = g->value_class == HB_VALUES_ONE_SIGN && !has_sign;
    return 1;
}
