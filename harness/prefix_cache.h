/* SPDX-License-Identifier: Apache-2.0
 * The prefix cache as the scheduler sees it (tracking.md section 8): states of token streams, each after a number of tokens.
 * A tree whose inner nodes may have no state is, for what states there are, the list of them. */
#ifndef HB_HARNESS_PREFIX_CACHE_H
#define HB_HARNESS_PREFIX_CACHE_H

#include <stdint.h>

enum { HB_PREFIX_CACHE_ENTRIES = 32 };

struct hb_prefix_cache {
    int32_t n;
    struct {
        int32_t stream, id;
        int64_t tokens;
    } entry[HB_PREFIX_CACHE_ENTRIES]; /* in order of publication */
};

/* The state of `stream` after `tokens` tokens is in slot `id`. Returns 0, or -1 if the cache is full. */
int32_t hb_prefix_cache_publish(struct hb_prefix_cache *cache, int32_t stream, int64_t tokens, int32_t id);
/* Id of the deepest state of the stream at `most` tokens or fewer, the oldest of equals; 0: none. */
int32_t hb_prefix_cache_find(const struct hb_prefix_cache *cache, int32_t stream, int64_t most);
/* Forgets the slot; 1 if it was published. */
int32_t hb_prefix_cache_evict(struct hb_prefix_cache *cache, int32_t id);
/* Where a request that shares `matched` tokens should store a state for those after it: the last point on the grid of cc
 * tokens, 0: none. */
int64_t hb_prefix_cache_branch_point(int64_t matched, int32_t cc);

#endif
