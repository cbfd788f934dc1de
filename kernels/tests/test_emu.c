/* SPDX-License-Identifier: Apache-2.0
 * The emulator: each of its detectors fires on a broken kernel and is silent on the right one;
 * orders; warp sums. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/caps.h"
#include "backend/status.h"
#include "kernels/emu/emu.h"

static int n_faults;
static char fault_text[256];

static void note_fault(const char *text) {
    n_faults++;
    strncpy(fault_text, text, sizeof fault_text - 1);
}

static int set_up(void **state) {
    (void)state;
    n_faults = 0;
    memset(fault_text, 0, sizeof fault_text);
    hb_emu_set_order(HB_ORDER_ASCENDING, HB_ORDER_ASCENDING, 1);
    hb_emu_set_poison(1);
    (void)hb_emu_set_fault_hook(note_fault);
    return 0;
}

static int32_t launch(const char *name, void (*entry)(const void *), const void *args,
                      uint32_t blocks, uint32_t threads, size_t shared, int32_t flags) {
    const struct hb_emu_launch what = {name,    entry,  args,  {blocks, 1, 1},
                                       threads, shared, flags, 0};
    return hb_emu_run(&what);
}

/* Reverses the order of a block's values through shared memory. */
struct reverse {
    float *out;
    int has_barrier, has_store_of_zero;
};

static void reverse_kernel(const void *p) {
    const struct reverse *args = p;
    const uint32_t n = hb_emu_block_dim.x;
    const uint32_t t = hb_emu_thread_idx.x;
    float *tile = hb_emu_shared(__LINE__, n * sizeof(float));
    if (t != 0 || args->has_store_of_zero) {
        tile[t] = (float)t;
    }
    if (args->has_barrier) {
        hb_emu_barrier(__FILE__, __LINE__);
    }
    args->out[hb_emu_block_idx.x * n + t] = tile[n - 1 - t];
}

static int reversed_ok(const float *out, uint32_t blocks, uint32_t n) {
    for (uint32_t i = 0; i < blocks * n; i++) {
        if (!(out[i] == (float)(n - 1 - i % n))) {
            return 0;
        }
    }
    return 1;
}

static void right_kernel_is_silent_in_every_order(void **state) {
    (void)state;
    float out[3 * 48];
    const struct reverse args = {out, 1, 1};
    for (int32_t threads = 0; threads < HB_N_ORDERS; threads++) {
        for (int32_t blocks = 0; blocks < HB_N_ORDERS; blocks++) {
            hb_emu_set_order(threads, blocks, 7);
            memset(out, 0, sizeof out);
            assert_int_equal(launch("reverse", reverse_kernel, &args, 3, 48, 48 * 4, HB_EMU_SYNC),
                             HB_OK);
            assert_true(reversed_ok(out, 3, 48));
        }
    }
    assert_int_equal(n_faults, 0);
}

static void missing_barrier_reads_poison(void **state) {
    (void)state;
    float out[48];
    const struct reverse args = {out, 0, 1};
    for (int32_t order = 0; order < HB_N_ORDERS; order++) {
        hb_emu_set_order(order, HB_ORDER_ASCENDING, 7);
        assert_int_equal(launch("reverse", reverse_kernel, &args, 1, 48, 48 * 4, HB_EMU_SYNC),
                         HB_OK);
        assert_false(reversed_ok(out, 1, 48));
    }
}

/* Thread 0 writes, the others read: the race that only another order than ascending shows. */
struct broadcast {
    float *out;
    int has_barrier;
};

static void broadcast_kernel(const void *p) {
    const struct broadcast *args = p;
    float *value = hb_emu_shared(__LINE__, sizeof(float));
    if (hb_emu_thread_idx.x == 0) {
        *value = 5.0f;
    }
    if (args->has_barrier) {
        hb_emu_barrier(__FILE__, __LINE__);
    }
    args->out[hb_emu_thread_idx.x] = *value;
}

static int broadcast_ok(const float *out) {
    for (int i = 0; i < 32; i++) {
        if (!(out[i] == 5.0f)) {
            return 0;
        }
    }
    return 1;
}

static void missing_barrier_needs_the_order_varied(void **state) {
    (void)state;
    float out[32];
    struct broadcast args = {out, 0};
    (void)launch("broadcast", broadcast_kernel, &args, 1, 32, 16, HB_EMU_SYNC);
    assert_true(broadcast_ok(out)); /* the detector is off: ascending order hides the race */
    hb_emu_set_order(HB_ORDER_DESCENDING, HB_ORDER_ASCENDING, 1);
    (void)launch("broadcast", broadcast_kernel, &args, 1, 32, 16, HB_EMU_SYNC);
    assert_false(broadcast_ok(out));
    hb_emu_set_order(HB_ORDER_RANDOM, HB_ORDER_ASCENDING, 3);
    (void)launch("broadcast", broadcast_kernel, &args, 1, 32, 16, HB_EMU_SYNC);
    assert_false(broadcast_ok(out));
    args.has_barrier = 1;
    for (int32_t order = 0; order < HB_N_ORDERS; order++) {
        hb_emu_set_order(order, HB_ORDER_ASCENDING, 3);
        (void)launch("broadcast", broadcast_kernel, &args, 1, 32, 16, HB_EMU_SYNC);
        assert_true(broadcast_ok(out));
    }
}

static void unset_shared_memory_is_nan_unless_poison_is_off(void **state) {
    (void)state;
    float out[32];
    const struct reverse args = {out, 1, 0};
    (void)launch("reverse", reverse_kernel, &args, 1, 32, 32 * 4, HB_EMU_SYNC);
    assert_true(isnan(out[31]));
    hb_emu_set_poison(0);
    (void)launch("reverse", reverse_kernel, &args, 1, 32, 32 * 4, HB_EMU_SYNC);
    assert_true(
        reversed_ok(out, 1, 32)); /* the detector is off: 0 is what should have been stored */
}

static void each_block_gets_poisoned_memory_anew(void **state) {
    (void)state;
    float out[3 * 32];
    const struct reverse args = {out, 1, 0};
    (void)launch("reverse", reverse_kernel, &args, 3, 32, 32 * 4, HB_EMU_SYNC);
    assert_true(isnan(out[31]) && isnan(out[63]) && isnan(out[95]));
}

static void two_barriers_kernel(const void *p) {
    (void)p;
    if (hb_emu_thread_idx.x < 5) {
        hb_emu_barrier("here.cu", 11);
    } else {
        hb_emu_barrier("here.cu", 12);
    }
}

static void early_exit_kernel(const void *p) {
    (void)p;
    if (hb_emu_thread_idx.x != 3) {
        hb_emu_barrier("here.cu", 21);
    }
}

static void one_barrier_kernel(const void *p) {
    (void)p;
    hb_emu_barrier("here.cu", 31);
}

static void divergent_barrier_is_a_fault(void **state) {
    (void)state;
    assert_int_equal(launch("two", two_barriers_kernel, NULL, 1, 32, 0, HB_EMU_SYNC),
                     HB_ERR_DEVICE);
    assert_string_equal(fault_text, "divergent barrier in two at here.cu:12");
    assert_string_equal(hb_emu_error_text(), fault_text);
    assert_int_equal(launch("early", early_exit_kernel, NULL, 1, 32, 0, HB_EMU_SYNC),
                     HB_ERR_DEVICE);
    assert_string_equal(fault_text, "divergent barrier in early at here.cu:21");
    assert_int_equal(n_faults, 2);
    /* the abandoned fibers are usable again */
    assert_int_equal(launch("one", one_barrier_kernel, NULL, 4, 32, 0, HB_EMU_SYNC), HB_OK);
    assert_int_equal(n_faults, 2);
    assert_int_equal(hb_emu_barrier_line(), 31);
}

static void barrier_without_sync_is_a_fault(void **state) {
    (void)state;
    assert_int_equal(launch("one", one_barrier_kernel, NULL, 1, 1, 0, HB_EMU_NO_SYNC),
                     HB_ERR_DEVICE);
    assert_string_equal(fault_text, "barrier without HB_SYNC in one at here.cu:31");
}

struct warp {
    float *out;
    int missing; /* a lane that does not take part, -1: none */
};

static void warp_kernel(const void *p) {
    const struct warp *args = p;
    const uint32_t t = hb_emu_thread_idx.x;
    float values[2] = {1.0f / (float)(t + 1), (float)t};
    if ((int)t == args->missing) {
        return;
    }
    hb_emu_warp_sum(values, 2, "warp.cu", 5);
    args->out[2 * t] = values[0];
    args->out[2 * t + 1] = values[1];
}

/* The butterfly, written down as the GPU runs it: each lane adds the lane at distance offset. */
static float butterfly(uint32_t first, uint32_t n_lanes) {
    float lane[32];
    for (uint32_t i = 0; i < 32; i++) {
        lane[i] = i < n_lanes ? 1.0f / (float)(first + i + 1) : 0.0f;
    }
    for (uint32_t offset = 16; offset > 0; offset /= 2) {
        float next[32];
        for (uint32_t i = 0; i < 32; i++) {
            next[i] = lane[i] + lane[i ^ offset];
        }
        memcpy(lane, next, sizeof lane);
    }
    for (uint32_t i = 1; i < 32; i++) {
        assert_memory_equal(&lane[0], &lane[i], sizeof(float));
    }
    return lane[0];
}

static void warp_sum_is_the_butterfly_in_every_order(void **state) {
    (void)state;
    float out[2 * 72];
    const struct warp args = {out, -1};
    for (int32_t order = 0; order < HB_N_ORDERS; order++) {
        hb_emu_set_order(order, HB_ORDER_ASCENDING, 5);
        assert_int_equal(launch("warp", warp_kernel, &args, 1, 72, 0, HB_EMU_SYNC), HB_OK);
        for (uint32_t t = 0; t < 72; t++) {
            const uint32_t first = t / 32 * 32;
            const uint32_t n_lanes = first == 64 ? 8 : 32;
            const float want = butterfly(first, n_lanes);
            assert_memory_equal(&out[2 * t], &want, sizeof want);
            const uint32_t sum = n_lanes * first + n_lanes * (n_lanes - 1) / 2; /* of the indices */
            assert_true(out[2 * t + 1] == (float)sum);
        }
    }
    assert_int_equal(n_faults, 0);
}

static void lane_missing_from_a_warp_operation_is_a_fault(void **state) {
    (void)state;
    float out[64];
    const struct warp args = {out, 9};
    assert_int_equal(launch("warp", warp_kernel, &args, 1, 32, 0, HB_EMU_SYNC), HB_ERR_DEVICE);
    assert_string_equal(fault_text, "divergent warp operation in warp at warp.cu:5");
}

static void shared_memory_beyond_the_request_is_a_fault(void **state) {
    (void)state;
    float out[48];
    const struct reverse args = {out, 1, 1};
    assert_int_equal(launch("reverse", reverse_kernel, &args, 1, 48, 48 * 4 - 1, HB_EMU_SYNC),
                     HB_ERR_DEVICE);
    assert_non_null(strstr(fault_text, "shared memory beyond the launch's request"));
}

static void sizes_that_a_gpu_refuses_are_refused(void **state) {
    (void)state;
    assert_int_equal(launch("one", one_barrier_kernel, NULL, 1, 1025, 0, HB_EMU_SYNC),
                     HB_ERR_DEVICE);
    assert_int_equal(launch("one", one_barrier_kernel, NULL, 0, 32, 0, HB_EMU_SYNC), HB_ERR_DEVICE);
    assert_int_equal(launch("one", one_barrier_kernel, NULL, 1, 32, 48 * 1024 + 1, HB_EMU_SYNC),
                     HB_ERR_DEVICE);
    assert_int_equal(n_faults, 0);
    assert_int_equal(launch("one", one_barrier_kernel, NULL, 1, 1024, 48 * 1024, HB_EMU_SYNC),
                     HB_OK);
}

struct trace {
    uint32_t *seen;
    uint32_t n;
};

static void trace_kernel(const void *p) {
    struct trace *args = *(struct trace *const *)p;
    args->seen[args->n++] = hb_emu_block_idx.x * 100 + hb_emu_thread_idx.x;
}

static void orders_visit_everything_once(void **state) {
    (void)state;
    uint32_t seen[4 * 10];
    uint32_t again[4 * 10];
    for (int32_t order = 0; order < HB_N_ORDERS; order++) {
        for (int32_t flags = HB_EMU_NO_SYNC; flags <= HB_EMU_SYNC; flags++) {
            struct trace trace = {seen, 0};
            struct trace *const to = &trace;
            const void *const args = (const void *)&to;
            hb_emu_set_order(order, order, 99);
            assert_int_equal(launch("trace", trace_kernel, args, 4, 10, 0, flags), HB_OK);
            trace = (struct trace){again, 0};
            hb_emu_set_order(order, order, 99);
            assert_int_equal(launch("trace", trace_kernel, args, 4, 10, 0, flags), HB_OK);
            assert_memory_equal(seen, again, sizeof seen); /* a seed repeats */
            int count[400] = {0};
            for (uint32_t i = 0; i < 40; i++) {
                count[seen[i]]++;
            }
            for (uint32_t i = 0; i < 40; i++) {
                assert_int_equal(count[i / 10 * 100 + i % 10], 1);
            }
            if (order != HB_ORDER_RANDOM) {
                assert_int_equal(seen[0], order == HB_ORDER_ASCENDING ? 0 : 309);
            }
        }
    }
}

static void name_of_the_kernel_is_known_while_it_runs(void **state) {
    (void)state;
    const uint64_t before = hb_emu_launches();
    assert_null(hb_emu_current_kernel());
    assert_int_equal(launch("one", one_barrier_kernel, NULL, 1, 8, 0, HB_EMU_SYNC), HB_OK);
    assert_null(hb_emu_current_kernel());
    assert_string_equal(hb_emu_barrier_file(), "here.cu");
    assert_int_equal(hb_emu_launches(), before + 1);
}

static void device_memory_is_poisoned_and_too_much_is_refused(void **state) {
    (void)state;
    float *block = hb_emu_mem_alloc(40);
    assert_non_null(block);
    for (int i = 0; i < 10; i++) {
        assert_true(isnan(block[i]));
    }
    hb_emu_mem_free(block);
    hb_emu_mem_free(NULL);
    assert_null(hb_emu_mem_alloc(UINT64_MAX / 2));
    assert_int_equal(n_faults, 0);
}

/* Under AddressSanitizer the write itself ends the process, so the canary has nothing to do there.
 */
static void canary_notices_a_write_beside_a_block(void **state) {
    (void)state;
    if (hb_emu_exact_guards()) {
        skip();
    }
    char *block = hb_emu_mem_alloc(10);
    ((volatile char *)block)[10] = 1;
    hb_emu_mem_free(block);
    assert_int_equal(n_faults, 1);
    assert_non_null(strstr(fault_text, "above a device block"));
    block = hb_emu_mem_alloc(10);
    ((volatile char *)block)[-1] = 1;
    hb_emu_mem_free(block);
    assert_int_equal(n_faults, 2);
    assert_non_null(strstr(fault_text, "below a device block"));
}

#ifdef HB_ASAN
int __asan_address_is_poisoned(const volatile void *addr);

static int n_guarded;

static void guarded_kernel(const void *p) {
    (void)p;
    const char *small = hb_emu_shared(10, 5);
    const char *other = hb_emu_shared(11, 40);
    n_guarded += !__asan_address_is_poisoned(small + 4) && __asan_address_is_poisoned(small + 5) &&
                 __asan_address_is_poisoned(small - 1) && !__asan_address_is_poisoned(other + 39) &&
                 __asan_address_is_poisoned(other + 40);
}

static void bytes_beside_a_block_are_guarded(void **state) {
    (void)state;
    n_guarded = 0;
    assert_int_equal(launch("guarded", guarded_kernel, NULL, 2, 4, 64, HB_EMU_SYNC), HB_OK);
    assert_int_equal(n_guarded, 8);
    char *block = hb_emu_mem_alloc(13);
    assert_false(__asan_address_is_poisoned(block + 12));
    assert_true(__asan_address_is_poisoned(block + 13) && __asan_address_is_poisoned(block - 1));
    hb_emu_mem_free(block);
    assert_true(__asan_address_is_poisoned(block));
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(right_kernel_is_silent_in_every_order, set_up),
        cmocka_unit_test_setup(missing_barrier_reads_poison, set_up),
        cmocka_unit_test_setup(missing_barrier_needs_the_order_varied, set_up),
        cmocka_unit_test_setup(unset_shared_memory_is_nan_unless_poison_is_off, set_up),
        cmocka_unit_test_setup(each_block_gets_poisoned_memory_anew, set_up),
        cmocka_unit_test_setup(divergent_barrier_is_a_fault, set_up),
        cmocka_unit_test_setup(barrier_without_sync_is_a_fault, set_up),
        cmocka_unit_test_setup(warp_sum_is_the_butterfly_in_every_order, set_up),
        cmocka_unit_test_setup(lane_missing_from_a_warp_operation_is_a_fault, set_up),
        cmocka_unit_test_setup(shared_memory_beyond_the_request_is_a_fault, set_up),
        cmocka_unit_test_setup(sizes_that_a_gpu_refuses_are_refused, set_up),
        cmocka_unit_test_setup(orders_visit_everything_once, set_up),
        cmocka_unit_test_setup(name_of_the_kernel_is_known_while_it_runs, set_up),
        cmocka_unit_test_setup(device_memory_is_poisoned_and_too_much_is_refused, set_up),
        cmocka_unit_test_setup(canary_notices_a_write_beside_a_block, set_up),
#ifdef HB_ASAN
        cmocka_unit_test_setup(bytes_beside_a_block_are_guarded, set_up),
#endif
    };
    return cmocka_run_group_tests_name("emu", tests, NULL, NULL);
}
