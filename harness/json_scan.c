/* SPDX-License-Identifier: Apache-2.0
 * Strict JSON scanner: one pass, an explicit stack of open containers. Keys of open objects are compared one by one
 * while they are few, and are in one hash set where an object has many. */
#include "harness/json_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const double number_limit = 9007199254740992.0; /* 2^53 */

/* A key of an object: 128-bit hash of (object, decoded key). Two different keys with one hash do
 * not occur in practice. */
struct key {
    uint64_t lo, hi;
};

enum { FEW_KEYS = 8 };

struct scanner {
    const unsigned char *text;
    size_t len, pos;
    struct hb_error *err;
    int32_t status;
    int32_t depth;
    char open[HB_JSON_MAX_DEPTH];       /* '{' or '[' */
    uint64_t object[HB_JSON_MAX_DEPTH]; /* number of the object, for keys */
    uint64_t n_objects;
    struct key few[HB_JSON_MAX_DEPTH][FEW_KEYS]; /* first keys of the open objects */
    size_t n_keys_of[HB_JSON_MAX_DEPTH];
    struct key *keys; /* all keys of objects with more; open addressing; {0, 0} is an empty place */
    size_t n_keys, cap_keys;
};

/* A fault that has no number. */
static int fail_text(struct scanner *s, size_t at, const char *what) {
    if (s->status == HB_OK) {
        s->status = HB_ERR_PARSE;
        hb_fail_text(s->err, HB_ERR_PARSE, "json: byte %zu: %s", at, what);
    }
    return 0;
}

/* Something else is there than must be. */
static int fail_found(struct scanner *s, const char *wanted) {
    char what[96];
    const int c = s->pos < s->len ? s->text[s->pos] : -1;
    if (c < 0) {
        (void)snprintf(what, sizeof what, "%s, the text ends here", wanted);
    } else if (c >= 0x20 && c < 0x7f) {
        (void)snprintf(what, sizeof what, "%s, found '%c'", wanted, c);
    } else {
        (void)snprintf(what, sizeof what, "%s, found the byte 0x%02x", wanted, (unsigned)c);
    }
    return fail_text(s, s->pos, what);
}

/* The first fault wins; value and limit are also machine-readable in the record. */
static int fail(struct scanner *s, size_t at, const char *what, int64_t value, int64_t limit) {
    if (s->status != HB_OK) {
        return 0;
    }
    s->status = HB_ERR_PARSE;
    const int is_first = s->err && s->err->status == HB_OK;
    hb_fail_text(s->err, HB_ERR_PARSE, "json: byte %zu: %s (value %lld, limit %lld)", at, what,
                 (long long)value, (long long)limit);
    if (is_first) {
        s->err->value = value;
        s->err->limit = limit;
    }
    return 0;
}

static int fail_memory(struct scanner *s) {
    s->status = HB_ERR_MEMORY;
    hb_fail_text(s->err, HB_ERR_MEMORY, "json: out of memory");
    return 0;
}

/* The byte at pos, -1 at the end. */
static int peek(const struct scanner *s) {
    return s->pos < s->len ? s->text[s->pos] : -1;
}

static int is_space(int c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(struct scanner *s) {
    while (is_space(peek(s))) {
        s->pos++;
    }
}

/* --- keys
 * -------------------------------------------------------------------------------------------------------
 */

static int place_key(struct key *keys, size_t cap, struct key k) {
    size_t i = (size_t)k.lo & (cap - 1);
    while (keys[i].lo != 0 || keys[i].hi != 0) {
        if (keys[i].lo == k.lo && keys[i].hi == k.hi) {
            return 0;
        }
        i = (i + 1) & (cap - 1);
    }
    keys[i] = k;
    return 1;
}

static int grow_keys(struct scanner *s) {
    const size_t cap = s->cap_keys == 0 ? 64 : 2 * s->cap_keys;
    struct key *keys = calloc(cap, sizeof *keys);
    if (!keys) {
        return fail_memory(s);
    }
    for (size_t i = 0; i < s->cap_keys; i++) {
        if (s->keys[i].lo != 0 || s->keys[i].hi != 0) {
            (void)place_key(keys, cap, s->keys[i]);
        }
    }
    free(s->keys);
    s->keys = keys;
    s->cap_keys = cap;
    return 1;
}

/* 1 new, 0 known, -1 no memory. */
static int put_in_set(struct scanner *s, struct key k) {
    if (2 * (s->n_keys + 1) > s->cap_keys && !grow_keys(s)) {
        return -1;
    }
    const int is_new = place_key(s->keys, s->cap_keys, k);
    s->n_keys += (size_t)is_new;
    return is_new;
}

/* As put_in_set, for the innermost object. */
static int put_key(struct scanner *s, struct key k) {
    struct key *few = s->few[s->depth - 1];
    const size_t n = s->n_keys_of[s->depth - 1];
    for (size_t i = 0; i < n && n <= FEW_KEYS; i++) {
        if (few[i].lo == k.lo && few[i].hi == k.hi) {
            return 0;
        }
    }
    for (size_t i = 0; n == FEW_KEYS && i < n; i++) {
        if (put_in_set(s, few[i]) < 0) {
            return -1;
        }
    }
    if (n < FEW_KEYS) {
        few[n] = k;
    }
    s->n_keys_of[s->depth - 1]++;
    return n < FEW_KEYS ? 1 : put_in_set(s, k);
}

static int add_key(struct scanner *s, size_t at, const unsigned char *key, size_t n) {
    const XXH128_hash_t h = XXH3_128bits_withSeed(key, n, s->object[s->depth - 1]);
    const struct key k = {h.low64 | (h.low64 == 0 && h.high64 == 0), h.high64};
    const int is_new = put_key(s, k);
    if (is_new < 0) {
        return 0;
    }
    if (!is_new) {
        char what[96];
        (void)snprintf(what, sizeof what, "key \"%.*s\" appears twice in one object",
                       (int)(n < 64 ? n : 64), (const char *)key);
        return fail_text(s, at, what);
    }
    return 1;
}

/* --- strings
 * ----------------------------------------------------------------------------------------------------
 */

/* Decoded bytes of a key; other strings only count. */
struct sink {
    unsigned char bytes[HB_JSON_MAX_KEY];
    size_t n;
};

static void sink_put(struct sink *k, unsigned char byte) {
    if (k->n < sizeof k->bytes) {
        k->bytes[k->n] = byte;
    }
    k->n++;
}

static void sink_code(struct sink *k, uint32_t code) {
    if (code < 0x80) {
        sink_put(k, (unsigned char)code);
        return;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    sink_put(k, (unsigned char)(lead[more] | (code >> (6 * more))));
    for (int i = more - 1; i >= 0; i--) {
        sink_put(k, (unsigned char)(0x80 | ((code >> (6 * i)) & 0x3f)));
    }
}

/* One well-formed UTF-8 sequence of two or more bytes (RFC 3629 table). */
static int scan_utf8(struct scanner *s, struct sink *k) {
    const unsigned char *p = s->text + s->pos;
    const size_t left = s->len - s->pos;
    const unsigned char a = p[0];
    size_t n = 0;
    unsigned char lo = 0x80;
    unsigned char hi = 0xbf;
    if (a >= 0xc2 && a <= 0xdf) {
        n = 2;
    } else if (a >= 0xe0 && a <= 0xef) {
        n = 3;
        lo = a == 0xe0 ? 0xa0 : lo; /* shortest form only */
        hi = a == 0xed ? 0x9f : hi; /* no surrogates */
    } else if (a >= 0xf0 && a <= 0xf4) {
        n = 4;
        lo = a == 0xf0 ? 0x90 : lo;
        hi = a == 0xf4 ? 0x8f : hi; /* at most U+10FFFF */
    }
    if (n == 0 || left < n) {
        return fail(s, s->pos, "not UTF-8", a, 0x7f);
    }
    for (size_t i = 1; i < n; i++) {
        if (p[i] < (i == 1 ? lo : 0x80) || p[i] > (i == 1 ? hi : 0xbf)) {
            return fail(s, s->pos + i, "not UTF-8", p[i], i == 1 ? hi : 0xbf);
        }
    }
    for (size_t i = 0; i < n; i++) {
        sink_put(k, p[i]);
    }
    s->pos += n;
    return 1;
}

static int scan_hex4(struct scanner *s, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++) {
        const int c = peek(s);
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        const char *d = c > 0 ? strchr(digits, c) : NULL;
        if (!d) {
            return fail(s, s->pos, "bad \\u escape", c, 'f');
        }
        *code = *code * 16 + (uint32_t)((d - digits) & 15);
        s->pos++;
    }
    return 1;
}

static int scan_unicode_escape(struct scanner *s, struct sink *k) {
    const size_t at = s->pos;
    uint32_t code;
    if (!scan_hex4(s, &code)) {
        return 0;
    }
    if (code == 0) {
        return fail(s, at, "\\u0000 in a string", 0, 1);
    }
    if (code >= 0xd800 && code <= 0xdfff) {
        uint32_t low = 0;
        const int is_pair = code <= 0xdbff && s->len - s->pos >= 2 && s->text[s->pos] == '\\' &&
                            s->text[s->pos + 1] == 'u';
        s->pos += is_pair ? 2 : 0;
        if (is_pair && !scan_hex4(s, &low)) {
            return 0;
        }
        if (low < 0xdc00 || low > 0xdfff) {
            return fail(s, at, "unpaired surrogate", (int64_t)code, 0xd7ff);
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    sink_code(k, code);
    return 1;
}

static int scan_escape(struct scanner *s, struct sink *k) {
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    s->pos++;
    const int c = peek(s);
    const char *known = c > 0 ? strchr(from, c) : NULL;
    if (known) {
        sink_put(k, (unsigned char)to[known - from]);
        s->pos++;
        return 1;
    }
    if (c != 'u') {
        return fail(s, s->pos, "unknown escape", c, 'u');
    }
    s->pos++;
    return scan_unicode_escape(s, k);
}

/* At the opening quote. */
static int scan_string(struct scanner *s, struct sink *k) {
    const size_t start = s->pos;
    k->n = 0;
    s->pos++;
    for (;;) {
        const int c = peek(s);
        int ok = 1;
        if (c < 0) {
            return fail(s, start, "string is not closed", (int64_t)s->len, (int64_t)s->len);
        }
        if (c == '"') {
            s->pos++;
            return 1;
        }
        if (c < 0x20) {
            return fail(s, s->pos, "control character in a string", c, 0x20);
        }
        if (c == '\\') {
            ok = scan_escape(s, k);
        } else if (c >= 0x80) {
            ok = scan_utf8(s, k);
        } else {
            sink_put(k, (unsigned char)c);
            s->pos++;
        }
        if (!ok) {
            return 0;
        }
    }
}

/* --- numbers and words
 * ------------------------------------------------------------------------------------------ */

static size_t skip_digits(struct scanner *s) {
    const size_t start = s->pos;
    while (peek(s) >= '0' && peek(s) <= '9') {
        s->pos++;
    }
    return s->pos - start;
}

static int check_magnitude(struct scanner *s, size_t start) {
    char copy[HB_JSON_MAX_NUMBER + 1];
    const size_t n = s->pos - start;
    if (n > HB_JSON_MAX_NUMBER) {
        return fail(s, start, "number is too long", (int64_t)n, HB_JSON_MAX_NUMBER);
    }
    memcpy(copy, s->text + start, n);
    copy[n] = '\0';
    const double v = strtod(copy, NULL);
    if (!(v < number_limit && v > -number_limit)) {
        const int64_t limit = (int64_t)number_limit;
        /* 2^53 + 1 and its like round to 2^53, so the rounded value says enough */
        const int64_t value = v < 9e18 && v > -9e18 ? (int64_t)v : v > 0 ? INT64_MAX : INT64_MIN;
        return fail(s, start, "number is 2^53 or larger in magnitude", value, limit);
    }
    return 1;
}

static int scan_number(struct scanner *s) {
    const size_t start = s->pos;
    s->pos += peek(s) == '-' ? 1 : 0;
    const size_t first = s->pos;
    const size_t n = skip_digits(s);
    if (n == 0) {
        return fail_found(s, "a digit is missing");
    }
    if (n > 1 && s->text[first] == '0') {
        return fail(s, first, "number has a leading zero", (int64_t)n, 1);
    }
    if (peek(s) == '.') {
        s->pos++;
        if (skip_digits(s) == 0) {
            return fail_found(s, "a digit is missing after the point");
        }
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->pos++;
        s->pos += peek(s) == '+' || peek(s) == '-' ? 1 : 0;
        if (skip_digits(s) == 0) {
            return fail_found(s, "a digit is missing in the exponent");
        }
    }
    return check_magnitude(s, start);
}

static int scan_word(struct scanner *s) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t n = strlen(words[i]);
        if (s->len - s->pos >= n && memcmp(s->text + s->pos, words[i], n) == 0) {
            s->pos += n;
            return 1;
        }
    }
    return fail_found(s, "a value is expected");
}

/* --- containers
 * -------------------------------------------------------------------------------------------------
 */

static int open_container(struct scanner *s) {
    if (s->depth == HB_JSON_MAX_DEPTH) {
        return fail(s, s->pos, "nested too deep", s->depth + 1, HB_JSON_MAX_DEPTH);
    }
    s->open[s->depth] = (char)s->text[s->pos++];
    s->n_keys_of[s->depth] = 0;
    s->object[s->depth++] = ++s->n_objects;
    return 1;
}

/* In an object, before a key: the key and its colon. */
static int scan_key(struct scanner *s) {
    struct sink k;
    const size_t at = s->pos;
    if (peek(s) != '"') {
        return fail_found(s, "a key is expected");
    }
    if (!scan_string(s, &k)) {
        return 0;
    }
    if (k.n > HB_JSON_MAX_KEY) {
        return fail(s, at, "key is too long", (int64_t)k.n, HB_JSON_MAX_KEY);
    }
    if (!add_key(s, at, k.bytes, k.n)) {
        return 0;
    }
    skip_space(s);
    if (peek(s) != ':') {
        return fail_found(s, "a colon is expected");
    }
    s->pos++;
    skip_space(s);
    return 1;
}

/* One value; containers are only opened. Returns 1 if the value is complete, 2 if a container was
 * opened, 0 on failure. */
static int scan_value(struct scanner *s) {
    struct sink unused;
    const int c = peek(s);
    if (c == '{' || c == '[') {
        return open_container(s) ? 2 : 0;
    }
    if (c == '"') {
        return scan_string(s, &unused);
    }
    return c == '-' || (c >= '0' && c <= '9') ? scan_number(s) : scan_word(s);
}

/* After a complete value: closes containers, and stops before the next value or at the end of the
 * text (depth 0). */
static int scan_after_value(struct scanner *s) {
    while (s->depth > 0) {
        const int is_object = s->open[s->depth - 1] == '{';
        skip_space(s);
        const int c = peek(s);
        s->pos++;
        if (c == ',') {
            skip_space(s);
            return is_object ? scan_key(s) : 1;
        }
        if (c != (is_object ? '}' : ']')) {
            s->pos--;
            return fail_found(s, is_object ? "a comma or } is expected" : "a comma or ] is expected");
        }
        s->depth--;
    }
    return 1;
}

/* After an opened container: an empty one counts as a complete value (1), else stops before its
 * first value (2). */
static int scan_first(struct scanner *s) {
    const int is_object = s->open[s->depth - 1] == '{';
    skip_space(s);
    if (peek(s) == (is_object ? '}' : ']')) {
        s->pos++;
        s->depth--;
        return 1;
    }
    if (is_object && !scan_key(s)) {
        return 0;
    }
    return 2;
}

static void scan_text(struct scanner *s) {
    if (s->len >= 3 && memcmp(s->text, "\xef\xbb\xbf", 3) == 0) {
        fail(s, 0, "byte order mark", 0xef, 0x7f);
        return;
    }
    skip_space(s);
    do {
        int state = scan_value(s);
        state = state == 2 ? scan_first(s) : state;
        state = state == 1 ? scan_after_value(s) : state;
        if (state == 0) {
            return;
        }
        skip_space(s);
    } while (s->depth > 0);
    if (s->pos != s->len) {
        fail(s, s->pos, "text after the value", peek(s), (int64_t)s->pos);
    }
}

int32_t hb_json_scan(const char *text, size_t len, struct hb_error *err) {
    struct scanner s;
    memset(&s, 0, sizeof s);
    s.text = (const unsigned char *)text;
    s.len = len;
    s.err = err;
    s.status = HB_OK;
    scan_text(&s);
    free(s.keys);
    return s.status;
}
