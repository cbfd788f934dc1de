/* SPDX-License-Identifier: Apache-2.0
 * Transformations of the relations of labels and batch composition (invariants.md 15, 16, 24, 25,
 * 28, 29, 31 to 34, 36): other slots and requests, other rows in a batch, the same tokens by
 * another path. */
#include <string.h>

#include "harness/relations_internal.h"

/* Rows of a step of the extend family that extend. */
static int32_t extend_rows(const struct hb_case_step *s) {
    const int32_t n_decode = s->mode == HB_MODE_MIXED ? s->n_decode : 0;
    return n_decode < s->n_rows ? s->n_rows - n_decode : 0;
}

static int is_decode(const struct hb_case_step *s) {
    return hb_relation_is_forward(s) && s->mode == HB_MODE_DECODE;
}

/* Steps that may still be put in before step i of c. */
static int32_t room(const struct hb_case *c, const struct hb_case *out, int32_t i) {
    return HB_MAX_STEPS - out->n_steps - (c->n_steps - i);
}

/* --- labels ----------------------------------------------------------------------------------- */

static int other_slots(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)out;
    twist->rotate_slots = 1 + c->config.relation_arg;
    return hb_relation_is_plain(c);
}

static void values_of(void *ctx, const struct hb_case *c, const struct hb_value_key *key, int32_t n,
                      float *out) {
    (void)c;
    hb_values_fill(ctx, key, n, out);
}

static int uses_request(const struct hb_case *c, int32_t request) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (s->kind == HB_STEP_TAKE && s->slot_kind == 0 &&
            (s->request & (HB_MAX_REQS - 1)) == request) {
            return 1;
        }
    }
    return 0;
}

/* The rows of the request pool go by the seed: another seed, the values of this one. */
static int other_requests(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    enum { TRIES = 64 };
    for (int32_t i = 0; i < c->n_steps; i++) {
        if (hb_step_is_verify(&c->step[i]) && c->step[i].tree >= HB_TREE_RANDOM) {
            return 0; /* shapes of trees go by the seed too */
        }
    }
    twist->keep_config = 1;
    twist->values = (struct hb_value_source){.ctx = (void *)c, .fill = values_of};
    for (int32_t k = 1; k <= TRIES && hb_relation_is_plain(c); k++) {
        out->config.seed = (int32_t)((uint32_t)c->config.seed + (uint32_t)k * 0x9e3779b9u);
        for (int32_t q = 0; q < HB_MAX_REQS; q++) {
            if (uses_request(c, q) && hb_case_req_index(c, q) != hb_case_req_index(out, q)) {
                return 1;
            }
        }
    }
    return 0;
}

/* --- rows ------------------------------------------------------------------------------------- */

static int permute_extend(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const int32_t n = hb_relation_is_extend(&c->step[i]) ? extend_rows(&c->step[i]) : 0;
        const int32_t by = n > 1 ? 1 + c->config.relation_arg % (n - 1) : 0;
        for (int32_t k = 0; k < n; k++) {
            out->step[i].row[k] = c->step[i].row[(k + by) % n];
        }
        any |= n > 1;
    }
    return any && hb_relation_is_plain(c);
}

/* Native decode rows of MIXED stay together: relation 30 speaks of them. */
static int split_rows(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    out->n_steps = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step s = c->step[i];
        const int is_whole = !hb_relation_is_extend(&s) || s.n_rows < 2 ||
                             extend_rows(&s) < s.n_rows || s.n_rows > room(c, out, i) + 1;
        const int32_t n = is_whole ? 1 : s.n_rows;
        for (int32_t k = 0; k < n; k++) {
            if (!is_whole) {
                s.n_rows = 1;
                s.row[0] = c->step[i].row[k];
            }
            if (!hb_relation_append(out, &s)) {
                return 0;
            }
        }
        any |= !is_whole;
    }
    return any && hb_relation_is_plain(c);
}

/* --- paths ------------------------------------------------------------------------------------ */

static const int32_t extend_modes[] = {HB_MODE_EXTEND, HB_MODE_MIXED, HB_MODE_SPLIT_PREFILL,
                                       HB_MODE_DLLM_EXTEND};
enum { N_EXTEND_MODES = sizeof extend_modes / sizeof *extend_modes };

static int decode_as_extend(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step *s = &out->step[i];
        if (!is_decode(s) || s->replay || s->n_rows == 0 || hb_relation_has_track(s)) {
            continue;
        }
        s->mode = extend_modes[c->config.relation_arg % N_EXTEND_MODES];
        s->n_decode = 0;
        for (int32_t k = 0; k < s->n_rows; k++) {
            s->row[k].length = 1;
        }
        any = 1;
    }
    return any && hb_relation_is_plain(c);
}

/* The step without its rows of at most `most` tokens that are not tracked; then decode steps over
 * these rows' tokens. */
static int append_as_decodes(const struct hb_case_step *s, int32_t most, struct hb_case *out) {
    struct hb_case_step rest = *s;
    struct hb_case_step decode = *s;
    int any = 0;
    rest.n_rows = 0;
    for (int32_t k = 0; k < s->n_rows; k++) {
        if (s->row[k].length > most || s->row[k].track) {
            rest.row[rest.n_rows++] = s->row[k];
        }
    }
    if (rest.n_rows > 0 && !hb_relation_append(out, &rest)) {
        return 0;
    }
    decode.mode = HB_MODE_DECODE;
    decode.n_decode = 0;
    for (int32_t t = 0; t < most; t++) {
        decode.n_rows = 0;
        for (int32_t k = 0; k < s->n_rows; k++) {
            if (s->row[k].length <= most && !s->row[k].track && t < s->row[k].length) {
                decode.row[decode.n_rows] = s->row[k];
                decode.row[decode.n_rows++].length = 1;
            }
        }
        if (decode.n_rows > 0 && !hb_relation_append(out, &decode)) {
            return 0;
        }
        any |= decode.n_rows > 0;
    }
    return any;
}

static int extend_as_decodes(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    out->n_steps = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        const int32_t most = room(c, out, i);
        if (hb_relation_is_extend(s) && extend_rows(s) == s->n_rows && most > 0) {
            const int32_t before = out->n_steps;
            if (append_as_decodes(s, most, out)) {
                any = 1;
                continue;
            }
            out->n_steps = before;
        }
        if (!hb_relation_append(out, s)) {
            return 0;
        }
    }
    return any && hb_relation_is_plain(c);
}

static int other_mode(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        struct hb_case_step *s = &out->step[i];
        for (int32_t k = 0; k < N_EXTEND_MODES && hb_relation_is_extend(s); k++) {
            if (s->mode == extend_modes[k] && extend_rows(s) == s->n_rows && s->n_rows > 0) {
                const int32_t by = 1 + c->config.relation_arg % (N_EXTEND_MODES - 1);
                s->mode = extend_modes[(k + by) % N_EXTEND_MODES];
                any = 1;
                break;
            }
        }
    }
    return any && hb_relation_is_plain(c);
}

/* --- lengths that say nothing ----------------------------------------------------------------- */

/* The linear layers of the case alone: attention layers read as many entries as the lengths say.
 * Values go by layer and position, so the other layers need not be there. */
static int without_attention(const struct hb_case *c, struct hb_case *out) {
    const int32_t all = (1 << c->config.n_layers) - 1;
    if ((c->config.attn_mask & all) == all) {
        return 0;
    }
    out->config.attn_mask = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        if (c->step[i].kind == HB_STEP_ENTRY) {
            return 0; /* an entry runs the layer that it names */
        }
        out->step[i].layer_mask |= c->config.attn_mask & all;
    }
    return hb_relation_is_plain(c);
}

static int other_prefix(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    static const int32_t lens[] = {1, 7, 1 << 30};
    int any = 0;
    twist->prefix_len = lens[c->config.relation_arg % 3];
    for (int32_t i = 0; i < c->n_steps; i++) {
        any |= hb_relation_is_extend(&c->step[i]) && !hb_relation_has_track(&c->step[i]);
    }
    return any && without_attention(c, out);
}

static int other_seq_lens(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    static const int32_t lens[] = {1, 64, INT32_MAX};
    int any = 0;
    twist->seq_len = lens[c->config.relation_arg % 3];
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        any |= is_decode(s) && !s->replay && s->n_rows > 0 && !hb_relation_has_track(s);
    }
    return any && without_attention(c, out);
}

/* --- chunks and causality --------------------------------------------------------------------- */

static int other_chunk(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    static const int32_t sizes[] = {8, 16, 64, 4, 32};
    enum { N_SIZES = sizeof sizes / sizeof *sizes };
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        any |= hb_relation_is_extend(&c->step[i]) && c->step[i].n_rows > 0;
        for (int32_t k = 0; k < c->step[i].n_rows; k++) {
            out->step[i].row[k].track = 0; /* the points that can be tracked move with the grid */
        }
    }
    for (int32_t k = 0; k < N_SIZES; k++) {
        const int32_t size = sizes[(c->config.relation_arg + k) % N_SIZES];
        if (size != c->config.chunk_size && size > c->config.conv_width) {
            out->config.chunk_size = size;
            break;
        }
    }
    return any && hb_relation_is_plain(c) && !hb_relation_has_restart(c);
}

/* The later part of a stream gets the activations of another one. ctx: the twist. */
static void changed_from(void *ctx, const struct hb_case *c, const struct hb_value_key *key,
                         int32_t n, float *out) {
    const struct hb_twist *twist = ctx;
    const int is_activation = key->tensor <= HB_TENSOR_V;
    if (is_activation && key->stream == twist->stream && key->position >= twist->pos) {
        struct hb_value_key other = *key;
        other.stream ^= 1 << 24; /* no request has such a stream */
        hb_values_fill(c, &other, n, out);
    } else {
        hb_values_fill(c, key, n, out);
    }
}

static int change_later(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)out;
    for (int32_t i = 0; i < c->n_steps; i++) {
        if (hb_step_is_verify(&c->step[i])) {
            return 0; /* positions of draft nodes are no order of time */
        }
        if (c->step[i].kind == HB_STEP_TAKE && c->step[i].from >= 0) {
            return 0; /* one stream in two slots: what a state holds of it is not told by its length */
        }
    }
    const struct hb_capture *base = twist->base;
    if (base->n < 2 || !hb_relation_is_plain(c)) {
        return 0;
    }
    const struct hb_captured *at =
        &base->item[(size_t)c->config.relation_arg * 7 % base->n]; /* 7: spreads over the rows */
    twist->is_before = 1;
    twist->stream = at->stream;
    twist->pos = at->pos;
    twist->values = (struct hb_value_source){.ctx = twist, .fill = changed_from};
    for (size_t i = 0; i < base->n; i++) {
        if (base->item[i].stream != at->stream || base->item[i].pos < at->pos) {
            return 1;
        }
    }
    return 0;
}

static const struct hb_transform transforms[] = {
    {15, .apply = other_slots},
    {16, .apply = other_requests, .flags = HB_REL_MOVES_KV},
    {24, HB_BOTH(HB_EXACT_BATCH), .apply = permute_extend, .flags = HB_REL_MOVES_KV},
    {25, HB_BOTH(HB_EXACT_BATCH), .apply = split_rows, .flags = HB_REL_MOVES_KV},
    {28, HB_BOTH(HB_BOUNDED), .apply = decode_as_extend,
     .flags = HB_REL_MOVES_KV | HB_REL_ONE_FORMULA | HB_REL_NO_RING},
    {29, HB_BOTH(HB_BOUNDED), .apply = extend_as_decodes,
     .flags = HB_REL_MOVES_KV | HB_REL_ONE_FORMULA | HB_REL_NO_RING},
    {31, .apply = other_prefix, .flags = HB_REL_LINEAR_ONLY | HB_REL_NO_RING},
    {32, .apply = other_mode},
    {33, .apply = other_seq_lens, .flags = HB_REL_LINEAR_ONLY | HB_REL_NO_RING},
    {34, HB_BOTH(HB_EXACT_SCAN), .apply = other_chunk,
     .flags = HB_REL_SKIP_TRACKED | HB_REL_NO_RING},
    {36, HB_BOTH(HB_EXACT_SCAN), .unchanged = HB_EXACT_ROWS, .apply = change_later},
};

const struct hb_transforms hb_transforms_batch = HB_TRANSFORMS(transforms);
