/* SPDX-License-Identifier: Apache-2.0
 * The cursor. Bounds are looked at all the same, so that a text that was not scanned gives nonsense but reads nothing else. */
#include "harness/json_walk.h"

#include <stdlib.h>
#include <string.h>

#include "harness/json_scan.h"

static int peek(const struct hb_json_walk *w) {
    return w->pos < w->len ? (unsigned char)w->text[w->pos] : -1;
}

static void skip_space(struct hb_json_walk *w) {
    while (peek(w) == ' ' || peek(w) == '\t' || peek(w) == '\n' || peek(w) == '\r') {
        w->pos++;
    }
}

char hb_json_walk_kind(struct hb_json_walk *w) {
    skip_space(w);
    const int c = peek(w);
    if (c == '-' || (c >= '0' && c <= '9')) {
        return '0';
    }
    if (c < 0) {
        return 'n';
    }
    return w->text[w->pos];
}

void hb_json_walk_enter(struct hb_json_walk *w) {
    skip_space(w);
    w->pos++;
}

int hb_json_walk_next(struct hb_json_walk *w) {
    skip_space(w);
    const int c = peek(w);
    if (c == '}' || c == ']' || c < 0) {
        w->pos++;
        return 0;
    }
    if (c == ',') {
        w->pos++;
        skip_space(w);
    }
    return 1;
}

/* --- strings ---------------------------------------------------------------------------------- */

struct sink {
    char *out;
    size_t cap, n;
};

static void put(struct sink *s, int byte) {
    if (s->n + 1 < s->cap) {
        s->out[s->n++] = (char)byte;
    } else {
        s->cap = 0; /* nothing behind the cut */
    }
}

static uint32_t hex4(struct hb_json_walk *w) {
    uint32_t code = 0;
    for (int i = 0; i < 4; i++, w->pos++) {
        const int c = peek(w);
        code = code * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return code;
}

/* Behind \u. */
static void put_code(struct hb_json_walk *w, struct sink *s) {
    static const uint32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    uint32_t code = hex4(w);
    if (code >= 0xd800 && code <= 0xdbff) {
        w->pos += 2;
        code = 0x10000 + ((code - 0xd800) << 10) + (hex4(w) - 0xdc00);
    }
    if (code < 0x80) {
        put(s, (int)code);
        return;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    put(s, (int)(lead[more] | code >> (6 * more)));
    for (int i = more - 1; i >= 0; i--) {
        put(s, (int)(0x80 | (code >> (6 * i) & 0x3f)));
    }
}

static void put_escape(struct hb_json_walk *w, struct sink *s) {
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const int c = peek(w);
    w->pos++;
    const char *known = c > 0 ? strchr(from, c) : NULL;
    if (known) {
        put(s, to[known - from]);
    } else {
        put_code(w, s);
    }
}

void hb_json_walk_string(struct hb_json_walk *w, char *out, size_t cap) {
    struct sink s = {out, cap, 0};
    skip_space(w);
    w->pos++;
    for (int c = peek(w); c >= 0 && c != '"'; c = peek(w)) {
        w->pos++;
        if (c == '\\') {
            put_escape(w, &s);
        } else {
            put(&s, c);
        }
    }
    w->pos++;
    out[s.n] = '\0';
    skip_space(w);
    w->pos += peek(w) == ':' ? 1 : 0;
}

/* --- other values ----------------------------------------------------------------------------- */

double hb_json_walk_number(struct hb_json_walk *w) {
    char copy[HB_JSON_MAX_NUMBER + 1];
    size_t n = 0;
    skip_space(w);
    for (int c = peek(w); n < HB_JSON_MAX_NUMBER && c > 0 && strchr("+-.0123456789Ee", c); c = peek(w)) {
        copy[n++] = (char)c;
        w->pos++;
    }
    copy[n] = '\0';
    return strtod(copy, NULL);
}

static void skip_string(struct hb_json_walk *w) {
    w->pos++;
    for (int c = peek(w); c >= 0 && c != '"'; c = peek(w)) {
        w->pos += c == '\\' ? 2 : 1;
    }
    w->pos++;
}

void hb_json_walk_skip(struct hb_json_walk *w) {
    int depth = 0;
    skip_space(w);
    for (int c = peek(w); c >= 0; c = peek(w)) {
        if (depth == 0 && (c == ',' || c == '}' || c == ']')) {
            return; /* behind the value */
        }
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (c == '"') {
            skip_string(w);
        } else {
            w->pos++;
        }
    }
}

size_t hb_json_walk_count(const struct hb_json_walk *w) {
    struct hb_json_walk at = *w;
    const char kind = hb_json_walk_kind(&at);
    size_t n = 0;
    if (kind != '{' && kind != '[') {
        return 0;
    }
    hb_json_walk_enter(&at);
    while (hb_json_walk_next(&at)) {
        hb_json_walk_skip(&at); /* a key, its colon and its value in one, as neither has a comma outside */
        n++;
    }
    return n;
}
