/* SPDX-License-Identifier: Apache-2.0
 * The field table of the case: the one place that knows every field's range, default, names and
 * users. */
#include <string.h>

#include "backend/adapter.h"
#include "harness/case.h"

/* clang-format off */
static const char *const target_names[HB_N_TARGETS] = {"forward", "dispatch", "verify", "metadata", "track", "graph", "slots",
                                                        "attention"};
static const char *const dtype_names[HB_N_FLOAT_DTYPES] = {"fp32", "bf16", "fp16"};
static const char *const conv_act_names[] = {"silu", "none"};
static const char *const gate_norm_names[] = {"after", "before", "gate_only", "norm_only", "none"};
static const char *const dt_clamp_names[] = {"none", "limit", "prefill", "decode"};
static const char *const eps_names[] = {"1e-5", "1e-6"};
static const char *const form_names[] = {"v0", "fast"};
static const char *const order_names[] = {"ascending", "descending", "random"};
static const char *const class_names[] = {"ordinary", "exact", "large_dt", "tiny_dt", "cancel", "wide",
                                          "one_sign"};
static const char *const unread_names[] = {"random", "nan", "inf"};
static const char *const kind_names[HB_N_STEP_KINDS] = {"forward",    "take",    "free",    "copy", "entry", "commit",
                                         "graph_init", "capture", "publish", "move"};
static const char *const ping_pong_names[] = {"off", "one", "two", "lazy"};
static const char *const window_names[] = {"dense", "strip"};
static const char *const owner_names[HB_N_RING_OWNERS] = {"decode", "commit"};
static const char *const mixer_names[HB_N_MIXERS] = {"mamba2", "gdn", "kda", "lightning", "short_conv", "mamba1"};
static const char *const norm_names[HB_N_NORM_SPANS] = {"group", "whole", "head"};
static const char *const head_map_names[HB_N_HEAD_MAPS] = {"interleave", "tile"};
static const char *const layout_names[HB_N_STATE_LAYOUTS] = {"vk", "kv"};
static const char *const out_gate_names[HB_N_OUT_GATES] = {"silu", "sigmoid"};
static const char *const state_len_names[HB_N_CONV_STATE_LENS] = {"short", "full"};
static const char *const l2norm_names[HB_N_L2NORMS] = {"add_eps", "max_eps", "off"};
static const char *const beta_names[HB_N_BETA_FORMS] = {"sigmoid", "double", "raw"};
static const char *const gate_form_names[HB_N_GATE_FORMS] = {"standard", "lower_bound"};
static const char *const bound_names[HB_N_GATE_BOUNDS] = {"-5", "-1", "-0.25", "-20"};
static const char *const scale_names[HB_N_QK_SCALES] = {"default", "1", "0.5", "0.3"};
static const char *const slope_names[HB_N_SLOPE_KINDS] = {"param", "alibi", "minimax", "fla", "token"};
static const char *const factor_names[HB_N_LAYER_FACTORS] = {"none", "minimax", "ling", "ling_off"};
static const char *const qkv_act_names[HB_N_QKV_ACTS] = {"none", "silu"};
static const char *const rule_names[HB_N_WINDOW_RULES] = {"exclusive", "inclusive"};
static const char *const softcap_names[HB_N_SOFTCAPS] = {"none", "50", "30", "5", "1"};
static const char *const page_names[HB_N_KV_PAGES] = {"1", "16", "64"};
static const char *const page_order_names[HB_N_PAGE_ORDERS] = {"shuffled", "interleaved", "descending"};
static const char *const slot_kind_names[] = {"live", "track"};
static const char *const entry_target_names[] = {"child", "wrapper"};
static const char *const direction_names[] = {"decode", "extend"};
static const char *const operation_names[] = {"set", "add", "absent", "length", "copy"};
static const char *const break_names[] = {
#define HB_BREAK_JSON(name, json) json,
    HB_BREAK_FIELDS(HB_BREAK_JSON)
#undef HB_BREAK_JSON
};

#define BIT(kind) (1u << HB_STEP_##kind)
#define ANY_KIND 0xffffffffu
#define WITH_ROWS (BIT(FORWARD) | BIT(ENTRY))
#define ANY_ROW (WITH_ROWS | BIT(COMMIT))
#define WITH_MODE (WITH_ROWS | BIT(CAPTURE))
#define GRAPH_SIZES (BIT(GRAPH_INIT) | BIT(CAPTURE))
#define WITH_SLOT (BIT(FREE) | BIT(COPY) | BIT(PUBLISH) | BIT(MOVE))
#define CONFIG(name, lo, hi, initial, names) \
    {#name, offsetof(struct hb_case_config, name), lo, hi, initial, names, HB_GROUP_CONFIG, ANY_KIND, 0}
#define STEP(name, kinds, lo, hi, initial, names) \
    {#name, offsetof(struct hb_case_step, name), lo, hi, initial, names, HB_GROUP_STEP, kinds, 0}
#define ROW(name, kinds, lo, hi, initial) \
    {#name, offsetof(struct hb_case_row, name), lo, hi, initial, NULL, HB_GROUP_ROW, kinds, 0}
#define BREAK(name, lo, hi, initial, names, wide) \
    {#name, offsetof(struct hb_case_break, name), lo, hi, initial, names, HB_GROUP_BREAK, ANY_KIND, wide}

#define CONFIG_FIELDS \
    CONFIG(target, 0, HB_N_TARGETS - 1, 0, target_names), \
    CONFIG(n_layers, 1, 4, 3, NULL), \
    CONFIG(attn_mask, 0, 15, 4, NULL), \
    CONFIG(heads, 1, 128, 2, NULL), \
    CONFIG(head_dim, 1, 256, 4, NULL), \
    CONFIG(state_size, 1, HB_MAX_STATE_SIZE, 8, NULL), \
    CONFIG(groups, 1, 128, 1, NULL), \
    CONFIG(conv_width, 2, HB_MAX_CONV_WIDTH, 4, NULL), \
    CONFIG(chunk_size, 4, 256, 8, NULL), \
    CONFIG(page_chunks, 0, 4, 0, NULL), \
    CONFIG(act_dtype, 0, HB_N_FLOAT_DTYPES - 1, 0, dtype_names), \
    CONFIG(state_dtype, 0, HB_BF16, 0, dtype_names), \
    CONFIG(conv_act, 0, HB_N_CONV_ACTS - 1, 0, conv_act_names), \
    CONFIG(gate_norm, 0, HB_N_GATE_NORMS - 1, 0, gate_norm_names), \
    CONFIG(norm_group, 0, HB_N_NORM_SPANS - 1, 0, norm_names), \
    CONFIG(dt_softplus, 0, 1, 1, NULL), \
    CONFIG(dt_clamp, 0, HB_N_CLAMPS - 1, 0, dt_clamp_names), \
    CONFIG(eps, 0, 1, 0, eps_names), \
    CONFIG(conv_bias, 0, 1, 0, NULL), \
    CONFIG(dt_bias, 0, 1, 1, NULL), \
    CONFIG(skip_d, 0, 1, 0, NULL), \
    CONFIG(q_heads, 1, 128, 2, NULL), \
    CONFIG(kv_heads, 1, 128, 1, NULL), \
    CONFIG(attn_dim, 1, 256, 4, NULL), \
    CONFIG(spare_slots, 0, 8, 2, NULL), \
    CONFIG(kernel_form, 0, HB_N_FORMS - 1, 0, form_names), \
    CONFIG(thread_order, 0, HB_N_ORDERS - 1, 0, order_names), \
    CONFIG(block_order, 0, HB_N_ORDERS - 1, 0, order_names), \
    CONFIG(order_seed, 0, 255, 0, NULL), \
    CONFIG(value_class, 0, HB_N_VALUE_CLASSES - 1, 0, class_names), \
    CONFIG(unread, 0, HB_N_UNREAD - 1, 0, unread_names), \
    CONFIG(seed, INT32_MIN, INT32_MAX, 1, NULL), \
    CONFIG(relation, 0, 66, 0, NULL), \
    CONFIG(relation_arg, 0, 255, 0, NULL), \
    CONFIG(max_draft, 0, HB_MAX_DRAFT, 0, NULL), \
    CONFIG(spare_rows, 0, 4, 0, NULL), \
    CONFIG(ring_length, 0, HB_MAX_RING, 0, NULL), \
    CONFIG(ring_owner, 0, HB_N_RING_OWNERS - 1, 0, owner_names), \
    CONFIG(track_chunks, 1, 8, 1, NULL), \
    CONFIG(virtual_ids, 0, 16, 0, NULL), \
    CONFIG(ping_pong, 0, HB_N_PING_PONGS - 1, 0, ping_pong_names), \
    CONFIG(window_layout, 0, HB_N_WINDOW_LAYOUTS - 1, 0, window_names), \
    CONFIG(track_by_layer, 0, 1, 0, NULL), \
    CONFIG(pool_pad, 0, HB_MAX_POOL_PAD, 0, NULL), \
    CONFIG(graph_rows, 0, 2 * HB_MAX_ROWS, 0, NULL), \
    CONFIG(graph_draft, 1, HB_MAX_DRAFT, 1, NULL), \
    CONFIG(mixer, 0, HB_N_MIXERS - 1, 0, mixer_names), \
    CONFIG(head_map, 0, HB_N_HEAD_MAPS - 1, 0, head_map_names), \
    CONFIG(state_layout, 0, HB_N_STATE_LAYOUTS - 1, 0, layout_names), \
    CONFIG(out_gate, 0, HB_N_OUT_GATES - 1, 0, out_gate_names), \
    CONFIG(conv_state_len, 0, HB_N_CONV_STATE_LENS - 1, 0, state_len_names), \
    CONFIG(l2norm, 0, HB_N_L2NORMS - 1, 0, l2norm_names), \
    CONFIG(beta_form, 0, HB_N_BETA_FORMS - 1, 0, beta_names), \
    CONFIG(gate_form, 0, HB_N_GATE_FORMS - 1, 0, gate_form_names), \
    CONFIG(gate_bound, 0, HB_N_GATE_BOUNDS - 1, 0, bound_names), \
    CONFIG(qk_scale, 0, HB_N_QK_SCALES - 1, 0, scale_names), \
    CONFIG(slope_kind, 0, HB_N_SLOPE_KINDS - 1, 0, slope_names), \
    CONFIG(layer_factor, 0, HB_N_LAYER_FACTORS - 1, 0, factor_names), \
    CONFIG(qkv_act, 0, HB_N_QKV_ACTS - 1, 0, qkv_act_names), \
    CONFIG(attn_window, 0, 4096, 0, NULL), \
    CONFIG(window_rule, 0, HB_N_WINDOW_RULES - 1, 0, rule_names), \
    CONFIG(attn_softcap, 0, HB_N_SOFTCAPS - 1, 0, softcap_names), \
    CONFIG(kv_page, 0, HB_N_KV_PAGES - 1, 0, page_names), \
    CONFIG(page_order, 0, HB_N_PAGE_ORDERS - 1, 0, page_order_names), \
    CONFIG(real_size, 0, 1, 0, NULL)

#define STEP_FIELDS \
    STEP(kind, ANY_KIND, 0, HB_N_STEP_KINDS - 1, 0, kind_names), \
    STEP(mode, WITH_MODE, INT32_MIN, INT32_MAX, 1, NULL), \
    STEP(n_decode, WITH_ROWS, 0, HB_MAX_ROWS, 0, NULL), \
    STEP(pad_rows, WITH_ROWS, 0, 8, 0, NULL), \
    STEP(pad_tokens, WITH_ROWS, 0, 32, 0, NULL), \
    STEP(optional, WITH_MODE, 0, 255, 0, NULL), \
    STEP(layer_mask, WITH_MODE, 0, 15, 0, NULL), \
    STEP(draft, WITH_ROWS, 0, HB_MAX_DRAFT, 0, NULL), \
    STEP(ragged, WITH_ROWS, 0, 1, 0, NULL), \
    STEP(tree, WITH_ROWS, 0, HB_TREE_MAX, 0, NULL), \
    STEP(replay, BIT(FORWARD), 0, 1, 0, NULL), \
    STEP(bs, GRAPH_SIZES, 0, 2 * HB_MAX_ROWS, 1, NULL), \
    STEP(nodes, GRAPH_SIZES, 0, HB_MAX_DRAFT, 1, NULL), \
    STEP(match, BIT(TAKE), -1, HB_MAX_REQS - 1, -1, NULL), \
    STEP(request, BIT(TAKE), 0, HB_MAX_REQS - 1, 0, NULL), \
    STEP(slot_kind, BIT(TAKE), 0, 1, 0, slot_kind_names), \
    STEP(prefix, BIT(TAKE), 0, 200, 0, NULL), \
    STEP(from, BIT(TAKE), -1, HB_MAX_STEPS - 1, -1, NULL), \
    STEP(slot, WITH_SLOT, 0, HB_MAX_STEPS - 1, 0, NULL), \
    STEP(slot2, BIT(FREE) | BIT(COPY), -1, HB_MAX_STEPS - 1, -1, NULL), \
    STEP(target, BIT(ENTRY), 0, 1, 0, entry_target_names), \
    STEP(direction, BIT(ENTRY), 0, 1, 0, direction_names), \
    STEP(layer, BIT(ENTRY), -1, HB_MAX_LAYERS, 0, NULL), \
    STEP(null_args, BIT(ENTRY), 0, 1, 0, NULL)

#define ROW_FIELDS \
    ROW(request, WITH_ROWS, 0, HB_MAX_REQS - 1, 0), \
    ROW(length, WITH_ROWS, 1, 200, 1), \
    ROW(track, ANY_ROW, 0, 1, 0), \
    ROW(track_slot, ANY_ROW, 0, HB_MAX_STEPS - 1, 0), \
    ROW(track_point, WITH_ROWS, 0, 50, 0), \
    ROW(accept, BIT(COMMIT), -1, HB_MAX_DRAFT - 1, 0), \
    ROW(track_accept, BIT(COMMIT), 0, HB_MAX_DRAFT - 1, 0)

#define BREAK_FIELDS \
    BREAK(step, -1, HB_MAX_STEPS - 1, 0, NULL, 0), \
    BREAK(field, 0, HB_N_BREAK_FIELDS - 1, 0, break_names, 0), \
    BREAK(row, 0, 65535, 0, NULL, 0), \
    BREAK(operation, 0, HB_N_BREAK_OPS - 1, 0, operation_names, 0), \
    BREAK(value, INT64_MIN, INT64_MAX, 0, NULL, 1)

static const struct hb_case_field fields_table[] = {CONFIG_FIELDS, STEP_FIELDS, ROW_FIELDS, BREAK_FIELDS};
/* clang-format on */

#define COUNT(fields)                                                                              \
    (sizeof((const struct hb_case_field[]){fields}) / sizeof(struct hb_case_field))
enum {
    N_CONFIG = COUNT(CONFIG_FIELDS),
    N_STEP = COUNT(STEP_FIELDS),
    N_ROW = COUNT(ROW_FIELDS),
    N_BREAK = COUNT(BREAK_FIELDS)
};

int hb_case_group_fields(int32_t group, const struct hb_case_field **fields) {
    static const int first[] = {0, N_CONFIG, N_CONFIG + N_STEP, N_CONFIG + N_STEP + N_ROW};
    static const int count[] = {N_CONFIG, N_STEP, N_ROW, N_BREAK};
    if (group < HB_GROUP_CONFIG || group > HB_GROUP_BREAK) {
        return 0;
    }
    *fields = fields_table + first[group];
    return count[group];
}

int hb_case_fields(const struct hb_case_field **fields) {
    *fields = fields_table;
    return (int)(sizeof fields_table / sizeof fields_table[0]);
}

const char *hb_target_name(int32_t target) {
    return target >= 0 && target < HB_N_TARGETS ? target_names[target] : "unknown";
}

const char *hb_mixer_name(int32_t mixer) {
    return mixer >= 0 && mixer < HB_N_MIXERS ? mixer_names[mixer] : "unknown";
}

const char *hb_break_field_name(int32_t field) {
    return field >= 0 && field < HB_N_BREAK_FIELDS ? break_names[field] : NULL;
}

int64_t hb_case_field_get(const struct hb_case_field *f, const void *group) {
    const char *at = (const char *)group + f->offset;
    if (f->is_wide) {
        int64_t wide;
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    int32_t narrow;
    memcpy(&narrow, at, sizeof narrow);
    return narrow;
}

void hb_case_field_set(const struct hb_case_field *f, void *group, int64_t value) {
    char *at = (char *)group + f->offset;
    if (f->is_wide) {
        memcpy(at, &value, sizeof value);
        return;
    }
    const int32_t narrow = (int32_t)value;
    memcpy(at, &narrow, sizeof narrow);
}

int hb_case_field_used(const struct hb_case_field *f, int32_t kind) {
    return kind >= 0 && kind < HB_N_STEP_KINDS && ((f->kinds >> kind) & 1u) != 0;
}

int hb_step_has_rows(int32_t kind) {
    return kind == HB_STEP_FORWARD || kind == HB_STEP_ENTRY || kind == HB_STEP_COMMIT;
}

int hb_case_mode_name(int32_t mode, char *out, size_t cap) {
    static const struct {
        int32_t number;
        const char *name;
    } modes[] = {
#define HB_MODE_ROW(number, name) {number, #name},
        HB_MODES(HB_MODE_ROW)
#undef HB_MODE_ROW
    };
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        const size_t len = strlen(modes[i].name);
        if (modes[i].number == mode && len < cap) {
            memcpy(out, modes[i].name, len + 1);
            return (int)len;
        }
    }
    return 0;
}
