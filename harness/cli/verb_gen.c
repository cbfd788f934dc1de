/* SPDX-License-Identifier: Apache-2.0
 * gen: cases from a seed. */
#include <stdlib.h>

#include "harness/cli/common.h"
#include "harness/gen.h"

static int32_t write_one(const struct hb_args *args, const struct hb_case *c,
                         struct hb_error *err) {
    if (!args->out) {
        char *text = hb_case_to_json(c, NULL);
        if (!text) {
            return hb_fail_text(err, HB_ERR_MEMORY, "out of memory for the text of a case");
        }
        int rc = puts(text);
        free(text);
        return rc < 0 ? hb_fail_text(err, HB_ERR_IO, "cannot write to standard output") : HB_OK;
    }
    char id[HB_CASE_ID_LEN];
    char path[HB_PATH_CAP];
    hb_case_id(c, id);
    (void)snprintf(path, sizeof path, "%s/%s-%s.%s", args->out, hb_target_name(c->config.target),
                   id, args->case_format == HB_FORMAT_JSON ? "json" : "case");
    return hb_case_save(path, c, err);
}

int hb_verb_gen(const struct hb_args *args) {
    struct hb_error err = {.struct_size = sizeof err};
    struct hb_gen_options o;
    if (hb_given(args, "format") && !args->out && args->case_format == HB_FORMAT_CASE) {
        hb_cli_complain("--format case needs --out: standard output gets JSON");
        return HB_EXIT_USAGE;
    }
    int32_t status = args->out ? hb_cli_make_dir(args->out, &err) : HB_OK;
    const int rc = hb_cli_gen_options(args, &o);
    if (rc != 0) {
        return rc;
    }
    uint64_t count = args->count ? args->count : 1;
    if (args->out) { /* an interrupt leaves whole files only */
        hb_supervise_catch(1);
    }
    for (uint64_t i = 0; status == HB_OK && i < count && hb_supervise_interrupts() == 0; i++) {
        struct hb_case c;
        hb_gen_case(&o, args->seed, i, &c);
        status = write_one(args, &c, &err);
    }
    if (hb_supervise_interrupts() > 0) {
        return HB_EXIT_INTERRUPTED;
    }
    return status == HB_OK ? HB_EXIT_OK : hb_cli_failed(status, &err);
}
