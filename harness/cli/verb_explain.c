/* SPDX-License-Identifier: Apache-2.0
 * explain: a case as text, with the prediction; or how one bound came about. */
#include <stdlib.h>
#include <string.h>

#include "harness/cli/common.h"
#include "harness/explain.h"

static int parse_place(const char *text, int64_t place[4]) {
    for (int i = 0; i < 4; i++) {
        char *end = NULL;
        if (text[0] < '0' || text[0] > '9') {
            return -1;
        }
        place[i] = strtoll(text, &end, 10);
        if (place[i] > INT32_MAX || *end != (i < 3 ? ',' : '\0')) {
            return -1;
        }
        text = end + 1;
    }
    return 0;
}

static int32_t print_bound(const struct hb_case *c, const int64_t place[4], struct hb_error *err) {
    char text[8192];
    int32_t status = hb_explain_bound(c, (int32_t)place[0], (int32_t)place[1], place[2], place[3],
                                      text, sizeof text, err);
    if (status == HB_OK) {
        size_t n = strlen(text);
        (void)printf("%s%s", text, n && text[n - 1] == '\n' ? "" : "\n");
    }
    return status;
}

static int32_t print_case(const struct hb_case *c, struct hb_error *err) {
    char *predicted = hb_explain_predicted(c);
    char *text = predicted ? hb_case_to_json(c, predicted) : NULL;
    if (!text) {
        free(predicted);
        return hb_fail_text(err, HB_ERR_MEMORY, "out of memory for the text of a case");
    }
    size_t n = strlen(text);
    (void)printf("%s%s", text, n && text[n - 1] == '\n' ? "" : "\n");
    free(text);
    free(predicted);
    return HB_OK;
}

int hb_verb_explain(const struct hb_args *args) {
    struct hb_error err = {.struct_size = sizeof err};
    struct hb_case c;
    int64_t place[4] = {0};
    if (args->bound && parse_place(args->bound, place) != 0) {
        hb_cli_complain("--bound takes step,layer,token,channel as four numbers, got '%.200s'",
                        args->bound);
        return HB_EXIT_USAGE;
    }
    int32_t status = hb_case_load(args->paths[0], &c, &err);
    if (status == HB_OK) {
        status = args->bound ? print_bound(&c, place, &err) : print_case(&c, &err);
    }
    if (args->bound && status == HB_ERR_RANGE) { /* the place named on the command line */
        hb_cli_complain("--bound %.100s: %s", args->bound, err.text);
        return HB_EXIT_USAGE;
    }
    return status == HB_OK ? HB_EXIT_OK : hb_cli_failed(status, &err);
}
