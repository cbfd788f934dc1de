/* SPDX-License-Identifier: Apache-2.0
 * Between the files of relations: transformations of a case. Each returns 0 when the relation says nothing about the case. */
#ifndef HB_HARNESS_RELATIONS_INTERNAL_H
#define HB_HARNESS_RELATIONS_INTERNAL_H

#include "harness/run_internal.h"

/* Histories with breaks, or in which slots are copied over each other, are not transformed: there one request may visit a
 * position twice with different states. */
int hb_relation_is_plain(const struct hb_case *c);
/* Appends a step; 0 if the case is full. */
int hb_relation_append(struct hb_case *out, const struct hb_case_step *s);

/* relations_spec.c: draft verification */
int hb_relation_verify_twice(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist);  /* 50 */
int hb_relation_verify_decode(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist); /* 51 */
int hb_relation_link_chains(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist);   /* 54 */
int hb_relation_nan_rejected(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist);  /* 55 */
int hb_relation_commit_parts(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist);  /* 56 */
int hb_relation_fill_rows(const struct hb_case *c, struct hb_case *out, struct hb_twist *twist);     /* 58 */

#endif
