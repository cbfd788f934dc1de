/* SPDX-License-Identifier: Apache-2.0
 * Tables of controls. Where one test breaks many rules it goes through a table in which each of
 * them has its fault; a test (test_controls) sees that all names are there. */
#include "harness/controls.h"

#include <stddef.h>

#include "backend/status.h"

struct control {
    int32_t first, last;
    const char *test;
};

#define BATCH "test_validate: validate_each_rule_fires"
#define LAYER "test_hybrid_calls: hybrid_layer_and_finish_rules"
#define COMMIT "test_spec_commit: commit_each_rule_fires_and_changes_nothing"
#define CONFIG "test_config: config_each_rule_fires"
#define RECIPE "test_recipes: each_recipe_breaks_its_rule_first"

static const struct control rules[] = {
    {1, 2, "test_hybrid_calls: hybrid_entries"},
    {3, 3, LAYER},
    {4, 5, RECIPE},
    {9, 10, BATCH},
    {11, 11, "test_validate: validate_modes_by_number"},
    {12, 13, LAYER},
    {14, 14, COMMIT},
    {15, 28, BATCH},
    {29, 29, LAYER},
    {30, 30, BATCH},
    {31, 33, COMMIT},
    {40, 58, BATCH},
    {59, 59, LAYER},
    {60, 64, BATCH},
    {65, 66, COMMIT},
    {67, 96, BATCH},
    {97, 97, LAYER},
    {98, 103, BATCH},
    {104, 106, COMMIT},
    {107, 111, BATCH},
    {112, 113, COMMIT},
    {114, 114, "test_ring_decode: ring_other_modes_need_a_folded_ring"},
    {115, 115, COMMIT},
    {116, 116, "test_ring_decode: ring_needs_every_linear_layer"},
    {120, 122, BATCH},
    {123, 123, COMMIT},
    {130, 132, BATCH},
    {133, 133, COMMIT},
    {140, 140, BATCH},
    {141, 141, "test_layouts: strip_refuses_links"},
    {142, 142, "test_ring_commit: links_are_refused"},
    {150, 152, "test_pool: pool_take_rules"},
    {153, 155, "test_pool: pool_free_rules"},
    {156, 156, "test_pool: pool_copy_and_its_rules"},
    {157, 157, "test_pool: pool_table_takes_any_value"},
    {158, 158, "test_adapter_native: adapter_buffers"},
    {159, 159, "test_ring_decode: ring_copies_need_a_folded_source"},
    {160, 162, "test_graph: graph_init_refuses_sizes"},
    {163, 163, "test_ids: publish_and_its_rules"},
    {164, 165, "test_ids: move_rules"},
    {200, 210, CONFIG},
    {211, 211, RECIPE},
    {212, 212, CONFIG},
    {213, 213, RECIPE},
    {214, 217, CONFIG},
    {218, 218, "test_expect_calls: create_checks_features_against_what_is_declared"},
    {219, 221, CONFIG},
    {222, 225, RECIPE},
    {230, 230, "test_expect_calls: create_checks_a_ring_that_commits_own"},
};

static const struct control statuses[] = {
    {HB_OK, HB_OK, "test_validate: validate_accepts_the_bases"},
    {HB_ERR_INVALID_MODE, HB_ERR_INVALID_MODE, "test_relations: relation_1_fires"},
    {HB_ERR_NOT_IMPLEMENTED, HB_ERR_NOT_IMPLEMENTED, "test_relations: relation_3_fires"},
    {HB_ERR_NULL, HB_ERR_CAPACITY, BATCH},
    {HB_ERR_STATE, HB_ERR_STATE, COMMIT},
    {HB_ERR_UNSUPPORTED, HB_ERR_UNSUPPORTED, CONFIG},
    {HB_ERR_DEVICE, HB_ERR_DEVICE,
     "test_adapter_native: hybrid_layer_that_fails_on_the_device_has_not_run"},
    {HB_ERR_MEMORY, HB_ERR_MEMORY,
     "test_adapter_native: adapter_create_releases_everything_at_each_failing_allocation"},
    {HB_ERR_IO, HB_ERR_IO, "test_json: unreadable_files_are_io_errors"},
    {HB_ERR_PARSE, HB_ERR_PARSE, "test_json: faults_are_named"},
};

static const char *find(const struct control *list, size_t n, int32_t number) {
    for (size_t i = 0; i < n; i++) {
        if (number >= list[i].first && number <= list[i].last) {
            return list[i].test;
        }
    }
    return NULL;
}

const char *hb_rule_control(int32_t rule) {
    return hb_rule_name(rule) ? find(rules, sizeof rules / sizeof *rules, rule) : NULL;
}

const char *hb_status_control(int32_t status) {
    return find(statuses, sizeof statuses / sizeof *statuses, status);
}
