/* SPDX-License-Identifier: Apache-2.0
 * The case as data: normal form, bytes, identity, and the backend configuration it asks for. */
#include "harness/case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "backend/batch.h"
#include "harness/bytes.h"
#include "harness/rng.h"

static const uint8_t magic[4] = {'H', 'B', 'C', '2'};

/* --- struct access by group
 * ------------------------------------------------------------------------------------- */

static void init_group(int32_t group, void *at) {
    const struct hb_case_field *f;
    const int n = hb_case_group_fields(group, &f);
    for (int i = 0; i < n; i++) {
        hb_case_field_set(&f[i], at, f[i].initial);
    }
}

/* Clamps the used fields of one group and gives the others their default. */
static void clamp_group(int32_t group, int32_t kind, void *at) {
    const struct hb_case_field *f;
    const int n = hb_case_group_fields(group, &f);
    for (int i = 0; i < n; i++) {
        int64_t v = hb_case_field_get(&f[i], at);
        v = v < f[i].lo ? f[i].lo : v;
        v = v > f[i].hi ? f[i].hi : v;
        hb_case_field_set(&f[i], at, hb_case_field_used(&f[i], kind) ? v : f[i].initial);
    }
}

void hb_case_init(struct hb_case *c) {
    memset(c, 0, sizeof *c); /* padding bytes too: cases are compared as memory */
    init_group(HB_GROUP_CONFIG, &c->config);
    init_group(HB_GROUP_STEP, &c->step[0]);
    for (int r = 0; r < HB_MAX_ROWS; r++) {
        init_group(HB_GROUP_ROW, &c->step[0].row[r]);
    }
    for (int s = 1; s < HB_MAX_STEPS; s++) {
        c->step[s] = c->step[0];
    }
    for (int b = 0; b < HB_MAX_BREAKS; b++) {
        init_group(HB_GROUP_BREAK, &c->brk[b]);
    }
}

/* --- normal form
 * ------------------------------------------------------------------------------------------------
 */

static int32_t clamp(int32_t v, int32_t lo, int32_t hi) {
    v = v < lo ? lo : v;
    return v > hi ? hi : v;
}

/* The largest divisor of n that is at most d. */
static int32_t divisor_below(int32_t n, int32_t d) {
    d = d > n ? n : d;
    while (n % d != 0) {
        d--;
    }
    return d;
}

static void normalize_config(struct hb_case_config *g) {
    clamp_group(HB_GROUP_CONFIG, HB_STEP_FORWARD, g);
    g->attn_mask &= (1 << g->n_layers) - 1;
    g->groups = divisor_below(g->heads, g->groups);
    g->kv_heads = divisor_below(g->q_heads, g->kv_heads);
    while (g->chunk_size & (g->chunk_size - 1)) {
        g->chunk_size &= g->chunk_size - 1; /* C >= 4 > W holds by the ranges */
    }
    g->page_chunks = g->page_chunks == 3 ? 2 : g->page_chunks;
    if (g->value_class == HB_VALUES_EXACT) {
        /* exact sums exist without transcendental functions only; either activation type is allowed
         */
        g->conv_act = HB_CONV_NONE;
        g->gate_norm = HB_GATE_NORM_NONE;
        g->dt_softplus = 0;
        g->dt_clamp = HB_DT_CLAMP_NONE;
    }
}

int hb_step_is_verify(const struct hb_case_step *s) {
    return (s->kind == HB_STEP_FORWARD || s->kind == HB_STEP_ENTRY) && s->mode == HB_MODE_TARGET_VERIFY;
}

/* D follows from the rows unless it is given; then no row has more nodes. Uniform rows have D nodes each. */
static void normalize_verify(struct hb_case_step *s) {
    int32_t longest = s->draft > 0 ? 1 : 0;
    for (int32_t r = 0; r < s->n_rows; r++) {
        const int32_t most = s->draft > 0 ? s->draft : HB_MAX_DRAFT;
        s->row[r].length = clamp(s->row[r].length, 1, most);
        s->row[r].track = 0; /* nothing is tracked in a verify */
        s->row[r].track_slot = 0;
        s->row[r].track_point = 0;
        longest = s->row[r].length > longest ? s->row[r].length : longest;
    }
    for (int32_t r = 0; r < s->n_rows && !s->ragged; r++) {
        s->row[r].length = s->draft > 0 ? s->draft : longest;
    }
    s->pad_tokens = s->ragged ? clamp(s->pad_tokens, 0, s->pad_rows * hb_case_draft(s)) : 0;
}

int32_t hb_case_draft(const struct hb_case_step *s) {
    int32_t longest = s->draft;
    if (!hb_step_is_verify(s)) {
        return 0;
    }
    for (int32_t r = 0; r < s->n_rows && s->draft == 0; r++) {
        longest = s->row[r].length > longest ? s->row[r].length : longest;
    }
    return longest < 1 ? 1 : longest;
}

/* Ragged: as even as possible, each within D (speculative.md section 2). */
int32_t hb_case_padding_nodes(const struct hb_case_step *s, int32_t i) {
    const int32_t draft = hb_case_draft(s);
    if (!s->ragged) {
        return draft;
    }
    const int32_t n = s->pad_tokens / s->pad_rows + (i < s->pad_tokens % s->pad_rows);
    return n < draft ? n : draft;
}

void hb_case_tree(const struct hb_case *c, const struct hb_case_step *s, int32_t row, int32_t n,
                  int32_t *parent) {
    struct hb_rng r = hb_rng_make((uint32_t)c->config.seed + ((uint64_t)(uint32_t)s->tree << 32),
                                  0x6472616674u + (uint64_t)(uint32_t)row);
    for (int32_t t = 0; t < n; t++) {
        /* half of the nodes continue the last one, so that trees are deep as well as wide */
        const int32_t any = hb_rng_below(&r, t);
        const int32_t is_next = hb_rng_one_in(&r, 2) || s->tree < HB_TREE_RANDOM;
        parent[t] = t == 0 ? 0 : is_next ? t - 1 : any;
    }
}

static void normalize_rows(struct hb_case_step *s) {
    const int has_rows = hb_step_has_rows(s->kind);
    s->n_rows = has_rows ? clamp(s->n_rows, 0, HB_MAX_ROWS) : 0;
    s->n_decode = s->mode == HB_MODE_MIXED ? clamp(s->n_decode, 0, s->n_rows) : 0;
    const int one_token = s->mode == HB_MODE_DECODE || s->mode == HB_MODE_IDLE;
    for (int32_t r = 0; r < HB_MAX_ROWS; r++) {
        struct hb_case_row *row = &s->row[r];
        if (r >= s->n_rows) {
            init_group(HB_GROUP_ROW, row);
            continue;
        }
        clamp_group(HB_GROUP_ROW, s->kind, row);
        if (one_token || r >= s->n_rows - s->n_decode) {
            row->length = 1;
        }
        if (!row->track) {
            row->track_slot = 0;
            row->track_point = 0;
            row->track_accept = 0;
        }
    }
    if (hb_step_is_verify(s)) {
        normalize_verify(s);
    } else {
        s->draft = 0;
        s->ragged = 0;
        s->tree = 0;
    }
}

/* n_takes and n_tracks count the TAKE steps before this one. */
static void normalize_step(const struct hb_case_config *g, struct hb_case_step *s, int32_t n_takes,
                           int32_t n_tracks) {
    s->kind = clamp(s->kind, 0, HB_N_STEP_KINDS - 1);
    clamp_group(HB_GROUP_STEP, s->kind, s);
    s->layer_mask &= (1 << g->n_layers) - 1;
    if (s->kind == HB_STEP_TAKE) {
        if (s->slot_kind == 1) {
            s->request = 0;
            s->prefix = 0;
            s->from = -1;
        }
        s->from = n_tracks == 0 || s->from < 0 ? -1 : s->from % n_tracks;
        s->prefix = s->from >= 0 ? 0 : s->prefix;
    }
    s->slot = n_takes > 0 ? s->slot % n_takes : 0;
    s->slot2 = n_takes > 0 ? s->slot2 % n_takes : 0;
    normalize_rows(s);
}

/* A break of the configuration is at step -1, every other one at a step that exists; else it is
 * dropped. */
static void normalize_breaks(struct hb_case *c) {
    int32_t kept = 0;
    for (int32_t b = 0; b < c->n_breaks; b++) {
        struct hb_case_break k = c->brk[b];
        clamp_group(HB_GROUP_BREAK, HB_STEP_FORWARD, &k);
        const int is_config = k.field >= HB_FIELD_CFG_N_LAYERS;
        if (is_config) {
            k.step = -1;
        } else if (c->n_steps == 0) {
            continue;
        } else {
            k.step = clamp(k.step, 0, c->n_steps - 1);
        }
        c->brk[kept++] = k;
    }
    c->n_breaks = kept;
    for (int32_t b = kept; b < HB_MAX_BREAKS; b++) {
        init_group(HB_GROUP_BREAK, &c->brk[b]);
    }
}

/* --- limits of work
 * --------------------------------------------------------------------------------------------- */

struct work {
    int64_t tokens; /* of all forwards and entries, padding included */
    int64_t ssm,
        attn; /* elementary updates: tokens x layers x H P N; tokens x layers x context x HQ D */
    int32_t longest; /* longest row */
    int32_t context; /* most tokens a request can reach: largest prefix + the longest row of each
                        step */
    int32_t batch_rows, batch_tokens; /* most of any forward */
    int32_t verify_rows;              /* most rows of any verify */
    int32_t prefixes;                 /* tokens before the first forward, summed */
    int32_t restarts;
};

/* Tokens of a forward, padding included. */
static int32_t step_tokens(const struct hb_case_step *s) {
    const int is_verify = hb_step_is_verify(s);
    int32_t tokens = is_verify ? 0 : s->pad_tokens + s->pad_rows;
    for (int32_t r = 0; r < s->n_rows && s->kind != HB_STEP_COMMIT; r++) {
        tokens += s->row[r].length;
    }
    for (int32_t r = 0; r < s->pad_rows && is_verify; r++) {
        tokens += hb_case_padding_nodes(s, r);
    }
    return tokens;
}

static void measure(const struct hb_case *c, struct work *w) {
    memset(w, 0, sizeof *w);
    int32_t prefix = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        prefix = s->prefix > prefix ? s->prefix : prefix;
        w->prefixes += s->prefix;
        w->restarts += s->kind == HB_STEP_TAKE && s->from >= 0;
        int32_t longest = hb_case_draft(s);
        const int32_t tokens = step_tokens(s);
        for (int32_t r = 0; r < s->n_rows && s->kind != HB_STEP_COMMIT; r++) {
            longest = s->row[r].length > longest ? s->row[r].length : longest;
        }
        w->tokens += tokens;
        w->context += longest;
        w->longest = longest > w->longest ? longest : w->longest;
        w->batch_tokens = tokens > w->batch_tokens ? tokens : w->batch_tokens;
        const int32_t rows = s->n_rows + s->pad_rows;
        w->batch_rows = rows > w->batch_rows ? rows : w->batch_rows;
        w->verify_rows = hb_step_is_verify(s) && rows > w->verify_rows ? rows : w->verify_rows;
    }
    w->context += prefix;
    const struct hb_case_config *g = &c->config;
    const int64_t per_layer = w->tokens * g->n_layers;
    w->ssm = per_layer * g->heads * g->head_dim * g->state_size;
    w->attn = per_layer * w->context * g->q_heads * g->attn_dim;
}

static void halve_lengths(struct hb_case *c, int32_t longest) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        for (int32_t r = 0; r < c->step[i].n_rows; r++) {
            int32_t *length = &c->step[i].row[r].length;
            *length = *length == longest ? (longest + 1) / 2 : *length;
        }
        if (hb_step_is_verify(&c->step[i])) {
            int32_t *draft = &c->step[i].draft;
            *draft = *draft == longest ? (longest + 1) / 2 : *draft;
            normalize_verify(&c->step[i]);
        }
    }
}

static void halve_prefixes(struct hb_case *c) {
    for (int32_t i = 0; i < c->n_steps; i++) {
        c->step[i].prefix /= 2;
    }
}

/* Lowers lengths first (they are what a case is large by), then the sizes, until the case is within
 * the limits: HB_CASE_MAX_TOKENS tokens in all, HB_CASE_MAX_WORK elementary updates of either kind.
 */
static void limit_work(struct hb_case *c) {
    enum { SHORT = 16 };
    struct hb_case_config *g = &c->config;
    for (;;) {
        struct work w;
        measure(c, &w);
        const int too_many = w.tokens > HB_CASE_MAX_TOKENS;
        if (!too_many && w.ssm <= HB_CASE_MAX_WORK && w.attn <= HB_CASE_MAX_WORK) {
            break;
        }
        if (w.longest > (too_many ? 1 : SHORT)) {
            halve_lengths(c, w.longest);
        } else if (w.ssm > HB_CASE_MAX_WORK) {
            int32_t *largest = &g->state_size;
            largest = g->head_dim > *largest ? &g->head_dim : largest;
            largest = g->heads > *largest ? &g->heads : largest;
            *largest = (*largest + 1) / 2;
        } else if (g->attn_dim > 1 || g->q_heads > 1) {
            int32_t *largest = g->attn_dim >= g->q_heads ? &g->attn_dim : &g->q_heads;
            *largest = (*largest + 1) / 2;
        } else {
            halve_prefixes(c);
        }
    }
    g->groups = divisor_below(g->heads, g->groups);
    g->kv_heads = divisor_below(g->q_heads, g->kv_heads);
}

void hb_case_normalize(struct hb_case *c) {
    normalize_config(&c->config);
    c->n_steps = clamp(c->n_steps, 0, HB_MAX_STEPS);
    c->n_breaks = clamp(c->n_breaks, 0, HB_MAX_BREAKS);
    int32_t n_takes = 0;
    int32_t n_tracks = 0;
    for (int32_t i = 0; i < HB_MAX_STEPS; i++) {
        struct hb_case_step *s = &c->step[i];
        if (i >= c->n_steps) {
            init_group(HB_GROUP_STEP, s);
            s->n_rows = 0;
        }
        normalize_step(&c->config, s, n_takes, n_tracks);
        n_takes += s->kind == HB_STEP_TAKE;
        n_tracks += s->kind == HB_STEP_TAKE && s->slot_kind == 1;
    }
    normalize_breaks(c);
    limit_work(c);
}

/* --- bytes
 * ------------------------------------------------------------------------------------------------------
 */

/* Values lo..hi are stored as the distance from the default, modulo their number: zero bytes are
 * the default. */
static uint64_t field_span(const struct hb_case_field *f) {
    return (uint64_t)(f->hi - f->lo) + 1;
}

static int32_t field_width(const struct hb_case_field *f) {
    if (f->is_wide) {
        return 8;
    }
    return field_span(f) <= 256 ? 1 : 4;
}

static int64_t field_from_raw(const struct hb_case_field *f, uint64_t raw) {
    if (f->is_wide) {
        return (int64_t)((uint64_t)f->initial + raw);
    }
    return f->lo + (int64_t)(((uint64_t)(f->initial - f->lo) + raw) % field_span(f));
}

static uint64_t field_to_raw(const struct hb_case_field *f, int64_t value) {
    if (f->is_wide) {
        return (uint64_t)value - (uint64_t)f->initial;
    }
    return (uint64_t)(value >= f->initial ? value - f->initial
                                          : value - f->initial + (int64_t)field_span(f));
}

static void read_group(struct hb_byte_reader *in, int32_t group, int32_t kind, void *at) {
    const struct hb_case_field *f;
    const int n = hb_case_group_fields(group, &f);
    for (int i = 0; i < n; i++) {
        if (hb_case_field_used(&f[i], kind)) {
            hb_case_field_set(&f[i], at,
                              field_from_raw(&f[i], hb_bytes_get(in, field_width(&f[i]))));
            if (group == HB_GROUP_STEP && f[i].offset == offsetof(struct hb_case_step, kind)) {
                kind = ((const struct hb_case_step *)at)->kind; /* the first field of a step */
            }
        }
    }
}

static void write_group(struct hb_byte_writer *out, int32_t group, int32_t kind, const void *at) {
    const struct hb_case_field *f;
    const int n = hb_case_group_fields(group, &f);
    for (int i = 0; i < n; i++) {
        if (hb_case_field_used(&f[i], kind)) {
            hb_bytes_put(out, field_to_raw(&f[i], hb_case_field_get(&f[i], at)),
                         field_width(&f[i]));
        }
    }
}

static int32_t read_count(struct hb_byte_reader *in, int32_t most) {
    return (int32_t)(hb_bytes_get(in, 1) % (uint64_t)(most + 1));
}

void hb_case_decode(const uint8_t *data, size_t size, struct hb_case *out) {
    struct hb_byte_reader in = {data, size, 0};
    if (size >= sizeof magic && memcmp(data, magic, sizeof magic) == 0) {
        in.pos = sizeof magic;
    }
    hb_case_init(out);
    read_group(&in, HB_GROUP_CONFIG, HB_STEP_FORWARD, &out->config);
    out->n_steps = read_count(&in, HB_MAX_STEPS);
    for (int32_t i = 0; i < out->n_steps; i++) {
        struct hb_case_step *s = &out->step[i];
        read_group(&in, HB_GROUP_STEP, HB_STEP_FORWARD, s);
        s->n_rows = hb_step_has_rows(s->kind) ? read_count(&in, HB_MAX_ROWS) : 0;
        for (int32_t r = 0; r < s->n_rows; r++) {
            read_group(&in, HB_GROUP_ROW, s->kind, &s->row[r]);
        }
    }
    out->n_breaks = read_count(&in, HB_MAX_BREAKS);
    for (int32_t b = 0; b < out->n_breaks; b++) {
        read_group(&in, HB_GROUP_BREAK, HB_STEP_FORWARD, &out->brk[b]);
    }
    hb_case_normalize(out);
}

size_t hb_case_encode(const struct hb_case *c, uint8_t *out, size_t cap) {
    struct hb_byte_writer w = {out, cap, 0, 0};
    for (size_t i = 0; i < sizeof magic; i++) {
        hb_bytes_put(&w, magic[i], 1);
    }
    write_group(&w, HB_GROUP_CONFIG, HB_STEP_FORWARD, &c->config);
    hb_bytes_put(&w, (uint64_t)c->n_steps, 1);
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        write_group(&w, HB_GROUP_STEP, s->kind, s);
        if (hb_step_has_rows(s->kind)) {
            hb_bytes_put(&w, (uint64_t)s->n_rows, 1);
        }
        for (int32_t r = 0; r < s->n_rows; r++) {
            write_group(&w, HB_GROUP_ROW, s->kind, &s->row[r]);
        }
    }
    hb_bytes_put(&w, (uint64_t)c->n_breaks, 1);
    for (int32_t b = 0; b < c->n_breaks; b++) {
        write_group(&w, HB_GROUP_BREAK, HB_STEP_FORWARD, &c->brk[b]);
    }
    return w.is_full ? 0 : w.size;
}

void hb_case_id(const struct hb_case *c, char id[HB_CASE_ID_LEN]) {
    uint8_t bytes[HB_CASE_MAX_BYTES];
    const size_t n = hb_case_encode(c, bytes, sizeof bytes);
    (void)snprintf(id, HB_CASE_ID_LEN, "%016llx", (unsigned long long)XXH64(bytes, n, 0));
}

/* --- the backend's configuration
 * -------------------------------------------------------------------------------- */

int32_t hb_case_req_index(const struct hb_case *c, int32_t request) {
    int32_t index[HB_MAX_REQS];
    for (int32_t i = 0; i < HB_MAX_REQS; i++) {
        index[i] = i + 1; /* 0 stays the request of padding rows */
    }
    struct hb_rng r = hb_rng_make((uint32_t)c->config.seed, 0x7265717565737473u);
    hb_rng_shuffle(&r, index, HB_MAX_REQS);
    return index[clamp(request, 0, HB_MAX_REQS - 1)];
}

/* Most slots that TAKE steps hold at one time; FREE gives one back. */
static int32_t slots_held(const struct hb_case *c) {
    int32_t held[HB_MAX_STEPS] = {0};
    int32_t n_takes = 0;
    int32_t now = 0;
    int32_t most = 0;
    for (int32_t i = 0; i < c->n_steps; i++) {
        const struct hb_case_step *s = &c->step[i];
        if (s->kind == HB_STEP_TAKE) {
            held[n_takes++] = 1;
            now++;
            most = now > most ? now : most;
        } else if (s->kind == HB_STEP_FREE && held[s->slot]) {
            held[s->slot] = 0;
            now--;
        }
    }
    return most;
}

void hb_case_backend_config(const struct hb_case *c, struct hb_config *config) {
    static const float lower[] = {0.0078125f, 0.03125f, 0.0625f, 0.125f};
    static const float upper[] = {0.1875f, 0.25f, 0.5f, 1.5f};
    const struct hb_case_config *g = &c->config;
    struct work w;
    measure(c, &w);
    memset(config, 0, sizeof *config);
    config->struct_size = sizeof *config;
    config->n_layers = g->n_layers;
    for (int32_t l = 0; l < g->n_layers; l++) {
        config->layer_kind[l] = (g->attn_mask >> l) & 1 ? HB_LAYER_ATTENTION : HB_LAYER_MAMBA2;
    }
    config->n_heads = g->heads;
    config->head_dim = g->head_dim;
    config->state_size = g->state_size;
    config->n_groups = g->groups;
    config->conv_width = g->conv_width;
    config->chunk_size = g->chunk_size;
    config->page_size = g->page_chunks == 0 ? 1 : g->page_chunks * g->chunk_size;
    config->act_dtype = g->act_dtype;
    config->state_dtype = g->state_dtype;
    config->conv_act = g->conv_act;
    config->gate_norm = g->gate_norm;
    const int32_t inner = g->heads * g->head_dim;
    config->norm_group = g->norm_whole ? inner : inner / g->groups;
    config->dt_softplus = g->dt_softplus;
    config->dt_clamp_prefill = g->dt_clamp;
    config->dt_clamp_decode = g->dt_clamp;
    struct hb_rng r = hb_rng_make((uint32_t)g->seed, 0x64745f6c696d6974u);
    const int32_t lo = hb_rng_below(&r, 4);
    const int32_t hi = hb_rng_below(&r, 4);
    config->dt_lo = g->dt_clamp == HB_DT_CLAMP_NONE ? 0.0f : lower[lo];
    config->dt_hi = g->dt_clamp == HB_DT_CLAMP_NONE ? INFINITY : upper[hi];
    config->norm_eps = g->eps ? 1e-6f : 1e-5f;
    config->n_q_heads = g->q_heads;
    config->n_kv_heads = g->kv_heads;
    config->attn_dim = g->attn_dim;
    config->n_slots = slots_held(c) + g->spare_slots;
    config->n_slots = config->n_slots < 1 ? 1 : config->n_slots;
    config->req_pool_size = HB_MAX_REQS + 1;
    config->max_context = w.context < 4 ? 4 : (w.context + 3) / 4 * 4;
    /* every token and prefix token once, a restarted request's tokens once more */
    config->n_kv = (int32_t)w.tokens + w.prefixes + w.restarts * w.context + 8;
    config->max_batch = w.batch_rows + 2;
    config->max_draft = g->max_draft;
    config->spec_rows = g->max_draft == 0 ? 0 : w.verify_rows < 1 ? 1 : w.verify_rows;
    config->max_tokens = w.batch_tokens + 4;
    config->kernel_form = g->kernel_form;
    config->thread_order = g->thread_order;
    config->block_order = g->block_order;
    config->order_seed = (uint32_t)g->order_seed;
}
