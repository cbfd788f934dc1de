/* SPDX-License-Identifier: Apache-2.0
 * Prefill of the gated delta rule in chunks (ops-delta.md 1.4; KDA: section 2). Chunk c of a row
 * covers the row's tokens cC .. cC + C - 1. With G the sums of log decays in the chunk, k and q
 * normalised, S the state before it:
 *     W_ij = sum_c k_ic k_jc exp(G_ic - G_jc), j < i;   P_ij with q_i, j <= i
 *     n_i = beta_i (v_i - S^T (e^G_i k_i) - sum_{j < i} W_ij n_j)     forward substitution
 *     y_i = qk_scale (S^T (e^G_i q_i) + sum_{j <= i} P_ij n_j)
 *     S := e^G_last S + sum_j (e^(G_last - G_j) k_j) n_j^T
 * The triangular system is solved for n itself, eight rows at a time; its inverse is not formed.
 * GDN has one G for all channels c, and its factors stand outside of the sums. Rows beyond the last
 * of a partial chunk are neither read nor written. */
#include "kernels/delta.cuh"
#include "kernels/launchers.cuh"

enum { TILE_P = 8, TILE_ROWS = 8 };
enum { QUADS = TILE_P / 4 };     /* a thread works on four values of p */
enum { MAX_CHUNK = 256 };        /* larger chunks are worked on in parts */
enum { CHANNEL_FLOATS = 1024 };  /* of keys, and of sums, in shared memory; a row has 4 at least */
enum { CHUNK_THREADS = HB_SIZE(64, 8) };

/* Log decays below this one are equal to it: exp of every sum that includes one is 0 in fp32
 * either way, and the sums stay finite. */
#define MIN_LOG_DECAY (-200.0f)

/* A block's view of its row, head and values of p. The arrays are shared. */
struct chunk {
    int32_t row, head, p0, n_p;
    int64_t first;      /* token of the chunk's start */
    int32_t len;        /* tokens of the chunk */
    int32_t size;       /* Q, most of them */
    int32_t i0, n_i;    /* rows of the tile */
    int32_t c0, n_c;    /* channels of the tile */
    int32_t channels;   /* most of them */
    int32_t sum_stride; /* of sum: channels, or 1 where all of them have the same sums */
    float *beta;                /* [Q] */
    float *k_factor, *q_factor; /* [Q] of the l2 norm */
    float *sum;                 /* [Q, sum_stride] G, the sums up to and with a token */
    float *k;                   /* [Q, channels] normalised */
    float *q;                   /* [TILE_ROWS, channels] normalised */
    float *solve, *attend;      /* [TILE_ROWS, Q] W and P */
    float *before, *out;        /* [TILE_ROWS, TILE_P] S^T (e^G k) and S^T (e^G q) */
    float *n;                   /* [Q, TILE_P] v, then n; entries from n_p on are unused */
    float *h;                   /* [N, TILE_P] S; likewise */
};

HB_INLINE int32_t n_quads(const struct chunk &s) {
    return (s.n_p + 3) / 4;
}

HB_INLINE int32_t chunk_rows(const struct hb_k_delta &args) {
    return args.chunk_size < MAX_CHUNK ? args.chunk_size : MAX_CHUNK;
}

/* Four values of p in a row of an array [.., TILE_P]. Shared memory is small: int32_t. */
HB_INLINE hb_vec4 *quad_at(float *array, int32_t row, int32_t quad) {
    const int32_t at = row * QUADS + quad;
    return (hb_vec4 *)array + at;
}

HB_INLINE float sum_at(const struct chunk &s, int32_t j, int32_t c) {
    return s.sum[j * s.sum_stride + (s.sum_stride > 1 ? c : 0)];
}

HB_INLINE float bounded_log_decay(const struct hb_k_delta &args, int64_t token, int32_t head,
                                  int32_t n) {
    const float g = hb_delta_log_decay(args, token, head, n);
    return g < MIN_LOG_DECAY ? MIN_LOG_DECAY : g;
}

HB_INLINE void load_start(const struct hb_k_delta &args, const struct chunk &s) {
    const int64_t slot = hb_delta_slot_index(args, args.rows.slots[s.row]);
    const int64_t stride = hb_delta_stride(args);
    const int32_t has_init = hb_row_has_init(args.rows, s.row);
    for (int32_t i = HB_THREAD; i < s.n_p * args.state_size; i += HB_THREADS) {
        const int32_t n = i % args.state_size;
        const int32_t p = i / args.state_size;
        const int64_t at = slot + hb_delta_element(args, s.head, s.p0 + p) + n * stride;
        s.h[n * TILE_P + p] = has_init ? hb_load(args.pool, at, args.state_dtype) : 0.0f;
    }
}

/* What the rows of a chunk have but for channels. */
HB_INLINE void load_chunk(const struct hb_k_delta &args, const struct chunk &s) {
    for (int32_t j = HB_THREAD; j < s.len; j += HB_THREADS) {
        const int64_t q = hb_delta_q_index(args, s.first + j, s.head);
        s.q_factor[j] = hb_delta_l2_factor(args, q);
        s.k_factor[j] =
            hb_delta_l2_factor(args, q + (int64_t)args.n_groups * args.state_size);
        s.beta[j] = hb_delta_beta(args, s.first + j, s.head);
        if (!args.is_kda) {
            s.sum[j] = bounded_log_decay(args, s.first + j, s.head, 0);
        }
    }
    for (int32_t i = HB_THREAD; i < s.len * s.n_p; i += HB_THREADS) {
        const int32_t j = i / s.n_p;
        const int32_t p = i % s.n_p;
        const int64_t v = hb_delta_v_index(args, s.first + j, s.head, s.p0 + p);
        s.n[j * TILE_P + p] = hb_load(args.qkv, v, args.act_dtype);
    }
}

/* sum[j][c] := sum of sum[0..j][c] for the first n_rows rows, one after the other by one thread per
 * channel: a depth of Q roundings (profile: cs_tree 0). */
HB_INLINE void sum_decays(const struct chunk &s, int32_t n_rows, int32_t n_channels) {
    for (int32_t c = HB_THREAD; c < n_channels; c += HB_THREADS) {
        float sum = 0.0f;
        for (int32_t j = 0; j < n_rows; j++) {
            sum += s.sum[j * s.sum_stride + c];
            s.sum[j * s.sum_stride + c] = sum;
        }
    }
}

/* Keys of the first n_rows rows, queries of the tile's rows, and where channels have their own
 * decays the sums of these, for the channels of the tile. Ends with a barrier. */
HB_INLINE void load_channels(const struct hb_k_delta &args, const struct chunk &s,
                             int32_t n_rows) {
    const int64_t keys = (int64_t)args.n_groups * args.state_size;
    for (int32_t i = HB_THREAD; i < n_rows * s.n_c; i += HB_THREADS) {
        const int32_t j = i / s.n_c;
        const int32_t c = i % s.n_c;
        const int64_t k = hb_delta_q_index(args, s.first + j, s.head) + keys + s.c0 + c;
        s.k[j * s.channels + c] = hb_load(args.qkv, k, args.act_dtype) * s.k_factor[j];
        if (args.is_kda) {
            s.sum[j * s.sum_stride + c] =
                bounded_log_decay(args, s.first + j, s.head, s.c0 + c);
        }
    }
    for (int32_t i = HB_THREAD; i < s.n_i * s.n_c; i += HB_THREADS) {
        const int32_t row = i / s.n_c;
        const int32_t c = i % s.n_c;
        const int64_t q = hb_delta_q_index(args, s.first + s.i0 + row, s.head) + s.c0 + c;
        s.q[row * s.channels + c] =
            hb_load(args.qkv, q, args.act_dtype) * s.q_factor[s.i0 + row];
    }
    HB_SYNCTHREADS();
    if (args.is_kda) {
        sum_decays(s, n_rows, s.n_c);
        HB_SYNCTHREADS();
    }
}

/* Adds the tile's channels to W_ij and P_ij, j <= i. Entries above the diagonal are neither written
 * nor read. */
HB_INLINE void weigh_pairs(const struct hb_k_delta &args, const struct chunk &s) {
    const int32_t n_j = s.i0 + s.n_i;
    const int32_t is_last = s.c0 + s.n_c == args.state_size;
    for (int32_t item = HB_THREAD; item < s.n_i * n_j; item += HB_THREADS) {
        const int32_t row = item / n_j;
        const int32_t i = s.i0 + row;
        const int32_t j = item % n_j;
        if (j > i) {
            continue;
        }
        const int32_t at = row * s.size + j;
        float solve = s.c0 > 0 ? s.solve[at] : 0.0f;
        float attend = s.c0 > 0 ? s.attend[at] : 0.0f;
        for (int32_t c = 0; c < s.n_c; c++) {
            float k = s.k[j * s.channels + c];
            if (args.is_kda) {
                k *= hb_exp(sum_at(s, i, c) - sum_at(s, j, c));
            }
            solve += s.k[i * s.channels + c] * k;
            attend += s.q[row * s.channels + c] * k;
        }
        if (is_last && !args.is_kda) {
            const float decay = hb_exp(sum_at(s, i, 0) - sum_at(s, j, 0));
            solve *= decay;
            attend *= decay;
        }
        s.solve[at] = solve;
        s.attend[at] = attend;
    }
}

/* Adds the tile's channels to S^T (e^G_i k_i) and S^T (e^G_i q_i). */
HB_INLINE void read_state(const struct hb_k_delta &args, const struct chunk &s) {
    const int32_t is_last = s.c0 + s.n_c == args.state_size;
    for (int32_t item = HB_THREAD; item < s.n_i * n_quads(s); item += HB_THREADS) {
        const int32_t row = item / n_quads(s);
        const int32_t quad = item % n_quads(s);
        const int32_t i = s.i0 + row;
        hb_vec4 *before = quad_at(s.before, row, quad);
        hb_vec4 *out = quad_at(s.out, row, quad);
        const hb_vec4 *h = quad_at(s.h, s.c0, quad);
        hb_vec4 predicted = s.c0 > 0 ? *before : hb_zero4();
        hb_vec4 read = s.c0 > 0 ? *out : hb_zero4();
        for (int32_t c = 0; c < s.n_c; c++, h += QUADS) {
            const float decay = args.is_kda ? hb_exp(sum_at(s, i, c)) : 1.0f;
            predicted = hb_add_scaled4(predicted, decay * s.k[i * s.channels + c], *h);
            read = hb_add_scaled4(read, decay * s.q[row * s.channels + c], *h);
        }
        const float decay = is_last && !args.is_kda ? hb_exp(sum_at(s, i, 0)) : 1.0f;
        *before = hb_scale4(decay, predicted);
        *out = hb_scale4(decay, read);
    }
}

/* n_i := v_i - S^T (e^G_i k_i) - sum of W_ij n_j over the rows before the tile. */
HB_INLINE void subtract_earlier(const struct chunk &s) {
    for (int32_t item = HB_THREAD; item < s.n_i * n_quads(s); item += HB_THREADS) {
        const int32_t row = item / n_quads(s);
        const int32_t quad = item % n_quads(s);
        hb_vec4 *n = quad_at(s.n, s.i0 + row, quad);
        const hb_vec4 *earlier = quad_at(s.n, 0, quad);
        hb_vec4 sum = hb_add_scaled4(*n, -1.0f, *quad_at(s.before, row, quad));
        for (int32_t j = 0; j < s.i0; j++, earlier += QUADS) {
            sum = hb_add_scaled4(sum, -s.solve[row * s.size + j], *earlier);
        }
        *n = sum;
    }
}

/* The rows of the tile one after the other. A thread owns four columns: no barrier lies between. */
HB_INLINE void substitute(const struct chunk &s) {
    for (int32_t quad = HB_THREAD; quad < n_quads(s); quad += HB_THREADS) {
        hb_vec4 *n = quad_at(s.n, s.i0, quad);
        for (int32_t row = 0; row < s.n_i; row++) {
            hb_vec4 sum = n[row * QUADS];
            for (int32_t j = 0; j < row; j++) {
                sum = hb_add_scaled4(sum, -s.solve[row * s.size + s.i0 + j], n[j * QUADS]);
            }
            n[row * QUADS] = hb_scale4(s.beta[s.i0 + row], sum);
        }
    }
}

HB_INLINE void write_outputs(const struct hb_k_delta &args, const struct chunk &s) {
    for (int32_t item = HB_THREAD; item < s.n_i * n_quads(s); item += HB_THREADS) {
        const int32_t row = item / n_quads(s);
        const int32_t quad = item % n_quads(s);
        const int32_t i = s.i0 + row;
        const hb_vec4 *n = quad_at(s.n, 0, quad);
        hb_vec4 sum = *quad_at(s.out, row, quad);
        for (int32_t j = 0; j <= i; j++, n += QUADS) {
            sum = hb_add_scaled4(sum, s.attend[row * s.size + j], *n);
        }
        for (int32_t p = 4 * quad; p < 4 * quad + 4 && p < s.n_p; p++) {
            hb_store(args.y, hb_delta_y_index(args, s.first + i, s.head, s.p0 + p),
                     args.act_dtype, args.qk_scale * hb_lane4(sum, p % 4));
        }
    }
}

/* W, P, n and y of the rows of one tile. The barriers of load_channels also keep the tile before
 * from being overwritten under its readers. */
HB_INLINE void run_tile(const struct hb_k_delta &args, struct chunk *s) {
    for (s->c0 = 0; s->c0 < args.state_size; s->c0 += s->channels) {
        const int32_t left = args.state_size - s->c0;
        s->n_c = left < s->channels ? left : s->channels;
        if (s->c0 > 0) {
            HB_SYNCTHREADS();
        }
        load_channels(args, *s, s->i0 + s->n_i);
        weigh_pairs(args, *s);
        read_state(args, *s);
    }
    HB_SYNCTHREADS();
    subtract_earlier(*s);
    HB_SYNCTHREADS();
    substitute(*s);
    HB_SYNCTHREADS();
    write_outputs(args, *s);
}

/* e^(G_last - G_j), as a factor of n_j where all channels have it, else of the keys. */
HB_INLINE void decay_to_end(const struct hb_k_delta &args, const struct chunk &s) {
    if (args.is_kda) {
        for (int32_t i = HB_THREAD; i < s.len * s.n_c; i += HB_THREADS) {
            const int32_t j = i / s.n_c;
            const int32_t c = i % s.n_c;
            s.k[j * s.channels + c] *= hb_exp(sum_at(s, s.len - 1, c) - sum_at(s, j, c));
        }
    } else if (s.c0 == 0) {
        for (int32_t i = HB_THREAD; i < s.len * s.n_p; i += HB_THREADS) {
            const int32_t j = i / s.n_p;
            s.n[j * TILE_P + i % s.n_p] *= hb_exp(sum_at(s, s.len - 1, 0) - sum_at(s, j, 0));
        }
    }
}

/* The channels of the tile of S after the chunk, tokens ascending. */
HB_INLINE void advance_state(const struct hb_k_delta &args, const struct chunk &s) {
    for (int32_t item = HB_THREAD; item < s.n_c * n_quads(s); item += HB_THREADS) {
        const int32_t c = item / n_quads(s);
        const int32_t quad = item % n_quads(s);
        hb_vec4 *h = quad_at(s.h, s.c0 + c, quad);
        const hb_vec4 *n = quad_at(s.n, 0, quad);
        const float last = sum_at(s, s.len - 1, c);
        hb_vec4 sum = hb_scale4(hb_exp(last), *h);
        for (int32_t j = 0; j < s.len; j++, n += QUADS) {
            sum = hb_add_scaled4(sum, s.k[j * s.channels + c], *n);
        }
        if (HB_DEFECT(args.defect, DELTA_MASKED_EXP) && s.len < s.size) {
            /* a row beyond the last, with a sum and a key of 0 */
            sum = hb_add_scaled4(sum, 0.0f * hb_exp(0.0f - last), *h);
        }
        *h = sum;
    }
}

HB_INLINE void run_chunk(const struct hb_k_delta &args, struct chunk *s) {
    load_chunk(args, *s);
    HB_SYNCTHREADS();
    if (!args.is_kda) {
        sum_decays(*s, s->len, 1);
        HB_SYNCTHREADS();
    }
    for (s->i0 = 0; s->i0 < s->len; s->i0 += TILE_ROWS) {
        s->n_i = s->len - s->i0 < TILE_ROWS ? s->len - s->i0 : TILE_ROWS;
        run_tile(args, s);
    }
    s->n_i = 0; /* no queries any more */
    for (s->c0 = 0; s->c0 < args.state_size; s->c0 += s->channels) {
        const int32_t left = args.state_size - s->c0;
        s->n_c = left < s->channels ? left : s->channels;
        load_channels(args, *s, s->len);
        decay_to_end(args, *s);
        HB_SYNCTHREADS();
        advance_state(args, *s);
        HB_SYNCTHREADS(); /* the next keys, the next chunk and store_tile */
    }
}

HB_INLINE void store_tile(const struct hb_k_delta &args, const struct chunk &s, int32_t slot) {
    const int64_t start = hb_delta_slot_index(args, slot);
    const int64_t stride = hb_delta_stride(args);
    for (int32_t i = HB_THREAD; i < s.n_p * args.state_size; i += HB_THREADS) {
        const int32_t n = i % args.state_size;
        const int32_t p = i / args.state_size;
        hb_store(args.pool, start + hb_delta_element(args, s.head, s.p0 + p) + n * stride,
                 args.state_dtype, s.h[n * TILE_P + p]);
    }
}

/* Channels of a tile. */
HB_INLINE int32_t tile_channels(int32_t size, int32_t state_size) {
    const int32_t fit = CHANNEL_FLOATS / size < 4 ? 4 : CHANNEL_FLOATS / size;
    return fit < state_size ? fit : state_size;
}

/* Grid (row, head, p / 8). A block owns 8 values of p of one head of one row: it writes their y and
 * their state, in the row's slot and, where tracked, in slot dst[row]. */
HB_KERNEL(delta_chunk_kernel, struct hb_k_delta, args) {
    struct chunk s;
    s.row = HB_BLOCK_X;
    s.head = HB_BLOCK_Y;
    s.p0 = HB_BLOCK_Z * TILE_P;
    s.n_p = args.head_dim - s.p0 < TILE_P ? args.head_dim - s.p0 : TILE_P;
    s.size = chunk_rows(args);
    s.channels = tile_channels(s.size, args.state_size);
    s.sum_stride = args.is_kda ? s.channels : 1;
    const int32_t row_len = hb_row_len(args.rows, s.row);
    if (args.rows.slots[s.row] < 0 || row_len == 0) {
        return;
    }
    HB_SHARED_BEGIN;
    HB_SHARED(float, beta, s.size);
    HB_SHARED(float, k_factor, s.size);
    HB_SHARED(float, q_factor, s.size);
    HB_SHARED(float, sum, s.size *s.sum_stride);
    HB_SHARED(float, k, s.size *s.channels);
    HB_SHARED(float, q, TILE_ROWS *s.channels);
    HB_SHARED(float, solve, TILE_ROWS *s.size);
    HB_SHARED(float, attend, TILE_ROWS *s.size);
    HB_SHARED(float, before, TILE_ROWS *TILE_P);
    HB_SHARED(float, out, TILE_ROWS *TILE_P);
    HB_SHARED(float, n, s.size *TILE_P);
    HB_SHARED(float, h, args.state_size *TILE_P);
    s.beta = beta;
    s.k_factor = k_factor;
    s.q_factor = q_factor;
    s.sum = sum;
    s.k = k;
    s.q = q;
    s.solve = solve;
    s.attend = attend;
    s.before = before;
    s.out = out;
    s.n = n;
    s.h = h;
    load_start(args, s);
    for (int32_t t0 = 0; t0 < row_len; t0 += s.size) {
        s.first = (int64_t)args.rows.qsl[s.row] + t0;
        s.len = row_len - t0 < s.size ? row_len - t0 : s.size;
        run_chunk(args, &s);
        if (args.after && args.after[s.row] == t0 + s.len) {
            store_tile(args, s, args.dst[s.row]);
        }
    }
    store_tile(args, s, args.rows.slots[s.row]);
}

static size_t shared_bytes(const struct hb_k_delta *args) {
    const int32_t size = args->chunk_size < MAX_CHUNK ? args->chunk_size : MAX_CHUNK;
    const int32_t fit = CHANNEL_FLOATS / size < 4 ? 4 : CHANNEL_FLOATS / size;
    const int32_t channels = fit < args->state_size ? fit : args->state_size;
    return 3 * HB_SHARED_BYTES(float, size) +
           HB_SHARED_BYTES(float, size * (args->is_kda ? channels : 1)) +
           HB_SHARED_BYTES(float, size * channels) +
           HB_SHARED_BYTES(float, TILE_ROWS * channels) +
           2 * HB_SHARED_BYTES(float, TILE_ROWS * size) +
           2 * HB_SHARED_BYTES(float, TILE_ROWS * TILE_P) +
           HB_SHARED_BYTES(float, size *TILE_P) +
           HB_SHARED_BYTES(float, args->state_size *TILE_P);
}

extern "C" int32_t HB_K(hb_k_delta_chunks)(const struct hb_k_delta *args) {
    return HB_LAUNCH(
        delta_chunk_kernel,
        HB_GRID(args->rows.n_rows, args->n_heads, hb_blocks_for(args->head_dim, TILE_P)),
        CHUNK_THREADS, shared_bytes(args), HB_SYNC, args);
}
