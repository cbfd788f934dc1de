/* SPDX-License-Identifier: Apache-2.0
 * The table of verbs, and the way into them. */
#include <signal.h>
#include <string.h>

#include "harness/child.h"
#include "harness/cli/common.h"

/* clang-format off */
const struct hb_verb_row hb_verbs[HB_N_VERBS] = {
    [HB_VERB_DOCTOR] = {"doctor", "", 0, 0, "what this build and this machine can do, and why not",
        {"hbfuzz doctor", "hbfuzz doctor -q"}, hb_verb_doctor},
    [HB_VERB_LIST] = {"list", "", 0, 0, "targets, backends, modes, rules, relations, defects, models, ...",
        {"hbfuzz list --relations", "hbfuzz list --json"}, hb_verb_list},
    [HB_VERB_GEN] = {"gen", "", 0, 0, "generate cases from a seed",
        {"hbfuzz gen --seed 7 --count 100 --out cases", "hbfuzz gen --mode MIXED --class broken"}, hb_verb_gen},
    [HB_VERB_RUN] = {"run", "FILE|DIR...", 0, -1, "run cases once, each with all checks",
        {"hbfuzz run corpus/forward --format jsonl --out results.jsonl", "hbfuzz run --gen 1000 --seed 3 --stats"}, hb_verb_run},
    [HB_VERB_FUZZ] = {"fuzz", "TARGET", 1, 1, "search for findings",
        {"hbfuzz fuzz forward --time 60 --seed 1", "hbfuzz fuzz dispatch --count 10000 --engine plain"}, hb_verb_fuzz},
    [HB_VERB_REPRO] = {"repro", "FILE", 1, 1, "run one case again and show where it first goes wrong",
        {"hbfuzz repro findings/forward-numeric-1b2c3d4e-5f607182.case", "hbfuzz repro F.case --backend cuda --compare emu"}, hb_verb_repro},
    [HB_VERB_EXPLAIN] = {"explain", "FILE|-", 1, 1, "a case as JSON text, with what each step should lead to",
        {"hbfuzz explain F.case", "hbfuzz explain F.case --bound 0,1,5,3"}, hb_verb_explain},
    [HB_VERB_CHECK] = {"check", "", 0, 0, "compare a backend with golden tensors of other projects",
        {"hbfuzz check --backend emu", "hbfuzz check --golden DIR --filter ssd"}, hb_verb_check},
};
/* clang-format on */

static int print_version(void) {
    const struct hb_build_info *b = hb_cli_build();
    (void)printf("hbfuzz %s (%s, %s, %s)\n", b->version, b->commit, b->compiler, b->type);
    return HB_EXIT_OK;
}

static int act(const struct hb_args *args) {
    if (args->version) {
        return print_version();
    }
    if (args->help) {
        hb_options_help(stdout, args->verb);
        return HB_EXIT_OK;
    }
    return hb_verbs[args->verb].act(args);
}

int hb_main(int argc, char **argv) {
    struct hb_args args;
    /* a limit of file sizes (ulimit -f) is then an error of the write, with a message; child processes inherit it */
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN); /* a reader that leaves, too: a child's death by it would look like a finding */
    if (argc == 2 && strcmp(argv[1], "--child") == 0) {
        return hb_child_main();
    }
    hb_cli_open_streams();
    int rc = hb_options_parse(argc, argv, &args);
    if (rc != 0) {
        return rc;
    }
    rc = act(&args);
    int is_bad = fflush(stdout) != 0;
    if (is_bad || ferror(stdout)) {
        if (rc != HB_EXIT_ENVIRONMENT) { /* else there was a message */
            hb_cli_complain("cannot write to standard output");
        }
        rc = HB_EXIT_ENVIRONMENT;
    }
    return rc;
}
