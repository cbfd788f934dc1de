/* SPDX-License-Identifier: Apache-2.0
 * Predictions of a case as text. The case runs on the float64 oracle behind the adapter table, so that slot ids and
 * positions are those that a backend with a first-in first-out free list gives. */
#include "harness/explain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "harness/run.h"

static void add_prediction(void *ctx, int32_t step, const char *call, const struct hb_error *want) {
    cJSON *list = ctx;
    /* only calls that say something: those that check a batch or sizes, and whatever is refused */
    static const char *const told[] = {"begin", "graph_init", "capture", "replay"};
    int is_told = want->status != HB_OK;
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        is_told |= strcmp(call, told[i]) == 0;
    }
    if (!is_told) {
        return;
    }
    cJSON *item = cJSON_CreateObject();
    cJSON_AddNumberToObject(item, "step", step);
    cJSON_AddStringToObject(item, "call", call);
    cJSON_AddStringToObject(item, "status", hb_status_name(want->status));
    if (want->status != HB_OK) {
        const char *rule = hb_rule_name(want->rule);
        cJSON_AddStringToObject(item, "rule", rule ? rule : "none");
        cJSON_AddNumberToObject(item, "row", want->row);
        cJSON_AddStringToObject(item, "text", want->text);
    }
    cJSON_AddItemToArray(list, item);
}

/* One call per line, as the rest of the case's text. */
static char *print_calls(const cJSON *calls) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) {
        return NULL;
    }
    (void)fputs("{\"calls\": [", out);
    const cJSON *item;
    int first = 1;
    int failed = 0;
    cJSON_ArrayForEach(item, calls) {
        char *line = cJSON_PrintUnformatted(item);
        failed |= line == NULL;
        (void)fprintf(out, "%s\n    %s", first ? "" : ",", line ? line : "");
        cJSON_free(line);
        first = 0;
    }
    (void)fputs("]}", out);
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

char *hb_explain_predicted(const struct hb_case *c) {
    cJSON *calls = cJSON_CreateArray();
    const struct hb_run_options o = {.tamper_element = -1,
                                     .status_only = 1,
                                     .predicted = add_prediction,
                                     .predicted_ctx = calls};
    struct hb_verdict v;
    char *text = NULL;
    if (calls && hb_run_case(hb_adapter_oracle(), c, &o, &v, NULL) == 0) {
        text = print_calls(calls);
    }
    cJSON_Delete(calls);
    return text;
}

struct wanted {
    int32_t step, layer;
    int64_t token, channel;
    int32_t found;
    double value, bound, mag;
};

static void see_element(void *ctx, int32_t step, int32_t layer, int64_t token, int32_t n,
                        const double *want, const double *bound, const double *mag) {
    struct wanted *w = ctx;
    if (step == w->step && layer == w->layer && token == w->token && w->channel >= 0 &&
        w->channel < n) {
        w->found = 1;
        w->value = want[w->channel];
        w->bound = bound[w->channel];
        w->mag = mag[w->channel];
    }
}

int32_t hb_explain_bound(const struct hb_case *c, int32_t step, int32_t layer, int64_t token,
                         int64_t channel, char *out, size_t cap, struct hb_error *err) {
    struct wanted w = {.step = step, .layer = layer, .token = token, .channel = channel};
    const struct hb_run_options o = {
        .tamper_element = -1, .see_token = see_element, .see_token_ctx = &w};
    struct hb_verdict v;
    struct hb_case plain = *c;
    plain.config.relation = 0;
    (void)hb_run_case(hb_adapter_emu(), &plain, &o, &v, NULL);
    if (!w.found) {
        return hb_fail_text(err, HB_ERR_RANGE,
                            "the case has no output at step %d, layer %d, token %lld, channel %lld",
                            step, layer, (long long)token, (long long)channel);
    }
    (void)snprintf(out, cap,
                   "step %d layer %d token %lld channel %lld: value %.17g, bound %.6g (%.3g of the value), "
                   "magnitude %.6g, tier 1 of the %s form",
                   step, layer, (long long)token, (long long)channel, w.value, w.bound,
                   w.value != 0 ? w.bound / fabs(w.value) : INFINITY, w.mag,
                   c->config.kernel_form ? "fast" : "v0");
    return HB_OK;
}
