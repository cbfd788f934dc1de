/* SPDX-License-Identifier: Apache-2.0
 * The relations of invariants.md as records, by number. */
#include "harness/run.h"

/* 50: that a verify leaves the pools as they are is compared in every verify (verify.pool). 52, 53,
 * 57: compared in every case, since the oracle computes each node on the path from the root, and
 * each commit is a copy of what it judged. 62 to 66: in runs of their own
 * (relations_kernel.c). */
static const struct hb_relation relations[] = {
    {1, "error.invalid_mode", "S", "test_relations: relation_1_fires", 1},
    {2, "graph.modes", "S", "test_relations_graph: relation_2_fires", 1},
    {3, "error.child_entry", "S", "test_relations: relation_3_fires", 1},
    {4, "error.purity", "E", "test_relations: relation_4_fires", 1},
    {5, "error.mode_first", "S", "test_relations: relation_5_fires", 1},
    {6, "begin.repeat", "E", "test_relations_graph: relation_6_fires", 0},
    {7, "batch.written", "E", "test_relations: relation_7_fires", 1},
    {8, "error.no_trace", "E", "test_relations: relation_8_fires", 0},
    {9, "forward.without_begin", "S", "test_relations_graph: relation_9_fires", 1},
    {10, "error.value_free", "S", "test_relations: relation_10_fires", 0},
    {11, "state.neighbour", "E", "test_relations: relation_11_fires", 0},
    {12, "batch.padding_rows", "E", "test_relations: relation_12_fires", 0},
    {13, "mode.idle", "E", "test_relations: relation_13_fires", 1},
    {14, "state.fresh_row", "E", "test_relations: relation_14_fires", 0},
    {17, "layer.independent", "E", "test_relations: relation_17_fires", 0},
    {18, "pool.stride", "E", "test_relations_graph: relation_18_fires", 0},
    {19, "slot.invalid", "S", "test_relations: relation_19_fires", 1},
    {20, "slot.take", "E S", "test_relations_graph: relation_20_fires", 1},
    {21, "slot.copy", "E S", "test_relations_graph: relation_21_fires", 1},
    {22, "decode.permutation", "E", "test_relations: relation_22_fires", 0},
    {23, "decode.one_by_one", "E", "test_relations: relation_23_fires", 0},
    {26, "extend.split", "T", "test_relations: relation_26_fires", 0},
    {27, "extend.split_conv", "E", "test_relations: relation_27_fires", 0},
    {30, "mixed.separate", "T", "test_relations: relation_30_fires", 0},
    {35, "metadata.definition", "E", "test_relations_graph: relation_35_fires", 1},
    {37, "track.invisible", "E", "test_relations: relation_37_fires", 0},
    {38, "track.law", "E T", "test_relations: relation_38_fires", 1},
    {40, "track.mask_bits", "E", "test_relations: relation_40_fires", 0},
    {44, "track.invalid", "S E", "test_relations: relation_44_fires", 1},
    {45, "graph.eager", "E T", "test_relations_graph: relation_45_fires", 0},
    {46, "graph.refresh", "E", "test_relations_graph: relation_46_fires", 1},
    {47, "graph.history", "E", "test_relations_graph: relation_47_fires", 0},
    {48, "graph.capture", "E", "test_relations_graph: relation_48_fires", 1},
    {49, "graph.padding_count", "E S", "test_relations_graph: relation_49_fires", 0},
    {50, "verify.repeat", "E", "test_relations_spec: relation_50_fires", 0},
    {51, "verify.decode", "E T", "test_relations_spec: relation_51_fires", 0},
    {52, "verify.intermediate", "E T", "test_relations_spec: relation_52_fires", 1},
    {53, "verify.tree_path", "E T", "test_relations_spec: relation_53_fires", 1},
    {54, "verify.linked_chain", "E T", "test_relations_spec: relation_54_fires", 0},
    {55, "verify.rejected", "E", "test_relations_spec: relation_55_fires", 0},
    {56, "commit.repeat", "E", "test_relations_spec: relation_56_fires", 0},
    {57, "commit.track", "E T", "test_relations_spec: relation_57_fires", 1},
    {58, "verify.ragged", "E", "test_relations_spec: relation_58_fires", 0},
    {59, "commit.window_layout", "E", "test_relations_graph: relation_59_fires", 0},
    {60, "ring.plain", "T E", "test_relations_graph: relation_60_fires", 0},
    {61, "ring.tracked", "T E", "test_relations_graph: relation_61_fires", 1},
    {62, "scan.scale", "E", "test_relations_kernel: relation_62_fires", 0},
    {63, "scan.superposition", "T", "test_relations_kernel: relation_63_fires", 0},
    {64, "scan.step_limits", "E T", "test_relations_kernel: relation_64_fires", 0},
    {65, "scan.growth", "T", "test_relations_kernel: relation_65_fires", 0},
    {66, "scan.groups", "E T", "test_relations_kernel: relation_66_fires", 0},
};

int hb_relations(const struct hb_relation **out) {
    *out = relations;
    return (int)(sizeof relations / sizeof *relations);
}
