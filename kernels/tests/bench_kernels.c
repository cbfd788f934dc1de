/* SPDX-License-Identifier: Apache-2.0
 * Time per launch of every kernel at the size of a typical and of a large small case. Not a test.
 */
#define _POSIX_C_SOURCE 200809L
#include "kernels/tests/rig.h"

#include <stdio.h>
#include <time.h>

enum { MOST_ROWS = 3, SLOTS = 8 };

struct size {
    const char *name;
    int32_t rows, len, h, p, n, g;
};

static double seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* the clock is read once in 32 launches: it costs as much as a small one */
#define MEASURE(label, call)                                                                       \
    do {                                                                                           \
        const double start = seconds();                                                            \
        double now = start;                                                                        \
        int count = 0;                                                                             \
        while (now - start < 0.15) {                                                               \
            for (int i = 0; i < 32; i++, count++) {                                                \
                if ((call) != HB_OK) {                                                             \
                    (void)printf("%s: %s\n", label, rig.k->error_text());                          \
                    return 1;                                                                      \
                }                                                                                  \
            }                                                                                      \
            now = seconds();                                                                       \
        }                                                                                          \
        (void)printf("%-22s %8.2f us\n", label, 1e6 * (now - start) / count);                      \
    } while (0)

static int measure(const struct size *size) {
    struct rig rig;
    if (!rig_open(&rig, 0, 1)) {
        return 1;
    }
    const int32_t n_rows = size->rows;
    const int32_t len = size->len;
    const int32_t h = size->h;
    const int32_t p = size->p;
    const int32_t n = size->n;
    const int32_t g = size->g;
    const int32_t n_tokens = n_rows * len;
    const int32_t dim = h * p + 2 * g * n;
    int32_t qsl[MOST_ROWS + 1];
    int32_t ones[MOST_ROWS + 1];
    const int32_t slots[MOST_ROWS] = {1, 3, 5};
    const int32_t lens[MOST_ROWS] = {len, len, len};
    int32_t table[MOST_ROWS * 16];
    (void)printf("--- %s\n", size->name);
    for (int i = 0; i <= MOST_ROWS; i++) {
        qsl[i] = i * len;
        ones[i] = i;
    }
    for (int i = 0; i < MOST_ROWS * 16; i++) {
        table[i] = i;
    }
    struct array x =
        array_random(&rig, (size_t)n_tokens * (size_t)dim + MOST_ROWS * 16 * 16, HB_FP32, 1.0f);
    struct array pool = array_random(&rig, (size_t)(SLOTS * h * p * n), HB_FP32, 1.0f);
    struct hb_k_rows rows = {n_rows, rig_device(&rig, qsl, sizeof qsl),
                             rig_device(&rig, slots, sizeof slots), NULL};
    struct hb_k_conv conv = {.rows = rows,
                             .dim = dim,
                             .width = 4,
                             .x = array_device(&rig, &x),
                             .weight = array_device(&rig, &x),
                             .y = array_device(&rig, &x),
                             .pool = array_device(&rig, &pool)};
    struct hb_k_ssm ssm = {.rows = rows,
                           .n_heads = h,
                           .head_dim = p,
                           .state_size = n,
                           .n_groups = g,
                           .chunk_size = 8,
                           .dt_softplus = 1,
                           .xbc = conv.x,
                           .dt = conv.x,
                           .a = conv.weight,
                           .y = conv.y,
                           .pool = array_device(&rig, &pool)};
    const struct hb_k_norm norm = {.n_tokens = n_tokens,
                                   .d_inner = h * p,
                                   .norm_group = h * p,
                                   .y = conv.x,
                                   .z = conv.x,
                                   .weight = conv.weight,
                                   .out = conv.y,
                                   .eps = 1e-5f};
    const struct hb_k_attention attention = {.rows = rows,
                                             .n_q_heads = 4,
                                             .n_kv_heads = 2,
                                             .attn_dim = 8,
                                             .sm_scale = 0.3f,
                                             .reqs = rig_device(&rig, ones, sizeof ones),
                                             .seq_lens = rig_device(&rig, lens, sizeof lens),
                                             .req_to_token = rig_device(&rig, table, sizeof table),
                                             .max_context = 16,
                                             .q = conv.x,
                                             .k_buf = conv.x,
                                             .v_buf = conv.x,
                                             .out = conv.y};
    const struct hb_k_slots copy = {.n_pairs = n_rows,
                                    .slot_bytes = (uint64_t)(h * p * n) * 4,
                                    .dst = rows.slots,
                                    .pool = ssm.pool};
    for (int32_t form = 0; form < HB_N_FORMS; form++) {
        conv.form = form;
        ssm.form = form;
        (void)printf("form %s\n", form ? "fast" : "v0");
        MEASURE("conv_prefill", rig.k->conv_prefill(&conv));
        MEASURE("ssd_prefill", rig.k->ssd_prefill(&ssm));
        MEASURE("conv_update", rig.k->conv_update(&conv));
        MEASURE("ssm_update", rig.k->ssm_update(&ssm));
    }
    (void)printf("one form\n");
    MEASURE("gated_norm", rig.k->gated_norm(&norm));
    MEASURE("attention", rig.k->attention(&attention));
    MEASURE("slots, zero", rig.k->slots(&copy));
    array_free(&x);
    array_free(&pool);
    rig_close(&rig);
    return 0;
}

int main(void) {
    static const struct size sizes[] = {{"typical", 2, 5, 2, 4, 8, 1},
                                        {"large", 3, 10, 4, 8, 16, 2}};
    return measure(&sizes[0]) + measure(&sizes[1]);
}
