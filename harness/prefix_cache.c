/* SPDX-License-Identifier: Apache-2.0
 * The prefix cache of a scheduler, as far as states go (tracking.md section 8). */
#include "harness/prefix_cache.h"

#include <string.h>

int32_t hb_prefix_cache_publish(struct hb_prefix_cache *cache, int32_t stream, int64_t tokens,
                                int32_t id) {
    if (cache->n == HB_PREFIX_CACHE_ENTRIES) {
        return -1;
    }
    cache->entry[cache->n].stream = stream;
    cache->entry[cache->n].tokens = tokens;
    cache->entry[cache->n].id = id;
    cache->n++;
    return 0;
}

int32_t hb_prefix_cache_find(const struct hb_prefix_cache *cache, int32_t stream, int64_t most) {
    int32_t best = -1;
    for (int32_t i = 0; i < cache->n; i++) {
        const int64_t tokens = cache->entry[i].tokens;
        if (cache->entry[i].stream == stream && tokens <= most &&
            (best < 0 || tokens > cache->entry[best].tokens)) {
            best = i;
        }
    }
    return best < 0 ? 0 : cache->entry[best].id;
}

int32_t hb_prefix_cache_evict(struct hb_prefix_cache *cache, int32_t id) {
    for (int32_t i = 0; i < cache->n; i++) {
        if (cache->entry[i].id == id) {
            cache->n--;
            memmove(&cache->entry[i], &cache->entry[i + 1],
                    (size_t)(cache->n - i) * sizeof cache->entry[i]);
            return 1;
        }
    }
    return 0;
}

int64_t hb_prefix_cache_branch_point(int64_t matched, int32_t cc) {
    return cc > 0 && matched > 0 ? matched / cc * cc : 0;
}
