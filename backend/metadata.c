/* SPDX-License-Identifier: Apache-2.0
 * Derivation of forward metadata. Nothing here looks at tensor values or writes the batch. */
#include "backend/metadata.h"

#include <stddef.h>
#include <string.h>

#include "backend/config.h"
#include "backend/defects.h"
#include "backend/mode.h"

enum { N_ARRAYS = 17 };

static const int32_t guard_word = INT32_MIN;

/* Next n words of the block. */
static int32_t *carve(struct hb_metadata *m, int64_t n) {
    int32_t *array = m->block + m->words;
    array[n] = guard_word;
    m->words += n + 1;
    return array;
}

int64_t hb_metadata_capacity(const struct hb_config *config, int32_t has_attention) {
    const int64_t rows = config->max_batch;
    const int64_t tokens = config->max_tokens;
    /* qsl B+1; slots B; prefill rows 4B; copies 2B; ring 3B; attention rows B; out_cache_loc,
     * seq_idx, two chunk arrays 4T; parents of the rows that a verify may have */
    const int64_t spec_rows = rows < config->spec_rows ? rows : config->spec_rows;
    const int64_t fixed = 12 * rows + 1 + 4 * tokens + spec_rows * config->max_draft + N_ARRAYS;
    const int64_t table = has_attention ? hb_mul_saturate(rows, config->max_context, 1) : 0;
    return table > INT64_MAX - fixed ? INT64_MAX : fixed + table;
}

static int is_masked(const struct hb_config *config, const struct hb_batch *batch, int64_t r) {
    if (HB_DEFECT(config->defect, MIXED_DROPS_TRACK) && batch->forward_mode == HB_MODE_MIXED) {
        return 0;
    }
    return batch->mamba_track_mask.data != NULL && batch->mamba_track_mask.data[r] != 0;
}

int32_t hb_metadata_track_slot(const struct hb_validate_env *env, int64_t id) {
    if (id < 1 || id > hb_env_n_ids(env)) {
        return HB_PAD_SLOT;
    }
    if (HB_DEFECT(env->config->defect, TRACK_VIRTUAL)) {
        return (int32_t)((id - 1) % env->config->n_slots) + 1; /* of the pool, but not its slot */
    }
    return hb_env_slot(env, (int32_t)id);
}

/* metadata.md section 2: gather, translate, then -1 on padding; IDLE reads nothing. */
static void fill_cache_indices(struct hb_metadata *m, const struct hb_validate_env *env,
                               const struct hb_batch *batch) {
    m->cache_indices = carve(m, m->n_rows);
    for (int64_t r = 0; r < m->n_rows; r++) {
        const int is_live = r < m->n_live && m->mode != HB_MODE_IDLE;
        m->cache_indices[r] =
            is_live ? hb_env_slot(env, env->req_to_slot[batch->req_pool_indices.data[r]])
                    : HB_PAD_SLOT;
    }
}

/* TARGET_VERIFY: draft nodes of row r. */
static int32_t count_nodes(const struct hb_batch *batch, int64_t r) {
    const int32_t *layout = batch->ragged_verify_layout.data;
    return layout != NULL ? layout[r + 1] - layout[r] : batch->draft_token_num;
}

/* metadata.md section 3; always computed from extend_seq_lens. */
static void fill_query_start(struct hb_metadata *m, const struct hb_batch *batch) {
    const int64_t np = m->num_prefills;
    const int64_t n = np + m->n_update_rows + m->n_verify_rows;
    int32_t start = 0;
    m->query_start_loc = carve(m, n + 1);
    m->query_start_loc[0] = 0;
    for (int64_t r = 0; r < n; r++) {
        start += m->n_verify_rows > 0 ? count_nodes(batch, r)
                 : r < np             ? batch->extend_seq_lens.data[r]
                                      : 1;
        m->query_start_loc[r + 1] = start;
    }
}

/* metadata.md section 4.1: the sign of the prefix and nothing else. */
static void fill_initial_states(struct hb_metadata *m, const struct hb_config *config,
                                const struct hb_batch *batch) {
    m->has_initial_states = carve(m, m->num_prefills);
    m->prep_initial_states = 0;
    for (int64_t r = 0; r < m->num_prefills; r++) {
        int32_t has = batch->extend_prefix_lens.data[r] > 0;
        has &= !(HB_DEFECT(config->defect, INIT_STATE_MASK) &&
                 batch->mamba_track_mask.data != NULL && !is_masked(config, batch, r));
        m->has_initial_states[r] = has;
        m->prep_initial_states |= has;
    }
}

/* Defect: one chunk early, or late where there is no earlier one. */
static int32_t defective_len(int32_t chunk, int32_t len, int32_t extend) {
    if (len > chunk) {
        return len - chunk;
    }
    return len + chunk <= extend ? len + chunk : len;
}

/* Where the SSM state of tracked row r is taken: the same place as the window, after len tokens. */
static int32_t ssm_len(const struct hb_metadata *m, const struct hb_config *config,
                       const struct hb_batch *batch, int64_t r, int32_t len) {
    const int32_t chunk = config->chunk_size;
    if (HB_DEFECT(config->defect, TRACK_POSITION)) {
        return defective_len(chunk, len, batch->extend_seq_lens.data[r]);
    }
    if (HB_DEFECT(config->defect, PAGE_CHUNK)) {
        const int64_t tokens =
            batch->mamba_track_seqlens.data[r] - batch->extend_prefix_lens.data[r];
        return (int32_t)(tokens / chunk * chunk);
    }
    if (HB_DEFECT(config->defect, H_INDEX_OFFSET)) {
        int32_t chunks = len / chunk; /* index of the whole chunks of this row and those before */
        for (int64_t j = 0; j < r; j++) {
            chunks += batch->extend_seq_lens.data[j] / chunk;
        }
        const int32_t at = chunks * chunk - m->query_start_loc[r];
        return at > 0 ? at : 1;
    }
    return len;
}

/* tracking.md section 4: a = floor((T_i - prefix)/CC)*CC, one position for conv and SSM. */
static void fill_track(struct hb_metadata *m, const struct hb_validate_env *env,
                       const struct hb_batch *batch) {
    const struct hb_config *config = env->config;
    const int64_t chunk =
        config->chunk_size > config->page_size ? config->chunk_size : config->page_size;
    m->track_conv_len = carve(m, m->num_prefills);
    m->track_ssm_len = carve(m, m->num_prefills);
    m->track_dst = carve(m, m->num_prefills);
    for (int64_t r = 0; r < m->num_prefills; r++) {
        int32_t len = 0;
        m->track_dst[r] = HB_PAD_SLOT;
        if (is_masked(config, batch, r)) {
            const int64_t tokens =
                batch->mamba_track_seqlens.data[r] - batch->extend_prefix_lens.data[r];
            len = (int32_t)(tokens / chunk * chunk);
            m->track_dst[r] = hb_metadata_track_slot(env, batch->mamba_track_indices.data[r]);
            m->n_tracked++;
        }
        m->track_conv_len[r] = len;
        m->track_ssm_len[r] = len > 0 ? ssm_len(m, config, batch, r, len) : len;
    }
}

/* tracking.md section 5: after the step, slot_i -> dst_i of masked rows. */
static void fill_copies(struct hb_metadata *m, const struct hb_validate_env *env,
                        const struct hb_batch *batch) {
    int32_t n = 0;
    for (int64_t r = 0; m->mode == HB_MODE_DECODE && r < m->n_live; r++) {
        n += is_masked(env->config, batch, r);
    }
    m->copy_src = carve(m, n);
    m->copy_dst = carve(m, n);
    m->n_copies = n;
    n = 0;
    for (int64_t r = 0; m->n_copies > 0 && r < m->n_live; r++) {
        if (is_masked(env->config, batch, r)) {
            m->copy_src[n] = m->cache_indices[r];
            m->copy_dst[n++] = hb_metadata_track_slot(env, batch->mamba_track_indices.data[r]);
        }
    }
}

void hb_metadata_fill_ring(const struct hb_validate_env *env, const struct hb_batch *batch,
                           int32_t n_rows, int32_t n_live, const int32_t *slots,
                           int32_t *write_pos, int32_t *force) {
    const struct hb_config *config = env->config;
    const int32_t interval =
        config->track_interval > 0 ? config->track_interval : config->chunk_size;
    for (int32_t r = 0; r < n_rows; r++) {
        write_pos[r] = force[r] = 0;
        if (r >= n_live || slots[r] < 1) {
            continue;
        }
        const int32_t w = env->write_pos[slots[r]]; /* open to raw writes through its region */
        write_pos[r] = w >= 0 && w < config->ring_length ? w : 0;
        force[r] = is_masked(config, batch, r) && !HB_DEFECT(config->defect, RING_NO_FORCE);
        if (batch->seq_lens_cpu.data != NULL) {
            force[r] |= batch->seq_lens_cpu.data[r] % interval == 0;
        }
    }
}

/* Values are open to raw writes through their regions: what would lead outside counts as 0. */
void hb_metadata_fill_commit_ring(const struct hb_validate_env *env, int32_t n_rows, int32_t n_live,
                                  const int32_t *slots, int32_t *write_pos, int32_t *fold,
                                  int32_t *base) {
    const int32_t length = env->config->ring_length;
    for (int32_t r = 0; r < n_rows; r++) {
        write_pos[r] = fold[r] = base[r] = 0;
        if (r >= n_live || slots[r] < 1) {
            continue;
        }
        const int32_t w = env->write_pos[slots[r]];
        write_pos[r] = w >= 0 && w <= length - env->config->max_draft ? w : 0;
        fold[r] = env->ring_flush[slots[r]] != 0;
        base[r] = env->ring_base[slots[r]] & (length - 1);
    }
}

static void fill_ring(struct hb_metadata *m, const struct hb_validate_env *env,
                      const struct hb_batch *batch) {
    const int32_t commits = hb_config_ring_commits(env->config);
    if (env->write_pos == NULL || m->mode != (commits ? HB_MODE_TARGET_VERIFY : HB_MODE_DECODE)) {
        return;
    }
    m->replay_write_pos = carve(m, m->n_rows);
    m->force_flush = carve(m, m->n_rows);
    if (commits) {
        m->ring_base = carve(m, m->n_rows);
        hb_metadata_fill_commit_ring(env, m->n_rows, m->n_live, m->cache_indices,
                                     m->replay_write_pos, m->force_flush, m->ring_base);
        return;
    }
    hb_metadata_fill_ring(env, batch, m->n_rows, m->n_live, m->cache_indices,
                          m->replay_write_pos, m->force_flush);
}

/* Builds with planted defects: the sibling of node t becomes its child, always or where t is a
 * later sibling itself. */
static int is_sibling_lost(const struct hb_config *config, const struct hb_batch *batch,
                           int64_t first, const int32_t *parent, int32_t t) {
    const int is_later = t > 0 && batch->retrieve_next_token.data[first + parent[t]] != t;
    return HB_DEFECT(config->defect, VERIFY_SIBLING) ||
           (HB_DEFECT(config->defect, LATER_SIBLING) && is_later);
}

/* speculative.md section 3, in index order. Links lead to higher indices, so a node's parent is
 * known before its siblings need it. */
static void fill_parents(struct hb_metadata *m, const struct hb_config *config,
                         const struct hb_batch *batch) {
    const int64_t n_rows = m->is_tree ? m->n_verify_rows : 0;
    m->parent_stride = config->max_draft;
    m->parents = carve(m, n_rows * config->max_draft);
    for (int64_t i = 0; i < n_rows * config->max_draft; i++) {
        m->parents[i] = 0;
    }
    for (int64_t r = 0; r < n_rows && r < m->n_live; r++) {
        const int64_t first = r * batch->draft_token_num;
        const int32_t n = count_nodes(batch, r);
        int32_t *parent = m->parents + r * config->max_draft;
        for (int32_t t = 0; t < n; t++) {
            const int32_t child = batch->retrieve_next_token.data[first + t];
            const int32_t sibling = batch->retrieve_next_sibling.data[first + t];
            if (child >= 0) {
                parent[child] = t;
            }
            if (sibling >= 0) {
                parent[sibling] = is_sibling_lost(config, batch, first, parent, t) ? t : parent[t];
            }
        }
    }
}

/* A planted defect goes on into the next token slot where a page ends. */
static int32_t token_slot(const struct hb_config *config, const int32_t *table, int32_t pos) {
    if (HB_DEFECT(config->defect, PAGE_CROSSING) && pos > 0 && pos % config->page_size == 0 &&
        table[pos - 1] + 1 < config->n_kv) {
        return table[pos - 1] + 1;
    }
    return table[pos];
}

/* The live rows' part of the caller's table, compact: row r of it is batch row r. */
static void fill_attention(struct hb_metadata *m, const struct hb_config *config,
                           const struct hb_batch *batch) {
    m->seq_lens = carve(m, m->n_live);
    m->out_cache_loc = carve(m, m->n_real);
    for (int32_t r = 0; r < m->n_live; r++) {
        const int32_t nodes = m->n_verify_rows > 0 ? count_nodes(batch, r) : 0;
        const int32_t len = batch->seq_lens.data[r] + nodes;
        m->seq_lens[r] = len;
        m->table_cols = len > m->table_cols ? len : m->table_cols;
    }
    if (m->n_real > 0) {
        memcpy(m->out_cache_loc, batch->out_cache_loc.data, (size_t)m->n_real * sizeof(int32_t));
    }
    m->req_to_token = carve(m, (int64_t)m->n_live * m->table_cols);
    for (int64_t r = 0; r < m->n_live; r++) {
        const int32_t *src = batch->req_to_token.data +
                             (int64_t)batch->req_pool_indices.data[r] * batch->req_to_token_cols;
        int32_t *dst = m->req_to_token + r * m->table_cols;
        for (int32_t pos = 0; pos < m->table_cols; pos++) {
            dst[pos] = pos < m->seq_lens[r] ? token_slot(config, src, pos) : -1;
        }
    }
}

static void fill_seq_idx(struct hb_metadata *m) {
    m->seq_idx = carve(m, m->num_prefill_tokens);
    for (int32_t r = 0; r < m->num_prefills; r++) {
        for (int32_t t = m->query_start_loc[r]; t < m->query_start_loc[r + 1]; t++) {
            m->seq_idx[t] = r;
        }
    }
}

/* metadata.md section 4.3: the set {row starts} u {multiples of C below the total}, in order. */
static void fill_chunks(struct hb_metadata *m, int32_t chunk) {
    m->chunk_indices =
        m->block + m->words; /* their number is known only afterwards; they take the block's rest */
    m->chunk_offsets = m->chunk_indices + m->num_prefill_tokens + 1;
    for (int32_t r = 0; r < m->num_prefills; r++) {
        for (int32_t t = m->query_start_loc[r]; t < m->query_start_loc[r + 1];
             t += chunk - t % chunk) {
            m->chunk_indices[m->n_chunks] = t / chunk;
            m->chunk_offsets[m->n_chunks++] = t % chunk;
        }
    }
    m->words += 2 * ((int64_t)m->num_prefill_tokens + 1);
}

/* metadata.md section 4: row and token counts. */
static void count(struct hb_metadata *m, const struct hb_config *config,
                  const struct hb_batch *batch) {
    m->mode = batch->forward_mode;
    m->n_rows = batch->batch_size;
    m->n_live = batch->has_original_batch_size ? batch->original_batch_size : batch->batch_size;
    m->n_tokens = batch->n_tokens;
    if (m->mode == HB_MODE_IDLE) {
        m->n_live = 0;
        m->n_update_rows = m->n_rows;
        return;
    }
    const int is_verify = hb_mode_is(m->mode, HB_MODE_IS_TARGET_VERIFY);
    if (is_verify &&
        !(HB_DEFECT(config->defect, VERIFY_BY_SHAPE) && m->n_tokens == m->n_rows)) {
        m->num_decodes = m->n_live;
        m->n_verify_rows = m->n_rows;
        m->is_tree = batch->retrieve_next_token.data != NULL;
        for (int32_t r = 0; r < m->n_live; r++) {
            m->n_real += count_nodes(batch, r);
        }
        return;
    }
    if (is_verify || hb_mode_is(m->mode, HB_MODE_IS_DECODE)) {
        m->num_decodes = m->n_live;
        m->n_update_rows = m->n_rows;
    } else {
        m->num_prefills = batch->n_extend;
        m->num_prefill_tokens = (int32_t)batch->extend_num_tokens;
        m->num_decodes = m->n_live - m->num_prefills;
        m->n_update_rows = m->num_decodes;
    }
    m->n_real = m->num_prefill_tokens + m->num_decodes;
}

void hb_metadata_derive(const struct hb_validate_env *env, const struct hb_batch *batch,
                        int32_t *block, struct hb_metadata *out) {
    const struct hb_config *config = env->config;
    struct hb_metadata m = {.block = block};
    count(&m, config, batch);
    fill_query_start(&m, batch);
    fill_cache_indices(&m, env, batch);
    fill_initial_states(&m, config, batch);
    fill_track(&m, env, batch);
    fill_copies(&m, env, batch);
    fill_ring(&m, env, batch);
    fill_parents(&m, config, batch);
    if (env->has_attention && m.mode != HB_MODE_IDLE) {
        fill_attention(&m, env->config, batch);
    }
    m.device_words = m.words;
    fill_seq_idx(&m);
    if (m.prep_initial_states) {
        fill_chunks(&m, config->chunk_size);
    }
    *out = m;
}
