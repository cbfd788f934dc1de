/* SPDX-License-Identifier: Apache-2.0
 * The case as data: normal form, bytes, identity. */
#include "harness/case_internal.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "backend/batch.h"
#include "harness/bytes.h"

static const uint8_t magic[4] = HB_CASE_MAGIC;

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

/* Commits own a ring only where there are drafts; it then has room for those of two verifies, and
 * the states between its folds are fp32. */
static void normalize_ring(struct hb_case_config *g) {
    if (g->ring_length == 0 || g->max_draft == 0) {
        g->ring_owner = HB_RING_DECODE;
    }
    if (g->ring_owner != HB_RING_COMMIT) {
        return;
    }
    const int32_t least =
        g->ring_length > 2 * g->max_draft ? g->ring_length : 2 * g->max_draft;
    g->ring_length = 1;
    while (g->ring_length < least) {
        g->ring_length *= 2; /* at most 64, as HB_MAX_RING is a power of two */
    }
    g->state_dtype = HB_FP32;
}

static void normalize_config(struct hb_case_config *g) {
    clamp_group(HB_GROUP_CONFIG, HB_STEP_FORWARD, g);
    hb_case_limit_sizes(g, 0);
    g->attn_mask &= (1 << g->n_layers) - 1;
    g->groups = divisor_below(g->heads, g->groups);
    g->kv_heads = divisor_below(g->q_heads, g->kv_heads);
    while (g->chunk_size & (g->chunk_size - 1)) {
        g->chunk_size &= g->chunk_size - 1; /* C >= 4 > W holds by the ranges */
    }
    g->page_chunks = g->page_chunks == 3 ? 2 : g->page_chunks;
    g->spare_rows = g->max_draft == 0 ? 0 : g->spare_rows;
    g->window_layout = g->max_draft == 0 ? HB_WINDOWS_DENSE : g->window_layout;
    g->graph_draft = g->graph_rows == 0 ? 1 : g->graph_draft;
    hb_case_normalize_variants(g);
    normalize_ring(g);
}

static void normalize_rows(const struct hb_case_config *g, struct hb_case_step *s) {
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
        row->track_slot = g->ping_pong != HB_PING_PONG_OFF ? 0 : row->track_slot;
    }
    hb_case_normalize_draft(s);
}

/* A track slot belongs to no request. Of the three ways to have tokens, a match in the prefix cache comes before a
 * checkpoint, and that before random ones. */
static void normalize_take(struct hb_case_step *s, int32_t n_tracks) {
    if (s->slot_kind == 1) {
        s->request = 0;
        s->prefix = 0;
        s->from = -1;
        s->match = -1;
    }
    s->from = n_tracks == 0 || s->from < 0 || s->match >= 0 ? -1 : s->from % n_tracks;
    s->prefix = s->from >= 0 ? 0 : s->prefix;
}

/* n_takes and n_tracks count the TAKE steps before this one. */
static void normalize_step(const struct hb_case_config *g, struct hb_case_step *s, int32_t n_takes,
                           int32_t n_tracks) {
    s->kind = clamp(s->kind, 0, HB_N_STEP_KINDS - 1);
    clamp_group(HB_GROUP_STEP, s->kind, s);
    s->layer_mask &= (1 << g->n_layers) - 1;
    if (s->kind == HB_STEP_TAKE) {
        normalize_take(s, n_tracks);
    }
    /* draft nodes are those of a verify */
    s->nodes = s->kind == HB_STEP_CAPTURE && s->mode != HB_MODE_TARGET_VERIFY ? 1 : s->nodes;
    s->slot = n_takes > 0 ? s->slot % n_takes : 0;
    s->slot2 = s->slot2 < 0 || n_takes == 0 ? s->slot2 : s->slot2 % n_takes;
    if (s->kind == HB_STEP_COPY && (s->slot2 < 0 || n_takes == 0)) {
        s->slot2 = 0; /* a copy has two */
    } else if (s->kind == HB_STEP_FREE && n_takes == 0) {
        s->slot2 = -1;
    }
    normalize_rows(g, s);
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
    hb_case_limit_work(c);
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
    const int is_case = size >= sizeof magic && memcmp(data, magic, sizeof magic) == 0;
    in.pos = is_case ? sizeof magic : 0;
    hb_case_init(out);
    read_group(&in, HB_GROUP_CONFIG, HB_STEP_FORWARD, &out->config);
    out->config.real_size &= is_case; /* random bytes shall not ask for work that takes minutes */
    hb_case_limit_sizes(&out->config, 1);
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
