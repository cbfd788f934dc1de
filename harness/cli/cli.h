/* SPDX-License-Identifier: Apache-2.0
 * The command hbfuzz. */
#ifndef HB_HARNESS_CLI_CLI_H
#define HB_HARNESS_CLI_CLI_H

/* Exit codes. */
enum {
    HB_EXIT_OK = 0,
    HB_EXIT_FINDINGS = 1,    /* findings or non-conformance */
    HB_EXIT_USAGE = 2,       /* the command line only */
    HB_EXIT_NOT_HERE = 3,    /* no device, not in this build, capability absent */
    HB_EXIT_ENVIRONMENT = 4, /* a file that cannot be read, parsed or written; no memory */
    HB_EXIT_INTERNAL = 5,
    HB_EXIT_INTERRUPTED = 130 /* what was done is written */
};

/* The whole program: returns the exit code. */
int hb_main(int argc, char **argv);

#endif
