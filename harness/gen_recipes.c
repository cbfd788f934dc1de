/* SPDX-License-Identifier: Apache-2.0
 * One recipe for each rule of backend/status.h: the breaks that, on a valid step that meets the
 * recipe's needs, make exactly this rule the first one broken. Rules that no case can reach say
 * why. */
#include <limits.h>
#include <string.h>

#include "backend/adapter.h"
#include "harness/gen_history.h"

/* Which step the breaks go to; NEW_ steps are appended. */
enum on_step {
    ON_CONFIG,
    ON_FORWARD,
    NEW_TAKE,
    NEW_FREE,
    NEW_FREE_TWICE,
    NEW_COPY,
    NEW_COPY_SELF,
    NEW_CHILD,
    NEW_NULL,
    NEW_BARE
};

/* The break's row. */
enum at {
    AT_0,
    AT_1,
    AT_ROW,
    AT_ROW2,
    AT_PAD,
    AT_LAST,
    AT_TRACK,
    AT_TRACK2,
    AT_REQUEST,
    AT_ANY,
    AT_TOKEN,
    AT_TOKEN2,
    AT_MAP_NEW,
    AT_MAP_NEW2,
    AT_MAP_OLD
};

/* The break's value is one of these plus `plus`. */
enum base {
    B_NUMBER,
    B_MODE,
    B_UNSUPPORTED,
    B_LAYER,
    B_BAD_LAYER,
    B_BATCH,
    B_EXTEND_ROWS,
    B_REAL,
    B_SUM_LESS_ROW,
    B_BAD_REQUEST,
    B_BAD_SLOT,
    B_BAD_TRACK,
    B_BAD_LOC,
    B_OTHER_LOC,
    B_FREE_SLOT,
    B_TRACK_SLOT,
    B_ROW_SLOT,
    B_ROW2_SLOT,
    B_OUTSIDE_SLOT,
    B_CONTEXT,
    B_MAX_BATCH,
    B_HEADS,
    B_Q_HEADS,
    B_CHUNK,
    B_NS,
    B_BAD_KIND,
    B_BAD_VARIANT,
    B_SIGN,
    B_TRACK_ROW,
    B_ROW2_TOKEN,
    B_MAP_NEW
};

struct break_recipe {
    int32_t field, operation; /* field -1: end of the list */
    enum at at;
    enum base base;
    int32_t plus;
};

struct recipe {
    int32_t rule;
    enum on_step on;
    uint32_t needs;
    struct break_recipe brk[HB_MAX_BREAKS];
    int32_t n_breaks;
    const char *unreachable;
};

/* clang-format off */
#define EXT HB_NEED_EXTEND
#define DEC HB_NEED_DECODE
#define TRK HB_NEED_TRACK
#define ATT HB_NEED_ATTENTION
#define SET(field, at, base, plus) {HB_FIELD_##field, HB_BREAK_SET, at, base, plus}
#define ADD(field, at, base, plus) {HB_FIELD_##field, HB_BREAK_ADD, at, base, plus}
#define LEN(field, base, plus) {HB_FIELD_##field, HB_BREAK_LENGTH, AT_0, base, plus}
#define NONE(field, at) {HB_FIELD_##field, HB_BREAK_ABSENT, at, B_NUMBER, 0}
#define COPY(field, at, base) {HB_FIELD_##field, HB_BREAK_COPY, at, base, 0}
#define R0(rule, on, needs) {HB_RULE_##rule, on, needs, {{-1, 0, AT_0, B_NUMBER, 0}}, 0, NULL}
#define R1(rule, on, needs, a) {HB_RULE_##rule, on, needs, {a}, 1, NULL}
#define R2(rule, on, needs, a, b) {HB_RULE_##rule, on, needs, {a, b}, 2, NULL}
#define R3(rule, on, needs, a, b, c) {HB_RULE_##rule, on, needs, {a, b, c}, 3, NULL}
#define UNREACHABLE(rule, why) {HB_RULE_##rule, ON_FORWARD, 0, {{-1, 0, AT_0, B_NUMBER, 0}}, 0, why}
#define PICK(...) __VA_ARGS__

static const struct recipe recipes[] = {
    R0(ENTRY_REFUSED, NEW_CHILD, HB_NEED_ROOM),
    R0(HANDLE_NULL, NEW_NULL, HB_NEED_ROOM),
    R1(BATCH_NULL, ON_FORWARD, 0, NONE(BATCH_POINTER, AT_0)),
    R1(MODE_INVALID, ON_FORWARD, 0, SET(FORWARD_MODE, AT_0, B_MODE, 0)),
    R1(MODE_UNSUPPORTED, ON_FORWARD, 0, SET(FORWARD_MODE, AT_0, B_UNSUPPORTED, 0)),
    R0(NO_METADATA, NEW_BARE, HB_NEED_ROOM | ATT),
    R1(LAYER_TWICE, ON_FORWARD, HB_NEED_ROW, SET(LAYER_ID, AT_0, B_LAYER, 0)),
    R1(REQ_NULL, ON_FORWARD, HB_NEED_ROW, NONE(REQ_POOL_INDICES, AT_0)),
    R1(SEQ_LENS_NULL, ON_FORWARD, HB_NEED_ROW, NONE(SEQ_LENS, AT_0)),
    R1(EXTEND_LENS_NULL, ON_FORWARD, EXT, NONE(EXTEND_SEQ_LENS, AT_0)),
    R1(PREFIX_LENS_NULL, ON_FORWARD, EXT, NONE(EXTEND_PREFIX_LENS, AT_0)),
    R1(EXTEND_NUM_NULL, ON_FORWARD, EXT, NONE(EXTEND_NUM_TOKENS, AT_0)),
    R1(TRACK_INDICES_NULL, ON_FORWARD, TRK, NONE(TRACK_INDICES, AT_0)),
    R1(TRACK_LENS_NULL, ON_FORWARD, TRK | EXT, NONE(TRACK_SEQLENS, AT_0)),
    R1(CACHE_LOC_NULL, ON_FORWARD, ATT | HB_NEED_ROW, NONE(OUT_CACHE_LOC, AT_0)),
    R1(REQ_TO_TOKEN_NULL, ON_FORWARD, ATT | HB_NEED_ROW, NONE(REQ_TO_TOKEN, AT_0)),
    R1(IO_NULL, ON_FORWARD, HB_NEED_ROW, NONE(IO_POINTER, AT_ANY)),
    R1(BATCH_NEGATIVE, ON_FORWARD, 0, SET(BATCH_SIZE, AT_0, B_NUMBER, -1)),
    R1(TOKENS_NEGATIVE, ON_FORWARD, 0, SET(N_TOKENS, AT_0, B_NUMBER, -1)),
    R1(N_EXTEND_ROWS, ON_FORWARD, EXT, SET(N_EXTEND, AT_0, B_BATCH, 1)),
    R1(REQ_LENGTH, ON_FORWARD, HB_NEED_ROW, LEN(REQ_POOL_INDICES, B_BATCH, 1)),
    R1(SEQ_LENS_LENGTH, ON_FORWARD, HB_NEED_ROW, LEN(SEQ_LENS, B_BATCH, 1)),
    R1(EXTEND_LENS_LENGTH, ON_FORWARD, EXT, LEN(EXTEND_SEQ_LENS, B_EXTEND_ROWS, 1)),
    R1(EXTEND_CPU_LENGTH, ON_FORWARD, EXT | HB_NEED_LENS_CPU, LEN(EXTEND_SEQ_LENS_CPU, B_EXTEND_ROWS, 1)),
    R1(EXTEND_CPU_VALUE, ON_FORWARD, EXT | HB_NEED_LENS_CPU, ADD(EXTEND_SEQ_LENS_CPU, AT_ROW, B_SIGN, 0)),
    R1(PREFIX_LENS_LENGTH, ON_FORWARD, EXT, LEN(EXTEND_PREFIX_LENS, B_EXTEND_ROWS, 1)),
    R1(START_LOC_LENGTH, ON_FORWARD, EXT | HB_NEED_START_LOC, LEN(EXTEND_START_LOC, B_EXTEND_ROWS, 1)),
    R1(START_LOC_VALUE, ON_FORWARD, EXT | HB_NEED_START_LOC, ADD(EXTEND_START_LOC, AT_ROW, B_SIGN, 0)),
    R1(EXTEND_NUM_VALUE, ON_FORWARD, EXT, ADD(EXTEND_NUM_TOKENS, AT_0, B_SIGN, 0)),
    R1(TOKENS_SHORT, ON_FORWARD, HB_NEED_ROW, SET(N_TOKENS, AT_0, B_REAL, -1)),
    R1(TRACK_MASK_LENGTH, ON_FORWARD, HB_NEED_MASK | HB_NEED_ROW, LEN(TRACK_MASK, B_BATCH, 1)),
    R1(TRACK_INDICES_LENGTH, ON_FORWARD, TRK, LEN(TRACK_INDICES, B_BATCH, 1)),
    R1(TRACK_LENS_LENGTH, ON_FORWARD, TRK | EXT, LEN(TRACK_SEQLENS, B_BATCH, 1)),
    R1(CACHE_LOC_LENGTH, ON_FORWARD, ATT | HB_NEED_ROW, LEN(OUT_CACHE_LOC, B_NUMBER, 4096)),
    R1(REQ_TO_TOKEN_ROWS, ON_FORWARD, ATT | HB_NEED_ROW, ADD(REQ_TO_TOKEN_ROWS, AT_0, B_NUMBER, -1)),
    R1(REQ_TO_TOKEN_COLS, ON_FORWARD, ATT | HB_NEED_ROW, ADD(REQ_TO_TOKEN_COLS, AT_0, B_NUMBER, -1)),
    R1(IO_BYTES, ON_FORWARD, HB_NEED_ROW, ADD(IO_BYTES, AT_ANY, B_NUMBER, -1)),
    /* the added rows are padding: request 0 */
    R3(BATCH_CAPACITY, ON_FORWARD, HB_NEED_ORIGINAL | DEC | HB_NEED_NO_TRACK | HB_NEED_NO_MASK,
       PICK(SET(BATCH_SIZE, AT_0, B_MAX_BATCH, 1)), PICK(LEN(REQ_POOL_INDICES, B_MAX_BATCH, 1)), PICK(LEN(SEQ_LENS, B_MAX_BATCH, 1))),
    R2(TOKENS_CAPACITY, ON_FORWARD, HB_NEED_ROW, PICK(SET(N_TOKENS, AT_0, B_NUMBER, 4096)), PICK(LEN(OUT_CACHE_LOC, B_NUMBER, 4096))),
    R1(ORIGINAL_RANGE, ON_FORWARD, DEC | HB_NEED_ORIGINAL | HB_NEED_NO_TRACK, SET(ORIGINAL_BATCH_SIZE, AT_0, B_NUMBER, -1)),
    R1(REQ_RANGE, ON_FORWARD, HB_NEED_ROW, SET(REQ_POOL_INDICES, AT_ROW, B_BAD_REQUEST, 0)),
    R1(REQ_PADDING, ON_FORWARD, HB_NEED_PADDING, SET(REQ_POOL_INDICES, AT_PAD, B_NUMBER, 1)),
    R1(SLOT_RANGE, ON_FORWARD, HB_NEED_ROW, SET(TABLE, AT_REQUEST, B_BAD_SLOT, 0)),
    R1(SEQ_LEN_RANGE, ON_FORWARD, DEC, SET(SEQ_LENS, AT_ROW, B_NUMBER, 0)),
    /* the sum must still agree */
    R2(EXTEND_LEN_RANGE, ON_FORWARD, EXT | HB_NEED_NO_EXTRAS | HB_NEED_LONG_ROW | HB_NEED_NO_TRACK,
       PICK(SET(EXTEND_SEQ_LENS, AT_ROW, B_NUMBER, 0)), PICK(SET(EXTEND_NUM_TOKENS, AT_0, B_SUM_LESS_ROW, 0))),
    R1(PREFIX_RANGE, ON_FORWARD, EXT, SET(EXTEND_PREFIX_LENS, AT_ROW, B_NUMBER, -1)),
    R1(PREFIX_SUM, ON_FORWARD, EXT, ADD(SEQ_LENS, AT_ROW, B_SIGN, 0)),
    R1(TRACK_MASK_PADDING, ON_FORWARD, TRK | HB_NEED_PADDING, SET(TRACK_MASK, AT_PAD, B_NUMBER, 1)),
    R1(TRACK_MASK_DECODE, ON_FORWARD, HB_NEED_M2 | TRK | EXT, SET(TRACK_MASK, AT_LAST, B_NUMBER, 1)),
    R1(TRACK_SLOT_RANGE, ON_FORWARD, TRK, SET(TRACK_INDICES, AT_TRACK, B_BAD_TRACK, 0)),
    R1(TRACK_LEN_SHORT, ON_FORWARD, TRK | EXT, SET(TRACK_SEQLENS, AT_TRACK, B_NUMBER, 0)),
    R1(TRACK_LEN_LONG, ON_FORWARD, TRK | EXT, ADD(TRACK_SEQLENS, AT_TRACK, B_NUMBER, 1000)),
    R1(CACHE_LOC_RANGE, ON_FORWARD, ATT | HB_NEED_ROW, SET(OUT_CACHE_LOC, AT_TOKEN, B_BAD_LOC, 0)),
    R1(CONTEXT_RANGE, ON_FORWARD, DEC | ATT, SET(SEQ_LENS, AT_ROW, B_CONTEXT, 1)),
    R1(REQ_TO_TOKEN_NEW, ON_FORWARD, ATT | HB_NEED_ROW, SET(REQ_TO_TOKEN, AT_MAP_NEW, B_NUMBER, 0)),
    R1(REQ_TO_TOKEN_PREFIX, ON_FORWARD, ATT | HB_NEED_PREFIX, SET(REQ_TO_TOKEN, AT_MAP_OLD, B_BAD_LOC, 0)),
    R1(LAYER_RANGE, ON_FORWARD, HB_NEED_ROW, SET(LAYER_ID, AT_0, B_BAD_LAYER, 0)),
    R1(SLOT_FREED, ON_FORWARD, HB_NEED_ROW | HB_NEED_FREE_SLOT, SET(TABLE, AT_REQUEST, B_FREE_SLOT, 0)),
    R1(TRACK_SLOT_FREED, ON_FORWARD, TRK | HB_NEED_FREE_SLOT, SET(TRACK_INDICES, AT_TRACK, B_FREE_SLOT, 0)),
    R1(SLOT_DUPLICATE, ON_FORWARD, HB_NEED_TWO_ROWS, SET(TABLE, AT_REQUEST, B_ROW2_SLOT, 0)),
    R1(TRACK_DUPLICATE, ON_FORWARD, HB_NEED_TWO_TRACKS, COPY(TRACK_INDICES, AT_TRACK2, B_TRACK_ROW)),
    /* the table must agree with the doubled location */
    R2(CACHE_LOC_DUPLICATE, ON_FORWARD, ATT | HB_NEED_TWO_ROWS,
       PICK(COPY(OUT_CACHE_LOC, AT_TOKEN, B_ROW2_TOKEN)), PICK(COPY(REQ_TO_TOKEN, AT_MAP_NEW, B_MAP_NEW))),
    R1(SLOT_NOT_LIVE, ON_FORWARD, HB_NEED_ROW | HB_NEED_TRACK_SLOT, SET(TABLE, AT_REQUEST, B_TRACK_SLOT, 0)),
    R1(TRACK_ALIAS_ROW, ON_FORWARD, TRK, SET(TRACK_INDICES, AT_TRACK, B_ROW_SLOT, 0)),
    R1(TRACK_ALIAS_SLOT, ON_FORWARD, TRK | HB_NEED_OUTSIDER, SET(TRACK_INDICES, AT_TRACK, B_OUTSIDE_SLOT, 0)),
    R1(TAKE_NEGATIVE, NEW_TAKE, HB_NEED_ROOM, SET(SLOT_COUNT, AT_0, B_NUMBER, -1)),
    R1(TAKE_EXHAUSTED, NEW_TAKE, HB_NEED_ROOM, SET(SLOT_COUNT, AT_0, B_NS, 1)),
    R1(TAKE_KIND, NEW_TAKE, HB_NEED_ROOM, SET(SLOT_KIND, AT_0, B_BAD_KIND, 0)),
    R1(OP_SLOT_RANGE, NEW_FREE, HB_NEED_ROOM, SET(SLOT_ID, AT_0, B_BAD_SLOT, 0)),
    R0(OP_SLOT_FREED, NEW_FREE_TWICE, HB_NEED_ROOM),
    UNREACHABLE(OP_SLOT_DUPLICATE, "a FREE step names one slot"),
    R0(COPY_ALIAS, NEW_COPY_SELF, HB_NEED_ROOM),
    UNREACHABLE(TABLE_RANGE, "the executor writes only entries of requests that exist"),
    UNREACHABLE(BUFFER_RANGE, "the executor stays inside the buffers it allocated"),
    R1(CFG_LAYERS, ON_CONFIG, 0, SET(CFG_N_LAYERS, AT_0, B_BAD_KIND, 0)),
    R1(CFG_DIM, ON_CONFIG, HB_NEED_MAMBA, SET(CFG_HEADS, AT_0, B_NUMBER, 0)),
    R1(CFG_GROUPS, ON_CONFIG, HB_NEED_MAMBA, SET(CFG_GROUPS, AT_0, B_HEADS, 1)),
    R1(CFG_CHUNK, ON_CONFIG, HB_NEED_MAMBA, SET(CFG_CHUNK_SIZE, AT_0, B_CHUNK, 1)),
    R1(CFG_WINDOW, ON_CONFIG, HB_NEED_MAMBA, SET(CFG_CHUNK_SIZE, AT_0, B_NUMBER, 1)),
    R1(CFG_PAGE, ON_CONFIG, HB_NEED_MAMBA, SET(CFG_PAGE_SIZE, AT_0, B_CHUNK, 1)),
    R1(CFG_KV_HEADS, ON_CONFIG, ATT, SET(CFG_KV_HEADS, AT_0, B_Q_HEADS, 1)),
    R1(CFG_CONV_WIDTH, ON_CONFIG, HB_NEED_MAMBA | HB_NEED_CHUNK_8, SET(CFG_CONV_WIDTH, AT_0, B_NUMBER, 5)),
    R1(CFG_VARIANT, ON_CONFIG, HB_NEED_MAMBA, SET(CFG_VARIANT, AT_ANY, B_BAD_VARIANT, 0)),
    R1(CFG_DTYPE, ON_CONFIG, HB_NEED_MAMBA, SET(CFG_DTYPE, AT_ANY, B_BAD_VARIANT, 0)),
    R1(CFG_DT_LIMIT, ON_CONFIG, HB_NEED_MAMBA | HB_NEED_CLAMP, SET(CFG_DT_LO, AT_0, B_NUMBER, 1000)),
};
/* clang-format on */
enum { N_RECIPES = sizeof recipes / sizeof recipes[0] };

int hb_recipes(struct hb_recipe_info *out, int cap) {
    for (int i = 0; i < N_RECIPES && i < cap; i++) {
        out[i].rule = recipes[i].rule;
        out[i].needs = recipes[i].needs;
        out[i].unreachable = recipes[i].unreachable;
    }
    return N_RECIPES;
}

/* --- the place a recipe is applied to
 * --------------------------------------------------------------------------- */

struct spot {
    const struct hb_case *c;
    struct hb_rng *rng;
    struct hb_config config;
    int32_t step;
    const struct hb_case_step *s; /* null for the configuration */
    struct hb_history h;
    int32_t row, row2;     /* a row that meets the needs, and another one (or the same) */
    int32_t track, track2; /* tracked rows, -1 none */
    int32_t outsider;      /* live request outside the batch, -1 none */
};

static int32_t first_token(const struct hb_case_step *s, int32_t row) {
    int32_t n = 0;
    for (int32_t r = 0; r < row; r++) {
        n += s->row[r].length;
    }
    return n;
}

/* Index in req_to_token of the entry of position `pos` of row r's request. */
static int32_t map_index(const struct spot *p, int32_t r, int32_t pos) {
    return hb_case_req_index(p->c, p->s->row[r].request) * p->config.max_context + pos;
}

static int32_t row_position(const struct spot *p, int32_t r) {
    return hb_history_position(&p->h, p->s->row[r].request);
}

static int32_t slot_of(const struct spot *p, int32_t request) {
    const int32_t t = p->h.request_take[request];
    return t >= 0 ? p->h.take[t].id : 0;
}

static int has_layer(const struct spot *p, int32_t kind) {
    for (int32_t l = 0; l < p->config.n_layers; l++) {
        if (p->config.layer_kind[l] == kind) {
            return 1;
        }
    }
    return 0;
}

static int32_t find_outsider(const struct spot *p) {
    for (int32_t q = 0; q < HB_MAX_REQS; q++) {
        int in_batch = 0;
        for (int32_t r = 0; r < p->s->n_rows; r++) {
            in_batch |= p->s->row[r].request == q;
        }
        if (!in_batch && hb_history_is_live(&p->h, q)) {
            return q;
        }
    }
    return -1;
}

static int32_t live_track_slot(const struct spot *p) {
    for (int32_t k = 0; k < p->h.n_tracks; k++) {
        if (!p->h.take[p->h.track[k]].is_free) {
            return p->h.take[p->h.track[k]].id;
        }
    }
    return 0;
}

/* What the step itself offers, as need bits. */
static uint32_t offers_of_step(const struct spot *p) {
    const struct hb_case_step *s = p->s;
    const int is_extend = hb_mode_is_extend(s->mode);
    const int32_t n_extend = is_extend ? s->n_rows - s->n_decode : 0;
    const int32_t longest_sum = n_extend > 0 ? first_token(s, n_extend) : 0;
    uint32_t o = 0;
    o |= n_extend > 0 ? HB_NEED_EXTEND : 0;
    o |= s->mode == HB_MODE_DECODE && s->n_rows > 0 ? HB_NEED_DECODE : 0;
    o |= s->mode == HB_MODE_MIXED && s->n_decode > 0 ? HB_NEED_M2 : 0;
    o |= p->track >= 0 ? HB_NEED_TRACK | HB_NEED_MASK : HB_NEED_NO_TRACK;
    o |= p->track2 >= 0 ? HB_NEED_TWO_TRACKS : 0;
    o |= s->mode != HB_MODE_IDLE && s->n_rows > 0 ? HB_NEED_ROW : 0;
    o |= s->mode != HB_MODE_IDLE && s->n_rows > 1 ? HB_NEED_TWO_ROWS : 0;
    o |= s->pad_rows > 0 ? HB_NEED_PADDING | HB_NEED_ORIGINAL : 0;
    o |= s->optional & 1 ? HB_NEED_START_LOC : 0;
    o |= s->optional & 2 ? HB_NEED_LENS_CPU : 0;
    o |= (s->optional & 3) == 0 ? HB_NEED_NO_EXTRAS : 0;
    o |= s->optional & 4 ? HB_NEED_ORIGINAL : 0;
    o |= s->optional & 8 ? HB_NEED_MASK : 0;
    o |= o & HB_NEED_MASK ? 0 : HB_NEED_NO_MASK;
    o |= longest_sum > 1 ? HB_NEED_LONG_ROW : 0;
    o |= p->outsider >= 0 ? HB_NEED_OUTSIDER : 0;
    return o;
}

static uint32_t offers(const struct spot *p) {
    uint32_t o = p->s ? offers_of_step(p) : 0;
    o |= has_layer(p, HB_LAYER_ATTENTION) ? HB_NEED_ATTENTION : 0;
    o |= has_layer(p, HB_LAYER_MAMBA2) ? HB_NEED_MAMBA : 0;
    o |= p->c->config.dt_clamp != HB_DT_CLAMP_NONE ? HB_NEED_CLAMP : 0;
    o |= p->config.chunk_size >= 8 ? HB_NEED_CHUNK_8 : 0;
    o |= p->h.n_free > 0 ? HB_NEED_FREE_SLOT : 0;
    o |= live_track_slot(p) > 0 ? HB_NEED_TRACK_SLOT : 0;
    o |= p->c->n_steps < HB_MAX_STEPS ? HB_NEED_ROOM : 0;
    return o;
}

/* Chooses rows; a row with tokens before it where the recipe needs one. */
static uint32_t choose_rows(struct spot *p, uint32_t needs) {
    const struct hb_case_step *s = p->s;
    const int32_t n_extend = s->n_rows - s->n_decode;
    const int32_t n = needs & HB_NEED_EXTEND ? n_extend : s->n_rows;
    p->row = hb_rng_below(p->rng, n);
    p->row2 = n > 1 ? (p->row + 1 + hb_rng_below(p->rng, n - 1)) % n : p->row;
    if (s->n_rows > 1 && p->row2 == p->row) {
        p->row2 = (p->row + 1) % s->n_rows;
    }
    p->track = p->track2 = -1;
    for (int32_t r = 0; r < s->n_rows; r++) {
        if (s->row[r].track) {
            p->track2 = p->track >= 0 ? r : -1;
            p->track = p->track >= 0 ? p->track : r;
        }
    }
    p->outsider = find_outsider(p);
    if (!(needs & HB_NEED_PREFIX)) {
        return 0;
    }
    for (int32_t r = 0; r < s->n_rows; r++) {
        if (row_position(p, r) > 0 && s->mode != HB_MODE_IDLE) {
            p->row = r;
            return HB_NEED_PREFIX;
        }
    }
    return 0;
}

/* --- rows and values
 * -------------------------------------------------------------------------------------------- */

static int32_t row_of(const struct spot *p, enum at at) {
    switch (at) {
    case AT_0:
        return 0;
    case AT_1:
        return 1;
    case AT_ROW:
        return p->row;
    case AT_ROW2:
        return p->row2;
    case AT_PAD:
        return p->s->n_rows + hb_rng_below(p->rng, p->s->pad_rows);
    case AT_LAST:
        return p->s->n_rows - 1;
    case AT_TRACK:
        return p->track;
    case AT_TRACK2:
        return p->track2;
    case AT_REQUEST:
        return p->s->row[p->row].request;
    case AT_ANY:
        return hb_rng_below(p->rng, 4);
    case AT_TOKEN:
        return first_token(p->s, p->row);
    case AT_TOKEN2:
        return first_token(p->s, p->row2);
    case AT_MAP_NEW:
        return map_index(p, p->row, row_position(p, p->row));
    case AT_MAP_NEW2:
        return map_index(p, p->row2, row_position(p, p->row2));
    case AT_MAP_OLD:
        return map_index(p, p->row, hb_rng_below(p->rng, row_position(p, p->row)));
    default:
        return 0;
    }
}

#define ONE_OF(rng, ...)                                                                           \
    one_of(rng, (const int64_t[]){__VA_ARGS__},                                                    \
           (int32_t)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)))

static int64_t one_of(struct hb_rng *rng, const int64_t *values, int32_t n) {
    return values[hb_rng_below(rng, n)];
}

/* Values that are wrong whatever the batch. */
static int64_t wrong_value(const struct spot *p, enum base base) {
    const struct hb_config *g = &p->config;
    switch (base) {
    case B_MODE:
        return ONE_OF(p->rng, 7, 0, 10, -1, INT_MAX, INT_MIN);
    case B_UNSUPPORTED:
        return ONE_OF(p->rng, 5, 6);
    case B_BAD_LAYER:
        return ONE_OF(p->rng, -1, g->n_layers, HB_MAX_LAYERS, INT_MAX, INT_MIN);
    case B_BAD_REQUEST:
        return ONE_OF(p->rng, -1, g->req_pool_size, INT_MAX, INT_MIN);
    case B_BAD_SLOT:
        return ONE_OF(p->rng, -1, 0, g->n_slots + 1, -2, INT_MAX, INT_MIN);
    case B_BAD_TRACK:
        return ONE_OF(p->rng, -1, 0, g->n_slots + 1, INT64_MAX, INT64_MIN, INT64_C(1) << 32);
    case B_BAD_LOC:
        return ONE_OF(p->rng, 0, -1, g->n_kv, INT_MAX);
    case B_BAD_KIND:
        return ONE_OF(p->rng, 0, -1, 9, INT_MAX);
    case B_BAD_VARIANT:
        return ONE_OF(p->rng, 99, -1, 6);
    case B_SIGN:
        return ONE_OF(p->rng, -1, 1);
    default:
        return 0;
    }
}

static int64_t value_of(const struct spot *p, enum base base) {
    const struct hb_case_step *s = p->s;
    const struct hb_config *g = &p->config;
    switch (base) {
    case B_NUMBER:
        return 0;
    case B_LAYER: { /* a layer that the forward runs, too */
        int32_t l = hb_rng_below(p->rng, g->n_layers);
        while (s->layer_mask >> l & 1) {
            l = (l + 1) % g->n_layers;
        }
        return l;
    }
    case B_BATCH:
        return s->n_rows + s->pad_rows;
    case B_EXTEND_ROWS:
        return s->n_rows - s->n_decode;
    case B_REAL:
        return first_token(s, s->n_rows);
    case B_SUM_LESS_ROW:
        return first_token(s, s->n_rows - s->n_decode) - s->row[p->row].length;
    case B_FREE_SLOT:
        return p->h.free_list[hb_rng_below(p->rng, p->h.n_free)];
    case B_TRACK_SLOT:
        return live_track_slot(p);
    case B_ROW_SLOT:
        return slot_of(p, s->row[p->row].request);
    case B_ROW2_SLOT:
        return slot_of(p, s->row[p->row2].request);
    case B_OUTSIDE_SLOT:
        return slot_of(p, p->outsider);
    case B_CONTEXT:
        return g->max_context;
    case B_MAX_BATCH:
        return g->max_batch;
    case B_HEADS:
        return g->n_heads;
    case B_Q_HEADS:
        return g->n_q_heads;
    case B_CHUNK:
        return g->chunk_size;
    case B_NS:
        return g->n_slots;
    case B_TRACK_ROW:
        return p->track;
    case B_ROW2_TOKEN:
        return first_token(s, p->row2);
    case B_MAP_NEW:
        return map_index(p, p->row2, row_position(p, p->row2));
    default:
        return wrong_value(p, base);
    }
}

static void add_breaks(const struct spot *p, const struct recipe *r, int32_t step,
                       struct hb_case *c) {
    for (int32_t i = 0; i < r->n_breaks; i++) {
        const struct break_recipe *b = &r->brk[i];
        struct hb_case_break *out = &c->brk[c->n_breaks++];
        out->step = step;
        out->field = b->field;
        out->operation = b->operation;
        out->row = row_of(p, b->at);
        out->value = value_of(p, b->base) + b->plus;
    }
}

/* --- application
 * ------------------------------------------------------------------------------------------------
 */

static int apply_on_forward(struct hb_case *c, const struct recipe *r, struct hb_rng *rng,
                            struct spot *p) {
    const int32_t start = hb_rng_below(rng, c->n_steps);
    for (int32_t i = 0; i < c->n_steps; i++) {
        p->step = (start + i) % c->n_steps;
        p->s = &c->step[p->step];
        if (p->s->kind != HB_STEP_FORWARD) {
            continue;
        }
        hb_history_replay(&p->h, c, p->step);
        const uint32_t found = choose_rows(p, r->needs);
        if ((r->needs & ~(found | offers(p))) == 0) {
            add_breaks(p, r, p->step, c);
            return 1;
        }
    }
    return 0;
}

/* The step that a recipe appends; 0 if the history has nothing for it. */
static int new_step(const struct spot *p, enum on_step on, struct hb_case_step *s) {
    static const int32_t kinds[] = {
        [NEW_TAKE] = HB_STEP_TAKE,  [NEW_FREE] = HB_STEP_FREE,      [NEW_FREE_TWICE] = HB_STEP_FREE,
        [NEW_COPY] = HB_STEP_COPY,  [NEW_COPY_SELF] = HB_STEP_COPY, [NEW_CHILD] = HB_STEP_ENTRY,
        [NEW_NULL] = HB_STEP_ENTRY, [NEW_BARE] = HB_STEP_ENTRY};
    hb_gen_step_init(s, kinds[on]);
    s->slot_kind = on == NEW_TAKE ? 1 : 0;
    s->slot = s->slot2 = hb_rng_below(p->rng, p->h.n_takes);
    if (on == NEW_FREE_TWICE || on == NEW_COPY_SELF) {
        const int wants_free = on == NEW_FREE_TWICE;
        for (int32_t i = 0; i < p->h.n_takes && p->h.take[s->slot].is_free != wants_free; i++) {
            s->slot = s->slot2 = (s->slot + 1) % p->h.n_takes;
        }
        if (p->h.n_takes == 0 || p->h.take[s->slot].is_free != wants_free) {
            return 0;
        }
    }
    s->direction = hb_rng_below(p->rng, 2);
    s->target = on == NEW_CHILD ? HB_ENTRY_CHILD : HB_ENTRY_WRAPPER;
    s->null_args = on == NEW_NULL || (on == NEW_CHILD && hb_rng_one_in(p->rng, 2));
    if (on == NEW_NULL || on == NEW_BARE) { /* the entry of an attention layer exists */
        while (s->layer < p->config.n_layers - 1 &&
               p->config.layer_kind[s->layer] != HB_LAYER_ATTENTION) {
            s->layer++;
        }
    }
    return 1;
}

/* A slot that is given back twice: the first time in a step of its own. */
static int free_once(struct hb_case *c, struct spot *p) {
    for (int32_t t = p->h.n_takes - 1; t >= 0; t--) {
        if (!p->h.take[t].is_free && c->n_steps + 1 < HB_MAX_STEPS) {
            struct hb_case_step *s = &c->step[c->n_steps++];
            hb_gen_step_init(s, HB_STEP_FREE);
            s->slot = t;
            hb_history_apply(&p->h, c, s);
            return 1;
        }
    }
    return 0;
}

int hb_recipe_apply(struct hb_case *c, int index, struct hb_rng *rng) {
    if (index < 0 || index >= N_RECIPES || recipes[index].unreachable ||
        c->n_breaks + recipes[index].n_breaks > HB_MAX_BREAKS) {
        return 0;
    }
    const struct recipe *r = &recipes[index];
    struct spot p;
    memset(&p, 0, sizeof p);
    p.c = c;
    p.rng = rng;
    hb_case_backend_config(c, &p.config);
    if (r->on == ON_FORWARD) {
        return apply_on_forward(c, r, rng, &p);
    }
    hb_history_replay(&p.h, c, c->n_steps);
    if (r->needs & ~offers(&p)) {
        return 0;
    }
    if (r->on == ON_CONFIG) {
        add_breaks(&p, r, -1, c);
        return 1;
    }
    struct hb_case_step s;
    if (!new_step(&p, r->on, &s)) {
        if (r->on != NEW_FREE_TWICE || !free_once(c, &p) || !new_step(&p, r->on, &s)) {
            return 0;
        }
    }
    c->step[c->n_steps++] = s;
    hb_case_backend_config(c, &p.config); /* one slot more, if the step is a TAKE */
    add_breaks(&p, r, c->n_steps - 1, c);
    return 1;
}
