/* SPDX-License-Identifier: Apache-2.0
 * hbfuzz: fuzzer and float64 oracle for hybrid (attention + Mamba2) inference backends. Manual:
 * hbfuzz --help.
 *
 * Debugging. hbfuzz repro FILE runs one case in a fresh process and prints where it first goes
 * wrong; hbfuzz explain FILE shows the case. -v shows what child processes print. A case can be
 * stepped through by giving a debugger hbfuzz-<target> FILE (preset fuzz), which runs it in the
 * process itself and aborts on a finding. */
#include "harness/cli/cli.h"

int main(int argc, char **argv) {
    return hb_main(argc, argv);
}
