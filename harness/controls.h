/* SPDX-License-Identifier: Apache-2.0
 * Controls: for each rule and status of backend/status.h the test in which it is broken, or given. Relations name theirs in
 * relations_list.c. */
#ifndef HB_HARNESS_CONTROLS_H
#define HB_HARNESS_CONTROLS_H

#include <stdint.h>

/* "program: function", null if there is none. */
const char *hb_rule_control(int32_t rule);
const char *hb_status_control(int32_t status);

#endif
