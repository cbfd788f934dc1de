/* SPDX-License-Identifier: Apache-2.0
 * Shapes of real models, read from corpus/models/NAME.json:
 *   {"name": "..", "source": "where the numbers come from", "layers": "LLLA..", "config": {..}, "true": {..}, "scaled": {..}}
 * layers: L linear, A attention, - neither, in the model's order (a layer with both in parallel is "LA"). The three objects
 * hold fields of a case's configuration: variants and types in "config", sizes in "true", and in "scaled" what a case of
 * ordinary size has in their place, with the same ratios. Strict: what is unknown, missing or inconsistent is an error. */
#ifndef HB_HARNESS_MODELS_H
#define HB_HARNESS_MODELS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/status.h"
#include "harness/case.h"

enum { HB_MODEL_NAME = 48, HB_MODEL_SOURCE = 400, HB_MODEL_LAYERS = 200, HB_MODEL_FIELDS = 96 };

struct hb_model {
    char name[HB_MODEL_NAME];
    char source[HB_MODEL_SOURCE];
    char layers[HB_MODEL_LAYERS]; /* without "-" */
    int32_t n_layers;
    struct hb_case_config real, scaled; /* defaults where the file says nothing */
    uint8_t is_given[HB_MODEL_FIELDS];  /* by index in the fields of HB_GROUP_CONFIG: the file says it */
};

/* *out is written on success only. HB_ERR_PARSE or HB_ERR_IO, with the place and the limit in err. */
int32_t hb_model_parse(const char *text, size_t len, struct hb_model *out, struct hb_error *err);
/* dir/NAME.json, whose "name" must be NAME. */
int32_t hb_model_load(const char *dir, const char *name, struct hb_model *out, struct hb_error *err);
/* Names of the models in a folder, sorted; names [cap][HB_MODEL_NAME]. Returns their number, -1 if there is no such folder. */
int32_t hb_model_names(const char *dir, char (*names)[HB_MODEL_NAME], int32_t cap);
/* Fields that the file gives, of the true or the scaled model, into g. */
void hb_model_apply(const struct hb_model *m, int32_t is_real, struct hb_case_config *g);
/* `most` consecutive layers or fewer from layer `first` on, as n_layers and attn_mask of g. */
void hb_model_layers(const struct hb_model *m, int32_t first, int32_t most, struct hb_case_config *g);

#endif
