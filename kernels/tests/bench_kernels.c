/* SPDX-License-Identifier: Apache-2.0
 * Time per launch of every kernel at the size of a small case: 3 rows of 10 tokens, H 4, P 8, N 16, C 8. Not a test. */
#define _POSIX_C_SOURCE 200809L
#include "kernels/tests/rig.h"

#include <stdio.h>
#include <time.h>

enum { ROWS = 3, LEN = 10, TOKENS = ROWS * LEN, H = 4, P = 8, N = 16, G = 2, DIM = H * P + 2 * G * N, SLOTS = 8 };

static double seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#define MEASURE(label, call)                                                                                           \
    do {                                                                                                               \
        const double start = seconds();                                                                                \
        int n = 0;                                                                                                     \
        for (; seconds() - start < 0.3; n++) {                                                                         \
            if ((call) != HB_OK) {                                                                                     \
                (void)printf("%s: %s\n", label, rig.k->error_text());                                                 \
                break;                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        (void)printf("%-22s %8.2f us\n", label, 1e6 * (seconds() - start) / n);                                       \
    } while (0)

int main(void) {
    struct rig rig;
    if (!rig_open(&rig, 0, 1)) {
        return 1;
    }
    int32_t qsl[ROWS + 1];
    int32_t ones[ROWS + 1];
    const int32_t slots[ROWS] = {1, 3, 5};
    const int32_t lens[ROWS] = {LEN, LEN, LEN};
    int32_t table[ROWS * 16];
    for (int i = 0; i <= ROWS; i++) {
        qsl[i] = i * LEN;
        ones[i] = i;
    }
    for (int i = 0; i < ROWS * 16; i++) {
        table[i] = i;
    }
    struct array x = array_random(&rig, TOKENS * DIM, HB_FP32, 1.0f);
    struct array pool = array_random(&rig, SLOTS * H * P * N, HB_FP32, 1.0f);
    struct hb_k_rows rows = {ROWS, rig_device(&rig, qsl, sizeof qsl), rig_device(&rig, slots, sizeof slots), NULL};
    struct hb_k_conv conv = {.rows = rows, .dim = DIM, .width = 4, .x = array_device(&rig, &x),
                             .weight = array_device(&rig, &x), .y = array_device(&rig, &x),
                             .pool = array_device(&rig, &pool)};
    struct hb_k_ssm ssm = {.rows = rows, .n_heads = H, .head_dim = P, .state_size = N, .n_groups = G, .chunk_size = 8,
                           .dt_softplus = 1, .xbc = conv.x, .dt = conv.x, .a = conv.weight, .y = conv.y,
                           .pool = array_device(&rig, &pool)};
    const struct hb_k_norm norm = {.n_tokens = TOKENS, .d_inner = H * P, .norm_group = H * P, .y = conv.x, .z = conv.x,
                                   .weight = conv.weight, .out = conv.y, .eps = 1e-5f};
    const struct hb_k_attention attention = {.rows = rows, .n_q_heads = 4, .n_kv_heads = 2, .attn_dim = 8,
                                             .sm_scale = 0.3f, .reqs = rig_device(&rig, ones, sizeof ones),
                                             .seq_lens = rig_device(&rig, lens, sizeof lens),
                                             .req_to_token = rig_device(&rig, table, sizeof table), .max_context = 16,
                                             .q = conv.x, .k_buf = conv.x, .v_buf = conv.x, .out = conv.y};
    const struct hb_k_slots copy = {.n_pairs = 3, .slot_bytes = H * P * N * 4, .dst = rows.slots, .pool = ssm.pool};
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
    MEASURE("slots (3, zero)", rig.k->slots(&copy));
    array_free(&x);
    array_free(&pool);
    rig_close(&rig);
    return 0;
}
