#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job in one command: installs what is missing, builds the fuzz preset, fuzzes the emulated backend for a minute,
# reports. Arguments are passed on to `hbfuzz fuzz` (default: forward --time 60 --seed 1).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
"$root/scripts/setup.sh"
configure_and_build fuzz
if [ $# -eq 0 ]; then
    set -- forward --time 60 --seed 1
fi
say "hbfuzz fuzz $*"
exec "$root/build/fuzz/hbfuzz" fuzz "$@"
