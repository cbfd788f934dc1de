/* SPDX-License-Identifier: Apache-2.0
 * Transformations of the relations of graphs, pools and the replay ring (invariants.md 6, 18, 45,
 * 47, 49, 59, 60): the same tokens by another way of storing or of calling. */
#include "backend/batch.h"
#include "harness/relations_internal.h"

static int is_replay(const struct hb_case_step *s) {
    return hb_relation_is_forward(s) && s->replay;
}

/* The capture whose graph a replay at step `at` launches; null if there is none. */
static const struct hb_case_step *capture_of(const struct hb_case *c, int32_t at, int32_t bs) {
    for (int32_t i = 0; i < at; i++) {
        if (c->step[i].kind == HB_STEP_CAPTURE && c->step[i].bs == bs) {
            return &c->step[i];
        }
    }
    return NULL;
}

/* Fewest tokens that a request can have before step `at`: what a commit or a checkpoint adds is not
 * counted. */
static int64_t least_tokens(const struct hb_case *c, int32_t at, int32_t request) {
    int64_t n = 0;
    for (int32_t i = 0; i < at; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (s->kind == HB_STEP_TAKE && !s->slot_kind && s->request == request) {
            n = s->from >= 0 || s->match >= 0 ? 0 : s->prefix;
        }
        const int advances =
            s->kind == HB_STEP_FORWARD && !hb_step_is_verify(s) && s->mode != HB_MODE_IDLE;
        for (int32_t r = 0; r < s->n_rows && advances; r++) {
            n += s->row[r].request == request ? s->row[r].length : 0;
        }
    }
    return n;
}

/* 1 if no live row of the replay looks like padding in seq_lens_cpu: a length of 1. */
static int tells_padding(const struct hb_case *c, int32_t at) {
    const struct hb_case_step *s = &c->step[at];
    const int64_t least = hb_step_is_verify(s) ? 2 : 1;
    for (int32_t r = 0; r < s->n_rows; r++) {
        if (least_tokens(c, at, s->row[r].request) < least) {
            return 0;
        }
    }
    return 1;
}

/* --- 6 ---------------------------------------------------------------------------------------- */

/* init; init; forward == init; forward. */
static int begin_again(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    int some_once = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        any |= hb_relation_is_forward(&c->step[i]);
        some_once |= hb_relation_is_forward(&c->step[i]) && !(c->step[i].optional & 16);
    }
    for (int32_t i = 0; i < c->n_steps; i++) {
        if (hb_relation_is_forward(&c->step[i])) {
            out->step[i].optional = (c->step[i].optional & ~16) | (some_once ? 16 : 0);
        }
    }
    return any && hb_relation_is_plain(c);
}

/* --- 18, 59 ----------------------------------------------------------------------------------- */

static int other_stride(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    enum { PADS = 7 };
    out->config.pool_pad = c->config.pool_pad ? 0 : 1 + c->config.relation_arg % PADS;
    return twist->caps->pool_pad && hb_relation_is_plain(c);
}

/* A strip of windows holds those of a chain; links need the dense layout. */
static int other_windows(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    int any = 0;
    int has_links = 0;
    out->config.window_layout = c->config.window_layout ? HB_WINDOWS_DENSE : HB_WINDOWS_STRIP;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        any |= s->kind == HB_STEP_COMMIT;
        has_links |= hb_step_is_verify(s) && s->tree != HB_TREE_CHAIN;
        has_links |= s->kind == HB_STEP_CAPTURE && (s->optional & 128);
    }
    return any && (!has_links || c->config.window_layout) &&
           (twist->caps->window_layouts >> out->config.window_layout & 1) &&
           hb_relation_is_plain(c);
}

/* --- 45, 47, 49 ------------------------------------------------------------------------------- */

/* Every replay as an eager forward of the layers that its graph has. */
static int replay_eagerly(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        const struct hb_case_step *graph = capture_of(c, i, s->n_rows + s->pad_rows);
        if (!is_replay(s)) {
            continue;
        }
        if (!graph || ((s->optional & 64) && !tells_padding(c, i))) {
            return 0;
        }
        out->step[i].replay = 0;
        out->step[i].layer_mask = graph->layer_mask;
        any = 1;
    }
    return any && hb_relation_is_plain(c);
}

/* A replay of a graph without a live row: it changes no slot. */
static void empty_replay(const struct hb_case_step *graph, struct hb_case_step *out) {
    *out = (struct hb_case_step){.kind = HB_STEP_FORWARD,
                                 .mode = graph->mode,
                                 .replay = 1,
                                 .pad_rows = graph->bs,
                                 .match = -1,
                                 .from = -1,
                                 .slot2 = -1};
    if (graph->mode == HB_MODE_TARGET_VERIFY) {
        out->draft = graph->nodes;
        out->tree = graph->optional & 128 ? HB_TREE_LINKED_CHAIN : HB_TREE_CHAIN;
    }
}

/* Nonsense in the static buffers of the batch size before each replay, and sometimes replays of the
 * other sizes too. */
static int other_history(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    const int with_others = c->config.relation_arg % 2;
    int any = 0;
    twist->poison_static = 1;
    out->n_steps = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        for (int32_t k = 0; k < i && is_replay(s) && with_others; k++) {
            const int is_room = out->n_steps + c->n_steps - i < HB_MAX_STEPS;
            const int is_other = c->step[k].bs != s->n_rows + s->pad_rows;
            if (c->step[k].kind == HB_STEP_CAPTURE && is_other && is_room) {
                empty_replay(&c->step[k], &out->step[out->n_steps++]);
            }
        }
        any |= is_replay(s);
        if (!hb_relation_append(out, s)) {
            return 0;
        }
    }
    return any && hb_relation_is_plain(c);
}

/* num_padding given, or counted from the ones at the end of seq_lens_cpu. */
static int count_padding(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    enum { LENS_CPU = 32, NO_COUNT = 64 };
    (void)twist;
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (is_replay(s) && s->mode != HB_MODE_IDLE && tells_padding(c, i)) {
            out->step[i].optional = s->optional & NO_COUNT ? s->optional & ~NO_COUNT
                                                           : s->optional | NO_COUNT | LENS_CPU;
            any = 1;
        }
    }
    return any && hb_relation_is_plain(c) && c->config.ring_length == 0;
}

/* --- 60 --------------------------------------------------------------------------------------- */

/* 1 if the history keeps what a replay ring asks for: each Mamba2 layer in each decode, and no
 * other forward of a request that has decoded. */
static int suits_ring(const struct hb_case *c) {
    const int32_t mamba = ((1 << c->config.n_layers) - 1) & ~c->config.attn_mask;
    int32_t decoded = 0;
    if (c->config.mixer != HB_MIXER_MAMBA2) {
        return 0; /* the ring is of Mamba2's scan */
    }
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        const int is_decode = s->mode == HB_MODE_DECODE;
        const int is_layered = hb_relation_is_forward(s) || s->kind == HB_STEP_CAPTURE;
        if ((is_layered && is_decode && (s->layer_mask & mamba)) || s->kind == HB_STEP_ENTRY) {
            return 0;
        }
        if (s->kind == HB_STEP_TAKE && !s->slot_kind) {
            decoded &= ~(1 << s->request);
        }
        for (int32_t r = 0; r < s->n_rows && hb_relation_is_forward(s); r++) {
            const int32_t request = 1 << s->row[r].request;
            if (!is_decode && s->mode != HB_MODE_IDLE && (decoded & request)) {
                return 0;
            }
            decoded |= is_decode ? request : 0;
        }
    }
    return decoded != 0 && mamba != 0;
}

/* 1 if it keeps what a ring asks for that commits own: chains alone, each Mamba2 layer in each
 * verify, and nothing but verifies of a request that has committed. */
static int suits_commits(const struct hb_case *c) {
    const int32_t mamba = ((1 << c->config.n_layers) - 1) & ~c->config.attn_mask;
    int32_t committed = 0; /* requests whose ring may hold records */
    int32_t verified = 0;
    int any = 0;
    if (c->config.mixer != HB_MIXER_MAMBA2) {
        return 0; /* the ring is of Mamba2's scan */
    }
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        const int is_verify = hb_step_is_verify(s);
        const int is_capture = s->kind == HB_STEP_CAPTURE && s->mode == HB_MODE_TARGET_VERIFY;
        if ((is_verify && s->tree != HB_TREE_CHAIN) || (is_capture && (s->optional & 128)) ||
            ((is_verify || is_capture) && (s->layer_mask & mamba)) || s->kind == HB_STEP_ENTRY) {
            return 0;
        }
        if (s->kind == HB_STEP_TAKE && !s->slot_kind) {
            committed &= ~(1 << s->request);
        }
        committed |= s->kind == HB_STEP_COMMIT ? verified : 0;
        verified = hb_relation_is_forward(s) ? 0 : verified;
        for (int32_t r = 0; r < s->n_rows && hb_relation_is_forward(s); r++) {
            const int32_t request = 1 << s->row[r].request;
            if (!is_verify && s->mode != HB_MODE_IDLE && (committed & request)) {
                return 0;
            }
            verified |= is_verify ? request : 0;
        }
        any |= is_verify;
    }
    return any && mamba != 0 && c->config.max_draft > 0 && c->config.state_dtype == HB_FP32;
}

static int uses_ring(const struct hb_case *c, int32_t mode) {
    int any = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        any |= hb_relation_is_forward(&c->step[i]) && c->step[i].mode == mode;
    }
    return any;
}

/* Without the ring; or with one, of whichever owner the history suits. */
static int other_ring(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist) {
    enum { LENGTHS = 5 };
    const int32_t arg = c->config.relation_arg;
    const int is_commit = c->config.ring_owner == HB_RING_COMMIT;
    if (c->config.ring_length) {
        out->config.ring_length = 0;
        out->config.ring_owner = HB_RING_DECODE;
        return uses_ring(c, is_commit ? HB_MODE_TARGET_VERIFY : HB_MODE_DECODE) &&
               hb_relation_is_plain(c);
    }
    if (twist->caps->ring && suits_ring(c)) {
        out->config.ring_length = 1 + arg % LENGTHS;
        return hb_relation_is_plain(c);
    }
    out->config.ring_owner = HB_RING_COMMIT;
    out->config.ring_length = 1;
    while (out->config.ring_length < 2 * c->config.max_draft) {
        out->config.ring_length *= 2;
    }
    out->config.ring_length *= out->config.ring_length <= HB_MAX_RING / 2 ? 1 + arg % 2 : 1;
    return twist->caps->ring_commit && suits_commits(c) && hb_relation_is_plain(c);
}

static const struct hb_transform transforms[] = {
    {.number = 6, .apply = begin_again, .flags = HB_REL_WITH_ERRORS},
    {.number = 18, .apply = other_stride},
    {.number = 45,
     .apply = replay_eagerly,
     .outputs = HB_EXACT_REPLAY,
     .state = HB_EXACT_REPLAY,
     .flags = HB_REL_MOVES_KV},
    {.number = 47, .apply = other_history, .flags = HB_REL_MOVES_KV},
    {.number = 49, .apply = count_padding},
    {.number = 59, .apply = other_windows},
    {.number = 60, .apply = other_ring, .outputs = HB_BOUNDED, .state = HB_BOUNDED},
};
const struct hb_transforms hb_transforms_graph = HB_TRANSFORMS(transforms);
