/* SPDX-License-Identifier: Apache-2.0
 * Help, made from the tables of verbs and options; fits 80 columns. */
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/option_table.h"

static void program_help(FILE *out) {
    (void)fprintf(out, "usage: hbfuzz VERB [options] [paths]\n\n"
                       "Fuzzer and float64 oracle for hybrid (attention + Mamba2) inference "
                       "backends.\n\nverbs:\n");
    for (int i = 0; i < HB_N_VERBS; i++) {
        (void)fprintf(out, "  %-9s %s\n", hb_verbs[i].name, hb_verbs[i].what);
    }
    (void)fprintf(
        out,
        "\n  hbfuzz VERB --help   options of a verb\n"
        "  hbfuzz --version     version, commit, compiler\n\n"
        "exit codes: 0 as expected, 1 findings or non-conformance, 2 wrong command line,\n"
        "3 not possible here (no device, not in this build), 4 a file that cannot be\n"
        "read, parsed or written, 5 internal error, 130 interrupted\n\n"
        "examples:\n  %s\n  %s\n",
        hb_verbs[HB_VERB_FUZZ].example[0], hb_verbs[HB_VERB_REPRO].example[0]);
}

void hb_options_help(FILE *out, int32_t verb) {
    if (verb < 0) {
        program_help(out);
        return;
    }
    const struct hb_verb_row *v = &hb_verbs[verb];
    (void)fprintf(out, "usage: hbfuzz %s [options]%s%s%s\n\n%s\n\noptions:\n", v->name,
                  v->operands[0] ? " " : "", v->operands,
                  verb == HB_VERB_FUZZ ? " [-- engine arguments]" : "", v->what);
    for (int i = 0; i < hb_n_options; i++) {
        const struct hb_option *o = &hb_option_table[i];
        char left[64];
        if (!(o->verbs >> verb & 1U)) {
            continue;
        }
        char letter[8] = "    ";
        if (o->letter) {
            (void)snprintf(letter, sizeof letter, "-%c, ", o->letter);
        }
        (void)snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->arg ? " " : "",
                       o->arg ? o->arg : "");
        (void)fprintf(out, "  %-25s %s\n", left, o->help);
    }
    (void)fprintf(out, "\nexamples:\n  %s\n  %s\n", v->example[0], v->example[1]);
}
