/* SPDX-License-Identifier: Apache-2.0
 * The table of options. Help texts fit 80 columns: at most 50 characters each. */
#include "harness/cli/option_table.h"

#define V(name) (1U << HB_VERB_##name)
#define ALL ((1U << HB_N_VERBS) - 1U)
#define EXECUTES (V(RUN) | V(FUZZ) | V(REPRO))
#define GENERATES (V(GEN) | V(RUN) | V(FUZZ))
#define AT(field) offsetof(struct hb_args, field)

/* clang-format off */
const struct hb_option hb_option_table[] = {
    {"backend", 0, HB_OPTION_NAME, "NAME", "backend under test: emu (default), cuda, oracle", EXECUTES | V(CHECK), AT(backend), 0, 0, &hb_names_backend},
    {"compare", 0, HB_OPTION_NAME, "NAME", "also run on this backend, show where they part", V(RUN) | V(REPRO), AT(compare), 0, 0, &hb_names_backend},
    {"time", 0, HB_OPTION_SECONDS, "SECONDS", "how long (default 60)", V(FUZZ), AT(time), 0, 1000000000, NULL},
    {"count", 0, HB_OPTION_U64, "N", "how many cases", V(GEN) | V(FUZZ), AT(count), 1, 0, NULL},
    {"gen", 0, HB_OPTION_U64, "N", "run N generated cases instead of files", V(RUN), AT(gen), 1, 0, NULL},
    {"seed", 0, HB_OPTION_U64, "N", "seed of all random choices (default 1)", GENERATES | V(CHECK), AT(seed), 0, 0, NULL},
    {"size", 0, HB_OPTION_NAME, "NAME", "small, default, large, or real (with --model)", GENERATES, AT(size), 0, 0, &hb_names_size},
    {"mixer", 0, HB_OPTION_NAME, "NAME", "linear kind of generated cases, such as gdn", GENERATES, AT(mixer), 0, 0, &hb_names_mixer},
    {"model", 0, HB_OPTION_TEXT, "NAME", "layers and sizes of a model (see list --models)", GENERATES, AT(model), 0, 0, NULL},
    {"class", 0, HB_OPTION_NAME, "NAME", "mix (default), valid, near, broken, several", GENERATES, AT(gen_class), 0, 0, &hb_names_class},
    {"mode", 0, HB_OPTION_NAME, "NAME", "forward mode of all forwards, such as DECODE", GENERATES, AT(mode), 0, 0, &hb_names_mode},
    {"target", 0, HB_OPTION_NAME, "NAME", "target of generated cases (default forward)", V(GEN) | V(RUN), AT(target), 0, 0, &hb_names_target},
    {"relation", 0, HB_OPTION_NAME_OR_NUMBER, "N", "valid cases of one relation, by number or name", GENERATES, AT(relation), 0, 0, &hb_names_relation},
    {"engine", 0, HB_OPTION_NAME, "NAME", "libfuzzer or plain (default: what is there)", V(FUZZ), AT(engine), 0, 0, &hb_names_engine},
    {"corpus", 0, HB_OPTION_TEXT, "DIR", "corpus of the engine, read and extended", V(FUZZ), AT(corpus), 0, 0, NULL},
    {"defect", 0, HB_OPTION_NAME_OR_NUMBER, "N", "planted defect, by number or name", EXECUTES | V(CHECK), AT(defect), 0, 0, &hb_names_defect},
    {"off", 0, HB_OPTION_NAMES, "CHECK", "leave out a check (an unknown name lists them)", EXECUTES, AT(off), 0, 0, &hb_names_check_off},
    {"status-only", 0, HB_OPTION_FLAG, NULL, "check statuses only, compare no output", EXECUTES, AT(status_only), 0, 0, NULL},
    {"stop-at-first", 0, HB_OPTION_FLAG, NULL, "end with the first finding of all processes", V(FUZZ), AT(stop_at_first), 0, 0, NULL},
    {"times", 0, HB_OPTION_INT, "N", "how often, each in a fresh process (default 1)", V(REPRO), AT(times), 1, 100000, NULL},
    {"bound", 0, HB_OPTION_TEXT, "S,L,T,C", "one bound: step, layer, token, channel", V(EXPLAIN), AT(bound), 0, 0, NULL},
    {"golden", 0, HB_OPTION_TEXT, "DIR", "golden cases (default: those of the project)", V(CHECK), AT(golden), 0, 0, NULL},
    {"filter", 0, HB_OPTION_TEXT, "TEXT", "only cases whose name contains TEXT", V(CHECK), AT(filter), 0, 0, NULL},
    {"dump", 0, HB_OPTION_TEXT, "DIR", "write inputs, outputs and states as safetensors", V(RUN), AT(dump), 0, 0, NULL},
    {"stats", 0, HB_OPTION_FLAG, NULL, "medians per case and times of the phases", V(RUN) | V(FUZZ), AT(stats), 0, 0, NULL},
    {"format", 0, HB_OPTION_NAME, "NAME", "case (default) or json", V(GEN), AT(case_format), 0, 0, &hb_names_case_format},
    {"format", 0, HB_OPTION_NAME, "NAME", "text (default) or jsonl", V(RUN), AT(run_format), 0, 0, &hb_names_run_format},
    {"out", 'o', HB_OPTION_TEXT, "DIR", "folder for the cases (default: standard output)", V(GEN), AT(out), 0, 0, NULL},
    {"out", 'o', HB_OPTION_TEXT, "FILE", "write the results there", V(RUN), AT(out), 0, 0, NULL},
    {"out", 'o', HB_OPTION_TEXT, "DIR", "folder for findings (default: findings)", V(FUZZ), AT(out), 0, 0, NULL},
    {"jobs", 'j', HB_OPTION_INT, "N", "processes side by side (default 1)", V(FUZZ), AT(jobs), 1, 64, NULL},
    {"json", 0, HB_OPTION_FLAG, NULL, "one JSON object", V(LIST), AT(json), 0, 0, NULL},
    {"json", 0, HB_OPTION_FLAG, NULL, "the same as --format jsonl", V(RUN), AT(json), 0, 0, NULL},
    {"targets", 0, HB_OPTION_FLAG, NULL, "only the targets", V(LIST), AT(targets), 0, 0, NULL},
    {"backends", 0, HB_OPTION_FLAG, NULL, "only the backends", V(LIST), AT(backends), 0, 0, NULL},
    {"modes", 0, HB_OPTION_FLAG, NULL, "only the forward modes", V(LIST), AT(modes), 0, 0, NULL},
    {"statuses", 0, HB_OPTION_FLAG, NULL, "only the statuses", V(LIST), AT(statuses), 0, 0, NULL},
    {"rules", 0, HB_OPTION_FLAG, NULL, "only the rules of a call", V(LIST), AT(rules), 0, 0, NULL},
    {"relations", 0, HB_OPTION_FLAG, NULL, "only the relations", V(LIST), AT(relations), 0, 0, NULL},
    {"defects", 0, HB_OPTION_FLAG, NULL, "only the planted defects", V(LIST), AT(defects), 0, 0, NULL},
    {"models", 0, HB_OPTION_FLAG, NULL, "only the models", V(LIST), AT(models), 0, 0, NULL},
    {"quiet", 'q', HB_OPTION_FLAG, NULL, "results only, no progress", ALL, AT(quiet), 0, 0, NULL},
    {"verbose", 'v', HB_OPTION_FLAG, NULL, "show what child processes print", ALL, AT(verbose), 0, 0, NULL},
    {"help", 'h', HB_OPTION_FLAG, NULL, "this text", ALL, AT(help), 0, 0, NULL},
};
/* clang-format on */
const int hb_n_options = (int)(sizeof hb_option_table / sizeof hb_option_table[0]);

const struct hb_conflict hb_conflicts[] = {
    {ALL, "quiet", "verbose"},
    {V(FUZZ), "time", "count"},
    {V(RUN), "dump", "gen"},
    {GENERATES, "mixer", "model"},
    {V(RUN), "json", "format"},
};
const int hb_n_conflicts = (int)(sizeof hb_conflicts / sizeof hb_conflicts[0]);

const struct hb_conflict hb_needs[] = {
    {V(RUN), "seed", "gen"}, {V(RUN), "size", "gen"},   {V(RUN), "class", "gen"},
    {V(RUN), "mode", "gen"}, {V(RUN), "target", "gen"}, {V(RUN), "relation", "gen"},
    {V(RUN), "mixer", "gen"}, {V(RUN), "model", "gen"},
};
const int hb_n_needs = (int)(sizeof hb_needs / sizeof hb_needs[0]);
